//! The queue of requests that wait while all upstreams have as many under way as they may. There is
//! one queue for the whole process, in the order of the ready queues (rank, floors, clients in turn).
//!
//! A request that comes while the queue is full takes the place of another, if one gives way:
//!
//! 1. the last that came of the lowest rank below its own. A rank with a share keeps that part of the
//!    places, and takes it back from any other;
//! 2. the last of a client of its own rank that has more requests than its own client among the
//!    [last](LOOKED_AT) that came.
//!
//! An agent may also limit each rank, by its number of unfinished requests: those that wait and those
//! under way.

use crate::group::MemberIndex;
use forebay_control::ranked::{Key, MOST_RANKS, Ranked, Turn};
use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::ops::RangeInclusive;

/// How many requests of a rank are examined to find a client that gives way.
pub const LOOKED_AT: usize = 32;

/// The rank and the client of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestOwner {
    /// The rank: requests are served in this order, 0 first.
    pub rank: u8,
    /// The client, as a number that identifies it.
    pub client: u64,
}

/// A request for a place at an upstream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asking {
    /// The rank and client of the request.
    pub owner: RequestOwner,
    /// The [hash](crate::group::balance::hash) of what the request is balanced by.
    pub key: u64,
    /// Restrictions on the upstream; `None` if any will do, as for most requests.
    pub choice: Option<Box<MemberChoice>>,
}

/// Restrictions on the upstream for a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberChoice {
    /// The upstreams that were asked before; they are asked again only if there is no other.
    pub tried: Vec<MemberIndex>,
    /// The preferred upstream, if it may be asked and has room.
    pub wanted: Option<MemberIndex>,
    /// Whether the request goes to another upstream than those it was asked of, now or never.
    pub only_others: bool,
}

impl Asking {
    /// A request for any upstream.
    pub fn new(owner: RequestOwner, key: u64) -> Asking {
        Asking { owner, key, choice: None }
    }

    /// The same request, with this preferred upstream.
    #[must_use]
    pub fn wanting(self, wanted: Option<MemberIndex>) -> Asking {
        match wanted {
            Some(_) => self.of(MemberChoice { wanted, ..MemberChoice::default() }),
            None => self,
        }
    }

    /// The same request, with these restrictions.
    #[must_use]
    pub fn of(self, choice: MemberChoice) -> Asking {
        Asking { choice: Some(Box::new(choice)), ..self }
    }

    /// The upstreams that were asked before.
    pub fn tried(&self) -> &[MemberIndex] {
        self.choice.as_ref().map_or(&[], |choice| &choice.tried)
    }

    pub(super) fn wanted(&self) -> Option<MemberIndex> {
        self.choice.as_ref()?.wanted
    }

    pub(super) fn only_others(&self) -> bool {
        self.choice.as_ref().is_some_and(|choice| choice.only_others)
    }
}

/// The identity of a waiting request. Requests of lower ranks have greater ids, and so have those
/// that came later. The rank is in the first eight bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WaiterId(NonZeroU64);

impl WaiterId {
    const NUMBER_BITS: u32 = 56;

    fn new(rank: u8, number: NonZeroU64) -> WaiterId {
        WaiterId(number | u64::from(rank) << WaiterId::NUMBER_BITS)
    }

    fn rank(self) -> u8 {
        (self.0.get() >> WaiterId::NUMBER_BITS) as u8
    }

    /// The range of all ids of a rank.
    fn all_of(rank: u8) -> RangeInclusive<WaiterId> {
        let last = NonZeroU64::MAX.get() >> (u64::BITS - WaiterId::NUMBER_BITS);
        let last = NonZeroU64::new(last).unwrap_or(NonZeroU64::MIN);
        WaiterId::new(rank, NonZeroU64::MIN)..=WaiterId::new(rank, last)
    }
}

/// A waiting request.
#[derive(Debug)]
pub struct QueuedRequest<T> {
    /// The place that it asks for.
    pub asking: Asking,
    /// When the wait began, in nanoseconds.
    pub since_ns: u64,
    /// The means to notify the request.
    pub item: T,
}

/// The counts of a rank since the queue was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCounts {
    /// The number of requests that came.
    pub offered: u64,
    /// The number of these that an agent's limit refused.
    pub refused: u64,
    /// The number of requests that were begun.
    pub began: u64,
    /// The total time that these had waited.
    pub waited_ns: u64,
    /// The number of requests that have ended, except tunnels.
    pub finished: u64,
    /// The total time that an upstream was busy with these.
    pub busy_ns: u64,
    /// The number of requests that wait or are under way.
    pub unfinished: u32,
    /// The number of these that wait.
    pub waiting: u32,
}

