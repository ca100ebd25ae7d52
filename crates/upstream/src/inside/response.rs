//! The response, with which a handler writes its answer.

use super::HandlerResult;
use super::pipe::{HandlerEnd, HandlerHead, HandlerPipe, PassedField};
use super::request::is_body_too_large;
use super::taken::DetachedRun;
use forebay_http::field::FieldName;
use std::fmt::Display;
use std::io::{self, Write};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// The length up to which an answer is sent in one piece, with its length.
const BUFFER_BYTES: usize = 16 * 1024;

const CONTENT_TYPE: &str = "Content-Type";

/// The field that answers the key of a WebSocket.
const ACCEPT: &str = "Sec-WebSocket-Accept";

/// The fields that say how an answer is sent. The server sets them, not a handler.
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

/// The answer to a request. What is written is sent when there are 16 KiB of it, when it is
/// [flushed](Write::flush), and when the handler returns. A write waits while the client takes
/// nothing.
#[derive(Debug)]
pub struct InsideResponse {
    pipe: Arc<HandlerPipe>,
    head: HandlerHead,
    trailers: Vec<PassedField>,
    buffer: Vec<u8>,
    is_begun: bool,
    /// Whether the client asks by HEAD; then nothing of the body is sent.
    is_head: bool,
    /// The number of bytes of the body so far.
    written: u64,
    /// The place that a detached handler holds.
    detached: Option<DetachedRun>,
}

impl InsideResponse {
    pub(super) fn new(pipe: Arc<HandlerPipe>, is_head: bool) -> InsideResponse {
        let head = HandlerHead { status: 200, ..HandlerHead::default() };
        let (trailers, buffer) = (Vec::new(), Vec::new());
        InsideResponse {
            pipe,
            head,
            trailers,
            buffer,
            is_begun: false,
            is_head,
            written: 0,
            detached: None,
        }
    }

    /// Holds this place until the response is dropped.
    pub(super) fn keep(&mut self, detached: DetachedRun) {
        self.detached = Some(detached);
    }

    /// Sets the status; 200 if nothing is set.
    ///
    /// # Errors
    /// `InvalidInput` if the number is no status of an answer (200 to 599), or the head was sent
    /// already.
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
    /// `InvalidInput` if name or value cannot be sent, if only the server sets the field, or if the head
    /// was sent already.
    pub fn field(&mut self, name: &str, value: impl AsRef<[u8]>) -> io::Result<&mut Self> {
        self.before_head()?;
        let field = checked(name, value.as_ref())?;
        self.head.fields.push(field);
        Ok(self)
    }

    /// Sets the length of the body, where it is known in advance. Without it, an answer of more than
    /// 16 KiB is sent in chunks. For an answer without a body, to HEAD or with status 304, this is
    /// the length that the body would have; nothing need be written.
    ///
    /// # Errors
    /// `InvalidInput` if the head was sent already.
    pub fn length(&mut self, bytes: u64) -> io::Result<&mut Self> {
        self.before_head()?;
        self.head.length = Some(bytes);
        Ok(self)
    }

    /// Adds a trailer, a field that follows the body. A client of HTTP/1 sees it only if the answer
    /// is in chunks.
    ///
    /// # Errors
    /// `InvalidInput` if name or value cannot be sent.
    pub fn trailer(&mut self, name: &str, value: impl AsRef<[u8]>) -> io::Result<&mut Self> {
        self.trailers.push(checked(name, value.as_ref())?);
        Ok(self)
    }

    /// Sends the whole answer in one call: status, media type and body. A status or a `Content-Type`
    /// that was set before is replaced.
    ///
    /// # Errors
    /// As [`status`](InsideResponse::status) and writing.
    pub fn send(
        &mut self,
        status: u16,
        media_type: &str,
        body: impl AsRef<[u8]>,
    ) -> io::Result<()> {
        self.status(status)?;
        self.head.fields.retain(|(name, _)| !name.eq_ignore_ascii_case(CONTENT_TYPE));
        self.whole(media_type, body.as_ref())
    }

    /// Sends a page of HTML, with the status that was [set](InsideResponse::status) before, or 200. A
    /// `Content-Type` that was set before stays.
    ///
    /// # Errors
    /// As [`send`](InsideResponse::send).
    pub fn html(&mut self, body: impl AsRef<[u8]>) -> io::Result<()> {
        self.whole("text/html; charset=utf-8", body.as_ref())
    }

    /// Sends plain text, with the status that was [set](InsideResponse::status) before, or 200. A
    /// `Content-Type` that was set before stays.
    ///
    /// # Errors
    /// As [`send`](InsideResponse::send).
    pub fn text(&mut self, body: impl AsRef<[u8]>) -> io::Result<()> {
        self.whole("text/plain; charset=utf-8", body.as_ref())
    }

    /// Sends an answer that is no longer than this body, of this media type if none was set.
    fn whole(&mut self, media_type: &str, body: &[u8]) -> io::Result<()> {
        self.before_head()?;
        if !self.head.fields.iter().any(|(name, _)| name.eq_ignore_ascii_case(CONTENT_TYPE)) {
            self.field(CONTENT_TYPE, media_type)?;
        }
        self.head.length.get_or_insert(self.written + body.len() as u64);
        self.write_all(body)
    }

