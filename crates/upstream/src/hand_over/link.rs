//! A link to a receiver, and the client's socket while the receiver has it.

use crate::receivers::frame::{REPORT_BYTES, ReceiverReport};
use crate::receivers::loan::LoanEvent;
use crate::upstreams::UpstreamSlot;
use crate::upstreams::connection::UpstreamConnection;
use forebay_sys::lend::{self, TooManyInFlight};
use forebay_sys::socket::{self, Received, Sent, SocketNumber};
use std::os::fd::{AsFd, BorrowedFd};

/// How much is received from a receiver at a time: both of its reports, and enough to notice that
/// there are too many.
const HEARD_BYTES: usize = 4 * REPORT_BYTES;

/// A link to a receiver, and the request's place there.
pub(super) struct ReceiverLink {
    /// The place. As the first field it is dropped before the connection.
    pub(super) slot: UpstreamSlot,
    pub(super) connection: UpstreamConnection,
    pub(super) is_reused: bool,
    pub(super) can_read: bool,
    pub(super) can_write: bool,
    /// How much of the message is sent.
    pub(super) sent: usize,
    pub(super) heard: Vec<u8>,
    /// Whether nothing more is sent on the link.
    is_shut: bool,
}

/// The client's socket, while another process has it.
#[derive(Clone, Copy)]
pub(super) struct LentClient {
    pub(super) socket: SocketNumber,
    /// How much this process has sent on the socket; `None` for sockets that do not count that.
    pub(super) sent_bytes: Option<u64>,
    /// Whether the client has said that it sends nothing after its request.
    pub(super) is_all: bool,
}

impl LentClient {
    /// Whether the client has sent something that no process has received, when the request is
    /// answered and the connection at its end. Each such question is a system call, so none is made
    /// where the client has said that it sends no more.
    pub(super) fn end(self) -> bool {
        let is_unread = !self.is_all && self.socket.has_unread();
        if is_unread {
            // the rest is received before the connection is closed, and the other process may have
            // made the socket blocking
            self.socket.take_back();
        }
        is_unread
    }

    /// Whether another process has written to the client.
    pub(super) fn is_touched(self) -> bool {
        let Some(sent_bytes) = self.sent_bytes else { return false };
        self.socket.written().is_some_and(|written| written != sent_bytes)
    }
}

impl ReceiverLink {
    pub(super) fn new(
        slot: UpstreamSlot,
        connection: UpstreamConnection,
        is_reused: bool,
    ) -> ReceiverLink {
        ReceiverLink {
            slot,
            connection,
            is_reused,
            can_read: false,
            can_write: true,
            sent: 0,
            heard: Vec::new(),
            is_shut: false,
        }
    }

    /// Whether another request may be sent on the link.
    pub(super) fn is_clean(&self) -> bool {
        self.heard.is_empty() && !self.is_shut
    }

    /// Whether the receiver has read the whole message of `message_bytes`. If it has not, the request
    /// is withdrawn: a receiver looks whether the link is shut once it has read the message, and so
    /// sees that the request is no longer its own.
    pub(super) fn is_read_or_withdrawn(&mut self, message_bytes: usize) -> bool {
        if self.sent == message_bytes && self.is_read() {
            return true;
        }
        lend::end_sending(self.connection.as_fd());
        self.is_shut = true;
        // a receiver that has read the message in between may have seen the link still open
        self.sent == message_bytes && self.is_read()
    }

    /// Whether nothing that was sent is still unread: the kernel counts that for a Unix socket.
    fn is_read(&self) -> bool {
        // if the kernel does not say, the receiver may have read it
        socket::unacknowledged(self.connection.as_fd()).unwrap_or(0) == 0
    }

    /// Sends what is left of the message. Returns the event that came of it, if any.
    pub(super) fn send(
        &mut self,
        message: &[u8],
        client: Option<BorrowedFd<'_>>,
    ) -> Option<LoanEvent> {
        while self.can_write && self.sent < message.len() {
            let rest = &message[self.sent..];
            let socket = self.connection.as_fd();
            let sent = match client.filter(|_| self.sent == 0) {
                Some(client) => lend::send_with(socket, rest, client),
                None => Ok(socket::send(socket, rest, false)),
            };
            match sent {
                Ok(Sent::Bytes(count)) => self.sent += count,
                Ok(Sent::Blocked) => self.can_write = false,
                Ok(Sent::Broken) => return Some(LoanEvent::Reset),
                Err(TooManyInFlight) => return Some(LoanEvent::NoRoom),
            }
        }
        (self.sent > 0).then_some(LoanEvent::Sent)
    }

    /// The receiver's next report or the end of the link; `None` before something has come.
    pub(super) fn hear(&mut self, now_ms: u64) -> Option<LoanEvent> {
        loop {
            if let Some((first, rest)) = self.heard.split_first_chunk::<REPORT_BYTES>() {
                let said = ReceiverReport::read(first).map_or(LoanEvent::Misspoke, LoanEvent::Says);
                self.heard = rest.to_vec();
                return Some(said);
            }
            if !self.can_read {
                return None;
            }
            match self.connection.receive_more(&mut self.heard, HEARD_BYTES, now_ms) {
                // the end of the link may have been reported together with these bytes
                Received::Bytes(_) => {}
                Received::Blocked => self.can_read = false,
                Received::Ended => return Some(LoanEvent::Closed),
                Received::Broken => return Some(LoanEvent::Reset),
            }
        }
    }
}
