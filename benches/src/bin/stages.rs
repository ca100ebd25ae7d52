//! What it costs to answer in three stages: processor time per request of `isolated`, with HTTP/1.1 and with HTTP/2
//! between its stages, beside `event` and beside three chained nginx (proxy, proxy, files; connections are kept).
//! With `--tiers`, what each measure of isolation adds to that, one after the other.
#![forbid(unsafe_code)]

use clap::Parser;
use forebay_benches::Error;
use forebay_benches::cpu::{Used, tree};
use forebay_benches::crashes::ask;
use forebay_benches::group::{Group, nginx};
use forebay_benches::summary::Spread;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::thread;
use std::time::{Duration, Instant};

/// The files that are asked for.
const FILES: [(&str, usize); 3] = [("1k", 1 << 10), ("10k", 10 << 10), ("100k", 100 << 10)];

/// Measure the processor time that a request takes in one process, in three, and in three of nginx.
#[derive(Parser)]
struct Options {
    /// Seconds for each number
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// Connections that are kept
    #[arg(long, default_value_t = 32)]
    connections: u32,
    /// Each so often, in turn
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Only these files: 1k, 10k, 100k
    #[arg(long, value_delimiter = ',')]
    files: Vec<String>,
    /// What each measure of isolation adds, as root
    #[arg(long)]
    tiers: bool,
    /// The first of four ports of this machine
    #[arg(long, default_value_t = 18_400)]
    port: u16,
    /// Forebay's binary [default: the one beside this program]
    #[arg(long)]
    program: Option<PathBuf>,
}

/// What is measured, one beside the other.
struct Server {
    name: &'static str,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// One process; with these lines in its file.
    Event(&'static str),
    /// Stages in processes of their own.
    Isolated(&'static str),
    /// Three of them.
    Nginx,
}

/// The goal is to be ahead of the last.
const STAGES: &[Server] = &[
    Server { name: "forebay event", kind: Kind::Event("") },
    Server { name: "forebay isolated", kind: Kind::Isolated("") },
    Server { name: "forebay isolated, HTTP/2", kind: Kind::Isolated("isolated.http2 = \"on\"\n") },
    Server { name: "nginx, nginx, nginx", kind: Kind::Nginx },
];

/// Each with what the one before has.
const TIERS: &[Server] = &[
    Server {
        name: "event, nothing kept from it",
        kind: Kind::Event("sandbox.landlock = \"off\"\n"),
    },
    Server { name: "event, Landlock", kind: Kind::Event("sandbox.landlock = \"on\"\n") },
    Server {
        name: "isolated, nothing kept from its stages",
        kind: Kind::Isolated("sandbox.landlock = \"off\"\nsandbox.seccomp = \"off\"\n"),
    },
    Server {
        name: "Landlock",
        kind: Kind::Isolated("sandbox.landlock = \"on\"\nsandbox.seccomp = \"off\"\n"),
    },
    Server {
        name: "process sealed (seccomp), as nobody",
        kind: Kind::Isolated("sandbox.landlock = \"on\"\nsandbox.seccomp = \"on\"\n"),
    },
    Server {
        name: "receive and respond as another user",
        kind: Kind::Isolated(
            "sandbox.landlock = \"on\"\nsandbox.seccomp = \"on\"\nuser = \"www-data\"\n",
        ),
    },
    Server {
        name: "control groups",
        kind: Kind::Isolated(
            "sandbox.landlock = \"on\"\nsandbox.seccomp = \"on\"\nuser = \"www-data\"\n\
             isolated.cpu_weight = { receive = 100, process = 100, respond = 100 }\n\
             isolated.memory_max = { receive = \"4GiB\", process = \"4GiB\", respond = \"4GiB\" }\n\
             isolated.tasks_max = { receive = 1000, process = 1000, respond = 1000 }\n",
        ),
    },
];

impl Kind {
    /// Its processes, those that clients come to first.
    fn tiers(self) -> &'static [&'static str] {
        match self {
            Kind::Event(_) => &["all"],
            Kind::Isolated(_) => &["receive", "process", "respond"],
            Kind::Nginx => &["front", "middle", "files"],
        }
    }
}

/// A server under measurement.
struct Running {
    kind: Kind,
    groups: Vec<Group>,
}

impl Running {
    /// The processes of each tier.
    fn tiers(&self) -> Vec<Vec<u32>> {
        let pid = |group: &Group| group.pid().as_raw_nonzero().get().unsigned_abs();
        match self.kind {
            Kind::Isolated(_) => {
                let all: Vec<_> = self.groups.iter().flat_map(|group| tree(pid(group))).collect();
                let of = |tier: &str| -> Vec<u32> {
                    all.iter().copied().filter(|&pid| is_stage(pid, tier)).collect()
                };
                self.kind.tiers().iter().map(|tier| of(tier)).collect()
            }
            _ => self.groups.iter().map(|group| tree(pid(group))).collect(),
        }
    }
}

fn is_stage(pid: u32, name: &str) -> bool {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let mut words = line.split(|&b| b == 0).skip_while(|word| *word != b"stage");
    words.nth(1).is_some_and(|word| word == name.as_bytes())
}

/// What a request took in each tier, in microseconds.
type Cost = Vec<f64>;

struct Bench<'o> {
    options: &'o Options,
    dir: &'o Path,
}

