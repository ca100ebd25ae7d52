//! The parameters of a script for a request (RFC 3875 §4.1, and what PHP wants besides).

use super::record::{begin, end_of_params, pair, params};
use crate::messages::client_url;
use crate::messages::cookies;
use crate::messages::names::{self, FieldKind, Forwarding, kind};
use crate::messages::request::{SetValue, UpstreamRequest, scheme, valid_id};
use crate::messages::sent_fields;
use crate::messages::target::{self, Ambiguous, TargetRefusal};
use crate::messages::text;
use forebay_http::head::{Method, Version};
use forebay_http::trace_context;
use std::fmt::Write;
use std::net::SocketAddr;

/// Settings of requests to FastCGI applications, as an operator decides them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScriptSettings {
    /// The directory in which the application finds the files of the site, without a slash at its
    /// end.
    pub root: Box<[u8]>,
    /// How ambiguous paths are treated.
    pub ambiguous: Ambiguous,
    /// Whether the connection stays open after a request.
    pub keep: bool,
    /// The parameters to set, each instead of the request's own.
    pub set: Vec<(Box<str>, SetValue<Box<str>>)>,
    /// The path of a program that runs no files, without a slash at its end; `None` for scripts.
    pub program: Option<Box<[u8]>>,
}

/// A script or a program, and the path behind it, all decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScriptPath<'s> {
    /// The path of the script in the site.
    pub name: &'s [u8],
    /// The path behind the script; empty, or begins with a slash.
    pub path_info: &'s [u8],
    /// The file of the script, if it is not beneath the root.
    pub file: Option<&'s [u8]>,
}

impl<'s> ScriptPath<'s> {
    /// The program for a path that begins with `own`. A program for a pattern has an empty name.
    pub fn of_program(own: &[u8], path: &'s [u8]) -> ScriptPath<'s> {
        let is_own = path.strip_prefix(own).is_some_and(|rest| matches!(rest, [] | [b'/', ..]));
        let (name, path_info) = path.split_at(if is_own { own.len() } else { 0 });
        ScriptPath { name, path_info, file: None }
    }
}

/// A request for a script.
#[derive(Clone, Copy, Debug)]
pub struct Params<'p> {
    /// The request.
    pub request: UpstreamRequest<'p>,
    /// The script, which exists.
    pub script: ScriptPath<'p>,
    /// The length of the body, which must follow completely. A script gets it before the body; with
    /// `None`, [`length`] writes it and the end of the parameters later.
    pub body_bytes: Option<u64>,
    /// The address and port that the connection has come to.
    pub local: SocketAddr,
    /// The port from which the client's connection has come; 0 if it is not known.
    pub remote_port: u16,
    /// The user name that the client has given, if it had to give one.
    pub user: Option<&'p str>,
}

/// Appends the beginning of a request, up to its body.
///
/// # Errors
/// Why the request is not passed on; `out` then holds nothing of it.
pub fn write(
    params_of: &Params<'_>,
    settings: &ScriptSettings,
    out: &mut Vec<u8>,
) -> Result<(), TargetRefusal> {
    let mut pairs = Pairs { bytes: Vec::with_capacity(2048), text: Vec::new(), settings };
    pairs.request(params_of)?;
    pairs.script(params_of);
    pairs.peer(params_of);
    pairs.fields(params_of);
    for (name, value) in &settings.set {
        if let Some(value) = value.of(&params_of.request) {
            pair(name, &[value], &mut pairs.bytes);
        }
    }
    begin(settings.keep, out);
    params(&pairs.bytes, out);
    if params_of.body_bytes.is_some() {
        end_of_params(out);
    }
    Ok(())
}

/// Appends the length of the body, and the end of the parameters.
pub fn length(body_bytes: u64, out: &mut Vec<u8>) {
    let mut bytes = Vec::with_capacity(40);
    let mut length = Vec::new();
    text::number(body_bytes, &mut length);
    pair("CONTENT_LENGTH", &[&length], &mut bytes);
    params(&bytes, out);
    end_of_params(out);
}

struct Pairs<'s> {
    bytes: Vec<u8>,
    /// A buffer for a value.
    text: Vec<u8>,
    settings: &'s ScriptSettings,
}

