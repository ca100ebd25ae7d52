//! Verdicts over rounds: on a claim about a subject, on a subject, on the figure.

use super::claim::{ClaimInRound, goal, room};
use super::select::{compared, everybody, ordered, subjects};
use super::void::{brief, reason};
use super::{
    ClaimFinding, ClaimSubject, JudgeMode, JudgedClaim, JudgedFigure, JudgedSubject, PaperVerdict,
    RoundOfClaim,
};
use crate::experiment::{Claim, ClaimKind, Experiment, PaperFigure, RowSelector};
use crate::rows::{KeptRound, NOISY, RawRow};
use crate::summary::Spread;

/// The number of the newest rounds that are looked at, unless twice as many as a claim wants is
/// more; some may be void.
const WINDOW: usize = 10;
/// A claim holds if it is false in at most one of this many rounds, and does not hold if it is true
/// in at most one of as many.
const ONE_OF: usize = 5;

/// Judges a figure by the rounds there are, the oldest first.
pub fn judge(
    experiment: &Experiment,
    figure: &PaperFigure,
    rounds: &[KeptRound],
    mode: JudgeMode,
) -> JudgedFigure {
    let whole = figure.absent.iter().find(|(name, _)| name.is_empty());
    if let Some((_, why)) = whole {
        let (subjects, claims) = (Vec::new(), Vec::new());
        let (id, sentence) = (figure.id.clone(), why.clone());
        return JudgedFigure { id, verdict: PaperVerdict::NotBuilt, sentence, subjects, claims };
    }
    let wanted = figure.claims.iter().map(|claim| claim.rounds as usize).max().unwrap_or_default();
    let rounds = &rounds[rounds.len().saturating_sub(WINDOW.max(2 * wanted))..];
    let claims = figure.claims.iter().filter(|claim| mode == JudgeMode::Whole || claim.quick);
    let claims: Vec<JudgedClaim> =
        claims.flat_map(|claim| of_claim(experiment, figure, claim, rounds, mode)).collect();
    let mut subjects: Vec<JudgedSubject> = Vec::new();
    for claim in &claims {
        if !subjects.iter().any(|one| one.subject == claim.subject) {
            let mine = claims.iter().filter(|other| other.subject == claim.subject);
            subjects.push(of_subject(&claim.subject, &mine.collect::<Vec<_>>()));
        }
    }
    let (verdict, sentence) = of_figure(figure, &subjects);
    JudgedFigure { id: figure.id.clone(), verdict, sentence, subjects, claims }
}

/// The verdicts on a claim, one for each subject.
fn of_claim(
    experiment: &Experiment,
    figure: &PaperFigure,
    claim: &Claim,
    rounds: &[KeptRound],
    mode: JudgeMode,
) -> Vec<JudgedClaim> {
    let all: Vec<&RawRow> = rounds.iter().flat_map(|round| &round.rows).collect();
    let judged = ClaimInRound { experiment, figure, claim, rows: &[], all: &all, mode };
    let of = judged.of();
    if let ClaimKind::CannotBeJudged(why) = &claim.kind {
        return vec![JudgedClaim {
            id: claim.id.clone(),
            why: claim.why.clone(),
            subject: ClaimSubject::default(),
            goal: goal(&claim.kind),
            verdict: PaperVerdict::CannotBeJudged,
            sentence: why.clone(),
            rounds: Vec::new(),
        }];
    }
    let one = |subject: ClaimSubject| {
        let in_round = |round| in_round(&judged, round, &subject);
        let found: Vec<RoundOfClaim> = rounds.iter().map(in_round).collect();
        let (verdict, sentence) = over_rounds(claim, &found, mode);
        JudgedClaim {
            id: claim.id.clone(),
            why: claim.why.clone(),
            subject,
            goal: goal(&claim.kind),
            verdict,
            sentence,
            rounds: found,
        }
    };
    let mut everyone = subjects(experiment, claim, &of, &all);
    let is_there = |one: &ClaimSubject| all.iter().any(|row| is_of(row, one));
    if mode == JudgeMode::Quick && everyone.iter().any(is_there) {
        // a short form measures some of them
        everyone.retain(is_there);
    }
    everyone.into_iter().map(one).collect()
}

