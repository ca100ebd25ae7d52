//! `Forwarded` (RFC 7239): what proxies state about the requests that they pass on, with an element
//! for each proxy.
//!
//! Elements are read from the right. The last is that of the nearest proxy, and most proxies append
//! theirs to what their client has sent without a look at it. To a reader from the left, a quote
//! that the client has left open would hide what the proxy has added. A complete element is found
//! from its end, whatever comes before it.

use crate::head::{Head, Name};
use crate::octet::is_token;
use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The fields in which proxies state by which client and how a request has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForwardedFamily {
    /// `X-Forwarded-For`, `-Proto`, `-Host`, `-Port` and `-Prefix`: one field for each.
    #[default]
    XForwarded,
    /// `Forwarded` (RFC 7239): an element of each proxy.
    Forwarded,
}

/// The members of `Forwarded` in all lines of a head, the last first; empty members are left out
/// (RFC 9110 §5.6.1.2). Each may be an [`Element`].
///
/// ```
/// use forebay_http::forwarded::members_from_last;
/// use forebay_http::head::{Head, HeadLimits, Lines, ParsedHead};
///
/// let bytes = b"GET / HTTP/1.1\r\nHost: a\r\nForwarded: for=\"_a,b\", ,\r\nForwarded: for=1.1.1.1;by=_c\r\n\r\n";
/// let mut lines = Lines::new();
/// let Ok(ParsedHead::Complete(head)) = Head::parse(bytes, &mut lines, &HeadLimits::default()) else {
///     panic!("the head is whole");
/// };
/// let members: Vec<&[u8]> = members_from_last(&head).collect();
/// assert_eq!(members, [&b"for=1.1.1.1;by=_c"[..], b"for=\"_a,b\""]);
/// ```
pub fn members_from_last<'h>(head: &Head<'h>) -> impl Iterator<Item = &'h [u8]> + use<'h> {
    let lines = head.values(Name::Forwarded).rev();
    let members = lines.flat_map(|value| {
        let mut left = Some(value);
        std::iter::from_fn(move || {
            let (before, last) = split_last(left?);
            left = before;
            Some(last.trim_ascii())
        })
    });
    members.filter(|member| !member.is_empty())
}

/// Splits a value at the last comma that is in no quoted string: what follows it, and what comes
/// before it.
fn split_last(value: &[u8]) -> (Option<&[u8]>, &[u8]) {
    let mut is_quoted = false;
    for at in (0..value.len()).rev() {
        match value[at] {
            // within a string, a quote after an odd number of backslashes is part of the string
            b'"' => {
                let backslashes = value[..at].iter().rev().take_while(|&&b| b == b'\\').count();
                is_quoted = !is_quoted || backslashes % 2 == 1;
            }
            b',' if !is_quoted => return (Some(&value[..at]), &value[at + 1..]),
            _ => {}
        }
    }
    (None, value)
}

/// The statement of one proxy about a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Element<'e> {
    pairs: Vec<(&'e str, Cow<'e, [u8]>)>,
}

