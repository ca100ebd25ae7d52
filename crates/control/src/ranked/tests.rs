//! Order, turns and floors, by example, by property, and in virtual time.

use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};

const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// Hashes of `count` clients that fall into different buckets.
fn clients(count: usize) -> Vec<u64> {
    let mut found = BTreeMap::new();
    for client in 1u64.. {
        if found.len() == count {
            break;
        }
        found.entry(lane::bucket(client.wrapping_mul(SEED | 1))).or_insert(client);
    }
    found.into_values().collect()
}

fn popped<T>(queue: &mut Ranked<T>) -> Vec<T> {
    std::iter::from_fn(|| queue.pop()).map(|(item, _)| item).collect()
}

#[test]
fn lower_numbers_go_first_and_equals_in_order() {
    let mut queue = Ranked::new(&[0.0; 3], 100, SEED).unwrap();
    for (item, rank) in [2, 0, 1, 0, 2, 9, 1].into_iter().enumerate() {
        queue.push(rank, 7, 1, item).unwrap();
    }
    assert_eq!(queue.waiting().collect::<Vec<_>>(), [2, 2, 3]);
    assert_eq!(popped(&mut queue), [1, 3, 2, 6, 0, 4, 5]);
    assert!(queue.is_empty());
}

#[test]
fn a_client_with_one_entry_does_not_wait_for_one_with_many() {
    let mut queue = Ranked::single(1_000, SEED);
    let clients = clients(3);
    for item in 0..100 {
        queue.push(0, clients[0], 1, (0, item)).unwrap();
    }
    queue.push(0, clients[1], 1, (1, 0)).unwrap();
    queue.push(0, clients[2], 2, (2, 0)).unwrap();
    queue.push(0, clients[2], 2, (2, 1)).unwrap();
    let first: Vec<_> = popped(&mut queue).into_iter().take(6).collect();
    assert_eq!(first, [(0, 0), (1, 0), (2, 0), (2, 1), (0, 1), (0, 2)]);
}

#[test]
fn two_entries_are_enough_to_take_turns() {
    let mut queue = Ranked::single(10, SEED);
    let clients = clients(2);
    for (client, item) in [(0, 'a'), (0, 'b'), (1, 'c')] {
        queue.push(0, clients[client], 1, item).unwrap();
    }
    assert_eq!(popped(&mut queue), ['a', 'c', 'b']);
}

#[test]
fn a_weight_is_entries_in_a_row() {
    let mut queue = Ranked::single(1_000, SEED);
    let clients = clients(2);
    for item in 0..6 {
        queue.push(0, clients[0], 3, (0, item)).unwrap();
        queue.push(0, clients[1], 1, (1, item)).unwrap();
    }
    let order: Vec<_> = popped(&mut queue).into_iter().map(|(client, _)| client).collect();
    assert_eq!(order, [0, 0, 0, 1, 0, 0, 0, 1, 1, 1, 1, 1]);
}

#[test]
fn what_is_full_gives_back() {
    let mut queue = Ranked::single(2, SEED);
    assert!(queue.push(0, 1, 1, 'a').is_ok() && queue.push(0, 2, 1, 'b').is_ok());
    assert_eq!(queue.push(0, 3, 1, 'c'), Err('c'));
    assert_eq!(queue.pop().unwrap().0, 'a');
    assert!(queue.push(0, 3, 1, 'c').is_ok());
}

#[test]
fn a_key_names_its_entry_and_no_later_one() {
    let mut queue = Ranked::single(10, SEED);
    let key = queue.push(0, 1, 1, 'a').unwrap();
    assert_eq!(queue.pop().unwrap().0, 'a');
    let later = queue.push(0, 1, 1, 'b').unwrap();
    assert_eq!(queue.remove(key), None);
    assert_eq!(queue.remove(later), Some('b'));
    assert_eq!(queue.remove(later), None);
    assert!(queue.pop().is_none());
}

