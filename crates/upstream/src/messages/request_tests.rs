//! Requests as upstreams get them, and what must never be in them.

use super::*;
use forebay_http::head::{DecodedHead, FieldSpan, HeadLimits, Lines, ParsedHead};
use forebay_http::path;
use proptest::prelude::*;

const STRANGER: From = From {
    nearest: IpAddr::V4(std::net::Ipv4Addr::new(203, 0, 113, 9)),
    client: IpAddr::V4(std::net::Ipv4Addr::new(203, 0, 113, 9)),
    is_trusted: false,
    is_of_stage: false,
    is_secure: false,
    nearest_is_secure: false,
    port: 8080,
    family: ForwardedFamily::XForwarded,
    elements: 0,
    tells_forwarded: false,
    names_client: false,
};

/// A trusted proxy, whose client has asked by https.
fn proxy() -> From {
    let client = "192.0.2.7".parse().unwrap();
    let nearest = "10.0.0.1".parse().unwrap();
    From { nearest, client, is_trusted: true, is_secure: true, ..STRANGER }
}

/// The head for the upstream that is made from a head of HTTP/1.
fn told(
    text: &str,
    from: From,
    settings: &RequestSettings,
) -> Result<(String, WrittenHead), TargetRefusal> {
    let mut lines = Lines::new();
    let parsed = Head::parse(text.as_bytes(), &mut lines, &HeadLimits::default());
    let Ok(ParsedHead::Complete(head)) = parsed else { panic!("{text:?}: {parsed:?}") };
    told_of(&head, from, settings)
}

fn told_of(
    head: &Head<'_>,
    from: From,
    settings: &RequestSettings,
) -> Result<(String, WrittenHead), TargetRefusal> {
    let mut judged = Vec::new();
    path::normalise(head.path, &mut judged)
        .map_err(|_| TargetRefusal::Ambiguous("no normal form"))?;
    let request = UpstreamRequest {
        head,
        judged: JudgedPath::Normal(&judged),
        rewritten: None,
        from,
        id: 0xabc,
        hidden: None,
        given: &[],
        trace: None,
        values: &HeadValues::default(),
    };
    let mut out = b"earlier".to_vec();
    let written = write(&request, "10.0.0.1:9000", settings, &mut out);
    let text = String::from_utf8_lossy(&out[7..]).into_owned();
    match written {
        Ok(mut written) => {
            // a recipient finds one request, with the framing that was promised
            let mut lines = Lines::new();
            let again = Head::parse(text.as_bytes(), &mut lines, &HeadLimits::default());
            let Ok(ParsedHead::Complete(again)) = again else { panic!("{text:?}: {again:?}") };
            assert_eq!((again.len, again.framing), (text.len(), written.framing), "{text}");
            assert_eq!(again.query, head.query);
            written.id = written.id.start.saturating_sub(7)..written.id.end.saturating_sub(7);
            Ok((text, written))
        }
        Err(refused) => {
            assert_eq!(text, "");
            Err(refused)
        }
    }
}

const OWN: &str = "X-Forwarded-For: 203.0.113.9\r\n\
                   X-Forwarded-Proto: http\r\n\
                   X-Forwarded-Host: shop.example\r\n\
                   X-Forwarded-Port: 80\r\n\
                   X-Real-IP: 203.0.113.9\r\n\
                   Via: 1.1 forebay\r\n\
                   X-Request-Id: 00000000000000000000000000000abc\r\n";

#[test]
fn a_plain_request_is_passed_on() {
    let (text, written) = told(
        "GET /a%20b?c=%2F%2e HTTP/1.1\r\nHost: shop.example\r\nAccept: */*\r\nX-A:  b \r\n\r\n",
        STRANGER,
        &RequestSettings::default(),
    )
    .unwrap();
    let expected = format!(
        "GET /a%20b?c=%2F%2e HTTP/1.1\r\nHost: shop.example\r\nAccept: */*\r\nX-A: b\r\n{OWN}\r\n"
    );
    assert_eq!(text, expected);
    assert_eq!(written.framing, Framing::None);
    assert_eq!(&text[written.id], "00000000000000000000000000000abc");
}

