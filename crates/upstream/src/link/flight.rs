//! What is known of one request that is under way: the descriptor beside its copy.

use crate::group::Member;

/// How many attempts of one request are told apart at most.
pub const MOST_ATTEMPTS: u8 = 9;

/// One request under way, and how far it is. It holds no byte of the request: whoever drives it keeps the
/// copy until it is over.
#[derive(Clone, Debug)]
pub struct Flight {
    pub(super) key: u64,
    /// It may run twice.
    pub(super) repeats: bool,
    pub(super) instance: Member,
    /// The instance's, when this attempt began.
    pub(super) epoch: u32,
    /// Those that were asked since all had been, one bit each.
    pub(super) tried: u64,
    pub(super) attempts: u8,
    /// Processes that ended while it ran.
    pub(super) ended: u8,
    pub(super) state: FlightState,
    /// This attempt was begun, or something was heard of it.
    pub(super) heard_ms: u64,
    pub(super) written_ms: u64,
    /// How much of the answer's body has come, of which attempt ever.
    pub(super) body_bytes: u64,
    pub(super) whole: Option<Whole>,
    /// There is no copy any more.
    pub(super) is_gone: bool,
}

/// An answer that another instance can go on with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Whole {
    /// How long its body is.
    pub total_bytes: u64,
    /// Its strong validator, quotes included.
    pub tag: Box<[u8]>,
}

/// What an instance goes on with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part<'p> {
    /// Its first byte.
    pub from: u64,
    /// How long the whole is.
    pub total_bytes: u64,
    /// The validator.
    pub tag: &'p [u8],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlightState {
    /// Nothing of it was written.
    Unwritten,
    /// Some of it was.
    Written,
    /// The instance has it.
    Acknowledged,
    /// The head of the answer is there.
    Answering,
    /// The rest of a body is asked for.
    Continuing,
    /// It counts for no instance any more.
    Over,
}

impl Flight {
    /// The instance that is asked.
    pub fn instance(&self) -> Member {
        self.instance
    }

    /// Which attempt this is, from 1.
    pub fn attempt(&self) -> u8 {
        self.attempts
    }

    /// Whether the copy may be given up.
    pub fn is_over(&self) -> bool {
        self.state == FlightState::Over
    }

    /// The copy is not whole any more: from here on it is this instance or none.
    pub fn forget_copy(&mut self) {
        self.is_gone = true;
    }

    /// What the rest of its body must belong to.
    pub fn whole(&self) -> Option<&Whole> {
        self.whole.as_ref()
    }

    pub(super) fn note_tried(&mut self) {
        self.tried |= 1 << (self.instance % 64);
    }

    pub(super) fn has_tried(&self, member: Member) -> bool {
        self.tried & 1 << (member % 64) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_is_small() {
        assert!(size_of::<Flight>() <= 128, "{}", size_of::<Flight>());
    }
}
