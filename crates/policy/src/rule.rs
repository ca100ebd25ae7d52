//! Rules: which requests they are for, and what they say.

use crate::condition::Conditions;
use crate::rate::Rate;

/// One rule. Its settings are those that are `Some`; of all rules that match, the first that has a
/// setting decides it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rule {
    /// What logs and people call it. Different from all others, not empty.
    pub name: String,
    /// When it counts.
    pub when: When,
    /// Whether the rules behind it are not looked at once it matches.
    pub stop: bool,
    /// Which requests it is for.
    pub conditions: Conditions,
    /// The class of what matches, by its name.
    pub class: Option<String>,
    /// How many connections per time. Only for rules that ask for addresses only.
    pub connections: Option<Limit>,
    /// How many requests per time.
    pub requests: Option<Limit>,
    /// Between which rates of requests an agent may choose; `requests` says where it begins, and what
    /// holds without an agent.
    pub bounds: Option<Bounds>,
    /// How many requests at once.
    pub in_flight: Option<InFlight>,
    /// After how many requests a connection ends, at least 1.
    pub requests_per_connection: Option<u32>,
    /// What is done with it, whatever the limits say.
    pub action: Option<Action>,
    /// Whether it has metrics of its own.
    pub metric: bool,
}

impl Rule {
    /// Whether an address is all that is needed to drop what it is for.
    pub fn drops_addresses(&self) -> bool {
        let conditions = &self.conditions;
        self.is_for_connections()
            && self.action == Some(Action::Drop)
            && self.when.from(JudgePhase::Connection) == Degree::NORMAL
            && conditions.local.is_empty()
            && conditions.client.iter().all(|endpoint| endpoint.ports().is_none())
    }

    /// Whether it asks for addresses only, so that a connection can be judged by it before there is a
    /// request.
    pub fn is_for_connections(&self) -> bool {
        let Conditions {
            client: _,
            local: _,
            site,
            method,
            path,
            query,
            file_type,
            certificate,
            identity,
            header,
            cookie,
            ignore_case: _,
        } = &self.conditions;
        site.is_empty()
            && method.is_empty()
            && path.is_empty()
            && query.is_empty()
            && file_type.is_empty()
            && certificate.is_empty()
            && identity.is_empty()
            && header.is_empty()
            && cookie.is_empty()
    }
}

/// How overloaded the server is: each degree has a mechanism that begins there (voigt §3). The cheapest
/// and earliest begins at the highest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Degree(u8);

impl Degree {
    /// Not at all.
    pub const NORMAL: Degree = Degree(0);
    /// Requests are refused after their head.
    pub const HEADER_CONTROL: Degree = Degree(1);
    /// Classes are put in another order.
    pub const CLASS_ORDER: Degree = Degree(2);
    /// Connections are refused.
    pub const SYN_POLICING: Degree = Degree(3);

    /// The degree of this number; of a larger one the highest.
    pub fn of(number: u8) -> Degree {
        Degree(number.min(Degree::SYN_POLICING.0))
    }

    /// 0 for none.
    #[inline]
    pub fn number(self) -> u8 {
        self.0
    }
}

/// Whether there is overload, of the highest degree if so.
impl From<bool> for Degree {
    fn from(is_overload: bool) -> Degree {
        if is_overload { Degree::SYN_POLICING } else { Degree::NORMAL }
    }
}

/// When a rule counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum When {
    /// Always.
    #[default]
    Always,
    /// While the server is overloaded: for requests from the lowest degree on, for connections at the
    /// highest.
    Overload,
    /// From this degree on, for both.
    From(Degree),
}

/// A phase of judging.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JudgePhase {
    /// Once, when a connection comes, by rules that ask for addresses only.
    Connection,
    /// For each request, by all rules.
    Request,
}

