//! What applications learn of the client, by the table of the manual; programs that speak FastCGI and are
//! no files; and scripts that are not to be run.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use forebay_tests::faults::site::Folder;
use forebay_tests::{ISOLATED, Options, Server, on_each_engine, on_isolated};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::{fs, thread};

on_each_engine!(
    the_table_of_the_manual_holds,
    scripts_are_told_of_the_client_what_a_proxy_has_sent,
    a_field_of_its_own_names_the_client,
    values_are_of_the_request,
    programs_that_are_no_files_have_every_path,
    scripts_that_are_not_named_are_never_run,
);

on_isolated!(
    the_table_of_the_manual_holds,
    scripts_are_told_of_the_client_what_a_proxy_has_sent,
    a_field_of_its_own_names_the_client,
    values_are_of_the_request,
    programs_that_are_no_files_have_every_path,
    scripts_that_are_not_named_are_never_run,
);

const MANUAL: &str = include_str!("../../../docs/manual/behind-a-proxy.md");

/// An application that answers with the head of the request; a thread for each connection.
fn application() -> SocketAddr {
    answering(|head| format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{head}", head.len()))
}

/// A server that answers each head with the text of a function.
fn answering(said: fn(&str) -> String) -> SocketAddr {
    listen(move |stream| {
        let mut writer = stream.try_clone().unwrap();
        let mut reader = BufReader::new(stream);
        let mut head = String::new();
        while reader.read_line(&mut head).is_ok_and(|read| read > 0) {
            if head.ends_with("\r\n\r\n") {
                if writer.write_all(said(&head).as_bytes()).is_err() {
                    return;
                }
                head.clear();
            }
        }
    })
}

/// A program that speaks FastCGI and answers with its variables, `NAME: value` on each line.
fn program() -> SocketAddr {
    listen(|mut stream| {
        let Some(params) = request_of_fastcgi(&mut stream) else { return };
        let mut said = "Content-Type: text/plain\r\n\r\n".to_owned();
        params.iter().for_each(|(name, value)| said += &format!("{name}: {value}\n"));
        let end = record(3, &[0; 8]);
        let answer = [record(6, said.as_bytes()), record(6, b""), end].concat();
        let _ = stream.write_all(&answer);
    })
}

/// A record of FastCGI.
pub(crate) fn record(kind: u8, content: &[u8]) -> Vec<u8> {
    let [high, low] = u16::try_from(content.len()).unwrap().to_be_bytes();
    [&[1, kind, 0, 1, high, low, 0, 0], content].concat()
}

/// Reads a whole request of FastCGI, and returns its variables; `None` where there is none.
pub(crate) fn request_of_fastcgi(stream: &mut TcpStream) -> Option<BTreeMap<String, String>> {
    let mut params = Vec::new();
    loop {
        let mut header = [0; 8];
        stream.read_exact(&mut header).ok()?;
        let [_, kind, _, _, high, low, padding, _] = header;
        let mut content = vec![0; usize::from(u16::from_be_bytes([high, low]))];
        stream.read_exact(&mut content).ok()?;
        stream.read_exact(&mut vec![0; padding.into()]).ok()?;
        match (kind, content.is_empty()) {
            (4, false) => params.extend(content),
            // the end of the body
            (5, true) => break,
            _ => {}
        }
    }
    let mut variables = BTreeMap::new();
    let mut rest = &params[..];
    while !rest.is_empty() {
        let (name, value) = (length(&mut rest), length(&mut rest));
        let (pair, behind) = rest.split_at(name + value);
        let (name, value) = pair.split_at(name);
        rest = behind;
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        let before = variables.insert(text(name), text(value));
        assert_eq!(before, None, "no variable is told twice");
    }
    Some(variables)
}

/// Takes the length of a name or a value from the front.
fn length(rest: &mut &[u8]) -> usize {
    let bytes = if rest[0] < 128 { 1 } else { 4 };
    let (length, behind) = rest.split_at(bytes);
    *rest = behind;
    let length = length.iter().fold(0, |all: usize, byte| all << 8 | usize::from(*byte));
    length & 0x7fff_ffff
}

/// Serves each connection on a thread of its own.
pub(crate) fn listen(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (addr, serve) = (listener.local_addr().unwrap(), Arc::new(serve));
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let serve = Arc::clone(&serve);
            thread::spawn(move || serve(stream));
        }
    });
    addr
}

