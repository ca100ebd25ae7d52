//! A limit on the unfinished work of a class.
//!
//! Only work that waits for a core counts. In engines with helper threads these are jobs which compute: a
//! request that can be answered at once waits for no worker, and one that waits for a disk has workers of
//! its own. A request's first job of that kind [enters](Window::enter) its class's window. In engines
//! where requests are queued before they are looked at, all requests enter it ([`WindowPoint`]).
//!
//! A [`Pass`] counts how long the work waited and ran. The work is finished when the pass is dropped:
//! when the work has ended, or will not be done. Whether the answer was sent makes no difference: a slow
//! client keeps no worker busy.

use forebay_sys::clock;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// The unfinished work of one class.
#[derive(Debug)]
pub struct Window {
    most: AtomicU32,
    unfinished: AtomicU32,
    running: AtomicU32,
    offered: AtomicU64,
    refused: AtomicU64,
    finished: AtomicU64,
    cpu_ns: AtomicU64,
    began: AtomicU64,
    waited_ns: AtomicU64,
    core_waited_ns: AtomicU64,
    retry_after_s: AtomicU32,
}

impl Default for Window {
    /// A window without a limit.
    fn default() -> Window {
        Window {
            most: AtomicU32::new(u32::MAX),
            unfinished: AtomicU32::default(),
            running: AtomicU32::default(),
            offered: AtomicU64::default(),
            refused: AtomicU64::default(),
            finished: AtomicU64::default(),
            cpu_ns: AtomicU64::default(),
            began: AtomicU64::default(),
            waited_ns: AtomicU64::default(),
            core_waited_ns: AtomicU64::default(),
            retry_after_s: AtomicU32::default(),
        }
    }
}

/// The counts since the server started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassCounts {
    /// Jobs that came.
    pub offered: u64,
    /// Jobs that were refused.
    pub refused: u64,
    /// Jobs that have ended.
    pub finished: u64,
    /// Processor time of the jobs that have ended.
    pub cpu_ns: u64,
    /// Jobs that have begun.
    pub began: u64,
    /// How long the jobs that have begun had waited for a worker, in all.
    pub waited_ns: u64,
    /// How long the jobs that have ended had waited for a core after they had begun, in all.
    pub core_waited_ns: u64,
    /// Jobs that are admitted and not finished now.
    pub unfinished: u32,
    /// Jobs that have begun and are not finished now.
    pub running: u32,
}

/// When a request enters its class's window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowPoint {
    /// When the request enters the ready queue: all requests do, before anything is known of them. A
    /// request that waits for its client, for a body above all, does not count.
    Queue,
    /// When the request turns out to need a worker that computes.
    Job,
}

/// A place in a window, given back when it is dropped.
#[derive(Debug)]
pub struct Pass {
    window: Arc<Window>,
    since_ns: u64,
    /// The processor time of the thread when work began or went on, which is never 0; [`PAUSED`] while
    /// the work does not go on, and [`HANDED_ON`] while it waits for another thread.
    began_cpu_ns: Option<NonZeroU64>,
}

/// A value above any processor time.
const PAUSED: NonZeroU64 = NonZeroU64::MAX;
const HANDED_ON: NonZeroU64 = NonZeroU64::MIN.saturating_add(u64::MAX - 2);

impl Drop for Pass {
    fn drop(&mut self) {
        self.window.unfinished.fetch_sub(1, Relaxed);
        if self.runs() {
            self.window.running.fetch_sub(1, Relaxed);
        }
    }
}

impl Pass {
    /// Runs a job that computes, on a worker, and counts its times.
    pub fn run<R>(mut self, job: impl FnOnce() -> R) -> R {
        let began_ns = self.begin();
        let result = job();
        let took_ns = clock::monotonic_ns().saturating_sub(began_ns);
        let cpu_ns = self.cpu_ns();
        // the job only computes: the time without a core was a wait for one
        self.window.core_waited_ns.fetch_add(took_ns.saturating_sub(cpu_ns), Relaxed);
        self.finish(cpu_ns);
        result
    }

