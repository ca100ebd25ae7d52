//! What the page remembers, and the thread that looks once a second.

use super::columns;
use super::events::PageEvents;
use super::history::PageHistory;
use super::windows::TopWindows;
use crate::agent::AgentLoop;
use forebay_handler::live::ServingSnapshot;
use forebay_metrics::Snapshot;
use forebay_metrics::top::{TopCount, TopKind, TopTables};
use forebay_sys::clock;
use serde_json::Value;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Figures are of no shorter time, in seconds.
const LEAST_S: f64 = 0.5;

/// What is looked at: `None` once no page is wanted any more.
type PageLook = Option<(Snapshot, Arc<ServingSnapshot>, Arc<AgentLoop>)>;

/// Everything that the page remembers.
#[derive(Default)]
pub(crate) struct PageMemory(Mutex<PageState>);

#[derive(Default)]
struct PageState {
    is_running: bool,
    /// The last snapshot, and when it was taken.
    before: Option<(Snapshot, u64)>,
    history: PageHistory,
    events: PageEvents,
    windows: TopWindows,
    /// Requests that could not be counted, since the start.
    missed: u64,
}

impl PageMemory {
    fn lock(&self) -> MutexGuard<'_, PageState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the thread if there is none. It ends, and everything is forgotten, when `look` has nothing.
    ///
    /// # Errors
    /// Lack of threads.
    pub(crate) fn keep_up(
        self: &Arc<Self>,
        look: impl Fn() -> PageLook + Send + 'static,
    ) -> io::Result<()> {
        let mut state = self.lock();
        if state.is_running {
            return Ok(());
        }
        let memory = Arc::clone(self);
        std::thread::Builder::new().name("page".to_owned()).spawn(move || {
            while memory.step(look()) {
                // at the same place of each second, whatever the step has taken
                let rest_ms = 1000 - clock::unix_us() / 1000 % 1000;
                std::thread::sleep(Duration::from_millis(rest_ms));
            }
        })?;
        state.is_running = true;
        Ok(())
    }

    /// Takes in what has happened since the last step. Says whether there is more to come.
    fn step(&self, seen: PageLook) -> bool {
        let Some((snapshot, serving, agent_loop)) = seen else {
            *self.lock() = PageState::default();
            return false;
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
        // a thread that comes late has less than a second to the next one: that would be a rate of little
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

    /// See [`PageHistory::json`].
    pub(super) fn history(&self, after_s: u64) -> String {
        self.lock().history.json(after_s)
    }

    /// See [`PageEvents::json`].
    pub(super) fn events(&self, after_ms: u64) -> Value {
        self.lock().events.json(after_ms)
    }

    /// Who asks most, and how many requests were missed.
    pub(super) fn largest(
        &self,
        minutes: u64,
        most: usize,
    ) -> (Vec<(TopKind, Vec<TopCount>)>, u64) {
        let state = self.lock();
        (state.windows.largest(minutes, most), state.missed)
    }
}
