//! The encryption of the tickets with which clients resume a session (RFC 8446 §4.6.1, RFC 5077).
//!
//! In: the state of a session, by rustls. Out: a ticket that only the holder of the keys can
//! decrypt. The keys can be [taken along](TicketSealer::keys), so that the process which takes the
//! place of this one decrypts them too.

use aws_lc_rs::aead::{AES_256_GCM, Aad, Nonce, RandomizedNonceKey};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::rand;
use rustls::server::ProducesTickets;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// The time for which a key encrypts, in seconds.
const SEALS_S: u64 = 6 * 3600;

/// The time for which a key decrypts: the last ticket that it encrypted is valid for as long as a
/// key encrypts.
const OPENS_S: u64 = 2 * SEALS_S;

const NAME_BYTES: usize = 16;
const NONCE_BYTES: usize = 12;

/// Encrypts and decrypts tickets, with keys that change every six hours and decrypt for twelve.
///
/// The holder of the keys can decrypt what clients bring, and, without (EC)DHE on resumption, what
/// they send: keys that were used are dropped, and none is ever written to a disk.
pub struct TicketSealer(Mutex<TicketKeys>);

/// The keys of a [`TicketSealer`].
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TicketKeys {
    current: TicketKey,
    previous: Option<TicketKey>,
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
struct TicketKey {
    /// The name of the key at the beginning of each ticket, by which the key is found.
    name: [u8; NAME_BYTES],
    secret: [u8; 32],
    /// The time when the key was made, in seconds since 1970. A clock that is set back keeps the
    /// key for longer by as much.
    since_s: u64,
}

/// Prints no secrets.
impl fmt::Debug for TicketKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TicketKeys").field("since_s", &self.current.since_s).finish_non_exhaustive()
    }
}

impl fmt::Debug for TicketSealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TicketSealer").finish_non_exhaustive()
    }
}

impl TicketSealer {
    /// A sealer with new keys.
    ///
    /// # Errors
    /// Lack of random numbers.
    pub fn new() -> Result<TicketSealer, Unspecified> {
        let current = TicketKey::new(now_s())?;
        Ok(TicketSealer::with(TicketKeys { current, previous: None }))
    }

    /// A sealer with keys of another process. A key from the future counts as made now, or it would
    /// never change.
    pub fn with(mut keys: TicketKeys) -> TicketSealer {
        let now_s = now_s();
        for key in std::iter::once(&mut keys.current).chain(&mut keys.previous) {
            key.since_s = key.since_s.min(now_s);
        }
        TicketSealer(Mutex::new(keys))
    }

    /// The current keys.
    pub fn keys(&self) -> TicketKeys {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, TicketKeys> {
        // keys are replaced as a whole, so a panic leaves none half changed
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn seal(&self, plain: &[u8], now_s: u64) -> Result<Vec<u8>, Unspecified> {
        let key = {
            let mut keys = self.lock();
            if keys.current.age_s(now_s) >= SEALS_S {
                let new = TicketKey::new(now_s)?;
                keys.previous = Some(std::mem::replace(&mut keys.current, new));
            }
            keys.current.clone()
        };
        let mut sealed = plain.to_vec();
        let nonce = key.cipher()?.seal_in_place_append_tag(Aad::from(key.name), &mut sealed)?;
        Ok([&key.name[..], nonce.as_ref(), &sealed].concat())
    }

    fn open(&self, ticket: &[u8], now_s: u64) -> Option<Vec<u8>> {
        let (name, rest) = ticket.split_first_chunk::<NAME_BYTES>()?;
        let (nonce, sealed) = rest.split_first_chunk::<NONCE_BYTES>()?;
        let key = {
            let keys = self.lock();
            let mut known = [Some(&keys.current), keys.previous.as_ref()].into_iter().flatten();
            known.find(|key| key.name == *name && key.age_s(now_s) < OPENS_S)?.clone()
        };
        let mut plain = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let opened =
            key.cipher().ok()?.open_in_place(nonce, Aad::from(key.name), &mut plain).ok()?;
        let bytes = opened.len();
        plain.truncate(bytes);
        Some(plain)
    }
}

impl TicketKey {
    fn new(since_s: u64) -> Result<TicketKey, Unspecified> {
        let (mut name, mut secret) = ([0; NAME_BYTES], [0; 32]);
        rand::fill(&mut name)?;
        rand::fill(&mut secret)?;
        Ok(TicketKey { name, secret, since_s })
    }

    fn age_s(&self, now_s: u64) -> u64 {
        now_s.saturating_sub(self.since_s)
    }

    fn cipher(&self) -> Result<RandomizedNonceKey, Unspecified> {
        RandomizedNonceKey::new(&AES_256_GCM, &self.secret)
    }
}

impl ProducesTickets for TicketSealer {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        OPENS_S as u32
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.seal(plain, now_s()).ok()
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        self.open(cipher, now_s())
    }
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_opened_by_whoever_has_the_keys_and_by_nobody_else() {
        let sealer = TicketSealer::new().unwrap();
        let ticket = sealer.encrypt(b"session").unwrap();
        assert_eq!(sealer.decrypt(&ticket).unwrap(), b"session");
        let text = serde_json::to_vec(&sealer.keys()).unwrap();
        let successor = TicketSealer::with(serde_json::from_slice(&text).unwrap());
        assert_eq!(successor.decrypt(&ticket).unwrap(), b"session");
        assert_eq!(TicketSealer::new().unwrap().decrypt(&ticket), None);
        assert_ne!(sealer.encrypt(b"session").unwrap(), ticket);
    }

    #[test]
    fn what_is_not_whole_is_no_ticket() {
        let sealer = TicketSealer::new().unwrap();
        let ticket = sealer.encrypt(b"session").unwrap();
        for bytes in 0..ticket.len() {
            assert_eq!(sealer.decrypt(&ticket[..bytes]), None, "{bytes} bytes");
            let mut other = ticket.clone();
            other[bytes] ^= 1;
            assert_eq!(sealer.decrypt(&other), None, "byte {bytes}");
        }
        assert_eq!(sealer.decrypt(&[&ticket[..], b"x"].concat()), None);
    }

    #[test]
    fn keys_change_every_six_hours_and_open_for_twelve() {
        let sealer = TicketSealer::new().unwrap();
        let start = now_s();
        let first = sealer.seal(b"1", start + SEALS_S - 1).unwrap();
        let second = sealer.seal(b"2", start + SEALS_S + 1).unwrap();
        assert_ne!(first[..NAME_BYTES], second[..NAME_BYTES]);
        assert!(sealer.open(&first, start + OPENS_S - 1).is_some());
        assert_eq!(sealer.open(&first, start + OPENS_S + 1), None);
        assert!(sealer.open(&second, start + OPENS_S + 1).is_some());
        // no client connected for days
        assert_eq!(sealer.open(&second, start + 10 * OPENS_S), None);
    }

    #[test]
    fn keys_are_not_printed() {
        let sealer = TicketSealer::new().unwrap();
        let secret = format!("{:?}", sealer.keys().current.secret);
        let printed = format!("{sealer:?} {:?}", sealer.keys());
        assert!(!printed.contains(&secret) && !printed.contains("secret"), "{printed}");
    }
}
