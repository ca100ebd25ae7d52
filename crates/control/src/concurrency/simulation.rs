//! Applications in virtual time, with a learned limit or a fixed one.
//!
//! More requests of the low class wait than are ever served, or they arrive at random and the
//! [agent](crate::agent) lets some in; those of the high class arrive at random. The limit bounds what is
//! under way. The rest depends on the application: its workers, processors and locks.

use super::{AnswerQuality, UsefulConcurrency};
use crate::agent::windows::{Constants, Windows};
use crate::agent::{AgentClass, Observation, Seen};
use std::collections::VecDeque;

/// The scarce resource of an application.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shortage {
    /// Workers, which sleep for the time of a request.
    Workers,
    /// This number of processors.
    Processors(f64),
    /// One lock, held for this part of a request's time.
    Lock(f64),
}

/// How the durations of requests are distributed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceTimes {
    /// All durations are equal.
    Equal,
    /// They are evenly distributed, from half to one and a half of the mean.
    Even,
    /// They are distributed exponentially, as if each moment could be the end.
    Exponential,
}

/// A simulated application.
#[derive(Clone, Copy, Debug)]
pub struct SimulatedApplication {
    /// The number of requests that are served at once; others wait inside, first come, first served.
    pub workers: usize,
    /// The duration of a request alone.
    pub service_s: f64,
    /// The distribution of durations.
    pub times: ServiceTimes,
    /// The scarce resource.
    pub shortage: Shortage,
    /// The part of its answers that are errors, which take a millisecond.
    pub failing: f64,
    /// Whether requests that find no free worker are answered with an error, within a millisecond, instead of
    /// waiting.
    pub refuses: bool,
    /// The number of requests that another server has under way at the application.
    pub others: usize,
}

/// The result of a run.
#[derive(Clone, Copy, Debug)]
pub struct SimulatedRun {
    /// Good answers in each second.
    pub goodput: f64,
    /// The 99th percentile of the high class's waiting and service time.
    pub high_p99_s: f64,
    /// The mean limit.
    pub limit: f64,
    /// The limit at the end.
    pub last_limit: u32,
}

/// A limit on the requests under way.
pub trait SimulatedLimit {
    /// The present limit.
    fn limit(&self) -> u32;
    /// Sets the number of requests that are under way from now on.
    fn under_way(&mut self, count: u32, now_ns: u64);
    /// Records that a request has ended.
    fn ended(&mut self, took_ns: u64, outcome: AnswerQuality, now_ns: u64);
}

impl SimulatedLimit for UsefulConcurrency {
    fn limit(&self) -> u32 {
        UsefulConcurrency::limit(self)
    }
    fn under_way(&mut self, count: u32, now_ns: u64) {
        UsefulConcurrency::under_way(self, count, now_ns);
    }
    fn ended(&mut self, took_ns: u64, outcome: AnswerQuality, now_ns: u64) {
        UsefulConcurrency::ended(self, took_ns, outcome, now_ns);
    }
}

/// A limit set by an operator.
#[derive(Clone, Copy, Debug)]
pub struct FixedLimit(pub u32);

impl SimulatedLimit for FixedLimit {
    fn limit(&self) -> u32 {
        self.0
    }
    fn under_way(&mut self, _: u32, _: u64) {}
    fn ended(&mut self, _: u64, _: AnswerQuality, _: u64) {}
}

/// A random number generator that repeats its numbers for the same seed (splitmix64).
#[derive(Clone, Debug)]
struct SimulatedRandom(u64);

impl SimulatedRandom {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    fn exponential(&mut self) -> f64 {
        -(1.0 - self.next()).ln()
    }
}

#[derive(Clone, Copy, Debug)]
struct SimulatedRequest {
    is_own: bool,
    is_high: bool,
    came_s: f64,
    began_s: f64,
    is_error: bool,
    /// The work still to be done: outside the lock, and inside.
    left_s: [f64; 2],
}

/// An application with its requests, the requests that wait for it, and its limit.
#[derive(Debug)]
struct SimulatedWorld<'a, L> {
    application: SimulatedApplication,
    limit: &'a mut L,
    random: SimulatedRandom,
    now_s: f64,
    /// Requests begun in the application, each served or waiting for the lock.
    active: Vec<SimulatedRequest>,
    /// The order in which requests get the lock; the first one holds it.
    lock: VecDeque<SimulatedRequest>,
    backlog: VecDeque<SimulatedRequest>,
    high: VecDeque<f64>,
    next_high_s: f64,
    high_each_s: f64,
    own: u32,
    agent: Option<AgentAtQueue>,
}

/// Low requests that arrive at random, and the agent that lets some of them in.
#[derive(Debug)]
struct AgentAtQueue {
    windows: Windows,
    low: VecDeque<f64>,
    next_low_s: f64,
    low_each_s: f64,
    next_look_s: f64,
    /// The measurements of the classes since the last period, and the number of requests of each under way.
    seen: [Seen; 2],
    under_way: [u32; 2],
    waited_s: [(f64, u32); 2],
}

