//! Settings that are one of a few words, or a word or something else: the access log is off or a path, a
//! field is off or a value.

use crate::problems::problem::Wrong;
use crate::problems::quoted::quote;
use crate::values::address::HAS_NO_MODE;
use crate::values::value::{Form, Value, wrong};
use forebay_engine::Engine;
use forebay_engine::pipeline::Fuse;
use forebay_engine::settings::SendOrder;
use forebay_http::forwarded::ForwardedFamily;
use forebay_site::EtagMode;
use forebay_sys::unix_address::{MOST_BYTES, UnixAddressError};
use std::path::PathBuf;

/// A type that is one of a few words.
pub trait Keyword: Copy + PartialEq + 'static {
    /// The words, as messages list them.
    const EXPECTED: &'static str;
    /// The words.
    const WORDS: &'static [&'static str];
    /// The values of the words, in the same order.
    const MEANINGS: &'static [Self];

    /// The word for `self`.
    fn word(self) -> &'static str {
        let at = Self::MEANINGS.iter().position(|meaning| *meaning == self);
        at.map_or("", |at| Self::WORDS[at])
    }
}

impl Keyword for Engine {
    const EXPECTED: &'static str = "the name of an engine such as \"event\"";
    const WORDS: &'static [&'static str] = Engine::WORDS;
    const MEANINGS: &'static [Engine] = Engine::MEANINGS;
}

impl Keyword for Fuse {
    const EXPECTED: &'static str = "\"auto\" or \"never\"";
    const WORDS: &'static [&'static str] = &["auto", "never"];
    const MEANINGS: &'static [Fuse] = &[Fuse::Auto, Fuse::Never];
}

impl Keyword for SendOrder {
    const EXPECTED: &'static str = "\"arrival\", \"fastest\" or \"shortest\"";
    const WORDS: &'static [&'static str] = &["arrival", "fastest", "shortest"];
    const MEANINGS: &'static [SendOrder] =
        &[SendOrder::Arrival, SendOrder::Fastest, SendOrder::Shortest];
}

impl Keyword for ForwardedFamily {
    const EXPECTED: &'static str = "\"x-forwarded\" or \"forwarded\"";
    const WORDS: &'static [&'static str] = &["x-forwarded", "forwarded"];
    const MEANINGS: &'static [ForwardedFamily] =
        &[ForwardedFamily::XForwarded, ForwardedFamily::Forwarded];
}

impl Keyword for EtagMode {
    const EXPECTED: &'static str = "\"auto\", \"content\", \"stat\" or \"weak\"";
    const WORDS: &'static [&'static str] = &["auto", "content", "stat", "weak"];
    const MEANINGS: &'static [EtagMode] =
        &[EtagMode::Auto, EtagMode::Content, EtagMode::Stat, EtagMode::Weak];
}

/// The measure by which the threads of a pipeline are allocated to its phases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AllocateBy {
    /// None: the counts at the start stay.
    Fixed,
    /// The lengths of the lists.
    #[default]
    Queue,
    /// The time that tasks wait in the lists.
    Delay,
}

impl Keyword for AllocateBy {
    const EXPECTED: &'static str = "\"queue\", \"delay\" or \"fixed\"";
    const WORDS: &'static [&'static str] = &["fixed", "queue", "delay"];
    const MEANINGS: &'static [AllocateBy] =
        &[AllocateBy::Fixed, AllocateBy::Queue, AllocateBy::Delay];
}

/// The law by which the time of idle connections shrinks under load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeepAliveLaw {
    /// The time shrinks by the same amount for each step of load.
    #[default]
    Linear,
    /// The time shrinks by the same factor for each step of load.
    Exponential,
    /// The time does not shrink.
    Constant,
}

impl Keyword for KeepAliveLaw {
    const EXPECTED: &'static str = "\"linear\", \"exponential\" or \"constant\"";
    const WORDS: &'static [&'static str] = &["linear", "exponential", "constant"];
    const MEANINGS: &'static [KeepAliveLaw] =
        &[KeepAliveLaw::Linear, KeepAliveLaw::Exponential, KeepAliveLaw::Constant];
}

/// Whether clients are asked for certificates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AskClients {
    /// Clients are not asked.
    #[default]
    Off,
    /// Clients are asked, and may come without a certificate.
    Optional,
    /// Clients are asked, and must show one.
    Required,
}

