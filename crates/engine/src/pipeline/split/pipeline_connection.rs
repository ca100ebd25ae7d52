//! One connection of the pipeline: what is done with it, the lists it is in, and what the epoll
//! reports of it.

use super::shaking::ShakingPlace;
use crate::connection::served::Served;
use crate::connection::waits::RequestWait;
use crate::loops::deadlines::ConnectionTimer;
use crate::loops::sockets::Watched;
use crate::order::ranks::RequestKey;
use forebay_conn::{Await, Handler, JobKind, Protocol, RequestId};
use forebay_control::allocation::{PHASES, Phase};
use forebay_control::ranked::Key;
use forebay_sys::epoll::{Once, ReadyDescriptor};

/// A connection and what the threads must know about it between two tasks.
pub(super) struct PipelineConnection<H: Handler> {
    pub(super) served: Served<H>,
    pub(super) token: u64,
    /// The lists that hold the connection itself, apart from its requests: by the number of their
    /// phase.
    listed: [bool; PHASES],
    /// The epoll has the connection.
    pub(super) is_known: bool,
    /// What the epoll reports of the connection next, if anything.
    pub(super) armed: Option<Once>,
    /// The client took nothing when it was last sent something.
    pub(super) is_full: bool,
    pub(super) timer: ConnectionTimer,
    /// The connection's place among those that make room while they are idle.
    pub(super) resting: Option<Key>,
    /// The connection's place among those whose handshake waits.
    pub(super) shaking: Option<ShakingPlace>,
    /// The other sockets that the connection's requests wait for.
    pub(super) sockets: Watched,
}

impl<H: Handler> PipelineConnection<H> {
    pub(super) fn new(served: Served<H>, token: u64) -> PipelineConnection<H> {
        PipelineConnection {
            served,
            token,
            listed: [false; PHASES],
            is_known: false,
            armed: None,
            is_full: false,
            timer: ConnectionTimer::default(),
            resting: None,
            shaking: None,
            sockets: Watched::default(),
        }
    }

    /// The key of one of the connection's requests.
    pub(super) fn key(&self, request: RequestId) -> RequestKey {
        RequestKey { connection: self.token, request }
    }

    /// Notes that the connection goes to the list of this phase. Returns whether it was not there
    /// already.
    pub(super) fn enlist(&mut self, phase: Phase) -> bool {
        !std::mem::replace(&mut self.listed[phase.index()], true)
    }

    /// Notes that the connection was taken out of the list of this phase.
    pub(super) fn was_taken(&mut self, phase: Phase) {
        self.listed[phase.index()] = false;
        if phase == Phase::Process {
            self.shaking = None;
        }
    }

    /// Whether the connection itself is in a list.
    pub(super) fn is_listed(&self) -> bool {
        self.listed.contains(&true)
    }

    pub(super) fn awaits(&self) -> Await {
        self.served.awaits().what
    }

    pub(super) fn is_idle(&self) -> bool {
        !self.is_listed() && self.served.is_idle()
    }

    pub(super) fn hears_of_drain(&self) -> bool {
        !self.is_listed() && self.served.hears_of_drain()
    }

    /// Whether the connection has one thing to do after another: a single request, and no socket
    /// but the client's.
    pub(super) fn is_single(&self) -> bool {
        !self.served.conn.goes_on() && !self.served.conn.has_sockets()
    }

    /// Whether the connection has no turn before a job is done: one that brings what is being sent
    /// into memory, or one of the beginning.
    pub(super) fn is_held(&self) -> bool {
        let waits = &self.served.waits;
        waits.has_job(RequestId::SENDING) || waits.has_job(RequestId::OPENING)
    }

    /// Whether the client must take something.
    pub(super) fn has_to_send(&self) -> bool {
        let served = &self.served;
        (served.pending.is_some() || served.stream.has_unsent()) && !self.is_held()
    }

    /// Notes a report of the kernel. Returns the phase in which the connection goes on, if it does.
    pub(super) fn goes_on_in(&mut self, ready: ReadyDescriptor) -> Option<Phase> {
        self.armed = None;
        self.served.readable |= ready.readable || ready.broken;
        self.served.ended |= ready.ended || ready.broken;
        self.is_full &= !ready.writable && !ready.broken;
        if self.has_to_send() && !self.is_full {
            return Some(Phase::Send);
        }
        let may =
            if self.has_to_send() { self.served.goes_on() } else { self.served.pending.is_none() };
        let receives = may && self.served.readable && self.served.wants_input();
        (receives || self.served.is_aborted()).then_some(Phase::Receive)
    }

    /// Whether this request waits for its turn to be answered.
    pub(super) fn awaits_turn(&self, id: RequestId) -> bool {
        let is_turn = |waiting: &_| matches!(waiting, RequestWait::Turn(_));
        self.served.waits.iter().any(|(known, waiting)| *known == id && is_turn(waiting))
    }

    /// Whether this request waits for its time.
    pub(super) fn awaits_not_before(&self, id: RequestId) -> bool {
        let is_not_before = |waiting: &_| matches!(waiting, RequestWait::NotBefore);
        self.served.waits.iter().any(|(known, waiting)| *known == id && is_not_before(waiting))
    }

    /// What the epoll must report of the connection. `None` where a thread comes to it anyway, and
    /// would learn nothing new from a report.
    pub(super) fn wants(&self) -> Option<Once> {
        let has = |phase: Phase| self.listed[phase.index()];
        if has(Phase::Receive) || has(Phase::Send) {
            return None;
        }
        let served = &self.served;
        if served.conn.is_lent() {
            return None;
        }
        if self.has_to_send() {
            // what arrived and was left unread is looked at again when there is room
            let reads = served.goes_on() && served.wants_input() && !served.readable;
            return Some(if reads { Once::Both } else { Once::Write });
        }
        if served.pending.is_none() && served.wants_input() {
            return Some(Once::Read);
        }
        if served.stream.has_ended() && served.ended {
            // the kernel would report the end and nothing else, again and again
            return None;
        }
        if served.conn.aborts_on_close() {
            return Some(Once::PeerEnd);
        }
        // before each job, the threads of the pipeline look themselves whether its client has left
        let is_away = |waiting: &_| match waiting {
            RequestWait::Job(shared_job) => shared_job.kind() == JobKind::Computes,
            RequestWait::NotBefore => true,
            RequestWait::Turn(_) => false,
        };
        let is_away = self.served.waits.iter().any(|(_, waiting)| is_away(waiting));
        (is_away || !self.is_single()).then_some(Once::End)
    }
}
