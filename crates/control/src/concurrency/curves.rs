//! How goodput may depend on the requests under way, and how likely each way is after what was measured.
//!
//! Each [`Curve`] says: goodput grows with the requests under way up to a knee, more or less sharply, and stays or
//! falls behind it. What one request takes is not known, and drifts. So each curve has a filter of its own for that
//! (a Kalman filter for one number that walks at random): a measurement counts for or against a curve only by how
//! it differs from those shortly before it, at other numbers under way.

/// Behind the knee, twice as many under way may give so much more for each part of themselves, and are worth it: of the
/// two costs, goodput that is lost and requests that wait in the application out of the order of their classes, the
/// first counts ten times as much.
const WORTH: f64 = 0.07;

/// The shapes of curves: how sharp the knee is, how goodput falls behind it, and how likely that is beforehand.
/// Pools of workers have a knee as sharp as can be. A lock for which requests wait at random rounds it.
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

/// Knees up to this number are each a curve; beyond, each is so much further than the one before.
const EACH_KNEE: u32 = 20;
const NEXT_KNEE: f64 = 1.05;

/// So much of what was known counts after one more measurement: those of the last hundred are remembered.
const REMEMBERED: f64 = 0.99;
/// What a request takes changes by so much from one measurement to the next, as a variance of its logarithm.
const DRIFT: f64 = 1e-4;
/// No curve is less likely than the likeliest by more than this, as a logarithm: what changes is found again.
const LEAST_LIKELY: f64 = -12.0;
/// One measurement counts no more than this against a curve, in squared deviations.
const MOST_SQUARES: f64 = 25.0;
/// Beyond this a measurement is none that a curve explains which was likely.
const SURPRISING_SQUARES: f64 = 12.0;
/// Curves that are not much less likely than the likeliest, as a logarithm.
const LIKELY: f64 = -6.0;
/// So much is kept of what was known before a surprise.
const KEPT_IN_SURPRISE: f64 = 0.25;

#[derive(Clone, Copy, Debug)]
struct KneeShape {
    sharpness: f64,
    fall: f64,
    prior: f64,
}

impl KneeShape {
    /// The logarithm of goodput, in units of what one request alone gives, with `load` requests under way for each
    /// that the knee has, whose logarithm is `ln_knee`.
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

    /// How many under way are worth it, for each that the knee has.
    fn useful_load(self) -> f64 {
        let worth = |load: f64| self.ln_goodput(load, 0.0) - WORTH * load.ln();
        let loads = (40..=300).map(|hundredths| f64::from(hundredths) / 100.0);
        loads.max_by(|a, b| worth(*a).total_cmp(&worth(*b))).unwrap_or(1.0)
    }
}

/// One way in which goodput may depend on the requests under way.
#[derive(Clone, Debug)]
struct Curve {
    ln_knee: f64,
    shape: KneeShape,
    /// How many under way are worth it.
    useful: f64,
    prior: f64,
    /// The logarithm of what one request alone gives.
    ln_rate: f64,
    /// The logarithm of how likely the measurements are by this curve, beside the likeliest.
    ln_likely: f64,
}

impl Curve {
    fn ln_goodput(&self, under_way: f64) -> f64 {
        self.shape.ln_goodput(under_way / self.ln_knee.exp(), self.ln_knee) + self.ln_rate
    }
}

/// All curves, in the order of what is useful by them.
#[derive(Clone, Debug)]
pub(super) struct Curves {
    curves: Vec<Curve>,
    /// How uncertain `ln_rate` of each is, as a variance.
    uncertain: f64,
}

impl Curves {
    /// With knees at up to `most`.
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
                // each factor is as likely as any other
                prior: shape.prior * (1.0 / knee).clamp(NEXT_KNEE - 1.0, 0.7),
                ln_rate: 0.0,
                ln_likely: 0.0,
            }));
        }
        curves.sort_by(|a, b| a.useful.total_cmp(&b.useful));
        Curves { curves, uncertain: f64::INFINITY }
    }

    /// With so much under way on average the logarithm of goodput was this, as exact as the variance says. Says
    /// whether that is a surprise.
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

    /// What a request takes may be another from now on; what is known of the knee counts for less.
    pub(super) fn interrupted(&mut self, kept: f64) {
        self.uncertain = f64::INFINITY;
        self.curves.iter_mut().for_each(|curve| curve.ln_likely *= kept);
    }

    /// What is useful by the curves, so that as much of what is likely is at most that.
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
            // twelve workers, and requests that take ever longer
            let goodput = under_way.min(12.0) * (-(at as f64) / 400.0).exp();
            curves.measured(under_way, goodput.ln(), 4e-4);
        }
        let [low, high] = curves.useful([0.1, 0.9]);
        assert!(low > 10.5 && high < 13.5, "{low} to {high}");
    }
}
