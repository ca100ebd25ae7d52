//! The answers of FastCGI applications (§5.3, §5.5; RFC 3875 §6): a head, a body, messages for the
//! log, and how the program ended.

use super::record::{HEADER_BYTES, RecordHeader, RecordKind};
use forebay_http::head::Lines;
use forebay_http::response::{self, ParsedResponse, Response, ResponseContext, ResponseHeadLimits};
use forebay_http::status;

/// The largest number of bytes for the log that are kept from one request.
const MOST_STDERR_BYTES: usize = 8 * 1024;

/// The content length of the record that ends a request.
const END_BYTES: u16 = 8;

/// Why an answer cannot be understood, or is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FastCgiError {
    /// The bytes are no FastCGI, or no head of CGI; the text says what is wrong.
    Malformed(&'static str),
    /// The head is longer than allowed or has too many lines.
    TooLarge,
    /// The answer ended without a complete head.
    NoHead,
    /// The application has no room for the request (`FCGI_OVERLOADED`, `FCGI_CANT_MPX_CONN`).
    Overloaded,
}

impl FastCgiError {
    /// The error in a few words.
    pub fn reason(self) -> &'static str {
        match self {
            FastCgiError::Malformed(what) => what,
            FastCgiError::TooLarge => "the head of the answer is too large",
            FastCgiError::NoHead => "the application has ended without an answer",
            FastCgiError::Overloaded => "the application has no room for more requests",
        }
    }
}

/// The result of reading some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordsRead<'b> {
    /// How many of the bytes were used.
    pub used: usize,
    /// The part of the answer that was found in them.
    pub piece: FastCgiPiece<'b>,
}

/// A part of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FastCgiPiece<'b> {
    /// Nothing yet.
    More,
    /// The head is whole: see [`FastCgiReader::head`].
    Head,
    /// Some of the body: no more than the head has announced, and none where there must be none,
    /// whatever the script sends.
    Body(&'b [u8]),
    /// The answer is over. The connection can have another request, if it was to be kept open.
    End {
        /// The exit status of the program: 0 is success.
        status: u32,
    },
}

/// Reads one answer.
#[derive(Clone, Debug)]
pub struct FastCgiReader {
    asked: ResponseContext,
    limits: ResponseHeadLimits,
    state: AnswerState,
    /// The header, or the content of the last record, as far as it has come.
    partial: Vec<u8>,
    /// The head: first as it came, then rewritten as HTTP/1.1.
    head: Vec<u8>,
    has_head: bool,
    body: BodyExtent,
    stderr: Vec<u8>,
}

/// How much of the body is still to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyExtent {
    /// Only bytes that are not for the client.
    Dropped,
    Sized(u64),
    UntilEnd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AnswerState {
    Header,
    Content { kind: RecordKind, left: u16, padding: u8 },
    Padding(u8),
    Over(u32),
    Broken(FastCgiError),
}

impl FastCgiReader {
    /// A reader for the answer to a request that was just sent.
    pub fn new(asked: ResponseContext, limits: ResponseHeadLimits) -> FastCgiReader {
        FastCgiReader {
            // scripts cannot change the protocol
            asked: ResponseContext { upgrade: false, ..asked },
            limits,
            state: AnswerState::Header,
            partial: Vec::new(),
            head: Vec::new(),
            has_head: false,
            body: BodyExtent::UntilEnd,
            stderr: Vec::new(),
        }
    }