/// The field lines that are sent for a head with these field lines besides its host.
fn fields(lines: &str, from: From, settings: &RequestSettings) -> Vec<String> {
    let text = format!("POST / HTTP/1.1\r\nHost: shop.example\r\n{lines}\r\n");
    let (text, _) = told(&text, from, settings).unwrap();
    let lines = text.trim_end().lines().skip(1);
    let is_own = |line: &str| OWN.lines().any(|own| own == line);
    lines.filter(|line| !is_own(line)).map(str::to_owned).collect()
}

fn of_stranger(lines: &str) -> Vec<String> {
    fields(lines, STRANGER, &RequestSettings::default())
}

#[test]
fn what_is_about_the_connection_is_not_passed_on() {
    let own = ["Host: shop.example", "Content-Length: 0"];
    for line in [
        "Connection: close\r\n",
        "Keep-Alive: timeout=5\r\nConnection: keep-alive\r\n",
        "Proxy-Connection: keep-alive\r\n",
        "Proxy-Authorization: Basic eDp5\r\n",
        "Proxy: http://evil.example\r\n",
        "Upgrade: websocket\r\nConnection: Upgrade\r\n",
        "HTTP2-Settings: AAA\r\n",
        "Trailer: X-A\r\n",
        "TE: gzip\r\nConnection: TE\r\n",
        "X-A: b\r\nConnection: close, x-a\r\n",
        "X-A: b\r\nConnection:\r\nConnection: ,X-A,\r\n",
        // CGI and others confuse these with the fields that they look like
        "Content_Length: 5\r\n",
        "Transfer_Encoding: chunked\r\n",
        "X_Forwarded_For: 1.1.1.1\r\n",
        "X_real-IP: 1.1.1.1\r\n",
        "Max-Forwards: 0\r\n",
    ] {
        assert_eq!(of_stranger(line), own, "{line}");
    }
    let lines = of_stranger("TE: gzip, trailers\r\nConnection: TE\r\n");
    assert_eq!(lines[2..], ["TE: trailers", "Connection: TE"]);
    let settings = RequestSettings { close: true, ..RequestSettings::default() };
    assert_eq!(fields("", STRANGER, &settings)[2..], ["Connection: close"]);
}

#[test]
fn a_client_cannot_remove_what_is_said_about_it() {
    let (text, _) = told(
        "GET / HTTP/1.1\r\nHost: shop.example\r\nConnection: X-Forwarded-For, X-Real-IP, Via, Host, \
         X-Request-Id, Content-Length\r\n\r\n",
        STRANGER,
        &RequestSettings::default(),
    )
    .unwrap();
    assert_eq!(text, format!("GET / HTTP/1.1\r\nHost: shop.example\r\n{OWN}\r\n"));
    // the same for what a trusted proxy in front has said
    let lines = fields(
        "X-Forwarded-For: 192.0.2.7\r\nX-Forwarded-Proto: https\r\nConnection: x-forwarded-for, \
         x-forwarded-proto\r\n",
        proxy(),
        &RequestSettings::default(),
    );
    assert!(lines.contains(&"X-Forwarded-For: 192.0.2.7, 10.0.0.1".to_owned()), "{lines:?}");
    assert!(lines.contains(&"X-Forwarded-Proto: https".to_owned()), "{lines:?}");
}

const CLAIMS: &str = "Forwarded: for=1.1.1.1\r\n\
                      X-Forwarded-For: 1.1.1.1\r\n\
                      x-forwarded-for: 192.0.2.7\r\n\
                      X-Forwarded-Proto: https\r\n\
                      X-Forwarded-Host: www.example\r\n\
                      X-Forwarded-Prefix: /a\r\n\
                      X-Original-URL: /admin\r\n\
                      X-Real-IP: 1.1.1.1\r\n\
                      X-Request-Id: given\r\n";

