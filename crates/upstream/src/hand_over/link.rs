//! A link to a receiver, and the client's socket while that has it.

use crate::receivers::frame::{REPORT_BYTES, ReceiverReport};
use crate::receivers::loan::LoanEvent;
use crate::upstreams::UpstreamSlot;
use crate::upstreams::connection::UpstreamConnection;
use forebay_sys::lend::{self, TooManyInFlight};
use forebay_sys::socket::{self, Received, Sent, SocketNumber};
use std::os::fd::{AsFd, BorrowedFd};

/// So much is received of a receiver at a time: both its messages, and what tells that there are too many.
const HEARD_BYTES: usize = 4 * REPORT_BYTES;

/// A link to a receiver, and the place it has there.
pub(super) struct ReceiverLink {
    /// It goes before the connection does.
    pub(super) slot: UpstreamSlot,
    pub(super) connection: UpstreamConnection,
    pub(super) is_reused: bool,
    pub(super) can_read: bool,
    pub(super) can_write: bool,
    /// How much of the message is sent.
    pub(super) sent: usize,
    pub(super) heard: Vec<u8>,
    /// Nothing more is sent on it.
    is_shut: bool,
}

/// The client's socket, while another process has it.
#[derive(Clone, Copy)]
pub(super) struct LentClient {
    pub(super) socket: SocketNumber,
    /// What this process has sent on it; `None` of sockets that do not tell.
    pub(super) sent_bytes: Option<u64>,
    /// The client has said that it sends nothing behind its request.
    pub(super) is_all: bool,
}

impl LentClient {
    /// The request is answered, and the connection at its end: whether the client has sent something that nobody has
    /// received. Each question is a call of the kernel, so none is asked that a client has answered.
    pub(super) fn end(self) -> bool {
        let is_unread = !self.is_all && self.socket.has_unread();
        if is_unread {
            // it is received before the connection is closed, and the other process may have made that block
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

    /// Whether another request may be sent on it.
    pub(super) fn is_clean(&self) -> bool {
        self.heard.is_empty() && !self.is_shut
    }

    /// Whether the receiver has read the whole message, which has so many bytes. If it has not, it sees from now on that
    /// the request is somebody else's: it looks whether the link is shut once it has read the message.
    pub(super) fn is_read_or_withdrawn(&mut self, message_bytes: usize) -> bool {
        if self.sent == message_bytes && self.is_read() {
            return true;
        }
        lend::end_sending(self.connection.as_fd());
        self.is_shut = true;
        // one that has read it in between may have seen that the link was not shut
        self.sent == message_bytes && self.is_read()
    }

    /// Whether nothing that was sent is still unread: the kernel counts that for a Unix socket.
    fn is_read(&self) -> bool {
        // where the kernel does not tell, the receiver may have it
        socket::unacknowledged(self.connection.as_fd()).unwrap_or(0) == 0
    }

    /// Sends what is left of the message. What has happened by that, if something has.
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

    /// The next that the receiver says; `None` before something has come.
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
                // its end may have been reported together with these
                Received::Bytes(_) => {}
                Received::Blocked => self.can_read = false,
                Received::Ended => return Some(LoanEvent::Closed),
                Received::Broken => return Some(LoanEvent::Reset),
            }
        }
    }
}