impl Keyword for AskClients {
    const EXPECTED: &'static str = "\"off\", \"optional\" or \"required\"";
    const WORDS: &'static [&'static str] = &["off", "optional", "required"];
    const MEANINGS: &'static [AskClients] =
        &[AskClients::Off, AskClients::Optional, AskClients::Required];
}

/// What decides whether a request is recorded, if a trusted proxy places it in a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TraceParent {
    /// The proxy has decided.
    #[default]
    Follow,
    /// The rate decides, as for all others.
    Rate,
}

impl Keyword for TraceParent {
    const EXPECTED: &'static str = "\"follow\" or \"rate\"";
    const WORDS: &'static [&'static str] = &["follow", "rate"];
    const MEANINGS: &'static [TraceParent] = &[TraceParent::Follow, TraceParent::Rate];
}

/// How much the page of the admin listener shows of clients' addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PageAddresses {
    /// All of them.
    #[default]
    Whole,
    /// Their networks alone: a /24, or a /48 of IPv6.
    Networks,
}

impl Keyword for PageAddresses {
    const EXPECTED: &'static str = "\"whole\" or \"networks\"";
    const WORDS: &'static [&'static str] = &["whole", "networks"];
    const MEANINGS: &'static [PageAddresses] = &[PageAddresses::Whole, PageAddresses::Networks];
}

/// How much of the policy the kernel enforces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GateMode {
    /// The kernel enforces nothing.
    #[default]
    Off,
    /// Rules about addresses judge SYNs, if this machine can do that; otherwise the server does everything.
    Auto,
    /// Rules about addresses judge SYNs; where that is impossible, the server does not start.
    Address,
    /// The kernel also queues connections by the class of their first request; where that is impossible,
    /// the server does not start.
    Full,
}

impl Keyword for GateMode {
    const EXPECTED: &'static str = "\"off\", \"auto\", \"address\" or \"full\"";
    const WORDS: &'static [&'static str] = &["off", "auto", "address", "full"];
    const MEANINGS: &'static [GateMode] =
        &[GateMode::Off, GateMode::Auto, GateMode::Address, GateMode::Full];
}

/// The moment at which the kernel charges a connection to the limit of its rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GateCharge {
    /// The end of its handshake.
    #[default]
    Handshake,
    /// The arrival of its SYN.
    Syn,
}

impl Keyword for GateCharge {
    const EXPECTED: &'static str = "\"handshake\" or \"syn\"";
    const WORDS: &'static [&'static str] = &["handshake", "syn"];
    const MEANINGS: &'static [GateCharge] = &[GateCharge::Handshake, GateCharge::Syn];
}

/// The rules that the kernel enforces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GateRules {
    /// Rules that ask for addresses only.
    #[default]
    Addresses,
    /// Rules about addresses, and those that need only the first segment of a connection's first request.
    FirstRequest,
}

impl Keyword for GateRules {
    const EXPECTED: &'static str = "\"addresses\" or \"first_request\"";
    const WORDS: &'static [&'static str] = &["addresses", "first_request"];
    const MEANINGS: &'static [GateRules] = &[GateRules::Addresses, GateRules::FirstRequest];
}

/// Whether the machine's firewall drops clients that the server ignores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FirewallMode {
    /// The firewall is left alone.
    #[default]
    Off,
    /// The firewall drops what it can on this machine; the server does the rest.
    Auto,
    /// The firewall drops them; where it cannot, the server does not start.
    Nftables,
}

impl Keyword for FirewallMode {
    const EXPECTED: &'static str = "\"off\", \"auto\" or \"nftables\"";
    const WORDS: &'static [&'static str] = &["off", "auto", "nftables"];
    const MEANINGS: &'static [FirewallMode] =
        &[FirewallMode::Off, FirewallMode::Auto, FirewallMode::Nftables];
}

/// The format of lines in the access log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// The common log format: without referer and user agent.
    Common,
    /// The combined log format.
    #[default]
    Combined,
    /// One JSON object per line.
    Json,
}

impl Keyword for LogFormat {
    const EXPECTED: &'static str = "\"common\", \"combined\" or \"json\"";
    const WORDS: &'static [&'static str] = &["common", "combined", "json"];
    const MEANINGS: &'static [LogFormat] =
        &[LogFormat::Common, LogFormat::Combined, LogFormat::Json];
}

/// The scheme by which a client asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SchemeChoice {
    /// Without TLS.
    Http,
    /// Through TLS.
    #[default]
    Https,
}

