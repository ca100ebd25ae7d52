//! What a link is told of an attempt, and what it says is to be done.

use super::flight::{ResumePoint, WholeAnswer};
use crate::group::MemberIndex;

/// What has come of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkEvent<'e> {
    /// Some of the request was written: from here on it is not certain that nothing has run.
    Written,
    /// The instance has the request.
    Acknowledged,
    /// The head of the answer, and whether another instance could go on with its body. `delay_ms`: how long
    /// the request has waited there, if that was said.
    Head {
        /// What another would go on with.
        whole: Option<WholeAnswer>,
        /// How long it has waited.
        delay_ms: Option<u64>,
    },
    /// The head of a part; `None` if it is no part, or not one of that answer.
    Part(Option<ResumePoint<'e>>),
    /// So many bytes of the body.
    Body(u64),
    /// The end of the answer.
    End,
    /// Nothing of it has run: no connection, nothing was written, or the instance says so (503 from its
    /// own admission).
    Refused,
    /// The instance has given the request back, of which nothing has run: it is about to end, or has no room for
    /// a stream. That is no failure.
    Returned,
    /// The connection had been idle, and ended when it was used: that is no failure.
    Stale,
    /// The connection has ended too early. `has_ended`: with the process.
    Broken {
        /// The process ended.
        has_ended: bool,
    },
    /// The instance is there, and yet has not answered in the time that an answer may take.
    Late,
    /// The time has come that [`Link::deadline_ms`](super::Link::deadline_ms) says.
    Time,
}

/// What is to be done for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkAction {
    /// Nothing.
    Wait,
    /// The connection of the attempt is closed. The copy is kept until [`Link::deadline_ms`](super::Link::deadline_ms).
    Rest,
    /// The copy goes to this instance; the connection of the attempt before is closed.
    Send(MemberIndex),
    /// As `Send`, and the rest of the body is asked for, from this byte on.
    Continue(MemberIndex, u64),
    /// The client is told why there is no answer.
    Fail(LinkFailure),
    /// Some of the answer is with the client: its connection is reset.
    Break,
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkFailure {
    /// It may have run, and must not run twice.
    Unknown,
    /// It was sent too often, or no instance took it for too long.
    Exhausted,
    /// Two processes have ended by themselves while it ran.
    Quarantined,
}

impl LinkFailure {
    /// The status for the client.
    pub fn status(self) -> u16 {
        match self {
            LinkFailure::Unknown => 502,
            LinkFailure::Exhausted | LinkFailure::Quarantined => 503,
        }
    }
}
