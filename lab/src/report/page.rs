//! The page: a summary that can be read in a minute, then a section for each figure, then the rest.

use super::drawing::{Drawings, sparks};
use super::section::{chip, section};
use super::{LabReport, MeasuredFigure, OldRun, ReportedFigure};
use crate::judge::PaperVerdict;
use forebay_load::chart::{self, escape};
use std::collections::BTreeSet;
use std::fmt::Write;

const STYLE: &str = include_str!("page.css");

/// The number of characters of a sentence in the short list; the section has all of it.
const SENTENCE: usize = 150;

/// The whole page. Writing to a string does not fail.
pub(super) fn page(report: &LabReport) -> String {
    let mut text = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>Forebay: the Laboratory</title>\n<style>\n{STYLE}{}</style>\n<main>\n",
        chart::STYLE
    );
    text += &head(report);
    text += &list("Figures of the papers", &report.papers);
    if !report.peers.is_empty() {
        text += &list("Beside other servers of today", &report.peers);
    }
    for figure in report.papers.iter().chain(&report.peers) {
        if let Some(measured) = &figure.measured {
            text += &section(figure, measured);
        }
    }
    text += &how();
    text += &old(&report.old);
    text + "</main>\n</html>\n"
}

/// The subject of each paper, by the beginnings of its figures' names.
const PAPERS: [(&str, &str); 5] = [
    ("keta", "a server as a pipeline of phases, whose threads move to where the work is"),
    ("emu", "fibers in the place of threads"),
    ("duke", "a thread for each connection, and a pool of them"),
    ("voigt", "who is served first and who is refused, before it costs anything"),
    ("mvmdp", "a pipeline over virtual machines that may fail"),
];

/// Two sentences, the machine, and the numbers of verdicts.
fn head(report: &LabReport) -> String {
    let of = |verdict| report.count(verdict);
    let judged = of(PaperVerdict::Holds) + of(PaperVerdict::InPart) + of(PaperVerdict::DoesNotHold);
    let mut text = format!(
        "<h1>The Laboratory</h1>\n<p>Forebay is measured against every table and figure of the five papers \
         that it is built on, and against what they say in text: {} in all. Rounds enough for a verdict are there \
         for {judged} of them.</p>\n",
        report.papers.len(),
    );
    let _ = write!(text, "<p class=\"soft\">{}</p>\n<p class=\"counts\">", facts(report));
    for verdict in PaperVerdict::ALL {
        let count = of(verdict);
        if count > 0 {
            let _ = write!(text, "<span><b>{count}</b> {}</span> ", chip(verdict));
        }
    }
    text + "</p>\n"
}

/// Machine, commit, rounds, date.
fn facts(report: &LabReport) -> String {
    let rounds = || report.measured().flat_map(|one| &one.kept.rounds);
    let machines: BTreeSet<&str> = rounds().map(|round| round.machine.as_str()).collect();
    let machines: Vec<&str> = machines.into_iter().filter(|name| !name.is_empty()).collect();
    let runs: BTreeSet<&str> = rounds().map(|round| round.run.as_str()).collect();
    let newest = rounds().max_by(|one, other| one.run.cmp(&other.run));
    let commit = newest.map(|round| round.commit.as_str()).filter(|commit| !commit.is_empty());
    let parts = [
        (!machines.is_empty()).then(|| machines.join("; ")),
        commit.map(|commit| format!("newest round: commit {commit}")),
        Some(match runs.len() {
            0 => "no round is kept".to_owned(),
            1 => "one folder of rounds".to_owned(),
            count => format!("{count} folders of rounds"),
        }),
        (!report.made.is_empty()).then(|| format!("made {}", report.made)),
    ];
    escape(&parts.into_iter().flatten().collect::<Vec<_>>().join(" · "))
}

fn list(title: &str, figures: &[ReportedFigure]) -> String {
    let mut text = format!("<section><h2>{title}</h2>\n<div class=\"list\">\n");
    let mut last = "";
    for figure in figures {
        let paper = figure.id.split('-').next().unwrap_or_default();
        let about = PAPERS.iter().find(|(name, _)| *name == paper);
        if let Some((name, about)) = about.filter(|(name, _)| *name != last) {
            let _ = writeln!(text, "<h3>{name}: {about}</h3>");
            last = name;
        }
        text += &line(figure);
    }
    text + "</div></section>\n"
}

