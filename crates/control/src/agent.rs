//! The agent: how much of each class is let in while more arrives than can be served.
//!
//! Once per period (5 to 20 ms) whoever runs an agent hands it an [`Observation`] and puts the
//! [`Limits`] it answers with in force. An agent has no thread, clock or counter of its own, so
//! another one can take its place (voigt §3.5): it implements [`Agent`] and nothing else.
//!
//! [`Windows`] is the one that serves. What it does and why is written there; [`simulation`] is where
//! agents are tried out in virtual time, [`Rates`](simulation::Rates) the one it is compared with.
//!
//! # What a limit means to the path of a request
//!
//! A request needs a worker if it cannot be answered at once: it becomes a job. Only those count
//! here; a cache hit neither waits for a worker nor is it refused by an agent. For each class there
//! are two shared numbers, `unfinished` and `most`:
//!
//! ```text
//! first job of a request:  if unfinished.fetch_add(1) >= most { unfinished.fetch_sub(1); refuse }
//! its work has ended:      unfinished.fetch_sub(1)      (the last job done, or it never began)
//! ```
//!
//! The work ends when the answer is ready, not when it was sent: a slow receiver takes no worker's
//! time and must not keep others out.

pub mod simulation;
#[cfg(test)]
mod tests;
pub mod windows;

pub use windows::Windows;

/// What an agent is to whoever runs it.
pub trait Agent {
    /// Takes what was seen since the last call and says what holds until the next: one element for
    /// each class, in the order of their ranks.
    fn tick(&mut self, seen: &Observation<'_>) -> &[Limits];
}

/// A class, as an agent knows it. Classes come in the order of their ranks, the first first.
#[derive(Clone, Debug, PartialEq)]
pub struct Class {
    /// What an agent recognises it by when the classes change.
    pub name: String,
    /// The share of the workers' time that it gets while it has work: 0 to 1.
    pub share: f64,
    /// How long its requests should wait for a worker at most, in nanoseconds.
    pub target_ns: u64,
}

/// What was seen in a period.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Observation<'a> {
    /// The end of the period on a clock that never goes back.
    pub now_ns: u64,
    /// Cores that requests may use.
    pub cores: u32,
    /// Requests that can be worked on at the same time: helper threads, as a rule.
    pub threads: u32,
    /// The classes by rank.
    pub classes: &'a [Seen],
}

/// What was seen of a class in a period. All but `unfinished` are sums over the period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Requests that needed a worker.
    pub offered: u64,
    /// Those of them that the agent's limits refused.
    pub refused: u64,
    /// Requests whose work ended.
    pub finished: u64,
    /// Processor time that the work of `finished` took.
    pub cpu_ns: u64,
    /// Time in which that work used a core or was blocked (a disk, a lock), but did not wait for a
    /// core. At least `cpu_ns`.
    pub busy_ns: u64,
    /// Admitted and not finished at the end of the period: those that wait and those at work.
    pub unfinished: u32,
    /// How long they waited: the mean over those whose work began in the period or, if that is
    /// more, how long the one that waits longest has waited so far. Time for which work that had
    /// begun waited for a core belongs to it.
    pub delay_ns: u64,
}

/// What holds for a class until the next period.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    /// How many requests that need a worker may be unfinished; at least 1. `None` is no limit.
    pub most: Option<u32>,
    /// How many of them may be admitted per second, as a token bucket. `None` is no limit.
    pub per_s: Option<f64>,
    /// What a refused client is told in `Retry-After`.
    pub retry_after_s: u32,
}
