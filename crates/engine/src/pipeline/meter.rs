//! How the threads of a phase spend their time, as the scheduler counts it.

use forebay_sys::schedule::{SchedulerFigures, Spent};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The meters of all threads of a phase.
#[derive(Default)]
pub(super) struct PhaseMeters(Mutex<Vec<Arc<Meter>>>);

/// The scheduler's figures of one thread, and their values when they were last read.
pub(super) struct Meter {
    figures: SchedulerFigures,
    before: Mutex<Spent>,
}

impl PhaseMeters {
    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Meter>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the calling thread to those of this phase.
    pub(super) fn enlist(&self) -> Option<Arc<Meter>> {
        let figures = SchedulerFigures::of_this_thread().ok()?;
        let meter = Arc::new(Meter { figures, before: Mutex::default() });
        self.add(&meter);
        Some(meter)
    }

    /// Removes the meter of a thread that has left for another phase.
    pub(super) fn remove(&self, meter: &Arc<Meter>) {
        self.lock().retain(|other| !Arc::ptr_eq(other, meter));
    }

    /// Adds the meter of a thread from another phase; the time that it spent there is not counted
    /// here.
    pub(super) fn add(&self, meter: &Arc<Meter>) {
        meter.spent();
        self.lock().push(Arc::clone(meter));
    }

    /// How the phase's threads have spent the time since the last call, summed. Returns `None` if
    /// this kernel has no such figures.
    pub(super) fn spent(&self) -> Option<Spent> {
        let meters = self.lock();
        let add = |sum: Spent, meter: &Arc<Meter>| {
            let spent = meter.spent();
            Spent {
                run_ns: sum.run_ns + spent.run_ns,
                runnable_ns: sum.runnable_ns + spent.runnable_ns,
            }
        };
        (!meters.is_empty()).then(|| meters.iter().fold(Spent::default(), add))
    }
}

impl Meter {
    /// How the thread has spent the time since the last call.
    fn spent(&self) -> Spent {
        let mut before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
        let Ok(now) = self.figures.read() else { return Spent::default() };
        let since = Spent {
            run_ns: now.run_ns.saturating_sub(before.run_ns),
            runnable_ns: now.runnable_ns.saturating_sub(before.runnable_ns),
        };
        *before = now;
        since
    }
}
