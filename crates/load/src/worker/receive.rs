//! What came in: answers, their judgement, and the ends of connections.

use super::Worker;
use super::client::Phase;
use super::group::Kind;
use crate::response::Read;
use crate::tally::Failure;
use forebay_sys::epoll::Ready;
use forebay_sys::socket::{self, Received};
use std::os::fd::AsFd;

impl Worker<'_> {
    /// Something happened on a connection.
    #[inline]
    pub(super) fn on_event(&mut self, event: Ready) {
        let slot = event.token as u32 as usize;
        let generation = (event.token >> 32) as u32;
        let client = &self.clients[slot];
        if client.generation != generation || client.socket.is_none() {
            return;
        }
        if client.phase == Phase::Connecting {
            return self.handshake(slot, event);
        }
        if event.writable && !client.unsent.is_empty() {
            self.flush(slot);
        }
        if event.readable || event.broken {
            self.receive(slot, event.ended || event.broken);
        }
    }

    /// Reads what is there. `to_end`: the server has ended the stream, so there is an end to find.
    #[inline]
    pub(super) fn receive(&mut self, slot: usize, to_end: bool) {
        if self.groups[self.clients[slot].group].plan.receive.is_some() {
            return self.line_has_input(slot, to_end);
        }
        let mut any = false;
        loop {
            let Some(socket) = &self.clients[slot].socket else { return };
            match socket::receive(socket.as_fd(), &mut self.input) {
                Received::Bytes(count) => {
                    any = true;
                    self.now_ns = self.clock();
                    if !self.take_in(slot, count) {
                        return;
                    }
                    // A short read has emptied the socket: more raises a new event.
                    if count < self.input.len() && !to_end {
                        break;
                    }
                }
                Received::Blocked => break,
                Received::Ended => return self.ended(slot),
                Received::Broken => return self.fail_all(slot, Failure::Reset, Failure::Reset),
            }
        }
        // An event may come for input that an earlier read has taken; then nothing is new.
        if any {
            self.go_on(slot);
        }
    }

    /// Reads `count` bytes of input. False when the connection is closed.
    #[inline]
    pub(super) fn take_in(&mut self, slot: usize, count: usize) -> bool {
        let client = &mut self.clients[slot];
        let group = &mut self.groups[client.group];
        group.tally.counts.received_bytes += count as u64;
        client.answer_bytes += count as u64;
        let bodyless = group.is_bodyless();
        let paced = group.plan.receive.is_some();
        let mut used = 0;
        while used < count {
            let client = &mut self.clients[slot];
            if client.pending.is_empty() {
                // Nobody asked for this.
                self.end_connection(slot, true);
                return false;
            }
            match client.reader.read(&self.input[used..count], bodyless) {
                Read::More => return true,
                Read::Done(more) => used += more,
                Read::Malformed => {
                    self.fail_all(slot, Failure::Malformed, Failure::Closed);
                    return false;
                }
            }
            if paced {
                client.line.complete = true;
                return true;
            }
            if !self.complete(slot) {
                return false;
            }
        }
        true
    }

    /// An answer is complete: judge and count it. False when that was the connection's last.
    #[inline]
    pub(super) fn complete(&mut self, slot: usize) -> bool {
        let now_ns = self.now_ns;
        let client = &mut self.clients[slot];
        let group = &mut self.groups[client.group];
        let answer = client.reader.take();
        let Some(request) = client.pending.pop_front() else { return true };
        let failure = group.judge(&answer, request.asked);
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
                if group.kind != Kind::Closed {
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
            client.totals.busy_ns += took_ns;
            client.totals.received_bytes += client.answer_bytes;
        }
        client.answer_bytes = 0;
        let next = client.pending.front();
        client.deadline_ns = next.map_or(u64::MAX, |next| next.started_ns + group.timeout_ns);
        if !answer.keep {
            self.fail_all(slot, Failure::Closed, Failure::Closed);
            return false;
        }
        if client.left > 0 || !client.pending.is_empty() {
            return true;
        }
        let hold_ns = group.plan.hold.as_nanos() as u64;
        if hold_ns == 0 {
            self.end_connection(slot, false);
            return false;
        }
        self.wake_at(slot, Phase::Holding, now_ns + hold_ns);
        true
    }

    /// The server has ended the stream.
    pub(super) fn ended(&mut self, slot: usize) {
        let client = &mut self.clients[slot];
        if client.reader.end() {
            self.complete(slot);
            return;
        }
        let first = if client.reader.is_fresh() { Failure::Closed } else { Failure::Short };
        self.fail_all(slot, first, Failure::Closed);
    }

    /// Ends the connection; the request whose answer was awaited fails with `first`, those behind
    /// it with `others`. Without any, this is an ordinary end.
    pub(super) fn fail_all(&mut self, slot: usize, first: Failure, others: Failure) {
        let client = &mut self.clients[slot];
        let group = &mut self.groups[client.group];
        let failed = !client.pending.is_empty();
        for (place, request) in client.pending.drain(..).enumerate() {
            let failure = if place == 0 { first } else { others };
            group.tally.fail(failure);
            client.totals.failures += 1;
            if matches!(failure, Failure::Timeout | Failure::Unfinished) {
                // It would have taken longer than this.
                group.tally.actual.record(self.now_ns - request.started_ns);
                if group.kind != Kind::Closed {
                    group.tally.intended.record(self.now_ns - request.intended_ns);
                }
            }
        }
        self.end_connection(slot, failed);
    }
}
