//! A connection to an upstream.

use forebay_conn::SocketId;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A connection to an upstream: the same from request to request, for loops that watch it.
#[derive(Debug)]
pub(crate) struct Connection {
    socket: OwnedFd,
    /// What loops know it by.
    pub(crate) id: SocketId,
}

impl From<OwnedFd> for Connection {
    fn from(socket: OwnedFd) -> Connection {
        Connection { socket, id: SocketId::new() }
    }
}

/// For who asks something over it once, and no loop.
impl From<Connection> for OwnedFd {
    fn from(connection: Connection) -> OwnedFd {
        connection.socket
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
