//! The paper's numbers and ours: plots with the same axes where that can be read, tables with the same columns, and
//! both so small that they fit into a line.

use super::MeasuredFigure;
use super::shown::{self, ShownLine, ShownRow, spread_text, title};
use crate::experiment::{FigureView, PaperNumbers, PlotView};
use forebay_load::chart::{
    COLOURS, Chart, ChartAxis, ChartBar, ChartDash, ChartDot, ChartLine, ChartWidth, escape,
};
use std::fmt::Write;

/// A figure as two drawings: the paper's and ours.
pub(super) struct Drawings {
    pub(super) paper: String,
    pub(super) ours: String,
}

/// The largest ratio of two ranges that are drawn on the same axis; the second number is that of
/// logarithmic axes.
const ALIKE: [f64; 2] = [3.0, 100.0];

/// The paper's drawing and ours, as large as they are in a section.
pub(super) fn draw(of: &MeasuredFigure) -> Drawings {
    let paper = &of.figure.paper;
    match &of.figure.view {
        FigureView::Plot(plot) => {
            let ours = shown::lines(of, plot);
            let (paper_places, our_places) = (paper_places(paper), our_places(&ours));
            let is_alike = are_alike(plot, &paper_places, &our_places);
            let reach = |other: &[(f64, f64)]| if is_alike { other.to_vec() } else { Vec::new() };
            let note = match (is_alike, paper.series.is_empty(), ours.is_empty()) {
                (false, false, false) => {
                    "<p class=\"soft\">The axes differ: the numbers lie too far apart for one.</p>"
                }
                _ => "",
            };
            Drawings {
                paper: paper_plot(plot, paper, reach(&our_places)) + &paper_key(paper),
                ours: our_plot(plot, &ours, reach(&paper_places)) + &our_key(&ours) + note,
            }
        }
        FigureView::Table(figures) => Drawings {
            paper: paper_table(figures, paper),
            ours: our_table(figures, &shown::table(of, figures)),
        },
    }
}

/// The paper's drawing and ours, as small as a word.
pub(super) fn sparks(of: &MeasuredFigure) -> Drawings {
    let paper = &of.figure.paper;
    match &of.figure.view {
        FigureView::Plot(plot) => {
            let place = |x: f64| if plot.log_x { x.max(1e-3).ln() } else { x };
            let line = |colour, dash, points: Vec<(f64, f64)>| {
                let points = points.into_iter().map(|(x, y)| Some((place(x), y))).collect();
                ChartLine { colour, dash, points, ..ChartLine::default() }
            };
            let series = paper.series.iter().enumerate();
            let theirs =
                series.map(|(colour, one)| line(colour, ChartDash::Solid, one.points.clone()));
            let lines = shown::lines(of, plot);
            let ours = lines.iter().map(|one| {
                let (colour, dash) = look(&lines, one);
                line(colour, dash, one.points.iter().map(|at| (at.x, at.y.median)).collect())
            });
            Drawings {
                paper: spark_lines(&theirs.collect::<Vec<_>>()),
                ours: spark_lines(&ours.collect::<Vec<_>>()),
            }
        }
        FigureView::Table(figures) => {
            let paper = paper.rows.iter().filter_map(|row| row.values.first().copied().flatten());
            let ours = shown::table(of, figures);
            let ours = ours.iter().filter_map(|row| Some(row.values.first()?.as_ref()?.median));
            Drawings { paper: spark_bars(paper.collect()), ours: spark_bars(ours.collect()) }
        }
    }
}

fn paper_places(paper: &PaperNumbers) -> Vec<(f64, f64)> {
    paper.series.iter().flat_map(|series| series.points.iter().copied()).collect()
}

fn our_places(lines: &[ShownLine]) -> Vec<(f64, f64)> {
    let points = lines.iter().flat_map(|line| &line.points);
    points.flat_map(|point| [(point.x, point.y.least), (point.x, point.y.most)]).collect()
}

fn are_alike(plot: &PlotView, one: &[(f64, f64)], other: &[(f64, f64)]) -> bool {
    let most = |places: &[(f64, f64)], of: fn(&(f64, f64)) -> f64| {
        places.iter().map(of).fold(f64::NEG_INFINITY, f64::max)
    };
    let is_near = |is_log: bool, of: fn(&(f64, f64)) -> f64| {
        let (part, times) = (most(one, of) / most(other, of), ALIKE[usize::from(is_log)]);
        (1.0 / times..=times).contains(&part)
    };
    is_near(plot.log_x, |place| place.0) && is_near(plot.log_y, |place| place.1)
}

