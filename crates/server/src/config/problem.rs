//! One thing that is wrong with a configuration, and the line that says so.

use crate::certificates::TokensError;
use crate::identity::KeysError;
use forebay_policy::near::nearest;
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
    /// A list of clients names nobody who can come to the address.
    Nobody {
        /// The address.
        listen: String,
    },
    /// An address for everybody, where only clients of this machine are answered.
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
    Policy(forebay_policy::Fault),
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
        /// Who has it.
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
    /// Nobody has agreed to the terms of the authority.
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
    /// Clients are to show certificates, and nobody is said to have signed them.
    NoClientAuthority,
    /// Clients are to show certificates to a site that has none itself.
    ClientsWithoutCertificate,
    /// It says more about `tls.client`, which is off.
    WithoutClients,
    /// Clients must show certificates, and can come where nobody can.
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
    /// A redirect to https, where trusted proxies come without it.
    ProxiedRedirect,
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
    /// Everybody on this machine may read a secret.
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
    /// There is no socket of an application, or nobody may use it.
    NoApplication {
        /// Its path.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
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
    /// Each request that waits for an application keeps a thread.
    WaitKeepsThread {
        /// Of this engine.
        engine: &'static str,
        /// So many may wait.
        requests: u32,
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
    /// An account that this machine does not have.
    NoAccount {
        /// A user or a group.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// A user who is a number without a name, and no group.
    NoGroup,
    /// An engine whose threads slow clients hold, where anybody may be slow.
    HeldBySlowClients,
    /// A thread of send stays with a client for so long.
    HeldBySlowReaders,
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
    /// No rule is for the kernel.
    NothingForGate,
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

/// What the server needs once it is another user than root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needed {
    /// A root, or the directory of an alias.
    Directory,
    /// A file of users.
    Users,
    /// An error page.
    Page,
    /// The directory of a log.
    Logs,
    /// A log that is there already.
    Log,
    /// The directory of certificates by ACME.
    Storage,
}

impl Needed {
    /// What the user may not do, before the path.
    fn act(self) -> &'static str {
        match self {
            Needed::Directory => "enter the directory",
            Needed::Users => "read the file of users",
            Needed::Page => "read the error page",
            Needed::Logs => "write to the directory",
            Needed::Log => "write to the log",
            Needed::Storage => "write to the directory",
        }
    }

    /// What comes of it.
    fn effect(self) -> &'static str {
        match self {
            Needed::Directory => "the server does not start",
            Needed::Users => "what it protects is answered with 500 for everybody",
            Needed::Page => "clients get a short page of Forebay's own",
            Needed::Logs => "a log that is moved away cannot be made again",
            Needed::Log => "the server does not start",
            Needed::Storage => "no certificate is got or replaced",
        }
    }

    /// What would help.
    fn remedy(self) -> &'static str {
        match self {
            Needed::Directory => "give it to a group of that user: \"chgrp\", \"chmod g+rx\"",
            Needed::Users | Needed::Page => {
                "give it to a group of that user: \"chgrp\", \"chmod g+r\""
            }
            Needed::Logs | Needed::Log | Needed::Storage => "give it to that user: \"chown\"",
        }
    }
}

