//! Connections that are passed on to other servers as they are, by port or by the server name in a TLS
//! ClientHello.

use crate::AutoCount;
use crate::sections::upstreams::{
    FastCgiAddress, ProxyProtocolVersion, QueueConfig, UpstreamTimes, UpstreamWeights,
    UpstreamsConfig, rebase,
};
use crate::table::{Preset, Section, Setting};
use crate::values::optional::{OneOrMore, Optional};
use crate::values::units::Percent;
use forebay_conn::{PassName, PassRoute};
use forebay_site::rules::Host;
use forebay_upstream::settings::{Balance, HealthCheckSettings, TcpSettings};
use std::path::PathBuf;
use std::time::Duration;

/// A `[[tcp]]`.
#[derive(Clone, Debug, PartialEq)]
pub struct TcpConfig {
    /// `port`
    pub port: Optional<u64>,
    /// `names`
    pub names: OneOrMore<Host>,
    /// `to`
    pub to: OneOrMore<FastCgiAddress>,
    /// `backup`
    pub backup: OneOrMore<FastCgiAddress>,
    /// `weights`
    pub weights: UpstreamWeights,
    /// `proxy_protocol`
    pub proxy_protocol: Optional<ProxyProtocolVersion>,
    /// `balance`
    pub balance: Balance,
    /// `in_flight`
    pub in_flight: Optional<u64>,
    /// `retries`
    pub retries: u64,
    /// `max_fails`
    pub max_fails: u64,
    /// `fail_time`
    pub fail_time: Duration,
    /// `slow_start`
    pub slow_start: Optional<Duration>,
    /// `lifetime`
    pub lifetime: Optional<Duration>,
    /// `queue.*`
    pub queue: QueueConfig,
    /// `check.interval`
    pub check: Optional<Duration>,
    /// `timeouts.connect`
    pub connect: Duration,
    /// `timeouts.silence`
    pub silence: Duration,
    /// `timeouts.half_close`
    pub half_close: Optional<Duration>,
}

impl TcpConfig {
    /// The connections that the route is for.
    pub fn route(&self) -> PassRoute {
        let name =
            |host: &Host| PassName { name: host.name().into(), is_wildcard: host.is_wildcard() };
        PassRoute {
            port: self.port.0.and_then(|port| u16::try_from(port).ok()),
            names: self.names.0.iter().map(name).collect(),
        }
    }

    /// The name of the route in messages: its names, or its port.
    pub fn name(&self) -> String {
        let names: Vec<_> = self.names.0.iter().map(Host::as_str).collect();
        let port = self.port.0.map(|port| format!(":{port}"));
        format!("tcp {}{}", names.join(" "), port.unwrap_or_default()).trim_end().to_owned()
    }

