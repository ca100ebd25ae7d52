//! The servers under overload: Forebay with and without a policy, and others in front of an
//! application, which is php-fpm if nothing else is said.
//!
//! What a request costs is the same everywhere: `/work?cpu=20ms` keeps a thread of Forebay, or a
//! process of php-fpm, busy until its CPU time has grown by 20 ms. Everything runs on one core.

pub mod application;

use super::GOLD;
use crate::forebay::{Forebay, Place};
use crate::network::Pair;
use crate::running::{self, Process};
use crate::{Error, peers, probe, template};
use application::Application;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Engines whose jobs helper threads do, and one whose threads do them themselves.
const ENGINES: [&str; 4] = ["event", "fibers", "pipeline", "pool"];
/// Threads of `pool`, all of which may answer at once: as many as voigt's server had processes.
const POOL: u32 = 50;
const READY_WITHIN: Duration = Duration::from_secs(10);

/// One server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Server {
    /// Forebay with this engine.
    Forebay {
        /// The engine.
        engine: &'static str,
        /// With the policy of the measurement and the agent on.
        policy: bool,
    },
    /// nginx.
    Nginx {
        /// With a limit on requests under way that fits the deadline.
        limit: bool,
    },
    /// Apache with its event module.
    Apache,
    /// HAProxy with priority classes in front of nginx.
    Haproxy,
}

/// A limit on connections of one client.
#[derive(Clone, Copy, Debug)]
pub struct Policed {
    /// The client's address.
    pub client: &'static str,
    /// Connections per second.
    pub per_s: u32,
    /// How many may come at once.
    pub burst: u32,
}

/// What a server is started with.
#[derive(Clone, Copy, Debug)]
pub struct Setup<'s> {
    /// Forebay's binary.
    pub forebay: &'s Path,
    /// A folder of this server alone.
    pub scratch: &'s Path,
    /// What Forebay serves besides `/work`.
    pub root: &'s Path,
    /// The core of all processes.
    pub core: usize,
    /// Processes of php-fpm.
    pub threads: u32,
    /// What answers behind Forebay, too, and by HTTP behind others; nothing, or php-fpm behind others.
    pub application: Option<Application>,
    /// CPU time of a request, and by when its answer is wanted.
    pub cost: Duration,
    /// The deadline that limits and queues are made for.
    pub deadline: Duration,
    /// Further lines of Forebay's configuration, of which those of a policy.
    pub lines: &'s str,
    /// Whether it listens at all addresses.
    pub is_reached_from_outside: bool,
    /// A limit for one client, set in others than Forebay.
    pub policed: Option<Policed>,
}

impl Setup<'_> {
    /// The address to listen at.
    fn host(&self) -> Ipv4Addr {
        if self.is_reached_from_outside { Ipv4Addr::UNSPECIFIED } else { Ipv4Addr::LOCALHOST }
    }
}

impl Server {
    /// All that can be chosen, in the order of the tables.
    pub fn all() -> Vec<Server> {
        let ours = |policy| ENGINES.map(|engine| Server::Forebay { engine, policy });
        let others = [
            Server::Nginx { limit: false },
            Server::Nginx { limit: true },
            Server::Apache,
            Server::Haproxy,
        ];
        [ours(true).as_slice(), &ours(false), &others].concat()
    }

    /// As `--servers` takes it and the tables show it.
    pub fn name(self) -> String {
        match self {
            Server::Forebay { engine, policy: true } => format!("{engine}-policy"),
            Server::Forebay { engine, policy: false } => engine.to_owned(),
            Server::Nginx { limit: false } => "nginx".to_owned(),
            Server::Nginx { limit: true } => "nginx-limit".to_owned(),
            Server::Apache => "apache".to_owned(),
            Server::Haproxy => "haproxy".to_owned(),
        }
    }

    /// The server called `name`, if there is one.
    pub fn find(name: &str) -> Option<Server> {
        Server::all().into_iter().find(|server| server.name() == name)
    }

    /// Whether it is Forebay with a policy.
    pub fn has_policy(self) -> bool {
        matches!(self, Server::Forebay { policy: true, .. })
    }

