//! The phases of an exchange, and the attempt at an upstream, which is made anew for each one that is
//! asked.

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
    /// The request's body is collected before an upstream is asked.
    Spooling(CollectedBody),
    /// All upstreams have as many under way as they may, and the request waits in the queue.
    Waiting(QueueWait),
    /// No upstream takes connections, as in a restart, and the request waits until one does.
    Away(OutageWait),
    /// No instance of the next stage takes the request; the link says when it is tried again.
    Resting,
    Connecting(Attempt),
    Asking(Attempt),
    /// The head of the answer is there.
    Answered(Attempt),
    /// There is no answer, for this reason; with what is left of the attempt.
    Failed(Failed, Option<Attempt>),
}

/// One attempt at an upstream, over one connection.
pub(super) struct Attempt {
    /// The place at the upstream; none at the next stage, or if it is given back. As the first field
    /// it is dropped before the connection.
    pub(super) slot: Option<UpstreamSlot>,
    /// The connection; none if it is given back, or of no more use.
    pub(super) connection: Option<UpstreamConnection>,
    /// Whether the connection was used before.
    pub(super) is_reused: bool,
    pub(super) can_read: bool,
    pub(super) can_write: bool,
    /// Whether nothing more can be sent.
    pub(super) is_cut: bool,
    /// Whether nothing more comes.
    pub(super) has_ended: bool,
    /// When the last byte of the request was sent.
    pub(super) whole_ms: Option<u64>,
    /// Why there is no connection, for the operator.
    pub(super) unreached: &'static str,
}

impl Attempt {
    /// An attempt with this place, of which nothing is sent yet.
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

    /// Notes why there is no connection, and returns the failure.
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
    /// The current attempt, if there is one.
    pub(super) fn attempt(&self) -> Option<&Attempt> {
        match self {
            ExchangePhase::Connecting(attempt)
            | ExchangePhase::Asking(attempt)
            | ExchangePhase::Answered(attempt)
            | ExchangePhase::Failed(_, Some(attempt)) => Some(attempt),
            _ => None,
        }
    }

    /// The current attempt, for changes.
    pub(super) fn attempt_mut(&mut self) -> Option<&mut Attempt> {
        match self {
            ExchangePhase::Connecting(attempt)
            | ExchangePhase::Asking(attempt)
            | ExchangePhase::Answered(attempt)
            | ExchangePhase::Failed(_, Some(attempt)) => Some(attempt),
            _ => None,
        }
    }

    /// The connection of the current attempt.
    pub(super) fn connection(&self) -> Option<&UpstreamConnection> {
        self.attempt()?.connection.as_ref()
    }

    /// The place of the current attempt.
    pub(super) fn slot_mut(&mut self) -> Option<&mut UpstreamSlot> {
        self.attempt_mut()?.slot.as_mut()
    }

    /// Notes that the connection has become a tunnel.
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

    /// Leaves the attempt: its connection is closed, and its place given back.
    pub(super) fn leave_attempt(&mut self) {
        if let Some(attempt) = self.attempt_mut() {
            attempt.slot = None;
            attempt.connection = None;
        }
    }

    /// Takes the attempt out; the phase is `Unbegun` then.
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

    /// Notes that the connection is established.
    pub(super) fn connected(&mut self) {
        if let Some(attempt) = self.take_attempt() {
            *self = ExchangePhase::Asking(attempt);
        }
    }

    /// Notes that the head of the answer is there, or as much as there will be.
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
