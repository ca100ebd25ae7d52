//! The errors of commands, and the exit code of each. Codes follow sysexits.h where it has one.

use crate::calibrate::CalibrateError;
use crate::hash_password::PasswordError;
use crate::init_error::InitError;
use crate::local_certificate::LocalError;
use crate::policy_error::PolicyCommandError;
use crate::stage_keys::StageKeysError;
use forebay_config::{Problem, Wrong};
use forebay_server::command::CommandAnswer;
use forebay_server::control_socket::{self, UnansweredCommand};
use forebay_server::start_error::RunError;
use std::fmt;
use std::io;
use std::path::PathBuf;

/// The most control sockets of other servers that a message names.
const MOST_OTHERS: usize = 4;

/// The exit codes, for `--help` and the manual.
pub(crate) const CODES: [(u8, &str); 5] = [
    (0, "good: done, or stopped as asked"),
    (
        1,
        "failed while running: an address in use, a file that cannot be opened, a load without one good answer",
    ),
    (2, "wrong usage: an unknown option, a value that is not allowed"),
    (3, "forebay load: what was expected of the target did not hold"),
    (78, "bad configuration: the file, or a directory it names, cannot be used"),
];

/// The signals that a server handles, for `--help` and the manual.
pub(crate) const SIGNALS: [(&str, &str); 4] = [
    (
        "TERM, INT",
        "finish what is open, at most timeouts.drain; again: stop at once. Before that TERM waits for timeouts.drain_wait",
    ),
    ("QUIT", "as TERM, and finish what is open, however long it takes"),
    ("USR1", "open the access log again, after it was renamed"),
    ("HUP", "read the configuration file again, as `forebay reload` does"),
];

/// The error of a command. Of wrong usage it includes only options that contradict one another: clap reports
/// the rest, and exits with 2 as well.
#[derive(Debug)]
pub(crate) enum CommandFailure {
    /// Options of `serve` exclude one another, or say the same twice.
    Options(Box<Problem>),
    /// Something is wrong with the configuration, everything listed.
    Configuration(Vec<Problem>),
    /// The server could not start or go on.
    Run(RunError),
    /// The server has no stages, but one was to be run.
    NotIsolated {
        /// The server's configuration file.
        file: PathBuf,
    },
    /// The server has no control socket.
    NoSocket {
        /// The server's configuration file.
        file: PathBuf,
    },
    /// The configuration file is wrong, and no server answers where one that runs it should be.
    Unfound {
        /// The errors of the file.
        problems: Vec<Problem>,
        /// The control socket that was tried, and the result.
        unanswered: UnansweredCommand,
    },
    /// No server answers at its control socket.
    Unanswered(UnansweredCommand),
    /// The server refused the command.
    Answered(CommandAnswer),
    /// `calibrate` ended early.
    Calibrate(CalibrateError),
    /// A command of `policy` cannot be answered, or has no valid token.
    Policy(PolicyCommandError),
    /// There is no password, or none that can be hashed.
    Password(PasswordError),
    /// The keys for stages could not be made.
    StageKeys(StageKeysError),
    /// `serve --tls` has no certificate.
    Certificate(LocalError),
    /// The helper for the firewall cannot begin, or cannot read from the server.
    Firewall(io::Error),
    /// The process that runs commands cannot begin, or cannot read from the server.
    Launcher(io::Error),
    /// The guard that removes filters cannot begin.
    Gate(io::Error),
    /// A new server cannot be started in place of the running one.
    Upgrade(io::Error),
    /// The new server has ended before it served.
    NotUpgraded {
        /// The exit code, unless a signal ended the process.
        code: Option<u8>,
    },
    /// The service manager cannot start the new server.
    NotByService {
        /// The systemd unit of the server.
        unit: String,
        /// The reason.
        why: String,
    },
    /// `systemctl` cannot be run.
    Systemctl(io::Error),
    /// This process cannot take the permissions of a user.
    SeeAs {
        /// The user's name.
        name: String,
        /// The kernel's error; `None` if there is no such user.
        error: Option<io::Error>,
    },
    /// `init` could not make a configuration file.
    Init(InitError),
    /// Standard output could not be written.
    Output(io::Error),
}

impl CommandFailure {
    /// The exit code of the process.
    pub(crate) fn code(&self) -> u8 {
        match self {
            CommandFailure::Options(_)
            | CommandFailure::SeeAs { error: None, .. }
            | CommandFailure::Init(InitError::Answer { .. }) => 2,
            CommandFailure::Configuration(_)
            | CommandFailure::Unfound { .. }
            | CommandFailure::NotIsolated { .. } => 78,
            CommandFailure::Run(_)
            | CommandFailure::NoSocket { .. }
            | CommandFailure::Unanswered(_)
            | CommandFailure::Calibrate(_)
            | CommandFailure::Policy(_)
            | CommandFailure::Password(_)
            | CommandFailure::StageKeys(_)
            | CommandFailure::Certificate(_)
            | CommandFailure::Firewall(_)
            | CommandFailure::Launcher(_)
            | CommandFailure::Gate(_)
            | CommandFailure::Upgrade(_)
            | CommandFailure::NotByService { .. }
            | CommandFailure::Systemctl(_)
            | CommandFailure::SeeAs { .. }
            | CommandFailure::Init(_)
            | CommandFailure::Output(_) => 1,
            CommandFailure::NotUpgraded { code } => code.unwrap_or(1),
            CommandFailure::Answered(answer) => answer.code,
        }
    }
}

