//! One client: a slot with at most one connection, and the requests under way on it.

use super::http2::session::Http2Session;
use super::request::Pending;
use crate::plan::StatedVersion;
use crate::response::AnswerReader;
use crate::tally::ClientTotals;
use forebay_tls::ClientSession;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;

/// The state of a client. All times are nanoseconds after the start of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientPhase {
    /// Nothing is under way or planned.
    Free,
    /// Waiting for the timer to connect.
    Waiting,
    /// The handshake is under way: that of TCP, and then that of TLS.
    Connecting,
    /// Requests are under way.
    Busy,
    /// Waiting for the timer to send the next request.
    Thinking,
    /// Connected, and waiting for an arrival (open loop).
    Idle,
    /// All requests are answered; the connection stays silent until the timer.
    Holding,
}

/// The simulated narrow link of a client that receives at a limited rate.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bandwidth {
    /// The time at which the link has delivered everything read so far.
    pub(super) free_ns: u64,
    /// Whether the socket is readable, or has ended.
    pub(super) readable: bool,
    /// Whether the server has ended the stream; reads must continue to its end.
    pub(super) ended: bool,
}

pub(super) struct LoadClient {
    pub(super) socket: Option<OwnedFd>,
    /// The TLS client, with the sessions it can resume.
    pub(super) tls: Option<forebay_tls::TlsClient>,
    /// The TLS session of the connection.
    pub(super) session: Option<Box<ClientSession>>,
    /// The HTTP/2 state of the connection, if it speaks that.
    pub(super) http2: Option<Box<Http2Session>>,
    /// A number that distinguishes the connection from earlier ones of this slot.
    pub(super) generation: u32,
    pub(super) group: usize,
    /// The client's number in the group, over all threads.
    pub(super) number: u32,
    pub(super) phase: ClientPhase,
    pub(super) reader: AnswerReader,
    pub(super) pending: VecDeque<Pending>,
    /// The part of a request that the socket did not take.
    pub(super) unsent: Vec<u8>,
    /// The number of requests this connection may still send; `u32::MAX`: any number.
    pub(super) left: u32,
    pub(super) version: StatedVersion,
    /// The arrival for which the connection was opened: its time, and its line in the trace.
    pub(super) arrival: Option<(u64, Option<u32>)>,
    /// When the connection was begun; `None` once a request was sent on it.
    pub(super) opened_ns: Option<u64>,
    /// When the TCP connection was established, while the TLS handshake is under way.
    pub(super) established_ns: Option<u64>,
    /// The time from which the time with requests under way has not been counted yet.
    pub(super) busy_from_ns: u64,
    /// When the request or connection is given up; `u64::MAX`: never.
    pub(super) deadline_ns: u64,
    /// When the timer fires; `u64::MAX`: there is none.
    pub(super) timer_ns: u64,
    /// Whether the last request failed, so that the client waits before the next (closed loop).
    pub(super) has_failed: bool,
    pub(super) line: Bandwidth,
    /// Bytes that the link has not delivered yet.
    pub(super) held: Vec<u8>,
    /// Whether the client is in its group's list of those that can take a request.
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

    /// Closes the connection and resets its state.
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

    /// Whether one more request may be under way on the connection, where `at_once` may be.
    #[inline]
    pub(super) fn has_room(&self, at_once: usize) -> bool {
        self.pending.len() < at_once
            && self.left > 0
            && self.http2.as_ref().is_none_or(|http2| http2.machine.can_open())
    }
}
