//! What is remembered of how a request was judged, for the access log.

use super::InForce;
use crate::identity::PresentedToken;
use forebay_metrics::{ClassSlot, RefusalReason};
use std::num::NonZeroU32;

/// What was decided about a request, in numbers; names are looked up only if a line is written.
#[derive(Clone, Copy, Debug)]
pub struct Trace {
    /// The ledger of its class.
    pub slot: ClassSlot,
    /// The rule that gave the class; `None` if it is the default.
    pub rule: Option<RuleNumber>,
    /// Why it was refused, and the rule that did, if one did.
    pub refused: Option<(RefusalReason, Option<RuleNumber>)>,
    /// What it has brought to prove an identity.
    pub brought: PresentedToken,
    /// The [number](InForce::number) of the policy whose rules are meant.
    pub policy: u32,
}

/// The number of a rule, kept so that none takes no more room than one: every request carries some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleNumber(NonZeroU32);

impl RuleNumber {
    /// Of the rule with this number; there are never so many rules that it has none.
    #[inline]
    pub fn of(rule: u32) -> Option<RuleNumber> {
        rule.checked_add(1).and_then(NonZeroU32::new).map(RuleNumber)
    }

    /// The rule's place among all.
    pub fn place(self) -> usize {
        self.0.get() as usize - 1
    }
}

/// A trace, and what its numbers mean.
#[derive(Clone, Copy, Debug)]
pub struct Judged<'p> {
    /// Where names are looked up.
    pub in_force: &'p InForce,
    /// What was decided.
    pub trace: Trace,
}

/// The same in words. What is not known is left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TraceWords<'p> {
    /// The name of its class.
    pub class: Option<&'p str>,
    /// The name of the rule that gave the class.
    pub rule: Option<&'p str>,
    /// Why it was refused.
    pub refused: Option<&'p str>,
    /// The name of the rule that refused it.
    pub refused_by: Option<&'p str>,
    /// What was found of its token.
    pub token: Option<&'p str>,
}

impl<'p> Judged<'p> {
    /// The names. Those of rules are not known any more once another policy is in force.
    pub fn said(&self) -> TraceWords<'p> {
        let Judged { in_force, trace: Trace { slot, rule, refused, brought, policy } } = *self;
        let rank = in_force.slots.iter().position(|known| *known == slot);
        let class = rank.and_then(|rank| in_force.policy.classes().get(rank));
        let name = |rule: Option<RuleNumber>| {
            let rule = rule.filter(|_| policy == in_force.number)?;
            in_force.policy.rules().get(rule.place()).map(|rule| rule.name.as_str())
        };
        TraceWords {
            class: class.map(|class| class.name.as_str()),
            rule: name(rule),
            refused: refused.map(|(reason, _)| reason.as_str()),
            refused_by: name(refused.and_then(|(_, rule)| rule)),
            token: brought.name(),
        }
    }
}