#[test]
fn strangers_say_nothing_about_themselves() {
    assert_eq!(of_stranger(CLAIMS), ["Host: shop.example", "Content-Length: 0"]);
}

#[test]
fn trusted_proxies_are_believed_and_extended() {
    assert_eq!(
        fields(CLAIMS, proxy(), &RequestSettings::default()),
        [
            "Host: shop.example",
            "X-Original-URL: /admin",
            "X-Forwarded-For: 1.1.1.1, 192.0.2.7, 10.0.0.1",
            "X-Forwarded-Proto: https",
            "X-Forwarded-Host: www.example",
            "X-Forwarded-Port: 443",
            "X-Forwarded-Prefix: /a",
            "X-Real-IP: 192.0.2.7",
            "X-Request-Id: given",
            "Content-Length: 0",
        ]
    );
    let v6 = From { nearest: "2001:db8::1".parse().unwrap(), nearest_is_secure: true, ..proxy() };
    let lines =
        fields("Forwarded: for=_a\r\nX-Request-Id: a b\r\n", v6, &RequestSettings::default());
    assert!(
        !lines.iter().any(|line| line.starts_with("Forwarded")),
        "it does not count: {lines:?}"
    );
    assert!(lines.contains(&"X-Forwarded-For: 2001:db8::1".to_owned()));
    // an invalid id is replaced, here by that of the test
    assert!(!lines.iter().any(|line| line.starts_with("X-Request-Id")));
}

#[test]
fn of_two_families_one_counts() {
    let counted = From { family: ForwardedFamily::Forwarded, tells_forwarded: true, ..proxy() };
    let own = "for=10.0.0.1;host=shop.example;proto=http";
    let forwarded = "Forwarded: for=6.6.6.6;host=evil.example, for=\"[2a00::1]:80\" ; Host=\"www.example:81\"\r\n\
                     forwarded: , for=10.0.0.9\r\n";
    for (elements, list, client_url, told) in [
        (0, "10.0.0.1", ["shop.example", "443"], own.to_owned()),
        (1, "10.0.0.9, 10.0.0.1", ["shop.example", "443"], format!("for=10.0.0.9, {own}")),
        (
            2,
            "2a00::1, 10.0.0.9, 10.0.0.1",
            ["www.example:81", "81"],
            format!("for=\"[2a00::1]:80\";Host=\"www.example:81\", for=10.0.0.9, {own}"),
        ),
    ] {
        let from = From { elements, ..counted };
        let text = format!("POST / HTTP/1.1\r\nHost: shop.example\r\n{CLAIMS}{forwarded}\r\n");
        let (text, _) = self::told(
            &text.replace("Forwarded: for=1.1.1.1\r\n", ""),
            from,
            &RequestSettings::default(),
        )
        .unwrap();
        let [host, port] = client_url;
        let expected = [
            "Host: shop.example".to_owned(),
            "X-Original-URL: /admin".to_owned(),
            format!("X-Forwarded-For: {list}"),
            "X-Forwarded-Proto: https".to_owned(),
            format!("X-Forwarded-Host: {host}"),
            format!("X-Forwarded-Port: {port}"),
            "X-Real-IP: 192.0.2.7".to_owned(),
            format!("Forwarded: {told}"),
            "Via: 1.1 forebay".to_owned(),
            "X-Request-Id: given".to_owned(),
            "Content-Length: 0".to_owned(),
        ];
        assert_eq!(text.trim_end().lines().skip(1).collect::<Vec<_>>(), expected, "{elements}");
    }
    // strangers are described in `Forwarded`, and behind a stage the client is
    let stranger = From { family: ForwardedFamily::Forwarded, tells_forwarded: true, ..STRANGER };
    let of = |from| fields(forwarded, from, &RequestSettings::default());
    let line = "Forwarded: for=203.0.113.9;host=shop.example;proto=http".to_owned();
    assert!(of(stranger).contains(&line));
    let staged = From { tells_forwarded: true, nearest: [0, 0, 0, 0].into(), ..proxy() };
    let lines = fields("X-Forwarded-Host: b:1\r\n", staged, &RequestSettings::default());
    assert!(
        lines.contains(&"Forwarded: for=192.0.2.7;host=\"b:1\";proto=https".to_owned()),
        "{lines:?}"
    );
    let removed = RequestSettings {
        remove: vec![FieldName::parse("forwarded").unwrap()],
        ..Default::default()
    };
    assert!(!fields(forwarded, counted, &removed).iter().any(|line| line.starts_with("Forwarded")));
}