/// A file that only the server should be able to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Secret {
    /// The key of a certificate.
    Key,
    /// The tokens of the admin listener.
    Tokens,
    /// The keys of identities.
    Keys,
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Secret::Key => "private key",
            Secret::Tokens => "file of tokens",
            Secret::Keys => "file of keys",
        })
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

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wrong::Unreadable(error) => write!(f, "cannot be read: {error}"),
            Wrong::TooLong { limit } => write!(f, "is longer than {limit} bytes"),
            Wrong::NotUtf8 => write!(f, "is not UTF-8 from here on"),
            Wrong::Syntax(message) => write!(f, "{message}"),
            Wrong::Unknown { near } => {
                write!(f, "unknown key")?;
                did_you_mean(f, near.as_deref())
            }
            Wrong::Foreign { answer, .. } => write!(f, "unknown key: {answer}"),
            Wrong::Endless { from } => write!(
                f,
                "whoever asks for {from:?} is redirected for ever; let the pattern of the path leave \
                 out where it leads to"
            ),
            Wrong::NoSocketDirectory { path, error } => {
                write!(f, "a socket cannot be made in the directory {path:?}: {error}")
            }
            Wrong::Misplaced { home } => write!(f, "unknown key here, it belongs in {home}"),
            Wrong::Form { expected, found, near } => {
                write!(f, "expected {expected}, found {found}")?;
                near.iter().try_for_each(|near| write!(f, ", did you mean {near}?"))
            }
            Wrong::NoSection { found, example } => write!(
                f,
                "expected a section with settings of its own such as {example}, found {found}"
            ),
            Wrong::Range { found, least, most } => {
                write!(f, "{found} is out of range, from {least} to {most} is allowed")
            }
            Wrong::Choice { found, choices } => {
                let quoted: Vec<_> = choices.iter().map(|word| format!("{word:?}")).collect();
                write!(f, "expected {}, found {found:?}", quoted.join(" or "))?;
                did_you_mean(f, nearest(found, choices.iter().copied()))
            }
            Wrong::OtherChoice { found, choices } => {
                write!(f, "{found:?} is none of them either")?;
                did_you_mean(f, nearest(found, choices.iter().copied()))
            }
            Wrong::Repeated { found } => write!(f, "{found:?} is there twice"),
            Wrong::Empty => write!(f, "the list is empty, at least one item is needed"),
            Wrong::Nobody { listen } => write!(
                f,
                "names nobody who can come to {listen:?}; add the address of the machine that reads \
                 it, such as \"10.0.0.7\""
            ),
            Wrong::ThisMachineOnly { listen } => write!(
                f,
                "{listen:?} is all addresses, and only clients of this machine are answered there: name \
                 others in admin.allow, or listen at 127.0.0.1"
            ),
            Wrong::Missing { example } => write!(f, "missing, set it, for example {example}"),
            // the key names it
            Wrong::Unfit { found, reason } if found.is_empty() => f.write_str(reason),
            Wrong::Unfit { found, reason } => write!(f, "{found}: {reason}"),
            Wrong::Both { other } => {
                write!(f, "cannot stand beside {other}, one of them is enough")
            }
            Wrong::Beside { other, reason } => write!(f, "cannot stand beside {other}: {reason}"),
            Wrong::Idle { needs } => write!(f, "means nothing without {needs}"),
            Wrong::Exceeds { other, effect } => write!(f, "is more than {other}: {effect}"),
            Wrong::Shadowed { place } => {
                write!(f, "decides nothing: one before it is for the same paths")?;
                at(f, *place)
            }
            Wrong::Covered { place } => {
                write!(f, "decides nothing: one before it is for all its paths")?;
                at(f, *place)?;
                write!(f, "; the first match counts, put the special rule first")
            }
            Wrong::NoClass { found, known } => {
                write!(f, "there is no class {found:?}")?;
                let near = nearest(found, known.iter().map(String::as_str));
                let quoted: Vec<_> = known.iter().map(|name| format!("{name:?}")).collect();
                match near {
                    Some(_) => did_you_mean(f, near),
                    None if known.is_empty() => Ok(()),
                    None => write!(f, ", only {}", quoted.join(", ")),
                }
            }
            Wrong::NoSite { found, near } => {
                write!(f, "there is no site {found:?}")?;
                did_you_mean(f, near.as_deref())
            }
            Wrong::JsonOnly => write!(f, "only JSON lines have that: write log.format = \"json\""),
            Wrong::Shares { sum } => {
                write!(f, "the shares up to this one are {sum}, more than 100%")
            }
            Wrong::Policy(fault) => write!(f, "{fault}"),
            Wrong::TooMany { found, limit } => {
                write!(f, "there are {found}, at most {limit} are allowed")
            }
            Wrong::Taken { found, by, place } => {
                write!(f, "{found} is taken by {by}")?;
                at(f, *place)
            }
            Wrong::SecondDefault { first, place } => {
                write!(
                    f,
                    "a site without hosts is the default site, and the site {first:?} is that \
                     already"
                )?;
                at(f, *place)?;
                write!(f, "; give one of them hosts")
            }
            Wrong::Overlap { found, other, place } => {
                write!(f, "{found:?} overlaps with {other:?}")?;
                at(f, *place)
            }
            Wrong::BelongsToSite => {
                write!(f, "cannot be inherited, set it in the [[site]] that it is for")
            }
            Wrong::NotIsolated { what } => write!(f, "not with engine = \"isolated\": {what}"),
            Wrong::NoProxy => {
                write!(f, "nobody could connect: set trusted_proxies to the proxies that may")
            }
            Wrong::Served { path, directory, place } => {
                write!(f, "clients could read {path:?}, {directory:?} is served")?;
                at(f, *place)
            }
            Wrong::ServesItself { path } => {
                write!(f, "clients could read {path:?}, which is this configuration")
            }
            Wrong::TwoFormats { path, place } => {
                write!(f, "{path:?} is written in another format by another site")?;
                at(f, *place)
            }
            Wrong::Unpaired { certificates, keys } => write!(
                f,
                "each certificate needs its key: tls.certificate names {certificates}, tls.key {keys}"
            ),
            Wrong::NoCertificate => {
                f.write_str(
                    "TLS is to be spoken here, and no site has tls.certificate and tls.key, or tls.acme",
                )
            }
            Wrong::AcmeWithoutHosts => f.write_str(
                "an authority makes certificates for names, and this site has none: say them in hosts",
            ),
            Wrong::AcmeHost { host, is_wildcard: true } => write!(
                f,
                "no certificate for {host} is got by ACME: an authority would have to see a change at the \
                 name servers (dns-01), which is not offered here; name the hosts one by one, or let \
                 certbot or lego get it and name its files in tls.certificate"
            ),
            Wrong::AcmeHost { host, is_wildcard: false } => {
                write!(f, "no certificate for {host} is got by ACME: it is for names only")
            }
            Wrong::AcmeTerms { url } => write!(
                f,
                "must be true for tls.acme: you agree to the terms of the authority at {url}, to which \
                 that leads (termsOfService)"
            ),
            Wrong::AcmeNoWay => f.write_str(
                "there is no listener for it: http-01 needs one without TLS, which the authority finds at \
                 port 80, and tls-alpn-01 one with https://, at port 443",
            ),
            Wrong::AcmeRefused { host, is_early } => {
                let early = if *is_early { "say path = \"/*\" here, and " } else { "" };
                write!(
                    f,
                    "also refuses the authority that is to give a certificate for {host}: {early}let a rule \
                     before it have path = \"/.well-known/acme-challenge/*\", action = \"allow\" and stop = true"
                )
            }
            Wrong::NoClientAuthority => f.write_str(
                "tls.client_ca is missing: the certificates of the authorities that have signed those of \
                 the clients",
            ),
            Wrong::ClientsWithoutCertificate => f.write_str(
                "clients are asked by a site that shows a certificate itself: tls.certificate and tls.key \
                 are missing",
            ),
            Wrong::WithoutClients => {
                f.write_str("it has no effect without tls.client = \"optional\" or \"required\"")
            }
            Wrong::ClientsInClear => f.write_str(
                "requests that come without TLS are answered with 403; tls.redirect would send their \
                 clients to https",
            ),
            Wrong::ListExpired { days } => write!(
                f,
                "the list of revoked certificates has expired {}: clients of its authority are refused",
                match days {
                    0 => "less than a day ago".to_owned(),
                    days => format!("{} ago", count_of_days(*days)),
                }
            ),
            Wrong::NoAdminCertificate => f.write_str(
                "TLS is to be spoken here, and there is no admin.tls.certificate and admin.tls.key",
            ),
            Wrong::TokenInClear { listen } => write!(
                f,
                "the tokens of admin.token_file would go to {listen:?} in clear, for everybody on the way \
                 to read; write \"https://{listen}\", or listen at loopback or a Unix socket"
            ),
            Wrong::Tokens { path, error } => write!(f, "the tokens in {path:?}: {error}"),
            Wrong::Keys { path, error } => write!(f, "the keys in {path:?}: {error}"),
            Wrong::NoTlsAddress { list } => write!(
                f,
                "it has no effect, because no address of {list} begins with \"https://\""
            ),
            Wrong::ProxiedRedirect => f.write_str(
                "requests that trusted proxies pass on without TLS are redirected, too, for ever if the \
                 proxy spoke TLS to the client",
            ),
            Wrong::HstsByRule => f.write_str(
                "it has no effect, because a header rule of this site is about \
                 Strict-Transport-Security",
            ),
            Wrong::WithoutHsts => f.write_str("it has no effect without tls.hsts"),
            Wrong::NotPreloaded => f.write_str(
                "browsers take no host into their lists that says less than tls.hsts = \"365d\" and \
                 tls.hsts_subdomains = true",
            ),
            Wrong::NoCertificateFor { host, only_tls: true } => write!(
                f,
                "all addresses speak TLS, and no certificate is for {host:?}: its clients are refused, or \
                 refuse what they are shown"
            ),
            Wrong::NoCertificateFor { host, only_tls: false } => write!(
                f,
                "no certificate is for {host:?}: clients that ask for it with https are refused, or refuse \
                 what they are shown; it is served without TLS alone"
            ),
            Wrong::Certificate(error) => f.write_str(error),
            Wrong::Expires { days: -1 } => {
                f.write_str("the certificate has expired, less than a day ago")
            }
            Wrong::Expires { days: days @ ..0 } => {
                write!(f, "the certificate has expired, {} ago", count_of_days(-days - 1))
            }
            Wrong::Expires { days: 0 } => f.write_str("the certificate expires in less than a day"),
            Wrong::Expires { days } => {
                write!(f, "the certificate expires in {}", count_of_days(*days))
            }
            Wrong::NotCovered { host } => {
                write!(f, "the certificate is not for {host:?}: clients will refuse it")
            }
            Wrong::SecretForAll { secret, path } => write!(
                f,
                "everybody on this machine may read the {secret} {path:?}: \"chmod o-rwx\""
            ),
            Wrong::SecretAtStartOnly { secret, path, user } => write!(
                f,
                "the user {user:?} may not read the {secret} {path:?}: it is read at the start, by \
                 root, but a reload will fail; give it to a group of that user: \"chgrp\", \"chmod g+r\""
            ),
            Wrong::NoApplication { path, error } => write!(
                f,
                "the socket {path:?} cannot be used: {error}; until it can, requests get 502"
            ),
            Wrong::NotForUser { path, user } => write!(
                f,
                "the user {user:?} may not write to the socket {path:?}, so requests get 502: let the \
                 application make it for a group of that user"
            ),
            Wrong::Itself { found } => {
                write!(f, "this server listens at {found}, and would ask itself for ever")
            }
            Wrong::KeepsThread { engine } => write!(
                f,
                "with engine = \"{engine}\" each WebSocket keeps a thread for itself; the engine event keeps \
                 none, and upgrade = false refuses them"
            ),
            Wrong::WaitKeepsThread { engine, requests } => write!(
                f,
                "with engine = \"{engine}\" each request that waits for the application keeps a thread, of \
                 which {requests} and those under way may take all there are; the engine event keeps none, \
                 and a smaller queue.requests leaves some for others"
            ),
            Wrong::CountsAlone { upstream } => write!(
                f,
                "other routes to {upstream} say something else of it (to, balance, in_flight, queue, \
                 retry_budget, max_fails, fail_time, slow_start or check), so what is under way is counted \
                 for each of them alone; say the same of it everywhere"
            ),
            Wrong::OutOfReach { user, needed, path, closed } => {
                write!(f, "the user {user:?} may not {} {path:?}: {}; ", needed.act(), needed.effect())?;
                match closed {
                    None => f.write_str(needed.remedy()),
                    Some(directory) => {
                        write!(f, "let that user into {directory:?}, which is on the way: \"chmod\"")
                    }
                }
            }
            Wrong::NoFile { path, error } => write!(f, "cannot read the file {path:?}: {error}"),
            Wrong::Nowhere { path, file } => {
                write!(f, "nothing answers at {path:?}: {file:?} is not there")
            }
            Wrong::OtherPath { path, other } => write!(
                f,
                "what answers at {path:?} is had at {other:?}, too, and no rule is about that: rules see \
                 the path that is asked for; write path = [{path:?}, {other:?}]"
            ),
            Wrong::Linked { path, open } => write!(
                f,
                "{open:?} leads to the same by a symbolic link, and no rule is for that path: protect it, \
                 too, or remove the link; {path:?} is for paths, not for what links lead to"
            ),
            Wrong::CacheControl { found, meant } => {
                write!(f, "browsers do not understand {found:?}")?;
                match meant {
                    Some(meant) => write!(f, ", did you mean {meant:?}?"),
                    None => f.write_str("; an age is a number of seconds, such as \"max-age=3600\""),
                }
            }
            Wrong::DirectoryAlone { path } => {
                let path = path.trim_end_matches('/');
                write!(
                    f,
                    "{path:?} is a directory, and a header rule is not for what is below its path: \
                     write \"{path}/*\" for all of it, regex = '^{path}/$' for its index page alone"
                )
            }
            Wrong::Unseen { path } => write!(
                f,
                "clients that are refused do not see {path:?}, because a rule of auth or access \
                 protects it, too: they get a short page of Forebay's own"
            ),
            Wrong::NoDirectory { path, error } => {
                write!(f, "cannot use the directory {path:?}: {error}")
            }
            Wrong::Unserved { found, near } => {
                write!(f, "no site answers for {found:?}")?;
                did_you_mean(f, near.as_deref())
            }
            Wrong::Encoded { found, decoded } => {
                write!(
                    f,
                    "{found:?} fits only what a client has encoded twice: paths are decoded \
                     before rules see them"
                )?;
                decoded.iter().try_for_each(|text| write!(f, ", write {text:?}"))
            }
            Wrong::NoAccount { kind, name } => write!(
                f,
                "there is no {kind} {name:?} on this machine; without it the server does not start"
            ),
            Wrong::NoGroup => write!(
                f,
                "no user of this machine has this number; without group beside it the server does \
                 not start"
            ),
            Wrong::NoGate { why, is_optional: true } => {
                write!(f, "the server judges alone on this machine: {why}")
            }
            Wrong::NoGate { why, is_optional: false } => {
                write!(f, "the server would not start on this machine: {why}")
            }
            Wrong::NoFirewall { why, is_optional: true } => {
                write!(f, "on this machine the server alone would refuse clients: {why}")
            }
            Wrong::NoFirewall { why, is_optional: false } => {
                write!(f, "the server would not start on this machine: {why}")
            }
            Wrong::NothingForFirewall => f.write_str(
                "it has no effect: no limit says ignore, and no rule that asks for client only has \
                 action = \"drop\"",
            ),
            Wrong::NowhereForFirewall => f.write_str(
                "it has no effect: SYNs of clients come to no listener, only those of proxies, or none at \
                 all to Unix sockets",
            ),
            Wrong::TooShortForFirewall => f.write_str(
                "the firewall is told of no client for less than 2s: the server alone ignores these",
            ),
            Wrong::NothingForGate => f.write_str(
                "it has no effect: no rule that asks for client and local only refuses by \"reset\" or \
                 \"drop\"",
            ),
            Wrong::NotInGate => f.write_str(
                "the kernel leaves it to the server: it keeps no limit for each client",
            ),
            Wrong::HeldBySlowClients => write!(
                f,
                "as many clients as there are workers, who send or read slowly, keep all others \
                 waiting; before strangers use event, fibers or pipeline"
            ),
            Wrong::HeldBySlowReaders => write!(
                f,
                "each client that takes nothing holds a thread of send for so long; as many as \
                 pipeline.threads allows keep all others waiting"
            ),
            Wrong::Outdone { by, place } => {
                write!(f, "decides nothing: the rule {by:?} before it fits everything")?;
                at(f, *place)?;
                write!(f, "; the first match per setting counts, put the special rule first")
            }
            Wrong::Users { path, reason } => write!(f, "the file {path:?}: {reason}"),
        }
    }
}

fn count_of_days(days: i64) -> String {
    if days == 1 { "1 day".to_owned() } else { format!("{days} days") }
}

/// Where the other one stands.
fn at(f: &mut fmt::Formatter<'_>, place: Option<(usize, usize)>) -> fmt::Result {
    place.iter().try_for_each(|(line, column)| write!(f, ", see {line}:{column}"))
}

fn did_you_mean(f: &mut fmt::Formatter<'_>, near: Option<&str>) -> fmt::Result {
    match near {
        Some(near) => write!(f, ", did you mean {near:?}?"),
        None => Ok(()),
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
