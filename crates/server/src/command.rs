//! Commands to a running server, and their answers: what whoever hears them and whoever carries them out agree on.

use crossbeam_channel::Sender;
use std::fmt::Display;
use std::os::unix::net::UnixStream;

/// What was asked, and where the answer goes.
#[derive(Debug)]
pub struct CommandRequest {
    /// What was asked.
    pub asked: CommandKind,
    /// Takes one answer.
    pub reply: Sender<CommandAnswer>,
}

/// What can be asked of a running server.
#[derive(Debug)]
pub enum CommandKind {
    /// A command, in words.
    Command(String),
    /// What the program with this name wants of the rules that are its own.
    Change(String, PolicyChange),
    /// A program that stays has connected, and has said this so far; only where another process serves such programs.
    Session(UnixStream, Vec<u8>),
    /// Another process wants to take the place of this one, and waits at its end of this connection.
    TakeOver(UnixStream),
}

/// What a command came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandAnswer {
    /// The exit code of the command.
    pub code: u8,
    /// What happened, in lines.
    pub text: String,
}

impl CommandAnswer {
    /// What was asked for was not done, for this reason.
    pub(crate) fn failed(reason: impl Display) -> CommandAnswer {
        CommandAnswer { code: 1, text: format!("{reason}\n") }
    }

    /// What was asked for is not known.
    pub fn unknown(command: &str) -> CommandAnswer {
        CommandAnswer { code: 2, text: format!("no command is called {command:?}\n") }
    }
}

/// What becomes of the rules and classes of an owner.
#[derive(Clone, Debug, PartialEq)]
pub enum PolicyChange {
    /// These classes and rules, written as in a file, are added, or take the place of those with their
    /// names.
    Put(String),
    /// These rules and classes are removed.
    Remove {
        /// Names of rules.
        rules: Vec<String>,
        /// Names of classes.
        classes: Vec<String>,
    },
    /// All of them go.
    Leave(&'static str),
}
