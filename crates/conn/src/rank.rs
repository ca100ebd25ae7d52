//! The order in which requests are served.

/// Which request is served first: 0 before 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank(pub u8);

impl Rank {
    /// The rank served first, and the only one until there are classes.
    pub const FIRST: Rank = Rank(0);
    /// The rank that is served last.
    pub const LAST: Rank = Rank(u8::MAX);
}
