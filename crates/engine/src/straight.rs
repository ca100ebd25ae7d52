//! A connection from accept to close in straight-line code, for engines in which each connection
//! has a thread or a fiber of its own. Where to wait is theirs: see [`Wait`].
//!
//! | module | what it holds |
//! |---|---|
//! | `blocking` | how `threads` and `pool` wait |
//! | [`stock`] | what their threads share: workers that none uses, permits |
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

/// How an engine waits.
///
/// Every wait takes `self` mutably, so a worker that was lent is given back before: a fiber keeps
/// nothing of its thread's worker while another fiber runs.
pub(crate) trait Wait<H: Handler> {
    /// The worker, as long as it is lent.
    type Lent<'w>: DerefMut<Target = Worker<H>>
    where
        Self: 'w;

    /// Lends the worker, until the next wait.
    fn worker(&mut self) -> Self::Lent<'_>;

    /// Before a turn: the worker gets to know the order, the time and the load, and the handler does
    /// what it does once per turn, unless the engine has seen to that.
    fn begin_turn(&mut self, order: LoopOrder);

    /// Which requests may be answered in the next turn.
    fn answers(&self) -> Answerable;

    /// What could be answered is: others are next.
    fn answered(&mut self);

    /// A request is there: [`next`](Wait::next) tells when its turn to be answered has come.
    ///
    /// # Errors
    /// When the connection is gone in both directions.
    fn enqueue(&mut self, served: &mut Served<H>, id: RequestId) -> Result<(), Gone>;

    /// A request may not be answered before so many milliseconds have passed:
    /// [`next`](Wait::next) tells when they have.
    fn keep_early(&mut self, served: &mut Served<H>, id: RequestId, wait_ms: u32);

    /// Has a job done for a request: [`next`](Wait::next) tells when it is. `false` if too many wait.
    fn submit(&mut self, served: &mut Served<H>, id: RequestId, job: SharedJob<H::Job>) -> bool;

    /// Gives the connection and its requests time for what they wait for, and says what is over: see
    /// [`ConnectionTimer::set`](crate::loops::deadlines::ConnectionTimer::set) and [`ConnectionTimer::over`](crate::loops::deadlines::ConnectionTimer::over).
    fn time(&mut self, served: &mut Served<H>) -> Option<Awaited>;

    /// Until something has happened, a deadline is over, or there is an order stronger than `known`. The
    /// engine may take the connection meanwhile: then this serving of it ends, and the engine has it
    /// served on when something has happened.
    fn next(&mut self, served: Box<Served<H>>, known: LoopOrder) -> AfterWait<H>;

    /// Until others had their turn.
    fn pass(&mut self, served: &mut Served<H>);

    /// The connection is about to end or to be given away: its requests leave the ready queue.
    fn leave_queue(&mut self, served: &Served<H>);

    /// The connection's socket is about to leave: the engine watches it no longer, until it is back.
    fn let_go(&mut self, served: &Served<H>);
}

/// The connection is gone in both directions, or failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gone;

/// Which requests may be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answerable {
    /// All, as they come.
    All,
    /// None before its turn has come.
    None,
    /// This one, whose turn it is.
    Called(RequestId),
}

/// What has become of a connection that waited.
pub(crate) enum AfterWait<H: Handler> {
    /// Something may have come from its client, or it is time to look at the deadlines or the order.
    Ready(Box<Served<H>>),
    /// This has happened to one of its requests.
    Event(Box<Served<H>>, EventOf<H>),
    /// It is gone in both directions, or failed.
    Gone(Box<Served<H>>),
    /// The engine has taken it.
    Taken,
}

/// Serves one connection until it ends or the engine takes it. Says how it ended, if that was in a
/// drain. `begun` is what its first turn has led to, if the engine gave it that by itself; `event` is what
/// has happened to one of its requests, if the engine took it before. A connection is boxed because it goes
/// to and fro.
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
        if is_asked && !passes && served.goes_on() {
            continue;
        }
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
