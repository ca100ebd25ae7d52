//! Rules and classes that external programs add, change and remove while the server runs, as
//! changes of a configuration.
//!
//! A rule or class from a program carries the name of its owner, stands before the rules of the
//! file, and is removed with its owner. A program cannot change or remove those of the file.

use crate::command::PolicyChange;
use crate::machine::own_addresses;
use forebay_config::spared::SparedBan;
use forebay_config::{self, ClassConfig, Config, RuleConfig, rules_at_odds};

/// The largest number of rules that one program can have.
pub const MOST_RULES: usize = 100;
/// The largest number of classes that one program can have.
pub const MOST_CLASSES: usize = 4;

/// Applies a change of what `owner` has added to `config`. The result has a line that says what has changed.
///
/// # Errors
/// The error in the change.
pub fn apply(
    config: &Config,
    owner: &str,
    change: &PolicyChange,
) -> Result<(Config, String), String> {
    let mut changed = config.clone();
    let said = match change {
        PolicyChange::Put(text) => put(&mut changed, owner, text)?,
        PolicyChange::Remove { rules, classes } => remove(&mut changed, owner, rules, classes)?,
        PolicyChange::Leave(why) => {
            let count = forget(&mut changed, |of| of == owner);
            format!("{why}: {count} rules and classes are gone")
        }
    };
    if let Some((rule, ban)) = SparedBan::added(config, &changed, own_addresses) {
        return Err(format!("rule {rule:?}: {ban}"));
    }
    match rules_at_odds(&changed) {
        None => Ok((changed, format!("{owner}: {said}\n"))),
        Some((at, wrong)) => Err(format!("{}: {wrong}", at.shown)),
    }
}

fn put(config: &mut Config, owner: &str, text: &str) -> Result<String, String> {
    let (classes, rules) = forebay_config::classes_and_rules(text).map_err(|problems| {
        let said = problems.iter().map(|problem| match &*problem.key {
            "" => problem.wrong.to_string(),
            key => format!("{key}: {}", problem.wrong),
        });
        said.collect::<Vec<_>>().join("; ")
    })?;
    let mut said = Vec::new();
    for class in classes {
        let class = ClassConfig { owner: Some(owner.into()), ..class };
        let name = class.name.as_ref().ok_or("a class has a name")?;
        said.push(format!("class {:?}", name.as_str()));
        match config.classes.iter_mut().find(|known| known.name == class.name) {
            Some(known) if known.owner != class.owner => {
                return Err(not_yours("class", name.as_str()));
            }
            Some(known) => *known = class,
            None => config.classes.push(class),
        }
    }
    for rule in rules {
        let rule = RuleConfig { owner: Some(owner.into()), ..rule };
        let name = rule.name.as_ref().ok_or("a rule has a name")?;
        said.push(format!("rule {:?}", name.as_str()));
        match config.rules.iter_mut().find(|known| known.name == rule.name) {
            Some(known) if known.owner != rule.owner => {
                return Err(not_yours("rule", name.as_str()));
            }
            Some(known) => *known = rule,
            None => {
                let owned = config.rules.iter().take_while(|rule| rule.owner.is_some()).count();
                config.rules.insert(owned, rule);
            }
        }
    }
    let is_own = |of: &Option<Box<str>>| of.as_deref() == Some(owner);
    let rules = config.rules.iter().filter(|rule| is_own(&rule.owner)).count();
    let classes = config.classes.iter().filter(|class| is_own(&class.owner)).count();
    if rules > MOST_RULES || classes > MOST_CLASSES {
        return Err(format!("a program has at most {MOST_RULES} rules and {MOST_CLASSES} classes"));
    }
    Ok(format!("put {}", said.join(", ")))
}

fn remove(
    config: &mut Config,
    owner: &str,
    rules: &[String],
    classes: &[String],
) -> Result<String, String> {
    let mut said = Vec::new();
    for name in rules {
        let is_it =
            |rule: &RuleConfig| rule.name.as_ref().is_some_and(|known| known.as_str() == name);
        let at = config.rules.iter().position(is_it);
        let at = at.filter(|at| config.rules[*at].owner.as_deref() == Some(owner));
        config.rules.remove(at.ok_or_else(|| not_yours("rule", name))?);
        said.push(format!("rule {name:?}"));
    }
    for name in classes {
        let is_it =
            |class: &ClassConfig| class.name.as_ref().is_some_and(|known| known.as_str() == name);
        let at = config.classes.iter().position(is_it);
        let at = at.filter(|at| config.classes[*at].owner.as_deref() == Some(owner));
        config.classes.remove(at.ok_or_else(|| not_yours("class", name))?);
        said.push(format!("class {name:?}"));
    }
    Ok(format!("removed {}", said.join(", ")))
}