impl Pairs<'_> {
    fn add(&mut self, name: &str, value: &[&[u8]]) {
        if !self.settings.set.iter().any(|(other, _)| **other == *name) {
            pair(name, value, &mut self.bytes);
        }
    }

    /// Adds a parameter whose value `write` writes.
    fn add_text(&mut self, name: &str, write: impl FnOnce(&mut Vec<u8>)) {
        let mut text = std::mem::take(&mut self.text);
        text.clear();
        write(&mut text);
        self.add(name, &[&text]);
        self.text = text;
    }

    fn request(&mut self, params: &Params<'_>) -> Result<(), TargetRefusal> {
        let UpstreamRequest { head, judged, .. } = params.request;
        if matches!(head.method, Method::Connect | Method::Trace) {
            return Err(TargetRefusal::Method);
        }
        // the path that was asked for; the script's parameters have what a rule has made of it
        let mut uri = Vec::with_capacity(head.path.len() + 1);
        target::push(head.path, judged, self.settings.ambiguous, &mut uri)?;
        let query = head.query.unwrap_or_default();
        if head.query.is_some() {
            uri.push(b'?');
            uri.extend_from_slice(query);
        }
        self.add("GATEWAY_INTERFACE", &[b"CGI/1.1"]);
        self.add("SERVER_SOFTWARE", &[b"forebay"]);
        self.add(
            "SERVER_PROTOCOL",
            &[match head.version {
                Version::Http10 => b"HTTP/1.0",
                Version::Http11 => b"HTTP/1.1",
                Version::Http2 => b"HTTP/2.0",
            }],
        );
        self.add("REQUEST_METHOD", &[head.method_text.as_bytes()]);
        self.add("REQUEST_URI", &[&uri]);
        self.add("QUERY_STRING", &[query]);
        if let Some(bytes) = params.body_bytes {
            let has_body = bytes > 0 || matches!(head.method, Method::Post | Method::Put);
            self.add_text("CONTENT_LENGTH", |out| {
                if has_body {
                    text::number(bytes, out);
                }
            });
        }
        let mut types = head.fields().filter(|(name, _)| name.eq_ignore_ascii_case("content-type"));
        self.add("CONTENT_TYPE", &[types.next().map_or(b"", |(_, value)| value)]);
        // PHP refuses to run without this sign that it was called by a server
        self.add("REDIRECT_STATUS", &[b"200"]);
        Ok(())
    }

    fn script(&mut self, params: &Params<'_>) {
        let ScriptPath { name, path_info, file } = params.script;
        let root = &*self.settings.root;
        let is_program = self.settings.program.is_some();
        self.add("DOCUMENT_ROOT", &[root]);
        match file {
            _ if is_program => {}
            Some(file) => self.add("SCRIPT_FILENAME", &[file]),
            None => self.add("SCRIPT_FILENAME", &[root, name]),
        }
        self.add("SCRIPT_NAME", &[name]);
        self.add("DOCUMENT_URI", &[name, path_info]);
        // never PATH_TRANSLATED: with cgi.fix_pathinfo = 0 php-fpm runs the file that this names instead of
        // the script
        if !path_info.is_empty() {
            self.add("PATH_INFO", &[path_info]);
        }
    }

    fn peer(&mut self, params: &Params<'_>) {
        let UpstreamRequest { head, from, .. } = params.request;
        if from.is_secure {
            self.add("HTTPS", &[b"on"]);
        }
        self.add("REQUEST_SCHEME", &[scheme(from.is_secure).as_bytes()]);
        self.add("SERVER_NAME", &[client_url::split(head.authority).0]);
        let local = params.local.ip().to_canonical();
        match client_url::port(head.authority, from.is_secure) {
            Some(port) => self.add("SERVER_PORT", &[port]),
            None => self.add_text("SERVER_PORT", |out| text::number(from.port.into(), out)),
        }
        self.add_text("SERVER_ADDR", |out| text::address(local, out));
        self.add_text("REMOTE_ADDR", |out| text::address(from.client.to_canonical(), out));
        if params.remote_port > 0 {
            self.add_text("REMOTE_PORT", |out| text::number(params.remote_port.into(), out));
        }
        if let Some(user) = params.user {
            self.add("REMOTE_USER", &[user.as_bytes()]);
            self.add("AUTH_TYPE", &[b"Basic"]);
        }
    }

    /// Adds `HTTP_*`, each name once, however many lines a field has. Fields are left out whose name
    /// could be taken for another variable: names with `_`, names with other characters that PHP
    /// takes for `_`, and `Proxy`, which libraries take for the proxy of their own requests.
    fn fields(&mut self, params: &Params<'_>) {
        let UpstreamRequest { head, from, id, hidden, given, trace, .. } = params.request;
        if !head.authority.is_empty() {
            self.add("HTTP_HOST", &[head.authority]);
        }
        let mut name = String::new();
        for (at, (field, value)) in head.fields().enumerate() {
            let is_passed = match kind(field) {
                FieldKind::Own => false,
                // these are added below
                FieldKind::Forwarding(Forwarding::RequestId | Forwarding::Forwarded) => false,
                // from a stage, this is added below
                FieldKind::Forwarding(Forwarding::RealIp) if from.is_of_stage => false,
                // a stage sends these for each client; a script gets them only if a proxy has sent
                // them
                FieldKind::Forwarding(field) => {
                    from.believes(field) && (!from.is_of_stage || sent_fields::has(head, field))
                }
                FieldKind::Trailer => false,
                // added below, if this server takes part in the trace
                FieldKind::Trace => trace.is_none(),
                FieldKind::Plain | FieldKind::Cookie | FieldKind::MaxForwards => true,
            };
            let is_told_above = ["content-type", "content-length"]
                .iter()
                .any(|other| field.eq_ignore_ascii_case(other));
            let is_same = |(other, _): &(&str, &[u8])| other.eq_ignore_ascii_case(field);
            let is_again = head.fields().take(at).any(|other| is_same(&other));
            let is_given = given.iter().any(|(other, _)| names::is_same(other, field));
            let is_name = field.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
            if !is_passed || is_told_above || is_again || is_given || !is_name {
                continue;
            }
            variable(field, &mut name);
            // a single value, whatever proxies have put together
            let url = from.client_url(head);
            let one = match kind(field) {
                FieldKind::Forwarding(Forwarding::Proto) => {
                    Some(Some(scheme(from.is_secure).as_bytes()))
                }
                FieldKind::Forwarding(Forwarding::Host) => Some(url.host.as_deref()),
                FieldKind::Forwarding(Forwarding::Port) => Some(url.port),
                FieldKind::Forwarding(Forwarding::Prefix) => Some(url.prefix),
                // a list in which it is not known which proxy wrote which part
                FieldKind::Forwarding(Forwarding::For) if from.names_client => {
                    self.add_text(&name, |out| text::address(from.client.to_canonical(), out));
                    continue;
                }
                FieldKind::Forwarding(Forwarding::RealIp) => {
                    self.add_text(&name, |out| text::address(from.client.to_canonical(), out));
                    continue;
                }
                _ => None,
            };
            if let Some(one) = one {
                // a list may end with a comma
                if let Some(one) = one {
                    self.add(&name, &[one]);
                }
                continue;
            }
            let others = head.fields().skip(at + 1).filter(is_same);
            if kind(field) == FieldKind::Cookie {
                let all = std::iter::once(value).chain(others.map(|(_, value)| value));
                if let Some(cookies) = cookies::join(all, hidden) {
                    self.add(&name, &[&cookies]);
                }
                continue;
            }
            let mut values = vec![value];
            others.for_each(|(_, value)| values.extend([b", ".as_slice(), value]));
            self.add(&name, &values);
        }
        let is_given = given.iter().any(|(other, _)| names::is_same(other, "x-real-ip"));
        // only if a proxy has sent it; a stage does not repeat the field itself
        if from.is_of_stage && !is_given && sent_fields::has(head, Forwarding::RealIp) {
            self.add_text("HTTP_X_REAL_IP", |out| text::address(from.client.to_canonical(), out));
        }
        for (field, value) in given {
            if let Some(value) = value {
                variable(field, &mut name);
                self.add(&name, &[value]);
            }
        }
        if let Some(told) = trace {
            self.add("HTTP_TRACEPARENT", &[&told.context.text()]);
            let mut state = Vec::new();
            if told.keeps_state {
                trace_context::push_state(head, &mut state);
            }
            if !state.is_empty() {
                self.add("HTTP_TRACESTATE", &[&state]);
            }
        }
        if from.tells_forwarded {
            self.add_text("HTTP_FORWARDED", |out| from.push_forwarded(head, out));
        }
        match valid_id(head).filter(|_| from.is_trusted) {
            Some(theirs) => self.add("HTTP_X_REQUEST_ID", &[theirs]),
            None => self.add_text("HTTP_X_REQUEST_ID", |out| text::hexadecimal(id, out)),
        }
    }
}