/// A claim about a subject in a round; the rows of `judged` are another round's.
fn in_round(judged: &ClaimInRound<'_>, round: &KeptRound, subject: &ClaimSubject) -> RoundOfClaim {
    let ClaimInRound { experiment, claim, mode, .. } = *judged;
    let rows: Vec<&RawRow> = round.rows.iter().collect();
    let involved = involved(experiment, claim, &judged.of(), subject, &rows);
    let void = involved.iter().find_map(|one| {
        let why = reason(experiment, &rows, one, mode)?;
        let is_alone = involved.len() == 1;
        Some(if is_alone { why } else { format!("{why} ({})", one.text()) })
    });
    let finding = match void {
        Some(why) => ClaimFinding::Void(why),
        None => ClaimInRound { rows: &rows, ..*judged }.find(subject),
    };
    let is_noisy = rows.iter().any(|row| {
        involved.iter().any(|one| is_of(row, one)) && row.flags().iter().any(|flag| flag == NOISY)
    });
    let (run, number, machine) = (round.run.clone(), round.number, round.machine.clone());
    RoundOfClaim { run, number, machine, is_noisy, finding }
}

fn is_of(row: &RawRow, one: &ClaimSubject) -> bool {
    one.0.iter().all(|(key, word)| row.text(key) == word)
}

/// All subjects whose rows a claim about a subject needs: itself, and those it is compared with.
fn involved(
    experiment: &Experiment,
    claim: &Claim,
    of: &RowSelector,
    subject: &ClaimSubject,
    rows: &[&RawRow],
) -> Vec<ClaimSubject> {
    let order = ordered(claim);
    let names = |selector: &RowSelector, key: &str| selector.words(key).is_some();
    let is_ordered = |key: &str| order.iter().any(|selector| names(selector, key));
    let has = |selector: &RowSelector, key: &str, word: &String| {
        selector.words(key).is_none_or(|words| words.contains(word))
    };
    let is_mine = |(key, word): &(String, String)| match subject.word(key) {
        Some(mine) => mine == word,
        None if is_ordered(key) => {
            order.iter().any(|selector| names(selector, key) && has(selector, key, word))
        }
        None => has(of, key, word),
    };
    let is_other = |words: &RowSelector, (key, word): &(String, String)| {
        if names(words, key) {
            return has(words, key, word);
        }
        let is_formless = key == "form" && names(words, "server") && word.is_empty();
        is_formless || subject.word(key).is_none_or(|mine| mine == word)
    };
    let compares =
        |words: &&RowSelector| words.0.iter().any(|word| subject.word(&word.key).is_some());
    let other = compared(claim).filter(compares);
    let all = everybody(experiment, rows).into_iter();
    all.filter(|one| {
        one.0.iter().all(is_mine)
            || other.is_some_and(|words| one.0.iter().all(|pair| is_other(words, pair)))
    })
    .collect()
}

/// The verdict from all rounds.
fn over_rounds(claim: &Claim, rounds: &[RoundOfClaim], mode: JudgeMode) -> (PaperVerdict, String) {
    let mut numbers = Vec::new();
    let (mut held, mut voids) = (0, Vec::new());
    for round in rounds {
        match &round.finding {
            ClaimFinding::True(number) => {
                held += 1;
                numbers.push((round.machine.as_str(), *number));
            }
            ClaimFinding::False(number) => numbers.push((round.machine.as_str(), *number)),
            ClaimFinding::Void(why) => voids.push(why),
            ClaimFinding::Missing => {}
        }
    }
    let counted = numbers.len();
    let wanted = if mode == JudgeMode::Quick { 1 } else { claim.rounds.max(1) as usize };
    if !voids.is_empty() && voids.len() >= counted {
        let rounds = counted + voids.len();
        let why = voids.last().map_or("", |why| why.as_str());
        return (PaperVerdict::Void, format!("void in {} of {rounds}: {why}", voids.len()));
    }
    if counted < wanted {
        let so_far = match counted {
            0 => String::new(),
            _ => format!(", {held} true, {}", range(&numbers)),
        };
        return (PaperVerdict::NotYet, format!("{counted} of {wanted} rounds{so_far}"));
    }
    let goal = goal(&claim.kind);
    if claim.interval && mode == JudgeMode::Whole {
        return by_interval(claim, &numbers, &goal);
    }
    let verdict = match () {
        () if (counted - held) * ONE_OF <= counted => PaperVerdict::Holds,
        () if held * ONE_OF <= counted => PaperVerdict::DoesNotHold,
        () => PaperVerdict::InPart,
    };
    let sentence = format!("{held} of {counted} rounds, {}, goal {goal}", range(&numbers));
    if verdict == PaperVerdict::Holds && machines_disagree(&numbers) {
        return (
            PaperVerdict::InPart,
            sentence + "; two machines differ by more than their spread",
        );
    }
    (verdict, sentence)
}

