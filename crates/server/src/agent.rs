//! The thread that asks the agent for limits, and puts them in force.
//!
//! In, every [`PERIOD`]: the counts of the classes' windows, how late loops come, how long
//! connections wait in the kernel's queues for classes (`accept_queues`), and connections and
//! refusals of all loops. Out: limits in the windows, and whether there is overload. The agent
//! itself is pure: [`forebay_control::agent`]. Requests that wait for applications have windows of
//! their own (`upstreams`). A wait for applications that is too long is overload, too, but no
//! reason to refuse connections.
//!
//! What the agent has learned stays through reloads, for classes that keep their names; a server
//! that starts knows nothing. With `agent = "off"` the thread runs only if rules count in overload,
//! and it limits nothing.

mod accept_queues;
mod seen;
#[cfg(test)]
mod tests;
mod upstreams;

use accept_queues::QueueLengths;
pub use accept_queues::QueuedConnections;
use forebay_config::Role;
use forebay_control::agent::history::Record;
use forebay_control::agent::rules::Movable;
use forebay_control::agent::{
    Agent, AgentClass, AgentDecision, Feedback, FeedbackSettings, Limits, Observation,
};
use forebay_engine::control::EngineControl;
use forebay_handler::live::LiveSnapshot;
use forebay_handler::policy::{InForce, Window};
use forebay_metrics::{ClassLimits, Gauge, Totals};
use forebay_policy::Paces;
use forebay_policy::rule::Bounds;
use forebay_sys::clock;
use forebay_sys::stderr::say;
use forebay_upstream::upstreams::Upstreams;
use seen::Sampler;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use upstreams::Queues;

/// How often the agent is asked.
pub const PERIOD: Duration = Duration::from_millis(10);

/// How long a class counts as refused after a stage behind has refused a request of it.
const REFUSED_BEHIND_MS: u64 = 100;

/// What the thread shares with what starts it and what shows its decisions.
#[derive(Default)]
pub struct AgentLoop {
    state: Mutex<AgentState>,
}

#[derive(Default)]
struct AgentState {
    is_running: bool,
    /// Another process has taken over: it moves the limits that this one has moved.
    is_retired: bool,
    agent: Option<Feedback>,
    /// The last decision of `agent`.
    decision: AgentDecision,
    sampler: Sampler,
    queues: Queues,
    /// This process is a stage behind another, which limits connections and the rates of requests.
    is_behind: bool,
    /// The snapshot that `agent` and `sampler` belong to.
    generation: u64,
}

/// What the thread is started with.
#[derive(Clone)]
pub struct AgentParts {
    /// The snapshot that holds the policy in force.
    pub live: Arc<LiveSnapshot>,
    /// Adds up what all loops have counted.
    pub totals: Arc<dyn Fn() -> Totals + Send + Sync>,
    /// The number of cores that the server may use.
    pub cores: u32,
}

/// What the agent does now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AgentReport {
    /// The agent's last decision.
    pub decision: AgentDecision,
    /// Work offered, as a multiple of what the machine can do.
    pub load: f64,
}

impl AgentReport {
    /// The report as gauges for the metrics.
    pub fn gauges(&self) -> [(Gauge, u64); 10] {
        let cause = |cause: &str| u64::from(self.decision.cause.name() == cause);
        [
            (Gauge::OverloadLevel, self.decision.level as u64),
            (Gauge::OverloadDelay, cause("delay")),
            (Gauge::OverloadRefused, cause("refused")),
            (Gauge::OverloadApplications, cause("applications")),
            (Gauge::OverloadLoad, cause("load")),
            (Gauge::OverloadLag, cause("lag")),
            (Gauge::OverloadAcceptQueue, cause("accept_queue")),
            (Gauge::OverloadRefusals, cause("refusals")),
            (Gauge::OverloadConnections, cause("connections")),
            (Gauge::OfferedLoad, (self.load * 100.0).round() as u64),
        ]
    }
}

/// The limits of each class, by name; empty where no agent loop is wanted.
pub fn limits(policy: &InForce) -> Vec<(String, ClassLimits)> {
    if !policy.wants_agent_loop() {
        return Vec::new();
    }
    let limits = policy.policy.classes().iter().zip(&policy.windows).enumerate();
    let of = |(rank, (class, window)): (usize, (&forebay_policy::class::Class, &Arc<Window>))| {
        let rate = policy.state.class_rate(rank as u8, Paces::Connections);
        let limits = ClassLimits {
            unfinished_jobs: u64::from(window.counts().unfinished),
            window_jobs: window.most().map(u64::from),
            connections_per_s: rate.map(|rate| rate.round() as u64),
        };
        (class.name.clone(), limits)
    };
    limits.map(of).collect()
}

