//! The place of a supervisor, which other processes may take, as it may have taken it from another.

use std::time::Instant;

/// The state of a supervisor's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Another server has the place until this one serves.
    Wanted,
    /// The supervisor has the place, and keeps it.
    Own,
    /// Another process is about to take the place.
    Handing,
    /// Another process has the place. Until this time, connections under way to an address that is
    /// no longer served are still accepted.
    Left(Instant),
}
