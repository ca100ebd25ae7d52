//! Conditions on a report: `gold.p99<5ms`, `flood.errors<=1%`, `rate>1000`.

use super::{GroupReport, Report, TlsReport};
use crate::plan::LoadPlan;
use crate::units::{self, show_count, show_us};
use std::fmt;
use std::str::FromStr;

/// A condition on a figure. Without a group it must hold for every group.
#[derive(Clone, Debug, PartialEq)]
pub struct Expectation {
    group: Option<String>,
    metric: Metric,
    bound: Bound,
    limit: f64,
    text: String,
}

/// The side of its limit on which a figure must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bound {
    Below,
    AtMost,
    Above,
    AtLeast,
}

/// The sign of each bound; of two with the same beginning, the longer one first.
const BOUNDS: [(&str, Bound); 4] =
    [("<=", Bound::AtMost), (">=", Bound::AtLeast), ("<", Bound::Below), (">", Bound::Above)];

impl Bound {
    fn holds(self, value: f64, limit: f64) -> bool {
        match self {
            Bound::Below => value < limit,
            Bound::AtMost => value <= limit,
            Bound::Above => value > limit,
            Bound::AtLeast => value >= limit,
        }
    }
}

/// A figure of a condition; latencies count from the intended start.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Metric {
    Mean,
    /// A percentile of the latency, as a share of 1.
    Quantile(f64),
    Max,
    Rate,
    Goodput,
    Errors,
    Conforming,
    /// TLS handshakes per second.
    Handshakes,
    /// The share of handshakes that resumed a session.
    Resumed,
    /// A percentile of the handshake time, as a share of 1.
    Handshake(f64),
}

const METRICS: [(&str, Metric); 8] = [
    ("mean", Metric::Mean),
    ("max", Metric::Max),
    ("rate", Metric::Rate),
    ("goodput", Metric::Goodput),
    ("errors", Metric::Errors),
    ("conforming", Metric::Conforming),
    ("handshakes", Metric::Handshakes),
    ("resumed", Metric::Resumed),
];

/// Why a condition cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExpectError {
    /// The condition has no `<` or `>`.
    Form,
    /// The condition names no known figure.
    Metric(String),
    /// The limit is not in the unit of the figure.
    Limit(&'static str),
    /// The plan has no group of this name.
    Group(String),
}

impl fmt::Display for ExpectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExpectError::Form => {
                write!(f, "expected [GROUP.]FIGURE and a limit: <5ms, <=1%, >1000 or >=1000")
            }
            ExpectError::Metric(name) => {
                let names = METRICS.map(|(name, _)| name).join(", ");
                write!(
                    f,
                    "{name}: no such figure; there are {names} and percentiles such as p50, p99.9 \
                     or, of handshakes, handshake_p99"
                )
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
        let (what, rest) = text.split_at(place);
        let found = BOUNDS
            .iter()
            .find_map(|(sign, bound)| rest.strip_prefix(sign).map(|limit| (*bound, limit.trim())));
        let (bound, limit) = found.ok_or(ExpectError::Form)?;
        let what = what.trim();
        // `p99.9` has a point of its own, so the whole text is tried first
        let (group, metric) = match (Metric::named(what), what.split_once('.')) {
            (Some(metric), _) => (None, metric),
            (None, Some((group, name))) => {
                let metric =
                    Metric::named(name).ok_or_else(|| ExpectError::Metric(name.to_owned()))?;
                (Some(group.to_owned()), metric)
            }
            (None, None) => return Err(ExpectError::Metric(what.to_owned())),
        };
        let limit = metric.limit(limit).map_err(ExpectError::Limit)?;
        Ok(Expectation { group, metric, bound, limit, text: text.to_owned() })
    }
}

impl Metric {
    fn named(name: &str) -> Option<Metric> {
        if let Some((_, metric)) = METRICS.iter().find(|(known, _)| *known == name) {
            return Some(*metric);
        }
        if let Some(percentile) = name.strip_prefix("handshake_") {
            return match Metric::named(percentile)? {
                Metric::Quantile(share) => Some(Metric::Handshake(share)),
                _ => None,
            };
        }
        let digits = name.strip_prefix('p')?;
        if !digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
            return None;
        }
        let percent: f64 = digits.parse().ok()?;
        (0.0..=100.0).contains(&percent).then_some(Metric::Quantile(percent / 100.0))
    }

    /// Whether the group has measurements for this figure: good answers; for the share of errors,
    /// requests that ended; or handshakes.
    fn is_known(self, group: &GroupReport) -> bool {
        match self {
            Metric::Errors => group.good > 0 || group.failed > 0,
            Metric::Handshakes | Metric::Resumed | Metric::Handshake(_) => {
                group.tls.as_ref().is_some_and(|tls| tls.handshake.count > 0)
            }
            _ => group.good > 0,
        }
    }

    fn limit(self, text: &str) -> Result<f64, &'static str> {
        match self {
            Metric::Errors | Metric::Resumed => {
                let percent = text.strip_suffix('%').and_then(|number| number.trim().parse().ok());
                percent.map(|percent: f64| percent / 100.0).ok_or("a share such as 0.1%")
            }
            Metric::Rate | Metric::Goodput | Metric::Handshakes => units::rate(text),
            Metric::Conforming => text.parse().map_err(|_| "a number of clients"),
            _ => units::duration(text).map(|limit| limit.as_secs_f64() * 1e6),
        }
    }

    fn of(self, group: &GroupReport) -> f64 {
        let of_tls = |figure: fn(&TlsReport) -> f64| group.tls.as_ref().map_or(0.0, figure);
        match self {
            Metric::Mean => group.latency.mean_us,
            Metric::Quantile(share) => group.latency.quantile_us(share),
            Metric::Max => group.latency.max_us,
            Metric::Rate => group.rate,
            Metric::Goodput => group.goodput,
            Metric::Errors => group.failed as f64 / (group.good + group.failed).max(1) as f64,
            Metric::Conforming => group.clients.map_or(0.0, |clients| clients.conforming as f64),
            Metric::Handshakes => of_tls(|tls| tls.rate),
            Metric::Resumed => {
                of_tls(|tls| tls.resumed as f64 / (tls.full + tls.resumed).max(1) as f64)
            }
            Metric::Handshake(share) => {
                group.tls.as_ref().map_or(0.0, |tls| tls.handshake.quantile_us(share))
            }
        }
    }

    fn show(self, value: f64) -> String {
        match self {
            Metric::Errors | Metric::Resumed => format!("{:.3} %", value * 100.0),
            Metric::Rate | Metric::Goodput | Metric::Handshakes => {
                format!("{}/s", show_count(value))
            }
            Metric::Conforming => format!("{value:.0}"),
            _ => show_us(value),
        }
    }
}

