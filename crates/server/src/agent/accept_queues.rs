//! How long connections wait in the accept queues that the kernel keeps for classes.
//!
//! Listening sockets for which the kernel does not distinguish classes have one common queue:
//! connections of every class wait in it.
//!
//! In: the lengths of the queues, and how many connections were ever put into them or taken out of
//! them. Out: how long the next connection to be taken has waited. A queue is first in, first out:
//! the next connection is known by its number, and it came between two looks. This holds for the
//! shortest samples, too, where a length divided by a rate (Little's law) can be far from any
//! connection's wait, in both directions.

use forebay_handler::policy::Enforced;
use std::collections::VecDeque;
use std::sync::Arc;

/// Reads how many connections wait now; `None` if that is unknown at the moment.
pub(super) type QueueLengths = Arc<dyn Fn() -> Option<QueuedConnections> + Send + Sync>;

/// How many connections wait in accept queues.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueuedConnections {
    /// The connections in the queues of classes, by rank.
    pub by_rank: Vec<u64>,
    /// The connections in the common queue of all classes.
    pub common: u64,
}

/// The queues of all classes.
#[derive(Default)]
pub(super) struct AcceptQueues {
    lengths: Option<QueueLengths>,
    /// The queues of the classes, by rank.
    queues: Vec<AcceptQueue>,
    common: AcceptQueue,
    /// Connections of all queues accepted so far; `None` before the first look.
    accepted: Option<u64>,
}

/// The largest number of looks that are remembered: six seconds of them.
const MOST_LOOKS: usize = 128;

#[derive(Clone, Debug, Default, PartialEq)]
struct AcceptQueue {
    /// Times, and how many connections had come by then; the oldest first.
    looks: VecDeque<(u64, u64)>,
    /// The class's counter at the last look.
    counted: u64,
    /// Connections that the server has taken so far.
    taken: u64,
    wait_ns: u64,
}

impl AcceptQueues {
    pub(super) fn watch(&mut self, lengths: QueueLengths) {
        self.lengths = Some(lengths);
    }

    /// Forgets all queues: the classes have changed.
    pub(super) fn forget(&mut self) {
        self.queues.clear();
        self.common = AcceptQueue::default();
        self.accepted = None;
    }

    /// Looks at the queues. `accepted` is how many connections of all queues were accepted so far.
    pub(super) fn look(&mut self, now_ns: u64, accepted: u64, gate: Option<&Enforced>) {
        let Some(lengths) = self.lengths.as_ref() else { return };
        // arrivals are read first: a connection that comes in between makes the queue longer, not
        // its rate higher
        let came = gate.map(Enforced::first_requests).unwrap_or_default();
        let Some(lengths) = lengths() else { return };
        self.step(now_ns, accepted, &came, &lengths);
    }

    /// Updates the queues. `came` is how many connections were put into the queue of each class so
    /// far.
    fn step(&mut self, now_ns: u64, accepted: u64, came: &[u64], lengths: &QueuedConnections) {
        let is_first = self.accepted.is_none();
        let accepted_now =
            accepted.saturating_sub(self.accepted.replace(accepted).unwrap_or(accepted));
        self.queues.resize(came.len(), AcceptQueue::default());
        let mut taken = 0;
        for (rank, (queue, came)) in self.queues.iter_mut().zip(came).enumerate() {
            // the counter of another kernel program begins anew
            if *came < queue.counted {
                *queue = AcceptQueue::default();
            }
            queue.counted = *came;
            let before = queue.taken;
            queue.step(now_ns, *came, lengths.by_rank.get(rank).copied().unwrap_or(0));
            taken += if is_first { 0 } else { queue.taken.saturating_sub(before) };
        }
        // accepted connections of no class's queue were taken from the common one
        let common = self.common.taken + accepted_now.saturating_sub(taken);
        self.common.step(now_ns, common + lengths.common, lengths.common);
    }

    /// The wait of each class, by rank: the longer of those in its own queue and in the common one.
    pub(super) fn waits_ns(&self) -> impl Iterator<Item = u64> {
        let own = self.queues.iter().map(|queue| queue.wait_ns).chain(std::iter::repeat(0));
        own.map(|wait_ns| wait_ns.max(self.common.wait_ns))
    }
}

