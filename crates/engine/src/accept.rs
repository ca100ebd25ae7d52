//! Accepting: who is let in, and what happens when nobody can be. The same for every engine.

use crate::admission::{Admission, Full, Place};
use crate::settings::LINGER_BYTES;
use crate::watch::Watch;
use crate::worker::{Served, Worker};
use forebay_conn::{Closing, Handler, Peer, Verdict};
use forebay_metrics::{Activity, Counter, Stopwatch};
use forebay_sys::process;
use forebay_sys::socket::{self, Accepted};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Connections accepted at a time before those that are open have their turn.
pub const BATCH: usize = 64;
/// Batches accepted from a listener when a drain begins, at most; the queue is shorter.
pub const DRAIN_BATCHES: usize = 128;
/// How long a listener rests when there is no descriptor for its connections.
pub const PAUSE_MS: u64 = 100;

/// Listening sockets, and a descriptor held back so that a client can be told that there are no
/// more.
pub struct Entrance {
    listeners: Vec<(OwnedFd, SocketAddr)>,
    reserve: Option<OwnedFd>,
    admission: Arc<Admission>,
}

/// Who stood at the entrance.
pub enum Arrival<H: Handler> {
    /// A connection to serve, and its place in the count.
    Served(Served<H>, Place),
    /// A connection that was told no; it is to be closed like this.
    Refused(Served<H>, Closing),
    /// A connection that is gone already.
    Gone,
    /// Nobody.
    Nobody,
    /// There is no descriptor to accept with: wait for [`PAUSE_MS`].
    Exhausted,
}

impl Entrance {
    /// Through these sockets, each with the address it is bound to.
    ///
    /// # Errors
    /// Lack of descriptors.
    pub fn new(
        listeners: Vec<(OwnedFd, SocketAddr)>,
        admission: Arc<Admission>,
    ) -> io::Result<Entrance> {
        Ok(Entrance { listeners, reserve: Some(process::reserve_descriptor()?), admission })
    }

    /// The listening sockets.
    pub fn listeners(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.listeners.iter().map(|(socket, _)| socket.as_fd())
    }

    /// The listening socket with this number.
    pub fn listener(&self, index: usize) -> Option<BorrowedFd<'_>> {
        self.listeners.get(index).map(|(socket, _)| socket.as_fd())
    }

    /// Closes all listening sockets.
    pub fn close(&mut self) {
        self.listeners.clear();
    }

    /// Accepts the next connection of listener `index` and decides about it.
    pub fn next<H: Handler>(&mut self, index: usize, worker: &mut Worker<H>) -> Arrival<H> {
        let sampled = worker.is_sampled();
        let Some((listener, local)) = self.listeners.get(index) else { return Arrival::Nobody };
        let mut watch = Watch::new(&worker.metrics, sampled);
        let accepted = socket::accept(listener.as_fd());
        watch.lap(Activity::Accept);
        match accepted {
            Ok(Accepted::Connection(socket, remote)) => {
                self.decide(socket, Peer::new(remote, *local), worker)
            }
            Ok(Accepted::None) => Arrival::Nobody,
            Ok(Accepted::Failed) => {
                worker.count(Counter::AcceptErrors);
                Arrival::Gone
            }
            Ok(Accepted::Exhausted) => {
                worker.count(Counter::AcceptErrors);
                self.turn_away(index, worker);
                Arrival::Exhausted
            }
            Err(_) => {
                worker.count(Counter::AcceptErrors);
                Arrival::Exhausted
            }
        }
    }

    fn decide<H: Handler>(
        &self,
        socket: OwnedFd,
        peer: Peer,
        worker: &mut Worker<H>,
    ) -> Arrival<H> {
        worker.count(Counter::Accepted);
        let served = Served::new(socket, peer);
        let place = match self.admission.enter(peer.client()) {
            Ok(place) => place,
            Err(full) => {
                worker.count(match full {
                    Full::Total => Counter::RefusedTotal,
                    Full::Client => Counter::RefusedClient,
                });
                worker.refuse(served.socket.as_fd(), 503, "too many connections");
                return Arrival::Refused(served, Closing::Linger);
            }
        };
        match worker.handler.admit(&peer) {
            Verdict::Admit(_) => Arrival::Served(served, place),
            Verdict::Refuse(status) => {
                worker.count(Counter::RefusedVerdict);
                worker.refuse(served.socket.as_fd(), status, "refused by policy");
                Arrival::Refused(served, Closing::Linger)
            }
            Verdict::Reset => {
                worker.count(Counter::RefusedVerdict);
                Arrival::Refused(served, Closing::Reset)
            }
        }
    }

    /// No descriptor is left: the reserve lets each waiting client be told so. The listener should
    /// rest afterwards instead of reporting the same connection again and again.
    fn turn_away<H: Handler>(&mut self, index: usize, worker: &mut Worker<H>) {
        for _ in 0..BATCH {
            drop(self.reserve.take());
            let Some((listener, _)) = self.listeners.get(index) else { break };
            let more = match socket::accept(listener.as_fd()) {
                Ok(Accepted::Connection(socket, _)) => {
                    worker.count(Counter::Accepted);
                    worker.count(Counter::RefusedDescriptors);
                    worker.count(Counter::Closed);
                    worker.refuse(socket.as_fd(), 503, "the server has no free descriptor");
                    // what came so far is read, so that the close does not destroy the answer
                    worker.drop_input(socket.as_fd(), LINGER_BYTES);
                    true
                }
                Ok(Accepted::Failed) => true,
                _ => false,
            };
            self.take_reserve();
            if !more {
                break;
            }
        }
    }

    /// Holds a descriptor back again if none is.
    pub fn take_reserve(&mut self) {
        if self.reserve.is_none() {
            self.reserve = process::reserve_descriptor().ok();
        }
    }
}
