//! A redirect, ready to be answered but for what the request says.

use crate::routing::location::LocationPart;

/// A redirect.
#[derive(Debug)]
pub(crate) struct Redirection {
    pub(crate) status: u16,
    /// Whether it only adds the slash of a directory.
    pub(crate) is_for_slash: bool,
    /// Up to `Location`.
    pub(crate) head: Box<[u8]>,
    /// The value of `Location`.
    pub(crate) to: Box<[LocationPart]>,
}
