//! Verdicts on a law of the controller: whether it is better than every fixed allocation, and no
//! worse than the best for each phase; whether it moves no more threads than a shift of the load is
//! worth, and answers no later than another build.

use crate::rows::{RawRow, each};
use crate::summary::Spread;
use std::fmt::Write;

/// The factor by which a law may be slower than the best fixed counts in a phase.
const WITHIN: f64 = 1.10;

/// The factor by which fixed counts may be slower than the best for a phase, and are as good.
const AS_GOOD: f64 = 1.05;

/// The largest number of moved threads of a shift, as a multiple of the distance between the best
/// fixed counts before it and after it.
const MOVES: f64 = 2.0;

/// Threads of accept and of receive.
const OTHERS: u32 = 2;

/// The largest number of threads that a law has, where rows do not give it.
const USUAL_MOST: u32 = 18;

/// The phase that stands for all requests.
pub(super) const ALL: &str = "all";

/// The text behind the name of a kind that has the load for itself.
pub(super) const ALONE: &str = " alone";

/// Threads of process and of send, where they stay: `fixed 2×8`.
fn counts(policy: &str) -> Option<(u32, u32)> {
    let (process, send) = policy.strip_prefix("fixed ")?.split_once('×')?;
    Some((process.parse().ok()?, send.parse().ok()?))
}

/// The policies that have rows, each once.
fn policies(rows: &[RawRow]) -> Vec<&str> {
    each(rows, &["policy"]).into_iter().map(|names| names[0]).collect()
}

/// The phases of the load, in their order.
fn phases(rows: &[RawRow]) -> Vec<&str> {
    let all = each(rows, &["phase"]).into_iter().map(|names| names[0]);
    all.filter(|phase| *phase != ALL && !phase.ends_with(ALONE)).collect()
}

/// The kind of a phase: `hot 2` is hot.
fn kind(phase: &str) -> &str {
    phase.split(' ').next().unwrap_or(phase)
}

/// A figure of one policy in one phase, over the repetitions.
fn spread(rows: &[RawRow], policy: &str, phase: &str, figure: &str) -> Option<Spread> {
    let mine = rows.iter().filter(|row| row.is(&[("policy", policy), ("phase", phase)]));
    Spread::of(mine.filter_map(|row| row.get(figure)))
}

/// The mean time to an answer over all requests of a repetition, ms.
fn mean_ms(rows: &[RawRow], policy: &str, round: u32) -> Option<f64> {
    let is_mine = |row: &&RawRow| {
        let phase = row.text("phase");
        row.round == round
            && row.text("policy") == policy
            && phase != ALL
            && !phase.ends_with(ALONE)
    };
    let mine = rows.iter().filter(is_mine);
    let parts = mine.filter_map(|row| Some((row.get("requests")?, row.get("mean_ms")?)));
    let (requests, total) =
        parts.fold((0.0, 0.0), |sum, (count, ms)| (sum.0 + count, sum.1 + count * ms));
    (requests > 0.0).then_some(total / requests)
}

/// The moves of a law at one shift of the load.
#[derive(Clone, Debug)]
struct Shifted {
    /// The phase that begins.
    to: String,
    /// The best fixed counts for the kind of requests in the phase before, and for that in this
    /// one, each measured with no other kind. Among counts that are as good, those with the fewest
    /// threads, and none that the law could not have, too.
    best: [(u32, u32); 2],
    /// Threads that were moved in this phase.
    moved: Spread,
}

impl Shifted {
    /// The fewest moves from the one to the other: a thread that one phase gives and the other
    /// takes is moved once.
    fn distance(&self) -> u32 {
        let [before, after] =
            self.best.map(|(process, send)| [i64::from(process), i64::from(send)]);
        let more = [0, 1].map(|at| (after[at] - before[at]).max(0)).iter().sum::<i64>();
        let fewer = [0, 1].map(|at| (before[at] - after[at]).max(0)).iter().sum::<i64>();
        more.max(fewer) as u32
    }

    /// Whether that many moves were enough, twice over.
    fn is_calm(&self) -> bool {
        self.moved.median <= MOVES * f64::from(self.distance())
    }
}

