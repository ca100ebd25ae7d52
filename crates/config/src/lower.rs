//! Classes and rules as `forebay_policy` takes them: settings that the text leaves out have their defaults.

use crate::values::limit::{ConnectionLimit, ErrorStatus, InFlightConfig, RequestLimit};
use crate::{
    ActionChoice, AddressSets, ClassConfig, Config, OverChoice, PerChoice, Refuse, RuleConditions,
    RuleConfig, WhenChoice,
};
use forebay_policy::Policy;
use forebay_policy::PolicyError;
use forebay_policy::condition::Conditions;
use forebay_policy::endpoint::Endpoint;
use forebay_policy::rule::{Degree, MOST_QUEUED, QUEUE_DEADLINE_MS, REJECT_STATUS};
use forebay_policy::{class, rule};
use std::time::Duration;

/// Classes and rules as the policy takes them.
fn lowered(
    classes: &[ClassConfig],
    rules: &[RuleConfig],
    sets: &AddressSets,
) -> (Vec<class::Class>, Vec<rule::Rule>) {
    let classes = classes.iter().map(ClassConfig::to_policy).collect();
    let rules = RuleConfig::placed(rules).map(|(place, rule)| rule.with_sets(place, sets));
    (classes, rules.collect())
}

/// Checks that classes and rules make a policy. They are compiled once, when the policy comes into force.
///
/// # Errors
/// What is wrong with them.
pub(crate) fn check(classes: &[ClassConfig], rules: &[RuleConfig]) -> Result<(), PolicyError> {
    let (classes, rules) = lowered(classes, rules, &AddressSets::default());
    Policy::check(&classes, &rules)
}

/// Compiles classes and rules.
///
/// # Errors
/// What is wrong with them. A configuration that has passed the checks has no faults here.
pub(crate) fn policy(
    classes: &[ClassConfig],
    rules: &[RuleConfig],
    sets: &AddressSets,
) -> Result<Policy, PolicyError> {
    let (classes, rules) = lowered(classes, rules, sets);
    Policy::new(&classes, rules)
}

impl Config {
    /// The configuration's classes and rules, compiled.
    ///
    /// # Errors
    /// What is wrong with them: nothing if the configuration was [parsed](crate::parse()).
    pub fn policy(&self) -> Result<Policy, PolicyError> {
        policy(&self.classes, &self.rules, &self.sets)
    }
}

impl ClassConfig {
    /// The class as the policy takes it.
    pub fn to_policy(&self) -> class::Class {
        class::Class {
            name: self.name.as_ref().map(ToString::to_string).unwrap_or_default(),
            priority: as_u8(self.priority.0.unwrap_or_default()),
            share: self.share.fraction(),
            delay_ms: milliseconds(self.delay),
            default: self.default,
            requests_per_connection: self.requests_per_connection.0.map(as_u32),
        }
    }
}

impl RuleConfig {
    /// The rule as the policy takes it, as the one at this [place](RuleConfig::placed), while the sets that
    /// it names hold no address.
    pub fn to_policy(&self, place: usize) -> rule::Rule {
        self.with_sets(place, &AddressSets::default())
    }

    /// The rule as the policy takes it, with the addresses of the sets that it names.
    fn with_sets(&self, place: usize, sets: &AddressSets) -> rule::Rule {
        rule::Rule {
            name: self.name(place),
            when: match self.when {
                WhenChoice::Always => rule::When::Always,
                WhenChoice::Overload => rule::When::Overload,
                WhenChoice::HeaderControl => rule::When::From(Degree::HEADER_CONTROL),
                WhenChoice::ClassOrder => rule::When::From(Degree::CLASS_ORDER),
                WhenChoice::SynPolicing => rule::When::From(Degree::SYN_POLICING),
            },
            stop: self.stop,
            conditions: self.conditions.to_policy(sets),
            class: self.class.as_ref().map(ToString::to_string),
            connections: self.connections.to_policy(),
            requests: self.requests.to_policy(),
            bounds: self.requests.bounds(),
            in_flight: self.in_flight.to_policy(),
            requests_per_connection: self.requests_per_connection.0.map(as_u32),
            metric: self.metric,
            action: self.action.0.map(|action| match action {
                ActionChoice::Allow => rule::Action::Allow,
                ActionChoice::Reject => {
                    rule::Action::Reject(self.status.0.map_or(REJECT_STATUS, |s| s.0))
                }
                ActionChoice::Reset => rule::Action::Reset,
                ActionChoice::Drop => rule::Action::Drop,
            }),
        }
    }
}

