//! The sending of requests to upstreams: the head, and the body as it comes or when it is collected.

use super::outcome::Failed;
use super::phase::{Attempt, ExchangePhase};
use super::state::Exchange;
use super::upload::{TunnelEnd, UploadEncoding};
use crate::group::retry::AttemptFailure;
use crate::link::LinkEvent;
use crate::messages::destination::DestinationTold;
use crate::messages::fastcgi;
use crate::messages::names;
use forebay_conn::handler::relay::RelayNext;
use forebay_sys::clock;
use forebay_sys::socket::Sent;

impl<T> Exchange<T> {
    /// Passes the next bytes of the request's body on.
    pub(super) fn pass_on(&mut self, bytes: &[u8]) {
        if self.upload.encoding.is_some() {
            match self.upload.body_left.checked_sub(bytes.len() as u64) {
                Some(left) => self.upload.body_left = left,
                None => return self.refuse_body(),
            }
        }
        if let ExchangePhase::Spooling(_) = self.phase {
            return self.collect(bytes);
        }
        self.upload.passed_bytes += bytes.len() as u64;
        self.upload.pace.came(bytes.len() as u64);
        let bytes = &bytes[self.send_at_once(bytes)..];
        match &mut self.upload.encoding {
            // the body has no more bytes than it announced: the client's framing was checked when it
            // was received
            Some(UploadEncoding::Http(encoder)) => _ = encoder.write(bytes, &mut self.upload.to),
            Some(UploadEncoding::Stdin) => fastcgi::stdin(bytes, &mut self.upload.to),
            Some(UploadEncoding::Plain) | None => self.upload.to.extend_from_slice(bytes),
        }
    }

    /// Sends bytes that go out as they are and that no other attempt could use, if nothing waits
    /// before them. Returns how many were sent.
    fn send_at_once(&mut self, bytes: &[u8]) -> usize {
        let is_plain = match &self.upload.encoding {
            Some(UploadEncoding::Http(encoder)) => encoder.is_plain(),
            Some(UploadEncoding::Stdin | UploadEncoding::Plain) => false,
            None => true,
        };
        let is_next = self.upload.is_gone && self.upload.to.is_empty();
        let attempt = self.phase.attempt_mut().filter(|attempt| {
            let may_write = attempt.can_write && !attempt.is_cut;
            is_plain && is_next && may_write
        });
        let Some(attempt) = attempt else { return 0 };
        let Some(connection) = &mut attempt.connection else { return 0 };
        let mut sent = 0;
        while sent < bytes.len() {
            match connection.send(&bytes[sent..], false) {
                Sent::Bytes(count) => (sent, self.upload.has_moved) = (sent + count, true),
                Sent::Blocked => {
                    attempt.can_write = false;
                    self.upload.pace.blocked();
                    break;
                }
                // the upstream may have answered before it closed
                Sent::Broken => {
                    (attempt.is_cut, attempt.can_read) = (true, true);
                    break;
                }
            }
        }
        if connection.has_unsent() {
            attempt.can_write = false;
        }
        if let Some(UploadEncoding::Http(encoder)) = &mut self.upload.encoding {
            encoder.count(sent as u64);
        }
        sent
    }

    /// Refuses a body that is larger than allowed.
    fn refuse_body(&mut self) {
        self.upload.is_refused = true;
        self.phase.leave_attempt();
        if !self.phase.is_answered() {
            let has_no_spool = self.upload.has_no_spool;
            self.give_up(if has_no_spool { Failed::NoSpool } else { Failed::TooLarge });
        }
    }

    /// Sends as much as the upstream takes.
    pub(super) fn send(&mut self) {
        self.send_ready();
        while self.refill() {
            self.send_ready();
        }
    }

    fn send_ready(&mut self) {
        let (until, ends) = self.may_send();
        let Some(attempt) = self.phase.attempt_mut() else { return };
        let Some(connection) = &mut attempt.connection else { return };
        while attempt.can_write && !attempt.is_cut {
            let wants = connection.wants_to_send(ends);
            if self.upload.sent >= until && !wants {
                break;
            }
            match connection.send(&self.upload.to[self.upload.sent.min(until)..until], ends) {
                // the window is closed, or only the end was to send
                Sent::Bytes(0) => break,
                Sent::Bytes(count) => {
                    self.upload.sent += count;
                    self.moved_ms = self.now_ms;
                    self.upload.pace.taken(self.now_ms);
                }
                Sent::Blocked => {
                    attempt.can_write = false;
                    self.upload.pace.blocked();
                }
                // the upstream may have answered before it closed
                Sent::Broken => (attempt.is_cut, attempt.can_read) = (true, true),
            }
        }
        self.send_trailers();
        self.note_written();
        // what is not complete from the beginning is of no use to another attempt
        let is_useless =
            self.upload.is_gone || (self.answer.head.is_some() && self.linked.is_none());
        if self.upload.sent > self.upload.kept || (self.upload.is_sent() && is_useless) {
            self.upload.forget_sent();
        }
        if self.upload.tunnel == TunnelEnd::Ended
            && self.upload.is_sent()
            && let Some(attempt) = self.phase.attempt_mut()
            && let Some(connection) = &mut attempt.connection
        {
            match connection.end_writing() {
                true => self.upload.tunnel = TunnelEnd::Shut,
                false => attempt.can_write = false,
            }
        }
    }

