//! A thread of send stays with a client that takes nothing, where all there is to be done for its
//! connection is to send.

use super::Shared;
use super::slab::Connection;
use crate::control::Order;
use crate::served::Served;
use crate::timer::Over;
use crate::worker::Worker;
use forebay_conn::{Closing, Handler};
use forebay_sys::poll::{self, Interest, Readiness};
use std::os::fd::AsFd;

/// A wait that lasts longer than this lets the handler rest.
const REST_MS: u64 = 100;

impl<H: Handler> Shared<H> {
    /// Waits until the client takes something, its time is over, or there is an order stronger than
    /// `known`. `Some` if the connection ends by that.
    pub(super) fn wait_for_client(
        &self,
        connection: &mut Connection<H>,
        worker: &mut Worker<H>,
        known: Order,
    ) -> Option<Closing> {
        let Connection { served, timer, .. } = connection;
        timer.set(served, worker);
        let left_ms = timer.at_ms().saturating_sub(worker.now_ms());
        if left_ms == 0 {
            return match timer.over(served, worker)? {
                Over::Wait(awaited) => worker.expire(served, awaited),
                Over::Linger => Some(Closing::Now),
            };
        }
        let mut readiness = self.poll(served, left_ms.min(REST_MS), known);
        if readiness == Readiness::default() && left_ms > REST_MS {
            worker.handler.rest();
            readiness = self.poll(served, left_ms - REST_MS, known);
        }
        served.ended |= readiness.ended;
        worker.read_clocks();
        worker.begin_turn();
        readiness.broken.then_some(Closing::Now)
    }

    fn poll(&self, served: &Served<H>, timeout_ms: u64, known: Order) -> Readiness {
        let client = (served.stream.as_fd(), Interest::Write);
        let bell = (self.control.stronger_than(known).as_fd(), Interest::Read);
        match poll::wait([client, bell], timeout_ms) {
            Ok([client, _]) => client,
            // without memory for poll there is none for the answer
            Err(_) => Readiness { broken: true, ..Readiness::default() },
        }
    }
}