/// The 95 % interval of the median, by the order of the numbers: it lies on one side of the goal, or spans it.
fn by_interval(claim: &Claim, numbers: &[(&str, f64)], goal: &str) -> (PaperVerdict, String) {
    let (ClaimKind::Value(bounds) | ClaimKind::Ratio { bounds, .. }) = &claim.kind else {
        return (PaperVerdict::NotYet, "an interval is of a value or a ratio".to_owned());
    };
    let Some((low, high)) = interval(numbers) else {
        return (PaperVerdict::NotYet, format!("{} of 6 rounds for an interval", numbers.len()));
    };
    let is_within =
        |number| room(number, bounds, &RawRow::default()).is_none_or(|room| room >= 0.0);
    let median = Spread::of(numbers.iter().map(|one| one.1)).map_or(f64::NAN, |all| all.median);
    let is_one_sided = bounds.min.is_none() || bounds.max.is_none();
    let verdict = match (is_within(low), is_within(high)) {
        (true, true) => PaperVerdict::Holds,
        (false, false) if is_one_sided || !is_within(median) => PaperVerdict::DoesNotHold,
        _ => PaperVerdict::InPart,
    };
    let (low, high, median) = (brief(low), brief(high), brief(median));
    let count = numbers.len();
    let sentence =
        format!("median {median}, 95 % interval {low}–{high}, {count} rounds, goal {goal}");
    (verdict, sentence)
}

/// The numbers between which the median lies with 95 %; `None` if they are too few for that.
fn interval(numbers: &[(&str, f64)]) -> Option<(f64, f64)> {
    let mut sorted: Vec<f64> = numbers.iter().map(|one| one.1).collect();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len();
    // how likely it is that no more than `below` of `count` coins show heads
    let mut below = None;
    let (mut chance, mut sum) = (0.5f64.powi(count as i32), 0.0);
    for place in 0..count / 2 {
        sum += chance;
        if 2.0 * sum > 0.05 {
            break;
        }
        below = Some(place);
        chance *= (count - place) as f64 / (place + 1) as f64;
    }
    let place = below?;
    Some((sorted[place], sorted[count - 1 - place]))
}

/// Whether the medians of two machines lie further apart than the numbers of each.
fn machines_disagree(numbers: &[(&str, f64)]) -> bool {
    let mut names: Vec<&str> = numbers.iter().map(|one| one.0).collect();
    names.sort_unstable();
    names.dedup();
    let spread =
        |name: &&str| Spread::of(numbers.iter().filter(|one| one.0 == *name).map(|one| one.1));
    let all: Vec<Spread> = names.iter().filter_map(spread).collect();
    let width = |one: &Spread| one.most - one.least;
    all.iter().enumerate().any(|(place, one)| {
        all[..place].iter().any(|other| {
            let apart = (one.median - other.median).abs();
            apart > width(one) && apart > width(other)
        })
    })
}

fn range(numbers: &[(&str, f64)]) -> String {
    let Some(all) = Spread::of(numbers.iter().map(|one| one.1)) else { return "–".to_owned() };
    let (least, most) = (brief(all.least), brief(all.most));
    if least == most { least } else { format!("{least}–{most}") }
}

