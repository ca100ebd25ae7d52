//! Code that all parts share: settings, a measurement, capacities, rows.

use super::row::Row;
use super::server::application::{ApplicationKind, WORKERS};
use super::server::{Policed, Server, Setup};
use crate::Error;
use crate::load::{self, LoadResult, client};
use crate::network::NetworkPair;
use crate::options::Options;
use crate::run::Run;
use forebay_load::{ClientGroup, GroupDraft, LoadPlan, LoadTarget};
use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::time::Duration;

/// The number of clients that wait for each answer, by which the capacity of a server is found:
/// enough to keep every worker busy.
const CLOSED: u32 = 8;
/// The largest number of connections of an open group.
const CONNECTIONS: &str = "4000";

/// The settings of a run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The servers.
    pub servers: Vec<Server>,
    /// Length of a measurement.
    pub measured: Duration,
    /// Length of the load before it.
    pub warmup: Duration,
    /// Processes of php-fpm.
    pub threads: u32,
    /// Whether voigt's figures and repetitions of short parts are left out.
    pub quick: bool,
}

impl Settings {
    /// The settings in a run's options.
    pub fn of(options: &Options) -> Settings {
        Settings {
            servers: options.servers.iter().filter_map(|name| Server::find(name)).collect(),
            measured: options.measured,
            warmup: Duration::from_secs(1),
            threads: options.number("threads") as u32,
            quick: options.quick,
        }
    }

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
    /// The round's number.
    pub round: u32,
    /// The case: the requests of this measurement.
    pub case: &'t str,
    /// The server that answers.
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
    /// An application behind the server, Forebay included, which waits instead of computing.
    pub application: Option<ApplicationKind>,
    /// Whether clients come from a network of their own, if there is one.
    pub over_pair: bool,
    /// The limit that others than Forebay set for one client.
    pub policed: Option<Policed>,
}

/// A part under way.
pub struct Bench<'b> {
    /// The run.
    pub run: &'b Run,
    /// The settings.
    pub settings: Settings,
    /// Rows that are not written yet, in the order of measurement.
    pub rows: Vec<Row>,
    /// The capacity of each server for requests of each cost.
    pub capacities: HashMap<(Server, Duration), Capacity>,
}

/// The capacity of a server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Capacity {
    /// Requests per second.
    pub per_s: f64,
    /// Processor time of one, s.
    pub cpu_s: f64,
}

/// The time in which an answer is wanted: ten times its cost, and some for the way.
pub fn deadline(cost: Duration) -> Duration {
    10 * cost + Duration::from_millis(100)
}

/// The time after which clients give up.
pub fn patience(cost: Duration) -> Duration {
    (2 * deadline(cost)).max(Duration::from_secs(2))
}

/// A duration as it is written in `/work?cpu=` and in names of cases.
pub fn cpu(cost: Duration) -> String {
    match cost.as_micros() {
        us if us % 1000 == 0 => format!("{}ms", us / 1000),
        us => format!("{us}us"),
    }
}

impl Bench<'_> {
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
            application: None,
            over_pair: false,
            policed: None,
        }
    }

    /// Starts the server, has the clients connect, stops it. Returns the rows of the groups, which
    /// are not kept yet.
    ///
    /// # Errors
    /// When the server does not come up or the load cannot be made.
    pub fn run(
        &self,
        trial: &Trial<'_>,
        groups: impl FnOnce(&LoadTarget) -> Result<Vec<ClientGroup>, Error>,
    ) -> Result<(LoadResult, Vec<Row>), Error> {
        let settings = &self.settings;
        let run = self.run;
        let pair = run.pair.as_ref().filter(|_| trial.over_pair);
        let setup = Setup {
            threads: trial.application.map_or(settings.threads, |_| WORKERS),
            application: trial.application,
            cost: trial.cost,
            deadline: deadline(trial.cost),
            lines: trial.lines,
            is_reached_from_outside: pair.is_some(),
            policed: trial.policed,
        };
        let server = trial.server.start(run, &setup)?;
        let host = pair.map_or(Ipv4Addr::LOCALHOST, |_| NetworkPair::SERVER);
        let base = LoadTarget::parse(&format!("http://{host}:{}/", server.port()));
        let plan = LoadPlan {
            duration: trial.measured,
            warmup: trial.warmup,
            // an answer after the end is no answer of the measured time
            drain: Duration::ZERO,
            interval: trial.interval,
            cores: vec![run.options.client_core],
            seed: u64::from(trial.round),
            groups: groups(&base.map_err(client)?)?,
            ..LoadPlan::default()
        };
        let watched = load::run_from(pair, run, &server, &plan, &mut |_| {})?;
        let rows = watched.report.groups.iter().map(|group| Row {
            part: trial.part.to_owned(),
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

    /// Keeps rows; they are written when the part has ended.
    pub fn keep(&mut self, rows: impl IntoIterator<Item = Row>) {
        for row in rows {
            eprintln!(
                "{}: {}, {}, {}: {:.1} good/s",
                row.part, row.case, row.server, row.group, row.good
            );
            self.rows.push(row);
        }
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

/// The same, without a rate yet.
pub fn patient(name: &str, base: &LoadTarget, cost: Duration) -> GroupDraft {
    let mut group = GroupDraft::new(name, Some(base));
    group.set("url", &format!("/work?cpu={}", cpu(cost)));
    group.set("arrivals", "poisson");
    group.set("connections", CONNECTIONS);
    group.set("timeout", &format!("{}ms", patience(cost).as_millis()));
    group.set("within", &format!("{}ms", deadline(cost).as_millis()));
    group
}

/// The group that a draft makes.
///
/// # Errors
/// When a setting is wrong.
pub fn group(draft: GroupDraft) -> Result<ClientGroup, Error> {
    draft.finish().map_err(client)
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