/// The agent's period.
const LOOK_S: f64 = 0.01;

impl AgentAtQueue {
    fn new(classes: &[AgentClass], low_each_s: f64) -> AgentAtQueue {
        AgentAtQueue {
            windows: Windows::new(classes, Constants::default()),
            low: VecDeque::new(),
            next_low_s: 0.0,
            low_each_s,
            next_look_s: LOOK_S,
            seen: [Seen::default(); 2],
            under_way: [0; 2],
            waited_s: [(0.0, 0); 2],
        }
    }

    /// A low request arrives, and waits if the agent lets it in.
    fn comes(&mut self, now_s: f64) {
        let most = self.windows.limits().get(1).and_then(|limits| limits.most);
        self.seen[1].offered += 1;
        match self.low.len() as u32 + self.under_way[1] < most.unwrap_or(u32::MAX) {
            true => self.low.push_back(now_s),
            false => self.seen[1].refused += 1,
        }
    }

    fn begins(&mut self, class: usize, waited_s: f64) {
        self.under_way[class] += 1;
        self.waited_s[class].0 += waited_s;
        self.waited_s[class].1 += 1;
    }

    fn ends(&mut self, class: usize, took_s: f64) {
        self.under_way[class] -= 1;
        self.seen[class].finished += 1;
        self.seen[class].busy_ns += (took_s * 1e9) as u64;
    }

    fn look(&mut self, high: &VecDeque<f64>, places: u32, now_s: f64) {
        for (class, queue) in [high, &self.low].into_iter().enumerate() {
            let (waited_s, began) = std::mem::take(&mut self.waited_s[class]);
            let oldest_s = queue.front().map_or(0.0, |came_s| now_s - came_s);
            let mean_s = waited_s / f64::from(began.max(1));
            self.seen[class].running = self.under_way[class];
            self.seen[class].unfinished = self.under_way[class] + queue.len() as u32;
            self.seen[class].delay_ns = (mean_s.max(oldest_s) * 1e9) as u64;
        }
        let now_ns = (now_s * 1e9) as u64;
        let seen = Observation {
            now_ns,
            cores: places,
            threads: places,
            classes: &self.seen,
            ..Observation::default()
        };
        self.windows.tick(LOOK_S * 1e9, &seen);
        self.seen = [Seen::default(); 2];
        self.next_look_s = now_s + LOOK_S;
    }
}

impl<L: SimulatedLimit> SimulatedWorld<'_, L> {
    fn request(&mut self, is_own: bool, is_high: bool, came_s: f64) -> SimulatedRequest {
        let SimulatedApplication { service_s, times, shortage, failing, .. } = self.application;
        let mut draw = || match times {
            ServiceTimes::Equal => 1.0,
            ServiceTimes::Even => 0.5 + self.random.next(),
            ServiceTimes::Exponential => self.random.exponential(),
        };
        let mut left_s = match shortage {
            Shortage::Lock(part) => {
                [service_s * (1.0 - part) * draw(), (service_s * part * draw()).max(1e-9)]
            }
            _ => [service_s * draw(), 0.0],
        };
        let is_error = failing > 0.0 && self.random.next() < failing;
        if is_error {
            left_s = [0.001, 0.0];
        }
        SimulatedRequest { is_own, is_high, came_s, began_s: self.now_s, is_error, left_s }
    }

    fn admit(&mut self) {
        while self.own < self.limit.limit() {
            let came = self.high.pop_front();
            let class = usize::from(came.is_none());
            if let Some(agent) = &mut self.agent {
                let Some(came) = came.or_else(|| agent.low.pop_front()) else { break };
                agent.begins(class, self.now_s - came);
            }
            let request = self.request(true, came.is_some(), came.unwrap_or(self.now_s));
            self.receive(request);
            self.own += 1;
            self.limit.under_way(self.own, self.now_ns());
        }
        while self.active.len() + self.lock.len() < self.application.workers {
            let Some(mut next) = self.backlog.pop_front() else { break };
            next.left_s[0] = next.left_s[0].max(1e-9);
            self.active.push(next);
        }
    }

    /// A request arrives at the application.
    fn receive(&mut self, mut request: SimulatedRequest) {
        let SimulatedApplication { refuses, workers, .. } = self.application;
        if !refuses {
            self.backlog.push_back(request);
            return;
        }
        let at_work = self.active.iter().filter(|one| !one.is_error).count();
        if at_work >= workers {
            (request.is_error, request.left_s) = (true, [0.001, 0.0]);
        }
        self.active.push(request);
    }

    fn now_ns(&self) -> u64 {
        (self.now_s * 1e9) as u64
    }

    /// The speed at which each active request is served.
    fn pace(&self) -> f64 {
        match self.application.shortage {
            Shortage::Processors(count) => (count / self.active.len().max(1) as f64).min(1.0),
            _ => 1.0,
        }
    }

    /// Advances to the next event, and returns a request that has ended then.
    fn step(&mut self) -> Option<SimulatedRequest> {
        self.admit();
        let pace = self.pace();
        let active = self.active.iter().map(|one| one.left_s[0] / pace).fold(f64::MAX, f64::min);
        let locked = self.lock.front().map_or(f64::MAX, |one| one.left_s[1]);
        let others = self
            .agent
            .as_ref()
            .map_or(f64::MAX, |agent| agent.next_low_s.min(agent.next_look_s) - self.now_s);
        let passes = active.min(locked).min(self.next_high_s - self.now_s).min(others).max(0.0);
        self.now_s += passes;
        self.active.iter_mut().for_each(|one| one.left_s[0] -= passes * pace);
        self.lock.iter_mut().take(1).for_each(|one| one.left_s[1] -= passes);
        if let Some(agent) = &mut self.agent {
            if self.now_s >= agent.next_look_s {
                agent.look(&self.high, self.limit.limit(), self.now_s);
                return None;
            }
            if self.now_s >= agent.next_low_s {
                agent.comes(self.now_s);
                agent.next_low_s += self.random.exponential() * agent.low_each_s;
                return None;
            }
        }
        if self.now_s >= self.next_high_s {
            if let Some(agent) = &mut self.agent {
                agent.seen[0].offered += 1;
            }
            self.high.push_back(self.next_high_s);
            self.next_high_s += self.random.exponential() * self.high_each_s;
            return None;
        }
        if self.lock.front().is_some_and(|one| one.left_s[1] <= 1e-12) {
            return self.lock.pop_front();
        }
        let at = self.active.iter().position(|one| one.left_s[0] <= 1e-12)?;
        let one = self.active.remove(at);
        match one.left_s[1] > 0.0 {
            true => {
                self.lock.push_back(one);
                None
            }
            false => Some(one),
        }
    }
}

