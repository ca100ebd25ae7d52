//! Memory and processor time that a server gets: cgroups of version 1 or 2.
//!
//! Memory is shared with the page cache of the server's files. A quota is there from [`Cage::throttle`] on, and given anew every 10 ms, or more rarely
//! where its part would be below the kernel's least (1 ms); the kernel's work on what comes in lies outside it.

use crate::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The memory limit of a server and the page cache of its files where files are cold: an eighth of
/// the set.
pub const COLD: CageLimits = CageLimits { memory_bytes: Some(128 << 20), cpu: None };

const PERIOD_US: f64 = 10_000.0;
const LEAST_QUOTA_US: f64 = 1_000.0;

const TOP: &str = "/sys/fs/cgroup";
const NAME: &str = "forebay-bench";

/// The limits of a cage.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CageLimits {
    /// Memory of the server and of the page cache of its files, which is empty at first.
    pub memory_bytes: Option<u64>,
    /// A part of one core.
    pub cpu: Option<f64>,
}

/// The cgroups of a server, removed when dropped.
#[derive(Debug)]
pub struct Cage {
    cgroups: Vec<PathBuf>,
    /// The files that [`Cage::throttle`] writes, and the text for each.
    quota: Vec<(PathBuf, String)>,
}

impl Cage {
    /// Makes the cgroups, and empties the page cache if memory is bounded.
    ///
    /// # Errors
    /// Without the privilege to do either: such a measurement would say nothing.
    pub fn new(limits: &CageLimits) -> Result<Cage, Error> {
        let mut cage = Cage { cgroups: Vec::new(), quota: Vec::new() };
        if let Some(bytes) = limits.memory_bytes {
            let (path, is_first) = cage.enter("memory")?;
            let limit = path.join(if is_first { "memory.limit_in_bytes" } else { "memory.max" });
            fs::write(&limit, bytes.to_string()).map_err(Error::io("cannot set", &limit))?;
            rustix::fs::sync();
            let caches = "/proc/sys/vm/drop_caches";
            fs::write(caches, "3").map_err(Error::io("cannot write", caches))?;
        }
        if let Some(part) = limits.cpu {
            let period = PERIOD_US.max(LEAST_QUOTA_US / part).round();
            let quota = (period * part).round();
            let (path, is_first) = cage.enter("cpu")?;
            cage.quota = match is_first {
                true => vec![
                    (path.join("cpu.cfs_period_us"), period.to_string()),
                    (path.join("cpu.cfs_quota_us"), quota.to_string()),
                ],
                false => vec![(path.join("cpu.max"), format!("{quota} {period}"))],
            };
        }
        Ok(cage)
    }

    /// The cgroup in the hierarchy of a controller (version 1: `true`), or in the one that all share.
    fn enter(&mut self, controller: &str) -> Result<(PathBuf, bool), Error> {
        let own = Path::new(TOP).join(controller);
        let is_first = own.is_dir();
        let path = if is_first { own.join(NAME) } else { Path::new(TOP).join(NAME) };
        fs::create_dir_all(&path).map_err(Error::io("cannot make the cgroup", &path))?;
        self.cgroups.retain(|known| *known != path);
        self.cgroups.push(path.clone());
        Ok((path, is_first))
    }

    /// Puts the quota in force. Before that, a start, and files that are read before clients come,
    /// are not slowed down.
    ///
    /// # Errors
    /// When the kernel refuses it.
    pub fn throttle(&self) -> Result<(), Error> {
        for (file, value) in &self.quota {
            fs::write(file, value).map_err(Error::io("cannot set", file))?;
        }
        Ok(())
    }

    /// A command that enters the cgroups and becomes `command`.
    pub fn around(&self, command: &Command) -> Command {
        let mut caged = Command::new("sh");
        let enter = r#"while [ "$1" != -- ]; do echo $$ > "$1/cgroup.procs" || exit 1; shift; done; shift; exec "$@""#;
        caged.arg("-c").arg(enter).arg("sh").args(&self.cgroups).arg("--");
        caged.arg(command.get_program()).args(command.get_args());
        caged
    }
}

impl Drop for Cage {
    fn drop(&mut self) {
        // the last process may take a moment to leave
        for path in &self.cgroups {
            for _ in 0..50 {
                if fs::remove_dir(path).is_ok() {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
        }
    }
}
