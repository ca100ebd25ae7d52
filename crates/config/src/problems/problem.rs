//! One thing that is wrong with a configuration, and the line that says so.

mod words;

use crate::problems::path::Path;
use std::fmt;
use std::io;
use std::path::PathBuf;

/// Something wrong, and where. Prints as `file:line:column: key: what is wrong`.
#[derive(Debug)]
pub struct Problem {
    /// The file as it was named.
    pub file: String,
    /// Line and column, both from 1, the column in characters. `None` if the trouble is not at one
    /// place of the file.
    pub place: Option<(usize, usize)>,
    /// The path of the setting, such as `timeouts.head`; empty if it is about the file as a whole.
    pub key: String,
    /// What is wrong.
    pub wrong: Wrong,
}

/// What is found, each with where it stands.
pub type Remarks = Vec<(Path, Wrong)>;

/// What one check finds, in its own words.
pub trait Finding: fmt::Debug + fmt::Display + Send + Sync {}

/// What is wrong.
#[derive(Debug)]
pub enum Wrong {
    /// The file cannot be read.
    Unreadable(io::Error),
    /// The file is larger than a configuration can sensibly be.
    TooLong {
        /// Bytes allowed.
        limit: u64,
    },
    /// The file is not UTF-8.
    NotUtf8,
    /// The file is not TOML; says what the parser expected.
    Syntax(String),
    /// There is no such setting or section.
    Unknown {
        /// A setting or section whose name is alike.
        near: Option<String>,
    },
    /// There is such a section, but not in this program.
    NotBuilt {
        /// The Cargo feature it was built without.
        feature: &'static str,
    },
    /// There is such a setting, but elsewhere.
    Misplaced {
        /// Where.
        home: String,
    },
    /// The wrong kind of value.
    Form {
        /// What belongs there.
        expected: &'static str,
        /// What is there.
        found: String,
        /// What was probably meant, as it would be written in the file.
        near: Option<String>,
    },
    /// A value where a section belongs.
    NoSection {
        /// What is there.
        found: String,
        /// The section that is probably meant, as it would be written in the file.
        example: String,
    },
    /// Too small or too large.
    Range {
        /// What is there.
        found: String,
        /// The smallest value allowed.
        least: &'static str,
        /// The largest value allowed.
        most: &'static str,
    },
    /// None of the words allowed.
    Choice {
        /// What is there.
        found: String,
        /// The words allowed.
        choices: &'static [&'static str],
    },
    /// None of the words allowed, which were told before.
    OtherChoice {
        /// What is there.
        found: String,
        /// The words allowed.
        choices: &'static [&'static str],
    },
    /// A key of another server.
    Foreign {
        /// What to write here.
        answer: String,
        /// The setting of the same section that it stands for.
        meant: Option<&'static str>,
    },
    /// A redirect that leads back to itself, by way of others perhaps.
    Endless {
        /// A path from which it does.
        from: String,
    },
    /// An item is in the list twice.
    Repeated {
        /// The item.
        found: String,
    },
    /// A list without items.
    Empty,
    /// A list of clients names none that can come to the address.
    Nobody {
        /// The address.
        listen: String,
    },
    /// An address for all clients, where only those of this machine are answered.
    ThisMachineOnly {
        /// The address.
        listen: String,
    },
    /// A setting without a default is not set.
    Missing {
        /// A line that would set it.
        example: String,
    },
    /// The text is not what it should be, and its reader says why.
    Unfit {
        /// What is there; empty where the key or the reason says it.
        found: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Two settings exclude one another.
    Both {
        /// The other one.
        other: &'static str,
    },
    /// Two settings exclude one another, for a reason.
    Beside {
        /// The other one.
        other: &'static str,
        /// Why.
        reason: &'static str,
    },
    /// A setting that means nothing as things are.
    Idle {
        /// What it would need beside it.
        needs: &'static str,
    },
    /// A setting that means nothing beside another one.
    Useless {
        /// The other one.
        beside: &'static str,
    },
    /// Nobody can sign in on a connection, because none is kept.
    NoSignIn {
        /// What keeps none.
        beside: &'static str,
    },
    /// A variable that belongs to each request, set for all.
    OfEachRequest {
        /// Which one.
        name: String,
    },
    /// Clients are refused the paths of a route because its application may have these sent.
    HidesRoute,
    /// A bound that lies behind another one.
    Exceeds {
        /// The other one.
        other: &'static str,
        /// What comes of it.
        effect: &'static str,
    },
    /// A rule for the same paths as one before it.
    Shadowed {
        /// Where that stands: line and column.
        place: Option<(usize, usize)>,
    },
    /// A rule for clients behind one that decides about all its paths.
    Covered {
        /// Where that stands: line and column.
        place: Option<(usize, usize)>,
    },
    /// There is no such class.
    NoClass {
        /// What is there.
        found: String,
        /// The classes there are.
        known: Vec<String>,
    },
    /// There is no such site.
    NoSite {
        /// What is there.
        found: String,
        /// The one that is probably meant.
        near: Option<String>,
    },
    /// Only JSON lines can do that, and these are others.
    JsonOnly,
    /// The shares of the classes are more than all there is.
    Shares {
        /// Their sum so far.
        sum: String,
    },
    /// Classes and rules that are no policy, for a reason that the policy gives.
    Policy(forebay_policy::PolicyFault),
    /// Too many sections of a list.
    TooMany {
        /// How many.
        found: usize,
        /// How many are allowed.
        limit: usize,
    },
    /// Something belongs to one only, and another has it.
    Taken {
        /// What it is.
        found: String,
        /// Which user has it.
        by: String,
        /// Where that stands: line and column.
        place: Option<(usize, usize)>,
    },
    /// A second site without hosts.
    SecondDefault {
        /// The name of the first.
        first: String,
        /// Where that stands: line and column.
        place: Option<(usize, usize)>,
    },
    /// Two addresses have an address in common.
    Overlap {
        /// This one.
        found: String,
        /// The other.
        other: String,
        /// Where that stands: line and column.
        place: Option<(usize, usize)>,
    },
    /// What only a `[[site]]` may have stands at the top level beside such sites.
    BelongsToSite,
    /// The engine isolated cannot do this.
    NotIsolated {
        /// Why.
        what: &'static str,
    },
    /// The engine isolated does nothing with this.
    IdleIsolated {
        /// Why.
        what: &'static str,
    },
    /// A listener for proxies, and no proxy is trusted.
    NoProxy,
    /// Clients could read a file that is not for them.
    Served {
        /// Its path.
        path: PathBuf,
        /// The directory of a site that it is in.
        directory: PathBuf,
        /// Where that stands: line and column.
        place: Option<(usize, usize)>,
    },
    /// Two formats in one file.
    TwoFormats {
        /// Its path.
        path: PathBuf,
        /// Where the other one stands: line and column.
        place: Option<(usize, usize)>,
    },
    /// There are not as many keys as certificates.
    Unpaired {
        /// Certificates.
        certificates: usize,
        /// Keys.
        keys: usize,
    },
    /// TLS is to be spoken, and no site has a certificate.
    NoCertificate,
    /// A certificate is to be got for no host.
    AcmeWithoutHosts,
    /// An authority gives no certificate for such a host, or not in the ways that there are.
    AcmeHost {
        /// As it was written.
        host: String,
        /// It stands for all hosts below a domain.
        is_wildcard: bool,
    },
    /// The terms of the authority are not agreed to.
    AcmeTerms {
        /// Its directory.
        url: String,
    },
    /// There is no listener for any way in which the authority may look.
    AcmeNoWay,
    /// A rule keeps the authority from looking.
    AcmeRefused {
        /// The host that it wants a certificate for.
        host: String,
        /// It does so before there is a request.
        is_early: bool,
    },
    /// Clients are to show certificates, and no authority is said to have signed them.
    NoClientAuthority,
    /// Clients are to show certificates to a site that has none itself.
    ClientsWithoutCertificate,
    /// It says more about `tls.client`, which is off.
    WithoutClients,
    /// Clients must show certificates, and can come where none can be shown.
    ClientsInClear,
    /// The admin listener is to speak TLS, and has no certificate.
    NoAdminCertificate,
    /// Tokens would go over the network in clear.
    TokenInClear {
        /// The address.
        listen: String,
    },
    /// What one check alone finds, which has the sentence for it.
    Said(Box<dyn Finding>),
    /// There is a certificate, and no address where TLS is spoken.
    NoTlsAddress {
        /// Where that would be.
        list: &'static str,
    },
    /// It is about https, which neither is spoken nor can be a proxy's.
    NoHttps,
    /// A header rule decides about what `tls.hsts` would say.
    HstsByRule,
    /// It says more about `tls.hsts`, which is not set.
    WithoutHsts,
    /// Browsers would not take the host into their lists.
    NotPreloaded,
    /// A certificate or its key is wrong.
    Certificate(String),
    /// A route that each site has for itself.
    NeverInherited,
    /// An application that is this server itself.
    Itself {
        /// Where.
        found: String,
    },
    /// Each connection to an application that becomes a tunnel keeps a thread.
    KeepsThread {
        /// Of this engine.
        engine: &'static str,
    },
    /// Each request that waits keeps a thread.
    WaitKeepsThread {
        /// Of this engine.
        engine: &'static str,
        /// So many may wait.
        requests: u64,
        /// What says how many.
        key: &'static str,
    },
    /// The same, of requests that wait for an application; as many as may.
    QueueKeepsThreads {
        /// Of this engine.
        engine: &'static str,
        /// So many may wait.
        requests: u64,
    },
    /// The same upstream, of which another route says something else.
    CountsAlone {
        /// Where it is.
        upstream: String,
    },
    /// A file the configuration names cannot be read.
    NoFile {
        /// Its path.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A value of `Cache-Control` that browsers do not understand.
    CacheControl {
        /// What is there.
        found: String,
        /// What is probably meant.
        meant: Option<String>,
    },
    /// An error page for refused clients that is itself protected.
    Unseen {
        /// Its path.
        path: String,
    },
    /// An error page that an application runs.
    PageIsScript {
        /// Its path.
        path: String,
    },
    /// A directory the configuration names cannot be used.
    NoDirectory {
        /// Its path.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A rule for a host that no site has.
    Unserved {
        /// The host.
        found: String,
        /// The one of a site that is probably meant.
        near: Option<String>,
    },
    /// A pattern for paths with a percent-encoding.
    Encoded {
        /// The pattern.
        found: String,
        /// What is probably meant.
        decoded: Option<String>,
    },
    /// What another server would replace in the value of a field.
    NoVariable {
        /// How it is written.
        found: String,
    },
    /// An admin listener that strangers may read.
    AdminForAll {
        /// Its address.
        listen: String,
    },
    /// An engine whose threads slow clients hold, where any client may be slow.
    HeldBySlowClients,
    /// A thread of send stays with a client for so long.
    HeldBySlowReaders,
    /// Nothing is for the firewall.
    NothingForFirewall,
    /// No listener gets SYNs of clients.
    NowhereForFirewall,
    /// A client is ignored for less time than the firewall knows.
    TooShortForFirewall,
    /// No rule is for the kernel.
    NothingForGate {
        /// It could queue by class.
        is_full: bool,
    },
    /// A limit on connections that only the server can enforce.
    NotInGate,
    /// A rule that never decides anything.
    Outdone {
        /// The name of the rule before it that does.
        by: String,
        /// Where that stands: line and column.
        place: Option<(usize, usize)>,
    },
}

impl Wrong {
    /// What one check finds, in its own words.
    pub fn said(finding: impl Finding + 'static) -> Wrong {
        Wrong::Said(Box::new(finding))
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file)?;
        if let Some((line, column)) = self.place {
            write!(f, ":{line}:{column}")?;
        }
        if !self.key.is_empty() {
            write!(f, ": {}", self.key)?;
        }
        write!(f, ": {}", self.wrong)
    }
}