#[test]
fn wrong_shares_are_errors() {
    let error = |shares: &[f64]| Ranked::<()>::new(shares, 1, 0).unwrap_err();
    assert_eq!(error(&[]), RankedError::Ranks { ranks: 0 });
    assert_eq!(error(&[0.0; 65]), RankedError::Ranks { ranks: 65 });
    assert_eq!(error(&[0.0, -0.1]), RankedError::Share { rank: 1, share: -0.1 });
    assert_eq!(error(&[0.5, 0.75]), RankedError::Sum { sum: 1.25 });
    assert!(matches!(error(&[f64::NAN]), RankedError::Share { .. }));
    assert!(Ranked::<()>::new(&[1.0 / 3.0; 3], 1, 0).is_ok());
}

#[test]
fn wrong_shares_change_nothing() {
    let mut queue = Ranked::new(&[0.0, 0.1], 10, SEED).unwrap();
    queue.push(1, 1, 1, 'a').unwrap();
    queue.push(0, 1, 1, 'b').unwrap();
    assert_eq!(queue.set_shares(&[0.0; 3]), Err(RankedError::Ranks { ranks: 3 }));
    assert_eq!(queue.set_shares(&[0.0, 2.0]), Err(RankedError::Share { rank: 1, share: 2.0 }));
    assert_eq!(queue.set_shares(&[0.6, 0.6]), Err(RankedError::Sum { sum: 1.2 }));
    // the service time is not known yet, so the second rank is due at once
    assert_eq!(popped(&mut queue), ['a', 'b']);
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Push {
        rank: u8,
        client: usize,
        weight: u8,
    },
    Pop {
        ns: u64,
    },
    Remove {
        nth: usize,
    },
    /// Sets the shares at this index of [`SHARES`].
    Shares {
        of: usize,
    },
}

const SHARES: [[f64; 4]; 4] =
    [[0.0; 4], [0.0, 0.2, 0.05, 0.1], [0.5, 0.0, 0.001, 0.4], [0.0, 0.05, 0.9, 0.05]];

fn any_act() -> impl Strategy<Value = Act> {
    prop_oneof![
        5 => (0u8..4, 0usize..6, 0u8..4)
            .prop_map(|(rank, client, weight)| Act::Push { rank, client, weight }),
        4 => (0u64..50_000_000).prop_map(|ns| Act::Pop { ns }),
        1 => (0usize..50).prop_map(|nth| Act::Remove { nth }),
        1 => (0..SHARES.len()).prop_map(|of| Act::Shares { of }),
    ]
}

