//! The beginning of a connection that may speak TLS: whatever is seen in its first bytes is seen again when more have
//! come, and a name is one that a site could have.

use forebay_conn::hello::FirstBytes;

/// Panics if something does not hold.
pub(crate) fn check(bytes: &[u8]) {
    let whole = FirstBytes::look(bytes);
    for cut in 0..bytes.len() {
        match FirstBytes::look(&bytes[..cut]) {
            FirstBytes::Partial => {}
            // what follows changes nothing
            seen => assert_eq!(seen, whole, "{cut} of {bytes:?}"),
        }
    }
    if let FirstBytes::Hello(Some(name)) = whole {
        let is_of_host =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.".contains(&byte);
        assert!((1..=253).contains(&name.len()) && name.bytes().all(is_of_host), "{name}");
    }
}
