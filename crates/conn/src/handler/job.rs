//! Work that a handler has done elsewhere, because it would block a loop or compute for long.

use forebay_metrics::{Local, Stopwatch};

/// Work for a helper thread.
pub trait Job: Send + 'static {
    /// The result, which comes back to the handler.
    type Done: Send + 'static;

    /// Does the work; may block. `watch` and `metrics` are the helper thread's own.
    fn run(self, metrics: &Local, watch: &mut dyn Stopwatch) -> Self::Done;

    /// Jobs of the same lane run one after another: work on one file that hangs holds one helper
    /// thread, not all of them.
    fn lane(&self) -> u64;

    /// The resource that the job uses up.
    fn kind(&self) -> JobKind {
        JobKind::Blocks
    }
}

/// The resource that a [`Job`] uses up, which decides how many jobs may run at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobKind {
    /// The job waits for devices: many may run.
    Blocks,
    /// The job computes: more at a time than there are cores only slow each other down.
    Computes,
}

/// The job of a handler without jobs; no value of it exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoJob {}

impl Job for NoJob {
    type Done = NoJob;

    fn run(self, _: &Local, _: &mut dyn Stopwatch) -> NoJob {
        self
    }

    fn lane(&self) -> u64 {
        match *self {}
    }
}
