//! The text that is checked; a configuration may have none.

use crate::problems::path::Path;
use crate::problems::text_place::TextPlace;
use crate::table::ConfigReader;

/// The text that the settings were read from, if there is one.
#[derive(Clone, Copy)]
pub(crate) struct Text<'r>(pub(crate) Option<&'r ConfigReader<'r>>);

impl Text<'_> {
    /// Whether the text has something at a path, valid or not.
    pub(crate) fn says(self, path: &Path) -> bool {
        self.0.is_some_and(|reader| reader.says(path))
    }

    /// Whether the text has something at a path, or something misspelt that probably means it.
    pub(crate) fn means(self, path: &Path) -> bool {
        self.0.is_some_and(|reader| reader.has(path))
    }

    /// The line and column of what stands at a path.
    pub(crate) fn place(self, path: &Path) -> Option<TextPlace> {
        self.0?.place(&path.exact)
    }
}
