//! What a server speaks that answers in another protocol than it was asked in.

/// What a server speaks that was asked for something else, as far as its first bytes tell: an alert of
/// TLS, a line of status, SETTINGS.
pub(super) fn speaks_other(input: &[u8]) -> Option<&'static str> {
    match input {
        [21, 3, ..] => Some("the server speaks TLS: an https:// URL may be meant"),
        [b'H', b'T', b'T', b'P', b'/', ..] => Some("the server speaks HTTP/1"),
        [0, 0, _, 4, 0, ..] => Some("the server speaks HTTP/2"),
        _ => None,
    }
}
