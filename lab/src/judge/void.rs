//! Reasons for which rows do not count: the effect that was to be shown did not happen, or the load
//! was not as stated.

use super::claim::{bounds_text, room};
use super::select::{is_selected, who_keys};
use super::{ClaimSubject, JudgeMode};
use crate::experiment::{Experiment, ExperimentTask, LoadTask, RowSelector, VoidRule};
use crate::rows::RawRow;

/// The bounds of last third ÷ first third of a group's time, outside of which it was not measured
/// at rest.
const STEADY: (f64, f64) = (0.85, 1.18);
/// The number of standard deviations of the count that widen these bounds.
const DEVIATIONS: f64 = 4.0;
/// The largest variance ÷ mean of arrivals; above it, clients come in step. 250 clients in step
/// vary by more than 100; clients whose SYNs the kernel drops, and that draw their pauses, by 7, as
/// every client sends a SYN again after 1, 3 and 7 s.
const IN_STEP: f64 = 20.0;
/// A generator that is busier, and has waited for a core for longer, has measured itself.
const CLIENT_BUSY: f64 = 0.95;
const STARVED: f64 = 0.1;

/// The reason why the rows of a subject do not count in a round; `None` if they do.
///
/// `rows` are all rows of the round.
pub fn reason(
    experiment: &Experiment,
    rows: &[&RawRow],
    somebody: &ClaimSubject,
    mode: JudgeMode,
) -> Option<String> {
    let is_of =
        |row: &&&RawRow, one: &ClaimSubject| one.0.iter().all(|(key, word)| row.text(key) == word);
    let mine: Vec<&RawRow> = rows.iter().filter(|row| is_of(row, somebody)).copied().collect();
    let flagged = mine.iter().find(|row| !row.is_valid());
    if let Some(row) = flagged {
        return Some(format!("the measurement failed: {}", row.flags().join(", ")));
    }
    let own = experiment.voids.iter().filter(|rule| !rule.whole_round);
    let whole = experiment.voids.iter().filter(|rule| rule.whole_round);
    own.filter_map(|rule| broken(experiment, rule, &mine, somebody, mode))
        .chain(whole.filter_map(|rule| broken_by_any(experiment, rule, rows, mode)))
        .chain(proofs(experiment, &mine))
        .next()
}

/// Checks a rule for the whole round: every subject that it names has to show the effect.
fn broken_by_any(
    experiment: &Experiment,
    rule: &VoidRule,
    rows: &[&RawRow],
    mode: JudgeMode,
) -> Option<String> {
    let all = super::select::everybody(experiment, rows);
    all.iter().find_map(|one| {
        let is_mine = |row: &&RawRow| one.0.iter().all(|(key, word)| row.text(key) == word);
        let mine: Vec<&RawRow> = rows.iter().copied().filter(is_mine).collect();
        broken(experiment, rule, &mine, one, mode)
    })
}

/// Whether a subject's rows break a rule, and how.
fn broken(
    experiment: &Experiment,
    rule: &VoidRule,
    mine: &[&RawRow],
    somebody: &ClaimSubject,
    mode: JudgeMode,
) -> Option<String> {
    let is_who = |key: &str| who_keys(experiment).contains(&key);
    let is_meant = rule.of.0.iter().filter(|word| is_who(&word.key)).all(|word| {
        somebody.word(&word.key).is_some_and(|mine| word.words.iter().any(|one| one == mine))
    });
    if !is_meant || mine.is_empty() {
        return None;
    }
    let rest = rule.of.0.iter().filter(|word| !is_who(&word.key)).cloned().collect();
    let rest = RowSelector(rest);
    let shown: Vec<&RawRow> = mine.iter().copied().filter(|row| is_selected(row, &rest)).collect();
    let names_a_point =
        rest.0.iter().any(|word| experiment.sweep.iter().any(|axis| axis.name == word.key));
    if shown.is_empty() && names_a_point && mode == JudgeMode::Whole {
        return Some(format!("{}: the point that shows it was not measured", rule.what));
    }
    shown.iter().find_map(|row| {
        let Some(number) = row.get(&rule.figure) else {
            return Some(format!("{}: {} was not measured", rule.what, rule.figure));
        };
        // where a limit is off there is no bound
        let is_broken = room(number, &rule.bounds, row).is_some_and(|room| room < 0.0);
        let bounds = bounds_text(&rule.bounds);
        is_broken.then(|| {
            format!("{}: {} is {}, and should be {bounds}", rule.what, rule.figure, brief(number))
        })
    })
}

/// The proofs that every load has to give, whatever is measured.
fn proofs(experiment: &Experiment, mine: &[&RawRow]) -> Option<String> {
    let ExperimentTask::Load(load) = &experiment.task else { return None };
    mine.iter().find_map(|row| proof(load, row))
}

fn proof(load: &LoadTask, row: &RawRow) -> Option<String> {
    let group = row.text("group");
    let has_setting = |name: &str| {
        let all = load.groups.iter().filter(|one| one.name == group);
        all.flat_map(|one| &one.settings).any(|(key, _)| key == name)
    };
    if let (Some(steady), Some(good)) = (row.get("steady"), row.get("good_per_s")) {
        let counted = (good * load.measured.as_secs_f64() / 3.0).max(1.0);
        let deviation = DEVIATIONS * (2.0 / counted).sqrt();
        if steady < STEADY.0 - deviation || steady > STEADY.1 + deviation {
            let what = "was not at rest: last third ÷ first";
            return Some(format!("group {group} {what} is {}", brief(steady)));
        }
    }
    let in_step = row.get("in_step").filter(|_| !has_setting("bursts") && !has_setting("steps"));
    if let Some(in_step) = in_step.filter(|in_step| *in_step > IN_STEP) {
        let what = "came in step: variance ÷ mean of its arrivals";
        return Some(format!("group {group} {what} is {}", brief(in_step)));
    }
    let shares = load.place.settings.iter().any(|(key, value)| key == "cores" && value == "one");
    let (busy, starved) = (row.get("client_busy")?, row.get("starved")?);
    (!shares && busy > CLIENT_BUSY && starved > STARVED).then(|| {
        format!("the load generator was busy ({}) and starved ({})", brief(busy), brief(starved))
    })
}

/// A number with three significant digits.
pub fn brief(number: f64) -> String {
    let size = number.abs();
    match size {
        _ if size == 0.0 || size >= 99.95 => format!("{number:.0}"),
        _ if size >= 9.995 => format!("{number:.1}"),
        _ if size >= 0.9995 => format!("{number:.2}"),
        _ if size >= 0.000_5 => {
            let digits = (2.0 - size.log10().floor()) as usize;
            let text = format!("{number:.digits$}");
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
        _ => format!("{number:.1e}"),
    }
}
