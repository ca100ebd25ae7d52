//! What can go wrong with a gate, in words.

use std::{fmt, io};

/// Why there is no gate.
#[derive(Debug)]
pub enum GateError {
    /// The program could not be loaded.
    Load {
        /// What the kernel answered.
        error: String,
        /// All that was said meanwhile, for those who look for the reason.
        said: String,
    },
    /// It could not be attached.
    Attach {
        /// To which interface.
        interface: String,
        /// By a filter, not by a link.
        by_filter: bool,
        /// What the kernel said.
        error: io::Error,
    },
    /// There is nobody who takes filters away when this process is killed.
    Guard(io::Error),
    /// A map could not be written, or interfaces not be listed.
    Kernel(io::Error),
    /// The rules about addresses are too many.
    TooMany,
    /// Class sockets are too many.
    TooManySockets,
    /// Connections cannot be made of cookies: why.
    CannotSteer(&'static str),
    /// The gate before answers SYNs, and this one is not to.
    StillAnswers,
}

impl fmt::Display for GateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GateError::Load { error, said } => {
                write!(f, "the kernel takes no program: {error}")?;
                // libbpf's last line says what it was about
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
