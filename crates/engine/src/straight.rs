//! A connection from accept to close in straight-line code, for engines in which each connection
//! has a thread or a fiber of its own. Where to wait is theirs: see [`Wait`].

use crate::control::{Control, Ended, Order};
use crate::helpers::Claim;
use crate::settings::{LINGER_BYTES, LINGER_MS};
use crate::worker::{Fate, Served, Worker};
use forebay_conn::{Await, Closing, Handler, Job};
use forebay_metrics::Counter;
use forebay_sys::poll::Interest;
use forebay_sys::socket;
use std::ops::DerefMut;
use std::os::fd::AsFd;

/// How an engine waits.
///
/// Every wait takes `self` mutably, so a worker that was lent is given back before: a fiber keeps
/// nothing of its thread's worker while another fiber runs.
pub trait Wait<H: Handler> {
    /// The worker, as long as it is lent.
    type Lent<'w>: DerefMut<Target = Worker<H>>
    where
        Self: 'w;

    /// Lends the worker, until the next wait.
    fn worker(&mut self) -> Self::Lent<'_>;

    /// Before a turn: the worker gets to know the order, the time and the load, and the handler does
    /// what it does once per turn, unless somebody else has seen to that.
    fn begin_turn(&mut self, order: Order);

    /// Until the socket is ready, `timeout_ms` are over, or there is an order stronger than `known`.
    /// What has happened is noted in `served`, and what has not is not.
    ///
    /// # Errors
    /// When the connection is gone in both directions.
    fn ready(
        &mut self,
        served: &mut Served<H>,
        interest: Interest,
        timeout_ms: u64,
        known: Order,
    ) -> Result<(), Gone>;

    /// Which requests may be answered in the next turn.
    fn answers(&self) -> Answers;

    /// Until a request that is there may be answered, or `deadline` is over. The engine may take the
    /// connection meanwhile: then this serving of it ends, and the engine has it served on in time.
    ///
    /// # Errors
    /// When the connection is gone in both directions.
    fn line_up(&mut self, served: Box<Served<H>>, deadline: Deadline) -> LinedUp<H>;

    /// What could be answered is: others are next.
    fn answered(&mut self);

    /// Until the job is done. The engine may take the connection meanwhile: then this serving of it
    /// ends, and the engine has it served on, from `deadline`, when the job has ended.
    fn job(&mut self, served: Box<Served<H>>, job: Claim<H::Job>, deadline: Deadline) -> Worked<H>;

    /// Until others had their turn.
    fn pass(&mut self, served: &mut Served<H>);

    /// Offers the engine a connection that waits for its client, until this deadline. If the engine
    /// takes it, this serving of it ends, and the engine has it served on when one of them comes.
    fn take_back(&mut self, served: Box<Served<H>>, deadline: Deadline) -> Option<Box<Served<H>>>;

    /// The connection is about to be given away: nobody here watches it any longer.
    fn let_go(&mut self, served: &Served<H>);

    /// Whether one more connection may linger; if so, [`end_linger`](Wait::end_linger) follows.
    fn begin_linger(&mut self) -> bool;

    /// The connection lingers no longer.
    fn end_linger(&mut self);
}

/// The connection is gone in both directions, or failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone;

/// Which requests may be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answers {
    /// All, as they come.
    All,
    /// None before its turn has come.
    None,
    /// The one that is there, whose turn it is.
    Called,
}

/// A connection that is served on, none if the engine has taken it, or one that is gone.
pub type LinedUp<H> = Result<Option<Box<Served<H>>>, Box<Served<H>>>;

/// A connection whose job has ended; none if the engine has taken it.
pub type Worked<H> = Option<(Box<Served<H>>, JobEnd<<<H as Handler>::Job as Job>::Done>)>;

/// How a job has ended.
#[derive(Debug)]
pub enum JobEnd<D> {
    /// With this result.
    Done(D),
    /// It panicked.
    Panicked,
    /// Not in time, or too many were waiting.
    Late,
    /// The connection is gone, so nobody needs it: it was not begun, or its result is dropped.
    Gone,
    /// The engine was told to stop.
    Stopped,
}

/// What a connection is given time for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Deadline {
    /// What is awaited, and how many requests had been answered when the time began.
    awaited: Option<(Await, u32)>,
    /// When the time is over, in milliseconds of the monotonic clock.
    pub at_ms: u64,
}

