//! The steps of a connection's turn, the same for every engine.
//!
//! In: a connection that can go on, and perhaps what has happened to one of its requests. Out: a
//! [`Fate`], which the engine carries out in its own way: wait for readiness, block, park, queue.

use crate::connection::send::{self, SendProgress};
use crate::connection::send_window::TakenWindow;
use crate::connection::served::{EventOf, Served, next_event};
use crate::connection::stream::{SocketStream, Wire};
use crate::connection::waits::RequestWait;
use crate::connection::worker::Worker;
use crate::watch::TurnStopwatch;
use forebay_conn::{
    Announce, Await, Awaited, Closing, Context, Handler, Protocol, Rank, RequestEvent, RequestId,
    Step,
};
use forebay_control::allocation::Phase;
use forebay_metrics::{Activity, Counter, Stopwatch};
use forebay_sys::socket::Received;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What becomes of a connection after its turn.
///
/// After [`Job`](Fate::Job), [`Enqueue`](Fate::Enqueue) and [`NotBefore`](Fate::NotBefore) a connection
/// with other requests [goes on](Protocol::goes_on): it gets another turn at once.
#[derive(Debug)]
pub(crate) enum Fate<J> {
    /// The connection waits for what [`Served::awaits`] says.
    Waits,
    /// The connection can go on, after its neighbours.
    Yields,
    /// The handshake can begin in a turn of the loop in which fewer have begun.
    Shakes,
    /// The connection goes to another phase; never the result of [`Worker::turn`].
    Next(Phase),
    /// This request waits for this job.
    Job(RequestId, J),
    /// This request is there, and waits for its turn; never the result of [`Worker::turn`].
    Enqueue(RequestId),
    /// This request may not be answered before this many milliseconds have passed.
    NotBefore(RequestId, u32),
    /// The socket leaves for a while: the engine stops watching it and [lends](Worker::lend) it;
    /// then the connection goes on.
    Lends,
    /// The connection goes to [`hand_over`](forebay_conn::Hooks::hand_over).
    HandOver,
    /// The connection is closed.
    Closes(Closing),
}

/// Which steps a turn takes.
#[derive(Clone, Copy)]
enum Steps {
    /// All steps.
    All,
    /// All steps but answering.
    Arrive,
    /// All steps, and of the answers those to this rank and higher ones.
    Answer(Rank),
    /// The steps of one phase, for one request.
    Of(Phase),
}

impl Steps {
    /// The number of requests that may be answered with these steps, of `all` that a turn may
    /// answer.
    #[inline(always)]
    fn budget(self, all: u32) -> u32 {
        match self {
            Steps::All | Steps::Arrive | Steps::Answer(_) => all,
            // what follows in a pipeline of requests is received again
            Steps::Of(Phase::Send) => 0,
            Steps::Of(_) => 1,
        }
    }

    /// The lowest rank whose requests are answered; `None` if none are.
    #[inline(always)]
    fn answers(self) -> Option<Rank> {
        match self {
            Steps::All | Steps::Of(Phase::Process) => Some(Rank::LAST),
            Steps::Answer(rank) => Some(rank),
            Steps::Arrive | Steps::Of(_) => None,
        }
    }

    /// Whether the steps of this phase belong to another thread.
    #[inline(always)]
    fn leave(self, phase: Phase) -> bool {
        matches!(self, Steps::Of(only) if only != phase)
    }
}

impl<H: Handler> Worker<H> {
    /// Receives, answers and sends until something must be waited for. A panic on the way closes the
    /// connection and is counted.
    #[inline]
    pub(crate) fn turn(
        &mut self,
        served: &mut Served<H>,
        event: Option<EventOf<H>>,
    ) -> Fate<H::Job> {
        match catch_unwind(AssertUnwindSafe(|| self.take_turn(served, event, Steps::All))) {
            Ok(fate) => {
                served.stand();
                fate
            }
            Err(_) => self.panicked(served),
        }
    }

