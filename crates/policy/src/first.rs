//! Decisions for an enforcer that sees no more of a connection than its first segment of data, such as the
//! kernel.
//!
//! The enforcer knows the four-tuple, and of the first request the method, the path, perhaps the host, and
//! cookies, if the segment shows them plainly. From that it determines the class of the first request, or
//! says that it cannot tell. It is never wrong: whatever the rest of the request says, the rules give the
//! same class.
//!
//! Where TLS begins there is no request to read, but perhaps the name of the server. The name determines the
//! class of requests for this host, if the rules need nothing else. A client that then requests another host
//! over the same connection has announced a wrong name. Nothing is refused because of a hello.

mod alone;
mod cookies;
mod enforced_at;
mod hello;
mod refusing;

use crate::condition::{ConditionKind, Conditions};
use crate::facts::ConnectionFacts;
use crate::policy::Policy;
use crate::rule::{Degree, JudgePhase, Rule};
pub use alone::FirstShown;
pub use cookies::{FirstCookies, MOST_HEAD, MOST_PAIR, MOST_PAIRS};
pub use enforced_at::{EnforcedAt, LeftPatterns, WhyServer, enforced_at};
pub use hello::{FirstHello, MOST_EXTENSIONS};
pub use refusing::{FirstRequest, LeftBecause, acts, connections, in_flight, requests};

/// How many bytes of the segment are read at most.
pub const MOST_READ: usize = 384;
/// The longest path that is judged, in bytes.
pub const MOST_PATH: usize = 160;
/// The longest host that is judged, in bytes.
pub const MOST_HOST: usize = 63;
/// The longest method that is judged, in bytes.
pub const MOST_METHOD: usize = 15;

/// The beginning of a request, as far as it can be read in one way only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirstSegment<'s> {
    /// The method: capitals, `-` and `_`.
    pub method: &'s [u8],
    /// The path, without the query. It is its own normal form: nothing is encoded, there are no dot segments,
    /// and it does not name a compressed form of a file.
    pub path: &'s [u8],
    /// The host in small letters, without the port; `None` if the first header field does not show it
    /// plainly.
    pub host: Option<&'s [u8]>,
    /// The cookies that the segment shows.
    pub cookies: FirstCookies<'s>,
}

impl<'s> FirstSegment<'s> {
    /// Reads the beginning of a request in the data of a segment. `None` if the segment does not show method
    /// and path plainly: in TLS, in the preface of HTTP/2, and for a path that continues in the next segment
    /// or whose normal form differs from it.
    pub fn read(data: &'s [u8]) -> Option<FirstSegment<'s>> {
        let cookies = FirstCookies::read(data);
        let data = &data[..data.len().min(MOST_READ)];
        let is_method = |byte: &u8| byte.is_ascii_uppercase() || matches!(byte, b'-' | b'_');
        let method = &data[..data.iter().position(|byte| !is_method(byte))?];
        let target = data[method.len()..].strip_prefix(b" ")?;
        let path = &target[..target.iter().position(|byte| matches!(byte, b' ' | b'?'))?];
        let is_long = method.len() > MOST_METHOD || path.len() > MOST_PATH;
        if method.is_empty() || is_long || !is_plain(path) {
            return None;
        }
        let host = host(&target[path.len()..]);
        Some(FirstSegment { method, path, host, cookies })
    }
}

/// Whether a path is certainly its own normal form, and no compressed form of a file.
pub fn is_plain(path: &[u8]) -> bool {
    let is_detour = |two: &[u8]| matches!(two, b"//" | b"/.");
    let is_form = [&b".gz"[..], b".br", b".zst"].iter().any(|end| path.ends_with(end));
    path.first() == Some(&b'/')
        && path.iter().all(|byte| is_of_path(*byte))
        && !path.windows(2).any(is_detour)
        && !is_form
}

/// Whether a byte stands for itself in a path (RFC 3986 §3.3). A semicolon does not: it begins parameters,
/// which an application does not count as part of a name, and rules for it are matched without them.
fn is_of_path(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"/-._~!$&'()*+,=:@".contains(&byte)
}

/// Whether a byte stands for itself in a host.
pub fn is_of_host(byte: &u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'.' | b'-' | b'_')
}

