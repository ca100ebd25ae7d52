//! What must hold for any bytes given to the decoder of bodies: however they are cut, it finds what
//! a plain reading of RFC 9112 §7.1 finds, and what it found can be written and found again.

use forebay_http::body::{
    BodyDecoder, BodyError, CHUNK_LINE_BYTES, EXTENSION_BYTES, Encoder, Trailers,
};
use forebay_http::framing::Framing;
use forebay_http::head::HeadLimits;

const SMALL: HeadLimits =
    HeadLimits { head_bytes: 40, head_lines: 2, target_bytes: 0, empty_host: false };

/// Panics if something does not hold for `bytes`.
pub(crate) fn check(bytes: &[u8]) {
    for allowance in [10, 100, u64::MAX] {
        for limits in [HeadLimits::default(), SMALL] {
            check_body(Framing::Chunked, allowance, &limits, bytes);
        }
        for framing in [Framing::Sized(7), Framing::None] {
            check_body(framing, allowance, &SMALL, &bytes[..bytes.len().min(20)]);
        }
    }
}

fn check_body(framing: Framing, allowance: u64, limits: &HeadLimits, bytes: &[u8]) {
    let found = decode(framing, allowance, limits, [bytes].into_iter());
    for size in [1, 2, 7] {
        let again = decode(framing, allowance, limits, bytes.chunks(size));
        assert_eq!(again, found, "in pieces of {size}");
    }
    let mut expected = reference(framing, allowance, limits, bytes);
    expected.trailers.retain(|field| found.trailers.contains(field));
    assert_eq!(found, expected);
    check_trailers(&found);
    check_encoder(&found, limits);
}

/// What a body was found to hold.
#[derive(Debug, Default, PartialEq)]
struct Found {
    data: Vec<u8>,
    trailers: Vec<Field>,
    /// Its length if it ends, `None` if more must come, or the status of the error.
    end: BodyEnd,
}

type Field = (String, Vec<u8>);

#[derive(Debug, Default, PartialEq)]
enum BodyEnd {
    #[default]
    More,
    At(usize),
    Error(u16),
}

fn decode<'b>(
    framing: Framing,
    allowance: u64,
    limits: &HeadLimits,
    pieces: impl Iterator<Item = &'b [u8]>,
) -> Found {
    let new = |trailers| BodyDecoder::new(framing, allowance, trailers, limits);
    let mut decoder = match new(Trailers::Keep) {
        Ok(decoder) => decoder,
        Err(error) => {
            assert_eq!(new(Trailers::Discard).err(), Some(error));
            return refused(Found::default(), error);
        }
    };
    let mut skipper = new(Trailers::Discard).expect("it can be skipped if it can be read");
    let (mut found, mut total) = (Found::default(), 0);
    for piece in pieces {
        let taken = take(&mut decoder, piece, &mut found.data);
        assert_eq!(taken, skipper.skip(piece));
        match taken {
            Ok(used) => total += used,
            Err(error) => {
                assert_eq!(decoder.next(b"0"), Err(error));
                return refused(found, error);
            }
        }
    }
    assert_eq!(decoder.is_done(), skipper.is_done());
    assert_eq!(skipper.trailers().count(), 0);
    if decoder.is_done() {
        found.end = BodyEnd::At(total);
    }
    found.trailers =
        decoder.trailers().map(|(name, value)| (name.to_owned(), value.to_vec())).collect();
    found
}

fn take(decoder: &mut BodyDecoder, piece: &[u8], data: &mut Vec<u8>) -> Result<usize, BodyError> {
    let mut rest = piece;
    while !rest.is_empty() && !decoder.is_done() {
        let decoded = decoder.next(rest)?;
        assert!(decoded.used > 0 && rest[..decoded.used].ends_with(decoded.data));
        data.extend_from_slice(decoded.data);
        rest = &rest[decoded.used..];
    }
    Ok(piece.len() - rest.len())
}

fn refused(found: Found, error: BodyError) -> Found {
    assert!([400, 413, 431].contains(&error.status()) && !error.reason().is_empty());
    Found { end: BodyEnd::Error(error.status()), ..found }
}

/// RFC 9110 §6.5.1.
fn check_trailers(found: &Found) {
    for (name, _) in &found.trailers {
        let name = name.to_ascii_lowercase();
        assert!(!["content-length", "transfer-encoding", "host", "trailer"].contains(&&name[..]));
    }
}

