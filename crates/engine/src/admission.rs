//! How many connections there are, in all and per client, and whether one more is let in.

use crate::slow_readers::{SlowReader, SlowReaders};
use forebay_conn::Rank;
use forebay_http::client::ClientKey;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Counts connections over all loops.
#[derive(Debug)]
pub struct ConnectionAdmission {
    most: AtomicUsize,
    most_per_client: AtomicUsize,
    open: AtomicUsize,
    shards: [Mutex<HashMap<ClientKey, usize>>; SHARDS],
    slow_readers: SlowReaders,
}

const SHARDS: usize = 16;

/// Why a connection was not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// The limit on all connections is reached.
    Total,
    /// The limit on this client's connections is reached.
    Client,
}

/// A place in the count. Dropping it gives it back, on whatever path a connection ends.
#[derive(Debug)]
pub struct ConnectionPlace {
    admission: Arc<ConnectionAdmission>,
    /// Which client it is counted for: none if it is a proxy's, or clients are not counted.
    client: Option<ClientKey>,
    /// As what it is among the slow.
    slow: Option<SlowReader>,
    /// It was given to another connection already: this one is cut.
    is_lost: bool,
}

impl ConnectionAdmission {
    /// At most `most` connections at once, `most_per_client` of them from one client.
    pub fn new(most: usize, most_per_client: usize) -> Arc<ConnectionAdmission> {
        Arc::new(ConnectionAdmission {
            most: AtomicUsize::new(most),
            most_per_client: AtomicUsize::new(most_per_client),
            open: AtomicUsize::new(0),
            shards: Default::default(),
            slow_readers: SlowReaders::default(),
        })
    }

    /// Other limits from now on. Connections above them stay.
    pub fn limit(&self, most: usize, most_per_client: usize) {
        self.most.store(most, Relaxed);
        self.most_per_client.store(most_per_client, Relaxed);
    }

    /// The most connections at once, and the most of one client.
    pub fn limits(&self) -> (usize, usize) {
        (self.most.load(Relaxed), self.most_per_client.load(Relaxed))
    }

    /// Connections open now.
    pub fn open(&self) -> usize {
        self.open.load(Relaxed)
    }

    /// The share of the places that are taken.
    pub fn load(&self) -> f64 {
        self.open() as f64 / self.most.load(Relaxed).max(1) as f64
    }

    /// Counts one more connection of `client`.
    ///
    /// # Errors
    /// Which limit is in the way; nothing was counted then.
    pub fn enter(self: &Arc<Self>, client: ClientKey) -> Result<ConnectionPlace, Full> {
        let mut place = self.enter_as_proxy()?;
        place.charge(client)?;
        Ok(place)
    }

    /// Counts one more connection, of a proxy: it brings the requests of many clients, or will state
    /// its client, which is then [`charge`](ConnectionPlace::charge)d.
    ///
    /// # Errors
    /// The limit on all connections.
    pub fn enter_as_proxy(self: &Arc<Self>) -> Result<ConnectionPlace, Full> {
        if self.open.fetch_add(1, Relaxed) >= self.most.load(Relaxed) {
            self.open.fetch_sub(1, Relaxed);
            return Err(Full::Total);
        }
        Ok(ConnectionPlace {
            admission: Arc::clone(self),
            client: None,
            slow: None,
            is_lost: false,
        })
    }

    /// Whether there may be one more connection, of any client.
    pub fn has_room(&self) -> bool {
        self.open() < self.most.load(Relaxed)
    }

    /// Whether this client may have one more connection, but for the limit on all.
    pub fn has_room_for(&self, client: ClientKey) -> bool {
        let most_per_client = self.most_per_client.load(Relaxed);
        most_per_client >= self.most.load(Relaxed)
            || self.shard(client).get(&client).is_none_or(|count| *count < most_per_client)
    }

    /// Whether the slowest reader could make room.
    pub(crate) fn has_slow_readers(&self) -> bool {
        !self.slow_readers.is_empty()
    }

    /// Cuts the slowest reader for a client of this rank, and gives its place back at once: the thread or loop that
    /// has it may come to it later. Says whether there was one, that is not above this rank.
    pub(crate) fn cut_slowest(&self, rank: Rank) -> bool {
        let is_cut = self.slow_readers.cut(rank);
        if is_cut {
            self.open.fetch_sub(1, Relaxed);
        }
        is_cut
    }

