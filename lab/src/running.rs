//! A server process: pinned to its core, known to answer, and stopped whatever happens.

use crate::Error;
use crate::cpu;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, set_child_subreaper, waitpgid,
};
use rustix::thread::CpuSet;
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const STOP_WITHIN: Duration = Duration::from_secs(3);
const POLL: Duration = Duration::from_millis(10);

/// A child process in a process group of its own. Dropping it ends the whole group.
#[derive(Debug)]
pub struct ChildProcess {
    child: Child,
    ended: bool,
}

impl ChildProcess {
    /// Starts `command` so that it and all its children run on `core`, or on any core if there is
    /// none.
    pub fn start(
        mut command: Command,
        core: impl Into<Option<usize>>,
    ) -> Result<ChildProcess, Error> {
        let path = command.get_program().to_owned();
        let Some(core) = core.into() else {
            let child = command.process_group(0).spawn().map_err(Error::io("cannot start", path));
            return Ok(ChildProcess { child: child?, ended: false });
        };
        // A child inherits the affinity of the thread that starts it.
        let before = rustix::thread::sched_getaffinity(None).map_err(|_| Error::Core(core))?;
        pin(core)?;
        let child = command.process_group(0).spawn().map_err(Error::io("cannot start", path));
        rustix::thread::sched_setaffinity(None, &before).map_err(|_| Error::Core(core))?;
        Ok(ChildProcess { child: child?, ended: false })
    }

    /// The number of the process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether the process ended by itself. It stays a zombie, so that its number is not used
    /// again.
    pub fn has_ended(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let state = rustix::process::waitid(WaitId::Pid(self.group()), options);
        !matches!(state, Ok(None))
    }

    /// Whether the process ended by itself, and without an error; what is left of its group is
    /// ended.
    pub fn has_succeeded(&mut self) -> bool {
        if self.ended || !self.has_ended() {
            return false;
        }
        self.ended = true;
        // its leader is not waited for yet: see `end`
        self.signal(Signal::KILL);
        let succeeded = self.child.wait().is_ok_and(|status| status.success());
        while matches!(waitpgid(self.group(), WaitOptions::empty()), Ok(Some(_))) {}
        succeeded
    }

    /// Waits until the process ends, at most `most`. `false`: it did not. `stop` is set when a
    /// signal asks this program to stop.
    pub fn wait(&self, most: Duration, stop: &AtomicBool) -> Result<bool, Error> {
        let end = Instant::now() + most;
        while !self.has_ended() {
            if stop.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            if Instant::now() > end {
                return Ok(false);
            }
            std::thread::sleep(POLL);
        }
        Ok(true)
    }

    /// Asks the process to end, then ends what is left of its group. Returns whether it had to be
    /// killed.
    pub fn end(&mut self) -> bool {
        if self.ended {
            return false;
        }
        self.ended = true;
        // The group exists as long as its leader is not waited for; only that makes it safe to
        // signal it by number.
        let _ = rustix::process::kill_process(self.group(), Signal::TERM);
        // a process that is stopped (SIGSTOP) handles no SIGTERM before a SIGCONT
        self.signal(Signal::CONT);
        let ended = matches!(self.wait(STOP_WITHIN, &AtomicBool::new(false)), Ok(true));
        self.signal(Signal::KILL);
        let _ = self.child.wait();
        // sockets of the others are free when they have ended, too: the next server binds the same
        // address
        while matches!(waitpgid(self.group(), WaitOptions::empty()), Ok(Some(_))) {}
        !ended
    }

    /// Sends a signal to the process and all it has started.
    pub fn signal(&self, signal: Signal) {
        // a process that has ended needs no signal
        let _ = rustix::process::kill_process_group(self.group(), signal);
    }

    fn group(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        self.end();
    }
}

/// From now on, orphaned descendants are waited for by this process.
pub fn adopt() {
    // where the kernel cannot do that, an address is free a little later
    let _ = set_child_subreaper(Pid::from_raw(1));
}

/// Binds this thread, and the processes it starts, to one core.
pub fn pin(core: usize) -> Result<(), Error> {
    let mut only = CpuSet::new();
    if core >= CpuSet::MAX_CPU {
        return Err(Error::Core(core));
    }
    only.set(core);
    rustix::thread::sched_setaffinity(None, &only).map_err(|_| Error::Core(core))
}

/// A number of `/proc/PID/status`, by its name with the colon; 0 if there is none.
pub fn status(pid: u32, key: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(key));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// The last lines of a process's output.
pub fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(10)..].join("\n")
}

/// All processes of a server.
pub fn family(process: &ChildProcess) -> Vec<u32> {
    cpu::tree(process.pid())
}

/// The first port from `start` on at which no program listens. It is below the range that clients
/// get (32768 and up), so that no connection of the load takes it.
pub fn free_port(start: u16) -> Option<u16> {
    (start..32_000).find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_ended_with_its_children() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 60 & sleep 60"]);
        let core = rustix::thread::sched_getcpu();
        let mut process = ChildProcess::start(command, core).expect("sh starts");
        let mut found = Vec::new();
        soon(|| {
            found = family(&process);
            found.len() > 1
        });
        assert!(cpu::are_pinned(&found, core));
        process.end();
        // Orphans are reaped by another process, at some time: a zombie has ended too.
        let is_over = |pid: &u32| match fs::read_to_string(format!("/proc/{pid}/stat")) {
            Ok(stat) => stat.contains(") Z "),
            Err(_) => true,
        };
        soon(|| found.iter().all(is_over));
    }

    /// Waits until `done`, for as long as a machine under load may need.
    fn soon(mut done: impl FnMut() -> bool) {
        let end = Instant::now() + Duration::from_secs(20);
        while !done() {
            assert!(Instant::now() < end, "it never happened");
            std::thread::sleep(POLL);
        }
    }
}
