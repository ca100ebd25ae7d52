//! Charts as SVG: lines over an axis, and ranges on one. Colours are classes of the page's style.
//!
//! Every chart is drawn twice, wide and narrow: text in an SVG shrinks with it, and what is
//! readable on a desk is not on a phone. The style shows one of both.

use crate::units::{show_count, show_us};
use std::fmt::Write;

/// One line of a chart.
pub(super) struct ChartLine {
    /// The group's place, which chooses the colour.
    pub(super) colour: usize,
    pub(super) dashed: bool,
    pub(super) thin: bool,
    /// Points; a `None` is a gap.
    pub(super) points: Vec<Option<(f64, f64)>>,
}

/// What is along an axis.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ChartAxis {
    /// Seconds, from 0.
    Seconds,
    /// Quantiles, spread by the logarithm of their distance to 1.
    Quantile,
    /// A number per second, from 0.
    PerSecond,
    /// µs, logarithmic.
    Time,
}

/// A drawing area and what its edges mean.
struct PlotArea {
    width: f64,
    height: f64,
    x: Scale,
    y: Scale,
}

struct Scale {
    axis: ChartAxis,
    from: f64,
    to: f64,
    ticks: Vec<f64>,
}

const LEFT: f64 = 64.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 30.0;
/// The width of a letter of a label, about.
const LETTER: f64 = 6.5;

/// A chart with lines, in both sizes.
pub(super) fn lines(title: &str, lines: &[ChartLine], x: ChartAxis, y: ChartAxis) -> String {
    let draw = |class: &str, width: f64, height: f64, ticks: f64| {
        let points = || lines.iter().flat_map(|line| line.points.iter().flatten());
        let frame = PlotArea {
            width,
            height,
            x: Scale::new(x, points().map(|point| point.0), ticks),
            y: Scale::new(y, points().map(|point| point.1), 5.0),
        };
        let mut svg = frame.open(class, title);
        frame.axes(&mut svg);
        if points().next().is_none() {
            frame.say_empty(&mut svg);
        }
        lines.iter().for_each(|line| frame.line(&mut svg, line));
        svg + "</svg>\n"
    };
    draw("wide", 920.0, 300.0, 10.0) + &draw("narrow", 360.0, 260.0, 4.0)
}

/// One group's row in a chart of ranges.
pub(super) struct ChartRange<'r> {
    pub(super) name: &'r str,
    /// p50, p90, p99, p99.9, ascending.
    pub(super) marks: [f64; 4],
}

