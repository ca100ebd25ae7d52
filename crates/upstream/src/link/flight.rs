//! The descriptor of one request under way, beside its copy.

use crate::group::MemberIndex;

/// The largest number of copies of one request: the field that counts them has one digit.
pub const MOST_COPIES: u8 = 9;

/// One request under way, and how far it has come. The descriptor holds no byte of the request; the
/// exchange that drives it keeps the copy until the request is over.
#[derive(Clone, Debug)]
pub struct Flight {
    pub(super) key: u64,
    /// Whether the request may run twice.
    pub(super) repeats: bool,
    /// Whether the end of the request is withheld in each attempt until the instance acknowledges it.
    pub(super) withholds: bool,
    /// Whether the end is withheld in this attempt now.
    pub(super) is_withheld: bool,
    pub(super) instance: MemberIndex,
    /// The epoch of the instance when this attempt began.
    pub(super) epoch: u32,
    pub(super) losses: u32,
    /// The instances that were asked since all had been, one bit each.
    pub(super) tried: u64,
    pub(super) attempt: u32,
    /// The number of copies that were written, in whole or in part.
    pub(super) copies: u8,
    /// The number of processes that ended by themselves while the request ran.
    pub(super) ended: u8,
    /// Connections that ended while the request ran, and for which the supervisor has not yet said
    /// what became of the process.
    pub(super) suspects: Vec<Suspect>,
    pub(super) state: FlightState,
    /// Whether the head of an answer has come, from any attempt. Later attempts ask only for what is
    /// missing.
    pub(super) has_head: bool,
    /// Whether the budget allows another copy.
    pub(super) is_admitted: bool,
    /// When the request was left without an instance.
    pub(super) refused_ms: Option<u64>,
    /// How long the request rests.
    pub(super) rest_ms: u32,
    /// How long this attempt may be silent, if another may follow. Later losses of other requests do
    /// not make it longer.
    pub(super) patience_ms: u32,
    /// Whether the request may still go to another instance early, once, if its acknowledgement takes
    /// longer than usual.
    pub(super) may_hurry: bool,
    /// When this attempt began, or something last came of it.
    pub(super) heard_ms: u64,
    pub(super) written_ms: u64,
    /// How many bytes of the answer's body have come, over all attempts.
    pub(super) body_bytes: u64,
    pub(super) whole: Option<WholeAnswer>,
    /// Whether the copy is gone.
    pub(super) is_gone: bool,
}

/// A connection that has ended with a request on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Suspect {
    pub(super) instance: MemberIndex,
    /// A time at which the process was still there.
    pub(super) since_ms: u64,
    /// Until when the supervisor may report an end. Without a report by then, the process has not ended.
    pub(super) until_ms: u64,
}

/// An answer that another instance can go on with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WholeAnswer {
    /// The length of the whole body.
    pub total_bytes: u64,
    /// The answer's strong validator (`ETag`), quotes included.
    pub tag: Box<[u8]>,
}

/// The part of an answer that an instance goes on with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResumePoint<'p> {
    /// The first byte of the part.
    pub from: u64,
    /// The length of the whole body.
    pub total_bytes: u64,
    /// The validator (`ETag`).
    pub tag: &'p [u8],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlightState {
    /// Nothing of this attempt was written.
    Unwritten,
    /// Some of the request was written.
    Written,
    /// The instance has acknowledged the request.
    Acknowledged,
    /// The head of the answer, or of its rest, has come.
    Answering,
    /// No instance has the request; it is sent again later.
    Resting,
    /// The request counts for no instance any more.
    Over,
}

impl Flight {
    /// The instance of this attempt.
    pub fn instance(&self) -> MemberIndex {
        self.instance
    }

    /// The number of this attempt. Events of other attempts are ignored.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The number of the copy that this attempt writes, from 1 to [`MOST_COPIES`].
    pub fn copy(&self) -> u8 {
        self.copies.saturating_add(1).min(MOST_COPIES)
    }

    /// Whether the head of an answer has come.
    pub fn has_head(&self) -> bool {
        self.has_head
    }

    /// Whether the exchange may drop the copy.
    pub fn is_over(&self) -> bool {
        self.state == FlightState::Over
    }

    /// Whether the request may run twice.
    pub fn repeats(&self) -> bool {
        self.repeats
    }

    /// Whether only the head may be sent before
    /// [`LinkEvent::Acknowledged`](super::LinkEvent::Acknowledged).
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

    /// Notes that the copy is no longer complete: no other instance can get the request.
    pub fn forget_copy(&mut self) {
        self.is_gone = true;
    }

    /// The answer to which the rest of the body must belong.
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
