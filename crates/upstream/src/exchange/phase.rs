//! How far an exchange has come, and what it has there: an attempt is made anew for each upstream that is asked.

use super::collected::CollectedBody;
use super::outcome::{self, Failed, UNREACHED};
use crate::group::retry::AttemptFailure;
use crate::upstreams::connection::UpstreamConnection;
use crate::upstreams::down::OutageWait;
use crate::upstreams::stream::ConnectError;
use crate::upstreams::{QueueWait, UpstreamSlot};
use std::os::fd::AsFd;

/// How far an exchange has come.
pub(super) enum ExchangePhase {
    /// Nothing is asked, and nothing waits.
    Unbegun,
    /// The request's body is collected before anything is asked: this has come of it.
    Spooling(CollectedBody),
    /// All upstreams have as much under way as they may: its place among those that wait.
    Waiting(QueueWait),
    /// No upstream takes connections, as in a restart: it waits until one does.
    Away(OutageWait),
    /// No instance of the next stage takes it: the link says when it is tried again.
    Resting,
    Connecting(Attempt),
    Asking(Attempt),
    /// The head of the answer is there.
    Answered(Attempt),
    /// There is no answer that may be told, for this reason; and what is left of the attempt.
    Failed(Failed, Option<Attempt>),
}

/// One upstream that is asked, over one connection.
pub(super) struct Attempt {
    /// Its place among what the upstream has under way; none at the next stage, or if it is given back. It goes before
    /// the connection does.
    pub(super) slot: Option<UpstreamSlot>,
    /// None if it is given back, or of no more use.
    pub(super) connection: Option<UpstreamConnection>,
    /// The connection was used before.
    pub(super) is_reused: bool,
    pub(super) can_read: bool,
    pub(super) can_write: bool,
    /// Nothing more can be sent.
    pub(super) is_cut: bool,
    /// Nothing more comes.
    pub(super) has_ended: bool,
    /// Since when all of the request has been sent.
    pub(super) whole_ms: Option<u64>,
    /// Why there is no connection, for the operator.
    pub(super) unreached: &'static str,
}

impl Attempt {
    /// With this place, and nothing sent yet.
    pub(super) fn new(slot: Option<UpstreamSlot>) -> Attempt {
        Attempt {
            slot,
            connection: None,
            is_reused: false,
            can_read: false,
            can_write: true,
            is_cut: false,
            has_ended: false,
            whole_ms: None,
            unreached: UNREACHED,
        }
    }

    /// There is no connection, for this reason.
    pub(super) fn not_connected(&mut self, error: &ConnectError) -> AttemptFailure {
        let (why, failure) = match error {
            ConnectError::Tls(fault) => (fault.words(), AttemptFailure::Tls(*fault)),
            ConnectError::Socket(error) => match outcome::unreached(error) {
                Some(why) => (why, AttemptFailure::Connect),
                None => return AttemptFailure::Resources,
            },
        };
        self.unreached = why;
        failure
    }
}

impl ExchangePhase {
    /// The upstream that is asked, if one is.
    pub(super) fn attempt(&self) -> Option<&Attempt> {
        match self {
            ExchangePhase::Connecting(attempt)
            | ExchangePhase::Asking(attempt)
            | ExchangePhase::Answered(attempt)
            | ExchangePhase::Failed(_, Some(attempt)) => Some(attempt),
            _ => None,
        }
    }

    /// The same, to be changed.
    pub(super) fn attempt_mut(&mut self) -> Option<&mut Attempt> {
        match self {
            ExchangePhase::Connecting(attempt)
            | ExchangePhase::Asking(attempt)
            | ExchangePhase::Answered(attempt)
            | ExchangePhase::Failed(_, Some(attempt)) => Some(attempt),
            _ => None,
        }
    }

    /// The connection to the upstream that is asked.
    pub(super) fn connection(&self) -> Option<&UpstreamConnection> {
        self.attempt()?.connection.as_ref()
    }

    /// The place at the upstream that is asked.
    pub(super) fn slot_mut(&mut self) -> Option<&mut UpstreamSlot> {
        self.attempt_mut()?.slot.as_mut()
    }

    /// The connection has become a tunnel.
    pub(super) fn becomes_tunnel(&mut self, is_web_socket: bool) {
        let Some(Attempt { slot: Some(slot), connection, .. }) = self.attempt_mut() else { return };
        slot.becomes_tunnel();
        if let Some(connection) = connection.as_ref().filter(|_| is_web_socket) {
            slot.becomes_web_socket(connection.as_fd());
        }
    }

    /// Whether nothing more can be sent.
    pub(super) fn is_cut(&self) -> bool {
        self.attempt().is_some_and(|attempt| attempt.is_cut)
    }

    /// Whether nothing more comes.
    pub(super) fn has_ended(&self) -> bool {
        self.attempt().is_some_and(|attempt| attempt.has_ended)
    }

    /// What was asked is left: its connection is closed, its place given back.
    pub(super) fn leave_attempt(&mut self) {
        if let Some(attempt) = self.attempt_mut() {
            attempt.slot = None;
            attempt.connection = None;
        }
    }

    /// Takes the attempt out; nothing is asked any more.
    pub(super) fn take_attempt(&mut self) -> Option<Attempt> {
        match std::mem::replace(self, ExchangePhase::Unbegun) {
            ExchangePhase::Connecting(attempt)
            | ExchangePhase::Asking(attempt)
            | ExchangePhase::Answered(attempt)
            | ExchangePhase::Failed(_, Some(attempt)) => Some(attempt),
            other => {
                *self = other;
                None
            }
        }
    }

    /// The connection has come about.
    pub(super) fn connected(&mut self) {
        if let Some(attempt) = self.take_attempt() {
            *self = ExchangePhase::Asking(attempt);
        }
    }

    /// The head of the answer is there, or as much as there will be.
    pub(super) fn answered(&mut self) {
        let attempt = self.take_attempt().unwrap_or_else(|| Attempt::new(None));
        *self = ExchangePhase::Answered(attempt);
    }

    pub(super) fn is_connecting(&self) -> bool {
        matches!(self, ExchangePhase::Connecting(_))
    }

    pub(super) fn is_answered(&self) -> bool {
        matches!(self, ExchangePhase::Answered(_))
    }
}