/// One law against the fixed counts.
#[derive(Clone, Debug)]
struct LawResult {
    /// The law.
    law: String,
    /// Every fixed policy with the law's mean time divided by its own, pair by pair of the same
    /// repetition. Below 1 the law is ahead. Closest first.
    ratios: Vec<(String, Spread)>,
    /// The fixed policy with the least median in each phase, and the law's median divided by that.
    phases: Vec<(String, String, f64)>,
    /// The law's moves at each shift, from the second phase on.
    shifts: Vec<Shifted>,
    /// The law's mean time divided by that of the other build, pair by pair, if that was measured.
    before: Option<Spread>,
}

impl LawResult {
    /// The result of a law, if it and fixed counts were measured.
    fn of(rows: &[RawRow], law: &str) -> Option<LawResult> {
        let fixed: Vec<_> =
            policies(rows).into_iter().filter(|one| counts(one).is_some()).collect();
        let beside = |other: &&str| Some(((*other).to_owned(), ratio(rows, law, other)?));
        let mut ratios: Vec<_> = fixed.iter().filter_map(beside).collect();
        ratios.sort_by(|one, other| other.1.median.total_cmp(&one.1.median));
        let all = phases(rows);
        let in_phase = |phase: &&str| {
            let median = |policy: &str| Some(spread(rows, policy, phase, "mean_ms")?.median);
            let medians = fixed.iter().filter_map(|policy| Some((*policy, median(policy)?)));
            let (best, least_ms) = medians.min_by(|one, other| one.1.total_cmp(&other.1))?;
            Some(((*phase).to_owned(), best.to_owned(), median(law)? / least_ms))
        };
        let shift = |pair: &[&str]| {
            let [before, after] = [pair[0], pair[1]].map(|phase| best_counts(rows, kind(phase)));
            let moved = spread(rows, law, pair[1], "moved")?;
            Some(Shifted { to: pair[1].to_owned(), best: [before?, after?], moved })
        };
        let verdict = LawResult {
            law: law.to_owned(),
            phases: all.iter().filter_map(in_phase).collect(),
            shifts: all.windows(2).filter_map(shift).collect(),
            before: ratio(rows, law, &format!("{law} before")),
            ratios,
        };
        (!verdict.ratios.is_empty()).then_some(verdict)
    }

    /// Whether the law is ahead of every fixed one in every repetition: by more than the spread.
    fn is_ahead(&self) -> bool {
        self.ratios.iter().all(|(_, ratio)| ratio.most < 1.0)
    }

    /// Whether the law is within 10 % of the best fixed one in each phase.
    fn is_close(&self) -> bool {
        self.phases.iter().all(|(_, _, ratio)| *ratio <= WITHIN)
    }

    /// Whether the law moved at most twice as many threads as needed at every shift.
    fn is_calm(&self) -> bool {
        self.shifts.iter().all(Shifted::is_calm)
    }

    /// Whether the law is no slower than the other build: not in every repetition. `None` if that
    /// was not measured.
    fn is_no_slower(&self) -> Option<bool> {
        self.before.map(|ratio| ratio.least <= 1.0)
    }

