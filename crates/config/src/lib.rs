//! The configuration: what may be set, what it is set to, and what is wrong with a file.
//!
//! Each kind of section has one table of settings. Parsing, defaults, range checks, `forebay check
//! --print`, the manual and the commented sample all come from it; to add a setting, add a field to
//! the type of its section and a row to the table beside it.
//!
//! No request passes through here: a [`Config`] is complete before the first one, and the server makes of
//! it what serves requests.
//!
//! | module | what it holds |
//! |---|---|
//! | [`table`] | what a table is: settings, defaults, lists of sections; how sections are read and written |
//! | `sections` | the tables: a file for each kind of section, with the type that it fills |
//! | `values` | the types that a setting can have: how each is read from text, checked and printed |
//! | `reading` | a TOML text into a [`ConfigDraft`], and a [`Config`] into one; the file of constants |
//! | `checks` | faults between settings, and settings that are valid but probably not meant |
//! | [`texts`] | the texts of a configuration, and what their strings refer to outside of them |
//! | `problems` | one fault, where it is, and the line that reports it |
//! | [`lower`] | classes and rules as `forebay_policy` has them |
//! | [`parse`](mod@parse) | all of it: a text into a [`Config`] |
//!
//! This crate deliberately asks nothing of the machine: the server finds out whether a file exists, a name
//! is known or an address is free, and it also reads the files. A [`ConfigSource`] gives what a text names
//! outside of itself. So a text means the same everywhere.
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

mod checks;
pub mod lower;
pub mod parse;
mod problems;
mod reading;
mod sections;
pub mod table;
pub mod texts;
mod values;

pub use checks::guarded::guarded;
pub use checks::{answers, applications, idle_rules, pages, spared};
pub use problems::{path, problem, text_place};
pub use reading::{calibration, draft, read};
pub use sections::listener;
pub use values::{choice, include, log_condition, member, value};

pub use parse::parse;
pub use parse::{at_odds, classes_and_rules, rules_at_odds};
pub use problems::problem::{Problem, Remarks, Wrong};
pub use problems::quoted::quote;
pub use reading::calibration::{Calibration, CalibrationError};
pub use reading::draft::ConfigDraft;
pub use sections::acme::AcmeConfig;
pub use sections::cgi::{CgiConfig, CgiLimits, CgiPrograms, CgiRoute};
pub use sections::class::{ClassConfig, ClassName};
pub use sections::fastcgi::FastCgiConfig;
pub use sections::firewall::{FirewallSettings, TableName};
pub use sections::forward_auth::ForwardAuth;
pub use sections::hand_over::HandOverConfig;
pub use sections::handler::HandlerRoute;
pub use sections::identity::{CookieName, IdentitySettings};
pub use sections::isolated::{Isolated, StageAddress, StageKeyFiles, StageKind, stage_name};
pub use sections::listener::ListenerConfig;
pub use sections::protect::{MachineAddress, ProtectConfig};
pub use sections::proxy::ProxyConfig;
pub use sections::rule::{RuleConditions, RuleConfig, RuleName};
pub use sections::site::SiteConfig;
pub use sections::tcp::TcpConfig;
pub use sections::traces::{CollectorAddress, ServiceName, TracesConfig};
pub use texts::origin::ConfigOrigin;
pub use texts::source::{ConfigSource, IncludedFile, NoSource};
pub use values::account::Account;
pub use values::address::{AdminListen, Listen, ListenEndpoint};
pub use values::choice::{
    AccessLog, ActionChoice, AllocateBy, AskClients, Confine, ControlSocketChoice, FirewallMode,
    GateCharge, GateMode, GateRules, KeepAliveLaw, LogFormat, OptionalFieldValue, OverChoice,
    PageAddresses, PerChoice, Refuse, Switch, TraceParent, WhenChoice,
};
pub use values::firewall_set::{AddressSets, FirewallSet};
pub use values::include::IncludePattern;
pub use values::log_condition::LogCondition;
pub use values::member::Member;
pub use values::optional::Optional;
pub use values::per_stage::PerStage;
pub use values::redacted::Redacted;
pub use values::stage_process::{Role, StageProcess};
pub use values::units::{ByteRate, Percent, Size};
pub use values::value::AutoCount;
pub use values::without_parents::without_parents;

