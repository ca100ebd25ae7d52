//! The order of service: how many ranks there are, and what each is sure to get.

use forebay_conn::{Rank, RequestId};
use forebay_control::ranked::Ranked;
use forebay_metrics::ClassSlot;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

/// The ranks of an engine. It has them for as long as it lives.
#[derive(Clone, Debug, PartialEq)]
pub struct Ranks {
    /// What each rank gets of the worker time while it has work, whatever higher ranks want: 0 to 1,
    /// together at most 1. With a single rank nothing is ordered.
    pub shares: Arc<[f64]>,
    /// The ledger of each rank.
    pub slots: Arc<[ClassSlot]>,
    /// Helper threads of each kind that are kept for each rank but the last, and for those above it.
    pub reserve: usize,
    /// The nice value of helper threads that take jobs of the last rank, 0 to 19; those of the ranks
    /// between have values between.
    pub niceness: u8,
}

impl Default for Ranks {
    /// A single rank.
    fn default() -> Ranks {
        Ranks { shares: Arc::new([0.0]), slots: Arc::new([ClassSlot(0)]), reserve: 1, niceness: 10 }
    }
}

/// Which request of which connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestKey {
    /// The connection, by the token it has in its engine.
    pub connection: u64,
    /// The request.
    pub request: RequestId,
}

/// Whose a piece of work is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Served in this order.
    pub rank: u8,
    /// The client, as [`client_key`](forebay_control::ranked::client_key) writes it.
    pub client: u64,
}

impl Ranks {
    /// How many there are, at least 1.
    pub fn count(&self) -> usize {
        self.shares.len().max(1)
    }

    /// Whether there is more than one.
    pub fn is_ordered(&self) -> bool {
        self.count() > 1
    }

    /// The rank of a request, as one of these.
    pub fn clamp(&self, rank: Rank) -> u8 {
        rank.0.min((self.count() - 1) as u8)
    }

    /// The ledger of a rank.
    pub fn slot(&self, rank: u8) -> ClassSlot {
        self.slots.get(usize::from(rank)).copied().unwrap_or_default()
    }

    /// Threads in the reserves of all ranks, of one kind.
    pub fn reserve_in_all(&self) -> usize {
        self.reserve * (self.count() - 1)
    }

    /// The nice value of a thread that takes jobs of this rank and of those above it.
    pub fn niceness_of(&self, rank: usize) -> u8 {
        match self.count() - 1 {
            0 => 0,
            last => (usize::from(self.niceness) * rank.min(last) / last) as u8,
        }
    }

    /// The same in strict order.
    pub fn without_shares(&self) -> Ranks {
        Ranks { shares: self.shares.iter().map(|_| 0.0).collect(), ..self.clone() }
    }

    /// A queue in this order, for as much as comes.
    pub fn queue<T>(&self) -> Ranked<T> {
        let seed = RandomState::new().hash_one(0u8);
        match Ranked::new(&self.shares, usize::MAX, seed) {
            Ok(queue) => queue,
            // shares that are none: strict order is what is left of them
            Err(_) => Ranked::single(usize::MAX, seed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_rank_keeps_no_reserve_and_gives_way_to_nobody() {
        let ranks = Ranks::default();
        assert!(!ranks.is_ordered());
        assert_eq!((ranks.reserve_in_all(), ranks.niceness_of(0)), (0, 0));
        assert_eq!(ranks.clamp(Rank::LAST), 0);
    }

    #[test]
    fn lower_ranks_give_way_more() {
        let ranks = Ranks { shares: Arc::new([0.0, 0.2, 0.05]), ..Ranks::default() };
        assert_eq!([0, 1, 2].map(|rank| ranks.niceness_of(rank)), [0, 5, 10]);
        assert_eq!(ranks.reserve_in_all(), 2);
    }
}
