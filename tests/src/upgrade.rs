//! `forebay upgrade` in tests: the command, and the server that it starts.

use crate::Server;
use crate::faults::soon;
use crate::server::binary;
use crate::wire::PATIENCE;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::path::Path;
use std::process::Command;

/// A server that this process has not started. It ends when this is dropped.
#[derive(Debug)]
pub struct Successor(Pid);

impl Successor {
    /// The server with this process.
    ///
    /// # Panics
    /// If no process can have the number.
    pub fn of(process: u32) -> Successor {
        let number = process.try_into().ok().and_then(Pid::from_raw);
        Successor(number.expect("the number of a process"))
    }

    /// The server that the command reports as serving now.
    ///
    /// # Panics
    /// If it reports none.
    pub fn of_said(said: &str) -> Successor {
        let number = said.split("upgrade: process ").nth(1).and_then(|rest| rest.split(' ').next());
        Successor::of(
            number.and_then(|number| number.parse().ok()).expect("it says which process serves"),
        )
    }

    /// The number of the server's process.
    pub fn number(&self) -> i32 {
        self.0.as_raw_nonzero().get()
    }

    /// Whether the server has not ended.
    pub fn is_there(&self) -> bool {
        // its parent may leave it as a zombie
        let status = fs::read_to_string(format!("/proc/{}/status", self.number()));
        status.is_ok_and(|status| !status.contains("State:\tZ"))
    }
}

impl Drop for Successor {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::TERM);
        soon(PATIENCE, || !self.is_there());
    }
}

/// Runs the command. Returns its output and its exit code.
///
/// # Panics
/// If the command cannot be run.
pub fn command(server: &Server) -> (Option<i32>, String) {
    command_of(&server.file())
}

fn command_of(file: &Path) -> (Option<i32>, String) {
    let output = Command::new(binary()).arg("upgrade").arg("-c").arg(file).output();
    let output = output.expect("it can be run");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Upgrades a server. Returns the server that has taken its place.
///
/// # Panics
/// If there is none.
pub fn upgrade(server: &Server) -> Successor {
    upgrade_of(&server.file())
}

/// Upgrades the server that runs with this file.
///
/// # Panics
/// If there is none.
pub fn upgrade_of(file: &Path) -> Successor {
    let (code, said) = command_of(file);
    assert_eq!(code, Some(0), "{said}");
    Successor::of_said(&said)
}
