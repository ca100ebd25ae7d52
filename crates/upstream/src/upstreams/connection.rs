//! A connection to an upstream, in either version of HTTP.

use crate::upstreams::http2::{Http2Peer, UpstreamHttp2};
use crate::upstreams::stream::{ConnectError, UpstreamStream};
use forebay_conn::{SocketId, Wants};
use forebay_sys::socket::{Received, Sent};
use forebay_tls::{ClientSession, TlsFault};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A connection to an upstream: the same from request to request, for loops that watch it.
#[derive(Debug)]
pub(crate) struct UpstreamConnection {
    stream: UpstreamStream,
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
        let stream = UpstreamStream::from(socket);
        UpstreamConnection { stream, id: SocketId::new(), address: None, http2: None }
    }
}

impl AsFd for UpstreamConnection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl UpstreamConnection {
    /// The same, on which HTTP/2 is spoken with this peer from its first byte on.
    #[must_use]
    pub(crate) fn with_http2(self, peer: Http2Peer) -> UpstreamConnection {
        let http2 = UpstreamHttp2::new(peer, self.stream.is_tls());
        UpstreamConnection { http2: Some(Box::new(http2)), ..self }
    }

    /// The same through TLS: by a session that clients of this number have begun.
    #[must_use]
    pub(crate) fn with_tls(mut self, session: ClientSession, clients: u64) -> UpstreamConnection {
        self.stream.seal(session, clients);
        self
    }

    /// The number of the clients that have begun its session; `None` without TLS.
    pub(crate) fn clients(&self) -> Option<u64> {
        self.stream.clients()
    }

    /// What HTTP/2 knows beside the bytes, if that is spoken.
    pub(crate) fn http2(&self) -> Option<&UpstreamHttp2> {
        self.http2.as_deref()
    }

    /// Sends these bytes before all others, in clear though all others are sealed. Whether others are: else they are
    /// like any.
    pub(crate) fn begin_in_clear(&mut self, bytes: &[u8]) -> bool {
        match &mut self.http2 {
            // they go before the preface of HTTP/2, and are no part of what that says
            Some(http2) if !self.stream.is_tls() => {
                http2.begin_in_clear(bytes);
                true
            }
            _ => self.stream.begin_in_clear(bytes),
        }
    }

    /// What must happen with the socket before the connection has come about.
    pub(crate) fn wants_to_connect(&self) -> Wants {
        let reads = self.stream.handshake_reads().unwrap_or_default();
        Wants { read: reads, write: !reads }
    }

    /// Whether the session of TLS continues an earlier one; `None` without TLS.
    pub(crate) fn is_resumed(&self) -> Option<bool> {
        self.stream.is_resumed()
    }

    /// Why TLS goes no further, if that is so.
    pub(crate) fn fault(&self) -> Option<TlsFault> {
        self.stream.fault()
    }

    /// Whether something that counts as sent waits for the socket.
    pub(crate) fn has_unsent(&self) -> bool {
        self.stream.has_unsent() || self.http2.as_ref().is_some_and(|http2| http2.has_unsent())
    }

    /// Whether a [send](UpstreamConnection::send) without bytes does something; `ends` if nothing follows.
    pub(crate) fn wants_to_send(&self, ends: bool) -> bool {
        let of_http2 = self.http2.as_ref().is_some_and(|http2| http2.wants_to_send(ends));
        self.stream.has_unsent() || of_http2
    }

    /// Whether another request may be sent on it, which nothing was asked of for a while.
    pub(crate) fn is_fit(&mut self, now_ms: u64) -> bool {
        match &mut self.http2 {
            Some(http2) => http2.is_fit(&mut self.stream, now_ms),
            None => self.stream.is_quiet(),
        }
    }

    /// Whether another request may be sent on it, of which the one before is over.
    pub(crate) fn ends_clean(&mut self) -> bool {
        let stream = &mut self.stream;
        self.http2.as_mut().is_none_or(|http2| http2.ends_clean(stream)) && self.stream.rests()
    }

    /// Sends the first of a request, if the connection has come about; `ends` if that is the last of it.
    ///
    /// # Errors
    /// Why it has not, and will not.
    pub(crate) fn begin(&mut self, bytes: &[u8], ends: bool) -> Result<Sent, ConnectError> {
        match &mut self.http2 {
            Some(http2) => http2.begin(&mut self.stream, bytes, ends),
            None => self.stream.begin(bytes),
        }
    }

    /// Sends some of a request; `ends` if that is the last of it.
    pub(crate) fn send(&mut self, bytes: &[u8], ends: bool) -> Sent {
        match &mut self.http2 {
            Some(http2) => http2.send(&mut self.stream, bytes, ends),
            None => self.stream.send(bytes),
        }
    }

    /// Sends what follows the body of a request.
    pub(crate) fn end_with(&mut self, trailers: &[u8]) {
        if let Some(http2) = &mut self.http2 {
            http2.end_with(&mut self.stream, trailers);
        }
    }

    /// Says that the answer is not wanted any more, where that can be said.
    pub(crate) fn cancel(&mut self) {
        if let Some(http2) = &mut self.http2 {
            http2.cancel(&mut self.stream);
        }
    }

    /// Receives what is not wanted yet, so that what stands behind it lets the request go on. Says whether more may be
    /// there.
    pub(crate) fn look_ahead(&mut self, now_ms: u64) -> bool {
        let http2 = self.http2.as_mut();
        http2.is_some_and(|http2| http2.look_ahead(&mut self.stream, now_ms))
    }

    /// Says that nothing more is sent; the upstream can still be heard. Whether it is said: the socket may have to
    /// take more before.
    pub(crate) fn end_writing(&mut self) -> bool {
        self.stream.end_writing()
    }

    /// Appends at most `most` bytes of the answer.
    pub(crate) fn receive_more(
        &mut self,
        into: &mut Vec<u8>,
        most: usize,
        now_ms: u64,
    ) -> Received {
        match &mut self.http2 {
            Some(http2) => http2.receive(&mut self.stream, into, most, now_ms),
            None => self.stream.receive_more(into, most),
        }
    }
}