/// The status and the body of an answer.
fn ask(server: &Server, head: &str) -> (u16, String) {
    let answer = server.exchange(format!("{head}\r\n\r\n").as_bytes());
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head[9..12].parse().unwrap(), body.to_owned())
}

/// The values in lines `NAME: value`.
fn values(text: &str) -> BTreeMap<&str, Vec<&str>> {
    let mut values: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, value) in text.lines().filter_map(|line| line.split_once(": ")) {
        values.entry(name).or_default().push(value);
    }
    values
}

/// A row of the table: its cells by the heads of their columns, without backticks.
type Row = BTreeMap<&'static str, &'static str>;

fn rows() -> Vec<Row> {
    let lines = MANUAL.lines().skip_while(|line| !line.starts_with("| listener |"));
    let mut lines = lines.take_while(|line| line.starts_with('|'));
    let cells = |line: &'static str| line.trim_matches('|').split('|').map(str::trim);
    let columns: Vec<_> = cells(lines.next().unwrap()).map(|name| name.trim_matches('`')).collect();
    let rows = lines.skip(1).map(|line| columns.iter().copied().zip(cells(line)).collect());
    rows.collect()
}

/// The one value of a cell; `None` if the cell says that there is none.
fn one(cell: &'static str) -> Option<&'static str> {
    (cell != "none").then(|| cell.trim_matches('`'))
}

fn the_table_of_the_manual_holds(engine: &str) {
    let (http, fastcgi) = (application(), program());
    let folder = Folder::new();
    folder.write("root/index.html", "hello");
    let rows = rows();
    assert!(rows.len() > 15, "{rows:?}");
    for (forwarded, from) in [
        ("x-forwarded", "anybody"),
        ("x-forwarded", "proxy"),
        ("forwarded", "anybody"),
        ("forwarded", "proxy"),
    ] {
        let trusted = if from == "proxy" { "127.0.0.1" } else { "192.0.2.1" };
        let lines = format!(
            "trusted_proxies = [\"{trusted}\"]\nforwarded = \"{forwarded}\"\n\
             [[proxy]]\npath = \"/http\"\nto = \"http://{http}\"\n\
             [[fastcgi]]\npath = \"/fastcgi\"\nto = \"{fastcgi}\"\ncheck_local = false\n"
        );
        let server =
            Server::start(&Options::new(folder.join("root")).engine(engine).config(&lines));
        let listener = if server.is_sealed() { "https" } else { "http" };
        let rows = rows.iter().filter(|row| {
            (row["listener"], row["from"]) == (listener, from)
                && row["forwarded"].trim_matches('`') == forwarded
                // a request of HTTP/2 has a host
                && (row["it sends"].contains("Host: ") || !server.is_http2())
        });
        let mut dropped = false;
        for row in rows {
            holds(engine, &server, row, forwarded);
            let other =
                if forwarded == "forwarded" { "X-Forwarded-For: " } else { "Forwarded: for" };
            dropped |= from == "proxy" && row["it sends"].contains(other);
        }
        if dropped {
            server.says("dropped");
            server.says("the trusted proxy 127.0.0.1 sends");
            let said = server.stderr();
            assert_eq!(said.matches("the trusted proxy").count(), 1, "{engine}: {said}");
        }
    }
}

/// Asks as a row says, and compares what the applications get with what it says.
fn holds(engine: &str, server: &Server, row: &Row, forwarded: &str) {
    let fields: Vec<&str> = row["it sends"].split('`').skip(1).step_by(2).collect();
    let fields = fields.join("\r\n");
    // HTTP/1.0 need not name a host
    let version = if fields.contains("Host: ") { "1.1" } else { "1.0" };
    let ask_for = |path: &str| {
        let (status, told) =
            ask(server, &format!("GET {path}/x HTTP/{version}\r\n{fields}\r\nConnection: close"));
        assert_eq!(status, 200, "{engine} {row:?}");
        told
    };
    let client = one(row["client"]);
    let (list, own_element) = match engine {
        // a stage passes on only the client to the next
        ISOLATED => {
            let host = one(row["X-Forwarded-Host"]).map(|host| match host.contains([':', '[']) {
                true => format!(";host=\"{host}\""),
                false => format!(";host={host}"),
            });
            let proto = row["X-Forwarded-Proto"].trim_matches('`');
            let node = match client.unwrap() {
                ip if ip.contains(':') => format!("\"[{ip}]\""),
                ip => ip.to_owned(),
            };
            let element = format!("for={node}{};proto={proto}", host.unwrap_or_default());
            (client, one(row["Forwarded"]).map(|_| element))
        }
        _ => (one(row["X-Forwarded-For"]), one(row["Forwarded"]).map(str::to_owned)),
    };
    let told = ask_for("/http");
    let fields_told = values(&told);
    for (name, expected) in [
        ("X-Real-IP", client),
        ("X-Forwarded-For", list),
        ("X-Forwarded-Proto", one(row["X-Forwarded-Proto"])),
        ("X-Forwarded-Host", one(row["X-Forwarded-Host"])),
        ("X-Forwarded-Port", one(row["X-Forwarded-Port"])),
        ("Forwarded", own_element.as_deref()),
    ] {
        let found = fields_told.get(name).cloned().unwrap_or_default();
        let expected: Vec<_> = expected.into_iter().collect();
        assert_eq!(found, expected, "{engine} {forwarded} {name} of {row:?}:\n{told}");
    }
    let told = ask_for("/fastcgi");
    let variables = values(&told);
    let port = server.listens_at().port().to_string();
    let is_near = client == Some("127.0.0.1");
    let port_of_client = variables.get("REMOTE_PORT").filter(|_| is_near).map(|found| found[0]);
    assert!(!is_near || port_of_client.is_some(), "{engine} {row:?}: {told}");
    let scheme = one(row["X-Forwarded-Proto"]);
    // a script gets the X-Forwarded fields that count and were sent; from a stage, only X-Forwarded-For,
    // with the client alone
    let is_counted = row["from"] == "proxy" && forwarded == "x-forwarded";
    let sent = |name: &str| {
        let mut values = fields.lines().filter_map(|line| line.strip_prefix(name));
        values.next().and_then(|value| value.strip_prefix(": ")).filter(|_| is_counted)
    };
    let sent_for = sent("X-Forwarded-For").map(|sent| match engine {
        ISOLATED => client.unwrap(),
        _ => sent,
    });
    for (name, expected) in [
        ("HTTP_X_FORWARDED_FOR", sent_for),
        ("HTTP_X_FORWARDED_PROTO", sent("X-Forwarded-Proto").and(scheme)),
        ("HTTP_X_FORWARDED_HOST", sent("X-Forwarded-Host").and(one(row["X-Forwarded-Host"]))),
        ("HTTP_X_FORWARDED_PORT", sent("X-Forwarded-Port").and(one(row["X-Forwarded-Port"]))),
        ("HTTP_X_REAL_IP", None),
        ("REMOTE_ADDR", client),
        // the port of a client behind a proxy is not known
        ("REMOTE_PORT", port_of_client),
        ("REQUEST_SCHEME", scheme),
        ("HTTPS", scheme.filter(|scheme| *scheme == "https").map(|_| "on")),
        ("SERVER_NAME", Some(one(row["SERVER_NAME"]).unwrap_or_default())),
        ("SERVER_PORT", Some(one(row["SERVER_PORT"]).unwrap_or(&port))),
        ("HTTP_FORWARDED", own_element.as_deref()),
        ("SCRIPT_NAME", Some("/fastcgi")),
        ("PATH_INFO", Some("/x")),
    ] {
        let found = variables.get(name).cloned().unwrap_or_default();
        let expected: Vec<_> = expected.into_iter().collect();
        assert_eq!(found, expected, "{engine} {forwarded} {name} of {row:?}:\n{told}");
    }
}

/// `trusted_header`: the access rules and all applications know the same client, and believe no other
/// source.
fn a_field_of_its_own_names_the_client(engine: &str) {
    let (http, program) = (application(), program());
    let folder = Folder::new();
    folder.write("root/index.html", "hello");
    let name = "CF-Connecting-IP";
    for (trusted, believed) in [("127.0.0.1", true), ("192.0.2.1", false)] {
        let lines = format!(
            "trusted_proxies = [\"{trusted}\"]\ntrusted_header = \"{name}\"\n\
             [[access]]\npath = \"=/index.html\"\nallow = [\"192.0.2.0/24\"]\n\
             [[proxy]]\npath = \"/http\"\nto = \"http://{http}\"\n\
             [[fastcgi]]\npath = \"/app\"\nto = \"{program}\"\ncheck_local = false\n"
        );
        let options = Options::new(folder.join("root")).engine(engine).config(&lines);
        let server = Server::start(&options);
        for (fields, named) in [
            ("", None),
            ("CF-Connecting-IP: 192.0.2.7\r\n", Some("192.0.2.7")),
            (
                "cf-connecting-ip: 192.0.2.7:4711\r\nCF_Connecting_IP: 6.6.6.6\r\n",
                Some("192.0.2.7"),
            ),
            ("CF-Connecting-IP: 6.6.6.6\r\nCF-Connecting-IP: 192.0.2.7\r\n", Some("192.0.2.7")),
            ("CF-Connecting-IP: 6.6.6.6, [2001:db8::7]:1\r\n", Some("2001:db8::7")),
            ("CF-Connecting-IP: 192.0.2.7, nobody\r\n", None),
            ("X-Forwarded-For: 192.0.2.7\r\nX-Real-IP: 192.0.2.7\r\n", None),
        ] {
            let client = named.filter(|_| believed).unwrap_or("127.0.0.1");
            let ask_for = |path: &str| {
                let head = format!("GET {path} HTTP/1.1\r\nHost: a\r\n{fields}Connection: close");
                ask(&server, &head)
            };
            let (status, _) = ask_for("/index.html");
            let expected = if client.starts_with("192.0.2.") { 200 } else { 403 };
            assert_eq!(status, expected, "{engine} {trusted} {fields:?}");
            let (_, told) = ask_for("/http/x");
            let list = match client {
                "127.0.0.1" => "127.0.0.1".to_owned(),
                client if engine == ISOLATED => client.to_owned(),
                client => format!("{client}, 127.0.0.1"),
            };
            let told_fields = values(&told);
            for (name, expected) in
                [(name, client), ("X-Real-IP", client), ("X-Forwarded-For", &list)]
            {
                let found: Vec<_> = told_fields.get(name).cloned().unwrap_or_default();
                assert_eq!(found, [expected], "{engine} {trusted} {name} of {fields:?}:\n{told}");
            }
            let (_, told) = ask_for("/app/x");
            let variables = values(&told);
            for name in ["HTTP_CF_CONNECTING_IP", "REMOTE_ADDR"] {
                let found: Vec<_> = variables.get(name).cloned().unwrap_or_default();
                assert_eq!(found, [client], "{engine} {trusted} {name} of {fields:?}:\n{told}");
            }
            let list = variables.get("HTTP_X_FORWARDED_FOR").cloned().unwrap_or_default();
            assert!(list.iter().all(|list| *list == client), "{engine} {fields:?}:\n{told}");
            assert!(!told.contains("6.6.6.6"), "{engine} {trusted} {fields:?}:\n{told}");
        }
    }
}

/// X-Real-IP is in no row of the table: where a trusted proxy has sent it, a script gets the client that
/// counts.
fn scripts_are_told_of_the_client_what_a_proxy_has_sent(engine: &str) {
    let program = program();
    let folder = Folder::new();
    folder.write("root/index.html", "hello");
    for (trusted, expected) in [("127.0.0.1", Some("192.0.2.7")), ("192.0.2.1", None)] {
        let lines = format!(
            "trusted_proxies = [\"{trusted}\"]\n\
             [[fastcgi]]\npath = \"/app\"\nto = \"{program}\"\ncheck_local = false\n"
        );
        let options = Options::new(folder.join("root")).engine(engine).config(&lines);
        let server = Server::start(&options);
        for (fields, list, real) in [
            ("X-Forwarded-For: 192.0.2.7\r\nX-Real-IP: 6.6.6.6", expected, expected),
            ("X-Forwarded-For: 192.0.2.7\r\nForebay-Sent: proto, real-ip", expected, None),
            ("X-Real-IP: 6.6.6.6", None, expected.and(Some("127.0.0.1"))),
            ("Accept: */*\r\nForebay-Sent: for, proto, real-ip", None, None),
        ] {
            let head = format!("GET /app HTTP/1.1\r\nHost: a\r\n{fields}\r\nConnection: close");
            let (status, told) = ask(&server, &head);
            let told = values(&told);
            let of = |name| told.get(name).map(|values| values[0]);
            assert_eq!(status, 200, "{engine} {trusted} {fields}");
            assert_eq!(of("HTTP_X_FORWARDED_FOR"), list, "{engine} {trusted} {fields}");
            assert_eq!(of("HTTP_X_REAL_IP"), real, "{engine} {trusted} {fields}");
            assert_eq!(of("HTTP_X_FORWARDED_PROTO"), None, "{engine} {trusted} {fields}");
            assert_eq!(of("HTTP_FOREBAY_SENT"), None, "{engine} {trusted} {fields}");
        }
    }
}

/// A program gets every path beneath its route, whatever files exist, with the text behind the path of
/// the route.
fn programs_that_are_no_files_have_every_path(engine: &str) {
    let program = program();
    let folder = Folder::new();
    folder.write("root/app/file.txt", "a file");
    folder.write("root/app/index.html", "a file");
    let route = |path: &str| {
        format!("[[fastcgi]]\npath = \"{path}\"\nto = \"{program}\"\ncheck_local = false\n")
    };
    for (path, cases) in [
        (
            "/app",
            &[
                ("/app", Some(("/app", ""))),
                ("/app/", Some(("/app", "/"))),
                ("/app/file.txt", Some(("/app", "/file.txt"))),
                ("/app/x.php/y%20z?q=1", Some(("/app", "/x.php/y z"))),
                ("/apple", None),
            ][..],
        ),
        ("/", &[("/", Some(("", "/"))), ("/app/file.txt", Some(("", "/app/file.txt")))]),
        ("*.do", &[("/a/b.do", Some(("", "/a/b.do"))), ("/app/file.txt", None)]),
        ("=/app/file.txt", &[("/app/file.txt", Some(("/app/file.txt", ""))), ("/app/", None)]),
    ] {
        let server =
            Server::start(&Options::new(folder.join("root")).engine(engine).config(&route(path)));
        for (asked, expected) in cases {
            let (_, told) =
                ask(&server, &format!("GET {asked} HTTP/1.1\r\nHost: a\r\nConnection: close"));
            let told = values(&told);
            let of = |name| told.get(name).map(|values| values[0]);
            let Some((name, info)) = expected else {
                assert_eq!(of("SCRIPT_NAME"), None, "{engine} {path} {asked}");
                continue;
            };
            assert_eq!(of("SCRIPT_NAME"), Some(*name), "{engine} {path} {asked}");
            assert_eq!(of("PATH_INFO").unwrap_or_default(), *info, "{engine} {path} {asked}");
            assert_eq!(of("REQUEST_URI"), Some(*asked), "{engine} {path}");
            for absent in ["SCRIPT_FILENAME", "PATH_TRANSLATED"] {
                assert_eq!(of(absent), None, "{engine} {path} {asked}");
            }
        }
    }
}

/// Scripts that are not named never run: not by their names, not behind another's name, not as an index,
/// by a rule or by a link.
fn scripts_that_are_not_named_are_never_run(engine: &str) {
    let program = program();
    let folder = Folder::new();
    for script in [
        "index.php",
        "evil.php",
        "admin/index.php",
        "admin/a.php",
        "uploads/x.php",
        "uploads/index.php",
    ] {
        folder.write(&format!("root/{script}"), "<?php secret();");
    }
    folder.write("root/dir.php/index.php", "<?php secret();");
    folder.write("root/a.txt", "a file");
    let lines = format!(
        "[[fastcgi]]\nto = \"{program}\"\ntry = \"/index.php\"\n\
         scripts = [\"/index.php\", \"/admin/*.php\"]\n\
         [[rewrite]]\npath = \"/old\"\nto = \"/evil.php\"\n"
    );
    let server = Server::start(&Options::new(folder.join("root")).engine(engine).config(&lines));
    for (path, run) in [
        ("/", Some(("/index.php", ""))),
        ("/index.php/evil.php", Some(("/index.php", "/evil.php"))),
        ("/article/5", Some(("/index.php", ""))),
        ("/admin/", Some(("/admin/index.php", ""))),
        ("/admin/a.php", Some(("/admin/a.php", ""))),
        ("/uploads/", Some(("/index.php", ""))),
        ("/evil.php", None),
        ("/evil.php/", None),
        ("/evil.php/index.php", None),
        ("/%65vil.php", None),
        ("/uploads/x.php", None),
        ("/uploads/x.php/admin/a.php", None),
        ("/uploads/index.php", None),
        ("/none.php", None),
        ("/none.php/index.php", None),
        ("/dir.php/index.php", None),
        ("/old", None),
    ] {
        let (status, told) =
            ask(&server, &format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close"));
        assert!(!told.contains("secret"), "{engine} {path}: {told}");
        let told = values(&told);
        let of = |name| told.get(name).map(|values| values[0]);
        match run {
            Some((name, info)) => {
                assert_eq!((status, of("SCRIPT_NAME")), (200, Some(name)), "{engine} {path}");
                assert_eq!(of("PATH_INFO").unwrap_or_default(), info, "{engine} {path}");
            }
            None => assert_eq!((status, of("SCRIPT_NAME")), (404, None), "{engine} {path}"),
        }
    }
    let (status, text) = ask(&server, "GET /a.txt HTTP/1.1\r\nHost: a\r\nConnection: close");
    assert_eq!((status, &*text), (200, "a file"), "{engine}");
}

/// An authority that names the user.
fn authority() -> SocketAddr {
    answering(|_| "HTTP/1.1 200 OK\r\nRemote-User: alice\r\nContent-Length: 0\r\n\r\n".to_owned())
}

/// Fields for applications whose values have variables of the request, and a field that names the
/// application that has answered.
fn values_are_of_the_request(engine: &str) {
    let (app, authority, program) = (application(), authority(), program());
    let folder = Folder::new();
    let secret = folder.join("secret");
    fs::write(&secret, "x$host$$1$header.X-Own\n").unwrap();
    let secret = secret.display();
    let config = format!(
        "trusted_proxies = [\"127.0.0.1\"]\n\
         [[forward_auth]]\npath = \"/in\"\nto = \"http://{authority}\"\ncopy = [\"Remote-User\"]\n\
         [[header]]\nset = {{ \"X-Served-By\" = \"$upstream\", \"X-By\" = \"by $upstream\" }}\n\
         [[proxy]]\npath = \"/in\"\nto = \"http://{app}\"\n\
         set = {{ \"X-All\" = \"$scheme://$host$path$query;$client;$query.q;$cookie.c\", \"X-Plain\" = \"$5\", \
         \"X-Secret\" = \"Bearer ${{file:{secret}}}\", \"X-Both\" = \"$scheme ${{file:{secret}}}\", \
         \"X-User\" = \"$header.Remote-User\", \"X-None\" = \"$header.nothing\", \"X-Id\" = \"$request_id\", \
         \"X-Forwarded-Host\" = \"front.$host\", \"X-Cost\" = \"$$5 $header.X-Own\" }}\n\
         [[proxy]]\npath = \"/out\"\nto = \"http://{app}\"\nset = {{ \"X-User\" = \"$header.Remote-User\" }}\n\
         [[fastcgi]]\npath = \"/in/script\"\nto = \"{program}\"\ncheck_local = false\n\
         set = {{ REMOTE_USER = \"$header.Remote-User\", ALL = \"$scheme://$host$path$query;$client;$query.q;$cookie.c\", \
         PLAIN = \"$5\", SECRET = \"Bearer ${{file:{secret}}}\", BOTH = \"$scheme ${{file:{secret}}}\", \
         HTTP_X_NONE = \"$header.nothing\", COST = \"$$5 $header.X-Own\", SERVER_NAME = \"front.$host\" }}\n"
    );
    folder.write("a.txt", "a");
    let server = Server::start(&Options::new(folder.path()).engine(engine).config(&config));
    let ask = |target: &str, fields: &str| {
        let request = format!(
            "GET {target} HTTP/1.1\r\nHost: shop.example\r\nX-Forwarded-For: 192.0.2.7\r\nX-Forwarded-Proto: https\r\n\
             Remote-User: root\r\nX-User: root\r\nX-None: root\r\n{fields}Connection: close\r\n\r\n"
        );
        let answer = server.exchange(request.as_bytes());
        String::from_utf8_lossy(&answer).into_owned()
    };
    for round in 0..8 {
        let fields = format!("Cookie: a=b; c={round}\r\nX-Own: own {round}\r\n");
        let answer = ask(&format!("/in/%C3%A4?q={round}%0d%0aX-Evil:%201"), &fields);
        let (head, told) = answer.split_once("\r\n\r\n").unwrap();
        let all = format!(
            "https://shop.example/in/%C3%A4?q={round}%0d%0aX-Evil:%201;192.0.2.7;{round}%0D%0AX-Evil: 1;{round}"
        );
        let cost = format!("$5 own {round}");
        let has = |text: &str, line: &str| {
            assert!(text.lines().any(|known| known == line), "{engine}: no {line:?} in {answer}");
        };
        has(told, &format!("X-All: {all}"));
        has(told, &format!("X-Cost: {cost}"));
        // text from a file has no variables
        has(told, "X-Secret: Bearer x$host$$1$header.X-Own");
        has(told, "X-Both: https x$host$$1$header.X-Own");
        for line in ["X-Plain: $5", "X-User: alice", "X-Forwarded-Host: front.shop.example"] {
            has(told, line);
        }
        let ids: Vec<&str> = told.lines().filter_map(|line| line.strip_prefix("X-Id: ")).collect();
        has(told, &format!("X-Request-Id: {}", ids.join(" and ")));
        assert!(!told.contains("root") && !told.contains("X-None"), "{engine}: {told}");
        assert!(!told.contains("\nX-Evil"), "{engine}: {told}");
        has(head, &format!("X-Served-By: {app}"));
        has(head, &format!("X-By: by {app}"));
    }
    // variables of scripts are made in the same way, each once
    for round in 0..4 {
        let fields = format!("Cookie: a=b; c={round}\r\nX-Own: own {round}\r\n");
        let answer = ask(&format!("/in/script/%C3%A4?q={round}%0a"), &fields);
        let (_, told) = answer.split_once("\r\n\r\n").unwrap();
        for (name, value) in [
            ("REMOTE_USER", "alice"),
            (
                "ALL",
                &*format!(
                    "https://shop.example/in/script/%C3%A4?q={round}%0a;192.0.2.7;{round}%0A;{round}"
                ),
            ),
            ("PLAIN", "$5"),
            ("SECRET", "Bearer x$host$$1$header.X-Own"),
            ("BOTH", "https x$host$$1$header.X-Own"),
            ("COST", &*format!("$5 own {round}")),
            ("SERVER_NAME", "front.shop.example"),
        ] {
            let line = format!("{name}: {value}");
            assert!(told.lines().any(|known| known == line), "{engine}: no {line:?} in {answer}");
        }
        let is_lie = |line: &str| line.starts_with("HTTP_X_NONE") || line == "REMOTE_USER: root";
        assert!(!told.lines().any(is_lie), "{engine}: {told}");
    }
    // two users are two values, whatever they are called
    let users = ["a b", "a%20b", "a%2520b", "\u{fc}", "%C3%BC", "a", "a%20"];
    for path in ["/in/x", "/in/script"] {
        let mut told: Vec<String> = Vec::new();
        for user in users {
            let answer = ask(path, &format!("Cookie: c={user}\r\n"));
            let line =
                answer.lines().find(|line| line.contains("ALL: ") || line.contains("X-All: "));
            told.push(line.unwrap().to_owned());
        }
        told.sort();
        told.dedup();
        assert_eq!(told.len(), users.len(), "{engine}: {told:?}");
    }
    // a field that no rule has copied does not come from the client either
    let answer = ask("/out/a", "");
    assert!(!answer.contains("User: root"), "{engine}: {answer}");
    // no application has answered
    let answer = ask("/a.txt", "");
    assert!(
        !answer.contains("X-Served-By") && answer.contains("\r\nX-By: by\r\n"),
        "{engine}: {answer}"
    );
}
