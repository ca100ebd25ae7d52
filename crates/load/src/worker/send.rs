//! Which request goes out next.

use super::Worker;
use super::client::{Pending, Phase};
use super::group::Kind;
use crate::plan::Load;
use crate::tally::Failure;
use forebay_sys::socket::{self, Sent};
use std::os::fd::AsFd;
use std::time::Duration;

impl Worker<'_> {
    /// A connection is ready for more: send, think, wait for an arrival, or stop.
    #[inline]
    pub(super) fn go_on(&mut self, slot: usize) {
        let client = &self.clients[slot];
        if client.phase == Phase::Holding {
            return;
        }
        let group = &mut self.groups[client.group];
        match group.kind {
            Kind::Closed => {
                if self.now_ns >= group.until_ns {
                    if client.pending.is_empty() {
                        self.close(slot);
                    }
                    return;
                }
                let Load::Closed { think, .. } = &group.plan.load else { return };
                if client.has_failed && !client.pending.is_empty() {
                    // what is under way comes to its end before the pause
                    return;
                }
                let thinks = !think.end().is_zero() && client.opened_ns.is_none();
                if (thinks || client.has_failed) && client.pending.is_empty() {
                    let (from, to) = (think.start().as_nanos(), think.end().as_nanos());
                    let think_ns = group.rng.u64(from as u64..=to as u64);
                    let pause_ns =
                        if client.has_failed { group.plan.pause } else { Duration::ZERO };
                    let pause_ns = think_ns.max(pause_ns.as_nanos() as u64);
                    if pause_ns > 0 {
                        return self.wake_at(slot, Phase::Thinking, self.now_ns + pause_ns);
                    }
                }
                self.send_requests(slot);
            }
            Kind::Session if group.has_made_all() => {
                if client.pending.is_empty() {
                    self.close(slot);
                }
            }
            Kind::Session => self.send_requests(slot),
            Kind::Pool if !client.pending.is_empty() => {}
            Kind::Pool if group.waiting.is_empty() => {
                group.idle.push_back((slot as u32, client.generation));
                self.clients[slot].phase = Phase::Idle;
            }
            Kind::Pool => self.send_requests(slot),
        }
    }

    /// Sends as many requests as the connection may have under way.
    #[inline]
    pub(super) fn send_requests(&mut self, slot: usize) {
        let now_ns = self.now_ns;
        let client = &mut self.clients[slot];
        let group = &mut self.groups[client.group];
        self.output.clear();
        client.has_failed = false;
        while client.pending.len() < group.plan.pipeline as usize && client.left > 0 {
            if group.kind != Kind::Pool && group.has_made_all() {
                break;
            }
            // The first request of a connection began with the connection.
            let began_ns = client.opened_ns.take();
            let (intended_ns, line) = match group.kind {
                Kind::Closed => (began_ns.unwrap_or(now_ns), None),
                Kind::Session => client.arrival.take().unwrap_or((now_ns, None)),
                Kind::Pool => match group.waiting.pop_front() {
                    Some(arrival) => (arrival.at_ns, arrival.line),
                    None => break,
                },
            };
            // A request cannot have begun before it was due, only the connection it found.
            let started_ns = began_ns.unwrap_or(now_ns).max(intended_ns);
            if client.left != u32::MAX {
                client.left -= 1;
            }
            if group.kind != Kind::Pool {
                group.note_request(started_ns, now_ns);
            }
            let asked = group.draw(line);
            let last = client.left == 0 && group.plan.hold.is_zero();
            group.append(&mut self.output, asked, client.version, last);
            group.tally.counts.sent += 1;
            if group.kind != Kind::Pool && (group.kind == Kind::Closed || began_ns.is_none()) {
                // An open loop's arrivals are counted when they are due, a session's others here.
                group.tally.counts.offered += 1;
            }
            if client.pending.is_empty() {
                client.deadline_ns = started_ns + group.timeout_ns;
            }
            client.pending.push_back(Pending { intended_ns, started_ns, asked });
        }
        client.phase = Phase::Busy;
        if !self.output.is_empty() {
            self.send(slot);
        }
    }

    fn send(&mut self, slot: usize) {
        let client = &mut self.clients[slot];
        let Some(socket) = &client.socket else { return };
        if !client.unsent.is_empty() {
            return client.unsent.extend_from_slice(&self.output);
        }
        match socket::send(socket.as_fd(), &self.output, false) {
            Sent::Bytes(count) if count == self.output.len() => {}
            Sent::Bytes(count) => client.unsent.extend_from_slice(&self.output[count..]),
            Sent::Blocked => client.unsent.extend_from_slice(&self.output),
            // The answers that have come before it are still read.
            Sent::Broken => self.receive(slot, true),
        }
    }

    /// The socket takes more.
    pub(super) fn flush(&mut self, slot: usize) {
        let client = &mut self.clients[slot];
        let Some(socket) = &client.socket else { return };
        match socket::send(socket.as_fd(), &client.unsent, false) {
            Sent::Bytes(count) => {
                client.unsent.drain(..count);
            }
            Sent::Blocked => {}
            Sent::Broken => self.fail_all(slot, Failure::Reset, Failure::Reset),
        }
    }
}
