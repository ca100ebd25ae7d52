//! The number of connections, in all and per client, and whether one more is let in.

use crate::room::slow_readers::{SlowReader, SlowReaders};
use crate::room::standing::{ClientPlaces, CutOutcome, Standing, Yielding};
use forebay_conn::Rank;
use forebay_http::client::ClientKey;
use forebay_sys::socket::SocketNumber;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Counts connections over all loops.
#[derive(Debug)]
pub struct ConnectionAdmission {
    most: AtomicUsize,
    most_per_client: AtomicUsize,
    open: AtomicUsize,
    shards: [Mutex<HashMap<ClientKey, ClientPlaces>>; SHARDS],
    slow_readers: SlowReaders,
    /// The lowest class that a connection that gives way has had; above the first, there have been
    /// some.
    lowest: AtomicU8,
    /// The connections that clients have in other processes, which count for the same limit.
    elsewhere: Mutex<HashMap<ClientKey, usize>>,
    /// Whether any client has connections in other processes.
    has_elsewhere: AtomicBool,
}

const SHARDS: usize = 16;

/// The reason why a connection was not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// The limit on all connections is reached.
    Total,
    /// The limit on this client's connections is reached.
    Client,
}

impl Full {
    /// The setting that this limit comes from.
    pub fn key(self) -> &'static str {
        match self {
            Full::Total => "limits.connections",
            Full::Client => "limits.connections_per_client",
        }
    }

    /// The reason in the answer to the client.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Full::Total => "too many connections (limits.connections)",
            Full::Client => "too many connections of one client (limits.connections_per_client)",
        }
    }
}

/// A place in the count. Dropping it gives it back, on whatever path a connection ends.
#[derive(Debug)]
pub struct ConnectionPlace {
    admission: Arc<ConnectionAdmission>,
    /// The client for which the place is counted; `None` for a proxy's, or where clients are not
    /// counted.
    client: Option<ClientKey>,
    /// The connection's entry among the slow readers.
    slow: Option<Box<SlowReader>>,
    /// The connection's entry among those that give way, and the client in whose list it is.
    standing: Option<Box<(ClientKey, Arc<Standing>)>>,
    /// The place was given to another connection already, and this one is cut.
    is_lost: bool,
}

impl ConnectionAdmission {
    /// Counts at most `most` connections at once, `most_per_client` of them from one client.
    pub fn new(most: usize, most_per_client: usize) -> Arc<ConnectionAdmission> {
        Arc::new(ConnectionAdmission {
            most: AtomicUsize::new(most),
            most_per_client: AtomicUsize::new(most_per_client),
            open: AtomicUsize::new(0),
            shards: Default::default(),
            slow_readers: SlowReaders::default(),
            lowest: AtomicU8::new(Rank::FIRST.0),
            elsewhere: Mutex::default(),
            has_elsewhere: AtomicBool::new(false),
        })
    }

    /// The number of connections that each client has here, as far as clients are counted.
    pub fn clients(&self) -> Vec<(ClientKey, usize)> {
        let of_shard = |shard: &Mutex<HashMap<ClientKey, ClientPlaces>>| {
            let clients = lock(shard);
            let counted = clients.iter().filter(|(_, places)| places.count > 0);
            counted.map(|(client, places)| (*client, places.count)).collect::<Vec<_>>()
        };
        self.shards.iter().flat_map(of_shard).collect()
    }

    /// Sets the connections that clients have in other processes, which count for the same limit.
    pub fn set_elsewhere(&self, clients: HashMap<ClientKey, usize>) {
        self.has_elsewhere.store(!clients.is_empty(), Relaxed);
        *lock(&self.elsewhere) = clients;
    }

    /// The number of connections that this client may have here.
    #[inline]
    fn most_of(&self, client: ClientKey) -> usize {
        let most = self.most_per_client.load(Relaxed);
        match self.has_elsewhere.load(Relaxed) {
            false => most,
            true => most.saturating_sub(lock(&self.elsewhere).get(&client).copied().unwrap_or(0)),
        }
    }

