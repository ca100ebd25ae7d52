//! Which connection gets the next free thread, in engines in which each connection keeps one.
//!
//! While a thread is free for each connection that has come, nothing is ordered: they are served as
//! they came. A free thread must get a processor before it can take a connection, and meanwhile all
//! that come later and have a higher rank would pass the connection that it is for. When more have
//! come than threads are free, the ready queue of all engines decides which connections get them.

use crate::order::ranks::{RankedClient, Ranks, Shares};
use forebay_control::ranked::{Ranked, Turn};
use std::collections::VecDeque;

/// The connections that wait for a thread.
pub(crate) struct ThreadQueue<T> {
    /// The connections that have come since the number of free threads was last known.
    new: Vec<(RankedClient, T)>,
    /// The connections for each of which a thread is free.
    granted: VecDeque<(T, Turn)>,
    /// The connections for which no thread is free.
    waiting: Ranked<T>,
    shares: Shares,
}

impl<T> ThreadQueue<T> {
    /// A queue in this order.
    pub(crate) fn new(ranks: &Ranks) -> ThreadQueue<T> {
        let (waiting, shares) = ranks.queue();
        ThreadQueue { new: Vec::new(), granted: VecDeque::new(), waiting, shares }
    }

    /// The number of connections that wait.
    pub(crate) fn len(&self) -> usize {
        self.new.len() + self.granted.len() + self.waiting.len()
    }

    /// Adds a connection that has come.
    pub(crate) fn push(&mut self, ranked_client: RankedClient, item: T) {
        self.new.push((ranked_client, item));
    }

    /// Takes the next connection, for one of `free` threads that are free. The time for which it
    /// has the thread goes back to [`ran`](ThreadQueue::ran).
    pub(crate) fn pop(&mut self, free: usize) -> Option<(T, Turn)> {
        self.grant(free.max(1));
        self.granted.pop_front()
    }

    /// Grants free threads to the connections that have come, or puts them in order.
    fn grant(&mut self, free: usize) {
        self.shares.keep_up(&mut self.waiting);
        let is_enough = self.waiting.is_empty() && self.len() <= free;
        for (RankedClient { rank, client }, item) in self.new.drain(..) {
            // the queue itself has no bound
            let _ = self.waiting.push(rank, client, 1, item);
            if is_enough {
                self.granted.extend(self.waiting.pop());
            }
        }
        while self.granted.len() < free
            && let Some(first) = self.waiting.pop()
        {
            self.granted.push_back(first);
        }
    }

    /// Charges the time for which the thread was taken.
    pub(crate) fn ran(&mut self, turn: Turn, ns: u64) {
        self.waiting.ran(turn, ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::ranks::OrderSettings;
    use std::sync::Arc;

    fn queue() -> ThreadQueue<&'static str> {
        let settings = OrderSettings { shares: Arc::new([0.0; 3]), ..OrderSettings::default() };
        ThreadQueue::new(&Ranks::new(&settings))
    }

    fn push(queue: &mut ThreadQueue<&'static str>, ranks: &[u8]) {
        for &rank in ranks {
            queue.push(
                RankedClient { rank, client: 7 },
                ["high", "medium", "low"][usize::from(rank)],
            );
        }
    }

    fn pop(queue: &mut ThreadQueue<&'static str>, free: usize) -> Option<&'static str> {
        let (name, turn) = queue.pop(free)?;
        queue.ran(turn, 0);
        Some(name)
    }

    #[test]
    fn with_threads_for_all_they_are_served_as_they_came() {
        let mut queue = queue();
        push(&mut queue, &[2, 1]);
        assert_eq!(pop(&mut queue, 4), Some("low"));
        // comes before the next thread is awake, and there is a thread for it, too
        push(&mut queue, &[0]);
        assert_eq!(pop(&mut queue, 3), Some("medium"));
        assert_eq!(pop(&mut queue, 2), Some("high"));
        assert_eq!((pop(&mut queue, 1), queue.len()), (None, 0));
    }

    #[test]
    fn with_fewer_threads_than_have_come_ranks_decide() {
        let mut queue = queue();
        push(&mut queue, &[2, 2, 1, 0]);
        assert_eq!(pop(&mut queue, 1), Some("high"));
        push(&mut queue, &[0]);
        assert_eq!(pop(&mut queue, 1), Some("high"));
        assert_eq!(pop(&mut queue, 1), Some("medium"));
        assert_eq!(pop(&mut queue, 2), Some("low"));
        assert_eq!((pop(&mut queue, 2), pop(&mut queue, 1)), (Some("low"), None));
    }

    #[test]
    fn who_has_a_thread_keeps_it_when_threads_become_scarce() {
        let mut queue = queue();
        push(&mut queue, &[2, 2, 2]);
        assert_eq!(pop(&mut queue, 3), Some("low"));
        // two threads, for the two that are left
        push(&mut queue, &[0, 0]);
        assert_eq!([pop(&mut queue, 2), pop(&mut queue, 1)], [Some("low"); 2]);
        assert_eq!([pop(&mut queue, 1), pop(&mut queue, 1)], [Some("high"); 2]);
    }

    #[test]
    fn who_finds_no_free_thread_counted_has_the_one_that_asks() {
        let mut queue = queue();
        push(&mut queue, &[1]);
        assert_eq!(pop(&mut queue, 0), Some("medium"));
    }
}
