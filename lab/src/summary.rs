//! Medians and spreads.

use std::fmt;

/// The middle of some values, and their spread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The smallest.
    pub least: f64,
    /// The largest.
    pub most: f64,
}

impl Spread {
    /// The spread of `values`; `None` if there are none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (least, most) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median = if values.len() % 2 == 1 {
            values[middle]
        } else {
            (values[middle - 1] + values[middle]) / 2.0
        };
        Some(Spread { median, least, most })
    }
}

impl fmt::Display for Spread {
    /// `median (least–most)` with the precision asked for.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = f.precision().unwrap_or(2);
        let Spread { median, least, most } = self;
        write!(f, "{median:.digits$} ({least:.digits$}–{most:.digits$})")
    }
}

/// Median and spread; one value has no spread.
pub fn brief(spread: &Spread, digits: usize) -> String {
    match spread.least.total_cmp(&spread.most).is_eq() {
        true => format!("{:.digits$}", spread.median),
        false => format!("{spread:.digits$}"),
    }
}

/// The same, or a dash.
pub fn shown(spread: Option<&Spread>, digits: usize) -> String {
    spread.map_or_else(|| "–".to_owned(), |spread| brief(spread, digits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_odd_and_even_counts() {
        let odd = Spread::of([3.0, 1.0, 2.0]).expect("three");
        assert_eq!(format!("{odd:.1}"), "2.0 (1.0–3.0)");
        assert_eq!(Spread::of([4.0, 1.0]).map(|s| s.median), Some(2.5));
        assert_eq!(Spread::of([]), None);
    }
}
