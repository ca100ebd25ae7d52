//! The certificates of all sites and of the admin listener, read from their files, and who answers for
//! which name; the [`Tokens`] that the admin listener asks for; and the [`Keys`] of identities.
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

use crate::acme::{self, NoRoots};
use crate::config::{Clients as ClientFiles, Config, KeyPairs};
use crate::identity::{Keys, KeysError, Verifier};
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
    tokens: Option<HeldFile<Tokens>>,
    keys: Option<HeldFile<Keys>>,
    /// How identities of clients are found; `None` where nobody has any.
    pub verifier: Option<Verifier>,
    /// What is wanted by ACME.
    acme: Option<Arc<acme::Plan>>,
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

/// A file that is no certificate, and what is in it.
struct HeldFile<T> {
    path: PathBuf,
    value: Arc<T>,
    /// How it is read.
    read: fn(&Path) -> Result<T, CertificateError>,
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
    /// Its certificate is one that nobody has signed, until ACME has got one.
    is_temporary: bool,
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
    /// Where its certificate comes from, if that is by ACME; its file is one of the pairs.
    acme: Option<acme::Source>,
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
    fn of(path: &Path) -> Option<Stamp> {
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
    /// Nobody has signed it: ACME has not got one yet.
    pub is_temporary: bool,
}

impl Expiry {
    /// A warning, if it is time for one.
    pub fn warning(&self, now_s: i64) -> Option<String> {
        let Expiry { owner, certificate, not_after_s, is_temporary } = self;
        if *is_temporary {
            return Some(format!(
                "{owner} shows a certificate that nobody has signed, until there is one by ACME"
            ));
        }
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
    /// It is not known whom to trust when an authority is asked.
    Roots(NoRoots),
    /// A file of keys of identities cannot be used.
    Keys {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        error: KeysError,
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
        let acme = acme::Plan::new(config, before.acme.as_deref());
        let acme = acme.map_err(CertificateError::Roots)?;
        let before: HashMap<&Owner, &Held> =
            before.held().map(|held| (&held.owner, held)).collect();
        let open = |owner, files, with_http2| {
            let before = before.get(&owner).copied();
            Held::open(owner, files, before, with_http2)
        };
        let sites = config.sites.iter().filter(|site| site.has_certificate()).map(|site| {
            let owner = Owner::Site(site.name().to_string());
            let acme = site.wanted().map(|wanted| acme::Source::new(config, wanted));
            let pairs = match &acme {
                None => site.tls.pairs.clone(),
                Some(acme) => KeyPairs { certificates: vec![acme.file()], keys: Vec::new() },
            };
            let files = Files { pairs, clients: site.tls.clients.clone(), acme };
            open(owner, files, config.limits.streams > 0)
        });
        let sites = sites.collect::<Result<_, _>>()?;
        let admin = Some(&config.admin.pairs).filter(|pairs| !pairs.is_empty());
        // it speaks HTTP/1
        let admin = admin.map(|pairs| {
            let clients = ClientFiles::default();
            open(Owner::Admin, Files { pairs: pairs.clone(), clients, acme: None }, false)
        });
        let admin = admin.transpose()?;
        let tokens = config.admin.token_file.as_deref();
        let tokens = tokens.map(|path| HeldFile::open(path, read_tokens)).transpose()?;
        let keys = config.identity.keys.as_deref();
        let keys = keys.map(|path| HeldFile::open(path, read_keys)).transpose()?;
        Ok(Certificates::of(config, sites, admin, tokens, keys, acme))
    }

    /// Those of these sites, which are the sites of `config` that have any, in the same order, and what
    /// the admin listener has.
    fn of(
        config: &Config,
        sites: Vec<Held>,
        held_by_admin: Option<Held>,
        tokens: Option<HeldFile<Tokens>>,
        keys: Option<HeldFile<Keys>>,
        acme: Option<Arc<acme::Plan>>,
    ) -> Certificates {
        let with_pairs = config.sites.iter().filter(|site| site.has_certificate());
        let all = || with_pairs.clone().zip(&sites);
        let default = all().find(|(site, _)| site.hosts.is_empty());
        let default = default.map(|(_, held)| Arc::clone(&held.identity));
        let mut identities = Identities::new(default);
        if let Some(acme) = &acme {
            identities = identities.with_proofs(&acme.answers.proofs);
        }
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
            tokens: tokens.as_ref().map(|held| Tokens::clone(&held.value)),
        };
        let demands = clients::demands(config, &sites);
        let (identities, admin) = (Arc::new(identities), Arc::new(admin));
        let of_clients = &config.identity;
        let verifier = keys
            .as_ref()
            .map(|held| Verifier::new(of_clients.cookie(), of_clients.remove, &held.value));
        Certificates {
            identities,
            admin,
            demands,
            sites,
            held_by_admin,
            tokens,
            keys,
            verifier,
            acme,
        }
    }

    /// What is wanted by ACME.
    #[inline]
    pub fn acme(&self) -> Option<&Arc<acme::Plan>> {
        self.acme.as_ref()
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
        let tokens =
            self.tokens.as_ref().map(|held| held.renewed("tokens", &mut taken, &mut errors));
        let keys = self.keys.as_ref().map(|held| held.renewed("keys", &mut taken, &mut errors));
        let acme = self.acme.clone();
        let certificates = Certificates::of(config, sites, admin, tokens, keys, acme);
        Renewed { certificates, taken, errors }
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
        let others = self.tokens.iter().map(|held| &held.path);
        let others = others.chain(self.keys.iter().map(|held| &held.path));
        self.held().flat_map(|held| held.files.all()).chain(others)
    }

