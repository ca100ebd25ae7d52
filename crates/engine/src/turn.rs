//! The steps of a connection's turn, the same for every engine.
//!
//! In: a connection that can go on, and perhaps what has happened to one of its requests. Out: a
//! [`Fate`], which the engine carries out in its own way: wait for readiness, block, park, queue.

use crate::accept;
use crate::send::{self, Progress};
use crate::served::{DoneOf, EventOf, Handshake, Served, next_event};
use crate::stream::{Stream, Wire};
use crate::waits::Waiting;
use crate::watch::Watch;
use crate::worker::Worker;
use forebay_conn::transport::{Failure, Unproven};
use forebay_conn::{
    Await, Awaited, Closing, Context, Event, Handler, Opening, Protocol, Rank, RequestId, Step,
};
use forebay_control::allocation::Phase;
use forebay_metrics::{Activity, Counter, Stopwatch};
use forebay_sys::socket::{self, Received, Sent};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What becomes of a connection after its turn.
///
/// After [`Job`](Fate::Job), [`Enqueue`](Fate::Enqueue) and [`NotBefore`](Fate::NotBefore) a connection
/// with other requests [goes on](Protocol::goes_on): it gets another turn at once.
#[derive(Debug)]
pub(crate) enum Fate<J> {
    /// It waits for what [`Served::awaits`] says.
    Waits,
    /// It can go on, after its neighbours.
    Yields,
    /// Its handshake can begin, when there have been fewer in a turn of the loop.
    Shakes,
    /// It goes to another phase; never after [`Worker::turn`].
    Next(Phase),
    /// This request waits for this job.
    Job(RequestId, J),
    /// This request is there, and waits for its turn; never after [`Worker::turn`].
    Enqueue(RequestId),
    /// This request may not be answered before so many milliseconds have passed.
    NotBefore(RequestId, u32),
    /// It goes to [`hand_over`](forebay_conn::Hooks::hand_over).
    HandOver,
    /// It is closed.
    Closes(Closing),
}

