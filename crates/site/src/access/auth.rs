//! Passwords of realms: HTTP Basic authentication (RFC 7617).
//!
//! Verifying a password takes tens of milliseconds of CPU time, which is what makes a stolen hash
//! hard to guess from. So it is a job for a helper thread, and its outcome is remembered.
//!
//! | module | what it holds |
//! |---|---|
//! | `users` | the users of a realm, and the file that lists them |
//! | `verdict` | the remembered outcomes of verifications |
//! | `verification_limit` | the bound on verifications that wait |

mod users;
mod verdict;
mod verification_limit;

pub use users::{UsersError, users_errors};
pub(crate) use verdict::Own;

use crate::rules::{Auth, Realm as RealmName};
use base64ct::{Base64, Encoding};
use foldhash::fast::FixedState;
use forebay_http::head::{Head, Name};
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use users::Users;
use verdict::{CredentialVerdict, SharedVerdicts, Tag, Tagger};
use verification_limit::{VerificationLimit, VerificationSlot};

/// Credentials longer than this, decoded or not, are no user's.
const MOST_CREDENTIALS_BYTES: usize = 4096;

/// One realm: the challenge for its clients, and its users.
#[derive(Debug)]
struct RealmUsers {
    /// The value of `WWW-Authenticate`.
    challenge: Box<[u8]>,
    users: Users,
}

/// All realms of all sites. A realm is named by its number.
pub(crate) struct Realms {
    realms: Vec<RealmUsers>,
    tagger: Tagger,
    shared: SharedVerdicts,
    verification_limit: Arc<VerificationLimit>,
    /// Held by the one thread that reads the files.
    looking: Mutex<()>,
}

/// The next step for a request for something protected.
pub(crate) enum AuthDecision {
    /// The request may pass.
    Pass,
    /// 401: the request has no credentials, or wrong ones.
    Refuse,
    /// 500: no user can be verified, because the file of users cannot be read.
    Broken,
    /// 429: too many credentials of one client are being verified already; 503: of all clients.
    LimitReached(u16),
    /// The request's credentials must be verified first.
    Verify(Verification),
}

/// A job: credentials to be verified.
pub(crate) struct Verification {
    realms: Arc<Realms>,
    realm: u32,
    tag: Tag,
    name: Box<[u8]>,
    password: Box<[u8]>,
    asked_ms: u64,
    /// The place in the limit, given back when the job is done or dropped.
    _slot: VerificationSlot,
}

/// The outcome of a [`Verification`].
pub(crate) struct VerifiedPassword {
    realm: u32,
    tag: Tag,
    /// `None` if the users could not be read.
    verdict: Option<CredentialVerdict>,
}

impl Realms {
    /// The realms of these rules, numbered by their places in `rules`. No user passes a realm with
    /// a file before the first [`look`](Realms::look).
    ///
    /// # Errors
    /// If the kernel has no randomness.
    pub(crate) fn new<'r>(
        rules: impl Iterator<Item = &'r Auth>,
    ) -> Result<Realms, getrandom::Error> {
        let realms = rules.map(|rule| RealmUsers {
            challenge: challenge(&rule.realm),
            users: Users::new(rule.users.clone(), rule.file.clone()),
        });
        Ok(Realms {
            realms: realms.collect(),
            tagger: Tagger::new()?,
            shared: SharedVerdicts::new(),
            verification_limit: Arc::default(),
            looking: Mutex::default(),
        })
    }

    /// Whether the users of a realm are in a file.
    pub(crate) fn has_file(&self, realm: u32) -> bool {
        self.realm(realm).is_some_and(|realm| realm.users.file().is_some())
    }

    /// Reads the files that changed. Returns their errors. May block.
    pub(crate) fn look(&self) -> Vec<(PathBuf, UsersError)> {
        let _looking = self.looking.lock().unwrap_or_else(PoisonError::into_inner);
        let mut errors = Vec::new();
        for users in self.realms.iter().map(|realm| &realm.users) {
            let Some(file) = users.file() else { continue };
            errors.extend(users.look().into_iter().map(|error| (file.to_owned(), error)));
        }
        errors
    }

    /// The value of `WWW-Authenticate` for a 401.
    pub(crate) fn challenge(&self, realm: u32) -> &[u8] {
        self.realm(realm).map_or(&[], |realm| &realm.challenge)
    }

    fn realm(&self, realm: u32) -> Option<&RealmUsers> {
        self.realms.get(realm as usize)
    }

    /// The decision on a request. Takes no lock and allocates nothing if the request's credentials
    /// are in the loop's own table.
    #[inline]
    pub(crate) fn decide(
        self: &Arc<Realms>,
        number: u32,
        head: &Head<'_>,
        own: &mut Own,
        now_ms: u64,
        client: IpAddr,
    ) -> AuthDecision {
        let Some(realm) = self.realm(number) else { return AuthDecision::Broken };
        let generation = realm.users.generation();
        if realm.users.is_unreadable() {
            return AuthDecision::Broken;
        }
        let Some(credentials) = credentials(head) else { return AuthDecision::Refuse };
        let tag = self.tagger.tag(number, credentials);
        if let Some(verdict) = own.get(&tag, generation, now_ms) {
            return pass(verdict.passes);
        }
        if let Some(verdict) = self.shared.get(&tag, generation, now_ms) {
            own.put(tag, verdict);
            return pass(verdict.passes);
        }
        self.verification(number, tag, credentials, now_ms, client)
    }

    #[cold]
    fn verification(
        self: &Arc<Realms>,
        realm: u32,
        tag: Tag,
        credentials: &[u8],
        asked_ms: u64,
        client: IpAddr,
    ) -> AuthDecision {
        let Some([name, password]) = decode(credentials) else { return AuthDecision::Refuse };
        let slot = match self.verification_limit.slot(client) {
            Ok(slot) => slot,
            Err(status) => return AuthDecision::LimitReached(status),
        };
        let realms = Arc::clone(self);
        AuthDecision::Verify(Verification {
            realms,
            realm,
            tag,
            name,
            password,
            asked_ms,
            _slot: slot,
        })
    }

    /// Takes the outcome into the loop's own table, and returns the decision that follows from it.
    pub(crate) fn take(&self, verified: &VerifiedPassword, own: &mut Own) -> AuthDecision {
        let Some(verdict) = verified.verdict else { return AuthDecision::Broken };
        own.put(verified.tag, verdict);
        pass(verdict.passes)
    }
}

