//! The number of threads that a process may have, and whether there is room for one more.
//!
//! A thread that the kernel refuses is an error of the code that spawns it. One that the kernel
//! grants with the last mapping of the process is worse: the standard library needs one more
//! mapping for the stack of its signal handler, and a process that allocates memory needs one now
//! and then; without it, both end the process. So the limits of pools are computed with a quarter
//! of everything left to the rest of the process, and a spawner asks [`has_room`] first.

use crate::{memory, process};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use rustix::process::{Resource, getrlimit, getuid};
use std::fs;

/// The mappings that a thread takes: its stack, that of its signal handler, a guard below each; and
/// now and then an arena of the allocator. Measured with 9,900 threads: 4.2.
const MAPPINGS_EACH: u64 = 5;

/// The addresses that a thread takes: 2 MiB of stack, as the standard library has it, and what goes
/// with it.
const BYTES_EACH: u64 = (2 << 20) + (64 << 10);

/// The addresses that an arena of glibc's allocator takes, and the largest number of arenas for each core. Arenas come
/// with threads and take what is there; half of it at most is counted for them, as threads share arenas.
const ARENA_BYTES: u64 = 64 << 20;
const ARENAS_EACH_CORE: u64 = 8;

/// The mappings that must be left when a thread begins.
const MAPPINGS_LEFT: usize = 64;

/// The resource that limits the number of threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadBound {
    /// `vm.max_map_count`.
    Mappings,
    /// `RLIMIT_AS`.
    Addresses,
    /// `RLIMIT_NPROC`.
    User,
    /// `pids.max` of a control group.
    Group,
    /// `kernel.threads-max`.
    Machine,
}

impl ThreadBound {
    /// The setting of the system that is the limit.
    pub fn setting(self) -> &'static str {
        match self {
            ThreadBound::Mappings => "vm.max_map_count",
            ThreadBound::Addresses => "RLIMIT_AS (ulimit -v)",
            ThreadBound::User => "RLIMIT_NPROC (ulimit -u)",
            ThreadBound::Group => "pids.max of the control group",
            ThreadBound::Machine => "kernel.threads-max",
        }
    }
}

/// The number of threads that a pool may have, and what limits it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadRoom {
    /// The largest number of threads.
    pub most: usize,
    /// The resource that is the limit.
    pub bound: ThreadBound,
}

/// What the process has of a resource, and what it may have; `None` for no limit.
struct ThreadMeans {
    bound: ThreadBound,
    most: Option<u64>,
    used: u64,
    each: u64,
}

/// The number of threads that this process may begin from now on, when a quarter of what is free is
/// left to others.
pub fn room() -> ThreadRoom {
    let number = |path: &str| fs::read_to_string(path).ok()?.trim().parse().ok();
    let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
    // the fourth word is "running/all"
    let all = text("/proc/loadavg").split(['/', ' ']).nth(4).and_then(|all| all.parse().ok());
    let own = fs::read_dir("/proc/self/task").map_or(1, |tasks| tasks.count() as u64);
    // the kernel does not apply this limit to root
    let of_user = getrlimit(Resource::Nproc).current.filter(|_| !getuid().is_root());
    let used_by_user = of_user.map_or(0, |_| threads_of(getuid().as_raw()).max(own));
    let [mappings, addresses] = of_process();
    narrowest(&[
        mappings,
        addresses,
        ThreadMeans { bound: ThreadBound::User, most: of_user, used: used_by_user, each: 1 },
        ThreadMeans { bound: ThreadBound::Group, most: memory::tasks_left(), used: 0, each: 1 },
        ThreadMeans {
            bound: ThreadBound::Machine,
            most: number("/proc/sys/kernel/threads-max"),
            used: all.unwrap_or(own),
            each: 1,
        },
    ])
}

/// The number of threads for which this process has addresses and mappings, when a quarter of what is
/// free is left to others. Other processes do not count, such as the one that this one replaces.
pub fn room_in_process() -> ThreadRoom {
    narrowest(&of_process())
}

/// What is the process's own.
fn of_process() -> [ThreadMeans; 2] {
    let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let maps = text("/proc/self/maps").lines().count() as u64;
    let pages = text("/proc/self/statm").split(' ').next().and_then(|pages| pages.parse().ok());
    let bytes = pages.unwrap_or(0u64).saturating_mul(rustix::param::page_size() as u64);
    let addresses = getrlimit(Resource::As).current;
    let cores = process::usable_cores() as u64;
    let free = addresses.map_or(0, |most| most.saturating_sub(bytes));
    let arenas = (cores * ARENAS_EACH_CORE * ARENA_BYTES).min(free / 2);
    [
        ThreadMeans {
            bound: ThreadBound::Mappings,
            most: text("/proc/sys/vm/max_map_count").trim().parse().ok(),
            used: maps,
            each: MAPPINGS_EACH,
        },
        ThreadMeans {
            bound: ThreadBound::Addresses,
            most: addresses,
            used: bytes + arenas,
            each: BYTES_EACH,
        },
    ]
}