/// Scheme, host, port and prefix fit together, whatever a proxy in front leaves out.
#[test]
fn an_upstream_is_told_one_url() {
    let strip = RequestSettings { strip: Base::parse("/a b").unwrap(), ..Default::default() };
    let both = RequestSettings { prefix: Base::parse("/v1").unwrap(), ..strip.clone() };
    let secure = |is_trusted| From { is_secure: true, is_trusted, ..STRANGER };
    for (host, lines, from, settings, expected) in [
        ("Host: sy.example", "", STRANGER, &strip, "http sy.example 80 /a%20b"),
        ("Host: sy.example:8081", "", STRANGER, &strip, "http sy.example:8081 8081 /a%20b"),
        ("Host: sy.example", "", secure(true), &strip, "https sy.example 443 /a%20b"),
        ("Host: [::1]", "", secure(false), &strip, "https [::1] 443 /a%20b"),
        ("Host: [::1]:81", "", secure(false), &both, "https [::1]:81 81"),
        ("Host: i", "X-Forwarded-Host: a, b:82\r\n", secure(true), &both, "https b:82 82"),
        ("Host: i", "X-Forwarded-Host: a:82\r\n", secure(false), &both, "https i 443"),
        (
            "Host: i",
            "X-Forwarded-Port: 1\r\nX-Forwarded-Port: 2, 3\r\n",
            secure(true),
            &both,
            "https i 3",
        ),
        ("Host: i", "X-Forwarded-Prefix: /o/\r\n", secure(true), &strip, "https i 443 /o/a%20b"),
        ("Host: i", "X-Forwarded-Prefix: /o/\r\n", secure(false), &strip, "https i 443 /a%20b"),
        ("Accept: */*", "", secure(false), &strip, "https /a%20b"),
    ] {
        let text = format!("GET /a%20b/c HTTP/1.0\r\n{host}\r\n{lines}\r\n");
        let (text, _) = told(&text, from, settings).unwrap();
        let values = ["Proto", "Host", "Port", "Prefix"].map(|name| {
            let name = format!("X-Forwarded-{name}: ");
            text.lines().filter_map(|line| line.strip_prefix(&*name)).collect::<Vec<_>>()
        });
        assert_eq!(values.concat().join(" "), expected, "{host} {lines}: {text}");
    }
}

/// A list that proxies have put together is not passed on beside the right value.
#[test]
fn an_upstream_is_told_one_scheme() {
    for lines in [
        "",
        "X-Forwarded-Proto: http, https\r\n",
        "X-Forwarded-Proto: https\r\nX-Forwarded-Proto: http\r\n",
    ] {
        for (is_secure, expected) in [(true, "https"), (false, "http")] {
            let from = From { is_secure, ..proxy() };
            let text = format!("GET / HTTP/1.1\r\nHost: shop.example\r\n{lines}\r\n");
            let (text, _) = told(&text, from, &RequestSettings::default()).unwrap();
            let told: Vec<_> =
                text.lines().filter(|line| line.starts_with("X-Forwarded-Proto")).collect();
            assert_eq!(told, [format!("X-Forwarded-Proto: {expected}")], "{lines}");
        }
    }
}

