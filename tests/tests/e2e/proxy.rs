//! Applications behind, reached over HTTP: what they get, what clients get, and what becomes of
//! applications that fail.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use forebay_tests::faults::site::{Folder, counting};
use forebay_tests::faults::soon;
use forebay_tests::http2;
use forebay_tests::server::free_addr;
use forebay_tests::tls::applications_at;
use forebay_tests::wire::PATIENCE;
use forebay_tests::{Options, Server, on_each_engine};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{self, AddressFamily, SocketType};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

on_each_engine!(
    answers_come_back_in_their_framing,
    great_bodies_go_both_ways,
    connections_are_kept_and_looked_at,
    applications_that_fail_are_told_apart,
    each_step_has_a_time_of_its_own,
    what_is_safe_is_asked_elsewhere,
    a_backup_answers_while_no_other_is_well,
    each_is_asked_as_often_as_it_weighs,
    one_that_hangs_is_not_waited_for_twice,
    hasty_applications_get_new_connections,
    a_client_is_asked_for_its_body,
    bodies_of_requests_have_a_bound,
    an_early_answer_ends_the_request,
    other_protocols_pass_through_and_survive_a_reload,
    an_answer_after_a_reload_is_that_of_its_site,
    a_client_that_leaves_cancels,
    rules_hold_for_applications,
    many_streams_are_passed_on_beside_one_another,
    messages_and_trailers_go_both_ways,
);

/// An application with a thread per connection, whose answers depend on the path.
struct Application {
    addr: SocketAddr,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    connections: AtomicUsize,
    /// The number of requests, except for health checks.
    requests: AtomicUsize,
    /// The number of clients that left before their whole answer.
    left: AtomicUsize,
    is_sick: AtomicBool,
}

impl Application {
    fn start() -> Application {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (addr, counts) = (listener.local_addr().unwrap(), Arc::<Counts>::default());
        let shared = Arc::clone(&counts);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                stream.set_nodelay(true).unwrap();
                let counts = Arc::clone(&shared);
                counts.connections.fetch_add(1, SeqCst);
                let reader = BufReader::new(stream.try_clone().unwrap());
                thread::spawn(move || serve_all(reader, stream, &counts));
            }
        });
        Application { addr, counts }
    }

    fn connections(&self) -> usize {
        self.counts.connections.load(SeqCst)
    }

    fn requests(&self) -> usize {
        self.counts.requests.load(SeqCst)
    }
}

/// Serves requests until one is the last; the client may go at any time.
fn serve_all<R: Read, W: Write>(mut reader: BufReader<R>, mut writer: W, counts: &Counts) {
    while serve(&mut reader, &mut writer, counts).unwrap_or(false) {}
}

