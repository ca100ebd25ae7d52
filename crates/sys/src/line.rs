//! A line between a process and the one that has started it: a pair of connected sockets, of which the first
//! process finds its end by a variable of its environment.

use crate::inherited;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

/// The variable with the number of the end of a line about the gate.
pub const GATE: &str = "FOREBAY_GATE";
/// The variable with the number of the end of a line about the firewall.
pub const FIREWALL: &str = "FOREBAY_FIREWALL";

/// Makes two ends: the first is [passed](crate::passing::PassedSockets::with_line) to a process
/// that is started.
///
/// # Errors
/// Lack of descriptors.
pub fn pair() -> io::Result<(OwnedFd, UnixStream)> {
    let (theirs, own) = UnixStream::pair()?;
    Ok((theirs.into(), own))
}

/// Takes the end that this process was started with by this name; `None` if there is none, or it
/// was taken before.
///
/// # Errors
/// The kernel's error about the descriptor.
pub fn inherited(name: &'static str) -> io::Result<Option<UnixStream>> {
    let line = inherited::take_named(name)?.map(UnixStream::from);
    line.map(|line| line.set_nonblocking(false).map(|()| line)).transpose()
}

/// Whether this process was started by one that keeps lines, and sockets, for it.
pub fn has_supervisor() -> bool {
    inherited::has_supervisor()
}
