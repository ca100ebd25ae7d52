//! The pool of idle connections to upstreams.
//!
//! A loop has a pool of its own, since the kernel reports its sockets to that loop; threads that
//! serve one connection each share one. A request that takes a connection first checks whether it has
//! ended meanwhile. All connections are checked from time to time, so that none is kept that its
//! upstream has closed. Links to receivers that their loop [watches](ConnectionPool::stirred) are not
//! checked: a system call for each request would be a tenth of the cost of a hand-over. Each
//! connection takes a descriptor, so all pools together have a limit.
//!
//! When the limit is reached, the connection of the pool that was idle for longest makes room,
//! whichever application it leads to: an application that was busy once keeps no places from one that
//! is busy now. No pool closes connections of another. A pool may have all places that there are. But
//! while a pool with less than its part (the limit, divided by the number of pools that want places)
//! lacks a place, pools with more take no further ones, and give up half of what is beyond their part
//! each time they look.
//!
//! A connection on which a client has signed in belongs to that client's connection. It is closed
//! when the pool looks after the client's connection has ended.
//!
//! A pool holds its places from one look to the next, also while a request is under way on the
//! connection. So a request takes no lock here and changes nothing that pools share, unless more
//! connections of its pool are idle at a time than at any time since that look.

use crate::application::Application;
use crate::group::MemberIndex;
use crate::upstreams::connection::UpstreamConnection;
use forebay_conn::SocketId;
use std::collections::{BTreeMap, HashMap};
use std::mem;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// How often all connections are checked, in milliseconds.
const LOOK_MS: u64 = 1_000;

/// How long after a pool has lacked a place the others take none beyond their part, in milliseconds.
/// This is long because such a pool may have a request only from time to time.
const SHORT_MS: u64 = 10 * LOOK_MS;

/// Idle connections, by application and upstream.
#[derive(Debug)]
pub struct ConnectionPool {
    /// The connections of each upstream, the last used last. In a tree: for few keys, which no client
    /// chooses, hashing would take longer.
    idle: BTreeMap<(u64, MemberIndex), Vec<IdleUpstream>>,
    /// The connections that each belong to a client's connection, by that connection and the
    /// upstreams.
    own: HashMap<(usize, u64), OwnUpstream>,
    places: IdlePlaces,
    /// The number of connections that were kept so far.
    number: u64,
    looked_ms: u64,
    /// Whether the loop reports what comes on idle connections.
    is_watched: bool,
}

#[derive(Debug)]
struct IdleUpstream {
    connection: UpstreamConnection,
    until_ms: u64,
    /// The order of use: greater for later.
    number: u64,
    /// Whether the loop reports what comes on the connection before it is used again.
    is_watched: bool,
}

/// A connection that belongs to the connection of a client.
#[derive(Debug)]
struct OwnUpstream {
    /// The client's connection. While this is held, no other has the same address in memory.
    owner: Weak<()>,
    member: MemberIndex,
    idle: IdleUpstream,
}

impl OwnUpstream {
    fn is_fit(&mut self, now_ms: u64) -> bool {
        let is_due = self.owner.strong_count() > 0 && self.idle.until_ms > now_ms;
        is_due && self.idle.connection.is_fit(now_ms)
    }
}

/// The limit on idle connections of all pools together.
#[derive(Debug)]
pub struct IdleBound {
    most: AtomicUsize,
    /// The number of places that pools hold.
    taken: AtomicUsize,
    /// The number of pools that hold places, or want some.
    pools: AtomicUsize,
    /// Until when pools take no place beyond their part, because one with less has lacked a place.
    short_until_ms: AtomicU64,
}

/// The places of one pool, which are given back when it is dropped.
#[derive(Debug)]
struct IdlePlaces {
    bound: Arc<IdleBound>,
    held: usize,
    /// The number of these with an idle connection.
    used: usize,
    /// Whether the pool is counted among those that share the limit.
    is_counted: bool,
    /// When the pool last wanted one more.
    wanted_ms: u64,
}

impl IdleBound {
    /// A limit of `most` connections.
    pub fn new(most: usize) -> IdleBound {
        IdleBound {
            most: AtomicUsize::new(most),
            taken: AtomicUsize::new(0),
            pools: AtomicUsize::new(0),
            short_until_ms: AtomicU64::new(0),
        }
    }

