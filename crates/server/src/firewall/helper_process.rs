//! The firewall's helper process, as the server that started it sees it.

use super::helper::{self, HelperMessage, HelperReply};
use forebay_sys::{privileges, stderr};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A running helper.
#[derive(Debug)]
pub(super) struct Helper {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Helper {
    /// Starts a helper, which keeps the right to read and change the firewall. Must be called
    /// before rights are given up, and before there are threads.
    ///
    /// # Errors
    /// Why this machine cannot have a helper.
    pub(super) fn open() -> Result<Helper, String> {
        if let Some(lack) = helper::lack() {
            return Err(lack);
        }
        if !privileges::may_change_firewall() {
            return Err("no CAP_NET_ADMIN; start it as root".to_owned());
        }
        Helper::start().map_err(|error| format!("cannot start its helper: {error}"))
    }

    fn start() -> io::Result<Helper> {
        let mut child = Command::new("/proc/self/exe")
            .arg("firewall")
            // in a process group of its own: signals from the terminal are for the server
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(stderr::of_children())
            .spawn()?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let output = output.ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(Helper { child, input, output: BufReader::new(output) })
    }

    /// Has the helper change something, and returns the counts since its start.
    pub(super) fn change(&mut self, message: &HelperMessage) -> Result<[u64; 2], String> {
        match self.ask(message)? {
            HelperReply::Done(counted) => Ok(counted),
            HelperReply::Failed(why) => Err(why),
            HelperReply::Sets(_) => Err("its helper has answered something else".to_owned()),
        }
    }

    /// Sends the helper a request, and waits for the answer.
    pub(super) fn ask(&mut self, message: &HelperMessage) -> Result<HelperReply, String> {
        let mut ask = || -> io::Result<HelperReply> {
            let input = self.input.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
            let mut text = serde_json::to_vec(message)?;
            text.push(b'\n');
            input.write_all(&text)?;
            let mut line = String::new();
            if self.output.read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            Ok(serde_json::from_str(&line)?)
        };
        ask().map_err(|_| {
            self.input = None;
            "its helper has ended; only a restart of the server begins another".to_owned()
        })
    }

    /// Waits until the helper has removed the table and ended.
    pub(super) fn end(&mut self) {
        self.input = None;
        let _ = self.child.wait();
    }
}

/// Dropping the handle ends the helper, which removes the table.
impl Drop for Helper {
    fn drop(&mut self) {
        self.end();
    }
}
