//! How long an idle connection is kept, depending on the load (duke §III).
//!
//! At light load the time is constant; beyond a threshold it falls linearly. duke §VII.D gives the reason:
//! while a client that wants only one object holds its thread, no other client is served by it. In duke the
//! time falls without limit; here it ends at a floor, reached at full load. The engine decides what load is
//! (ADR 0010).

use std::fmt;

/// How the timeout falls between the threshold and full load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// The timeout is constant.
    Constant,
    /// The timeout falls by the same time for each step of load (duke).
    Linear,
    /// The timeout falls by the same factor for each step of load, so most of it early.
    Exponential,
}

/// The law for the timeout. `u = (load − threshold) / (1 − threshold)`, between 0 and 1:
///
/// - linear: `full − u·(full − floor)`;
/// - exponential: `(full + 1)·((floor + 1) / (full + 1))^u − 1`, in milliseconds; the added ones allow a
///   floor of 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KeepAlive {
    shape: Shape,
    full_ms: u32,
    floor_ms: u32,
    threshold: f64,
}

/// Why the values do not make a law.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum KeepAliveError {
    /// The floor is above the full timeout.
    Floor {
        /// The floor, in milliseconds.
        floor_ms: u32,
        /// The full timeout, in milliseconds.
        full_ms: u32,
    },
    /// The threshold is not between 0 and 1.
    Threshold {
        /// The threshold.
        threshold: f64,
    },
}

impl fmt::Display for KeepAliveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeepAliveError::Floor { floor_ms, full_ms } => {
                write!(f, "the floor of {floor_ms} ms lies above the full timeout of {full_ms} ms")
            }
            KeepAliveError::Threshold { threshold } => {
                write!(f, "the threshold {threshold} must lie between 0 and 1")
            }
        }
    }
}

impl std::error::Error for KeepAliveError {}

impl KeepAlive {
    /// A timeout of `full_ms` until the load exceeds `threshold` (0 to 1), then less, down to `floor_ms` at
    /// load 1.
    ///
    /// # Errors
    /// The floor is above the full timeout, or the threshold is outside its range.
    pub fn new(
        shape: Shape,
        full_ms: u32,
        floor_ms: u32,
        threshold: f64,
    ) -> Result<KeepAlive, KeepAliveError> {
        if floor_ms > full_ms {
            return Err(KeepAliveError::Floor { floor_ms, full_ms });
        }
        if !(0.0..=1.0).contains(&threshold) {
            return Err(KeepAliveError::Threshold { threshold });
        }
        Ok(KeepAlive { shape, full_ms, floor_ms, threshold })
    }

    /// How long an idle connection is kept at this load, in milliseconds. A load above 1 counts as 1; a load
    /// below 0, or NaN, counts as 0.
    pub fn timeout_ms(&self, load: f64) -> u32 {
        let load = load.clamp(0.0, 1.0);
        let is_heavy = load > self.threshold; // What is no number is not.
        if !is_heavy || self.shape == Shape::Constant {
            return self.full_ms;
        }
        let share = (load - self.threshold) / (1.0 - self.threshold);
        let (full, floor) = (f64::from(self.full_ms), f64::from(self.floor_ms));
        let timeout = match self.shape {
            Shape::Exponential => (full + 1.0) * ((floor + 1.0) / (full + 1.0)).powf(share) - 1.0,
            _ => full - share * (full - floor),
        };
        (timeout.round() as u32).clamp(self.floor_ms, self.full_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn law(shape: Shape) -> KeepAlive {
        KeepAlive::new(shape, 10_000, 1_000, 0.6).unwrap()
    }

    #[test]
    fn constant_until_the_threshold_then_linear_to_the_floor() {
        let law = law(Shape::Linear);
        let at = [0.0, 0.3, 0.6, 0.7, 0.8, 0.9, 1.0].map(|load| law.timeout_ms(load));
        assert_eq!(at, [10_000, 10_000, 10_000, 7_750, 5_500, 3_250, 1_000]);
    }

    #[test]
    fn exponential_falls_by_equal_factors() {
        let law = law(Shape::Exponential);
        let at = [0.6, 0.7, 0.8, 0.9, 1.0].map(|load| f64::from(law.timeout_ms(load)));
        for pair in at.windows(2) {
            assert!((pair[1] / pair[0] - 0.1f64.powf(0.25)).abs() < 0.002, "{at:?}");
        }
        assert_eq!(at[4], 1_000.0);
    }

    #[test]
    fn constant_stays() {
        assert_eq!(law(Shape::Constant).timeout_ms(1.0), 10_000);
    }

    #[test]
    fn odd_loads_and_edges() {
        let law = law(Shape::Linear);
        assert_eq!(law.timeout_ms(f64::NAN), 10_000);
        assert_eq!(law.timeout_ms(-3.0), 10_000);
        assert_eq!(law.timeout_ms(f64::INFINITY), 1_000);
        let never = KeepAlive::new(Shape::Linear, 10, 0, 1.0).unwrap();
        assert_eq!([1.0, 2.0].map(|load| never.timeout_ms(load)), [10, 10]);
        let to_nothing = KeepAlive::new(Shape::Exponential, 10_000, 0, 0.0).unwrap();
        assert_eq!([0.0, 1.0].map(|load| to_nothing.timeout_ms(load)), [10_000, 0]);
        assert!((99..=100).contains(&to_nothing.timeout_ms(0.5)), "the geometric mean");
    }

    #[test]
    fn contradictions_are_errors() {
        let error = KeepAliveError::Floor { floor_ms: 2, full_ms: 1 };
        assert_eq!(KeepAlive::new(Shape::Linear, 1, 2, 0.5), Err(error));
        let error = KeepAliveError::Threshold { threshold: 1.5 };
        assert_eq!(KeepAlive::new(Shape::Linear, 2, 1, 1.5), Err(error));
        assert!(KeepAlive::new(Shape::Linear, 2, 1, f64::NAN).is_err());
    }

    proptest! {
        #[test]
        fn more_load_never_means_more_time(
            shape in prop_oneof![Just(Shape::Constant), Just(Shape::Linear), Just(Shape::Exponential)],
            full_ms: u32,
            part in 0.0..=1.0,
            threshold in 0.0..=1.0,
            loads in [-0.5f64..1.5, -0.5..1.5],
        ) {
            let floor_ms = (f64::from(full_ms) * part) as u32;
            let law = KeepAlive::new(shape, full_ms, floor_ms, threshold).unwrap();
            let [low, high] = [loads[0].min(loads[1]), loads[0].max(loads[1])];
            let (long, short) = (law.timeout_ms(low), law.timeout_ms(high));
            prop_assert!(floor_ms <= short && short <= long && long <= full_ms);
            prop_assert!(low > threshold || long == full_ms);
            prop_assert!(shape == Shape::Constant || threshold == 1.0 || law.timeout_ms(1.0) == floor_ms);
        }
    }
}
