//! Requests at once of a rule, where those beyond its number wait (`in_flight.over = "queue"`): one queue
//! for the whole process, in the order of the ready queues (rank, floors, clients by turns).
//!
//! ```text
//!            a place is free, and none waits
//!   asks ──┬──────────────────────────────────► has a place ──► over ──► its place is the next one's
//!          │                                        ▲
//!          └──► waits, by rank ─────────────────────┘
//!                 │ leaves, waits too long, or gives way to a higher rank
//! ```
//!
//! A request asks when all of it is received, so that a slow client holds no place; it has its place
//! until its answer is sent. A request that waits stands for an exchange: engines wait for it by a waker,
//! or by an eventfd in the place of a socket, and notice as always that a client leaves (ADR 0062).

use forebay_conn::{SocketId, WakeSlot, Wants};
use forebay_control::ranked::Turn;
use forebay_control::shared::SharedCount;
use forebay_policy::rule::{InFlight, Over};
use forebay_sys::clock;
use forebay_upstream::queue::{Asking, RequestOwner, UpstreamQueue, WaiterId};
use forebay_upstream::wake_bell::WakeBell;
use std::hash::{BuildHasher, RandomState};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// The places of one rule, and the requests that wait for one. Kept through reloads by the rule's name.
#[derive(Debug)]
pub struct AtOnce(Mutex<Places>);

#[derive(Debug)]
struct Places {
    queue: UpstreamQueue<Arc<PlaceWaiter>>,
    most: u32,
    taken: u32,
    deadline_ms: u32,
    /// The counts of other processes for the same limit.
    shared: Option<SharedCount>,
}

/// How a waiting request gets its result: a place, or `None` if it gives way.
#[derive(Debug, Default)]
struct PlaceWaiter {
    slot: WakeSlot,
    told: OnceLock<Option<Taken>>,
}

/// A place that is taken.
#[derive(Clone, Copy, Debug)]
struct Taken {
    turn: Option<Turn>,
    since_ns: u64,
}

/// A place. When it is dropped, the next request gets it.
#[derive(Debug)]
pub struct InFlightPlace {
    at_once: Arc<AtOnce>,
    taken: Taken,
}

/// A request that waits for a place. When this is dropped, the request leaves the queue.
#[derive(Debug)]
pub struct PlaceWait {
    at_once: Arc<AtOnce>,
    waiter: Arc<PlaceWaiter>,
    bell: WakeBell,
    id: WaiterId,
    until_ms: u64,
    /// Whether the result was taken, or the wait was given up.
    is_over: bool,
}

/// The answer to a request that asks for a place.
#[derive(Debug)]
pub enum PlaceAsked {
    /// The request has a place.
    Has(InFlightPlace),
    /// The request waits for one.
    Waits(PlaceWait),
}

/// There is no place: as many wait as may, and none of them gives way; or the request has waited too
/// long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoPlace;

/// The numbers of requests that have a place, and of those that wait for one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlaceCounts {
    /// Requests that have a place.
    pub taken: u32,
    /// Requests that wait for one.
    pub waiting: usize,
}

