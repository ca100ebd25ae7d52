//! Commands to a running server, and their answers: the types shared by the control socket and the
//! code that carries the commands out.

use crossbeam_channel::Sender;
use std::fmt::Display;
use std::os::unix::net::UnixStream;

/// A command, and the channel for its answer.
#[derive(Debug)]
pub struct CommandRequest {
    /// The command.
    pub asked: CommandKind,
    /// Takes one answer.
    pub reply: Sender<CommandAnswer>,
}

/// What can be asked of a running server.
#[derive(Debug)]
pub enum CommandKind {
    /// A command line, in words.
    Command(String),
    /// A change that the program with this name wants in its own rules and classes.
    Change(String, PolicyChange),
    /// The connection of a program that stays, and the bytes received so far; only where another
    /// process serves such programs.
    Session(UnixStream, Vec<u8>),
    /// A process that wants to take the place of this one, and waits at the other end of this
    /// connection.
    TakeOver(UnixStream),
}

/// The result of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandAnswer {
    /// The exit code of the command.
    pub code: u8,
    /// Lines of text that say what happened.
    pub text: String,
}

impl CommandAnswer {
    /// The answer to a command that was not carried out, for this reason.
    pub(crate) fn failed(reason: impl Display) -> CommandAnswer {
        CommandAnswer { code: 1, text: format!("{reason}\n") }
    }

    /// The answer to a command that does not exist.
    pub fn unknown(command: &str) -> CommandAnswer {
        CommandAnswer { code: 2, text: format!("no command is called {command:?}\n") }
    }
}

/// A change to the rules and classes of an owner.
#[derive(Clone, Debug, PartialEq)]
pub enum PolicyChange {
    /// Adds these classes and rules, written as in a file; they replace the owner's with the same
    /// names.
    Put(String),
    /// Removes these rules and classes.
    Remove {
        /// Names of rules.
        rules: Vec<String>,
        /// Names of classes.
        classes: Vec<String>,
    },
    /// Removes all rules and classes of the owner, for this reason.
    Leave(&'static str),
}
