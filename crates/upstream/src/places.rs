//! Places: how many requests upstreams may have under way, and which request gets a place when one is
//! free.
//!
//! ```text
//!              a place is free, and none waits
//!   asks ──┬──────────────────────────────────────► begun ──► ended ──► its place is the next one's
//!          │                                          ▲
//!          └──► waits in the queue, by rank ──────────┘
//!                 │ leaves, or is told that it will not be asked
//! ```
//!
//! There is no socket and no clock. Threads that share this lock it for a short time when a request
//! comes and when it ends, and then notify the requests that [`next`](Places::next) returns.

pub mod queue;

use crate::group::health::HealthSign;
use crate::group::{MemberIndex, Unavailable, UpstreamGroup};
use crate::places::queue::{Asking, QueueCounts, QueueRefusal, UpstreamQueue, WaiterId};
use crate::settings;
use forebay_control::concurrency::AnswerQuality;
use forebay_control::ranked::Turn;
use forebay_control::shared::SharedCount;
use std::collections::VecDeque;

/// A group of upstreams, and the requests that wait for one of them. `T` is the means to notify such
/// a request.
#[derive(Debug)]
pub struct Places<T> {
    group: UpstreamGroup,
    queue: UpstreamQueue<T>,
    /// Whether the number of requests under way to each upstream is limited.
    is_bounded: bool,
    /// The number of places of each upstream that requests of a rank may not take, by rank; the last
    /// entry holds for all lower ranks.
    kept: Vec<u32>,
    /// How long a request may wait.
    most_wait_ns: u64,
    displaced: VecDeque<T>,
    /// The rank of a request that has found no place, and when, if no place was given back since. Of
    /// several, the highest rank among the latest counts.
    lacked: Option<(u8, u64)>,
    /// The count of requests that wait in other processes.
    shared: Option<SharedCount>,
}

/// How long a request that has found no place is remembered. This is longer than the time between two
/// checks of a body that is late.
const LACKED_NS: u64 = 2_000_000_000;

/// A request that was begun; it must be [ended](Places::end).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begun {
    /// The upstream that is asked.
    pub member: MemberIndex,
    /// When the request was begun, in nanoseconds.
    since_ns: u64,
    turn: Option<Turn>,
    is_tunnel: bool,
    is_error: bool,
}

impl Begun {
    /// Notes that the connection has become a tunnel, whose duration shows nothing of what a request
    /// costs. Returns whether it was none before.
    pub fn becomes_tunnel(&mut self) -> bool {
        !std::mem::replace(&mut self.is_tunnel, true)
    }

    /// Notes that the answer is an error of the application.
    pub fn is_error(&mut self) {
        self.is_error = true;
    }

    fn new(member: MemberIndex, since_ns: u64, turn: Option<Turn>) -> Begun {
        Begun { member, since_ns, turn, is_tunnel: false, is_error: false }
    }

    /// What the end of the request shows about the useful number of requests under way.
    fn outcome(&self, told: HealthSign) -> AnswerQuality {
        match told {
            HealthSign::Nothing => AnswerQuality::Unknown,
            HealthSign::Failed => AnswerQuality::Failed,
            _ if self.is_error => AnswerQuality::Failed,
            HealthSign::Well | HealthSign::Head | HealthSign::Whole => AnswerQuality::Good,
        }
    }
}

/// The outcome of asking for a place.
#[derive(Debug, PartialEq, Eq)]
pub enum Placement {
    /// The request is begun.
    Begun(Begun),
    /// The request waits, and is notified later.
    Waits(WaiterId),
}

/// The time on two monotonic clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clocks {
    /// The clock of health and checks, in milliseconds.
    pub ms: u64,
    /// The clock of waits and durations, in nanoseconds.
    pub ns: u64,
}

impl<T> Places<T> {
    /// Places with these settings. `seed` is any number, and should be secret.
    pub fn new(settings: &settings::GroupSettings, seed: u64, now_ms: u64) -> Places<T> {
        Places {
            group: UpstreamGroup::new(settings, seed, now_ms),
            queue: UpstreamQueue::new(settings.queue.requests as usize, seed),
            is_bounded: settings.in_flight.is_some(),
            kept: kept(settings),
            most_wait_ns: most_wait_ns(settings),
            displaced: VecDeque::new(),
            lacked: None,
            shared: None,
        }
    }

