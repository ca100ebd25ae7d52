//! The report as one HTML page: no script, nothing loaded from elsewhere, light and dark.

use super::{GroupReport, IntervalPoint, Latency, Report};
use crate::chart::{
    self, COLOURS, Chart, ChartAxis, ChartDash, ChartLine, ChartRange, escape, ranges,
};
use crate::units::{show_count, show_us};
use std::fmt::Write;

const STYLE: &str = include_str!("page.css");

impl Report {
    /// Writes the page; with a baseline, it also shows the changes.
    pub fn to_html(&self, baseline: Option<&Report>) -> String {
        let names: Vec<_> = self.groups.iter().map(|group| escape(&group.name)).collect();
        let mut page = format!(
            "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <title>forebay load: {}</title>\n<style>\n{STYLE}{}</style>\n<main>\n",
            names.join(", "),
            chart::STYLE
        );
        self.head(&mut page);
        self.cards(&mut page);
        self.charts(&mut page);
        if let Some(baseline) = baseline {
            self.comparison(baseline, &mut page);
        }
        self.tables(&mut page);
        page + "</main>\n</html>\n"
    }

    // writing to a String cannot fail, so results of write! are dropped below
    fn head(&self, page: &mut String) {
        let _ = writeln!(
            page,
            "<h1>Load report</h1>\n<p class=\"soft\">{} · {} s measured{} · {} thread{} · seed {} · \
             forebay {}</p>",
            date(self.unix_ms),
            round(self.seconds),
            if self.warmup_s > 0.0 {
                format!(" after {} s of warm-up", round(self.warmup_s))
            } else {
                String::new()
            },
            self.threads,
            if self.threads == 1 { "" } else { "s" },
            self.seed,
            self.version
        );
        let bottlenecks = &self.generator.bottlenecks;
        if bottlenecks.is_empty() {
            let _ = writeln!(
                page,
                "<div class=\"verdict\">The generator kept up: these figures are the target’s.</div>"
            );
            return;
        }
        let items: Vec<_> = bottlenecks.iter().map(|b| format!("<li>{}</li>", escape(b))).collect();
        let _ = writeln!(
            page,
            "<div class=\"verdict warn\">Read these figures with care:<ul>{}</ul></div>",
            items.join("")
        );
    }

    fn cards(&self, page: &mut String) {
        page.push_str("<div class=\"cards\">\n");
        for (place, group) in self.groups.iter().enumerate() {
            let colour = place % COLOURS;
            let _ = writeln!(
                page,
                "<section class=\"c{colour}\"><h2>{}</h2><p class=\"soft\">{}<br>{}</p>\
                 <div class=\"figures\">{}</div></section>",
                escape(&group.name),
                escape(&group.load),
                escape(&group.url),
                figures(group)
            );
        }
        page.push_str("</div>\n");
    }

    fn charts(&self, page: &mut String) {
        let any_open = self.groups.iter().any(|group| group.open);
        let dashed = |what: &'static str| if any_open { what } else { "" };
        self.section(
            page,
            "Latency distribution",
            dashed("solid: from the intended start · dashed: from the actual start"),
            &lines(
                "latency distribution",
                &self.distribution(),
                ChartAxis::Quantile,
                ChartAxis::Time,
            ),
        );
        if self.groups.len() > 1 {
            let marks = self.groups.iter().filter(|group| group.latency.count > 0).map(|group| {
                let times = &group.latency;
                let marks = [times.p50_us, times.p90_us, times.p99_us, times.p999_us];
                ChartRange { name: &group.name, marks }
            });
            let svg = ranges("latency by group", &marks.collect::<Vec<_>>());
            self.section(page, "Groups compared", "dots: p50, p90, p99, p99.9", &svg);
        }
        self.section(
            page,
            "Throughput and goodput over time",
            if any_open {
                "per second; thick: good and in time · thin: answered · dashed: due"
            } else {
                "per second; thick: good and in time · thin: answered"
            },
            &lines(
                "throughput over time",
                &self.throughput(),
                ChartAxis::Seconds,
                ChartAxis::PerSecond,
            ),
        );
        self.section(
            page,
            "Latency over time",
            "thick: p99 · thin: p50 · by the time of the answer",
            &lines("latency over time", &self.over_time(), ChartAxis::Seconds, ChartAxis::Time),
        );
        if self.groups.iter().any(|group| group.failed > 0) {
            let svg = lines(
                "failures per second",
                &self.failing(),
                ChartAxis::Seconds,
                ChartAxis::PerSecond,
            );
            self.section(page, "Failures per second", "", &svg);
        }
    }

