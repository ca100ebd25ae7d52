//! The bound on credentials that wait to be verified. It is so low that clients that guess
//! passwords fill neither all helpers nor a long queue.

use forebay_http::client::ClientKey;
use std::collections::HashMap;
use std::net::IpAddr;
use std::num::NonZero;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

/// The largest number of waiting verifications of one client.
const MOST_OF_CLIENT: u32 = 8;
/// The largest number of waiting verifications of all clients. With 20 ms each on four threads the
/// last one waits five seconds.
const MOST: u32 = 1024;

/// The number of passwords that are verified at a time: one for each core, but at most four.
pub(super) fn lanes() -> u64 {
    cores().min(4)
}

/// The number of threads that can compute at a time.
fn cores() -> u64 {
    static CORES: OnceLock<u64> = OnceLock::new();
    *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, NonZero::get) as u64)
}

/// The requests that wait for a verdict. Locked for a look at a table, never while a password is
/// verified.
#[derive(Debug, Default)]
pub(super) struct VerificationLimit {
    waiting: Mutex<WaitingCounts>,
    left: Condvar,
}

#[derive(Debug, Default)]
struct WaitingCounts {
    clients: HashMap<ClientKey, u32>,
    all: u32,
    /// Passwords that are verified now.
    verified: u64,
}

/// The turn of one password that is being verified.
#[derive(Debug)]
pub(super) struct VerificationTurn<'c>(&'c VerificationLimit);

/// A place in the verification limit.
#[derive(Debug)]
pub(super) struct VerificationSlot {
    verification_limit: Arc<VerificationLimit>,
    client: ClientKey,
}

impl VerificationLimit {
    /// Takes a place for one more request of a client. Dropping it gives it back.
    ///
    /// # Errors
    /// The status of the refusal: 429 if the client has too many, 503 if all together have.
    pub(super) fn slot(
        self: &Arc<VerificationLimit>,
        client: IpAddr,
    ) -> Result<VerificationSlot, u16> {
        let client = ClientKey::of(client);
        let mut waiting = self.lock();
        if waiting.all >= MOST {
            return Err(503);
        }
        let mine = waiting.clients.entry(client).or_default();
        if *mine >= MOST_OF_CLIENT {
            return Err(429);
        }
        *mine += 1;
        waiting.all += 1;
        drop(waiting);
        Ok(VerificationSlot { verification_limit: Arc::clone(self), client })
    }

    /// Waits until fewer than [`lanes`] passwords are being verified. In engines whose threads do
    /// their jobs themselves no queue of the helpers limits that, and each password may take much
    /// memory.
    pub(super) fn turn(&self) -> VerificationTurn<'_> {
        let is_full = |waiting: &mut WaitingCounts| waiting.verified >= lanes();
        let waiting = self.left.wait_while(self.lock(), is_full);
        waiting.unwrap_or_else(PoisonError::into_inner).verified += 1;
        VerificationTurn(self)
    }

    fn lock(&self) -> MutexGuard<'_, WaitingCounts> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for VerificationTurn<'_> {
    fn drop(&mut self) {
        self.0.lock().verified -= 1;
        self.0.left.notify_one();
    }
}

impl Drop for VerificationSlot {
    fn drop(&mut self) {
        let mut waiting = self.verification_limit.lock();
        waiting.all -= 1;
        if let Some(mine) = waiting.clients.get_mut(&self.client) {
            *mine -= 1;
            if *mine == 0 {
                waiting.clients.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_client_has_few_slots_and_all_have_many() {
        let verification_limit = Arc::new(VerificationLimit::default());
        let client = |n: u32| IpAddr::from(n.to_be_bytes());
        let mut slots: Vec<_> =
            (0..MOST_OF_CLIENT).map(|_| verification_limit.slot(client(1)).unwrap()).collect();
        assert_eq!(verification_limit.slot(client(1)).unwrap_err(), 429);
        slots.pop();
        slots.push(verification_limit.slot(client(1)).unwrap());
        while slots.len() < MOST as usize {
            slots.push(verification_limit.slot(client(1000 + slots.len() as u32)).unwrap());
        }
        assert_eq!(verification_limit.slot(client(2)).unwrap_err(), 503);
        drop(slots);
        let waiting = verification_limit.lock();
        assert!(waiting.clients.is_empty() && waiting.all == 0);
    }

    #[test]
    fn so_many_are_verified_at_a_time() {
        let verification_limit = VerificationLimit::default();
        let most = std::sync::atomic::AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| {
                    let _turn = verification_limit.turn();
                    most.fetch_max(
                        verification_limit.lock().verified,
                        std::sync::atomic::Ordering::Relaxed,
                    );
                    std::thread::sleep(std::time::Duration::from_millis(2));
                });
            }
        });
        assert!((1..=lanes()).contains(&most.into_inner()));
        assert_eq!(verification_limit.lock().verified, 0);
    }

    #[test]
    fn an_ipv6_network_is_one_client() {
        let verification_limit = Arc::new(VerificationLimit::default());
        let slots: Vec<_> = (0..MOST_OF_CLIENT)
            .map(|n| verification_limit.slot(format!("2001:db8::{n}").parse().unwrap()).unwrap())
            .collect();
        assert_eq!(verification_limit.slot("2001:db8::ffff".parse().unwrap()).unwrap_err(), 429);
        assert!(verification_limit.slot("2001:db8:0:1::".parse().unwrap()).is_ok());
        drop(slots);
    }
}
