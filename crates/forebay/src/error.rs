//! Why a server cannot be had.

use forebay_config::Problem;
use forebay_server::run::guest::GuestError;
use std::path::PathBuf;
use std::{fmt, io};

/// Why a server could not start, or has not ended well.
///
/// `Debug` is the same text as `Display`: it is what a `main` prints that returns the error.
#[non_exhaustive]
pub enum ServerError {
    /// The file of the configuration cannot be read.
    File {
        /// Where it is.
        path: PathBuf,
        /// What the kernel said.
        error: io::Error,
    },
    /// Something that was set by a call is wrong.
    Setting {
        /// The setting, or the handler.
        key: String,
        /// What is wrong with it.
        why: String,
    },
    /// The configuration is wrong, everything listed.
    Config(Vec<Problem>),
    /// The server could not be started, or has failed.
    Guest(GuestError),
    /// Another configuration was not taken over; what is in force stays.
    Reload(String),
    /// The server has ended, and handlers have not: they wait for something that nothing has ended.
    HandlersRun {
        /// How many threads.
        threads: usize,
        /// How many fibers, and requests that handlers have kept.
        others: usize,
    },
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServerError::File { path, error } => {
                write!(f, "{} cannot be read: {error}", path.display())
            }
            ServerError::Setting { key, why } => write!(f, "{key}: {why}"),
            ServerError::Config(problems) => {
                let lines: Vec<_> = problems.iter().map(Problem::to_string).collect();
                f.write_str(&lines.join("\n"))
            }
            ServerError::Guest(error) => error.fmt(f),
            ServerError::Reload(why) => f.write_str(why),
            ServerError::HandlersRun { threads, others } => write!(
                f,
                "the server has ended, and handlers run on, on {threads} threads, with {others} requests elsewhere"
            ),
        }
    }
}

impl fmt::Debug for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for ServerError {}
