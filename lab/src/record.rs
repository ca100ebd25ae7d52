//! Rows: what one server did in one measurement, as every experiment writes and reads it.
//!
//! A file of rows begins with lines `# …`: what was run, and on what. The next line names the columns, and
//! each further line is a row. A cell with a comma stands in quotes.

use std::fmt::Write;

/// A column of an experiment's rows.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Its name in the file. A figure's ends in its unit.
    pub name: &'static str,
    /// What tables call it.
    pub title: &'static str,
    /// Digits after the point in the file; `None` where it is a word.
    digits: Option<usize>,
    /// Digits after the point in tables, if it is shown there.
    pub shown: Option<usize>,
}

/// A column of words: who, where, what.
pub const fn key(name: &'static str) -> Column {
    Column { name, title: name, digits: None, shown: None }
}

/// A column of numbers with so many digits.
pub const fn figure(name: &'static str, digits: usize) -> Column {
    Column { name, title: name, digits: Some(digits), shown: None }
}

impl Column {
    /// The same, in tables by this title and with so many digits.
    #[must_use]
    pub const fn shown(self, title: &'static str, digits: usize) -> Column {
        Column { title, shown: Some(digits), ..self }
    }

    /// Whether it holds words.
    pub const fn is_key(&self) -> bool {
        self.digits.is_none()
    }
}

/// That something else ran on a core of the measurement: the only flag that does not take a row out.
pub const NOISY: &str = "noisy";