impl RuleConditions {
    fn to_policy(&self, sets: &AddressSets) -> Conditions {
        let held = self.client_set.0.iter().filter_map(|set| sets.get(set));
        let held = held.flat_map(|endpoints| endpoints.iter().cloned());
        let mut client: Vec<Endpoint> = self.client.0.iter().cloned().chain(held).collect();
        if client.is_empty() && !self.client_set.0.is_empty() {
            // without any address the rule would fit every client
            client.push(Endpoint::nowhere());
        }
        Conditions {
            client,
            local: self.local.0.clone(),
            site: self.site.0.clone(),
            method: self.method.0.clone(),
            path: self.path.0.clone(),
            query: self.query.0.clone(),
            file_type: self.file_type.0.clone(),
            certificate: self.certificate.0.clone(),
            identity: self.identity.0.clone(),
            header: self.header.0.clone(),
            cookie: self.cookie.0.clone(),
            ignore_case: self.ignore_case,
        }
    }
}

impl ConnectionLimit {
    /// How connections over the limit are refused. A reset costs the least.
    pub(crate) fn over(&self) -> Refuse {
        self.over.0.unwrap_or(Refuse::Reset)
    }

    fn to_policy(&self) -> Option<rule::Limit> {
        Some(rule::Limit {
            rate: self.rate?,
            burst: as_u32(self.burst.0.unwrap_or(1)),
            per: per(self.per.0),
            over: refuse(self.over(), self.status.0),
            ignore_ms: self.ignore.0.map(milliseconds),
        })
    }
}

impl RequestLimit {
    /// The rates between which the agent may choose, if it may.
    fn bounds(&self) -> Option<rule::Bounds> {
        let rate = self.rate?;
        let (least, most) = (self.rate_min.unwrap_or(rate), self.rate_max.unwrap_or(rate));
        let is_said = self.rate_min.is_some() || self.rate_max.is_some();
        is_said.then_some(rule::Bounds { least, most })
    }

    fn to_policy(&self) -> Option<rule::Limit> {
        Some(rule::Limit {
            rate: self.rate?,
            burst: as_u32(self.burst.0.unwrap_or(1)),
            per: per(self.per.0),
            over: over(
                self.over.0.unwrap_or_default(),
                self.status.0,
                self.deadline.0,
                self.most.0,
            ),
            ignore_ms: self.ignore.0.map(milliseconds),
        })
    }
}

impl InFlightConfig {
    /// What happens to requests over the limit.
    pub(crate) fn over(&self) -> OverChoice {
        self.over.0.unwrap_or_default()
    }

    fn to_policy(&self) -> Option<rule::InFlight> {
        Some(rule::InFlight {
            most: as_u32(self.most.0?),
            per: per(self.per.0),
            over: over(self.over(), self.status.0, self.deadline.0, self.queue.0),
        })
    }
}

/// What happens to requests over a limit. The time and the number of waiting requests matter in a queue
/// only.
fn over(
    over: OverChoice,
    status: Option<ErrorStatus>,
    deadline: Option<Duration>,
    most: Option<u64>,
) -> rule::Over {
    match over {
        OverChoice::Reject => refuse(Refuse::Reject, status),
        OverChoice::Reset => refuse(Refuse::Reset, status),
        OverChoice::Drop => refuse(Refuse::Drop, status),
        OverChoice::Queue => rule::Over::Queue {
            deadline_ms: deadline.map_or(QUEUE_DEADLINE_MS, milliseconds),
            most: most.map_or(MOST_QUEUED, as_u32),
        },
    }
}

fn refuse(how: Refuse, status: Option<ErrorStatus>) -> rule::Over {
    match how {
        Refuse::Reject => rule::Over::Reject { status: status.map(|status| status.0) },
        Refuse::Reset => rule::Over::Reset,
        Refuse::Drop => rule::Over::Drop,
    }
}

fn per(per: Option<PerChoice>) -> rule::Per {
    match per.unwrap_or_default() {
        PerChoice::Rule => rule::Per::Rule,
        PerChoice::Client => rule::Per::Client,
    }
}

fn milliseconds(time: Duration) -> u32 {
    as_u32(time.as_millis().try_into().unwrap_or(u64::MAX))
}

fn as_u8(number: u64) -> u8 {
    number.try_into().unwrap_or(u8::MAX)
}

fn as_u32(number: u64) -> u32 {
    number.try_into().unwrap_or(u32::MAX)
}
