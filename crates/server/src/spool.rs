//! Where bodies of requests are on disk: the directory is opened while the server has its rights, and tried out
//! without them.

use crate::plan::MachineResources;
use forebay_config::{Config, Role};
use forebay_upstream::spool::Spool;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fmt, io};

/// So many descriptors leave room for one body: it takes two, and its request has one.
const DESCRIPTORS: u64 = 16;

/// No body can be in the directory.
#[derive(Debug)]
pub struct SpoolError {
    /// The directory.
    pub path: PathBuf,
    /// Why.
    pub error: io::Error,
}

impl fmt::Display for SpoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SpoolError { path, error } = self;
        match error.kind() {
            io::ErrorKind::Unsupported => write!(
                f,
                "spool_dir: the file system of {path:?} has no files without a name (O_TMPFILE), of which nothing is \
                 left when the server is killed: name a directory on one that has, such as ext4, XFS or Btrfs"
            ),
            io::ErrorKind::PermissionDenied => write!(
                f,
                "spool_dir: the server cannot make files in {path:?}: {error}; give it to its user: \"chown\""
            ),
            _ => write!(f, "spool_dir: files cannot be made in {path:?}: {error}"),
        }
    }
}

impl std::error::Error for SpoolError {}

/// Opens the directory that the configuration names, if this process asks applications.
///
/// # Errors
/// It is none, or is not there.
pub fn open(config: &Config, descriptors: u64) -> Result<Option<Arc<Spool>>, SpoolError> {
    let Some(path) = config.spool_dir.as_deref() else { return Ok(None) };
    let role = config.place.as_ref().map(|place| place.role);
    if matches!(role, Some(Role::Receive | Role::Process)) {
        return Ok(None);
    }
    let (bytes, files) = bounds(config, descriptors);
    Spool::open(path, bytes, files).map(Some).map_err(|error| of(path, error))
}

/// Whether files can be made there, as this process is now.
///
/// # Errors
/// They cannot.
pub fn try_out(spool: &Spool, path: &Path) -> Result<(), SpoolError> {
    spool.try_out().map_err(|error| of(path, error))
}

/// The same as [`open`] and [`try_out`] for a configuration that follows another: what bodies have there counts on, if
/// it is the same directory.
///
/// # Errors
/// As for these.
pub fn reopen(
    config: &Config,
    descriptors: u64,
    before: &Config,
    known: Option<&Arc<Spool>>,
) -> Result<Option<Arc<Spool>>, SpoolError> {
    let is_same = config.spool_dir == before.spool_dir;
    // what was moved away or removed is another directory
    if let Some(known) = known.filter(|known| is_same && known.try_out().is_ok()) {
        return Ok(Some(Arc::clone(known)));
    }
    let opened = open(config, descriptors)?;
    if let (Some(spool), Some(path)) = (&opened, &config.spool_dir) {
        try_out(spool, path)?;
    }
    Ok(opened)
}

/// What a configuration says of it holds from now on.
pub fn bound(spool: Option<&Arc<Spool>>, config: &Config) {
    if let (Some(spool), Ok(machine)) = (spool, MachineResources::here()) {
        let (bytes, files) = bounds(config, machine.descriptors);
        spool.set(bytes, files);
    }
}

/// How many bytes and files this process may have there: all processes of a stage together have what is said.
fn bounds(config: &Config, descriptors: u64) -> (u64, u64) {
    let role = config.place.as_ref().map(|place| place.role);
    let processes = role.map_or(1, |role| config.isolated.instances(role));
    (config.spool_dir_bytes.0 / u64::max(processes, 1), (descriptors / DESCRIPTORS).max(1))
}

fn of(path: &Path, error: io::Error) -> SpoolError {
    SpoolError { path: path.to_owned(), error }
}
