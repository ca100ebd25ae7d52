//! The load monitor: one number for how much of the server is used, and whether the server is busy.
//!
//! The service time of a request of `x` bytes is a fixed part and a part by size, `c1 + c2·x` (keta
//! §4.2, eq. 1). Summed over the requests of a period and divided by its length: `U = c1·W + c2·R`
//! (keta §4.2, eq. 2), with `W` in requests per second and `R` in bytes per second. `U` is 1 when
//! the server is fully used.

/// The constants of `U = c1·W + c2·R` for one machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// `c1`: the share of the server's capacity, in seconds, that one request takes.
    pub request_s: f64,
    /// `c2`: the share of the server's capacity, in seconds, that one byte takes.
    pub byte_s: f64,
}

impl Costs {
    /// The costs of a request and a byte without a calibration: 5.3 µs and 0.087 ns of one core, as
    /// measured with hot files of 1 KB to 1 MB over loopback (see `BENCHMARKING.md`), divided by
    /// `cores`.
    pub fn uncalibrated(cores: u32) -> Costs {
        let cores = f64::from(cores.max(1));
        Costs { request_s: 5.3e-6 / cores, byte_s: 0.087e-9 / cores }
    }

    /// `U` for these rates; 1 is a fully used server.
    pub fn utilisation(&self, requests_per_s: f64, bytes_per_s: f64) -> f64 {
        self.request_s * requests_per_s + self.byte_s * bytes_per_s
    }
}

/// The utilisations between which the state does not change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Thresholds {
    /// The utilisation from which on the server is busy.
    pub busy: f64,
    /// The utilisation below which it is no longer busy; less than `busy`.
    pub calm: f64,
}

impl Thresholds {
    /// Busy at half of the capacity, calm again below three tenths.
    pub const DEFAULT: Thresholds = Thresholds { busy: 0.5, calm: 0.3 };
}

/// The weight of the newest period in the moving averages. With a quarter, two thirds of a step
/// show after four periods, and one odd period does not switch the state.
const NEWEST: f64 = 0.25;

/// Follows the load, period by period.
#[derive(Clone, Debug)]
pub struct Monitor {
    costs: Costs,
    thresholds: Thresholds,
    now: MeasuredLoad,
    has_begun: bool,
}

/// The load after a period.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MeasuredLoad {
    /// `W`, requests per second, as a moving average.
    pub requests_per_s: f64,
    /// `W(i+1) − W(i)` of that average.
    pub change_per_s: f64,
    /// `R`, bytes per second, as a moving average.
    pub bytes_per_s: f64,
    /// `U` of both averages.
    pub utilisation: f64,
    /// Whether the server counts as busy.
    pub is_busy: bool,
}

impl Monitor {
    /// A monitor that is not busy and has no measurements yet.
    pub fn new(costs: Costs, thresholds: Thresholds) -> Monitor {
        Monitor { costs, thresholds, now: MeasuredLoad::default(), has_begun: false }
    }

    /// Takes the measurements of a period and returns the load.
    pub fn step(&mut self, requests_per_s: f64, bytes_per_s: f64) -> MeasuredLoad {
        let weight = if self.has_begun { NEWEST } else { 1.0 };
        self.has_begun = true;
        let before = self.now;
        // NaN would stay in the averages for ever
        let average =
            |old: f64, new: f64| old + weight * (if new.is_finite() { new } else { old } - old);
        let requests_per_s = average(before.requests_per_s, requests_per_s);
        let bytes_per_s = average(before.bytes_per_s, bytes_per_s);
        let utilisation = self.costs.utilisation(requests_per_s, bytes_per_s);
        let enough = if before.is_busy { self.thresholds.calm } else { self.thresholds.busy };
        self.now = MeasuredLoad {
            requests_per_s,
            change_per_s: requests_per_s - before.requests_per_s,
            bytes_per_s,
            utilisation,
            is_busy: utilisation >= enough,
        };
        self.now
    }

    /// The load after the last period.
    pub fn load(&self) -> MeasuredLoad {
        self.now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_core_is_full_with_what_it_was_measured_at() {
        let costs = Costs::uncalibrated(1);
        assert!((costs.utilisation(188_679.0, 0.0) - 1.0).abs() < 1e-3);
        // requests of 1 MB take 92 µs each
        let utilisation = costs.utilisation(10_800.0, 10_800.0 * 1e6);
        assert!((utilisation - 1.0).abs() < 0.01, "{utilisation}");
    }

    #[test]
    fn more_cores_are_full_later() {
        let (one, four) = (Costs::uncalibrated(1), Costs::uncalibrated(4));
        assert_eq!(one.utilisation(1e4, 1e7), 4.0 * four.utilisation(1e4, 1e7));
    }

    #[test]
    fn between_the_thresholds_the_state_stays() {
        let costs = Costs { request_s: 0.001, byte_s: 0.0 };
        let mut monitor = Monitor::new(costs, Thresholds::DEFAULT);
        assert!(!monitor.step(400.0, 0.0).is_busy);
        while monitor.load().utilisation < 0.5 {
            assert!(!monitor.load().is_busy);
            monitor.step(600.0, 0.0);
        }
        assert!(monitor.load().is_busy);
        for _ in 0..20 {
            assert!(monitor.step(350.0, 0.0).is_busy);
        }
        // one empty period takes 350 to 262, below three tenths of 1,000
        assert!(!monitor.step(0.0, 0.0).is_busy);
    }

    #[test]
    fn what_is_no_number_changes_nothing() {
        let mut monitor = Monitor::new(Costs::uncalibrated(2), Thresholds::DEFAULT);
        let before = monitor.step(1_000.0, 1e6);
        let after = monitor.step(f64::NAN, f64::INFINITY);
        assert_eq!(after, MeasuredLoad { change_per_s: 0.0, ..before });
    }

    #[test]
    fn the_change_of_the_rate_adds_up_to_the_rate() {
        let mut monitor = Monitor::new(Costs::uncalibrated(2), Thresholds::DEFAULT);
        let rates = [0.0, 100.0, 50.0, 4_000.0, 10.0];
        let sum: f64 = rates.iter().map(|rate| monitor.step(*rate, 0.0).change_per_s).sum();
        assert!((sum - monitor.load().requests_per_s).abs() < 1e-9);
    }
}