/// The queue of a group of upstreams.
#[derive(Debug)]
pub struct UpstreamQueue<T> {
    order: Ranked<WaiterId>,
    /// In boxes, so that each place takes only a pointer: new ids are always the greatest, which
    /// leaves half of the tree's places empty.
    waiting: BTreeMap<WaiterId, Box<(Key, QueuedRequest<T>)>>,
    most: usize,
    next: NonZeroU64,
    ranks: Vec<RankQueue>,
    shares: [f64; MOST_RANKS],
}

#[derive(Clone, Copy, Debug)]
struct RankQueue {
    counts: QueueCounts,
    /// The largest number of unfinished requests.
    most: u32,
    retry_after_s: u32,
}

impl Default for RankQueue {
    fn default() -> RankQueue {
        RankQueue { counts: QueueCounts::default(), most: u32::MAX, retry_after_s: 0 }
    }
}

/// Why a request may not wait.
#[derive(Debug, PartialEq, Eq)]
pub enum QueueRefusal {
    /// The queue is full.
    Full,
    /// The rank has as many unfinished requests as an agent allows.
    Limited {
        /// After how many seconds the client is asked to come back.
        retry_after_s: u32,
    },
}

impl<T> UpstreamQueue<T> {
    /// A queue in strict order of ranks, for at most `most` requests. `seed` should be secret.
    pub fn new(most: usize, seed: u64) -> UpstreamQueue<T> {
        // all possible ranks are there from the start, so that classes may come and go while requests
        // wait
        let order = Ranked::new(&[0.0; MOST_RANKS], usize::MAX, seed);
        let order = order.unwrap_or_else(|_| Ranked::single(usize::MAX, seed));
        let shares = [0.0; MOST_RANKS];
        let (waiting, ranks) = (BTreeMap::new(), Vec::new());
        UpstreamQueue { order, waiting, most, next: NonZeroU64::MIN, ranks, shares }
    }

    /// Guarantees each rank this share of the upstreams' time while its requests wait, whatever
    /// higher ranks want.
    pub fn set_shares(&mut self, shares: &[f64]) {
        let mut all = [0.0; MOST_RANKS];
        for (all, share) in all.iter_mut().zip(shares) {
            *all = *share;
        }
        // invalid shares leave the order as it is
        if all != self.shares && self.order.set_shares(&all).is_ok() {
            self.shares = all;
        }
    }

    /// Changes the largest number of waiting requests; those that wait stay.
    pub fn set_most(&mut self, most: usize) {
        self.most = most;
    }

    /// Limits the number of unfinished requests of a rank; `None` for no limit. The client of a
    /// refused request gets `retry_after_s`.
    pub fn limit(&mut self, rank: u8, most: Option<u32>, retry_after_s: u32) {
        let known = self.rank(rank);
        (known.most, known.retry_after_s) = (most.unwrap_or(u32::MAX), retry_after_s);
    }

    /// The counts of a rank.
    pub fn counts(&self, rank: u8) -> QueueCounts {
        self.ranks.get(usize::from(rank)).map_or_else(QueueCounts::default, |rank| rank.counts)
    }

    fn rank(&mut self, rank: u8) -> &mut RankQueue {
        let rank = usize::from(rank);
        if rank >= self.ranks.len() {
            self.ranks.resize_with(rank + 1, RankQueue::default);
        }
        &mut self.ranks[rank]
    }

    /// When the oldest waiting request of a rank began to wait, in nanoseconds.
    pub fn waits_since(&self, rank: u8) -> Option<u64> {
        self.waiting.range(WaiterId::all_of(rank)).next().map(|(_, one)| one.1.since_ns)
    }

    /// The number of waiting requests.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether no request waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The ranks with waiting requests, a bit for each.
    pub fn ranks_waiting(&self) -> u32 {
        let waits = |(_, rank): &(u32, &RankQueue)| rank.counts.waiting > 0;
        (0..u32::BITS).zip(&self.ranks).filter(waits).fold(0, |ranks, (rank, _)| ranks | 1 << rank)
    }

