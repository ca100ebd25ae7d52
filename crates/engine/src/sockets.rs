//! The sockets besides its client's that a connection's requests wait for, in the epoll of its loop.
//!
//! A socket may be used by one request after another, and stays in the epoll meanwhile: the kernel removes
//! it when it is closed. Whose it is changes here, without a system call. What is reported of one that no
//! request waits for is noted: the next request hears of it.

use crate::ranks::RequestKey;
use crate::watched_listeners::SOCKETS;
use forebay_conn::{Handler, Protocol, SocketId, Wants};
use forebay_sys::epoll::{Edges, Epoll};
use slab::Slab;
use std::collections::HashMap;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

/// All such sockets of a loop.
#[derive(Debug, Default)]
pub(crate) struct Sockets {
    known: Slab<KnownSocket>,
    /// The place of the last one that had this descriptor. It may be closed since.
    places: HashMap<RawFd, usize>,
    /// Tells a socket from an earlier one in the same place.
    generation: u32,
}

/// A socket that was added to the epoll.
#[derive(Debug)]
struct KnownSocket {
    id: SocketId,
    token: u64,
    /// What the kernel reports.
    edges: Edges,
    /// The request that waits for it.
    owner: Option<RequestKey>,
    /// Something was reported while no request waited.
    has_stirred: bool,
}

/// Those of one connection.
#[derive(Debug, Default)]
pub(crate) struct Watched(Vec<WatchedSocket>);

#[derive(Clone, Copy, Debug)]
struct WatchedSocket {
    id: SocketId,
    /// Its place among those that are known, as long as it is open.
    place: usize,
    /// The request that has named it last.
    owner: RequestKey,
    /// A request still names it.
    is_named: bool,
}

impl Watched {
    /// Whether there is none.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Sockets {
    /// The socket with this token is ready: says which request waits for it, if one does.
    pub(crate) fn ready(&mut self, token: u64) -> Option<RequestKey> {
        let known = self.known.get_mut((token & 0xffff_ffff) as usize)?;
        if known.token != token {
            return None;
        }
        known.has_stirred |= known.owner.is_none();
        known.owner
    }

    /// Has the kernel report those that the requests of this connection wait for now, each time anew, and
    /// none besides. Says whether that worked.
    pub(crate) fn watch<H: Handler>(
        &mut self,
        watched: &mut Watched,
        conn: &H::Protocol,
        connection: u64,
        epoll: &Epoll,
    ) -> bool {
        let entries = &mut watched.0;
        entries.iter_mut().for_each(|entry| entry.is_named = false);
        let mut is_well = true;
        conn.sockets(&mut |request, id, socket, wants| {
            let wanted = edges(wants);
            let owner = RequestKey { connection, request };
            match entries.iter_mut().find(|entry| entry.id == id) {
                Some(entry) => {
                    (entry.owner, entry.is_named) = (owner, true);
                    is_well &= self.known[entry.place].own(owner, socket, wanted, epoll);
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

    /// Has the kernel report one that this connection has not named before. Returns its place.
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
                return known.own(owner, socket, wanted, epoll).then_some(place);
            }
            // closed, as another has its descriptor
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

    /// The connection has ended.
    pub(crate) fn forget(&mut self, watched: &mut Watched) {
        watched.0.drain(..).for_each(|entry| self.leave(&entry));
    }

    /// A request names this one no longer. It may be closed, and another in its place; or a request of another
    /// connection has it already.
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
    /// From now on this request waits for it. Says whether that worked.
    fn own(
        &mut self,
        owner: RequestKey,
        socket: BorrowedFd<'_>,
        wanted: Edges,
        epoll: &Epoll,
    ) -> bool {
        self.owner = Some(owner);
        let all = self.edges | wanted;
        // what is there already is reported again by that
        if all != self.edges || std::mem::take(&mut self.has_stirred) {
            self.edges = all;
            return epoll.change_edges(socket, self.token, all).is_ok();
        }
        true
    }
}

fn edges(wants: Wants) -> Edges {
    Edges { read: wants.read, write: wants.write }
}
