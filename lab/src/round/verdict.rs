//! Verdicts on the rows of a folder, printed right after they were measured.

use crate::experiment::{Experiment, PaperFigure};
use crate::judge::verdict::judge;
use crate::judge::{ClaimFinding, JudgeMode, JudgedFigure, PaperVerdict};
use crate::rows::kept;
use std::fmt::Write;
use std::path::Path;

/// The verdict on a figure by all rows that are kept below a folder of runs.
pub fn judged(
    experiment: &Experiment,
    figure: &PaperFigure,
    runs: &Path,
    mode: JudgeMode,
) -> JudgedFigure {
    let kept = kept::read(runs, &experiment.name, experiment.edition);
    judge(experiment, figure, &kept.rounds, mode)
}

/// The verdicts on all figures of an experiment by the rows of one folder.
fn of_one(experiment: &Experiment, folder: &Path, mode: JudgeMode) -> Vec<JudgedFigure> {
    let runs = folder.parent().unwrap_or(folder);
    let mut kept = kept::read(runs, &experiment.name, experiment.edition);
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    kept.rounds.retain(|round| round.run == name);
    experiment.figures.iter().map(|figure| judge(experiment, figure, &kept.rounds, mode)).collect()
}

/// A line for each figure, and one for each claim about every subject: its rounds.
pub fn of_folder(experiment: &Experiment, folder: &Path, mode: JudgeMode) -> String {
    let mut text = String::new();
    for figure in of_one(experiment, folder, mode) {
        // writing to a string does not fail
        let _ = writeln!(text, "{}: {}: {}", figure.id, figure.verdict.text(), figure.sentence);
        for claim in &figure.claims {
            let round = |finding: &ClaimFinding| match finding {
                ClaimFinding::True(number) => format!("yes {number:.3}"),
                ClaimFinding::False(number) => format!("no {number:.3}"),
                ClaimFinding::Void(why) => format!("void: {why}"),
                ClaimFinding::Missing => "no rows".to_owned(),
            };
            let rounds: Vec<_> = claim.rounds.iter().map(|one| round(&one.finding)).collect();
            let subject = claim.subject.text();
            let _ =
                writeln!(text, "  {}, {subject} ({}): {}", claim.id, claim.goal, rounds.join("; "));
        }
    }
    text
}

/// Checks that the short form shows what it has to.
///
/// # Errors
/// The claims that it did not show.
pub fn short_form(experiment: &Experiment, folder: &Path) -> Result<(), String> {
    let judged = of_one(experiment, folder, JudgeMode::Quick);
    let claims = judged.iter().flat_map(|figure| &figure.claims);
    let wrong = claims.filter(|claim| claim.verdict != PaperVerdict::Holds);
    let wrong: Vec<_> = wrong
        .map(|claim| format!("{}: {}: {}", claim.id, claim.verdict.text(), claim.sentence))
        .collect();
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ")) }
}