proptest! {
    /// Compares the queue with a model that knows what waits for each rank and client: every entry comes out
    /// once, in its client's order, and without shares in strict order of ranks, also when shares change.
    #[test]
    fn every_push_is_matched(
        first in 0..SHARES.len(),
        acts in prop::collection::vec(any_act(), 1..400),
    ) {
        let clients = clients(6);
        let mut shares = SHARES[first];
        let mut queue = Ranked::new(&shares, 60, SEED).unwrap();
        let mut model: BTreeMap<(u8, usize), VecDeque<usize>> = BTreeMap::new();
        let mut keys = Vec::new();
        let mut waiting = 0;
        for (number, act) in acts.into_iter().enumerate() {
            match act {
                Act::Push { rank, client, weight } => {
                    let pushed = queue.push(rank, clients[client], weight, (rank, client, number));
                    prop_assert_eq!(pushed.is_ok(), waiting < 60);
                    if let Ok(key) = pushed {
                        model.entry((rank, client)).or_default().push_back(number);
                        keys.push((key, (rank, client, number)));
                        waiting += 1;
                    }
                }
                Act::Pop { ns } => {
                    let first = model.iter().find(|(_, queue)| !queue.is_empty());
                    let first = first.map(|((rank, _), _)| *rank);
                    let Some(((rank, client, number), turn)) = queue.pop() else {
                        prop_assert_eq!(waiting, 0);
                        continue;
                    };
                    prop_assert_eq!(model.get_mut(&(rank, client)).unwrap().pop_front(), Some(number));
                    prop_assert_eq!(turn.rank(), rank);
                    prop_assert_eq!(turn.by_floor(), Some(rank) != first);
                    prop_assert!(shares[usize::from(rank)] > 0.0 || Some(rank) == first);
                    waiting -= 1;
                    queue.ran(turn, ns);
                }
                Act::Shares { of } => {
                    shares = SHARES[of];
                    queue.set_shares(&shares).unwrap();
                }
                Act::Remove { nth } => {
                    let Some((key, (rank, client, number))) = keys.get(nth).copied() else { continue };
                    let theirs = model.get_mut(&(rank, client)).unwrap();
                    let place = theirs.iter().position(|other| *other == number);
                    let removed = queue.remove(key);
                    prop_assert_eq!(removed.is_some(), place.is_some());
                    if let Some(place) = place {
                        prop_assert_eq!(removed, Some((rank, client, number)));
                        theirs.remove(place);
                        waiting -= 1;
                    }
                }
            }
            prop_assert_eq!(queue.len(), waiting);
            prop_assert_eq!(queue.is_empty(), waiting == 0);
            prop_assert_eq!(queue.waiting().sum::<usize>(), waiting);
        }
        while queue.pop().is_some() {
            waiting -= 1;
        }
        prop_assert_eq!(waiting, 0);
    }

    /// No client that always has work gets two turns before another such client gets one.
    #[test]
    fn clients_take_turns(backlogs in prop::collection::vec(1usize..30, 2..12), seed: u64) {
        let clients = clients(backlogs.len());
        let mut order: Vec<_> = backlogs.iter().enumerate()
            .flat_map(|(client, count)| std::iter::repeat_n(client, *count)).collect();
        let mut random = Random(seed | 1);
        for place in (1..order.len()).rev() {
            order.swap(place, random.below(place as u64 + 1) as usize);
        }
        let mut queue = Ranked::single(1_000, SEED);
        for client in order {
            queue.push(0, clients[client], 1, client).unwrap();
        }
        let mut left = backlogs.clone();
        let mut served = vec![0usize; backlogs.len()];
        while let Some((client, _)) = queue.pop() {
            served[client] += 1;
            left[client] -= 1;
            let waiting = || (0..left.len()).filter(|other| left[*other] > 0);
            let least = waiting().map(|other| served[other]).min().unwrap_or(usize::MAX);
            prop_assert!(served[client] <= least.saturating_add(1), "{served:?} {left:?}");
        }
    }
}

/// Marsaglia's xorshift, which gives the same numbers every time.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit.max(1)
    }
}

/// The load of a rank in the simulation.
#[derive(Clone, Debug)]
struct Load {
    share: f64,
    /// The shortest and the longest service time, in nanoseconds.
    service_ns: (u64, u64),
    /// The number of entries that the rank keeps waiting; when one is taken the next one arrives.
    backlog: usize,
    /// The time after which the next one arrives; 0 keeps the backlog constant.
    pause_ns: u64,
}

/// The results of the simulation for a rank.
#[derive(Clone, Debug, Default)]
struct Seen {
    worked_ns: u64,
    served: u64,
    /// The largest ratio of a wait to its bound.
    worst: f64,
    longest_wait_ns: u64,
}

/// Serves `loads` with `workers` for `end_ns` of virtual time.
fn simulate(loads: &[Load], workers: usize, end_ns: u64, seed: u64) -> Vec<Seen> {
    simulate_reserved(loads, &vec![u8::MAX; workers], end_ns, seed)
}

