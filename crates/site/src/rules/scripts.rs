//! Routes to applications: which paths they answer, and which files are scripts.

use super::header::vary;
use super::{HeaderRule, MountPath, RequestConditions, Scope, Template};
use forebay_http::coding::Coding;
use std::fmt;

/// The paths of an application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The paths that the application answers.
    pub path: Scope,
    /// The files of the site that the application runs, if it runs any. Every other file beneath
    /// the path is sent.
    pub scripts: Option<Scripts>,
    /// Whether files of the site answer first where there are any, and the application answers
    /// other paths.
    pub files_first: bool,
    /// Paths of the site whose files this application, and no other, may have sent instead of its
    /// answers.
    pub sends: Vec<Scope>,
    /// The codings into which the application's answers are turned. `None`: those of the site, and
    /// no answer that has a strong tag, as the tag would be lost.
    pub compress: Option<Vec<Coding>>,
    /// Whether the application gets paths with several readings as they were sent. Default: no.
    pub passes: bool,
    /// Whether the application is given the socket of a request, and answers on it.
    pub hands_over: bool,
    /// The requests that the route is for. Others are for the next route, or for files. A route
    /// that runs files has no conditions.
    pub conditions: RequestConditions,
    /// The values, in order, of the fields for the application that differ from request to request.
    pub told: Vec<Template>,
}

impl Route {
    /// A route of all these paths, whatever files there are.
    pub fn all(path: Scope) -> Route {
        Route {
            path,
            scripts: None,
            files_first: false,
            sends: Vec::new(),
            compress: None,
            passes: false,
            hands_over: false,
            conditions: RequestConditions::default(),
            told: Vec::new(),
        }
    }

    /// The rules that add a `Vary` to the answers, if they need one.
    pub(crate) fn varying(&self) -> impl Iterator<Item = HeaderRule> {
        let patterns = self.path.patterns().into_iter();
        patterns.filter_map(|path| vary(Some(path), &self.conditions, std::iter::empty()))
    }
}

/// The files that are run, and not sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scripts {
    /// The end of the files' names.
    pub ending: ScriptSuffix,
    /// The name of the script that answers for a directory.
    pub index: Box<str>,
    /// The script that answers where nothing else does: a front controller.
    pub fallback: Option<MountPath>,
    /// The paths of the scripts that may be run, if not all may. Others are answered as if they
    /// were missing.
    pub only: Option<Vec<Scope>>,
}

impl Scripts {
    /// Whether the file with this path in the site is run.
    pub fn may_run(&self, file: &[u8]) -> bool {
        let is_named = |only: &Vec<Scope>| only.iter().any(|scope| scope.contains(file));
        self.ending.is_of(file) && self.only.as_ref().is_none_or(is_named)
    }
}

/// The ending of the names of scripts, with its dot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptSuffix(Box<str>);

impl ScriptSuffix {
    /// Reads `.php`.
    ///
    /// # Errors
    /// [`EndingError`] for what is no ending.
    pub fn parse(text: &str) -> Result<ScriptSuffix, EndingError> {
        let is_good = text.strip_prefix('.').is_some_and(|rest| {
            !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        });
        is_good.then(|| ScriptSuffix(text.into())).ok_or(EndingError)
    }

    /// The text of the ending, with its dot.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether a file with this path is a script.
    pub fn is_of(&self, file: &[u8]) -> bool {
        let name = file.rsplit(|&b| b == b'/').next().unwrap_or_default();
        // one that is nothing but the ending has no name
        name.len() > self.0.len() && name.ends_with(self.0.as_bytes())
    }

    /// The scripts that a path may name, each with the rest of the path, which is empty or begins
    /// with a slash. The script's segment has this ending. The first that exists and is no
    /// directory is meant. The caller must look whether it exists: a program that looks for it by
    /// itself would run a picture if asked for `/picture.png/x.php`.
    ///
    /// ```
    /// use forebay_site::rules::ScriptSuffix;
    ///
    /// let php = ScriptSuffix::parse(".php").unwrap();
    /// let (script, info) = php.splits(b"/blog/index.php/2026/may").next().unwrap();
    /// assert_eq!((script, info), (&b"/blog/index.php"[..], &b"/2026/may"[..]));
    /// assert_eq!(php.splits(b"/blog/2026").next(), None);
    /// ```
    pub fn splits<'p>(&self, path: &'p [u8]) -> impl Iterator<Item = (&'p [u8], &'p [u8])> {
        let slashes = path.iter().enumerate().filter(|(_, b)| **b == b'/').map(|(at, _)| at);
        let splits = slashes.chain([path.len()]).map(|end| path.split_at(end));
        splits.filter(|(name, _)| self.is_of(name))
    }
}

impl fmt::Display for ScriptSuffix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A text that is no ending of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndingError;

impl fmt::Display for EndingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an ending is a dot with letters or digits behind it, such as .php")
    }
}

impl std::error::Error for EndingError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scripts_of_a_path() {
        let php = ScriptSuffix::parse(".php").unwrap();
        for (path, expected) in [
            ("/index.php", &[("/index.php", "")][..]),
            ("/index.php/", &[("/index.php", "/")]),
            ("/a/b.php/c/d.php", &[("/a/b.php", "/c/d.php"), ("/a/b.php/c/d.php", "")]),
            ("/picture.png/x.php", &[("/picture.png/x.php", "")]),
            ("/a.php.png", &[]),
            ("/a.phpx/b", &[]),
            ("/.php", &[]),
            ("/a/.php/b.php", &[("/a/.php/b.php", "")]),
            ("/", &[]),
            ("", &[]),
            ("/a.PHP", &[]),
        ] {
            let text = |bytes| std::str::from_utf8(bytes).unwrap();
            let splits = php.splits(path.as_bytes()).map(|(name, info)| (text(name), text(info)));
            assert_eq!(splits.collect::<Vec<_>>(), expected, "{path}");
            let is_script = expected.last().is_some_and(|(_, info)| info.is_empty());
            assert_eq!(php.is_of(path.as_bytes()), is_script, "{path}");
        }
        for text in ["", ".", "php", ".p/p", ".php*", "..php"] {
            assert_eq!(ScriptSuffix::parse(text), Err(EndingError), "{text}");
        }
    }
}