    fn section(&self, page: &mut String, title: &str, note: &str, body: &str) {
        let keys = self.groups.iter().enumerate().map(|(place, group)| {
            let colour = place % COLOURS;
            format!("<span><i class=\"key{colour}\">━</i> {}</span>", escape(&group.name))
        });
        let note = if note.is_empty() { String::new() } else { format!("<span>{note}</span>") };
        let keys = keys.collect::<String>();
        let _ = writeln!(
            page,
            "<section><h2>{title}</h2><div class=\"key\">{keys}{note}</div>{body}</section>"
        );
    }

    fn distribution(&self) -> Vec<ChartLine> {
        let mut all = Vec::new();
        for (colour, group) in self.groups.iter().enumerate() {
            // the last point is the maximum, at quantile 1, which would be infinitely far out on this axis
            let curve = |times: &Latency| {
                let inner = times.curve.iter().filter(|point| point.0 < 1.0);
                inner.map(|point| Some(*point)).collect()
            };
            if group.open {
                let points = curve(&group.service);
                all.push(ChartLine {
                    colour,
                    dash: ChartDash::Dashed,
                    points,
                    ..ChartLine::default()
                });
            }
            let points = curve(&group.latency);
            all.push(ChartLine { colour, points, ..ChartLine::default() });
        }
        all
    }

    fn throughput(&self) -> Vec<ChartLine> {
        let mut all = Vec::new();
        for (colour, group) in self.groups.iter().enumerate() {
            if group.open {
                let points = series(group, |point| Some(point.offered));
                all.push(ChartLine {
                    colour,
                    dash: ChartDash::Dashed,
                    thin: true,
                    points,
                    ..ChartLine::default()
                });
            }
            let points = series(group, |point| Some(point.answered));
            all.push(ChartLine { colour, thin: true, points, ..ChartLine::default() });
            let points = series(group, |point| Some(point.good));
            all.push(ChartLine { colour, points, ..ChartLine::default() });
        }
        all
    }

    fn over_time(&self) -> Vec<ChartLine> {
        let mut all = Vec::new();
        let seen = |us: f64| (us > 0.0).then_some(us);
        for (colour, group) in self.groups.iter().enumerate() {
            let points = series(group, |point| seen(point.p50_us));
            all.push(ChartLine { colour, thin: true, points, ..ChartLine::default() });
            let points = series(group, |point| seen(point.p99_us));
            all.push(ChartLine { colour, points, ..ChartLine::default() });
        }
        all
    }

    fn failing(&self) -> Vec<ChartLine> {
        let line = |(colour, group): (usize, &GroupReport)| {
            let points = series(group, |point| Some(point.failed));
            ChartLine { colour, points, ..ChartLine::default() }
        };
        self.groups.iter().enumerate().map(line).collect()
    }

    fn comparison(&self, baseline: &Report, page: &mut String) {
        let before = date(baseline.unix_ms);
        let _ = write!(
            page,
            "<section><h2>Compared with the run of {before}</h2><div class=\"scroll\">\
             <table class=\"two\"><tr><th>group<th>figure<th>before<th>now<th>change"
        );
        for change in self.changes(baseline) {
            let class = match change.better {
                None => "",
                Some(true) => "better",
                Some(false) => "worse",
            };
            let percent =
                change.change.map_or("–".to_owned(), |c| format!("{:+.1} %", c * 100.0));
            let (group, figure) = (escape(&change.group), change.figure);
            let (old, new) = (change.before, change.now);
            let _ = write!(
                page,
                "<tr><td>{group}<td>{figure}<td>{old}<td>{new}<td class=\"{class}\">{percent}"
            );
        }
        page.push_str("</table></div></section>\n");
    }

