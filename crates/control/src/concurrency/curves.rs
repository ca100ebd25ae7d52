//! The ways in which goodput may depend on the number of requests under way, and the probability of each
//! after the measurements.
//!
//! By each [`Curve`], goodput grows with the requests under way up to a knee, more or less sharply, and then
//! stays or falls. The duration of a single request is not known, and drifts. So each curve has a filter for
//! it (a Kalman filter for one number with a random walk): a measurement counts for or against a curve only
//! by how it differs from those shortly before it, at other numbers under way.

/// The weight of waiting against goodput: beyond the knee, more requests under way are worth it if the
/// logarithm of goodput grows by this much for each unit of the logarithm of their number. The costs are lost
/// goodput, and requests that wait in the application out of the order of their classes; the first counts ten
/// times as much.
const WORTH: f64 = 0.07;

/// The shapes of curves: how sharp the knee is, how goodput falls beyond it, and how likely the shape is
/// before any measurement. A pool of workers has a perfectly sharp knee. A lock for which requests wait at
/// random rounds it.
const SHAPES: [KneeShape; 8] = [
    KneeShape { sharpness: f64::INFINITY, fall: 0.0, prior: 0.45 },
    KneeShape { sharpness: f64::INFINITY, fall: 0.15, prior: 0.10 },
    KneeShape { sharpness: f64::INFINITY, fall: 1.0, prior: 0.05 },
    KneeShape { sharpness: 6.0, fall: 0.0, prior: 0.15 },
    KneeShape { sharpness: 6.0, fall: 0.15, prior: 0.05 },
    KneeShape { sharpness: 6.0, fall: 1.0, prior: 0.05 },
    KneeShape { sharpness: 3.0, fall: 0.0, prior: 0.10 },
    KneeShape { sharpness: 3.0, fall: 0.15, prior: 0.05 },
];

/// Up to this number there is a curve for each knee; beyond, each knee is the one before times the factor.
const EACH_KNEE: u32 = 20;
const NEXT_KNEE: f64 = 1.05;

/// The part of the earlier measurements' weight that is kept at each new one: about the last hundred count.
const REMEMBERED: f64 = 0.99;
/// The variance by which the logarithm of a request's duration changes between two measurements.
const DRIFT: f64 = 1e-4;
/// The least logarithm of a curve's likelihood relative to the best, so that a curve can become likely again
/// when the application changes.
const LEAST_LIKELY: f64 = -12.0;
/// The most that one measurement counts against a curve, in squared deviations.
const MOST_SQUARES: f64 = 25.0;
/// The squared deviation from all likely curves above which a measurement is a surprise.
const SURPRISING_SQUARES: f64 = 12.0;
/// The least logarithm of the relative likelihood of a likely curve.
const LIKELY: f64 = -6.0;
/// The part of the knowledge that is kept after a surprise.
const KEPT_IN_SURPRISE: f64 = 0.25;

#[derive(Clone, Copy, Debug)]
struct KneeShape {
    sharpness: f64,
    fall: f64,
    prior: f64,
}

impl KneeShape {
    /// The logarithm of goodput in units of the goodput of one request alone. `load` is the number of
    /// requests under way divided by the knee, and `ln_knee` the logarithm of the knee.
    fn ln_goodput(self, load: f64, ln_knee: f64) -> f64 {
        let ln_load = load.ln();
        let rise = match self.sharpness.is_finite() {
            true => ln_load - (1.0 + load.powf(self.sharpness)).ln() / self.sharpness,
            false => ln_load.min(0.0),
        };
        let fall =
            if load > 1.0 && self.fall > 0.0 { (1.0 + self.fall * (load - 1.0)).ln() } else { 0.0 };
        ln_knee + rise - fall
    }

    /// The number of requests worth having under way, divided by the knee.
    fn useful_load(self) -> f64 {
        let worth = |load: f64| self.ln_goodput(load, 0.0) - WORTH * load.ln();
        let loads = (40..=300).map(|hundredths| f64::from(hundredths) / 100.0);
        loads.max_by(|a, b| worth(*a).total_cmp(&worth(*b))).unwrap_or(1.0)
    }
}

/// One way in which goodput may depend on the number of requests under way.
#[derive(Clone, Debug)]
struct Curve {
    ln_knee: f64,
    shape: KneeShape,
    /// The number of requests worth having under way.
    useful: f64,
    prior: f64,
    /// The logarithm of the goodput of one request alone.
    ln_rate: f64,
    /// The logarithm of the likelihood of the measurements by this curve, relative to the best.
    ln_likely: f64,
}

impl Curve {
    fn ln_goodput(&self, under_way: f64) -> f64 {
        self.shape.ln_goodput(under_way / self.ln_knee.exp(), self.ln_knee) + self.ln_rate
    }
}

/// All curves, ordered by their useful number.
#[derive(Clone, Debug)]
pub(super) struct Curves {
    curves: Vec<Curve>,
    /// The uncertainty of each `ln_rate`, as a variance.
    uncertain: f64,
}

