//! The head of an answer: status line and fields, checked and taken apart without copying.
//!
//! The parser is as strict as that of a request: an answer that two recipients could read
//! differently is how one client gets what was meant for another (RFC 9112 §11.1 and §11.2).

use crate::framing::number;
use crate::head::{self, ConnectionField, FieldSpan, Lines, MOST_LINES, Version};
use crate::octet::is_text;

/// The limits on the head of an answer, and the line ends that it may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseHeadLimits {
    /// The most bytes of the whole head, the empty line included.
    pub head_bytes: usize,
    /// The most field lines, at most [`MOST_LINES`].
    pub head_lines: usize,
    /// Whether lines of head, chunks and trailers may end in LF without CR.
    pub bare_lf: bool,
}

impl Default for ResponseHeadLimits {
    fn default() -> ResponseHeadLimits {
        ResponseHeadLimits { head_bytes: 64 * 1024, head_lines: 128, bare_lf: false }
    }
}

/// The properties of the request that decide which answers are valid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResponseContext {
    /// The request was HEAD: no body comes, whatever the fields say.
    pub is_head: bool,
    /// The request has asked for another protocol.
    pub upgrade: bool,
}

/// The framing of what follows a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFraming {
    /// Nothing follows.
    None,
    /// Exactly this many bytes.
    Sized(u64),
    /// Chunks, ended by a chunk of size 0.
    Chunked,
    /// Everything until the connection ends.
    UntilClose,
    /// Another protocol follows, both ways (101).
    Upgraded,
}

/// The reason why a head was refused. It is always the fault of the server that has answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseError {
    /// The bytes are no answer of HTTP/1, for this reason.
    Malformed(&'static str),
    /// The head is longer than allowed or has too many lines.
    TooLarge,
}

impl ResponseError {
    /// The error in a few words.
    pub fn reason(self) -> &'static str {
        match self {
            ResponseError::Malformed(what) => what,
            ResponseError::TooLarge => "the head of the answer is too large",
        }
    }
}

/// The outcome of parsing the beginning of an answer.
#[derive(Debug)]
pub enum ParsedResponse<'h> {
    /// The bytes begin with a complete head.
    Complete(Response<'h>),
    /// The bytes are the beginning of a head; more are needed.
    Partial,
}

/// The complete head of an answer. It borrows the received bytes.
#[derive(Clone, Copy, Debug)]
pub struct Response<'h> {
    /// The status, 100 to 999. A status from 600 on is in no class, and counts as one of 5xx (RFC
    /// 9110 §15).
    pub status: u16,
    /// The reason phrase of the server that has answered; mostly for people, and often empty.
    pub reason: &'h str,
    /// HTTP/1.0 or HTTP/1.1.
    pub version: Version,
    /// The framing of the body.
    pub body: BodyFraming,
    /// The value of `Content-Length`, if present: for an answer without a body, the length that it
    /// would have.
    pub content_length: Option<u64>,
    /// Whether another request may be sent on the connection when this answer is over.
    pub keep_alive: bool,
    /// Whether `Connection` names fields, which are for that connection only (RFC 9110 §7.6.1).
    pub names_fields: bool,
    /// Whether it is a stream of events, by its `Content-Type`.
    pub is_event_stream: bool,
    /// Whether it says how a client may show who it is (`WWW-Authenticate`).
    pub has_challenge: bool,
    /// Bytes of the head, the empty line included.
    pub len: usize,
    lines: FieldLines<'h>,
}

/// The field lines, where they were received, or found again.
#[derive(Clone, Copy, Debug)]
enum FieldLines<'h> {
    Received(&'h [httparse::Header<'h>]),
    /// `text` is all of it, if it is text, as almost every head: then no name is looked at again.
    Kept {
        bytes: &'h [u8],
        text: Option<&'h str>,
        fields: &'h [FieldSpan],
    },
}

impl<'h> FieldLines<'h> {
    fn len(self) -> usize {
        match self {
            FieldLines::Received(lines) => lines.len(),
            FieldLines::Kept { fields, .. } => fields.len(),
        }
    }

