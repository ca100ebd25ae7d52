//! The configuration: what may be set, what it is set to, and what is wrong with a file.
//!
//! Each kind of section has one table of settings. Parsing, defaults, range checks, `forebay check
//! --print`, the manual and the commented sample all come from it; to add a setting, add a field to
//! the type of its section and a row to the table beside it.
//!
//! No request passes through here: a [`Config`] is there before the first one, and the server makes of it what
//! serves them.
//!
//! | module | what it holds |
//! |---|---|
//! | [`table`] | what a table is: settings, defaults, lists of sections; how sections are read and written |
//! | [`path`] | where something is in a configuration |
//! | [`process`] | the settings of the process |
//! | [`listener`], [`site`] | those of a listener and of a site |
//! | [`class`], [`rule`], [`limit`], [`policy`] | those of a class, of a rule and its limits, and what must hold between them |
//! | [`value`] | what every type of setting can do, and the plain ones |
//! | [`optional`] | settings without a value, and with several |
//! | [`identity`] | those of identities that clients prove by a cookie |
//! | [`address`], [`choice`], [`account`] | the types that are addresses, words, accounts |
//! | [`lower`] | classes and rules as `forebay_policy` has them |
//! | [`rules`], [`written`] | the lists of a site, and the types of `forebay_site` and `forebay_policy` |
//! | [`proxy`], [`fastcgi`], [`forward_auth`], [`upstreams`] | routes to applications, servers that decide, and what all of them have |
//! | [`member`], [`log_condition`] | what lines of a log say of a request, and which requests have one |
//! | [`calibration`] | the constants that `forebay calibrate` found |
//! | [`units`] | durations, sizes and rates as people write them |
//! | `quoted` | texts as they stand in TOML |
//! | `parse` | a text into a [`Config`] |
//! | [`read`](mod@read) | a TOML text into a draft, with the place of everything that is wrong |
//! | [`acme`] | certificates by ACME |
//! | [`draft`] | what a file says, before sites and listeners inherit |
//! | `checks` | certificates by ACME, and the engine isolated |
//! | [`check`](mod@check) | what must hold between settings |
//! | `stray` | unknown keys, those of other servers too: what was probably meant, or where they belong |
//! | `isolated` | the engine isolated: its settings, and what it cannot do yet |
//! | `relative_paths`, `without_parents` | paths that are relative to the directory of the file; a path without `..`, for programs that take none |
//! | `redirects` | redirects that lead back to themselves |
//! | `remarks` | what is right and yet hardly meant, as far as the text tells; `lints` of the server ask the machine |
//! | `secured` | where clients are led for TLS, and TLS without effect |
//! | `unused` | settings that another one leaves without effect |
//! | `firewall`, `firewalled`, `gated` | the settings of the firewall, and what keeps clients out of it, and rules out of the kernel |
//! | `spared` | who is never ignored or banned, and rules that would ban them |
//! | `applications` | applications that cannot work as they are set |
//! | `pages` | error pages that no client would see, and where paths of a site lie |
//! | `caching`, `literal` | fields that browsers misunderstand, and those that have what is no variable |
//! | `stage_process` | which stage a process of isolated is |
//! | `per_stage` | values that each of the stages of isolated has for itself |
//! | [`print`](mod@print) | a [`Config`] as TOML |
//! | [`problem`] | one thing that is wrong, and the line that says so |
//!
//! It deliberately asks nothing of the machine: whether a file is there, a name known or an address free is found
//! out by the server, which also reads the files. So a text means the same everywhere.
//!
//! ```
//! let text = "root = \"/srv/www\"\n[timeouts]\nhaed = \"5s\"\n";
//! let problems = forebay_config::parse(text, "forebay.toml").unwrap_err();
//! assert_eq!(
//!     problems[0].to_string(),
//!     "forebay.toml:3:1: timeouts.haed: unknown key, did you mean \"head\"?"
//! );
//! ```
#![forbid(unsafe_code)]

pub mod account;
pub mod acme;
pub mod address;
pub mod applications;
mod caching;
pub mod calibration;
pub mod check;
mod checks;
pub mod choice;
pub mod class;
pub mod draft;
pub mod fastcgi;
mod firewall;
mod firewalled;
pub mod forward_auth;
mod gated;
pub mod identity;
mod isolated;
pub mod limit;
pub mod listener;
mod literal;
pub mod log_condition;
pub mod lower;
pub mod member;
pub mod optional;
pub mod pages;
pub mod parse;
pub mod path;
mod per_stage;
pub mod policy;
pub mod print;
pub mod problem;
pub mod process;
pub mod proxy;
mod quoted;
pub mod read;
mod redirects;
mod relative_paths;
pub mod remarks;
pub mod rule;
pub mod rules;
pub mod secured;
pub mod site;
pub mod spared;
mod stage_process;
mod stray;
pub mod table;
pub mod units;
mod unused;
pub mod upstreams;
pub mod value;
mod without_parents;
pub mod written;

