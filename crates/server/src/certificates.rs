//! The certificates of all sites and of the admin listener, read from their files, and who answers for
//! which name; and the [`Tokens`] that the admin listener asks for.
//!
//! In: a configuration, at the start and at each reload. Out: [`Identities`] for new connections. What is
//! wrong with a file is said with its name, and what is in force stays.
//!
//! Files that change while the server runs are noticed by [`watch`].

mod clients;
mod tokens;
pub mod watch;

pub(crate) use clients::{authorities, revoked};
pub use tokens::{Tokens, TokensError};

use crate::config::{Clients as ClientFiles, Config, KeyPairs};
use clients::Demand;
use forebay_conn::Secured;
use forebay_site::rules::Host;
use forebay_tls::identity::{Tickets, tickets};
use forebay_tls::{Clients, ClientsError, Identities, Identity, IdentityError, Pair, PairError};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fmt, fs, io};

/// A certificate that expires in fewer days than these should have been replaced: those that are replaced
/// by a program are when they have a month to live.
pub(crate) const SOON_DAYS: i64 = 21;

/// Why a request is answered with 421.
pub const OTHER_CONNECTION: &str = "This connection is for another host; open one for this";

/// Certificates that are in force.
#[derive(Default)]
pub struct Certificates {
    /// Who answers for which name.
    pub identities: Arc<Identities>,
    /// What the admin listener goes by.
    pub admin: Arc<OfAdmin>,
    /// What is asked of the clients of each site, in the order of the configuration; nothing where no site
    /// asks for certificates.
    demands: Vec<Demand>,
    /// Each site that has certificates.
    sites: Vec<Held>,
    /// Those of the admin listener.
    held_by_admin: Option<Held>,
    tokens: Option<HeldTokens>,
}

/// What the admin listener goes by.
#[derive(Default)]
pub struct OfAdmin {
    /// Who it is, whatever name a client asks for.
    pub identities: Arc<Identities>,
    /// What clients must bring, if the configuration says so.
    pub tokens: Option<Tokens>,
}

/// Whose certificates these are.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// Those of the site with this name.
    Site(String),
    /// Those of the admin listener.
    Admin,
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Owner::Site(name) => write!(f, "the site {name:?}"),
            Owner::Admin => f.write_str("the admin listener"),
        }
    }
}

/// The file of tokens.
#[derive(Clone)]
struct HeldTokens {
    path: PathBuf,
    tokens: Tokens,
    /// What the file was when it was read.
    stamp: Option<Stamp>,
}

/// Certificates that somebody has.
#[derive(Clone)]
struct Held {
    owner: Owner,
    /// Its files.
    files: Files,
    identity: Arc<Identity>,
    /// When lists of revoked certificates expire, in seconds since 1970.
    lists: Vec<(PathBuf, i64)>,
    /// What seals its tickets: it outlives a reload.
    tickets: Tickets,
    /// Whether its clients may speak HTTP/2.
    with_http2: bool,
    /// What its files were when they were read.
    stamps: Stamps,
}

/// The files of one owner.
#[derive(Clone)]
struct Files {
    pairs: KeyPairs,
    clients: ClientFiles,
}

impl Files {
    fn all(&self) -> impl Iterator<Item = &PathBuf> {
        self.pairs.files().chain(self.clients.files())
    }
}

/// What files were at some moment; `None` where that could not be told.
type Stamps = Vec<Option<Stamp>>;

/// What a file was at some moment: another one, or another content, has another stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(path: &PathBuf) -> Option<Stamp> {
        let found = fs::metadata(path).ok()?;
        Some(Stamp {
            device: found.dev(),
            inode: found.ino(),
            size: found.size(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        })
    }
}

/// What has come of files that have changed.
pub struct Renewed {
    /// What is to be in force.
    pub certificates: Certificates,
    /// What is new, in words.
    pub taken: Vec<String>,
    /// What is wrong with others; what they were stays.
    pub errors: Vec<CertificateError>,
}

/// A certificate, and when it expires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expiry {
    /// Whose it is.
    pub owner: Owner,
    /// Its file.
    pub certificate: PathBuf,
    /// Seconds since 1970.
    pub not_after_s: i64,
}

impl Expiry {
    /// A warning, if it is time for one.
    pub fn warning(&self, now_s: i64) -> Option<String> {
        let Expiry { owner, certificate, not_after_s } = self;
        let days = days_left(*not_after_s, now_s);
        let when = match days {
            SOON_DAYS.. => return None,
            0.. => format!("expires in {days} days"),
            _ => format!("has expired {} days ago", -days),
        };
        Some(format!("the certificate {certificate:?} of {owner} {when}"))
    }
}

/// Whole days until then; negative when it is past.
pub(crate) fn days_left(not_after_s: i64, now_s: i64) -> i64 {
    (not_after_s - now_s).div_euclid(24 * 3600)
}

