//! What is wrong with a configuration, and where.
//!
//! | module | what it holds |
//! |---|---|
//! | [`problem`] | one fault, and the line that reports it |
//! | [`path`] | where something is in a configuration |
//! | [`text_place`] | where something stands, for messages about something else |
//! | `quoted` | texts as they stand in TOML, and in messages |

pub mod path;
pub mod problem;
pub(crate) mod quoted;
pub mod text_place;
