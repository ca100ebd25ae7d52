//! One connection of a loop: when it has a turn, its deadline, its end.

use super::EventLoop;
use crate::helpers::{Ask, Crew};
use crate::settings::{LINGER_BYTES, LINGER_MS};
use crate::timer::SLOT_MS;
use crate::worker::{Fate, Served};
use forebay_conn::{Await, Closing, Handler, Job};
use forebay_control::allocation::Phase;
use forebay_control::ranked::Key;
use forebay_metrics::Counter;
use forebay_sys::epoll::Ready;
use forebay_sys::socket;
use std::os::fd::AsFd;
use std::sync::Arc;

/// A connection and what the loop must know about it.
pub(super) struct Connection<H: Handler> {
    pub(super) served: Served<H>,
    pub(super) token: u64,
    /// The kernel reports it.
    watched: bool,
    pub(super) state: State,
    deadline_ms: u64,
    /// When the wheel will present it; 0 for never.
    timer_ms: u64,
    /// What the deadline is for, and how many requests had been answered when it was set.
    awaited: Option<(Await, u32)>,
    /// Its place among those that make room while they are idle.
    resting: Option<Key>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Serving,
    /// Its request is there and is answered when its turn has come.
    InLine(Key),
    /// It has used up its turn and is in the queue for another.
    Yielded,
    /// A job is running: for the request, or to bring file data into memory.
    InJob,
    /// Writing is shut down; this many bytes may still be read and dropped.
    Lingering(u64),
}

impl<H: Handler> Connection<H> {
    pub(super) fn new(served: Served<H>, token: u64) -> Self {
        Connection {
            served,
            token,
            watched: false,
            state: State::Serving,
            deadline_ms: 0,
            timer_ms: 0,
            awaited: None,
            resting: None,
        }
    }

    pub(super) fn awaits(&self) -> Await {
        match self.state {
            State::InJob => Await::Job,
            _ => self.served.awaits(),
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.state == State::Serving && !self.served.readable && self.awaits() == Await::Idle
    }
}

impl<H: Handler, C: Crew<H::Job>> EventLoop<H, C> {
    /// The kernel reports a connection.
    #[inline]
    pub(super) fn ready(&mut self, ready: Ready) {
        let Some(key) = self.key(ready.token) else { return };
        let connection = &mut self.connections[key];
        let served = &mut connection.served;
        served.readable |= ready.readable;
        served.ended |= ready.ended;
        if ready.broken {
            return self.close(ready.token, Closing::Now);
        }
        let can_go_on = match connection.state {
            State::Serving if served.pending.is_some() => ready.writable,
            State::Serving => served.readable,
            State::Yielded | State::InLine(_) | State::InJob => false,
            State::Lingering(left) => return self.drop_input(ready.token, left),
        };
        if can_go_on {
            self.take_turn(ready.token, None);
        }
    }

    /// A helper thread has finished a job of this connection, or has panicked.
    pub(super) fn job_done(&mut self, token: u64, result: Option<<H::Job as Job>::Done>) {
        let Some(key) = self.key(token) else { return };
        let Some(done) = result else {
            self.worker.count(Counter::Panics);
            return self.close(token, Closing::Reset);
        };
        let connection = &mut self.connections[key];
        connection.served.job_done();
        if connection.state == State::InJob {
            self.take_turn(token, Some(done));
        }
    }

    /// Lets the connection go on as far as it can, and does what this has led to.
    #[inline]
    pub(super) fn take_turn(&mut self, token: u64, done: Option<<H::Job as Job>::Done>) {
        let Some(key) = self.key(token) else { return };
        let connection = &mut self.connections[key];
        if let State::Lingering(_) = connection.state {
            return;
        }
        connection.state = State::Serving;
        self.idle.remove(&mut connection.resting);
        let served = &mut connection.served;
        let fate = match done {
            done if !self.waiting.is_ordered() => self.worker.turn(served, done),
            None => self.worker.arrive(served),
            done => self.worker.answer(served, done),
        };
        self.carry_out(key, fate);
    }

    /// Answers the request of a connection that has waited in line.
    pub(super) fn answer(&mut self, token: u64) {
        let Some(key) = self.key(token) else { return };
        let connection = &mut self.connections[key];
        connection.state = State::Serving;
        let fate = self.worker.answer(&mut connection.served, None);
        self.carry_out(key, fate);
    }

    /// Does what a turn has led to.
    #[inline]
    fn carry_out(&mut self, key: usize, fate: Fate<H::Job>) {
        let connection = &mut self.connections[key];
        let token = connection.token;
        match fate {
            Fate::Waits => {}
            Fate::Yields => {
                connection.state = State::Yielded;
                self.yielded.push_back(token);
            }
            Fate::Next(_) => self.line_up(key),
            Fate::Job(job) => {
                connection.state = State::InJob;
                self.worker.count(Counter::Jobs);
                let is_under_way = connection.served.pending.is_some();
                let phase = if is_under_way { Phase::Send } else { Phase::Process };
                let standing = connection.served.standing(&self.ranks);
                let ask = Ask { phase, standing, token };
                let job = connection.served.wait_for(job);
                let results = Arc::clone(&self.mailbox);
                if !self.helpers.submit(job, ask, results) {
                    let closing = self.worker.expire(&mut connection.served, Await::Job);
                    return self.end(token, closing);
                }
            }
            Fate::HandOver => return self.hand_over(key),
            Fate::Closes(closing) => return self.end(token, closing),
        }
        if !self.watch(key) {
            return self.close(token, Closing::Reset);
        }
        self.set_deadline(key);
    }

