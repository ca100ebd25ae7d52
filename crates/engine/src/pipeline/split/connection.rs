//! A connection between two tasks: how it is watched, given time, and closed.

use super::Shared;
use super::pipeline_connection::PipelineConnection;
use super::slab::Locked;
use crate::connection::waits::RequestWait;
use crate::connection::worker::Worker;
use crate::control::LoopOrder;
use crate::order::ranks::{RankedClient, RequestKey};
use crate::room::idle::{TRIES, has_news};
use forebay_conn::{Await, Closing, Handler, Protocol, Rank, RequestEvent, RequestId};
use forebay_control::allocation::Phase;
use forebay_metrics::Counter;
use forebay_sys::epoll::Once;
use std::os::fd::AsFd;

impl<H: Handler> Shared<H> {
    /// The rank and the client of the work for this request; without an order they do not matter.
    pub(super) fn ranked_client(
        &self,
        connection: &PipelineConnection<H>,
        id: RequestId,
    ) -> RankedClient {
        match self.lists.ranks.is_ordered() {
            true => connection.served.ranked_client(&self.lists.ranks, id),
            false => RankedClient::default(),
        }
    }

    /// The rank and the client of the work for the connection itself.
    pub(super) fn ranked_client_at_rest(&self, connection: &PipelineConnection<H>) -> RankedClient {
        self.ranked_client(connection, connection.served.conn.awaits().id)
    }

    /// Puts the connection into the list of this phase, unless it is there.
    pub(super) fn list(&self, mut slot: Locked<'_, H>, phase: Phase) {
        let Some(connection) = slot.connection() else { return };
        self.wakes(connection);
        if !connection.enlist(phase) {
            return;
        }
        let token = connection.token;
        let ranked_client = self.ranked_client_at_rest(connection);
        // woken under the lock, a thread might run at once and find the connection locked
        drop(slot);
        self.lists.push_turn(phase, token, ranked_client);
    }

    /// Leaves the connection to the lists it is in and to the epoll, which may report it at once:
    /// the caller unlocks it and does nothing more. Returns whether that worked.
    pub(super) fn leave(&self, connection: &mut PipelineConnection<H>, worker: &Worker<H>) -> bool {
        // a connection on its way from list to list has no time other than that of its request
        if !connection.is_listed() || connection.served.goes_on() {
            connection.timer.set(&mut connection.served, worker);
            self.schedule(connection);
        }
        self.rests(connection);
        if connection.served.conn.has_sockets() || !connection.sockets.is_empty() {
            let PipelineConnection { served, token, sockets, .. } = connection;
            if !self.sockets().watch(sockets, *token, &self.epoll, |tell| served.conn.sockets(tell))
            {
                return false;
            }
        }
        match connection.wants() {
            wanted if wanted == connection.armed => true,
            None => true,
            Some(wanted) => self.arm(connection, wanted),
        }
    }

    /// Has the epoll report this of the connection, once. Returns whether that worked.
    pub(super) fn arm(&self, connection: &mut PipelineConnection<H>, what: Once) -> bool {
        let (socket, token) = (connection.served.stream.as_fd(), connection.token);
        let watched = match connection.is_known {
            true => self.epoll.watch_again(socket, token, what),
            false => self.epoll.add_once(socket, token, what),
        };
        if watched.is_ok() {
            connection.is_known = true;
            connection.armed = Some(what);
        }
        watched.is_ok()
    }

    /// Closes a connection whose job stays in the pipeline, if its client has left: the epoll may
    /// not have been asked to report that.
    pub(super) fn close_if_gone(
        &self,
        RequestKey { connection: token, request: id }: RequestKey,
        worker: &mut Worker<H>,
    ) {
        let Some(mut slot) = self.slab.lock(token) else { return };
        let Some(connection) = slot.connection() else { return };
        let served = &connection.served;
        if served.waits.has_job(id) && served.is_gone() {
            self.close(slot, Closing::Now, worker);
        }
    }

    /// Adds the connection to those that may have to make room, if it is idle.
    fn rests(&self, connection: &mut PipelineConnection<H>) {
        if self.lists.ranks.is_ordered() && connection.resting.is_none() && connection.is_idle() {
            let ranked_client = self.ranked_client_at_rest(connection);
            connection.resting = self.idle().add(ranked_client, connection.token);
        }
    }

    /// Removes the connection, which goes on or ends, from those that may have to make room.
    fn wakes(&self, connection: &mut PipelineConnection<H>) {
        if connection.resting.is_some() {
            self.idle().remove(&mut connection.resting);
        }
    }

    /// Closes the idle connection of the lowest rank, if that is not above this rank.
    pub(super) fn make_room(&self, rank: Rank, worker: &mut Worker<H>) {
        for _ in 0..TRIES {
            let Some(token) = self.idle().take(rank) else { return };
            // a connection that a thread works on is not idle
            let Ok(Some(mut slot)) = self.slab.try_lock(token) else { continue };
            let Some(connection) = slot.connection() else { continue };
            if connection.is_idle() && !has_news(connection.served.stream.as_fd()) {
                worker.count(Counter::MadeRoom);
                return self.close(slot, Closing::Now, worker);
            }
        }
    }

