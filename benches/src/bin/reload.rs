//! Reloads under keep-alive clients, Forebay and others in turn: who loses whom.
//!
//! Each server serves a version from a root of its own, is told to reload so many times in so many
//! seconds, each time with the next version's root, and is asked for the version by clients that
//! keep their connections and by one that connects for each request. With TLS each version has a
//! certificate of its own, too.
#![forbid(unsafe_code)]

use clap::Parser;
use forebay_benches::Error;
use forebay_benches::reload::{Certificates, Counts, Target, client};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Reload servers under keep-alive clients, and count what that costs the clients.
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
    /// Servers, of forebay, nginx and caddy
    #[arg(long, value_enum, value_delimiter = ',', default_value = "forebay,nginx")]
    servers: Vec<Server>,
    /// Through TLS, with another certificate after each reload
    #[arg(long)]
    tls: bool,
    /// The folder for roots and configurations, removed at the end [default: a new one]
    #[arg(long, default_value_os_t = fresh(), hide_default_value = true)]
    dir: PathBuf,
}

/// A folder that no other run uses.
fn fresh() -> PathBuf {
    std::env::temp_dir().join(format!("forebay-reload-bench-{}", std::process::id()))
}

#[derive(Clone, Copy, PartialEq, clap::ValueEnum)]
enum Server {
    Forebay,
    Nginx,
    Caddy,
}

/// What stays the same for a server while its versions change.
struct Place<'p> {
    dir: &'p Path,
    address: SocketAddr,
    /// Where Caddy hears of a reload.
    admin: SocketAddr,
    certificates: Option<&'p Certificates>,
}

impl Server {
    fn name(self) -> &'static str {
        match self {
            Server::Forebay => "forebay",
            Server::Nginx => "nginx",
            Server::Caddy => "caddy",
        }
    }

    fn file(self, dir: &Path) -> PathBuf {
        dir.join(format!("{}.conf", self.name()))
    }

    /// Writes the configuration for a version.
    fn configure(self, place: &Place<'_>, version: u64) -> Result<(), Error> {
        let Place { dir, address, admin, certificates } = place;
        let root = dir.join(version.to_string());
        let pair = certificates.map(|certificates| certificates.files(version));
        let (port, dir, root) = (address.port(), dir.display(), root.display());
        let text = match self {
            Server::Forebay => {
                let scheme = if pair.is_some() { "https://" } else { "" };
                let tls = pair.map_or(String::new(), |[certificate, key]| {
                    format!("[tls]\ncertificate = [{certificate:?}]\nkey = [{key:?}]\n")
                });
                format!(
                    "listen = [\"{scheme}{address}\"]\nroot = \"{root}\"\nworkers = 2\n\
                     log.access = \"off\"\nlimits.requests_per_connection = 0\n{tls}"
                )
            }
            Server::Nginx => {
                let ssl = if pair.is_some() { "ssl" } else { "" };
                let tls = pair.map_or(String::new(), |[certificate, key]| {
                    format!("ssl_certificate {certificate:?}; ssl_certificate_key {key:?};")
                });
                format!(
                    "daemon off;\nworker_processes 2;\npid {dir}/nginx.pid;\nerror_log /dev/null;\n\
                     events {{ worker_connections 2048; }}\n\
                     http {{ access_log off; keepalive_timeout 65s; keepalive_requests 1000000000;\n\
                     client_body_temp_path {dir}/body; proxy_temp_path {dir}/proxy;\n\
                     fastcgi_temp_path {dir}/fastcgi; uwsgi_temp_path {dir}/uwsgi;\n\
                     scgi_temp_path {dir}/scgi;\n\
                     server {{ listen {address} reuseport {ssl}; {tls} root {root}; }} }}\n"
                )
            }
            Server::Caddy => {
                let (scheme, tls) = pair.map_or(("http", String::new()), |[certificate, key]| {
                    ("https", format!("tls {certificate:?} {key:?}\n"))
                });
                format!(
                    "{{\nadmin {admin}\nauto_https off\nstorage file_system {dir}/caddy\n}}\n\
                     {scheme}://localhost:{port} {{\nbind 127.0.0.1\n{tls}root * {root}\nfile_server\n}}\n"
                )
            }
        };
        let file = self.file(place.dir);
        let new = file.with_extension("new");
        fs::write(&new, text).map_err(Error::io("cannot write", &new))?;
        fs::rename(&new, &file).map_err(Error::io("cannot rename", &file))
    }

    fn command(self, dir: &Path) -> Command {
        let file = self.file(dir);
        let mut command = match self {
            Server::Forebay => Command::new(forebay()),
            Server::Nginx | Server::Caddy => Command::new(self.name()),
        };
        match self {
            Server::Forebay => command.arg("run").arg("-c").arg(file),
            Server::Nginx => command.arg("-c").arg(file),
            Server::Caddy => command.args(["run", "--adapter", "caddyfile", "--config"]).arg(file),
        };
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// Reloads as an operator does; returns when that says it is done.
    fn reload(self, place: &Place<'_>) -> Result<bool, Error> {
        let file = self.file(place.dir);
        let mut command = match self {
            Server::Forebay => Command::new(forebay()),
            Server::Nginx | Server::Caddy => Command::new(self.name()),
        };
        match self {
            Server::Forebay => command.arg("reload").arg("-c").arg(file),
            Server::Nginx => command.arg("-c").arg(file).arg("-s").arg("reload"),
            Server::Caddy => {
                command.args(["reload", "--adapter", "caddyfile", "--config"]).arg(file)
            }
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

/// An address that nobody listens at.
fn free() -> Result<SocketAddr, Error> {
    let probe = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
    probe.map_err(Error::io("no free port on", "127.0.0.1"))
}

/// One server, one round. Prints a row.
fn measure(
    server: Server,
    options: &Options,
    certificates: Option<&Certificates>,
) -> Result<(), Error> {
    let dir = &options.dir;
    let place = Place { dir, address: free()?, admin: free()?, certificates };
    server.configure(&place, 0)?;
    let mut command = server.command(dir);
    let child = command.spawn().map_err(Error::io("cannot start", command.get_program()))?;
    let mut child = Stopped(child);
    let began = Instant::now();
    let target = Target { address: place.address, tls: certificates.map(Certificates::client) };
    while !target.is_there() {
        if began.elapsed() > Duration::from_secs(10) {
            return Err(Error::Client(format!("{} does not answer", server.name())));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let counts = Arc::new(Counts::default());
    let clients: Vec<_> = (0..=options.clients as u64)
        .map(|number| {
            let (counts, target) = (Arc::clone(&counts), target.clone());
            std::thread::spawn(move || client(&counts, &target, number > 0, number))
        })
        .collect();
    let pace = Duration::from_secs(options.seconds) / options.reloads.max(1) as u32;
    let began = Instant::now();
    let mut times = Vec::new();
    for version in 1..=options.reloads {
        server.configure(&place, version)?;
        let asked = Instant::now();
        if server.reload(&place)? {
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
    let certificates = match options.tls {
        true => Some(Certificates::make(&options.dir, options.reloads)?),
        false => None,
    };
    println!(
        "| server | reloads | answers | lost | refused | sent away | stale | command ms p50 / max |\n\
         |---|---|---|---|---|---|---|---|"
    );
    for _ in 0..options.rounds {
        for server in &options.servers {
            measure(*server, options, certificates.as_ref())?;
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
