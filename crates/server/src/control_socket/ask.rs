//! The client's end of the control socket: a command, and what the server answers.

use super::deadline_stream::DeadlineStream;
use super::{LONGEST_WORK, PATIENCE};
use crate::command::CommandAnswer;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Asks the server that listens at `path`, and waits for its answer.
///
/// # Errors
/// When no server listens there, no answer comes in time, or it is none.
pub fn ask(path: &Path, command: &str) -> io::Result<CommandAnswer> {
    let mut line = DeadlineStream::new(UnixStream::connect(path)?, PATIENCE);
    // a server that does not want to hear it all may have answered
    let told = writeln!(line, "{command}").and_then(|()| line.stream.shutdown(Shutdown::Write));
    line.extend(LONGEST_WORK + 2 * PATIENCE);
    let mut answer = String::new();
    let heard = line.read_to_string(&mut answer);
    if answer.is_empty() {
        told?;
        heard?;
    }
    let (code, text) = answer.split_once('\n').ok_or(io::ErrorKind::UnexpectedEof)?;
    let code = code.parse().map_err(|_| io::ErrorKind::InvalidData)?;
    Ok(CommandAnswer { code, text: text.to_owned() })
}
