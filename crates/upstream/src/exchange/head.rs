//! The head of the answer, and interim answers before it.

use super::answer::{AnswerHead, Coming, RECEIVE_BYTES};
use super::link_state::Noted;
use super::outcome::Failed;
use super::spare;
use super::state::Exchange;
use crate::group::retry::AttemptFailure;
use crate::link::LinkEvent;
use crate::messages::response::HeadRead;
use crate::upstreams::stream::ConnectError;
use forebay_conn::handler::relay::RelayNext;
use forebay_http::body::{BodyDecoder, ChunkTolerance, Trailers};
use forebay_http::framing::Framing;
use forebay_http::head::{self, Lines};
use forebay_http::response::BodyFraming;
use forebay_sys::socket::Received;
use forebay_tls::TlsFault;

impl<T> Exchange<T> {
    /// Looks for the head of the answer.
    pub(super) fn hear(&mut self) -> Result<Option<RelayNext>, AttemptFailure> {
        loop {
            if let Some(next) = self.look_at_head()? {
                return Ok(next);
            }
            let Some(attempt) = self.phase.attempt_mut().filter(|attempt| attempt.can_read) else {
                return Ok(Some(RelayNext::Wait));
            };
            let Some(connection) = &mut attempt.connection else {
                return Ok(Some(RelayNext::Wait));
            };
            // an acknowledgement that came alone is removed: behind it there would be no room for the
            // rest, and a buffer of twice the size would be mapped anew each time
            self.answer.received.drain(..std::mem::take(&mut self.answer.at));
            spare::furnish(&mut self.answer.received);
            match connection.receive_more(&mut self.answer.received, RECEIVE_BYTES, self.now_ms) {
                // an upstream that takes nothing of the request gets no more time by sending
                Received::Bytes(_) if !self.upload.is_sent() => {}
                Received::Bytes(_) => self.moved_ms = self.now_ms,
                Received::Blocked => {
                    attempt.can_read = false;
                    // an idle exchange takes no memory
                    if self.answer.received.is_empty() {
                        spare::leave(&mut self.answer.received);
                    }
                }
                Received::Ended | Received::Broken => {
                    if connection.is_refused() {
                        return Err(AttemptFailure::Returned);
                    }
                    let fault = connection.fault();
                    if let (Some(fault @ TlsFault::Unwelcome), 0) =
                        (fault, self.answer.unused().len())
                        && !attempt.is_reused
                    {
                        // with TLS 1.3 the upstream reports a failed handshake when the request is
                        // already on its way
                        return Err(attempt.not_connected(&ConnectError::Tls(fault)));
                    }
                    return Err(match self.answer.unused().len() {
                        0 if self.upload.sent == 0 => AttemptFailure::Unwritten,
                        0 if !self.has_script_begun() => AttemptFailure::Closed,
                        _ => AttemptFailure::Malformed,
                    });
                }
            }
        }
    }

    /// Whether the answer decides if another request may pass.
    fn decides(&self) -> bool {
        self.application.settings().proxy().is_some_and(|proxy| proxy.authority.is_some())
    }

    /// Reads a head from what was received. Returns `None` if it is not complete.
    fn look_at_head(&mut self) -> Result<Option<Option<RelayNext>>, AttemptFailure> {
        if self.answer.script.is_some() {
            return self.look_at_script();
        }
        if self.answer.at == self.answer.received.len() {
            return Ok(None);
        }
        let mut lines = Lines::new();
        match self.answer.reader.read(&self.answer.received[self.answer.at..], &mut lines) {
            Ok(HeadRead::More) => Ok(None),
            // between stages this acknowledges the request, and is not for the client
            Ok(HeadRead::Interim(head)) if head.status == 102 && self.linked.is_some() => {
                self.answer.at += head.len;
                self.tell_link(&LinkEvent::Acknowledged);
                Ok(Some(None))
            }
            // interim answers to a subrequest are no answers to the client's request
            Ok(HeadRead::Interim(head)) if self.decides() => {
                self.answer.at += head.len;
                Ok(Some(None))
            }
            Ok(HeadRead::Interim(head)) => {
                self.answer.interim.clear();
                let (status, len) = (head.status, head.len);
                if status == 100 {
                    self.upload.pace.asked(self.now_ms);
                }
                forebay_http::status::push_line(status, &mut self.answer.interim);
                crate::messages::response::fields(&head, None, |name, value| {
                    for part in [name.as_bytes(), b": ", &value, b"\r\n"] {
                        self.answer.interim.extend_from_slice(part);
                    }
                });
                self.answer.at += len;
                Ok(Some(Some(RelayNext::Interim(status))))
            }
            Ok(HeadRead::Final(head)) => {
                let noted = self.linked.as_ref().map(|_| Noted::of(&head));
                if self.linked.as_ref().is_some_and(|linked| linked.is_continuing()) {
                    if let Some(noted) = noted {
                        self.link_heard(noted);
                    }
                    return Ok(Some(None));
                }
                let is_web_socket = head.body == BodyFraming::Upgraded
                    && !self.asked.is_http2
                    && head.values("Upgrade").any(|to| to.eq_ignore_ascii_case(b"websocket"));
                self.answer.coming = match head.body {
                    BodyFraming::Upgraded if is_web_socket => Coming::WebSocket(Box::default()),
                    BodyFraming::None => Coming::Nothing,
                    BodyFraming::Sized(length) => Coming::Sized(length),
                    BodyFraming::UntilClose | BodyFraming::Upgraded => Coming::All,
                    BodyFraming::Chunked => {
                        let limits = head::HeadLimits::default();
                        // without a known length, no body is too large
                        let decoder =
                            BodyDecoder::new(Framing::Chunked, u64::MAX, Trailers::Keep, &limits);
                        let bare_lf = self.application.settings().limits().bare_lf;
                        let tolerance = ChunkTolerance { blanks: true, bare_lf };
                        decoder.map_or(Coming::All, |decoder| {
                            Coming::Chunked(Box::new(decoder.tolerating(tolerance)))
                        })
                    }
                };
                // an event stream ends when its client leaves: it keeps a place as a tunnel does
                let is_endless = head.is_event_stream;
                let is_unfit = self.binding.look(&head);
                let (start, end) = (self.answer.at, self.answer.at + head.len);
                self.answer.fields = Some(head.keep(&self.answer.received[start..end]));
                self.answer.head = Some(AnswerHead {
                    start,
                    end,
                    status: head.status,
                    content_length: head.content_length,
                    keep_alive: head.keep_alive || self.asked.is_http2,
                });
                if head.body == BodyFraming::Upgraded {
                    self.upload.encoding = None;
                }
                self.answer.at = end;
                self.is_well();
                if let Some(noted) = noted {
                    self.link_heard(noted);
                }
                if self.is_tunnel() {
                    self.phase.becomes_tunnel(is_web_socket);
                    self.link_changed();
                } else if is_endless {
                    self.phase.becomes_tunnel(false);
                }
                if is_unfit {
                    self.give_up(Failed::SignIn);
                }
                Ok(Some(None))
            }
            Err(_) => Err(AttemptFailure::Malformed),
        }
    }
}
