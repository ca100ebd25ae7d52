//! One thing that is wrong with a configuration, and the line that says so.

mod cause;
mod words;

pub use cause::{Needed, Secret};

use crate::certificates::TokensError;
use crate::identity::KeysError;
use forebay_policy::spared::SparedAs;
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
    /// A socket cannot be made there.
    NoSocketDirectory {
        /// The directory.
        path: PathBuf,
        /// Why.
        error: io::Error,
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
    /// Clients could read the configuration itself.
    ServesItself {
        /// Its path.
        path: PathBuf,
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
    /// A list of revoked certificates has expired.
    ListExpired {
        /// Whole days ago.
        days: i64,
    },
    /// The admin listener is to speak TLS, and has no certificate.
    NoAdminCertificate,
    /// Tokens would go over the network in clear.
    TokenInClear {
        /// The address.
        listen: String,
    },
    /// The tokens of the admin listener cannot be used.
    Tokens {
        /// Their file.
        path: PathBuf,
        /// Why.
        error: TokensError,
    },
    /// The keys of identities cannot be used.
    Keys {
        /// Their file.
        path: PathBuf,
        /// Why.
        error: KeysError,
    },
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
    /// A site that can be asked for through TLS has no certificate.
    NoCertificateFor {
        /// One of its hosts.
        host: String,
        /// It can be asked for in no other way.
        only_tls: bool,
    },
    /// A certificate or its key is wrong.
    Certificate(String),
    /// A certificate has expired, or will soon.
    Expires {
        /// Whole days that are left, rounded down: negative since it has.
        days: i64,
    },
    /// A site answers for a host that its certificate is not for.
    NotCovered {
        /// The host.
        host: String,
    },
    /// Every user of this machine may read a secret.
    SecretForAll {
        /// What it is.
        secret: Secret,
        /// Its file.
        path: PathBuf,
    },
    /// The user that the server becomes may not read a secret.
    SecretAtStartOnly {
        /// What it is.
        secret: Secret,
        /// Its file.
        path: PathBuf,
        /// The user.
        user: String,
    },
    /// There is no socket of an application, or the server may not use it.
    NoApplication {
        /// Its path.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The name of an application has no address.
    NoName {
        /// The name.
        host: String,
        /// What the name service says.
        reason: String,
    },
    /// Another process listens where this server is to.
    PortTaken {
        /// Where.
        address: std::net::SocketAddr,
        /// Its name and number, if that may be known.
        by: Option<(String, u32)>,
    },
    /// This machine does not have an address where the server is to listen.
    NotHere {
        /// Which one.
        address: std::net::IpAddr,
    },
    /// A route that each site has for itself.
    NeverInherited,
    /// The user that the server becomes may not use the socket of an application.
    NotForUser {
        /// Its path.
        path: PathBuf,
        /// The user.
        user: String,
    },
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
    /// The user that the server becomes may not use a file or a directory.
    OutOfReach {
        /// The user.
        user: String,
        /// The file or directory, and what comes of it.
        needed: Needed,
        /// Its path.
        path: PathBuf,
        /// The directory on the way that is closed; `None` if it is the file itself.
        closed: Option<PathBuf>,
    },
    /// A file the configuration names cannot be read.
    NoFile {
        /// Its path.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A rule whose path leads to nothing.
    Nowhere {
        /// The path.
        path: String,
        /// The file or directory that it would be.
        file: PathBuf,
    },
    /// A rule for one of two paths at which an index file answers.
    OtherPath {
        /// The path.
        path: String,
        /// The other one.
        other: String,
    },
    /// A symbolic link leads past a rule.
    Linked {
        /// The path of the rule.
        path: String,
        /// A path that shows the same, and that it is not for.
        open: String,
    },
    /// A value of `Cache-Control` that browsers do not understand.
    CacheControl {
        /// What is there.
        found: String,
        /// What is probably meant.
        meant: Option<String>,
    },
    /// A header rule for a directory, but not for what is below it.
    DirectoryAlone {
        /// Its path.
        path: String,
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
    /// A directory in the place of a log.
    LogIsDirectory {
        /// Its path.
        path: PathBuf,
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
    /// An account that this machine does not have.
    NoAccount {
        /// A user or a group.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// A user that is a number without a name, and no group.
    NoGroup,
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
    /// Stages with the rights of root.
    RootStages,
    /// An engine whose threads slow clients hold, where any client may be slow.
    HeldBySlowClients,
    /// A thread of send stays with a client for so long.
    HeldBySlowReaders,
    /// Constants that were found on a machine with another processor.
    CalibratedElsewhere {
        /// Which.
        machine: String,
    },
    /// This machine cannot have rules in its kernel.
    NoGate {
        /// Why.
        why: String,
        /// Whether the server does without.
        is_optional: bool,
    },
    /// This machine's firewall cannot be changed.
    NoFirewall {
        /// Why.
        why: String,
        /// Whether the server does without.
        is_optional: bool,
    },
    /// Nothing is for the firewall.
    NothingForFirewall,
    /// No listener gets SYNs of clients.
    NowhereForFirewall,
    /// A client is ignored for less time than the firewall knows.
    TooShortForFirewall,
    /// A rule bans somebody who is never banned.
    Spared {
        /// Whom.
        client: String,
        /// Why that is never banned.
        why: SparedAs,
    },
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
    /// Something in a file of users.
    Users {
        /// Its path.
        path: PathBuf,
        /// In which line, and what.
        reason: String,
    },
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_counted_as_people_do() {
        for (days, expected) in [
            (13, "expires in 13 days"),
            (1, "expires in 1 day"),
            (0, "expires in less than a day"),
            (-1, "has expired, less than a day ago"),
            (-2, "has expired, 1 day ago"),
            (-31, "has expired, 30 days ago"),
        ] {
            assert_eq!(Wrong::Expires { days }.to_string(), format!("the certificate {expected}"));
        }
    }
}
