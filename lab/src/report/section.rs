//! The section of one figure: the paper's numbers and ours, each claim about every subject with the
//! numbers of all rounds, the void rounds, the command, the rows.

use super::drawing::draw;
use super::{MeasuredFigure, ReportedFigure};
use crate::judge::void::brief;
use crate::judge::{ClaimFinding, JudgedClaim, PaperVerdict, RoundOfClaim};
use crate::rows::RawRow;
use forebay_load::chart::escape;
use std::collections::BTreeMap;
use std::fmt::Write;

/// The number of the newest rows that are in the page; the others are in the files.
const ROWS: usize = 60;

/// The mark of a verdict.
pub(super) fn chip(verdict: PaperVerdict) -> String {
    format!("<span class=\"chip {}\">{}</span>", class(verdict), verdict.text())
}

fn class(verdict: PaperVerdict) -> &'static str {
    match verdict {
        PaperVerdict::Holds => "holds",
        PaperVerdict::InPart => "part",
        PaperVerdict::DoesNotHold => "not",
        PaperVerdict::CannotBeJudged => "cannot",
        PaperVerdict::Void => "void",
        PaperVerdict::NotYet => "yet",
        PaperVerdict::NotBuilt => "built",
    }
}

/// A figure that a file has; writing to a string does not fail.
pub(super) fn section(figure: &ReportedFigure, measured: &MeasuredFigure) -> String {
    let drawings = draw(measured);
    let MeasuredFigure { experiment, figure: file, kept } = measured;
    let mut text = format!(
        "<section id=\"{}\"><h2><a href=\"#{0}\">{0}</a> {}</h2>\n<p class=\"soft\">{}</p>\n\
         <p>{} {}</p>\n",
        escape(&figure.id),
        escape(&file.title),
        escape(&experiment.question),
        chip(figure.judged.verdict),
        escape(&figure.judged.sentence),
    );
    let theirs = match measured.has_paper() {
        true => format!("<div><h3>The paper</h3>{}</div>", drawings.paper),
        false => String::new(),
    };
    let ours = format!("<div><h3>Today</h3>{}</div>", drawings.ours);
    let _ = writeln!(text, "<div class=\"two\">{theirs}{ours}</div>");
    for note in [&file.note, &experiment.note] {
        if !note.is_empty() {
            let _ = writeln!(text, "<p class=\"soft\">{}.</p>", escape(note.trim_end_matches('.')));
        }
    }
    text += &claims(&figure.judged.claims);
    text += &absent(&file.absent);
    text += &voids(&figure.judged.claims);
    let quiet = |count: usize, what: &str| match count {
        0 => String::new(),
        1 => format!(" One file {what}."),
        _ => format!(" {count} files {what}."),
    };
    let _ = writeln!(
        text,
        "<p class=\"soft\"><code>lab run {}</code> measures it: {} minutes. {}{}{}</p>",
        escape(&experiment.name),
        experiment.minutes,
        rounds(kept.rounds.len()),
        quiet(kept.other_editions, "of another edition of the experiment is not judged"),
        quiet(kept.broken_off, "did not come to the end and is not judged"),
    );
    text + &rows(measured) + "</section>\n"
}

fn rounds(count: usize) -> String {
    match count {
        0 => "No round is kept.".to_owned(),
        1 => "One round is kept.".to_owned(),
        _ => format!("{count} rounds are kept."),
    }
}

/// Each claim once, and below it all its subjects.
fn claims(all: &[JudgedClaim]) -> String {
    let mut text = String::new();
    let mut seen: Vec<&str> = Vec::new();
    for claim in all {
        if seen.contains(&claim.id.as_str()) {
            continue;
        }
        seen.push(&claim.id);
        let why = match claim.why.is_empty() {
            true => String::new(),
            false => format!("<p class=\"soft\">{}.</p>", escape(claim.why.trim_end_matches('.'))),
        };
        let _ = write!(
            text,
            "<h3>{}</h3>{why}<div class=\"scroll\"><table class=\"claims\"><tr><th>of<th>goal<th>verdict\
             <th>each round",
            escape(&claim.id)
        );
        for one in all.iter().filter(|one| one.id == claim.id) {
            let numbers = match one.verdict {
                PaperVerdict::CannotBeJudged => escape(&one.sentence),
                _ => one.rounds.iter().map(number).collect(),
            };
            let _ = write!(
                text,
                "<tr><td>{}<td>{}<td>{}<td>{numbers}",
                escape(&one.subject.text()),
                escape(&one.goal),
                chip(one.verdict),
            );
        }
        text += "</table></div>\n";
    }
    text
}