impl Keyword for SchemeChoice {
    const EXPECTED: &'static str = "\"http\" or \"https\"";
    const WORDS: &'static [&'static str] = &["http", "https"];
    const MEANINGS: &'static [SchemeChoice] = &[SchemeChoice::Http, SchemeChoice::Https];
}

/// Whether a part of the server is on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Switch {
    /// The part is on.
    On,
    /// The part is off.
    #[default]
    Off,
}

impl Keyword for Switch {
    const EXPECTED: &'static str = "\"on\" or \"off\"";
    const WORDS: &'static [&'static str] = &["on", "off"];
    const MEANINGS: &'static [Switch] = &[Switch::On, Switch::Off];
}

/// When a rule holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenChoice {
    /// At all times.
    #[default]
    Always,
    /// While there is overload.
    Overload,
    /// From level 1 on.
    HeaderControl,
    /// From level 2 on.
    ClassOrder,
    /// At level 3.
    SynPolicing,
}

impl Keyword for WhenChoice {
    const EXPECTED: &'static str =
        "\"always\", \"overload\", \"header_control\", \"class_order\" or \"syn_policing\"";
    const WORDS: &'static [&'static str] =
        &["always", "overload", "header_control", "class_order", "syn_policing"];
    const MEANINGS: &'static [WhenChoice] = &[
        WhenChoice::Always,
        WhenChoice::Overload,
        WhenChoice::HeaderControl,
        WhenChoice::ClassOrder,
        WhenChoice::SynPolicing,
    ];
}

/// Which clients share a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PerChoice {
    /// All clients of the rule share one limit.
    #[default]
    Rule,
    /// Each client has a limit of its own.
    Client,
}

impl Keyword for PerChoice {
    const EXPECTED: &'static str = "\"rule\" or \"client\"";
    const WORDS: &'static [&'static str] = &["rule", "client"];
    const MEANINGS: &'static [PerChoice] = &[PerChoice::Rule, PerChoice::Client];
}

/// How something over a limit is refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Refuse {
    /// An answer says that it is refused.
    #[default]
    Reject,
    /// A reset ends the connection.
    Reset,
    /// The connection ends silently, where that is possible.
    Drop,
}

impl Keyword for Refuse {
    const EXPECTED: &'static str = "\"reject\", \"reset\" or \"drop\"";
    const WORDS: &'static [&'static str] = &["reject", "reset", "drop"];
    const MEANINGS: &'static [Refuse] = &[Refuse::Reject, Refuse::Reset, Refuse::Drop];
}

/// The treatment of requests over a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OverChoice {
    /// The requests are answered with an error.
    #[default]
    Reject,
    /// Their connections are reset.
    Reset,
    /// Their connections end silently, where that is possible.
    Drop,
    /// The requests wait.
    Queue,
}

impl Keyword for OverChoice {
    const EXPECTED: &'static str = "\"reject\", \"reset\", \"drop\" or \"queue\"";
    const WORDS: &'static [&'static str] = &["reject", "reset", "drop", "queue"];
    const MEANINGS: &'static [OverChoice] =
        &[OverChoice::Reject, OverChoice::Reset, OverChoice::Drop, OverChoice::Queue];
}

/// The action of a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ActionChoice {
    /// Nothing is refused; later rules do not act either.
    #[default]
    Allow,
    /// Answers with an error.
    Reject,
    /// Resets the connection.
    Reset,
    /// Ends the connection silently, where that is possible.
    Drop,
}

impl Keyword for ActionChoice {
    const EXPECTED: &'static str = "\"allow\", \"reject\", \"reset\" or \"drop\"";
    const WORDS: &'static [&'static str] = &["allow", "reject", "reset", "drop"];
    const MEANINGS: &'static [ActionChoice] =
        &[ActionChoice::Allow, ActionChoice::Reject, ActionChoice::Reset, ActionChoice::Drop];
}

impl<W: Keyword> Value for W {
    fn form(&self) -> Form {
        Form::Text
    }
    fn expected(&self) -> &'static str {
        W::EXPECTED
    }
    fn choices(&self) -> &'static [&'static str] {
        W::WORDS
    }
    fn set(&mut self, text: &str) -> Result<(), Wrong> {
        let at = W::WORDS.iter().position(|word| *word == text);
        let wrong = || Wrong::Choice { found: text.to_owned(), choices: W::WORDS };
        *self = W::MEANINGS[at.ok_or_else(wrong)?];
        Ok(())
    }
    fn show(&self) -> String {
        quote(self.word())
    }
}

