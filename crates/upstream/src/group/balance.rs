//! The balancer: which upstream is asked next.

use crate::settings::Balance;

/// A whole share: that of an upstream that is well and does not start slowly.
pub const WHOLE: u16 = 1000;

/// The most that one upstream has under way with hashing, in hundredths of its part of all requests.
/// With less room, keys wander; with more, one popular key takes all of its upstream.
const BOUND_PERCENT: u64 = 125;

/// The number of requests that may stay together however little is under way. What one client asks
/// for at once, as for a page, then finds the session that it belongs to.
const TOGETHER: u64 = 16;

/// The state of one upstream, for the choice of the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The number of requests under way to it.
    pub in_flight: u32,
    /// The upstream's share, in parts of [`WHOLE`]: 0 if it gets no requests, less than the whole
    /// while it starts slowly.
    pub share: u16,
    /// The upstream's weight beside the others.
    pub weight: u16,
}

impl Candidate {
    /// The load, as if the weight were 1. A candidate that starts slowly counts as more
    /// loaded, because each request, the next one included, costs it more.
    fn load(self) -> u64 {
        let whole = u64::from(WHOLE);
        let with_one_more =
            (u64::from(self.in_flight) + 1) * whole * whole / u64::from(self.share.max(1));
        (with_one_more - whole) / u64::from(self.weight.max(1))
    }

    /// The part of the requests that this candidate gets: its share times its weight.
    fn part(self) -> u64 {
        u64::from(self.share) * u64::from(self.weight)
    }

    /// How well the candidate fits a key for which it has drawn this number. The number of keys that
    /// it fits best is in proportion to its weight.
    fn fit(self, drawn: u64) -> f64 {
        let drawn = (drawn as f64 + 0.5) / (u64::MAX as f64);
        f64::from(self.weight) / -drawn.min(1.0 - f64::EPSILON).ln()
    }
}

/// Chooses among the same upstreams again and again.
#[derive(Clone, Debug)]
pub struct Balancer {
    balance: Balance,
    /// The hash of each upstream's name: the same after a reload, in whatever order they are named.
    keys: Vec<u64>,
    /// What each upstream is owed, in turns of [`WHOLE`].
    owed: Vec<i64>,
    /// Where the search begins among those that are owed the same.
    first: usize,
    random: u64,
}

impl Balancer {
    /// A balancer for upstreams with these keys, see [`hash`]. `seed` is any number; loops with
    /// different ones draw differently.
    pub fn new(balance: Balance, keys: Vec<u64>, seed: u64) -> Balancer {
        let count = keys.len();
        // balancers with different seeds begin with different upstreams
        let first = if count > 0 { (mix(seed) % count as u64) as usize } else { 0 };
        Balancer { balance, owed: vec![0; count], keys, first, random: seed }
    }

    /// Changes the way of balancing.
    pub fn set(&mut self, balance: Balance) {
        self.balance = balance;
    }

    /// Changes the key of one upstream.
    pub fn is_called(&mut self, at: usize, key: u64) {
        if let Some(known) = self.keys.get_mut(at) {
            *known = key;
        }
    }

    /// The place of the next upstream. `key` is the [hash] of what the request is balanced by.
    /// Returns `None` if no upstream has a share.
    pub fn pick(&mut self, candidates: &[Candidate], key: u64) -> Option<usize> {
        debug_assert_eq!(candidates.len(), self.keys.len());
        match self.balance {
            Balance::RoundRobin => self.one_after_the_other(candidates),
            Balance::Least => self.least(candidates),
            Balance::TwoChoices => self.of_two(candidates),
            Balance::Hash => self.by_key(candidates, key),
        }
    }

    fn one_after_the_other(&mut self, candidates: &[Candidate]) -> Option<usize> {
        for (owed, candidate) in self.owed.iter_mut().zip(candidates) {
            // an upstream that is back does not make up for what it missed
            if candidate.share == 0 {
                *owed = 0;
            }
        }
        self.in_turn(candidates, |candidate| candidate.share > 0)
    }