fn pass(passes: bool) -> AuthDecision {
    if passes { AuthDecision::Pass } else { AuthDecision::Refuse }
}

impl Verification {
    /// Verifies the credentials, unless another job has done so meanwhile.
    pub(crate) fn run(self) -> VerifiedPassword {
        let Verification { realms, realm, tag, name, password, asked_ms, .. } = &self;
        let verdict = realms.realm(*realm).and_then(|at| {
            // before the users are asked: a change after this makes the verdict void
            let generation = at.users.generation();
            if let Some(verdict) = realms.shared.get(tag, generation, *asked_ms) {
                return Some(verdict);
            }
            let turn = realms.verification_limit.turn();
            let passes = at.users.verify(name, password)?;
            drop(turn);
            let verdict = CredentialVerdict::new(passes, generation, *asked_ms);
            realms.shared.put(*tag, verdict);
            Some(verdict)
        });
        VerifiedPassword { realm: *realm, tag: *tag, verdict }
    }

    /// One user's passwords are tried one after another, and all users share a few queues, so a
    /// client that guesses cannot occupy all helpers.
    pub(crate) fn lane(&self) -> u64 {
        let hasher = FixedState::default();
        let user = hasher.hash_one((self.realm, &self.name));
        hasher.hash_one(("verify", user % verification_limit::lanes()))
    }
}

impl VerifiedPassword {
    /// The realm that the credentials are for.
    pub(crate) fn realm(&self) -> u32 {
        self.realm
    }
}

/// The `WWW-Authenticate` value that asks for credentials (RFC 7617 §2, §2.1).
fn challenge(name: &RealmName) -> Box<[u8]> {
    // a realm's name has neither quotes nor backslashes
    format!("Basic realm=\"{name}\", charset=\"UTF-8\"").into_bytes().into_boxed_slice()
}

/// The name in the credentials of a request, which may be wrong.
pub(crate) fn name(head: &Head<'_>) -> Option<Box<[u8]>> {
    let [name, _] = decode(credentials(head)?)?;
    Some(name)
}

/// The value behind `Basic` in the only `Authorization` line, still encoded.
#[inline]
fn credentials<'h>(head: &Head<'h>) -> Option<&'h [u8]> {
    if !head.has(Name::Authorization) {
        return None;
    }
    let mut lines = head.values(Name::Authorization);
    let (line, None) = (lines.next()?, lines.next()) else { return None };
    let (scheme, credentials) = line.split_at_checked(6)?;
    let is_basic = scheme[..5].eq_ignore_ascii_case(b"basic") && scheme[5] == b' ';
    let credentials = credentials.trim_ascii();
    (is_basic && credentials.len() <= MOST_CREDENTIALS_BYTES).then_some(credentials)
}

/// Name and password. `None` if the credentials are malformed (RFC 7617 §2): not base64, without a
/// colon, or with a control character.
fn decode(credentials: &[u8]) -> Option<[Box<[u8]>; 2]> {
    let text = std::str::from_utf8(credentials).ok()?;
    let pair = Base64::decode_vec(text).ok()?;
    if pair.iter().any(u8::is_ascii_control) {
        return None;
    }
    let colon = pair.iter().position(|&byte| byte == b':')?;
    Some([pair[..colon].into(), pair[colon + 1..].into()])
}

#[cfg(test)]
mod tests;