    /// Sets other limits. Connections above them stay.
    pub fn limit(&self, most: usize, most_per_client: usize) {
        self.most.store(most, Relaxed);
        self.most_per_client.store(most_per_client, Relaxed);
    }

    /// The limits on connections at once, in all and per client.
    pub fn limits(&self) -> (usize, usize) {
        (self.most.load(Relaxed), self.most_per_client.load(Relaxed))
    }

    /// The number of connections that are open now.
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
    /// The limit that is reached; nothing was counted then.
    pub fn enter(self: &Arc<Self>, client: ClientKey) -> Result<ConnectionPlace, Full> {
        let mut place = self.enter_as_proxy()?;
        place.charge(client)?;
        Ok(place)
    }

    /// Counts a connection of this rank, for which one of a lower class of the same client gives
    /// way if need be. Returns whether one did.
    ///
    /// # Errors
    /// As [`enter`](ConnectionAdmission::enter).
    pub(crate) fn enter_above(
        self: &Arc<Self>,
        client: ClientKey,
        rank: Rank,
    ) -> Result<(ConnectionPlace, bool), Full> {
        let mut place = self.enter_as_proxy()?;
        let has_cut = place.charge_above(client, rank)?;
        Ok((place, has_cut))
    }

    /// Counts one more connection, of a proxy: it brings the requests of many clients, or will
    /// state its client, which is then [`charge`](ConnectionPlace::charge)d.
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
            standing: None,
            is_lost: false,
        })
    }

    /// Whether there may be one more connection, of any client.
    pub fn has_room(&self) -> bool {
        self.open() < self.most.load(Relaxed)
    }

    /// Whether this client may have one more connection, as far as its own limit goes.
    pub fn has_room_for(&self, client: ClientKey) -> bool {
        let most_per_client = self.most_per_client.load(Relaxed);
        most_per_client >= self.most.load(Relaxed) || {
            let count = self.shard(client).get(&client).map_or(0, |places| places.count);
            count < self.most_of(client)
        }
    }

    /// Whether a connection of the first class could have the place of one of a lower class.
    #[inline]
    pub(crate) fn has_yielding(&self) -> bool {
        self.lowest.load(Relaxed) > Rank::FIRST.0
    }

    /// Whether a connection of the first class could have the place of one of the same client.
    pub(crate) fn has_yielding_of(&self, client: ClientKey) -> bool {
        let has_any = |places: &ClientPlaces| places.first(Rank::FIRST, true).is_some();
        self.has_yielding() && self.shard(client).get(&client).is_some_and(has_any)
    }

    /// Whether the slowest reader could make room.
    pub(crate) fn has_slow_readers(&self) -> bool {
        !self.slow_readers.is_empty()
    }

    /// Cuts the slowest reader for a client of this rank, and gives its place back at once: the
    /// thread or loop that has it may come to it later. Returns whether there was one that is not
    /// above this rank.
    pub(crate) fn cut_slowest(&self, rank: Rank) -> bool {
        let is_cut = self.slow_readers.cut(rank);
        if is_cut {
            self.open.fetch_sub(1, Relaxed);
        }
        is_cut
    }

    /// Cuts a connection of the lowest class there is for one of this rank, which is above it, and
    /// gives its place back at once. Returns whether there was one. The search looks at all that
    /// give way.
    #[cold]
    pub(crate) fn cut_lower(&self, rank: Rank) -> bool {
        if self.lowest.load(Relaxed) <= rank.0 {
            return false;
        }
        loop {
            let first = |(number, shard): (usize, &Mutex<HashMap<ClientKey, ClientPlaces>>)| {
                let clients = lock(shard);
                let firsts = clients.iter().filter_map(|(client, places)| {
                    places.first(rank, false).map(|(_, yields)| (yields, number, *client))
                });
                firsts.max_by_key(|(yields, ..)| *yields)
            };
            let firsts = self.shards.iter().enumerate().filter_map(first);
            let Some((_, number, client)) = firsts.max_by_key(|(yields, ..)| *yields) else {
                return false;
            };
            let mut clients = lock(&self.shards[number]);
            // the client may have left meanwhile, and then another one is first
            let Some(places) = clients.get_mut(&client) else { continue };
            let outcome = places.cut(rank, false, &self.slow_readers);
            if places.is_empty() {
                clients.remove(&client);
            }
            if outcome == CutOutcome::Cut {
                self.open.fetch_sub(1, Relaxed);
                return true;
            }
        }
    }

    fn shard(&self, client: ClientKey) -> MutexGuard<'_, HashMap<ClientKey, ClientPlaces>> {
        lock(&self.shards[client.as_u64() as usize % SHARDS])
    }
}

