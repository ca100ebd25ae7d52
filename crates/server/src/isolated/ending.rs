//! How a process has ended: by itself, or by order of an operator or the kernel.

use signal_hook::consts::{SIGHUP, SIGINT, SIGKILL, SIGQUIT, SIGTERM};
use std::fmt;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// The end of a process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ending(pub(super) ExitStatus);

impl Ending {
    /// Whether the process has crashed. SIGKILL and the signals that ask for an end come from
    /// operators; the kernel sends SIGKILL, too, when memory runs out.
    pub(super) fn was_by_itself(self, memory: &mut OutOfMemory) -> bool {
        match (self.0.code(), self.0.signal()) {
            (Some(code), _) => code != 0,
            (None, Some(SIGKILL)) => memory.has_ended_one(),
            (None, Some(signal)) => ![SIGTERM, SIGINT, SIGQUIT, SIGHUP].contains(&signal),
            (None, None) => false,
        }
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0.code(), self.0.signal()) {
            (Some(code), _) => write!(f, "has ended with exit code {code}"),
            (None, Some(signal)) => write!(f, "was ended by signal {signal}"),
            (None, None) => f.write_str("has ended"),
        }
    }
}

/// The number of processes on the machine that the kernel has killed for want of memory (since
/// Linux 4.13).
#[derive(Debug)]
pub(super) struct OutOfMemory {
    known: Option<u64>,
}

impl OutOfMemory {
    pub(super) fn new() -> OutOfMemory {
        OutOfMemory { known: count(&fs::read_to_string(VMSTAT).unwrap_or_default()) }
    }

    /// Whether the kernel has killed a process since the last call.
    fn has_ended_one(&mut self) -> bool {
        let next = OutOfMemory::new();
        let is_more = next.known > self.known;
        *self = next;
        is_more
    }
}

const VMSTAT: &str = "/proc/vmstat";

fn count(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("oom_kill "))?;
    line.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_told_to_end_does_not_end_by_itself() {
        let memory = || OutOfMemory { known: Some(u64::MAX) };
        // as wait(2) has them: a signal, or an exit code in the second byte
        for (status, expected) in
            [(SIGKILL, false), (SIGTERM, false), (SIGINT, false), (0, false), (6, true), (11, true)]
        {
            let ending = Ending(ExitStatus::from_raw(status));
            assert_eq!(ending.was_by_itself(&mut memory()), expected, "{ending}");
        }
        assert!(Ending(ExitStatus::from_raw(101 << 8)).was_by_itself(&mut memory()));
    }

    #[test]
    fn lack_of_memory_is_told_from_an_operator() {
        assert_eq!(count("nr_free 7\noom_kill 3\noom_kill_x 9\n"), Some(3));
        assert_eq!(count("nr_free 7\n"), None);
        let killed = Ending(ExitStatus::from_raw(SIGKILL));
        let text = fs::read_to_string(VMSTAT).unwrap();
        if let Some(now) = count(&text) {
            let mut memory = OutOfMemory { known: now.checked_sub(1) };
            assert!(killed.was_by_itself(&mut memory));
        }
    }
}
