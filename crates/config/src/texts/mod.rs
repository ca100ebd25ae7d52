//! The texts that a configuration is read from, and what their strings refer to outside of them.
//!
//! | module | what it holds |
//! |---|---|
//! | [`source`] | where the texts, variables and secrets that a text names come from |
//! | `positions` | the texts one behind another, and where lines begin |
//! | `expand` | `${NAME}` in strings: taking it apart, and writing what is none |
//! | [`origin`] | what a configuration was read from, and what of it is not shown |

pub(crate) mod expand;
pub mod origin;
pub(crate) mod positions;
pub mod source;
