//! The documents below `/page`: the files of the page, which are public, and figures, which may need a token.

use super::PageMemory;
use crate::why;
use forebay_config::PageAddresses;
use forebay_handler::live::LiveSnapshot;
use forebay_handler::refusals::{RememberedRefusal, ShortText};
use forebay_handler::sightings::network_of;
use forebay_metrics::top::{NAME_BYTES, SAMPLE, TopCount, TopKind};
use forebay_sys::clock;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// The largest number of names of a kind that are shown.
const MOST_NAMES: usize = 20;
/// The largest number of refusals that are shown.
const MOST_REFUSALS: usize = 20;

const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

/// The files of the page. They contain no data of the server, so they need no token.
const FILES: [(&str, &str, &str); 8] = [
    ("/page", "text/html; charset=utf-8", include_str!("assets/page.html")),
    ("/page/page.js", SCRIPT, include_str!("assets/page.js")),
    ("/page/data.js", SCRIPT, include_str!("assets/data.js")),
    ("/page/charts.js", SCRIPT, include_str!("assets/charts.js")),
    ("/page/tables.js", SCRIPT, include_str!("assets/tables.js")),
    ("/page/page.css", STYLE, include_str!("assets/page.css")),
    ("/page/uplot.js", SCRIPT, include_str!("assets/uPlot.iife.min.js")),
    ("/page/uplot.css", STYLE, include_str!("assets/uPlot.min.css")),
];

/// Headers that restrict browsers: these documents may load only files from here, and may not be in a frame.
pub(crate) const POLICY: &str = "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; \
     connect-src 'self'; img-src 'self' data:; form-action 'none'; base-uri 'none'; frame-ancestors 'none'\r\n\
     X-Frame-Options: DENY\r\nReferrer-Policy: no-referrer\r\nCross-Origin-Resource-Policy: same-origin\r\n\
     Cross-Origin-Opener-Policy: same-origin\r\n";

/// A document: its type and text.
pub(crate) type PageDocument = (&'static str, Cow<'static, str>);

/// The data for the page's answers.
pub(crate) struct PageAnswers {
    pub(crate) memory: Arc<PageMemory>,
    pub(crate) live: Arc<LiveSnapshot>,
    pub(crate) addresses: PageAddresses,
    /// Whether browsers must sign in.
    pub(crate) with_token: bool,
}

/// A file of the page.
pub(crate) fn file(path: &[u8]) -> Option<PageDocument> {
    let found = FILES.iter().find(|(known, ..)| known.as_bytes() == path);
    found.map(|(_, kind, text)| (*kind, Cow::Borrowed(*text)))
}

impl PageAnswers {
    /// The document at this path, for clients who may read figures.
    pub(crate) fn document(&self, path: &[u8], query: &[u8]) -> Option<PageDocument> {
        let number = |name: &str| parameter(query, name).and_then(|text| text.parse().ok());
        let text = match path {
            b"/page/history" => self.memory.history(number("after").unwrap_or(0)),
            b"/page/events" => self.memory.events(number("after").unwrap_or(0)).to_string(),
            b"/page/top" => self.largest(number("minutes").unwrap_or(1)).to_string(),
            b"/page/why" => self.why(query).to_string(),
            b"/page/facts" => self.facts().to_string(),
            _ => return None,
        };
        Some(("application/json", Cow::Owned(text)))
    }

    /// The most frequent names of each kind.
    fn largest(&self, minutes: u64) -> Value {
        let (kinds, missed) = self.memory.largest(minutes, MOST_NAMES);
        let name = |one: &TopCount| String::from_utf8_lossy(&one.name).into_owned();
        let row = |one: &TopCount| {
            json!({
                "name": name(one),
                "cut": is_cut(one),
                "requests": one.requests(),
                "refused": one.refused,
                "error": one.error(),
            })
        };
        let shown =
            |kind: TopKind| kind != TopKind::Address || self.addresses == PageAddresses::Whole;
        let kinds = kinds.iter().filter(|(kind, _)| shown(*kind));
        let kinds: serde_json::Map<_, _> = kinds
            .map(|(kind, counts)| {
                (kind.as_str().to_owned(), counts.iter().map(row).collect::<Value>())
            })
            .collect();
        json!({"kinds": kinds, "sample": SAMPLE, "missed": missed})
    }

