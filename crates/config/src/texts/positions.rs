//! The texts of a configuration, one behind another. An offset gives the text, and the line and column in
//! it.

use crate::problems::text_place::TextPlace;
use std::sync::Arc;

/// One text.
#[derive(Debug)]
pub(crate) struct SourceText {
    /// The text's name for messages: the path of its file.
    pub(crate) file: Arc<str>,
    pub(crate) text: Arc<str>,
    /// The ends of the text's lines, within the text.
    line_ends: Vec<usize>,
    /// The offset of the text's first byte.
    pub(crate) start: usize,
}

/// All texts; the main file's is the first.
#[derive(Debug, Default)]
pub(crate) struct Positions(pub(crate) Vec<SourceText>);

impl Positions {
    /// Puts one more text at the end.
    pub(crate) fn add(&mut self, file: &str, text: &str) {
        // so that the end of a text is not the beginning of the next
        let start = self.0.last().map_or(0, |last| last.start + last.text.len() + 1);
        self.0.push(SourceText {
            file: file.into(),
            text: text.into(),
            line_ends: text.match_indices('\n').map(|(at, _)| at).collect(),
            start,
        });
    }

    /// The text that has an offset, by its number.
    pub(crate) fn number(&self, offset: usize) -> usize {
        self.0.partition_point(|text| text.start <= offset).saturating_sub(1)
    }

    /// The place of an offset. The file is named if there are several.
    pub(crate) fn place(&self, offset: usize) -> TextPlace {
        let Some(source) = self.0.get(self.number(offset)) else {
            return TextPlace { file: None, line: 1, column: 1 };
        };
        let file = (self.0.len() > 1).then(|| Arc::clone(&source.file));
        let (line, column) = source.position(offset - source.start);
        TextPlace { file, line, column }
    }
}

impl SourceText {
    /// Line and column of an offset within the text, both from 1, the column in characters.
    pub(crate) fn position(&self, offset: usize) -> (usize, usize) {
        let mut offset = offset.min(self.text.len());
        while !self.text.is_char_boundary(offset) {
            offset -= 1;
        }
        let line = self.line_ends.partition_point(|end| *end < offset);
        let start = line.checked_sub(1).map_or(0, |before| self.line_ends[before] + 1);
        (line + 1, self.text[start..offset].chars().count() + 1)
    }
}
