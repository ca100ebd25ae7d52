//! Classes, workers and an agent in virtual time.
//!
//! Requests of each class arrive at random (Poisson) or evenly, wait in [`Ranked`], and are served by a
//! number of threads on a number of cores: a request first takes processor time, which all threads that want
//! a core share equally, then time in which the thread is blocked. A refusal takes processor time too, from
//! whatever runs. The [`Agent`] is called once per period. Nothing else costs time.

mod rates;

pub use rates::Rates;

use super::rules::SeenRule;
use super::{Agent, Limits, Observation, Seen};
use crate::ranked::{Ranked, RankedError, Turn};
use std::collections::VecDeque;

/// The arriving requests of one class.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SimulatedLoad {
    /// The class.
    pub rank: u8,
    /// Requests per second, on average.
    pub per_s: f64,
    /// Whether they arrive evenly rather than at random.
    pub is_even: bool,
    /// The processor time of each request, in nanoseconds.
    pub cpu_ns: u64,
    /// The time after that in which its thread is blocked, in nanoseconds.
    pub blocked_ns: u64,
    /// Whether these times are the same for all requests, rather than exponentially distributed with this
    /// mean.
    pub is_fixed: bool,
    /// The rule that decides about the requests, by its position among those whose rates may be moved.
    pub rule: Option<usize>,
}

impl SimulatedLoad {
    /// Poisson arrivals that all cost the same processor time and never block.
    pub fn new(rank: u8, per_s: f64, cpu_ns: u64) -> SimulatedLoad {
        SimulatedLoad {
            rank,
            per_s,
            is_even: false,
            cpu_ns,
            blocked_ns: 0,
            is_fixed: true,
            rule: None,
        }
    }
}

/// The simulated machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// The number of cores.
    pub cores: u32,
    /// The number of threads that do the work.
    pub threads: u32,
    /// The classes' shares of the threads' time.
    pub shares: Vec<f64>,
    /// The processor time of a refusal.
    pub refusal_ns: u64,
    /// The time between two calls of the agent.
    pub period_ns: u64,
}

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// The rank of its class.
    pub rank: u8,
    /// When the request arrived.
    pub came_ns: f64,
    /// When the request was answered; `None` if it was refused.
    pub done_ns: Option<f64>,
    /// The part of that time in which it waited for a thread or a core.
    pub waited_ns: f64,
    /// The processor time of the request.
    pub cpu_ns: f64,
}

#[derive(Clone, Copy, Debug)]
struct SimulatedJob {
    rank: u8,
    came_ns: f64,
    began_ns: f64,
    cpu_ns: f64,
    blocked_ns: f64,
    /// The time spent waiting for a core.
    waited_ns: f64,
    own_cpu_ns: f64,
    own_blocked_ns: f64,
}

/// A server with an agent, and the measurements of both.
pub struct AgentSimulation<A> {
    machine: Machine,
    /// The agent.
    pub agent: A,
    queue: Ranked<SimulatedJob>,
    running: Vec<(SimulatedJob, Turn)>,
    /// Processor time that refusals still have to take.
    owed_ns: f64,
    now_ns: f64,
    next_period_ns: f64,
    random: u64,
    limits: Vec<Limits>,
    tokens: Vec<f64>,
    seen: Vec<Seen>,
    rates: Vec<f64>,
    rule_tokens: Vec<f64>,
    seen_rules: Vec<SeenRule>,
    /// For each class, sum and count of the waits for a thread of the requests that began in this period, and
    /// of the waits for a core of those that ended in it.
    waits: Vec<[(f64, u64); 2]>,
    /// The arrival times of waiting requests. There is one client, so they are served first come, first
    /// served.
    waiting: Vec<VecDeque<f64>>,
    unfinished: Vec<u32>,
    outcomes: Vec<Outcome>,
    decisions: Vec<(f64, Vec<Limits>)>,
}

/// Remaining work below this counts as none: rounding leaves fractions of a nanosecond.
const NOTHING_NS: f64 = 1e-3;
/// The largest number of waiting entries.
const MOST: usize = 1 << 20;
/// The size of the bucket for the agent's rates, in tokens.
const BURST: f64 = 2.0;

