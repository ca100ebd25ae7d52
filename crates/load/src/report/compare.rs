//! The comparison of a report with an earlier one, group by group.

use super::table::columns;
use super::{GroupReport, Report};
use crate::units::{show_count, show_us};

/// A figure that is compared: its name, its value, its format, and whether more is better.
type Figure = (&'static str, fn(&GroupReport) -> f64, fn(f64) -> String, bool);

const FIGURES: [Figure; 6] = [
    ("answers/s", |group| group.rate, show_count, true),
    ("goodput/s", |group| group.goodput, show_count, true),
    ("p50", |group| group.latency.p50_us, show_us, false),
    ("p99", |group| group.latency.p99_us, show_us, false),
    ("p99.9", |group| group.latency.p999_us, show_us, false),
    ("failed", |group| group.failed as f64, show_count, false),
];

/// The values of one figure of one group in both runs.
#[derive(Clone, Debug, PartialEq)]
pub struct FigureChange {
    /// The name of the group.
    pub group: String,
    /// The name of the figure.
    pub figure: &'static str,
    /// The earlier value, as text.
    pub before: String,
    /// The present value, as text.
    pub now: String,
    /// The relative change, now / before − 1; `None` where before was 0.
    pub change: Option<f64>,
    /// Whether the change is for the better; `None` below 2 %, which counts as noise.
    pub better: Option<bool>,
}

impl Report {
    /// Every figure of every group that both reports have.
    pub fn changes(&self, baseline: &Report) -> Vec<FigureChange> {
        let mut changes = Vec::new();
        for group in &self.groups {
            let Some(before) = baseline.groups.iter().find(|other| other.name == group.name) else {
                continue;
            };
            for (figure, value, show, more_is_better) in FIGURES {
                let (old, new) = (value(before), value(group));
                let change = (old > 0.0).then(|| new / old - 1.0);
                let notable = change.map_or(new > 0.0, |change| change.abs() >= 0.02);
                changes.push(FigureChange {
                    group: group.name.clone(),
                    figure,
                    before: show(old),
                    now: show(new),
                    change,
                    better: notable.then_some((new > old) == more_is_better),
                });
            }
        }
        changes
    }

    /// The changes as a table.
    pub fn compare(&self, baseline: &Report) -> String {
        let row = |change: FigureChange| {
            let percent =
                change.change.map_or("–".to_owned(), |c| format!("{:+.1} %", c * 100.0));
            let word = match change.better {
                None => "",
                Some(true) => "better",
                Some(false) => "worse",
            };
            let texts = [change.figure.to_owned(), change.before, change.now, percent];
            [change.group].into_iter().chain(texts).chain([word.to_owned()]).collect()
        };
        let rows: Vec<Vec<String>> = self.changes(baseline).into_iter().map(row).collect();
        if rows.is_empty() {
            return "the baseline has none of these groups\n".to_owned();
        }
        columns(&rows, &["group", "figure", "before", "now", "change", ""])
    }
}
