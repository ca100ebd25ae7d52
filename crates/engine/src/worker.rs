//! Everything one thread needs to serve connections, one turn at a time; the same for every engine.
//!
//! In: a connection that can go on, and perhaps the result of its job. Out: a [`Fate`], which the
//! engine carries out in its own way: wait for readiness, block, park, queue.

use crate::accept;
use crate::admission::Place;
use crate::helpers::Claim;
use crate::ranks::{Ranks, Standing};
use crate::send::{self, Progress};
use crate::settings::{LINGER_BYTES, Live, Settings};
use crate::watch::Watch;
use forebay_conn::{
    Await, Closing, Conn, Context, Handler, Input, Job, Now, Out, Peer, Rank, Refusal, Reply, Step,
};
use forebay_control::allocation::Phase;
use forebay_control::ranked;
use forebay_http::date::{self, IMF_LEN};
use forebay_metrics::{Activity, Counter, Local, Stopwatch};
use forebay_sys::clock;
use forebay_sys::socket::{self, Received, Sent};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// A connection and what must be known of its socket to go on.
pub struct Served<H: Handler> {
    /// The socket, non-blocking.
    pub socket: OwnedFd,
    /// Both ends.
    pub peer: Peer,
    /// The state machine.
    pub conn: Conn<H>,
    /// What the client has not taken yet.
    pub pending: Option<Box<Out<H::Body>>>,
    /// The socket may have something to receive.
    pub readable: bool,
    /// The client has shut down writing, so a short receive is not the last.
    pub ended: bool,
    /// Its place in the count, given back at its end; `None` if it was refused.
    pub place: Option<Place>,
    /// The job it waits for: see [`wait_for`](Served::wait_for).
    pub(crate) job: Option<Claim<H::Job>>,
    /// The answer under way was not taken at once.
    lags: bool,
    /// Bytes given to the kernel since the send window began …
    window_bytes: u64,
    /// … and bytes the client had not acknowledged then.
    window_queued: u64,
}

/// What becomes of a connection after its turn.
#[derive(Debug)]
pub enum Fate<J> {
    /// It waits for what [`Served::awaits`] says.
    Waits,
    /// It can go on, after its neighbours.
    Yields,
    /// It goes to another phase; never after [`Worker::turn`].
    Next(Phase),
    /// It waits for this job.
    Job(J),
    /// It goes to [`Handler::hand_over`].
    HandOver,
    /// It is closed.
    Closes(Closing),
}

impl<H: Handler> Served<H> {
    /// A connection that was just accepted. Its request is likely to be there already.
    pub fn new(socket: OwnedFd, peer: Peer) -> Served<H> {
        Served {
            socket,
            peer,
            conn: Conn::default(),
            pending: None,
            readable: true,
            ended: false,
            place: None,
            job: None,
            lags: false,
            window_bytes: 0,
            window_queued: 0,
        }
    }

    /// Begins to measure how much the client takes.
    pub fn begin_window(&mut self) {
        self.window_bytes = 0;
        self.window_queued = self.unacknowledged();
    }

    /// Bytes the client has taken since the window began. What only went into the kernel's send
    /// buffer, which may be megabytes, does not count, and what the client took from there does.
    pub fn taken_in_window(&self) -> u64 {
        (self.window_queued + self.window_bytes).saturating_sub(self.unacknowledged())
    }

    fn unacknowledged(&self) -> u64 {
        socket::unacknowledged(self.socket.as_fd()).unwrap_or(0)
    }

    /// What it waits for.
    pub fn awaits(&self) -> Await {
        if self.pending.is_some() { Await::Send } else { self.conn.awaits() }
    }

    /// Whose its work is.
    #[inline]
    pub fn standing(&self, ranks: &Ranks) -> Standing {
        let client = self.conn.client().unwrap_or_else(|| self.peer.address().ip());
        let client = ranked::client_key(client);
        Standing { rank: ranks.clamp(self.conn.rank()), client }
    }