/// Serves one request. Returns whether the connection is kept.
fn serve<R: Read, W: Write>(
    reader: &mut BufReader<R>,
    writer: &mut W,
    counts: &Counts,
) -> std::io::Result<bool> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head)? == 0 {
            return Ok(false);
        }
    }
    let mut words = head.split(' ');
    let (method, path) = (words.next().unwrap(), words.next().unwrap());
    if path != "/health" {
        counts.requests.fetch_add(1, SeqCst);
    }
    let mut answer = |fields: &str, body: &str| {
        writer.write_all(format!("HTTP/1.1 {fields}\r\n\r\n{body}").as_bytes())
    };
    match path.split('?').next().unwrap() {
        "/app/sized" if method == "HEAD" => answer("200 OK\r\nContent-Length: 5", "")?,
        "/app/sized" => answer("200 OK\r\nContent-Length: 5", "hello")?,
        "/app/chunked" => answer(
            "200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum",
            "3\r\nhel\r\n2\r\nlo\r\n0\r\nX-Sum: 5\r\n\r\n",
        )?,
        "/app/until-close" => {
            answer("200 OK", "hello")?;
            return Ok(false);
        }
        "/health" => {
            let status = if counts.is_sick.load(SeqCst) { "503 Sick" } else { "204 Well" };
            answer(&format!("{status}\r\nConnection: close"), "")?;
            return Ok(false);
        }
        "/app/none" => answer("204 No Content", "")?,
        "/app/error" => answer("500 Oh\r\nContent-Length: 4", "mine")?,
        "/app/head" => answer(&format!("200 OK\r\nContent-Length: {}", head.len()), &head)?,
        "/app/once" => {
            answer("200 OK\r\nContent-Length: 5", "hello")?;
            return Ok(false);
        }
        "/app/big" => {
            answer(&format!("200 OK\r\nContent-Length: {BIG}"), "")?;
            writer.write_all(&vec![b'x'; BIG])?;
        }
        "/app/sum" => {
            if head.contains("Expect: 100-continue") {
                writer.write_all(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")?;
                writer.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
            }
            let body = body(&head, reader)?;
            let said = format!("{} {}", body.len(), sum(&body));
            let fields = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{said}", said.len());
            writer.write_all(fields.as_bytes())?;
        }
        "/app/echo" => {
            answer("200 OK\r\nTransfer-Encoding: chunked", "")?;
            // each chunk as it comes, then what follows the last one
            loop {
                let mut line = String::new();
                reader.read_line(&mut line)?;
                let len = usize::from_str_radix(line.trim(), 16).unwrap();
                if len == 0 {
                    break;
                }
                let mut chunk = vec![0; len + 2];
                reader.read_exact(&mut chunk)?;
                writer.write_all(&[line.as_bytes(), &chunk].concat())?;
            }
            let mut trailers = String::from("0\r\n");
            while !trailers.ends_with("\r\n\r\n") {
                reader.read_line(&mut trailers)?;
            }
            writer.write_all(trailers.as_bytes())?;
        }
        "/app/early" => {
            answer("413 No\r\nContent-Length: 2", "no")?;
            return Ok(false);
        }
        "/app/die" => return Ok(false),
        "/app/die-in-head" => {
            writer.write_all(b"HTTP/1.1 200 OK\r\nContent-")?;
            return Ok(false);
        }
        "/app/die-in-body" => {
            answer("200 OK\r\nContent-Length: 10", "half")?;
            return Ok(false);
        }
        "/app/die-in-chunk" => {
            answer("200 OK\r\nTransfer-Encoding: chunked", "5\r\nhel")?;
            return Ok(false);
        }
        "/app/nonsense" => {
            writer.write_all(b"220 mail.example ESMTP\r\n")?;
            return Ok(false);
        }
        "/app/both" => {
            answer("200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked", "hello")?
        }
        "/app/large" => {
            let field = format!("X-A: {}\r\n", "a".repeat(1000));
            writer.write_all(format!("HTTP/1.1 200 OK\r\n{}\r\n", field.repeat(100)).as_bytes())?;
        }
        "/app/stalls" => {
            answer("200 OK\r\nContent-Length: 10", "half")?;
            let _ = reader.read(&mut [0; 1]);
            counts.left.fetch_add(1, SeqCst);
            return Ok(false);
        }
        "/app/silent" => {
            let _ = reader.read(&mut [0; 1]);
            counts.left.fetch_add(1, SeqCst);
            return Ok(false);
        }
        "/app/upgrade" => {
            answer("101 Yes\r\nConnection: upgrade\r\nUpgrade: echo", "")?;
            std::io::copy(reader, writer)?;
            writer.write_all(b"bye")?;
            return Ok(false);
        }
        other => panic!("{other}"),
    }
    Ok(true)
}

const BIG: usize = 20 << 20;

fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(7, |sum: u64, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)))
}

/// The body of a request with this head.
fn body(head: &str, reader: &mut impl BufRead) -> std::io::Result<Vec<u8>> {
    let field = |name: &str| head.lines().find_map(|line| line.strip_prefix(name));
    let mut body = Vec::new();
    if let Some(length) = field("Content-Length: ") {
        body = vec![0; length.parse().unwrap()];
        reader.read_exact(&mut body)?;
    } else if field("Transfer-Encoding: chunked").is_some() {
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            let len = usize::from_str_radix(line.trim(), 16).unwrap();
            let mut chunk = vec![0; len];
            reader.read_exact(&mut chunk)?;
            body.extend_from_slice(&chunk);
            reader.read_line(&mut String::new())?;
            if len == 0 {
                break;
            }
        }
    }
    Ok(body)
}

/// A server with this application behind `/app`, and a file of its own.
fn start(engine: &str, to: &str, more: &str) -> (Server, Folder) {
    let folder = Folder::new();
    folder.write("root/index.html", "own");
    let to = applications_at(&format!("to = [{to}]"));
    let lines = format!("[[proxy]]\npath = \"/app\"\n{to}\n{more}");
    let options = Options { log: true, ..Options::new(folder.join("root")) };
    (Server::start(&options.engine(engine).config(&lines)), folder)
}

fn at(application: &Application) -> String {
    format!("\"http://{}\"", application.addr)
}

/// A client, with the bytes that it has received and not read.
struct Client {
    stream: TcpStream,
    received: Vec<u8>,
}

#[derive(Debug)]
struct Got {
    status: u16,
    head: String,
    body: Vec<u8>,
    is_whole: bool,
}

impl Client {
    fn new(server: &Server) -> Client {
        Client { stream: server.connect(), received: Vec::new() }
    }

