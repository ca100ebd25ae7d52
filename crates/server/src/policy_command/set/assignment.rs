//! An assignment: a target such as `gold.delay` and a value.

use super::error::SetError;
use super::{NONE, NOT_SET};
use forebay_config::table::{Section, Setting, split};
use forebay_config::value::{Form, Value};
use forebay_config::{ClassConfig, Config, RuleConfig, Wrong, at_odds, quote};
use forebay_policy::PolicyFault;
use forebay_policy::near::nearest;
use toml_edit::Value as Toml;

/// The old value of a setting, if it was set, and the new one.
pub(super) type Change = (Option<String>, String);

/// Sets `target`, `NAME.KEY` or `agent`, to this value.
///
/// # Errors
/// The name or the setting does not exist, or the value is wrong.
pub(super) fn one(config: &mut Config, target: &str, value: &str) -> Result<Change, SetError> {
    if target == "agent" {
        return assign(config, target, target, value);
    }
    let Config { classes, rules, .. } = config;
    let classes = classes.iter_mut().flat_map(|class| {
        let name = class.name.as_ref().map(ToString::to_string);
        name.map(|name| (name, Settable::Class(class)))
    });
    let known: Vec<_> = RuleConfig::placed(rules).map(|(place, rule)| rule.name(place)).collect();
    let rules = known.into_iter().zip(rules.iter_mut().map(Settable::Rule));
    let mut names = Vec::new();
    let mut found: Option<(String, &str, Settable<'_>)> = None;
    for (name, named) in classes.chain(rules) {
        let key = target.strip_prefix(&*name).and_then(|rest| rest.strip_prefix('.'));
        // a class and a rule may have the same name, and a name may be the beginning of another
        let is_better = |key: &&str| match &found {
            Some((known, other, of)) => (named.has(key), name.len()) > (of.has(other), known.len()),
            None => true,
        };
        match key.filter(is_better) {
            Some(key) => found = Some((name, key, named)),
            None => names.push(name),
        }
    }
    let Some((name, key, named)) = found else {
        let name = target.split('.').next().unwrap_or_default();
        let near = nearest(name, names.iter().map(String::as_str)).map(str::to_owned);
        return Err(SetError::NoSuch { found: target.to_owned(), near });
    };
    if !named.has(key) {
        let ends_so = |known: &&&str| known.rsplit('.').next() == Some(key);
        let keys = named.keys();
        let near = keys.iter().find(ends_so).copied().or_else(|| nearest(key, keys.into_iter()));
        return Err(SetError::NoKey { list: named.list(), name, found: key.to_owned(), near });
    }
    match named {
        Settable::Class(class) => assign(class, key, target, value),
        Settable::Rule(rule) => assign(rule, key, target, value),
    }
}

/// A section whose settings can be assigned.
pub(super) enum Settable<'c> {
    Class(&'c mut ClassConfig),
    Rule(&'c mut RuleConfig),
}

impl Settable<'_> {
    /// The list of the configuration that has the section.
    pub(super) fn list(&self) -> &'static str {
        match self {
            Settable::Class(_) => "class",
            Settable::Rule(_) => "rule",
        }
    }

    /// The keys that can be assigned: all but the name, which identifies the section, and the
    /// limits of a rule as a whole, too.
    pub(super) fn keys(&self) -> Vec<&'static str> {
        let mut keys: Vec<&'static str> = match self {
            Settable::Class(_) => ClassConfig::SETTINGS.iter().map(|setting| setting.key).collect(),
            Settable::Rule(_) => {
                let limits = RuleConfig::SETTINGS.iter().map(Setting::subsection);
                RuleConfig::SETTINGS.iter().map(|setting| setting.key).chain(limits).collect()
            }
        };
        keys.retain(|key| !matches!(*key, "name" | ""));
        keys.dedup();
        keys
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.keys().contains(&key)
    }
}

