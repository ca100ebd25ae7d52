//! What both formats are written with: lines of Prometheus' text format, members of JSON.

use std::fmt::Write;

/// Says what a metric is, before its lines.
pub(crate) fn announce(text: &mut String, metric: &str, help: &str, kind: &str) {
    let _ = write!(text, "# HELP {metric} {help}\n# TYPE {metric} {kind}\n");
}

/// One value of it.
pub(crate) fn line(text: &mut String, metric: &str, labels: &str, value: &str) {
    let (open, close) = if labels.is_empty() { ("", "") } else { ("{", "}") };
    let _ = writeln!(text, "{metric}{open}{labels}{close} {value}");
}

/// A JSON object of numbers.
pub(crate) fn object(members: impl Iterator<Item = (impl AsRef<str>, u64)>) -> String {
    let one = |(name, value): (_, u64)| format!("\"{}\":{value}", escape(AsRef::as_ref(&name)));
    format!("{{{}}}", members.map(one).collect::<Vec<_>>().join(","))
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
