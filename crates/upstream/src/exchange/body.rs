//! The body of the answer, as it comes.

use super::answer::{BROKEN_OFF, Coming, RECEIVE_BYTES};
use super::spare;
use super::state::Exchange;
use super::upload::TunnelEnd;
use crate::upstreams::connection::UpstreamConnection;
use forebay_conn::handler::relay::RelayRead;
use forebay_http::websocket::GOING_AWAY;
use forebay_sys::poll::{self, PollInterest};
use forebay_sys::socket::Received;
use std::os::fd::AsFd;

impl<T> Exchange<T> {
    /// Takes the next bytes as they are.
    pub(super) fn take(&mut self, out: &mut Vec<u8>, most: usize) -> RelayRead {
        let count = self.answer.unused().len().min(most);
        if count > 0 {
            out.extend_from_slice(&self.answer.received[self.answer.at..self.answer.at + count]);
            self.answer.at += count;
            return RelayRead::Bytes(count);
        }
        if self.answer.has_told && self.answer.at > 0 {
            // an idle exchange takes no memory
            spare::leave(&mut self.answer.received);
            (self.answer.at, self.answer.fields) = (0, None);
        }
        self.receive(most, Some(out))
    }

    /// Receives into `out`, or, without it, behind what was received.
    pub(super) fn receive(&mut self, most: usize, out: Option<&mut Vec<u8>>) -> RelayRead {
        let is_passed_on = self.application.settings().tcp().is_some();
        let Some(attempt) = self.phase.attempt_mut() else { return RelayRead::End };
        let Some(connection) = &mut attempt.connection else { return RelayRead::End };
        if attempt.has_ended {
            // a server that has closed the connection resets what still comes, and takes nothing more
            let is_reset = is_passed_on && attempt.is_cut;
            return if is_reset { RelayRead::Broken } else { RelayRead::End };
        }
        if !attempt.can_read && !connection.has_ahead() {
            return RelayRead::Nothing;
        }
        let into = match out {
            Some(out) => out,
            None => {
                // the head stays, because the handler may look at it
                self.answer.received.truncate(self.answer.at);
                spare::furnish(&mut self.answer.received);
                &mut self.answer.received
            }
        };
        let received = connection.receive_more(into, most, self.now_ms);
        if self.may_go_on() {
            // what has arrived has opened the window for the request
            self.send();
        }
        let Some(attempt) = self.phase.attempt_mut() else { return RelayRead::End };
        match received {
            Received::Bytes(count) => {
                self.moved_ms = self.now_ms;
                self.answer.taken_bytes += count as u64;
                RelayRead::Bytes(count)
            }
            Received::Blocked => {
                attempt.can_read = false;
                RelayRead::Nothing
            }
            Received::Ended => {
                // with HTTP/2 the answer has ended, and not its connection
                attempt.has_ended = !self.asked.is_http2;
                if self.is_cut_off() { RelayRead::Broken } else { RelayRead::End }
            }
            Received::Broken => {
                attempt.has_ended = true;
                RelayRead::Broken
            }
        }
    }

    /// Whether the answer has ended with its head, although the head gives no length. A client of
    /// gRPC takes the fields of such a head for the trailers.
    pub(super) fn is_without_body(&self, status: u16) -> bool {
        let has_ended = |connection: &UpstreamConnection| {
            connection.is_over() && connection.trailers().is_empty()
        };
        !matches!(status, 204 | 304)
            && !self.asked.context.is_head
            && self.answer.unused().is_empty()
            && matches!(self.answer.coming, Coming::All)
            && self.phase.connection().is_some_and(has_ended)
    }

    /// Whether the next stage has broken off a tunnel. A Unix socket cannot be reset; but a stage
    /// that lives ends the connection of a tunnel in both directions only after the stage before has
    /// ended its own.
    fn is_cut_off(&self) -> bool {
        let is_open = self.is_tunnel()
            && self.application.is_stage()
            && self.upload.tunnel == TunnelEnd::Open;
        let Some(connection) = self.phase.connection().filter(|_| is_open) else { return false };
        let state = poll::wait([(connection.as_fd(), PollInterest::End)], 0);
        state.is_ok_and(|[socket]| socket.broken)
    }

    /// Takes the next bytes of a WebSocket. If it ends because this server goes away, a close frame
    /// is appended for the client.
    pub(super) fn read_frames(&mut self, out: &mut Vec<u8>, most: usize) -> RelayRead {
        let start = out.len();
        let read = self.take(out, most);
        let is_leaving = || self.application.upstreams().end_of_web_sockets();
        let Coming::WebSocket(position) = &mut self.answer.coming else { return read };
        match read {
            RelayRead::Bytes(_) => position.pass(&out[start..]),
            // this server has shut down reading, so TLS finds no `close_notify`
            RelayRead::End | RelayRead::Broken if is_leaving() => {
                if !position.is_between() || most < GOING_AWAY.len() {
                    return RelayRead::End;
                }
                position.pass(&GOING_AWAY);
                out.extend_from_slice(&GOING_AWAY);
                return RelayRead::Bytes(GOING_AWAY.len());
            }
            RelayRead::Broken => return self.broken(),
            RelayRead::End | RelayRead::Nothing => {}
        }
        read
    }

    /// Breaks the answer off. The upstream is to blame, unless it is a TCP connection, which the
    /// client can have reset at will.
    pub(super) fn broken(&mut self) -> RelayRead {
        self.answer.is_broken_off = true;
        let is_passed_on = self.application.settings().tcp().is_some();
        if let Some(slot) = self.phase.slot_mut().filter(|_| !is_passed_on) {
            slot.fail(BROKEN_OFF);
        }
        RelayRead::Broken
    }

    pub(super) fn read_chunks(&mut self, out: &mut Vec<u8>, most: usize) -> RelayRead {
        loop {
            let Coming::Chunked(decoder) = &mut self.answer.coming else {
                return RelayRead::Nothing;
            };
            if decoder.is_done() {
                return RelayRead::End;
            }
            let bytes = &self.answer.received[self.answer.at..];
            if !bytes.is_empty() {
                let bytes = &bytes[..bytes.len().min(most)];
                let Ok(decoded) = decoder.next(bytes) else { return self.broken() };
                self.answer.at += decoded.used;
                if !decoded.data.is_empty() {
                    out.extend_from_slice(decoded.data);
                    return RelayRead::Bytes(decoded.data.len());
                }
                continue;
            }
            if let Some(head) = self.answer.head {
                self.answer.received.truncate(head.end);
                self.answer.at = head.end;
            }
            match self.receive(RECEIVE_BYTES, None) {
                RelayRead::Bytes(_) => {}
                RelayRead::Nothing => return RelayRead::Nothing,
                RelayRead::End | RelayRead::Broken => return self.broken(),
            }
        }
    }
}