/// Threads of all processes of a user, as far as this one sees them: the kernel counts them for `RLIMIT_NPROC`.
fn threads_of(user: u32) -> u64 {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let statuses = processes.filter_map(|entry| {
        entry.file_name().to_str()?.parse::<u32>().ok()?;
        fs::read_to_string(entry.path().join("status")).ok()
    });
    statuses.filter_map(|status| threads_in(&status, user)).sum()
}

/// How many threads the process with this `/proc/PID/status` has, if it is this user's.
fn threads_in(status: &str, user: u32) -> Option<u64> {
    let value = |key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(key))?;
        line.split_ascii_whitespace().next()?.parse::<u64>().ok()
    };
    // the first is the real one, for which the kernel counts
    (value("Uid:")? == u64::from(user)).then(|| value("Threads:")).flatten()
}

fn narrowest(all: &[ThreadMeans]) -> ThreadRoom {
    let rooms = all.iter().filter_map(|measured| {
        let free = measured.most?.saturating_sub(measured.used);
        let most = usize::try_from((free - free / 4) / measured.each).unwrap_or(usize::MAX);
        Some(ThreadRoom { most, bound: measured.bound })
    });
    let unbounded = ThreadRoom { most: usize::MAX, bound: ThreadBound::Machine };
    rooms.min_by_key(|room| room.most).unwrap_or(unbounded)
}

/// Whether a thread that is spawned now has the mappings and addresses that it needs, with some to
/// spare. Nothing is reserved: another thread of the process may take them meanwhile.
pub fn has_room() -> bool {
    let page = rustix::param::page_size();
    let length = 2 * BYTES_EACH as usize;
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
    let mapped = unsafe { mmap_anonymous(std::ptr::null_mut(), length, ProtFlags::empty(), flags) };
    let Ok(start) = mapped else { return false };
    // every second page gets another protection, so that the kernel has to keep the mappings apart
    let are_kept_apart = (0..MAPPINGS_LEFT).step_by(2).all(|number| {
        // SAFETY: the page is in the mapping above, which no other code knows of.
        unsafe { mprotect(start.byte_add((number + 1) * page), page, MprotectFlags::READ) }.is_ok()
    });
    // SAFETY: this is the whole of the mapping above.
    let _ = unsafe { munmap(start, length) };
    are_kept_apart
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(bound: ThreadBound, most: Option<u64>, used: u64, each: u64) -> ThreadMeans {
        ThreadMeans { bound, most, used, each }
    }

    #[test]
    fn the_narrowest_bound_counts_and_a_quarter_is_left() {
        let all = [
            measured(ThreadBound::Mappings, Some(65_530), 530, 5),
            measured(ThreadBound::Addresses, None, 1 << 30, BYTES_EACH),
            measured(ThreadBound::User, Some(20_000), 1, 1),
        ];
        assert_eq!(narrowest(&all), ThreadRoom { most: 9_750, bound: ThreadBound::Mappings });
        let all = [measured(ThreadBound::User, Some(10), 12, 1), all.into_iter().next().unwrap()];
        assert_eq!(narrowest(&all), ThreadRoom { most: 0, bound: ThreadBound::User });
        assert_eq!(narrowest(&[]).most, usize::MAX);
    }

    #[test]
    fn threads_of_a_user_are_those_of_all_its_processes() {
        let status = "Name:\tone\nUid:\t12\t0\t0\t0\nThreads:\t7\n";
        assert_eq!(threads_in(status, 12), Some(7));
        assert_eq!(threads_in(status, 0), None);
        assert_eq!(threads_in("", 0), None);
        assert!(threads_of(getuid().as_raw()) >= 1);
    }

    #[test]
    fn this_process_has_room() {
        let here = room();
        assert!(here.most > 8, "{here:?}");
        assert!(has_room());
    }

    /// Runs in a process of its own, as others would be short of mappings.
    #[test]
    fn a_process_without_mappings_has_none() {
        if std::env::var_os("FOREBAY_TAKES_MAPPINGS").is_some() {
            let (page, length) = (rustix::param::page_size(), 1 << 30);
            let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
            let taken = unsafe {
                // SAFETY: a new mapping, as above; its pages are not used.
                mmap_anonymous(std::ptr::null_mut(), length, ProtFlags::empty(), flags)
            };
            let taken = taken.unwrap();
            let is_refused = |number: usize| {
                let at = taken.wrapping_byte_add((2 * number + 1) * page);
                // SAFETY: a page of the mapping above.
                unsafe { mprotect(at, page, MprotectFlags::READ) }.is_err()
            };
            let most = length / page / 2 - 1;
            let Some(last) = (0..most).find(|&number| is_refused(number)) else {
                eprintln!("SKIPPED: this machine has more mappings than can be used up");
                return;
            };
            assert!(!has_room());
            for number in last - 1_000..last {
                let at = taken.wrapping_byte_add((2 * number + 1) * page);
                // SAFETY: as above.
                unsafe { mprotect(at, page, MprotectFlags::empty()) }.unwrap();
            }
            assert!(has_room());
            let here = room();
            assert!(here.most <= 300 && here.bound == ThreadBound::Mappings, "{here:?}");
            return;
        }
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "threads::tests::a_process_without_mappings_has_none", "--nocapture"])
            .env("FOREBAY_TAKES_MAPPINGS", "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
    }
}