    /// The addresses of the servers, each list with its key: backups come last.
    pub fn to(&self) -> [(&'static str, &[FastCgiAddress]); 2] {
        [("to", &self.to.0), ("backup", &self.backup.0)]
    }

    /// Whether some servers have names that must be looked up.
    pub fn names_upstreams(&self) -> bool {
        let to = self.to().into_iter().flat_map(|(_, to)| to);
        to.into_iter().any(|to| to.0.is_looked_up())
    }

    /// Makes paths relative to a directory.
    pub(crate) fn rebase(&mut self, join: &impl Fn(&mut PathBuf)) {
        let before = self.to.0.clone();
        self.to.0.iter_mut().chain(&mut self.backup.0).for_each(|to| rebase(&mut to.0, join));
        self.weights.rename(&before, &self.to.0);
    }

    /// The settings of the servers as the upstreams take them.
    pub fn settings(&self) -> TcpSettings {
        let addresses = |of: &[FastCgiAddress]| of.iter().map(|to| to.0.clone()).collect();
        let mut weights = self.weights.clone();
        // faults in the weights were reported when the section was read
        _ = weights.put_in_order(&self.to.0);
        let check = self.check.0.map(|interval| HealthCheckSettings {
            path: "".into(),
            interval,
            statuses: Vec::new(),
        });
        let upstreams = UpstreamsConfig {
            weights,
            balance: self.balance,
            in_flight: Optional(self.in_flight.0.map(AutoCount::Fixed)),
            queue: self.queue.clone(),
            retries: self.retries,
            // a connection that no server accepts costs none of them anything, so retries need no budget
            retry_budget: Percent::WHOLE,
            max_fails: self.max_fails,
            fail_time: self.fail_time,
            slow_start: self.slow_start,
            timeouts: UpstreamTimes {
                connect: self.connect,
                head: self.connect,
                silence: self.silence,
                body: Optional(None),
            },
            ..UpstreamsConfig::default()
        };
        let group = upstreams.group(addresses(&self.to.0), addresses(&self.backup.0), check);
        TcpSettings {
            group,
            proxy_protocol: self.proxy_protocol.0.map(Into::into),
            half_close: self.half_close.0.unwrap_or(self.silence),
            lifetime: self.lifetime.0,
        }
    }
}

impl Section for TcpConfig {
    fn blank() -> TcpConfig {
        TcpConfig {
            port: Optional(None),
            names: OneOrMore::default(),
            to: OneOrMore::default(),
            backup: OneOrMore::default(),
            weights: UpstreamWeights::default(),
            proxy_protocol: Optional::default(),
            balance: Balance::default(),
            in_flight: Optional(None),
            retries: 0,
            max_fails: 0,
            fail_time: Duration::ZERO,
            slow_start: Optional(None),
            lifetime: Optional(None),
            queue: QueueConfig::default(),
            check: Optional(None),
            connect: Duration::ZERO,
            silence: Duration::ZERO,
            half_close: Optional(None),
        }
    }