    fn send(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).unwrap();
    }

    fn ask(&mut self, method: &str, path: &str) -> Got {
        self.send(&format!("{method} {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        self.answer(method)
    }

    fn get(&mut self, path: &str) -> Got {
        self.ask("GET", path)
    }

    fn more(&mut self) -> bool {
        let mut buffer = vec![0; 64 * 1024];
        match self.stream.read(&mut buffer) {
            Ok(count @ 1..) => {
                self.received.extend_from_slice(&buffer[..count]);
                true
            }
            Ok(0) => false,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => panic!("nothing comes"),
            _ => false,
        }
    }

    fn until(&mut self, mark: &[u8]) -> Option<String> {
        loop {
            if let Some(at) = self.received.windows(mark.len()).position(|part| part == mark) {
                let bytes: Vec<u8> = self.received.drain(..at + mark.len()).collect();
                return Some(String::from_utf8(bytes).unwrap());
            }
            if !self.more() {
                return None;
            }
        }
    }

    fn take(&mut self, count: usize) -> Option<Vec<u8>> {
        while self.received.len() < count {
            if !self.more() {
                return None;
            }
        }
        Some(self.received.drain(..count).collect())
    }

    fn answer(&mut self, method: &str) -> Got {
        let head = self.until(b"\r\n\r\n").unwrap();
        let status = head[9..12].parse().unwrap();
        let (mut body, mut is_whole) = (Vec::new(), true);
        let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
        if method == "HEAD" || matches!(status, 204 | 304) {
        } else if let Some(length) = length {
            match self.take(length.parse().unwrap()) {
                Some(bytes) => body = bytes,
                None => (body, is_whole) = (std::mem::take(&mut self.received), false),
            }
        } else if head.contains("chunked") {
            loop {
                let Some(line) = self.until(b"\r\n") else {
                    is_whole = false;
                    break;
                };
                let len = usize::from_str_radix(line.trim(), 16).unwrap();
                if len == 0 {
                    let mut trailer = String::new();
                    while trailer != "\r\n" {
                        trailer = self.until(b"\r\n").unwrap();
                        body.extend_from_slice(trailer.trim().as_bytes());
                    }
                    break;
                }
                let Some(chunk) = self.take(len + 2) else {
                    is_whole = false;
                    break;
                };
                body.extend_from_slice(&chunk[..len]);
            }
        }
        Got { status, head, body, is_whole }
    }
}

fn answers_come_back_in_their_framing(engine: &str) {
    let application = Application::start();
    let (server, _folder) = start(engine, &at(&application), "");
    let mut client = Client::new(&server);
    for (method, path, status, body) in [
        ("GET", "/app/sized", 200, "hello"),
        ("HEAD", "/app/sized", 200, ""),
        ("GET", "/app/chunked", 200, "helloX-Sum: 5"),
        ("GET", "/app/until-close", 200, "hello"),
        ("GET", "/app/none", 204, ""),
        ("GET", "/index.html", 200, "own"),
        ("GET", "/app/error", 500, "mine"),
    ] {
        let got = client.ask(method, path);
        assert_eq!((got.status, got.is_whole), (status, true), "{engine} {path}");
        assert_eq!(String::from_utf8(got.body).unwrap(), body, "{engine} {path}");
        assert_eq!(got.head.matches("Date: ").count(), 1);
    }
    // a client that knows no chunks gets the body until the end
    client.send("GET /app/chunked HTTP/1.0\r\n\r\n");
    let mut rest = String::new();
    client.stream.read_to_string(&mut rest).unwrap();
    assert!(rest.ends_with("\r\n\r\nhello") && !rest.contains("chunked"), "{rest}");
    // the head that the application gets
    let mut client = Client::new(&server);
    client.send("GET /app/head?q HTTP/1.1\r\nHost: shop.example\r\nConnection: x-secret\r\nX-Secret: 1\r\nX-Forwarded-For: 6.6.6.6\r\n\r\n");
    let told = String::from_utf8(client.answer("GET").body).unwrap();
    assert!(told.starts_with("GET /app/head?q HTTP/1.1\r\nHost: shop.example\r\n"), "{told}");
    assert!(told.contains("X-Forwarded-For: 127.0.0.1\r\n") && !told.contains("6.6.6.6"), "{told}");
    assert!(!told.contains("ecret"), "{told}");
    assert!(soon(PATIENCE, || server.stdout().lines().count() == 9), "{}", server.stdout());
    // over Unix sockets: at a path, and at a name without a file
    let folder = Folder::new();
    let path = folder.join("app.sock");
    let name = format!("forebay-proxy-{}-{engine}", std::process::id());
    let abstract_name = std::os::unix::net::SocketAddr::from_abstract_name(&name).unwrap();
    let sockets = [
        (path.display().to_string(), UnixListener::bind(&path).unwrap()),
        (format!("@{name}"), UnixListener::bind_addr(&abstract_name).unwrap()),
    ];
    for (at, listener) in sockets {
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let reader = BufReader::new(stream.try_clone().unwrap());
                thread::spawn(move || serve_all(reader, stream, &Counts::default()));
            }
        });
        let (server, _folder) = start(engine, &format!("\"unix:{at}\""), "");
        let mut client = Client::new(&server);
        for _ in 0..3 {
            assert_eq!(client.get("/app/sized").body, b"hello", "{at}");
        }
    }
}