/// Which steps a turn takes.
#[derive(Clone, Copy)]
enum Steps {
    /// All that can be taken.
    All,
    /// All but answering.
    Arrive,
    /// All, and of answers those to this rank and higher ones.
    Answer(Rank),
    /// Those of one phase, for one request.
    Of(Phase),
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
            Ok(fate) => fate,
            Err(_) => self.panicked(served),
        }
    }

    /// As [`turn`](Worker::turn), but a request that is admitted is not answered: the turn ends with
    /// [`Fate::Enqueue`].
    pub(crate) fn arrive(
        &mut self,
        served: &mut Served<H>,
        event: Option<EventOf<H>>,
    ) -> Fate<H::Job> {
        self.some_steps(served, event, Steps::Arrive)
    }

    /// As [`turn`](Worker::turn), for this request, which has [arrived](Worker::arrive) or whose job is
    /// done. What follows it is answered too, unless it is of a lower rank.
    pub(crate) fn answer(
        &mut self,
        served: &mut Served<H>,
        id: RequestId,
        event: Option<EventOf<H>>,
    ) -> Fate<H::Job> {
        let (rank, _) = served.conn.standing(id);
        self.some_steps(served, event, Steps::Answer(rank))
    }

    /// As [`turn`](Worker::turn), of one request and with the steps of one phase only: receive and
    /// parse, answer, or send. Where the next step is another phase's, the turn ends.
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
            Ok(fate) => fate,
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

    /// These steps. Inlined, so that a whole turn does not ask which.
    #[inline(always)]
    fn take_turn(
        &mut self,
        served: &mut Served<H>,
        mut event: Option<EventOf<H>>,
        steps: Steps,
    ) -> Fate<H::Job> {
        let only = match steps {
            Steps::Of(phase) => Some(phase),
            _ => None,
        };
        let is_elsewhere = |phase| only.is_some_and(|only| only != phase);
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
        let mut watch = Watch::new(&self.metrics, sampled);
        let input = &mut self.input;
        let mut cx = Context {
            handler: &mut self.handler,
            out: &mut self.out,
            peer: &served.peer,
            path: &self.path,
            room: &mut self.room,
            limits: &self.settings.limits,
            date: &self.date,
            now_ms: self.now.monotonic_ms,
            draining: self.draining,
            announce_s: if self.settings.announce { (self.idle_ms / 1000) as u32 } else { 0 },
            budget: match only {
                None => self.settings.turn_requests,
                // what follows in a pipeline is received again
                Some(Phase::Send) => 0,
                Some(_) => 1,
            },
            answers: match steps {
                Steps::All | Steps::Of(Phase::Process) => Some(Rank::LAST),
                Steps::Answer(rank) => Some(rank),
                Steps::Arrive | Steps::Of(_) => None,
            },
            event,
            metrics: &self.metrics,
            watch: &mut watch,
        };
        if let Some(pending) = served.pending.take() {
            cx.out.put_back(*pending);
        }
        let mut budget = served.turn_left.take().unwrap_or(self.settings.turn_bytes);
        // the other phases go on with what can be done besides, and leave sending to that of send
        let has_rest = !cx.out.is_empty() || served.stream.has_unsent();
        served.has_enough = false;
        let mut is_blocked = is_elsewhere(Phase::Send) && served.goes_on() && has_rest;
        let fate = loop {
            let was_empty = cx.out.is_empty();
            let step = if !is_blocked && (!cx.out.is_empty() || served.stream.has_unsent()) {
                // what is being sent waits for a disk
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
                // What has happened is taken, or about none of the requests that are there. What else has
                // is looked at first.
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
                Step::Receive if is_elsewhere(Phase::Receive) => {
                    cx.event = None;
                    break Fate::Next(Phase::Receive);
                }
                // a body may come as fast as it is received, without end
                Step::Receive if budget == 0 => {
                    cx.event = None;
                    break Fate::Yields;
                }
                Step::Receive => {
                    cx.event = None;
                    let room = input.room();
                    let (received, has_more) = served.stream.receive(room, &mut self.wire);
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
                // the client must take something first; what else has happened is looked at before
                Step::Send | Step::HandOver | Step::Close(_) if is_blocked => {
                    let has_gone_on = was_empty != cx.out.is_empty();
                    if !has_gone_on && (served.inbox.is_empty() || cx.event.is_some()) {
                        served.has_enough = true;
                        break Fate::Waits;
                    }
                }
                Step::Send if is_elsewhere(Phase::Send) => break Fate::Next(Phase::Send),
                Step::Send => {
                    let (conn, window_bytes) = (&mut served.conn, &mut served.window_bytes);
                    let wire = &mut self.wire;
                    let sent =
                        send(&mut served.stream, conn, &mut cx, &mut budget, wire, window_bytes);
                    match sent {
                        // whoever has many answers may have more of them without end
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
                    break Fate::Waits;
                }
                Step::Yield if only.is_some() => break Fate::Next(Phase::Receive),
                Step::Yield => break Fate::Yields,
                Step::End => served.stream.end_output(),
                Step::HandOver => break Fate::HandOver,
                // More may have arrived while the answer was on its way.
                Step::Close(Closing::Now) if served.lags && !served.ended => {
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
            // it was the first of them
            served.inbox.push_front(event);
        }
        if !cx.out.is_empty() || served.stream.has_unsent() {
            if let Some(body) = &mut cx.out.body {
                cx.handler.hold(body);
            }
            served.pending = Some(Box::new(cx.out.take_rest()));
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
            served.conn.suspend(input);
        }
        fate
    }

    /// Something has happened to a request. Says what the protocol is told of it now.
    #[cold]
    fn take_note(
        &mut self,
        served: &mut Served<H>,
        event: EventOf<H>,
    ) -> Result<Option<EventOf<H>>, Fate<H::Job>> {
        match event {
            // a job for what is being sent has warmed its file, and that is all its result
            Event::Done(RequestId::SENDING, _) => Ok(None),
            Event::Failed(RequestId::SENDING) => {
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

    /// Before the protocol: a proxy states its client, then the transport is opened. `None` when the
    /// protocol may begin, with what was received of it in the input.
    #[cold]
    fn open(
        &mut self,
        served: &mut Served<H>,
        event: Option<EventOf<H>>,
        sampled: bool,
    ) -> Option<Fate<H::Job>> {
        let mut done: Option<DoneOf<H>> = match event {
            Some(Event::Done(RequestId::OPENING, done)) => Some(done),
            Some(Event::Failed(RequestId::OPENING)) => return Some(Fate::Closes(Closing::Reset)),
            _ => None,
        };
        loop {
            if served.stream.has_unsent() {
                match served.stream.flush().0 {
                    Sent::Bytes(_) => {}
                    Sent::Blocked => return Some(Fate::Waits),
                    Sent::Broken => return Some(Fate::Closes(Closing::Reset)),
                }
            }
            let preface = &mut served.opening.as_mut()?.preface;
            let is_raw = preface.is_some();
            if let Some(header) = preface {
                match header.receive(&mut self.input) {
                    Ok(Some(stated)) => {
                        *preface = None;
                        if let Some(closing) = self.state(served, stated) {
                            self.input.clear();
                            return Some(Fate::Closes(closing));
                        }
                        continue;
                    }
                    Ok(None) => {}
                    Err(_) => {
                        self.count(Counter::RefusedProxyHeader);
                        self.input.clear();
                        return Some(Fate::Closes(Closing::Reset));
                    }
                }
            } else {
                let opening = if served.stream.is_plain() {
                    Opening::Open
                } else {
                    if !self.input.is_empty() {
                        let goes_on = served.stream.take_raw(self.input.bytes());
                        self.input.clear();
                        served.handshake_comes();
                        if !goes_on {
                            return Some(self.fail(served));
                        }
                    }
                    if !self.may_shake(served) {
                        return Some(Fate::Shakes);
                    }
                    let mut watch = Watch::new(&self.metrics, sampled);
                    let opening = served.stream.open(done.take());
                    watch.lap(Activity::Handshake);
                    opening
                };
                match opening {
                    Opening::Open => {
                        served.opening = None;
                        served.begin_protocol(&mut self.handler, &self.settings.limits);
                        if let Some(secured) = &served.peer.secured {
                            self.count(match secured.resumed {
                                false => Counter::HandshakesFull,
                                true => Counter::HandshakesResumed,
                            });
                        }
                        return None;
                    }
                    Opening::Receive => {}
                    Opening::Job(job) => {
                        // what the client does not take now it takes after the job
                        let _ = served.stream.flush();
                        return Some(Fate::Job(RequestId::OPENING, job));
                    }
                    Opening::Failed => return Some(self.fail(served)),
                }
                if served.stream.has_unsent() {
                    continue;
                }
            }
            if !served.readable {
                return Some(Fate::Waits);
            }
            let received = if is_raw {
                let received = socket::receive(served.stream.as_fd(), self.input.room());
                if let Received::Bytes(count) = received {
                    self.input.received(count);
                }
                received
            } else {
                served.stream.receive_opening(&mut self.wire)
            };
            match received {
                Received::Bytes(count) => {
                    self.metrics.add(Counter::ReceivedBytes, count as u64);
                    if !is_raw {
                        served.handshake_comes();
                    }
                }
                Received::Blocked => served.readable = false,
                Received::Ended => return Some(Fate::Closes(Closing::Now)),
                Received::Broken => return Some(self.fail(served)),
            }
        }
    }

    /// Whether the handshake may go on now. One that begins takes its part of what a turn of the loop has
    /// for handshakes.
    fn may_shake(&mut self, served: &mut Served<H>) -> bool {
        let rank = served.conn.rank();
        let Some(opening) = &mut served.opening else { return true };
        if opening.handshake != Handshake::Waits {
            return true;
        }
        let left = &mut self.handshakes[usize::from(rank != Rank::FIRST)];
        if *left == 0 {
            return false;
        }
        *left -= 1;
        opening.handshake = Handshake::Begun;
        self.count(Counter::HandshakesBegun);
        true
    }

    /// The transport cannot be opened. Says how to close.
    fn fail(&mut self, served: &mut Served<H>) -> Fate<H::Job> {
        // without a reason it was cut, which is counted when it is closed
        if let (Some(opening), Some(failure)) = (&mut served.opening, served.stream.failure()) {
            if opening.handshake != Handshake::Begun {
                self.count(Counter::HandshakesBegun);
            }
            opening.handshake = Handshake::Failed;
            self.count(match failure {
                Failure::Protocol => Counter::HandshakesNotTls,
                Failure::Name => Counter::HandshakesUnknownName,
                Failure::Client => Counter::HandshakesRefused,
                Failure::Unproven(Unproven::Missing) => Counter::HandshakesClientMissing,
                Failure::Unproven(Unproven::Untrusted) => Counter::HandshakesClientUntrusted,
                Failure::Unproven(Unproven::Expired) => Counter::HandshakesClientExpired,
                Failure::Unproven(Unproven::Revoked) => Counter::HandshakesClientRevoked,
                Failure::Unproven(Unproven::Unlisted) => Counter::HandshakesClientUnlisted,
                Failure::Unproven(Unproven::Wrong) => Counter::HandshakesClientWrong,
                Failure::Rules => Counter::HandshakesFailed,
            });
        }
        Fate::Closes(served.stream.end_broken())
    }

    /// A proxy has stated its client, or none. Says how the connection is closed if that client is
    /// not let in.
    fn state(&mut self, served: &mut Served<H>, address: Option<SocketAddr>) -> Option<Closing> {
        served.peer.stated = address;
        let closing = accept::meet(served, self);
        // a proxy that states nobody speaks for itself
        served.peer.stated.get_or_insert(served.peer.remote);
        closing
    }

    /// The time for what was `awaited` is over: an answer where one helps. Says how to close the
    /// connection; `None` if it goes on, with a turn at once.
    pub(crate) fn expire(&mut self, served: &mut Served<H>, awaited: Awaited) -> Option<Closing> {
        self.count(match awaited.what {
            Await::Head => Counter::TimeoutHead,
            Await::Body => Counter::TimeoutBody,
            Await::Idle => Counter::TimeoutIdle,
            Await::Send => Counter::TimeoutSend,
            Await::Job | Await::Admission => Counter::TimeoutJob,
            Await::Connect => Counter::TimeoutConnect,
            Await::Answer => Counter::TimeoutAnswer,
            Await::Flow => Counter::TimeoutFlow,
        });
        if let Some(Waiting::Job(claim)) = served.waits.remove(awaited.id) {
            claim.take();
        }
        if awaited.id == RequestId::SENDING {
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
            room: &mut self.room,
            limits: &self.settings.limits,
            date: &self.date,
            now_ms: self.now.monotonic_ms,
            draining: true,
            announce_s: 0,
            budget: 1,
            answers: Some(Rank::LAST),
            event: None,
            metrics: &self.metrics,
            watch: &mut Watch::new(&self.metrics, false),
        };
        let closing = served.conn.expire(&mut cx, &mut self.input, awaited);
        if closing.is_some() {
            self.input.clear();
            self.send_last_words(&mut served.stream);
        } else {
            served.conn.suspend(&mut self.input);
            if !self.out.is_empty() {
                served.pending = Some(Box::new(self.out.take_rest()));
            }
        }
        closing
    }

    /// No job could be had for this request: as if the time for it were over.
    pub(crate) fn expire_job(&mut self, served: &mut Served<H>, id: RequestId) -> Option<Closing> {
        self.expire(served, Awaited { what: Await::Job, id })
    }
}

/// Sends what is in [`Out`](forebay_conn::Out), as far as the client takes it. `None` when all is sent, or
/// the protocol has something else to do first.
#[inline(always)]
fn send<H: Handler, S: Stopwatch>(
    stream: &mut Stream<H>,
    conn: &mut H::Protocol,
    cx: &mut Context<'_, H, S>,
    budget: &mut u64,
    wire: &mut Wire,
    window_bytes: &mut u64,
) -> Option<Fate<H::Job>> {
    let (progress, tally) =
        send::send(stream, cx.out, cx.handler, *budget, wire, cx.metrics, cx.watch);
    *budget = budget.saturating_sub(tally.cost_bytes);
    *window_bytes += tally.bytes;
    conn.body_sent(tally.body_bytes);
    match progress {
        Progress::Done => conn.sent(cx.handler),
        Progress::Blocked => return Some(Fate::Waits),
        Progress::Budget => return Some(Fate::Yields),
        Progress::Broken => return Some(Fate::Closes(Closing::Reset)),
        Progress::Outdated if conn.withdraw(cx) => {}
        Progress::Outdated | Progress::Changed => {
            cx.metrics.add(Counter::Changed, 1);
            // nothing is left to send, and it was not the client that left
            cx.out.clear();
            return Some(Fate::Closes(Closing::Reset));
        }
        Progress::Cold => {
            return Some(match cx.out.body.as_ref().and_then(|body| cx.handler.warm(body)) {
                Some(job) => Fate::Job(RequestId::SENDING, job),
                None => Fate::Closes(Closing::Reset),
            });
        }
    }
    None
}

#[cfg(test)]
mod tests;
