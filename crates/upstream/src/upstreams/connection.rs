//! A connection to an upstream, in either version of HTTP.

use crate::upstreams::http2::UpstreamHttp2;
use forebay_conn::SocketId;
use forebay_sys::client;
use forebay_sys::socket::{self, Received, Sent};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A connection to an upstream: the same from request to request, for loops that watch it.
#[derive(Debug)]
pub(crate) struct UpstreamConnection {
    socket: OwnedFd,
    /// What loops know it by.
    pub(crate) id: SocketId,
    /// Where it leads, of the addresses that a name has.
    pub(crate) address: Option<SocketAddr>,
    http2: Option<Box<UpstreamHttp2>>,
}

impl UpstreamConnection {
    /// To one of the addresses of a name.
    pub(crate) fn of_name(socket: OwnedFd, address: SocketAddr) -> UpstreamConnection {
        UpstreamConnection { address: Some(address), ..UpstreamConnection::from(socket) }
    }
}

impl From<OwnedFd> for UpstreamConnection {
    fn from(socket: OwnedFd) -> UpstreamConnection {
        UpstreamConnection { socket, id: SocketId::new(), address: None, http2: None }
    }
}

/// For a thread that asks something over it once, without a loop.
impl From<UpstreamConnection> for OwnedFd {
    fn from(connection: UpstreamConnection) -> OwnedFd {
        connection.socket
    }
}

impl AsFd for UpstreamConnection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl UpstreamConnection {
    /// The same, on which HTTP/2 is spoken from its first byte on.
    #[must_use]
    pub(crate) fn with_http2(self) -> UpstreamConnection {
        UpstreamConnection { http2: Some(Box::new(UpstreamHttp2::new())), ..self }
    }

    /// What HTTP/2 knows beside the bytes, if that is spoken.
    pub(crate) fn http2(&self) -> Option<&UpstreamHttp2> {
        self.http2.as_deref()
    }

    /// Whether another request may be sent on it, which nothing was asked of for a while.
    pub(crate) fn is_fit(&mut self, now_ms: u64) -> bool {
        let socket = self.socket.as_fd();
        match &mut self.http2 {
            Some(http2) => http2.is_fit(socket, now_ms),
            None => client::is_quiet(socket),
        }
    }

    /// Whether another request may be sent on it, of which the one before is over.
    pub(crate) fn ends_clean(&mut self) -> bool {
        let socket = self.socket.as_fd();
        self.http2.as_mut().is_none_or(|http2| http2.ends_clean(socket))
    }

    /// Sends the first of a request, if the connection has come about; `ends` if that is the last of it.
    ///
    /// # Errors
    /// Why it has not, and will not.
    pub(crate) fn begin(&mut self, bytes: &[u8], ends: bool) -> io::Result<Sent> {
        let socket = self.socket.as_fd();
        match &mut self.http2 {
            Some(http2) => match http2.send(socket, bytes, ends) {
                Sent::Broken => Err(io::ErrorKind::NotConnected.into()),
                sent => Ok(sent),
            },
            None => client::send_first(socket, bytes),
        }
    }

    /// Sends some of a request; `ends` if that is the last of it.
    pub(crate) fn send(&mut self, bytes: &[u8], ends: bool) -> Sent {
        let socket = self.socket.as_fd();
        match &mut self.http2 {
            Some(http2) => http2.send(socket, bytes, ends),
            None => socket::send(socket, bytes, false),
        }
    }

    /// Sends what follows the body of a request.
    pub(crate) fn end_with(&mut self, trailers: &[u8]) {
        if let Some(http2) = &mut self.http2 {
            http2.end_with(self.socket.as_fd(), trailers);
        }
    }

    /// Appends at most `most` bytes of the answer.
    pub(crate) fn receive_more(
        &mut self,
        into: &mut Vec<u8>,
        most: usize,
        now_ms: u64,
    ) -> Received {
        let socket = self.socket.as_fd();
        match &mut self.http2 {
            Some(http2) => http2.receive(socket, into, most, now_ms),
            None => socket::receive_more(socket, into, most),
        }
    }
}
