//! The words of a report: what a group does, why requests failed, TLS and clients.

use super::{ClientCounts, GroupReport, Report, TlsReport};
use crate::failure::RequestFailure;
use crate::plan::{ClientGroup, LoadModel, RequestsPerConnection, StatedVersion};
use crate::units;

impl Report {
    /// The message if there is no result because no request had a good answer.
    pub fn failed_whole(&self) -> Option<String> {
        if self.groups.iter().any(|group| group.good > 0) {
            return None;
        }
        let of = |group: &GroupReport| format!("{}{}", group.name, group.why_failed());
        let groups: Vec<_> = self.groups.iter().map(of).collect();
        Some(format!("not one good answer: {}", groups.join(", ")))
    }
}

impl GroupReport {
    /// Why requests had no good answer, in brackets; empty if all had one.
    pub(crate) fn why_failed(&self) -> String {
        let mut kinds = self.failures_in_words();
        if self.cut > 0 {
            kinds.push(format!("no answer by the end × {}", self.cut));
        }
        if kinds.is_empty() && self.offered == 0 {
            kinds.push("no request was due".to_owned());
        }
        if kinds.is_empty() { String::new() } else { format!(" ({})", kinds.join(", ")) }
    }

    /// The failed requests by kind, described in words.
    pub(super) fn failures_in_words(&self) -> Vec<String> {
        let reasons = |kind: &String| {
            let all = self.reasons.get(kind).into_iter().flatten();
            let all: Vec<_> = all.map(|(why, count)| format!("{why} × {count}")).collect();
            if all.is_empty() { String::new() } else { format!(" [{}]", all.join(", ")) }
        };
        let of = |(kind, count): (&String, &u64)| {
            format!("{} × {count}{}", RequestFailure::in_words(kind), reasons(kind))
        };
        self.failures.iter().map(of).collect()
    }
}

/// Describes what a group does, in a few words.
pub(super) fn describe(group: &ClientGroup) -> String {
    let mut text = match &group.load {
        LoadModel::Closed { connections, think, .. } => {
            let think = units::show_us(think.end().as_secs_f64() * 1e6);
            let think =
                if think == "0 µs" { String::new() } else { format!(", think ≤ {think}") };
            format!("closed, {connections} connections{think}")
        }
        LoadModel::Open { arrivals, .. } => {
            let length = std::time::Duration::from_secs(1);
            let law = if arrivals.poisson { "Poisson" } else { "constant" };
            match arrivals.steps.as_slice() {
                [step] => format!("open, {law}, {}/s", units::show_count(step.rate)),
                [] => format!("open, {}/s", units::show_count(arrivals.mean_rate(length))),
                steps => format!("open, {law}, {} steps", steps.len()),
            }
        }
    };
    if let LoadModel::Open { arrivals, .. } = &group.load {
        if let Some(bursts) = arrivals.bursts {
            let rate = units::show_count(bursts.rate);
            text += &format!(", bursts of {}–{} at {rate}/s", bursts.least, bursts.most);
        }
        if arrivals.trace.is_some() {
            text += ", trace";
        }
    }
    text += match group.version {
        StatedVersion::Http10 => ", HTTP/1.0",
        StatedVersion::Http11 => ", HTTP/1.1",
        StatedVersion::Http2 => ", HTTP/2",
    };
    if group.target.is_tls {
        text += " over TLS";
    }
    if group.version == StatedVersion::Http2 {
        text += &format!(
            ", {} at once",
            if group.streams == 1 {
                "1 stream".to_owned()
            } else {
                format!("{} streams", group.streams)
            }
        );
    }
    match group.per_connection {
        RequestsPerConnection::Unlimited => text += ", keep-alive",
        RequestsPerConnection::Exactly(count) => text += &format!(", {count} per connection"),
        RequestsPerConnection::Specweb99 => text += ", SPECweb99 connections",
    }
    if group.pipeline > 1 {
        text += &format!(", {} pipelined", group.pipeline);
    }
    if let Some(rate) = group.receive {
        text += &format!(", ≤ {}bit/s each", units::show_count(rate * 8.0).replace(' ', "\u{a0}"));
    }
    text
}

impl TlsReport {
    /// Describes what was negotiated, how often, and by which kind of handshake.
    pub(super) fn describe(&self) -> String {
        let agreed = self.agreed.iter().map(|(agreed, count)| format!("{agreed} × {count}"));
        let agreed: Vec<_> = agreed.collect();
        let verified = if self.verified { "" } else { "; certificates were not verified" };
        let (full, resumed) = (self.full, self.resumed);
        let agreed =
            if agreed.is_empty() { String::new() } else { format!(": {}", agreed.join("; ")) };
        format!(
            "{full} full handshakes and {resumed} resumed, {}/s{agreed}{verified}",
            units::show_count(self.rate)
        )
    }
}

impl ClientCounts {
    /// Describes the counts in a sentence.
    pub(super) fn describe(&self) -> String {
        format!(
            "{} active, {} conforming (≥ 320 kbit/s), {} invalid (≥ 1 % failed); kbit/s each: mean \
             {:.1}, least {:.1}, most {:.1}",
            self.active,
            self.conforming,
            self.invalid,
            self.mean_bit_per_s / 1e3,
            self.min_bit_per_s / 1e3,
            self.max_bit_per_s / 1e3
        )
    }
}
