//! `forebay upgrade`: another process takes the place of the serving one, and no client notices.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed check panics")]

use crate::operator_bans::done;
use forebay_tests::faults::soon;
use forebay_tests::server::free_addr;
use forebay_tests::upgrade::Successor;
pub(crate) use forebay_tests::upgrade::{command, upgrade};
use forebay_tests::wire::{self, PATIENCE};
use forebay_tests::{Options, Server};
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

forebay_tests::on_each_engine! {
    upgrades_lose_nobody,
    one_that_cannot_serve_changes_nothing,
    an_address_that_is_left_is_closed,
}

/// The same with stages: another supervisor takes the supervisor's place, with stages of its own.
mod isolated {
    #[test]
    fn upgrades_lose_nobody() {
        super::upgrades_lose_nobody("isolated");
    }

    #[test]
    fn one_that_cannot_serve_changes_nothing() {
        super::one_that_cannot_serve_changes_nothing("isolated");
    }

    #[test]
    fn an_address_that_is_left_is_closed() {
        super::an_address_that_is_left_is_closed("isolated");
    }
}

/// A directory for one test, with a small file in it.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("forebay-upgrade-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("small.txt"), "small").unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The state that clients share with the operator.
#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    answers: AtomicU64,
    /// The number of answers that each client has had.
    each: Mutex<BTreeMap<u64, u64>>,
    /// The longest time that a request has taken.
    longest_ms: AtomicU64,
}

/// Asks once. Returns whether another answer may follow on the connection.
fn ask(stream: &mut BufReader<TcpStream>, request: &str) -> bool {
    stream.get_mut().write_all(request.as_bytes()).unwrap();
    let (mut line, mut length, mut goes_on) = (String::new(), 0, true);
    assert_ne!(stream.read_line(&mut line).unwrap(), 0, "the connection was lost");
    assert_eq!(line, "HTTP/1.1 200 OK\r\n");
    while line != "\r\n" {
        line.clear();
        stream.read_line(&mut line).unwrap();
        if let Some(value) = line.strip_prefix("Content-Length: ") {
            length = value.trim().parse().unwrap();
        }
        goes_on &= line != "Connection: close\r\n";
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).unwrap();
    goes_on
}

/// A client that asks again and again, on a connection that it keeps as long as the server allows.
fn client(shared: &Arc<Shared>, addr: SocketAddr, keeps: bool, number: u64) -> JoinHandle<()> {
    let shared = Arc::clone(shared);
    let mut pauses = fastrand::Rng::with_seed(number);
    let how = if keeps { "" } else { "Connection: close\r\n" };
    let request = format!("GET /small.txt HTTP/1.1\r\nHost: a\r\n{how}\r\n");
    std::thread::spawn(move || {
        let mut kept = None;
        while !shared.stop.load(Ordering::Acquire) {
            let began = Instant::now();
            let mut stream =
                kept.take().unwrap_or_else(|| BufReader::new(TcpStream::connect(addr).unwrap()));
            stream.get_ref().set_read_timeout(Some(PATIENCE)).unwrap();
            let goes_on = ask(&mut stream, &request);
            shared.longest_ms.fetch_max(began.elapsed().as_millis() as u64, Ordering::Relaxed);
            shared.answers.fetch_add(1, Ordering::Relaxed);
            *shared.each.lock().unwrap().entry(number).or_default() += 1;
            kept = goes_on.then_some(stream);
            std::thread::sleep(Duration::from_millis(pauses.u64(0..30)));
        }
    })
}

