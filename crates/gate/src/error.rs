//! The errors of a gate.

use std::{fmt, io};

/// An error that keeps a gate from being loaded or attached.
#[derive(Debug)]
pub enum GateError {
    /// The program could not be loaded.
    Load {
        /// The kernel's error.
        error: String,
        /// The messages of libbpf and of the verifier, to find the reason.
        said: String,
    },
    /// The program could not be attached.
    Attach {
        /// The name of the interface.
        interface: String,
        /// Whether the program was to be attached by a filter instead of a link.
        by_filter: bool,
        /// The kernel's error.
        error: io::Error,
    },
    /// There is no guard that removes filters when this process is killed.
    Guard(io::Error),
    /// A map could not be written, or interfaces not be listed.
    Kernel(io::Error),
    /// There are too many rules about addresses.
    TooMany,
    /// There are too many class sockets.
    TooManySockets,
    /// The kernel cannot make connections from cookies, with the reason.
    CannotSteer(&'static str),
    /// The previous gate answers SYNs, and this one was loaded without that.
    StillAnswers,
}

impl fmt::Display for GateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GateError::Load { error, said } => {
                write!(f, "the kernel takes no program: {error}")?;
                // the last line of libbpf names the cause
                match said.lines().rev().find(|line| line.contains("libbpf: ")) {
                    Some(line) => write!(f, " ({})", line.trim()),
                    None => Ok(()),
                }
            }
            GateError::Attach { interface, by_filter, error } => {
                let way =
                    if *by_filter { "filter at clsact (sch_ingress, cls_bpf)" } else { "link" };
                write!(f, "cannot attach to {interface} by a {way}: {error}")
            }
            GateError::Guard(error) => {
                write!(f, "the process that takes its filters away: {error}")
            }
            GateError::Kernel(error) => write!(f, "the kernel refuses: {error}"),
            GateError::TooMany => f.write_str(
                "there are too many rules about addresses: of those that can match one client, \
                 4096 fit, and 1048576 in all",
            ),
            GateError::TooManySockets => {
                f.write_str("there are too many sockets of classes: 32768 fit")
            }
            GateError::StillAnswers => f.write_str(
                "the running server answers SYNs in the kernel, and handshakes that have begun would be lost: \
                 restart it to leave rung full",
            ),
            GateError::CannotSteer(why) => write!(f, "no handshakes without state: {why}"),
        }
    }
}

impl std::error::Error for GateError {}

impl From<io::Error> for GateError {
    fn from(error: io::Error) -> GateError {
        GateError::Kernel(error)
    }
}