    /// Counts what is under way to each upstream, and what waits, in these shared counts, too, from
    /// now on. What other processes have under way counts here, and their waiting requests have their
    /// turn.
    pub fn share(
        &mut self,
        members: impl IntoIterator<Item = Option<SharedCount>>,
        queue: Option<SharedCount>,
    ) {
        self.group.share(members);
        self.shared.iter().for_each(|before| before.set_waiting(0));
        self.shared = queue;
        self.show_waiting();
    }

    /// Whether a request that waits in another process goes before one of this rank.
    fn is_behind_others(&self, rank: u8, now: Clocks) -> bool {
        self.shared.is_some_and(|shared| shared.is_behind(rank, now.ms))
    }

    /// Shows other processes which ranks wait here.
    fn show_waiting(&self) {
        self.shared.iter().for_each(|shared| shared.set_waiting(self.queue.ranks_waiting()));
    }

    /// Takes over other settings for the same upstreams, and other shares of the ranks. What is under
    /// way stays, and what waits keeps its place.
    pub fn set(&mut self, settings: &settings::GroupSettings, shares: &[f64], now_ms: u64) {
        self.group.set(settings, now_ms);
        self.queue.set_shares(shares);
        self.queue.set_most(settings.queue.requests as usize);
        self.is_bounded = settings.in_flight.is_some();
        self.kept = kept(settings);
        self.most_wait_ns = most_wait_ns(settings);
    }

    /// The upstreams.
    pub fn group(&self) -> &UpstreamGroup {
        &self.group
    }

    /// The upstreams, for changes. The caller calls [`next`](Places::next) afterwards for the waiting
    /// requests.
    pub fn group_mut(&mut self) -> &mut UpstreamGroup {
        &mut self.group
    }

    /// Asks for a place, for a new request or for one that another upstream did not answer.
    ///
    /// # Errors
    /// Why the request gets none.
    pub fn ask(
        &mut self,
        asking: Asking,
        now: Clocks,
        item: impl FnOnce() -> T,
    ) -> Result<Placement, Unavailable> {
        let again = !asking.tried().is_empty();
        self.group.keep_back(self.kept_from(asking.owner.rank));
        let mut has_other =
            || self.queue.is_empty() && self.group.has_other(asking.tried(), now.ms);
        if asking.only_others() && !has_other() {
            return Err(Unavailable::Full);
        }
        if !self.is_bounded {
            let member = self.pick(&asking, now)?;
            return Ok(Placement::Begun(Begun::new(member, now.ns, None)));
        }
        match self.group.has_room(now.ms) {
            Ok(())
                if self.passes(asking.owner.rank)
                    && !self.is_behind_others(asking.owner.rank, now) =>
            {
                let turn = self.queue.pass(asking.owner, again)?;
                match self.begin(&asking, turn, now) {
                    // another process has taken the place
                    Err(Unavailable::Full) => {}
                    begun => return begun.map(Placement::Begun),
                }
            }
            Err(Unavailable::Down) => return Err(Unavailable::Down),
            _ => {}
        }
        let rank = asking.owner.rank;
        let pushed = self.queue.push(asking, now.ns, item);
        // a request that an agent's limit refuses would not be helped by a free place
        if !matches!(pushed, Err(QueueRefusal::Limited { .. })) {
            self.lacks(rank, now.ns);
        }
        let (id, displaced) = pushed?;
        self.show_waiting();
        self.displaced.extend(displaced.map(|waiting| waiting.item));
        Ok(Placement::Waits(id))
    }

    /// Whether a request of this rank need not wait where there is room for it: no request waits, or
    /// only such for which there is no room, because more places are kept from them.
    fn passes(&self, rank: u8) -> bool {
        let first = self.queue.ranks_waiting().trailing_zeros() as u8;
        self.queue.is_empty() || (rank < first && self.kept_from(rank) < self.kept_from(first))
    }

