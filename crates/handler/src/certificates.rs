//! The certificates of all sites and of the admin listener, read from their files, and which answers for
//! which name; the [`Tokens`] that the admin listener asks for; and the [`Keys`] of identities.
//!
//! In: a configuration, at the start and at each reload. Out: [`Identities`] for new connections. An
//! error names its file, and the certificates in force stay.
//!
//! Files that change while the server runs are noticed by `certificate_watch` of the server.

pub mod acme;
mod clients;
mod demands;
mod error;
mod held;
mod native_roots;
mod tokens;
mod upstreams;
mod warnings;

pub use clients::{authorities, revoked};
pub use error::{CertificateError, NoSystemRoots};
use held::{CertificateFiles, HeldCertificate, HeldFile, KnownTickets, read_keys, read_tokens};
pub use held::{FileStamp, Stamps, pairs};
pub use tokens::{Tokens, TokensError};
use upstreams::HeldUpstreamTls;
pub use upstreams::{of_upstreams, system_roots};
pub use warnings::Expiry;
pub use warnings::{SOON_DAYS, days_left};

use crate::identity::{Keys, Verifier};
use demands::Demand;
use forebay_config::{AskClients, ClientCertificates as ClientFiles, Config, KeyPairs, stage_name};
use forebay_conn::Secured;
use forebay_site::rules::Network;
use forebay_tls::{Identities, TicketKeys, TicketSealer};
use forebay_upstream::settings::UpstreamTlsSettings;
use forebay_upstream::upstreams::UpstreamTlsFiles;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{fmt, fs, io};

/// The text of an answer with 421.
pub const OTHER_CONNECTION: &str = "This connection is for another host; open one for this";

/// Certificates that are in force.
#[derive(Default)]
pub struct Certificates {
    /// The certificate for each name.
    pub identities: Arc<Identities>,
    /// The rules of the admin listener.
    pub admin: Arc<OfAdmin>,
    /// The demands on the clients of each site, in the order of the configuration; empty where no site
    /// asks for certificates.
    demands: Vec<Demand>,
    /// The certificates of each site that has some.
    sites: Vec<HeldCertificate>,
    /// The certificates of the admin listener.
    held_by_admin: Option<HeldCertificate>,
    /// The certificates between this process and the stages of other machines that ask it.
    held_by_stage: Option<HeldCertificate>,
    tokens: Option<HeldFile<Tokens>>,
    keys: Option<HeldFile<Keys>>,
    /// The certificates and authorities for TLS to applications, each once.
    upstreams: Vec<HeldUpstreamTls>,
    /// The verifier of clients' identities; `None` where there are no identities.
    pub verifier: Option<Verifier>,
    /// The cookie that applications do not get.
    pub hidden_cookie: Option<Box<str>>,
    /// The certificates to be had by ACME.
    acme: Option<Arc<acme::AcmePlan>>,
}

/// The rules of the admin listener.
#[derive(Default)]
pub struct OfAdmin {
    /// The number of this version of the rules: of two versions, the one with the higher number is in
    /// force.
    pub number: u64,
    /// The clients that the listener answers; none if it does not exist any more.
    pub allow: Vec<Network>,
    /// Whether clients must bring one of [`tokens`](OfAdmin::tokens); without any tokens, no client is
    /// answered then.
    pub with_token: bool,
    /// The certificate of the listener, whatever name a client asks for.
    pub identities: Arc<Identities>,
    /// The tokens that clients must bring, if the configuration has some.
    pub tokens: Option<Tokens>,
}

/// The owner of certificates.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Owner {
    /// The site with this name.
    Site(String),
    /// The admin listener.
    Admin,
    /// The applications of the site with this name, for the certificates that they are shown.
    Applications(String),
    /// The stages on several machines, which show one another certificates.
    Stages,
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Owner::Site(name) => write!(f, "the site {name:?}"),
            Owner::Admin => f.write_str("the admin listener"),
            Owner::Applications(name) => write!(f, "the site {name:?}, shown to applications,"),
            Owner::Stages => f.write_str("the stages"),
        }
    }
}

