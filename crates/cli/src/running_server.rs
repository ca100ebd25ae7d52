//! Questions to a running server: how it is found and asked, and how its answer is printed.

use crate::exit::CommandFailure;
use crate::print_out;
use clap::Args;
use forebay_config::{Config, Problem};
use forebay_server::command::CommandAnswer;
use forebay_server::config_file;
use forebay_server::control_socket::{self, UnansweredCommand};
use std::path::{Path, PathBuf};

/// Which server is asked.
#[derive(Debug, Args)]
pub(crate) struct ServerArgs {
    /// The configuration file that the server was started with
    #[arg(short, long, value_name = "FILE", default_value = "forebay.toml")]
    pub(crate) config: PathBuf,
    /// The server's control socket [default: what control.socket in the file says]
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
}

impl ServerArgs {
    /// Asks the server that the options name.
    pub(crate) fn ask(&self, question: &str) -> Result<CommandAnswer, CommandFailure> {
        ask(&self.config, self.socket.clone(), question)
    }
}

/// Asks the server that runs `file`.
///
/// # Errors
/// No server answers. If errors in the file may be the cause, these are returned.
pub(crate) fn ask(
    file: &Path,
    socket: Option<PathBuf>,
    question: &str,
) -> Result<CommandAnswer, CommandFailure> {
    let (socket, problems) = find(file, socket)?;
    ask_at(socket, problems, question)
}

/// Asks the server with this control socket, whose file may have errors.
///
/// # Errors
/// See [`ask`].
pub(crate) fn ask_at(
    socket: PathBuf,
    problems: Option<Vec<Problem>>,
    question: &str,
) -> Result<CommandAnswer, CommandFailure> {
    control_socket::ask(&socket, question).map_err(|unanswered| failure(unanswered, problems))
}

/// The error when no server answers, of which errors in the file may be the cause.
pub(crate) fn failure(
    unanswered: UnansweredCommand,
    problems: Option<Vec<Problem>>,
) -> CommandFailure {
    match problems {
        Some(problems) => CommandFailure::Unfound { problems, unanswered },
        None => CommandFailure::Unanswered(unanswered),
    }
}

/// The control socket of the server that runs `file`, and the errors of the file.
pub(crate) fn find(
    file: &Path,
    socket: Option<PathBuf>,
) -> Result<(PathBuf, Option<Vec<Problem>>), CommandFailure> {
    let (setting, problems) = match config_file::load(file) {
        Ok(Config { control, .. }) => (control.socket, None),
        // with errors in the file the server must be found all the same
        Err(problems) => (config_file::control_socket_of(file), Some(problems)),
    };
    match socket.or_else(|| control_socket::find(&setting, file)) {
        Some(socket) => Ok((socket, problems)),
        None => Err(CommandFailure::NoSocket { file: file.to_owned() }),
    }
}

/// Prints the answer of a server to standard output; an answer with an error code becomes a failure.
pub(crate) fn print(answer: CommandAnswer) -> Result<(), CommandFailure> {
    match answer.code {
        0 => print_out(&answer.text),
        _ => Err(CommandFailure::Answered(answer)),
    }
}
