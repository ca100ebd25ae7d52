//! The order of waiting work, for every engine.
//!
//! Work waits with a rank (0 is highest) and a client. [`Ranked::pop`] takes it out
//!
//! - by strict rank order, except that a rank that has waited without its share of worker time goes first
//!   (see *Floors*);
//! - within a rank by turns: each client with waiting work gets as many entries in a row as its weight, then
//!   the next client has its turn;
//! - within a client first come, first served.
//!
//! # Floors
//!
//! `V` is the worker time reported so far, by all ranks together. A rank with the share `s` of
//! worker time is *due* at `F`, in units of `V`:
//!
//! - it begins to wait, and `F ≤ V`: `F = V + m/s`, where `m` is its mean service time. If it would be due
//!   later anyway, `F` stays: so a rank with one entry at a time, which returns as soon as one was served,
//!   gets its share too;
//! - it is due (`V ≥ F`) and goes before a higher rank, for a service time `L`: `F += L/s`, at most to
//!   `V + L/s`. Until `L` is known, `m` stands for it, so that several workers do not all take the
//!   same rank;
//! - it is served because no higher rank waits: `F += L/s`, but at most to `V + m/s`. Time that others left
//!   over does not count against it.
//!
//! If several ranks are due, the one with the lowest `F` goes first. (The tags are those of
//! virtual-clock and fair queueing; charging after the fact comes from deficit round robin.)
//!
//! [`Ranked::set_shares`] changes shares while work waits. A rank is still owed the same amount of its own
//! worker time: the time left until it is due, `F − V`, is multiplied by `s/s'`. A rank that had no share
//! starts as if it began to wait, if it has work; a rank that has none any more is never due. Entries stay
//! where they are. Work that is under way is settled by the new share. This can be wrong by what was charged
//! for it in advance, but no more.
//!
//! **The bound.** With `W` workers, `n` ranks that have a share, and no service longer than `L`, an entry
//! that is the `j`-th to be served of its rank, counted from when it is pushed, is handed out within
//!
//! ```text
//! j·L / (W·s) + (n + 1)·L
//! ```
//!
//! Proof: `F ≤ V + L/s` always, and each service before the entry adds at most `L/s`. While work waits, `V`
//! grows by `W` per unit of time, reported up to `L` late. Once the rank is due, up to `n − 1` other ranks
//! may be due earlier, and each worker calls `pop` again within `L`. A rank without a share waits as long as
//! the ranks above it have work: voigt's figure 7.
//!
//! # Numbers
//!
//! A [queue of entries with numbers](Ranked::by_number) takes within a rank the least number first,
//! regardless of clients; the caller decides what the number means (for example, the bytes that are left). No
//! entry starves: of every [`FAIR_EVERY`] entries taken of a rank, the last one is the entry that has waited
//! longest. So an entry that has `j − 1` earlier ones of its rank before it is taken among the next
//! `FAIR_EVERY · j` of its rank, and the bound above holds with that in the place of `j`.
//!
//! # Cost
//!
//! Entries lie in one table and are linked. While a rank has work of one client only, or at most one entry of
//! each client, first come first served *is* by turns, and only a list is kept. Otherwise clients are hashed
//! to [`BUCKETS`] queues, whatever their number (stochastic fairness queueing, McKenney 1990): two clients in
//! one bucket share a turn. The hash has a seed, so a client cannot choose with whom it shares.
//!
//! Instructions for one push, one pop and one report, counted by callgrind over `examples/ranked_cost.rs`
//! with 8 entries waiting (some 40 are the loop around them): 183 with one rank and one client, 250 with one
//! rank and 64 clients that all wait, 325 with four ranks. A bare deque needs 33 there. In time, 14, 17 and
//! 20 ns against 2: under half a percent of a cache hit.

mod floor;
mod keyed;
mod lane;
mod nodes;
#[cfg(test)]
mod tests;

use floor::Floors;
use lane::Lane;
use nodes::Nodes;
use std::fmt;

pub use keyed::FAIR_EVERY;
pub use lane::BUCKETS;

/// The largest number of ranks.
pub const MOST_RANKS: usize = 64;

/// Waiting work, in the order in which it will be done.
#[derive(Debug)]
pub struct Ranked<T> {
    nodes: Nodes<T>,
    lanes: Box<[Lane]>,
    floors: Floors,
    /// Bit `r` is set while rank `r` has waiting work.
    waiting: u64,
    most: usize,
    multiplier: u64,
}

/// The name of an entry from [`Ranked::push`] until it is popped or removed; afterwards it finds nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    index: u32,
    generation: u32,
}

