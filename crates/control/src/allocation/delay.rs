//! The delay law: as many threads as keep the time that tasks wait near a target.
//!
//! keta §6 leaves open how the mean response time depends on the thread counts, so that they can be set
//! "to a proper value promptly". This is our answer. For a phase with arrival rate `λ`, mean service
//! time `S = busy · period / completions` (the utilisation law) and `c` threads:
//!
//! - The mean wait in steady state is about `S/c · ρ^(√(2(c+1)) − 1) / (1 − ρ)` with `ρ = λS/c`
//!   (Sakasegawa's approximation for M/M/c). The law takes the least `c` that keeps it at the target.
//! - A list of `T` tasks means that a task which arrives now waits `T` divided by the completion rate
//!   (Little's law), whatever the tasks before it had waited. `T·S/period` more threads
//!   drain the list within one period: that is what makes the law quick after a step.
//! - If tasks still wait longer than the target, the model is wrong for this load: one more thread.
//!
//! A phase gives threads back slowly: after it has wanted fewer for half a second, and then at
//! most `transfer` at once. When all `M` threads are in use, a thread moves between phases if that raises
//! the lowest of the ratios of threads to need: a pipeline is as fast as its slowest phase.

use super::{Controller, PHASES, Phase, PhaseLoad, Reason, Wish};

impl Controller {
    pub(super) fn by_delay(&mut self, phase: Phase, load: &PhaseLoad) -> Wish {
        let index = phase.index();
        let before = self.targets[index];
        let period_s = self.memories[index].period_ns as f64 / 1e9;
        let target_s = f64::from(self.settings.delay_us) / 1e6;
        let service_s = self.memories[index].service_s();
        let rate = self.memories[index].arrivals_per_s.max(load.arrivals as f64 / period_s);
        let steady = least_threads(rate, service_s, target_s, self.settings.most);
        let mut computed = f64::from(steady) + f64::from(load.waiting) * service_s / period_s;
        self.memories[index].need = computed;
        if load.waiting > 0 && load.delay_ns as f64 / 1e9 > target_s {
            computed = computed.max(f64::from(before) + 1.0);
        }
        let is_calm = self.memories[index].calms(computed.ceil() < f64::from(before));
        let give = if is_calm { self.settings.transfer } else { 0 };
        let floor = f64::from(before.saturating_sub(give));
        computed = computed.max(floor);
        Wish { computed, wanted: 0, limit: 0, reason: Reason::Shrank }
    }

    pub(super) fn settle_by_delay(
        &mut self,
        wishes: &[Wish; PHASES],
        reasons: &mut [Reason; PHASES],
    ) {
        for phase in Phase::ALL.into_iter().rev() {
            let before = self.targets[phase.index()];
            let lacking = self.grant(phase, &wishes[phase.index()]);
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

    /// The phase that lacks threads most, and the one that can best spare one, if the pipeline
    /// gains by it.
    fn exchange(&self, wishes: &[Wish; PHASES]) -> Option<(Phase, Phase)> {
        let ratio = |phase: &Phase, change: f64| {
            let index = phase.index();
            (f64::from(self.targets[index]) + change) / self.memories[index].need.max(1e-6)
        };
        let lacks = |phase: &Phase| self.targets[phase.index()] < wishes[phase.index()].wanted;
        let takers = Phase::ALL.into_iter().filter(lacks);
        let taker = takers.min_by(|one, other| ratio(one, 0.0).total_cmp(&ratio(other, 0.0)))?;
        let givers = Phase::ALL.into_iter();
        let givers = givers.filter(|giver| *giver != taker && self.targets[giver.index()] > 1);
        let giver = givers.max_by(|one, other| ratio(one, -1.0).total_cmp(&ratio(other, -1.0)))?;
        (ratio(&giver, -1.0) > ratio(&taker, 1.0)).then_some((giver, taker))
    }
}

impl super::Memory {
    /// The mean service time. While nothing ends, it is at least what has been spent.
    fn service_s(&self) -> f64 {
        self.busy_ns / 1e9 / self.completions.max(1.0)
    }
}

/// The least number of threads with which tasks that arrive at `rate` per second and take
/// `service_s` each wait at most `target_s` on average; at most `most`.
fn least_threads(rate: f64, service_s: f64, target_s: f64, most: u32) -> u32 {
    let offered = rate * service_s;
    let stable = (offered.floor() + 1.0).min(f64::from(most)) as u32;
    (stable..most).find(|threads| wait_s(offered, service_s, *threads) <= target_s).unwrap_or(most)
}

/// The mean wait with `threads` when `offered` of them are busy on average.
fn wait_s(offered: f64, service_s: f64, threads: u32) -> f64 {
    let threads = f64::from(threads);
    let share = offered / threads;
    if share >= 1.0 {
        return f64::INFINITY;
    }
    service_s / threads * share.powf((2.0 * (threads + 1.0)).sqrt() - 1.0) / (1.0 - share)
}
