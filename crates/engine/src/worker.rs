//! Everything one thread needs to serve connections: handler, buffers, clock and counters. What it does
//! with one is a turn (`turn.rs`).

use crate::served::{HandshakeState, Served};
use crate::settings::{EngineSettings, LINGER_BYTES, LiveSettings};
use crate::stream::{SocketStream, Wire};
use crate::watch::TurnStopwatch;
use forebay_conn::http2;
use forebay_conn::{
    Announce, Await, Closing, HandedOver, Handler, Input, Out, Protocol, Rank, Refusal, Reply,
    Settled, TurnTime,
};
use forebay_control::keep_alive::KeepAlive;
use forebay_control::versioned::Reader;
use forebay_http::date::{self, IMF_LEN};
use forebay_http::path::NormalPath;
use forebay_metrics::{Activity, Counter, Local, Stopwatch};
use forebay_sys::clock;
use forebay_sys::socket::{self, Received, Sent};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// One thread's handler, buffers, clock and counters.
pub struct Worker<H: Handler> {
    /// Knows the answers.
    pub handler: H,
    /// Timeouts and bounds.
    pub settings: EngineSettings,
    live: Reader<EngineSettings>,
    /// The thread's counters.
    pub metrics: Arc<Local>,
    /// Every answer is its connection's last.
    pub draining: bool,
    /// How long a connection that becomes idle now is kept.
    pub(crate) idle: IdleTimes,
    pub(crate) now: TurnTime,
    pub(crate) date: [u8; IMF_LEN],
    turns: u32,
    pub(crate) input: Input,
    pub(crate) out: Out<H::Body>,
    /// Room for the normal form of one path.
    pub(crate) path: NormalPath,
    pub(crate) head_buffer: http2::HeadBuffer,
    pub(crate) wire: Wire,
    /// Handshakes that may begin in this turn of the loop: those of clients of the first rank, and others.
    pub(crate) handshakes: [u32; 2],
}

/// How long connections are kept that become idle now, in milliseconds.
pub(crate) struct IdleTimes {
    all_ms: u64,
    /// By rank, where one has a law of its own; else empty.
    by_rank_ms: Vec<u64>,
}

impl IdleTimes {
    /// That of a connection of this rank.
    #[inline]
    fn of(&self, rank: Rank) -> u64 {
        self.by_rank_ms.get(usize::from(rank.0)).copied().unwrap_or(self.all_ms)
    }

    /// What clients are told, if they are told it.
    #[inline]
    pub(crate) fn announce(&self, is_announced: bool) -> Announce<'_> {
        match is_announced {
            true => {
                let all_s = u32::try_from(self.all_ms / 1000).unwrap_or(u32::MAX);
                Announce { all_s, by_rank_ms: &self.by_rank_ms }
            }
            false => Announce::default(),
        }
    }

    /// All of them at this load, where ranks have, or had, laws of their own.
    #[cold]
    fn observe(&mut self, settings: &EngineSettings, load: f64) {
        let ms = |law: &KeepAlive| u64::from(law.timeout_ms(load));
        self.all_ms = settings.keep_alive.as_ref().map_or(settings.timeouts.idle_ms, ms);
        self.by_rank_ms.clear();
        self.by_rank_ms.extend(settings.keep_alive_by_rank.iter().map(ms));
    }
}

/// How far the clock of deadlines may be behind.
const BEHIND_MS: u64 = 4;

/// The time as engines see it.
pub fn read_clocks() -> TurnTime {
    TurnTime { monotonic_ms: clock::coarse_ms(), unix_ms: clock::unix_coarse_ms() }
}

/// Bytes of a receive buffer: two of the largest heads, and at least 64 KiB.
fn input_bytes(settings: &EngineSettings) -> usize {
    (2 * settings.limits.head.head_bytes).max(64 * 1024)
}

