//! Files with the clients that are banned: how they are read, and the thread that notices when they
//! change.
//!
//! In: the paths of `policy.ban_files`. Out: bans with the place of each, or the first error, by
//! file and line. After an error the bans in force stay.

use forebay_policy::bans::{BanLineError, BanOrigin, BanRecord, parse_lines};
use forebay_sys::file::open_regular;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use std::{fmt, fs};

/// The largest size of a file, in bytes.
const LONGEST: u64 = 16 << 20;

/// How often the thread looks whether a file has changed. A file that is being written is read once
/// it has stayed the same for this long.
const INTERVAL: Duration = Duration::from_millis(500);

/// The bans that files state, each with its file and line.
pub type SaidBans = Vec<(BanRecord, BanOrigin)>;

/// Why a file cannot be used.
#[derive(Debug)]
pub struct BanFileError {
    path: PathBuf,
    fault: BanFileFault,
}

#[derive(Debug)]
enum BanFileFault {
    Unreadable(io::Error),
    TooLong,
    Line(BanLineError),
}

impl fmt::Display for BanFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.fault {
            BanFileFault::Unreadable(error) => {
                write!(f, "{path}: cannot be read: {error}")?;
                match error.kind() {
                    io::ErrorKind::PermissionDenied => {
                        f.write_str("; the user of the server must be able to read it")
                    }
                    _ => Ok(()),
                }
            }
            BanFileFault::TooLong => write!(f, "{path}: is longer than {} MiB", LONGEST >> 20),
            BanFileFault::Line(error) => write!(f, "{path}:{}: {error}", error.line),
        }
    }
}

impl std::error::Error for BanFileError {}

/// Reads the bans of one file.
///
/// # Errors
/// Why the file cannot be used.
pub fn read_one(path: &Path) -> Result<SaidBans, BanFileError> {
    let wrong = |fault| BanFileError { path: path.to_owned(), fault };
    let mut bytes = Vec::new();
    let read = open_regular(path).and_then(|file| file.take(LONGEST + 1).read_to_end(&mut bytes));
    read.map_err(|error| wrong(BanFileFault::Unreadable(error)))?;
    if bytes.len() as u64 > LONGEST {
        return Err(wrong(BanFileFault::TooLong));
    }
    let said = parse_lines(&bytes).map_err(|error| wrong(BanFileFault::Line(error)))?;
    let file: Arc<str> = path.display().to_string().into();
    let placed = |(line, record)| (record, BanOrigin::File { file: Arc::clone(&file), line });
    Ok(said.into_iter().map(placed).collect())
}

/// Reads the bans of all files.
///
/// # Errors
/// Why one of the files cannot be used.
pub fn read(paths: &[PathBuf]) -> Result<SaidBans, BanFileError> {
    let said = paths.iter().map(|path| read_one(path)).collect::<Result<Vec<_>, _>>()?;
    Ok(said.concat())
}

/// What distinguishes a file or its content from another; `None` where there is no file.
type ListStamp = Option<(u64, u64, u64, i64, i64, i64, i64)>;

fn stamps(paths: &[PathBuf]) -> Vec<ListStamp> {
    let stamp = |path: &PathBuf| {
        let found = fs::metadata(path).ok()?;
        let modified = (found.mtime(), found.mtime_nsec());
        let (device, inode, size) = (found.dev(), found.ino(), found.size());
        Some((device, inode, size, modified.0, modified.1, found.ctime(), found.ctime_nsec()))
    };
    paths.iter().map(stamp).collect()
}

/// The files that are watched, shared by the thread that looks at them and the callers that name
/// others.
#[derive(Debug, Default)]
pub struct WatchedBanFiles(Mutex<WatchedFiles>);

#[derive(Debug, Default)]
struct WatchedFiles {
    paths: Vec<PathBuf>,
    /// The stamps of the files when they were read, or when an error in them was reported.
    stamps: Vec<ListStamp>,
    /// Whether a thread looks at the files.
    is_watched: bool,
}

