//! A connection to an upstream, in either version of HTTP; or a stream of a shared connection.

use crate::upstreams::http2::{AnswerEnd, Http2Peer, UpstreamHttp2};
use crate::upstreams::offered::{OfferedPair, PassedRequest};
use crate::upstreams::shared::SharedStream;
use crate::upstreams::stream::{ConnectError, UpstreamStream};
use forebay_conn::{SocketId, Wants};
use forebay_sys::socket::{Received, Sent};
use forebay_tls::{ClientSession, TlsFault};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A connection to an upstream: the same from request to request, for loops that watch it.
#[derive(Debug)]
pub(crate) struct UpstreamConnection {
    carriage: Carriage,
    /// The number by which loops know the connection.
    pub(crate) id: SocketId,
    /// The address of the connection, if the upstream has a name.
    address: Option<SocketAddr>,
}

/// The carrier of a request and its answer.
#[derive(Debug)]
enum Carriage {
    /// A connection of HTTP/1.1 for this request alone.
    Http1(UpstreamStream),
    /// A connection of HTTP/2 for this request alone.
    Http2(UpstreamStream, Box<UpstreamHttp2>),
    /// A stream of a shared connection.
    Shared(Box<SharedStream>),
    /// One end of a socket pair, in HTTP/1.1; a receiver is offered the other.
    Offered(Box<OfferedPair>),
}

impl UpstreamConnection {
    /// A connection to one of the addresses of a name.
    pub(crate) fn of_name(socket: OwnedFd, address: SocketAddr) -> UpstreamConnection {
        UpstreamConnection { address: Some(address), ..UpstreamConnection::from(socket) }
    }
}

impl From<OwnedFd> for UpstreamConnection {
    fn from(socket: OwnedFd) -> UpstreamConnection {
        let carriage = Carriage::Http1(UpstreamStream::from(socket));
        UpstreamConnection { carriage, id: SocketId::new(), address: None }
    }
}

impl From<SharedStream> for UpstreamConnection {
    fn from(stream: SharedStream) -> UpstreamConnection {
        let carriage = Carriage::Shared(Box::new(stream));
        UpstreamConnection { carriage, id: SocketId::new(), address: None }
    }
}

impl AsFd for UpstreamConnection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.carriage {
            Carriage::Http1(stream) | Carriage::Http2(stream, _) => stream.as_fd(),
            Carriage::Shared(shared) => shared.as_fd(),
            Carriage::Offered(pair) => pair.here(),
        }
    }
}

impl UpstreamConnection {
    /// Switches to HTTP/2 with this peer, from the first byte on.
    #[must_use]
    pub(crate) fn with_http2(self, peer: Http2Peer) -> UpstreamConnection {
        let carriage = match self.carriage {
            Carriage::Http1(stream) => {
                let http2 = UpstreamHttp2::new(peer, stream.is_tls());
                Carriage::Http2(stream, Box::new(http2))
            }
            other => other,
        };
        UpstreamConnection { carriage, ..self }
    }

    /// Switches to TLS, in a session that the TLS clients of this number have begun.
    #[must_use]
    pub(crate) fn with_tls(mut self, session: ClientSession, clients: u64) -> UpstreamConnection {
        if let Some(stream) = self.own_mut() {
            stream.seal(session, clients);
        }
        self
    }

    /// Makes a socket pair, and offers one end to this request's receiver over this connection, which
    /// is a link to it.
    ///
    /// # Errors
    /// There are no more descriptors.
    pub(crate) fn offering(self, request: PassedRequest) -> io::Result<UpstreamConnection> {
        let UpstreamConnection { carriage, id, address } = self;
        let Carriage::Http1(link) = carriage else {
            return Ok(UpstreamConnection { carriage, id, address });
        };
        let pair = OfferedPair::new(link, id, request)?;
        let carriage = Carriage::Offered(Box::new(pair));
        Ok(UpstreamConnection { carriage, id: SocketId::new(), address })
    }

