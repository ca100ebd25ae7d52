//! One connection of a loop: when it has a turn, its deadlines, its end.

use super::{EventLoop, MOST_SHAKING};
use crate::connection::served::{EventOf, Served};
use crate::connection::turn::Fate;
use crate::connection::waits::RequestWait;
use crate::helpers::{JobContext, JobRunner};
use crate::loops::deadlines::ConnectionTimer;
use crate::loops::sockets::{SocketReport, Watched};
use crate::order::ranks::RequestKey;
use forebay_conn::{Await, Closing, Handler, Job, Protocol, Rank, RequestEvent, RequestId};
use forebay_control::allocation::Phase;
use forebay_control::ranked::Key;
use forebay_metrics::Counter;
use forebay_sys::epoll::ReadyDescriptor;
use std::os::fd::AsFd;
use std::sync::Arc;

/// A connection and what the loop must know about it.
pub(super) struct LoopConnection<H: Handler> {
    pub(super) served: Served<H>,
    pub(super) token: u64,
    /// The kernel reports the connection.
    watched: bool,
    pub(super) state: ConnectionState,
    timer: ConnectionTimer,
    /// The connection's place among those that make room while they are idle.
    resting: Option<Key>,
    /// The other sockets that the connection's requests wait for.
    sockets: Watched,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionState {
    Serving,
    /// The connection has used up its turn and is in the queue for another.
    Yielded,
    /// The client takes more of its answer, and the connection is in the queue for that.
    Sends(Key),
}

impl<H: Handler> LoopConnection<H> {
    pub(super) fn new(served: Served<H>, token: u64) -> Self {
        LoopConnection {
            served,
            token,
            watched: false,
            state: ConnectionState::Serving,
            timer: ConnectionTimer::default(),
            resting: None,
            sockets: Watched::default(),
        }
    }

    pub(super) fn awaits(&self) -> Await {
        self.served.awaits().what
    }

    pub(super) fn is_idle(&self) -> bool {
        self.state == ConnectionState::Serving && !self.served.readable && self.served.is_idle()
    }

    pub(super) fn hears_of_drain(&self) -> bool {
        self.state == ConnectionState::Serving
            && !self.served.readable
            && self.served.hears_of_drain()
    }
}

impl<H: Handler, C: JobRunner<H::Job>> EventLoop<H, C> {
    /// Handles a report of the kernel about a connection.
    #[inline]
    pub(super) fn ready(&mut self, ready: ReadyDescriptor) {
        let Some(key) = self.key(ready.token) else { return };
        let connection = &mut self.connections[key];
        let served = &mut connection.served;
        served.has_come(ready.readable | ready.broken, ready.ended);
        if ready.broken && !served.stream.has_ended() {
            return self.close(ready.token, Closing::Now);
        }
        match connection.state {
            ConnectionState::Serving if served.can_go_on(ready.writable) => {
                let has_room = served.pending.is_some() && ready.writable;
                if !(has_room && self.sends_in_turn(key)) {
                    self.take_turn(ready.token, None);
                }
            }
            ConnectionState::Serving | ConnectionState::Yielded | ConnectionState::Sends(_) => {}
        }
    }

    /// Handles a report about a socket that a request waits for.
    pub(super) fn socket_ready(&mut self, token: u64) {
        match self.sockets.ready(token) {
            Some(SocketReport::Request(RequestKey { connection, request })) => {
                self.take_turn(connection, Some(RequestEvent::Socket(request)));
            }
            Some(SocketReport::Unowned(socket)) => self.worker.handler.stirred(socket),
            None => {}
        }
    }

    /// Goes on with a request for which code of this process has something.
    pub(super) fn woken(&mut self, RequestKey { connection, request }: RequestKey) {
        self.take_turn(connection, Some(RequestEvent::Socket(request)));
    }

    /// Goes on with this request, whose job a helper thread has finished, or whose job has
    /// panicked.
    pub(super) fn job_done(
        &mut self,
        RequestKey { connection: token, request }: RequestKey,
        result: Option<<H::Job as Job>::Done>,
    ) {
        let Some(key) = self.key(token) else { return };
        if !self.connections[key].served.job_done(request) {
            return;
        }
        let event = match result {
            Some(done) => RequestEvent::Done(request, done),
            None => {
                self.worker.count(Counter::Panics);
                RequestEvent::Failed(request)
            }
        };
        let LoopConnection { served, state, .. } = &mut self.connections[key];
        let has_a_turn = matches!(state, ConnectionState::Yielded | ConnectionState::Sends(_));
        if has_a_turn && served.goes_on() {
            // the connection's neighbours come first
            return served.keep_event(event);
        }
        self.take_turn(token, Some(event));
    }

