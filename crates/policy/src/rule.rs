//! Rules: which requests they apply to, and what they say.

use crate::condition::Conditions;
use crate::rate::Rate;

/// One rule. Its settings are those that are `Some`. Of all rules that match, the first that has a setting
/// decides it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rule {
    /// The name in logs, metrics and commands. Unique, not empty.
    pub name: String,
    /// The degrees of overload in which the rule applies.
    pub when: When,
    /// Whether later rules are skipped once this one matches.
    pub stop: bool,
    /// The requests that the rule applies to.
    pub conditions: Conditions,
    /// The name of the class that the rule gives.
    pub class: Option<String>,
    /// The limit on connections per time. Only for rules that ask for addresses only.
    pub connections: Option<Limit>,
    /// The limit on requests per time.
    pub requests: Option<Limit>,
    /// The bounds between which an agent may move the rate of requests; `requests` states the rate at the
    /// start, and without an agent.
    pub bounds: Option<Bounds>,
    /// The limit on requests at once.
    pub in_flight: Option<InFlight>,
    /// The number of requests after which their connection ends, at least 1.
    pub requests_per_connection: Option<u32>,
    /// What is done with a matching request, whatever the limits say.
    pub action: Option<Action>,
    /// Whether the rule has metrics of its own.
    pub metric: bool,
}

impl Rule {
    /// Whether the rule drops connections by the client's address alone, always and whatever its port.
    pub fn drops_addresses(&self) -> bool {
        let conditions = &self.conditions;
        self.is_for_connections()
            && self.action == Some(Action::Drop)
            && self.when.from(JudgePhase::Connection) == Degree::NORMAL
            && conditions.local.is_empty()
            && conditions.client.iter().all(|endpoint| endpoint.ports().is_none())
    }

    /// Whether the rule asks for addresses only, so that it can judge a connection before there is a request.
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

/// The degree of overload. At each degree another mechanism begins (voigt §3); the cheapest and earliest one
/// begins at the highest degree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Degree(u8);

impl Degree {
    /// No overload.
    pub const NORMAL: Degree = Degree(0);
    /// Requests are refused after their head.
    pub const HEADER_CONTROL: Degree = Degree(1);
    /// Classes are put in another order.
    pub const CLASS_ORDER: Degree = Degree(2);
    /// Connections are refused.
    pub const SYN_POLICING: Degree = Degree(3);

    /// The degree with this number; the highest one for a larger number.
    pub fn of(number: u8) -> Degree {
        Degree(number.min(Degree::SYN_POLICING.0))
    }

    /// The number of the degree; 0 for no overload.
    #[inline]
    pub fn number(self) -> u8 {
        self.0
    }
}

/// Converts "overloaded" into the highest degree, and "not overloaded" into none.
impl From<bool> for Degree {
    fn from(is_overload: bool) -> Degree {
        if is_overload { Degree::SYN_POLICING } else { Degree::NORMAL }
    }
}

/// The degrees of overload in which a rule applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum When {
    /// Always.
    #[default]
    Always,
    /// While the server is overloaded: for requests from the lowest degree on, for connections only at the
    /// highest.
    Overload,
    /// From this degree on, for both.
    From(Degree),
}

/// The phase in which a rule is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JudgePhase {
    /// Once per connection, when it comes, by rules that ask for addresses only.
    Connection,
    /// Once per request, by all rules.
    Request,
}

impl When {
    /// The name of the phase in a configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            When::Always | When::From(Degree(0)) => "always",
            When::Overload => "overload",
            When::From(Degree::HEADER_CONTROL) => "header_control",
            When::From(Degree::CLASS_ORDER) => "class_order",
            When::From(_) => "syn_policing",
        }
    }

    /// The lowest degree at which the rule applies in this phase.
    pub fn from(self, phase: JudgePhase) -> Degree {
        match (self, phase) {
            (When::Always, _) => Degree::NORMAL,
            (When::Overload, JudgePhase::Request) => Degree::HEADER_CONTROL,
            (When::Overload, JudgePhase::Connection) => Degree::SYN_POLICING,
            (When::From(degree), _) => degree,
        }
    }
}

/// A limit on how often something may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The average rate.
    pub rate: Rate,
    /// The number of events at once after a time without any: at least 1.
    pub burst: u32,
    /// The clients that are counted together.
    pub per: Per,
    /// What happens to events over the limit.
    pub over: Over,
    /// How long new connections of a client are ignored after it was refused; `None` for not at all. At most
    /// [`MOST_IGNORE_MS`] (voigt §4.5.1).
    pub ignore_ms: Option<u32>,
}

/// The bounds between which the rate of a limit may be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The lowest rate.
    pub least: Rate,
    /// The highest rate.
    pub most: Rate,
}

/// The largest number of rules that have metrics of their own: each has two series.
pub const MOST_METRICS: usize = 500;

/// The longest time for which a client is ignored: a day.
pub const MOST_IGNORE_MS: u32 = 86_400_000;

/// The longest wait of a request in a queue that does not state one.
pub const QUEUE_DEADLINE_MS: u32 = 1000;

/// The largest number of waiting requests in a queue that does not state one.
pub const MOST_QUEUED: u32 = 100;

/// The status of a rejecting action that does not state one.
pub const REJECT_STATUS: u16 = 403;

impl Limit {
    /// A limit on all matching events together; those over it are rejected.
    pub fn new(rate: Rate, burst: u32) -> Limit {
        Limit { rate, burst, per: Per::Rule, over: Over::default(), ignore_ms: None }
    }

    /// How long a refused client is ignored, in nanoseconds.
    pub(crate) fn ignored_ns(&self) -> Option<u64> {
        self.ignore_ms.map(|ignore_ms| u64::from(ignore_ms) * 1_000_000)
    }
}

/// A limit on the requests that are served, or wait for it, at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InFlight {
    /// The limit, at least 1.
    pub most: u32,
    /// The clients that are counted together.
    pub per: Per,
    /// What happens to requests over the limit.
    pub over: Over,
}

/// Whether a limit counts all clients together or each by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Per {
    /// All requests or connections that match the rule count together.
    #[default]
    Rule,
    /// Requests or connections of each client count by themselves: of an IPv4 address or an IPv6 /64.
    Client,
}

/// What happens to a connection or request that is over a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// An error response is sent.
    Reject {
        /// The status, 400 to 599; `None` for 503, or 429 if the limit is one client's.
        status: Option<u16>,
    },
    /// The connection is reset.
    Reset,
    /// No answer is sent; where silence is not possible, the connection is reset.
    Drop,
    /// The request waits: over a rate, for its turn; over a number at once, for the end of another. Only for
    /// requests; over a number at once only where all clients of the rule share the limit.
    Queue {
        /// The longest wait, 1 to 60,000 ms.
        deadline_ms: u32,
        /// The largest number that wait at once, at least 1 (for each client, if the limit is one client's).
        most: u32,
    },
}

impl Default for Over {
    fn default() -> Over {
        Over::Reject { status: None }
    }
}

impl Over {
    /// The name in a configuration.
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
    /// No action refuses the request. Limits still hold.
    Allow,
    /// The request is answered with this status, 400 to 599.
    Reject(u16),
    /// The connection is reset.
    Reset,
    /// The request gets no answer; where silence is not possible, its connection is reset.
    Drop,
}

impl Action {
    /// The name in a configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Action::Allow => "allow",
            Action::Reject(_) => "reject",
            Action::Reset => "reset",
            Action::Drop => "drop",
        }
    }
}
