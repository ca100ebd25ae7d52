//! Tests of the rules of RFC 9113 §8 for the fields of a message.

use super::*;
use crate::hpack::{HpackDecoder, encode};

fn decoded(message: MessageKind, list: &[(&str, &str)]) -> DecodedFields {
    let mut block = Vec::new();
    for (name, value) in list {
        encode::field(&mut block, name.as_bytes(), value.as_bytes());
    }
    let mut fields = DecodedFields::default();
    fields.reset(message, FieldLimits { bytes: 16 * 1024, fields: 100 });
    HpackDecoder::new(4096).decode(&block, &mut fields).unwrap();
    fields
}

const GET: [(&str, &str); 4] =
    [(":method", "GET"), (":scheme", "https"), (":path", "/"), (":authority", "a")];

/// Whether a request with these fields after those of [`GET`] is well-formed.
fn get_with(more: &[(&str, &str)]) -> bool {
    decoded(MessageKind::Request, &[&GET, more].concat()).fault().is_none()
}

fn request(list: &[(&str, &str)]) -> bool {
    decoded(MessageKind::Request, list).fault().is_none()
}

#[test]
fn a_request_says_what_it_said() {
    let list = [&GET[..], &[("accept", "*/*"), ("content-length", "12"), ("x-y", "z")]].concat();
    let fields = decoded(MessageKind::Request, &list);
    assert_eq!(fields.fault(), None);
    assert_eq!((fields.method(), fields.scheme()), (&b"GET"[..], &b"https"[..]));
    assert_eq!((fields.path(), fields.authority()), (&b"/"[..], &b"a"[..]));
    assert_eq!(fields.content_length(), Some(12));
    let all: Vec<_> = fields.iter().collect();
    assert_eq!(all, [(&b"accept"[..], &b"*/*"[..]), (b"content-length", b"12"), (b"x-y", b"z")]);
    assert_eq!(fields.first(KnownName::of(b"accept")), Some(&b"*/*"[..]));
    assert_eq!(&fields.names()[fields.list()[2].name.range()], "x-y");
}

#[test]
fn pseudo_fields_come_once_and_first() {
    assert!(get_with(&[]));
    for more in [(":method", "GET"), (":path", "/"), (":scheme", "http"), (":authority", "a")] {
        assert!(!get_with(&[more]), "{more:?}");
        assert!(!request(&[&[("accept", "*/*")], &GET[..]].concat()), "after others");
    }
    for more in [(":status", "200"), (":protocol", "websocket"), (":other", "x")] {
        assert!(!request(&[&[more], &GET[..]].concat()), "{more:?}");
    }
    for missing in 0..3 {
        let mut list = GET.to_vec();
        list.remove(missing);
        assert!(!request(&list), "{missing}");
    }
    for (name, value) in
        [(":path", ""), (":path", "a"), (":path", "*"), (":method", "G T"), (":scheme", "")]
    {
        let other = GET.map(|field| if field.0 == name { (name, value) } else { field });
        assert!(!request(&other), "{name} {value}");
    }
    let without_authority = &GET[..3];
    assert!(request(without_authority));
    assert!(decoded(MessageKind::Trailers, &[(":path", "/")]).fault().is_some());
    assert!(request(&[(":method", "OPTIONS"), (":scheme", "http"), (":path", "*")]));
}

#[test]
fn connect_has_an_authority_only() {
    assert!(request(&[(":method", "CONNECT"), (":authority", "a:443")]));
    assert!(!request(&[(":method", "CONNECT")]));
    assert!(!request(&[(":method", "CONNECT"), (":authority", "a"), (":path", "/")]));
    assert!(!request(&[(":method", "CONNECT"), (":authority", "a"), (":scheme", "http")]));
}

#[test]
fn an_extended_connect_has_a_target_and_a_protocol() {
    let connect =
        GET.map(|field| if field.0 == ":method" { (":method", "CONNECT") } else { field });
    let with = |more: &[(&str, &str)]| request(&[&connect[..], more].concat());
    let fields =
        decoded(MessageKind::Request, &[&connect[..], &[(":protocol", "websocket")]].concat());
    assert_eq!((fields.fault(), fields.protocol()), (None, Some(&b"websocket"[..])));
    assert!(with(&[(":protocol", "websocket"), ("sec-websocket-version", "13")]));
    for bad in ["", "web socket", "web/socket"] {
        assert!(!with(&[(":protocol", bad)]), "{bad}");
    }
    assert!(!with(&[(":protocol", "a"), (":protocol", "a")]));
    assert!(!with(&[(":protocol", "websocket"), ("content-length", "0")]));
    for missing in 1..3 {
        let mut list = connect.to_vec();
        list.remove(missing);
        list.push((":protocol", "websocket"));
        assert!(!request(&list), "{missing}");
    }
    assert_eq!(decoded(MessageKind::Request, &GET).protocol(), None);
}

