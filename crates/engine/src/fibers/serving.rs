//! What a loop does with its connections: those at rest get a turn, and the fibers of the others
//! are woken or started.

use super::connection::{ConnectionOwner, FiberConnection, Happened, key};
use super::wait::FiberWait;
use super::{RunningLoop, Shared};
use crate::connection::served::{DoneOf, Served};
use crate::connection::turn::Fate;
use crate::control::Ended;
use crate::helpers::JobRunner;
use crate::loops::sockets::{SocketReport, Watched};
use crate::order::ranks::RequestKey;
use crate::straight;
use forebay_conn::{Closing, Handler, Protocol, RequestEvent};
use forebay_fiber::FiberId;
use forebay_metrics::Counter;
use forebay_sys::epoll::ReadyDescriptor;
use std::os::fd::AsFd;
use std::rc::Rc;

/// The outcome of the turn that a loop gives a connection at rest by a call.
enum FirstTurn<J> {
    /// The connection is at rest again.
    Rests,
    /// A fiber goes on with this fate.
    GoesOn(Fate<J>),
    /// The call did nothing, and a fiber gives the connection its turn.
    Nothing,
}

impl<H, C> RunningLoop<H, C>
where
    H: Handler + 'static,
    C: JobRunner<H::Job> + 'static,
{
    /// Handles a report of the kernel about a connection.
    #[inline]
    pub(super) fn ready(&mut self, ready: ReadyDescriptor) {
        let mut is_gone = false;
        let waiting = {
            let mut connections = self.shared.connections.borrow_mut();
            let Some(key) = key(&connections, ready.token) else { return };
            let connection = &mut connections[key];
            match &mut connection.place {
                ConnectionOwner::AtRest(served) => {
                    served.has_come(ready.readable | ready.broken, ready.ended);
                    is_gone = ready.broken && !served.stream.has_ended();
                    if !(is_gone || served.can_go_on(ready.writable)) {
                        return;
                    }
                    // the send queue decides when this answer goes on; a turn now would overtake
                    // others
                    if served.pending.is_some()
                        && !is_gone
                        && (connection.sends.is_some()
                            || (ready.writable && self.shared.sends_in_turn(connection)))
                    {
                        return;
                    }
                    let begun =
                        if is_gone { FirstTurn::Nothing } else { self.shared.begin(connection) };
                    match begun {
                        FirstTurn::Rests => return,
                        FirstTurn::GoesOn(fate) => {
                            drop(connections);
                            return self.go_on(ready.token, fate);
                        }
                        FirstTurn::Nothing => None,
                    }
                }
                // the fiber may not be waiting for this; what is reported is kept until it looks
                ConnectionOwner::Served(_) => {
                    let news = &mut connection.news;
                    news.readable |= ready.readable;
                    news.ended |= ready.ended;
                    news.broken |= ready.broken;
                    let waiting = connection.take_waiting(|needs| {
                        ready.broken
                            || (needs.readable && ready.readable)
                            || (needs.writable && ready.writable)
                            || (needs.ended && ready.ended)
                    });
                    if waiting.is_none() {
                        return;
                    }
                    waiting
                }
            }
        };
        match waiting {
            Some(id) => self.scheduler.unpark(id),
            None if is_gone => self.close(ready.token, Closing::Now),
            None => self.serve(ready.token),
        }
    }

    /// Handles a report about a socket that a request waits for, or has waited for.
    pub(super) fn socket_ready(&mut self, token: u64) {
        let report = self.shared.sockets.borrow_mut().ready(token);
        match report {
            Some(SocketReport::Request(request)) => {
                self.deliver(request, Happened::Event(RequestEvent::Socket(request.request)));
            }
            Some(SocketReport::Unowned(socket)) => {
                self.shared.worker.borrow_mut().handler.stirred(socket);
            }
            None => {}
        }
    }

    /// Delivers the result of this request's job, which a helper thread has finished, or which has
    /// panicked.
    pub(super) fn job_done(&mut self, request: RequestKey, result: Option<DoneOf<H>>) {
        let event = match result {
            Some(done) => RequestEvent::Done(request.request, done),
            None => RequestEvent::Failed(request.request),
        };
        self.deliver(request, Happened::Event(event));
    }

    /// Goes on with requests for which code of this process has something.
    pub(super) fn wake_woken(&mut self) {
        let woken = self.shared.mailbox.take_woken();
        if woken.is_empty() {
            return;
        }
        for request in woken {
            self.deliver(request, Happened::Event(RequestEvent::Socket(request.request)));
        }
        self.serve_due();
    }

    /// Goes on with a request that may be answered from now on.
    pub(super) fn not_before_has_come(&mut self, request: RequestKey) {
        self.deliver(request, Happened::Event(RequestEvent::Due(request.request)));
    }

    /// Delivers to a connection what has happened to its request, and has it served.
    fn deliver(&mut self, request: RequestKey, happened: Happened<H>) {
        if let Some(id) = self.shared.deliver(request.connection, happened) {
            self.scheduler.unpark(id);
        }
    }

    /// Looks at a connection that the wheel presents: a deadline may have come, or moved.
    pub(super) fn look_at_deadline(&self, token: u64, now_ms: u64) {
        let waiting = {
            let mut connections = self.shared.connections.borrow_mut();
            let Some(key) = key(&connections, token) else { return };
            let connection = &mut connections[key];
            if !connection.timer.presented(now_ms) {
                return;
            }
            if connection.timer.at_ms() > now_ms {
                return self.shared.schedule(connection);
            }
            match connection.place {
                ConnectionOwner::AtRest(_) => None,
                ConnectionOwner::Served(_) => match connection.take_waiting(|_| true) {
                    Some(id) => Some(id),
                    // the fiber is ready already
                    None => return,
                },
            }
        };
        match waiting {
            Some(id) => self.scheduler.unpark(id),
            None => self.serve(token),
        }
    }

    /// Has a fiber serve a connection at rest for which something has come.
    #[inline]
    pub(super) fn serve(&self, token: u64) {
        self.shared.due.borrow_mut().push_back(token);
    }

    /// Lets fibers serve all connections that are due: one after the other, and when a fiber waits,
    /// the next one goes on with those that are left.
    #[inline]
    pub(super) fn serve_due(&self) {
        while !self.shared.due.borrow().is_empty() {
            let shared = Rc::clone(&self.shared);
            if self.scheduler.start(move || shared.serve_due()).is_err() {
                self.shared.give_up_due();
            }
        }
    }

    /// Gives a new connection its first turn.
    pub(super) fn begin(&self, token: u64) {
        match self.shared.with(token, |connection| self.shared.begin(connection)) {
            None | Some(FirstTurn::Rests) => {}
            Some(FirstTurn::GoesOn(fate)) => self.go_on(token, fate),
            Some(FirstTurn::Nothing) => {
                self.serve(token);
                self.serve_due();
            }
        }
    }

    /// Starts a fiber that goes on with a connection after a turn with this fate.
    fn go_on(&self, token: u64, fate: Fate<H::Job>) {
        let shared = Rc::clone(&self.shared);
        let started = self.scheduler.start(move || {
            shared.serve(token, Some(fate));
            shared.serve_due();
        });
        if started.is_err() {
            self.shared.give_up(token);
        }
    }

    /// Starts a fiber that closes a connection at rest.
    pub(super) fn close(&self, token: u64, closing: Closing) {
        let shared = Rc::clone(&self.shared);
        let started = self.scheduler.start(move || {
            if let Some((served, _)) = shared.take(token) {
                let mut wait = FiberWait::new(&shared, token);
                straight::close(&mut wait, served, closing);
            }
        });
        if started.is_err() {
            self.shared.give_up(token);
        }
    }

    /// Lets idle connections end. A request may have arrived since the last look, so a turn ends
    /// what is really idle.
    pub(super) fn end_idle(&mut self) {
        let mut idle = Vec::new();
        for (_, connection) in self.shared.connections.borrow_mut().iter_mut() {
            if let ConnectionOwner::AtRest(served) = &mut connection.place
                && served.hears_of_drain()
            {
                served.readable = true;
                idle.push(connection.token);
            }
        }
        idle.into_iter().for_each(|token| self.serve(token));
        self.serve_due();
    }

    /// Gives a fiber to every connection that has none.
    pub(super) fn serve_all(&mut self) {
        let at_rest = |connection: &FiberConnection<H>| {
            matches!(connection.place, ConnectionOwner::AtRest(_))
        };
        let tokens: Vec<_> = self
            .shared
            .connections
            .borrow()
            .iter()
            .filter(|(_, connection)| at_rest(connection))
            .map(|(_, connection)| connection.token)
            .collect();
        tokens.into_iter().for_each(|token| self.serve(token));
        self.serve_due();
    }

    /// Wakes every fiber that waits, whatever it waits for.
    pub(super) fn wake_all(&mut self) {
        let waiting: Vec<_> = self
            .shared
            .connections
            .borrow_mut()
            .iter_mut()
            .filter_map(|(_, connection)| connection.take_waiting(|_| true))
            .collect();
        waiting.into_iter().for_each(|id| self.scheduler.unpark(id));
    }
}

