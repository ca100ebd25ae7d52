//! How a fiber waits: it notes what it waits for, and lets others run until the loop wakes it.

use super::connection::{ConnectionOwner, FiberConnection, Happened, SocketNews, WakeEvents, key};
use super::{KEPT_STACKS, Shared};
use crate::connection::served::{EventOf, Served};
use crate::connection::waits::RequestWait as WaitsFor;
use crate::connection::worker::Worker;
use crate::control::LoopOrder;
use crate::helpers::{JobContext, JobRunner, SharedJob};
use crate::loops::ready_queue::Called;
use crate::order::ranks::RequestKey;
use crate::straight::{AfterWait, Answerable, Gone, Wait};
use forebay_conn::{Awaited, Handler, Protocol, RequestEvent, RequestId};
use forebay_control::allocation::Phase;
use forebay_metrics::Counter;
use std::cell::RefMut;
use std::os::fd::AsFd;
use std::sync::Arc;

/// The waits of one connection's fiber. When this is dropped, the connection is gone from its loop,
/// unless the loop has taken it back.
pub(super) struct FiberWait<'s, H: Handler, C> {
    pub(super) shared: &'s Shared<H, C>,
    token: u64,
    /// The request whose turn it is to be answered.
    called: Option<(RequestId, Called)>,
    /// The loop has the connection back.
    is_left: bool,
}

impl<'s, H: Handler, C> FiberWait<'s, H, C> {
    /// The waits of the connection with this token.
    pub(super) fn new(shared: &'s Shared<H, C>, token: u64) -> Self {
        FiberWait { shared, token, called: None, is_left: false }
    }

    /// Ends the turn of the request that was called.
    #[inline]
    fn end_turn(&mut self) {
        if let Some((_, called)) = self.called.take()
            && let Some(ready_queue) = &mut *self.shared.ready_queue.borrow_mut()
        {
            ready_queue.answered(called, &self.shared.worker.borrow().metrics);
        }
    }

    /// Has the kernel report the connection, and the other sockets of its requests, from now on; a
    /// connection that is answered and closed in its first turn never needs this. Passes on to the
    /// connection what the kernel has reported since the last look. Returns that, and whether
    /// something has happened to the requests.
    #[inline]
    fn look(&self, served: &mut Served<H>) -> Result<(SocketNews, bool), Gone> {
        let look = |connection: &mut FiberConnection<H>| self.look_at(connection, served);
        self.shared.with(self.token, look).unwrap_or(Err(Gone))
    }

    /// Does the same as `look`, where the connection is at hand.
    #[inline]
    fn look_at(
        &self,
        connection: &mut FiberConnection<H>,
        served: &mut Served<H>,
    ) -> Result<(SocketNews, bool), Gone> {
        let FiberConnection { watched, sockets, .. } = connection;
        let is_watched = self.shared.watch(served, self.token, watched, sockets);
        let news = std::mem::take(&mut connection.news);
        let is_gone = !news.tell(served) || !is_watched;
        if is_gone { Err(Gone) } else { Ok((news, !connection.events.is_empty())) }
    }

    /// Whether enough fibers wait already, so that more connections wait without one.
    fn is_crowded(&self) -> bool {
        self.shared.waiting.get() >= KEPT_STACKS
    }

    /// Passes on to the connection what the kernel has reported of it.
    #[inline]
    fn take_news(&self, served: &mut Served<H>) -> Result<SocketNews, Gone> {
        let news = self.shared.with(self.token, |connection| std::mem::take(&mut connection.news));
        let news = news.unwrap_or_default();
        if news.tell(served) { Ok(news) } else { Err(Gone) }
    }