    /// The result as markdown.
    fn text(&self) -> String {
        let answer = |is_so| if is_so { "yes" } else { "**no**" };
        let name = &self.law;
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
                shifted.to,
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

/// The verdicts on all laws as markdown.
pub(super) fn verdicts(rows: &[RawRow]) -> String {
    let laws = policies(rows).into_iter().filter(|policy| ["queue", "delay"].contains(policy));
    let texts: String = laws.filter_map(|law| Some(LawResult::of(rows, law)?.text())).collect();
    if texts.is_empty() { texts } else { format!("\n## Verdict\n{texts}") }
}

/// The fewest threads, process and send, that are as good as the best fixed counts for one kind alone, of
/// those that a law could have, too.
fn best_counts(rows: &[RawRow], kind: &str) -> Option<(u32, u32)> {
    let most = rows.iter().filter_map(|row| row.get("threads_most")).fold(0.0, f64::max);
    let most = if most > 0.0 { most as u32 } else { USUAL_MOST };
    let medians: Vec<_> = policies(rows)
        .into_iter()
        .filter_map(|policy| {
            let (process, send) = counts(policy)?;
            let phase = format!("{kind}{ALONE}");
            let median_ms = spread(rows, policy, &phase, "mean_ms")?.median;
            (process + send + OTHERS <= most).then_some(((process, send), median_ms))
        })
        .collect();
    let least_ms = medians.iter().map(|(_, ms)| *ms).min_by(f64::total_cmp)?;
    let as_good = medians.iter().filter(|(_, ms)| *ms <= AS_GOOD * least_ms);
    as_good.map(|(counts, _)| *counts).min_by_key(|(process, send)| (process + send, *process))
}

/// The rows of one round with the laws' results in it: their mean time divided by the best of the
/// fixed counts, and the threads that they moved divided by the distance of the shift.
pub(super) fn judged(rows: Vec<RawRow>) -> Vec<RawRow> {
    let all = phases(&rows);
    let fixed: Vec<_> =
        policies(&rows).into_iter().filter(|policy| counts(policy).is_some()).collect();
    let of = |row: &RawRow| {
        let phase = row.text("phase");
        let means = fixed.iter().filter_map(|policy| spread(&rows, policy, phase, "mean_ms"));
        let best_ms = means.map(|spread| spread.median).min_by(f64::total_cmp);
        let over = row.get("mean_ms").zip(best_ms).map(|(mean_ms, best_ms)| mean_ms / best_ms);
        let place = all.iter().position(|known| *known == phase).filter(|place| *place > 0);
        let shifted = place.and_then(|place| {
            let [before, after] =
                [all[place - 1], all[place]].map(|phase| best_counts(&rows, kind(phase)));
            let moved = spread(&rows, row.text("policy"), phase, "moved")?;
            Some(Shifted { to: phase.to_owned(), best: [before?, after?], moved })
        });
        let moved = shifted.map(|one| one.moved.median / f64::from(one.distance().max(1)));
        (over.unwrap_or(f64::NAN), moved.unwrap_or(f64::NAN))
    };
    let is_law = |row: &RawRow| counts(row.text("policy")).is_none();
    let found: Vec<_> = rows.iter().map(|row| is_law(row).then(|| of(row))).collect();
    let add = |(row, found): (RawRow, Option<(f64, f64)>)| match found {
        None => row,
        Some((over, moved)) => {
            row.figure("over_best_fixed", over).figure("moved_over_distance", moved)
        }
    };
    rows.into_iter().zip(found).map(add).collect()
}

/// One policy's mean time divided by another's in the same repetition, over all repetitions.
fn ratio(rows: &[RawRow], of: &str, other: &str) -> Option<Spread> {
    let mut rounds: Vec<u32> = rows.iter().map(|row| row.round).collect();
    rounds.sort_unstable();
    rounds.dedup();
    Spread::of(
        rounds
            .into_iter()
            .filter_map(|round| Some(mean_ms(rows, of, round)? / mean_ms(rows, other, round)?)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "fixed 1×8";
    const OTHER: &str = "fixed 8×1";

    /// The rows of a run in which answers of each kind took this long.
    fn run(round: u32, policy: &str, means_ms: [f64; 3]) -> Vec<RawRow> {
        let row = |phase: String, ms: f64| {
            let row =
                RawRow::default().word("policy", policy).word("phase", phase).figure("mean_ms", ms);
            let row = row.figure("requests", 100.0).figure("moved", 0.0);
            let mut row = row.figure("threads_most", 11.0);
            row.round = round;
            row
        };
        let kinds = ["hot", "cold", "slow"].into_iter().zip(means_ms);
        let phases = kinds.clone().map(|(kind, ms)| row(format!("{kind} 1"), ms));
        let alone = kinds.filter(|_| counts(policy).is_some());
        phases.chain(alone.map(|(kind, ms)| row(format!("{kind}{ALONE}"), ms))).collect()
    }

    #[test]
    fn the_mean_is_over_requests_and_not_over_phases() {
        let mut rows = run(1, "queue", [1.0, 2.0, 6.0]);
        assert_eq!(mean_ms(&rows, "queue", 1), Some(3.0));
        rows.pop();
        assert_eq!(mean_ms(&rows, "queue", 1), Some(1.5));
        assert_eq!(mean_ms(&rows, "queue", 2), None);
    }

    #[test]
    fn pairs_are_made_within_a_repetition() {
        let rows = [
            run(1, "delay", [1.0, 5.0, 6.0]),
            run(1, ONE, [1.0, 20.0, 5.6]),
            run(1, OTHER, [1.0, 4.6, 60.0]),
            // all slower, as on a machine that has other work: the law is ahead all the same
            run(2, "delay", [10.0, 50.0, 60.0]),
            run(2, ONE, [10.0, 200.0, 56.0]),
            run(2, OTHER, [10.0, 46.0, 600.0]),
        ]
        .concat();
        let verdict = LawResult::of(&rows, "delay").expect("both were measured");
        assert!(verdict.is_ahead() && verdict.is_close(), "{verdict:?}");
        assert_eq!(verdict.ratios[0].0, ONE);
        let best: Vec<_> = verdict.phases.iter().map(|phase| phase.1.as_str()).collect();
        assert_eq!(best[1..], [OTHER, ONE]);
        assert!(verdicts(&rows).contains("by more than the spread: yes (0 of 2"));
    }

    #[test]
    fn once_behind_is_not_ahead_and_slow_in_one_phase_is_not_close() {
        let first = [run(1, "delay", [1.0, 1.0, 1.0]), run(1, ONE, [1.0, 1.0, 9.0])].concat();
        let second = [run(2, "delay", [1.0, 1.0, 9.0]), run(2, ONE, [1.0, 1.0, 8.0])].concat();
        let rows = [first.clone(), second].concat();
        assert!(!LawResult::of(&rows, "delay").expect("measured").is_ahead());
        assert!(LawResult::of(&first, "delay").expect("measured").is_close());
        let rows = [run(1, "delay", [1.2, 1.0, 1.0]), run(1, ONE, [1.0, 1.0, 9.0])].concat();
        let verdict = LawResult::of(&rows, "delay").expect("measured");
        assert!(verdict.is_ahead() && !verdict.is_close());
        assert!(verdict.text().contains("hot 1: 1.20 of the median of fixed 1×8"));
    }

    #[test]
    fn what_a_shift_is_worth_is_the_distance_between_the_best_counts() {
        let mut law = run(1, "delay", [1.0, 5.0, 6.0]);
        law[1] = law[1].clone().figure("moved", 14.0);
        law[2] = law[2].clone().figure("moved", 15.0);
        let before = run(1, "delay before", [1.0, 5.0, 7.0]);
        let mut one = run(1, ONE, [1.0, 50.0, 6.0]);
        // delays that another kind has left are not held against counts that stay
        one[2] = one[2].clone().figure("mean_ms", 90.0);
        let rest = [
            // for the first phase all are as good, and the fewest threads are the best
            run(1, "fixed 1×1", [1.04, 50.0, 50.0]),
            one,
            run(1, OTHER, [1.0, 5.0, 50.0]),
            // best everywhere, and more than the law has
            run(1, "fixed 8×8", [0.5; 3]),
        ]
        .concat();
        let rows = [law.clone(), before, rest.clone()].concat();
        let verdict = LawResult::of(&rows, "delay").expect("measured");
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
        let rows = [law.clone(), run(1, "delay before", [1.0, 5.0, 5.0]), rest.clone()].concat();
        let verdict = LawResult::of(&rows, "delay").expect("measured");
        assert_eq!(verdict.is_no_slower(), Some(false));
        let verdict = LawResult::of(&[law, rest].concat(), "delay").expect("measured");
        assert!(verdict.is_no_slower().is_none() && verdict.text().contains("not measured"));
    }

    #[test]
    fn a_round_says_how_far_laws_are_from_the_best_counts() {
        let mut law = run(1, "delay", [1.0, 5.0, 6.0]);
        law[1] = law[1].clone().figure("moved", 14.0);
        let rows = [law, run(1, ONE, [2.0, 50.0, 5.0]), run(1, OTHER, [1.0, 10.0, 50.0])].concat();
        let rows = judged(rows);
        let of = |name| rows.iter().take(3).map(|row| row.get(name)).collect::<Vec<_>>();
        assert_eq!(of("over_best_fixed"), [Some(1.0), Some(0.5), Some(1.2)]);
        assert_eq!(of("moved_over_distance"), [None, Some(14.0), Some(0.0)]);
        assert_eq!(rows[3].get("over_best_fixed"), None);
    }

    #[test]
    fn without_fixed_counts_there_is_no_verdict() {
        assert_eq!(verdicts(&run(1, "delay", [1.0; 3])), "");
    }
}
