//! Why a command has no answer: what is behind a control socket, as far as can be seen from
//! outside.

use forebay_sys::unix;
use std::fmt;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A command that has no answer.
#[derive(Debug)]
pub struct UnansweredCommand {
    /// The socket to which the command was sent.
    pub socket: PathBuf,
    /// The reason.
    pub why: WhyUnanswered,
}

/// Why a command has no answer.
#[derive(Debug)]
pub enum WhyUnanswered {
    /// Nothing is at the path.
    NoSocket,
    /// A file at the path is not a socket.
    OtherFile,
    /// The socket exists, but its listener has ended.
    Dead,
    /// This user may not open the socket.
    Denied,
    /// The backlog is full, and no command is being accepted.
    Full,
    /// No answer came within this time.
    Silent(Option<ListeningProcess>, Duration),
    /// The answer is not that of a server, or the connection was closed without one.
    Strange(Option<ListeningProcess>),
    /// Another error of the kernel.
    Kernel(io::Error),
}

/// The process that listens at a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListeningProcess {
    number: u32,
    /// The name of its program; empty if that cannot be seen.
    name: String,
    /// Whether a signal or a debugger has stopped the process.
    pub(super) is_stopped: bool,
}

impl UnansweredCommand {
    /// Interprets an error of connect.
    pub(super) fn unconnected(socket: &Path, error: io::Error) -> UnansweredCommand {
        let is_socket = || fs::metadata(socket).is_ok_and(|found| found.file_type().is_socket());
        let why = match error.kind() {
            io::ErrorKind::NotFound => WhyUnanswered::NoSocket,
            io::ErrorKind::NotADirectory => WhyUnanswered::NoSocket,
            io::ErrorKind::ConnectionRefused if is_socket() => WhyUnanswered::Dead,
            io::ErrorKind::ConnectionRefused => WhyUnanswered::OtherFile,
            io::ErrorKind::PermissionDenied => WhyUnanswered::Denied,
            io::ErrorKind::WouldBlock => WhyUnanswered::Full,
            _ if unix::is_of_another_kind(&error) => WhyUnanswered::OtherFile,
            _ => WhyUnanswered::Kernel(error),
        };
        UnansweredCommand { socket: socket.to_owned(), why }
    }

    /// Whether no server runs there, as far as can be seen.
    pub fn has_no_server(&self) -> bool {
        matches!(self.why, WhyUnanswered::NoSocket | WhyUnanswered::Dead)
    }
}

impl ListeningProcess {
    /// The process at the other end of a connection; `None` if the kernel does not report it, as
    /// for a process in another container.
    pub(super) fn of(connection: impl AsFd) -> Option<ListeningProcess> {
        let number = unix::peer_process(connection.as_fd()).ok().flatten()?;
        let stat = fs::read_to_string(format!("/proc/{number}/stat")).unwrap_or_default();
        let (name, is_stopped) = read_stat(&stat).unwrap_or_default();
        Some(ListeningProcess { number, name: name.to_owned(), is_stopped })
    }
}

/// Parses `/proc/PID/stat` (proc_pid_stat(5)) into the name of a process and whether it is stopped.
/// A name may contain parentheses and blanks.
fn read_stat(stat: &str) -> Option<(&str, bool)> {
    let (name, rest) = stat.split_once('(')?.1.rsplit_once(')')?;
    Some((name, rest.trim_start().starts_with(['T', 't'])))
}

impl fmt::Display for ListeningProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ListeningProcess { number, name, .. } = self;
        match name.is_empty() {
            true => write!(f, "process {number}"),
            false => write!(f, "process {number} ({})", name.escape_default()),
        }
    }
}

impl fmt::Display for UnansweredCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.socket.display();
        let who = |process: &Option<ListeningProcess>| match process {
            Some(process) => process.to_string(),
            None => "another process".to_owned(),
        };
        match &self.why {
            WhyUnanswered::NoSocket => write!(
                f,
                "no server listens at {at}: there is no such socket; is it running, with this configuration file, \
                 as this user? If it has another socket, name that with --socket"
            ),
            WhyUnanswered::Dead => write!(
                f,
                "no server listens at {at}: the process that has left this socket has ended"
            ),
            WhyUnanswered::OtherFile => {
                write!(f, "no server listens at {at}: what is there is no control socket")
            }
            WhyUnanswered::Denied => write!(
                f,
                "this user may not ask the server at {at}: run the command as the user who runs the server, or as \
                 root"
            ),
            WhyUnanswered::Full => write!(
                f,
                "what listens at {at} takes no more commands, because so many wait already: it hangs, or is stopped"
            ),
            WhyUnanswered::Silent(Some(process), _) if process.is_stopped => write!(
                f,
                "{process}, which listens at {at}, is stopped, by a signal or a debugger, and does nothing: kill \
                 -CONT {} has it go on",
                process.number
            ),
            WhyUnanswered::Silent(process, after) => write!(
                f,
                "{}, which listens at {at}, has not answered within {} s: it hangs, or has very much to do, or is no \
                 Forebay",
                who(process),
                after.as_secs()
            ),
            WhyUnanswered::Strange(process) => write!(
                f,
                "{}, which listens at {at}, does not answer as Forebay does: it has just ended, or is another program",
                who(process)
            ),
            WhyUnanswered::Kernel(error) => write!(f, "no server can be asked at {at}: {error}"),
        }
    }
}

impl std::error::Error for UnansweredCommand {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_told_by_its_line() {
        assert_eq!(read_stat("7 (forebay) T 1 7"), Some(("forebay", true)));
        assert_eq!(read_stat("7 (a) T) b) S 1 7"), Some(("a) T) b", false)));
        assert_eq!(read_stat("7 (x) t"), Some(("x", true)));
        assert_eq!(read_stat(""), None);
    }
}
