//! All counters of the process, and the gauges of its pipelines. They are kept for the metrics
//! longer than the threads that write to them.

use forebay_engine::pipeline::PipelineGauges;
use forebay_metrics::{ClassNames, ClassSlot, ClassTotals, Gauge, Local, Totals};
use forebay_policy::Policy;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// All counters of the process: those of its loops and threads, and those of its helpers. They
/// outlive the threads that wrote to them, so that sums never fall; a later worker continues the
/// counters of one that has ended.
#[derive(Default)]
pub struct Register(Mutex<EngineCounters>);

#[derive(Default)]
struct EngineCounters {
    of_workers: Vec<Arc<Local>>,
    of_helpers: Vec<Arc<[Local]>>,
    classes: ClassNames,
}

impl Register {
    fn lock(&self) -> MutexGuard<'_, EngineCounters> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counters for a worker: those that no worker holds any more, or new ones.
    pub(crate) fn worker(&self) -> Arc<Local> {
        let mut counters = self.lock();
        // the count of 1 is reliable: a thread that takes another reference needs this lock
        let free = counters.of_workers.iter().find(|local| Arc::strong_count(local) == 1);
        if let Some(free) = free {
            return Arc::clone(free);
        }
        let local = Arc::new(Local::default());
        counters.of_workers.push(Arc::clone(&local));
        local
    }

    /// Counters for `threads` helper threads.
    pub fn helpers(&self, threads: usize) -> Arc<[Local]> {
        let locals: Arc<[Local]> = (0..threads).map(|_| Local::default()).collect();
        self.lock().of_helpers.push(Arc::clone(&locals));
        locals
    }

    /// The ledger of each class of a policy, by rank.
    pub fn ledgers(&self, policy: &Policy) -> Arc<[ClassSlot]> {
        let counted = self.totals();
        let names: Vec<&str> = policy.classes().iter().map(|class| class.name.as_str()).collect();
        self.lock().classes.assign(&names, &counted).into()
    }

    /// The counts of each class in `totals`, by name.
    pub fn classes(&self, totals: &Totals) -> Vec<(String, ClassTotals)> {
        self.lock().classes.rows(totals)
    }

    /// The sums of all counters.
    pub fn totals(&self) -> Totals {
        let counters = self.lock();
        let helpers = counters.of_helpers.iter().flat_map(|locals| locals.iter());
        Totals::of(counters.of_workers.iter().map(Arc::as_ref).chain(helpers))
    }
}

/// The gauges of all pipelines. They outlive the pipelines, as counters outlive threads.
#[derive(Default)]
pub struct PipelineGaugesPool(Mutex<Vec<Arc<PipelineGauges>>>);

impl PipelineGaugesPool {
    fn lock(&self) -> MutexGuard<'_, Vec<Arc<PipelineGauges>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the gauges for a pipeline: some that no pipeline writes to any more, or new ones. They
    /// become the first.
    pub(crate) fn take(&self) -> Arc<PipelineGauges> {
        let mut pipeline_gauges_pool = self.lock();
        let free = pipeline_gauges_pool
            .iter()
            .position(|pipeline_gauges| Arc::strong_count(pipeline_gauges) == 1);
        let pipeline_gauges = free.map_or_else(Arc::default, |at| pipeline_gauges_pool.remove(at));
        pipeline_gauges_pool.insert(0, Arc::clone(&pipeline_gauges));
        pipeline_gauges
    }

    /// The gauges of the pipeline that was started last; empty if there never was one.
    pub fn gauges(&self) -> Vec<(Gauge, u64)> {
        self.lock().first().map_or_else(Vec::new, |pipeline_gauges| pipeline_gauges.gauges())
    }
}