    /// The same without limits of any kind, by which capacity is found.
    pub fn bare(self) -> Server {
        match self {
            Server::Forebay { engine, .. } => Server::Forebay { engine, policy: false },
            Server::Nginx { .. } => Server::Nginx { limit: false },
            Server::Apache | Server::Haproxy => self,
        }
    }

    /// Starts it and waits until it answers.
    ///
    /// # Errors
    /// When a program is missing or does not come up.
    pub fn start(self, setup: &Setup<'_>) -> Result<Running, Error> {
        let port = free_port(20_000 + (std::process::id() % 8000) as u16)?;
        let behind = setup.application.unwrap_or(Application::Php);
        let running = match self {
            Server::Forebay { engine, .. } => {
                let application = setup.application.map(|application| application.start(setup));
                let processes = application.transpose()?.into_iter().collect();
                Running { processes, ..Running::forebay(engine, setup, port)? }
            }
            Server::Nginx { limit } => {
                let nginx = nginx(setup, port, limit)?;
                Running { processes: vec![nginx, behind.start(setup)?], forebay: None, port }
            }
            Server::Apache => {
                let apache = apache(setup, port)?;
                Running { processes: vec![apache, behind.start(setup)?], forebay: None, port }
            }
            Server::Haproxy => {
                let next = free_port(port + 1)?;
                let mut processes = vec![haproxy(setup, port, next)?];
                // it speaks no FastCGI
                if !behind.speaks_http() {
                    processes.push(nginx(setup, next, false)?);
                }
                processes.push(behind.start(setup)?);
                Running { processes, forebay: None, port }
            }
        };
        running.until_it_works(&self.name(), setup)?;
        Ok(running)
    }
}

/// A server under way. Dropping it ends all its processes, the one that clients see first.
#[derive(Debug)]
pub struct Running {
    processes: Vec<Process>,
    forebay: Option<Forebay>,
    port: u16,
}

impl Running {
    fn forebay(engine: &str, setup: &Setup<'_>, from: u16) -> Result<Running, Error> {
        let place = Place {
            program: setup.forebay,
            scratch: setup.scratch,
            core: setup.core,
            caged: false,
        };
        let workers = match engine {
            "pool" => format!("workers = {POOL}\nanswering = {POOL}"),
            _ => "workers = 1".to_owned(),
        };
        let (root, work) = match setup.application {
            Some(_) => (setup.scratch, ""),
            None => (setup.root, "[[work]]\npath = \"/work*\"\n"),
        };
        let scratch = setup.scratch.display().to_string();
        let own = template::fill(setup.lines, &[], &[("TMP", scratch)]);
        let outside = match setup.is_reached_from_outside {
            true => format!("[[listener]]\nlisten = [\"{}:@PORT@\"]\n", Pair::SERVER),
            false => String::new(),
        };
        let lines =
            format!("root = {root:?}\nengine = \"{engine}\"\n{workers}\n{own}\n{work}{outside}");
        let forebay = Forebay::start(&place, &lines, from)?;
        Ok(Running { processes: Vec::new(), port: forebay.port(), forebay: Some(forebay) })
    }

    /// The port that clients come to.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// All its processes.
    pub fn family(&self) -> Vec<u32> {
        let ours = self.forebay.as_ref().map(Forebay::process);
        self.processes.iter().chain(ours).flat_map(running::family).collect()
    }

    /// Forebay's metrics; empty for others.
    pub fn metrics(&self) -> String {
        self.forebay.as_ref().map_or(String::new(), Forebay::metrics)
    }