/// A round's number, or why it has none.
fn number(round: &RoundOfClaim) -> String {
    let noisy = if round.is_noisy { "<sup>n</sup>" } else { "" };
    let (class, said) = match &round.finding {
        ClaimFinding::True(number) => ("good", brief(*number)),
        ClaimFinding::False(number) => ("bad", brief(*number)),
        ClaimFinding::Void(_) => ("soft", "void".to_owned()),
        ClaimFinding::Missing => ("soft", "–".to_owned()),
    };
    let from = format!("{}, round {}", escape(&round.run), round.number);
    format!("<span class=\"{class}\" title=\"{from}\">{said}{noisy}</span> ")
}

fn absent(absent: &[(String, String)]) -> String {
    let one = |(name, why): &(String, String)| {
        let name = if name.is_empty() { "All of it" } else { name };
        format!("<li>{} is not built: {}.", escape(name), escape(why.trim_end_matches('.')))
    };
    match absent.is_empty() {
        true => String::new(),
        false => format!("<ul>{}</ul>\n", absent.iter().map(one).collect::<String>()),
    }
}

/// The reasons for which rounds did not count, and their numbers.
fn voids(claims: &[JudgedClaim]) -> String {
    let mut reasons: BTreeMap<(&str, &str, u32, String), ()> = BTreeMap::new();
    for claim in claims {
        for round in &claim.rounds {
            if let ClaimFinding::Void(why) = &round.finding {
                let who = claim.subject.text();
                reasons.insert((why, &round.run, round.number, who), ());
            }
        }
    }
    if reasons.is_empty() {
        return String::new();
    }
    let mut counted: BTreeMap<(String, &str), usize> = BTreeMap::new();
    for (why, _, _, who) in reasons.keys() {
        // the number differs from round to round
        let what = why.split_once(": ").map_or(*why, |(what, _)| what);
        *counted.entry((who.clone(), what)).or_default() += 1;
    }
    let line = |((who, what), count): (&(String, &str), &usize)| {
        format!("<li>{}: {} ({count} ×)", escape(who), escape(what))
    };
    let lines: String = counted.iter().map(line).collect();
    format!("<h3>Void</h3><ul>{lines}</ul>\n")
}

/// The newest round's rows, and links to all.
fn rows(measured: &MeasuredFigure) -> String {
    let Some((_, file)) = &measured.kept.newest else { return String::new() };
    let name = &measured.experiment.name;
    let mut text =
        "<details><summary>Rows of the newest file, and all files</summary>\n".to_owned();
    if let Some(command) = file.said("command") {
        let _ = writeln!(text, "<p class=\"soft\"><code>{}</code></p>", escape(command));
    }
    let is_meant = |row: &&RawRow| crate::judge::select::is_selected(row, &measured.figure.at);
    let meant: Vec<&RawRow> = file.rows.iter().filter(is_meant).collect();
    let lines: String = meant.iter().take(ROWS).map(|row| file.line(row)).collect();
    let head = file.head();
    let columns = head.lines().last().unwrap_or_default();
    let _ = writeln!(text, "<pre>{}\n{}</pre>", escape(columns), escape(&lines));
    if meant.len() > ROWS {
        let _ =
            writeln!(text, "<p class=\"soft\">{} more are in the file.</p>", meant.len() - ROWS);
    }
    let mut runs: Vec<&str> = Vec::new();
    for round in measured.kept.rounds.iter().rev() {
        if !runs.contains(&round.run.as_str()) {
            runs.push(&round.run);
        }
    }
    let link = |run: &&str| {
        let run = escape(run);
        format!("<li><a href=\"../../lab/runs/{run}/{name}.csv\">{run}/{name}.csv</a>")
    };
    text + "<ul>" + &runs.iter().map(link).collect::<String>() + "</ul></details>\n"
}
