//! Charts as SVG: lines, bars and dots over two axes, and ranges over one. Colours are classes of [`STYLE`].
//!
//! Every chart is drawn twice, wide and narrow: text in an SVG shrinks with it, and what is readable on a
//! large screen is not on a phone. The style shows one of the two.

mod scale;

pub use scale::ChartAxis;

use scale::Scale;
use std::fmt::Write;

/// The CSS that a page with charts needs: colours, light and dark, and the looks of lines.
pub const STYLE: &str = include_str!("chart/chart.css");

/// The number of colours in the style.
pub const COLOURS: usize = 6;

/// How a line is drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChartDash {
    /// Without gaps.
    #[default]
    Solid,
    /// With long strokes.
    Dashed,
    /// With short strokes.
    Dotted,
}

/// One line of a chart.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChartLine {
    /// The label at its end; empty for none.
    pub name: String,
    /// The index of the colour; after [`COLOURS`] the colours repeat.
    pub colour: usize,
    /// The dash pattern.
    pub dash: ChartDash,
    /// Whether the line is thin, to be less prominent than the others.
    pub thin: bool,
    /// The points; a `None` is a gap.
    pub points: Vec<Option<(f64, f64)>>,
}

/// A vertical range at one place of a chart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChartBar {
    /// The index of the colour.
    pub colour: usize,
    /// The place on the x axis.
    pub x: f64,
    /// The lower end.
    pub from: f64,
    /// The upper end.
    pub to: f64,
}

/// One value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChartDot {
    /// The index of the colour.
    pub colour: usize,
    /// The place on the x axis.
    pub x: f64,
    /// The value.
    pub y: f64,
}

/// The part of a page's width that a wide chart has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChartWidth {
    /// The whole width.
    Whole,
    /// Half of the width, for one of two charts side by side.
    Half,
}

/// A chart over two axes.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart<'c> {
    /// A description of the chart, for readers who do not see it.
    pub title: &'c str,
    /// The axis along the bottom.
    pub x: ChartAxis,
    /// The axis along the left.
    pub y: ChartAxis,
    /// The title of the axis along the bottom; empty if the ticks say enough.
    pub x_title: &'c str,
    /// The title of the axis along the left.
    pub y_title: &'c str,
    /// The width on a large screen.
    pub width: ChartWidth,
    /// The bars, behind the lines.
    pub bars: Vec<ChartBar>,
    /// The dots, on top of the bars.
    pub dots: Vec<ChartDot>,
    /// The lines.
    pub lines: Vec<ChartLine>,
    /// Further values that the axes have to reach: those of a chart beside this one.
    pub reach: Vec<(f64, f64)>,
    /// The text in a chart without values.
    pub empty: &'c str,
}

/// A drawing area, with the scales of its axes.
struct PlotArea {
    width: f64,
    height: f64,
    bottom: f64,
    top: f64,
    x: Scale,
    y: Scale,
}

const LEFT: f64 = 64.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 30.0;
/// The height of the title of an axis.
const AXIS_TITLE: f64 = 16.0;
/// The approximate width of a letter of a label.
const LETTER: f64 = 6.5;
/// The height of a label.
const LABEL: f64 = 13.0;
/// The largest number of lines that have their names at their ends; the names of more would cover the lines.
const NAMED_LINES: usize = 4;

impl Default for Chart<'_> {
    /// An empty chart over linear axes.
    fn default() -> Self {
        Chart {
            title: "",
            x: ChartAxis::Linear,
            y: ChartAxis::Linear,
            x_title: "",
            y_title: "",
            width: ChartWidth::Whole,
            bars: Vec::new(),
            dots: Vec::new(),
            lines: Vec::new(),
            reach: Vec::new(),
            empty: "no answer",
        }
    }
}