/// An application with a limit, in virtual time.
#[derive(Debug)]
pub struct Simulation<'a, L> {
    world: SimulatedWorld<'a, L>,
}

impl<'a, L: SimulatedLimit> Simulation<'a, L> {
    /// A simulation in which a request of the high class arrives every `high_each_s` seconds on average.
    pub fn new(
        application: SimulatedApplication,
        limit: &'a mut L,
        high_each_s: f64,
        seed: u64,
    ) -> Simulation<'a, L> {
        let mut world = SimulatedWorld {
            application,
            limit,
            random: SimulatedRandom(seed),
            now_s: 0.0,
            active: Vec::new(),
            lock: VecDeque::new(),
            backlog: VecDeque::new(),
            high: VecDeque::new(),
            next_high_s: high_each_s,
            high_each_s,
            own: 0,
            agent: None,
        };
        for _ in 0..application.others {
            let other = world.request(false, false, 0.0);
            world.backlog.push_back(other);
        }
        Simulation { world }
    }

    /// Lets low requests arrive every `low_each_s` seconds on average from now on; the agent lets in what
    /// fits the targets of the two classes.
    #[must_use]
    pub fn with_agent(mut self, classes: &[AgentClass; 2], low_each_s: f64) -> Simulation<'a, L> {
        self.world.agent = Some(AgentAtQueue::new(classes, low_each_s));
        self
    }

    /// Changes the application; its workers finish the requests they have.
    pub fn becomes(&mut self, application: SimulatedApplication) {
        self.world.application = application;
    }

    /// The limit.
    pub fn limit(&self) -> &L {
        self.world.limit
    }

    /// Continues for at least this time and this number of answers.
    pub fn run(&mut self, seconds: f64, answers: u64) -> SimulatedRun {
        let world = &mut self.world;
        let begun_s = world.now_s;
        let (mut good, mut all, mut area) = (0u64, 0u64, 0.0);
        let mut high: Vec<f64> = Vec::new();
        while world.now_s < begun_s + seconds || all < answers {
            let before = (world.now_s, world.limit.limit());
            let ended = world.step();
            area += f64::from(before.1) * (world.now_s - before.0);
            let Some(ended) = ended else { continue };
            if !ended.is_own {
                let other = world.request(false, false, 0.0);
                world.backlog.push_back(other);
                continue;
            }
            let took_ns = ((world.now_s - ended.began_s) * 1e9) as u64;
            let outcome = if ended.is_error { AnswerQuality::Failed } else { AnswerQuality::Good };
            let now_ns = world.now_ns();
            world.limit.ended(took_ns, outcome, now_ns);
            world.own -= 1;
            if let Some(agent) = &mut world.agent {
                agent.ends(usize::from(!ended.is_high), world.now_s - ended.began_s);
            }
            world.limit.under_way(world.own, now_ns);
            all += 1;
            good += u64::from(!ended.is_error);
            if ended.is_high {
                high.push(world.now_s - ended.came_s);
            }
        }
        high.sort_by(f64::total_cmp);
        let passed = world.now_s - begun_s;
        SimulatedRun {
            goodput: good as f64 / passed,
            high_p99_s: high.get(high.len() * 99 / 100).copied().unwrap_or(0.0),
            limit: area / passed,
            last_limit: world.limit.limit(),
        }
    }
}