impl AcceptQueue {
    /// Updates the queue: `came` connections have come by now, and `length` of them wait.
    fn step(&mut self, now_ns: u64, came: u64, length: u64) {
        // both are read one after another while the kernel changes them: the length counts
        let came_before = self.looks.back().map_or(0, |(_, came)| *came);
        let came = came.max(came_before).max(self.taken + length);
        self.taken = came - length;
        self.looks.push_back((now_ns, came));
        // the interval of the next connection begins with the last look before it came
        while self.looks.len() > MOST_LOOKS
            || self.looks.get(1).is_some_and(|(_, came)| *came <= self.taken)
        {
            self.looks.pop_front();
        }
        self.wait_ns = self.next_came_ns().map_or(0, |at_ns| now_ns.saturating_sub(at_ns));
    }

    /// When the next connection to be taken came, if one waits. Arrivals between two looks count as
    /// evenly spaced.
    fn next_came_ns(&self) -> Option<u64> {
        let (mut from_ns, mut before) = *self.looks.front()?;
        // the connection came before the oldest look
        if before > self.taken {
            return Some(from_ns);
        }
        for (at_ns, came) in self.looks.iter().skip(1) {
            if *came > self.taken {
                let part = u128::from(self.taken + 1 - before) * u128::from(at_ns - from_ns);
                return Some(from_ns + (part / u128::from(came - before)) as u64);
            }
            (from_ns, before) = (*at_ns, *came);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// The waits in milliseconds after looks every 50 ms, each at how many connections have come
    /// and how many wait.
    fn waits(looks: &[(u64, u64)]) -> Vec<u64> {
        let mut queue = AcceptQueue::default();
        let look = |(turn, (came, length)): (usize, &(u64, u64))| {
            queue.step(turn as u64 * 50 * MS, *came, *length);
            queue.wait_ns / MS
        };
        looks.iter().enumerate().map(look).collect()
    }

    #[test]
    fn the_next_one_has_waited_since_it_came() {
        // 100 come and go in 50 ms; then 100 come and 50 go: each waits longer than the one before
        let looks = [(0, 0), (100, 0), (200, 50), (300, 100), (400, 150), (500, 200), (600, 250)];
        assert_eq!(waits(&looks), [0, 0, 24, 49, 74, 99, 124]);
    }

    #[test]
    fn one_that_came_a_moment_ago_has_not_waited() {
        // few come, and now and then a look finds one: the wait is not the length over the rate
        assert_eq!(waits(&[(0, 0), (1, 1), (2, 1), (3, 0), (4, 1), (4, 0)]), [0; 6]);
        // many come at once, and one is taken: the others came with it
        assert_eq!(waits(&[(0, 0), (100, 99), (100, 98)]), [0, 49, 98]);
    }

    #[test]
    fn a_queue_that_stands_has_waited_since_the_next_one_came() {
        let looks =
            [(10, 0), (12, 0), (15, 3), (15, 3), (16, 4), (16, 4), (16, 2), (16, 0), (17, 1)];
        assert_eq!(waits(&looks), [0, 0, 33, 83, 133, 183, 200, 0, 0]);
        let stands = vec![(1, 1); 3 * MOST_LOOKS];
        let longest = (MOST_LOOKS as u64 - 1) * 50;
        assert_eq!(waits(&stands).last(), Some(&longest), "longer ago than is remembered");
    }

    #[test]
    fn what_was_before_the_first_look_came_with_it() {
        assert_eq!(waits(&[(1_000, 400)]), [0]);
        assert_eq!(waits(&[(1_000, 400), (1_000, 400)]), [0, 50]);
    }

    #[test]
    fn what_is_of_no_class_was_taken_from_the_common_queue() {
        let mut queues = AcceptQueues::default();
        let mut look = |turn: u64, accepted, came: [u64; 2], by_rank: [u64; 2], common| {
            let lengths = QueuedConnections { by_rank: by_rank.into(), common };
            queues.step(turn * 50 * MS, accepted, &came, &lengths);
            queues.waits_ns().take(2).map(|wait_ns| wait_ns / MS).collect::<Vec<_>>()
        };
        // nothing waits in the queues of classes, and 100 are accepted each time; they are no rate
        // of the common queue
        assert_eq!(look(0, 1000, [500, 0], [0, 0], 0), [0, 0]);
        assert_eq!(look(1, 1100, [600, 0], [0, 0], 2), [25, 25]);
        assert_eq!(look(2, 1200, [700, 0], [0, 0], 2), [75, 75]);
        assert_eq!(look(3, 1301, [800, 0], [0, 0], 1), [100, 100]);
        // a class waits as long as the longer of both
        assert_eq!(look(4, 1402, [900, 4], [0, 4], 0), [0, 37]);
        // the counter of another kernel program begins anew
        assert_eq!(look(5, 1402, [1, 0], [1, 0], 0), [0, 0]);
        assert_eq!(look(6, 1402, [1, 0], [1, 0], 0), [50, 0]);
    }
}