/// The target of the access log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AccessLog {
    /// No log is written.
    #[default]
    Off,
    /// Standard output.
    Stdout,
    /// A file that lines are appended to.
    File(PathBuf),
}

impl Value for AccessLog {
    fn form(&self) -> Form {
        Form::Text
    }
    fn expected(&self) -> &'static str {
        "\"off\", \"-\" for standard output, or the path of a file"
    }
    fn set(&mut self, text: &str) -> Result<(), Wrong> {
        *self = match text {
            "off" => AccessLog::Off,
            "-" => AccessLog::Stdout,
            // a misspelt "off", or a word for it, would become a file unnoticed
            "" | "Off" | "OFF" | "none" | "false" | "no" => return Err(wrong(self, text)),
            path if path.contains('\0') => return Err(wrong(self, text)),
            path => AccessLog::File(PathBuf::from(path)),
        };
        Ok(())
    }
    fn show(&self) -> String {
        match self {
            AccessLog::Off => quote("off"),
            AccessLog::Stdout => quote("-"),
            AccessLog::File(path) => quote(&path.to_string_lossy()),
        }
    }
    fn guess(&self, text: &str) -> Option<String> {
        (!text.is_empty() && !text.contains('\0')).then(|| "off".to_owned())
    }
}

/// Whether the kernel confines the server (Landlock, seccomp).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Confine {
    /// The kernel confines the server, if it can.
    #[default]
    Auto,
    /// The kernel confines the server; where it cannot, the server does not start.
    On,
    /// The kernel does not confine the server.
    Off,
}

impl Keyword for Confine {
    const EXPECTED: &'static str = "\"auto\", \"on\" or \"off\"";
    const WORDS: &'static [&'static str] = &["auto", "on", "off"];
    const MEANINGS: &'static [Confine] = &[Confine::Auto, Confine::On, Confine::Off];
}

/// The socket at which commands such as `forebay reload` find the server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ControlSocketChoice {
    /// The usual place for the user and the configuration file.
    #[default]
    Auto,
    /// No socket.
    Off,
    /// This path.
    At(PathBuf),
}

impl Value for ControlSocketChoice {
    fn form(&self) -> Form {
        Form::Text
    }
    fn expected(&self) -> &'static str {
        "\"auto\", \"off\", or the path of a socket with a slash in it, such as \"./control.sock\""
    }
    fn set(&mut self, text: &str) -> Result<(), Wrong> {
        *self = match text {
            "auto" => ControlSocketChoice::Auto,
            "off" => ControlSocketChoice::Off,
            // a bare word is a slip
            name if name.starts_with('@') || name.starts_with("unix:@") => {
                return Err(Wrong::Unfit { found: quote(text), reason: HAS_NO_MODE.to_owned() });
            }
            path if path.len() > MOST_BYTES => {
                let error = UnixAddressError::TooLong { bytes: path.len() };
                return Err(Wrong::Unfit { found: quote(text), reason: error.to_string() });
            }
            path if !path.contains('/') || path.contains('\0') => {
                return Err(wrong(self, text));
            }
            path => ControlSocketChoice::At(PathBuf::from(path)),
        };
        Ok(())
    }
    fn show(&self) -> String {
        match self {
            ControlSocketChoice::Auto => quote("auto"),
            ControlSocketChoice::Off => quote("off"),
            ControlSocketChoice::At(path) => quote(&path.to_string_lossy()),
        }
    }
    fn guess(&self, text: &str) -> Option<String> {
        match text {
            "none" | "false" | "no" | "OFF" | "Off" => Some("off".to_owned()),
            "true" | "on" | "yes" => Some("auto".to_owned()),
            _ => None,
        }
    }
}

/// The value of a response field, if it is sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OptionalFieldValue(pub Option<String>);

impl Value for OptionalFieldValue {
    fn form(&self) -> Form {
        Form::Text
    }
    fn expected(&self) -> &'static str {
        "\"off\", or a field value such as \"public, max-age=3600\""
    }
    fn set(&mut self, text: &str) -> Result<(), Wrong> {
        // RFC 9110 §5.5, without the obsolete bytes above ASCII
        let is_value = !text.is_empty()
            && text.trim() == text
            && text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
        match text {
            "off" => self.0 = None,
            _ if is_value => self.0 = Some(text.to_owned()),
            _ => return Err(wrong(self, text)),
        }
        Ok(())
    }
    fn show(&self) -> String {
        quote(self.0.as_deref().unwrap_or("off"))
    }
}
