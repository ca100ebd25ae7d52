//! Whether directories are there, and files can be made in them.

use forebay_sys::file;
use std::io;
use std::path::{Path, PathBuf};

/// Why no socket can be made at `path`. `is_made`: the server makes the directory if it is missing.
pub(super) fn no_room_for(path: &Path, is_made: bool) -> Option<(PathBuf, io::Error)> {
    let parents = path.ancestors().skip(1).map(|parent| match parent {
        parent if parent.as_os_str().is_empty() => Path::new("."),
        parent => parent,
    });
    for directory in parents {
        let error = match check_directory(directory).and_then(|()| file::may_write(directory)) {
            Ok(()) => return None,
            Err(error) => error,
        };
        if !is_made || error.kind() != io::ErrorKind::NotFound {
            return Some((directory.to_owned(), error));
        }
    }
    None
}

/// Whether this is a directory.
pub(super) fn check_directory(path: &Path) -> io::Result<()> {
    if std::fs::metadata(path)?.is_dir() {
        Ok(())
    } else {
        Err(io::ErrorKind::NotADirectory.into())
    }
}