impl AgentLoop {
    fn lock(&self) -> MutexGuard<'_, AgentState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks how late the loops of this engine come, from now on and for as long as it lives.
    pub fn watch(&self, control: &Arc<EngineControl>) {
        self.lock().sampler.watch(control);
    }

    /// Asks how many connections wait in accept queues, from now on.
    pub fn watch_queues(&self, lengths: QueueLengths) {
        self.lock().sampler.watch_queues(lengths);
    }

    /// What the agent does now; `None` while the thread does not run.
    pub fn now(&self) -> Option<AgentReport> {
        let state = self.lock();
        let agent = state.agent.as_ref().filter(|_| state.is_running)?;
        Some(AgentReport { decision: state.decision.clone(), load: agent.load() })
    }

    /// The agent's decisions of the last minute, each with what followed, the oldest first.
    pub fn records(&self) -> Vec<Record> {
        let state = self.lock();
        let agent = state.agent.as_ref().filter(|_| state.is_running);
        agent.map_or_else(Vec::new, |agent| agent.history().records().cloned().collect())
    }

    /// The decisions that the agent has taken later than `at_ns`, the oldest first.
    pub fn records_since(&self, at_ns: u64) -> Vec<Record> {
        let state = self.lock();
        let Some(agent) = state.agent.as_ref().filter(|_| state.is_running) else {
            return Vec::new();
        };
        let later = agent.history().records().rev().take_while(|record| record.at_ns > at_ns);
        let mut later: Vec<_> = later.cloned().collect();
        later.reverse();
        later
    }

    /// Starts the thread if the policy in force wants one and none runs. The thread ends by itself
    /// when no policy wants it any more.
    ///
    /// # Errors
    /// Lack of threads.
    pub fn keep_up(self: &Arc<Self>, parts: &AgentParts) -> io::Result<()> {
        let mut state = self.lock();
        if state.is_running || state.is_retired || !parts.live.get().policy.wants_agent_loop() {
            return Ok(());
        }
        let live = Arc::downgrade(&parts.live);
        let (agent_loop, totals, cores) =
            (Arc::clone(self), Arc::clone(&parts.totals), parts.cores);
        // a weak reference: the thread does not keep a server that has ended
        let parts =
            move || Some(AgentParts { live: live.upgrade()?, totals: Arc::clone(&totals), cores });
        std::thread::Builder::new().name("agent".to_owned()).spawn(move || {
            while parts().is_some_and(|parts| agent_loop.tick_and_lift(&parts)) {
                std::thread::sleep(PERIOD);
            }
        })?;
        state.is_running = true;
        Ok(())
    }

    /// Stops the agent of this process for good: another process takes over, and both could move
    /// the same words in the kernel. All limits are lifted, so that requests which this process
    /// serves to the end are not limited.
    pub fn retire(&self, live: &LiveSnapshot) {
        let mut state = self.lock();
        if !std::mem::replace(&mut state.is_retired, true) && state.is_running {
            state.queues.lift();
            lift(&live.get().policy);
        }
    }

    /// Asks the agent once. When that was the last time, or after a panic, the agent's limits are
    /// lifted.
    fn tick_and_lift(&self, parts: &AgentParts) -> bool {
        let _lifted = Lifted(self, &parts.live);
        self.tick(parts)
    }

    /// Asks the agent once. Returns `false` if the policy in force no longer wants that.
    fn tick(&self, parts: &AgentParts) -> bool {
        let mut state = self.lock();
        // before the policy: a newer one is then taken over at the next tick
        let generation = parts.live.generation();
        let snapshot = parts.live.get();
        let policy = Arc::clone(&snapshot.policy);
        if state.is_retired || !policy.wants_agent_loop() {
            // under the lock: a reload that starts a thread now must see it
            state.is_running = false;
            return false;
        }
        let role = snapshot.applications.role();
        state.is_behind = matches!(role, Some(Role::Process | Role::Respond));
        if generation != state.generation || state.agent.is_none() {
            state.generation = generation;
            if let Err(error) = state.take_over(&policy, snapshot.applications.upstreams()) {
                say(format_args!("the agent rests: {error}"));
                state.is_running = false;
                return false;
            }
        }
        state.step(clock::monotonic_ns(), &policy, parts.cores, &*parts.totals);
        true
    }
}

