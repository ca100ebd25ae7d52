//! What must hold between classes and rules, and within a rule.

use super::class::{MOST_CLASSES, ONLY_CLASS};
use super::draft::{ConfigDraft, numbered};
use super::limit::RequestLimit;
use super::path::Path;
use super::problem::Wrong;
use super::table::ConfigReader;
use super::units::Percent;
use super::value::quote;
use super::{ActionChoice, ClassConfig, ClassName, OverChoice, Refuse, RuleConfig, Switch};
use forebay_policy::rate::Rate;
use forebay_policy::{At, PolicyFault};
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// What is wrong, each with where it stands.
type Wrongs = Vec<(Path, Wrong)>;

/// The text that the settings were read from, if there is one.
#[derive(Clone, Copy)]
struct Text<'r>(Option<&'r ConfigReader<'r>>);

impl Text<'_> {
    /// Whether something stands there, be it wrong.
    fn says(self, path: &Path) -> bool {
        self.0.is_some_and(|reader| reader.says(path))
    }

    /// The same, or something else is probably meant to be that.
    fn means(self, path: &Path) -> bool {
        self.0.is_some_and(|reader| reader.has(path))
    }

    fn place(self, path: &Path) -> Option<(usize, usize)> {
        self.0?.place(&path.exact)
    }

    fn taken(self, found: String, by: String, first: &Path) -> Wrong {
        Wrong::Taken { found, by, place: self.place(first) }
    }
}

impl ConfigDraft {
    /// What is wrong with classes and rules.
    pub(super) fn check_policy(&self, text: Option<&ConfigReader<'_>>, wrong: &mut Wrongs) {
        let text = Text(text);
        self.check_classes(text, wrong);
        let mut names: HashMap<String, usize> = HashMap::with_capacity(self.rules.len());
        let places = RuleConfig::placed(&self.rules).map(|(place, _)| place);
        for (place, (index, (path, rule))) in places.zip(numbered("rule", &self.rules).enumerate())
        {
            self.check_class_of(&path, rule, wrong);
            check_effect(&path, rule, text, wrong);
            check_phase(&path, rule, wrong);
            check_limits(&path, rule, text, wrong);
            check_use(&path, rule, text, wrong);
            self.check_mover(&path, rule, text, wrong);
            self.check_identity(&path, rule, text, wrong);
            match names.entry(rule.name(place)) {
                Entry::Vacant(vacant) => _ = vacant.insert(index),
                Entry::Occupied(first) => {
                    let found = format!("the name {}", quote(first.key()));
                    let at = Path::default().child("rule").item(*first.get()).child("name");
                    let taken = text.taken(found, "another rule".to_owned(), &at);
                    wrong.push((path.child("name"), taken));
                }
            }
        }
        // what is told already would be told again
        let is_good = wrong.is_empty() && text.0.is_none_or(ConfigReader::is_content);
        if is_good && let Err(error) = super::lower::check(&self.classes, &self.rules) {
            let section = match error.at {
                At::Class(index) => Path::default().child("class").item(index),
                At::Rule(index) => Path::default().child("rule").item(index),
            };
            let at = if error.key.is_empty() { section } else { section.child(error.key) };
            wrong.push((at, Wrong::Policy(error.fault)));
        }
    }

    fn check_classes(&self, text: Text<'_>, wrong: &mut Wrongs) {
        let classes: Vec<(Path, &ClassConfig)> = numbered("class", &self.classes).collect();
        if let Some((path, _)) = classes.get(MOST_CLASSES) {
            let (found, limit) = (classes.len(), MOST_CLASSES);
            wrong.push((path.clone(), Wrong::TooMany { found, limit }));
        }
        let mut sum = Percent::default();
        for (index, (path, class)) in classes.iter().enumerate() {
            let mut taken = |key, found: String, same: &dyn Fn(&ClassConfig) -> bool| {
                let Some((by, of)) = classes[..index].iter().find(|(_, of)| same(of)) else {
                    return;
                };
                let name = of.name.as_ref().filter(|name| class.name.as_ref() != Some(name));
                let other = "another class".to_owned();
                let by_name =
                    name.map_or(other, |name| format!("the class {}", quote(name.as_str())));
                wrong.push((path.child(key), text.taken(found, by_name, &by.child(key))));
            };
            if let Some(name) = &class.name {
                let found = format!("the name {}", quote(name.as_str()));
                taken("name", found, &|other| other.name == class.name);
            }
            if let Some(priority) = class.priority.0 {
                let found = format!("the priority {priority}");
                taken("priority", found, &|other| other.priority == class.priority);
            }
            taken("default", "the default".to_owned(), &|other| other.default && class.default);
            let was_too_much = sum > Percent::WHOLE;
            sum.0 = sum.0.saturating_add(class.share.0);
            if sum > Percent::WHOLE && !was_too_much {
                wrong.push((path.child("share"), Wrong::Shares { sum: sum.to_string() }));
            }
        }
    }

    /// The classes there will be.
    pub(super) fn class_names(&self) -> Vec<String> {
        let names = || self.classes.iter().flat_map(|class| &class.name);
        match &self.classes[..] {
            [] => vec![ONLY_CLASS.to_owned()],
            _ => names().map(ToString::to_string).collect(),
        }
    }

