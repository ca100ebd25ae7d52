//! The sockets besides its client's that a connection's requests wait for, in the epoll of its loop.

use crate::doors::SOCKETS;
use crate::ranks::RequestKey;
use forebay_conn::{Handler, Protocol, SocketId};
use forebay_sys::epoll::Epoll;
use slab::Slab;

/// All such sockets of a loop.
#[derive(Debug, Default)]
pub(crate) struct Sockets {
    owners: Slab<(u64, RequestKey)>,
    /// Tells a socket from an earlier one in the same place.
    generation: u32,
}

/// Those of one connection.
#[derive(Debug, Default)]
pub(crate) struct Watched(Vec<(SocketId, usize)>);

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

    /// Has the kernel report those that the requests of this connection wait for now, in both
    /// directions and each time anew, and none besides. Says whether that worked.
    pub(crate) fn watch<H: Handler>(
        &mut self,
        watched: &mut Watched,
        conn: &H::Protocol,
        connection: u64,
        epoll: &Epoll,
    ) -> bool {
        let mut wanted = Vec::with_capacity(watched.0.len() + 1);
        let mut is_well = true;
        conn.sockets(&mut |id, socket, _| {
            if let Some(known) = watched.0.iter().find(|(known, _)| *known == id) {
                return wanted.push(*known);
            }
            self.generation = self.generation.wrapping_add(1);
            let entry = self.owners.vacant_entry();
            let token =
                SOCKETS | u64::from(self.generation & 0x3fff_ffff) << 32 | entry.key() as u64;
            if epoll.add_connection(socket, token).is_ok() {
                wanted.push((id, entry.key()));
                entry.insert((token, RequestKey { connection, request: id.request }));
            } else {
                is_well = false;
            }
        });
        for (id, key) in std::mem::take(&mut watched.0) {
            if !wanted.iter().any(|(known, _)| *known == id) {
                self.owners.remove(key);
            }
        }
        watched.0 = wanted;
        is_well
    }

    /// The connection has ended.
    pub(crate) fn forget(&mut self, watched: &mut Watched) {
        for (_, key) in watched.0.drain(..) {
            self.owners.remove(key);
        }
    }
}