fn upgrades_lose_nobody(engine: &str) {
    let folder = Folder::new();
    let large: Vec<u8> = (0..8_000_000_u32).map(|at| (at % 251) as u8).collect();
    fs::write(folder.0.join("large.bin"), &large).unwrap();
    let socket = folder.0.join("server.sock");
    let options = Options::new(&folder.0).engine(engine);
    // an upgrade gives more time than a drain
    let server = Server::start(&options.config("[timeouts]\ndrain = \"500ms\""));
    let text = fs::read_to_string(server.file()).unwrap();
    assert!(text.contains("listen = [\""), "{text}");
    let at = format!("listen = [\"unix:{}\", \"", socket.display());
    // a reload could not: the server cannot reach that directory
    server.configure_with(&text.replacen("listen = [\"", &at, 1));
    let shared = Arc::new(Shared::default());
    let clients: Vec<_> =
        (0..16).map(|number| client(&shared, server.addr(), number % 4 != 0, number)).collect();
    // a client that is in the middle of an answer all the time
    let mut slow = wire::connect(server.addr());
    slow.write_all(b"GET /large.bin HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let mut got = vec![0; 100_000];
    slow.read_exact(&mut got).unwrap();
    let mut successors = Vec::new();
    for _ in 0..2 {
        std::thread::sleep(Duration::from_millis(300));
        let before = shared.answers.load(Ordering::Relaxed);
        successors.push(upgrade(&server));
        let goes_on = || shared.answers.load(Ordering::Relaxed) > before + 50;
        assert!(soon(PATIENCE, goes_on), "{engine}: nobody is served");
    }
    shared.stop.store(true, Ordering::Release);
    clients.into_iter().for_each(|client| client.join().unwrap());
    // the first process waits for the slow client, the second for none
    assert!(soon(PATIENCE, || !successors[0].is_there()), "{engine}: {}", server.stderr());
    slow.read_to_end(&mut got).unwrap();
    let body = got.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    assert!(got[body..] == large[..], "{engine}: {} bytes of {}", got.len() - body, large.len());
    // the last one has the standard error of the first, which goes on
    let first = Successor::of(server.pid());
    assert!(soon(PATIENCE, || !first.is_there()), "{engine}: {}", server.stderr());
    server.says("stopped (replaced): connections: ");
    let mut over_unix = UnixStream::connect(&socket).unwrap();
    over_unix.write_all(b"GET /small.txt HTTP/1.0\r\nHost: a\r\n\r\n").unwrap();
    let mut answer = String::new();
    over_unix.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("small"), "{engine}: {answer}");
    drop(successors);
    assert!(!socket.exists(), "the last one leaves its socket");
    let longest = shared.longest_ms.load(Ordering::Relaxed);
    eprintln!("{engine}: {} answers, {longest} ms at most", shared.answers.load(Ordering::Relaxed));
}

fn one_that_cannot_serve_changes_nothing(engine: &str) {
    let folder = Folder::new();
    let server = Server::start(&Options::new(&folder.0).engine(engine).config(""));
    let good = fs::read_to_string(server.file()).unwrap();
    let serves = || {
        let answer = server.exchange(b"GET /small.txt HTTP/1.0\r\nHost: a\r\n\r\n");
        assert!(answer.ends_with(b"small"), "{}", String::from_utf8_lossy(&answer));
    };
    server.configure_with(&good.replace("root = ", "rot = "));
    let (code, said) = command(&server);
    assert_eq!(code, Some(78), "{said}");
    assert!(said.contains("rot: unknown key"), "{said}");
    serves();
    // an address that another program has
    let other = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let at = format!("listen = [\"{}\", \"", other.local_addr().unwrap());
    server.configure_with(&good.replacen("listen = [\"", &at, 1));
    let (code, said) = command(&server);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("Address already in use"), "{said}");
    assert!(said.contains("the running one goes on as before"), "{said}");
    server.says("nothing has changed");
    serves();
    // and the next one can
    server.configure_with(&good);
    let successor = upgrade(&server);
    serves();
    drop(successor);
}

