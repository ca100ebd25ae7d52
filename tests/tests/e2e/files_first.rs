//! Files first, and an application for paths without a file (`files_first`).
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use forebay_tests::faults::site::Folder;
use forebay_tests::faults::soon;
use forebay_tests::http2::Client;
use forebay_tests::server::free_addr;
use forebay_tests::wire::PATIENCE;
use forebay_tests::{Options, Server, on_each_engine, on_isolated};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc;
use std::thread;

on_each_engine!(
    a_file_answers_where_there_is_one,
    rules_hold_for_both,
    a_reload_leaves_the_rules_of_an_answer,
);
on_isolated!(
    a_file_answers_where_there_is_one,
    rules_hold_for_both,
    a_reload_leaves_the_rules_of_an_answer,
);

/// An application that answers with the request line it got.
fn application() -> SocketAddr {
    let addr = free_addr();
    let listener = TcpListener::bind(addr).unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                loop {
                    let (mut first, mut length) = (String::new(), 0);
                    if reader.read_line(&mut first).unwrap_or(0) == 0 {
                        return;
                    }
                    loop {
                        let mut line = String::new();
                        if reader.read_line(&mut line).unwrap_or(0) == 0 {
                            return;
                        }
                        let lower = line.to_ascii_lowercase();
                        if let Some(value) = lower.strip_prefix("content-length:") {
                            length = value.trim().parse().unwrap();
                        }
                        if line == "\r\n" {
                            break;
                        }
                    }
                    _ = reader.by_ref().take(length).read_to_end(&mut Vec::new());
                    let said = first.trim_end().strip_suffix(" HTTP/1.1").unwrap();
                    let body = if said.starts_with("HEAD") { "" } else { said };
                    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", said.len());
                    if stream.write_all(format!("{head}{body}").as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    addr
}

fn start(engine: &str, lines: &str) -> (Server, Folder) {
    let folder = Folder::new();
    for (name, content) in [
        ("root/index.html", "home"),
        ("root/a.css", "style"),
        ("root/docs/index.html", "docs"),
        ("root/bare/x.txt", "x"),
        ("root/.secret", "secret"),
    ] {
        folder.write(name, content);
    }
    folder.age();
    let to = application();
    let lines = format!(
        "cache.check_interval = \"100ms\"\n{lines}\n[[proxy]]\npath = \"/\"\nfiles_first = true\nto = \"http://{to}\"\n"
    );
    let options = Options::new(folder.join("root")).engine(engine).config(&lines);
    (Server::start(&options), folder)
}

/// Status and body of an answer.
fn ask(server: &Server, method: &str, path: &str) -> (u16, String) {
    let mut stream = server.connect();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    (status, answer.split_once("\r\n\r\n").unwrap().1.to_owned())
}

fn a_file_answers_where_there_is_one(engine: &str) {
    let (server, folder) = start(engine, "");
    for (method, path, expected) in [
        ("GET", "/", "home"),
        ("GET", "/a.css", "style"),
        ("GET", "/a.css?v=1", "style"),
        ("HEAD", "/a.css", ""),
        ("GET", "/docs/", "docs"),
        ("GET", "/bare/", "GET /bare/"),
        ("GET", "/users/7?q=1", "GET /users/7?q=1"),
        ("HEAD", "/users/7", ""),
        ("GET", "/.secret", "GET /.secret"),
        ("POST", "/a.css", "POST /a.css"),
        ("DELETE", "/docs/", "DELETE /docs/"),
        ("OPTIONS", "/a.css", "OPTIONS /a.css"),
    ] {
        for _ in 0..2 {
            let expected = (200, expected.to_owned());
            assert_eq!(ask(&server, method, path), expected, "{engine}: {method} {path}");
        }
    }
    assert_eq!(ask(&server, "GET", "/docs").0, 301, "{engine}");
    assert_eq!(ask(&server, "GET", "/docs/../../a.css").0, 400, "{engine}");
    let mut client = Client::connect(server.addr());
    assert_eq!(client.get("/a.css").body, b"style", "{engine}");
    assert_eq!(client.get("/users/7").body, b"GET /users/7", "{engine}");
    // a file that comes, and one that goes
    folder.write("root/users/7", "now a file");
    assert!(soon(PATIENCE, || ask(&server, "GET", "/users/7").1 == "now a file"), "{engine}");
    std::fs::remove_file(folder.join("root/a.css")).unwrap();
    assert!(soon(PATIENCE, || ask(&server, "GET", "/a.css").1 == "GET /a.css"), "{engine}");
}

fn rules_hold_for_both(engine: &str) {
    let (server, _folder) = start(
        engine,
        "[[access]]\npath = \"/users\"\ndeny = [\"all\"]\n[[access]]\npath = \"/a.css\"\ndeny = [\"all\"]\n\
         [[redirect]]\npath = \"/old\"\nto = \"/new\"\n[[rewrite]]\npath = \"/style\"\nto = \"/docs/index.html\"",
    );
    for (path, status, body) in [
        ("/users/7", 403, None),
        ("/a.css", 403, None),
        ("/old", 301, None),
        ("/style", 200, Some("docs")),
        ("/other", 200, Some("GET /other")),
    ] {
        let (found, said) = ask(&server, "GET", path);
        assert_eq!(found, status, "{engine}: {path}");
        if let Some(body) = body {
            assert_eq!(said, body, "{engine}: {path}");
        }
    }
}

fn a_reload_leaves_the_rules_of_an_answer(engine: &str) {
    let folder = Folder::new();
    for (name, content) in [("root/index.html", "home"), ("root/files/paper", "paper")] {
        folder.write(name, content);
    }
    folder.age();
    // an application that answers when it may, by a file
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap();
    let (tell_asked, asked) = mpsc::channel();
    let (go_on, may_answer) = mpsc::channel::<()>();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
        while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
        tell_asked.send(()).unwrap();
        may_answer.recv().unwrap();
        let answer =
            "HTTP/1.1 200 OK\r\nX-Accel-Redirect: /files/paper\r\nContent-Length: 0\r\n\r\n";
        stream.write_all(answer.as_bytes()).unwrap();
    });
    let lines = |more: &str| {
        let lines = format!(
            "{more}\n[[proxy]]\npath = \"/\"\nfiles_first = true\nto = \"http://{to}\"\n\
             accel_redirect = [\"/files\"]"
        );
        Options::new(folder.join("root")).engine(engine).config(&lines)
    };
    let server = Server::start(&lines(""));
    let mut stream = server.connect();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"GET /report HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    asked.recv_timeout(PATIENCE).unwrap();
    server.configure(&lines("cache.check_interval = \"300ms\""));
    assert_eq!(server.reload().0, Some(0), "{engine}");
    go_on.send(()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("paper"), "{engine}: {answer}");
}
