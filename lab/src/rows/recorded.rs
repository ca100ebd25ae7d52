//! Files of rows.
//!
//! A file begins with lines `# key: value`: the command, the machine. The next line names the
//! columns: `round`, `place`, the words, the figures, `flags`. Each further line is a row; a cell
//! with a comma stands in quotes. The last line is `# whole` where the measurement came to its end.
//!
//! `# words: server, form, …` names the columns that are words. For files without that line, which
//! are older, [`super::formats`] knows them.

use super::RawRow;
use std::fmt::Write;

/// The line at the end of a file that misses nothing.
pub const WHOLE: &str = "# whole";

/// The key of the header's line about words.
const WORDS: &str = "words";

/// A file of rows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RowFile {
    /// The command and the machine, in the order of the file.
    pub header: Vec<(String, String)>,
    /// The columns that hold words.
    pub words: Vec<String>,
    /// The columns that hold numbers.
    pub figures: Vec<String>,
    /// The rows.
    pub rows: Vec<RawRow>,
    /// Whether the measurement came to its end.
    pub is_whole: bool,
}

impl RowFile {
    /// Reads the text of a file that names the columns that are words.
    pub fn read(text: &str) -> RowFile {
        RowFile::read_as(text, &[])
    }

    /// The same, with these columns as words if the file names none.
    ///
    /// In a file without rounds, the next round begins whenever its words come again.
    pub fn read_as(text: &str, words: &[&str]) -> RowFile {
        let mut file = RowFile { header: header(text), ..RowFile::default() };
        file.is_whole = text.lines().next_back().is_some_and(|line| line.trim() == WHOLE);
        let said = file.said(WORDS).map(|said| said.split(',').map(str::trim).collect());
        let words: Vec<&str> = said.unwrap_or_else(|| words.to_vec());
        let mut lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
        let names = cells(lines.next().unwrap_or_default());
        let is_own = |name: &&String| matches!(name.as_str(), "round" | "place" | "flags");
        let columns = names.iter().filter(|name| !is_own(name)).cloned();
        let parts = columns.partition(|name| words.contains(&name.as_str()));
        (file.words, file.figures) = parts;
        file.rows = lines.map(|line| file.row(&names, &whole(cells(line), &names))).collect();
        file.number_rounds(&names);
        file
    }

    /// A line of the header.
    pub fn said(&self, key: &str) -> Option<&str> {
        self.header.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str())
    }

    fn row(&self, names: &[String], cells: &[String]) -> RawRow {
        let mut row = RawRow::default();
        for (name, cell) in names.iter().zip(cells) {
            match name.as_str() {
                "round" => row.round = cell.parse().unwrap_or(0),
                "place" => row.place = cell.parse().unwrap_or(0),
                "flags" => {
                    let flags = cell.split('+').filter(|flag| !flag.is_empty());
                    row = flags.fold(row, |row, flag| row.flag(flag, true));
                }
                name if self.words.iter().any(|word| word == name) => row = row.word(name, cell),
                name => row = row.figure(name, cell.parse().unwrap_or(f64::NAN)),
            }
        }
        row
    }

    fn number_rounds(&mut self, names: &[String]) {
        if names.iter().any(|name| name == "round") {
            return;
        }
        for place in 0..self.rows.len() {
            let (before, row) = self.rows.split_at(place);
            let again = before.iter().filter(|other| other.words() == row[0].words()).count();
            self.rows[place].round = again as u32 + 1;
        }
    }

    /// The lines before the rows.
    pub fn head(&self) -> String {
        let mut text = String::new();
        for (key, value) in self.header.iter().filter(|(key, _)| key != WORDS) {
            // writing to a string does not fail
            let _ = writeln!(text, "# {key}: {}", value.replace('\n', " "));
        }
        let _ = writeln!(text, "# {WORDS}: {}", self.words.join(", "));
        let names = self.words.iter().chain(&self.figures).map(String::as_str);
        let names: Vec<_> = ["round", "place"].into_iter().chain(names).chain(["flags"]).collect();
        let _ = writeln!(text, "{}", names.join(","));
        text
    }

    /// A row as a line of this file.
    pub fn line(&self, row: &RawRow) -> String {
        let mut cells = vec![row.round.to_string(), row.place.to_string()];
        cells.extend(self.words.iter().map(|name| quoted(row.text(name))));
        let number = |name: &String| row.get(name).map_or(String::new(), number);
        cells.extend(self.figures.iter().map(number));
        cells.push(row.flags().join("+"));
        cells.join(",") + "\n"
    }

    /// The whole text.
    pub fn text(&self) -> String {
        let end = if self.is_whole { format!("{WHOLE}\n") } else { String::new() };
        let lines: String = self.rows.iter().map(|row| self.line(row)).collect();
        self.head() + &lines + &end
    }
}

