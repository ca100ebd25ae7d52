//! A reader of responses: it knows just enough of HTTP/1 to find where each ends and whether it is good.
//!
//! An [`AnswerReader`] gets bytes in pieces of any length. It reads the status line and at three fields
//! (Content-Length, Transfer-Encoding, Connection) and counts the body. A response whose head arrives in one
//! piece is read without copying a byte.

use crc32fast::Hasher;
use memchr::memchr;

/// The longest head that is read, in bytes.
const HEAD_LIMIT_BYTES: usize = 64 * 1024;

/// The result of reading a piece of input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResponseProgress {
    /// The whole piece was used, and the response continues.
    More,
    /// The response ended after this number of bytes of the piece.
    Done(usize),
    /// The input is not HTTP.
    Malformed,
}

/// A complete response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FinishedResponse {
    pub(crate) status: u16,
    /// Whether the connection can carry another request.
    pub(crate) keep: bool,
    pub(crate) body_bytes: u64,
    /// CRC-32 of the body, if it was requested.
    pub(crate) crc32: Option<u32>,
}

/// A reader of the responses of one connection, one after the other.
#[derive(Clone, Debug)]
pub(crate) struct AnswerReader {
    state: ResponseState,
    status: u16,
    keep: bool,
    body_bytes: u64,
    /// The incomplete head, or the incomplete line of chunk framing.
    partial: Vec<u8>,
    crc32: Option<Box<Hasher>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResponseState {
    Head,
    Sized(u64),
    ChunkSize,
    Chunk(u64),
    /// Waiting for the line end after a chunk.
    ChunkEnd,
    Trailer,
    UntilClose,
}

impl AnswerReader {
    pub(crate) fn new(with_crc32: bool) -> AnswerReader {
        AnswerReader {
            state: ResponseState::Head,
            status: 0,
            keep: false,
            body_bytes: 0,
            partial: Vec::new(),
            crc32: with_crc32.then(Box::default),
        }
    }

    /// Resets the reader for a new connection.
    pub(crate) fn reset(&mut self) {
        self.state = ResponseState::Head;
        self.partial.clear();
        self.next();
    }

    fn next(&mut self) {
        self.body_bytes = 0;
        if let Some(crc32) = &mut self.crc32 {
            crc32.reset();
        }
    }

    /// Whether nothing of the current response has come yet.
    pub(crate) fn is_fresh(&self) -> bool {
        self.state == ResponseState::Head && self.partial.is_empty()
    }

    /// Returns the response of which [`ResponseProgress::Done`] was returned, and starts the next one.
    pub(crate) fn take(&mut self) -> FinishedResponse {
        let crc32 = self.crc32.as_ref().map(|crc32| crc32.as_ref().clone().finalize());
        let answer = FinishedResponse {
            status: self.status,
            keep: self.keep,
            body_bytes: self.body_bytes,
            crc32,
        };
        self.next();
        answer
    }

    /// Handles the end of the connection. Returns whether that properly ends a response.
    pub(crate) fn end(&mut self) -> bool {
        if self.state == ResponseState::UntilClose {
            self.state = ResponseState::Head;
            self.keep = false;
            return true;
        }
        false
    }

    /// Reads a piece. With `bodyless`, the request was HEAD.
    pub(crate) fn read(&mut self, input: &[u8], bodyless: bool) -> ResponseProgress {
        let mut used = 0;
        while used < input.len() {
            let rest = &input[used..];
            let step = match self.state {
                ResponseState::Head => self.head(rest, bodyless),
                ResponseState::Sized(left) => self.sized(rest, left),
                ResponseState::UntilClose => {
                    self.body(rest);
                    Progressed::Used(rest.len())
                }
                ResponseState::Chunk(left) => self.chunk(rest, left),
                ResponseState::ChunkSize | ResponseState::ChunkEnd | ResponseState::Trailer => {
                    self.line(rest)
                }
            };
            match step {
                Progressed::Used(count) => used += count,
                Progressed::Done(count) => {
                    self.state = ResponseState::Head;
                    return ResponseProgress::Done(used + count);
                }
                Progressed::Malformed => return ResponseProgress::Malformed,
            }
        }
        ResponseProgress::More
    }