    /// Does the same as [`turn`](Worker::turn), but does not answer a request that is admitted: the
    /// turn ends with [`Fate::Enqueue`].
    pub(crate) fn arrive(
        &mut self,
        served: &mut Served<H>,
        event: Option<EventOf<H>>,
    ) -> Fate<H::Job> {
        self.some_steps(served, event, Steps::Arrive)
    }

    /// Does the same as [`turn`](Worker::turn), for this request, which has
    /// [arrived](Worker::arrive) or whose job is done. The requests after it are answered too,
    /// unless their rank is lower.
    pub(crate) fn answer(
        &mut self,
        served: &mut Served<H>,
        id: RequestId,
        event: Option<EventOf<H>>,
    ) -> Fate<H::Job> {
        let (rank, _) = served.conn.rank_and_client(id);
        self.some_steps(served, event, Steps::Answer(rank))
    }

    /// Does the same as [`turn`](Worker::turn), for one request and with the steps of one phase
    /// only: receive and parse, answer, or send. Where the next step is another phase's, the turn
    /// ends.
    pub(crate) fn phase(
        &mut self,
        phase: Phase,
        served: &mut Served<H>,
        event: Option<EventOf<H>>,
    ) -> Fate<H::Job> {
        self.some_steps(served, event, Steps::Of(phase))
    }

    fn some_steps(
        &mut self,
        served: &mut Served<H>,
        event: Option<EventOf<H>>,
        steps: Steps,
    ) -> Fate<H::Job> {
        match catch_unwind(AssertUnwindSafe(|| self.take_turn(served, event, steps))) {
            Ok(fate) => {
                served.stand();
                fate
            }
            Err(_) => self.panicked(served),
        }
    }

    #[cold]
    fn panicked(&mut self, served: &mut Served<H>) -> Fate<H::Job> {
        self.count(Counter::Panics);
        self.out.clear();
        self.input.clear();
        served.pending = None;
        Fate::Closes(Closing::Reset)
    }

