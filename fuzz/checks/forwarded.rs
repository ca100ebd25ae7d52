//! What must hold for any bytes given as the value of `Forwarded`.

use forebay_http::forwarded::{Element, members_from_last};
use forebay_http::head::{Head, HeadLimits, Lines, ParsedHead};

/// Panics if something does not hold for `value`.
pub(crate) fn check(value: &[u8]) {
    let Some(found) = members(value) else { return };
    for member in &found {
        assert!(!member.is_empty() && member.trim_ascii() == member);
        let Some(element) = Element::parse(member) else { continue };
        let mut written = Vec::new();
        element.write(&mut written);
        let again = Element::parse(&written);
        assert_eq!(again.as_ref(), Some(&element), "{}", String::from_utf8_lossy(&written));
        assert_eq!(again.and_then(|again| again.client()), element.client());
    }
    // what a proxy appends is the last, whatever its client has sent, which is then what it was
    for own in [&b"for=192.0.2.7"[..], b"for=\"[2001:db8::7]:80\";host=\"a\\\",b\""] {
        let Some(appended) = members(&[value, b", ", own].concat()) else { return };
        assert_eq!(appended[0], own);
        assert_eq!(appended[1..], found);
    }
}

/// The members of a field, the last first; `None` if the value cannot stand in one.
fn members(value: &[u8]) -> Option<Vec<Vec<u8>>> {
    let bytes = [b"GET / HTTP/1.1\r\nHost: a\r\nForwarded: ", value, b"\r\n\r\n"].concat();
    let mut lines = Lines::new();
    match Head::parse(&bytes, &mut lines, &HeadLimits::default()) {
        Ok(ParsedHead::Complete(head)) if head.len == bytes.len() && head.fields().count() == 2 => {
            Some(members_from_last(&head).map(<[u8]>::to_vec).collect())
        }
        _ => None,
    }
}
