//! A connection to an upstream, in either version of HTTP; or a stream of one that others share.

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
    /// What loops know it by.
    pub(crate) id: SocketId,
    /// Where it leads, of the addresses that a name has.
    address: Option<SocketAddr>,
}

/// What carries a request and its answer.
#[derive(Debug)]
enum Carriage {
    /// A connection in HTTP/1.1 that it has for itself.
    Http1(UpstreamStream),
    /// The same in HTTP/2.
    Http2(UpstreamStream, Box<UpstreamHttp2>),
    /// A stream of a connection that others have, too.
    Shared(Box<SharedStream>),
    /// One end of a pair, in HTTP/1.1; a receiver is offered the other.
    Offered(Box<OfferedPair>),
}

impl UpstreamConnection {
    /// To one of the addresses of a name.
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
    /// The same, on which HTTP/2 is spoken with this peer from its first byte on.
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

    /// The same through TLS: by a session that clients of this number have begun.
    #[must_use]
    pub(crate) fn with_tls(mut self, session: ClientSession, clients: u64) -> UpstreamConnection {
        if let Some(stream) = self.own_mut() {
            stream.seal(session, clients);
        }
        self
    }

    /// A pair of which this request's receiver is offered one end over this connection, which is a link to it.
    ///
    /// # Errors
    /// Lack of descriptors.
    pub(crate) fn offering(self, request: PassedRequest) -> io::Result<UpstreamConnection> {
        let UpstreamConnection { carriage, id, address } = self;
        let Carriage::Http1(link) = carriage else {
            return Ok(UpstreamConnection { carriage, id, address });
        };
        let pair = OfferedPair::new(link, id, request)?;
        let carriage = Carriage::Offered(Box::new(pair));
        Ok(UpstreamConnection { carriage, id: SocketId::new(), address })
    }

    /// The same without what was made for one request.
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

    /// The pair of which a receiver is offered one end, if it is one.
    pub(crate) fn offered(&self) -> Option<&OfferedPair> {
        match &self.carriage {
            Carriage::Offered(pair) => Some(pair),
            _ => None,
        }
    }

    /// The same, to be changed.
    pub(crate) fn offered_mut(&mut self) -> Option<&mut OfferedPair> {
        match &mut self.carriage {
            Carriage::Offered(pair) => Some(pair),
            _ => None,
        }
    }

    /// Its bytes and where they lead, if nothing was said on it; `None` of one that is shared.
    pub(crate) fn into_stream(self) -> Option<(UpstreamStream, Option<SocketAddr>)> {
        match self.carriage {
            Carriage::Http1(stream) | Carriage::Http2(stream, _) => Some((stream, self.address)),
            Carriage::Shared(_) | Carriage::Offered(_) => None,
        }
    }

    /// What its request has for itself.
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

