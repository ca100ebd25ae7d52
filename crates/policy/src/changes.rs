//! Changes of a policy while it is in force: `NAME.KEY` and a value, as people type them.
//!
//! | key of a rule | value |
//! |---|---|
//! | `when` | `always`, `overload` |
//! | `stop` | `true`, `false` |
//! | `class` | the name of a class, `none` |
//! | `action` | `allow`, `reject`, `reject 429`, `reset`, `drop`, `none` |
//! | `connections`, `requests`, `in_flight` | `none` takes the limit away |
//! | `connections.rate`, `requests.rate` | `60/s`; it makes the limit if there is none |
//! | `connections.burst`, `requests.burst` | a number |
//! | `in_flight.most` | a number; it makes the limit if there is none |
//! | `….per` | `rule`, `client` |
//! | `….over` | `reject`, `reject 429`, `reset`, `drop`; for requests also `queue` |
//! | `requests.deadline`, `requests.most` | `500ms`, a number; only where requests queue |
//! | `connections.ignore`, `requests.ignore` | `5s`, `none` |
//!
//! What stands in only one of the limits that a rule has needs no prefix: `rate`, `burst`, `most`.
//! A class has `share` (`20%`), `delay` (`20ms`) and `priority`. What is said of names in a
//! configuration holds here; conditions do not change.

use crate::class::Class;
use crate::error::{At, Fault};
use crate::near::nearest;
use crate::policy::Policy;
use crate::rate::Rate;
use crate::rule::{
    Action, InFlight, Limit, MOST_QUEUED, Over, Per, QUEUE_DEADLINE_MS, REJECT_STATUS, Rule, When,
};
use std::fmt;

/// Why a policy cannot be changed so.
#[derive(Clone, Debug, PartialEq)]
pub enum ChangeError {
    /// What was named is neither a class nor a rule.
    Name {
        /// The whole of `NAME.KEY`.
        text: String,
        /// The name that is probably meant.
        near: Option<String>,
    },
    /// A class or rule has no such key.
    Key {
        /// Its name.
        name: String,
        /// The key.
        key: String,
        /// The key that is probably meant.
        near: Option<&'static str>,
    },
    /// A key that stands in more than one limit of the rule.
    Ambiguous {
        /// The name of the rule.
        name: String,
        /// One of them.
        one: String,
        /// Another.
        other: String,
    },
    /// A key of a limit that the rule does not have.
    NoLimit {
        /// The name of the rule.
        name: String,
        /// The key that makes the limit.
        first: &'static str,
    },
    /// A key that means something only with another value of `over`.
    Without {
        /// `NAME.KEY`.
        text: String,
        /// What is needed.
        needs: &'static str,
    },
    /// A value that is none for this key.
    Value {
        /// `NAME.KEY`.
        text: String,
        /// The value.
        found: String,
        /// What belongs there.
        expected: &'static str,
    },
    /// Each is good by itself, but together they are no policy.
    Policy {
        /// The name of the class or rule.
        name: String,
        /// The key there.
        key: &'static str,
        /// What is wrong.
        fault: Fault,
    },
}

