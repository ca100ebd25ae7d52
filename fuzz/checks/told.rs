//! What must hold for whatever an upstream is told of any request.

use forebay_conn::HeadValues;
use forebay_http::field::{FieldName, FieldValue};
use forebay_http::forwarded::ForwardedFamily;
use forebay_http::head::{Head, HeadLimits, Lines, ParsedHead, Version};
use forebay_http::path;
use forebay_upstream::request::{self, From, HostSent, RequestSettings, SetValue, UpstreamRequest};
use forebay_upstream::target::{Ambiguous, Base, JudgedPath};
use std::net::{IpAddr, Ipv4Addr};

/// Panics if something does not hold. The first byte chooses settings, the others are a head.
pub(crate) fn check(bytes: &[u8]) {
    let Some((choice, bytes)) = bytes.split_first() else { return };
    let mut lines = Lines::new();
    let Ok(ParsedHead::Complete(head)) = Head::parse(bytes, &mut lines, &HeadLimits::default())
    else {
        return;
    };
    let mut judged = Vec::new();
    if path::normalise(head.path, &mut judged).is_err() {
        return;
    }
    let is = |bit: u8| choice & 1 << bit != 0;
    let address = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));
    let from = From {
        nearest: address,
        client: address,
        is_trusted: is(0),
        is_of_stage: is(0) && is(3),
        is_secure: is(1),
        nearest_is_secure: is(1),
        port: 8080,
        family: if is(5) { ForwardedFamily::Forwarded } else { ForwardedFamily::XForwarded },
        elements: if is(5) { 2 } else { 0 },
        tells_forwarded: is(5),
        names_client: is(2),
    };
    let base = |text| Base::parse(text).unwrap_or_default();
    let field = |name, value| Some((FieldName::parse(name).ok()?, FieldValue::parse(value).ok()?));
    let settings = RequestSettings {
        host: if is(2) { HostSent::Upstream } else { HostSent::Client },
        strip: if is(3) { base("/a") } else { Base::default() },
        prefix: if is(4) { base("/b") } else { Base::default() },
        ambiguous: if is(5) { Ambiguous::Normalise } else { Ambiguous::Refuse },
        upgrade: is(6),
        ends_with_client: is(5),
        close: is(7),
        set: field("X-A", "b")
            .into_iter()
            .filter(|_| is(7))
            .map(|(name, value)| (name, SetValue::Fixed(value)))
            .collect(),
        remove: Vec::new(),
        destination: Default::default(),
    };
    let asked = UpstreamRequest {
        head: &head,
        judged: JudgedPath::Normal(&judged),
        rewritten: None,
        from,
        id: 7,
        hidden: None,
        given: &[],
        trace: None,
        values: &HeadValues::default(),
    };
    let mut out = b"before".to_vec();
    let Ok(written) = request::write(&asked, "10.0.0.1:80", &settings, &mut out) else {
        assert_eq!(out, b"before");
        return;
    };
    let told = &out[6..];
    let mut lines = Lines::new();
    // a host, two addresses and an id are added, and the longest head has no room for them
    let limits = HeadLimits { head_bytes: 1 << 20, target_bytes: 1 << 16, ..HeadLimits::default() };
    let again = match Head::parse(told, &mut lines, &limits) {
        Ok(ParsedHead::Complete(again)) => again,
        Ok(ParsedHead::Partial) => panic!("{}", String::from_utf8_lossy(told)),
        // as many lines as there may be
        Err(error) => return assert!(head.fields().count() > 80, "{error:?}"),
    };
    assert_eq!((again.len, again.version), (told.len(), Version::Http11), "one request, no more");
    assert_eq!((again.framing, again.query), (head.framing, head.query));
    assert_eq!(again.method_text, head.method_text);
    assert_eq!(written.framing, head.framing);
    // what was judged, but for its beginning
    let mut sent = Vec::new();
    assert_eq!(path::normalise(again.path, &mut sent), Ok(()));
    if !is(3) && !is(4) {
        assert_eq!(sent, judged);
    }
    let count = |name: &str| {
        again
            .fields()
            .filter(|(other, _)| other.replace('_', "-").eq_ignore_ascii_case(name))
            .count()
    };
    for name in ["host", "x-forwarded-for", "x-forwarded-proto", "x-real-ip", "x-request-id"] {
        assert_eq!(count(name), 1, "{name}");
    }
    for name in ["keep-alive", "proxy", "proxy-connection", "http2-settings"] {
        assert_eq!(count(name), 0, "{name}");
    }
    assert!(count("content-length") + count("transfer-encoding") <= 1);
    assert!(count("cookie") <= 1);
}