    /// Takes these steps. Inlined, so that a whole turn does not ask which.
    #[inline(always)]
    fn take_turn(
        &mut self,
        served: &mut Served<H>,
        mut event: Option<EventOf<H>>,
        steps: Steps,
    ) -> Fate<H::Job> {
        let sampled = self.is_sampled();
        served.conn.resume(&mut self.input);
        if served.opening.is_some()
            && let Some(fate) = self.open(served, event.take(), sampled)
        {
            return fate;
        }
        if let Some(happened) = event {
            match self.take_note(served, happened) {
                Ok(news) => event = news,
                Err(fate) => return fate,
            }
        }
        let mut watch = TurnStopwatch::new(&self.metrics, sampled);
        let input = &mut self.input;
        let mut cx = Context {
            handler: &mut self.handler,
            out: &mut self.out,
            peer: &served.peer,
            path: &self.path,
            head_buffer: &mut self.head_buffer,
            limits: &self.settings.limits,
            date: &self.date,
            now_ms: self.now.monotonic_ms,
            draining: self.draining,
            announce: self.idle.announce(self.settings.announce),
            budget: steps.budget(self.settings.turn_requests),
            answers: steps.answers(),
            event,
            metrics: &self.metrics,
            watch: &mut watch,
        };
        if let Some(pending) = served.pending.take() {
            cx.out.put_back(*pending);
        }
        let mut budget = served.turn_left.take().unwrap_or(self.settings.turn_bytes);
        // the other phases do what can be done besides sending, and leave that to the phase send
        let has_rest = !cx.out.is_empty() || served.stream.has_unsent();
        served.has_enough = false;
        let mut is_blocked = steps.leave(Phase::Send) && served.goes_on() && has_rest;
        // Where a client takes its answers as fast as they are written, the protocol never asks to
        // receive. So this looks first at what the client has sent, which may be that it wants no
        // more of them.
        let mut looks = served.reads_meanwhile() && served.readable && input.is_empty();
        looks &= cx.event.is_none() && served.inbox.is_empty() && !steps.leave(Phase::Receive);
        let fate = loop {
            let was_empty = cx.out.is_empty();
            let step = if std::mem::take(&mut looks) {
                Step::Receive
            } else if !is_blocked && (!cx.out.is_empty() || served.stream.has_unsent()) {
                // what is being sent waits for the disk
                if served.waits.has_job(RequestId::SENDING) {
                    break Fate::Waits;
                }
                Step::Send
            } else {
                if cx.event.is_none() && !served.inbox.is_empty() {
                    cx.event = next_event::<H>(&mut served.inbox);
                }
                served.conn.advance(&mut cx, input)
            };
            match step {
                // The protocol has taken the event, or knows no request that it is about. The next
                // one of the inbox is looked at before anything is received.
                Step::Receive | Step::Wait if !served.inbox.is_empty() => cx.event = None,
                Step::Receive if !served.readable => {
                    cx.event = None;
                    let idle = input.is_empty() && served.conn.awaits().what == Await::Idle;
                    break if cx.draining && idle && !is_blocked {
                        Fate::Closes(Closing::Now)
                    } else {
                        Fate::Waits
                    };
                }
                Step::Receive if steps.leave(Phase::Receive) => {
                    cx.event = None;
                    break Fate::Next(Phase::Receive);
                }
                // a body may arrive as fast as it is received, without end
                Step::Receive if budget == 0 => {
                    cx.event = None;
                    break Fate::Yields;
                }
                // the connection's neighbours have waited for long enough
                Step::Look if budget == 0 => {}
                step @ (Step::Receive | Step::Look) => {
                    if let Step::Receive = step {
                        cx.event = None;
                    }
                    let spare = input.spare();
                    let (received, has_more) = served.stream.receive(spare, &mut self.wire);
                    cx.watch.lap(Activity::Read);
                    match received {
                        Received::Bytes(count) => {
                            input.received(count);
                            cx.metrics.add(Counter::ReceivedBytes, count as u64);
                            budget = budget.saturating_sub(count as u64);
                            served.readable = has_more || served.ended;
                            served.lags = false;
                        }
                        Received::Blocked => served.readable = false,
                        Received::Ended => served.conn.end_input(),
                        Received::Broken => break Fate::Closes(served.stream.end_broken()),
                    }
                }
                // the client must take something first; but other events are looked at before the
                // wait
                Step::Send | Step::Lend | Step::HandOver | Step::Close(_) if is_blocked => {
                    let has_gone_on = was_empty != cx.out.is_empty();
                    if !has_gone_on && (served.inbox.is_empty() || cx.event.is_some()) {
                        served.has_enough = true;
                        break Fate::Waits;
                    }
                }
                Step::Send if steps.leave(Phase::Send) => break Fate::Next(Phase::Send),
                Step::Send => {
                    let conn = &mut served.conn;
                    let window = (&mut served.window, &mut served.sent_bytes);
                    let wire = &mut self.wire;
                    let sent = send(&mut served.stream, conn, &mut cx, &mut budget, wire, window);
                    match sent {
                        // a connection with many answers could go on sending without end
                        None if budget == 0 && served.conn.goes_on() => break Fate::Yields,
                        None => {}
                        Some(Fate::Waits) if served.conn.goes_on() => is_blocked = true,
                        Some(fate) => break fate,
                    }
                }
                Step::Job(id, job) => break Fate::Job(id, job),
                Step::Enqueue(id) => break Fate::Enqueue(id),
                Step::NotBefore(id, wait_ms) => break Fate::NotBefore(id, wait_ms),
                Step::Forget(id) => {
                    if served.waits.forget(id) {
                        cx.metrics.add(Counter::GivenUp, 1);
                    }
                }
                Step::Wait => {
                    cx.event = None;
                    // nothing is received during the wait, so more may have arrived before a close
                    served.lags = true;
                    break Fate::Waits;
                }
                Step::Yield if matches!(steps, Steps::Of(_)) => break Fate::Next(Phase::Receive),
                Step::Yield => break Fate::Yields,
                Step::End => served.stream.end_output(),
                Step::Lend => break Fate::Lends,
                Step::HandOver => break Fate::HandOver,
                // More may have arrived while the answer was on its way, and a close would be an
                // RST that destroys it.
                Step::Close(Closing::Now)
                    if served.lags && !served.ended && !served.conn.is_drained() =>
                {
                    break Fate::Closes(Closing::Linger);
                }
                Step::Close(closing) => break Fate::Closes(closing),
            }
        };
        if let Fate::Job(..) | Fate::Enqueue(_) | Fate::NotBefore(..) = fate
            && served.conn.goes_on()
        {
            served.turn_left = Some(budget);
        }
        if let Some(event) = cx.event.take() {
            // `advance` has not taken the event; it was the oldest, and stays so
            served.inbox.push_front(event);
        }
        if matches!(fate, Fate::Yields) && served.goes_on() {
            // an engine may not have polled the socket in between
            served.readable = true;
        }
        let fate = match fate {
            Fate::Waits if served.is_aborted() => {
                served.conn.not_sent(cx.out.unsent_bytes());
                cx.out.clear();
                Fate::Closes(Closing::Reset)
            }
            fate => fate,
        };
        self.end_turn(served, &fate);
        fate
    }

