//! Remarks on text that looks like a variable and is none, in values that are sent as they stand.

use crate::SiteConfig;
use crate::problems::path::Path as At;
use crate::problems::problem::{Finding, Wrong};
use crate::reading::draft::ConfigDraft;
use crate::sections::upstreams::told::has_variables;
use std::fmt;

/// Text in the value of a field that another server would replace.
#[derive(Debug)]
struct NoVariable {
    /// The text.
    found: String,
}

impl Finding for NoVariable {}

impl fmt::Display for NoVariable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NoVariable { found } = self;
        write!(
            f,
            "{found:?} is sent as it stands: variables are written $host, $header.NAME and so on"
        )
    }
}

/// A dollar sign in a value without variables.
#[derive(Debug)]
struct PlainDollar {
    /// The value with the dollar sign.
    found: String,
}

impl Finding for PlainDollar {}

impl fmt::Display for PlainDollar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PlainDollar { found } = self;
        write!(
            f,
            "{found:?} is sent as it stands in this version, because it names no variable; in the next one a \
             dollar sign is written $$, as in {:?}. Variables are $host, $client, $scheme, $path, $query, \
             $request_id, $class, $overload, $upstream (in answers), $header.NAME, $cookie.NAME and $query.NAME",
            found.replace('$', "$$")
        )
    }
}

impl ConfigDraft {
    /// Remarks on values of header rules, and of fields set for applications, whose dollar signs name no
    /// variable.
    pub(crate) fn remark_dollars(&self, remarks: &mut Vec<(At, Wrong)>) {
        for (at, site) in self.every_site() {
            for (list, index, values) in values_of(site) {
                let is_meant = |value: &&SetText<'_>| {
                    let is_of_others = variable_of(value.text).is_some_and(|one| !is_plain(one));
                    value.text.contains('$') && !value.has_variables && !is_of_others
                };
                if let Some(value) = values.iter().find(is_meant) {
                    let found = value.text.to_owned();
                    let at = at.child(list).item(index).child("set");
                    remarks.push((at, Wrong::said(PlainDollar { found })));
                }
            }
        }
    }

    /// Remarks on values of fields with `${host}` and the like in them.
    pub(crate) fn remark_literals(&self, remarks: &mut Vec<(At, Wrong)>) {
        for (at, site) in self.every_site() {
            for (list, index, values) in values_of(site) {
                for value in values.iter().filter(|value| !value.has_variables) {
                    if let Some(found) = variable_of(value.text).filter(|one| !is_plain(one)) {
                        let found = found.to_owned();
                        let at = at.child(list).item(index).child("set");
                        remarks.push((at, Wrong::said(NoVariable { found })));
                    }
                }
            }
        }
    }
}

/// A value that `set` gives to a field.
struct SetText<'s> {
    text: &'s str,
    has_variables: bool,
}

/// The values that `set` gives in a site, by list and place.
fn values_of(site: &SiteConfig) -> Vec<(&'static str, usize, Vec<SetText<'_>>)> {
    let headers = site.headers.iter().enumerate().map(|(index, rule)| {
        let values = rule.set().iter().enumerate().map(|(place, (_, value))| SetText {
            text: value.as_str(),
            has_variables: rule.has_variables(place),
        });
        ("header", index, values.collect())
    });
    let told = |text| SetText { text, has_variables: has_variables(text) };
    let proxies = site.proxies.iter().enumerate().map(|(index, proxy)| {
        let values = proxy.set().iter().map(|(_, value)| told(value.as_str()));
        ("proxy", index, values.collect())
    });
    let scripts = site.fastcgi.iter().enumerate().map(|(index, script)| {
        ("fastcgi", index, script.set().iter().map(|(_, value)| told(value)).collect())
    });
    headers.chain(proxies).chain(scripts).collect()
}

/// Whether this is a dollar sign followed by a plain name.
fn is_plain(variable: &str) -> bool {
    variable.starts_with('$') && !variable.starts_with("${")
}