    /// Changes the limit. Pools give up what is above it when they look.
    pub fn set(&self, most: usize) {
        self.most.store(most, Ordering::Relaxed);
    }

    /// Takes one more place. Returns whether there was one.
    fn take(&self) -> bool {
        let most = self.most.load(Ordering::Relaxed);
        let more = |taken: usize| (taken < most).then_some(taken + 1);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// The part of each pool; 0 if there are more pools than places.
    fn part(&self) -> usize {
        self.most.load(Ordering::Relaxed) / self.pools.load(Ordering::Relaxed).max(1)
    }

    /// The number of held places above a limit that was lowered.
    fn excess(&self) -> usize {
        self.taken.load(Ordering::Relaxed).saturating_sub(self.most.load(Ordering::Relaxed))
    }

    /// Whether a pool with less than its part has lacked a place within the last [`SHORT_MS`].
    fn is_short(&self, now_ms: u64) -> bool {
        now_ms < self.short_until_ms.load(Ordering::Relaxed)
    }

    fn is_full(&self) -> bool {
        self.taken.load(Ordering::Relaxed) >= self.most.load(Ordering::Relaxed)
    }

    /// Notes that a pool with `held` places has lacked one more.
    fn lacked(&self, held: usize, now_ms: u64) {
        // where there are more pools than places, the pools have them in turn
        let is_due = held < self.part().max(1);
        let until_ms = now_ms.saturating_add(SHORT_MS);
        // not written with each request, since pools share it
        if is_due && self.short_until_ms.load(Ordering::Relaxed) + LOOK_MS < until_ms {
            self.short_until_ms.store(until_ms, Ordering::Relaxed);
        }
    }
}

/// No limit besides the settings of each upstream.
impl Default for IdleBound {
    fn default() -> IdleBound {
        IdleBound::new(usize::MAX)
    }
}

impl IdlePlaces {
    fn new(bound: &Arc<IdleBound>) -> IdlePlaces {
        IdlePlaces { bound: Arc::clone(bound), held: 0, used: 0, is_counted: false, wanted_ms: 0 }
    }

    /// Takes a place for one more idle connection. Returns whether there is one.
    fn enter(&mut self, now_ms: u64) -> bool {
        if self.used == self.held && !self.grow(now_ms) {
            return false;
        }
        self.used += 1;
        true
    }

    /// Takes one more place from the limit, if none is reserved for a pool with less.
    fn grow(&mut self, now_ms: u64) -> bool {
        self.wanted_ms = now_ms;
        if !mem::replace(&mut self.is_counted, true) {
            self.bound.pools.fetch_add(1, Ordering::Relaxed);
        }
        let may_take = self.held < self.bound.part().max(1) || !self.bound.is_short(now_ms);
        let is_there = may_take && self.bound.take();
        match is_there {
            true => self.held += 1,
            false => self.bound.lacked(self.held, now_ms),
        }
        is_there
    }

    /// Notes that a connection is no longer idle.
    fn leave(&mut self) {
        self.used -= 1;
    }

    /// The number of connections to close, so that other pools have their part.
    fn owed(&self, now_ms: u64) -> usize {
        let beyond = self.used.saturating_sub(self.bound.part());
        if beyond == 0 {
            return 0;
        }
        let is_lacked = self.bound.is_short(now_ms) && self.bound.is_full();
        let wanted = if is_lacked { beyond.div_ceil(2) } else { 0 };
        wanted.max(self.bound.excess()).min(beyond)
    }

