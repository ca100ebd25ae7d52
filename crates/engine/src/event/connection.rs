//! One connection of a loop: its turns, its deadline, its end.

use super::EventLoop;
use crate::admission::Place;
use crate::send::{self, Progress};
use crate::settings::{LINGER_BYTES, LINGER_CONNECTIONS, LINGER_MS};
use crate::watch::Watch;
use forebay_conn::{Await, Closing, Conn, Context, Handler, Job, Out, Peer, Reply, Step};
use forebay_metrics::{Activity, Counter, Stopwatch};
use forebay_sys::epoll::Ready;
use forebay_sys::socket::{self, Received};
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A connection and what the loop must know about it.
pub(super) struct Connection<H: Handler> {
    socket: OwnedFd,
    peer: Peer,
    pub(super) token: u64,
    conn: Conn<H>,
    /// What the client has not taken yet.
    pending: Option<Box<Out<H::Body>>>,
    /// The socket may have something to receive.
    readable: bool,
    /// The client has shut down writing, so a short receive is not the last.
    ended: bool,
    watched: bool,
    /// It has used up its turn and is in the queue for another.
    yielded: bool,
    state: State,
    deadline_ms: u64,
    /// When the wheel will present it; 0 for never.
    timer_ms: u64,
    /// What the deadline is for, and how many requests had been answered when it was set.
    awaited: Option<(Await, u32)>,
    /// Bytes sent since the send window began.
    window_bytes: u64,
    /// Gives the place in the count back.
    _place: Option<Place>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Serving,
    /// A job is running: for the request, or to bring file data into memory.
    InJob,
    /// Writing is shut down; this many bytes may still be read and dropped.
    Lingering(u64),
}

/// What becomes of a connection after its turn.
enum Fate<J> {
    Waits,
    Yields,
    Job(J),
    HandOver,
    Closes(Closing),
}

impl<H: Handler> Connection<H> {
    pub(super) fn new(socket: OwnedFd, peer: Peer, token: u64, place: Option<Place>) -> Self {
        Connection {
            socket,
            peer,
            token,
            conn: Conn::default(),
            pending: None,
            // its request is likely to be there already
            readable: true,
            ended: false,
            watched: false,
            yielded: false,
            state: State::Serving,
            deadline_ms: 0,
            timer_ms: 0,
            awaited: None,
            window_bytes: 0,
            _place: place,
        }
    }

    pub(super) fn awaits(&self) -> Await {
        if self.pending.is_some() { Await::Send } else { self.conn.awaits() }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.awaits() == Await::Idle && !self.readable && self.state == State::Serving
    }
}

impl<H: Handler> EventLoop<H> {
    /// The kernel reports a connection.
    #[inline]
    pub(super) fn ready(&mut self, ready: Ready) {
        let Some(key) = self.key(ready.token) else { return };
        let connection = &mut self.connections[key];
        connection.readable |= ready.readable;
        connection.ended |= ready.ended;
        if ready.broken {
            return self.close(ready.token);
        }
        let can_go_on = match connection.state {
            _ if connection.yielded => false,
            State::Serving if connection.pending.is_some() => ready.writable,
            State::Serving => connection.readable,
            State::InJob => false,
            State::Lingering(_) => true,
        };
        if can_go_on {
            self.take_turn(ready.token);
        }
    }

    /// A helper thread has finished a job of this connection, or has panicked.
    pub(super) fn job_done(&mut self, token: u64, result: Option<<H::Job as Job>::Done>) {
        let Some(key) = self.key(token) else { return };
        let Some(done) = result else {
            self.count(Counter::Panics);
            return self.close(token);
        };
        let connection = &mut self.connections[key];
        if connection.state == State::InJob {
            connection.state = State::Serving;
            let done = connection.pending.is_none().then_some(done);
            self.drive(token, done);
        }
    }

    /// Lets the connection go on as far as it can.
    #[inline]
    pub(super) fn take_turn(&mut self, token: u64) {
        self.drive(token, None);
    }

