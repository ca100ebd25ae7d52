//! Connections to upstreams that wait for their next request.
//!
//! A loop has a pool of its own, since the kernel reports its sockets to that loop; threads that serve one
//! connection each share one. A request that takes a connection looks first whether it has ended
//! meanwhile; and all are looked at once in a while, so that none is kept that its upstream has closed. Links to
//! receivers that their loop [watches](ConnectionPool::stirred) are not looked at: a call of the kernel for each request
//! would be a tenth of what a hand-over costs. Each takes a descriptor: all pools together have a bound.
//!
//! Where that is reached, the connection of the pool that has waited for longest makes room, whichever application it
//! leads to: one that was busy once keeps no places from one that is busy now. No pool closes what another has. It may
//! have all places that there are; but while a pool with less than its part (the bound, divided by the pools that want
//! places) lacks one, those with more take no further ones, and give up half of what is beyond theirs each time they
//! look.
//!
//! A connection on which a client has signed in belongs to that client's connection, and is closed when the pool looks
//! after that has ended.
//!
//! A pool holds its places from one look to the next, also while a request is under way on the connection. So a request
//! takes no lock here and changes nothing that pools share, unless more connections of its pool wait at a time than did
//! since that look.

use crate::application::Application;
use crate::group::MemberIndex;
use crate::upstreams::connection::UpstreamConnection;
use forebay_conn::SocketId;
use std::collections::{BTreeMap, HashMap};
use std::mem;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// How often all are looked at, in milliseconds.
const LOOK_MS: u64 = 1_000;

/// How long after a pool has lacked a place the others take none beyond their part, in milliseconds: it may have a
/// request once in a while only.
const SHORT_MS: u64 = 10 * LOOK_MS;

/// Idle connections, by application and upstream.
#[derive(Debug)]
pub struct ConnectionPool {
    /// Of each upstream the one that was used last is the last. In order: for few numbers, which no stranger chooses,
    /// a hash would take longer.
    idle: BTreeMap<(u64, MemberIndex), Vec<IdleUpstream>>,
    /// Those that belong to a client's connection each, by that and the upstreams.
    own: HashMap<(usize, u64), OwnUpstream>,
    places: IdlePlaces,
    /// How many were kept so far.
    number: u64,
    looked_ms: u64,
    /// Its loop says what comes on connections.
    is_watched: bool,
}

#[derive(Debug)]
struct IdleUpstream {
    connection: UpstreamConnection,
    until_ms: u64,
    /// The greater, the later it was used.
    number: u64,
    /// What comes on it is heard before the next request is.
    is_watched: bool,
}

/// One that belongs to the connection of a client.
#[derive(Debug)]
struct OwnUpstream {
    /// Gone with that; until then no other is at the same address.
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

/// How many connections pools may keep together.
#[derive(Debug)]
pub struct IdleBound {
    most: AtomicUsize,
    /// Places that pools have.
    taken: AtomicUsize,
    /// Pools that have places, or want some.
    pools: AtomicUsize,
    /// One with less than its part has lacked a place: until then the others take none beyond theirs.
    short_until_ms: AtomicU64,
}

/// The places of one pool. They are given back when it is dropped.
#[derive(Debug)]
struct IdlePlaces {
    bound: Arc<IdleBound>,
    held: usize,
    /// So many of these have a connection that waits.
    used: usize,
    /// Whether the pool is one of those that share the bound.
    is_counted: bool,
    /// When it wanted one more.
    wanted_ms: u64,
}

impl IdleBound {
    /// At most so many.
    pub fn new(most: usize) -> IdleBound {
        IdleBound {
            most: AtomicUsize::new(most),
            taken: AtomicUsize::new(0),
            pools: AtomicUsize::new(0),
            short_until_ms: AtomicU64::new(0),
        }
    }

    /// At most so many from now on. Pools give up those above it when they look.
    pub fn set(&self, most: usize) {
        self.most.store(most, Ordering::Relaxed);
    }

