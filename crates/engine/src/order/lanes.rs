//! Lanes: tasks of one lane are done one after another (ADR 0005), so that a file whose read hangs
//! holds one thread, not all of them.
//!
//! # Order
//!
//! In a lane the task of the highest rank begins first, and within a rank the one that came first.
//! But of every [`FAIR_EVERY`] tasks that begin, the last is the one that waits longest, whatever
//! its rank: so a task before which `j − 1` others of its lane came is among the next `FAIR_EVERY ·
//! j` that begin, and none starves.
//!
//! # Claims
//!
//! A queue for threads decides which lane goes on, by rank, client and share. Tasks stay in their
//! lane until they begin. The queue holds [claims](LaneClaim): for a lane that is free, one with
//! the rank of the first task in it; and another one with the rank of the task that waits longest,
//! if that is another rank. That task would be the first if there were no ranks, and its share
//! moves the lane on. The claim that gets a thread first begins the task that is the first *then*.
//! A claim that gets a thread while a task of its lane is under way has no effect; when that task
//! ends, there are claims again. So
//!
//! - a task that comes overtakes all of lower ranks that have not begun, also where a claim for
//!   those is in the queue already, and does not wait until they have a thread;
//! - a task that is overtaken keeps its place in the lane, and the claim its place in the queue
//!   until its turn comes.

use crate::order::ranks::RankedClient;
use forebay_control::allocation::{PHASES, Phase};
use forebay_control::ranked::{FAIR_EVERY, MOST_RANKS};
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};

/// The largest number of tasks of one rank that may wait in one lane. Their connections may be gone
/// long before a file that hangs lets go of them.
const MOST_WAITING: usize = 16 * 1024;

/// Lanes with tasks.
#[derive(Debug)]
pub struct Lanes<T>(HashMap<u64, LaneTasks<T>>);

/// One lane; it is forgotten when it has no task, and no claim is in a queue.
#[derive(Debug)]
struct LaneTasks<T> {
    /// Whether a task is under way.
    is_busy: bool,
    /// The waiting tasks, by rank. No list is empty.
    waiting: BTreeMap<u8, VecDeque<LaneTask<T>>>,
    /// Bit `r` of a phase is set only while a claim with rank `r` is in the queue of that phase.
    /// While the lane is free and has tasks, there is a claim with the highest rank that waits, and
    /// one with that of the task that waits longest.
    claimed: [u64; PHASES],
    /// The number of tasks that have come.
    came: u64,
    /// The tasks that have begun since the last one that had waited longest.
    begun: u32,
}

/// A task that waits.
#[derive(Debug)]
struct LaneTask<T> {
    /// The task's number in the order of coming, from 1.
    number: u64,
    phase: Phase,
    ranked_client: RankedClient,
    task: T,
}

/// The right of a lane to begin a task, once a thread is there for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneClaim {
    /// The lane.
    pub lane: u64,
    /// The phase of the task for which the claim was made.
    pub phase: Phase,
    /// The rank and the client of that task, in whose place the claim waits for a thread.
    pub ranked_client: RankedClient,
}

/// The outcome of a task's coming to its lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneEntry {
    /// The lane is free, and this task is its first: the caller queues this claim.
    Claims(LaneClaim),
    /// The task waits. There are claims of its lane, or will be when the task under way has ended.
    Waits,
    /// Too many wait already; the task is dropped.
    Full,
}

impl<T> Default for Lanes<T> {
    fn default() -> Self {
        Lanes(HashMap::new())
    }
}

impl<T> Lanes<T> {
    /// Adds `task`, which a request needs in `phase`, to its lane.
    pub fn enter(
        &mut self,
        lane: u64,
        phase: Phase,
        ranked_client: RankedClient,
        task: T,
    ) -> LaneEntry {
        let tasks = self.0.entry(lane).or_insert_with(LaneTasks::new);
        let rank = ranked_client.rank;
        let is_first = tasks.highest().is_none_or(|highest| rank < highest);
        let list = tasks.waiting.entry(rank).or_default();
        if list.len() >= MOST_WAITING {
            return LaneEntry::Full;
        }
        tasks.came += 1;
        list.push_back(LaneTask { number: tasks.came, phase, ranked_client, task });
        let claim = if is_first && !tasks.is_busy { tasks.claim(lane, rank) } else { None };
        claim.map_or(LaneEntry::Waits, LaneEntry::Claims)
    }

