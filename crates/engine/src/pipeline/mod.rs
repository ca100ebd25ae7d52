//! The `pipeline` engine: four phases with a list of tasks and threads each (keta §3), and a
//! controller that moves threads between them (keta §4.2).
//!
//! * **Shape.** A connection is one small descriptor in a slab (keta's managed buffer). What goes
//!   from phase to phase is its token: accept → receive → process → send, and from send back to
//!   receive, past accept, for the next request. The thread that puts a token into a list wakes a
//!   thread of that phase itself; nothing schedules in between. Idle connections are in an epoll
//!   and hold no thread.
//! * **Fusing.** With `fuse = "auto"` ([`Fuse::Auto`], `fused.rs`) a boundary is a call while the next
//!   phase need not wait, and a list when it must: a request that is answered from memory stays
//!   with one thread, its loop and its epoll, and touches nothing that another thread writes.
//!   With `fuse = "never"` ([`Fuse::Never`], `split/`) every boundary is a list: keta to the letter.
//! * **What leaves it.** Jobs that compute go to the [helper threads](crate::helpers), of which there
//!   are as many as cores, as keta hands dynamic requests to a server outside; they come back to
//!   process (ADR 0023).
//! * **What blocks where.** Auto: loops in `epoll_wait`, threads of process and send in jobs.
//!   Never: threads of process and send in jobs, those of send also in poll on a slow receiver and
//!   the bell, unless the connection has more to do than to send; the watcher in `epoll_wait`. A
//!   thread with an empty list sleeps, and one that is too many rests until any phase needs it
//!   (`thread.rs`).
//! * **Queues and their limits.** The kernel's accept queue; the lists, with at most one entry per
//!   connection, request and listener, and some per lane; jobs that wait for their lane
//!   ([`crate::order::lanes`]). With classes the lists of process and send are ordered by rank, and
//!   process has a reserve of threads for each higher one, beyond the controller's number
//!   (`list.rs`).
//! * **Run, retire and drain.** [`Pipeline::run`] returns when [`EngineControl`] has ordered to retire or to
//!   drain and the last connection has ended, or soon after an order to stop.

mod controller;
mod fused;
mod list;
mod lists;
mod meter;
mod pipeline_gauges;
mod queue;
mod resting;
mod split;
mod thread;

pub use pipeline_gauges::PipelineGauges;

use crate::connection::accept::Listener;
use crate::control::{Ended, EngineControl};
use crate::event;
use crate::helpers::Helpers;
use crate::order::ranks::Ranks;
use crate::room::admission::ConnectionAdmission;
use crate::settings::LiveSettings;
use crate::straight::stock::Make;
use controller::{Hold, PipelineController};
use forebay_conn::{Handler, Job};
use forebay_control::allocation::{self, Phase};
use forebay_metrics::{Counter, Local};
use fused::Fused;
use list::WorkerSlot;
use lists::PhaseLists;
use split::Split;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

/// The boundaries between phases that are calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fuse {
    /// A boundary is a call while the next phase need not wait.
    #[default]
    Auto,
    /// A boundary is never a call.
    Never,
}

/// The settings that only a pipeline has.
#[derive(Clone, Debug, PartialEq)]
pub struct PipelineSettings {
    /// The boundaries that are calls.
    pub fuse: Fuse,
    /// The number of threads of each phase stays as it is at the start, whatever the law says.
    pub is_fixed: bool,
    /// How threads are allocated. With [`Fuse::Auto`] the loops are the threads of receive: there are
    /// as many as listener sets, they accept too, and only process and send grow.
    pub allocation: allocation::AllocationSettings,
    /// The largest number of connections at once.
    pub connections: usize,
    /// The time in one task, with [`Fuse::Never`], for which a thread of send stays with a client
    /// that takes nothing, before the watcher waits for the client. Without end it is keta to the
    /// letter.
    pub send_wait_ms: u64,
}

/// Everything a pipeline is made of.
pub struct PipelineParts<H: Handler> {
    /// The listeners of each thread that accepts. With [`Fuse::Auto`] each listener set has a loop,
    /// and a bell of `control`; otherwise one bell is enough.
    pub listener_sets: Vec<Vec<Listener>>,
    /// Makes the handlers.
    pub make: Make<H>,
    /// Makes counters for threads that have no handler.
    pub count: Box<dyn Fn() -> Arc<Local> + Send + Sync>,
    /// Timeouts and bounds.
    pub settings: Arc<LiveSettings>,
    /// The count of connections.
    pub admission: Arc<ConnectionAdmission>,
    /// The threads for jobs that compute.
    pub helpers: Helpers<H::Job>,
    /// The order of service.
    pub ranks: Ranks,
    /// The orders to the engine.
    pub control: Arc<EngineControl>,
    /// The settings that only a pipeline has.
    pub pipeline: PipelineSettings,
    /// The gauges that show the controller's decisions.
    pub pipeline_gauges: Arc<PipelineGauges>,
}

/// A pipeline that is ready to run: it has all descriptors that it needs, and the threads of its
/// phases.
pub struct Pipeline<H: Handler> {
    shape: PipelineShape<H>,
    controller: PipelineController,
    control: Arc<EngineControl>,
    spawn: Spawn,
    phases: Phases<H::Job>,
}

/// The threads of the phases; they end when this is dropped.
struct Phases<J: Job>(Arc<PhaseLists<J>>);

impl<J: Job> Drop for Phases<J> {
    fn drop(&mut self) {
        self.0.close();
        self.0.wait_for_threads();
    }
}

