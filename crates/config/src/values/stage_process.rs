//! Which stage a process is, and which of its processes.

use std::fmt;
use std::path::PathBuf;

/// What a process does of the way to an answer.
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
    /// All, in the order of a request's way.
    pub const ALL: [Role; 3] = [Role::Receive, Role::Process, Role::Respond];

    /// The stage's name.
    pub fn name(self) -> &'static str {
        match self {
            Role::Receive => "receive",
            Role::Process => "process",
            Role::Respond => "respond",
        }
    }

    /// Which it is on a request's way.
    pub fn number(self) -> u8 {
        match self {
            Role::Receive => 0,
            Role::Process => 1,
            Role::Respond => 2,
        }
    }

    /// Whom it asks.
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

/// Which stage a process is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageProcess {
    /// The process's part.
    pub role: Role,
    /// Which of the processes with this part, from 1.
    pub instance: u64,
    /// The configuration file that all stages share.
    pub file: PathBuf,
    /// The directory with the sockets at which stages ask one another.
    pub links: PathBuf,
}

impl StageProcess {
    /// Where an instance is asked.
    pub fn socket(&self, role: Role, instance: u64) -> PathBuf {
        self.links.join(format!("{role}-{instance}.sock"))
    }
}
