//! What the controller last saw and decided, for the metrics.

use super::list::ListFigures;
use forebay_control::allocation::{AllocationDecision, PHASES, Phase, PhaseLoad, Reason};
use forebay_control::utilisation::MeasuredLoad;
use forebay_metrics::Gauge;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The figures of a pipeline, all of the same period.
#[derive(Debug, Default)]
pub struct PipelineGauges(Mutex<GaugeValues>);

#[derive(Debug, Default)]
struct GaugeValues {
    phases: [PhaseGauges; PHASES],
    load: MeasuredLoad,
    grown: u64,
    returned: u64,
    transferred: u64,
    held: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct PhaseGauges {
    threads: u32,
    seen: PhaseLoad,
    arrivals: u64,
    completions: u64,
    times: PhaseSpent,
    computed: f64,
    limit: u32,
    /// How often each reason was given, in the order of [`Reason::ALL`].
    reasons: [u64; Reason::ALL.len()],
}

/// How the tasks and threads of a phase have spent their time since the start.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PhaseSpent {
    /// The time that tasks had waited in the list.
    pub(super) queued_ns: u64,
    /// The time for which threads had a task.
    pub(super) busy_ns: u64,
    /// The time for which threads ran on a core.
    pub(super) run_ns: u64,
}

/// The gauges of the first phase, in the order of [`PhaseGauges::values`]. In the schema, each of
/// them is followed by those of the other phases.
const COLUMNS: [Gauge; 12] = [
    Gauge::AcceptThreads,
    Gauge::AcceptWaiting,
    Gauge::AcceptDelay,
    Gauge::AcceptBusy,
    Gauge::AcceptBlocked,
    Gauge::AcceptArrivals,
    Gauge::AcceptTasks,
    Gauge::AcceptQueued,
    Gauge::AcceptWorked,
    Gauge::AcceptRan,
    Gauge::AcceptComputed,
    Gauge::AcceptLimit,
];

/// The gauge that is `places` after this one in the schema.
fn after(gauge: Gauge, places: usize) -> Gauge {
    Gauge::ALL[gauge as usize + places]
}

impl PhaseGauges {
    fn values(&self) -> [u64; COLUMNS.len()] {
        let percent = |part: f64| (part * 100.0) as u64;
        [
            self.threads.into(),
            self.seen.waiting.into(),
            self.seen.delay_ns / 1000,
            percent(self.seen.busy),
            percent(self.seen.blocked),
            self.arrivals,
            self.completions,
            self.times.queued_ns / 1000,
            self.times.busy_ns / 1000,
            self.times.run_ns / 1000,
            percent(self.computed),
            self.limit.into(),
        ]
    }
}

impl PipelineGauges {
    fn lock(&self) -> MutexGuard<'_, GaugeValues> {
        // no panic can leave the values half changed
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The values of all gauges, phase by phase within each metric.
    pub fn gauges(&self) -> Vec<(Gauge, u64)> {
        let shown = self.lock();
        let rows = shown.phases.map(|row| row.values());
        let of_phases = COLUMNS.iter().enumerate().flat_map(|(column, first)| {
            (0..PHASES).map(move |phase| (after(*first, phase), rows[phase][column]))
        });
        let reasons = shown.phases.iter().flat_map(|row| row.reasons).enumerate();
        let reasons = reasons.map(|(place, count)| (after(Gauge::AcceptSteady, place), count));
        let of_all = [
            (Gauge::PipelineRequests, shown.load.requests_per_s as u64),
            (Gauge::PipelineBytes, shown.load.bytes_per_s as u64),
            (Gauge::PipelineUtilisation, (shown.load.utilisation * 100.0) as u64),
            (Gauge::PipelineGrown, shown.grown),
            (Gauge::PipelineReturned, shown.returned),
            (Gauge::PipelineTransferred, shown.transferred),
            (Gauge::PipelineHeld, shown.held),
        ];
        of_phases.chain(reasons).chain(of_all).collect()
    }

    /// Shows what was seen in the last period and counted since the start, and the decisions, if
    /// there are any: for phases from `first` on.
    pub(super) fn show(
        &self,
        seen: &[PhaseLoad; PHASES],
        counted: &[ListFigures; PHASES],
        times: &[PhaseSpent; PHASES],
        load: &MeasuredLoad,
        decision: Option<(Phase, &AllocationDecision)>,
    ) {
        let mut shown = self.lock();
        let figures = seen.iter().zip(counted).zip(times);
        for (row, ((seen, counted), times)) in shown.phases.iter_mut().zip(figures) {
            (row.seen, row.times) = (*seen, *times);
            row.threads = counted.threads;
            (row.arrivals, row.completions) = (counted.arrivals, counted.completions);
        }
        shown.load = *load;
        if let Some((first, decision)) = decision {
            shown.decided(first, decision);
        }
    }
}

