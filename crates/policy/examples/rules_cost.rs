//! Measures what judging a request costs: run alone in nanoseconds, in instructions under `valgrind
//! --tool=callgrind --toggle-collect=rules_cost::judge`.
//!
//! `rules_cost none|rules|one-site|address COUNT`: no rules; 10,000 rules (9,000 for a site and what
//! the path begins with, 990 for networks, 10 that are tried one by one); the same with all 9,000 on
//! one site; only those for networks. 4,096 requests are judged in turn: three of four match a rule
//! for a path, two of three one for a network, none one of the ten.
#![forbid(unsafe_code)]

use forebay_policy::Policy;
use forebay_policy::class::Class;
use forebay_policy::condition::Conditions;
use forebay_policy::decision::Decisions;
use forebay_policy::endpoint::Endpoint;
use forebay_policy::facts::{ConnectionFacts, RequestFacts};
use forebay_policy::pattern::{PathPattern, SitePattern};
use forebay_policy::rate::Rate;
use forebay_policy::rule::{Limit, Rule};
use std::error::Error;
use std::hint::black_box;
use std::net::Ipv4Addr;
use std::process::ExitCode;
use std::time::Instant;

type Built = Result<Vec<Rule>, Box<dyn Error>>;

struct Asked {
    ends: ConnectionFacts,
    host: String,
    path: String,
}

const FIELDS: [(&str, &[u8]); 8] = [
    ("Host", b"site-1.example"),
    ("User-Agent", b"Mozilla/5.0 (X11; Linux x86_64; rv:150.0) Gecko/20100101 Firefox/150.0"),
    ("Accept", b"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"),
    ("Accept-Language", b"en-US,en;q=0.5"),
    ("Accept-Encoding", b"gzip, deflate, br, zstd"),
    ("Referer", b"https://site-1.example/"),
    ("Cookie", b"session=0123456789abcdef; theme=dark"),
    ("Connection", b"keep-alive"),
];

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().collect();
    let count = arguments.get(2).and_then(|text| text.parse().ok());
    let (Some(kind), Some(count)) = (arguments.get(1), count) else { return ExitCode::from(2) };
    let sites = if kind == "one-site" { 1 } else { 90 };
    let rules = match kind.as_str() {
        "none" => Ok(Vec::new()),
        "rules" | "one-site" => all(sites),
        "address" => networks(),
        _ => return ExitCode::from(2),
    };
    let policy = rules.and_then(|rules| {
        let classes = [Class::new("gold", 0), Class::new("standard", 1), Class::new("bulk", 2)];
        Ok(Policy::new(&classes, rules)?)
    });
    match policy {
        Ok(policy) => measure(&policy, &requests(sites), count),
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn measure(policy: &Policy, requests: &[Asked], count: usize) {
    let mut rounds = Vec::new();
    for _ in 0..5 {
        let begun = Instant::now();
        for asked in requests.iter().cycle().take(count) {
            black_box(judge(policy, black_box(asked)));
        }
        rounds.push(begun.elapsed().as_nanos() as f64 / count as f64);
    }
    rounds.sort_by(f64::total_cmp);
    println!("{:.1} ns a request ({:.1} to {:.1})", rounds[2], rounds[0], rounds[4]);
}

/// Not inlined, so that callgrind can count its instructions.
#[inline(never)]
fn judge(policy: &Policy, asked: &Asked) -> Decisions {
    let facts = RequestFacts {
        ends: asked.ends,
        host: asked.host.as_bytes(),
        method: "GET",
        path: asked.path.as_bytes(),
        query: b"",
        certificate: None,
        identity: None,
        fields: FIELDS.into_iter(),
    };
    policy.request(&facts, false)
}

fn all(sites: usize) -> Built {
    let mut rules = Vec::new();
    for number in 0..9000 {
        let site = vec![SitePattern::parse(&host(number % sites))?];
        let path = vec![PathPattern::parse(&format!("{}*", section(number / sites)))?];
        let conditions = Conditions { site, path, ..Conditions::default() };
        rules.push(rule(format!("path {number}"), conditions));
    }
    rules.extend(networks()?);
    for number in 0..10 {
        let path = vec![PathPattern::parse(&format!("*/private-{number}/*.php"))?];
        let conditions = Conditions { path, ..Conditions::default() };
        rules.push(rule(format!("wildcard {number}"), conditions));
    }
    Ok(rules)
}

fn networks() -> Built {
    let mut rules = Vec::new();
    for number in 0..990_u32 {
        let bits = 20 + number % 9;
        let network = Ipv4Addr::from_bits((10 << 24 | number << 14) >> (32 - bits) << (32 - bits));
        let client = vec![Endpoint::parse(&format!("{network}/{bits}"))?];
        let conditions = Conditions { client, ..Conditions::default() };
        rules.push(rule(format!("network {number}"), conditions));
    }
    Ok(rules)
}

fn rule(name: String, conditions: Conditions) -> Rule {
    let requests = Some(Limit::new(Rate::per_second(100), 10));
    Rule { name, conditions, class: Some("gold".to_owned()), requests, ..Rule::default() }
}

fn host(number: usize) -> String {
    format!("site-{number}.example")
}

fn section(number: usize) -> String {
    format!("/app/section-{number}/part-{}/", number % 7)
}

/// Requests in an order that no cache can predict.
fn requests(sites: usize) -> Vec<Asked> {
    let mut state = 1_u64;
    let mut random = move |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as usize % below
    };
    let request = |_| {
        let path = match random(4) {
            0 => format!("/other/page-{}.html", random(1000)),
            _ => format!("{}page-{}.html", section(random(9000 / sites)), random(1000)),
        };
        let network = if random(3) == 0 { 192 } else { 10 };
        let client = Ipv4Addr::from_bits((network << 24 | random(990 << 14)) as u32);
        let ends = ConnectionFacts {
            client: (client, 4711).into(),
            local: (Ipv4Addr::new(192, 0, 2, 1), 80).into(),
        };
        Asked { ends, host: host(random(sites)), path }
    };
    (0..4096).map(request).collect()
}
