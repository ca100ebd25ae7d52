//! What looks like a variable of another server, where values are sent as they stand.

use super::draft::ConfigDraft;
use super::path::Path as At;
use super::problem::Wrong;
use forebay_http::field::FieldValue;

impl ConfigDraft {
    /// Values of fields with `$host` and the like in them, in answers and in requests to applications.
    pub(super) fn remark_literals(&self, remarks: &mut Vec<(At, Wrong)>) {
        for (at, site) in self.every_site() {
            let mut look = |list: &str, index, value: &FieldValue| {
                if let Some(variable) = variable_of(value.as_str()) {
                    let found = variable.to_owned();
                    remarks.push((
                        at.child(list).item(index).child("set"),
                        Wrong::NoVariable { found },
                    ));
                }
            };
            for (index, rule) in site.headers.iter().enumerate() {
                rule.set().iter().for_each(|(_, value)| look("header", index, value));
            }
            for (index, proxy) in site.proxies.iter().enumerate() {
                proxy.set().iter().for_each(|(_, value)| look("proxy", index, value));
            }
        }
    }
}

/// What nginx (`$host`, `${host}`), HAProxy (`%[src]`) or Caddy (`{http.request.host}`, `{host}`) would replace in
/// a value.
fn variable_of(value: &str) -> Option<&str> {
    let is_name =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-' | '(' | ')' | ',');
    for (at, _) in value.char_indices() {
        let rest = &value[at..];
        let (opening, closing) = match rest {
            _ if rest.starts_with("${") => ("${", Some('}')),
            _ if rest.starts_with("%[") => ("%[", Some(']')),
            _ if rest.starts_with('{') => ("{", Some('}')),
            _ if rest.starts_with('$') => ("$", None),
            _ => continue,
        };
        let name = &rest[opening.len()..];
        let starts_well = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
        let len = match closing {
            Some(_) => name.find(|c| !is_name(c)).unwrap_or(name.len()),
            None => {
                name.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(name.len())
            }
        };
        let is_closed = closing.is_none_or(|closing| name[len..].starts_with(closing));
        if starts_well && is_closed {
            return Some(&rest[..opening.len() + len + closing.map_or(0, char::len_utf8)]);
        }
    }
    None
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
            ("5$", None),
            ("$5", None),
            ("US$ 5", None),
            ("$", None),
            ("{}", None),
            (r#"{"group":"default","max_age":1}"#, None),
            ("${", None),
            ("100%", None),
            ("default-src 'self'", None),
        ] {
            assert_eq!(variable_of(value), expected, "{value}");
        }
    }
}
