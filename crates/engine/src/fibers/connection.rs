//! One connection of a loop: at rest, or with a fiber that serves it.

use super::wait::Waiting;
use super::{Running, Shared};
use crate::control::{Ended, Order};
use crate::helpers::Crew;
use crate::line::Called;
use crate::straight::{self, Deadline, JobEnd};
use crate::timer::SLOT_MS;
use crate::worker::Served;
use forebay_conn::{Await, Closing, Handler, Job};
use forebay_control::ranked::Key;
use forebay_fiber::Id;
use forebay_metrics::Counter;
use forebay_sys::epoll::Ready;
use std::rc::Rc;

/// A connection and what the loop must know about it.
pub(super) struct Connection<H: Handler> {
    pub(super) token: u64,
    pub(super) place: Place<H>,
    /// The kernel reports it.
    pub(super) watched: bool,
    /// What it has reported and the connection's fiber has not yet seen.
    pub(super) news: News,
    /// When it is looked at even if nothing happens.
    pub(super) deadline_ms: u64,
    /// When the wheel will present it; 0 for never.
    timer_ms: u64,
    /// Its place among those that make room while they are idle.
    pub(super) resting: Option<Key>,
}

/// Where a connection is.
pub(super) enum Place<H: Handler> {
    /// Here, without a fiber: it waits for its client, until the deadline.
    AtRest(Box<Served<H>>, Deadline),
    /// Here too, until its job has ended, with this result.
    InJob(Box<Served<H>>, Deadline, Option<Box<JobResult<H>>>),
    /// Here too: its request is there and is answered when its turn has come.
    InLine(Box<Served<H>>, Deadline, Key),
    /// With its fiber.
    Served(Fiber<H>),
}

/// The loop's view of a fiber.
pub(super) struct Fiber<H: Handler> {
    /// The fiber, while it waits; what for decides what wakes it.
    pub(super) waits: Option<(Id, Event)>,
    /// The job has ended, and how.
    pub(super) done: Option<Box<JobResult<H>>>,
}

/// The result of a job; `None` if it panicked.
pub(super) type JobResult<H> = Option<<<H as Handler>::Job as Job>::Done>;

/// What a fiber waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Readable,
    Writable,
    Job,
    /// The moment from which its request may be answered.
    Moment,
}

/// What the kernel has reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct News {
    pub(super) readable: bool,
    pub(super) writable: bool,
    pub(super) ended: bool,
    pub(super) broken: bool,
}

impl<H: Handler> Connection<H> {
    pub(super) fn new(served: Served<H>, token: u64) -> Self {
        Connection {
            token,
            place: Place::AtRest(Box::new(served), Deadline::default()),
            watched: false,
            news: News::default(),
            deadline_ms: u64::MAX,
            timer_ms: 0,
            resting: None,
        }
    }

    /// The fiber to wake if it waits for something that `wanted` says has come.
    pub(super) fn take_waiting(&mut self, wanted: impl FnOnce(Event) -> bool) -> Option<Id> {
        let Place::Served(fiber) = &mut self.place else { return None };
        let (id, event) = fiber.waits?;
        if wanted(event) {
            fiber.waits = None;
            return Some(id);
        }
        None
    }
}