/// Like [`simulate`], with a worker for each of `levels`, which is the last rank that the worker serves. The
/// bound is computed from the workers that serve all ranks.
fn simulate_reserved(loads: &[Load], levels: &[u8], end_ns: u64, seed: u64) -> Vec<Seen> {
    let workers = levels.iter().filter(|level| **level == u8::MAX).count();
    let shares: Vec<_> = loads.iter().map(|load| load.share).collect();
    let longest_ns = loads.iter().map(|load| load.service_ns.1).max().unwrap() as f64;
    let with_share = shares.iter().filter(|share| **share > 0.0).count() as f64;
    let bound_ns = |place: usize, share: f64| {
        place as f64 * longest_ns / (workers as f64 * share) + (with_share + 1.0) * longest_ns
    };
    let mut random = Random(seed | 1);
    let mut queue = Ranked::new(&shares, 10_000, SEED).unwrap();
    let mut seen = vec![Seen::default(); loads.len()];
    // entries carry their time of arrival and their place in the rank
    let mut arrivals: Vec<(u64, usize)> = Vec::new();
    for (rank, load) in loads.iter().enumerate() {
        let first_ns = if load.pause_ns > 0 { random.below(load.pause_ns) } else { 0 };
        arrivals.extend((0..load.backlog).map(|_| (first_ns, rank)));
    }
    let mut running: Vec<Option<(u64, Turn, u64)>> = vec![None; levels.len()];
    let mut now_ns = 0;
    while now_ns < end_ns {
        for slot in &mut running {
            if let Some((until_ns, turn, ns)) = *slot
                && until_ns <= now_ns
            {
                queue.ran(turn, ns);
                *slot = None;
            }
        }
        let mut come: Vec<_> = Vec::new();
        arrivals.retain(|arrival| {
            if arrival.0 <= now_ns {
                come.push(arrival.1);
            }
            arrival.0 > now_ns
        });
        for rank in come {
            let place = queue.waiting().nth(rank).unwrap() + 1;
            queue.push(rank as u8, 1, 1, (now_ns, place)).unwrap();
        }
        // reserved workers first: the others may be needed for ranks that these do not serve
        for (slot, level) in running.iter_mut().zip(levels).rev() {
            if slot.is_some() {
                continue;
            }
            let Some(((came_ns, place), turn)) = queue.pop_down_to(*level) else { continue };
            let rank = usize::from(turn.rank());
            let (load, seen) = (&loads[rank], &mut seen[rank]);
            let (least, most) = load.service_ns;
            let ns = least + random.below(most - least + 1);
            *slot = Some((now_ns + ns, turn, ns));
            seen.waited(now_ns - came_ns, bound_ns(place, load.share));
            seen.worked_ns += ns;
            seen.served += 1;
            let pause_ns = load.pause_ns / 2 + random.below(load.pause_ns + 1);
            if load.pause_ns > 0 {
                arrivals.push((now_ns + pause_ns, rank));
            } else {
                let place = queue.waiting().nth(rank).unwrap() + 1;
                queue.push(rank as u8, 1, 1, (now_ns, place)).unwrap();
            }
        }
        let ends = running.iter().flatten().map(|(until_ns, ..)| *until_ns);
        let next = ends.chain(arrivals.iter().map(|(at_ns, _)| *at_ns)).min();
        now_ns = next.unwrap_or(end_ns);
    }
    // entries that still wait count with their wait so far
    while let Some(((came_ns, place), turn)) = queue.pop() {
        let rank = usize::from(turn.rank());
        seen[rank].waited(now_ns - came_ns, bound_ns(place, loads[rank].share));
    }
    seen
}

impl Seen {
    fn waited(&mut self, wait_ns: u64, bound_ns: f64) {
        self.worst = self.worst.max(wait_ns as f64 / bound_ns);
        self.longest_wait_ns = self.longest_wait_ns.max(wait_ns);
    }
}

fn flood(share: f64, service_ns: (u64, u64)) -> Load {
    Load { share, service_ns, backlog: 3, pause_ns: 0 }
}

fn shares_of(seen: &[Seen]) -> Vec<f64> {
    let total: u64 = seen.iter().map(|rank| rank.worked_ns).sum();
    seen.iter().map(|rank| rank.worked_ns as f64 / total as f64).collect()
}

const MS: u64 = 1_000_000;

#[test]
fn every_rank_gets_its_floor_and_the_first_the_rest() {
    let cases: [[(u64, u64); 4]; 3] = [
        [(MS, MS); 4],
        [(MS, MS), (5 * MS, 5 * MS), (20 * MS, 20 * MS), (20 * MS, 20 * MS)],
        // one service in a hundred, on average, is long
        [(MS / 2, 2 * MS), (MS / 10, 10 * MS), (MS, 40 * MS), (MS / 100, 20 * MS)],
    ];
    for (case, service_ns) in cases.into_iter().enumerate() {
        for workers in [1, 2, 8] {
            let floors = [0.0, 0.2, 0.05, 0.1];
            let loads: Vec<_> =
                floors.iter().zip(service_ns).map(|(share, ns)| flood(*share, ns)).collect();
            let got = shares_of(&simulate(&loads, workers, 400_000 * MS, 1));
            for (floor, got) in [0.65, 0.2, 0.05, 0.1].iter().zip(&got) {
                let off = (got / floor - 1.0).abs();
                assert!(off < 0.03, "case {case}, {workers} workers: {got:.4} for {floor}");
            }
        }
    }
}

