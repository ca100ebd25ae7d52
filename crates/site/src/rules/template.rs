//! Texts with variables: `/new/$1`, `https://$host$path`.

use super::variable::ReadVariable;
use super::{RequestVariable, place};
use std::fmt;

/// A text in which `$1` to `$9`, `$path`, `$query`, `$host` and [`RequestVariable`]s stand for
/// values of a request. `$$` is a dollar sign.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    text: Box<str>,
    parts: Box<[TemplatePart]>,
}

/// A piece of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TemplatePart {
    /// Fixed characters.
    Text(Box<str>),
    /// A capture of the rule's pattern, from 1.
    Capture(u8),
    /// The path.
    Path,
    /// The query with its question mark, or nothing.
    Query,
    /// The host without a port.
    Host,
    /// A variable of the request.
    Of(RequestVariable),
}

impl TemplatePart {
    /// The part as it is written in a template.
    fn name(&self) -> String {
        match self {
            TemplatePart::Text(text) => text.replace('$', "$$"),
            TemplatePart::Capture(number) => format!("${number}"),
            TemplatePart::Path => "$path".to_owned(),
            TemplatePart::Query => "$query".to_owned(),
            TemplatePart::Host => "$host".to_owned(),
            TemplatePart::Of(variable) => variable.to_string(),
        }
    }
}

/// The variables with a name.
const NAMED: [(&str, TemplatePart); 3] =
    [("path", TemplatePart::Path), ("query", TemplatePart::Query), ("host", TemplatePart::Host)];

impl Template {
    /// Reads a template.
    ///
    /// # Errors
    /// [`TemplateError`] for an unknown variable or a control character.
    pub fn parse(text: &str) -> Result<Template, TemplateError> {
        if let Some((at, character)) = text.char_indices().find(|(_, c)| c.is_control()) {
            return Err(TemplateError::Character { character, at: place(text, at) });
        }
        let mut parts = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(dollar) = rest.find('$') {
            plain.push_str(&rest[..dollar]);
            let at = text.len() - rest.len() + dollar;
            let (part, len) =
                variable(&rest[dollar + 1..]).map_err(|is_secret| match is_secret {
                    true => TemplateError::Secret { at: place(text, at) },
                    false => TemplateError::unknown(text, at),
                })?;
            rest = &rest[dollar + 1 + len..];
            match part {
                TemplatePart::Text(text) => plain.push_str(&text),
                part => {
                    push_text(&mut parts, &mut plain);
                    parts.push(part);
                }
            }
        }
        plain.push_str(rest);
        push_text(&mut parts, &mut plain);
        Ok(Template { text: text.into(), parts: parts.into() })
    }

    /// The value of a field, if it has variables; `is_known` says which there are.
    ///
    /// # Errors
    /// [`TemplateError`] for an unknown variable, or one that is none of these.
    pub fn of_field(
        text: &str,
        is_known: impl Fn(&TemplatePart) -> bool,
    ) -> Result<Option<Template>, TemplateError> {
        if !Template::names_any(text) {
            return Ok(None);
        }
        let template = Template::parse(text)?;
        match template.stranger(0, is_known) {
            Some(name) => Err(TemplateError::Stranger { name }),
            None => Ok(Some(template)),
        }
    }

    /// The text of a field's value made of pieces, for [`of_field`](Template::of_field). Those with
    /// `true` come from elsewhere and have no variables: their dollar signs are escaped where one
    /// could be read.
    pub fn text_of_field(pieces: &[(bool, &str)]) -> String {
        let whole: String = pieces.iter().map(|(_, piece)| *piece).collect();
        let has_own =
            pieces.iter().any(|(is_other, piece)| !is_other && Template::names_any(piece));
        match has_own {
            true => {
                let escaped = |(is_other, piece): &(bool, &str)| match is_other {
                    true => piece.replace('$', "$$"),
                    false => (*piece).to_owned(),
                };
                pieces.iter().map(escaped).collect()
            }
            // it would be a template by what the others say
            false if Template::names_any(&whole) => whole.replace('$', "$$"),
            false => whole,
        }
    }

    /// Whether some dollar sign in a text begins a variable, be it one that cannot be named.
    pub(super) fn names_any(text: &str) -> bool {
        let mut dollars = text.match_indices('$');
        dollars.any(|(at, _)| match variable(&text[at + 1..]) {
            Ok((part, _)) => !matches!(part, TemplatePart::Text(_) | TemplatePart::Capture(_)),
            Err(is_secret) => is_secret,
        })
    }

