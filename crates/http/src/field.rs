//! Names and values of fields that a person has written, such as those that a rule sets.

use crate::octet::is_token;
use std::fmt;

/// The members of a field that is a list (RFC 9110 §5.6.1), without the white space around them.
/// Empty members are left out (§5.6.1.2). Quoted strings are not recognised.
pub fn members(value: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    let members = value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
    members.filter(|member| !member.is_empty())
}

/// Maps a byte of a name as applications do that pass names on as variables: CGI, WSGI and Rack
/// take `X_Real_IP` for `X-Real-IP`, and PHP `X.Real.IP`, too.
pub fn byte_of_variable(byte: u8) -> u8 {
    if byte.is_ascii_alphanumeric() { byte.to_ascii_lowercase() } else { b'-' }
}

/// Whether two names are the same for an application that passes them on as variables.
pub fn is_same(one: &str, other: &str) -> bool {
    one.len() == other.len()
        && one.bytes().map(byte_of_variable).eq(other.bytes().map(byte_of_variable))
}

/// The name of a field, as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldName(Box<str>);

impl FieldName {
    /// Reads a token (RFC 9110 §5.1).
    ///
    /// # Errors
    /// [`FieldError`] for anything else.
    pub fn parse(text: &str) -> Result<FieldName, FieldError> {
        let is_good = |c: char| u8::try_from(c).is_ok_and(is_token);
        match text.char_indices().find(|(_, c)| !is_good(*c)) {
            _ if text.is_empty() => Err(FieldError::EmptyName),
            None => Ok(FieldName(text.into())),
            Some((at, character)) => Err(FieldError::Name { character, at: place(text, at) }),
        }
    }

    /// The name as it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this is the name of the field, in any case.
    pub fn is(&self, name: &str) -> bool {
        self.0.eq_ignore_ascii_case(name)
    }
}

impl fmt::Display for FieldName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The value of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldValue(Box<str>);

impl FieldValue {
    /// Reads visible characters of ASCII with blanks between them (RFC 9110 §5.5).
    ///
    /// # Errors
    /// [`FieldError`] for anything else.
    pub fn parse(text: &str) -> Result<FieldValue, FieldError> {
        let is_good = |c: char| c.is_ascii_graphic() || c == ' ' || c == '\t';
        if let Some((at, character)) = text.char_indices().find(|(_, c)| !is_good(*c)) {
            return Err(FieldError::Value { character, at: place(text, at) });
        }
        if text.trim() != text || text.is_empty() {
            return Err(FieldError::Blank);
        }
        Ok(FieldValue(text.into()))
    }

    /// The value as it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for FieldValue {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for FieldValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The place of a byte in a text, as a person counts it: in characters, from 1.
fn place(text: &str, at: usize) -> usize {
    text.char_indices().take_while(|(start, _)| *start < at).count() + 1
}

/// The reason why a text is no name or value of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldError {
    /// The name is empty.
    EmptyName,
    /// The name has a character that is not allowed in names.
    Name {
        /// The character.
        character: char,
        /// The place of the character; the first is 1.
        at: usize,
    },
    /// The value has a character that is not allowed in values.
    Value {
        /// The character.
        character: char,
        /// The place of the character; the first is 1.
        at: usize,
    },
    /// The value is empty, or begins or ends with a blank.
    Blank,
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FieldError::EmptyName => f.write_str("a field needs a name"),
            FieldError::Name { character, at } => {
                write!(f, "{character:?} at character {at} cannot be in the name of a field")
            }
            FieldError::Value { character, at } => {
                write!(f, "{character:?} at character {at} cannot be in the value of a field")
            }
            FieldError::Blank => {
                f.write_str("the value of a field is not empty and has no blanks around it")
            }
        }
    }
}

impl std::error::Error for FieldError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_are_checked() {
        for (text, expected) in [
            ("", "a field needs a name"),
            ("X A", "' ' at character 2 cannot be in the name of a field"),
            ("X:", "':' at character 2 cannot be in the name of a field"),
            ("Xé", "'é' at character 2 cannot be in the name of a field"),
        ] {
            assert_eq!(FieldName::parse(text).unwrap_err().to_string(), expected);
        }
        for (text, expected) in [
            ("", "the value of a field is not empty and has no blanks around it"),
            (" a", "the value of a field is not empty and has no blanks around it"),
            ("a\r\nB: c", "'\\r' at character 2 cannot be in the value of a field"),
            ("é", "'é' at character 1 cannot be in the value of a field"),
        ] {
            assert_eq!(FieldValue::parse(text).unwrap_err().to_string(), expected);
        }
        assert_eq!(
            FieldValue::parse("max-age=60, public").unwrap().to_string(),
            "max-age=60, public"
        );
        assert!(FieldName::parse("x-Beta").unwrap().is("X-BETA"));
    }
}
