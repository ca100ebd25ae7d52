//! One client: a place that has at most one connection, and what is under way on it.

use super::http2::session::Http2Session;
use super::request::Pending;
use crate::plan::StatedVersion;
use crate::response::AnswerReader;
use crate::tally::ClientTotals;
use forebay_tls::ClientSession;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;

/// What a client is doing. All times are nanoseconds after the start of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientPhase {
    /// Nothing, and nothing is planned.
    Free,
    /// Waits for its timer to connect.
    Waiting,
    /// The handshake is under way: that of TCP, and then that of TLS.
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

/// The narrow line of a client that receives at a limited rate.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bandwidth {
    /// When it has delivered everything that was read so far.
    pub(super) free_ns: u64,
    /// The socket has something to read, or has ended.
    pub(super) readable: bool,
    /// The server has ended the stream; reads must go on to its end.
    pub(super) ended: bool,
}

pub(super) struct LoadClient {
    pub(super) socket: Option<OwnedFd>,
    /// How it speaks TLS, with what it can resume.
    pub(super) tls: Option<forebay_tls::TlsClient>,
    /// Its connection's session of TLS.
    pub(super) session: Option<Box<ClientSession>>,
    /// Its connection, if that is of HTTP/2.
    pub(super) http2: Option<Box<Http2Session>>,
    /// Told apart from the connections this place had before.
    pub(super) generation: u32,
    pub(super) group: usize,
    /// Its number in the group, over all threads.
    pub(super) number: u32,
    pub(super) phase: ClientPhase,
    pub(super) reader: AnswerReader,
    pub(super) pending: VecDeque<Pending>,
    /// The part of a request that the socket did not take.
    pub(super) unsent: Vec<u8>,
    /// Requests this connection may still send; `u32::MAX`: any number.
    pub(super) left: u32,
    pub(super) version: StatedVersion,
    /// The arrival this connection was opened for: its time, and its line in the trace.
    pub(super) arrival: Option<(u64, Option<u32>)>,
    /// When the connection was begun; `None` once a request was sent on it.
    pub(super) opened_ns: Option<u64>,
    /// When its TCP connection was established, while the handshake of TLS is under way.
    pub(super) established_ns: Option<u64>,
    /// Since when requests are under way of which no time was counted yet.
    pub(super) busy_from_ns: u64,
    /// When it is given up; `u64::MAX`: never.
    pub(super) deadline_ns: u64,
    /// When its timer rings; `u64::MAX`: it has none.
    pub(super) timer_ns: u64,
    /// The last request failed: its client waits before the next (closed loop).
    pub(super) has_failed: bool,
    pub(super) line: Bandwidth,
    /// What the line has not delivered yet.
    pub(super) held: Vec<u8>,
    /// It is among those of its group that can take a request.
    pub(super) is_listed: bool,
    /// Bytes received since the last complete answer.
    pub(super) answer_bytes: u64,
    pub(super) totals: ClientTotals,
}

impl LoadClient {
    pub(super) fn new(
        group: usize,
        number: u32,
        with_crc32: bool,
        tls: Option<forebay_tls::TlsClient>,
    ) -> LoadClient {
        LoadClient {
            socket: None,
            tls,
            session: None,
            http2: None,
            generation: 0,
            group,
            number,
            phase: ClientPhase::Free,
            reader: AnswerReader::new(with_crc32),
            pending: VecDeque::new(),
            unsent: Vec::new(),
            left: 0,
            version: StatedVersion::Http11,
            arrival: None,
            opened_ns: None,
            established_ns: None,
            busy_from_ns: 0,
            deadline_ns: u64::MAX,
            timer_ns: u64::MAX,
            has_failed: false,
            line: Bandwidth::default(),
            held: Vec::new(),
            is_listed: false,
            answer_bytes: 0,
            totals: ClientTotals::default(),
        }
    }

    /// Closes the connection and forgets what belonged to it.
    pub(super) fn close(&mut self) {
        self.socket = None;
        self.session = None;
        self.http2 = None;
        self.generation = self.generation.wrapping_add(1);
        self.phase = ClientPhase::Free;
        self.reader.reset();
        self.pending.clear();
        self.unsent.clear();
        self.opened_ns = None;
        self.established_ns = None;
        self.deadline_ns = u64::MAX;
        self.timer_ns = u64::MAX;
        self.has_failed = false;
        self.line = Bandwidth::default();
        self.held.clear();
        self.is_listed = false;
        self.answer_bytes = 0;
    }

    /// Whether one more request may be under way on its connection, where that may be `at_once`.
    #[inline]
    pub(super) fn has_room(&self, at_once: usize) -> bool {
        self.pending.len() < at_once
            && self.left > 0
            && self.http2.as_ref().is_none_or(|http2| http2.machine.can_open())
    }
}