/// Ranges of time on a common logarithmic axis, in both sizes.
pub(super) fn ranges(title: &str, ranges: &[ChartRange<'_>]) -> String {
    const ROW: f64 = 44.0;
    let draw = |class: &str, width: f64, ticks: f64| {
        let frame = PlotArea {
            width,
            height: ranges.len().max(1) as f64 * ROW + TOP + BOTTOM,
            x: Scale::new(ChartAxis::Time, ranges.iter().flat_map(|range| range.marks), ticks),
            y: Scale { axis: ChartAxis::PerSecond, from: 0.0, to: 1.0, ticks: Vec::new() },
        };
        let mut svg = frame.open(class, title);
        frame.axes(&mut svg);
        if ranges.is_empty() {
            frame.say_empty(&mut svg);
        }
        for (place, range) in ranges.iter().enumerate() {
            let y = TOP + (place as f64 + 0.66) * ROW;
            frame.range(&mut svg, place, y, range);
        }
        svg + "</svg>\n"
    };
    draw("wide", 920.0, 10.0) + &draw("narrow", 360.0, 4.0)
}

impl Scale {
    fn new(axis: ChartAxis, values: impl Iterator<Item = f64>, ticks: f64) -> Scale {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values {
            (low, high) = (low.min(value), high.max(value));
        }
        if low > high {
            return Scale { axis, from: 0.0, to: 1.0, ticks: Vec::new() };
        }
        match axis {
            ChartAxis::Seconds => Scale::even(axis, high, ticks),
            // room above the highest value, so that a constant line is not the edge
            ChartAxis::PerSecond => Scale::even(axis, high * 1.05, ticks),
            ChartAxis::Quantile => Scale::quantiles(high),
            ChartAxis::Time => Scale::decades(low.max(0.1), high.max(1.0), ticks),
        }
    }

    /// From 0, with round ticks.
    fn even(axis: ChartAxis, high: f64, ticks: f64) -> Scale {
        // nothing but zeros: one of what is counted, so that there is a scale
        let high = if high > 0.0 { high } else { 1.0 };
        let raw = high / ticks;
        let magnitude = 10f64.powf(raw.log10().floor());
        let factor = [1.0, 2.0, 5.0].into_iter().find(|f| f * magnitude >= raw).unwrap_or(10.0);
        let step = factor * magnitude;
        let ticks = (0..).map(|n| f64::from(n) * step).take_while(|tick| *tick <= high).collect();
        Scale { axis, from: 0.0, to: high, ticks }
    }

    fn quantiles(high: f64) -> Scale {
        let nines = [0.0, 0.9, 0.99, 0.999, 0.9999, 0.99999, 0.999_999];
        let ticks: Vec<_> = nines.into_iter().filter(|quantile| *quantile <= high).collect();
        Scale { axis: ChartAxis::Quantile, from: 0.0, to: spread(high) + 0.1, ticks }
    }

    /// Whole decades, or parts of them when there are few.
    fn decades(low: f64, high: f64, most: f64) -> Scale {
        let (from, to) = ((low * 0.9).log10(), (high * 1.3).log10());
        let steps: &[f64] = if to - from < most / 4.0 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let decades = (from.floor() as i32)..=(to.ceil() as i32);
        let ticks = decades.flat_map(|d| steps.iter().map(move |s| s * 10f64.powi(d)));
        let ticks = ticks.filter(|tick| (from..=to).contains(&tick.log10())).collect();
        Scale { axis: ChartAxis::Time, from, to, ticks }
    }

    /// Where a value lies, 0 to 1.
    fn place(&self, value: f64) -> f64 {
        let value = match self.axis {
            ChartAxis::Quantile => spread(value),
            ChartAxis::Time => value.max(0.1).log10(),
            _ => value,
        };
        ((value - self.from) / (self.to - self.from).max(1e-12)).clamp(0.0, 1.0)
    }

    fn label(&self, value: f64) -> String {
        match self.axis {
            ChartAxis::Seconds => format!("{} s", (value * 100.0).round() / 100.0),
            ChartAxis::Quantile if value == 0.0 => "min".to_owned(),
            ChartAxis::Quantile => format!("p{}", (value * 1e8).round() / 1e6),
            ChartAxis::PerSecond => show_count(value),
            ChartAxis::Time if value >= 1e6 => format!("{} s", value / 1e6),
            ChartAxis::Time if value >= 1e3 => format!("{} ms", value / 1e3),
            ChartAxis::Time => show_us(value),
        }
    }
}

/// The distance of a quantile from 0 when each nine gets as much width as the one before.
fn spread(quantile: f64) -> f64 {
    -(1.0 - quantile).max(1e-7).log10()
}

impl PlotArea {
    fn open(&self, class: &str, title: &str) -> String {
        let (width, height) = (self.width, self.height);
        format!(
            "<svg class=\"{class}\" viewBox=\"0 0 {width} {height}\" role=\"img\" \
             aria-label=\"{title}\">"
        )
    }

    fn at(&self, x: f64, y: f64) -> (f64, f64) {
        let inner = (self.width - LEFT - RIGHT, self.height - TOP - BOTTOM);
        (LEFT + self.x.place(x) * inner.0, TOP + (1.0 - self.y.place(y)) * inner.1)
    }

    // Writing to a String cannot fail, so results of write! are dropped below.
    fn axes(&self, svg: &mut String) {
        let (bottom, right) = (self.height - BOTTOM, self.width - RIGHT);
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
            let _ = write!(svg, "<path class=\"grid\" d=\"M{x:.1} {TOP}V{bottom}\"/>");
            let half = label.len() as f64 * LETTER / 2.0;
            // Labels may neither stick out nor run into each other.
            let x = x.min(right - half);
            if x - half < labelled {
                continue;
            }
            labelled = x + half + LETTER;
            let y = bottom + 18.0;
            let _ = write!(svg, "<text class=\"middle\" x=\"{x:.1}\" y=\"{y}\">{label}</text>");
        }
        let _ = write!(svg, "<path class=\"axis\" d=\"M{LEFT} {TOP}V{bottom}H{right}\"/>");
    }

    /// A chart without a value has no scale: what its edges mean is not known.
    fn say_empty(&self, svg: &mut String) {
        let x = (LEFT + self.width - RIGHT) / 2.0;
        let y = (TOP + self.height - BOTTOM) / 2.0;
        let _ = write!(svg, "<text class=\"middle\" x=\"{x:.1}\" y=\"{y:.1}\">no answer</text>");
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
                // A point alone between two gaps is seen as a dot.
                let _ = write!(path, "h0");
            }
            pen_down = true;
        }
        let colour = line.colour % COLOURS;
        let dashed = if line.dashed { " dashed" } else { "" };
        let thin = if line.thin { " thin" } else { "" };
        let _ = write!(svg, "<path class=\"line c{colour}{dashed}{thin}\" d=\"{path}\"/>");
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
        // The name stands where the range begins, unless that is too far to the right.
        let (x, class) = if from > self.width * 0.6 { (to, "end") } else { (from, "start") };
        let _ = write!(
            svg,
            "<text class=\"{class} name\" x=\"{x:.1}\" y=\"{name_y:.1}\">{name}</text>"
        );
    }
}