    /// Whether nothing of a request is there: all it needs is to be waited for.
    pub fn is_at_rest(&self) -> bool {
        self.pending.is_none() && self.conn.is_at_rest()
    }
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

/// One thread's handler, buffers, clock and counters.
pub struct Worker<H: Handler> {
    /// Knows the answers.
    pub handler: H,
    /// Timeouts and bounds.
    pub settings: Settings,
    live: Arc<Live>,
    generation: u64,
    /// The thread's counters.
    pub metrics: Arc<Local>,
    /// Every answer is its connection's last.
    pub draining: bool,
    /// How long a connection that becomes idle now is kept.
    idle_ms: u64,
    now: Now,
    date: [u8; IMF_LEN],
    turns: u32,
    input: Input,
    out: Out<H::Body>,
}

/// How far the clock of deadlines may be behind.
const BEHIND_MS: u64 = 4;

/// The time as engines see it.
pub fn read_clocks() -> Now {
    Now { monotonic_ms: clock::coarse_ms(), unix_ms: clock::unix_coarse_ms() }
}

/// Bytes of a receive buffer: two of the largest heads, and at least 64 KiB.
fn input_bytes(settings: &Settings) -> usize {
    (2 * settings.limits.head.head_bytes).max(64 * 1024)
}

impl<H: Handler> Worker<H> {
    /// A worker with buffers of its own.
    pub fn new(handler: H, live: Arc<Live>, metrics: Arc<Local>) -> Worker<H> {
        let now = read_clocks();
        // before the settings: newer ones are then seen at the next look
        let generation = live.generation();
        let settings = live.get();
        Worker {
            handler,
            metrics,
            draining: false,
            idle_ms: settings.timeouts.idle_ms,
            now,
            date: date::format(now.unix_ms / 1000),
            turns: 0,
            input: Input::with_capacity(input_bytes(&settings)),
            out: Out::default(),
            settings,
            live,
            generation,
        }
    }

    /// The time [`read_clocks`](Worker::read_clocks) read last, in milliseconds.
    #[inline]
    pub fn now_ms(&self) -> u64 {
        self.now.monotonic_ms
    }

    /// Reads the clocks, for everything until the next call, and takes over new settings.
    #[inline]
    pub fn read_clocks(&mut self) {
        if self.live.generation() != self.generation {
            self.take_settings();
        }
        let now = read_clocks();
        if now.unix_ms / 1000 != self.now.unix_ms / 1000 {
            self.date = date::format(now.unix_ms / 1000);
        }
        self.now = now;
    }

    #[cold]
    fn take_settings(&mut self) {
        self.generation = self.live.generation();
        self.settings = self.live.get();
        // the largest head must fit, and nothing is kept in the buffer between turns
        let wanted = input_bytes(&self.settings);
        if wanted > self.input.capacity() {
            self.input = Input::with_capacity(wanted);
        }
    }

    /// Takes note of the load, between 0 and 1: the share of what there is for connections that is
    /// in use. It decides how long those that become idle from now on are kept.
    #[inline]
    pub fn observe(&mut self, load: impl FnOnce() -> f64) {
        self.idle_ms = match &self.settings.keep_alive {
            None => self.settings.timeouts.idle_ms,
            Some(law) => u64::from(law.timeout_ms(load())),
        };
    }

    /// How long the connection may wait for this, in milliseconds.
    #[inline]
    pub fn time_ms(&self, served: &Served<H>, awaited: Await) -> u64 {
        match awaited {
            Await::Idle => self.idle_ms.max(u64::from(served.conn.announced_s()) * 1000),
            // not before: the clock may be behind
            Await::Admission => u64::from(served.conn.wait_ms()) + BEHIND_MS,
            awaited => self.settings.timeouts.of(awaited),
        }
    }

    /// Lets the handler do what it does once per turn, before anything else in it: it gets to know
    /// the time, and what has changed while the thread slept.
    #[inline]
    pub fn begin_turn(&mut self) {
        self.handler.turn(self.now);
    }