    /// Adds a request to the queue. A request that was asked before is not refused by an agent's
    /// limit. `item` is called once it is known that the request may wait. If the request takes
    /// another's place, the other is returned.
    ///
    /// # Errors
    /// Why the request may not wait.
    pub fn push(
        &mut self,
        asking: Asking,
        since_ns: u64,
        item: impl FnOnce() -> T,
    ) -> Result<(WaiterId, Option<QueuedRequest<T>>), QueueRefusal> {
        let RequestOwner { rank, client } = asking.owner;
        let again = !asking.tried().is_empty();
        let rank = rank.min(MOST_RANKS as u8 - 1);
        let known = self.rank(rank);
        known.counts.offered += 1;
        if known.counts.unfinished >= known.most && !again {
            known.counts.refused += 1;
            return Err(QueueRefusal::Limited { retry_after_s: known.retry_after_s });
        }
        let other = match self.waiting.len() < self.most {
            true => None,
            false => {
                let other = self.below(rank).or_else(|| self.of_a_greater_client(rank, client));
                Some(other.ok_or(QueueRefusal::Full)?)
            }
        };
        let waiting = QueuedRequest { asking, since_ns, item: item() };
        let displaced = other.and_then(|other| self.remove(other));
        let id = WaiterId::new(rank, self.next);
        self.next = self.next.saturating_add(1);
        let Ok(key) = self.order.push(rank, client, 1, id) else { return Err(QueueRefusal::Full) };
        self.waiting.insert(id, Box::new((key, waiting)));
        let counts = &mut self.rank(rank).counts;
        (counts.unfinished, counts.waiting) = (counts.unfinished + 1, counts.waiting + 1);
        Ok((id, displaced))
    }

    /// The number of places that no other rank takes from this one.
    fn kept(&self, rank: usize) -> usize {
        (self.shares[rank] * self.most as f64) as usize
    }

    /// The waiting requests of a rank, the last that came first.
    fn of_rank(&self, rank: u8) -> impl Iterator<Item = (WaiterId, u64)> {
        let found = self.waiting.range(WaiterId::all_of(rank)).rev();
        found.map(|(id, one)| (*id, one.1.asking.owner.client))
    }

    /// A request of another rank that gives way to one of this rank.
    fn below(&self, rank: u8) -> Option<WaiterId> {
        let own = usize::from(rank);
        let waiting = |known: &RankQueue| known.counts.waiting as usize;
        let is_owed = self.ranks.get(own).is_some_and(|known| waiting(known) < self.kept(own));
        let gives_way = |other: &usize| {
            let has_more = waiting(&self.ranks[*other]) > self.kept(*other);
            *other != own && has_more && (*other > own || is_owed)
        };
        let lowest = (0..self.ranks.len()).rev().find(gives_way)?;
        self.of_rank(lowest as u8).next().map(|(id, _)| id)
    }

    /// A request of the same rank, of a client that has more of the last requests that came.
    fn of_a_greater_client(&self, rank: u8, client: u64) -> Option<WaiterId> {
        let last: Vec<_> = self.of_rank(rank).take(LOOKED_AT).collect();
        let count = |of: u64| last.iter().filter(|(_, client)| *client == of).count();
        let (id, most) =
            last.iter().map(|(id, of)| (*id, count(*of))).rev().max_by_key(|one| one.1)?;
        (most > count(client) + 1).then_some(id)
    }

    /// Begins a request at once, while no request of its rank or a higher one waits. The turn goes
    /// with it until it has [ended](UpstreamQueue::ended).
    ///
    /// # Errors
    /// An agent's limit refuses the request.
    pub fn pass(&mut self, owner: RequestOwner, again: bool) -> Result<Option<Turn>, QueueRefusal> {
        let rank = owner.rank.min(MOST_RANKS as u8 - 1);
        debug_assert!(self.ranks_waiting().trailing_zeros() > u32::from(rank));
        let known = self.rank(rank);
        known.counts.offered += 1;
        if known.counts.unfinished >= known.most && !again {
            known.counts.refused += 1;
            return Err(QueueRefusal::Limited { retry_after_s: known.retry_after_s });
        }
        known.counts.unfinished += 1;
        known.counts.began += 1;
        let id = WaiterId::new(rank, self.next);
        let _ = self.order.push(rank, owner.client, 1, id);
        Ok(self.order.pop_within(rank).map(|(_, turn)| turn))
    }

    /// Takes the next request, which begins at `now_ns`.
    pub fn pop(&mut self, now_ns: u64) -> Option<(QueuedRequest<T>, Turn)> {
        self.pop_down_to(u8::MAX, now_ns)
    }

