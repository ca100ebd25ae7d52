//! The sockets besides its client's that a connection's requests wait for, in the epoll of its loop.
//!
//! A socket may be used by one request after another, and stays in the epoll meanwhile: the kernel removes
//! it when it is closed. What is reported of one that no request waits for is passed over.

use crate::ranks::RequestKey;
use crate::watched_listeners::SOCKETS;
use forebay_conn::{Handler, Protocol, SocketId, Wants};
use forebay_sys::epoll::{Edges, Epoll};
use slab::Slab;
use std::collections::HashSet;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

/// All such sockets of a loop.
#[derive(Debug, Default)]
pub(crate) struct Sockets {
    owners: Slab<(u64, RequestKey)>,
    /// Tells a socket from an earlier one in the same place.
    generation: u32,
    /// Numbers of descriptors that were sockets in the epoll: one with such a number is likely to be
    /// there.
    known: HashSet<RawFd>,
}

/// Those of one connection.
#[derive(Debug, Default)]
pub(crate) struct Watched(Vec<WatchedSocket>);

#[derive(Clone, Copy, Debug)]
struct WatchedSocket {
    id: SocketId,
    /// Its place among the owners.
    key: usize,
    /// What the kernel reports.
    edges: Edges,
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
    /// The request that waits for the socket with this token, if it still does.
    pub(crate) fn owner(&self, token: u64) -> Option<RequestKey> {
        let (known, owner) = self.owners.get((token & 0xffff_ffff) as usize)?;
        (*known == token).then_some(*owner)
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
        conn.sockets(&mut |id, socket, wants| {
            let wanted = edges(wants);
            match entries.iter_mut().find(|entry| entry.id == id) {
                Some(entry) => {
                    entry.is_named = true;
                    let all = entry.edges | wanted;
                    if all != entry.edges {
                        let token = self.owners[entry.key].0;
                        is_well &= epoll.change_edges(socket, token, all).is_ok();
                        entry.edges = all;
                    }
                }
                None => match self.add(epoll, socket, wanted, connection, id) {
                    Some(key) => {
                        entries.push(WatchedSocket { id, key, edges: wanted, is_named: true });
                    }
                    None => is_well = false,
                },
            }
        });
        entries.retain(|entry| {
            if !entry.is_named {
                self.owners.remove(entry.key);
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
        connection: u64,
        id: SocketId,
    ) -> Option<usize> {
        self.generation = self.generation.wrapping_add(1);
        let entry = self.owners.vacant_entry();
        let key = entry.key();
        let token = SOCKETS | u64::from(self.generation & 0x3fff_ffff) << 32 | key as u64;
        // another request may have used it before
        let is_there = !self.known.insert(socket.as_raw_fd())
            && epoll.change_edges(socket, token, wanted).is_ok();
        if !is_there && epoll.add_edges(socket, token, wanted).is_err() {
            return None;
        }
        entry.insert((token, RequestKey { connection, request: id.request }));
        Some(key)
    }

    /// The connection has ended.
    pub(crate) fn forget(&mut self, watched: &mut Watched) {
        for entry in watched.0.drain(..) {
            self.owners.remove(entry.key);
        }
    }
}

fn edges(wants: Wants) -> Edges {
    Edges { read: wants.read, write: wants.write }
}
