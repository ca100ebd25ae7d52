//! The memory of the page, and the thread that takes a snapshot once a second.

use super::columns;
use super::events::PageEvents;
use super::history::PageHistory;
use super::stages::PageStages;
use super::windows::TopWindows;
use crate::agent::AgentLoop;
use forebay_handler::live::ServingSnapshot;
use forebay_metrics::Snapshot;
use forebay_metrics::top::{TopCount, TopKind, TopTables};
use forebay_sys::clock;
use serde_json::Value;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The shortest time over which figures are computed, in seconds.
const LEAST_S: f64 = 0.5;

/// The data of one step; `None` once no page is configured any more.
type PageLook = Option<(Snapshot, Arc<ServingSnapshot>, Arc<AgentLoop>)>;

/// All data of the page.
#[derive(Default)]
pub(crate) struct PageMemory {
    state: Mutex<PageState>,
    /// The stages, if there are some. They are kept even if there is no page.
    stages: Mutex<PageStages>,
    /// The output of `forebay doctor` at the start; empty if it was not run.
    doctor: String,
    /// The time, in seconds since 1970, up to which all sessions have ended because a user has signed out.
    signed_out_s: AtomicU64,
}

#[derive(Default)]
struct PageState {
    is_running: bool,
    /// The last snapshot, and its time.
    before: Option<(Snapshot, u64)>,
    history: PageHistory,
    events: PageEvents,
    windows: TopWindows,
    /// The number of requests since the start that could not be counted.
    missed: u64,
}

impl PageMemory {
    /// The memory with these stages, and the report on the machine.
    pub(crate) fn new(stages: PageStages, doctor: String) -> PageMemory {
        PageMemory { stages: Mutex::new(stages), doctor, ..PageMemory::default() }
    }

    fn lock(&self) -> MutexGuard<'_, PageState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The end of a session that begins now and lasts so long. It is later than the end of all
    /// sessions that were ended by a sign-out.
    pub(crate) fn session_until_s(&self, now_s: u64, lasts_s: u64) -> u64 {
        (now_s + lasts_s).max(self.signed_out_s() + 1)
    }

    /// Ends every session that may have begun until now.
    pub(crate) fn sign_out(&self, now_s: u64, lasts_s: u64) {
        self.signed_out_s.store(self.session_until_s(now_s, lasts_s), Relaxed);
    }

    /// The end up to which sessions are over.
    pub(crate) fn signed_out_s(&self) -> u64 {
        self.signed_out_s.load(Relaxed)
    }

    /// Starts the thread if none runs. The thread ends, and all data are dropped, when `look`
    /// returns nothing and `is_on` confirms that there is no page.
    ///
    /// # Errors
    /// Lack of threads.
    pub(crate) fn keep_up(
        self: &Arc<Self>,
        is_on: impl Fn() -> bool + Send + 'static,
        look: impl Fn() -> PageLook + Send + 'static,
    ) -> io::Result<()> {
        let mut state = self.lock();
        if state.is_running {
            return Ok(());
        }
        let run = PageRun(Arc::clone(self));
        std::thread::Builder::new().name("page".to_owned()).spawn(move || {
            while run.0.step(look(), &is_on) {
                // the next step is at the same place in the next second, however long this one took
                let rest_ms = 1000 - clock::unix_us() / 1000 % 1000;
                std::thread::sleep(Duration::from_millis(rest_ms));
            }
        })?;
        state.is_running = true;
        Ok(())
    }

