//! Whether a law is better than every fixed allocation, and no worse than the best for each phase; whether it
//! moves no more threads than a shift of the load is worth, and answers no later than another build.

use super::load::{Kind, Turn};
use super::row::{Policy, Row, policies, spread, turns};
use crate::summary::Spread;
use std::fmt::Write;

/// How much slower than the best fixed counts for a phase a law may be there.
const WITHIN: f64 = 1.10;

/// Fixed counts that are at most so much slower than the best for a phase are as good.
const AS_GOOD: f64 = 1.05;

/// Moved threads of a shift, at most so many times the distance between the best fixed counts before it and
/// after it.
const MOVES: f64 = 2.0;

/// Threads of accept and of receive.
const OTHERS: u32 = 2;

/// What a law did at one shift of the load.
#[derive(Clone, Copy, Debug)]
pub struct Shifted {
    /// The phase that begins.
    pub to: Turn,
    /// The best fixed counts for what is asked for in the phase before, and in this one, where nothing else is
    /// asked for. Of those that are as good the ones with the fewest threads, and none that the law could not
    /// have, too.
    pub best: [(u32, u32); 2],
    /// Threads that were moved in this phase.
    pub moved: Spread,
}

impl Shifted {
    /// The fewest moves that lead from the one to the other: a thread that one phase gives and the other
    /// takes is moved once.
    pub fn distance(&self) -> u32 {
        let [before, after] =
            self.best.map(|(process, send)| [i64::from(process), i64::from(send)]);
        let more = [0, 1].map(|at| (after[at] - before[at]).max(0)).iter().sum::<i64>();
        let fewer = [0, 1].map(|at| (before[at] - after[at]).max(0)).iter().sum::<i64>();
        more.max(fewer) as u32
    }

    /// Whether that many moves were enough, twice over.
    pub fn is_calm(&self) -> bool {
        self.moved.median <= MOVES * f64::from(self.distance())
    }
}

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
    /// What it did at each shift, from the second phase on.
    pub shifts: Vec<Shifted>,
    /// Its mean time divided by that of the other build, pair by pair, if that was measured.
    pub before: Option<Spread>,
}

impl Verdict {
    /// Of a law that has so many threads at most, if it and fixed counts were measured.
    pub fn of(rows: &[Row], law: Policy, most: u32) -> Option<Verdict> {
        let fixed: Vec<_> = policies(rows).into_iter().filter(|one| one.is_fixed()).collect();
        let beside = |other: &Policy| Some((*other, ratio(rows, law, *other)?));
        let mut ratios: Vec<_> = fixed.iter().filter_map(beside).collect();
        ratios.sort_by(|one, other| other.1.median.total_cmp(&one.1.median));
        let phases = turns(rows).into_iter().filter_map(|turn| {
            let median = |policy| Some(spread(rows, policy, |row| row.phase_ms(turn))?.median);
            let medians = fixed.iter().filter_map(|policy| Some((*policy, median(*policy)?)));
            let (best, least_ms) = medians.min_by(|one, other| one.1.total_cmp(&other.1))?;
            Some((turn, best, median(law)? / least_ms))
        });
        let phases = phases.collect();
        let all = turns(rows);
        let shifts = all.windows(2).filter_map(|pair| {
            let [before, after] = [pair[0], pair[1]].map(|turn| best_counts(rows, turn.kind, most));
            let moved = spread(rows, law, |row| row.moved(pair[1]))?;
            Some(Shifted { to: pair[1], best: [before?, after?], moved })
        });
        let shifts = shifts.collect();
        let before = match law {
            Policy::Law(name) => ratio(rows, law, Policy::Before(name)),
            Policy::Before(_) | Policy::Fixed { .. } => None,
        };
        (!ratios.is_empty()).then_some(Verdict { law, ratios, phases, shifts, before })
    }

    /// Whether it is ahead of every fixed one in every repetition: by more than the spread.
    pub fn is_ahead(&self) -> bool {
        self.ratios.iter().all(|(_, ratio)| ratio.most < 1.0)
    }

    /// Whether it is within 10 % of the best fixed one in each phase.
    pub fn is_close(&self) -> bool {
        self.phases.iter().all(|(_, _, ratio)| *ratio <= WITHIN)
    }

    /// Whether it moved at most twice as many threads as needed at every shift.
    pub fn is_calm(&self) -> bool {
        self.shifts.iter().all(Shifted::is_calm)
    }

    /// Whether it is no slower than the other build: not in every repetition. `None` if that was not
    /// measured.
    pub fn is_no_slower(&self) -> Option<bool> {
        self.before.map(|ratio| ratio.least <= 1.0)
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
        let _ = writeln!(
            text,
            "- Per shift at most {MOVES} × the distance between the two best fixed allocations of as many \
             threads, for each kind alone: {}",
            answer(self.is_calm())
        );
        for shifted in &self.shifts {
            let [(from_process, from_send), (process, send)] = shifted.best;
            let _ = writeln!(
                text,
                "  - to {}: {from_process}×{from_send} → {process}×{send}, distance {}; {:.0} moved: {}",
                shifted.to.name(),
                shifted.distance(),
                shifted.moved,
                answer(shifted.is_calm())
            );
        }
        let _ = match (self.before, self.is_no_slower()) {
            (Some(ratio), Some(is_so)) => writeln!(
                text,
                "- Response times no worse than before: {}: {ratio:.2} of the time of the other build, in \
                 pairs of the same repetition.",
                answer(is_so)
            ),
            _ => writeln!(text, "- Response times no worse than before: not measured (--before)."),
        };
        text
    }
}

