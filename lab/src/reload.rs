//! Reloads under keep-alive clients: the number of requests that are lost.
//!
//! Each server serves a version from a root of its own, is reloaded a number of times in a number
//! of seconds, each time with the next version's root, and is asked for the version by clients that
//! keep their connections and by one that connects for each request. With TLS each version has a
//! certificate of its own, too.

pub mod clients;

use crate::benchmark::{Benchmark, BenchmarkNetwork, Measure, nothing};
use crate::claim::{Against, BenchmarkClaim, DecidedBy, Goal};
use crate::columns::{figure, key};
use crate::options::{Axis, Kind, Setting};
use crate::rows::RawRow;
use crate::run::{Run, Trial};
use crate::running::ChildProcess;
use crate::{Error, peers};
use clients::{ReloadCounts, Target, VersionCertificates, client};
use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Claims that a figure is 0, in every round.
const fn none(what: &'static str, figure: &'static str) -> BenchmarkClaim {
    BenchmarkClaim {
        what,
        of: &[("server", "forebay")],
        figure,
        against: Against::Nothing,
        goal: Goal::AtMost(0.0, 0.0),
        by: DecidedBy::Each,
    }
}

/// The experiment.
pub const RELOAD: Benchmark = Benchmark {
    name: "reload",
    title: "Reloads under keep-alive clients",
    about: "What reloads cost clients that keep their connections, and one that connects for each request.",
    servers: Axis::new("server", "servers", "Servers", servers, "forebay,nginx"),
    peers: &[("nginx", &["reload/nginx.conf"]), ("caddy", &["reload/Caddyfile"])],
    clients: &[],
    sweep: &[],
    points: None,
    settings: &[
        Setting {
            name: "reloads",
            kind: Kind::Number,
            default: "200",
            help: "Reloads of each server in a measurement",
        },
        Setting {
            name: "clients",
            kind: Kind::Number,
            default: "64",
            help: "Clients that keep their connections",
        },
        Setting {
            name: "tls",
            kind: Kind::Flag,
            default: "",
            help: "Through TLS, with another certificate after each reload",
        },
    ],
    rounds: 3,
    measured: "20s",
    network: BenchmarkNetwork::Shared,
    pinned: false,
    columns: &[
        key("server"),
        figure("reloads").shown("reloads", 0),
        figure("took_s").shown("in s", 1),
        figure("answers").shown("answers", 0),
        figure("lost").shown("lost", 0),
        figure("refused").shown("refused", 0),
        figure("sent_away").shown("sent away", 0),
        figure("stale").shown("stale", 0),
        figure("command_p50_ms").shown("command ms p50", 1),
        figure("command_max_ms").shown("max", 1),
    ],
    tables: &[],
    lines: &["server"],
    ratios: &[],
    claims: &[
        none("requests lost", "lost"),
        none("connections sent away", "sent_away"),
        none("answers older than what was confirmed", "stale"),
    ],
    more: nothing,
    prepare,
};

fn servers() -> Vec<&'static str> {
    vec!["forebay", "nginx", "caddy"]
}

/// The file of a server.
fn peer(server: &str) -> &'static str {
    match server {
        "nginx" => "reload/nginx.conf",
        "caddy" => "reload/Caddyfile",
        _ => "reload/forebay.toml",
    }
}

struct Reloads {
    certificates: Option<VersionCertificates>,
}

fn prepare(run: &Run) -> Result<Box<dyn Measure>, Error> {
    let reloads = run.options.number("reloads") as u64;
    for version in 0..=reloads {
        let root = run.root.join(version.to_string());
        fs::create_dir_all(&root).map_err(Error::io("cannot make", &root))?;
        let file = root.join("version");
        fs::write(&file, version.to_string()).map_err(Error::io("cannot write", &file))?;
    }
    let is_asked = run.options.has("tls");
    let certificates =
        is_asked.then(|| VersionCertificates::make(run.scratch(), reloads)).transpose()?;
    Ok(Box::new(Reloads { certificates }))
}

