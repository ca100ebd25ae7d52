//! One order: from its beginning, or from where a crash has interrupted it, to a certificate.

use crate::answers::{ChallengeAnswers, ChallengeKind};
use crate::https::{HttpsError, IssuerName, RetryAfter, now};
use crate::order_failure::{OrderFailure, Why};
use crate::problems::{kind, words};
use crate::records::{self, ChallengeRecord, RecordHook};
use crate::storage::{self, Names, Storage};
use forebay_tls::Pair;
use instant_acme::{
    Account, AuthorizationStatus, AuthorizedIdentifier, CertificateIdentifier, Challenge, Error,
    Identifier, NewOrder, Order, OrderStatus,
};
use rcgen::{CertificateParams, CustomExtension, DistinguishedName, KeyPair};
use serde::{Deserialize, Serialize};
use std::thread;
use std::time::{Duration, Instant};

/// The longest time that an authority may take to validate names, and to issue a certificate.
const LIMIT: Duration = Duration::from_secs(180);

/// The first pause between two checks of an order.
const FIRST_LOOK: Duration = Duration::from_millis(250);
const LAST_LOOK: Duration = Duration::from_secs(5);
/// The longest pause that the authority can ask for.
const LONGEST_LOOK: Duration = Duration::from_secs(30);

/// An order under way, in its stored form.
#[derive(Serialize, Deserialize)]
struct StoredOrder {
    url: String,
    key: String,
}

/// The settings and the account of an order.
pub(crate) struct OrderContext<'t> {
    pub(crate) account: &'t Account,
    pub(crate) storage: &'t Storage,
    pub(crate) names: &'t Names,
    /// The kinds of challenges that may be used, the preferred one first.
    pub(crate) kinds: &'t [ChallengeKind],
    pub(crate) answers: &'t ChallengeAnswers,
    /// The function that makes DNS records, if there is one.
    pub(crate) hook: Option<RecordHook<'t>>,
    /// The wait after DNS records are made.
    pub(crate) record_wait: Duration,
    /// The certificate that will be replaced, if there is one.
    pub(crate) before: Option<&'t Pair>,
    pub(crate) retry_after: &'t RetryAfter,
    pub(crate) issuer: &'t IssuerName,
}