/// The keys of one owner's session tickets, from the process before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandedTickets {
    owner: Owner,
    /// The demands on the clients that have these tickets.
    asked: Option<[u8; 32]>,
    keys: TicketKeys,
}

impl HandedTickets {
    fn known(self) -> (Owner, KnownTickets) {
        let tickets = Arc::new(TicketSealer::with(self.keys));
        (self.owner, KnownTickets { asked: self.asked, tickets })
    }
}

/// The result of reading changed files again.
pub struct Renewed {
    /// The certificates to be put in force.
    pub certificates: Certificates,
    /// The changes, in words.
    pub taken: Vec<String>,
    /// The errors in other files, whose certificates stay as they were.
    pub errors: Vec<CertificateError>,
}

impl Certificates {
    /// Reads all files that the configuration names. Clients can resume sessions with a site that existed
    /// `before`, or in another process that has handed its keys over.
    ///
    /// # Errors
    /// The first error.
    pub fn open(
        config: &Config,
        before: &Certificates,
        handed: Vec<HandedTickets>,
    ) -> Result<Certificates, CertificateError> {
        let acme = acme::AcmePlan::new(config, before.acme.as_deref());
        let acme = acme.map_err(CertificateError::Roots)?;
        let handed = handed.into_iter().map(HandedTickets::known);
        let known = before.held().map(|held| (held.owner.clone(), held.known_tickets()));
        let known: HashMap<Owner, KnownTickets> = handed.chain(known).collect();
        let open = |owner, files, with_http2| {
            let before = known.get(&owner);
            HeldCertificate::open(owner, files, before, with_http2)
        };
        let sites = config.sites.iter().filter(|site| site.has_certificate()).map(|site| {
            let owner = Owner::Site(site.name().to_string());
            let acme = site.wanted().map(|wanted| acme::CertificateSource::new(config, wanted));
            let pairs = match &acme {
                None => site.tls.pairs.clone(),
                Some(acme) => KeyPairs { certificates: vec![acme.file()], keys: Vec::new() },
            };
            let clients = site.tls.clients.clone();
            let files = CertificateFiles { pairs, clients, name: None, acme };
            open(owner, files, config.limits.streams > 0)
        });
        let sites = sites.collect::<Result<_, _>>()?;
        let admin = Some(&config.admin.pairs).filter(|pairs| !pairs.is_empty());
        // the admin listener speaks HTTP/1
        let admin = admin.map(|pairs| {
            let clients = ClientFiles::default();
            open(
                Owner::Admin,
                CertificateFiles { pairs: pairs.clone(), clients, name: None, acme: None },
                false,
            )
        });
        let admin = admin.transpose()?;
        let stage =
            stage_files(config).map(|files| open(Owner::Stages, files, true)).transpose()?;
        let tokens = config.admin.token_file.as_deref();
        let tokens = tokens.map(|path| HeldFile::open(path, read_tokens)).transpose()?;
        let keys = config.identity.keys.as_deref();
        let keys = keys.map(|path| HeldFile::open(path, read_keys)).transpose()?;
        let upstreams = HeldUpstreamTls::open_all(config)?;
        let of_config = Certificates::of(config, sites, (admin, stage), tokens, keys, acme);
        Ok(Certificates { upstreams, ..of_config })
    }

