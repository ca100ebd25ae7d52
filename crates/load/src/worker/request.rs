//! One request: its path, and the state of its answer.

use crc32fast::Hasher;

/// The path of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ChosenPath {
    /// An entry of the group's mix.
    Entry(u32),
    /// The path on a line of the group's trace.
    Line(u32),
}

/// A request under way. The state of its answer is kept here where answers of later requests may
/// come first.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub(super) intended_ns: u64,
    pub(super) started_ns: u64,
    pub(super) asked: ChosenPath,
    /// The stream of the request; 0 in HTTP/1.
    pub(super) stream: u32,
    /// The status of the answer; 0 before it has come.
    pub(super) status: u16,
    pub(super) body_bytes: u64,
    pub(super) crc32: Option<Hasher>,
    /// The number of bytes of the request's body sent so far.
    pub(super) sent_bytes: usize,
}
