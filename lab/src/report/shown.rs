//! The lines of a plot and the rows of a table, made of a figure's rows over the newest rounds.

use super::MeasuredFigure;
use crate::experiment::{FigureView, PlotView};
use crate::judge::claim::at;
use crate::judge::select::{is_selected, joined};
use crate::rows::RawRow;
use crate::summary::Spread;

/// The number of the newest rounds that are shown, as many as are judged.
const WINDOW: usize = 10;

/// A line of a plot: its words, and its points.
#[derive(Clone, Debug, PartialEq)]
pub struct ShownLine {
    /// The words of its series.
    pub words: Vec<String>,
    /// The line's points, by x.
    pub points: Vec<ShownPoint>,
}

/// A point of a line.
#[derive(Clone, Debug, PartialEq)]
pub struct ShownPoint {
    /// The median of x, which may depend on what was measured.
    pub x: f64,
    /// Median, least and most.
    pub y: Spread,
    /// Each round's x and y.
    pub rounds: Vec<(f64, f64)>,
}

/// A row of a table: its name, and a value for each figure.
#[derive(Clone, Debug, PartialEq)]
pub struct ShownRow {
    /// The words that distinguish it from the others.
    pub name: String,
    /// Median, least and most of each figure.
    pub values: Vec<Option<Spread>>,
}

impl ShownLine {
    /// The name as reports show it.
    pub fn name(&self) -> String {
        let words: Vec<&str> =
            self.words.iter().map(String::as_str).filter(|word| !word.is_empty()).collect();
        words.join(", ")
    }
}

/// The rows of a figure that count, in the newest rounds.
fn rows(of: &MeasuredFigure) -> Vec<&RawRow> {
    let rounds = &of.kept.rounds[of.kept.rounds.len().saturating_sub(WINDOW)..];
    let selector = match &of.figure.view {
        FigureView::Plot(plot) => joined(&of.figure.at, &plot.at),
        FigureView::Table(_) => of.figure.at.clone(),
    };
    let all = rounds.iter().flat_map(|round| &round.rows);
    all.filter(|row| row.is_valid() && is_selected(row, &selector)).collect()
}

/// The lines of a figure's plot, in the order of the file.
pub fn lines(of: &MeasuredFigure, plot: &PlotView) -> Vec<ShownLine> {
    let mut lines: Vec<ShownLine> = Vec::new();
    let rows = rows(of);
    for row in &rows {
        let words: Vec<String> = plot.series.iter().map(|key| row.text(key).to_owned()).collect();
        if lines.iter().any(|line| line.words == words) {
            continue;
        }
        let is_mine = |other: &&&RawRow| {
            plot.series.iter().zip(&words).all(|(key, word)| other.text(key) == word)
        };
        let mine: Vec<&RawRow> = rows.iter().filter(is_mine).copied().collect();
        let points = points(&mine, plot);
        lines.push(ShownLine { words, points });
    }
    lines.retain(|line| !line.points.is_empty());
    lines
}

/// The points of a line, by the words of x: a part of the capacity is another number in each round.
fn points(mine: &[&RawRow], plot: &PlotView) -> Vec<ShownPoint> {
    let mut points: Vec<ShownPoint> = Vec::new();
    let mut seen: Vec<&str> = Vec::new();
    for row in mine {
        let word = row.text(&plot.x);
        if seen.contains(&word) {
            continue;
        }
        seen.push(word);
        let here = mine.iter().filter(|other| other.text(&plot.x) == word);
        let rounds: Vec<(f64, f64)> =
            here.filter_map(|row| Some((at(row, &plot.x)?, row.get(&plot.y)?))).collect();
        let x = Spread::of(rounds.iter().map(|round| round.0));
        let y = Spread::of(rounds.iter().map(|round| round.1));
        if let (Some(x), Some(y)) = (x, y) {
            points.push(ShownPoint { x: x.median, y, rounds });
        }
    }
    points.sort_by(|one, other| one.x.total_cmp(&other.x));
    points
}

/// The rows of a figure's table, in the order of the file.
pub fn table(of: &MeasuredFigure, figures: &[String]) -> Vec<ShownRow> {
    let rows = rows(of);
    let said = |row: &&RawRow| figures.iter().any(|figure| row.get(figure).is_some());
    let rows: Vec<&RawRow> = rows.into_iter().filter(said).collect();
    let words_of = |row: &RawRow| row.words().to_vec();
    let mut all: Vec<Vec<(String, String)>> = Vec::new();
    for row in &rows {
        if !all.contains(&words_of(row)) {
            all.push(words_of(row));
        }
    }
    let varies = |key: &str| {
        let mut words = rows.iter().map(|row| row.text(key));
        let first = words.next();
        words.any(|word| Some(word) != first)
    };
    let one = |words: &Vec<(String, String)>| {
        let mine: Vec<&&RawRow> = rows.iter().filter(|row| words_of(row) == *words).collect();
        let name = words.iter().filter(|(key, word)| varies(key) && !word.is_empty());
        let name: Vec<&str> = name.map(|(_, word)| word.as_str()).collect();
        let name = match (name.is_empty(), words.first()) {
            (true, Some((_, first))) => first.clone(),
            _ => name.join(", "),
        };
        let value = |figure: &String| Spread::of(mine.iter().filter_map(|row| row.get(figure)));
        ShownRow { name, values: figures.iter().map(value).collect() }
    };
    all.iter().map(one).collect()
}

/// The name of a figure for people: its unit comes last.
pub fn title(figure: &str) -> String {
    const UNITS: [(&str, &str); 9] = [
        ("_per_s", "/s"),
        ("_ms", ", ms"),
        ("_us", ", µs"),
        ("_ns", ", ns"),
        ("_mib", ", MiB"),
        ("_percent", ", %"),
        ("_pc", ", %"),
        ("_cores", ", cores"),
        ("_bytes", ", bytes"),
    ];
    let found = UNITS.iter().find_map(|(end, unit)| Some((figure.strip_suffix(end)?, *unit)));
    match found {
        Some((name, unit)) => name.replace('_', " ") + unit,
        None if figure == "ns" => "time, ns".to_owned(),
        None => figure.replace("us_per_", "µs per ").replace('_', " "),
    }
}

/// Median, and least and most where they differ.
pub fn spread_text(spread: Option<&Spread>) -> String {
    use crate::judge::void::brief;
    let Some(Spread { median, least, most }) = spread else { return "–".to_owned() };
    let (least, middle, most) = (brief(*least), brief(*median), brief(*most));
    match least == most {
        true => middle,
        false => format!("{middle} ({least}–{most})"),
    }
}
