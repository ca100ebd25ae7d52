//! The decision about the first request of a connection where only its first segment is seen. It is the same
//! as [`State`](crate::State) makes about the whole request, or that the segment does not show enough.
//!
//! A refusal can be silent, a reset, or an error response, because the client has proven its address. The
//! response is the same for all requests that a rule refuses, so `Retry-After` states the longest time after
//! which one more is admitted. The enforcer keeps nothing for each client and lets nothing wait.

use super::{FirstSegment, Holds, SegmentConditions, are_its_ends};
use crate::bucket::BucketTerms;
use crate::decision::RefusalAnswer;
use crate::facts::ConnectionFacts;
use crate::policy::Policy;
use crate::rule::{Action, Degree, InFlight, JudgePhase, Limit, Over, Per, Rule};
use std::fmt;

/// Why a setting of a rule is left to the server, which sees the whole request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftBecause {
    /// The limit counts each client by itself.
    EachClient,
    /// A request over the limit waits.
    Waits,
}

impl fmt::Display for LeftBecause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LeftBecause::EachClient => "the kernel keeps no limit for each client",
            LeftBecause::Waits => "nothing waits in the kernel (over = \"queue\")",
        })
    }
}

/// The decision about a first request, or about its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstRequest {
    /// The request passes; no limit is charged.
    Pass,
    /// The rule with this number refuses the request.
    Refuse(u32, RefusalAnswer),
    /// The request is charged to the bucket of this rule, and refused if it is over the limit.
    Charge(u32, RefusalAnswer),
    /// The decision needs more than the first segment, or state that the enforcer does not keep.
    CannotTell,
}

/// The refusal that a rule's action demands; `None` if the action refuses nothing.
pub fn acts(rule: &Rule) -> Option<RefusalAnswer> {
    match rule.action? {
        Action::Allow => None,
        Action::Drop => Some(RefusalAnswer::Drop),
        Action::Reset => Some(RefusalAnswer::Reset),
        Action::Reject(status) => Some(RefusalAnswer::Reject { status, retry_after_s: 0 }),
    }
}

/// The answer to a request that is over the rule's limit on requests, if it has one.
///
/// # Errors
/// The limit is left to the server.
pub fn requests(rule: &Rule) -> Option<Result<RefusalAnswer, LeftBecause>> {
    let limit = rule.requests.as_ref().filter(|limit| !limit.rate.is_unlimited())?;
    // a moved rate makes clients wait longest when it is at its lowest
    let longest_ns = rule.bounds.map(|bounds| bounds.least.interval_ns());
    Some(over_rate(limit, longest_ns))
}

/// The answer to a connection that is over the rule's limit on connections, if it has one.
///
/// # Errors
/// The limit is left to the server.
pub fn connections(rule: &Rule) -> Option<Result<RefusalAnswer, LeftBecause>> {
    let limit = rule.connections.as_ref().filter(|limit| !limit.rate.is_unlimited())?;
    Some(over_rate(limit, None))
}

/// The answer to a request while the rule has as many at once as it may; `None` if the rule has no such
/// limit, or lets the request wait. The server, which counts the requests, announces when the limit is
/// reached.
///
/// # Errors
/// The limit is left to the server.
pub fn in_flight(rule: &Rule) -> Option<Result<RefusalAnswer, LeftBecause>> {
    let InFlight { most: _, per, over } = rule.in_flight?;
    if per == Per::Client {
        return Some(Err(LeftBecause::EachClient));
    }
    (!waits(over)).then(|| Ok(RefusalAnswer::of(over, per, 0)))
}

fn over_rate(limit: &Limit, longest_ns: Option<u64>) -> Result<RefusalAnswer, LeftBecause> {
    match limit.per {
        Per::Client => Err(LeftBecause::EachClient),
        Per::Rule if waits(limit.over) => Err(LeftBecause::Waits),
        Per::Rule => {
            let interval_ns = longest_ns.unwrap_or(BucketTerms::of(limit).interval_ns);
            Ok(RefusalAnswer::of(limit.over, limit.per, interval_ns))
        }
    }
}

fn waits(over: Over) -> bool {
    matches!(over, Over::Queue { .. })
}

/// The rule that decides a setting, as far as a first segment shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum SettingOf {
    #[default]
    Nobody,
    Rule(u32),
    Unknown,
}

/// The rules that decide the action, the limit on requests, and the number at once.
#[derive(Debug, Default)]
pub(super) struct Deciding([SettingOf; 3]);

impl Deciding {
    /// Sets `told` for the settings in `says` that no earlier rule has decided.
    fn decide(&mut self, says: [bool; 3], told: SettingOf) {
        for (setting, says) in self.0.iter_mut().zip(says) {
            if says && *setting == SettingOf::Nobody {
                *setting = told;
            }
        }
    }
}