    /// Notes that a request of this rank has found no place.
    fn lacks(&mut self, rank: u8, now_ns: u64) {
        let is_higher = |(of, ns): (u8, u64)| of < rank && now_ns.saturating_sub(ns) < LACKED_NS;
        if !self.lacked.is_some_and(is_higher) {
            self.lacked = Some((rank, now_ns));
        }
    }

    fn begin(
        &mut self,
        asking: &Asking,
        turn: Option<Turn>,
        now: Clocks,
    ) -> Result<Begun, Unavailable> {
        let begun = self.pick(asking, now);
        if let Ok(member) = begun {
            self.group.look(member, now.ns);
        }
        let begun = begun.map(|member| Begun::new(member, now.ns, turn));
        if let (Err(_), Some(turn)) = (&begun, turn) {
            self.queue.ended(turn, 0);
        }
        begun
    }

    /// Picks the upstream.
    fn pick(&mut self, asking: &Asking, now: Clocks) -> Result<MemberIndex, Unavailable> {
        if let Some(wanted) = asking.wanted()
            && self.group.begin_at(wanted, now.ms)
        {
            return Ok(wanted);
        }
        self.group.begin(asking.key, asking.tried(), now.ms)
    }

    /// Ends a request that was begun.
    pub fn end(&mut self, begun: Begun, told: HealthSign, now: Clocks) {
        let ns = now.ns.saturating_sub(begun.since_ns);
        match begun.is_tunnel {
            true => self.group.tunnel(begun.member, false),
            false => self.group.learn(begun.member, ns, begun.outcome(told), now.ns),
        }
        self.group.end(begun.member, told, now.ms);
        self.group.look(begun.member, now.ns);
        self.lacked = None;
        let Some(turn) = begun.turn else { return };
        match begun.is_tunnel {
            true => self.queue.tunnel_ended(turn, ns),
            false => self.queue.ended(turn, ns),
        }
    }

    /// Ends the wait of a request. Returns whether it still waited; if not, its outcome is known
    /// already.
    pub fn leave(&mut self, id: WaiterId) -> bool {
        let has_left = self.queue.remove(id).is_some();
        self.show_waiting();
        has_left
    }

    /// The next waiting request whose outcome is known: it is begun, or will not be.
    pub fn next(&mut self, now: Clocks) -> Option<(T, Result<Begun, Unavailable>)> {
        if let Some(item) = self.displaced.pop_front() {
            return Some((item, Err(Unavailable::Full)));
        }
        let highest = self.queue.ranks_waiting().trailing_zeros() as u8;
        if self.queue.is_empty() || self.is_behind_others(highest, now) {
            return None;
        }
        let mut last = self.last_with_room(highest, now);
        if self.group.has_room(now.ms) == Err(Unavailable::Full) && self.group.relieve(now.ns) {
            last = self.last_with_room(highest, now);
        }
        match self.group.has_room(now.ms) {
            // room is reserved before a request leaves the queue, because another process may be
            // faster
            Ok(()) if !self.group.hold(now.ms) => return None,
            Err(Unavailable::Full) => return None,
            _ => {}
        }
        let next = self.begin_next(last, now);
        self.group.let_go();
        next
    }

    fn begin_next(&mut self, last: u8, now: Clocks) -> Option<(T, Result<Begun, Unavailable>)> {
        let (waiting, turn) = self.queue.pop_down_to(last, now.ns)?;
        self.show_waiting();
        // the loop that watches its deadline may be late, and another request makes better use of the
        // place
        if now.ns.saturating_sub(waiting.since_ns) > self.most_wait_ns {
            self.queue.ended(turn, 0);
            return Some((waiting.item, Err(Unavailable::Late)));
        }
        let begun = self.begin(&waiting.asking, Some(turn), now);
        Some((waiting.item, begun))
    }

    /// The number of places of each upstream that a request of this rank may not take.
    fn kept_from(&self, rank: u8) -> u32 {
        self.kept.get(usize::from(rank)).or(self.kept.last()).copied().unwrap_or_default()
    }