/// The verdict on a subject: all that is claimed holds, some of it, or nothing.
fn of_subject(subject: &ClaimSubject, claims: &[&JudgedClaim]) -> JudgedSubject {
    let count = |verdict| claims.iter().filter(|claim| claim.verdict == verdict).count();
    let (holds, part, not) =
        (count(PaperVerdict::Holds), count(PaperVerdict::InPart), count(PaperVerdict::DoesNotHold));
    let verdict = if count(PaperVerdict::NotYet) > 0 {
        PaperVerdict::NotYet
    } else if holds + part + not == 0 {
        let is_void = count(PaperVerdict::Void) > 0;
        if is_void { PaperVerdict::Void } else { PaperVerdict::CannotBeJudged }
    } else if holds + part == 0 && count(PaperVerdict::Void) == 0 {
        PaperVerdict::DoesNotHold
    } else if part + not + count(PaperVerdict::Void) == 0 {
        PaperVerdict::Holds
    } else {
        PaperVerdict::InPart
    };
    let worst = [
        PaperVerdict::NotYet,
        PaperVerdict::DoesNotHold,
        PaperVerdict::Void,
        PaperVerdict::InPart,
        PaperVerdict::CannotBeJudged,
    ];
    let worst = worst.into_iter().find_map(|verdict| {
        let claim = claims.iter().find(|claim| claim.verdict == verdict)?;
        Some(format!("{}: {}", claim.id, claim.sentence))
    });
    JudgedSubject { subject: subject.clone(), verdict, sentence: worst.unwrap_or_default() }
}

/// The verdict on the figure, over all subjects.
fn of_figure(figure: &PaperFigure, subjects: &[JudgedSubject]) -> (PaperVerdict, String) {
    if subjects.is_empty() {
        return (PaperVerdict::NotYet, "nothing is claimed of it yet".to_owned());
    }
    let count = |verdict| subjects.iter().filter(|one| one.verdict == verdict).count();
    let judged = subjects.len() - count(PaperVerdict::CannotBeJudged);
    let verdict = if count(PaperVerdict::NotYet) > 0 {
        PaperVerdict::NotYet
    } else if judged == 0 {
        PaperVerdict::CannotBeJudged
    } else if count(PaperVerdict::Void) == judged {
        PaperVerdict::Void
    } else if count(PaperVerdict::DoesNotHold) == judged {
        PaperVerdict::DoesNotHold
    } else if count(PaperVerdict::Holds) == judged && figure.absent.is_empty() {
        PaperVerdict::Holds
    } else {
        PaperVerdict::InPart
    };
    (verdict, sentence(figure, subjects))
}