    /// Lets the connection go on as far as it can, and does what this has led to.
    #[inline]
    pub(super) fn take_turn(&mut self, token: u64, event: Option<EventOf<H>>) {
        let Some(key) = self.key(token) else { return };
        let connection = &mut self.connections[key];
        match connection.state {
            ConnectionState::Sends(place) => self.send_queue.leave(place),
            ConnectionState::Serving | ConnectionState::Yielded => {}
        }
        connection.state = ConnectionState::Serving;
        self.idle.remove(&mut connection.resting);
        let served = &mut connection.served;
        let fate = match event {
            event if !self.waiting.is_ordered() => self.worker.turn(served, event),
            Some(RequestEvent::Done(id, done)) => {
                self.worker.answer(served, id, Some(RequestEvent::Done(id, done)))
            }
            event => self.worker.arrive(served, event),
        };
        self.carry_out(key, fate);
    }

    /// Answers a request whose turn has come.
    pub(super) fn answer(&mut self, RequestKey { connection: token, request }: RequestKey) {
        let Some(key) = self.key(token) else { return };
        let connection = &mut self.connections[key];
        match connection.state {
            ConnectionState::Sends(place) => {
                self.send_queue.leave(place);
                connection.state = ConnectionState::Serving;
            }
            ConnectionState::Serving | ConnectionState::Yielded => {}
        }
        let served = &mut connection.served;
        served.waits.remove(request);
        let fate = self.worker.answer(served, request, Some(RequestEvent::Called(request)));
        self.carry_out(key, fate);
    }

    /// Does what a turn has led to; a connection with other requests has another at once.
    #[inline]
    fn carry_out(&mut self, key: usize, mut fate: Fate<H::Job>) {
        let token = self.connections[key].token;
        loop {
            match fate {
                Fate::Waits => break,
                Fate::Yields | Fate::Next(_) => {
                    self.connections[key].state = ConnectionState::Yielded;
                    self.yielded.push_back(token);
                    break;
                }
                Fate::Shakes => {
                    let connection = &mut self.connections[key];
                    let rank = connection.served.conn.rank();
                    let waiting = &mut self.shaking[usize::from(rank != Rank::FIRST)];
                    if waiting.len() >= MOST_SHAKING {
                        self.worker.count(Counter::RefusedHandshake);
                        return self.end(token, Closing::Reset);
                    }
                    connection.state = ConnectionState::Yielded;
                    waiting.push_back(token);
                    break;
                }
                Fate::Enqueue(id) => self.enqueue(key, id),
                Fate::NotBefore(id, wait_ms) => self.keep_early(key, id, wait_ms),
                Fate::Job(id, job) => {
                    if let Some(closing) = self.give_job(key, id, job) {
                        return self.end(token, closing);
                    }
                }
                Fate::Lends => self.lend(key),
                Fate::HandOver => return self.hand_over(key),
                Fate::Closes(closing) => return self.end(token, closing),
            }
            let served = &mut self.connections[key].served;
            if !served.goes_on() {
                break;
            }
            fate = match self.waiting.is_ordered() {
                true => self.worker.arrive(served, None),
                false => self.worker.turn(served, None),
            };
        }
        if !self.watch(key) {
            return self.close(token, Closing::Reset);
        }
        self.set_deadline(key);
    }

    /// Has a job done for a request. Returns `Some` if too many jobs wait, and the connection ends
    /// by that.
    fn give_job(&mut self, key: usize, id: RequestId, job: H::Job) -> Option<Closing> {
        let LoopConnection { served, token, .. } = &mut self.connections[key];
        self.worker.count(Counter::Jobs);
        let phase = if id == RequestId::SENDING { Phase::Send } else { Phase::Process };
        let ranked_client = served.ranked_client(&self.ranks, id);
        let ask = JobContext {
            phase,
            ranked_client,
            request: RequestKey { connection: *token, request: id },
        };
        let job = served.wait_for(id, job);
        if self.helpers.submit(job, ask, Arc::clone(&self.mailbox) as Arc<_>) {
            return None;
        }
        self.worker.expire_job(served, id)
    }

