//! Clients that want one object each and then stay silent (duke §VII.D): what keeping their
//! connections costs where each holds a thread, and what a timeout that shrinks gives back.

use crate::Error;
use crate::summary::Spread;
use forebay_load::arrivals::Arrivals;
use forebay_load::plan::{RequestsPerConnection, StatedVersion};
use forebay_load::{ClientGroup, LoadModel, LoadPlan, LoadTarget, Report};
use std::fmt::Write;
use std::time::Duration;

/// Bytes of the object: duke's pool was measured with 8,000.
pub const OBJECT_BYTES: usize = 8000;
/// How long a client waits for its answer before it gives up.
pub const PATIENCE: Duration = Duration::from_secs(2);
/// How long a client that was answered stays, unless the server ends it: longer than any run.
const SILENCE: Duration = Duration::from_secs(600);
/// Connections open at once at most, waiting ones included.
const CONNECTIONS: u32 = 15_000;

/// What is done with a connection after its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Kept by a law of `keep_alive.law`, down to this floor where the law has one.
    Law {
        /// Its name.
        law: &'static str,
        /// What is left of the full time at full load.
        floor: Option<String>,
    },
    /// The clients speak HTTP/1.0, so it is closed.
    Old,
}

impl Keep {
    /// As tables show it.
    pub fn name(&self) -> String {
        match self {
            Keep::Law { law, floor: Some(floor) } => format!("{law} to {floor}"),
            Keep::Law { law, floor: None } => (*law).to_owned(),
            Keep::Old => "HTTP/1.0".to_owned(),
        }
    }

    /// Lines of the configuration.
    pub fn lines(&self) -> String {
        match self {
            Keep::Law { law, floor } => {
                let floor = floor.as_ref().map(|floor| format!("keep_alive.floor = \"{floor}\"\n"));
                format!("keep_alive.law = \"{law}\"\n{}", floor.unwrap_or_default())
            }
            Keep::Old => String::new(),
        }
    }
}

/// The load: so many new clients per second, whatever becomes of those before.
///
/// # Errors
/// When the address cannot be used.
pub fn plan(
    keep: &Keep,
    port: u16,
    rate: f64,
    seconds: u64,
    core: usize,
) -> Result<LoadPlan, Error> {
    let target = LoadTarget::parse(&format!("http://127.0.0.1:{port}/object.html"));
    let target = target.map_err(|error| Error::Client(error.to_string()))?;
    let mut group = ClientGroup::new("clients", target);
    let arrivals = Arrivals { poisson: true, ..Arrivals::constant(rate) };
    group.load = LoadModel::Open { arrivals, connections: CONNECTIONS };
    group.per_connection = RequestsPerConnection::Exactly(1);
    group.timeout = PATIENCE;
    match keep {
        Keep::Old => group.version = StatedVersion::Http10,
        Keep::Law { .. } => group.hold = SILENCE,
    }
    Ok(LoadPlan {
        duration: Duration::from_secs(seconds),
        // those who come to an empty server find free threads
        warmup: Duration::from_secs(1),
        drain: PATIENCE,
        cores: vec![core],
        groups: vec![group],
        ..LoadPlan::default()
    })
}

/// One measurement.
#[derive(Clone, Debug)]
pub struct Row {
    /// Which of the rounds.
    pub round: u32,
    /// The engine.
    pub engine: String,
    /// What is done with connections.
    pub keep: Keep,
    /// Clients per second that came.
    pub offered: f64,
    /// Clients per second that got the object.
    pub served: f64,
    /// Median of the time to the answer, or until the client gave up, ms.
    pub p50_ms: f64,
    /// 99th percentile of that, ms.
    pub p99_ms: f64,
    /// Share of the clients that gave up or were refused, 0 to 1.
    pub lost: f64,
    /// Threads of the server, all told.
    pub threads: u64,
    /// How busy the load generator's core was, 0 to 1.
    pub client: f64,
}

