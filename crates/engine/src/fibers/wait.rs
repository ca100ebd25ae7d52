//! How a fiber waits: it notes what for, and lets others run until the loop wakes it.

use super::connection::{Event, News, Place};
use super::{KEPT_STACKS, Shared};
use crate::control::Order;
use crate::helpers::{Ask, Claim, Crew};
use crate::line::Called;
use crate::straight::{Answers, Deadline, Gone, JobEnd, LinedUp, Wait, Worked};
use crate::worker::{Served, Worker};
use forebay_conn::{Await, Handler};
use forebay_control::allocation::Phase;
use forebay_metrics::Counter;
use forebay_sys::poll::Interest;
use std::cell::RefMut;
use std::sync::Arc;

/// The waits of one connection's fiber. When it is dropped, the connection is gone from its loop,
/// unless that has taken it back.
pub(super) struct Waiting<'s, H: Handler, C> {
    pub(super) shared: &'s Shared<H, C>,
    token: u64,
    /// It is its turn to be answered.
    called: Option<Called>,
}

impl<'s, H: Handler, C> Waiting<'s, H, C> {
    /// Of the connection with this token, which may have been called.
    pub(super) fn new(shared: &'s Shared<H, C>, token: u64, called: Option<Called>) -> Self {
        Waiting { shared, token, called }
    }

    /// Its turn is over.
    #[inline]
    fn end_turn(&mut self) {
        if let Some(called) = self.called.take()
            && let Some(line) = &mut *self.shared.line.borrow_mut()
        {
            line.answered(called, &self.shared.worker.borrow().metrics);
        }
    }

    /// Has the kernel report the connection from now on. One that is answered and closed in its
    /// first turn never needs it.
    #[inline]
    fn watch(&self, served: &Served<H>) -> Result<(), Gone> {
        self.shared
            .with(self.token, |connection| {
                if !connection.watched {
                    let added = self.shared.epoll.add_connection(&served.socket, self.token);
                    connection.watched = added.is_ok();
                }
                connection.watched
            })
            .filter(|watched| *watched)
            .map_or(Err(Gone), |_| Ok(()))
    }

    /// Lets others run until the loop has news of this kind, or the deadline is over.
    fn wait(&self, event: Event, deadline_ms: u64) {
        let waits = Some((forebay_fiber::id(), event));
        self.shared.with(self.token, |connection| {
            if let Place::Served(fiber) = &mut connection.place {
                fiber.waits = waits;
            }
            connection.deadline_ms = deadline_ms;
            match event {
                Event::Moment => self.shared.early.borrow_mut().wait_until(deadline_ms, self.token),
                Event::Readable | Event::Writable | Event::Job => self.shared.schedule(connection),
            }
        });
        self.shared.waiting.set(self.shared.waiting.get() + 1);
        forebay_fiber::park();
        self.shared.waiting.set(self.shared.waiting.get() - 1);
    }

    /// Whether enough fibers wait already: more connections wait without.
    fn is_crowded(&self) -> bool {
        self.shared.waiting.get() >= KEPT_STACKS
    }

    /// Tells the connection what the kernel has reported of it.
    #[inline]
    fn take_news(&self, served: &mut Served<H>) -> News {
        let news = self.shared.with(self.token, |connection| std::mem::take(&mut connection.news));
        let news = news.unwrap_or_default();
        served.readable |= news.readable;
        served.ended |= news.ended;
        news
    }

    fn now_ms(&self) -> u64 {
        self.shared.worker.borrow().now_ms()
    }

    fn must_stop(&self) -> bool {
        self.shared.control.order() == Order::Stop
    }
}

impl<'s, H: Handler, C: Crew<H::Job>> Wait<H> for Waiting<'s, H, C> {
    type Lent<'w>
        = RefMut<'w, Worker<H>>
    where
        Self: 'w;