    #[inline]
    fn drive(&mut self, token: u64, done: Option<<H::Job as Job>::Done>) {
        let Some(key) = self.key(token) else { return };
        if let State::Lingering(left) = self.connections[key].state {
            return self.drop_input(token, left);
        }
        let turn = AssertUnwindSafe(|| self.turn(key, done));
        match catch_unwind(turn) {
            Ok(fate) => self.decide(token, key, fate),
            Err(_) => {
                self.count(Counter::Panics);
                self.out.clear();
                self.input.clear();
                self.close(token);
            }
        }
    }

    /// The turn itself: receive, answer, send, until something must be waited for.
    #[inline]
    fn turn(&mut self, key: usize, done: Option<<H::Job as Job>::Done>) -> Fate<H::Job> {
        let sampled = self.is_sampled();
        let connection = &mut self.connections[key];
        connection.yielded = false;
        let mut watch = Watch::new(&self.metrics, sampled);
        let mut cx = Context {
            handler: &mut self.handler,
            out: &mut self.out,
            peer: &connection.peer,
            limits: &self.settings.limits,
            date: &self.date,
            draining: self.draining,
            budget: self.settings.turn_requests,
            done,
            metrics: &self.metrics,
            watch: &mut watch,
        };
        let input = &mut self.input;
        connection.conn.resume(input);
        if let Some(pending) = connection.pending.take() {
            cx.out.put_back(*pending);
        }
        let mut budget = self.settings.turn_bytes;
        let draining = self.draining;
        let fate = loop {
            let step = if cx.out.is_empty() {
                connection.conn.advance(&mut cx, input)
            } else {
                Step::Send
            };
            match step {
                Step::Receive if !connection.readable => {
                    let idle = input.is_empty() && connection.conn.awaits() == Await::Idle;
                    break if draining && idle { Fate::Closes(Closing::Now) } else { Fate::Waits };
                }
                Step::Receive => {
                    let room = input.room();
                    let most = room.len();
                    let received = socket::receive(connection.socket.as_fd(), room);
                    cx.watch.lap(Activity::Read);
                    match received {
                        Received::Bytes(count) => {
                            input.received(count);
                            cx.metrics.add(Counter::ReceivedBytes, count as u64);
                            connection.readable = count == most || connection.ended;
                        }
                        Received::Blocked => connection.readable = false,
                        Received::Ended => {
                            connection.conn.end_input();
                            // the next request for bytes is answered with the end
                        }
                        Received::Broken => break Fate::Closes(Closing::Reset),
                    }
                }
                Step::Send => {
                    let (progress, tally) = send::send::<H>(
                        connection.socket.as_fd(),
                        cx.out,
                        cx.handler,
                        budget,
                        cx.metrics,
                        cx.watch,
                    );
                    budget = budget.saturating_sub(tally.bytes);
                    connection.window_bytes += tally.bytes;
                    connection.conn.body_sent(tally.body_bytes);
                    match progress {
                        Progress::Done => connection.conn.sent(cx.handler),
                        Progress::Blocked => break Fate::Waits,
                        Progress::Budget => break Fate::Yields,
                        Progress::Broken => break Fate::Closes(Closing::Reset),
                        Progress::Changed => {
                            cx.metrics.add(Counter::Changed, 1);
                            break Fate::Closes(Closing::Reset);
                        }
                        Progress::Cold => match &cx.out.body {
                            Some(body) => break Fate::Job(cx.handler.warm(body)),
                            None => break Fate::Closes(Closing::Reset),
                        },
                    }
                }
                Step::Process(job) => break Fate::Job(job),
                Step::Wait => break Fate::Waits,
                Step::Yield => break Fate::Yields,
                Step::HandOver => break Fate::HandOver,
                Step::Close(closing) => break Fate::Closes(closing),
            }
        };
        if !cx.out.is_empty() {
            if let Some(body) = &mut cx.out.body {
                cx.handler.hold(body);
            }
            connection.pending = Some(Box::new(cx.out.take_rest()));
        }
        if !matches!(fate, Fate::HandOver) {
            connection.conn.suspend(input);
        }
        fate
    }

