//! Changes of a policy in force, and what is said of those that cannot be made.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use forebay_policy::Policy;
use forebay_policy::class::Class;
use forebay_policy::rate::Rate;
use forebay_policy::rule::{Action, InFlight, Limit, Over, Per, Rule, When};

fn rule(name: &str) -> Rule {
    Rule { name: name.to_owned(), ..Rule::default() }
}

fn policy() -> Policy {
    let limit = Limit::new(Rate::per_second(60), 10);
    let in_flight = InFlight { most: 20, per: Per::Rule, over: Over::Drop };
    let rules = vec![
        Rule { requests: Some(limit), ..rule("costly search") },
        Rule { connections: Some(limit), requests: Some(limit), ..rule("shop.example") },
        Rule { class: Some("bulk".to_owned()), ..rule("shop") },
        Rule { in_flight: Some(in_flight), stop: true, ..rule("gold") },
    ];
    let bulk = Class { share: 0.3, ..Class::new("bulk", 1) };
    Policy::new(&[Class::new("gold", 0), bulk], rules).unwrap()
}

fn changed(text: &str, value: &str) -> Policy {
    policy().with_changes(&[(text, value)]).unwrap()
}

#[test]
fn rules_change() {
    let rule =
        |number: usize, text: &str, value: &str| changed(text, value).rules()[number].clone();
    let search = |text: &str, value: &str| rule(0, text, value).requests.unwrap();
    assert_eq!(search("costly search.rate", "100/m").rate, Rate::parse("100/m").unwrap());
    assert_eq!(search("costly search.requests.burst", " 7 ").burst, 7);
    assert_eq!(search("costly search.per", "client").per, Per::Client);
    assert_eq!(
        search("costly search.over", "queue").over,
        Over::Queue { deadline_ms: 1000, most: 100 }
    );
    assert_eq!(search("costly search.over", "reject 429").over, Over::Reject { status: Some(429) });
    assert_eq!(search("costly search.ignore", "5s").ignore_ms, Some(5000));
    assert_eq!(rule(0, "costly search.when", "overload").when, When::Overload);
    assert_eq!(rule(0, "costly search.class", "gold").class.unwrap(), "gold");
    assert_eq!(rule(0, "costly search.action", "reject").action, Some(Action::Reject(403)));
    assert!(rule(0, "costly search.stop", "true").stop);
    let connections = rule(1, "shop.example.connections.rate", "1/h").connections.unwrap();
    assert_eq!(connections.rate.to_string(), "1/h");
    assert_eq!(rule(1, "shop.example.connections", "none").connections, None);
    // a limit that was not there
    let made = rule(2, "shop.connections.rate", "5/s").connections.unwrap();
    assert_eq!((made.burst, made.over), (1, Over::Reset));
    assert_eq!(rule(2, "shop.in_flight.most", "3").in_flight.unwrap().most, 3);
    // several, one upon the other
    let changes = [
        ("costly search.over", "queue"),
        ("costly search.deadline", "250ms"),
        ("costly search.most", "5"),
    ];
    let over = policy().with_changes(&changes).unwrap().rules()[0].requests.unwrap().over;
    assert_eq!(over, Over::Queue { deadline_ms: 250, most: 5 });
}

#[test]
fn classes_change() {
    assert_eq!(changed("gold.share", "12.5%").classes()[0].share, 0.125);
    assert_eq!(changed("bulk.delay", "2s").classes()[1].delay_ms, 2000);
    let turned = changed("gold.priority", "9");
    assert_eq!(turned.classes()[1].name, "gold");
    // a rule of the same name has keys of its own
    assert_eq!(changed("gold.most", "3").rules()[3].in_flight.unwrap().most, 3);
}

#[test]
fn what_cannot_be_is_said() {
    for (text, value, expected) in [
        (
            "costly serch.rate",
            "1/s",
            "no class or rule is named in \"costly serch.rate\"; did you mean \"costly search\"?",
        ),
        (
            "x",
            "1",
            "no class or rule is named in \"x\"; what is expected is NAME.KEY, such as gold.share",
        ),
        (
            "costly search.requests.rat",
            "1/s",
            "\"costly search\" has no key \"requests.rat\"; did you mean \"requests.rate\"?",
        ),
        ("bulk.shar", "1%", "\"bulk\" has no key \"shar\"; did you mean \"share\"?"),
        ("shop.xyzzy", "1", "\"shop\" has no key \"xyzzy\""),
        (
            "shop.example.rate",
            "1/s",
            "\"shop.example\" has both \"connections.rate\" and \"requests.rate\"; say which is meant",
        ),
        ("shop.burst", "1", "\"shop\" has no such limit; \"connections.rate\" makes one"),
        ("shop.requests.burst", "1", "\"shop\" has no such limit; \"requests.rate\" makes one"),
        (
            "costly search.requests.most",
            "1",
            "\"costly search.requests.most\" means nothing without requests.over=queue",
        ),
        (
            "costly search.rate",
            "fast",
            "\"costly search.rate\" cannot be \"fast\"; what is expected is a rate such as 60/s, \
             10/m or 1/h",
        ),
        (
            "gold.over",
            "queue",
            "\"gold.over\" cannot be \"queue\"; what is expected is reject, \"reject 429\", reset \
             or drop",
        ),
        (
            "shop.requests",
            "5/s",
            "\"shop.requests\" cannot be \"5/s\"; what is expected is none; what a limit says has \
             keys of its own, such as requests.rate",
        ),
        ("gold.share", "80%", "\"bulk\": share: the shares of the classes make 110% together"),
        ("shop.class", "god", "\"shop\": class: there is no class \"god\"; did you mean \"gold\"?"),
        (
            "costly search.burst",
            "0",
            "\"costly search\": requests: 0 is not between 1 and 4294967295",
        ),
        (
            "costly search.requests",
            "none",
            "\"costly search\": the rule says nothing; it needs one of class, connections, \
             requests, in_flight, action or stop",
        ),
        (
            "gold.delay",
            "99999999999h",
            "\"gold.delay\" cannot be \"99999999999h\"; what is expected is a time such as 500ms, \
             5s or 1m",
        ),
    ] {
        let error = policy().with_changes(&[(text, value)]).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn no_text_panics() {
    for text in ["", ".", "gold", "gold.", "gold..", ".share", "shop.example", "shop.example."] {
        for value in ["", "none", "%", ".%", "1", "reject ", "reject x", "-1", "ä"] {
            let _ = policy().with_changes(&[(text, value)]);
        }
    }
}