impl AtOnce {
    /// The places of a limit under which further requests wait; the queue of `before`, if there was one,
    /// goes on. Each rank is sure of its share of the time for which places are held.
    pub fn new(
        limit: &InFlight,
        shares: &[f64],
        before: Option<&Arc<AtOnce>>,
        shared: impl FnOnce() -> Option<SharedCount>,
    ) -> Option<Arc<AtOnce>> {
        let Over::Queue { deadline_ms, most: waiting } = limit.over else { return None };
        let at_once = match before {
            Some(before) => Arc::clone(before),
            None => {
                let queue = UpstreamQueue::new(waiting as usize, RandomState::new().hash_one(0u8));
                let places =
                    Places { queue, most: limit.most, taken: 0, deadline_ms, shared: shared() };
                Arc::new(AtOnce(Mutex::new(places)))
            }
        };
        let mut places = at_once.places();
        places.queue.set_shares(shares);
        places.queue.set_most(waiting as usize);
        (places.most, places.deadline_ms) = (limit.most, deadline_ms);
        places.hand_out(clock::monotonic_ns());
        drop(places);
        Some(at_once)
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        // no panic can leave the places half changed
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for a place for a request that is complete; `now_ms` is the time on the clock of its wait.
    ///
    /// # Errors
    /// There is no place, not even to wait.
    pub fn ask(self: &Arc<Self>, owner: RequestOwner, now_ms: u64) -> Result<PlaceAsked, NoPlace> {
        let since_ns = clock::monotonic_ns();
        let mut places = self.places();
        if places.queue.is_empty() && places.take(owner.rank, since_ns) {
            let Ok(turn) = places.queue.pass(owner, false) else {
                places.give_back();
                return Err(NoPlace);
            };
            let taken = Taken { turn, since_ns };
            return Ok(PlaceAsked::Has(InFlightPlace { at_once: Arc::clone(self), taken }));
        }
        let mut waiter = None;
        let item = || {
            let told = Arc::<PlaceWaiter>::default();
            waiter = Some(Arc::clone(&told));
            told
        };
        let asking = Asking { owner, ..Asking::default() };
        let (id, displaced) = places.queue.push(asking, since_ns, item).map_err(|_| NoPlace)?;
        let waiter = waiter.ok_or(NoPlace)?;
        if let Some(displaced) = displaced {
            displaced.item.tell(None);
        }
        places.show_waiting();
        // a place that is free although others wait belongs to the first of them
        places.hand_out(since_ns);
        let until_ms = now_ms + u64::from(places.deadline_ms);
        let at_once = Arc::clone(self);
        let bell = WakeBell::default();
        Ok(PlaceAsked::Waits(PlaceWait { at_once, waiter, bell, id, until_ms, is_over: false }))
    }

    /// The present numbers.
    pub fn counts(&self) -> PlaceCounts {
        let places = self.places();
        PlaceCounts { taken: places.taken, waiting: places.queue.len() }
    }

    /// Hands out places that another process may have given back.
    pub fn turn(&self) {
        let mut places = self.places();
        if !places.queue.is_empty() {
            places.hand_out(clock::monotonic_ns());
        }
    }

    fn give_back(&self, taken: Taken) {
        let now_ns = clock::monotonic_ns();
        let mut places = self.places();
        places.give_back();
        if let Some(turn) = taken.turn {
            places.queue.ended(turn, now_ns.saturating_sub(taken.since_ns));
        }
        places.hand_out(now_ns);
    }
}

impl Places {
    /// Gives free places to the requests that are next, and wakes them.
    fn hand_out(&mut self, now_ns: u64) {
        while !self.queue.is_empty() {
            let highest = self.queue.ranks_waiting().trailing_zeros() as u8;
            if !self.take(highest, now_ns) {
                break;
            }
            let Some((waiting, turn)) = self.queue.pop(now_ns) else {
                self.give_back();
                break;
            };
            self.show_waiting();
            waiting.item.tell(Some(Taken { turn: Some(turn), since_ns: now_ns }));
        }
    }

    /// Takes a place for a request of this rank, if one is free that no other process has or is about to
    /// have.
    fn take(&mut self, rank: u8, now_ns: u64) -> bool {
        if self.taken >= self.most {
            return false;
        }
        if let Some(shared) = &self.shared {
            if shared.is_behind(rank, now_ns / 1_000_000) {
                return false;
            }
            // compared after taking: of two processes that take one at once, at least one sees the other
            shared.take();
            if u64::from(self.taken) + 1 + u64::from(shared.others()) > u64::from(self.most) {
                shared.give_back();
                return false;
            }
        }
        self.taken += 1;
        true
    }

