//! What the controller saw and decided last, for whoever reports it.

use super::list::Figures;
use forebay_control::allocation::{Decision, PHASES, Phase, PhaseLoad, Reason};
use forebay_control::utilisation::Load;
use forebay_metrics::Gauge;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The figures of a pipeline, one set per period.
#[derive(Debug, Default)]
pub struct Board {
    phases: [Row; PHASES],
    requests_per_s: AtomicU64,
    bytes_per_s: AtomicU64,
    utilisation_percent: AtomicU64,
    grown: AtomicU64,
    returned: AtomicU64,
    transferred: AtomicU64,
    held: AtomicU64,
}

#[derive(Debug, Default)]
struct Row {
    threads: AtomicU64,
    waiting: AtomicU64,
    delay_us: AtomicU64,
    busy_percent: AtomicU64,
    blocked_percent: AtomicU64,
    tasks: AtomicU64,
}

/// A row's gauges, in the order of [`Row::values`].
const GAUGES: [[Gauge; 6]; PHASES] = [
    [
        Gauge::AcceptThreads,
        Gauge::AcceptWaiting,
        Gauge::AcceptDelay,
        Gauge::AcceptBusy,
        Gauge::AcceptBlocked,
        Gauge::AcceptTasks,
    ],
    [
        Gauge::ReceiveThreads,
        Gauge::ReceiveWaiting,
        Gauge::ReceiveDelay,
        Gauge::ReceiveBusy,
        Gauge::ReceiveBlocked,
        Gauge::ReceiveTasks,
    ],
    [
        Gauge::ProcessThreads,
        Gauge::ProcessWaiting,
        Gauge::ProcessDelay,
        Gauge::ProcessBusy,
        Gauge::ProcessBlocked,
        Gauge::ProcessTasks,
    ],
    [
        Gauge::SendThreads,
        Gauge::SendWaiting,
        Gauge::SendDelay,
        Gauge::SendBusy,
        Gauge::SendBlocked,
        Gauge::SendTasks,
    ],
];

impl Row {
    fn values(&self) -> [u64; 6] {
        let cells = [
            &self.threads,
            &self.waiting,
            &self.delay_us,
            &self.busy_percent,
            &self.blocked_percent,
            &self.tasks,
        ];
        cells.map(|cell| cell.load(Relaxed))
    }
}

impl Board {
    /// Everything on it, phase by phase within each metric.
    pub fn gauges(&self) -> Vec<(Gauge, u64)> {
        let rows = self.phases.each_ref().map(Row::values);
        let of_phases = (0..6).flat_map(|column| {
            (0..PHASES).map(move |phase| (GAUGES[phase][column], rows[phase][column]))
        });
        let of_all = [
            (Gauge::PipelineRequests, &self.requests_per_s),
            (Gauge::PipelineBytes, &self.bytes_per_s),
            (Gauge::PipelineUtilisation, &self.utilisation_percent),
            (Gauge::PipelineGrown, &self.grown),
            (Gauge::PipelineReturned, &self.returned),
            (Gauge::PipelineTransferred, &self.transferred),
            (Gauge::PipelineHeld, &self.held),
        ];
        let of_all = of_all.map(|(gauge, cell)| (gauge, cell.load(Relaxed)));
        of_phases.chain(of_all).collect()
    }

    /// What was seen of a phase in the last period, and counted since the start.
    pub(super) fn show_phase(&self, phase: Phase, seen: &PhaseLoad, figures: &Figures) {
        let row = &self.phases[phase.index()];
        row.threads.store(figures.threads.into(), Relaxed);
        row.waiting.store(figures.waiting.into(), Relaxed);
        row.delay_us.store(seen.delay_ns / 1000, Relaxed);
        row.busy_percent.store((seen.busy * 100.0) as u64, Relaxed);
        row.blocked_percent.store((seen.blocked * 100.0) as u64, Relaxed);
        row.tasks.store(figures.completions, Relaxed);
    }

    /// The load in the last period.
    pub(super) fn show_load(&self, load: &Load) {
        self.requests_per_s.store(load.requests_per_s as u64, Relaxed);
        self.bytes_per_s.store(load.bytes_per_s as u64, Relaxed);
        self.utilisation_percent.store((load.utilisation * 100.0) as u64, Relaxed);
    }

    /// What was decided.
    pub(super) fn show_decision(&self, decision: &Decision) {
        for (phase, decided) in Phase::ALL.into_iter().zip(&decision.phases) {
            let more = decided.target.saturating_sub(decided.before);
            let fewer = decided.before.saturating_sub(decided.target);
            let (cell, count) = match decided.reason {
                Reason::Grew => (&self.grown, more),
                Reason::Took => (&self.transferred, more),
                Reason::Shrank | Reason::Returned if fewer > 0 => (&self.returned, fewer),
                Reason::Returned => (&self.grown, more),
                Reason::HeldByCores | Reason::HeldByTotal => (&self.held, 1),
                Reason::Steady | Reason::Gave | Reason::Shrank => continue,
            };
            cell.fetch_add(count.into(), Relaxed);
            self.phases[phase.index()].threads.store(decided.target.into(), Relaxed);
        }
    }
}
