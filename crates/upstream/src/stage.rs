//! The head of a request to the next stage of this server: the client's head as it is, without what
//! was for the connection only, and with fields that are added here.
//!
//! | field | content |
//! |---|---|
//! | `Forebay-Attempt` | the number of the copy, from 1; asks for an acknowledgement (102). A ping has 0 |
//! | `X-Request-Id` | the id of the request |
//! | `traceparent`, `tracestate` | the position of the request in a trace, if this server takes part in it |
//! | `X-Forwarded-For` | the client's address, alone |
//! | `X-Forwarded-Proto` | whether the client came through TLS |
//! | `X-Forwarded-Host`, `-Port`, `-Prefix` | what a trusted proxy says about the client's URL |
//! | `Forebay-Class` | the name of the request's class, if there are several |
//! | `Forebay-Local` | the address and port that the client has reached, if an application may get them |
//! | `Forebay-Port` | the port from which the client has come, if an application may get it |
//! | `Forebay-Overload` | the degree of overload from 1 to 3, if there is one |
//! | `Forebay-Sent` | which of `for`, `proto`, `host`, `port`, `prefix` and `real-ip` a trusted proxy has sent, if any |
//! | `Forebay-Tunnel` | the protocol that the client has asked for by an extended CONNECT |
//!
//! An answer may have `Forebay-Delay`: for how many milliseconds the request has waited before it was
//! worked on. The answer to a ping has `Forebay-Configuration`.

pub mod pings;

use crate::exchange::{ATTEMPT, Copy};
use crate::messages::client_url::ClientUrl;
use crate::messages::names::{FieldKind, is_same, kind};
use crate::messages::request::{self, WrittenHead};
use crate::messages::sent_fields;
use crate::messages::target::{self, Ambiguous, TargetRefusal};
use forebay_http::field::FieldName;
use forebay_http::framing::Framing;
use forebay_http::head::{Head, Method, Name, Tunnel};
use forebay_http::response::ResponseContext;
use forebay_http::trace_context::{self, ToldTrace};
use std::io::Write;
use std::net::{IpAddr, SocketAddr};

/// The client of a request, as the stage that received it knows it.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'o> {
    /// The client's address; unspecified for a Unix socket.
    pub client: IpAddr,
    /// Whether the client came through TLS, as trusted proxies report it.
    pub is_secure: bool,
    /// What a trusted proxy says about the client's URL.
    pub url: &'o ClientUrl<'o>,
    /// The address that the client has reached, if an application may get it.
    pub local: Option<SocketAddr>,
    /// The client's port; 0 if that is not known, or no application may get it.
    pub port: u16,
    /// The fields about the client that a trusted proxy has sent, if an application may get them: see
    /// [`sent_fields::names`].
    pub sent: &'o [u8],
    /// The name of the request's class; empty if there is only one class.
    pub class: &'o str,
    /// How overloaded the server is, from 0 to 3.
    pub overload: u8,
    /// The protocol of the stream, if it is an extended CONNECT.
    pub tunnel: Option<Tunnel>,
    /// Whether an application takes other protocols.
    pub may_change: bool,
    /// The id of the request.
    pub id: &'o [u8],
    /// The field in which proxies name their client, which is written anew.
    pub named: Option<&'o FieldName>,
    /// The position of the request in a trace; `None` if the client's own fields for that are passed
    /// on.
    pub trace: Option<ToldTrace>,
}

/// The largest number of bytes that are added to a head.
pub const ADDED_BYTES: usize = 839;

/// The largest number of lines that are added to a head.
pub const ADDED_LINES: usize = 15;

/// The field with the class of a request. The decision of the first stage holds in all of them.
const CLASS: &str = "Forebay-Class";

/// The field with the version of a stage and its configuration, in the answer to a ping.
pub const CONFIGURATION: &str = "Forebay-Configuration";

/// The field with the address that the client has reached.
const LOCAL: &str = "Forebay-Local";

/// The field with the client's port.
const PORT: &str = "Forebay-Port";

/// The field with the degree of overload.
const OVERLOAD: &str = "Forebay-Overload";