impl Expectation {
    /// Checks whether the plan has the group that the condition names.
    ///
    /// # Errors
    /// The plan has no such group.
    pub fn check_names(&self, plan: &LoadPlan) -> Result<(), ExpectError> {
        match &self.group {
            Some(name) if !plan.groups.iter().any(|group| group.name == *name) => {
                Err(ExpectError::Group(name.clone()))
            }
            _ => Ok(()),
        }
    }

    /// Whether the condition is about the share of failed requests.
    pub fn is_about_errors(&self) -> bool {
        self.metric == Metric::Errors
    }

    /// The message if the condition does not hold. For a group without a good answer, no condition
    /// holds except those on its errors.
    pub fn missed(&self, report: &Report) -> Option<String> {
        let asked = |group: &&GroupReport| self.group.as_ref().is_none_or(|n| *n == group.name);
        let holds = |group: &GroupReport| {
            let value = self.metric.of(group);
            self.metric.is_known(group) && self.bound.holds(value, self.limit)
        };
        let group = report.groups.iter().filter(asked).find(|group| !holds(group))?;
        let found = match self.metric {
            metric if metric.is_known(group) => metric.show(metric.of(group)),
            _ if group.good > 0 => "no handshake of TLS".to_owned(),
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
        assert_eq!((gold.group.as_deref(), gold.metric), (Some("gold"), Metric::Quantile(0.99)));
        assert_eq!((gold.limit, gold.bound), (5_000.0, Bound::Below));
        let share = |text: &str| match read(text).metric {
            Metric::Quantile(share) => share,
            other => panic!("{other:?}"),
        };
        for (text, expected) in
            [("p99.9<1s", 0.999), ("gold.p99.9 <= 1s", 0.999), ("p95<1s", 0.95), ("a.p0<1s", 0.0)]
        {
            assert!((share(text) - expected).abs() < 1e-12, "{text}");
        }
        assert!((read("errors<0.1%").limit - 0.001).abs() < 1e-12);
        assert_eq!(read("rate>1000").bound, Bound::Above);
        let handshake = read("a.handshake_p99<5ms");
        assert_eq!((handshake.metric, handshake.limit), (Metric::Handshake(0.99), 5_000.0));
        assert!((read("resumed>=90%").limit - 0.9).abs() < 1e-12);
        assert_eq!(read("handshakes>100").metric, Metric::Handshakes);
        assert_eq!(read("rate>=1000").bound, Bound::AtLeast);
        assert_eq!(read("errors<=0%").bound, Bound::AtMost);
    }

    #[test]
    fn a_bound_is_on_its_side() {
        let held = |bound: Bound| [1.0, 2.0, 3.0].map(|value| bound.holds(value, 2.0));
        assert_eq!(held(Bound::Below), [true, false, false]);
        assert_eq!(held(Bound::AtMost), [true, true, false]);
        assert_eq!(held(Bound::Above), [false, false, true]);
        assert_eq!(held(Bound::AtLeast), [false, true, true]);
    }

    #[test]
    fn nonsense_is_refused() {
        assert_eq!("gold.p99".parse::<Expectation>(), Err(ExpectError::Form));
        for figure in [
            "handshake_max<1s",
            "handshake_<1s",
            "p101<1s",
            "p<1s",
            "p9x<1s",
            "p-1<1s",
            "median<1s",
            "gold.<1s",
        ] {
            let read = figure.parse::<Expectation>();
            assert!(matches!(read, Err(ExpectError::Metric(_))), "{figure}: {read:?}");
        }
        assert!(matches!("p99<5".parse::<Expectation>(), Err(ExpectError::Limit(_))));
        assert!(matches!("p99==5ms".parse::<Expectation>(), Err(ExpectError::Form)));
        assert!(matches!("errors<5".parse::<Expectation>(), Err(ExpectError::Limit(_))));
    }
}
