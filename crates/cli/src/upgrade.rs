//! `forebay upgrade`: starts this program in place of the running one, with the rights of the command. Where
//! the server is a service of systemd and the command is not, the service manager starts the new server: it
//! runs `forebay reload` inside the service, which learns from the server that an upgrade is expected.

use crate::exit::CommandFailure;
use crate::running_server::{self, ServerArgs};
use crate::{print_out, say};
use forebay_server::config_file;
use forebay_server::lints::Depth;
use forebay_server::start_error::Ready;
use forebay_server::upgrade::expected::{self, UpgradeState};
use forebay_server::upgrade::service::ServiceUnit;
use forebay_server::upgrade::starting::{StartedSuccessor, StartingCommand, SuccessorFate};
use forebay_sys::stderr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Has the new server started, and waits until it serves or has failed.
pub(crate) fn run(server: &ServerArgs) -> Result<(), CommandFailure> {
    let (socket, problems) = running_server::find(&server.config, server.socket.clone())?;
    // an older server, which has no such state, is replaced directly
    let state = match UpgradeState::of(&socket) {
        Ok(state) => state,
        Err(unanswered) => return Err(running_server::failure(unanswered, problems)),
    };
    if let Some(state) = state
        && let Some(unit) = ServiceUnit::beside(state.process)
    {
        // the file is checked inside the service, which may have other rights and variables
        return by_service_manager(&socket, state, &unit);
    }
    if let Some(problems) = problems {
        return Err(CommandFailure::Configuration(problems));
    }
    match start(&server.config, &socket).map_err(CommandFailure::Upgrade)? {
        SuccessorFate::Serves => Ok(()),
        // the new server has printed the reason itself
        SuccessorFate::Failed { code, .. } => Err(CommandFailure::NotUpgraded { code: Some(code) }),
        SuccessorFate::Ended => Err(CommandFailure::NotUpgraded { code: None }),
    }
}

/// Starts the new server for `forebay reload`, if the server with this control socket expects an upgrade and
/// this process is in its service. `None` if the file is only to be read again.
pub(crate) fn if_expected(config: &Path, socket: &Path) -> Option<Result<(), CommandFailure>> {
    let state = UpgradeState::of(socket).ok().flatten().filter(|state| state.is_expected)?;
    let own = ServiceUnit::here()?;
    (ServiceUnit::of(state.process)? == own).then(|| {
        let (code, why) = match start(config, socket) {
            Ok(SuccessorFate::Serves) => return Ok(()),
            Ok(SuccessorFate::Failed { code, why }) => (Some(code), why),
            Ok(SuccessorFate::Ended) => (None, String::new()),
            Err(error) => (Some(1), CommandFailure::Upgrade(error).to_string()),
        };
        let failure = CommandFailure::NotUpgraded { code };
        let why = format!("{why}\n{failure}");
        // the command that has asked for the upgrade reads the reason from the server
        let _ = expected::has_failed(socket, failure.code(), why.trim_start());
        Err(failure)
    })
}

/// Starts the new server, and waits until it serves or has failed.
fn start(config: &Path, socket: &Path) -> io::Result<SuccessorFate> {
    let (successor, stdin) = StartedSuccessor::pair()?;
    let status = in_place_of(config, socket)?.arg("--orphan").stdin(stdin).status()?;
    match status.success() {
        true => successor.wait(),
        false => Err(io::Error::other("the process that was to start it has failed")),
    }
}

fn in_place_of(config: &Path, socket: &Path) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("run").arg("--config").arg(config).arg("--in-place-of").arg(socket);
    // a process group of its own, so that a signal from the terminal does not reach the server
    command.process_group(0);
    Ok(command)
}

/// The process between the command and the new server: it starts the server and ends, so that the service
/// manager becomes the server's parent, and can watch it properly.
pub(crate) fn leave_orphan(config: &Path, socket: &Path) -> Result<(), CommandFailure> {
    let child = in_place_of(config, socket).and_then(|mut command| command.spawn());
    child.map(drop).map_err(CommandFailure::Upgrade)
}

/// Serves what a file says, in place of the server with this control socket, and reports to the command that
/// started this process when it does.
pub(crate) fn serve(file: PathBuf, socket: &Path) -> Result<(), CommandFailure> {
    let command: OwnedFd = stderr::take_input().map_err(CommandFailure::Upgrade)?;
    let command = StartingCommand::new(command);
    let served = serve_for(&command, file, socket);
    if let Err(failure) = &served {
        command.failed(failure.code(), &failure.to_string());
    }
    served
}

fn serve_for(
    command: &StartingCommand,
    file: PathBuf,
    socket: &Path,
) -> Result<(), CommandFailure> {
    let read = config_file::load_and_warn(&file, Depth::Files);
    let (config, warnings) = read.map_err(CommandFailure::Configuration)?;
    let hears = command.clone();
    let ready: Ready = Box::new(move |_| {
        warnings.iter().for_each(|warning| say(&format!("forebay: {warning}")));
        hears.serves();
    });
    let command = command.clone();
    forebay_server::serve_in_place(config, file, socket, command, ready)
        .map_err(CommandFailure::Run)
}

/// Has systemd reload the service of a server, after the server was asked to expect an upgrade.
fn by_service_manager(
    socket: &Path,
    before: UpgradeState,
    unit: &ServiceUnit,
) -> Result<(), CommandFailure> {
    let name = unit.name.clone();
    if let Some(why) = cannot(before, unit)? {
        return Err(CommandFailure::NotByService { unit: name, why });
    }
    let answer = expected::expect(socket).map_err(CommandFailure::Unanswered)?;
    if answer.code != 0 {
        return Err(CommandFailure::Answered(answer));
    }
    let reload = systemctl(unit).arg("reload").arg(&name).stdin(Stdio::null()).output();
    let outcome = expected::outcome(socket).map_err(CommandFailure::Unanswered)?;
    if outcome.code != 0 {
        return Err(CommandFailure::Answered(outcome));
    }
    let reload = reload.map_err(CommandFailure::Systemctl)?;
    if !reload.status.success() {
        let why = String::from_utf8_lossy(&reload.stderr).trim_end().to_owned();
        return Err(CommandFailure::NotByService { unit: name, why });
    }
    match UpgradeState::of(socket).map_err(CommandFailure::Unanswered)? {
        Some(after) if after.process != before.process => print_out(&format!(
            "{name}: process {} serves in place of process {}\n",
            after.process, before.process
        )),
        _ => {
            let why = "systemd has reloaded it, and nothing has started the new server: ExecReload= of the unit has \
                       to run `forebay reload`, as that of the unit in the package";
            Err(CommandFailure::NotByService { unit: name, why: why.to_owned() })
        }
    }
}

/// The reason why a reload of this service cannot start a server, if there is one.
fn cannot(state: UpgradeState, unit: &ServiceUnit) -> Result<Option<String>, CommandFailure> {
    if !state.has_manager {
        let why = "the unit has to say Type=notify, or systemd would not know which process is the server";
        return Ok(Some(why.to_owned()));
    }
    let shown = systemctl(unit).args(["show", "--property=Type", "--value", &unit.name]).output();
    let shown = shown.map_err(CommandFailure::Systemctl)?;
    let why = "the unit says Type=notify-reload, so that systemd sends a signal, and a server starts no other: \
               the unit in the package says Type=notify";
    Ok((shown.stdout.trim_ascii() == b"notify-reload").then(|| why.to_owned()))
}

fn systemctl(unit: &ServiceUnit) -> Command {
    let mut command = Command::new("systemctl");
    if unit.is_of_user {
        command.arg("--user");
    }
    command
}
