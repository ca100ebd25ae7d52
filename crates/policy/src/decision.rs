//! Decisions and refusals: the results of judging.

use crate::rule::{Over, Per};
pub use forebay_metrics::{RefusalReason, RefusedAt};

/// The rule that decides each setting. Rules are numbered in the order they were written, from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decisions {
    /// The rank of the class: 0 is served first.
    pub rank: u8,
    /// The rule that gave the class; `None` for the default class.
    pub class: Option<u32>,
    /// The rule whose limit on connections applies.
    pub connections: Option<u32>,
    /// The rule whose limit on requests applies.
    pub requests: Option<u32>,
    /// The rule whose limit on requests at once applies.
    pub in_flight: Option<u32>,
    /// The rule that limits the requests of a connection.
    pub per_connection: Option<u32>,
    /// The rule whose action is taken.
    pub action: Option<u32>,
}

/// What the client of a refused connection or request gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RefusalAnswer {
    /// An error response.
    Reject {
        /// The status.
        status: u16,
        /// The value of `Retry-After`, in seconds; 0 for no such field.
        retry_after_s: u32,
    },
    /// A reset.
    Reset,
    /// No answer where that is possible, otherwise a reset.
    Drop,
}

impl RefusalAnswer {
    /// The answer to a request or connection that is over a limit and would be admitted after `retry_ns`. For
    /// a limit on requests at once that time is unknown, so `Retry-After` is a second.
    pub(crate) fn of(over: Over, per: Per, retry_ns: u64) -> RefusalAnswer {
        let stated = match over {
            Over::Reject { status } => status,
            Over::Queue { .. } => None,
            Over::Reset => return RefusalAnswer::Reset,
            Over::Drop => return RefusalAnswer::Drop,
        };
        let retry_after_s = RefusalAnswer::seconds(retry_ns);
        RefusalAnswer::Reject { status: per.status(stated), retry_after_s }
    }

    /// A time in whole seconds, rounded up, at least 1.
    pub(crate) fn seconds(ns: u64) -> u32 {
        u32::try_from(ns.div_ceil(1_000_000_000)).unwrap_or(u32::MAX).max(1)
    }
}

/// A refusal of a connection or request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyRefusal {
    /// The rank of its class.
    pub rank: u8,
    /// The rule that refused; `None` if no rule did.
    pub rule: Option<u32>,
    /// The reason for the refusal.
    pub reason: RefusalReason,
    /// What the client gets.
    pub answer: RefusalAnswer,
}