fn great_bodies_go_both_ways(engine: &str) {
    let application = Application::start();
    let (server, _folder) = start(engine, &at(&application), "");
    let sent = counting(BIG);
    let said = format!("{BIG} {}", sum(&sent));
    let mut client = Client::new(&server);
    client.send(&format!("POST /app/sum HTTP/1.1\r\nHost: a\r\nContent-Length: {BIG}\r\n\r\n"));
    client.stream.write_all(&sent).unwrap();
    assert_eq!(String::from_utf8(client.answer("POST").body).unwrap(), said);
    client.send("POST /app/sum HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    for chunk in sent.chunks(100_003) {
        client.send(&format!("{:x}\r\n", chunk.len()));
        client.stream.write_all(chunk).unwrap();
        client.send("\r\n");
    }
    client.send("0\r\n\r\n");
    assert_eq!(String::from_utf8(client.answer("POST").body).unwrap(), said, "{engine}");
    let got = client.get("/app/big");
    assert!(got.body.len() == BIG && got.body.iter().all(|&byte| byte == b'x'), "{engine}");
}

fn bodies_of_requests_have_a_bound(engine: &str) {
    let application = Application::start();
    let (server, _folder) = start(engine, &at(&application), "body_bytes = \"100KiB\"");
    let sent = vec![b'x'; 200 * 1024];
    let mut client = Client::new(&server);
    let head = |fields: &str| format!("POST /app/sum HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n");
    client.send(&head("Content-Length: 102400"));
    client.stream.write_all(&sent[..102_400]).unwrap();
    assert_eq!(client.answer("POST").status, 200, "{engine}");
    // the application runs nothing, and a client that waits for 100 Continue does not get one
    let asked = application.requests();
    client.send(&head("Content-Length: 102401\r\nExpect: 100-continue"));
    assert_eq!(client.answer("POST").status, 413, "{engine}");
    assert_eq!(application.requests(), asked, "{engine}");
    let mut client = Client::new(&server);
    client.send(&head("Transfer-Encoding: chunked"));
    for chunk in sent.chunks(50_000) {
        let framed = [format!("{:x}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat();
        // the server may have refused it already
        if client.stream.write_all(&framed).is_err() {
            break;
        }
    }
    assert_eq!(client.answer("POST").status, 413, "{engine}");
    // no body at all is allowed
    let (server, _folder) = start(engine, &at(&application), "body_bytes = \"0B\"");
    let mut client = Client::new(&server);
    assert_eq!(client.get("/app/sized").status, 200, "{engine}");
    client.send(&head("Content-Length: 1"));
    assert_eq!(client.answer("POST").status, 413, "{engine}");
}

fn connections_are_kept_and_looked_at(engine: &str) {
    let application = Application::start();
    let (server, _folder) = start(engine, &at(&application), "");
    let mut client = Client::new(&server);
    for _ in 0..20 {
        assert_eq!(client.get("/app/sized").body, b"hello");
    }
    // each of its threads may have one, where threads answer in turn
    assert!(application.connections() <= 8, "{engine}: {}", application.connections());
    // the application closes each connection silently: no client notices
    for _ in 0..20 {
        let got = client.get("/app/once");
        assert_eq!((got.status, got.body), (200, b"hello".to_vec()), "{engine}");
    }
}

fn applications_that_fail_are_told_apart(engine: &str) {
    let application = Application::start();
    let (server, _folder) = start(engine, &at(&application), "max_fails = 0");
    // the others fail at once, but on a busy machine not within that
    let (hasty, _folder) =
        start(engine, &at(&application), "max_fails = 0\ntimeouts.head = \"300ms\"");
    for (path, status) in [
        ("/app/die", 502),
        ("/app/die-in-head", 502),
        ("/app/nonsense", 502),
        ("/app/both", 502),
        ("/app/large", 502),
        ("/app/silent", 504),
    ] {
        let got = Client::new(if status == 504 { &hasty } else { &server }).get(path);
        assert_eq!((got.status, got.is_whole), (status, true), "{engine} {path}");
    }
    for path in ["/app/die-in-body", "/app/die-in-chunk"] {
        let got = Client::new(&server).get(path);
        assert_eq!((got.status, got.is_whole), (200, false), "{engine} {path}");
    }
    let nobody = free_addr();
    let (server, _folder) = start(engine, &format!("\"http://{nobody}\""), "");
    let got = Client::new(&server).get("/app/sized");
    assert_eq!(got.status, 502, "{engine}");
    assert!(String::from_utf8(got.body).unwrap().contains("cannot be reached"));
}

/// An address at which connections neither come about nor are refused: no server accepts, and the backlog
/// is full.
fn crowded() -> (OwnedFd, Vec<TcpStream>, SocketAddr) {
    let listener = net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    net::bind(&listener, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    net::listen(&listener, 0).unwrap();
    let addr = SocketAddr::try_from(net::getsockname(&listener).unwrap()).unwrap();
    // a delay of a busy kernel is not taken for a full backlog
    let first = TcpStream::connect(addr).unwrap();
    poll(&mut [PollFd::new(&listener, PollFlags::IN)], None).unwrap();
    let next = || TcpStream::connect_timeout(&addr, Duration::from_millis(200)).ok();
    let waiting = std::iter::once(first).chain(std::iter::from_fn(next).take(99)).collect();
    (listener, waiting, addr)
}

fn each_step_has_a_time_of_its_own(engine: &str) {
    let (_listener, waiting, addr) = crowded();
    assert!(waiting.len() < 100, "all connections come about");
    let lines = "retries = 0\nmax_fails = 0\ntimeouts = { connect = \"300ms\", head = \"1h\", silence = \"1h\" }";
    let (server, _folder) = start(engine, &format!("\"http://{addr}\""), lines);
    let got = Client::new(&server).get("/app/sized");
    assert_eq!(got.status, 504, "{engine}");
    assert!(String::from_utf8(got.body).unwrap().contains("could not be reached in time"));
    // an application that stops in its answer
    let application = Application::start();
    let lines = "timeouts = { connect = \"5m\", head = \"1h\", silence = \"1s\" }";
    let (server, _folder) = start(engine, &at(&application), lines);
    let got = Client::new(&server).get("/app/stalls");
    assert_eq!(
        (got.status, &*got.body, got.is_whole),
        (200, b"half".as_slice(), false),
        "{engine}"
    );
    assert!(soon(PATIENCE, || application.counts.left.load(SeqCst) == 1), "{engine}: it is kept");
}

fn what_is_safe_is_asked_elsewhere(engine: &str) {
    let (well, nobody) = (Application::start(), free_addr());
    let (server, _folder) = start(engine, &format!("{}, \"http://{nobody}\"", at(&well)), "");
    let mut client = Client::new(&server);
    for _ in 0..10 {
        assert_eq!(client.get("/app/sized").status, 200, "{engine}");
        client.send("POST /app/sum HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc");
        assert_eq!(client.answer("POST").status, 200, "{engine}: there was no connection");
    }
    // a request that may have run is not sent again
    let (one, other) = (Application::start(), Application::start());
    let (server, _folder) =
        start(engine, &format!("{}, {}", at(&one), at(&other)), "max_fails = 0");
    let mut client = Client::new(&server);
    client.send("POST /app/die HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc");
    assert_eq!(client.answer("POST").status, 502);
    assert_eq!(one.requests() + other.requests(), 1, "{engine}");
    assert_eq!(Client::new(&server).get("/app/die").status, 502);
    assert_eq!(one.requests() + other.requests(), 3, "{engine}: once more, and no more than that");
}

fn a_backup_answers_while_no_other_is_well(engine: &str) {
    let (one, backup) = (Application::start(), Application::start());
    let with_backup = |to: &str| {
        let to = format!("{to}]\nbackup = [{}", at(&backup));
        start(engine, &to, "check = { path = \"/health\", interval = \"1s\" }")
    };
    let (server, _folder) = with_backup(&at(&one));
    let answers = |count: usize| {
        let before = (one.requests(), backup.requests());
        for _ in 0..count {
            let answer = server.exchange(b"GET /app/sized HTTP/1.0\r\nHost: a\r\n\r\n");
            assert!(answer.starts_with(b"HTTP/1.1 200 "), "{engine}: {}", answer.escape_ascii());
        }
        (one.requests() - before.0, backup.requests() - before.1)
    };
    assert_eq!(answers(10), (10, 0), "{engine}");
    one.counts.is_sick.store(true, SeqCst);
    assert!(soon(PATIENCE, || answers(10) == (0, 10)), "{engine}: the backup is not asked");
    one.counts.is_sick.store(false, SeqCst);
    assert!(soon(PATIENCE, || answers(10) == (10, 0)), "{engine}: it is not asked again");
    // an application that breaks off counts as healthy until it has failed often enough, and its requests
    // go on
    let (server, _folder) = with_backup(&format!("\"http://{}\"", free_addr()));
    let mut client = Client::new(&server);
    for _ in 0..10 {
        client.send("POST /app/sum HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc");
        assert_eq!(client.answer("POST").status, 200, "{engine}");
    }
}

fn each_is_asked_as_often_as_it_weighs(engine: &str) {
    let (one, other) = (Application::start(), Application::start());
    for balance in ["least", "round-robin"] {
        let before = (one.requests(), other.requests());
        let (first, second) = (at(&one), at(&other));
        let lines = format!(
            "[[proxy]]\npath = \"/app\"\nto = [{first}, {second}]\nbalance = \"{balance}\"\n\
             weights = {{ {first} = 4 }}"
        );
        let folder = Folder::new();
        folder.write("root/index.html", "own");
        let options = Options::new(folder.join("root")).engine(engine);
        let server = Server::start(&options.config(&lines));
        let mut client = Client::new(&server);
        for _ in 0..50 {
            assert_eq!(client.get("/app/sized").status, 200, "{engine}");
        }
        let asked = (one.requests() - before.0, other.requests() - before.1);
        assert_eq!(asked, (40, 10), "{engine}, {balance}");
    }
}

fn one_that_hangs_is_not_waited_for_twice(engine: &str) {
    let mut told = Vec::new();
    // the other one has no more than 3 s, either, in which the machine may do something else
    while !told.contains(&[200, 200, 200, 504]) {
        assert!(told.len() < 3, "{engine}: {told:?}");
        told.push(statuses_beside_one_that_hangs(engine));
    }
}

/// Statuses of two requests that may be repeated, and of two that may not, the smaller status first.
fn statuses_beside_one_that_hangs(engine: &str) -> [u16; 4] {
    // this one takes connections and never reads from them
    let hangs = TcpListener::bind("127.0.0.1:0").unwrap();
    let (well, hung) = (Application::start(), hangs.local_addr().unwrap());
    let more = "balance = \"round-robin\"\nmax_fails = 0\nretries = 1\nretry_budget = \"100%\"\n\
                timeouts.head = \"3s\"";
    let (server, _folder) = start(engine, &format!("{}, \"http://{hung}\"", at(&well)), more);
    let mut client = Client::new(&server);
    let mut get = || client.get("/app/sized").status;
    let gets = [get(), get()];
    // the application may have taken an order
    let post = |client: &mut Client| {
        client.send("POST /app/sum HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc");
        client.answer("POST").status
    };
    let mut posts = [post(&mut Client::new(&server)), post(&mut Client::new(&server))];
    posts.sort_unstable();
    [gets[0], gets[1], posts[0], posts[1]]
}

fn hasty_applications_get_new_connections(engine: &str) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    // an application that answers one request, and closes when the next one comes
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                let mut reader = BufReader::new(&stream);
                let mut head = String::new();
                while !head.ends_with("\r\n\r\n") {
                    if reader.read_line(&mut head)? == 0 {
                        return Ok(());
                    }
                }
                body(&head, &mut reader)?;
                (&stream).write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")?;
                reader.read(&mut [0; 1]).map(drop)
            });
        }
    });
    let (server, _folder) = start(engine, &format!("\"http://{addr}\""), "max_fails = 0");
    let mut client = Client::new(&server);
    let mut told = Vec::new();
    for _ in 0..8 {
        client.send("POST /app/order HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc");
        told.push(client.answer("POST").status);
    }
    // the first that met a connection that was just being closed cannot be repeated; then no more do
    assert_eq!(told, [200, 502, 200, 200, 200, 200, 200, 200], "{engine}");
    for _ in 0..4 {
        assert_eq!(client.get("/app/page").status, 200, "{engine}: repeated where that is safe");
    }
}

