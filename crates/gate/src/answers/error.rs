//! The reasons why the kernel cannot take an answer.

use std::{fmt, io};

/// The reason why the kernel cannot take an answer.
#[derive(Debug)]
pub enum LearnError {
    /// The gate answers no requests.
    NotAnswering,
    /// Host and path are more than [`MOST_NAME_BYTES`](super::MOST_NAME_BYTES) bytes, or have bytes that the
    /// program does not read.
    Name,
    /// No variant fits into a segment: with its head it may have
    /// [`MOST_ANSWER_BYTES`](super::MOST_ANSWER_BYTES).
    TooLarge,
    /// The head is invalid, with the reason.
    Head(&'static str),
    /// The program cannot look for a field of this name: it has more than 31 bytes, or bytes other than
    /// letters, digits, `-` and `_`.
    Field(String),
    /// The kernel's tables have no room for another answer, or for another field.
    Full,
    /// A system call failed.
    Kernel(io::Error),
}

impl fmt::Display for LearnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LearnError::NotAnswering => f.write_str("the gate answers no requests"),
            LearnError::Name => f.write_str("host and path are too long, or not plain"),
            LearnError::TooLarge => f.write_str("no variant fits into one segment"),
            LearnError::Head(why) => write!(f, "its head cannot be sent by the kernel: {why}"),
            LearnError::Field(name) => {
                write!(f, "the field {name:?} cannot be looked for in the kernel")
            }
            LearnError::Full => f.write_str("the kernel has no room for another answer"),
            LearnError::Kernel(error) => write!(f, "the kernel refuses: {error}"),
        }
    }
}

impl std::error::Error for LearnError {}

impl From<io::Error> for LearnError {
    fn from(error: io::Error) -> LearnError {
        LearnError::Kernel(error)
    }
}
