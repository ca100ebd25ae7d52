//! One phase: its list of tasks, and the threads that take them.

use forebay_sys::clock;
use forebay_sys::schedule::{self, Spent};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A thread that has had nothing to do for this long lets its handler rest.
const REST: Duration = Duration::from_millis(100);

/// Tasks, and threads that sleep while there are none. Threads are numbered; those from the target
/// on are parked until the target rises again.
pub(super) struct List<T> {
    state: Mutex<State<T>>,
    work: Condvar,
    parked: Condvar,
    meters: Mutex<Vec<Arc<Meter>>>,
}

struct State<T> {
    /// With the time each was put in.
    tasks: VecDeque<(T, u64)>,
    /// Threads in a job …
    in_job: u32,
    /// … and tasks that are jobs and wait because all threads but one are.
    held: VecDeque<(T, u64)>,
    /// Threads that sleep because there is no task …
    idle: usize,
    /// … and those of them that have been woken and do not yet run.
    woken: usize,
    /// Threads that may take tasks: those with a lower number.
    target: u32,
    /// Threads that were ever begun; none ends before the list is closed.
    begun: u32,
    closed: bool,
    figures: Figures,
    /// When `figures.busy_ns` was brought up to date.
    counted_ns: u64,
}

/// What a list has counted since it was made.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Figures {
    /// Tasks in the list now.
    pub(super) waiting: u32,
    /// Threads that may take tasks now.
    pub(super) threads: u32,
    /// Threads with a task now.
    pub(super) busy: u32,
    /// Tasks put in.
    pub(super) arrivals: u64,
    /// Tasks taken, and how long they had waited together.
    pub(super) taken: u64,
    pub(super) delay_ns: u64,
    /// Tasks finished.
    pub(super) completions: u64,
    /// Time with a task, summed over all threads.
    pub(super) busy_ns: u64,
}

/// The scheduler's figures of one thread, and what they were when they were last asked for.
pub(super) struct Meter {
    figures: schedule::Figures,
    before: Mutex<Spent>,
}