    fn get(self, at: usize) -> Option<(&'h str, &'h [u8])> {
        match self {
            FieldLines::Received(lines) => lines.get(at).map(|line| (line.name, line.value)),
            FieldLines::Kept { bytes, text: None, fields } => {
                fields.get(at).map(|field| field.within(bytes))
            }
            FieldLines::Kept { bytes, text: Some(text), fields } => {
                fields.get(at).map(|field| field.of(text, bytes))
            }
        }
    }
}

/// A head that was parsed, without its bytes: it is not parsed again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptResponse {
    status: u16,
    version: Version,
    body: BodyFraming,
    content_length: Option<u64>,
    keep_alive: bool,
    names_fields: bool,
    is_event_stream: bool,
    has_challenge: bool,
    len: usize,
    fields: Vec<FieldSpan>,
}

impl KeptResponse {
    /// The head again, from the same bytes. The reason phrase is not kept.
    pub fn view<'h>(&'h self, bytes: &'h [u8]) -> Response<'h> {
        Response {
            status: self.status,
            reason: "",
            version: self.version,
            body: self.body,
            content_length: self.content_length,
            keep_alive: self.keep_alive,
            names_fields: self.names_fields,
            is_event_stream: self.is_event_stream,
            has_challenge: self.has_challenge,
            len: self.len,
            lines: FieldLines::Kept {
                bytes,
                text: std::str::from_utf8(bytes).ok(),
                fields: &self.fields,
            },
        }
    }
}

/// Whether a media type is that of streams of events.
fn is_event_stream(value: &[u8]) -> bool {
    let media_type = value.split(|byte| *byte == b';').next().unwrap_or_default();
    media_type.trim_ascii().eq_ignore_ascii_case(b"text/event-stream")
}

