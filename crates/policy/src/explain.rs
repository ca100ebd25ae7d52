//! Explanations: for each rule, what it decides, or what keeps it from deciding. Of many rules, the brief
//! form shows those that matter.

use crate::condition::{ConditionKind, ConditionSet};
use crate::decision::Decisions;
use crate::facts::{ConnectionFacts, RequestFacts};
use crate::policy::{Policy, bare};
use crate::rule::{Action, Degree, InFlight, JudgePhase, Limit, Rule, When};
use crate::search::{FirstRules, IndexedRule, Marks, Slots};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fmt;

/// A setting of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RuleSetting {
    /// The class.
    Class,
    /// The limit on connections.
    Connections,
    /// The limit on requests.
    Requests,
    /// The limit on requests at once.
    InFlight,
    /// The limit on a connection's requests.
    PerConnection,
    /// The action.
    Action,
}

impl RuleSetting {
    /// All settings, in the order in which they are shown.
    pub const ALL: [RuleSetting; 6] = [
        RuleSetting::Class,
        RuleSetting::Connections,
        RuleSetting::Requests,
        RuleSetting::InFlight,
        RuleSetting::PerConnection,
        RuleSetting::Action,
    ];

    /// The key of the setting in a configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            RuleSetting::Class => "class",
            RuleSetting::Connections => "connections",
            RuleSetting::Requests => "requests",
            RuleSetting::InFlight => "in_flight",
            RuleSetting::PerConnection => "requests_per_connection",
            RuleSetting::Action => "action",
        }
    }

    /// The rule that decides the setting.
    pub fn rule(self, decisions: &Decisions) -> Option<u32> {
        match self {
            RuleSetting::Class => decisions.class,
            RuleSetting::Connections => decisions.connections,
            RuleSetting::Requests => decisions.requests,
            RuleSetting::InFlight => decisions.in_flight,
            RuleSetting::PerConnection => decisions.per_connection,
            RuleSetting::Action => decisions.action,
        }
    }

    fn is_named(self, rule: &Rule) -> bool {
        match self {
            RuleSetting::Class => rule.class.is_some(),
            RuleSetting::Connections => rule.connections.is_some(),
            RuleSetting::Requests => rule.requests.is_some(),
            RuleSetting::InFlight => rule.in_flight.is_some(),
            RuleSetting::PerConnection => rule.requests_per_connection.is_some(),
            RuleSetting::Action => rule.action.is_some(),
        }
    }

    fn counts(self, phase: JudgePhase) -> bool {
        match self {
            RuleSetting::Class | RuleSetting::Action => true,
            RuleSetting::Connections => phase == JudgePhase::Connection,
            RuleSetting::Requests | RuleSetting::InFlight | RuleSetting::PerConnection => {
                phase == JudgePhase::Request
            }
        }
    }
}

/// The outcome for one rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleOutcome {
    /// The rule matches, and decides the settings for which [`Explanation::decisions`] names it; perhaps
    /// none, because earlier rules decide them or they do not apply in this phase.
    Matches,
    /// The rule would match, but applies only from a degree of overload that is not reached.
    NotNow,
    /// The rule would match, but an earlier rule with `stop` does: the one with this number.
    Behind(u32),
    /// A condition does not hold.
    Fails {
        /// The first condition that does not hold.
        condition: ConditionKind,
        /// Whether it is the only one that does not hold, and the rule has others.
        nearly: bool,
    },
    /// The rule has conditions on a request, and there is only a connection.
    NoRequest,
}

/// How many nearly matching rules [`Explanation::brief`] shows at most.
const MOST_NEAR: usize = 20;

/// The decisions about a connection or a request, and the reasons.
#[derive(Clone, Debug)]
pub struct Explanation<'p> {
    policy: &'p Policy,
    /// The phase that is explained.
    pub phase: JudgePhase,
    /// The decisions, the same as without an explanation.
    pub decisions: Decisions,
    /// The outcome for each rule, by number.
    pub outcomes: Vec<RuleOutcome>,
}

