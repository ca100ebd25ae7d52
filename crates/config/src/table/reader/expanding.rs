//! Expands strings of a text with `${NAME}` in them: the source gives what stands there, and secrets are
//! kept out of messages.

use super::ConfigReader;
use crate::problems::path::Path;
use crate::problems::problem::{Finding, Wrong};
use crate::problems::text_place::TextPlace;
use crate::texts::expand::{self, StringPart};
use crate::texts::origin::SecretValue;
use forebay_site::rules::Template;
use std::borrow::Cow;
use std::fmt;
use std::path::{Path as FilePath, PathBuf};

/// A fault of a setting because of its place, or because of what it names outside of its text.
#[derive(Debug)]
pub(super) enum OutsideFault {
    /// Another file has the setting, too.
    SetTwice {
        /// The place of the first one.
        first: TextPlace,
    },
    /// The setting may stand in the main file only.
    MainOnly,
    /// A variable is not set.
    Unset {
        /// The variable's name.
        name: String,
    },
    /// The value of a variable is not UTF-8.
    VariableNotUtf8 {
        /// The variable's name.
        name: String,
    },
    /// A secret stands in a setting that may have none.
    NoSecretHere {
        /// The text of the reference.
        found: String,
    },
    /// A credential is named, and the program was started without any.
    NoCredentials,
    /// The file of a secret has nothing that could be one.
    NoSecret {
        /// The path of the file.
        file: PathBuf,
        /// The reason.
        why: &'static str,
    },
    /// A value with a secret in it does not fit.
    UnfitSecret {
        /// What belongs there.
        expected: &'static str,
    },
    /// A message about a value with a secret, which is not repeated.
    OfSecret,
    /// Text that looks like a variable and stands for itself.
    NoVariableName {
        /// The text.
        found: String,
    },
}

impl Finding for OutsideFault {}

impl fmt::Display for OutsideFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OutsideFault::SetTwice { first } => {
                write!(f, "is set twice, see {first}; of all files one may set it")
            }
            OutsideFault::MainOnly => {
                write!(f, "an included file cannot include others, only the main file can")
            }
            OutsideFault::Unset { name } => write!(
                f,
                "the variable {name} is not set in the environment of this program; ${{{name}:-default}} has a \
                 default, and $${{{name}}} is the text itself"
            ),
            OutsideFault::VariableNotUtf8 { name } => {
                write!(f, "the value of the variable {name} is not UTF-8")
            }
            OutsideFault::NoSecretHere { found } => write!(
                f,
                "{found} is a secret, and this value would be shown to others: secrets may stand in {}; of \
                 keys and tokens the settings for files take a path such as \
                 \"${{CREDENTIALS_DIRECTORY}}/name\"",
                MAY_BE_SECRET.join(", ")
            ),
            OutsideFault::NoCredentials => write!(
                f,
                "the variable CREDENTIALS_DIRECTORY is not set: systemd sets it for a unit that has LoadCredential= \
                 or SetCredential="
            ),
            OutsideFault::NoSecret { file, why } => {
                write!(f, "the file {file:?} has no secret: it {why}")
            }
            OutsideFault::UnfitSecret { expected } => write!(
                f,
                "what comes of the secret does not fit here, where {expected} belongs; it is not shown"
            ),
            OutsideFault::OfSecret => f.write_str(
                "something is said of this value, which is not shown because it has a secret in it",
            ),
            OutsideFault::NoVariableName { found } => write!(
                f,
                "{found:?} stands for itself: variables of the environment are in capitals, as ${{DIR}} is"
            ),
        }
    }
}

/// Settings whose values no message, command or log shows, so that secrets may stand in them.
pub(super) const MAY_BE_SECRET: [&str; 4] = ["proxy.set", "fastcgi.set", "cgi.set", "auth.users"];

/// Settings whose values are templates of fields. A dollar sign in them that names nothing is remarked by
/// `checks/literal.rs`.
const FIELDS: [&str; 3] = ["proxy.set", "fastcgi.set", "header.set"];

/// The most bytes of a secret.
const LONGEST_SECRET: usize = 64 * 1024;

/// Whether a setting, as it is shown, is one of these: of a site, or of all.
pub(super) fn is_one_of(shown: &str, keys: &[&str]) -> bool {
    keys.contains(&shown.strip_prefix("site.").unwrap_or(shown))
}

/// A string with its variables expanded.
pub(super) struct ExpandedText<'v> {
    pub(super) text: Cow<'v, str>,
    /// Whether the string has variables.
    pub(super) has_variable: bool,
    pub(super) is_secret: bool,
}

