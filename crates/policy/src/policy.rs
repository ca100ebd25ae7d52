//! Classes and rules, compiled: they say which rules decide about a connection or a request.

use crate::class::{Class, ONLY_CLASS};
use crate::condition::{ConditionKind, ConditionSet};
use crate::decision::Decisions;
use crate::error::{At, PolicyError, PolicyFault};
use crate::facts::{ConnectionFacts, RequestFacts};
use crate::index::Index;
use crate::rule::{Degree, JudgePhase, Rule};
use crate::search::{DecisionKind, FirstRules};
use crate::spared::SparedClients;
use std::collections::HashMap;
use std::iter::Empty;

/// Compiled classes and rules. They do not change; their [`State`](crate::State) does.
#[derive(Clone, Debug)]
pub struct Policy {
    /// The classes, by rank.
    classes: Box<[Class]>,
    /// The rank for everything that no rule classifies.
    default_rank: u8,
    rules: Box<[Rule]>,
    /// The rank that each rule gives; the default rank where a rule gives none.
    ranks: Box<[u8]>,
    names: HashMap<Box<str>, u32>,
    connections: Index,
    requests: Index,
    spared: SparedClients,
}

/// The facts that a policy needs to judge; the others may be left empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FactsNeeded {
    /// Whether any rule applies when a connection comes.
    pub connections: bool,
    /// Whether any rule applies when a request is there.
    pub requests: bool,
    /// Whether the server's address is needed.
    pub local: bool,
    /// Whether the host is needed.
    pub host: bool,
    /// Whether the decoded path is needed.
    pub path: bool,
    /// Whether the query is needed.
    pub query: bool,
    /// Whether the client's identity is needed.
    pub identity: bool,
    /// Whether the header fields are needed.
    pub fields: bool,
}

impl Default for Policy {
    /// A policy with one class and no rules.
    fn default() -> Policy {
        Policy::compile(&[], Vec::new())
    }
}

impl Policy {
    /// Compiles classes and rules; the order of the rules counts. Without classes there is one with the name
    /// `default`.
    ///
    /// # Errors
    /// The first class or rule that has an error, and the error.
    pub fn new(classes: &[Class], rules: Vec<Rule>) -> Result<Policy, PolicyError> {
        crate::check::check(classes, &rules)?;
        let rules: Result<Vec<Rule>, PolicyError> =
            rules.into_iter().enumerate().map(folded).collect();
        Ok(Policy::compile(classes, rules?))
    }

    /// Whether [`Policy::new`] would compile these classes and rules. The check makes no index.
    ///
    /// # Errors
    /// The same as of [`Policy::new`].
    pub fn check(classes: &[Class], rules: &[Rule]) -> Result<(), PolicyError> {
        crate::check::check(classes, rules)?;
        let folds = |(_, rule): &(usize, &Rule)| rule.conditions.ignore_case;
        let mut rules = rules.iter().enumerate().filter(folds);
        rules.try_for_each(|(number, rule)| folded((number, rule.clone())).map(drop))
    }

    fn compile(classes: &[Class], rules: Vec<Rule>) -> Policy {
        let mut classes = classes.to_vec();
        if classes.is_empty() {
            classes.push(Class::new(ONLY_CLASS, 0));
        }
        classes.sort_by_key(|class| class.priority);
        let default = classes.iter().position(|class| class.default);
        let default_rank = default.unwrap_or(classes.len() - 1) as u8;
        let rank = |rule: &Rule| {
            let name = rule.class.as_deref()?;
            classes.iter().position(|class| class.name == name)
        };
        Policy {
            ranks: rules
                .iter()
                .map(|rule| rank(rule).map_or(default_rank, |at| at as u8))
                .collect(),
            names: (0..)
                .zip(&rules)
                .map(|(number, rule)| (rule.name.as_str().into(), number))
                .collect(),
            connections: Index::new(&rules, JudgePhase::Connection),
            requests: Index::new(&rules, JudgePhase::Request),
            classes: classes.into(),
            default_rank,
            rules: rules.into(),
            spared: SparedClients::default(),
        }
    }

