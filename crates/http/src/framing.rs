//! The body of a request: how it is framed (RFC 9112 §6) and where it ends.

use crate::head::{Error, Version};

/// How the body of a request is delimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// There is no body.
    None,
    /// Exactly this many bytes.
    Sized(u64),
    /// Chunks, ended by a chunk of size 0.
    Chunked,
}

/// The length fields seen so far in a head.
#[derive(Default)]
pub(crate) struct Lengths {
    content_length: Option<u64>,
    chunked: bool,
}

impl Lengths {
    pub(crate) fn content_length(&mut self, value: &[u8]) -> Result<(), Error> {
        if self.content_length.is_some() {
            return Err(Error::Malformed("Content-Length is repeated"));
        }
        if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
            return Err(Error::Malformed("Content-Length is not a number"));
        }
        let number = value
            .iter()
            .try_fold(0u64, |sum, digit| sum.checked_mul(10)?.checked_add(u64::from(digit - b'0')));
        self.content_length = Some(number.ok_or(Error::Malformed("Content-Length is too large"))?);
        Ok(())
    }

    pub(crate) fn transfer_encoding(&mut self, value: &[u8]) -> Result<(), Error> {
        if self.chunked {
            return Err(Error::Malformed("Transfer-Encoding is repeated"));
        }
        let codings = || value.split(|&b| b == b',').map(<[u8]>::trim_ascii);
        let is_chunked = |coding: &[u8]| coding.eq_ignore_ascii_case(b"chunked");
        match codings().position(is_chunked) {
            Some(0) if codings().count() == 1 => self.chunked = true,
            // nobody could tell where such a body ends (RFC 9112 §6.3)
            Some(at) if at + 1 < codings().count() => {
                return Err(Error::Malformed("chunked is not the last transfer coding"));
            }
            _ => return Err(Error::TransferCoding),
        }
        Ok(())
    }

    /// RFC 9112 §6.1 and §6.3: a message with both lengths, or a transfer coding in HTTP/1.0, may
    /// be an attempt to smuggle a request and is refused.
    pub(crate) fn framing(&self, version: Version) -> Result<Framing, Error> {
        match (self.chunked, self.content_length) {
            (true, Some(_)) => {
                Err(Error::Malformed("both Content-Length and Transfer-Encoding are given"))
            }
            (true, None) if version == Version::Http10 => {
                Err(Error::Malformed("HTTP/1.0 has no Transfer-Encoding"))
            }
            (true, None) => Ok(Framing::Chunked),
            (false, Some(0)) | (false, None) => Ok(Framing::None),
            (false, Some(length)) => Ok(Framing::Sized(length)),
        }
    }
}

/// Finds the end of a body that arrives in pieces, without keeping any of it.
#[derive(Clone, Debug)]
pub struct Skipper {
    state: State,
    /// Bytes of body and of its framing that may still come.
    allowance: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Data(u64),
    SizeStart,
    Size(u64, u8),
    Extension(u64),
    SizeLf(u64),
    Chunk(u64),
    ChunkCr,
    ChunkLf,
    TrailerStart,
    Trailer,
    TrailerLf,
    LastLf,
    Done,
}

/// Why a body could not be skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SkipError {
    /// The chunked framing is broken. 400.
    Malformed(&'static str),
    /// More than the allowance. 413.
    TooLarge,
}

impl SkipError {
    /// The status that answers it.
    pub fn status(self) -> u16 {
        match self {
            SkipError::Malformed(_) => 400,
            SkipError::TooLarge => 413,
        }
    }

    /// What is wrong, in a few words.
    pub fn reason(self) -> &'static str {
        match self {
            SkipError::Malformed(what) => what,
            SkipError::TooLarge => "the request body is too large",
        }
    }
}

