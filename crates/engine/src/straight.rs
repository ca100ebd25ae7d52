//! A connection from accept to close in straight-line code, for engines in which each connection
//! has a thread or a fiber of its own. The engine decides where to wait: see [`Wait`].
//!
//! | module | what it holds |
//! |---|---|
//! | `blocking` | how `threads` and `pool` wait |
//! | [`stock`] | what their threads share: idle workers, permits |
//! | `away` | connections that keep no thread while another process has their socket |
//! | `ahead` | connections that were accepted before a thread serves them |

pub(crate) mod ahead;
pub(crate) mod away;
pub(crate) mod blocking;
pub mod stock;

use crate::connection::served::{EventOf, Served};
use crate::connection::turn::Fate;
use crate::connection::worker::Worker;
use crate::control::{Ended, EngineControl, LoopOrder};
use crate::helpers::SharedJob;
use forebay_conn::{Awaited, Closing, Handler, RequestEvent, RequestId};
use forebay_metrics::Counter;
use std::ops::DerefMut;

/// The waits of an engine.
///
/// Every wait takes `self` mutably, so a worker that was lent is given back before: a fiber keeps
/// nothing of its thread's worker while another fiber runs.
pub(crate) trait Wait<H: Handler> {
    /// The worker, for the time of a loan.
    type Lent<'w>: DerefMut<Target = Worker<H>>
    where
        Self: 'w;

    /// Lends the worker, until the next wait.
    fn worker(&mut self) -> Self::Lent<'_>;

    /// Prepares the worker for a turn: it learns the order, the time and the load, and the handler
    /// does what it does once per turn, unless the engine has seen to that.
    fn begin_turn(&mut self, order: LoopOrder);

    /// The requests that may be answered in the next turn.
    fn answers(&self) -> Answerable;

    /// Ends a turn in which all was answered that could be: others are next.
    fn answered(&mut self);

    /// Queues a request that is there; [`next`](Wait::next) returns when its turn to be answered
    /// has come.
    ///
    /// # Errors
    /// When the connection is gone in both directions.
    fn enqueue(&mut self, served: &mut Served<H>, id: RequestId) -> Result<(), Gone>;

    /// Keeps a request that may not be answered before `wait_ms` milliseconds have passed;
    /// [`next`](Wait::next) returns when they have.
    fn keep_early(&mut self, served: &mut Served<H>, id: RequestId, wait_ms: u32);

    /// Has a job done for a request; [`next`](Wait::next) returns when it is. Returns `false` if
    /// too many jobs wait.
    fn submit(&mut self, served: &mut Served<H>, id: RequestId, job: SharedJob<H::Job>) -> bool;

    /// Sets the deadlines of what the connection and its requests wait for, and returns what is
    /// overdue: see [`ConnectionTimer::set`](crate::loops::deadlines::ConnectionTimer::set) and
    /// [`ConnectionTimer::over`](crate::loops::deadlines::ConnectionTimer::over).
    fn time(&mut self, served: &mut Served<H>) -> Option<Awaited>;

    /// Waits until something has happened, a deadline is over, or there is an order stronger than
    /// `known`. The engine may take the connection meanwhile: then this serving of it ends, and the
    /// engine has it served on when something has happened.
    fn next(&mut self, served: Box<Served<H>>, known: LoopOrder) -> AfterWait<H>;

    /// Waits until others had their turn.
    fn pass(&mut self, served: &mut Served<H>);

    /// Takes the requests of the connection, which is about to end or to be given away, out of the
    /// ready queue.
    fn leave_queue(&mut self, served: &Served<H>);

    /// Stops watching the connection's socket, which is about to leave, until it is back.
    fn let_go(&mut self, served: &Served<H>);
}

/// The error of a connection that is gone in both directions, or failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gone;

/// The requests that may be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answerable {
    /// All requests, as they come.
    All,
    /// No request before its turn has come.
    None,
    /// This request, whose turn it is.
    Called(RequestId),
}

/// The outcome of a connection's wait.
pub(crate) enum AfterWait<H: Handler> {
    /// Something may have arrived from the client, or it is time to look at the deadlines or the
    /// order.
    Ready(Box<Served<H>>),
    /// This has happened to a request of the connection.
    Event(Box<Served<H>>, EventOf<H>),
    /// The connection is gone in both directions, or failed.
    Gone(Box<Served<H>>),
    /// The engine has taken the connection.
    Taken,
}

