//! What the agent observes: differences between the counts of now and of a period ago.

use super::accept_queues::{AcceptQueues, QueueLengths};
use forebay_control::agent::rules::SeenRule;
use forebay_control::agent::{Observation, Seen};
use forebay_engine::control::EngineControl;
use forebay_handler::policy::window::ClassCounts;
use forebay_handler::policy::{Enforced, InForce};
use forebay_metrics::{ClassTotals, Counter, RefusalReason, RefusedAt, Totals};
use forebay_sys::clock;
use std::sync::{Arc, Weak};

/// How often loops are asked how late they come, and their counters are added up.
const LOOK_NS: u64 = 50_000_000;
/// The time that a refusal takes a loop, about that of a hit of 1 KB; below it, that of a
/// connection with its first request (BENCHMARKING.md).
const REFUSAL_NS: f64 = 5_000.0;
const CONNECTION_NS: f64 = 25_000.0;
/// Below this part of a core's time, late loops are not busy themselves: other work keeps them from
/// the core.
const IDLE: f64 = 0.2;

/// Collects everything that the agent observes.
#[derive(Default)]
pub(super) struct Sampler {
    controls: Vec<Weak<EngineControl>>,
    /// When loops were asked, if some have not answered.
    rung_ms: Option<u64>,
    lag_ms: u64,
    last_look_ns: u64,
    refusing: f64,
    /// The part of one core's time that connections and answers take, approximately.
    arriving: f64,
    /// Connections and answers so far.
    arrived: (u64, u64),
    /// The counts of the windows at the last period, by rank, and how long jobs waited.
    counted: Vec<ClassCounts>,
    waits: Vec<LastWaits>,
    /// The counts of loops at the last look, by rank: connections that came, those that the agent
    /// refused, and all refusals.
    loops: Vec<[u64; 3]>,
    /// The numbers of the rules whose rates may be moved, and their counts at the last period.
    rules: Vec<(u32, SeenRule)>,
    accept_queues: AcceptQueues,
}

/// How long jobs of a class waited, on average.
#[derive(Clone, Copy, Default)]
struct LastWaits {
    /// The wait for a worker, of the jobs that began last.
    worker_ns: u64,
    /// The later wait for a core, of the jobs that ended last.
    core_ns: u64,
}

/// What was seen in a period.
pub(super) struct Observed {
    now_ns: u64,
    classes: Vec<Seen>,
    rules: Vec<SeenRule>,
    lag_ns: u64,
    refusing: f64,
}

impl Observed {
    pub(super) fn as_seen(&self, cores: u32) -> Observation<'_> {
        let Observed { now_ns, lag_ns, refusing, .. } = *self;
        let (classes, rules) = (&self.classes[..], &self.rules[..]);
        let seen =
            Observation { now_ns, cores, threads: cores, classes, rules, ..Observation::default() };
        Observation { lag_ns, refusing, ..seen }
    }
}

impl Sampler {
    pub(super) fn watch(&mut self, control: &Arc<EngineControl>) {
        self.controls.retain(|control| control.strong_count() > 0);
        self.controls.push(Arc::downgrade(control));
    }

    pub(super) fn watch_queues(&mut self, lengths: QueueLengths) {
        self.accept_queues.watch(lengths);
    }

    /// Takes over the classes of this policy, and the numbers of the rules whose rates may be
    /// moved.
    pub(super) fn take_over(&mut self, policy: &InForce, movable: Vec<u32>) {
        self.counted = policy.windows.iter().map(|window| window.counts()).collect();
        self.waits = vec![LastWaits::default(); self.counted.len()];
        self.loops.clear();
        self.accept_queues.forget();
        let counted = |number| (number, count_rule(policy, number));
        self.rules = movable.into_iter().map(counted).collect();
    }

    /// The numbers of the rules whose rates may be moved.
    pub(super) fn movable(&self) -> impl Iterator<Item = u32> {
        self.rules.iter().map(|(number, _)| *number)
    }

