//! What was counted, in the text format of Prometheus.

use super::{CLASSES, Certificate, MetricSample, Snapshot, refusals, samples, status_name};
use crate::classes::{ClassLimits, ClassTotals, DELAY_BOUNDS_US, Unanswered};
use crate::statuses::DURATION_BOUNDS_US;
use crate::text::{announce, escape, line};
use crate::{Activity, firewall, gate};

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
    for MetricSample { metric, labels, help, value } in samples(snapshot) {
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
    overrides(&mut text, snapshot);
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

/// Settings that an operator has changed.
fn overrides(text: &mut String, snapshot: &Snapshot) {
    if snapshot.overrides.is_empty() {
        return;
    }
    let metric = "forebay_policy_override";
    let help = "Settings that forebay policy set has changed, and whether they are kept through reloads: 1 each.";
    announce(text, metric, help, "gauge");
    for (setting, is_kept) in &snapshot.overrides {
        let labels = format!("setting=\"{}\",kept=\"{is_kept}\"", escape(setting));
        line(text, metric, &labels, "1");
    }
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
type ClassMetric = (&'static str, &'static str, fn(&ClassTotals) -> String);

const OF_CLASSES: [ClassMetric; 6] = [
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

fn seconds(ns: u64) -> String {
    format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)
}