    /// Drops what was made for one request, and keeps the link.
    #[must_use]
    pub(crate) fn without_offer(self) -> UpstreamConnection {
        match self.carriage {
            Carriage::Offered(pair) => {
                let (link, id) = pair.into_link();
                UpstreamConnection { carriage: Carriage::Http1(link), id, ..self }
            }
            _ => self,
        }
    }

    /// The offered socket pair, if the connection is one.
    pub(crate) fn offered(&self) -> Option<&OfferedPair> {
        match &self.carriage {
            Carriage::Offered(pair) => Some(pair),
            _ => None,
        }
    }

    /// The offered socket pair, for changes.
    pub(crate) fn offered_mut(&mut self) -> Option<&mut OfferedPair> {
        match &mut self.carriage {
            Carriage::Offered(pair) => Some(pair),
            _ => None,
        }
    }

    /// The stream and its address, if nothing was sent on it; `None` for a shared connection.
    pub(crate) fn into_stream(self) -> Option<(UpstreamStream, Option<SocketAddr>)> {
        match self.carriage {
            Carriage::Http1(stream) | Carriage::Http2(stream, _) => Some((stream, self.address)),
            Carriage::Shared(_) | Carriage::Offered(_) => None,
        }
    }

    /// The stream that the request has for itself.
    fn own(&self) -> Option<&UpstreamStream> {
        match &self.carriage {
            Carriage::Http1(stream) | Carriage::Http2(stream, _) => Some(stream),
            Carriage::Shared(_) | Carriage::Offered(_) => None,
        }
    }

    fn own_mut(&mut self) -> Option<&mut UpstreamStream> {
        match &mut self.carriage {
            Carriage::Http1(stream) | Carriage::Http2(stream, _) => Some(stream),
            Carriage::Shared(_) | Carriage::Offered(_) => None,
        }
    }

