//! What accepting needs of an `event` loop.

use super::EventLoop;
use super::connection::LoopConnection;
use crate::connection::served::Served;
use crate::connection::worker::Worker;
use crate::helpers::JobRunner;
use crate::loops::accepting::Accepting;
use crate::loops::watched_listeners::{WatchedListeners, token};
use crate::room::idle::{Idle, has_news};
use forebay_conn::{Closing, Handler, Rank};
use forebay_sys::epoll::Epoll;
use std::os::fd::AsFd;

impl<H: Handler, C: JobRunner<H::Job>> Accepting<H> for EventLoop<H, C> {
    fn with_listeners<R>(
        &mut self,
        f: impl FnOnce(&mut WatchedListeners, &Epoll, &mut Worker<H>) -> R,
    ) -> R {
        f(&mut self.watched_listeners, &self.epoll, &mut self.worker)
    }

    fn with_idle<R>(&mut self, f: impl FnOnce(&mut Idle) -> R) -> R {
        f(&mut self.idle)
    }

    fn queue_listener(&mut self, rank: Rank, index: usize) {
        self.waiting.join_listener(rank, index);
    }

    fn serve_new(&mut self, served: Served<H>) {
        let token = self.insert(served);
        self.take_turn(token, None);
    }

    fn end_new(&mut self, served: Served<H>, closing: Closing) {
        let token = self.insert(served);
        self.end(token, closing);
    }

    fn close_idle(&mut self, token: u64) -> bool {
        let Some(key) = self.key(token) else { return false };
        let connection = &self.connections[key];
        let is_idle = connection.is_idle() && !has_news(connection.served.stream.as_fd());
        if is_idle {
            self.close(token, Closing::Now);
        }
        is_idle
    }
}

impl<H: Handler, C: JobRunner<H::Job>> EventLoop<H, C> {
    /// Adds a connection to those this loop serves.
    fn insert(&mut self, served: Served<H>) -> u64 {
        self.generation = self.generation.wrapping_add(1);
        let entry = self.connections.vacant_entry();
        let token = token(self.generation, entry.key());
        entry.insert(LoopConnection::new(served, token));
        token
    }
}
