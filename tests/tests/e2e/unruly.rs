//! Applications that are gone, hang, drip and break off: what clients get, which requests are sent again,
//! and the reports for an operator.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use crate::queue::Gate;
use forebay_tests::faults::client::Client;
use forebay_tests::faults::crowd::{client_address, connect_from};
use forebay_tests::faults::site::Folder;
use forebay_tests::faults::soon;
use forebay_tests::server::free_addr;
use forebay_tests::wire::PATIENCE;
use forebay_tests::{Options, Server, http2};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// Serves the connection on which this head has come; `true` keeps it.
type Answers = fn(&str, &mut Wire) -> std::io::Result<bool>;

/// A connection to an application, with the bytes that were received and not read.
struct Wire {
    reader: BufReader<TcpStream>,
    stream: TcpStream,
}

impl Read for Wire {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.reader.read(buffer)
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.stream.flush()
    }
}

/// An application with a thread per connection, which remembers each head.
struct Application {
    addr: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Application {
    fn start(answers: Answers) -> Application {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (addr, heads) = (listener.local_addr().unwrap(), Arc::<Mutex<Vec<String>>>::default());
        let shared = Arc::clone(&heads);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let heads = Arc::clone(&shared);
                thread::spawn(move || serve(stream, &heads, answers));
            }
        });
        Application { addr, heads }
    }

    /// The heads of all requests so far.
    fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }
}

fn serve(stream: TcpStream, heads: &Mutex<Vec<String>>, answers: Answers) {
    let mut wire = Wire { reader: BufReader::new(stream.try_clone().unwrap()), stream };
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            match wire.reader.read_line(&mut head) {
                Ok(1..) => {}
                _ => return,
            }
        }
        heads.lock().unwrap().push(head.clone());
        // a body of three bytes is all that tests send of known length
        if head.contains("Content-Length: 3\r\n") {
            let _ = wire.read_exact(&mut [0; 3]);
        }
        if !answers(&head, &mut wire).unwrap_or(false) {
            return;
        }
    }
}

fn hello(_: &str, wire: &mut impl Write) -> std::io::Result<bool> {
    wire.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")?;
    Ok(true)
}

fn server(lines: &str) -> (Server, Folder) {
    let folder = Folder::new();
    folder.write("root/index.html", "own");
    let options = Options { log: true, ..Options::new(folder.join("root")) };
    (Server::start(&options.config(&format!("log.format = \"json\"\n{lines}"))), folder)
}

fn ask(server: &Server, request: &str) -> u16 {
    let mut client = Client::connect(server.target());
    client.stream().write_all(request.as_bytes()).unwrap();
    client.answer().unwrap().status
}

fn get(server: &Server, path: &str) -> u16 {
    ask(server, &format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"))
}

/// The line of the log for this path, once it is there.
fn line_of(server: &Server, path: &str) -> String {
    let mark = format!("\"target\":\"{path}\"");
    let find = || server.stdout().lines().find(|line| line.contains(&mark)).map(str::to_owned);
    assert!(soon(PATIENCE, || find().is_some()), "{path}: {}", server.stdout());
    find().unwrap()
}

/// However many upstreams are dead, the healthy one answers.
#[test]
fn one_of_three_that_is_well_answers_all() {
    let well = Application::start(hello);
    for balance in ["least", "round-robin", "two-choices", "hash"] {
        let (dead, gone) = (free_addr(), free_addr());
        let (server, _folder) = server(&format!(
            "[[proxy]]\npath = \"/\"\nretries = 2\nbalance = \"{balance}\"\n\
             to = [\"http://{dead}\", \"http://{gone}\", \"http://{}\"]\n",
            well.addr
        ));
        let post = "POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc";
        for number in 0..40 {
            assert_eq!(get(&server, &format!("/{number}")), 200, "{balance}: {}", server.stderr());
            assert_eq!(ask(&server, post), 200, "{balance}: nothing has run");
        }
        if balance != "hash" {
            for dead in [dead, gone] {
                server.says(&format!("forebay: upstream {dead}: is left alone"));
            }
            server.says("the last: connect: refused");
        }
        assert!(!server.stderr().contains(&format!("{}: is", well.addr)), "{}", server.stderr());
    }
}

/// A single application that fails is not reported as left alone, because it is not.
#[test]
fn a_single_one_that_fails_is_asked_on() {
    let dead = free_addr();
    let (server, _folder) = server(&format!("[[proxy]]\npath = \"/\"\nto = \"http://{dead}\"\n"));
    for _ in 0..5 {
        assert_eq!(get(&server, "/a"), 502);
    }
    server
        .says(&format!("forebay: upstream {dead}: fails, and is asked all the same: none is well"));
    let listener = TcpListener::bind(dead).unwrap();
    let answers = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 1000]);
        hello("", &mut stream).unwrap();
    });
    assert_eq!(get(&server, "/a"), 200, "at once");
    answers.join().unwrap();
    server.says(&format!("forebay: upstream {dead}: is well again"));
    assert!(!server.stderr().contains("left alone"), "{}", server.stderr());
}

