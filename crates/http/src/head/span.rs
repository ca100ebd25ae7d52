//! Where the parts of a head stand, for heads that are kept in buffers of their own.

use std::ops::Range;

/// Where something stands in one of the two buffers, in bytes.
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

/// Where name and value of a field line stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldSpan {
    pub(crate) name: OwnedSpan,
    pub(crate) value: OwnedSpan,
}

impl FieldSpan {
    /// A name and a value, in one buffer or in two.
    pub fn new(name: Range<u32>, value: Range<u32>) -> FieldSpan {
        let span = |range: Range<u32>| OwnedSpan { start: range.start, end: range.end };
        FieldSpan { name: span(name), value: span(value) }
    }

    /// Name and value, where both are in one buffer, from which a head was parsed.
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
