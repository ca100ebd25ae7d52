//! All figures as JSON.

use super::{Certificate, RuleTotals, Snapshot, refusals, samples, status_name};
use crate::classes::{ClassLimits, ClassTotals, RefusalReason, Unanswered};
use crate::text::{CLASSES, durations, escape, object};
use crate::{Activity, SiteTotals, Totals, firewall, gate, upstreams};
use std::fmt::Write;

/// A JSON object for operators and scripts.
///
/// The facts come first, then each metric under its name without `forebay_` and `_total`: a number, or an
/// object with a number for each label value (`process.grew` where there are two labels). `certificates` and
/// `overrides` are lists. `sites` has an object for each site; `logs` a number of dropped lines for each
/// access log; `classes` the ledger of each class; `limits` the agent's limits on each class (`null` for no
/// limit); `rules` the counts of rules with metrics of their own; `statuses` the number of answers with each
/// status; `upstreams` a list with the requests to applications; `class_upstream_waiting` how many requests
/// of each class wait for applications. `activities` has for each activity how often it was timed, its mean
/// in µs (`null` if never), and its share of all time measured, from 0 to 1.
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
        let SiteTotals { body_bytes, refused, durations: took, .. } = totals;
        let refused = RefusalReason::ALL.into_iter().zip(*refused).filter(|(_, count)| *count > 0);
        let refused = object(refused.map(|(reason, count)| (reason.as_str(), count)));
        format!(
            "\"{}\":{{\"responses\":{responses},\"body_bytes\":{body_bytes},\"refused\":{refused},\
             \"durations\":{}}}",
            escape(name),
            durations(took)
        )
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
    let set = |(setting, is_kept): &(String, bool)| {
        format!("{{\"setting\":\"{}\",\"kept\":{is_kept}}}", escape(setting))
    };
    let overrides: Vec<String> = snapshot.overrides.iter().map(set).collect();
    let _ = write!(text, "\"overrides\":[{}],", overrides.join(","));
    let statuses = snapshot.totals.answers().statuses();
    let statuses = object(statuses.map(|(status, count)| (status_name(status), count)));
    let _ = write!(text, "\"statuses\":{statuses},");
    let waiting = object(snapshot.waiting.iter().map(|(name, count)| (name.as_str(), *count)));
    let _ = write!(text, "\"class_upstream_waiting\":{waiting},");
    upstreams::json(&mut text, &snapshot.upstreams);
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
         \"refused\":{},\"unanswered\":{},\"delay_mean_us\":{mean_us},\"worker_ms\":{},\
         \"body_bytes\":{},\"durations\":{}}}",
        totals.connections,
        totals.offered,
        totals.answered,
        totals.cut,
        totals.in_flight(),
        object(refused),
        object(unanswered),
        totals.worked_ns / 1_000_000,
        totals.body_bytes,
        durations(&totals.durations),
    )
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

/// The value in `name="value"`; several values are joined with dots.
fn label(labels: &str) -> String {
    let values: Vec<&str> = labels.split('"').skip(1).step_by(2).collect();
    values.join(".")
}
