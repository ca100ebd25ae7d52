//! What was counted, as Prometheus text and as JSON. Both follow the schema: a new counter, gauge
//! or activity appears in both by itself.

use crate::classes::{
    ClassLimits, ClassTotals, DELAY_BOUNDS_US, RefusalReason, RefusedAt, Unanswered,
};
use crate::firewall::{self, FirewallFigures};
use crate::gate::{self, GateFigures};
use crate::statuses::DURATION_BOUNDS_US;
use crate::{Activity, Counter, Gauge, SiteTotals, Totals};
use std::fmt::Write;

/// What a server counted, at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The sum over all loops and helpers.
    pub totals: Totals,
    /// What rises and falls.
    pub gauges: Vec<(Gauge, u64)>,
    /// Facts about the server.
    pub info: Info,
    /// What was counted for each site; see [`SiteNames::rows`](crate::SiteNames::rows).
    pub sites: Vec<(String, SiteTotals)>,
    /// The ledger of each class, where there is a policy; see
    /// [`ClassNames::rows`](crate::ClassNames::rows).
    pub classes: Vec<(String, ClassTotals)>,
    /// What the agent limits each class to, where it is asked.
    pub limits: Vec<(String, ClassLimits)>,
    /// What was counted for each rule that has metrics of its own.
    pub rules: Vec<(String, RuleTotals)>,
    /// What the kernel has counted, where rules judge there.
    pub gate: Option<GateFigures>,
    /// What the firewall does, where it is told of clients.
    pub firewall: Option<FirewallFigures>,
    /// Lines dropped, for each access log.
    pub logs: Vec<(String, u64)>,
    /// The certificates of sites.
    pub certificates: Vec<Certificate>,
}

/// What has come of a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RuleTotals {
    /// Connections and requests that it has decided something about.
    pub matched: u64,
    /// Those that it has refused.
    pub refused: u64,
    /// What its rate of requests has been moved to, per second; `None` if it cannot be moved.
    pub rate_per_s: Option<f64>,
}

/// A certificate of a site.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Certificate {
    /// The site.
    pub site: String,
    /// What tells it from others of that site: its file.
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
    /// Its engine, or those of its listeners.
    pub engine: String,
    /// How many workers that has.
    pub workers: String,
}

