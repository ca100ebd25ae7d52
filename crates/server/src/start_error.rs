//! What serving in one process and in several have in common: that it is ready, why it could not start or did not
//! end well, and which signals are one.

use crate::ban_files::BanFileError;
use crate::control_socket::ControlSocketError;
use crate::launcher::LauncherError;
use crate::listen::ListenError;
use crate::privileges::PrivilegeError;
use crate::sandbox::SandboxError;
use crate::seal::SealError;
use crate::spool::SpoolError;
use crate::upgrade::predecessor::TakeOverError;
use forebay_config::Role;
use forebay_handler::certificates::CertificateError;
use forebay_handler::log::LogError;
use forebay_policy::PolicyError;
use forebay_site::OpenError;
use std::time::Duration;
use std::{fmt, io};

/// Called once clients are served: with an address at which a browser of this machine finds the first
/// listener, if it has one.
pub type Ready = Box<dyn FnOnce(Option<String>)>;

/// A signal this soon after the one that began the drain is the same one: `timeout` and some shells
/// send it to the process and to its group.
pub(crate) const SAME_SIGNAL: Duration = Duration::from_millis(250);

/// Why a server could not start, or did not end well.
#[derive(Debug)]
pub enum RunError {
    /// An address cannot be listened on.
    Listen(ListenError),
    /// Classes and rules are no policy.
    Policy(PolicyError),
    /// The content cannot be served.
    Content(OpenError),
    /// A certificate cannot be used.
    Certificate(CertificateError),
    /// A file of bans cannot be used.
    Bans(BanFileError),
    /// The access log cannot be written.
    Log(LogError),
    /// No body can be on disk.
    Spool(SpoolError),
    /// The kernel cannot take rules, although it must.
    Gate(String),
    /// The firewall cannot be changed, and the configuration wants it.
    Firewall(String),
    /// The commands of the file cannot be run.
    Launcher(LauncherError),
    /// The process cannot become the user it is to be.
    Privileges(PrivilegeError),
    /// The process cannot be confined although it must be.
    Sandbox(SandboxError),
    /// The process cannot be sealed although it must be.
    Seal(SealError),
    /// The control socket cannot be used.
    ControlSocket(ControlSocketError),
    /// The place of a server that runs cannot be had.
    TakeOver(TakeOverError),
    /// The machine has no room for what a server needs: descriptors, threads, memory.
    Resources {
        /// What was wanted.
        what: &'static str,
        /// What the kernel said.
        error: io::Error,
    },
    /// Several processes read one file, and there is none.
    NoFile,
    /// A stage could not be started; it has said why.
    Stage {
        /// Which.
        role: Role,
        /// How it has ended.
        why: String,
    },
    /// A loop has ended although it was not told to.
    LoopEnded {
        /// Why.
        reason: String,
    },
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunError::Listen(error) => error.fmt(f),
            RunError::Policy(error) => error.fmt(f),
            RunError::Content(error) => error.fmt(f),
            RunError::Certificate(error) => error.fmt(f),
            RunError::Bans(error) => error.fmt(f),
            RunError::Log(error) => error.fmt(f),
            RunError::Spool(error) => error.fmt(f),
            RunError::Gate(why) => write!(f, "gate: {why}"),
            RunError::Firewall(why) => write!(f, "firewall: {why}"),
            RunError::Launcher(error) => error.fmt(f),
            RunError::Privileges(error) => error.fmt(f),
            RunError::Sandbox(error) => error.fmt(f),
            RunError::Seal(error) => error.fmt(f),
            RunError::ControlSocket(error) => error.fmt(f),
            RunError::TakeOver(error) => error.fmt(f),
            RunError::Resources { what, error } => write!(f, "cannot get {what}: {error}"),
            RunError::NoFile => f.write_str(
                "stages need a configuration file, which their processes read: forebay run",
            ),
            RunError::Stage { role, why } => {
                write!(f, "the stage {role} cannot be started: it {why}")
            }
            RunError::LoopEnded { reason } => {
                write!(f, "a loop has ended by itself ({reason}); the server stopped with it")
            }
        }
    }
}

impl std::error::Error for RunError {}

/// What the machine lacks.
pub(crate) fn resources(what: &'static str) -> impl FnOnce(io::Error) -> RunError {
    move |error| RunError::Resources { what, error }
}