    /// The certificates of these sites, which are the sites of `config` that have any, in the same order;
    /// those of the admin listener; and those of a stage that other machines ask.
    fn of(
        config: &Config,
        sites: Vec<HeldCertificate>,
        (held_by_admin, held_by_stage): (Option<HeldCertificate>, Option<HeldCertificate>),
        tokens: Option<HeldFile<Tokens>>,
        keys: Option<HeldFile<Keys>>,
        acme: Option<Arc<acme::AcmePlan>>,
    ) -> Certificates {
        let with_pairs = config.sites.iter().filter(|site| site.has_certificate());
        let all = || with_pairs.clone().zip(&sites);
        let default = all().find(|(site, _)| site.hosts.is_empty());
        // a stage that other machines ask has no sites
        let default = default.map(|(_, held)| held).or(held_by_stage.as_ref());
        let default = default.map(|held| Arc::clone(&held.identity));
        let mut identities = Identities::new(default);
        if let Some(acme) = &acme {
            identities = identities.with_proofs(&acme.answers.proofs);
        }
        for (site, HeldCertificate { identity, .. }) in all() {
            site.hosts.iter().for_each(|host| identities.add_site(&host.to_string(), identity));
        }
        // a name for which no site has a certificate of its own gets one of any site that covers it
        for HeldCertificate { identity, .. } in &sites {
            let names = identity.pairs().iter().flat_map(|pair| &pair.names);
            names.for_each(|name| identities.add(name, identity));
        }
        let admin = held_by_admin.as_ref().map(|held| Arc::clone(&held.identity));
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        let is_there = !config.admin.listen.0.is_empty();
        let admin = OfAdmin {
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
            allow: if is_there { config.admin.allow.clone() } else { Vec::new() },
            with_token: config.admin.token_file.is_some(),
            identities: Arc::new(Identities::new(admin)),
            tokens: tokens.as_ref().map(|held| Tokens::clone(&held.value)),
        };
        let demands = demands::demands(config, &sites);
        let (identities, admin) = (Arc::new(identities), Arc::new(admin));
        let of_clients = &config.identity;
        let verifier = keys.as_ref().map(|held| Verifier::new(of_clients.cookie(), &held.value));
        let hidden_cookie = of_clients.hidden_cookie().map(Into::into);
        Certificates {
            identities,
            admin,
            demands,
            sites,
            held_by_admin,
            held_by_stage,
            tokens,
            keys,
            verifier,
            hidden_cookie,
            acme,
            upstreams: Vec::new(),
        }
    }

    /// The files for TLS to applications with these settings.
    pub fn of_upstreams(&self, settings: &UpstreamTlsSettings) -> Option<&UpstreamTlsFiles> {
        self.upstreams.iter().find(|held| held.settings == *settings).map(|held| &*held.files)
    }

    /// The certificates to be had by ACME.
    #[inline]
    pub fn acme(&self) -> Option<&Arc<acme::AcmePlan>> {
        self.acme.as_ref()
    }

    /// Whether some site asks its clients for certificates.
    #[inline]
    pub fn ask_clients(&self) -> bool {
        !self.demands.is_empty()
    }

    /// Why `site`, by its place in the configuration, may not be asked for `host` on this connection: the
    /// status and text of the answer. A client without a certificate may only ask where the site wants
    /// none. `is_https` says whether the client has come through TLS, perhaps to a proxy.
    pub fn refusal(
        &self,
        secured: Option<&Secured>,
        is_https: impl FnOnce() -> bool,
        site: usize,
        host: &[u8],
    ) -> Option<(u16, &'static str)> {
        let demand = self.demands.get(site)?;
        let Some(secured) = secured else {
            let is_refused = demand.is_required && (!demand.is_redirected || is_https());
            return is_refused.then_some((403, "This site is for clients with a certificate"));
        };
        // a site without a certificate is asked through a connection of another site
        let wanted = demand.policy.unwrap_or_else(|| {
            let host = String::from_utf8_lossy(host).to_ascii_lowercase();
            self.identities.find(Some(&host)).and_then(|identity| identity.policy())
        });
        (wanted != secured.policy).then_some((421, OTHER_CONNECTION))
    }

