//! Where rules have what they need in the kernel: a bucket and counts, and the errors they answer with.

use crate::types::{DO_ANSWER, DO_DROP, DO_RESET, DO_USER};
use forebay_policy::decision::RefusalAnswer;
use forebay_policy::first::LeftBecause;

/// What is to be judged in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GateScope {
    /// Connections, by their addresses.
    Connections,
    /// And the class of the first request is told.
    Classes,
    /// And whether it comes through.
    FirstRequests,
    /// The same also where no rule asks for it: what comes through may be answered from the cache.
    Answers,
}

impl GateScope {
    /// Whether first requests are refused.
    pub(crate) fn judges(self) -> bool {
        matches!(self, GateScope::FirstRequests | GateScope::Answers)
    }
}

/// Gives rules their places, by name, and errors theirs.
pub(crate) struct PlacesOfRules<'p> {
    slot: &'p mut dyn FnMut(&str) -> Option<u32>,
    page: &'p mut dyn FnMut(u16, u32) -> Option<u16>,
}

/// What is done with that which is refused: one of `GATE_DO_…`, and which page an error is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refuses {
    pub(crate) does: u8,
    pub(crate) page: u16,
}

impl Refuses {
    /// It is left to the server.
    pub(crate) const LEFT: Refuses = Refuses { does: DO_USER, page: 0 };
}

impl<'p> PlacesOfRules<'p> {
    pub(crate) fn new(
        slot: &'p mut dyn FnMut(&str) -> Option<u32>,
        page: &'p mut dyn FnMut(u16, u32) -> Option<u16>,
    ) -> PlacesOfRules<'p> {
        PlacesOfRules { slot, page }
    }

    /// The place of a rule; `None` if there are too many.
    pub(crate) fn slot(&mut self, rule: &str) -> Option<u32> {
        (self.slot)(rule)
    }

    /// What is done, with an error if it `answers`.
    pub(crate) fn refuses(
        &mut self,
        answer: Result<RefusalAnswer, LeftBecause>,
        answers: bool,
    ) -> Refuses {
        let silent = |does| Refuses { does, page: 0 };
        match answer {
            Ok(RefusalAnswer::Drop) => silent(DO_DROP),
            Ok(RefusalAnswer::Reset) => silent(DO_RESET),
            Ok(RefusalAnswer::Reject { status, retry_after_s }) if answers => {
                let page = (self.page)(status, retry_after_s);
                page.map_or(Refuses::LEFT, |page| Refuses { does: DO_ANSWER, page })
            }
            Ok(RefusalAnswer::Reject { .. }) | Err(_) => Refuses::LEFT,
        }
    }
}