    /// The variables of requests among its parts.
    pub fn variables(&self) -> impl Iterator<Item = &RequestVariable> {
        self.parts.iter().filter_map(|part| match part {
            TemplatePart::Of(variable) => Some(variable),
            _ => None,
        })
    }

    /// The text as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The template's parts in order; no two texts follow one another.
    pub fn parts(&self) -> &[TemplatePart] {
        &self.parts
    }

    /// The first piece that is not among those known where the template is used, or a capture above
    /// `captures`.
    pub(super) fn stranger(
        &self,
        captures: usize,
        is_known: impl Fn(&TemplatePart) -> bool,
    ) -> Option<String> {
        let is_known = |part: &TemplatePart| match part {
            TemplatePart::Text(_) => true,
            TemplatePart::Capture(number) => usize::from(*number) <= captures,
            part => is_known(part),
        };
        self.parts.iter().find(|part| !is_known(part)).map(TemplatePart::name)
    }

    /// Whether the template begins with a slash, whatever the variables' values.
    pub(super) fn begins_with_slash(&self) -> bool {
        match self.parts.first() {
            Some(TemplatePart::Text(text)) => text.starts_with('/'),
            first => first == Some(&TemplatePart::Path),
        }
    }
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The variable at the start of `text`, which follows a dollar sign, and its length. If there is
/// none: whether the text names a variable that is not allowed.
fn variable(text: &str) -> Result<(TemplatePart, usize), bool> {
    match text.as_bytes().first() {
        Some(b'$') => return Ok((TemplatePart::Text("$".into()), 1)),
        Some(digit @ b'1'..=b'9') => return Ok((TemplatePart::Capture(digit - b'0'), 1)),
        _ => {}
    }
    match RequestVariable::read(text) {
        Some(ReadVariable::Is(variable, len)) => Ok((TemplatePart::Of(variable), len)),
        Some(ReadVariable::Secret) => Err(true),
        None => {
            let end = text.find(|c: char| !c.is_ascii_lowercase()).unwrap_or(text.len());
            let named = NAMED.iter().find(|(name, _)| *name == &text[..end]);
            named.map(|(_, part)| (part.clone(), end)).ok_or(false)
        }
    }
}

fn push_text(parts: &mut Vec<TemplatePart>, plain: &mut String) {
    if !plain.is_empty() {
        parts.push(TemplatePart::Text(std::mem::take(plain).into()));
    }
}

/// The reason why a text is not a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TemplateError {
    /// A name behind a dollar sign that is no variable.
    Unknown {
        /// The dollar sign and the name behind it.
        name: String,
        /// The place of the dollar sign; the first character is 1.
        at: usize,
    },
    /// A field that carries credentials.
    Secret {
        /// The place of its dollar sign; the first character is 1.
        at: usize,
    },
    /// A variable that stands for nothing where the template is used.
    Stranger {
        /// The variable as it is written.
        name: String,
    },
    /// A control character.
    Character {
        /// The character.
        character: char,
        /// The character's place; the first is 1.
        at: usize,
    },
}

impl TemplateError {
    fn unknown(text: &str, at: usize) -> TemplateError {
        let rest = &text[at..];
        let end =
            rest[1..].find(|c: char| !c.is_ascii_alphanumeric()).map_or(rest.len(), |e| e + 1);
        TemplateError::Unknown { name: rest[..end].to_owned(), at: place(text, at) }
    }
}

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TemplateError::Unknown { name, at } => write!(
                f,
                "{name} at character {at} is not a variable; there are $1 to $9, $path, $query, $host, \
                 $client, $scheme, $class, $request_id, $upstream, $header.NAME, $cookie.NAME and \
                 $query.NAME, and $$ is a dollar sign"
            ),
            TemplateError::Secret { at } => write!(
                f,
                "the field at character {at} proves who somebody is and cannot be named; one cookie is \
                 $cookie.NAME"
            ),
            TemplateError::Stranger { name } => {
                write!(f, "{name} stands for nothing here; $$ is a dollar sign")
            }
            TemplateError::Character { character, at } => {
                write!(f, "{character:?} at character {at} cannot be sent")
            }
        }
    }
}

impl std::error::Error for TemplateError {}