    fn give_back(&mut self) {
        self.taken -= 1;
        self.shared.iter().for_each(SharedCount::give_back);
    }

    /// Shows other processes which ranks wait here.
    fn show_waiting(&self) {
        self.shared.iter().for_each(|shared| shared.set_waiting(self.queue.ranks_waiting()));
    }
}

impl PlaceWaiter {
    fn tell(&self, taken: Option<Taken>) {
        // set only once, because the request has left the queue before
        let _ = self.told.set(taken);
        self.slot.wake();
    }
}

impl Drop for InFlightPlace {
    fn drop(&mut self) {
        self.at_once.give_back(self.taken);
    }
}

impl PlaceWait {
    /// The slot where a loop leaves the waker of the request.
    pub fn wake_slot(&self) -> &WakeSlot {
        &self.waiter.slot
    }

    /// An eventfd that becomes readable with the result, if no waker is in the slot.
    pub fn socket(&self) -> Option<(SocketId, BorrowedFd<'_>, Wants)> {
        self.bell.socket(&self.waiter.slot)
    }

    /// The end of the wait, on the clock that the request has asked by; 0 where the request could not be
    /// woken, for lack of a descriptor.
    pub fn until_ms(&self) -> u64 {
        if self.bell.is_deaf() { 0 } else { self.until_ms }
    }

    /// Whether the result is there.
    pub fn is_told(&self) -> bool {
        self.waiter.told.get().is_some()
    }