impl<'h> Response<'h> {
    /// Parses the head at the start of `bytes`. `lines` is the buffer for its fields.
    ///
    /// The parser refuses whatever is no HTTP, and a bare LF or CR, NUL and other control bytes,
    /// folded lines, white space before a colon, both lengths at once, lengths that differ, a
    /// transfer coding other than chunked, one in HTTP/1.0, and another protocol that was not asked
    /// for.
    ///
    /// # Errors
    /// A [`ResponseError`] as soon as the bytes cannot become an acceptable head.
    pub fn parse(
        bytes: &'h [u8],
        lines: &'h mut Lines<'h>,
        asked: ResponseContext,
        limits: &ResponseHeadLimits,
    ) -> Result<ParsedResponse<'h>, ResponseError> {
        const START: &[u8] = b"HTTP/1.";
        let known = bytes.len().min(START.len());
        if bytes[..known] != START[..known] {
            return Err(ResponseError::Malformed("it is no answer of HTTP/1"));
        }
        let window = &bytes[..bytes.len().min(limits.head_bytes)];
        let mut response = httparse::Response::new(&mut []);
        let most_lines = limits.head_lines.min(MOST_LINES);
        let status = httparse::ParserConfig::default().parse_response_with_uninit_headers(
            &mut response,
            window,
            &mut lines.fixed[..most_lines],
        );
        let check = |head| if limits.bare_lf { Ok(()) } else { check_line_ends(head) };
        let partial = || match check(window) {
            Err(error) => Err(error),
            Ok(()) if bytes.len() >= limits.head_bytes => Err(ResponseError::TooLarge),
            Ok(()) => Ok(ParsedResponse::Partial),
        };
        let (len, minor, code, reason, fields) = match status {
            Ok(httparse::Status::Complete(len)) => {
                (len, response.version, response.code, response.reason, &*response.headers)
            }
            Ok(httparse::Status::Partial) => return partial(),
            Err(httparse::Error::Version) => {
                let Some(StatusLine { len, code, reason }) = later_version(window)? else {
                    return partial();
                };
                match head::other_fields(&window[len..], &mut lines.other, most_lines) {
                    Ok(Some((rest, fields))) => {
                        (len + rest, Some(1), Some(code), Some(reason), fields)
                    }
                    Ok(None) => return partial(),
                    Err(error) => return Err(refused(error)),
                }
            }
            Err(error) => return Err(refused(error)),
        };
        check(&window[..len])?;
        let (Some(code), Some(minor)) = (code, minor) else {
            return Err(ResponseError::Malformed("the status line is incomplete"));
        };
        if code < 100 {
            return Err(ResponseError::Malformed("there is no such status"));
        }
        let mut head = Response {
            status: code,
            reason: reason.unwrap_or_default(),
            version: if minor == 0 { Version::Http10 } else { Version::Http11 },
            body: BodyFraming::None,
            content_length: None,
            keep_alive: false,
            names_fields: false,
            is_event_stream: false,
            has_challenge: false,
            len,
            lines: FieldLines::Received(fields),
        };
        head.read_fields(fields, asked)?;
        Ok(ParsedResponse::Complete(head))
    }

    /// Whether another answer to the same request follows.
    pub fn is_interim(&self) -> bool {
        self.status < 200 && self.status != 101
    }

    /// All field lines in order: name as sent, value without surrounding white space.
    pub fn fields(&self) -> impl Iterator<Item = (&'h str, &'h [u8])> + Clone + use<'h> {
        let lines = self.lines;
        (0..).map_while(move |at| lines.get(at))
    }

    /// The result of parsing `bytes`, without the bytes.
    pub fn keep(&self, bytes: &[u8]) -> KeptResponse {
        let begin = bytes.as_ptr() as usize;
        // a head is far smaller than four bytes can count
        let place = |part: &[u8]| {
            let start = (part.as_ptr() as usize).wrapping_sub(begin);
            if part.is_empty() { 0..0 } else { start as u32..(start + part.len()) as u32 }
        };
        let mut fields = Vec::with_capacity(self.lines.len());
        for (name, value) in self.fields() {
            fields.push(FieldSpan::new(place(name.as_bytes()), place(value)));
        }
        KeptResponse {
            status: self.status,
            version: self.version,
            body: self.body,
            content_length: self.content_length,
            keep_alive: self.keep_alive,
            names_fields: self.names_fields,
            is_event_stream: self.is_event_stream,
            has_challenge: self.has_challenge,
            len: self.len,
            fields,
        }
    }

    /// The values of all lines of a field, in order.
    pub fn values(&self, name: &str) -> impl Iterator<Item = &'h [u8]> {
        let fields = self.fields();
        fields.filter(move |(text, _)| text.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    fn read_fields(
        &mut self,
        lines: &[httparse::Header<'_>],
        asked: ResponseContext,
    ) -> Result<(), ResponseError> {
        let wrong = |what| Err(ResponseError::Malformed(what));
        let mut connection = ConnectionField::default();
        let (mut is_chunked, mut upgrade) = (false, false);
        for line in lines {
            let is = |name: &str| line.name.eq_ignore_ascii_case(name);
            match line.name.len() {
                7 if is("upgrade") => upgrade = true,
                10 if is("connection") => connection.read(line.value),
                12 if is("content-type") => self.is_event_stream |= is_event_stream(line.value),
                16 if is("www-authenticate") => self.has_challenge = true,
                14 if is("content-length") => {
                    let length = number(line.value).map_err(ResponseError::Malformed)?;
                    if self.content_length.is_some_and(|other| other != length) {
                        return wrong("Content-Length is given twice, and differs");
                    }
                    self.content_length = Some(length);
                }
                17 if is("transfer-encoding") => {
                    if is_chunked {
                        return wrong("Transfer-Encoding is repeated");
                    }
                    if !line.value.eq_ignore_ascii_case(b"chunked") {
                        return wrong("the only transfer coding known here is chunked");
                    }
                    is_chunked = true;
                }
                _ => {}
            }
        }
        if is_chunked && self.content_length.is_some() {
            return wrong("both Content-Length and Transfer-Encoding are given");
        }
        if is_chunked && self.version == Version::Http10 {
            return wrong("HTTP/1.0 has no Transfer-Encoding");
        }
        // RFC 9112 §6.3
        self.body = match (self.status, self.content_length) {
            (101, _) if asked.upgrade && upgrade && self.version == Version::Http11 => {
                BodyFraming::Upgraded
            }
            (101, _) => return wrong("it changes to a protocol that was not asked for"),
            (100..200 | 204 | 304, _) => BodyFraming::None,
            _ if asked.is_head => BodyFraming::None,
            _ if is_chunked => BodyFraming::Chunked,
            (_, Some(0)) => BodyFraming::None,
            (_, Some(length)) => BodyFraming::Sized(length),
            (_, None) => BodyFraming::UntilClose,
        };
        // an answer that must have no body, but announces one, may be followed by it (RFC 9110
        // §8.6)
        let is_contrary = matches!(self.status, 100..200 | 204)
            && (is_chunked || self.content_length.is_some_and(|length| length > 0));
        self.names_fields = connection.names_fields;
        // RFC 9112 §9.3
        self.keep_alive = !connection.close
            && (self.version == Version::Http11 || connection.keep_alive)
            && !matches!(self.body, BodyFraming::UntilClose | BodyFraming::Upgraded)
            && !is_contrary;
        Ok(())
    }
}

/// A status line that httparse does not read, because its minor version is later than 1; it counts
/// as one of HTTP/1.1 (RFC 9110 §2.5).
struct StatusLine<'h> {
    /// The number of bytes, the line end included.
    len: usize,
    code: u16,
    reason: &'h str,
}

