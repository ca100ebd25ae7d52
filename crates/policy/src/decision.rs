//! What was decided.

use std::fmt;

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
    /// The rule whose action is done.
    pub action: Option<u32>,
}

/// Where something was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// When the connection came.
    Accept,
    /// When the head of a request was there.
    Request,
}

impl Place {
    /// All of them.
    pub const ALL: [Place; 2] = [Place::Accept, Place::Request];

    /// The label for it in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Place::Accept => "accept",
            Place::Request => "request",
        }
    }
}

/// Why something was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// A rule's action says so.
    Action,
    /// A rule's limit on connections.
    Connections,
    /// A rule's limit on requests.
    Requests,
    /// A rule's limit on requests at once.
    InFlight,
    /// It would have to wait too long for its turn, or too many do.
    Queue,
    /// The client was refused a moment ago and is ignored.
    Ignored,
    /// The agent's limit on the class.
    Agent,
    /// It has waited too long for a worker.
    Expired,
}

impl Reason {
    /// All of them.
    pub const ALL: [Reason; 8] = [
        Reason::Action,
        Reason::Connections,
        Reason::Requests,
        Reason::InFlight,
        Reason::Queue,
        Reason::Ignored,
        Reason::Agent,
        Reason::Expired,
    ];

    /// The label for it in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::Action => "action",
            Reason::Connections => "connections",
            Reason::Requests => "requests",
            Reason::InFlight => "in_flight",
            Reason::Queue => "queue",
            Reason::Ignored => "ignored",
            Reason::Agent => "agent",
            Reason::Expired => "expired",
        }
    }
}

/// What becomes of that which is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
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
pub struct Refused {
    /// Its class, as its place in the order.
    pub rank: u8,
    /// The rule that refused; `None` if no rule did.
    pub rule: Option<u32>,
    /// Why.
    pub reason: Reason,
    /// What the client gets.
    pub answer: Answer,
}

macro_rules! display {
    ($($type:ty),*) => {$(
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    )*};
}
display!(Place, Reason);