/// Why certificates cannot be used.
#[derive(Debug)]
pub enum CertificateError {
    /// A file cannot be read.
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A certificate or its key is wrong.
    Pair {
        /// The file of the certificate.
        certificate: PathBuf,
        /// The file of the key.
        key: PathBuf,
        /// What is wrong.
        error: PairError,
    },
    /// A file about certificates of clients cannot be used.
    ClientFile {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        error: ClientsError,
    },
    /// Files about certificates of clients that do not go together.
    Clients {
        /// Whose.
        owner: Owner,
        /// What is wrong.
        error: ClientsError,
    },
    /// Pairs that do not go together.
    Names {
        /// Whose.
        owner: Owner,
        /// What is wrong.
        error: IdentityError,
    },
    /// A file of tokens cannot be used.
    Token {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        error: TokensError,
    },
    /// There are no random numbers.
    Tickets(String),
}

impl Certificates {
    /// Reads all that are named. Sessions of clients of a site that was there `before` can be resumed.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn open(config: &Config, before: &Certificates) -> Result<Certificates, CertificateError> {
        let before: HashMap<&Owner, &Held> =
            before.held().map(|held| (&held.owner, held)).collect();
        let open = |owner, pairs: &KeyPairs, clients: &ClientFiles, with_http2| {
            let files = Files { pairs: pairs.clone(), clients: clients.clone() };
            let before = before.get(&owner).copied();
            Held::open(owner, files, before, with_http2)
        };
        let sites = config.sites.iter().filter(|site| !site.tls.pairs.is_empty()).map(|site| {
            let owner = Owner::Site(site.name().to_string());
            open(owner, &site.tls.pairs, &site.tls.clients, config.limits.streams > 0)
        });
        let sites = sites.collect::<Result<_, _>>()?;
        let admin = Some(&config.admin.pairs).filter(|pairs| !pairs.is_empty());
        // it speaks HTTP/1
        let nobody = ClientFiles::default();
        let admin = admin.map(|pairs| open(Owner::Admin, pairs, &nobody, false)).transpose()?;
        let tokens = config.admin.token_file.clone().map(HeldTokens::open).transpose()?;
        Ok(Certificates::of(config, sites, admin, tokens))
    }

    /// Those of these sites, which are the sites of `config` that have any, in the same order, and what
    /// the admin listener has.
    fn of(
        config: &Config,
        sites: Vec<Held>,
        held_by_admin: Option<Held>,
        tokens: Option<HeldTokens>,
    ) -> Certificates {
        let with_pairs = config.sites.iter().filter(|site| !site.tls.pairs.is_empty());
        let all = || with_pairs.clone().zip(&sites);
        let default = all().find(|(site, _)| site.hosts.is_empty());
        let default = default.map(|(_, held)| Arc::clone(&held.identity));
        let mut identities = Identities::new(default);
        for (site, Held { identity, .. }) in all() {
            site.hosts.iter().for_each(|host| identities.add(&host.to_string(), identity));
        }
        // a name that no site has for itself: whoever has a certificate for it
        for Held { identity, .. } in &sites {
            let names = identity.pairs().iter().flat_map(|pair| &pair.names);
            names.for_each(|name| identities.add(name, identity));
        }
        let admin = held_by_admin.as_ref().map(|held| Arc::clone(&held.identity));
        let admin = OfAdmin {
            identities: Arc::new(Identities::new(admin)),
            tokens: tokens.as_ref().map(|held| held.tokens.clone()),
        };
        let demands = clients::demands(config, &sites);
        let (identities, admin) = (Arc::new(identities), Arc::new(admin));
        Certificates { identities, admin, demands, sites, held_by_admin, tokens }
    }

    /// Whether some site asks its clients for certificates.
    #[inline]
    pub fn ask_clients(&self) -> bool {
        !self.demands.is_empty()
    }

    /// Whether `site`, by its place in the configuration, may be asked for `host` in this way: its clients
    /// may be unknown only where it does not ask who they are. If it may not: with what status that is
    /// answered, and why.
    pub fn refusal(
        &self,
        secured: Option<&Secured>,
        site: usize,
        host: &[u8],
    ) -> Option<(u16, &'static str)> {
        let demand = self.demands.get(site)?;
        let Some(secured) = secured else {
            return demand.only_tls.then_some((403, "This site is for clients with a certificate"));
        };
        // a site without a certificate is asked through a connection of another one
        let wanted = demand.policy.unwrap_or_else(|| {
            let host = String::from_utf8_lossy(host).to_ascii_lowercase();
            self.identities.find(Some(&host)).and_then(|identity| identity.policy())
        });
        (wanted != secured.policy).then_some((421, OTHER_CONNECTION))
    }

    /// Reads those again whose files have changed; `config` is what these are of.
    ///
    /// # Errors
    /// Whoever has files that are wrong keeps what it has; see [`Renewed::errors`].
    pub fn renewed(&self, config: &Config) -> Renewed {
        let (mut taken, mut errors) = (Vec::new(), Vec::new());
        let mut renew = |held: &Held| {
            if held.stamps_now() == held.stamps {
                return held.clone();
            }
            match held.again() {
                Ok(renewed) => {
                    taken.push(format!("the certificates of {}", held.owner));
                    renewed
                }
                Err(error) => {
                    errors.push(error);
                    held.clone()
                }
            }
        };
        let sites = self.sites.iter().map(&mut renew).collect();
        let admin = self.held_by_admin.as_ref().map(&mut renew);
        let mut tokens = self.tokens.clone();
        if let Some(held) = &mut tokens
            && held.stamp_now() != held.stamp
        {
            match HeldTokens::open(held.path.clone()) {
                Ok(renewed) => {
                    taken.push(format!("the tokens in {:?}", held.path));
                    *held = renewed;
                }
                Err(error) => errors.push(error),
            }
        }
        Renewed { certificates: Certificates::of(config, sites, admin, tokens), taken, errors }
    }

    /// All certificates, by who has them.
    fn held(&self) -> impl Iterator<Item = &Held> {
        self.sites.iter().chain(&self.held_by_admin)
    }

    /// Whether there is no file that could change.
    pub fn is_empty(&self) -> bool {
        self.files().next().is_none()
    }

    /// The files of all, each as often as it is named.
    fn files(&self) -> impl Iterator<Item = &PathBuf> {
        let tokens = self.tokens.iter().map(|held| &held.path);
        self.held().flat_map(|held| held.files.all()).chain(tokens)
    }

    /// What they were when they were read.
    fn stamps(&self) -> Stamps {
        let tokens = self.tokens.iter().map(|held| held.stamp);
        self.held().flat_map(|held| held.stamps.iter().copied()).chain(tokens).collect()
    }

    /// What they are now, as far as that can be told.
    fn stamps_now(&self) -> Stamps {
        let tokens = self.tokens.iter().map(HeldTokens::stamp_now);
        self.held().flat_map(Held::stamps_now).chain(tokens).collect()
    }

    /// Hosts that no certificate is for which clients would be shown, and what becomes of those that ask for
    /// them through TLS.
    pub fn uncovered(&self, config: &Config) -> Vec<String> {
        let told = config.sites.iter().flat_map(|site| {
            let hosts = site.hosts.iter().map(Host::as_str);
            hosts.filter_map(move |host| match self.identities.find(Some(host)) {
                Some(identity) if identity.covers(host) => None,
                _ if !site.tls.pairs.is_empty() => Some(format!(
                    "the certificate of {} is not for {host:?}: clients that ask for it with https will \
                     refuse it",
                    Owner::Site(site.name().to_string())
                )),
                found => {
                    let what = match found {
                        None => "are refused",
                        Some(_) => {
                            "are shown the certificate of the default site, which they will refuse"
                        }
                    };
                    Some(format!(
                        "no certificate is for {host:?}: clients that ask for it with https {what}"
                    ))
                }
            })
        });
        told.collect()
    }

    /// Lists of revoked certificates that have expired, and what becomes of clients.
    pub fn expired_lists(&self, now_s: i64) -> Vec<String> {
        let lists = self.sites.iter().flat_map(|held| {
            held.lists.iter().map(move |(path, until_s)| (&held.owner, path, *until_s))
        });
        let expired = lists.filter(|(_, _, until_s)| *until_s < now_s);
        let told = expired.map(|(owner, path, until_s)| {
            let days = days_left(now_s, until_s);
            format!(
                "the list of revoked certificates {path:?} of {owner} has expired {days} days ago: clients \
                 of its authority are refused"
            )
        });
        told.collect()
    }

    /// Files that are not there any more. One in a directory that may not be entered is not known to be.
    fn missing(&self) -> BTreeSet<PathBuf> {
        let is_gone = |path: &&PathBuf| {
            fs::metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
        };
        self.files().filter(is_gone).cloned().collect()
    }

    /// When each expires, the next first. A certificate that several have is told once.
    pub fn expiries(&self) -> Vec<Expiry> {
        let mut expiries = Vec::new();
        let mut told = HashSet::new();
        for Held { owner, files, identity, .. } in self.held() {
            for (certificate, pair) in files.pairs.certificates.iter().zip(identity.pairs()) {
                if told.insert(certificate) {
                    let (owner, certificate) = (owner.clone(), certificate.clone());
                    expiries.push(Expiry { owner, certificate, not_after_s: pair.not_after_s });
                }
            }
        }
        expiries.sort_by_key(|expiry| expiry.not_after_s);
        expiries
    }
}