/// The time limit for the head of an answer is one limit, whatever comes meanwhile.
#[test]
fn the_time_for_a_head_is_not_prolonged_by_what_drips() {
    let drips = Application::start(|head, stream| {
        let part: &[u8] = match head.starts_with("GET /interim") {
            true => b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n",
            false => b"x",
        };
        if part == b"x" {
            stream.write_all(b"HTTP/1.1 200 OK\r\nX-Long: ")?;
        }
        loop {
            stream.write_all(part)?;
            thread::sleep(Duration::from_millis(50));
        }
    });
    let (server, _folder) = server(&format!(
        "[[forward_auth]]\npath = \"/asked\"\nto = \"http://{0}\"\ntimeouts.head = \"500ms\"\n\
         [[proxy]]\npath = \"/\"\nto = \"http://{0}\"\ntimeouts.head = \"500ms\"\n",
        drips.addr
    ));
    for path in ["/head", "/interim", "/asked"] {
        let mut client = Client::connect(server.target());
        client
            .stream()
            .write_all(format!("GET {path} HTTP/1.0\r\nHost: a\r\n\r\n").as_bytes())
            .unwrap();
        let answer = client.answer().unwrap();
        assert_eq!(answer.status, 504, "{path}");
    }
}

/// An upload may take longer than the limit, which begins with the end of the upload.
#[test]
fn the_time_for_a_head_begins_when_the_request_has_ended() {
    let application = Application::start(|head, stream| {
        if head.contains("Expect: 100-continue") {
            stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        let mut body = [0; 8];
        stream.read_exact(&mut body)?;
        hello("", stream)
    });
    let (server, _folder) = server(&format!(
        "[[proxy]]\npath = \"/\"\nto = \"http://{}\"\ntimeouts.head = \"300ms\"\n",
        application.addr
    ));
    let uploads = |expect: &str| {
        let mut client = server.connect();
        let head = format!("POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n{expect}\r\n");
        client.write_all(head.as_bytes()).unwrap();
        let mut reader = BufReader::new(client.try_clone().unwrap());
        let mut line = String::new();
        if !expect.is_empty() {
            reader.read_line(&mut line).unwrap();
            assert_eq!(line, "HTTP/1.1 100 Continue\r\n");
            reader.read_line(&mut line).unwrap();
        }
        for byte in b"12345678" {
            thread::sleep(Duration::from_millis(80));
            client.write_all(&[*byte]).unwrap();
        }
        line.clear();
        reader.read_line(&mut line).unwrap();
        line == "HTTP/1.1 200 OK\r\n"
    };
    // a machine that is late may answer too late
    for expect in ["", "Expect: 100-continue\r\n"] {
        assert!(soon(PATIENCE, || uploads(expect)), "{expect}");
    }
}

/// A request that may have run is not sent again, unless the configuration allows it.
#[test]
fn without_retries_nothing_that_was_written_is_sent_twice() {
    let application = Application::start(|head, stream| match head.starts_with("GET /first") {
        true => hello("", stream),
        false => Ok(false),
    });
    let (server, _folder) = server(&format!(
        "[[proxy]]\npath = \"/\"\nto = \"http://{}\"\nretries = 0\n",
        application.addr
    ));
    let mut client = Client::connect(server.target());
    for (path, status) in [("/first", 200), ("/second", 502)] {
        assert_eq!(client.get(path).unwrap().status, status);
    }
    let seen = application.heads();
    assert_eq!(seen.iter().filter(|head| head.starts_with("GET /second")).count(), 1, "{seen:?}");
}

/// A request that is refused before an application is asked has the reason in the log, like one that has
/// waited.
#[test]
fn what_is_refused_on_arrival_says_why() {
    let silent = Application::start(|_, stream| {
        let _ = stream.read(&mut [0; 1]);
        Ok(false)
    });
    let (server, _folder) = server(&format!(
        "[[proxy]]\npath = \"/\"\nto = \"http://{}\"\nin_flight = 1\nqueue.requests = 0\n",
        silent.addr
    ));
    let mut first = Client::connect(server.target());
    assert!(first.ask("/first"));
    assert!(soon(PATIENCE, || silent.heads().len() == 1));
    assert_eq!(get(&server, "/full"), 503);
    let line = line_of(&server, "/full");
    assert!(line.contains("\"upstream_error\":\"queue_full\",\"upstream_attempts\":0"), "{line}");
}

/// The log line of an answer that an application has broken off, or has ceased to send, shows that.
#[test]
fn what_is_cut_off_is_not_whole_in_the_log() {
    let application = Application::start(|head, stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")?;
        if head.starts_with("GET /silent") || head.starts_with("GET /client") {
            let _ = stream.read(&mut [0; 1]);
        }
        Ok(false)
    });
    let (server, _folder) = server(&format!(
        "[[proxy]]\npath = \"/\"\nto = \"http://{0}\"\n\
         [[proxy]]\npath = \"/silent\"\nto = \"http://{0}\"\ntimeouts.silence = \"300ms\"\n",
        application.addr
    ));
    for (path, error) in [
        ("/closed", Some("\"upstream_error\":\"broken_off\"")),
        ("/silent", Some("\"upstream_error\":\"timeout\"")),
        ("/client", None),
    ] {
        let mut client = Client::connect(server.target());
        if error.is_some() {
            assert!(client.get(path).is_err(), "{path}");
        } else {
            assert!(client.ask(path));
            let mut some = [0; 1];
            client.stream().read_exact(&mut some).unwrap();
        }
        drop(client);
        let line = line_of(&server, path);
        assert!(line.contains("\"status\":200"), "{line}");
        match error {
            Some(error) => assert!(line.contains(error), "{line}"),
            None => assert!(!line.contains("upstream_error"), "{line}"),
        }
    }
}

