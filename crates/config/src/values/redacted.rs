//! Values that logs hide, as a file names them.

use std::fmt;

/// A part of a request whose value no log shows, as `log.redact` names it: `query.token`, `header.Referer`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Redacted {
    /// The query parameter with this name.
    Parameter(String),
    /// The field Referer.
    Referer,
    /// The field User-Agent.
    UserAgent,
}

/// A reason why a text names nothing that is logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RedactedError {
    /// The text says neither `query.` nor `header.`.
    Form {
        /// What is probably meant.
        guess: Option<String>,
    },
    /// The name has a character that would end it.
    Character(char),
    /// The field is not in logs.
    Field(String),
}

impl fmt::Display for RedactedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RedactedError::Form { guess } => {
                f.write_str(
                    "expected \"query.NAME\", \"header.Referer\" or \"header.User-Agent\"",
                )?;
                match guess {
                    Some(guess) => write!(f, "; a query parameter is {guess:?}"),
                    None => Ok(()),
                }
            }
            RedactedError::Character(character) => {
                write!(f, "a name with {character:?}; write it as it is once it is decoded")
            }
            RedactedError::Field(name) => write!(
                f,
                "logs do not have the field {name:?}; of fields they have Referer and User-Agent alone"
            ),
        }
    }
}

impl Redacted {
    /// Reads `query.NAME` or `header.NAME`.
    ///
    /// # Errors
    /// When the text names no part whose value lines have.
    pub fn parse(text: &str) -> Result<Redacted, RedactedError> {
        if let Some(name) = text.strip_prefix("header.") {
            return match () {
                () if name.eq_ignore_ascii_case("referer") => Ok(Redacted::Referer),
                () if name.eq_ignore_ascii_case("user-agent") => Ok(Redacted::UserAgent),
                () => Err(RedactedError::Field(name.to_owned())),
            };
        }
        let Some(name) = text.strip_prefix("query.").filter(|name| !name.is_empty()) else {
            let is_name = |c: char| c.is_ascii_alphanumeric() || ['_', '-'].contains(&c);
            let guess =
                (!text.is_empty() && text.chars().all(is_name)).then(|| format!("query.{text}"));
            return Err(RedactedError::Form { guess });
        };
        let is_odd = |c: &char| c.is_control() || "%&=;#?[+ ".contains(*c);
        match name.chars().find(is_odd) {
            Some(character) => Err(RedactedError::Character(character)),
            None => Ok(Redacted::Parameter(name.to_owned())),
        }
    }
}

impl fmt::Display for Redacted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Redacted::Parameter(name) => write!(f, "query.{name}"),
            Redacted::Referer => f.write_str("header.Referer"),
            Redacted::UserAgent => f.write_str("header.User-Agent"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_logged_can_be_named() {
        for (text, expected) in [
            ("query.token", Some("query.token")),
            ("query.access.token", Some("query.access.token")),
            ("header.referer", Some("header.Referer")),
            ("header.USER-AGENT", Some("header.User-Agent")),
            ("header.Cookie", None),
            ("query.", None),
            ("token", None),
            ("query.a%62", None),
            ("query.a[]", None),
            ("", None),
        ] {
            let read = Redacted::parse(text).ok().map(|read| read.to_string());
            assert_eq!(read.as_deref(), expected, "{text}");
        }
    }
}