    /// Takes the next event of a request that is not over already.
    pub(super) fn take_event(&mut self, served: &mut Served<H>) -> Option<EventOf<H>> {
        loop {
            let event = self.shared.with(self.token, |connection| connection.next_event());
            let event = match event.flatten() {
                None => return None,
                Some(Happened::Called(id, called)) => {
                    self.end_turn();
                    self.called = Some((id, called));
                    served.waits.remove(id);
                    RequestEvent::Called(id)
                }
                Some(Happened::Event(event)) => event,
            };
            let is_awaited = match &event {
                RequestEvent::Done(id, _) | RequestEvent::Failed(id) => served.job_done(*id),
                RequestEvent::Due(id) => served.waits.remove(*id).is_some(),
                RequestEvent::Called(_) | RequestEvent::Socket(_) => true,
            };
            if let RequestEvent::Failed(_) = &event {
                self.shared.worker.borrow().count(Counter::Panics);
            }
            if is_awaited {
                return Some(event);
            }
        }
    }

    fn must_stop(&self) -> bool {
        self.shared.control.order() == LoopOrder::Stop
    }

    /// Lets others run until the loop has something for this fiber.
    fn park(&self, needs: WakeEvents) {
        self.shared.with(self.token, |connection| {
            connection.place = ConnectionOwner::Served(Some((forebay_fiber::id(), needs)));
            self.shared.schedule(connection);
        });
        self.shared.waiting.set(self.shared.waiting.get() + 1);
        forebay_fiber::park();
        self.shared.waiting.set(self.shared.waiting.get() - 1);
    }

    /// Leaves the connection, to which nothing has happened since the last look, to the loop, which
    /// has it served when something happens.
    #[inline]
    fn leave(&mut self, connection: &mut FiberConnection<H>, served: Box<Served<H>>) {
        let Shared { is_ordered, ranks, idle, .. } = self.shared;
        if *is_ordered && served.is_idle() {
            let ranked_client = served.ranked_client_at_rest(ranks);
            connection.resting = idle.borrow_mut().add(ranked_client, self.token);
        }
        connection.place = ConnectionOwner::AtRest(served);
        self.shared.schedule(connection);
        self.is_left = true;
    }

    /// Whether the loop has the connection back when it waits now. A connection in the middle of
    /// something keeps its fiber while there are few. The loop decides which connection sends next.
    #[inline]
    fn is_to_be_left(&self, served: &Served<H>) -> bool {
        served.is_at_rest()
            || served.waits.has_turns()
            || self.is_crowded()
            || (served.pending.is_some() && self.shared.sends_in_order())
    }
}

impl<'s, H: Handler, C: JobRunner<H::Job>> Wait<H> for FiberWait<'s, H, C> {
    type Lent<'w>
        = RefMut<'w, Worker<H>>
    where
        Self: 'w;