impl Policy {
    /// The decision about the first request of a connection. Nothing is charged. `is_full` says whether a
    /// rule has as many requests at once as it may.
    pub fn first_request(
        &self,
        ends: &ConnectionFacts,
        first: &FirstSegment<'_>,
        degree: impl Into<Degree>,
        is_full: impl Fn(u32) -> bool,
    ) -> FirstRequest {
        let deciding = self.deciding(ends, |conditions| conditions.hold(first), degree.into());
        self.decided(&deciding, is_full, false)
    }

    /// The decision that follows from the deciding rules. With `alone`, a limit that is left to the server
    /// counts for nothing, because no server keeps it.
    pub(super) fn decided(
        &self,
        deciding: &Deciding,
        is_full: impl Fn(u32) -> bool,
        alone: bool,
    ) -> FirstRequest {
        // in the order of `State::charge_request`, so that the same rule refuses as in the server
        let Deciding([action, limit, at_once]) = *deciding;
        let rule = |number: u32| self.rules().get(number as usize);
        match action {
            SettingOf::Unknown => return FirstRequest::CannotTell,
            SettingOf::Nobody => {}
            SettingOf::Rule(number) => {
                if let Some(answer) = rule(number).and_then(acts) {
                    return FirstRequest::Refuse(number, answer);
                }
            }
        }
        match at_once {
            SettingOf::Unknown => return FirstRequest::CannotTell,
            SettingOf::Nobody => {}
            SettingOf::Rule(number) => match rule(number).and_then(in_flight) {
                Some(Err(_)) if !alone => return FirstRequest::CannotTell,
                Some(Ok(answer)) if is_full(number) => {
                    return FirstRequest::Refuse(number, answer);
                }
                Some(_) | None => {}
            },
        }
        match limit {
            SettingOf::Unknown => FirstRequest::CannotTell,
            SettingOf::Nobody => FirstRequest::Pass,
            SettingOf::Rule(number) => match rule(number).and_then(requests) {
                None => FirstRequest::Pass,
                Some(Ok(answer)) => FirstRequest::Charge(number, answer),
                Some(Err(_)) => FirstRequest::CannotTell,
            },
        }
    }

    /// The decision about the connection itself, by the rules for addresses only, once the client has proven
    /// its address. It covers what [`syn`](Policy::syn) leaves open because it needs an error response.
    pub fn first_connection(
        &self,
        ends: &ConnectionFacts,
        degree: impl Into<Degree>,
    ) -> FirstRequest {
        let decisions = self.connection(ends, degree);
        let rule = |number: u32| self.rules().get(number as usize).map(|rule| (number, rule));
        let refusing = decisions.action.and_then(rule);
        if let Some((number, answer)) = refusing.and_then(|(n, rule)| Some((n, acts(rule)?))) {
            return FirstRequest::Refuse(number, answer);
        }
        let limited = decisions.connections.and_then(rule);
        match limited.and_then(|(number, rule)| Some((number, connections(rule)?))) {
            None => FirstRequest::Pass,
            Some((number, Ok(answer))) => FirstRequest::Charge(number, answer),
            Some((_, Err(_))) => FirstRequest::CannotTell,
        }
    }

