//! What all parts share: settings, a measurement, capacities, rows.

use super::row::Row;
use super::server::application::{Application, WORKERS};
use super::server::{Policed, Server, Setup};
use super::watch::{Watched, watch};
use crate::Error;
use crate::network::Pair;
use forebay_load::{ClientGroup, GroupDraft, LoadPlan, LoadTarget};
use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Clients that wait for each answer, by which the capacity of a server is found: enough to keep
/// every worker busy.
const CLOSED: u32 = 8;
/// Connections of an open group at most.
const CONNECTIONS: &str = "4000";

/// What is measured, and how.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The servers.
    pub servers: Vec<Server>,
    /// CPU time of requests.
    pub costs: Vec<Duration>,
    /// CPU times by which the end of user space is looked for.
    pub search: Vec<Duration>,
    /// Loads as parts of the capacity.
    pub loads: Vec<f64>,
    /// Measurements of each.
    pub rounds: u32,
    /// Length of a measurement.
    pub measured: Duration,
    /// Length of the load before it.
    pub warmup: Duration,
    /// Processes of php-fpm.
    pub threads: u32,
    /// The core of servers.
    pub server_core: usize,
    /// The core of clients.
    pub client_core: usize,
    /// Whether voigt's figures and repetitions of short parts are left out.
    pub quick: bool,
}

impl Settings {
    /// Servers that are Forebay with a policy.
    pub fn with_policy(&self) -> impl Iterator<Item = Server> {
        self.servers.iter().copied().filter(|server| server.has_policy())
    }
}

/// One measurement.
#[derive(Clone, Copy, Debug)]
pub struct Trial<'t> {
    /// The part of the bench.
    pub part: &'static str,
    /// Which of the rounds.
    pub round: u32,
    /// What is asked of the server.
    pub case: &'t str,
    /// Who answers.
    pub server: Server,
    /// CPU time of a request.
    pub cost: Duration,
    /// Further lines of Forebay's configuration: the policy.
    pub lines: &'t str,
    /// Length of the load before the measured time.
    pub warmup: Duration,
    /// Length of the measured time.
    pub measured: Duration,
    /// Length of a point of the series.
    pub interval: Option<Duration>,
    /// Whether Forebay's metrics are read before and after.
    pub metrics: bool,
    /// What answers behind Forebay, too, and waits instead of computing.
    pub application: Option<Application>,
    /// Whether clients come from a network of their own, if there is one.
    pub over_pair: bool,
    /// The limit that others than Forebay set for one client.
    pub policed: Option<Policed>,
}

/// A bench under way.
pub struct Bench<'b> {
    /// What is measured, and how.
    pub settings: Settings,
    /// Forebay's binary.
    pub forebay: PathBuf,
    /// A folder for everything.
    pub scratch: &'b Path,
    /// What Forebay serves besides `/work`.
    pub root: PathBuf,
    /// Where the results go.
    pub out: &'b Path,
    /// The network that clients may come from.
    pub pair: Option<&'b Pair>,
    /// Turns true when a signal asks to end.
    pub stop: &'b Arc<AtomicBool>,
    /// All rows, in the order of measurement.
    pub rows: Vec<Row>,
    /// The same, in a file.
    pub file: fs::File,
    /// What each server can do of requests of each cost: requests per second, and processor time
    /// of one, s.
    pub capacities: HashMap<(Server, Duration), Capacity>,
}

/// What a server can do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Capacity {
    /// Requests per second.
    pub per_s: f64,
    /// Processor time of one, s.
    pub cpu_s: f64,
}

/// By when an answer is wanted: ten times what it costs, and some for the way.
pub fn deadline(cost: Duration) -> Duration {
    10 * cost + Duration::from_millis(100)
}

/// How long clients wait for an answer at all.
pub fn patience(cost: Duration) -> Duration {
    (2 * deadline(cost)).max(Duration::from_secs(2))
}

