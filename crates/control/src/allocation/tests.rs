//! Properties of both laws, whatever the measurements.

use super::*;
use proptest::prelude::*;

/// A period of 100 ms in which every thread had a task and was blocked, and no task waited.
pub(super) fn sample(threads: [u32; PHASES]) -> Sample {
    let mut sample = Sample::of(100_000_000, threads);
    for phase in &mut sample.phases {
        (phase.busy, phase.blocked) = (f64::from(phase.threads), 1.0);
    }
    sample
}

fn any_load() -> impl Strategy<Value = PhaseLoad> {
    let counts = (0u32..300, 0.0..40.0, 0.0..=1.0, 0u64..5_000, 0u64..5_000, 0u64..1_000_000_000);
    (counts, 0u32..2).prop_map(|(counts, kept)| {
        let (waiting, busy, blocked, arrivals, completions, delay_ns) = counts;
        PhaseLoad {
            waiting: waiting.saturating_sub(100),
            threads: 0,
            busy,
            blocked,
            arrivals,
            completions,
            delay_ns,
            kept,
        }
    })
}

fn any_sample() -> impl Strategy<Value = Sample> {
    let phases = [any_load(), any_load(), any_load(), any_load()];
    (phases, 0.0..200_000.0, 0.0..1e10).prop_map(|(phases, requests_per_s, bytes_per_s)| Sample {
        period_ns: 100_000_000,
        requests_per_s,
        bytes_per_s,
        phases,
    })
}

proptest! {
    #[test]
    fn limits_hold(
        law in prop_oneof![Just(Law::Queue), Just(Law::Delay)],
        initial in [1u32..4, 1..4, 1..4, 1..4],
        extra in 0u32..40,
        transfer in 1u32..5,
        samples in prop::collection::vec(any_sample(), 1..40),
    ) {
        let most = initial.iter().sum::<u32>() + extra;
        let settings = AllocationSettings { law, initial, most, transfer, ..AllocationSettings::for_cores(2) };
        let mut controller = Controller::new(settings).unwrap();
        for sample in samples {
            let decision = controller.step(&sample);
            prop_assert_eq!(decision.targets, controller.targets());
            prop_assert!(decision.targets.iter().sum::<u32>() <= most);
            for (one, initial) in decision.phases.iter().zip(initial) {
                prop_assert!(one.target >= 1);
                if one.load.waiting == 0 {
                    prop_assert!(one.target <= one.before.max(initial), "grew for nothing");
                }
                if one.target > one.before.max(initial) {
                    let tasks = one.load.busy.ceil() as u32 + one.load.waiting + one.load.kept;
                    prop_assert!(one.target <= tasks && one.target <= one.limit);
                }
                let changed = one.target != one.before;
                let says = !matches!(
                    one.reason,
                    Reason::Steady | Reason::HeldByCores | Reason::HeldByTotal
                );
                prop_assert!(!changed || says, "{:?}", one);
            }
        }
    }
}

#[test]
fn waiting_for_a_core_is_not_being_blocked() {
    assert_eq!(blocked_share(0, 0, 0), 0.0);
    assert_eq!(blocked_share(100, 20, 40), 0.4);
    assert_eq!(blocked_share(100, 80, 40), 0.0);
}

#[test]
fn a_phase_that_only_computes_ends_at_the_cores() {
    for law in [Law::Queue, Law::Delay] {
        let settings = AllocationSettings { law, ..AllocationSettings::for_cores(2) };
        let mut controller = Controller::new(settings).unwrap();
        for _ in 0..20 {
            let mut sample = sample(controller.targets());
            let process = &mut sample.phases[Phase::Process.index()];
            (process.waiting, process.blocked) = (500, 0.0);
            (process.arrivals, process.completions, process.delay_ns) = (200, 100, 1_000_000_000);
            let decision = controller.step(&sample);
            assert!(decision.targets[2] <= 2);
        }
        assert_eq!(controller.targets(), [1, 1, 2, 1], "{law:?}");
    }
}

/// With only as many threads in all as the phases have at first, a phase that gave some cannot get them back
/// from free ones.
#[test]
fn between_empty_lists_nothing_moves() {
    for law in [Law::Queue, Law::Delay] {
        let initial = [2, 2, 2, 2];
        let settings =
            AllocationSettings { law, initial, most: 8, ..AllocationSettings::for_cores(2) };
        let mut controller = Controller::new(settings).unwrap();
        for _ in 0..10 {
            let mut sample = sample(controller.targets());
            let send = &mut sample.phases[Phase::Send.index()];
            (send.waiting, send.arrivals, send.completions) = (400, 200, 20);
            send.delay_ns = 1_000_000_000;
            for phase in [Phase::Accept, Phase::Receive, Phase::Process] {
                sample.phases[phase.index()].busy = 0.1;
            }
            controller.step(&sample);
        }
        assert!(controller.targets()[Phase::Send.index()] > 2, "{:?}", controller.targets());
        let mut moved = 0;
        for _ in 0..1000 {
            let decision = controller.step(&Sample::of(20_000_000, controller.targets()));
            let took = |phase: &&PhaseDecision| phase.reason == Reason::Took;
            moved += decision.phases.iter().filter(took).count();
        }
        assert_eq!(moved, 0, "{law:?}");
        assert_eq!(controller.targets(), initial, "{law:?}: what became free went back");
    }
}