fn axes(plot: &PlotView) -> (ChartAxis, ChartAxis, String, String) {
    let axis = |is_log| if is_log { ChartAxis::Log } else { ChartAxis::Linear };
    let named = |said: &str, name: &str| {
        if said.is_empty() { title(name) } else { said.to_owned() }
    };
    let (x_title, y_title) = (named(&plot.x_title, &plot.x), named(&plot.y_title, &plot.y));
    (axis(plot.log_x), axis(plot.log_y), x_title, y_title)
}

fn paper_plot(plot: &PlotView, paper: &PaperNumbers, reach: Vec<(f64, f64)>) -> String {
    let (x, y, x_title, y_title) = axes(plot);
    let line = |(colour, series): (usize, &crate::experiment::PaperSeries)| ChartLine {
        name: series.name.clone(),
        colour,
        dash: if colour < COLOURS { ChartDash::Solid } else { ChartDash::Dashed },
        points: series.points.iter().copied().map(Some).collect(),
        ..ChartLine::default()
    };
    let series = || paper.series.iter().enumerate();
    let dots = series().flat_map(|(colour, series)| {
        series.points.iter().map(move |(x, y)| ChartDot { colour, x: *x, y: *y })
    });
    let chart = Chart {
        title: "the paper",
        x,
        y,
        x_title: &x_title,
        y_title: &y_title,
        width: ChartWidth::Half,
        lines: series().map(line).collect(),
        dots: dots.collect(),
        reach: if paper.series.is_empty() { Vec::new() } else { reach },
        empty: "no number is in the paper's text",
        ..Chart::default()
    };
    chart.to_svg()
}

fn our_plot(plot: &PlotView, lines: &[ShownLine], reach: Vec<(f64, f64)>) -> String {
    let (x, y, x_title, y_title) = axes(plot);
    let (mut bars, mut dots, mut drawn) = (Vec::new(), Vec::new(), Vec::new());
    for line in lines {
        let (colour, dash) = look(lines, line);
        for point in &line.points {
            let (from, to) = (point.y.least, point.y.most);
            bars.push(ChartBar { colour, x: point.x, from, to });
            dots.extend(point.rounds.iter().map(|(_, y)| ChartDot { colour, x: point.x, y: *y }));
        }
        let points = line.points.iter().map(|point| Some((point.x, point.y.median))).collect();
        drawn.push(ChartLine { name: line.name(), colour, dash, points, ..ChartLine::default() });
    }
    let chart = Chart {
        title: "today",
        x,
        y,
        x_title: &x_title,
        y_title: &y_title,
        width: ChartWidth::Half,
        lines: drawn,
        bars,
        dots,
        reach: if lines.is_empty() { Vec::new() } else { reach },
        empty: "not measured yet",
    };
    chart.to_svg()
}

/// The look of a line: the colour shows the subject, the strokes its form.
fn look(lines: &[ShownLine], line: &ShownLine) -> (usize, ChartDash) {
    let place = |of: &dyn Fn(&ShownLine) -> Vec<String>| {
        let mut seen: Vec<Vec<String>> = Vec::new();
        for other in lines {
            if !seen.contains(&of(other)) {
                seen.push(of(other));
            }
        }
        seen.iter().position(|words| *words == of(line)).unwrap_or_default()
    };
    let first = |line: &ShownLine| line.words.iter().take(1).cloned().collect();
    let rest = |line: &ShownLine| line.words.iter().skip(1).cloned().collect();
    let dash = match place(&rest) {
        0 => ChartDash::Solid,
        1 => ChartDash::Dashed,
        _ => ChartDash::Dotted,
    };
    (place(&first), dash)
}

fn key(lines: impl Iterator<Item = (usize, ChartDash, String)>) -> String {
    let mut text = String::new();
    for (colour, dash, name) in lines {
        let stroke = match dash {
            ChartDash::Solid => "solid",
            ChartDash::Dashed => "dashed",
            ChartDash::Dotted => "dotted",
        };
        let (colour, name) = (colour % COLOURS, escape(&name));
        // writing to a string does not fail
        let _ = write!(text, "<span><i class=\"key{colour} {stroke}\"></i>{name}</span>");
    }
    format!("<div class=\"key\">{text}</div>")
}