/// A duration as `/work?cpu=` and the names of cases have it.
pub fn cpu(cost: Duration) -> String {
    match cost.as_micros() {
        us if us % 1000 == 0 => format!("{}ms", us / 1000),
        us => format!("{us}us"),
    }
}

impl<'b> Bench<'b> {
    /// A trial with this bench's defaults.
    pub fn trial<'t>(
        &self,
        part: &'static str,
        round: u32,
        case: &'t str,
        server: Server,
        cost: Duration,
    ) -> Trial<'t> {
        Trial {
            part,
            round,
            case,
            server,
            cost,
            lines: "",
            warmup: self.settings.warmup,
            measured: self.settings.measured,
            interval: None,
            metrics: false,
            application: None,
            over_pair: false,
            policed: None,
        }
    }

    /// Starts the server, has the clients come, stops it. The rows are those of the groups, and
    /// are not kept yet.
    ///
    /// # Errors
    /// When the server does not come up or the load cannot be made.
    pub fn run(
        &self,
        trial: &Trial<'_>,
        groups: impl FnOnce(&LoadTarget) -> Result<Vec<ClientGroup>, Error>,
    ) -> Result<(Watched, Vec<Row>), Error> {
        let settings = &self.settings;
        let pair = self.pair.filter(|_| trial.over_pair);
        let scratch = self.scratch.join("server");
        let _ = fs::remove_dir_all(&scratch);
        fs::create_dir(&scratch).map_err(Error::io("cannot make the folder", &scratch))?;
        let setup = Setup {
            forebay: &self.forebay,
            scratch: &scratch,
            root: &self.root,
            core: settings.server_core,
            threads: trial.application.map_or(settings.threads, |_| WORKERS),
            application: trial.application,
            cost: trial.cost,
            deadline: deadline(trial.cost),
            lines: trial.lines,
            is_reached_from_outside: pair.is_some(),
            policed: trial.policed,
        };
        let server = trial.server.start(&setup)?;
        let host = pair.map_or(Ipv4Addr::LOCALHOST, |_| Pair::SERVER);
        let base = LoadTarget::parse(&format!("http://{host}:{}/", server.port()));
        let plan = LoadPlan {
            duration: trial.measured,
            warmup: trial.warmup,
            // what is not answered by the end is no answer of the measured time
            drain: Duration::ZERO,
            interval: trial.interval,
            cores: vec![settings.client_core],
            seed: u64::from(trial.round),
            groups: groups(&base.map_err(client)?)?,
            ..LoadPlan::default()
        };
        plan.check().map_err(client)?;
        let core = settings.server_core;
        let watched = watch(&plan, &server, core, trial.metrics, pair, self.stop)?;
        let rows = watched.report.groups.iter().map(|group| Row {
            part: trial.part,
            round: trial.round,
            case: trial.case.to_owned(),
            server: trial.server.name(),
            server_cores: watched.server_cores,
            core_busy: watched.core_busy,
            client: watched.report.generator.busiest_thread,
            starved: watched.report.generator.starved,
            ..Row::of(group)
        });
        let rows = rows.collect();
        Ok((watched, rows))
    }

    /// Keeps rows, and shows them.
    pub fn keep(&mut self, rows: impl IntoIterator<Item = Row>) {
        for row in rows {
            println!("{}", row.csv());
            // a full disk shows when the report is written
            let _ = writeln!(self.file, "{}", row.csv());
            self.rows.push(row);
        }
    }

    /// The rows of a part.
    pub fn rows_of(&self, part: &str) -> Vec<&Row> {
        self.rows.iter().filter(|row| row.part == part).collect()
    }

    /// Requests of `cost` that `server` without any limit can do per second; measured once, with
    /// clients that wait for their answers.
    ///
    /// # Errors
    /// As [`run`](Bench::run).
    pub fn capacity(&mut self, server: Server, cost: Duration) -> Result<Capacity, Error> {
        let server = server.bare();
        if let Some(known) = self.capacities.get(&(server, cost)) {
            return Ok(*known);
        }
        let case = cpu(cost);
        let mut trial = self.trial("capacity", 1, &case, server, cost);
        // at least some requests
        trial.measured = Duration::from_secs(2).min(self.settings.measured).max(50 * cost);
        let clients = CLOSED.max(2 * self.settings.threads).to_string();
        let (watched, rows) = self.run(&trial, |base| {
            let mut all = GroupDraft::new("closed", Some(base));
            all.set("connections", &clients);
            all.set("url", &format!("/work?cpu={case}"));
            Ok(vec![all.finish().map_err(client)?])
        })?;
        let per_s = rows[0].good;
        if per_s <= 0.0 {
            return Err(Error::Client(format!("{} answers nothing", server.name())));
        }
        self.keep(rows);
        let capacity = Capacity { per_s, cpu_s: watched.server_cores / per_s };
        self.capacities.insert((server, cost), capacity);
        Ok(capacity)
    }
}

