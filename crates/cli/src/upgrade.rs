//! `forebay upgrade`: this program in place of the one that runs. The command starts the new server as its own
//! child, with the rights that it has itself, and waits until that serves or has ended.

use crate::exit::CommandFailure;
use crate::running_server::{self, ServerArgs};
use crate::say;
use forebay_server::config_file;
use forebay_server::lints::Depth;
use forebay_server::start_error::Ready;
use forebay_sys::stderr;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

/// What the new server says once it serves, at the socket that is its standard input: its standard output is that of
/// the server before, and may be the access log.
const SERVES: &str = "serves\n";

/// Starts the new server and waits for what becomes of it.
pub(crate) fn run(server: &ServerArgs) -> Result<(), CommandFailure> {
    let (socket, problems) = running_server::find(&server.config, server.socket.clone())?;
    if let Some(problems) = problems {
        return Err(CommandFailure::Configuration(problems));
    }
    let (mut hears, tells) = UnixStream::pair().map_err(CommandFailure::Upgrade)?;
    let mut child = start(&server.config, &socket, tells).map_err(CommandFailure::Upgrade)?;
    let mut said = String::new();
    hears.read_to_string(&mut said).map_err(CommandFailure::Upgrade)?;
    if said == SERVES {
        return Ok(());
    }
    // it has said why
    let status = child.wait().map_err(CommandFailure::Upgrade)?;
    Err(CommandFailure::NotUpgraded { code: status.code() })
}

fn start(config: &Path, socket: &Path, tells: UnixStream) -> io::Result<Child> {
    Command::new(std::env::current_exe()?)
        .arg("run")
        .arg("--config")
        .arg(config)
        .arg("--in-place-of")
        .arg(socket)
        // a signal from the terminal is not for the server
        .process_group(0)
        .stdin(OwnedFd::from(tells))
        .spawn()
}

/// Serves what a file says, in place of the server with this control socket; the command that has started it hears
/// when.
pub(crate) fn serve(file: PathBuf, socket: &Path) -> Result<(), CommandFailure> {
    let read = config_file::load_and_warn(&file, Depth::Files);
    let (config, warnings) = read.map_err(CommandFailure::Configuration)?;
    let command = stderr::take_input().map_err(CommandFailure::Upgrade)?;
    let ready: Ready = Box::new(move |_| {
        warnings.iter().for_each(|warning| say(&format!("forebay: {warning}")));
        // the command may have been ended
        let _ = UnixStream::from(command).write_all(SERVES.as_bytes());
    });
    forebay_server::serve_in_place(config, file, socket, ready).map_err(CommandFailure::Run)
}
