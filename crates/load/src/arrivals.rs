//! The times at which requests are due in an open loop: constant, Poisson, steps, bursts, or a
//! recorded trace.
//!
//! A schedule depends on its settings and the seed alone, never on answers. That makes the loop
//! open.

use crate::units;
use fastrand::Rng;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The law by which requests arrive.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Arrivals {
    /// The steady part, in consecutive steps; the last one lasts to the end.
    pub steps: Vec<RateStep>,
    /// Whether the steady part is a Poisson process; otherwise all its gaps are equal.
    pub poisson: bool,
    /// Bursts in addition to the steady part.
    pub bursts: Option<Bursts>,
    /// Recorded arrivals in addition to the steady part.
    pub trace: Option<Arc<[TraceLine]>>,
}

/// A stretch of constant rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateStep {
    /// Arrivals per second; 0 is a pause.
    pub rate: f64,
    /// The length of the step; `None`: to the end.
    pub lasts: Option<Duration>,
}

/// Groups of requests that arrive at once, as voigt's non-preferred client sends them (§4.2).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bursts {
    /// Bursts per second, at random times (a Poisson process).
    pub rate: f64,
    /// The least number of requests of a burst.
    pub least: u32,
    /// The largest number of requests of a burst; the number is uniform between both.
    pub most: u32,
}

/// One line of a trace.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceLine {
    /// The time of the arrival, after the group's start.
    pub at: Duration,
    /// The path; without it, one is drawn from the group's mix.
    pub path: Option<Box<str>>,
}

/// One request that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Nanoseconds after the start of the run.
    pub at_ns: u64,
    /// The line of the trace that the arrival comes from.
    pub line: Option<u32>,
}

/// Why a trace cannot be used.
#[derive(Debug)]
pub enum TraceError {
    /// The file could not be read.
    Unreadable(PathBuf, std::io::Error),
    /// A line is not `SECONDS [PATH]`, or its time lies before the line above.
    Line(PathBuf, usize),
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TraceError::Unreadable(file, error) => write!(f, "{}: {error}", file.display()),
            TraceError::Line(file, line) => {
                write!(f, "{}:{line}: expected SECONDS [PATH], ascending", file.display())
            }
        }
    }
}

/// Reads a trace: one `SECONDS [PATH]` per line, ascending; `#` begins a comment.
///
/// # Errors
/// The file cannot be read, or a line has another form.
pub fn read_trace(file: &Path) -> Result<Arc<[TraceLine]>, TraceError> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| TraceError::Unreadable(file.to_owned(), error))?;
    let mut lines: Vec<TraceLine> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or("").trim();
        if line.is_empty() {
            continue;
        }
        let mut words = line.split_whitespace();
        let at = words.next().and_then(|word| units::duration(&format!("{word}s")).ok());
        let path = words.next();
        let last = lines.last().map_or(Duration::ZERO, |line| line.at);
        match at {
            Some(at) if at >= last && path.is_none_or(|path| path.starts_with('/')) => {
                lines.push(TraceLine { at, path: path.map(Into::into) });
            }
            _ => return Err(TraceError::Line(file.to_owned(), number + 1)),
        }
    }
    Ok(lines.into())
}

impl Arrivals {
    /// Arrivals with the same gap between all requests.
    pub fn constant(rate: f64) -> Arrivals {
        Arrivals { steps: vec![RateStep { rate, lasts: None }], ..Arrivals::default() }
    }

    /// The mean rate of the steady part and the bursts over `length`, per second.
    pub fn mean_rate(&self, length: Duration) -> f64 {
        let seconds = length.as_secs_f64();
        let mut left = seconds;
        let mut count = 0.0;
        for step in &self.steps {
            let lasts = step.lasts.map_or(left, |lasts| lasts.as_secs_f64().min(left));
            count += step.rate * lasts;
            left -= lasts;
        }
        let bursts = self.bursts.map_or(0.0, |b| b.rate * f64::from(b.least + b.most) / 2.0);
        let traced = self.trace.as_ref().map_or(0, |t| t.iter().filter(|l| l.at < length).count());
        (count + traced as f64) / seconds + bursts
    }

