//! The control groups that a program is in from its beginning, with all that it starts.
//!
//! A process that moves into a group of version 2 waits until the kernel has no process on
//! its way anywhere, which takes milliseconds. A process that begins in the group does not wait
//! (`CLONE_INTO_CGROUP`, Linux 5.7). With version 1 a thread that moves by itself does not wait
//! either.

use super::{Forked, check_alone, fork};
use rustix::fs::{Mode, OFlags, open, openat};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// The flag of clone3(2) by which the new process begins in a group of version 2.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// The files with which a program enters its groups; empty, where it has no groups.
#[derive(Debug, Default)]
pub struct ProgramGroups {
    /// The directory of a group of version 2.
    two: Option<OwnedFd>,
    /// For each group of version 1, the file that takes threads.
    one: Vec<OwnedFd>,
}

/// The outcome of a fork whose new process must enter groups.
pub(super) struct BegunProcess<'g> {
    /// Shows which of the two processes this is.
    pub(super) forked: Forked,
    /// The file of the group that the new process must still enter.
    moves: Option<OwnedFd>,
    groups: &'g ProgramGroups,
}

/// The arguments of clone3(2): the structure of Linux 5.7.
#[repr(C)]
#[derive(Default)]
struct CloneArguments {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

impl ProgramGroups {
    /// The groups at these paths: at most one of version 2, and some of version 1.
    ///
    /// # Errors
    /// The error of the kernel, most often that this process may not put others there.
    pub fn open(two: Option<&Path>, one: &[PathBuf]) -> io::Result<ProgramGroups> {
        let flags = OFlags::CLOEXEC;
        let directory = |path| open(path, flags | OFlags::PATH | OFlags::DIRECTORY, Mode::empty());
        let tasks =
            |path: &PathBuf| open(path.join("tasks"), flags | OFlags::WRONLY, Mode::empty());
        let one = one.iter().map(tasks).collect::<Result<_, _>>()?;
        Ok(ProgramGroups { two: two.map(directory).transpose()?, one })
    }

    /// Makes a second process out of this one, which must [`enter`](BegunProcess::enter) the
    /// groups.
    pub(super) fn fork(&self) -> io::Result<BegunProcess<'_>> {
        let begun = |forked, moves| BegunProcess { forked, moves, groups: self };
        let Some(two) = &self.two else { return Ok(begun(fork()?, None)) };
        if let Some(forked) = fork_into(two)? {
            return Ok(begun(forked, None));
        }
        let flags = OFlags::CLOEXEC | OFlags::WRONLY;
        let moves = openat(two, "cgroup.procs", flags, Mode::empty())?;
        Ok(begun(fork()?, Some(moves)))
    }
}

impl BegunProcess<'_> {
    /// Puts this process, which is the new one, into the groups.
    pub(super) fn enter(&self) -> io::Result<()> {
        // 0 stands for the process that writes it
        for group in self.moves.iter().chain(&self.groups.one) {
            rustix::io::write(group, b"0")?;
        }
        Ok(())
    }
}

/// Does the same as [`fork`], and the new process begins in this group. Returns `None` where the
/// kernel, or a filter of system calls, does not allow it.
fn fork_into(group: &OwnedFd) -> io::Result<Option<Forked>> {
    check_alone()?;
    let arguments = CloneArguments {
        flags: CLONE_INTO_CGROUP,
        exit_signal: libc::SIGCHLD as u64,
        cgroup: group.as_raw_fd() as u64,
        ..CloneArguments::default()
    };
    // SAFETY: the structure is that of the call and lives until it is over. As with fork(2), the
    // new process has memory of its own, and this one has one thread, so no lock is held that the
    // new one would wait for.
    let made = unsafe {
        libc::syscall(libc::SYS_clone3, &raw const arguments, size_of::<CloneArguments>())
    };
    match made {
        0 => Ok(Some(Forked::Child)),
        process if process > 0 => Ok(u32::try_from(process).ok().map(Forked::Parent)),
        _ => match io::Error::last_os_error() {
            // lack of room would be the same without the group
            error if error.raw_os_error() == Some(libc::EAGAIN) => Err(error),
            _ => Ok(None),
        },
    }
}