fn not_yours(list: &str, name: &str) -> String {
    format!("the {list} {name:?} is none of yours")
}

/// Removes all that these owners have added, and rules of other programs for classes that are
/// removed with it. Returns the number of removed rules and classes.
fn forget(config: &mut Config, is_gone: impl Fn(&str) -> bool) -> usize {
    let before = config.rules.len() + config.classes.len();
    config.classes.retain(|class| !class.owner.as_deref().is_some_and(&is_gone));
    let names: Vec<_> = config.classes.iter().filter_map(|class| class.name.clone()).collect();
    config.rules.retain(|rule| {
        let has_class = rule.class.as_ref().is_none_or(|class| names.contains(class));
        rule.owner.as_deref().is_none_or(|owner| !is_gone(owner) && has_class)
    });
    before - config.rules.len() - config.classes.len()
}

/// Adds what programs have added to `current` to `next`, which was read from a file. Where the two
/// conflict, the additions of one program are left out, or all if that is not enough; the text for
/// the operator says why.
pub fn carry(current: &Config, next: Config) -> (Config, Option<String>) {
    let mut merged = next.clone();
    let classes = current.classes.iter().filter(|class| class.owner.is_some());
    let rules: Vec<_> = current.rules.iter().filter(|rule| rule.owner.is_some()).cloned().collect();
    merged.classes.extend(classes.cloned());
    merged.rules.splice(..0, rules);
    let Some((at, wrong)) = rules_at_odds(&merged) else { return (merged, None) };
    let gone = |whose: &str| format!("what {whose} has added is gone: {}: {wrong}", at.shown);
    let mut owners: Vec<Box<str>> = Vec::new();
    let of_rules = merged.rules.iter().filter_map(|rule| rule.owner.as_ref());
    for owner in of_rules.chain(merged.classes.iter().filter_map(|class| class.owner.as_ref())) {
        if !owners.contains(owner) {
            owners.push(owner.clone());
        }
    }
    let without = owners.into_iter().filter_map(|owner| {
        let mut without = merged.clone();
        forget(&mut without, |of| of == &*owner);
        rules_at_odds(&without).is_none().then_some((owner, without))
    });
    match without.max_by_key(|(_, without)| without.rules.len() + without.classes.len()) {
        Some((owner, without)) => (without, Some(gone(&format!("the program {owner}")))),
        None => (next, Some(gone("every program"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control_socket::request::{AgentRequest, Wish};
    use serde_json::{Value, json};

    fn put(line: &str) -> PolicyChange {
        match AgentRequest::parse(line).unwrap().wish {
            Wish::Put(text) => PolicyChange::Put(text),
            other => panic!("{other:?}"),
        }
    }

    fn names(config: &Config) -> Vec<String> {
        RuleConfig::placed(&config.rules).map(|(place, rule)| rule.name(place)).collect()
    }

    #[test]
    fn each_owner_has_its_own() {
        let file = "root = \"/site\"\n[[class]]\nname = \"gold\"\npriority = 0\n\
                    [[rule]]\nname = \"of the file\"\nclass = \"gold\"\n";
        let config = forebay_config::parse(file, "/etc/forebay.toml").unwrap();
        let one = put(r#"{"do":"put","classes":[{"name":"slow","priority":9}],
                          "rules":[{"name":"a","path":"/a","class":"slow"}]}"#);
        let (config, said) = apply(&config, "one", &one).unwrap();
        assert_eq!(said, "one: put class \"slow\", rule \"a\"\n");
        let two = put(r#"{"do":"put","rules":[{"name":"b","path":"/b","class":"slow"}]}"#);
        let (config, _) = apply(&config, "two", &two).unwrap();
        assert_eq!(names(&config), ["a", "b", "of the file"]);
        let changed = put(r#"{"do":"put","rules":[{"name":"a","action":"reset"}]}"#);
        let error = apply(&config, "two", &changed).unwrap_err();
        assert_eq!(error, "the rule \"a\" is none of yours");
        let (config, _) = apply(&config, "one", &changed).unwrap();
        assert_eq!(names(&config), ["a", "b", "of the file"]);
        let of_the_file = put(r#"{"do":"put","rules":[{"name":"of the file","action":"reset"}]}"#);
        assert!(apply(&config, "one", &of_the_file).unwrap_err().ends_with("none of yours"));
        let nowhere = put(r#"{"do":"put","rules":[{"name":"c","class":"golf"}]}"#);
        assert!(apply(&config, "one", &nowhere).unwrap_err().contains("golf"));
        let limitless = put(r#"{"do":"put","rules":[{"name":"c","requests":{"burst":5}}]}"#);
        assert!(apply(&config, "one", &limitless).unwrap_err().contains("requests.rate"));
        let moved = put(
            r#"{"do":"put","rules":[{"name":"c","requests":{"rate":"5/s","rate_max":"9/s"}}]}"#,
        );
        assert!(apply(&config, "one", &moved).unwrap_err().contains("agent"));
        let misspelt = put(r#"{"do":"put","rules":[{"name":"c","pth":"/"}]}"#);
        assert!(apply(&config, "one", &misspelt).unwrap_err().contains("pth"));
        // a reload keeps what programs have added
        let fresh = forebay_config::parse(file, "/etc/forebay.toml").unwrap();
        let (carried, said) = carry(&config, fresh);
        assert_eq!((names(&carried), said), (names(&config), None));
        // a program whose rule's name is now in the file loses all its additions, others keep theirs
        let taken = format!("{file}[[rule]]\nname = \"b\"\nstop = true\n");
        let fresh = forebay_config::parse(&taken, "/etc/forebay.toml").unwrap();
        let (carried, said) = carry(&config, fresh);
        assert_eq!(names(&carried), ["a", "of the file", "b"]);
        assert!(said.unwrap().starts_with("what the program two has added is gone: rule"));
        let three = put(r#"{"do":"put","rules":[{"name":"c","path":"/c","action":"reset"}]}"#);
        let (three, _) = apply(&config, "three", &three).unwrap();
        let taken = format!("{taken}[[rule]]\nname = \"c\"\nstop = true\n");
        let fresh = forebay_config::parse(&taken, "/etc/forebay.toml").unwrap();
        let (carried, said) = carry(&three, fresh);
        assert_eq!(names(&carried), ["of the file", "b", "c"]);
        assert!(said.unwrap().starts_with("what every program has added is gone: rule"));
        // the other program's rule is removed with the class that it names
        let (config, said) = apply(&config, "one", &PolicyChange::Leave("left")).unwrap();
        assert_eq!(said, "one: left: 3 rules and classes are gone\n");
        assert_eq!(names(&config), ["of the file"]);
    }

    #[test]
    fn no_program_bans_who_is_spared() {
        let file = "root = \"/site\"\ntrusted_proxies = [\"10.0.0.5\"]\n";
        let config = forebay_config::parse(file, "/etc/forebay.toml").unwrap();
        let ban = |client: &str| {
            put(&json!({ "do": "put", "rules": [{ "name": "a", "client": client, "action": "drop" }] }).to_string())
        };
        let error = apply(&config, "one", &ban("10.0.0.5")).unwrap_err();
        let why =
            "rule \"a\": \"10.0.0.5\" is a trusted proxy (trusted_proxies), and is never banned";
        assert_eq!(error, why);
        assert!(apply(&config, "one", &ban("10.0.0.6")).is_ok());
    }

    #[test]
    fn rules_of_the_file_without_names_are_called_by_their_place_in_it() {
        let file =
            "root = \"/site\"\n[[rule]]\nstop = true\n[[rule]]\npath = \"/b\"\nstop = true\n";
        let config = forebay_config::parse(file, "/etc/forebay.toml").unwrap();
        let rule = |name: &str| {
            put(&json!({ "do": "put", "rules": [{ "name": name, "stop": true }] }).to_string())
        };
        assert!(apply(&config, "one", &rule("rule 2")).unwrap_err().contains("taken"));
        let (config, _) = apply(&config, "one", &rule("a")).unwrap();
        let (config, _) = apply(&config, "two", &rule("rule 3")).unwrap();
        assert_eq!(names(&config), ["a", "rule 3", "rule 1", "rule 2"]);
        let compiled = config.policy().unwrap();
        let compiled: Vec<_> = compiled.rules().iter().map(|rule| &*rule.name).collect();
        assert_eq!(compiled, names(&config));
        let (config, _) = apply(&config, "one", &PolicyChange::Leave("left")).unwrap();
        assert_eq!(names(&config), ["rule 3", "rule 1", "rule 2"]);
    }

    #[test]
    fn nobody_has_too_many() {
        let config = forebay_config::parse("root = \"/site\"\n", "/etc/forebay.toml").unwrap();
        let rules: Vec<Value> = (0..=MOST_RULES)
            .map(|number| json!({ "name": number.to_string(), "action": "reset" }))
            .collect();
        let line = json!({ "do": "put", "rules": rules }).to_string();
        let error = apply(&config, "one", &put(&line)).unwrap_err();
        assert!(error.starts_with("a program has at most 100 rules"), "{error}");
    }
}
