//! The errors of a policy: why classes and rules cannot be compiled.

use crate::class::MOST_CLASSES;
use crate::condition::ConditionKind;
use crate::matcher::RegexError;
use crate::rate::Rate;
use crate::rule::{Bounds, MOST_METRICS};
use std::fmt;

/// An error in a class or a rule, with its place.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyError {
    /// The class or rule that has the error.
    pub at: At,
    /// The key of the configuration that has the error; empty if the whole class or rule has it.
    pub key: &'static str,
    /// The error.
    pub fault: PolicyFault,
}

/// A class or a rule, by its position in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// A class.
    Class(usize),
    /// A rule.
    Rule(usize),
}

/// An error in classes or rules.
#[derive(Clone, Debug, PartialEq)]
pub enum PolicyFault {
    /// The class or rule has no name.
    NoName,
    /// An earlier class or rule has the same name.
    SameName,
    /// There are more classes than [`MOST_CLASSES`].
    TooManyClasses,
    /// An earlier class has the same priority.
    SamePriority {
        /// The name of the earlier class.
        other: String,
    },
    /// A second class is the default.
    SecondDefault {
        /// The name of the first default class.
        other: String,
    },
    /// The share is not between 0 and 1.
    Share,
    /// The shares up to this class add up to more than 1.
    Shares {
        /// Their sum.
        sum: f64,
    },
    /// The rule has no setting, and no `stop`.
    SaysNothing,
    /// No class has the name that the rule gives.
    UnknownClass {
        /// The name in the rule.
        name: String,
        /// The closest existing name, if one is close.
        near: Option<String>,
    },
    /// The rule limits connections, but has conditions on more than addresses.
    NeedsRequest {
        /// The first of these conditions.
        condition: ConditionKind,
    },
    /// A number is out of its range.
    Range {
        /// The number in the configuration.
        found: u64,
        /// The least that is allowed.
        least: u64,
        /// The most that is allowed.
        most: u64,
    },
    /// The rate is so low, or the burst so large, that it takes too long until the whole burst can be used
    /// again.
    Refill {
        /// The rate.
        rate: Rate,
        /// How long it takes, in seconds.
        takes_s: u64,
        /// How long it may take, in seconds.
        most_s: u64,
    },
    /// A limit on connections has `over` set to queue, but only requests can wait.
    CannotQueue,
    /// A limit on requests at once counts each client by itself and queues: its queue is for the whole rule.
    QueueOfClient,
    /// The rule's rate is not within the bounds between which it may be moved, or a bound is not a rate.
    Bounds {
        /// The bounds.
        bounds: Bounds,
        /// The rate.
        rate: Rate,
    },
    /// The rule has bounds, but no rate to move, or a rate that each client has for itself.
    NothingToMove,
    /// More than [`MOST_METRICS`] rules have metrics of their own.
    TooManyMetrics,
    /// A pattern that ignores case takes too much memory.
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