    /// The lowest waiting rank for which there is room, or the highest. The places that are kept from
    /// that rank are kept from all that are considered next.
    fn last_with_room(&mut self, highest: u8, now: Clocks) -> u8 {
        if self.kept.is_empty() {
            self.group.keep_back(0);
            return u8::MAX;
        }
        let waiting = self.queue.ranks_waiting();
        let mut ranks =
            (highest + 1..u32::BITS as u8).rev().filter(|rank| waiting >> rank & 1 == 1);
        let lower = ranks.find(|rank| {
            self.group.keep_back(self.kept_from(*rank));
            // a failure for lack of upstreams may be reported in any order
            self.group.has_room(now.ms) != Err(Unavailable::Full)
        });
        let last = lower.unwrap_or(highest);
        self.group.keep_back(self.kept_from(last));
        last
    }

    /// The number of waiting requests.
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Whether a request waits for a place because one of this rank has it: a request of the same or
    /// a higher rank waits, or has found no place a moment ago, and none was given back since.
    pub fn is_short(&self, rank: u8, now: Clocks) -> bool {
        let is_of_now = |(of, ns)| of <= rank && now.ns.saturating_sub(ns) < LACKED_NS;
        (0..=rank).any(|of| self.waits_since(of).is_some()) || self.lacked.is_some_and(is_of_now)
    }

    /// Limits the number of unfinished requests of a rank; `None` for no limit. The client of a
    /// refused request gets `retry_after_s`.
    pub fn limit(&mut self, rank: u8, most: Option<u32>, retry_after_s: u32) {
        self.queue.limit(rank, most, retry_after_s);
    }

    /// When the oldest waiting request of a rank began to wait, in nanoseconds.
    pub fn waits_since(&self, rank: u8) -> Option<u64> {
        self.queue.waits_since(rank)
    }

    /// The counts of a rank.
    pub fn counts(&self, rank: u8) -> QueueCounts {
        self.queue.counts(rank)
    }
}

/// The number of places of each upstream that requests of a rank may not take, by rank.
fn kept(settings: &settings::GroupSettings) -> Vec<u32> {
    let last = settings.reserve.iter().filter_map(|one| one.rank).max();
    last.map_or_else(Vec::new, |last| (0..=last + 1).map(|rank| settings.kept_from(rank)).collect())
}

fn most_wait_ns(settings: &settings::GroupSettings) -> u64 {
    u64::try_from(settings.queue.time.as_nanos()).unwrap_or(u64::MAX)
}

