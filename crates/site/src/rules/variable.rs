//! Variables whose values come from a request: a field, a cookie, the client.

use std::fmt;

/// A variable whose value comes from a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestVariable {
    /// `$client`: the address of the client.
    Client,
    /// `$scheme`: `http` or `https`.
    Scheme,
    /// `$class`: the class that rules of the policy have given to the request.
    Class,
    /// `$request_id`: the name by which logs know the request.
    RequestId,
    /// `$overload`: the server's degree of overload, from 0 to 3.
    Overload,
    /// `$upstream`: the application that has answered, by its address.
    Upstream,
    /// `$header.NAME`: a field of the request, its first line.
    Field(Box<str>),
    /// `$cookie.NAME`: the value of a cookie.
    Cookie(Box<str>),
    /// `$query.NAME`: a parameter of the query, decoded.
    Parameter(Box<str>),
}

/// Fields of a request that no answer repeats, as they carry credentials.
const SECRET: [&str; 3] = ["authorization", "proxy-authorization", "cookie"];

/// Variables with a name of their own.
const PLAIN: [(&str, RequestVariable); 6] = [
    ("client", RequestVariable::Client),
    ("scheme", RequestVariable::Scheme),
    ("class", RequestVariable::Class),
    (REQUEST_ID, RequestVariable::RequestId),
    ("overload", RequestVariable::Overload),
    ("upstream", RequestVariable::Upstream),
];

/// The only name with a character in it that is no letter.
const REQUEST_ID: &str = "request_id";

/// The outcome of reading a variable.
pub(crate) enum ReadVariable {
    /// A variable, and the number of its bytes behind the dollar sign.
    Is(RequestVariable, usize),
    /// A field that cannot be named.
    Secret,
}

impl RequestVariable {
    /// The variable that `text` begins with, which follows a dollar sign.
    pub(crate) fn read(text: &str) -> Option<ReadVariable> {
        let is_of_word = |c: char| c.is_ascii_lowercase();
        let word = match text.starts_with(REQUEST_ID) {
            true => REQUEST_ID,
            false => &text[..text.find(|c| !is_of_word(c)).unwrap_or(text.len())],
        };
        if let Some((_, variable)) = PLAIN.iter().find(|(name, _)| *name == word) {
            return Some(ReadVariable::Is(variable.clone(), word.len()));
        }
        let named: fn(Box<str>) -> RequestVariable = match word {
            "header" => RequestVariable::Field,
            "cookie" => RequestVariable::Cookie,
            "query" => RequestVariable::Parameter,
            _ => return None,
        };
        let rest = text[word.len()..].strip_prefix('.')?;
        let is_of_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        let name = &rest[..rest.find(|c| !is_of_name(c)).unwrap_or(rest.len())];
        if name.is_empty() {
            return None;
        }
        if word == "header" && SECRET.iter().any(|secret| secret.eq_ignore_ascii_case(name)) {
            return Some(ReadVariable::Secret);
        }
        Some(ReadVariable::Is(named(name.into()), word.len() + 1 + name.len()))
    }

    /// The `Vary` of an answer with the variable's value, if it needs one. A request's id needs
    /// none, as another request's id gives nothing away.
    pub(crate) fn vary(&self) -> Option<&str> {
        match self {
            RequestVariable::Client | RequestVariable::Class => Some("*"),
            RequestVariable::Field(name) => Some(name),
            RequestVariable::Cookie(_) => Some("Cookie"),
            RequestVariable::Scheme
            | RequestVariable::RequestId
            | RequestVariable::Overload
            | RequestVariable::Upstream
            | RequestVariable::Parameter(_) => None,
        }
    }
}

impl fmt::Display for RequestVariable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RequestVariable::Client => f.write_str("$client"),
            RequestVariable::Scheme => f.write_str("$scheme"),
            RequestVariable::Class => f.write_str("$class"),
            RequestVariable::RequestId => f.write_str("$request_id"),
            RequestVariable::Overload => f.write_str("$overload"),
            RequestVariable::Upstream => f.write_str("$upstream"),
            RequestVariable::Field(name) => write!(f, "$header.{name}"),
            RequestVariable::Cookie(name) => write!(f, "$cookie.{name}"),
            RequestVariable::Parameter(name) => write!(f, "$query.{name}"),
        }
    }
}