#[test]
fn a_unix_socket_has_no_address() {
    let unix = "0.0.0.0".parse().unwrap();
    let from = From { nearest: unix, client: unix, port: 0, ..STRANGER };
    let (text, _) = told("GET / HTTP/1.0\r\n\r\n", from, &RequestSettings::default()).unwrap();
    assert_eq!(
        text,
        "GET / HTTP/1.1\r\nHost: 10.0.0.1:9000\r\nX-Forwarded-Proto: http\r\nVia: 1.0 forebay\r\n\
         X-Request-Id: 00000000000000000000000000000abc\r\n\r\n"
    );
    let trusted = From { is_trusted: true, client: "192.0.2.7".parse().unwrap(), ..from };
    let (text, _) = told(
        "GET / HTTP/1.0\r\nX-Forwarded-For: 192.0.2.7\r\n\r\n",
        trusted,
        &RequestSettings::default(),
    )
    .unwrap();
    assert!(text.contains("\r\nX-Forwarded-For: 192.0.2.7\r\n"), "{text}");
    assert!(text.contains("\r\nX-Real-IP: 192.0.2.7\r\n"), "{text}");
}

#[test]
fn bodies_keep_their_framing() {
    let line = |method: &str, lines: &str| {
        let text = format!("{method} / HTTP/1.1\r\nHost: shop.example\r\n{lines}\r\n");
        let (text, written) = told(&text, STRANGER, &RequestSettings::default()).unwrap();
        let rest = text.split_once(OWN).unwrap().1.trim_end().replace("\r\n", "|");
        (rest, written.framing, written.expects_continue)
    };
    let text = |rest: &str| rest.to_owned();
    for (method, lines, expected) in [
        ("GET", "", (text(""), Framing::None, false)),
        ("GET", "Content-Length: 0\r\n", (text("Content-Length: 0"), Framing::None, false)),
        ("POST", "", (text("Content-Length: 0"), Framing::None, false)),
        ("DELETE", "", (text(""), Framing::None, false)),
        ("POST", "Content-Length: 007\r\n", (text("Content-Length: 7"), Framing::Sized(7), false)),
        (
            "PUT",
            "transfer-encoding: Chunked\r\nExpect: 100-Continue\r\n",
            (text("Expect: 100-continue|Transfer-Encoding: chunked"), Framing::Chunked, true),
        ),
        ("GET", "Expect: 100-continue\r\n", (text(""), Framing::None, false)),
    ] {
        assert_eq!(line(method, lines), expected, "{method} {lines}");
    }
    let lines = of_stranger("Trailer: X-A\r\nTransfer-Encoding: chunked\r\n");
    assert_eq!(lines, ["Host: shop.example", "Trailer: X-A", "Transfer-Encoding: chunked"]);
}

#[test]
fn other_protocols_are_asked_for_where_they_may_be() {
    let settings = RequestSettings { upgrade: true, ..RequestSettings::default() };
    let asks = |lines: &str| {
        let text = format!("GET /ws HTTP/1.1\r\nHost: shop.example\r\n{lines}\r\n");
        let (text, written) = told(&text, STRANGER, &settings).unwrap();
        assert_eq!(written.asked.upgrade, text.contains("\r\nUpgrade: "));
        text.split_once(OWN).unwrap().1.trim_end().replace("\r\n", "|")
    };
    let websocket = "Upgrade: websocket|Connection: Upgrade";
    assert_eq!(asks("Upgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n"), websocket);
    assert_eq!(
        asks("Upgrade: h2c, websocket\r\nConnection: upgrade, http2-settings\r\n"),
        websocket
    );
    assert_eq!(asks("Upgrade: h2c\r\nConnection: Upgrade\r\n"), "");
    assert_eq!(asks("Upgrade: H2C\r\nConnection: Upgrade\r\n"), "");
    assert_eq!(asks("Upgrade: HTTP/2.0\r\nConnection: Upgrade\r\n"), "");
    assert_eq!(asks("Upgrade: TLS/1.0\r\nConnection: Upgrade\r\n"), "");
    assert_eq!(asks("Upgrade: websocket\r\n"), "");
    let body = "Upgrade: websocket\r\nConnection: Upgrade\r\nContent-Length: 1\r\n";
    assert_eq!(asks(body), "Content-Length: 1");
}

