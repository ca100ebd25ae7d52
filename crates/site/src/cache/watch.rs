//! Watching the directories on the way to a file, and passing changes on to the graph.

use crate::bodies::forms::{ExpectedForms, MOST_NAMES};
use crate::cache::graph::{Graph, Registration, Signposts, Struck};
use crate::notice::Notice;
use crate::vhost::root::Root;
use forebay_sys::file::{self, FileKind, Stamp};
use forebay_sys::watch::{Watch, WatchEvent, WatchId, WatchInterest};
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Links followed on one path, as in the kernel.
const MOST_LINKS: u32 = 40;
/// Events handled before the lock is released once.
const BATCH: usize = 1024;
/// The number of ticks for which nothing is watched after events were lost.
const SUSPENDED_TICKS: u32 = 10;

/// The watched directories and what depends on them.
#[derive(Debug)]
pub(crate) struct FileWatcher {
    watch: Watch,
    graph: Mutex<Graph>,
    /// Held by the thread that takes events, until it has done what follows from them.
    taking: Mutex<()>,
    most_directories: usize,
    /// The number of ticks left in which nothing is watched.
    suspended_ticks: AtomicU32,
}

/// The state of the event queue after one batch of changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Batch {
    /// Events were lost.
    pub(crate) is_lost: bool,
    /// There may be more.
    pub(crate) is_full: bool,
}

/// The reason why changes on the way to a file will not all be reported.
#[derive(Debug)]
pub(crate) enum Untold {
    /// Nothing is watched for now.
    Suspended,
    /// A directory changed while its watch was being set up.
    Moved,
    /// The operator should know.
    Notice(Notice),
}

/// The findings on the way to a path.
#[derive(Debug, Default)]
pub(crate) struct PathLook {
    /// The stamp of the file at the path's end, if it is a file and no link led there.
    pub(crate) stamp: Option<Stamp>,
    /// The file's precompressed forms that may be there.
    pub(crate) forms: Option<ExpectedForms>,
    /// The directory of the path's last name, if it is worth reading.
    pub(crate) unread: Option<Unread>,
}

/// A watched directory that is worth reading.
#[derive(Debug)]
pub(crate) struct Unread {
    directory: WatchId,
    /// The directory's path from the root, free of links.
    place: Vec<u8>,
}

impl FileWatcher {
    pub(crate) fn new(most_directories: usize) -> io::Result<FileWatcher> {
        let (graph, taking, suspended_ticks) = Default::default();
        Ok(FileWatcher { watch: Watch::new()?, graph, taking, most_directories, suspended_ticks })
    }

    /// The lock under which tickets change. Nothing that may block is done while it is held.
    pub(crate) fn graph(&self) -> MutexGuard<'_, Graph> {
        // A panic while it was held leaves at worst a registration too many.
        self.graph.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits at most `timeout_ms` for changes. Returns whether there are some.
    pub(crate) fn wait(&self, timeout_ms: u64) -> bool {
        // The only errors are those of a wrong call; a wait without end would be worse.
        self.watch.wait(timeout_ms).unwrap_or_else(|_| {
            std::thread::sleep(std::time::Duration::from_millis(timeout_ms));
            false
        })
    }

    /// Applies one batch of changes, if there are some. `strike` gets their effects while the lock
    /// is still held, so a thread that takes events after another finds the first one's work done.
    pub(crate) fn take_events(&self, strike: impl FnOnce(Struck)) -> Batch {
        let mut struck = Struck::default();
        let (mut is_lost, mut count) = (false, 0);
        let _taking = self.taking.lock().unwrap_or_else(PoisonError::into_inner);
        // where nothing has happened no thread waits for the graph
        let mut locked = None;
        let outcome = self.watch.read(BATCH, |event| {
            count += 1;
            let graph = locked.get_or_insert_with(|| self.graph());
            match event {
                WatchEvent::Name(directory, name) => {
                    graph.strike_name(directory, name, &mut struck);
                }
                WatchEvent::Itself(directory) => graph.strike_directory(directory, &mut struck),
                WatchEvent::Forgotten(directory) => graph.strike_forgotten(directory, &mut struck),
                WatchEvent::Lost => is_lost = true,
            }
        });
        if outcome.is_err() || is_lost {
            is_lost = true;
            self.lose(locked.get_or_insert_with(|| self.graph()), &mut struck);
        }
        if locked.is_some() {
            strike(struck);
        }
        Batch { is_lost, is_full: count >= BATCH }
    }