    /// Changes the protocol to this one; `accept` answers the key of a WebSocket.
    pub(super) fn begin_switch(&mut self, protocol: &str, accept: Option<&str>) -> io::Result<()> {
        self.before_head()?;
        let is_set = self.head.fields.iter().any(|(name, _)| name.eq_ignore_ascii_case(ACCEPT));
        self.head.fields.push(("Upgrade".into(), protocol.as_bytes().into()));
        if let Some(accept) = accept.filter(|_| !is_set) {
            self.head.fields.push((ACCEPT.into(), accept.as_bytes().into()));
        }
        (self.head.status, self.head.length) = (101, None);
        self.buffer.clear();
        self.pipe.switch(self.head.clone())?;
        self.is_begun = true;
        Ok(())
    }

    // Functions for tasks, which do not block.

    /// Writes to the body for a task: takes these bytes, or wakes the task when the client has taken
    /// some of those before.
    ///
    /// # Errors
    /// As writing.
    pub fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.buffer.len() > BUFFER_BYTES {
            ready!(self.poll_flush(cx))?;
        }
        // so that the buffer stays bounded
        let count = bytes.len().min(BUFFER_BYTES);
        self.take(&bytes[..count])?;
        Poll::Ready(Ok(count))
    }

    /// Sends what was written, for a task.
    ///
    /// # Errors
    /// As writing.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.send_head()?;
        while !self.buffer.is_empty() {
            let count = ready!(self.pipe.poll_write_body(cx, &self.buffer))?;
            self.buffer.drain(..count);
        }
        Poll::Ready(Ok(()))
    }

    /// Becomes ready, with the reason, when the client has left, or the time for the answer is over.
    pub fn poll_left(&self, cx: &mut Context<'_>) -> Poll<io::Error> {
        self.pipe.poll_left(cx)
    }

    /// Completes the answer of a [detached handler](super::DetachedCode). This waits for bytes that
    /// were written and not yet sent, if the client must take others first; a task
    /// [flushes](InsideResponse::poll_flush) before.
    ///
    /// # Errors
    /// As writing; or the body is shorter than its announced length.
    pub fn complete(mut self) -> io::Result<()> {
        let finished = self.finish();
        if let Err(error) = &finished {
            self.say_failed(error);
            self.pipe.end(HandlerEnd::Failed);
        }
        finished
    }

    /// Gives up the answer for this reason, which goes to standard error. What was already sent is
    /// cut off.
    pub fn fail(self, why: impl Display) {
        self.say_failed(&why);
        self.pipe.end(HandlerEnd::Failed);
    }

    /// Logs a failure, unless the client has left: then that is the cause.
    fn say_failed(&self, why: &dyn Display) {
        if let Some(detached) = self.detached.as_ref().filter(|_| !self.pipe.is_left()) {
            detached.say_failed(why);
        }
    }

    /// Whether the head was sent, so that status and fields can no longer change.
    pub fn is_begun(&self) -> bool {
        self.is_begun
    }

    fn before_head(&self) -> io::Result<()> {
        if self.is_begun { Err(wrong("the head of the answer was sent already")) } else { Ok(()) }
    }

    /// Puts bytes of the body into the buffer.
    fn take(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Some(length) = self.head.length
            && length.saturating_sub(self.written) < bytes.len() as u64
        {
            return Err(wrong(format_args!("the answer was to have {length} bytes and has more")));
        }
        self.written += bytes.len() as u64;
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    fn send_head(&mut self) -> io::Result<()> {
        if !self.is_begun {
            self.pipe.send_head(self.head.clone())?;
            self.is_begun = true;
        }
        Ok(())
    }

    /// Sends the buffer.
    fn pass_on(&mut self) -> io::Result<()> {
        self.send_head()?;
        let buffer = std::mem::take(&mut self.buffer);
        self.pipe.write_body(&buffer)
    }

    /// Ends the answer after the handler has returned this, or panicked.
    pub(super) fn end(mut self, returned: Option<HandlerResult>) -> Option<HandlerResult> {
        let returned = match returned {
            Some(Ok(())) => Some(self.finish().map_err(Into::into)),
            other => other,
        };
        match &returned {
            Some(Ok(())) => {}
            Some(Err(error)) if is_body_too_large(&**error) => self.pipe.end(HandlerEnd::TooLarge),
            Some(Err(_)) => self.pipe.end(HandlerEnd::Failed),
            None => self.pipe.end(HandlerEnd::Panicked),
        }
        returned
    }

    /// Whether no body is sent, even if some was written.
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
            // clients of HTTP/1 see trailers only behind chunks
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

/// A response that is dropped before its answer is complete has failed.
impl Drop for InsideResponse {
    fn drop(&mut self) {
        if !self.pipe.has_ended() {
            let is_panic = std::thread::panicking();
            match &self.detached {
                Some(detached) if is_panic => detached.say_panicked(),
                _ => self.say_failed(&"its response was dropped"),
            }
            self.pipe.end(if is_panic { HandlerEnd::Panicked } else { HandlerEnd::Failed });
        }
    }
}

/// Writes to the body.
impl Write for InsideResponse {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.take(bytes)?;
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

pub(super) fn wrong(why: impl Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why.to_string())
}

/// Checks that a field can be sent, and that handlers may set it.
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
mod tests;