impl Info {
    /// Names and values.
    fn facts(&self) -> [(&'static str, &str); 4] {
        let Info { version, revision, engine, workers } = self;
        [("version", version), ("revision", revision), ("engine", engine), ("workers", workers)]
    }
}

/// The status classes, as labels.
const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// One value of a metric, with the labels that tell it from the metric's other values.
struct Sample {
    metric: &'static str,
    labels: &'static str,
    help: &'static str,
    value: u64,
}

/// Counters, then the given gauges, in the order of the schema: those of one metric together.
fn samples(snapshot: &Snapshot) -> Vec<Sample> {
    let counters = Counter::ALL.iter().map(|counter| Sample {
        metric: counter.metric(),
        labels: counter.labels(),
        help: counter.help(),
        value: snapshot.totals.get(*counter),
    });
    let gauges = snapshot.gauges.iter().map(|(gauge, value)| Sample {
        metric: gauge.metric(),
        labels: gauge.labels(),
        help: gauge.help(),
        value: *value,
    });
    counters.chain(gauges).collect()
}

/// The Prometheus text format 0.0.4 (`text/plain; version=0.0.4`).
///
/// The facts become the labels of `forebay_info`. Activities are summaries in seconds, without
/// quantiles.
pub fn prometheus(snapshot: &Snapshot) -> String {
    let mut text = String::with_capacity(16 * 1024);
    let labels = snapshot.info.facts().map(|(name, value)| format!("{name}=\"{}\"", escape(value)));
    announce(&mut text, "forebay_info", "Facts about this server, as labels.", "gauge");
    line(&mut text, "forebay_info", &labels.join(","), "1");
    let mut previous = "";
    for Sample { metric, labels, help, value } in samples(snapshot) {
        if metric != previous {
            let kind = if metric.ends_with("_total") { "counter" } else { "gauge" };
            announce(&mut text, metric, help, kind);
            previous = metric;
        }
        line(&mut text, metric, labels, &value.to_string());
    }
    answers(&mut text, snapshot);
    sites(&mut text, snapshot);
    classes(&mut text, snapshot);
    limits(&mut text, snapshot);
    rules(&mut text, snapshot);
    if let Some(figures) = &snapshot.gate {
        gate::metrics(&mut text, figures);
    }
    if let Some(figures) = &snapshot.firewall {
        firewall::metrics(&mut text, figures);
    }
    for activity in Activity::ALL {
        let (metric, labels) = (activity.metric(), activity.labels());
        if metric != previous {
            announce(&mut text, metric, activity.help(), "summary");
            previous = metric;
        }
        let (samples, total_ns) = snapshot.totals.activity(*activity);
        line(&mut text, &format!("{metric}_sum"), labels, &seconds(total_ns));
        line(&mut text, &format!("{metric}_count"), labels, &samples.to_string());
    }
    text
}

/// Answers by status, and how long requests took.
fn answers(text: &mut String, snapshot: &Snapshot) {
    let answers = snapshot.totals.answers();
    let metric = "forebay_status_responses_total";
    let help =
        "Answers to requests by their exact status; those without a number of their own are other.";
    announce(text, metric, help, "counter");
    for (status, count) in answers.statuses() {
        line(text, metric, &format!("status=\"{}\"", status_name(status)), &count.to_string());
    }
    let all: u64 = answers.durations.iter().sum();
    if all == 0 {
        return;
    }
    let metric = "forebay_request_duration_seconds";
    let help = "Requests by how long they took, from their whole head to the last byte of their answer; \
                with durations = true.";
    announce(text, metric, help, "histogram");
    let mut sum = 0;
    for (count, bound_us) in answers.durations.iter().zip(DURATION_BOUNDS_US) {
        sum += count;
        let labels = format!("le=\"{}\"", bound_us as f64 / 1e6);
        line(text, &format!("{metric}_bucket"), &labels, &sum.to_string());
    }
    line(text, &format!("{metric}_bucket"), "le=\"+Inf\"", &all.to_string());
    line(text, &format!("{metric}_sum"), "", &seconds(answers.duration_ns));
    line(text, &format!("{metric}_count"), "", &all.to_string());
}

fn status_name(status: u16) -> String {
    if status == 0 { "other".to_owned() } else { status.to_string() }
}

/// What has come of rules that have metrics.
fn rules(text: &mut String, snapshot: &Snapshot) {
    if snapshot.rules.is_empty() {
        return;
    }
    let metric = "forebay_rule_matches_total";
    let help =
        "Connections and requests that a rule with metric = true has decided something about.";
    announce(text, metric, help, "counter");
    for (name, totals) in &snapshot.rules {
        line(text, metric, &format!("rule=\"{}\"", escape(name)), &totals.matched.to_string());
    }
    let metric = "forebay_rule_refused_total";
    let help = "Connections and requests that a rule with metric = true has refused.";
    announce(text, metric, help, "counter");
    for (name, totals) in &snapshot.rules {
        line(text, metric, &format!("rule=\"{}\"", escape(name)), &totals.refused.to_string());
    }
    let moved = snapshot.rules.iter().filter_map(|(name, totals)| Some((name, totals.rate_per_s?)));
    let metric = "forebay_rule_rate_requests_per_second";
    let help = "What the agent has moved the rate of a rule with metric = true to.";
    for (number, (name, per_s)) in moved.enumerate() {
        if number == 0 {
            announce(text, metric, help, "gauge");
        }
        line(text, metric, &format!("rule=\"{}\"", escape(name)), &format!("{per_s:.3}"));
    }
}

/// The metrics whose labels come from the configuration.
fn sites(text: &mut String, snapshot: &Snapshot) {
    let metric = "forebay_site_responses_total";
    announce(text, metric, "Responses by site and status class.", "counter");
    for (name, totals) in &snapshot.sites {
        for (class, count) in CLASSES.iter().zip(totals.responses) {
            let labels = format!("site=\"{}\",class=\"{class}\"", escape(name));
            line(text, metric, &labels, &count.to_string());
        }
    }
    let metric = "forebay_site_body_bytes_total";
    announce(text, metric, "Bytes of bodies sent, by site.", "counter");
    for (name, totals) in &snapshot.sites {
        let labels = format!("site=\"{}\"", escape(name));
        line(text, metric, &labels, &totals.body_bytes.to_string());
    }
    let metric = "forebay_log_file_dropped_lines_total";
    announce(text, metric, "Access log lines dropped, by the log they were for.", "counter");
    for (name, dropped) in &snapshot.logs {
        line(text, metric, &format!("log=\"{}\"", escape(name)), &dropped.to_string());
    }
    if snapshot.certificates.is_empty() {
        return;
    }
    let metric = "forebay_certificate_expiry_timestamp_seconds";
    let help = "When certificates expire, in seconds since 1970, by site and file; of very many, those \
                that expire first.";
    announce(text, metric, help, "gauge");
    for Certificate { site, name, expiry_s } in &snapshot.certificates {
        let labels = format!("site=\"{}\",certificate=\"{}\"", escape(site), escape(name));
        line(text, metric, &labels, &expiry_s.to_string());
    }
}

/// A number of a class: its metric, what it says, and how it is found.
type OfClass = (&'static str, &'static str, fn(&ClassTotals) -> String);

const OF_CLASSES: [OfClass; 6] = [
    ("forebay_class_connections_total", "Connections that came, by class.", |class| {
        class.connections.to_string()
    }),
    (
        "forebay_class_requests_total",
        "Requests that came, by class: answered, cut, refused or in flight.",
        |class| class.offered.to_string(),
    ),
    ("forebay_class_answered_total", "Requests whose answer was sent, by class.", |class| {
        class.answered.to_string()
    }),
    (
        "forebay_class_cut_total",
        "Admitted requests whose connection ended before their answer was sent, by class.",
        |class| class.cut.to_string(),
    ),
    ("forebay_class_in_flight", "Requests that are admitted and not over, by class.", |class| {
        class.in_flight().to_string()
    }),
    (
        "forebay_class_worker_seconds_total",
        "Time of loops and helper threads with requests that were not refused, by class.",
        |class| seconds(class.worked_ns),
    ),
];

/// The ledger.
fn classes(text: &mut String, snapshot: &Snapshot) {
    let classes = &snapshot.classes;
    if classes.is_empty() {
        return;
    }
    for (metric, help, value) in OF_CLASSES {
        let kind = if metric.ends_with("_total") { "counter" } else { "gauge" };
        announce(text, metric, help, kind);
        for (name, totals) in classes {
            line(text, metric, &format!("class=\"{}\"", escape(name)), &value(totals));
        }
    }
    let metric = "forebay_class_refused_total";
    let help = "Connections (place accept) and requests refused, by class, place and reason.";
    announce(text, metric, help, "counter");
    for (name, totals) in classes {
        for (place, reason, count) in refusals(totals) {
            let labels = format!(
                "class=\"{}\",place=\"{}\",reason=\"{}\"",
                escape(name),
                place.as_str(),
                reason.as_str()
            );
            line(text, metric, &labels, &count.to_string());
        }
    }
    let metric = "forebay_class_unanswered_total";
    let help = "Requests that an application was to answer and has not, by class and by the status that \
                was answered in its place; they are answered or refused as well.";
    announce(text, metric, help, "counter");
    for (name, totals) in classes {
        for (what, count) in Unanswered::ALL.iter().zip(totals.unanswered) {
            let labels = format!("class=\"{}\",status=\"{}\"", escape(name), what.as_str());
            line(text, metric, &labels, &count.to_string());
        }
    }
    let metric = "forebay_class_delay_seconds";
    let help = "Waits of requests for their loop, and of each of their jobs for a helper thread, in \
                one count, by class.";
    announce(text, metric, help, "histogram");
    for (name, totals) in classes {
        let name = escape(name);
        let mut sum = 0;
        for (count, bound_us) in totals.delays.iter().zip(DELAY_BOUNDS_US) {
            sum += count;
            let bound = bound_us as f64 / 1e6;
            let labels = format!("class=\"{name}\",le=\"{bound}\"");
            line(text, &format!("{metric}_bucket"), &labels, &sum.to_string());
        }
        let waits = totals.waits();
        let labels = format!("class=\"{name}\",le=\"+Inf\"");
        line(text, &format!("{metric}_bucket"), &labels, &waits.to_string());
        let labels = format!("class=\"{name}\"");
        line(text, &format!("{metric}_sum"), &labels, &seconds(totals.delay_ns));
        line(text, &format!("{metric}_count"), &labels, &waits.to_string());
    }
}

/// A limit of a class: its metric, what it says, and how it is found.
type OfLimits = (&'static str, &'static str, fn(&ClassLimits) -> Option<u64>);

const OF_LIMITS: [OfLimits; 3] = [
    (
        "forebay_class_unfinished_jobs",
        "Jobs that compute, admitted and not done, by class.",
        |limits| Some(limits.unfinished_jobs),
    ),
    (
        "forebay_class_window_jobs",
        "How many of those the agent allows, by class; missing if that is not limited.",
        |limits| limits.window_jobs,
    ),
    (
        "forebay_class_limit_connections_per_second",
        "How many connections per second the agent allows, by class; missing if that is not limited.",
        |limits| limits.connections_per_s,
    ),
];

/// What the agent does.
fn limits(text: &mut String, snapshot: &Snapshot) {
    if snapshot.limits.is_empty() {
        return;
    }
    for (metric, help, value) in OF_LIMITS {
        announce(text, metric, help, "gauge");
        for (name, limits) in &snapshot.limits {
            if let Some(value) = value(limits) {
                let labels = format!("class=\"{}\"", escape(name));
                line(text, metric, &labels, &value.to_string());
            }
        }
    }
}

/// How often each class was refused where and why, as far as that can be.
fn refusals(totals: &ClassTotals) -> impl Iterator<Item = (RefusedAt, RefusalReason, u64)> {
    let refused = totals.refused;
    RefusedAt::ALL.into_iter().flat_map(move |place| {
        RefusalReason::ALL
            .into_iter()
            .filter(move |reason| reason.is_at(place))
            .map(move |reason| (place, reason, refused[place as usize][reason as usize]))
    })
}

pub(crate) fn announce(text: &mut String, metric: &str, help: &str, kind: &str) {
    let _ = write!(text, "# HELP {metric} {help}\n# TYPE {metric} {kind}\n");
}

pub(crate) fn line(text: &mut String, metric: &str, labels: &str, value: &str) {
    let (open, close) = if labels.is_empty() { ("", "") } else { ("{", "}") };
    let _ = writeln!(text, "{metric}{open}{labels}{close} {value}");
}

fn seconds(ns: u64) -> String {
    format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)
}

