//! The real binary, running on an address of its own.

use crate::faults::process::{connections, doings, wait_for_delivery};
use crate::faults::soon;
use crate::socket::Target;
use crate::tls::{Authority, TlsRelay};
use crate::{ENGINES, ISOLATED, has_thread_each, http2, wire};
use rustix::io::Errno;
use rustix::net;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::Permissions;
use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::ops::Range;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{env, fs, process, thread};

/// The options with which a server is started.
#[derive(Clone, Debug)]
pub struct Options {
    /// The directory that the server serves.
    pub root: PathBuf,
    /// The engine, one of [`ENGINES`].
    pub engine: String,
    /// The number of threads or loops.
    pub workers: usize,
    /// TOML text that is added to the configuration. With it the server is started as `run -c FILE`,
    /// without it as `serve DIR`.
    pub config: String,
    /// Arguments added to the command line.
    pub args: Vec<String>,
    /// A program and its arguments that start the server, such as `prlimit --nofile=64`. It must
    /// become the server (`exec`), or the process id is another.
    pub wrapper: Vec<String>,
    /// Whether there is an access log, on standard output.
    pub log: bool,
    /// The user of the server if the tests themselves run as root.
    pub user: Option<u32>,
    /// The part that answers requests for files.
    pub origin: Origin,
}

/// The part that answers requests for files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Origin {
    /// The server itself, as the program `forebay` does.
    #[default]
    Files,
    /// A handler, in the program `forebay-origin`, which has the server inside.
    Handler,
}

impl Origin {
    /// The origin that `FOREBAY_ORIGIN` names: `handler`, or nothing for files.
    fn wanted() -> Origin {
        match env::var("FOREBAY_ORIGIN").as_deref() {
            Ok("handler") => Origin::Handler,
            Ok("") | Err(_) => Origin::Files,
            Ok(other) => panic!("FOREBAY_ORIGIN is {other:?}; the only value is \"handler\""),
        }
    }
}

impl Options {
    /// Options that serve `root` with two workers and no access log, and with the first engine or the one
    /// that `FOREBAY_ENGINE` names.
    pub fn new(root: impl Into<PathBuf>) -> Options {
        let engine = env::var("FOREBAY_ENGINE").unwrap_or_else(|_| ENGINES[0].to_owned());
        let options = Options {
            root: root.into(),
            engine: String::new(),
            workers: 0,
            config: String::new(),
            args: Vec::new(),
            wrapper: Vec::new(),
            log: false,
            user: None,
            origin: Origin::wanted(),
        };
        options.engine(&engine)
    }

    /// The options with another engine; one that gives each connection a thread has enough of them.
    #[must_use]
    pub fn engine(mut self, engine: &str) -> Options {
        engine.clone_into(&mut self.engine);
        self.workers = if has_thread_each(engine) { 256 } else { 2 };
        self
    }

    /// The options with one loop, so that there is one order of events; an engine that gives each
    /// connection a thread keeps its threads.
    #[must_use]
    pub fn alone(mut self) -> Options {
        if !has_thread_each(&self.engine) {
            self.workers = 1;
        }
        self
    }

    /// The options with more lines of TOML.
    #[must_use]
    pub fn config(mut self, lines: &str) -> Options {
        self.config.push_str(lines);
        self.config.push('\n');
        self
    }
}

/// A running server. Dropping it ends the process.
#[derive(Debug)]
pub struct Server {
    child: Child,
    addr: SocketAddr,
    lane: ReachedBy,
    folder: PathBuf,
    stdout: Captured,
    stderr: Captured,
}

/// The output of a process so far.
#[derive(Debug)]
struct Captured {
    text: Arc<Mutex<String>>,
    reader: Option<thread::JoinHandle<()>>,
}