    /// The least loaded upstream; several with the same load take turns.
    fn least(&mut self, candidates: &[Candidate]) -> Option<usize> {
        let able = candidates.iter().filter(|candidate| candidate.share > 0);
        let least = able.map(|candidate| candidate.load()).min()?;
        self.in_turn(candidates, |candidate| candidate.share > 0 && candidate.load() == least)
    }

    /// The next of those that pass `is_one`, in the smoothest order that gives each its part: the one
    /// that is owed most.
    fn in_turn(
        &mut self,
        candidates: &[Candidate],
        is_one: impl Fn(Candidate) -> bool,
    ) -> Option<usize> {
        let count = candidates.len();
        let mut whole = 0;
        let mut best: Option<usize> = None;
        for at in (0..count).map(|step| (self.first + step) % count) {
            if !is_one(candidates[at]) {
                continue;
            }
            let part = candidates[at].part() as i64;
            whole += part;
            self.owed[at] += part;
            if best.is_none_or(|best| self.owed[at] > self.owed[best]) {
                best = Some(at);
            }
        }
        self.owed[best?] -= whole;
        best
    }

    fn of_two(&mut self, candidates: &[Candidate]) -> Option<usize> {
        let first = self.draw(candidates, None)?;
        let Some(second) = self.draw(candidates, Some(first)) else { return Some(first) };
        let is_better = candidates[second].load() < candidates[first].load();
        Some(if is_better { second } else { first })
    }

    /// Draws an upstream by its part, but not `other`.
    fn draw(&mut self, candidates: &[Candidate], other: Option<usize>) -> Option<usize> {
        let able = || candidates.iter().enumerate().filter(|(at, _)| Some(*at) != other);
        let whole: u64 = able().map(|(_, candidate)| candidate.part()).sum();
        if whole == 0 {
            return None;
        }
        self.random = self.random.wrapping_add(GOLDEN);
        let mut left = mix(self.random) % whole;
        for (at, candidate) in able() {
            match left.checked_sub(candidate.part()) {
                Some(rest) => left = rest,
                None => return Some(at),
            }
        }
        None
    }

    /// The upstream that fits the key best and has room. When one comes or goes, no other's keys move
    /// (weighted rendezvous hashing); and none has much more than its part (bounded loads).
    fn by_key(&self, candidates: &[Candidate], key: u64) -> Option<usize> {
        let parts: u64 = candidates.iter().map(|one| one.part()).sum();
        let able = candidates.iter().filter(|one| one.share > 0);
        let under_way: u64 = able.map(|one| u64::from(one.in_flight)).sum::<u64>() + 1;
        let has_room = |one: &Candidate| {
            let part = under_way * one.part() * BOUND_PERCENT;
            let together = TOGETHER * u64::from(one.share);
            let bound = part.div_ceil(parts * 100).max(together.div_ceil(WHOLE.into()));
            u64::from(one.in_flight) < bound
        };
        let fitting = |needs_room: bool| {
            let able = candidates
                .iter()
                .enumerate()
                .filter(move |(_, one)| one.share > 0 && (!needs_room || has_room(one)));
            let fit = |(at, one): (usize, &Candidate)| (at, one.fit(mix(key ^ self.keys[at])));
            able.map(fit).max_by(|(_, one), (_, other)| one.total_cmp(other)).map(|(at, _)| at)
        };
        if parts == 0 { None } else { fitting(true).or_else(|| fitting(false)) }
    }
}