/// Writes what was found as chunks, and finds it again.
fn check_encoder(found: &Found, limits: &HeadLimits) {
    if matches!(found.end, BodyEnd::Error(_)) {
        return;
    }
    let (mut encoder, mut body) = (Encoder::chunked(), Vec::new());
    for piece in found.data.chunks(5) {
        encoder.write(piece, &mut body).expect("a chunked body has any length");
    }
    let fields = found.trailers.iter().map(|(name, value)| (name.as_str(), value.as_slice()));
    encoder.finish(fields, &mut body).expect("the trailers were checked");
    // a field is written with a space behind its colon, which it may not have had
    let limits = HeadLimits { head_bytes: limits.head_bytes + limits.head_lines, ..*limits };
    let again = decode(Framing::Chunked, u64::MAX, &limits, [&body[..]].into_iter());
    assert_eq!(again.end, BodyEnd::At(body.len()));
    assert_eq!((&again.data, &again.trailers), (&found.data, &found.trailers));
}

/// The same in the plainest way: from start to end, one rule of the grammar after the other. It has
/// all trailers, also those which must be dropped.
fn reference(framing: Framing, allowance: u64, limits: &HeadLimits, body: &[u8]) -> Found {
    let mut reader = BodyReader {
        rest: body,
        allowed: allowance,
        extension: usize::from(EXTENSION_BYTES),
        found: Found::default(),
    };
    let read = match framing {
        Framing::None => Ok(()),
        Framing::Sized(length) if length > allowance => Err(BodyStop::Status(413)),
        Framing::Sized(length) => reader.data(length),
        Framing::Chunked => reader.chunks(limits),
    };
    let end = match read {
        Ok(()) => BodyEnd::At(body.len() - reader.rest.len()),
        Err(BodyStop::Status(status)) => BodyEnd::Error(status),
        Err(BodyStop::More) => BodyEnd::More,
    };
    let is_whole = matches!(end, BodyEnd::At(_));
    let trailers = if is_whole { reader.found.trailers } else { Vec::new() };
    Found { end, trailers, ..reader.found }
}

enum BodyStop {
    /// The bytes were all right so far.
    More,
    Status(u16),
}

const MALFORMED: BodyStop = BodyStop::Status(400);

struct BodyReader<'b> {
    rest: &'b [u8],
    /// Bytes of data that are still allowed.
    allowed: u64,
    /// Bytes of extensions that are still allowed.
    extension: usize,
    found: Found,
}

impl BodyReader<'_> {
    fn take(&mut self) -> Result<u8, BodyStop> {
        let (&byte, rest) = self.rest.split_first().ok_or(BodyStop::More)?;
        self.rest = rest;
        Ok(byte)
    }

    fn literal(&mut self, bytes: &[u8]) -> Result<(), BodyStop> {
        bytes.iter().try_for_each(|&b| if self.take()? == b { Ok(()) } else { Err(MALFORMED) })
    }

    fn data(&mut self, size: u64) -> Result<(), BodyStop> {
        (0..size).try_for_each(|_| self.take().map(|byte| self.found.data.push(byte)))
    }

    fn chunks(&mut self, limits: &HeadLimits) -> Result<(), BodyStop> {
        loop {
            let size = self.chunk_line()?;
            if size == 0 {
                return self.trailers(limits);
            }
            let Some(allowed) = self.allowed.checked_sub(size) else {
                return Err(BodyStop::Status(413));
            };
            self.allowed = allowed;
            self.data(size)?;
            self.literal(b"\r\n")?;
        }
    }

    fn chunk_line(&mut self) -> Result<u64, BodyStop> {
        let mut line = BoundedLine { bytes: usize::from(CHUNK_LINE_BYTES), reader: self };
        let (mut zeros, mut digits) = (0, String::new());
        let mut byte = line.take()?;
        while byte.is_ascii_hexdigit() {
            zeros += usize::from(digits.is_empty() && byte == b'0');
            if !digits.is_empty() || byte != b'0' {
                digits.push(char::from(byte));
            }
            if digits.len() > 16 {
                return Err(BodyStop::Status(413));
            }
            if zeros + digits.len() > 16 {
                line.costs()?;
            }
            byte = line.take()?;
        }
        if zeros + digits.len() == 0 {
            return Err(MALFORMED);
        }
        let size = u64::from_str_radix(&format!("0{digits}"), 16).expect("16 digits fit");
        while byte != b'\r' {
            byte = line.extension(byte)?;
        }
        if line.take()? == b'\n' { Ok(size) } else { Err(MALFORMED) }
    }

    fn trailers(&mut self, limits: &HeadLimits) -> Result<(), BodyStop> {
        let all = self.rest;
        let within = all.len().min(limits.head_bytes);
        self.rest = &all[..within];
        let read = self.fields(limits.head_lines);
        if matches!(read, Err(BodyStop::More)) && within < all.len() {
            return Err(BodyStop::Status(431));
        }
        self.rest = &all[within - self.rest.len()..];
        read
    }

    fn fields(&mut self, most: usize) -> Result<(), BodyStop> {
        for count in 0.. {
            let mut byte = self.take()?;
            if byte == b'\r' {
                break;
            }
            if count == most {
                return Err(BodyStop::Status(431));
            }
            let (mut name, mut value) = (String::new(), Vec::new());
            while is_token(byte) {
                name.push(char::from(byte));
                byte = self.take()?;
            }
            if byte != b':' || name.is_empty() {
                return Err(MALFORMED);
            }
            byte = self.take()?;
            while is_text(byte) {
                value.push(byte);
                byte = self.take()?;
            }
            if byte != b'\r' {
                return Err(MALFORMED);
            }
            self.literal(b"\n")?;
            self.found.trailers.push((name, value.trim_ascii().to_vec()));
        }
        self.literal(b"\n")
    }
}

