//! How connections are refused, handed over and closed.

use crate::connection::served::{HandshakeState, Served};
use crate::connection::stream::SocketStream;
use crate::connection::worker::Worker;
use crate::watch::TurnStopwatch;
use forebay_conn::{Closing, HandedOver, Handler, Protocol, Refusal, Reply, Settled};
use forebay_metrics::{Activity, Counter, Stopwatch};
use forebay_sys::lend;
use forebay_sys::socket::{self, Received, Sent, SocketNumber};
use std::os::fd::{AsFd, BorrowedFd};

/// Bytes that are dropped at once when a connection begins to linger, or is refused for lack of descriptors.
const DROP_BYTES: usize = 256 * 1024;

impl<H: Handler> Worker<H> {
    /// Refuses a connection before any of its requests was read. One that is encrypted, or passed
    /// on as it is, gets no answer.
    pub fn refuse(&mut self, served: &mut Served<H>, status: u16, reason: &'static str) {
        self.say_no(served, status, |handler, reply| handler.refuse(status, reason, reply));
    }

    /// Refuses a connection that policy does not admit. One that is encrypted gets no answer.
    pub fn turn_away(&mut self, served: &mut Served<H>, refusal: Refusal) {
        self.say_no(served, refusal.status, |handler, reply| {
            handler.turn_away(refusal, None, reply)
        });
    }

    fn say_no(
        &mut self,
        served: &mut Served<H>,
        status: u16,
        write: impl FnOnce(&mut H, &mut Reply<'_, H::Body>),
    ) {
        if !served.stream.is_plain() || served.stream.is_silent() {
            return;
        }
        self.out.clear();
        write(&mut self.handler, &mut Reply::new(&mut self.out, &self.date, false));
        self.count(Counter::of_status(status));
        self.send_last_words(&mut served.stream);
    }

    /// Sends as much of `out` as the client takes at once. Returns the number of bytes that it does
    /// not take; what is encrypted waits in the stream.
    pub(crate) fn send_last_words(&mut self, stream: &mut SocketStream<H>) -> u64 {
        let words = self.out.bytes.len();
        let (count, unsent) = if !stream.is_plain() {
            stream.seal(&self.out.bytes);
            stream.end();
            (stream.flush().1, 0)
        } else if self.out.is_empty() {
            (0, 0)
        } else {
            match socket::send(stream.as_fd(), &self.out.bytes, false) {
                Sent::Bytes(count) => (count, words - count),
                Sent::Blocked | Sent::Broken => (0, words),
            }
        };
        self.metrics.add(Counter::SentBytes, count as u64);
        self.out.clear();
        unsent as u64
    }

    /// Reads and drops what has arrived, or much of it. Returns whether more may arrive: neither
    /// has the client ended, nor has the connection failed.
    pub(crate) fn drop_input(&mut self, socket: BorrowedFd<'_>) -> bool {
        let mut left = DROP_BYTES;
        while left > 0 {
            self.input.clear();
            match socket::receive(socket, self.input.spare()) {
                Received::Bytes(count) => left = left.saturating_sub(count),
                Received::Blocked => return true,
                Received::Ended | Received::Broken => return false,
            }
        }
        true
    }

    /// Lends the client's socket to another process; this one watches it no longer. The connection
    /// goes on at once, with the outcome of that.
    pub(crate) fn lend(&mut self, served: &mut Served<H>) {
        served.conn.resume(&mut self.input);
        // only this transport can read what is encrypted; a request on such a connection is not
        // lent
        let is_plain = served.stream.is_plain();
        let (may_stay, limits) = (!self.draining, &self.settings.limits);
        let socket = served.stream.as_fd();
        let sent_bytes = match served.was_lent {
            _ if !is_plain => None,
            // receivers have sent bytes that are not counted here, so the kernel's count is used
            true => lend::written(socket),
            false => Some(served.sent_bytes),
        };
        served.conn.lend(socket, sent_bytes, may_stay, limits, &mut self.input);
        served.conn.suspend(&mut self.input);
        // the engine learns again what has arrived when the socket is back
        served.readable = false;
        served.was_lent = true;
    }

    /// Gives a connection away with everything received of it.
    pub fn hand_over(&mut self, mut served: Served<H>) {
        let (received, ticket) = served.conn.take_handed(&mut self.input);
        let is_plain = served.stream.is_plain();
        self.count(Counter::Closed);
        if !is_plain {
            // only this transport can read what is encrypted
            return self.handler.settle(&mut { ticket }, Settled::Cut);
        }
        served.leave_lists();
        let place: Box<dyn Send> = Box::new(served.place.take());
        let (socket, peer) = (served.stream.into_socket(), served.peer);
        let handed = HandedOver { socket, received, peer, ticket, place };
        if let Err(mut refused) = self.handler.hand_over(handed) {
            self.handler.settle(&mut refused.ticket, Settled::Cut);
        }
    }

    /// Closes a connection, writes its open log line and counts its end. One that waits for its
    /// turn and is closed [now](Closing::Now) is one whose client has left.
    pub fn close(&mut self, mut served: Served<H>, closing: Closing) {
        let sampled = self.is_sampled();
        if closing == Closing::Reset {
            socket::reset_on_close(served.stream.as_fd());
        }
        let is_lent = served.conn.is_lent();
        if served.take_back() && closing == Closing::Now {
            self.count(Counter::GivenUp);
        }
        if served.pending.is_some() {
            self.count(Counter::Aborted);
        }
        if let Some(opening) = &served.opening
            && opening.handshake == HandshakeState::Begun
        {
            self.count(Counter::HandshakesCut);
        }
        served.drop_unsent();
        served.conn.abandon(&mut self.handler, &served.peer);
        self.count(Counter::Closed);
        // before the client sees the end, as it may connect again at once
        served.place = None;
        if served.was_lent {
            // another process may still have the socket open, and then a close alone does not end
            // the connection
            match closing {
                Closing::Reset => SocketNumber::of(served.stream.as_fd()).reset(),
                _ if is_lent => SocketNumber::of(served.stream.as_fd()).reset(),
                Closing::Now => lend::shut_down(served.stream.as_fd()),
                Closing::Linger => {}
            }
        }
        if closing == Closing::Linger && !is_lent {
            return self.linger(served);
        }
        let mut watch = TurnStopwatch::new(&self.metrics, sampled);
        drop(served);
        watch.lap(Activity::Close);
    }

    /// Shuts down writing and drops what has arrived. A client that has not ended then may still
    /// send.
    #[cold]
    fn linger(&mut self, served: Served<H>) {
        let socket = served.stream.into_socket();
        socket::shut_down_writing(socket.as_fd());
        if self.drop_input(socket.as_fd()) {
            self.lingering.add(socket, self.settings.lingering);
        }
        self.input.clear();
    }
}
