//! The search for the highest rate at which a condition holds, between two bounds: a rate at which it holds
//! is doubled until it does not hold; then the range between the two is halved, by ratio, until they are
//! close.
//!
//! ```
//! use forebay_load::search::{RateSearch, SearchEnd};
//!
//! let mut search = RateSearch::new(10.0, 10_000.0);
//! while let Some(rate) = search.next() {
//!     search.tell(rate, rate <= 730.0);
//! }
//! assert!(matches!(search.end(), SearchEnd::Found(rate) if (700.0..=730.0).contains(&rate)));
//! ```

/// The distance at which the search ends: the highest rate that holds is at most this share below one that
/// does not.
const CLOSE: f64 = 0.05;

/// A search in progress.
#[derive(Clone, Debug)]
pub struct RateSearch {
    low: f64,
    high: f64,
    holds: Option<f64>,
    misses: Option<f64>,
}

/// The result of a search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SearchEnd {
    /// The condition does not hold even at the lowest rate.
    None,
    /// The highest rate at which the condition holds.
    Found(f64),
    /// The condition holds at the highest rate of the range.
    AtLeast(f64),
}

impl RateSearch {
    /// A search between two rates, in requests per second.
    pub fn new(low: f64, high: f64) -> RateSearch {
        RateSearch { low, high, holds: None, misses: None }
    }

    /// The next rate to try; `None` when the search is over.
    pub fn next(&self) -> Option<f64> {
        match (self.holds, self.misses) {
            (None, None) => Some(self.low),
            (None, Some(_)) => None,
            (Some(holds), None) => (holds < self.high).then(|| (holds * 2.0).min(self.high)),
            (Some(holds), Some(misses)) => {
                let between = rounded((holds * misses).sqrt());
                let is_near = misses <= holds * (1.0 + CLOSE);
                (!is_near && holds < between && between < misses).then_some(between)
            }
        }
    }

    /// Records whether the condition holds at a rate.
    pub fn tell(&mut self, rate: f64, holds: bool) {
        *(if holds { &mut self.holds } else { &mut self.misses }) = Some(rate);
    }

    /// The result so far.
    pub fn end(&self) -> SearchEnd {
        match (self.holds, self.misses) {
            (None, _) => SearchEnd::None,
            (Some(rate), None) => SearchEnd::AtLeast(rate),
            (Some(rate), Some(_)) => SearchEnd::Found(rate),
        }
    }
}

/// The rate rounded to three digits.
fn rounded(rate: f64) -> f64 {
    let unit = 10_f64.powf(rate.log10().floor() - 2.0);
    (rate / unit).round() * unit
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(low: f64, high: f64, most: f64) -> (SearchEnd, usize) {
        let mut search = RateSearch::new(low, high);
        let mut steps = 0;
        while let Some(rate) = search.next() {
            assert!((low..=high).contains(&rate), "{rate}");
            search.tell(rate, rate <= most);
            steps += 1;
        }
        (search.end(), steps)
    }

    #[test]
    fn bounds_are_kept() {
        assert_eq!(found(10.0, 1000.0, 5.0), (SearchEnd::None, 1));
        assert_eq!(found(10.0, 1000.0, 1000.0).0, SearchEnd::AtLeast(1000.0));
        assert_eq!(found(10.0, 10.0, 10.0), (SearchEnd::AtLeast(10.0), 1));
        assert_eq!(found(10.0, 1000.0, 10.0).0, SearchEnd::Found(10.0));
    }

    #[test]
    fn the_highest_is_found_in_few_steps() {
        let mut most = 1.0;
        while most < 1e6 {
            let (end, steps) = found(1.0, 1e6, most);
            let SearchEnd::Found(rate) = end else { panic!("{end:?}") };
            assert!(rate <= most && most < rate * 1.12, "{rate} of {most}");
            assert!(steps < 30, "{steps}");
            most *= 1.037;
        }
    }
}
