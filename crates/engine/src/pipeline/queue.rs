//! The tasks that wait in a list: first in, first out, or by rank and fair between the clients of a
//! rank.

use crate::order::ranks::{RankedClient, Ranks, Shares};
use forebay_control::ranked::{Ranked, Turn};
use std::collections::VecDeque;

/// Tasks, with the time each was put in.
pub(super) enum TaskQueue<T> {
    /// First come, first served.
    Plain(VecDeque<(T, u64)>),
    /// Tasks in the order of ranks, with shares that may change.
    Ranked(Ranked<(T, u64)>, Shares),
}

/// A task that was taken out.
pub(super) struct TakenTask<T> {
    pub(super) task: T,
    /// The time when it was put in.
    pub(super) since_ns: u64,
    /// The turn of the task, which goes to [`TaskQueue::ran`].
    pub(super) turn: Option<Turn>,
}

impl<T> TaskQueue<T> {
    pub(super) fn new(ranks: &Ranks) -> TaskQueue<T> {
        match ranks.is_ordered() {
            true => {
                let (tasks, shares) = ranks.queue();
                TaskQueue::Ranked(tasks, shares)
            }
            false => TaskQueue::Plain(VecDeque::new()),
        }
    }

    /// Takes over shares that have changed.
    pub(super) fn keep_up(&mut self) {
        if let TaskQueue::Ranked(tasks, shares) = self {
            shares.keep_up(tasks);
        }
    }

    pub(super) fn push(&mut self, task: T, ranked_client: RankedClient, since_ns: u64) {
        match self {
            TaskQueue::Plain(tasks) => tasks.push_back((task, since_ns)),
            TaskQueue::Ranked(tasks, _) => {
                // the queue has no bound: connections and listeners have one entry each, lanes some
                // for each rank
                let _ = tasks.push(ranked_client.rank, ranked_client.client, 1, (task, since_ns));
            }
        }
    }

    /// The rank of the task that comes next.
    pub(super) fn next_rank(&self) -> Option<u8> {
        match self {
            TaskQueue::Plain(tasks) => (!tasks.is_empty()).then_some(0),
            TaskQueue::Ranked(tasks, _) => tasks.next_rank(),
        }
    }

    pub(super) fn pop(&mut self) -> Option<TakenTask<T>> {
        match self {
            TaskQueue::Plain(tasks) => {
                let (task, since_ns) = tasks.pop_front()?;
                Some(TakenTask { task, since_ns, turn: None })
            }
            TaskQueue::Ranked(tasks, _) => {
                let ((task, since_ns), turn) = tasks.pop()?;
                Some(TakenTask { task, since_ns, turn: Some(turn) })
            }
        }
    }

    /// Charges the time for which a task that was taken out held its thread.
    pub(super) fn ran(&mut self, turn: Option<Turn>, ns: u64) {
        if let (TaskQueue::Ranked(tasks, _), Some(turn)) = (self, turn) {
            tasks.ran(turn, ns);
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            TaskQueue::Plain(tasks) => tasks.len(),
            TaskQueue::Ranked(tasks, _) => tasks.len(),
        }
    }
}
