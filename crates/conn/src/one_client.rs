//! The `Cache-Control` of answers that were made for all clients, and get field lines for one client.

/// The name of the field with which an answer instructs caches.
const CACHES: &str = "cache-control";

/// Adds lines for one client to a head, or the beginning of one. The answer becomes `private`, and its
/// directives for shared caches are dropped (RFC 9111 §5.2.2.7). All of its directives are put into one
/// line.
#[cold]
pub(crate) fn of_one_client(head: &[u8], further: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(head.len() + further.len() + 64);
    let mut caches = b"Cache-Control: private".to_vec();
    for line in head.split_inclusive(|&byte| byte == b'\n') {
        let value = line.split_at_checked(CACHES.len()).and_then(|(name, rest)| {
            rest.strip_prefix(b":").filter(|_| name.eq_ignore_ascii_case(CACHES.as_bytes()))
        });
        match value {
            None => text.extend_from_slice(line),
            Some(value) => {
                for directive in directives(value).filter(|one| !is_of_shared_caches(one)) {
                    caches.extend_from_slice(b", ");
                    caches.extend_from_slice(directive);
                }
            }
        }
    }
    for part in [&*caches, b"\r\n", further] {
        text.extend_from_slice(part);
    }
    text
}

/// The members of a list, whose quoted strings may contain commas.
fn directives(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    let all = value.split(move |&byte| {
        let is_end = byte == b',' && !is_quoted;
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = is_quoted,
            b'"' => is_quoted = !is_quoted,
            _ => {}
        }
        is_end
    });
    all.map(<[u8]>::trim_ascii).filter(|one| !one.is_empty())
}

/// Whether a directive is about what shared caches may keep.
fn is_of_shared_caches(directive: &[u8]) -> bool {
    let name = directive.split(|&byte| byte == b'=').next().unwrap_or_default().trim_ascii_end();
    [&b"public"[..], b"private", b"s-maxage"].iter().any(|one| name.eq_ignore_ascii_case(one))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "HTTP/1.1 200 OK\r\nX-A: b\r\n";

    #[test]
    fn what_is_said_of_caches_is_in_one_line() {
        for (said, expected) in [
            ("", "private"),
            ("Cache-Control: public, max-age=3600\r\n", "private, max-age=3600"),
            ("cache-control: no-store\r\n", "private, no-store"),
            ("Cache-Control: S-MaxAge=9,no-cache=\"a, b\"\r\n", "private, no-cache=\"a, b\""),
            (
                "Cache-Control: private=\"set-cookie\"\r\nCache-Control: must-revalidate\r\n",
                "private, must-revalidate",
            ),
            (
                "Cache-Control: x=\"\\\",public\", , immutable\r\n",
                "private, x=\"\\\",public\", immutable",
            ),
            ("Cache-Control:\r\n", "private"),
        ] {
            let text = of_one_client(format!("{HEAD}{said}").as_bytes(), b"Set-Cookie: a=b\r\n");
            let lines = format!("{HEAD}Cache-Control: {expected}\r\nSet-Cookie: a=b\r\n");
            assert_eq!(String::from_utf8(text).unwrap(), lines, "{said}");
        }
        let other = b"Cache-Controls: a\r\nCache-Control";
        assert!(of_one_client(other, b"").starts_with(other));
    }
}
