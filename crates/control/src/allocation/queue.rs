//! keta's law: threads by the length of the lists.
//!
//! `P_k(i+1) = ⌈P_k(i) + a_k·T_k(i+1) + b_k·(W(i+1) − W(i))⌉` for phase `k` at step `i+1`, computed in the
//! order send, process, receive, accept (keta §4.2; its formulas 3 to 6 are missing in the text we have, and
//! this is our reconstruction from the sentences around them). `P` is the number of threads, `T` the length
//! of the list, `W` the request rate.
//!
//! When all `M` threads are in use, up to `transfer` of them move to phase `k` from phases before it. keta
//! does not say which phase gives: here, one with idle threads if there is one, otherwise one whose list is
//! shorter per thread. Beyond keta, a *later* phase gives its idle threads too. Otherwise threads that once
//! went to send would stay there, however the load shifts, until it falls.

use super::{Controller, PHASES, Phase, PhaseLoad, PhaseWish, Reason, Sample};
use crate::utilisation::MeasuredLoad;

impl Controller {
    pub(super) fn by_queue(
        &mut self,
        phase: Phase,
        seen: &PhaseLoad,
        load: &MeasuredLoad,
    ) -> PhaseWish {
        let index = phase.index();
        let (before, initial) = (self.targets[index], self.settings.initial[index]);
        let waiting = f64::from(seen.waiting);
        let mut computed = f64::from(before)
            + self.settings.per_waiting[index] * waiting
            + self.settings.per_rate[index] * load.change_per_s;
        let mut reason = Reason::Shrank;
        // At low load: back to the initial count, but not below the number of threads that have tasks plus
        // twice the standard deviation that random arrivals bring.
        let memory = &mut self.memories[index];
        let occupied = memory.busy + 2.0 * memory.busy.sqrt() + f64::from(seen.kept);
        let is_low = seen.waiting == 0 && !load.is_busy;
        let need = if is_low { occupied } else { f64::from(before) };
        if let Some(enough) = memory.calm(need, before) {
            computed = f64::from(initial).max(enough);
            reason = Reason::Returned;
        }
        PhaseWish { computed, wanted: 0, limit: 0, reason }
    }

    pub(super) fn settle_by_queue(
        &mut self,
        sample: &Sample,
        wishes: &[PhaseWish; PHASES],
        reasons: &mut [Reason; PHASES],
    ) {
        for phase in Phase::ALL.into_iter().rev() {
            if reasons[phase.index()] == Reason::Gave {
                continue; // A later phase needed its threads more.
            }
            let before = self.targets[phase.index()];
            let lacking = self.grant(phase, &wishes[phase.index()]);
            if self.settle_return(phase, before, &wishes[phase.index()], reasons) {
                continue;
            }
            let moves = lacking.min(self.settings.transfer);
            let moved = (0..moves).take_while(|_| self.transfer(phase, sample, reasons)).count();
            if moved > 0 {
                reasons[phase.index()] = Reason::Took;
            } else if lacking > 0 && self.targets[phase.index()] == before {
                reasons[phase.index()] = Reason::HeldByTotal;
            }
        }
    }

    /// Moves one thread to `phase` from the phase that can spare it best, if any can.
    fn transfer(&mut self, phase: Phase, sample: &Sample, reasons: &mut [Reason; PHASES]) -> bool {
        let needy = per_thread(&sample.phases[phase.index()], self.targets[phase.index()]);
        let is_giver = |giver: &Phase| {
            let (load, target) = (&sample.phases[giver.index()], self.targets[giver.index()]);
            let has_idle = load.waiting == 0 && f64::from(target) - load.busy >= 1.0;
            *giver != phase
                && target > 1
                && (has_idle || *giver < phase && per_thread(load, target - 1) < needy)
        };
        let burden = |giver: &Phase| {
            let (load, target) = (&sample.phases[giver.index()], self.targets[giver.index()]);
            (load.busy + f64::from(load.waiting)) / f64::from(target)
        };
        let givers = Phase::ALL.into_iter().filter(is_giver);
        let least = givers.min_by(|one, other| {
            // earlier phases first, as in keta; among them the one with the least to do
            (*one > phase).cmp(&(*other > phase)).then(burden(one).total_cmp(&burden(other)))
        });
        let Some(giver) = least else { return false };
        self.targets[giver.index()] -= 1;
        self.targets[phase.index()] += 1;
        reasons[giver.index()] = Reason::Gave;
        true
    }
}

fn per_thread(load: &PhaseLoad, threads: u32) -> f64 {
    f64::from(load.waiting) / f64::from(threads.max(1))
}

#[cfg(test)]
mod tests {
    use super::super::{AllocationSettings, tests::sample};
    use super::*;

    fn settings() -> AllocationSettings {
        AllocationSettings {
            most: 12,
            per_waiting: [0.1; 4],
            per_rate: [0.01; 4],
            ..AllocationSettings::for_cores(2)
        }
    }

    #[test]
    fn threads_follow_the_formula() {
        let mut controller = Controller::new(settings()).unwrap();
        let mut sample = sample([1; 4]);
        sample.requests_per_s = 120.0;
        sample.phases[3].waiting = 15;
        let decision = controller.step(&sample);
        // 1 + 0.1·15 + 0.01·120 = 3.7, and no tasks wait in other phases
        assert!((decision.phases[3].computed - 3.7).abs() < 1e-9);
        assert_eq!(decision.targets, [1, 1, 1, 4]);
        assert_eq!(decision.phases[3].reason, Reason::Grew);
    }

    #[test]
    fn send_is_served_before_the_phases_before_it() {
        let settings = AllocationSettings { most: 7, ..settings() };
        let mut controller = Controller::new(settings).unwrap();
        let mut sample = sample([1; 4]);
        sample.phases[3].waiting = 20;
        sample.phases[2].waiting = 20;
        let decision = controller.step(&sample);
        assert_eq!(decision.targets, [1, 1, 2, 3]);
        assert_eq!(decision.phases[2].reason, Reason::Grew);
    }

    #[test]
    fn when_all_are_in_use_earlier_phases_give() {
        let settings = AllocationSettings { initial: [2, 2, 6, 2], ..settings() };
        let mut controller = Controller::new(settings).unwrap();
        let mut sample = sample([2, 2, 6, 2]);
        sample.phases[3].waiting = 40;
        let decision = controller.step(&sample);
        // two at once; no tasks wait elsewhere, and the first phase has as little to do as any
        assert_eq!(decision.targets.iter().sum::<u32>(), 12);
        assert_eq!(decision.targets[3], 4);
        assert_eq!(decision.phases[3].reason, Reason::Took);
        assert!(decision.phases.iter().any(|phase| phase.reason == Reason::Gave));
    }

    #[test]
    fn a_phase_with_a_longer_list_gives_nothing() {
        let settings = AllocationSettings { initial: [1, 1, 8, 2], ..settings() };
        let mut controller = Controller::new(settings).unwrap();
        let mut sample = sample([1, 1, 8, 2]);
        sample.phases[3].waiting = 4;
        sample.phases[2].waiting = 400;
        let decision = controller.step(&sample);
        assert_eq!(decision.targets, [1, 1, 8, 2]);
        assert_eq!(decision.phases[3].reason, Reason::HeldByTotal);
    }
}
