//! Conditions on a report: `gold.p99<5ms`, `flood.errors<1%`, `rate>1000`.

use super::{GroupReport, Report};
use crate::plan::Plan;
use crate::units::{self, show_count, show_us};
use std::fmt;
use std::str::FromStr;

/// A condition. Without a group it must hold for every group.
#[derive(Clone, Debug, PartialEq)]
pub struct Expectation {
    group: Option<String>,
    metric: Metric,
    at_most: bool,
    limit: f64,
    text: String,
}

/// What can be asked about; latencies count from the intended start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Metric {
    Mean,
    P50,
    P90,
    P99,
    P999,
    Max,
    Rate,
    Goodput,
    Errors,
    Conforming,
}

const METRICS: [(&str, Metric); 10] = [
    ("mean", Metric::Mean),
    ("p50", Metric::P50),
    ("p90", Metric::P90),
    ("p99", Metric::P99),
    ("p99.9", Metric::P999),
    ("max", Metric::Max),
    ("rate", Metric::Rate),
    ("goodput", Metric::Goodput),
    ("errors", Metric::Errors),
    ("conforming", Metric::Conforming),
];

/// Why a condition was not understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExpectError {
    /// It has no `<` or `>`.
    Form,
    /// There is no such figure.
    Metric(String),
    /// The limit is not what the figure is measured in.
    Limit(&'static str),
    /// The plan has no such group.
    Group(String),
}

impl fmt::Display for ExpectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExpectError::Form => write!(f, "expected [GROUP.]FIGURE<LIMIT or >LIMIT"),
            ExpectError::Metric(name) => {
                let names = METRICS.map(|(name, _)| name).join(", ");
                write!(f, "{name}: no such figure; there are {names}")
            }
            ExpectError::Limit(expected) => write!(f, "the limit: expected {expected}"),
            ExpectError::Group(name) => write!(f, "--expect {name}: there is no such group"),
        }
    }
}

impl std::error::Error for ExpectError {}

impl FromStr for Expectation {
    type Err = ExpectError;

    fn from_str(text: &str) -> Result<Expectation, ExpectError> {
        let place = text.find(['<', '>']).ok_or(ExpectError::Form)?;
        let (what, limit) = (text[..place].trim(), text[place + 1..].trim());
        let known = |name: &str| METRICS.iter().find(|(known, _)| *known == name).map(|m| m.1);
        // `p99.9` has a point of its own, so the whole is tried first.
        let (group, metric) = match (known(what), what.split_once('.')) {
            (Some(metric), _) => (None, metric),
            (None, Some((group, name))) => {
                let metric = known(name).ok_or_else(|| ExpectError::Metric(name.to_owned()))?;
                (Some(group.to_owned()), metric)
            }
            (None, None) => return Err(ExpectError::Metric(what.to_owned())),
        };
        let limit = metric.limit(limit).map_err(ExpectError::Limit)?;
        let at_most = text.as_bytes()[place] == b'<';
        Ok(Expectation { group, metric, at_most, limit, text: text.to_owned() })
    }
}

impl Metric {
    /// Whether the group has what this is a figure of: good answers; for the share of errors,
    /// requests that came to an end.
    fn is_known(self, group: &GroupReport) -> bool {
        group.good > 0 || (self == Metric::Errors && group.failed > 0)
    }

    fn limit(self, text: &str) -> Result<f64, &'static str> {
        match self {
            Metric::Errors => {
                let percent = text.strip_suffix('%').and_then(|number| number.trim().parse().ok());
                percent.map(|percent: f64| percent / 100.0).ok_or("a share such as 0.1%")
            }
            Metric::Rate | Metric::Goodput => units::rate(text),
            Metric::Conforming => text.parse().map_err(|_| "a number of clients"),
            _ => units::duration(text).map(|limit| limit.as_secs_f64() * 1e6),
        }
    }

    fn of(self, group: &GroupReport) -> f64 {
        match self {
            Metric::Mean => group.latency.mean_us,
            Metric::P50 => group.latency.p50_us,
            Metric::P90 => group.latency.p90_us,
            Metric::P99 => group.latency.p99_us,
            Metric::P999 => group.latency.p999_us,
            Metric::Max => group.latency.max_us,
            Metric::Rate => group.rate,
            Metric::Goodput => group.goodput,
            Metric::Errors => group.failed as f64 / (group.good + group.failed).max(1) as f64,
            Metric::Conforming => group.clients.map_or(0.0, |clients| clients.conforming as f64),
        }
    }

    fn show(self, value: f64) -> String {
        match self {
            Metric::Errors => format!("{:.3} %", value * 100.0),
            Metric::Rate | Metric::Goodput => format!("{}/s", show_count(value)),
            Metric::Conforming => format!("{value:.0}"),
            _ => show_us(value),
        }
    }
}

impl Expectation {
    /// Whether the plan has the group it is about.
    ///
    /// # Errors
    /// When it has not.
    pub fn check_names(&self, plan: &Plan) -> Result<(), ExpectError> {
        match &self.group {
            Some(name) if !plan.groups.iter().any(|group| group.name == *name) => {
                Err(ExpectError::Group(name.clone()))
            }
            _ => Ok(()),
        }
    }

    /// What is wrong if it does not hold, as a line for people. Of a group without one good answer
    /// nothing holds but what is said about its errors.
    pub fn missed(&self, report: &Report) -> Option<String> {
        let asked = |group: &&GroupReport| self.group.as_ref().is_none_or(|n| *n == group.name);
        let holds = |group: &GroupReport| {
            let value = self.metric.of(group);
            let is_within = if self.at_most { value < self.limit } else { value > self.limit };
            is_within && self.metric.is_known(group)
        };
        let group = report.groups.iter().filter(asked).find(|group| !holds(group))?;
        let found = match self.metric {
            metric if metric.is_known(group) => metric.show(metric.of(group)),
            _ => format!("not one good answer{}", group.why_failed()),
        };
        Some(format!("expected {}: {} has {found}", self.text, group.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_read() {
        let read = |text: &str| text.parse::<Expectation>().unwrap();
        let gold = read("gold.p99<5ms");
        assert_eq!((gold.group.as_deref(), gold.metric), (Some("gold"), Metric::P99));
        assert_eq!((gold.limit, gold.at_most), (5_000.0, true));
        assert_eq!(read("p99.9<1s").metric, Metric::P999);
        assert_eq!(read("gold.p99.9 < 1s").metric, Metric::P999);
        assert!((read("errors<0.1%").limit - 0.001).abs() < 1e-12);
        assert!(!read("rate>1000").at_most);
    }

    #[test]
    fn nonsense_is_refused() {
        assert_eq!("gold.p99".parse::<Expectation>(), Err(ExpectError::Form));
        assert!(matches!("p98<1s".parse::<Expectation>(), Err(ExpectError::Metric(_))));
        assert!(matches!("p99<5".parse::<Expectation>(), Err(ExpectError::Limit(_))));
        assert!(matches!("errors<5".parse::<Expectation>(), Err(ExpectError::Limit(_))));
    }
}