fn paper_key(paper: &PaperNumbers) -> String {
    let series = paper.series.iter().enumerate();
    key(series.map(|(colour, series)| (colour, ChartDash::Solid, series.name.clone())))
}

fn our_key(lines: &[ShownLine]) -> String {
    key(lines.iter().map(|line| {
        let (colour, dash) = look(lines, line);
        (colour, dash, line.name())
    }))
}

fn table(figures: &[String], rows: &[(String, Vec<String>)]) -> String {
    let heads: String =
        figures.iter().map(|name| format!("<th>{}", escape(&title(name)))).collect();
    let mut text = format!("<div class=\"scroll\"><table><tr><th>{heads}");
    for (name, values) in rows {
        let cells: String = values.iter().map(|value| format!("<td>{}", escape(value))).collect();
        let _ = write!(text, "<tr><td>{}{cells}", escape(name));
    }
    text + "</table></div>"
}

fn paper_table(figures: &[String], paper: &PaperNumbers) -> String {
    if paper.rows.is_empty() {
        return "<p class=\"soft\">No number is in the paper’s text.</p>".to_owned();
    }
    let value = |value: &Option<f64>| value.map_or_else(|| "–".to_owned(), |one| one.to_string());
    let rows: Vec<_> = paper
        .rows
        .iter()
        .map(|row| (row.name.clone(), row.values.iter().map(value).collect()))
        .collect();
    table(figures, &rows)
}

fn our_table(figures: &[String], rows: &[ShownRow]) -> String {
    if rows.is_empty() {
        return "<p class=\"soft\">Not measured yet.</p>".to_owned();
    }
    let value = |value: &Option<crate::summary::Spread>| spread_text(value.as_ref());
    let rows: Vec<_> =
        rows.iter().map(|row| (row.name.clone(), row.values.iter().map(value).collect())).collect();
    table(figures, &rows)
}

const SPARK: (f64, f64) = (96.0, 28.0);

fn open_spark() -> String {
    format!("<svg class=\"spark\" viewBox=\"0 0 {} {}\" aria-hidden=\"true\">", SPARK.0, SPARK.1)
}

/// Lines without axes: from 0 to the highest.
fn spark_lines(lines: &[ChartLine]) -> String {
    let points = || lines.iter().flat_map(|line| line.points.iter().flatten());
    let fold = |of: fn(&(f64, f64)) -> f64, to: fn(f64, f64) -> f64, from: f64| {
        points().map(of).fold(from, to)
    };
    let (left, right) =
        (fold(|p| p.0, f64::min, f64::INFINITY), fold(|p| p.0, f64::max, f64::NEG_INFINITY));
    let high = fold(|p| p.1, f64::max, 0.0);
    if left > right || high <= 0.0 {
        return "<span class=\"spark none\">–</span>".to_owned();
    }
    let mut svg = open_spark();
    for line in lines {
        let mut path = String::new();
        for (x, y) in line.points.iter().flatten() {
            let x = 3.0 + (x - left) / (right - left).max(1e-12) * (SPARK.0 - 6.0);
            let y = SPARK.1 - 3.0 - y.max(0.0) / high * (SPARK.1 - 6.0);
            let verb = if path.is_empty() { 'M' } else { 'L' };
            let _ = write!(path, "{verb}{x:.1} {y:.1}");
        }
        let dash = if line.dash == ChartDash::Solid { "" } else { " dashed" };
        let colour = line.colour % COLOURS;
        let _ = write!(svg, "<path class=\"line c{colour}{dash}\" d=\"{path}\"/>");
    }
    svg + "</svg>"
}

/// A bar for each row, up to eight.
fn spark_bars(mut values: Vec<f64>) -> String {
    values.truncate(8);
    let high = values.iter().copied().fold(0.0, f64::max);
    if high <= 0.0 {
        return "<span class=\"spark none\">–</span>".to_owned();
    }
    let width = (SPARK.0 / values.len() as f64).min(24.0);
    let mut svg = open_spark();
    for (place, value) in values.iter().enumerate() {
        let height = (value.max(0.0) / high * (SPARK.1 - 4.0)).max(1.0);
        let (x, y) = (place as f64 * width + 1.0, SPARK.1 - height);
        let (wide, colour) = (width - 2.0, place % COLOURS);
        let _ = write!(
            svg,
            "<rect class=\"fill{colour}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{wide:.1}\" height=\"{height:.1}\"/>"
        );
    }
    svg + "</svg>"
}
