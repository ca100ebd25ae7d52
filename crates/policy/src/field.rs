//! Header fields and cookies as conditions.

use crate::matcher::{Matcher, RegexError};
use crate::pattern::is_token;
use crate::place;
use std::fmt;

/// A condition on a header field or cookie: a name, or a name and a value. `X-Beta` asks that it is there,
/// `tier=gold` for this value, and in `tier=go*` each star stands for any run of bytes; a regular expression
/// follows `=~`. Case counts in values, unless the rule ignores it, and in names of cookies, but not in names
/// of header fields.
#[derive(Clone, Debug)]
pub struct FieldCondition {
    text: Box<str>,
    name: Box<str>,
    /// The value; `None` if any value matches.
    value: Option<Matcher>,
    ignores_case: bool,
}

impl FieldCondition {
    /// Reads a name, or a name and a value with `=` between them.
    ///
    /// # Errors
    /// [`FieldConditionError`] for any other text.
    pub fn parse(text: &str) -> Result<FieldCondition, FieldConditionError> {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (text, None),
        };
        if name.is_empty() {
            return Err(FieldConditionError::Name);
        }
        if let Some((at, character)) = name.char_indices().find(|(_, c)| !is_token(*c)) {
            return Err(FieldConditionError::Character { character, at: place(text, at) });
        }
        let value = value.unwrap_or_default();
        let is_wrong = |c: char| c.is_control() && c != '\t';
        if let Some((at, character)) = value.char_indices().find(|(_, c)| is_wrong(*c)) {
            return Err(FieldConditionError::Character {
                character,
                at: place(text, name.len() + 1 + at),
            });
        }
        if value.trim() != value {
            return Err(FieldConditionError::Blank);
        }
        let has_value = text[name.len()..].starts_with('=');
        let value = has_value.then(|| Matcher::parse(value)).transpose();
        let value = value.map_err(FieldConditionError::Regex)?;
        Ok(FieldCondition { text: text.into(), name: name.into(), value, ignores_case: false })
    }

    /// The same condition, ignoring case in the value.
    ///
    /// # Errors
    /// The pattern takes too much memory.
    pub fn ignoring_case(&self) -> Result<FieldCondition, RegexError> {
        let value = self.text.split_once('=').map(|(_, value)| value);
        let value = value.map(Matcher::parse_ignoring_case).transpose()?;
        Ok(FieldCondition { value, ignores_case: true, ..self.clone() })
    }

    /// The text as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The name of the field or cookie.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the condition matches this header field; `value` comes without surrounding blanks.
    #[inline]
    pub fn matches_header(&self, name: &str, value: &[u8]) -> bool {
        self.name.eq_ignore_ascii_case(name) && self.fits(value)
    }

    /// Whether the condition matches one of the cookies in the value of a `Cookie` field (RFC 6265 §4.2.1).
    pub fn matches_cookies(&self, value: &[u8]) -> bool {
        value.split(|&byte| byte == b';').any(|pair| {
            let at = pair.iter().position(|&byte| byte == b'=');
            let (name, value) = at.map_or((pair, &b""[..]), |at| (&pair[..at], &pair[at + 1..]));
            name.trim_ascii() == self.name.as_bytes() && self.fits(value.trim_ascii())
        })
    }

    /// The text with which matching values begin, and whether every value that begins with it matches, rather
    /// than only the text itself. `None` if the condition is not of this form.
    pub(crate) fn beginning(&self) -> Option<(&[u8], bool)> {
        let Some(value) = &self.value else { return Some((b"", true)) };
        let glob = value.glob().filter(|glob| glob.is_exact() || glob.is_prefix())?;
        Some((glob.prefix(), !glob.is_exact()))
    }

    #[inline]
    fn fits(&self, value: &[u8]) -> bool {
        self.value.as_ref().is_none_or(|wanted| wanted.matches(value))
    }
}

impl PartialEq for FieldCondition {
    fn eq(&self, other: &FieldCondition) -> bool {
        (&self.text, self.ignores_case) == (&other.text, other.ignores_case)
    }
}

impl Eq for FieldCondition {}

impl fmt::Display for FieldCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Why a text is not a condition for fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldConditionError {
    /// The text has no name.
    Name,
    /// The text has a character that no name or value contains.
    Character {
        /// The character.
        character: char,
        /// The position of the character, from 1.
        at: usize,
    },
    /// The value has blanks around it, though values are compared without them.
    Blank,
    /// The text after `=~` is not a regular expression.
    Regex(RegexError),
}

impl fmt::Display for FieldConditionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FieldConditionError::Name => {
                f.write_str("a name stands first, as in name or name=value")
            }
            FieldConditionError::Character { character, at } => {
                write!(f, "{character:?} at character {at} cannot be in a name or value")
            }
            FieldConditionError::Blank => f.write_str("a value has no blanks around it"),
            FieldConditionError::Regex(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for FieldConditionError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_fields() {
        for (field, name, value, expected) in [
            ("X-Beta", "x-beta", "", true),
            ("X-Beta", "x-beta", "1", true),
            ("X-Beta", "x-beta2", "1", false),
            ("Accept=text/html", "ACCEPT", "text/html", true),
            ("Accept=text/html", "ACCEPT", "text/html;q=1", false),
            ("Accept=text/*", "Accept", "text/html;q=1", true),
            ("User-Agent=*bot*", "user-agent", "a bot/1", true),
            ("User-Agent=*bot*", "user-agent", "a Bot/1", false),
            ("User-Agent=~^(a|b) bot", "user-agent", "b bot/1", true),
            ("X=", "x", "", true),
            ("X=", "x", "y", false),
            ("X=a=b", "x", "a=b", true),
        ] {
            let found = FieldCondition::parse(field).unwrap();
            assert_eq!(found.matches_header(name, value.as_bytes()), expected, "{field} {value}");
        }
        let folded = FieldCondition::parse("User-Agent=*Bot*").unwrap().ignoring_case().unwrap();
        assert!(folded.matches_header("user-agent", b"AhrefsbOT/1"));
    }

    #[test]
    fn cookies() {
        for (field, value, expected) in [
            ("tier=gold", "tier=gold", true),
            ("tier=gold", "a=b; tier=gold; c=d", true),
            ("tier=gold", "a=b;tier=gold", true),
            ("tier=gold", "tier=golden", false),
            ("tier=gold", "xtier=gold", false),
            ("tier=gold", "Tier=gold", false),
            ("tier=gold", "a=\"tier=gold\"", false),
            ("tier=go*", "tier=golden", true),
            ("tier", "tier=x", true),
            ("tier", "tier", true),
            ("tier", "", false),
        ] {
            let found = FieldCondition::parse(field).unwrap();
            assert_eq!(found.matches_cookies(value.as_bytes()), expected, "{field} {value}");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        assert_eq!(FieldCondition::parse(""), Err(FieldConditionError::Name));
        assert_eq!(FieldCondition::parse("=a"), Err(FieldConditionError::Name));
        assert_eq!(
            FieldCondition::parse("a b=c"),
            Err(FieldConditionError::Character { character: ' ', at: 2 })
        );
        assert_eq!(
            FieldCondition::parse("a=\u{7}"),
            Err(FieldConditionError::Character { character: '\u{7}', at: 3 })
        );
        assert_eq!(FieldCondition::parse("a= b"), Err(FieldConditionError::Blank));
    }
}
