//! One measurement and what is wrong with it.

use crate::case::{Case, Mode};
use crate::client::Counted;
use crate::cpu::Core;
use std::fmt;

/// Share of the server's core that others may take before a row is called noisy.
const NOISE: f64 = 0.05;
/// Bytes per answer may differ from the probe's by this share: at the end of a run some answers
/// are cut off between two counts.
const SIZE_TOLERANCE: f64 = 0.05;

/// Why a row is not to be trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Flag {
    /// The client saw errors, or an answer outside 2xx and 3xx.
    Errors,
    /// The answers were not as long as the probe's.
    Size,
    /// A thread of the server left its core.
    Unpinned,
    /// The log has fewer lines than there were answers.
    LogIncomplete,
    /// Something else ran on the server's core. The only flag that does not take the row out.
    Noisy,
    /// The server had to be killed.
    Killed,
}

impl fmt::Display for Flag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Flag::Errors => "errors",
            Flag::Size => "size",
            Flag::Unpinned => "unpinned",
            Flag::LogIncomplete => "log-incomplete",
            Flag::Noisy => "noisy",
            Flag::Killed => "killed",
        })
    }
}

/// One server under one load for a few seconds.
#[derive(Clone, Debug)]
pub struct Row {
    /// The case's name.
    pub case: &'static str,
    /// From 1 on.
    pub round: u32,
    /// The place in the round's order, from 1 on.
    pub place: usize,
    /// The server's name.
    pub server: &'static str,
    /// What the client counted.
    pub counted: Counted,
    /// Processor time of all the server's processes, in nanoseconds.
    pub cpu_ns: u64,
    /// Time between the two readings of the processor's counters, in nanoseconds.
    pub wall_ns: u64,
    /// What the server's core did meanwhile.
    pub server_core: Core,
    /// What the client's core did meanwhile.
    pub client_core: Core,
    /// Bytes of the probe's answer, as [`Counted::bytes`] counts them.
    pub answer_bytes: usize,
    /// Lines in the access log, warm-up included; `None` without a log.
    pub log_lines: Option<u64>,
    /// What is wrong.
    pub flags: Vec<Flag>,
}

/// The first line of the file of raw rows.
pub const HEADER: &str = "case,round,place,server,requests,duration_us,requests_per_s,bytes,\
    cpu_ns,cpu_us_per_request,client_us_per_request,connect_errors,read_errors,write_errors,status_errors,timeouts,\
    p50_us,p99_us,server_busy,client_busy,foreign,stolen,answer_bytes,log_lines,flags";

impl Row {
    /// Processor time of the server per answer, in microseconds.
    pub fn cpu_us(&self) -> f64 {
        self.cpu_ns as f64 / 1e3 / self.counted.requests.max(1) as f64
    }

    /// Processor time of the client per answer, in microseconds.
    pub fn client_us(&self) -> f64 {
        self.counted.cpu_ns as f64 / 1e3 / self.counted.requests.max(1) as f64
    }

    /// Answers per second.
    pub fn rate(&self) -> f64 {
        self.counted.requests as f64 * 1e6 / self.counted.duration_us.max(1) as f64
    }

    /// Bytes per answer, as the client counted them.
    pub fn bytes_per_answer(&self) -> f64 {
        self.counted.bytes as f64 / self.counted.requests.max(1) as f64
    }

    /// Share of the time that the server itself ran.
    pub fn server_busy(&self) -> f64 {
        self.share(self.cpu_ns)
    }

    /// Share of the time that the client's core ran; near 1 the client is the bottleneck.
    pub fn client_busy(&self) -> f64 {
        self.share(self.client_core.busy_ns)
    }

    /// Share of the time that something else had the server's core.
    pub fn foreign(&self) -> f64 {
        self.share(self.server_core.busy_ns.saturating_sub(self.cpu_ns))
    }

    /// Share of the time that the hypervisor kept one of the two cores for others.
    pub fn stolen(&self) -> f64 {
        self.share(self.server_core.stolen_ns.max(self.client_core.stolen_ns))
    }

    fn share(&self, ns: u64) -> f64 {
        ns as f64 / self.wall_ns.max(1) as f64
    }

    /// Whether it counts in medians and ratios.
    pub fn is_valid(&self) -> bool {
        self.flags.iter().all(|flag| *flag == Flag::Noisy)
    }

