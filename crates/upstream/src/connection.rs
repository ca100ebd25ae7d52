//! A connection to an upstream.

use forebay_conn::SocketId;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A connection to an upstream: the same from request to request, for loops that watch it.
#[derive(Debug)]
pub(crate) struct Connection {
    socket: OwnedFd,
    /// What loops know it by.
    pub(crate) id: SocketId,
    /// Where it leads, of the addresses that a name has.
    pub(crate) address: Option<SocketAddr>,
}

impl Connection {
    /// To one of the addresses of a name.
    pub(crate) fn of_name(socket: OwnedFd, address: SocketAddr) -> Connection {
        Connection { address: Some(address), ..Connection::from(socket) }
    }
}

impl From<OwnedFd> for Connection {
    fn from(socket: OwnedFd) -> Connection {
        Connection { socket, id: SocketId::new(), address: None }
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