    /// Begins a task for a claim that has left the queue and has a thread. Returns the task; it is
    /// under way until [`Lanes::leave`]. Returns `None` if another task of the lane is under way,
    /// or if none waits.
    pub fn begin(&mut self, claim: LaneClaim) -> Option<T> {
        let Entry::Occupied(mut occupied) = self.0.entry(claim.lane) else { return None };
        let tasks = occupied.get_mut();
        tasks.claimed[claim.phase.index()] &= !bit(claim.ranked_client.rank);
        if tasks.is_busy {
            return None;
        }
        let task = tasks.take();
        tasks.is_busy = task.is_some();
        if task.is_none() && tasks.has_no_claim() {
            occupied.remove();
        }
        task
    }

    /// Replaces the task under way, which was over before it began because its client has left; it
    /// uses up no turn. Returns the task to do in its place; until [`Lanes::leave`] the lane is
    /// busy, also if no task waits.
    pub fn instead(&mut self, lane: u64) -> Option<T> {
        let tasks = self.0.get_mut(&lane)?;
        tasks.begun = tasks.begun.checked_sub(1).unwrap_or(FAIR_EVERY - 1);
        tasks.take()
    }

    /// Ends the task under way. Returns the claims that the caller queues.
    pub fn leave(&mut self, lane: u64) -> [Option<LaneClaim>; 2] {
        let Entry::Occupied(mut occupied) = self.0.entry(lane) else { return [None; 2] };
        let tasks = occupied.get_mut();
        tasks.is_busy = false;
        let (Some(highest), Some(oldest)) = (tasks.highest(), tasks.oldest()) else {
            if tasks.has_no_claim() {
                occupied.remove();
            }
            return [None; 2];
        };
        [highest, oldest].map(|rank| tasks.claim(lane, rank))
    }
}

impl<T> LaneTasks<T> {
    fn new() -> LaneTasks<T> {
        let waiting = BTreeMap::new();
        LaneTasks { is_busy: false, waiting, claimed: [0; PHASES], came: 0, begun: 0 }
    }

    fn has_no_claim(&self) -> bool {
        self.claimed == [0; PHASES]
    }

    /// The highest rank that waits.
    fn highest(&self) -> Option<u8> {
        self.waiting.keys().next().copied()
    }

    /// The rank of the task that waits longest.
    fn oldest(&self) -> Option<u8> {
        let came = self.waiting.iter().min_by_key(|(_, list)| Some(list.front()?.number));
        came.map(|(rank, _)| *rank)
    }

    /// A claim with this rank for the first task of that rank, unless there is one in the queue of
    /// its phase.
    fn claim(&mut self, lane: u64, rank: u8) -> Option<LaneClaim> {
        let LaneTask { phase, ranked_client, .. } = self.waiting.get(&rank)?.front()?;
        let claimed = &mut self.claimed[phase.index()];
        if *claimed & bit(rank) != 0 {
            return None;
        }
        *claimed |= bit(rank);
        Some(LaneClaim { lane, phase: *phase, ranked_client: *ranked_client })
    }

    /// Takes out the task that begins next.
    fn take(&mut self) -> Option<T> {
        let highest = self.highest()?;
        self.begun += 1;
        let rank = if self.begun < FAIR_EVERY {
            highest
        } else {
            self.begun = 0;
            self.oldest()?
        };
        let list = self.waiting.get_mut(&rank)?;
        let first = list.pop_front()?;
        if list.is_empty() {
            self.waiting.remove(&rank);
        }
        Some(first.task)
    }
}

/// Finds what there is to do for a task that has begun, or for the first after it that is not over:
/// `take` takes it from a task, and `instead` gives the next task of the lane, as
/// [`Lanes::instead`] does. The task returned is the last that was looked at.
pub fn first_left<T, W>(
    mut task: T,
    mut take: impl FnMut(&T) -> Option<W>,
    mut instead: impl FnMut() -> Option<T>,
) -> (T, Option<W>) {
    loop {
        if let Some(work) = take(&task) {
            return (task, Some(work));
        }
        let Some(next) = instead() else { return (task, None) };
        task = next;
    }
}