/// A line of the short list: name, subject, verdict, both curves.
fn line(figure: &ReportedFigure) -> String {
    let id = escape(&figure.id);
    let name = match figure.measured {
        Some(_) => format!("<a href=\"#{id}\">{id}</a>"),
        None => format!("<span>{id}</span>"),
    };
    let Drawings { paper, ours } = match &figure.measured {
        Some(measured) => sparks(measured),
        None => Drawings { paper: String::new(), ours: String::new() },
    };
    // for a figure that no file measures, the sentence says only that
    let sentence = match figure.measured {
        Some(_) => format!("<p>{}</p>", escape(&cut(&figure.judged.sentence))),
        None if figure.judged.verdict == PaperVerdict::NotYet => String::new(),
        None => format!("<small>: {}</small>", escape(&figure.judged.sentence)),
    };
    let nobody = if figure.measured.is_none() { " nobody" } else { "" };
    let is_drawn = |curve: &str| curve.starts_with("<svg");
    let curves = match is_drawn(&paper) || is_drawn(&ours) {
        true if !figure.measured.as_ref().is_some_and(MeasuredFigure::has_paper) => {
            format!("<small>today</small>{ours}")
        }
        true => format!("<small>paper</small>{paper}<small>today</small>{ours}"),
        false => String::new(),
    };
    format!(
        "<div class=\"entry{nobody}\"><b>{name}</b><div><span>{}</span>{sentence}</div>{}<div class=\"sparks\">\
         {curves}</div></div>\n",
        escape(&said(figure)),
        chip(figure.judged.verdict),
    )
}

/// The figure's subject, and its claims.
fn said(figure: &ReportedFigure) -> String {
    let claims = figure.measured.as_ref().map(|measured| &measured.figure.claims);
    let claims: Vec<&str> =
        claims.into_iter().flatten().take(2).map(|claim| claim.id.as_str()).collect();
    match claims.is_empty() {
        true => figure.about.clone(),
        false => format!("{}: {}", figure.about, claims.join("; ")),
    }
}

fn cut(sentence: &str) -> String {
    if sentence.chars().count() <= SENTENCE {
        return sentence.to_owned();
    }
    let start: String = sentence.chars().take(SENTENCE).collect();
    let end = start.rfind(' ').unwrap_or(start.len());
    start[..end].to_owned() + " …"
}

/// The meaning of the words.
fn how() -> String {
    "<section><h2>How to read this</h2>\n<p>A claim is true, false or void in a round. It holds if it is true in \
     four of five rounds that count, of the newest ten; it does not hold if it is true in one of five or in fewer; else \
     it holds in part. With fewer than five rounds there is no verdict yet. A round is void where what was to be \
     shown did not happen: no queue, no thrashing, a flood that did not come, a load generator that was busy itself. \
     Where rounds are void as often as they count, so is the claim.</p>\n<p>A figure holds if all its claims hold for \
     every engine and form that its file names. Lines are medians, bars go from the least to the most, dots are \
     rounds. A number with <sup>n</sup> was measured while something else ran; it counts.</p>\n</section>\n"
        .to_owned()
}

fn old(runs: &[OldRun]) -> String {
    if runs.is_empty() {
        return String::new();
    }
    let one = |run: &OldRun| {
        let (folder, title) = (escape(&run.folder), escape(&run.title));
        let rows = if run.rows == 0 { "–".to_owned() } else { run.rows.to_string() };
        format!("<tr><td><a href=\"../../lab/runs/{folder}\">{folder}</a><td>{title}<td>{rows}")
    };
    let rows: String = runs.iter().map(one).collect();
    format!(
        "<section><h2>Before the Laboratory</h2>\n<p class=\"soft\">Clients and windows were others: these are \
         shown by <code>lab show</code>, and not judged.</p>\n<details><summary>{} runs</summary><div class=\"scroll\">\
         <table class=\"runs\"><tr><th>folder<th>what<th>rows{rows}</table></div></details></section>\n",
        runs.len()
    )
}

#[cfg(test)]
mod tests {
    use super::cut;

    #[test]
    fn long_sentences_end_at_a_word() {
        let long = "word ".repeat(60);
        assert!(cut(&long).ends_with("word …") && cut(&long).chars().count() < 155);
        assert_eq!(cut("short"), "short");
    }
}
