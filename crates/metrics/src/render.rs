//! All figures as Prometheus text and as JSON. Both follow the schema: a new counter, gauge or activity
//! appears in both by itself.

mod json;
mod prometheus;

use crate::classes::{ClassLimits, ClassTotals, RefusalReason, RefusedAt};
use crate::{Counter, FirewallFigures, GateFigures, Gauge, SiteTotals, Totals, UpstreamRow};
pub use json::json;
pub use prometheus::prometheus;

/// The figures of a server at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The sum over all loops and helpers.
    pub totals: Totals,
    /// The gauges, which rise and fall.
    pub gauges: Vec<(Gauge, u64)>,
    /// Facts about the server.
    pub info: Info,
    /// The counts of each site; see [`SiteNames::rows`](crate::SiteNames::rows).
    pub sites: Vec<(String, SiteTotals)>,
    /// The ledger of each class, where there is a policy; see
    /// [`ClassNames::rows`](crate::ClassNames::rows).
    pub classes: Vec<(String, ClassTotals)>,
    /// The agent's limits on each class, where there is an agent.
    pub limits: Vec<(String, ClassLimits)>,
    /// Requests that wait for applications, by class.
    pub waiting: Vec<(String, u64)>,
    /// The upstreams of applications.
    pub upstreams: Vec<UpstreamRow>,
    /// The counts of each rule that has metrics of its own.
    pub rules: Vec<(String, RuleTotals)>,
    /// The counts of the kernel, where rules judge there.
    pub gate: Option<GateFigures>,
    /// The figures of the firewall, where clients are reported to it.
    pub firewall: Option<FirewallFigures>,
    /// Lines dropped, for each access log.
    pub logs: Vec<(String, u64)>,
    /// The certificates of sites.
    pub certificates: Vec<Certificate>,
    /// Settings that an operator has changed since the file was read, and whether the changes outlast a
    /// reload.
    pub overrides: Vec<(String, bool)>,
}

/// The counts of a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RuleTotals {
    /// Connections and requests about which the rule has decided something.
    pub matched: u64,
    /// Connections and requests that the rule has refused.
    pub refused: u64,
    /// The rate of requests to which the rule has been moved, per second; `None` if it cannot be moved.
    pub rate_per_s: Option<f64>,
}

/// A certificate of a site.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Certificate {
    /// The site that has the certificate.
    pub site: String,
    /// The file, which distinguishes it from other certificates of the site.
    pub name: String,
    /// When it expires, in seconds since 1970.
    pub expiry_s: i64,
}

/// Facts about a server: the labels of `forebay_info`.
#[derive(Clone, Debug, Default)]
pub struct Info {
    /// The version of the program.
    pub version: String,
    /// The commit it was built from.
    pub revision: String,
    /// The engine, or the engines of its listeners.
    pub engine: String,
    /// The number of workers of each engine.
    pub workers: String,
}