/// The host, if the first header field after the path is `Host`.
fn host(rest: &[u8]) -> Option<&[u8]> {
    let query = rest.strip_prefix(b"?");
    let query_bytes = query.map_or(Some(0), |query| {
        let end = query.iter().position(|byte| matches!(byte, b' ' | b'\r' | b'\n'))?;
        (query[end] == b' ').then_some(end + 1)
    })?;
    let version = &rest[query_bytes..];
    let field = &version[version.iter().position(|byte| *byte == b'\n')? + 1..];
    let (name, value) = field.split_at_checked(5)?;
    if !name.eq_ignore_ascii_case(b"host:") {
        return None;
    }
    let blanks = value.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    let value = &value[blanks..];
    let end = value.iter().position(|byte| !is_of_host(byte))?;
    let is_good = (1..=MOST_HOST).contains(&end)
        && matches!(value[end], b'\r' | b':')
        && value[end - 1] != b'.';
    is_good.then_some(&value[..end])
}

/// Whether a condition holds, as far as a first segment shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Holds {
    /// The condition certainly does not hold.
    No,
    /// The first segment does not show enough to tell.
    CannotTell,
    /// The condition certainly holds.
    Yes,
}

/// The alternatives of a condition, which one text is compared with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Alternatives {
    /// The texts. With `true`, everything that begins with the text matches.
    pub texts: Vec<(Box<[u8]>, bool)>,
    /// Whether there are alternatives that a first segment cannot be compared with.
    pub needs_more: bool,
}

impl Alternatives {
    fn hold(&self, text: &[u8]) -> Holds {
        let fits = |(one, is_prefix): &(Box<[u8]>, bool)| match is_prefix {
            true => text.starts_with(one),
            false => text == &**one,
        };
        match self.texts.iter().any(fits) {
            true => Holds::Yes,
            false if self.needs_more => Holds::CannotTell,
            false => Holds::No,
        }
    }
}

/// The conditions of a rule that a first segment can be compared with, addresses aside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SegmentConditions {
    /// Methods, if the rule asks for any.
    pub methods: Option<Alternatives>,
    /// Paths, if the rule asks for any.
    pub paths: Option<Alternatives>,
    /// Hosts, if the rule asks for any.
    pub hosts: Option<Alternatives>,
    /// Cookies, if the rule asks for any.
    pub cookies: Option<Alternatives>,
    /// Whether the rule also asks for something that a first segment does not show.
    pub needs_more: bool,
}

impl SegmentConditions {
    /// The conditions of `rule`.
    pub fn of(rule: &Rule) -> SegmentConditions {
        let conditions = &rule.conditions;
        let others = [
            ConditionKind::Type,
            ConditionKind::Query,
            ConditionKind::Certificate,
            ConditionKind::Identity,
            ConditionKind::Header,
        ];
        SegmentConditions {
            methods: asked(&conditions.method, |method| {
                Some((method.as_str().as_bytes(), false, MOST_METHOD))
            }),
            paths: asked(&conditions.path, |path| {
                let glob = path.glob().filter(|glob| glob.is_exact() || glob.is_prefix())?;
                Some((glob.prefix(), !glob.is_exact(), MOST_PATH))
            }),
            hosts: asked(&conditions.site, |site| match site.key() {
                (name, false) => Some((name, false, MOST_HOST)),
                (_, true) => None,
            }),
            cookies: cookies::asked(&conditions.cookie),
            needs_more: others.into_iter().any(|condition| condition.is_asked(conditions)),
        }
    }

    /// Whether the conditions hold for a segment.
    pub fn hold(&self, first: &FirstSegment<'_>) -> Holds {
        let one = |asked: &Option<Alternatives>, text: Option<&[u8]>| match (asked, text) {
            (None, _) => Holds::Yes,
            (Some(alternatives), Some(text)) => alternatives.hold(text),
            (Some(_), None) => Holds::CannotTell,
        };
        let more = if self.needs_more { Holds::CannotTell } else { Holds::Yes };
        let cookies = self.cookies.as_ref().map_or(Holds::Yes, |asked| first.cookies.hold(asked));
        one(&self.methods, Some(first.method))
            .min(one(&self.paths, Some(first.path)))
            .min(one(&self.hosts, first.host))
            .min(cookies)
            .min(more)
    }
}

