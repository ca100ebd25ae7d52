//! Parameters of the query as conditions.

use crate::matcher::{Matcher, RegexError};
use crate::place;
use std::borrow::Cow;
use std::fmt;

/// A condition on a parameter of the query: a name, or a name and a value. `debug` asks that it is there,
/// `sort=price` for this value, `sort=pr*` for one that the pattern matches; a regular expression follows
/// `=~`. The condition is compared with each parameter between two `&`, decoded: `%41` is `A`, `+` a blank.
#[derive(Clone, Debug)]
pub struct Parameter {
    text: Box<str>,
    name: Box<str>,
    /// The value; `None` if any value matches.
    value: Option<Matcher>,
    ignores_case: bool,
}

impl Parameter {
    /// Reads a name, or a name and a value with `=` between them.
    ///
    /// # Errors
    /// [`ParameterError`] for any other text.
    pub fn parse(text: &str) -> Result<Parameter, ParameterError> {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (text, None),
        };
        if name.is_empty() || name.starts_with('?') {
            return Err(ParameterError::Name);
        }
        if let Some((at, character)) = text.char_indices().find(|(_, c)| c.is_control()) {
            return Err(ParameterError::Character { character, at: place(text, at) });
        }
        if let Some((at, character)) = name.char_indices().find(|(_, c)| matches!(c, '&' | '#')) {
            return Err(ParameterError::Character { character, at: place(text, at) });
        }
        let value = value.map(Matcher::parse).transpose().map_err(ParameterError::Regex)?;
        Ok(Parameter { text: text.into(), name: name.into(), value, ignores_case: false })
    }

    /// The same condition, ignoring case, also in the name.
    ///
    /// # Errors
    /// The pattern takes too much memory.
    pub fn ignoring_case(&self) -> Result<Parameter, RegexError> {
        let value = self.text.split_once('=').map(|(_, value)| value);
        let value = value.map(Matcher::parse_ignoring_case).transpose()?;
        Ok(Parameter { value, ignores_case: true, ..self.clone() })
    }

    /// The text as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether the condition matches one of the parameters in a query, given as it was sent.
    pub fn matches(&self, query: &[u8]) -> bool {
        query.split(|&byte| byte == b'&').any(|pair| {
            let at = pair.iter().position(|&byte| byte == b'=');
            let (name, value) = at.map_or((pair, &b""[..]), |at| (&pair[..at], &pair[at + 1..]));
            self.is_named(&decoded(name))
                && self.value.as_ref().is_none_or(|wanted| wanted.matches(&decoded(value)))
        })
    }

    fn is_named(&self, name: &[u8]) -> bool {
        let wanted = self.name.as_bytes();
        if self.ignores_case { wanted.eq_ignore_ascii_case(name) } else { wanted == name }
    }
}

/// The decoded value of the first parameter with this name in a query, given as it was sent; empty if the
/// parameter has no value.
pub fn value<'q>(query: &'q [u8], name: &str) -> Option<Cow<'q, [u8]>> {
    query.split(|&byte| byte == b'&').find_map(|pair| {
        let at = pair.iter().position(|&byte| byte == b'=');
        let (own, value) = at.map_or((pair, &b""[..]), |at| (&pair[..at], &pair[at + 1..]));
        (*decoded(own) == *name.as_bytes()).then(|| decoded(value))
    })
}

/// The decoded text; borrowed where nothing is encoded. An invalid escape stays as it is.
fn decoded(text: &[u8]) -> Cow<'_, [u8]> {
    if memchr::memchr2(b'%', b'+', text).is_none() {
        return Cow::Borrowed(text);
    }
    let digit = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16));
    let mut decoded = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        let digits = digit(text.get(at + 1)).zip(digit(text.get(at + 2)));
        match (byte, digits) {
            (b'%', Some((high, low))) => {
                decoded.push((high << 4 | low) as u8);
                at += 2;
            }
            (b'+', _) => decoded.push(b' '),
            _ => decoded.push(byte),
        }
        at += 1;
    }
    Cow::Owned(decoded)
}

impl PartialEq for Parameter {
    fn eq(&self, other: &Parameter) -> bool {
        (&self.text, self.ignores_case) == (&other.text, other.ignores_case)
    }
}

impl Eq for Parameter {}

impl fmt::Display for Parameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Why a text is not a condition for the query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParameterError {
    /// The text has no name.
    Name,
    /// The text has a character that no parameter contains.
    Character {
        /// The character.
        character: char,
        /// The position of the character, from 1.
        at: usize,
    },
    /// The text after `=~` is not a regular expression.
    Regex(RegexError),
}

impl fmt::Display for ParameterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParameterError::Name => {
                f.write_str("the name of a parameter stands first, as in name or name=value")
            }
            ParameterError::Character { character, at } => {
                write!(
                    f,
                    "{character:?} at character {at} is in no parameter; write several as a list"
                )
            }
            ParameterError::Regex(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ParameterError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters() {
        for (parameter, query, expected) in [
            ("debug", "debug", true),
            ("debug", "debug=1", true),
            ("debug", "a=b&debug=", true),
            ("debug", "debugger", false),
            ("debug", "", false),
            ("debug", "a=debug", false),
            ("debug", "%64ebug", true),
            ("sort=price", "sort=price", true),
            ("sort=price", "sort=pri%63e&x", true),
            ("sort=price", "sort=price2", false),
            ("sort=pr*", "sort=price2", true),
            ("q=a b", "q=a+b", true),
            ("q=a b", "q=a%20b", true),
            ("q=50%", "q=50%", true),
            ("q=", "q", true),
            ("q=a=b", "q=a=b", true),
            ("n=~^[0-9]{4,}$", "n=1234", true),
            ("n=~^[0-9]{4,}$", "n=123", false),
            ("f[x]=1", "f%5Bx%5d=1", true),
            ("Debug", "debug", false),
        ] {
            let found = Parameter::parse(parameter).unwrap();
            assert_eq!(found.matches(query.as_bytes()), expected, "{parameter} {query}");
        }
        let folded = Parameter::parse("Debug=On*").unwrap().ignoring_case().unwrap();
        assert!(folded.matches(b"dEBUG=oNE") && !folded.matches(b"debug=off"));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for text in ["", "=a", "?debug"] {
            assert_eq!(Parameter::parse(text), Err(ParameterError::Name), "{text}");
        }
        let amp = ParameterError::Character { character: '&', at: 2 };
        assert_eq!(Parameter::parse("a&b"), Err(amp));
        assert!(matches!(Parameter::parse("a=~("), Err(ParameterError::Regex(_))));
    }
}