impl Held {
    /// Reads the files of `owner`. What it had `before` seals its tickets, unless other things are asked of
    /// its clients now: a session does not outlive that.
    fn open(
        owner: Owner,
        files: Files,
        before: Option<&Held>,
        with_http2: bool,
    ) -> Result<Held, CertificateError> {
        // before they are read: what changes meanwhile is noticed afterwards
        let stamps = files.all().map(Stamp::of).collect();
        let read = self::pairs(&files.pairs)?;
        let (clients, lists) = clients::open(&owner, &files.clients)?;
        let stamp = |clients: Option<&Arc<Clients>>| clients.map(|clients| clients.stamp());
        let is_same = |before: &&Held| stamp(before.identity.clients()) == stamp(clients.as_ref());
        let tickets = match before.filter(is_same) {
            Some(before) => Arc::clone(&before.tickets),
            None => tickets().map_err(|error| CertificateError::Tickets(error.to_string()))?,
        };
        let identity = match Identity::new(read, Arc::clone(&tickets), with_http2, clients) {
            Ok(identity) => Arc::new(identity),
            Err(error) => return Err(CertificateError::Names { owner, error }),
        };
        Ok(Held { owner, files, identity, lists, tickets, with_http2, stamps })
    }

    /// The same, with what its files are now.
    fn again(&self) -> Result<Held, CertificateError> {
        Held::open(self.owner.clone(), self.files.clone(), Some(self), self.with_http2)
    }