/// The alternatives of a condition. `text` gives for each pattern the text that matches, whether it is a
/// beginning, and the greatest length of a text that is compared: a longer one never matches.
fn asked<'c, T>(
    patterns: &'c [T],
    text: impl Fn(&'c T) -> Option<(&'c [u8], bool, usize)>,
) -> Option<Alternatives> {
    let mut all = Alternatives::default();
    for pattern in patterns {
        match text(pattern) {
            Some((text, is_prefix, most)) if text.len() <= most => {
                all.texts.push((text.into(), is_prefix));
            }
            Some(_) => {}
            None => all.needs_more = true,
        }
    }
    (!patterns.is_empty()).then_some(all)
}

/// Whether the ends of a connection have the addresses that `conditions` ask for.
fn are_its_ends(conditions: &Conditions, ends: &ConnectionFacts) -> bool {
    let Conditions { client, local, .. } = conditions;
    (client.is_empty() || client.iter().any(|one| one.holds(ends.client)))
        && (local.is_empty() || local.iter().any(|one| one.holds(ends.local)))
}

impl Policy {
    /// The rank of the first request of a connection; `None` if the segment does not tell.
    /// [`request`](Policy::request) gives the same rank for the whole request.
    pub fn first_segment(
        &self,
        ends: &ConnectionFacts,
        first: &FirstSegment<'_>,
        degree: impl Into<Degree>,
    ) -> Option<u8> {
        self.first_rank(ends, degree.into(), |conditions| conditions.hold(first))
    }

    /// The rank of requests for the host that a TLS hello names; `None` if the hello does not tell.
    pub fn first_hello(
        &self,
        ends: &ConnectionFacts,
        hello: &FirstHello<'_>,
        degree: impl Into<Degree>,
    ) -> Option<u8> {
        self.first_rank(ends, degree.into(), |conditions| conditions.hold_of_hello(hello))
    }

