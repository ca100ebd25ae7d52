//! Distinguished names of certificates as text (RFC 4514).

use std::fmt::Write;
use x509_parser::prelude::{AttributeTypeAndValue, X509Name};

/// A name in the form of RFC 4514, the last part first, like that of `openssl x509 -subject
/// -nameopt RFC2253`: ASCII, whatever its content.
pub(crate) fn distinguished(name: &X509Name<'_>) -> String {
    let mut text = String::new();
    let parts: Vec<_> = name.iter_rdn().collect();
    for (index, part) in parts.iter().rev().enumerate() {
        for (at, attribute) in part.iter().enumerate() {
            match (index, at) {
                (0, 0) => {}
                (_, 0) => text.push(','),
                _ => text.push('+'),
            }
            push_attribute(&mut text, attribute);
        }
    }
    text
}

fn push_attribute(text: &mut String, attribute: &AttributeTypeAndValue<'_>) {
    let kind = attribute.attr_type().to_id_string();
    let short = SHORT.iter().find(|(id, _)| *id == kind).map(|(_, short)| *short);
    match (short, attribute.as_str()) {
        (Some(short), Ok(value)) => {
            let _ = write!(text, "{short}=");
            push_escaped(text, value);
        }
        _ => {
            let _ = write!(text, "{}=#", short.unwrap_or(&kind));
            for byte in attribute.attr_value().data {
                let _ = write!(text, "{byte:02X}");
            }
        }
    }
}

/// The attributes with a short name (RFC 4514 §3, and those that OpenSSL adds).
const SHORT: &[(&str, &str)] = &[
    ("2.5.4.3", "CN"),
    ("2.5.4.5", "serialNumber"),
    ("2.5.4.6", "C"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.9", "street"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("2.5.4.4", "SN"),
    ("2.5.4.42", "GN"),
    ("2.5.4.12", "title"),
    ("0.9.2342.19200300.100.1.1", "UID"),
    ("0.9.2342.19200300.100.1.25", "DC"),
    ("1.2.840.113549.1.9.1", "emailAddress"),
];

/// Appends a value within a name, escaped so that nothing in it can look like another attribute.
fn push_escaped(text: &mut String, value: &str) {
    let last = value.len().saturating_sub(1);
    for (at, byte) in value.bytes().enumerate() {
        let is_at_edge = (byte == b' ' && (at == 0 || at == last)) || (byte == b'#' && at == 0);
        match byte {
            b',' | b'+' | b'"' | b'\\' | b'<' | b'>' | b';' => {
                text.push('\\');
                text.push(char::from(byte));
            }
            b' '..=b'~' if is_at_edge => {
                text.push('\\');
                text.push(char::from(byte));
            }
            b' '..=b'~' => text.push(char::from(byte)),
            _ => {
                let _ = write!(text, "\\{byte:02X}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_value_looks_like_another_attribute() {
        for (value, expected) in [
            ("worker 7", "worker 7"),
            ("a, O=admin", "a\\, O=admin"),
            ("a+b=c", "a\\+b=c"),
            (" a ", "\\ a\\ "),
            ("#a#", "\\#a#"),
            ("\"<\\>;", "\\\"\\<\\\\\\>\\;"),
            ("é\n", "\\C3\\A9\\0A"),
            ("", ""),
            (" ", "\\ "),
        ] {
            let mut text = String::new();
            push_escaped(&mut text, value);
            assert_eq!(text, expected, "{value:?}");
        }
    }
}
