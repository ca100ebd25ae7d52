//! Whether a supervisor has its place: other processes may take it, as it may have taken it from another.

use std::time::Instant;

/// What becomes of the place of a supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Another server has it, until this one serves.
    Wanted,
    /// It keeps it.
    Own,
    /// Another process is about to have it.
    Handing,
    /// Another process has it; what is on its way to an address that is not served any more is accepted until then.
    Left(Instant),
}
