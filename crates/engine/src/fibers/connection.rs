//! One connection of a loop, at rest or with a fiber that serves it, and what has happened to it
//! meanwhile.

use crate::connection::served::{EventOf, Served};
use crate::loops::deadlines::ConnectionTimer;
use crate::loops::ready_queue::Called;
use crate::loops::sockets::Watched;
use forebay_conn::{Handler, RequestId};
use forebay_control::ranked::Key;
use forebay_fiber::FiberId;
use std::collections::VecDeque;

/// A connection and what the loop must know about it.
pub(super) struct FiberConnection<H: Handler> {
    pub(super) token: u64,
    pub(super) place: ConnectionOwner<H>,
    /// The kernel reports the connection.
    pub(super) watched: bool,
    /// What the kernel has reported and the connection's fiber has not yet seen.
    pub(super) news: SocketNews,
    /// What has happened to the connection's requests and its fiber has not yet seen.
    pub(super) events: VecDeque<Happened<H>>,
    pub(super) timer: ConnectionTimer,
    /// The connection's place among those that make room while they are idle.
    pub(super) resting: Option<Key>,
    /// The connection's place among those whose clients take more of their answers.
    pub(super) sends: Option<Key>,
    /// The other sockets that the connection's requests wait for.
    pub(super) sockets: Watched,
}

/// The owner of a connection.
pub(super) enum ConnectionOwner<H: Handler> {
    /// The loop has the connection, without a fiber: it waits for its client, or for something to
    /// happen to its requests.
    AtRest(Box<Served<H>>),
    /// The fiber has the connection; if it waits, it waits for this.
    Served(Option<(FiberId, WakeEvents)>),
}

/// The events that wake a fiber, other than those of requests, deadlines and orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WakeEvents {
    pub(super) readable: bool,
    pub(super) writable: bool,
    /// The client has shut down writing.
    pub(super) ended: bool,
}

/// An event of a request.
pub(super) enum Happened<H: Handler> {
    /// The request's job has ended, its time has come, or its socket is ready.
    Event(EventOf<H>),
    /// The request's turn to be answered has come.
    Called(RequestId, Called),
}

/// The events that the kernel has reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SocketNews {
    pub(super) readable: bool,
    pub(super) ended: bool,
    pub(super) broken: bool,
}

impl SocketNews {
    /// Passes the report on to the connection; returns whether the connection is still there.
    #[inline]
    pub(super) fn tell<H: Handler>(self, served: &mut Served<H>) -> bool {
        served.has_come(self.readable | self.broken, self.ended);
        !self.broken || served.stream.has_ended()
    }
}

impl<H: Handler> FiberConnection<H> {
    pub(super) fn new(served: Served<H>, token: u64) -> Self {
        FiberConnection {
            token,
            place: ConnectionOwner::AtRest(Box::new(served)),
            watched: false,
            news: SocketNews::default(),
            events: VecDeque::new(),
            timer: ConnectionTimer::default(),
            resting: None,
            sends: None,
            sockets: Watched::default(),
        }
    }

    /// Takes the fiber that must be woken: it waits, and `wanted` says that it waits for this.
    pub(super) fn take_waiting(
        &mut self,
        wanted: impl FnOnce(WakeEvents) -> bool,
    ) -> Option<FiberId> {
        let ConnectionOwner::Served(waits) = &mut self.place else { return None };
        waits.take_if(|(_, needs)| wanted(*needs)).map(|(id, _)| id)
    }

    /// Takes the next event of the connection's requests.
    pub(super) fn next_event(&mut self) -> Option<Happened<H>> {
        let event = self.events.pop_front();
        if self.events.is_empty() && self.events.capacity() > 0 {
            self.events = VecDeque::new();
        }
        event
    }
}

/// The place of the connection with this token, if it is still there.
#[inline]
pub(super) fn key<H: Handler>(
    connections: &slab::Slab<FiberConnection<H>>,
    token: u64,
) -> Option<usize> {
    let key = (token & 0xffff_ffff) as usize;
    connections.get(key).filter(|connection| connection.token == token).map(|_| key)
}
