//! Messages for the operator on standard error, and where that, standard output and input lead.

use rustix::fs::{Mode, OFlags, open};
use std::fmt;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::Stdio;
use std::sync::OnceLock;

/// Prints a message for the operator; standard error may be closed, which is no reason to stop.
pub fn say(what: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "forebay: {what}");
}

/// Redirects standard error to where this descriptor leads.
///
/// # Errors
/// The error of the kernel.
pub fn lead_to(other: impl AsFd) -> io::Result<()> {
    Ok(rustix::stdio::dup2_stderr(other)?)
}

static OF_CHILDREN: OnceLock<OwnedFd> = OnceLock::new();

/// Redirects the standard error of processes that [use it](of_children) to where this descriptor
/// leads, wherever this process's own leads: the process that has started this one may wait until
/// no process has its descriptor any more.
///
/// # Errors
/// The error of the kernel.
pub fn lead_children_to(other: impl AsFd) -> io::Result<()> {
    let other = other.as_fd().try_clone_to_owned()?;
    OF_CHILDREN.get_or_init(|| other);
    Ok(())
}

/// The standard error of a process that is started.
pub fn of_children() -> Stdio {
    let other = OF_CHILDREN.get().and_then(|other| other.try_clone().ok());
    other.map_or_else(Stdio::inherit, Stdio::from)
}

/// Redirects standard output to where this descriptor leads.
///
/// # Errors
/// The error of the kernel.
pub fn lead_output_to(other: impl AsFd) -> io::Result<()> {
    Ok(rustix::stdio::dup2_stdout(other)?)
}

/// Takes standard input away; from then on it is `/dev/null`.
///
/// # Errors
/// The error of the kernel.
pub fn take_input() -> io::Result<OwnedFd> {
    let input = rustix::io::fcntl_dupfd_cloexec(io::stdin(), 3)?;
    let nothing = open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(&nothing)?;
    Ok(input)
}