    /// Does what the turn has led to.
    #[inline]
    fn decide(&mut self, token: u64, key: usize, fate: Fate<H::Job>) {
        match fate {
            Fate::Waits => {}
            Fate::Yields => {
                self.connections[key].yielded = true;
                self.yielded.push_back(token);
            }
            Fate::Job(job) => {
                self.connections[key].state = State::InJob;
                self.count(Counter::Jobs);
                self.helpers.submit(job, token, &self.mailbox);
            }
            Fate::HandOver => return self.hand_over(key),
            Fate::Closes(closing) => return self.end(token, key, closing),
        }
        if !self.connections[key].watched && !self.watch(key) {
            return self.close(token);
        }
        self.set_deadline(key);
    }

    /// Has the kernel report the connection from now on. One that is answered and closed in its
    /// first turn never comes here.
    fn watch(&mut self, key: usize) -> bool {
        let connection = &mut self.connections[key];
        connection.watched =
            self.epoll.add_connection(&connection.socket, connection.token).is_ok();
        connection.watched
    }

    /// Gives the connection time for what it waits for, unless it has been given that already.
    #[inline]
    fn set_deadline(&mut self, key: usize) {
        let now_ms = self.now.monotonic_ms;
        let connection = &mut self.connections[key];
        let awaited = match connection.state {
            State::InJob => Await::Job,
            _ => connection.awaits(),
        };
        let awaited = Some((awaited, connection.conn.served()));
        if connection.awaited != awaited {
            connection.awaited = awaited;
            connection.window_bytes = 0;
            let time_ms = awaited.map_or(0, |(what, _)| self.settings.timeouts.of(what));
            connection.deadline_ms = now_ms + time_ms;
        }
        self.schedule(key);
    }

    /// Sees to it that the wheel presents the connection in time. A deadline that has moved later
    /// is met by the entry that is there.
    #[inline]
    fn schedule(&mut self, key: usize) {
        let connection = &mut self.connections[key];
        let late_ms = connection.deadline_ms + 2 * crate::timer::SLOT_MS;
        if connection.timer_ms == 0 || connection.timer_ms > late_ms {
            connection.timer_ms = self.wheel.insert(connection.deadline_ms, connection.token);
        }
    }

    /// The wheel presents a connection: its deadline may have come, or moved.
    pub(super) fn look_at_deadline(&mut self, token: u64) {
        let Some(key) = self.key(token) else { return };
        let now_ms = self.now.monotonic_ms;
        let connection = &mut self.connections[key];
        if connection.timer_ms > now_ms {
            // an entry from before the deadline moved forward
            return;
        }
        connection.timer_ms = 0;
        if connection.deadline_ms > now_ms {
            return self.schedule(key);
        }
        let timeouts = &self.settings.timeouts;
        let awaited = connection.awaited.map(|(awaited, _)| awaited);
        match (connection.state, awaited) {
            (State::Lingering(_), _) => self.close(token),
            (State::Serving, Some(Await::Send))
                if connection.window_bytes >= timeouts.bytes_per_window() =>
            {
                connection.window_bytes = 0;
                connection.deadline_ms = now_ms + timeouts.send_window_ms;
                self.schedule(key);
            }
            (_, awaited) => self.expire(token, key, awaited.unwrap_or(Await::Head)),
        }
    }

    /// Time is over: a last word where one helps, then the end.
    fn expire(&mut self, token: u64, key: usize, awaited: Await) {
        self.count(match awaited {
            Await::Head => Counter::TimeoutHead,
            Await::Body => Counter::TimeoutBody,
            Await::Idle => Counter::TimeoutIdle,
            Await::Send => Counter::TimeoutSend,
            Await::Job => Counter::TimeoutJob,
        });
        let connection = &mut self.connections[key];
        if connection.pending.is_some() {
            return self.end(token, key, Closing::Reset);
        }
        connection.state = State::Serving;
        connection.conn.resume(&mut self.input);
        let mut cx = Context {
            handler: &mut self.handler,
            out: &mut self.out,
            peer: &connection.peer,
            limits: &self.settings.limits,
            date: &self.date,
            draining: true,
            budget: 1,
            done: None,
            metrics: &self.metrics,
            watch: &mut Watch::new(&self.metrics, false),
        };
        let closing = match connection.conn.expire(&mut cx, &mut self.input) {
            Step::Close(closing) => closing,
            _ => Closing::Linger,
        };
        self.input.clear();
        self.send_last_words(token, key, closing);
    }

