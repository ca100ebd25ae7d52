//! A field that may stand once stands once, in every kind of answer, whatever an application has sent.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use crate::told::{listen, record, request_of_fastcgi};
use forebay_tests::faults::site::Folder;
use forebay_tests::{Options, Server, on_each_engine, on_isolated};
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;

on_each_engine!(single_fields_stand_once_on_every_answer);
on_isolated!(single_fields_stand_once_on_every_answer);

/// Fields that stand at most once; every answer has exactly one of each of the first two.
const SINGLE: [&str; 17] = [
    "date",
    "server",
    "content-type",
    "content-length",
    "transfer-encoding",
    "connection",
    "content-encoding",
    "content-range",
    "content-disposition",
    "location",
    "etag",
    "last-modified",
    "expires",
    "retry-after",
    "age",
    "strict-transport-security",
    "alt-svc",
];

/// Fields that an application sends twice, and the values that count.
const TWICE: &str = "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\nDate: Mon, 07 Nov 1994 08:49:37 GMT\r\n\
                     Server: one\r\nServer: two\r\nContent-Type: text/plain\r\ncontent-type: text/html\r\n\
                     ETag: \"one\"\r\nETAG: \"two\"\r\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
                     Last-Modified: Mon, 07 Nov 1994 08:49:37 GMT\r\nExpires: 0\r\nExpires: 1\r\n\
                     Location: /one\r\nLocation: /two\r\nStrict-Transport-Security: max-age=1\r\n\
                     Strict-Transport-Security: max-age=2\r\nAge: 1\r\nAge: 2\r\nRetry-After: 1\r\n\
                     Retry-After: 2\r\nContent-Disposition: inline\r\nContent-Disposition: attachment\r\n\
                     Set-Cookie: a=1\r\nSet-Cookie: b=2\r\nVary: Accept\r\nVary: Cookie\r\n";

const FIRST: [(&str, &str); 9] = [
    ("date", "Sun, 06 Nov 1994 08:49:37 GMT"),
    ("server", "one"),
    ("content-type", "text/plain"),
    ("etag", "\"one\""),
    ("expires", "0"),
    ("age", "1"),
    ("retry-after", "1"),
    ("content-disposition", "inline"),
    ("last-modified", "Sun, 06 Nov 1994 08:49:37 GMT"),
];

/// An application that sends everything twice, behind an interim answer if its path has `early`; the
/// status is the last segment of the path.
fn application() -> SocketAddr {
    listen(|stream| {
        let mut writer = stream.try_clone().unwrap();
        let mut reader = BufReader::new(stream);
        let mut head = String::new();
        while reader.read_line(&mut head).is_ok_and(|read| read > 0) {
            if !head.ends_with("\r\n\r\n") {
                continue;
            }
            let path = head.split(' ').nth(1).unwrap();
            let status = path.rsplit('/').next().unwrap();
            let early = match path.contains("early") {
                true => "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nDate: x\r\nDate: y\r\n\r\n",
                false => "",
            };
            let (body, length) = match status {
                "304" => ("", ""),
                _ => ("hello", "Content-Length: 5\r\n"),
            };
            let body = if head.starts_with("HEAD") { "" } else { body };
            let said = format!("{early}HTTP/1.1 {status} X\r\n{TWICE}{length}\r\n{body}");
            if writer.write_all(said.as_bytes()).is_err() {
                return;
            }
            head.clear();
        }
    })
}

/// An application that does the same over FastCGI.
fn program() -> SocketAddr {
    listen(|mut stream| {
        let Some(params) = request_of_fastcgi(&mut stream) else { return };
        let status = params["PATH_INFO"].trim_start_matches('/');
        let said = format!("Status: {status} X\r\n{TWICE}\r\nhello");
        let end = record(3, &[0; 8]);
        let answer = [record(6, said.as_bytes()), record(6, b""), end].concat();
        let _ = stream.write_all(&answer);
    })
}

/// The heads of interim answers, and the head of the answer.
fn heads(server: &Server, request: &str) -> Vec<Vec<(String, String)>> {
    let answer = server.exchange(request.as_bytes());
    let mut rest = &*String::from_utf8_lossy(&answer).into_owned();
    let mut heads = Vec::new();
    loop {
        let (head, behind) =
            rest.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{request}: {rest:?}"));
        let mut lines = head.lines();
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().to_owned();
        let fields = lines.filter_map(|line| line.split_once(": "));
        let mut fields: Vec<_> =
            fields.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect();
        let is_interim = status.starts_with('1');
        fields.insert(0, (":status".to_owned(), status));
        heads.push(fields);
        if !is_interim {
            return heads;
        }
        rest = behind;
    }
}

