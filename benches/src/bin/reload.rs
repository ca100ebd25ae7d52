//! Reloads under keep-alive clients, Forebay and nginx in turn: who loses whom.
//!
//! Each server serves a version from a root of its own, is told to reload so many times in so many
//! seconds, each time with the next version's root, and is asked for the version by clients that
//! keep their connections and by one that connects for each request.
#![forbid(unsafe_code)]

use clap::Parser;
use forebay_benches::Error;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Reload Forebay and nginx under keep-alive clients, and count what that costs the clients.
#[derive(Parser)]
struct Options {
    /// Reloads per server and round
    #[arg(long, default_value_t = 200)]
    reloads: u64,
    /// Seconds they are spread over
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Clients that keep their connections
    #[arg(long, default_value_t = 64)]
    clients: usize,
    /// Each server this often, in turn
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// The folder for roots and configurations, removed at the end [default: a new one]
    #[arg(long, default_value_os_t = fresh(), hide_default_value = true)]
    dir: PathBuf,
}

/// A folder that no other run uses.
fn fresh() -> PathBuf {
    std::env::temp_dir().join(format!("forebay-reload-bench-{}", std::process::id()))
}

/// What happened to the clients.
#[derive(Default)]
struct Counts {
    answers: AtomicU64,
    /// A request was sent, and the connection ended before an answer began.
    lost: AtomicU64,
    /// The server said `Connection: close`, or closed a connection that was idle.
    sent_away: AtomicU64,
    /// A connection could not be made.
    refused: AtomicU64,
    /// An older version than one whose reload was confirmed before the request was sent.
    stale: AtomicU64,
    /// The version that was confirmed last.
    confirmed: AtomicU64,
    stop: AtomicBool,
}

#[derive(Clone, Copy, PartialEq)]
enum Server {
    Forebay,
    Nginx,
}

impl Server {
    fn name(self) -> &'static str {
        match self {
            Server::Forebay => "forebay",
            Server::Nginx => "nginx",
        }
    }

    fn file(self, dir: &Path) -> PathBuf {
        dir.join(format!("{}.conf", self.name()))
    }

    /// Writes the configuration for a version.
    fn configure(self, dir: &Path, address: SocketAddr, version: u64) -> Result<(), Error> {
        let root = dir.join(version.to_string());
        let text = match self {
            Server::Forebay => format!(
                "listen = [\"{address}\"]\nroot = {root:?}\nworkers = 2\nlog.access = \"off\"\n\
                 limits.requests_per_connection = 0\n"
            ),
            Server::Nginx => format!(
                "daemon off;\nworker_processes 2;\npid {dir}/nginx.pid;\nerror_log /dev/null;\n\
                 events {{ worker_connections 2048; }}\n\
                 http {{ access_log off; keepalive_timeout 65s; keepalive_requests 1000000000;\n\
                 client_body_temp_path {dir}/body; proxy_temp_path {dir}/proxy;\n\
                 fastcgi_temp_path {dir}/fastcgi; uwsgi_temp_path {dir}/uwsgi;\n\
                 scgi_temp_path {dir}/scgi;\n\
                 server {{ listen {address} reuseport; root {root}; }} }}\n",
                dir = dir.display(),
                root = root.display(),
            ),
        };
        let file = self.file(dir);
        let new = file.with_extension("new");
        fs::write(&new, text).map_err(Error::io("cannot write", &new))?;
        fs::rename(&new, &file).map_err(Error::io("cannot rename", &file))
    }

    fn command(self, dir: &Path) -> Command {
        let mut command = match self {
            Server::Forebay => Command::new(forebay()),
            Server::Nginx => Command::new("nginx"),
        };
        match self {
            Server::Forebay => command.arg("run").arg("-c"),
            Server::Nginx => command.arg("-c"),
        };
        command.arg(self.file(dir)).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// Reloads as an operator does; returns when that says it is done.
    fn reload(self, dir: &Path) -> Result<bool, Error> {
        let mut command = match self {
            Server::Forebay => Command::new(forebay()),
            Server::Nginx => Command::new("nginx"),
        };
        match self {
            Server::Forebay => command.arg("reload").arg("-c").arg(self.file(dir)),
            Server::Nginx => command.arg("-c").arg(self.file(dir)).arg("-s").arg("reload"),
        };
        let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
        Ok(status.map_err(Error::io("cannot run", command.get_program()))?.success())
    }
}

/// The binary built beside this one.
fn forebay() -> PathBuf {
    let own = std::env::current_exe().unwrap_or_default();
    own.with_file_name("forebay")
}

