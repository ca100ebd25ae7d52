//! A command that runs: its start, its time limit, the output that is kept, and its result.

use super::commands::LaunchCommand;
use super::messages::LaunchReply;
use crate::privileges::user_of;
use forebay_config::Account;
use forebay_sys::launch::{self, LaunchEnd, LaunchedProgram, RunningLaunch};
use forebay_sys::privileges::{self, SystemUser};
use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// The directories in which programs without a path are looked for.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The number of bytes kept of a command's output: the last ones.
const MOST_OUTPUT_BYTES: usize = 4096;

/// The bytes read of the output at a time, and the most that are read once the command has ended.
const READ_BYTES: usize = 16 * 1024;
const MOST_LEFT_BYTES: usize = 1024 * 1024;

/// A command, ready to be run by a user of this machine.
#[derive(Debug)]
pub(super) struct ReadyCommand {
    pub(super) command: LaunchCommand,
    user: Option<SystemUser>,
    environment: HashMap<OsString, OsString>,
}

impl ReadyCommand {
    /// The command, if this process may run it.
    ///
    /// # Errors
    /// The reason why it may not.
    pub(super) fn new(command: LaunchCommand) -> Result<ReadyCommand, String> {
        let own = privileges::current();
        let (key, user) = match &command.user {
            None => (command.key, None),
            Some((key, name)) => (*key, Some(account(key, name, command.group.as_ref())?)),
        };
        let user = user.filter(|user| (user.user, user.group) != own);
        let number = user.as_ref().map_or(own.0, |user| user.user);
        if number == 0 {
            return Err(format!(
                "{}: no command is run as root: name another user in acme.dns_user",
                command.key
            ));
        }
        if user.is_some() && !privileges::may_become_another() {
            let name = command.user.as_ref().map_or("", |(_, name)| name.as_str());
            return Err(format!(
                "{key}: only root can become {name}; start the server as root, or leave it out"
            ));
        }
        let mut environment = HashMap::from([("PATH".into(), PATH.into())]);
        if let Ok(Some((name, home))) = privileges::name_and_home(number) {
            environment.insert("HOME".into(), home.into());
            environment.insert("USER".into(), name.clone().into());
            environment.insert("LOGNAME".into(), name.into());
        }
        Ok(ReadyCommand { command, user, environment })
    }

    /// Begins the command.
    ///
    /// # Errors
    /// Why it cannot be run.
    pub(super) fn begin(&self, asked: u32, values: Vec<String>) -> Result<CommandRun, String> {
        let LaunchCommand { words, variables, limit, .. } = &self.command;
        if values.len() != variables.len() {
            return Err(format!("it has {} variables, not {}", variables.len(), values.len()));
        }
        let mut environment = self.environment.clone();
        environment.extend(
            variables.iter().map(OsString::from).zip(values.into_iter().map(OsString::from)),
        );
        let program = LaunchedProgram { words, environment, user: self.user.as_ref() };
        let running = program.start().map_err(|error| {
            let path = words.first().map_or("", String::as_str);
            let hint = match error.kind() {
                io::ErrorKind::NotFound => {
                    ": it, or the interpreter that its first line names, is not there"
                }
                io::ErrorKind::PermissionDenied => ": it must be a file that its user may execute",
                _ => "",
            };
            format!("cannot run {path} ({error}){hint}")
        })?;
        let deadline = Instant::now() + *limit;
        Ok(CommandRun {
            asked,
            running,
            deadline,
            limit: *limit,
            said: Vec::new(),
            is_silent: false,
        })
    }
}

/// The account that a setting names.
///
/// # Errors
/// When this machine has no such account.
pub(super) fn account(
    key: &str,
    name: &Account,
    group: Option<&Account>,
) -> Result<SystemUser, String> {
    user_of(name, group).map_err(|error| match key {
        // this error names the user and the group itself
        "user" => error.to_string(),
        _ => format!("{key}: there is no user {:?} on this machine", name.as_str()),
    })
}

/// A command that runs, or has just ended.
#[derive(Debug)]
pub(super) struct CommandRun {
    /// The number of the question.
    pub(super) asked: u32,
    running: RunningLaunch,
    deadline: Instant,
    limit: Duration,
    said: Vec<u8>,
    /// The output is closed: no process can write more.
    is_silent: bool,
}

impl CommandRun {
    /// A descriptor that is readable once the command has ended.
    pub(super) fn ended(&self) -> BorrowedFd<'_> {
        self.running.ended()
    }

    /// A descriptor that is readable when there is output; `None` once the output is closed.
    pub(super) fn output(&self) -> Option<BorrowedFd<'_>> {
        (!self.is_silent).then(|| self.running.output())
    }

    /// The time until the command's deadline.
    pub(super) fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// Reads some output. The result is whether there may be more.
    pub(super) fn listen(&mut self) -> bool {
        let mut buffer = [0; READ_BYTES];
        let count = match self.running.read(&mut buffer) {
            Ok(Some(count)) => count,
            Ok(None) | Err(_) => {
                self.is_silent = true;
                0
            }
        };
        self.said.extend(&buffer[..count]);
        let more = self.said.len().saturating_sub(MOST_OUTPUT_BYTES);
        self.said.drain(..more);
        count > 0
    }

    /// Ends the command, with all that it has started, and returns its result. `is_late` means that
    /// it has taken too long.
    pub(super) fn finish(mut self, is_late: bool) -> LaunchReply {
        let mut left = MOST_LEFT_BYTES / READ_BYTES;
        while left > 0 && !self.is_silent && self.listen() {
            left -= 1;
        }
        let ended = self.running.end();
        let is_clean = launch::end_all();
        let failure = match ended {
            _ if is_late => {
                Some(format!("it has not ended within {:?}, and was killed", self.limit))
            }
            _ if !is_clean => Some("processes that it has started cannot be killed".to_owned()),
            Ok(LaunchEnd::Exited(0)) => None,
            Ok(LaunchEnd::Exited(code)) => Some(format!("it has ended with exit code {code}")),
            Ok(LaunchEnd::Killed(signal)) => Some(format!("it was killed by signal {signal}")),
            Err(error) => Some(format!("how it has ended is not known: {error}")),
        };
        LaunchReply { failure, said: String::from_utf8_lossy(&self.said).into_owned() }
    }
}
