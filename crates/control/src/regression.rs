//! The fit of `c1` and `c2` to runs at saturation.
//!
//! "Repeat the experiment with different concurrent connections or URL sizes. Each time a different
//! Wmax and Rmax are recorded, every case is corresponding to a fully utilized server, i.e. U = 100 %"
//! (keta §4.2). So for every run `1 = c1·W + c2·R`, and the constants are those that make the sum of the
//! squared errors of `U` least. An error of `U` is a relative error of the capacity: slow and fast runs
//! count the same.

use crate::utilisation::Costs;
use std::fmt;

/// The least number of runs: with two the fit would be exact, and its error unknown.
const LEAST_RUNS: usize = 3;

/// The least difference in size between the answers of the runs: below it the cost of a byte cannot be told
/// from that of a request. It is the squared sine of the angle between `W` and `R` as vectors over the runs.
const LEAST_SPREAD: f64 = 1e-6;

/// A run in which the server was fully used.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SaturatedRun {
    /// `W`: requests per second.
    pub requests_per_s: f64,
    /// `R`: bytes per second.
    pub bytes_per_s: f64,
}

/// The constants, and how well they describe the runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit {
    /// `c1` and `c2`.
    pub costs: Costs,
    /// The standard error of `c1`.
    pub request_error_s: f64,
    /// The standard error of `c2`.
    pub byte_error_s: f64,
    /// R² of `U`: `1 − Σ(1 − c1·W − c2·R)² / n`. The value is the uncentred one, because `U` is 1 in all
    /// runs.
    pub r_squared: f64,
    /// R² of the service time `1/W` as `c1 + c2·x` (keta eq. 1) with `x = R/W`, centred: the share of the
    /// differences between the runs that the size of the answers explains. It is the stricter of the two, and
    /// dominated by the slowest runs. Below 0 when the mean would be the better guess.
    pub service_r_squared: f64,
}

/// Why the runs do not give a fit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FitError {
    /// There are too few runs to know an error.
    TooFew {
        /// The number of runs.
        runs: usize,
        /// The least number of runs.
        least: usize,
    },
    /// A run has no requests, or a rate is negative or NaN.
    Rate {
        /// The index of the run.
        run: usize,
    },
    /// All runs have the same bytes per request, so the two costs cannot be told apart.
    SameSize,
    /// A cost came out negative: the runs were not all at saturation, or something other than the server
    /// limited them.
    Negative {
        /// The costs.
        costs: Costs,
    },
}

impl fmt::Display for FitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FitError::TooFew { runs, least } => {
                write!(f, "{runs} runs are too few, {least} are needed")
            }
            FitError::Rate { run } => write!(f, "run {run} has no usable rates"),
            FitError::SameSize => {
                f.write_str("all runs have the same size of answers; use several sizes")
            }
            FitError::Negative { costs } => write!(
                f,
                "a cost came out negative ({:e} s per request, {:e} s per byte); \
                 were all runs at saturation?",
                costs.request_s, costs.byte_s
            ),
        }
    }
}

impl std::error::Error for FitError {}

/// The least-squares fit of `1 = c1·W + c2·R`.
///
/// # Errors
/// The runs do not determine both costs, or contradict the model.
pub fn fit(runs: &[SaturatedRun]) -> Result<Fit, FitError> {
    if runs.len() < LEAST_RUNS {
        return Err(FitError::TooFew { runs: runs.len(), least: LEAST_RUNS });
    }
    let is_usable = |run: &SaturatedRun| {
        run.requests_per_s > 0.0
            && run.requests_per_s.is_finite()
            && run.bytes_per_s >= 0.0
            && run.bytes_per_s.is_finite()
    };
    if let Some(run) = runs.iter().position(|run| !is_usable(run)) {
        return Err(FitError::Rate { run });
    }
    // both rates are divided by their largest value, so that the squares stay near 1
    let largest = |rate: fn(&SaturatedRun) -> f64| runs.iter().map(rate).fold(0.0, f64::max);
    let (w_unit, r_unit) = (largest(|run| run.requests_per_s), largest(|run| run.bytes_per_s));
    if r_unit == 0.0 {
        return Err(FitError::SameSize);
    }
    let scaled: Vec<_> =
        runs.iter().map(|run| (run.requests_per_s / w_unit, run.bytes_per_s / r_unit)).collect();
    let sum = |term: fn(f64, f64) -> f64| scaled.iter().map(|(w, r)| term(*w, *r)).sum::<f64>();
    let (ww, wr, rr) = (sum(|w, _| w * w), sum(|w, r| w * r), sum(|_, r| r * r));
    let determinant = ww * rr - wr * wr;
    if determinant <= LEAST_SPREAD * ww * rr {
        return Err(FitError::SameSize);
    }
    let (w, r) = (sum(|w, _| w), sum(|_, r| r));
    let (c1, c2) = ((w * rr - r * wr) / determinant, (r * ww - w * wr) / determinant);
    let costs = Costs { request_s: c1 / w_unit, byte_s: c2 / r_unit };
    if c1 < 0.0 || c2 < 0.0 {
        return Err(FitError::Negative { costs });
    }
    let count = runs.len() as f64;
    let missed: f64 = scaled.iter().map(|(w, r)| (1.0 - c1 * w - c2 * r).powi(2)).sum();
    let variance = missed / (count - 2.0);
    Ok(Fit {
        costs,
        request_error_s: (variance * rr / determinant).sqrt() / w_unit,
        byte_error_s: (variance * ww / determinant).sqrt() / r_unit,
        r_squared: 1.0 - missed / count,
        service_r_squared: service_r_squared(runs, &costs),
    })
}