    /// Asks until a request that costs nothing is answered.
    fn until_it_works(&self, name: &str, setup: &Setup<'_>) -> Result<(), Error> {
        let end = Instant::now() + READY_WITHIN;
        loop {
            let answer = probe::get(self.port, "work?cpu=1us", "Connection: close\r\n");
            let seen = match answer {
                Ok(answer) if answer.status == 200 => return Ok(()),
                Ok(answer) => format!("status {}", answer.status),
                Err(error) => error.to_string(),
            };
            if Instant::now() > end || self.processes.iter().any(Process::has_ended) {
                let said = fs::read_to_string(said(setup)).unwrap_or_default();
                return Err(Error::Client(format!("{name} does not work ({seen}): {said}")));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn free_port(from: u16) -> Result<u16, Error> {
    running::free_port(from).ok_or(Error::Client("no free port".into()))
}

/// Where processes complain.
fn said(setup: &Setup<'_>) -> PathBuf {
    setup.scratch.join("said")
}

/// Starts `program` with a configuration made from a template, whose path comes between `arguments` and
/// those `after` it.
pub(super) fn configured(
    setup: &Setup<'_>,
    (program, arguments): (&Path, &[&str]),
    (file, text): (&str, &str),
    after: &[String],
    tags: &[(&str, bool)],
    words: &[(&str, String)],
) -> Result<Process, Error> {
    let common = [
        ("HOST", setup.host().to_string()),
        ("TMP", setup.scratch.display().to_string()),
        ("THREADS", setup.threads.to_string()),
        ("GOLD", GOLD.to_owned()),
    ];
    let text = template::fill(text, tags, &[&common, words].concat());
    let file = setup.scratch.join(file);
    fs::write(&file, text).map_err(Error::io("cannot write", &file))?;
    let said = said(setup);
    let said = fs::OpenOptions::new().create(true).append(true).open(&said);
    let said = said.map_err(Error::io("cannot write", setup.scratch))?;
    let mut command = Command::new(program);
    command.args(arguments).arg(&file).args(after);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
    Process::start(command, setup.core)
}

pub(super) fn program(name: &str) -> PathBuf {
    peers::locate(name).unwrap_or_else(|| name.into())
}

/// Which lines of the templates stay.
fn tags(setup: &Setup<'_>) -> [(&'static str, bool); 3] {
    let is_http = setup.application.is_some_and(Application::speaks_http);
    [("http", is_http), ("fastcgi", !is_http), ("policed", setup.policed.is_some())]
}

/// The limit for one client, in the words of the templates.
fn policed(setup: &Setup<'_>) -> [(&'static str, String); 3] {
    let limit = setup.policed.unwrap_or(Policed { client: "", per_s: 0, burst: 0 });
    [
        ("CLIENT", limit.client.to_owned()),
        ("PER_S", limit.per_s.to_string()),
        ("BURST", limit.burst.to_string()),
    ]
}

fn nginx(setup: &Setup<'_>, port: u16, limit: bool) -> Result<Process, Error> {
    // what is under way has to be answered in time, with some room for chance
    let fits = setup.deadline.as_secs_f64() / setup.cost.as_secs_f64().max(1e-6) * 0.7;
    let in_flight = (fits as u32).max(setup.threads);
    let text = include_str!("../../peers/overload/nginx.conf");
    let words = [("PORT", port.to_string()), ("IN_FLIGHT", in_flight.to_string())];
    let words = [&words[..], &policed(setup)].concat();
    let tags = [&[("limit", limit)][..], &tags(setup)].concat();
    configured(setup, (&program("nginx"), &["-c"]), ("nginx.conf", text), &[], &tags, &words)
}

fn apache(setup: &Setup<'_>, port: u16) -> Result<Process, Error> {
    let text = include_str!("../../peers/overload/apache2.conf");
    let words = [("PORT", port.to_string())];
    let arguments = ["-D", "FOREGROUND", "-f"];
    configured(
        setup,
        (&program("apache2"), &arguments),
        ("apache2.conf", text),
        &[],
        &tags(setup),
        &words,
    )
}

fn haproxy(setup: &Setup<'_>, port: u16, behind: u16) -> Result<Process, Error> {
    let text = include_str!("../../peers/overload/haproxy.cfg");
    let words = [
        ("PORT", port.to_string()),
        ("BEHIND", behind.to_string()),
        // half of the time until the answer is wanted: the rest is for the work
        ("QUEUE_MS", (setup.deadline.as_millis() / 2).to_string()),
    ];
    let words = [&words[..], &policed(setup)].concat();
    let arguments = ["-db", "-f"];
    configured(
        setup,
        (&program("haproxy"), &arguments),
        ("haproxy.cfg", text),
        &[],
        &tags(setup),
        &words,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_found_by_their_names() {
        for server in Server::all() {
            assert_eq!(Server::find(&server.name()), Some(server));
        }
        assert_eq!(Server::find("threads"), None);
        assert!(!Server::all().into_iter().any(|server| server.bare().has_policy()));
    }
}
