//! Where each setting of a rule is enforced if the kernel does what it can, and why the kernel does not do
//! more. The results are shown to operators.

use super::{LeftBecause, SegmentConditions, acts, connections, in_flight, requests};
use crate::condition::ConditionKind;
use crate::decision::RefusalAnswer;
use crate::rule::{Over, Rule};
use crate::syn;
use std::fmt;

/// The place where a setting of a rule is enforced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EnforcedAt {
    /// The kernel, when it sees the SYN.
    Syn,
    /// The kernel, for the first request of a connection; the server, for the connection's later ones.
    FirstRequest {
        /// What a refused client gets.
        answer: RefusalAnswer,
        /// Which of the rule's patterns the kernel leaves to the server.
        but: Vec<LeftPatterns>,
    },
    /// The server.
    Server(WhyServer),
}

/// Kinds of patterns that a first segment is not compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftPatterns {
    /// Paths, except whole ones and beginnings.
    Paths,
    /// Hosts, except whole names.
    Hosts,
    /// Cookies, except whole values and beginnings.
    Cookies,
}

/// Why the kernel does not enforce a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WhyServer {
    /// The kernel does not judge first requests here.
    NotAsked,
    /// A request over the limit is not refused, but waits.
    Waits,
    /// The rule has conditions that a first segment does not show for certain, with these keys.
    AsksFor(Vec<&'static str>),
    /// None of the rule's patterns can be compared with a first segment.
    Patterns(LeftPatterns),
    /// The kernel cannot keep this kind of limit.
    Limit(LeftBecause),
}

impl fmt::Display for EnforcedAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EnforcedAt::Syn => f.write_str("in the kernel, by its SYN"),
            EnforcedAt::FirstRequest { answer, but } => {
                write!(
                    f,
                    "in the kernel, by the first request of a connection: {}",
                    AnswerWords(*answer)
                )?;
                but.iter().try_for_each(|but| write!(f, "; not for {but}"))
            }
            EnforcedAt::Server(why) => write!(f, "by the server: {why}"),
        }
    }
}

/// Displays an answer to a refused request.
struct AnswerWords(RefusalAnswer);

impl fmt::Display for AnswerWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            RefusalAnswer::Drop => f.write_str("silence"),
            RefusalAnswer::Reset => f.write_str("a reset"),
            RefusalAnswer::Reject { status, retry_after_s: 0 } => write!(f, "{status}"),
            RefusalAnswer::Reject { status, retry_after_s } => {
                write!(f, "{status}, Retry-After: {retry_after_s}")
            }
        }
    }
}

impl fmt::Display for LeftPatterns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LeftPatterns::Paths => "a path with a star before its end, or a regular expression",
            LeftPatterns::Hosts => "a site with a star",
            LeftPatterns::Cookies => "a cookie with a star before its end, or a regular expression",
        })
    }
}

impl fmt::Display for WhyServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WhyServer::NotAsked => {
                f.write_str("first requests are not judged in the kernel (gate_rules)")
            }
            WhyServer::Waits => f.write_str("nothing waits in the kernel (over = \"queue\")"),
            WhyServer::AsksFor(keys) => {
                write!(f, "a first segment does not show {} for certain", keys.join(", "))
            }
            WhyServer::Patterns(patterns) => write!(f, "a first segment does not tell {patterns}"),
            WhyServer::Limit(because) => because.fmt(f),
        }
    }
}

/// The place where each refusing setting of a rule is enforced, with the setting's key. With `judges`, the
/// kernel judges first requests; otherwise it judges SYNs only.
pub fn enforced_at(rule: &Rule, judges: bool) -> Vec<(&'static str, EnforcedAt)> {
    let mut all = Vec::new();
    let is_by_syn = rule.is_for_connections();
    if let Some(answer) = acts(rule) {
        let at = match syn::acts(rule) {
            Ok(Some(_)) if is_by_syn => EnforcedAt::Syn,
            _ => by_request(rule, Ok(answer), judges),
        };
        all.push(("action", at));
    }
    if let (Some(limit), Some(answer)) = (&rule.connections, connections(rule)) {
        let at = match syn::limits(limit) {
            Ok(_) if is_by_syn => EnforcedAt::Syn,
            _ => by_request(rule, answer, judges),
        };
        all.push(("connections", at));
    }
    if let Some(answer) = requests(rule) {
        all.push(("requests", by_request(rule, answer, judges)));
    }
    if let Some(limit) = &rule.in_flight {
        let at = match in_flight(rule) {
            Some(answer) => by_request(rule, answer, judges),
            None => EnforcedAt::Server(match limit.over {
                Over::Queue { .. } if judges => WhyServer::Waits,
                _ => WhyServer::NotAsked,
            }),
        };
        all.push(("in_flight", at));
    }
    all
}