    /// All arrivals in `[from, until)`, in order. Steps follow one another from `measured_ns` on,
    /// and the first one fills the time before that.
    pub fn schedule(&self, seed: u64, from_ns: u64, until_ns: u64, measured_ns: u64) -> Schedule {
        let mut steps = self.steps.clone();
        if let Some(RateStep { lasts: Some(lasts), .. }) = steps.first_mut() {
            *lasts += Duration::from_nanos(measured_ns.saturating_sub(from_ns));
        }
        let steady = Steady {
            steps,
            poisson: self.poisson,
            place: 0,
            begun_ns: from_ns,
            count: 0,
            at_ns: from_ns as f64,
            rng: Rng::with_seed(seed),
        };
        let bursts = self.bursts.map(|bursts| Burst {
            bursts,
            at_ns: from_ns as f64,
            left: 0,
            rng: Rng::with_seed(seed ^ 0xb5),
        });
        let mut schedule = Schedule {
            steady,
            bursts,
            trace: self.trace.clone().unwrap_or_default(),
            line: 0,
            from_ns,
            until_ns,
            next_steady: None,
            next_burst: None,
        };
        schedule.next_steady = schedule.steady.next();
        schedule.next_burst = schedule.bursts.as_mut().map(Burst::next);
        schedule
    }
}

/// The arrivals of one group, merged from its parts.
#[derive(Clone, Debug)]
pub struct Schedule {
    steady: Steady,
    bursts: Option<Burst>,
    trace: Arc<[TraceLine]>,
    line: usize,
    from_ns: u64,
    until_ns: u64,
    next_steady: Option<u64>,
    next_burst: Option<u64>,
}

impl Iterator for Schedule {
    type Item = Arrival;

    fn next(&mut self) -> Option<Arrival> {
        let traced = self.trace.get(self.line);
        let traced = traced.map(|line| self.from_ns + line.at.as_nanos() as u64);
        let all = [self.next_steady, self.next_burst, traced];
        let at_ns = all.into_iter().flatten().min().filter(|at_ns| *at_ns < self.until_ns)?;
        let mut line = None;
        if traced == Some(at_ns) {
            line = Some(self.line as u32);
            self.line += 1;
        } else if self.next_burst == Some(at_ns) {
            self.next_burst = self.bursts.as_mut().map(Burst::next);
        } else {
            self.next_steady = self.steady.next();
        }
        Some(Arrival { at_ns, line })
    }
}

/// The arrivals of the steady part.
#[derive(Clone, Debug)]
struct Steady {
    steps: Vec<RateStep>,
    poisson: bool,
    place: usize,
    /// The time at which the current step began.
    begun_ns: u64,
    /// The number of arrivals of the current step so far; equal gaps are multiplied, not added, so
    /// they never drift.
    count: u64,
    /// The time of the last Poisson arrival.
    at_ns: f64,
    rng: Rng,
}

impl Steady {
    fn next(&mut self) -> Option<u64> {
        loop {
            let step = *self.steps.get(self.place)?;
            let at_ns = if step.rate <= 0.0 {
                u64::MAX
            } else if self.poisson {
                self.at_ns += gap_ns(&mut self.rng, step.rate);
                self.at_ns as u64
            } else {
                self.begun_ns + (self.count as f64 * 1e9 / step.rate) as u64
            };
            self.count += 1;
            let Some(lasts) = step.lasts else { return Some(at_ns).filter(|at| *at < u64::MAX) };
            let end_ns = self.begun_ns + lasts.as_nanos() as u64;
            if at_ns < end_ns {
                return Some(at_ns);
            }
            // a Poisson process has no memory: the next step draws afresh from its beginning
            (self.place, self.begun_ns, self.count) = (self.place + 1, end_ns, 0);
            self.at_ns = end_ns as f64;
        }
    }
}

/// The arrivals of the bursts.
#[derive(Clone, Debug)]
struct Burst {
    bursts: Bursts,
    at_ns: f64,
    left: u32,
    rng: Rng,
}

impl Burst {
    fn next(&mut self) -> u64 {
        if self.left == 0 {
            self.at_ns += gap_ns(&mut self.rng, self.bursts.rate);
            self.left = self.rng.u32(self.bursts.least..=self.bursts.most).max(1);
        }
        self.left -= 1;
        self.at_ns as u64
    }
}