impl Policy {
    /// Judges a connection and explains the result, rule by rule.
    pub fn explain_connection(
        &self,
        ends: &ConnectionFacts,
        degree: impl Into<Degree>,
    ) -> Explanation<'_> {
        self.explain(JudgePhase::Connection, &bare(*ends), degree.into())
    }

    /// Judges a request and explains the result, rule by rule.
    pub fn explain_request<'f, F>(
        &self,
        facts: &RequestFacts<'f, F>,
        degree: impl Into<Degree>,
    ) -> Explanation<'_>
    where
        F: Iterator<Item = (&'f str, &'f [u8])> + Clone,
    {
        self.explain(JudgePhase::Request, facts, degree.into())
    }

    fn explain<'f, F>(
        &self,
        phase: JudgePhase,
        facts: &RequestFacts<'f, F>,
        degree: Degree,
    ) -> Explanation<'_>
    where
        F: Iterator<Item = (&'f str, &'f [u8])> + Clone,
    {
        let mut found = FirstRules::new(Slots::default());
        let mut stopped = None;
        let mut outcomes = Vec::with_capacity(self.rules().len());
        for (number, rule) in (0..).zip(self.rules()) {
            let asked = ConditionSet::of(&rule.conditions);
            let failing = asked.failing(&rule.conditions, facts);
            let outcome = if phase == JudgePhase::Connection && !rule.is_for_connections() {
                RuleOutcome::NoRequest
            } else if let Some(condition) = failing.first() {
                RuleOutcome::Fails { condition, nearly: failing.len() == 1 && asked.len() > 1 }
            } else if let Some(by) = stopped {
                RuleOutcome::Behind(by)
            } else if rule.when.from(phase) > degree {
                RuleOutcome::NotNow
            } else {
                let (slots, marks) =
                    (Slots::of(rule, phase), Marks::new(rule.stop, Degree::NORMAL, false));
                found.take(&IndexedRule { rule: number, asked, slots, marks });
                stopped = rule.stop.then_some(number);
                RuleOutcome::Matches
            };
            outcomes.push(outcome);
        }
        Explanation { policy: self, phase, decisions: self.decisions(&found), outcomes }
    }
}

impl Explanation<'_> {
    /// The settings that a rule decides.
    pub fn decides(&self, rule: u32) -> impl Iterator<Item = RuleSetting> {
        RuleSetting::ALL.into_iter().filter(move |one| one.rule(&self.decisions) == Some(rule))
    }

    /// The explanation in fewer lines: the rules that match, those that would if it were not for the load or
    /// a `stop`, and those with one failing condition of several (if there are many, the nearest of them);
    /// then how many others there are.
    pub fn brief(&self) -> Brief<'_> {
        Brief(self)
    }

    /// The rules that nearly match. A rule is the nearer the later its failing condition stands in the order:
    /// one that fails on a cookie is nearer than one for another site.
    fn nearest(&self) -> BTreeSet<u32> {
        let near = (0..).zip(&self.outcomes).filter_map(|(number, outcome)| match outcome {
            RuleOutcome::Fails { condition, nearly: true } => Some((Reverse(*condition), number)),
            _ => None,
        });
        let mut near: Vec<(Reverse<ConditionKind>, u32)> = near.collect();
        near.sort_unstable();
        near.into_iter().map(|(_, number)| number).take(MOST_NEAR).collect()
    }

    fn when(&self, rule: u32) -> When {
        self.policy.rules().get(rule as usize).map_or_else(When::default, |rule| rule.when)
    }

    fn name(&self, rule: u32) -> &str {
        self.policy.rules().get(rule as usize).map_or("", |rule| &rule.name)
    }

    fn settings(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let class = self.policy.classes().get(usize::from(self.decisions.rank));
        let class = class.map_or("", |class| &*class.name);
        match self.decisions.class {
            Some(rule) => writeln!(f, "class        {class}, by rule {:?}", self.name(rule))?,
            None => writeln!(f, "class        {class}, the default")?,
        }
        for setting in RuleSetting::ALL.into_iter().skip(1).filter(|one| one.counts(self.phase)) {
            let key = setting.as_str();
            let rule = setting
                .rule(&self.decisions)
                .and_then(|rule| self.policy.rules().get(rule as usize));
            match rule {
                Some(rule) => {
                    let says = setting_text(rule, setting);
                    writeln!(f, "{key:<12} {says}, by rule {:?}", rule.name)?;
                }
                // rarely set, and its line is longer than the others
                None if setting == RuleSetting::PerConnection => {}
                None => writeln!(f, "{key:<12} none")?,
            }
        }
        Ok(())
    }

    fn rule(&self, number: u32, outcome: RuleOutcome, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "  {:?}: ", self.name(number))?;
        match outcome {
            RuleOutcome::Fails { condition, .. } => writeln!(f, "{condition} does not match"),
            RuleOutcome::NotNow => match self.when(number) {
                When::From(degree) => writeln!(f, "counts from level {} on", degree.number()),
                When::Always | When::Overload => writeln!(f, "counts only in overload"),
            },
            RuleOutcome::NoRequest => writeln!(f, "asks for a request"),
            RuleOutcome::Behind(by) => writeln!(f, "not looked at: {:?} stops", self.name(by)),
            RuleOutcome::Matches => {
                let decided: Vec<_> = self.decides(number).map(RuleSetting::as_str).collect();
                match &*decided {
                    [] => write!(f, "matches, decides nothing")?,
                    decided => write!(f, "matches, decides {}", decided.join(", "))?,
                }
                self.taken(number, f)?;
                writeln!(f)
            }
        }
    }

    /// Writes which settings a matching rule names in vain, and which rules decide those.
    fn taken(&self, number: u32, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(rule) = self.policy.rules().get(number as usize) else { return Ok(()) };
        let named =
            RuleSetting::ALL.into_iter().filter(|one| one.is_named(rule) && one.counts(self.phase));
        for setting in named {
            if let Some(by) = setting.rule(&self.decisions).filter(|by| *by != number) {
                write!(f, "; {} is decided by {:?}", setting.as_str(), self.name(by))?;
            }
        }
        Ok(())
    }
}

