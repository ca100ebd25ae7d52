//! Rules of a site that depend on the request, asked for with real bytes: no client gets what is for
//! another.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed check panics")]

use forebay_tests::answer::Answer;
use forebay_tests::faults::site::Folder;
use forebay_tests::{Options, Server, wire};
use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::thread;

/// Asks once, on a connection of its own.
fn ask(server: &Server, method: &str, target: &str, fields: &str) -> Answer {
    let body = if method == "POST" { "abc" } else { "" };
    let request = format!(
        "{method} {target} HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n{fields}\r\n{body}"
    );
    let bytes = wire::exchange(server.addr(), request.as_bytes());
    let (mut answer, head_len) = Answer::parse_head(&bytes).unwrap().unwrap();
    answer.body = bytes[head_len..].to_vec();
    answer
}

fn start(engine: &str, folder: &Folder, config: &str) -> Server {
    Server::start(&Options::new(folder.path()).engine(engine).config(config))
}

forebay_tests::on_each_engine! {
    each_origin_is_told_itself,
    a_redirect_depends_on_a_cookie,
    routes_and_rewrites_depend_on_the_request,
    classes_and_clients_are_told_apart,
    values_are_the_requests_own,
    an_access_rule_is_for_the_requests_it_names,
}

forebay_tests::on_isolated! {
    each_origin_is_told_itself,
    a_redirect_depends_on_a_cookie,
    routes_and_rewrites_depend_on_the_request,
    values_are_the_requests_own,
    an_access_rule_is_for_the_requests_it_names,
}

/// Three lines for each origin, and clients of several origins side by side.
fn each_origin_is_told_itself(engine: &str) {
    const CORS: &str = r#"
[[header]]
header = "Origin=https://a.example"
set = { "Access-Control-Allow-Origin" = "https://a.example" }
[[header]]
header = "Origin=https://b.example"
set = { "Access-Control-Allow-Origin" = "https://b.example" }
[[header]]
method = "OPTIONS"
header = ["Origin=https://a.example", "Origin=https://b.example"]
set = { "Access-Control-Allow-Methods" = "GET, HEAD" }
"#;
    let folder = Folder::new();
    folder.write("index.html", "the page");
    folder.write("a.txt", "a text that is sent in a coding to those who like it".repeat(20));
    let server = start(engine, &folder, CORS);
    let check = |origin: &str, coding: &str| {
        for (method, target, status) in [
            ("GET", "/", 200),
            ("GET", "/a.txt", 200),
            ("OPTIONS", "/a.txt", 204),
            ("GET", "/x", 404),
        ] {
            let fields = match origin {
                "" => coding.to_owned(),
                origin => format!("Origin: {origin}\r\n{coding}"),
            };
            let answer = ask(&server, method, target, &fields);
            let is_known = ["https://a.example", "https://b.example"].contains(&origin);
            let allowed = answer.value("access-control-allow-origin");
            assert_eq!(allowed, is_known.then_some(origin), "{method} {target} {fields}");
            let methods = answer.value("access-control-allow-methods");
            assert_eq!(methods.is_some(), is_known && method == "OPTIONS", "{method} {fields}");
            let vary = answer.value("vary").unwrap_or_default();
            assert!(vary.contains("Origin"), "{method} {target} {fields}: {vary}");
            assert_eq!(answer.status, status, "{method} {target}");
        }
    };
    let check = &check;
    thread::scope(|scope| {
        for origin in ["https://a.example", "https://b.example", "https://c.example", ""] {
            for coding in ["", "Accept-Encoding: gzip\r\n"] {
                scope.spawn(move || (0..4).for_each(|_| check(origin, coding)));
            }
        }
    });
}

