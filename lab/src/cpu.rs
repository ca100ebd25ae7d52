//! Processor time of processes and cores, from `/proc`.
//!
//! The kernel has two sources. `/proc/PID/task/*/schedstat` counts nanoseconds on a core, user and
//! system time alike, but forgets threads that ended. `/proc/PID/stat` counts ticks of 10 ms, with
//! ended threads and waited-for children. Both are read; the fine one is used unless it is missing
//! or lost a thread, which shows as the coarse one being clearly larger.

use std::fs;

/// Ticks of `/proc/PID/stat` per second: USER_HZ, 100 on every Linux architecture in use.
const TICKS_PER_S: u64 = 100;
const TICK_NS: u64 = 1_000_000_000 / TICKS_PER_S;

/// The processor time that a tree of processes has used since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    fine_ns: u64,
    coarse_ns: u64,
    processes: u64,
}

impl Used {
    /// Reads what the processes `pids` have used. One that is gone counts as nothing.
    pub fn read(pids: &[u32]) -> Used {
        let mut used = Used { processes: pids.len() as u64, ..Used::default() };
        for pid in pids {
            used.fine_ns += fine_ns(*pid);
            used.coarse_ns += coarse_ns(*pid);
        }
        used
    }

    /// Nanoseconds used between `earlier` and this.
    pub fn since(&self, earlier: &Used) -> u64 {
        let fine = self.fine_ns.saturating_sub(earlier.fine_ns);
        let coarse = self.coarse_ns.saturating_sub(earlier.coarse_ns);
        // Each process's ticks may be one off at both ends, and sampling them adds some.
        let doubt = 2 * TICK_NS * self.processes + coarse / 100;
        if self.fine_ns == 0 || coarse > fine + doubt { coarse } else { fine }
    }
}

/// User and system time of all living threads.
fn fine_ns(pid: u32) -> u64 {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return 0 };
    tasks
        .flatten()
        .filter_map(|task| fs::read_to_string(task.path().join("schedstat")).ok())
        .filter_map(|text| text.split(' ').next()?.parse::<u64>().ok())
        .sum()
}

/// User and system time of all threads and waited-for children, in whole ticks.
fn coarse_ns(pid: u32) -> u64 {
    let fields = stat_fields(pid);
    // utime, stime, cutime, cstime are fields 14 to 17 (proc(5)); the first here is field 3.
    let ticks: u64 = (11..15).filter_map(|at| fields.get(at)?.parse::<u64>().ok()).sum();
    ticks * TICK_NS
}

/// The fields of `/proc/PID/stat` after the name, which may hold blanks and parentheses itself.
fn stat_fields(pid: u32) -> Vec<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let after_name = text.rsplit_once(") ").map_or("", |(_, rest)| rest);
    after_name.split_whitespace().map(str::to_owned).collect()
}

/// `root` and every process that descends from it.
pub fn tree(root: u32) -> Vec<u32> {
    let parents: Vec<(u32, u32)> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter_map(|pid| Some((pid, stat_fields(pid).get(1)?.parse().ok()?)))
        .collect();
    let mut found = vec![root];
    let mut next = 0;
    while next < found.len() {
        let parent = found[next];
        found.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        next += 1;
    }
    found
}

/// Whether every thread of `pids` may run on `core` only.
pub fn are_pinned(pids: &[u32], core: usize) -> bool {
    let core = core.to_string();
    let tasks = pids.iter().flat_map(|pid| fs::read_dir(format!("/proc/{pid}/task")));
    tasks.flatten().flatten().all(|task| {
        // A thread that ended since is no concern.
        let Ok(status) = fs::read_to_string(task.path().join("status")) else { return true };
        let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        allowed.is_none_or(|list| list.trim() == core)
    })
}

/// The times of one core since the machine started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Core {
    /// Time spent in any process or interrupt.
    pub busy_ns: u64,
    /// Time that the hypervisor gave to other guests.
    pub stolen_ns: u64,
}

impl Core {
    /// Reads the counters of `core`, in whole ticks.
    pub fn read(core: usize) -> Core {
        let text = fs::read_to_string("/proc/stat").unwrap_or_default();
        let name = format!("cpu{core}");
        let line = text.lines().find_map(|line| line.strip_prefix(&name)?.strip_prefix(' '));
        let ticks: Vec<u64> =
            line.unwrap_or("").split_whitespace().filter_map(|field| field.parse().ok()).collect();
        let of = |at: usize| ticks.get(at).copied().unwrap_or(0) * TICK_NS;
        // user nice system idle iowait irq softirq steal
        Core { busy_ns: of(0) + of(1) + of(2) + of(5) + of(6), stolen_ns: of(7) }
    }

    /// The times between `earlier` and this.
    pub fn since(&self, earlier: &Core) -> Core {
        Core {
            busy_ns: self.busy_ns.saturating_sub(earlier.busy_ns),
            stolen_ns: self.stolen_ns.saturating_sub(earlier.stolen_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fine_count_wins_until_it_lost_a_thread() {
        let used = |fine_ns, coarse_ns| Used { fine_ns, coarse_ns, processes: 1 };
        let start = used(5_000_000, 0);
        assert_eq!(used(105_000_000, 110_000_000).since(&start), 100_000_000);
        assert_eq!(used(10_000_000, 500_000_000).since(&start), 500_000_000);
        assert_eq!(used(0, 500_000_000).since(&used(0, 0)), 500_000_000);
    }

    #[test]
    fn this_process_is_in_its_own_tree_and_has_used_time() {
        let me = std::process::id();
        assert_eq!(tree(me).first(), Some(&me));
        assert!(Used::read(&[me]).fine_ns > 0 || Used::read(&[me]).coarse_ns > 0);
    }
}
