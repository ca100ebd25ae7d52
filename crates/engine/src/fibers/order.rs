//! When a loop answers: what is in [line](crate::line) a batch at a time, by as many fibers as it
//! takes, and what came too early when its moment has come.

use super::connection::Happened;
use super::{Running, Shared};
use crate::helpers::JobRunner;
use crate::line::BATCH;
use forebay_conn::Handler;
use forebay_sys::clock;
use std::rc::Rc;

impl<H, C> Running<H, C>
where
    H: Handler + 'static,
    C: JobRunner<H::Job> + 'static,
{
    /// Has those served on that came early and whose moment has come.
    pub(super) fn wake_early(&mut self) {
        let now_ms = self.now_ms();
        loop {
            let request = self.shared.early.borrow_mut().next(now_ms);
            let Some(request) = request else { break };
            self.not_before_has_come(request);
        }
        self.serve_due();
    }

    /// Lets fibers answer those whose turn it is, a batch of them.
    pub(super) fn answer_in_order(&self) {
        if !self.shared.has_line() {
            return;
        }
        if let Some(line) = &mut *self.shared.line.borrow_mut() {
            line.keep_up();
        }
        self.shared.calls.set(BATCH);
        while self.shared.calls.get() > 0 && self.shared.has_line() {
            let shared = Rc::clone(&self.shared);
            if self.scheduler.start(move || shared.serve_due()).is_err() {
                // those in line can wait: fibers that are there now will end
                break;
            }
        }
        self.shared.calls.set(0);
        self.shared.woken.take().into_iter().for_each(|id| self.scheduler.unpark(id));
    }
}

impl<H: Handler, C> Shared<H, C> {
    /// Calls the next request of the ready queue, if it is time for that. Returns its connection, unless
    /// that is in the hands of a fiber, which is woken.
    pub(super) fn call(&self) -> Option<u64> {
        self.calls.set(self.calls.get().checked_sub(1)?);
        let (request, called) = {
            let mut line = self.line.borrow_mut();
            let metrics = &self.worker.borrow().metrics;
            line.as_mut()?.call(clock::monotonic_ns(), metrics)?
        };
        let happened = Happened::Called(request.request, called);
        self.woken.borrow_mut().extend(self.deliver(request.connection, happened));
        self.due.borrow_mut().pop_front()
    }

    /// Whether somebody waits to be answered.
    #[inline]
    pub(super) fn has_line(&self) -> bool {
        self.line.borrow().as_ref().is_some_and(|line| !line.is_empty())
    }
}