impl<H: Handler> Worker<H> {
    /// A worker with buffers of its own.
    pub fn new(handler: H, live: Arc<LiveSettings>, metrics: Arc<Local>) -> Worker<H> {
        let now = read_clocks();
        let (live, settings) = live.reader();
        Worker {
            handler,
            metrics,
            draining: false,
            idle: IdleTimes { all_ms: settings.timeouts.idle_ms, by_rank_ms: Vec::new() },
            now,
            date: date::format(now.unix_ms / 1000),
            turns: 0,
            input: Input::with_capacity(input_bytes(&settings)),
            out: Out::default(),
            path: NormalPath::default(),
            head_buffer: http2::HeadBuffer::default(),
            wire: Wire::default(),
            handshakes: [settings.turn_handshakes; 2],
            settings,
            live,
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
        if let Some(settings) = self.live.newer() {
            self.take_settings(settings);
        }
        let now = read_clocks();
        if now.unix_ms / 1000 != self.now.unix_ms / 1000 {
            self.date = date::format(now.unix_ms / 1000);
        }
        self.now = now;
    }

    #[cold]
    fn take_settings(&mut self, settings: EngineSettings) {
        self.settings = settings;
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
        let EngineSettings { keep_alive, keep_alive_by_rank, timeouts, .. } = &self.settings;
        if !keep_alive_by_rank.is_empty() || !self.idle.by_rank_ms.is_empty() {
            return self.idle.observe(&self.settings, load());
        }
        self.idle.all_ms = match keep_alive {
            None => timeouts.idle_ms,
            Some(law) => u64::from(law.timeout_ms(load())),
        };
    }

    /// How long the connection may wait for this, in milliseconds.
    #[inline]
    pub fn time_ms(&self, served: &Served<H>, awaited: Await) -> u64 {
        match awaited {
            Await::Idle => {
                let announced_ms = u64::from(served.conn.announced_s()) * 1000;
                self.idle.of(served.conn.rank()).max(announced_ms)
            }
            awaited => self.settings.timeouts.of(awaited),
        }
    }

    /// When a request may be answered that may not be before so many milliseconds have passed.
    pub(crate) fn not_before_ms(&self, wait_ms: u32) -> u64 {
        // not earlier: the clock may be behind
        self.now_ms() + u64::from(wait_ms) + BEHIND_MS
    }

    /// Lets the handler do what it does once per turn, before anything else in it: it gets to know
    /// the time, and what has changed while the thread slept.
    #[inline]
    pub fn begin_turn(&mut self) {
        self.handshakes = [self.settings.turn_handshakes; 2];
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

    /// Says no to a connection before any request of it was read. One that is sealed is told nothing.
    pub fn refuse(&mut self, served: &mut Served<H>, status: u16, reason: &'static str) {
        self.say_no(served, status, |handler, reply| handler.refuse(status, reason, reply));
    }

    /// Says no to a connection that policy does not admit. One that is sealed is told nothing.
    pub fn turn_away(&mut self, served: &mut Served<H>, refusal: Refusal) {
        self.say_no(served, refusal.status, |handler, reply| {
            handler.turn_away(refusal, None, reply)
        });
    }

    fn say_no(
        &mut self,
        served: &mut Served<H>,
        status: u16,
        write: impl FnOnce(&mut H, &mut Reply<'_, H::Body>),
    ) {
        if !served.stream.is_plain() {
            return;
        }
        self.out.clear();
        write(&mut self.handler, &mut Reply::new(&mut self.out, &self.date, false));
        self.count(Counter::of_status(status));
        self.send_last_words(&mut served.stream);
    }

    /// Sends what is in `out` as far as the client takes it at once. Returns how many bytes it does not take;
    /// what is sealed waits in the stream.
    pub(crate) fn send_last_words(&mut self, stream: &mut SocketStream<H>) -> u64 {
        let words = self.out.bytes.len();
        let (count, unsent) = if !stream.is_plain() {
            stream.seal(&self.out.bytes);
            stream.end();
            (stream.flush().1, 0)
        } else if self.out.is_empty() {
            (0, 0)
        } else {
            match socket::send(stream.as_fd(), &self.out.bytes, false) {
                Sent::Bytes(count) => (count, words - count),
                Sent::Blocked | Sent::Broken => (0, words),
            }
        };
        self.metrics.add(Counter::SentBytes, count as u64);
        self.out.clear();
        unsent as u64
    }

    /// Reads and drops what is there, at most `most` bytes. Returns how many may still be dropped,
    /// or `None` when the client has ended, the connection failed, or it was too much.
    pub fn drop_input(&mut self, socket: BorrowedFd<'_>, most: u64) -> Option<u64> {
        let mut left = most;
        loop {
            self.input.clear();
            match socket::receive(socket, self.input.spare()) {
                Received::Bytes(count) if (count as u64) < left => left -= count as u64,
                Received::Blocked => return Some(left),
                _ => return None,
            }
        }
    }

    /// Gives a connection away with everything received of it.
    pub fn hand_over(&mut self, mut served: Served<H>) {
        let (received, ticket) = served.conn.take_handed(&mut self.input);
        let is_plain = served.stream.is_plain();
        self.count(Counter::Closed);
        if !is_plain {
            // what is sealed can be read by nothing but this transport
            return self.handler.settle(&mut { ticket }, Settled::Cut);
        }
        let place: Box<dyn Send> = Box::new(served.place.take());
        let (socket, peer) = (served.stream.into_socket(), served.peer);
        let handed = HandedOver { socket, received, peer, ticket, place };
        if let Err(mut refused) = self.handler.hand_over(handed) {
            self.handler.settle(&mut refused.ticket, Settled::Cut);
        }
    }

    /// Closes a connection: its open log line is written and its end is counted. One that waits for
    /// its turn and is closed [now](Closing::Now) is one whose client has left.
    pub fn close(&mut self, mut served: Served<H>, closing: Closing) {
        let sampled = self.is_sampled();
        match closing {
            Closing::Reset => socket::reset_on_close(served.stream.as_fd()),
            // What has come is not left unread: most clients send no more, and lose nothing to a reset.
            Closing::Linger => {
                self.drop_input(served.stream.as_fd(), LINGER_BYTES);
            }
            Closing::Now => {}
        }
        if served.take_back() && closing == Closing::Now {
            self.count(Counter::GivenUp);
        }
        if served.pending.is_some() {
            self.count(Counter::Aborted);
        }
        if let Some(opening) = &served.opening
            && opening.handshake == HandshakeState::Begun
        {
            self.count(Counter::HandshakesCut);
        }
        served.drop_unsent();
        served.conn.abandon(&mut self.handler, &served.peer);
        self.count(Counter::Closed);
        // before the client sees the end: it may come again at once
        served.place = None;
        let mut watch = TurnStopwatch::new(&self.metrics, sampled);
        drop(served);
        watch.lap(Activity::Close);
    }
}
