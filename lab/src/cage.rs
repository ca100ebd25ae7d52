//! Memory that a server shares with the page cache of its files, and that is empty at first.

use crate::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the server and the page cache of its files may hold: an eighth of the cold set.
const MEMORY_BYTES: u64 = 128 << 20;

/// Where memory cgroups are: version 1 and version 2.
const V1: &str = "/sys/fs/cgroup/memory/forebay-bench";
const V2: &str = "/sys/fs/cgroup/forebay-bench";

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
