//! Everything one thread needs to serve connections: handler, buffers, clock and counters. With a
//! connection it makes turns (`turn.rs`), and then its end (`closing.rs`).

use crate::connection::served::Served;
use crate::connection::stream::Wire;
use crate::room::linger::Lingering;
use crate::settings::{EngineSettings, LiveSettings};
use forebay_conn::http2;
use forebay_conn::{Announce, Await, Handler, Input, Out, Protocol, Rank, TurnTime};
use forebay_control::keep_alive::KeepAlive;
use forebay_control::versioned::Reader;
use forebay_http::date::{self, IMF_LEN};
use forebay_http::path::NormalPath;
use forebay_metrics::{Counter, Local};
use forebay_sys::clock;
use std::sync::Arc;

/// The handler, buffers, clock and counters of one thread.
pub struct Worker<H: Handler> {
    /// The handler, which knows the answers.
    pub handler: H,
    /// Timeouts and bounds.
    pub settings: EngineSettings,
    live: Reader<EngineSettings>,
    /// The thread's counters.
    pub metrics: Arc<Local>,
    /// Every answer is the last of its connection.
    pub draining: bool,
    /// The times for which connections are kept that become idle now.
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
    /// The lingering connections of the engine.
    pub(crate) lingering: Arc<Lingering>,
    /// The handshakes that may begin in this turn of the loop: those of clients of the first rank,
    /// and others.
    pub(crate) handshakes: [u32; 2],
}

/// The times for which connections are kept that become idle now, in milliseconds.
pub(crate) struct IdleTimes {
    all_ms: u64,
    /// The times by rank, if a rank has a law of its own; else empty.
    by_rank_ms: Vec<u64>,
}

impl IdleTimes {
    /// The time for a connection of this rank.
    #[inline]
    fn of(&self, rank: Rank) -> u64 {
        self.by_rank_ms.get(usize::from(rank.0)).copied().unwrap_or(self.all_ms)
    }

    /// The keep-alive time that answers announce, if it is announced.
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

    /// Computes all times for this load, where ranks have, or had, laws of their own.
    #[cold]
    fn observe(&mut self, settings: &EngineSettings, load: f64) {
        let ms = |law: &KeepAlive| u64::from(law.timeout_ms(load));
        self.all_ms = settings.keep_alive.as_ref().map_or(settings.timeouts.idle_ms, ms);
        self.by_rank_ms.clear();
        self.by_rank_ms.extend(settings.keep_alive_by_rank.iter().map(ms));
    }
}

/// The most that the clock of deadlines may be behind.
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
    /// A worker with buffers of its own, whose connections linger in `lingering`.
    pub(crate) fn new(
        handler: H,
        live: Arc<LiveSettings>,
        metrics: Arc<Local>,
        lingering: Arc<Lingering>,
    ) -> Worker<H> {
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
            lingering,
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
        // the buffer can be replaced, as nothing stays in it between turns
        let wanted = input_bytes(&self.settings);
        if wanted > self.input.capacity() {
            self.input = Input::with_capacity(wanted);
        }
    }

    /// Takes note of the load, between 0 and 1: the share of the places for connections that is
    /// taken. It decides how long connections that become idle from now on are kept.
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

    /// The time that the connection may wait for this, in milliseconds.
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

    /// The time from which a request may be answered that must wait this many milliseconds.
    pub(crate) fn not_before_ms(&self, wait_ms: u32) -> u64 {
        // the clock may be behind, and an answer must not be early
        self.now_ms() + u64::from(wait_ms) + BEHIND_MS
    }

    /// Lets the handler do what it does once per turn, before anything else: it learns the time,
    /// and what has changed while the thread slept.
    #[inline]
    pub fn begin_turn(&mut self) {
        self.handshakes = [self.settings.turn_handshakes; 2];
        self.handler.turn(self.now);
    }

    /// Rests before the thread waits for events, if the handler wants that.
    #[inline]
    pub fn gather(&mut self) {
        if let Some(pause) = self.handler.pause() {
            std::thread::sleep(pause);
        }
    }

    /// Adds one to this counter.
    pub fn count(&self, counter: Counter) {
        self.metrics.add(counter, 1);
    }

    /// Whether the next turn is timed, activity by activity.
    #[inline]
    pub fn is_sampled(&mut self) -> bool {
        self.turns = self.turns.wrapping_add(1);
        self.settings.sample != 0 && self.turns.is_multiple_of(self.settings.sample)
    }
}