/// Displays an [`Explanation`] in few lines.
#[derive(Clone, Copy, Debug)]
pub struct Brief<'e>(&'e Explanation<'e>);

impl fmt::Display for Brief<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Brief(all) = self;
        all.settings(f)?;
        let near = all.nearest();
        let mut left_out = [(0, "near"), (0, "about requests"), (0, "not matching")];
        for (number, outcome) in (0..).zip(&all.outcomes) {
            match outcome {
                RuleOutcome::Fails { .. } if near.contains(&number) => {
                    all.rule(number, *outcome, f)?
                }
                RuleOutcome::Fails { nearly: true, .. } => left_out[0].0 += 1,
                RuleOutcome::NoRequest => left_out[1].0 += 1,
                RuleOutcome::Fails { .. } => left_out[2].0 += 1,
                RuleOutcome::Matches | RuleOutcome::NotNow | RuleOutcome::Behind(_) => {
                    all.rule(number, *outcome, f)?;
                }
            }
        }
        let left_out = left_out.iter().filter(|(count, _)| *count > 0);
        let left_out: Vec<_> = left_out.map(|(count, what)| format!("{count} {what}")).collect();
        match &*left_out {
            [] => Ok(()),
            left_out => writeln!(f, "  not shown: {}", left_out.join(", ")),
        }
    }
}

/// Displays the decisions, a line for each setting, and then a line for each rule.
impl fmt::Display for Explanation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.settings(f)?;
        for (number, outcome) in (0..).zip(&self.outcomes) {
            self.rule(number, *outcome, f)?;
        }
        Ok(())
    }
}

/// The value of a rule's setting, in the form of a configuration; empty if the rule does not have it.
fn setting_text(rule: &Rule, setting: RuleSetting) -> String {
    let limit = |limit: &Option<Limit>| limit.as_ref().map(Limit::to_string);
    let text = match setting {
        RuleSetting::Class => rule.class.clone(),
        RuleSetting::Connections => limit(&rule.connections),
        RuleSetting::Requests => rule.bounds.map_or_else(
            || limit(&rule.requests),
            |bounds| limit(&rule.requests).map(|said| format!("{said}, moved {bounds}")),
        ),
        RuleSetting::InFlight => rule.in_flight.as_ref().map(InFlight::to_string),
        RuleSetting::PerConnection => rule.requests_per_connection.map(|most| most.to_string()),
        RuleSetting::Action => rule.action.as_ref().map(Action::to_string),
    };
    text.unwrap_or_default()
}
