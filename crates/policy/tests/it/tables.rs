//! Tables 1 and 2 of voigt as policies: the decisions about each connection and each request.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use forebay_policy::class::Class;
use forebay_policy::condition::Conditions;
use forebay_policy::decision::Decisions;
use forebay_policy::endpoint::Endpoint;
use forebay_policy::facts::{ConnectionFacts, RequestFacts};
use forebay_policy::pattern::PathPattern;
use forebay_policy::rate::Rate;
use forebay_policy::rule::{Action, Limit, Rule};
use forebay_policy::{FactsNeeded, Policy, RuleOutcome};
use std::iter::Empty;

/// The facts about a request without fields.
pub(crate) type Facts<'f> = RequestFacts<'f, Empty<(&'f str, &'f [u8])>>;

pub(crate) fn ends(client: &str, local: &str) -> ConnectionFacts {
    ConnectionFacts { client: client.parse().unwrap(), local: local.parse().unwrap() }
}

fn of_path(path: &str) -> Rule {
    let path = vec![PathPattern::parse(path).unwrap()];
    let conditions = Conditions { path: path.clone(), ..Conditions::default() };
    Rule { name: path[0].to_string(), conditions, ..Rule::default() }
}

fn limit(rate: &str, burst: u32) -> Option<Limit> {
    Some(Limit::new(Rate::parse(rate).unwrap(), burst))
}

/// Table 1, with `reset` for "drop". Rows with priority 1 go before those without.
fn table_1() -> Policy {
    let first = Some("first".to_owned());
    let rules = vec![
        Rule { action: Some(Action::Reset), ..of_path("*noaccess*") },
        Rule { class: first.clone(), ..of_path("/shop.html") },
        Rule { class: first, requests: limit("15/s", 5), ..of_path("/index.html") },
        Rule { requests: limit("10/s", 2), ..of_path("/cgi-bin/*") },
    ];
    Policy::new(&[Class::new("first", 1), Class::new("other", 2)], rules).unwrap()
}

/// The facts about a plain GET.
pub(crate) fn get<'f>(ends: ConnectionFacts, host: &'f str, path: &'f str) -> Facts<'f> {
    RequestFacts {
        ends,
        host: host.as_bytes(),
        method: "GET",
        path: path.as_bytes(),
        query: b"",
        certificate: None,
        identity: None,
        fields: std::iter::empty(),
    }
}

fn request(policy: &Policy, path: &str) -> Decisions {
    let facts = get(ends("192.0.2.7:1024", "12.1.1.1:80"), "shop.example", path);
    let decisions = policy.request(&facts, false);
    assert_eq!(policy.explain_request(&facts, false).decisions, decisions);
    decisions
}

#[test]
fn table_1_by_url() {
    let policy = table_1();
    let other = Decisions { rank: 1, ..Decisions::default() };
    for (path, expected) in [
        ("/a/noaccess/b", Decisions { action: Some(0), ..other }),
        ("/noaccess", Decisions { action: Some(0), ..other }),
        ("/shop.html", Decisions { rank: 0, class: Some(1), ..other }),
        ("/index.html", Decisions { rank: 0, class: Some(2), requests: Some(2), ..other }),
        ("/cgi-bin/search", Decisions { requests: Some(3), ..other }),
        // the first row applies, and the last
        ("/cgi-bin/noaccess", Decisions { action: Some(0), requests: Some(3), ..other }),
        ("/other.html", other),
        ("/shop.html/", other),
        ("/cgi-bin", other),
    ] {
        assert_eq!(request(&policy, path), expected, "{path}");
    }
    let connection = policy.connection(&ends("192.0.2.7:1024", "12.1.1.1:80"), false);
    assert_eq!(connection, other);
}

/// Table 2. The first match decides, so the most specific row stands first.
fn table_2() -> Policy {
    let rule = |name: &str, local: &str, client: Option<&str>| Rule {
        name: name.to_owned(),
        conditions: Conditions {
            local: vec![Endpoint::parse(local).unwrap()],
            client: client.map(|text| Endpoint::parse(text).unwrap()).into_iter().collect(),
            ..Conditions::default()
        },
        ..Rule::default()
    };
    let class = |name: &str| Some(name.to_owned());
    let rules = vec![
        // priority "*": the row applies whatever another row says
        Rule { connections: limit("10/s", 1), ..rule("12.1.1.1", "12.1.1.1:80", None) },
        Rule {
            class: class("2"),
            connections: limit("100/s", 5),
            ..rule("partner", "*:80", Some("10.1.1.1"))
        },
        Rule { class: class("3"), connections: limit("300/s", 5), ..rule("web", "*:80", None) },
    ];
    let classes = [Class::new("1", 1), Class::new("2", 2), Class::new("3", 3)];
    Policy::new(&classes, rules).unwrap()
}

