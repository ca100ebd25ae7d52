//! The judgement of a request, for the access log.

use super::InForce;
use crate::identity::PresentedToken;
use forebay_metrics::{ClassSlot, RefusalReason};
use std::num::NonZeroU32;

/// The judgement of a request, in numbers; names are looked up only if a line is written.
#[derive(Clone, Copy, Debug)]
pub struct Trace {
    /// The ledger of the request's class.
    pub slot: ClassSlot,
    /// The rule that gave the class; `None` for the default class.
    pub rule: Option<RuleNumber>,
    /// Why the request was refused, and by which rule, if by one.
    pub refused: Option<(RefusalReason, Option<RuleNumber>)>,
    /// The token that the request has brought.
    pub brought: PresentedToken,
    /// The [number](InForce::number) of the policy that the rules' numbers belong to.
    pub policy: u32,
}

/// The number of a rule, stored so that an `Option` of it takes no more room: every request carries some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleNumber(NonZeroU32);

impl RuleNumber {
    /// The rule with this number; there are never so many rules that the result is `None`.
    #[inline]
    pub fn of(rule: u32) -> Option<RuleNumber> {
        rule.checked_add(1).and_then(NonZeroU32::new).map(RuleNumber)
    }

    /// The rule's place among all.
    pub fn place(self) -> usize {
        self.0.get() as usize - 1
    }
}

/// A judgement, and the policy that gives its numbers a meaning.
#[derive(Clone, Copy, Debug)]
pub struct Judged<'p> {
    /// The policy in which names are looked up.
    pub in_force: &'p InForce,
    /// The judgement.
    pub trace: Trace,
}

/// A judgement in words. Unknown parts are left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TraceWords<'p> {
    /// The name of the class.
    pub class: Option<&'p str>,
    /// The name of the rule that gave the class.
    pub rule: Option<&'p str>,
    /// Why the request was refused.
    pub refused: Option<&'p str>,
    /// The name of the rule that refused it.
    pub refused_by: Option<&'p str>,
    /// The result of checking its token.
    pub token: Option<&'p str>,
}

impl<'p> Judged<'p> {
    /// The judgement in words. Names of rules are unknown once another policy is in force.
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