    /// Keeps what is left of a turn that ends with this fate.
    #[inline(always)]
    fn end_turn(&mut self, served: &mut Served<H>, fate: &Fate<H::Job>) {
        if !self.out.is_empty() || served.stream.has_unsent() {
            if let Some(body) = &mut self.out.body {
                self.handler.hold(body);
            }
            served.pending = Some(Box::new(self.out.take_rest()));
            served.lags = true;
        }
        if let Fate::Closes(Closing::Now | Closing::Linger) = fate
            && !served.stream.is_plain()
            && served.pending.is_none()
        {
            served.stream.end();
            let _ = served.stream.flush();
        }
        if !matches!(fate, Fate::HandOver) {
            served.conn.suspend(&mut self.input);
        }
    }

    /// Notes what has happened to a request. Returns the part of it that the protocol learns now.
    #[cold]
    fn take_note(
        &mut self,
        served: &mut Served<H>,
        event: EventOf<H>,
    ) -> Result<Option<EventOf<H>>, Fate<H::Job>> {
        match event {
            // a job for what is being sent brings parts of its file into memory, and has no other
            // result
            RequestEvent::Done(RequestId::SENDING, _) => Ok(None),
            RequestEvent::Failed(RequestId::SENDING) => {
                self.input.clear();
                Err(Fate::Closes(Closing::Reset))
            }
            event if served.inbox.is_empty() => Ok(Some(event)),
            event => {
                served.keep_event(event);
                Ok(None)
            }
        }
    }