    /// The reason why a request was refused: by its id, or the last refusals by
    /// client and a part of the path.
    fn why(&self, query: &[u8]) -> Value {
        let refusals = &self.live.get().refusals;
        let given = |name: &str| parameter(query, name).filter(|text| !text.trim().is_empty());
        if let Some(id) = given("id") {
            let found = refusals.find(id.trim().as_bytes());
            let text = match found {
                Some(refusal) => self.shown(refusal).to_string(),
                None => why::answer(&id, refusals, clock::unix_coarse_ms()).text,
            };
            return json!({"found": [text.trim_end()]});
        }
        let client = given("client");
        let wanted = client.as_deref().map(|text| WantedClient::parse(text.trim()));
        if let Some(None) = wanted {
            return json!({"found": [], "wrong": "client is an address, or a network as it is shown above"});
        }
        let path = given("path").unwrap_or_default();
        let found = refusals.last(MOST_REFUSALS, |refusal| {
            let is_client =
                wanted.iter().flatten().all(|wanted| wanted.is(refusal.client, self.addresses));
            is_client && refusal.asks_for(path.trim())
        });
        let found: Vec<String> = found.into_iter().map(|one| self.shown(one).to_string()).collect();
        json!({"found": found})
    }

    /// The part of a refusal that may be shown.
    fn shown(&self, refusal: RememberedRefusal) -> RememberedRefusal {
        match self.addresses {
            PageAddresses::Whole => refusal,
            PageAddresses::Networks => without_address(refusal),
        }
    }

    /// Settings of the configuration that help to interpret figures.
    fn facts(&self) -> Value {
        let live = self.live.get();
        let class = |class: &forebay_policy::class::Class| json!({"name": class.name, "share": class.share, "target_ms": class.delay_ms, "priority": class.priority});
        let classes: Vec<Value> = live.policy.policy.classes().iter().map(class).collect();
        let rules = live.policy.policy.rules().iter().map(|rule| rule.name.as_str());
        let (stages, doctor) = self.memory.surroundings();
        json!({
            "classes": if live.policy.is_empty() { Vec::new() } else { classes },
            "rules": rules.take(200).collect::<Vec<_>>(),
            "agent": live.policy.agent,
            "stages": stages,
            "doctor": doctor,
            "signed_in": self.with_token,
            "addresses": match self.addresses {
                PageAddresses::Whole => "whole",
                PageAddresses::Networks => "networks",
            },
        })
    }
}

/// The client whose refusals are asked for.
enum WantedClient {
    Address(IpAddr),
    /// A network as [`network_of`] writes it.
    Network(String),
}

impl WantedClient {
    fn parse(text: &str) -> Option<WantedClient> {
        if let Ok(address) = text.parse() {
            return Some(WantedClient::Address(address));
        }
        let (address, _) = text.split_once('/')?;
        Some(WantedClient::Network(network_of(address.parse().ok()?).to_string()))
    }

    fn is(&self, client: IpAddr, addresses: PageAddresses) -> bool {
        let is_in = |network: &str| network_of(client).to_string() == network;
        match (self, addresses) {
            (WantedClient::Network(network), _) => is_in(network),
            (WantedClient::Address(address), PageAddresses::Whole) => {
                address.to_canonical() == client.to_canonical()
            }
            // an address that is not shown must not be found by a search either
            (WantedClient::Address(address), PageAddresses::Networks) => {
                is_in(&network_of(*address).to_string())
            }
        }
    }
}

/// Whether a name may have been longer than what is kept of it.
fn is_cut(one: &TopCount) -> bool {
    one.name.len() >= NAME_BYTES
}

/// A refusal that reveals only the network of its client. The text of a ban may have the address,
/// so it is left out.
fn without_address(refusal: RememberedRefusal) -> RememberedRefusal {
    let client = cut(refusal.client);
    RememberedRefusal { client, ban: ShortText::default(), ..refusal }
}

/// The first address of a client's network.
fn cut(client: IpAddr) -> IpAddr {
    match client.to_canonical() {
        IpAddr::V4(ip) => {
            let [a, b, c, _] = ip.octets();
            IpAddr::V4(Ipv4Addr::new(a, b, c, 0))
        }
        IpAddr::V6(ip) => {
            let [a, b, c, ..] = ip.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, 0, 0, 0, 0, 0))
        }
    }
}

