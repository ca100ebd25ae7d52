//! A thread of the pipeline, and the phase it is in: it changes its phase like a switch, and is not
//! parked in one and begun in the other (keta §4.2).

use super::list::{Duty, TaskRun, WorkerSlot};
use super::lists::{PhaseLists, Task};
use super::meter::Meter;
use forebay_conn::Job;
use forebay_control::allocation::Phase;
use forebay_sys::process;
use std::sync::Arc;

/// A thread that takes tasks.
pub(super) struct PhaseThread<'l, J: Job> {
    lists: &'l PhaseLists<J>,
    phase: Phase,
    worker_slot: WorkerSlot,
    meter: Option<Arc<Meter>>,
}

impl<'l, J: Job> PhaseThread<'l, J> {
    /// The calling thread, for which `phase` has waited unless it is one of a reserve.
    pub(super) fn new(
        lists: &'l PhaseLists<J>,
        phase: Phase,
        worker_slot: WorkerSlot,
    ) -> PhaseThread<'l, J> {
        let list = lists.of(phase);
        if matches!(worker_slot, WorkerSlot::Common(_)) {
            list.join();
        }
        let niceness = lists.ranks.niceness_of(list.level(worker_slot).into());
        if phase == Phase::Process && niceness > 0 {
            // all threads stay equal if the kernel does not allow a lower priority
            let _ = process::give_way(niceness);
        }
        PhaseThread { lists, phase, worker_slot, meter: list.enlist() }
    }

    /// The phase whose tasks the thread takes now.
    pub(super) fn phase(&self) -> Phase {
        self.phase
    }

    /// Waits for the next task, of whatever phase. Returns it and the thread's time with it, or
    /// `None` when the pipeline ends. `ended` is the thread's time with the task before. Before a
    /// long sleep, `rest` is called.
    pub(super) fn next(
        &mut self,
        mut ended: Option<TaskRun>,
        mut rest: impl FnMut(),
    ) -> Option<(Task<J>, TaskRun)> {
        loop {
            let list = self.lists.of(self.phase);
            match list.next(self.worker_slot, ended.take(), &mut rest) {
                Duty::Task(task, task_run) => return Some((task, task_run)),
                Duty::Switch(phase) => self.go_to(phase),
                Duty::Rest => {
                    rest();
                    let place = self.lists.resting.of(self.phase, &self.lists.ranks);
                    self.go_to(place.rest()?);
                }
                Duty::End => return None,
            }
        }
    }

    fn go_to(&mut self, phase: Phase) {
        let (from, to) = (self.lists.of(self.phase), self.lists.of(phase));
        if self.phase != phase {
            if let Some(meter) = &self.meter {
                to.take_over(meter, from);
            }
            // the old name stays if the kernel refuses the new one
            let _ = process::name_thread(&name(phase, self.worker_slot));
            self.phase = phase;
        }
        to.join();
    }
}

/// The name of a thread.
pub(super) fn name(phase: Phase, worker_slot: WorkerSlot) -> String {
    match worker_slot {
        WorkerSlot::Common(number) => format!("{}-{number}", phase.name()),
        WorkerSlot::Reserve(rank, number) => format!("{}-r{rank}-{number}", phase.name()),
    }
}