/// Clients of several kinds, side by side: each gets its application, or its file.
fn routes_and_rewrites_depend_on_the_request(engine: &str) {
    let (beta, write) = (answering("beta"), answering("write"));
    let config = format!(
        "[[proxy]]\npath = \"/shop\"\nto = \"http://{beta}\"\nwhen.cookie = \"beta=1\"\n\
         [[proxy]]\npath = \"/shop\"\nto = \"http://{write}\"\nwhen.method = [\"POST\", \"PUT\"]\n\
         [[rewrite]]\npath = \"/shop/*\"\nquery = \"lang=de\"\nto = \"/de/$1\"\n"
    );
    let folder = Folder::new();
    folder.write("shop/a.txt", "the shop");
    folder.write("de/a.txt", "der Laden");
    let server = &start(engine, &folder, &config);
    let check = |method: &str, query: &str, fields: &str, expected: &str| {
        for _ in 0..4 {
            let answer = ask(server, method, &format!("/shop/a.txt{query}"), fields);
            let body = String::from_utf8_lossy(&answer.body);
            assert_eq!(
                (answer.status, &*body),
                (200, expected),
                "{engine} {method} {query} {fields}"
            );
            let vary = answer.value("vary").unwrap_or_default();
            assert!(vary.contains("Cookie"), "{engine} {method} {fields}: {vary}");
        }
    };
    let check = &check;
    thread::scope(|scope| {
        for (method, query, fields, expected) in [
            ("GET", "", "", "the shop"),
            ("GET", "", "Cookie: beta=1\r\n", "beta"),
            ("GET", "", "Cookie: beta=2\r\n", "the shop"),
            ("POST", "", "Content-Length: 3\r\n", "write"),
            ("POST", "", "Cookie: beta=1\r\nContent-Length: 3\r\n", "beta"),
            ("GET", "?lang=de", "", "der Laden"),
        ] {
            scope.spawn(move || check(method, query, fields, expected));
        }
    });
}

/// An application that answers each request with a text.
fn answering(text: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                let mut reader = BufReader::new(stream);
                let mut head = String::new();
                while reader.read_line(&mut head).is_ok_and(|read| read > 0) {
                    if !head.ends_with("\r\n\r\n") {
                        continue;
                    }
                    if head.starts_with("POST") && reader.read_exact(&mut [0; 3]).is_err() {
                        return;
                    }
                    let length = text.len();
                    let said = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{text}");
                    if reader.get_mut().write_all(said.as_bytes()).is_err() {
                        return;
                    }
                    head.clear();
                }
            });
        }
    });
    addr
}

/// A client with the cookie is redirected, whatever was cached for others.
fn a_redirect_depends_on_a_cookie(engine: &str) {
    const BETA: &str = r#"
[[redirect]]
path = "/shop/*"
cookie = "beta=1"
to = "/beta/$1"
status = 302
"#;
    let folder = Folder::new();
    folder.write("shop/a.html", "the shop");
    let server = start(engine, &folder, BETA);
    for _ in 0..3 {
        let answer = ask(&server, "GET", "/shop/a.html", "");
        assert_eq!((answer.status, answer.value("location")), (200, None));
        let answer = ask(&server, "GET", "/shop/a.html", "Cookie: a=b; beta=1\r\n");
        assert_eq!((answer.status, answer.value("location")), (302, Some("/beta/a.html")));
        assert!(answer.value("vary").unwrap_or_default().contains("Cookie"));
    }
}

/// Conditions on the class that rules have given a request, and on the client.
fn classes_and_clients_are_told_apart(engine: &str) {
    const GOLD: &str = r#"
trusted_proxies = ["127.0.0.1"]
[[class]]
name = "gold"
priority = 0
[[class]]
name = "rest"
priority = 1
default = true
[[rule]]
cookie = "tier=gold"
class = "gold"
[[rule]]
path = "/closed"
action = "reject"
[[header]]
class = "gold"
set = { "X-Gold" = "yes" }
[[header]]
client = "192.0.2.0/24"
set = { "X-Near" = "yes" }
[[header]]
scheme = "https"
set = { "X-Safe" = "yes" }
"#;
    let folder = Folder::new();
    folder.write("a.txt", "a");
    let server = start(engine, &folder, GOLD);
    for round in 0..16 {
        let is = |bit: u32| round & 1 << bit != 0;
        let (tier, client) =
            (if is(0) { "gold" } else { "" }, if is(1) { "192.0.2.7" } else { "10.0.0.1" });
        let scheme = if is(2) { "https" } else { "http" };
        let fields = format!(
            "Cookie: tier={tier}\r\nX-Forwarded-For: {client}\r\nX-Forwarded-Proto: {scheme}\r\n"
        );
        let answer = ask(&server, "GET", "/a.txt", &fields);
        let got = ["x-gold", "x-near", "x-safe"].map(|name| answer.value(name).is_some());
        assert_eq!(got, [is(0), is(1), is(2)], "{fields}");
        assert_eq!(answer.value("vary"), Some("*"), "{fields}");
        // a request that rules refuse gets the fields without those of its class
        let answer = ask(&server, "GET", "/closed", &fields);
        let got = ["x-gold", "x-near", "x-safe"].map(|name| answer.value(name).is_some());
        assert_eq!((answer.status, got), (403, [false, is(1), is(2)]), "{fields}");
    }
}

