//! Changes of files, of the ways to roots, of files of users: the thread that waits for them, and
//! requests that look at them first.

use super::Content;
use crate::cache::graph::Struck;
use crate::cache::watch::FileWatcher;
use crate::notice::{Notice, OpenError};
use crate::vhost::root::{Root, RootDirectory, RootLook};
use std::convert::Infallible;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// The longest time between two looks at what no event reports.
const TICK: Duration = Duration::from_secs(1);
/// The number of ticks between two sweeps of what is watched.
const SWEEP_TICKS: u32 = 60;
/// The largest number of batches of changes that one request takes: four of the kernel's queues,
/// with its defaults.
const MOST_BATCHES: u32 = 64;
/// The time after a change for which requests wait for the look at the roots. It is bounded as a
/// root may be on a file system that hangs.
const LOOK_PATIENCE: Duration = Duration::from_secs(2);

/// The state of looks at the roots, which one thread at a time does: which changes have been seen.
#[derive(Debug, Default)]
pub(super) struct RootLooks {
    state: Mutex<LookState>,
    seen: Condvar,
}

#[derive(Debug, Default)]
struct LookState {
    /// Changes so far that may concern roots, and how many of them were looked at.
    found: u64,
    seen: u64,
    /// The time of the first change that has not been looked at.
    since: Option<Instant>,
    is_looking: bool,
}

/// The condition that a request waits for: the number of changes that must have been looked at, and
/// a time to give up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AwaitedLook {
    found: u64,
    until: Instant,
}

impl LookState {
    fn is_due(&self) -> bool {
        self.seen < self.found
    }

    /// The condition for a request that comes now.
    fn awaited(&self) -> Option<AwaitedLook> {
        let left = LOOK_PATIENCE.checked_sub(self.since?.elapsed())?;
        Some(AwaitedLook { found: self.found, until: Instant::now() + left })
    }
}

impl RootLooks {
    fn state(&self) -> MutexGuard<'_, LookState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a change may concern a root.
    fn strike(&self) {
        let mut state = self.state();
        state.found += 1;
        state.since.get_or_insert_with(Instant::now);
    }

    /// Whether the caller must [look](RootLooks::look): a look is due, or it is a tick, and no
    /// thread looks already.
    fn begin(&self, is_tick: bool) -> bool {
        let mut state = self.state();
        let begins = !state.is_looking && (is_tick || state.is_due());
        state.is_looking |= begins;
        begins
    }

    /// Calls `look`, and again if changes came meanwhile.
    fn look(&self, look: impl Fn()) {
        let _gives_up = GivesUp(self);
        let mut state = self.state();
        loop {
            let found = state.found;
            drop(state);
            look();
            state = self.state();
            state.seen = found;
            state.since = state.is_due().then(Instant::now);
            self.seen.notify_all();
            if !state.is_due() {
                break;
            }
        }
        state.is_looking = false;
    }

    /// Leaves the look to the next tick, as the thread for it could not be started. No request
    /// waits for that.
    fn give_up(&self) {
        let mut state = self.state();
        (state.seen, state.since, state.is_looking) = (state.found, None, false);
    }

    fn wait(&self, awaited: AwaitedLook) {
        let mut state = self.state();
        while state.seen < awaited.found
            && let Some(left) = awaited.until.checked_duration_since(Instant::now())
        {
            let waited = self.seen.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Gives a look up if it panics.
struct GivesUp<'l>(&'l RootLooks);

impl Drop for GivesUp<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.give_up();
        }
    }
}

impl Content {
    pub(super) fn start_watching(
        self: &Arc<Content>,
        watcher: Option<Arc<FileWatcher>>,
        gone: Receiver<Infallible>,
    ) -> Result<(), OpenError> {
        self.look_at_roots();
        let content = Arc::downgrade(self);
        let thread = std::thread::Builder::new().name("watch".to_owned());
        let run = move || {
            watch(&content, watcher.as_deref());
            // until the content has let go of its watcher
            let _ = gone.recv();
        };
        thread.spawn(run).map_err(|error| OpenError::Thread { error })?;
        Ok(())
    }

    /// Roots and the numbers of their sites.
    fn places(&self) -> impl Iterator<Item = (u32, &RootDirectory)> {
        let sites = (0..).zip(&self.vhosts);
        sites.flat_map(|(site, vhost)| vhost.mounts.iter().map(move |at| (site, &at.place)))
    }

    /// Follows the roots' paths anew, and drops what came from a root that serves no longer.
    fn look_at_roots(&self) {
        // First the signposts, then the look, so that a change between the two is reported. A path
        // that leads elsewhere has other signposts. What changes faster than that is looked at in a
        // tick.
        for _ in 0..4 {
            if let Some(watcher) = &self.watcher {
                let signposts = self.places().flat_map(|(_, place)| place.signposts());
                watcher.set_signposts(signposts);
            }
            let changed = self.places().filter(|(site, place)| self.look_at_root(*site, place));
            if changed.count() == 0 {
                return;
            }
        }
    }

    /// Looks at the roots, if that is due or `is_tick`, and no other thread does so already.
    fn look_in_turn(&self, is_tick: bool) {
        if self.root_looks.begin(is_tick) {
            self.root_looks.look(|| self.look_at_roots());
        }
    }

    /// Reads the files of users that changed, as is done once a second anyway. May block.
    pub fn look_at_users(&self) {
        for (file, error) in self.realms.look() {
            (self.notice)(Notice::Users { file, error });
        }
    }

