//! The report of an invented record, as it is kept beside this file.

use super::*;
use crate::experiment::read::parse;
use crate::rows::KeptRound;
use crate::rows::recorded::RowFile;
use std::path::PathBuf;

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/report/fixture")
}

fn text(name: &str) -> String {
    fs::read_to_string(fixture().join(name)).expect("a file of the fixture")
}

/// Six rounds of a flood, as a folder of runs would hold them.
fn report(rounds: u32) -> LabReport {
    let experiment = parse("voigt-flood", &text("flood.toml")).expect("an experiment");
    let mut kept = KeptRows::default();
    for number in 1..=rounds {
        let file = RowFile::read(&text(&format!("flood-{number}.csv")));
        let run = format!("2026-12-0{number}-round-{number}");
        let said = |key: &str| file.said(key).unwrap_or_default().to_owned();
        let (commit, machine, rows) = (said("commit"), said("processor"), file.rows.clone());
        kept.rounds.push(KeptRound { run: run.clone(), number: 1, commit, machine, rows });
        kept.newest = Some((Path::new(&run).join("voigt-flood.csv"), file));
    }
    let of = |figure| ReportedFigure::judged(&experiment, figure, "normal clients", kept.clone());
    let mut papers: Vec<_> = experiment.figures.iter().map(of).collect();
    papers.push(ReportedFigure::without("voigt-f11", "scripts that thrash", ""));
    papers.push(ReportedFigure::without("voigt-4.6", "a hit in the kernel", "it is not built"));
    let (folder, title) = ("2026-11-22-overload".to_owned(), "Overload".to_owned());
    let old = vec![OldRun { folder, title, rows: 12 }];
    LabReport { made: "2026-12-06".to_owned(), papers, peers: Vec::new(), old }
}

#[test]
fn the_page_is_as_kept() {
    let (page, path) = (report(6).to_html(), fixture().join("report.html"));
    if std::env::var_os("UPDATE_CASES").is_some() {
        fs::write(&path, &page).expect("written");
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    let differs = page.lines().zip(kept.lines()).find(|(one, other)| one != other);
    assert!(differs.is_none(), "UPDATE_CASES=1 writes it anew: {differs:?}");
    assert_eq!(page.len(), kept.len(), "UPDATE_CASES=1 writes it anew");
}

#[test]
fn the_page_needs_nothing_else() {
    let page = report(6).to_html();
    for word in ["<script", "src=", "@import", "url(", "NaN", "inf "] {
        assert!(!page.contains(word), "{word}");
    }
    for id in ["voigt-f12", "voigt-f13"] {
        assert!(
            page.contains(&format!("id=\"{id}\"")) && page.contains(&format!("href=\"#{id}\""))
        );
    }
    assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
}

#[test]
fn verdicts_are_those_of_the_rows() {
    let report = report(6);
    let of = |id: &str| report.papers.iter().find(|one| one.id == id).expect("a figure");
    let flood = &of("voigt-f12").judged;
    assert_eq!(flood.verdict, PaperVerdict::InPart, "{}", flood.sentence);
    let claim = |id: &str, who: &str| {
        let mut all = flood.claims.iter();
        let found = all.find(|one| one.id.starts_with(id) && one.subject.text() == who);
        found.map(|one| (one.verdict, one.sentence.clone())).expect("a claim")
    };
    assert_eq!(claim("SYN policing is flat", "event kernel").0, PaperVerdict::Holds);
    assert_eq!(claim("user space loses half", "event user space").0, PaperVerdict::DoesNotHold);
    // one of its rounds is void, so five are left
    let (verdict, sentence) = claim("user space loses half", "pool-50 user space");
    assert_eq!(verdict, PaperVerdict::DoesNotHold, "{sentence}");
    assert!(sentence.starts_with("0 of 5 rounds"), "{sentence}");
}

#[test]
fn a_table_of_markdown_has_a_line_for_each_figure() {
    let markdown = table::markdown(&report(6));
    assert_eq!(markdown.lines().count(), 6);
    assert!(markdown.contains("| voigt-4.6 | a hit in the kernel | not built | it is not built |"));
}

#[test]
fn without_rounds_nothing_is_judged_and_all_is_drawn() {
    let report = report(0);
    assert_eq!(report.count(PaperVerdict::NotYet), 3);
    let page = report.to_html();
    assert!(page.contains(">not measured yet</text>") && page.contains("No round is kept."));
}