/// A parameter of a query, decoded; invalid UTF-8 becomes replacement characters.
fn parameter(query: &[u8], name: &str) -> Option<String> {
    let mut pairs = query.split(|byte| *byte == b'&');
    let value = pairs.find_map(|pair| pair.strip_prefix(name.as_bytes())?.strip_prefix(b"="))?;
    let mut decoded = Vec::with_capacity(value.len());
    let mut rest = value;
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        let hex = || u8::from_str_radix(str::from_utf8(after.get(..2)?).ok()?, 16).ok();
        decoded.push(match first {
            b'+' => b' ',
            b'%' => match hex() {
                Some(byte) => {
                    rest = &after[2..];
                    byte
                }
                None => b'%',
            },
            other => *other,
        });
    }
    Some(String::from_utf8_lossy(&decoded).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_metrics::RefusalReason;

    #[test]
    fn parameters_are_decoded() {
        let query = b"id=a%2Fb+c&client=%zz&path=%ff&minutes=10";
        let of = |name: &str| parameter(query, name);
        assert_eq!(of("id").as_deref(), Some("a/b c"));
        assert_eq!(of("client").as_deref(), Some("%zz"));
        assert_eq!(of("path").as_deref(), Some("\u{fffd}"));
        assert_eq!((of("minutes").as_deref(), of("min")), (Some("10"), None));
    }

    #[test]
    fn a_client_is_found_by_what_is_shown_of_it() {
        let client: IpAddr = "203.0.113.7".parse().unwrap();
        let is = |text: &str, addresses| WantedClient::parse(text).unwrap().is(client, addresses);
        assert!(
            is("203.0.113.7", PageAddresses::Whole)
                && is("::ffff:203.0.113.7", PageAddresses::Whole)
        );
        assert!(!is("203.0.113.8", PageAddresses::Whole));
        assert!(is("203.0.113.0/24", PageAddresses::Whole));
        assert!(
            is("203.0.113.8", PageAddresses::Networks),
            "which of the network it is stays hidden"
        );
        assert!(WantedClient::parse("a<b>").is_none() && WantedClient::parse("x/24").is_none());
        assert_eq!(cut(client).to_string(), "203.0.113.0");
        assert_eq!(cut("2001:db8:7:8::9".parse().unwrap()).to_string(), "2001:db8:7::");
    }

    #[test]
    fn a_ban_does_not_tell_the_address() {
        let ban = ShortText::of("203.0.113.7: the one at .7");
        let refusal = RememberedRefusal {
            ids: [ShortText::of("1"), ShortText::default()],
            unix_ms: 1,
            client: "203.0.113.7".parse().unwrap(),
            status: 403,
            asked: ShortText::of("GET a.example/"),
            class: ShortText::default(),
            reason: Some(RefusalReason::Banned),
            rule: ShortText::default(),
            level: "normal",
            ban,
            upstream: ShortText::default(),
            told: "",
        };
        let said = without_address(refusal).to_string();
        assert!(said.contains("of 203.0.113.0 got 403, because its client was banned"), "{said}");
        assert!(!said.contains(".7"), "{said}");
    }

    #[test]
    fn names_that_may_go_on_are_marked() {
        let of = |len: usize| TopCount { name: vec![b'x'; len], ..TopCount::default() };
        assert!(is_cut(&of(NAME_BYTES)) && !is_cut(&of(NAME_BYTES - 1)));
    }

    #[test]
    fn the_files_name_each_other_and_nothing_elsewhere() {
        for (path, _, text) in FILES {
            // uPlot has its address in a comment
            let own = text.replace("/*! https://github.com/leeoniya/uPlot (v1.6.32) */", "");
            let own = own.replace("http://www.w3.org/", "");
            assert!(!own.contains("http://") && !own.contains("https://"), "{path}");
        }
        let scripts =
            FILES.iter().filter(|(path, ..)| path.ends_with(".js") && !path.contains("uplot"));
        for (path, _, text) in scripts {
            for word in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                "Function(",
            ] {
                assert!(!text.contains(word), "{path}: strings are shown as text: {word}");
            }
        }
        let (_, _, page) = FILES[0];
        assert!(!page.contains("<script>") && !page.contains("style="));
        let words = page.split(|c: char| c.is_whitespace());
        let mut handlers = words.filter(|word| word.starts_with("on") && word.contains('='));
        assert_eq!(handlers.next(), None, "the policy forbids scripts in the text");
    }
}
