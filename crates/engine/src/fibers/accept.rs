//! How a loop accepts: a few at a time, each with a fiber at once.

use super::Running;
use super::connection::{Connection, Place};
use crate::accept::{Arrival, BATCH, DRAIN_BATCHES};
use crate::doors::token;
use crate::helpers::Crew;
use crate::idle::{TRIES, has_news};
use crate::served::Served;
use forebay_conn::{Closing, Handler, Protocol, Rank};
use forebay_metrics::Counter;
use std::os::fd::AsFd;

impl<H, C> Running<H, C>
where
    H: Handler + 'static,
    C: Crew<H::Job> + 'static,
{
    /// Somebody has come to listener `index`.
    pub(super) fn arrived(&mut self, index: usize) {
        self.accept(index, self.doors.turn(index));
        let now_ms = self.now_ms();
        self.doors.give_way(index, &self.shared.epoll, now_ms);
    }

    /// Accepts at most so many from listener `index`. Returns whether more may be waiting.
    fn accept(&mut self, index: usize, most: usize) -> bool {
        for _ in 0..most {
            match self.next(index) {
                Arrival::Served(served) => {
                    let token = self.insert(served);
                    self.serve(token);
                    self.serve_due();
                }
                Arrival::Refused(served, closing) => {
                    let token = self.insert(served);
                    self.close(token, closing);
                }
                Arrival::Gone => {}
                Arrival::Nobody => return false,
                Arrival::Exhausted => {
                    let now_ms = self.now_ms();
                    self.doors.rest(index, &self.shared.epoll, now_ms);
                    return false;
                }
            }
        }
        true
    }

    /// Somebody of listener `index`. When all places are taken, somebody idle makes room, by rank.
    fn next(&mut self, index: usize) -> Arrival<H> {
        let mut worker = self.shared.worker.borrow_mut();
        if worker.draining || self.shared.idle.borrow().is_empty() {
            return self.doors.next(index, &mut worker);
        }
        let crowded = self.doors.next_or_crowded(index, &mut worker);
        drop(worker);
        match crowded {
            Ok(arrival) => arrival,
            Err(served) => {
                self.make_room(served.conn.rank());
                self.doors.take_place(*served, &mut self.shared.worker.borrow_mut())
            }
        }
    }

    /// Closes the idle connection that is lowest, if it is not above this rank.
    #[cold]
    fn make_room(&self, rank: Rank) {
        for _ in 0..TRIES {
            let token = self.shared.idle.borrow_mut().take(rank);
            let Some(token) = token else { return };
            let is_idle = self.shared.with(token, |connection| match &connection.place {
                Place::AtRest(served) => {
                    served.is_idle() && !served.readable && !has_news(served.stream.as_fd())
                }
                Place::Served(_) => false,
            });
            if is_idle == Some(true) {
                self.shared.worker.borrow().count(Counter::MadeRoom);
                return self.close(token, Closing::Now);
            }
        }
    }

    /// Adds a connection to those this loop serves.
    fn insert(&mut self, served: Served<H>) -> u64 {
        self.generation = self.generation.wrapping_add(1);
        let mut connections = self.shared.connections.borrow_mut();
        let entry = connections.vacant_entry();
        let token = token(self.generation, entry.key());
        entry.insert(Connection::new(served, token));
        token
    }

    /// Takes what the listeners have queued, and closes them.
    pub(super) fn leave_listeners(&mut self) {
        for index in 0..self.doors.count() {
            self.doors.unwatch(index, &self.shared.epoll);
            // bounded: clients that come back at once would keep it busy for ever
            for _ in 0..DRAIN_BATCHES {
                if !self.accept(index, BATCH) {
                    break;
                }
            }
        }
        self.doors.close();
    }
}