#[test]
fn the_host_is_the_clients_or_another() {
    let host = |host: HostSent, target: &str| {
        let text = format!("GET {target} HTTP/1.1\r\nHost: shop.example:8080\r\n\r\n");
        let (text, _) =
            told(&text, STRANGER, &RequestSettings { host, ..RequestSettings::default() }).unwrap();
        let mut lines = text.lines();
        format!("{} {}", lines.next().unwrap(), lines.next().unwrap())
    };
    assert_eq!(host(HostSent::Client, "/"), "GET / HTTP/1.1 Host: shop.example:8080");
    assert_eq!(host(HostSent::Upstream, "/"), "GET / HTTP/1.1 Host: 10.0.0.1:9000");
    assert_eq!(host(HostSent::Named("app".into()), "/"), "GET / HTTP/1.1 Host: app");
    // the target takes precedence over `Host`, and becomes a path
    assert_eq!(host(HostSent::Client, "http://a.example?q"), "GET /?q HTTP/1.1 Host: a.example");
}

#[test]
fn fields_are_set_and_removed() {
    let name = |text: &str| FieldName::parse(text).unwrap();
    let settings = RequestSettings {
        set: vec![
            (name("X-User"), SetValue::Fixed(FieldValue::parse("nobody").unwrap())),
            (name("X-Forwarded-Proto"), SetValue::Fixed(FieldValue::parse("https").unwrap())),
        ],
        remove: ["Authorization", "Via", "X-Forwarded-Port", "X-Request-Id", "Cookie"]
            .map(name)
            .into(),
        ..RequestSettings::default()
    };
    let text = "GET / HTTP/1.1\r\nHost: a\r\nx-user: root\r\nX_User: root\r\nAuthorization: x\r\n\
                Cookie: a=b\r\nConnection: X-User\r\n\r\n";
    let (text, written) = told(text, STRANGER, &settings).unwrap();
    assert_eq!(
        text,
        "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 203.0.113.9\r\nX-Forwarded-Host: a\r\n\
         X-Real-IP: 203.0.113.9\r\nX-User: nobody\r\nX-Forwarded-Proto: https\r\n\r\n"
    );
    assert_eq!(written.id, 0..0);
    // the fields about the client fit together
    let https = SetValue::Fixed(FieldValue::parse("https").unwrap());
    let set = vec![(name("X-Forwarded-Proto"), https)];
    let settings = RequestSettings { set, ..RequestSettings::default() };
    let (text, _) = told("GET / HTTP/1.1\r\nHost: a\r\n\r\n", STRANGER, &settings).unwrap();
    assert!(text.contains("\r\nX-Forwarded-Port: 443\r\n"), "{text}");
}

#[test]
fn some_methods_end_here() {
    for (line, expected) in [
        ("TRACE / HTTP/1.1\r\nHost: a\r\n\r\n", TargetRefusal::Method),
        ("OPTIONS / HTTP/1.1\r\nHost: a\r\nMax-Forwards: 0\r\n\r\n", TargetRefusal::LastHop),
    ] {
        assert_eq!(told(line, STRANGER, &RequestSettings::default()).err(), Some(expected));
    }
    let text = "OPTIONS / HTTP/1.1\r\nHost: a\r\nMax-Forwards: 3\r\n\r\n";
    let (text, _) = told(text, STRANGER, &RequestSettings::default()).unwrap();
    assert!(text.contains("\r\nMax-Forwards: 2\r\n"));
}

#[test]
fn cookies_of_http2_become_one() {
    let (names, values) = ("cookieaccept", b"a=bc=d*/*");
    let fields =
        [FieldSpan::new(0..6, 0..3), FieldSpan::new(6..12, 6..9), FieldSpan::new(0..6, 3..6)];
    let decoded = DecodedHead {
        method: "POST",
        protocol: None,
        target: b"/x?y",
        authority: b"shop.example",
        names,
        values,
        fields: &fields,
        has_body: true,
        content_length: None,
    };
    let head = Head::decoded(&decoded, &HeadLimits::default()).unwrap();
    let (text, written) = told_of(&head, STRANGER, &RequestSettings::default()).unwrap();
    let own = OWN.replace("1.1 forebay", "2 forebay");
    assert_eq!(
        text,
        format!(
            "POST /x?y HTTP/1.1\r\nHost: shop.example\r\nCookie: a=b; c=d\r\naccept: */*\r\n{own}\
             Transfer-Encoding: chunked\r\n\r\n"
        )
    );
    assert_eq!(written.framing, Framing::Chunked);
}

