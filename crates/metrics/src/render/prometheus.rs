//! All figures in the text format of Prometheus.

use super::{Certificate, MetricSample, Snapshot, refusals, samples, status_name};
use crate::classes::{
    ClassLimits, ClassTotals, DELAY_BOUNDS_US, RefusalReason, RefusedAt, Unanswered,
};
use crate::text::{CLASSES, announce, buckets, escape, histogram, line, seconds};
use crate::{Activity, DurationTotals, firewall, gate, upstreams};

/// Writes the Prometheus text format 0.0.4 (`text/plain; version=0.0.4`).
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
    waiting(&mut text, snapshot);
    limits(&mut text, snapshot);
    rules(&mut text, snapshot);
    overrides(&mut text, snapshot);
    upstreams::metrics(&mut text, &snapshot.upstreams);
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

/// Writes the answers by status, and the durations of requests.
fn answers(text: &mut String, snapshot: &Snapshot) {
    let answers = snapshot.totals.answers();
    let metric = "forebay_status_responses_total";
    let help =
        "Answers to requests by their exact status; those without a number of their own are other.";
    announce(text, metric, help, "counter");
    for (status, count) in answers.statuses() {
        line(text, metric, &format!("status=\"{}\"", status_name(status)), &count.to_string());
    }
    if answers.durations.count() == 0 {
        return;
    }
    let metric = "forebay_request_duration_seconds";
    let help = "Requests by how long they took, from their whole head to the last byte of their answer; \
                with durations = true.";
    announce(text, metric, help, "histogram");
    histogram(text, metric, "", &answers.durations);
}

/// Writes the settings that an operator has changed.
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

/// Writes the counts of rules that have metrics.
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

/// Writes the metrics whose labels come from the configuration.
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
    let metric = "forebay_site_refused_total";
    announce(text, metric, "Requests that policy has refused, by site and reason.", "counter");
    for (name, totals) in &snapshot.sites {
        for reason in RefusalReason::ALL.into_iter().filter(|one| one.is_at(RefusedAt::Request)) {
            let count = totals.refused[reason as usize];
            if count > 0 {
                let labels = format!("site=\"{}\",reason=\"{}\"", escape(name), reason.as_str());
                line(text, metric, &labels, &count.to_string());
            }
        }
    }
    let times = snapshot.sites.iter().map(|(name, totals)| (name.as_str(), &totals.durations));
    let help = "Requests by how long they took, by site; with durations = true.";
    durations(text, ("forebay_site_request_duration_seconds", "site"), help, times);
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

/// A figure of a class: its metric, its help text, and how its value is found.
type ClassMetric = (&'static str, &'static str, fn(&ClassTotals) -> String);

const OF_CLASSES: [ClassMetric; 7] = [
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
    ("forebay_class_body_bytes_total", "Bytes of bodies sent, by class.", |class| {
        class.body_bytes.to_string()
    }),
    ("forebay_class_in_flight", "Requests that are admitted and not over, by class.", |class| {
        class.in_flight().to_string()
    }),
    (
        "forebay_class_worker_seconds_total",
        "Time of loops and helper threads with requests that were not refused, by class.",
        |class| seconds(class.worked_ns),
    ),
];

/// Writes the ledgers.
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
        let labels = format!("class=\"{}\"", escape(name));
        buckets(text, metric, &labels, &totals.delays, &DELAY_BOUNDS_US, totals.delay_ns);
    }
    let times = classes.iter().map(|(name, totals)| (name.as_str(), &totals.durations));
    let help = "Requests by how long they took, by class; with durations = true.";
    durations(text, ("forebay_class_request_duration_seconds", "class"), help, times);
}

/// Writes the durations of requests, for each of these names; nothing where they are not counted.
fn durations<'n>(
    text: &mut String,
    (metric, label): (&str, &str),
    help: &str,
    named: impl Iterator<Item = (&'n str, &'n DurationTotals)>,
) {
    let counted: Vec<_> = named.filter(|(_, durations)| durations.count() > 0).collect();
    if counted.is_empty() {
        return;
    }
    announce(text, metric, help, "histogram");
    for (name, durations) in counted {
        histogram(text, metric, &format!("{label}=\"{}\"", escape(name)), durations);
    }
}

/// A limit of a class: its metric, its help text, and how its value is found.
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

/// Writes the numbers of requests that wait for applications.
fn waiting(text: &mut String, snapshot: &Snapshot) {
    if snapshot.waiting.is_empty() {
        return;
    }
    let metric = "forebay_class_upstream_waiting";
    announce(text, metric, "Requests that wait for an application, by class.", "gauge");
    for (name, waiting) in &snapshot.waiting {
        line(text, metric, &format!("class=\"{}\"", escape(name)), &waiting.to_string());
    }
}

/// Writes the agent's limits.
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