impl When {
    /// The word for it in a configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            When::Always | When::From(Degree(0)) => "always",
            When::Overload => "overload",
            When::From(Degree::HEADER_CONTROL) => "header_control",
            When::From(Degree::CLASS_ORDER) => "class_order",
            When::From(_) => "syn_policing",
        }
    }

    /// The lowest degree at which it counts in this phase.
    pub fn from(self, phase: JudgePhase) -> Degree {
        match (self, phase) {
            (When::Always, _) => Degree::NORMAL,
            (When::Overload, JudgePhase::Request) => Degree::HEADER_CONTROL,
            (When::Overload, JudgePhase::Connection) => Degree::SYN_POLICING,
            (When::From(degree), _) => degree,
        }
    }
}

/// How often something may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// On average.
    pub rate: Rate,
    /// How many at once when there were none for a while: at least 1.
    pub burst: u32,
    /// Of which clients.
    pub per: Per,
    /// What becomes of the others.
    pub over: Over,
    /// For how long new connections of a client are ignored after it was refused; `None` for not at
    /// all. At most [`MOST_IGNORE_MS`] (voigt §4.5.1).
    pub ignore_ms: Option<u32>,
}

/// Between which rates a limit may be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The lowest.
    pub least: Rate,
    /// The highest.
    pub most: Rate,
}

/// So many rules have metrics of their own at most: each has two series.
pub const MOST_METRICS: usize = 500;

/// The longest time that a client is ignored: a day.
pub const MOST_IGNORE_MS: u32 = 86_400_000;

/// How long a request waits at most where a queue does not say.
pub const QUEUE_DEADLINE_MS: u32 = 1000;

/// How many requests wait at most where a queue does not say.
pub const MOST_QUEUED: u32 = 100;

/// The status of an action that rejects and states none.
pub const REJECT_STATUS: u16 = 403;

impl Limit {
    /// A limit on all that matches together; what is over it is rejected.
    pub fn new(rate: Rate, burst: u32) -> Limit {
        Limit { rate, burst, per: Per::Rule, over: Over::default(), ignore_ms: None }
    }

    /// For how long a client that was refused is ignored, in nanoseconds.
    pub(crate) fn ignored_ns(&self) -> Option<u64> {
        self.ignore_ms.map(|ignore_ms| u64::from(ignore_ms) * 1_000_000)
    }
}

/// How many requests may be worked on, or wait for it, at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InFlight {
    /// At least 1.
    pub most: u32,
    /// Of which clients.
    pub per: Per,
    /// What becomes of the others.
    pub over: Over,
}

/// Whose requests or connections a limit counts together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Per {
    /// All that match the rule.
    #[default]
    Rule,
    /// Those of one client: an IPv4 address or an IPv6 /64.
    Client,
}

/// What becomes of that which is over a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// It is answered with an error.
    Reject {
        /// 400 to 599; `None` for 503, or 429 if the limit is one client's.
        status: Option<u16>,
    },
    /// Its connection is reset.
    Reset,
    /// It gets no answer; where silence is not possible, its connection is reset.
    Drop,
    /// It waits: for its turn if a rate is exceeded, for the end of another if too many are under way.
    /// Only for requests; for those at once only where all whom the rule is about share the limit.
    Queue {
        /// At most so long, 1 to 60,000 ms.
        deadline_ms: u32,
        /// At most so many wait at once, at least 1 (of one client, if the limit is one client's).
        most: u32,
    },
}

impl Default for Over {
    fn default() -> Over {
        Over::Reject { status: None }
    }
}

impl Over {
    /// The word for it in a configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Over::Reject { .. } => "reject",
            Over::Reset => "reset",
            Over::Drop => "drop",
            Over::Queue { .. } => "queue",
        }
    }
}

/// What is done with a connection or request, whatever the limits say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It is not refused by an action. Limits hold.
    Allow,
    /// It is answered with this status, 400 to 599.
    Reject(u16),
    /// Its connection is reset.
    Reset,
    /// It gets no answer; where silence is not possible, its connection is reset.
    Drop,
}

impl Action {
    /// The word for it in a configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Action::Allow => "allow",
            Action::Reject(_) => "reject",
            Action::Reset => "reset",
            Action::Drop => "drop",
        }
    }
}
