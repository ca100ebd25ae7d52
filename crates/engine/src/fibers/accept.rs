//! How a loop accepts: in batches, and resting when there are no descriptors.

use super::connection::Connection;
use super::{FIRST_LISTENER, Running};
use crate::accept::{Arrival, BATCH, Listener, PAUSE_MS};
use crate::helpers::Crew;
use crate::worker::Served;
use forebay_conn::Handler;
use forebay_sys::epoll::Epoll;
use std::io;

impl<H, C> Running<H, C>
where
    H: Handler + 'static,
    C: Crew<H::Job> + 'static,
{
    /// Accepts a batch from listener `index`; each connection gets a fiber at once. Returns whether
    /// more may be waiting.
    pub(super) fn accept(&mut self, index: usize) -> bool {
        for _ in 0..BATCH {
            let arrival = self.entrance.next(index, &mut self.shared.worker.borrow_mut());
            match arrival {
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
        let mut connections = self.shared.connections.borrow_mut();
        let entry = connections.vacant_entry();
        let token = token(self.generation, entry.key());
        entry.insert(Connection::new(served, token));
        token
    }

    fn pause(&mut self, index: usize) {
        if let Some(listener) = self.entrance.listener(index)
            && self.shared.epoll.remove(&listener.socket).is_ok()
        {
            let until_ms = self.shared.worker.borrow().now_ms() + PAUSE_MS;
            self.paused.push((index, until_ms));
        }
    }

    /// Watches those listeners again that have rested long enough.
    pub(super) fn resume_accepting(&mut self) {
        if self.paused.is_empty() {
            return;
        }
        let now_ms = self.shared.worker.borrow().now_ms();
        let (entrance, epoll) = (&mut self.entrance, &self.shared.epoll);
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
    epoll.add_reader(&listener.socket, FIRST_LISTENER + index as u64)
}

/// A connection's token: generation above, place below. Never as large as the listeners'.
fn token(generation: u32, key: usize) -> u64 {
    u64::from(generation & 0x7fff_ffff) << 32 | (key as u64 & 0xffff_ffff)
}