/// A JSON object for people and scripts.
///
/// The facts come first, then each metric under its name without `forebay_` and `_total`: a number,
/// or an object with a number for each label value (`process.grew` where there are two labels). `certificates` is a list. `sites` has an object for each site; `logs` a
/// number of dropped lines for each access log; `classes` the ledger of each class, `limits` what the agent limits each to (`null` for
/// no limit), `rules` what has come of those with metrics of their own, `statuses` how many answers had
/// each. `activities` says for each activity how often it
/// was timed, its mean in µs (`null` if never), and its share of all time measured, from 0 to 1.
pub fn json(snapshot: &Snapshot) -> String {
    let mut text = String::with_capacity(8 * 1024);
    text.push('{');
    for (name, value) in snapshot.info.facts() {
        let _ = write!(text, "\"{name}\":\"{}\",", escape(value));
    }
    let samples = samples(snapshot);
    for metric in samples.chunk_by(|a, b| a.metric == b.metric) {
        let name = metric[0].metric;
        let name = name.strip_prefix("forebay_").unwrap_or(name);
        let name = name.strip_suffix("_total").unwrap_or(name);
        if metric[0].labels.is_empty() {
            let _ = write!(text, "\"{name}\":{},", metric[0].value);
        } else {
            let values = metric.iter().map(|s| (label(s.labels), s.value));
            let _ = write!(text, "\"{name}\":{},", object(values));
        }
    }
    let site = |(name, totals): &(String, SiteTotals)| {
        let responses = object(CLASSES.into_iter().zip(totals.responses));
        let bytes = totals.body_bytes;
        format!("\"{}\":{{\"responses\":{responses},\"body_bytes\":{bytes}}}", escape(name))
    };
    let sites: Vec<String> = snapshot.sites.iter().map(site).collect();
    let class = |(name, totals): &(String, ClassTotals)| {
        format!("\"{}\":{}", escape(name), class_json(totals))
    };
    let classes: Vec<String> = snapshot.classes.iter().map(class).collect();
    let limits = |(name, limits): &(String, ClassLimits)| {
        let number = |number: Option<u64>| number.map_or("null".to_owned(), |n| n.to_string());
        format!(
            "\"{}\":{{\"unfinished_jobs\":{},\"window_jobs\":{},\"connections_per_second\":{}}}",
            escape(name),
            limits.unfinished_jobs,
            number(limits.window_jobs),
            number(limits.connections_per_s),
        )
    };
    let limits: Vec<String> = snapshot.limits.iter().map(limits).collect();
    let logs = object(snapshot.logs.iter().map(|(name, dropped)| (name.as_str(), *dropped)));
    let _ = write!(text, "\"sites\":{{{}}},\"logs\":{logs},", sites.join(","));
    let certificate = |Certificate { site, name, expiry_s }: &Certificate| {
        format!(
            "{{\"site\":\"{}\",\"certificate\":\"{}\",\"expiry_timestamp_seconds\":{expiry_s}}}",
            escape(site),
            escape(name)
        )
    };
    let certificates: Vec<String> = snapshot.certificates.iter().map(certificate).collect();
    let _ = write!(text, "\"certificates\":[{}],", certificates.join(","));
    let _ = write!(text, "\"classes\":{{{}}},", classes.join(","));
    let _ = write!(text, "\"limits\":{{{}}},", limits.join(","));
    let rule = |(name, totals): &(String, RuleTotals)| {
        let RuleTotals { matched, refused, rate_per_s } = totals;
        let rate = rate_per_s.map(|rate| format!(",\"rate_per_s\":{rate:.3}")).unwrap_or_default();
        format!("\"{}\":{{\"matched\":{matched},\"refused\":{refused}{rate}}}", escape(name))
    };
    let rules: Vec<String> = snapshot.rules.iter().map(rule).collect();
    let _ = write!(text, "\"rules\":{{{}}},", rules.join(","));
    let statuses = snapshot.totals.answers().statuses();
    let statuses = object(statuses.map(|(status, count)| (status_name(status), count)));
    let _ = write!(text, "\"statuses\":{statuses},");
    if let Some(figures) = &snapshot.gate {
        gate::json(&mut text, figures);
    }
    if let Some(figures) = &snapshot.firewall {
        firewall::json(&mut text, figures);
    }
    let _ = write!(text, "\"activities\":{{{}}}}}", activities(&snapshot.totals));
    text.push('\n');
    text
}

