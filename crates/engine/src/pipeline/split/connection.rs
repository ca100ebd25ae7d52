//! A connection between two tasks: watched, given time, lingering, closed.

use super::Shared;
use super::slab::{Connection, Locked, State};
use crate::control::Order;
use crate::idle::{TRIES, has_news};
use crate::ranks::Standing;
use crate::settings::{LINGER_BYTES, LINGER_MS};
use crate::timer::SLOT_MS;
use crate::worker::Worker;
use forebay_conn::{Await, Closing, Handler, Rank};
use forebay_control::allocation::Phase;
use forebay_metrics::Counter;
use forebay_sys::socket;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering::Relaxed;

impl<H: Handler> Shared<H> {
    /// Whose the connection's work is; where nothing is ordered, that does not matter.
    pub(super) fn standing(&self, connection: &Connection<H>) -> Standing {
        match self.lists.ranks.is_ordered() {
            true => connection.served.standing(&self.lists.ranks),
            false => Standing::default(),
        }
    }

    /// Leaves the connection to the epoll, which may report it at once: the caller unlocks it and
    /// does nothing more. Says whether that worked.
    pub(super) fn watch(&self, connection: &mut Connection<H>, worker: &Worker<H>) -> bool {
        if connection.state == State::Moving {
            connection.state = State::Watched;
            self.set_deadline(connection, worker);
            self.rests(connection);
        }
        if connection.awaits() == Await::Admission {
            // what comes meanwhile is not looked at before the moment has come
            return self.watch_end(connection);
        }
        let (socket, token) = (&connection.served.socket, connection.token);
        let watched = match connection.is_known {
            true => self.epoll.watch_again(socket, token),
            false => self.epoll.add_once(socket, token),
        };
        connection.is_known |= watched.is_ok();
        watched.is_ok()
    }

    /// Leaves the connection to the epoll, which tells only that its client has left. Says whether that
    /// worked.
    pub(super) fn watch_end(&self, connection: &mut Connection<H>) -> bool {
        let (socket, token) = (&connection.served.socket, connection.token);
        let watched = match connection.is_known {
            true => self.epoll.watch_end(socket, token),
            false => self.epoll.add_end(socket, token),
        };
        connection.is_known |= watched.is_ok();
        watched.is_ok()
    }

    /// Closes a connection that waits for a job which stays in the pipeline, if its client has left:
    /// nobody watches it.
    pub(super) fn close_if_gone(&self, token: u64, worker: &mut Worker<H>) {
        let Some(mut slot) = self.slab.lock(token) else { return };
        let Some(connection) = slot.connection() else { return };
        if connection.state == State::InJob && connection.served.is_gone() {
            self.close(slot, Closing::Now, worker);
        }
    }

    /// The connection is in the epoll from now on; while it is idle it may have to make room.
    fn rests(&self, connection: &mut Connection<H>) {
        if self.lists.ranks.is_ordered() && connection.awaits() == Await::Idle {
            let standing = self.standing(connection);
            connection.resting = self.idle().add(standing, connection.token);
        }
    }

    /// The connection goes on.
    pub(super) fn wakes(&self, connection: &mut Connection<H>) {
        connection.state = State::Moving;
        if connection.resting.is_some() {
            self.idle().remove(&mut connection.resting);
        }
    }

    /// Closes the idle connection that is lowest, if it is not above this rank.
    pub(super) fn make_room(&self, rank: Rank, worker: &mut Worker<H>) {
        for _ in 0..TRIES {
            let Some(token) = self.idle().take(rank) else { return };
            // who works on it has news of it
            let Ok(Some(mut slot)) = self.slab.try_lock(token) else { continue };
            let Some(connection) = slot.connection() else { continue };
            let is_idle = connection.state == State::Watched && connection.awaits() == Await::Idle;
            if is_idle && !has_news(connection.served.socket.as_fd()) {
                worker.count(Counter::MadeRoom);
                return self.close(slot, Closing::Now, worker);
            }
        }
    }

    /// Gives the connection time for what it waits for, unless it has been given that already.
    pub(super) fn set_deadline(&self, connection: &mut Connection<H>, worker: &Worker<H>) {
        let awaited = (connection.awaits(), connection.served.conn.served());
        if connection.awaited != Some(awaited) {
            connection.awaited = Some(awaited);
            let time_ms = worker.time_ms(&connection.served, awaited.0);
            connection.deadline_ms = worker.now_ms() + time_ms;
            if awaited.0 == Await::Admission {
                self.time().early.wait_until(connection.deadline_ms, connection.token);
                self.look_by(connection.deadline_ms);
            }
        }
        if awaited.0 != Await::Admission {
            self.schedule(connection, connection.deadline_ms);
        }
    }

