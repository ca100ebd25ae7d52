//! What must hold for any rules and whoever is judged by them.
//!
//! An input is lines of rules, an empty line, and who asks for what:
//!
//! ```text
//! client=10.0.0.0/8|site=*.example|path=/a*b|class=y|stop
//! cookie=tier=gold|requests=10/m,5,each|overload
//!
//! 10.1.1.1:1500 12.1.1.1:80 b.example GET /a/b
//! Cookie: tier=gold
//! ```

use forebay_policy::certificate::{CertificateFacts, CertificatePattern};
use forebay_policy::class::Class;
use forebay_policy::endpoint::Endpoint;
use forebay_policy::facts::{ConnectionFacts, RequestFacts};
use forebay_policy::field::FieldCondition;
use forebay_policy::pattern::{FileType, MethodPattern, PathPattern, SitePattern};
use forebay_policy::query::Parameter;
use forebay_policy::rate::Rate;
use forebay_policy::rule::{Action, InFlight, Limit, MOST_IGNORE_MS, Over, Per, Rule, When};
use forebay_policy::{ChargeOutcome, FactsNeeded, Policy, State};
use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::Arc;

/// Panics if something does not hold for `bytes`.
pub(crate) fn check(bytes: &[u8]) {
    let end = bytes.windows(2).position(|two| two == b"\n\n").unwrap_or(bytes.len());
    let (rules, asked) = bytes.split_at(end);
    let Ok(rules) = std::str::from_utf8(rules) else { return };
    let rules = rules.lines().enumerate().map(|(number, line)| rule(number, line)).collect();
    let classes = [Class::new("x", 0), Class::new("y", 1), Class::new("z", 2)];
    let Ok(policy) = Policy::new(&classes, rules) else { return };
    let Some(asked) = Asked::read(asked.trim_ascii_start()) else { return };
    for overload in [false, true] {
        check_decisions(&policy, &asked, overload);
    }
    check_charges(policy, &asked);
}

/// The index finds what reading the rules one after another finds, also where it is told only what it
/// needs.
fn check_decisions(policy: &Policy, asked: &Asked<'_>, overload: bool) {
    let explained = policy.explain_connection(&asked.ends, overload);
    assert_eq!(policy.connection(&asked.ends, overload), explained.decisions);
    let facts = asked.facts();
    let decisions = policy.request(&facts, overload);
    let explained = policy.explain_request(&facts, overload);
    assert_eq!(decisions, explained.decisions, "{explained}");
    let FactsNeeded { host, path, query, fields, .. } = policy.needs();
    let RequestFacts { ends, method, .. } = facts;
    let told = RequestFacts {
        ends,
        host: if host { facts.host } else { b"" },
        method,
        path: if path { facts.path } else { b"" },
        query: if query { facts.query } else { b"" },
        certificate: facts.certificate,
        identity: facts.identity,
        fields: facts.fields.filter(|_| fields),
    };
    assert_eq!(policy.request(&told, overload), decisions);
    for rule in policy.rules() {
        for path in &rule.conditions.path {
            let (text, asked) = (path.as_str().as_bytes(), asked.path);
            if !text.starts_with(b"~") && !rule.conditions.ignore_case {
                assert_eq!(path.matches(asked), fits(text, asked), "{path}");
            }
        }
    }
}

/// Whatever time it is, nobody waits longer than he may, what is counted is counted until its ticket is
/// dropped, and who is refused is told of a time that comes.
fn check_charges(policy: Policy, asked: &Asked<'_>) {
    let state = State::new(Arc::new(policy), None, asked.now_ns);
    let decisions = state.policy().request(&asked.facts(), true);
    let client = asked.ends.client.ip();
    let most_wait_ns = |over| match over {
        Over::Queue { deadline_ms, .. } => u64::from(deadline_ms) * 1_000_000,
        _ => 0,
    };
    let rules = || state.policy().rules().iter();
    let most_ns = rules().filter_map(|rule| rule.requests).map(|one| most_wait_ns(one.over));
    let most_ns = most_ns.max().unwrap_or(0);
    let mut tickets = Vec::new();
    for step in 0..20 {
        let now_ns = asked.now_ns.saturating_add(step * asked.step_ns);
        let _ = state.charge_connection(&decisions, client, now_ns);
        match state.charge_request(&decisions, client, now_ns) {
            ChargeOutcome::Admit(admitted) => {
                assert!(admitted.wait_ns <= most_ns);
                tickets.push(admitted.ticket);
            }
            ChargeOutcome::Refuse(refused) => assert_eq!(refused.rank, decisions.rank),
        }
    }
    let counted = || (0..rules().count() as u32).filter_map(|rule| state.in_flight(rule));
    let held = tickets.iter().filter(|ticket| !ticket.is_empty()).count() as u64;
    assert_eq!(counted().map(u64::from).sum::<u64>() + state.clients().in_flight, held);
    tickets.clear();
    assert_eq!(counted().sum::<u32>(), 0);
    assert_eq!(state.clients().in_flight, 0);
}

/// The definition of a pattern with stars, in the plainest way that is not slow.
fn fits(pattern: &[u8], text: &[u8]) -> bool {
    let mut ends = vec![false; text.len() + 1];
    ends[0] = true;
    for &byte in pattern {
        if byte == b'*' {
            let first = ends.iter().position(|end| *end).unwrap_or(ends.len());
            ends[first..].fill(true);
        } else {
            for at in (0..text.len()).rev() {
                ends[at + 1] = ends[at] && text[at] == byte;
            }
            ends[0] = false;
        }
    }
    ends[text.len()]
}

/// Whoever asks, and for what.
struct Asked<'b> {
    ends: ConnectionFacts,
    host: &'b [u8],
    method: &'b str,
    path: &'b [u8],
    query: &'b [u8],
    fields: Vec<(&'b str, &'b [u8])>,
    now_ns: u64,
    step_ns: u64,
}