    /// The address of the connection, if the upstream has a name.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        match &self.carriage {
            Carriage::Shared(shared) => shared.address,
            Carriage::Http1(_) | Carriage::Http2(..) | Carriage::Offered(_) => self.address,
        }
    }

    /// The number of the TLS clients that began the session; `None` without TLS.
    pub(crate) fn clients(&self) -> Option<u64> {
        self.own()?.clients()
    }

    /// Whether the connection speaks HTTP/2.
    pub(crate) fn is_http2(&self) -> bool {
        matches!(self.carriage, Carriage::Http2(..) | Carriage::Shared(_))
    }

    /// Whether this is a stream of a shared connection.
    pub(crate) fn is_shared(&self) -> bool {
        matches!(self.carriage, Carriage::Shared(_))
    }

    /// Whether the request waits for a stream, because the application allows no more.
    pub(crate) fn waits_for_stream(&self) -> bool {
        matches!(&self.carriage, Carriage::Shared(shared) if shared.waits_for_stream)
    }

    /// Whether the shared connection had been used before, as far as that is known when a request is
    /// sent.
    pub(crate) fn was_resting(&self) -> bool {
        matches!(&self.carriage, Carriage::Shared(shared) if shared.is_reused)
    }

    /// Whether it is certain that nothing of the request has run, because the peer has said so.
    pub(crate) fn is_refused(&self) -> bool {
        match &self.carriage {
            Carriage::Http1(_) | Carriage::Offered(_) => false,
            Carriage::Http2(_, http2) => http2.is_refused(),
            Carriage::Shared(shared) => shared.end() == Some(AnswerEnd::Refused),
        }
    }

    /// Whether HTTP/2 has reported the end of the answer, and all of it was taken.
    pub(crate) fn is_over(&self) -> bool {
        match &self.carriage {
            Carriage::Http1(_) | Carriage::Offered(_) => false,
            Carriage::Http2(_, http2) => http2.is_over(),
            Carriage::Shared(shared) => shared.end() == Some(AnswerEnd::Whole),
        }
    }

    /// Whether some of the answer was received before it was wanted.
    pub(crate) fn has_ahead(&self) -> bool {
        match &self.carriage {
            Carriage::Http1(_) | Carriage::Offered(_) => false,
            Carriage::Http2(_, http2) => http2.has_ahead(),
            Carriage::Shared(shared) => shared.has_ahead(),
        }
    }

    /// Whether the window allows some of a body to be sent.
    pub(crate) fn has_room(&self) -> bool {
        match &self.carriage {
            Carriage::Http1(_) | Carriage::Offered(_) => true,
            Carriage::Http2(_, http2) => http2.has_room(),
            Carriage::Shared(shared) => shared.has_room(),
        }
    }

    /// The trailers of an answer over HTTP/2.
    pub(crate) fn trailers(&self) -> &[(Box<str>, Box<[u8]>)] {
        match &self.carriage {
            Carriage::Http1(_) | Carriage::Offered(_) => &[],
            Carriage::Http2(_, http2) => http2.trailers(),
            Carriage::Shared(shared) => shared.trailers(),
        }
    }

    /// Sends these bytes before all others, and in clear even with TLS. Returns whether that was
    /// arranged; if not, the caller sends them like any others.
    pub(crate) fn begin_in_clear(&mut self, bytes: &[u8]) -> bool {
        match &mut self.carriage {
            // they go before the preface of HTTP/2, and are no part of its frames
            Carriage::Http2(stream, http2) if !stream.is_tls() => {
                http2.begin_in_clear(bytes);
                true
            }
            Carriage::Http1(stream) | Carriage::Http2(stream, _) => stream.begin_in_clear(bytes),
            // a request with a preface has a connection for itself
            Carriage::Shared(_) | Carriage::Offered(_) => false,
        }
    }

    /// The socket events that are needed before the connection is established.
    pub(crate) fn wants_to_connect(&self) -> Wants {
        let reads = self.is_shared() || self.shakes();
        Wants { read: reads, write: !reads }
    }

    /// Whether the upstream accepts connections, and its part of the TLS handshake is awaited.
    pub(crate) fn shakes(&self) -> bool {
        self.own().and_then(UpstreamStream::handshake_reads).unwrap_or_default()
    }

    /// Whether the TLS session was resumed; `None` without TLS.
    pub(crate) fn is_resumed(&self) -> Option<bool> {
        match &self.carriage {
            Carriage::Shared(shared) => shared.is_resumed,
            Carriage::Offered(_) => None,
            Carriage::Http1(stream) | Carriage::Http2(stream, _) => stream.is_resumed(),
        }
    }

    /// Why TLS has failed, if so.
    pub(crate) fn fault(&self) -> Option<TlsFault> {
        match &self.carriage {
            Carriage::Shared(shared) => shared.fault,
            Carriage::Offered(_) => None,
            Carriage::Http1(stream) | Carriage::Http2(stream, _) => stream.fault(),
        }
    }

    /// Whether something that counts as sent waits for the socket.
    pub(crate) fn has_unsent(&self) -> bool {
        match &self.carriage {
            Carriage::Http1(stream) => stream.has_unsent(),
            Carriage::Http2(stream, http2) => stream.has_unsent() || http2.has_unsent(),
            // the carrier sends what waits on shared connections
            Carriage::Shared(_) => false,
            Carriage::Offered(pair) => pair.has_unsent(),
        }
    }

    /// Whether a [send](UpstreamConnection::send) without bytes does something; `ends` says that
    /// nothing follows.
    pub(crate) fn wants_to_send(&self, ends: bool) -> bool {
        match &self.carriage {
            Carriage::Http1(stream) => stream.has_unsent(),
            Carriage::Http2(stream, http2) => stream.has_unsent() || http2.wants_to_send(ends),
            Carriage::Shared(shared) => shared.wants_to_send(ends),
            Carriage::Offered(pair) => pair.has_unsent(),
        }
    }

    /// Whether another request may be sent on a connection that was idle for a while.
    pub(crate) fn is_fit(&mut self, now_ms: u64) -> bool {
        match &mut self.carriage {
            Carriage::Http1(stream) => stream.is_quiet(),
            Carriage::Http2(stream, http2) => http2.is_fit(stream, now_ms),
            Carriage::Shared(_) | Carriage::Offered(_) => false,
        }
    }

    /// Whether another request may be sent after the end of this one. A shared stream is for one
    /// request.
    pub(crate) fn ends_clean(&mut self) -> bool {
        match &mut self.carriage {
            Carriage::Http1(stream) => stream.rests(),
            Carriage::Http2(stream, http2) => http2.ends_clean(stream) && stream.rests(),
            Carriage::Shared(shared) => {
                shared.is_done();
                false
            }
            Carriage::Offered(pair) => pair.is_done(),
        }
    }

    /// Sends the first bytes of a request, if the connection is established; `ends` says that they
    /// are the last.
    ///
    /// # Errors
    /// Why the connection is not established, and will not be.
    pub(crate) fn begin(&mut self, bytes: &[u8], ends: bool) -> Result<Sent, ConnectError> {
        match &mut self.carriage {
            Carriage::Http1(stream) => stream.begin(bytes),
            Carriage::Http2(stream, http2) => http2.begin(stream, bytes, ends),
            Carriage::Shared(shared) => shared.begin(bytes, ends),
            Carriage::Offered(pair) => Ok(pair.send(bytes)),
        }
    }

    /// Sends some of a request; `ends` says that it is the last part.
    pub(crate) fn send(&mut self, bytes: &[u8], ends: bool) -> Sent {
        match &mut self.carriage {
            Carriage::Http1(stream) => stream.send(bytes),
            Carriage::Http2(stream, http2) => http2.send(stream, bytes, ends),
            Carriage::Shared(shared) => shared.send(bytes, ends),
            Carriage::Offered(pair) => pair.send(bytes),
        }
    }

    /// Sends the trailers of a request.
    pub(crate) fn end_with(&mut self, trailers: &[u8]) {
        match &mut self.carriage {
            Carriage::Http1(_) | Carriage::Offered(_) => {}
            Carriage::Http2(stream, http2) => http2.end_with(stream, trailers),
            Carriage::Shared(shared) => shared.end_with(trailers),
        }
    }

    /// Cancels the answer, where the protocol allows that. A shared stream is cancelled when it is
    /// dropped.
    pub(crate) fn cancel(&mut self) {
        if let Carriage::Http2(stream, http2) = &mut self.carriage {
            http2.cancel(stream);
        }
    }

    /// Receives bytes that are not wanted yet, so that what follows them can let the request go on.
    /// Returns whether more may be there.
    pub(crate) fn look_ahead(&mut self, now_ms: u64) -> bool {
        match &mut self.carriage {
            Carriage::Http1(_) | Carriage::Offered(_) => false,
            Carriage::Http2(stream, http2) => http2.look_ahead(stream, now_ms),
            Carriage::Shared(shared) => shared.look_ahead(),
        }
    }

    /// Shuts down sending; the upstream can still send. Returns whether that is done: the socket may
    /// have to take more before.
    pub(crate) fn end_writing(&mut self) -> bool {
        self.own_mut().is_none_or(UpstreamStream::end_writing)
    }

    /// Appends at most `most` bytes of the answer.
    pub(crate) fn receive_more(
        &mut self,
        into: &mut Vec<u8>,
        most: usize,
        now_ms: u64,
    ) -> Received {
        match &mut self.carriage {
            Carriage::Http1(stream) => stream.receive_more(into, most),
            Carriage::Http2(stream, http2) => http2.receive(stream, into, most, now_ms),
            Carriage::Shared(shared) => shared.receive(into, most),
            Carriage::Offered(pair) => pair.receive_more(into, most),
        }
    }
}