    /// Has the watcher look at the connection at `at_ms`, if it does not do so before.
    fn schedule(&self, connection: &mut Connection<H>, at_ms: u64) {
        if connection.timer_ms != 0 && connection.timer_ms <= at_ms + 2 * SLOT_MS {
            return;
        }
        connection.timer_ms = self.time().wheel.insert(at_ms, connection.token);
        self.look_by(connection.timer_ms);
    }

    /// Wakes the watcher if it sleeps for longer.
    fn look_by(&self, at_ms: u64) {
        let mut time = self.time();
        if at_ms < time.next_ms {
            time.next_ms = at_ms;
            self.ring();
        }
    }

    /// A request came early, and its moment has come.
    pub(super) fn answer_early(&self, token: u64, worker: &Worker<H>) {
        let mut slot = match self.slab.try_lock(token) {
            Ok(Some(slot)) => slot,
            Ok(None) => return,
            // who has put it there has not let go of it yet
            Err(()) => return self.time().early.wait_until(worker.now_ms() + 1, token),
        };
        let Some(connection) = slot.connection() else { return };
        if connection.state == State::Watched && connection.awaits() == Await::Admission {
            connection.served.conn.admit();
            self.wakes(connection);
            let standing = self.standing(connection);
            drop(slot);
            self.lists.push_turn(Phase::Process, token, standing);
        }
    }

    /// The wheel presents a connection: its deadline may have come, or moved.
    pub(super) fn look_at_deadline(&self, token: u64, worker: &mut Worker<H>) {
        let now_ms = worker.now_ms();
        let mut slot = match self.slab.try_lock(token) {
            Ok(Some(slot)) => slot,
            Ok(None) => return,
            // who works on it may take longer than it has; later, then
            Err(()) => {
                self.time().wheel.insert(now_ms, token);
                return;
            }
        };
        let Some(connection) = slot.connection() else { return };
        if connection.timer_ms > now_ms {
            // an entry from before the deadline moved forward
            return;
        }
        connection.timer_ms = 0;
        if connection.deadline_ms > now_ms {
            return self.schedule(connection, connection.deadline_ms);
        }
        let awaited = connection.awaits();
        match connection.state {
            // an entry for what it waited for before; this wait ends by itself
            State::Watched if awaited == Await::Admission => {}
            State::Lingering(_) => self.close(slot, Closing::Now, worker),
            // it is we who are late: somebody will come to it
            State::Moving if awaited != Await::Job => self.schedule(connection, now_ms),
            State::Moving | State::Watched | State::InJob => {
                let closing = worker.expire(&mut connection.served, awaited);
                self.end(slot, closing, worker);
            }
        }
    }

    /// Ends a connection the way it asks for.
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
        if closing == Closing::Linger && self.begin_linger(worker.settings.lingering) {
            socket::shut_down_writing(connection.served.socket.as_fd());
            connection.served.pending = None;
            connection.state = State::Lingering(LINGER_BYTES);
            connection.deadline_ms = worker.now_ms() + LINGER_MS;
            self.schedule(connection, connection.deadline_ms);
            return self.drop_input(slot, LINGER_BYTES, worker);
        }
        self.close(slot, closing, worker);
    }

    /// Reads and drops what a lingering connection has received, and waits for more.
    pub(super) fn drop_input(&self, mut slot: Locked<'_, H>, most: u64, worker: &mut Worker<H>) {
        let Some(connection) = slot.connection() else { return };
        let left = worker.drop_input(connection.served.socket.as_fd(), most);
        let lingers = left.is_some_and(|left| {
            connection.state = State::Lingering(left);
            self.watch(connection, worker)
        });
        if !lingers {
            self.close(slot, Closing::Now, worker);
        }
    }

    /// Gives the connection away.
    pub(super) fn hand_over(&self, mut slot: Locked<'_, H>, worker: &mut Worker<H>) {
        if let Some(connection) = slot.connection()
            && connection.is_known
        {
            let _ = self.epoll.remove(&connection.served.socket);
        }
        if let Some(served) = self.slab.remove(slot) {
            worker.hand_over(served);
            self.gone();
        }
    }

    /// Closes at once; every connection ends here or is handed over.
    pub(super) fn close(&self, mut slot: Locked<'_, H>, closing: Closing, worker: &mut Worker<H>) {
        if let Some(connection) = slot.connection() {
            if let State::Lingering(_) = connection.state {
                self.lingering.fetch_sub(1, Relaxed);
            }
            self.wakes(connection);
        }
        if let Some(served) = self.slab.remove(slot) {
            worker.close(served, closing);
            self.gone();
        }
    }

    fn gone(&self) {
        if self.slab.closed() && self.control.order() > Order::Run {
            self.ring();
        }
    }
}
