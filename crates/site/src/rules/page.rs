//! Files of a site that stand for its errors.

use std::fmt;

/// A file that is the body of an error's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorPage {
    status: u16,
    path: Box<str>,
}

impl ErrorPage {
    /// Reads the status `404` and the path `/404.html`, decoded, from the root on.
    ///
    /// # Errors
    /// [`ErrorPageError`] for what is not the status of an error or not the path of a file.
    pub fn parse(status: &str, path: &str) -> Result<ErrorPage, ErrorPageError> {
        let is_digits = status.bytes().all(|byte| byte.is_ascii_digit());
        let number = status.parse().ok().filter(|status| (400..600).contains(status));
        let status = number.filter(|_| is_digits).ok_or(ErrorPageError::Status)?;
        let mut segments = path.strip_prefix('/').ok_or(ErrorPageError::Start)?.split('/');
        if path.chars().any(|c| c.is_control() || c == '\\') {
            return Err(ErrorPageError::Path);
        }
        if segments.any(|segment| ["", ".", ".."].contains(&segment)) {
            return Err(ErrorPageError::Path);
        }
        Ok(ErrorPage { status, path: path.into() })
    }

    /// The status, from 400 to 599.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// The path of the file, from the root on.
    pub fn path(&self) -> &str {
        &self.path
    }
}

/// The reason why an error page is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorPageError {
    /// A status that is not one of an error.
    Status,
    /// The path does not begin with a slash.
    Start,
    /// The path is not a file's.
    Path,
}

impl fmt::Display for ErrorPageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ErrorPageError::Status => "the status of an error is a number from 400 to 599",
            ErrorPageError::Start => "an error page is a path of the site, from / on",
            ErrorPageError::Path => "an error page is a file: /name or /directory/name",
        })
    }
}

impl std::error::Error for ErrorPageError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_and_a_file() {
        let page = ErrorPage::parse("404", "/errors/404.html").unwrap();
        assert_eq!((page.status(), page.path()), (404, "/errors/404.html"));
        for (status, path, expected) in [
            ("200", "/a", ErrorPageError::Status),
            ("+404", "/a", ErrorPageError::Status),
            ("4xx", "/a", ErrorPageError::Status),
            ("404", "a", ErrorPageError::Start),
            ("404", "/", ErrorPageError::Path),
            ("404", "/a/", ErrorPageError::Path),
            ("404", "/../a", ErrorPageError::Path),
            ("404", "/a\\b", ErrorPageError::Path),
        ] {
            assert_eq!(ErrorPage::parse(status, path), Err(expected), "{status} {path}");
        }
    }
}