/// A random time to the next event of a Poisson process.
fn gap_ns(rng: &mut Rng, rate: f64) -> f64 {
    // f64() is in [0, 1), so the logarithm is of a number in (0, 1]
    -(1.0 - rng.f64()).ln() * 1e9 / rate
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn equal_gaps_never_drift() {
        let all: Vec<_> = Arrivals::constant(3.0).schedule(1, 0, 1000 * SECOND, 0).collect();
        assert_eq!(all.len(), 3000);
        assert_eq!(all[2997].at_ns, 999 * SECOND);
    }

    #[test]
    fn poisson_arrivals_have_their_rate_and_spread() {
        let arrivals = Arrivals { poisson: true, ..Arrivals::constant(1000.0) };
        let all: Vec<_> = arrivals.schedule(7, 0, 100 * SECOND, 0).collect();
        assert!((98_500..101_500).contains(&all.len()), "{}", all.len());
        let gaps: Vec<f64> = all.windows(2).map(|w| (w[1].at_ns - w[0].at_ns) as f64).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        // an exponential distribution's standard deviation equals its mean
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.03);
        assert_eq!(all, arrivals.schedule(7, 0, 100 * SECOND, 0).collect::<Vec<_>>());
    }

    #[test]
    fn steps_follow_each_other() {
        let second = Some(Duration::from_secs(1));
        let steps = [(10.0, second), (0.0, second), (20.0, None)];
        let steps = steps.map(|(rate, lasts)| RateStep { rate, lasts }).to_vec();
        let arrivals = Arrivals { steps, ..Arrivals::default() };
        let all: Vec<_> = arrivals.schedule(1, SECOND, 5 * SECOND, 0).collect();
        assert_eq!(all.iter().filter(|a| a.at_ns < 2 * SECOND).count(), 10);
        assert_eq!(all[10].at_ns, 3 * SECOND);
        assert_eq!(all.len(), 50);
        assert_eq!(arrivals.mean_rate(Duration::from_secs(4)), 12.5);
    }

    #[test]
    fn steps_begin_after_the_warm_up() {
        let second = Some(Duration::from_secs(1));
        let steps = [(10.0, second), (20.0, second)];
        let steps = steps.map(|(rate, lasts)| RateStep { rate, lasts }).to_vec();
        let arrivals = Arrivals { steps, ..Arrivals::default() };
        let all: Vec<_> = arrivals.schedule(1, 0, 9 * SECOND, 2 * SECOND).collect();
        let within = |from: u64, to: u64| {
            all.iter().filter(|a| (from * SECOND..to * SECOND).contains(&a.at_ns)).count()
        };
        assert_eq!([within(0, 2), within(2, 3), within(3, 4), within(4, 9)], [20, 10, 20, 0]);
        // for a group that begins later, the steps begin then
        let late: Vec<_> = arrivals.schedule(1, 4 * SECOND, 9 * SECOND, 2 * SECOND).collect();
        assert_eq!(late.len(), 30);
    }

    #[test]
    fn bursts_come_on_top() {
        let bursts = Some(Bursts { rate: 2.0, least: 50, most: 80 });
        let arrivals = Arrivals { bursts, ..Arrivals::constant(50.0) };
        let all: Vec<_> = arrivals.schedule(3, 0, 100 * SECOND, 0).collect();
        assert!(all.is_sorted_by_key(|a| a.at_ns));
        assert!((16_000..20_000).contains(&all.len()), "{}", all.len());
        let mut runs = std::collections::BTreeMap::new();
        all.iter().for_each(|a| *runs.entry(a.at_ns).or_insert(0) += 1);
        let lengths: Vec<_> = runs.values().filter(|n| **n > 2).collect();
        assert!((150..250).contains(&lengths.len()));
        assert!(lengths.iter().all(|n| (50..=82).contains(*n)));
    }

    #[test]
    fn a_trace_is_replayed() {
        let file = std::env::temp_dir().join(format!("forebay-trace-{}", std::process::id()));
        std::fs::write(&file, "0 /a\n0.5\n0.5 /b # twice\n").unwrap();
        let trace = read_trace(&file).unwrap();
        assert_eq!(trace[2].path.as_deref(), Some("/b"));
        let arrivals = Arrivals { trace: Some(trace), ..Arrivals::default() };
        let all: Vec<_> = arrivals.schedule(1, SECOND, 9 * SECOND, 0).collect();
        assert_eq!(all[1], Arrival { at_ns: 3 * SECOND / 2, line: Some(1) });
        std::fs::write(&file, "1\n0\n").unwrap();
        assert!(matches!(read_trace(&file), Err(TraceError::Line(_, 2))));
        std::fs::remove_file(&file).unwrap();
    }
}