impl<H: Handler, C: JobRunner<H::Job>> Shared<H, C> {
    /// Serves what is due; this is what a fiber runs.
    pub(super) fn serve_due(&self) {
        while let Some(token) = self.next() {
            self.serve(token, None);
        }
    }

    /// Serves a connection that is in its place, if it is. `begun` is the fate of the turn that the
    /// connection has had already, if it has had one.
    #[inline]
    fn serve(&self, token: u64, begun: Option<Fate<H::Job>>) {
        let Some((mut served, has_events)) = self.take(token) else { return };
        let mut wait = FiberWait::new(self, token);
        let takes = has_events && begun.is_none();
        let event = if takes { wait.take_event(&mut served) } else { None };
        let ended = straight::serve(&mut wait, served, begun, event, &self.control);
        if ended != Ended::default() {
            self.ended.set(self.ended.get() + ended);
        }
    }

    /// Takes the connection that is served next: one for which something has come, or one whose
    /// turn it is to be answered.
    #[inline]
    fn next(&self) -> Option<u64> {
        let due = self.due.borrow_mut().pop_front();
        due.or_else(|| self.call())
    }

    /// Gives up all connections that are due, because there is no memory for a fiber.
    #[cold]
    fn give_up_due(&self) {
        let due = self.due.take();
        due.into_iter().for_each(|token| self.give_up(token));
    }
}