impl GaugeValues {
    fn decided(&mut self, first: Phase, decision: &AllocationDecision) {
        let phases = self.phases.iter_mut().zip(&decision.phases);
        for (row, decided) in phases.skip(first.index()) {
            row.threads = decided.target;
            row.computed = decided.computed;
            row.limit = decided.limit;
            row.reasons[decided.reason as usize] += 1;
            let more = u64::from(decided.target.saturating_sub(decided.before));
            let fewer = u64::from(decided.before.saturating_sub(decided.target));
            match decided.reason {
                Reason::Grew => self.grown += more,
                Reason::Took => self.transferred += more,
                Reason::Shrank | Reason::Returned => {
                    self.returned += fewer;
                    self.grown += more;
                }
                Reason::HeldByCores | Reason::HeldByTotal => self.held += 1,
                Reason::Steady | Reason::Gave => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_control::allocation::{AllocationSettings, Controller, Sample};

    #[test]
    fn every_gauge_is_that_of_its_phase_and_reason() {
        for first in COLUMNS {
            for phase in Phase::ALL {
                let gauge = after(first, phase.index());
                assert_eq!(gauge.metric(), first.metric());
                assert_eq!(gauge.labels(), format!("phase=\"{}\"", phase.name()));
            }
        }
        let places = Phase::ALL.into_iter().flat_map(|phase| Reason::ALL.map(|one| (phase, one)));
        for (place, (phase, reason)) in places.enumerate() {
            let gauge = after(Gauge::AcceptSteady, place);
            let labels = format!("phase=\"{}\",reason=\"{}\"", phase.name(), reason.name());
            assert_eq!(
                (gauge.metric(), gauge.labels()),
                ("forebay_pipeline_decisions_total", labels.as_str())
            );
            assert_eq!(Reason::ALL[reason as usize], reason);
        }
    }

    #[test]
    fn a_decision_is_shown_with_what_it_was_made_from() {
        let mut controller = Controller::new(AllocationSettings::for_cores(2)).unwrap();
        let mut sample = Sample::of(100_000_000, [1; PHASES]);
        let send = &mut sample.phases[Phase::Send.index()];
        (send.waiting, send.busy, send.blocked, send.delay_ns) = (30, 1.0, 0.75, 5_000_000);
        let decision = controller.step(&sample);
        let pipeline_gauges = PipelineGauges::default();
        let counted =
            [ListFigures { threads: 1, arrivals: 31, completions: 1, ..ListFigures::default() }; 4];
        pipeline_gauges.show(
            &sample.phases,
            &counted,
            &[PhaseSpent { queued_ns: 7_000, busy_ns: 8_000, run_ns: 9_999 }; PHASES],
            &decision.load,
            Some((Phase::Process, &decision)),
        );
        let gauges = pipeline_gauges.gauges();
        let value = |wanted| gauges.iter().find(|(gauge, _)| *gauge == wanted).unwrap().1;
        let target = u64::from(decision.targets[Phase::Send.index()]);
        assert!(target > 1);
        assert_eq!(value(Gauge::SendThreads), target);
        assert_eq!(value(Gauge::PipelineGrown), target - 1);
        assert_eq!((value(Gauge::SendWaiting), value(Gauge::SendDelay)), (30, 5_000));
        assert_eq!((value(Gauge::SendBusy), value(Gauge::SendBlocked)), (100, 75));
        assert_eq!((value(Gauge::SendArrivals), value(Gauge::SendTasks)), (31, 1));
        assert_eq!((value(Gauge::SendQueued), value(Gauge::SendWorked)), (7, 8));
        assert_eq!(value(Gauge::SendRan), 9);
        assert_eq!((value(Gauge::SendComputed), value(Gauge::SendLimit)), (3100, 20));
        assert_eq!((value(Gauge::SendGrew), value(Gauge::ProcessSteady)), (1, 1));
        // loops have accept and receive, and nothing is decided about them
        assert_eq!((value(Gauge::ReceiveSteady), value(Gauge::ReceiveThreads)), (0, 1));
    }
}