/// One answer's version, and whether the connection stays. `None` if none came.
fn ask(stream: &mut BufReader<TcpStream>, keep: bool) -> Option<(u64, bool)> {
    let close = if keep { "" } else { "Connection: close\r\n" };
    let request = format!("GET /version HTTP/1.1\r\nHost: a\r\n{close}\r\n");
    stream.get_mut().write_all(request.as_bytes()).ok()?;
    let (mut line, mut length, mut stays) = (String::new(), 0, keep);
    while line != "\r\n" {
        line.clear();
        if stream.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let lower = line.to_ascii_lowercase();
        if let Some(value) = lower.strip_prefix("content-length: ") {
            length = value.trim().parse().ok()?;
        }
        stays &= lower.trim() != "connection: close";
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    Some((String::from_utf8(body).ok()?.trim().parse().ok()?, stays))
}

fn connect(address: SocketAddr) -> Option<BufReader<TcpStream>> {
    let stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
    Some(BufReader::new(stream))
}

/// Whether the server has closed a connection that waits for a request.
fn is_closed(stream: &BufReader<TcpStream>) -> bool {
    let socket = stream.get_ref();
    let peeked = socket.set_nonblocking(true).and_then(|()| socket.peek(&mut [0]));
    let _ = socket.set_nonblocking(false);
    !matches!(peeked, Err(error) if error.kind() == ErrorKind::WouldBlock)
}

fn client(counts: &Counts, address: SocketAddr, keep: bool, number: u64) {
    let mut stream = None;
    let mut pause = number;
    while !counts.stop.load(Relaxed) {
        if let Some(open) = &stream
            && is_closed(open)
        {
            counts.sent_away.fetch_add(1, Relaxed);
            stream = None;
        }
        let Some(mut open) = stream.take().or_else(|| connect(address)) else {
            counts.refused.fetch_add(1, Relaxed);
            continue;
        };
        let confirmed = counts.confirmed.load(Relaxed);
        match ask(&mut open, keep) {
            None => drop(counts.lost.fetch_add(1, Relaxed)),
            Some((version, stays)) => {
                counts.answers.fetch_add(1, Relaxed);
                counts.stale.fetch_add(u64::from(version < confirmed), Relaxed);
                if stays {
                    stream = Some(open);
                } else if keep {
                    counts.sent_away.fetch_add(1, Relaxed);
                }
            }
        }
        // between 0 and 19 ms, another order for each client
        pause = pause.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(number | 1);
        std::thread::sleep(Duration::from_millis((pause >> 33) % 20));
    }
}

/// One server, one round. Prints a row.
fn measure(server: Server, options: &Options) -> Result<(), Error> {
    let dir = &options.dir;
    let probe = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
    let address = probe.map_err(Error::io("no free port on", "127.0.0.1"))?;
    server.configure(dir, address, 0)?;
    let mut command = server.command(dir);
    let child = command.spawn().map_err(Error::io("cannot start", command.get_program()))?;
    let mut child = Stopped(child);
    let began = Instant::now();
    while connect(address).is_none() && began.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(10));
    }
    let counts = Arc::new(Counts::default());
    let clients: Vec<_> = (0..=options.clients as u64)
        .map(|number| {
            let counts = Arc::clone(&counts);
            std::thread::spawn(move || client(&counts, address, number > 0, number))
        })
        .collect();
    let pace = Duration::from_secs(options.seconds) / options.reloads.max(1) as u32;
    let began = Instant::now();
    let mut times = Vec::new();
    for version in 1..=options.reloads {
        server.configure(dir, address, version)?;
        let asked = Instant::now();
        if server.reload(dir)? {
            counts.confirmed.store(version, Relaxed);
        }
        times.push(asked.elapsed());
        std::thread::sleep((pace * version as u32).saturating_sub(began.elapsed()));
    }
    let took = began.elapsed();
    counts.stop.store(true, Relaxed);
    clients.into_iter().for_each(|client| drop(client.join()));
    child.end();
    times.sort();
    let of = |counter: &AtomicU64| counter.load(Relaxed);
    println!(
        "| {} | {} in {:.1} s | {} | {} | {} | {} | {} | {:.1} / {:.1} |",
        server.name(),
        options.reloads,
        took.as_secs_f64(),
        of(&counts.answers),
        of(&counts.lost),
        of(&counts.refused),
        of(&counts.sent_away),
        of(&counts.stale),
        times[times.len() / 2].as_secs_f64() * 1e3,
        times[times.len() - 1].as_secs_f64() * 1e3,
    );
    Ok(())
}

/// Ends the process it holds.
struct Stopped(std::process::Child);

impl Stopped {
    fn end(&mut self) {
        let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
        let _ = self.0.wait();
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn run(options: &Options) -> Result<(), Error> {
    for version in 0..=options.reloads {
        let root = options.dir.join(version.to_string());
        fs::create_dir_all(&root).map_err(Error::io("cannot make", &root))?;
        let file = root.join("version");
        fs::write(&file, version.to_string()).map_err(Error::io("cannot write", &file))?;
    }
    println!(
        "| server | reloads | answers | lost | refused | sent away | stale | command ms p50 / max |\n\
         |---|---|---|---|---|---|---|---|"
    );
    for _ in 0..options.rounds {
        for server in [Server::Forebay, Server::Nginx] {
            measure(server, options)?;
        }
    }
    let _ = fs::remove_dir_all(&options.dir);
    Ok(())
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("reload: {error}");
            ExitCode::FAILURE
        }
    }
}