impl Bench<'_> {
    fn address(&self, at: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.options.port + at))
    }

    fn forebay(&self, engine: &str, more: &str) -> Result<Command, Error> {
        let file = self.dir.join("forebay.toml");
        let (root, listen) = (self.dir.join("root"), self.address(0));
        let text = format!(
            "root = {root:?}\nlisten = [\"{listen}\"]\nengine = \"{engine}\"\nlog.access = \"off\"\n\
             control.socket = \"off\"\nlimits.connections_per_client = 100000\n\
             limits.requests_per_connection = 0\n{more}"
        );
        fs::write(&file, text).map_err(Error::io("cannot write", &file))?;
        let beside = || std::env::current_exe().unwrap_or_default().with_file_name("forebay");
        let mut command = Command::new(self.options.program.clone().unwrap_or_else(beside));
        command.args(["run", "-c"]).arg(file);
        Ok(command)
    }

    fn chain(&self) -> Result<Vec<Command>, Error> {
        let proxy = |name, at: u16| {
            let (listen, next) = (self.address(at), self.address(at + 1));
            nginx(
                self.dir,
                name,
                &format!(
                    "keepalive_requests 100000000; upstream u {{ server {next}; keepalive 256;\n\
                     keepalive_requests 100000000; }}\n\
                     server {{ listen {listen}; location / {{ proxy_pass http://u;\n\
                     proxy_http_version 1.1; proxy_set_header Connection \"\"; }} }}"
                ),
            )
        };
        let (listen, root) = (self.address(2), self.dir.join("root"));
        let files = format!(
            "keepalive_requests 100000000; sendfile on; open_file_cache max=100;\n\
             server {{ listen {listen}; root {}; }}",
            root.display()
        );
        Ok(vec![proxy("front", 0)?, proxy("middle", 1)?, nginx(self.dir, "files", &files)?])
    }

    fn start(&self, server: &Server) -> Result<Running, Error> {
        let commands = match server.kind {
            Kind::Event(more) => vec![self.forebay("event", more)?],
            Kind::Isolated(more) => vec![self.forebay("isolated", more)?],
            Kind::Nginx => self.chain()?,
        };
        let groups = commands.into_iter().map(Group::start).collect::<Result<_, _>>()?;
        let mut running = Running { kind: server.kind, groups };
        let begun = Instant::now();
        while ask(self.address(0), "/1k", Instant::now() + Duration::from_secs(1)).is_none() {
            let has_ended = running.groups.iter_mut().any(Group::has_ended);
            if has_ended || begun.elapsed() > Duration::from_secs(20) {
                let said = if has_ended { "it has ended" } else { "no answer" };
                return Err(Error::NotReady { server: server.name, said: said.to_owned() });
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(running)
    }

    /// What wrk does in this time: how many requests it had answered.
    fn load(&self, file: &str, seconds: u64) -> Result<u64, Error> {
        let mut command = Command::new("wrk");
        command.args(["--threads", "1", "--connections", &self.options.connections.to_string()]);
        command.args(["--duration", &format!("{seconds}s")]);
        command.arg(format!("http://{}/{file}", self.address(0)));
        let output = command.output().map_err(Error::io("cannot start", "wrk"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let count = text.lines().find_map(|line| line.trim().split_once(" requests in "));
        let count = count.and_then(|(count, _)| count.parse().ok());
        match count {
            Some(count) if count > 0 && !text.contains("Non-2xx") && !text.contains("errors") => {
                Ok(count)
            }
            _ => Err(Error::Client(format!("wrk: {text}"))),
        }
    }

    fn measure(&self, server: &Server, file: &str) -> Result<Cost, Error> {
        let running = self.start(server)?;
        // caches, and connections between stages
        self.load(file, 1)?;
        let tiers = running.tiers();
        let before: Vec<_> = tiers.iter().map(|pids| Used::read(pids)).collect();
        let count = self.load(file, self.options.seconds)?;
        let used = tiers.iter().zip(&before).map(|(pids, before)| Used::read(pids).since(before));
        Ok(used.map(|ns| ns as f64 / 1e3 / count as f64).collect())
    }

    fn run(&self) -> Result<(), Error> {
        println!("| file | server | us of CPU per request | of each tier |\n|---|---|---|---|");
        let servers = if self.options.tiers { TIERS } else { STAGES };
        let files = FILES.iter().filter(|(file, _)| {
            self.options.files.is_empty() || self.options.files.iter().any(|one| one == file)
        });
        for (file, _) in files {
            let mut costs: Vec<Vec<Cost>> = servers.iter().map(|_| Vec::new()).collect();
            for round in 0..self.options.rounds as usize {
                // another begins each time: what comes later in a round is not always the same
                for at in (0..servers.len()).map(|at| (at + round) % servers.len()) {
                    costs[at].push(self.measure(&servers[at], file)?);
                }
            }
            for (server, costs) in servers.iter().zip(&costs) {
                print_row(file, server, costs);
            }
        }
        Ok(())
    }
}

fn print_row(file: &str, server: &Server, costs: &[Cost]) {
    let tiers = server.kind.tiers().iter().enumerate().filter_map(|(at, tier)| {
        let each = Spread::of(costs.iter().filter_map(|cost| cost.get(at).copied()))?;
        Some(format!("{tier} {each:.1}"))
    });
    let tiers = tiers.collect::<Vec<_>>().join(", ");
    if let Some(sums) = Spread::of(costs.iter().map(|cost| cost.iter().sum::<f64>())) {
        println!("| {file} | {} | {sums:.1} | {tiers} |", server.name);
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    let dir = std::env::temp_dir().join(format!("forebay-stages-{}", std::process::id()));
    let root = dir.join("root");
    let result =
        fs::create_dir_all(&root).map_err(Error::io("cannot make", &root)).and_then(|()| {
            for (name, bytes) in FILES {
                let file = root.join(name);
                fs::write(&file, vec![b'x'; bytes]).map_err(Error::io("cannot write", &file))?;
            }
            Bench { options: &options, dir: &dir }.run()
        });
    let _ = fs::remove_dir_all(&dir);
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("stages: {error}");
            ExitCode::FAILURE
        }
    }
}