/// A token for a popped entry, to be passed to [`Ranked::ran`] when its work has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "worker time that is not reported counts for nothing"]
pub struct Turn {
    rank: u8,
    by_floor: bool,
    /// The time charged in advance.
    charged_ns: u64,
}

impl Turn {
    /// The rank of the entry.
    pub fn rank(&self) -> u8 {
        self.rank
    }

    /// Whether the entry went before a higher rank because its own was due.
    pub fn by_floor(&self) -> bool {
        self.by_floor
    }
}

/// Why shares do not make an order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RankedError {
    /// There is no rank, there are more than [`MOST_RANKS`], or another number than before.
    Ranks {
        /// The number of ranks.
        ranks: usize,
    },
    /// A share is not between 0 and 1.
    Share {
        /// The rank.
        rank: usize,
        /// The share.
        share: f64,
    },
    /// The shares add up to more than 1.
    Sum {
        /// Their sum.
        sum: f64,
    },
}

impl fmt::Display for RankedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RankedError::Ranks { ranks } => {
                write!(f, "there must be 1 to {MOST_RANKS} ranks, not {ranks}")
            }
            RankedError::Share { rank, share } => {
                write!(f, "the share {share} of rank {rank} must lie between 0 and 1")
            }
            RankedError::Sum { sum } => write!(f, "the shares add up to {sum}, more than 1"),
        }
    }
}

impl std::error::Error for RankedError {}

/// Checks that these shares make an order.
fn check(shares: &[f64]) -> Result<(), RankedError> {
    if shares.is_empty() || shares.len() > MOST_RANKS {
        return Err(RankedError::Ranks { ranks: shares.len() });
    }
    if let Some(rank) = shares.iter().position(|share| !(0.0..=1.0).contains(share)) {
        return Err(RankedError::Share { rank, share: shares[rank] });
    }
    let sum = shares.iter().sum();
    // three shares of a third add up to a little more than one
    if sum > 1.0 + 1e-9 {
        return Err(RankedError::Sum { sum });
    }
    Ok(())
}

impl<T> Ranked<T> {
    /// A queue with one rank for each of `shares`. A share, 0 to 1, is the part of the worker time that the
    /// rank gets while it has work, even if higher ranks have work; together they are at most 1. At most
    /// `most` entries wait at once. `seed` should be secret.
    ///
    /// # Errors
    /// The shares are out of range, or their number is.
    pub fn new(shares: &[f64], most: usize, seed: u64) -> Result<Ranked<T>, RankedError> {
        check(shares)?;
        Ok(Ranked::with(shares, most, seed))
    }

    /// Sets other shares, one for each rank as in [`new`](Ranked::new). All waiting entries keep their
    /// places; only the time at which each rank is due changes (see *Floors*).
    ///
    /// # Errors
    /// The shares are out of range, or there is another number of them; nothing has changed then.
    pub fn set_shares(&mut self, shares: &[f64]) -> Result<(), RankedError> {
        if shares.len() != self.lanes.len() {
            return Err(RankedError::Ranks { ranks: shares.len() });
        }
        check(shares)?;
        self.floors.set_shares(shares, self.waiting);
        Ok(())
    }

    /// A queue with a single rank: only the clients take turns.
    pub fn single(most: usize, seed: u64) -> Ranked<T> {
        Ranked::with(&[0.0], most, seed)
    }

    /// A queue like that of [`new`](Ranked::new), except that within a rank entries are ordered by [their
    /// numbers](Ranked::push_number).
    ///
    /// # Errors
    /// The shares are out of range, or their number is.
    pub fn by_number(shares: &[f64], most: usize) -> Result<Ranked<T>, RankedError> {
        check(shares)?;
        let lanes = shares.iter().map(|_| Lane::keyed()).collect();
        Ok(Ranked { lanes, ..Ranked::with(shares, most, 1) })
    }

    fn with(shares: &[f64], most: usize, seed: u64) -> Ranked<T> {
        Ranked {
            nodes: Nodes::new(),
            lanes: shares.iter().map(|_| Lane::new()).collect(),
            floors: Floors::new(shares),
            waiting: 0,
            most: most.min(nodes::MOST),
            multiplier: seed | 1,
        }
    }

    /// Adds an entry. A `rank` beyond the last counts as the last; `client` identifies the client; `weight`
    /// entries of a client are popped in a row when its turn comes (0 counts as 1; the weight of the client's
    /// latest waiting entry counts).
    ///
    /// # Errors
    /// Too many entries wait; the item is given back.
    #[inline]
    pub fn push(&mut self, rank: u8, client: u64, weight: u8, item: T) -> Result<Key, T> {
        if self.nodes.len() >= self.most {
            return Err(item);
        }
        let rank = self.begins_to_wait(rank);
        let hash = client.wrapping_mul(self.multiplier);
        Ok(self.lanes[rank].push(&mut self.nodes, hash, rank as u8, weight.max(1), item))
    }

