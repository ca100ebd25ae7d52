//! Clients that receive at a limited rate, as if over a narrow link.
//!
//! A piece of input occupies the link for its length divided by the rate. Only then is the next one
//! read, and an answer is complete when the link has delivered its last byte. Each time follows
//! from the one before, not from when the loop looked, so lateness does not add up. Input that
//! comes while no answer is awaited (TLS handshakes, frames about the connection) is not delayed.

use super::LoadWorker;
use forebay_sys::socket::{self, Received};
use std::mem;
use std::os::fd::AsFd;

/// How much is read at once over a link of `rate` bytes/s: what it delivers in 30 ms, but at least
/// an Ethernet segment where the link delivers that in 100 ms.
fn piece_bytes(rate: f64, most: usize) -> usize {
    let segment = (rate * 0.1).min(1460.0);
    ((rate * 0.03).max(segment) as usize).clamp(1, most)
}

impl LoadWorker<'_> {
    /// Handles a readable socket of a client with a narrow link.
    pub(super) fn line_has_input(&mut self, slot: usize, to_end: bool) {
        let client = &mut self.clients[slot];
        client.line.readable = true;
        client.line.ended |= to_end;
        if client.timer_ns == u64::MAX {
            // the link was idle until now
            client.line.free_ns = client.line.free_ns.max(self.now_ns);
            self.read_piece(slot);
        }
    }

    /// Continues when the link has delivered what was read.
    pub(super) fn line_is_free(&mut self, slot: usize) {
        let held = mem::take(&mut self.clients[slot].held);
        if !held.is_empty() {
            if !self.take_wire(slot, &held) {
                return;
            }
            self.clients[slot].held = held;
            self.clients[slot].held.clear();
            let generation = self.clients[slot].generation;
            self.go_on(slot);
            if self.clients[slot].generation != generation {
                return;
            }
            self.send_rest(slot);
        }
        let client = &self.clients[slot];
        if client.line.readable && client.socket.is_some() && client.timer_ns == u64::MAX {
            self.read_piece(slot);
        }
    }

    fn read_piece(&mut self, slot: usize) {
        loop {
            let client = &mut self.clients[slot];
            let Some(rate) = self.groups[client.group].plan.receive else { return };
            let Some(socket) = &client.socket else { return };
            let piece = piece_bytes(rate, self.input.len());
            match socket::receive(socket.as_fd(), &mut self.input[..piece]) {
                Received::Bytes(count) => {
                    client.line.readable = count == piece || client.line.ended;
                    if !client.pending.is_empty() {
                        client.line.free_ns += (count as f64 * 1e9 / rate) as u64;
                        client.held.extend_from_slice(&self.input[..count]);
                        let (phase, free_ns) = (client.phase, client.line.free_ns);
                        return self.wake_at(slot, phase, free_ns);
                    }
                    if !self.take_input(slot, count) {
                        return;
                    }
                    self.send_rest(slot);
                }
                Received::Blocked => return client.line.readable = client.line.ended,
                Received::Ended => return self.ended(slot),
                Received::Broken => return self.broken(slot),
            }
            if !self.clients[slot].line.readable {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_fit_the_rate() {
        assert_eq!(piece_bytes(50_000.0, 65_536), 1_500);
        assert_eq!(piece_bytes(20_000.0, 65_536), 1_460);
        assert_eq!(piece_bytes(1_000.0, 65_536), 100);
        assert_eq!(piece_bytes(5.0, 65_536), 1);
        assert_eq!(piece_bytes(1e9, 65_536), 65_536);
    }
}