impl<'e> Element<'e> {
    /// Reads pairs between semicolons (RFC 7239 §4). `None` if the text is no element: without a
    /// pair, with a parameter that occurs twice, with something after a quoted string.
    ///
    /// Besides what §4 allows, white space may surround a semicolon, and an unquoted value may have
    /// colons and brackets, as many proxies write addresses: neither can be read in another way.
    pub fn parse(text: &'e [u8]) -> Option<Element<'e>> {
        let mut pairs: Vec<(&str, Cow<'_, [u8]>)> = Vec::new();
        let mut rest = text.trim_ascii();
        while !rest.is_empty() {
            if let Some(behind) = rest.strip_prefix(b";") {
                rest = behind.trim_ascii_start();
                continue;
            }
            let equals = rest.iter().position(|&b| b == b'=')?;
            let name = std::str::from_utf8(&rest[..equals]).ok()?;
            let is_name = !name.is_empty() && name.bytes().all(is_token);
            if !is_name || pairs.iter().any(|(other, _)| other.eq_ignore_ascii_case(name)) {
                return None;
            }
            let (value, behind) = match &rest[equals + 1..] {
                [b'"', quoted @ ..] => unquote(quoted)?,
                plain => bare(plain)?,
            };
            pairs.push((name, value));
            rest = behind.trim_ascii_start();
            if !rest.is_empty() && !rest.starts_with(b";") {
                return None;
            }
        }
        (!pairs.is_empty()).then_some(Element { pairs })
    }

    /// The value of a parameter, without its quotes.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        let pair = self.pairs.iter().find(|(other, _)| other.eq_ignore_ascii_case(name));
        pair.map(|(_, value)| &**value)
    }

    /// The address of the client for which the proxy has passed the request on. `None` if the
    /// element has none: no `for`, `unknown`, or a name that hides it (§6.3).
    pub fn client(&self) -> Option<IpAddr> {
        address(self.get("for")?)
    }

    /// Appends the element in the form of §4.
    pub fn write(&self, out: &mut Vec<u8>) {
        for (at, (name, value)) in self.pairs.iter().enumerate() {
            if at > 0 {
                out.push(b';');
            }
            out.extend_from_slice(name.as_bytes());
            out.push(b'=');
            push_value(value, out);
        }
    }
}

/// Appends a value, in quotes if it needs them.
pub fn push_value(value: &[u8], out: &mut Vec<u8>) {
    if !value.is_empty() && value.iter().copied().all(is_token) {
        out.extend_from_slice(value);
        return;
    }
    out.push(b'"');
    for &byte in value {
        if matches!(byte, b'"' | b'\\') {
            out.push(b'\\');
        }
        out.push(byte);
    }
    out.push(b'"');
}

/// The quoted string whose first quote was read, and what follows it.
fn unquote(text: &[u8]) -> Option<(Cow<'_, [u8]>, &[u8])> {
    let end = text.iter().position(|&b| matches!(b, b'"' | b'\\'))?;
    if text[end] == b'"' {
        return Some((Cow::Borrowed(&text[..end]), &text[end + 1..]));
    }
    let mut value = text[..end].to_vec();
    let mut rest = &text[end..];
    loop {
        match rest {
            [b'"', behind @ ..] => return Some((Cow::Owned(value), behind)),
            [b'\\', byte, behind @ ..] => {
                value.push(*byte);
                rest = behind;
            }
            [] | [b'\\'] => return None,
            [byte, behind @ ..] => {
                value.push(*byte);
                rest = behind;
            }
        }
    }
}

/// A value without quotes, and what follows it.
fn bare(text: &[u8]) -> Option<(Cow<'_, [u8]>, &[u8])> {
    let is_bare = |b: u8| is_token(b) || matches!(b, b'[' | b']' | b':');
    let end = text.iter().position(|&b| !is_bare(b)).unwrap_or(text.len());
    (end > 0).then(|| (Cow::Borrowed(&text[..end]), &text[end..]))
}

/// The address of a node (§6), perhaps with a port, or with a name in the place of one. IPv6
/// without brackets is an address if it has all its groups: whether `2001:db8::1:8080` ends with a
/// port cannot be known.
fn address(node: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(node).ok()?;
    let ip: IpAddr = match text.strip_prefix('[') {
        Some(rest) => {
            let (ip, port) = rest.split_once(']')?;
            let is_good = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
            ip.parse::<Ipv6Addr>().ok().filter(|_| is_good)?.into()
        }
        None => match text.split_once(':') {
            Some((ip, port)) if !port.contains(':') => {
                ip.parse::<Ipv4Addr>().ok().filter(|_| is_port(port))?.into()
            }
            _ if text.contains("::") => return None,
            _ => text.parse().ok()?,
        },
    };
    let ip = ip.to_canonical();
    (!ip.is_unspecified()).then_some(ip)
}

/// Whether a text is a port, or a name in the place of one.
fn is_port(text: &str) -> bool {
    let is_hidden = |rest: &str| {
        !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
    };
    match text.strip_prefix('_') {
        Some(rest) => is_hidden(rest),
        None => (1..=5).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::{HeadLimits, Lines, ParsedHead};
    use proptest::prelude::*;

    fn members(values: &[&str]) -> Vec<String> {
        let mut text = "GET / HTTP/1.1\r\nHost: a\r\n".to_owned();
        values.iter().for_each(|value| text += &format!("forwarded: {value}\r\n"));
        text += "\r\n";
        let mut lines = Lines::new();
        match Head::parse(text.as_bytes(), &mut lines, &HeadLimits::default()) {
            Ok(ParsedHead::Complete(head)) => members_from_last(&head)
                .map(|member| String::from_utf8_lossy(member).into_owned())
                .collect(),
            other => panic!("{other:?} of {text}"),
        }
    }

    #[test]
    fn the_last_element_is_found_whatever_stands_before_it() {
        for (values, expected) in [
            (&["for=a"][..], &["for=a"][..]),
            (&["for=a, for=b", "for=c"], &["for=c", "for=b", "for=a"]),
            (&[" , for=a ,,", "", ","], &["for=a"]),
            (&["for=\"a,b\" , for=c"], &["for=c", "for=\"a,b\""]),
            (&["for=\"a\\\",b\",for=c"], &["for=c", "for=\"a\\\",b\""]),
            (&["for=\"a\\\\\",for=c"], &["for=c", "for=\"a\\\\\""]),
            // a quote that a client has left open
            (&["for=\"x, for=1.1.1.1"], &["for=1.1.1.1", "for=\"x"]),
            (
                &["for=\"x, for=\"[2a00::1]\";proto=http"],
                &["for=\"[2a00::1]\";proto=http", "for=\"x"],
            ),
            (&["for=\"\\, for=1.1.1.1"], &["for=1.1.1.1", "for=\"\\"]),
            (&["for=\"x\\\", for=\"a,b\""], &["for=\"a,b\"", "for=\"x\\\""]),
            // a member whose own quote is open has no end
            (&["for=a, for=b\""], &["for=a, for=b\""]),
        ] {
            assert_eq!(members(values), expected, "{values:?}");
        }
    }

    #[test]
    fn an_element_has_pairs() {
        for (text, expected) in [
            ("for=1.1.1.1", "for=1.1.1.1"),
            ("For=\"[2001:db8::1]:4711\"", "For=\"[2001:db8::1]:4711\""),
            (
                "for=192.0.2.43;proto=http;by=203.0.113.43",
                "for=192.0.2.43;proto=http;by=203.0.113.43",
            ),
            ("for=_a ; proto=\"https\"", "for=_a;proto=https"),
            (";for=a;;by=b;", "for=a;by=b"),
            ("for=[2001:db8::1]:80", "for=\"[2001:db8::1]:80\""),
            ("for=192.0.2.1:80", "for=\"192.0.2.1:80\""),
            ("host=\"a\\\"b\\\\\";x=\"\"", "host=\"a\\\"b\\\\\";x=\"\""),
            ("host=\"\\a\"", "host=a"),
            ("host=\"a, b;c=d\"", "host=\"a, b;c=d\""),
        ] {
            let element = Element::parse(text.as_bytes());
            let mut written = Vec::new();
            element.as_ref().expect(text).write(&mut written);
            assert_eq!(String::from_utf8(written.clone()).unwrap(), expected);
            assert_eq!(Element::parse(&written), element, "{text}");
        }
        for text in [
            "",
            ";",
            "for",
            "for=",
            "=a",
            "for =a",
            "for= a",
            "for=a b",
            "for=a;for=b",
            "for=a;FOR=a",
            "for=\"a",
            "for=\"a\"b",
            "for=\"a\\",
            "for=\"a\\\"",
            "for=a\"b\"",
            "f(r=a",
            "for=a,by=b",
            "for=a=b",
        ] {
            assert_eq!(Element::parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn a_node_may_have_an_address() {
        for (node, expected) in [
            ("192.0.2.7", Some("192.0.2.7")),
            ("192.0.2.7:80", Some("192.0.2.7")),
            ("192.0.2.7:_port", Some("192.0.2.7")),
            ("[2001:db8::1]", Some("2001:db8::1")),
            ("[2001:db8::1]:4711", Some("2001:db8::1")),
            ("[2001:db8::1]:_a.b-c", Some("2001:db8::1")),
            ("2001:db8:0:0:0:0:0:1", Some("2001:db8::1")),
            ("2001:db8:0:0:0:0:0:1:8080", None),
            ("2001:db8::1", None),
            ("2001:db8::1:8080", None),
            ("[::ffff:192.0.2.7]", Some("192.0.2.7")),
            ("unknown", None),
            ("unknown:80", None),
            ("_hidden", None),
            ("_hidden:80", None),
            ("0.0.0.0", None),
            ("[::]", None),
            ("", None),
            ("192.0.2.7:", None),
            ("192.0.2.7:123456", None),
            ("192.0.2.7:_", None),
            ("[192.0.2.7]", None),
            ("[2001:db8::1", None),
            ("[2001:db8::1]80", None),
            ("[fe80::1%eth0]", None),
            ("192.0.2.7 ", None),
            ("a.example", None),
        ] {
            let mut text = b"for=".to_vec();
            push_value(node.as_bytes(), &mut text);
            let found = Element::parse(&text).unwrap().client();
            assert_eq!(found, expected.map(|ip| ip.parse().unwrap()), "{node}");
        }
    }

    proptest! {
        /// Whatever a client has sent, what a proxy appends is found whole.
        #[test]
        fn what_is_appended_is_found(before in "[ -~]{0,40}", host in "[ -~]{0,12}") {
            let mut own = b"for=192.0.2.7;host=".to_vec();
            push_value(host.as_bytes(), &mut own);
            let line = format!("{before}, {}", String::from_utf8_lossy(&own));
            let found = members(&[&line]);
            prop_assert_eq!(found[0].as_bytes(), &own[..]);
            let element = Element::parse(found[0].as_bytes()).unwrap();
            prop_assert_eq!(element.get("HOST"), Some(host.as_bytes()));
        }

        /// An element that is read and written reads as the same.
        #[test]
        fn what_is_written_is_read(text in "[ -~]{0,40}") {
            if let Some(element) = Element::parse(text.as_bytes()) {
                let mut written = Vec::new();
                element.write(&mut written);
                prop_assert_eq!(Element::parse(&written), Some(element));
            }
        }
    }
}