impl Row {
    /// The names of the columns, for a file.
    pub const HEAD: &'static str =
        "round,engine,keep,offered_per_s,served_per_s,p50_ms,p99_ms,lost,threads,client";

    /// Of a run.
    pub fn new(round: u32, engine: &str, keep: &Keep, report: &Report, threads: u64) -> Row {
        let group = &report.groups[0];
        let points = group.series.len().max(1) as f64;
        Row {
            round,
            engine: engine.to_owned(),
            keep: keep.clone(),
            offered: group.offered as f64 / group.seconds.max(1e-9),
            // in the measured time: what is answered while the run drains is another matter
            served: group.series.iter().map(|point| point.good).sum::<f64>() / points,
            p50_ms: group.latency.p50_us / 1e3,
            p99_ms: group.latency.p99_us / 1e3,
            lost: group.failed as f64 / (group.failed + group.good).max(1) as f64,
            threads,
            client: report.generator.busiest_thread,
        }
    }

    /// As a line of a file.
    pub fn csv(&self) -> String {
        format!(
            "{},{},{},{:.1},{:.2},{:.3},{:.3},{:.4},{},{:.2}",
            self.round,
            self.engine,
            self.keep.name(),
            self.offered,
            self.served,
            self.p50_ms,
            self.p99_ms,
            self.lost,
            self.threads,
            self.client
        )
    }
}

/// Medians and spreads as markdown, a line for each engine and way to keep connections.
pub fn table(rows: &[Row]) -> String {
    let mut text = "\n| engine | connections are kept | served/s | wait for a free thread: p50 ms \
                    | p99 ms | lost | threads |\n|---|---|---|---|---|---|---|\n"
        .to_owned();
    let mut seen = Vec::new();
    for row in rows {
        let key = (&row.engine, &row.keep);
        if seen.contains(&key) {
            continue;
        }
        seen.push(key);
        let mine = rows.iter().filter(|other| (&other.engine, &other.keep) == key);
        let shown = |digits: usize, figure: fn(&Row) -> f64| {
            let spread = Spread::of(mine.clone().map(figure));
            spread.map_or("–".to_owned(), |spread| format!("{spread:.digits$}"))
        };
        // writing to a string does not fail
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} % | {} |",
            row.engine,
            row.keep.name(),
            shown(1, |row| row.served),
            shown(1, |row| row.p50_ms),
            shown(1, |row| row.p99_ms),
            shown(1, |row| row.lost * 100.0),
            shown(0, |row| row.threads as f64),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(round: u32, keep: Keep, served: f64) -> Row {
        Row {
            round,
            engine: "pool".to_owned(),
            keep,
            offered: 500.0,
            served,
            p50_ms: 1.0,
            p99_ms: 2.0,
            lost: 0.5,
            threads: 11,
            client: 0.1,
        }
    }

    #[test]
    fn rounds_of_one_kind_share_a_line() {
        let linear = Keep::Law { law: "linear", floor: Some("1s".to_owned()) };
        let rows = [row(1, linear.clone(), 8.0), row(1, Keep::Old, 500.0), row(2, linear, 10.0)];
        let text = table(&rows);
        assert_eq!(text.lines().filter(|line| line.starts_with("| pool |")).count(), 2);
        assert!(text.contains("| pool | linear to 1s | 9.0 (8.0–10.0) |"), "{text}");
        assert_eq!(rows[0].csv().split(',').count(), Row::HEAD.split(',').count());
    }

    #[test]
    fn only_clients_of_http_1_0_do_not_stay() {
        let constant = Keep::Law { law: "constant", floor: None };
        let kept = plan(&constant, 1, 500.0, 5, 0).expect("a plan");
        assert!(kept.groups[0].hold > kept.duration && kept.check().is_ok());
        let old = plan(&Keep::Old, 1, 500.0, 5, 0).expect("a plan");
        assert_eq!(
            (old.groups[0].hold, old.groups[0].version),
            (Duration::ZERO, StatedVersion::Http10)
        );
        assert_eq!(constant.lines(), "keep_alive.law = \"constant\"\n");
    }
}
