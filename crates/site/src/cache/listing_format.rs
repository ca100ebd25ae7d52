//! The format of a directory's list: a page or JSON, and the order of the files.

/// The format and order of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ListingFormat {
    /// Whether the list is JSON; else it is a page.
    pub(crate) is_json: bool,
    pub(crate) order: SortOrder,
}

/// The order of a list. Directories go first in every order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SortOrder {
    pub(crate) by: SortColumn,
    pub(crate) is_descending: bool,
}

/// The column by which a list is sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum SortColumn {
    #[default]
    Name,
    Size,
    Date,
}

impl SortColumn {
    pub(crate) const ALL: [SortColumn; 3] = [SortColumn::Name, SortColumn::Size, SortColumn::Date];

    /// The column's name in a query.
    pub(crate) fn word(self) -> &'static str {
        match self {
            SortColumn::Name => "name",
            SortColumn::Size => "size",
            SortColumn::Date => "date",
        }
    }

    pub(crate) fn title(self) -> &'static str {
        match self {
            SortColumn::Name => "Name",
            SortColumn::Size => "Size",
            SortColumn::Date => "Modified (UTC)",
        }
    }
}

impl ListingFormat {
    /// The format's number, from 0 on.
    pub(crate) fn number(self) -> u8 {
        let SortOrder { by, is_descending } = self.order;
        by as u8 * 4 + u8::from(is_descending) * 2 + u8::from(self.is_json)
    }

    pub(crate) fn of(number: u8) -> Option<ListingFormat> {
        let by = *SortColumn::ALL.get(usize::from(number / 4))?;
        let (is_descending, is_json) = (number & 2 != 0, number & 1 != 0);
        Some(ListingFormat { is_json, order: SortOrder { by, is_descending } })
    }
}

impl SortOrder {
    /// The order that a query asks for: `sort=name`, `size` or `date`, and `order=desc`. All else
    /// in it has no meaning.
    pub(crate) fn of(query: &[u8]) -> SortOrder {
        let mut order = SortOrder::default();
        for pair in query.split(|byte| *byte == b'&') {
            if let Some(word) = pair.strip_prefix(b"sort=") {
                let known = SortColumn::ALL.into_iter().find(|by| by.word().as_bytes() == word);
                order.by = known.unwrap_or_default();
            } else if let Some(word) = pair.strip_prefix(b"order=") {
                order.is_descending = word == b"desc";
            }
        }
        order
    }
}