    /// Takes the next request of the ranks down to `last`, which begins at `now_ns`.
    pub fn pop_down_to(&mut self, last: u8, now_ns: u64) -> Option<(QueuedRequest<T>, Turn)> {
        let (id, turn) = self.order.pop_within(last)?;
        let (_, waiting) = *self.waiting.remove(&id)?;
        let counts = &mut self.rank(id.rank()).counts;
        counts.waiting = counts.waiting.saturating_sub(1);
        counts.began += 1;
        counts.waited_ns += now_ns.saturating_sub(waiting.since_ns);
        Some((waiting, turn))
    }

    /// Removes a request; `None` if it does not wait.
    pub fn remove(&mut self, id: WaiterId) -> Option<QueuedRequest<T>> {
        let (key, waiting) = *self.waiting.remove(&id)?;
        self.order.remove(key);
        let counts = &mut self.rank(id.rank()).counts;
        counts.waiting = counts.waiting.saturating_sub(1);
        counts.unfinished = counts.unfinished.saturating_sub(1);
        Some(waiting)
    }

    /// Notes that a request has ended, with which its upstream was busy for `ns`.
    pub fn ended(&mut self, turn: Turn, ns: u64) {
        let counts = &mut self.rank(turn.rank()).counts;
        counts.finished += 1;
        counts.busy_ns += ns;
        self.release(turn, ns);
    }

    /// Notes that a tunnel has ended, which a request had become. Its upstream had it under way for
    /// `ns`, but that does not count as the cost of a request.
    pub fn tunnel_ended(&mut self, turn: Turn, ns: u64) {
        self.release(turn, ns);
    }

