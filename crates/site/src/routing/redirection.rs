//! A redirect that is complete but for the values of the request.

use crate::routing::location::LocationPart;

/// A redirect.
#[derive(Debug)]
pub(crate) struct Redirection {
    pub(crate) status: u16,
    /// Whether the redirect only adds the slash of a directory.
    pub(crate) is_for_slash: bool,
    /// The head up to `Location`.
    pub(crate) head: Box<[u8]>,
    /// The value of `Location`.
    pub(crate) to: Box<[LocationPart]>,
}
