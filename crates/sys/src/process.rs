//! The resources that the process and its threads may use: descriptors, cores, timers.

pub use crate::append::{open_append, wait_writable};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Resource, Signal, getrlimit, set_parent_process_death_signal, setrlimit};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::ffi::CString;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, parent_id};
use std::process::{Child, Command};
use std::sync::OnceLock;

/// Raises the soft limit of open descriptors to the hard limit; returns the limit then in force.
///
/// # Errors
/// The kernel refuses; the old limit then stays.
pub fn raise_descriptor_limit() -> io::Result<u64> {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        setrlimit(Resource::Nofile, limit)?;
    }
    Ok(limit.current.unwrap_or(u64::MAX))
}

/// The soft limit of open descriptors, left as it is.
pub fn descriptor_limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Reserves a descriptor that can be given up when all others are used: dropping it leaves one for
/// one accept that is answered and closed.
///
/// # Errors
/// Lack of descriptors, or no `/dev/null`.
pub fn reserve_descriptor() -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    Ok(rustix::fs::open("/dev/null", flags, Mode::empty())?)
}

/// The effective user id.
pub fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Sets the name of the process in lists of processes, cut to 15 bytes. Must be called by its first
/// thread.
pub fn set_name(name: &str) {
    let end = name.bytes().take(15).take_while(|byte| *byte != 0).count();
    let name = std::ffi::CString::new(&name.as_bytes()[..end]);
    // the process can go on without the name
    let _ = name.map(|name| rustix::thread::set_name(&name));
}

/// The number of threads that can run at once: the cores that this process may use, cut by the
/// quota of its cgroup; at least 1. Read once, so a sandbox that hides the files later makes no
/// difference.
pub fn usable_cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}

/// The numbers of the cores the calling thread may run on, ascending.
///
/// # Errors
/// The machine has more cores than the kernel's default set holds (1024).
pub fn allowed_cores() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect())
}

/// Binds the calling thread to one core.
///
/// # Errors
/// There is no such core, or it is not allowed.
pub fn pin_to_core(core: usize) -> io::Result<()> {
    Ok(sched_setaffinity(None, &only(core)?)?)
}

fn only(core: usize) -> io::Result<CpuSet> {
    if core >= CpuSet::MAX_CPU {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    let mut set = CpuSet::new();
    set.set(core);
    Ok(set)
}

/// Starts a process that is bound to one core, with all its threads. It is killed when the thread
/// that starts it ends in any way.
///
/// # Errors
/// There is no such core or it is not allowed, or the program cannot be run.
pub fn spawn_on_core(core: usize, command: &mut Command) -> io::Result<Child> {
    let set = only(core)?;
    let own = std::process::id();
    let prepare = move || -> io::Result<()> {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        if parent_id() != own {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        Ok(sched_setaffinity(None, &set)?)
    };
    // SAFETY: `prepare` makes system calls and nothing else: it takes no lock and allocates nothing.
    unsafe { command.pre_exec(prepare) };
    command.spawn()
}

/// Arenas of the allocator where addresses are limited.
#[cfg(target_env = "gnu")]
const MOST_ARENAS: libc::c_int = 2;

/// Has the allocator give blocks of 32 KiB and more back to the system as soon as they are free. By
/// default glibc keeps more and more of them, and bodies of many sizes, or bodies made by one
/// thread and freed by another, then take several times their size. Where addresses are limited
/// (`RLIMIT_AS`), all threads share two arenas, each of which takes 64 MiB of them. Call this before
/// there are threads. Does nothing with another C library.
pub fn return_large_blocks() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt takes two integers by value and is safe to call at any time (mallopt(3)).
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 32 * 1024);
    }
    #[cfg(target_env = "gnu")]
    if getrlimit(Resource::As).current.is_some() {
        // SAFETY: as above.
        unsafe { libc::mallopt(libc::M_ARENA_MAX, MOST_ARENAS) };
    }
}

/// Makes the calling thread wake from timed waits as sharply as the kernel can, instead of up to
/// 50 µs late (prctl(2), PR_SET_TIMERSLACK).
///
/// # Errors
/// None in practice.
pub fn wake_sharply() -> io::Result<()> {
    Ok(rustix::thread::set_current_timer_slack(NonZeroU64::new(1))?)
}

/// Lowers the priority of the calling thread: its nice value rises by `more`, to at most 19.
///
/// # Errors
/// None in practice.
pub fn give_way(more: u8) -> io::Result<()> {
    rustix::process::nice(more.into()).map(drop).map_err(io::Error::from)
}

/// Names the calling thread `name`, of which the kernel keeps 15 bytes.
///
/// # Errors
/// A zero byte in the name (`InvalidInput`).
pub fn name_thread(name: &str) -> io::Result<()> {
    let name = CString::new(name)?;
    Ok(rustix::thread::set_name(&name)?)
}

/// The nice value of the calling thread.
pub fn niceness() -> i32 {
    // the calling thread exists, so this does not fail
    rustix::process::getpriority_process(None).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_descriptor_limit_is_the_hard_limit() {
        let limit = raise_descriptor_limit().unwrap();
        assert_eq!(getrlimit(Resource::Nofile).current, Some(limit));
        assert_eq!(getrlimit(Resource::Nofile).maximum, Some(limit));
    }

    #[test]
    fn a_thread_is_pinned_alone() {
        let before = allowed_cores().unwrap();
        assert!(!before.is_empty() && usable_cores() >= 1);
        let last = *before.last().unwrap();
        let pinned = std::thread::spawn(move || {
            pin_to_core(last).unwrap();
            allowed_cores().unwrap()
        });
        assert_eq!(pinned.join().unwrap(), [last]);
        assert_eq!(allowed_cores().unwrap(), before);
        assert!(pin_to_core(usize::MAX).is_err());
    }
}
