//! Whether classes and rules make sense together.

use crate::class::{Class, MOST_CLASSES, ONLY_CLASS};
use crate::condition::ConditionKind;
use crate::error::{At, PolicyError, PolicyFault};
use crate::rate::Rate;
use crate::rule::{Action, Bounds, InFlight, Limit, MOST_IGNORE_MS, MOST_METRICS, Over, Per, Rule};

/// The longest time a request may wait for its turn, and the longest target delay: a minute.
const MOST_WAIT_MS: u32 = 60_000;

/// The longest time until the whole burst of a client's bucket can be used again: a day. Buckets of
/// clients are charged little further ahead than that (`MOST_AHEAD` in `clients`).
const MOST_REFILL_OF_CLIENT_S: u64 = 86_400;

/// The same limit for buckets that are not a client's: a year.
const MOST_REFILL_S: u64 = 366 * 86_400;

type PolicyKeyFault = (&'static str, PolicyFault);

pub(crate) fn check(classes: &[Class], rules: &[Rule]) -> Result<(), PolicyError> {
    for (number, class) in classes.iter().enumerate() {
        let at = |(key, fault)| PolicyError { at: At::Class(number), key, fault };
        check_class(class, &classes[..number]).map_err(at)?;
    }
    let mut names = std::collections::HashSet::new();
    let mut metrics = 0;
    for (number, rule) in rules.iter().enumerate() {
        let at = |(key, fault)| PolicyError { at: At::Rule(number), key, fault };
        if !names.insert(&*rule.name) {
            return Err(at(("name", PolicyFault::SameName)));
        }
        check_rule(rule, classes).map_err(at)?;
        metrics += usize::from(rule.metric);
        if metrics > MOST_METRICS {
            return Err(at(("metric", PolicyFault::TooManyMetrics)));
        }
    }
    Ok(())
}

fn check_class(class: &Class, before: &[Class]) -> Result<(), PolicyKeyFault> {
    if class.name.is_empty() {
        return Err(("name", PolicyFault::NoName));
    }
    if before.len() == MOST_CLASSES {
        return Err(("", PolicyFault::TooManyClasses));
    }
    if before.iter().any(|other| other.name == class.name) {
        return Err(("name", PolicyFault::SameName));
    }
    if let Some(other) = before.iter().find(|other| other.priority == class.priority) {
        return Err(("priority", PolicyFault::SamePriority { other: other.name.clone() }));
    }
    let default = before.iter().find(|other| other.default && class.default);
    if let Some(other) = default {
        return Err(("default", PolicyFault::SecondDefault { other: other.name.clone() }));
    }
    if !(0.0..=1.0).contains(&class.share) {
        return Err(("share", PolicyFault::Share));
    }
    let sum = class.share + before.iter().map(|other| other.share).sum::<f64>();
    // three shares of a third add up to a little more than one
    if sum > 1.0 + 1e-9 {
        return Err(("share", PolicyFault::Shares { sum }));
    }
    if let Some(most) = class.requests_per_connection {
        check_range("requests_per_connection", most, 1, u32::MAX)?;
    }
    check_range("delay", class.delay_ms, 1, MOST_WAIT_MS)
}

fn check_rule(rule: &Rule, classes: &[Class]) -> Result<(), PolicyKeyFault> {
    let Rule { class, connections, requests, in_flight, requests_per_connection, action, .. } =
        rule;
    if rule.name.is_empty() {
        return Err(("name", PolicyFault::NoName));
    }
    let says_something = class.is_some()
        || connections.is_some()
        || requests.is_some()
        || in_flight.is_some()
        || requests_per_connection.is_some()
        || action.is_some();
    if !says_something && !rule.stop {
        return Err(("", PolicyFault::SaysNothing));
    }
    if let Some(class) = class {
        check_name_of_class(class, classes)?;
    }
    if let Some(limit) = connections {
        if let Some(condition) = needs_request(rule) {
            return Err(("connections", PolicyFault::NeedsRequest { condition }));
        }
        cannot_queue("connections", limit.over)?;
        check_limit("connections", limit)?;
    }
    if let Some(limit) = requests {
        check_limit("requests", limit)?;
    }
    if let Some(bounds) = &rule.bounds {
        check_bounds(bounds, requests.as_ref())?;
    }
    if let Some(InFlight { most, per, over }) = in_flight {
        check_range("in_flight", *most, 1, u32::MAX >> 1)?;
        if matches!((per, over), (Per::Client, Over::Queue { .. })) {
            return Err(("in_flight", PolicyFault::QueueOfClient));
        }
        check_over("in_flight", *over)?;
    }
    if let Some(most) = requests_per_connection {
        check_range("requests_per_connection", *most, 1, u32::MAX)?;
    }
    match action {
        Some(Action::Reject(status)) => check_range("action", u32::from(*status), 400, 599),
        _ => Ok(()),
    }
}

/// Checks that the class of a rule exists; without any classes there is one, `default`.
fn check_name_of_class(name: &str, classes: &[Class]) -> Result<(), PolicyKeyFault> {
    let known = || classes.iter().map(|class| &*class.name);
    let is_known = known().any(|other| other == name);
    if is_known || classes.is_empty() && name == ONLY_CLASS {
        return Ok(());
    }
    let near = crate::near::nearest(name, known()).map(str::to_owned);
    Err(("class", PolicyFault::UnknownClass { name: name.to_owned(), near }))
}

/// The first condition of a rule that cannot be tried before there is a request.
fn needs_request(rule: &Rule) -> Option<ConditionKind> {
    let is_of_request =
        |one: &ConditionKind| !matches!(one, ConditionKind::Client | ConditionKind::Local);
    let mut asked = ConditionKind::ALL.into_iter().filter(is_of_request);
    asked.find(|one| one.is_asked(&rule.conditions))
}

fn check_limit(key: &'static str, limit: &Limit) -> Result<(), PolicyKeyFault> {
    let Limit { rate, burst, per, over, ignore_ms } = *limit;
    check_range(key, burst, 1, u32::MAX)?;
    let most_s = match per {
        Per::Rule => MOST_REFILL_S,
        Per::Client => MOST_REFILL_OF_CLIENT_S,
    };
    let takes_s = u128::from(rate.interval_ns()) * u128::from(burst) / 1_000_000_000;
    let takes_s = u64::try_from(takes_s).unwrap_or(u64::MAX);
    if takes_s > most_s {
        return Err((key, PolicyFault::Refill { rate, takes_s, most_s }));
    }
    if let Some(ignore_ms) = ignore_ms {
        check_range(key, ignore_ms, 1, MOST_IGNORE_MS)?;
    }
    check_over(key, over)
}

fn check_bounds(bounds: &Bounds, requests: Option<&Limit>) -> Result<(), PolicyKeyFault> {
    let movable = requests.filter(|limit| limit.per == Per::Rule && !limit.rate.is_unlimited());
    let Some(limit) = movable else { return Err(("requests", PolicyFault::NothingToMove)) };
    let Bounds { least, most } = *bounds;
    // a longer interval is a lower rate; an unlimited rate has no interval
    let intervals = [least, limit.rate, most].map(Rate::interval_ns);
    if !intervals.is_sorted_by(|lower, higher| lower >= higher) || intervals.contains(&0) {
        return Err(("requests", PolicyFault::Bounds { bounds: *bounds, rate: limit.rate }));
    }
    check_limit("requests", &Limit { rate: least, ..*limit })
}

fn cannot_queue(key: &'static str, over: Over) -> Result<(), PolicyKeyFault> {
    match over {
        Over::Queue { .. } => Err((key, PolicyFault::CannotQueue)),
        Over::Reject { .. } | Over::Reset | Over::Drop => Ok(()),
    }
}

fn check_over(key: &'static str, over: Over) -> Result<(), PolicyKeyFault> {
    match over {
        Over::Reject { status: Some(status) } => check_range(key, u32::from(status), 400, 599),
        Over::Queue { deadline_ms, most } => {
            check_range(key, deadline_ms, 1, MOST_WAIT_MS)?;
            check_range(key, most, 1, u32::MAX)
        }
        Over::Reject { status: None } | Over::Reset | Over::Drop => Ok(()),
    }
}

fn check_range(key: &'static str, found: u32, least: u32, most: u32) -> Result<(), PolicyKeyFault> {
    if (least..=most).contains(&found) {
        return Ok(());
    }
    let (found, least, most) = (found.into(), least.into(), most.into());
    Err((key, PolicyFault::Range { found, least, most }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::condition::Conditions;
    use crate::field::FieldCondition;

    fn classes() -> Vec<Class> {
        vec![Class::new("gold", 0), Class::new("bulk", 1)]
    }

    fn rule() -> Rule {
        Rule { name: "r".to_owned(), stop: true, ..Rule::default() }
    }

    fn limit() -> Limit {
        Limit::new(Rate::per_second(10), 5)
    }

    fn bounds(least: &str, most: &str) -> Bounds {
        Bounds { least: Rate::parse(least).unwrap(), most: Rate::parse(most).unwrap() }
    }

    fn of_classes(change: impl Fn(&mut Vec<Class>)) -> String {
        let mut classes = classes();
        change(&mut classes);
        check(&classes, &[]).unwrap_err().to_string()
    }

    fn of_rule(change: impl Fn(&mut Rule)) -> String {
        let mut rule = rule();
        change(&mut rule);
        check(&classes(), &[rule]).unwrap_err().to_string()
    }

    #[test]
    fn good_ones_pass() {
        let mut classes = classes();
        (classes[0].share, classes[1].share, classes[1].default) = (0.5, 0.5, true);
        let partner = Rule {
            name: "s".to_owned(),
            class: Some("gold".to_owned()),
            connections: Some(limit()),
            in_flight: Some(InFlight { most: 1, per: Per::Client, over: Over::Drop }),
            ..Rule::default()
        };
        assert_eq!(check(&classes, &[rule(), partner]), Ok(()));
        let only = Rule { class: Some("default".to_owned()), ..rule() };
        assert_eq!(check(&[], &[only]), Ok(()));
    }

    #[test]
    fn what_is_wrong_with_classes_is_said() {
        for (message, expected) in [
            (
                of_classes(|c| c[1].name = "gold".into()),
                "class 2: name: an earlier one has this name",
            ),
            (of_classes(|c| c[1].name = String::new()), "class 2: name: a name is needed"),
            (
                of_classes(|c| c[1].priority = 0),
                "class 2: priority: class \"gold\" has this priority; each class has its own",
            ),
            (of_classes(|c| c[0].share = f64::NAN), "class 1: share: a share lies between 0 and 1"),
            (
                of_classes(|c| (c[0].share, c[1].share) = (0.6, 0.5)),
                "class 2: share: the shares of the classes make 110% together",
            ),
            (of_classes(|c| c[0].delay_ms = 0), "class 1: delay: 0 is not between 1 and 60000"),
            (
                of_classes(|c| (c[0].default, c[1].default) = (true, true)),
                "class 2: default: class \"gold\" is the default already",
            ),
            (
                of_classes(|c| *c = (0..17).map(|n| Class::new(&n.to_string(), n)).collect()),
                "class 17: there are at most 16 classes",
            ),
        ] {
            assert_eq!(message, expected);
        }
    }

    #[test]
    fn what_is_wrong_with_rules_is_said() {
        let year = Limit { burst: u32::MAX, rate: Rate::parse("1/h").unwrap(), ..limit() };
        for (message, expected) in [
            (of_rule(|r| r.name = String::new()), "rule 1: name: a name is needed"),
            (
                of_rule(|r| r.stop = false),
                "rule 1: the rule says nothing; it needs one of class, connections, requests, \
                 in_flight, action or stop",
            ),
            (
                of_rule(|r| r.class = Some("Golden".into())),
                "rule 1: class: there is no class \"Golden\"; did you mean \"gold\"?",
            ),
            (of_rule(|r| r.class = Some("x".into())), "rule 1: class: there is no class \"x\""),
            (
                of_rule(|r| {
                    let cookie = vec![FieldCondition::parse("a").unwrap()];
                    r.conditions = Conditions { cookie, ..Conditions::default() };
                    r.connections = Some(limit());
                }),
                "rule 1: connections: connections are counted before there is a request, and this \
                 rule asks for \"cookie\"; only client and local can go with it",
            ),
            (
                of_rule(|r| r.requests = Some(Limit { burst: 0, ..limit() })),
                "rule 1: requests: 0 is not between 1 and 4294967295",
            ),
            (
                of_rule(|r| r.requests = Some(year)),
                "rule 1: requests: at 1/h it takes 15461882262000 s until the whole burst can be \
                 used again; at most 31622400 s are possible",
            ),
            (
                of_rule(|r| {
                    let rate = Rate::parse("1/h").unwrap();
                    r.requests = Some(Limit { burst: 25, rate, per: Per::Client, ..limit() });
                }),
                "rule 1: requests: at 1/h it takes 90000 s until the whole burst can be used \
                 again; at most 86400 s are possible",
            ),
            (
                of_rule(|r| {
                    let over = Over::Queue { deadline_ms: 10, most: 1 };
                    r.in_flight = Some(InFlight { most: 1, per: Per::Client, over });
                }),
                "rule 1: in_flight: requests at once queue only where all clients share the limit, \
                 without per = \"client\"",
            ),
            (
                of_rule(|r| {
                    let over = Over::Queue { deadline_ms: 0, most: 1 };
                    r.in_flight = Some(InFlight { most: 1, per: Per::Rule, over });
                }),
                "rule 1: in_flight: 0 is not between 1 and 60000",
            ),
            (
                of_rule(|r| {
                    let over = Over::Queue { deadline_ms: 10, most: 1 };
                    r.connections = Some(Limit { over, ..limit() });
                }),
                "rule 1: connections: only requests can queue; connections can be rejected, \
                 reset or dropped",
            ),
            (
                of_rule(|r| r.action = Some(Action::Reject(200))),
                "rule 1: action: 200 is not between 400 and 599",
            ),
            (
                of_rule(|r| {
                    let over = Over::Queue { deadline_ms: 60_001, most: 1 };
                    r.requests = Some(Limit { over, ..limit() });
                }),
                "rule 1: requests: 60001 is not between 1 and 60000",
            ),
            (
                of_rule(|r| {
                    r.requests = Some(limit());
                    r.bounds = Some(bounds("11/s", "20/s"));
                }),
                "rule 1: requests: rate_min, 11/s, is above the rate, 10/s",
            ),
            (
                of_rule(|r| {
                    r.requests = Some(limit());
                    r.bounds = Some(bounds("1/s", "9/s"));
                }),
                "rule 1: requests: rate_max, 9/s, is below the rate, 10/s",
            ),
            (
                of_rule(|r| {
                    r.requests = Some(limit());
                    r.bounds = Some(bounds("1/s", "unlimited"));
                }),
                "rule 1: requests: rate_min and rate_max must be rates: leave out the one that is \
                 \"unlimited\"",
            ),
            (
                of_rule(|r| {
                    r.requests = Some(Limit { per: Per::Client, ..limit() });
                    r.bounds = Some(bounds("1/s", "20/s"));
                }),
                "rule 1: requests: rate_min and rate_max are for a rate that all clients share, without per \
                 = \"client\", and that is not \"unlimited\"",
            ),
            (
                of_rule(|r| {
                    r.requests = Some(Limit { burst: 1_000_000, ..limit() });
                    r.bounds = Some(bounds("1/h", "20/s"));
                }),
                "rule 1: requests: at 1/h it takes 3600000000 s until the whole burst can be \
                 used again; at most 31622400 s are possible",
            ),
        ] {
            assert_eq!(message, expected);
        }
        let same = check(&[], &[rule(), rule()]).unwrap_err();
        assert_eq!(same.to_string(), "rule 2: name: an earlier one has this name");
    }
}