    /// Has the watcher look at the connection when its first deadline is over.
    fn schedule(&self, connection: &mut PipelineConnection<H>) {
        if connection.timer.is_scheduled() {
            return;
        }
        let shown = connection.timer.schedule(&mut self.time().wheel, connection.token);
        if let Some(at_ms) = shown {
            self.look_by(at_ms);
        }
    }

    /// Wakes the watcher if it would sleep beyond this time.
    fn look_by(&self, at_ms: u64) {
        let mut time = self.time();
        if at_ms < time.next_ms {
            time.next_ms = at_ms;
            self.ring();
        }
    }

    /// Keeps a request that may not be answered before its time.
    pub(super) fn keep_early(
        &self,
        connection: &mut PipelineConnection<H>,
        id: RequestId,
        wait_ms: u32,
        worker: &Worker<H>,
    ) {
        if !connection.served.waits.contains(id) {
            connection.served.waits.add(id, RequestWait::NotBefore);
            let at_ms = worker.not_before_ms(wait_ms);
            self.time().early.wait_until(at_ms, connection.key(id));
            self.look_by(at_ms);
        }
    }

    /// Handles a report about a socket that this request waits for. Returns whether that is done:
    /// it is not while a thread works on the connection.
    pub(super) fn socket_ready(
        &self,
        RequestKey { connection: token, request: id }: RequestKey,
    ) -> bool {
        let mut slot = match self.slab.try_lock(token) {
            Ok(Some(slot)) => slot,
            Ok(None) => return true,
            Err(()) => return false,
        };
        let Some(connection) = slot.connection() else { return true };
        connection.served.keep_event(RequestEvent::Socket(id));
        if !connection.is_held() {
            let phase = match connection.served.conn.stays_in_receive() {
                true => Phase::Receive,
                false => Phase::Process,
            };
            self.list(slot, phase);
        }
        true
    }

    /// Looks at a connection that the wheel presents: a deadline may have come, or moved.
    pub(super) fn look_at_deadline(&self, token: u64, worker: &mut Worker<H>) {
        let now_ms = worker.now_ms();
        let mut slot = match self.slab.try_lock(token) {
            Ok(Some(slot)) => slot,
            Ok(None) => return,
            // a thread works on the connection and may exceed its deadline, so the look follows
            // later
            Err(()) => {
                self.time().wheel.insert(now_ms, token);
                return;
            }
        };
        let Some(connection) = slot.connection() else { return };
        if !connection.timer.presented(now_ms) {
            return;
        }
        match connection.timer.over(&mut connection.served, worker) {
            None => self.schedule(connection),
            // the threads are late, not the client; one of them will come to the connection
            Some(awaited)
                if connection.is_listed()
                    && (connection.is_single() || awaited.what != Await::Job) =>
            {
                self.schedule(connection);
            }
            Some(awaited) => match worker.expire(&mut connection.served, awaited) {
                Some(closing) => self.end(slot, closing, worker),
                None => {
                    connection.timer.expired();
                    self.go_on_after_expiry(slot);
                }
            },
        }
    }

    /// Goes on with a connection after the time for one of its requests was over.
    pub(super) fn go_on_after_expiry(&self, mut slot: Locked<'_, H>) {
        let Some(connection) = slot.connection() else { return };
        let phase = if connection.has_to_send() { Phase::Send } else { Phase::Receive };
        self.list(slot, phase);
    }

    /// Ends a connection in the way it asks for.
    pub(super) fn end(&self, mut slot: Locked<'_, H>, closing: Closing, worker: &mut Worker<H>) {
        let Some(connection) = slot.connection() else { return };
        if worker.draining {
            let awaited = connection.awaits();
            let mut ended = self.ended();
            match closing {
                Closing::Reset => ended.abort(awaited),
                Closing::Now | Closing::Linger => ended.drained += 1,
            }
        }
        self.close(slot, closing, worker);
    }

    /// Lends the connection's socket to another process; the epoll reports it no longer.
    pub(super) fn lend(&self, connection: &mut PipelineConnection<H>, worker: &mut Worker<H>) {
        if std::mem::take(&mut connection.is_known) {
            let _ = self.epoll.remove(connection.served.stream.as_fd());
        }
        connection.armed = None;
        worker.lend(&mut connection.served);
    }

    /// Gives the connection away.
    pub(super) fn hand_over(&self, mut slot: Locked<'_, H>, worker: &mut Worker<H>) {
        if let Some(connection) = slot.connection() {
            self.sockets().forget(&mut connection.sockets);
            if connection.is_known {
                let _ = self.epoll.remove(connection.served.stream.as_fd());
            }
        }
        if let Some(served) = self.slab.remove(slot) {
            worker.hand_over(served);
            self.gone();
        }
    }

    /// Closes a connection at once. Every connection ends here or is handed over.
    pub(super) fn close(&self, mut slot: Locked<'_, H>, closing: Closing, worker: &mut Worker<H>) {
        if let Some(connection) = slot.connection() {
            self.wakes(connection);
            if !connection.sockets.is_empty() {
                self.sockets().forget(&mut connection.sockets);
            }
        }
        if let Some(served) = self.slab.remove(slot) {
            worker.close(served, closing);
            self.gone();
        }
    }

    fn gone(&self) {
        if self.slab.closed() && self.control.order() > LoopOrder::Run {
            self.ring();
        }
    }
}
