//! Checks that classes and rules fit together; `rule_check` checks each rule.

mod rule_check;

use crate::checks::text::Text;
use crate::problems::path::Path;
use crate::problems::problem::{Finding, Wrong};
use crate::problems::quoted::quote;
use crate::reading::draft::{ConfigDraft, numbered};
use crate::sections::class::{MOST_CLASSES, ONLY_CLASS};
use crate::table::ConfigReader;
use crate::values::units::Percent;
use crate::{ClassConfig, RuleConfig};
use forebay_policy::At;
use rule_check::RuleCheck;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;

/// A fault in classes.
#[derive(Debug)]
enum ClassFault {
    /// The shares of the classes add up to more than the whole.
    Shares {
        /// The sum of the shares so far.
        sum: String,
    },
    /// Too many sections of a list.
    TooMany {
        /// The number of sections.
        found: usize,
        /// The number of sections allowed.
        limit: usize,
    },
}

impl Finding for ClassFault {}

impl fmt::Display for ClassFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClassFault::Shares { sum } => {
                write!(f, "the shares up to this one are {sum}, more than 100%")
            }
            ClassFault::TooMany { found, limit } => {
                write!(f, "there are {found}, at most {limit} are allowed")
            }
        }
    }
}

/// The faults so far, each with its place.
type Wrongs = Vec<(Path, Wrong)>;

impl ConfigDraft {
    /// Checks classes and rules.
    pub(crate) fn check_policy(&self, text: Option<&ConfigReader<'_>>, wrong: &mut Wrongs) {
        let text = Text(text);
        self.check_classes(text, wrong);
        let mut names: HashMap<String, usize> = HashMap::with_capacity(self.rules.len());
        let places = RuleConfig::placed(&self.rules).map(|(place, _)| place);
        for (place, (index, (path, rule))) in places.zip(numbered("rule", &self.rules).enumerate())
        {
            RuleCheck { draft: self, path: &path, rule, text, wrong }.all();
            match names.entry(rule.name(place)) {
                Entry::Vacant(vacant) => _ = vacant.insert(index),
                Entry::Occupied(first) => {
                    let found = format!("the name {}", quote(first.key()));
                    let at = Path::default().child("rule").item(*first.get()).child("name");
                    let taken = taken(text, found, "another rule".to_owned(), &at);
                    wrong.push((path.child("name"), taken));
                }
            }
        }
        // after a fault that is reported already, the policy would report the same again
        let is_good = wrong.is_empty() && text.0.is_none_or(ConfigReader::is_content);
        if is_good && let Err(error) = crate::lower::check(&self.classes, &self.rules) {
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
            wrong.push((path.clone(), Wrong::said(ClassFault::TooMany { found, limit })));
        }
        let mut sum = Percent::default();
        for (index, (path, class)) in classes.iter().enumerate() {
            let mut tell = |key, found: String, same: &dyn Fn(&ClassConfig) -> bool| {
                let Some((by, of)) = classes[..index].iter().find(|(_, of)| same(of)) else {
                    return;
                };
                let name = of.name.as_ref().filter(|name| class.name.as_ref() != Some(name));
                let other = "another class".to_owned();
                let by_name =
                    name.map_or(other, |name| format!("the class {}", quote(name.as_str())));
                wrong.push((path.child(key), taken(text, found, by_name, &by.child(key))));
            };
            if let Some(name) = &class.name {
                let found = format!("the name {}", quote(name.as_str()));
                tell("name", found, &|other| other.name == class.name);
            }
            if let Some(priority) = class.priority.0 {
                let found = format!("the priority {priority}");
                tell("priority", found, &|other| other.priority == class.priority);
            }
            tell("default", "the default".to_owned(), &|other| other.default && class.default);
            let was_too_much = sum > Percent::WHOLE;
            sum.0 = sum.0.saturating_add(class.share.0);
            if sum > Percent::WHOLE && !was_too_much {
                wrong.push((
                    path.child("share"),
                    Wrong::said(ClassFault::Shares { sum: sum.to_string() }),
                ));
            }
        }
    }

    /// The names of the classes that there will be.
    pub(crate) fn class_names(&self) -> Vec<String> {
        let names = || self.classes.iter().flat_map(|class| &class.name);
        match &self.classes[..] {
            [] => vec![ONLY_CLASS.to_owned()],
            _ => names().map(ToString::to_string).collect(),
        }
    }
}

/// The fault that a name is taken: it belongs to one section only, and stands at `first`, too.
fn taken(text: Text<'_>, found: String, by: String, first: &Path) -> Wrong {
    Wrong::Taken { found, by, place: text.place(first) }
}
