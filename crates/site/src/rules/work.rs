//! The handler for tests.

use super::Pattern;

/// The handler for tests: takes CPU time, memory and bytes as the query says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkHandler {
    /// The paths that the handler answers.
    pub path: Pattern,
}
