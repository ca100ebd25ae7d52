//! Identities of clients as conditions.

use crate::glob::Glob;
use crate::place;
use std::fmt;

/// The longest name of an identity, in bytes.
pub const MOST_NAME_BYTES: usize = 64;

/// Whether the name of an identity may have this character.
pub fn is_in_name(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '-' | '_')
}

/// A condition on the name of an identity: `gold`, `buyer-*` or `*`, where each star matches any
/// run of characters.
#[derive(Clone, Debug)]
pub struct IdentityPattern {
    text: Box<str>,
    glob: Glob,
}

impl IdentityPattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// [`IdentityPatternError`] for what no identity could match.
    pub fn parse(text: &str) -> Result<IdentityPattern, IdentityPatternError> {
        if text.is_empty() || text.len() > MOST_NAME_BYTES {
            return Err(IdentityPatternError::Length);
        }
        let is_wrong = |c: char| !is_in_name(c) && c != '*';
        if let Some((at, character)) = text.char_indices().find(|(_, c)| is_wrong(*c)) {
            return Err(IdentityPatternError::Character { character, at: place(text, at) });
        }
        Ok(IdentityPattern { text: text.into(), glob: Glob::new(text.as_bytes()) })
    }

    /// Whether the name of an identity matches.
    pub fn matches(&self, name: &str) -> bool {
        self.glob.matches(name.as_bytes())
    }
}

impl PartialEq for IdentityPattern {
    fn eq(&self, other: &IdentityPattern) -> bool {
        self.text == other.text
    }
}

impl Eq for IdentityPattern {}

impl fmt::Display for IdentityPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Why a text is not a condition for identities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdentityPatternError {
    /// The text is empty, or too long.
    Length,
    /// The text has a character that no name contains.
    Character {
        /// The character.
        character: char,
        /// The position of the character, from 1.
        at: usize,
    },
}

impl fmt::Display for IdentityPatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IdentityPatternError::Length => {
                write!(f, "a name of an identity has 1 to {MOST_NAME_BYTES} characters")
            }
            IdentityPatternError::Character { character, at } => write!(
                f,
                "{character:?} at character {at} never matches: names have letters of ASCII, digits, \
                 - and _"
            ),
        }
    }
}

impl std::error::Error for IdentityPatternError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits() {
        for (pattern, name, expected) in [
            ("gold", "gold", true),
            ("gold", "Gold", false),
            ("gold", "golden", false),
            ("buyer-*", "buyer-7", true),
            ("*", "gold", true),
        ] {
            let found = IdentityPattern::parse(pattern).unwrap();
            assert_eq!(found.matches(name), expected, "{pattern} {name}");
            assert_eq!(found.to_string(), pattern);
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        let error = |text: &str| IdentityPattern::parse(text).unwrap_err();
        assert_eq!(error(""), IdentityPatternError::Length);
        assert_eq!(error(&"a".repeat(65)), IdentityPatternError::Length);
        for (text, character, at) in [("a.b", '.', 2), ("é", 'é', 1), ("a b", ' ', 2)] {
            assert_eq!(error(text), IdentityPatternError::Character { character, at });
        }
    }
}