/// The bit of a rank; there are at most `MOST_RANKS` of them.
fn bit(rank: u8) -> u64 {
    1 << (usize::from(rank) % MOST_RANKS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_control::ranked::Ranked;

    fn of_rank(rank: u8) -> RankedClient {
        RankedClient { rank, client: 7 }
    }

    /// Adds a task; returns the claim that must be queued for it.
    fn enter<T>(lanes: &mut Lanes<T>, lane: u64, rank: u8, task: T) -> Option<LaneClaim> {
        match lanes.enter(lane, Phase::Process, of_rank(rank), task) {
            LaneEntry::Claims(claim) => Some(claim),
            LaneEntry::Waits => None,
            LaneEntry::Full => panic!("lane {lane} is full"),
        }
    }

    fn leave<T>(lanes: &mut Lanes<T>, lane: u64) -> Vec<LaneClaim> {
        lanes.leave(lane).into_iter().flatten().collect()
    }

    fn ranks(claims: &[LaneClaim]) -> Vec<u8> {
        claims.iter().map(|claim| claim.ranked_client.rank).collect()
    }

    /// Lanes in whose lane 1 this task, of rank 0, is under way.
    fn busy<T>(task: T) -> Lanes<T> {
        let mut lanes = Lanes::default();
        let claim = enter(&mut lanes, 1, 0, task).unwrap();
        assert!(lanes.begin(claim).is_some());
        lanes
    }

    /// The tasks of lane 1 in the order in which they begin, where claims get threads in the order
    /// of their making.
    fn begun<T>(lanes: &mut Lanes<T>, mut claims: Vec<LaneClaim>) -> Vec<T> {
        let mut begun = Vec::new();
        while !claims.is_empty() {
            begun.extend(lanes.begin(claims.remove(0)));
            claims.extend(leave(lanes, 1));
        }
        begun
    }

    #[test]
    fn a_lane_is_free_again_when_the_last_has_left() {
        let mut lanes = Lanes::default();
        let first = enter(&mut lanes, 1, 0, 'a').unwrap();
        let other = enter(&mut lanes, 2, 0, 'b').unwrap();
        assert_eq!(enter(&mut lanes, 1, 0, 'c'), None);
        assert_eq!((lanes.begin(first), lanes.begin(other)), (Some('a'), Some('b')));
        let next = leave(&mut lanes, 1);
        assert_eq!((next.len(), lanes.begin(next[0])), (1, Some('c')));
        assert!(leave(&mut lanes, 1).is_empty());
        assert!(enter(&mut lanes, 1, 0, 'd').is_some());
    }

    #[test]
    fn the_highest_rank_is_first_and_of_a_rank_who_came_first() {
        let mut lanes = busy('x');
        for (rank, task) in [(2, 'a'), (1, 'b'), (2, 'c'), (0, 'd'), (1, 'e')] {
            assert_eq!(enter(&mut lanes, 1, rank, task), None);
        }
        let claims = leave(&mut lanes, 1);
        assert_eq!(ranks(&claims), [0, 2], "of the first, and of the one that waits longest");
        assert_eq!(begun(&mut lanes, claims), ['d', 'b', 'e', 'a', 'c']);
    }

    #[test]
    fn low_ranks_alone_go_as_they_came() {
        let mut lanes = busy('x');
        ('a'..='t').for_each(|task| assert_eq!(enter(&mut lanes, 1, 3, task), None));
        let claims = leave(&mut lanes, 1);
        assert_eq!(ranks(&claims), [3]);
        assert!(begun(&mut lanes, claims).into_iter().eq('a'..='t'));
    }

    #[test]
    fn what_is_lower_and_came_later_has_no_claim() {
        let mut lanes = busy('x');
        assert_eq!(enter(&mut lanes, 1, 1, 'a'), None);
        assert_eq!(enter(&mut lanes, 1, 2, 'b'), None);
        let claims = leave(&mut lanes, 1);
        assert_eq!(ranks(&claims), [1]);
        assert_eq!(begun(&mut lanes, claims), ['a', 'b']);
    }

    #[test]
    fn a_high_rank_does_not_wait_until_a_low_one_has_a_thread() {
        let mut lanes = Lanes::default();
        let low = enter(&mut lanes, 1, 2, 'a').unwrap();
        let high = enter(&mut lanes, 1, 0, 'h').unwrap();
        assert_eq!(lanes.begin(high), Some('h'));
        assert!(leave(&mut lanes, 1).is_empty(), "the claim of the other is where it was");
        assert_eq!(lanes.begin(low), Some('a'));
    }

    /// The low rank is due and gets a thread first.
    #[test]
    fn who_is_overtaken_keeps_the_place() {
        let mut lanes = Lanes::default();
        let low = enter(&mut lanes, 1, 2, 'a').unwrap();
        assert_eq!(enter(&mut lanes, 1, 2, 'b'), None);
        let high = enter(&mut lanes, 1, 0, 'h').unwrap();
        assert_eq!(enter(&mut lanes, 1, 0, 'i'), None);
        assert_eq!(lanes.begin(low), Some('h'));
        assert_eq!(lanes.begin(high), None, "one at a time");
        let claims = leave(&mut lanes, 1);
        assert_eq!(ranks(&claims), [0, 2]);
        assert_eq!(begun(&mut lanes, claims), ['i', 'a', 'b']);
    }

    #[test]
    fn of_some_that_begin_one_is_the_one_that_waits_longest() {
        let mut lanes = Lanes::default();
        let claim = enter(&mut lanes, 1, 0, 0).unwrap();
        let low = [100, 101].map(|task| enter(&mut lanes, 1, 1, task));
        assert_eq!(low, [None; 2]);
        (1..=30).for_each(|task| assert_eq!(enter(&mut lanes, 1, 0, task), None));
        let order = begun(&mut lanes, vec![claim]);
        let every = FAIR_EVERY as usize;
        assert_eq!((order.len(), order[every - 1], order[2 * every - 1]), (33, 100, 101));
        assert!(order.into_iter().filter(|task| *task < 100).eq(0..=30));
    }

    /// Tasks of clients that have left would take all turns of the low rank, and it would have
    /// none.
    #[test]
    fn what_is_over_takes_nobodys_turn() {
        let mut lanes = busy('h');
        (0..20).for_each(|_| assert_eq!(enter(&mut lanes, 1, 1, 'x'), None));
        assert_eq!(enter(&mut lanes, 1, 1, 'a'), None);
        (0..16).for_each(|_| assert_eq!(enter(&mut lanes, 1, 0, 'h'), None));
        let (mut claims, mut order) = (leave(&mut lanes, 1), Vec::new());
        while !claims.is_empty() {
            let mut task = lanes.begin(claims.remove(0));
            while task == Some('x') {
                task = lanes.instead(1);
            }
            order.extend(task);
            claims.extend(leave(&mut lanes, 1));
        }
        // one of the eight has begun before
        assert_eq!(order.iter().position(|task| *task == 'a'), Some(FAIR_EVERY as usize - 2));
        assert_eq!(order.len(), 17);
    }

    #[test]
    fn a_lane_takes_only_so_many_of_a_rank() {
        let mut lanes = busy(0);
        for task in 1..=MOST_WAITING {
            assert_eq!(enter(&mut lanes, 1, 1, task), None);
        }
        let full = |lanes: &mut Lanes<_>, rank| {
            lanes.enter(1, Phase::Process, of_rank(rank), 0) == LaneEntry::Full
        };
        assert_eq!([0, 1].map(|rank| full(&mut lanes, rank)), [false, true]);
        let claims = leave(&mut lanes, 1);
        assert_eq!(lanes.begin(claims[0]), Some(0), "the one of the higher rank");
        assert!(full(&mut lanes, 1));
        let claims = leave(&mut lanes, 1);
        assert!(claims.is_empty(), "there is one of the lower rank");
    }

    #[test]
    fn a_claim_that_gets_no_thread_is_not_made_again() {
        let mut lanes = Lanes::default();
        let low = enter(&mut lanes, 1, 2, 'a').unwrap();
        for round in 0..20 {
            if round > 0 {
                assert_eq!(enter(&mut lanes, 1, 2, 'a'), None, "round {round}");
            }
            let high = enter(&mut lanes, 1, 0, 'h').unwrap();
            (1..8).for_each(|_| assert_eq!(enter(&mut lanes, 1, 0, 'h'), None));
            assert_eq!(begun(&mut lanes, vec![high]).len(), 9, "round {round}");
        }
        assert_eq!(lanes.begin(low), None);
        assert!(lanes.0.is_empty());
    }

    /// Each phase has threads of its own, and those of one phase may all hang.
    #[test]
    fn a_claim_for_one_phase_keeps_none_from_another() {
        let mut lanes = Lanes::default();
        let mut come = |phase, rank, task| lanes.enter(1, phase, of_rank(rank), task);
        let of_process = match come(Phase::Process, 2, 'a') {
            LaneEntry::Claims(claim) => claim,
            other => panic!("{other:?}"),
        };
        let of_send = match come(Phase::Send, 0, 'h') {
            LaneEntry::Claims(claim) => claim,
            other => panic!("{other:?}"),
        };
        assert_eq!(lanes.begin(of_process), Some('h'));
        assert_eq!(lanes.enter(1, Phase::Process, of_rank(0), 'i'), LaneEntry::Waits);
        let claims = leave(&mut lanes, 1);
        assert_eq!(ranks(&claims), [0, 2]);
        assert!(claims.iter().all(|claim| claim.phase == Phase::Process));
        assert_eq!(lanes.begin(claims[0]), Some('i'));
        assert_eq!(lanes.begin(of_send), None, "one at a time");
        let more = leave(&mut lanes, 1);
        assert!(more.is_empty(), "there is one");
        assert_eq!(lanes.begin(claims[1]), Some('a'));
        assert!(leave(&mut lanes, 1).is_empty() && lanes.0.is_empty());
    }

    /// Threads come and end at random, and claims get them in any order.
    #[test]
    fn nothing_is_lost_or_begun_twice_or_side_by_side() {
        const TASKS: usize = 300;
        for seed in 1..=200u64 {
            let mut state = seed;
            let mut random = |below: usize| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                (state % below as u64) as usize
            };
            let mut lanes = Lanes::default();
            let (mut came, mut claims) = (0, Vec::<LaneClaim>::new());
            let (mut under_way, mut begun) = (Vec::new(), Vec::new());
            while begun.len() < TASKS || !under_way.is_empty() {
                match random(3) {
                    0 if came < TASKS => {
                        let (lane, rank) = (random(3) as u64, random(4) as u8);
                        claims.extend(enter(&mut lanes, lane, rank, (lane, came)));
                        came += 1;
                    }
                    1 if !under_way.is_empty() => {
                        let lane = under_way.swap_remove(random(under_way.len()));
                        claims.extend(leave(&mut lanes, lane));
                    }
                    2 if !claims.is_empty() => {
                        let claim = claims.swap_remove(random(claims.len()));
                        if let Some((lane, task)) = lanes.begin(claim) {
                            assert_eq!(lane, claim.lane);
                            assert!(!under_way.contains(&lane), "seed {seed}");
                            under_way.push(lane);
                            begun.push(task);
                        }
                    }
                    _ => {}
                }
                let may_go_on = !claims.is_empty() || !under_way.is_empty();
                assert!(may_go_on || begun.len() == came, "seed {seed}: tasks without a claim");
            }
            begun.sort_unstable();
            assert!(begun.into_iter().eq(0..TASKS), "seed {seed}");
            claims.into_iter().for_each(|claim| assert_eq!(lanes.begin(claim), None));
            assert!(lanes.0.is_empty(), "seed {seed}");
        }
    }

    /// There is one thread, which tasks of rank 0 in lanes of their own take again and again. Rank
    /// 1 has no share: its task in the lane of rank 2 would wait for ever.
    #[test]
    fn the_share_of_who_waits_longest_moves_a_lane_on() {
        let mut ready = Ranked::new(&[0.0, 0.0, 0.25], usize::MAX, 1).unwrap();
        let push = |ready: &mut Ranked<LaneClaim>, claim: LaneClaim| {
            let RankedClient { rank, client } = claim.ranked_client;
            ready.push(rank, client, 1, claim).unwrap();
        };
        let mut lanes = Lanes::default();
        let mut done = [0; 3];
        for task in 0..4_000 {
            for (lane, rank) in [(1_000 + task, 0), (7, 2), (7, 1)] {
                let claim = enter(&mut lanes, lane, rank, rank);
                claim.into_iter().for_each(|claim| push(&mut ready, claim));
            }
            let (claim, turn) = ready.pop().unwrap();
            let rank = lanes.begin(claim).unwrap();
            ready.ran(turn, 1_000_000);
            done[usize::from(rank)] += 1;
            leave(&mut lanes, claim.lane).into_iter().for_each(|claim| push(&mut ready, claim));
        }
        let of_lane = done[1] + done[2];
        assert!((990..=1_010).contains(&of_lane), "a quarter of the time: {done:?}");
        assert_eq!(done[2], of_lane / FAIR_EVERY, "{done:?}");
    }
}
