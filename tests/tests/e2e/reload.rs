//! Reloads while clients are served: no client notices anything but the new content.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed check panics")]

use forebay_tests::faults::soon;
use forebay_tests::server::{engine_lines, free_addr};
use forebay_tests::wire::PATIENCE;
use forebay_tests::{ENGINES, Options, Server, has_thread_each, is_full_matrix};
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

forebay_tests::on_each_engine! {
    reloads_lose_nobody_and_leave_nothing_stale,
    a_bad_file_changes_nothing_and_the_command_says_why,
    limits_and_timeouts_change_for_connections_that_are_open,
    what_was_replaced_is_let_go_without_a_request,
    the_admin_listener_moves_and_what_needs_a_restart_says_so,
}

/// The number of clients that keep their connections.
const CLIENTS: usize = 64;

/// The longest time that each client is idle after an answer. About a hundred requests are made during a
/// reload; in the full matrix they ask for more than the server can do.
fn most_idle_ms() -> u64 {
    if is_full_matrix() { 20 } else { 60 }
}

/// The time that a client that connects for each request pauses in between.
fn away() -> Duration {
    Duration::from_millis(if is_full_matrix() { 0 } else { 2 })
}

/// A root for each version, with files that name it.
struct Roots(PathBuf);

impl Roots {
    fn new(versions: u64) -> Roots {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("forebay-reload-{}-{number}", std::process::id());
        let base = std::env::temp_dir().join(name);
        for version in 0..versions {
            let root = base.join(version.to_string());
            fs::create_dir_all(&root).unwrap();
            fs::write(root.join("version"), version.to_string()).unwrap();
        }
        Roots(base)
    }

    fn root(&self, version: u64) -> PathBuf {
        self.0.join(version.to_string())
    }
}