/// Clients that are connected already are answered, and later ones are refused, not kept waiting. Others
/// are answered by the new server as soon as it serves.
fn an_address_that_is_left_is_closed(engine: &str) {
    let folder = Folder::new();
    let socket = folder.0.join("left.sock");
    let left = free_addr();
    let listener = format!("[[listener]]\nlisten = [\"{left}\", \"unix:{}\"]\n", socket.display());
    let server = Server::start(&Options::new(&folder.0).engine(engine).config(&listener));
    let kept = server.addr();
    let request = b"GET /small.txt HTTP/1.0\r\nHost: a\r\n\r\n";
    let answered = |addr: SocketAddr| wire::exchange(addr, request).ends_with(b"small");
    assert!(answered(left) && answered(kept));
    let text = fs::read_to_string(server.file()).unwrap();
    assert!(text.contains(&listener), "{text}");
    let new = "[[header]]\nset = { X-Server = \"new\" }\n";
    server.configure_with(&(text.replace(&listener, "") + new));
    let successor = upgrade(&server);
    // at the address that stays, the old server answers no client any more
    for _ in 0..50 {
        let answer = String::from_utf8_lossy(&wire::exchange(kept, request)).into_owned();
        assert!(answer.contains("\r\nX-Server: new\r\n"), "{engine}: {answer}");
    }
    let is_refused = || TcpStream::connect_timeout(&left, Duration::from_millis(300));
    let is_refused =
        || is_refused().is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused);
    assert!(soon(PATIENCE, is_refused), "{engine}: {}", server.stderr());
    assert!(!socket.exists(), "{engine}: the file of a socket that is left");
    assert!(answered(kept), "{engine}");
    // and it can be had again
    server.configure_with(&text);
    let next = upgrade(&server);
    assert!(answered(left) && answered(kept), "{engine}: {}", server.stderr());
    drop(successor);
    drop(next);
}

/// Changes by commands in a server without stages hold in one with stages, and the other way round.
#[test]
fn a_server_with_stages_goes_on_with_what_commands_have_changed() {
    let folder = Folder::new();
    let options = Options::new(&folder.0).engine("event");
    let server = Server::start(&options.config("limits.connections_per_client = 100"));
    done(&server, &["policy", "ban", "203.0.113.9"]);
    let text = fs::read_to_string(server.file()).unwrap();
    server.configure_with(&text.replace("engine = \"event\"", "engine = \"isolated\""));
    let with_stages = upgrade(&server);
    assert!(done(&server, &["policy", "bans"]).contains("203.0.113.9"));
    done(&server, &["policy", "ban", "203.0.113.10"]);
    server.configure_with(&text);
    let without = upgrade(&server);
    let bans = done(&server, &["policy", "bans"]);
    assert!(bans.contains("203.0.113.9 ") && bans.contains("203.0.113.10 "), "{bans}");
    drop((with_stages, without));
}

/// A server without stages, one with stages, and one without again: a change that a reload cannot make.
#[test]
fn a_server_gets_stages_and_loses_them() {
    let folder = Folder::new();
    // with pool it goes by the number of threads
    let options = Options::new(&folder.0).engine("event");
    let server = Server::start(&options.config("limits.connections_per_client = 100"));
    let text = fs::read_to_string(server.file()).unwrap();
    assert!(text.contains("engine = \"event\""), "{text}");
    let shared = Arc::new(Shared::default());
    let clients: Vec<_> =
        (0..8).map(|number| client(&shared, server.addr(), number % 4 != 0, number)).collect();
    let mut successors = Vec::new();
    for engine in ["isolated", "pool", "isolated", "event"] {
        // with fewer threads than clients pool ends connections that are kept, as it should
        let workers = if engine == "pool" { "workers = 16" } else { "workers = 2" };
        let text = text.replace("engine = \"event\"", &format!("engine = {engine:?}"));
        server.configure_with(&text.replace("workers = 2", workers));
        successors.push(upgrade(&server));
        // the second answer comes from the new server; a connection that outlives two upgrades is cut
        let before = shared.each.lock().unwrap().clone();
        let has_left =
            |number: u64, count: u64| count >= before.get(&number).copied().unwrap_or_default() + 2;
        let goes_on = || {
            let each = shared.each.lock().unwrap();
            each.len() == 8 && each.iter().all(|(&number, &count)| has_left(number, count))
        };
        assert!(soon(PATIENCE, goes_on), "{engine}: nobody is served: {}", server.stderr());
    }
    shared.stop.store(true, Ordering::Release);
    clients.into_iter().for_each(|client| client.join().unwrap());
    // all but the last have no clients any more
    let left = || successors.iter().filter(|one| one.is_there()).count();
    assert!(soon(PATIENCE, || left() == 1), "{}", server.stderr());
    let first = Successor::of(server.pid());
    assert!(soon(PATIENCE, || !first.is_there()), "{}", server.stderr());
}