pub use account::Account;
pub use acme::AcmeConfig;
pub use address::{AdminListen, Listen, ListenEndpoint};
pub use calibration::{Calibration, CalibrationError};
pub use choice::{
    AccessLog, ActionChoice, AllocateBy, AskClients, Confine, ControlSocketChoice, FirewallMode,
    GateCharge, GateMode, KeepAliveLaw, LogFormat, OptionalFieldValue, OverChoice, PerChoice,
    Refuse, Switch, WhenChoice,
};
pub use class::{ClassConfig, ClassName};
pub use draft::ConfigDraft;
pub use fastcgi::FastCgiConfig;
pub use firewall::{FirewallSettings, TableName};
pub use forward_auth::ForwardAuth;
pub use identity::{CookieName, IdentitySettings};
pub use isolated::{Isolated, StageAddress};
pub use listener::ListenerConfig;
pub use log_condition::LogCondition;
pub use member::Member;
pub use optional::Optional;
pub use parse::parse;
pub use parse::{at_odds, classes_and_rules, rules_at_odds};
pub use per_stage::PerStage;
pub use problem::{Problem, Wrong};
pub use proxy::ProxyConfig;
pub use quoted::quote;
pub use remarks::Remarks;
pub use rule::{RuleConfig, RuleName};
pub use site::SiteConfig;
pub use stage_process::{Role, StageProcess};
pub use units::{ByteRate, Percent, Size};
pub use value::AutoCount;

use forebay_engine::pipeline::Fuse;
use forebay_engine::settings::SendOrder;
use forebay_http::forwarded::ForwardedFamily;
use forebay_http::head::HeadLimits;
use forebay_site::rules::Network;
use std::path::PathBuf;
use std::time::Duration;

/// Everything that can be configured, typed and resolved. What each field means, its range and its
/// default stand in the tables under the same key.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Where connections are accepted, and by what; at least one.
    pub listeners: Vec<ListenerConfig>,
    /// What is served; at least one, and at most one without hosts.
    pub sites: Vec<SiteConfig>,
    /// `[[class]]`, in the order of the file; empty means one class for everything
    pub classes: Vec<ClassConfig>,
    /// `[[rule]]`, in the order of the file
    pub rules: Vec<RuleConfig>,
    /// What `forebay policy set` has changed since the file was read, the last assignment of each target.
    pub assigned: Vec<String>,
    /// `agent`
    pub agent: Switch,
    /// `gate`
    pub gate: GateMode,
    /// `gate_charge`
    pub gate_charge: GateCharge,
    /// `firewall.*`
    pub firewall: FirewallSettings,
    /// For requests that belong to no site: what the top level says.
    pub log: LogConfig,
    /// `server_header`
    pub server_header: bool,
    /// `sample`: every so many requests one is timed; 0 is never
    pub sample: u64,
    /// `durations`
    pub durations: bool,
    /// `send_order`
    pub send_order: SendOrder,
    /// `trusted_proxies`
    pub trusted_proxies: Vec<Network>,
    /// `forwarded`
    pub forwarded: ForwardedFamily,
    /// `user`
    pub user: Option<Account>,
    /// `group`
    pub group: Option<Account>,
    /// `timeouts.*`
    pub timeouts: TimeoutsConfig,
    /// `keep_alive.*`
    pub keep_alive: KeepAliveConfig,
    /// `limits.*`
    pub limits: LimitsConfig,
    /// `cache.*`
    pub cache: CacheConfig,
    /// `acme.*`
    pub acme: AcmeConfig,
    /// `admin.*`
    pub admin: AdminConfig,
    /// `identity.*`
    pub identity: IdentitySettings,
    /// `control.*`
    pub control: ControlConfig,
    /// `sandbox.*`
    pub sandbox: SandboxConfig,
    /// `helpers.*`
    pub helpers: HelpersConfig,
    /// `pipeline.*`
    pub pipeline: PipelineConfig,
    /// `isolated.*`
    pub isolated: Isolated,
    /// Which stage this process is, with the engine isolated; no file says it.
    pub place: Option<StageProcess>,
}

/// How long is waited for what.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TimeoutsConfig {
    /// `timeouts.head`
    pub head: Duration,
    /// `timeouts.body`
    pub body: Duration,
    /// `timeouts.idle`
    pub idle: Duration,
    /// `timeouts.job`
    pub job: Duration,
    /// `timeouts.send_window`
    pub send_window: Duration,
    /// `timeouts.drain`
    pub drain: Duration,
}

/// How long idle connections are kept.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KeepAliveConfig {
    /// `keep_alive.law`
    pub law: KeepAliveLaw,
    /// `keep_alive.threshold`, in percent of load
    pub threshold: u64,
    /// `keep_alive.floor`
    pub floor: Duration,
    /// `keep_alive.announce`
    pub announce: bool,
}

