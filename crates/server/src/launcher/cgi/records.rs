//! FastCGI from the side of an application: the messages of both sides as records (FastCGI 1.0 §3.3). Pure.
//!
//! The server that has started this process sends one request on each connection. Anything else is
//! not a request, and ends the connection.

use forebay_upstream::fastcgi::MOST_CONTENT_BYTES;

/// Names, and the value of each.
type NamedValues<'r> = Vec<(&'r [u8], &'r [u8])>;

const HEADER_BYTES: usize = 8;

/// The limit for the variables of a request, which a valid head never reaches.
const MOST_PARAMS_BYTES: usize = 4 * 1024 * 1024;

const BEGIN: u8 = 1;
const ABORT: u8 = 2;
const END: u8 = 3;
const PARAMS: u8 = 4;
const STDIN: u8 = 5;
const STDOUT: u8 = 6;
const STDERR: u8 = 7;

/// The error for bytes that are not a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRequest;

/// A request, as far as it has come.
#[derive(Clone, Debug, Default)]
pub struct RequestRecords {
    /// The bytes of a record that is not complete yet.
    partial: Vec<u8>,
    has_begun: bool,
    params: Vec<u8>,
    has_params: bool,
    body: Vec<u8>,
    has_body: bool,
}

impl RequestRecords {
    /// Takes received bytes.
    ///
    /// # Errors
    /// If the bytes are not a request.
    pub fn take(&mut self, bytes: &[u8]) -> Result<(), NoRequest> {
        self.partial.extend_from_slice(bytes);
        let mut at = 0;
        while let Some((kind, content, whole)) = record(&self.partial[at..])? {
            let content = at + content.start..at + content.end;
            match (kind, content.is_empty()) {
                (BEGIN, false) if self.is_new() => self.has_begun = true,
                (PARAMS, true) if !self.has_params => self.has_params = true,
                (PARAMS, false) if !self.has_params => {
                    self.params.extend_from_slice(&self.partial[content]);
                }
                (STDIN, true) if self.has_params && !self.has_body => self.has_body = true,
                (STDIN, false) if self.has_params && !self.has_body => {
                    self.body.extend_from_slice(&self.partial[content]);
                }
                // ABORT, too: the server does not wait for an answer any more
                _ => return Err(NoRequest),
            }
            at += whole;
            if self.params.len() > MOST_PARAMS_BYTES {
                return Err(NoRequest);
            }
        }
        self.partial.drain(..at);
        Ok(())
    }

    /// Whether nothing of the request has come.
    fn is_new(&self) -> bool {
        !self.has_begun && !self.has_params && self.params.is_empty()
    }

    /// The variables of the request, once all of them have come.
    pub fn params(&self) -> Option<Result<NamedValues<'_>, NoRequest>> {
        self.has_params.then(|| pairs(&self.params))
    }

    /// The bytes of the body that have come and were not consumed.
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// Removes `count` bytes from the front of the body.
    pub fn consume(&mut self, count: usize) {
        self.body.drain(..count.min(self.body.len()));
    }

    /// Whether the body is complete.
    pub fn has_whole_body(&self) -> bool {
        self.has_body
    }
}