    fn tables(&self, page: &mut String) {
        page.push_str(
            "<section><h2>Latency</h2><div class=\"scroll\"><table class=\"two\"><tr><th>group<th>from<th>mean\
             <th>p50<th>p90<th>p95<th>p99<th>p99.9<th>max",
        );
        for group in &self.groups {
            let name = escape(&group.name);
            if group.open {
                time_row(page, &name, "intended start", &group.latency);
            }
            time_row(page, &name, "actual start", &group.service);
            time_row(page, &name, "connect", &group.connect);
            if let Some(tls) = &group.tls {
                time_row(page, &name, "TLS handshake", &tls.handshake);
            }
        }
        page.push_str("</table></div></section>\n<section><h2>Outcome</h2><div class=\"scroll\">");
        page.push_str("<table><tr><th>group<th>good<th>failed<th>why<th>no answer by the end");
        page.push_str("<th>statuses<th>connections<th>SYN retries");
        for group in &self.groups {
            let _ = write!(
                page,
                "<tr><td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}",
                escape(&group.name),
                group.good,
                group.failed,
                escape(&list(group.failures_in_words().into_iter())),
                group.cut,
                list(group.statuses.iter().map(|(status, count)| format!("{status} × {count}"))),
                group.connections.opened,
                group.connections.syn_retries
            );
        }
        page.push_str("</table></div>");
        for group in self.groups.iter().filter(|group| group.line_bit_per_s.is_some()) {
            if let Some(clients) = group.clients {
                let name = escape(&group.name);
                let _ = write!(page, "<p>{name} clients: {}</p>", clients.describe());
            }
        }
        for group in &self.groups {
            if let Some(tls) = &group.tls {
                let name = escape(&group.name);
                let _ = write!(page, "<p>{name} TLS: {}</p>", escape(&tls.describe()));
            }
        }
        page.push_str("</section>\n");
        let own = &self.generator;
        let late = match own.lateness.count {
            0 => String::new(),
            _ => {
                let (p50, p99) = (show_us(own.lateness.p50_us), show_us(own.lateness.p99_us));
                format!(" late by {p50} (p50), {p99} (p99);")
            }
        };
        let _ = writeln!(
            page,
            "<section><h2>The generator itself</h2><p>{:.2} µs CPU per request, {:.2} cores;{late} \
             without a core {:.1} % of the time.</p><p class=\"soft\">Requests that timed out are in \
             the latencies with the time they had waited; other failures are not in them.</p>\
             </section>",
            own.cpu_us_per_request,
            own.cpu_cores,
            own.starved * 100.0
        );
    }
}

fn figures(group: &GroupReport) -> String {
    let ended = (group.good + group.failed).max(1);
    let failed = group.failed as f64 * 100.0 / ended as f64;
    let class = if group.failed > 0 { "bad" } else { "" };
    let cell = |value: String, what: &str, class: &str| {
        format!("<div><b class=\"{class}\">{value}</b><span>{what}</span></div>")
    };
    let times = &group.latency;
    let time = |us| if times.count == 0 { "–".to_owned() } else { show_us(us) };
    cell(show_count(group.rate), "answers/s", "")
        + &cell(show_count(group.goodput), "goodput/s", "")
        + &cell(format!("{failed:.2} %"), "failed", class)
        + &cell(time(times.p50_us), "p50", "")
        + &cell(time(times.p99_us), "p99", "")
        + &cell(time(times.max_us), "max", "")
}

/// A chart of these lines, as wide as the page.
fn lines(title: &str, lines: &[ChartLine], x: ChartAxis, y: ChartAxis) -> String {
    Chart { title, x, y, lines: lines.to_vec(), ..Chart::default() }.to_svg()
}

/// A series of a group; a `None` is a gap.
fn series(
    group: &GroupReport,
    value: impl Fn(&IntervalPoint) -> Option<f64>,
) -> Vec<Option<(f64, f64)>> {
    group.series.iter().map(|point| value(point).map(|value| (point.at_s, value))).collect()
}

fn time_row(page: &mut String, name: &str, from: &str, times: &Latency) {
    if times.count == 0 {
        return;
    }
    let cells = times.columns_us().map(|us| format!("<td>{}", show_us(us))).join("");
    let _ = write!(page, "<tr><td>{name}<td>{from}{cells}");
}

fn list(items: impl Iterator<Item = String>) -> String {
    let items: Vec<_> = items.collect();
    if items.is_empty() { "–".to_owned() } else { items.join(", ") }
}

fn round(seconds: f64) -> f64 {
    (seconds * 10.0).round() / 10.0
}

/// A time as `2026-11-20 08:15 UTC` (days to dates as in Howard Hinnant's chrono algorithms).
fn date(unix_ms: u64) -> String {
    let minutes = unix_ms / 60_000;
    let days = (minutes / 1440) as i64 + 719_468;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute) = (minutes / 60 % 24, minutes % 60);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_right() {
        assert_eq!(date(0), "1970-01-01 00:00 UTC");
        assert_eq!(date(1_709_210_096_000), "2024-02-29 12:34 UTC");
        assert_eq!(date(1_795_158_300_000), "2026-11-20 07:05 UTC");
    }
}
