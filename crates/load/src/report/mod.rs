//! The results of a run, as values: the JSON file has exactly these.

mod compare;
pub mod expect;
mod html;
mod table;
mod verdict;
mod words;

use crate::failure::RequestFailure;
pub use crate::ledger::IntervalPoint;
use crate::ledger::{GroupLedger, Ledger};
use crate::plan::{ClientGroup, LoadPlan};
use crate::tally::{ClientTotals, GroupTally, TimeHistogram};
use crate::worker::Finished;
pub use compare::FigureChange;
use forebay_tls::terms::Agreed;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The version of Forebay that wrote the report.
    pub version: String,
    /// The end of the run, in milliseconds since 1970.
    pub unix_ms: u64,
    /// The measured time, in seconds.
    pub seconds: f64,
    /// The warm-up before it, in seconds.
    pub warmup_s: f64,
    /// The length of a point of the series, in seconds.
    pub interval_s: f64,
    /// The number of threads of the generator.
    pub threads: usize,
    /// The seed of everything random.
    pub seed: u64,
    /// The results of each group, in the order of the plan.
    pub groups: Vec<GroupReport>,
    /// The measurements of the generator itself.
    pub generator: Generator,
}

/// The results of a group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroupReport {
    /// The name of the group.
    pub name: String,
    /// A description of its load, in a few words.
    pub load: String,
    /// The URL of its server.
    pub url: String,
    /// Whether it is an open loop.
    pub open: bool,
    /// The part of the measured time in which it was active, in seconds.
    pub seconds: f64,
    /// Requests that were due in the measured time.
    pub offered: u64,
    /// Requests that were sent in the measured time.
    pub sent: u64,
    /// Complete answers, those of the drain included.
    pub answered: u64,
    /// Good answers, those of the drain included.
    pub good: u64,
    /// Requests that failed, those of the drain included.
    pub failed: u64,
    /// Requests of a closed loop that were under way when the drain ended.
    pub cut: u64,
    /// Answers per second of the measured time.
    pub rate: f64,
    /// Good answers, in time or not, per second of the measured time.
    #[serde(default)]
    pub good_rate: f64,
    /// Good answers in time, per second of the measured time.
    pub goodput: f64,
    /// Bytes received per second of the measured time, heads included.
    pub received_bytes_per_s: f64,
    /// Body bytes of good answers in time, per second of the measured time.
    pub good_bytes_per_s: f64,
    /// Failed requests by kind; only kinds that occurred.
    pub failures: BTreeMap<String, u64>,
    /// The reasons of failures of which more than the kind is known: by kind and reason, for the
    /// operator.
    #[serde(default)]
    pub reasons: BTreeMap<String, BTreeMap<String, u64>>,
    /// Answers by status.
    pub statuses: BTreeMap<u16, u64>,
    /// The group's connections.
    pub connections: ConnectionsReport,
    /// The time from the intended start of a request to the last byte of its answer.
    pub latency: Latency,
    /// The time from the actual start: the send, or the connect where the request needed one.
    pub service: Latency,
    /// The time from connect to established.
    pub connect: Latency,
    /// The TLS handshakes, if the group speaks TLS.
    #[serde(default)]
    pub tls: Option<TlsReport>,
    /// The figures over time.
    pub series: Vec<IntervalPoint>,
    /// The highest rate at which a connection receives, in bit/s, if it is limited.
    pub line_bit_per_s: Option<f64>,
    /// The clients judged one by one (closed loops only).
    pub clients: Option<ClientCounts>,
}

/// The connections of a group, in the measured time and the drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionsReport {
    /// Connections begun.
    pub opened: u64,
    /// Connections established.
    pub connected: u64,
    /// Connections whose SYN was repeated.
    pub syn_retried: u64,
    /// Repeated SYNs.
    pub syn_retries: u64,
    /// Connections on which the server sent GOAWAY.
    #[serde(default)]
    pub goaways: u64,
    /// Arrivals that found all of the group's connections taken.
    pub waited: u64,
}