    /// Has the kernel report the connection from now on. One that is answered and closed in its
    /// first turn never needs it.
    #[inline]
    fn watch(&mut self, key: usize) -> bool {
        let connection = &mut self.connections[key];
        if !connection.watched {
            let added = self.epoll.add_connection(&connection.served.socket, connection.token);
            connection.watched = added.is_ok();
        }
        connection.watched
    }

    /// Gives the connection time for what it waits for, unless it has been given that already.
    #[inline]
    fn set_deadline(&mut self, key: usize) {
        let connection = &mut self.connections[key];
        let awaited = (connection.awaits(), connection.served.conn.served());
        if connection.awaited != Some(awaited) {
            connection.awaited = Some(awaited);
            match awaited.0 {
                Await::Send => connection.served.begin_window(),
                Await::Idle if self.waiting.is_ordered() => {
                    let standing = connection.served.standing(&self.ranks);
                    connection.resting = self.idle.add(standing, connection.token);
                }
                _ => {}
            }
            let time_ms = self.worker.time_ms(&connection.served, awaited.0);
            connection.deadline_ms = self.worker.now_ms() + time_ms;
            if awaited.0 == Await::Admission {
                self.waiting.early.wait_until(connection.deadline_ms, connection.token);
            }
        }
        if connection.awaited.is_some_and(|(awaited, _)| awaited != Await::Admission) {
            self.schedule(key);
        }
    }

    /// Sees to it that the wheel presents the connection in time. A deadline that has moved later
    /// is met by the entry that is there.
    #[inline]
    fn schedule(&mut self, key: usize) {
        let connection = &mut self.connections[key];
        let late_ms = connection.deadline_ms + 2 * SLOT_MS;
        if connection.timer_ms == 0 || connection.timer_ms > late_ms {
            connection.timer_ms = self.wheel.insert(connection.deadline_ms, connection.token);
        }
    }

    /// The wheel presents a connection: its deadline may have come, or moved.
    pub(super) fn look_at_deadline(&mut self, token: u64) {
        let Some(key) = self.key(token) else { return };
        let now_ms = self.worker.now_ms();
        let connection = &mut self.connections[key];
        if connection.timer_ms > now_ms {
            // an entry from before the deadline moved forward
            return;
        }
        connection.timer_ms = 0;
        if connection.deadline_ms > now_ms {
            return self.schedule(key);
        }
        if let State::Lingering(_) = connection.state {
            return self.close(token, Closing::Now);
        }
        if connection.awaits() == Await::Admission {
            // an entry for what it waited for before; this wait ends by itself
            return;
        }
        let timeouts = &self.worker.settings.timeouts;
        let awaited = connection.awaits();
        if awaited == Await::Send
            && connection.served.taken_in_window() >= timeouts.bytes_per_window()
        {
            connection.served.begin_window();
            connection.deadline_ms = now_ms + timeouts.send_window_ms;
            return self.schedule(key);
        }
        let closing = self.worker.expire(&mut connection.served, awaited);
        self.end(token, closing);
    }

    /// Ends a connection the way it asks for.
    pub(super) fn end(&mut self, token: u64, closing: Closing) {
        if let Some(key) = self.key(token).filter(|_| self.worker.draining) {
            match closing {
                Closing::Reset => self.ended.abort(self.connections[key].awaits()),
                Closing::Now | Closing::Linger => self.ended.drained += 1,
            }
        }
        match closing {
            Closing::Linger if self.lingering < self.worker.settings.lingering => {
                self.linger(token);
            }
            closing => self.close(token, closing),
        }
    }

    /// Shuts down writing, then reads and drops for a while.
    fn linger(&mut self, token: u64) {
        let Some(key) = self.key(token) else { return };
        let connection = &mut self.connections[key];
        socket::shut_down_writing(connection.served.socket.as_fd());
        connection.state = State::Lingering(LINGER_BYTES);
        connection.served.pending = None;
        connection.deadline_ms = self.worker.now_ms() + LINGER_MS;
        self.lingering += 1;
        if !self.watch(key) {
            return self.close(token, Closing::Now);
        }
        self.schedule(key);
        self.drop_input(token, LINGER_BYTES);
    }

    fn drop_input(&mut self, token: u64, most: u64) {
        let Some(key) = self.key(token) else { return };
        let connection = &mut self.connections[key];
        match self.worker.drop_input(connection.served.socket.as_fd(), most) {
            Some(left) => connection.state = State::Lingering(left),
            None => self.close(token, Closing::Now),
        }
    }

    /// Gives the connection away.
    fn hand_over(&mut self, key: usize) {
        let connection = self.connections.remove(key);
        if connection.watched {
            let _ = self.epoll.remove(&connection.served.socket);
        }
        self.worker.hand_over(connection.served);
    }

    /// Closes at once; every connection ends here or is handed over.
    pub(super) fn close(&mut self, token: u64, closing: Closing) {
        let Some(key) = self.key(token) else { return };
        let mut connection = self.connections.remove(key);
        self.idle.remove(&mut connection.resting);
        match connection.state {
            State::Lingering(_) => self.lingering -= 1,
            State::InLine(place) => self.waiting.remove(place),
            State::Serving | State::Yielded | State::InJob => {}
        }
        self.worker.close(connection.served, closing);
    }
}