/// Worker time by rank over `services` services, each rank having work all the time. `running` are the
/// services under way, which continue when shares change.
fn floods(
    queue: &mut Ranked<()>,
    running: &mut VecDeque<(Turn, u64)>,
    random: &mut Random,
    services: usize,
) -> Vec<f64> {
    let before: Vec<_> = queue.worked_ns().collect();
    for _ in 0..services {
        for rank in 0..before.len() {
            while queue.waiting().nth(rank).unwrap() < 3 {
                queue.push(rank as u8, 1, 1, ()).unwrap();
            }
        }
        let turn = queue.pop().unwrap().1;
        running.push_back((turn, MS / 2 + random.below(MS)));
        if running.len() >= 3 {
            let (turn, ns) = running.pop_front().unwrap();
            queue.ran(turn, ns);
        }
    }
    let got: Vec<_> =
        queue.worked_ns().zip(before).map(|(now, then)| (now - then) as f64).collect();
    let all: f64 = got.iter().sum();
    got.iter().map(|ns| ns / all).collect()
}

#[test]
fn floors_follow_shares_that_change_while_work_waits() {
    let (mut random, mut running) = (Random(1), VecDeque::new());
    let mut queue = Ranked::new(&[0.0; 3], 100, SEED).unwrap();
    assert_eq!(floods(&mut queue, &mut running, &mut random, 1_000), [1.0, 0.0, 0.0]);
    let changes = [
        [0.0, 0.2, 0.05],
        [0.0, 0.05, 0.2],
        [0.0, 0.0005, 0.5],
        [0.0, 0.5, 0.0],
        [0.0, 0.3, 0.3],
        [0.0, 0.0, 0.0],
    ];
    for shares in changes {
        queue.set_shares(&shares).unwrap();
        let got = floods(&mut queue, &mut running, &mut random, 4_000);
        for (share, got) in shares.iter().zip(&got).skip(1) {
            // one service more or less, and what was under way
            assert!((got - share).abs() < 0.005, "{got:?} for {shares:?}");
        }
    }
}

/// A rank whose share grows gets the larger share at once, even if it was far from due.
#[test]
fn a_rank_that_gets_more_gets_it_at_once() {
    let mut queue = Ranked::new(&[0.0, 0.0001], 100, SEED).unwrap();
    let (mut random, mut running) = (Random(1), VecDeque::new());
    floods(&mut queue, &mut running, &mut random, 100);
    queue.set_shares(&[0.0, 0.5]).unwrap();
    let got = floods(&mut queue, &mut running, &mut random, 20);
    assert!(got[1] > 0.3, "{got:?}");
}

#[test]
fn without_a_share_a_rank_starves() {
    let loads = [flood(0.0, (MS, MS)), flood(0.0, (MS, MS)), flood(0.1, (MS, MS))];
    let seen = simulate(&loads, 2, 10_000 * MS, 1);
    assert_eq!(seen[1].served, 0);
    assert!(seen[2].served > 1_900);
}

#[test]
fn what_others_leave_is_not_held_against_a_rank() {
    let shares = [0.0, 0.2];
    let mut queue = Ranked::new(&shares, 10_000, SEED).unwrap();
    // for a long time only the second rank has work, and gets everything
    for _ in 0..1_000 {
        queue.push(1, 1, 1, ()).unwrap();
        let turn = queue.pop().unwrap().1;
        queue.ran(turn, MS);
    }
    for _ in 0..100 {
        queue.push(0, 1, 1, ()).unwrap();
        queue.push(1, 1, 1, ()).unwrap();
    }
    let mut ranks = Vec::new();
    for _ in 0..50 {
        let turn = queue.pop().unwrap().1;
        ranks.push(turn.rank());
        queue.ran(turn, MS);
    }
    assert_eq!(ranks.iter().filter(|rank| **rank == 1).count(), 9, "{ranks:?}");
    assert!(ranks[..6].contains(&1), "{ranks:?}");
}

