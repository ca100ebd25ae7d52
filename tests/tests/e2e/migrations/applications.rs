//! Applications that speak HTTP.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use forebay_tests::migration::{APPLICATIONS, Migration, Reached, Seen, request, site, whole};
use forebay_tests::node::NodeServer;
use forebay_tests::wire;
use std::net::SocketAddr;

/// Asks for answers of every kind below this path.
fn look_at_answers(seen: &mut Seen, addr: SocketAddr, at: &str) {
    for line in [
        "GET /hello",
        "GET /told",
        "GET /hello?a=1&b=%20x",
        "GET /a%20b/c%C3%A4",
        "GET /encoded%2Fslash",
        "GET /a//b",
        "GET /a/../b",
        "GET /semi;x=1/c",
        "GET /cookies",
        "GET /moved",
        "GET /moved?to=/elsewhere",
        "GET /moved?to=http://other.example/",
        "GET /none",
        "GET /missing",
        "GET /broken",
        "GET /busy",
        "GET /crash",
        "GET /tagged",
        "GET /chunks",
        "GET /page",
        "GET /big",
        "GET /file",
        "GET /trailers",
        "GET /hints",
        "HEAD /hello",
        "HEAD /big",
        "OPTIONS /hello",
        "DELETE /hello",
        "PATCH /hello",
        "PROPFIND /hello",
        "TRACE /hello",
    ] {
        let line = line.replacen(" /", &format!(" {at}/"), 1);
        seen.ask(addr, &line, &[], b"");
    }
    let get = |path: &str| format!("GET {at}/{path}");
    for (path, field) in [
        ("tagged", "If-None-Match: \"app-1\""),
        ("tagged", "If-None-Match: \"other\""),
        ("part", "Range: bytes=2-4"),
        ("told", "X-Forwarded-Proto: https"),
        ("told", "X-Real-IP: 192.0.2.1"),
        ("told", "X-Forwarded-For: 192.0.2.1"),
        ("hello", "X_Custom: under"),
        ("hello", "X-Custom: a"),
        ("hello", "Cookie: a=1; b=2"),
        ("hello", "Authorization: Basic YTpi"),
        ("hello", "Proxy: http://evil.example/"),
        ("hello", "Keep-Alive: 5"),
        ("hello", "Accept-Encoding: gzip"),
        ("hello", "Origin: http://app.example"),
    ] {
        seen.ask(addr, &get(path), &[field], b"");
    }
    let answer = seen.ask(addr, &format!("POST {at}/form"), &["Content-Type: text/x"], b"a=1&b=2");
    assert_eq!(answer.status, 200, "{answer:?}");
    let chunks = b"4\r\nabcd\r\n2\r\nef\r\n0\r\n\r\n";
    seen.ask(addr, &format!("PUT {at}/form"), &["Transfer-Encoding: chunked"], chunks);
    seen.ask(addr, &get("page"), &["Accept-Encoding: gzip"], b"");
    // an answer that is cut is seen to be cut
    let bytes = wire::exchange(addr, &request(&get("cut"), &[], b""));
    let is_cut = whole(&bytes, false).is_err();
    seen.note(&get("cut"), "is seen to be cut", is_cut.to_string());
}

#[test]
fn one_application() {
    let test = "migrations::one_application";
    let Some(node) = NodeServer::start("one", test) else { return };
    let case = Migration::read(APPLICATIONS, "## One application");
    let case = case.with("127.0.0.1:3000", node.addr());
    case.compare(test, |Reached { addr, .. }, seen| {
        look_at_answers(seen, addr, "");
        let large = vec![b'x'; (10 << 20) + 1];
        for (what, body) in [("10 MiB", &large[1..]), ("10 MiB and a byte", &large)] {
            seen.ask_as(&format!("POST {what}"), addr, "POST /upload", &[], body);
        }
    });
}

#[test]
fn several_applications() {
    let test = "migrations::several_applications";
    let started = ["one", "two", "three"].map(|name| NodeServer::start(name, test));
    let [Some(one), Some(two), Some(three)] = started else { return };
    let folder = site(&[("root/index.html", "home"), ("root/shop.html", "a page")]);
    let case = Migration::read(APPLICATIONS, "## Several applications")
        .with("127.0.0.1:3001", one.addr())
        .with("127.0.0.1:3002", two.addr())
        .with("127.0.0.1:3003", three.addr())
        .with_folder("/srv/www", &folder.join("root"));
    case.compare(test, |Reached { addr, .. }, seen| {
        let ask = |line: &str| {
            let bytes = wire::exchange(addr, &request(line, &[], b""));
            whole(&bytes, false).unwrap()
        };
        let mut names: Vec<_> = (0..12)
            .map(|_| ask("GET /shop/hello").value("X-App").unwrap_or("none").to_owned())
            .collect();
        names.sort();
        names.dedup();
        seen.note("GET /shop/hello, often", "X-App", names.join(" "));
        for line in [
            "GET /",
            "GET /shop",
            "GET /shop.html",
            "GET /shopping",
            "GET /shop/",
            "GET /shop/a/b?c=d",
            "GET /shop/told",
            "GET /shop/a%20b",
            "GET /shop/../index.html",
            "POST /shop/order",
            "GET /shop/moved?to=/elsewhere",
            "GET /shop/moved?to=http://other.example/",
            "GET /shop/cookies",
        ] {
            let answer = ask(line);
            // the choice of the application depends on the order
            let mut answer = answer.clone();
            answer.fields.retain(|(name, _)| name != "X-App");
            seen.note_answer(line, &answer, false);
        }
    });
}