    /// Where it leads, of the addresses that a name has.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        match &self.carriage {
            Carriage::Shared(shared) => shared.address,
            Carriage::Http1(_) | Carriage::Http2(..) | Carriage::Offered(_) => self.address,
        }
    }

    /// The number of the clients that have begun its session; `None` without TLS.
    pub(crate) fn clients(&self) -> Option<u64> {
        self.own()?.clients()
    }

    /// Whether HTTP/2 is spoken.
    pub(crate) fn is_http2(&self) -> bool {
        matches!(self.carriage, Carriage::Http2(..) | Carriage::Shared(_))
    }

    /// Whether it is a stream of a connection that others have, too.
    pub(crate) fn is_shared(&self) -> bool {
        matches!(self.carriage, Carriage::Shared(_))
    }

    /// Whether it waits for a stream, as all that the application takes are under way.
    pub(crate) fn waits_for_stream(&self) -> bool {
        matches!(&self.carriage, Carriage::Shared(shared) if shared.waits_for_stream)
    }

    /// Whether its connection had been used before, as far as that shows when a request is sent.
    pub(crate) fn was_resting(&self) -> bool {
        matches!(&self.carriage, Carriage::Shared(shared) if shared.is_reused)
    }

    /// Whether nothing of the request has run for certain, because its peer has said so.
    pub(crate) fn is_refused(&self) -> bool {
        match &self.carriage {
            Carriage::Http1(_) | Carriage::Offered(_) => false,
            Carriage::Http2(_, http2) => http2.is_refused(),
            Carriage::Shared(shared) => shared.end() == Some(AnswerEnd::Refused),
        }
    }

    /// Whether HTTP/2 has said that all of the answer was there, and it was taken.
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

    /// Whether the window lets some of a body be sent.
    pub(crate) fn has_room(&self) -> bool {
        match &self.carriage {
            Carriage::Http1(_) | Carriage::Offered(_) => true,
            Carriage::Http2(_, http2) => http2.has_room(),
            Carriage::Shared(shared) => shared.has_room(),
        }
    }

    /// What HTTP/2 has said behind the body of the answer.
    pub(crate) fn trailers(&self) -> &[(Box<str>, Box<[u8]>)] {
        match &self.carriage {
            Carriage::Http1(_) | Carriage::Offered(_) => &[],
            Carriage::Http2(_, http2) => http2.trailers(),
            Carriage::Shared(shared) => shared.trailers(),
        }
    }

    /// Sends these bytes before all others, in clear though all others are sealed. Whether others are: else they are
    /// like any.
    pub(crate) fn begin_in_clear(&mut self, bytes: &[u8]) -> bool {
        match &mut self.carriage {
            // they go before the preface of HTTP/2, and are no part of what that says
            Carriage::Http2(stream, http2) if !stream.is_tls() => {
                http2.begin_in_clear(bytes);
                true
            }
            Carriage::Http1(stream) | Carriage::Http2(stream, _) => stream.begin_in_clear(bytes),
            // whoever has something to say first has a connection for itself
            Carriage::Shared(_) | Carriage::Offered(_) => false,
        }
    }

    /// What must happen with the socket before the connection has come about.
    pub(crate) fn wants_to_connect(&self) -> Wants {
        let reads = self.is_shared() || self.shakes();
        Wants { read: reads, write: !reads }
    }

    /// Whether it takes connections, and its words in the handshake of TLS are waited for.
    pub(crate) fn shakes(&self) -> bool {
        self.own().and_then(UpstreamStream::handshake_reads).unwrap_or_default()
    }

    /// Whether the session of TLS continues an earlier one; `None` without TLS.
    pub(crate) fn is_resumed(&self) -> Option<bool> {
        match &self.carriage {
            Carriage::Shared(shared) => shared.is_resumed,
            Carriage::Offered(_) => None,
            Carriage::Http1(stream) | Carriage::Http2(stream, _) => stream.is_resumed(),
        }
    }

    /// Why TLS goes no further, if that is so.
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
            // others see to that
            Carriage::Shared(_) => false,
            Carriage::Offered(pair) => pair.has_unsent(),
        }
    }

    /// Whether a [send](UpstreamConnection::send) without bytes does something; `ends` if nothing follows.
    pub(crate) fn wants_to_send(&self, ends: bool) -> bool {
        match &self.carriage {
            Carriage::Http1(stream) => stream.has_unsent(),
            Carriage::Http2(stream, http2) => stream.has_unsent() || http2.wants_to_send(ends),
            Carriage::Shared(shared) => shared.wants_to_send(ends),
            Carriage::Offered(pair) => pair.has_unsent(),
        }
    }

    /// Whether another request may be sent on it, which nothing was asked of for a while.
    pub(crate) fn is_fit(&mut self, now_ms: u64) -> bool {
        match &mut self.carriage {
            Carriage::Http1(stream) => stream.is_quiet(),
            Carriage::Http2(stream, http2) => http2.is_fit(stream, now_ms),
            Carriage::Shared(_) | Carriage::Offered(_) => false,
        }
    }

    /// Whether another request may be sent on it, of which the one before is over. A stream is for one.
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

    /// Sends the first of a request, if the connection has come about; `ends` if that is the last of it.
    ///
    /// # Errors
    /// Why it has not, and will not.
    pub(crate) fn begin(&mut self, bytes: &[u8], ends: bool) -> Result<Sent, ConnectError> {
        match &mut self.carriage {
            Carriage::Http1(stream) => stream.begin(bytes),
            Carriage::Http2(stream, http2) => http2.begin(stream, bytes, ends),
            Carriage::Shared(shared) => shared.begin(bytes, ends),
            Carriage::Offered(pair) => Ok(pair.send(bytes)),
        }
    }

    /// Sends some of a request; `ends` if that is the last of it.
    pub(crate) fn send(&mut self, bytes: &[u8], ends: bool) -> Sent {
        match &mut self.carriage {
            Carriage::Http1(stream) => stream.send(bytes),
            Carriage::Http2(stream, http2) => http2.send(stream, bytes, ends),
            Carriage::Shared(shared) => shared.send(bytes, ends),
            Carriage::Offered(pair) => pair.send(bytes),
        }
    }

    /// Sends what follows the body of a request.
    pub(crate) fn end_with(&mut self, trailers: &[u8]) {
        match &mut self.carriage {
            Carriage::Http1(_) | Carriage::Offered(_) => {}
            Carriage::Http2(stream, http2) => http2.end_with(stream, trailers),
            Carriage::Shared(shared) => shared.end_with(trailers),
        }
    }

    /// Says that the answer is not wanted any more, where that can be said. A stream says it when it is dropped.
    pub(crate) fn cancel(&mut self) {
        if let Carriage::Http2(stream, http2) = &mut self.carriage {
            http2.cancel(stream);
        }
    }

    /// Receives what is not wanted yet, so that what stands behind it lets the request go on. Says whether more may be
    /// there.
    pub(crate) fn look_ahead(&mut self, now_ms: u64) -> bool {
        match &mut self.carriage {
            Carriage::Http1(_) | Carriage::Offered(_) => false,
            Carriage::Http2(stream, http2) => http2.look_ahead(stream, now_ms),
            Carriage::Shared(shared) => shared.look_ahead(),
        }
    }

    /// Says that nothing more is sent; the upstream can still be heard. Whether it is said: the socket may have to
    /// take more before.
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