use forebay_engine::pipeline::Fuse;
use forebay_engine::settings::SendOrder;
use forebay_http::field::FieldName;
use forebay_http::forwarded::ForwardedFamily;
use forebay_http::head::HeadLimits;
use forebay_site::rules::Network;
use std::path::PathBuf;
use std::time::Duration;

/// A whole configuration, typed and resolved. The meaning, range and default of each field stand in the
/// tables under the same key.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Where connections are accepted, and by which engine; at least one.
    pub listeners: Vec<ListenerConfig>,
    /// The sites; at least one, and at most one without hosts.
    pub sites: Vec<SiteConfig>,
    /// `[[class]]`, in the order of the file; empty means one class for everything
    pub classes: Vec<ClassConfig>,
    /// `[[rule]]`, in the order of the file
    pub rules: Vec<RuleConfig>,
    /// `[[tcp]]`, in the order of the file
    pub tcp: Vec<TcpConfig>,
    /// `[[protect]]`: servers besides this one that the kernel protects
    pub protects: Vec<ProtectConfig>,
    /// The changes by `forebay policy set` since the file was read, the last assignment of each target.
    pub assigned: Vec<PolicyOverride>,
    /// The contents of the sets that rules name by `client_set`, as the server has read them; not set by a
    /// file.
    pub sets: AddressSets,
    /// `policy.ban_files`
    pub ban_files: Vec<PathBuf>,
    /// `spool_dir`
    pub spool_dir: Option<PathBuf>,
    /// `spool_dir_bytes`
    pub spool_dir_bytes: Size,
    /// `agent`
    pub agent: Switch,
    /// `gate`
    pub gate: GateMode,
    /// `gate_charge`
    pub gate_charge: GateCharge,
    /// `gate_rules`
    pub gate_rules: GateRules,
    /// `gate_answers`
    pub gate_answers: bool,
    /// `firewall.*`
    pub firewall: FirewallSettings,
    /// The access log of requests that belong to no site: `log` of the top level.
    pub log: LogConfig,
    /// `server_header` of the top level, for requests that belong to no site.
    pub server_header: bool,
    /// `sample`: one in this number of requests is timed; 0 is never
    pub sample: u64,
    /// `durations`
    pub durations: bool,
    /// `send_order`
    pub send_order: SendOrder,
    /// `trusted_proxies`
    pub trusted_proxies: Vec<Network>,
    /// `forwarded`
    pub forwarded: ForwardedFamily,
    /// `trusted_header`
    pub trusted_header: Option<FieldName>,
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
    /// `traces.*`
    pub traces: TracesConfig,
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
    /// `include`
    pub include: Vec<IncludePattern>,
    /// The other files and texts that the configuration was read from; not set by a file.
    pub origin: ConfigOrigin,
    /// The stage that this process is, with the engine isolated; not set by a file.
    pub place: Option<StageProcess>,
    /// Whether the server is a part of another program, and leaves the process as it is; not set by a file.
    pub is_guest: bool,
}

/// A setting of a class or a rule that `forebay policy set` has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyOverride {
    /// `NAME.KEY=VALUE`
    pub assignment: String,
    /// Whether the change holds through reloads, as long as the file's own value stays the same.
    pub is_kept: bool,
    /// The value in the file; `None` if the file has none.
    pub file_value: Option<String>,
}

/// Time limits.
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
    /// `timeouts.drain_wait`
    pub drain_wait: Duration,
    /// `timeouts.upgrade`
    pub upgrade: Duration,
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

/// Limits on what a client may send and use.
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
    /// The limits by which heads of requests are parsed.
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

/// Settings of the cache.
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
    /// `log.query`
    pub query: bool,
    /// `log.redact`
    pub redact: Vec<Redacted>,
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
    /// `admin.page`
    pub page: bool,
    /// `admin.page_addresses`
    pub page_addresses: PageAddresses,
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

    /// The paths of all these files.
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
    /// The files that are read: none where clients are not asked for certificates.
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

/// Settings of the engine `pipeline` alone.
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
    /// The contents of that file.
    pub calibrated: Option<Calibration>,
}

/// The socket that takes commands.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ControlConfig {
    /// `control.socket`
    pub socket: ControlSocketChoice,
}

/// What the kernel forbids the server.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SandboxConfig {
    /// `sandbox.landlock`
    pub landlock: Confine,
    /// `sandbox.seccomp`
    pub seccomp: Confine,
    /// `sandbox.read`
    pub read: Vec<PathBuf>,
}