/// A chunk line, which has a bound.
struct BoundedLine<'r, 'b> {
    reader: &'r mut BodyReader<'b>,
    bytes: usize,
}

impl BoundedLine<'_, '_> {
    fn take(&mut self) -> Result<u8, BodyStop> {
        let byte = self.reader.take()?;
        self.bytes = self.bytes.checked_sub(1).ok_or(BodyStop::Status(413))?;
        Ok(byte)
    }

    /// The byte taken last belongs to an extension.
    fn costs(&mut self) -> Result<(), BodyStop> {
        self.reader.extension =
            self.reader.extension.checked_sub(1).ok_or(BodyStop::Status(413))?;
        Ok(())
    }

    /// After a byte of an extension.
    fn after(&mut self) -> Result<u8, BodyStop> {
        self.costs()?;
        self.take()
    }

    fn blanks(&mut self, mut byte: u8) -> Result<u8, BodyStop> {
        while byte == b' ' || byte == b'\t' {
            byte = self.after()?;
        }
        Ok(byte)
    }

    fn token(&mut self, mut byte: u8) -> Result<u8, BodyStop> {
        if !is_token(byte) {
            return Err(MALFORMED);
        }
        while is_token(byte) {
            byte = self.after()?;
        }
        Ok(byte)
    }

    /// `BWS ";" BWS name [ BWS "=" BWS value ]` from its first byte on; returns the one behind it.
    /// White space behind a name may belong to the next extension.
    fn extension(&mut self, first: u8) -> Result<u8, BodyStop> {
        if self.blanks(first)? != b';' {
            return Err(MALFORMED);
        }
        let byte = self.after()?;
        let byte = self.blanks(byte)?;
        let end = self.token(byte)?;
        let byte = self.blanks(end)?;
        if byte != b'=' {
            let is_after_blanks = byte != end;
            return if is_after_blanks && byte != b';' { Err(MALFORMED) } else { Ok(byte) };
        }
        let byte = self.after()?;
        let byte = self.blanks(byte)?;
        if byte != b'"' {
            return self.token(byte);
        }
        let mut byte = self.after()?;
        while byte != b'"' {
            if byte == b'\\' {
                byte = self.after()?;
            }
            if !is_text(byte) {
                return Err(MALFORMED);
            }
            byte = self.after()?;
        }
        self.after()
    }
}

fn is_token(byte: u8) -> bool {
    matches!(byte, b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'0'..=b'9' | b'A'..=b'Z'
        | b'^'..=b'z' | b'|' | b'~')
}

fn is_text(byte: u8) -> bool {
    !byte.is_ascii_control() || byte == b'\t'
}