    /// What they were when they were read.
    fn stamps(&self) -> Stamps {
        let others = self.tokens.iter().map(|held| held.stamp);
        let others = others.chain(self.keys.iter().map(|held| held.stamp));
        self.held().flat_map(|held| held.stamps.iter().copied()).chain(others).collect()
    }

    /// What they are now, as far as that can be told.
    fn stamps_now(&self) -> Stamps {
        let others = self.tokens.iter().map(HeldFile::stamp_now);
        let others = others.chain(self.keys.iter().map(HeldFile::stamp_now));
        self.held().flat_map(Held::stamps_now).chain(others).collect()
    }

    /// Hosts that no certificate is for which clients would be shown, and what becomes of those that ask for
    /// them through TLS.
    pub fn uncovered(&self, config: &Config) -> Vec<String> {
        let told = config.sites.iter().flat_map(|site| {
            let hosts = site.hosts.iter().map(Host::as_str);
            hosts.filter_map(move |host| match self.identities.find(Some(host)) {
                Some(identity) if identity.covers(host) => None,
                _ if site.has_certificate() => Some(format!(
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

    /// Files that are not there any more, but for those that ACME gets. One in a directory that may not be
    /// entered is not known to be.
    fn missing(&self) -> BTreeSet<PathBuf> {
        let is_gone = |path: &&PathBuf| {
            fs::metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
        };
        let by_acme: HashSet<&PathBuf> = self
            .held()
            .filter(|held| held.files.acme.is_some())
            .flat_map(|held| held.files.pairs.files())
            .collect();
        let others = self.files().filter(|file| !by_acme.contains(file));
        others.filter(is_gone).cloned().collect()
    }

    /// When each expires, the next first. A certificate that several have is told once.
    pub fn expiries(&self) -> Vec<Expiry> {
        let mut expiries = Vec::new();
        let mut told = HashSet::new();
        for Held { owner, files, identity, is_temporary, .. } in self.held() {
            for (certificate, pair) in files.pairs.certificates.iter().zip(identity.pairs()) {
                if told.insert(certificate) {
                    let (owner, certificate) = (owner.clone(), certificate.clone());
                    let (not_after_s, is_temporary) = (pair.not_after_s, *is_temporary);
                    expiries.push(Expiry { owner, certificate, not_after_s, is_temporary });
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
        let stamps = files.all().map(|path| Stamp::of(path)).collect();
        let (read, is_temporary) = match &files.acme {
            None => (self::pairs(&files.pairs)?, false),
            Some(acme) => match acme.pair() {
                Ok((pair, is_temporary)) => (vec![pair], is_temporary),
                Err(error) => {
                    let (certificate, key) = (acme.file(), acme.file());
                    return Err(CertificateError::Pair { certificate, key, error });
                }
            },
        };
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
        Ok(Held { owner, files, identity, is_temporary, lists, tickets, with_http2, stamps })
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

impl<T> HeldFile<T> {
    fn open(
        path: &Path,
        read: fn(&Path) -> Result<T, CertificateError>,
    ) -> Result<HeldFile<T>, CertificateError> {
        let stamp = Stamp::of(path);
        Ok(HeldFile { path: path.to_owned(), value: Arc::new(read(path)?), read, stamp })
    }

    /// What its file is now. One that cannot be looked at, or is not there, is what it was.
    fn stamp_now(&self) -> Option<Stamp> {
        Stamp::of(&self.path).or(self.stamp)
    }

    /// The same, with what is in its file now if that has changed.
    fn renewed(
        &self,
        what: &str,
        taken: &mut Vec<String>,
        errors: &mut Vec<CertificateError>,
    ) -> HeldFile<T> {
        if self.stamp_now() != self.stamp {
            match HeldFile::open(&self.path, self.read) {
                Ok(renewed) => {
                    taken.push(format!("the {what} in {:?}", self.path));
                    return renewed;
                }
                Err(error) => errors.push(error),
            }
        }
        self.clone()
    }
}

impl<T> Clone for HeldFile<T> {
    fn clone(&self) -> HeldFile<T> {
        let HeldFile { path, value, read, stamp } = self;
        HeldFile { path: path.clone(), value: Arc::clone(value), read: *read, stamp: *stamp }
    }
}

fn read_tokens(path: &Path) -> Result<Tokens, CertificateError> {
    Tokens::open(path).map_err(|error| CertificateError::Token { path: path.to_owned(), error })
}

fn read_keys(path: &Path) -> Result<Keys, CertificateError> {
    Keys::open(path).map_err(|error| CertificateError::Keys { path: path.to_owned(), error })
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
            CertificateError::Roots(error) => write!(f, "{error}"),
            CertificateError::Keys { path, error } => write!(f, "the keys in {path:?}: {error}"),
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
            let expiry = Expiry { owner, certificate, not_after_s, is_temporary: false };
            expiry.warning(1_900_000_000)
        };
        let said =
            |when: &str| Some(format!("the certificate \"/a.pem\" of the site \"shop\" {when}"));
        assert_eq!(warning(21 * DAY), None);
        assert_eq!(warning(21 * DAY - 1), said("expires in 20 days"));
        assert_eq!(warning(0), said("expires in 0 days"));
        assert_eq!(warning(-1), said("has expired 1 days ago"));
    }
}
