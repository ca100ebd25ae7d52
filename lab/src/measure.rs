//! Figures of a run: of a group of clients, of the server, and whether the load was as stated.

use crate::forebay::value;
use crate::load::LoadResult;
use crate::summary::Spread;
use forebay_load::report::GroupReport;

/// A figure: its name, its meaning, and the function that finds it, which returns `None` where
/// there is none.
type MeasureRow = (&'static str, &'static str, fn(&GroupReport, &LoadResult) -> Option<f64>);

/// Length of a point of the series, by which clients in step are seen.
pub const POINT_MS: u64 = 100;

/// All figures of kind `load`.
const MEASURES: &[MeasureRow] = &[
    ("offered_per_s", "requests that were due", |group, _| per_s(group, group.offered as f64)),
    ("good_per_s", "good answers", |group, _| Some(group.good_rate)),
    ("rate_per_s", "answers", |group, _| Some(group.rate)),
    ("goodput_per_s", "good answers in time", |group, _| Some(group.goodput)),
    ("refused_per_s", "answers that say no", |group, _| Some(group.rate - group.good_rate)),
    ("reset_per_s", "connections reset or closed", |group, _| {
        let kinds = ["refused", "reset", "closed", "short"];
        let counts = kinds.iter().filter_map(|kind| group.failures.get(*kind));
        per_s(group, counts.sum::<u64>() as f64)
    }),
    ("bytes_per_s", "received", |group, _| Some(group.received_bytes_per_s)),
    ("mean_ms", "mean time to an answer", |group, _| time(group, group.latency.mean_us)),
    ("p50_ms", "its median", |group, _| time(group, group.latency.p50_us)),
    ("p99_ms", "its 99th percentile", |group, _| time(group, group.latency.p99_us)),
    ("max_ms", "the longest", |group, _| time(group, group.latency.max_us)),
    ("syn_retries", "SYNs that were sent again, per second", |group, _| {
        per_s(group, group.connections.syn_retries as f64)
    }),
    ("invalid", "connections that got too little", |group, _| {
        group.clients.map(|clients| clients.invalid as f64)
    }),
    ("conforming", "connections that got enough", |group, _| {
        group.clients.map(|clients| clients.conforming as f64)
    }),
    ("mean_bit_per_s", "mean rate of a connection", |group, _| {
        group.clients.map(|clients| clients.mean_bit_per_s)
    }),
    ("steady", "good answers in the last third, divided by those in the first", |group, _| {
        let points: Vec<f64> = group.series.iter().map(|point| point.good).collect();
        let third = points.len() / 3;
        let first: f64 = points[..third].iter().sum();
        let last: f64 = points[points.len() - third..].iter().sum();
        (third > 0 && first > 0.0).then(|| last / first)
    }),
    (
        "in_step",
        "variance of arrivals in 100 ms, divided by their mean: by chance it is 1",
        |group, _| {
            let seconds = POINT_MS as f64 / 1e3;
            let counts: Vec<f64> =
                group.series.iter().map(|point| point.offered * seconds).collect();
            let mean = counts.iter().sum::<f64>() / counts.len().max(1) as f64;
            let squares: f64 = counts.iter().map(|count| (count - mean).powi(2)).sum();
            (mean > 0.0).then(|| squares / counts.len() as f64 / mean)
        },
    ),
    (
        "spread",
        "answers per second in ten parts: most less least, divided by the median",
        |group, _| {
            let size = (group.series.len() / 10).max(1);
            let sum = |part: &[forebay_load::report::IntervalPoint]| {
                part.iter().map(|point| point.good).sum::<f64>()
            };
            let spread = Spread::of(group.series.chunks_exact(size).map(sum))?;
            (spread.median > 0.0).then(|| (spread.most - spread.least) / spread.median)
        },
    ),
    ("waits", "how often an answer of Forebay waited for room in its socket", |group, seen| {
        let of = |text: &str| value(text, "forebay_send_waits_total");
        let [before, after] = [&seen.metrics[0], &seen.metrics[1]].map(|text| of(text));
        per_s(group, after? - before?).map(|per_s| per_s / group.rate.max(1e-9))
    }),
    ("server_cores", "processor time of the server's processes, cores", |_, seen| {
        Some(seen.server_cores)
    }),
    ("cpu_us", "processor time of the server's processes for each answer", |group, seen| {
        (group.rate > 0.0).then(|| seen.server_cores * 1e6 / group.rate)
    }),
    ("core_busy", "how busy the server's core was, of 1", |_, seen| Some(seen.core_busy)),
    ("softirq_cores", "of that what is no process of the server's", |_, seen| {
        Some((seen.core_busy - seen.server_cores).max(0.0))
    }),
    ("threads", "threads of the server", |_, seen| Some(seen.threads as f64)),
    ("memory_mib", "memory of the server", |_, seen| Some(seen.memory_mib)),
    ("refaults_per_s", "pages of files read again soon after they were given up", |_, seen| {
        Some(seen.refaults_per_s)
    }),
    ("client_busy", "how busy the load generator was, of 1", |_, seen| {
        Some(seen.report.generator.busiest_thread)
    }),
    ("starved", "how long it waited for its core, of 1", |_, seen| {
        Some(seen.report.generator.starved)
    }),
];

/// Whether there is a figure of this name.
pub fn is_known(name: &str) -> bool {
    MEASURES.iter().any(|(known, ..)| *known == name)
}

/// The names of all figures.
pub fn names() -> Vec<&'static str> {
    MEASURES.iter().map(|(name, ..)| *name).collect()
}

/// A figure of a group; none where there is nothing.
pub fn of(name: &str, group: &GroupReport, seen: &LoadResult) -> Option<f64> {
    let (.., find) = MEASURES.iter().find(|(known, ..)| *known == name)?;
    find(group, seen)
}

/// The sum of a figure over groups, where that has a meaning: rates.
pub fn of_all(name: &str, seen: &LoadResult) -> Option<f64> {
    let groups = &seen.report.groups;
    match name.ends_with("_per_s") && !["mean_bit_per_s", "refaults_per_s"].contains(&name) {
        true => Some(groups.iter().filter_map(|group| of(name, group, seen)).sum()),
        false => {
            let is_of_server = [
                "server_cores",
                "core_busy",
                "softirq_cores",
                "threads",
                "memory_mib",
                "refaults_per_s",
            ];
            let first = groups.first().filter(|_| is_of_server.contains(&name))?;
            of(name, first, seen)
        }
    }
}

fn per_s(group: &GroupReport, count: f64) -> Option<f64> {
    (group.seconds > 0.0).then(|| count / group.seconds)
}

/// A time in ms, if there were answers.
fn time(group: &GroupReport, us: f64) -> Option<f64> {
    (group.latency.count > 0).then_some(us / 1e3)
}