    pub(super) fn look(
        &mut self,
        now_ns: u64,
        policy: &InForce,
        cores: u32,
        totals: &dyn Fn() -> Totals,
    ) -> Observed {
        let counts: Vec<_> = policy.windows.iter().map(|window| window.counts()).collect();
        let before = std::mem::replace(&mut self.counted, counts);
        let running = self.counted.iter().fold(0, |sum: u32, now| sum.saturating_add(now.running));
        let counts = self.counted.iter().zip(&before).zip(&mut self.waits);
        let few_cores = running > cores.max(1);
        let classes =
            counts.map(|((now, before), waits)| difference(now, before, waits, few_cores));
        let mut classes: Vec<_> = classes.collect();
        if now_ns.saturating_sub(self.last_look_ns) >= LOOK_NS {
            let elapsed_ns = now_ns.saturating_sub(self.last_look_ns) as f64;
            self.last_look_ns = now_ns;
            let totals = totals();
            let refused = self.count(&mut classes, policy, &totals);
            let of_ns = elapsed_ns * f64::from(cores.max(1));
            self.refusing = (refused as f64 * REFUSAL_NS / of_ns).min(1.0);
            self.arriving = self.arrive(&totals) / elapsed_ns;
            let accepted = totals.get(Counter::Accepted);
            self.accept_queues.look(now_ns, accepted, policy.gate.as_ref());
            self.ring();
        }
        for (seen, queued_ns) in classes.iter_mut().zip(self.accept_queues.waits_ns()) {
            seen.queued_ns = queued_ns;
        }
        self.listen();
        let lag_ns = if self.arriving < IDLE { 0 } else { self.lag_ms * 1_000_000 };
        let rules = self.rules.iter_mut().map(|(number, counted)| {
            let before = std::mem::replace(counted, count_rule(policy, *number));
            SeenRule {
                matched: counted.matched.saturating_sub(before.matched),
                refused: counted.refused.saturating_sub(before.refused),
            }
        });
        Observed { now_ns, classes, rules: rules.collect(), lag_ns, refusing: self.refusing }
    }

    /// Adds to `classes` the connections that have come since the last look. Returns the number of
    /// refusals.
    fn count(&mut self, classes: &mut [Seen], policy: &InForce, totals: &Totals) -> u64 {
        let figures = |class: &ClassTotals| {
            let by_agent = class.refused[RefusedAt::Accept as usize][RefusalReason::Agent as usize];
            let refused =
                class.refused_at(RefusedAt::Accept) + class.refused_at(RefusedAt::Request);
            [class.connections, by_agent, refused]
        };
        let mut now: Vec<_> =
            policy.slots.iter().map(|slot| figures(totals.class(*slot))).collect();
        // connections that the agent's limits have kept out in the kernel count as arrivals, too
        let paced = policy.gate.iter().flat_map(Enforced::paced);
        for (now, (_, dropped)) in now.iter_mut().zip(paced) {
            now[0] += dropped;
            now[1] += dropped;
        }
        let before = std::mem::replace(&mut self.loops, now);
        // nothing is known of the time before the first look
        if before.len() != self.loops.len() {
            return 0;
        }
        let mut refused = 0u64;
        for ((now, before), seen) in self.loops.iter().zip(before).zip(classes) {
            seen.connections = now[0].saturating_sub(before[0]);
            seen.connections_refused = now[1].saturating_sub(before[1]);
            refused += now[2].saturating_sub(before[2]);
        }
        refused
    }

    /// How much of the loops' time connections and answers have taken since the last look,
    /// approximately.
    fn arrive(&mut self, totals: &Totals) -> f64 {
        use Counter::{Accepted, Status1xx, Status2xx, Status3xx, Status4xx, Status5xx};
        let answers = [Status1xx, Status2xx, Status3xx, Status4xx, Status5xx];
        let answers = answers.into_iter().map(|status| totals.get(status)).sum();
        let now = (totals.get(Accepted), answers);
        let before = std::mem::replace(&mut self.arrived, now);
        let (accepted, answers) = (now.0.saturating_sub(before.0), now.1.saturating_sub(before.1));
        accepted as f64 * CONNECTION_NS + answers as f64 * REFUSAL_NS
    }

    /// Asks the loops how late they are, unless some have not answered.
    fn ring(&mut self) {
        if self.rung_ms.is_none() {
            self.rung_ms = Some(clock::coarse_ms());
            self.lag_ms = 0;
            self.controls.iter().filter_map(Weak::upgrade).for_each(|control| control.ring());
        }
    }

    fn listen(&mut self) {
        let Some(rung_ms) = self.rung_ms else { return };
        let now_ms = clock::coarse_ms();
        let mut have_all = true;
        for control in self.controls.iter().filter_map(Weak::upgrade) {
            let (lag_ms, has_turned) = control.lag_ms(rung_ms, now_ms);
            self.lag_ms = self.lag_ms.max(lag_ms);
            have_all &= has_turned;
        }
        if have_all {
            self.rung_ms = None;
        }
    }
}