impl OrderContext<'_> {
    /// Gets a certificate: its chain and its key in PEM. An order that was begun before is continued. The
    /// order stays stored until the certificate is installed.
    pub(crate) fn run(&self) -> Result<String, OrderFailure> {
        // an earlier `Retry-After` was about something else
        self.retry_after.take();
        let shown = ShownProof { answers: self.answers, names: self.names };
        let result = self.order();
        drop(shown);
        // records that cannot be removed now stay noted; that is no reason to have no certificate
        let _ = records::clean_up(&self.storage.records(self.names), self.hook);
        let file = self.storage.order(self.names);
        match &result {
            // the next attempt may continue the order
            Ok(_)
            | Err(OrderFailure {
                why: Why::Unreachable | Why::StaleNonce | Why::Storage | Why::Hook,
                ..
            }) => {}
            _ => storage::remove(&file).map_err(|error| OrderFailure::storage(&file, &error))?,
        }
        result
    }

    fn order(&self) -> Result<String, OrderFailure> {
        // an order from before may be in any state, so each step is taken only where it is due
        let (mut order, key) = match self.kept()? {
            Some(kept) => kept,
            None => self.begin()?,
        };
        if order.state().status == OrderStatus::Pending {
            self.prove(&mut order)?;
            self.wait(&mut order, |status| status != OrderStatus::Pending)?;
        }
        if order.state().status == OrderStatus::Ready {
            self.finalize(&mut order, &key)?;
            self.wait(&mut order, |status| {
                !matches!(status, OrderStatus::Ready | OrderStatus::Processing)
            })?;
        }
        match order.state().status {
            OrderStatus::Invalid => return Err(self.reason(&mut order)),
            OrderStatus::Valid => {}
            _ => self.wait(&mut order, |status| status == OrderStatus::Valid)?,
        }
        let chain = now(order.certificate()).map_err(|error| self.failed(&error))?;
        let chain =
            chain.ok_or_else(|| OrderFailure::new(Why::Refused, "there is no certificate"))?;
        let both = chain.trim_end().to_owned() + "\n" + &key;
        self.check(&both)?;
        Ok(both)
    }

    /// The order that was under way when the server ended, if it can be continued.
    fn kept(&self) -> Result<Option<(Order, String)>, OrderFailure> {
        let file = self.storage.order(self.names);
        let read = storage::read(&file).map_err(|error| OrderFailure::storage(&file, &error))?;
        let Some(StoredOrder { url, key }) =
            read.and_then(|text| serde_json::from_slice(&text).ok())
        else {
            return Ok(None);
        };
        match now(self.account.order(url)) {
            Ok(mut order) => {
                let is_good = order.state().status != OrderStatus::Invalid;
                Ok(is_good.then_some((order, key)))
            }
            Err(error) => match self.failed(&error) {
                failure if matches!(failure.why, Why::Unreachable | Why::StaleNonce) => {
                    Err(failure)
                }
                // the authority no longer knows the order
                _ => Ok(None),
            },
        }
    }

    /// A new order. It is stored before anything else is done for it.
    fn begin(&self) -> Result<(Order, String), OrderFailure> {
        let identifiers: Vec<Identifier> =
            self.names.all().iter().map(|host| Identifier::Dns(host.clone())).collect();
        let replaces = self.before.and_then(Pair::certificate);
        let replaces = replaces.and_then(|before| CertificateIdentifier::try_from(before).ok());
        let plain = || now(self.account.new_order(&NewOrder::new(&identifiers)));
        let order = match replaces {
            None => plain(),
            // if the authority does not accept the replaced certificate, or has one replaced already, it is
            // left out
            Some(before) => {
                let order = NewOrder::new(&identifiers).replaces(before);
                match now(self.account.new_order(&order)) {
                    Err(error) if must_not_replace(&error) => plain(),
                    ordered => ordered,
                }
            }
        };
        let order = order.map_err(|error| self.failed(&error))?;
        let made = KeyPair::generate().map_err(|error| unmade(&error))?.serialize_pem();
        let kept = StoredOrder { url: order.url().to_owned(), key: made };
        let file = self.storage.order(self.names);
        let text =
            serde_json::to_vec(&kept).map_err(|error| OrderFailure::of(&Error::Json(error)))?;
        storage::write(&file, &text).map_err(|error| OrderFailure::storage(&file, &error))?;
        Ok((order, kept.key))
    }

    /// Has the authority validate the names.
    fn prove(&self, order: &mut Order) -> Result<(), OrderFailure> {
        let mut wanted = Vec::new();
        let mut authorizations = order.authorizations();
        while let Some(authorization) = now(authorizations.next()) {
            let mut authorization = authorization.map_err(|error| self.failed(&error))?;
            match authorization.status {
                AuthorizationStatus::Pending => {}
                AuthorizationStatus::Valid => continue,
                // the order will become invalid, and say why
                _ => return Ok(()),
            }
            let identifier = authorization.identifier();
            let (host, is_wildcard) = (host_of(&identifier), identifier.wildcard);
            let offers = |kind: &&ChallengeKind| {
                authorization.challenges.iter().any(|challenge| challenge.r#type == kind.name())
            };
            let mut kinds =
                self.kinds.iter().filter(|kind| !is_wildcard || kind.is_by_name_service());
            let usual = is_wildcard.then_some(&ChallengeKind::Dns);
            let Some(kind) = kinds.find(offers).or(usual.filter(offers)).copied() else {
                let words = format!("the authority offers no way to show that {host} is ours");
                return Err(OrderFailure::new(Why::Refused, words));
            };
            let Some(mut challenge) = authorization.challenge(kind.name()) else { continue };
            let proven = challenge.key_authorization();
            match kind {
                // the operator has made the record
                ChallengeKind::Http | ChallengeKind::Persist => {}
                ChallengeKind::TlsAlpn => {
                    let (certificate, key) = proof(&host, proven.digest().as_ref())?;
                    let shown = self.answers.proofs.show(&host, &certificate, &key);
                    shown.map_err(|error| OrderFailure::new(Why::Refused, error.to_string()))?;
                }
                ChallengeKind::Dns => {
                    let host = host.strip_prefix("*.").unwrap_or(&host);
                    let (value, token) = (proven.dns_value(), &challenge.token);
                    let record = ChallengeRecord::new(host, value, token, self.account.id());
                    wanted.push((challenge.url.clone(), record));
                    continue;
                }
            }
            now(challenge.set_ready()).map_err(|error| {
                let failure = self.failed(&error);
                match (kind, failure.why) {
                    // the authority validates it at once
                    (ChallengeKind::Persist, Why::Unproven) => OrderFailure {
                        reason: self.unproven(&host, &failure.reason, true),
                        ..failure
                    },
                    _ => failure,
                }
            })?;
        }
        self.prove_by_records(order, wanted)
    }

    /// Has the authority look up DNS records for the challenges at these URLs. A wildcard and the name above
    /// it have two records of one name, so all records are made before the first lookup.
    fn prove_by_records(
        &self,
        order: &mut Order,
        wanted: Vec<(String, ChallengeRecord)>,
    ) -> Result<(), OrderFailure> {
        if wanted.is_empty() {
            return Ok(());
        }
        let (urls, records): (Vec<_>, Vec<_>) = wanted.into_iter().unzip();
        records::present(self.storage, self.names, &records, self.hook)?;
        thread::sleep(self.record_wait);
        let mut authorizations = order.authorizations();
        while let Some(authorization) = now(authorizations.next()) {
            let mut authorization = authorization.map_err(|error| self.failed(&error))?;
            let Some(mut challenge) = authorization.challenge(ChallengeKind::Dns.name()) else {
                continue;
            };
            if urls.contains(&challenge.url) {
                now(challenge.set_ready()).map_err(|error| self.failed(&error))?;
            }
        }
        Ok(())
    }

    fn finalize(&self, order: &mut Order, key: &str) -> Result<(), OrderFailure> {
        let key = KeyPair::from_pem(key).map_err(|error| unmade(&error))?;
        let params = CertificateParams::new(self.names.all());
        let mut params = params.map_err(|error| unmade(&error))?;
        params.distinguished_name = DistinguishedName::new();
        let request = params.serialize_request(&key).map_err(|error| unmade(&error))?;
        now(order.finalize_csr(request.der())).map_err(|error| self.failed(&error))
    }

    /// Waits until `is_over` holds for the order's status.
    fn wait(
        &self,
        order: &mut Order,
        is_over: impl Fn(OrderStatus) -> bool,
    ) -> Result<(), OrderFailure> {
        let (began, mut pause) = (Instant::now(), FIRST_LOOK);
        while !is_over(order.state().status) {
            if began.elapsed() > LIMIT {
                let words = "the authority has not done its part in time";
                return Err(OrderFailure::new(Why::Unreachable, words));
            }
            let said = self.retry_after.take().unwrap_or_default();
            thread::sleep(pause.max(said.min(LONGEST_LOOK)));
            pause = (pause * 2).min(LAST_LOOK);
            now(order.refresh()).map_err(|error| self.failed(&error))?;
            if order.state().status == OrderStatus::Invalid {
                return Err(self.reason(order));
            }
        }
        Ok(())
    }

    /// The reason why an order is invalid.
    fn reason(&self, order: &mut Order) -> OrderFailure {
        let problem = order.state().error.clone();
        let mut authorizations = order.authorizations();
        while let Some(Ok(mut authorization)) = now(authorizations.next()) {
            let Ok(state) = now(authorization.refresh()) else { continue };
            let errors = state.challenges.iter().find_map(|challenge| challenge.error.as_ref());
            if state.status == AuthorizationStatus::Invalid
                && let Some(problem) = errors
            {
                let host = host_of(&state.identifier());
                let persist = ChallengeKind::Persist.name();
                let is_failed = |c: &Challenge| c.r#type == persist && c.error.is_some();
                let is_persistent = state.challenges.iter().any(is_failed);
                let words = self.unproven(&host, &words(problem), is_persistent);
                return OrderFailure::new(Why::Unproven, words);
            }
        }
        match problem {
            Some(problem) => OrderFailure::of(&Error::Api(problem)),
            None => OrderFailure::new(Why::Refused, "the order has become invalid"),
        }
    }

    /// The message that validation has failed; where a permanent record is used, with that record.
    fn unproven(&self, host: &str, why: &str, is_persistent: bool) -> String {
        let record = match is_persistent {
            true => format!("; this record must stand: {}", self.persistent(host)),
            false => String::new(),
        };
        format!("the authority could not see that {host} is ours: {why}{record}")
    }

    /// The permanent record that the operator must make for a host, with or without its wildcard.
    fn persistent(&self, host: &str) -> String {
        let host = host.strip_prefix("*.").unwrap_or(host);
        let star = format!("*.{host}");
        let has_wildcard = self.names.all().contains(&star);
        let issuer = self.issuer.get();
        records::persistent(host, issuer.as_deref(), self.account.id(), has_wildcard)
    }

    /// Checks that the certificate is the one that was ordered.
    fn check(&self, text: &str) -> Result<(), OrderFailure> {
        let wrong = |words: String| OrderFailure::new(Why::Refused, words);
        let pair = Pair::read(text.as_bytes(), text.as_bytes());
        let pair = pair.map_err(|error| wrong(format!("what the authority has made: {error}")))?;
        match self.names.all().iter().find(|host| !pair.covers(host)) {
            Some(host) => Err(wrong(format!("what the authority has made is not for {host}"))),
            None => Ok(()),
        }
    }

    /// The failure for an error of the library, with the authority's `Retry-After`.
    fn failed(&self, error: &Error) -> OrderFailure {
        OrderFailure { after: self.retry_after.take(), ..OrderFailure::of(error) }
    }
}

