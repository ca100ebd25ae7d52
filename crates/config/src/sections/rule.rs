//! The settings of a rule: the connections and requests that it fits, and what happens to them.

use crate::problems::problem::Wrong;
use crate::table::{Preset, Section, Setting};
use crate::values::limit::{ConnectionLimit, ErrorStatus, InFlightConfig, RequestLimit};
use crate::values::optional::{OneOrMore, Optional};
use crate::values::value::Written;
use crate::{ActionChoice, ClassName, FirewallSet, WhenChoice};
use forebay_policy::certificate::CertificatePattern;
use forebay_policy::endpoint::Endpoint;
use forebay_policy::field::FieldCondition;
use forebay_policy::identity::IdentityPattern;
use forebay_policy::pattern::{FileType, MethodPattern, PathPattern, SitePattern};
use forebay_policy::query::Parameter;
use std::fmt;

/// A rule.
#[derive(Clone, Debug, PartialEq)]
pub struct RuleConfig {
    /// The program that has added the rule; `None` if it is the file's.
    pub owner: Option<Box<str>>,
    /// `name`
    pub name: Option<RuleName>,
    /// `when`
    pub when: WhenChoice,
    /// `stop`
    pub stop: bool,
    /// The conditions of the rule.
    pub conditions: RuleConditions,
    /// `class`
    pub class: Option<ClassName>,
    /// `action`
    pub action: Optional<ActionChoice>,
    /// `status`
    pub status: Optional<ErrorStatus>,
    /// `metric`
    pub metric: bool,
    /// `requests_per_connection`
    pub requests_per_connection: Optional<u64>,
    /// `connections.*`
    pub connections: ConnectionLimit,
    /// `requests.*`
    pub requests: RequestLimit,
    /// `in_flight.*`
    pub in_flight: InFlightConfig,
}

impl RuleConfig {
    /// The rule's name; without one, the name after its [place](RuleConfig::placed), which begins at 0.
    pub fn name(&self, place: usize) -> String {
        self.name.as_ref().map_or_else(|| format!("rule {}", place + 1), RuleName::to_string)
    }

    /// Each rule with its place in the file. Rules of programs stand before, have names, and do not count.
    /// So a rule without a name keeps its name, and what its limits have counted, whatever programs add.
    pub fn placed(rules: &[RuleConfig]) -> impl Iterator<Item = (usize, &RuleConfig)> {
        rules.iter().scan(0, |next, rule| {
            let place = *next;
            *next += usize::from(rule.owner.is_none());
            Some((place, rule))
        })
    }

    /// Whether the rule changes anything for what it fits.
    pub(crate) fn has_effect(&self) -> bool {
        self.decides().contains(&true)
    }

    /// Whether the rule fits every connection and request.
    pub(crate) fn fits_always(&self) -> bool {
        self.when == WhenChoice::Always
            && self.conditions.fit_connections()
            && self.conditions.of_request().is_none()
    }

    /// Whether `later` decides nothing behind this rule, which [fits always](RuleConfig::fits_always).
    pub(crate) fn outdoes(&self, later: &RuleConfig) -> bool {
        // a class by what is in a request goes before one by addresses alone, wherever they stand
        let keeps_class = later.class.is_some() && later.conditions.of_request().is_some();
        let mut settings = self.decides().into_iter().zip(later.decides());
        let decides_as_much = settings.all(|(first, then)| first || !then);
        self.stop || (decides_as_much && !keeps_class && !later.stop)
    }

    /// Which of class, action and limits the rule decides.
    pub fn decides(&self) -> [bool; 6] {
        [
            self.class.is_some(),
            self.action.0.is_some(),
            self.connections.rate.is_some(),
            self.requests.rate.is_some(),
            self.in_flight.most.0.is_some(),
            self.requests_per_connection.0.is_some(),
        ]
    }
}