#[test]
fn entries_that_give_up_do_not_cost_their_rank_its_floor() {
    let mut queue = Ranked::new(&[0.0, 0.1], 10_000, SEED).unwrap();
    let mut served = 0;
    let mut key = queue.push(1, 1, 1, ()).unwrap();
    for _ in 0..1_000 {
        queue.push(0, 1, 1, ()).unwrap();
        let turn = queue.pop().unwrap().1;
        queue.ran(turn, MS);
        served += usize::from(turn.rank() == 1);
        // no request of the second rank waits for longer than one service
        queue.remove(key);
        key = queue.push(1, 1, 1, ()).unwrap();
    }
    assert!((90..=110).contains(&served), "{served}");
}

#[test]
fn one_entry_at_a_time_is_enough_for_a_share() {
    let mut queue = Ranked::new(&[0.0, 0.1], 10_000, SEED).unwrap();
    let (mut served, mut back_in) = (0, 0);
    for _ in 0..1_000 {
        queue.push(0, 1, 1, ()).unwrap();
        // the next entry of the second rank comes four services after the last was taken
        back_in -= 1;
        if back_in == 0 || served == 0 && queue.waiting().nth(1) == Some(0) {
            queue.push(1, 1, 1, ()).unwrap();
        }
        let turn = queue.pop().unwrap().1;
        if turn.rank() == 1 {
            (served, back_in) = (served + 1, 4);
        }
        queue.ran(turn, MS);
    }
    assert!((95..=101).contains(&served), "{served}");
}

#[test]
fn the_bound_is_not_idle_talk() {
    // One worker, a flood of long services, and a rank with few: it waits for more than half the bound.
    let loads = [flood(0.0, (20 * MS, 20 * MS)), flood(0.05, (20 * MS, 20 * MS))];
    let seen = simulate(&loads, 1, 100_000 * MS, 1);
    assert!((0.5..=1.0).contains(&seen[1].worst), "{:?}", seen[1]);
    // three wait at once, so the third is taken within 3·20/0.05 + 2·20 ms
    assert!(seen[1].longest_wait_ns <= 1_240 * MS, "{:?}", seen[1]);
}

/// The longest waits in milliseconds of a class with 20 % and one with 5 %, under a first class that wants
/// everything, with `backlog` entries of the last waiting at once. A service takes at most 20 ms.
fn longest_waits_ms(levels: &[u8], backlog: usize) -> [f64; 2] {
    let long = (20 * MS, 20 * MS);
    let loads = [
        Load { backlog: 20, ..flood(0.0, long) },
        Load { backlog: 1, ..flood(0.2, (MS, 20 * MS)) },
        Load { backlog, ..flood(0.05, long) },
    ];
    let seen = simulate_reserved(&loads, levels, 100_000 * MS, 1);
    [1, 2].map(|rank: usize| seen[rank].longest_wait_ns as f64 / MS as f64)
}

#[test]
fn the_waits_the_manual_states_are_not_exceeded() {
    const ALL: u8 = u8::MAX;
    // two workers; two workers and one reserved for each rank but the last
    for levels in [&[ALL, ALL][..], &[ALL, ALL, 0, 1][..]] {
        for (backlog, bound_ms) in [(1, 260.0), (2, 460.0), (10, 2_060.0)] {
            let [standard, bulk] = longest_waits_ms(levels, backlog);
            assert!(standard <= 110.0, "{levels:?}: {standard} ms");
            assert!(bulk <= bound_ms, "{levels:?}, {backlog} wait: {bulk} ms");
            // and the bounds are not far too large
            assert!(bulk >= 0.3 * bound_ms, "{levels:?}, {backlog} wait: {bulk} ms");
        }
    }
}

fn any_rank() -> impl Strategy<Value = Load> {
    let service_ns = (1u64..20 * MS, 1u64..20 * MS).prop_map(|(a, b)| (a.min(b), a.max(b)));
    let pause_ns = prop_oneof![Just(0), 1..200 * MS];
    (0.01..0.24, service_ns, 1usize..5, pause_ns).prop_map(
        |(share, service_ns, backlog, pause_ns)| Load { share, service_ns, backlog, pause_ns },
    )
}

