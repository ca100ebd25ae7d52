//! How a thread of send stays with a client that takes nothing, where sending is all there is to do
//! for its connection. It stays for a while only, or there would soon be no thread left for others.

use super::Shared;
use super::pipeline_connection::PipelineConnection;
use crate::connection::served::Served;
use crate::connection::worker::Worker;
use crate::control::LoopOrder;
use forebay_conn::{Closing, Handler};
use forebay_sys::poll::{self, PollInterest, Readiness};
use std::os::fd::AsFd;

/// The length of a wait after which the handler rests.
const REST_MS: u64 = 100;

/// The outcome of a wait.
pub(super) enum Waited {
    /// The client takes something, or there is another order.
    Over,
    /// The thread has stayed for as long as it may.
    TooLong,
    Ends(Closing),
}

impl<H: Handler> Shared<H> {
    /// Waits until the client takes something, its time is over, or there is an order stronger than
    /// `known`; at most for `left_ms`, which is reduced by the wait.
    pub(super) fn wait_for_client(
        &self,
        connection: &mut PipelineConnection<H>,
        worker: &mut Worker<H>,
        known: LoopOrder,
        left_ms: &mut u64,
    ) -> Waited {
        let PipelineConnection { served, timer, .. } = connection;
        timer.set(served, worker);
        let begun_ms = worker.now_ms();
        let has_ms = timer.at_ms().saturating_sub(begun_ms);
        if has_ms == 0 {
            let closing = match timer.over(served, worker) {
                None => return Waited::Over,
                Some(awaited) => worker.expire(served, awaited),
            };
            return closing.map_or(Waited::Over, Waited::Ends);
        }
        let most_ms = has_ms.min(*left_ms);
        let mut readiness = self.poll(served, most_ms.min(REST_MS), known);
        if readiness == Readiness::default() && most_ms > REST_MS {
            worker.handler.rest();
            readiness = self.poll(served, most_ms - REST_MS, known);
        }
        served.ended |= readiness.ended;
        worker.read_clocks();
        worker.begin_turn();
        if readiness.broken {
            return Waited::Ends(Closing::Now);
        }
        *left_ms = left_ms.saturating_sub(worker.now_ms() - begun_ms);
        match readiness == Readiness::default() && most_ms < has_ms {
            true => Waited::TooLong,
            false => Waited::Over,
        }
    }

    fn poll(&self, served: &Served<H>, timeout_ms: u64, known: LoopOrder) -> Readiness {
        let client = (served.stream.as_fd(), PollInterest::Write);
        let bell = (self.control.stronger_than(known).as_fd(), PollInterest::Read);
        match poll::wait([client, bell], timeout_ms) {
            Ok([client, _]) => client,
            // if poll has no memory, the answer has none either
            Err(_) => Readiness { broken: true, ..Readiness::default() },
        }
    }
}
