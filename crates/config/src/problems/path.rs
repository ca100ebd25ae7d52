//! The path of a setting or section in a configuration.

use crate::problems::quoted::bare_or_quoted;
use toml_edit::Key;

/// The path of a setting or section: once as messages show it, and once with the numbers of the list items,
/// so that each place has a path of its own.
#[derive(Clone, Debug, Default)]
pub struct Path {
    /// The path as messages show it, such as `site.redirect.to`.
    pub shown: String,
    /// The path with numbers, such as `site[1].redirect[0].to`.
    pub exact: String,
}

impl Path {
    /// The path of `name` within this one; a name in a subsection has a dot.
    pub fn child(&self, name: &str) -> Path {
        let dot = if self.exact.is_empty() { "" } else { "." };
        Path {
            shown: format!("{}{dot}{name}", self.shown),
            exact: format!("{}{dot}{name}", self.exact),
        }
    }

    /// The path of the item at `index` of this list.
    pub fn item(&self, index: usize) -> Path {
        Path { shown: self.shown.clone(), exact: format!("{}[{index}]", self.exact) }
    }

    /// The path of a key within this one. A name that cannot be a setting's is quoted, so that it cannot
    /// spoil a message.
    pub(crate) fn key(&self, key: &Key) -> Path {
        self.child(&bare_or_quoted(key.get()))
    }
}