    /// The same policy, under which these clients are never ignored or dropped before a rule of the server
    /// has looked at them.
    #[must_use]
    pub fn sparing(self, spared: SparedClients) -> Policy {
        Policy { spared, ..self }
    }

    /// The clients that are never ignored.
    pub fn spared(&self) -> &SparedClients {
        &self.spared
    }

    /// The classes in the order in which they are served. A rank is a place in this list.
    pub fn classes(&self) -> &[Class] {
        &self.classes
    }

    /// The rules as they were written.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The number of the rule with this name.
    pub fn rule(&self, name: &str) -> Option<u32> {
        self.names.get(name).copied()
    }

    /// The rank for everything that no rule classifies.
    pub fn default_rank(&self) -> u8 {
        self.default_rank
    }

    /// The rank that each rule gives, by number.
    pub fn ranks(&self) -> &[u8] {
        &self.ranks
    }

    /// The facts that must be known to judge.
    pub fn needs(&self) -> FactsNeeded {
        let asked: Vec<ConditionSet> =
            self.rules.iter().map(|rule| ConditionSet::of(&rule.conditions)).collect();
        let asks = |condition| asked.iter().any(|asked| asked.has(condition));
        FactsNeeded {
            connections: !self.connections.is_empty(),
            requests: !self.requests.is_empty(),
            local: asks(ConditionKind::Local),
            host: asks(ConditionKind::Site),
            path: asks(ConditionKind::Path) || asks(ConditionKind::Type),
            query: asks(ConditionKind::Query),
            identity: asks(ConditionKind::Identity),
            fields: asks(ConditionKind::Header) || asks(ConditionKind::Cookie),
        }
    }

    /// Judges a connection, by the rules that ask for addresses only.
    #[inline]
    pub fn connection(&self, ends: &ConnectionFacts, degree: impl Into<Degree>) -> Decisions {
        if self.connections.is_empty() {
            return self.no_decisions();
        }
        self.decisions(&self.connections.search(&self.rules, &bare(*ends), degree.into()))
    }

    /// Judges a request, by all rules.
    #[inline]
    pub fn request<'f, F>(
        &self,
        facts: &RequestFacts<'f, F>,
        degree: impl Into<Degree>,
    ) -> Decisions
    where
        F: Iterator<Item = (&'f str, &'f [u8])> + Clone,
    {
        if self.requests.is_empty() {
            return self.no_decisions();
        }
        self.decisions(&self.requests.search(&self.rules, facts, degree.into()))
    }

    fn no_decisions(&self) -> Decisions {
        Decisions { rank: self.default_rank, ..Decisions::default() }
    }

    pub(crate) fn decisions(&self, found: &FirstRules) -> Decisions {
        let class = found
            .get(DecisionKind::ClassByRequest)
            .or_else(|| found.get(DecisionKind::ClassByAddress));
        let rank = class.map_or(self.default_rank, |rule| self.ranks[rule as usize]);
        Decisions {
            rank,
            class,
            connections: found.get(DecisionKind::Connections),
            requests: found.get(DecisionKind::Requests),
            in_flight: found.get(DecisionKind::InFlight),
            per_connection: found.get(DecisionKind::PerConnection),
            action: found.get(DecisionKind::Action),
        }
    }
}

/// A rule, with patterns that ignore case if the rule says so.
fn folded((number, rule): (usize, Rule)) -> Result<Rule, PolicyError> {
    let conditions = rule.conditions.folded().map_err(|(condition, error)| {
        let (at, key) = (At::Rule(number), condition.as_str());
        PolicyError { at, key, fault: PolicyFault::Regex(error) }
    })?;
    Ok(Rule { conditions, ..rule })
}

/// The facts of a connection that has no request.
pub(crate) fn bare<'f>(ends: ConnectionFacts) -> RequestFacts<'f, Empty<(&'f str, &'f [u8])>> {
    RequestFacts {
        ends,
        host: b"",
        method: "",
        path: b"",
        query: b"",
        certificate: None,
        identity: None,
        fields: std::iter::empty(),
    }
}
