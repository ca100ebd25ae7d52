//! A table for people, whose columns are as wide as their contents.

use std::fmt::{self, Display, Write};

/// A table: the first column is flush left, numbers are flush right.
pub(super) struct TextTable {
    rows: Vec<Vec<String>>,
}

impl TextTable {
    pub(super) fn new(names: &[&str]) -> TextTable {
        TextTable { rows: vec![names.iter().map(ToString::to_string).collect()] }
    }

    pub(super) fn row(&mut self, cells: &[&dyn Display]) {
        self.rows.push(cells.iter().map(ToString::to_string).collect());
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.len() < 2
    }
}

impl Display for TextTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |column: usize| self.rows.iter().map(|row| row[column].chars().count()).max();
        let widths: Vec<usize> = (0..self.rows[0].len()).flat_map(width).collect();
        for row in &self.rows {
            let mut cells = row.iter().zip(&widths);
            let mut line = String::new();
            if let Some((first, width)) = cells.next() {
                write!(line, "{first:<width$}")?;
            }
            cells.try_for_each(|(cell, width)| write!(line, "  {cell:>width$}"))?;
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}