    /// Ends the wait for what was `awaited`, whose time is over, with an answer where one helps.
    /// Returns how to close the connection; `None` if it goes on, with a turn at once.
    pub(crate) fn expire(&mut self, served: &mut Served<H>, awaited: Awaited) -> Option<Closing> {
        let counter = match awaited.what {
            Await::Head => Counter::TimeoutHead,
            Await::Body => Counter::TimeoutBody,
            Await::Idle => Counter::TimeoutIdle,
            Await::Send => Counter::TimeoutSend,
            Await::Job | Await::Admission => Counter::TimeoutJob,
            Await::Place => Counter::TimeoutPlace,
            Await::Slot => Counter::TimeoutSlot,
            Await::Connect => Counter::TimeoutConnect,
            Await::Answer => Counter::TimeoutAnswer,
            Await::Flow | Await::Ending | Await::Link | Await::Rest => Counter::TimeoutFlow,
        };
        // most looks at a link find nothing wrong, and are not counted
        if !matches!(awaited.what, Await::Link | Await::Rest) {
            self.count(counter);
        }
        // a job that has not begun is taken back, as no request has a use for it
        if let Some(RequestWait::Job(shared_job)) = served.waits.remove(awaited.id) {
            shared_job.take();
        }
        if awaited.id == RequestId::SENDING && !self.hears_why(served, awaited.what) {
            return Some(Closing::Reset);
        }
        if served.opening.is_some() {
            return Some(Closing::Now);
        }
        if let Some(pending) = served.pending.take() {
            self.out.put_back(*pending);
        }
        served.conn.resume(&mut self.input);
        let mut cx = Context {
            handler: &mut self.handler,
            out: &mut self.out,
            peer: &served.peer,
            path: &self.path,
            head_buffer: &mut self.head_buffer,
            limits: &self.settings.limits,
            date: &self.date,
            now_ms: self.now.monotonic_ms,
            draining: true,
            announce: Announce::default(),
            budget: 1,
            answers: Some(Rank::LAST),
            event: None,
            metrics: &self.metrics,
            watch: &mut TurnStopwatch::new(&self.metrics, false),
        };
        let closing = served.conn.expire(&mut cx, &mut self.input, awaited);
        if closing.is_some() {
            self.input.clear();
            let unsent = self.send_last_words(&mut served.stream);
            served.conn.not_sent(unsent);
        } else {
            served.conn.suspend(&mut self.input);
            if !self.out.is_empty() {
                served.pending = Some(Box::new(self.out.take_rest()));
            }
        }
        closing
    }

    /// Whether a client that did not take its answers in time can be sent the reason: it has taken
    /// all that was sent, and keeps the protocol from sending more. In a drain it has learned
    /// already that the connection ends.
    fn hears_why(&self, served: &Served<H>, what: Await) -> bool {
        let may_send = served.pending.is_none() && served.conn.goes_on() && !self.draining;
        what == Await::Send && may_send && served.unacknowledged() == 0
    }

    /// Treats a request for which no job could be had as if its time were over.
    pub(crate) fn expire_job(&mut self, served: &mut Served<H>, id: RequestId) -> Option<Closing> {
        self.expire(served, Awaited { what: Await::Job, id })
    }
}

/// Sends what is in [`Out`](forebay_conn::Out), as far as the client takes it. Returns `None` when
/// all is sent, or when the protocol has something else to do first.
#[inline(always)]
fn send<H: Handler, S: Stopwatch>(
    stream: &mut SocketStream<H>,
    conn: &mut H::Protocol,
    cx: &mut Context<'_, H, S>,
    budget: &mut u64,
    wire: &mut Wire,
    (window, sent_bytes): (&mut TakenWindow, &mut u64),
) -> Option<Fate<H::Job>> {
    let (progress, tally) =
        send::send(stream, cx.out, cx.handler, *budget, wire, cx.metrics, cx.watch);
    *budget = budget.saturating_sub(tally.cost_bytes);
    window.sent(tally.bytes);
    *sent_bytes += tally.bytes;
    conn.body_sent(tally.body_bytes);
    match progress {
        SendProgress::Done => conn.sent(cx.handler),
        SendProgress::Blocked => {
            cx.metrics.add(Counter::SendWaits, 1);
            window.blocked(stream.as_fd(), cx.now_ms);
            return Some(Fate::Waits);
        }
        SendProgress::Budget => return Some(Fate::Yields),
        SendProgress::Broken => return Some(Fate::Closes(Closing::Reset)),
        SendProgress::Outdated if conn.withdraw(cx) => {}
        SendProgress::Outdated | SendProgress::Changed => {
            cx.metrics.add(Counter::Changed, 1);
            // the answer cannot be finished, so what is left of it is dropped; the client did not
            // leave
            cx.out.clear();
            return Some(Fate::Closes(Closing::Reset));
        }
        SendProgress::Cold => {
            return Some(match cx.out.body.as_ref().and_then(|body| cx.handler.warm(body)) {
                Some(job) => Fate::Job(RequestId::SENDING, job),
                None => Fate::Closes(Closing::Reset),
            });
        }
    }
    None
}

mod opening;
#[cfg(test)]
mod tests;
