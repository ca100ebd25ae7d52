//! One request: what it asks for, and what has come of it.

use crc32fast::Hasher;

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ChosenPath {
    /// An entry of the group's mix.
    Entry(u32),
    /// The path on a line of the group's trace.
    Line(u32),
}

/// A request under way. What has come of its answer is kept here where others may come before it.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub(super) intended_ns: u64,
    pub(super) started_ns: u64,
    pub(super) asked: ChosenPath,
    /// Its stream; 0 in HTTP/1.
    pub(super) stream: u32,
    /// The status of its answer; 0 before that has come.
    pub(super) status: u16,
    pub(super) body_bytes: u64,
    pub(super) crc32: Option<Hasher>,
    /// Bytes of its own body that are on their way.
    pub(super) sent_bytes: usize,
}