/// The settings of a server that stay the same while its versions change.
struct ReloadServer<'p> {
    run: &'p Run,
    server: &'p str,
    port: u16,
    /// The port at which Caddy takes a reload.
    admin: u16,
    file: PathBuf,
}

impl ReloadServer<'_> {
    /// Writes the configuration for a version.
    fn configure(
        &self,
        certificates: Option<&VersionCertificates>,
        version: u64,
    ) -> Result<(), Error> {
        let root = self.run.root.join(version.to_string());
        let mut words = vec![
            ("PORT", self.port.to_string()),
            ("ADMIN", self.admin.to_string()),
            ("ROOT", root.display().to_string()),
        ];
        if let Some([certificate, key]) = certificates.map(|all| all.files(version)) {
            words.push(("CERTIFICATE", certificate.display().to_string()));
            words.push(("KEY", key.display().to_string()));
        }
        let tags = [("tls", certificates.is_some()), ("plain", certificates.is_none())];
        peers::write(peer(self.server), &self.file, &tags, &words)
    }

    fn command(&self, key: &str) -> std::process::Command {
        let ours = (self.server == "forebay").then_some(self.run.options.program.as_path());
        let mut command = peers::command(peer(self.server), key, ours, &self.file, &[]);
        command.stderr(Stdio::null());
        command
    }

    /// Reloads as an operator does. Returns when the server says that it is done.
    fn reload(&self) -> io::Result<bool> {
        Ok(self.command("reload").status()?.success())
    }
}

impl Measure for Reloads {
    fn measure(&mut self, trial: &Trial<'_>) -> Result<Vec<RawRow>, Error> {
        let (run, server) = (trial.run, trial.server);
        let options = &run.options;
        let (port, admin, folder) = (run.port()?, run.port()?, run.folder()?);
        let place = ReloadServer { run, server, port, admin, file: folder.join("server.conf") };
        let certificates = self.certificates.as_ref();
        place.configure(certificates, 0)?;
        let process = ChildProcess::start(place.command("run"), run.core)?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let target = Target { address, tls: certificates.map(VersionCertificates::client) };
        let begun = Instant::now();
        while !target.is_there() {
            run.go_on()?;
            if process.has_ended() || begun.elapsed() > Duration::from_secs(10) {
                let said = "it does not answer".to_owned();
                return Err(Error::NotReady { server: server.to_owned(), said });
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let counts = Arc::new(ReloadCounts::default());
        let clients: Vec<_> = (0..=options.number("clients") as u64)
            .map(|number| {
                let (counts, target) = (Arc::clone(&counts), target.clone());
                std::thread::spawn(move || client(&counts, &target, number > 0, number))
            })
            .collect();
        let reloads = options.number("reloads") as u32;
        let pace = options.measured / reloads.max(1);
        let begun = Instant::now();
        let mut times = Vec::new();
        for version in 1..=reloads {
            if run.go_on().is_err() {
                break;
            }
            place.configure(certificates, version.into())?;
            let asked = Instant::now();
            if place.reload().map_err(Error::io("cannot reload", Path::new(server)))? {
                counts.confirmed.store(version.into(), Relaxed);
            }
            times.push(asked.elapsed().as_secs_f64() * 1e3);
            std::thread::sleep((pace * version).saturating_sub(begun.elapsed()));
        }
        let took = begun.elapsed();
        counts.stop.store(true, Relaxed);
        clients.into_iter().for_each(|client| drop(client.join()));
        run.go_on()?;
        times.sort_by(f64::total_cmp);
        let of = |counter: &AtomicU64| counter.load(Relaxed) as f64;
        let row = RawRow::default()
            .figure("reloads", reloads.into())
            .figure("took_s", took.as_secs_f64())
            .figure("answers", of(&counts.answers))
            .figure("lost", of(&counts.lost))
            .figure("refused", of(&counts.refused))
            .figure("sent_away", of(&counts.sent_away))
            .figure("stale", of(&counts.stale))
            .figure("command_p50_ms", times.get(times.len() / 2).copied().unwrap_or(f64::NAN))
            .figure("command_max_ms", times.last().copied().unwrap_or(f64::NAN));
        Ok(vec![row])
    }
}
