//! The sockets, other than its client's, that a connection's requests wait for, in the epoll of its
//! loop.
//!
//! A socket may be used by one request after another, and stays in the epoll meanwhile; the kernel
//! removes it when it is closed. Its owner changes here, without a system call. A report about a
//! socket that no request waits for is noted: the next request gets it.
//!
//! A socket that is closed is forgotten when another one has its descriptor, so there are never
//! more entries than descriptors.

use crate::loops::watched_listeners::SOCKETS;
use crate::order::ranks::RequestKey;
use forebay_conn::{RequestId, SocketId, Wants};
use forebay_sys::epoll::{Edges, Epoll};
use slab::Slab;
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

/// All such sockets of a loop.
#[derive(Debug, Default)]
pub(crate) struct Sockets {
    known: Slab<KnownSocket>,
    /// The place of the last socket that had this descriptor. It may have been closed since.
    places: BTreeMap<RawFd, usize>,
    /// A counter that distinguishes a socket from an earlier one in the same place.
    generation: u32,
    /// Threads take sockets over from one another; a report that comes meanwhile may go to the
    /// earlier request.
    is_shared: bool,
}

/// Whom it concerns that the kernel reports a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SocketReport {
    /// The request that waits for it.
    Request(RequestKey),
    /// No request waits for it.
    Unowned(SocketId),
}

impl SocketReport {
    /// The request that waits for it, if one does.
    pub(crate) fn request(self) -> Option<RequestKey> {
        match self {
            SocketReport::Request(request) => Some(request),
            SocketReport::Unowned(_) => None,
        }
    }
}

/// A socket that was added to the epoll.
#[derive(Debug)]
struct KnownSocket {
    id: SocketId,
    token: u64,
    /// The edges that the kernel reports.
    edges: Edges,
    /// The request that waits for the socket.
    owner: Option<RequestKey>,
    /// The kernel reported something while no request waited.
    has_stirred: bool,
}

/// The sockets of one connection.
#[derive(Debug, Default)]
pub(crate) struct Watched(Vec<WatchedSocket>);

#[derive(Clone, Copy, Debug)]
struct WatchedSocket {
    id: SocketId,
    /// The place of the socket among those that are known, as long as it is open.
    place: usize,
    /// The request that has named the socket last.
    owner: RequestKey,
    /// A request still names the socket.
    is_named: bool,
}

impl Watched {
    /// Whether the connection has no such socket.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Sockets {
    /// Sockets of threads with one epoll.
    pub(crate) fn shared() -> Sockets {
        Sockets { is_shared: true, ..Sockets::default() }
    }

    /// Takes a report about the socket with this token: returns what it concerns, if the socket is still known.
    pub(crate) fn ready(&mut self, token: u64) -> Option<SocketReport> {
        let known = self.known.get_mut((token & 0xffff_ffff) as usize)?;
        if known.token != token {
            return None;
        }
        known.has_stirred |= known.owner.is_none();
        Some(known.owner.map_or(SocketReport::Unowned(known.id), SocketReport::Request))
    }

