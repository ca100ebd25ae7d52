//! What differs where the application speaks FastCGI: both bodies are in records, and an answer is over
//! when the application says so.

use super::{Coming, Exchange, Given, Lateness, Log, RECEIVE_BYTES, Seen};
use crate::fastcgi::{Error, Piece, Read, Reader};
use crate::retry::Failure;
use crate::settings;
use forebay_conn::handler::relay::Next;
use forebay_http::body::Encoder;
use forebay_http::framing::Framing;
use forebay_http::head::Lines;
use forebay_http::response::{Asked, Limits, Parsed, Response};
use forebay_sys::clock;

/// How the body of a request goes to an application.
pub(super) enum Upload {
    /// As HTTP frames it.
    Http(Encoder),
    /// In records, up to an empty one.
    Stdin,
}

impl Upload {
    /// `None` if nothing is to come.
    pub(super) fn new(framing: Framing, to_script: bool) -> Option<Upload> {
        match framing {
            Framing::None | Framing::Sized(0) => None,
            _ if to_script => Some(Upload::Stdin),
            Framing::Sized(length) => Some(Upload::Http(Encoder::sized(length))),
            Framing::Chunked => Some(Upload::Http(Encoder::chunked())),
        }
    }
}

/// The answer of a script, as far as it was read.
pub(super) struct Script {
    reader: Reader,
    /// Some of it has come.
    has_begun: bool,
    /// All of it has.
    is_over: bool,
    log: Option<Log>,
}

impl Script {
    pub(super) fn new(asked: Asked, limits: Limits, log: Option<Log>) -> Script {
        Script { reader: Reader::new(asked, limits), has_begun: false, is_over: false, log }
    }

    /// It is asked for once more.
    pub(super) fn again(&mut self, asked: Asked, limits: Limits) {
        self.say();
        (self.reader, self.has_begun) = (Reader::new(asked, limits), false);
    }

    /// The head of the answer, as HTTP has it.
    pub(super) fn head(&self) -> &[u8] {
        self.reader.head()
    }

    fn read<'b>(&mut self, bytes: &'b [u8]) -> Result<Read<'b>, Error> {
        self.has_begun |= !bytes.is_empty();
        let read = self.reader.read(bytes)?;
        self.is_over |= matches!(read.piece, Piece::End { .. });
        Ok(read)
    }

    /// Passes on what it has said for the log.
    fn say(&self) {
        let said = self.reader.stderr();
        if let Some(log) = self.log.as_ref().filter(|_| !said.is_empty()) {
            log(said);
        }
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        self.say();
    }
}

impl<T> Exchange<T> {
    /// Whether a script has sent something, if only for the log.
    pub(super) fn has_script_begun(&self) -> bool {
        self.script.as_ref().is_some_and(|script| script.has_begun)
    }

    /// Whether the client is to be asked for the body now: a script cannot say that it wants it.
    pub(super) fn asks_for_body(&mut self) -> bool {
        let asks = std::mem::take(&mut self.expects_continue);
        if asks {
            self.interim.extend_from_slice(b"HTTP/1.1 100 Continue\r\n");
        }
        asks
    }

    /// Reads the head from what was received. `None` if it is not whole.
    pub(super) fn look_at_script(&mut self) -> Option<Option<Next>> {
        let script = self.script.as_mut()?;
        let read = script.read(&self.received[self.at..]);
        match read {
            Ok(Read { piece: Piece::More, .. }) => {
                (self.received, self.at) = (Vec::new(), 0);
                return None;
            }
            Ok(Read { used, .. }) => self.at += used,
            Err(error) => {
                let failure = match error {
                    Error::Overloaded => Failure::Overloaded,
                    _ => Failure::Malformed,
                };
                self.fail(failure, Lateness::InTime);
                return Some(None);
            }
        }
        let keep_alive = match self.application.settings() {
            settings::Application::FastCgi(fastcgi) => fastcgi.request.keep,
            settings::Application::Proxy(_) => false,
        };
        let mut lines = Lines::new();
        let bytes = script.head();
        // its reader has gone by the limits
        let limits = Limits { head_bytes: bytes.len(), ..self.application.settings().limits() };
        match Response::parse(bytes, &mut lines, self.asked, &limits) {
            Ok(Parsed::Complete(head)) => {
                let (status, content_length) = (head.status, head.content_length);
                self.head = Some(Seen { start: 0, end: 0, status, content_length, keep_alive });
                self.coming = Coming::OfScript;
                self.is_well();
                self.times.answered_ns = clock::monotonic_ns();
            }
            _ => self.fail(Failure::Malformed, Lateness::InTime),
        }
        Some(None)
    }

    /// Appends the next bytes of the body, at most `most`.
    pub(super) fn read_script(&mut self, out: &mut Vec<u8>, most: usize) -> Given {
        loop {
            match self.read_received(out, most) {
                Ok(0) => {}
                Ok(count) => return Given::Bytes(count),
                Err(_) => return self.broken(),
            }
            if self.coming.is_over() {
                return Given::End;
            }
            match self.receive(RECEIVE_BYTES, None) {
                Given::Bytes(_) => {}
                Given::Nothing => {
                    // what waits for long takes no memory
                    self.received = Vec::new();
                    return Given::Nothing;
                }
                Given::End | Given::Broken => return self.broken(),
            }
        }
    }

    /// Appends the next bytes of the body among those that were received; says how many. Where there are
    /// none, all that was received is used, or the answer is over.
    fn read_received(&mut self, out: &mut Vec<u8>, most: usize) -> Result<usize, Error> {
        let Some(script) = &mut self.script else { return Ok(0) };
        while self.at < self.received.len() && !script.is_over {
            let bytes = &self.received[self.at..];
            // what is no body takes no room
            let Read { used, piece } = script.read(&bytes[..bytes.len().min(most)])?;
            self.at += used;
            if let Piece::Body(data @ [_, ..]) = piece {
                out.extend_from_slice(data);
                return Ok(data.len());
            }
        }
        if script.is_over {
            self.coming = Coming::Nothing;
        } else {
            self.received.clear();
            self.at = 0;
        }
        Ok(0)
    }

    /// The client has got its answer; the application may yet say that it is over, or has said so.
    pub(super) fn end_script(&mut self) {
        if !matches!(self.coming, Coming::OfScript) {
            return;
        }
        let mut dropped = Vec::new();
        // who goes on for long is not waited for
        for _ in 0..2 {
            while matches!(self.read_received(&mut dropped, RECEIVE_BYTES), Ok(1..)) {
                dropped.clear();
            }
            self.can_read = true;
            if self.coming.is_over()
                || !matches!(self.receive(RECEIVE_BYTES, None), Given::Bytes(_))
            {
                return;
            }
        }
    }
}

#[cfg(test)]
#[path = "script_tests.rs"]
mod tests;
