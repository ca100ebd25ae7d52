//! One phase: its list of tasks, and the threads that take them.
//!
//! With classes the list is ordered by rank, and a thread has a level: it takes tasks of that rank and
//! of higher ones. The controller's threads take all. Beyond their number each higher rank may have a
//! reserve of threads that take nothing below it, as [`helpers`](crate::helpers) have; while a lower
//! rank is due they take nothing.
//!
//! The controller's threads belong to no phase for ever: one that is ordered away goes to another
//! list as soon as it has no task, and one that is too many rests until a phase needs it
//! ([`Duty`]).

#[cfg(test)]
mod tests;

use super::meter::{Meter, PhaseMeters};
use super::queue::{TakenTask, TaskQueue};
use crate::order::ranks::{RankedClient, Ranks};
use forebay_control::allocation::Phase;
use forebay_control::ranked::Turn;
use forebay_sys::clock;
use forebay_sys::schedule::Spent;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The idle time after which a thread lets its handler rest.
const REST: Duration = Duration::from_millis(100);

/// Tasks, and threads that sleep while there are none.
pub(super) struct TaskList<T> {
    state: Mutex<ListState<T>>,
    /// The places where idle threads of each level sleep.
    work: Box<[Condvar]>,
    meters: PhaseMeters,
    reserve: u32,
}

struct ListState<T> {
    tasks: TaskQueue<T>,
    /// The number of the controller's threads that are in a job …
    in_job: u32,
    /// … and tasks that are jobs, which wait because all these threads but one are in one.
    held: TaskQueue<T>,
    idle: Box<[IdleThreads]>,
    /// The number of the controller's threads that should take tasks, without those of a reserve …
    target: u32,
    /// … of those that are here …
    active: u32,
    /// … of those that are on their way, …
    coming: u32,
    /// … and the phases that some of those here should go to.
    leaving: VecDeque<Phase>,
    closed: bool,
    figures: ListFigures,
    /// The time up to which `figures.busy_ns` is counted.
    counted_ns: u64,
}

/// The threads of one level that sleep because there is no task for them.
#[derive(Clone, Copy, Debug, Default)]
struct IdleThreads {
    asleep: u32,
    /// The threads among them that were woken, and do not run yet.
    woken: u32,
}

/// The identity of a phase's thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WorkerSlot {
    /// A thread of the controller. It keeps its number, which is in its name, in every phase.
    Common(u32),
    /// A thread of the reserve of this rank, with this number.
    Reserve(u8, u32),
}

/// The next thing that a thread does.
#[derive(Debug)]
pub(super) enum Duty<T> {
    /// The thread does this task.
    Task(T, TaskRun),
    /// The thread goes to this phase, which waits for it.
    Switch(Phase),
    /// The thread is one too many here, and rests until a phase needs it.
    Rest,
    /// The thread ends, as the list is closed.
    End,
}

/// A thread's time with a task: from [`TaskList::next`] to the next.
#[derive(Debug)]
pub(super) struct TaskRun {
    worker_slot: WorkerSlot,
    turn: Option<Turn>,
    /// The time for which the task had waited.
    pub(super) waited_ns: u64,
    began_ns: u64,
    /// The task was held before.
    was_held: bool,
    /// The thread counts among those in a job.
    in_job: bool,
    /// The task is held now, and not finished.
    is_put_back: bool,
    /// Nothing was done, so the order does not count the task.
    pub(super) in_vain: bool,
}

/// The figures that a list has counted since it was made.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ListFigures {
    /// Tasks that are in the list now.
    pub(super) waiting: u32,
    /// The controller's threads that may take tasks now.
    pub(super) threads: u32,
    /// Threads that have a task now.
    pub(super) busy: u32,
    /// Tasks that were put in.
    pub(super) arrivals: u64,
    /// Tasks that were taken, and the sum of their waits.
    pub(super) taken: u64,
    pub(super) delay_ns: u64,
    /// Tasks that were finished.
    pub(super) completions: u64,
    /// The time with a task, summed over all threads.
    pub(super) busy_ns: u64,
    /// Tasks that turned out to be jobs, whether they could be begun at once or not.
    pub(super) jobs: u64,
}

impl TaskRun {
    /// The rank of the task; 0 if there is one rank.
    pub(super) fn rank(&self) -> u8 {
        self.turn.as_ref().map_or(0, Turn::rank)
    }

