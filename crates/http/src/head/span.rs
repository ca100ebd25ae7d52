//! The places of the parts of a head, for heads that are kept in buffers of their own.

use std::ops::Range;

/// The place of a part in one of the two buffers, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OwnedSpan {
    pub(crate) start: u32,
    pub(crate) end: u32,
}

impl OwnedSpan {
    pub(crate) fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

/// The places of name and value of a field line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldSpan {
    pub(crate) name: OwnedSpan,
    pub(crate) value: OwnedSpan,
}

impl FieldSpan {
    /// A field with these places of name and value, in one buffer or in two.
    pub fn new(name: Range<u32>, value: Range<u32>) -> FieldSpan {
        let span = |range: Range<u32>| OwnedSpan { start: range.start, end: range.end };
        FieldSpan { name: span(name), value: span(value) }
    }

    /// Name and value, if both are in the one buffer from which a head was parsed.
    pub(crate) fn within(self, bytes: &[u8]) -> (&str, &[u8]) {
        // a name is a token, and so ASCII
        let name = std::str::from_utf8(&bytes[self.name.range()]).unwrap_or_default();
        (name, &bytes[self.value.range()])
    }

    /// Name and value.
    pub(crate) fn of<'h>(self, names: &'h str, bytes: &'h [u8]) -> (&'h str, &'h [u8]) {
        (&names[self.name.range()], &bytes[self.value.range()])
    }
}
