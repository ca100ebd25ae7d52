//! Answers of applications that bend the rules of HTTP/1: those that are accepted, and framed anew for
//! the client, and those that are not.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use forebay_tests::faults::site::Folder;
use forebay_tests::{ENGINES, Options, Server};
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

/// The statuses for each path, where a bare LF is refused, and where it is accepted.
const ODD: [(&str, u16, u16); 9] = [
    ("/blanks-behind-sizes", 200, 200),
    ("/blanks-before-sizes", 0, 0),
    ("/999", 999, 999),
    ("/600", 600, 600),
    ("/http-1.2", 200, 200),
    ("/lf", 502, 200),
    ("/lf-in-chunks", 0, 200),
    ("/both-lengths", 502, 502),
    ("/128-fields", 200, 200),
];

/// The bytes of the answer for this path.
fn answer(path: &str) -> String {
    let chunked =
        |body: &str| format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{body}");
    match path {
        "/blanks-behind-sizes" => chunked("3  \r\nhel\r\n2 \t\r\nlo\r\n0  \r\n\r\n"),
        "/blanks-before-sizes" => chunked(" 5\r\nhello\r\n0\r\n\r\n"),
        "/lf-in-chunks" => chunked("5\nhello\n0\nX-A: b\n\n"),
        "/999" | "/600" => {
            format!("HTTP/1.1 {} What\r\nContent-Length: 5\r\n\r\nhello", &path[1..])
        }
        "/http-1.2" => "HTTP/1.2 200 OK\r\nContent-Length: 5\r\n\r\nhello".to_owned(),
        "/lf" => "HTTP/1.1 200 OK\nX-A: b\nContent-Length: 5\n\nhello".to_owned(),
        "/both-lengths" => chunked("").replace("Transfer", "Content-Length: 5\r\nTransfer"),
        "/128-fields" => {
            let fields: String = (0..127).map(|at| format!("X-{at}: a\r\n")).collect();
            format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: 5\r\n\r\nhello")
        }
        other => panic!("{other}"),
    }
}

fn serve(stream: TcpStream) -> std::io::Result<()> {
    let (mut reader, mut writer) = (BufReader::new(stream.try_clone()?), stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head)? == 0 {
            return Ok(());
        }
    }
    let path = head.split(' ').nth(1).unwrap_or_default();
    writer
        .write_all(answer(path.trim_start_matches("/strict").trim_start_matches("/lax")).as_bytes())
}

fn application() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || serve(stream));
        }
    });
    addr
}

/// The data of a complete body in chunks.
fn whole(mut body: &str) -> Option<String> {
    let mut data = String::new();
    loop {
        let (size, rest) = body.split_once("\r\n")?;
        let size = usize::from_str_radix(size, 16).ok()?;
        if size == 0 {
            return rest.ends_with("\r\n").then_some(data);
        }
        data += rest.get(..size)?;
        body = rest.get(size..)?.strip_prefix("\r\n")?;
    }
}

#[test]
fn what_is_read_is_framed_anew_and_the_rest_is_told_apart() {
    let to = application();
    for engine in ENGINES.into_iter().chain(["isolated"]) {
        let folder = Folder::new();
        folder.write("root/index.html", "own");
        let lines = format!(
            "[[proxy]]\npath = \"/strict\"\nto = \"http://{to}\"\n\
             [[proxy]]\npath = \"/lax\"\nto = \"http://{to}\"\nbare_lf = true\n"
        );
        let options = Options::new(folder.join("root")).engine(engine);
        let server = Server::start(&options.config(&lines));
        for (path, strict, lax) in ODD {
            for (route, expected) in [("/strict", strict), ("/lax", lax)] {
                let request = "HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
                let got = server.exchange(format!("GET {route}{path} {request}").as_bytes());
                let got = String::from_utf8(got).unwrap();
                let what = format!("{engine}: {route}{path}: {got}");
                let (head, body) = got.split_once("\r\n\r\n").expect(&what);
                if expected == 0 {
                    // the head has gone, so the answer can only be broken off
                    assert!(head.contains("chunked") && !body.ends_with("0\r\n\r\n"), "{what}");
                    continue;
                }
                assert!(head.starts_with(&format!("HTTP/1.1 {expected} ")), "{what}");
                let body = if head.contains("chunked") {
                    whole(body).expect(&what)
                } else {
                    body.to_owned()
                };
                assert!(body == "hello" || expected == 502, "{what}");
            }
        }
    }
}