    /// Notes that the work begins on this thread, or goes on there. Returns the time.
    pub fn begin(&mut self) -> u64 {
        let now_ns = clock::monotonic_ns();
        let before = self.began_cpu_ns;
        if !matches!(before, None | Some(PAUSED | HANDED_ON)) {
            return now_ns;
        }
        self.began_cpu_ns = NonZeroU64::new(clock::thread_cpu_ns().max(1));
        if before != Some(PAUSED) {
            self.window.running.fetch_add(1, Relaxed);
            self.window.waited_ns.fetch_add(now_ns.saturating_sub(self.since_ns), Relaxed);
        }
        // the work counts as one job, however many threads it waits for
        if before.is_none() {
            self.window.began.fetch_add(1, Relaxed);
        }
        now_ns
    }

    /// Notes that the work goes on later, perhaps on another thread, which has another processor time.
    pub fn pause(&mut self) {
        if self.runs() {
            self.window.cpu_ns.fetch_add(self.cpu_ns(), Relaxed);
            self.began_cpu_ns = Some(PAUSED);
        }
    }

    /// Hands the work on to another thread, for which it waits from now on. The work of that thread is
    /// counted; what follows after it is not.
    pub fn hand_on(mut self) -> Pass {
        self.pause();
        if self.runs() {
            self.window.running.fetch_sub(1, Relaxed);
            self.began_cpu_ns = Some(HANDED_ON);
            self.since_ns = clock::monotonic_ns();
        }
        self
    }

    /// Whether the work has a thread, or is paused and waits for none.
    fn runs(&self) -> bool {
        !matches!(self.began_cpu_ns, None | Some(HANDED_ON))
    }

    /// Ends the work, on the thread on which it began or went on.
    pub fn end(self) {
        if self.began_cpu_ns.is_some() {
            let cpu_ns = self.cpu_ns();
            self.finish(cpu_ns);
        }
    }

    /// The processor time of the work on this thread since it began or went on there; 0 if it has not.
    fn cpu_ns(&self) -> u64 {
        let since = |began_ns: NonZeroU64| clock::thread_cpu_ns().saturating_sub(began_ns.get());
        self.began_cpu_ns.map_or(0, since)
    }

    fn finish(self, cpu_ns: u64) {
        self.window.cpu_ns.fetch_add(cpu_ns, Relaxed);
        self.window.finished.fetch_add(1, Relaxed);
    }
}

impl Window {
    /// Lets a job in. A job of a request that has entered before, as `again` says, is not refused.
    ///
    /// # Errors
    /// The seconds after which its client may try again, if the window is full.
    pub fn enter(self: &Arc<Window>, again: bool) -> Result<Pass, u32> {
        self.offered.fetch_add(1, Relaxed);
        if self.unfinished.fetch_add(1, Relaxed) >= self.most.load(Relaxed) && !again {
            self.unfinished.fetch_sub(1, Relaxed);
            self.refused.fetch_add(1, Relaxed);
            return Err(self.retry_after_s.load(Relaxed));
        }
        let window = Arc::clone(self);
        Ok(Pass { window, since_ns: clock::monotonic_ns(), began_cpu_ns: None })
    }

    /// Sets how many jobs may be unfinished; `None` for no limit. A refused client gets `retry_after_s`.
    pub fn limit(&self, most: Option<u32>, retry_after_s: u32) {
        self.most.store(most.unwrap_or(u32::MAX), Relaxed);
        self.retry_after_s.store(retry_after_s, Relaxed);
    }

    /// The limit in force.
    pub fn most(&self) -> Option<u32> {
        Some(self.most.load(Relaxed)).filter(|most| *most < u32::MAX)
    }

    /// Whether some of the work is not finished.
    pub fn has_work(&self) -> bool {
        self.unfinished.load(Relaxed) > 0
    }