/// The TLS handshakes of a group, in the measured time and the drain. Failed handshakes are counted
/// among the failures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TlsReport {
    /// Whether certificates were verified.
    pub verified: bool,
    /// Full handshakes.
    pub full: u64,
    /// Handshakes that resumed a session.
    pub resumed: u64,
    /// Handshakes of both kinds per second of the measured time.
    pub rate: f64,
    /// The time from established to the end of the handshake, as the client sees it.
    pub handshake: Latency,
    /// The number of handshakes by what was negotiated: version, cipher, group of the key exchange,
    /// protocol.
    pub agreed: BTreeMap<String, u64>,
}

/// A distribution of times, in µs. Requests that timed out, or had no answer when the drain ended,
/// are included with the time they had waited; other failures are not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// The number of times.
    pub count: u64,
    /// The mean.
    pub mean_us: f64,
    /// The shortest.
    pub min_us: f64,
    /// The median.
    pub p50_us: f64,
    /// The 90th percentile.
    pub p90_us: f64,
    /// The 95th percentile; 0 in reports of versions that did not record it.
    #[serde(default)]
    pub p95_us: f64,
    /// The 99th percentile.
    pub p99_us: f64,
    /// The 99.9th percentile.
    pub p999_us: f64,
    /// The longest.
    pub max_us: f64,
    /// The whole curve: pairs of quantile (0 to 1) and time.
    pub curve: Vec<(f64, f64)>,
}

impl Latency {
    /// The columns of tables, in their order: mean, the percentiles upward, the longest; in µs.
    fn columns_us(&self) -> [f64; 7] {
        let Latency { mean_us, p50_us, p90_us, p95_us, p99_us, p999_us, max_us, .. } = *self;
        [mean_us, p50_us, p90_us, p95_us, p99_us, p999_us, max_us]
    }
}

/// The clients of a closed loop, each judged by itself as in SPECweb99.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClientCounts {
    /// Clients that sent a request.
    pub active: u64,
    /// Clients that received ≥ 320,000 bit/s with < 1 % failures.
    pub conforming: u64,
    /// Clients with ≥ 1 % failures.
    pub invalid: u64,
    /// The mean of the clients' rates while a request was under way, in bit/s.
    pub mean_bit_per_s: f64,
    /// The rate of the slowest client, in bit/s.
    pub min_bit_per_s: f64,
    /// The rate of the fastest client, in bit/s.
    pub max_bit_per_s: f64,
}

/// The measurements of the generator itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Generator {
    /// The CPU time of all threads over the measured time; 1.0 is a whole core. Time that was spent
    /// spinning until the next arrival is not included.
    pub cpu_cores: f64,
    /// The time spent spinning, in the same unit.
    pub spinning_cores: f64,
    /// The busiest thread's CPU time over the measured time, without spinning, 0 to 1.
    pub busiest_thread: f64,
    /// The CPU time per request that ended, without spinning, in µs.
    pub cpu_us_per_request: f64,
    /// The share of the measured time in which a thread could run but had no core, 0 to 1; that of
    /// the worst thread.
    pub starved: f64,
    /// How late the generator did what it had planned.
    pub lateness: Latency,
    /// The reasons why the figures may be limited by the generator rather than the target; empty if
    /// there are none.
    pub bottlenecks: Vec<String>,
}

/// The rate, in bit/s, that a conforming SPECweb99 connection receives at least.
const CONFORMING_BIT_PER_S: f64 = 320_000.0;

impl Report {
    pub(crate) fn new(plan: &LoadPlan, ledger: &Ledger<'_>, finished: &[Finished]) -> Report {
        // all threads measured the same time, which is shorter than planned after a stop
        let seconds = finished.first().map_or(0.0, |thread| thread.measured_ns as f64 / 1e9);
        let groups = plan.groups.iter().zip(&ledger.groups).enumerate();
        let groups: Vec<_> = groups
            .map(|(place, (group, sums))| {
                let clients = finished.iter().flat_map(|thread| &thread.clients[place]);
                GroupReport::new(plan, group, sums, clients, seconds)
            })
            .collect();
        let ended = ledger.groups.iter().map(|group| group.measured.counts.ended()).sum::<u64>();
        let mut report = Report {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            unix_ms: forebay_sys::clock::unix_coarse_ms(),
            seconds,
            warmup_s: plan.warmup.as_secs_f64(),
            interval_s: plan.interval_length().as_secs_f64(),
            threads: plan.threads,
            seed: plan.seed,
            groups,
            generator: generator(finished, &ledger.lateness, ended),
        };
        report.generator.bottlenecks = verdict::bottlenecks(&report);
        report
    }