    /// What its files are now. One that cannot be looked at, or is not there, is what it was.
    fn stamps_now(&self) -> Stamps {
        let known = self.stamps.iter();
        self.files.all().zip(known).map(|(path, known)| Stamp::of(path).or(*known)).collect()
    }
}

impl HeldTokens {
    fn open(path: PathBuf) -> Result<HeldTokens, CertificateError> {
        let stamp = Stamp::of(&path);
        match Tokens::open(&path) {
            Ok(tokens) => Ok(HeldTokens { path, tokens, stamp }),
            Err(error) => Err(CertificateError::Token { path, error }),
        }
    }

    /// What its file is now. One that cannot be looked at, or is not there, is what it was.
    fn stamp_now(&self) -> Option<Stamp> {
        Stamp::of(&self.path).or(self.stamp)
    }
}

fn read(path: &Path) -> Result<Vec<u8>, CertificateError> {
    fs::read(path).map_err(|error| CertificateError::Unreadable { path: path.to_owned(), error })
}

/// Certificates with their keys.
///
/// # Errors
/// The first thing that is wrong.
pub(crate) fn pairs(files: &KeyPairs) -> Result<Vec<Pair>, CertificateError> {
    let pairs = files.certificates.iter().zip(&files.keys).map(|(certificate, key)| {
        let pair = Pair::read(&read(certificate)?, &read(key)?);
        pair.map_err(|error| {
            let (certificate, key) = (certificate.clone(), key.clone());
            CertificateError::Pair { certificate, key, error }
        })
    });
    pairs.collect()
}

impl fmt::Display for CertificateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CertificateError::Unreadable { path, error } => {
                write!(f, "cannot read the file {path:?}: {error}")?;
                match error.kind() {
                    io::ErrorKind::PermissionDenied => f.write_str(
                        "; the user of the server must be able to read it, or it is read at a restart \
                         by root",
                    ),
                    _ => Ok(()),
                }
            }
            CertificateError::Pair { certificate, key, error } => {
                write!(f, "the certificate {certificate:?} with the key {key:?}: {error}")
            }
            CertificateError::ClientFile { path, error } => write!(f, "the file {path:?}: {error}"),
            CertificateError::Clients { owner, error } => {
                write!(f, "the authorities and lists for clients of {owner}: {error}")
            }
            CertificateError::Names { owner, error } => {
                write!(f, "the certificates of {owner}: {error}")
            }
            CertificateError::Token { path, error } => write!(f, "the tokens in {path:?}: {error}"),
            CertificateError::Tickets(error) => write!(f, "cannot make keys for tickets: {error}"),
        }
    }
}

impl std::error::Error for CertificateError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_expires_soon_is_warned_of() {
        const DAY: i64 = 24 * 3600;
        let warning = |left_s| {
            let owner = Owner::Site("shop".to_owned());
            let (certificate, not_after_s) = (PathBuf::from("/a.pem"), 1_900_000_000 + left_s);
            Expiry { owner, certificate, not_after_s }.warning(1_900_000_000)
        };
        let said =
            |when: &str| Some(format!("the certificate \"/a.pem\" of the site \"shop\" {when}"));
        assert_eq!(warning(21 * DAY), None);
        assert_eq!(warning(21 * DAY - 1), said("expires in 20 days"));
        assert_eq!(warning(0), said("expires in 0 days"));
        assert_eq!(warning(-1), said("has expired 1 days ago"));
    }
}
