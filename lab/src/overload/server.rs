//! The servers under overload: Forebay with and without a policy, and others in front of an
//! application, which is php-fpm by default.
//!
//! The cost of a request is the same everywhere: `/work?cpu=20ms` keeps a thread of Forebay, or a
//! process of php-fpm, busy until its CPU time has grown by 20 ms. Everything runs on one core.

pub mod application;

use super::GOLD;
use crate::Error;
use crate::network::NetworkPair;
use crate::run::Run;
use crate::serving::{Forebay, PeerProcess, Serving};
use application::ApplicationKind;
use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

/// Engines whose jobs helper threads do, one whose threads do them themselves, and stages.
const ENGINES: [&str; 5] = ["event", "fibers", "pipeline", "pool", "isolated"];
/// Threads of `pool`, all of which may answer at once: as many as voigt's server had processes.
const POOL: u32 = 50;

/// One server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Server {
    /// Forebay with this engine.
    Forebay {
        /// The engine.
        engine: &'static str,
        /// Whether the policy of the measurement and the agent are on.
        policy: bool,
    },
    /// nginx.
    Nginx {
        /// Whether a limit on requests under way that fits the deadline is set.
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
    /// The number of connections that may come at once.
    pub burst: u32,
}

/// The parameters with which a server is started.
#[derive(Clone, Copy, Debug)]
pub struct Setup<'s> {
    /// Processes of php-fpm.
    pub threads: u32,
    /// The application behind the server, Forebay included, to which others speak HTTP; none, or
    /// php-fpm behind others.
    pub application: Option<ApplicationKind>,
    /// CPU time of a request, and the time in which its answer is wanted.
    pub cost: Duration,
    /// The deadline that limits and queues are made for.
    pub deadline: Duration,
    /// Further lines of Forebay's configuration, those of a policy among them.
    pub lines: &'s str,
    /// Whether the server listens at all addresses.
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

    /// The name, as `--servers` takes it and the tables show it.
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
    pub fn start(self, run: &Run, setup: &Setup<'_>) -> Result<Serving, Error> {
        let behind = setup.application.unwrap_or(ApplicationKind::Php);
        let mut serving = match self {
            Server::Forebay { engine, .. } => forebay(run, setup, engine)?,
            _ => Serving::empty(&run.folder()?, run.port()?),
        };
        let port = serving.port();
        match self {
            Server::Forebay { .. } => {}
            Server::Nginx { limit } => add(run, &mut serving, setup, NGINX, port, limit)?,
            Server::Apache => add(run, &mut serving, setup, APACHE, port, false)?,
            Server::Haproxy => {
                let next = run.port()?;
                add(run, &mut serving, setup, HAPROXY, next, false)?;
                // it speaks no FastCGI
                if !behind.speaks_http() {
                    add(run, &mut serving, setup, NGINX, next, false)?;
                }
            }
        }
        let is_ours = matches!(self, Server::Forebay { .. });
        if !is_ours || setup.application.is_some() {
            behind.write_script(&serving)?;
            add(run, &mut serving, setup, behind.peer(), port, false)?;
        }
        let works = |serving: &Serving| match serving.get("work?cpu=1us")?.status {
            200 => Ok(()),
            status => Err(io::Error::other(format!("status {status}"))),
        };
        serving.until(run, &self.name(), works)?;
        Ok(serving)
    }
}

const NGINX: &str = "overload/nginx.conf";
const APACHE: &str = "overload/apache2.conf";
const HAPROXY: &str = "overload/haproxy.cfg";

fn forebay(run: &Run, setup: &Setup<'_>, engine: &str) -> Result<Serving, Error> {
    let workers = match engine {
        "pool" => format!("workers = {POOL}\nanswering = {POOL}"),
        _ => "workers = 1".to_owned(),
    };
    let (root, work) = match setup.application {
        Some(_) => ("@TMP@".into(), ""),
        None => (run.root.display().to_string(), "[[work]]\npath = \"/work*\"\n"),
    };
    let outside = match setup.is_reached_from_outside {
        true => format!("[[listener]]\nlisten = [\"{}:@PORT@\"]\n", NetworkPair::SERVER),
        false => String::new(),
    };
    let own = setup.lines;
    let lines =
        format!("root = {root:?}\nengine = \"{engine}\"\n{workers}\n{own}\n{work}{outside}");
    Serving::forebay(run, &Forebay::new(&lines))
}

/// Starts a process more. HAProxy has `port` behind it; others listen there, and may be limited.
fn add(
    run: &Run,
    serving: &mut Serving,
    setup: &Setup<'_>,
    peer: &str,
    port: u16,
    limit: bool,
) -> Result<(), Error> {
    // what is under way has to be answered in time, with some room for chance
    let fits = setup.deadline.as_secs_f64() / setup.cost.as_secs_f64().max(1e-6) * 0.7;
    let policed = setup.policed.unwrap_or(Policed { client: "", per_s: 0, burst: 0 });
    let words = [
        ("PORT", if peer == HAPROXY { serving.port() } else { port }.to_string()),
        ("BEHIND", port.to_string()),
        ("HOST", setup.host().to_string()),
        ("THREADS", setup.threads.to_string()),
        ("GOLD", GOLD.to_owned()),
        ("IN_FLIGHT", (fits as u32).max(setup.threads).to_string()),
        // half of the time until the answer is wanted: the rest is for the work
        ("QUEUE_MS", (setup.deadline.as_millis() / 2).to_string()),
        ("CLIENT", policed.client.to_owned()),
        ("PER_S", policed.per_s.to_string()),
        ("BURST", policed.burst.to_string()),
    ];
    let is_http = setup.application.is_some_and(ApplicationKind::speaks_http);
    let tags = [
        ("limit", limit),
        ("http", is_http),
        ("fastcgi", !is_http),
        ("policed", setup.policed.is_some()),
    ];
    serving.add(run, &PeerProcess { tags: &tags, words: &words, ..PeerProcess::new(peer) })
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