    /// Starts over with nothing watched, as anything may have changed.
    fn lose(&self, graph: &mut Graph, struck: &mut Struck) {
        self.suspended_ticks.store(SUSPENDED_TICKS, Relaxed);
        self.unwatch(graph.strike_all(struck));
    }

    /// Acts as if the kernel's queue had overflowed.
    #[cfg(test)]
    pub(crate) fn overflow(&self, strike: impl FnOnce(Struck)) {
        let mut struck = Struck::default();
        let mut graph = self.graph();
        self.lose(&mut graph, &mut struck);
        strike(struck);
    }

    /// Forgets everything, and watches nothing from now on.
    pub(crate) fn retire(&self, struck: &mut Struck) {
        self.lose(&mut self.graph(), struck);
    }

    /// Counts a tick: some time after events were lost, directories are watched again.
    pub(crate) fn tick(&self) {
        let left = |ticks: u32| ticks.checked_sub(1);
        let _ = self.suspended_ticks.fetch_update(Relaxed, Relaxed, left);
    }

    /// Forgets registrations that are not needed any more, if there are many or `is_due` says so.
    pub(crate) fn tidy(&self, is_due: bool) {
        let mut graph = self.graph();
        if is_due || graph.wants_sweep() {
            self.unwatch(graph.sweep());
        }
    }

    fn unwatch(&self, directories: Vec<WatchId>) {
        for directory in directories {
            // It may be gone already, which the kernel has reported or is about to report.
            let _ = self.watch.remove(directory);
        }
    }

    /// Watches the names that decide where a root's path leads. Names that cannot be watched are
    /// found by the periodic look at the root. However many roots there are, one descriptor is open
    /// at a time.
    pub(crate) fn set_signposts(&self, names: impl IntoIterator<Item = (PathBuf, Vec<u8>)>) {
        let mut by_path: HashMap<PathBuf, HashSet<Vec<u8>>> = HashMap::new();
        for (path, name) in names {
            by_path.entry(path).or_default().insert(name);
        }
        let mut signposts = Signposts::new();
        for (path, names) in by_path {
            let Ok(directory) = file::open_directory(&path) else { continue };
            if !file::reports_changes(directory.as_fd()).unwrap_or(false) {
                continue;
            }
            let mut graph = self.graph();
            if let Ok(watched) = self.watch.add(directory.as_fd(), WatchInterest::Names) {
                graph.add_signposts(watched, names.iter().cloned());
                signposts.entry(watched).or_default().extend(names);
            }
        }
        self.graph().set_signposts(signposts);
    }

    /// Registers `ticket` everywhere on the way from `root` to `path`, so that whatever changes
    /// where the path leads, and whatever happens to precompressed forms of it, from now on voids it.
    ///
    /// Follows by hand the way that the kernel takes when it opens the path: a link is registered
    /// and then followed. Ends at the first name that is not there.
    pub(crate) fn follow(
        &self,
        root: &Root,
        path: &[u8],
        ticket: &Arc<Registration>,
        with_forms: bool,
    ) -> Result<PathLook, Untold> {
        if self.suspended_ticks.load(Relaxed) > 0 {
            return Err(Untold::Suspended);
        }
        let top = self.enter_root(root)?;
        let mut walk = Walk {
            watcher: self,
            root,
            ticket,
            above: Vec::new(),
            at: top,
            crossed: Vec::new(),
            place: Vec::new(),
            links: 0,
            with_forms,
            way: PathLook::default(),
        };
        walk.go(path)?;
        walk.finish()
    }

    /// Reads a directory, so that precompressed forms need not be looked for in it.
    pub(crate) fn read(&self, root: &Root, unread: &Unread) {
        let names = self.names(root, unread);
        self.graph().learn(unread.directory, names);
    }