    /// The time with the task so far.
    pub(super) fn ns(&self) -> u64 {
        clock::monotonic_ns().saturating_sub(self.began_ns)
    }
}

impl<T> TaskList<T> {
    /// An empty list in this order for `target` threads, and `reserve` more for each rank but the
    /// last. The caller begins them; each thread but those of the reserve then
    /// [joins](TaskList::join).
    pub(super) fn new(target: u32, ranks: &Ranks, reserve: usize) -> TaskList<T> {
        let state = ListState {
            tasks: TaskQueue::new(ranks),
            in_job: 0,
            held: TaskQueue::new(ranks),
            idle: vec![IdleThreads::default(); ranks.count()].into(),
            target,
            active: 0,
            coming: target,
            leaving: VecDeque::new(),
            closed: false,
            figures: ListFigures::default(),
            counted_ns: clock::monotonic_ns(),
        };
        TaskList {
            state: Mutex::new(state),
            work: (0..ranks.count()).map(|_| Condvar::new()).collect(),
            meters: PhaseMeters::default(),
            reserve: reserve as u32,
        }
    }

    fn lock(&self) -> MutexGuard<'_, ListState<T>> {
        // no panic can leave the state half changed
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn last(&self) -> u8 {
        (self.work.len() - 1) as u8
    }

    /// The threads of the reserves, which exist from the beginning.
    pub(super) fn reserves(&self) -> impl Iterator<Item = WorkerSlot> + use<T> {
        let reserve = self.reserve;
        (0..self.last())
            .flat_map(move |rank| (0..reserve).map(move |number| WorkerSlot::Reserve(rank, number)))
    }

    /// The number of threads that are on their way.
    pub(super) fn coming(&self) -> u32 {
        self.lock().coming
    }

    /// Counts one of the controller's threads that was on its way and is here, and that calls
    /// [`next`](TaskList::next).
    pub(super) fn join(&self) {
        let mut state = self.lock();
        state.coming = state.coming.saturating_sub(1);
        state.active += 1;
    }

    /// Expects this many fewer threads, which were on their way and do not come after all.
    pub(super) fn expect_fewer(&self, threads: u32) {
        let mut state = self.lock();
        state.coming = state.coming.saturating_sub(threads);
    }

    /// The last rank whose tasks this thread takes.
    pub(super) fn level(&self, worker_slot: WorkerSlot) -> u8 {
        match worker_slot {
            WorkerSlot::Common(_) => self.last(),
            WorkerSlot::Reserve(rank, _) => rank,
        }
    }

    /// Puts a task in and wakes a thread for it, if one sleeps.
    pub(super) fn push(&self, task: T, ranked_client: RankedClient) {
        let mut state = self.lock();
        if state.closed {
            return;
        }
        state.tasks.push(task, ranked_client, clock::monotonic_ns());
        state.figures.arrivals += 1;
        let levels = self.rouse(&mut state);
        // woken under the lock, a thread might run at once and find the list locked
        drop(state);
        levels.into_iter().flatten().for_each(|level| self.work[level].notify_one());
    }

    /// Has a thread come for the next task, if one that may take it sleeps.
    fn wake(&self, state: &mut ListState<T>) {
        let levels = self.rouse(state);
        levels.into_iter().flatten().for_each(|level| self.work[level].notify_one());
    }

    /// Chooses the threads to wake for what is next: one at each of these levels.
    fn rouse(&self, state: &mut ListState<T>) -> [Option<usize>; 2] {
        let queues =
            [(state.tasks.next_rank(), true), (state.held.next_rank(), state.may_begin_job())];
        queues.map(|(rank, common_may)| {
            let rank = usize::from(rank?);
            let mut levels = rank..usize::from(self.last()) + usize::from(common_may);
            let level = levels.find(|level| {
                let idle = &state.idle[*level];
                idle.asleep > idle.woken
            })?;
            state.idle[level].woken += 1;
            Some(level)
        })
    }

