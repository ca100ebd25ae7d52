//! One search over the rules that may match: it finds for each setting the first rule that names
//! it.
//!
//! Rules may be tried in any order. The rule that decides a setting has the least number of those
//! that match and name it, unless a rule with `stop` stands before it.

use crate::condition::ConditionSet;
use crate::rule::{Degree, JudgePhase, Rule};

/// A setting that a rule can decide in one phase. A class given by a rule that asks for addresses
/// only yields to one given by a rule that asks for more, so these are two kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DecisionKind {
    ClassByRequest,
    ClassByAddress,
    Connections,
    Requests,
    InFlight,
    PerConnection,
    Action,
}

const SLOTS: usize = 7;

/// A set of slots, one for each kind of decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Slots(u8);

impl Slots {
    /// The slots that `rule` decides in this phase.
    pub(crate) fn of(rule: &Rule, phase: JudgePhase) -> Slots {
        let by_address = rule.is_for_connections();
        let class =
            if by_address { DecisionKind::ClassByAddress } else { DecisionKind::ClassByRequest };
        let is_request = phase == JudgePhase::Request;
        let named = [
            (class, rule.class.is_some()),
            (DecisionKind::Connections, rule.connections.is_some() && !is_request),
            (DecisionKind::Requests, rule.requests.is_some() && is_request),
            (DecisionKind::InFlight, rule.in_flight.is_some() && is_request),
            (DecisionKind::PerConnection, rule.requests_per_connection.is_some() && is_request),
            (DecisionKind::Action, rule.action.is_some()),
        ];
        let named = named.into_iter().filter(|(_, is_named)| *is_named);
        Slots(named.fold(0, |set, (slot, _)| set | 1 << slot as u8))
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn with(self, other: Slots) -> Slots {
        Slots(self.0 | other.0)
    }

    #[inline]
    fn iter(self) -> impl Iterator<Item = usize> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let slot = rest.trailing_zeros() as usize;
            rest &= rest.wrapping_sub(1);
            (slot < SLOTS).then_some(slot)
        })
    }
}

/// A rule in the index.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IndexedRule {
    pub(crate) rule: u32,
    /// The conditions that must still be tried when the rule is found in its place.
    pub(crate) asked: ConditionSet,
    pub(crate) slots: Slots,
    pub(crate) marks: Marks,
}

/// Properties of a rule in the index, in bits: `stop`, exact path, degree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marks(u8);

impl Marks {
    const STOP: u8 = 1;
    const EXACT: u8 = 2;
    /// The lowest bit of the degree.
    const DEGREE: u8 = 2;

    pub(crate) fn new(stop: bool, from: Degree, is_exact: bool) -> Marks {
        let bit = |is: bool, bit| if is { bit } else { 0 };
        let degree = from.number() << Marks::DEGREE;
        Marks(bit(stop, Marks::STOP) | degree | bit(is_exact, Marks::EXACT))
    }

    /// Whether the path must be as long as the beginning that led to the rule.
    #[inline]
    pub(crate) fn is_exact(self) -> bool {
        self.0 & Marks::EXACT != 0
    }

    #[inline]
    fn stop(self) -> bool {
        self.0 & Marks::STOP != 0
    }

    #[inline]
    pub(crate) fn counts_at(self, degree: Degree) -> bool {
        self.0 >> Marks::DEGREE <= degree.number()
    }
}

/// The rules found so far.
#[derive(Clone, Debug)]
pub(crate) struct FirstRules {
    /// The first rule for each slot.
    first: [u32; SLOTS],
    /// The first rule with `stop`.
    stop: u32,
    /// The slots that any rule of the index decides.
    wanted: Slots,
    /// The number from which on no rule can change the result.
    horizon: u32,
}

const NONE: u32 = u32::MAX;

impl FirstRules {
    #[inline]
    pub(crate) fn new(wanted: Slots) -> FirstRules {
        FirstRules { first: [NONE; SLOTS], stop: NONE, wanted, horizon: NONE }
    }

    #[inline]
    pub(crate) fn horizon(&self) -> u32 {
        self.horizon
    }

    /// Whether the result would change if this rule matched.
    #[inline]
    pub(crate) fn cares(&self, entry: &IndexedRule) -> bool {
        entry.marks.stop() || entry.slots.iter().any(|slot| entry.rule < self.first[slot])
    }

    /// Takes a matching rule into the result.
    #[inline]
    pub(crate) fn take(&mut self, entry: &IndexedRule) {
        for slot in entry.slots.iter() {
            self.first[slot] = self.first[slot].min(entry.rule);
        }
        if entry.marks.stop() {
            self.stop = self.stop.min(entry.rule);
        }
        let last = self.wanted.iter().map(|slot| self.first[slot]).max().unwrap_or(0);
        self.horizon = last.min(self.stop);
    }

    #[inline]
    pub(crate) fn get(&self, slot: DecisionKind) -> Option<u32> {
        let first = self.first[slot as usize];
        (first != NONE && first <= self.stop).then_some(first)
    }
}
