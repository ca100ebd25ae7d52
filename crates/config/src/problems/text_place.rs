//! A place in a text, for messages about something else.

use std::fmt;
use std::sync::Arc;

/// The line and column of something, both from 1, the column in characters. Prints as `line:column`, and
/// where a configuration has several files as `file:line:column`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextPlace {
    /// The file as it was named, if there are several.
    pub file: Option<Arc<str>>,
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
}

impl fmt::Display for TextPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TextPlace { file, line, column } = self;
        file.iter().try_for_each(|file| write!(f, "{file}:"))?;
        write!(f, "{line}:{column}")
    }
}