/// The golden ratio as a 64-bit fraction, made odd.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Spreads a number over all bits (splitmix64).
fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(GOLDEN);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// The key for these bytes: the same here and in every other process. A client that can choose the
/// bytes can choose the upstream; the bound on the load holds all the same.
pub fn hash(bytes: &[u8]) -> u64 {
    let fnv = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    mix(bytes.iter().fold(0xcbf2_9ce4_8422_2325, fnv))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALL: [Balance; 4] =
        [Balance::RoundRobin, Balance::Least, Balance::TwoChoices, Balance::Hash];

    fn balancer(balance: Balance, count: usize) -> Balancer {
        let keys = (0..count).map(|number| hash(format!("10.0.0.{number}:80").as_bytes()));
        Balancer::new(balance, keys.collect(), 7)
    }

    fn idle(shares: &[u16]) -> Vec<Candidate> {
        shares.iter().map(|&share| Candidate { in_flight: 0, share, weight: 1 }).collect()
    }

    fn counts(balancer: &mut Balancer, candidates: &[Candidate], picks: usize) -> Vec<usize> {
        let mut counts = vec![0; candidates.len()];
        for number in 0..picks {
            let key = hash(&number.to_le_bytes());
            counts[balancer.pick(candidates, key).unwrap()] += 1;
        }
        counts
    }

    #[test]
    fn in_turn_each_gets_its_share() {
        let mut turns = balancer(Balance::RoundRobin, 3);
        assert_eq!(counts(&mut turns, &idle(&[WHOLE; 3]), 30), [10, 10, 10]);
        assert_eq!(counts(&mut turns, &idle(&[WHOLE, 500, 0]), 30), [20, 10, 0]);
        // an upstream that is back does not get all that it has missed
        let after = counts(&mut turns, &idle(&[WHOLE; 3]), 6);
        assert!(after.iter().all(|&count| (1..=3).contains(&count)), "{after:?}");
    }

    #[test]
    fn the_least_busy_is_asked_and_equals_take_turns() {
        let mut least = balancer(Balance::Least, 3);
        assert_eq!(counts(&mut least, &idle(&[WHOLE; 3]), 30), [10, 10, 10]);
        let busy = |in_flight: [u32; 3], share: [u16; 3]| {
            let one =
                |at: usize| Candidate { in_flight: in_flight[at], share: share[at], weight: 1 };
            [one(0), one(1), one(2)]
        };
        for _ in 0..3 {
            assert_eq!(least.pick(&busy([5, 3, 4], [WHOLE; 3]), 0), Some(1));
            assert_eq!(least.pick(&busy([5, 3, 4], [WHOLE, 0, WHOLE]), 0), Some(2));
            // half a share is twice the load
            assert_eq!(least.pick(&busy([5, 3, 9], [WHOLE, 500, WHOLE]), 0), Some(0));
        }
    }

    #[test]
    fn each_gets_as_much_as_it_weighs() {
        let mut weighed = idle(&[WHOLE; 3]);
        weighed[0].weight = 8;
        let exact = [Balance::RoundRobin, Balance::Least];
        for balance in exact {
            assert_eq!(counts(&mut balancer(balance, 3), &weighed, 100), [80, 10, 10]);
        }
        for balance in [Balance::TwoChoices, Balance::Hash] {
            let spread = counts(&mut balancer(balance, 3), &weighed, 10_000);
            let asked_first = if balance == Balance::Hash { 7800..8200 } else { 7500..9999 };
            assert!(asked_first.contains(&spread[0]), "{balance:?}: {spread:?}");
            assert!(spread[1] > 500 && spread[2] > 500, "{balance:?}: {spread:?}");
        }
        // with `least`, each has as much under way as it weighs
        let mut least = balancer(Balance::Least, 3);
        for _ in 0..100 {
            let at = least.pick(&weighed, 0).unwrap();
            weighed[at].in_flight += 1;
        }
        assert_eq!(weighed.iter().map(|one| one.in_flight).collect::<Vec<_>>(), [80, 10, 10]);
    }

    #[test]
    fn of_two_the_worst_is_never_taken() {
        let mut two = balancer(Balance::TwoChoices, 3);
        let mut candidates = idle(&[WHOLE; 3]);
        candidates[1].in_flight = 10;
        let spread = counts(&mut two, &candidates, 3000);
        assert_eq!(spread[1], 0);
        assert!(spread[0] > 1000 && spread[2] > 1000, "{spread:?}");
        let shares = counts(&mut two, &idle(&[WHOLE, WHOLE, 100]), 3000);
        assert!(shares[2] < 400, "{shares:?}");
    }

    #[test]
    fn keys_are_spread_and_stay() {
        let mut by_key = balancer(Balance::Hash, 5);
        let all = idle(&[WHOLE; 5]);
        let spread = counts(&mut by_key, &all, 10_000);
        assert!(spread.iter().all(|count| (1700..2300).contains(count)), "{spread:?}");
        let without = idle(&[WHOLE, WHOLE, 0, WHOLE, WHOLE]);
        for number in 0..1000u32 {
            let key = hash(&number.to_le_bytes());
            let (before, after) = (by_key.pick(&all, key), by_key.pick(&without, key));
            assert!(before == after || before == Some(2), "only what it had is moved");
        }
        // the same upstreams in another order
        let mut turned = by_key.clone();
        turned.keys.reverse();
        for number in 0..1000u32 {
            let key = hash(&number.to_le_bytes());
            assert_eq!(by_key.pick(&all, key), turned.pick(&all, key).map(|at| 4 - at));
        }
    }

    #[test]
    fn what_one_client_asks_for_at_once_stays_together() {
        let by_key = balancer(Balance::Hash, 3);
        let mut candidates = idle(&[WHOLE; 3]);
        let key = hash(b"a session");
        let first = by_key.by_key(&candidates, key).unwrap();
        for _ in 0..TOGETHER {
            assert_eq!(by_key.by_key(&candidates, key), Some(first));
            candidates[first].in_flight += 1;
        }
        assert_ne!(by_key.by_key(&candidates, key), Some(first), "the others have nothing to do");
        // an upstream that starts slowly has its share of that
        candidates[first] = Candidate { in_flight: 4, share: WHOLE / 4, weight: 1 };
        assert_ne!(by_key.by_key(&candidates, key), Some(first));
    }

    proptest! {
        /// For all candidates: one is picked if any has a share, and only such a one.
        #[test]
        fn who_has_no_share_is_not_asked(
            candidates in prop::collection::vec(
                (0u32..20, prop_oneof![Just(0u16), 1u16..=WHOLE], 1u16..=100), 1..7,
            ),
            picks in prop::collection::vec(any::<u64>(), 1..20),
        ) {
            let candidates: Vec<_> = candidates
                .iter()
                .map(|&(in_flight, share, weight)| Candidate { in_flight, share, weight })
                .collect();
            for balance in ALL {
                let mut balancer = balancer(balance, candidates.len());
                for key in &picks {
                    match balancer.pick(&candidates, *key) {
                        Some(at) => prop_assert!(candidates[at].share > 0),
                        None => prop_assert!(candidates.iter().all(|one| one.share == 0)),
                    }
                }
            }
        }

        /// For all sequences: however often one key is asked for, no upstream has much more than its
        /// part and a page's worth.
        #[test]
        fn no_key_takes_everything(
            steps in prop::collection::vec((0u64..3, 0u8..4), 1..300), count in 1usize..6,
        ) {
            let mut balancer = balancer(Balance::Hash, count);
            let mut candidates = idle(&vec![WHOLE; count]);
            let mut under_way: Vec<usize> = Vec::new();
            for (key, ends) in steps {
                if ends == 0 && !under_way.is_empty() {
                    candidates[under_way.remove(0)].in_flight -= 1;
                    continue;
                }
                let all = u64::from(candidates.iter().map(|one| one.in_flight).sum::<u32>()) + 1;
                let at = balancer.pick(&candidates, hash(&key.to_le_bytes())).unwrap();
                candidates[at].in_flight += 1;
                under_way.push(at);
                let bound = (all * BOUND_PERCENT).div_ceil(100 * count as u64);
                prop_assert!(u64::from(candidates[at].in_flight) <= bound.max(TOGETHER));
            }
        }
    }
}