    /// Reads `bytes` up to the first part of the answer in them. Bytes that were not used must be
    /// passed again.
    ///
    /// # Errors
    /// The answer cannot be understood; every later call returns the same error.
    pub fn read<'b>(&mut self, bytes: &'b [u8]) -> Result<RecordsRead<'b>, FastCgiError> {
        let mut used = 0;
        loop {
            if let AnswerState::Over(status) = self.state {
                return Ok(RecordsRead { used, piece: FastCgiPiece::End { status } });
            }
            if used == bytes.len() {
                return Ok(RecordsRead { used, piece: FastCgiPiece::More });
            }
            match self.step(&bytes[used..]) {
                Ok((count, FastCgiPiece::More)) => used += count,
                Ok((count, piece)) => return Ok(RecordsRead { used: used + count, piece }),
                Err(error) => {
                    self.state = AnswerState::Broken(error);
                    return Err(error);
                }
            }
        }
    }

    /// The head, as a server that speaks HTTP/1.1 would have sent it, for the parser of responses.
    /// Empty until it is complete.
    pub fn head(&self) -> &[u8] {
        if self.has_head { &self.head } else { b"" }
    }

    /// The messages of the script for the log, from the first on, without line ends around them.
    pub fn stderr(&self) -> &[u8] {
        self.stderr.trim_ascii()
    }

    /// Processes at least one byte.
    fn step<'b>(&mut self, bytes: &'b [u8]) -> Result<(usize, FastCgiPiece<'b>), FastCgiError> {
        match self.state {
            AnswerState::Broken(error) => Err(error),
            AnswerState::Over(status) => Ok((0, FastCgiPiece::End { status })),
            AnswerState::Padding(left) => {
                let count = bytes.len().min(usize::from(left));
                // `count` is at most what was left, so the cast loses nothing
                self.state = match left - count as u8 {
                    0 => AnswerState::Header,
                    left => AnswerState::Padding(left),
                };
                Ok((count, FastCgiPiece::More))
            }
            AnswerState::Header => {
                let count = bytes.len().min(HEADER_BYTES - self.partial.len());
                self.partial.extend_from_slice(&bytes[..count]);
                if let Ok(header) = <[u8; HEADER_BYTES]>::try_from(&self.partial[..]) {
                    self.partial.clear();
                    let RecordHeader { kind, content, padding } =
                        RecordHeader::parse(header).map_err(FastCgiError::Malformed)?;
                    if kind == RecordKind::End && content != END_BYTES {
                        return Err(FastCgiError::Malformed("the last record is malformed"));
                    }
                    self.state = AnswerState::Content { kind, left: content, padding };
                    self.skip_empty();
                }
                Ok((count, FastCgiPiece::More))
            }
            AnswerState::Content { kind, left, padding } => {
                let part = &bytes[..bytes.len().min(usize::from(left))];
                let (count, piece) = match kind {
                    RecordKind::Stdout if self.has_head => (part.len(), self.more_body(part)?),
                    RecordKind::Stdout => self.more_head(part)?,
                    RecordKind::Stderr => {
                        // what exceeds the limit is read and dropped, so that the answer goes on
                        let free = MOST_STDERR_BYTES - self.stderr.len();
                        self.stderr.extend_from_slice(&part[..part.len().min(free)]);
                        (part.len(), FastCgiPiece::More)
                    }
                    _ => {
                        self.partial.extend_from_slice(part);
                        (part.len(), FastCgiPiece::More)
                    }
                };
                let left = left - count as u16;
                self.state = AnswerState::Content { kind, left, padding };
                if left == 0 && kind == RecordKind::End {
                    self.end()?;
                }
                self.skip_empty();
                Ok((count, piece))
            }
        }
    }

    /// Goes on to what follows, once the content of a record is over.
    fn skip_empty(&mut self) {
        if let AnswerState::Content { left: 0, padding, .. } = self.state {
            self.state =
                if padding == 0 { AnswerState::Header } else { AnswerState::Padding(padding) };
        }
    }

    fn end(&mut self) -> Result<(), FastCgiError> {
        let [a, b, c, d, protocol, ..] = self.partial[..] else {
            return Err(FastCgiError::Malformed("the last record is malformed"));
        };
        self.partial.clear();
        match protocol {
            0 if !self.has_head => return Err(FastCgiError::NoHead),
            0 if matches!(self.body, BodyExtent::Sized(1..)) => {
                return Err(FastCgiError::Malformed("the body is shorter than announced"));
            }
            0 => self.state = AnswerState::Over(u32::from_be_bytes([a, b, c, d])),
            1 | 2 => return Err(FastCgiError::Overloaded),
            _ => {
                return Err(FastCgiError::Malformed("the application does not take such requests"));
            }
        }
        Ok(())
    }

    /// Takes more of the body, and returns the part that is for the client.
    fn more_body<'b>(&mut self, part: &'b [u8]) -> Result<FastCgiPiece<'b>, FastCgiError> {
        match &mut self.body {
            BodyExtent::Dropped => return Ok(FastCgiPiece::More),
            BodyExtent::UntilEnd => {}
            BodyExtent::Sized(left) => {
                let rest = left.checked_sub(part.len() as u64);
                *left = rest.ok_or(FastCgiError::Malformed("the body is longer than announced"))?;
            }
        }
        Ok(FastCgiPiece::Body(part))
    }

    /// The extent of the body by the head, which is checked like that of any server.
    fn body_of_head(&self) -> Result<BodyExtent, FastCgiError> {
        let mut lines = Lines::new();
        // the status line was added here, so only the other limits apply
        let limits = ResponseHeadLimits { head_bytes: self.head.len(), ..self.limits };
        match Response::parse(&self.head, &mut lines, self.asked, &limits) {
            Ok(ParsedResponse::Complete(head)) if head.len == self.head.len() => {
                Ok(match head.body {
                    response::BodyFraming::Sized(length) => BodyExtent::Sized(length),
                    // an announced length of zero means no body; without a length the body lasts
                    // until the end
                    response::BodyFraming::None => BodyExtent::Dropped,
                    _ => BodyExtent::UntilEnd,
                })
            }
            Err(response::ResponseError::TooLarge) => Err(FastCgiError::TooLarge),
            Err(response::ResponseError::Malformed(what)) => Err(FastCgiError::Malformed(what)),
            Ok(_) => Err(FastCgiError::Malformed("the head is malformed")),
        }
    }

    /// Takes more of the head, and returns how much of `part` that was.
    fn more_head(&mut self, part: &[u8]) -> Result<(usize, FastCgiPiece<'static>), FastCgiError> {
        let before = self.head.len();
        self.head.extend_from_slice(part);
        let from = before.saturating_sub(3);
        match end_of_head(&self.head, from) {
            Some(end) if end <= self.limits.head_bytes => {
                self.head.truncate(end);
                self.head = as_http(&self.head, &self.limits)?;
                self.body = self.body_of_head()?;
                self.has_head = true;
                Ok((end - before, FastCgiPiece::Head))
            }
            None if self.head.len() < self.limits.head_bytes => {
                Ok((part.len(), FastCgiPiece::More))
            }
            _ => Err(FastCgiError::TooLarge),
        }
    }
}

