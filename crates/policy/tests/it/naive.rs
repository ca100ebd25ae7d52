//! The compiled policy decides as the rules say when they are read one after another.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use forebay_policy::certificate::{CertificateFacts, CertificatePattern};
use forebay_policy::class::Class;
use forebay_policy::condition::Conditions;
use forebay_policy::decision::{Decisions, RefusalAnswer};
use forebay_policy::endpoint::Endpoint;
use forebay_policy::facts::{ConnectionFacts, RequestFacts};
use forebay_policy::field::FieldCondition;
use forebay_policy::first::{FirstRequest, FirstSegment};
use forebay_policy::identity::IdentityPattern;
use forebay_policy::pattern::{FileType, MethodPattern, PathPattern, SitePattern};
use forebay_policy::query::Parameter;
use forebay_policy::rate::Rate;
use forebay_policy::rule::{Action, Degree, InFlight, Limit, Over, Per, Rule, When};
use forebay_policy::{Policy, RuleSetting};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use std::net::SocketAddr;

const CLIENTS: &[&str] = &[
    "*",
    "10.0.0.0/8",
    "10.1.0.0/16",
    "10.1.1.1",
    "10.1.1.1:1000-2000",
    "*:1500",
    "0.0.0.0/0",
    "::/0",
    "fd00::/8",
    "[fd00::1]:1500",
    "unix",
    "::ffff:10.1.0.0/112",
    "10.1.0.9-10.2.1.1",
    "::-fe00::",
];
const LOCALS: &[&str] = &["*:80", "12.1.1.0/24", "12.1.1.1:80", "::/0", "*:443"];
const SITES: &[&str] = &["a.example", "*.example", "*.a.example", "b.a.example", "[::1]"];
const PATHS: &[&str] = &[
    "/", "/*", "*", "/a", "/a*", "/a/*", "/a/b", "/a/b*", "*b*", "/a*b", "/*/b", "*.php", "/ab*",
    "~b$", "~^/a/", "/A*",
];
const QUERIES: &[&str] = &["x", "x=1", "x=~^[0-9]$", "y=B*"];
const TYPES: &[&str] = &["php", "html"];
const METHODS: &[&str] = &["GET", "POST"];
const HEADERS: &[&str] = &["X-Beta", "x-beta=1", "Accept=text/*"];
const IDENTITIES: &[&str] = &["gold", "go*", "b"];
const CERTIFICATES: &[&str] = &["any", "subject=CN=a*", "subject=CN=b"];
const COOKIES: &[&str] = &["tier=gold", "tier", "tier=go*"];

/// A text that is too long for a host: 5 times 60 bytes.
const LONG: &str = {
    macro_rules! part {
        () => {
            "a.b.c.d.e.f.a.b.c.d.e.f.a.b.c.d.e.f.a.b.c.d.e.f.a.b.c.d.e.f."
        };
    }
    concat!(part!(), part!(), part!(), part!(), part!(), "a.example")
};

/// None, one or two of `texts`; most often none.
fn some<T: std::fmt::Debug + Clone>(
    texts: &'static [&'static str],
    parse: fn(&str) -> T,
) -> impl Strategy<Value = Vec<T>> {
    let chosen = prop_oneof![
        3 => Just(Vec::new()),
        2 => subsequence(texts, 1),
        1 => subsequence(texts, 2),
    ];
    chosen.prop_map(move |texts| texts.into_iter().map(parse).collect())
}

fn conditions() -> impl Strategy<Value = Conditions> {
    let addresses = (
        some(CLIENTS, |text| Endpoint::parse(text).unwrap()),
        some(LOCALS, |text| Endpoint::parse(text).unwrap()),
    );
    let request = (
        some(SITES, |text| SitePattern::parse(text).unwrap()),
        some(METHODS, |text| MethodPattern::parse(text).unwrap()),
        some(PATHS, |text| PathPattern::parse(text).unwrap()),
        some(QUERIES, |text| Parameter::parse(text).unwrap()),
        some(TYPES, |text| FileType::parse(text).unwrap()),
        some(CERTIFICATES, |text| CertificatePattern::parse(text).unwrap()),
        some(IDENTITIES, |text| IdentityPattern::parse(text).unwrap()),
        some(HEADERS, |text| FieldCondition::parse(text).unwrap()),
        some(COOKIES, |text| FieldCondition::parse(text).unwrap()),
    );
    let ignore_case = prop::bool::weighted(0.2);
    let request = prop::option::weighted(0.7, request);
    (addresses, request, ignore_case).prop_map(|((client, local), request, ignore_case)| {
        let (site, method, path, query, file_type, certificate, identity, header, cookie) =
            request.unwrap_or_default();
        Conditions {
            client,
            local,
            site,
            method,
            path,
            query,
            file_type,
            certificate,
            identity,
            header,
            cookie,
            ignore_case,
        }
    })
}

