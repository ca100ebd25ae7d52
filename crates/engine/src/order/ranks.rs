//! The order of service: how many ranks there are, and what each is guaranteed.

use forebay_conn::{Rank, RequestId};
use forebay_control::ranked::Ranked;
use forebay_control::versioned::{Reader, Versioned};
use forebay_metrics::ClassSlot;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// The settings of an order of service.
#[derive(Clone, Debug, PartialEq)]
pub struct OrderSettings {
    /// The share of the worker time that each rank gets while it has work, whatever higher ranks
    /// want: 0 to 1, together at most 1. With a single rank nothing is ordered.
    pub shares: Arc<[f64]>,
    /// The ledger of each rank.
    pub slots: Arc<[ClassSlot]>,
    /// The number of helper threads of each kind that are kept for each rank but the last, and for
    /// those above it.
    pub reserve: usize,
    /// The nice value of helper threads that take jobs of the last rank, 0 to 19; the values of the
    /// ranks between are in proportion.
    pub niceness: u8,
}

impl Default for OrderSettings {
    /// A single rank.
    fn default() -> OrderSettings {
        OrderSettings {
            shares: Arc::new([0.0]),
            slots: Arc::new([ClassSlot(0)]),
            reserve: 1,
            niceness: 10,
        }
    }
}

/// The ranks of an engine and its helper threads. Clones are the same ranks: what one of them is
/// [set](Ranks::set) to holds for all. Their number, the reserve and the niceness stay for as long
/// as an engine lives, because threads are begun for them; shares and ledgers may change while it
/// runs.
#[derive(Clone, Debug)]
pub struct Ranks {
    shares: Arc<Versioned<Arc<[f64]>>>,
    /// The number of the ledger of each rank; there are as many as ranks.
    slots: Arc<[AtomicU8]>,
    /// The number of helper threads of each kind that are kept for each rank but the last, and for
    /// those above it.
    pub reserve: usize,
    niceness: u8,
}

impl Default for Ranks {
    /// A single rank.
    fn default() -> Ranks {
        Ranks::new(&OrderSettings::default())
    }
}

/// The address of a request in its engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestKey {
    /// The connection, by its token in its engine.
    pub connection: u64,
    /// The request.
    pub request: RequestId,
}

/// The rank and the client that a piece of work counts for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RankedClient {
    /// The rank, in whose order the work is served.
    pub rank: u8,
    /// The client, as the number that
    /// [`ClientKey::as_u64`](forebay_http::client::ClientKey::as_u64) returns.
    pub client: u64,
}

impl Ranks {
    /// The ranks that `settings` describe.
    pub fn new(settings: &OrderSettings) -> Ranks {
        let OrderSettings { shares, slots, reserve, niceness } = settings;
        let slot = |rank: usize| slots.get(rank).copied().unwrap_or_default().0;
        Ranks {
            shares: Arc::new(Versioned::new(Arc::clone(shares))),
            slots: (0..shares.len().max(1)).map(|rank| AtomicU8::new(slot(rank))).collect(),
            reserve: *reserve,
            niceness: *niceness,
        }
    }

    /// Whether these ranks can become what `settings` describe while engines run: only shares and
    /// ledgers differ.
    pub fn can_become(&self, settings: &OrderSettings) -> bool {
        let OrderSettings { shares, slots: _, reserve, niceness } = settings;
        (self.count(), self.reserve, self.niceness) == (shares.len().max(1), *reserve, *niceness)
    }

    /// Takes over shares and ledgers; queues take over shares before they next hand something out.
    /// Nothing is done where these ranks [cannot become](Ranks::can_become) that.
    pub fn set(&self, settings: &OrderSettings) {
        if !self.can_become(settings) {
            return;
        }
        for (slot, next) in self.slots.iter().zip(&*settings.slots) {
            slot.store(next.0, Relaxed);
        }
        if self.shares.get() != settings.shares {
            self.shares.replace(Arc::clone(&settings.shares));
        }
    }

    /// The number of ranks, at least 1.
    pub fn count(&self) -> usize {
        self.slots.len()
    }

    /// Whether there is more than one rank.
    pub fn is_ordered(&self) -> bool {
        self.count() > 1
    }

    /// The rank of a request, lowered to the number of ranks there are.
    pub fn clamp(&self, rank: Rank) -> u8 {
        rank.0.min((self.count() - 1) as u8)
    }

    /// The current ledger of a rank.
    #[inline]
    pub fn slot(&self, rank: u8) -> ClassSlot {
        let slot = self.slots.get(usize::from(rank));
        slot.map_or_else(ClassSlot::default, |slot| ClassSlot(slot.load(Relaxed)))
    }