/// If the body of a request cannot be read, the log has the application that was asked.
#[test]
fn a_broken_upload_names_its_upstream() {
    let application = Application::start(|_, stream| {
        let _ = stream.read(&mut [0; 100]);
        Ok(true)
    });
    let (server, _folder) =
        server(&format!("[[proxy]]\npath = \"/\"\nto = \"http://{}\"\n", application.addr));
    let head = "POST /upload HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let mut client = Client::connect(server.target());
    client.stream().write_all(head.as_bytes()).unwrap();
    assert!(soon(PATIENCE, || application.heads().len() == 1));
    client.stream().write_all(b"nonsense\r\n").unwrap();
    if !server.is_http2() {
        assert_eq!(client.answer().unwrap().status, 400);
        let line = line_of(&server, "/upload");
        assert!(line.contains(&format!("\"upstream\":\"{}\"", application.addr)), "{line}");
    }
}

/// A lack of descriptors in this server does not count as a failure of an application.
#[test]
fn the_lack_of_descriptors_is_not_held_against_applications() {
    let application = Application::start(hello);
    let (server, _folder) = server(&format!(
        "[[proxy]]\npath = \"/app\"\nto = \"http://{}\"\nmax_fails = 1\n",
        application.addr
    ));
    let mut client = Client::connect(server.target());
    assert_eq!(client.get("/index.html").unwrap().status, 200);
    let limit = |soft: &str| {
        let pid = server.pid().to_string();
        let limit = format!("--nofile={soft}:");
        let done = Command::new("prlimit").args(["--pid", &pid, &limit]).status().unwrap();
        assert!(done.success());
    };
    // numbers below are taken
    limit("3");
    for _ in 0..3 {
        assert_eq!(client.get("/app/none").unwrap().status, 503);
    }
    let line = line_of(&server, "/app/none");
    assert!(line.contains("\"upstream_error\":\"resources\""), "{line}");
    limit("1000");
    assert_eq!(client.get("/app/some").unwrap().status, 200);
    assert!(!server.stderr().contains("forebay: upstream"), "{}", server.stderr());
}

