//! The directory for bodies of requests: it is opened while the server has its privileges, and
//! tested without them.

use crate::plan::MachineResources;
use forebay_config::{Config, Role};
use forebay_upstream::spool::Spool;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fmt, io};

/// The number of descriptors for each body on disk: the body takes two, and its request one.
const DESCRIPTORS: u64 = 16;

/// Bodies cannot be stored in the directory.
#[derive(Debug)]
pub struct SpoolError {
    /// The directory.
    pub path: PathBuf,
    /// The reason.
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

/// Opens the directory of the configuration, if this process passes requests on to applications.
///
/// # Errors
/// It does not exist, or is not a directory.
pub fn open(config: &Config, descriptors: u64) -> Result<Option<Arc<Spool>>, SpoolError> {
    let Some(path) = config.spool_dir.as_deref() else { return Ok(None) };
    let role = config.place.as_ref().map(|place| place.role);
    if matches!(role, Some(Role::Receive | Role::Process)) {
        return Ok(None);
    }
    let (bytes, files) = bounds(config, descriptors);
    Spool::open(path, bytes, files).map(Some).map_err(|error| of(path, error))
}

/// Checks that this process can make files in the directory now.
///
/// # Errors
/// If it cannot.
pub fn try_out(spool: &Spool, path: &Path) -> Result<(), SpoolError> {
    spool.try_out().map_err(|error| of(path, error))
}

/// As [`open`] and [`try_out`], for a configuration that follows another. If the directory is the
/// same, its counts of bodies go on.
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
    // a directory that was moved away or removed is replaced by a new one
    if let Some(known) = known.filter(|known| is_same && known.try_out().is_ok()) {
        return Ok(Some(Arc::clone(known)));
    }
    let opened = open(config, descriptors)?;
    if let (Some(spool), Some(path)) = (&opened, &config.spool_dir) {
        try_out(spool, path)?;
    }
    Ok(opened)
}

/// Puts the limits of a configuration in force.
pub fn bound(spool: Option<&Arc<Spool>>, config: &Config) {
    if let (Some(spool), Ok(machine)) = (spool, MachineResources::here()) {
        let (bytes, files) = bounds(config, machine.descriptors);
        spool.set(bytes, files);
    }
}

/// The largest number of bytes and files of this process. All processes of a stage together have
/// the configured number of bytes.
fn bounds(config: &Config, descriptors: u64) -> (u64, u64) {
    let role = config.place.as_ref().map(|place| place.role);
    let processes = role.map_or(1, |role| config.isolated.instances(role));
    (config.spool_dir_bytes.0 / u64::max(processes, 1), (descriptors / DESCRIPTORS).max(1))
}

fn of(path: &Path, error: io::Error) -> SpoolError {
    SpoolError { path: path.to_owned(), error }
}
