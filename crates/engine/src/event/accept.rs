//! How a loop accepts: in batches, and resting when there are no descriptors.

use super::connection::Connection;
use super::{EventLoop, FIRST_LISTENER, token};
use crate::accept::{Arrival, BATCH, Listener, PAUSE_MS};
use crate::helpers::Crew;
use crate::worker::Served;
use forebay_conn::Handler;
use forebay_sys::epoll::Epoll;
use std::io;

impl<H: Handler, C: Crew<H::Job>> EventLoop<H, C> {
    /// Somebody has come to listener `index`.
    pub(super) fn arrived(&mut self, index: usize) {
        let shared = self.entrance.listener(index).is_some_and(|listener| listener.shared);
        if !shared {
            self.accept(index);
            return;
        }
        // One, and then the turn is another loop's: the kernel wakes the one that has watched for
        // longest, and would always wake the same.
        self.accept_some(index, 1);
        let rests = self.paused.iter().any(|(paused, _)| *paused == index);
        if let Some(listener) = self.entrance.listener(index).filter(|_| !rests)
            && self.epoll.remove(&listener.socket).is_ok()
            && watch(&self.epoll, index, listener).is_err()
        {
            self.paused.push((index, self.worker.now_ms() + PAUSE_MS));
        }
    }

    /// Accepts a batch from listener `index`. Returns whether more may be waiting.
    pub(super) fn accept(&mut self, index: usize) -> bool {
        self.accept_some(index, BATCH)
    }

    fn accept_some(&mut self, index: usize, most: usize) -> bool {
        for _ in 0..most {
            match self.entrance.next(index, &mut self.worker) {
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
                    self.pause(index);
                    return false;
                }
            }
        }
        true
    }

    /// Adds a connection to those this loop serves.
    fn insert(&mut self, served: Served<H>) -> u64 {
        self.generation = self.generation.wrapping_add(1);
        let entry = self.connections.vacant_entry();
        let token = token(self.generation, entry.key());
        entry.insert(Connection::new(served, token));
        token
    }

    fn pause(&mut self, index: usize) {
        if let Some(listener) = self.entrance.listener(index)
            && self.epoll.remove(&listener.socket).is_ok()
        {
            self.paused.push((index, self.worker.now_ms() + PAUSE_MS));
        }
    }

    /// Watches those listeners again that have rested long enough.
    pub(super) fn resume_accepting(&mut self) {
        let now_ms = self.worker.now_ms();
        let (entrance, epoll) = (&mut self.entrance, &self.epoll);
        self.paused.retain(|&(index, until_ms)| {
            if now_ms < until_ms {
                return true;
            }
            entrance.take_reserve();
            entrance.listener(index).is_some_and(|it| watch(epoll, index, it).is_err())
        });
    }
}

/// Has the loop woken when somebody comes to listener `index`.
pub(super) fn watch(epoll: &Epoll, index: usize, listener: &Listener) -> io::Result<()> {
    let token = FIRST_LISTENER + index as u64;
    if listener.shared {
        epoll.add_shared_reader(&listener.socket, token)
    } else {
        epoll.add_reader(&listener.socket, token)
    }
}
