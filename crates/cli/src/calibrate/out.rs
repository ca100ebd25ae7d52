//! The file that is written.

use super::CalibrateError;
use std::fs;
use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};

/// Checks that the file can be written, before minutes are spent on measuring.
///
/// # Errors
/// The reason why it cannot be written.
pub(super) fn check(path: &Path) -> Result<(), CalibrateError> {
    let written = replaceable(path).and_then(|()| {
        let written = fs::write(beside(path), "");
        let _ = fs::remove_file(beside(path));
        written
    });
    written.map_err(CalibrateError::io("cannot write", path))
}

/// Replaces the file in one step.
///
/// # Errors
/// Errors of the system.
pub(super) fn write(path: &Path, text: &str) -> Result<(), CalibrateError> {
    let new = beside(path);
    let written = replaceable(path)
        .and_then(|()| fs::write(&new, text))
        .and_then(|()| fs::rename(&new, path));
    written.map_err(|error| {
        let _ = fs::remove_file(&new);
        CalibrateError::io("cannot write", path)(error)
    })
}

/// Checks that the path has a regular file or none: a device, a socket or a link would be lost for its users.
fn replaceable(path: &Path) -> Result<(), Error> {
    let no = |why| Err(Error::new(ErrorKind::InvalidInput, why));
    if path.file_name().is_none() {
        return no("it names no file");
    }
    match fs::symlink_metadata(path).map(|found| found.file_type()) {
        Ok(kind) if kind.is_file() => Ok(()),
        Ok(kind) if kind.is_dir() => no("it is a directory"),
        Ok(kind) if kind.is_symlink() => no("it is a symbolic link, name the file it leads to"),
        Ok(_) => no("it is no regular file"),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// The path of the new file, in the same directory, until it replaces the old one.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}", std::process::id()));
    path.with_file_name(name)
}
