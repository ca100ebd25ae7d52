//! Common parts of serving in one process and in several: the report that it is ready, the reasons
//! why it could not start or did not end well, and the handling of repeated signals.

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

/// A function that is called once clients are served, with the URL at which a browser on this
/// machine finds the first listener, if it has one.
pub type Ready = Box<dyn FnOnce(Option<String>)>;

/// The time in which a second signal counts as the one that began the drain: `timeout` and some
/// shells signal both the process and its group.
pub(crate) const SAME_SIGNAL: Duration = Duration::from_millis(250);

/// The reason why a server could not start, or did not end well.
#[derive(Debug)]
pub enum RunError {
    /// An address cannot be listened on.
    Listen(ListenError),
    /// Classes and rules are not a valid policy.
    Policy(PolicyError),
    /// The content cannot be served.
    Content(OpenError),
    /// A certificate cannot be used.
    Certificate(CertificateError),
    /// A file of bans cannot be used.
    Bans(BanFileError),
    /// The access log cannot be written.
    Log(LogError),
    /// Request bodies cannot be stored on disk.
    Spool(SpoolError),
    /// The gate is required, and the kernel does not support it.
    Gate(String),
    /// The firewall is required, and cannot be changed.
    Firewall(String),
    /// The commands of the file cannot be run.
    Launcher(LauncherError),
    /// The process cannot switch to its user.
    Privileges(PrivilegeError),
    /// The sandbox is required, and not possible.
    Sandbox(SandboxError),
    /// The seal is required, and not possible.
    Seal(SealError),
    /// The control socket cannot be used.
    ControlSocket(ControlSocketError),
    /// The place of a running server cannot be taken.
    TakeOver(TakeOverError),
    /// The machine has not enough of what a server needs: descriptors, threads, memory.
    Resources {
        /// The missing resource.
        what: &'static str,
        /// The error of the kernel.
        error: io::Error,
    },
    /// Several processes would read the file, and there is none.
    NoFile,
    /// A stage could not be started, and has reported the reason itself.
    Stage {
        /// The stage.
        role: Role,
        /// The way it has ended.
        why: String,
    },
    /// A loop has ended without an order to do so.
    LoopEnded {
        /// The reason.
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

/// The error for a missing resource.
pub(crate) fn resources(what: &'static str) -> impl FnOnce(io::Error) -> RunError {
    move |error| RunError::Resources { what, error }
}