impl Skipper {
    /// Starts at the first byte after the head. At most `allowance` bytes are skipped, framing
    /// included.
    ///
    /// # Errors
    /// [`SkipError::TooLarge`] if the length is known to exceed the allowance.
    pub fn new(framing: Framing, allowance: u64) -> Result<Skipper, SkipError> {
        let state = match framing {
            Framing::None | Framing::Sized(0) => State::Done,
            Framing::Sized(length) if length > allowance => return Err(SkipError::TooLarge),
            Framing::Sized(length) => State::Data(length),
            Framing::Chunked => State::SizeStart,
        };
        Ok(Skipper { state, allowance })
    }

    /// Whether the body's last byte has been skipped.
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Skips what belongs to the body at the start of `bytes`; returns how many bytes that were.
    ///
    /// # Errors
    /// When the framing is broken or the allowance used up.
    pub fn skip(&mut self, bytes: &[u8]) -> Result<usize, SkipError> {
        let mut at = 0;
        while at < bytes.len() && self.state != State::Done {
            let step = match self.state {
                State::Data(left) | State::Chunk(left) => left.min((bytes.len() - at) as u64),
                _ => 1,
            };
            self.allowance = self.allowance.checked_sub(step).ok_or(SkipError::TooLarge)?;
            self.state = self.after(bytes[at], step)?;
            at += step as usize;
        }
        Ok(at)
    }

    /// RFC 9112 §7.1.
    fn after(&self, byte: u8, step: u64) -> Result<State, SkipError> {
        use State::*;
        let wrong = |what| Err(SkipError::Malformed(what));
        Ok(match (self.state, byte) {
            (Data(left), _) if left == step => Done,
            (Data(left), _) => Data(left - step),
            (SizeStart, _) => match hex(byte) {
                Some(digit) => Size(digit, 1),
                None => return wrong("a chunk size is not a number"),
            },
            (Size(size, _), b'\r') => SizeLf(size),
            (Size(size, _), b';') => Extension(size),
            (Size(size, digits), _) => match hex(byte) {
                Some(digit) if digits < 15 => Size(size << 4 | digit, digits + 1),
                Some(_) => return Err(SkipError::TooLarge),
                None => return wrong("a chunk size is not a number"),
            },
            (Extension(size), b'\r') => SizeLf(size),
            (Extension(_), b'\n' | 0) => return wrong("a chunk extension has a forbidden byte"),
            (Extension(size), _) => Extension(size),
            (SizeLf(0), b'\n') => TrailerStart,
            (SizeLf(size), b'\n') if size > self.allowance => return Err(SkipError::TooLarge),
            (SizeLf(size), b'\n') => Chunk(size),
            (Chunk(left), _) if left == step => ChunkCr,
            (Chunk(left), _) => Chunk(left - step),
            (ChunkCr, b'\r') => ChunkLf,
            (ChunkLf, b'\n') => SizeStart,
            (TrailerStart, b'\r') => LastLf,
            (TrailerStart | Trailer, b'\n' | 0) => return wrong("a trailer has a forbidden byte"),
            (Trailer, b'\r') => TrailerLf,
            (TrailerStart | Trailer, _) => Trailer,
            (TrailerLf, b'\n') => TrailerStart,
            (LastLf, b'\n') => Done,
            _ => return wrong("a chunk does not end in CR LF"),
        })
    }
}