    /// The thread is about to wait for news: first it rests, if the handler wants that.
    #[inline]
    pub fn gather(&mut self) {
        if let Some(pause) = self.handler.pause() {
            std::thread::sleep(pause);
        }
    }

    /// Adds one.
    pub fn count(&self, counter: Counter) {
        self.metrics.add(counter, 1);
    }

    /// Whether what comes next is timed by activity.
    #[inline]
    pub fn is_sampled(&mut self) -> bool {
        self.turns = self.turns.wrapping_add(1);
        self.settings.sample != 0 && self.turns.is_multiple_of(self.settings.sample)
    }

    /// Receives, answers and sends until something must be waited for. `done` is the result of the
    /// connection's job, if that is what it waited for. A panic on the way closes the connection
    /// and is counted.
    #[inline]
    pub fn turn(
        &mut self,
        served: &mut Served<H>,
        done: Option<<H::Job as Job>::Done>,
    ) -> Fate<H::Job> {
        match catch_unwind(AssertUnwindSafe(|| self.take_turn(served, done, Steps::All))) {
            Ok(fate) => fate,
            Err(_) => self.panicked(served),
        }
    }

    /// As [`turn`](Worker::turn), but a request that is admitted is not answered: the turn ends with
    /// [`Fate::Next`].
    pub fn arrive(&mut self, served: &mut Served<H>) -> Fate<H::Job> {
        self.some_steps(served, None, Steps::Arrive)
    }

    /// As [`turn`](Worker::turn), for a request that has [arrived](Worker::arrive) or whose job is
    /// done. What follows it is answered too, unless it is of a lower rank.
    pub fn answer(
        &mut self,
        served: &mut Served<H>,
        done: Option<<H::Job as Job>::Done>,
    ) -> Fate<H::Job> {
        let rank = served.conn.rank();
        self.some_steps(served, done, Steps::Answer(rank))
    }

    /// As [`turn`](Worker::turn), of one request and with the steps of one phase only: receive and
    /// parse, answer, or send. Where the next step is another phase's, the turn ends.
    pub fn phase(
        &mut self,
        phase: Phase,
        served: &mut Served<H>,
        done: Option<<H::Job as Job>::Done>,
    ) -> Fate<H::Job> {
        self.some_steps(served, done, Steps::Of(phase))
    }