/// Serves one connection until it ends or the engine takes it back. Says how it ended, if that was in
/// a drain. `job` is the end of its job, if the engine took it while it waited for one. A connection
/// is boxed because it goes to and fro.
pub fn serve<H: Handler, W: Wait<H>>(
    wait: &mut W,
    mut served: Box<Served<H>>,
    mut deadline: Deadline,
    mut job: Option<JobEnd<<H::Job as Job>::Done>>,
    control: &Control,
) -> Ended {
    let mut ended = Ended::default();
    let closing = loop {
        let order = control.order();
        if order == Order::Stop {
            ended.abort(served.awaits());
            break Closing::Reset;
        }
        wait.begin_turn(order);
        let mut done = None;
        match job.take() {
            None => {}
            Some(JobEnd::Done(result)) => {
                served.job_done();
                done = Some(result);
            }
            Some(JobEnd::Panicked) => {
                wait.worker().count(Counter::Panics);
                break Closing::Reset;
            }
            Some(JobEnd::Late) => break wait.worker().expire(&mut served, Await::Job),
            Some(JobEnd::Gone) => break Closing::Now,
            Some(JobEnd::Stopped) => {
                ended.abort(Await::Job);
                break Closing::Reset;
            }
        }
        let fate = match (wait.answers(), done) {
            (Answers::All, done) => wait.worker().turn(&mut served, done),
            (Answers::None, None) => wait.worker().arrive(&mut served),
            (_, done) => wait.worker().answer(&mut served, done),
        };
        if !matches!(fate, Fate::Job(_)) {
            wait.answered();
        }
        match fate {
            Fate::Waits => {
                set_deadline(&wait.worker(), &mut served, &mut deadline);
                let has_time = deadline.at_ms > wait.worker().now_ms();
                if has_time {
                    served = match wait.take_back(served, deadline) {
                        None => return ended,
                        Some(served) => served,
                    };
                }
                if let Some(closing) = wait_for_client(wait, &mut served, &mut deadline, order) {
                    break closing;
                }
            }
            Fate::Yields => wait.pass(&mut served),
            Fate::Next(_) => {
                set_deadline(&wait.worker(), &mut served, &mut deadline);
                if deadline.at_ms <= wait.worker().now_ms() {
                    break wait.worker().expire(&mut served, Await::Job);
                }
                served = match wait.line_up(served, deadline) {
                    Ok(None) => return ended,
                    Ok(Some(served)) => served,
                    Err(gone) => {
                        served = gone;
                        break Closing::Now;
                    }
                };
            }
            Fate::Job(asked) => {
                wait.worker().count(Counter::Jobs);
                let claim = served.wait_for(asked);
                let Some((back, end)) = wait.job(served, claim, deadline) else { return ended };
                (served, job) = (back, Some(end));
            }
            Fate::HandOver => {
                wait.let_go(&served);
                wait.worker().hand_over(*served);
                return ended;
            }
            Fate::Closes(closing) => break closing,
        }
    };
    if wait.worker().draining && ended == Ended::default() {
        match closing {
            Closing::Reset => ended.abort(served.awaits()),
            Closing::Now | Closing::Linger => ended.drained = 1,
        }
    }
    wait.answered();
    close(wait, served, closing);
    ended
}

/// Gives the connection time for what it waits for, unless it has been given that already.
fn set_deadline<H: Handler>(worker: &Worker<H>, served: &mut Served<H>, deadline: &mut Deadline) {
    let what = served.awaits();
    let awaited = Some((what, served.conn.served()));
    if deadline.awaited != awaited {
        *deadline = Deadline { awaited, at_ms: worker.now_ms() + worker.time_ms(served, what) };
        if what == Await::Send {
            served.begin_window();
        }
    }
}

/// Waits for what the connection needs of its client; `Some` if that did not come in time.
pub(crate) fn wait_for_client<H: Handler, W: Wait<H>>(
    wait: &mut W,
    served: &mut Served<H>,
    deadline: &mut Deadline,
    order: Order,
) -> Option<Closing> {
    set_deadline(&wait.worker(), served, deadline);
    let what = served.awaits();
    let timeout_ms = deadline.at_ms.saturating_sub(wait.worker().now_ms());
    if timeout_ms > 0 {
        let interest = match what {
            Await::Send => Interest::Write,
            Await::Admission => Interest::End,
            _ => Interest::Read,
        };
        let gone = wait.ready(served, interest, timeout_ms, order).is_err();
        return gone.then_some(Closing::Now);
    }
    if what == Await::Admission {
        served.conn.admit();
        return None;
    }
    let mut worker = wait.worker();
    let timeouts = &worker.settings.timeouts;
    if what == Await::Send && served.taken_in_window() >= timeouts.bytes_per_window() {
        deadline.awaited = None;
        return None;
    }
    Some(worker.expire(served, what))
}

/// Closes a connection, with the mercy it asks for.
pub fn close<H: Handler, W: Wait<H>>(wait: &mut W, mut served: Box<Served<H>>, closing: Closing) {
    if closing == Closing::Linger && wait.begin_linger() {
        served.pending = None;
        socket::shut_down_writing(served.socket.as_fd());
        let now_ms = |worker: &mut Worker<H>| {
            worker.read_clocks();
            worker.now_ms()
        };
        let until_ms = now_ms(&mut wait.worker()) + LINGER_MS;
        let mut most = LINGER_BYTES;
        loop {
            let left = wait.worker().drop_input(served.socket.as_fd(), most);
            let Some(left) = left else { break };
            most = left;
            let timeout_ms = until_ms.saturating_sub(now_ms(&mut wait.worker()));
            // not even an order to stop shortens this: the process does not wait for it
            if timeout_ms == 0
                || wait.ready(&mut served, Interest::Read, timeout_ms, Order::Stop).is_err()
            {
                break;
            }
        }
        wait.end_linger();
    }
    wait.worker().close(*served, closing);
}