    fn first_rank(
        &self,
        ends: &ConnectionFacts,
        degree: Degree,
        hold: impl Fn(&SegmentConditions) -> Holds,
    ) -> Option<u8> {
        let mut by_address = None;
        for (rule, rank) in self.rules().iter().zip(self.ranks()) {
            let says = rule.class.is_some() || rule.stop;
            if !says || degree < rule.when.from(JudgePhase::Request) {
                continue;
            }
            if !are_its_ends(&rule.conditions, ends) {
                continue;
            }
            match hold(&SegmentConditions::of(rule)) {
                Holds::No => continue,
                Holds::CannotTell => return None,
                Holds::Yes => {}
            }
            if rule.class.is_some() {
                if !rule.is_for_connections() {
                    return Some(*rank);
                }
                by_address = by_address.or(Some(*rank));
            }
            if rule.stop {
                break;
            }
        }
        Some(by_address.unwrap_or(self.default_rank()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_there_plainly_is_read() {
        let read = |text: &str| {
            let text = FirstSegment::read(text.as_bytes())?;
            let string = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            Some((string(text.method), string(text.path), text.host.map(string)))
        };
        let plain = |path: &str, host: Option<&str>| {
            Some(("GET".to_owned(), path.to_owned(), host.map(str::to_owned)))
        };
        let behind = |rest: &str| read(&format!("GET /a{rest}"));
        assert_eq!(read("GET / HTTP/1.1\r\nHost: a\r\n"), plain("/", Some("a")));
        for (rest, host) in [
            (" HTTP/1.1\r\nhOST:a.b:80\r\n", Some("a.b")),
            ("?x HTTP/1.1\r\nHost: \ta-1\r", Some("a-1")),
            ("?x", None),
            (" ", None),
            (" HTTP/1.1\r\nHost: a", None),
            (" HTTP/1.1\r\nHost: A\r\n", None),
            (" HTTP/1.1\r\nHost: a.\r\n", None),
            (" HTTP/1.1\r\nHost: [::1]\r\n", None),
            (" HTTP/1.1\r\nHost:\r\n", None),
            (" HTTP/1.1\r\nHost : a\r\n", None),
            (" HTTP/1.1\r\nAccept: a\r\nHost: a\r\n", None),
            ("?x\r\n HTTP/1.1\r\nHost: a\r\n", None),
        ] {
            assert_eq!(behind(rest), plain("/a", host), "{rest}");
        }
        let long = |bytes| format!("GET /{} ", "a".repeat(bytes));
        assert!(read(&long(MOST_PATH - 1)).is_some());
        for text in [
            "",
            "GET",
            "GET ",
            "GET /a",
            " /a ",
            "get /a ",
            "GET a ",
            "GET  /a ",
            "GET http://a/ ",
            "PRI * HTTP/2.0\r\n",
            "GET /a%62 ",
            "GET //a ",
            "GET /a/./b ",
            "GET /.well-known/a ",
            "GET /a\\b ",
            "GET /\u{e4} ",
            "GET /a#b ",
            "GET /a;b ",
            "GET /a\r\n",
            "GET /a.css.gz ",
            "GET /a.br?x ",
            "GET /a.zst ",
            "\r\nGET /a ",
            "\u{16}\u{3}\u{1} /a ",
            "ABCDEFGHIJKLMNOP /a ",
            &long(MOST_PATH),
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn what_needs_more_than_the_first_segment_is_not_told() {
        use crate::class::Class;
        use crate::endpoint::Endpoint;
        use crate::pattern::{FileType, PathPattern, SitePattern};
        use crate::rule::When;
        let rule = |name: &str, class: &str, paths: &[&str]| {
            let path = paths.iter().map(|text| PathPattern::parse(text).unwrap()).collect();
            let conditions = Conditions { path, ..Conditions::default() };
            let class = (!class.is_empty()).then(|| class.to_owned());
            Rule { name: name.to_owned(), class, conditions, ..Rule::default() }
        };
        let with = |mut rule: Rule, change: &dyn Fn(&mut Rule)| {
            change(&mut rule);
            rule
        };
        let policy = Policy::new(
            &[Class::new("gold", 0), Class::new("silver", 1), Class::new("bulk", 2)],
            vec![
                with(rule("net", "silver", &[]), &|rule| {
                    rule.conditions.client = vec![Endpoint::parse("10.0.0.0/8").unwrap()];
                }),
                with(rule("late", "bulk", &["/late"]), &|rule| rule.when = When::Overload),
                rule("gold", "gold", &["/gold", "/late", "/g/*", "*.never"]),
                with(rule("php", "gold", &["/php/*"]), &|rule| {
                    rule.conditions.file_type = vec![FileType::parse("php").unwrap()];
                }),
                with(rule("site", "silver", &["/site"]), &|rule| {
                    rule.conditions.site =
                        ["a.b", "*.c"].map(|text| SitePattern::parse(text).unwrap()).into();
                }),
                with(rule("end", "", &["/end*"]), &|rule| rule.stop = true),
                rule("rest", "silver", &["/end/x", "/rest"]),
            ],
        )
        .unwrap();
        let class = |client: &str, degree: u8, host: &str, path: &str| {
            let local = "127.0.0.1:80".parse().unwrap();
            let ends = ConnectionFacts { client: format!("{client}:1").parse().unwrap(), local };
            let data = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
            policy.first_segment(
                &ends,
                &FirstSegment::read(data.as_bytes()).unwrap(),
                Degree::of(degree),
            )
        };
        for (path, host, rank) in [
            ("/gold", "x", Some(0)),
            ("/g/1", "x", Some(0)),
            ("/late", "x", Some(0)),
            // a host may end in .never
            ("/g", "x", None),
        ] {
            assert_eq!(class("192.0.2.1", 0, host, path), rank, "{path}");
        }
        assert_eq!(class("192.0.2.1", 1, "x", "/late"), Some(2));
        let policy = {
            let mut rules = policy.rules().to_vec();
            rules[2].conditions.path.pop();
            Policy::new(policy.classes(), rules).unwrap()
        };
        for (path, host, of_others, of_net) in [
            ("/g", "x", Some(2), Some(1)),
            ("/gold", "x", Some(0), Some(0)),
            ("/php/a", "x", None, None),
            ("/site", "a.b", Some(1), Some(1)),
            ("/site", "x.c", None, None),
            ("/site", "A", None, None),
            ("/site/", "A", Some(2), Some(1)),
            ("/end/x", "x", Some(2), Some(1)),
            ("/rest", "x", Some(1), Some(1)),
        ] {
            let data = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
            let first = FirstSegment::read(data.as_bytes()).unwrap();
            for (client, rank) in [("192.0.2.1:1", of_others), ("10.0.0.1:1", of_net)] {
                let local = "127.0.0.1:80".parse().unwrap();
                let ends = ConnectionFacts { client: client.parse().unwrap(), local };
                assert_eq!(policy.first_segment(&ends, &first, false), rank, "{path} {client}");
            }
        }
    }
}
