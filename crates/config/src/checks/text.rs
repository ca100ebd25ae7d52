//! The text that is checked, if there is one.

use crate::problems::path::Path;
use crate::problems::text_place::TextPlace;
use crate::table::ConfigReader;

/// The text that the settings were read from, if there is one.
#[derive(Clone, Copy)]
pub(crate) struct Text<'r>(pub(crate) Option<&'r ConfigReader<'r>>);

impl Text<'_> {
    /// Whether something stands there, be it wrong.
    pub(crate) fn says(self, path: &Path) -> bool {
        self.0.is_some_and(|reader| reader.says(path))
    }

    /// The same, or something else is probably meant to be that.
    pub(crate) fn means(self, path: &Path) -> bool {
        self.0.is_some_and(|reader| reader.has(path))
    }

    /// Line and column of what stands there.
    pub(crate) fn place(self, path: &Path) -> Option<TextPlace> {
        self.0?.place(&path.exact)
    }
}
