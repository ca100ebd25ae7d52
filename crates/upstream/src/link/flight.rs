//! What is known of one request that is under way: the descriptor beside its copy.

use crate::group::MemberIndex;

/// How many copies of one request are written at most: the field that counts them has one digit.
pub const MOST_COPIES: u8 = 9;

/// One request under way, and how far it is. It holds no byte of the request: the exchange that drives it
/// keeps the copy until it is over.
#[derive(Clone, Debug)]
pub struct Flight {
    pub(super) key: u64,
    /// It may run twice.
    pub(super) repeats: bool,
    /// Of each attempt the end is withheld until it is acknowledged.
    pub(super) withholds: bool,
    /// Of this one it is.
    pub(super) is_withheld: bool,
    pub(super) instance: MemberIndex,
    /// The instance's, when this attempt began.
    pub(super) epoch: u32,
    pub(super) losses: u32,
    /// Those that were asked since all had been, one bit each.
    pub(super) tried: u64,
    pub(super) attempt: u32,
    /// How many were written, in whole or in part.
    pub(super) copies: u8,
    /// Processes that ended by themselves while it ran.
    pub(super) ended: u8,
    /// Connections that ended while it ran, while the supervisor has not said yet what has become of the process.
    pub(super) suspects: Vec<Suspect>,
    pub(super) state: FlightState,
    /// Of an answer, from whichever attempt. What is missing of it is asked for.
    pub(super) has_head: bool,
    /// Another copy may be sent as far as the budget is concerned.
    pub(super) is_admitted: bool,
    /// Since when no instance has it.
    pub(super) refused_ms: Option<u64>,
    /// How long it rests.
    pub(super) rest_ms: u32,
    /// How long this attempt may be silent, if another may follow: what others miss meanwhile does not make it longer.
    pub(super) patience_ms: u32,
    /// It may go elsewhere before that, once, if its acknowledgement takes longer than usual.
    pub(super) may_hurry: bool,
    /// This attempt was begun, or something was heard of it.
    pub(super) heard_ms: u64,
    pub(super) written_ms: u64,
    /// How much of the answer's body has come, of which attempt ever.
    pub(super) body_bytes: u64,
    pub(super) whole: Option<WholeAnswer>,
    /// There is no copy any more.
    pub(super) is_gone: bool,
}

/// A connection that has ended with a request on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Suspect {
    pub(super) instance: MemberIndex,
    /// The process was there then.
    pub(super) since_ms: u64,
    /// If nothing is known by then, it has not ended.
    pub(super) until_ms: u64,
}

/// An answer that another instance can go on with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WholeAnswer {
    /// How long its body is.
    pub total_bytes: u64,
    /// Its strong validator, quotes included.
    pub tag: Box<[u8]>,
}

/// What an instance goes on with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResumePoint<'p> {
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
    /// The head of the answer is there, or that of its rest.
    Answering,
    /// No instance has it: it is sent again later.
    Resting,
    /// It counts for no instance any more.
    Over,
}

impl Flight {
    /// The instance that is asked.
    pub fn instance(&self) -> MemberIndex {
        self.instance
    }

    /// Which attempt this is. What comes of another is not looked at.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Which copy this attempt writes, from 1 to [`MOST_COPIES`].
    pub fn copy(&self) -> u8 {
        self.copies.saturating_add(1).min(MOST_COPIES)
    }

    /// Whether the head of an answer has come.
    pub fn has_head(&self) -> bool {
        self.has_head
    }

    /// Whether the copy may be given up.
    pub fn is_over(&self) -> bool {
        self.state == FlightState::Over
    }

    /// Whether it may run twice.
    pub fn repeats(&self) -> bool {
        self.repeats
    }

    /// Whether only its head may be sent before [`LinkEvent::Acknowledged`](super::LinkEvent::Acknowledged).
    pub fn is_withheld(&self) -> bool {
        self.is_withheld
    }

    /// Whether it is certain that nothing of this attempt has run.
    pub(super) fn has_not_run(&self) -> bool {
        self.state == FlightState::Unwritten || self.is_withheld
    }

    /// Whether another attempt may follow this one, if it fails.
    pub(super) fn may_be_followed(&self) -> bool {
        self.may_follow(self.has_not_run())
    }

    /// Whether another attempt may follow; `is_certain` says that nothing of this one has run.
    pub(super) fn may_follow(&self, is_certain: bool) -> bool {
        let goes_on = match self.has_head {
            true => self.whole.is_some(),
            false => self.repeats || is_certain,
        };
        goes_on && !self.is_gone
    }

    /// The copy is not whole any more: from here on it is this instance or none.
    pub fn forget_copy(&mut self) {
        self.is_gone = true;
    }

    /// What the rest of its body must belong to.
    pub fn whole(&self) -> Option<&WholeAnswer> {
        self.whole.as_ref()
    }

    pub(super) fn note_tried(&mut self) {
        self.tried |= 1 << (self.instance % 64);
    }

    pub(super) fn has_tried(&self, member: MemberIndex) -> bool {
        self.tried & 1 << (member % 64) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_is_small() {
        assert!(size_of::<Flight>() <= 160, "{}", size_of::<Flight>());
    }
}