/// Reads `HTTP/1.` digit SP 3digit [ SP reason ] and a line end (RFC 9112 §4); `None` if more must
/// come.
fn later_version(bytes: &[u8]) -> Result<Option<StatusLine<'_>>, ResponseError> {
    let wrong = Err(ResponseError::Malformed("the status line is malformed"));
    if bytes.get(b"HTTP/1.".len()).is_some_and(|minor| !minor.is_ascii_digit()) {
        return wrong;
    }
    let Some(end) = memchr::memchr(b'\n', bytes) else { return Ok(None) };
    let line = bytes[..end].strip_suffix(b"\r").unwrap_or(&bytes[..end]);
    let Some((&[b' ', hundreds, tens, ones], reason)) =
        line.get(b"HTTP/1.0".len()..).and_then(|rest| rest.split_first_chunk())
    else {
        return wrong;
    };
    let is_reason = match reason {
        [] => true,
        [b' ', text @ ..] => text.iter().all(|&byte| is_text(byte)),
        _ => false,
    };
    let digits = [hundreds, tens, ones];
    if !is_reason || !digits.iter().all(u8::is_ascii_digit) {
        return wrong;
    }
    let code = digits.iter().fold(0, |code, digit| code * 10 + u16::from(digit - b'0'));
    let reason = std::str::from_utf8(reason.get(1..).unwrap_or_default()).unwrap_or_default();
    Ok(Some(StatusLine { len: end + 1, code, reason }))
}

fn check_line_ends(head: &[u8]) -> Result<(), ResponseError> {
    head::check_line_ends(head).map_err(|error| ResponseError::Malformed(error.reason()))
}

