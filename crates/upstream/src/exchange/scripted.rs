//! Exchanges with applications that speak FastCGI: both bodies are in records, and the application
//! says when an answer is over.

use super::answer::{AnswerHead, Coming, RECEIVE_BYTES};
use super::spare;
use super::state::Exchange;
use crate::group::retry::AttemptFailure;
use crate::messages::fastcgi::{FastCgiError, FastCgiPiece, RecordsRead};
use crate::settings;
use forebay_conn::handler::relay::{RelayNext, RelayRead};
use forebay_http::head::Lines;
use forebay_http::response::{ParsedResponse, Response, ResponseHeadLimits};

impl<T> Exchange<T> {
    /// Whether a script has sent anything, even if only for the log.
    pub(super) fn has_script_begun(&self) -> bool {
        self.answer.script.as_ref().is_some_and(|script| script.has_begun)
    }

    /// Whether the client must get `100 Continue` now: a script cannot say that it wants the body.
    pub(super) fn asks_for_body(&mut self) -> bool {
        let asks = std::mem::take(&mut self.upload.expects_continue);
        if asks {
            self.answer.interim.extend_from_slice(b"HTTP/1.1 100 Continue\r\n");
        }
        asks
    }

    /// Reads the head from what was received. Returns `None` if it is not complete.
    pub(super) fn look_at_script(&mut self) -> Result<Option<Option<RelayNext>>, AttemptFailure> {
        let Some(script) = self.answer.script.as_mut() else { return Ok(None) };
        let read = script.read(&self.answer.received[self.answer.at..]);
        match read {
            Ok(RecordsRead { piece: FastCgiPiece::More, .. }) => {
                spare::leave(&mut self.answer.received);
                self.answer.at = 0;
                return Ok(None);
            }
            Ok(RecordsRead { used, .. }) => self.answer.at += used,
            Err(error) => {
                return Err(match error {
                    FastCgiError::Overloaded => AttemptFailure::Overloaded,
                    _ => AttemptFailure::Malformed,
                });
            }
        }
        let keep_alive = match self.application.settings() {
            settings::ApplicationSettings::FastCgi(fastcgi) => fastcgi.request.keep,
            settings::ApplicationSettings::Proxy(_)
            | settings::ApplicationSettings::HandOver(_)
            | settings::ApplicationSettings::Inside(_)
            | settings::ApplicationSettings::Tcp(_) => false,
        };
        let mut lines = Lines::new();
        let bytes = script.head();
        // the FastCGI reader has applied the limits
        let limits =
            ResponseHeadLimits { head_bytes: bytes.len(), ..self.application.settings().limits() };
        match Response::parse(bytes, &mut lines, self.asked.context, &limits) {
            Ok(ParsedResponse::Complete(head)) => {
                let (status, content_length) = (head.status, head.content_length);
                self.answer.fields = Some(head.keep(bytes));
                self.answer.head =
                    Some(AnswerHead { start: 0, end: 0, status, content_length, keep_alive });
                self.answer.coming = Coming::OfScript;
                self.is_well();
                Ok(Some(None))
            }
            _ => Err(AttemptFailure::Malformed),
        }
    }

    /// Appends the next bytes of the body, at most `most`.
    pub(super) fn read_script(&mut self, out: &mut Vec<u8>, most: usize) -> RelayRead {
        loop {
            match self.read_received(out, most) {
                Ok(0) => {}
                Ok(count) => return RelayRead::Bytes(count),
                Err(_) => return self.broken(),
            }
            if self.answer.coming.is_over() {
                return RelayRead::End;
            }
            match self.receive(RECEIVE_BYTES, None) {
                RelayRead::Bytes(_) => {}
                RelayRead::Nothing => {
                    // an idle exchange takes no memory
                    spare::leave(&mut self.answer.received);
                    return RelayRead::Nothing;
                }
                RelayRead::End | RelayRead::Broken => return self.broken(),
            }
        }
    }

    /// Appends the next bytes of the body from what was received, and returns how many. If it returns
    /// 0, all that was received is used, or the answer is over.
    fn read_received(&mut self, out: &mut Vec<u8>, most: usize) -> Result<usize, FastCgiError> {
        let Some(script) = &mut self.answer.script else { return Ok(0) };
        while self.answer.at < self.answer.received.len() && !script.is_over {
            let bytes = &self.answer.received[self.answer.at..];
            // other records than the body's need no room in `out`
            let RecordsRead { used, piece } = script.read(&bytes[..bytes.len().min(most)])?;
            self.answer.at += used;
            if let FastCgiPiece::Body(data @ [_, ..]) = piece {
                out.extend_from_slice(data);
                return Ok(data.len());
            }
        }
        if script.is_over {
            self.answer.coming = Coming::Nothing;
        } else {
            self.answer.received.clear();
            self.answer.at = 0;
        }
        Ok(0)
    }

    /// Reads the end of the answer, which may come after the client has got all of it.
    pub(super) fn end_script(&mut self) {
        if !matches!(self.answer.coming, Coming::OfScript) {
            return;
        }
        let mut dropped = Vec::new();
        // an application that goes on for long is not waited for
        for _ in 0..2 {
            while matches!(self.read_received(&mut dropped, RECEIVE_BYTES), Ok(1..)) {
                dropped.clear();
            }
            if let Some(attempt) = self.phase.attempt_mut() {
                attempt.can_read = true;
            }
            if self.answer.coming.is_over()
                || !matches!(self.receive(RECEIVE_BYTES, None), RelayRead::Bytes(_))
            {
                return;
            }
        }
    }
}

#[cfg(test)]
#[path = "script_tests.rs"]
mod tests;