    /// The rules that decide each setting, where `hold` says whether conditions hold.
    pub(super) fn deciding(
        &self,
        ends: &ConnectionFacts,
        hold: impl Fn(&SegmentConditions) -> Holds,
        degree: Degree,
    ) -> Deciding {
        let mut deciding = Deciding::default();
        for (number, rule) in (0..).zip(self.rules()) {
            let says = [rule.action.is_some(), rule.requests.is_some(), rule.in_flight.is_some()];
            if !says.contains(&true) && !rule.stop {
                continue;
            }
            if degree < rule.when.from(JudgePhase::Request) || !are_its_ends(&rule.conditions, ends)
            {
                continue;
            }
            match hold(&SegmentConditions::of(rule)) {
                Holds::No => continue,
                // if a rule with `stop` may match, no decision of a later rule is certain
                Holds::CannotTell if rule.stop => deciding.decide([true; 3], SettingOf::Unknown),
                Holds::CannotTell => deciding.decide(says, SettingOf::Unknown),
                Holds::Yes => deciding.decide(says, SettingOf::Rule(number)),
            }
            if rule.stop {
                break;
            }
        }
        deciding
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::condition::Conditions;
    use crate::endpoint::Endpoint;
    use crate::field::FieldCondition;
    use crate::pattern::PathPattern;
    use crate::rate::Rate;
    use crate::rule::Bounds;

    fn rule(name: &str, path: &str) -> Rule {
        let path = vec![PathPattern::parse(path).unwrap()];
        let conditions = Conditions { path, ..Conditions::default() };
        Rule { name: name.to_owned(), conditions, ..Rule::default() }
    }

    fn ends(client: &str) -> ConnectionFacts {
        let client = format!("{client}:1").parse().unwrap();
        ConnectionFacts { client, local: "127.0.0.1:80".parse().unwrap() }
    }

    fn limit(rate: &str, over: Over) -> Limit {
        Limit { over, ..Limit::new(Rate::parse(rate).unwrap(), 3) }
    }

    const REJECT: Over = Over::Reject { status: None };

    #[test]
    fn a_first_request_is_refused_in_the_order_of_the_server() {
        let at_once = |over, per| Some(InFlight { most: 1, per, over });
        let rate = |text: &str| Rate::parse(text).unwrap();
        let (least, most) = (rate("1/m"), rate("9/s"));
        let queue = Over::Queue { deadline_ms: 1000, most: 5 };
        let of_client = Limit { per: Per::Client, ..limit("5/s", REJECT) };
        let with_cookie = |mut rule: Rule| {
            rule.conditions.cookie = vec![FieldCondition::parse("tier=gold").unwrap()];
            rule
        };
        let policy = Policy::new(
            &[],
            vec![
                Rule { action: Some(Action::Allow), ..rule("open", "/open") },
                with_cookie(Rule { requests: Some(limit("9/s", REJECT)), ..rule("tier", "/t*") }),
                with_cookie(Rule {
                    stop: true,
                    action: Some(Action::Allow),
                    ..rule("end", "/stop")
                }),
                Rule { action: Some(Action::Reject(403)), ..rule("no", "/no") },
                Rule { action: Some(Action::Reset), ..rule("reset", "/reset") },
                Rule { in_flight: at_once(REJECT, Per::Rule), ..rule("one", "/o*") },
                Rule { in_flight: at_once(queue, Per::Rule), ..rule("waits", "/waits") },
                Rule { in_flight: at_once(REJECT, Per::Client), ..rule("each", "/each") },
                Rule {
                    requests: Some(limit("20/m", REJECT)),
                    bounds: Some(Bounds { least, most }),
                    ..rule("moved", "/moved")
                },
                Rule { requests: Some(limit("20/m", queue)), ..rule("in line", "/line") },
                Rule { requests: Some(of_client), ..rule("of each", "/of-each") },
                Rule { requests: Some(limit("20/m", Over::Drop)), ..rule("all", "/*") },
            ],
        )
        .unwrap();
        let become_of = |path: &str, full: bool| {
            let data = format!("GET {path} HTTP/1.1\r\n");
            let first = FirstSegment::read(data.as_bytes()).unwrap();
            policy.first_request(&ends("192.0.2.1"), &first, false, |_| full)
        };
        use FirstRequest::{CannotTell, Charge, Refuse};
        let reject = |status, retry_after_s| RefusalAnswer::Reject { status, retry_after_s };
        for (path, full, expected) in [
            ("/open", false, Charge(11, RefusalAnswer::Drop)),
            ("/open", true, Refuse(5, reject(503, 1))),
            ("/tier", false, CannotTell),
            ("/stop", false, CannotTell),
            ("/no", true, Refuse(3, reject(403, 0))),
            ("/reset", false, Refuse(4, RefusalAnswer::Reset)),
            ("/waits", true, Charge(11, RefusalAnswer::Drop)),
            ("/each", false, CannotTell),
            ("/moved", false, Charge(8, reject(503, 60))),
            ("/line", false, CannotTell),
            ("/of-each", false, CannotTell),
            ("/other", true, Refuse(5, reject(503, 1))),
            ("/a", false, Charge(11, RefusalAnswer::Drop)),
        ] {
            assert_eq!(become_of(path, full), expected, "{path} {full}");
        }
        let said = requests(&Rule { requests: Some(limit("20/m", REJECT)), ..rule("r", "/") });
        assert_eq!(said, Some(Ok(reject(503, 3))));
        let free = Rule { requests: Some(Limit::new(Rate::UNLIMITED, 1)), ..rule("r", "/") };
        assert_eq!(requests(&free), None);
    }

    #[test]
    fn connections_are_told_as_well_as_by_their_syn_and_better() {
        let of = |name: &str, client: &str| {
            let client = vec![Endpoint::parse(client).unwrap()];
            let conditions = Conditions { client, ..Conditions::default() };
            Rule { name: name.to_owned(), conditions, ..Rule::default() }
        };
        let per_client = Limit { per: Per::Client, ..limit("1/s", REJECT) };
        let rules = vec![
            Rule { action: Some(Action::Reject(451)), ..of("told", "10.1.0.0/16") },
            Rule { connections: Some(limit("1/h", REJECT)), ..of("503", "10.2.0.0/16") },
            Rule { connections: Some(per_client), ..of("each", "10.3.0.0/16") },
            Rule { connections: Some(limit("1/s", Over::Reset)), ..of("reset", "10.4.0.0/16") },
        ];
        let policy = Policy::new(&[], rules).unwrap();
        let reject = |status, retry_after_s| RefusalAnswer::Reject { status, retry_after_s };
        for (client, expected) in [
            ("10.1.0.1", FirstRequest::Refuse(0, reject(451, 0))),
            ("10.2.0.1", FirstRequest::Charge(1, reject(503, 3600))),
            ("10.3.0.1", FirstRequest::CannotTell),
            ("10.4.0.1", FirstRequest::Charge(3, RefusalAnswer::Reset)),
            ("10.5.0.1", FirstRequest::Pass),
        ] {
            assert_eq!(policy.first_connection(&ends(client), false), expected, "{client}");
        }
    }
}
