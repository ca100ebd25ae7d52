//! Rules for the fields of answers.

use super::{Pattern, RequestConditions};
use forebay_http::field::{FieldName, FieldValue};
use std::fmt;

/// Which media types: `text/css`, `image/*`, `*/*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediaPattern(Box<str>);

impl MediaPattern {
    /// Reads a type, a slash and a subtype; each may be a star.
    ///
    /// # Errors
    /// [`HeaderError`] for anything else.
    pub fn parse(text: &str) -> Result<MediaPattern, HeaderError> {
        let is_name = |name: &str| FieldName::parse(name).is_ok();
        match text.split_once('/') {
            Some(("*", "*")) => {}
            Some((first, second)) if is_name(first) && is_name(second) && first != "*" => {}
            _ => return Err(HeaderError::MediaType),
        }
        Ok(MediaPattern(text.into()))
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the value of a `Content-Type` is among them, whatever its parameters.
    pub fn matches(&self, content_type: &str) -> bool {
        let media_type = content_type.split(';').next().unwrap_or_default().trim();
        match self.0.strip_suffix("/*") {
            Some("*") => true,
            Some(first) => {
                let kind = media_type.split('/').next().unwrap_or_default();
                kind.eq_ignore_ascii_case(first)
            }
            None => media_type.eq_ignore_ascii_case(&self.0),
        }
    }
}

impl fmt::Display for MediaPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Fields that say how an answer is framed, coded or identified. Only the server knows them.
const OWN: [&str; 14] = [
    "Allow",
    "Connection",
    "Content-Encoding",
    "Content-Length",
    "Content-Range",
    "Date",
    "Keep-Alive",
    "Location",
    "TE",
    "Trailer",
    "Transfer-Encoding",
    "Upgrade",
    "WWW-Authenticate",
    "Accept-Ranges",
];
/// Fields that may be left out, but not invented.
const NOT_SET: [&str; 2] = ["ETag", "Last-Modified"];
/// Fields that may be changed, but not left out.
const NOT_REMOVED: [&str; 2] = ["Content-Type", "Vary"];

/// Sets and removes fields of answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderRule {
    path: Option<Pattern>,
    media_type: Option<MediaPattern>,
    conditions: RequestConditions,
    set: Box<[(FieldName, FieldValue)]>,
    remove: Box<[FieldName]>,
}

impl HeaderRule {
    /// For answers to paths that fit `path` and with a type that fits `media_type`; each `None`
    /// is for all. `remove` comes before `set`. A set field replaces one of the same name, but
    /// `Vary` is added to.
    ///
    /// # Errors
    /// [`HeaderError`] if there is nothing to do, or a field is not the operator's to change.
    pub fn new(
        path: Option<Pattern>,
        media_type: Option<MediaPattern>,
        set: Vec<(FieldName, FieldValue)>,
        remove: Vec<FieldName>,
    ) -> Result<HeaderRule, HeaderError> {
        if set.is_empty() && remove.is_empty() {
            return Err(HeaderError::Nothing);
        }
        let is_among = |name: &FieldName, lists: [&[&str]; 2]| {
            lists.iter().any(|list| list.iter().any(|own| name.is(own)))
        };
        if let Some((name, _)) = set.iter().find(|(name, _)| is_among(name, [&OWN, &NOT_SET])) {
            return Err(HeaderError::Own { name: name.to_string() });
        }
        if let Some(name) = remove.iter().find(|name| is_among(name, [&OWN, &NOT_REMOVED])) {
            return Err(HeaderError::Own { name: name.to_string() });
        }
        for (at, (name, _)) in set.iter().enumerate() {
            if set[..at].iter().any(|(before, _)| before.is(name.as_str())) {
                return Err(HeaderError::Twice { name: name.to_string() });
            }
        }
        let conditions = RequestConditions::default();
        Ok(HeaderRule { path, media_type, conditions, set: set.into(), remove: remove.into() })
    }

    /// The same for answers to requests that meet these conditions.
    #[must_use]
    pub fn under(self, conditions: RequestConditions) -> HeaderRule {
        HeaderRule { conditions, ..self }
    }