/// The conditions of a rule on connections and requests.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuleConditions {
    /// `client`
    pub client: OneOrMore<Endpoint>,
    /// `client_set`
    pub client_set: OneOrMore<FirewallSet>,
    /// `local`
    pub local: OneOrMore<Endpoint>,
    /// `site`
    pub site: OneOrMore<SitePattern>,
    /// `method`
    pub method: OneOrMore<MethodPattern>,
    /// `path`
    pub path: OneOrMore<PathPattern>,
    /// `query`
    pub query: OneOrMore<Parameter>,
    /// `file_type`
    pub file_type: OneOrMore<FileType>,
    /// `certificate`
    pub certificate: OneOrMore<CertificatePattern>,
    /// `identity`
    pub identity: OneOrMore<IdentityPattern>,
    /// `header`
    pub header: OneOrMore<FieldCondition>,
    /// `cookie`
    pub cookie: OneOrMore<FieldCondition>,
    /// `ignore_case`
    pub ignore_case: bool,
}

impl RuleConditions {
    /// Whether every connection meets the conditions, whatever its requests.
    fn fit_connections(&self) -> bool {
        let has_client = !self.client.0.is_empty() || !self.client_set.0.is_empty();
        !has_client && self.local.0.is_empty()
    }

    /// The key of a condition that only a request can meet.
    pub(crate) fn of_request(&self) -> Option<&'static str> {
        let conditions = [
            ("site", self.site.0.is_empty()),
            ("method", self.method.0.is_empty()),
            ("path", self.path.0.is_empty()),
            ("query", self.query.0.is_empty()),
            ("file_type", self.file_type.0.is_empty()),
            ("certificate", self.certificate.0.is_empty()),
            ("identity", self.identity.0.is_empty()),
            ("header", self.header.0.is_empty()),
            ("cookie", self.cookie.0.is_empty()),
        ];
        conditions.iter().find(|(_, is_empty)| !is_empty).map(|(key, _)| *key)
    }
}

/// The name of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleName(String);

impl RuleName {
    /// The name as it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RuleName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A rule's name stands in logs and, with `=` behind it, on command lines.
impl Written for RuleName {
    const EXPECTED: &'static str = "a name of up to 64 letters of ASCII, digits, blanks and signs, without quotes, backslash and \
         equals sign";
    fn read(text: &str) -> Result<RuleName, Wrong> {
        let is_letter =
            |b: u8| b == b' ' || (b.is_ascii_graphic() && !matches!(b, b'"' | b'\\' | b'='));
        let is_name = text.trim() == text && !text.is_empty() && text.len() <= 64;
        if !is_name || !text.bytes().all(is_letter) {
            return Err(RuleName::misread(text));
        }
        Ok(RuleName(text.to_owned()))
    }
    fn text(&self) -> String {
        self.0.clone()
    }
}

impl Section for RuleConfig {
    const SETTINGS: &'static [Setting<RuleConfig>] = SETTINGS;

