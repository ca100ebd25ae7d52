//! Paths that applications read in several ways: `ambiguous`, and that no path gets past a rule with it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use forebay_tests::faults::client::Client;
use forebay_tests::faults::site::Folder;
use forebay_tests::receiver::SocketReceiver;
use forebay_tests::{ENGINES, Options, Server, http2, is_full_matrix, on_each_engine};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

on_each_engine!(
    paths_are_passed_as_they_were_sent,
    what_is_not_passed_is_400,
    every_reading_must_be_allowed,
    no_spelling_gets_past_a_rule,
    no_spelling_gets_past_an_exception,
    no_spelling_reaches_a_program_past_a_rule,
    no_spelling_reaches_a_receiver_past_a_rule,
);

/// An application that answers with the target of its request, and before it with what it has learnt of a
/// decision.
fn application() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            stream.set_nodelay(true).unwrap();
            thread::spawn(move || echo(stream));
        }
    });
    addr
}

fn echo(mut stream: TcpStream) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    loop {
        let (mut target, mut asked_about, mut length) = (String::new(), None, 0);
        for number in 0.. {
            let mut line = String::new();
            match reader.read_line(&mut line) {
                Ok(0) | Err(_) => return,
                Ok(_) if line == "\r\n" => break,
                Ok(_) if number == 0 => target = line.split(' ').nth(1).unwrap().to_owned(),
                Ok(_) => {
                    let (name, value) = line.split_once(':').unwrap();
                    match name.to_ascii_lowercase().as_str() {
                        "x-forwarded-uri" => asked_about = Some(value.trim().to_owned()),
                        "content-length" => length = value.trim().parse().unwrap(),
                        _ => {}
                    }
                }
            }
        }
        if length > 0 {
            reader.read_exact(&mut vec![0; length]).unwrap();
            target.push_str(&format!(" {length}"));
        }
        let is_closed =
            asked_about.is_some_and(|uri| target == "/deny" || is_admin(uri.as_bytes()));
        let status = if is_closed { "403 Forbidden" } else { "200 OK" };
        let length = target.len();
        let answer = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n{target}");
        if stream.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

/// A server in front of an application that has all paths, and its folder.
fn start(engine: &str, ambiguous: &str, more: &str) -> (Server, Folder) {
    let folder = Folder::new();
    folder.write("root/files/a.txt", "own");
    let lines = format!(
        "[[proxy]]\npath = \"/\"\nto = [\"http://{}\"]\nambiguous = \"{ambiguous}\"\n{more}",
        application()
    );
    let options = Options::new(folder.join("root")).engine(engine).config(&lines);
    (Server::start(&options), folder)
}

/// The status and body of the answer, the same in both versions of HTTP.
fn get(server: &Server, path: &str) -> (u16, String) {
    let mut client = Client::over(server.connect());
    assert!(client.ask(path));
    let one = client.answer().unwrap();
    let two = http2::Client::connect(server.addr()).get(path);
    assert_eq!(one.status, two.status, "{path}");
    let text = |body: Vec<u8>| String::from_utf8(body).unwrap();
    let (one_text, two_text) = (text(one.body), text(two.body));
    if one.status == 200 {
        assert_eq!(one_text, two_text, "{path}");
    }
    (one.status, one_text)
}

fn paths_are_passed_as_they_were_sent(engine: &str) {
    let more = "[[proxy]]\npath = \"/strip\"\nstrip = \"/strip\"\nto = [\"http://APP\"]\nambiguous = \"pass\"\n\
                [[proxy]]\npath = \"/refuse\"\nto = [\"http://APP\"]\n";
    let more = more.replace("APP", &application().to_string());
    let (server, _folder) = start(engine, "pass", &more);
    for path in [
        "/@acme%2ftool",
        "/@acme%2Ftool?a=%2F//",
        "/api/contents/sub%2Fa.txt",
        "/web/2020/http://example.com/",
        "/unsafe/300x300/http://h/a.png",
        "/api/v4/projects/group%2Fsub%2Fname/repository/files/a%2Fb.c/raw",
        "/api/queues/%2F/name",
        "/wiki/AC%2FDC",
        "/a%5Cb",
        "/a%252Fb",
        "/a%252F..%252Fb",
        "/a//",
        "//",
        "/a",
        "/a%20b",
    ] {
        assert_eq!(get(&server, path), (200, path.to_owned()), "{engine}");
    }
    assert_eq!(get(&server, "/strip/a%2Fb//c"), (200, "/a%2Fb//c".to_owned()), "{engine}");
    // a body goes with such a path
    let mut client = http2::Client::connect(server.addr());
    let stream = client.begin("PUT", "/@acme%2ftool", &[("content-length", "100000")], false);
    client.send_all(stream, &[b'x'; 100_000]);
    assert_eq!(client.answer(stream).body, b"/@acme%2ftool 100000", "{engine}");
    for path in ["/strip%2Fa", "//strip/a", "/refuse/a%2Fb", "/refuse//a", "/strip//h/a"] {
        let (status, text) = get(&server, path);
        assert!(status == 400 && text.contains("ambiguous"), "{engine} {path}: {status} {text}");
    }
}

fn what_is_not_passed_is_400(engine: &str) {
    for ambiguous in ["refuse", "normalise", "pass"] {
        let (server, _folder) = start(engine, ambiguous, "");
        let is_passed = ambiguous == "pass";
        for (path, normal) in [
            ("/a%2Fb", None),
            ("/a%5cb", None),
            ("/a//b", Some("/a/b")),
            ("/web/http://h/", Some("/web/http:/h/")),
        ] {
            let (status, text) = get(&server, path);
            match normal.filter(|_| ambiguous == "normalise") {
                Some(normal) => assert_eq!((status, &*text), (200, normal), "{engine}"),
                None if is_passed => assert_eq!((status, &*text), (200, path), "{engine}"),
                None => {
                    let says = status == 400 && text.contains("ambiguous");
                    assert!(says, "{engine} {ambiguous} {path}: {status} {text}");
                }
            }
        }
        for path in ["/a/..%2Fadmin", "/a%2F..%2F..%2Fb", "/a/.%5c", "/a%2F..;x/b", "/a%2Fb%2fc"] {
            assert_eq!(get(&server, path).0, 400, "{engine} {ambiguous} {path}");
        }
        for (path, status) in [("/%2F%00", 404), ("/%2F%zz", 404), ("/%2F/../..", 400)] {
            assert_eq!(get(&server, path).0, status, "{engine} {ambiguous} {path}");
        }
    }
}

const HASH: &str = "$2y$04$rE6UMvOf68UamHlkbZKD.ONJLEmHsZmnyoRir2CfmvCtpBEdvxw3u";

/// Rules that protect `/admin`, and the status of what they refuse.
const RULES: [(&str, u16); 4] = [
    ("[[access]]\npath = \"/admin\"\nallow = [\"192.0.2.1\"]\n", 403),
    ("[[auth]]\npath = \"/admin\"\nusers = { alice = \"HASH\" }\n", 401),
    ("[[forward_auth]]\npath = \"/\"\nto = \"http://APP\"\nuri = \"/decide\"\n", 403),
    ("[[rule]]\nname = \"admin\"\npath = [\"/admin\", \"/admin/*\"]\naction = \"reject\"\n", 400),
];

/// The lines of one of these rules, with a server that decides.
fn made(rule: &str) -> String {
    rule.replace("APP", &application().to_string()).replace("HASH", HASH)
}

fn every_reading_must_be_allowed(engine: &str) {
    for (rule, refused) in RULES {
        let rule = made(rule);
        let (server, _folder) = start(engine, "pass", &rule);
        for path in
            ["/admin%2Fusers", "/admin%5Cusers", "//admin/users", "//x/admin/users", "/%2Fadmin"]
        {
            assert_eq!(get(&server, path).0, refused, "{engine} {path}\n{rule}");
        }
        for path in ["/x%2Fadmin", "/x//admin", "/administration%2Fa"] {
            assert_eq!(get(&server, path), (200, path.to_owned()), "{engine}\n{rule}");
        }
    }
}

/// The ways in which applications read a target.
type PathModel = (&'static str, fn(&[u8]) -> Vec<u8>);

const READERS: [PathModel; 14] = [
    ("does not decode", |raw| raw.to_vec()),
    ("decodes", |raw| decode(raw)),
    ("decodes, then takes dots out", |raw| undot(&decode(raw))),
    ("takes dots out, then decodes", |raw| decode(&undot(raw))),
    ("merges slashes, then decodes", |raw| decode(&merge(raw))),
    ("decodes, then merges slashes and takes dots out", |raw| undot(&merge(&decode(raw)))),
    ("takes dots out, then merges slashes", |raw| merge(&undot(&decode(raw)))),
    ("has backslashes for slashes", |raw| undot(&merge(&slashes(&decode(raw))))),
    ("has backslashes for slashes before it decodes", |raw| decode(&undot(&slashes(raw)))),
    ("leaves parameters out, then decodes", |raw| undot(&merge(&decode(&bare(raw))))),
    ("decodes, then leaves parameters out", |raw| undot(&merge(&bare(&decode(raw))))),
    ("keeps encoded slashes", |raw| undot(&merge(&decode_but(raw, b"/\\")))),
    ("knows %2f in small letters alone", |raw| undot(&decode_but_great(raw))),
    ("takes what follows two slashes for a host", |raw| merge(&undot(&decode(behind_host(raw))))),
];

fn decode(raw: &[u8]) -> Vec<u8> {
    decode_but(raw, b"")
}

/// Decodes once, except for the encodings of these bytes.
fn decode_but(raw: &[u8], kept: &[u8]) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::new(), raw);
    while let [first, behind @ ..] = rest {
        let hex = behind.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        let byte = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match byte.filter(|byte| *first == b'%' && !kept.contains(byte)) {
            Some(byte) => {
                out.push(byte);
                rest = &behind[2..];
            }
            None => {
                out.push(*first);
                rest = behind;
            }
        }
    }
    out
}

