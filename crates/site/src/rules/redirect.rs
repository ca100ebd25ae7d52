//! Rules that send clients to another address.

use super::header::vary;
use super::template::no_capture;
use super::{HeaderRule, Pattern, RequestConditions, RequestVariable, Template, TemplatePart};
use std::fmt;

/// A rule that sends clients to another address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    pattern: Pattern,
    to: Template,
    status: u16,
    conditions: RequestConditions,
}

impl Redirect {
    /// The status of a redirect that names none.
    pub const DEFAULT_STATUS: u16 = 301;

    /// A redirect of paths that fit `pattern`. If `to` has neither a `?` nor `$query`, it gets the
    /// query of the client; a `?` at its end is left out.
    ///
    /// # Errors
    /// [`RedirectError`] if `to` is not an address, or a client's text could turn it into an
    /// address of another host.
    pub fn new(pattern: Pattern, to: Template, status: u16) -> Result<Redirect, RedirectError> {
        if !matches!(status, 301 | 302 | 303 | 307 | 308) {
            return Err(RedirectError::Status { status });
        }
        let captures = pattern.captures_len();
        if let Some(name) =
            to.stranger(captures, |part| *part != TemplatePart::Of(RequestVariable::Upstream))
        {
            return Err(RedirectError::Capture { name, captures });
        }
        match host_end(&to) {
            None if to.begins_with_slash() => {}
            None => return Err(RedirectError::Start),
            Some(HostEnd::Text) => {}
            Some(HostEnd::Capture) => return Err(RedirectError::OpenHost),
        }
        Ok(Redirect { pattern, to, status, conditions: RequestConditions::default() })
    }

    /// The same for requests that meet these conditions.
    #[must_use]
    pub fn under(self, conditions: RequestConditions) -> Redirect {
        Redirect { conditions, ..self }
    }

    /// The requests that the redirect is for.
    pub fn conditions(&self) -> &RequestConditions {
        &self.conditions
    }

    /// The rule that adds a `Vary` to the answers, if they need one.
    pub(crate) fn varying(&self) -> Option<HeaderRule> {
        vary(Some(self.pattern.clone()), &self.conditions, self.to.variables())
    }

    /// The paths that the redirect is for.
    pub fn pattern(&self) -> &Pattern {
        &self.pattern
    }

    /// The address that clients are sent to.
    pub fn to(&self) -> &Template {
        &self.to
    }

    /// The status: 301, 302, 303, 307 or 308.
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

/// The kind of text that the host of an absolute address ends with.
enum HostEnd {
    Text,
    Capture,
}

/// The end of the host; `None` if the template does not begin with a scheme.
fn host_end(to: &Template) -> Option<HostEnd> {
    let (rest, parts) = match to.parts() {
        // an address that begins with two slashes has the scheme of the page it is on
        [TemplatePart::Text(first), parts @ ..] => {
            let schemes = ["http://", "https://", "//"];
            (schemes.iter().find_map(|scheme| first.strip_prefix(scheme))?, parts)
        }
        [TemplatePart::Of(RequestVariable::Scheme), TemplatePart::Text(first), parts @ ..] => {
            (first.strip_prefix("://")?, parts)
        }
        _ => return None,
    };
    if rest.contains(['/', '?', '#']) {
        return Some(HostEnd::Text);
    }
    let mut end = HostEnd::Text;
    for part in parts {
        end = match part {
            TemplatePart::Text(text) if text.starts_with(['/', '?', '#']) => return Some(end),
            // a port, before which the host has ended
            TemplatePart::Text(text) if text.starts_with(':') => return Some(end),
            TemplatePart::Text(text) if text.contains(['/', '?', '#']) => {
                return Some(HostEnd::Text);
            }
            TemplatePart::Text(_) | TemplatePart::Host => HostEnd::Text,
            TemplatePart::Path | TemplatePart::Query => return Some(end),
            // a client's text is in these, too
            TemplatePart::Capture(_) | TemplatePart::Of(_) => HostEnd::Capture,
        };
    }
    Some(end)
}

/// The reason why a redirect is not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RedirectError {
    /// A status that is not one of a redirect.
    Status {
        /// The status.
        status: u16,
    },
    /// The pattern captures less.
    Capture {
        /// The variable.
        name: String,
        /// The number of captures that the pattern has.
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
            ("/a", "$scheme://$host/b", 301, Ok(true)),
            ("/a", "$scheme://$cookie.tenant.example/", 301, Ok(true)),
            ("/a", "/login?back=$path&from=$header.Referer", 302, Ok(false)),
            ("/a", "$header.Referer", 301, Err(start)),
            ("/a", "$scheme$path", 301, Err(start)),
            ("/a", "https://$header.Host/", 301, Err(open)),
            ("/a", "$scheme://$query.to", 301, Err(open)),
            ("/a", "//$query.to", 301, Err(open)),
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
}
