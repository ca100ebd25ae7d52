//! The files and secrets that a configuration was read from besides its main file, and which parts of it
//! are never shown.

use crate::problems::quoted::quote;
use crate::texts::expand::escape;
use std::fmt;
use std::path::PathBuf;

/// The files and secrets that a configuration was read from besides its main file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigOrigin {
    /// The directories in which the files of `include` are looked for, up to the first star.
    pub directories: Vec<PathBuf>,
    /// Files of `include` that were read.
    pub included: Vec<PathBuf>,
    /// The included files that are links.
    pub links: Vec<PathBuf>,
    /// Files of secrets that were read.
    pub secret_files: Vec<PathBuf>,
    /// Values with secrets in them.
    pub(crate) secrets: Vec<SecretValue>,
}

/// A value with a secret in it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct SecretValue {
    /// The whole value.
    pub(crate) value: String,
    /// The value as the file has it.
    pub(crate) written: String,
}

impl fmt::Debug for SecretValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecretValue").field("written", &self.written).finish_non_exhaustive()
    }
}

/// The form in which values are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Shown {
    /// Every value in full, for this program itself.
    #[default]
    All,
    /// Secrets as references, as the file has them.
    WithoutSecrets,
}

impl ConfigOrigin {
    /// A value in TOML that is read back as the same value: text that could be a variable is escaped.
    pub(crate) fn written(&self, toml: &str, shown: Shown) -> String {
        let is_plain = !toml.contains("${");
        if is_plain && (shown == Shown::All || self.secrets.is_empty()) {
            return toml.to_owned();
        }
        let (mut text, mut rest) = (String::with_capacity(toml.len()), toml);
        while let Some(start) = rest.find('"') {
            text.push_str(&rest[..start]);
            let end = end_of_string(&rest[start..]);
            let string = &rest[start..start + end];
            rest = &rest[start + end..];
            // a key is not a value
            match rest.starts_with(" = ") {
                true => text.push_str(string),
                false => text.push_str(&self.string(string, shown)),
            }
        }
        text + rest
    }

    fn string(&self, string: &str, shown: Shown) -> String {
        let secret = self.secrets.iter().find(|secret| quote(&secret.value) == string);
        match secret.filter(|_| shown == Shown::WithoutSecrets) {
            Some(secret) => quote(&secret.written),
            None => escape(string),
        }
    }
}

/// The end of the string that a text begins with.
fn end_of_string(text: &str) -> usize {
    let mut is_escaped = false;
    let end = text.char_indices().skip(1).find(|(_, c)| {
        let is_end = *c == '"' && !is_escaped;
        is_escaped = *c == '\\' && !is_escaped;
        is_end
    });
    end.map_or(text.len(), |(at, _)| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_as_they_are_read_back_and_secrets_are_not_shown() {
        let secret = SecretValue { value: "a\"b".to_owned(), written: "${file:/s}".to_owned() };
        let origin = ConfigOrigin { secrets: vec![secret], ..ConfigOrigin::default() };
        let toml = "{ \"${K}\" = \"${V}\", B = \"a\\\"b\", C = \"\\\\\" }";
        assert_eq!(
            origin.written(toml, Shown::WithoutSecrets),
            "{ \"${K}\" = \"$${V}\", B = \"${file:/s}\", C = \"\\\\\" }"
        );
        assert_eq!(origin.written(toml, Shown::All), toml.replace("\"${V}", "\"$${V}"));
        assert!(!format!("{origin:?}").contains("a\\\"b"));
    }
}
