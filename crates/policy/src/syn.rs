//! Decisions for an enforcer that sees no more of a connection than its SYN.
//!
//! The enforcer knows the four-tuple, so it finds the rules that decide, like any other caller. It can be
//! silent or send a reset; it cannot answer with an error, and it keeps nothing for each client. Where a
//! decision needs that, it cannot tell, and leaves the connection to the server.

use crate::bucket::BucketTerms;
use crate::facts::ConnectionFacts;
use crate::policy::Policy;
use crate::rule::{Action, Degree, Limit, Over, Per, Rule};

/// How a connection is refused before it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusing {
    /// Silence: the client tries again.
    Drop,
    /// A reset: the client learns it at once.
    Reset,
}

/// The decision about a SYN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syn {
    /// No rule limits the connection.
    Pass,
    /// The rule with this number refuses the connection.
    Refuse(u32, Refusing),
    /// The connection is charged to the bucket of this rule, and refused if it is over the limit.
    Charge(u32, Refusing),
    /// This rule decides, and its decision needs more than a SYN.
    CannotTell(u32),
}

/// The error of a decision that needs more than a SYN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeedsMore;

/// The refusal that a rule's action means for a SYN; `Ok(None)` if it refuses nothing.
///
/// # Errors
/// The action is an error with a status.
pub fn acts(rule: &Rule) -> Result<Option<Refusing>, NeedsMore> {
    match rule.action {
        None | Some(Action::Allow) => Ok(None),
        Some(Action::Drop) => Ok(Some(Refusing::Drop)),
        Some(Action::Reset) => Ok(Some(Refusing::Reset)),
        Some(Action::Reject(_)) => Err(NeedsMore),
    }
}

/// What a rule's limit on connections means for a SYN: the bucket's terms, and the refusal for connections
/// over the limit.
///
/// # Errors
/// The limit gives each client a bucket of its own, or answers with an error and a status.
pub fn limits(limit: &Limit) -> Result<(BucketTerms, Refusing), NeedsMore> {
    match (limit.per, limit.over) {
        (Per::Rule, Over::Drop) => Ok((BucketTerms::of(limit), Refusing::Drop)),
        (Per::Rule, Over::Reset) => Ok((BucketTerms::of(limit), Refusing::Reset)),
        _ => Err(NeedsMore),
    }
}

impl Policy {
    /// The decision about a SYN with this four-tuple. Nothing is charged.
    pub fn syn(&self, ends: &ConnectionFacts, degree: impl Into<Degree>) -> Syn {
        let decisions = self.connection(ends, degree);
        let rule = |number: u32| self.rules().get(number as usize).map(|rule| (number, rule));
        if let Some((number, rule)) = decisions.action.and_then(rule) {
            match acts(rule) {
                Ok(None) => {}
                Ok(Some(refusing)) => return Syn::Refuse(number, refusing),
                Err(NeedsMore) => return Syn::CannotTell(number),
            }
        }
        let Some((number, rule)) = decisions.connections.and_then(rule) else { return Syn::Pass };
        // a rule with an unlimited rate only keeps later rules from limiting
        let limit = rule.connections.as_ref().filter(|limit| !limit.rate.is_unlimited());
        match limit.map(limits) {
            None => Syn::Pass,
            Some(Ok((_, refusing))) => Syn::Charge(number, refusing),
            Some(Err(NeedsMore)) => Syn::CannotTell(number),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::condition::Conditions;
    use crate::endpoint::Endpoint;
    use crate::rate::Rate;
    use crate::rule::When;

    fn rule(name: &str, client: &str) -> Rule {
        let client = vec![Endpoint::parse(client).unwrap()];
        let conditions = Conditions { client, ..Conditions::default() };
        Rule { name: name.to_owned(), conditions, ..Rule::default() }
    }

    #[test]
    fn what_needs_more_than_a_syn_is_not_told() {
        let limit = |over, per| Some(Limit { over, per, ..Limit::new(Rate::per_second(10), 1) });
        let free = Some(Limit { over: Over::Drop, ..Limit::new(Rate::UNLIMITED, 1) });
        let rules = vec![
            Rule { action: Some(Action::Allow), ..rule("friends", "10.1.0.0/16") },
            Rule { action: Some(Action::Drop), ..rule("foes", "10.0.0.0/8") },
            Rule { action: Some(Action::Reject(403)), ..rule("told", "192.0.2.1") },
            Rule { connections: limit(Over::Reset, Per::Rule), ..rule("all", "192.0.2.2") },
            Rule { connections: limit(Over::Drop, Per::Client), ..rule("each", "192.0.2.3") },
            Rule { connections: limit(Over::default(), Per::Rule), ..rule("503", "192.0.2.4") },
            Rule { connections: free, ..rule("free", "192.0.2.5-192.0.2.6") },
            Rule {
                connections: limit(Over::Drop, Per::Rule),
                ..rule("rest", "192.0.2.4-192.0.2.7")
            },
            Rule {
                action: Some(Action::Drop),
                when: When::From(Degree::CLASS_ORDER),
                ..rule("soon", "192.0.2.8")
            },
        ];
        let policy = Policy::new(&[], rules).unwrap();
        for (client, expected) in [
            ("10.1.2.3", Syn::Pass),
            ("10.2.2.3", Syn::Refuse(1, Refusing::Drop)),
            ("192.0.2.1", Syn::CannotTell(2)),
            ("192.0.2.2", Syn::Charge(3, Refusing::Reset)),
            ("192.0.2.3", Syn::CannotTell(4)),
            ("192.0.2.4", Syn::CannotTell(5)),
            ("192.0.2.5", Syn::Pass),
            ("192.0.2.6", Syn::Pass),
            ("192.0.2.7", Syn::Charge(7, Refusing::Drop)),
            ("192.0.2.8", Syn::Pass),
        ] {
            let client = format!("{client}:1").parse().unwrap();
            let ends = ConnectionFacts { client, local: "127.0.0.1:80".parse().unwrap() };
            assert_eq!(policy.syn(&ends, false), expected, "{client}");
        }
        let local = "127.0.0.1:80".parse().unwrap();
        let ends = ConnectionFacts { client: "192.0.2.8:1".parse().unwrap(), local };
        assert_eq!(policy.syn(&ends, Degree::HEADER_CONTROL), Syn::Pass);
        assert_eq!(policy.syn(&ends, Degree::CLASS_ORDER), Syn::Refuse(8, Refusing::Drop));
    }
}
