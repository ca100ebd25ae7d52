//! The file that is written.

use super::CalibrateError;
use std::fs;
use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};

/// Whether the file can be written: asked before minutes are spent on what it is to say.
///
/// # Errors
/// Why it cannot.
pub(super) fn check(path: &Path) -> Result<(), CalibrateError> {
    let written = match path.file_name() {
        None => Err(Error::new(ErrorKind::InvalidInput, "it names no file")),
        Some(_) if path.is_dir() => Err(Error::new(ErrorKind::InvalidInput, "it is a directory")),
        Some(_) => fs::write(beside(path), ""),
    };
    let _ = fs::remove_file(beside(path));
    written.map_err(CalibrateError::io("cannot write", path))
}

/// Replaces the file in one step.
///
/// # Errors
/// What the system says.
pub(super) fn write(path: &Path, text: &str) -> Result<(), CalibrateError> {
    let new = beside(path);
    let written = fs::write(&new, text).and_then(|()| fs::rename(&new, path));
    written.map_err(|error| {
        let _ = fs::remove_file(&new);
        CalibrateError::io("cannot write", path)(error)
    })
}

/// What takes its place, in the same directory.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}", std::process::id()));
    path.with_file_name(name)
}
