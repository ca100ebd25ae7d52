//! Conditions on a request, for rules of a site: those that rules of the policy have, and its class
//! and scheme.

use crate::request_context::{RequestContext, RequestScheme};
use forebay_conn::Request;
use forebay_policy::condition::Conditions;
use forebay_policy::facts::{ConnectionFacts, RequestFacts};

/// Conditions on a request. All of them must hold; the values of one condition are alternatives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestConditions {
    /// The conditions that rules of the policy have, too. Those on paths, certificates and
    /// identities are not looked at.
    pub of_policy: Conditions,
    /// The names of classes.
    pub classes: Vec<Box<str>>,
    /// Whether the client has come through TLS.
    pub is_https: Option<bool>,
}

impl RequestConditions {
    /// Whether there are no conditions.
    pub fn is_empty(&self) -> bool {
        *self == RequestConditions::default()
    }

    /// Whether the conditions hold. `host` is the one that is asked for, in lower case and without
    /// port.
    pub(crate) fn hold(
        &self,
        host: &[u8],
        request: &Request<'_>,
        context: &impl RequestContext,
    ) -> bool {
        let RequestConditions { of_policy, classes, is_https } = self;
        let head = request.head;
        let client = match of_policy.client.is_empty() {
            true => request.peer.remote,
            false => context.client(),
        };
        let facts = RequestFacts {
            ends: ConnectionFacts { client, local: request.peer.local },
            host,
            method: head.method_text,
            path: b"",
            query: head.query.unwrap_or_default(),
            certificate: None,
            identity: None,
            fields: head.fields(),
        };
        let is_secure = || context.scheme() == RequestScheme::Https;
        let is_of_class = || classes.iter().any(|class| **class == *context.class());
        is_https.is_none_or(|is_https| is_https == is_secure())
            && of_policy.hold(&facts)
            && (classes.is_empty() || is_of_class())
    }

    /// The `Vary` of an answer that depends on these conditions, and on `more`, if it needs one:
    /// names of fields, or a star for what is in no field. Method, host, scheme and query are in a
    /// cache's key anyway.
    pub(crate) fn vary<'v>(&'v self, more: impl Iterator<Item = &'v str>) -> Option<String> {
        let RequestConditions { of_policy, classes, .. } = self;
        let mut names: Vec<&str> = Vec::new();
        let fields = of_policy.header.iter().map(|field| field.name());
        let cookies = of_policy.cookie.iter().map(|_| "Cookie");
        let others = (!of_policy.client.is_empty() || !classes.is_empty()).then_some("*");
        for name in fields.chain(cookies).chain(others).chain(more) {
            if !names.iter().any(|known| known.eq_ignore_ascii_case(name)) {
                names.push(name);
            }
        }
        (!names.is_empty()).then(|| names.join(", "))
    }
}

/// A set of conditions of a site, a bit for each: those that hold for a request, or those that a
/// rule needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct ConditionBits(pub(crate) u64);

impl ConditionBits {
    /// Whether all conditions that are needed hold.
    pub(crate) fn has(self, needed: ConditionBits) -> bool {
        self.0 & needed.0 == needed.0
    }

    /// The bits of these conditions.
    pub(crate) fn about(self, relevant: ConditionBits) -> ConditionBits {
        ConditionBits(self.0 & relevant.0)
    }
}