fn lock<T>(counts: &Mutex<T>) -> MutexGuard<'_, T> {
    // a panic cannot leave a count half changed
    counts.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ConnectionPlace {
    /// Charges the place to `client`, and to no other client.
    ///
    /// # Errors
    /// The limit on this client's connections; the place is then charged to no client.
    pub fn charge(&mut self, client: ClientKey) -> Result<(), Full> {
        self.charge_above(client, Rank::LAST).map(|_| ())
    }

    /// Charges the place of a connection of this rank to `client`; one of a lower class of the same
    /// client gives way if need be. Returns whether one did.
    ///
    /// # Errors
    /// As [`charge`](ConnectionPlace::charge).
    pub(crate) fn charge_above(&mut self, client: ClientKey, rank: Rank) -> Result<bool, Full> {
        self.leave_yielding();
        self.discharge();
        let admission = &*self.admission;
        let most_per_client = admission.most_per_client.load(Relaxed);
        if most_per_client >= admission.most.load(Relaxed) || self.is_lost {
            return Ok(false);
        }
        let mut clients = admission.shard(client);
        let places = clients.entry(client).or_default();
        let mut has_cut = false;
        if places.count >= admission.most_of(client) {
            match places.cut(rank, true, &admission.slow_readers) {
                CutOutcome::None => {
                    // this client has all its connections in another process
                    if places.is_empty() {
                        clients.remove(&client);
                    }
                    return Err(Full::Client);
                }
                CutOutcome::WasCut => {}
                CutOutcome::Cut => {
                    admission.open.fetch_sub(1, Relaxed);
                    has_cut = true;
                }
            }
        }
        places.count += 1;
        self.client = Some(client);
        Ok(has_cut)
    }

    /// Whether another connection of this client, of a lower class, could give way to this one.
    pub(crate) fn has_yielding_of(&self, client: ClientKey) -> bool {
        self.admission.has_yielding_of(client)
    }

    /// Whether the connection must be published as giving way, now that it has this rank: all must
    /// but those that have only been of the first.
    #[inline]
    pub(crate) fn stands(&self, rank: Rank) -> bool {
        rank != Rank::FIRST || self.standing.is_some()
    }

    /// Publishes, after a turn, that the connection has this rank and is idle or not. Below the
    /// first class it gives way to higher ones from then on. `client` is the connection's client,
    /// also where it is not counted for that client.
    #[inline]
    pub(crate) fn stand(
        &mut self,
        rank: Rank,
        is_idle: bool,
        client: ClientKey,
        socket: impl FnOnce() -> SocketNumber,
    ) {
        match self.standing.as_deref() {
            Some((_, standing)) => standing.note(rank, is_idle),
            None if !self.stands(rank) || self.is_lost => {}
            None => self.begin_to_yield(Standing::new(rank, is_idle), rank, client, socket()),
        }
    }

    #[cold]
    fn begin_to_yield(
        &mut self,
        standing: Standing,
        rank: Rank,
        client: ClientKey,
        socket: SocketNumber,
    ) {
        let (client, standing) = (self.client.unwrap_or(client), Arc::new(standing));
        let admission = &*self.admission;
        admission.lowest.fetch_max(rank.0, Relaxed);
        let yielding = Yielding {
            standing: Arc::clone(&standing),
            socket,
            is_counted: self.client.is_some(),
            slow: self.slow.as_deref().copied(),
        };
        admission.shard(client).entry(client).or_default().yielding.push(yielding);
        self.standing = Some(Box::new((client, standing)));
    }

    /// Removes the connection from those that give way: it ends, or its socket leaves.
    pub(crate) fn leave_yielding(&mut self) {
        let Some(standing) = self.standing.take() else { return };
        let (client, standing) = *standing;
        let mut clients = self.admission.shard(client);
        let places = clients.get_mut(&client);
        let at = places.as_ref().and_then(|places| places.position(&standing));
        match (places, at) {
            (Some(places), Some(at)) => {
                places.yielding.swap_remove(at);
                if places.is_empty() {
                    clients.remove(&client);
                }
            }
            // it was cut, and both counts were given back then
            _ => (self.is_lost, self.client) = (true, None),
        }
    }

    /// Adds the connection, whose client is slow, to the slow readers.
    pub(crate) fn reads_slowly(&mut self, reader: SlowReader) {
        self.keeps_up();
        if self.is_lost {
            return;
        }
        let Some((client, standing)) = self.standing.as_deref() else {
            self.admission.slow_readers.add(reader);
            self.slow = Some(Box::new(reader));
            return;
        };
        // into both lists under one lock, as only one of them may cut the connection
        let mut clients = self.admission.shard(*client);
        let places = clients.get_mut(client);
        let one = places.and_then(|places| {
            let at = places.position(standing)?;
            places.yielding.get_mut(at)
        });
        let Some(one) = one else { return };
        one.slow = Some(reader);
        self.admission.slow_readers.add(reader);
        self.slow = Some(Box::new(reader));
    }

    /// Removes the connection from the slow readers, as its client is not slow, or not any more.
    #[inline]
    pub(crate) fn keeps_up(&mut self) {
        if self.slow.is_some() {
            self.leave_slow();
        }
    }

    #[cold]
    fn leave_slow(&mut self) {
        let Some(reader) = self.slow.take().map(|reader| *reader) else { return };
        let Some((client, standing)) = self.standing.as_deref() else {
            self.is_lost |= !self.admission.slow_readers.remove(reader);
            return;
        };
        let mut clients = self.admission.shard(*client);
        let is_slow = self.admission.slow_readers.remove(reader);
        let places = clients.get_mut(client);
        let one = places.and_then(|places| Some((places.position(standing)?, places)));
        match one {
            // the connection was cut to let one of a higher class in
            None => drop(clients),
            Some((at, places)) if is_slow => places.yielding[at].slow = None,
            Some((at, places)) => {
                // the connection was cut as a slow reader, and no other thread may cut it again
                places.yielding.swap_remove(at);
                drop(clients);
                self.standing = None;
                self.is_lost = true;
            }
        }
    }

    /// Whether the client is slow.
    pub(crate) fn is_slow(&self) -> bool {
        self.slow.is_some()
    }

    fn discharge(&mut self) {
        if let Some(client) = self.client.take() {
            let mut clients = self.admission.shard(client);
            if let Some(places) = clients.get_mut(&client) {
                places.count -= 1;
                if places.is_empty() {
                    clients.remove(&client);
                }
            }
        }
    }
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        self.keeps_up();
        self.leave_yielding();
        self.discharge();
        if !self.is_lost {
            self.admission.open.fetch_sub(1, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

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
    fn what_a_client_has_elsewhere_counts() {
        let admission = ConnectionAdmission::new(10, 2);
        let (a, b) = (client([10, 0, 0, 1]), client([10, 0, 0, 2]));
        admission.set_elsewhere(HashMap::from([(a, 1), (b, 3)]));
        let place = admission.enter(a).unwrap();
        assert!(!admission.has_room_for(a) && !admission.has_room_for(b));
        assert_eq!(admission.enter(a).unwrap_err(), Full::Client);
        assert_eq!(admission.enter(b).unwrap_err(), Full::Client);
        assert_eq!(admission.clients(), [(a, 1)]);
        admission.set_elsewhere(HashMap::from([(a, 1)]));
        assert!(admission.has_room_for(b) && !admission.has_room_for(a));
        drop(place);
        assert_eq!((admission.clients(), admission.open()), (vec![], 0));
        assert!(admission.shards.iter().all(|shard| shard.lock().unwrap().is_empty()));
    }

    /// A place of this rank, both ends of its socket.
    fn standing(
        admission: &Arc<ConnectionAdmission>,
        client: ClientKey,
        (rank, is_idle): (u8, bool),
    ) -> (ConnectionPlace, UnixStream, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        let (mut place, _) = admission.enter_above(client, Rank(rank)).unwrap();
        place.stand(Rank(rank), is_idle, client, || SocketNumber::of(ours.as_fd()));
        (place, ours, theirs)
    }

    fn is_cut(mut theirs: &UnixStream) -> bool {
        theirs.read(&mut [0]).is_ok_and(|count| count == 0)
    }

    #[test]
    fn of_one_client_the_lowest_class_gives_way_and_the_highest_never() {
        let admission = ConnectionAdmission::new(10, 3);
        let (a, b) = (client([10, 0, 0, 1]), client([10, 0, 0, 2]));
        let of_other = standing(&admission, b, (2, true));
        let busy = standing(&admission, a, (2, false));
        let idle = standing(&admission, a, (2, true));
        let middle = standing(&admission, a, (1, true));
        assert!(admission.has_yielding_of(a));
        // no connection gives way to its own class, or a lower one
        for rank in [2, 255] {
            assert_eq!(admission.enter_above(a, Rank(rank)).unwrap_err(), Full::Client);
        }
        let all = [&of_other, &busy, &idle, &middle];
        let cut = |expected: [bool; 4]| assert_eq!(all.map(|(.., one)| is_cut(one)), expected);
        let (gold, has_cut) = admission.enter_above(a, Rank::FIRST).unwrap();
        assert!(has_cut);
        cut([false, false, true, false]);
        let (second, _) = admission.enter_above(a, Rank::FIRST).unwrap();
        cut([false, true, true, false]);
        // the client has no more connections than it may, whether the cut ones know it or not
        assert_eq!(admission.open(), 4);
        assert_eq!(admission.enter_above(a, Rank(1)).unwrap_err(), Full::Client);
        let (third, _) = admission.enter_above(a, Rank::FIRST).unwrap();
        cut([false, true, true, true]);
        assert_eq!(admission.enter_above(a, Rank::FIRST).unwrap_err(), Full::Client);
        drop((busy, idle, middle));
        assert_eq!(admission.open(), 4);
        drop((gold, second, third, of_other));
        assert_eq!(admission.open(), 0);
        assert!(admission.shards.iter().all(|shard| shard.lock().unwrap().is_empty()));
    }

    #[test]
    fn of_all_the_lowest_class_gives_way_whosever_it_is() {
        let admission = ConnectionAdmission::new(3, 3);
        let clients = [1, 2, 3].map(|last| client([10, 0, 0, last]));
        let standings = [(1, true), (2, false), (0, true)];
        let places: Vec<_> =
            clients.into_iter().zip(standings).map(|(c, s)| standing(&admission, c, s)).collect();
        assert!(!admission.cut_lower(Rank(2)));
        assert!(admission.cut_lower(Rank(1)));
        assert_eq!([0, 1, 2].map(|at: usize| is_cut(&places[at].2)), [false, true, false]);
        assert!(admission.cut_lower(Rank::FIRST) && !admission.cut_lower(Rank::FIRST));
        assert_eq!([0, 1, 2].map(|at: usize| is_cut(&places[at].2)), [true, true, false]);
        assert_eq!(admission.open(), 1);
        drop(places);
        assert_eq!(admission.open(), 0);
        assert!(admission.shards.iter().all(|shard| shard.lock().unwrap().is_empty()));
    }

    #[test]
    fn a_connection_is_of_the_highest_class_that_it_works_for() {
        let admission = ConnectionAdmission::new(2, 1);
        let a = client([10, 0, 0, 1]);
        let (mut place, ours, _theirs) = standing(&admission, a, (2, false));
        let mut stand = |rank, is_idle| {
            place.stand(Rank(rank), is_idle, a, || SocketNumber::of(ours.as_fd()));
            admission.has_yielding_of(a)
        };
        assert!(stand(2, false) && !stand(0, false));
        assert!(!stand(2, false), "one of the first class is under way as well");
        assert!(stand(2, true));
    }

    /// Each place is given back once, whichever list cuts it.
    #[test]
    fn a_slow_reader_that_gives_way_is_cut_once() {
        for by_list in [[true, false], [false, true], [true, true]] {
            let admission = ConnectionAdmission::new(10, 2);
            let a = client([10, 0, 0, 1]);
            let (mut place, ours, _theirs) = standing(&admission, a, (1, false));
            place.reads_slowly(SlowReader::new(Rank(1), 0, 0, SocketNumber::of(ours.as_fd())));
            let [as_slow, as_lower] = by_list;
            if as_slow {
                assert!(admission.cut_slowest(Rank::FIRST));
                assert_eq!(admission.open(), 0);
            }
            if as_lower {
                assert_eq!(admission.cut_lower(Rank::FIRST), !as_slow, "{by_list:?}");
            }
            assert_eq!(admission.open(), 0);
            place.keeps_up();
            assert!(!admission.cut_slowest(Rank::FIRST) && !admission.cut_lower(Rank::FIRST));
            drop(place);
            assert_eq!(admission.open(), 0);
            assert!(admission.shards.iter().all(|shard| shard.lock().unwrap().is_empty()));
        }
        // a reader that keeps up again is still on the other list
        let admission = ConnectionAdmission::new(10, 2);
        let (mut place, ours, _theirs) = standing(&admission, client([10, 0, 0, 1]), (1, false));
        place.reads_slowly(SlowReader::new(Rank(1), 0, 0, SocketNumber::of(ours.as_fd())));
        place.keeps_up();
        assert!(!admission.cut_slowest(Rank::FIRST) && admission.cut_lower(Rank::FIRST));
        drop(place);
        assert_eq!(admission.open(), 0);
    }

    #[test]
    fn a_proxy_is_counted_for_whom_it_speaks() {
        let admission = ConnectionAdmission::new(4, 1);
        let (a, b) = (client([10, 0, 0, 1]), client([10, 0, 0, 2]));
        let mut places: Vec<_> = (0..3).map(|_| admission.enter_as_proxy().unwrap()).collect();
        places[0].charge(a).unwrap();
        assert_eq!(places[1].charge(a).unwrap_err(), Full::Client);
        places[1].charge(b).unwrap();
        // a proxy that speaks for another client gives the first client's place back
        places[0].charge(client([10, 0, 0, 3])).unwrap();
        places[2].charge(a).unwrap();
        assert_eq!(admission.enter(a).unwrap_err(), Full::Client);
        assert_eq!(admission.open(), 3);
        drop(places);
        assert_eq!(admission.open(), 0);
        assert!(admission.shards.iter().all(|shard| shard.lock().unwrap().is_empty()));
    }
}