fn a_client_is_asked_for_its_body(engine: &str) {
    let application = Application::start();
    let (server, _folder) = start(engine, &at(&application), "");
    let mut client = Client::new(&server);
    client.send(
        "POST /app/sum HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n",
    );
    assert_eq!(
        client.until(b"\r\n\r\n").unwrap(),
        "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
    );
    assert_eq!(client.until(b"\r\n\r\n").unwrap(), "HTTP/1.1 100 Continue\r\n\r\n");
    client.send("abc");
    assert_eq!(client.answer("POST").status, 200);
    client.send(
        "POST /app/early HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n",
    );
    assert_eq!(client.answer("POST").status, 413, "{engine}: and not asked for it");
}

fn an_early_answer_ends_the_request(engine: &str) {
    let application = Application::start();
    let (server, _folder) = start(engine, &at(&application), "");
    let mut client = Client::new(&server);
    client.send("POST /app/early HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\nsome");
    let got = client.answer("POST");
    assert_eq!((got.status, got.body.as_slice()), (413, b"no".as_slice()), "{engine}");
    assert!(got.head.contains("Connection: close") && !client.more());
}

fn other_protocols_pass_through_and_survive_a_reload(engine: &str) {
    let application = Application::start();
    // each end of a tunnel is passed on, whatever an end means before
    let (server, _folder) = start(engine, &at(&application), "abort_on_close = true");
    let mut client = Client::new(&server);
    client.send(
        "GET /app/upgrade HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n",
    );
    let got = client.until(b"\r\n\r\n").unwrap();
    assert!(got.starts_with("HTTP/1.1 101 ") && got.contains("Upgrade: echo\r\n"), "{got}");
    assert_eq!(got.to_ascii_lowercase().matches("connection: upgrade\r\n").count(), 1, "{got}");
    for round in 0..3 {
        client.send("GET / HTTP/1.1\r\n\r\n");
        assert_eq!(client.take(18).unwrap(), b"GET / HTTP/1.1\r\n\r\n", "{engine}");
        if round == 0 {
            assert_eq!(server.reload().0, Some(0));
        }
    }
    client.stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.take(3).unwrap(), b"bye", "{engine}: and the ends, each on its own");
    assert!(!client.more());
    // an upgrade that was not asked for is not passed on
    assert_eq!(Client::new(&server).get("/app/upgrade").status, 502);
}

