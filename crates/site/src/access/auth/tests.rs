//! The path of credentials from the head of a request to the verdict.

use super::*;
use crate::rules::{Scope, User};
use crate::testing::with_head;
use std::thread;

/// "password", as cheap as bcrypt gets.
const HASH: &str = "$2y$04$Ayqf8k2/9gHzdxxo46SsvO8l1s9GGupyEZ18Jcf3lO9QV5zPt70Xi";
const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

fn rule(names: &[&str]) -> Auth {
    let users = names.iter().map(|name| User::parse(name, HASH).unwrap()).collect();
    Auth { paths: Scope::any().into(), realm: RealmName::default(), users, file: None }
}

/// Realm 0 for alice, realm 1 for bob and alice.
fn realms() -> Arc<Realms> {
    let rules = [rule(&["alice"]), rule(&["bob", "alice"])];
    Arc::new(Realms::new(rules.iter()).unwrap())
}

fn basic(pair: &str) -> String {
    format!("Authorization: Basic {}\r\n", Base64::encode_string(pair.as_bytes()))
}

/// The status that a request with these fields gets in the end, and the number of its
/// verifications.
fn fate(realms: &Arc<Realms>, own: &mut Own, realm: u32, fields: &str) -> (u16, u32) {
    let decision = with_head(fields, |head| realms.decide(realm, head, own, 0, CLIENT));
    match decision {
        AuthDecision::Verify(verification) => {
            let verified = verification.run();
            (status(&realms.take(&verified, own)), 1)
        }
        decision => (status(&decision), 0),
    }
}

fn status(decision: &AuthDecision) -> u16 {
    match decision {
        AuthDecision::Pass => 200,
        AuthDecision::Refuse => 401,
        AuthDecision::Broken => 500,
        AuthDecision::LimitReached(status) => *status,
        AuthDecision::Verify(_) => panic!("verified once already"),
    }
}

#[test]
fn credentials_are_verified_once_in_each_realm() {
    let (realms, mut own) = (realms(), Own::default());
    let mut ask = |realm, pair| fate(&realms, &mut own, realm, &basic(pair));
    assert_eq!(ask(0, "alice:password"), (200, 1));
    assert_eq!(ask(0, "alice:password"), (200, 0));
    assert_eq!(ask(1, "alice:password"), (200, 1));
    assert_eq!(ask(0, "alice:wrong"), (401, 1));
    assert_eq!(ask(0, "alice:wrong"), (401, 0));
    assert_eq!(ask(0, "bob:password"), (401, 1));
    assert_eq!(ask(1, "bob:password"), (200, 1));
    assert_eq!(ask(0, "nobody:password"), (401, 1));
}

#[test]
fn another_loop_learns_from_the_shared_table() {
    let realms = realms();
    assert_eq!(fate(&realms, &mut Own::default(), 0, &basic("alice:password")), (200, 1));
    assert_eq!(fate(&realms, &mut Own::default(), 0, &basic("alice:password")), (200, 0));
}

#[test]
fn what_is_no_credentials_is_refused_at_once() {
    let (realms, mut own) = (realms(), Own::default());
    let token = Base64::encode_string(b"alice:password");
    let long = Base64::encode_string(&[b'a'; MOST_CREDENTIALS_BYTES]);
    let control = Base64::encode_string(b"alice:pass\0word");
    let bare = Base64::encode_string(b"alicepassword");
    for fields in [
        String::new(),
        "Authorization: Basic\r\n".to_owned(),
        "Authorization: Basic \r\n".to_owned(),
        "Authorization: Basic !!!!\r\n".to_owned(),
        format!("Authorization: Bearer {token}\r\n"),
        format!("Authorization: Basic{token}\r\n"),
        format!("Authorization: Basic {token}\r\nAuthorization: Basic {token}\r\n"),
        format!("Authorization: Basic {long}\r\n"),
        format!("Authorization: Basic {control}\r\n"),
        format!("Authorization: Basic {bare}\r\n"),
        format!("Authorization: Basic {token},\r\n"),
    ] {
        assert_eq!(fate(&realms, &mut own, 0, &fields), (401, 0), "{fields}");
    }
    for fields in [format!("authorization: bAsIc   {token}  \r\n"), basic("alice:password")] {
        assert_eq!(fate(&realms, &mut own, 0, &fields).0, 200, "{fields}");
    }
}

#[test]
fn the_challenge_names_the_realm_and_the_charset() {
    let line = String::from_utf8(realms().challenge(0).to_vec()).unwrap();
    let expected = "Basic realm=\"private\", charset=\"UTF-8\"";
    assert_eq!(line, expected);
}

#[test]
fn one_user_is_one_lane_and_all_lanes_are_few() {
    let realms = realms();
    let lane = |pair: &str| {
        let mut own = Own::default();
        let client = pair.len() as u32;
        let decide = |head: &Head<'_>| {
            realms.decide(0, head, &mut own, 0, IpAddr::from(client.to_be_bytes()))
        };
        match with_head(&basic(pair), decide) {
            AuthDecision::Verify(verification) => verification.lane(),
            _ => panic!("nothing is known of {pair}"),
        }
    };
    assert_eq!(lane("mallory:1"), lane("mallory:2"));
    let lanes: std::collections::HashSet<_> = (0..500).map(|n| lane(&format!("{n}:x"))).collect();
    assert!(lanes.len() as u64 <= verification_limit::lanes(), "{lanes:?}");
}

#[test]
fn one_client_waits_in_few_places() {
    let (realms, mut own) = (realms(), Own::default());
    let mut waiting = Vec::new();
    let refused = (0..100).find_map(|n| {
        let fields = basic(&format!("alice:{n}"));
        match with_head(&fields, |head| realms.decide(0, head, &mut own, 0, CLIENT)) {
            AuthDecision::Verify(verification) => {
                waiting.push(verification);
                None
            }
            decision => Some(status(&decision)),
        }
    });
    assert_eq!((refused, waiting.len()), (Some(429), 8));
    waiting.clear();
    assert_eq!(fate(&realms, &mut own, 0, &basic("alice:password")).0, 200);
}

/// Both answers are wrong credentials, and both must cost the same work; only a clock that both
/// share could tell them apart. The test compares the CPU time of a thread of its own.
#[test]
fn a_stranger_costs_what_a_user_costs() {
    let realms = realms();
    let cost_ns = |pair: &'static str| {
        let realms = Arc::clone(&realms);
        let run = move || {
            let before_ns = forebay_sys::clock::thread_cpu_ns();
            for n in 0..20 {
                let fields = basic(&format!("{pair}{n}"));
                assert_eq!(fate(&realms, &mut Own::default(), 0, &fields), (401, 1));
            }
            forebay_sys::clock::thread_cpu_ns() - before_ns
        };
        thread::spawn(run).join().unwrap()
    };
    let (known, unknown) = (cost_ns("alice:"), cost_ns("mallory:"));
    assert!(unknown * 3 > known && known * 3 > unknown, "{known} ns, {unknown} ns");
}