fn decode_but_great(raw: &[u8]) -> Vec<u8> {
    let hidden = String::from_utf8_lossy(raw).replace("%2F", "\u{1}").replace("%5C", "\u{2}");
    decode(hidden.as_bytes())
}

fn merge(path: &[u8]) -> Vec<u8> {
    let mut out = path.to_vec();
    out.dedup_by(|next, before| *next == b'/' && *before == b'/');
    out
}

fn slashes(path: &[u8]) -> Vec<u8> {
    path.iter().map(|&byte| if byte == b'\\' { b'/' } else { byte }).collect()
}

fn bare(path: &[u8]) -> Vec<u8> {
    let name = |segment: &[u8]| segment.split(|&b| b == b';').next().unwrap().to_vec();
    path.split(|&b| b == b'/').map(name).collect::<Vec<_>>().join(&b'/')
}

fn undot(path: &[u8]) -> Vec<u8> {
    let mut names: Vec<&[u8]> = Vec::new();
    for name in path.split(|&b| b == b'/').skip(1) {
        match name {
            b"." => {}
            b".." => _ = names.pop(),
            name => names.push(name),
        }
    }
    [b"/".as_slice(), &names.join(&b'/')].concat()
}

fn behind_host(raw: &[u8]) -> &[u8] {
    match raw.strip_prefix(b"//") {
        Some(rest) => rest.iter().position(|&b| b == b'/').map_or(b"/", |at| &rest[at..]),
        None => raw,
    }
}