fn refused(error: httparse::Error) -> ResponseError {
    ResponseError::Malformed(match error {
        httparse::Error::TooManyHeaders => return ResponseError::TooLarge,
        httparse::Error::HeaderName => "a field name is malformed",
        httparse::Error::HeaderValue => "a field value has a forbidden byte",
        httparse::Error::NewLine => "a line does not end in CR LF",
        httparse::Error::Status => "the status line is malformed",
        _ => "it is no answer of HTTP/1",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GET: ResponseContext = ResponseContext { is_head: false, upgrade: false };
    const HEAD: ResponseContext = ResponseContext { is_head: true, upgrade: false };
    const UPGRADE: ResponseContext = ResponseContext { is_head: false, upgrade: true };

    /// Status, what follows, and whether the connection is kept; or the reason of the refusal.
    fn read(
        text: &str,
        asked: ResponseContext,
    ) -> Result<Option<(u16, BodyFraming, bool)>, &'static str> {
        let mut lines = Lines::new();
        match Response::parse(text.as_bytes(), &mut lines, asked, &ResponseHeadLimits::default()) {
            Ok(ParsedResponse::Partial) => Ok(None),
            Ok(ParsedResponse::Complete(head)) => {
                assert_eq!(head.len, text.find("\r\n\r\n").unwrap() + 4);
                Ok(Some((head.status, head.body, head.keep_alive)))
            }
            Err(error) => Err(error.reason()),
        }
    }

    #[test]
    fn what_follows_a_head() {
        for (head, asked, expected) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n", GET, (200, BodyFraming::Sized(5), true)),
            ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n", GET, (200, BodyFraming::None, true)),
            ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n", HEAD, (200, BodyFraming::None, true)),
            (
                "HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n",
                GET,
                (200, BodyFraming::Chunked, true),
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n",
                HEAD,
                (200, BodyFraming::None, true),
            ),
            ("HTTP/1.1 200 OK\r\n", GET, (200, BodyFraming::UntilClose, false)),
            ("HTTP/1.1 200\r\n", HEAD, (200, BodyFraming::None, true)),
            ("HTTP/1.1 204 No Content\r\n", GET, (204, BodyFraming::None, true)),
            (
                "HTTP/1.1 204 No Content\r\nContent-Length: 3\r\n",
                GET,
                (204, BodyFraming::None, false),
            ),
            (
                "HTTP/1.1 304 Not Modified\r\nContent-Length: 3\r\n",
                GET,
                (304, BodyFraming::None, true),
            ),
            ("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n", GET, (103, BodyFraming::None, true)),
            ("HTTP/1.0 200 OK\r\nContent-Length: 1\r\n", GET, (200, BodyFraming::Sized(1), false)),
            (
                "HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 1\r\n",
                GET,
                (200, BodyFraming::Sized(1), true),
            ),
            (
                "HTTP/1.1 200 OK\r\nConnection: x, Close\r\nContent-Length: 1\r\n",
                GET,
                (200, BodyFraming::Sized(1), false),
            ),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 7\r\nContent-Length: 7\r\n",
                GET,
                (200, BodyFraming::Sized(7), true),
            ),
            (
                "HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\nConnection: upgrade\r\n",
                UPGRADE,
                (101, BodyFraming::Upgraded, false),
            ),
        ] {
            assert_eq!(read(&format!("{head}\r\n"), asked), Ok(Some(expected)), "{head}");
        }
    }

    #[test]
    fn a_head_that_is_kept_says_the_same() {
        let text = b"HTTP/1.1 404 Not Here\r\nServer: a\r\nX-Empty:\r\nx-empty: \r\n\
                     Content-Length: 7\r\nLink: </a>\r\nlink:  b\xff \r\n\r\nmore";
        let mut lines = Lines::new();
        let Ok(ParsedResponse::Complete(head)) =
            Response::parse(text, &mut lines, GET, &ResponseHeadLimits::default())
        else {
            panic!("it is whole")
        };
        let kept = head.keep(text);
        // wherever the bytes are now
        let moved = text.to_vec();
        let view = kept.view(&moved);
        assert_eq!(view.fields().collect::<Vec<_>>(), head.fields().collect::<Vec<_>>());
        assert_eq!(view.fields().count(), 6);
        assert_eq!(view.values("LINK").collect::<Vec<_>>(), [b"</a>".as_slice(), b"b\xff"]);
        assert_eq!(
            (view.status, view.body, view.content_length, view.keep_alive, view.len),
            (404, BodyFraming::Sized(7), Some(7), true, text.len() - 4)
        );
        assert_eq!(view.keep(&moved), kept);
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_refused() {
        let ok = "HTTP/1.1 200 OK\r\n";
        for (head, expected) in [
            ("hello\r\n\r\n".to_owned(), "it is no answer of HTTP/1"),
            ("\r\nHTTP/1.1 200 OK\r\n\r\n".to_owned(), "it is no answer of HTTP/1"),
            ("HTTP/2.0 200 OK\r\n\r\n".to_owned(), "it is no answer of HTTP/1"),
            ("HTTP/1.1 20 OK\r\n\r\n".to_owned(), "the status line is malformed"),
            ("HTTP/1.1 099 x\r\n\r\n".to_owned(), "there is no such status"),
            ("HTTP/1.x 200 x\r\n\r\n".to_owned(), "the status line is malformed"),
            ("HTTP/1.2 20 x\r\n\r\n".to_owned(), "the status line is malformed"),
            ("HTTP/1.2 099 x\r\n\r\n".to_owned(), "there is no such status"),
            ("HTTP/1.2 200 x\nA: b\r\n\r\n".to_owned(), "a line ends in a bare LF"),
            ("HTTP/1.2 200 x\r\nA : b\r\n\r\n".to_owned(), "a field name is malformed"),
            (
                format!("{ok}Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"),
                "both Content-Length and Transfer-Encoding are given",
            ),
            (
                format!("{ok}Content-Length: 1\r\nContent-Length: 2\r\n\r\n"),
                "Content-Length is given twice, and differs",
            ),
            (format!("{ok}Content-Length: 1, 1\r\n\r\n"), "Content-Length is not a number"),
            (format!("{ok}Content-Length: +1\r\n\r\n"), "Content-Length is not a number"),
            (format!("{ok}Content-Length: 0x1\r\n\r\n"), "Content-Length is not a number"),
            (format!("{ok}Content-Length: \r\n\r\n"), "Content-Length is not a number"),
            (
                format!("{ok}Content-Length: 99999999999999999999\r\n\r\n"),
                "Content-Length is too large",
            ),
            (
                format!("{ok}Transfer-Encoding: gzip, chunked\r\n\r\n"),
                "the only transfer coding known here is chunked",
            ),
            (
                format!("{ok}Transfer-Encoding: \x0bchunked\r\n\r\n"),
                "a field value has a forbidden byte",
            ),
            (
                format!("{ok}Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n"),
                "Transfer-Encoding is repeated",
            ),
            (
                "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned(),
                "HTTP/1.0 has no Transfer-Encoding",
            ),
            (format!("{ok}A : b\r\n\r\n"), "a field name is malformed"),
            (format!("{ok}A: b\r\n c\r\n\r\n"), "a field name is malformed"),
            (format!("{ok} A: b\r\n\r\n"), "a field name is malformed"),
            (format!("{ok}A: b\0c\r\n\r\n"), "a field value has a forbidden byte"),
            (format!("{ok}A: b\rc\r\n\r\n"), "a field value has a forbidden byte"),
            (format!("{ok}A: b\nC: d\r\n\r\n"), "a line ends in a bare LF"),
            ("HTTP/1.1 200 OK\nA: b\r\n\r\n".to_owned(), "a line ends in a bare LF"),
            (
                "HTTP/1.1 101 x\r\nUpgrade: x\r\n\r\n".to_owned(),
                "it changes to a protocol that was not asked for",
            ),
        ] {
            assert_eq!(read(&head, GET), Err(expected), "{head:?}");
        }
        let without = read("HTTP/1.1 101 x\r\nA: b\r\n\r\n", UPGRADE);
        assert_eq!(without, Err("it changes to a protocol that was not asked for"));
    }

    #[test]
    fn heads_are_bounded() {
        let limits = ResponseHeadLimits { head_bytes: 100, head_lines: 3, bare_lf: false };
        let parse = |text: &str| {
            let mut lines = Lines::new();
            Response::parse(text.as_bytes(), &mut lines, GET, &limits).map(|_| ())
        };
        assert_eq!(parse("HTTP/1.1 200 OK\r\nA: b\r\nA: b\r\nA: b\r\n\r\n"), Ok(()));
        let four = "HTTP/1.1 200 OK\r\nA: b\r\nA: b\r\nA: b\r\nA: b\r\n\r\n";
        assert_eq!(parse(four), Err(ResponseError::TooLarge));
        let long = format!("HTTP/1.1 200 OK\r\nA: {}", "b".repeat(100));
        assert_eq!(parse(&long[..99]), Ok(()));
        assert_eq!(parse(&long[..100]), Err(ResponseError::TooLarge));
    }

    proptest! {
        /// The result of a head does not depend on how it arrives: none of its beginnings is
        /// complete or refused.
        #[test]
        fn every_beginning_is_partial(
            values in prop::collection::vec("[ -~]{0,12}", 0..6), status in 200u16..1000, minor in 1u8..=9,
        ) {
            let lines: String =
                values.iter().enumerate().map(|(at, value)| format!("X-{at}: {value}\r\n")).collect();
            let text = format!("HTTP/1.{minor} {status} some reason\r\n{lines}\r\n");
            for end in 0..text.len() {
                prop_assert_eq!(read(&text[..end], GET), Ok(None), "{}", end);
            }
            prop_assert!(matches!(read(&text, GET), Ok(Some(_))));
        }

        #[test]
        fn nothing_panics(bytes in prop::collection::vec(any::<u8>(), 0..200), start in any::<bool>()) {
            let mut text = if start { b"HTTP/1.1 200 OK\r\n".to_vec() } else { Vec::new() };
            text.extend_from_slice(&bytes);
            let mut lines = Lines::new();
            let _ = Response::parse(&text, &mut lines, GET, &ResponseHeadLimits::default());
        }
    }
}
