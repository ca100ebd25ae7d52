//! Which running server is asked, how, and what becomes of its answer.

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
    /// Asks the server.
    pub(crate) fn ask(&self, question: &str) -> Result<CommandAnswer, CommandFailure> {
        ask(&self.config, self.socket.clone(), question)
    }
}

/// Asks the server that runs `file`.
///
/// # Errors
/// When nobody answers. If that may be because of mistakes in the file, they are it.
pub(crate) fn ask(
    file: &Path,
    socket: Option<PathBuf>,
    question: &str,
) -> Result<CommandAnswer, CommandFailure> {
    let (socket, problems) = find(file, socket)?;
    ask_at(socket, problems, question)
}

/// The same of the server with this control socket, whose file may have mistakes.
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

/// What it comes to that nobody answers: the file may be why.
pub(crate) fn failure(
    unanswered: UnansweredCommand,
    problems: Option<Vec<Problem>>,
) -> CommandFailure {
    match problems {
        Some(problems) => CommandFailure::Unfound { problems, unanswered },
        None => CommandFailure::Unanswered(unanswered),
    }
}

/// Where the server that runs `file` is asked, and what is wrong with the file.
pub(crate) fn find(
    file: &Path,
    socket: Option<PathBuf>,
) -> Result<(PathBuf, Option<Vec<Problem>>), CommandFailure> {
    let (setting, problems) = match config_file::load(file) {
        Ok(Config { control, .. }) => (control.socket, None),
        // the server is to be found all the same
        Err(problems) => (config_file::control_socket_of(file), Some(problems)),
    };
    match socket.or_else(|| control_socket::find(&setting, file)) {
        Some(socket) => Ok((socket, problems)),
        None => Err(CommandFailure::NoSocket { file: file.to_owned() }),
    }
}

/// What a server answers is what was asked for.
pub(crate) fn print(answer: CommandAnswer) -> Result<(), CommandFailure> {
    match answer.code {
        0 => print_out(&answer.text),
        _ => Err(CommandFailure::Answered(answer)),
    }
}
