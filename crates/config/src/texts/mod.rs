//! The texts that a configuration is read from, and what their strings refer to outside of them.
//!
//! | module | what it holds |
//! |---|---|
//! | [`source`] | where the texts, variables and secrets that a text names come from |
//! | `positions` | the texts one behind another, and where lines begin |
//! | `expand` | `${NAME}` in strings: expanding it, and escaping text that is no variable |
//! | [`origin`] | the texts and files that a configuration was read from, and which parts are not shown |

pub(crate) mod expand;
pub mod origin;
pub(crate) mod positions;
pub mod source;
