//! All roles of a handler together, as a protocol asks them.

use super::{Admission, Bodies, Hooks, Journal, Process};

/// The process stage and all that belongs to it: decides which requests are admitted and what is answered.
/// Whatever has all roles is one; a [`Handler`](crate::Handler) also says what is spoken.
pub trait HandlerRoles: Admission + Process + Bodies + Journal + Hooks {}

impl<H: Admission + Process + Bodies + Journal + Hooks> HandlerRoles for H {}