    /// Reads a report from JSON.
    ///
    /// # Errors
    /// The text is not a report.
    pub fn from_json(text: &str) -> Result<Report, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// The report as JSON, indented.
    pub fn to_json(&self) -> String {
        // maps have text or number keys and no value fails to serialize, so there is no error
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }
}

fn generator(finished: &[Finished], lateness: &TimeHistogram, ended: u64) -> Generator {
    let share = |ns: u64, of: u64| if of == 0 { 0.0 } else { ns as f64 / of as f64 };
    let worst = |part: fn(&Finished) -> u64| {
        finished.iter().map(|thread| share(part(thread), thread.measured_ns)).fold(0.0, f64::max)
    };
    let busy = |thread: &Finished| thread.cpu_ns.saturating_sub(thread.spun_ns);
    let cpu_ns = finished.iter().map(busy).sum::<u64>();
    Generator {
        cpu_cores: finished.iter().map(|thread| share(busy(thread), thread.measured_ns)).sum(),
        spinning_cores: finished.iter().map(|t| share(t.spun_ns, t.measured_ns)).sum(),
        busiest_thread: worst(|thread| thread.cpu_ns.saturating_sub(thread.spun_ns)),
        cpu_us_per_request: share(cpu_ns, ended) / 1e3,
        starved: worst(|thread| thread.starved_ns),
        lateness: Latency::new(lateness),
        bottlenecks: Vec::new(),
    }
}

impl GroupReport {
    fn new<'c>(
        plan: &LoadPlan,
        group: &ClientGroup,
        sums: &GroupLedger,
        clients: impl Iterator<Item = &'c ClientTotals>,
        seconds: f64,
    ) -> GroupReport {
        let (from_ns, until_ns) = group.active_ns(plan);
        let warmup_s = plan.warmup.as_secs_f64();
        let from_s = (from_ns as f64 / 1e9 - warmup_s).max(0.0);
        let until_s = (until_ns as f64 / 1e9 - warmup_s).min(seconds);
        let active_s = (until_s - from_s).max(1e-9);
        let measured = &sums.measured.counts;
        let mut all = sums.measured.clone();
        all.add(&sums.drained);
        let counts = all.counts;
        let per_second = |count: u64| count as f64 / active_s;
        GroupReport {
            name: group.name.clone(),
            load: words::describe(group),
            url: format!(
                "{}://{}{}",
                group.target.scheme(),
                group.target.authority,
                group.mix.entries()[0].path
            ),
            open: group.is_open(),
            seconds: active_s,
            // a request that was due just before the end may have been counted just after it
            offered: counts.offered,
            sent: measured.sent,
            answered: counts.answered,
            good: counts.good,
            failed: counts.failures.iter().sum(),
            cut: counts.cut,
            rate: per_second(measured.answered),
            good_rate: per_second(measured.good),
            goodput: per_second(measured.in_time),
            received_bytes_per_s: per_second(measured.received_bytes),
            good_bytes_per_s: per_second(measured.good_bytes),
            failures: failures(&all),
            reasons: reasons(&all),
            statuses: all.statuses.iter().copied().collect(),
            connections: ConnectionsReport {
                opened: counts.opened,
                connected: counts.connected,
                syn_retried: counts.syn_retried,
                syn_retries: counts.syn_retries,
                goaways: counts.goaways,
                waited: counts.waited,
            },
            latency: Latency::new(crate::ledger::latency(&all)),
            service: Latency::new(&all.actual),
            connect: Latency::new(&all.connect),
            tls: group.target.is_tls.then(|| TlsReport {
                verified: !group.tls.insecure,
                full: counts.full,
                resumed: counts.resumed,
                rate: per_second(measured.full + measured.resumed),
                handshake: Latency::new(all.handshake.as_ref().unwrap_or(&TimeHistogram::new())),
                agreed: agreed(&all),
            }),
            series: sums.series.clone(),
            line_bit_per_s: group.receive.map(|rate| rate * 8.0),
            clients: ClientCounts::new(clients),
        }
    }
}