    fn body(&mut self, bytes: &[u8]) {
        self.body_bytes += bytes.len() as u64;
        if let Some(crc32) = &mut self.crc32 {
            crc32.update(bytes);
        }
    }

    fn sized(&mut self, rest: &[u8], left: u64) -> Progressed {
        let count = rest.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        self.body(&rest[..count]);
        if left == count as u64 {
            return Progressed::Done(count);
        }
        self.state = ResponseState::Sized(left - count as u64);
        Progressed::Used(count)
    }

    fn chunk(&mut self, rest: &[u8], left: u64) -> Progressed {
        match self.sized(rest, left) {
            Progressed::Done(count) => {
                self.state = ResponseState::ChunkEnd;
                Progressed::Used(count)
            }
            Progressed::Used(count) => {
                self.state = ResponseState::Chunk(left - count as u64);
                Progressed::Used(count)
            }
            Progressed::Malformed => Progressed::Malformed,
        }
    }

    fn head(&mut self, rest: &[u8], bodyless: bool) -> Progressed {
        let known = self.partial.len();
        if known == 0 {
            return match HeadFacts::parse(rest) {
                Parsed::Complete(head) => self.begin(&head, head.len, bodyless),
                Parsed::Malformed => Progressed::Malformed,
                Parsed::Partial if rest.len() > HEAD_LIMIT_BYTES => Progressed::Malformed,
                Parsed::Partial => {
                    self.partial.extend_from_slice(rest);
                    Progressed::Used(rest.len())
                }
            };
        }
        self.partial.extend_from_slice(rest);
        match HeadFacts::parse(&self.partial) {
            Parsed::Complete(head) => {
                self.partial.clear();
                self.begin(&head, head.len - known, bodyless)
            }
            Parsed::Malformed => Progressed::Malformed,
            Parsed::Partial if self.partial.len() > HEAD_LIMIT_BYTES => Progressed::Malformed,
            Parsed::Partial => Progressed::Used(rest.len()),
        }
    }

    /// Starts the body after a head of `used` bytes: decides where the response ends (RFC 9112 §6.3).
    fn begin(&mut self, head: &HeadFacts, used: usize, bodyless: bool) -> Progressed {
        if (100..200).contains(&head.status) && head.status != 101 {
            // an interim response; the final one follows
            return Progressed::Used(used);
        }
        self.status = head.status;
        self.keep = head.keep;
        self.state = match head.length {
            _ if bodyless || matches!(head.status, 101 | 204 | 304) => {
                return Progressed::Done(used);
            }
            AnswerLength::Bytes(0) => return Progressed::Done(used),
            AnswerLength::Bytes(bytes) => ResponseState::Sized(bytes),
            AnswerLength::Chunked => ResponseState::ChunkSize,
            AnswerLength::UntilClose => {
                self.keep = false;
                ResponseState::UntilClose
            }
        };
        Progressed::Used(used)
    }

