//! The thread that has the connections which are [away](super): a loop over the reports of their
//! receivers.

use super::{Away, ToServe};
use crate::connection::served::{EventOf, Served};
use crate::connection::turn::Fate;
use crate::connection::worker::Worker;
use crate::control::{Ended, EngineControl, LoopOrder};
use crate::loops::deadlines::ConnectionTimer;
use crate::loops::sockets::{SocketReport, Sockets, Watched};
use crate::loops::timer_wheel::Wheel;
use crate::loops::watched_listeners::{BELL, FIRST_LISTENER, SOCKETS, token};
use crate::order::ranks::{Ranks, RequestKey};
use forebay_conn::{Closing, Handler, Protocol, RequestEvent};
use forebay_sys::epoll::{Edges, Epoll, Events, ReadyDescriptor};
use slab::Slab;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

/// The longest sleep of the watcher, as the handler's [`turn`](forebay_conn::Hooks::turn) must be
/// called now and then.
const SLEEP_MS: u64 = 500;
/// The events that are taken from the kernel at a time.
const EVENTS: usize = 128;
/// The token of the bells that ring for an order.
const ORDER: u64 = FIRST_LISTENER;

/// The connections and the means of the watcher's thread.
pub(super) struct AwayWatcher<H: Handler> {
    away: Arc<Away<H>>,
    control: Arc<EngineControl>,
    worker: Worker<H>,
    /// Whether requests wait for their turn to be answered.
    is_ordered: bool,
    epoll: Epoll,
    connections: Slab<AwayConnection<H>>,
    sockets: Sockets,
    generation: u32,
    wheel: Wheel,
    ended: Ended,
}

/// A connection that is away.
struct AwayConnection<H: Handler> {
    served: Box<Served<H>>,
    token: u64,
    /// The kernel reports the client's socket.
    watched: bool,
    sockets: Watched,
    timer: ConnectionTimer,
}

impl<H: Handler> AwayWatcher<H> {
    /// A watcher with no connection. `worker` makes a worker if all else is there.
    ///
    /// # Errors
    /// Lack of descriptors.
    pub(super) fn new(
        away: &Arc<Away<H>>,
        control: &Arc<EngineControl>,
        ranks: &Ranks,
        worker: impl FnOnce() -> Worker<H>,
    ) -> io::Result<AwayWatcher<H>> {
        let epoll = Epoll::new()?;
        epoll.add_reader(&away.arrived, BELL)?;
        // each bell rings once and for ever, so edges are enough
        for known in [LoopOrder::Run, LoopOrder::Retire, LoopOrder::Drain] {
            let edges = Edges { read: true, write: false };
            epoll.add_edges(control.stronger_than(known), ORDER, edges)?;
        }
        let worker = worker();
        Ok(AwayWatcher {
            away: Arc::clone(away),
            control: Arc::clone(control),
            is_ordered: ranks.is_ordered(),
            epoll,
            connections: Slab::new(),
            sockets: Sockets::default(),
            generation: 0,
            wheel: Wheel::new(worker.now_ms()),
            ended: Ended::default(),
            worker,
        })
    }

    /// Runs the thread.
    pub(super) fn run(mut self) {
        let mut events = Events::with_capacity(EVENTS);
        let mut due = Vec::new();
        loop {
            let sleep_ms = self.wheel.sleep_ms(self.worker.now_ms(), SLEEP_MS);
            // epoll_wait does not fail here
            let is_well = self.epoll.wait(&mut events, sleep_ms).is_ok();
            let order = self.control.order();
            self.worker.draining = order >= LoopOrder::Drain;
            self.worker.read_clocks();
            self.worker.begin_turn();
            self.worker.observe(|| self.away.load());
            if order == LoopOrder::Stop || !is_well {
                return self.cut();
            }
            for ready in events.iter() {
                match ready.token {
                    BELL => {
                        for served in self.away.take_arriving() {
                            self.arrive(served);
                        }
                    }
                    ORDER.. => {}
                    SOCKETS.. => self.socket_ready(ready.token),
                    _ => self.ready(ready),
                }
            }
            self.wheel.advance(self.worker.now_ms(), &mut due);
            for token in due.drain(..) {
                self.look_at_deadline(token);
            }
            if order != LoopOrder::Run && self.ends(false) {
                return;
            }
        }
    }

    /// Cuts all connections.
    fn cut(mut self) {
        loop {
            for served in self.away.take_arriving() {
                self.insert(served);
            }
            let all: Vec<usize> = self.connections.iter().map(|(key, _)| key).collect();
            for key in all {
                self.end(key, Closing::Reset);
            }
            if self.ends(true) {
                return;
            }
        }
    }

    fn ends(&mut self, is_cut: bool) -> bool {
        let ended = std::mem::take(&mut self.ended);
        self.away.watcher_ends(is_cut, ended)
    }

    fn key(&self, token: u64) -> Option<usize> {
        let key = (token & 0xffff_ffff) as usize;
        self.connections.get(key).filter(|connection| connection.token == token).map(|_| key)
    }

