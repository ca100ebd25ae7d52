//! `forebay load --find`: the highest rate at which something holds.

use super::progress::ProgressDisplay;
use super::{LoadFailure, NOT_MET, RUN_FAILED, say, usage};
use forebay_load::report::expect::Expectation;
use forebay_load::search::{RateSearch, SearchEnd};
use forebay_load::units::{self, show_count, show_us};
use forebay_load::{LoadModel, LoadPlan, Report};
use std::fmt::Write as _;
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The condition that is added unless one is about errors: a server that refuses answers fast.
const FEW_ERRORS: &str = "errors<=1%";

/// The bounds of the search, in requests per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RateBounds {
    low: f64,
    high: f64,
}

impl Default for RateBounds {
    fn default() -> RateBounds {
        RateBounds { low: 10.0, high: 100_000.0 }
    }
}

impl FromStr for RateBounds {
    type Err = String;

    fn from_str(text: &str) -> Result<RateBounds, String> {
        const EXPECTED: &str = "expected two rates, the lower one first, such as 100/s-20000/s";
        let (low, high) = text.split_once('-').ok_or(EXPECTED)?;
        let rate = |text: &str| units::rate(text.trim()).map_err(|_| EXPECTED);
        let (low, high) = (rate(low)?, rate(high)?);
        if low <= high { Ok(RateBounds { low, high }) } else { Err(EXPECTED.to_owned()) }
    }
}

impl RateBounds {
    /// The lower bound, in the form of a setting.
    pub(super) fn low(&self) -> String {
        format!("{}/s", self.low)
    }
}

/// The conditions of the search.
pub(super) struct RateWanted {
    conditions: Vec<Expectation>,
    bounds: RateBounds,
    /// The number of tries of each rate, which holds if it does in most of them.
    tries: u8,
}

impl RateWanted {
    /// Makes a search for these conditions, with a plan of one group.
    pub(super) fn new(
        conditions: &[Expectation],
        bounds: Option<RateBounds>,
        tries: u8,
        plan: &LoadPlan,
    ) -> Result<RateWanted, LoadFailure> {
        let mut conditions = conditions.to_vec();
        if !conditions.iter().any(Expectation::is_about_errors) {
            conditions.extend(FEW_ERRORS.parse::<Expectation>());
        }
        for condition in &conditions {
            condition.check_names(plan).map_err(usage)?;
        }
        match plan.groups.as_slice() {
            [group] if group.is_open() && group.requests.is_none() => {}
            _ => {
                return Err(usage("--find wants one group with a rate, and no number of requests"));
            }
        }
        Ok(RateWanted { conditions, bounds: bounds.unwrap_or_default(), tries })
    }

    /// Tries one rate after another; returns the exit code, and the report of the highest that holds.
    pub(super) fn find(
        &self,
        plan: &LoadPlan,
        stop: &Arc<AtomicBool>,
        live: &mut ProgressDisplay,
        mut tell: impl FnMut(&str),
    ) -> Result<(ExitCode, Option<Report>), LoadFailure> {
        let mut search = RateSearch::new(self.bounds.low, self.bounds.high);
        let mut best = None;
        let mut seed = plan.seed;
        tell(&format!(
            "{:>10} {:>10} {:>9} {:>9} {:>9} {:>8}",
            "rate", "answered", "p50", "p99", "max", "errors"
        ));
        'rates: while let Some(rate) = search.next() {
            // tries end as soon as one side has the majority; each has a seed of its own, so that a rate is
            // not judged by one sequence of arrivals
            let (mut held, mut missed) = (0, 0);
            while held.max(missed) <= self.tries / 2 {
                let mut plan = plan.clone();
                set_rate(&mut plan, rate);
                plan.seed = seed;
                seed = seed.wrapping_add(1);
                let report = forebay_load::run(&plan, stop, &mut |progress| live.show(progress));
                live.end();
                let report = report.map_err(|error| (RUN_FAILED, error.to_string()))?;
                if stop.load(Ordering::Relaxed) {
                    tell("stopped by a signal");
                    break 'rates;
                }
                let why = self.conditions.iter().find_map(|one| one.missed(&report));
                tell(&row(rate, &report, why.as_deref()));
                match why {
                    None => {
                        held += 1;
                        best = Some(report);
                    }
                    Some(_) => missed += 1,
                }
            }
            search.tell(rate, held > missed);
        }
        let is_stopped = stop.load(Ordering::Relaxed);
        let (code, said) = match search.end() {
            _ if is_stopped => (RUN_FAILED, "the search is not over".to_owned()),
            SearchEnd::None => (
                NOT_MET,
                format!("it does not hold at {}/s, the lowest rate", show_count(self.bounds.low)),
            ),
            SearchEnd::Found(rate) => (0, format!("it holds up to {}/s", show_count(rate))),
            SearchEnd::AtLeast(rate) => (
                0,
                format!(
                    "it holds at {}/s, the highest rate that was to be tried (--between)",
                    show_count(rate)
                ),
            ),
        };
        match code {
            0 => tell(&said),
            _ => say(&format!("forebay load: {said}")),
        }
        Ok((ExitCode::from(code), best))
    }
}

fn set_rate(plan: &mut LoadPlan, rate: f64) {
    for group in &mut plan.groups {
        if let LoadModel::Open { arrivals, .. } = &mut group.load {
            arrivals.steps.iter_mut().for_each(|step| step.rate = rate);
        }
    }
}

/// One try as a line.
fn row(rate: f64, report: &Report, why: Option<&str>) -> String {
    let mut line = format!("{:>10}", format!("{}/s", show_count(rate)));
    for group in &report.groups {
        let errors = group.failed as f64 / (group.good + group.failed).max(1) as f64;
        // writing into a string does not fail
        let _ = write!(
            line,
            " {:>10} {:>9} {:>9} {:>9} {:>8}",
            format!("{}/s", show_count(group.rate)),
            show_us(group.latency.quantile_us(0.5)),
            show_us(group.latency.quantile_us(0.99)),
            show_us(group.latency.max_us),
            format!("{:.1} %", errors * 100.0)
        );
    }
    line.push_str("  ");
    line.push_str(why.unwrap_or("holds"));
    // with a bottleneck in the generator, the figures may be the generator's and not the server's
    report.generator.bottlenecks.iter().for_each(|warning| {
        let _ = write!(line, "\n           warning: {warning}");
    });
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_two_rates() {
        let read = |text: &str| text.parse::<RateBounds>();
        assert_eq!(read("100/s-20000/s"), Ok(RateBounds { low: 100.0, high: 20_000.0 }));
        assert_eq!(read("5-5"), Ok(RateBounds { low: 5.0, high: 5.0 }));
        for wrong in ["", "5", "-5", "5-", "9-5", "0-5", "a-b", "1-2-3"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