impl<H, C> Running<H, C>
where
    H: Handler + 'static,
    C: Crew<H::Job> + 'static,
{
    /// The kernel reports a connection.
    #[inline]
    pub(super) fn ready(&mut self, ready: Ready) {
        let waiting = {
            let mut connections = self.shared.connections.borrow_mut();
            let Some(key) = key(&connections, ready.token) else { return };
            let connection = &mut connections[key];
            match &mut connection.place {
                Place::InLine(served, ..) | Place::InJob(served, ..) if !ready.broken => {
                    served.readable |= ready.readable;
                    served.ended |= ready.ended;
                    return;
                }
                Place::AtRest(served, _) | Place::InLine(served, ..) | Place::InJob(served, ..) => {
                    served.readable |= ready.readable;
                    served.ended |= ready.ended;
                    let has_come = match served.awaits() {
                        Await::Send => ready.writable,
                        Await::Admission => false,
                        _ => served.readable,
                    };
                    if !(has_come || ready.broken) {
                        return;
                    }
                    connection.news.broken |= ready.broken;
                    None
                }
                Place::Served(_) => {
                    let news = &mut connection.news;
                    news.readable |= ready.readable;
                    news.writable |= ready.writable;
                    news.ended |= ready.ended;
                    news.broken |= ready.broken;
                    let waiting = connection.take_waiting(|event| match event {
                        _ if ready.broken => true,
                        Event::Readable => ready.readable,
                        Event::Writable => ready.writable,
                        Event::Job | Event::Moment => false,
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
            None if ready.broken => self.close(ready.token, Closing::Now),
            None => self.serve(ready.token),
        }
    }

    /// A helper thread has finished a job of this connection, or has panicked.
    pub(super) fn job_done(&mut self, token: u64, result: JobResult<H>) {
        let waiting = {
            let mut connections = self.shared.connections.borrow_mut();
            let Some(key) = key(&connections, token) else { return };
            if let Place::InJob(_, _, done) = &mut connections[key].place {
                *done = Some(Box::new(result));
                return self.serve(token);
            }
            let waiting = connections[key].take_waiting(|event| event == Event::Job);
            if waiting.is_some()
                && let Place::Served(fiber) = &mut connections[key].place
            {
                fiber.done = Some(Box::new(result));
            }
            waiting
        };
        if let Some(id) = waiting {
            self.scheduler.unpark(id);
        }
    }

    /// The wheel presents a connection: its deadline may have come, or moved.
    pub(super) fn look_at_deadline(&self, token: u64, now_ms: u64) {
        let waiting = {
            let mut connections = self.shared.connections.borrow_mut();
            let Some(key) = key(&connections, token) else { return };
            let connection = &mut connections[key];
            if connection.timer_ms > now_ms {
                // an entry from before the deadline moved forward
                return;
            }
            connection.timer_ms = 0;
            if connection.deadline_ms > now_ms {
                return self.shared.schedule(connection);
            }
            match connection.place {
                Place::AtRest(..) | Place::InLine(..) | Place::InJob(..) => None,
                Place::Served(_) => match connection.take_waiting(|_| true) {
                    Some(id) => Some(id),
                    // it is ready already
                    None => return,
                },
            }
        };
        match waiting {
            Some(id) => self.scheduler.unpark(id),
            None => self.serve(token),
        }
    }

    /// Something has come for a connection at rest: a fiber is to serve it.
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

    /// Starts a fiber that closes a connection at rest.
    pub(super) fn close(&self, token: u64, closing: Closing) {
        let shared = Rc::clone(&self.shared);
        let started = self.scheduler.start(move || {
            if let Some(Taken { served, .. }) = shared.take(token) {
                straight::close(&mut Waiting::new(&shared, token, None), served, closing);
            }
        });
        if started.is_err() {
            self.shared.give_up(token);
        }
    }

    /// Lets those that are idle end. A request may have come since the last look: what is really
    /// idle ends in its turn.
    pub(super) fn end_idle(&mut self) {
        let mut idle = Vec::new();
        for (_, connection) in self.shared.connections.borrow_mut().iter_mut() {
            if let Place::AtRest(served, _) = &mut connection.place
                && served.awaits() == Await::Idle
            {
                served.readable = true;
                idle.push(connection.token);
            }
        }
        idle.into_iter().for_each(|token| self.serve(token));
        self.serve_due();
    }

    /// Gives every connection that has none a fiber.
    pub(super) fn serve_all(&mut self) {
        let at_rest = |connection: &Connection<H>| !matches!(connection.place, Place::Served(_));
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

    /// Wakes every fiber that waits, whatever for.
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

impl<H: Handler, C: Crew<H::Job>> Shared<H, C> {
    /// What a fiber does.
    pub(super) fn serve_due(&self) {
        while let Some((token, called)) = self.next() {
            let Some(Taken { served, deadline, job }) = self.take(token) else { continue };
            let mut wait = Waiting::new(self, token, called);
            let ended = straight::serve(&mut wait, served, deadline, job, &self.control);
            if ended != Ended::default() {
                self.ended.set(self.ended.get() + ended);
            }
        }
    }

    /// The connection that is served next: one for which something has come, or one whose turn it is
    /// to be answered.
    #[inline]
    fn next(&self) -> Option<(u64, Option<Called>)> {
        let due = self.due.borrow_mut().pop_front();
        due.map(|token| (token, None)).or_else(|| self.call())
    }

    /// There is no memory for a fiber.
    #[cold]
    fn give_up_due(&self) {
        let due = self.due.take();
        due.into_iter().for_each(|token| self.give_up(token));
    }
}

/// A connection out of its place.
struct Taken<H: Handler> {
    served: Box<Served<H>>,
    deadline: Deadline,
    /// How its job has ended, if it waited for one.
    job: Option<JobEnd<<H::Job as Job>::Done>>,
}

impl<H: Handler, C> Shared<H, C> {
    /// What came of a job that is not waited for any longer.
    pub(super) fn job_end(&self, done: Option<Box<JobResult<H>>>) -> JobEnd<<H::Job as Job>::Done> {
        match done.map(|result| *result) {
            Some(Some(done)) => JobEnd::Done(done),
            Some(None) => JobEnd::Panicked,
            None if self.control.order() == Order::Stop => JobEnd::Stopped,
            None => JobEnd::Late,
        }
    }

    /// Takes a connection that has no fiber out of its place, for one.
    fn take(&self, token: u64) -> Option<Taken<H>> {
        let mut connections = self.connections.borrow_mut();
        let key = key(&connections, token)?;
        let connection = &mut connections[key];
        self.idle.borrow_mut().remove(&mut connection.resting);
        let place = &mut connection.place;
        match std::mem::replace(place, Place::Served(Fiber { waits: None, done: None })) {
            Place::AtRest(served, deadline) => Some(Taken { served, deadline, job: None }),
            Place::InLine(served, deadline, key) => {
                if let Some(line) = &mut *self.line.borrow_mut() {
                    line.leave(key);
                }
                Some(Taken { served, deadline, job: None })
            }
            Place::InJob(served, deadline, done) => {
                Some(Taken { served, deadline, job: Some(self.job_end(done)) })
            }
            served => {
                *place = served;
                None
            }
        }
    }

    /// Runs `f` on the connection, which is in its fiber's hands.
    #[inline]
    pub(super) fn with<R>(&self, token: u64, f: impl FnOnce(&mut Connection<H>) -> R) -> Option<R> {
        let mut connections = self.connections.borrow_mut();
        let key = key(&connections, token)?;
        Some(f(&mut connections[key]))
    }

    /// The connection is gone.
    pub(super) fn remove(&self, token: u64) {
        let mut connections = self.connections.borrow_mut();
        if let Some(key) = key(&connections, token) {
            let connection = connections.remove(key);
            drop(connections);
            drop(connection);
        }
    }

    /// There is no memory for a fiber.
    #[cold]
    fn give_up(&self, token: u64) {
        if let Some(Taken { served, .. }) = self.take(token) {
            let mut worker = self.worker.borrow_mut();
            worker.count(Counter::AcceptErrors);
            worker.close(*served, Closing::Reset);
        }
        self.remove(token);
    }

    /// Sees to it that the wheel presents the connection in time. A deadline that has moved later
    /// is met by the entry that is there.
    #[inline]
    pub(super) fn schedule(&self, connection: &mut Connection<H>) {
        let late_ms = connection.deadline_ms.saturating_add(2 * SLOT_MS);
        if connection.timer_ms == 0 || connection.timer_ms > late_ms {
            connection.timer_ms =
                self.wheel.borrow_mut().insert(connection.deadline_ms, connection.token);
        }
    }
}

/// The place of the connection with this token, if it is still there.
#[inline]
fn key<H: Handler>(connections: &slab::Slab<Connection<H>>, token: u64) -> Option<usize> {
    let key = (token & 0xffff_ffff) as usize;
    connections.get(key).filter(|connection| connection.token == token).map(|_| key)
}
