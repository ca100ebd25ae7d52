//! The thread that waits for changes: of files, of the ways to roots, of files of users.

use super::Content;
use crate::graph::Struck;
use crate::notice::{Notice, OpenError};
use crate::root::{Root, RootDirectory, RootLook};
use crate::watch::FileWatcher;
use std::convert::Infallible;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Between two looks at what no event tells, at most.
const TICK: Duration = Duration::from_secs(1);
/// Without watching after events were lost, in ticks.
const SUSPENDED_TICKS: u32 = 10;
/// Between two sweeps of what is watched, at most, in ticks.
const SWEEP_TICKS: u32 = 60;

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
        // First the signposts, then the look: a change between the two is told. A path that leads
        // elsewhere has other signposts. What changes faster than that is looked at in a tick.
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
                self.flush(site, &before);
                (self.notice)(Notice::RootChanged { root });
                true
            }
        }
    }

    fn flush(&self, site: u32, before: &Root) {
        // The lock keeps answers from the root before out of the store from now on.
        let mut graph = self.watcher.as_ref().map(|watcher| watcher.graph());
        let mut struck = Struck::default();
        if let Some(graph) = &mut graph {
            graph.forget_root(before.number, &mut struck);
        }
        self.strike(struck);
        self.invalidated.fetch_add(self.store.flush(site), Relaxed);
    }

    /// Applies the changes that happened; whether events were lost.
    fn take_events(&self, watcher: &FileWatcher) -> bool {
        let mut look = false;
        let is_lost = watcher.take_events(|struck| look = self.strike(struck));
        if is_lost {
            self.say_once(Notice::EventsLost);
        }
        if look {
            self.look_at_roots();
        }
        is_lost
    }
}

/// Waits for changes, until the content is gone or retired.
fn watch(content: &Weak<Content>, watcher: Option<&FileWatcher>) {
    let mut ticked = Instant::now();
    let (mut ticks, mut suspended_ticks) = (0u32, 0u32);
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
        if is_ready && watcher.is_some_and(|watcher| content.take_events(watcher)) {
            suspended_ticks = SUSPENDED_TICKS;
        }
        if ticked.elapsed() < TICK {
            continue;
        }
        ticked = Instant::now();
        content.look_at_roots();
        content.look_at_users();
        if let Some(watcher) = watcher {
            ticks = ticks.wrapping_add(1);
            watcher.tidy(ticks.is_multiple_of(SWEEP_TICKS));
            suspended_ticks = suspended_ticks.saturating_sub(1);
            if suspended_ticks == 0 {
                watcher.resume();
            }
        }
    }
}
