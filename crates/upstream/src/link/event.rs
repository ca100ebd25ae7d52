//! Events and actions of a link: what an exchange reports about an attempt, and what the link
//! answers.

use super::flight::{ResumePoint, WholeAnswer};
use crate::group::MemberIndex;

/// What has happened to an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkEvent<'e> {
    /// Some of the request was written: from now on it is not certain that nothing has run.
    Written,
    /// The instance has the request.
    Acknowledged,
    /// The head of the answer has come.
    Head {
        /// The answer that another instance could go on with, if it could.
        whole: Option<WholeAnswer>,
        /// How long the request has waited in the instance, in milliseconds, if the answer says so.
        delay_ms: Option<u64>,
    },
    /// The head of a part of an answer has come; `None` if it is no part, or belongs to another
    /// answer.
    Part(Option<ResumePoint<'e>>),
    /// This number of bytes of the body has come.
    Body(u64),
    /// The answer has ended.
    End,
    /// Nothing of the request has run: there was no connection, nothing was written, or the instance
    /// says so (503 from its own admission).
    Refused,
    /// The instance has given the request back, and nothing of it has run: the instance is about to
    /// end, or has no room for a stream. This is no failure.
    Returned,
    /// The connection had been idle, and ended when it was used. This is no failure.
    Stale,
    /// The connection has ended too early.
    Broken {
        /// Whether the process has ended, too.
        has_ended: bool,
    },
    /// The instance can be reached, but has not answered in the time that an answer may take.
    Late,
    /// The time of [`Link::deadline_ms`](super::Link::deadline_ms) has come.
    Time,
}

/// What the exchange must do with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkAction {
    /// Nothing for now.
    Wait,
    /// Close the connection of the attempt, and keep the copy until
    /// [`Link::deadline_ms`](super::Link::deadline_ms).
    Rest,
    /// Send the copy to this instance, and close the connection of the attempt before.
    Send(MemberIndex),
    /// As `Send`, but ask for the rest of the body, from this byte on.
    Continue(MemberIndex, u64),
    /// Answer the client with this failure.
    Fail(LinkFailure),
    /// Reset the client's connection: some of the answer was sent to it.
    Break,
}

/// Why a request has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkFailure {
    /// The request may have run, and must not run twice.
    Unknown,
    /// The request was sent too often, or no instance took it for too long.
    Exhausted,
    /// Two processes have ended by themselves while the request ran.
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
