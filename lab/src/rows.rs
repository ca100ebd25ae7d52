//! Rows: the results of one measurement, as files keep them.
//!
//! | module | what it holds |
//! |---|---|
//! | [`recorded`] | a file of rows, written and read |
//! | [`kept`] | the rows that are kept of an experiment, in all folders of `lab/runs` |
//! | [`formats`] | files from before the laboratory: which of their columns are words, and how they are shown |

pub mod formats;
pub mod kept;
pub mod recorded;

/// The flag of a row during which something else ran on a core of the measurement: the only flag
/// with which a row counts.
pub const NOISY: &str = "noisy";

/// One measurement, as it was read or will be written: words name its place, figures are the
/// findings.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RawRow {
    /// The round's number, from 1 on.
    pub round: u32,
    /// The server's place in the round's order, from 1 on; 0 where a file does not say it.
    pub place: usize,
    words: Vec<(String, String)>,
    figures: Vec<(String, f64)>,
    flags: Vec<String>,
}

impl RawRow {
    /// A row of a round without anything.
    pub fn new(round: u32, place: usize) -> RawRow {
        RawRow { round, place, ..RawRow::default() }
    }

    /// The same with this word; the first one counts.
    #[must_use]
    pub fn word(mut self, name: &str, value: impl Into<String>) -> RawRow {
        if !self.words.iter().any(|(known, _)| known == name) {
            self.words.push((name.to_owned(), value.into()));
        }
        self
    }

    /// The same with this number in place of one of that name; a number that is not finite is left
    /// out.
    #[must_use]
    pub fn figure(mut self, name: &str, value: f64) -> RawRow {
        self.figures.retain(|(known, _)| known != name);
        if value.is_finite() {
            self.figures.push((name.to_owned(), value));
        }
        self
    }

    /// The same with a flag, if `is_so`.
    #[must_use]
    pub fn flag(mut self, name: &str, is_so: bool) -> RawRow {
        if is_so {
            self.flags.push(name.to_owned());
        }
        self
    }

    /// A word; empty if the row has none of that name.
    pub fn text(&self, name: &str) -> &str {
        let found = self.words.iter().find(|(known, _)| known == name);
        found.map_or("", |(_, value)| value)
    }

    /// A number.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.figures.iter().find(|(known, _)| known == name).map(|(_, value)| *value)
    }

    /// All its words, by the names of their columns.
    pub fn words(&self) -> &[(String, String)] {
        &self.words
    }

    /// All its numbers, by the names of their columns.
    pub fn figures(&self) -> &[(String, f64)] {
        &self.figures
    }

    /// Whether the row has all these words.
    pub fn is(&self, words: &[(&str, &str)]) -> bool {
        words.iter().all(|(name, value)| self.text(name) == *value)
    }

    /// The row's flags.
    pub fn flags(&self) -> &[String] {
        &self.flags
    }

    /// Whether the row counts: it has no flag but that the machine had something else to do.
    pub fn is_valid(&self) -> bool {
        self.flags.iter().all(|flag| flag == NOISY)
    }
}

/// The values of some columns in these rows, each once, in their order.
pub fn each<'r>(
    rows: impl IntoIterator<Item = &'r RawRow>,
    names: &[impl AsRef<str>],
) -> Vec<Vec<&'r str>> {
    let mut found = Vec::new();
    for row in rows {
        let values: Vec<_> = names.iter().map(|name| row.text(name.as_ref())).collect();
        if !found.contains(&values) {
            found.push(values);
        }
    }
    found
}

/// The rows of one round of one experiment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KeptRound {
    /// The folder that keeps them.
    pub run: String,
    /// The round's number in that folder.
    pub number: u32,
    /// The commit that was built.
    pub commit: String,
    /// The machine; rounds of another machine are kept apart.
    pub machine: String,
    /// The rows.
    pub rows: Vec<RawRow>,
}