/// The first record: its kind, where its content is, and how long the record is;
/// `None` if it is not complete.
fn record(bytes: &[u8]) -> Result<Option<(u8, std::ops::Range<usize>, usize)>, NoRequest> {
    let Some((header, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else { return Ok(None) };
    let [version, kind, id_high, id_low, high, low, padding, _] = *header;
    if version != 1
        || (id_high, id_low) != (0, 1)
        || !matches!(kind, BEGIN | ABORT | PARAMS | STDIN)
    {
        return Err(NoRequest);
    }
    let content = usize::from(u16::from_be_bytes([high, low]));
    let whole = HEADER_BYTES + content + usize::from(padding);
    let is_whole = HEADER_BYTES + rest.len() >= whole;
    Ok(is_whole.then_some((kind, HEADER_BYTES..HEADER_BYTES + content, whole)))
}

/// Pairs of names and values (§3.4).
fn pairs(mut rest: &[u8]) -> Result<NamedValues<'_>, NoRequest> {
    let mut pairs = Vec::new();
    while !rest.is_empty() {
        let (name, value) = (length(&mut rest)?, length(&mut rest)?);
        let (name, after) = rest.split_at_checked(name).ok_or(NoRequest)?;
        let (value, after) = after.split_at_checked(value).ok_or(NoRequest)?;
        pairs.push((name, value));
        rest = after;
    }
    Ok(pairs)
}

fn length(rest: &mut &[u8]) -> Result<usize, NoRequest> {
    let (first, after) = rest.split_first().ok_or(NoRequest)?;
    if *first < 0x80 {
        *rest = after;
        return Ok(usize::from(*first));
    }
    let (four, after) = rest.split_first_chunk::<4>().ok_or(NoRequest)?;
    *rest = after;
    Ok((u32::from_be_bytes(*four) & 0x7fff_ffff) as usize)
}

fn push(kind: u8, content: &[u8], out: &mut Vec<u8>) {
    for part in content.chunks(MOST_CONTENT_BYTES) {
        let [high, low] = (part.len() as u16).to_be_bytes();
        out.extend_from_slice(&[1, kind, 0, 1, high, low, 0, 0]);
        out.extend_from_slice(part);
    }
}

/// Appends a record with a program's standard output.
pub fn stdout(bytes: &[u8], out: &mut Vec<u8>) {
    push(STDOUT, bytes, out);
}

/// Appends a record with text for the log.
pub fn stderr(bytes: &[u8], out: &mut Vec<u8>) {
    push(STDERR, bytes, out);
}

/// Appends the record that ends the answer.
pub fn end(out: &mut Vec<u8>) {
    push(END, &[0; 8], out);
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_http::response::{ResponseContext, ResponseHeadLimits};
    use forebay_upstream::fastcgi::{self, FastCgiPiece, FastCgiReader};
    use proptest::prelude::*;

    /// A BEGIN record and the variables.
    fn begun(pairs: &[(&str, &str)]) -> Vec<u8> {
        let mut bytes = vec![1, BEGIN, 0, 1, 0, 8, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        let mut text = Vec::new();
        for (name, value) in pairs {
            text.push(name.len() as u8);
            text.extend((value.len() as u32 | 1 << 31).to_be_bytes());
            text.extend(name.as_bytes());
            text.extend(value.as_bytes());
        }
        push(PARAMS, &text, &mut bytes);
        // the length of the body comes last, followed by the empty record that ends the variables
        fastcgi::length(7, &mut bytes);
        bytes
    }

    #[test]
    fn a_request_is_heard_however_it_is_cut() {
        let mut bytes = begun(&[("REQUEST_METHOD", "POST"), ("HTTP_A", &"b".repeat(70_000))]);
        fastcgi::stdin(b"a=b", &mut bytes);
        fastcgi::stdin(b"&c=d", &mut bytes);
        fastcgi::end_of_stdin(&mut bytes);
        for piece in [1, 7, 8, 9, 4096, bytes.len()] {
            let mut records = RequestRecords::default();
            for part in bytes.chunks(piece) {
                assert_eq!(records.take(part), Ok(()), "{piece}");
            }
            let params = records.params().unwrap().unwrap();
            let names: Vec<_> = params.iter().map(|(name, _)| *name).collect();
            assert_eq!(names, [&b"REQUEST_METHOD"[..], b"HTTP_A", b"CONTENT_LENGTH"]);
            assert_eq!(params[1].1.len(), 70_000);
            assert_eq!((records.body(), records.has_whole_body()), (&b"a=b&c=d"[..], true));
            records.consume(4);
            assert_eq!(records.body(), b"c=d");
        }
    }

    #[test]
    fn what_is_no_request_is_refused() {
        let of = |bytes: &[u8]| RequestRecords::default().take(bytes);
        for wrong in [
            &b"GET / HTTP/1.1\r\n"[..],
            &[1, STDOUT, 0, 1, 0, 0, 0, 0],
            &[1, BEGIN, 0, 2, 0, 0, 0, 0],
            &[2, BEGIN, 0, 1, 0, 0, 0, 0],
            &[1, STDIN, 0, 1, 0, 0, 0, 0],
            &[1, ABORT, 0, 1, 0, 0, 0, 0],
        ] {
            assert_eq!(of(wrong), Err(NoRequest), "{wrong:?}");
        }
        let mut twice = begun(&[]);
        twice.extend(begun(&[]));
        assert_eq!(of(&twice), Err(NoRequest));
        let mut records = RequestRecords::default();
        let mut bytes = Vec::new();
        push(PARAMS, &[9, 0, b'a'], &mut bytes);
        push(PARAMS, &[0; 0], &mut bytes);
        bytes.extend([1, PARAMS, 0, 1, 0, 0, 0, 0]);
        assert_eq!(records.take(&bytes), Ok(()));
        assert_eq!(records.params(), Some(Err(NoRequest)));
    }

    #[test]
    fn an_answer_is_what_the_server_reads() {
        let mut out = Vec::new();
        stderr(b"a word\n", &mut out);
        stdout(b"Content-Type: text/plain\n\nbo", &mut out);
        stdout(b"dy", &mut out);
        end(&mut out);
        let limits = ResponseHeadLimits::default();
        let mut reader = FastCgiReader::new(ResponseContext::default(), limits);
        let (mut at, mut body) = (0, Vec::new());
        loop {
            let read = reader.read(&out[at..]).unwrap();
            at += read.used;
            match read.piece {
                FastCgiPiece::Body(part) => body.extend_from_slice(part),
                FastCgiPiece::End { status } => break assert_eq!(status, 0),
                FastCgiPiece::Head => {}
                FastCgiPiece::More => panic!("it ends"),
            }
        }
        assert_eq!((&body[..], reader.stderr(), at), (&b"body"[..], &b"a word"[..], out.len()));
    }

    proptest! {
        #[test]
        fn nothing_that_comes_is_a_panic(good: bool, bytes: Vec<u8>) {
            let mut records = RequestRecords::default();
            if good {
                let _ = records.take(&[1, PARAMS, 0, 1, 0, bytes.len().min(200) as u8, 0, 0]);
            }
            let _ = records.take(&bytes);
            let _ = records.take(&[1, PARAMS, 0, 1, 0, 0, 0, 0]);
            let _ = records.params();
        }
    }
}