impl<'b> Asked<'b> {
    fn read(bytes: &'b [u8]) -> Option<Asked<'b>> {
        let mut lines = bytes.split(|&byte| byte == b'\n');
        let mut words = lines.next()?.split(|&byte| byte == b' ');
        let mut address =
            || -> Option<SocketAddr> { std::str::from_utf8(words.next()?).ok()?.parse().ok() };
        let ends = ConnectionFacts { client: address()?, local: address()? };
        let host = words.next()?;
        let method = std::str::from_utf8(words.next()?).ok()?;
        let mut target = words.next()?.splitn(2, |&byte| byte == b'?');
        let (path, query) = (target.next()?, target.next().unwrap_or_default());
        let mut number =
            || -> Option<u64> { std::str::from_utf8(words.next()?).ok()?.parse().ok() };
        let (now_ns, step_ns) = (number().unwrap_or(1 << 40), number().unwrap_or(1 << 20));
        let field = |line: &'b [u8]| {
            let colon = line.iter().position(|&byte| byte == b':')?;
            let name = std::str::from_utf8(&line[..colon]).ok()?;
            Some((name, line[colon + 1..].trim_ascii()))
        };
        let fields = lines.map_while(field).collect();
        // centuries lie between two requests, and a clock that never ends
        let (now_ns, step_ns) = (now_ns.min(u64::MAX >> 2), step_ns.min(u64::MAX >> 8));
        Some(Asked { ends, host, method, path, query, fields, now_ns, step_ns })
    }

    fn facts(&self) -> RequestFacts<'_, impl Iterator<Item = (&str, &[u8])> + Clone> {
        let Asked { ends, host, method, path, query, fields, .. } = self;
        // one field stands for a certificate
        let shown = fields.iter().find(|(name, _)| *name == "certificate");
        let subject = shown.and_then(|(_, subject)| std::str::from_utf8(subject).ok());
        let certificate = subject.map(|subject| CertificateFacts { subject, fingerprint: "" });
        // and one for an identity
        let identity = fields.iter().find(|(name, _)| *name == "identity");
        let identity = identity.and_then(|(_, name)| std::str::from_utf8(name).ok());
        let fields = fields.iter().copied();
        RequestFacts { ends: *ends, host, method, path, query, certificate, identity, fields }
    }
}

/// A line as a rule: what cannot be read is left out.
fn rule(number: usize, line: &str) -> Rule {
    let mut rule = Rule { name: number.to_string(), ..Rule::default() };
    for word in line.split('|') {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        let these = &mut rule.conditions;
        match key {
            "client" => read(Endpoint::parse(value), value, &mut these.client),
            "local" => read(Endpoint::parse(value), value, &mut these.local),
            "site" => read(SitePattern::parse(value), value, &mut these.site),
            "method" => read(MethodPattern::parse(value), value, &mut these.method),
            "path" => read(PathPattern::parse(value), value, &mut these.path),
            "query" => read(Parameter::parse(value), value, &mut these.query),
            "nocase" => these.ignore_case = true,
            "last" => rule.requests_per_connection = value.parse().ok(),
            "type" => read(FileType::parse(value), value, &mut these.file_type),
            "certificate" => read(CertificatePattern::parse(value), value, &mut these.certificate),
            "header" => read(FieldCondition::parse(value), value, &mut these.header),
            "cookie" => read(FieldCondition::parse(value), value, &mut these.cookie),
            "class" => rule.class = Some(value.to_owned()),
            "connections" => rule.connections = limit(value),
            "requests" => rule.requests = limit(value),
            "most" => rule.in_flight = in_flight(value),
            "reset" => rule.action = Some(Action::Reset),
            "allow" => rule.action = Some(Action::Allow),
            "reject" => rule.action = value.parse().ok().map(Action::Reject),
            "stop" => rule.stop = true,
            "overload" => rule.when = When::Overload,
            _ => {}
        }
    }
    rule
}

/// Adds what was read of a text, if it could be; it is shown as it was written.
fn read<T: Display, E: Display>(parsed: Result<T, E>, text: &str, into: &mut Vec<T>) {
    match parsed {
        Ok(one) => {
            assert_eq!(one.to_string(), text);
            into.push(one);
        }
        Err(error) => assert!(!error.to_string().chars().any(char::is_control), "{error}"),
    }
}

/// `10/m,5,each,queue,500,20`: the rate, and perhaps a burst, of each client, what becomes of the rest
/// with its deadline and how many may wait, and how long one is ignored.
fn limit(text: &str) -> Option<Limit> {
    let mut parts = text.split(',');
    let rate = Rate::parse(parts.next()?).ok()?;
    let mut limit =
        Limit::new(rate, parts.next().and_then(|burst| burst.parse().ok()).unwrap_or(1));
    let mut numbers = text.split(',').skip(2).filter_map(|part| part.parse::<u32>().ok());
    let has = |word| text.split(',').any(|part| part == word);
    if has("each") {
        limit.per = Per::Client;
    }
    if has("queue") {
        let (deadline_ms, most) = (numbers.next().unwrap_or(1), numbers.next().unwrap_or(1));
        limit.over = Over::Queue { deadline_ms, most };
    }
    if has("ignore") {
        limit.ignore_ms = Some(numbers.next().unwrap_or(MOST_IGNORE_MS));
    }
    Some(limit)
}

fn in_flight(text: &str) -> Option<InFlight> {
    let (most, per) = match text.strip_suffix(",each") {
        Some(most) => (most, Per::Client),
        None => (text, Per::Rule),
    };
    Some(InFlight { most: most.parse().ok()?, per, over: Over::default() })
}
