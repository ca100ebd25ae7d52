//! One table of markdown: the verdict on each figure today.

use super::{LabReport, ReportedFigure};
use std::fmt::Write;

/// A line for each figure of the papers, and one for each beside other servers.
pub fn markdown(report: &LabReport) -> String {
    let mut text = "| figure | what | verdict | what it rests on |\n|---|---|---|---|\n".to_owned();
    for figure in report.papers.iter().chain(&report.peers) {
        let ReportedFigure { id, about, judged, .. } = figure;
        let sentence = judged.sentence.replace('|', "\\|");
        // writing to a string does not fail
        let _ = writeln!(text, "| {id} | {about} | {} | {sentence} |", judged.verdict.text());
    }
    text
}