    /// Whether there was one more place, which is taken now.
    fn take(&self) -> bool {
        let most = self.most.load(Ordering::Relaxed);
        let more = |taken: usize| (taken < most).then_some(taken + 1);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// What each pool is sure to have: none, if there are more pools than places.
    fn part(&self) -> usize {
        self.most.load(Ordering::Relaxed) / self.pools.load(Ordering::Relaxed).max(1)
    }

    /// Places that were taken before there were so few.
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

    /// A pool with so many places has lacked one more.
    fn lacked(&self, held: usize, now_ms: u64) {
        // where there are more pools than places, those go round
        let is_due = held < self.part().max(1);
        let until_ms = now_ms.saturating_add(SHORT_MS);
        // not with each request
        if is_due && self.short_until_ms.load(Ordering::Relaxed) + LOOK_MS < until_ms {
            self.short_until_ms.store(until_ms, Ordering::Relaxed);
        }
    }
}

/// As many as their settings say.
impl Default for IdleBound {
    fn default() -> IdleBound {
        IdleBound::new(usize::MAX)
    }
}

impl IdlePlaces {
    fn new(bound: &Arc<IdleBound>) -> IdlePlaces {
        IdlePlaces { bound: Arc::clone(bound), held: 0, used: 0, is_counted: false, wanted_ms: 0 }
    }

    /// One more connection is to wait: whether there is a place for it.
    fn enter(&mut self, now_ms: u64) -> bool {
        if self.used == self.held && !self.grow(now_ms) {
            return false;
        }
        self.used += 1;
        true
    }

    /// Takes one more from the bound, if there is one that is not for a pool with less.
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

    /// A connection waits no longer.
    fn leave(&mut self) {
        self.used -= 1;
    }

    /// How many connections are to be closed, so that others have their part.
    fn owed(&self, now_ms: u64) -> usize {
        let beyond = self.used.saturating_sub(self.bound.part());
        if beyond == 0 {
            return 0;
        }
        let is_lacked = self.bound.is_short(now_ms) && self.bound.is_full();
        let wanted = if is_lacked { beyond.div_ceil(2) } else { 0 };
        wanted.max(self.bound.excess()).min(beyond)
    }

    /// Gives back those that no connection waits in.
    fn give_back(&mut self, now_ms: u64) {
        let unused = self.held - self.used;
        if unused > 0 {
            self.held = self.used;
            self.bound.taken.fetch_sub(unused, Ordering::Relaxed);
        }
        // one that has none yet has its part all the same
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
    /// One of those that have this bound together.
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

    /// The same for a loop that says what comes on its connections while none has a request.
    #[must_use]
    pub fn watched(self) -> ConnectionPool {
        ConnectionPool { is_watched: true, ..self }
    }

    /// Something has come on this socket, or what came before a request was over is reported late: it is closed if it is
    /// one of these and not fit for another request.
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

    /// The connection to this upstream that was used last, if there is one that has not ended and
    /// leads to where its name does now.
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
            // what is sent to a Unix socket whose other end is gone fails, and has not run
            let is_sure =
                last.is_watched || (application.is_own(member) && !last.connection.is_http2());
            let is_due = last.until_ms > now_ms && is_current();
            if is_due && (is_sure || last.connection.is_fit(now_ms)) {
                return Some(last.connection);
            }
        }
        None
    }

    /// Keeps a connection on which a request is over. Where there are as many as may be to its upstream, the one of
    /// these that has waited for longest makes room; where the pool gets no more places, the one of all its.
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

    /// The connection to one of these upstreams that belongs to a client's, and where it leads.
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

    /// Keeps a connection for the client's connection that it belongs to, until that ends. Each of these has one at
    /// most, besides those that are for all.
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

    /// One that waits from now on.
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
        // of what a receiver was offered a pair over, the loop has watched the pair
        let is_watched = self.is_watched && application.is_handed_sockets();
        IdleUpstream { connection, until_ms, number: self.number, is_watched }
    }