    fn names(&self, root: &Root, unread: &Unread) -> Option<Vec<Vec<u8>>> {
        let Unread { directory, place } = unread;
        let place = place.strip_suffix(b"/").unwrap_or(place);
        let opened = file::open_beneath(root.directory.as_fd(), place).ok()?;
        {
            // another directory may be in this place by now, which must not be watched
            let graph = self.graph();
            let found = self.watch.add(opened.as_fd(), WatchInterest::Names).ok()?;
            if found != *directory {
                if !graph.contains(found) {
                    self.unwatch(vec![found]);
                }
                return None;
            }
        }
        let (names, are_all) = file::names(opened.as_fd(), MOST_NAMES).ok()?;
        are_all.then_some(names)
    }

    fn enter_root(&self, root: &Root) -> Result<WatchId, Untold> {
        if let Some(directory) = self.graph().root(root.number) {
            return Ok(directory);
        }
        self.check_silence(root.directory.as_fd(), b"")?;
        let mut graph = self.graph();
        let directory = self.watch_directory(&mut graph, root.directory.as_fd(), b"")?;
        graph.set_root(root.number, directory);
        Ok(directory)
    }

    fn check_silence(&self, directory: BorrowedFd<'_>, place: &[u8]) -> Result<(), Untold> {
        if file::reports_changes(directory).unwrap_or(false) {
            return Ok(());
        }
        Err(Untold::Notice(Notice::SilentFileSystem { directory: display(place) }))
    }

    /// The graph stays locked until the directory is in it: its first event finds it there.
    fn watch_directory(
        &self,
        graph: &mut Graph,
        directory: BorrowedFd<'_>,
        place: &[u8],
    ) -> Result<WatchId, Untold> {
        if graph.len() >= self.most_directories {
            self.unwatch(graph.sweep());
        }
        if graph.len() >= self.most_directories {
            let watched_directories = self.most_directories;
            return Err(Untold::Notice(Notice::TooManyDirectories { watched_directories }));
        }
        match self.watch.add(directory, WatchInterest::Content) {
            Ok(directory) => {
                graph.add(directory);
                Ok(directory)
            }
            Err(error) => {
                let directory = display(place);
                Err(Untold::Notice(Notice::CannotWatchDirectory { directory, error }))
            }
        }
    }
}

/// A path relative to the root, for messages.
fn display(place: &[u8]) -> PathBuf {
    let place = if place.is_empty() { b"." } else { place };
    Path::new(OsStr::from_bytes(place)).to_owned()
}

/// One way from the root to a file.
struct Walk<'w> {
    watcher: &'w FileWatcher,
    root: &'w Root,
    ticket: &'w Arc<Registration>,
    /// The directories above this one, each with the length of its place.
    above: Vec<(WatchId, usize)>,
    at: WatchId,
    /// The places where the way led from one directory into another. The ticket is registered there
    /// too until the walk is over: an unnoticed change would leave it in a directory that the path
    /// does not lead to any more.
    crossed: Vec<(WatchId, Vec<u8>)>,
    /// The path of `at` from the root, free of links; empty or ends in a slash.
    place: Vec<u8>,
    /// Links followed.
    links: u32,
    /// Whether precompressed forms will be looked for.
    with_forms: bool,
    way: PathLook,
}

/// The target of one name.
enum Lead {
    Down(WatchId),
    Link(Vec<u8>),
    End,
}