    /// Ends the wait and returns the place, if the request got one until now.
    ///
    /// # Errors
    /// The request got no place.
    pub fn take(&mut self) -> Result<InFlightPlace, NoPlace> {
        if std::mem::replace(&mut self.is_over, true) {
            return Err(NoPlace);
        }
        // a request that is not in the queue any more has its result
        let mut places = self.at_once.places();
        if places.queue.remove(self.id).is_some() {
            places.show_waiting();
        }
        drop(places);
        let taken = self.waiter.told.get().copied().flatten().ok_or(NoPlace)?;
        Ok(InFlightPlace { at_once: Arc::clone(&self.at_once), taken })
    }
}

impl Drop for PlaceWait {
    fn drop(&mut self) {
        drop(self.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_policy::rule::Per;

    fn limit(most: u32, waiting: u32) -> InFlight {
        let over = Over::Queue { deadline_ms: 1000, most: waiting };
        InFlight { most, per: Per::Rule, over }
    }

    fn at_once(most: u32, waiting: u32) -> Arc<AtOnce> {
        AtOnce::new(&limit(most, waiting), &[], None, || None).unwrap()
    }

    fn ask(at_once: &Arc<AtOnce>, rank: u8, client: u64) -> Result<PlaceAsked, NoPlace> {
        at_once.ask(RequestOwner { rank, client }, 5_000)
    }

    fn place(at_once: &Arc<AtOnce>, rank: u8) -> InFlightPlace {
        let Ok(PlaceAsked::Has(place)) = ask(at_once, rank, 1) else { panic!("a place is free") };
        place
    }

    fn wait(at_once: &Arc<AtOnce>, rank: u8, client: u64) -> PlaceWait {
        let Ok(PlaceAsked::Waits(wait)) = ask(at_once, rank, client) else {
            panic!("none is free")
        };
        wait
    }

    fn counts(at_once: &Arc<AtOnce>) -> (u32, usize) {
        let PlaceCounts { taken, waiting } = at_once.counts();
        (taken, waiting)
    }

    /// Clients are spread over queues at random, and two clients share a queue once in a thousand times:
    /// so three runs in a row must fail.
    #[test]
    fn requests_over_the_limit_wait_by_rank_and_clients_take_turns() {
        let orders = [(); 3].map(|()| order_of_two_clients());
        assert!(orders.contains(&[3, 0, 2, 1]), "{orders:?}");
    }

    /// The order in which requests got a place: three of rank 1, the last of another client, one of rank
    /// 0.
    fn order_of_two_clients() -> [usize; 4] {
        let at_once = at_once(1, 10);
        let mut has = Some(place(&at_once, 1));
        let asked = [(1, 1), (1, 1), (1, 2), (0, 3)];
        let mut waits = asked.map(|(rank, client)| Some(wait(&at_once, rank, client)));
        assert_eq!(counts(&at_once), (1, 4));
        let order = [(); 4].map(|()| {
            drop(has.take());
            let is_told = |one: &Option<PlaceWait>| one.as_ref().is_some_and(PlaceWait::is_told);
            let next = waits.iter().position(is_told).unwrap();
            has = waits[next].take().map(|mut wait| wait.take().unwrap());
            next
        });
        assert_eq!(counts(&at_once), (1, 0));
        drop(has);
        assert_eq!(counts(&at_once), (0, 0));
        order
    }

    #[test]
    fn a_request_that_leaves_or_is_late_leaves_no_place_taken() {
        let at_once = at_once(1, 10);
        let has = place(&at_once, 0);
        let (leaves, mut late, told, mut next) = (
            wait(&at_once, 0, 1),
            wait(&at_once, 0, 2),
            wait(&at_once, 0, 3),
            wait(&at_once, 0, 4),
        );
        assert_eq!(next.until_ms(), 6_000);
        drop(leaves);
        assert_eq!(late.take().unwrap_err(), NoPlace);
        drop(late);
        assert_eq!(counts(&at_once), (1, 2));
        drop(has);
        assert!(told.is_told() && !next.is_told());
        // the request has its result, and leaves before it has looked at it
        drop(told);
        assert!(next.is_told());
        drop(next.take().unwrap());
        assert_eq!(counts(&at_once), (0, 0));
    }

    #[test]
    fn where_as_many_wait_as_may_the_lowest_rank_gives_way() {
        let at_once = at_once(1, 1);
        let has = place(&at_once, 1);
        let mut low = wait(&at_once, 1, 1);
        assert_eq!(ask(&at_once, 1, 1).map(|_| ()), Err(NoPlace));
        let mut high = wait(&at_once, 0, 2);
        assert!(low.is_told() && !high.is_told());
        assert_eq!(low.take().unwrap_err(), NoPlace);
        drop(has);
        assert!(high.take().is_ok());
    }

    #[test]
    fn a_rank_with_a_share_is_served_while_higher_ones_wait() {
        let limit = limit(1, 10);
        let at_once = AtOnce::new(&limit, &[0.0, 0.5], None, || None).unwrap();
        let has = place(&at_once, 0);
        let (high, low) = (wait(&at_once, 0, 1), wait(&at_once, 1, 2));
        std::thread::sleep(std::time::Duration::from_millis(2));
        drop(has);
        assert!(low.is_told() && !high.is_told(), "half of the time is the lower rank's");
    }

    #[test]
    fn another_limit_holds_for_those_that_wait() {
        let at_once = at_once(1, 10);
        let has = [place(&at_once, 0)];
        let waits = [1, 2, 3].map(|client| wait(&at_once, 0, client));
        let told = || waits.iter().filter(|wait| wait.is_told()).count();
        let same = AtOnce::new(&limit(3, 1), &[], Some(&at_once), || None).unwrap();
        assert!(Arc::ptr_eq(&same, &at_once));
        assert_eq!((told(), counts(&at_once)), (2, (3, 1)));
        // with fewer places than are taken, none is handed out before enough are back
        AtOnce::new(&limit(1, 10), &[], Some(&at_once), || None).unwrap();
        drop(has);
        assert_eq!((told(), counts(&at_once)), (2, (2, 1)));
        let rejects = InFlight { over: Over::default(), ..limit(1, 1) };
        assert!(AtOnce::new(&rejects, &[], Some(&at_once), || None).is_none());
    }
}