/// What files say after a change.
#[derive(Debug)]
pub struct ChangedBans {
    /// The files that were read.
    pub paths: Vec<PathBuf>,
    /// The bans in them, or the first error.
    pub said: Result<SaidBans, BanFileError>,
}

impl WatchedBanFiles {
    fn lock(&self) -> MutexGuard<'_, WatchedFiles> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches these files from now on. Their bans have just been read, or are about to be. If a
    /// thread is needed to look at the files, it calls `tell` whenever they have changed, until
    /// `tell` returns `false`.
    ///
    /// # Errors
    /// Lack of threads: changes are not noticed.
    pub fn watch(
        self: &Arc<WatchedBanFiles>,
        paths: &[PathBuf],
        tell: impl Fn(ChangedBans) -> bool + Send + 'static,
    ) -> io::Result<()> {
        let mut files = self.lock();
        if files.paths != paths {
            files.paths = paths.to_owned();
            files.stamps.clear();
        }
        if paths.is_empty() || files.is_watched {
            return Ok(());
        }
        let watched = Arc::downgrade(self);
        let thread = std::thread::Builder::new().name("ban files".to_owned());
        thread.spawn(move || look(&watched, tell))?;
        files.is_watched = true;
        Ok(())
    }

    /// Looks once. Returns `false` if there are no files any more, or if `tell` wants no more
    /// changes.
    fn look(&self, before: &mut Vec<ListStamp>, tell: &impl Fn(ChangedBans) -> bool) -> bool {
        let paths = {
            let mut files = self.lock();
            if files.paths.is_empty() {
                files.is_watched = false;
                return false;
            }
            files.paths.clone()
        };
        let now = stamps(&paths);
        // the lock is not held while the disk is read: a slow file system blocks no other thread
        let is_other = {
            let files = self.lock();
            files.paths == paths && files.stamps != now
        };
        let mut is_heard = true;
        if is_other && now == *before {
            let said = read(&paths);
            let mut files = self.lock();
            if files.paths == paths {
                files.stamps.clone_from(&now);
                drop(files);
                is_heard = tell(ChangedBans { paths, said });
            }
        }
        *before = now;
        is_heard
    }
}

/// Looks at the files until there are none any more, or the server is gone.
fn look(watched: &Weak<WatchedBanFiles>, tell: impl Fn(ChangedBans) -> bool) {
    let mut before = Vec::new();
    while watched.upgrade().is_some_and(|watched| watched.look(&mut before, &tell)) {
        std::thread::sleep(INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn a_file_that_changes_is_read_again_and_what_is_wrong_is_named() {
        let directory = std::env::temp_dir().join(format!("forebay-bans-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let file = directory.join("bad.txt");
        fs::write(&file, "192.0.2.1\n").unwrap();
        let (told, changes) = channel();
        let watched = Arc::new(WatchedBanFiles::default());
        let tell = move |changed: ChangedBans| told.send(changed.said).is_ok();
        watched.watch(std::slice::from_ref(&file), tell.clone()).unwrap();
        let next = || changes.recv_timeout(Duration::from_secs(60)).unwrap();
        // what has changed between the first reading and the first look is not missed
        assert_eq!(next().unwrap().len(), 1);
        fs::write(&file, "192.0.2.1\n192.0.2.2 # two\n").unwrap();
        let said = next().unwrap();
        let origin = BanOrigin::File { file: file.display().to_string().into(), line: 2 };
        assert_eq!((said[1].0.why.as_str(), &said[1].1), ("two", &origin));
        fs::write(&file, "192.0.2.1\nnobody\n").unwrap();
        let error = next().unwrap_err().to_string();
        assert!(error.starts_with(&format!("{}:2: \"nobody\": ", file.display())), "{error}");
        fs::remove_file(&file).unwrap();
        assert!(next().unwrap_err().to_string().contains("cannot be read"));
        // without files there is no thread
        watched.watch(&[], tell).unwrap();
        assert!(changes.recv_timeout(Duration::from_secs(60)).is_err(), "the thread has ended");
        fs::remove_dir_all(&directory).unwrap();
    }
}
