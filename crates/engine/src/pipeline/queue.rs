//! What waits in a list: as it came, or by rank and fair between the clients of a rank.

use crate::ranks::{Ranks, Shares, Standing};
use forebay_control::ranked::{Ranked, Turn};
use std::collections::VecDeque;

/// Tasks, with the time each was put in.
pub(super) enum Queue<T> {
    /// First come, first served.
    Plain(VecDeque<(T, u64)>),
    /// In this order, with shares that may change.
    Ranked(Ranked<(T, u64)>, Shares),
}

/// A task that was taken out.
pub(super) struct Next<T> {
    pub(super) task: T,
    /// When it was put in.
    pub(super) since_ns: u64,
    /// Goes to [`Queue::ran`].
    pub(super) turn: Option<Turn>,
}

impl<T> Queue<T> {
    pub(super) fn new(ranks: &Ranks) -> Queue<T> {
        match ranks.is_ordered() {
            true => {
                let (tasks, shares) = ranks.queue();
                Queue::Ranked(tasks, shares)
            }
            false => Queue::Plain(VecDeque::new()),
        }
    }

    /// Takes over shares that have changed.
    pub(super) fn keep_up(&mut self) {
        if let Queue::Ranked(tasks, shares) = self {
            shares.keep_up(tasks);
        }
    }

    pub(super) fn push(&mut self, task: T, standing: Standing, since_ns: u64) {
        match self {
            Queue::Plain(tasks) => tasks.push_back((task, since_ns)),
            Queue::Ranked(tasks, _) => {
                // there is always room: connections and listeners have one entry each
                let _ = tasks.push(standing.rank, standing.client, 1, (task, since_ns));
            }
        }
    }

    /// The rank of the task that comes next.
    pub(super) fn next_rank(&self) -> Option<u8> {
        match self {
            Queue::Plain(tasks) => (!tasks.is_empty()).then_some(0),
            Queue::Ranked(tasks, _) => tasks.next_rank(),
        }
    }

    pub(super) fn pop(&mut self) -> Option<Next<T>> {
        match self {
            Queue::Plain(tasks) => {
                let (task, since_ns) = tasks.pop_front()?;
                Some(Next { task, since_ns, turn: None })
            }
            Queue::Ranked(tasks, _) => {
                let ((task, since_ns), turn) = tasks.pop()?;
                Some(Next { task, since_ns, turn: Some(turn) })
            }
        }
    }

    /// A task that was taken out has held its thread for so long.
    pub(super) fn ran(&mut self, turn: Option<Turn>, ns: u64) {
        if let (Queue::Ranked(tasks, _), Some(turn)) = (self, turn) {
            tasks.ran(turn, ns);
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Queue::Plain(tasks) => tasks.len(),
            Queue::Ranked(tasks, _) => tasks.len(),
        }
    }
}
