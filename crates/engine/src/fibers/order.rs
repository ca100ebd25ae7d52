//! When a loop answers: requests of the [ready queue](crate::loops::ready_queue) a batch at a time,
//! by as many fibers as it takes, and early ones when their time has come. When it goes on with
//! answers that are [partly sent](crate::loops::send_queue).

use super::connection::{ConnectionOwner, FiberConnection, Happened};
use super::{RunningLoop, Shared};
use crate::helpers::JobRunner;
use crate::loops::accepting::Accepting;
use crate::loops::ready_queue::{self, BATCH};
use crate::loops::send_queue;
use crate::settings::SendOrder;
use forebay_conn::Handler;
use forebay_sys::clock;
use std::rc::Rc;

impl<H, C> RunningLoop<H, C>
where
    H: Handler + 'static,
    C: JobRunner<H::Job> + 'static,
{
    /// Goes on with early requests whose time has come.
    pub(super) fn wake_early(&mut self) {
        let now_ms = self.now_ms();
        loop {
            let request = self.shared.early.borrow_mut().next(now_ms);
            let Some(request) = request else { break };
            self.not_before_has_come(request);
        }
        self.serve_due();
    }

    /// Lets fibers answer a batch of the requests whose turn it is.
    pub(super) fn answer_in_order(&mut self) {
        if !self.shared.has_ready() {
            return;
        }
        if let Some(ready_queue) = &mut *self.shared.ready_queue.borrow_mut() {
            ready_queue.keep_up();
        }
        self.shared.calls.set(BATCH);
        while self.shared.calls.get() > 0 && self.shared.has_ready() {
            let shared = Rc::clone(&self.shared);
            if self.scheduler.start(move || shared.serve_due()).is_err() {
                // requests of the ready queue can wait, as fibers that are there now will end
                break;
            }
            self.accept_in_order();
        }
        self.shared.calls.set(0);
        self.shared.woken.take().into_iter().for_each(|id| self.scheduler.unpark(id));
    }

    /// Accepts from the listener whose turn it is, if it is a listener's turn. Nothing else of the
    /// ready queue is called meanwhile.
    fn accept_in_order(&mut self) {
        let Some((index, called)) = self.shared.listener_called.take() else { return };
        let calls = self.shared.calls.replace(0);
        self.accept_in_turn(index);
        self.shared.calls.set(calls);
        if let Some(ready_queue) = &mut *self.shared.ready_queue.borrow_mut() {
            ready_queue.answered(called, &self.shared.worker.borrow().metrics);
        }
    }
}

impl<H, C> RunningLoop<H, C>
where
    H: Handler + 'static,
    C: JobRunner<H::Job> + 'static,
{
    /// Lets fibers go on with the answers whose turn it is.
    pub(super) fn send_in_order(&self) {
        if self.shared.send_queue.borrow().is_empty() {
            return;
        }
        self.shared.send_queue.borrow_mut().keep_up();
        for _ in 0..send_queue::BATCH {
            let next = self.shared.send_queue.borrow_mut().next();
            let Some((token, goes_on)) = next else { return };
            self.serve(token);
            self.serve_due();
            self.shared.send_queue.borrow_mut().went_on(goes_on);
        }
    }
}

impl<H: Handler, C> Shared<H, C> {
    /// Whether the connections whose clients take more wait for their turn, without a fiber.
    pub(super) fn sends_in_order(&self) -> bool {
        self.worker.borrow().settings.send_order != SendOrder::Arrival
    }

    /// Queues this connection, which is at rest and whose client takes more of its answer. Returns
    /// whether it goes on in its turn.
    pub(super) fn sends_in_turn(&self, connection: &mut FiberConnection<H>) -> bool {
        if let (ConnectionOwner::AtRest(served), true) = (&connection.place, self.sends_in_order())
        {
            let mut queue = self.send_queue.borrow_mut();
            connection.sends = queue.join(served, &self.worker.borrow(), connection.token);
        }
        connection.sends.is_some()
    }

    /// Calls the next request of the ready queue, if it is time for that. Returns its connection,
    /// unless a fiber has that; then the fiber is woken.
    pub(super) fn call(&self) -> Option<u64> {
        if let Some(waits) = self.listener_called.take() {
            self.listener_called.set(Some(waits));
            return None;
        }
        self.calls.set(self.calls.get().checked_sub(1)?);
        let (request, called) = {
            let mut ready_queue = self.ready_queue.borrow_mut();
            let metrics = &self.worker.borrow().metrics;
            ready_queue.as_mut()?.call(clock::monotonic_ns(), metrics)?
        };
        if let Some(index) = ready_queue::listener_of(request) {
            self.listener_called.set(Some((index, called)));
            return None;
        }
        let happened = Happened::Called(request.request, called);
        self.woken.borrow_mut().extend(self.deliver(request.connection, happened));
        self.due.borrow_mut().pop_front()
    }

    /// Whether a request waits to be answered.
    #[inline]
    pub(super) fn has_ready(&self) -> bool {
        self.ready_queue.borrow().as_ref().is_some_and(|ready_queue| !ready_queue.is_empty())
    }
}
