//! Recognises a server that answers in another protocol than it was asked in.

/// The protocol that a server's first bytes belong to, if they can be recognised: a TLS alert, a status line,
/// SETTINGS.
pub(super) fn speaks_other(input: &[u8]) -> Option<&'static str> {
    match input {
        [21, 3, ..] => Some("the server speaks TLS: an https:// URL may be meant"),
        [b'H', b'T', b'T', b'P', b'/', ..] => Some("the server speaks HTTP/1"),
        [0, 0, _, 4, 0, ..] => Some("the server speaks HTTP/2"),
        _ => None,
    }
}