    /// Rates are moved by the agent only.
    fn check_mover(&self, path: &Path, rule: &RuleConfig, text: Text<'_>, wrong: &mut Wrongs) {
        let RequestLimit { rate_min, rate_max, .. } = &rule.requests;
        let said = [("rate_min", rate_min), ("rate_max", rate_max)];
        let said = said.iter().find(|(_, rate)| rate.is_some());
        let is_misread =
            text.means(&Path::default().child("agent")) && self.process.agent != Switch::On;
        if let Some((key, _)) = said.filter(|_| self.process.agent == Switch::Off && !is_misread) {
            let needs = "agent = \"on\"";
            wrong.push((path.child("requests").child(key), Wrong::Idle { needs }));
        }
    }

    /// Identities are proven to a server that has keys.
    fn check_identity(&self, path: &Path, rule: &RuleConfig, text: Text<'_>, wrong: &mut Wrongs) {
        let is_misread = text.means(&Path::default().child("identity").child("keys"));
        if !rule.identity.0.is_empty() && self.process.identity.keys.is_none() && !is_misread {
            wrong.push((path.child("identity"), Wrong::Idle { needs: "identity.keys" }));
        }
    }

    /// There is such a class. That of a program is for rules of programs only: these go with it.
    fn check_class_of(&self, path: &Path, rule: &RuleConfig, wrong: &mut Wrongs) {
        let Some(class) = &rule.class else { return };
        let mut known = self.class_names();
        if rule.owner.is_none() {
            let is_owned = |class: &ClassConfig| class.owner.is_some();
            let owned = self.classes.iter().filter(|class| is_owned(class));
            let owned: Vec<_> =
                owned.flat_map(|class| &class.name).map(ClassName::as_str).collect();
            known.retain(|name| !owned.contains(&name.as_str()));
        }
        if !known.iter().any(|name| name == class.as_str()) {
            let found = class.to_string();
            wrong.push((path.child("class"), Wrong::NoClass { found, known }));
        }
    }
}

/// A rule does something.
fn check_effect(path: &Path, rule: &RuleConfig, text: Text<'_>, wrong: &mut Wrongs) {
    // what is said wrong is told already
    let keys =
        ["class", "action", "connections", "requests", "in_flight", "requests_per_connection"];
    let tries = keys.iter().any(|key| text.means(&path.child(key)));
    if !tries && !rule.stop && !rule.has_effect() {
        wrong.push((path.clone(), Wrong::Policy(PolicyFault::SaysNothing)));
    }
}

/// What is decided about a connection cannot depend on its requests.
fn check_phase(path: &Path, rule: &RuleConfig, wrong: &mut Wrongs) {
    if rule.connections.rate.is_none() {
        return;
    }
    if let Some(other) = rule.request_condition() {
        let reason = "connections are counted before a request is read, by client and local only";
        wrong.push((path.child("connections"), Wrong::Beside { other, reason }));
    }
}

/// Each limit says how much.
fn check_limits(path: &Path, rule: &RuleConfig, text: Text<'_>, wrong: &mut Wrongs) {
    for (limit, key, example, is_set) in [
        ("connections", "rate", "rate = \"300/s\"", rule.connections.rate.is_some()),
        ("requests", "rate", "rate = \"60/s\"", rule.requests.rate.is_some()),
        ("in_flight", "most", "most = 20", rule.in_flight.most.0.is_some()),
    ] {
        let limit = path.child(limit);
        if !is_set && text.says(&limit) {
            wrong.push((limit.child(key), Wrong::Missing { example: example.to_owned() }));
        }
    }
}

/// Nothing is said that means nothing.
fn check_use(path: &Path, rule: &RuleConfig, text: Text<'_>, wrong: &mut Wrongs) {
    let (connections, requests, in_flight) = (&rule.connections, &rule.requests, &rule.in_flight);
    let over = requests.over.0.unwrap_or_default();
    let has_text = !rule.path.0.is_empty()
        || !rule.query.0.is_empty()
        || !rule.header.0.is_empty()
        || !rule.cookie.0.is_empty();
    if rule.ignore_case
        && !has_text
        && !["path", "query", "header", "cookie"].iter().any(|key| text.means(&path.child(key)))
    {
        let needs = "a condition on path, query, header or cookie";
        wrong.push((path.child("ignore_case"), Wrong::Idle { needs }));
    }
    for (key, rate, is_said) in [
        ("connections", connections.rate, connections.says_more()),
        ("requests", requests.rate, requests.says_more()),
    ] {
        if let Some(said) = is_said.filter(|_| rate.is_some_and(Rate::is_unlimited)) {
            let needs = "a rate that is not \"unlimited\"";
            wrong.push((path.child(key).child(said), Wrong::Idle { needs }));
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
        let is_misread = is_unset && text.means(&path.child(decides));
        if is_used || is_misread {
            continue;
        }
        for (key, _) in keys.iter().filter(|(_, is_said)| *is_said) {
            wrong.push((path.child(key), Wrong::Idle { needs }));
        }
    }
}