proptest! {
    // A simulation takes long to shrink.
    #![proptest_config(ProptestConfig { max_shrink_iters: 100, ..ProptestConfig::default() })]

    /// Whatever load the ranks have, each waits no longer than the bound.
    #[test]
    fn no_wait_exceeds_the_bound(
        first in any_rank(),
        others in prop::collection::vec(any_rank(), 1..4),
        workers in 1usize..9,
        seed: u64,
    ) {
        let mut loads = vec![Load { pause_ns: 0, backlog: 20, ..first }];
        loads.extend(others);
        let seen = simulate(&loads, workers, 3_000 * MS, seed);
        for (rank, seen) in seen.iter().enumerate().skip(1) {
            prop_assert!(seen.worst <= 1.0, "rank {} of {:?}: {:?}", rank, loads, seen);
        }
        // reserved workers for each rank but the last do not change that
        let reserve = (0..loads.len() as u8 - 1).chain(std::iter::repeat_n(u8::MAX, workers));
        let seen = simulate_reserved(&loads, &reserve.collect::<Vec<_>>(), 3_000 * MS, seed);
        for (rank, seen) in seen.iter().enumerate().skip(1) {
            prop_assert!(seen.worst <= 1.0, "reserve, rank {} of {:?}: {:?}", rank, loads, seen);
        }
    }
}

#[test]
fn the_least_number_goes_first_within_its_rank() {
    let mut queue = Ranked::by_number(&[0.0; 2], 100).unwrap();
    for (item, (rank, number)) in
        [(1, 5), (1, 1), (0, 900), (1, 5), (0, 30)].into_iter().enumerate()
    {
        queue.push_number(rank, number, item).unwrap();
    }
    assert_eq!(popped(&mut queue), [4, 2, 1, 0, 3]);
    assert!(queue.is_empty());
}

#[test]
fn the_entry_that_waits_longest_is_not_passed_for_ever() {
    let mut queue = Ranked::by_number(&[0.0], 100).unwrap();
    queue.push_number(0, 1_000, 'a').unwrap();
    queue.push_number(0, 2_000, 'b').unwrap();
    let mut order = String::new();
    for _ in 0..16 {
        // there is always an entry with a lower number
        queue.push_number(0, 1, '.').unwrap();
        order.push(queue.pop().unwrap().0);
    }
    assert_eq!(order, ".......a.......b");
}

#[test]
fn what_was_removed_by_number_does_not_come_and_does_not_pile_up() {
    let mut queue = Ranked::by_number(&[0.0], 1_000).unwrap();
    let first = queue.push_number(0, 7, 0).unwrap();
    queue.push_number(0, 9, 1).unwrap();
    assert_eq!(queue.remove(first), Some(0));
    assert_eq!(queue.remove(first), None);
    assert_eq!(popped(&mut queue), [1]);
    for number in 0..1_000 {
        let key = queue.push_number(0, u64::MAX, number).unwrap();
        assert_eq!(queue.remove(key), Some(number));
    }
    assert!(format!("{:?}", queue.lanes[0]).matches("Key").count() <= 100);
    // a place that is used again belongs to another entry
    queue.push_number(0, 3, 3).unwrap();
    queue.push_number(0, 2, 2).unwrap();
    assert_eq!(popped(&mut queue), [2, 3]);
}

proptest! {
    /// An entry that has `j − 1` earlier ones of its rank before it is among the next `FAIR_EVERY · j` taken.
    #[test]
    fn every_entry_by_number_is_taken_in_time(
        steps in prop::collection::vec((any::<bool>(), 0u64..50), 1..400),
    ) {
        let mut queue = Ranked::by_number(&[0.0], 1_000).unwrap();
        let mut taken = 0u32;
        // for each entry, the number of pops by which it must be taken
        let mut waiting = BTreeMap::new();
        for (item, (pushes, number)) in steps.into_iter().enumerate() {
            if pushes {
                waiting.insert(item, taken + FAIR_EVERY * (waiting.len() as u32 + 1));
                queue.push_number(0, number, item).unwrap();
            } else if let Some((item, _)) = queue.pop() {
                taken += 1;
                let due = waiting.remove(&item).unwrap();
                prop_assert!(taken <= due, "{item}: {taken}, {due}");
            }
        }
        prop_assert_eq!(queue.len(), waiting.len());
    }
}