    #[inline]
    fn worker(&mut self) -> RefMut<'_, Worker<H>> {
        self.shared.worker.borrow_mut()
    }

    /// Does nothing, as the loop has begun the worker's turn.
    #[inline]
    fn begin_turn(&mut self, _: LoopOrder) {}

    #[inline]
    fn answers(&self) -> Answerable {
        match self.called {
            Some((id, _)) => Answerable::Called(id),
            None if self.shared.is_ordered => Answerable::None,
            None => Answerable::All,
        }
    }

    #[inline]
    fn answered(&mut self) {
        self.end_turn();
    }

    fn enqueue(&mut self, served: &mut Served<H>, id: RequestId) -> Result<(), Gone> {
        let ranked_client = served.ranked_client(&self.shared.ranks, id);
        let request = RequestKey { connection: self.token, request: id };
        let mut ready_queue = self.shared.ready_queue.borrow_mut();
        let place = ready_queue
            .as_mut()
            .and_then(|ready_queue| ready_queue.join(ranked_client, request))
            .ok_or(Gone)?;
        served.waits.add(id, WaitsFor::Turn(Some(place)));
        Ok(())
    }

    fn keep_early(&mut self, served: &mut Served<H>, id: RequestId, wait_ms: u32) {
        served.waits.add(id, WaitsFor::NotBefore);
        let request = RequestKey { connection: self.token, request: id };
        let not_before_ms = self.shared.worker.borrow().not_before_ms(wait_ms);
        self.shared.early.borrow_mut().wait_until(not_before_ms, request);
    }

    fn submit(&mut self, served: &mut Served<H>, id: RequestId, job: SharedJob<H::Job>) -> bool {
        self.end_turn();
        let phase = if id == RequestId::SENDING { Phase::Send } else { Phase::Process };
        let Shared { helpers, mailbox, ranks, .. } = self.shared;
        let request = RequestKey { connection: self.token, request: id };
        let ask = JobContext { phase, ranked_client: served.ranked_client(ranks, id), request };
        helpers.submit(job, ask, Arc::clone(mailbox) as Arc<_>)
    }

    #[inline]
    fn time(&mut self, served: &mut Served<H>) -> Option<Awaited> {
        let worker = self.shared.worker.borrow();
        let over = self.shared.with(self.token, |connection| {
            connection.timer.set(served, &worker);
            if connection.timer.at_ms() > worker.now_ms() {
                return None;
            }
            connection.timer.over(served, &worker)
        });
        over.flatten()
    }

    fn next(&mut self, mut served: Box<Served<H>>, _: LoopOrder) -> AfterWait<H> {
        let shared = self.shared;
        let mut connections = shared.connections.borrow_mut();
        let Some(key) = key(&connections, self.token) else { return AfterWait::Gone(served) };
        let connection = &mut connections[key];
        let Ok((_, has_events)) = self.look_at(connection, &mut served) else {
            return AfterWait::Gone(served);
        };
        let goes_on = self.must_stop() || served.can_go_on(false);
        if !has_events && !goes_on && self.is_to_be_left(&served) {
            self.leave(connection, served);
            return AfterWait::Taken;
        }
        drop(connections);
        if has_events && let Some(event) = self.take_event(&mut served) {
            return AfterWait::Event(served, event);
        }
        if has_events || goes_on {
            // what had happened concerned nothing any more, or the connection need not wait
            return AfterWait::Ready(served);
        }
        let is_pending = served.pending.is_some();
        let writable = is_pending || served.has_to_open();
        let readable = if is_pending { served.reads_meanwhile() } else { served.wants_input() };
        let needs = WakeEvents { readable, writable, ended: served.conn.aborts_on_close() };
        self.park(needs);
        if self.take_news(&mut served) == Err(Gone) {
            return AfterWait::Gone(served);
        }
        match self.take_event(&mut served) {
            Some(event) => AfterWait::Event(served, event),
            None => AfterWait::Ready(served),
        }
    }

    fn pass(&mut self, served: &mut Served<H>) {
        // events of the meantime must not be missed; if the kernel cannot watch, the next wait
        // fails
        let _ = self.look(served);
        forebay_fiber::yield_now();
        // the next wait notices that the connection is gone
        let _ = self.take_news(served);
    }

    fn leave_queue(&mut self, served: &Served<H>) {
        self.shared.leave_line(served);
    }

    fn let_go(&mut self, served: &Served<H>) {
        let is_watched =
            self.shared.with(self.token, |connection| std::mem::take(&mut connection.watched));
        if is_watched == Some(true) {
            let _ = self.shared.epoll.remove(served.stream.as_fd());
        }
    }
}

impl<H: Handler, C> Drop for FiberWait<'_, H, C> {
    fn drop(&mut self) {
        if self.is_left {
            return;
        }
        let has_fiber = self
            .shared
            .with(self.token, |connection| matches!(connection.place, ConnectionOwner::Served(_)));
        if has_fiber == Some(true) {
            self.shared.remove(self.token);
            // code of a handler has panicked, and the connection went with its fiber
            if std::thread::panicking()
                && let Ok(worker) = self.shared.worker.try_borrow()
            {
                worker.count(Counter::Panics);
                worker.count(Counter::Closed);
            }
        }
    }
}
