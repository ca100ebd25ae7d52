//! The errors of `forebay init` before there is a file to check.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// The reason why there is no file.
#[derive(Debug)]
pub(crate) enum InitError {
    /// The file exists already.
    Exists(PathBuf),
    /// An answer is invalid.
    Answer {
        /// The question.
        asked: &'static str,
        /// The error in the answer.
        wrong: String,
    },
    /// The input ended at the terminal before the last answer.
    Stopped,
    /// Answers cannot be read.
    Unreadable(io::Error),
    /// The file cannot be written.
    Unwritable(PathBuf, io::Error),
}

impl fmt::Display for InitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InitError::Exists(path) => write!(
                f,
                "{} is there already, and stays as it is; -c FILE names another",
                path.display()
            ),
            InitError::Answer { asked, wrong } => write!(f, "{asked}: {wrong}"),
            InitError::Stopped => {
                f.write_str("stopped before the last answer; nothing was written")
            }
            InitError::Unreadable(error) => write!(f, "no answer can be read: {error}"),
            InitError::Unwritable(path, error) => {
                write!(f, "{} cannot be written: {error}", path.display())
            }
        }
    }
}
