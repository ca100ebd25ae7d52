//! Making an entry, on a helper thread: look, open, read, write its heads.
//!
//! | module | what it holds |
//! |---|---|
//! | `job` | the work of helper threads |
//! | `look` | the findings at a path, by rules and stamps alone: redirect, alias, file, list, error |
//! | `load` | from these findings to an entry: reading files, and the time that the entry holds |
//! | `bake` | the heads of an entry, written once |
//! | `listing` | the files of a directory as a page or as JSON |

pub(crate) mod bake;
pub(crate) mod job;
pub(crate) mod listing;
pub(crate) mod load;
pub(crate) mod look;