impl Chart<'_> {
    /// The chart in both sizes.
    pub fn to_svg(&self) -> String {
        let wide = match self.width {
            ChartWidth::Whole => self.draw("wide", 920.0, 300.0, 10.0),
            ChartWidth::Half => self.draw("wide", 460.0, 280.0, 5.0),
        };
        wide + &self.draw("narrow", 360.0, 260.0, 4.0)
    }

    /// The places of everything that is drawn.
    fn places(&self) -> impl Iterator<Item = (f64, f64)> {
        let lines = self.lines.iter().flat_map(|line| line.points.iter().flatten().copied());
        let bars = self.bars.iter().flat_map(|bar| [(bar.x, bar.from), (bar.x, bar.to)]);
        lines.chain(bars).chain(self.dots.iter().map(|dot| (dot.x, dot.y)))
    }

    fn draw(&self, class: &str, width: f64, height: f64, ticks: f64) -> String {
        let all = || self.places().chain(self.reach.iter().copied());
        let title = |text: &str| if text.is_empty() { 0.0 } else { AXIS_TITLE };
        let area = PlotArea {
            width,
            height,
            bottom: BOTTOM + title(self.x_title),
            top: TOP + title(self.y_title),
            x: Scale::new(self.x, all().map(|place| place.0), ticks),
            y: Scale::new(self.y, all().map(|place| place.1), 5.0),
        };
        let mut svg = area.open(class, self.title);
        area.axes(&mut svg);
        area.titles(&mut svg, self.x_title, self.y_title);
        if self.places().next().is_none() {
            area.say_empty(&mut svg, self.empty);
        }
        self.bars.iter().for_each(|bar| area.bar(&mut svg, bar));
        self.dots.iter().for_each(|dot| area.dot(&mut svg, dot));
        self.lines.iter().for_each(|line| area.line(&mut svg, line));
        if self.lines.len() <= NAMED_LINES {
            area.names(&mut svg, &self.lines);
        }
        svg + "</svg>\n"
    }
}

/// One group's row in a chart of ranges.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChartRange<'r> {
    /// The name of the group.
    pub name: &'r str,
    /// The values of p50, p90, p99 and p99.9, ascending.
    pub marks: [f64; 4],
}

