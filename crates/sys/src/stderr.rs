//! What the operator is told on standard error, and where that, standard output and input lead.

use rustix::fs::{Mode, OFlags, open};
use std::fmt;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};

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