    /// Waits for what a thread does next. `ended` is its time with the task before. Before a long
    /// sleep, `rest` is called.
    pub(super) fn next(
        &self,
        worker_slot: WorkerSlot,
        ended: Option<TaskRun>,
        mut rest: impl FnMut(),
    ) -> Duty<T> {
        let level = usize::from(self.level(worker_slot));
        let mut state = self.lock();
        if let Some(task_run) = ended {
            state.end(task_run);
        }
        let mut rested = false;
        let mut rests_at = None;
        loop {
            if state.closed {
                return Duty::End;
            }
            if let Some(duty) = state.leave(worker_slot) {
                // another thread must take what this one may have been woken for
                self.wake(&mut state);
                return duty;
            }
            if let Some((task, task_run)) = state.take(worker_slot, level as u8) {
                if self.last() > 0 {
                    // what is next now may be for a thread of another level
                    self.wake(&mut state);
                }
                return Duty::Task(task, task_run);
            }
            if self.last() > 0 {
                self.wake(&mut state);
            }
            // counted from when the thread became idle, however often it was woken for what another
            // one took
            let long = (!rested).then(|| {
                let now = Instant::now();
                rests_at.get_or_insert(now + REST).saturating_duration_since(now)
            });
            state.idle[level].asleep += 1;
            let timed_out;
            (state, timed_out) = wait(&self.work[level], state, long);
            let idle = &mut state.idle[level];
            idle.asleep -= 1;
            idle.woken = idle.woken.saturating_sub(1);
            if timed_out && !rested {
                drop(state);
                rest();
                rested = true;
                state = self.lock();
            }
        }
    }

    /// Asks for a thread to begin a job, which may take for ever. Returns its task, unless all
    /// other threads of this phase are in jobs; one thread, if there are two, is kept for tasks
    /// that need no job. Threads of a reserve always get the task.
    pub(super) fn begin_job(
        &self,
        task: T,
        ranked_client: RankedClient,
        task_run: &mut TaskRun,
    ) -> Option<T> {
        if task_run.in_job || matches!(task_run.worker_slot, WorkerSlot::Reserve(..)) {
            return Some(task);
        }
        let mut state = self.lock();
        state.figures.jobs += 1;
        if state.may_begin_job() {
            state.in_job += 1;
            task_run.in_job = true;
            return Some(task);
        }
        state.held.push(task, ranked_client, clock::monotonic_ns());
        task_run.is_put_back = true;
        // a thread of a reserve may have time for it
        self.wake(&mut state);
        None
    }

    /// Ends the job of this thread.
    pub(super) fn end_job(&self, task_run: &mut TaskRun) {
        if std::mem::take(&mut task_run.in_job) {
            let mut state = self.lock();
            state.in_job -= 1;
            self.wake(&mut state);
        }
    }

    /// Raises the number of threads that take tasks, beside those of the reserves, to at least
    /// `target`. Returns how many are lacking; the list expects those.
    pub(super) fn raise(&self, target: u32) -> u32 {
        let mut state = self.lock();
        let wanted = target + state.leaving.len() as u32;
        let lacking = wanted.saturating_sub(state.active + state.coming);
        if lacking > 0 {
            state.target = target;
            state.coming += lacking;
        }
        lacking
    }

    /// Lowers the number of threads that take tasks to `target`. Threads that are too many rest
    /// when they have no task, or go to one of `takers` that they may change to, which is taken
    /// out.
    pub(super) fn lower(
        &self,
        target: u32,
        takers: &mut Vec<Phase>,
        may_change: impl Fn(Phase) -> bool,
    ) {
        let mut state = self.lock();
        state.target = target;
        let there = state.active + state.coming;
        let mut too_many = there.saturating_sub(target + state.leaving.len() as u32);
        takers.retain(|taker| {
            let goes = too_many > 0 && may_change(*taker);
            if goes {
                too_many -= 1;
                state.leaving.push_back(*taker);
            }
            !goes
        });
        if state.active > state.target || !state.leaving.is_empty() {
            // threads that sleep and are too many leave now
            self.work[usize::from(self.last())].notify_all();
            self.wake(&mut state);
        }
    }

    /// Takes back the orders to go to other phases, which threads could not follow because all have
    /// had tasks since. Returns the phases that get no thread.
    pub(super) fn take_back(&self) -> VecDeque<Phase> {
        std::mem::take(&mut self.lock().leaving)
    }

    /// Enlists the calling thread as one of this list's.
    pub(super) fn enlist(&self) -> Option<Arc<Meter>> {
        self.meters.enlist()
    }

    /// Takes over the meter of a thread that comes from another list.
    pub(super) fn take_over(&self, meter: &Arc<Meter>, from: &TaskList<T>) {
        from.meters.remove(meter);
        self.meters.add(meter);
    }

    /// How the list's threads have spent the time since the last call, summed. Returns `None` if
    /// this kernel has no such figures.
    pub(super) fn spent(&self) -> Option<Spent> {
        self.meters.spent()
    }