/// A client whose requests an application does not answer keeps some of the descriptors, and leaves the
/// others to all other clients.
#[test]
fn one_client_does_not_take_all_descriptors() {
    const STREAMS: usize = 120;
    let (gate, folder) = (Gate::start(), Folder::new());
    folder.write("root/index.html", "own");
    let wrapper = ["prlimit", "--nofile=512:512"].map(str::to_owned).to_vec();
    let options = Options { log: true, wrapper, ..Options::new(folder.join("root")) };
    let route = format!("[[proxy]]\npath = \"/app\"\nto = \"http://{}\"\n", gate.addr);
    let server = Server::start(&options.config(&format!("log.format = \"json\"\n{route}")));
    let mut client = http2::Client::connect(server.listens_at());
    // with the answer comes how many streams there may be
    assert_eq!(client.get("/index.html").status, 200);
    let path = |number: usize| format!("/app/{number}");
    let streams: Vec<u32> = (0..STREAMS).map(|number| client.ask(&path(number))).collect();
    let count = |client: &http2::Client, status: u16| {
        streams.iter().filter(|stream| client.so_far(**stream).status == status).count()
    };
    let are_settled = || {
        let is_served = client.get("/index.html").status == 200;
        is_served && count(&client, 503) + gate.came().len() == STREAMS
    };
    assert!(soon(PATIENCE, are_settled), "{:?}", gate.came());
    let begun = gate.came().len();
    assert!((1..STREAMS).contains(&begun), "{begun} are asked");
    let refused = streams.iter().position(|stream| client.so_far(*stream).status == 503).unwrap();
    let line = line_of(&server, &path(refused));
    assert!(line.contains("\"upstream_error\":\"descriptors\""), "{line}");
    // other clients have descriptors
    let mut other = Client::over(connect_from(client_address(0), server.listens_at()).unwrap());
    assert!(other.ask("/app/other"));
    gate.has(begun + 1);
    gate.answer(1_000_000);
    assert_eq!(other.answer().unwrap().status, 200);
    client.until(|client| count(client, 200) == begun);
    // each is given back
    let are_answered = || {
        let again: Vec<u32> = (0..begun).map(|_| client.ask("/app/again")).collect();
        let answers = again.into_iter().map(|stream| client.answer(stream).status);
        answers.filter(|status| *status == 200).count() == begun
    };
    assert!(soon(PATIENCE, are_answered), "descriptors are kept");
}

/// The operator learns why there is no connection: each cause has its own message.
#[test]
fn why_there_is_no_connection_is_said() {
    let folder = Folder::new();
    let socket = folder.join("none.sock");
    let (server, _folder) = server(&format!(
        "[[proxy]]\npath = \"/a\"\nto = \"http://{}\"\n\
         [[proxy]]\npath = \"/b\"\nto = \"unix:{}\"\n\
         [[proxy]]\npath = \"/c\"\nto = \"http://nobody.invalid:80\"\n",
        free_addr(),
        socket.display()
    ));
    for (path, why) in [
        ("/a", "connect: refused"),
        ("/b", "connect: there is no such socket"),
        ("/c", "connect: the name has no address"),
    ] {
        assert_eq!(get(&server, path), 502, "{path}");
        server.says(why);
        let line = line_of(&server, path);
        assert!(line.contains("\"upstream_error\":\"connect\""), "{line}");
    }
}