    /// Gives unused places back.
    fn give_back(&mut self, now_ms: u64) {
        let unused = self.held - self.used;
        if unused > 0 {
            self.held = self.used;
            self.bound.taken.fetch_sub(unused, Ordering::Relaxed);
        }
        // a pool without places still has its part for a while
        let is_done = self.held == 0 && now_ms >= self.wanted_ms.saturating_add(SHORT_MS);
        if is_done && mem::take(&mut self.is_counted) {
            self.bound.pools.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for IdlePlaces {
    fn drop(&mut self) {
        self.used = 0;
        self.give_back(u64::MAX);
    }
}

impl ConnectionPool {
    /// A pool among those that share this limit.
    pub fn new(bound: &Arc<IdleBound>) -> ConnectionPool {
        let places = IdlePlaces::new(bound);
        ConnectionPool {
            idle: BTreeMap::new(),
            own: HashMap::new(),
            places,
            number: 0,
            looked_ms: 0,
            is_watched: false,
        }
    }

    /// The pool of a loop that reports what comes on idle connections.
    #[must_use]
    pub fn watched(self) -> ConnectionPool {
        ConnectionPool { is_watched: true, ..self }
    }

    /// Handles an event on this socket, which may be a late one from before the connection was idle.
    /// A connection of the pool is closed if it is not fit for another request.
    pub fn stirred(&mut self, socket: SocketId, now_ms: u64) {
        let one = self.idle.values_mut().find_map(|idle| {
            let place = idle.iter().position(|one| one.connection.id == socket)?;
            Some((idle, place))
        });
        if let Some((idle, place)) = one
            && !idle[place].connection.is_fit(now_ms)
        {
            idle.remove(place);
            self.places.leave();
        }
    }

    /// The last used connection to this upstream that has not ended and leads to an address that its
    /// name has now.
    pub(crate) fn take(
        &mut self,
        application: &Application,
        member: MemberIndex,
        now_ms: u64,
    ) -> Option<UpstreamConnection> {
        let upstreams = application.upstreams();
        let idle = self.idle.get_mut(&(upstreams.number(), member))?;
        while let Some(mut last) = idle.pop() {
            self.places.leave();
            let is_current = || upstreams.is_current(member, &last.connection);
            // sending to a Unix socket whose other end is gone fails, and the request has not run
            let is_sure =
                last.is_watched || (application.is_own(member) && !last.connection.is_http2());
            let is_due = last.until_ms > now_ms && is_current();
            if is_due && (is_sure || last.connection.is_fit(now_ms)) {
                return Some(last.connection);
            }
        }
        None
    }

    /// Keeps a connection after its request. If there are as many as allowed to its upstream, the one
    /// of these that was idle for longest makes room; if the pool gets no more places, the oldest of
    /// the whole pool.
    pub(crate) fn keep(
        &mut self,
        application: &Application,
        member: MemberIndex,
        connection: UpstreamConnection,
        now_ms: u64,
    ) {
        let settings = application.settings().group().keep_alive;
        let most = settings.connections as usize;
        if most == 0 {
            return;
        }
        let one = self.idle_from(application, connection, now_ms);
        let upstream = (application.upstreams().number(), member);
        let idle = self.idle.entry(upstream).or_default();
        if idle.len() >= most {
            idle.remove(0);
            self.places.leave();
        }
        if self.places.enter(now_ms) {
            idle.push(one);
        } else if self.close_oldest() && self.places.enter(now_ms) {
            self.idle.entry(upstream).or_default().push(one);
        }
    }

    /// The connection to one of these upstreams that belongs to a client's, and its upstream.
    pub(crate) fn take_own(
        &mut self,
        application: &Application,
        owner: &Arc<()>,
        now_ms: u64,
    ) -> Option<(MemberIndex, UpstreamConnection)> {
        if self.own.is_empty() {
            return None;
        }
        let upstreams = application.upstreams();
        let mut own = self.own.remove(&own_key(owner, application))?;
        self.places.leave();
        let is_current = upstreams.is_current(own.member, &own.idle.connection);
        (is_current && own.is_fit(now_ms)).then_some((own.member, own.idle.connection))
    }

    /// Keeps a connection for the client's connection that it belongs to, until that ends. Each
    /// client's connection has at most one, besides those for all.
    pub(crate) fn keep_own(
        &mut self,
        application: &Application,
        owner: &Arc<()>,
        member: MemberIndex,
        connection: UpstreamConnection,
        now_ms: u64,
    ) {
        let idle = self.idle_from(application, connection, now_ms);
        if self.places.enter(now_ms) || (self.close_oldest() && self.places.enter(now_ms)) {
            let own = OwnUpstream { owner: Arc::downgrade(owner), member, idle };
            if self.own.insert(own_key(owner, application), own).is_some() {
                self.places.leave();
            }
        }
    }

    /// An idle connection, from now on.
    fn idle_from(
        &mut self,
        application: &Application,
        connection: UpstreamConnection,
        now_ms: u64,
    ) -> IdleUpstream {
        let idle = application.settings().group().keep_alive.idle;
        let idle_ms = u64::try_from(idle.as_millis()).unwrap_or(u64::MAX);
        self.number += 1;
        let until_ms = now_ms.saturating_add(idle_ms);
        // where a receiver was offered a socket pair, the loop has watched the pair and not the link
        let is_watched = self.is_watched && application.is_handed_sockets();
        IdleUpstream { connection, until_ms, number: self.number, is_watched }
    }

    /// Closes the connection that was idle for longest, after a look at each upstream with some.
    /// Returns whether there was one.
    fn close_oldest(&mut self) -> bool {
        let with_some = self.idle.values_mut().filter(|idle| !idle.is_empty());
        match with_some.min_by_key(|idle| idle[0].number) {
            Some(idle) => drop(idle.remove(0)),
            // last of all, because a client that has signed in would have to do so again
            None => {
                let oldest = self.own.iter().min_by_key(|(_, own)| own.idle.number);
                let Some(key) = oldest.map(|(key, _)| *key) else { return false };
                self.own.remove(&key);
            }
        }
        self.places.leave();
        true
    }

    /// Closes connections that have ended or were idle for too long, if it is time to look, and gives
    /// up places for other pools.
    pub fn look(&mut self, now_ms: u64) {
        if now_ms < self.looked_ms + LOOK_MS {
            return;
        }
        self.looked_ms = now_ms;
        self.idle.retain(|_, idle| {
            idle.retain_mut(|one| one.until_ms > now_ms && one.connection.is_fit(now_ms));
            !idle.is_empty()
        });
        self.own.retain(|_, own| own.is_fit(now_ms));
        self.places.used = self.len();
        // unused places go first, before connections are closed for others
        self.places.give_back(now_ms);
        for _ in 0..self.places.owed(now_ms) {
            self.close_oldest();
        }
        self.places.give_back(now_ms);
    }

    /// The number of idle connections.
    pub fn len(&self) -> usize {
        self.idle.values().map(Vec::len).sum::<usize>() + self.own.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The key of a connection that belongs to a client's, to these upstreams.
fn own_key(owner: &Arc<()>, application: &Application) -> (usize, u64) {
    (Arc::as_ptr(owner).addr(), application.upstreams().number())
}

/// A pool without a limit besides the settings of each upstream.
impl Default for ConnectionPool {
    fn default() -> ConnectionPool {
        ConnectionPool::new(&Arc::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::tests::settings as group_of;
    use crate::settings::{
        ApplicationSettings, Balance, BodySettings, Errors, FastCgiSettings, GroupSettings,
        HandOverSettings, KeepAliveSettings,
    };
    use crate::upstreams::Upstreams;
    use forebay_sys::client;
    use std::io::Write;
    use std::os::fd::{AsFd, OwnedFd};
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    /// Settings to keep this many connections, for a minute.
    fn group(connections: u32) -> GroupSettings {
        let keep_alive = KeepAliveSettings { connections, idle: Duration::from_secs(60) };
        GroupSettings { keep_alive, ..group_of(1, Balance::Least, None) }
    }

    /// An application that keeps this many connections.
    fn application(connections: u32) -> Arc<Application> {
        let group = group(connections);
        let upstreams = Upstreams::new(&group, true, 0);
        let settings = FastCgiSettings {
            group,
            request: Default::default(),
            bodies: BodySettings { most_bytes: 0, spool_bytes: 0 },
            limits: Default::default(),
            errors: Errors::Theirs,
            buffer_bytes: 0,
            status: None,
        };
        Application::new(ApplicationSettings::FastCgi(settings), upstreams)
    }

    /// Receivers to which this many links are kept.
    fn receivers(connections: u32) -> Arc<Application> {
        let group = group(connections);
        let upstreams = Upstreams::new(&group, true, 0);
        let settings =
            HandOverSettings { group, keeps: false, taken_by_reading: false, relay: None };
        Application::new(ApplicationSettings::HandOver(settings), upstreams)
    }

    /// Two pools with a common limit, and the other ends of their connections, in order.
    struct Bench {
        bound: Arc<IdleBound>,
        pools: [ConnectionPool; 2],
        ends: Vec<UnixStream>,
    }

    impl Bench {
        fn new(most: usize) -> Bench {
            let bound = Arc::new(IdleBound::new(most));
            let pools = [(); 2].map(|()| ConnectionPool::new(&bound));
            Bench { bound, pools, ends: Vec::new() }
        }

        /// Ends `count` requests, each on a connection of its own.
        fn keep(&mut self, pool: usize, application: &Application, count: usize) {
            for _ in 0..count {
                let (ours, theirs) = UnixStream::pair().unwrap();
                self.ends.push(theirs);
                let connection = UpstreamConnection::from(OwnedFd::from(ours));
                self.pools[pool].keep(application, 0, connection, 0);
            }
        }

        fn kept(&self) -> [usize; 2] {
            self.pools.each_ref().map(ConnectionPool::len)
        }

        fn taken(&self) -> usize {
            self.bound.taken.load(Ordering::Relaxed)
        }

        /// The connections that are open, by number.
        fn open(&self) -> Vec<usize> {
            let is_open = |end: &UnixStream| client::is_quiet(end.as_fd());
            (0..self.ends.len()).filter(|&number| is_open(&self.ends[number])).collect()
        }
    }

    #[test]
    fn pools_have_a_bound_together_and_places_from_look_to_look() {
        let (mut bench, application) = (Bench::new(4), application(3));
        bench.keep(0, &application, 5);
        assert_eq!((bench.kept(), bench.taken()), ([3, 0], 3));
        // one connection is in use, and its place is not for others
        let used = bench.pools[0].take(&application, 0, 1).unwrap();
        bench.keep(1, &application, 5);
        assert_eq!((bench.kept(), bench.taken()), ([2, 1], 4));
        bench.pools[0].keep(&application, 0, used, 1);
        assert_eq!(bench.kept(), [3, 1]);
        // if it is still in use when the pool looks, the place is for others
        let used = bench.pools[0].take(&application, 0, 1).unwrap();
        bench.pools[0].look(1_000);
        assert_eq!(bench.taken(), 3);
        bench.keep(1, &application, 1);
        assert_eq!(bench.kept(), [2, 2]);
        bench.pools[0].keep(&application, 0, used, 1_000);
        assert_eq!((bench.kept(), bench.taken()), ([2, 2], 4));
        // all have been idle for too long
        for pool in &mut bench.pools {
            pool.look(70_000);
        }
        assert_eq!((bench.kept(), bench.taken()), ([0, 0], 0));
        assert_eq!(bench.bound.pools.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn the_oldest_of_all_applications_makes_room() {
        let (mut bench, once, now) = (Bench::new(3), application(3), application(3));
        bench.keep(0, &once, 3);
        bench.keep(0, &now, 2);
        assert_eq!(bench.open(), [2, 3, 4]);
        // a connection in use does not count as old
        let used = bench.pools[0].take(&once, 0, 1).unwrap();
        bench.pools[0].keep(&once, 0, used, 1);
        bench.keep(0, &now, 1);
        assert_eq!(bench.open(), [2, 4, 5]);
        assert!(bench.pools[0].take(&now, 0, 1).is_some());
        assert!(bench.pools[0].take(&once, 0, 1).is_some());
    }

    #[test]
    fn a_pool_that_lacks_places_gets_its_part() {
        let (mut bench, application) = (Bench::new(8), application(8));
        bench.keep(0, &application, 8);
        bench.keep(1, &application, 1);
        assert_eq!(bench.kept(), [8, 0]);
        // of four beyond its part, half are closed, and those that were idle for longest
        bench.pools[0].look(1_000);
        assert_eq!((bench.kept(), bench.open()), ([6, 0], vec![2, 3, 4, 5, 6, 7]));
        // the pool does not take these back before the other has come
        bench.keep(0, &application, 2);
        assert_eq!(bench.kept(), [6, 0]);
        bench.keep(1, &application, 3);
        assert_eq!(bench.kept(), [6, 2]);
        bench.pools[0].look(2_000);
        bench.keep(1, &application, 2);
        assert_eq!(bench.kept(), [5, 3]);
        bench.pools[0].look(3_000);
        bench.keep(1, &application, 2);
        assert_eq!(bench.kept(), [4, 4]);
        // that is the part of each
        bench.pools[0].look(4_000);
        bench.keep(1, &application, 1);
        assert_eq!(bench.kept(), [4, 4]);
        // places that no other pool wants are free
        bench.pools[1] = ConnectionPool::new(&bench.bound);
        bench.keep(0, &application, 8);
        assert_eq!((bench.kept(), bench.taken()), ([8, 0], 8));
        bench.pools[0].look(5_000);
        assert_eq!(bench.kept(), [8, 0]);
    }

    #[test]
    fn one_place_goes_round_and_none_is_none() {
        let (mut bench, application) = (Bench::new(0), application(3));
        bench.keep(0, &application, 1);
        assert_eq!((bench.kept(), bench.taken()), ([0, 0], 0));
        bench.bound.set(1);
        bench.keep(0, &application, 2);
        bench.keep(1, &application, 1);
        assert_eq!((bench.kept(), bench.open()), ([1, 0], vec![2]));
        bench.pools[0].look(1_000);
        bench.keep(1, &application, 1);
        bench.keep(0, &application, 1);
        assert_eq!((bench.kept(), bench.open()), ([0, 1], vec![4]));
    }

    #[test]
    fn a_bound_that_is_lowered_holds_for_what_waits() {
        let (mut bench, application) = (Bench::new(6), application(3));
        bench.keep(0, &application, 3);
        bench.keep(1, &application, 3);
        bench.bound.set(3);
        bench.pools[0].look(1_000);
        bench.pools[1].look(1_000);
        assert_eq!((bench.kept(), bench.taken()), ([1, 2], 3));
        bench.bound.set(0);
        bench.pools[0].look(2_000);
        bench.pools[1].look(2_000);
        assert_eq!((bench.kept(), bench.taken()), ([0, 0], 0));
    }

    #[test]
    fn links_that_a_loop_watches_are_looked_at_when_something_comes() {
        let (mut bench, receivers, scripts) = (Bench::new(8), receivers(3), application(3));
        let [watched, other] = bench.pools;
        bench.pools = [watched.watched(), other];
        for pool in [0, 1] {
            bench.keep(pool, &receivers, 2);
            bench.keep(pool, &scripts, 1);
        }
        // the last link of each, and each script's connection
        for at in [1, 2, 4, 5] {
            bench.ends[at].write_all(b"a").unwrap();
        }
        let [watched, other] = &mut bench.pools;
        let links = &watched.idle[&(receivers.upstreams().number(), 0)];
        let (quiet, stirred) = (links[0].connection.id, links[1].connection.id);
        // an event from before its request was over may be reported late
        watched.stirred(quiet, 1);
        watched.stirred(stirred, 1);
        watched.stirred(stirred, 1);
        assert_eq!(watched.len(), 2);
        assert_eq!(watched.take(&receivers, 0, 1).unwrap().id, quiet);
        assert!(watched.take(&receivers, 0, 1).is_none());
        // no report is needed where all connections are checked
        assert!(watched.take(&scripts, 0, 1).is_none() && other.take(&scripts, 0, 1).is_none());
        assert!(other.take(&receivers, 0, 1).is_some() && other.take(&receivers, 0, 1).is_none());
    }

    #[test]
    fn one_that_its_upstream_has_closed_leaves_its_place() {
        let (mut bench, application) = (Bench::new(1), application(3));
        bench.keep(0, &application, 1);
        bench.ends.clear();
        assert!(bench.pools[0].take(&application, 0, 1).is_none());
        bench.keep(0, &application, 1);
        assert_eq!((bench.kept(), bench.taken()), ([1, 0], 1));
        bench.ends.clear();
        bench.pools[0].look(1_000);
        assert_eq!((bench.kept(), bench.taken()), ([0, 0], 0));
    }
}
