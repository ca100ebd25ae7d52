//! Cached answers, and the way they stay current.
//!
//! | module | what it holds |
//! |---|---|
//! | `front` | a loop's own table, looked up by the path as it was sent |
//! | `store` | the cache that all loops share |
//! | `entry` | one cached answer, which both hold |
//! | `entry_key`, `listing_format` | keys of answers: paths of clients, and for lists their form and order |
//! | `watch`, `graph` | watched directories, and the answers that a change there concerns |
//! | `known_hashes` | hashes of files that are not held in memory, by their stamps |

pub(crate) mod entry;
pub(crate) mod entry_key;
pub(crate) mod front;
pub(crate) mod graph;
pub(crate) mod known_hashes;
pub(crate) mod listing_format;
pub(crate) mod store;
pub(crate) mod watch;
