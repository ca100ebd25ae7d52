//! The syntax of both formats: lines of Prometheus' text format, members of JSON.

use crate::histogram::{DURATION_BOUNDS_US, DurationTotals};
use std::fmt::Write;

/// The status classes, as labels.
pub(crate) const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// Writes the description of a metric, which comes before its values.
pub(crate) fn announce(text: &mut String, metric: &str, help: &str, kind: &str) {
    let _ = write!(text, "# HELP {metric} {help}\n# TYPE {metric} {kind}\n");
}

/// Writes one value of a metric.
pub(crate) fn line(text: &mut String, metric: &str, labels: &str, value: &str) {
    let (open, close) = if labels.is_empty() { ("", "") } else { ("{", "}") };
    let _ = writeln!(text, "{metric}{open}{labels}{close} {value}");
}

/// Writes the lines of a histogram of durations. `labels` are those of the metric, and may be empty.
pub(crate) fn histogram(text: &mut String, metric: &str, labels: &str, counted: &DurationTotals) {
    buckets(text, metric, labels, &counted.buckets, &DURATION_BOUNDS_US, counted.sum_ns);
}

/// Writes a histogram with other bounds, in µs; one more bucket is for longer durations.
pub(crate) fn buckets(
    text: &mut String,
    metric: &str,
    labels: &str,
    counts: &[u64],
    bounds_us: &[u64],
    sum_ns: u64,
) {
    let comma = if labels.is_empty() { "" } else { "," };
    let mut sum = 0;
    for (count, bound_us) in counts.iter().zip(bounds_us) {
        sum += count;
        let labels = format!("{labels}{comma}le=\"{}\"", *bound_us as f64 / 1e6);
        line(text, &format!("{metric}_bucket"), &labels, &sum.to_string());
    }
    let all = counts.iter().sum::<u64>().to_string();
    line(text, &format!("{metric}_bucket"), &format!("{labels}{comma}le=\"+Inf\""), &all);
    line(text, &format!("{metric}_sum"), labels, &seconds(sum_ns));
    line(text, &format!("{metric}_count"), labels, &all);
}

pub(crate) fn seconds(ns: u64) -> String {
    format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)
}

/// Durations as a JSON object: their number, their sum in µs, and the number up to each bound in µs and above
/// the one before, if there are any; `more` counts those above all bounds.
pub(crate) fn durations(counted: &DurationTotals) -> String {
    let names = DURATION_BOUNDS_US.iter().map(u64::to_string).chain(["more".to_owned()]);
    let some = names.zip(counted.buckets).filter(|(_, count)| *count > 0);
    let (count, sum_us) = (counted.count(), counted.sum_ns / 1000);
    format!("{{\"count\":{count},\"sum_us\":{sum_us},\"until_us\":{}}}", object(some))
}

/// A JSON object of numbers.
pub(crate) fn object(members: impl Iterator<Item = (impl AsRef<str>, u64)>) -> String {
    let one = |(name, value): (_, u64)| format!("\"{}\":{value}", escape(AsRef::as_ref(&name)));
    format!("{{{}}}", members.map(one).collect::<Vec<_>>().join(","))
}

/// Escapes `\`, `"` and line ends as in both formats. Other control characters, which JSON does not allow,
/// become spaces.
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
