//! The delay law: each phase gets as many threads as keep the waiting time of tasks near a target.
//!
//! keta §6 leaves open how the mean response time depends on the thread counts, so that they can be set "to a
//! proper value promptly". This is our answer. For a phase with arrival rate `λ`, mean service time `S = busy
//! · period / completions` (the utilisation law) and `c` threads:
//!
//! - The mean wait in steady state is about `S/c · ρ^(√(2(c+1)) − 1) / (1 − ρ)` with `ρ = λS/c`
//!   (Sakasegawa's approximation for M/M/c). The law takes the least `c` that keeps it at the target.
//! - A list of `T` tasks means that a task that arrives now waits `T` divided by the completion rate
//!   (Little's law), however long the tasks before it have waited. `T·S/period` more threads drain the list
//!   within one period, so the law reacts quickly to a step of the load.
//! - `λ` and `S` are taken twice, as remembered and as in the last period, and the one that asks for more
//!   threads counts. Right after a shift of the load, the remembered values are of other tasks: thousands of
//!   hot requests a moment ago say nothing about the cold ones that wait now.
//! - If tasks still wait longer than the target, the model is wrong for this load, and one thread is added.
//!
//! A phase gives threads back slowly: after it has wanted fewer for half a second, and then down to the most
//! it needed in that time. When all `M` threads are in use, a thread moves between phases if that raises the
//! lowest ratio of threads to need, because a pipeline is as fast as its slowest phase.

use super::{Controller, PHASES, Phase, PhaseLoad, PhaseWish, Reason};

impl Controller {
    pub(super) fn by_delay(&mut self, phase: Phase, load: &PhaseLoad) -> PhaseWish {
        let before = self.targets[phase.index()];
        let most = self.settings.most;
        let memory = &mut self.memories[phase.index()];
        let period_s = memory.period_ns as f64 / 1e9;
        let target_s = f64::from(self.settings.delay_us) / 1e6;
        // right after a shift of the load, the remembered values are of other tasks than those that arrive
        // now
        let demands = [memory.demand(), PhaseDemand::of(load, period_s)];
        let steady = demands.map(|demand| demand.least_threads(target_s, most));
        let service_s = demands[0].service_s.max(demands[1].service_s);
        let drain = f64::from(load.waiting) * service_s / period_s;
        let mut need = f64::from(steady[0].max(steady[1])) + drain;
        if load.waiting > 0 && load.delay_ns as f64 / 1e9 > target_s {
            need = need.max(f64::from(before) + 1.0);
        } else if need > 1.0 {
            need += f64::from(load.kept);
        }
        memory.need = need;
        let computed = match memory.calm(need, before) {
            Some(enough) => enough,
            None => need.max(f64::from(before)),
        };
        PhaseWish { computed, wanted: 0, limit: 0, reason: Reason::Shrank }
    }

    pub(super) fn settle_by_delay(
        &mut self,
        wishes: &[PhaseWish; PHASES],
        reasons: &mut [Reason; PHASES],
    ) {
        for phase in Phase::ALL.into_iter().rev() {
            let before = self.targets[phase.index()];
            let lacking = self.grant(phase, &wishes[phase.index()]);
            if self.settle_return(phase, before, &wishes[phase.index()], reasons) {
                continue;
            }
            if lacking > 0 && self.targets[phase.index()] == before {
                reasons[phase.index()] = Reason::HeldByTotal;
            }
        }
        for _ in 0..self.settings.transfer {
            let Some((giver, taker)) = self.exchange(wishes) else { break };
            self.targets[giver.index()] -= 1;
            self.targets[taker.index()] += 1;
            reasons[giver.index()] = Reason::Gave;
            reasons[taker.index()] = Reason::Took;
        }
    }

    /// The phase that lacks threads most, and the one that can best spare one, if the pipeline gains by the
    /// exchange.
    fn exchange(&self, wishes: &[PhaseWish; PHASES]) -> Option<(Phase, Phase)> {
        let ratio = |phase: &Phase, change: f64| {
            let index = phase.index();
            (f64::from(self.targets[index]) + change) / self.memories[index].need.max(1e-6)
        };
        let lacks = |phase: &Phase| {
            let wish = &wishes[phase.index()];
            wish.reason == Reason::Grew && self.targets[phase.index()] < wish.wanted
        };
        let takers = Phase::ALL.into_iter().filter(lacks);
        let taker = takers.min_by(|one, other| ratio(one, 0.0).total_cmp(&ratio(other, 0.0)))?;
        let givers = Phase::ALL.into_iter();
        let givers = givers.filter(|giver| *giver != taker && self.targets[giver.index()] > 1);
        let giver = givers.max_by(|one, other| ratio(one, -1.0).total_cmp(&ratio(other, -1.0)))?;
        (ratio(&giver, -1.0) > ratio(&taker, 1.0)).then_some((giver, taker))
    }
}

/// The load of a phase.
#[derive(Clone, Copy, Debug)]
struct PhaseDemand {
    /// Tasks arriving per second.
    rate: f64,
    /// The time that a thread needs for a task.
    service_s: f64,
}

impl super::Memory {
    /// The remembered load.
    fn demand(&self) -> PhaseDemand {
        let service_s = self.busy_ns / 1e9 / self.completions.max(1.0);
        PhaseDemand { rate: self.arrivals_per_s, service_s }
    }
}

impl PhaseDemand {
    /// The load in a single period. While no task ends, each is taken to need at least the time spent so far.
    fn of(load: &PhaseLoad, period_s: f64) -> PhaseDemand {
        let service_s = load.busy.max(0.0) * period_s / load.completions.max(1) as f64;
        PhaseDemand { rate: load.arrivals as f64 / period_s, service_s }
    }

    /// The least number of threads with which tasks wait at most `target_s` on average; at most `most`.
    fn least_threads(&self, target_s: f64, most: u32) -> u32 {
        let offered = self.rate * self.service_s;
        let stable = (offered.floor() + 1.0).min(f64::from(most)) as u32;
        let is_enough = |threads: &u32| wait_s(offered, self.service_s, *threads) <= target_s;
        (stable..most).find(is_enough).unwrap_or(most)
    }
}

/// The mean wait with `threads` threads of which `offered` are busy on average.
fn wait_s(offered: f64, service_s: f64, threads: u32) -> f64 {
    let threads = f64::from(threads);
    let share = offered / threads;
    if share >= 1.0 {
        return f64::INFINITY;
    }
    service_s / threads * share.powf((2.0 * (threads + 1.0)).sqrt() - 1.0) / (1.0 - share)
}
