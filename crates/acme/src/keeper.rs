//! The work that is due: certificates that are missing, or must be replaced.

use crate::answers::{ChallengeAnswers, ChallengeKind};
use crate::https::{Https, IssuerName, RetryAfter, now};
use crate::order::OrderContext;
use crate::order_failure::{OrderFailure, Why};
use crate::records::{self, RecordHook};
use crate::schedule::{self, Validity};
use crate::storage::{self, Lock, Names};
use crate::wanted::{AuthoritySettings, CertificateEvent, WantedCertificate};
use forebay_tls::Pair;
use instant_acme::{Account, AccountCredentials, CertificateIdentifier, Error, NewAccount};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The longest time between two rounds: another server may have done what is due.
const LOOK: Duration = Duration::from_secs(3600);

/// How often an order is continued at once while the authority rejects nonces; each time, the library itself
/// tries three times with a new one.
const NONCE_ATTEMPTS: u32 = 4;

/// The wait for another server that is ordering.
const BUSY: Duration = Duration::from_secs(1);

/// The time after which DNS records that could not be removed are tried again.
const CLEAN_AGAIN: Duration = Duration::from_secs(600);

/// Keeps certificates up to date. Besides what is in the files, the keeper knows what the authority suggests.
#[derive(Debug, Default)]
pub struct CertificateKeeper {
    windows: HashMap<PathBuf, RenewalWindow>,
    retry_after: RetryAfter,
    issuer: IssuerName,
    /// When the removal of records is tried again.
    clean_again: Option<Instant>,
}

/// When the authority suggests replacing a certificate.
#[derive(Clone, Debug)]
struct RenewalWindow {
    /// The expiry of the certificate, which identifies it.
    not_after_s: i64,
    /// The suggested window (start and end), and the moment drawn at random in it, 0 to 1.
    suggested: Option<(i64, i64, f64)>,
    /// When the authority is asked again.
    ask_s: i64,
}

/// The account in its stored form.
#[derive(Serialize, Deserialize)]
struct StoredAccount {
    credentials: AccountCredentials,
    thumbprint: String,
    contact: Vec<String>,
}

/// The number of failures in a row, and the time until which nothing is tried.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Backoff {
    times: u32,
    /// The number of these failures in which validation failed.
    unproven: u32,
    until_s: i64,
    is_limited: bool,
    reason: String,
}

/// The certificate and the failures in the files.
struct Installed {
    pair: Option<Pair>,
    failed: Backoff,
}

impl CertificateKeeper {
    /// Does the work that is due, one certificate after the other, and reports the results to `tell`; `hook`
    /// makes DNS records, if there is one. With `at_once`, failed certificates are tried again at once,
    /// unless the authority has limited the rate. Returns the time until there is more to do.
    pub fn round(
        &mut self,
        authority: &AuthoritySettings,
        wanted: &[WantedCertificate],
        answers: &ChallengeAnswers,
        hook: Option<RecordHook<'_>>,
        at_once: bool,
        tell: &mut dyn FnMut(CertificateEvent<'_>),
    ) -> Duration {
        let clean = self.clean_up(authority, hook, at_once);
        let mut round = Round { keeper: self, authority, answers, hook, account: None, at_once };
        let pauses = wanted.iter().map(|wanted| round.keep(wanted, tell));
        let pause = pauses.min().unwrap_or(LOOK).min(LOOK);
        let files: Vec<_> =
            wanted.iter().map(|w| authority.storage.certificate(&w.names)).collect();
        self.windows.retain(|file, _| files.contains(file));
        if self.clean_again.is_none() && !records::noted(&authority.storage).is_empty() {
            // an attempt in this round has just tried to remove them
            self.clean_again = Some(Instant::now() + CLEAN_AGAIN);
            return pause.min(clean).min(CLEAN_AGAIN);
        }
        pause.min(clean)
    }

    /// Removes DNS records that an attempt, or a server that has ended, has left. Returns the time until the
    /// next try.
    fn clean_up(
        &mut self,
        authority: &AuthoritySettings,
        hook: Option<RecordHook<'_>>,
        at_once: bool,
    ) -> Duration {
        let noted = records::noted(&authority.storage);
        if noted.is_empty() || hook.is_none() {
            self.clean_again = None;
            return LOOK;
        }
        let now = Instant::now();
        if let Some(again) = self.clean_again.filter(|again| *again > now && !at_once) {
            return again - now;
        }
        // without the lock, the records may be those of an order that another server has under way
        let Ok(Some(_lock)) = authority.storage.lock() else { return BUSY };
        let is_clean = |file: &PathBuf| records::clean_up(file, hook).unwrap_or(false);
        let left = noted.iter().filter(|file| !is_clean(file)).count();
        self.clean_again = (left > 0).then(|| Instant::now() + CLEAN_AGAIN);
        self.clean_again.map_or(LOOK, |_| CLEAN_AGAIN)
    }
}

struct Round<'r> {
    keeper: &'r mut CertificateKeeper,
    authority: &'r AuthoritySettings,
    answers: &'r ChallengeAnswers,
    hook: Option<RecordHook<'r>>,
    /// The account, once it was needed.
    account: Option<Account>,
    at_once: bool,
}