/// Serves one connection until it ends or the engine takes it. Returns how it ended, if that was in
/// a drain. `begun` is the fate of its first turn, if the engine gave it that by itself; `event` is
/// what has happened to one of its requests, if the engine took it before. The connection is boxed
/// because it is moved to and fro.
pub(crate) fn serve<H: Handler, W: Wait<H>>(
    wait: &mut W,
    mut served: Box<Served<H>>,
    mut begun: Option<Fate<H::Job>>,
    mut event: Option<EventOf<H>>,
    control: &EngineControl,
) -> Ended {
    let mut ended = Ended::default();
    let closing = loop {
        let order = control.order();
        if order == LoopOrder::Stop {
            ended.abort(served.awaits().what);
            break Closing::Reset;
        }
        let fate = match begun.take() {
            Some(fate) => fate,
            None => turn(wait, &mut served, event.take(), order),
        };
        if !matches!(fate, Fate::Job(..)) {
            wait.answered();
        }
        let is_asked = !matches!(fate, Fate::Waits);
        let passes = matches!(fate, Fate::Yields | Fate::Shakes | Fate::Next(_));
        match fate {
            Fate::Waits => {}
            Fate::Yields | Fate::Shakes | Fate::Next(_) => wait.pass(&mut served),
            Fate::Enqueue(id) => {
                if !served.waits.contains(id) && wait.enqueue(&mut served, id).is_err() {
                    break Closing::Now;
                }
            }
            Fate::NotBefore(id, wait_ms) => {
                if !served.waits.contains(id) {
                    wait.keep_early(&mut served, id, wait_ms);
                }
            }
            Fate::Job(id, job) => {
                wait.worker().count(Counter::Jobs);
                let shared_job = served.wait_for(id, job);
                if !wait.submit(&mut served, id, shared_job)
                    && let Some(closing) = wait.worker().expire_job(&mut served, id)
                {
                    break closing;
                }
            }
            Fate::Lends => {
                wait.let_go(&served);
                wait.worker().lend(&mut served);
            }
            Fate::HandOver => {
                wait.leave_queue(&served);
                wait.let_go(&served);
                wait.worker().hand_over(*served);
                return ended;
            }
            Fate::Closes(closing) => break closing,
        }
        // other requests of the connection go on at once, before anything is waited for
        if is_asked && !passes && served.goes_on() {
            continue;
        }
        // before a connection that yields has its next turn: one that always yields has deadlines,
        // too
        if let Some(awaited) = wait.time(&mut served) {
            match wait.worker().expire(&mut served, awaited) {
                Some(closing) => break closing,
                None => continue,
            }
        }
        if passes {
            continue;
        }
        match wait.next(served, order) {
            AfterWait::Ready(back) => served = back,
            AfterWait::Event(back, happened) => (served, event) = (back, Some(happened)),
            AfterWait::Gone(back) => {
                served = back;
                break Closing::Now;
            }
            AfterWait::Taken => return ended,
        }
    };
    if wait.worker().draining && ended == Ended::default() {
        match closing {
            Closing::Reset => ended.abort(served.awaits().what),
            Closing::Now | Closing::Linger => ended.drained = 1,
        }
    }
    wait.answered();
    close(wait, served, closing);
    ended
}

/// Gives a connection a turn.
#[inline(always)]
fn turn<H: Handler, W: Wait<H>>(
    wait: &mut W,
    served: &mut Served<H>,
    event: Option<EventOf<H>>,
    order: LoopOrder,
) -> Fate<H::Job> {
    wait.begin_turn(order);
    match (wait.answers(), event) {
        (Answerable::All, event) => wait.worker().turn(served, event),
        (_, Some(RequestEvent::Done(id, done))) => {
            wait.worker().answer(served, id, Some(RequestEvent::Done(id, done)))
        }
        (Answerable::Called(id), event) => wait.worker().answer(served, id, event),
        (Answerable::None, event) => wait.worker().arrive(served, event),
    }
}

/// Closes a connection.
pub(crate) fn close<H: Handler, W: Wait<H>>(
    wait: &mut W,
    served: Box<Served<H>>,
    closing: Closing,
) {
    wait.leave_queue(&served);
    wait.worker().close(*served, closing);
}
