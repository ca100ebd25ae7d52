//! The stage of a process, and its number among the stage's processes.

use std::fmt;
use std::path::PathBuf;

/// The part that a process has in answering a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The process has the clients.
    Receive,
    /// The process decides.
    Process,
    /// The process has the content.
    Respond,
}

impl Role {
    /// All parts, in the order of a request's way.
    pub const ALL: [Role; 3] = [Role::Receive, Role::Process, Role::Respond];

    /// The stage's name.
    pub fn name(self) -> &'static str {
        match self {
            Role::Receive => "receive",
            Role::Process => "process",
            Role::Respond => "respond",
        }
    }

    /// The place of the part on a request's way.
    pub fn number(self) -> u8 {
        match self {
            Role::Receive => 0,
            Role::Process => 1,
            Role::Respond => 2,
        }
    }

    /// The stage that this one asks.
    pub fn next(self) -> Option<Role> {
        match self {
            Role::Receive => Some(Role::Process),
            Role::Process => Some(Role::Respond),
            Role::Respond => None,
        }
    }

    /// The stage that asks this one.
    pub fn before(self) -> Option<Role> {
        Role::ALL.into_iter().find(|role| role.next() == Some(self))
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The place of a process among the stages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageProcess {
    /// The process's part.
    pub role: Role,
    /// The number among the processes with this part, from 1.
    pub instance: u64,
    /// The configuration file that all stages share.
    pub file: PathBuf,
    /// The directory with the sockets at which stages ask one another.
    pub links: PathBuf,
}

impl StageProcess {
    /// The socket at which an instance is asked.
    pub fn socket(&self, role: Role, instance: u64) -> PathBuf {
        self.links.join(format!("{role}-{instance}.sock"))
    }
}
