//! Timeouts and bounds that every engine keeps.

use forebay_conn::{Await, ConnectionLimits};
use forebay_control::keep_alive::KeepAlive;
use forebay_control::versioned::Versioned;
use std::sync::Arc;

/// What an engine is told when it is made.
#[derive(Clone, Debug)]
pub struct EngineSettings {
    /// Bounds on what one connection may ask for.
    pub limits: ConnectionLimits,
    /// How long is waited for what.
    pub timeouts: Timeouts,
    /// How long an idle connection is kept by the load; `None` for [`Timeouts::idle_ms`] always.
    pub keep_alive: Option<KeepAlive>,
    /// The same of each rank, where one has a law of its own; else empty.
    pub keep_alive_by_rank: Arc<[KeepAlive]>,
    /// Whether clients are told how long (`Keep-Alive: timeout=`). What they were told is kept.
    pub announce: bool,
    /// Connections of an engine that may linger at a time, all its loops together; beyond that, the one that
    /// has lingered for longest is closed.
    pub lingering: usize,
    /// Every so many turns of a connection one is timed by activity; 0 for never.
    pub sample: u32,
    /// Requests one connection may have answered before its neighbours have their turn.
    pub turn_requests: u32,
    /// Handshakes that a loop begins before those that are connected have their turn; as many more of
    /// clients of the first rank.
    pub turn_handshakes: u32,
    /// Bytes one connection may send and receive before its neighbours have their turn.
    pub turn_bytes: u64,
    /// Which connection goes on first when several clients take more of their answers; in loops.
    pub send_order: SendOrder,
}

/// Which connection goes on first, within a rank, when several clients take more of their answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SendOrder {
    /// The one whose socket has room first.
    #[default]
    Arrival,
    /// The one whose client takes the most per second (emu §2).
    Fastest,
    /// The one whose answer has the fewest bytes left (voigt §6, after Crovella et al.).
    Shortest,
}

impl Default for EngineSettings {
    fn default() -> EngineSettings {
        EngineSettings {
            limits: ConnectionLimits::default(),
            timeouts: Timeouts::default(),
            keep_alive: None,
            keep_alive_by_rank: Arc::new([]),
            announce: false,
            lingering: 1024,
            sample: 512,
            turn_requests: 64,
            turn_handshakes: 4,
            turn_bytes: 2 * 1024 * 1024,
            send_order: SendOrder::default(),
        }
    }
}

/// Settings that may be replaced while engines run. Each worker has a copy and looks once per turn
/// whether there is a newer one.
pub type LiveSettings = Versioned<EngineSettings>;

/// How long is waited for what, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// From the first byte of a head (on a new connection: from accept) to its last.
    pub head_ms: u64,
    /// From the end of the head to the end of the body.
    pub body_ms: u64,
    /// From an answer to the next request, unless [`EngineSettings::keep_alive`] says less.
    pub idle_ms: u64,
    /// For a job of a helper thread.
    pub job_ms: u64,
    /// A client that takes fewer than `send_bytes_per_s` over this long is cut; over a sixth of it, when there is no
    /// room for others.
    pub send_window_ms: u64,
    /// The minimum rate of a client that is being sent an answer; 0 for none.
    pub send_bytes_per_s: u64,
}

impl Default for Timeouts {
    fn default() -> Timeouts {
        Timeouts {
            head_ms: 10_000,
            body_ms: 30_000,
            idle_ms: 60_000,
            job_ms: 60_000,
            send_window_ms: 60_000,
            send_bytes_per_s: 1024,
        }
    }
}

impl Timeouts {
    /// How long a connection may wait for this; for ever, where the protocol says until when.
    #[inline]
    pub fn of(&self, awaited: Await) -> u64 {
        match awaited {
            Await::Head => self.head_ms,
            Await::Body => self.body_ms,
            Await::Idle => self.idle_ms,
            Await::Job | Await::Admission => self.job_ms,
            Await::Send => self.send_look_ms(),
            Await::Place
            | Await::Slot
            | Await::Connect
            | Await::Answer
            | Await::Flow
            | Await::Ending
            | Await::Link
            | Await::Rest => u64::MAX,
        }
    }

    /// How often is looked whether a client takes its answer fast enough.
    pub fn send_look_ms(&self) -> u64 {
        (self.send_window_ms / SEND_LOOKS).max(1)
    }

    /// Bytes a client must take in this time.
    pub fn least_taken(&self, ms: u64) -> u64 {
        self.send_bytes_per_s.saturating_mul(ms) / 1000
    }
}

/// Looks in a window of sending. A client that has taken too little at one of them is slow from then on: it is cut when
/// there is no room for others, long before its window is over.
const SEND_LOOKS: u64 = 6;
