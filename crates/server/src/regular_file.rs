//! Opening files that an operator names: nothing but a regular file is opened.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Opens a file to read it. Anything else, a FIFO above all, could keep the reader waiting for ever,
/// and to open a device may do something to it: it is looked at first.
///
/// # Errors
/// What the kernel says, or that it is no regular file.
pub(crate) fn open_regular(path: &Path) -> io::Result<File> {
    const NONBLOCK: i32 = 0o4000;
    must_be_regular(&std::fs::metadata(path)?)?;
    let file = File::options().read(true).custom_flags(NONBLOCK).open(path)?;
    must_be_regular(&file.metadata()?)?;
    Ok(file)
}

fn must_be_regular(found: &Metadata) -> io::Result<()> {
    let what = match found.file_type() {
        kind if kind.is_file() => return Ok(()),
        kind if kind.is_dir() => "it is a directory",
        _ => "it is no regular file",
    };
    Err(io::Error::new(io::ErrorKind::InvalidInput, what))
}