    /// Adds the flags that follow from the numbers. `warmed` is how many requests were answered
    /// before the measurement.
    pub fn judge(&mut self, case: &Case, connections: u32, warmed: u64) {
        if self.counted.errors() > 0 || self.counted.requests == 0 {
            self.flags.push(Flag::Errors);
        }
        let difference = (self.bytes_per_answer() / self.answer_bytes.max(1) as f64 - 1.0).abs();
        // Answers are under way on all connections when the client stops: it counts their bytes alone.
        let depth = match (case.mode, case.http2) {
            (Mode::Pipelined(depth), _) => depth,
            (_, Some(http2)) => http2.streams as usize,
            _ => 1,
        };
        let under_way = connections as f64 * depth as f64 / self.counted.requests.max(1) as f64;
        if difference > SIZE_TOLERANCE + under_way {
            self.flags.push(Flag::Size);
        }
        let answers = self.counted.requests + warmed;
        if self.log_lines.is_some_and(|lines| (lines as f64) < answers as f64 * 0.99) {
            self.flags.push(Flag::LogIncomplete);
        }
        if self.foreign() + self.stolen() > NOISE {
            self.flags.push(Flag::Noisy);
        }
    }

    /// The line in the file of raw rows.
    pub fn csv(&self) -> String {
        let c = &self.counted;
        let flags: Vec<String> = self.flags.iter().map(Flag::to_string).collect();
        format!(
            "{},{},{},{},{},{},{:.0},{},{},{:.3},{:.3},{},{},{},{},{},{},{},{:.3},{:.3},{:.3},{:.3},{},{},{}",
            self.case,
            self.round,
            self.place,
            self.server,
            c.requests,
            c.duration_us,
            self.rate(),
            c.bytes,
            self.cpu_ns,
            self.cpu_us(),
            self.client_us(),
            c.connect_errors,
            c.read_errors,
            c.write_errors,
            c.status_errors,
            c.timeouts,
            or_empty(c.p50_us),
            or_empty(c.p99_us),
            self.server_busy(),
            self.client_busy(),
            self.foreign(),
            self.stolen(),
            self.answer_bytes,
            or_empty(self.log_lines),
            flags.join("+"),
        )
    }
}

fn or_empty(number: Option<u64>) -> String {
    number.map_or(String::new(), |number| number.to_string())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A clean row of 1000 requests at `cpu_us` each.
    pub(crate) fn row(case: &'static str, round: u32, server: &'static str, cpu_us: f64) -> Row {
        let counted = Counted {
            requests: 1000,
            duration_us: 1_000_000,
            bytes: 1_280_000,
            ..Counted::default()
        };
        let core = Core { busy_ns: (cpu_us * 1e6) as u64, stolen_ns: 0 };
        Row {
            case,
            round,
            place: 1,
            server,
            counted,
            cpu_ns: (cpu_us * 1e6) as u64,
            wall_ns: 1_000_000_000,
            server_core: core,
            client_core: core,
            answer_bytes: 1280,
            log_lines: None,
            flags: Vec::new(),
        }
    }

    #[test]
    fn a_clean_row_has_no_flag_and_as_many_fields_as_the_header() {
        let mut clean = row("1k", 1, "limit", 5.0);
        clean.judge(crate::case::find("1k").expect("known"), 1, 0);
        assert_eq!(clean.flags, []);
        assert_eq!(clean.csv().split(',').count(), HEADER.split(',').count());
        assert!((clean.cpu_us() - 5.0).abs() < 1e-9);
    }

    #[test]
    fn errors_short_answers_and_lost_log_lines_take_a_row_out_but_noise_does_not() {
        let case = crate::case::find("1k-log").expect("known");
        let mut bad = row("1k-log", 1, "limit", 5.0);
        bad.counted.status_errors = 1;
        bad.counted.bytes = 100_000;
        bad.log_lines = Some(1200);
        bad.judge(case, 1, 500);
        assert_eq!(bad.flags, [Flag::Errors, Flag::Size, Flag::LogIncomplete]);
        assert!(!bad.is_valid());
        let mut noisy = row("1k-log", 1, "limit", 5.0);
        noisy.server_core.busy_ns = 900_000_000;
        noisy.judge(case, 1, 0);
        assert!(noisy.flags == [Flag::Noisy] && noisy.is_valid());
    }
}