fn service_r_squared(runs: &[SaturatedRun], costs: &Costs) -> f64 {
    let mean = runs.iter().map(|run| 1.0 / run.requests_per_s).sum::<f64>() / runs.len() as f64;
    let (mut missed, mut total) = (0.0, 0.0);
    for run in runs {
        let measured = 1.0 / run.requests_per_s;
        let computed = costs.utilisation(1.0, run.bytes_per_s / run.requests_per_s);
        missed += (measured - computed).powi(2);
        total += (measured - mean).powi(2);
    }
    // if the times do not differ, an exact fit explains them fully
    if total > 0.0 { 1.0 - missed / total } else { f64::from(missed == 0.0) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The run of a server with these costs, and answers of `size` bytes; `error` is relative.
    fn run(request_s: f64, byte_s: f64, size: f64, error: f64) -> SaturatedRun {
        let requests_per_s = (1.0 + error) / (request_s + byte_s * size);
        SaturatedRun { requests_per_s, bytes_per_s: requests_per_s * size }
    }

    #[test]
    fn a_worked_example() {
        // solved by hand: sums WW 14, WR 12, RR 21, W 6, R 7; determinant 150
        let rates = [(1.0, 4.0), (2.0, 1.0), (3.0, 2.0)];
        let runs = rates.map(|(w, r)| SaturatedRun { requests_per_s: w, bytes_per_s: r });
        let fit = fit(&runs).unwrap();
        assert!((fit.costs.request_s - 42.0 / 150.0).abs() < 1e-12);
        assert!((fit.costs.byte_s - 26.0 / 150.0).abs() < 1e-12);
        // errors of U: 4/150, 40/150, −28/150; their squares add up to 2400/150²
        let missed = 2400.0 / 22_500.0;
        assert!((fit.r_squared - (1.0 - missed / 3.0)).abs() < 1e-12);
        assert!((fit.request_error_s - (missed * 21.0 / 150.0f64).sqrt()).abs() < 1e-12);
        assert!((fit.byte_error_s - (missed * 14.0 / 150.0f64).sqrt()).abs() < 1e-12);
    }

    #[test]
    fn runs_that_do_not_fit_the_model_show_it() {
        let sizes = [1e3, 1e4, 1e5, 1e6];
        let errors = [0.3, -0.3, 0.3, -0.3];
        let runs: Vec<_> =
            sizes.iter().zip(errors).map(|(size, error)| run(5e-6, 9e-11, *size, error)).collect();
        let fit = fit(&runs).unwrap();
        assert!(fit.r_squared < 0.95 && fit.request_error_s > 0.1 * fit.costs.request_s);
    }

    #[test]
    fn degenerate_runs_are_errors() {
        let good = [1e3, 1e4, 1e5].map(|size| run(5e-6, 9e-11, size, 0.0));
        assert_eq!(fit(&good[..2]), Err(FitError::TooFew { runs: 2, least: 3 }));
        let same = [0.0, 0.1, -0.1].map(|error| run(5e-6, 9e-11, 1e4, error));
        assert_eq!(fit(&same), Err(FitError::SameSize));
        let empty = [1.0, 2.0, 3.0].map(|w| SaturatedRun { requests_per_s: w, bytes_per_s: 0.0 });
        assert_eq!(fit(&empty), Err(FitError::SameSize));
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let mut bad = good;
            bad[1].requests_per_s = rate;
            assert_eq!(fit(&bad), Err(FitError::Rate { run: 1 }), "{rate}");
        }
        // larger answers came faster, so the runs with small ones were not at saturation
        let rates = [(100.0, 1e4), (200.0, 2e6), (300.0, 9e6)];
        let faster = rates.map(|(w, r)| SaturatedRun { requests_per_s: w, bytes_per_s: r });
        assert!(matches!(fit(&faster), Err(FitError::Negative { .. })), "{:?}", fit(&faster));
    }

    proptest! {
        #[test]
        fn the_costs_are_found_again(
            request_s in 1e-6..1e-3,
            byte_s in 1e-11..1e-8,
            errors in prop::collection::vec(-0.02..0.02, 12),
        ) {
            let sizes = [1e3, 1e5, 1e6].iter().cycle();
            let exact: Vec<_> = sizes.clone().take(12).map(|s| run(request_s, byte_s, *s, 0.0)).collect();
            let fitted = fit(&exact).unwrap();
            prop_assert!((fitted.costs.request_s / request_s - 1.0).abs() < 1e-6);
            prop_assert!((fitted.costs.byte_s / byte_s - 1.0).abs() < 1e-6);
            prop_assert!(fitted.r_squared > 1.0 - 1e-9 && fitted.service_r_squared > 1.0 - 1e-9);

            let runs: Vec<_> =
                sizes.zip(&errors).map(|(s, e)| run(request_s, byte_s, *s, *e)).collect();
            let fitted = fit(&runs);
            if let Ok(fitted) = fitted {
                let off = (fitted.costs.byte_s - byte_s).abs();
                prop_assert!(off <= 6.0 * fitted.byte_error_s + 0.03 * byte_s);
                prop_assert!(fitted.r_squared > 0.99);
            }
        }
    }
}
