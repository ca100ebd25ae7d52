//! The columns of an experiment that is a value: the contents of its [rows](crate::rows), and their
//! titles in tables.

use crate::rows::recorded::RowFile;

/// A column of an experiment's rows.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// The column's name in the file. A figure's ends in its unit.
    pub name: &'static str,
    /// The column's title in tables.
    pub title: &'static str,
    /// Whether it holds words.
    pub is_key: bool,
    /// Digits after the point in tables, if it is shown there.
    pub shown: Option<usize>,
}

/// A column of words, such as a server or a place.
pub const fn key(name: &'static str) -> Column {
    Column { name, title: name, is_key: true, shown: None }
}

/// A column of numbers.
pub const fn figure(name: &'static str) -> Column {
    Column { name, title: name, is_key: false, shown: None }
}

impl Column {
    /// The same, in tables by this title and with this number of digits.
    #[must_use]
    pub const fn shown(self, title: &'static str, digits: usize) -> Column {
        Column { title, shown: Some(digits), ..self }
    }
}

/// A file with these columns, and no rows yet.
pub fn file(columns: &[Column]) -> RowFile {
    let of = |is_key: bool| {
        let columns = columns.iter().filter(move |column| column.is_key == is_key);
        columns.map(|column| column.name.to_owned()).collect()
    };
    RowFile { words: of(true), figures: of(false), ..RowFile::default() }
}