impl Info {
    /// The names and values of the facts.
    fn facts(&self) -> [(&'static str, &str); 4] {
        let Info { version, revision, engine, workers } = self;
        [("version", version), ("revision", revision), ("engine", engine), ("workers", workers)]
    }
}

/// One value of a metric, with the labels that distinguish it.
struct MetricSample {
    metric: &'static str,
    labels: &'static str,
    help: &'static str,
    value: u64,
}

/// The counters, then the given gauges, in the order of the schema, with the values of one metric together.
fn samples(snapshot: &Snapshot) -> Vec<MetricSample> {
    let counters = Counter::ALL.iter().map(|counter| MetricSample {
        metric: counter.metric(),
        labels: counter.labels(),
        help: counter.help(),
        value: snapshot.totals.get(*counter),
    });
    let gauges = snapshot.gauges.iter().map(|(gauge, value)| MetricSample {
        metric: gauge.metric(),
        labels: gauge.labels(),
        help: gauge.help(),
        value: *value,
    });
    counters.chain(gauges).collect()
}

fn status_name(status: u16) -> String {
    if status == 0 { "other".to_owned() } else { status.to_string() }
}

/// How often a class was refused, for each possible point and reason.
fn refusals(totals: &ClassTotals) -> impl Iterator<Item = (RefusedAt, RefusalReason, u64)> {
    let refused = totals.refused;
    RefusedAt::ALL.into_iter().flat_map(move |place| {
        RefusalReason::ALL
            .into_iter()
            .filter(move |reason| reason.is_at(place))
            .map(move |reason| (place, reason, refused[place as usize][reason as usize]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Activity, GateClass, GateRule};
    use crate::{
        ClassEvent, ClassNames, Local, SiteNames, SiteSlot, UpstreamCounts, UpstreamState,
    };

    /// A text with `\`, `"`, a line end and a tab, for each place where text from outside may stand.
    const ODD: &str = "o\"d\\d\n\t";

    fn upstream(name: &str) -> UpstreamRow {
        let counts = UpstreamCounts::default();
        counts.answered(200, 3_000_000);
        counts.connected(200_000);
        counts.failed();
        UpstreamRow {
            site: ODD.to_owned(),
            route: "proxy /a".to_owned(),
            upstream: name.to_owned(),
            state: UpstreamState::LeftAlone,
            for_s: Some(9),
            in_flight: 3,
            most: Some(8),
            waiting: 2,
            totals: counts.totals(),
        }
    }

    fn counted() -> Snapshot {
        let local = Local::default();
        for (at, counter) in Counter::ALL.iter().enumerate() {
            local.add(*counter, 100 + at as u64);
        }
        local.time(Activity::Read, 1500);
        local.time(Activity::Read, 1000);
        local.time(Activity::Send, 7_500_000_001);
        let gauges = Gauge::ALL.iter().enumerate().map(|(at, gauge)| (*gauge, at as u64));
        let mut names = SiteNames::default();
        let slots = names.assign(&["shop.example", ODD], &Totals::default());
        for (at, slot) in slots.into_iter().chain([SiteSlot::NONE]).enumerate() {
            local.answered(slot, 200);
            local.answered(slot, 404);
            local.sent(slot, None, at as u64, Some(3_000_000));
            local.refused_of(slot, RefusalReason::Queue);
        }
        let mut class_names = ClassNames::default();
        let slots = class_names.assign(&["gold", ODD], &Totals::default());
        for event in [ClassEvent::Connection, ClassEvent::Offered, ClassEvent::Answered] {
            local.enter(slots[0], event);
        }
        for (place, reason) in [
            (RefusedAt::Accept, RefusalReason::Ignored),
            (RefusedAt::Request, RefusalReason::Agent),
        ] {
            local.enter(slots[1], ClassEvent::Refused(place, reason));
        }
        local.waited(slots[1], 3_000_000);
        local.sent(SiteSlot::OTHER, Some(slots[1]), 70, Some(3_000_000));
        local.worked(slots[0], 2_500_000_000);
        let totals = Totals::of([&local]);
        Snapshot {
            sites: names.rows(&totals),
            classes: class_names.rows(&totals),
            totals,
            gauges: gauges.collect(),
            info: Info {
                version: "0.1.0".to_owned(),
                revision: "abcdef012345".to_owned(),
                engine: ODD.to_owned(),
                workers: "4".to_owned(),
            },
            limits: vec![
                ("gold".to_owned(), ClassLimits::default()),
                (
                    ODD.to_owned(),
                    ClassLimits {
                        unfinished_jobs: 3,
                        window_jobs: Some(4),
                        connections_per_s: Some(250),
                    },
                ),
            ],
            rules: vec![(
                ODD.to_owned(),
                RuleTotals { matched: 7, refused: 3, rate_per_s: Some(12.5) },
            )],
            gate: Some(GateFigures {
                rung: "full",
                answers: true,
                answered: 9,
                time_wait: 2,
                first: vec![("of_class", 7), ("unjudged", 1)],
                by_rank: vec![4, 3],
                judges_requests: true,
                requests: vec![("charged", 3), ("answered", 2)],
                behind: vec![("acknowledged", 2)],
                answers_requests: true,
                served: vec![("ok", 6), ("left_unknown", 5)],
                behind_served: vec![("adopted", 1)],
                damaged: 1,
                held: vec![("bare", 8)],
                interfaces: 2,
                syns: vec![("passed", 5), ("dropped", 6)],
                handshakes: vec![("charged", 4)],
                unread: vec![("fragment", 1)],
                rules: vec![GateRule {
                    name: ODD.to_owned(),
                    admitted: 5,
                    dropped: 6,
                    reset: 0,
                    answered: 2,
                }],
                classes: vec![GateClass { name: ODD.to_owned(), admitted: 8, dropped: 9 }],
            }),
            firewall: Some(FirewallFigures {
                table: "forebay".to_owned(),
                is_in_force: true,
                clients: 2,
                most: 10,
                listed: 3,
                told: 4,
                left_full: 5,
                left_busy: 6,
                dropped_clients: 7,
                dropped_listed: 8,
            }),
            waiting: vec![("gold".to_owned(), 0), (ODD.to_owned(), 7)],
            upstreams: vec![upstream("10.0.0.1:80"), upstream(ODD)],
            logs: vec![("/var/log/a".to_owned(), 0), (ODD.to_owned(), 7)],
            certificates: vec![
                Certificate {
                    site: "shop.example".to_owned(),
                    name: "/etc/a.pem".to_owned(),
                    expiry_s: 1_900_000_000,
                },
                Certificate { site: ODD.to_owned(), name: ODD.to_owned(), expiry_s: -1 },
            ],
            overrides: vec![("gold.delay".to_owned(), false), (ODD.to_owned(), true)],
        }
    }

    /// Compares with the file `name`. `UPDATE_GOLDEN=1` writes the file instead; read the difference before
    /// you commit it.
    fn assert_golden(name: &str, text: &str) {
        let path = format!("{}/tests/golden/{name}", env!("CARGO_MANIFEST_DIR"));
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&path, text).unwrap();
        }
        assert_eq!(text, std::fs::read_to_string(&path).unwrap(), "{path}");
    }

    #[test]
    fn prometheus_text() {
        assert_golden("metrics.txt", &prometheus(&counted()));
    }

    #[test]
    fn status_json() {
        assert_golden("status.json", &json(&counted()));
    }

    #[test]
    fn each_metric_is_announced_once_and_before_its_values() {
        let text = prometheus(&counted());
        let mut announced = Vec::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let metric = rest.split(' ').next().unwrap();
                assert!(!announced.contains(&metric), "{metric} is announced twice");
                announced.push(metric);
            } else if !line.starts_with('#') {
                let last = announced.last().unwrap();
                assert!(line.starts_with(last), "{line} stands under {last}");
            }
        }
    }

    /// The dashboard and the alert rules use only names of metrics that exist.
    #[test]
    fn the_packaged_queries_name_metrics_that_there_are() {
        let text = prometheus(&counted());
        let announced: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
            .collect();
        for file in ["prometheus/forebay.rules.yml", "grafana/forebay.json"] {
            let path = format!("{}/../../packaging/{file}", env!("CARGO_MANIFEST_DIR"));
            let queries = std::fs::read_to_string(path).unwrap();
            let words = queries.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            let names = words.filter(|word| word.starts_with("forebay_"));
            let mut count = 0;
            for name in names {
                let base = name.strip_suffix("_bucket").unwrap_or(name);
                assert!(announced.contains(&base), "{file}: {name}");
                count += 1;
            }
            assert!(count > 10, "{file}");
        }
    }

    #[test]
    fn nothing_measured_is_not_a_number() {
        let text = json(&Snapshot::default());
        assert!(text.contains("\"accept\":{\"samples\":0,\"mean_us\":null,\"share\":0.0000}"));
    }
}