    fn release(&mut self, turn: Turn, ns: u64) {
        let counts = &mut self.rank(turn.rank()).counts;
        counts.unfinished = counts.unfinished.saturating_sub(1);
        self.order.ran(turn, ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Pushed = Result<(WaiterId, Option<QueuedRequest<&'static str>>), QueueRefusal>;

    fn named(
        queue: &mut UpstreamQueue<&'static str>,
        rank: u8,
        client: u64,
        item: &'static str,
    ) -> Pushed {
        let asking = Asking { owner: RequestOwner { rank, client }, ..Asking::default() };
        queue.push(asking, 0, || item)
    }

    fn of(queue: &mut UpstreamQueue<&'static str>, rank: u8, client: u64) -> Pushed {
        named(queue, rank, client, "")
    }

    fn again(queue: &mut UpstreamQueue<&'static str>, rank: u8, client: u64) -> Pushed {
        let owner = RequestOwner { rank, client };
        let choice = MemberChoice { tried: vec![0], ..MemberChoice::default() };
        queue.push(Asking::new(owner, 0).of(choice), 0, || "")
    }

    fn queue(most: usize) -> UpstreamQueue<&'static str> {
        UpstreamQueue::new(most, 0x9e37_79b9_7f4a_7c15)
    }

    fn push(
        queue: &mut UpstreamQueue<&'static str>,
        rank: u8,
        client: u64,
        item: &'static str,
    ) -> WaiterId {
        named(queue, rank, client, item).unwrap().0
    }

    fn order(queue: &mut UpstreamQueue<&'static str>) -> Vec<&'static str> {
        std::iter::from_fn(|| {
            let (waiting, turn) = queue.pop(10)?;
            queue.ended(turn, 1);
            Some(waiting.item)
        })
        .collect()
    }

    #[test]
    fn ranks_come_in_order_and_clients_by_turns() {
        let mut queue = queue(10);
        for (rank, client, item) in
            [(1, 1, "b1"), (1, 1, "b2"), (1, 1, "b3"), (1, 2, "c1"), (0, 3, "a1"), (9, 9, "z")]
        {
            push(&mut queue, rank, client, item);
        }
        assert_eq!(order(&mut queue), ["a1", "b1", "c1", "b2", "b3", "z"]);
    }

    #[test]
    fn who_leaves_is_passed_over() {
        let mut queue = queue(10);
        let first = push(&mut queue, 0, 1, "first");
        push(&mut queue, 0, 1, "second");
        assert_eq!(queue.remove(first).map(|one| one.item), Some("first"));
        assert!(queue.remove(first).is_none());
        assert_eq!((queue.len(), queue.counts(0).unfinished), (1, 1));
        assert_eq!(order(&mut queue), ["second"]);
        assert!(queue.is_empty() && queue.counts(0).unfinished == 0);
    }

    #[test]
    fn where_it_is_full_the_last_of_the_lowest_rank_gives_way() {
        let mut queue = queue(3);
        for (rank, item) in [(1, "b1"), (2, "c1"), (2, "c2")] {
            push(&mut queue, rank, u64::from(rank), item);
        }
        assert_eq!(of(&mut queue, 2, 2).unwrap_err(), QueueRefusal::Full);
        let (_, displaced) = named(&mut queue, 1, 1, "b2").unwrap();
        assert_eq!(displaced.map(|one| one.item), Some("c2"));
        let (_, displaced) = named(&mut queue, 0, 0, "a").unwrap();
        assert_eq!(displaced.map(|one| one.item), Some("c1"));
        assert_eq!(of(&mut queue, 2, 2).unwrap_err(), QueueRefusal::Full);
        assert_eq!(order(&mut queue), ["a", "b1", "b2"]);
        assert_eq!(queue.counts(2).unfinished, 0);
        let mut none = self::queue(0);
        // `item` is not called for a request that may not wait
        let refused = none.push(Asking::default(), 0, || panic!("it does not wait"));
        assert_eq!(refused.unwrap_err(), QueueRefusal::Full);
    }

    #[test]
    fn a_rank_with_a_share_keeps_its_part_of_the_places() {
        let mut queue = queue(4);
        queue.set_shares(&[0.0, 0.5]);
        (0..4).for_each(|_| _ = push(&mut queue, 0, 1, "gold"));
        for _ in 0..2 {
            let (_, displaced) = named(&mut queue, 1, 2, "bulk").unwrap();
            assert_eq!(displaced.map(|one| one.item), Some("gold"));
        }
        assert_eq!(named(&mut queue, 1, 2, "bulk").unwrap_err(), QueueRefusal::Full);
        assert_eq!(named(&mut queue, 0, 1, "gold").unwrap_err(), QueueRefusal::Full);
        assert_eq!(queue.len(), 4);
    }

    #[test]
    fn where_it_is_full_a_client_with_many_gives_way_to_others() {
        let mut queue = queue(4);
        (0..4).for_each(|_| _ = push(&mut queue, 0, 1, "many"));
        for client in [2, 3] {
            let (_, displaced) = named(&mut queue, 0, client, "one").unwrap();
            assert_eq!(displaced.map(|one| one.item), Some("many"));
        }
        // both clients have as many requests
        assert_eq!(named(&mut queue, 0, 2, "one").unwrap_err(), QueueRefusal::Full);
        assert_eq!(named(&mut queue, 0, 1, "many").unwrap_err(), QueueRefusal::Full);
    }

    #[test]
    fn an_agent_bounds_what_waits_and_what_is_under_way() {
        let mut queue = queue(10);
        queue.limit(1, Some(2), 7);
        let turn = queue.pass(RequestOwner { rank: 1, client: 1 }, false).unwrap().unwrap();
        push(&mut queue, 1, 1, "");
        let limited = QueueRefusal::Limited { retry_after_s: 7 };
        assert_eq!(of(&mut queue, 1, 2).unwrap_err(), limited);
        assert!(again(&mut queue, 1, 2).is_ok(), "it has come before");
        push(&mut queue, 0, 1, "");
        queue.ended(turn, 5);
        let counts = queue.counts(1);
        assert_eq!((counts.offered, counts.refused, counts.began), (4, 1, 1));
        assert_eq!((counts.finished, counts.busy_ns), (1, 5));
        assert_eq!((counts.unfinished, counts.waiting), (2, 2));
        queue.limit(1, None, 0);
        assert!(of(&mut queue, 1, 2).is_ok());
        order(&mut queue);
        let counts = queue.counts(1);
        assert_eq!((counts.waited_ns, counts.unfinished, counts.waiting), (30, 0, 0));
    }

    #[test]
    fn shares_and_bounds_change_while_requests_wait() {
        let mut queue = queue(4);
        for (rank, item) in [(0, "a1"), (0, "a2"), (1, "b")] {
            push(&mut queue, rank, 1, item);
        }
        queue.set_most(1);
        assert_eq!(of(&mut queue, 1, 1).unwrap_err(), QueueRefusal::Full);
        // the cost of a service is not known yet, so a rank with a share is due at once
        queue.set_shares(&[0.0, 0.9]);
        assert_eq!(order(&mut queue), ["b", "a1", "a2"]);
    }
}