/// What is wrong with one change, before its name is known.
enum Wrong {
    Key(Option<&'static str>),
    Ambiguous(String, String),
    NoLimit(&'static str),
    Without(&'static str),
    Value(&'static str),
}

const CLASS_KEYS: &[&str] = &["share", "delay", "priority"];

const RULE_KEYS: &[&str] = &[
    "when",
    "stop",
    "class",
    "action",
    "connections",
    "requests",
    "in_flight",
    "connections.rate",
    "connections.burst",
    "connections.per",
    "connections.over",
    "connections.ignore",
    "requests.rate",
    "requests.burst",
    "requests.per",
    "requests.over",
    "requests.deadline",
    "requests.most",
    "requests.ignore",
    "in_flight.most",
    "in_flight.per",
    "in_flight.over",
];

impl Policy {
    /// The same policy with changes, each a `NAME.KEY` and a value. All are made, or none.
    ///
    /// # Errors
    /// The first that cannot be made, and why.
    pub fn with_changes(&self, changes: &[(&str, &str)]) -> Result<Policy, ChangeError> {
        let (mut classes, mut rules) = (self.classes().to_vec(), self.rules().to_vec());
        for (text, value) in changes {
            change(&mut classes, &mut rules, text, value.trim())?;
        }
        Policy::new(&classes, rules.clone()).map_err(|error| {
            let name = match error.at {
                At::Class(number) => &classes[number].name,
                At::Rule(number) => &rules[number].name,
            };
            ChangeError::Policy { name: name.clone(), key: error.key, fault: error.fault }
        })
    }
}

fn change(
    classes: &mut [Class],
    rules: &mut [Rule],
    text: &str,
    value: &str,
) -> Result<(), ChangeError> {
    // names may have dots: the longest that fits is meant
    let key_of = |name: &str| Some((name.len(), text.strip_prefix(name)?.strip_prefix('.')?));
    let class = classes.iter_mut().filter_map(|one| Some((key_of(&one.name)?, one)));
    let rule = rules.iter_mut().filter_map(|one| Some((key_of(&one.name)?, one)));
    let class = class.max_by_key(|((len, _), _)| *len);
    let rule = rule.max_by_key(|((len, _), _)| *len);
    match (class, rule) {
        // a class may have the name of a rule: its keys are others
        (Some(((_, key), class)), rule) if CLASS_KEYS.contains(&key) || rule.is_none() => {
            change_class(class, key, value).map_err(|wrong| wrong.of(&class.name, key, value))
        }
        (_, Some(((_, key), rule))) => {
            change_rule(rule, key, value).map_err(|wrong| wrong.of(&rule.name, key, value))
        }
        _ => {
            let names =
                classes.iter().map(|one| &*one.name).chain(rules.iter().map(|one| &*one.name));
            let near = nearest(without_key(text), names).map(str::to_owned);
            Err(ChangeError::Name { text: text.to_owned(), near })
        }
    }
}

/// What was probably meant as the name.
fn without_key(text: &str) -> &str {
    let keys = RULE_KEYS.iter().chain(CLASS_KEYS).chain(&["rate", "burst", "most"]);
    let names = keys.filter_map(|key| text.strip_suffix(key)?.strip_suffix('.'));
    let last = || text.rsplit_once('.').map_or(text, |(name, _)| name);
    names.min_by_key(|name| name.len()).unwrap_or_else(last)
}

fn change_class(class: &mut Class, key: &str, value: &str) -> Result<(), Wrong> {
    match key {
        "share" => class.share = share(value)?,
        "delay" => class.delay_ms = milliseconds(value)?,
        "priority" => class.priority = number(value)?,
        _ => return Err(Wrong::Key(nearest(key, CLASS_KEYS.iter().copied()))),
    }
    Ok(())
}

fn change_rule(rule: &mut Rule, key: &str, value: &str) -> Result<(), Wrong> {
    match key {
        "when" => {
            rule.when = word(value, &[When::Always, When::Overload], When::as_str)
                .ok_or(Wrong::Value("always or overload"))?;
        }
        "stop" => rule.stop = value.parse().map_err(|_| Wrong::Value("true or false"))?,
        "class" => rule.class = (value != "none").then(|| value.to_owned()),
        "action" => rule.action = action(value)?,
        "connections" => rule.connections = none(value)?,
        "requests" => rule.requests = none(value)?,
        "in_flight" => rule.in_flight = none(value)?,
        key => match key.split_once('.') {
            Some(("connections", part)) => change_limit(&mut rule.connections, key, part, value)?,
            Some(("requests", part)) => change_limit(&mut rule.requests, key, part, value)?,
            Some(("in_flight", part)) => change_in_flight(&mut rule.in_flight, key, part, value)?,
            _ => return change_rule(rule, whole_key(rule, key)?, value),
        },
    }
    Ok(())
}

/// The key with the limit that it is meant for.
fn whole_key(rule: &Rule, part: &str) -> Result<&'static str, Wrong> {
    let has = |key: &str| match key.split_once('.') {
        Some(("connections", _)) => rule.connections.is_some(),
        // a number of requests that wait, if any do
        Some(("requests", "most" | "deadline")) => {
            rule.requests.is_some_and(|limit| matches!(limit.over, Over::Queue { .. }))
        }
        Some(("requests", _)) => rule.requests.is_some(),
        _ => rule.in_flight.is_some(),
    };
    let is_meant = |key: &&str| key.split_once('.').is_some_and(|(_, other)| other == part);
    let mut meant = RULE_KEYS.iter().copied().filter(is_meant);
    let mut there = meant.clone().filter(|key| has(key));
    match (there.next(), there.next()) {
        (Some(one), None) => Ok(one),
        (Some(one), Some(other)) => Err(Wrong::Ambiguous(one.to_owned(), other.to_owned())),
        (None, _) => match meant.next() {
            Some(key) => Err(Wrong::NoLimit(first_of(key))),
            None => Err(Wrong::Key(nearest(part, RULE_KEYS.iter().copied()))),
        },
    }
}

/// The key that makes the limit.
fn first_of(key: &str) -> &'static str {
    match key.split_once('.') {
        Some(("connections", _)) => "connections.rate",
        Some(("requests", _)) => "requests.rate",
        _ => "in_flight.most",
    }
}

fn change_limit(
    limit: &mut Option<Limit>,
    key: &str,
    part: &str,
    value: &str,
) -> Result<(), Wrong> {
    let is_of_requests = key.starts_with("requests");
    if part == "rate" {
        let rate =
            Rate::parse(value).map_err(|_| Wrong::Value("a rate such as 60/s, 10/m or 1/h"))?;
        // as in a configuration: what resets a connection costs the least
        let over = if is_of_requests { Over::default() } else { Over::Reset };
        limit.get_or_insert(Limit { over, ..Limit::new(rate, 1) }).rate = rate;
        return Ok(());
    }
    let is_known = RULE_KEYS.contains(&key);
    let Some(limit) = limit else {
        return Err(if is_known { Wrong::NoLimit(first_of(key)) } else { unknown(key) });
    };
    match (part, &mut limit.over) {
        ("burst", _) => limit.burst = number(value)?,
        ("per", _) => limit.per = per(value)?,
        ("over", over) => *over = over_of(value, *over, is_of_requests)?,
        ("ignore", _) if value == "none" => limit.ignore_ms = None,
        ("ignore", _) => limit.ignore_ms = Some(milliseconds(value)?),
        ("deadline", Over::Queue { deadline_ms, .. }) => *deadline_ms = milliseconds(value)?,
        ("most", Over::Queue { most, .. }) => *most = number(value)?,
        ("deadline" | "most", _) if is_known => return Err(Wrong::Without("requests.over=queue")),
        _ => return Err(unknown(key)),
    }
    Ok(())
}

fn change_in_flight(
    limit: &mut Option<InFlight>,
    key: &str,
    part: &str,
    value: &str,
) -> Result<(), Wrong> {
    if part == "most" {
        let most = number(value)?;
        let new = InFlight { most, per: Per::default(), over: Over::default() };
        limit.get_or_insert(new).most = most;
        return Ok(());
    }
    let is_known = RULE_KEYS.contains(&key);
    let Some(limit) = limit else {
        return Err(if is_known { Wrong::NoLimit(first_of(key)) } else { unknown(key) });
    };
    match part {
        "per" => limit.per = per(value)?,
        "over" => limit.over = over_of(value, limit.over, false)?,
        _ => return Err(unknown(key)),
    }
    Ok(())
}

fn unknown(key: &str) -> Wrong {
    Wrong::Key(nearest(key, RULE_KEYS.iter().copied()))
}

fn word<T: Copy>(text: &str, all: &[T], name: impl Fn(T) -> &'static str) -> Option<T> {
    all.iter().copied().find(|one| name(*one) == text)
}

fn none<T>(value: &str) -> Result<Option<T>, Wrong> {
    let expected = "none; what a limit says has keys of its own, such as requests.rate";
    if value == "none" { Ok(None) } else { Err(Wrong::Value(expected)) }
}

fn per(value: &str) -> Result<Per, Wrong> {
    word(value, &[Per::Rule, Per::Client], Per::as_str).ok_or(Wrong::Value("rule or client"))
}

/// `reject`, with or without a status.
fn reject(value: &str) -> Option<Option<u16>> {
    match value.strip_prefix("reject")? {
        "" => Some(None),
        status => {
            let status = status.strip_prefix(' ')?;
            status.parse().ok().filter(|status| (400..600).contains(status)).map(Some)
        }
    }
}

fn action(value: &str) -> Result<Option<Action>, Wrong> {
    if let Some(status) = reject(value) {
        return Ok(Some(Action::Reject(status.unwrap_or(REJECT_STATUS))));
    }
    match value {
        "none" => Ok(None),
        value => word(value, &[Action::Allow, Action::Reset, Action::Drop], Action::as_str)
            .map(Some)
            .ok_or(Wrong::Value("allow, reject, \"reject 429\", reset, drop or none")),
    }
}

fn over_of(value: &str, before: Over, may_queue: bool) -> Result<Over, Wrong> {
    if let Some(status) = reject(value) {
        return Ok(Over::Reject { status });
    }
    match (value, before) {
        ("queue", Over::Queue { .. }) => Ok(before),
        ("queue", _) if may_queue => {
            Ok(Over::Queue { deadline_ms: QUEUE_DEADLINE_MS, most: MOST_QUEUED })
        }
        (value, _) => word(value, &[Over::Reset, Over::Drop], Over::as_str).ok_or(Wrong::Value(
            match may_queue {
                true => "reject, \"reject 429\", reset, drop or queue",
                false => "reject, \"reject 429\", reset or drop",
            },
        )),
    }
}

fn number<T: std::str::FromStr>(value: &str) -> Result<T, Wrong> {
    let is_digits = value.bytes().all(|byte| byte.is_ascii_digit());
    value.parse().ok().filter(|_| is_digits).ok_or(Wrong::Value("a whole number"))
}

fn milliseconds(value: &str) -> Result<u32, Wrong> {
    const UNITS: [(&str, u32); 4] = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000)];
    let digits = value.bytes().take_while(u8::is_ascii_digit).count();
    let (count, unit) = value.split_at(digits);
    let factor = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor);
    let time =
        count.parse::<u32>().ok().zip(factor).and_then(|(count, factor)| count.checked_mul(factor));
    time.ok_or(Wrong::Value("a time such as 500ms, 5s or 1m"))
}

