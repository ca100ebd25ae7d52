//! Rows from before the laboratory: `lab/runs/formats.toml` says which of their columns are words, and how they
//! are put into tables. They are shown, and never judged: clients and windows were others.

use super::recorded::RowFile;
use super::{RawRow, each};
use crate::summary::{Spread, shown};
use std::fmt::{self, Write};
use toml_edit::{Document, Item, TableLike, Value};

/// The old formats.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OldFormats(Vec<OldFormat>);

/// The way in which the rows of one old experiment are read and shown.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OldFormat {
    /// The name of the experiment; folders are named after it.
    pub name: String,
    /// The subject of its rows.
    pub title: String,
    /// The columns that hold words.
    pub words: Vec<String>,
    /// The words by which rows are put into tables.
    pub tables: Vec<String>,
    /// The words by which rows are put into lines of one table.
    pub lines: Vec<String>,
    /// The columns that tables show.
    pub shown: Vec<ShownColumn>,
}

/// A column of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct ShownColumn {
    /// The column's name in the file.
    pub name: String,
    /// The column's title in the table.
    pub title: String,
    /// Digits after the point.
    pub digits: usize,
}

/// The reason why `formats.toml` is not accepted.
#[derive(Debug)]
pub enum FormatError {
    /// The text is no TOML.
    Toml(toml_edit::TomlError),
    /// A format lacks a key, or has something else there.
    Key {
        /// The number of the format, from 1 on.
        place: usize,
        /// The key.
        key: &'static str,
    },
}

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FormatError::Toml(error) => write!(f, "formats.toml: {error}"),
            FormatError::Key { place, key } => {
                write!(f, "formats.toml: format {place}: `{key}` is missing or of another type")
            }
        }
    }
}

impl std::error::Error for FormatError {}

impl OldFormats {
    /// Reads the text of `formats.toml`.
    ///
    /// # Errors
    /// The first format that is wrong.
    pub fn read(text: &str) -> Result<OldFormats, FormatError> {
        let document = Document::parse(text).map_err(FormatError::Toml)?;
        let all = document.get("format").and_then(Item::as_array_of_tables);
        let all = all.into_iter().flatten().enumerate();
        let format = |(place, table): (usize, &toml_edit::Table)| {
            OldFormat::read(table).map_err(|key| FormatError::Key { place: place + 1, key })
        };
        Ok(OldFormats(all.map(format).collect::<Result<_, _>>()?))
    }

    /// The format of a folder such as `2026-11-22-engines-hot`.
    pub fn of_folder(&self, name: &str) -> Option<&OldFormat> {
        let rest = name.get("2026-11-22-".len()..)?;
        self.0.iter().find(|format| rest.starts_with(&format.name))
    }
}

impl OldFormat {
    /// The key that is wrong is the error.
    fn read(table: &dyn TableLike) -> Result<OldFormat, &'static str> {
        let text =
            |key: &'static str| table.get(key).and_then(Item::as_str).map(str::to_owned).ok_or(key);
        let texts = |key: &'static str| -> Result<Vec<String>, &'static str> {
            let all = table.get(key).and_then(Item::as_array).ok_or(key)?;
            all.iter().map(|one| one.as_str().map(str::to_owned).ok_or(key)).collect()
        };
        let columns = table.get("shown").and_then(Item::as_array).ok_or("shown")?;
        let shown = columns.iter().map(|one| ShownColumn::read(one).ok_or("shown"));
        Ok(OldFormat {
            name: text("name")?,
            title: text("title")?,
            words: texts("words")?,
            tables: texts("tables")?,
            lines: texts("lines")?,
            shown: shown.collect::<Result<_, _>>()?,
        })
    }

    /// The rows of a file.
    pub fn rows(&self, text: &str) -> RowFile {
        let words: Vec<&str> = self.words.iter().map(String::as_str).collect();
        RowFile::read_as(text, &words)
    }

    /// Medians and spreads as markdown, a table for each combination of the words of tables.
    pub fn tables(&self, file: &RowFile) -> String {
        let mut text = String::new();
        for values in each(&file.rows, &self.tables) {
            let names = self.tables.iter().zip(&values);
            let heading: Vec<_> = names.map(|(name, value)| format!("{name} {value}")).collect();
            let here: Vec<&RawRow> =
                file.rows.iter().filter(|row| is(row, &self.tables, &values)).collect();
            let heading = if heading.is_empty() { "Results".into() } else { heading.join(", ") };
            // writing to a string does not fail
            let _ = write!(text, "\n### {heading}\n\n{}", self.table(file, &here));
        }
        text
    }

    fn table(&self, file: &RowFile, here: &[&RawRow]) -> String {
        let is_said =
            |column: &&ShownColumn| here.iter().any(|row| row.get(&column.name).is_some());
        let columns: Vec<_> = self.shown.iter().filter(is_said).collect();
        let titles = columns.iter().map(|column| column.title.as_str());
        let heads: Vec<&str> = self.lines.iter().map(String::as_str).chain(titles).collect();
        let mut text = format!("| {} |\n|{}\n", heads.join(" | "), "---|".repeat(heads.len()));
        // the server that comes first in the file comes first in each table
        for values in each(&file.rows, &self.lines) {
            let mine: Vec<_> = here.iter().filter(|row| is(row, &self.lines, &values)).collect();
            if mine.is_empty() {
                continue;
            }
            let mut cells: Vec<String> = values.iter().map(|&value| value.to_owned()).collect();
            cells.extend(columns.iter().map(|column| {
                let valid = mine.iter().filter(|row| row.is_valid());
                let spread = Spread::of(valid.filter_map(|row| row.get(&column.name)));
                shown(spread.as_ref(), column.digits)
            }));
            let _ = writeln!(text, "| {} |", cells.join(" | "));
        }
        text
    }
}