    /// Has the kernel report the sockets that this connection's requests wait for now, each once
    /// more, and no others; `name_all` names them. Returns whether that worked.
    pub(crate) fn watch<'s>(
        &mut self,
        watched: &mut Watched,
        connection: u64,
        epoll: &Epoll,
        name_all: impl FnOnce(&mut dyn FnMut(RequestId, SocketId, BorrowedFd<'s>, Wants)),
    ) -> bool {
        let entries = &mut watched.0;
        entries.iter_mut().for_each(|entry| entry.is_named = false);
        let mut is_well = true;
        name_all(&mut |request, id, socket, wants| {
            let wanted = edges(wants);
            let owner = RequestKey { connection, request };
            match entries.iter_mut().find(|entry| entry.id == id) {
                Some(entry) => {
                    (entry.owner, entry.is_named) = (owner, true);
                    let is_shared = self.is_shared;
                    is_well &= self.known[entry.place].own(owner, socket, wanted, epoll, is_shared);
                }
                None => match self.add(epoll, socket, wanted, owner, id) {
                    Some(place) => {
                        entries.push(WatchedSocket { id, place, owner, is_named: true });
                    }
                    None => is_well = false,
                },
            }
        });
        entries.retain(|entry| {
            if !entry.is_named {
                self.leave(entry);
            }
            entry.is_named
        });
        is_well
    }

    /// Has the kernel report a socket that this connection has not named before. Returns its place.
    fn add(
        &mut self,
        epoll: &Epoll,
        socket: BorrowedFd<'_>,
        wanted: Edges,
        owner: RequestKey,
        id: SocketId,
    ) -> Option<usize> {
        if let Some(&place) = self.places.get(&socket.as_raw_fd()) {
            let known = &mut self.known[place];
            if known.id == id {
                // another request has used it before
                let is_well = known.own(owner, socket, wanted, epoll, self.is_shared);
                return is_well.then_some(place);
            }
            // that socket was closed, as another one has its descriptor
            self.known.remove(place);
            self.places.remove(&socket.as_raw_fd());
        }
        self.generation = self.generation.wrapping_add(1);
        let entry = self.known.vacant_entry();
        let place = entry.key();
        let token = SOCKETS | u64::from(self.generation & 0x3fff_ffff) << 32 | place as u64;
        epoll.add_edges(socket, token, wanted).ok()?;
        let owner = Some(owner);
        entry.insert(KnownSocket { id, token, edges: wanted, owner, has_stirred: false });
        self.places.insert(socket.as_raw_fd(), place);
        Some(place)
    }

    /// Forgets the sockets of a connection that has ended.
    pub(crate) fn forget(&mut self, watched: &mut Watched) {
        watched.0.drain(..).for_each(|entry| self.leave(&entry));
    }

    /// Notes that a request names this socket no longer. The socket may be closed, and another one
    /// may be in its place; or a request of another connection has it already.
    fn leave(&mut self, entry: &WatchedSocket) {
        if let Some(known) = self.known.get_mut(entry.place)
            && known.id == entry.id
            && known.owner == Some(entry.owner)
        {
            known.owner = None;
        }
    }
}

impl KnownSocket {
    /// Has this request wait for the socket from now on. Returns whether that worked.
    fn own(
        &mut self,
        owner: RequestKey,
        socket: BorrowedFd<'_>,
        wanted: Edges,
        epoll: &Epoll,
        is_shared: bool,
    ) -> bool {
        let is_taken_over = self.owner.replace(owner) != Some(owner);
        let all = self.edges | wanted;
        let has_stirred = std::mem::take(&mut self.has_stirred) || (is_shared && is_taken_over);
        // changing the events makes an edge-triggered epoll report once more what is there already
        if all != self.edges || has_stirred {
            self.edges = all;
            return epoll.change_edges(socket, self.token, all).is_ok();
        }
        true
    }
}

fn edges(wants: Wants) -> Edges {
    Edges { read: wants.read, write: wants.write }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_sys::epoll::Events;
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    const READ: Wants = Wants { read: true, write: false };

    /// The sockets of a loop, without the loop.
    struct Loop {
        epoll: Epoll,
        events: Events,
        sockets: Sockets,
    }

    impl Loop {
        fn new(sockets: Sockets) -> Loop {
            Loop { epoll: Epoll::new().unwrap(), events: Events::with_capacity(8), sockets }
        }

        /// This connection names these sockets, each for one of its requests.
        fn names(&mut self, who: &mut Watched, connection: u64, all: &[(u32, &Socket, Wants)]) {
            let Loop { sockets, epoll, .. } = self;
            assert!(sockets.watch(who, connection, epoll, |tell| {
                for (request, socket, wants) in all {
                    tell(RequestId(*request), socket.id, socket.own.as_fd(), *wants);
                }
            }));
        }

        /// The requests that get the reports of what is there.
        fn told(&mut self) -> Vec<(u64, u32)> {
            let reports = self.reports().into_iter();
            let owners = reports.filter_map(SocketReport::request);
            owners.map(|owner| (owner.connection, owner.request.0)).collect()
        }

        fn reports(&mut self) -> Vec<SocketReport> {
            self.epoll.wait(&mut self.events, 0).unwrap();
            self.events.iter().filter_map(|ready| self.sockets.ready(ready.token)).collect()
        }
    }

    struct Socket {
        id: SocketId,
        own: UnixStream,
        other: UnixStream,
    }

    fn socket() -> Socket {
        let (own, other) = UnixStream::pair().unwrap();
        own.set_nonblocking(true).unwrap();
        Socket { id: SocketId::new(), own, other }
    }

    #[test]
    fn the_next_request_hears_of_what_came_before_it() {
        let mut here = Loop::new(Sockets::default());
        let (mut first, mut second) = (Watched::default(), Watched::default());
        let mut one = socket();
        here.names(&mut first, 1, &[(1, &one, READ)]);
        one.other.write_all(b"a").unwrap();
        assert_eq!(here.told(), [(1, 1)]);
        one.own.read_exact(&mut [0]).unwrap();
        here.names(&mut first, 1, &[]);
        // the other end closes while no request has the socket
        drop(one.other);
        assert_eq!(here.reports(), [SocketReport::Unowned(one.id)]);
        let ended = Socket { other: socket().other, ..one };
        here.names(&mut second, 2, &[(7, &ended, READ)]);
        assert_eq!(here.told(), [(2, 7)]);
        assert_eq!(here.told(), [], "once");
    }

    #[test]
    fn a_socket_that_has_gone_over_stays_with_the_other_request() {
        let mut here = Loop::new(Sockets::default());
        let (mut first, mut second) = (Watched::default(), Watched::default());
        let mut one = socket();
        here.names(&mut first, 1, &[(1, &one, READ)]);
        // the second connection names the socket before the first has let go of it
        here.names(&mut second, 2, &[(1, &one, READ)]);
        here.names(&mut first, 1, &[]);
        one.other.write_all(b"a").unwrap();
        assert_eq!(here.told(), [(2, 1)]);
        // the same holds between streams of one connection
        here.names(&mut second, 2, &[(3, &one, READ)]);
        one.other.write_all(b"a").unwrap();
        assert_eq!(here.told(), [(2, 3)]);
        // a connection that ends with the socket does not keep it from others
        here.sockets.forget(&mut second);
        one.other.write_all(b"a").unwrap();
        assert_eq!(here.told(), []);
        here.names(&mut first, 1, &[(5, &one, READ)]);
        assert_eq!(here.told(), [(1, 5)]);
    }

    #[test]
    fn another_socket_with_the_same_descriptor_is_another() {
        let mut here = Loop::new(Sockets::default());
        let (mut first, mut second) = (Watched::default(), Watched::default());
        // tests that run beside this one may take the number that has become free
        let (before, mut next) = loop {
            let one = socket();
            here.names(&mut first, 1, &[(1, &one, READ)]);
            let number = one.own.as_raw_fd();
            drop(one);
            let next = socket();
            if next.own.as_raw_fd() == number {
                break (here.sockets.places[&number], next);
            }
        };
        next.other.write_all(b"a").unwrap();
        here.names(&mut second, 2, &[(1, &next, READ)]);
        // a socket in the same place, which the first connection yet does not take away
        assert_eq!(here.sockets.places[&next.own.as_raw_fd()], before);
        here.names(&mut first, 1, &[]);
        assert_eq!(here.told(), [(2, 1)]);
    }

    #[test]
    fn threads_miss_nothing_that_was_told_the_request_before() {
        let mut here = Loop::new(Sockets::shared());
        let (mut first, mut second) = (Watched::default(), Watched::default());
        let mut one = socket();
        here.names(&mut first, 1, &[(1, &one, READ)]);
        // a thread has taken the socket over and sent its request, and the answer arrives before it
        // says so
        one.other.write_all(b"a").unwrap();
        assert_eq!(here.told(), [(1, 1)]);
        here.names(&mut first, 1, &[]);
        here.names(&mut second, 2, &[(1, &one, READ)]);
        assert_eq!(here.told(), [(2, 1)]);
    }

    #[test]
    fn those_that_are_closed_take_no_memory_for_ever() {
        let mut here = Loop::new(Sockets::default());
        let mut first = Watched::default();
        for request in 0..10_000 {
            let one = socket();
            here.names(&mut first, 1, &[(request, &one, READ)]);
        }
        assert!(here.sockets.known.len() < 1_000, "{}", here.sockets.known.len());
        assert_eq!(here.sockets.known.len(), here.sockets.places.len());
        assert_eq!(first.0.len(), 1);
    }
}