/// The counts of a rule: its decisions here and its refusals in the kernel. What the kernel lets
/// through is decided here.
fn count_rule(policy: &InForce, rule: u32) -> SeenRule {
    let name = policy.policy.rules().get(rule as usize).map(|rule| rule.name.as_str());
    let in_kernel = policy.gate.as_ref().zip(name).map_or(0, |(gate, name)| gate.refused_by(name));
    SeenRule {
        matched: policy.state.matched(rule) + in_kernel,
        refused: policy.state.refused(rule) + in_kernel,
    }
}

/// What a window has seen since `before`. `waits` is how long the jobs waited that began last, and
/// those that ended last. While some wait and none has begun, or none has ended, the old values
/// stay: nothing newer is known. Once none waits, the delay is over, however long the running jobs
/// may take. `few_cores` says that more jobs run than there are cores, so that running jobs wait
/// for a core, too.
fn difference(
    now: &ClassCounts,
    before: &ClassCounts,
    waits: &mut LastWaits,
    few_cores: bool,
) -> Seen {
    let since = |now: u64, before: u64| now.saturating_sub(before);
    let cpu_ns = since(now.cpu_ns, before.cpu_ns);
    let (began, finished) = (since(now.began, before.began), since(now.finished, before.finished));
    let some_wait = now.unfinished > now.running;
    let cores_are_lacked = some_wait || few_cores && now.running > 0;
    if began > 0 || !some_wait {
        waits.worker_ns = since(now.waited_ns, before.waited_ns).checked_div(began).unwrap_or(0);
    }
    if finished > 0 || !cores_are_lacked {
        let waited_ns = since(now.core_waited_ns, before.core_waited_ns);
        waits.core_ns = waited_ns.checked_div(finished).unwrap_or(0);
    }
    Seen {
        offered: since(now.offered, before.offered),
        refused: since(now.refused, before.refused),
        finished,
        cpu_ns,
        // a job computes: its time without a core was a wait for one
        busy_ns: cpu_ns,
        unfinished: now.unfinished,
        running: now.running,
        delay_ns: waits.worker_ns + waits.core_ns,
        ..Seen::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// The counts of a window, period by period.
    #[derive(Default)]
    struct Periods {
        before: ClassCounts,
        waits: LastWaits,
    }

    impl Periods {
        /// The delay, in milliseconds.
        fn next(&mut self, now: ClassCounts, few_cores: bool) -> u64 {
            let before = std::mem::replace(&mut self.before, now);
            difference(&now, &before, &mut self.waits, few_cores).delay_ns / MS
        }
    }

    #[test]
    fn a_wait_that_is_over_is_no_delay_of_what_runs() {
        let mut periods = Periods::default();
        let mut period = |began, waited_ms: u64, unfinished, running| {
            let waited_ns = waited_ms * MS;
            let now =
                ClassCounts { began, waited_ns, unfinished, running, ..ClassCounts::default() };
            periods.next(now, false)
        };
        assert_eq!(period(1, 0, 2, 1), 0);
        assert_eq!(period(2, 40, 2, 1), 40);
        assert_eq!(period(2, 40, 2, 1), 40, "one waits, and nothing newer is known");
        assert_eq!(period(3, 100, 1, 1), 60, "the last has begun");
        assert_eq!(period(3, 100, 1, 1), 0, "it runs, and none waits");
        assert_eq!(period(3, 100, 2, 1), 0);
        assert_eq!(period(3, 100, 0, 0), 0);
    }

    #[test]
    fn waits_for_a_worker_and_for_a_core_are_means_of_their_own() {
        let mut periods = Periods::default();
        let known = ClassCounts { began: 4, unfinished: 6, running: 4, ..ClassCounts::default() };
        assert_eq!(periods.next(known, false), 0);
        // one begins after 10 ms, and two end that have waited for a core for 8 ms each
        let now = ClassCounts { began: 5, waited_ns: 10 * MS, finished: 2, ..known };
        let now = ClassCounts { core_waited_ns: 16 * MS, unfinished: 4, running: 3, ..now };
        assert_eq!(periods.next(now, false), 10 + 8);
        // two end and none begins
        let now = ClassCounts { finished: 4, core_waited_ns: 40 * MS, unfinished: 2, ..now };
        let now = ClassCounts { running: 1, ..now };
        assert_eq!(periods.next(now, false), 10 + 12);
        assert_eq!(periods.next(now, false), 10 + 12, "one waits: nothing newer is known");
        let now = ClassCounts { unfinished: 1, ..now };
        assert_eq!(periods.next(now, true), 12, "the one at work has to share its core");
        assert_eq!(periods.next(now, false), 0);
        let now = ClassCounts { unfinished: 0, running: 0, ..now };
        assert_eq!(periods.next(now, true), 0, "others have to");
    }
}