impl<A: Agent> AgentSimulation<A> {
    /// An idle machine. The same seed gives the same arrivals.
    ///
    /// # Errors
    /// The shares contradict each other.
    pub fn new(machine: Machine, agent: A, seed: u64) -> Result<AgentSimulation<A>, RankedError> {
        let classes = machine.shares.len();
        Ok(AgentSimulation {
            queue: Ranked::new(&machine.shares, MOST, 1)?,
            agent,
            running: Vec::new(),
            owed_ns: 0.0,
            now_ns: 0.0,
            next_period_ns: machine.period_ns as f64,
            // the state 0 of xorshift never changes
            random: (0x2545_f491_4f6c_dd1d ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)).max(1),
            limits: vec![Limits::default(); classes],
            tokens: vec![BURST; classes],
            seen: vec![Seen::default(); classes],
            rates: Vec::new(),
            rule_tokens: Vec::new(),
            seen_rules: Vec::new(),
            waits: vec![[(0.0, 0); 2]; classes],
            waiting: vec![VecDeque::new(); classes],
            unfinished: vec![0; classes],
            outcomes: Vec::new(),
            decisions: Vec::new(),
            machine,
        })
    }

    /// Adds rules whose rates may be moved, with the number of requests that each admits per second at first.
    pub fn with_rules(mut self, rates: &[f64]) -> AgentSimulation<A> {
        self.rates = rates.to_vec();
        self.rule_tokens = vec![BURST; rates.len()];
        self.seen_rules = vec![SeenRule::default(); rates.len()];
        self
    }

    /// The number of requests that each rule admits per second now.
    pub fn rates(&self) -> &[f64] {
        &self.rates
    }

    /// Lets these loads arrive for `seconds`. Requests that wait at the end continue in the next run.
    pub fn run(&mut self, loads: &[SimulatedLoad], seconds: f64) -> &mut AgentSimulation<A> {
        let end_ns = self.now_ns + seconds * 1e9;
        let mut next_ns: Vec<_> =
            loads.iter().map(|load| self.now_ns + self.gap_ns(load)).collect();
        while self.now_ns < end_ns {
            self.settle();
            let arrival_ns = next_ns.iter().copied().fold(f64::INFINITY, f64::min);
            self.advance(arrival_ns.min(end_ns).min(self.next_period_ns));
            for (load, next_ns) in loads.iter().zip(&mut next_ns) {
                if self.now_ns >= *next_ns {
                    self.settle();
                    self.arrive(load);
                    *next_ns = self.now_ns + self.gap_ns(load);
                }
            }
            if self.now_ns >= self.next_period_ns {
                self.settle();
                self.decide();
                self.next_period_ns += self.machine.period_ns as f64;
            }
        }
        self.settle();
        self
    }

    /// The present time, in seconds.
    pub fn now_s(&self) -> f64 {
        self.now_ns / 1e9
    }

    /// The outcomes of requests, in the order in which they became known.
    pub fn outcomes(&self) -> &[Outcome] {
        &self.outcomes
    }

    /// The limits that were decided, with the time from which each applied, in nanoseconds.
    pub fn decisions(&self) -> &[(f64, Vec<Limits>)] {
        &self.decisions
    }

    /// Requests that wait or are worked on, by rank.
    pub fn unfinished(&self) -> &[u32] {
        &self.unfinished
    }

    fn uniform(&mut self) -> f64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) as f64 / (1u64 << 53) as f64
    }

    fn exponential(&mut self) -> f64 {
        -(1.0 - self.uniform()).ln()
    }

    fn gap_ns(&mut self, load: &SimulatedLoad) -> f64 {
        if load.per_s <= 0.0 {
            return f64::INFINITY;
        }
        let gap = if load.is_even { 1.0 } else { self.exponential() };
        gap / load.per_s * 1e9
    }

    fn arrive(&mut self, load: &SimulatedLoad) {
        let rank = usize::from(load.rank);
        if let Some(rule) = load.rule {
            self.seen_rules[rule].matched += 1;
            if self.rule_tokens[rule] < 1.0 {
                self.seen_rules[rule].refused += 1;
                return self.refuse(load.rank);
            }
            self.rule_tokens[rule] -= 1.0;
        }
        self.seen[rank].offered += 1;
        let limits = self.limits[rank];
        let is_full = limits.most.is_some_and(|most| self.unfinished[rank] >= most);
        let is_early = limits.per_s.is_some() && self.tokens[rank] < 1.0;
        let scale = if load.is_fixed { 1.0 } else { self.exponential() };
        let (cpu_ns, blocked_ns) = (load.cpu_ns as f64 * scale, load.blocked_ns as f64 * scale);
        if is_full || is_early {
            self.seen[rank].refused += 1;
            return self.refuse(load.rank);
        }
        self.tokens[rank] -= 1.0;
        let job = SimulatedJob {
            rank: load.rank,
            came_ns: self.now_ns,
            began_ns: 0.0,
            cpu_ns,
            blocked_ns,
            waited_ns: 0.0,
            own_cpu_ns: cpu_ns,
            own_blocked_ns: blocked_ns,
        };
        // a request that does not fit is lost unseen: no test lets as many as MOST wait
        if self.queue.push(load.rank, 1, 1, job).is_ok() {
            self.unfinished[rank] += 1;
            self.waiting[rank].push_back(self.now_ns);
        }
    }

    fn refuse(&mut self, rank: u8) {
        self.owed_ns += self.machine.refusal_ns as f64;
        let came_ns = self.now_ns;
        let outcome = Outcome { rank, came_ns, done_ns: None, waited_ns: 0.0, cpu_ns: 0.0 };
        self.outcomes.push(outcome);
    }

    /// Ends requests that are done, and begins those that can begin.
    fn settle(&mut self) {
        let mut index = 0;
        while index < self.running.len() {
            let (job, _) = &self.running[index];
            if job.cpu_ns > NOTHING_NS || job.blocked_ns > NOTHING_NS {
                index += 1;
                continue;
            }
            let (job, turn) = self.running.swap_remove(index);
            self.queue.ran(turn, job.own_cpu_ns as u64);
            let rank = usize::from(job.rank);
            self.unfinished[rank] -= 1;
            let seen = &mut self.seen[rank];
            seen.finished += 1;
            seen.cpu_ns += job.own_cpu_ns as u64;
            seen.busy_ns += (job.own_cpu_ns + job.own_blocked_ns) as u64;
            self.outcomes.push(Outcome {
                rank: job.rank,
                came_ns: job.came_ns,
                done_ns: Some(self.now_ns),
                waited_ns: job.began_ns - job.came_ns + job.waited_ns,
                cpu_ns: job.own_cpu_ns,
            });
            let [_, ended] = &mut self.waits[rank];
            *ended = (ended.0 + job.waited_ns, ended.1 + 1);
        }
        while self.running.len() < self.machine.threads as usize
            && let Some((mut job, turn)) = self.queue.pop()
        {
            job.began_ns = self.now_ns;
            self.waiting[usize::from(job.rank)].pop_front();
            let [began, _] = &mut self.waits[usize::from(job.rank)];
            *began = (began.0 + job.began_ns - job.came_ns, began.1 + 1);
            self.running.push((job, turn));
        }
    }

    /// Advances to the next event, or to `until_ns`.
    fn advance(&mut self, until_ns: f64) {
        let cores = f64::from(self.machine.cores);
        let wanting = self.running.iter().filter(|(job, _)| job.cpu_ns > NOTHING_NS).count() as f64;
        // one thread does the refusing, and takes its share of the cores like any other
        let refusing = if self.owed_ns > NOTHING_NS { 1.0 } else { 0.0 };
        let speed = (cores / (wanting + refusing).max(1.0)).min(1.0);
        let mut step_ns = until_ns - self.now_ns;
        for (job, _) in &self.running {
            let left_ns = if job.cpu_ns > NOTHING_NS { job.cpu_ns / speed } else { job.blocked_ns };
            step_ns = step_ns.min(left_ns);
        }
        if refusing > 0.0 {
            step_ns = step_ns.min(self.owed_ns / speed);
        }
        let step_ns = step_ns.max(0.0);
        self.owed_ns = (self.owed_ns - refusing * step_ns * speed).max(0.0);
        for (job, _) in &mut self.running {
            if job.cpu_ns > NOTHING_NS {
                job.cpu_ns -= step_ns * speed;
                job.waited_ns += step_ns * (1.0 - speed);
            } else {
                job.blocked_ns -= step_ns;
            }
        }
        for (tokens, limits) in self.tokens.iter_mut().zip(&self.limits) {
            let more = limits.per_s.map_or(BURST, |per_s| per_s * step_ns / 1e9);
            *tokens = (*tokens + more).min(BURST);
        }
        for (tokens, per_s) in self.rule_tokens.iter_mut().zip(&self.rates) {
            *tokens = (*tokens + per_s * step_ns / 1e9).min(BURST);
        }
        // exactly the end, without rounding errors
        self.now_ns =
            if self.now_ns + step_ns >= until_ns { until_ns } else { self.now_ns + step_ns };
    }

    fn decide(&mut self) {
        for (rank, seen) in self.seen.iter_mut().enumerate() {
            let means_ns = std::mem::take(&mut self.waits[rank])
                .map(|(sum_ns, count)| if count > 0 { sum_ns / count as f64 } else { 0.0 });
            let mean_ns: f64 = means_ns.iter().sum();
            let oldest_ns = self.waiting[rank].front().copied().unwrap_or(self.now_ns);
            seen.delay_ns = mean_ns.max(self.now_ns - oldest_ns) as u64;
            seen.unfinished = self.unfinished[rank];
            let running = self.running.iter().filter(|(job, _)| usize::from(job.rank) == rank);
            seen.running = running.count() as u32;
        }
        let (cores, threads) = (self.machine.cores, self.machine.threads);
        let (now_ns, classes, rules) = (self.now_ns as u64, &self.seen[..], &self.seen_rules[..]);
        let seen = Observation { now_ns, cores, threads, classes, rules, ..Observation::default() };
        let decision = self.agent.tick(&seen);
        self.limits.copy_from_slice(&decision.limits);
        for (now, decided) in self.rates.iter_mut().zip(&decision.rates) {
            *now = *decided;
        }
        self.decisions.push((self.now_ns, self.limits.clone()));
        self.seen.fill(Seen::default());
        self.seen_rules.fill(SeenRule::default());
    }
}
