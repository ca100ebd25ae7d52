//! What a handler writes its answer with.

use super::HandlerResult;
use super::pipe::{HandlerEnd, HandlerHead, HandlerPipe, PassedField};
use forebay_http::field::FieldName;
use std::fmt::Display;
use std::io::{self, Write};
use std::sync::Arc;

/// An answer that is not longer is sent in one piece, with its length.
const BUFFER_BYTES: usize = 16 * 1024;

/// Fields that say how an answer is sent: the server's, not a handler's.
const OF_CONNECTION: [&str; 8] = [
    "Connection",
    "Keep-Alive",
    "Proxy-Connection",
    "Transfer-Encoding",
    "TE",
    "Trailer",
    "Upgrade",
    "Content-Length",
];

/// The answer to a request. What is written is sent when 16 KiB of it are there, when it is [flushed](Write::flush),
/// and when the handler returns. A write that the client does not take waits for it.
#[derive(Debug)]
pub struct InsideResponse {
    pipe: Arc<HandlerPipe>,
    head: HandlerHead,
    trailers: Vec<PassedField>,
    buffer: Vec<u8>,
    is_begun: bool,
    /// The client asks by HEAD: nothing of the body is sent.
    is_head: bool,
    /// Bytes of the body so far.
    written: u64,
}

impl InsideResponse {
    pub(super) fn new(pipe: Arc<HandlerPipe>, is_head: bool) -> InsideResponse {
        let head = HandlerHead { status: 200, ..HandlerHead::default() };
        let (trailers, buffer) = (Vec::new(), Vec::new());
        InsideResponse { pipe, head, trailers, buffer, is_begun: false, is_head, written: 0 }
    }

    /// Sets the status; 200 if nothing is set.
    ///
    /// # Errors
    /// `InvalidInput` if it is no status of an answer (200 to 599), or the head was sent already.
    pub fn status(&mut self, status: u16) -> io::Result<&mut Self> {
        self.before_head()?;
        if !(200..600).contains(&status) {
            return Err(wrong(format_args!("{status} is no status of an answer: 200 to 599")));
        }
        self.head.status = status;
        Ok(self)
    }

    /// Adds a field to the head.
    ///
    /// # Errors
    /// `InvalidInput` if name or value cannot be sent, if the field is the server's to set, or if the head was sent
    /// already.
    pub fn field(&mut self, name: &str, value: impl AsRef<[u8]>) -> io::Result<&mut Self> {
        self.before_head()?;
        let field = checked(name, value.as_ref())?;
        self.head.fields.push(field);
        Ok(self)
    }

    /// Says how long the body will be, where it is known before: else an answer of more than 16 KiB is sent in chunks.
    /// An answer without a body, to HEAD or with status 304, says how long it would be, and nothing need be written.
    ///
    /// # Errors
    /// `InvalidInput` if the head was sent already.
    pub fn length(&mut self, bytes: u64) -> io::Result<&mut Self> {
        self.before_head()?;
        self.head.length = Some(bytes);
        Ok(self)
    }

    /// Adds a field that follows the body. A client of HTTP/1 sees it only if the answer is in chunks.
    ///
    /// # Errors
    /// `InvalidInput` if name or value cannot be sent.
    pub fn trailer(&mut self, name: &str, value: impl AsRef<[u8]>) -> io::Result<&mut Self> {
        self.trailers.push(checked(name, value.as_ref())?);
        Ok(self)
    }

    /// The whole answer in one call: status, media type and body.
    ///
    /// # Errors
    /// As [`status`](InsideResponse::status) and writing.
    pub fn send(
        &mut self,
        status: u16,
        media_type: &str,
        body: impl AsRef<[u8]>,
    ) -> io::Result<()> {
        let body = body.as_ref();
        self.status(status)?.field("Content-Type", media_type)?;
        self.head.length.get_or_insert(self.written + body.len() as u64);
        self.write_all(body)
    }