/// The field with the protocol of an extended CONNECT. The client gets no answer to a key, and no 2xx
/// except for a tunnel (RFC 8441 §4, §5); the field is for the stage that asks the application.
const TUNNEL: &str = "Forebay-Tunnel";

/// What each field of HTTP/2 counts in addition to its bytes.
pub const FIELD_BYTES: usize = forebay_http2::fields::FIELD_BYTES;

/// Appends the head of a request to `out`. If `judged` is given, that form of the path is sent,
/// whatever form came.
///
/// # Errors
/// The path can be read in more than one way.
pub fn write(
    head: &Head<'_>,
    judged: Option<&[u8]>,
    origin: &Origin<'_>,
    out: &mut Vec<u8>,
) -> Result<(WrittenHead, Copy), TargetRefusal> {
    let begin = out.len();
    out.extend_from_slice(head.method_text.as_bytes());
    out.push(b' ');
    match judged {
        Some(judged) => {
            target::push(head.path, target::JudgedPath::Normal(judged), Ambiguous::Normalise, out)?
        }
        None => out.extend_from_slice(head.path),
    }
    if let Some(query) = head.query {
        out.push(b'?');
        out.extend_from_slice(query);
    }
    out.extend_from_slice(b" HTTP/1.1\r\n");
    line(out, "Host", head.authority);
    out.extend_from_slice(ATTEMPT.as_bytes());
    out.extend_from_slice(b": ");
    let attempt_at = out.len() - begin;
    out.extend_from_slice(b"1\r\n");
    let mut is_for_whole = head.framing == Framing::None;
    for (name, value) in head.fields() {
        let is_named_field = origin.named.is_some_and(|named| is_same(named.as_str(), name));
        let is_passed = match kind(name) {
            // written anew below, with the client that is known here
            _ if is_named_field => false,
            FieldKind::Plain | FieldKind::Cookie | FieldKind::MaxForwards => true,
            FieldKind::Trailer => head.framing == Framing::Chunked,
            FieldKind::Trace => origin.trace.is_none(),
            FieldKind::Own | FieldKind::Forwarding(_) => false,
        };
        if is_passed && !is_named(head, name) {
            is_for_whole &= !["range", "if-range"].iter().any(|one| name.eq_ignore_ascii_case(one));
            line(out, name, value);
        }
    }
    if !origin.client.is_unspecified() {
        let client = origin.client.to_canonical();
        push(out, format_args!("X-Forwarded-For: {client}\r\n"));
        if let Some(name) = origin.named {
            push(out, format_args!("{name}: {client}\r\n"));
        }
    }
    line(out, "X-Forwarded-Proto", request::scheme(origin.is_secure).as_bytes());
    let ClientUrl { host, port, prefix } = origin.url;
    let host = host.as_deref();
    for (name, value) in
        [("X-Forwarded-Host", host), ("X-Forwarded-Port", *port), ("X-Forwarded-Prefix", *prefix)]
    {
        if let Some(value) = value {
            line(out, name, value);
        }
    }
    line(out, "X-Request-Id", origin.id);
    if let Some(told) = origin.trace {
        line(out, trace_context::TRACEPARENT, &told.context.text());
        let mut state = Vec::new();
        if told.keeps_state {
            trace_context::push_state(head, &mut state);
        }
        if !state.is_empty() {
            line(out, trace_context::TRACESTATE, &state);
        }
    }
    if let Some(local) = origin.local {
        push(out, format_args!("{LOCAL}: {local}\r\n"));
    }
    if origin.port > 0 {
        push(out, format_args!("{PORT}: {}\r\n", origin.port));
    }
    if !origin.class.is_empty() {
        line(out, CLASS, origin.class.as_bytes());
    }
    if origin.overload > 0 {
        push(out, format_args!("{OVERLOAD}: {}\r\n", origin.overload));
    }
    if !origin.sent.is_empty() {
        line(out, sent_fields::FIELD, origin.sent);
    }
    if let Some(tunnel) = origin.tunnel {
        push(out, format_args!("{TUNNEL}: {}\r\n", tunnel.token()));
    }
    let protocols = match origin.may_change {
        true => request::protocols(head, origin.tunnel),
        false => Vec::new(),
    };
    let takes_trailers = request::takes_trailers(head);
    if takes_trailers {
        line(out, "TE", b"trailers");
    }
    if !protocols.is_empty() {
        line(out, "Upgrade", &protocols);
    }
    match (takes_trailers, protocols.is_empty()) {
        (false, true) => {}
        (true, true) => line(out, "Connection", b"TE"),
        (false, false) => line(out, "Connection", b"Upgrade"),
        (true, false) => line(out, "Connection", b"TE, Upgrade"),
    }
    let expects_continue = head.expects_continue && head.framing != Framing::None;
    if expects_continue {
        line(out, "Expect", b"100-continue");
    }
    let is_safe = matches!(head.method, Method::Get | Method::Head | Method::Options);
    match head.framing {
        Framing::Sized(length) => push(out, format_args!("Content-Length: {length}\r\n")),
        Framing::Chunked => line(out, "Transfer-Encoding", b"chunked"),
        // a withheld end must be the end of a body, so an empty body is announced
        Framing::None if !is_safe || head.has(Name::ContentLength) => {
            line(out, "Content-Length", b"0");
        }
        Framing::None => {}
    }
    out.extend_from_slice(b"\r\n");
    let upgrade = !protocols.is_empty();
    let asked = ResponseContext { is_head: head.method == Method::Head, upgrade };
    let written = WrittenHead {
        framing: head.framing,
        expects_continue,
        asked,
        id: 0..0,
        given: Box::default(),
    };
    let needs_http1 = upgrade || head.authority.is_empty();
    // a second copy is work for which an overloaded server has no room
    let may_hurry = origin.overload == 0;
    let copy = Copy { attempt_at, repeats_idempotent: false, needs_http1, may_hurry, is_for_whole };
    Ok((written, copy))
}