/// Ranges of time on a common logarithmic axis, in both sizes.
pub fn ranges(title: &str, ranges: &[ChartRange<'_>]) -> String {
    const ROW: f64 = 44.0;
    let draw = |class: &str, width: f64, ticks: f64| {
        let area = PlotArea {
            width,
            height: ranges.len().max(1) as f64 * ROW + TOP + BOTTOM,
            bottom: BOTTOM,
            top: TOP,
            x: Scale::new(ChartAxis::Time, ranges.iter().flat_map(|range| range.marks), ticks),
            y: Scale::new(ChartAxis::PerSecond, std::iter::empty(), 0.0),
        };
        let mut svg = area.open(class, title);
        area.axes(&mut svg);
        if ranges.is_empty() {
            area.say_empty(&mut svg, "no answer");
        }
        for (place, range) in ranges.iter().enumerate() {
            let y = TOP + (place as f64 + 0.66) * ROW;
            area.range(&mut svg, place, y, range);
        }
        svg + "</svg>\n"
    };
    draw("wide", 920.0, 10.0) + &draw("narrow", 360.0, 4.0)
}

impl PlotArea {
    fn open(&self, class: &str, title: &str) -> String {
        let (width, height, title) = (self.width, self.height, escape(title));
        format!(
            "<svg class=\"{class}\" viewBox=\"0 0 {width} {height}\" role=\"img\" \
             aria-label=\"{title}\">"
        )
    }

    fn at(&self, x: f64, y: f64) -> (f64, f64) {
        let inner = (self.width - LEFT - RIGHT, self.height - self.top - self.bottom);
        (LEFT + self.x.place(x) * inner.0, self.top + (1.0 - self.y.place(y)) * inner.1)
    }

    // writing to a String cannot fail, so results of write! are dropped below
    fn axes(&self, svg: &mut String) {
        let (top, bottom, right) = (self.top, self.height - self.bottom, self.width - RIGHT);
        for tick in &self.y.ticks {
            let (_, y) = self.at(0.0, *tick);
            let label = self.y.label(*tick);
            let _ = write!(svg, "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{right}\"/>");
            let (x, y) = (LEFT - 8.0, y + 4.0);
            let _ = write!(svg, "<text class=\"end\" x=\"{x}\" y=\"{y:.1}\">{label}</text>");
        }
        let mut labelled = f64::NEG_INFINITY;
        for tick in &self.x.ticks {
            let (x, _) = self.at(*tick, 0.0);
            let label = self.x.label(*tick);
            let _ = write!(svg, "<path class=\"grid\" d=\"M{x:.1} {top}V{bottom}\"/>");
            let half = label.len() as f64 * LETTER / 2.0;
            // labels must neither stick out nor overlap
            let x = x.min(right - half);
            if x - half < labelled {
                continue;
            }
            labelled = x + half + LETTER;
            let y = bottom + 18.0;
            let _ = write!(svg, "<text class=\"middle\" x=\"{x:.1}\" y=\"{y}\">{label}</text>");
        }
        let _ = write!(svg, "<path class=\"axis\" d=\"M{LEFT} {top}V{bottom}H{right}\"/>");
    }

    fn titles(&self, svg: &mut String, x_title: &str, y_title: &str) {
        if !x_title.is_empty() {
            let (x, y) = ((LEFT + self.width - RIGHT) / 2.0, self.height - 5.0);
            let title = escape(x_title);
            let _ = write!(svg, "<text class=\"middle\" x=\"{x:.1}\" y=\"{y}\">{title}</text>");
        }
        if !y_title.is_empty() {
            let title = escape(y_title);
            let _ = write!(svg, "<text x=\"4\" y=\"13\">{title}</text>");
        }
    }

    /// Draws the text of a chart without values, which has no scale.
    fn say_empty(&self, svg: &mut String, what: &str) {
        let x = (LEFT + self.width - RIGHT) / 2.0;
        let y = (self.top + self.height - self.bottom) / 2.0;
        let what = escape(what);
        let _ = write!(svg, "<text class=\"middle\" x=\"{x:.1}\" y=\"{y:.1}\">{what}</text>");
    }

    fn line(&self, svg: &mut String, line: &ChartLine) {
        let mut path = String::new();
        let mut pen_down = false;
        for point in &line.points {
            let Some((x, y)) = point else {
                pen_down = false;
                continue;
            };
            let (x, y) = self.at(*x, *y);
            let verb = if pen_down { 'L' } else { 'M' };
            let _ = write!(path, "{verb}{x:.1} {y:.1}");
            if !pen_down {
                // a single point between two gaps is drawn as a dot
                let _ = write!(path, "h0");
            }
            pen_down = true;
        }
        let colour = line.colour % COLOURS;
        let dash = line.dash.class();
        let thin = if line.thin { " thin" } else { "" };
        let _ = write!(svg, "<path class=\"line c{colour}{dash}{thin}\" d=\"{path}\"/>");
    }

    fn bar(&self, svg: &mut String, bar: &ChartBar) {
        let ((x, from), (_, to)) = (self.at(bar.x, bar.from), self.at(bar.x, bar.to));
        let colour = bar.colour % COLOURS;
        let _ = write!(svg, "<path class=\"bar c{colour}\" d=\"M{x:.1} {from:.1}V{to:.1}\"/>");
    }

    fn dot(&self, svg: &mut String, dot: &ChartDot) {
        let (x, y) = self.at(dot.x, dot.y);
        let colour = dot.colour % COLOURS;
        let _ = write!(
            svg,
            "<circle class=\"dot fill{colour}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.5\"/>"
        );
    }

    /// Draws the names of lines, each at its end, or below the name that is there already.
    fn names(&self, svg: &mut String, lines: &[ChartLine]) {
        let mut named: Vec<(f64, f64, &ChartLine)> = Vec::new();
        for line in lines.iter().filter(|line| !line.name.is_empty()) {
            if let Some((x, y)) = line.points.iter().rev().flatten().next() {
                let (x, y) = self.at(*x, *y);
                named.push((x, y, line));
            }
        }
        named.sort_by(|one, other| one.1.total_cmp(&other.1));
        let (top, bottom) = (self.top + LABEL, self.height - self.bottom - 4.0);
        let mut above = f64::NEG_INFINITY;
        let mut heights: Vec<f64> = Vec::new();
        for (_, y, _) in &named {
            above = (y - 6.0).max(above + LABEL).max(top);
            heights.push(above);
        }
        // a name below the axis is moved up again, and the names above it with it
        let mut below = bottom + LABEL;
        for height in heights.iter_mut().rev() {
            *height = height.min(below - LABEL);
            below = *height;
        }
        for ((x, _, line), y) in named.into_iter().zip(heights) {
            let (colour, name) = (line.colour % COLOURS, escape(&line.name));
            let width = line.name.chars().count() as f64 * LETTER;
            let x = x.max(LEFT + width + 4.0).min(self.width - RIGHT);
            let _ = write!(
                svg,
                "<text class=\"end halo fill{colour}\" x=\"{x:.1}\" y=\"{y:.1}\">{name}</text>"
            );
        }
    }

    fn range(&self, svg: &mut String, place: usize, y: f64, range: &ChartRange<'_>) {
        let colour = place % COLOURS;
        let marks = range.marks.map(|mark| self.at(mark, 0.0).0);
        let (from, to, name_y) = (marks[0], marks[3], y - 12.0);
        let _ = write!(svg, "<path class=\"range c{colour}\" d=\"M{from:.1} {y:.1}H{to:.1}\"/>");
        for (place, x) in marks.into_iter().enumerate() {
            let radius = 6.5 - place as f64;
            let _ = write!(
                svg,
                "<circle class=\"fill{colour}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\"/>"
            );
        }
        let name = escape(range.name);
        // the name stands where the range begins, unless that is too far to the right
        let (x, class) = if from > self.width * 0.6 { (to, "end") } else { (from, "start") };
        let _ = write!(
            svg,
            "<text class=\"{class} name\" x=\"{x:.1}\" y=\"{name_y:.1}\">{name}</text>"
        );
    }
}

impl ChartDash {
    fn class(self) -> &'static str {
        match self {
            ChartDash::Solid => "",
            ChartDash::Dashed => " dashed",
            ChartDash::Dotted => " dotted",
        }
    }
}

