//! Timeouts and bounds that every engine keeps.

use forebay_conn::{Await, ConnectionLimits};
use forebay_control::keep_alive::KeepAlive;
use forebay_control::versioned::Versioned;
use std::sync::Arc;

/// The settings of an engine.
#[derive(Clone, Debug)]
pub struct EngineSettings {
    /// Bounds on what one connection may ask for.
    pub limits: ConnectionLimits,
    /// The timeouts of the waits of a connection.
    pub timeouts: Timeouts,
    /// How long an idle connection is kept, by the load; `None` for [`Timeouts::idle_ms`] always.
    pub keep_alive: Option<KeepAlive>,
    /// The same for each rank, if a rank has a law of its own; else empty.
    pub keep_alive_by_rank: Arc<[KeepAlive]>,
    /// Whether answers announce that time (`Keep-Alive: timeout=`). The server keeps to what it has
    /// announced.
    pub announce: bool,
    /// The number of connections of an engine, all its loops together, that may linger at a time;
    /// beyond that, the one that has lingered longest is closed.
    pub lingering: usize,
    /// One turn in this many of a connection is timed by activity; 0 for none.
    pub sample: u32,
    /// The requests that one connection may have answered before its neighbours have their turn.
    pub turn_requests: u32,
    /// The handshakes that a loop begins before connections that are open have their turn; it
    /// begins as many more for clients of the first rank.
    pub turn_handshakes: u32,
    /// The bytes that one connection may send and receive before its neighbours have their turn.
    pub turn_bytes: u64,
    /// The order, in loops, in which connections go on when several clients take more of their
    /// answers.
    pub send_order: SendOrder,
}

/// The order in which connections of one rank go on when several clients take more of their
/// answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SendOrder {
    /// The connection whose socket has room first.
    #[default]
    Arrival,
    /// The connection whose client takes the most per second (emu §2).
    Fastest,
    /// The connection whose answer has the fewest bytes left (voigt §6, after Crovella et al.).
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

/// Timeouts, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// The time from the first byte of a head (on a new connection: from accept) to its last.
    pub head_ms: u64,
    /// The time from the end of the head to the end of the body.
    pub body_ms: u64,
    /// The time from an answer to the next request, unless [`EngineSettings::keep_alive`] says
    /// less.
    pub idle_ms: u64,
    /// The time for a job of a helper thread.
    pub job_ms: u64,
    /// The window over which a client that takes fewer than `send_bytes_per_s` is cut; over a sixth
    /// of it, when there is no room for others.
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
    /// The time that a connection may wait for this; for ever, where the protocol knows the
    /// deadline.
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

    /// The interval at which the engine looks whether a client takes its answer fast enough.
    pub fn send_look_ms(&self) -> u64 {
        (self.send_window_ms / SEND_LOOKS).max(1)
    }

    /// The bytes that a client must take in this time.
    pub fn least_taken(&self, ms: u64) -> u64 {
        self.send_bytes_per_s.saturating_mul(ms) / 1000
    }
}

/// The looks in a window of sending. A client that has taken too little at one of them is slow from
/// then on: it is cut when there is no room for others, long before its window is over.
const SEND_LOOKS: u64 = 6;
