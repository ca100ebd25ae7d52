//! The report: every table and figure of the papers, its claims, and the findings.
//!
//! The files of experiments and the rows that are kept go in; one page of HTML comes out that needs
//! nothing else, with plots as SVG and without a script, or one table of markdown. Nothing is
//! measured here.
//!
//! | module | what it holds |
//! |---|---|
//! | [`shown`] | lines and tables made of a figure's rows |
//! | `drawing` | the paper's numbers and ours, as plots and tables |
//! | `section` | everything about one figure |
//! | `page` | the page: a minute's worth first, then the sections |
//! | [`table`] | one table of markdown |

mod drawing;
mod page;
mod section;
pub mod shown;
pub mod table;

use crate::catalogue::Catalogue;
use crate::experiment::sheet::SHEET;
use crate::experiment::{Experiment, ExperimentSet, PaperFigure};
use crate::judge::verdict::judge;
use crate::judge::{JudgeMode, JudgedFigure, PaperVerdict};
use crate::rows::formats::OldFormats;
use crate::rows::kept::{KeptRows, folders, read};
use std::fs;
use std::path::Path;

/// The contents of a report.
#[derive(Clone, Debug, Default)]
pub struct LabReport {
    /// The date on which it was made.
    pub made: String,
    /// The tables and figures of the papers, in their order.
    pub papers: Vec<ReportedFigure>,
    /// Forebay beside other servers of today.
    pub peers: Vec<ReportedFigure>,
    /// Runs from before the laboratory, the newest first.
    pub old: Vec<OldRun>,
}

/// A figure, with all that is known of it.
#[derive(Clone, Debug)]
pub struct ReportedFigure {
    /// The figure's name, such as `voigt-f12`.
    pub id: String,
    /// The figure's subject.
    pub about: String,
    /// The file that has it, if one does.
    pub measured: Option<MeasuredFigure>,
    /// The verdict; for a figure that no file has, there is only a sentence.
    pub judged: JudgedFigure,
}

/// A figure that a file has.
#[derive(Clone, Debug)]
pub struct MeasuredFigure {
    /// The file.
    pub experiment: Experiment,
    /// The figure.
    pub figure: PaperFigure,
    /// The rows.
    pub kept: KeptRows,
}

impl MeasuredFigure {
    /// Whether there is a paper that it is of.
    fn has_paper(&self) -> bool {
        self.experiment.set == ExperimentSet::Papers
    }
}

/// A run from before the laboratory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OldRun {
    /// The run's folder.
    pub folder: String,
    /// The run's subject.
    pub title: String,
    /// The number of its rows.
    pub rows: usize,
}

impl LabReport {
    /// Reads files and rows. `made` is the date.
    pub fn gather(catalogue: &Catalogue, runs: &Path, made: String) -> LabReport {
        let papers = SHEET.iter().map(|row| {
            let found = catalogue.experiments.iter().find_map(|experiment| {
                Some(ReportedFigure::of(experiment, experiment.figure(row.id)?, row.about, runs))
            });
            found.unwrap_or_else(|| ReportedFigure::without(row.id, row.about, row.not_built))
        });
        let peers = catalogue.beside_papers().flat_map(|experiment| {
            let of = |figure| ReportedFigure::of(experiment, figure, &experiment.title, runs);
            experiment.figures.iter().map(of).collect::<Vec<_>>()
        });
        let (papers, peers) = (papers.collect(), peers.collect());
        LabReport { made, papers, peers, old: old_runs(runs) }
    }

    /// The page.
    pub fn to_html(&self) -> String {
        page::page(self)
    }

    /// The number of the papers' figures that have this verdict.
    pub fn count(&self, verdict: PaperVerdict) -> usize {
        self.papers.iter().filter(|figure| figure.judged.verdict == verdict).count()
    }

    /// The figures that files have.
    fn measured(&self) -> impl Iterator<Item = &MeasuredFigure> {
        self.papers.iter().chain(&self.peers).filter_map(|figure| figure.measured.as_ref())
    }
}

impl ReportedFigure {
    /// A figure that a file has.
    fn of(experiment: &Experiment, figure: &PaperFigure, about: &str, runs: &Path) -> Self {
        let kept = read(runs, &experiment.name, experiment.edition);
        ReportedFigure::judged(experiment, figure, about, kept)
    }

    /// A figure with these rows.
    pub fn judged(
        experiment: &Experiment,
        figure: &PaperFigure,
        about: &str,
        kept: KeptRows,
    ) -> ReportedFigure {
        let judged = judge(experiment, figure, &kept.rounds, JudgeMode::Whole);
        let (experiment, figure) = (experiment.clone(), figure.clone());
        ReportedFigure {
            id: figure.id.clone(),
            about: about.to_owned(),
            measured: Some(MeasuredFigure { experiment, figure, kept }),
            judged,
        }
    }

    /// A figure that no file has.
    pub fn without(id: &str, about: &str, not_built: &str) -> ReportedFigure {
        let (verdict, sentence) = match not_built {
            "" => (PaperVerdict::NotYet, "no experiment measures it yet"),
            why => (PaperVerdict::NotBuilt, why),
        };
        let judged = JudgedFigure {
            id: id.to_owned(),
            verdict,
            sentence: sentence.to_owned(),
            subjects: Vec::new(),
            claims: Vec::new(),
        };
        ReportedFigure { id: id.to_owned(), about: about.to_owned(), measured: None, judged }
    }
}

fn old_runs(runs: &Path) -> Vec<OldRun> {
    let text = fs::read_to_string(runs.join("formats.toml")).unwrap_or_default();
    let formats = OldFormats::read(&text).unwrap_or_default();
    let one = |folder: String| {
        let format = formats.of_folder(&folder)?;
        let text = fs::read_to_string(runs.join(&folder).join("rows.csv"));
        let rows = text.map_or(0, |text| format.rows(&text).rows.len());
        Some(OldRun { folder, title: format.title.clone(), rows })
    };
    folders(runs).into_iter().rev().filter_map(one).collect()
}

#[cfg(test)]
mod tests;
