//! The cold set: more files than the server's memory holds, on a page cache that was emptied.

use crate::Error;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Files of the set, and the bytes of each: 1 GiB.
const FILES: usize = 16 * 1024;
const FILE_BYTES: usize = 64 * 1024;

/// The list of paths for the load generator, beside the folder that is served.
pub fn urls(root: &Path) -> PathBuf {
    root.with_file_name("urls")
}

/// Writes the set below `root`, unless it is there, and the list of its paths.
///
/// # Errors
/// When the disk does not take it.
pub fn write(root: &Path) -> Result<(), Error> {
    let folder = root.join("cold");
    fs::create_dir_all(&folder).map_err(Error::io("cannot make the folder", &folder))?;
    let content = crate::content::body(FILE_BYTES);
    let mut list = Vec::new();
    for number in 0..FILES {
        // writing to a vector does not fail
        let _ = writeln!(list, "/cold/{number}.bin 1 {FILE_BYTES}");
        let path = folder.join(format!("{number}.bin"));
        if fs::metadata(&path).map_or(0, |found| found.len()) != FILE_BYTES as u64 {
            fs::write(&path, &content).map_err(Error::io("cannot write", &path))?;
        }
    }
    rustix::fs::sync();
    fs::write(urls(root), list).map_err(Error::io("cannot write", urls(root)))
}
