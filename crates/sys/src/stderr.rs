//! What the operator is told on standard error, and where that, standard output and input lead.

use rustix::fs::{Mode, OFlags, open};
use std::fmt;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::Stdio;
use std::sync::OnceLock;

/// Tells the operator; standard error may be closed, which is no reason to stop.
pub fn say(what: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "forebay: {what}");
}

/// From now on standard error leads to where this descriptor does.
///
/// # Errors
/// What the kernel says.
pub fn lead_to(other: impl AsFd) -> io::Result<()> {
    Ok(rustix::stdio::dup2_stderr(other)?)
}

static OF_CHILDREN: OnceLock<OwnedFd> = OnceLock::new();

/// Processes that [use it](of_children) have their standard error where this descriptor leads, whatever this process has:
/// who has started this one waits until nobody has that any more.
///
/// # Errors
/// What the kernel says.
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

/// From now on standard output leads to where this descriptor does.
///
/// # Errors
/// What the kernel says.
pub fn lead_output_to(other: impl AsFd) -> io::Result<()> {
    Ok(rustix::stdio::dup2_stdout(other)?)
}

/// Takes standard input away, which is nothing from now on.
///
/// # Errors
/// What the kernel says.
pub fn take_input() -> io::Result<OwnedFd> {
    let input = rustix::io::fcntl_dupfd_cloexec(io::stdin(), 3)?;
    let nothing = open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(&nothing)?;
    Ok(input)
}