    /// How much may be sent now, and whether that is the end of the request. Of a request that must
    /// not run twice, only the head is sent before the next stage has acknowledged it.
    fn may_send(&self) -> (usize, bool) {
        let withheld = self.linked.as_ref().filter(|linked| linked.flight.is_withheld());
        match withheld {
            Some(linked) => (linked.head_bytes.min(self.upload.to.len()), false),
            None => (
                self.upload.to.len(),
                self.upload.encoding.is_none()
                    && self.upload.trailers.is_none()
                    && self.upload.on_disk.as_ref().is_none_or(|body| body.is_over()),
            ),
        }
    }

    /// Sends the trailers after the body. They end the request, so they are withheld as its end is.
    fn send_trailers(&mut self) {
        let is_withheld = self.linked.as_ref().is_some_and(|linked| linked.flight.is_withheld());
        if !is_withheld
            && self.upload.is_whole()
            && let (Some(trailers), Some(Attempt { connection: Some(connection), .. })) =
                (&self.upload.trailers, self.phase.attempt_mut())
        {
            connection.end_with(trailers);
        }
    }

    /// Whether the client may send this trailer. A field that it could not send in the head, or that
    /// would be ignored there, is refused, because some applications treat both alike. A stage leaves
    /// the decision to the last one.
    pub(super) fn may_trail(&self, name: &str) -> bool {
        let proxy = self.application.settings().proxy();
        let is_changed = proxy.is_some_and(|proxy| proxy.request.changes(name));
        let is_given = self.asked.given.iter().any(|given| names::is_same(given, name));
        let is_plain = names::kind(name) == names::FieldKind::Plain;
        // where addresses are rewritten in the head, none may pass in a trailer
        let is_address = proxy
            .is_some_and(|proxy| proxy.request.destination != DestinationTold::Client)
            && ["Destination", "If"].iter().any(|known| name.eq_ignore_ascii_case(known));
        self.application.is_stage() || (is_plain && !is_changed && !is_given && !is_address)
    }

    /// Ends the body of a request over HTTP/2, with these trailers.
    pub(super) fn note_trailers<'t>(
        &mut self,
        trailers: &mut dyn Iterator<Item = (&'t str, &'t [u8])>,
    ) {
        let mut lines = Vec::new();
        for (name, value) in trailers {
            for part in [name.as_bytes(), b": ", value, b"\r\n"] {
                lines.extend_from_slice(part);
            }
        }
        self.upload.trailers = (!lines.is_empty()).then_some(lines);
    }

    /// Whether more of the request can be sent over HTTP/2 than before.
    pub(super) fn may_go_on(&self) -> bool {
        let Some(attempt) = self.phase.attempt() else { return false };
        let connection = attempt.connection.as_ref().filter(|connection| connection.is_http2());
        let Some(connection) = connection else { return false };
        let (until, ends) = self.may_send();
        let may_write = attempt.can_write && !attempt.is_cut;
        let has_more = match self.upload.sent < until {
            true => connection.has_room(),
            false => connection.wants_to_send(ends),
        };
        may_write && has_more
    }

    /// Receives some of the answer before the client takes it, while the application takes no more of
    /// the request. The client may wait for its request to be taken before it reads.
    pub(super) fn look_ahead(&mut self) {
        loop {
            let is_sent = self.upload.is_sent();
            let attempt = self.phase.attempt_mut().filter(|attempt| attempt.can_read && !is_sent);
            let Some(Attempt { connection: Some(connection), can_read, .. }) = attempt else {
                return;
            };
            if connection.has_room() {
                return;
            }
            *can_read = connection.look_ahead(self.now_ms);
            if !self.may_go_on() {
                return;
            }
            self.send();
        }
    }

    /// Looks whether the connection is established.
    pub(super) fn look_at_connection(&mut self) -> Result<Option<RelayNext>, AttemptFailure> {
        let (until, ends) = self.may_send();
        let attempt = self.phase.attempt_mut().filter(|attempt| attempt.can_write);
        let Some(attempt) = attempt else { return Ok(Some(RelayNext::Wait)) };
        let Some(connection) = &mut attempt.connection else { return Ok(Some(RelayNext::Wait)) };
        // `begin` takes no bytes before the connection is established, and never any if that fails
        match connection.begin(&self.upload.to[self.upload.sent..until], ends) {
            Ok(Sent::Bytes(count)) => {
                self.upload.sent += count;
                match connection.is_resumed() {
                    None => {}
                    Some(true) => self.tries.handshakes.resumed += 1,
                    Some(false) => self.tries.handshakes.full += 1,
                }
                attempt.is_reused |= connection.was_resting();
                self.times.connected_ns = clock::monotonic_ns();
                if let Some(slot) = attempt.slot.as_ref().filter(|_| !attempt.is_reused) {
                    slot.count_connection(self.times.connect_ns());
                }
                self.application.upstreams().is_reached();
                self.phase.connected();
                self.moved_ms = self.now_ms;
                self.upload.pace.taken(self.now_ms);
                self.note_written();
                self.pass_on_if_asked();
                Ok(None)
            }
            Ok(Sent::Blocked) => {
                attempt.can_write = false;
                Ok(Some(RelayNext::Wait))
            }
            Ok(Sent::Broken) => Err(AttemptFailure::Connect),
            Err(error) => Err(attempt.not_connected(&error)),
        }
    }

    /// Notes that the request is sent: the time for the answer begins when all of it is, and the link
    /// learns that it is on its way.
    fn note_written(&mut self) {
        if self.linked.is_none()
            && self.upload.is_whole()
            && let Some(attempt) = self.phase.attempt_mut()
        {
            attempt.whole_ms.get_or_insert(self.now_ms);
        }
        if self.upload.sent > 0 && self.linked.is_some() {
            self.tell_link(&LinkEvent::Written);
        }
    }
}
