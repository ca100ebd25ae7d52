//! Whether a law is better than every fixed allocation, and no worse than the best for each phase.

use super::load::Turn;
use super::row::{Policy, Row, policies, spread, turns};
use crate::summary::Spread;
use std::fmt::Write;

/// How much slower than the best fixed counts for a phase a law may be there.
const WITHIN: f64 = 1.10;

/// One law against the fixed counts.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// The law.
    pub law: Policy,
    /// Every fixed policy with the law's mean time divided by its own, pair by pair of the same
    /// repetition. Below 1 the law is ahead. Closest first.
    pub ratios: Vec<(Policy, Spread)>,
    /// For each phase the fixed policy with the least median there, and the law's median divided by
    /// that.
    pub phases: Vec<(Turn, Policy, f64)>,
}

impl Verdict {
    /// Of a law, if it and fixed counts were measured.
    pub fn of(rows: &[Row], law: Policy) -> Option<Verdict> {
        let fixed: Vec<_> = policies(rows).into_iter().filter(|one| one.is_fixed()).collect();
        let ratio = |other: &Policy| Some((*other, ratio(rows, law, *other)?));
        let mut ratios: Vec<_> = fixed.iter().filter_map(ratio).collect();
        ratios.sort_by(|one, other| other.1.median.total_cmp(&one.1.median));
        let phases = turns(rows).into_iter().filter_map(|turn| {
            let median = |policy| Some(spread(rows, policy, |row| row.phase_ms(turn))?.median);
            let medians = fixed.iter().filter_map(|policy| Some((*policy, median(*policy)?)));
            let (best, least_ms) = medians.min_by(|one, other| one.1.total_cmp(&other.1))?;
            Some((turn, best, median(law)? / least_ms))
        });
        let phases = phases.collect();
        (!ratios.is_empty()).then_some(Verdict { law, ratios, phases })
    }

    /// Whether it is ahead of every fixed one in every repetition: by more than the spread.
    pub fn is_ahead(&self) -> bool {
        self.ratios.iter().all(|(_, ratio)| ratio.most < 1.0)
    }

    /// Whether it is within 10 % of the best fixed one in each phase.
    pub fn is_close(&self) -> bool {
        self.phases.iter().all(|(_, _, ratio)| *ratio <= WITHIN)
    }

    /// As markdown.
    pub fn text(&self) -> String {
        let answer = |is_so| if is_so { "yes" } else { "**no**" };
        let name = self.law.name();
        let mut text = format!("\n### by = \"{name}\"\n\n");
        let behind = self.ratios.iter().filter(|(_, ratio)| ratio.most >= 1.0).count();
        // writing to a string does not fail
        let _ = writeln!(
            text,
            "- Ahead of every fixed one over the whole, by more than the spread: {} ({} of {} are \
             not clearly behind it).",
            answer(self.is_ahead()),
            behind,
            self.ratios.len()
        );
        if let Some((closest, ratio)) = self.ratios.first() {
            let closest = closest.name();
            let _ = writeln!(
                text,
                "- The closest is {closest}: {name} takes {ratio:.2} of its time, in pairs of the \
                 same repetition."
            );
        }
        let _ = writeln!(
            text,
            "- Within 10 % of the best fixed one in each phase: {}",
            answer(self.is_close())
        );
        for (turn, best, ratio) in &self.phases {
            let (turn, best) = (turn.name(), best.name());
            let _ = writeln!(text, "  - {turn}: {ratio:.2} of the median of {best}");
        }
        text
    }
}

/// The verdicts on all laws, as markdown.
pub fn verdicts(rows: &[Row]) -> String {
    let laws = policies(rows).into_iter().filter(|policy| !policy.is_fixed());
    let texts: String = laws.filter_map(|law| Some(Verdict::of(rows, law)?.text())).collect();
    if texts.is_empty() { texts } else { format!("\n## Verdict\n{texts}") }
}

/// One policy's mean time divided by another's in the same repetition, over all repetitions.
fn ratio(rows: &[Row], of: Policy, other: Policy) -> Option<Spread> {
    let mine = rows.iter().filter(|row| row.policy == of);
    Spread::of(mine.filter_map(|row| {
        let other = rows.iter().find(|one| one.policy == other && one.round == row.round)?;
        Some(row.mean_ms() / other.mean_ms())
    }))
}

#[cfg(test)]
mod tests {
    use super::super::row::tests::row;
    use super::*;

    const LAW: Policy = Policy::Law("delay");
    const ONE: Policy = Policy::Fixed { process: 1, send: 8 };
    const OTHER: Policy = Policy::Fixed { process: 8, send: 1 };

    #[test]
    fn pairs_are_made_within_a_repetition() {
        let rows = [
            row(1, LAW, [1.0, 5.0, 6.0]),
            row(1, ONE, [1.0, 20.0, 5.6]),
            row(1, OTHER, [1.0, 4.6, 60.0]),
            // all slower, as on a machine that has other work: the law is ahead all the same
            row(2, LAW, [10.0, 50.0, 60.0]),
            row(2, ONE, [10.0, 200.0, 56.0]),
            row(2, OTHER, [10.0, 46.0, 600.0]),
        ];
        let verdict = Verdict::of(&rows, LAW).expect("both were measured");
        assert!(verdict.is_ahead() && verdict.is_close(), "{verdict:?}");
        assert_eq!(verdict.ratios[0].0, ONE);
        let best: Vec<_> = verdict.phases.iter().map(|phase| phase.1).collect();
        assert_eq!(best[1..], [OTHER, ONE]);
        assert!(verdicts(&rows).contains("by more than the spread: yes (0 of 2"));
    }

    #[test]
    fn once_behind_is_not_ahead_and_slow_in_one_phase_is_not_close() {
        let mut rows = vec![
            row(1, LAW, [1.0, 1.0, 1.0]),
            row(1, ONE, [1.0, 1.0, 9.0]),
            row(2, LAW, [1.0, 1.0, 9.0]),
            row(2, ONE, [1.0, 1.0, 8.0]),
        ];
        assert!(!Verdict::of(&rows, LAW).expect("measured").is_ahead());
        rows.truncate(2);
        assert!(Verdict::of(&rows, LAW).expect("measured").is_close());
        rows[0].phases[0].mean_ms = 1.2;
        let verdict = Verdict::of(&rows, LAW).expect("measured");
        assert!(verdict.is_ahead() && !verdict.is_close());
        assert!(verdict.text().contains("hot 1: 1.20 of the median of fixed 1×8"));
    }

    #[test]
    fn without_fixed_counts_there_is_no_verdict() {
        assert_eq!(verdicts(&[row(1, LAW, [1.0; 3])]), "");
    }
}
