//! A stream of a shared connection, as its exchange has it: it sends and receives what HTTP/1.1
//! would, and waits for an eventfd.

use super::set::{Connects, SharedConnectionLimits, SharedSet};
use super::{SharedConnections, carrier};
use crate::group::MemberIndex;
use crate::upstreams::Upstreams;
use crate::upstreams::http2::AnswerEnd;
use crate::upstreams::http2::text::TrailerFields;
use crate::upstreams::stream::{ConnectError, UpstreamStream};
use forebay_sys::clock;
use forebay_sys::epoll::Bell;
use forebay_sys::socket::{Received, Sent};
use forebay_tls::TlsFault;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// The part of a request in shared connections. When it is dropped, its stream is reset if it is not
/// over.
#[derive(Debug)]
pub(crate) struct SharedStream {
    upstreams: Arc<Upstreams>,
    member: MemberIndex,
    connections: Arc<SharedConnections>,
    bell: Arc<Bell>,
    id: u64,
    /// The addresses at which there was no connection for this request.
    refused: Vec<SocketAddr>,
    /// The address of the connection that the request has or waits for.
    pub(crate) address: Option<SocketAddr>,
    /// Whether the request waits for a stream, and not for a connection.
    pub(crate) waits_for_stream: bool,
    /// Whether the exchange has all it wants.
    is_done: bool,
    /// How the answer has ended, once all of it was taken.
    end: Option<AnswerEnd>,
    trailers: TrailerFields,
    /// Whether the TLS session that was begun for this request was resumed; `None` if none was begun.
    pub(crate) is_resumed: Option<bool>,
    /// Whether the connection had been used and idle before this request.
    pub(crate) is_reused: bool,
    pub(crate) fault: Option<TlsFault>,
}

/// Begins connections to an upstream.
struct MemberConnects<'a> {
    upstreams: &'a Upstreams,
    member: MemberIndex,
    refused: &'a [SocketAddr],
    connections: &'a Arc<SharedConnections>,
    now_ms: u64,
}

impl Connects for MemberConnects<'_> {
    fn connect(&mut self, number: u64) -> io::Result<(UpstreamStream, Option<SocketAddr>)> {
        let begun = self.upstreams.connect(self.member, self.refused, true, self.now_ms)?;
        let (stream, address) = begun.into_stream().ok_or(io::ErrorKind::Unsupported)?;
        carrier::watch(&stream, number, self.connections)?;
        Ok((stream, address))
    }

    fn is_current(&self, address: Option<SocketAddr>, clients: Option<u64>) -> bool {
        self.upstreams.leads(self.member, address, clients)
    }
}

impl SharedStream {
    /// The part of a request in the connections to this upstream. A connection is begun if there are
    /// fewer than allowed and none is idle. Returns `None` if there is no thread to read them.
    ///
    /// # Errors
    /// There is no connection, and none can be begun.
    pub(crate) fn new(
        upstreams: &Arc<Upstreams>,
        member: MemberIndex,
        refused: &[SocketAddr],
        limits: SharedConnectionLimits,
        now_ms: u64,
    ) -> io::Result<Option<SharedStream>> {
        let Some(connections) = upstreams.shared(member).filter(|_| carrier::is_there()) else {
            return Ok(None);
        };
        let bell = Arc::new(Bell::new()?);
        let id = connections.with(|set| set.enter(Arc::clone(&bell), limits));
        let mut stream = SharedStream {
            upstreams: Arc::clone(upstreams),
            member,
            connections: Arc::clone(connections),
            bell,
            id,
            refused: refused.to_vec(),
            address: None,
            waits_for_stream: false,
            is_done: false,
            end: None,
            trailers: Vec::new(),
            is_resumed: None,
            is_reused: false,
            fault: None,
        };
        stream.seat(now_ms)?;
        Ok(Some(stream))
    }

    /// Gets a connection, if the request has none.
    fn seat(&mut self, now_ms: u64) -> io::Result<()> {
        let mut connects = MemberConnects {
            upstreams: &self.upstreams,
            member: self.member,
            refused: &self.refused,
            connections: &self.connections,
            now_ms,
        };
        let id = self.id;
        let seated = self.connections.with(|set| match set.needs_seat(id) {
            true => set.seat(id, &mut connects, now_ms).map(Some),
            false => Ok(None),
        });
        if let Some(address) = seated? {
            self.address = address;
        }
        Ok(())
    }

