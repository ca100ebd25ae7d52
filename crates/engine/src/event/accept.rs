//! How a loop accepts: a few at a time, each with its first turn at once.

use super::EventLoop;
use super::connection::Connection;
use crate::accept::{Arrival, BATCH, DRAIN_BATCHES};
use crate::doors::token;
use crate::helpers::Crew;
use crate::idle::{TRIES, has_news};
use crate::served::Served;
use forebay_conn::{Closing, Handler, Protocol, Rank};
use forebay_metrics::Counter;
use std::os::fd::AsFd;

impl<H: Handler, C: Crew<H::Job>> EventLoop<H, C> {
    /// Somebody has come to listener `index`.
    pub(super) fn arrived(&mut self, index: usize) {
        self.accept(index, self.doors.turn(index));
        self.doors.give_way(index, &self.epoll, self.worker.now_ms());
    }

    /// Accepts at most so many from listener `index`. Returns whether more may be waiting.
    fn accept(&mut self, index: usize, most: usize) -> bool {
        for _ in 0..most {
            match self.next(index) {
                Arrival::Served(served) => {
                    let token = self.insert(served);
                    self.take_turn(token, None);
                }
                Arrival::Refused(served, closing) => {
                    let token = self.insert(served);
                    self.end(token, closing);
                }
                Arrival::Gone => {}
                Arrival::Nobody => return false,
                Arrival::Exhausted => {
                    self.doors.rest(index, &self.epoll, self.worker.now_ms());
                    return false;
                }
            }
        }
        true
    }

    /// Somebody of listener `index`. When all places are taken, somebody idle makes room, by rank.
    fn next(&mut self, index: usize) -> Arrival<H> {
        if self.worker.draining || self.idle.is_empty() {
            return self.doors.next(index, &mut self.worker);
        }
        match self.doors.next_or_crowded(index, &mut self.worker) {
            Ok(arrival) => arrival,
            Err(served) => {
                self.make_room(served.conn.rank());
                self.doors.take_place(*served, &mut self.worker)
            }
        }
    }

    /// Closes the idle connection that is lowest, if it is not above this rank.
    #[cold]
    fn make_room(&mut self, rank: Rank) {
        for _ in 0..TRIES {
            let Some(token) = self.idle.take(rank) else { return };
            let Some(key) = self.key(token) else { continue };
            let connection = &self.connections[key];
            if connection.is_idle() && !has_news(connection.served.stream.as_fd()) {
                self.worker.count(Counter::MadeRoom);
                return self.close(token, Closing::Now);
            }
        }
    }

    /// Adds a connection to those this loop serves.
    fn insert(&mut self, served: Served<H>) -> u64 {
        self.generation = self.generation.wrapping_add(1);
        let entry = self.connections.vacant_entry();
        let token = token(self.generation, entry.key());
        entry.insert(Connection::new(served, token));
        token
    }

    /// Takes what the listeners have queued, and closes them.
    pub(super) fn leave_listeners(&mut self) {
        for index in 0..self.doors.count() {
            self.doors.unwatch(index, &self.epoll);
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