#[test]
fn one_of_several_is_gone() {
    let test = "migrations::one_of_several_is_gone";
    let started = ["one", "two", "three"].map(|name| NodeServer::start(name, test));
    let [Some(one), Some(two), Some(three)] = started else { return };
    let folder = site(&[]);
    let case = Migration::read(APPLICATIONS, "## Several applications")
        .with("127.0.0.1:3001", one.addr())
        .with("127.0.0.1:3002", two.addr())
        .with("127.0.0.1:3003", three.addr())
        .with_folder("/srv/www", &folder.join("root"));
    drop(three);
    case.without_table().compare(test, |Reached { addr, .. }, seen| {
        for number in 0..12 {
            let line = ["GET /shop/hello", "POST /shop/order"][number % 2];
            let request = request(line, &[], b"");
            let answer = wire::exchange(addr, &request);
            let answer = whole(&answer, false).unwrap();
            seen.note(&format!("{line}, number {number}"), "status", answer.status.to_string());
            assert_eq!(answer.status, 200, "{answer:?}");
        }
    });
}

#[test]
fn a_page_and_its_api() {
    let test = "migrations::a_page_and_its_api";
    let Some(node) = NodeServer::start("api", test) else { return };
    let folder = site(&[
        ("root/index.html", "<title>app</title>"),
        ("root/assets/app.1f3a.js", "console.log('app')"),
        ("root/assets/app.css", "a {}"),
        ("root/favicon.ico", "icon"),
        ("root/about/team.html", "team"),
        ("root/api.html", "about the api"),
        ("root/.env", "secret"),
        ("root/data.json", "{}"),
    ]);
    let case = Migration::read(APPLICATIONS, "## A single-page application and its API")
        .with("127.0.0.1:3000", node.addr())
        .with_folder("/srv/app", &folder.join("root"));
    case.compare(test, |Reached { addr, .. }, seen| {
        for line in [
            "GET /",
            "HEAD /",
            "GET /index.html",
            "GET /orders/7",
            "GET /orders/7?tab=2",
            "GET /about",
            "GET /about/",
            "GET /about/team.html",
            "GET /assets",
            "GET /assets/",
            "GET /assets/app.1f3a.js",
            "GET /assets/app.css?v=2",
            "GET /assets/none.js",
            "GET /assets/../index.html",
            "GET /assetsx/a",
            "GET /favicon.ico",
            "GET /data.json",
            "GET /.env",
            "GET /api",
            "GET /api/",
            "GET /api.html",
            "GET /api/users?page=2",
            "GET /api/missing",
            "GET /api/broken",
            "DELETE /api/users/7",
            "POST /api/users",
            "POST /orders/7",
            "PUT /index.html",
            "OPTIONS /index.html",
        ] {
            seen.ask(addr, line, &[], b"");
        }
        let answer = seen.ask_as("an asset", addr, "GET /assets/app.css", &[], b"");
        let tag = format!("If-None-Match: {}", answer.value("ETag").unwrap());
        let date = format!("If-Modified-Since: {}", answer.value("Last-Modified").unwrap());
        for (asked, field) in [
            ("an asset by its tag", &*tag),
            ("an asset by its date", &*date),
            ("an asset by an old tag", "If-None-Match: \"old\""),
            ("a part of an asset", "Range: bytes=1-2"),
            ("the end of an asset", "Range: bytes=-2"),
            ("no part of an asset", "Range: bytes=90-"),
            ("parts of an asset that are no bytes", "Range: lines=1-2"),
        ] {
            seen.ask_as(asked, addr, "GET /assets/app.css", &[field], b"");
        }
    });
}