impl Curves {
    /// Curves with knees up to `most`.
    pub(super) fn new(most: u32) -> Curves {
        let mut knees: Vec<f64> = (1..=EACH_KNEE.min(most)).map(f64::from).collect();
        while let Some(last) = knees.last().filter(|last| **last * NEXT_KNEE <= f64::from(most)) {
            let next = last * NEXT_KNEE;
            knees.push(next);
        }
        let mut curves = Vec::with_capacity(knees.len() * SHAPES.len());
        for shape in SHAPES {
            let load = shape.useful_load();
            curves.extend(knees.iter().map(|knee| Curve {
                ln_knee: knee.ln(),
                shape,
                useful: knee * load,
                // all factors are equally likely
                prior: shape.prior * (1.0 / knee).clamp(NEXT_KNEE - 1.0, 0.7),
                ln_rate: 0.0,
                ln_likely: 0.0,
            }));
        }
        curves.sort_by(|a, b| a.useful.total_cmp(&b.useful));
        Curves { curves, uncertain: f64::INFINITY }
    }

    /// Updates the curves with a measurement: `ln_goodput` with `under_way` requests on average, with this
    /// variance. Returns whether it is a surprise.
    pub(super) fn measured(&mut self, under_way: f64, ln_goodput: f64, variance: f64) -> bool {
        let before = self.uncertain.min(1e6);
        let spread = before + variance;
        let gain = before / spread;
        let (mut least_squares, mut likeliest) = (f64::INFINITY, f64::NEG_INFINITY);
        for curve in &mut self.curves {
            let off = ln_goodput - curve.ln_goodput(under_way);
            let squares = (off * off / spread).min(MOST_SQUARES);
            if curve.ln_likely > LIKELY {
                least_squares = squares.min(least_squares);
            }
            curve.ln_likely = REMEMBERED * curve.ln_likely - squares / 2.0;
            curve.ln_rate += gain * off;
            likeliest = curve.ln_likely.max(likeliest);
        }
        let is_surprise = least_squares > SURPRISING_SQUARES;
        let kept = if is_surprise { KEPT_IN_SURPRISE } else { 1.0 };
        for curve in &mut self.curves {
            curve.ln_likely = kept * (curve.ln_likely - likeliest).max(LEAST_LIKELY);
        }
        self.uncertain = (1.0 - gain) * before + DRIFT;
        if is_surprise {
            self.uncertain += 0.25;
        }
        is_surprise
    }

    /// Takes the duration of a request as unknown again, and keeps only the part `kept` of what is known
    /// about the knee.
    pub(super) fn interrupted(&mut self, kept: f64) {
        self.uncertain = f64::INFINITY;
        self.curves.iter_mut().for_each(|curve| curve.ln_likely *= kept);
    }

    /// For each of `parts`, the useful number that is not exceeded with this probability.
    pub(super) fn useful<const N: usize>(&self, parts: [f64; N]) -> [f64; N] {
        let weight = |curve: &Curve| curve.prior * curve.ln_likely.exp();
        let all: f64 = self.curves.iter().map(weight).sum();
        let mut found = [self.curves.last().map_or(1.0, |last| last.useful); N];
        let mut passed = 0.0;
        let mut at = 0;
        for curve in &self.curves {
            passed += weight(curve);
            while at < N && passed >= parts[at] * all {
                found[at] = curve.useful;
                at += 1;
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_useful_lies_at_the_knee_or_behind_it() {
        let load = |sharpness, fall| KneeShape { sharpness, fall, prior: 1.0 }.useful_load();
        assert_eq!(load(f64::INFINITY, 0.0), 1.0);
        assert_eq!(load(f64::INFINITY, 1.0), 1.0);
        assert!((load(3.0, 0.0) - (1.0 / WORTH - 1.0).powf(1.0 / 3.0)).abs() < 0.01);
        assert!(load(3.0, 0.15) < load(3.0, 0.0));
        assert!(load(6.0, 1.0) < load(6.0, 0.15));
    }

    #[test]
    fn two_measurements_tell_a_knee_from_none() {
        let mut flat = Curves::new(1000);
        flat.measured(8.0, 0.0, 0.01);
        flat.measured(16.0, 0.0, 0.01);
        assert!(flat.useful([0.5])[0] < 10.0, "{:?}", flat.useful([0.05, 0.5, 0.9]));
        let mut rising = Curves::new(1000);
        rising.measured(8.0, 0.0, 0.01);
        rising.measured(16.0, 2f64.ln(), 0.01);
        assert!(rising.useful([0.05])[0] > 14.0, "{:?}", rising.useful([0.05, 0.5, 0.9]));
    }

    #[test]
    fn what_one_request_takes_may_drift() {
        let mut curves = Curves::new(1000);
        for at in 0..400 {
            let under_way: f64 = [9.0, 13.0, 18.0, 13.0][at % 4];
            // twelve workers, and requests that take longer and longer
            let goodput = under_way.min(12.0) * (-(at as f64) / 400.0).exp();
            curves.measured(under_way, goodput.ln(), 4e-4);
        }
        let [low, high] = curves.useful([0.1, 0.9]);
        assert!(low > 10.5 && high < 13.5, "{low} to {high}");
    }
}