    fn blank() -> RuleConfig {
        RuleConfig {
            owner: None,
            name: None,
            when: WhenChoice::default(),
            stop: false,
            conditions: RuleConditions::default(),
            class: None,
            action: Optional::default(),
            status: Optional::default(),
            metric: false,
            requests_per_connection: Optional::default(),
            connections: ConnectionLimit::default(),
            requests: RequestLimit::default(),
            in_flight: InFlightConfig::default(),
        }
    }
}

const BURST: (&str, &str) = ("1", "1000000");
const IGNORE: &str = "How long new connections of a client that was refused are refused silently. Trusted proxies, addresses \
                      of listen and administrators (admin.allow) are never ignored.";
const STATUS: &str = "The status of reject.";

const SETTINGS: &[Setting<RuleConfig>] = &[
    Setting {
        key: "name",
        preset: Preset::Unset("\"rule 1\" and so on, by its place in the file"),
        range: None,
        meaning: "The name of the rule in JSON access logs, messages and commands. What its limits \
                  have counted survives a reload under this name.",
        example: "\"costly search\"",
        at: |r| &mut r.name,
    },
    Setting {
        key: "client",
        preset: Preset::Unset("every client"),
        range: None,
        meaning: "Who asks: addresses, networks and ranges of addresses, each with a port or a range \
                  of ports if that matters.",
        example: "[\"10.1.1.0/24\", \"10.0.0.5-10.0.0.9\", \"192.0.2.7:1024-2047\", \"2001:db8::/32\"]",
        at: |r| &mut r.conditions.client,
    },
    Setting {
        key: "client_set",
        preset: Preset::Unset("no set"),
        range: None,
        meaning: "Who asks, besides client: the addresses in these sets of the machine's nftables, each by \
                  family, table and name. They are read at the start, with each reload and every \
                  firewall.sets_interval, and are in force where the rule is, in the kernel (gate), too. A set \
                  that is not there has no address in it; of one that cannot be read any more, what was read \
                  stays. At most 65536 networks in each. It takes nft, and CAP_NET_ADMIN at the start.",
        example: "[\"inet filter blocked\"]",
        at: |r| &mut r.conditions.client_set,
    },
    Setting {
        key: "local",
        preset: Preset::Unset("every address of the server"),
        range: None,
        meaning: "Where the client connected to: addresses and ports of the server.",
        example: "[\"*:80\", \"[2001:db8::1]:8080\"]",
        at: |r| &mut r.conditions.local,
    },
    Setting {
        key: "site",
        preset: Preset::Unset("every site"),
        range: None,
        meaning: "The host that is asked for, without port and in any case of letters.",
        example: "[\"shop.example\", \"*.shop.example\"]",
        at: |r| &mut r.conditions.site,
    },
    Setting {
        key: "method",
        preset: Preset::Unset("every method"),
        range: None,
        meaning: "The method of the request.",
        example: "[\"GET\", \"HEAD\"]",
        at: |r| &mut r.conditions.method,
    },
    Setting {
        key: "path",
        preset: Preset::Unset("every path"),
        range: None,
        meaning: "The path without the query: \"/exact\", \"/dir/*\" or any other text with any \
                  number of stars, each of which stands for any run of characters, slashes too. It \
                  is held against the decoded path: write \"/a b\", not \"/a%20b\". Behind ~ stands \
                  a regular expression. A path also stands for the compressed forms of its file: \
                  \"/a.css\" for \"/a.css.gz\", \".br\" and \".zst\".",
        example: "\"/cgi-bin/*\"",
        at: |r| &mut r.conditions.path,
    },
    Setting {
        key: "query",
        preset: Preset::Unset("any query"),
        range: None,
        meaning: "A parameter of the query: \"name\" if it is there, \"name=value\" or, with stars, \
                  \"name=val*\", or \"name=~\" and a regular expression. It is held against what is \
                  decoded: %41 is A, + a blank.",
        example: "\"action=export\"",
        at: |r| &mut r.conditions.query,
    },
    Setting {
        key: "file_type",
        preset: Preset::Unset("every type"),
        range: None,
        meaning: "The ending of the path, without its dot.",
        example: "[\"zip\", \"iso\"]",
        at: |r| &mut r.conditions.file_type,
    },
    Setting {
        key: "certificate",
        preset: Preset::Unset("with any certificate of the client, and without"),
        range: None,
        meaning: "The certificate that the client has shown (tls.client): \"any\", \
                  \"subject=CN=worker-*,O=Example\", where each star stands for any run of characters, or \
                  \"fingerprint=\" and its SHA-256. Clients without one meet none of these.",
        example: "\"subject=*,O=Example\"",
        at: |r| &mut r.conditions.certificate,
    },
    Setting {
        key: "identity",
        preset: Preset::Unset("with any identity, and without"),
        range: None,
        meaning: "The identity that the client has proven by a signed cookie (identity.keys): a name, \
                  with any number of stars, each of which stands for any run of characters. Clients \
                  without a good one meet none of these.",
        example: "[\"gold\", \"buyer-*\"]",
        at: |r| &mut r.conditions.identity,
    },
    Setting {
        key: "header",
        preset: Preset::Unset("any fields"),
        range: None,
        meaning: "A field of the request: \"Name\" if it is there, \"Name=value\" or, with stars, \
                  \"Name=val*\", or \"Name=~\" and a regular expression.",
        example: "\"User-Agent=*bot*\"",
        at: |r| &mut r.conditions.header,
    },
    Setting {
        key: "cookie",
        preset: Preset::Unset("any cookies"),
        range: None,
        meaning: "A cookie of the request, written like a field.",
        example: "\"tier=gold\"",
        at: |r| &mut r.conditions.cookie,
    },
    Setting {
        key: "ignore_case",
        preset: Preset::Value("false"),
        range: None,
        meaning: "Whether capitals do not count in path, query and the values of header and cookie.",
        example: "true",
        at: |r| &mut r.conditions.ignore_case,
    },
    Setting {
        key: "when",
        preset: Preset::Value("always"),
        range: None,
        meaning: "When the rule holds: always, or from a level of overload on. With overload it does for \
                  requests from level 1 (header_control) on, and when a connection comes at level 3 \
                  (syn_policing) only; a level that is named is meant for both.",
        example: "\"overload\"",
        at: |r| &mut r.when,
    },
    Setting {
        key: "stop",
        preset: Preset::Value("false"),
        range: None,
        meaning: "Whether no later rule is looked at once this one fits.",
        example: "true",
        at: |r| &mut r.stop,
    },
    Setting {
        key: "class",
        preset: Preset::Unset("what a later rule says, else the default class"),
        range: None,
        meaning: "The class that the connection or request belongs to.",
        example: "\"gold\"",
        at: |r| &mut r.class,
    },
    Setting {
        key: "action",
        preset: Preset::Unset("what a later rule says, else allow"),
        range: None,
        meaning: "What is done at once: allow, reject with a status, reset the connection, or drop \
                  it without a word where that is possible.",
        example: "\"reject\"",
        at: |r| &mut r.action,
    },
    Setting {
        key: "status",
        preset: Preset::Unset("403"),
        range: None,
        meaning: "The status of action = \"reject\".",
        example: "404",
        at: |r| &mut r.status,
    },
    Setting {
        key: "metric",
        preset: Preset::Value("false"),
        range: None,
        meaning: "Whether the rule has metrics of its own: what it has matched and refused, under its \
                  name. At most 500 rules have.",
        example: "true",
        at: |r| &mut r.metric,
    },
    Setting {
        key: "requests_per_connection",
        preset: Preset::Unset("what a later rule says, else no limit"),
        range: Some(("1", "1000000000")),
        meaning: "After how many admitted requests that the rule is about their connection ends. The \
                  last one is answered.",
        example: "20",
        at: |r| &mut r.requests_per_connection,
    },
    Setting {
        key: "connections.rate",
        preset: Preset::Unset("no limit"),
        range: None,
        meaning: "How many new connections are taken, in the long run. Only rules by client and local \
                  can have such a limit: it counts before anything is read. With \"unlimited\" later \
                  rules set none.",
        example: "\"300/s\"",
        at: |r| &mut r.connections.rate,
    },
    Setting {
        key: "connections.burst",
        preset: Preset::Unset("1"),
        range: Some(BURST),
        meaning: "How many may come at once after a pause.",
        example: "5",
        at: |r| &mut r.connections.burst,
    },
    Setting {
        key: "connections.per",
        preset: Preset::Unset("\"rule\""),
        range: None,
        meaning: "Whether all whom the rule is about share the limit (rule), or each client has one \
                  of its own (client).",
        example: "\"client\"",
        at: |r| &mut r.connections.per,
    },
    Setting {
        key: "connections.over",
        preset: Preset::Unset("\"reset\""),
        range: None,
        meaning: "What becomes of connections over the limit.",
        example: "\"reject\"",
        at: |r| &mut r.connections.over,
    },
    Setting {
        key: "connections.status",
        preset: Preset::Unset("503, with per = \"client\" 429"),
        range: None,
        meaning: STATUS,
        example: "503",
        at: |r| &mut r.connections.status,
    },
    Setting {
        key: "connections.ignore",
        preset: Preset::Unset("not at all"),
        range: Some(("1ms", "1d")),
        meaning: IGNORE,
        example: "\"5s\"",
        at: |r| &mut r.connections.ignore,
    },
    Setting {
        key: "requests.rate",
        preset: Preset::Unset("no limit"),
        range: None,
        meaning: "How many requests are taken, in the long run; with \"unlimited\" later rules set no \
                  limit.",
        example: "\"60/s\"",
        at: |r| &mut r.requests.rate,
    },
    Setting {
        key: "requests.rate_min",
        preset: Preset::Unset("the rate"),
        range: None,
        meaning: "How far down the agent may move the rate while requests of the rule's class, or of one \
                  before it, wait too long or are refused.",
        example: "\"10/s\"",
        at: |r| &mut r.requests.rate_min,
    },
    Setting {
        key: "requests.rate_max",
        preset: Preset::Unset("the rate"),
        range: None,
        meaning: "How far up the agent may move the rate while there is room for more.",
        example: "\"200/s\"",
        at: |r| &mut r.requests.rate_max,
    },
    Setting {
        key: "requests.burst",
        preset: Preset::Unset("1"),
        range: Some(BURST),
        meaning: "How many may come at once after a pause.",
        example: "10",
        at: |r| &mut r.requests.burst,
    },
    Setting {
        key: "requests.per",
        preset: Preset::Unset("\"rule\""),
        range: None,
        meaning: "Whether all whom the rule is about share the limit (rule), or each client has one \
                  of its own (client).",
        example: "\"rule\"",
        at: |r| &mut r.requests.per,
    },
    Setting {
        key: "requests.over",
        preset: Preset::Unset("\"reject\""),
        range: None,
        meaning: "What becomes of requests over the limit; with queue they wait for their turn.",
        example: "\"queue\"",
        at: |r| &mut r.requests.over,
    },
    Setting {
        key: "requests.status",
        preset: Preset::Unset("503, with per = \"client\" 429"),
        range: None,
        meaning: STATUS,
        example: "429",
        at: |r| &mut r.requests.status,
    },
    Setting {
        key: "requests.deadline",
        preset: Preset::Unset("1s"),
        range: Some(("1ms", "1m")),
        meaning: "How long a request waits at most with over = \"queue\"; one that would wait longer \
                  is refused at once.",
        example: "\"500ms\"",
        at: |r| &mut r.requests.deadline,
    },
    Setting {
        key: "requests.most",
        preset: Preset::Unset("100"),
        range: Some(("1", "1000000")),
        meaning: "How many requests wait at most with over = \"queue\".",
        example: "50",
        at: |r| &mut r.requests.most,
    },
    Setting {
        key: "requests.ignore",
        preset: Preset::Unset("not at all"),
        range: Some(("1ms", "1d")),
        meaning: IGNORE,
        example: "\"5s\"",
        at: |r| &mut r.requests.ignore,
    },
    Setting {
        key: "in_flight.most",
        preset: Preset::Unset("no limit"),
        range: Some(("1", "1000000")),
        meaning: "How many requests are under way at once, from the head that has been read to the \
                  last byte of the answer.",
        example: "20",
        at: |r| &mut r.in_flight.most,
    },
    Setting {
        key: "in_flight.per",
        preset: Preset::Unset("\"rule\""),
        range: None,
        meaning: "Whether all whom the rule is about share the limit (rule), or each client has one \
                  of its own (client).",
        example: "\"rule\"",
        at: |r| &mut r.in_flight.per,
    },
    Setting {
        key: "in_flight.over",
        preset: Preset::Unset("\"reject\""),
        range: None,
        meaning: "What becomes of requests over the limit; with queue they wait until one of those under way \
                  has ended, by class, and count from then on. Not with per = \"client\".",
        example: "\"queue\"",
        at: |r| &mut r.in_flight.over,
    },
    Setting {
        key: "in_flight.status",
        preset: Preset::Unset("503, with per = \"client\" 429"),
        range: None,
        meaning: STATUS,
        example: "503",
        at: |r| &mut r.in_flight.status,
    },
    Setting {
        key: "in_flight.deadline",
        preset: Preset::Unset("1s"),
        range: Some(("1ms", "1m")),
        meaning: "How long a request waits at most with over = \"queue\"; then it is refused.",
        example: "\"500ms\"",
        at: |r| &mut r.in_flight.deadline,
    },
    Setting {
        key: "in_flight.queue",
        preset: Preset::Unset("100"),
        range: Some(("1", "1000000")),
        meaning: "How many requests wait at most with over = \"queue\". Where as many do, the last of a lower \
                  class gives way to one of a higher.",
        example: "50",
        at: |r| &mut r.in_flight.queue,
    },
];
