//! An axis and its ticks: the position of a value, and its label.

use crate::units::{show_count, show_us};

/// The kind of values along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChartAxis {
    /// Numbers, from 0, or from the least one if that is less.
    Linear,
    /// Numbers by their logarithm. Those that are not above 0 stand apart, at the lower end.
    Log,
    /// Seconds, from 0.
    Seconds,
    /// Quantiles, spread by the logarithm of their distance to 1.
    Quantile,
    /// A number per second, from 0.
    PerSecond,
    /// Microseconds, by their logarithm.
    Time,
}

/// The range of an axis, and its ticks.
pub(super) struct Scale {
    pub(super) axis: ChartAxis,
    pub(super) from: f64,
    pub(super) to: f64,
    pub(super) ticks: Vec<f64>,
    /// The least value whose logarithm is taken.
    least: f64,
}

/// How far below the least number above 0 the others stand, in decades.
const BELOW: f64 = 0.5;

impl Scale {
    /// The scale for these values, with about `ticks` ticks.
    pub(super) fn new(axis: ChartAxis, values: impl Iterator<Item = f64>, ticks: f64) -> Scale {
        let (mut low, mut high, mut above) = (f64::INFINITY, f64::NEG_INFINITY, f64::INFINITY);
        for value in values {
            (low, high) = (low.min(value), high.max(value));
            if value > 0.0 {
                above = above.min(value);
            }
        }
        if low > high {
            return Scale { axis, from: 0.0, to: 1.0, ticks: Vec::new(), least: 0.1 };
        }
        match axis {
            ChartAxis::Seconds => Scale::even(axis, 0.0, high, ticks),
            // room above the highest value, so that a constant line is not at the edge
            ChartAxis::PerSecond => Scale::even(axis, 0.0, high * 1.05, ticks),
            ChartAxis::Linear => {
                let room = 0.05 * (high - low.min(0.0));
                let from = if low < 0.0 { low - room } else { 0.0 };
                Scale::even(axis, from, high + room, ticks)
            }
            ChartAxis::Quantile => Scale::quantiles(high),
            ChartAxis::Time => Scale::decades(axis, low.max(0.1), high.max(1.0), ticks),
            ChartAxis::Log if above.is_finite() => {
                let mut scale = Scale::decades(axis, above, high, ticks);
                if low <= 0.0 {
                    scale.least = above * 10f64.powf(-BELOW);
                    scale.from = scale.least.log10() - 0.05;
                    scale.ticks.retain(|tick| *tick >= above * 0.9);
                    scale.ticks.insert(0, 0.0);
                }
                scale
            }
            ChartAxis::Log => Scale::even(ChartAxis::Linear, 0.0, 1.0, ticks),
        }
    }

    /// A scale with round ticks.
    pub(super) fn even(axis: ChartAxis, from: f64, high: f64, ticks: f64) -> Scale {
        // if all values are 0, the scale reaches one of what is counted
        let high = if high > from { high } else { from + 1.0 };
        let raw = (high - from) / ticks;
        let magnitude = 10f64.powf(raw.log10().floor());
        let factor = [1.0, 2.0, 5.0].into_iter().find(|f| f * magnitude >= raw).unwrap_or(10.0);
        let step = factor * magnitude;
        let first = (from / step).ceil();
        let ticks = (0..).map(|n| (first + f64::from(n)) * step).take_while(|tick| *tick <= high);
        Scale { axis, from, to: high, ticks: ticks.collect(), least: 0.1 }
    }

    pub(super) fn quantiles(high: f64) -> Scale {
        let nines = [0.0, 0.9, 0.99, 0.999, 0.9999, 0.99999, 0.999_999];
        let ticks: Vec<_> = nines.into_iter().filter(|quantile| *quantile <= high).collect();
        Scale { axis: ChartAxis::Quantile, from: 0.0, to: spread(high) + 0.1, ticks, least: 0.1 }
    }

