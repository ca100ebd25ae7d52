//! The memory that this process may have, and the number of tasks, as its control groups limit
//! them.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// A controller of cgroups: its name, and for versions 2 and 1 the directory of its groups and the
/// file with their limit.
struct LimitFiles {
    controller: &'static str,
    v2: (&'static str, &'static str),
    v1: (&'static str, &'static str),
}

const MEMORY: LimitFiles = LimitFiles {
    controller: "memory",
    v2: ("/sys/fs/cgroup", "memory.max"),
    v1: ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
};

const TASKS: LimitFiles = LimitFiles {
    controller: "pids",
    v2: ("/sys/fs/cgroup", "pids.max"),
    v1: ("/sys/fs/cgroup/pids", "pids.max"),
};

/// The bytes that this process may have: the machine's memory, or what its memory cgroup and those
/// around it leave of that. Read once, so a sandbox that hides the files later makes no difference.
pub fn usable() -> u64 {
    static BYTES: OnceLock<u64> = OnceLock::new();
    *BYTES.get_or_init(|| of_machine().min(of_own_cgroups(&MEMORY).unwrap_or(u64::MAX)))
}

/// The number of tasks (processes and threads) that the control groups of this process have left,
/// if they have a limit.
pub(crate) fn tasks_left() -> Option<u64> {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let number = |file: &Path| fs::read_to_string(file).ok()?.trim().parse::<u64>().ok();
    of_cgroups(&TASKS, &own, |file| {
        let used = number(&file.with_file_name("pids.current")).unwrap_or(0);
        Some(number(file)?.saturating_sub(used).to_string())
    })
}

fn of_own_cgroups(files: &LimitFiles) -> Option<u64> {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    of_cgroups(files, &own, |file| fs::read_to_string(file).ok())
}

fn of_machine() -> u64 {
    let info = rustix::system::sysinfo();
    // the kernel's numbers have the width of a word
    (info.totalram as u64).saturating_mul(u64::from(info.mem_unit.max(1)))
}

/// The lowest limit on the way from the process's cgroups to their roots. `own` is the content of
/// `/proc/self/cgroup`; in a container its paths may be those outside, and only the roots are
/// there.
fn of_cgroups(
    files: &LimitFiles,
    own: &str,
    read: impl Fn(&Path) -> Option<String>,
) -> Option<u64> {
    let limits = own.lines().flat_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next().unwrap_or(""), fields.next().unwrap_or(""));
        let is_one = |name: &&str| name.is_empty() || *name == files.controller;
        let (root, file) = match controllers.split(',').find(is_one) {
            Some("") => files.v2,
            Some(_) => files.v1,
            None => return Vec::new(),
        };
        let inner = PathBuf::from(path.trim_start_matches('/'));
        let limits = inner.ancestors().filter_map(|group| {
            // "max" is no number, and no limit
            read(&Path::new(root).join(group).join(file))?.trim().parse().ok()
        });
        limits.collect()
    });
    limits.min()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(limits: &LimitFiles, own: &str, files: &[(&str, &str)]) -> u64 {
        let limit = of_cgroups(limits, own, |at| {
            let found = files.iter().find(|(path, _)| Path::new(path) == at);
            found.map(|(_, text)| (*text).to_owned())
        });
        limit.unwrap_or(u64::MAX)
    }

    fn limit(own: &str, files: &[(&str, &str)]) -> u64 {
        of(&MEMORY, own, files)
    }

    #[test]
    fn tasks_have_files_of_their_own() {
        let files = [("/sys/fs/cgroup/a/pids.max", "40"), ("/sys/fs/cgroup/pids/b/pids.max", "30")];
        assert_eq!(of(&TASKS, "0::/a/c\n", &files), 40);
        assert_eq!(of(&TASKS, "3:pids:/b\n4:memory:/c\n0::/a\n", &files), 30);
        assert_eq!(of(&TASKS, "4:memory:/c\n", &files), u64::MAX);
    }

    #[test]
    fn the_lowest_limit_on_the_way_counts() {
        let files = [
            ("/sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("/sys/fs/cgroup/a/memory.max", "2000\n"),
            ("/sys/fs/cgroup/memory/c/memory.limit_in_bytes", "1000\n"),
            ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
        ];
        assert_eq!(limit("0::/a/b\n", &files), 2000);
        assert_eq!(limit("5:cpu:/a\n4:memory:/c\n0::/\n", &files), 1000);
        assert_eq!(limit("4:memory:/\n", &files), 9_223_372_036_854_771_712);
        assert_eq!(limit("0::/other\n", &files), u64::MAX);
        assert_eq!(limit("nonsense", &files), u64::MAX);
    }

    #[test]
    fn a_container_that_sees_its_own_root_only_has_the_limit_there() {
        let files = [("/sys/fs/cgroup/memory.max", "3000\n")];
        assert_eq!(limit("0::/system.slice/outside.scope\n", &files), 3000);
    }

    #[test]
    fn there_is_some_memory() {
        assert!((1 << 20..u64::MAX).contains(&usable()));
    }
}