    /// A page of HTML with status 200.
    ///
    /// # Errors
    /// As [`send`](InsideResponse::send).
    pub fn html(&mut self, body: impl AsRef<[u8]>) -> io::Result<()> {
        self.send(200, "text/html; charset=utf-8", body)
    }

    /// Plain text with status 200.
    ///
    /// # Errors
    /// As [`send`](InsideResponse::send).
    pub fn text(&mut self, body: impl AsRef<[u8]>) -> io::Result<()> {
        self.send(200, "text/plain; charset=utf-8", body)
    }

    /// Whether the head was sent: status and fields stand.
    pub fn is_begun(&self) -> bool {
        self.is_begun
    }

    fn before_head(&self) -> io::Result<()> {
        if self.is_begun { Err(wrong("the head of the answer was sent already")) } else { Ok(()) }
    }

    /// Sends what is there.
    fn pass_on(&mut self) -> io::Result<()> {
        if !self.is_begun {
            self.pipe.send_head(self.head.clone())?;
            self.is_begun = true;
        }
        let buffer = std::mem::take(&mut self.buffer);
        self.pipe.write_body(&buffer)
    }

    /// The handler has returned this, or panicked.
    pub(super) fn end(mut self, returned: Option<HandlerResult>) -> Option<HandlerResult> {
        let returned = match returned {
            Some(Ok(())) => Some(self.finish().map_err(Into::into)),
            other => other,
        };
        match &returned {
            Some(Ok(())) => {}
            Some(Err(_)) => self.pipe.end(HandlerEnd::Failed),
            None => self.pipe.end(HandlerEnd::Panicked),
        }
        returned
    }

    /// Whether no body is sent, whatever was written.
    fn is_bare(&self) -> bool {
        self.is_head || matches!(self.head.status, 204 | 304)
    }

    fn finish(&mut self) -> io::Result<()> {
        let is_bare = self.is_bare();
        let promised = self.head.length.filter(|length| *length != self.written);
        if let Some(length) = promised.filter(|_| !is_bare) {
            let written = self.written;
            return Err(wrong(format_args!(
                "the answer was to have {length} bytes and has {written}"
            )));
        }
        let trailers = std::mem::take(&mut self.trailers);
        if !self.is_begun {
            // clients of HTTP/1 see trailers behind chunks alone
            let known = trailers.is_empty() && !(is_bare && self.written == 0);
            let length = self.head.length.filter(|_| is_bare).or(known.then_some(self.written));
            let head = HandlerHead { length, ..std::mem::take(&mut self.head) };
            self.pipe.send_whole(head, std::mem::take(&mut self.buffer), trailers);
            return Ok(());
        }
        self.pass_on()?;
        self.pipe.end(HandlerEnd::Whole(trailers));
        Ok(())
    }
}

/// Writes to the body.
impl Write for InsideResponse {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(length) = self.head.length
            && length.saturating_sub(self.written) < bytes.len() as u64
        {
            return Err(wrong(format_args!("the answer was to have {length} bytes and has more")));
        }
        self.written += bytes.len() as u64;
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() > BUFFER_BYTES {
            self.pass_on()?;
        }
        Ok(bytes.len())
    }

    /// Sends the head, if it was not sent, and what was written.
    fn flush(&mut self) -> io::Result<()> {
        self.pass_on()
    }
}

fn wrong(why: impl Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why.to_string())
}

/// A field that can be sent, and is a handler's.
fn checked(name: &str, value: &[u8]) -> io::Result<PassedField> {
    if FieldName::parse(name).is_err() {
        return Err(wrong(format_args!("{name:?} is no name of a field")));
    }
    if OF_CONNECTION.iter().any(|own| own.eq_ignore_ascii_case(name)) {
        let hint = if name.eq_ignore_ascii_case("Content-Length") { " (see `length`)" } else { "" };
        return Err(wrong(format_args!("{name} is for the server to set{hint}")));
    }
    let is_bad = |byte: &u8| (*byte < b' ' && *byte != b'\t') || *byte == 0x7f;
    if value.iter().any(is_bad) || value != value.trim_ascii() {
        return Err(wrong(format_args!("the value of {name} has characters that cannot be sent")));
    }
    Ok((name.into(), value.into()))
}