    /// The number of threads in the reserves of all ranks, of one kind.
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

    /// A queue in this order without a bound, and what keeps its shares up to date.
    pub(crate) fn queue<T>(&self) -> (Ranked<T>, Shares) {
        let (reader, shares) = self.shares.reader();
        (queue(&shares), Shares(reader))
    }

    /// A queue in this order without a bound, in which entries have numbers, and what keeps its
    /// shares up to date.
    pub(crate) fn number_queue<T>(&self) -> (Ranked<T>, Shares) {
        let (reader, shares) = self.shares.reader();
        let most = usize::MAX;
        let queue = Ranked::by_number(&shares, most)
            .or_else(|_| Ranked::by_number(&vec![0.0; self.count()], most));
        // without valid shares the order has as many ranks and no shares
        (queue.unwrap_or_else(|_| Ranked::single(most, 1)), Shares(reader))
    }

    /// A queue in strict order, whatever the shares are.
    pub(crate) fn strict_queue<T>(&self) -> Ranked<T> {
        queue(&vec![0.0; self.count()])
    }
}

fn queue<T>(shares: &[f64]) -> Ranked<T> {
    let seed = RandomState::new().hash_one(0u8);
    match Ranked::new(shares, usize::MAX, seed) {
        Ok(queue) => queue,
        // without valid shares, strict order is what is left
        Err(_) => Ranked::single(usize::MAX, seed),
    }
}

/// The shares of one queue, which may change.
#[derive(Debug)]
pub(crate) struct Shares(Reader<Arc<[f64]>>);

impl Shares {
    /// Gives `queue` the shares in force; one atomic load if it has them. A loop looks once per
    /// turn, threads that share a queue look when they have its lock.
    #[inline]
    pub(crate) fn keep_up<T>(&mut self, queue: &mut Ranked<T>) {
        if let Some(shares) = self.0.newer() {
            // invalid shares leave the order as it is
            let _ = queue.set_shares(&shares);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of<const N: usize>(shares: [f64; N]) -> Ranks {
        let slots = (0..N as u8).map(ClassSlot).collect();
        Ranks::new(&OrderSettings { shares: Arc::new(shares), slots, ..OrderSettings::default() })
    }

    #[test]
    fn shares_and_ledgers_reach_queues_and_clones_that_are_there() {
        let ranks = of([0.0, 0.0]);
        let (mut queue, mut shares) = ranks.clone().queue();
        let mut next = |ranks: &Ranks| {
            while queue.pop().is_some() {}
            queue.push(1, 1, 1, 1).unwrap();
            queue.push(0, 1, 1, 0).unwrap();
            shares.keep_up(&mut queue);
            (queue.pop().unwrap().0, ranks.slot(1))
        };
        assert_eq!(next(&ranks), (0, ClassSlot(1)));
        // the time that a service takes is not known yet, so a rank with a share is due at once
        let settings = |shares: &[f64], slot: u8| OrderSettings {
            shares: shares.into(),
            slots: Arc::new([ClassSlot(0), ClassSlot(slot)]),
            ..OrderSettings::default()
        };
        ranks.set(&settings(&[0.0, 0.5], 7));
        assert_eq!(next(&ranks), (1, ClassSlot(7)));
        ranks.set(&settings(&[0.0, 0.0], 7));
        assert_eq!(next(&ranks), (0, ClassSlot(7)));
        // ranks of another number, reserve or niceness are not taken over
        ranks.set(&settings(&[0.0, 0.5, 0.1], 9));
        ranks.set(&OrderSettings { reserve: 9, ..settings(&[0.0, 0.5], 9) });
        ranks.set(&OrderSettings { niceness: 9, ..settings(&[0.0, 0.5], 9) });
        assert_eq!(next(&ranks), (0, ClassSlot(7)));
    }

    #[test]
    fn a_single_rank_keeps_no_reserve_and_gives_way_to_nobody() {
        let ranks = Ranks::default();
        assert!(!ranks.is_ordered());
        assert_eq!((ranks.reserve_in_all(), ranks.niceness_of(0)), (0, 0));
        assert_eq!(ranks.clamp(Rank::LAST), 0);
    }

    #[test]
    fn lower_ranks_give_way_more() {
        let ranks = of([0.0, 0.2, 0.05]);
        assert_eq!([0, 1, 2].map(|rank| ranks.niceness_of(rank)), [0, 5, 10]);
        assert_eq!(ranks.reserve_in_all(), 2);
    }
}
