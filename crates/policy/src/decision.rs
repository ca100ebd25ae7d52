//! What was decided.

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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
