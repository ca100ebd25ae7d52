//! The figures of an hour: the last ten minutes second by second, earlier ones in steps of ten seconds.

use super::columns::{HistoryColumn, PageFigures};
use std::collections::VecDeque;
use std::fmt::Write;

/// The number of rows for single seconds.
const SECONDS: usize = 600;
/// The number of rows for steps: an hour of them.
const STEPS: usize = 360;
/// The length of a step in seconds.
const STEP_S: u64 = 10;
/// The largest number of columns. With that many the history has [`SECONDS`] + [`STEPS`] rows of
/// 1.6 KB, or 1.5 MB.
const MOST_COLUMNS: usize = 400;

/// The figures of one second or step.
#[derive(Clone, Debug)]
struct HistoryRow {
    /// The end of the second or step, in seconds since 1970.
    unix_s: u64,
    /// The values in the order of the columns; columns that were added later are missing at the end.
    values: Vec<f32>,
}

/// The figures of an hour.
#[derive(Debug, Default)]
pub(super) struct PageHistory {
    columns: Vec<HistoryColumn>,
    seconds: VecDeque<HistoryRow>,
    steps: VecDeque<HistoryRow>,
    /// The current step: for each column the sum and the number of values.
    step: Vec<(f64, u32)>,
}

impl PageHistory {
    /// Adds the figures of the second that ends at `unix_s`.
    pub(super) fn add(&mut self, unix_s: u64, figures: &PageFigures) {
        let places = self.places(figures);
        let mut values = vec![f32::NAN; self.columns.len()];
        for (place, (_, value)) in places.into_iter().zip(figures) {
            if let Some(place) = place {
                values[place] = *value;
            }
        }
        self.step.resize(values.len(), (0.0, 0));
        for ((sum, count), value) in self.step.iter_mut().zip(&values) {
            if !value.is_nan() {
                (*sum, *count) = (*sum + f64::from(*value), *count + 1);
            }
        }
        push(&mut self.seconds, SECONDS, HistoryRow { unix_s, values });
        if unix_s.is_multiple_of(STEP_S) {
            let mean = |(sum, count): (f64, u32)| (sum / f64::from(count)) as f32;
            let values = std::mem::take(&mut self.step).into_iter().map(mean).collect();
            push(&mut self.steps, STEPS, HistoryRow { unix_s, values });
        }
    }

    /// The indexes of the columns of these figures. A new figure gets a new column, or, if there
    /// are no more, a column that has no figures; `None` if there is none either.
    fn places(&mut self, figures: &PageFigures) -> Vec<Option<usize>> {
        let mut places: Vec<Option<usize>> =
            figures.iter().enumerate().map(|(at, (column, _))| self.place(at, column)).collect();
        let room = MOST_COLUMNS.saturating_sub(self.columns.len());
        let unknown = places.iter().filter(|place| place.is_none()).count();
        let free = if unknown > room { self.free(&places) } else { Vec::new() };
        let mut free = free.into_iter();
        for (place, (column, _)) in
            places.iter_mut().zip(figures).filter(|(place, _)| place.is_none())
        {
            if self.columns.len() < MOST_COLUMNS {
                self.columns.push(column.clone());
                *place = Some(self.columns.len() - 1);
            } else if let Some(at) = free.next() {
                self.columns[at] = column.clone();
                *place = Some(at);
            }
        }
        places
    }

    /// The index of a column. Usually the columns are those of the second before, in the same order.
    fn place(&self, at: usize, column: &HistoryColumn) -> Option<usize> {
        let same = self.columns.get(at).filter(|known| *known == column).map(|_| at);
        same.or_else(|| self.columns.iter().position(|known| known == column))
    }

    /// The columns without a figure for an hour that are not among `places`: their classes, sites
    /// or upstreams are gone.
    fn free(&self, places: &[Option<usize>]) -> Vec<usize> {
        let mut is_used: Vec<bool> = self.step.iter().map(|(_, count)| *count > 0).collect();
        is_used.resize(self.columns.len(), false);
        places.iter().flatten().for_each(|place| is_used[*place] = true);
        for row in self.seconds.iter().chain(&self.steps) {
            for (is_used, value) in is_used.iter_mut().zip(&row.values) {
                *is_used |= !value.is_nan();
            }
        }
        (0..is_used.len()).filter(|at| !is_used[*at]).collect()
    }