    /// Keeps a request that may not be answered before its time.
    fn keep_early(&mut self, key: usize, id: RequestId, wait_ms: u32) {
        let LoopConnection { served, token, .. } = &mut self.connections[key];
        if !served.waits.contains(id) {
            served.waits.add(id, RequestWait::NotBefore);
            let request = RequestKey { connection: *token, request: id };
            self.waiting.early.wait_until(self.worker.not_before_ms(wait_ms), request);
        }
    }

    /// Has the kernel report the connection, and the other sockets of its requests, from now on. A
    /// connection that is answered and closed in its first turn never needs this.
    #[inline]
    fn watch(&mut self, key: usize) -> bool {
        let connection = &mut self.connections[key];
        let is_lent = connection.served.conn.is_lent();
        if !connection.watched && !is_lent {
            let added =
                self.epoll.add_connection(connection.served.stream.as_fd(), connection.token);
            connection.watched = added.is_ok();
        }
        if connection.served.conn.has_sockets() || !connection.sockets.is_empty() {
            let LoopConnection { served, token, sockets, .. } = connection;
            self.mailbox.leave_wakers::<H>(*token, &served.conn);
            return (connection.watched || is_lent)
                && self
                    .sockets
                    .watch(sockets, *token, &self.epoll, |tell| served.conn.sockets(tell));
        }
        connection.watched || is_lent
    }

    /// Sets the time for what the connection waits for, unless that is set already.
    #[inline]
    fn set_deadline(&mut self, key: usize) {
        let connection = &mut self.connections[key];
        if connection.timer.set(&mut connection.served, &self.worker)
            && self.waiting.is_ordered()
            && connection.served.is_idle()
        {
            let ranked_client = connection.served.ranked_client_at_rest(&self.ranks);
            connection.resting = self.idle.add(ranked_client, connection.token);
        }
        connection.timer.schedule(&mut self.wheel, connection.token);
    }

    /// Looks at a connection that the wheel presents: a deadline may have come, or moved.
    pub(super) fn look_at_deadline(&mut self, token: u64) {
        let Some(key) = self.key(token) else { return };
        let connection = &mut self.connections[key];
        if !connection.timer.presented(self.worker.now_ms()) {
            return;
        }
        let served = &mut connection.served;
        match connection.timer.over(served, &self.worker) {
            None => _ = connection.timer.schedule(&mut self.wheel, token),
            Some(awaited) => match self.worker.expire(served, awaited) {
                Some(closing) => self.end(token, closing),
                None => {
                    connection.timer.expired();
                    self.take_turn(token, None);
                }
            },
        }
    }

    /// Ends a connection in the way it asks for.
    pub(super) fn end(&mut self, token: u64, closing: Closing) {
        if let Some(key) = self.key(token).filter(|_| self.worker.draining) {
            match closing {
                Closing::Reset => self.ended.abort(self.connections[key].awaits()),
                Closing::Now | Closing::Linger => self.ended.drained += 1,
            }
        }
        self.close(token, closing);
    }

    /// Lends the connection's socket to another process; the kernel reports it no longer.
    fn lend(&mut self, key: usize) {
        let LoopConnection { served, watched, .. } = &mut self.connections[key];
        if std::mem::take(watched) {
            let _ = self.epoll.remove(served.stream.as_fd());
        }
        self.worker.lend(served);
    }

    /// Gives the connection away.
    fn hand_over(&mut self, key: usize) {
        let connection = self.remove(key);
        if connection.watched {
            let _ = self.epoll.remove(connection.served.stream.as_fd());
        }
        self.worker.hand_over(connection.served);
    }

    /// Closes a connection at once. Every connection ends here or is handed over.
    pub(super) fn close(&mut self, token: u64, closing: Closing) {
        let Some(key) = self.key(token) else { return };
        let connection = self.remove(key);
        self.worker.close(connection.served, closing);
    }

    /// Takes a connection out of all that knows it, except the kernel.
    fn remove(&mut self, key: usize) -> LoopConnection<H> {
        let mut connection = self.connections.remove(key);
        self.idle.remove(&mut connection.resting);
        self.sockets.forget(&mut connection.sockets);
        self.waiting.leave(&connection.served.waits);
        if let ConnectionState::Sends(place) = connection.state {
            self.send_queue.leave(place);
        }
        connection
    }
}