/// Escapes text for HTML.
pub fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            letter => safe.push(letter),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_lines(lines: Vec<ChartLine>) -> String {
        let (x, y) = (ChartAxis::Seconds, ChartAxis::PerSecond);
        Chart { title: "t", x, y, lines, ..Chart::default() }.to_svg()
    }

    #[test]
    fn a_gap_lifts_the_pen() {
        let points = vec![Some((0.0, 1.0)), Some((1.0, 2.0)), None, Some((3.0, 1.0))];
        let dash = ChartDash::Dashed;
        let svg = of_lines(vec![ChartLine { colour: 7, dash, points, ..ChartLine::default() }]);
        assert_eq!(svg.matches("<svg").count(), 2);
        let path = svg.split("c1 dashed\" d=\"").nth(1).unwrap().split('"').next().unwrap();
        assert_eq!(path.matches('M').count(), 2);
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }

    #[test]
    fn empty_charts_are_drawn() {
        let (x, y) = (ChartAxis::Quantile, ChartAxis::Time);
        let svg = Chart { title: "t", x, y, ..Chart::default() }.to_svg();
        assert!(!svg.contains("NaN") && svg.ends_with("</svg>\n"));
        // a scale without values would be invented
        assert!(svg.contains(">no answer</text>") && !svg.contains("µs"), "{svg}");
        let svg = ranges("t", &[]);
        assert!(!svg.contains("NaN") && svg.contains(">no answer</text>"));
    }

    #[test]
    fn a_line_of_zeros_has_a_scale_of_its_own() {
        let points = vec![Some((0.0, 0.0)), Some((1.0, 0.0))];
        let svg = of_lines(vec![ChartLine { points, ..ChartLine::default() }]);
        let zeros = svg.split("<svg").nth(1).unwrap().matches("class=\"end\"").count();
        let labels: Vec<_> = svg.split("class=\"end\"").skip(1).take(zeros).collect();
        let is_zero = |label: &&&str| label.split('>').nth(1).unwrap().starts_with("0<");
        assert_eq!(labels.iter().filter(is_zero).count(), 1, "{labels:?}");
        assert!(!svg.contains("no answer"));
    }

    #[test]
    fn bars_and_dots_are_drawn_and_names_do_not_cover_each_other() {
        let line = |name: &str, y: f64| ChartLine {
            name: name.to_owned(),
            points: vec![Some((1.0, 1.0)), Some((10.0, y))],
            ..ChartLine::default()
        };
        let svg = Chart {
            title: "a < b",
            x: ChartAxis::Log,
            x_title: "rate",
            y_title: "good/s",
            lines: vec![line("one", 10.0), line("two", 10.1), line("three", 0.0)],
            bars: vec![ChartBar { colour: 0, x: 10.0, from: 9.0, to: 11.0 }],
            dots: vec![ChartDot { colour: 0, x: 10.0, y: 9.0 }],
            reach: vec![(0.0, 500.0)],
            ..Chart::default()
        }
        .to_svg();
        let (wide, narrow) = svg.split_at(svg.rfind("<svg").unwrap());
        for svg in [wide, narrow] {
            assert!(svg.contains("aria-label=\"a &lt; b\"") && svg.contains(">good/s</text>"));
            assert_eq!(
                (svg.matches("class=\"bar").count(), svg.matches("<circle").count()),
                (1, 1)
            );
            // the axis reaches the values of the other chart
            assert!(svg.contains(">400</text>"), "{svg}");
            let heights: Vec<f64> = svg
                .split("halo")
                .skip(1)
                .map(|text| text.split("y=\"").nth(1).unwrap().split('"').next().unwrap())
                .map(|text| text.parse().unwrap())
                .collect();
            assert_eq!(heights.len(), 3);
            assert!(heights.windows(2).all(|two| two[1] - two[0] >= LABEL - 0.01), "{heights:?}");
        }
    }
}