#[test]
fn uploads() {
    let test = "migrations::uploads";
    let Some(node) = NodeServer::start("uploads", test) else { return };
    let case = Migration::read(APPLICATIONS, "## Uploads").with("127.0.0.1:3000", node.addr());
    case.compare(test, |Reached { addr, .. }, seen| {
        for (path, limit) in [("/upload", 4usize << 20), ("/avatar", 64 << 10)] {
            let body = vec![b'x'; limit + 1];
            // the engine isolated counts the lines of chunks, too, where no other limit is larger
            for (what, body) in [
                ("nothing", &body[..0]),
                ("a byte", &body[..1]),
                ("8 KiB less", &body[..limit - (8 << 10)]),
                ("a byte more", &body[..]),
            ] {
                let asked = format!("PUT {path}: {what} in chunks");
                let fields = &["Transfer-Encoding: chunked"];
                seen.ask_as(&asked, addr, &format!("PUT {path}"), fields, &chunks(body));
            }
            for (what, body) in [
                ("nothing", &body[..0]),
                ("a byte", &body[..1]),
                ("a byte less", &body[..limit - 1]),
                ("as much as may be", &body[..limit]),
                ("a byte more", &body[..]),
            ] {
                seen.ask_as(
                    &format!("POST {path}: {what}"),
                    addr,
                    &format!("POST {path}"),
                    &[],
                    body,
                );
            }
            let asked = format!("POST {path}: far too much, which waits for 100");
            let fields = &["Content-Length: 99999999999", "Expect: 100-continue"];
            seen.ask_as(&asked, addr, &format!("POST {path}"), fields, b"");
            seen.note(&format!("POST {path}"), "waits for 100", waits_for_100(addr, path));
            for (what, fields, body) in [
                ("a length of letters", &["Content-Length: abc"][..], &b""[..]),
                ("two lengths", &["Content-Length: 1", "Content-Length: 2"], b"ab"),
                (
                    "a length and chunks",
                    &["Content-Length: 3", "Transfer-Encoding: chunked"],
                    b"0\r\n\r\n",
                ),
                ("a chunk of letters", &["Transfer-Encoding: chunked"], b"zz\r\n"),
                ("a coding nobody knows", &["Transfer-Encoding: gzip"], b""),
            ] {
                let asked = format!("POST {path}: {what}");
                seen.ask_as(&asked, addr, &format!("POST {path}"), fields, body);
            }
        }
        seen.ask(addr, "GET /elsewhere", &[], b"");
        seen.ask(addr, "POST /uploads/more", &[], b"abc");
    });
}

/// A body in chunks of 10,000 bytes.
fn chunks(body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for piece in body.chunks(10_000) {
        bytes.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
        bytes.extend_from_slice(piece);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"0\r\n\r\n");
    bytes
}

/// The answer to a body that is sent only after 100 Continue.
fn waits_for_100(addr: SocketAddr, path: &str) -> String {
    use std::io::Write;
    use std::time::Instant;
    let fields = ["Expect: 100-continue", "Content-Length: 3"];
    let mut stream = wire::connect(addr);
    let line = format!("POST {path}");
    stream.write_all(&request(&line, &fields, b"")).unwrap();
    let (mut bytes, deadline) = (Vec::new(), Instant::now() + wire::PATIENCE);
    while !bytes.ends_with(b"\r\n\r\n") {
        let end = wire::read_some(&mut stream, &mut bytes, deadline);
        assert_eq!(end, None, "{}", String::from_utf8_lossy(&bytes));
    }
    let first = String::from_utf8_lossy(&bytes[9..12]).into_owned();
    stream.write_all(b"abc").unwrap();
    let (rest, _) = wire::read_to_end(&mut stream, wire::PATIENCE);
    let answer = whole(&rest, false).unwrap();
    format!("{first}, then {}", answer.status)
}

#[test]
fn somebody_else_decides() {
    let test = "migrations::somebody_else_decides";
    let started = ["decider", "application"].map(|name| NodeServer::start(name, test));
    let [Some(decider), Some(node)] = started else { return };
    let folder =
        site(&[("root/public/page.html", "for everybody"), ("root/closed.html", "closed")]);
    let case = Migration::read(APPLICATIONS, "## Somebody else decides")
        .with("127.0.0.1:3000", node.addr())
        .with("127.0.0.1:9091", decider.addr())
        .with_folder("/srv/www", &folder.join("root"));
    case.compare(test, |Reached { addr, .. }, seen| {
        for who in ["ada", "eve", "odd", "led", "nobody"] {
            let field = format!("Authorization: Bearer {who}");
            for line in ["GET /plan?a=1", "HEAD /plan", "POST /plan", "GET /public/page.html"] {
                seen.ask(addr, line, &[&field], b"");
            }
            let claim = "Remote-User: root";
            seen.ask(addr, "GET /plan", &[&field, claim], b"");
        }
        for line in [
            "GET /",
            "GET /verify",
            "GET /public",
            "GET /public/none",
            "GET /public/../plan",
            "GET /public/%2e%2e/plan",
            "GET /publicity",
        ] {
            seen.ask(addr, line, &[], b"");
        }
        let large = vec![b'x'; 100_000];
        let fields = &["Authorization: Bearer ada"];
        seen.ask_as("POST of a large body", addr, "POST /plan", fields, &large);
        seen.ask_as("POST of a large body by nobody", addr, "POST /plan", &[], &large);
    });
}