/// The verdicts on all laws, which have so many threads at most, as markdown.
pub fn verdicts(rows: &[Row], most: u32) -> String {
    let laws = policies(rows).into_iter().filter(|policy| matches!(policy, Policy::Law(_)));
    let texts: String = laws.filter_map(|law| Some(Verdict::of(rows, law, most)?.text())).collect();
    if texts.is_empty() { texts } else { format!("\n## Verdict\n{texts}") }
}

/// The fewest threads, process and send, that are as good as the best fixed counts for one kind alone, of
/// those with at most so many threads.
fn best_counts(rows: &[Row], kind: Kind, most: u32) -> Option<(u32, u32)> {
    let medians: Vec<_> = policies(rows)
        .into_iter()
        .filter_map(|policy| match policy {
            Policy::Fixed { process, send } if process + send + OTHERS <= most => {
                let of_policy = rows.iter().filter(|row| row.policy == policy);
                let median_ms = Spread::of(of_policy.filter_map(|row| row.alone_ms(kind)))?.median;
                Some(((process, send), median_ms))
            }
            _ => None,
        })
        .collect();
    let least_ms = medians.iter().map(|(_, ms)| *ms).min_by(f64::total_cmp)?;
    let as_good = medians.iter().filter(|(_, ms)| *ms <= AS_GOOD * least_ms);
    as_good.map(|(counts, _)| *counts).min_by_key(|(process, send)| (process + send, *process))
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
    /// Enough for what is compared here.
    const MOST: u32 = 11;
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
        let verdict = Verdict::of(&rows, LAW, MOST).expect("both were measured");
        assert!(verdict.is_ahead() && verdict.is_close(), "{verdict:?}");
        assert_eq!(verdict.ratios[0].0, ONE);
        let best: Vec<_> = verdict.phases.iter().map(|phase| phase.1).collect();
        assert_eq!(best[1..], [OTHER, ONE]);
        assert!(verdicts(&rows, MOST).contains("by more than the spread: yes (0 of 2"));
    }

    #[test]
    fn once_behind_is_not_ahead_and_slow_in_one_phase_is_not_close() {
        let mut rows = vec![
            row(1, LAW, [1.0, 1.0, 1.0]),
            row(1, ONE, [1.0, 1.0, 9.0]),
            row(2, LAW, [1.0, 1.0, 9.0]),
            row(2, ONE, [1.0, 1.0, 8.0]),
        ];
        assert!(!Verdict::of(&rows, LAW, MOST).expect("measured").is_ahead());
        rows.truncate(2);
        assert!(Verdict::of(&rows, LAW, MOST).expect("measured").is_close());
        rows[0].phases[0].mean_ms = 1.2;
        let verdict = Verdict::of(&rows, LAW, MOST).expect("measured");
        assert!(verdict.is_ahead() && !verdict.is_close());
        assert!(verdict.text().contains("hot 1: 1.20 of the median of fixed 1×8"));
    }

    #[test]
    fn what_a_shift_is_worth_is_the_distance_between_the_best_counts() {
        let few = Policy::Fixed { process: 1, send: 1 };
        let mut rows = vec![
            row(1, LAW, [1.0, 5.0, 6.0]),
            row(1, Policy::Before("delay"), [1.0, 5.0, 7.0]),
            // for the first phase all are as good, and the fewest threads are the best
            row(1, few, [1.04, 50.0, 50.0]),
            row(1, ONE, [1.0, 50.0, 6.0]),
            row(1, OTHER, [1.0, 5.0, 50.0]),
            // best everywhere, and more than the law has
            row(1, Policy::Fixed { process: 8, send: 8 }, [0.5; 3]),
        ];
        // what another kind has left is not held against counts that stay
        rows[3].phases[2].mean_ms = 90.0;
        (rows[0].phases[1].moved, rows[0].phases[2].moved) = (14.0, 15.0);
        let verdict = Verdict::of(&rows, LAW, MOST).expect("measured");
        let best: Vec<_> = verdict.shifts.iter().map(|shifted| shifted.best).collect();
        assert_eq!(best, [[(1, 1), (8, 1)], [(8, 1), (1, 8)]]);
        // seven more; seven from process to send
        assert_eq!(verdict.shifts.iter().map(Shifted::distance).collect::<Vec<_>>(), [7, 7]);
        assert_eq!(verdict.shifts.iter().map(Shifted::is_calm).collect::<Vec<_>>(), [true, false]);
        assert!(!verdict.is_calm());
        assert_eq!(verdict.is_no_slower(), Some(true));
        let text = verdict.text();
        assert!(text.contains("8×1 → 1×8, distance 7; 15 (15–15) moved: **no**"), "{text}");
        assert!(text.contains("no worse than before: yes: 0.92 (0.92–0.92)"), "{text}");
        rows[1].phases[2].mean_ms = 5.0;
        let verdict = Verdict::of(&rows, LAW, MOST).expect("measured");
        assert_eq!(verdict.is_no_slower(), Some(false));
        rows.remove(1);
        let verdict = Verdict::of(&rows, LAW, MOST).expect("measured");
        assert!(verdict.is_no_slower().is_none() && verdict.text().contains("not measured"));
    }

    #[test]
    fn without_fixed_counts_there_is_no_verdict() {
        assert_eq!(verdicts(&[row(1, LAW, [1.0; 3])], MOST), "");
    }
}