    /// The rule by which caches tell its answers from those of other requests, if they must.
    pub(crate) fn varying(&self) -> Option<HeaderRule> {
        let rule = vary(self.path.clone(), &self.conditions)?;
        Some(HeaderRule { media_type: self.media_type.clone(), ..rule })
    }

    /// Which paths.
    pub fn path(&self) -> Option<&Pattern> {
        self.path.as_ref()
    }

    /// Which types.
    pub fn media_type(&self) -> Option<&MediaPattern> {
        self.media_type.as_ref()
    }

    /// Which requests.
    pub fn conditions(&self) -> &RequestConditions {
        &self.conditions
    }

    /// The fields it sets.
    pub fn set(&self) -> &[(FieldName, FieldValue)] {
        &self.set
    }

    /// The fields it removes.
    pub fn remove(&self) -> &[FieldName] {
        &self.remove
    }
}

/// The rule that says of answers for these paths that they depend on these conditions, whether they hold or not.
pub(crate) fn vary(path: Option<Pattern>, conditions: &RequestConditions) -> Option<HeaderRule> {
    let name = FieldName::parse("Vary").ok()?;
    let value = FieldValue::parse(&conditions.vary()?).ok()?;
    HeaderRule::new(path, None, vec![(name, value)], Vec::new()).ok()
}

/// Why there is no such header rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeaderError {
    /// Not a media type.
    MediaType,
    /// The rule does nothing.
    Nothing,
    /// A field that only the server can fill or leave out.
    Own {
        /// Its name.
        name: String,
    },
    /// A field is set twice in one rule.
    Twice {
        /// Its name.
        name: String,
    },
}

impl fmt::Display for HeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HeaderError::MediaType => f.write_str("a type is written text/css, image/* or */*"),
            HeaderError::Nothing => f.write_str("the rule neither sets nor removes a field"),
            HeaderError::Own { name } => {
                write!(f, "{name} is decided by the server and cannot be changed by a rule")
            }
            HeaderError::Twice { name } => write!(f, "{name} is set twice"),
        }
    }
}

impl std::error::Error for HeaderError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(set: &[(&str, &str)], remove: &[&str]) -> Result<HeaderRule, String> {
        let name = |text: &str| FieldName::parse(text).unwrap();
        let set = set.iter().map(|(at, value)| (name(at), FieldValue::parse(value).unwrap()));
        let remove = remove.iter().map(|at| name(at)).collect();
        HeaderRule::new(None, None, set.collect(), remove).map_err(|error| error.to_string())
    }

    #[test]
    fn some_fields_belong_to_the_server() {
        let own =
            |name: &str| format!("{name} is decided by the server and cannot be changed by a rule");
        assert!(
            rule(&[("X-A", "b"), ("Vary", "Origin"), ("Content-Type", "a/b")], &["Server"]).is_ok()
        );
        assert!(rule(&[], &["etag", "last-modified"]).is_ok());
        assert_eq!(rule(&[("content-length", "1")], &[]), Err(own("content-length")));
        assert_eq!(rule(&[("ETag", "1")], &[]), Err(own("ETag")));
        assert_eq!(rule(&[], &["vary"]), Err(own("vary")));
        assert_eq!(rule(&[], &["Date"]), Err(own("Date")));
        assert_eq!(rule(&[("A", "1"), ("a", "2")], &[]), Err("a is set twice".to_owned()));
        assert_eq!(rule(&[], &[]), Err("the rule neither sets nor removes a field".to_owned()));
    }

    #[test]
    fn types_match_without_parameters() {
        for (pattern, content_type, expected) in [
            ("text/css", "text/css; charset=utf-8", true),
            ("Text/CSS", "text/css", true),
            ("text/css", "text/html", false),
            ("image/*", "image/svg+xml", true),
            ("image/*", "text/css", false),
            ("*/*", "text/css", true),
        ] {
            let pattern = MediaPattern::parse(pattern).unwrap();
            assert_eq!(pattern.matches(content_type), expected, "{pattern} {content_type}");
        }
        for text in ["", "image", "image/", "/png", "*/png", "a/b/c", "a b/c"] {
            assert_eq!(MediaPattern::parse(text), Err(HeaderError::MediaType), "{text}");
        }
    }
}