impl<H: Handler, C> Shared<H, C> {
    /// Delivers to a connection what has happened to its request. Returns its fiber if that must be
    /// woken; a connection at rest becomes due.
    pub(super) fn deliver(&self, token: u64, happened: Happened<H>) -> Option<FiberId> {
        let mut connections = self.connections.borrow_mut();
        let key = key(&connections, token)?;
        let connection = &mut connections[key];
        connection.events.push_back(happened);
        if let ConnectionOwner::AtRest(_) = connection.place {
            self.due.borrow_mut().push_back(token);
            return None;
        }
        connection.take_waiting(|_| true)
    }

    /// Gives a connection that waits for the next request a turn by a call, as an answer from
    /// memory involves no wait. So only what must wait takes a fiber.
    #[inline]
    fn begin(&self, connection: &mut FiberConnection<H>) -> FirstTurn<H::Job> {
        let FiberConnection { token, place, watched, events, timer, sockets, .. } = connection;
        let ConnectionOwner::AtRest(served) = place else { return FirstTurn::Nothing };
        if self.is_ordered || !served.is_at_rest() || !events.is_empty() {
            return FirstTurn::Nothing;
        }
        let mut worker = self.worker.borrow_mut();
        let fate = worker.turn(served, None);
        let rests = matches!(fate, Fate::Waits) && served.is_at_rest();
        if !rests || served.can_go_on(false) || !self.watch(served, *token, watched, sockets) {
            return FirstTurn::GoesOn(fate);
        }
        timer.set(served, &worker);
        timer.schedule(&mut self.wheel.borrow_mut(), *token);
        FirstTurn::Rests
    }