impl Round<'_> {
    /// Does the work that is due for one certificate, and returns the time until the next check.
    fn keep(
        &mut self,
        wanted: &WantedCertificate,
        tell: &mut dyn FnMut(CertificateEvent<'_>),
    ) -> Duration {
        let made = self.authority.storage.make();
        let made =
            made.map_err(|error| OrderFailure::storage(self.authority.storage.directory(), &error));
        let found = made.and_then(|()| self.look(&wanted.names));
        let found = match found {
            Ok(found) => found,
            Err(failure) => return self.fail(wanted, failure, None, &Backoff::default(), tell),
        };
        let now_s = now_s();
        let due_s = match &found.pair {
            Some(pair) => self.renewal_s(wanted, pair, now_s),
            None => now_s,
        };
        let mut next_s = due_s.max(found.failed.until_s);
        if self.at_once && !found.failed.is_limited {
            next_s = due_s;
        }
        if next_s > now_s {
            let ask_s = self.keeper.windows.get(&self.file(wanted)).map_or(i64::MAX, |w| w.ask_s);
            return seconds(next_s.min(ask_s.max(now_s + 1)) - now_s);
        }
        let lock = match self.authority.storage.lock() {
            Ok(Some(lock)) => lock,
            Ok(None) => return BUSY,
            Err(error) => {
                let failure = OrderFailure::storage(self.authority.storage.directory(), &error);
                return self.fail(wanted, failure, None, &found.failed, tell);
            }
        };
        // another server may just have done it
        match self.look(&wanted.names) {
            Ok(again) if again.is_other(&found) => BUSY,
            Ok(found) => self.attempt(wanted, found, lock, tell),
            Err(failure) => self.fail(wanted, failure, Some(&lock), &found.failed, tell),
        }
    }

    fn file(&self, wanted: &WantedCertificate) -> PathBuf {
        self.authority.storage.certificate(&wanted.names)
    }

    /// Reads the files. A certificate that cannot be used counts as missing.
    fn look(&self, names: &Names) -> Result<Installed, OrderFailure> {
        let storage = &self.authority.storage;
        let read = |path: PathBuf| {
            storage::read(&path).map_err(|error| OrderFailure::storage(&path, &error))
        };
        if let Some(kept) = read(storage.account())?.as_deref().and_then(account) {
            self.answers.is_of(&kept.thumbprint);
        }
        let pair = read(storage.certificate(names))?;
        let pair = pair.and_then(|text| Pair::read(&text, &text).ok());
        let failed = read(storage.failed(names))?;
        let failed = failed.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
        Ok(Installed { pair, failed })
    }

    /// The time at which a certificate must be replaced, in seconds since 1970.
    fn renewal_s(&mut self, wanted: &WantedCertificate, pair: &Pair, now_s: i64) -> i64 {
        let Pair { not_before_s, not_after_s, .. } = *pair;
        let validity = Validity { not_before_s, not_after_s };
        let file = self.file(wanted);
        let known = self.keeper.windows.remove(&file);
        let mut window = known
            .filter(|window| window.not_after_s == not_after_s)
            .unwrap_or(RenewalWindow { not_after_s, suggested: None, ask_s: 0 });
        if window.ask_s <= now_s {
            let (suggested, pause) = self.suggestion(pair);
            window.ask_s = now_s + pause.as_secs() as i64;
            if let Some((start_s, end_s)) = suggested {
                // the random moment stays as long as the window does
                let drawn = window.suggested.filter(|(s, e, _)| (*s, *e) == (start_s, end_s));
                let at = drawn.map_or_else(fastrand::f64, |(.., at)| at);
                window.suggested = Some((start_s, end_s, at));
            }
        }
        let renewal_s = match window.suggested {
            Some((start_s, end_s, at)) => schedule::suggested_s(start_s..end_s, at, validity),
            None => validity.renewal_s(),
        };
        self.keeper.windows.insert(file, window);
        renewal_s
    }

    /// The window that the authority suggests, and how long that is valid.
    fn suggestion(&mut self, pair: &Pair) -> (Option<(i64, i64)>, Duration) {
        let usual = Duration::from_secs(6 * 3600);
        let Some(certificate) = pair.certificate() else { return (None, usual) };
        let Ok(id) = CertificateIdentifier::try_from(certificate) else { return (None, usual) };
        let Ok(Some(account)) = self.known_account() else { return (None, usual) };
        match now(account.renewal_info(&id)) {
            Ok((info, again)) => {
                let window = info.suggested_window;
                let window = (window.start.unix_timestamp(), window.end.unix_timestamp());
                (Some(window), schedule::ask_again(again))
            }
            Err(_) => (None, usual),
        }
    }

    fn http(&self) -> Box<Https> {
        let (retry_after, issuer) = (self.keeper.retry_after.clone(), self.keeper.issuer.clone());
        Box::new(Https { roots: self.authority.roots.clone(), retry_after, issuer })
    }

    /// The stored account, if there is one.
    fn known_account(&mut self) -> Result<Option<&Account>, OrderFailure> {
        if self.account.is_none() {
            let path = self.authority.storage.account();
            let text =
                storage::read(&path).map_err(|error| OrderFailure::storage(&path, &error))?;
            let Some(kept) = text.as_deref().and_then(account) else { return Ok(None) };
            let builder = Account::builder_with_http(self.http());
            let account = now(builder.from_credentials(kept.credentials));
            self.account = Some(account.map_err(|error| OrderFailure::of(&error))?);
        }
        Ok(self.account.as_ref())
    }

    /// The account, which is opened if there is none. The lock must be held.
    fn account(&mut self, _: &Lock) -> Result<Account, OrderFailure> {
        if let Some(account) = self.known_account()? {
            return Ok(account.clone());
        }
        let contact: Vec<&str> = self.authority.contact.iter().map(String::as_str).collect();
        let terms = NewAccount {
            contact: &contact,
            terms_of_service_agreed: true,
            only_return_existing: false,
        };
        let builder = Account::builder_with_http(self.http());
        let opened = now(builder.create(&terms, self.authority.directory.clone(), None));
        let (account, credentials) = opened.map_err(|error| OrderFailure {
            after: self.keeper.retry_after.take(),
            ..OrderFailure::of(&error)
        })?;
        let thumbprint = account.key_thumbprint().to_owned();
        self.answers.is_of(&thumbprint);
        let kept =
            StoredAccount { credentials, thumbprint, contact: self.authority.contact.clone() };
        self.write(self.authority.storage.account(), &kept)?;
        self.account = Some(account.clone());
        Ok(account)
    }

    /// Updates the contact at the authority if it has changed.
    fn keep_contact(&self, account: &Account) -> Result<(), OrderFailure> {
        let path = self.authority.storage.account();
        let text = storage::read(&path).map_err(|error| OrderFailure::storage(&path, &error))?;
        let Some(mut kept) = text.as_deref().and_then(self::account) else { return Ok(()) };
        if kept.contact == self.authority.contact {
            return Ok(());
        }
        let contact: Vec<&str> = self.authority.contact.iter().map(String::as_str).collect();
        now(account.update_contacts(&contact)).map_err(|error| OrderFailure::of(&error))?;
        kept.contact.clone_from(&self.authority.contact);
        self.write(path, &kept)
    }

    fn write(&self, path: PathBuf, what: &impl Serialize) -> Result<(), OrderFailure> {
        let text =
            serde_json::to_vec(what).map_err(|error| OrderFailure::of(&Error::Json(error)))?;
        storage::write(&path, &text).map_err(|error| OrderFailure::storage(&path, &error))
    }

    /// Orders a certificate, and installs it.
    fn attempt(
        &mut self,
        wanted: &WantedCertificate,
        found: Installed,
        lock: Lock,
        tell: &mut dyn FnMut(CertificateEvent<'_>),
    ) -> Duration {
        // after a failed validation, the next attempt uses the next kind of challenge
        let mut kinds = self.authority.kinds.clone();
        let places = kinds.len().max(1);
        kinds.rotate_left(found.failed.unproven as usize % places);
        let mut got = self.certificate(wanted, &found, &lock, &kinds);
        if matches!(&got, Err(OrderFailure { why: Why::AccountUnknown, .. })) {
            // the authority no longer knows the account, nor its orders: a new one is opened (RFC 8555
            // §7.3.1)
            self.account = None;
            let of_old =
                [self.authority.storage.account(), self.authority.storage.order(&wanted.names)];
            // a file that cannot be removed will be overwritten
            of_old.iter().for_each(|path| drop(storage::remove(path)));
            got = self.certificate(wanted, &found, &lock, &kinds);
        }
        for _ in 1..NONCE_ATTEMPTS {
            match &got {
                Err(OrderFailure { why: Why::StaleNonce, after: None, .. }) => {
                    got = self.certificate(wanted, &found, &lock, &kinds);
                }
                _ => break,
            }
        }
        match got {
            Ok(not_after_s) => {
                tell(CertificateEvent::Issued { site: &wanted.site, not_after_s });
                // returns soon, because the next round asks what the authority suggests for the new
                // certificate
                BUSY
            }
            Err(failure) => self.fail(wanted, failure, Some(&lock), &found.failed, tell),
        }
    }

    /// Gets a certificate, or continues its order, and installs it. Returns the expiry.
    fn certificate(
        &mut self,
        wanted: &WantedCertificate,
        found: &Installed,
        lock: &Lock,
        kinds: &[ChallengeKind],
    ) -> Result<i64, OrderFailure> {
        let account = self.account(lock)?;
        self.keep_contact(&account)?;
        let task = OrderContext {
            account: &account,
            storage: &self.authority.storage,
            names: &wanted.names,
            kinds,
            answers: self.answers,
            hook: self.hook,
            record_wait: self.authority.record_wait,
            before: found.pair.as_ref(),
            retry_after: &self.keeper.retry_after,
            issuer: &self.keeper.issuer,
        };
        let text = task.run()?;
        let file = self.file(wanted);
        let written = storage::write(&file, text.as_bytes());
        written.map_err(|error| OrderFailure::storage(&file, &error))?;
        // the process may end at any time, so the order's file is removed only after the certificate is
        // written
        let storage = &self.authority.storage;
        for done in [storage.order(&wanted.names), storage.failed(&wanted.names)] {
            storage::remove(&done).map_err(|error| OrderFailure::storage(&done, &error))?;
        }
        Ok(Pair::read(text.as_bytes(), text.as_bytes()).map_or(0, |pair| pair.not_after_s))
    }

    /// Handles a failed attempt: stores it, so that a server that is restarted again and again does not try
    /// more often, and reports it.
    fn fail(
        &mut self,
        wanted: &WantedCertificate,
        failure: OrderFailure,
        lock: Option<&Lock>,
        before: &Backoff,
        tell: &mut dyn FnMut(CertificateEvent<'_>),
    ) -> Duration {
        let times = before.times.saturating_add(1);
        let is_limited = failure.why == Why::RateLimited;
        let again = match is_limited {
            true => schedule::limited_pause(times, fastrand::f64(), failure.after),
            false => schedule::pause(times, fastrand::f64()).max(failure.after.unwrap_or_default()),
        };
        if lock.is_some() {
            let until_s = now_s() + again.as_secs() as i64;
            let reason = failure.reason.clone();
            let unproven = before.unproven.saturating_add((failure.why == Why::Unproven).into());
            let failed = Backoff { times, unproven, until_s, is_limited, reason };
            // if this fails, a restart forgets the failure; the error of the file is reported elsewhere
            let _ = self.write(self.authority.storage.failed(&wanted.names), &failed);
        }
        tell(CertificateEvent::Failed { site: &wanted.site, failure: &failure, again });
        again
    }
}

impl Installed {
    /// Whether another server has changed the certificate, or failed, in the meantime.
    fn is_other(&self, before: &Installed) -> bool {
        let end_s = |found: &Installed| found.pair.as_ref().map(|pair| pair.not_after_s);
        end_s(self) != end_s(before) || self.failed.times != before.failed.times
    }
}

fn account(text: &[u8]) -> Option<StoredAccount> {
    serde_json::from_slice(text).ok()
}

fn now_s() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() as i64
}

fn seconds(count: i64) -> Duration {
    Duration::from_secs(count.max(0) as u64)
}