/// How much a client may ask for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LimitsConfig {
    /// `limits.head_bytes`
    pub head_bytes: Size,
    /// `limits.head_lines`
    pub head_lines: u64,
    /// `limits.target_bytes`
    pub target_bytes: Size,
    /// `limits.body_bytes`
    pub body_bytes: Size,
    /// `limits.connections`; `auto` is what the descriptor limit allows
    pub connections: AutoCount,
    /// `limits.connections_per_client`; `auto` is half of `connections`
    pub connections_per_client: AutoCount,
    /// `limits.requests_per_connection`; 0 is no limit
    pub requests_per_connection: u64,
    /// `limits.streams`; 0 is no HTTP/2
    pub streams: u64,
    /// `limits.send_rate`; 0 is no minimum
    pub send_rate: ByteRate,
}

impl LimitsConfig {
    /// What the heads of requests are read by.
    pub fn head(&self) -> HeadLimits {
        let as_usize = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        HeadLimits {
            head_bytes: as_usize(self.head_bytes.0),
            head_lines: as_usize(self.head_lines),
            target_bytes: as_usize(self.target_bytes.0),
            empty_host: false,
        }
    }
}

/// What is kept in memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CacheConfig {
    /// `cache.bytes`; 0 is no data cache
    pub bytes: Optional<Size>,
    /// `cache.in_flight`
    pub in_flight: Optional<Size>,
    /// `cache.file_bytes`
    pub file_bytes: Size,
    /// `cache.segment_bytes`
    pub segment_bytes: Size,
    /// `cache.open_files`
    pub open_files: u64,
    /// `cache.check_interval`
    pub check_interval: Duration,
}

/// The access log.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LogConfig {
    /// `log.access`
    pub access: AccessLog,
    /// `log.format`
    pub format: LogFormat,
    /// `log.if`
    pub conditions: Vec<LogCondition>,
    /// `log.sample`
    pub sample: u64,
    /// `log.sample_refused`
    pub sample_refused: u64,
    /// `log.fields`
    pub fields: Vec<Member>,
}

/// The admin listener.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AdminConfig {
    /// `admin.listen`
    pub listen: AdminListen,
    /// `admin.allow`
    pub allow: Vec<Network>,
    /// `admin.token_file`
    pub token_file: Option<PathBuf>,
    /// `admin.tls.certificate`, `admin.tls.key`
    pub pairs: KeyPairs,
}

/// Files with certificates, and with the key of each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyPairs {
    /// `tls.certificate`
    pub certificates: Vec<PathBuf>,
    /// `tls.key`
    pub keys: Vec<PathBuf>,
}

impl KeyPairs {
    /// Whether there is a certificate.
    pub fn is_empty(&self) -> bool {
        self.certificates.is_empty()
    }

    /// All these files.
    pub fn files(&self) -> impl Iterator<Item = &PathBuf> {
        self.certificates.iter().chain(&self.keys)
    }
}

/// Certificates of clients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientCertificates {
    /// `tls.client`
    pub asked: AskClients,
    /// `tls.client_ca`
    pub authorities: Vec<PathBuf>,
    /// `tls.client_crl`
    pub revoked: Vec<PathBuf>,
}

impl ClientCertificates {
    /// The files that are read: none where clients are not asked.
    pub fn files(&self) -> impl Iterator<Item = &PathBuf> {
        let is_read = self.asked != AskClients::Off;
        self.authorities.iter().chain(&self.revoked).filter(move |_| is_read)
    }
}

/// Threads for work that may block.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HelpersConfig {
    /// `helpers.threads`, for all loops together
    pub threads: u64,
    /// `helpers.reserve`
    pub reserve: u64,
    /// `helpers.niceness`
    pub niceness: u64,
}

/// What only the engine `pipeline` is told.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PipelineConfig {
    /// `pipeline.fuse`
    pub fuse: Fuse,
    /// `pipeline.by`
    pub by: AllocateBy,
    /// `pipeline.period`
    pub period: Duration,
    /// `pipeline.delay`
    pub delay: Duration,
    /// `pipeline.threads`, of all phases together; `auto` is 16 per core, at least 64
    pub threads: AutoCount,
    /// `pipeline.transfer`
    pub transfer: u64,
    /// `pipeline.accept`
    pub accept: u64,
    /// `pipeline.receive`
    pub receive: u64,
    /// `pipeline.process`
    pub process: u64,
    /// `pipeline.send`
    pub send: u64,
    /// `pipeline.send_wait`
    pub send_wait: Duration,
    /// `pipeline.calibration`
    pub calibration: Option<PathBuf>,
    /// What that file says.
    pub calibrated: Option<Calibration>,
}

/// The socket that commands come by.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ControlConfig {
    /// `control.socket`
    pub socket: ControlSocketChoice,
}

/// What the kernel keeps the server from.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SandboxConfig {
    /// `sandbox.landlock`
    pub landlock: Confine,
    /// `sandbox.seccomp`
    pub seccomp: Confine,
    /// `sandbox.read`
    pub read: Vec<PathBuf>,
}