/// The site's error page keeps the fields of the application's answer that a client needs.
#[test]
fn errors_of_ours_keep_what_their_status_means() {
    let application = Application::start(|head, stream| {
        let fields = match head.split(' ').nth(1).unwrap() {
            "/401" => "401 No\r\nWWW-Authenticate: Basic realm=\"x\"\r\nX-Other: a",
            "/503" => "503 No\r\nRetry-After: 7",
            _ => "405 No\r\nAllow: PUT, DELETE",
        };
        stream.write_all(
            format!("HTTP/1.1 {fields}\r\nContent-Length: 6\r\n\r\ntheirs").as_bytes(),
        )?;
        Ok(true)
    });
    let folder = Folder::new();
    folder.write("root/401.html", "ours, of a file");
    let lines = format!(
        "errors = {{ 401 = \"/401.html\" }}\n\
         [[proxy]]\npath = \"/\"\nto = \"http://{}\"\nerrors = \"ours\"\n",
        application.addr
    );
    let server = Server::start(&Options::new(folder.join("root")).config(&lines));
    let mut client = Client::connect(server.target());
    for (path, field, value) in [
        ("/401", "WWW-Authenticate", "Basic realm=\"x\""),
        ("/401", "WWW-Authenticate", "Basic realm=\"x\""),
        ("/503", "Retry-After", "7"),
        ("/405", "Allow", "PUT, DELETE"),
    ] {
        let answer = client.get(path).unwrap();
        assert_eq!(answer.field(field), Some(value), "{}", answer.head);
        assert_ne!(answer.body, b"theirs");
        assert_eq!(answer.field("X-Other"), None);
    }
}

/// Fields that only a server of `forward_auth` may set are removed from clients' requests, on every path.
#[test]
fn copied_fields_cannot_be_forged_beside_their_path() {
    let application = Application::start(hello);
    let authority = Application::start(|_, stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\nRemote-User: ada\r\nContent-Length: 0\r\n\r\n")?;
        Ok(true)
    });
    let (server, _folder) = server(&format!(
        "[[forward_auth]]\npath = \"/intern\"\nto = \"http://{}\"\ncopy = [\"Remote-User\", \"Remote-Groups\"]\n\
         [[proxy]]\npath = \"/\"\nto = \"http://{}\"\n",
        authority.addr, application.addr
    ));
    for path in ["/intern/a", "/open"] {
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: a\r\nRemote-User: root\r\nremote_groups: admin\r\nX-Mine: yes\r\n\r\n"
        );
        assert_eq!(ask(&server, &request), 200, "{path}");
    }
    let heads = application.heads();
    assert_eq!(heads.len(), 2);
    assert!(heads[0].contains("Remote-User: ada\r\n"), "{}", heads[0]);
    for head in heads.iter().chain(&authority.heads()) {
        assert!(head.to_ascii_lowercase().contains("x-mine: yes"), "{head}");
        assert!(!head.contains("root") && !head.contains("admin"), "{head}");
    }
    assert!(!heads[1].to_ascii_lowercase().contains("remote"), "{}", heads[1]);
}

/// A rule for a path also holds for the path with parameters, which applications may take for the same.
#[test]
fn rules_are_not_passed_by_path_parameters() {
    let application = Application::start(hello);
    let (server, folder) = server(&format!(
        "[[rule]]\nname = \"no\"\npath = \"/app/login/*\"\naction = \"reject\"\n\
         [[rule]]\nname = \"neither\"\npath = \"/app/login\"\naction = \"reject\"\n\
         [[rule]]\nname = \"files\"\npath = \"/a\"\naction = \"reject\"\n\
         [[proxy]]\npath = \"/app\"\nto = \"http://{}\"\n",
        application.addr
    ));
    for path in ["/app/login", "/app/login;a", "/app/login%3ba", "/app/login;x/b", "/app;/login"] {
        assert_ne!(get(&server, path), 200, "{path}");
    }
    assert_eq!(get(&server, "/app/other;a"), 200);
    assert_eq!(application.heads().len(), 1);
    // a file is called what it is called
    folder.write("root/a;b", "own");
    assert_eq!(get(&server, "/a;b"), 200);
}

/// The PROXY header of a connection names the client that a trusted proxy has named.
#[test]
fn proxy_headers_name_the_client() {
    let application = Application::start(hello);
    let (server, _folder) = server(&format!(
        "trusted_proxies = [\"127.0.0.1\"]\n\
         [[proxy]]\npath = \"/\"\nto = \"http://{}\"\nproxy_protocol = \"v1\"\n",
        application.addr
    ));
    let named = "GET /a HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 203.0.113.9\r\n\r\n";
    assert_eq!(ask(&server, named), 200);
    assert_eq!(get(&server, "/b"), 200);
    let heads = application.heads();
    let to = server.addr().ip();
    assert!(heads[0].starts_with(&format!("PROXY TCP4 203.0.113.9 {to} 0 ")), "{}", heads[0]);
    assert!(heads[1].starts_with(&format!("PROXY TCP4 127.0.0.1 {to} ")), "{}", heads[1]);
}