impl Captured {
    fn new(stream: impl Read + Send + 'static) -> Captured {
        let text = Arc::new(Mutex::new(String::new()));
        let reader = thread::spawn({
            let text = Arc::clone(&text);
            move || {
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    let mut text = text.lock().unwrap();
                    text.push_str(&line);
                    text.push('\n');
                }
            }
        });
        Captured { text, reader: Some(reader) }
    }

    fn text(&self) -> String {
        self.text.lock().unwrap().clone()
    }

    /// Waits for the last line; the process must have ended.
    fn finish(&mut self) {
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

impl Server {
    /// Starts the binary and waits until it accepts connections.
    ///
    /// # Panics
    /// If there is no binary, it ends, or it does not listen within [`wire::PATIENCE`]; the message has
    /// its output.
    pub fn start(options: &Options) -> Server {
        let folder = folder();
        let addr = free_addr();
        let lane = ReachedBy::of(options, addr, &folder);
        let mut command = command(options, addr, &lane, &folder);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child =
            command.spawn().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        let stdout = Captured::new(child.stdout.take().unwrap());
        let stderr = Captured::new(child.stderr.take().unwrap());
        let mut server = Server { child, addr, lane, folder, stdout, stderr };
        server.wait_for_listener();
        match &server.lane {
            ReachedBy::Plain => {}
            ReachedBy::Tls { authority, .. } => {
                server.addr = TlsRelay::narrow(authority, addr, LANE_HOST).addr;
            }
            ReachedBy::Http2 { .. } => server.addr = http2::Http2Relay::start(addr).addr,
        }
        server
    }

    /// The address to connect to: that of the listener, or that of a [`TlsRelay`] before it.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The address to connect to, and the way: the server itself, whatever is [before](Server::addr) it,
    /// unless that translates to HTTP/2.
    pub fn target(&self) -> Target {
        match &self.lane {
            ReachedBy::Plain | ReachedBy::Http2 { .. } => self.addr.into(),
            ReachedBy::Tls { authority, addr, .. } => {
                Target::sealed(*addr, Arc::new(authority.client()), LANE_HOST)
            }
        }
    }

    /// Whether a test's HTTP/1 reaches the server as HTTP/2.
    pub fn is_http2(&self) -> bool {
        matches!(self.lane, ReachedBy::Http2 { .. })
    }

    /// Whether the server speaks TLS itself, behind a [`TlsRelay`].
    pub fn is_sealed(&self) -> bool {
        matches!(self.lane, ReachedBy::Tls { .. })
    }

    /// The address of the server's own listener, whatever is [before](Server::addr) it.
    pub fn listens_at(&self) -> SocketAddr {
        self.lane.addr().unwrap_or(self.addr)
    }

    /// Waits until everything that was sent to the server's [listener](Server::listens_at) has arrived,
    /// as [`wait_for_delivery`] does. Bytes within a relay before it are not known.
    ///
    /// # Panics
    /// If that does not come, or it listens elsewhere than at an address of IPv4.
    pub fn wait_for_delivery(&self) {
        self.wait_for_clients(0);
    }

    /// Waits in the same way, and until at least `count` connections are open there, whether the server
    /// has accepted them or not.
    ///
    /// # Panics
    /// If that does not come, or it listens elsewhere than at an address of IPv4.
    pub fn wait_for_clients(&self, count: usize) {
        let SocketAddr::V4(at) = self.listens_at() else { panic!("no address of IPv4") };
        wait_for_delivery(at, count);
    }

    /// The server's process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// A directory for this server alone, removed with it; its configuration file lies here.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The server's configuration file, if it was started with one.
    pub fn file(&self) -> PathBuf {
        self.folder.join("forebay.toml")
    }

    /// Replaces the server's configuration file by one with another root, engine and so on.
    ///
    /// # Panics
    /// If the file cannot be written.
    pub fn configure(&self, options: &Options) {
        let addr = self.lane.addr().unwrap_or(self.addr);
        self.configure_with(&configuration(options, addr, &self.lane));
    }

    /// Replaces the server's configuration file by this text, in one step.
    ///
    /// # Panics
    /// If the file cannot be written.
    pub fn configure_with(&self, text: &str) {
        let new = self.folder.join("forebay.toml.new");
        fs::write(&new, text).unwrap();
        fs::rename(new, self.file()).unwrap();
    }

    /// Has the server read its configuration file again, as an operator does. Returns the exit code and
    /// the output of the command.
    ///
    /// # Panics
    /// If the command cannot be run.
    pub fn reload(&self) -> (Option<i32>, String) {
        let output = Command::new(binary())
            .arg("reload")
            .arg("-c")
            .arg(self.file())
            .output()
            .expect("cannot run forebay reload");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// The server's standard error so far: the messages for an operator.
    pub fn stderr(&self) -> String {
        self.stderr.text()
    }

    /// Waits until the server has written these words to standard error. Other traces of an event, such
    /// as an answer or a counter, may be there before the line is.
    ///
    /// # Panics
    /// If it has not within [`wire::PATIENCE`].
    #[track_caller]
    pub fn says(&self, words: &str) {
        let is_said = soon(wire::PATIENCE, || self.stderr().contains(words));
        assert!(is_said, "{words:?} is missing in:\n{}", self.stderr());
    }

    /// The server's standard output so far: the access log, if there is one.
    pub fn stdout(&self) -> String {
        self.stdout.text()
    }

    /// Opens a connection to the server.
    ///
    /// # Panics
    /// If it does not accept.
    pub fn connect(&self) -> TcpStream {
        wire::connect(self.addr)
    }

    /// Sends bytes on a connection of their own and returns what comes back until it is closed;
    /// see [`wire::exchange`].
    ///
    /// # Panics
    /// If the server does not accept or does not close.
    pub fn exchange(&self, request: &[u8]) -> Vec<u8> {
        wire::exchange(self.addr, request)
    }

    /// Sends the server a signal.
    ///
    /// # Panics
    /// If the process is gone.
    pub fn signal(&self, signal: Signal) {
        kill_process(self.rustix_pid(), signal).expect("the server is gone");
    }

    /// Waits until the process ends; `None` if it has not after `patience`.
    ///
    /// # Panics
    /// If the process cannot be waited for.
    pub fn wait(&mut self, patience: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                self.stdout.finish();
                self.stderr.finish();
                return Some(status);
            }
            if Instant::now() >= deadline {
                return None;
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn rustix_pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    fn wait_for_listener(&mut self) {
        let deadline = Instant::now() + wire::PATIENCE;
        while TcpStream::connect_timeout(&self.addr, Duration::from_millis(200)).is_err() {
            if let Some(status) = self.wait(Duration::ZERO) {
                panic!("the server ended ({status}) and said:\n{}", self.stderr());
            }
            let doings = || doings(self.pid());
            assert!(Instant::now() < deadline, "no listener: {}\n{}", doings(), self.stderr());
            thread::sleep(Duration::from_millis(10));
        }
        // the sockets are open before the server is itself: it gives up privileges in between
        while !self.stderr().contains(": serving ") {
            if let Some(status) = self.wait(Duration::ZERO) {
                panic!("the server ended ({status}) and said:\n{}", self.stderr());
            }
            assert!(Instant::now() < deadline, "no first line; it said:\n{}", self.stderr());
            thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            if thread::panicking() {
                let pid = self.pid();
                eprintln!(
                    "the server's threads:\n{}its connections:\n{}",
                    doings(pid),
                    connections(pid)
                );
            }
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
        if thread::panicking() {
            eprintln!("the server said:\n{}", self.stderr());
        }
    }
}

/// The binary under test: `FOREBAY_BIN`, or the one beside the test's own executable.
///
/// # Panics
/// If there is none.
pub fn binary() -> PathBuf {
    if let Some(path) = env::var_os("FOREBAY_BIN") {
        return path.into();
    }
    built("forebay")
}

/// The program with this name beside the test's own executable.
fn built(name: &str) -> PathBuf {
    let exe = env::current_exe().unwrap();
    let mut built = exe.ancestors().skip(1).take(3).map(|dir| dir.join(name));
    built
        .find(|path| path.is_file())
        .unwrap_or_else(|| panic!("no {name} beside {}: build it first", exe.display()))
}

/// The way in which the test reaches the server.
#[derive(Debug)]
enum ReachedBy {
    /// The test reaches the server directly.
    Plain,
    /// The server speaks TLS, and the test's bytes pass through a [`TlsRelay`].
    Tls { authority: Box<Authority>, addr: SocketAddr, folder: PathBuf },
    /// The test's HTTP/1 reaches the server as HTTP/2 through a [`http2::Http2Relay`].
    Http2 { addr: SocketAddr },
}

/// The host name in requests to a server behind a relay.
const LANE_HOST: &str = "lane.example";

impl ReachedBy {
    /// Chooses the way for a test that configures neither TLS nor listeners itself: `FOREBAY_TLS=1` has
    /// its servers speak TLS, `FOREBAY_HTTP2=1` has them asked over HTTP/2.
    fn of(options: &Options, addr: SocketAddr, folder: &Path) -> ReachedBy {
        let Options { config, args, .. } = options;
        let speaks_of_it = ["tls", "listen = [", "[[listener]]", "proxy_protocol"];
        let is_wanted = |name| env::var(name).is_ok_and(|wanted| wanted == "1");
        let speaks_of_it = speaks_of_it.iter().any(|it| config.contains(it)) || !args.is_empty();
        if !speaks_of_it && is_wanted("FOREBAY_HTTP2") {
            return ReachedBy::Http2 { addr };
        }
        if speaks_of_it || !is_wanted("FOREBAY_TLS") {
            return ReachedBy::Plain;
        }
        let authority = Box::new(Authority::new());
        authority.write(folder, "lane", &[LANE_HOST], &rcgen::PKCS_ECDSA_P256_SHA256);
        ReachedBy::Tls { authority, addr, folder: folder.to_owned() }
    }

    /// The address of the server behind a relay.
    fn addr(&self) -> Option<SocketAddr> {
        match self {
            ReachedBy::Plain => None,
            ReachedBy::Tls { addr, .. } | ReachedBy::Http2 { addr } => Some(*addr),
        }
    }

    /// The lines of a configuration with the server's listener.
    fn lines(&self, addr: SocketAddr) -> String {
        match self {
            ReachedBy::Plain | ReachedBy::Http2 { .. } => format!("listen = [\"{addr}\"]\n"),
            ReachedBy::Tls { folder, .. } => {
                let file = |end| folder.join(format!("lane.{end}"));
                format!(
                    "listen = [\"https://{addr}\"]\ntls.certificate = [{:?}]\ntls.key = [{:?}]\n",
                    file("crt"),
                    file("key")
                )
            }
        }
    }
}

fn command(options: &Options, addr: SocketAddr, lane: &ReachedBy, folder: &Path) -> Command {
    let mut binary = match options.origin {
        Origin::Files => binary(),
        Origin::Handler => built("forebay-origin"),
    };
    let user = options.user.filter(|_| rustix::process::geteuid().is_root());
    if user.is_some() {
        // the build directory may be closed to other users
        binary = within_reach(&binary, folder);
    }
    let mut words = options.wrapper.iter().map(PathBuf::from).chain([binary]);
    let mut command = Command::new(words.next().unwrap());
    command.args(words);
    // settings without an option need a file
    let is_plain = !matches!(lane, ReachedBy::Tls { .. });
    let has_option = !options.engine.contains(':') && options.engine != ISOLATED;
    if is_plain && options.config.is_empty() && has_option {
        command.arg("serve").arg(&options.root).arg("--listen").arg(addr.to_string());
        command.args(["--engine", &options.engine, "--workers", &options.workers.to_string()]);
        if !options.log {
            command.arg("--no-log");
        }
    } else {
        let file = folder.join("forebay.toml");
        fs::write(&file, configuration(options, addr, lane)).unwrap();
        command.arg("run").arg("-c").arg(file);
    }
    command.args(&options.args);
    if let Some(user) = user {
        command.uid(user).gid(user);
    }
    command
}

/// The binary in a folder that other users may enter: a link to the last copy that was made, while that
/// exists.
fn within_reach(binary: &Path, folder: &Path) -> PathBuf {
    static LAST: Mutex<Option<PathBuf>> = Mutex::new(None);
    let place = folder.join(binary.file_name().unwrap());
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    let of_it = last.as_ref().filter(|last| last.file_name() == place.file_name());
    let is_linked = of_it.is_some_and(|last| fs::hard_link(last, &place).is_ok());
    if !is_linked {
        copy_program(binary, &place);
    }
    *last = Some(place.clone());
    place
}

/// Copies a program that will be run. Another process (`cp`) does it: a process that another thread
/// starts has our descriptors for a moment, and a file that is open for writing cannot be run.
///
/// # Panics
/// If it cannot be copied.
pub fn copy_program(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg(from).arg(to).status().unwrap();
    assert!(copied.success(), "cannot copy {}", from.display());
}

/// The text of the configuration file: the settings that `serve` takes as arguments, then the lines of
/// the test.
fn configuration(options: &Options, addr: SocketAddr, lane: &ReachedBy) -> String {
    let Options { root, workers, config, .. } = options;
    let engine = engine_lines(&options.engine);
    let log = match options.log {
        _ if config.contains("log.access") => "",
        true => "log.access = \"-\"\n",
        false => "log.access = \"off\"\n",
    };
    let listen = lane.lines(addr);
    format!("{listen}root = {root:?}\n{engine}workers = {workers}\n{log}{config}")
}

/// The lines of a configuration file that choose one of [`ENGINES`].
pub fn engine_lines(engine: &str) -> String {
    let fuse = engine
        .split_once(':')
        .map_or_else(String::new, |(_, fuse)| format!("pipeline.fuse = \"{fuse}\"\n"));
    format!("engine = \"{}\"\n{fuse}", engine_name(engine))
}

/// The value of the setting `engine` for one of [`ENGINES`], without the fuse after the colon.
pub fn engine_name(engine: &str) -> &str {
    engine.split(':').next().unwrap_or(engine)
}

/// A fresh directory that every user may enter.
fn folder() -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let folder = env::temp_dir().join(format!("forebay-test-{}-{number}", process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
    folder
}

/// An address that no other server uses. Listeners share ports (`SO_REUSEPORT`), so two servers with the
/// same one would silently split their connections: each test process takes a loopback address of its
/// own, and no port of it twice. The kernel does not choose the port, because it would choose one that
/// was given away and is not bound yet, and a client that waits for that server would reach the probe.
pub fn free_addr() -> SocketAddr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let own = own_address();
    SocketAddr::from((own, free_port(own, 2_000..10_000, &NEXT)))
}

/// An address whose port is free at all addresses, for a server that listens at all of them. These are
/// other ports than those of [`free_addr`], of clients of [`crowd`](crate::faults::crowd), and of the
/// kernel, which other tests use at their own addresses.
pub fn free_at_all_addresses() -> SocketAddr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let port = free_port(Ipv4Addr::UNSPECIFIED, 30_000..32_700, &NEXT);
    SocketAddr::from((own_address(), port))
}

fn own_address() -> Ipv4Addr {
    // process ids have 22 bits
    let [_, a, b, c] = process::id().to_be_bytes();
    Ipv4Addr::new(127, a | 64, b, c)
}

/// Whether a server may listen there. The check does not listen itself: a process that another thread is
/// starting has a copy of each descriptor until it has become its program, and a copy that listens would
/// keep the port.
fn try_port(at: Ipv4Addr, port: u16) -> rustix::io::Result<()> {
    let (family, kind) = (net::AddressFamily::INET, net::SocketType::STREAM);
    let probe = net::socket_with(family, kind, net::SocketFlags::CLOEXEC, None)?;
    net::sockopt::set_socket_reuseaddr(&probe, true)?;
    net::bind(&probe, &SocketAddrV4::new(at, port))
}

fn free_port(at: Ipv4Addr, ports: Range<u32>, next: &AtomicU32) -> u16 {
    loop {
        let count = next.fetch_add(1, Ordering::Relaxed);
        assert!(count < ports.len() as u32, "no port of {at} is left");
        // processes that run at the same time begin at different ports
        let number = count + process::id() % 80 * 100;
        let port = (ports.start + number % ports.len() as u32) as u16;
        for attempt in 0.. {
            match try_port(at, port) {
                Ok(()) => return port,
                Err(Errno::ADDRINUSE) => break,
                // too few descriptors, for example: another test frees some when it ends
                Err(error) => assert!(attempt < 600, "{at}:{port}: {error}"),
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
    }
}
