//! What has come of each rule so far: whether it has given a class or an action, and how many it has
//! refused. Whether a limit was charged, its bucket knows.

use crate::policy::Policy;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// What has come of the rules of a policy, by their numbers.
#[derive(Debug)]
pub(crate) struct Traces {
    /// Close together, and written to once each: all loops read them for every request.
    decided: Box<[AtomicBool]>,
    refused: Box<[Arc<AtomicU64>]>,
}

impl Traces {
    /// None so far, but for what `before` knows of rules with the same names.
    pub(crate) fn new(policy: &Policy, before: Option<(&Policy, &Traces)>) -> Traces {
        let known = |name: &str| {
            let (policy, traces) = before?;
            let number = policy.rule(name)? as usize;
            Some((traces.decided[number].load(Relaxed), Arc::clone(&traces.refused[number])))
        };
        let of_rules = policy.rules().iter().map(|rule| known(&rule.name).unwrap_or_default());
        let (decided, refused): (Vec<bool>, Vec<_>) = of_rules.unzip();
        Traces {
            decided: decided.into_iter().map(AtomicBool::new).collect(),
            refused: refused.into(),
        }
    }

    /// This rule has given a class or an action.
    #[inline]
    pub(crate) fn decide(&self, rule: u32) {
        if let Some(decided) = self.decided.get(rule as usize)
            && !decided.load(Relaxed)
        {
            decided.store(true, Relaxed);
        }
    }

    /// This rule has refused somebody.
    #[inline]
    pub(crate) fn refuse(&self, rule: u32) {
        if let Some(refused) = self.refused.get(rule as usize) {
            refused.fetch_add(1, Relaxed);
        }
    }

    pub(crate) fn has_decided(&self, rule: u32) -> bool {
        self.decided.get(rule as usize).is_some_and(|decided| decided.load(Relaxed))
    }

    pub(crate) fn refused(&self, rule: u32) -> u64 {
        self.refused.get(rule as usize).map_or(0, |refused| refused.load(Relaxed))
    }
}