fn hex(byte: u8) -> Option<u64> {
    char::from(byte).to_digit(16).map(u64::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Skips a chunked body that arrives in one piece and byte by byte; both must agree.
    fn skip(body: &[u8], allowance: u64) -> Result<Option<usize>, SkipError> {
        let whole = pieces(body, allowance, body.len().max(1));
        assert_eq!(whole, pieces(body, allowance, 1), "{:?}", String::from_utf8_lossy(body));
        whole
    }

    fn pieces(body: &[u8], allowance: u64, size: usize) -> Result<Option<usize>, SkipError> {
        let mut skipper = Skipper::new(Framing::Chunked, allowance)?;
        let mut skipped = 0;
        for piece in body.chunks(size) {
            let count = skipper.skip(piece)?;
            assert!(count == piece.len() || (count < piece.len() && skipper.is_done()));
            skipped += count;
        }
        Ok(skipper.is_done().then_some(skipped))
    }

    /// RFC 9112 §7.1: chunks, extensions and trailers.
    #[test]
    fn a_chunked_body_ends_where_it_says() {
        for body in [
            "0\r\n\r\n",
            "5\r\nhello\r\n0\r\n\r\n",
            "a\r\n0123456789\r\nA\r\n0123456789\r\n000\r\n\r\n",
            "1;x\r\na\r\n0;y=\"z\"\r\n\r\n",
            "1F\r\n0123456789012345678901234567890\r\n00\r\n\r\n",
            "2\r\n\r\n\r\n0\r\n\r\n",
            "0\r\nX: y\r\nZ:\r\n\r\n",
        ] {
            let with_more = format!("{body}GET / HTTP/1.1\r\n");
            assert_eq!(skip(with_more.as_bytes(), 1000), Ok(Some(body.len())), "{body:?}");
            for end in 0..body.len() {
                assert_eq!(skip(&body.as_bytes()[..end], 1000), Ok(None), "{:?}", &body[..end]);
            }
        }
    }

    /// RFC 9112 §7.1.1 and what request smuggling makes of leniency.
    #[test]
    fn broken_chunks_are_errors() {
        for body in [
            "\r\n",
            "x\r\n",
            "-1\r\n",
            "+1\r\n",
            "0x1\r\n",
            " 1\r\n",
            "1 \r\na\r\n",
            "1\na\r\n",
            "1\r\ra",
            "1\r\nab\r\n",
            "1\r\na\n0\r\n\r\n",
            "1\r\na0\r\n\r\n",
            "1;a\nb\r\n",
            "1;a\0\r\n",
            "1;a\rb\r\n",
            "0\r\n\n",
            "0\r\nX: y\n\r\n",
            "0\r\nX: y\rz\r\n",
            "0\r\nX: \0\r\n",
            "0\r\n\rx",
        ] {
            let error = skip(body.as_bytes(), 1000);
            assert!(matches!(error, Err(SkipError::Malformed(_))), "{body:?} gave {error:?}");
        }
        assert_eq!(SkipError::Malformed("").status(), 400);
    }

    /// RFC 9112 §7.1: a recipient must not overflow on large chunk sizes.
    #[test]
    fn a_body_is_skipped_within_its_allowance() {
        let body = b"5\r\nhello\r\n0\r\n\r\n";
        assert_eq!(skip(body, body.len() as u64), Ok(Some(body.len())));
        assert_eq!(skip(body, body.len() as u64 - 1), Err(SkipError::TooLarge));
        assert_eq!(skip(b"ffffffffffffffff\r\n", 1000), Err(SkipError::TooLarge));
        assert_eq!(skip(b"fffffffffffffff\r\nabc", u64::MAX), Ok(None));
        // as soon as the size is known
        assert_eq!(skip(b"3e8\r\n", 1004), Err(SkipError::TooLarge));
        assert_eq!(skip(b"3e8\r\n", 1005), Ok(None));
        assert_eq!(SkipError::TooLarge.status(), 413);
    }

    #[test]
    fn a_sized_body() {
        assert!(Skipper::new(Framing::Sized(11), 10).is_err());
        for framing in [Framing::None, Framing::Sized(0)] {
            let mut skipper = Skipper::new(framing, 10).unwrap();
            assert!(skipper.is_done());
            assert_eq!(skipper.skip(b"GET"), Ok(0));
        }
        let mut skipper = Skipper::new(Framing::Sized(10), 10).unwrap();
        assert_eq!(skipper.skip(b"0123456"), Ok(7));
        assert!(!skipper.is_done());
        assert_eq!(skipper.skip(b""), Ok(0));
        assert_eq!(skipper.skip(b"789GET"), Ok(3));
        assert!(skipper.is_done());
    }
}
