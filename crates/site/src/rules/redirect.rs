//! Rules that lead from one path to another: by way of the client, or unseen.

use super::{Pattern, Template, TemplatePart};
use std::fmt;

/// Sends clients to another address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    pattern: Pattern,
    to: Template,
    status: u16,
}

impl Redirect {
    /// The status without one being named.
    pub const DEFAULT_STATUS: u16 = 301;

    /// For paths that fit `pattern`. If `to` has neither a `?` nor `$query`, it gets the query of
    /// the client; a `?` at its end is left out.
    ///
    /// # Errors
    /// [`RedirectError`] if `to` is not an address, or could be turned into another host's by what
    /// a client writes.
    pub fn new(pattern: Pattern, to: Template, status: u16) -> Result<Redirect, RedirectError> {
        if !matches!(status, 301 | 302 | 303 | 307 | 308) {
            return Err(RedirectError::Status { status });
        }
        let captures = pattern.captures_len();
        if let Some(name) =
            to.stranger(captures, &[TemplatePart::Path, TemplatePart::Query, TemplatePart::Host])
        {
            return Err(RedirectError::Capture { name, captures });
        }
        match host_end(&to) {
            None if to.begins_with_slash() => {}
            None => return Err(RedirectError::Start),
            Some(HostEnd::Text) => {}
            Some(HostEnd::Capture) => return Err(RedirectError::OpenHost),
        }
        Ok(Redirect { pattern, to, status })
    }

    /// Which paths.
    pub fn pattern(&self) -> &Pattern {
        &self.pattern
    }

    /// Where to.
    pub fn to(&self) -> &Template {
        &self.to
    }

    /// 301, 302, 303, 307 or 308.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Whether the client's query is put behind `to`.
    pub fn adds_query(&self) -> bool {
        let is_query = |part: &TemplatePart| match part {
            TemplatePart::Text(text) => text.contains('?'),
            part => *part == TemplatePart::Query,
        };
        !self.to.parts().iter().any(is_query)
    }
}

/// What the host of an absolute address ends with.
enum HostEnd {
    Text,
    Capture,
}

/// `None` if the template does not begin with a scheme.
fn host_end(to: &Template) -> Option<HostEnd> {
    let Some(TemplatePart::Text(first)) = to.parts().first() else { return None };
    // an address that begins with two slashes has the scheme of the page it is on
    let schemes = ["http://", "https://", "//"];
    let rest = schemes.iter().find_map(|scheme| first.strip_prefix(scheme))?;
    if rest.contains(['/', '?', '#']) {
        return Some(HostEnd::Text);
    }
    let mut end = HostEnd::Text;
    for part in &to.parts()[1..] {
        end = match part {
            TemplatePart::Text(text) if text.starts_with(['/', '?', '#']) => return Some(end),
            // a port, after which the host has ended already
            TemplatePart::Text(text) if text.starts_with(':') => return Some(end),
            TemplatePart::Text(text) if text.contains(['/', '?', '#']) => {
                return Some(HostEnd::Text);
            }
            TemplatePart::Text(_) | TemplatePart::Host => HostEnd::Text,
            TemplatePart::Path | TemplatePart::Query => return Some(end),
            TemplatePart::Capture(_) => HostEnd::Capture,
        };
    }
    Some(end)
}

/// Why there is no such redirect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RedirectError {
    /// Not a status of a redirect.
    Status {
        /// What it is.
        status: u16,
    },
    /// The pattern captures less.
    Capture {
        /// The variable.
        name: String,
        /// What the pattern captures.
        captures: usize,
    },
    /// The target begins with neither a slash, `$path`, `http://` nor `https://`.
    Start,
    /// A capture ends the host: a client could make it another one.
    OpenHost,
}

impl fmt::Display for RedirectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RedirectError::Status { status } => {
                write!(f, "{status} is not a redirect; 301, 302, 303, 307 and 308 are")
            }
            RedirectError::Capture { name, captures } => no_capture(f, name, *captures),
            RedirectError::Start => {
                f.write_str("a redirect leads to http://, https://, $path or a path from / on")
            }
            RedirectError::OpenHost => f.write_str(
                "a capture ends the host, so clients could name another one; put a slash before it",
            ),
        }
    }
}

impl std::error::Error for RedirectError {}

fn no_capture(f: &mut fmt::Formatter<'_>, name: &str, captures: usize) -> fmt::Result {
    match captures {
        0 => write!(f, "{name} stands for nothing: the pattern captures nothing"),
        1 => write!(f, "{name} stands for nothing: the pattern captures $1 only"),
        _ => write!(f, "{name} stands for nothing: the pattern captures $1 to ${captures}"),
    }
}