    /// Reads the certificates again whose files have changed; `config` is their configuration.
    ///
    /// # Errors
    /// None is returned: a site with wrong files keeps its certificates; see [`Renewed::errors`].
    pub fn renewed(&self, config: &Config) -> Renewed {
        let (mut taken, mut errors) = (Vec::new(), Vec::new());
        let mut renew = |held: &HeldCertificate| {
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
        let upstreams =
            self.upstreams.iter().map(|held| held.renewed(&mut taken, &mut errors)).collect();
        let certificates = Certificates::of(
            config,
            sites,
            (admin, self.held_by_stage.clone()),
            tokens,
            keys,
            acme,
        );
        Renewed { certificates: Certificates { upstreams, ..certificates }, taken, errors }
    }

    /// The keys of session tickets, for the process that takes the place of this one.
    pub fn tickets(&self) -> Vec<HandedTickets> {
        let hand = |held: &HeldCertificate| HandedTickets {
            owner: held.owner.clone(),
            asked: held.known_tickets().asked,
            keys: held.tickets.keys(),
        };
        self.held().map(hand).collect()
    }

    fn held(&self) -> impl Iterator<Item = &HeldCertificate> {
        self.watched().chain(&self.held_by_stage)
    }

    /// The certificates whose files this process checks for changes. The supervisor checks those of
    /// stages, because it may read them.
    fn watched(&self) -> impl Iterator<Item = &HeldCertificate> {
        self.sites.iter().chain(&self.held_by_admin)
    }

    /// The files for TLS to applications that this process checks for changes.
    fn watched_upstreams(&self) -> impl Iterator<Item = &HeldUpstreamTls> {
        self.upstreams.iter().filter(|held| held.owner != Owner::Stages)
    }

    /// Whether there is no file that could change.
    pub fn is_empty(&self) -> bool {
        self.files().next().is_none()
    }

    /// All files, each as often as it is named.
    pub fn files(&self) -> impl Iterator<Item = &PathBuf> {
        let others = self.tokens.iter().map(|held| &held.path);
        let others = others.chain(self.keys.iter().map(|held| &held.path));
        let others = others.chain(self.watched_upstreams().flat_map(HeldUpstreamTls::files));
        self.watched().flat_map(|held| held.files.all()).chain(others)
    }

    /// The stamps of the files when they were read.
    pub fn stamps(&self) -> Stamps {
        let others = self.tokens.iter().map(|held| held.stamp);
        let others = others.chain(self.keys.iter().map(|held| held.stamp));
        let others = others.chain(self.watched_upstreams().flat_map(|held| held.stamps.clone()));
        self.watched().flat_map(|held| held.stamps.iter().copied()).chain(others).collect()
    }

    /// The stamps of the files now, as far as they can be read.
    pub fn stamps_now(&self) -> Stamps {
        let others = self.tokens.iter().map(HeldFile::stamp_now);
        let others = others.chain(self.keys.iter().map(HeldFile::stamp_now));
        let others = others.chain(self.watched_upstreams().flat_map(HeldUpstreamTls::stamps_now));
        self.watched().flat_map(HeldCertificate::stamps_now).chain(others).collect()
    }

    /// Files that do not exist any more, except those that ACME gets. A file in a directory that may not
    /// be entered does not count as missing.
    pub fn missing(&self) -> BTreeSet<PathBuf> {
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
}

/// The files of the stage that this process is, if other machines ask it through TLS; both sides show
/// certificates.
fn stage_files(config: &Config) -> Option<CertificateFiles> {
    let role = config.place.as_ref()?.role;
    let isolated = &config.isolated;
    let is_asked = !isolated.unencrypted && !isolated.listen(role).is_empty();
    let files = isolated.key_files(role).filter(|_| is_asked)?;
    let clients = ClientFiles {
        asked: AskClients::Required,
        authorities: vec![files.authority],
        ..ClientFiles::default()
    };
    let pairs = KeyPairs { certificates: vec![files.certificate], keys: vec![files.key] };
    // a certificate that the same authority has given to another party opens nothing
    let name = role.before().map(stage_name);
    Some(CertificateFiles { pairs, clients, name, acme: None })
}

/// The bytes of a file.
fn read(path: &Path) -> Result<Vec<u8>, CertificateError> {
    fs::read(path).map_err(|error| CertificateError::Unreadable { path: path.to_owned(), error })
}