impl AgentState {
    /// Goes on with the classes, rules and upstreams of another policy.
    fn take_over<'u>(
        &mut self,
        policy: &InForce,
        upstreams: impl Iterator<Item = &'u Arc<Upstreams>>,
    ) -> Result<(), Box<dyn std::error::Error>> {
        let class = |class: &forebay_policy::class::Class| AgentClass {
            name: class.name.clone(),
            share: class.share,
            target_ns: u64::from(class.delay_ms.max(1)) * 1_000_000,
        };
        let classes: Vec<_> = policy.policy.classes().iter().map(class).collect();
        self.queues.take_over(classes.clone(), upstreams);
        let (numbers, rules) = movable(policy).into_iter().unzip();
        let settings = FeedbackSettings { rules, ..FeedbackSettings::new(classes) };
        let agent = match &self.agent {
            None => Feedback::new(settings)?,
            Some(before) => before.replace(settings)?,
        };
        self.agent = Some(agent);
        self.sampler.take_over(policy, numbers);
        Ok(())
    }

    /// Gives the agent the latest observation, and puts its decision in force.
    fn step(&mut self, now_ns: u64, policy: &InForce, cores: u32, totals: &dyn Fn() -> Totals) {
        let AgentState { agent, decision, sampler, queues, is_behind, .. } = self;
        let Some(agent) = agent else { return };
        // the stage behind limits what waits there
        let behind = policy.refused_behind(REFUSED_BEHIND_MS);
        let applications = queues.step(now_ns, policy.agent).into_iter().chain(behind).min();
        let observed = sampler.look(now_ns, policy, cores, totals);
        let seen = Observation { applications, ..observed.as_seen(cores) };
        decision.clone_from(agent.tick(&seen));
        put_in_force(policy, decision, !*is_behind, now_ns);
        for (rule, moved) in sampler.movable().zip(&decision.rates) {
            let per_s = if policy.agent { Some(*moved) } else { stated_per_s(policy, rule) };
            if let Some(per_s) = per_s {
                policy.state.set_rate(rule, per_s, now_ns);
            }
        }
    }
}

/// The rules whose rates the agent may move, by their numbers.
fn movable(policy: &InForce) -> Vec<(u32, Movable)> {
    let classes = policy.policy.classes();
    let rules = (0..).zip(policy.policy.rules()).filter_map(|(number, rule)| {
        let Bounds { least, most } = rule.bounds?;
        let rank = classes.iter().position(|class| Some(&class.name) == rule.class.as_ref());
        let movable = Movable {
            rank: rank.unwrap_or(classes.len().saturating_sub(1)) as u8,
            stated_per_s: rule.requests?.rate.per_s(),
            least_per_s: least.per_s(),
            most_per_s: most.per_s(),
            now_per_s: policy.state.rate(number)?,
        };
        Some((number, movable))
    });
    rules.collect()
}

/// The rate that a rule states, per second; `None` if it limits no requests.
fn stated_per_s(policy: &InForce, rule: u32) -> Option<f64> {
    Some(policy.policy.rules().get(rule as usize)?.requests?.rate.per_s())
}

fn put_in_force(policy: &InForce, decision: &AgentDecision, paces: bool, now_ns: u64) {
    policy.set_level(decision.level, decision.cause);
    for (rank, (window, limits)) in policy.windows.iter().zip(&decision.limits).enumerate() {
        let limits = if policy.agent { *limits } else { Limits::default() };
        window.limit(limits.most, limits.retry_after_s);
        for (of, per_s) in
            [(Paces::Connections, limits.connections_per_s), (Paces::Requests, limits.per_s)]
        {
            set_rate(policy, rank as u8, of, per_s.filter(|_| paces), now_ns);
        }
    }
}

/// Sets a rate if it differs from the current one: an unchanged bucket keeps its tokens.
fn set_rate(policy: &InForce, rank: u8, of: Paces, per_s: Option<f64>, now_ns: u64) {
    let is_same = match (policy.state.class_rate(rank, of), per_s) {
        (Some(now), Some(per_s)) => (now - per_s).abs() <= per_s * 1e-3,
        (now, per_s) => now.is_none() && per_s.is_none(),
    };
    if !is_same {
        policy.state.set_class_rate(rank, of, per_s, now_ns);
    }
}

/// Lifts all limits and restores the rates that the rules state, also in words that another process
/// has moved before.
pub fn lift(policy: &InForce) {
    let limits = vec![Limits::default(); policy.windows.len()];
    let nothing = AgentDecision { limits, ..AgentDecision::default() };
    let now_ns = clock::monotonic_ns();
    put_in_force(policy, &nothing, true, now_ns);
    for (rule, Movable { stated_per_s, .. }) in movable(policy) {
        policy.state.set_rate(rule, stated_per_s, now_ns);
    }
    policy.state.forget_moved();
}

/// Lifts all limits when the thread ends, also by a panic: limits that nothing adapts any more must
/// not stay.
struct Lifted<'s>(&'s AgentLoop, &'s LiveSnapshot);

impl Drop for Lifted<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        // when a panic ended the thread, a later reload starts another
        if std::thread::panicking() {
            (state.is_running, state.agent) = (false, None);
        }
        // the words of a retired agent belong to another process
        if !state.is_running && !state.is_retired {
            state.queues.lift();
            lift(&self.1.get().policy);
        }
    }
}