/// Says that a variable of a template stands for nothing.
pub(super) fn no_capture(f: &mut fmt::Formatter<'_>, name: &str, captures: usize) -> fmt::Result {
    match captures {
        _ if name == RequestVariable::Upstream.to_string() => {
            write!(f, "{name} stands for nothing where no application answers")
        }
        0 => write!(f, "{name} stands for nothing: the pattern captures nothing"),
        1 => write!(f, "{name} stands for nothing: the pattern captures $1 only"),
        _ => write!(f, "{name} stands for nothing: the pattern captures $1 to ${captures}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn variables_are_told_from_text() {
        let template = Template::parse("https://$host/new/$10$query$$5").unwrap();
        let text = |text: &str| TemplatePart::Text(text.into());
        let expected = [
            text("https://"),
            TemplatePart::Host,
            text("/new/"),
            TemplatePart::Capture(1),
            text("0"),
            TemplatePart::Query,
            text("$5"),
        ];
        assert_eq!(template.parts(), expected);
        assert_eq!(template.to_string(), "https://$host/new/$10$query$$5");
        assert_eq!(Template::parse("").unwrap().parts(), []);
        assert_eq!(
            Template::parse("$path.html").unwrap().parts(),
            [TemplatePart::Path, text(".html")]
        );
        let of = TemplatePart::Of;
        assert_eq!(
            Template::parse("$scheme://$query.a-b.$request_id$client_$query$header.X_y=")
                .unwrap()
                .parts(),
            [
                of(RequestVariable::Scheme),
                text("://"),
                of(RequestVariable::Parameter("a-b".into())),
                text("."),
                of(RequestVariable::RequestId),
                of(RequestVariable::Client),
                text("_"),
                TemplatePart::Query,
                of(RequestVariable::Field("X_y".into())),
                text("="),
            ]
        );
    }

    #[test]
    fn what_is_wrong_is_said() {
        let known = "there are $1 to $9, $path, $query, $host, $client, $scheme, $class, $request_id, \
            $upstream, $header.NAME, $cookie.NAME and $query.NAME, and $$ is a dollar sign";
        let secret = "the field at character 2 proves who somebody is and cannot be named; one cookie is \
            $cookie.NAME";
        for (text, expected) in [
            ("/a$0", format!("$0 at character 3 is not a variable; {known}")),
            ("ü$uri/", format!("$uri at character 2 is not a variable; {known}")),
            ("/$", format!("$ at character 2 is not a variable; {known}")),
            ("/$paths", format!("$paths at character 2 is not a variable; {known}")),
            ("/$header", format!("$header at character 2 is not a variable; {known}")),
            ("/$cookie.", format!("$cookie at character 2 is not a variable; {known}")),
            ("/$header.Authorization", secret.to_owned()),
            ("/$header.cookie-x", String::new()),
            ("/$header.COOKIE", secret.to_owned()),
            ("/a\r\n", "'\\r' at character 3 cannot be sent".to_owned()),
        ] {
            let said = Template::parse(text).err().map(|error| error.to_string());
            assert_eq!(said.unwrap_or_default(), expected, "{text}");
        }
    }

    #[test]
    fn what_comes_from_elsewhere_stands_for_itself() {
        let value = |pieces: &[(bool, &str)]| {
            let text = Template::text_of_field(pieces);
            match Template::of_field(&text, |_| true).unwrap() {
                None => text,
                Some(template) => template
                    .parts()
                    .iter()
                    .map(|part| match part {
                        TemplatePart::Text(text) => text.to_string(),
                        part => format!("<{}>", part.name()),
                    })
                    .collect(),
            }
        };
        for secret in
            ["x$host", "$header.X-In", "$cookie.c", "pa$$word", "x$y", "a$", "$1b", "$", "plain"]
        {
            assert_eq!(value(&[(false, "Bearer "), (true, secret)]), format!("Bearer {secret}"));
            assert_eq!(value(&[(false, "$5 "), (true, secret)]), format!("$5 {secret}"));
            assert_eq!(
                value(&[(false, "$scheme "), (true, secret), (false, " $$")]),
                format!("<$scheme> {secret} $")
            );
        }
        assert_eq!(value(&[(false, "$"), (true, "host")]), "$host");
    }

    proptest! {
        #[test]
        fn the_parts_are_the_text(text in "([a-z/.$1-9]|[$](header|cookie|query)[.]X-a|[$]client){0,12}") {
            let Ok(template) = Template::parse(&text) else { return Ok(()) };
            let written: String = template.parts().iter().map(TemplatePart::name).collect();
            prop_assert_eq!(written, text);
        }
    }
}