impl ShownColumn {
    fn read(value: &Value) -> Option<ShownColumn> {
        let all = value.as_array()?;
        Some(ShownColumn {
            name: all.get(0)?.as_str()?.to_owned(),
            title: all.get(1)?.as_str()?.to_owned(),
            digits: usize::try_from(all.get(2)?.as_integer()?).ok()?,
        })
    }
}

fn is(row: &RawRow, names: &[String], values: &[&str]) -> bool {
    names.iter().zip(values).all(|(name, value)| row.text(name) == *value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    fn runs() -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("runs")
    }

    fn formats() -> OldFormats {
        let text = fs::read_to_string(runs().join("formats.toml")).expect("formats.toml");
        OldFormats::read(&text).expect("formats")
    }

    /// Each cell is a word of the format, a number, or empty; none is taken for something else.
    #[test]
    fn recorded_rows_are_read_whole() {
        let formats = formats();
        let mut read = 0;
        for folder in fs::read_dir(runs()).expect("runs").flatten() {
            let name = folder.file_name().to_string_lossy().into_owned();
            let Ok(text) = fs::read_to_string(folder.path().join("rows.csv")) else { continue };
            let format = formats.of_folder(&name).expect("a folder named after an experiment");
            let file = format.rows(&text);
            let lines = text.lines().filter(|line| !line.starts_with('#')).count() - 1;
            assert_eq!(file.rows.len(), lines, "{name}");
            for row in &file.rows {
                assert!(row.round > 0 && row.words().iter().all(|(_, word)| !word.is_empty()));
                assert!(!row.figures().is_empty(), "{name}: {row:?}");
            }
            let tables = format.tables(&file);
            assert!(tables.contains("\n| ") && !tables.contains("| – |\n| – |"), "{name}");
            read += 1;
        }
        assert!(read > 30, "{read} files");
    }

    #[test]
    fn rows_that_spoil_a_table_are_in_it() {
        let path = runs().join("2026-11-26-overload-gate/rows.csv");
        let formats = formats();
        let format = formats.of_folder("2026-11-26-overload-gate").expect("overload");
        let tables = format.tables(&format.rows(&fs::read_to_string(path).expect("rows")));
        let row = tables
            .lines()
            .find(|line| line.contains("table 3: 296/s burst 296 | pool-policy, kernel | high |"));
        assert!(row.expect("pool's row").contains("| 369.0 |"), "{row:?}");
    }

    #[test]
    fn what_is_wrong_is_named() {
        let said = |text: &str| OldFormats::read(text).expect_err("wrong").to_string();
        assert!(said("[[format]]\nname = 3\n").contains("format 1: `shown` is missing"));
        let text = "[[format]]\nshown = []\nname = \"a\"\ntitle = \"b\"\nwords = [1]\n";
        assert!(said(text).contains("format 1: `words` is missing or of another type"));
        assert!(said("[[format").starts_with("formats.toml: TOML parse error"));
    }
}