/// The certificates for tls-alpn-01, which are removed when the attempt is over.
struct ShownProof<'t> {
    answers: &'t ChallengeAnswers,
    names: &'t Names,
}

impl Drop for ShownProof<'_> {
    fn drop(&mut self) {
        self.names.all().iter().for_each(|host| self.answers.proofs.hide(host));
    }
}

/// Whether the authority does not know the field for the replaced certificate, or has seen it in another
/// order.
fn must_not_replace(error: &Error) -> bool {
    match error {
        Error::Unsupported(_) => true,
        Error::Other(other) => !other.is::<HttpsError>(),
        Error::Api(problem) => {
            kind(problem) == "alreadyReplaced" || words(problem).contains("replace")
        }
        _ => false,
    }
}

/// The certificate for tls-alpn-01 (RFC 8737 §3), and its key, in DER.
fn proof(host: &str, digest: &[u8]) -> Result<(Vec<u8>, Vec<u8>), OrderFailure> {
    let key = KeyPair::generate().map_err(|error| unmade(&error))?;
    let mut params = CertificateParams::new([host.to_owned()]).map_err(|error| unmade(&error))?;
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
    let certificate = params.self_signed(&key).map_err(|error| unmade(&error))?;
    Ok((certificate.der().to_vec(), key.serialize_der()))
}

fn unmade(error: &rcgen::Error) -> OrderFailure {
    OrderFailure::new(Why::Refused, format!("cannot make a key or a request: {error}"))
}

fn host_of(identifier: &AuthorizedIdentifier<'_>) -> String {
    identifier.to_string()
}
