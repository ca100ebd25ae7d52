//! The schemes of authentication: challenges of `WWW-Authenticate` (RFC 9110 §11.6.1), and the
//! scheme of credentials.
//!
//! Two schemes sign in a connection and not a request: NTLM, and Negotiate where that is NTLM or
//! keeps a context (RFC 4559 §6). All later requests on that connection count as this client's.

use std::borrow::Cow;
use std::ops::Range;

/// Whether a scheme signs in the connection.
///
/// ```
/// use forebay_http::challenge::signs_in_connection;
/// assert!(signs_in_connection(b"Negotiate") && signs_in_connection(b"ntlm"));
/// assert!(!signs_in_connection(b"Basic"));
/// ```
pub fn signs_in_connection(scheme: &[u8]) -> bool {
    // the last two are an ancestor of Negotiate, and another scheme of Windows servers
    let known: [&[u8]; 4] = [b"NTLM", b"Negotiate", b"Nego2", b"Kerberos"];
    known.iter().any(|known| known.eq_ignore_ascii_case(scheme))
}

/// The scheme of the credentials in a field `Authorization` (RFC 9110 §11.4).
pub fn scheme_of_credentials(value: &[u8]) -> &[u8] {
    let value = value.trim_ascii();
    &value[..token_len(value)]
}

/// Whether one of the challenges of a field is for a scheme that signs in the connection.
pub fn offers_connection(value: &[u8]) -> bool {
    challenges(value).any(|(scheme, _)| signs_in_connection(scheme))
}

/// A field's value without the challenges that sign in the connection; `None` if it has no others.
///
/// ```
/// use forebay_http::challenge::without_connection;
/// let left = without_connection(b"Negotiate, Basic realm=\"a, NTLM\", charset=\"UTF-8\", NTLM").unwrap();
/// assert_eq!(&*left, b"Basic realm=\"a, NTLM\", charset=\"UTF-8\"");
/// assert_eq!(without_connection(b"NTLM, Negotiate"), None);
/// ```
pub fn without_connection(value: &[u8]) -> Option<Cow<'_, [u8]>> {
    if !offers_connection(value) {
        return Some(Cow::Borrowed(value));
    }
    let others = challenges(value).filter(|(scheme, _)| !signs_in_connection(scheme));
    let others: Vec<_> = others.map(|(_, span)| &value[span]).collect();
    (!others.is_empty()).then(|| Cow::Owned(others.join(&b", "[..])))
}

/// The challenges of a field: the scheme of each, and its place with all its parameters.
fn challenges(value: &[u8]) -> impl Iterator<Item = (&[u8], Range<usize>)> {
    let mut elements = elements(value).peekable();
    std::iter::from_fn(move || {
        let first = elements.next()?;
        let mut span = first.clone();
        // a comma separates parameters as well as challenges
        while let Some(next) = elements.next_if(|next| !begins_challenge(&value[next.clone()])) {
            span.end = next.end;
        }
        let text = &value[first];
        Some((&text[..token_len(text)], span))
    })
}

/// The elements between the commas of a list that are not quoted, without white space around them
/// and without empty ones.
fn elements(value: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        while at < value.len() {
            let start = at;
            at = element_end(value, start);
            let element = start..at;
            at += 1;
            let text = &value[element.clone()];
            let left = text.len() - text.trim_ascii_start().len();
            let len = text.trim_ascii().len();
            if len > 0 {
                return Some(element.start + left..element.start + left + len);
            }
        }
        None
    })
}

/// The end of the element that begins at `at`.
fn element_end(value: &[u8], mut at: usize) -> usize {
    let mut is_quoted = false;
    while let Some(&byte) = value.get(at) {
        match byte {
            b'"' => is_quoted = !is_quoted,
            // the next byte has no special meaning
            b'\\' if is_quoted => at += 1,
            b',' if !is_quoted => break,
            _ => {}
        }
        at += 1;
    }
    at.min(value.len())
}

/// Whether an element is a scheme, alone or with its parameters, and not a parameter of the one
/// before.
fn begins_challenge(element: &[u8]) -> bool {
    let len = token_len(element);
    len > 0 && !element[len..].trim_ascii_start().starts_with(b"=")
}

fn token_len(text: &[u8]) -> usize {
    let is_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    text.iter().position(|byte| !is_token(byte)).unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_are_told_from_parameters() {
        for (value, expected) in [
            ("", vec![]),
            (" , ,", vec![]),
            ("NTLM", vec![("NTLM", "NTLM")]),
            ("Negotiate YII=, ntlm", vec![("Negotiate", "Negotiate YII="), ("ntlm", "ntlm")]),
            (
                "Newauth realm=\"apps\", type=1, title=\"Login to \\\"apps\\\", NTLM\", Basic realm=\"simple\"",
                vec![
                    (
                        "Newauth",
                        "Newauth realm=\"apps\", type=1, title=\"Login to \\\"apps\\\", NTLM\"",
                    ),
                    ("Basic", "Basic realm=\"simple\""),
                ],
            ),
            // bad white space before the equals sign (RFC 9110 §11.2), and empty elements
            (
                "Digest , a = \"b\",, NTLM = \"c\"",
                vec![("Digest", "Digest , a = \"b\",, NTLM = \"c\"")],
            ),
            ("Basic realm=\"open", vec![("Basic", "Basic realm=\"open")]),
            ("Basic realm=\"a\\", vec![("Basic", "Basic realm=\"a\\")]),
        ] {
            let found: Vec<_> = challenges(value.as_bytes())
                .map(|(scheme, span)| (std::str::from_utf8(scheme).unwrap(), &value[span]))
                .collect();
            assert_eq!(found, expected, "{value}");
        }
    }

    #[test]
    fn what_signs_in_a_connection_is_taken_out() {
        for (value, left) in [
            ("Basic realm=\"NTLM, Negotiate\"", Some("Basic realm=\"NTLM, Negotiate\"")),
            ("NEGOTIATE, Basic realm=\"x\"", Some("Basic realm=\"x\"")),
            (
                "Bearer, NTLM TlRMTVNTUAAC==, Digest a=b, c=\"d\"",
                Some("Bearer, Digest a=b, c=\"d\""),
            ),
            ("NTLM", None),
            ("Negotiate,NTLM,", None),
        ] {
            let found = without_connection(value.as_bytes());
            assert_eq!(found.as_deref(), left.map(str::as_bytes), "{value}");
        }
    }

    #[test]
    fn the_scheme_of_credentials_is_their_first_word() {
        for (value, scheme) in [
            ("NTLM TlRM", "NTLM"),
            (" negotiate\tYII=", "negotiate"),
            ("Basic YTpi", "Basic"),
            ("NTLM", "NTLM"),
            ("=", ""),
            ("", ""),
        ] {
            assert_eq!(scheme_of_credentials(value.as_bytes()), scheme.as_bytes());
        }
    }
}
