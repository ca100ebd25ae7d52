//! How much memory this process may have.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Where memory cgroups are, with the file that says how much they may have: version 2, and version 1.
const V2: (&str, &str) = ("/sys/fs/cgroup", "memory.max");
const V1: (&str, &str) = ("/sys/fs/cgroup/memory", "memory.limit_in_bytes");

/// Bytes that this process may have: the machine's memory, or what its memory cgroup and those around
/// it leave of that. Asked once: what a sandbox hides later makes no difference.
pub fn usable() -> u64 {
    static BYTES: OnceLock<u64> = OnceLock::new();
    *BYTES.get_or_init(|| {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        of_machine().min(of_cgroups(&own, |file| fs::read_to_string(file).ok()))
    })
}

fn of_machine() -> u64 {
    let info = rustix::system::sysinfo();
    // numbers of the width of a word
    (info.totalram as u64).saturating_mul(u64::from(info.mem_unit.max(1)))
}

/// The lowest limit on the way from the process's cgroups to their roots. `own` is what
/// `/proc/self/cgroup` says; in a container its paths may be those outside, and only the roots are
/// there.
fn of_cgroups(own: &str, read: impl Fn(&Path) -> Option<String>) -> u64 {
    let limits = own.lines().flat_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next().unwrap_or(""), fields.next().unwrap_or(""));
        let (root, file) = match controllers.split(',').find(|name| ["", "memory"].contains(name)) {
            Some("memory") => V1,
            Some(_) => V2,
            None => return Vec::new(),
        };
        let inner = PathBuf::from(path.trim_start_matches('/'));
        let limits = inner.ancestors().filter_map(|group| {
            // "max" is no number, and no limit
            read(&Path::new(root).join(group).join(file))?.trim().parse().ok()
        });
        limits.collect()
    });
    limits.min().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(own: &str, files: &[(&str, &str)]) -> u64 {
        of_cgroups(own, |at| {
            let found = files.iter().find(|(path, _)| Path::new(path) == at);
            found.map(|(_, text)| (*text).to_owned())
        })
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