/// The beginning and end of variables of other servers, and whether a name may begin with a capital, too.
/// The form without an end comes last, because others begin with it.
const FORMS: [(&str, Option<char>, bool); 6] = [
    // nginx and the shell
    ("${", Some('}'), true),
    // HAProxy
    ("%[", Some(']'), false),
    // Apache
    ("%{", Some('}'), true),
    // Caddy, of the environment and of a request
    ("{$", Some('}'), true),
    ("{", Some('}'), false),
    // nginx
    ("$", None, false),
];

/// The first text in a value that nginx (`$host`, `${host}`), HAProxy (`%[src]`), Apache (`%{Host}i`),
/// Caddy (`{http.request.host}`, `{host}`) or templates (`{{ .Host }}`) would replace.
fn variable_of(value: &str) -> Option<&str> {
    value.char_indices().find_map(|(at, _)| {
        let rest = &value[at..];
        let len =
            template_len(rest).or_else(|| FORMS.iter().find_map(|form| len_of(rest, form)))?;
        Some(&rest[..len])
    })
}

/// The length of a variable of one form that a text begins with.
fn len_of(
    text: &str,
    (opening, closing, may_be_capital): &(&str, Option<char>, bool),
) -> Option<usize> {
    let name = text.strip_prefix(opening)?;
    let is_name = |c: char| {
        let is_more = matches!(c, '.' | '-' | '(' | ')' | ',') && closing.is_some();
        c.is_ascii_alphanumeric() || c == '_' || is_more
    };
    let starts_well = name.starts_with(|c: char| {
        c.is_ascii_lowercase() || c == '_' || (*may_be_capital && c.is_ascii_uppercase())
    });
    let len = name.find(|c| !is_name(c)).unwrap_or(name.len());
    let is_closed = closing.is_none_or(|closing| name[len..].starts_with(closing));
    let len = opening.len() + len + closing.map_or(0, char::len_utf8);
    (starts_well && is_closed).then_some(len)
}

/// The length of a placeholder of a template that a text begins with. In JSON two braces never stand together so.
fn template_len(text: &str) -> Option<usize> {
    let inside = text.strip_prefix("{{")?;
    let inside = &inside[..inside.find("}}")?];
    let name = inside.trim_start_matches(['-', ' ', '.', '$']);
    name.starts_with(|c: char| c.is_ascii_alphabetic()).then_some(inside.len() + 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_told_from_values() {
        for (value, expected) in [
            ("$host", Some("$host")),
            ("http://$http_host:8080/", Some("$http_host")),
            ("${host}x", Some("${host}")),
            ("%[src]", Some("%[src]")),
            ("{http.request.host}", Some("{http.request.host}")),
            ("{host}", Some("{host}")),
            ("${Host}i", Some("${Host}")),
            ("${API_URL}/x", Some("${API_URL}")),
            ("%{Host}i", Some("%{Host}")),
            ("https://%{HTTP_HOST}e/", Some("%{HTTP_HOST}")),
            ("{$HOST}", Some("{$HOST}")),
            ("{http.request.header.X-Id}", Some("{http.request.header.X-Id}")),
            ("{{ .Host }}", Some("{{ .Host }}")),
            ("a {{.Req.Host}} b", Some("{{.Req.Host}}")),
            ("'nonce-{{- $nonce -}}'", Some("{{- $nonce -}}")),
            (
                "{{ placeholder \"http.request.host\" }}",
                Some("{{ placeholder \"http.request.host\" }}"),
            ),
            ("5$", None),
            ("$5", None),
            ("US$ 5", None),
            ("$", None),
            ("{}", None),
            (r#"{"group":"default","max_age":1}"#, None),
            ("${", None),
            ("100%", None),
            ("default-src 'self'", None),
            (
                "script-src 'nonce-2726c7f26c' 'sha256-x+/{0}=' https:; report-uri /csp?a=%7Bb%7D",
                None,
            ),
            (r#"{"endpoints":[{"url":"https://a.example/"}],"max_age":10886400}"#, None),
            (r#"{"a":{"b":{}}}"#, None),
            ("{{}}", None),
            ("{{ 5 }}", None),
            ("{{ .Host", None),
            ("from $5.99, {5} of them", None),
            ("US$5, A$7, $USD", None),
            ("${1}", None),
            ("%{}", None),
            ("50%{", None),
            ("caf\u{e9} $", None),
        ] {
            assert_eq!(variable_of(value), expected, "{value}");
        }
    }
}
