//! Input: answers, their judgement, and the ends of connections.

use super::LoadWorker;
use super::client::ClientPhase;
use super::group::LoopKind;
use super::request::Pending;
use super::spoken::speaks_other;
use crate::failure::RequestFailure;
use crate::response::{FinishedResponse, ResponseProgress};
use forebay_sys::epoll::ReadyDescriptor;
use forebay_sys::socket::{self, Received};
use forebay_tls::TlsRefusal;
use std::mem;
use std::os::fd::AsFd;

impl LoadWorker<'_> {
    /// Handles an event on a connection.
    #[inline]
    pub(super) fn on_event(&mut self, event: ReadyDescriptor) {
        let slot = event.token as u32 as usize;
        let generation = (event.token >> 32) as u32;
        let client = &self.clients[slot];
        if client.generation != generation || client.socket.is_none() {
            return;
        }
        if client.phase == ClientPhase::Connecting {
            return self.handshake(slot, event);
        }
        if event.writable && !client.unsent.is_empty() {
            self.flush(slot);
        }
        if event.readable || event.broken {
            self.receive(slot, event.ended || event.broken);
        }
    }

    /// Reads the available input. With `to_end`, the server has ended the stream, so the end must be found.
    #[inline]
    pub(super) fn receive(&mut self, slot: usize, to_end: bool) {
        let client = &self.clients[slot];
        let is_connecting = client.phase == ClientPhase::Connecting;
        if self.groups[client.group].plan.receive.is_some() && !is_connecting {
            return self.line_has_input(slot, to_end);
        }
        let mut any = false;
        loop {
            let Some(socket) = &self.clients[slot].socket else { return };
            match socket::receive(socket.as_fd(), &mut self.input) {
                Received::Bytes(count) => {
                    any = true;
                    self.now_ns = self.clock();
                    if !self.take_input(slot, count) {
                        return;
                    }
                    // A short read has emptied the socket, and more input raises a new event. What was sent
                    // at the end of a handshake may have found the connection broken.
                    if count < self.input.len() && !to_end && !is_connecting {
                        break;
                    }
                }
                Received::Blocked => break,
                Received::Ended => return self.ended(slot),
                Received::Broken => return self.broken(slot),
            }
        }
        // an event may come for input that an earlier read has taken; then nothing is new
        if any {
            let generation = self.clients[slot].generation;
            self.go_on(slot);
            if self.clients[slot].generation == generation {
                self.send_rest(slot);
            }
        }
    }

    /// Processes `count` bytes of the input. Returns false when the connection is closed.
    #[inline]
    pub(super) fn take_input(&mut self, slot: usize, count: usize) -> bool {
        let input = mem::take(&mut self.input);
        let is_open = self.take_wire(slot, &input[..count]);
        self.input = input;
        is_open
    }

    /// Processes the bytes of a socket. Returns false when the connection is closed.
    #[inline]
    pub(super) fn take_wire(&mut self, slot: usize, wire: &[u8]) -> bool {
        let client = &mut self.clients[slot];
        self.groups[client.group].tally.counts.received_bytes += wire.len() as u64;
        client.answer_bytes += wire.len() as u64;
        if client.session.is_none() {
            return self.take_in(slot, wire);
        }
        let mut plain = mem::take(&mut self.plain);
        let is_open = self.unseal(slot, wire, &mut plain);
        self.plain = plain;
        is_open
    }

    /// Processes the bytes of a socket through TLS.
    fn unseal(&mut self, slot: usize, mut wire: &[u8], plain: &mut [u8]) -> bool {
        loop {
            let Some(session) = &mut self.clients[slot].session else { return false };
            let was_handshaking = session.is_handshaking();
            let received = session.receive(&mut wire, plain);
            let (is_up, has_ended) = (!session.is_handshaking(), session.has_ended());
            let count = match received {
                Ok(count) => count,
                Err(refusal) => {
                    self.refused(slot, &refusal);
                    return false;
                }
            };
            if was_handshaking && is_up && !self.secured(slot) {
                return false;
            }
            if count > 0 {
                if !self.take_in(slot, &plain[..count]) {
                    return false;
                }
            } else if has_ended {
                self.ended(slot);
                return false;
            } else {
                return true;
            }
        }
    }

    /// Handles an error of TLS, after which the connection cannot continue.
    fn refused(&mut self, slot: usize, refusal: &TlsRefusal) {
        let why = refusal.to_string();
        if self.clients[slot].phase == ClientPhase::Connecting {
            return self.handshake_failed(slot, &why);
        }
        let failure =
            if refusal.is_by_server() { RequestFailure::Reset } else { RequestFailure::Malformed };
        self.fail_for(slot, failure, &why);
    }

    /// Processes bytes of the HTTP protocol. Returns false when the connection is closed.
    #[inline]
    fn take_in(&mut self, slot: usize, input: &[u8]) -> bool {
        let client = &self.clients[slot];
        if client.http2.is_some() {
            return self.take_frames(slot, input);
        }
        let bodyless = self.groups[client.group].is_bodyless();
        let mut used = 0;
        while used < input.len() {
            let client = &mut self.clients[slot];
            if client.pending.is_empty() {
                // no request is awaiting an answer
                self.end_connection(slot, true);
                return false;
            }
            match client.reader.read(&input[used..], bodyless) {
                ResponseProgress::More => return true,
                ResponseProgress::Done(more) => used += more,
                ResponseProgress::Malformed => {
                    if let Some(why) = speaks_other(&input[used..]) {
                        let group = &mut self.groups[client.group];
                        group.tally.explain(RequestFailure::Malformed, why, 1);
                    }
                    self.fail_all(slot, RequestFailure::Malformed, RequestFailure::Closed);
                    return false;
                }
            }
            if !self.complete(slot) {
                return false;
            }
        }
        true
    }

    /// Judges and counts a complete answer. Returns false when it was the connection's last.
    #[inline]
    pub(super) fn complete(&mut self, slot: usize) -> bool {
        let client = &mut self.clients[slot];
        let answer = client.reader.take();
        let Some(request) = client.pending.pop_front() else { return true };
        self.answered(slot, &request, &answer)
    }

    /// Handles the answer to a request. Returns false when it was the connection's last.
    #[inline]
    pub(super) fn answered(
        &mut self,
        slot: usize,
        request: &Pending,
        answer: &FinishedResponse,
    ) -> bool {
        let now_ns = self.now_ns;
        let client = &mut self.clients[slot];
        let group = &mut self.groups[client.group];
        let failure = group.judge(answer, request.asked);
        let took_ns = now_ns - request.started_ns;
        let tally = &mut group.tally;
        tally.counts.answered += 1;
        tally.status(answer.status, 1);
        match failure {
            Some(failure) => {
                tally.fail(failure);
                client.has_failed = true;
            }
            None => {
                tally.counts.good += 1;
                tally.actual.record(took_ns);
                let since_intended_ns = now_ns - request.intended_ns;
                if group.kind != LoopKind::Closed {
                    tally.intended.record(since_intended_ns);
                }
                let within = group.plan.within;
                if within.is_none_or(|within| u128::from(since_intended_ns) <= within.as_nanos()) {
                    tally.counts.in_time += 1;
                    tally.counts.good_bytes += answer.body_bytes;
                }
            }
        }
        if now_ns >= self.warmup_ns && now_ns < self.end_ns {
            client.totals.requests += 1;
            client.totals.failures += u64::from(failure.is_some());
            client.totals.busy_ns += now_ns - client.busy_from_ns;
            client.totals.received_bytes += client.answer_bytes;
        }
        client.busy_from_ns = now_ns;
        client.answer_bytes = 0;
        if !answer.keep {
            self.fail_all(slot, RequestFailure::Closed, RequestFailure::Closed);
            return false;
        }
        self.request_is_over(slot)
    }

    /// Handles the end of a request. Returns false when it was the connection's last.
    #[inline]
    pub(super) fn request_is_over(&mut self, slot: usize) -> bool {
        let client = &mut self.clients[slot];
        let group = &mut self.groups[client.group];
        let next = client.pending.front();
        client.deadline_ns = next.map_or(u64::MAX, |next| next.started_ns + group.timeout_ns);
        if client.left > 0 || !client.pending.is_empty() {
            return true;
        }
        let hold_ns = group.plan.hold.as_nanos() as u64;
        if hold_ns == 0 {
            self.end_connection(slot, false);
            return false;
        }
        self.wake_at(slot, ClientPhase::Holding, self.now_ns + hold_ns);
        true
    }

    /// Handles the end of the connection by the server.
    pub(super) fn ended(&mut self, slot: usize) {
        let client = &mut self.clients[slot];
        if client.phase == ClientPhase::Connecting {
            return self.handshake_failed(slot, "the server has closed the connection");
        }
        if client.http2.is_some() {
            return self.cut_streams(slot);
        }
        // in a TLS session that was cut off, some of the answer may be missing
        let is_whole = client.session.as_ref().is_none_or(|session| session.has_ended());
        if is_whole && client.reader.end() {
            self.complete(slot);
            return;
        }
        let first =
            if client.reader.is_fresh() { RequestFailure::Closed } else { RequestFailure::Short };
        self.fail_all(slot, first, RequestFailure::Closed);
    }

    /// Handles a broken connection.
    pub(super) fn broken(&mut self, slot: usize) {
        if self.clients[slot].phase == ClientPhase::Connecting {
            return self.handshake_failed(slot, "the server has reset the connection");
        }
        if self.was_broken_off(slot) {
            return;
        }
        self.fail_all(slot, RequestFailure::Reset, RequestFailure::Reset);
    }

    /// Ends the connection; the request whose answer was awaited fails with `first`, later ones with
    /// `others`. Without any request, this is an ordinary end.
    pub(super) fn fail_all(&mut self, slot: usize, first: RequestFailure, others: RequestFailure) {
        let mut failure = first;
        let failed = !self.clients[slot].pending.is_empty();
        while let Some(request) = self.clients[slot].pending.pop_front() {
            self.lose(slot, &request, failure);
            failure = others;
        }
        self.end_connection(slot, failed);
    }

    /// Ends the connection and fails all its requests for the same reason.
    pub(super) fn fail_for(&mut self, slot: usize, failure: RequestFailure, why: &str) {
        let client = &self.clients[slot];
        let count = client.pending.len() as u64;
        if count > 0 {
            self.groups[client.group].tally.explain(failure, why, count);
        }
        self.fail_all(slot, failure, failure);
    }

    /// Fails a request that will have no answer.
    pub(super) fn lose(&mut self, slot: usize, request: &Pending, failure: RequestFailure) {
        let client = &mut self.clients[slot];
        let group = &mut self.groups[client.group];
        client.has_failed = true;
        client.totals.failures += 1;
        group.tally.fail(failure);
        if matches!(failure, RequestFailure::Timeout | RequestFailure::Unfinished) {
            // the request would have taken longer than this
            group.tally.actual.record(self.now_ns - request.started_ns);
            if group.kind != LoopKind::Closed {
                group.tally.intended.record(self.now_ns - request.intended_ns);
            }
        }
    }
}