    /// The counts.
    pub fn counts(&self) -> ClassCounts {
        ClassCounts {
            // ended jobs are read before begun ones
            finished: self.finished.load(Relaxed),
            cpu_ns: self.cpu_ns.load(Relaxed),
            began: self.began.load(Relaxed),
            waited_ns: self.waited_ns.load(Relaxed),
            core_waited_ns: self.core_waited_ns.load(Relaxed),
            refused: self.refused.load(Relaxed),
            offered: self.offered.load(Relaxed),
            // a job that ends in between must not seem to wait
            running: self.running.load(Relaxed),
            unfinished: self.unfinished.load(Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_comes_back_when_its_pass_is_dropped() {
        let window = Arc::<Window>::default();
        window.limit(Some(2), 7);
        let one = window.enter(false).unwrap();
        let two = window.enter(false).unwrap();
        assert_eq!(window.enter(false).unwrap_err(), 7);
        drop(one);
        let three = window.enter(false).unwrap();
        assert_eq!(window.enter(false).unwrap_err(), 7);
        let more = window.enter(true).unwrap();
        assert_eq!(more.run(|| 5), 5);
        drop((two, three));
        let ClassCounts { offered, refused, finished, began, unfinished, .. } = window.counts();
        assert_eq!((offered, refused, finished, began, unfinished), (6, 2, 1, 1, 0));
    }

    #[test]
    fn what_a_job_takes_and_what_it_waits_is_told_apart() {
        let window = Arc::<Window>::default();
        let pass = window.enter(false).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(5));
        let began_ns = clock::thread_cpu_ns();
        pass.run(|| {
            std::thread::sleep(std::time::Duration::from_millis(5));
            while clock::thread_cpu_ns() - began_ns < 2_000_000 {}
        });
        let counts = window.counts();
        assert!(counts.waited_ns >= 5_000_000, "{counts:?}");
        assert!(counts.core_waited_ns >= 5_000_000, "{counts:?}");
        let used_ns = clock::thread_cpu_ns() - began_ns;
        assert!((1_000_000..=used_ns).contains(&counts.cpu_ns), "{counts:?}, {used_ns}");
    }

    #[test]
    fn a_job_that_panics_leaves() {
        let window = Arc::<Window>::default();
        let pass = window.enter(false).unwrap();
        let run = std::panic::AssertUnwindSafe(|| pass.run(|| panic!("a job")));
        assert!(std::panic::catch_unwind(run).is_err());
        let ClassCounts { unfinished, running, .. } = window.counts();
        assert_eq!((unfinished, running), (0, 0));
    }

    #[test]
    fn what_has_begun_waits_no_longer() {
        let window = Arc::<Window>::default();
        let mut passes: Vec<_> = (0..3).map(|_| window.enter(false).unwrap()).collect();
        let counts = || (window.counts().unfinished, window.counts().running);
        passes[0].begin();
        passes[0].begin();
        assert_eq!(counts(), (3, 1));
        passes.remove(0).end();
        assert_eq!(counts(), (2, 0));
        passes.remove(0).run(|| assert_eq!(counts(), (2, 1)));
        drop(passes);
        assert_eq!(counts(), (0, 0));
    }

    #[test]
    fn what_is_handed_on_waits_again_and_what_is_paused_does_not() {
        let window = Arc::<Window>::default();
        let counts = || {
            let ClassCounts { began, finished, running, .. } = window.counts();
            (began, finished, running)
        };
        let burn = || {
            let began_ns = clock::thread_cpu_ns();
            while clock::thread_cpu_ns() - began_ns < 2_000_000 {}
        };
        let mut pass = window.enter(false).unwrap();
        pass.begin();
        burn();
        pass.pause();
        assert_eq!(counts(), (1, 0, 1));
        // a thread that has worked for longer, or shorter, changes nothing
        let pass = std::thread::spawn(move || {
            pass.begin();
            pass.pause();
            pass
        });
        let pass = pass.join().unwrap().hand_on();
        assert_eq!(counts(), (1, 0, 0));
        let cpu_ns = window.counts().cpu_ns;
        assert!((2_000_000..1_000_000_000).contains(&cpu_ns), "{cpu_ns}");
        std::thread::spawn(move || pass.run(burn)).join().unwrap();
        assert_eq!(counts(), (1, 1, 0));
        assert!(window.counts().cpu_ns >= cpu_ns + 2_000_000);
    }

    #[test]
    fn there_is_no_limit_unless_one_is_set() {
        let window = Arc::<Window>::default();
        let passes: Vec<_> = (0..1000).map(|_| window.enter(false).unwrap()).collect();
        assert_eq!((window.most(), window.counts().unfinished), (None, 1000));
        drop(passes);
        assert_eq!(window.counts().unfinished, 0);
    }
}
