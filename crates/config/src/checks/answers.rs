//! Which listeners and sites may have answers given by the kernel, as far as their settings tell, and why not the others.
//!
//! The kernel gives an answer that it has learned where the server would give the same to every client. So a setting
//! stands in the way if it makes an answer depend on something that the kernel does not see, or if it wants
//! something of each answer that is only done here. What rules of the policy decide is no hindrance: the kernel judges
//! by them, and leaves to the server what it cannot tell. What concerns single paths (access, passwords, conditions,
//! variables) is found out for each answer ([`NotFixed`](forebay_site::NotFixed)). What each setting has to do with it
//! stands in the table of the tests, so that none is forgotten.

use crate::{
    AskClients, ClassConfig, Config, GateMode, GateRules, ListenEndpoint, ListenerConfig,
    RuleConfig, SiteConfig, Size,
};
use std::fmt;

/// The kernel reads heads of one segment, which is no longer than this, and with fewer lines than this.
const SEGMENT_BYTES: u64 = 1460;
const HEAD_LINES: u64 = 64;

/// Why the kernel gives no answers, or none of a site, or none at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoAnswers {
    /// The kernel completes no handshakes.
    NotFull,
    /// The kernel judges no first requests.
    NotJudged,
    /// The stages of the server share no cache with the process that has the gate.
    Stages,
    /// Spans are sent.
    Traces,
    /// Each request is timed.
    Durations,
    /// Answers say how long their connections are kept.
    Announce,
    /// A connection ends after so many requests, by this setting.
    RequestsPerConnection(String),
    /// Heads that the kernel would read are refused.
    HeadLimits(&'static str),
    /// The data cache is off.
    NoCache,
    /// The site asks clients for a certificate.
    ClientCertificates,
    /// The site sends clients that come without TLS elsewhere.
    Redirect,
    /// The site has no files.
    NoFiles,
    /// TLS is spoken at the address.
    Tls,
    /// Connections are passed on.
    Raw,
    /// The listener is a Unix socket.
    Unix,
    /// A proxy states the client first.
    ProxyProtocol,
}

impl fmt::Display for NoAnswers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NoAnswers::NotFull => "it takes gate = \"full\"",
            NoAnswers::NotJudged => {
                "it takes gate_rules = \"first_request\", so that rules are asked before"
            }
            NoAnswers::Stages => {
                "stages have the files (engine = \"isolated\", [isolated]), and the process with the gate has none"
            }
            NoAnswers::Traces => "traces.to wants a span of each request, and the kernel makes none",
            NoAnswers::Durations => "durations times each request, and the kernel times none",
            NoAnswers::Announce => {
                "keep_alive.announce tells clients how long they are kept, which the kernel does not know"
            }
            NoAnswers::RequestsPerConnection(of) => {
                return write!(f, "{of} ends connections, and the kernel does not count their requests");
            }
            NoAnswers::HeadLimits(key) => {
                return write!(f, "{key} refuses heads that fit into one segment");
            }
            NoAnswers::NoCache => "cache.bytes is 0, and the kernel learns what the cache has",
            NoAnswers::ClientCertificates => "tls.client asks clients for a certificate",
            NoAnswers::Redirect => "tls.redirect sends clients that come without TLS elsewhere",
            NoAnswers::NoFiles => "the site has no root, so that applications answer",
            NoAnswers::Tls => "TLS is spoken there, which the kernel cannot read",
            NoAnswers::Raw => "connections are passed on as they are there",
            NoAnswers::Unix => "no packets come by a Unix socket",
            NoAnswers::ProxyProtocol => "a proxy states the client first (proxy_protocol)",
        })
    }
}

/// Why the kernel gives no answers at all.
pub fn of_process(config: &Config) -> Vec<NoAnswers> {
    let has_stages = config.place.is_some() || config.has_stages();
    of_parts(config, &config.classes, &config.rules, has_stages)
}

/// The same of a configuration whose classes and rules are elsewhere.
pub(crate) fn of_parts(
    config: &Config,
    classes: &[ClassConfig],
    rules: &[RuleConfig],
    has_stages: bool,
) -> Vec<NoAnswers> {
    let mut why = Vec::new();
    let mut note = |is_so: bool, one: NoAnswers| {
        if is_so {
            why.push(one);
        }
    };
    note(config.gate != GateMode::Full, NoAnswers::NotFull);
    note(config.gate_rules != GateRules::FirstRequest, NoAnswers::NotJudged);
    note(has_stages, NoAnswers::Stages);
    note(config.cache.bytes.0 == Some(Size(0)), NoAnswers::NoCache);
    note(config.traces.to.is_some(), NoAnswers::Traces);
    note(config.durations, NoAnswers::Durations);
    note(config.keep_alive.announce, NoAnswers::Announce);
    for class in classes {
        let name = class.name.as_ref().map(ToString::to_string).unwrap_or_default();
        let of = format!("requests_per_connection of the class \"{name}\"");
        let ends = class.requests_per_connection.0.is_some();
        note(ends, NoAnswers::RequestsPerConnection(of));
    }
    for rule in rules {
        let name = rule.name.as_ref().map(ToString::to_string).unwrap_or_default();
        let of = format!("requests_per_connection of the rule \"{name}\"");
        let ends = rule.requests_per_connection.0.is_some();
        note(ends, NoAnswers::RequestsPerConnection(of));
    }
    let limits = &config.limits;
    note(limits.head_bytes.0 < SEGMENT_BYTES, NoAnswers::HeadLimits("limits.head_bytes"));
    note(limits.target_bytes.0 < SEGMENT_BYTES, NoAnswers::HeadLimits("limits.target_bytes"));
    note(limits.head_lines < HEAD_LINES, NoAnswers::HeadLimits("limits.head_lines"));
    why
}

/// Why the kernel gives no answers of a site.
pub fn of_site(site: &SiteConfig) -> Vec<NoAnswers> {
    let has_files = site.root.is_some() || !site.aliases.is_empty();
    let asks = site.tls.clients.asked != AskClients::Off;
    let all = [
        (!has_files, NoAnswers::NoFiles),
        (asks, NoAnswers::ClientCertificates),
        (site.tls.redirect.0.is_some(), NoAnswers::Redirect),
    ];
    all.into_iter().filter(|(is_so, _)| *is_so).map(|(_, why)| why).collect()
}

/// Why the kernel gives no answers at an address.
pub fn of_endpoint(listener: &ListenerConfig, endpoint: &ListenEndpoint) -> Option<NoAnswers> {
    match endpoint {
        ListenEndpoint { tls: true, .. } => Some(NoAnswers::Tls),
        ListenEndpoint { raw: true, .. } => Some(NoAnswers::Raw),
        ListenEndpoint { listen, .. } if listen.port().is_none() => Some(NoAnswers::Unix),
        _ if listener.proxy_protocol => Some(NoAnswers::ProxyProtocol),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