impl From<QueueRefusal> for Unavailable {
    fn from(refused: QueueRefusal) -> Unavailable {
        match refused {
            QueueRefusal::Full => Unavailable::Full,
            QueueRefusal::Limited { retry_after_s } => Unavailable::Limited { retry_after_s },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::tests::settings as group_of;
    use crate::places::queue::RequestOwner;
    use crate::settings::Balance;
    use proptest::prelude::*;

    fn settings(count: usize, in_flight: Option<u32>, most: u32) -> settings::GroupSettings {
        let group = group_of(count, Balance::Least, in_flight);
        settings::GroupSettings {
            queue: settings::QueueSettings { requests: most, ..group.queue },
            ..group
        }
    }

    fn asking(rank: u8) -> Asking {
        Asking { owner: RequestOwner { rank, client: 1 }, ..Asking::default() }
    }

    const NOW: Clocks = Clocks { ms: 0, ns: 0 };

    /// The requests whose outcome is known now, by number.
    fn told(places: &mut Places<u32>) -> Vec<(u32, Result<Begun, Unavailable>)> {
        std::iter::from_fn(|| places.next(NOW)).collect()
    }

    #[test]
    fn places_go_from_one_to_the_next() {
        let mut places = Places::new(&settings(1, Some(1), 10), 1, 0);
        let Ok(Placement::Begun(begun)) = places.ask(asking(1), NOW, || 0) else {
            panic!("there is room")
        };
        let ids: Vec<_> = [(1, 1), (0, 2), (1, 3)]
            .into_iter()
            .map(|(rank, number)| match places.ask(asking(rank), NOW, || number) {
                Ok(Placement::Waits(id)) => id,
                other => panic!("{other:?}"),
            })
            .collect();
        assert!(told(&mut places).is_empty());
        places.end(begun, HealthSign::Well, NOW);
        let [(2, Ok(begun))] = told(&mut places)[..] else { panic!("the first rank is first") };
        assert!(places.leave(ids[0]) && !places.leave(ids[0]) && !places.leave(ids[1]));
        places.end(begun, HealthSign::Well, NOW);
        let [(3, Ok(begun))] = told(&mut places)[..] else { panic!("the other has left") };
        places.end(begun, HealthSign::Well, NOW);
        assert_eq!((places.group().in_flight(0), places.waiting()), (0, 0));
    }

    #[test]
    fn who_waits_hears_of_changes() {
        let mut places = Places::new(&settings(2, Some(1), 10), 1, 0);
        for number in 0..5 {
            places.ask(asking(0), NOW, || number).unwrap();
        }
        assert!(told(&mut places).is_empty() && places.waiting() == 3);
        places.set(&settings(2, Some(2), 10), &[], 0);
        assert_eq!(told(&mut places).len(), 2);
        assert_eq!((places.waiting(), places.group().places()), (1, Some(4)));
        // an upstream that is out takes nothing, and when all are out, no request waits
        places.group_mut().drain(0, true, 0);
        assert!(told(&mut places).is_empty());
        places.group_mut().drain(1, true, 0);
        assert!(matches!(told(&mut places)[..], [(_, Err(Unavailable::Down))]));
        assert_eq!(places.ask(asking(0), NOW, || 9).unwrap_err(), Unavailable::Down);
    }

    #[test]
    fn whose_time_is_over_is_not_asked() {
        let group = settings(1, Some(1), 10);
        let time = std::time::Duration::from_millis(100);
        let group = settings::GroupSettings {
            queue: settings::QueueSettings { time, ..group.queue },
            ..group
        };
        let mut places = Places::new(&group, 1, 0);
        let at = |ms: u64| Clocks { ms, ns: ms * 1_000_000 };
        let Ok(Placement::Begun(begun)) = places.ask(asking(0), at(0), || 0) else {
            panic!("there is room")
        };
        places.ask(asking(0), at(1), || 1).unwrap();
        places.ask(asking(0), at(2), || 2).unwrap();
        places.end(begun, HealthSign::Well, at(102));
        assert_eq!(places.next(at(102)), Some((1, Err(Unavailable::Late))));
        let Some((2, Ok(begun))) = places.next(at(102)) else { panic!("it is in time") };
        places.end(begun, HealthSign::Well, at(103));
        assert_eq!((places.waiting(), places.group().in_flight(0)), (0, 0));
        assert_eq!(places.counts(0).unfinished, 0);
    }

    #[test]
    fn a_place_is_lacked_by_who_waits_and_by_who_was_refused_a_moment_ago() {
        let at = |ms: u64| Clocks { ms, ns: ms * 1_000_000 };
        let mut places = Places::new(&settings(1, Some(1), 0), 1, 0);
        let Ok(Placement::Begun(begun)) = places.ask(asking(0), at(0), || 0) else {
            panic!("there is room")
        };
        assert!(!places.is_short(0, at(0)));
        assert_eq!(places.ask(asking(0), at(1000), || 1), Err(Unavailable::Full));
        assert!(places.is_short(0, at(2900)) && !places.is_short(0, at(3000)));
        assert_eq!(places.ask(asking(0), at(4000), || 2), Err(Unavailable::Full));
        places.end(begun, HealthSign::Well, at(4001));
        assert!(!places.is_short(0, at(4001)), "there is a place");
        places.set(&settings(1, Some(1), 1), &[], 4002);
        assert!(matches!(places.ask(asking(0), at(5000), || 3), Ok(Placement::Begun(_))));
        let Ok(Placement::Waits(id)) = places.ask(asking(0), at(5000), || 4) else {
            panic!("there is none")
        };
        assert!(places.is_short(0, at(60_000)));
        assert!(places.leave(id) && !places.is_short(0, at(60_000)));
    }

    #[test]
    fn a_place_is_not_lacked_by_lower_ranks_or_by_who_may_not_have_it() {
        let at = |ms: u64| Clocks { ms, ns: ms * 1_000_000 };
        let mut places = Places::new(&settings(1, Some(1), 1), 1, 0);
        assert!(matches!(places.ask(asking(1), at(0), || 0), Ok(Placement::Begun(_))));
        assert!(matches!(places.ask(asking(2), at(0), || 1), Ok(Placement::Waits(_))));
        assert!(places.is_short(2, at(0)) && !places.is_short(1, at(0)));
        // the request of rank 2 gives way, and is not the one that is remembered
        assert!(matches!(places.ask(asking(1), at(10), || 2), Ok(Placement::Waits(_))));
        assert_eq!(places.ask(asking(2), at(20), || 3), Err(Unavailable::Full));
        assert!(places.is_short(1, at(20)) && !places.is_short(0, at(20)));
        let mut places = Places::new(&settings(1, Some(1), 1), 1, 0);
        assert!(matches!(places.ask(asking(0), at(0), || 0), Ok(Placement::Begun(_))));
        places.limit(0, Some(1), 1);
        let limited = Err(Unavailable::Limited { retry_after_s: 1 });
        assert_eq!(places.ask(asking(0), at(1), || 1), limited);
        assert!(!places.is_short(0, at(1)));
    }

    #[test]
    fn how_long_a_tunnel_lasts_is_no_cost_of_a_request() {
        let mut places = Places::new(&settings(1, Some(2), 10), 1, 0);
        let mut ask = || match places.ask(asking(0), NOW, || 0) {
            Ok(Placement::Begun(begun)) => begun,
            other => panic!("{other:?}"),
        };
        let (mut tunnel, request) = (ask(), ask());
        tunnel.becomes_tunnel();
        places.end(request, HealthSign::Well, Clocks { ms: 0, ns: 5 });
        places.end(tunnel, HealthSign::Well, Clocks { ms: 9, ns: 9_000_000 });
        let counts = places.counts(0);
        assert_eq!((counts.finished, counts.busy_ns), (1, 5));
        assert_eq!((counts.unfinished, places.group().in_flight(0)), (0, 0));
    }

    #[test]
    fn without_a_bound_nobody_waits() {
        let mut places: Places<u32> = Places::new(&settings(1, None, 10), 1, 0);
        for _ in 0..100 {
            let answer = places.ask(asking(0), NOW, || panic!("nobody waits"));
            assert!(matches!(answer, Ok(Placement::Begun(_))));
        }
        assert_eq!((places.group().in_flight(0), places.group().places()), (100, None));
    }

    /// Settings with places of one upstream that are reserved for each rank.
    fn keeping(in_flight: u32, reserve: &[u32]) -> settings::GroupSettings {
        let each = reserve.iter().enumerate().map(|(rank, &places)| settings::ClassReserve {
            class: rank.to_string().into(),
            rank: Some(rank as u8),
            places,
        });
        settings::GroupSettings { reserve: each.collect(), ..settings(1, Some(in_flight), 10) }
    }

    #[test]
    fn places_are_kept_from_lower_ranks() {
        let mut places = Places::new(&keeping(4, &[1, 2]), 1, 0);
        let mut ask = |rank, number| match places.ask(asking(rank), NOW, || number) {
            Ok(Placement::Begun(_)) => true,
            Ok(Placement::Waits(_)) => false,
            Err(error) => panic!("{error:?}"),
        };
        assert!(ask(2, 0), "one is for all");
        assert!(!ask(2, 1) && !ask(7, 2), "no more for those that keep none");
        let begun = [(1, 3), (1, 4), (1, 5), (0, 6), (0, 7)].map(|one| (one.1, ask(one.0, one.1)));
        let expected = [(3, true), (4, true), (5, false), (6, true), (7, false)];
        assert_eq!(begun, expected, "of the second rank there are two more, and one for the first");
        assert!(told(&mut places).is_empty());
        // a request ends: the first rank is next, and then any with room
        let one = Begun::new(0, 0, None);
        places.end(one, HealthSign::Well, NOW);
        let next: Vec<_> = told(&mut places).into_iter().map(|(number, _)| number).collect();
        assert_eq!(next, [7]);
        assert_eq!(places.waiting(), 3);
        // nothing is reserved any more
        places.set(&settings(1, Some(6), 10), &[], 0);
        assert_eq!(told(&mut places).len(), 2);
    }

    #[test]
    fn none_gives_way_to_who_has_a_place_that_is_kept() {
        let mut places = Places::new(&keeping(2, &[1]), 1, 0);
        places.set(
            &settings::GroupSettings { queue: settings(1, Some(2), 1).queue, ..keeping(2, &[1]) },
            &[],
            0,
        );
        assert!(matches!(places.ask(asking(1), NOW, || 0), Ok(Placement::Begun(_))));
        assert!(matches!(places.ask(asking(1), NOW, || 1), Ok(Placement::Waits(_))));
        assert!(matches!(places.ask(asking(0), NOW, || 2), Ok(Placement::Begun(_))));
        assert!(told(&mut places).is_empty() && places.waiting() == 1);
        // without a free place it takes that of the other in the queue
        assert!(matches!(places.ask(asking(0), NOW, || 3), Ok(Placement::Waits(_))));
        assert!(matches!(told(&mut places)[..], [(1, Err(Unavailable::Full))]));
    }

    /// Settings where the number of places is learnt, up to `most`.
    fn learning(most: u32) -> settings::GroupSettings {
        let group = settings(1, Some(most), 100);
        let time = std::time::Duration::from_mins(5);
        settings::GroupSettings {
            in_flight_from: Some(1),
            queue: settings::QueueSettings { time, ..group.queue },
            ..group
        }
    }

    #[test]
    fn answers_without_an_end_keep_no_others_waiting() {
        let at = |ms: u64| Clocks { ms, ns: ms * 1_000_000 };
        let mut places = Places::new(&learning(20), 1, 0);
        let mut waits = 0;
        for number in 0..30 {
            let asked = places.ask(asking(0), at(10_000), || number).unwrap();
            waits += u32::from(matches!(asked, Placement::Waits(_)));
        }
        let mut begun = |ms| std::iter::from_fn(|| places.next(at(ms))).count();
        assert_eq!((waits, begun(10_999)), (22, 0));
        assert_eq!((begun(11_000), begun(11_999), begun(12_000)), (8, 0, 4));
        assert_eq!(begun(60_000), 0, "as many as may be");
    }

    #[test]
    fn tunnels_that_were_open_before_places_are_learnt_keep_none() {
        let mut places: Places<u32> = Places::new(&settings(1, Some(50), 100), 1, 0);
        for _ in 0..9 {
            let Ok(Placement::Begun(mut begun)) = places.ask(asking(0), NOW, || 0) else {
                panic!("there is room")
            };
            assert!(begun.becomes_tunnel());
            places.group_mut().tunnel(begun.member, true);
        }
        places.set(&learning(50), &[], 0);
        assert_eq!(places.group().most_in_flight(0), Some(17));
        assert!(matches!(places.ask(asking(0), NOW, || 0), Ok(Placement::Begun(_))));
    }

    #[test]
    fn what_another_process_has_is_beside_what_is_learnt() {
        use forebay_control::shared::SharedCounts;
        use std::sync::atomic::AtomicU64;
        let words: Vec<_> = (0..SharedCounts::WORDS).map(|_| AtomicU64::new(0)).collect();
        let words: &'static [AtomicU64] = Vec::leak(words);
        let old = SharedCounts::new(words, 71, [1, 2]);
        let old_count = old.of("a");
        let (generation, rows) = old.hand();
        let new = SharedCounts::join(words, 72, generation, rows).unwrap();
        old_count.unwrap().add(10);
        let mut places = Places::new(&learning(15), 1, 0);
        places.share([new.of("a")], None);
        let mut ask = || matches!(places.ask(asking(0), NOW, || 0), Ok(Placement::Begun(_)));
        let begun = (0..10).filter(|_| ask()).count();
        assert_eq!(begun, 5, "up to the largest number for all");
    }

    #[test]
    fn places_are_learnt_while_requests_wait() {
        let learnt =
            settings::GroupSettings { in_flight_from: Some(2), ..settings(1, Some(50), 1000) };
        let mut places = Places::new(&learnt, 1, 0);
        assert_eq!(places.group().places(), Some(8));
        let at = |ns: u64| Clocks { ms: ns / 1_000_000, ns };
        let mut under_way = VecDeque::new();
        let (mut ns, mut number) = (0, 0u32);
        // three workers, 10 ms for each request
        for _ in 0..3000 {
            while places.waiting() < 100 {
                number += 1;
                if let Ok(Placement::Begun(begun)) = places.ask(asking(0), at(ns), || number) {
                    under_way.push_back(begun);
                }
            }
            ns += 3_333_333;
            let begun = under_way.pop_front().unwrap();
            places.end(begun, HealthSign::Whole, at(ns));
            let next = std::iter::from_fn(|| places.next(at(ns)));
            under_way.extend(next.filter_map(|(_, begun)| begun.ok()));
        }
        let report = places.group().learnt(0).unwrap().report();
        assert!((2..=5).contains(&report.useful.held), "{report:?}");
        assert!(report.useful.answers > 500, "{report:?}");
        // other bounds hold at once, and what was learnt stays
        places.set(&settings::GroupSettings { in_flight_from: Some(7), ..learnt }, &[], 0);
        assert_eq!(places.group().most_in_flight(0), Some(7));
        assert_eq!(
            places.group().learnt(0).unwrap().report().useful.answers,
            report.useful.answers
        );
        places.set(&settings(1, Some(20), 1000), &[], 0);
        assert_eq!((places.group().places(), places.group().learnt(0).is_none()), (Some(20), true));
    }

    proptest! {
        /// For all sequences: every request is begun, refused, or waits; none waits while there is
        /// room; and what is under way is counted.
        #[test]
        fn nobody_is_forgotten(
            steps in prop::collection::vec((0u8..6, 0u8..3, any::<prop::sample::Index>()), 1..200),
            count in 1usize..3, in_flight in 1u32..4, most in 0u32..6,
        ) {
            let mut places = Places::new(&settings(count, Some(in_flight), most), 1, 0);
            places.set(&settings(count, Some(in_flight), most), &[0.0, 0.2, 0.1], 0);
            let mut waiting: Vec<(u32, WaiterId)> = Vec::new();
            let mut under_way: Vec<Begun> = Vec::new();
            for (number, (what, rank, which)) in (0u32..).zip(steps) {
                match what {
                    0..3 => match places.ask(asking(rank), NOW, || number) {
                        Ok(Placement::Begun(begun)) => under_way.push(begun),
                        Ok(Placement::Waits(id)) => waiting.push((number, id)),
                        Err(error) => prop_assert_eq!(error, Unavailable::Full),
                    },
                    3 if !waiting.is_empty() => {
                        let (_, id) = waiting.remove(which.index(waiting.len()));
                        prop_assert!(places.leave(id));
                    }
                    _ if !under_way.is_empty() => {
                        let begun = under_way.remove(which.index(under_way.len()));
                        places.end(begun, HealthSign::Nothing, NOW);
                    }
                    _ => {}
                }
                for (number, news) in told(&mut places) {
                    let at = waiting.iter().position(|(known, _)| *known == number);
                    prop_assert!(at.is_some(), "it waited");
                    waiting.remove(at.unwrap_or_default());
                    match news {
                        Ok(begun) => under_way.push(begun),
                        Err(error) => prop_assert_eq!(error, Unavailable::Full),
                    }
                }
                prop_assert_eq!(places.waiting(), waiting.len());
                prop_assert!(waiting.len() <= most as usize);
                let busy: u32 = (0..count).map(|at| places.group().in_flight(at)).sum();
                prop_assert_eq!(busy as usize, under_way.len());
                let all = count as u32 * in_flight;
                prop_assert!(busy <= all && (waiting.is_empty() || busy == all));
            }
        }
    }
}