/// The name of the variable for a field.
fn variable(field: &str, name: &mut String) {
    name.clear();
    name.push_str("HTTP_");
    for character in field.chars() {
        let character = if character == '-' { '_' } else { character.to_ascii_uppercase() };
        // writing into a string does not fail
        let _ = name.write_char(character);
    }
}

#[cfg(test)]
mod tests {
    use super::super::end_of_stdin;
    use super::super::record::tests::received;
    use super::*;
    use crate::messages::request::From;
    use forebay_conn::HeadValues;
    use forebay_http::forwarded::ForwardedFamily;
    use forebay_http::head::{Head, HeadLimits, Lines, ParsedHead};
    use forebay_http::path;
    use std::collections::HashMap;

    const STRANGER: From = From {
        nearest: std::net::IpAddr::V4(std::net::Ipv4Addr::new(203, 0, 113, 9)),
        client: std::net::IpAddr::V4(std::net::Ipv4Addr::new(203, 0, 113, 9)),
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

    fn told(
        text: &str,
        from: From,
        body_bytes: u64,
    ) -> Result<HashMap<String, String>, TargetRefusal> {
        let mut lines = Lines::new();
        let parsed = Head::parse(text.as_bytes(), &mut lines, &HeadLimits::default());
        let Ok(ParsedHead::Complete(head)) = parsed else { panic!("{text:?}: {parsed:?}") };
        let mut judged = Vec::new();
        path::normalise(head.path, &mut judged).unwrap();
        let at =
            judged.windows(5).position(|five| five == b".php/").map_or(judged.len(), |at| at + 4);
        let (name, path_info) = judged.split_at(at);
        let script = ScriptPath { name, path_info, file: None };
        let mut values = HeadValues::default();
        values.end();
        values.push(b"ada%");
        values.end();
        let request = UpstreamRequest {
            head: &head,
            judged: target::JudgedPath::Normal(&judged),
            rewritten: None,
            from,
            id: 0xabc,
            hidden: None,
            given: &[],
            trace: None,
            values: &values,
        };
        let params = Params {
            request,
            script,
            body_bytes: Some(body_bytes),
            local: "192.0.2.1:8080".parse().unwrap(),
            remote_port: 4711,
            user: Some("alice"),
        };
        let fixed = |text: &str| SetValue::Fixed(text.into());
        let set = vec![
            ("APP_ENV".into(), fixed("test")),
            ("SERVER_SOFTWARE".into(), fixed("x")),
            ("OF_REQUEST".into(), SetValue::OfRequest(1)),
            // an empty value removes the variable; the client's own is not sent either
            ("HTTP_X_EMPTY".into(), SetValue::OfRequest(0)),
        ];
        let settings = ScriptSettings {
            root: b"/srv/www".as_slice().into(),
            set,
            ..ScriptSettings::default()
        };
        let mut out = Vec::new();
        write(&params, &settings, &mut out)?;
        end_of_stdin(&mut out);
        let (pairs, _) = received(&out);
        let count = pairs.len();
        let pairs: HashMap<_, _> = pairs.into_iter().collect();
        assert_eq!(pairs.len(), count, "no name is there twice");
        Ok(pairs)
    }

    #[test]
    fn a_script_is_told_of_its_request() {
        let text = "POST /blog/a%20b.php/x?q=1&r HTTP/1.1\r\nHost: Shop.example:8080\r\n\
                    Content-Type: text/plain\r\nContent-Length: 5\r\nCookie: a=b\r\nAccept: x\r\n\
                    cookie: c=d\r\naccept: y\r\nX-Empty: z\r\nAuthorization: Basic eDp5\r\n\r\n";
        let told = told(text, STRANGER, 5).unwrap();
        for (name, value) in [
            ("GATEWAY_INTERFACE", "CGI/1.1"),
            ("SERVER_SOFTWARE", "x"),
            ("SERVER_PROTOCOL", "HTTP/1.1"),
            ("REQUEST_METHOD", "POST"),
            ("REQUEST_URI", "/blog/a%20b.php/x?q=1&r"),
            ("QUERY_STRING", "q=1&r"),
            ("CONTENT_LENGTH", "5"),
            ("CONTENT_TYPE", "text/plain"),
            ("REDIRECT_STATUS", "200"),
            ("DOCUMENT_ROOT", "/srv/www"),
            ("SCRIPT_FILENAME", "/srv/www/blog/a b.php"),
            ("SCRIPT_NAME", "/blog/a b.php"),
            ("DOCUMENT_URI", "/blog/a b.php/x"),
            ("PATH_INFO", "/x"),
            ("REQUEST_SCHEME", "http"),
            ("SERVER_NAME", "Shop.example"),
            ("SERVER_PORT", "8080"),
            ("SERVER_ADDR", "192.0.2.1"),
            ("REMOTE_ADDR", "203.0.113.9"),
            ("REMOTE_PORT", "4711"),
            ("REMOTE_USER", "alice"),
            ("AUTH_TYPE", "Basic"),
            ("APP_ENV", "test"),
            ("OF_REQUEST", "ada%25"),
            ("HTTP_HOST", "Shop.example:8080"),
            ("HTTP_COOKIE", "a=b; c=d"),
            ("HTTP_ACCEPT", "x, y"),
            ("HTTP_AUTHORIZATION", "Basic eDp5"),
            ("HTTP_X_REQUEST_ID", "00000000000000000000000000000abc"),
        ] {
            assert_eq!(told.get(name).map(String::as_str), Some(value), "{name}");
        }
        assert_eq!(told.len(), 29, "{told:?}");
    }

    #[test]
    fn strangers_set_no_variables_of_others() {
        let text = "GET / HTTP/1.1\r\nHost: a\r\nProxy: http://evil.example\r\nX_Real_IP: 1.1.1.1\r\n\
                    X-Forwarded-For: 1.1.1.1\r\nX-Forwarded-Proto: https\r\nX-Request-Id: mine\r\n\
                    X_Custom: a\r\nX.Real.IP: 1.1.1.1\r\nX.User: a\r\nX~A: b\r\nConnection: keep-alive\r\nTE: x\r\nHTTPS: on\r\n\r\n";
        let told_stranger = told(text, STRANGER, 0).unwrap();
        let of_fields: Vec<_> =
            told_stranger.keys().filter(|name| name.starts_with("HTTP")).collect();
        assert_eq!(of_fields.len(), 3, "{of_fields:?}");
        assert_eq!(told_stranger["HTTP_HTTPS"], "on");
        assert!(!told_stranger.contains_key("HTTPS"));
        assert_eq!(told_stranger["CONTENT_LENGTH"], "");
        let proxy = From { is_trusted: true, is_secure: true, ..STRANGER };
        let told_proxy = told(text, proxy, 0).unwrap();
        assert_eq!(told_proxy["HTTPS"], "on");
        assert_eq!(told_proxy["HTTP_X_FORWARDED_PROTO"], "https");
        assert_eq!(told_proxy["HTTP_X_FORWARDED_FOR"], "1.1.1.1");
        assert_eq!(told_proxy["HTTP_X_REQUEST_ID"], "mine");
        assert!(!told_proxy.contains_key("HTTP_X_REAL_IP"));
        assert!(!told_proxy.contains_key("HTTP_PROXY"));
    }

    #[test]
    fn behind_a_stage_a_script_is_told_what_a_proxy_has_sent() {
        let stage = From { is_trusted: true, is_of_stage: true, ..STRANGER };
        let names = ["FOR", "PROTO", "HOST"].map(|name| format!("HTTP_X_FORWARDED_{name}"));
        for (sent, expected) in [
            ("", [false; 4]),
            ("Forebay-Sent: for, real-ip\r\n", [true, false, false, true]),
            ("Forebay-Sent: proto, host\r\n", [false, true, true, false]),
        ] {
            let text = format!(
                "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 203.0.113.9\r\nX-Forwarded-Proto: http\r\n\
                 X-Forwarded-Host: b.example\r\n{sent}\r\n"
            );
            let told = told(&text, stage, 0).unwrap();
            let found = [0, 1, 2].map(|at| told.contains_key(&names[at]));
            assert_eq!(
                (&found[..], told.contains_key("HTTP_X_REAL_IP")),
                (&expected[..3], expected[3]),
                "{sent}"
            );
            assert!(!told.contains_key("HTTP_FOREBAY_SENT"));
        }
    }

    /// A list that proxies have put together is not passed on beside the right value.
    #[test]
    fn a_script_is_told_one_scheme() {
        for lines in [
            "X-Forwarded-Proto: http, https\r\n",
            "X-Forwarded-Proto: https\r\nx-forwarded-proto: http\r\n",
        ] {
            let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
            for (is_secure, expected) in [(true, "https"), (false, "http")] {
                let proxy = From { is_trusted: true, is_secure, ..STRANGER };
                let told = told(&text, proxy, 0).unwrap();
                assert_eq!(told["REQUEST_SCHEME"], expected, "{lines}");
                assert_eq!(told["HTTP_X_FORWARDED_PROTO"], expected, "{lines}");
                assert_eq!(told.contains_key("HTTPS"), is_secure, "{lines}");
            }
        }
    }

    #[test]
    fn a_script_is_told_one_address_of_the_clients() {
        let text = "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-Host: x, b.example\r\nX-Forwarded-Port: 1\r\n\
                    X-Forwarded-Port: 2\r\nX-Forwarded-Prefix: /p,\r\nX-Real-IP: 1.1.1.1\r\n\
                    Forwarded: for=6.6.6.6, for=1.1.1.1;host=c.example\r\nX-Original-URL: /x\r\n\r\n";
        let proxy = From { is_trusted: true, ..STRANGER };
        let told_x = told(text, proxy, 0).unwrap();
        for (name, value) in [
            ("HTTP_X_FORWARDED_HOST", Some("b.example")),
            ("HTTP_X_FORWARDED_PORT", Some("2")),
            ("HTTP_X_FORWARDED_PREFIX", None),
            ("HTTP_X_REAL_IP", Some("203.0.113.9")),
            ("HTTP_X_ORIGINAL_URL", Some("/x")),
            ("HTTP_FORWARDED", None),
        ] {
            assert_eq!(told_x.get(name).map(String::as_str), value, "{name}");
        }
        let family = ForwardedFamily::Forwarded;
        let counted = From { family, elements: 1, tells_forwarded: true, ..proxy };
        let told_forwarded = told(text, counted, 0).unwrap();
        let names = told_forwarded.keys().filter(|name| name.starts_with("HTTP_X_"));
        let mut names: Vec<_> = names.collect();
        names.sort();
        assert_eq!(names, ["HTTP_X_ORIGINAL_URL", "HTTP_X_REQUEST_ID"]);
        let expected = "for=1.1.1.1;host=c.example, for=203.0.113.9;host=a;proto=http";
        assert_eq!(told_forwarded["HTTP_FORWARDED"], expected);
    }

    #[test]
    fn what_is_ambiguous_is_refused() {
        let ask =
            |line: &str| told(&format!("{line} HTTP/1.1\r\nHost: a\r\n\r\n"), STRANGER, 0).err();
        assert!(matches!(ask("GET /a//b.php"), Some(TargetRefusal::Ambiguous(_))));
        assert_eq!(ask("TRACE /b.php"), Some(TargetRefusal::Method));
        assert_eq!(ask("GET http://b.example/x.php"), None);
        for (authority, expected) in
            [("a", "a"), ("a:80", "a"), ("[::1]", "[::1]"), ("[::1]:80", "[::1]")]
        {
            assert_eq!(client_url::split(authority.as_bytes()).0, expected.as_bytes());
        }
    }
}