/// Looks for the files of another path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rewrite {
    pattern: Pattern,
    to: Template,
}

impl Rewrite {
    /// For paths that fit `pattern`. `to` is a decoded path.
    ///
    /// # Errors
    /// [`RewriteError`] if `to` is not a path of the site.
    pub fn new(pattern: Pattern, to: Template) -> Result<Rewrite, RewriteError> {
        if !to.begins_with_slash() {
            return Err(RewriteError::Start);
        }
        let captures = pattern.captures_len();
        match to.stranger(captures, &[TemplatePart::Path]) {
            None => Ok(Rewrite { pattern, to }),
            Some(name) if name == "$query" || name == "$host" => {
                Err(RewriteError::Variable { name })
            }
            Some(name) => Err(RewriteError::Capture { name, captures }),
        }
    }

    /// Which paths.
    pub fn pattern(&self) -> &Pattern {
        &self.pattern
    }

    /// Where to.
    pub fn to(&self) -> &Template {
        &self.to
    }
}

/// Why there is no such rewrite.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RewriteError {
    /// The target does not begin with a slash or `$path`.
    Start,
    /// The pattern captures less.
    Capture {
        /// The variable.
        name: String,
        /// What the pattern captures.
        captures: usize,
    },
    /// A variable that is not part of a path.
    Variable {
        /// The variable.
        name: String,
    },
}

impl fmt::Display for RewriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RewriteError::Start => f.write_str("a rewrite leads to a path of the site, from / on"),
            RewriteError::Capture { name, captures } => no_capture(f, name, *captures),
            RewriteError::Variable { name } => write!(
                f,
                "{name} cannot be used here: which file is meant depends on the path alone, and \
                 the query stays as it is"
            ),
        }
    }
}

impl std::error::Error for RewriteError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn redirect(pattern: &str, to: &str, status: u16) -> Result<Redirect, String> {
        let (pattern, to) = (Pattern::parse(pattern).unwrap(), Template::parse(to).unwrap());
        Redirect::new(pattern, to, status).map_err(|error| error.to_string())
    }

    #[test]
    fn a_redirect_leads_to_an_address() {
        let start = "a redirect leads to http://, https://, $path or a path from / on";
        let open =
            "a capture ends the host, so clients could name another one; put a slash before it";
        for (pattern, to, status, expected) in [
            ("/old/*", "https://$host/new/$1", 301, Ok(true)),
            ("*", "https://www.example$path", 308, Ok(true)),
            ("*", "https://$host$path$query", 302, Ok(false)),
            ("/a", "/b?c=d", 303, Ok(false)),
            ("/~*", "https://$1.example/", 307, Ok(true)),
            ("/a", "$path/", 301, Ok(true)),
            ("/a", "https://example", 301, Ok(true)),
            ("/a", "/b", 304, Err("304 is not a redirect; 301, 302, 303, 307 and 308 are")),
            ("/a", "/$1", 301, Err("$1 stands for nothing: the pattern captures nothing")),
            ("/*", "/$2", 301, Err("$2 stands for nothing: the pattern captures $1 only")),
            ("/*/*", "/$3", 301, Err("$3 stands for nothing: the pattern captures $1 to $2")),
            ("/a", "b", 301, Err(start)),
            ("/*", "$1", 301, Err(start)),
            ("/a", "ftp://b/", 301, Err(start)),
            ("/a", "", 301, Err(start)),
            ("/a*", "https://example$1", 301, Err(open)),
            ("/a*", "https://example$1/b", 301, Err(open)),
            ("/a*", "https://$1$path", 301, Err(open)),
        ] {
            let got = redirect(pattern, to, status);
            let got = got.as_ref().map(Redirect::adds_query).map_err(String::as_str);
            assert_eq!(got, expected, "{pattern} {to}");
        }
    }

    #[test]
    fn a_rewrite_stays_in_the_site() {
        let variable = "cannot be used here: which file is meant depends on the path alone, and the \
                        query stays as it is";
        for (to, expected) in [
            ("/app/$1", None),
            ("$path.html", None),
            ("app/$1", Some("a rewrite leads to a path of the site, from / on".to_owned())),
            ("$1", Some("a rewrite leads to a path of the site, from / on".to_owned())),
            ("/$host/$1", Some(format!("$host {variable}"))),
            ("/a$query", Some(format!("$query {variable}"))),
            ("/$9", Some("$9 stands for nothing: the pattern captures $1 only".to_owned())),
        ] {
            let pattern = Pattern::parse("/*").unwrap();
            let got = Rewrite::new(pattern, Template::parse(to).unwrap());
            assert_eq!(got.err().map(|error| error.to_string()), expected, "{to}");
        }
    }
}
