//! Open WebSockets. The thread that drains a server shuts them down towards their applications. The
//! loop or thread of such a client finds the end, and lets the client know that the server goes away.
//!
//! A socket is taken off the list before it is closed, so that its number never refers to another
//! socket.

use crate::upstreams::Upstreams;
use forebay_sys::socket::SocketNumber;
use std::collections::BTreeSet;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The open WebSockets of some upstreams.
#[derive(Debug, Default)]
pub(crate) struct OpenWebSockets(Mutex<Open>);

#[derive(Debug, Default)]
struct Open {
    sockets: BTreeSet<SocketNumber>,
    /// Whether the server goes away.
    are_ending: bool,
}

impl OpenWebSockets {
    fn open(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends reading from the applications, for all that are open and for those that are opened later.
    /// Returns how many there were.
    pub(super) fn end(&self) -> usize {
        let mut open = self.open();
        open.are_ending = true;
        open.sockets.iter().for_each(|socket| socket.end_reading());
        open.sockets.len()
    }

    /// Whether WebSockets end because the server goes away.
    pub(super) fn are_ending(&self) -> bool {
        self.open().are_ending
    }
}

/// An open WebSocket; dropping this takes it off the list.
#[derive(Debug)]
pub(crate) struct OpenWebSocket {
    of: Arc<Upstreams>,
    socket: SocketNumber,
}

impl OpenWebSocket {
    /// Enters a WebSocket over this socket, which must outlive it.
    pub(super) fn new(of: &Arc<Upstreams>, socket: BorrowedFd<'_>) -> OpenWebSocket {
        let socket = SocketNumber::of(socket);
        let mut open = of.web_sockets.open();
        open.sockets.insert(socket);
        if open.are_ending {
            socket.end_reading();
        }
        drop(open);
        OpenWebSocket { of: Arc::clone(of), socket }
    }
}

impl Drop for OpenWebSocket {
    fn drop(&mut self) {
        self.of.web_sockets.open().sockets.remove(&self.socket);
    }
}