    /// Adds what has happened since the last step. The result is whether the thread goes on.
    fn step(&self, seen: PageLook, is_on: impl Fn() -> bool) -> bool {
        let Some((snapshot, serving, agent_loop)) = seen else {
            return self.goes_on(is_on);
        };
        let mut fresh = TopTables::default();
        let missed = serving.sightings.take(&mut fresh);
        let policy = &serving.policy;
        let (now_ns, unix_ms) = (clock::monotonic_ns(), clock::unix_us() / 1000);
        let mut state = self.lock();
        let records = agent_loop.records_since(state.events.agent_ns());
        let PageState { before, history, events, windows, .. } = &mut *state;
        windows.add(unix_ms / 1000, &fresh);
        let classes = policy.policy.classes().iter().map(|class| class.name.as_str());
        let classes: Vec<&str> = classes.collect();
        events.decided((unix_ms, now_ns), &classes, &records);
        let now = (unix_ms, now_ns / 1_000_000);
        self.stages().look(now, |at_ms, text| events.stage(at_ms, text));
        // a late step leaves less than a second to the next one, whose rates would be of little data
        let seconds = |since_ns: u64| now_ns.saturating_sub(since_ns) as f64 / 1e9;
        match before {
            Some((_, before_ns)) if seconds(*before_ns) < LEAST_S => {}
            Some((base, before_ns)) => {
                let figures = columns::figures(base, &snapshot, seconds(*before_ns));
                history.add(unix_ms / 1000, &figures);
                events.changed(unix_ms, base, &snapshot);
                *before = Some((snapshot, now_ns));
            }
            None => *before = Some((snapshot, now_ns)),
        }
        state.missed = missed;
        true
    }

    /// Drops all data after a step without a snapshot, unless the page was configured again in the
    /// meantime: that reload has found this thread running. The result is whether the thread goes on.
    fn goes_on(&self, is_on: impl Fn() -> bool) -> bool {
        let mut state = self.lock();
        let is_on = is_on();
        if !is_on {
            *state = PageState::default();
        }
        is_on
    }

    fn stages(&self) -> MutexGuard<'_, PageStages> {
        self.stages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The stages with the ends of their processes, and the report on the machine from the start.
    pub(super) fn surroundings(&self) -> (Value, &str) {
        (self.stages().json(), &self.doctor)
    }

    /// See [`PageHistory::json`].
    pub(super) fn history(&self, after_s: u64) -> String {
        self.lock().history.json(after_s)
    }

    /// See [`PageEvents::json`].
    pub(super) fn events(&self, after_ms: u64) -> Value {
        self.lock().events.json(after_ms)
    }

    /// The most frequent names, and how many requests were not counted.
    pub(super) fn largest(
        &self,
        minutes: u64,
        most: usize,
    ) -> (Vec<(TopKind, Vec<TopCount>)>, u64) {
        let state = self.lock();
        (state.windows.largest(minutes, most), state.missed)
    }
}

/// The running thread. If it panics, dropping this lets another one start.
struct PageRun(Arc<PageMemory>);

impl Drop for PageRun {
    fn drop(&mut self) {
        // a thread that ended normally has done this itself, and another one may run already
        if std::thread::panicking() {
            self.0.lock().is_running = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    fn is_running(memory: &PageMemory) -> bool {
        memory.lock().is_running
    }

    #[test]
    fn a_page_that_has_come_back_keeps_its_thread() {
        let memory = PageMemory::default();
        memory.lock().is_running = true;
        assert!(memory.step(None, || true) && is_running(&memory));
        assert!(!memory.step(None, || false) && !is_running(&memory));
    }

    #[test]
    fn a_thread_that_has_panicked_is_followed_by_another() {
        let memory = Arc::new(PageMemory::default());
        memory.keep_up(|| true, || panic!("as one may")).unwrap();
        let is_gone = |_| {
            std::thread::sleep(Duration::from_millis(10));
            !is_running(&memory)
        };
        assert!((0..1000).any(is_gone));
        let (told, tells) = mpsc::channel();
        let look = move || {
            let _ = told.send(());
            None
        };
        memory.keep_up(|| false, look).unwrap();
        tells.recv_timeout(Duration::from_secs(10)).unwrap();
    }

    #[test]
    fn a_sign_out_ends_the_sessions_before_it_and_none_after() {
        let memory = PageMemory::default();
        let first = memory.session_until_s(1000, 100);
        assert!(first == 1100 && first > memory.signed_out_s());
        memory.sign_out(1000, 100);
        assert!(first <= memory.signed_out_s());
        let second = memory.session_until_s(1000, 100);
        assert!(second > memory.signed_out_s());
        memory.sign_out(1000, 100);
        assert!(second <= memory.signed_out_s());
    }
}