pub(super) fn assign<T: Section>(
    section: &mut T,
    key: &str,
    target: &str,
    value: &str,
) -> Result<Change, SetError> {
    let wrong = |wrong| SetError::Value { key: target.to_owned(), wrong };
    if value == NONE {
        return remove(section, key).map_err(wrong);
    }
    let setting = T::SETTINGS.iter().find(|setting| setting.key == key);
    let setting = setting.ok_or_else(|| several::<T>(key, target, value))?;
    let place = (setting.at)(section);
    let before = place.is_set().then(|| place.show());
    match place.form() {
        Form::List | Form::TextOrList => set_list(setting, section, value).map_err(wrong)?,
        _ => setting.set(section, value).map_err(wrong)?,
    }
    Ok((before, (setting.at)(section).show()))
}

/// The error for a value assigned to a subsection: it suggests the subsection's first setting.
fn several<T: Section>(key: &str, target: &str, value: &str) -> SetError {
    let first = T::SETTINGS.iter().find(|setting| setting.subsection() == key);
    let near = first.map_or_else(String::new, |first| {
        let fits = first.set(&mut T::blank(), value).is_ok();
        let value = if fits { value } else { first.example.trim_matches('"') };
        format!("{target}.{}={value}", split(first.key).1)
    });
    SetError::Several { target: target.to_owned(), near }
}

/// Removes a setting, or all settings of a subsection.
fn remove<T: Section>(section: &mut T, key: &str) -> Result<Change, Wrong> {
    let mut before = Vec::new();
    let of_it = |setting: &&Setting<T>| setting.key == key || setting.subsection() == key;
    for setting in T::SETTINGS.iter().filter(of_it) {
        let place = (setting.at)(section);
        if !place.is_set() {
            continue;
        }
        before.push(match setting.key == key {
            true => place.show(),
            false => format!("{} = {}", split(setting.key).1, place.show()),
        });
        place.clear();
        if place.is_set() {
            let (expected, found) = (place.expected(), quote(NONE));
            return Err(Wrong::Form { expected, found, near: None });
        }
    }
    let before = (!before.is_empty()).then(|| before.join(", "));
    Ok((before, NOT_SET.to_owned()))
}

fn set_list<T: Section>(setting: &Setting<T>, section: &mut T, text: &str) -> Result<(), Wrong> {
    let misread = |value: &dyn Value| Wrong::Form {
        expected: value.expected(),
        found: text.to_owned(),
        near: None,
    };
    let items = match text.starts_with('[').then(|| text.parse::<Toml>()) {
        Some(Ok(Toml::Array(items))) => {
            items.iter().map(|item| item.as_str().map(str::to_owned)).collect()
        }
        // an IPv6 address has brackets, too
        _ => Some(vec![text.to_owned()]),
    };
    let value = (setting.at)(section);
    let items = items.ok_or_else(|| misread(value))?;
    if items.is_empty() && !value.may_be_empty() {
        return Err(Wrong::Empty);
    }
    value.clear();
    items.iter().try_for_each(|item| setting.set(section, item))
}

/// Checks the settings together, as those of a file.
///
/// # Errors
/// The first settings that conflict.
pub(super) fn check(config: &Config) -> Result<(), SetError> {
    let Some((at, mut wrong)) = at_odds(config) else { return Ok(()) };
    if let Wrong::Taken { place, .. } = &mut wrong {
        // the place would be in a text that is not kept
        *place = None;
    }
    let number = |list| {
        let rest = at.exact.strip_prefix(list)?.strip_prefix('[')?;
        rest.split_once(']')?.0.parse::<usize>().ok()
    };
    let class = || {
        let name = config.classes.get(number("class")?)?.name.as_ref()?;
        Some(("class", name.to_string()))
    };
    let rule = || {
        let (place, rule) = RuleConfig::placed(&config.rules).nth(number("rule")?)?;
        Some(("rule", rule.name(place)))
    };
    let of = class().or_else(rule);
    let of = match (&wrong, of) {
        (Wrong::Policy(PolicyFault::SaysNothing), Some((_, name))) => {
            return Err(SetError::SaysNothing { name });
        }
        (_, of) => of,
    };
    let key = match &of {
        Some((list, _)) => at.shown[list.len()..].trim_start_matches('.').to_owned(),
        None => at.shown,
    };
    Err(SetError::Together { of, key, wrong: Box::new(wrong) })
}
