//! Why classes and rules are not a policy.

use crate::class::MOST_CLASSES;
use crate::condition::ConditionKind;
use crate::matcher::RegexError;
use crate::rate::Rate;
use crate::rule::{Bounds, MOST_METRICS};
use std::fmt;

/// What is wrong, and where.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyError {
    /// In which class or rule.
    pub at: At,
    /// Under which key of a configuration; empty if it is the whole.
    pub key: &'static str,
    /// What it is.
    pub fault: PolicyFault,
}

/// A class or a rule, by its place in the list that was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// A class.
    Class(usize),
    /// A rule.
    Rule(usize),
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq)]
pub enum PolicyFault {
    /// It has no name.
    NoName,
    /// It has the name of an earlier one.
    SameName,
    /// More than [`MOST_CLASSES`].
    TooManyClasses,
    /// It has the priority of an earlier class.
    SamePriority {
        /// The name of that class.
        other: String,
    },
    /// A second class for whatever no rule classifies.
    SecondDefault {
        /// The name of the first.
        other: String,
    },
    /// The share is not between 0 and 1.
    Share,
    /// The shares up to this one are more than 1 together.
    Shares {
        /// Their sum.
        sum: f64,
    },
    /// A rule without any setting, and without `stop`.
    SaysNothing,
    /// There is no such class.
    UnknownClass {
        /// What was asked for.
        name: String,
        /// The one that is probably meant.
        near: Option<String>,
    },
    /// A limit on connections in a rule that asks for more than addresses.
    NeedsRequest {
        /// The first condition that needs a request.
        condition: ConditionKind,
    },
    /// A number that is out of its range.
    Range {
        /// The number.
        found: u64,
        /// The least.
        least: u64,
        /// The most.
        most: u64,
    },
    /// The rate is so low, or the burst so large, that it takes too long until the burst can be used
    /// again.
    Refill {
        /// The rate.
        rate: Rate,
        /// How long it takes, in seconds.
        takes_s: u64,
        /// How long it may take, in seconds.
        most_s: u64,
    },
    /// A connection has nothing to wait for.
    CannotQueue,
    /// Requests at once wait in one queue for the whole rule, not in one for each client.
    QueueOfClient,
    /// The rate of a rule is not between the bounds within which it may be moved, or a bound is no rate.
    Bounds {
        /// The bounds.
        bounds: Bounds,
        /// The rate.
        rate: Rate,
    },
    /// Bounds for a rate that there is not, or one that each client has for itself.
    NothingToMove,
    /// More rules with metrics of their own than [`MOST_METRICS`].
    TooManyMetrics,
    /// A pattern that ignores capitals takes too much memory.
    Regex(RegexError),
}

impl fmt::Display for PolicyFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PolicyFault::NoName => f.write_str("a name is needed"),
            PolicyFault::SameName => f.write_str("an earlier one has this name"),
            PolicyFault::TooManyClasses => write!(f, "there are at most {MOST_CLASSES} classes"),
            PolicyFault::SamePriority { other } => {
                write!(f, "class {other:?} has this priority; each class has its own")
            }
            PolicyFault::SecondDefault { other } => write!(f, "class {other:?} is the default already"),
            PolicyFault::Share => f.write_str("a share lies between 0 and 1"),
            PolicyFault::Shares { sum } => {
                write!(f, "the shares of the classes make {:.0}% together", sum * 100.0)
            }
            PolicyFault::SaysNothing => f.write_str(
                "the rule says nothing; it needs one of class, connections, requests, in_flight, \
                 action or stop",
            ),
            PolicyFault::UnknownClass { name, near: None } => write!(f, "there is no class {name:?}"),
            PolicyFault::UnknownClass { name, near: Some(near) } => {
                write!(f, "there is no class {name:?}; did you mean {near:?}?")
            }
            PolicyFault::NeedsRequest { condition } => write!(
                f,
                "connections are counted before there is a request, and this rule asks for \
                 \"{condition}\"; only client and local can go with it"
            ),
            PolicyFault::Range { found, least, most } => {
                write!(f, "{found} is not between {least} and {most}")
            }
            PolicyFault::Refill { rate, takes_s, most_s } => write!(
                f,
                "at {rate} it takes {takes_s} s until the whole burst can be used again; at most \
                 {most_s} s are possible"
            ),
            PolicyFault::CannotQueue => f.write_str(
                "only requests can queue; connections can be rejected, reset or dropped",
            ),
            PolicyFault::QueueOfClient => f.write_str(
                "requests at once queue only where all clients share the limit, without per = \"client\"",
            ),
            PolicyFault::Bounds { bounds: Bounds { least, most }, .. }
                if least.is_unlimited() || most.is_unlimited() =>
            {
                f.write_str("rate_min and rate_max must be rates: leave out the one that is \"unlimited\"")
            }
            PolicyFault::Bounds { bounds: Bounds { least, .. }, rate }
                if least.interval_ns() < rate.interval_ns() =>
            {
                write!(f, "rate_min, {least}, is above the rate, {rate}")
            }
            PolicyFault::Bounds { bounds: Bounds { most, .. }, rate } => {
                write!(f, "rate_max, {most}, is below the rate, {rate}")
            }
            PolicyFault::NothingToMove => f.write_str(
                "rate_min and rate_max are for a rate that all clients share, without per = \"client\", \
                 and that is not \"unlimited\"",
            ),
            PolicyFault::TooManyMetrics => {
                write!(f, "at most {MOST_METRICS} rules have metrics of their own")
            }
            PolicyFault::Regex(error) => error.fmt(f),
        }
    }
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, number) = match self.at {
            At::Class(number) => ("class", number),
            At::Rule(number) => ("rule", number),
        };
        write!(f, "{kind} {}: ", number + 1)?;
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        self.fault.fmt(f)
    }
}

impl std::error::Error for PolicyError {}