#[test]
fn a_path_that_a_rule_has_made_is_sent() {
    let text = "GET /blog/1?a HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut lines = Lines::new();
    let parsed = Head::parse(text.as_bytes(), &mut lines, &HeadLimits::default());
    let Ok(ParsedHead::Complete(head)) = parsed else { panic!("{parsed:?}") };
    let mut out = Vec::new();
    let mut send = |made: &[u8]| {
        out.clear();
        let rewritten = Some(made);
        let request = UpstreamRequest {
            head: &head,
            judged: JudgedPath::Normal(b"/blog/1"),
            rewritten,
            from: STRANGER,
            id: 1,
            hidden: None,
            given: &[],
            trace: None,
            values: &HeadValues::default(),
        };
        let settings =
            RequestSettings { prefix: Base::parse("/v1").unwrap(), ..RequestSettings::default() };
        write(&request, "a", &settings, &mut out).map(|_| ())?;
        Ok(String::from_utf8_lossy(&out).lines().next().unwrap().to_owned())
    };
    assert_eq!(send("/app/ü".as_bytes()), Ok("GET /v1/app/%C3%BC?a HTTP/1.1".to_owned()));
    for made in ["/a/../b", "//a", "/a\\b", "a"] {
        assert!(matches!(send(made.as_bytes()), Err(TargetRefusal::Ambiguous(_))), "{made}");
    }
}

proptest! {
    /// For all fields that a client sends: the upstream reads one request, with one host, and about
    /// the client only what is known.
    #[test]
    fn no_field_smuggles(
        fields in prop::collection::vec(
            ("(?i)(X[-_]Forwarded[-_]For|X-Real-IP|Connection|Content[-_]Length|Upgrade|TE|Cookie|A|\
              Transfer_Encoding|Proxy|Via|Forwarded|Keep-Alive|X-Request-Id|Trailer)",
             "(a|close|upgrade|h2c|websocket|x-forwarded-for|host|content-length|trailers|1|[ -~]{0,5})"),
            0..8,
        ),
        upgrade in any::<bool>(),
    ) {
        let lines: String =
            fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let text = format!("POST /a HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
        let mut lines = Lines::new();
        let parsed = Head::parse(text.as_bytes(), &mut lines, &HeadLimits::default());
        let Ok(ParsedHead::Complete(head)) = parsed else { return Ok(()) };
        let settings = RequestSettings { upgrade, ..RequestSettings::default() };
        let (text, _) = told_of(&head, STRANGER, &settings).unwrap();
        let values = |name: &str| {
            let lines = text.lines().filter_map(|line| line.split_once(": "));
            lines.filter(|(at, _)| is_same(at, name)).map(|(_, value)| value).collect::<Vec<_>>()
        };
        for name in ["Host", "X-Forwarded-For", "X-Real-IP", "X-Request-Id"] {
            prop_assert_eq!(values(name).len(), 1, "{}", &text);
        }
        prop_assert_eq!(values("X-Forwarded-For"), ["203.0.113.9"]);
        prop_assert_eq!(values("X-Real-IP"), ["203.0.113.9"]);
        prop_assert!(values("Content-Length").len() + values("Transfer-Encoding").len() <= 1);
        for name in ["Proxy", "Keep-Alive", "Forwarded"] {
            prop_assert_eq!(values(name).len(), 0, "{}", &text);
        }
        prop_assert!(!values("Upgrade").iter().any(|value| value.contains("h2c")));
    }
}