fn share(value: &str) -> Result<f64, Wrong> {
    let percent = value
        .strip_suffix('%')
        .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.'));
    let percent = percent.and_then(|digits| digits.parse::<f64>().ok());
    percent.map(|percent| percent / 100.0).ok_or(Wrong::Value("a share such as 20%"))
}

impl Wrong {
    fn of(self, name: &str, key: &str, value: &str) -> ChangeError {
        let name = name.to_owned();
        let text = format!("{name}.{key}");
        match self {
            Wrong::Key(near) => ChangeError::Key { name, key: key.to_owned(), near },
            Wrong::Ambiguous(one, other) => ChangeError::Ambiguous { name, one, other },
            Wrong::NoLimit(first) => ChangeError::NoLimit { name, first },
            Wrong::Without(needs) => ChangeError::Without { text, needs },
            Wrong::Value(expected) => {
                ChangeError::Value { text, found: value.to_owned(), expected }
            }
        }
    }
}

impl fmt::Display for ChangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChangeError::Name { text, near } => {
                write!(f, "no class or rule is named in {text:?}")?;
                match near {
                    Some(near) => write!(f, "; did you mean {near:?}?"),
                    None => write!(f, "; what is expected is NAME.KEY, such as gold.share"),
                }
            }
            ChangeError::Key { name, key, near } => {
                write!(f, "{name:?} has no key {key:?}")?;
                match near {
                    Some(near) => write!(f, "; did you mean {near:?}?"),
                    None => Ok(()),
                }
            }
            ChangeError::Ambiguous { name, one, other } => {
                write!(f, "{name:?} has both {one:?} and {other:?}; say which is meant")
            }
            ChangeError::NoLimit { name, first } => {
                write!(f, "{name:?} has no such limit; {first:?} makes one")
            }
            ChangeError::Without { text, needs } => {
                write!(f, "{text:?} means nothing without {needs}")
            }
            ChangeError::Value { text, found, expected } => {
                write!(f, "{text:?} cannot be {found:?}; what is expected is {expected}")
            }
            ChangeError::Policy { name, key, fault } => {
                write!(f, "{name:?}: ")?;
                if !key.is_empty() {
                    write!(f, "{key}: ")?;
                }
                fault.fmt(f)
            }
        }
    }
}

impl std::error::Error for ChangeError {}