/// The lines `# key: value`; older ones begin with `# -`.
fn header(text: &str) -> Vec<(String, String)> {
    let lines = text.lines().take_while(|line| line.starts_with('#'));
    let pair = |line: &str| {
        let (key, value) = line.trim_start_matches(['#', ' ', '-']).split_once(": ")?;
        Some((key.to_owned(), value.to_owned()))
    };
    lines.filter_map(pair).collect()
}

/// A number with at most six significant digits and no trailing zeros.
fn number(value: f64) -> String {
    let size = value.abs();
    if size >= 1e6 || size == 0.0 {
        return format!("{value:.0}");
    }
    let digits = (5 - size.log10().floor() as i32).clamp(0, 12) as usize;
    let text = format!("{value:.digits$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
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

/// Rows of overload once had commas in their case, and no quotes.
fn whole(mut cells: Vec<String>, names: &[String]) -> Vec<String> {
    let more = cells.len().saturating_sub(names.len());
    if let (Some(at), 1..) = (names.iter().position(|name| name == "case"), more) {
        let case = cells[at..=at + more].join(",");
        cells.splice(at..=at + more, [case]);
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::NOISY;

    #[test]
    fn what_is_written_is_read_back() {
        let row = RawRow::new(3, 2).word("server", "nginx, \"two\"").word("flood", "1.7 static");
        let row = row.figure("flood_at", 643.0).figure("mean_ms", 0.012_345_67);
        let row = row.figure("waits", f64::NAN).flag(NOISY, true).flag("errors", false);
        let file = RowFile {
            header: vec![("command".to_owned(), "lab run a".to_owned())],
            words: vec!["server".to_owned(), "flood".to_owned()],
            figures: ["flood_at", "mean_ms", "waits"].map(str::to_owned).to_vec(),
            rows: vec![row.clone().figure("mean_ms", 0.012_345_7)],
            is_whole: true,
        };
        let text = file.text();
        assert_eq!(
            text,
            "# command: lab run a\n# words: server, flood\n\
             round,place,server,flood,flood_at,mean_ms,waits,flags\n\
             3,2,\"nginx, \"\"two\"\"\",1.7 static,643,0.0123457,,noisy\n# whole\n"
        );
        let read = RowFile::read(&text);
        assert_eq!((read.text(), &read.rows, read.is_whole), (text.clone(), &file.rows, true));
        let cut = text.trim_end_matches("# whole\n");
        assert!(!RowFile::read(cut).is_whole);
    }

    #[test]
    fn numbers_keep_six_digits() {
        let of = |value: f64| number(&value);
        for (value, text) in [
            (0.0, "0"),
            (369.0, "369"),
            (8.5, "8.5"),
            (-0.015_000_1, "-0.0150001"),
            (1_234_567.8, "1234568"),
            (99_999.96, "100000"),
            (1e-9, "0.000000001"),
        ] {
            assert_eq!(of(value), text);
        }
        fn number(value: &f64) -> String {
            super::number(*value)
        }
    }

    #[test]
    fn old_files_have_less_and_commas_in_their_cases() {
        let text = "case,good\n5 clients, shares 0, 20,1\nx,2\nx,3\n";
        let file = RowFile::read_as(text, &["case"]);
        assert_eq!(file.rows[0].text("case"), "5 clients, shares 0, 20");
        assert_eq!((file.rows[0].get("good"), file.rows[0].get("lost")), (Some(1.0), None));
        assert_eq!(file.rows.iter().map(|row| row.round).collect::<Vec<_>>(), [1, 1, 2]);
        assert!(!file.is_whole);
    }
}