/// Whether a head is a ping of the stage before.
pub fn is_ping(head: &Head<'_>) -> bool {
    head.path == b"*" && attempt(head) == Some(b"0")
}

/// Whether the stage before wants an acknowledgement of the request.
pub fn asks_for_acknowledgement(head: &Head<'_>) -> bool {
    attempt(head).is_some()
}

/// The name of the request's class, as the stage before says.
pub fn class<'h>(head: &Head<'h>) -> Option<&'h [u8]> {
    field(head, CLASS)
}

/// The address that the client has reached, as the stage before says.
pub fn local(head: &Head<'_>) -> Option<SocketAddr> {
    std::str::from_utf8(field(head, LOCAL)?).ok()?.parse().ok()
}

/// The client's port, as the stage before says; 0 if it does not.
pub fn port(head: &Head<'_>) -> u16 {
    let text = field(head, PORT).and_then(|port| std::str::from_utf8(port).ok());
    text.and_then(|port| port.parse().ok()).unwrap_or(0)
}

/// The degree of overload, as the stage before says.
pub fn overload(head: &Head<'_>) -> u8 {
    match field(head, OVERLOAD) {
        Some([digit @ b'1'..=b'9']) => digit - b'0',
        _ => 0,
    }
}

/// The protocol of an extended CONNECT, as the stage before says.
pub fn tunnel(head: &Head<'_>) -> Option<Tunnel> {
    field(head, TUNNEL).map(Tunnel::from_token)
}

fn attempt<'h>(head: &Head<'h>) -> Option<&'h [u8]> {
    field(head, ATTEMPT)
}

fn field<'h>(head: &Head<'h>, name: &str) -> Option<&'h [u8]> {
    let mut fields = head.fields();
    fields.find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

/// Whether `Connection` names a field (RFC 9110 §7.6.1).
fn is_named(head: &Head<'_>, name: &str) -> bool {
    let values = head.values(Name::Connection).flat_map(|value| value.split(|&b| b == b','));
    values.map(<[u8]>::trim_ascii).any(|one| one.eq_ignore_ascii_case(name.as_bytes()))
}

