//! A redirect, ready to be answered but for what the request says.

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

/// A part of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LocationPart {
    Text(Box<[u8]>),
    /// The host that was asked for.
    Host,
    /// The path that was asked for.
    Path,
    /// The client's query with its question mark.
    Query,
}