impl ConfigReader<'_> {
    /// Expands the variables of a string.
    pub(super) fn expanded<'v>(
        &mut self,
        text: &'v str,
        path: &Path,
    ) -> Result<ExpandedText<'v>, Wrong> {
        if !text.contains("${") {
            return Ok(ExpandedText { text: text.into(), has_variable: false, is_secret: false });
        }
        let may_be_secret = is_one_of(&path.shown, &MAY_BE_SECRET)
            || path
                .shown
                .rsplit_once('.')
                .is_some_and(|(table, _)| is_one_of(table, &MAY_BE_SECRET));
        let table = path.shown.rsplit_once('.').map_or("", |(table, _)| table);
        // the pieces, each with whether it comes from elsewhere
        let mut pieces: Vec<(bool, Cow<'_, str>)> = Vec::new();
        let (mut has_variable, mut is_secret) = (false, false);
        for part in expand::parts(text).map_err(Wrong::said)? {
            match part {
                StringPart::Text(text) => pieces.push((false, text.into())),
                StringPart::Unlike(text) => {
                    pieces.push((false, text.into()));
                    if !is_one_of(table, &FIELDS) {
                        let found = text.to_owned();
                        self.remark(path, Wrong::said(OutsideFault::NoVariableName { found }));
                    }
                }
                StringPart::Variable { name, default } => {
                    has_variable = true;
                    pieces.push((true, self.variable(name, default)?.into()));
                }
                StringPart::File(_) | StringPart::Credential(_) if !may_be_secret => {
                    let found = text.to_owned();
                    return Err(Wrong::said(OutsideFault::NoSecretHere { found }));
                }
                StringPart::File(file) => {
                    let directory = FilePath::new(self.file).parent();
                    let file = directory.unwrap_or(FilePath::new("")).join(file);
                    (has_variable, is_secret) = (true, true);
                    pieces.push((true, self.secret(file, path)?.into()));
                }
                StringPart::Credential(name) => {
                    let directory = self.source.variable("CREDENTIALS_DIRECTORY");
                    let directory =
                        directory.ok_or_else(|| Wrong::said(OutsideFault::NoCredentials))?;
                    (has_variable, is_secret) = (true, true);
                    let file = PathBuf::from(directory).join(name);
                    pieces.push((true, self.secret(file, path)?.into()));
                }
            }
        }
        let said = match is_one_of(table, &FIELDS) {
            true => {
                let pieces: Vec<_> = pieces.iter().map(|(other, text)| (*other, &**text)).collect();
                Template::text_of_field(&pieces)
            }
            false => pieces.iter().map(|(_, text)| &**text).collect(),
        };
        if is_secret {
            let value = SecretValue { value: said.clone(), written: text.to_owned() };
            self.origin.secrets.push(value);
        }
        Ok(ExpandedText { text: said.into(), has_variable, is_secret })
    }

    fn variable(&mut self, name: &str, default: Option<&str>) -> Result<String, Wrong> {
        let name = name.to_owned();
        let value = self.source.variable(&name);
        match (value, default) {
            (Some(value), default) => match (value.into_string(), default) {
                (Ok(value), Some(default)) if value.is_empty() => Ok(default.to_owned()),
                (Ok(value), _) => Ok(value),
                (Err(_), _) => Err(Wrong::said(OutsideFault::VariableNotUtf8 { name })),
            },
            (None, Some(default)) => Ok(default.to_owned()),
            (None, None) => Err(Wrong::said(OutsideFault::Unset { name })),
        }
    }

    /// The contents of the file of a secret, without the end of the line.
    fn secret(&mut self, file: PathBuf, path: &Path) -> Result<String, Wrong> {
        let bytes = match self.source.secret(&file) {
            Ok(bytes) => bytes,
            Err(error) => return Err(Wrong::NoFile { path: file, error }),
        };
        let why = if bytes.len() > LONGEST_SECRET {
            "has more than 64 KiB"
        } else if let Ok(text) = String::from_utf8(bytes) {
            let text = text.strip_suffix('\n').unwrap_or(&text);
            let text = text.strip_suffix('\r').unwrap_or(text);
            if !text.is_empty() {
                let text = text.to_owned();
                self.origin.secret_files.push(file.clone());
                self.secrets.push((path.clone(), file));
                return Ok(text);
            }
            "is empty"
        } else {
            "is not UTF-8"
        };
        Err(Wrong::said(OutsideFault::NoSecret { file, why }))
    }
}
