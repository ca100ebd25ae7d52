//! The account of worker time, by which a rank becomes due although a higher one waits.
//!
//! The rules and the bound that follows from them are in [`ranked`](super).

use super::Turn;

/// The accounts of all ranks.
#[derive(Debug)]
pub(super) struct Floors {
    /// `V`: the worker time reported so far.
    total_ns: u64,
    ranks: Box<[Floor]>,
}

#[derive(Debug)]
struct Floor {
    /// `1/s`; infinite for a rank without a share.
    stretch: f64,
    /// `F`: the total at which the rank is due.
    due_ns: u64,
    /// `m`: the moving average of the rank's service times.
    mean_ns: u64,
    worked_ns: u64,
    /// Whether the rank has no work because its entries were removed, not served.
    gave_up: bool,
}

/// The weight of a service time in the mean is one part in this many.
const MEAN_OVER: u64 = 8;

impl Floor {
    /// How much the total must grow until this rank is owed `ns`. The largest number for a rank
    /// without a share, even for 0 ns.
    fn stretched(&self, ns: u64) -> u64 {
        if self.stretch.is_infinite() { u64::MAX } else { (ns as f64 * self.stretch) as u64 }
    }
}

impl Floors {
    pub(super) fn new(shares: &[f64]) -> Floors {
        let floor = |share: &f64| Floor {
            stretch: 1.0 / share,
            due_ns: if *share > 0.0 { 0 } else { u64::MAX },
            mean_ns: 0,
            worked_ns: 0,
            gave_up: false,
        };
        Floors { total_ns: 0, ranks: shares.iter().map(floor).collect() }
    }

    /// Sets other shares, one for each rank. `waiting` has a bit for each rank that has work.
    pub(super) fn set_shares(&mut self, shares: &[f64], waiting: u64) {
        for (rank, (floor, share)) in self.ranks.iter_mut().zip(shares).enumerate() {
            let before = std::mem::replace(&mut floor.stretch, 1.0 / share);
            if floor.stretch.is_infinite() {
                floor.due_ns = u64::MAX;
            } else if before.is_infinite() {
                let is_waiting = waiting & (1 << rank) != 0;
                let wait_ns = if is_waiting { floor.stretched(floor.mean_ns) } else { 0 };
                floor.due_ns = self.total_ns.saturating_add(wait_ns);
            } else if let Some(left_ns) = floor.due_ns.checked_sub(self.total_ns) {
                let left_ns = (left_ns as f64 * (floor.stretch / before)) as u64;
                floor.due_ns = self.total_ns.saturating_add(left_ns);
            }
        }
    }

    /// Notes that the rank has work again.
    pub(super) fn begins_to_wait(&mut self, rank: usize) {
        let floor = &mut self.ranks[rank];
        let gave_up = std::mem::take(&mut floor.gave_up);
        // a rank that returns before it is due counts as if it had never stopped
        if floor.due_ns > self.total_ns {
            return;
        }
        // A rank that waited in vain is due when it would have been, but gains nothing beyond that.
        let wait_ns = if gave_up { 0 } else { floor.stretched(floor.mean_ns) };
        floor.due_ns = self.total_ns.saturating_add(wait_ns);
    }

    /// Notes that the rank's last waiting entry was removed.
    pub(super) fn gave_up(&mut self, rank: usize) {
        self.ranks[rank].gave_up = true;
    }

    /// The rank of this set that has been due longest, if any is due.
    pub(super) fn due(&self, mut set: u64) -> Option<usize> {
        let mut found = None;
        let mut lowest_ns = self.total_ns;
        while set != 0 {
            let rank = set.trailing_zeros() as usize;
            set &= set - 1;
            let due_ns = self.ranks[rank].due_ns;
            // of equal ones the higher rank goes first
            if due_ns < lowest_ns || due_ns == lowest_ns && found.is_none() {
                (found, lowest_ns) = (Some(rank), due_ns);
            }
        }
        found
    }

    /// Charges a rank that is served because it is due, in advance, for the time its work is likely
    /// to take.
    pub(super) fn charge(&mut self, rank: usize) -> u64 {
        let floor = &mut self.ranks[rank];
        floor.due_ns = floor.due_ns.saturating_add(floor.stretched(floor.mean_ns));
        floor.mean_ns
    }

    /// Records the time of work that has ended, for the total and as a service time of its rank.
    pub(super) fn ran(&mut self, turn: Turn, ns: u64) {
        self.total_ns = self.total_ns.saturating_add(ns);
        let total_ns = self.total_ns;
        let floor = &mut self.ranks[usize::from(turn.rank)];
        floor.worked_ns = floor.worked_ns.saturating_add(ns);
        if ns > 0 {
            let mean_ns = if floor.mean_ns == 0 { ns } else { floor.mean_ns };
            let older_ns = mean_ns.saturating_mul(MEAN_OVER - 1);
            floor.mean_ns = older_ns.saturating_add(ns).div_ceil(MEAN_OVER);
        }
        if floor.stretch.is_infinite() {
            return;
        }
        if turn.by_floor {
            let uncharged_ns = floor.due_ns.saturating_sub(floor.stretched(turn.charged_ns));
            let charged_ns = uncharged_ns.saturating_add(floor.stretched(ns));
            floor.due_ns = charged_ns.min(total_ns.saturating_add(floor.stretched(ns)));
        } else {
            let charged_ns = floor.due_ns.saturating_add(floor.stretched(ns));
            let most_ns = total_ns.saturating_add(floor.stretched(floor.mean_ns));
            floor.due_ns = floor.due_ns.max(charged_ns.min(most_ns));
        }
    }

    pub(super) fn worked_ns(&self) -> impl Iterator<Item = u64> {
        self.ranks.iter().map(|floor| floor.worked_ns)
    }
}