    fn shard(&self, client: ClientKey) -> MutexGuard<'_, HashMap<ClientKey, usize>> {
        // a panic cannot leave a count half changed
        self.shards[client.as_u64() as usize % SHARDS]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionPlace {
    /// From now on it is a place of `client`, and of no other.
    ///
    /// # Errors
    /// The limit on this client's connections; the place is no client's then.
    pub fn charge(&mut self, client: ClientKey) -> Result<(), Full> {
        self.discharge();
        let ConnectionAdmission { most, most_per_client, .. } = &*self.admission;
        let (most, most_per_client) = (most.load(Relaxed), most_per_client.load(Relaxed));
        if most_per_client < most {
            let mut clients = self.admission.shard(client);
            let count = clients.entry(client).or_insert(0);
            if *count >= most_per_client {
                return Err(Full::Client);
            }
            *count += 1;
            drop(clients);
            self.client = Some(client);
        }
        Ok(())
    }

    /// Its client is slow, as this.
    pub(crate) fn reads_slowly(&mut self, reader: SlowReader) {
        self.keeps_up();
        if !self.is_lost {
            self.admission.slow_readers.add(reader);
            self.slow = Some(reader);
        }
    }

    /// Its client is not slow, or not any more.
    #[inline]
    pub(crate) fn keeps_up(&mut self) {
        if let Some(reader) = self.slow.take() {
            self.is_lost |= !self.admission.slow_readers.remove(reader);
        }
    }

    /// Whether its client is slow.
    pub(crate) fn is_slow(&self) -> bool {
        self.slow.is_some()
    }

    fn discharge(&mut self) {
        if let Some(client) = self.client.take() {
            let mut clients = self.admission.shard(client);
            if let Some(count) = clients.get_mut(&client) {
                *count -= 1;
                if *count == 0 {
                    clients.remove(&client);
                }
            }
        }
    }
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        self.discharge();
        self.keeps_up();
        if !self.is_lost {
            self.admission.open.fetch_sub(1, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(ip: [u8; 4]) -> ClientKey {
        ClientKey::of(ip.into())
    }

    #[test]
    fn places_come_back_whatever_the_reason() {
        let admission = ConnectionAdmission::new(3, 2);
        let (a, b) = (client([10, 0, 0, 1]), client([10, 0, 0, 2]));
        let first = admission.enter(a).unwrap();
        let second = admission.enter(a).unwrap();
        assert_eq!(admission.enter(a).unwrap_err(), Full::Client);
        let third = admission.enter(b).unwrap();
        assert_eq!(admission.enter(b).unwrap_err(), Full::Total);
        assert_eq!(admission.open(), 3);
        drop((first, second, third));
        assert_eq!(admission.open(), 0);
        assert!(admission.shards.iter().all(|shard| shard.lock().unwrap().is_empty()));
    }

    #[test]
    fn who_may_have_no_more_is_known_before_anybody_leaves_for_him() {
        let admission = ConnectionAdmission::new(2, 1);
        let (a, b) = (client([10, 0, 0, 1]), client([10, 0, 0, 2]));
        let _places = [a, b].map(|client| admission.enter(client).unwrap());
        assert!(!admission.has_room_for(a) && !admission.has_room_for(b));
        assert!(admission.has_room_for(client([10, 0, 0, 3])));
        admission.limit(2, 2);
        assert!(admission.has_room_for(a));
    }

    #[test]
    fn a_proxy_is_counted_for_whom_it_speaks() {
        let admission = ConnectionAdmission::new(4, 1);
        let (a, b) = (client([10, 0, 0, 1]), client([10, 0, 0, 2]));
        let mut places: Vec<_> = (0..3).map(|_| admission.enter_as_proxy().unwrap()).collect();
        places[0].charge(a).unwrap();
        assert_eq!(places[1].charge(a).unwrap_err(), Full::Client);
        places[1].charge(b).unwrap();
        // a proxy that speaks for another client gives the first one's place back
        places[0].charge(client([10, 0, 0, 3])).unwrap();
        places[2].charge(a).unwrap();
        assert_eq!(admission.enter(a).unwrap_err(), Full::Client);
        assert_eq!(admission.open(), 3);
        drop(places);
        assert_eq!(admission.open(), 0);
        assert!(admission.shards.iter().all(|shard| shard.lock().unwrap().is_empty()));
    }
}