    /// Refuses a connection that was inserted for just this.
    pub(super) fn refuse_connection(&mut self, token: u64, status: u16, reason: &'static str) {
        let Some(key) = self.key(token) else { return };
        self.write_refusal(status, reason);
        self.send_last_words(token, key, Closing::Linger);
    }

    /// Refuses a connection there is no room for, not even to linger.
    pub(super) fn refuse_unheard(&mut self, socket: OwnedFd, _peer: Peer) {
        self.write_refusal(503, "the server has no free descriptor");
        let _ = socket::send(socket.as_fd(), &self.out.bytes, false);
        self.out.clear();
        // what has been received by now is read, so that the close does not destroy the answer
        let _ = socket::receive(socket.as_fd(), self.input.room());
        self.input.clear();
    }

    fn write_refusal(&mut self, status: u16, reason: &'static str) {
        self.out.clear();
        let mut reply = Reply::new(&mut self.out, &self.date, false);
        self.handler.refuse(status, reason, &mut reply);
        self.count(Counter::of_status(status));
    }

    /// Sends what is in `out` as far as the client takes it at once, and ends the connection.
    fn send_last_words(&mut self, token: u64, key: usize, closing: Closing) {
        if !self.out.is_empty() {
            let socket = self.connections[key].socket.as_fd();
            let sent = socket::send(socket, &self.out.bytes, false);
            if let socket::Sent::Bytes(count) = sent {
                self.metrics.add(Counter::SentBytes, count as u64);
            }
            self.out.clear();
        }
        self.end(token, key, closing);
    }

    /// Ends a connection the way it asks for.
    fn end(&mut self, token: u64, key: usize, closing: Closing) {
        if self.draining {
            self.ended.drained += 1;
        }
        match closing {
            Closing::Linger if self.lingering < LINGER_CONNECTIONS => self.linger(token, key),
            Closing::Linger | Closing::Now => self.close(token),
            Closing::Reset => {
                if self.connections[key].pending.is_some() {
                    self.count(Counter::Aborted);
                }
                let socket = self.connections[key].socket.as_fd();
                socket::reset_on_close(socket);
                self.close(token);
            }
        }
    }

    /// Shuts down writing, then reads and drops for a while.
    fn linger(&mut self, token: u64, key: usize) {
        let connection = &mut self.connections[key];
        socket::shut_down_writing(connection.socket.as_fd());
        connection.state = State::Lingering(LINGER_BYTES);
        connection.pending = None;
        connection.deadline_ms = self.now.monotonic_ms + LINGER_MS;
        self.lingering += 1;
        if !connection.watched && !self.watch(key) {
            return self.close(token);
        }
        self.schedule(key);
        self.drop_input(token, LINGER_BYTES);
    }

    fn drop_input(&mut self, token: u64, mut left: u64) {
        let Some(key) = self.key(token) else { return };
        loop {
            self.input.clear();
            let received = socket::receive(self.connections[key].socket.as_fd(), self.input.room());
            match received {
                Received::Bytes(count) if (count as u64) < left => left -= count as u64,
                Received::Blocked => break,
                _ => return self.close(token),
            }
        }
        self.connections[key].state = State::Lingering(left);
    }

    /// Gives the connection away with everything received.
    fn hand_over(&mut self, key: usize) {
        let mut connection = self.connections.remove(key);
        if connection.watched {
            let _ = self.epoll.remove(&connection.socket);
        }
        self.count(Counter::Closed);
        let received = connection.conn.take_received(&mut self.input);
        self.handler.hand_over(connection.socket, received, &connection.peer);
    }

    /// Closes at once; the one place where a connection ends, but for handing it over.
    pub(super) fn close(&mut self, token: u64) {
        let Some(key) = self.key(token) else { return };
        let sampled = self.is_sampled();
        let mut connection = self.connections.remove(key);
        if matches!(connection.state, State::Lingering(_)) {
            self.lingering -= 1;
        }
        connection.conn.sent(&mut self.handler);
        self.count(Counter::Closed);
        let mut watch = Watch::new(&self.metrics, sampled);
        drop(connection);
        watch.lap(Activity::Close);
    }
}
