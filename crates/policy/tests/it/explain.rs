//! What an explanation says about many rules, and how the effects of rules are counted.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use crate::tables::{Facts, ends, get};
use forebay_policy::class::Class;
use forebay_policy::condition::Conditions;
use forebay_policy::endpoint::Endpoint;
use forebay_policy::pattern::{PathPattern, SitePattern};
use forebay_policy::rule::{Action, Rule, When};
use forebay_policy::{Policy, State};
use std::sync::Arc;

fn rule(name: &str, conditions: Conditions) -> Rule {
    Rule { name: name.to_owned(), conditions, class: Some("gold".to_owned()), ..Rule::default() }
}

fn on(site: &str, path: &str) -> Conditions {
    Conditions {
        site: vec![SitePattern::parse(site).unwrap()],
        path: vec![PathPattern::parse(path).unwrap()],
        ..Conditions::default()
    }
}

fn policy(rules: Vec<Rule>) -> Policy {
    Policy::new(&[Class::new("gold", 0), Class::new("bulk", 1)], rules).unwrap()
}

fn request<'f>(host: &'f str, path: &'f str) -> Facts<'f> {
    get(ends("192.0.2.7:4711", "192.0.2.1:80"), host, path)
}

/// Rules for ninety sites with a hundred paths each, and for a thousand networks.
fn many() -> Vec<Rule> {
    let mut rules = Vec::new();
    for (site, path) in (0..90).flat_map(|site| (0..100).map(move |path| (site, path))) {
        let (host, path) = (format!("site{site}.example"), format!("/path{path}/*"));
        rules.push(rule(&format!("{host} {path}"), on(&host, &path)));
    }
    for number in 0..1000 {
        let network = format!("10.{}.{}.0/24", number / 256, number % 256);
        let client = vec![Endpoint::parse(&network).unwrap()];
        rules.push(rule(&network, Conditions { client, ..Conditions::default() }));
    }
    rules
}

#[test]
fn of_ten_thousand_rules_those_that_matter_are_told() {
    let mut rules = many();
    let now = rule("now", on("site7.example", "/path12/*"));
    let pressed = rule("in need", on("site7.example", "*"));
    rules.insert(8000, Rule { when: When::Overload, ..pressed });
    rules.insert(8001, Rule { stop: true, ..now });
    rules.push(rule("behind", on("*.example", "/path12/*")));
    let policy = policy(rules);
    let explanation = policy.explain_request(&request("site7.example", "/path12/x"), false);
    let told = explanation.brief().to_string();
    let lines: Vec<&str> = told.lines().filter(|line| line.starts_with("  ")).collect();
    let matching = "  \"site7.example /path12/*\": matches, decides class";
    assert!(lines.contains(&matching), "{told}");
    let hidden =
        "  \"now\": matches, decides nothing; class is decided by \"site7.example /path12/*\"";
    assert!(lines.contains(&hidden), "{told}");
    assert!(lines.contains(&"  \"in need\": counts only in overload"), "{told}");
    assert!(lines.contains(&"  \"behind\": not looked at: \"now\" stops"), "{told}");
    // 99 other rules of the same site fail on the path; those for this path on 89 other sites are
    // less near
    let near = lines.iter().filter(|line| line.ends_with(": path does not match")).count();
    assert_eq!((near, lines.len()), (20, 20 + 5), "{told}");
    // 8,811 rules fail on both, 1,000 have only one condition
    assert_eq!(lines.last(), Some(&"  not shown: 168 near, 9811 not matching"), "{told}");
    // the full explanation has a line for each rule
    assert_eq!(explanation.to_string().lines().count(), 4 + policy.rules().len());

    let connection = policy.explain_connection(&request("", "").ends, false).brief().to_string();
    assert!(connection.ends_with("  not shown: 9003 about requests, 1000 not matching\n"));
}

#[test]
fn few_rules_are_all_told_if_they_matter() {
    let policy = policy(vec![rule("here", on("a.example", "/x")), rule("far", on("b", "/y"))]);
    let told = |facts: &Facts<'_>| policy.explain_request(facts, false).brief().to_string();
    let text = told(&request("a.example", "/x"));
    assert!(text.ends_with("decides class\n  not shown: 1 not matching\n"), "{text}");
    let text = told(&request("b", "/x"));
    let near = "  \"here\": site does not match\n  \"far\": path does not match\n";
    assert!(text.ends_with(near), "{text}");
}

#[test]
fn what_has_come_of_a_rule_is_known_and_stays_known_by_its_name() {
    let reject =
        Rule { action: Some(Action::Reject(403)), ..rule("closed", on("*.example", "/closed")) };
    let rules = vec![rule("open", on("*.example", "/open")), reject];
    let state = State::new(Arc::new(policy(rules.clone())), None, 0);
    let of = |state: &State, name| {
        let number = state.policy().rule(name).unwrap();
        (state.matched(number), state.refused(number))
    };
    assert_eq!([of(&state, "open"), of(&state, "closed")], [(0, 0), (0, 0)]);
    let ask = |state: &State, path| {
        let facts = request("a.example", path);
        let decisions = state.policy().request(&facts, false);
        state.note(&decisions, 3);
        let _ = state.charge_request(&decisions, facts.ends.client.ip(), 0);
    };
    (0..3).for_each(|_| ask(&state, "/closed"));
    ask(&state, "/open");
    ask(&state, "/");
    assert_eq!([of(&state, "open"), of(&state, "closed")], [(1, 0), (3, 3)]);
    let new = rule("new", on("*.example", "/new"));
    let [open, closed] = <[Rule; 2]>::try_from(rules).unwrap();
    let after = State::new(Arc::new(policy(vec![new, closed, open])), Some(&state), 0);
    ask(&after, "/closed");
    // a loop that has not taken the new state over yet
    ask(&state, "/closed");
    let seen = ["new", "open", "closed"].map(|name| of(&after, name));
    assert_eq!(seen, [(0, 0), (1, 0), (5, 5)]);
}