/// A sentence on who holds, who does not, and why.
fn sentence(figure: &PaperFigure, subjects: &[JudgedSubject]) -> String {
    let of = |verdict| subjects.iter().filter(move |one| one.verdict == verdict);
    let mut parts = Vec::new();
    let name = |one: &JudgedSubject| match one.subject.0.is_empty() {
        true => "it".to_owned(),
        false => one.subject.text(),
    };
    let names = |verdict| of(verdict).map(name).collect::<Vec<_>>();
    let group = |verdict: PaperVerdict, one: &str, many: &str| {
        let names = names(verdict);
        let verb = if names.len() == 1 { one } else { many };
        let why = of(verdict).next().map_or("", |one| one.sentence.as_str());
        let why = match verdict {
            PaperVerdict::Holds => String::new(),
            _ => format!(" ({why})"),
        };
        (!names.is_empty()).then(|| format!("{} {verb}{why}", names.join(", ")))
    };
    parts.extend(group(PaperVerdict::Holds, "holds", "hold"));
    parts.extend(group(PaperVerdict::InPart, "holds in part", "hold in part"));
    parts.extend(group(PaperVerdict::DoesNotHold, "does not", "do not"));
    parts.extend(group(PaperVerdict::Void, "is void", "are void"));
    parts.extend(group(
        PaperVerdict::NotYet,
        "is not measured often enough",
        "are not measured often enough",
    ));
    let absent = figure.absent.iter().map(|(name, why)| format!("{name} is not built ({why})"));
    parts.extend(absent);
    if parts.is_empty() {
        let why = of(PaperVerdict::CannotBeJudged).next().map(|one| one.sentence.clone());
        parts.extend(why);
    }
    parts.join(" · ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{ClaimBound, ClaimBounds};

    fn claim(least: f64, rounds: u32, interval: bool) -> Claim {
        let min = Some(ClaimBound { number: least, of: String::new() });
        Claim {
            id: "a".to_owned(),
            of: RowSelector::default(),
            figure: "good_per_s".to_owned(),
            kind: ClaimKind::Value(ClaimBounds { min, max: None }),
            rounds,
            interval,
            quick: false,
            why: String::new(),
        }
    }

    fn rounds(findings: &[ClaimFinding]) -> Vec<RoundOfClaim> {
        let round = |(place, finding): (usize, &ClaimFinding)| RoundOfClaim {
            run: "run".to_owned(),
            number: place as u32 + 1,
            machine: String::new(),
            is_noisy: false,
            finding: finding.clone(),
        };
        findings.iter().enumerate().map(round).collect()
    }

    fn of(findings: &[ClaimFinding]) -> (PaperVerdict, String) {
        over_rounds(&claim(0.95, 5, false), &rounds(findings), JudgeMode::Whole)
    }

    #[test]
    fn four_of_five_hold_and_one_of_five_does_not() {
        use ClaimFinding::{False, Missing, True, Void};
        let (yes, no) = (True(0.97), False(0.9));
        let void = Void("nothing thrashes".to_owned());
        let all = |trues: usize, falses: usize, voids: usize| {
            let parts =
                [vec![yes.clone(); trues], vec![no.clone(); falses], vec![void.clone(); voids]];
            of(&parts.concat())
        };
        assert_eq!(
            all(4, 1, 0),
            (PaperVerdict::Holds, "4 of 5 rounds, 0.9–0.97, goal ≥ 0.95".to_owned())
        );
        assert_eq!(all(1, 4, 0).0, PaperVerdict::DoesNotHold);
        assert_eq!(all(3, 3, 0).0, PaperVerdict::InPart);
        assert_eq!(all(3, 0, 0), (PaperVerdict::NotYet, "3 of 5 rounds, 3 true, 0.97".to_owned()));
        assert_eq!(all(5, 0, 4).0, PaperVerdict::Holds);
        assert_eq!(
            all(5, 0, 5),
            (PaperVerdict::Void, "void in 5 of 10: nothing thrashes".to_owned())
        );
        assert_eq!(of(&[Missing]), (PaperVerdict::NotYet, "0 of 5 rounds".to_owned()));
        let quick = over_rounds(&claim(0.95, 5, false), &rounds(&[yes]), JudgeMode::Quick);
        assert_eq!(quick.0, PaperVerdict::Holds);
    }

    #[test]
    fn intervals_lie_on_one_side_or_span_the_goal() {
        let numbers =
            |from: f64| (0..10).map(|n| ("", from + 0.01 * f64::from(n))).collect::<Vec<_>>();
        assert_eq!(interval(&numbers(1.0)), Some((1.01, 1.08)));
        assert_eq!(interval(&numbers(1.0)[..5]), None);
        let of = |from| by_interval(&claim(0.95, 10, true), &numbers(from), "≥ 0.95").0;
        assert_eq!(of(1.0), PaperVerdict::Holds);
        assert_eq!(of(0.9), PaperVerdict::InPart);
        assert_eq!(of(0.8), PaperVerdict::DoesNotHold);
    }

    #[test]
    fn machines_that_disagree_are_found() {
        let near = [("a", 1.0), ("a", 1.1), ("b", 1.05), ("b", 1.2)];
        let far = [("a", 1.0), ("a", 1.1), ("b", 1.5), ("b", 1.6)];
        assert!(!machines_disagree(&near) && machines_disagree(&far));
        assert!(!machines_disagree(&[("a", 1.0), ("a", 9.0)]));
    }
}
