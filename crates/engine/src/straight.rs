//! A connection from accept to close in straight-line code, for engines in which each connection
//! has a thread or a fiber of its own. Where to wait is theirs: see [`Wait`].

use crate::control::{Control, Ended, Order};
use crate::settings::{LINGER_BYTES, LINGER_MS};
use crate::worker::{Fate, Served, Worker};
use forebay_conn::{Await, Closing, Handler, Job};
use forebay_metrics::Counter;
use forebay_sys::poll::{Interest, Readiness};
use forebay_sys::socket;
use std::os::fd::{AsFd, BorrowedFd};

/// A wait that lasts longer than this lets the handler rest.
const REST_MS: u64 = 100;

/// How an engine waits.
pub trait Wait<H: Handler> {
    /// Until the socket is ready, `timeout_ms` are over, or there is an order stronger than
    /// `known`. What has not happened is not reported.
    fn ready(
        &mut self,
        socket: BorrowedFd<'_>,
        interest: Interest,
        timeout_ms: u64,
        known: Order,
    ) -> Readiness;

    /// Until the job is done; `None` if it panicked.
    fn job(&mut self, job: H::Job, worker: &mut Worker<H>) -> Option<<H::Job as Job>::Done>;

    /// Until others had their turn.
    fn pass(&mut self);

    /// The share of what there is for connections that is in use, between 0 and 1.
    fn load(&self) -> f64;

    /// Whether one more connection may linger; if so, [`end_linger`](Wait::end_linger) follows.
    fn begin_linger(&mut self) -> bool;

    /// The connection lingers no longer.
    fn end_linger(&mut self);
}

/// What the connection is given time for.
#[derive(Default)]
pub(crate) struct Deadline {
    /// What is awaited, and how many requests had been answered when the time began.
    awaited: Option<(Await, u32)>,
    at_ms: u64,
}

/// Serves one connection until it ends. Says how it ended, if that was in a drain.
pub fn serve<H: Handler>(
    worker: &mut Worker<H>,
    mut served: Served<H>,
    wait: &mut impl Wait<H>,
    control: &Control,
) -> Ended {
    let mut ended = Ended::default();
    let mut deadline = Deadline::default();
    let mut done = None;
    let closing = loop {
        let order = control.order();
        if order == Order::Stop {
            ended.abort(served.awaits());
            break Closing::Reset;
        }
        worker.draining = order >= Order::Drain;
        worker.read_clocks();
        worker.observe(|| wait.load());
        let fate = worker.turn(&mut served, done.take());
        worker.end_turn();
        match fate {
            Fate::Waits => {
                if let Some(closing) =
                    wait_for_client(worker, &mut served, &mut deadline, wait, order)
                {
                    break closing;
                }
            }
            Fate::Yields | Fate::Next(_) => wait.pass(),
            Fate::Job(job) => {
                worker.count(Counter::Jobs);
                done = wait.job(job, worker);
                if done.is_none() {
                    worker.count(Counter::Panics);
                    break Closing::Reset;
                }
            }
            Fate::HandOver => {
                worker.hand_over(served);
                return ended;
            }
            Fate::Closes(closing) => break closing,
        }
    };
    if worker.draining && ended == Ended::default() {
        match closing {
            Closing::Reset => ended.abort(served.awaits()),
            Closing::Now | Closing::Linger => ended.drained = 1,
        }
    }
    close(worker, served, closing, wait);
    ended
}

/// Waits for what the connection needs of its client; `Some` if that did not come in time.
pub(crate) fn wait_for_client<H: Handler>(
    worker: &mut Worker<H>,
    served: &mut Served<H>,
    deadline: &mut Deadline,
    wait: &mut impl Wait<H>,
    order: Order,
) -> Option<Closing> {
    let what = served.awaits();
    let awaited = Some((what, served.conn.served()));
    if deadline.awaited != awaited {
        *deadline = Deadline { awaited, at_ms: worker.now_ms() + worker.time_ms(served, what) };
        if what == Await::Send {
            served.begin_window();
        }
    }
    let interest = if what == Await::Send { Interest::Write } else { Interest::Read };
    let timeout_ms = deadline.at_ms.saturating_sub(worker.now_ms());
    if timeout_ms > 0 {
        let socket = served.socket.as_fd();
        let mut readiness = wait.ready(socket, interest, timeout_ms.min(REST_MS), order);
        if readiness == Readiness::default() && timeout_ms > REST_MS {
            worker.handler.rest();
            readiness = wait.ready(socket, interest, timeout_ms - REST_MS, order);
        }
        served.readable |= readiness.ready && interest == Interest::Read;
        served.ended |= readiness.ended;
        if readiness.broken {
            return Some(Closing::Now);
        }
        return None;
    }
    let timeouts = &worker.settings.timeouts;
    if what == Await::Send && served.taken_in_window() >= timeouts.bytes_per_window() {
        deadline.awaited = None;
        return None;
    }
    Some(worker.expire(served, what))
}

/// Closes a connection, with the mercy it asks for.
pub fn close<H: Handler>(
    worker: &mut Worker<H>,
    mut served: Served<H>,
    closing: Closing,
    wait: &mut impl Wait<H>,
) {
    if closing == Closing::Linger && wait.begin_linger() {
        served.pending = None;
        let socket = served.socket.as_fd();
        socket::shut_down_writing(socket);
        worker.read_clocks();
        let until_ms = worker.now_ms() + LINGER_MS;
        let mut most = LINGER_BYTES;
        while let Some(left) = worker.drop_input(socket, most) {
            most = left;
            worker.read_clocks();
            let timeout_ms = until_ms.saturating_sub(worker.now_ms());
            if timeout_ms == 0 {
                break;
            }
            // not even an order to stop shortens this: the process does not wait for it
            wait.ready(socket, Interest::Read, timeout_ms, Order::Stop);
        }
        wait.end_linger();
    }
    worker.close(served, closing);
    worker.handler.rest();
}
