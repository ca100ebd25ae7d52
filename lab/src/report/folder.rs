//! What the rows of one folder come to, as markdown: tables of an old run, verdicts of a newer one.

use super::ReportedFigure;
use crate::Error;
use crate::catalogue::Catalogue;
use crate::rows::formats::OldFormats;
use crate::rows::kept::read_folder;
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// The text for a folder of `lab/runs`, or one like those.
///
/// # Errors
/// When there are no rows that can be read.
pub fn markdown(catalogue: &Catalogue, runs: &Path, folder: &Path) -> Result<String, Error> {
    let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let old = folder.join("rows.csv");
    if old.exists() {
        let text = fs::read_to_string(&old).map_err(Error::io("cannot read", &old))?;
        let formats = runs.join("formats.toml");
        let formats = fs::read_to_string(&formats).map_err(Error::io("cannot read", &formats))?;
        let formats =
            OldFormats::read(&formats).map_err(|error| Error::Client(error.to_string()))?;
        let format = formats.of_folder(&name).ok_or_else(|| {
            Error::Client(format!("{name}: no format of lab/runs/formats.toml has this name"))
        })?;
        let file = format.rows(&text);
        let header = file.header.iter().map(|(key, value)| format!("- {key}: {value}\n"));
        let header: String = header.collect();
        return Ok(format!("# {}\n\n{header}{}", format.title, format.tables(&file)));
    }
    let mut text = String::new();
    for experiment in &catalogue.experiments {
        let kept = read_folder(folder, &name, &experiment.name, experiment.edition);
        for figure in experiment.figures.iter().filter(|_| !kept.rounds.is_empty()) {
            let judged = ReportedFigure::judged(experiment, figure, "", kept.clone()).judged;
            // writing to a string does not fail
            let _ = write!(
                text,
                "\n## {}: {}\n\n{}: {}\n\n| claim | of | goal | verdict | rounds |\n|---|---|---|---|---|\n",
                figure.id,
                figure.title,
                judged.verdict.text(),
                judged.sentence
            );
            for claim in &judged.claims {
                let (who, verdict) = (claim.subject.text(), claim.verdict.text());
                let (id, goal, said) = (&claim.id, &claim.goal, &claim.sentence);
                let _ = writeln!(text, "| {id} | {who} | {goal} | {verdict} | {said} |");
            }
        }
    }
    match text.is_empty() {
        true => Err(Error::Client(format!("{}: no rows of any experiment", folder.display()))),
        false => Ok(format!("# {name}\n{text}")),
    }
}
