//! All roles of a handler together, as a protocol asks them.

use super::{Admission, Bodies, Hooks, Journal, Process};

/// All roles of a handler: which requests are admitted and what they are answered. Every type with the
/// five roles has this trait; a [`Handler`](crate::Handler) also says what is spoken.
pub trait HandlerRoles: Admission + Process + Bodies + Journal + Hooks {}

impl<H: Admission + Process + Bodies + Journal + Hooks> HandlerRoles for H {}