fn is_admin(path: &[u8]) -> bool {
    let rest = path.strip_prefix(b"/admin");
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

/// Paths that may lead to `/admin`, or away from it: always the same ones.
fn corpus() -> Vec<String> {
    const BEGINNINGS: [&str; 6] = ["", "/x", "/pub/y", "/x;p", "/web/http:", "/admin"];
    const SEPARATORS: [&str; 30] = [
        "/",
        "//",
        "///",
        "%2F",
        "%2f",
        "%2F%2f",
        "/%2F",
        "%2F/",
        "%5C",
        "%5c",
        "/%5C",
        "%5C%5C",
        "/./",
        "/../",
        "/%2e%2e/",
        "%2F..%2F",
        "/..%2F",
        "%2f../",
        "/.%2e%2f",
        "%5C..%5C",
        "/..%5c",
        "/..;/",
        ";/",
        "/;/",
        ";%2F",
        "%3b%2F",
        "%252F",
        "%2F.%2F",
        "/;x%2F..%2F",
        "\\",
    ];
    const MIDDLES: [&str; 6] = ["", "a", "..", "h;q", "%61", "a%2Fb"];
    const NAMES: [&str; 7] =
        ["admin", "%61dmin", "adm%69n", "admin;x", "admin%3bx", "%61%64%6d%69%6e", "admin%20"];
    const ENDS: [&str; 12] =
        ["", "/", "/u", "%2Fu", "%5Cu", "//", "//u", "/../x", "%2F..%2Fx", ";/u", "/.", "%2f"];
    let mut all = BTreeSet::new();
    for name in NAMES {
        for begin in BEGINNINGS {
            for separator in SEPARATORS {
                all.extend(ENDS.map(|end| format!("{begin}{separator}{name}{end}")));
            }
        }
    }
    // some of all pairs of separators, by a fixed sequence of numbers that looks random
    let mut number: u64 = 38;
    let mut one_of = |list: &[&'static str]| {
        number =
            number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        list[(number >> 33) as usize % list.len()]
    };
    while all.len() < 52_000 {
        let path = [
            one_of(&BEGINNINGS),
            one_of(&SEPARATORS),
            one_of(&MIDDLES),
            one_of(&SEPARATORS),
            one_of(&NAMES),
            one_of(&ENDS),
        ];
        all.insert(path.concat());
    }
    all.into_iter()
        .map(|path| if path.starts_with('/') { path } else { format!("/{path}") })
        .collect()
}

/// The outcome for a corpus.
struct Outcome {
    /// Whether a path must never be reached.
    is_closed: fn(&[u8]) -> bool,
    passed: usize,
    with_separators: usize,
    leaks: Vec<String>,
}

impl Outcome {
    fn new(is_closed: fn(&[u8]) -> bool) -> Outcome {
        Outcome { is_closed, passed: 0, with_separators: 0, leaks: Vec::new() }
    }

    fn take(&mut self, path: &str, status: u16, body: &[u8]) {
        assert!(matches!(status, 200 | 400 | 401 | 403 | 404), "{path}: {status}");
        if status != 200 {
            return;
        }
        self.passed += 1;
        self.with_separators += usize::from(String::from_utf8_lossy(body).contains("%2"));
        for (reader, read) in READERS {
            if (self.is_closed)(&read(body)) {
                self.leaks.push(format!("{path} as {}: {reader}", String::from_utf8_lossy(body)));
            }
        }
    }

    fn by_http1(&mut self, server: &Server, paths: &[&String]) {
        let mut client = Client::over(server.connect());
        for path in paths {
            assert!(client.ask(path));
            let answer = client.answer().unwrap();
            let is_last = answer.is_last();
            self.take(path, answer.status, &answer.body);
            if is_last {
                client = Client::over(server.connect());
            }
        }
    }

    fn by_http2(&mut self, server: &Server, paths: &[&String]) {
        for some in paths.chunks(500) {
            let mut client = http2::Client::connect(server.addr());
            for path in some {
                let answer = client.get(path);
                self.take(path, answer.status, &answer.body);
            }
        }
    }
}

#[test]
fn the_corpus_would_find_leaks() {
    let corpus = corpus();
    assert!(corpus.len() >= 50_000 && corpus.iter().collect::<BTreeSet<_>>().len() >= 50_000);
    for (reader, read) in READERS {
        let leads = corpus.iter().filter(|path| is_admin(&read(path.as_bytes()))).count();
        assert!(leads > 500, "{reader}: {leads}");
    }
}

/// Each engine plays a part of the corpus, and each rule a part of that; in the full matrix all play all.
fn no_spelling_gets_past_a_rule(engine: &str) {
    let corpus = corpus();
    let at = ENGINES.iter().position(|other| *other == engine).unwrap_or_default();
    let parts = if is_full_matrix() { 1 } else { ENGINES.len() * RULES.len() };
    for (offset, (rule, _)) in RULES.iter().enumerate() {
        let rule = made(rule);
        let first = (at * RULES.len() + offset) % parts;
        let mine: Vec<&String> = corpus.iter().skip(first).step_by(parts).collect();
        for ambiguous in ["pass", "refuse", "normalise"] {
            let step = if ambiguous == "pass" || is_full_matrix() { 1 } else { 4 };
            let some: Vec<&String> = mine.iter().copied().step_by(step).collect();
            let (server, _folder) = start(engine, ambiguous, &rule);
            let mut outcome = Outcome::new(is_admin);
            let (one, two) = some.split_at(some.len() / 4 * 3);
            outcome.by_http1(&server, one);
            outcome.by_http2(&server, two);
            assert_eq!(outcome.leaks, [""; 0], "{engine} {ambiguous}\n{rule}");
            assert!(outcome.passed > 0, "{engine} {ambiguous}\n{rule}");
            assert!(ambiguous != "pass" || outcome.with_separators > 0, "{engine}\n{rule}");
        }
    }
}

/// A program gets the path in two ways: as it was sent, and as the rules have seen it.
fn no_spelling_reaches_a_program_past_a_rule(engine: &str) {
    let corpus = corpus();
    let at = ENGINES.iter().position(|other| *other == engine).unwrap_or_default();
    let parts = if is_full_matrix() { 16 } else { 16 * ENGINES.len() };
    for (offset, (rule, _)) in RULES.iter().enumerate() {
        let bed = crate::cgi::Bed::new();
        for told in ["REQUEST_URI", "PATH_INFO"] {
            let text = format!("printf 'Content-Length: %s\\n\\n%s' ${{#{told}}} \"${told}\"");
            bed.program(told, &text);
        }
        let mine: Vec<&String> = corpus.iter().skip(at + offset).step_by(parts).collect();
        let (one, two) = mine.split_at(mine.len() / 2);
        let start = |told: &str| {
            let directory = format!("directory = {:?}", bed.folder.join("cgi"));
            let program = format!("program = {:?}", bed.folder.join("cgi").join(told));
            let lines = bed.lines("").replace(&directory, &program);
            let lines = lines.replace("path = \"/cgi-bin\"", "path = \"/\"") + &made(rule);
            let options = Options::new(bed.folder.join("root")).engine(engine).config(&lines);
            Server::start(&options)
        };
        let mut outcome = Outcome::new(is_admin);
        let server = start("REQUEST_URI");
        let (first, second) = one.split_at(one.len() / 2);
        outcome.by_http1(&server, first);
        outcome.by_http2(&server, second);
        assert_eq!(outcome.leaks, [""; 0], "{engine}\n{rule}");
        assert!(outcome.passed > 0, "{engine}\n{rule}");
        // the path is decoded once
        let server = start("PATH_INFO");
        for path in two {
            let mut client = Client::over(server.connect());
            assert!(client.ask(path));
            let answer = client.answer().unwrap();
            let is_led = answer.status == 200 && is_admin(&undot(&merge(&answer.body)));
            assert!(!is_led, "{engine} {path}\n{rule}");
        }
    }
}

/// A receiver reads the path that the client has sent, from the client's socket or from one end of a pair.
fn no_spelling_reaches_a_receiver_past_a_rule(engine: &str) {
    let corpus = corpus();
    let at = ENGINES.iter().position(|other| *other == engine).unwrap_or_default();
    let parts = if is_full_matrix() { 1 } else { 4 * ENGINES.len() };
    let receiver = SocketReceiver::start(|handed| handed.answer(&handed.target()));
    for (offset, (rule, _)) in RULES.iter().enumerate() {
        let folder = Folder::new();
        folder.write("root/index.html", "none of these");
        let to = receiver.to();
        let lines =
            format!("[[hand_over]]\npath = \"/\"\nto = {to:?}\nrelay = true\n{}", made(rule));
        let options = Options::new(folder.join("root")).engine(engine).config(&lines);
        let server = Server::start(&options);
        let mine: Vec<&String> = corpus.iter().skip(at + offset).step_by(parts).collect();
        let (one, two) = mine.split_at(mine.len() / 4 * 3);
        let mut outcome = Outcome::new(is_admin);
        outcome.by_http1(&server, one);
        outcome.by_http2(&server, two);
        assert_eq!(outcome.leaks, [""; 0], "{engine}\n{rule}");
        assert!(outcome.passed > 0, "{engine}\n{rule}");
    }
}

/// Rules that close everything but these paths.
const EXCEPTIONS: [&str; 3] = [
    "[[access]]\nallow = [\"192.0.2.1\"]\nexcept = [\"/x\", \"/pub\", \"/web\"]\n",
    "[[auth]]\npath = \"/\"\nexcept = [\"/x\", \"/pub\", \"/web\"]\nusers = { alice = \"HASH\" }\n",
    "[[forward_auth]]\nexcept = [\"/x\", \"/pub\", \"/web\"]\nto = \"http://APP\"\nuri = \"/deny\"\n",
];

fn is_not_excepted(path: &[u8]) -> bool {
    let is_in = |top: &str| {
        let rest = path.strip_prefix(top.as_bytes());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
    };
    !["/x", "/pub", "/web"].into_iter().any(is_in)
}

/// Every path that is let through is among the exceptions, however the application reads it.
fn no_spelling_gets_past_an_exception(engine: &str) {
    let corpus = corpus();
    let at = ENGINES.iter().position(|other| *other == engine).unwrap_or_default();
    let parts = if is_full_matrix() { 1 } else { ENGINES.len() * EXCEPTIONS.len() };
    for (offset, rule) in EXCEPTIONS.iter().enumerate() {
        let rule = made(rule);
        let first = (at * EXCEPTIONS.len() + offset) % parts;
        let mine: Vec<&String> = corpus.iter().skip(first).step_by(parts).collect();
        for ambiguous in ["pass", "refuse", "normalise"] {
            let step = if ambiguous == "pass" || is_full_matrix() { 1 } else { 4 };
            let some: Vec<&String> = mine.iter().copied().step_by(step).collect();
            let (server, _folder) = start(engine, ambiguous, &rule);
            assert_eq!(get(&server, "/pub/a"), (200, "/pub/a".to_owned()), "{engine}\n{rule}");
            assert!(matches!(get(&server, "/a").0, 401 | 403), "{engine}\n{rule}");
            let mut outcome = Outcome::new(is_not_excepted);
            let (one, two) = some.split_at(some.len() / 4 * 3);
            outcome.by_http1(&server, one);
            outcome.by_http2(&server, two);
            assert_eq!(outcome.leaks, [""; 0], "{engine} {ambiguous}\n{rule}");
            assert!(outcome.passed > 0, "{engine} {ambiguous}\n{rule}");
        }
    }
}
