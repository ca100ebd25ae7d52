//! Places where a file is looked for, one after another.

use super::{Template, TemplateError, TemplatePart};
use std::fmt;

/// One place where a file may be, or the status if it is nowhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TryFile {
    /// A path of the site, in which `$path` is the path asked for. A directory, with its index or
    /// listing, if it ends in a slash; else a file.
    Path(Template),
    /// The answer is an error with this status.
    Status(u16),
}

impl TryFile {
    /// Reads `$path.html`, `/index.html` or `=404`.
    ///
    /// # Errors
    /// [`CandidateError`] for what is not a path of the site.
    pub fn parse(text: &str) -> Result<TryFile, CandidateError> {
        if let Some(digits) = text.strip_prefix('=') {
            let status = digits.parse().ok().filter(|status| (400..600).contains(status));
            return status.map(TryFile::Status).ok_or(CandidateError::Status);
        }
        let template = Template::parse(text).map_err(CandidateError::Template)?;
        if let Some(name) = template.stranger(0, |part| *part == TemplatePart::Path) {
            return Err(CandidateError::Variable { name });
        }
        if !template.begins_with_slash() {
            return Err(CandidateError::Start);
        }
        Ok(TryFile::Path(template))
    }
}

impl fmt::Display for TryFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TryFile::Path(template) => template.fmt(f),
            TryFile::Status(status) => write!(f, "={status}"),
        }
    }
}

/// The reason why a text is not a place to look for a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CandidateError {
    /// A status that is not one of an error.
    Status,
    /// A text that is not a template.
    Template(TemplateError),
    /// A variable that means nothing here.
    Variable {
        /// The variable.
        name: String,
    },
    /// A text that does not begin with a slash or `$path`.
    Start,
}

impl fmt::Display for CandidateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CandidateError::Status => f.write_str("behind = stands a status from 400 to 599"),
            CandidateError::Template(error) => error.fmt(f),
            CandidateError::Variable { name } => {
                write!(f, "{name} cannot be used here; only $path can")
            }
            CandidateError::Start => f.write_str("a file to try begins with / or $path"),
        }
    }
}

impl std::error::Error for CandidateError {}

/// The places where a file is looked for, in order. Without any, only the path itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TryFiles(Box<[TryFile]>);

impl TryFiles {
    /// A list of candidates in this order.
    ///
    /// # Errors
    /// [`TryFilesError`] if something follows a status, which is never reached.
    pub fn new(candidates: Vec<TryFile>) -> Result<TryFiles, TryFilesError> {
        let is_status = |candidate: &TryFile| matches!(candidate, TryFile::Status(_));
        match candidates.iter().position(is_status) {
            Some(at) if at + 1 < candidates.len() => Err(TryFilesError { number: at + 1 }),
            _ => Ok(TryFiles(candidates.into())),
        }
    }

    /// Reads several at once, for tests and examples.
    ///
    /// # Errors
    /// The first item that is wrong; the order is not checked.
    pub fn parse(items: &[&str]) -> Result<TryFiles, CandidateError> {
        Ok(TryFiles(items.iter().map(|item| TryFile::parse(item)).collect::<Result<_, _>>()?))
    }

    /// The places in order.
    pub fn candidates(&self) -> &[TryFile] {
        &self.0
    }
}

/// Something follows a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TryFilesError {
    /// The number of the item that is the status; the first is 1.
    pub number: usize,
}

impl fmt::Display for TryFilesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "item {} is a status, so nothing after it is ever tried", self.number)
    }
}

impl std::error::Error for TryFilesError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_candidate_is_a_path_or_a_status() {
        for text in ["$path", "$path.html", "$path/", "/index.html", "=404", "/a$path"] {
            assert_eq!(TryFile::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(TryFile::parse("=410").unwrap(), TryFile::Status(410));
        for (text, expected) in [
            ("=200", "behind = stands a status from 400 to 599"),
            ("=", "behind = stands a status from 400 to 599"),
            ("index.html", "a file to try begins with / or $path"),
            ("", "a file to try begins with / or $path"),
            ("/$1", "$1 cannot be used here; only $path can"),
            ("$path$query", "$query cannot be used here; only $path can"),
        ] {
            assert_eq!(TryFile::parse(text).unwrap_err().to_string(), expected, "{text}");
        }
        assert!(matches!(TryFile::parse("$uri"), Err(CandidateError::Template(_))));
    }

    #[test]
    fn nothing_follows_a_status() {
        let list = |items: [&str; 2]| items.map(|item| TryFile::parse(item).unwrap()).to_vec();
        assert!(TryFiles::new(list(["$path", "=404"])).is_ok());
        assert_eq!(TryFiles::new(list(["=404", "$path"])), Err(TryFilesError { number: 1 }));
        assert!(TryFiles::new(Vec::new()).unwrap().candidates().is_empty());
    }
}