    /// Adds an entry to a queue that is [by number](Ranked::by_number): within a rank the least number goes
    /// first, and of equal ones the earliest, but see *Numbers*.
    ///
    /// # Errors
    /// Too many entries wait; the item is given back.
    pub fn push_number(&mut self, rank: u8, number: u64, item: T) -> Result<Key, T> {
        if self.nodes.len() >= self.most {
            return Err(item);
        }
        let rank = self.begins_to_wait(rank);
        Ok(self.lanes[rank].push_keyed(&mut self.nodes, rank as u8, number, item))
    }

    /// Notes that an entry of this rank is about to be added. Returns the rank's index.
    #[inline]
    fn begins_to_wait(&mut self, rank: u8) -> usize {
        let rank = usize::from(rank).min(self.lanes.len() - 1);
        if self.waiting & (1 << rank) == 0 {
            self.waiting |= 1 << rank;
            if self.lanes.len() > 1 {
                self.floors.begins_to_wait(rank);
            }
        }
        rank
    }

    /// Takes the next entry. Its work is accounted for by [`ran`](Ranked::ran).
    #[inline]
    pub fn pop(&mut self) -> Option<(T, Turn)> {
        self.pop_down_to(u8::MAX)
    }

    /// Like [`pop`](Ranked::pop), for a worker that serves no ranks below `last`: `None` if the next entry is
    /// of such a rank.
    #[inline]
    pub fn pop_down_to(&mut self, last: u8) -> Option<(T, Turn)> {
        let (rank, due) = self.choose(self.waiting)?;
        if rank > usize::from(last) {
            return None;
        }
        self.pop_of(rank, due)
    }

    /// Like [`pop`](Ranked::pop), ignoring entries of ranks below `last`.
    pub fn pop_within(&mut self, last: u8) -> Option<(T, Turn)> {
        let within = match last {
            last if usize::from(last) + 1 >= MOST_RANKS => self.waiting,
            last => self.waiting & ((1u64 << (last + 1)) - 1),
        };
        let (rank, due) = self.choose(within)?;
        self.pop_of(rank, due)
    }

    #[inline]
    fn pop_of(&mut self, rank: usize, due: bool) -> Option<(T, Turn)> {
        let item = self.lanes[rank].pop(&mut self.nodes)?;
        if self.lanes[rank].is_empty() {
            self.waiting &= !(1 << rank);
        }
        let charged_ns = if due { self.floors.charge(rank) } else { 0 };
        let turn = Turn { rank: rank as u8, by_floor: due, charged_ns };
        Some((item, turn))
    }

    /// The rank of the next entry.
    pub fn next_rank(&self) -> Option<u8> {
        self.choose(self.waiting).map(|(rank, _)| rank as u8)
    }

    /// The rank of the next entry, of the ranks in `waiting`, and whether it is next because it is due.
    #[inline]
    fn choose(&self, waiting: u64) -> Option<(usize, bool)> {
        if waiting == 0 {
            return None;
        }
        let first = waiting.trailing_zeros() as usize;
        let others = waiting & (waiting - 1);
        let due = if others == 0 { None } else { self.floors.due(others) };
        Some((due.unwrap_or(first), due.is_some()))
    }

    /// Records that the work of an entry has ended and took `ns` nanoseconds of a worker; 0 if it was not
    /// done.
    #[inline]
    pub fn ran(&mut self, turn: Turn, ns: u64) {
        if self.lanes.len() > 1 {
            self.floors.ran(turn, ns);
        }
    }

    /// Removes an entry before its turn, because its client has gone or it has waited too long. `None` if it
    /// was already popped or removed.
    pub fn remove(&mut self, key: Key) -> Option<T> {
        let rank = self.nodes.find(key)?;
        let item = self.lanes[rank].remove(&mut self.nodes, key.index);
        if self.lanes[rank].is_empty() {
            self.waiting &= !(1 << rank);
            self.floors.gave_up(rank);
        }
        item
    }

    /// The number of waiting entries.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether no entry waits.
    pub fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// The number of waiting entries, by rank.
    pub fn waiting(&self) -> impl Iterator<Item = usize> {
        self.lanes.iter().map(Lane::len)
    }

    /// The reported worker time, by rank, in nanoseconds. A queue with a single rank keeps no account.
    pub fn worked_ns(&self) -> impl Iterator<Item = u64> {
        self.floors.worked_ns()
    }
}