enum PipelineShape<H: Handler> {
    Fused(Fused<H>),
    Split(Box<Split<H>>),
}

/// Begins a thread of a phase for this worker slot; returns whether there is one now.
type Spawn = Box<dyn Fn(Phase, WorkerSlot) -> bool + Send>;

impl<H> Pipeline<H>
where
    H: Handler + Send + 'static,
{
    /// Makes a pipeline. The pipeline serves nothing until [`run`](Pipeline::run).
    ///
    /// # Errors
    /// Lack of descriptors, memory or threads, or settings that contradict themselves.
    pub fn new(parts: PipelineParts<H>) -> io::Result<Pipeline<H>> {
        let PipelineParts {
            listener_sets, make, count, settings, admission, helpers, ranks, ..
        } = parts;
        let PipelineParts { control, pipeline, pipeline_gauges, .. } = parts;
        let counters = Arc::new(Counters { all: Mutex::default(), count });
        let controller =
            PipelineController::new(&pipeline, Arc::clone(&counters), pipeline_gauges)?;
        let of_core = Arc::clone(&control);
        let core =
            PipelineCore { make, settings, admission, helpers, ranks, control: of_core, counters };
        let shape = match pipeline.fuse {
            Fuse::Auto => PipelineShape::Fused(Fused::new(core, listener_sets, &pipeline)?),
            Fuse::Never => {
                let listeners = listener_sets.into_iter().flatten().collect();
                PipelineShape::Split(Box::new(Split::new(core, listeners, &pipeline)?))
            }
        };
        let (lists, spawn) = match &shape {
            PipelineShape::Fused(fused) => (Arc::clone(fused.lists()), fused.spawner()),
            PipelineShape::Split(split) => (Arc::clone(split.lists()), split.spawner()),
        };
        let phases = Phases(lists);
        begin_all(&phases.0, &spawn)?;
        Ok(Pipeline { shape, controller, control, spawn, phases })
    }

    /// Serves until the order to stop, or until all has ended after the order to drain or to
    /// retire.
    ///
    /// # Errors
    /// Lack of threads at the start, or when the kernel refuses to wait for events.
    pub fn run(self) -> io::Result<Ended> {
        let Pipeline { shape, controller, control, spawn, phases } = self;
        let (lists, hold) = (&*phases.0, Hold::default());
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("controller".to_owned());
            let begun = thread.spawn_scoped(scope, || controller.run(lists, spawn, &hold));
            let ended = begun.and_then(|_| match shape {
                PipelineShape::Fused(fused) => fused.run(&control),
                PipelineShape::Split(split) => split.run(),
            });
            hold.release();
            ended
        })
    }
}

/// The bytes of a connection's descriptor, including its state machine and all that it owns without
/// asking for more memory.
pub const fn descriptor_bytes<H: Handler>() -> usize {
    let (fused, split) = (event::descriptor_bytes::<H>(), split::descriptor_bytes::<H>());
    if fused > split { fused } else { split }
}

/// The parts that both shapes need.
struct PipelineCore<H: Handler> {
    make: Make<H>,
    settings: Arc<LiveSettings>,
    admission: Arc<ConnectionAdmission>,
    helpers: Helpers<H::Job>,
    ranks: Ranks,
    control: Arc<EngineControl>,
    counters: Arc<Counters>,
}

/// All counters of a pipeline.
struct Counters {
    all: Mutex<Vec<Arc<Local>>>,
    count: Box<dyn Fn() -> Arc<Local> + Send + Sync>,
}

impl Counters {
    /// Adds the counters of a thread.
    fn add(&self, local: &Arc<Local>) {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(local));
    }

    /// Makes counters for one more thread.
    fn another(&self) -> Arc<Local> {
        let local = (self.count)();
        self.add(&local);
        local
    }

    /// The requests answered and the bytes sent.
    fn work(&self) -> (u64, u64) {
        const ANSWERS: [Counter; 4] =
            [Counter::Status2xx, Counter::Status3xx, Counter::Status4xx, Counter::Status5xx];
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().fold((0, 0), |(requests, bytes), local| {
            let answers: u64 = ANSWERS.iter().map(|counter| local.get(*counter)).sum();
            (requests + answers, bytes + local.get(Counter::SentBytes))
        })
    }
}

/// Begins the threads each phase has at the start.
fn begin_all<J: Job>(lists: &PhaseLists<J>, spawn: &Spawn) -> io::Result<()> {
    for phase in Phase::ALL {
        let list = lists.of(phase);
        let common = (0..list.coming()).map(|_| lists.another_slot());
        for worker_slot in common.chain(list.reserves()) {
            if !spawn(phase, worker_slot) {
                return Err(io::Error::other("no thread is to be had"));
            }
        }
    }
    Ok(())
}

/// Begins a thread that is not joined, because a job may hold it for ever.
fn begin<J: Job>(
    lists: &Arc<PhaseLists<J>>,
    phase: Phase,
    worker_slot: WorkerSlot,
    work: impl FnOnce() + Send + 'static,
) -> bool {
    let thread = std::thread::Builder::new().name(thread::name(phase, worker_slot));
    lists.thread_begins();
    let counted = Arc::clone(lists);
    let work = move || {
        let _ = catch_unwind(AssertUnwindSafe(work));
        counted.thread_ended();
    };
    let has_begun = thread.spawn(work).is_ok();
    if !has_begun {
        lists.thread_ended();
    }
    has_begun
}