impl Walk<'_> {
    fn go(&mut self, path: &[u8]) -> Result<(), Untold> {
        let mut names: Vec<Vec<u8>> = Vec::new();
        push_names(path, &mut names);
        while let Some(name) = self.descend_known(&mut names)? {
            match self.lead(&name, names.is_empty())? {
                Lead::End => return Ok(()),
                Lead::Down(directory) => {
                    self.crossed.push((self.at, name.clone()));
                    self.enter(directory, &name);
                }
                Lead::Link(target) => {
                    self.links += 1;
                    // The kernel refuses both: too many links, and a way out of the root.
                    if self.links > MOST_LINKS || target.starts_with(b"/") {
                        return Ok(());
                    }
                    push_names(&target, &mut names);
                }
            }
        }
        Ok(())
    }

    /// Ends the walk: all of the way is watched, unless it changed meanwhile.
    fn finish(self) -> Result<PathLook, Untold> {
        if !self.crossed.is_empty() {
            let mut graph = self.watcher.graph();
            for (directory, name) in &self.crossed {
                graph.release(*directory, name, self.ticket);
            }
        }
        if self.ticket.is_void() {
            return Err(Untold::Moved);
        }
        Ok(self.way)
    }

    /// Goes down as far as targets of names are known. Registers the ticket under the name where
    /// that ends, and returns the name; `None` at the end of the path.
    ///
    /// The names before it need no registration: under one lock nothing changes between them, and a
    /// change after that reaches all that is registered below.
    fn descend_known(&mut self, names: &mut Vec<Vec<u8>>) -> Result<Option<Vec<u8>>, Untold> {
        let mut graph = self.watcher.graph();
        while let Some(name) = names.pop() {
            if name == b".." {
                let Some((directory, len)) = self.above.pop() else { return Ok(None) };
                self.at = directory;
                self.place.truncate(len);
                continue;
            }
            let is_last = names.is_empty();
            if let Some(child) = graph.child(self.at, &name).filter(|_| !is_last) {
                self.enter(child, &name);
                continue;
            }
            if !graph.register(self.at, &name, self.ticket) {
                return Err(Untold::Moved);
            }
            // the file that a link at the end leads to has forms of its own, which are not the
            // path's
            if is_last && self.with_forms && self.way.forms.is_none() {
                let forms = graph.expected(self.at, &name);
                self.way.forms = Some(forms);
                if forms == ExpectedForms::ReadFirst {
                    let (directory, place) = (self.at, self.place.clone());
                    self.way.unread = Some(Unread { directory, place });
                }
            }
            return Ok(Some(name));
        }
        Ok(None)
    }

    fn enter(&mut self, directory: WatchId, name: &[u8]) {
        self.above.push((self.at, self.place.len()));
        self.at = directory;
        self.place.extend_from_slice(name);
        self.place.push(b'/');
    }

    /// The target of a name that is registered.
    fn lead(&mut self, name: &[u8], is_last: bool) -> Result<Lead, Untold> {
        let path = [&self.place, name].concat();
        let root = self.root.directory.as_fd();
        // The directories on the way are known, so this is not elsewhere; and should they change this
        // moment, what is opened is not what was seen.
        if is_last
            && self.links == 0
            && let Ok(stamp) = file::stamp_at(root, &path)
            && stamp.kind == FileKind::Regular
        {
            self.way.stamp = Some(stamp);
            return Ok(Lead::End);
        }
        // Whatever the error is, the name is registered, and the kernel will say it again.
        let Ok(found) = file::find_link_beneath(root, &path) else { return Ok(Lead::End) };
        let Ok(stamp) = file::stamp(found.as_fd()) else { return Ok(Lead::End) };
        match stamp.kind {
            FileKind::Link => Ok(file::link_target(found.as_fd()).map_or(Lead::End, Lead::Link)),
            FileKind::Directory if !is_last => self.descend(found.as_fd(), name, &path),
            _ => Ok(Lead::End),
        }
    }

    /// Watches the subdirectory that was found under `name`.
    fn descend(&self, found: BorrowedFd<'_>, name: &[u8], path: &[u8]) -> Result<Lead, Untold> {
        self.watcher.check_silence(found, path)?;
        let mut graph = self.watcher.graph();
        if self.ticket.is_void() {
            return Err(Untold::Moved);
        }
        let child = self.watcher.watch_directory(&mut graph, found, path)?;
        graph.descend(self.at, name, child);
        Ok(Lead::Down(child))
    }
}

/// Pushes the names of `path`, the first one last.
fn push_names(path: &[u8], names: &mut Vec<Vec<u8>>) {
    let parts = path.split(|&b| b == b'/').rev();
    names.extend(parts.filter(|name| !name.is_empty() && *name != b".").map(<[u8]>::to_vec));
}
