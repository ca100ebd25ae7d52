//! Answers that are kept, and how they stay true.
//!
//! | module | what it holds |
//! |---|---|
//! | `front` | a loop's own table, looked up by the path as it was sent |
//! | `store` | the cache that all loops share |
//! | `entry` | one cached answer, which both hold |
//! | `entry_key`, `listing_format` | what answers are found by: paths of clients, and for lists their form and order |
//! | `watch`, `graph` | directories that are watched, and which answers a change there concerns |
//! | `known_hashes` | what files that are not held in memory contain, by their stamps |

pub(crate) mod entry;
pub(crate) mod entry_key;
pub(crate) mod front;
pub(crate) mod graph;
pub(crate) mod known_hashes;
pub(crate) mod listing_format;
pub(crate) mod store;
pub(crate) mod watch;
