//! What was decided.

use crate::rule::{Over, Per};
pub use forebay_metrics::{RefusalReason, RefusedAt};

/// Which rule decides what: numbers of rules in the order they were written, from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decisions {
    /// The class, as its place in the order: 0 is served first.
    pub rank: u8,
    /// The rule that gave the class; `None` if it is the default.
    pub class: Option<u32>,
    /// The rule whose limit on connections holds.
    pub connections: Option<u32>,
    /// The rule whose limit on requests holds.
    pub requests: Option<u32>,
    /// The rule whose limit on requests at once holds.
    pub in_flight: Option<u32>,
    /// The rule that says after how many requests a connection ends.
    pub per_connection: Option<u32>,
    /// The rule whose action is done.
    pub action: Option<u32>,
}

/// What becomes of that which is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RefusalAnswer {
    /// An error.
    Reject {
        /// Its status.
        status: u16,
        /// What `Retry-After` says, in seconds; 0 for nothing.
        retry_after_s: u32,
    },
    /// A reset.
    Reset,
    /// Silence where that is possible, else a reset.
    Drop,
}

impl RefusalAnswer {
    /// What becomes of that which is over a limit, and would be admitted after so long. When one of the requests at
    /// once ends is not known; a second is as good as anything.
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

    /// Rounded up, at least 1.
    pub(crate) fn seconds(ns: u64) -> u32 {
        u32::try_from(ns.div_ceil(1_000_000_000)).unwrap_or(u32::MAX).max(1)
    }
}

/// A refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyRefusal {
    /// Its class, as its place in the order.
    pub rank: u8,
    /// The rule that refused; `None` if no rule did.
    pub rule: Option<u32>,
    /// Why.
    pub reason: RefusalReason,
    /// What the client gets.
    pub answer: RefusalAnswer,
}
