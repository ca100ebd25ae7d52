//! Why the kernel cannot have an answer.

use std::{fmt, io};

/// Why the kernel cannot have an answer.
#[derive(Debug)]
pub enum LearnError {
    /// The gate answers no requests.
    NotAnswering,
    /// Host and path are more than [`MOST_NAME_BYTES`](super::MOST_NAME_BYTES) bytes, or are not what a request names plainly.
    Name,
    /// No variant of it fits into a segment: it is [`MOST_ANSWER_BYTES`](super::MOST_ANSWER_BYTES) at most with its head.
    TooLarge,
    /// The head is none: why.
    Head(&'static str),
    /// The name of a field cannot be looked for: it has more than 31 bytes, or bytes other than letters, digits, `-` and `_`.
    Field(String),
    /// There is no room for another one.
    Full,
    /// What the kernel says.
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
