//! What is due: certificates that are missing, or to be replaced.

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

/// At least so often is looked: another server may have done what is due.
const LOOK: Duration = Duration::from_secs(3600);

/// How often an order is gone on with at once while the authority forgets its nonces; each time the library asks
/// three times with a new one.
const NONCE_ATTEMPTS: u32 = 4;

/// How long is waited for another server that orders.
const BUSY: Duration = Duration::from_secs(1);

/// After how long records of the name service that could not be removed are tried again.
const CLEAN_AGAIN: Duration = Duration::from_secs(600);

/// Keeps certificates: knows, besides what is in the files, what the authority suggests.
#[derive(Debug, Default)]
pub struct CertificateKeeper {
    windows: HashMap<PathBuf, RenewalWindow>,
    retry_after: RetryAfter,
    issuer: IssuerName,
    /// When records that could not be removed are tried again.
    clean_again: Option<Instant>,
}

/// When the authority suggests to replace a certificate.
#[derive(Clone, Debug)]
struct RenewalWindow {
    /// Of which certificate, by its end.
    not_after_s: i64,
    /// What it has suggested, and which moment of it was drawn.
    suggested: Option<(i64, i64, f64)>,
    /// When it is asked again.
    ask_s: i64,
}

/// The account, as it is kept.
#[derive(Serialize, Deserialize)]
struct StoredAccount {
    credentials: AccountCredentials,
    thumbprint: String,
    contact: Vec<String>,
}

/// How often something has failed in a row, and until when nothing is tried.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Backoff {
    times: u32,
    /// How often of these the authority has looked and not found what it should.
    unproven: u32,
    until_s: i64,
    is_limited: bool,
    reason: String,
}

/// What is there.
struct Installed {
    pair: Option<Pair>,
    failed: Backoff,
}

impl CertificateKeeper {
    /// Does what is due, one certificate after the other, and tells what came of it; `hook` makes records of the name
    /// service, where something does. With `at_once`, what has failed is tried again, unless the authority was asked
    /// too much. Returns how long there is nothing to do.
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
            // an attempt has just tried to remove them
            self.clean_again = Some(Instant::now() + CLEAN_AGAIN);
            return pause.min(clean).min(CLEAN_AGAIN);
        }
        pause.min(clean)
    }

    /// Has records removed that an attempt has left, or a server that has ended. Says after how long it is to be tried
    /// again.
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
        // they are those of an order that another server has under way
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
    /// Since it was needed.
    account: Option<Account>,
    at_once: bool,
}

impl Round<'_> {
    /// Does what is due for one certificate, and says when to look again.
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
        // another server may have just done it
        match self.look(&wanted.names) {
            Ok(again) if again.is_other(&found) => BUSY,
            Ok(found) => self.attempt(wanted, found, lock, tell),
            Err(failure) => self.fail(wanted, failure, Some(&lock), &found.failed, tell),
        }
    }

    fn file(&self, wanted: &WantedCertificate) -> PathBuf {
        self.authority.storage.certificate(&wanted.names)
    }

    /// What the files say. A certificate that cannot be used is none.
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

    /// When a certificate is to be replaced.
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
                // the moment stays while the window does
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

    /// The window that the authority suggests, and how long that counts.
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

    /// The account that is kept, if there is one.
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

    /// The account, which is opened if there is none. Only with the lock.
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

    /// Tells the authority of a contact that has changed.
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

    /// Orders a certificate, and puts it in its place.
    fn attempt(
        &mut self,
        wanted: &WantedCertificate,
        found: Installed,
        lock: Lock,
        tell: &mut dyn FnMut(CertificateEvent<'_>),
    ) -> Duration {
        // the other way, if the authority has looked in vain
        let mut kinds = self.authority.kinds.clone();
        let places = kinds.len().max(1);
        kinds.rotate_left(found.failed.unproven as usize % places);
        let mut got = self.certificate(wanted, &found, &lock, &kinds);
        if matches!(&got, Err(OrderFailure { why: Why::AccountUnknown, .. })) {
            // the authority has forgotten it, and with it its orders: another one is opened (RFC 8555 §7.3.1)
            self.account = None;
            let of_old =
                [self.authority.storage.account(), self.authority.storage.order(&wanted.names)];
            // what cannot be removed is written over
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
                // what the authority suggests for it is asked next
                BUSY
            }
            Err(failure) => self.fail(wanted, failure, Some(&lock), &found.failed, tell),
        }
    }

    /// Gets a certificate, or goes on with the order for it, and writes it: until when it holds.
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
        // a process may end at any time: only now nothing of it is needed any more
        let storage = &self.authority.storage;
        for done in [storage.order(&wanted.names), storage.failed(&wanted.names)] {
            storage::remove(&done).map_err(|error| OrderFailure::storage(&done, &error))?;
        }
        Ok(Pair::read(text.as_bytes(), text.as_bytes()).map_or(0, |pair| pair.not_after_s))
    }

    /// An attempt has failed: it is noted, so that a server that is started again and again does not ask
    /// more often, and told.
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
            // without it a restart forgets, which is told in another place
            let _ = self.write(self.authority.storage.failed(&wanted.names), &failed);
        }
        tell(CertificateEvent::Failed { site: &wanted.site, failure: &failure, again });
        again
    }
}

impl Installed {
    /// Whether another server has changed the certificate since, or has failed.
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