    /// Has the kernel report the connection, and the other sockets of its requests, from now on.
    /// Returns whether it does.
    #[inline]
    pub(super) fn watch(
        &self,
        served: &Served<H>,
        token: u64,
        watched: &mut bool,
        sockets: &mut Watched,
    ) -> bool {
        let is_lent = served.conn.is_lent();
        if !*watched && !is_lent {
            *watched = self.epoll.add_connection(served.stream.as_fd(), token).is_ok();
        }
        if served.conn.has_sockets() || !sockets.is_empty() {
            self.mailbox.leave_wakers::<H>(token, &served.conn);
            let mut all = self.sockets.borrow_mut();
            return (*watched || is_lent)
                && all.watch(sockets, token, &self.epoll, |tell| served.conn.sockets(tell));
        }
        *watched || is_lent
    }

    /// Takes a connection that has no fiber out of its place, for one. Returns whether something
    /// has happened to its requests.
    #[inline]
    fn take(&self, token: u64) -> Option<(Box<Served<H>>, bool)> {
        let mut connections = self.connections.borrow_mut();
        let key = key(&connections, token)?;
        let connection = &mut connections[key];
        if connection.resting.is_some() {
            self.idle.borrow_mut().remove(&mut connection.resting);
        }
        if let Some(place) = connection.sends.take() {
            self.send_queue.borrow_mut().leave(place);
        }
        match std::mem::replace(&mut connection.place, ConnectionOwner::Served(None)) {
            ConnectionOwner::AtRest(served) => Some((served, !connection.events.is_empty())),
            served => {
                connection.place = served;
                None
            }
        }
    }

    /// Runs `f` on the connection, which its fiber has.
    #[inline]
    pub(super) fn with<R>(
        &self,
        token: u64,
        f: impl FnOnce(&mut FiberConnection<H>) -> R,
    ) -> Option<R> {
        let mut connections = self.connections.borrow_mut();
        let key = key(&connections, token)?;
        Some(f(&mut connections[key]))
    }

    /// Removes a connection that is gone.
    pub(super) fn remove(&self, token: u64) {
        let mut connections = self.connections.borrow_mut();
        if let Some(key) = key(&connections, token) {
            let mut connection = connections.remove(key);
            drop(connections);
            self.sockets.borrow_mut().forget(&mut connection.sockets);
            drop(connection);
        }
    }

    /// Gives up a connection, because there is no memory for a fiber.
    #[cold]
    fn give_up(&self, token: u64) {
        if let Some((served, _)) = self.take(token) {
            let mut worker = self.worker.borrow_mut();
            worker.count(Counter::AcceptErrors);
            self.leave_line(&served);
            worker.close(*served, Closing::Reset);
        }
        self.remove(token);
    }

    /// Removes the requests of a connection that ends from the ready queue.
    pub(super) fn leave_line(&self, served: &Served<H>) {
        if let Some(ready_queue) = &mut *self.ready_queue.borrow_mut() {
            served.waits.places().for_each(|place| ready_queue.leave(place));
        }
    }

    /// Has the wheel present the connection in time.
    #[inline]
    pub(super) fn schedule(&self, connection: &mut FiberConnection<H>) {
        connection.timer.schedule(&mut self.wheel.borrow_mut(), connection.token);
    }
}
