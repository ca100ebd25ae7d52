//! Making an entry, on a helper thread: look, open, read, write its heads.
//!
//! | module | what it holds |
//! |---|---|
//! | `job` | the work of helper threads |
//! | `look` | what is at a path, by rules and stamps alone: redirect, alias, file, list, error |
//! | `load` | from what is there to an entry: how it is read, how long it holds |
//! | `bake` | its heads, written once |
//! | `listing` | the files of a directory as a page or as JSON |

pub(crate) mod bake;
pub(crate) mod job;
pub(crate) mod listing;
pub(crate) mod load;
pub(crate) mod look;