fn an_answer_after_a_reload_is_that_of_its_site(engine: &str) {
    let application = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = application.local_addr().unwrap();
    let folder = Folder::new();
    folder.write("root/index.html", "own");
    let site = |name: &&str| {
        format!(
            "[[site]]\nhosts = [\"{name}.example\"]\n[[site.header]]\nset = {{ X-Site = \"{name}\" }}\n\
             [[site.proxy]]\npath = \"/\"\nto = \"http://{to}\"\n"
        )
    };
    let options = |sites: &[&str]| {
        let sites: String = sites.iter().map(site).collect();
        Options::new(folder.join("root")).engine(engine).config(&sites)
    };
    let server = Server::start(&options(&["a", "b"]));
    let ask = |name: &str| {
        let mut client = Client::new(&server);
        let host = format!("Host: {name}.example");
        client.send(&format!("POST / HTTP/1.1\r\n{host}\r\nContent-Length: 0\r\n\r\n"));
        (client, application.accept().unwrap().0)
    };
    let (mut of_a, mut a) = ask("a");
    let (mut of_b, b) = ask("b");
    server.configure(&options(&["b", "a"]));
    assert_eq!(server.reload().0, Some(0));
    a.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi").unwrap();
    let got = of_a.answer("POST");
    assert!(got.head.contains("X-Site: a\r\n") && got.body == b"hi", "{engine}: {got:?}");
    // a site that is no longer there
    server.configure(&options(&["a"]));
    assert_eq!(server.reload().0, Some(0));
    drop(b);
    assert_eq!(of_b.answer("POST").status, 502, "{engine}");
}