    const SETTINGS: &'static [Setting<TcpConfig>] = &[
        Setting {
            key: "port",
            preset: Preset::Unset("any"),
            range: Some(("1", "65535")),
            meaning: "The port that clients must have reached. An address in listen has it.",
            example: "5432",
            at: |t| &mut t.port,
        },
        Setting {
            key: "names",
            preset: Preset::Unset("any"),
            range: None,
            meaning: "Names of servers, one of which a client must ask for in its hello of TLS (SNI): \"*.\" and a \
                      domain is all below it. Of several routes the one whose name fits best gets the connection. At \
                      addresses with https:// other names are answered by the sites as ever. Without names the route \
                      gets what no name takes of connections to addresses with tcp://.",
            example: "[\"mail.example\", \"*.db.example\"]",
            at: |t| &mut t.names,
        },
        Setting {
            key: "to",
            preset: Preset::Required,
            range: None,
            meaning: "Where the servers are: one, or several that do the same. A name may have several addresses, and \
                      is looked up again every 10 s. \"srv://_imaps._tcp.mail.internal\" is all servers that the \
                      records of a service (SRV) name, as for proxy.",
            example: "[\"10.0.0.5:5432\", \"10.0.0.6:5432\"]",
            at: |t| &mut t.to,
        },
        Setting {
            key: "backup",
            preset: Preset::Unset("there is none"),
            range: None,
            meaning: "Servers that get connections only while none of to is well, and those that no server of to has \
                      taken.",
            example: "\"10.0.1.5:5432\"",
            at: |t| &mut t.backup,
        },
        Setting {
            key: "weights",
            preset: Preset::Unset("all are equal"),
            range: Some(("1", "100")),
            meaning: "What each server gets beside the others, by its address as to has it; as for proxy.",
            example: "{ \"10.0.0.5:5432\" = 9 }",
            at: |t| &mut t.weights,
        },
        Setting {
            key: "proxy_protocol",
            preset: Preset::Unset("off"),
            range: None,
            meaning: "Whether connections to the servers begin with the client's address (PROXY protocol), as a line \
                      (v1) or in bytes (v2). They must expect it.",
            example: "\"v2\"",
            at: |t| &mut t.proxy_protocol,
        },
        Setting {
            key: "balance",
            preset: Preset::Value("least"),
            range: None,
            meaning: "Which server gets a connection: the one with the fewest (least), one after the other \
                      (round-robin), of two that are drawn the one with fewer (two-choices), or the same for the same \
                      client (hash).",
            example: "\"hash\"",
            at: |t| &mut t.balance,
        },
        Setting {
            key: "in_flight",
            preset: Preset::Unset("no limit"),
            range: Some(("1", "1000000")),
            meaning: "Connections to each server at most, in the whole process. While all have as many, more wait here \
                      (queue), in the order of their classes.",
            example: "100",
            at: |t| &mut t.in_flight,
        },
        Setting {
            key: "retries",
            preset: Preset::Value("1"),
            range: Some(("0", "10")),
            meaning: "How many more servers are tried at most where one takes no connection.",
            example: "2",
            at: |t| &mut t.retries,
        },
        Setting {
            key: "max_fails",
            preset: Preset::Value("3"),
            range: Some(("0", "1000")),
            meaning: "After so many failures in a row a server gets nothing for fail_time; 0 never keeps one out. A \
                      failure is no connection, or none in time. While none is well, all are tried.",
            example: "1",
            at: |t| &mut t.max_fails,
        },
        Setting {
            key: "fail_time",
            preset: Preset::Value("10s"),
            range: Some(("100ms", "1h")),
            meaning: "For how long that is; then one connection is tried, and if that fails it is twice as long.",
            example: "\"30s\"",
            at: |t| &mut t.fail_time,
        },
        Setting {
            key: "slow_start",
            preset: Preset::Unset("off"),
            range: Some(("1s", "1h")),
            meaning: "In so long a server that is well again gets more and more of its share.",
            example: "\"30s\"",
            at: |t| &mut t.slow_start,
        },
        Setting {
            key: "lifetime",
            preset: Preset::Unset("no limit"),
            range: Some(("1s", "365d")),
            meaning: "How long a connection may last, whatever is sent on it.",
            example: "\"12h\"",
            at: |t| &mut t.lifetime,
        },
        Setting {
            key: "queue.requests",
            preset: Preset::Unset("1000"),
            range: Some(("0", "1000000")),
            meaning: "Connections that wait while all servers have in_flight, at most; more are reset. With 0 none \
                      waits.",
            example: "200",
            at: |t| &mut t.queue.requests,
        },
        Setting {
            key: "queue.time",
            preset: Preset::Unset("10s"),
            range: Some(("10ms", "1h")),
            meaning: "For how long; then they are reset.",
            example: "\"2s\"",
            at: |t| &mut t.queue.time,
        },
        Setting {
            key: "queue.down",
            preset: Preset::Value("fail"),
            range: None,
            meaning: "What becomes of connections while no server takes any: they are reset (fail), or wait as those \
                      that wait for a place (wait); as for proxy.",
            example: "\"wait\"",
            at: |t| &mut t.queue.down,
        },
        Setting {
            key: "check.interval",
            preset: Preset::Unset("no server is checked"),
            range: Some(("100ms", "1h")),
            meaning: "How often a connection to each server is tried, and closed again, to see whether it is well.",
            example: "\"5s\"",
            at: |t| &mut t.check,
        },
        Setting {
            key: "timeouts.connect",
            preset: Preset::Value("3s"),
            range: Some(("10ms", "5m")),
            meaning: "Time to open a connection to a server.",
            example: "\"1s\"",
            at: |t| &mut t.connect,
        },
        Setting {
            key: "timeouts.silence",
            preset: Preset::Value("10m"),
            range: Some(("100ms", "30d")),
            meaning: "Time without a byte in either direction; then the connection is closed.",
            example: "\"1h\"",
            at: |t| &mut t.silence,
        },
        Setting {
            key: "timeouts.half_close",
            preset: Preset::Unset("timeouts.silence"),
            range: Some(("100ms", "30d")),
            meaning: "The same once one side has ended its direction and the other has not.",
            example: "\"30s\"",
            at: |t| &mut t.half_close,
        },
    ];
}