impl Drop for Roots {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Asks for the version. An error if the connection was lost before the first byte of an answer.
fn ask(stream: &mut BufReader<TcpStream>, how: &str) -> std::io::Result<u64> {
    let request = format!("GET /version HTTP/1.1\r\nHost: a\r\n{how}\r\n");
    stream.get_mut().write_all(request.as_bytes())?;
    let (mut line, mut length) = (String::new(), 0);
    if stream.read_line(&mut line)? == 0 {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    assert_eq!(line, "HTTP/1.1 200 OK\r\n");
    while line != "\r\n" {
        line.clear();
        stream.read_line(&mut line).unwrap();
        if let Some(value) = line.strip_prefix("Content-Length: ") {
            length = value.trim().parse().unwrap();
        }
        assert!(!(how.is_empty() && line.starts_with("Connection:")), "told to go: {line}");
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).unwrap();
    Ok(String::from_utf8(body).unwrap().parse().unwrap())
}

fn connect(addr: SocketAddr) -> std::io::Result<BufReader<TcpStream>> {
    let stream = TcpStream::connect(addr)?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    Ok(BufReader::new(stream))
}

/// The state that the clients and the operator share.
#[derive(Default)]
struct Shared {
    /// The version that a reload has confirmed: no older one may come after.
    least: AtomicU64,
    stop: AtomicBool,
    answers: AtomicU64,
}

impl Shared {
    fn check(&self, least: u64, version: std::io::Result<u64>) {
        let version = version.unwrap_or_else(|error| panic!("a connection was lost: {error:?}"));
        assert!(version >= least, "version {version} after {least} was confirmed");
        self.answers.fetch_add(1, Ordering::Relaxed);
    }
}

/// Clients that keep one connection for the whole time.
fn keep_alive(shared: &Arc<Shared>, addr: SocketAddr, count: usize) -> Vec<JoinHandle<()>> {
    let client = |number| {
        let shared = Arc::clone(shared);
        // the same in every run
        let mut pauses = fastrand::Rng::with_seed(number as u64);
        std::thread::spawn(move || {
            let mut stream = connect(addr).unwrap();
            while !shared.stop.load(Ordering::Acquire) {
                let least = shared.least.load(Ordering::Acquire);
                shared.check(least, ask(&mut stream, ""));
                // most connections are idle at most times
                std::thread::sleep(Duration::from_millis(pauses.u64(0..most_idle_ms())));
            }
        })
    };
    (0..count).map(client).collect()
}

/// Clients that connect for each request. If the address `may_be_gone`, they expect a refused connection
/// now and then, but an accepted one is answered.
fn one_each(shared: &Arc<Shared>, addr: SocketAddr, may_be_gone: bool) -> JoinHandle<()> {
    let shared = Arc::clone(shared);
    std::thread::spawn(move || {
        while !shared.stop.load(Ordering::Acquire) {
            let least = shared.least.load(Ordering::Acquire);
            match connect(addr) {
                Ok(mut stream) => {
                    shared.check(least, ask(&mut stream, "Connection: close\r\n"));
                    drop(stream);
                    std::thread::sleep(away());
                }
                Err(error) if may_be_gone && error.kind() == ErrorKind::ConnectionRefused => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(error) => panic!("cannot connect to {addr}: {error}"),
            }
        }
    })
}

fn finish(shared: &Shared, clients: Vec<JoinHandle<()>>) -> u64 {
    shared.stop.store(true, Ordering::Release);
    for client in clients {
        client.join().unwrap();
    }
    shared.answers.load(Ordering::Relaxed)
}

fn reload(server: &Server) {
    let (code, said) = server.reload();
    assert_eq!(code, Some(0), "{said}");
}

fn reloads_lose_nobody_and_leave_nothing_stale(engine: &str) {
    let reloads = if engine == "event" || is_full_matrix() { 200 } else { 60 };
    let roots = Roots::new(reloads + 1);
    let options = |version| {
        let options = Options::new(roots.root(version)).engine(engine);
        options.config("limits.requests_per_connection = 0")
    };
    let server = Server::start(&options(0));
    let shared = Arc::new(Shared::default());
    let mut clients = keep_alive(&shared, server.addr(), CLIENTS);
    clients.push(one_each(&shared, server.addr(), false));
    for version in 1..=reloads {
        server.configure(&options(version));
        reload(&server);
        shared.least.store(version, Ordering::Release);
        // replaced directories are watched for up to a second more, and all tests share few watches
        std::thread::sleep(Duration::from_millis(100));
    }
    let answers = finish(&shared, clients);
    assert!(answers > CLIENTS as u64, "{answers} answers");
    eprintln!("{engine}: {reloads} reloads, {answers} answers");
}

/// Each content watches its directories. Threads without connections let go of the old ones, too.
fn what_was_replaced_is_let_go_without_a_request(engine: &str) {
    if engine == "pipeline:never" {
        // a thread that waits in a list keeps what it had until it has something to do
        return;
    }
    let roots = Roots::new(4);
    let options = |version| Options::new(roots.root(version)).engine(engine).config("");
    let server = Server::start(&options(0));
    let watching = || {
        let files = fs::read_dir(format!("/proc/{}/fd", server.pid())).unwrap();
        let links = files.filter_map(|file| fs::read_link(file.unwrap().path()).ok());
        links.filter(|link| link.ends_with("anon_inode:inotify")).count()
    };
    // as many threads as there are clients have the content
    let mut clients: Vec<_> = (0..20).map(|_| connect(server.addr()).unwrap()).collect();
    assert!(clients.iter_mut().all(|client| ask(client, "").unwrap() == 0));
    // where TLS is spoken the files of certificates are watched, too, soon after the start
    let is_complete = || !server.is_sealed() || watching() > 1;
    assert!(soon(PATIENCE, is_complete), "{engine}: {}", watching());
    let before = watching();
    drop(clients);
    for version in 1..=3 {
        server.configure(&options(version));
        reload(&server);
    }
    assert!(soon(PATIENCE, || watching() == before), "{engine}: {} of {before}", watching());
}

#[test]
fn listeners_engines_and_worker_counts_change_under_load() {
    const RELOADS: u64 = 60;
    let roots = Roots::new(RELOADS + 1);
    let second = free_addr();
    let mut server = Server::start(&Options::new(roots.root(0)).config("log.format = \"json\""));
    let first = server.addr();
    let configure = |version: u64| {
        let engine = ENGINES[version as usize % ENGINES.len()];
        // a thread per connection is needed for every client
        let workers = version % 3 + if has_thread_each(engine) { 200 } else { 1 };
        let more = if version % 4 < 2 { format!(", \"{second}\"") } else { String::new() };
        let (root, engine) = (roots.root(version), engine_lines(engine));
        server.configure_with(&format!(
            "listen = [\"{first}\"{more}]\nroot = {root:?}\n{engine}workers = {workers}\nlog.access = \"off\"\nlimits.requests_per_connection = 0\n\
             limits.connections_per_client = 5000\n"
        ));
        reload(&server);
    };
    configure(0);
    let mut pauses = fastrand::Rng::with_seed(1);
    let shared = Arc::new(Shared::default());
    let mut clients = keep_alive(&shared, first, CLIENTS);
    clients.push(one_each(&shared, first, false));
    clients.push(one_each(&shared, second, true));
    for version in 1..=RELOADS {
        configure(version);
        shared.least.store(version, Ordering::Release);
        std::thread::sleep(Duration::from_millis(pauses.u64(0..60)));
    }
    let answers = finish(&shared, clients);
    eprintln!("{RELOADS} reloads with changed listeners, engines and workers, {answers} answers");
    server.signal(rustix::process::Signal::TERM);
    let status = server.wait(Duration::from_secs(60)).expect("the server did not stop");
    assert!(status.success(), "{}", server.stderr());
    assert!(server.stderr().contains(" 0 aborted"), "{}", server.stderr());
}

fn a_bad_file_changes_nothing_and_the_command_says_why(engine: &str) {
    let roots = Roots::new(2);
    let options =
        |version| Options::new(roots.root(version)).engine(engine).config("server_header = true");
    let server = Server::start(&options(0));
    for (text, said) in [
        ("root = \"/\"\nwokers = 3\n", ":2:1: wokers: unknown key"),
        ("root = \"/nowhere\"\n", "/nowhere"),
        ("listen = [\"192.0.2.1:1\"]\nroot = \"/\"\n", "192.0.2.1:1"),
        ("= broken", ":1:1:"),
    ] {
        server.configure_with(text);
        let (code, message) = server.reload();
        assert!(matches!(code, Some(1 | 78)), "{code:?} {message}");
        assert!(message.contains(said), "{message}");
        assert!(message.contains("nothing has changed"), "{message}");
        assert_eq!(ask(&mut connect(server.addr()).unwrap(), "").unwrap(), 0);
    }
    // no thread accepts from sockets that were opened for more loops before the second address was
    // refused
    let mut more = options(0).config("[[listener]]\nlisten = [\"192.0.2.1:1\"]");
    more.workers = 8;
    server.configure(&more);
    let (code, message) = server.reload();
    assert!(code == Some(1) && message.contains("192.0.2.1:1"), "{code:?} {message}");
    for _ in 0..16 {
        assert_eq!(ask(&mut connect(server.addr()).unwrap(), "").unwrap(), 0);
    }
    fs::remove_file(server.file()).unwrap();
    assert_eq!(server.reload().0, Some(78));
    server.configure(&options(1));
    server.signal(rustix::process::Signal::HUP);
    let mut stream = connect(server.addr()).unwrap();
    while ask(&mut stream, "").unwrap() != 1 {
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn limits_and_timeouts_change_for_connections_that_are_open(engine: &str) {
    let roots = Roots::new(1);
    let options = Options::new(roots.root(0)).engine(engine);
    let server = Server::start(&options.clone().config("limits.target_bytes = \"8KiB\""));
    let mut kept = connect(server.addr()).unwrap();
    assert_eq!(ask(&mut kept, "").unwrap(), 0);
    server.configure(&options.config("limits.target_bytes = \"64B\""));
    reload(&server);
    let long = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(100));
    kept.get_mut().write_all(long.as_bytes()).unwrap();
    let mut line = String::new();
    kept.read_line(&mut line).unwrap();
    assert!(line.starts_with("HTTP/1.1 414 "), "{line}");
}

fn the_admin_listener_moves_and_what_needs_a_restart_says_so(engine: &str) {
    let roots = Roots::new(1);
    let options = Options::new(roots.root(0)).engine(engine);
    let other = if engine == "pool" { "event" } else { "pool" };
    let (first, second) = (free_addr(), free_addr());
    let server = Server::start(&options.clone().config(&format!("admin.listen = \"{first}\"")));
    let status = |addr: SocketAddr| {
        forebay_tests::wire::exchange(addr, b"GET /status HTTP/1.0\r\nHost: localhost\r\n\r\n")
    };
    assert!(status(first).starts_with(b"HTTP/1.1 200 "));
    let moved = options.clone().engine(other);
    server.configure(&moved.config(&format!("admin.listen = \"{second}\"")));
    reload(&server);
    let now = String::from_utf8(status(second)).unwrap();
    assert!(now.contains(&format!("\"engine\":\"{other}\"")), "{now}");
    for (line, key) in [
        ("user = \"nobody\"", "user"),
        ("control.socket = \"off\"", "control.socket"),
        ("sandbox.read = [\"/\"]", "sandbox"),
    ] {
        server.configure(&options.clone().config(line));
        let (code, said) = server.reload();
        // a server whose socket is said to be off cannot be asked
        assert_eq!(code, Some(1), "{said}");
        let said = if said.contains("is \"off\"") { key.to_owned() } else { said };
        assert!(said.contains(key), "{said}");
    }
    assert!(status(second).starts_with(b"HTTP/1.1 200 "));
}