#[cfg(test)]
mod tests {
    use super::super::pipe::PipeRead;
    use super::*;

    fn answered(
        handler: impl FnOnce(&mut InsideResponse) -> HandlerResult,
    ) -> (Arc<HandlerPipe>, bool) {
        answered_to(false, handler)
    }

    fn answered_to(
        is_head: bool,
        handler: impl FnOnce(&mut InsideResponse) -> HandlerResult,
    ) -> (Arc<HandlerPipe>, bool) {
        let pipe = Arc::<HandlerPipe>::default();
        let mut response = InsideResponse::new(Arc::clone(&pipe), is_head);
        let result = handler(&mut response);
        let is_whole = matches!(response.end(Some(result)), Some(Ok(())));
        (pipe, is_whole)
    }

    #[test]
    fn a_short_answer_is_sent_at_once_with_its_length() {
        let (pipe, is_whole) = answered(|response| {
            response.status(404)?.field("X-One", "1")?;
            response.write_all(b"nothing")?;
            assert!(!response.is_begun());
            Ok(())
        });
        let (head, end) = pipe.answer();
        let head = head.unwrap();
        assert!(is_whole);
        assert_eq!((head.status, head.length), (404, Some(7)));
        assert_eq!(end, Some(HandlerEnd::Whole(Vec::new())));
    }

    #[test]
    fn a_flush_begins_an_answer_whose_length_nobody_knows() {
        let (pipe, _) = answered(|response| {
            response.write_all(b"one")?;
            response.flush()?;
            assert!(response.status(500).is_err() && response.field("A", "b").is_err());
            Ok(())
        });
        assert_eq!(pipe.answer().0.unwrap().length, None);
    }

    #[test]
    fn a_length_that_was_said_is_kept_or_the_answer_is_broken() {
        let (pipe, is_whole) = answered(|response| {
            response.length(10)?;
            response.write_all(b"short")?;
            Ok(())
        });
        assert!(!is_whole);
        assert_eq!(pipe.read_answer(&mut Vec::new(), 9), PipeRead::Broken);
        let (_, is_whole) = answered(|response| {
            response.length(3)?;
            Ok(response.write_all(b"more")?)
        });
        assert!(!is_whole);
    }

    #[test]
    fn an_answer_without_a_body_has_the_length_that_was_said_or_none() {
        for (is_head, status) in [(true, 200), (false, 304)] {
            for said in [None, Some(1 << 20)] {
                let (pipe, is_whole) = answered_to(is_head, |response| {
                    response.status(status)?;
                    said.map(|bytes| response.length(bytes).map(|_| ())).transpose()?;
                    Ok(())
                });
                assert!(is_whole, "{status} {said:?}");
                assert_eq!(pipe.answer().0.unwrap().length, said, "{status}");
            }
        }
        let (pipe, _) = answered_to(true, |response| Ok(response.write_all(b"body")?));
        assert_eq!(pipe.answer().0.unwrap().length, Some(4));
    }

    #[test]
    fn what_would_break_a_head_is_refused() {
        let (_, is_whole) = answered(|response| {
            for (name, value) in [
                ("X\r\nY", "1"),
                ("", "1"),
                ("X", "1\r\nY: 2"),
                ("X", "a\0b"),
                ("X", " padded"),
                ("Content-Length", "5"),
                ("transfer-encoding", "chunked"),
            ] {
                assert!(response.field(name, value).is_err(), "{name:?} {value:?}");
            }
            for status in [0, 100, 101, 199, 600, 1000] {
                assert!(response.status(status).is_err(), "{status}");
            }
            response.field("X", "caf\u{e9}")?;
            Ok(())
        });
        assert!(is_whole);
    }
}