    /// A scale of whole decades, or of parts of them when there are few.
    pub(super) fn decades(axis: ChartAxis, low: f64, high: f64, most: f64) -> Scale {
        let (from, to) = ((low * 0.9).log10(), (high * 1.3).log10());
        let is_short = match axis {
            ChartAxis::Log => 3.0 * (to - from) < most + 3.0,
            _ => to - from < most / 4.0,
        };
        let steps: &[f64] = if is_short { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let decades = (from.floor() as i32)..=(to.ceil() as i32);
        let ticks = decades.flat_map(|d| steps.iter().map(move |s| s * 10f64.powi(d)));
        let ticks = ticks.filter(|tick| (from..=to).contains(&tick.log10())).collect();
        let least = if axis == ChartAxis::Time { 0.1 } else { low * 0.9 };
        Scale { axis, from, to, ticks, least }
    }

    /// The position of a value, 0 to 1.
    pub(super) fn place(&self, value: f64) -> f64 {
        let value = match self.axis {
            ChartAxis::Quantile => spread(value),
            ChartAxis::Time | ChartAxis::Log => value.max(self.least).log10(),
            _ => value,
        };
        ((value - self.from) / (self.to - self.from).max(1e-12)).clamp(0.0, 1.0)
    }

    pub(super) fn label(&self, value: f64) -> String {
        match self.axis {
            ChartAxis::Seconds => format!("{} s", (value * 100.0).round() / 100.0),
            ChartAxis::Quantile if value == 0.0 => "min".to_owned(),
            ChartAxis::Quantile => format!("p{}", (value * 1e8).round() / 1e6),
            ChartAxis::PerSecond => show_count(value),
            ChartAxis::Linear | ChartAxis::Log => show_number(value),
            ChartAxis::Time if value >= 1e6 => format!("{} s", value / 1e6),
            ChartAxis::Time if value >= 1e3 => format!("{} ms", value / 1e3),
            ChartAxis::Time => show_us(value),
        }
    }
}

/// The number of a tick, without digits that come from rounding errors.
fn show_number(value: f64) -> String {
    let size = value.abs();
    match size {
        _ if size >= 1e6 => format!("{} M", (value / 1e4).round() / 100.0),
        _ if size >= 1e4 => format!("{} k", (value / 10.0).round() / 100.0),
        _ => format!("{}", (value * 1e6).round() / 1e6),
    }
}

/// The distance of a quantile from 0 when each nine gets as much width as the one before.
fn spread(quantile: f64) -> f64 {
    -(1.0 - quantile).max(1e-7).log10()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(scale: &Scale) -> Vec<String> {
        scale.ticks.iter().map(|tick| scale.label(*tick)).collect()
    }

    #[test]
    fn ticks_are_round() {
        let even = Scale::even(ChartAxis::Seconds, 0.0, 10.0, 10.0);
        assert_eq!(even.ticks.len(), 11);
        assert_eq!(even.label(even.ticks[3]), "3 s");
        assert_eq!(labels(&Scale::quantiles(0.9995)), ["min", "p90", "p99", "p99.9"]);
        let decades = Scale::decades(ChartAxis::Time, 30.0, 2e6, 10.0);
        assert_eq!(labels(&decades), ["100 µs", "1 ms", "10 ms", "100 ms", "1 s"]);
    }

    #[test]
    fn linear_axes_begin_at_0_or_below_it() {
        let above = Scale::new(ChartAxis::Linear, [0.1, 0.3].into_iter(), 5.0);
        assert_eq!(labels(&above), ["0", "0.1", "0.2", "0.3"]);
        let below = Scale::new(ChartAxis::Linear, [-4.0, 2.0].into_iter(), 5.0);
        assert_eq!(labels(&below), ["-4", "-2", "0", "2"]);
        assert!(below.place(-4.0) > 0.0 && below.place(2.0) < 1.0);
    }

    #[test]
    fn zeros_stand_left_of_a_logarithmic_axis() {
        let scale = Scale::new(ChartAxis::Log, [0.0, 20.0, 650.0, 4000.0].into_iter(), 4.0);
        assert_eq!(labels(&scale), ["0", "100", "1000"]);
        let short = Scale::new(ChartAxis::Log, [20.0, 650.0].into_iter(), 5.0);
        assert_eq!(labels(&short), ["20", "50", "100", "200", "500"]);
        let places: Vec<_> = [0.0, 20.0, 650.0, 4000.0].map(|value| scale.place(value)).to_vec();
        assert!(places.windows(2).all(|two| two[0] < two[1]), "{places:?}");
        let nothing = Scale::new(ChartAxis::Log, [0.0, 0.0].into_iter(), 4.0);
        assert!(nothing.place(0.0).is_finite());
    }
}
