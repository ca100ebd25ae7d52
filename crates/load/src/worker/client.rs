//! One client: a place that has at most one connection, and what is under way on it.

use crate::plan::Version;
use crate::response::Reader;
use crate::tally::ClientTotals;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;

/// What a client is doing. All times are nanoseconds after the start of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Nothing, and nothing is planned.
    Free,
    /// Waits for its timer to connect.
    Waiting,
    /// The handshake is under way.
    Connecting,
    /// Requests are under way.
    Busy,
    /// Waits for its timer to send the next request.
    Thinking,
    /// Connected, and waits for an arrival (open loop).
    Idle,
    /// All requests are answered; stays silent until its timer.
    Holding,
}

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Asked {
    /// An entry of the group's mix.
    Entry(u32),
    /// The path on a line of the group's trace.
    Line(u32),
}

/// A request under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    pub(super) intended_ns: u64,
    pub(super) started_ns: u64,
    pub(super) asked: Asked,
}

/// The narrow line of a client that receives at a limited rate.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Line {
    /// When it has delivered everything that was read so far.
    pub(super) free_ns: u64,
    /// The socket has something to read, or has ended.
    pub(super) readable: bool,
    /// The server has ended the stream; reads must go on to its end.
    pub(super) ended: bool,
    /// The answer was read whole; it is complete when the line is free.
    pub(super) complete: bool,
}

#[derive(Debug)]
pub(super) struct Client {
    pub(super) socket: Option<OwnedFd>,
    /// Told apart from the connections this place had before.
    pub(super) generation: u32,
    pub(super) group: usize,
    /// Its number in the group, over all threads.
    pub(super) number: u32,
    pub(super) phase: Phase,
    pub(super) reader: Reader,
    pub(super) pending: VecDeque<Pending>,
    /// The part of a request that the socket did not take.
    pub(super) unsent: Vec<u8>,
    /// Requests this connection may still send; `u32::MAX`: any number.
    pub(super) left: u32,
    pub(super) version: Version,
    /// The arrival this connection was opened for: its time, and its line in the trace.
    pub(super) arrival: Option<(u64, Option<u32>)>,
    /// When the connection was begun; `None` once a request was sent on it.
    pub(super) opened_ns: Option<u64>,
    /// When it is given up; `u64::MAX`: never.
    pub(super) deadline_ns: u64,
    /// When its timer rings; `u64::MAX`: it has none.
    pub(super) timer_ns: u64,
    /// The last request failed: its client waits before the next (closed loop).
    pub(super) has_failed: bool,
    pub(super) line: Line,
    /// Bytes received since the last complete answer.
    pub(super) answer_bytes: u64,
    pub(super) totals: ClientTotals,
}

impl Client {
    pub(super) fn new(group: usize, number: u32, with_crc32: bool) -> Client {
        Client {
            socket: None,
            generation: 0,
            group,
            number,
            phase: Phase::Free,
            reader: Reader::new(with_crc32),
            pending: VecDeque::new(),
            unsent: Vec::new(),
            left: 0,
            version: Version::Http11,
            arrival: None,
            opened_ns: None,
            deadline_ns: u64::MAX,
            timer_ns: u64::MAX,
            has_failed: false,
            line: Line::default(),
            answer_bytes: 0,
            totals: ClientTotals::default(),
        }
    }

    /// Closes the connection and forgets what belonged to it.
    pub(super) fn close(&mut self) {
        self.socket = None;
        self.generation = self.generation.wrapping_add(1);
        self.phase = Phase::Free;
        self.reader.reset();
        self.pending.clear();
        self.unsent.clear();
        self.opened_ns = None;
        self.deadline_ns = u64::MAX;
        self.timer_ns = u64::MAX;
        self.has_failed = false;
        self.line = Line::default();
        self.answer_bytes = 0;
    }
}
