//! The checks of one rule: whether it has an effect, and whether each of its settings means something.

use super::Wrongs;
use crate::checks::text::Text;
use crate::problems::path::Path;
use crate::problems::problem::{Finding, Wrong};
use crate::reading::draft::ConfigDraft;
use crate::values::limit::RequestLimit;
use crate::{
    ActionChoice, ClassConfig, ClassName, OverChoice, Refuse, RuleConditions, RuleConfig, Switch,
};
use forebay_policy::PolicyFault;
use forebay_policy::rate::Rate;
use std::fmt;

/// Two settings exclude one another, and the reason why.
#[derive(Debug)]
struct ConnectionsBeside {
    /// The other setting.
    other: &'static str,
    /// The reason.
    reason: &'static str,
}

impl Finding for ConnectionsBeside {}

impl fmt::Display for ConnectionsBeside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ConnectionsBeside { other, reason } = self;
        write!(f, "cannot stand beside {other}: {reason}")
    }
}

/// A rule while it is checked.
pub(super) struct RuleCheck<'r> {
    /// The configuration that the rule stands in.
    pub(super) draft: &'r ConfigDraft,
    /// The place of the rule.
    pub(super) path: &'r Path,
    pub(super) rule: &'r RuleConfig,
    pub(super) text: Text<'r>,
    /// The faults so far.
    pub(super) wrong: &'r mut Wrongs,
}

