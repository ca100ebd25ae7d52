//! Reads a text into a draft, and writes settings as a text.
//!
//! | module | what it holds |
//! |---|---|
//! | [`read`](mod@read) | a TOML text into a draft, with the place of each fault |
//! | [`draft`] | the settings of a file, before sites and listeners inherit |
//! | `stray` | unknown keys, those of other servers too: what was probably meant, or where they belong |
//! | `relative_paths` | paths that are relative to the directory of the file |
//! | `print` | a [`Config`](crate::Config) as TOML |
//! | [`calibration`] | the file of constants that `forebay calibrate` found, read and written |

pub mod calibration;
pub mod draft;
pub(crate) mod print;
pub mod read;
pub(crate) mod relative_paths;
pub(crate) mod stray;
