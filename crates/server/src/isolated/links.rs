//! The directory with the sockets of the stages, and when it is removed.
//!
//! A supervisor makes such a directory at its start and at each reload, and removes it when its
//! stages have ended. The directory of a supervisor that was killed is removed when the same user
//! starts the next: see [`Folder`]. The stages cannot remove it, because Landlock keeps them out.
//!
//! Only this user may enter the directory. Where stages run as another user (`user`), that user may
//! connect to sockets in it, and no more: no other user may change what root reads and writes
//! there.

use crate::config_file;
use forebay_config::Role;
use forebay_sys::clock;
use forebay_sys::folder::{self, Folder};
use forebay_upstream::ends::{Ends, ProcessEnd};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::net::Shutdown;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// The name of the file with the configuration that the stages share, among their sockets.
const COPY: &str = "configuration.json";

/// The name of the file in which the supervisor records how processes have ended.
const ENDS: &str = "ends";

/// The name of the socket at which stages report that they serve.
const NOTIFY: &str = "notify.sock";

/// The beginning of the directories' names; the number of the process follows, as in the names of
/// the control groups of the same stages.
const PREFIX: &str = crate::cgroups::STAGES;

/// The directory with the sockets of stages. Dropping this removes it.
pub(super) struct Links {
    folder: Folder,
    ends: File,
}

impl Links {
    /// Makes the directory. With `is_entered`, stages that run as another user may enter it.
    pub(super) fn make(is_entered: bool) -> io::Result<Links> {
        let folder = Folder::make(PREFIX, if is_entered { 0o711 } else { 0o700 })?;
        let ends = own_file().append(true).open(folder.path().join(ENDS))?;
        Ok(Links { folder, ends })
    }

    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The directory's name, which nothing else of this or another supervisor has.
    pub(super) fn name(&self) -> String {
        self.path().file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Whether the directory still exists, with these sockets in it: a job that cleans up temporary
    /// files may have removed them.
    pub(super) fn are_there(&self, mut sockets: impl Iterator<Item = PathBuf>) -> bool {
        self.folder.is_there() && sockets.all(|socket| socket.exists())
    }

    /// Writes the current configuration to the directory, for all processes that use it.
    pub(super) fn keep(&self, file: &Path) -> io::Result<()> {
        let kept = config_file::keep(file)?;
        let copy = own_file().write(true).open(self.path().join(COPY))?;
        let mut copy = BufWriter::new(copy);
        serde_json::to_writer(&mut copy, &kept)?;
        copy.flush()
    }

    /// Records that the process of this instance, counted from 1, has ended, for the stage that
    /// asks it.
    pub(super) fn tell_end(&self, role: Role, instance: u64, was_by_itself: bool) {
        let end = ProcessEnd {
            at_ms: clock::coarse_ms(),
            stage: role.number(),
            instance: usize::try_from(instance.saturating_sub(1)).unwrap_or(usize::MAX),
            was_by_itself,
        };
        // a stage that cannot read the record counts no end
        let _ = end.append(&mut &self.ends);
    }

    /// The socket at which stages report that they serve.
    pub(super) fn notify(&self) -> PathBuf {
        self.path().join(NOTIFY)
    }

    /// Calls `tell` on a thread of its own for each process that reports that it serves, until the
    /// returned value is dropped. Reports of processes that start later have no receiver.
    pub(super) fn hear(&self, tell: impl Fn() + Send + 'static) -> io::Result<Hearing> {
        let (path, socket) = (self.notify(), UnixDatagram::bind(self.notify())?);
        let is_over = Arc::new(AtomicBool::new(false));
        let hearing = Hearing { path, socket: socket.try_clone()?, is_over: Arc::clone(&is_over) };
        let hear = move || {
            let mut text = [0; 512];
            while let Ok(length) = socket.recv(&mut text) {
                if is_over.load(Ordering::Acquire) {
                    break;
                }
                if text[..length].starts_with(b"READY=1\n") {
                    tell();
                }
            }
        };
        thread::Builder::new().name("readiness".to_owned()).spawn(hear)?;
        Ok(hearing)
    }
}

/// While this exists, reports of processes that they serve are received.
pub(super) struct Hearing {
    path: PathBuf,
    socket: UnixDatagram,
    is_over: Arc<AtomicBool>,
}

impl Drop for Hearing {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
        self.is_over.store(true, Ordering::Release);
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

/// Options for a new file that only this user may read.
fn own_file() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.create_new(true).mode(0o600);
    options
}

/// The copy of the configuration that a supervisor has left for its stages, if there is one.
pub fn copy(links: &Path) -> Option<PathBuf> {
    Some(links.join(COPY)).filter(|copy| copy.exists())
}

/// Keeps other supervisors from removing the directory while the returned file is open; `None` if
/// the directory is no supervisor's.
pub fn hold(links: &Path) -> Option<File> {
    folder::hold(links)
}

/// The ends that the supervisor records of a stage's processes from now on; `None` if there is no
/// supervisor.
pub(crate) fn ends(links: &Path, role: Role) -> Option<Ends> {
    let file = File::open(links.join(ENDS)).ok()?;
    Ends::new(file, role.number()).ok()
}
