//! Accepting: who is let in, and what happens when nobody can be.

use super::connection::Connection;
use super::{EventLoop, FIRST_LISTENER, token};
use crate::admission::Full;
use crate::settings::LINGER_BYTES;
use crate::watch::Watch;
use forebay_conn::{Handler, Peer, Verdict};
use forebay_metrics::{Activity, Counter, Stopwatch};
use forebay_sys::process;
use forebay_sys::socket::{self, Accepted};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

/// Connections accepted at a time before those that are open have their turn.
const BATCH: usize = 64;
/// How long a listener rests when there is no descriptor for its connections.
pub(super) const PAUSE_MS: u64 = 100;

/// A listening socket of this loop.
pub(super) struct Listener {
    pub(super) socket: OwnedFd,
    address: SocketAddr,
    /// Not watched until then; 0 while it is watched.
    paused_until_ms: u64,
}

impl Listener {
    pub(super) fn new(socket: OwnedFd, address: SocketAddr) -> Listener {
        Listener { socket, address, paused_until_ms: 0 }
    }

    pub(super) fn is_paused(&self) -> bool {
        self.paused_until_ms != 0
    }
}

/// One descriptor held back, so that a client can be told that there are no more.
pub(super) struct Reserve(Option<OwnedFd>);

impl Reserve {
    pub(super) fn new() -> io::Result<Reserve> {
        Ok(Reserve(Some(process::reserve_descriptor()?)))
    }
}

impl<H: Handler> EventLoop<H> {
    /// Accepts a batch from listener `index`. Returns whether more may be waiting.
    pub(super) fn accept(&mut self, index: usize) -> bool {
        for _ in 0..BATCH {
            let sampled = self.worker.is_sampled();
            let Some(listener) = self.listeners.get(index) else { return false };
            let mut watch = Watch::new(&self.worker.metrics, sampled);
            let accepted = socket::accept(listener.socket.as_fd());
            watch.lap(Activity::Accept);
            match accepted {
                Ok(Accepted::Connection(socket, remote)) => {
                    let local = self.listeners[index].address;
                    self.let_in(socket, Peer { remote, local });
                }
                Ok(Accepted::None) => return false,
                Ok(Accepted::Failed) => self.worker.count(Counter::AcceptErrors),
                Ok(Accepted::Exhausted) => {
                    self.worker.count(Counter::AcceptErrors);
                    self.turn_away(index);
                    return false;
                }
                Err(_) => {
                    self.worker.count(Counter::AcceptErrors);
                    self.pause(index);
                    return false;
                }
            }
        }
        true
    }

    /// Decides about a new connection, and serves or refuses it.
    fn let_in(&mut self, socket: OwnedFd, peer: Peer) {
        self.worker.count(Counter::Accepted);
        let place = match self.admission.enter(peer.client()) {
            Ok(place) => place,
            Err(full) => {
                self.worker.count(match full {
                    Full::Total => Counter::RefusedTotal,
                    Full::Client => Counter::RefusedClient,
                });
                return self.refuse_new(socket, peer, 503, "too many connections");
            }
        };
        match self.worker.handler.admit(&peer) {
            Verdict::Admit(_) => {
                let token = self.insert(socket, peer, Some(place));
                self.take_turn(token, None);
            }
            Verdict::Refuse(status) => {
                self.worker.count(Counter::RefusedVerdict);
                self.refuse_new(socket, peer, status, "refused by policy");
            }
            Verdict::Reset => {
                self.worker.count(Counter::RefusedVerdict);
                self.worker.count(Counter::Closed);
                socket::reset_on_close(socket.as_fd());
            }
        }
    }

    /// Adds a connection to those this loop serves.
    fn insert(
        &mut self,
        socket: OwnedFd,
        peer: Peer,
        place: Option<crate::admission::Place>,
    ) -> u64 {
        self.generation = self.generation.wrapping_add(1);
        let entry = self.connections.vacant_entry();
        let token = token(self.generation, entry.key());
        entry.insert(Connection::new(socket, peer, token, place));
        token
    }

    /// Says no in HTTP. The request may be unread, so the connection lingers; it is not counted
    /// among those admitted.
    fn refuse_new(&mut self, socket: OwnedFd, peer: Peer, status: u16, reason: &'static str) {
        let token = self.insert(socket, peer, None);
        self.refuse(token, status, reason);
    }

    /// No descriptor is left: the reserve lets each waiting client be told so, then the listener
    /// rests for a moment instead of reporting the same connection again and again.
    fn turn_away(&mut self, index: usize) {
        for _ in 0..BATCH {
            drop(self.reserve.0.take());
            let Some(listener) = self.listeners.get(index) else { break };
            let more = match socket::accept(listener.socket.as_fd()) {
                Ok(Accepted::Connection(socket, _)) => {
                    self.worker.count(Counter::Accepted);
                    self.worker.count(Counter::RefusedDescriptors);
                    self.worker.count(Counter::Closed);
                    let reason = "the server has no free descriptor";
                    self.worker.refuse(socket.as_fd(), 503, reason);
                    // what came so far is read, so that the close does not destroy the answer
                    self.worker.drop_input(socket.as_fd(), LINGER_BYTES);
                    true
                }
                Ok(Accepted::Failed) => true,
                _ => false,
            };
            self.reserve.0 = process::reserve_descriptor().ok();
            if !more {
                break;
            }
        }
        self.pause(index);
    }

    fn pause(&mut self, index: usize) {
        if let Some(listener) = self.listeners.get_mut(index) {
            let _ = self.epoll.remove(&listener.socket);
            listener.paused_until_ms = self.worker.now_ms() + PAUSE_MS;
        }
    }

    /// Watches those listeners again that have rested long enough.
    pub(super) fn resume_accepting(&mut self) {
        for (token, listener) in (FIRST_LISTENER..).zip(&mut self.listeners) {
            if listener.is_paused() && self.worker.now_ms() >= listener.paused_until_ms {
                if self.reserve.0.is_none() {
                    self.reserve.0 = process::reserve_descriptor().ok();
                }
                if self.epoll.add_reader(&listener.socket, token).is_ok() {
                    listener.paused_until_ms = 0;
                }
            }
        }
    }
}
