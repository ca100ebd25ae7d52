//! The places of rules in the kernel: a slot for bucket and counts, and numbers of error pages.

use crate::types::{DO_ANSWER, DO_DROP, DO_RESET, DO_USER};
use forebay_policy::decision::RefusalAnswer;
use forebay_policy::first::LeftBecause;

/// The scope of what the kernel judges; each value includes those above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GateScope {
    /// Connections, by their addresses.
    Connections,
    /// The class of the first request is determined.
    Classes,
    /// The first request is admitted or refused.
    FirstRequests,
    /// The first request is judged even where no rule asks for it: an admitted one may be answered from the
    /// cache.
    Answers,
}

impl GateScope {
    /// Whether first requests are refused.
    pub(crate) fn judges(self) -> bool {
        matches!(self, GateScope::FirstRequests | GateScope::Answers)
    }
}

/// The functions that give a rule its slot, by name, and an error its page.
pub(crate) struct PlacesOfRules<'p> {
    slot: &'p mut dyn FnMut(&str) -> Option<u32>,
    page: &'p mut dyn FnMut(u16, u32) -> Option<u16>,
}

/// What happens to a refused connection or request: one of `GATE_DO_…`, and the number of an error's page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refuses {
    pub(crate) does: u8,
    pub(crate) page: u16,
}

impl Refuses {
    /// The connection or request is left to the server.
    pub(crate) const LEFT: Refuses = Refuses { does: DO_USER, page: 0 };
}

impl<'p> PlacesOfRules<'p> {
    pub(crate) fn new(
        slot: &'p mut dyn FnMut(&str) -> Option<u32>,
        page: &'p mut dyn FnMut(u16, u32) -> Option<u16>,
    ) -> PlacesOfRules<'p> {
        PlacesOfRules { slot, page }
    }

    /// The slot of a rule; `None` if there are too many.
    pub(crate) fn slot(&mut self, rule: &str) -> Option<u32> {
        (self.slot)(rule)
    }

    /// The action for a refusal; one with an error is left to the server unless the kernel `answers` with
    /// errors.
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