fn class_json(totals: &ClassTotals) -> String {
    let refused = refusals(totals).filter(|(.., count)| *count > 0);
    let refused = refused
        .map(|(place, reason, count)| (format!("{}.{}", place.as_str(), reason.as_str()), count));
    let unanswered = Unanswered::ALL.iter().zip(totals.unanswered);
    let unanswered =
        unanswered.filter(|(_, count)| *count > 0).map(|(what, count)| (what.as_str(), count));
    let mean_us = match totals.waits() {
        0 => "null".to_owned(),
        waits => format!("{:.1}", totals.delay_ns as f64 / waits as f64 / 1000.0),
    };
    format!(
        "{{\"connections\":{},\"requests\":{},\"answered\":{},\"cut\":{},\"in_flight\":{},\
         \"refused\":{},\"unanswered\":{},\"delay_mean_us\":{mean_us},\"worker_ms\":{}}}",
        totals.connections,
        totals.offered,
        totals.answered,
        totals.cut,
        totals.in_flight(),
        object(refused),
        object(unanswered),
        totals.worked_ns / 1_000_000,
    )
}

/// A JSON object of numbers.
pub(crate) fn object(members: impl Iterator<Item = (impl AsRef<str>, u64)>) -> String {
    let one = |(name, value): (_, u64)| format!("\"{}\":{value}", escape(AsRef::as_ref(&name)));
    format!("{{{}}}", members.map(one).collect::<Vec<_>>().join(","))
}