fn failures(tally: &GroupTally) -> BTreeMap<String, u64> {
    let all = RequestFailure::ALL.iter().zip(tally.counts.failures);
    all.filter(|(_, count)| *count > 0).map(|(f, count)| (f.name().to_owned(), count)).collect()
}

fn reasons(tally: &GroupTally) -> BTreeMap<String, BTreeMap<String, u64>> {
    let mut all: BTreeMap<String, BTreeMap<String, u64>> = BTreeMap::new();
    for (failure, why, count) in &tally.reasons {
        all.entry(failure.name().to_owned()).or_default().insert(why.clone(), *count);
    }
    all
}

fn agreed(tally: &GroupTally) -> BTreeMap<String, u64> {
    let in_words = |agreed: &Agreed| {
        let Agreed { version, cipher, group, alpn, .. } = agreed;
        let more: String =
            [group, alpn].into_iter().flatten().map(|one| format!(", {one}")).collect();
        format!("TLS {version}, {cipher}{more}")
    };
    tally.agreed.iter().map(|(agreed, count)| (in_words(agreed), *count)).collect()
}

impl Latency {
    fn new(times: &TimeHistogram) -> Latency {
        let curve = if times.count() == 0 { Vec::new() } else { curve(times) };
        Latency {
            count: times.count(),
            mean_us: times.mean_us(),
            min_us: times.min_us(),
            p50_us: times.quantile_us(0.5),
            p90_us: times.quantile_us(0.9),
            p95_us: times.quantile_us(0.95),
            p99_us: times.quantile_us(0.99),
            p999_us: times.quantile_us(0.999),
            max_us: times.max_us(),
            curve,
        }
    }

    /// The time that a share `quantile` of all do not exceed: the next point of the curve that is
    /// not below. Whole percents, and tenths of the last one, are points.
    pub fn quantile_us(&self, quantile: f64) -> f64 {
        // a share read as a percentage differs slightly from one that was divided here
        let point = self.curve.iter().find(|(share, _)| *share >= quantile - 1e-12);
        point.map_or(self.max_us, |(_, us)| *us)
    }
}

/// The points of the curve: ten per halving of the distance to 1, as far as there are samples, and
/// the usual percentiles.
fn curve(times: &TimeHistogram) -> Vec<(f64, f64)> {
    let halvings = (times.count() as f64).log2().min(24.0);
    let steps = (halvings * 10.0).ceil() as u32;
    let even = |step| 1.0 - 0.5f64.powf(f64::from(step) / 10.0);
    let percents = (1..=99).map(|percent| f64::from(percent) / 100.0);
    let tenths = (991..=999).map(|permille| f64::from(permille) / 1000.0);
    let named = percents.chain(tenths).chain([0.9999]).filter(|named| *named <= even(steps));
    let mut quantiles: Vec<f64> = (0..=steps).map(even).chain(named).collect();
    quantiles.sort_by(f64::total_cmp);
    quantiles.dedup();
    let mut curve: Vec<_> = quantiles.into_iter().map(|q| (q, times.quantile_us(q))).collect();
    curve.push((1.0, times.max_us()));
    curve
}

impl ClientCounts {
    fn new<'c>(clients: impl Iterator<Item = &'c ClientTotals>) -> Option<ClientCounts> {
        let active: Vec<_> = clients.filter(|c| c.requests + c.failures > 0).collect();
        if active.is_empty() {
            return None;
        }
        let invalid = |c: &ClientTotals| c.failures * 100 >= c.requests.max(1);
        let rates = active.iter().map(|client| client.bits_per_second());
        let conforming =
            |c: &&&ClientTotals| c.bits_per_second() >= CONFORMING_BIT_PER_S && !invalid(c);
        Some(ClientCounts {
            active: active.len() as u64,
            conforming: active.iter().filter(conforming).count() as u64,
            invalid: active.iter().filter(|client| invalid(client)).count() as u64,
            mean_bit_per_s: rates.clone().sum::<f64>() / active.len() as f64,
            min_bit_per_s: rates.clone().fold(f64::INFINITY, f64::min),
            max_bit_per_s: rates.fold(0.0, f64::max),
        })
    }
}