/// How many colours the style has.
pub(super) const COLOURS: usize = 6;

/// Text that may stand in the page.
pub(super) fn escape(text: &str) -> String {
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

    #[test]
    fn ticks_are_round() {
        let even = Scale::even(ChartAxis::Seconds, 10.0, 10.0);
        assert_eq!(even.ticks.len(), 11);
        assert_eq!(even.label(even.ticks[3]), "3 s");
        let nines = Scale::quantiles(0.9995);
        let labels: Vec<_> = nines.ticks.iter().map(|tick| nines.label(*tick)).collect();
        assert_eq!(labels, ["min", "p90", "p99", "p99.9"]);
        let decades = Scale::decades(30.0, 2e6, 10.0);
        let labels: Vec<_> = decades.ticks.iter().map(|tick| decades.label(*tick)).collect();
        assert_eq!(labels, ["100 µs", "1 ms", "10 ms", "100 ms", "1 s"]);
    }

    #[test]
    fn a_gap_lifts_the_pen() {
        let points = vec![Some((0.0, 1.0)), Some((1.0, 2.0)), None, Some((3.0, 1.0))];
        let line = ChartLine { colour: 7, dashed: true, thin: false, points };
        let svg = lines("t", &[line], ChartAxis::Seconds, ChartAxis::PerSecond);
        assert_eq!(svg.matches("<svg").count(), 2);
        let path = svg.split("c1 dashed\" d=\"").nth(1).unwrap().split('"').next().unwrap();
        assert_eq!(path.matches('M').count(), 2);
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }

    #[test]
    fn empty_charts_are_drawn() {
        let svg = lines("t", &[], ChartAxis::Quantile, ChartAxis::Time);
        assert!(!svg.contains("NaN") && svg.ends_with("</svg>\n"));
        // a scale would be an invention
        assert!(svg.contains(">no answer</text>") && !svg.contains("µs"), "{svg}");
        let svg = ranges("t", &[]);
        assert!(!svg.contains("NaN") && svg.contains(">no answer</text>"));
    }

    #[test]
    fn a_line_of_zeros_has_a_scale_of_its_own() {
        let points = vec![Some((0.0, 0.0)), Some((1.0, 0.0))];
        let line = ChartLine { colour: 0, dashed: false, thin: false, points };
        let svg = lines("t", &[line], ChartAxis::Seconds, ChartAxis::PerSecond);
        let zeros = svg.split("<svg").nth(1).unwrap().matches("class=\"end\"").count();
        let labels: Vec<_> = svg.split("class=\"end\"").skip(1).take(zeros).collect();
        let is_zero = |label: &&&str| label.split('>').nth(1).unwrap().starts_with("0<");
        assert_eq!(labels.iter().filter(is_zero).count(), 1, "{labels:?}");
        assert!(!svg.contains("no answer"));
    }
}
