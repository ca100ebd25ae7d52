//! The cold set: more files than the server's memory holds, on a page cache that was emptied.

use crate::Error;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Files of the set, and the bytes of each: 1 GiB.
const FILES: usize = 16 * 1024;
const FILE_BYTES: usize = 64 * 1024;

/// What the server and the page cache of its files may hold: an eighth of the set.
const MEMORY_BYTES: u64 = 128 << 20;

/// Where memory cgroups are: version 1 and version 2.
const V1: &str = "/sys/fs/cgroup/memory/forebay-bench";
const V2: &str = "/sys/fs/cgroup/forebay-bench";

/// The list of paths for the load generator.
pub fn urls() -> PathBuf {
    std::env::temp_dir().join(format!("forebay-bench-urls-{}", std::process::id()))
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
    fs::write(urls(), list).map_err(Error::io("cannot write", urls()))
}

/// A memory cgroup that is removed when dropped.
#[derive(Debug)]
pub struct Cage(PathBuf);

impl Cage {
    /// Makes it, and empties the page cache.
    ///
    /// # Errors
    /// Without the privilege to do either: such a measurement would say nothing.
    pub fn new() -> Result<Cage, Error> {
        let is_v1 = Path::new("/sys/fs/cgroup/memory").is_dir();
        let path = PathBuf::from(if is_v1 { V1 } else { V2 });
        fs::create_dir_all(&path).map_err(Error::io("cannot make the cgroup", &path))?;
        let limit = path.join(if is_v1 { "memory.limit_in_bytes" } else { "memory.max" });
        fs::write(&limit, MEMORY_BYTES.to_string()).map_err(Error::io("cannot set", &limit))?;
        rustix::fs::sync();
        let caches = "/proc/sys/vm/drop_caches";
        fs::write(caches, "3").map_err(Error::io("cannot write", caches))?;
        Ok(Cage(path))
    }

    /// A command that enters the cgroup and becomes `command`.
    pub fn around(&self, command: &Command) -> Command {
        let mut caged = Command::new("sh");
        caged.arg("-c").arg("echo $$ > \"$0/cgroup.procs\" && exec \"$@\"").arg(&self.0);
        caged.arg(command.get_program()).args(command.get_args());
        caged
    }
}

impl Drop for Cage {
    fn drop(&mut self) {
        // the last process may take a moment to leave
        for _ in 0..50 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}