/// Where the empty line that ends a head ends, if that is at or behind `from`.
fn end_of_head(head: &[u8], from: usize) -> Option<usize> {
    if head.starts_with(b"\n") || head.starts_with(b"\r\n") {
        return Some(if head[0] == b'\n' { 1 } else { 2 });
    }
    // the first empty line is the end; behind it is the body
    let mut ends = head.iter().enumerate().skip(from).filter(|(_, byte)| **byte == b'\n');
    ends.find_map(|(at, _)| match head[at + 1..] {
        [b'\n', ..] => Some(at + 2),
        [b'\r', b'\n', ..] => Some(at + 3),
        _ => None,
    })
}

/// Rewrites a head of CGI as one of HTTP. Of the fields that frame a message, the script decides only
/// the length of its answer.
fn as_http(head: &[u8], limits: &ResponseHeadLimits) -> Result<Vec<u8>, FastCgiError> {
    let mut fields = Vec::with_capacity(head.len() + 32);
    let (mut status, mut has_location, mut has_type) = (None, false, false);
    let mut lines = 0;
    for line in head.split(|&b| b == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            continue;
        }
        lines += 1;
        if lines > limits.head_lines {
            return Err(FastCgiError::TooLarge);
        }
        let Some(colon) = line.iter().position(|&b| b == b':') else {
            return Err(FastCgiError::Malformed("a line of the head is no field"));
        };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
        if is("status") {
            if status.is_some() {
                return Err(FastCgiError::Malformed("Status is given twice"));
            }
            status = Some(status_of(value)?);
            continue;
        }
        has_location |= is("location");
        has_type |= is("content-type");
        if is("transfer-encoding") || is("connection") || is("keep-alive") || is("trailer") {
            continue;
        }
        fields.extend_from_slice(name);
        fields.extend_from_slice(b": ");
        fields.extend_from_slice(value);
        fields.extend_from_slice(b"\r\n");
    }
    // RFC 3875 §6.2: one of these decides the status
    let code = match status {
        Some(code) => code,
        None if has_location => 302,
        None if has_type || lines > 0 => 200,
        None => return Err(FastCgiError::NoHead),
    };
    let mut http = format!("HTTP/1.1 {code} {}\r\n", status::reason(code)).into_bytes();
    http.extend_from_slice(&fields);
    http.extend_from_slice(b"\r\n");
    Ok(http)
}