#[test]
fn fields_of_the_connection_are_refused() {
    for name in ["connection", "keep-alive", "proxy-connection", "upgrade", "transfer-encoding"] {
        assert!(!get_with(&[(name, "x")]), "{name}");
    }
    assert!(get_with(&[("te", "trailers")]));
    assert!(!get_with(&[("te", "trailers, deflate")]));
    assert!(!get_with(&[("te", "gzip")]));
}

#[test]
fn names_are_in_lower_case_and_values_are_clean() {
    assert!(!get_with(&[("X-Test", "a")]));
    assert!(!get_with(&[("x test", "a")]));
    assert!(!get_with(&[("", "a")]));
    assert!(!get_with(&[("x", "a\r\nb")]));
    assert!(!get_with(&[("x", " a")]));
    assert!(!get_with(&[("x", "a\0")]));
    assert!(get_with(&[("x", "")]));
    for path in ["/a b", "/a#b", "/a\tb"] {
        let other = GET.map(|field| if field.0 == ":path" { (":path", path) } else { field });
        assert!(!request(&other), "{path}");
    }
}

#[test]
fn host_agrees_with_the_authority() {
    assert!(get_with(&[("host", "A")]));
    assert!(!get_with(&[("host", "b")]));
    // the scheme of GET is https
    for same in ["a:443", "A:443", "a:"] {
        assert!(get_with(&[("host", same)]), "{same}");
    }
    for other in ["a:80", "a:4430", "a:443:443", "443", ":443"] {
        assert!(!get_with(&[("host", other)]), "{other}");
    }
    assert!(!get_with(&[("host", "a"), ("host", "a")]));
    let fields = decoded(MessageKind::Request, &[&GET[..3], &[("host", "h")]].concat());
    assert_eq!((fields.fault(), fields.authority()), (None, &b"h"[..]));
    assert!(!request(&[&GET[..3], &[(":authority", "user@a")]].concat()));
}

#[test]
fn lengths_are_numbers_and_come_once() {
    assert!(get_with(&[("content-length", "0")]));
    for bad in ["", "-1", "+1", "1,1", "18446744073709551616"] {
        assert!(!get_with(&[("content-length", bad)]), "{bad}");
    }
    assert!(!get_with(&[("content-length", "1"), ("content-length", "1")]));
}

#[test]
fn crumbs_are_one_cookie() {
    let more = [("cookie", "a=1"), ("accept", "*/*"), ("cookie", "b=2"), ("cookie", "c=3")];
    let fields = decoded(MessageKind::Request, &[&GET[..], &more].concat());
    let all: Vec<_> = fields.iter().collect();
    assert_eq!(all, [(&b"cookie"[..], &b"a=1; b=2; c=3"[..]), (b"accept", b"*/*")]);

    let more = [("cookie", ""), ("cookie", "b=2"), ("cookie", "")];
    let fields = decoded(MessageKind::Request, &[&GET[..], &more].concat());
    assert_eq!(fields.first(KnownName::COOKIE), Some(&b"b=2"[..]));

    let crumbs = [("cookie", "a=1"); 50];
    let mut block = Vec::new();
    for (name, value) in GET.iter().chain(&crumbs) {
        encode::field(&mut block, name.as_bytes(), value.as_bytes());
    }
    let mut fields = DecodedFields::default();
    fields.reset(MessageKind::Request, FieldLimits { bytes: 16 * 1024, fields: 1 });
    HpackDecoder::new(4096).decode(&block, &mut fields).unwrap();
    assert!(!fields.is_over() && fields.list().len() == 1);
}

#[test]
fn a_response_has_a_status() {
    let status = |list| decoded(MessageKind::Response, list);
    assert_eq!(status(&[(":status", "204")]).status(), 204);
    assert_eq!(status(&[(":status", "204")]).fault(), None);
    for bad in [&[][..], &[(":status", "20")], &[(":status", "2x0")], &[(":status", "099")]] {
        assert!(status(bad).fault().is_some(), "{bad:?}");
    }
    assert!(status(&[(":status", "200"), (":path", "/")]).fault().is_some());
}

#[test]
fn what_a_large_message_needed_is_given_back() {
    let value = "x".repeat(100_000);
    let mut block = Vec::new();
    encode::field(&mut block, b"a", value.as_bytes());
    let mut fields = DecodedFields::default();
    HpackDecoder::new(4096).decode(&block, &mut fields).unwrap();
    assert!(fields.values.capacity() >= 100_000);
    fields.reset(MessageKind::Request, FieldLimits { bytes: 100, fields: 1 });
    assert!(fields.values.capacity() <= KEPT_BYTES);
}