    fn insert(&mut self, served: Box<Served<H>>) -> usize {
        self.generation = self.generation.wrapping_add(1);
        let entry = self.connections.vacant_entry();
        let key = entry.key();
        entry.insert(AwayConnection {
            served,
            token: token(self.generation, key),
            watched: false,
            sockets: Watched::default(),
            timer: ConnectionTimer::default(),
        });
        key
    }

    /// Takes a connection that a thread has left here.
    fn arrive(&mut self, served: Box<Served<H>>) {
        let key = self.insert(served);
        self.wait(key);
    }

    /// Handles a report of the kernel about the socket of a client whose request waits for its
    /// turn.
    fn ready(&mut self, ready: ReadyDescriptor) {
        let Some(key) = self.key(ready.token) else { return };
        let served = &mut self.connections[key].served;
        served.has_come(ready.readable | ready.broken, ready.ended);
        if ready.broken && !served.stream.has_ended() {
            return self.end(key, Closing::Now);
        }
        if served.can_go_on(ready.writable) {
            self.go_on(key, None);
        }
    }

    /// Handles a report about a socket that a request waits for.
    fn socket_ready(&mut self, token: u64) {
        let report = self.sockets.ready(token);
        if let Some(RequestKey { connection, request }) = report.and_then(SocketReport::request)
            && let Some(key) = self.key(connection)
        {
            self.go_on(key, Some(RequestEvent::Socket(request)));
        }
    }

    /// Lets a connection go on as far as it can. One that waits for something else then goes to a
    /// thread.
    fn go_on(&mut self, key: usize, mut event: Option<EventOf<H>>) {
        loop {
            let served = &mut self.connections[key].served;
            let fate = match self.is_ordered {
                true => self.worker.arrive(served, event.take()),
                false => self.worker.turn(served, event.take()),
            };
            match fate {
                Fate::Waits if served.is_away() => return self.wait(key),
                Fate::Lends => self.lend(key),
                Fate::Closes(closing) => return self.end(key, closing),
                Fate::Waits => return self.give_back(key, None),
                Fate::HandOver => return self.hand_over(key),
                fate => return self.give_back(key, Some(fate)),
            }
        }
    }

    /// Lends the client's socket to another process; the kernel reports it no longer.
    fn lend(&mut self, key: usize) {
        let AwayConnection { served, watched, .. } = &mut self.connections[key];
        if std::mem::take(watched) {
            let _ = self.epoll.remove(served.stream.as_fd());
        }
        self.worker.lend(served);
    }

    /// Has the kernel report what the connection waits for, and the wheel present it at its
    /// deadline.
    fn wait(&mut self, key: usize) {
        let AwayConnection { served, token, watched, sockets, timer } = &mut self.connections[key];
        let is_lent = served.conn.is_lent();
        if !*watched && !is_lent {
            *watched = self.epoll.add_connection(served.stream.as_fd(), *token).is_ok();
        }
        let name_all = |tell: &mut dyn FnMut(_, _, _, _)| served.conn.sockets(tell);
        let is_well = self.sockets.watch(sockets, *token, &self.epoll, name_all);
        if !is_well || !(*watched || is_lent) {
            return self.end(key, Closing::Reset);
        }
        timer.set(served, &self.worker);
        timer.schedule(&mut self.wheel, *token);
    }

    /// Looks at a connection that the wheel presents: a deadline may have come, or moved.
    fn look_at_deadline(&mut self, token: u64) {
        let Some(key) = self.key(token) else { return };
        let AwayConnection { served, timer, .. } = &mut self.connections[key];
        if !timer.presented(self.worker.now_ms()) {
            return;
        }
        match timer.over(served, &self.worker) {
            None => _ = timer.schedule(&mut self.wheel, token),
            Some(awaited) => match self.worker.expire(served, awaited) {
                Some(closing) => self.end(key, closing),
                None => {
                    timer.expired();
                    self.go_on(key, None);
                }
            },
        }
    }

    /// Ends a connection in the way it asks for.
    fn end(&mut self, key: usize, closing: Closing) {
        let connection = self.remove(key);
        if self.worker.draining {
            match closing {
                Closing::Reset => self.ended.abort(connection.served.awaits().what),
                Closing::Now | Closing::Linger => self.ended.drained += 1,
            }
        }
        self.worker.close(*connection.served, closing);
        self.away.closed();
    }

    /// Gives a connection to the threads, with the fate of its last turn.
    fn give_back(&mut self, key: usize, begun: Option<Fate<H::Job>>) {
        let AwayConnection { served, watched, .. } = self.remove(key);
        if watched {
            let _ = self.epoll.remove(served.stream.as_fd());
        }
        self.away.give_back(ToServe { served, begun });
    }

    /// Gives a connection away for good.
    fn hand_over(&mut self, key: usize) {
        let AwayConnection { served, watched, .. } = self.remove(key);
        if watched {
            let _ = self.epoll.remove(served.stream.as_fd());
        }
        self.worker.hand_over(*served);
        self.away.closed();
    }

    fn remove(&mut self, key: usize) -> AwayConnection<H> {
        let mut connection = self.connections.remove(key);
        self.sockets.forget(&mut connection.sockets);
        connection
    }
}