    /// Whether the path leads to another directory than before.
    fn look_at_root(&self, site: u32, place: &RootDirectory) -> bool {
        let root = place.configured.clone();
        match place.look() {
            RootLook::Same | RootLook::StillMissing => false,
            RootLook::Missing(error) => {
                self.flush(site, &place.current());
                (self.notice)(Notice::RootMissing { root, error });
                false
            }
            RootLook::Changed(before) => {
                self.known_hashes.forget();
                self.flush(site, &before);
                (self.notice)(Notice::RootChanged { root });
                true
            }
        }
    }

    fn flush(&self, site: u32, before: &Root) {
        // The lock keeps answers of the old root out of the store from now on.
        let mut graph = self.watcher.as_ref().map(|watcher| watcher.graph());
        let mut struck = Struck::default();
        if let Some(graph) = &mut graph {
            graph.forget_root(before.number, &mut struck);
        }
        self.strike(struck);
        self.invalidated.fetch_add(self.store.flush(site), Relaxed);
    }

    /// Applies the changes that happened before now, so that an answer from here is no older than
    /// one from another process. If a root's path may lead elsewhere, a thread of its own looks at
    /// it, and the request must [wait](Content::wait_for_roots).
    ///
    /// A system call.
    pub(crate) fn catch_up(self: &Arc<Content>) -> Option<AwaitedLook> {
        let watcher = self.watcher.as_ref()?;
        for _ in 0..MOST_BATCHES {
            if !self.take_events(watcher) {
                break;
            }
        }
        if self.root_looks.begin(false) {
            let content = Arc::clone(self);
            let look = move || content.root_looks.look(|| content.look_at_roots());
            if std::thread::Builder::new().name("roots".to_owned()).spawn(look).is_err() {
                self.root_looks.give_up();
            }
        }
        self.root_looks.state().awaited()
    }

    /// Waits until the roots were looked at, but not for long.
    pub(crate) fn wait_for_roots(&self, awaited: AwaitedLook) {
        self.root_looks.wait(awaited);
    }

    /// Applies a batch of the changes that happened. Returns whether there may be more.
    fn take_events(&self, watcher: &FileWatcher) -> bool {
        let batch = watcher.take_events(|struck| {
            if self.strike(struck) {
                self.root_looks.strike();
            }
        });
        if batch.is_lost {
            self.say_once(Notice::EventsLost);
        }
        batch.is_full
    }
}

/// Waits for changes, until the content is gone or retired.
fn watch(content: &Weak<Content>, watcher: Option<&FileWatcher>) {
    let mut ticked = Instant::now();
    let mut ticks = 0u32;
    loop {
        let left = TICK.saturating_sub(ticked.elapsed());
        let left_ms = u64::try_from(left.as_millis()).unwrap_or(0) + 1;
        let is_ready = match watcher {
            Some(watcher) => watcher.wait(left_ms),
            None => {
                std::thread::sleep(left);
                false
            }
        };
        let Some(content) = content.upgrade() else { return };
        if content.is_retired.load(Relaxed) {
            return;
        }
        if let Some(watcher) = watcher.filter(|_| is_ready) {
            content.take_events(watcher);
            content.look_in_turn(false);
        }
        if ticked.elapsed() < TICK {
            continue;
        }
        ticked = Instant::now();
        content.look_in_turn(true);
        content.look_at_users();
        if let Some(watcher) = watcher {
            ticks = ticks.wrapping_add(1);
            watcher.tidy(ticks.is_multiple_of(SWEEP_TICKS));
            watcher.tick();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;
    use std::thread;

    #[test]
    fn one_looks_at_a_time_and_again_for_what_was_found_meanwhile() {
        let looks = RootLooks::default();
        assert!(!looks.begin(false), "nothing is due");
        looks.strike();
        assert!(looks.begin(false) && !looks.begin(false) && !looks.begin(true));
        let times = AtomicU32::new(0);
        looks.look(|| {
            assert!(looks.state().awaited().is_some(), "requests wait");
            if times.fetch_add(1, Relaxed) == 0 {
                looks.strike();
            }
        });
        assert_eq!(times.into_inner(), 2);
        assert!(looks.state().awaited().is_none() && !looks.begin(false));
        assert!(looks.begin(true), "it is time");
        looks.give_up();
        assert!(looks.begin(true));
    }

    #[test]
    fn a_look_that_panics_is_given_up() {
        let looks = RootLooks::default();
        looks.strike();
        assert!(looks.begin(false));
        thread::scope(|scope| {
            let look = || looks.look(|| panic!("this is tested"));
            assert!(scope.spawn(look).join().is_err());
        });
        assert!(looks.state().awaited().is_none() && !looks.begin(false), "nobody waits");
        assert!(looks.begin(true), "but at the next tick somebody looks");
    }

    #[test]
    fn requests_wait_for_a_look_but_not_for_one_that_hangs() {
        let looks = RootLooks::default();
        looks.strike();
        let awaited = looks.state().awaited().unwrap();
        assert!(looks.begin(false));
        thread::scope(|scope| {
            let waits = scope.spawn(|| looks.wait(awaited));
            looks.look(|| thread::sleep(Duration::from_millis(20)));
            waits.join().unwrap();
        });
        looks.strike();
        // a request that waited for an earlier look does not wait for this one
        looks.wait(AwaitedLook { until: Instant::now() + Duration::from_secs(3600), ..awaited });
        let (struck, awaited) = (Instant::now(), looks.state().awaited().unwrap());
        looks.wait(awaited);
        assert!(struck.elapsed() >= LOOK_PATIENCE / 2, "nobody has looked");
        assert!(looks.state().awaited().is_none(), "nobody waits any more");
        assert!(looks.begin(false), "and it is still due");
    }
}