impl<T> List<T> {
    /// An empty list for `target` threads, which the caller begins.
    pub(super) fn new(target: u32) -> List<T> {
        let state = State {
            tasks: VecDeque::new(),
            in_job: 0,
            held: VecDeque::new(),
            idle: 0,
            woken: 0,
            target,
            begun: target,
            closed: false,
            figures: Figures::default(),
            counted_ns: clock::monotonic_ns(),
        };
        List {
            state: Mutex::new(state),
            work: Condvar::new(),
            parked: Condvar::new(),
            meters: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // no panic can leave it half changed
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a task in and wakes a thread for it, if one sleeps.
    pub(super) fn push(&self, task: T) {
        let mut state = self.lock();
        if state.closed {
            return;
        }
        state.tasks.push_back((task, clock::monotonic_ns()));
        state.figures.arrivals += 1;
        self.wake_one(&mut state);
    }

    fn wake_one(&self, state: &mut State<T>) {
        if state.idle > state.woken {
            state.woken += 1;
            self.work.notify_one();
        }
    }

    /// The next task for thread `number`, or `None` when the list is closed. `finished` says whether
    /// the thread comes from a task. Before a long sleep, `rest` is called.
    pub(super) fn next(&self, number: u32, finished: bool, mut rest: impl FnMut()) -> Option<T> {
        let mut state = self.lock();
        if finished {
            state.change_busy(-1);
            state.figures.completions += 1;
        }
        let mut rested = false;
        loop {
            if state.closed {
                return None;
            }
            let may = number < state.target;
            if may && let Some((task, since_ns)) = state.tasks.pop_front() {
                let now_ns = state.change_busy(1);
                state.figures.taken += 1;
                state.figures.delay_ns += now_ns.saturating_sub(since_ns);
                return Some(task);
            }
            let long = if rested { None } else { Some(REST) };
            let timed_out;
            (state, timed_out) = if may {
                state.idle += 1;
                let (mut state, timed_out) = wait(&self.work, state, long);
                state.idle -= 1;
                state.woken = state.woken.saturating_sub(1);
                (state, timed_out)
            } else {
                // a task it may have been woken for is another's
                if !state.tasks.is_empty() {
                    self.wake_one(&mut state);
                }
                wait(&self.parked, state, long)
            };
            if timed_out && !rested {
                drop(state);
                rest();
                rested = true;
                state = self.lock();
            }
        }
    }

    /// A thread is about to do a job, which may take for ever. It gets its task back, unless all other
    /// threads of this phase are in jobs: one, if there are two, is kept for what needs no job.
    pub(super) fn begin_job(&self, task: T) -> Option<T> {
        let mut state = self.lock();
        if state.in_job < state.target.saturating_sub(1).max(1) {
            state.in_job += 1;
            return Some(task);
        }
        state.held.push_back((task, clock::monotonic_ns()));
        None
    }

    /// The job is done.
    pub(super) fn end_job(&self) {
        let mut state = self.lock();
        state.in_job -= 1;
        self.release(&mut state);
    }

    /// A job that was held may be begun.
    fn release(&self, state: &mut State<T>) {
        if let Some(task) = state.held.pop_front() {
            state.tasks.push_front(task);
            self.wake_one(state);
        }
    }

    /// From now on so many threads take tasks. Returns the numbers of those that must be begun.
    pub(super) fn set_target(&self, target: u32) -> std::ops::Range<u32> {
        let mut state = self.lock();
        if target > state.target {
            self.parked.notify_all();
        } else if target < state.target {
            // those that sleep and are too many go and park
            self.work.notify_all();
        }
        for _ in state.target..target {
            self.release(&mut state);
        }
        state.target = target;
        let begun = state.begun;
        state.begun = begun.max(target);
        begun..target.max(begun)
    }

    /// Thread `number` could not be begun: neither can those after it.
    pub(super) fn not_begun(&self, number: u32) {
        let mut state = self.lock();
        state.begun = state.begun.min(number);
        state.target = state.target.min(number);
    }

    /// The calling thread is one of this list's.
    pub(super) fn enlist(&self) -> Option<Arc<Meter>> {
        let figures = schedule::Figures::of_this_thread().ok()?;
        let meter = Arc::new(Meter { figures, before: Mutex::default() });
        meter.spent();
        self.meters().push(Arc::clone(&meter));
        Some(meter)
    }

    fn meters(&self) -> MutexGuard<'_, Vec<Arc<Meter>>> {
        self.meters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How its threads spent the time since the last call, summed. `None` if this kernel does not
    /// tell.
    pub(super) fn spent(&self) -> Option<Spent> {
        let meters = self.meters();
        let add = |sum: Spent, meter: &Arc<Meter>| {
            let spent = meter.spent();
            Spent {
                run_ns: sum.run_ns + spent.run_ns,
                runnable_ns: sum.runnable_ns + spent.runnable_ns,
            }
        };
        (!meters.is_empty()).then(|| meters.iter().fold(Spent::default(), add))
    }

    /// What was counted until now.
    pub(super) fn figures(&self) -> Figures {
        let mut state = self.lock();
        state.change_busy(0);
        let waiting = (state.tasks.len() + state.held.len()) as u32;
        let threads = state.target.min(state.begun);
        Figures { waiting, threads, ..state.figures }
    }

    /// No task is taken any more; those in the list are dropped, and its threads end.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        let dropped = (std::mem::take(&mut state.tasks), std::mem::take(&mut state.held));
        self.work.notify_all();
        self.parked.notify_all();
        drop(state);
        drop(dropped);
    }
}

impl<T> State<T> {
    /// One thread more or less has a task. Returns the time.
    fn change_busy(&mut self, change: i32) -> u64 {
        let now_ns = clock::monotonic_ns();
        let elapsed_ns = now_ns.saturating_sub(self.counted_ns);
        self.figures.busy_ns += elapsed_ns * u64::from(self.figures.busy);
        self.figures.busy = self.figures.busy.saturating_add_signed(change);
        self.counted_ns = now_ns;
        now_ns
    }
}

impl Meter {
    /// Since the last call.
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

/// Sleeps, at most `long`. Says whether that time is over.
fn wait<'s, T>(
    condvar: &Condvar,
    state: MutexGuard<'s, State<T>>,
    long: Option<Duration>,
) -> (MutexGuard<'s, State<T>>, bool) {
    match long {
        None => (condvar.wait(state).unwrap_or_else(PoisonError::into_inner), false),
        Some(long) => {
            let waited = condvar.wait_timeout(state, long);
            let (state, waited) = waited.unwrap_or_else(PoisonError::into_inner);
            (state, waited.timed_out())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn tasks_are_taken_in_order_and_counted() {
        let list = List::new(1);
        list.push('a');
        list.push('b');
        assert_eq!(list.next(0, false, || ()), Some('a'));
        assert_eq!(list.figures().busy, 1);
        assert_eq!(list.next(0, true, || ()), Some('b'));
        let figures = list.figures();
        assert_eq!((figures.arrivals, figures.taken, figures.completions), (2, 2, 1));
        list.close();
        assert_eq!(list.next(0, true, || ()), None);
        assert_eq!(list.figures().busy, 0);
    }

    #[test]
    fn threads_beyond_the_target_are_parked_until_it_rises() {
        let list = Arc::new(List::new(1));
        let (tell, told) = channel();
        for number in 0..2 {
            let (list, tell) = (Arc::clone(&list), tell.clone());
            std::thread::spawn(move || {
                let mut finished = false;
                while let Some(task) = list.next(number, finished, || ()) {
                    finished = true;
                    tell.send((number, task)).unwrap();
                }
            });
        }
        for task in 0..100 {
            list.push(task);
        }
        assert!((0..100).all(|task| told.recv().unwrap() == (0, task)));
        assert_eq!(list.set_target(2), 1..2);
        assert_eq!(list.set_target(1), 2..2);
        assert_eq!(list.set_target(2), 2..2);
        list.set_target(0);
        list.push(100);
        assert!(told.recv_timeout(Duration::from_millis(50)).is_err());
        list.set_target(2);
        assert_eq!(told.recv().unwrap().1, 100);
        list.close();
        drop(tell);
        assert!(told.recv().is_err());
    }

    #[test]
    fn one_thread_of_several_is_kept_from_jobs() {
        let list = List::new(3);
        assert_eq!(list.begin_job('a'), Some('a'));
        assert_eq!(list.begin_job('b'), Some('b'));
        assert_eq!(list.begin_job('c'), None);
        assert_eq!(list.begin_job('d'), None);
        list.push('e');
        assert_eq!(list.figures().waiting, 3);
        list.end_job();
        assert_eq!(list.next(0, false, || ()), Some('c'));
        assert_eq!(list.begin_job('c'), Some('c'));
        list.set_target(4);
        assert_eq!(list.next(1, false, || ()), Some('d'));
        assert_eq!(list.next(2, false, || ()), Some('e'));
    }

    #[test]
    fn a_thread_rests_before_a_long_sleep() {
        let list = Arc::new(List::<()>::new(1));
        let (tell, told) = channel();
        let sleeper = Arc::clone(&list);
        let thread = std::thread::spawn(move || sleeper.next(0, false, || tell.send(()).unwrap()));
        told.recv().unwrap();
        list.close();
        assert_eq!(thread.join().unwrap(), None);
    }
}