    /// The figures counted until now.
    pub(super) fn figures(&self) -> ListFigures {
        let mut state = self.lock();
        state.change_busy(0);
        let waiting = (state.tasks.len() + state.held.len()) as u32;
        let threads = state.target.min(state.active + state.coming);
        ListFigures { waiting, threads, ..state.figures }
    }

    /// Closes the list: tasks in it are dropped, no more are taken, and its threads end.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        let nothing = || TaskQueue::new(&Ranks::default());
        let dropped = [
            std::mem::replace(&mut state.tasks, nothing()),
            std::mem::replace(&mut state.held, nothing()),
        ];
        self.work.iter().for_each(Condvar::notify_all);
        drop(state);
        drop(dropped);
    }
}

impl<T> ListState<T> {
    /// Takes out a thread that was ordered away, or is too many.
    fn leave(&mut self, worker_slot: WorkerSlot) -> Option<Duty<T>> {
        if matches!(worker_slot, WorkerSlot::Reserve(..)) {
            return None;
        }
        let duty = match self.leaving.pop_front() {
            Some(phase) => Duty::Switch(phase),
            None if self.active > self.target => Duty::Rest,
            None => return None,
        };
        self.active -= 1;
        Some(duty)
    }

    /// Whether one more of the controller's threads may be in a job.
    fn may_begin_job(&self) -> bool {
        let threads = self.active.min(self.target);
        self.in_job < threads.saturating_sub(1).max(1)
    }

    /// Takes the next task for a thread that takes those of `level` and of higher ranks. Among
    /// equals, tasks that were held come first, as they have waited before.
    fn take(&mut self, worker_slot: WorkerSlot, level: u8) -> Option<(T, TaskRun)> {
        self.held.keep_up();
        self.tasks.keep_up();
        let is_common = matches!(worker_slot, WorkerSlot::Common(_));
        let may_begin = !is_common || self.may_begin_job();
        let held = self.held.next_rank().filter(|rank| may_begin && *rank <= level);
        let ready = self.tasks.next_rank().filter(|rank| *rank <= level);
        let was_held = match (held, ready) {
            (Some(held), Some(ready)) => held <= ready,
            (held, ready) => {
                held.or(ready)?;
                held.is_some()
            }
        };
        let queue = if was_held { &mut self.held } else { &mut self.tasks };
        let TakenTask { task, since_ns, turn } = queue.pop()?;
        let began_ns = self.change_busy(1);
        let waited_ns = began_ns.saturating_sub(since_ns);
        self.figures.taken += u64::from(!was_held);
        self.figures.delay_ns += waited_ns;
        let in_job = was_held && is_common;
        self.in_job += u32::from(in_job);
        let task_run = TaskRun {
            worker_slot,
            turn,
            waited_ns,
            began_ns,
            was_held,
            in_job,
            is_put_back: false,
            in_vain: false,
        };
        Some((task, task_run))
    }

    /// Ends a thread's time with its task.
    fn end(&mut self, task_run: TaskRun) {
        let now_ns = self.change_busy(-1);
        self.figures.completions += u64::from(!task_run.is_put_back);
        self.in_job -= u32::from(task_run.in_job);
        let queue = if task_run.was_held { &mut self.held } else { &mut self.tasks };
        let ns = if task_run.in_vain { 0 } else { now_ns.saturating_sub(task_run.began_ns) };
        queue.ran(task_run.turn, ns);
    }

    /// Notes that one thread more or less has a task. Returns the time.
    fn change_busy(&mut self, change: i32) -> u64 {
        let now_ns = clock::monotonic_ns();
        let elapsed_ns = now_ns.saturating_sub(self.counted_ns);
        self.figures.busy_ns += elapsed_ns * u64::from(self.figures.busy);
        self.figures.busy = self.figures.busy.saturating_add_signed(change);
        self.counted_ns = now_ns;
        now_ns
    }
}

/// Sleeps, at most `long`. Returns whether that time is over.
fn wait<'s, T>(
    condvar: &Condvar,
    state: MutexGuard<'s, ListState<T>>,
    long: Option<Duration>,
) -> (MutexGuard<'s, ListState<T>>, bool) {
    match long {
        None => (condvar.wait(state).unwrap_or_else(PoisonError::into_inner), false),
        Some(long) => {
            let waited = condvar.wait_timeout(state, long);
            let (state, waited) = waited.unwrap_or_else(PoisonError::into_inner);
            (state, waited.timed_out())
        }
    }
}
