//! First segments of connections to another server: the enforcer decides alone, because no process applies
//! the rules afterwards.
//!
//! A rule for which the first segment does not show enough is passed over, as if it did not match. The other
//! rules hold. A limit that cannot be kept is not passed over: its rule still decides the setting, so the
//! limits of later rules do not apply.

use super::{FirstHello, FirstRequest, FirstSegment, Holds, SegmentConditions};
use crate::facts::ConnectionFacts;
use crate::policy::Policy;
use crate::rule::Degree;

/// What a first segment shows, for any protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FirstShown<'s> {
    /// The beginning of a request.
    Request(FirstSegment<'s>),
    /// The beginning of TLS, with the name of the server.
    Hello(FirstHello<'s>),
    /// Another protocol, or nothing that can be read plainly: only rules about addresses hold.
    Other,
}

impl<'s> FirstShown<'s> {
    /// Reads the data of a segment.
    pub fn read(data: &'s [u8]) -> FirstShown<'s> {
        // a TLS record with a handshake
        let found = match data {
            [22, 3, ..] => FirstHello::read(data).map(FirstShown::Hello),
            _ => FirstSegment::read(data).map(FirstShown::Request),
        };
        found.unwrap_or(FirstShown::Other)
    }

    /// Whether the conditions certainly hold.
    fn hold(&self, conditions: &SegmentConditions) -> Holds {
        let held = match self {
            FirstShown::Request(first) => conditions.hold(first),
            FirstShown::Hello(hello) => conditions.hold_of_hello(hello),
            FirstShown::Other if conditions.ask_for_none() => Holds::Yes,
            FirstShown::Other => Holds::CannotTell,
        };
        if held == Holds::Yes { Holds::Yes } else { Holds::No }
    }
}

impl SegmentConditions {
    fn ask_for_none(&self) -> bool {
        let SegmentConditions { methods, paths, hosts, cookies, needs_more } = self;
        !needs_more && [methods, paths, hosts, cookies].into_iter().all(Option::is_none)
    }
}

impl Policy {
    /// The rank of a connection for which no process sees more than the first segment.
    pub fn first_rank_alone(
        &self,
        ends: &ConnectionFacts,
        first: &FirstShown<'_>,
        degree: impl Into<Degree>,
    ) -> u8 {
        let rank = self.first_rank(ends, degree.into(), |conditions| first.hold(conditions));
        rank.unwrap_or(self.default_rank())
    }

    /// The decision about a connection for which no process sees more than the first segment. A TLS hello
    /// counts as a request for the host that it names.
    pub fn first_alone(
        &self,
        ends: &ConnectionFacts,
        first: &FirstShown<'_>,
        degree: impl Into<Degree>,
        is_full: impl Fn(u32) -> bool,
    ) -> FirstRequest {
        let deciding = self.deciding(ends, |conditions| first.hold(conditions), degree.into());
        self.decided(&deciding, is_full, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::condition::Conditions;
    use crate::decision::RefusalAnswer;
    use crate::endpoint::Endpoint;
    use crate::field::FieldCondition;
    use crate::pattern::{PathPattern, SitePattern};
    use crate::rate::Rate;
    use crate::rule::{Action, InFlight, Limit, Over, Per, Rule};

    fn rule(name: &str, paths: &[&str]) -> Rule {
        let path = paths.iter().map(|path| PathPattern::parse(path).unwrap()).collect();
        let conditions = Conditions { path, ..Conditions::default() };
        Rule { name: name.to_owned(), conditions, ..Rule::default() }
    }

    #[test]
    fn what_cannot_be_told_counts_for_nothing() {
        let of_cookie = |mut rule: Rule| {
            rule.conditions.cookie = vec![FieldCondition::parse("tier=gold").unwrap()];
            rule
        };
        let of_site = |mut rule: Rule, site: &str| {
            rule.conditions.site = vec![SitePattern::parse(site).unwrap()];
            rule
        };
        let of_client = |mut rule: Rule, client: &str| {
            rule.conditions.client = vec![Endpoint::parse(client).unwrap()];
            rule
        };
        let reject = |rule: Rule, status| Rule { action: Some(Action::Reject(status)), ..rule };
        let limit = Limit::new(Rate::parse("20/m").unwrap(), 3);
        let of_each = Limit { per: Per::Client, ..limit };
        let each_one = InFlight { most: 1, per: Per::Client, over: Over::default() };
        let policy = Policy::new(
            &[],
            vec![
                Rule { stop: true, ..reject(of_cookie(rule("perhaps", &["/no*"])), 401) },
                reject(rule("no", &["/no"]), 403),
                reject(of_site(rule("closed", &[]), "old.example"), 410),
                reject(of_client(rule("foes", &[]), "192.0.2.0/24"), 451),
                Rule { in_flight: Some(each_one), ..rule("at once", &["/a*"]) },
                Rule { requests: Some(of_each), ..rule("each", &["/each"]) },
                Rule { requests: Some(limit), ..rule("all", &[]) },
            ],
        )
        .unwrap();
        let become_of = |client: &str, data: &[u8]| {
            let client = format!("{client}:1").parse().unwrap();
            let ends = ConnectionFacts { client, local: "127.0.0.1:80".parse().unwrap() };
            policy.first_alone(&ends, &FirstShown::read(data), false, |_| true)
        };
        use FirstRequest::{CannotTell, Charge, Refuse};
        let refuse =
            |number, status| Refuse(number, RefusalAnswer::Reject { status, retry_after_s: 0 });
        let charge = Charge(6, RefusalAnswer::Reject { status: 503, retry_after_s: 3 });
        for (client, data, expected) in [
            ("10.0.0.1", "GET /no HTTP/1.1\r\n", refuse(1, 403)),
            ("10.0.0.1", "GET /none HTTP/1.1\r\n", charge),
            ("10.0.0.1", "GET /a HTTP/1.1\r\nHost: old.example\r\n", refuse(2, 410)),
            ("10.0.0.1", "GET /a HTTP/1.1\r\n", charge),
            ("10.0.0.1", "GET /each HTTP/1.1\r\n", CannotTell),
            // a path that is not plain, and a segment that is not a request
            ("10.0.0.1", "GET /%6eo HTTP/1.1\r\n", charge),
            ("192.0.2.1", "GET /%6eo HTTP/1.1\r\n", refuse(3, 451)),
            ("192.0.2.1", "SSH-2.0-OpenSSH_9.2p1\r\n", refuse(3, 451)),
            ("192.0.2.1", "\u{16}\u{3}\u{1}", refuse(3, 451)),
        ] {
            assert_eq!(become_of(client, data.as_bytes()), expected, "{data}");
        }
        let hello = FirstShown::Hello(FirstHello { name: b"old.example" });
        let ends = ConnectionFacts {
            client: "10.0.0.1:1".parse().unwrap(),
            local: "127.0.0.1:443".parse().unwrap(),
        };
        assert_eq!(policy.first_alone(&ends, &hello, false, |_| true), refuse(2, 410));
    }
}