#[test]
fn table_2_by_address() {
    let policy = table_2();
    let decided =
        |class, connections, rank| Decisions { rank, class, connections, ..Decisions::default() };
    for (client, local, expected) in [
        ("192.0.2.7:9", "12.1.1.2:80", decided(Some(2), Some(2), 2)),
        ("10.1.1.1:9", "12.1.1.2:80", decided(Some(1), Some(1), 1)),
        ("10.1.1.2:9", "12.1.1.2:80", decided(Some(2), Some(2), 2)),
        // the limit comes from the first row, the class from the others
        ("192.0.2.7:9", "12.1.1.1:80", decided(Some(2), Some(0), 2)),
        ("10.1.1.1:9", "12.1.1.1:80", decided(Some(1), Some(0), 1)),
        // another port: the default class, which is the last one
        ("10.1.1.1:9", "12.1.1.1:443", decided(None, None, 2)),
    ] {
        let ends = ends(client, local);
        assert_eq!(policy.connection(&ends, false), expected, "{client} {local}");
        assert_eq!(policy.explain_connection(&ends, false).decisions, expected);
    }
}

/// The manual's example for `allow`.
#[test]
fn allow_by_path_is_too_late_for_a_connection() {
    let rules = |paths: &[&str]| {
        let conditions = Conditions {
            client: vec![Endpoint::parse("203.0.113.0/24").unwrap()],
            path: paths.iter().map(|path| PathPattern::parse(path).unwrap()).collect(),
            ..Conditions::default()
        };
        let path = vec![PathPattern::parse("/status").unwrap()];
        let allow = Conditions { path, ..Conditions::default() };
        let of = |name: &str, conditions, action| Rule {
            name: name.to_owned(),
            conditions,
            action: Some(action),
            ..Rule::default()
        };
        vec![of("status", allow, Action::Allow), of("bad", conditions, Action::Reset)]
    };
    let decided = |policy: &Policy, path: &'static str| {
        let ends = ends("203.0.113.7:9", "192.0.2.1:80");
        let facts = get(ends, "", path);
        (policy.connection(&ends, false).action, policy.request(&facts, false).action)
    };
    let policy = Policy::new(&[], rules(&[])).unwrap();
    assert_eq!(decided(&policy, "/status"), (Some(1), Some(0)));
    let policy = Policy::new(&[], rules(&["*"])).unwrap();
    assert_eq!(decided(&policy, "/status"), (None, Some(0)));
    assert_eq!(decided(&policy, "/other"), (None, Some(1)));
}

#[test]
fn what_no_rule_asks_for_need_not_be_known() {
    assert_eq!(Policy::default().needs(), FactsNeeded::default());
    let needs = FactsNeeded { requests: true, path: true, ..FactsNeeded::default() };
    assert_eq!(table_1().needs(), needs);
    // its classes apply to requests, too
    let needs =
        FactsNeeded { connections: true, requests: true, local: true, ..FactsNeeded::default() };
    assert_eq!(table_2().needs(), needs);
}

#[test]
fn an_explanation_can_be_read() {
    let policy = table_2();
    let explanation = policy.explain_connection(&ends("10.1.1.1:9", "12.1.1.1:80"), false);
    assert_eq!(explanation.outcomes, [RuleOutcome::Matches; 3]);
    let expected = "\
class        2, by rule \"partner\"
connections  10/s, burst 1, over: reject 503, by rule \"12.1.1.1\"
action       none
  \"12.1.1.1\": matches, decides connections
  \"partner\": matches, decides class; connections is decided by \"12.1.1.1\"
  \"web\": matches, decides nothing; class is decided by \"partner\"; connections is decided by \"12.1.1.1\"
";
    assert_eq!(explanation.to_string(), expected);
    let policy = table_1();
    let explanation = policy.explain_connection(&ends("10.1.1.1:9", "12.1.1.1:80"), false);
    assert!(explanation.to_string().contains("\"/shop.html\": asks for a request\n"));
}