fn by_request(rule: &Rule, answer: Result<RefusalAnswer, LeftBecause>, judges: bool) -> EnforcedAt {
    let answer = match answer {
        Err(because) => return EnforcedAt::Server(WhyServer::Limit(because)),
        Ok(_) if !judges => return EnforcedAt::Server(WhyServer::NotAsked),
        Ok(answer) => answer,
    };
    let SegmentConditions { methods: _, paths, hosts, cookies, needs_more } =
        SegmentConditions::of(rule);
    if needs_more {
        let told = [
            ConditionKind::Method,
            ConditionKind::Local,
            ConditionKind::Client,
            ConditionKind::Site,
            ConditionKind::Path,
            ConditionKind::Cookie,
        ];
        let is_left =
            |kind: &ConditionKind| !told.contains(kind) && kind.is_asked(&rule.conditions);
        let keys = ConditionKind::ALL.into_iter().filter(is_left).map(ConditionKind::as_str);
        return EnforcedAt::Server(WhyServer::AsksFor(keys.collect()));
    }
    let mut but = Vec::new();
    for (asked, patterns) in [
        (paths, LeftPatterns::Paths),
        (hosts, LeftPatterns::Hosts),
        (cookies, LeftPatterns::Cookies),
    ] {
        let Some(asked) = asked.filter(|asked| asked.needs_more) else { continue };
        if asked.texts.is_empty() {
            return EnforcedAt::Server(WhyServer::Patterns(patterns));
        }
        but.push(patterns);
    }
    EnforcedAt::FirstRequest { answer, but }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::condition::Conditions;
    use crate::field::FieldCondition;
    use crate::pattern::{PathPattern, SitePattern};
    use crate::rate::Rate;
    use crate::rule::{Action, InFlight, Limit, Per};

    fn said(rule: &Rule, judges: bool) -> Vec<String> {
        let all = enforced_at(rule, judges).into_iter();
        all.map(|(key, at)| format!("{key}: {at}")).collect()
    }

    fn of_paths(paths: &[&str]) -> Rule {
        let path = paths.iter().map(|text| PathPattern::parse(text).unwrap()).collect();
        Rule { conditions: Conditions { path, ..Conditions::default() }, ..Rule::default() }
    }

    #[test]
    fn each_setting_is_enforced_somewhere() {
        let limit = Limit::new(Rate::parse("10/m").unwrap(), 1);
        let by_address = Rule {
            action: Some(Action::Reject(403)),
            connections: Some(Limit { over: Over::Drop, ..limit }),
            ..Rule::default()
        };
        let not_asked = "by the server: first requests are not judged in the kernel (gate_rules)";
        assert_eq!(
            said(&by_address, false),
            [format!("action: {not_asked}"), "connections: in the kernel, by its SYN".to_owned()]
        );
        let first = "in the kernel, by the first request of a connection";
        assert_eq!(said(&by_address, true)[0], format!("action: {first}: 403"));
        let shop = Rule { requests: Some(limit), ..of_paths(&["/shop/*"]) };
        assert_eq!(said(&shop, true), [format!("requests: {first}: 503, Retry-After: 6")]);
        assert_eq!(said(&shop, false), [format!("requests: {not_asked}")]);
        let some = Rule { requests: Some(limit), ..of_paths(&["/shop/*", "*.php"]) };
        let but = "; not for a path with a star before its end, or a regular expression";
        assert_eq!(said(&some, true), [format!("requests: {first}: 503, Retry-After: 6{but}")]);
        let mut left = Rule {
            requests: Some(Limit { per: Per::Client, ..limit }),
            in_flight: Some(InFlight { most: 1, per: Per::Rule, over: Over::Reset }),
            ..of_paths(&["*.php"])
        };
        assert_eq!(
            said(&left, true),
            [
                "requests: by the server: the kernel keeps no limit for each client",
                "in_flight: by the server: a first segment does not tell a path with a star before its \
                 end, or a regular expression",
            ]
        );
        left.conditions.cookie = vec![FieldCondition::parse("a=b").unwrap()];
        left.conditions.header = vec![FieldCondition::parse("a=b").unwrap()];
        left.conditions.site = vec![SitePattern::parse("*.a").unwrap()];
        assert_eq!(
            said(&left, true)[1],
            "in_flight: by the server: a first segment does not show header for certain"
        );
        let of_cookies = |cookies: &[&str]| {
            let cookie = cookies.iter().map(|text| FieldCondition::parse(text).unwrap()).collect();
            let conditions = Conditions { cookie, ..Conditions::default() };
            said(&Rule { action: Some(Action::Reset), conditions, ..Rule::default() }, true)
        };
        assert_eq!(of_cookies(&["a=b", "a=c*", "a"]), [format!("action: {first}: a reset")]);
        let but = "a cookie with a star before its end, or a regular expression";
        assert_eq!(
            of_cookies(&["a=b", "a=*c"]),
            [format!("action: {first}: a reset; not for {but}")]
        );
        assert_eq!(
            of_cookies(&["a=~b"]),
            [format!("action: by the server: a first segment does not tell {but}")]
        );
        let queue = Over::Queue { deadline_ms: 1000, most: 1 };
        let waits = InFlight { most: 1, per: Per::Rule, over: queue };
        let waits = Rule { in_flight: Some(waits), ..Rule::default() };
        assert_eq!(
            said(&waits, true),
            ["in_flight: by the server: nothing waits in the kernel (over = \"queue\")"]
        );
        assert!(said(&Rule { action: Some(Action::Allow), ..Rule::default() }, true).is_empty());
    }
}
