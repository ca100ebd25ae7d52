//! The choice of the next request, and sending.

use super::LoadWorker;
use super::client::ClientPhase;
use super::group::LoopKind;
use super::request::Pending;
use crate::plan::LoadModel;
use crc32fast::Hasher;
use forebay_sys::socket::{self, Sent};
use forebay_tls::ClientSession;
use std::os::fd::AsFd;

impl LoadWorker<'_> {
    /// Decides what a connection that is ready for more does: send, think, wait for an arrival, or
    /// stop.
    #[inline]
    pub(super) fn go_on(&mut self, slot: usize) {
        let client = &self.clients[slot];
        // input in these states (tickets, pings) changes nothing
        if matches!(
            client.phase,
            ClientPhase::Holding | ClientPhase::Connecting | ClientPhase::Thinking
        ) {
            return;
        }
        let group = &mut self.groups[client.group];
        match group.kind {
            LoopKind::Closed => {
                if self.now_ns >= group.until_ns {
                    if client.pending.is_empty() {
                        self.close(slot);
                    }
                    return;
                }
                let LoadModel::Closed { think, .. } = &group.plan.load else { return };
                if client.has_failed && !client.pending.is_empty() {
                    // requests under way end before the pause
                    return;
                }
                let thinks = !think.end().is_zero() && client.opened_ns.is_none();
                if thinks && !client.pending.is_empty() {
                    // the client thinks when it has all its answers
                    return;
                }
                if thinks || client.has_failed {
                    let think_ns = group.draw_ns(think);
                    let pause_ns = match client.has_failed {
                        true => think_ns.max(group.draw_ns(&group.plan.pause)),
                        false => think_ns,
                    };
                    if pause_ns > 0 {
                        return self.wake_at(slot, ClientPhase::Thinking, self.now_ns + pause_ns);
                    }
                }
                self.send_requests(slot);
            }
            LoopKind::Session if group.has_made_all() => {
                if client.pending.is_empty() {
                    self.close(slot);
                }
            }
            LoopKind::Session => self.send_requests(slot),
            LoopKind::Pool if !client.has_room(group.plan.at_once()) => {}
            LoopKind::Pool if group.waiting.is_empty() => self.list(slot),
            LoopKind::Pool => self.send_requests(slot),
        }
    }

    /// Lists a connection of a pool as able to take a request.
    fn list(&mut self, slot: usize) {
        let client = &mut self.clients[slot];
        client.phase =
            if client.pending.is_empty() { ClientPhase::Idle } else { ClientPhase::Busy };
        if !client.is_listed {
            client.is_listed = true;
            let group = &mut self.groups[client.group];
            group.idle.push_back((slot as u32, client.generation));
        }
    }

    /// Sends as many requests as the connection may have under way.
    #[inline]
    pub(super) fn send_requests(&mut self, slot: usize) {
        let now_ns = self.now_ns;
        let client = &mut self.clients[slot];
        let group = &mut self.groups[client.group];
        let at_once = group.plan.at_once();
        self.output.clear();
        client.has_failed = false;
        while client.has_room(at_once) {
            if group.kind != LoopKind::Pool && group.has_made_all() {
                break;
            }
            // the first request of a connection began with the connection
            let began_ns = client.opened_ns.take();
            let (intended_ns, line) = match group.kind {
                LoopKind::Closed => (began_ns.unwrap_or(now_ns), None),
                LoopKind::Session => client.arrival.take().unwrap_or((now_ns, None)),
                LoopKind::Pool => match group.waiting.pop_front() {
                    Some(arrival) => (arrival.at_ns, arrival.line),
                    None => break,
                },
            };
            // a request cannot have begun before it was due, only the connection it found
            let started_ns = began_ns.unwrap_or(now_ns).max(intended_ns);
            if client.left != u32::MAX {
                client.left -= 1;
            }
            if group.kind != LoopKind::Pool {
                group.note_request(started_ns, now_ns);
            }
            let asked = group.draw(line);
            let stream = match &mut client.http2 {
                None => {
                    let last = client.left == 0 && group.plan.hold.is_zero();
                    group.append(&mut self.output, asked, client.version, last);
                    0
                }
                Some(http2) => http2.ask(&mut self.output, group, asked),
            };
            group.tally.counts.sent += 1;
            if group.kind != LoopKind::Pool
                && (group.kind == LoopKind::Closed || began_ns.is_none())
            {
                // arrivals of an open loop are counted when they are due, the further requests of a
                // session here
                group.tally.counts.offered += 1;
            }
            if client.pending.is_empty() {
                client.deadline_ns = started_ns + group.timeout_ns;
                client.busy_from_ns = started_ns;
            }
            let crc32 = (stream > 0 && group.wants_crc32()).then(Hasher::new);
            client.pending.push_back(Pending {
                intended_ns,
                started_ns,
                asked,
                stream,
                status: 0,
                body_bytes: 0,
                crc32,
                sent_bytes: 0,
            });
        }
        client.phase = ClientPhase::Busy;
        if client.http2.is_some() {
            self.append_bodies(slot);
            self.await_stream(slot);
        }
        if !self.output.is_empty() {
            self.send(slot);
        }
        let client = &self.clients[slot];
        let group = &self.groups[client.group];
        if group.kind == LoopKind::Pool
            && client.phase == ClientPhase::Busy
            && client.has_room(at_once)
        {
            self.list(slot);
        }
    }

    /// Sends what remains of frames, bodies and handshakes.
    #[inline]
    pub(super) fn send_rest(&mut self, slot: usize) {
        let client = &mut self.clients[slot];
        if client.http2.is_none() && client.session.is_none() {
            return;
        }
        self.output.clear();
        if let Some(http2) = &mut client.http2 {
            http2.machine.flush(&mut self.output);
            self.append_bodies(slot);
        }
        let waits = |session: &ClientSession| session.has_to_send();
        let client = &self.clients[slot];
        if !self.output.is_empty() || client.session.as_deref().is_some_and(waits) {
            self.send(slot);
        }
    }

    fn send(&mut self, slot: usize) {
        let client = &mut self.clients[slot];
        let Some(socket) = &client.socket else { return };
        if let Some(session) = &mut client.session {
            self.sealed.clear();
            session.write(&self.output, &mut self.sealed);
            std::mem::swap(&mut self.output, &mut self.sealed);
        }
        if !client.unsent.is_empty() {
            return client.unsent.extend_from_slice(&self.output);
        }
        match socket::send(socket.as_fd(), &self.output, false) {
            Sent::Bytes(count) if count == self.output.len() => {}
            Sent::Bytes(count) => client.unsent.extend_from_slice(&self.output[count..]),
            Sent::Blocked => client.unsent.extend_from_slice(&self.output),
            // Answers that have arrived before the break are still read; a caller that is reading
            // continues itself.
            Sent::Broken if self.input.is_empty() => {}
            Sent::Broken => self.receive(slot, true),
        }
    }

    /// Sends the unsent bytes when the socket takes more.
    pub(super) fn flush(&mut self, slot: usize) {
        let client = &mut self.clients[slot];
        let Some(socket) = &client.socket else { return };
        match socket::send(socket.as_fd(), &client.unsent, false) {
            Sent::Bytes(count) => {
                client.unsent.drain(..count);
                if client.unsent.is_empty() {
                    self.send_rest(slot);
                }
            }
            Sent::Blocked => {}
            Sent::Broken => self.broken(slot),
        }
    }
}