fn rule() -> impl Strategy<Value = Rule> {
    let settings = prop::collection::vec(any::<bool>(), 6);
    let whens: Vec<When> = (1..=3).map(|number| When::From(Degree::of(number))).collect();
    let when = prop_oneof![4 => Just(When::Always), 1 => Just(When::Overload), 1 => select(whens)];
    let stop = prop::bool::weighted(0.15);
    (conditions(), settings, when, stop, select(vec!["x", "y", "z"])).prop_map(
        |(conditions, named, when, stop, class)| {
            let limit = Limit::new(Rate::per_second(1), 1);
            let in_flight = InFlight { most: 1, per: Per::Rule, over: Over::default() };
            let mut rule = Rule {
                when,
                stop,
                conditions,
                class: named[0].then(|| class.to_owned()),
                requests: named[2].then_some(limit),
                in_flight: named[3].then_some(in_flight),
                action: named[4].then_some(Action::Reset),
                requests_per_connection: named[5].then_some(1),
                ..Rule::default()
            };
            rule.connections = (named[1] && rule.is_for_connections()).then_some(limit);
            if rule.class.is_none() && rule.requests.is_none() && rule.in_flight.is_none() {
                rule.action = Some(Action::Allow);
            }
            rule
        },
    )
}

fn rules() -> impl Strategy<Value = Vec<Rule>> {
    prop::collection::vec(rule(), 0..24).prop_map(|mut rules| {
        for (number, rule) in rules.iter_mut().enumerate() {
            rule.name = number.to_string();
        }
        rules
    })
}

#[derive(Clone, Debug)]
struct Asked {
    ends: ConnectionFacts,
    host: &'static str,
    method: &'static str,
    path: String,
    query: &'static str,
    subject: Option<&'static str>,
    identity: Option<&'static str>,
    fields: Vec<(&'static str, &'static str)>,
    degree: Degree,
}

fn asked() -> impl Strategy<Value = Asked> {
    const FIELDS: &[(&str, &str)] = &[
        ("X-BETA", "1"),
        ("x-beta", "2"),
        ("accept", "text/html"),
        ("Cookie", "a=b; tier=gold"),
        ("cookie", "tier=silver"),
        ("Cookie", "tier = gold"),
    ];
    let clients = [
        "10.1.1.1:1500",
        "10.1.1.1:0",
        "10.2.1.1:1500",
        "8.8.8.8:9",
        "[fd00::1]:1500",
        "0.0.0.0:0",
    ];
    let mapped = ["[::ffff:10.1.2.3]:1500", "[::1]:1", "[::fffe:0:1]:1500"];
    let locals = ["12.1.1.1:80", "12.1.1.2:443", "[fd00::2]:80", "0.0.0.0:0"];
    let hosts =
        ["a.example", "b.a.example", "c.b.a.example", "example", "", "[::1]", "xa.example", LONG];
    let paths = prop_oneof![
        select(vec!["/", "/a", "/a/", "/a/b", "/ab", "/a/x/b", "/a.php", "/a/b.html", "*"])
            .prop_map(str::to_owned),
        "/[abA/]{0,4}(\\.php)?(\\.gz|\\.zst|\\.br)?",
    ];
    let address = |text: &str| -> SocketAddr { text.parse().unwrap() };
    (
        select([&clients[..], &mapped[..]].concat()),
        select(locals.to_vec()),
        select(hosts.to_vec()),
        select(vec!["GET", "POST", "get"]),
        paths,
        select(vec!["", "x", "x=1", "X=1&y=bc", "y=%42"]),
        select(vec![None, Some("CN=a,O=x"), Some("CN=b")]),
        select(vec![None, Some("gold"), Some("b")]),
        subsequence(FIELDS, 0..=3),
        (0..=3_u8).prop_map(Degree::of),
    )
        .prop_map(
            move |(client, local, host, method, path, query, subject, identity, fields, degree)| {
                Asked {
                    ends: ConnectionFacts { client: address(client), local: address(local) },
                    host,
                    method,
                    path,
                    query,
                    subject,
                    identity,
                    fields,
                    degree,
                }
            },
        )
}

fn certificate(subject: &str) -> CertificateFacts<'_> {
    CertificateFacts { subject, fingerprint: "" }
}

fn any_of<T>(list: &[T], holds: impl Fn(&T) -> bool) -> bool {
    list.is_empty() || list.iter().any(holds)
}

/// The definition: does the rule match?
fn matches(rule: &Rule, asked: &Asked, is_request: bool) -> bool {
    let Asked { ends, host, method, path, query, subject, identity, fields, degree } = asked;
    let certificate = subject.map(certificate);
    let c = rule.conditions.clone().folded().unwrap();
    let file = [".gz", ".br", ".zst"].iter().find_map(|ending| path.strip_suffix(ending));
    let file = file.filter(|file| !file.ends_with('/') && !file.is_empty());
    (is_request || rule.is_for_connections())
        && match rule.when {
            When::Always => true,
            When::Overload => degree.number() >= if is_request { 1 } else { 3 },
            When::From(from) => *degree >= from,
        }
        && any_of(&c.client, |one| one.holds(ends.client))
        && any_of(&c.local, |one| one.holds(ends.local))
        && any_of(&c.site, |one| one.matches(host.as_bytes()))
        && any_of(&c.method, |one| one.as_str() == *method)
        && any_of(&c.path, |one| {
            one.matches(path.as_bytes()) || file.is_some_and(|file| one.matches(file.as_bytes()))
        })
        && any_of(&c.query, |one| one.matches(query.as_bytes()))
        && any_of(&c.file_type, |one| one.matches(path.as_bytes()))
        && any_of(&c.certificate, |one| certificate.is_some_and(|shown| one.matches(&shown)))
        && any_of(&c.identity, |one| identity.is_some_and(|name| one.matches(name)))
        && any_of(&c.header, |one| {
            fields.iter().any(|(name, value)| one.matches_header(name, value.as_bytes()))
        })
        && any_of(&c.cookie, |one| {
            let cookies = fields.iter().filter(|(name, _)| name.eq_ignore_ascii_case("cookie"));
            cookies.clone().any(|(_, value)| one.matches_cookies(value.as_bytes()))
        })
}

