//! `forebay policy rule add` and `remove`: rules that stand before those of the file until the next reload.

use super::assignment::{Settable, assign, check};
use super::error::SetError;
use crate::machine::own_addresses;
use forebay_config::spared::SparedBan;
use forebay_config::table::Section;
use forebay_config::{Config, RuleConfig};
use forebay_policy::near::nearest;

/// The owner of the rules that were added by command. No program can have this name.
const OPERATOR: &str = "policy rule add";

fn is_added(rule: &RuleConfig) -> bool {
    rule.owner.as_deref() == Some(OPERATOR)
}

/// Adds a rule to `config`, before all others, with these assignments `KEY=VALUE`. The
/// result has a line about it.
///
/// # Errors
/// The first wrong assignment, or the error in all of them together.
pub fn add_rule(
    config: &Config,
    name: &str,
    assignments: &[String],
) -> Result<(Config, String), SetError> {
    let mut rule = RuleConfig { owner: Some(OPERATOR.into()), ..RuleConfig::blank() };
    assign(&mut rule, "name", "name", name)?;
    let mut changed = config.clone();
    changed.rules.insert(0, rule);
    for assignment in assignments {
        let form = || SetError::Form { found: assignment.clone() };
        let (key, value) = assignment.split_once('=').ok_or_else(form)?;
        let (key, value) = (key.trim(), value.trim());
        let named = Settable::Rule(&mut changed.rules[0]);
        if !named.has(key) {
            let near = nearest(key, named.keys().into_iter());
            let (list, name, found) = ("rule", name.to_owned(), key.to_owned());
            return Err(SetError::NoKey { list, name, found, near });
        }
        assign(&mut changed.rules[0], key, key, value)?;
    }
    check(&changed)?;
    if let Some((name, ban)) = SparedBan::added(config, &changed, own_addresses) {
        return Err(SetError::Spared { name, ban });
    }
    Ok((changed, format!("the rule {name:?} stands before all others\n")))
}

/// Removes a rule that was added by command. The result has a line about it.
///
/// # Errors
/// If no such rule has this name.
pub fn remove_rule(config: &Config, name: &str) -> Result<(Config, String), SetError> {
    let is_it = |rule: &RuleConfig| {
        is_added(rule) && rule.name.as_ref().is_some_and(|known| known.as_str() == name)
    };
    let mut changed = config.clone();
    changed.rules.retain(|rule| !is_it(rule));
    match changed.rules.len() < config.rules.len() {
        true => Ok((changed, format!("the rule {name:?} is gone\n"))),
        false => Err(SetError::NotAdded { name: name.to_owned() }),
    }
}

/// Removes all rules that were added by command. The result has a line for each.
pub fn without_added(config: &Config) -> (Config, String) {
    let mut changed = config.clone();
    changed.rules.retain(|rule| !is_added(rule));
    let added = config.rules.iter().filter(|rule| is_added(rule));
    let names = added.filter_map(|rule| rule.name.as_ref());
    let said = names.map(|name| {
        format!("the rule {:?} of policy rule add is gone, as with every reload\n", name.as_str())
    });
    (changed, said.collect())
}
