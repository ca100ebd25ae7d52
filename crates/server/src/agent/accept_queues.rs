//! How long connections wait in the accept queues that the kernel keeps for classes.
//!
//! The queue of all classes together, of listening sockets that the kernel tells no classes apart for, is one more:
//! connections of each class wait in it.
//!
//! In: how long the queues are, and how many connections were ever put into them. Out: the wait of each, at
//! the pace at which it is accepted from (Little's law). What was taken is what came, less what the queue
//! has grown by; a queue from which nothing is taken has made its connections wait since something was.

use forebay_handler::policy::Enforced;
use std::sync::Arc;

/// How many connections wait now; `None` if that cannot be told at the moment.
pub(super) type QueueLengths = Arc<dyn Fn() -> Option<QueuedConnections> + Send + Sync>;

/// How many connections wait in accept queues.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueuedConnections {
    /// Those of classes, by rank.
    pub by_rank: Vec<u64>,
    /// In the queue of all classes together.
    pub common: u64,
}

/// The queues of all classes.
#[derive(Default)]
pub(super) struct AcceptQueues {
    lengths: Option<QueueLengths>,
    /// By rank.
    queues: Vec<AcceptQueue>,
    common: AcceptQueue,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct AcceptQueue {
    /// When it was looked at last; `None` if never.
    seen_ns: Option<u64>,
    length: u64,
    /// Connections that have come so far.
    came: u64,
    /// When it was empty last, or something was found to have been taken.
    moved_ns: u64,
    wait_ns: u64,
}

impl AcceptQueues {
    pub(super) fn watch(&mut self, lengths: QueueLengths) {
        self.lengths = Some(lengths);
    }

    /// Classes are others: nothing is known of their queues.
    pub(super) fn forget(&mut self) {
        self.queues.clear();
        self.common = AcceptQueue::default();
    }

    /// Looks at them: `accepted` is how many connections of all queues were accepted so far.
    pub(super) fn look(&mut self, now_ns: u64, accepted: u64, gate: Option<&Enforced>) {
        let Some(lengths) = self.lengths.as_ref() else { return };
        // what came is read first: what comes meanwhile makes the queue longer, not its pace faster
        let came = gate.map(Enforced::first_requests).unwrap_or_default();
        let Some(QueuedConnections { by_rank: lengths, common }) = lengths() else { return };
        // what was taken is known here, and so what came
        self.common.step(now_ns, accepted + common, common);
        self.queues.resize(came.len(), AcceptQueue::default());
        for (rank, (queue, came)) in self.queues.iter_mut().zip(came).enumerate() {
            queue.step(now_ns, came, lengths.get(rank).copied().unwrap_or(0));
        }
    }

    /// The wait of each class, by rank, in its own queue or in that of all.
    pub(super) fn waits_ns(&self) -> impl Iterator<Item = u64> {
        let own = self.queues.iter().map(|queue| queue.wait_ns).chain(std::iter::repeat(0));
        own.map(|wait_ns| wait_ns.max(self.common.wait_ns))
    }
}

impl AcceptQueue {
    fn step(&mut self, now_ns: u64, came: u64, length: u64) {
        let before = std::mem::replace(
            self,
            AcceptQueue { seen_ns: Some(now_ns), length, came, moved_ns: now_ns, wait_ns: 0 },
        );
        let Some(seen_ns) = before.seen_ns else { return };
        let taken = (before.length + came.saturating_sub(before.came)).saturating_sub(length);
        if length == 0 {
            return;
        }
        if taken > 0 {
            let elapsed_ns = u128::from(now_ns.saturating_sub(seen_ns));
            let wait_ns = elapsed_ns * u128::from(length) / u128::from(taken);
            self.wait_ns = wait_ns.try_into().unwrap_or(u64::MAX);
        } else {
            self.moved_ns = before.moved_ns;
            self.wait_ns = now_ns.saturating_sub(before.moved_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Looks every 50 ms; the waits after each, in milliseconds.
    fn waits(looks: &[(u64, u64)]) -> Vec<u64> {
        let mut queue = AcceptQueue::default();
        let look = |(turn, (came, length)): (usize, &(u64, u64))| {
            queue.step(turn as u64 * 50 * MS, *came, *length);
            queue.wait_ns / MS
        };
        looks.iter().enumerate().map(look).collect()
    }

    #[test]
    fn a_queue_waits_as_long_as_its_length_takes_at_its_pace() {
        // 100 come and go in 50 ms; then 100 come and 50 go, until 300 wait for 50 in 50 ms
        let looks = [
            (0, 0),
            (100, 0),
            (200, 50),
            (300, 100),
            (400, 150),
            (500, 200),
            (600, 250),
            (700, 300),
        ];
        assert_eq!(waits(&looks), [0, 0, 50, 100, 150, 200, 250, 300]);
    }

    #[test]
    fn a_queue_that_stands_has_waited_since_it_moved() {
        let looks =
            [(10, 0), (12, 0), (15, 3), (15, 3), (16, 4), (16, 4), (16, 2), (16, 0), (17, 1)];
        assert_eq!(waits(&looks), [0, 0, 50, 100, 150, 200, 50, 0, 50]);
    }

    #[test]
    fn nothing_is_known_of_what_was_before_the_first_look() {
        assert_eq!(waits(&[(1_000, 400)]), [0]);
        // the counter of another kernel program begins anew
        assert_eq!(waits(&[(1_000, 0), (3, 1)]), [0, 50]);
    }
}
