//! Errors of a server.

use forebay_config::Problem;
use forebay_server::run::guest::GuestError;
use std::path::PathBuf;
use std::{fmt, io};

/// The reason why a server could not start, or has not ended well.
///
/// `Debug` is the same text as `Display`, because a `main` that returns the error prints `Debug`.
#[non_exhaustive]
pub enum ServerError {
    /// The file of the configuration cannot be read.
    File {
        /// The path of the file.
        path: PathBuf,
        /// The error of the kernel.
        error: io::Error,
    },
    /// A value that a call has set is wrong.
    Setting {
        /// The setting, or the handler.
        key: String,
        /// The reason.
        why: String,
    },
    /// The configuration has faults, all of which are listed.
    Config(Vec<Problem>),
    /// The server could not be started, or has failed.
    Guest(GuestError),
    /// A new configuration was not taken over; the present one stays in force.
    Reload(String),
    /// The server has ended, and handlers still run: they wait for something that does not end with the
    /// server.
    HandlersRun {
        /// The number of threads.
        threads: usize,
        /// The number of fibers, and of requests that handlers have kept.
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