impl fmt::Display for CommandFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CommandFailure::Options(problem) => problem.fmt(f),
            CommandFailure::SeeAs { name, error: None } => {
                write!(f, "forebay check: no user is called {name:?}")
            }
            CommandFailure::SeeAs { name, error: Some(error) } => {
                write!(f, "forebay check: cannot see files as {name} does (only root can): {error}")
            }
            CommandFailure::Configuration(problems) => {
                f.write_str(&lines(problems))?;
                f.write_str(if is_missing(problems) { "; forebay init begins one" } else { "" })
            }
            CommandFailure::Unfound { problems, unanswered } => write!(
                f,
                "{}\nforebay: and {unanswered}; name its file with -c, or its socket with --socket{}",
                lines(problems),
                others(unanswered)
            ),
            CommandFailure::Run(error) => write!(f, "forebay: {error}"),
            CommandFailure::Firewall(error) => {
                write!(f, "forebay: the helper for the firewall: {error}")
            }
            CommandFailure::Launcher(error) => {
                write!(f, "forebay: a process that runs commands or programs: {error}")
            }
            CommandFailure::Gate(error) => {
                write!(f, "forebay: what takes the filters of a server away: {error}")
            }
            CommandFailure::Unanswered(unanswered) => {
                write!(f, "forebay: {unanswered}{}", others(unanswered))
            }
            CommandFailure::NotIsolated { file } => write!(
                f,
                "forebay: {} says neither engine = \"isolated\" nor [stages]: its server has no stages",
                file.display()
            ),
            CommandFailure::NoSocket { file } => write!(
                f,
                "forebay: control.socket is \"off\" in {}, so no command reaches the server; SIGHUP \
                 has it read the file again",
                file.display()
            ),
            CommandFailure::Answered(answer) => f.write_str(answer.text.trim_end()),
            CommandFailure::Calibrate(error) => write!(f, "forebay calibrate: {error}"),
            CommandFailure::Policy(error) => write!(f, "forebay policy: {error}"),
            CommandFailure::StageKeys(error) => write!(f, "forebay stages keys: {error}"),
            CommandFailure::Certificate(error) => write!(f, "forebay serve: {error}"),
            CommandFailure::Init(error) => write!(f, "forebay init: {error}"),
            CommandFailure::Password(error) => write!(f, "forebay hash-password: {error}"),
            CommandFailure::Upgrade(error) => {
                write!(f, "forebay upgrade: the new server cannot be started: {error}")
            }
            CommandFailure::NotUpgraded { code } => {
                f.write_str("forebay upgrade: the new server has ended before it served")?;
                if code.is_none() {
                    f.write_str(", by a signal")?;
                }
                f.write_str("; the running one goes on as before")
            }
            CommandFailure::NotByService { unit, why } => write!(
                f,
                "forebay upgrade: the server is {unit} of systemd, which has not started another: {why}\nforebay \
                 upgrade: the running one goes on as before"
            ),
            CommandFailure::Systemctl(error) => {
                write!(f, "forebay upgrade: systemctl cannot be run: {error}")
            }
            CommandFailure::Output(error) => {
                write!(f, "forebay: standard output cannot be written: {error}")
            }
        }
    }
}

fn lines(problems: &[Problem]) -> String {
    problems.iter().map(Problem::to_string).collect::<Vec<_>>().join("\n")
}

/// Whether the only problem is that the file does not exist.
fn is_missing(problems: &[Problem]) -> bool {
    let [Problem { place: None, key, wrong: Wrong::Unreadable(error), .. }] = problems else {
        return false;
    };
    key.is_empty() && error.kind() == io::ErrorKind::NotFound
}

/// The hint with the control sockets of other servers, if no server was found at the expected one.
fn others(unanswered: &UnansweredCommand) -> String {
    let others = match unanswered.has_no_server() {
        true => control_socket::beside(&unanswered.socket),
        false => Vec::new(),
    };
    let shown: Vec<_> = others
        .iter()
        .take(MOST_OTHERS)
        .map(|path| path.display())
        .map(|path| path.to_string())
        .collect();
    match others.len().saturating_sub(shown.len()) {
        _ if shown.is_empty() => String::new(),
        0 => format!("; there is {}", shown.join(", ")),
        more => format!("; there is {}, and {more} more", shown.join(", ")),
    }
}

impl From<InitError> for CommandFailure {
    fn from(error: InitError) -> CommandFailure {
        CommandFailure::Init(error)
    }
}

/// Signals and exit codes as tables for `--help`.
pub(crate) fn table() -> String {
    let signals = SIGNALS.iter().map(|(name, meaning)| format!("  {name:<9}  {meaning}\n"));
    let codes = CODES.iter().map(|(code, meaning)| format!("  {code:>2}  {meaning}\n"));
    let (signals, codes): (String, String) = (signals.collect(), codes.collect());
    format!("Signals:\n{signals}\nExit codes:\n{}", codes.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_in_the_table() {
        let output = CommandFailure::Output(io::ErrorKind::StorageFull.into());
        for failure in [CommandFailure::Configuration(Vec::new()), output] {
            assert!(CODES.iter().any(|(code, _)| *code == failure.code()));
        }
    }
}