    /// Closes the one that has waited for longest: a step for each upstream that has some. Says whether there was one.
    fn close_oldest(&mut self) -> bool {
        let with_some = self.idle.values_mut().filter(|idle| !idle.is_empty());
        match with_some.min_by_key(|idle| idle[0].number) {
            Some(idle) => drop(idle.remove(0)),
            // a client that has signed in would have to do so again
            None => {
                let oldest = self.own.iter().min_by_key(|(_, own)| own.idle.number);
                let Some(key) = oldest.map(|(key, _)| *key) else { return false };
                self.own.remove(&key);
            }
        }
        self.places.leave();
        true
    }

    /// Closes those that have ended or waited for long enough, if it is time to look, and gives up places that other
    /// pools are to have.
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
        // before what others lack is asked
        self.places.give_back(now_ms);
        for _ in 0..self.places.owed(now_ms) {
            self.close_oldest();
        }
        self.places.give_back(now_ms);
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.idle.values().map(Vec::len).sum::<usize>() + self.own.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What a connection is known by that belongs to a client's, among those to these upstreams.
fn own_key(owner: &Arc<()>, application: &Application) -> (usize, u64) {
    (Arc::as_ptr(owner).addr(), application.upstreams().number())
}

/// One that has as many as its settings say.
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

    /// As many connections are kept, for a minute.
    fn group(connections: u32) -> GroupSettings {
        let keep_alive = KeepAliveSettings { connections, idle: Duration::from_secs(60) };
        GroupSettings { keep_alive, ..group_of(1, Balance::Least, None) }
    }

    /// One that keeps so many connections.
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

    /// The same with links to receivers.
    fn receivers(connections: u32) -> Arc<Application> {
        let group = group(connections);
        let upstreams = Upstreams::new(&group, true, 0);
        let settings =
            HandOverSettings { group, keeps: false, taken_by_reading: false, relay: None };
        Application::new(ApplicationSettings::HandOver(settings), upstreams)
    }

    /// Two pools with a bound, and the other ends of what they were given, in that order.
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

        /// So many requests are over, each on a connection of its own.
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

        /// Those that are open, by when they were given.
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
        // one is under way, and its place is not for others
        let used = bench.pools[0].take(&application, 0, 1).unwrap();
        bench.keep(1, &application, 5);
        assert_eq!((bench.kept(), bench.taken()), ([2, 1], 4));
        bench.pools[0].keep(&application, 0, used, 1);
        assert_eq!(bench.kept(), [3, 1]);
        // if it is so when the pool looks, it is
        let used = bench.pools[0].take(&application, 0, 1).unwrap();
        bench.pools[0].look(1_000);
        assert_eq!(bench.taken(), 3);
        bench.keep(1, &application, 1);
        assert_eq!(bench.kept(), [2, 2]);
        bench.pools[0].keep(&application, 0, used, 1_000);
        assert_eq!((bench.kept(), bench.taken()), ([2, 2], 4));
        // their time is over
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
        // what is used is not old
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
        // of four beyond its part half, and those that have waited for longest
        bench.pools[0].look(1_000);
        assert_eq!((bench.kept(), bench.open()), ([6, 0], vec![2, 3, 4, 5, 6, 7]));
        // and these are not taken back before the other has come
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
        // that is all it is sure to have
        bench.pools[0].look(4_000);
        bench.keep(1, &application, 1);
        assert_eq!(bench.kept(), [4, 4]);
        // what nobody wants is the other's
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
        // what has come before its request was over may be reported late
        watched.stirred(quiet, 1);
        watched.stirred(stirred, 1);
        watched.stirred(stirred, 1);
        assert_eq!(watched.len(), 2);
        assert_eq!(watched.take(&receivers, 0, 1).unwrap().id, quiet);
        assert!(watched.take(&receivers, 0, 1).is_none());
        // no word of it is needed where all are looked at
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
