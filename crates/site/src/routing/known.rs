//! The values of variables of redirects and header rules, for one request.

use crate::request_context::{RequestContext, RequestScheme};
use crate::routing::hosts::asked_host;
use crate::rules::{Host, RequestVariable, Template, TemplatePart};
use forebay_conn::{GivenField, HeadValues, Request};
use forebay_http::field::is_same;
use forebay_http::head::Head;
use forebay_policy::query;
use std::fmt::Write;

/// The facts about the request that is answered that are not in its head. A loop keeps this from
/// one request to the next, for its memory.
#[derive(Debug, Default)]
pub(crate) struct KnownOfRequest {
    client: String,
    is_https: bool,
    class: String,
    id: Vec<u8>,
    overload: u8,
    upstream: String,
}

impl KnownOfRequest {
    /// Finds out the values of these variables.
    pub(crate) fn learn<'v>(
        &mut self,
        variables: impl Iterator<Item = &'v RequestVariable>,
        context: &impl RequestContext,
    ) {
        self.client.clear();
        self.class.clear();
        self.id.clear();
        self.upstream.clear();
        for variable in variables {
            match variable {
                RequestVariable::Client if self.client.is_empty() => {
                    // writing into a string does not fail
                    let _ = write!(self.client, "{}", context.client().ip().to_canonical());
                }
                RequestVariable::Class if self.class.is_empty() => {
                    self.class.push_str(context.class());
                }
                RequestVariable::RequestId if self.id.is_empty() => {
                    context.request_id(&mut self.id);
                }
                RequestVariable::Upstream if self.upstream.is_empty() => {
                    self.upstream.push_str(context.upstream());
                }
                RequestVariable::Overload => self.overload = context.overload(),
                RequestVariable::Scheme => self.is_https = context.scheme() == RequestScheme::Https,
                _ => {}
            }
        }
    }

    /// Passes on the value of a variable, which is empty if the request has none. A `given` field
    /// replaces the client's of that name.
    pub(crate) fn push(
        &self,
        variable: &RequestVariable,
        request: &Request<'_>,
        given: &[GivenField],
        mut push: impl FnMut(&[u8]),
    ) {
        match variable {
            RequestVariable::Client => push(self.client.as_bytes()),
            RequestVariable::Scheme => push(if self.is_https { b"https" } else { b"http" }),
            RequestVariable::Class => push(self.class.as_bytes()),
            RequestVariable::RequestId => push(&self.id),
            RequestVariable::Overload => push(&[b'0' + self.overload.min(9)]),
            RequestVariable::Upstream => push(self.upstream.as_bytes()),
            RequestVariable::Field(name) => {
                let is_it = |known: &str| known.eq_ignore_ascii_case(name);
                let given = given.iter().find(|(known, _)| is_same(known, name));
                let value = match given {
                    Some((_, value)) => value.as_deref(),
                    None => {
                        let mut fields = request.head.fields();
                        fields.find(|(known, _)| is_it(known)).map(|(_, value)| value)
                    }
                };
                value.into_iter().for_each(push);
            }
            RequestVariable::Cookie(name) => {
                cookie(request.head, name.as_bytes()).into_iter().for_each(push);
            }
            RequestVariable::Parameter(name) => {
                let value = query::value(request.head.query.unwrap_or_default(), name);
                value.into_iter().for_each(|value| push(&value));
            }
        }
    }

    /// Writes values with variables, in their order.
    pub(crate) fn fill(
        &self,
        templates: &[Template],
        request: &Request<'_>,
        hosts: &[Host],
        given: &[GivenField],
        values: &mut HeadValues,
    ) {
        values.clear();
        for template in templates {
            for part in template.parts() {
                match part {
                    TemplatePart::Text(text) => values.push_text(text),
                    // captures belong to patterns, of which there is none here
                    TemplatePart::Capture(_) => {}
                    TemplatePart::Path => {
                        // a target without a path is refused
                        request.path().iter().for_each(|path| values.push(path));
                    }
                    TemplatePart::Query => {
                        request.head.query.iter().for_each(|query| {
                            values.push_text("?");
                            values.push_encoded(query);
                        });
                    }
                    TemplatePart::Host => asked_host(request, hosts, |host| values.push(host)),
                    TemplatePart::Of(variable) => {
                        self.push(variable, request, given, |bytes| values.push(bytes));
                    }
                }
            }
            values.end();
        }
    }
}

/// The value of the first cookie with a name (RFC 6265 §4.2.1).
fn cookie<'h>(head: &Head<'h>, name: &[u8]) -> Option<&'h [u8]> {
    let fields = head.fields().filter(|(field, _)| field.eq_ignore_ascii_case("cookie"));
    let mut pairs = fields.flat_map(|(_, value)| value.split(|&byte| byte == b';'));
    pairs.find_map(|pair| {
        let at = pair.iter().position(|&byte| byte == b'=')?;
        (pair[..at].trim_ascii() == name).then(|| pair[at + 1..].trim_ascii())
    })
}
