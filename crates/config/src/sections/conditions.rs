//! The conditions of a site's rules on a request: the same words as in a rule of the policy.

use crate::ClassName;
use crate::problems::problem::Wrong;
use crate::values::choice::SchemeChoice;
use crate::values::optional::{OneOrMore, Optional};
use forebay_policy::RegexError;
use forebay_policy::condition::{ConditionKind, Conditions};
use forebay_policy::endpoint::Endpoint;
use forebay_policy::field::FieldCondition;
use forebay_policy::pattern::{MethodPattern, SitePattern};
use forebay_policy::query::Parameter;
use forebay_site::rules::RequestConditions;

/// Conditions on a request, as they are written.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ConditionKeys {
    /// `client`
    pub client: OneOrMore<Endpoint>,
    /// `host`
    pub host: OneOrMore<SitePattern>,
    /// `method`
    pub method: OneOrMore<MethodPattern>,
    /// `query`
    pub query: OneOrMore<Parameter>,
    /// `header`
    pub header: OneOrMore<FieldCondition>,
    /// `cookie`
    pub cookie: OneOrMore<FieldCondition>,
    /// `class`
    pub class: OneOrMore<ClassName>,
    /// `scheme`
    pub scheme: Optional<SchemeChoice>,
    /// `ignore_case`
    pub ignore_case: bool,
}

impl ConditionKeys {
    /// The conditions as the site takes them.
    ///
    /// # Errors
    /// The key that is wrong, and what is wrong with it.
    pub(crate) fn conditions(self) -> Result<RequestConditions, (&'static str, Wrong)> {
        let is_idle =
            [&self.query.0.is_empty(), &self.header.0.is_empty(), &self.cookie.0.is_empty()];
        if self.ignore_case && is_idle.iter().all(|is_empty| **is_empty) {
            return Err(("ignore_case", Wrong::Idle { needs: "query, header or cookie" }));
        }
        let of_policy = Conditions {
            client: self.client.0,
            site: self.host.0,
            method: self.method.0,
            query: self.query.0,
            header: self.header.0,
            cookie: self.cookie.0,
            ignore_case: self.ignore_case,
            ..Conditions::default()
        };
        let too_large = |(kind, error): (ConditionKind, RegexError)| {
            let (found, reason) = (String::new(), error.to_string());
            (kind.as_str(), Wrong::Unfit { found, reason })
        };
        Ok(RequestConditions {
            of_policy: of_policy.folded().map_err(too_large)?,
            classes: self.class.0.iter().map(|class| class.to_string().into()).collect(),
            is_https: self.scheme.0.map(|scheme| scheme == SchemeChoice::Https),
        })
    }

    /// Keys that express the conditions.
    pub(crate) fn of(conditions: &RequestConditions) -> ConditionKeys {
        let RequestConditions { of_policy, classes, is_https } = conditions;
        let scheme = |is_https: bool| match is_https {
            true => SchemeChoice::Https,
            false => SchemeChoice::Http,
        };
        ConditionKeys {
            client: OneOrMore(of_policy.client.clone()),
            host: OneOrMore(of_policy.site.clone()),
            method: OneOrMore(of_policy.method.clone()),
            query: OneOrMore(of_policy.query.clone()),
            header: OneOrMore(of_policy.header.clone()),
            cookie: OneOrMore(of_policy.cookie.clone()),
            class: OneOrMore(classes.iter().map(|class| ClassName::of(class)).collect()),
            scheme: Optional(is_https.map(scheme)),
            ignore_case: of_policy.ignore_case,
        }
    }
}

/// The rows of a kind of section that has [`ConditionKeys`] as `conditions`: some of its own, and then those.
macro_rules! rows_with_conditions {
    ($($plain:expr),* $(,)?) => { &[
        $($plain,)*
        Setting {
            key: "client",
            preset: Preset::Unset("every client"),
            range: None,
            meaning: "Only for these clients: addresses, networks and ranges of addresses, as in a [[rule]].",
            example: "[\"10.0.0.0/8\", \"2001:db8::/32\"]",
            at: |s| &mut s.conditions.client,
        },
        Setting {
            key: "host",
            preset: Preset::Unset("every host of the site"),
            range: None,
            meaning: "Only where this host is asked for, without port and in any case of letters.",
            example: "[\"shop.example\", \"*.shop.example\"]",
            at: |s| &mut s.conditions.host,
        },
        Setting {
            key: "method",
            preset: Preset::Unset("every method"),
            range: None,
            meaning: "Only for requests with this method.",
            example: "[\"GET\", \"HEAD\"]",
            at: |s| &mut s.conditions.method,
        },
        Setting {
            key: "query",
            preset: Preset::Unset("any query"),
            range: None,
            meaning: "Only with this parameter in the query: \"name\" if it is there, \"name=value\" or, with \
                      stars, \"name=val*\", or \"name=~\" and a regular expression. Of several one is enough.",
            example: "\"lang=de\"",
            at: |s| &mut s.conditions.query,
        },
        Setting {
            key: "header",
            preset: Preset::Unset("any fields"),
            range: None,
            meaning: "Only with this field in the request: \"Name\" if it is there, \"Name=value\" or, with \
                      stars, \"Name=val*\", or \"Name=~\" and a regular expression. Of several one is enough. \
                      Vary names the field in all answers for these paths.",
            example: "\"Origin=https://app.example\"",
            at: |s| &mut s.conditions.header,
        },
        Setting {
            key: "cookie",
            preset: Preset::Unset("any cookies"),
            range: None,
            meaning: "Only with this cookie, written like a field. Vary names Cookie in all answers for these \
                      paths.",
            example: "\"beta=1\"",
            at: |s| &mut s.conditions.cookie,
        },
        Setting {
            key: "class",
            preset: Preset::Unset("every class"),
            range: None,
            meaning: "Only for requests to which rules have given this class. What rules refuse is told \
                      without it. No cache may keep answers for these paths for others (Vary: *), and so \
                      it is with client.",
            example: "\"gold\"",
            at: |s| &mut s.conditions.class,
        },
        Setting {
            key: "scheme",
            preset: Preset::Unset("with TLS and without"),
            range: None,
            meaning: "Only for clients that have come through TLS (https) or without it (http), to this server \
                      or as one of trusted_proxies says.",
            example: "\"https\"",
            at: |s| &mut s.conditions.scheme,
        },
        Setting {
            key: "ignore_case",
            preset: Preset::Value("false"),
            range: None,
            meaning: "Whether capitals do not count in query and the values of header and cookie.",
            example: "true",
            at: |s| &mut s.conditions.ignore_case,
        },
    ] };
}
pub(crate) use rows_with_conditions;