impl RuleCheck<'_> {
    /// Notes all faults of the rule.
    pub(super) fn all(mut self) {
        self.class();
        self.effect();
        self.phase();
        self.limits();
        self.uses();
        self.mover();
        self.identity();
    }

    fn tell(&mut self, key: &str, what: Wrong) {
        self.wrong.push((self.path.child(key), what));
    }

    /// Whether the rule has `key`, or a misspelt key that probably means it.
    fn means(&self, key: &str) -> bool {
        self.text.means(&self.path.child(key))
    }

    /// Checks that the rule's class exists. A class of a program is for rules of programs only: these go
    /// with it.
    fn class(&mut self) {
        let Some(class) = &self.rule.class else { return };
        let mut known = self.draft.class_names();
        if self.rule.owner.is_none() {
            let is_owned = |class: &ClassConfig| class.owner.is_some();
            let owned = self.draft.classes.iter().filter(|class| is_owned(class));
            let owned: Vec<_> =
                owned.flat_map(|class| &class.name).map(ClassName::as_str).collect();
            known.retain(|name| !owned.contains(&name.as_str()));
        }
        if !known.iter().any(|name| name == class.as_str()) {
            let found = class.to_string();
            self.tell("class", Wrong::NoClass { found, known });
        }
    }

    /// Checks that the rule has an effect.
    fn effect(&mut self) {
        // a key that is written counts even with a fault, which is reported already
        let keys =
            ["class", "action", "connections", "requests", "in_flight", "requests_per_connection"];
        let rule = self.rule;
        let tries = keys.iter().any(|key| self.means(key));
        if !tries && !rule.stop && !rule.has_effect() {
            self.wrong.push((self.path.clone(), Wrong::Policy(PolicyFault::SaysNothing)));
        }
    }

    /// Checks that what is decided about a connection does not depend on its requests.
    fn phase(&mut self) {
        if self.rule.connections.rate.is_none() {
            return;
        }
        if let Some(other) = self.rule.conditions.of_request() {
            let reason =
                "connections are counted before a request is read, by client and local only";
            self.tell("connections", Wrong::said(ConnectionsBeside { other, reason }));
        }
    }

    /// Checks that each limit has an amount.
    fn limits(&mut self) {
        let rule = self.rule;
        for (limit, key, example, is_set) in [
            ("connections", "rate", "rate = \"300/s\"", rule.connections.rate.is_some()),
            ("requests", "rate", "rate = \"60/s\"", rule.requests.rate.is_some()),
            ("in_flight", "most", "most = 20", rule.in_flight.most.0.is_some()),
        ] {
            let limit = self.path.child(limit);
            if !is_set && self.text.says(&limit) {
                let missing = Wrong::Missing { example: example.to_owned() };
                self.wrong.push((limit.child(key), missing));
            }
        }
    }

    /// Checks that no setting of the rule is without a meaning.
    fn uses(&mut self) {
        let rule = self.rule;
        let (connections, requests, in_flight) =
            (&rule.connections, &rule.requests, &rule.in_flight);
        let over = requests.over.0.unwrap_or_default();
        let RuleConditions { path, query, header, cookie, ignore_case, .. } = &rule.conditions;
        let has_text = !(path.0.is_empty()
            && query.0.is_empty()
            && header.0.is_empty()
            && cookie.0.is_empty());
        if *ignore_case
            && !has_text
            && !["path", "query", "header", "cookie"].iter().any(|key| self.means(key))
        {
            let needs = "a condition on path, query, header or cookie";
            self.tell("ignore_case", Wrong::Idle { needs });
        }
        for (key, rate, is_said) in [
            ("connections", connections.rate, connections.says_more()),
            ("requests", requests.rate, requests.says_more()),
        ] {
            if let Some(said) = is_said.filter(|_| rate.is_some_and(Rate::is_unlimited)) {
                let needs = "a rate that is not \"unlimited\"";
                self.tell(&format!("{key}.{said}"), Wrong::Idle { needs });
            }
        }
        let reject = "over = \"reject\"";
        let queue = "over = \"queue\"";
        // the key that decides, whether it is unset, whether it says what these keys need, that, and the keys
        for (decides, is_unset, is_used, needs, keys) in [
            (
                "action",
                rule.action.0.is_none(),
                rule.action.0 == Some(ActionChoice::Reject),
                "action = \"reject\"",
                &[("status", rule.status.0.is_some())][..],
            ),
            (
                "connections.over",
                connections.over.0.is_none(),
                connections.over() == Refuse::Reject,
                reject,
                &[("connections.status", connections.status.0.is_some())],
            ),
            (
                "requests.over",
                requests.over.0.is_none(),
                over == OverChoice::Reject,
                reject,
                &[("requests.status", requests.status.0.is_some())],
            ),
            (
                "requests.over",
                requests.over.0.is_none(),
                over == OverChoice::Queue,
                queue,
                &[
                    ("requests.deadline", requests.deadline.0.is_some()),
                    ("requests.most", requests.most.0.is_some()),
                ],
            ),
            (
                "in_flight.over",
                in_flight.over.0.is_none(),
                in_flight.over() == OverChoice::Reject,
                reject,
                &[("in_flight.status", in_flight.status.0.is_some())],
            ),
            (
                "in_flight.over",
                in_flight.over.0.is_none(),
                in_flight.over() == OverChoice::Queue,
                queue,
                &[
                    ("in_flight.deadline", in_flight.deadline.0.is_some()),
                    ("in_flight.queue", in_flight.queue.0.is_some()),
                ],
            ),
        ] {
            // a word that is misspelt may be the one that is needed
            let is_misread = is_unset && self.means(decides);
            if is_used || is_misread {
                continue;
            }
            for (key, _) in keys.iter().filter(|(_, is_said)| *is_said) {
                self.tell(key, Wrong::Idle { needs });
            }
        }
    }

    /// Checks that a rate that may move has the agent, which alone moves it.
    fn mover(&mut self) {
        let RequestLimit { rate_min, rate_max, .. } = &self.rule.requests;
        let said = [("rate_min", rate_min), ("rate_max", rate_max)];
        let said = said.iter().find(|(_, rate)| rate.is_some());
        let is_misread = self.text.means(&Path::default().child("agent"))
            && self.draft.process.agent != Switch::On;
        if let Some((key, _)) =
            said.filter(|_| self.draft.process.agent == Switch::Off && !is_misread)
        {
            let needs = "agent = \"on\"";
            self.tell(&format!("requests.{key}"), Wrong::Idle { needs });
        }
    }

    /// Checks that the server has keys for identities, if the rule asks for one.
    fn identity(&mut self) {
        let is_misread = self.text.means(&Path::default().child("identity").child("keys"));
        if !self.rule.conditions.identity.0.is_empty()
            && self.draft.process.identity.keys.is_none()
            && !is_misread
        {
            self.tell("identity", Wrong::Idle { needs: "identity.keys" });
        }
    }
}