    /// The history as JSON: the columns, the rows of seconds later than `after`, and all steps if
    /// that is 0. Steps that the seconds cover have no row.
    pub(super) fn json(&self, after: u64) -> String {
        let mut text = String::from("{\"columns\":[");
        let quote = |part: &str| serde_json::Value::from(part).to_string();
        for (at, HistoryColumn { group, name, figure }) in self.columns.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            let _ = write!(text, "{comma}[\"{group}\",{},\"{figure}\"]", quote(name));
        }
        text.push_str("],\"steps\":[");
        let first_s = self.seconds.front().map_or(u64::MAX, |row| row.unix_s);
        let steps = self.steps.iter().filter(|row| after == 0 && row.unix_s < first_s);
        rows(&mut text, steps);
        text.push_str("],\"seconds\":[");
        rows(&mut text, self.seconds.iter().filter(|row| row.unix_s > after));
        text.push_str("]}\n");
        text
    }
}

fn push(rows: &mut VecDeque<HistoryRow>, most: usize, row: HistoryRow) {
    if rows.len() == most {
        rows.pop_front();
    }
    rows.push_back(row);
}

/// Writes rows as JSON: the time, then the values.
fn rows<'r>(text: &mut String, rows: impl Iterator<Item = &'r HistoryRow>) {
    for (at, HistoryRow { unix_s, values }) in rows.enumerate() {
        let comma = if at > 0 { "," } else { "" };
        let _ = write!(text, "{comma}[{unix_s}");
        for value in values {
            text.push(',');
            number(text, *value);
        }
        text.push(']');
    }
}

/// Writes a number with the digits that a chart can show; `null` if it is not finite.
fn number(text: &mut String, value: f32) {
    let _ = match value {
        value if !value.is_finite() => write!(text, "null"),
        value if value == value.trunc() => write!(text, "{value:.0}"),
        value if value.abs() >= 100.0 => write!(text, "{value:.0}"),
        value if value.abs() >= 1.0 => write!(text, "{value:.2}"),
        value => write!(text, "{value:.4}"),
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn figure(name: &str, value: f32) -> (HistoryColumn, f32) {
        (HistoryColumn { group: "class", name: name.to_owned(), figure: "answered" }, value)
    }

    fn read(history: &PageHistory, after: u64) -> Value {
        serde_json::from_str(&history.json(after)).unwrap()
    }

    #[test]
    fn columns_come_and_go() {
        let mut history = PageHistory::default();
        history.add(11, &vec![figure("a", 1.0), figure("o\"d\n</script>", 2.5)]);
        history.add(12, &vec![figure("b", 3.0), figure("a", f32::NAN)]);
        let all = read(&history, 0);
        assert_eq!(all["columns"][1], json!(["class", "o\"d\n</script>", "answered"]));
        assert_eq!(all["seconds"], json!([[11, 1, 2.5], [12, null, null, 3]]));
        assert_eq!(read(&history, 11)["seconds"].as_array().unwrap().len(), 1);
    }

    #[test]
    fn columns_are_given_back_with_their_last_figure() {
        let mut history = PageHistory::default();
        let old = (0..MOST_COLUMNS).map(|at| figure(&at.to_string(), 1.0)).collect();
        history.add(10, &old);
        let is_named = |history: &PageHistory, name: &str| {
            history.columns.iter().any(|column| column.name == name)
        };
        for second in 2..=SECONDS as u64 + 2 {
            // one column continues without figures
            history.add(second * STEP_S, &vec![figure("7", f32::NAN), figure("new", 2.0)]);
            assert!(!is_named(&history, "new") || second > SECONDS as u64, "{second}");
        }
        assert!(is_named(&history, "new") && is_named(&history, "7"));
        assert_eq!(history.columns.len(), MOST_COLUMNS);
        let last = history.seconds.back().unwrap();
        assert_eq!(last.values.iter().filter(|value| **value == 2.0).count(), 1);
    }

    #[test]
    fn an_hour_is_kept_and_no_more() {
        let mut history = PageHistory::default();
        for second in 1..=2 * 3600 {
            history.add(second, &vec![figure("a", second as f32)]);
        }
        let all = read(&history, 0);
        let (steps, seconds) =
            (all["steps"].as_array().unwrap(), all["seconds"].as_array().unwrap());
        assert_eq!((seconds.len(), seconds[0][0].as_u64()), (SECONDS, Some(6601)));
        assert_eq!(steps.last().unwrap()[0].as_u64(), Some(6600));
        assert_eq!(steps[0][0].as_u64(), Some(3610));
        // the mean of ten seconds
        assert_eq!(steps[0][1].as_f64(), Some(3606.0));
        let many = (0..2 * MOST_COLUMNS).map(|at| figure(&at.to_string(), 1.0)).collect();
        history.add(9999, &many);
        assert_eq!(read(&history, 9998)["columns"].as_array().unwrap().len(), MOST_COLUMNS);
    }
}