    /// Sends the first bytes of a request, if there is a stream for it.
    ///
    /// # Errors
    /// Why there is no connection, and will be none.
    pub(crate) fn begin(&mut self, bytes: &[u8], ends: bool) -> Result<Sent, ConnectError> {
        let (id, now_ms) = (self.id, clock::coarse_ms());
        self.seat(now_ms)?;
        let (begun, waits, told) = self.connections.with(|set| {
            let begun = set.begin(id, bytes, ends, now_ms);
            let waits = set.waits_for_stream(id);
            let told = set.open(id).map(|(request, connection, _)| {
                (request.is_late_guest, connection.take_handshake())
            });
            (begun, waits, told)
        });
        self.waits_for_stream = waits;
        if let Some((is_reused, handshake)) = told {
            (self.is_reused, self.is_resumed) = (is_reused, handshake);
        }
        begun
    }

    /// Sends some of a request; `ends` says that it is the last part. Returns how many bytes were
    /// taken. If there is no room for any, the bell rings when there is.
    pub(crate) fn send(&mut self, bytes: &[u8], ends: bool) -> Sent {
        let id = self.id;
        self.connections.with(|set| match set.open(id) {
            Some((request, connection, stream)) => {
                Sent::Bytes(connection.send(id, stream, request, bytes, ends))
            }
            None => Sent::Broken,
        })
    }

    /// Sends the trailers of a request, which end it.
    pub(crate) fn end_with(&mut self, trailers: &[u8]) {
        let id = self.id;
        self.connections.with(|set| {
            if let Some((request, connection, stream)) = set.open(id) {
                connection.end_with(stream, request, trailers);
            }
        });
    }

    /// Whether some of a body may be sent now.
    pub(crate) fn has_room(&self) -> bool {
        let open = |set: &mut SharedSet| {
            set.open(self.id).is_some_and(|(_, connection, stream)| connection.has_room(stream))
        };
        self.connections.with(open)
    }

    /// Whether a [`send`](SharedStream::send) without bytes does something.
    pub(crate) fn wants_to_send(&self, ends: bool) -> bool {
        ends && self.connections.with(|set| {
            set.open(self.id).is_some_and(|(request, connection, stream)| {
                !request.has_ended && request.end.is_none() && connection.may_end(stream)
            })
        })
    }

    /// Appends at most `most` bytes of the answer.
    pub(crate) fn receive(&mut self, into: &mut Vec<u8>, most: usize) -> Received {
        let id = self.id;
        let (received, end, trailers, fault) = self.connections.with(|set| {
            let received = set.receive(id, into, most);
            let request = set.requests.get_mut(&id).filter(|request| !request.has_more());
            let (end, trailers, fault) = match request {
                Some(one) => (one.end, std::mem::take(&mut one.trailers), one.fault),
                None => (None, Vec::new(), None),
            };
            (received, end, trailers, fault)
        });
        (self.end, self.fault) = (end, fault);
        if !trailers.is_empty() {
            self.trailers = trailers;
        }
        received
    }

    /// Waits for room for more of the request, while its client takes nothing of the answer. Returns
    /// whether there is some, or news of the answer.
    pub(crate) fn look_ahead(&mut self) -> bool {
        let id = self.id;
        self.connections.with(|set| {
            let Some((request, connection, stream)) = set.open(id) else { return true };
            if connection.has_room(stream) || request.has_more() || request.end.is_some() {
                return true;
            }
            connection.want_room(id);
            request.hush();
            false
        })
    }

    /// Whether something of the answer is here, even if only its end. What was looked at does not
    /// ring again.
    pub(crate) fn has_ahead(&self) -> bool {
        let has_news = |set: &mut SharedSet| {
            set.requests
                .get(&self.id)
                .is_some_and(|request| request.has_more() || request.end.is_some())
        };
        self.connections.with(has_news)
    }

    /// How the answer has ended, once all of it was taken.
    pub(crate) fn end(&self) -> Option<AnswerEnd> {
        self.end
    }

    /// The trailers of the answer.
    pub(crate) fn trailers(&self) -> &[(Box<str>, Box<[u8]>)] {
        &self.trailers
    }

    /// Notes that the exchange has all it wants: the end of the answer may come later.
    pub(crate) fn is_done(&mut self) {
        self.is_done = true;
    }
}

impl AsFd for SharedStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

impl Drop for SharedStream {
    fn drop(&mut self) {
        let (id, is_done, now_ms) = (self.id, self.is_done, clock::coarse_ms());
        self.connections.with(|set| set.leave(id, is_done, now_ms));
    }
}
