//! What accepting needs of a `fibers` loop: each connection has a fiber at once.

use super::RunningLoop;
use super::connection::{ConnectionOwner, FiberConnection};
use crate::connection::served::Served;
use crate::connection::worker::Worker;
use crate::helpers::JobRunner;
use crate::loops::accepting::Accepting;
use crate::loops::watched_listeners::{WatchedListeners, token};
use crate::room::idle::{Idle, has_news};
use forebay_conn::{Closing, Handler, Rank};
use forebay_sys::epoll::Epoll;
use std::os::fd::AsFd;

impl<H, C> Accepting<H> for RunningLoop<H, C>
where
    H: Handler + 'static,
    C: JobRunner<H::Job> + 'static,
{
    fn with_listeners<R>(
        &mut self,
        f: impl FnOnce(&mut WatchedListeners, &Epoll, &mut Worker<H>) -> R,
    ) -> R {
        f(&mut self.watched_listeners, &self.shared.epoll, &mut self.shared.worker.borrow_mut())
    }

    fn with_idle<R>(&mut self, f: impl FnOnce(&mut Idle) -> R) -> R {
        f(&mut self.shared.idle.borrow_mut())
    }

    fn queue_listener(&mut self, rank: Rank, index: usize) {
        if let Some(ready_queue) = &mut *self.shared.ready_queue.borrow_mut() {
            ready_queue.join_listener(rank, index);
        }
    }

    fn serve_new(&mut self, served: Served<H>) {
        let token = self.insert(served);
        self.begin(token);
    }

    fn end_new(&mut self, served: Served<H>, closing: Closing) {
        let token = self.insert(served);
        self.close(token, closing);
    }

    fn close_idle(&mut self, token: u64) -> bool {
        let is_idle = self.shared.with(token, |connection| match &connection.place {
            ConnectionOwner::AtRest(served) => {
                served.is_idle() && !served.readable && !has_news(served.stream.as_fd())
            }
            ConnectionOwner::Served(_) => false,
        });
        if is_idle == Some(true) {
            self.close(token, Closing::Now);
        }
        is_idle == Some(true)
    }
}

impl<H, C> RunningLoop<H, C>
where
    H: Handler + 'static,
    C: JobRunner<H::Job> + 'static,
{
    /// Adds a connection to those this loop serves.
    fn insert(&mut self, served: Served<H>) -> u64 {
        self.generation = self.generation.wrapping_add(1);
        let mut connections = self.shared.connections.borrow_mut();
        let entry = connections.vacant_entry();
        let token = token(self.generation, entry.key());
        entry.insert(FiberConnection::new(served, token));
        token
    }
}