    fn some_steps(
        &mut self,
        served: &mut Served<H>,
        done: Option<<H::Job as Job>::Done>,
        steps: Steps,
    ) -> Fate<H::Job> {
        match catch_unwind(AssertUnwindSafe(|| self.take_turn(served, done, steps))) {
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
        done: Option<<H::Job as Job>::Done>,
        steps: Steps,
    ) -> Fate<H::Job> {
        let only = match steps {
            Steps::Of(phase) => Some(phase),
            _ => None,
        };
        let is_elsewhere = |phase| only.is_some_and(|only| only != phase);
        let sampled = self.is_sampled();
        let mut watch = Watch::new(&self.metrics, sampled);
        let input = &mut self.input;
        let mut cx = Context {
            handler: &mut self.handler,
            out: &mut self.out,
            peer: &served.peer,
            limits: &self.settings.limits,
            date: &self.date,
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
            done,
            metrics: &self.metrics,
            watch: &mut watch,
        };
        served.conn.resume(input);
        if let Some(pending) = served.pending.take() {
            // a job while an answer was under way has warmed its file, and that is all its result
            cx.done = None;
            cx.out.put_back(*pending);
        }
        let mut budget = self.settings.turn_bytes;
        let mut stated = None;
        let fate = loop {
            let step =
                if !cx.out.is_empty() { Step::Send } else { served.conn.advance(&mut cx, input) };
            match step {
                Step::Receive if !served.readable => {
                    let idle = input.is_empty() && served.conn.awaits() == Await::Idle;
                    break if cx.draining && idle {
                        Fate::Closes(Closing::Now)
                    } else {
                        Fate::Waits
                    };
                }
                Step::Receive if is_elsewhere(Phase::Receive) => break Fate::Next(Phase::Receive),
                Step::Receive => {
                    let room = input.room();
                    let most = room.len();
                    let received = socket::receive(served.socket.as_fd(), room);
                    cx.watch.lap(Activity::Read);
                    match received {
                        Received::Bytes(count) => {
                            input.received(count);
                            cx.metrics.add(Counter::ReceivedBytes, count as u64);
                            served.readable = count == most || served.ended;
                            served.lags = false;
                        }
                        Received::Blocked => served.readable = false,
                        Received::Ended => served.conn.end_input(),
                        Received::Broken => break Fate::Closes(Closing::Reset),
                    }
                }
                Step::Send if is_elsewhere(Phase::Send) => break Fate::Next(Phase::Send),
                Step::Send => {
                    let (progress, tally) = send::send(
                        served.socket.as_fd(),
                        cx.out,
                        cx.handler,
                        budget,
                        cx.metrics,
                        cx.watch,
                    );
                    budget = budget.saturating_sub(tally.cost_bytes);
                    served.window_bytes += tally.bytes;
                    served.conn.body_sent(tally.body_bytes);
                    match progress {
                        Progress::Done => served.conn.sent(cx.handler),
                        Progress::Blocked => break Fate::Waits,
                        Progress::Budget => break Fate::Yields,
                        Progress::Broken => break Fate::Closes(Closing::Reset),
                        Progress::Outdated if served.conn.withdraw(&mut cx) => {}
                        Progress::Outdated | Progress::Changed => {
                            cx.metrics.add(Counter::Changed, 1);
                            // nothing is left to send, and it was not the client who left
                            cx.out.clear();
                            break Fate::Closes(Closing::Reset);
                        }
                        Progress::Cold => match &cx.out.body {
                            Some(body) => break Fate::Job(cx.handler.warm(body)),
                            None => break Fate::Closes(Closing::Reset),
                        },
                    }
                }
                Step::Process(job) => break Fate::Job(job),
                Step::Answer => break Fate::Next(Phase::Process),
                Step::Stated(address) => {
                    stated = Some(address);
                    break only.map_or(Fate::Yields, |_| Fate::Next(Phase::Receive));
                }
                Step::Wait => break Fate::Waits,
                Step::Yield if only.is_some() => break Fate::Next(Phase::Receive),
                Step::Yield => break Fate::Yields,
                Step::HandOver => break Fate::HandOver,
                // More may have arrived while the answer was on its way.
                Step::Close(Closing::Now) if served.lags && !served.ended => {
                    break Fate::Closes(Closing::Linger);
                }
                Step::Close(closing) => break Fate::Closes(closing),
            }
        };
        if !cx.out.is_empty() {
            if let Some(body) = &mut cx.out.body {
                cx.handler.hold(body);
            }
            served.pending = Some(Box::new(cx.out.take_rest()));
            served.lags = true;
        }
        if !matches!(fate, Fate::HandOver) {
            served.conn.suspend(input);
        }
        match stated {
            None => fate,
            Some(address) => self.meet(served, address).map_or(fate, Fate::Closes),
        }
    }

    /// A proxy has stated its client, or none. Says how the connection is closed if that client is
    /// not let in.
    #[cold]
    fn meet(&mut self, served: &mut Served<H>, address: Option<SocketAddr>) -> Option<Closing> {
        served.peer.stated = address;
        let closing = accept::meet(served, self);
        // a proxy that states nobody speaks for itself
        served.peer.stated.get_or_insert(served.peer.remote);
        closing
    }

    /// The time for what was `awaited` is over: a last word where one helps. Returns how to close.
    pub fn expire(&mut self, served: &mut Served<H>, awaited: Await) -> Closing {
        self.count(match awaited {
            Await::Head => Counter::TimeoutHead,
            Await::Body => Counter::TimeoutBody,
            Await::Idle => Counter::TimeoutIdle,
            Await::Send => Counter::TimeoutSend,
            Await::Job | Await::Admission => Counter::TimeoutJob,
        });
        served.take_back();
        if served.pending.is_some() {
            return Closing::Reset;
        }
        served.conn.resume(&mut self.input);
        let mut cx = Context {
            handler: &mut self.handler,
            out: &mut self.out,
            peer: &served.peer,
            limits: &self.settings.limits,
            date: &self.date,
            draining: true,
            announce_s: 0,
            budget: 1,
            answers: Some(Rank::LAST),
            done: None,
            metrics: &self.metrics,
            watch: &mut Watch::new(&self.metrics, false),
        };
        let closing = match served.conn.expire(&mut cx, &mut self.input) {
            Step::Close(closing) => closing,
            _ => Closing::Linger,
        };
        self.input.clear();
        self.send_last_words(served.socket.as_fd());
        closing
    }

    /// Says no to a connection before any request of it was read.
    pub fn refuse(&mut self, socket: BorrowedFd<'_>, status: u16, reason: &'static str) {
        self.say_no(socket, status, |handler, reply| handler.refuse(status, reason, reply));
    }

    /// Says no to a connection that policy does not admit.
    pub fn turn_away(&mut self, socket: BorrowedFd<'_>, refusal: Refusal) {
        self.say_no(socket, refusal.status, |handler, reply| handler.turn_away(refusal, reply));
    }

    fn say_no(
        &mut self,
        socket: BorrowedFd<'_>,
        status: u16,
        write: impl FnOnce(&mut H, &mut Reply<'_, H::Body>),
    ) {
        self.out.clear();
        write(&mut self.handler, &mut Reply::new(&mut self.out, &self.date, false));
        self.count(Counter::of_status(status));
        self.send_last_words(socket);
    }

    /// Sends what is in `out` as far as the client takes it at once.
    fn send_last_words(&mut self, socket: BorrowedFd<'_>) {
        if !self.out.is_empty()
            && let Sent::Bytes(count) = socket::send(socket, &self.out.bytes, false)
        {
            self.metrics.add(Counter::SentBytes, count as u64);
        }
        self.out.clear();
    }

    /// Reads and drops what is there, at most `most` bytes. Returns how many may still be dropped,
    /// or `None` when the client has ended, the connection failed, or it was too much.
    pub fn drop_input(&mut self, socket: BorrowedFd<'_>, most: u64) -> Option<u64> {
        let mut left = most;
        loop {
            self.input.clear();
            match socket::receive(socket, self.input.room()) {
                Received::Bytes(count) if (count as u64) < left => left -= count as u64,
                Received::Blocked => return Some(left),
                _ => return None,
            }
        }
    }

    /// Gives a connection away with everything received of it.
    pub fn hand_over(&mut self, mut served: Served<H>) {
        self.count(Counter::Closed);
        let received = served.conn.take_received(&mut self.input);
        self.handler.hand_over(served.socket, received, &served.peer);
    }

    /// Closes a connection: its open log line is written and its end is counted. One that waits for
    /// its turn and is closed [now](Closing::Now) is one whose client has left.
    pub fn close(&mut self, mut served: Served<H>, closing: Closing) {
        let sampled = self.is_sampled();
        match closing {
            Closing::Reset => socket::reset_on_close(served.socket.as_fd()),
            // What has come is not left unread: most clients send no more, and lose nothing to a reset.
            Closing::Linger => {
                self.drop_input(served.socket.as_fd(), LINGER_BYTES);
            }
            Closing::Now => {}
        }
        if served.take_back() && closing == Closing::Now {
            self.count(Counter::GivenUp);
        }
        if served.pending.is_some() {
            self.count(Counter::Aborted);
        }
        served.conn.abandon(&mut self.handler);
        self.count(Counter::Closed);
        // before the client sees the end: it may come again at once
        served.place = None;
        let mut watch = Watch::new(&self.metrics, sampled);
        drop(served);
        watch.lap(Activity::Close);
    }
}