    /// Reads a line of chunk framing: a size, the end of a chunk, or a trailer field.
    fn line(&mut self, rest: &[u8]) -> Progressed {
        let Some(end) = memchr(b'\n', rest) else {
            self.partial.extend_from_slice(rest);
            let sound = self.partial.len() <= HEAD_LIMIT_BYTES;
            return if sound { Progressed::Used(rest.len()) } else { Progressed::Malformed };
        };
        self.partial.extend_from_slice(&rest[..end]);
        let line = self.partial.strip_suffix(b"\r").unwrap_or(&self.partial);
        let next = match self.state {
            ResponseState::ChunkSize => match chunk_size(line) {
                Some(0) => Some(ResponseState::Trailer),
                Some(size) => Some(ResponseState::Chunk(size)),
                None => None,
            },
            ResponseState::ChunkEnd if line.is_empty() => Some(ResponseState::ChunkSize),
            ResponseState::Trailer if line.is_empty() => {
                self.partial.clear();
                return Progressed::Done(end + 1);
            }
            ResponseState::Trailer => Some(ResponseState::Trailer),
            _ => None,
        };
        self.partial.clear();
        let Some(next) = next else { return Progressed::Malformed };
        self.state = next;
        Progressed::Used(end + 1)
    }
}

enum Progressed {
    Used(usize),
    Done(usize),
    Malformed,
}

fn chunk_size(line: &[u8]) -> Option<u64> {
    let digits = line.iter().take_while(|b| b.is_ascii_hexdigit()).count();
    let extension = line.get(digits).is_none_or(|b| matches!(b, b';' | b' ' | b'\t'));
    if digits == 0 || digits > 16 || !extension {
        return None;
    }
    u64::from_str_radix(std::str::from_utf8(&line[..digits]).ok()?, 16).ok()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AnswerLength {
    Bytes(u64),
    Chunked,
    UntilClose,
}

/// The facts in a head that matter for its response.
struct HeadFacts {
    status: u16,
    keep: bool,
    length: AnswerLength,
    /// The length up to and including the empty line.
    len: usize,
}

enum Parsed {
    Complete(HeadFacts),
    Partial,
    Malformed,
}

impl HeadFacts {
    fn parse(bytes: &[u8]) -> Parsed {
        const START: &[u8] = b"HTTP/1.";
        let known = bytes.len().min(START.len());
        if bytes[..known] != START[..known] {
            return Parsed::Malformed;
        }
        let Some(line) = memchr(b'\n', bytes) else { return Parsed::Partial };
        let [_, _, _, _, _, _, _, minor, b' ', a, b, c, ..] = bytes[..line] else {
            return Parsed::Malformed;
        };
        if ![a, b, c].iter().all(u8::is_ascii_digit) || a == b'0' {
            return Parsed::Malformed;
        }
        let status = [a, b, c].iter().fold(0, |sum, digit| sum * 10 + u16::from(digit - b'0'));
        let mut head = HeadFacts {
            status,
            keep: minor != b'0',
            length: AnswerLength::UntilClose,
            len: line + 1,
        };
        loop {
            let rest = &bytes[head.len..];
            let Some(end) = memchr(b'\n', rest) else { return Parsed::Partial };
            head.len += end + 1;
            let line = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]);
            if line.is_empty() {
                break;
            }
            if !head.field(line) {
                return Parsed::Malformed;
            }
        }
        Parsed::Complete(head)
    }

    /// Reads one field line; most are recognised as irrelevant by their first letter. Returns false if it
    /// makes the response unreadable.
    #[inline]
    fn field(&mut self, line: &[u8]) -> bool {
        match line[0] {
            b'C' | b'c' => {
                if let Some(value) = value(line, b"content-length") {
                    // Transfer-Encoding overrides Content-Length (RFC 9112 §6.3)
                    match number(value) {
                        Some(_) if self.length == AnswerLength::Chunked => {}
                        Some(bytes) => self.length = AnswerLength::Bytes(bytes),
                        None => return false,
                    }
                } else if let Some(value) = value(line, b"connection") {
                    self.connection(value);
                }
            }
            b'T' | b't' => {
                if let Some(value) = value(line, b"transfer-encoding") {
                    let last = value.rsplit(|b| *b == b',').next().unwrap_or(value);
                    if last.trim_ascii().eq_ignore_ascii_case(b"chunked") {
                        self.length = AnswerLength::Chunked;
                    }
                }
            }
            _ => {}
        }
        true
    }

    fn connection(&mut self, value: &[u8]) {
        for option in value.split(|b| *b == b',').map(<[u8]>::trim_ascii) {
            if option.eq_ignore_ascii_case(b"close") {
                self.keep = false;
            } else if option.eq_ignore_ascii_case(b"keep-alive") {
                self.keep = true;
            }
        }
    }
}

/// The value of a field line if it has this name (given in lower case).
fn value<'l>(line: &'l [u8], name: &[u8]) -> Option<&'l [u8]> {
    let (found, rest) = line.split_at_checked(name.len())?;
    let value = rest.strip_prefix(b":")?;
    found.eq_ignore_ascii_case(name).then(|| value.trim_ascii())
}

fn number(value: &[u8]) -> Option<u64> {
    if value.is_empty() {
        return None;
    }
    value.iter().try_fold(0u64, |sum, digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        sum.checked_mul(10)?.checked_add(digit)
    })
}

#[cfg(test)]
#[path = "response_tests.rs"]
mod tests;