fn line(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    for part in [name.as_bytes(), b": ", value, b"\r\n"] {
        out.extend_from_slice(part);
    }
}

fn push(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    // writing into a vector does not fail
    let _ = out.write_fmt(text);
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_http::head::{HeadLimits, Lines, ParsedHead};

    fn written(
        text: &str,
        judged: Option<&str>,
        origin: &Origin<'_>,
    ) -> Result<(String, Copy), TargetRefusal> {
        let mut lines = Lines::new();
        let Ok(ParsedHead::Complete(head)) =
            Head::parse(text.as_bytes(), &mut lines, &HeadLimits::default())
        else {
            panic!("{text}")
        };
        let mut out = Vec::new();
        let (_, copy) = write(&head, judged.map(str::as_bytes), origin, &mut out)?;
        Ok((String::from_utf8(out).unwrap(), copy))
    }

    fn told(text: &str) -> (String, Copy) {
        let client = [192, 0, 2, 7].into();
        let local = text.contains("a.example").then(|| "192.0.2.1:443".parse().unwrap());
        let tunnel = text.contains("Upgrade: asked").then_some(Tunnel::WebSocket);
        let may_change = !text.contains("X-Never");
        let (url, id) = (&ClientUrl::default(), b"seven");
        let sent: &[u8] = if text.contains("X-Real-IP") { b"real-ip" } else { b"" };
        let origin = Origin {
            client,
            is_secure: true,
            url,
            local,
            port: if local.is_some() { 65_535 } else { 0 },
            sent,
            class: if text.contains("X-Real-IP") { "gold" } else { "" },
            overload: if text.contains("X-Real-IP") { 2 } else { 0 },
            tunnel,
            may_change,
            id,
            named: None,
            trace: None,
        };
        let (out, copy) = written(text, None, &origin).unwrap();
        assert!(out.len() <= text.len() + ADDED_BYTES);
        assert!(out.lines().count() <= text.lines().count() + ADDED_LINES);
        (out, copy)
    }

    #[test]
    fn what_the_client_says_is_passed_on_and_what_is_ours_is_ours() {
        let (out, copy) = told(
            "GET /a%20b/../c?q=1 HTTP/1.1\r\nHost: a.example\r\nX: y\r\nKeep-Alive: 5\r\n\
             X-Forwarded-For: 10.9.9.9\r\nforebay-attempt: 0\r\nForebay_Local: a\r\nforebay_port: 1\r\nConnection: X-Own\r\nX-Own: 1\r\n\
             Accept-Encoding: gzip\r\n\r\n",
        );
        assert_eq!(
            out,
            "GET /a%20b/../c?q=1 HTTP/1.1\r\nHost: a.example\r\nForebay-Attempt: 1\r\nX: y\r\n\
             Accept-Encoding: gzip\r\nX-Forwarded-For: 192.0.2.7\r\nX-Forwarded-Proto: https\r\n\
             X-Request-Id: seven\r\n\
             Forebay-Local: 192.0.2.1:443\r\nForebay-Port: 65535\r\n\r\n"
        );
        assert_eq!(&out[copy.attempt_at..=copy.attempt_at], "1");
        assert!(copy.is_for_whole);
    }

    #[test]
    fn what_a_proxy_has_sent_is_told_and_nothing_that_a_client_says_of_it() {
        let text = "GET / HTTP/1.1\r\nHost: a\r\nForebay-Sent: for\r\nForebay-Overload: 3\r\n\
                    Forebay-Class: diamond\r\nforebay_class: diamond\r\n\
                    X-Real-IP: 192.0.2.9\r\n\r\n";
        let (out, _) = told(text);
        assert_eq!(out.matches("Forebay-Sent: ").count(), 1, "{out}");
        assert_eq!(out.matches("Forebay-Overload: ").count(), 1, "{out}");
        assert!(out.contains("\r\nForebay-Class: gold\r\n") && !out.contains("diamond"), "{out}");
        assert!(out.contains("\r\nForebay-Overload: 2\r\n"), "{out}");
        assert!(
            out.contains("\r\nForebay-Sent: real-ip\r\n") && !out.contains("192.0.2.9"),
            "{out}"
        );
    }

    #[test]
    fn what_was_judged_is_asked_for() {
        let asked = |path: &str, judged: &str| {
            let text = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
            let client = [192, 0, 2, 7].into();
            let (is_secure, local, tunnel, may_change) = (false, None, None, false);
            let url = &ClientUrl::default();
            let (id, sent) = (b"seven", b"");
            let origin = Origin {
                client,
                is_secure,
                url,
                local,
                port: 0,
                sent,
                class: "",
                overload: 0,
                tunnel,
                may_change,
                id,
                named: None,
                trace: None,
            };
            written(&text, Some(judged), &origin)
                .map(|(out, _)| out.split(' ').nth(1).unwrap().to_owned())
        };
        assert_eq!(asked("/a/../p%72iv//x?q=/../y", "/priv/x").as_deref(), Ok("/priv/x?q=/../y"));
        assert_eq!(asked("/a%20b", "/a b").as_deref(), Ok("/a%20b"));
        for (path, judged) in [("/priv%2fx", "/priv/x"), ("/..;/x", "/..;/x"), ("/a", "/b")] {
            assert!(matches!(asked(path, judged), Err(TargetRefusal::Ambiguous(_))), "{path}");
        }
    }

    #[test]
    fn bodies_are_framed_and_parts_are_no_wholes() {
        let (out, _) = told("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n");
        assert!(out.contains("\r\nContent-Length: 3\r\n"), "{out}");
        let (out, copy) =
            told("GET / HTTP/1.0\r\nRange: bytes=1-\r\nConnection: keep-alive\r\n\r\n");
        assert!(out.starts_with("GET / HTTP/1.1\r\nHost: \r\n"), "{out}");
        assert!(!copy.is_for_whole);
    }

    #[test]
    fn other_protocols_are_passed_on_in_http1_where_an_application_takes_them() {
        let asked = "GET /ws HTTP/1.1\r\nHost: a\r\nForebay-Tunnel: x\r\nConnection: Upgrade\r\n";
        let (out, copy) =
            told(&format!("{asked}Upgrade: websocket, h2c\r\nSec-WebSocket-Key: k\r\n\r\n"));
        assert!(out.contains("\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"), "{out}");
        assert!(out.contains("Sec-WebSocket-Key: k") && !out.contains("Forebay-Tunnel"), "{out}");
        assert!(copy.needs_http1);
        let (out, copy) = told(&format!("{asked}X-Never: 1\r\nUpgrade: websocket\r\n\r\n"));
        assert!(!out.contains("Upgrade: ") && !copy.needs_http1, "{out}");
        let (out, copy) =
            told("GET / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nConnection: TE\r\n\r\n");
        assert!(out.ends_with("\r\nTE: trailers\r\nConnection: TE\r\n\r\n"), "{out}");
        assert!(!copy.needs_http1);
        let (out, copy) = told("GET /ws HTTP/1.1\r\nHost: a\r\nUpgrade: asked by a stream\r\n\r\n");
        let both = "Forebay-Tunnel: websocket\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n";
        assert!(out.ends_with(both) && copy.needs_http1, "{out}");
    }

    #[test]
    fn pings_are_told_from_what_clients_send() {
        let is = |text: &str| {
            let mut lines = Lines::new();
            match Head::parse(text.as_bytes(), &mut lines, &HeadLimits::default()) {
                Ok(ParsedHead::Complete(head)) => (is_ping(&head), asks_for_acknowledgement(&head)),
                _ => panic!("{text}"),
            }
        };
        let head = |line: &str, more: &str| format!("{line} HTTP/1.1\r\nHost: a\r\n{more}\r\n");
        assert_eq!(is(&head("OPTIONS *", "Forebay-Attempt: 0\r\n")), (true, true));
        assert_eq!(is(&head("OPTIONS *", "Forebay-Attempt: 1\r\n")), (false, true));
        assert_eq!(is(&head("OPTIONS *", "")), (false, false));
        assert_eq!(is(&head("GET /", "Forebay-Attempt: 2\r\n")), (false, true));
    }
}
