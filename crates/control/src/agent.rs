//! The agent: it decides how much of each class is let in while more arrives than can be served.
//!
//! Once per period (5 to 20 ms) the agent loop passes an [`Observation`] to the agent and puts the
//! [`AgentDecision`] it returns in force. An agent has no thread, clock or counter of its own, so it can be
//! replaced by another (voigt §3.5) that only implements [`Agent`].
//!
//! [`Feedback`] is the agent that servers use. It consists of these modules:
//!
//! | module | what it decides |
//! |---|---|
//! | `feedback` | the whole decision, from what the other modules say |
//! | [`windows`] | how many jobs of each class may be unfinished |
//! | [`connections`] | how many connections per second each class may begin, on the highest level |
//! | [`rules`] | how many requests per second rules admit that may be moved |
//! | [`level`](crate::level) | how overloaded the server is, and why |
//! | [`history`] | nothing; it keeps each decision with its effects |
//! | [`simulation`] | nothing; agents are tried out in it in virtual time |
//!
//! [`Rates`](simulation::Rates) is an agent that has rates only, for comparison.
//!
//! # What a limit means to the path of a request
//!
//! A request needs a worker if it cannot be answered at once: it becomes a job. Only jobs count here; a cache
//! hit neither waits for a worker nor is refused by an agent. For each class there are two shared numbers,
//! `unfinished` and `most`:
//!
//! ```text
//! first job of a request:  if unfinished.fetch_add(1) >= most { unfinished.fetch_sub(1); refuse }
//! its work has ended:      unfinished.fetch_sub(1)      (also when it never began)
//! ```
//!
//! The work ends when the answer is ready, not when it has been sent: a slow client takes no worker's time
//! and must not keep others out.
//!
//! # Example
//!
//! ```
//! use forebay_control::agent::{Agent, AgentClass, Feedback, Observation, Seen, FeedbackSettings};
//!
//! let gold = AgentClass { name: "gold".to_owned(), share: 0.0, target_ns: 20_000_000 };
//! let mut agent = Feedback::new(FeedbackSettings::new(vec![gold])).unwrap();
//! // In 10 ms 20 requests came, two were done in 2 ms each, and the oldest of the others waits for 9 ms.
//! let (cpu_ns, busy_ns) = (4_000_000, 4_000_000);
//! let seen = Seen { offered: 20, finished: 2, cpu_ns, busy_ns, unfinished: 18, running: 1, delay_ns: 9_000_000, ..Seen::default() };
//! let (cores, threads, classes) = (1, 1, &[seen][..]);
//! let seen = Observation { now_ns: 10_000_000, cores, threads, classes, ..Observation::default() };
//! // 17 that wait would take 34 ms: no more for now, and less room from now on.
//! assert!(agent.tick(&seen).limits[0].most.unwrap() < 18);
//! ```

pub mod connections;
mod feedback;
pub mod history;
pub mod rules;
pub mod simulation;
#[cfg(test)]
mod tests;
pub mod windows;

pub use feedback::{Feedback, FeedbackSettings, FeedbackSettingsError};

use crate::level::{Cause, Level};
use rules::SeenRule;

/// The interface between an agent and the loop that runs it.
pub trait Agent {
    /// Takes the observation of the last period, and returns the decision for the next.
    fn tick(&mut self, seen: &Observation<'_>) -> &AgentDecision;
}

/// A class, as an agent knows it. Classes come in the order of their ranks, the highest first.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentClass {
    /// The name by which an agent recognises the class when the classes change.
    pub name: String,
    /// The share of the workers' time that the class gets while it has work: 0 to 1.
    pub share: f64,
    /// The longest time that the class's requests should wait for a worker, in nanoseconds.
    pub target_ns: u64,
}

/// The measurements of a period.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Observation<'a> {
    /// The end of the period, on a clock that never goes back.
    pub now_ns: u64,
    /// The number of cores that the workers may use.
    pub cores: u32,
    /// The number of jobs that can be worked on at the same time.
    pub threads: u32,
    /// The measurements of the classes, by rank.
    pub classes: &'a [Seen],
    /// The measurements of the rules whose rates may be moved, in the order of [`FeedbackSettings::rules`].
    pub rules: &'a [SeenRule],
    /// The lag of the loops: the longest time from the event that completed a head, or a connection, to its
    /// verdict.
    pub lag_ns: u64,
    /// The share of the loops' processor time that refusals took: 0 to 1.
    pub refusing: f64,
    /// The first class, if any, whose requests wait for an application for longer than its target, or were
    /// refused there.
    pub applications: Option<u8>,
}

/// The measurements of a class in a period. All but `unfinished`, `running`, `delay_ns` and `queued_ns` are
/// sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Jobs that arrived.
    pub offered: u64,
    /// Arrived jobs that the agent's limits refused.
    pub refused: u64,
    /// Jobs that ended.
    pub finished: u64,
    /// Processor time of the jobs that ended.
    pub cpu_ns: u64,
    /// Time for which the jobs that ended used a core or were blocked (by a disk, a lock), but did not wait
    /// for a core. At least `cpu_ns`.
    pub busy_ns: u64,
    /// Jobs admitted and not ended at the end of the period, both waiting and running.
    pub unfinished: u32,
    /// Jobs begun and not ended at the end of the period. The other unfinished ones wait.
    pub running: u32,
    /// How long jobs waited: the mean over those that began in the period or, if that is more, how long the
    /// longest-waiting one has waited so far. To this is added the mean time for which the jobs that ended in
    /// the period waited for a core after they had begun.
    pub delay_ns: u64,
    /// Connections that arrived.
    pub connections: u64,
    /// Arrived connections that the agent's limits refused.
    pub connections_refused: u64,
    /// How long connections wait in the class's accept queue in the kernel: at the pace at which they are
    /// accepted, or since one was last accepted. 0 where the class has no such queue.
    pub queued_ns: u64,
}

impl Seen {
    const NOTHING: Seen = Seen {
        offered: 0,
        refused: 0,
        finished: 0,
        cpu_ns: 0,
        busy_ns: 0,
        unfinished: 0,
        running: 0,
        delay_ns: 0,
        connections: 0,
        connections_refused: 0,
        queued_ns: 0,
    };
}

impl Observation<'_> {
    /// The measurements of a class; zeros if it was not observed.
    fn class(&self, rank: usize) -> &Seen {
        self.classes.get(rank).unwrap_or(&Seen::NOTHING)
    }
}

/// The decision for the next period.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AgentDecision {
    /// How overloaded the server is.
    pub level: Level,
    /// The reason for the level.
    pub cause: Cause,
    /// The limits of the classes, by rank.
    pub limits: Vec<Limits>,
    /// How many requests the rules that may be moved admit per second.
    pub rates: Vec<f64>,
}

/// The limits of a class.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    /// The largest number of unfinished jobs, at least 1. `None` is no limit.
    pub most: Option<u32>,
    /// The number of jobs admitted per second, as a token bucket. `None` is no limit.
    pub per_s: Option<f64>,
    /// The number of connections admitted per second, as a token bucket. `None` is no limit.
    pub connections_per_s: Option<f64>,
    /// The `Retry-After` of refused requests, in seconds.
    pub retry_after_s: u32,
}

/// The weight of a new value in an average that is smoothed over `over_ns`, after `elapsed_ns`.
fn part_of(elapsed_ns: f64, over_ns: f64) -> f64 {
    1.0 - (-elapsed_ns / over_ns).exp()
}