fn activities(totals: &Totals) -> String {
    let all_ns: u64 = Activity::ALL.iter().map(|activity| totals.activity(*activity).1).sum();
    let one = |activity: &Activity| {
        let (samples, total_ns) = totals.activity(*activity);
        let mean_us = match samples {
            0 => "null".to_owned(),
            _ => format!("{:.3}", total_ns as f64 / samples as f64 / 1000.0),
        };
        let share = total_ns as f64 / all_ns.max(1) as f64;
        format!(
            "\"{}\":{{\"samples\":{samples},\"mean_us\":{mean_us},\"share\":{share:.4}}}",
            label(activity.labels())
        )
    };
    Activity::ALL.iter().map(one).collect::<Vec<_>>().join(",")
}

/// The value in `name="value"`; those of several labels with dots between them.
fn label(labels: &str) -> String {
    let values: Vec<&str> = labels.split('"').skip(1).step_by(2).collect();
    values.join(".")
}

/// `\`, `"` and line ends as both formats write them; other control characters, which JSON does
/// not allow, become spaces.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' | '"' => escaped.extend(['\\', c]),
            '\n' => escaped.push_str("\\n"),
            c if c.is_control() => escaped.push(' '),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::GateRule;
    use crate::{ClassEvent, ClassNames, Local, SiteNames, SiteSlot};

    /// `\`, `"`, a line end and a tab in each place where a text from outside may stand.
    const ODD: &str = "o\"d\\d\n\t";

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
            local.sent_body(slot, at as u64);
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
        local.took(3_000_000);
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
                held: vec![("bare", 8)],
                interfaces: 2,
                syns: vec![("passed", 5), ("dropped", 6)],
                handshakes: vec![("charged", 4)],
                unread: vec![("fragment", 1)],
                rules: vec![GateRule { name: ODD.to_owned(), admitted: 5, dropped: 6, reset: 0 }],
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
            logs: vec![("/var/log/a".to_owned(), 0), (ODD.to_owned(), 7)],
            certificates: vec![
                Certificate {
                    site: "shop.example".to_owned(),
                    name: "/etc/a.pem".to_owned(),
                    expiry_s: 1_900_000_000,
                },
                Certificate { site: ODD.to_owned(), name: ODD.to_owned(), expiry_s: -1 },
            ],
        }
    }

    /// `UPDATE_GOLDEN=1` writes what came out; read the difference before it is committed.
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

    #[test]
    fn nothing_measured_is_not_a_number() {
        let text = json(&Snapshot::default());
        assert!(text.contains("\"accept\":{\"samples\":0,\"mean_us\":null,\"share\":0.0000}"));
    }
}