/// The ids of requests, in answers and in the log.
fn values_are_the_requests_own(engine: &str) {
    const VALUES: &str = r#"
trusted_proxies = ["127.0.0.1"]
[[header]]
set = { "X-Request-Id" = "$request_id", "X-All" = "$scheme://$host$path;$client;$query.q;$cookie.c" }
[[header]]
header = "Origin=~^https://[a-z]+[.]example$"
set = { "Access-Control-Allow-Origin" = "$header.Origin" }
[[redirect]]
path = "/login"
to = "https://in.example/?back=$path&from=$header.Referer"
status = 302
"#;
    let folder = Folder::new();
    folder.write("a.txt", "a text that is sent in a coding to those who like it".repeat(20));
    let server = start(engine, &folder, VALUES);
    let server = &server;
    let check = |client: u32| {
        let mut ids = HashSet::new();
        for round in 0..8 {
            let origin = format!("https://{}.example", ["a", "b", "c", "d"][client as usize]);
            let coding = if round % 2 == 0 { "Accept-Encoding: gzip\r\n" } else { "" };
            let fields = format!(
                "X-Forwarded-For: 192.0.2.{client}\r\nOrigin: {origin}\r\nCookie: c={round}\r\n{coding}"
            );
            for (target, status) in [("/a.txt", 200), ("/none", 404)] {
                let target = format!("{target}?q=%0d%0aX-Evil:%20{client}");
                let answer = ask(server, "GET", &target, &fields);
                let path = target.split('?').next().unwrap();
                let all = format!(
                    "http://shop.example{path};192.0.2.{client};%0D%0AX-Evil: {client};{round}"
                );
                assert_eq!(answer.status, status, "{target}");
                assert_eq!(answer.value("x-all"), Some(&*all), "{target}");
                assert_eq!(answer.value("access-control-allow-origin"), Some(&*origin), "{target}");
                assert_eq!(answer.value("x-evil"), None);
                let id = answer.value("x-request-id").unwrap();
                assert!(id.len() == 32 && ids.insert(id.to_owned()), "{id}");
            }
            let referer = format!("Referer: http://a/{client}?x=y&z\r\n");
            let answer = ask(server, "GET", "/login", &referer);
            let to = format!("https://in.example/?back=/login&from=http://a/{client}%3Fx%3Dy%26z");
            assert_eq!(answer.value("location"), Some(&*to));
        }
        // an id that a trusted proxy has given
        let answer = ask(server, "GET", "/a.txt", "X-Request-Id: given-by-a-proxy\r\n");
        assert_eq!(answer.value("x-request-id"), Some("given-by-a-proxy"));
    };
    let check = &check;
    thread::scope(|scope| {
        for client in 0..4 {
            scope.spawn(move || check(client));
        }
    });
}

/// Robots are kept out of a folder, and people are not.
fn an_access_rule_is_for_the_requests_it_names(engine: &str) {
    const ROBOTS: &str = r#"
[[access]]
path = "/in"
header = "User-Agent=*bot*"
ignore_case = true
deny = ["all"]
"#;
    let folder = Folder::new();
    folder.write("in/a.txt", "a");
    let server = start(engine, &folder, ROBOTS);
    for _ in 0..3 {
        for (agent, status) in [("curl", 200), ("A-Bot/1", 403), ("Mozilla", 200), ("robot", 403)] {
            let answer = ask(&server, "GET", "/in/a.txt", &format!("User-Agent: {agent}\r\n"));
            assert_eq!(
                (answer.status, answer.value("vary")),
                (status, Some("User-Agent")),
                "{agent}"
            );
        }
    }
}

/// The same bytes through HTTP/2.
#[test]
fn places_are_filled_in_http2_too() {
    let folder = Folder::new();
    folder.write("a.txt", "a");
    let config = "[[header]]\nset = { \"X-All\" = \"$path;$header.x-one\", \"X-None\" = \"$cookie.none\" }\n";
    let server = start("event", &folder, config);
    let mut client = forebay_tests::http2::Client::connect(server.addr());
    for one in ["1", "2", "3"] {
        for (path, status) in [("/a.txt", 200), ("/none", 404)] {
            let stream = client.begin("GET", path, &[("x-one", one)], true);
            let answer = client.answer(stream);
            assert_eq!(answer.status, status);
            assert_eq!(answer.field("x-all"), Some(&*format!("{path};{one}")));
            assert_eq!(
                (answer.field("x-none"), answer.field("vary")),
                (None, Some("x-one, Cookie"))
            );
        }
    }
}