/// A group of clients whose requests are due at random times, `rate` per second.
pub fn open(name: &str, base: &LoadTarget, rate: f64, cost: Duration) -> GroupDraft {
    let mut group = patient(name, base, cost);
    group.set("rate", &format!("{rate:.3}"));
    group
}

/// The same, whose rates are still to be said.
pub fn patient(name: &str, base: &LoadTarget, cost: Duration) -> GroupDraft {
    let mut group = GroupDraft::new(name, Some(base));
    group.set("url", &format!("/work?cpu={}", cpu(cost)));
    group.set("arrivals", "poisson");
    group.set("connections", CONNECTIONS);
    group.set("timeout", &format!("{}ms", patience(cost).as_millis()));
    group.set("within", &format!("{}ms", deadline(cost).as_millis()));
    group
}

/// Whoever came first in the last round comes later in this one.
pub fn turn(servers: &[Server], round: u32) -> Vec<Server> {
    let mut servers = servers.to_vec();
    let by = (round as usize - 1) % servers.len().max(1);
    servers.rotate_left(by);
    servers
}

/// The group that a draft makes.
///
/// # Errors
/// When a setting is wrong.
pub fn group(draft: GroupDraft) -> Result<ClientGroup, Error> {
    draft.finish().map_err(client)
}

/// An error of the load generator.
pub fn client(error: impl std::fmt::Display) -> Error {
    Error::Client(error.to_string())
}

/// Whether the programs of all servers are there, and those of the applications behind them.
///
/// # Errors
/// Those that are missing.
pub fn installed(servers: &[Server], applications: &[Application]) -> Result<(), Error> {
    let mut missing = Vec::new();
    let mut need = |program: &'static str, package: &'static str| {
        if crate::peers::locate(program).is_none() {
            missing.push(crate::error::Missing { program, package });
        }
    };
    for server in servers {
        match server {
            Server::Forebay { .. } => {}
            Server::Nginx { .. } => need("nginx", "nginx-light"),
            Server::Apache => need("apache2", "apache2"),
            Server::Haproxy => need("haproxy", "haproxy"),
        }
    }
    let others = servers.iter().any(|server| !matches!(server, Server::Forebay { .. }));
    let php = others.then_some(Application::Php);
    let needed =
        Application::ALL.iter().filter(|one| applications.contains(one) || php == Some(**one));
    missing.extend(needed.filter_map(|application| application.missing()));
    if missing.is_empty() { Ok(()) } else { Err(Error::NotInstalled(missing)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_written_as_the_handler_reads_them() {
        assert_eq!(cpu(Duration::from_millis(20)), "20ms");
        assert_eq!(cpu(Duration::from_micros(500)), "500us");
        assert_eq!(deadline(Duration::from_millis(20)), Duration::from_millis(300));
        assert_eq!(patience(Duration::from_millis(1)), Duration::from_secs(2));
    }
}
