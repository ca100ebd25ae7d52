//! Listening sockets of classes. The gate has the kernel queue a connection at the socket of its
//! class; no connection reaches them otherwise. They belong to an address, as its common sockets
//! do, and are kept as long.
//!
//! Changes by a reload take effect with [`Listeners::settle`]: until then running engines accept
//! from the earlier sockets only.

use super::{
    AcceptSocket, AddressSockets, BACKLOG, ListenAddress, ListenEndpoint, ListenError, Listeners,
    Rank,
};
use crate::agent::QueuedConnections;
use forebay_handler::policy::enforced::OfClasses;
use forebay_sys::socket;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The sockets of the classes of one address.
#[derive(Debug, Default)]
pub(super) struct SocketsOfClasses {
    /// The sockets of each rank, the same number for all.
    by_rank: Vec<Vec<OwnedFd>>,
    /// The number of ranks that were last asked for.
    wanted: usize,
    /// How many ranks engines accept from, and with how many sockets each.
    in_force: (usize, usize),
    /// Whether TLS is wanted on the sockets, and whether it is in force.
    wanted_tls: bool,
    speaks_tls: bool,
}

impl SocketsOfClasses {
    /// Makes sure that there are `ranks` ranks, each with at least as many sockets as there are loops.
    fn want(&mut self, ranks: usize, loops: usize, is_ipv4: bool) -> io::Result<()> {
        self.wanted = ranks;
        let loops = self.by_rank.first().map_or(0, Vec::len).max(loops);
        self.by_rank.resize_with(self.by_rank.len().max(ranks), Vec::new);
        for of_rank in &mut self.by_rank {
            while of_rank.len() < loops {
                of_rank.push(socket::listen_unreachable(is_ipv4, BACKLOG)?);
            }
        }
        Ok(())
    }

    /// Gives each loop at least one socket of each rank; together they have all of them.
    fn share_out(&self, local: SocketAddr, by_loop: &mut [Vec<AcceptSocket>]) -> io::Result<()> {
        for (rank, of_rank) in (0..).zip(&self.by_rank[..self.wanted]) {
            let rank = Some(Rank(rank));
            for (turn, socket) in of_rank.iter().enumerate() {
                let at = turn % by_loop.len();
                by_loop[at]
                    .push(AcceptSocket { rank, ..AcceptSocket::new(socket.try_clone()?, local) });
            }
        }
        Ok(())
    }

    /// Records that engines accept from the wanted sockets. The result is whether there are ranks
    /// that are not wanted any more.
    pub(super) fn settle(&mut self) -> bool {
        self.by_rank.truncate(self.wanted);
        let (before, _) = self.in_force;
        self.in_force = (self.wanted, self.by_rank.first().map_or(0, Vec::len));
        self.speaks_tls = self.wanted_tls;
        self.wanted < before
    }

    /// Closes the sockets that were taken since the last `settle`.
    pub(super) fn undo(&mut self) {
        let (ranks, loops) = self.in_force;
        self.by_rank.truncate(ranks);
        self.by_rank.iter_mut().for_each(|of_rank| of_rank.truncate(loops));
        self.wanted = ranks;
        self.wanted_tls = self.speaks_tls;
    }

    fn in_force(&self) -> impl Iterator<Item = Vec<BorrowedFd<'_>>> {
        let (ranks, loops) = self.in_force;
        let by_rank = self.by_rank.iter().take(ranks);
        by_rank.map(move |of_rank| of_rank.iter().take(loops).map(AsFd::as_fd).collect())
    }
}

impl Listeners {
    /// Gives each loop sockets of `ranks` classes, for each address of an endpoint.
    pub(super) fn share_out_of_classes(
        &mut self,
        ListenEndpoint { listen, tls, .. }: &ListenEndpoint,
        ranks: usize,
        by_loop: &mut [Vec<AcceptSocket>],
    ) -> Result<(), ListenError> {
        let wanted = std::slice::from_ref(listen);
        for open in self.open.iter_mut().filter(|open| open.is_wanted(wanted)) {
            open.of_classes.wanted_tls = *tls;
            open.share_out_of_classes(ranks, by_loop)
                .map_err(|error| ListenError::OfClasses { address: open.wanted.clone(), error })?;
        }
        Ok(())
    }

    /// The sockets of classes of each address that engines accept from, as
    /// [settled](Listeners::settle). Addresses without classes have none.
    pub fn of_classes(&self) -> Vec<OfClasses<'_>> {
        let open = self.open.iter().filter(|open| open.left.is_none());
        let of_classes = open.filter_map(|open| match &open.address {
            ListenAddress::Tcp(address) => Some(OfClasses {
                address: *address,
                speaks_tls: open.of_classes.speaks_tls,
                sockets: open.of_classes.in_force().collect(),
            }),
            ListenAddress::Unix(_) => None,
        });
        of_classes.collect()
    }

    /// How many connections wait in accept queues, of all addresses together: in those of classes,
    /// and in the common ones. A socket whose queue cannot be read counts as empty.
    pub fn queued(&self) -> QueuedConnections {
        let of = |sockets: &mut dyn Iterator<Item = BorrowedFd<'_>>| -> u64 {
            let lengths = sockets.filter_map(|one| socket::accept_queue(one).ok());
            lengths.map(u64::from).sum()
        };
        let mut queued = QueuedConnections::default();
        for OfClasses { sockets, .. } in self.of_classes() {
            queued.by_rank.resize(queued.by_rank.len().max(sockets.len()), 0);
            for (queued, of_rank) in queued.by_rank.iter_mut().zip(sockets) {
                *queued += of(&mut of_rank.into_iter());
            }
        }
        for open in self.open.iter().filter(|open| open.left.is_none()) {
            queued.common += of(&mut open.sockets.iter().take(open.in_force).map(AsFd::as_fd));
        }
        queued
    }
}

impl AddressSockets {
    fn share_out_of_classes(
        &mut self,
        ranks: usize,
        by_loop: &mut [Vec<AcceptSocket>],
    ) -> io::Result<()> {
        let ListenAddress::Tcp(address) = self.address else { return Ok(()) };
        self.of_classes.want(ranks, by_loop.len(), address.is_ipv4())?;
        self.of_classes.share_out(address, by_loop)
    }
}