/// The status: three digits, and perhaps a reason.
fn status_of(value: &[u8]) -> Result<u16, FastCgiError> {
    let (digits, rest) = value.split_at(value.len().min(3));
    let is_number = digits.len() == 3 && digits.iter().all(u8::is_ascii_digit);
    let code = digits.iter().fold(0, |sum, digit| sum * 10 + u16::from(digit.wrapping_sub(b'0')));
    match is_number && matches!(rest, [] | [b' ', ..]) && (200..600).contains(&code) {
        true => Ok(code),
        false => Err(FastCgiError::Malformed("Status is none")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record(kind: u8, content: &[u8], padding: u8) -> Vec<u8> {
        let [high, low] = (content.len() as u16).to_be_bytes();
        let mut record = vec![1, kind, 0, 1, high, low, padding, 0];
        record.extend_from_slice(content);
        record.extend(vec![0; usize::from(padding)]);
        record
    }

    fn end(status: u8, protocol: u8) -> Vec<u8> {
        record(3, &[0, 0, 0, status, protocol, 0, 0, 0], 0)
    }

    /// The head, body, messages for the log and status of the program, read in pieces of these
    /// lengths.
    fn read(
        bytes: &[u8],
        cuts: &[usize],
    ) -> Result<(String, Vec<u8>, String, Option<u32>), FastCgiError> {
        read_asked(bytes, cuts, ResponseContext::default())
    }

    type Found = (String, Vec<u8>, String, Option<u32>);

    fn read_asked(
        bytes: &[u8],
        cuts: &[usize],
        asked: ResponseContext,
    ) -> Result<Found, FastCgiError> {
        let mut reader = FastCgiReader::new(
            asked,
            ResponseHeadLimits { head_bytes: 1000, head_lines: 20, bare_lf: false },
        );
        let (mut body, mut ended, mut at) = (Vec::new(), None, 0);
        let mut cuts = cuts.iter().copied().cycle();
        while at < bytes.len() {
            let most = cuts.next().unwrap_or(bytes.len()).max(1);
            let piece = &bytes[at..bytes.len().min(at + most)];
            let mut used = 0;
            while used < piece.len() {
                let read = reader.read(&piece[used..])?;
                used += read.used;
                match read.piece {
                    FastCgiPiece::More => assert_eq!(used, piece.len()),
                    FastCgiPiece::Head => assert!(!reader.head().is_empty()),
                    FastCgiPiece::Body(data) => body.extend_from_slice(data),
                    FastCgiPiece::End { status } => {
                        ended = Some(status);
                        assert_eq!(at + used, bytes.len(), "nothing follows");
                        break;
                    }
                }
            }
            at += used;
        }
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok((text(reader.head()), body, text(reader.stderr()), ended))
    }

    fn stdout(text: &str) -> Vec<u8> {
        [record(6, text.as_bytes(), 3), record(6, b"", 0), end(0, 0)].concat()
    }

    #[test]
    fn heads_of_cgi_become_heads_of_http() {
        for (head, expected) in [
            (
                "Content-type: text/html\r\n\r\n",
                "HTTP/1.1 200 OK\r\nContent-type: text/html\r\n\r\n",
            ),
            ("Status: 404 Gone Fishing\nX-A:b\n\n", "HTTP/1.1 404 Not Found\r\nX-A: b\r\n\r\n"),
            ("X-A: b\r\nstatus: 503\r\n\r\n", "HTTP/1.1 503 Service Unavailable\r\nX-A: b\r\n\r\n"),
            ("Location: /x\r\n\r\n", "HTTP/1.1 302 Found\r\nLocation: /x\r\n\r\n"),
            (
                "Status: 301\r\nLocation: /x\r\n\r\n",
                "HTTP/1.1 301 Moved Permanently\r\nLocation: /x\r\n\r\n",
            ),
            (
                "Transfer-Encoding: chunked\r\nConnection: close\r\nContent-Length: 4\r\n\r\n",
                "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n",
            ),
        ] {
            let found = read(&stdout(&format!("{head}body")), &[]).unwrap();
            assert_eq!(found, (expected.to_owned(), b"body".to_vec(), String::new(), Some(0)));
        }
    }

    #[test]
    fn what_is_no_answer_is_refused() {
        for (head, expected) in [
            ("Status: 20\n\n", FastCgiError::Malformed("Status is none")),
            ("Status: 2000\n\n", FastCgiError::Malformed("Status is none")),
            ("Status: 100\n\n", FastCgiError::Malformed("Status is none")),
            ("Status: 200\nStatus: 200\n\n", FastCgiError::Malformed("Status is given twice")),
            ("HTTP/1.1 200 OK\n\n", FastCgiError::Malformed("a line of the head is no field")),
            ("\n", FastCgiError::NoHead),
            ("\r\nbody", FastCgiError::NoHead),
            ("A: b\n", FastCgiError::NoHead),
            ("", FastCgiError::NoHead),
        ] {
            assert_eq!(read(&stdout(head), &[]), Err(expected), "{head:?}");
        }
        let long = format!("A: {}\n\n", "b".repeat(1000));
        assert_eq!(read(&stdout(&long), &[]), Err(FastCgiError::TooLarge));
        assert_eq!(read(&stdout(&long[..1000]), &[]), Err(FastCgiError::TooLarge));
        assert_eq!(read(&stdout(&("A: b\n".repeat(21) + "\n")), &[]), Err(FastCgiError::TooLarge));
        assert_eq!(read(&end(0, 2), &[]), Err(FastCgiError::Overloaded));
        assert!(matches!(read(&end(0, 3), &[]), Err(FastCgiError::Malformed(_))));
        assert!(matches!(read(&record(3, b"short", 0), &[]), Err(FastCgiError::Malformed(_))));
        assert!(matches!(read(b"HTTP/1.1 200 OK\r\n\r\n", &[]), Err(FastCgiError::Malformed(_))));
        for head in ["A b: c\n\n", "A: b\rc\n\n", "A: b\0\n\n", "A: b\n c: d\n\n", ": b\n\n"] {
            assert!(
                matches!(read(&stdout(head), &[]), Err(FastCgiError::Malformed(_))),
                "{head:?}"
            );
        }
    }

    #[test]
    fn a_body_is_as_long_as_announced() {
        let length = "Content-Length: 4\n\n";
        let bytes = |text: &str| read(&stdout(&format!("{length}{text}")), &[5]);
        assert_eq!(bytes("body").map(|found| found.1), Ok(b"body".to_vec()));
        let wrong = |what| Err(FastCgiError::Malformed(what));
        assert_eq!(bytes("bodys"), wrong("the body is longer than announced"));
        assert_eq!(bytes("bod"), wrong("the body is shorter than announced"));
        // an answer that cannot have a body has none, whatever the script sends
        let asked = ResponseContext { is_head: true, upgrade: false };
        for (head, asked) in [
            (length, asked),
            ("Status: 204\n\n", ResponseContext::default()),
            ("Status: 304\nContent-Length: 9\n\n", ResponseContext::default()),
        ] {
            let found = read_asked(&stdout(&format!("{head}body")), &[3], asked).unwrap();
            assert_eq!((found.1, found.3), (Vec::new(), Some(0)), "{head}");
        }
    }

    #[test]
    fn words_for_the_log_are_bounded() {
        let mut bytes = record(7, b"PHP Warning: a\n", 1);
        bytes.extend(record(6, b"A: b\n\n", 0));
        bytes.extend(record(7, b"b\n", 0));
        bytes.extend(end(9, 0));
        let (_, body, stderr, status) = read(&bytes, &[3]).unwrap();
        assert_eq!(
            (body.as_slice(), stderr.as_str(), status),
            (&b""[..], "PHP Warning: a\nb", Some(9))
        );
        let mut bytes: Vec<u8> = (0..3).flat_map(|_| record(7, &[b'x'; 5000], 0)).collect();
        bytes.extend(stdout("A: b\n\n"));
        assert_eq!(read(&bytes, &[]).unwrap().2.len(), MOST_STDERR_BYTES);
    }

    proptest! {
        /// For all cuts into records and received pieces, the answer is the same.
        #[test]
        fn cuts_do_not_matter(
            body in prop::collection::vec(any::<u8>(), 0..300),
            records in prop::collection::vec((1usize..40, 0u8..9, any::<bool>()), 1..20),
            cuts in prop::collection::vec(1usize..30, 1..10),
            crlf in any::<bool>(),
        ) {
            let line = if crlf { "\r\n" } else { "\n" };
            let head = format!("Status: 201 Created{line}X-A: b{line}{line}");
            let whole = [head.as_bytes(), &body].concat();
            let (mut bytes, mut rest, mut words) = (Vec::new(), whole.as_slice(), String::new());
            for (len, padding, logs) in records.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (part, after) = rest.split_at(rest.len().min(*len));
                bytes.extend(record(6, part, *padding));
                rest = after;
                if *logs {
                    bytes.extend(record(7, b"x", *padding));
                    words.push('x');
                }
            }
            bytes.extend(end(0, 0));
            let (found_head, found, said, status) = read(&bytes, &cuts).unwrap();
            prop_assert_eq!(found_head, "HTTP/1.1 201 Created\r\nX-A: b\r\n\r\n");
            prop_assert_eq!((found, said, status), (body, words, Some(0)));
        }

        #[test]
        fn nothing_panics(bytes in prop::collection::vec(any::<u8>(), 0..200), good in 0usize..3) {
            let mut all: Vec<u8> = (0..good).flat_map(|_| record(6, b"A: b\n", 1)).collect();
            all.extend(bytes);
            let mut reader = FastCgiReader::new(ResponseContext::default(), ResponseHeadLimits::default());
            let mut rest = all.as_slice();
            while let Ok(RecordsRead { used, piece }) = reader.read(rest) {
                rest = &rest[used..];
                if rest.is_empty() || matches!(piece, FastCgiPiece::End { .. }) {
                    break;
                }
            }
        }
    }
}
