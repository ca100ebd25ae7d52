//! What was counted, as Prometheus text and as JSON. Both follow the schema: a new counter, gauge
//! or activity appears in both by itself.

use crate::{Activity, Counter, Gauge, Totals};
use std::fmt::Write;

/// One value of a metric, with the labels that tell it from the metric's other values.
struct Sample {
    metric: &'static str,
    labels: &'static str,
    help: &'static str,
    value: u64,
}

/// Counters, then the given gauges, in the order of the schema: those of one metric together.
fn samples(totals: &Totals, gauges: &[(Gauge, u64)]) -> Vec<Sample> {
    let counters = Counter::ALL.iter().map(|counter| Sample {
        metric: counter.metric(),
        labels: counter.labels(),
        help: counter.help(),
        value: totals.get(*counter),
    });
    let gauges = gauges.iter().map(|(gauge, value)| Sample {
        metric: gauge.metric(),
        labels: gauge.labels(),
        help: gauge.help(),
        value: *value,
    });
    counters.chain(gauges).collect()
}

/// The Prometheus text format 0.0.4 (`text/plain; version=0.0.4`).
///
/// `info` are facts about the server that do not change, names and values; they become the labels
/// of `forebay_info`. Activities are summaries in seconds, without quantiles.
pub fn prometheus(totals: &Totals, gauges: &[(Gauge, u64)], info: &[(&str, &str)]) -> String {
    let mut text = String::with_capacity(8 * 1024);
    if !info.is_empty() {
        let labels: Vec<String> =
            info.iter().map(|(name, value)| format!("{name}=\"{}\"", escape(value))).collect();
        announce(&mut text, "forebay_info", "Facts about this server, as labels.", "gauge");
        line(&mut text, "forebay_info", &labels.join(","), "1");
    }
    let mut previous = "";
    for Sample { metric, labels, help, value } in samples(totals, gauges) {
        if metric != previous {
            let kind = if metric.ends_with("_total") { "counter" } else { "gauge" };
            announce(&mut text, metric, help, kind);
            previous = metric;
        }
        line(&mut text, metric, labels, &value.to_string());
    }
    for activity in Activity::ALL {
        let (metric, labels) = (activity.metric(), activity.labels());
        if metric != previous {
            announce(&mut text, metric, activity.help(), "summary");
            previous = metric;
        }
        let (samples, total_ns) = totals.activity(*activity);
        line(&mut text, &format!("{metric}_sum"), labels, &seconds(total_ns));
        line(&mut text, &format!("{metric}_count"), labels, &samples.to_string());
    }
    text
}

fn announce(text: &mut String, metric: &str, help: &str, kind: &str) {
    let _ = write!(text, "# HELP {metric} {help}\n# TYPE {metric} {kind}\n");
}

fn line(text: &mut String, metric: &str, labels: &str, value: &str) {
    let (open, close) = if labels.is_empty() { ("", "") } else { ("{", "}") };
    let _ = writeln!(text, "{metric}{open}{labels}{close} {value}");
}

fn seconds(ns: u64) -> String {
    format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)
}

/// A JSON object for people and scripts.
///
/// The members of `info` come first, then each metric under its name without `forebay_` and
/// `_total`: a number, or an object with a number for each label value. `activities` says for each
/// activity how often it was timed, its mean in µs (`null` if never), and its share of all time
/// measured, from 0 to 1.
pub fn json(totals: &Totals, gauges: &[(Gauge, u64)], info: &[(&str, &str)]) -> String {
    let mut text = String::with_capacity(4 * 1024);
    text.push('{');
    for (name, value) in info {
        let _ = write!(text, "\"{name}\":\"{}\",", escape(value));
    }
    let samples = samples(totals, gauges);
    for metric in samples.chunk_by(|a, b| a.metric == b.metric) {
        let name = metric[0].metric;
        let name = name.strip_prefix("forebay_").unwrap_or(name);
        let name = name.strip_suffix("_total").unwrap_or(name);
        if metric[0].labels.is_empty() {
            let _ = write!(text, "\"{name}\":{},", metric[0].value);
        } else {
            let values = metric.iter().map(|s| format!("\"{}\":{}", label(s.labels), s.value));
            let _ = write!(text, "\"{name}\":{{{}}},", values.collect::<Vec<_>>().join(","));
        }
    }
    let _ = write!(text, "\"activities\":{{{}}}}}", activities(totals));
    text.push('\n');
    text
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

/// The value in `name="value"`.
fn label(labels: &str) -> &str {
    labels.split('"').nth(1).unwrap_or("")
}

/// `\`, `"` and line ends as both formats write them; other control characters, which JSON does
/// not allow, become spaces.
fn escape(text: &str) -> String {
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
    use crate::Local;

    const INFO: &[(&str, &str)] = &[("version", "0.1.0"), ("engine", "ev\"e\\nt\n")];

    fn counted() -> (Totals, Vec<(Gauge, u64)>) {
        let local = Local::default();
        for (at, counter) in Counter::ALL.iter().enumerate() {
            local.add(*counter, 100 + at as u64);
        }
        local.time(Activity::Read, 1500);
        local.time(Activity::Read, 1000);
        local.time(Activity::Send, 7_500_000_001);
        let gauges = Gauge::ALL.iter().enumerate().map(|(at, gauge)| (*gauge, at as u64));
        (Totals::of([&local]), gauges.collect())
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
        let (totals, gauges) = counted();
        assert_golden("metrics.txt", &prometheus(&totals, &gauges, INFO));
    }

    #[test]
    fn status_json() {
        let (totals, gauges) = counted();
        assert_golden("status.json", &json(&totals, &gauges, INFO));
    }

    #[test]
    fn each_metric_is_announced_once_and_before_its_values() {
        let (totals, gauges) = counted();
        let text = prometheus(&totals, &gauges, &[]);
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
        let text = json(&Totals::of([]), &[], &[]);
        assert!(text.contains("\"accept\":{\"samples\":0,\"mean_us\":null,\"share\":0.0000}"));
    }
}
