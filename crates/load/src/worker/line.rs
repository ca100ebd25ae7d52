//! Clients that receive at a limited rate, as if behind a narrow line.
//!
//! A piece of input occupies the line for its length over the rate; only then is the next one
//! read, and an answer is complete when the line has delivered its last byte. The times follow
//! from each other, not from when the loop happened to look, so lateness does not add up.

use super::Worker;
use crate::tally::Failure;
use forebay_sys::socket::{self, Received};
use std::os::fd::AsFd;

/// How much is read at once on a line of `rate` bytes/s: what it delivers in 30 ms, but a segment
/// of Ethernet where 100 ms suffice for that.
fn piece_bytes(rate: f64, most: usize) -> usize {
    let segment = (rate * 0.1).min(1460.0);
    ((rate * 0.03).max(segment) as usize).clamp(1, most)
}

impl Worker<'_> {
    /// The socket of a narrow line has something.
    pub(super) fn line_has_input(&mut self, slot: usize, to_end: bool) {
        let client = &mut self.clients[slot];
        client.line.readable = true;
        client.line.ended |= to_end;
        if client.timer_ns == u64::MAX {
            // The line was idle until now.
            client.line.free_ns = client.line.free_ns.max(self.now_ns);
            self.read_piece(slot);
        }
    }

    /// The line has delivered what was read.
    pub(super) fn line_is_free(&mut self, slot: usize) {
        if self.clients[slot].line.complete {
            self.clients[slot].line.complete = false;
            if !self.complete(slot) {
                return;
            }
            self.go_on(slot);
        }
        let client = &self.clients[slot];
        if client.line.readable && client.socket.is_some() && client.timer_ns == u64::MAX {
            self.read_piece(slot);
        }
    }

    fn read_piece(&mut self, slot: usize) {
        let client = &mut self.clients[slot];
        let Some(rate) = self.groups[client.group].plan.receive else { return };
        let Some(socket) = &client.socket else { return };
        let piece = piece_bytes(rate, self.input.len());
        match socket::receive(socket.as_fd(), &mut self.input[..piece]) {
            Received::Bytes(count) => {
                client.line.readable = count == piece || client.line.ended;
                client.line.free_ns += (count as f64 * 1e9 / rate) as u64;
                let (phase, free_ns) = (client.phase, client.line.free_ns);
                if self.take_in(slot, count) {
                    self.wake_at(slot, phase, free_ns);
                }
            }
            Received::Blocked => client.line.readable = client.line.ended,
            Received::Ended => self.ended(slot),
            Received::Broken => self.fail_all(slot, Failure::Reset, Failure::Reset),
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