fn single_fields_stand_once_on_every_answer(engine: &str) {
    let (http, fastcgi) = (application(), program());
    let folder = Folder::new();
    folder.write("root/a.txt", "some text\n".repeat(500));
    folder.write("root/dir/index.html", "hello");
    folder.write("root/set/a.txt", "hello");
    folder.write("root/error.html", "our page");
    let lines = format!(
        "errors.404 = \"/error.html\"\n\
         [[redirect]]\npath = \"/old\"\nto = \"/new\"\n\
         [[redirect]]\npath = \"/set/old\"\nto = \"/new\"\n\
         [[proxy]]\npath = \"/http\"\nto = \"http://{http}\"\n\
         [[proxy]]\npath = \"/set/http\"\nto = \"http://{http}\"\n\
         [[proxy]]\npath = \"/ours\"\nto = \"http://{http}\"\nerrors = \"ours\"\n\
         [[proxy]]\npath = \"/nobody\"\nto = \"http://127.0.0.1:1\"\n\
         [[fastcgi]]\npath = \"/fastcgi\"\nto = \"{fastcgi}\"\ncheck_local = false\n\
         [[header]]\npath = \"/set/*\"\n\
         set = {{ \"Expires\" = \"0\", \"Server\" = \"own\", \"Content-Type\" = \"text/own\", \
                  \"Strict-Transport-Security\" = \"max-age=5\", \"Alt-Svc\" = \"clear\" }}\n\
         [[access]]\npath = \"/denied\"\ndeny = [\"all\"]\n"
    );
    let server = Server::start(&Options::new(folder.join("root")).engine(engine).config(&lines));
    let mut asked = 0;
    let mut once = |request: &str, statuses: &[&str]| {
        asked += 1;
        let heads = heads(&server, request);
        let found: Vec<_> = heads.iter().map(|head| &*head[0].1).collect();
        assert_eq!(found, statuses, "{engine} {request}");
        for head in &heads {
            for name in SINGLE {
                let count = head.iter().filter(|(other, _)| other == name).count();
                assert!(count <= 1, "{engine} {request}{name}: {head:?}");
                let is_always = ["date", "server"].contains(&name) && !head[0].1.starts_with('1');
                assert!(!is_always || count == 1, "{engine} {request}{name}: {head:?}");
            }
        }
        heads.into_iter().next_back().unwrap()
    };
    let end = "HTTP/1.1\r\nHost: a\r\nConnection: close\r\n";
    // once made, once as it was kept
    for _ in 0..2 {
        let head = once(&format!("GET /a.txt {end}\r\n"), &["200"]);
        let tag = head.iter().find(|(name, _)| name == "etag").unwrap().1.clone();
        for (line, status) in [
            (&*format!("If-None-Match: {tag}\r\n"), "304"),
            ("If-Match: \"x\"\r\n", "412"),
            ("Range: bytes=1-3\r\n", "206"),
            ("Range: bytes=9999999-\r\n", "416"),
            ("Accept-Encoding: gzip\r\n", "200"),
            ("Accept-Encoding: br\r\nRange: bytes=1-3\r\n", "206"),
        ] {
            for method in ["GET", "HEAD"] {
                if method == "HEAD" && line.starts_with("Range") || line.contains("br\r\n") {
                    continue;
                }
                once(&format!("{method} /a.txt {end}{line}\r\n"), &[status]);
            }
        }
        for (method, path, status) in [
            ("GET", "/dir/", "200"),
            ("GET", "/dir", "301"),
            ("GET", "/old", "301"),
            ("GET", "/none", "404"),
            ("HEAD", "/none", "404"),
            ("GET", "/denied", "403"),
            ("GET", "/%zz", "400"),
            ("OPTIONS", "/a.txt", "204"),
            ("POST", "/a.txt", "405"),
            ("GET", "/set/a.txt", "200"),
            ("GET", "/set/none", "404"),
            ("GET", "/set/old", "301"),
            ("GET", "/nobody", "502"),
            ("GET", "/http/200", "200"),
            ("HEAD", "/http/200", "200"),
            ("GET", "/http/301", "301"),
            ("GET", "/http/304", "304"),
            ("GET", "/http/503", "503"),
            ("GET", "/set/http/200", "200"),
            ("GET", "/ours/404", "404"),
            ("GET", "/ours/503", "503"),
            ("GET", "/fastcgi/200", "200"),
            ("GET", "/fastcgi/302", "302"),
        ] {
            once(&format!("{method} {path} {end}\r\n"), &[status]);
        }
    }
    once(&format!("GET /http/early/200 {end}\r\n"), &["103", "200"]);
    for path in ["/http/200", "/http/early/301", "/fastcgi/200", "/fastcgi/404"] {
        let statuses = match path.rsplit_once('/').unwrap() {
            (before, status) if before.contains("early") => vec!["103", status],
            (_, status) => vec![status],
        };
        let head = once(&format!("GET {path} {end}\r\n"), &statuses);
        let of = |name: &str| -> Vec<&str> {
            head.iter().filter(|(other, _)| other == name).map(|(_, value)| &**value).collect()
        };
        for (name, value) in FIRST {
            assert_eq!(of(name), [value], "{engine} {path} {name}");
        }
        assert_eq!(of("location"), ["/one"], "{engine} {path}");
        // fields that may be repeated still are
        assert_eq!(of("set-cookie"), ["a=1", "b=2"], "{engine} {path}");
        assert!(of("vary").join(", ").starts_with("Accept, Cookie"), "{engine} {path}: {head:?}");
    }
    let head = once(&format!("GET /set/http/200 {end}\r\n"), &["200"]);
    for (name, value) in [("server", "own"), ("content-type", "text/own"), ("expires", "0")] {
        assert!(head.contains(&(name.to_owned(), value.to_owned())), "{engine} {head:?}");
    }
    assert!(asked > 60);
}