    #[inline]
    fn worker(&mut self) -> RefMut<'_, Worker<H>> {
        self.shared.worker.borrow_mut()
    }

    /// The loop has told the worker.
    #[inline]
    fn begin_turn(&mut self, _: Order) {}

    fn ready(
        &mut self,
        served: &mut Served<H>,
        interest: Interest,
        timeout_ms: u64,
        known: Order,
    ) -> Result<(), Gone> {
        self.watch(served)?;
        let before = self.take_news(served);
        let has_come = interest == Interest::Read && before.readable;
        if before.broken || (known == Order::Stop && self.must_stop()) {
            return Err(Gone);
        }
        if has_come || self.must_stop() {
            return Ok(());
        }
        let event = match interest {
            Interest::Read => Event::Readable,
            Interest::Write => Event::Writable,
            Interest::End => Event::Moment,
        };
        self.wait(event, self.now_ms() + timeout_ms);
        if self.take_news(served).broken { Err(Gone) } else { Ok(()) }
    }

    #[inline]
    fn answers(&self) -> Answers {
        match self.called {
            Some(_) => Answers::Called,
            None if self.shared.is_ordered => Answers::None,
            None => Answers::All,
        }
    }

    fn line_up(&mut self, mut served: Box<Served<H>>, deadline: Deadline) -> LinedUp<H> {
        if self.watch(&served).is_err() || self.take_news(&mut served).broken {
            return Err(served);
        }
        let standing = served.standing(&self.shared.ranks);
        let mut line = self.shared.line.borrow_mut();
        let Some(key) = line.as_mut().and_then(|line| line.join(standing, self.token)) else {
            return Err(served);
        };
        self.shared.with(self.token, |connection| {
            connection.deadline_ms = deadline.at_ms;
            connection.place = Place::InLine(served, deadline, key);
            self.shared.schedule(connection);
        });
        Ok(None)
    }

    #[inline]
    fn answered(&mut self) {
        self.end_turn();
    }

    fn job(
        &mut self,
        mut served: Box<Served<H>>,
        job: Claim<H::Job>,
        deadline: Deadline,
    ) -> Worked<H> {
        self.end_turn();
        let is_under_way = served.pending.is_some();
        let phase = if is_under_way { Phase::Send } else { Phase::Process };
        let Shared { helpers, mailbox, ranks, .. } = self.shared;
        let ask = Ask { phase, standing: served.standing(ranks), token: self.token };
        if !helpers.submit(job, ask, Arc::clone(mailbox) as Arc<_>) {
            return Some((served, JobEnd::Late));
        }
        if self.watch(&served).is_err() {
            return Some((served, JobEnd::Gone));
        }
        let time_ms = self.shared.worker.borrow().time_ms(&served, Await::Job);
        let until_ms = self.now_ms() + time_ms;
        if self.is_crowded() {
            if self.take_news(&mut served).broken {
                return Some((served, JobEnd::Gone));
            }
            self.shared.with(self.token, |connection| {
                connection.deadline_ms = until_ms;
                connection.place = Place::InJob(served, deadline, None);
                self.shared.schedule(connection);
            });
            return None;
        }
        self.wait(Event::Job, until_ms);
        let done = self.shared.with(self.token, |connection| match &mut connection.place {
            Place::Served(fiber) => fiber.done.take(),
            Place::AtRest(..) | Place::InLine(..) | Place::InJob(..) => None,
        });
        let news = self.take_news(&mut served);
        let end = match done.flatten() {
            None if news.broken => JobEnd::Gone,
            done => self.shared.job_end(done),
        };
        Some((served, end))
    }

    fn pass(&mut self, served: &mut Served<H>) {
        // what comes meanwhile must not be missed; without a watch the next wait will fail
        let _ = self.watch(served);
        forebay_fiber::yield_now();
        self.take_news(served);
    }

    #[inline]
    fn take_back(&mut self, served: Box<Served<H>>, deadline: Deadline) -> Option<Box<Served<H>>> {
        // one that is in the middle of something keeps its fiber while there are few
        if !(served.is_at_rest() || self.is_crowded()) {
            return Some(served);
        }
        let mut connections = self.shared.connections.borrow_mut();
        let key = (self.token & 0xffff_ffff) as usize;
        let Some(connection) = connections.get_mut(key) else { return Some(served) };
        let news = connection.news;
        // room to write was there before what was sent last
        if news.readable || news.ended || news.broken {
            return Some(served);
        }
        if !connection.watched {
            if self.shared.epoll.add_connection(&served.socket, self.token).is_err() {
                return Some(served);
            }
            connection.watched = true;
        }
        connection.news = News::default();
        connection.deadline_ms = deadline.at_ms;
        if self.shared.is_ordered && served.awaits() == Await::Idle {
            let standing = served.standing(&self.shared.ranks);
            connection.resting = self.shared.idle.borrow_mut().add(standing, self.token);
        }
        connection.place = Place::AtRest(served, deadline);
        self.shared.schedule(connection);
        None
    }

    fn let_go(&mut self, served: &Served<H>) {
        let _ = self.shared.epoll.remove(&served.socket);
    }

    fn begin_linger(&mut self) -> bool {
        let lingering = &self.shared.lingering;
        let may = lingering.get() < self.shared.worker.borrow().settings.lingering;
        if may {
            lingering.set(lingering.get() + 1);
        }
        may
    }

    fn end_linger(&mut self) {
        self.shared.lingering.set(self.shared.lingering.get() - 1);
    }
}

impl<H: Handler, C> Drop for Waiting<'_, H, C> {
    fn drop(&mut self) {
        let has_fiber =
            self.shared.with(self.token, |connection| matches!(connection.place, Place::Served(_)));
        if has_fiber == Some(true) {
            self.shared.remove(self.token);
            // somebody else's code has panicked, and the connection went with its fiber
            if std::thread::panicking()
                && let Ok(worker) = self.shared.worker.try_borrow()
            {
                worker.count(Counter::Panics);
                worker.count(Counter::Closed);
            }
        }
    }
}
