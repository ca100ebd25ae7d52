//! `${NAME}` in the strings of a text: strings are taken apart, and text is escaped so that it stands for
//! itself.
//!
//! Names of variables are in capitals, as POSIX has shared ones, so that `${host}` stays free for values of
//! a request. `${NAME:-default}` is the default where the variable is not set or empty, as in a shell.
//! `$${` is the text `${`; any other `$` stands for itself.

use crate::problems::problem::Finding;
use std::fmt;

/// A part of a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StringPart<'t> {
    /// Text that stands for itself.
    Text(&'t str),
    /// A variable.
    Variable {
        /// The variable's name.
        name: &'t str,
        /// The text that replaces it if it has no value.
        default: Option<&'t str>,
    },
    /// The contents of a file, by its path.
    File(&'t str),
    /// The contents of a file among the service's credentials, by its name.
    Credential(&'t str),
    /// Text that looks like a variable and is none, with its braces. It stands for itself.
    Unlike(&'t str),
}

/// Text that begins like a variable, and does not end like one.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum MisspeltVariable {
    /// The closing brace is missing.
    Open {
        /// The beginning of the text.
        start: String,
    },
    /// The text behind the name means nothing.
    Odd {
        /// The whole text.
        found: String,
    },
}

impl Finding for MisspeltVariable {}

impl fmt::Display for MisspeltVariable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MisspeltVariable::Open { start } => {
                write!(f, "\"{start}\" has no \"}}\" at its end; write $${{ for the text ${{")
            }
            MisspeltVariable::Odd { found } => write!(
                f,
                "\"{found}\" is no variable: write ${{NAME}}, ${{NAME:-default}}, ${{file:PATH}} or \
                 ${{credential:NAME}}, and $${{ for the text ${{"
            ),
        }
    }
}

/// The parts of a string.
pub(crate) fn parts(text: &str) -> Result<Vec<StringPart<'_>>, MisspeltVariable> {
    let (mut parts, mut rest) = (Vec::new(), text);
    while let Some(at) = rest.find("${") {
        // the first of two dollars escapes the second
        if rest[..at].ends_with('$') {
            parts.push(StringPart::Text(&rest[..at - 1]));
            parts.push(StringPart::Text("${"));
            rest = &rest[at + 2..];
            continue;
        }
        parts.push(StringPart::Text(&rest[..at]));
        let inside = &rest[at + 2..];
        let word = inside.find(|c: char| !is_of_name(c) && !c.is_ascii_lowercase());
        let (name, tail) = inside.split_at(word.unwrap_or(inside.len()));
        if !is_meant(name, tail) {
            // a group of a pattern, or a variable of another server
            let end = inside.find('}').filter(|end| *end > 0 && *end == name.len());
            let len = end.map_or(2, |end| end + 3);
            let whole = &rest[at..at + len];
            let is_word = end.is_some() && !name.starts_with(|c: char| c.is_ascii_digit());
            parts.push(if is_word { StringPart::Unlike(whole) } else { StringPart::Text(whole) });
            rest = &rest[at + len..];
            continue;
        }
        let Some(end) = inside.find('}') else {
            let start = rest[at..].chars().take(2 + name.len()).collect();
            return Err(MisspeltVariable::Open { start });
        };
        let whole = &rest[at..at + end + 3];
        let odd = || MisspeltVariable::Odd { found: whole.replace(char::is_control, " ") };
        let value = &inside[name.len()..end];
        parts.push(match (name, value.strip_prefix(':')) {
            (_, None) if value.is_empty() => StringPart::Variable { name, default: None },
            ("file", Some(path)) if !path.is_empty() => StringPart::File(path),
            ("credential", Some(name)) if is_file_name(name) => StringPart::Credential(name),
            ("file" | "credential", _) => return Err(odd()),
            (_, Some(default)) => {
                let default = Some(default.strip_prefix('-').ok_or_else(odd)?);
                StringPart::Variable { name, default }
            }
            _ => return Err(odd()),
        });
        rest = &rest[at + end + 3..];
    }
    parts.push(StringPart::Text(rest));
    parts.retain(|part| *part != StringPart::Text(""));
    Ok(parts)
}

/// Escapes a text so that it stands for itself.
pub(crate) fn escape(text: &str) -> String {
    text.replace("${", "$${")
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_'
}

/// Whether the text behind `${` is meant as a variable.
fn is_meant(name: &str, tail: &str) -> bool {
    let is_name = |name: &str| {
        name.chars().all(is_of_name)
            && name.starts_with(|c: char| c.is_ascii_uppercase() || c == '_')
    };
    is_name(name) || (matches!(name, "file" | "credential") && tail.starts_with(':'))
}

fn is_file_name(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && !name.contains(['/', '\0'])
}

#[cfg(test)]
mod tests {
    use super::StringPart::{Credential, File, Text, Unlike, Variable};
    use super::*;

    #[test]
    fn a_string_is_taken_apart() {
        let name = |name| Variable { name, default: None };
        let or = |name, default| Variable { name, default: Some(default) };
        for (text, expected) in [
            ("", vec![]),
            ("plain $1 $path $$ {A}", vec![Text("plain $1 $path $$ {A}")]),
            ("${DIR}/www", vec![name("DIR"), Text("/www")]),
            ("a${_A1}b${B}", vec![Text("a"), name("_A1"), Text("b"), name("B")]),
            ("${PORT:-8080}", vec![or("PORT", "8080")]),
            ("${PORT:-}", vec![or("PORT", "")]),
            ("${A:-b:-$c}", vec![or("A", "b:-$c")]),
            ("Bearer ${file:/run/token}", vec![Text("Bearer "), File("/run/token")]),
            ("${credential:token}", vec![Credential("token")]),
            ("$${A}", vec![Text("${"), Text("A}")]),
            ("$$${A}", vec![Text("$"), Text("${"), Text("A}")]),
            ("${1}x", vec![Text("${1}"), Text("x")]),
            ("${host}x", vec![Unlike("${host}"), Text("x")]),
            ("${Host", vec![Text("${"), Text("Host")]),
            ("^a${", vec![Text("^a"), Text("${")]),
        ] {
            assert_eq!(parts(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_misspelt_is_an_error() {
        for text in
            ["${A", "${A:8}", "${A-8}", "${A b}", "${file:}", "${credential:a/b}", "${A:=1}"]
        {
            assert!(parts(text).is_err(), "{text}: {:?}", parts(text));
        }
    }

    #[test]
    fn what_is_escaped_stands_for_itself() {
        for text in ["", "${A}", "$${A}", "$$${A}${B}", "${", "a$b{c}", "${file:a}"] {
            let escaped = escape(text);
            let again = parts(&escaped).unwrap().into_iter().map(|part| match part {
                Text(text) => text,
                other => panic!("{text}: {other:?}"),
            });
            assert_eq!(again.collect::<String>(), text);
        }
    }
}