/// The definition: which rule decides what?
fn judge(rules: &[Rule], asked: &Asked, is_request: bool) -> [Option<u32>; 6] {
    let mut matching: Vec<(u32, &Rule)> = Vec::new();
    for (number, rule) in (0..).zip(rules) {
        if matches(rule, asked, is_request) {
            matching.push((number, rule));
            if rule.stop {
                break;
            }
        }
    }
    let first = |names: &dyn Fn(&Rule) -> bool| {
        matching.iter().find(|(_, rule)| names(rule)).map(|(number, _)| *number)
    };
    [
        first(&|rule| rule.class.is_some() && !rule.is_for_connections())
            .or_else(|| first(&|rule| rule.class.is_some())),
        first(&|rule| rule.connections.is_some() && !is_request),
        first(&|rule| rule.requests.is_some() && is_request),
        first(&|rule| rule.in_flight.is_some() && is_request),
        first(&|rule| rule.requests_per_connection.is_some() && is_request),
        first(&|rule| rule.action.is_some()),
    ]
}

fn settings(decisions: &Decisions) -> [Option<u32>; 6] {
    RuleSetting::ALL.map(|setting| setting.rule(decisions))
}

/// Whether a decision about a first segment agrees with the decisions about the whole request.
fn is_so(rules: &[Rule], of: &Decisions, is_full: bool, told: FirstRequest) -> bool {
    let rule = |number: u32| &rules[number as usize];
    let refusing = of.action.filter(|number| rule(*number).action != Some(Action::Allow));
    let full = of.in_flight.filter(|_| is_full);
    match told {
        FirstRequest::Refuse(number, RefusalAnswer::Reset) => refusing == Some(number),
        FirstRequest::Refuse(number, _) => refusing.is_none() && full == Some(number),
        FirstRequest::Charge(number, _) => {
            refusing.is_none() && full.is_none() && of.requests == Some(number)
        }
        FirstRequest::Pass => refusing.is_none() && full.is_none() && of.requests.is_none(),
        FirstRequest::CannotTell => true,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]
    #[test]
    fn compiled_or_read_one_by_one(rules in rules(), asked in prop::collection::vec(asked(), 8)) {
        let classes = [Class::new("x", 0), Class::new("y", 1), Class::new("z", 2)];
        let policy = Policy::new(&classes, rules.clone()).unwrap();
        for asked in asked {
            let fields = || asked.fields.iter().map(|(name, value)| (*name, value.as_bytes()));
            let facts = RequestFacts {
                ends: asked.ends,
                host: asked.host.as_bytes(),
                method: asked.method,
                path: asked.path.as_bytes(),
                query: asked.query.as_bytes(),
                certificate: asked.subject.map(certificate),
                identity: asked.identity,
                fields: fields(),
            };
            let request = policy.request(&facts, asked.degree);
            prop_assert_eq!(settings(&request), judge(&rules, &asked, true));
            let explained = policy.explain_request(&facts, asked.degree);
            prop_assert_eq!(explained.decisions, request);

            let Asked { method, path, query, host, .. } = &asked;
            let fields = asked.fields.iter().map(|(name, value)| format!("{name}: {value}\r\n"));
            let fields: String = fields.collect();
            let data =
                format!("{method} {path}?{query} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n");
            let first = FirstSegment::read(data.as_bytes());
            if let Some(first) = &first {
                for full in [false, true] {
                    let told = policy.first_request(&asked.ends, first, asked.degree, |_| full);
                    prop_assert!(is_so(&rules, &request, full, told), "{:?} of {:?}", told, data);
                }
            }
            let first = first.and_then(|it| policy.first_segment(&asked.ends, &it, asked.degree));
            prop_assert!(first.is_none_or(|rank| rank == request.rank), "{:?}", data);

            let connection = policy.connection(&asked.ends, asked.degree);
            prop_assert_eq!(settings(&connection), judge(&rules, &asked, false));
            let explained = policy.explain_connection(&asked.ends, asked.degree);
            prop_assert_eq!(explained.decisions, connection);

            for decisions in [request, connection] {
                let class = match decisions.class {
                    Some(rule) => rules[rule as usize].class.as_deref().unwrap(),
                    None => "z",
                };
                prop_assert_eq!(&policy.classes()[usize::from(decisions.rank)].name, class);
            }
        }
    }
}
