//! Rules for the fields of answers.

use super::{Pattern, RequestConditions, RequestVariable, Template, TemplateError};
use forebay_conn::head_values::{MOST_VALUES, mark};
use forebay_http::field::{FieldName, FieldValue};
use std::fmt;

/// A pattern of media types: `text/css`, `image/*`, `*/*`.
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

    /// The text as it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the value of a `Content-Type` fits, whatever its parameters.
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

/// Fields about the framing, coding or identity of an answer, which only the server can know.
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

/// Fields that are decided before a request is known, so that their values have no variables.
const FIXED: [&str; 3] = ["Content-Type", "Cache-Control", "Vary"];

/// A value with variables, and its mark in a baked head.
#[derive(Clone, Debug, PartialEq, Eq)]
struct VariableValue {
    template: Template,
    mark: [u8; 3],
}

/// A rule that sets and removes fields of answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderRule {
    path: Option<Pattern>,
    media_type: Option<MediaPattern>,
    conditions: RequestConditions,
    set: Box<[(FieldName, FieldValue)]>,
    /// The values that have variables, each at the place of its field in `set`.
    values: Box<[Option<VariableValue>]>,
    remove: Box<[FieldName]>,
}

/// The template of a value, if it has variables.
fn template(name: &FieldName, value: &FieldValue) -> Result<Option<VariableValue>, HeaderError> {
    let template = Template::of_field(value.as_str(), |_| true).map_err(HeaderError::Variable)?;
    let Some(template) = template else { return Ok(None) };
    if FIXED.iter().any(|fixed| name.is(fixed)) {
        return Err(HeaderError::Fixed { name: name.to_string() });
    }
    Ok(Some(VariableValue { template, mark: mark(0) }))
}

impl HeaderRule {
    /// A rule for answers to paths that fit `path` and with a type that fits `media_type`; each
    /// `None` is for all. `remove` comes before `set`. A set field replaces one of the same name,
    /// but `Vary` is added to.
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
        let values = set.iter().map(|(name, value)| template(name, value));
        let values = values.collect::<Result<_, _>>()?;
        let conditions = RequestConditions::default();
        Ok(HeaderRule {
            path,
            media_type,
            conditions,
            set: set.into(),
            values,
            remove: remove.into(),
        })
    }

    /// Numbers this rule's values with variables from here on, and adds them to those of the site.
    pub(crate) fn number(&mut self, all: &mut Vec<Template>) {
        for value in self.values.iter_mut().flatten().take(MOST_VALUES - all.len()) {
            value.mark = mark(all.len() as u16);
            all.push(value.template.clone());
        }
    }

    /// The fields that the rule sets, with marks where values have variables.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let values = self.set.iter().zip(&self.values);
        values.map(|((name, text), value)| match value {
            Some(value) => (name.as_str(), value.mark.as_slice()),
            None => (name.as_str(), text.as_str().as_bytes()),
        })
    }

    /// The same for answers to requests that meet these conditions.
    #[must_use]
    pub fn under(self, conditions: RequestConditions) -> HeaderRule {
        HeaderRule { conditions, ..self }
    }

    /// The rule that adds a `Vary` to the answers, if they need one.
    pub(crate) fn varying(&self) -> Option<HeaderRule> {
        let rule = vary(self.path.clone(), &self.conditions, self.variables())?;
        Some(HeaderRule { media_type: self.media_type.clone(), ..rule })
    }

    /// The paths that the rule is for; `None` is all.
    pub fn path(&self) -> Option<&Pattern> {
        self.path.as_ref()
    }

    /// The media types that the rule is for; `None` is all.
    pub fn media_type(&self) -> Option<&MediaPattern> {
        self.media_type.as_ref()
    }

    /// The requests that the rule is for.
    pub fn conditions(&self) -> &RequestConditions {
        &self.conditions
    }

    /// The fields that the rule sets.
    pub fn set(&self) -> &[(FieldName, FieldValue)] {
        &self.set
    }

    /// Whether the value of the field in this place among those that the rule sets has variables.
    pub fn has_variables(&self, place: usize) -> bool {
        self.values.get(place).is_some_and(Option::is_some)
    }

    /// The variables in all these values.
    pub fn variables(&self) -> impl Iterator<Item = &RequestVariable> {
        self.values.iter().flatten().flat_map(|value| value.template.variables())
    }

    /// The fields that the rule removes.
    pub fn remove(&self) -> &[FieldName] {
        &self.remove
    }
}

/// The rule that adds a `Vary` to answers for these paths, as they depend on these conditions,
/// whether they hold or not, and on these variables.
pub(crate) fn vary<'v>(
    path: Option<Pattern>,
    conditions: &'v RequestConditions,
    variables: impl Iterator<Item = &'v RequestVariable>,
) -> Option<HeaderRule> {
    let name = FieldName::parse("Vary").ok()?;
    let names = conditions.vary(variables.filter_map(RequestVariable::vary))?;
    let value = FieldValue::parse(&names).ok()?;
    HeaderRule::new(path, None, vec![(name, value)], Vec::new()).ok()
}

/// The reason why a header rule is not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeaderError {
    /// A text that is not a media type.
    MediaType,
    /// The rule does nothing.
    Nothing,
    /// A field that only the server can fill or leave out.
    Own {
        /// The field's name.
        name: String,
    },
    /// A name behind a dollar sign that is no variable.
    Variable(TemplateError),
    /// A field whose value cannot have variables.
    Fixed {
        /// The field's name.
        name: String,
    },
    /// A field is set twice in one rule.
    Twice {
        /// The field's name.
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
            HeaderError::Variable(error) => error.fmt(f),
            HeaderError::Fixed { name } => {
                write!(f, "{name} is decided before a request is known, and has no variables")
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
    fn values_have_variables_where_they_may() {
        assert!(
            rule(&[("X-A", "$host at $5 or $$"), ("X-B", "$5"), ("X-C", "a $ $$ $unknown")], &[])
                .is_err()
        );
        assert!(
            rule(&[("X-A", "$host at $$5"), ("X-B", "$5"), ("X-C", "a $ $$ $unknown")], &[])
                .is_ok()
        );
        for (name, value, expected) in [
            ("X-A", "$host $1", "$1 stands for nothing here; $$ is a dollar sign"),
            (
                "vary",
                "$header.a",
                "vary is decided before a request is known, and has no variables",
            ),
            ("X-A", "$host $nothing", "$nothing at character 7 is not a variable; there are "),
            ("X-A", "$header.Cookie", "the field at character 1 proves who somebody is"),
        ] {
            let error = rule(&[(name, value)], &[]).unwrap_err();
            assert!(error.starts_with(expected), "{value}: {error}");
        }
        let varies = |value: &str| {
            let rule = rule(&[("X-A", value)], &[]).unwrap().varying();
            rule.map(|rule| rule.set()[0].1.to_string())
        };
        assert_eq!(
            varies("$header.Origin $cookie.a $header.origin").as_deref(),
            Some("Origin, Cookie")
        );
        assert_eq!(varies("$class").as_deref(), Some("*"));
        assert_eq!(varies("$request_id $path $scheme $query.a"), None);
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
