//! The report as text for a terminal.

use super::{GroupReport, Latency, Report};
use crate::units::{show_count, show_us};
use std::fmt::Write;

impl Report {
    /// Writes the report as a table and, below it, what a reader must know to judge it.
    pub fn to_table(&self) -> String {
        let mut text = String::new();
        for group in &self.groups {
            // writing to a String cannot fail
            let _ = writeln!(text, "{} ({})\n  {}", group.name, group.load, group.url);
        }
        text.push('\n');
        text.push_str(&columns(&self.groups.iter().map(row).collect::<Vec<_>>(), HEADS));
        text.push('\n');
        let mut times = Vec::new();
        for group in &self.groups {
            let open = group.open && group.latency != group.service;
            let what = if open { "from the intended start" } else { "latency" };
            times.push(time_row(&group.name, what, &group.latency));
            if open {
                times.push(time_row("", "from the actual start", &group.service));
            }
            if group.connect.count > 0 {
                times.push(time_row("", "connect", &group.connect));
            }
            if let Some(tls) = group.tls.as_ref().filter(|tls| tls.handshake.count > 0) {
                times.push(time_row("", "TLS handshake", &tls.handshake));
            }
        }
        text.push_str(&columns(&times, TIME_HEADS));
        self.groups.iter().for_each(|group| details(group, &mut text));
        self.own(&mut text);
        text
    }

    fn own(&self, text: &mut String) {
        let own = &self.generator;
        let _ = write!(
            text,
            "\ngenerator: {:.2} cores, {:.2} µs CPU per request",
            own.cpu_cores, own.cpu_us_per_request
        );
        if own.spinning_cores > 0.005 {
            let _ = write!(text, " (and {:.2} cores waiting awake)", own.spinning_cores);
        }
        if own.lateness.count > 0 {
            let (p50, p99) = (show_us(own.lateness.p50_us), show_us(own.lateness.p99_us));
            let _ = write!(text, ", late by p50 {p50}, p99 {p99}");
        }
        text.push('\n');
        for bottleneck in &own.bottlenecks {
            let _ = writeln!(text, "warning: {bottleneck}");
        }
    }
}

const HEADS: &[&str] =
    &["group", "offered/s", "answers/s", "goodput/s", "MB/s", "answered", "failed", "failed %"];

fn row(group: &GroupReport) -> Vec<String> {
    let ended = (group.good + group.failed).max(1) as f64;
    vec![
        group.name.clone(),
        show_count(group.offered as f64 / group.seconds),
        show_count(group.rate),
        show_count(group.goodput),
        format!("{:.2}", group.received_bytes_per_s / 1e6),
        group.answered.to_string(),
        group.failed.to_string(),
        format!("{:.2}", group.failed as f64 * 100.0 / ended),
    ]
}

const TIME_HEADS: &[&str] = &["group", "time", "mean", "p50", "p90", "p95", "p99", "p99.9", "max"];

fn time_row(name: &str, what: &str, times: &Latency) -> Vec<String> {
    let mut row = vec![name.to_owned(), what.to_owned()];
    row.extend(
        times.columns_us().map(|us| if times.count == 0 { "–".to_owned() } else { show_us(us) }),
    );
    row
}

/// Writes the details that only some groups have.
fn details(group: &GroupReport, text: &mut String) {
    let name = &group.name;
    if !group.failures.is_empty() {
        let _ = writeln!(text, "\n{name} failures: {}", group.failures_in_words().join(", "));
    }
    if group.statuses.keys().any(|status| *status != 200) {
        let all: Vec<_> =
            group.statuses.iter().map(|(status, n)| format!("{status} × {n}")).collect();
        let _ = writeln!(text, "{name} statuses: {}", all.join(", "));
    }
    if group.good == 0 {
        let _ = writeln!(text, "{name}: not one good answer");
    }
    if group.cut > 0 {
        let _ = writeln!(text, "{name}: no answer to {} requests by the end", group.cut);
    }
    let connections = group.connections;
    if connections.syn_retried > 0 {
        let _ = writeln!(
            text,
            "{name} connections: {} opened, {} established, {} with repeated SYNs ({} in all)",
            connections.opened,
            connections.connected,
            connections.syn_retried,
            connections.syn_retries
        );
    }
    if connections.goaways > 0 {
        let count = connections.goaways;
        let _ = writeln!(text, "{name}: the server said goodbye on {count} connections");
    }
    if let Some(tls) = &group.tls {
        let _ = writeln!(text, "{name} TLS: {}", tls.describe());
    }
    if let Some(clients) = group.clients.filter(|_| group.line_bit_per_s.is_some()) {
        let _ = writeln!(text, "{name} clients: {}", clients.describe());
    }
}

/// Formats rows under column heads; the first columns to the left, numbers to the right.
pub(super) fn columns(rows: &[Vec<String>], heads: &[&str]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([heads[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..heads.len()).map(width).collect();
    let is_text = |column: usize| column == 0 || matches!(heads[column], "time" | "figure" | "");
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let mut line = String::new();
        for (column, cell) in cells.enumerate() {
            let pad = " ".repeat(widths[column] - cell.chars().count());
            let cell =
                if is_text(column) { format!("{cell}{pad}") } else { format!("{pad}{cell}") };
            line.push_str(if column == 0 { "" } else { "  " });
            line.push_str(&cell);
        }
        line.trim_end().to_owned() + "\n"
    };
    let mut text = line(&mut heads.iter().copied());
    for row in rows {
        text.push_str(&line(&mut row.iter().map(String::as_str)));
    }
    text
}
