//! How many connections there is room for, and which one gives way to another.
//!
//! | module | what it holds |
//! |---|---|
//! | [`admission`] | how many connections there are, in all and per client |
//! | `idle` | which idle connection is closed for another when all places are taken |
//! | `slow_readers`, `standing` | which connection is cut for another when there is no room |
//! | `linger` | the end of connections whose clients may still send |

pub mod admission;
pub(crate) mod idle;
pub(crate) mod linger;
pub(crate) mod slow_readers;
pub(crate) mod standing;