fn a_client_that_leaves_cancels(engine: &str) {
    let application = Application::start();
    let (server, _folder) = start(engine, &at(&application), "");
    let mut client = Client::new(&server);
    client.send("GET /app/silent HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(soon(PATIENCE, || application.requests() == 1));
    rustix::net::sockopt::set_socket_linger(&client.stream, Some(std::time::Duration::ZERO))
        .unwrap();
    drop(client);
    assert!(soon(PATIENCE, || application.counts.left.load(SeqCst) == 1), "{engine}");
    // a client that only ends its sending direction gets its answer
    let mut client = Client::new(&server);
    client.send("GET /app/big HTTP/1.1\r\nHost: a\r\n\r\n");
    client.stream.shutdown(Shutdown::Write).unwrap();
    assert!(client.answer("GET").is_whole, "{engine}");
}

fn rules_hold_for_applications(engine: &str) {
    let application = Application::start();
    let more = "errors = \"ours\"\n[[rule]]\nname = \"r\"\npath = \"/app/chunked\"\naction = \"reject\"\n\
                [[header]]\npath = \"/app/*\"\nset = { X-Mine = \"yes\" }";
    let (server, folder) = start(engine, &at(&application), more);
    folder.write("root/500.html", "ours");
    let mut client = Client::new(&server);
    assert!(client.get("/app/sized").head.contains("X-Mine: yes\r\n"), "{engine}");
    let got = client.get("/app/error");
    assert!(got.status == 500 && got.body != b"mine", "{engine}");
    assert!(matches!(client.get("/app/chunked").status, 403 | 429 | 503), "{engine}");
    assert_eq!(client.get("/app/sized").status, 200);
    assert_eq!(application.requests(), 3, "{engine}: what was refused was not asked");
}

fn many_streams_are_passed_on_beside_one_another(engine: &str) {
    let application = Application::start();
    let (server, _folder) = start(engine, &at(&application), "max_fails = 0");
    let mut client = http2::Client::connect(server.addr());
    let waiting = client.ask("/app/silent");
    let streams = ["/app/sized", "/app/chunked", "/app/until-close", "/index.html", "/app/none"]
        .map(|path| (path, client.ask(path)));
    for (path, stream) in streams {
        let got = client.answer(stream);
        let body: &[u8] = match path {
            "/index.html" => b"own",
            "/app/none" => b"",
            _ => b"hello",
        };
        assert_eq!(got.body, body, "{engine} {path}");
        assert_eq!(got.field("transfer-encoding"), None);
    }
    // a body larger than all windows, which is given back as it is taken
    let sent: Vec<u8> = (0..3 << 20).map(|at| (at % 251) as u8).collect();
    let stream = client.begin("POST", "/app/sum", &[], false);
    client.send_all(stream, &sent);
    let got = client.answer(stream);
    assert_eq!(String::from_utf8(got.body).unwrap(), format!("{} {}", sent.len(), sum(&sent)));
    let got = client.get("/app/big");
    assert!(got.body.len() == BIG && got.body.iter().all(|&byte| byte == b'x'), "{engine}");
    for (path, status) in [("/app/die", 502), ("/app/nonsense", 502), ("/app/error", 500)] {
        assert_eq!(client.get(path).status, status, "{engine} {path}");
    }
    for path in ["/app/die-in-body", "/app/die-in-chunk"] {
        assert!(client.get(path).reset.is_some(), "{engine} {path}");
    }
    // a request that is given up is cancelled, and the others go on
    client.reset(waiting);
    assert!(soon(PATIENCE, || application.counts.left.load(SeqCst) == 1), "{engine}");
    assert_eq!(client.get("/app/sized").body, b"hello");
}

/// A stream that is open for long, with small messages in both directions, meets no budget; trailers are
/// passed on, and so are interim answers.
fn messages_and_trailers_go_both_ways(engine: &str) {
    let application = Application::start();
    let (server, _folder) = start(engine, &at(&application), "remove = [\"X-Debug\"]");
    let mut client = http2::Client::connect(server.addr());
    let stream = client.begin("POST", "/app/echo", &[("te", "trailers")], false);
    let mut sent = Vec::new();
    for number in 0..3000 {
        let message = format!("message {number};");
        assert_eq!(client.send(stream, message.as_bytes(), false), message.len(), "{engine}");
        sent.extend_from_slice(message.as_bytes());
        // first each is answered before the next, then they come one behind the other
        if number < 300 || number % 500 == 0 {
            client.until(|client| client.so_far(stream).body.len() == sent.len());
        }
    }
    let withheld =
        [("content-type", "text/none"), ("x_forwarded_for", "6.6.6.6"), ("x_debug", "1")];
    client.trail(stream, &[&[("x-sum", "5")], &withheld[..]].concat());
    let got = client.answer(stream);
    assert!(got.body == sent && got.is_whole, "{engine}: {} of {}", got.body.len(), sent.len());
    // not what may not be there (RFC 9110 section 6.5.1), or not in the head either
    assert_eq!(got.trailers, [("x-sum".to_owned(), "5".to_owned())], "{engine}");
    // the trailers of an application, for a request without any
    let got = client.get("/app/chunked");
    assert_eq!(got.trailers, [("x-sum".to_owned(), "5".to_owned())], "{engine}");
    let fields = [("expect", "100-continue"), ("content-length", "3")];
    let stream = client.begin("POST", "/app/sum", &fields, false);
    client.until(|client| client.so_far(stream).informational == [103, 100]);
    client.send(stream, b"abc", true);
    assert_eq!(client.answer(stream).status, 200, "{engine}");
    assert!(client.goodbyes.is_empty(), "{engine}: {:?}", client.goodbyes);
}

/// An application that reports itself as unhealthy is not asked before it reports the opposite, and no
/// request has to find out.
#[test]
fn applications_are_asked_whether_they_are_well() {
    let (one, other) = (Application::start(), Application::start());
    one.counts.is_sick.store(true, SeqCst);
    let folder = Folder::new();
    folder.write("site/index.html", "");
    let lines = format!(
        "[[proxy]]\npath = \"/app\"\nto = [\"http://{}\", \"http://{}\"]\nbalance = \"round-robin\"\n\
         check = {{ path = \"/health\", interval = \"1s\" }}\n",
        one.addr, other.addr
    );
    let server = Server::start(&Options::new(folder.join("site")).config(&lines));
    let is_spared = || {
        let before = one.requests();
        for _ in 0..10 {
            let answer = server.exchange(b"GET /app/sized HTTP/1.0\r\nHost: a\r\n\r\n");
            assert!(answer.starts_with(b"HTTP/1.1 200 "), "{}", answer.escape_ascii());
        }
        one.requests() == before
    };
    assert!(soon(PATIENCE, is_spared), "it is asked although it is not well");
    one.counts.is_sick.store(false, SeqCst);
    assert!(soon(PATIENCE, || !is_spared()), "it is not asked although it is well again");
}
