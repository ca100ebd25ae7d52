//! Watches the files of certificates, keys and tokens for changes and removal: when the kernel
//! reports a change in their directories, and at intervals, for file systems that report nothing
//! and links that have moved.

use forebay_handler::certificates::{Certificates, Stamps};
use forebay_handler::live::LiveSnapshot;
use forebay_sys::file;
use forebay_sys::stderr::say;
use forebay_sys::watch::{Watch, WatchInterest};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often the files are looked at without a report of the kernel.
const INTERVAL_MS: u64 = 60_000;

/// How often the thread looks whether a reload has named other files.
const STEP_MS: u64 = 1000;

/// How long nothing must have changed before a certificate is looked at: its key may follow.
const QUIET_MS: u64 = 500;

/// The longest wait for that quiet; then the files are looked at, however much changes beside them.
const MOST_NOISE: Duration = Duration::from_secs(5);

/// The largest number of files that a report names.
const MOST_TOLD: usize = 20;

/// Starts a thread that calls `tell` whenever files of the certificates in force have changed,
/// until `tell` returns `false` or the server is gone. `is_stage` says whether a supervisor starts
/// this process anew, as root, at a reload.
///
/// # Errors
/// Lack of threads.
pub fn start(
    live: &Arc<LiveSnapshot>,
    is_stage: bool,
    tell: impl Fn() -> bool + Send + 'static,
) -> io::Result<()> {
    let thread = std::thread::Builder::new().name("certificates".to_owned());
    // the descriptor is opened before clients take them; without a watch there is the interval
    let watch = Watch::new().ok();
    let live = Arc::downgrade(live);
    let in_force = move || Some(Arc::clone(&live.upgrade()?.get().certificates));
    thread.spawn(move || {
        let mut told: Option<Stamps> = None;
        let mut missing = BTreeSet::new();
        if let Some(certificates) = in_force() {
            say_unreadable(&certificates, is_stage);
        }
        loop {
            wait(watch.as_ref(), &in_force, told.as_ref(), &missing);
            let Some(certificates) = in_force() else { return };
            missing = say_missing(&certificates, &missing);
            let (read, now) = (certificates.stamps(), certificates.stamps_now());
            // a change that was reported and not taken over is reported again after the next change
            if now == read || told.as_ref() == Some(&now) {
                continue;
            }
            told = Some(now);
            if !tell() {
                return;
            }
        }
    })?;
    Ok(())
}

/// Reports the files that only root could read, at the start.
fn say_unreadable(certificates: &Certificates, is_stage: bool) {
    let what_helps = match is_stage {
        true => "run forebay reload after it changes, or give it to a group of that user",
        false => {
            "when it changes, a restart takes it over, a reload cannot; give it to a group of that \
             user"
        }
    };
    let is_denied = |path: &&PathBuf| {
        File::open(path).is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
    };
    let files: BTreeSet<&PathBuf> = certificates.files().collect();
    for path in files.into_iter().filter(is_denied).take(MOST_TOLD) {
        say(format_args!("the user of the server may not read {path:?}: {what_helps}"));
    }
}

/// Reports the files that have gone since the last look, and those that are back. Returns the
/// missing files.
fn say_missing(certificates: &Certificates, before: &BTreeSet<PathBuf>) -> BTreeSet<PathBuf> {
    let now = certificates.missing();
    for path in now.difference(before).take(MOST_TOLD) {
        say(format_args!(
            "the file {path:?} is gone: what is in force is kept; a restart or a reload would fail"
        ));
    }
    // a file that the configuration no longer names is not reported
    let back = |path: &&&PathBuf| certificates.files().any(|file| file == **path);
    for path in before.difference(&now).filter(|path| back(&path)).take(MOST_TOLD) {
        say(format_args!("the file {path:?} is back"));
    }
    now
}

/// Waits until something has changed in the directories of the files and then nothing more, or
/// until the interval is over. Returns at once if something unreported changed before the
/// directories were watched.
fn wait(
    watch: Option<&Watch>,
    in_force: &impl Fn() -> Option<Arc<Certificates>>,
    told: Option<&Stamps>,
    missing: &BTreeSet<PathBuf>,
) {
    let Some(watch) = watch else {
        return std::thread::sleep(Duration::from_millis(INTERVAL_MS));
    };
    let Some(certificates) = in_force() else { return };
    // watched anew each time: directories are replaced, and links lead elsewhere
    for directory in directories(&certificates) {
        let opened = file::open_directory(&directory);
        let _ = opened.and_then(|directory| watch.add(directory.as_fd(), WatchInterest::Content));
    }
    let now = certificates.stamps_now();
    let has_changed = now != certificates.stamps() && told != Some(&now);
    if has_changed || certificates.missing() != *missing {
        // files are written one after another
        return std::thread::sleep(Duration::from_millis(QUIET_MS));
    }
    let forget = || watch.read(usize::MAX, |_| {}).is_ok();
    let mut left_ms = INTERVAL_MS;
    while left_ms > 0 {
        match watch.wait(STEP_MS) {
            Ok(true) => break,
            // a reload has named other files, whose directories the next call watches; or the
            // server is gone
            Ok(false) if !in_force().is_some_and(|now| Arc::ptr_eq(&certificates, &now)) => return,
            Ok(false) => left_ms -= STEP_MS,
            Err(_) => return std::thread::sleep(Duration::from_millis(INTERVAL_MS)),
        }
    }
    if left_ms == 0 {
        return;
    }
    let began = Instant::now();
    while forget() && began.elapsed() < MOST_NOISE && matches!(watch.wait(QUIET_MS), Ok(true)) {}
}

/// The directories of the files, and those that their links lead to.
fn directories(certificates: &Certificates) -> BTreeSet<PathBuf> {
    let targets = certificates.files().filter_map(|path| fs::canonicalize(path).ok());
    let paths = certificates.files().cloned().chain(targets);
    paths.filter_map(|path| Some(path.parent()?.to_owned())).collect()
}