/// One measurement.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    /// From 1 on.
    pub round: u32,
    /// The server's place in the round's order, from 1 on; 0 where a file does not say it.
    pub place: usize,
    keys: Vec<(&'static str, String)>,
    figures: Vec<(&'static str, f64)>,
    flags: Vec<String>,
}

impl Row {
    /// A row without anything.
    #[must_use]
    pub fn new() -> Row {
        Row::default()
    }

    /// The same with this word; the first one counts.
    #[must_use]
    pub fn key(mut self, name: &'static str, value: impl Into<String>) -> Row {
        if !self.keys.iter().any(|(known, _)| *known == name) {
            self.keys.push((name, value.into()));
        }
        self
    }

    /// The same with this number; what is not finite is not said.
    #[must_use]
    pub fn figure(mut self, name: &'static str, value: f64) -> Row {
        if value.is_finite() {
            self.figures.push((name, value));
        }
        self
    }

    /// The same with a flag, if it is so.
    #[must_use]
    pub fn flag(mut self, name: &str, is_so: bool) -> Row {
        if is_so {
            self.flags.push(name.to_owned());
        }
        self
    }

    /// The same with another number.
    #[must_use]
    pub fn with(&self, name: &'static str, value: f64) -> Row {
        let mut row = self.clone();
        row.figures.retain(|(known, _)| *known != name);
        row.figure(name, value)
    }

    /// A word; empty if it is not said.
    pub fn text(&self, name: &str) -> &str {
        let found = self.keys.iter().find(|(known, _)| *known == name);
        found.map_or("", |(_, value)| value)
    }

    /// A number.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.figures.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }

    /// All its words, by the names of their columns.
    pub fn keys(&self) -> &[(&'static str, String)] {
        &self.keys
    }

    /// All its numbers, by the names of their columns.
    pub fn figures(&self) -> &[(&'static str, f64)] {
        &self.figures
    }

    /// What is wrong with it.
    pub fn flags(&self) -> &[String] {
        &self.flags
    }

    /// Whether it counts in medians and ratios.
    pub fn is_valid(&self) -> bool {
        self.flags.iter().all(|flag| flag == NOISY)
    }

    /// Whether it has all these words.
    pub fn is(&self, keys: &[(&str, &str)]) -> bool {
        keys.iter().all(|(name, value)| self.text(name) == *value)
    }

    /// As a line of a file with these columns.
    pub fn csv(&self, columns: &[Column]) -> String {
        let mut text = format!("{},{}", self.round, self.place);
        for column in columns {
            // writing to a string does not fail
            let _ = match (column.digits, self.get(column.name)) {
                (None, _) => write!(text, ",{}", quoted(self.text(column.name))),
                (Some(digits), Some(value)) => write!(text, ",{value:.digits$}"),
                (Some(_), None) => write!(text, ","),
            };
        }
        text + "," + &self.flags.join("+")
    }
}

/// The line that names the columns.
pub fn head(columns: &[Column]) -> String {
    let names: Vec<_> = columns.iter().map(|column| column.name).collect();
    format!("round,place,{},flags", names.join(","))
}

fn quoted(text: &str) -> String {
    match text.contains([',', '"']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

/// The cells of a line.
fn cells(line: &str) -> Vec<String> {
    let (mut all, mut cell, mut is_quoted) = (Vec::new(), String::new(), false);
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '"' if is_quoted && letters.peek() == Some(&'"') => cell.extend(letters.next()),
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => all.push(std::mem::take(&mut cell)),
            letter => cell.push(letter),
        }
    }
    all.push(cell);
    all
}

/// What a file of rows holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recorded {
    /// What was run, and on what: the lines before the columns. Files from before this format have none.
    pub header: String,
    /// The names of the columns.
    pub names: Vec<String>,
    lines: Vec<Vec<String>>,
}

impl Recorded {
    /// Reads the text of a file.
    pub fn read(text: &str) -> Recorded {
        let is_header = |line: &&str| line.starts_with('#');
        let header: Vec<_> = text.lines().take_while(is_header).collect();
        let header = header.iter().map(|line| line.trim_start_matches(['#', ' ']));
        let header: String = header.flat_map(|line| [line, "\n"]).collect();
        let mut lines = text.lines().skip_while(is_header);
        let names = cells(lines.next().unwrap_or_default());
        let lines = lines.map(|line| whole(cells(line), &names)).collect();
        Recorded { header, names, lines }
    }

    /// Its rows, as an experiment with these columns has them. A column that the file lacks is not said; a
    /// file without rounds has the next one whenever its words come again.
    pub fn rows(&self, columns: &[Column]) -> Vec<Row> {
        let mut rows: Vec<Row> = Vec::new();
        for line in &self.lines {
            let cell = |name: &str| {
                let place = self.names.iter().position(|known| known == name);
                place.and_then(|place| line.get(place)).map(String::as_str)
            };
            let mut row = Row::new();
            for column in columns {
                let Some(text) = cell(column.name) else { continue };
                row = match column.digits {
                    None => row.key(column.name, text),
                    Some(_) => row.figure(column.name, text.parse().unwrap_or(f64::NAN)),
                };
            }
            let flags = cell("flags").unwrap_or_default().split('+');
            row.flags = flags.filter(|flag| !flag.is_empty()).map(str::to_owned).collect();
            row.place = cell("place").and_then(|text| text.parse().ok()).unwrap_or(0);
            let before = rows.iter().filter(|other| other.keys == row.keys).count() as u32;
            row.round = cell("round").and_then(|text| text.parse().ok()).unwrap_or(before + 1);
            rows.push(row);
        }
        rows
    }
}

/// Rows of overload once had commas in their case, and no quotes.
fn whole(mut cells: Vec<String>, names: &[String]) -> Vec<String> {
    let more = cells.len().saturating_sub(names.len());
    if let (Some(at), 1..) = (names.iter().position(|name| name == "case"), more) {
        let case = cells[at..=at + more].join(",");
        cells.splice(at..=at + more, [case]);
    }
    cells
}

/// The values of a column in these rows, each once, in their order.
pub fn each<'r>(rows: impl IntoIterator<Item = &'r Row>, names: &[&str]) -> Vec<Vec<&'r str>> {
    let mut found = Vec::new();
    for row in rows {
        let values: Vec<_> = names.iter().map(|name| row.text(name)).collect();
        if !found.contains(&values) {
            found.push(values);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: &[Column] = &[key("server"), figure("cpu_us", 2), figure("waits", 0)];

    #[test]
    fn what_is_written_is_read_back() {
        let row = Row::new().key("server", "nginx, \"two\"").figure("cpu_us", 5.5);
        let mut row = row.flag(NOISY, true).flag("errors", false).figure("waits", f64::NAN);
        (row.round, row.place) = (3, 2);
        let line = row.csv(COLUMNS);
        assert_eq!(line, "3,2,\"nginx, \"\"two\"\"\",5.50,,noisy");
        let text = format!("# machine: one\n{}\n{line}\n", head(COLUMNS));
        let recorded = Recorded::read(&text);
        assert_eq!(recorded.header, "machine: one\n");
        assert_eq!(recorded.rows(COLUMNS), [row]);
    }

    #[test]
    fn old_files_have_less_and_commas_in_their_cases() {
        let recorded = Recorded::read("case,good\n5 clients, shares 0, 20,1\nx,2\nx,3\n");
        let rows = recorded.rows(&[key("case"), figure("good", 0), figure("lost", 0)]);
        assert_eq!(rows[0].text("case"), "5 clients, shares 0, 20");
        assert_eq!((rows[0].get("good"), rows[0].get("lost")), (Some(1.0), None));
        assert_eq!(rows.iter().map(|row| row.round).collect::<Vec<_>>(), [1, 1, 2]);
    }
}
