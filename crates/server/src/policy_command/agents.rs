//! Programs outside that add, change and remove rules and classes while the server runs, over the control
//! socket: what they ask for in JSON, and what it makes of a configuration.
//!
//! What a program has added is its own: it carries the name of its owner, stands before the rules of the
//! file, and goes when the owner does. What the file says no program can change or remove.

use crate::config::{self, ClassConfig, Config, RuleConfig, rules_at_odds};
use serde_json::{Map, Value, json};
use std::fmt::Write;
use std::time::Duration;

/// So many rules one program can have, and so many classes.
pub const MOST_RULES: usize = 100;
/// See [`MOST_RULES`].
pub const MOST_CLASSES: usize = 4;
/// How long a lease may be, and how long it is where nothing is said.
pub const MOST_LEASE: Duration = Duration::from_secs(3600);
/// See [`MOST_LEASE`].
pub const LEASE: Duration = Duration::from_secs(10);
/// Statistics are not sent more often.
pub const LEAST_EVERY: Duration = Duration::from_millis(100);

/// What a program asks for, with the number it has given that.
#[derive(Debug, PartialEq)]
pub struct AgentRequest {
    /// Comes back with the answer.
    pub id: Value,
    /// What is asked for.
    pub wish: Wish,
}

/// What is asked for.
#[derive(Debug, PartialEq)]
pub enum Wish {
    /// To be known under this name, with a lease of so long.
    Hello {
        /// The name.
        owner: String,
        /// The lease.
        lease: Duration,
    },
    /// These classes and rules, written as in a file, are added, or take the place of those with their
    /// names.
    Put(String),
    /// These rules and classes are removed.
    Remove {
        /// Names of rules.
        rules: Vec<String>,
        /// Names of classes.
        classes: Vec<String>,
    },
    /// The lease begins anew, as with everything that is asked.
    Renew,
    /// Statistics are wanted, this often; never if that is 0.
    Stats(Duration),
}

/// What becomes of the rules and classes of an owner.
#[derive(Clone, Debug, PartialEq)]
pub enum PolicyChange {
    /// See [`Wish::Put`].
    Put(String),
    /// See [`Wish::Remove`].
    Remove {
        /// Names of rules.
        rules: Vec<String>,
        /// Names of classes.
        classes: Vec<String>,
    },
    /// All of them go.
    Leave(&'static str),
}

impl AgentRequest {
    /// Reads a line.
    ///
    /// # Errors
    /// What is wrong with it, and the number it has.
    pub fn parse(line: &str) -> Result<AgentRequest, (Value, String)> {
        let bad = |reason: String| (Value::Null, reason);
        let object: Map<String, Value> = serde_json::from_str(line)
            .map_err(|error| bad(format!("a line is one object of JSON: {error}")))?;
        let id = object.get("id").cloned().unwrap_or(Value::Null);
        let wish = wish(&object).map_err(|reason| (id.clone(), reason))?;
        Ok(AgentRequest { id, wish })
    }
}

fn wish(object: &Map<String, Value>) -> Result<Wish, String> {
    let verb = object.get("do").and_then(Value::as_str).unwrap_or_default();
    let known: &[&str] = match verb {
        "hello" => &["id", "do", "owner", "lease_ms"],
        "put" | "remove" => &["id", "do", "rules", "classes"],
        "renew" => &["id", "do"],
        "stats" => &["id", "do", "every_ms"],
        _ => return Err("\"do\" is hello, put, remove, renew or stats".to_owned()),
    };
    if let Some(key) = object.keys().find(|key| !known.contains(&key.as_str())) {
        return Err(format!("{verb} has no {key:?}"));
    }
    let ms = |key: &str, preset: Duration| match object.get(key) {
        None => Ok(preset),
        Some(value) => value
            .as_u64()
            .map(Duration::from_millis)
            .filter(|time| *time <= MOST_LEASE)
            .ok_or_else(|| format!("{key:?} is a number of milliseconds, an hour at most")),
    };
    match verb {
        "hello" => {
            let owner = object.get("owner").and_then(Value::as_str).unwrap_or_default();
            let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
            if owner.is_empty() || owner.len() > 64 || !owner.bytes().all(is_letter) {
                return Err("\"owner\" is a name of letters, digits, -, _ and dots".to_owned());
            }
            let lease = ms("lease_ms", LEASE)?.max(LEAST_EVERY);
            Ok(Wish::Hello { owner: owner.to_owned(), lease })
        }
        "put" => {
            let mut text = String::new();
            for (key, list) in [("classes", "class"), ("rules", "rule")] {
                for item in items(object, key)? {
                    let Value::Object(item) = item else {
                        return Err(format!("{key:?} is a list of objects"));
                    };
                    // writing into a string does not fail
                    let _ = writeln!(text, "[[{list}]]");
                    for (key, value) in item {
                        let _ = writeln!(text, "{} = {}", key_of(key)?, toml(value)?);
                    }
                }
            }
            Ok(Wish::Put(text))
        }
        "remove" => {
            Ok(Wish::Remove { rules: names(object, "rules")?, classes: names(object, "classes")? })
        }
        "renew" => Ok(Wish::Renew),
        _ => Ok(Wish::Stats(match ms("every_ms", Duration::from_secs(1))? {
            Duration::ZERO => Duration::ZERO,
            every => every.max(LEAST_EVERY),
        })),
    }
}

fn items<'o>(object: &'o Map<String, Value>, key: &str) -> Result<&'o [Value], String> {
    match object.get(key) {
        None => Ok(&[]),
        Some(Value::Array(items)) => Ok(items),
        Some(_) => Err(format!("{key:?} is a list")),
    }
}

fn names(object: &Map<String, Value>, key: &str) -> Result<Vec<String>, String> {
    let name = |item: &Value| item.as_str().map(str::to_owned);
    let names: Option<Vec<String>> = items(object, key)?.iter().map(name).collect();
    names.ok_or_else(|| format!("{key:?} is a list of names"))
}

/// A key of the configuration, perhaps with dots.
fn key_of(key: &str) -> Result<&str, String> {
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    match !key.is_empty() && key.bytes().all(is_good) {
        true => Ok(key),
        false => Err(format!("{key:?} is no setting")),
    }
}

/// A value as a file would have it.
fn toml(value: &Value) -> Result<String, String> {
    Ok(match value {
        Value::Null => return Err("null is no value of a setting".to_owned()),
        // a string of JSON is one of TOML
        Value::String(_) | Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::Array(items) => {
            let items: Result<Vec<String>, String> = items.iter().map(toml).collect();
            format!("[{}]", items?.join(", "))
        }
        Value::Object(members) => {
            let member = |(key, value): (&String, &Value)| {
                Ok(format!("{} = {}", key_of(key)?, toml(value)?))
            };
            let members: Result<Vec<String>, String> = members.iter().map(member).collect();
            format!("{{ {} }}", members?.join(", "))
        }
    })
}

/// `config` after a change of what `owner` has added, and a line that says what has changed.
///
/// # Errors
/// What is wrong with it.
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
    match rules_at_odds(&changed) {
        None => Ok((changed, format!("{owner}: {said}\n"))),
        Some((at, wrong)) => Err(format!("{}: {wrong}", at.shown)),
    }
}

fn put(config: &mut Config, owner: &str, text: &str) -> Result<String, String> {
    let (classes, rules) = config::classes_and_rules(text).map_err(|problems| {
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

/// Takes away what these owners have added, and rules of other programs for classes that are gone with
/// it. Returns how many rules and classes those are.
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

/// What programs have added to `current`, added to what a file says. Where that does not go together, what
/// one of them has added is left out, or all of it if that is not enough, and the operator told why.
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

/// An answer: a line.
pub fn answer(id: &Value, result: Result<Value, String>) -> String {
    match result {
        Ok(value) => format!("{}\n", json!({ "id": id, "ok": true, "result": value })),
        Err(error) => format!("{}\n", json!({ "id": id, "ok": false, "error": error })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Wish, String> {
        AgentRequest::parse(line).map(|request| request.wish).map_err(|(_, error)| error)
    }

    fn put(line: &str) -> PolicyChange {
        match parse(line).unwrap() {
            Wish::Put(text) => PolicyChange::Put(text),
            other => panic!("{other:?}"),
        }
    }

    fn names(config: &Config) -> Vec<String> {
        RuleConfig::placed(&config.rules).map(|(place, rule)| rule.name(place)).collect()
    }

    #[test]
    fn what_is_asked_is_read() {
        let request =
            AgentRequest::parse(r#"{"id":7,"do":"hello","owner":"a-b","lease_ms":500}"#).unwrap();
        assert_eq!(request.id, json!(7));
        let lease = Duration::from_millis(500);
        assert_eq!(request.wish, Wish::Hello { owner: "a-b".to_owned(), lease });
        let text =
            r#"{"do":"put","rules":[{"name":"a \"b\"","path":["/x"],"requests":{"rate":"1/s"}}]}"#;
        let expected =
            "[[rule]]\nname = \"a \\\"b\\\"\"\npath = [\"/x\"]\nrequests = { rate = \"1/s\" }\n";
        assert_eq!(parse(text), Ok(Wish::Put(expected.to_owned())));
        assert_eq!(parse(r#"{"do":"stats","every_ms":1}"#), Ok(Wish::Stats(LEAST_EVERY)));
        for (line, error) in [
            ("x", "a line is one object of JSON"),
            ("[]", "a line is one object of JSON"),
            ("{}", "\"do\" is hello, put, remove, renew or stats"),
            (r#"{"do":"renew","x":1}"#, "renew has no \"x\""),
            (r#"{"do":"hello","owner":"a b"}"#, "\"owner\" is a name"),
            (r#"{"do":"hello","owner":"a","lease_ms":1e9}"#, "\"lease_ms\" is a number"),
            (r#"{"do":"put","rules":{}}"#, "\"rules\" is a list"),
            (r#"{"do":"put","rules":[{"a b":1}]}"#, "\"a b\" is no setting"),
            (r#"{"do":"put","rules":[{"name":null}]}"#, "null is no value"),
        ] {
            let found = parse(line).unwrap_err();
            assert!(found.starts_with(error), "{line}: {found}");
        }
    }

    #[test]
    fn each_owner_has_its_own() {
        let file = "root = \"/site\"\n[[class]]\nname = \"gold\"\npriority = 0\n\
                    [[rule]]\nname = \"of the file\"\nclass = \"gold\"\n";
        let config = config::parse(file, "/etc/forebay.toml").unwrap();
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
        let fresh = config::parse(file, "/etc/forebay.toml").unwrap();
        let (carried, said) = carry(&config, fresh);
        assert_eq!((names(&carried), said), (names(&config), None));
        // whose name the file takes has nothing any more; others keep theirs
        let taken = format!("{file}[[rule]]\nname = \"b\"\nstop = true\n");
        let fresh = config::parse(&taken, "/etc/forebay.toml").unwrap();
        let (carried, said) = carry(&config, fresh);
        assert_eq!(names(&carried), ["a", "of the file", "b"]);
        assert!(said.unwrap().starts_with("what the program two has added is gone: rule"));
        let three = put(r#"{"do":"put","rules":[{"name":"c","path":"/c","action":"reset"}]}"#);
        let (three, _) = apply(&config, "three", &three).unwrap();
        let taken = format!("{taken}[[rule]]\nname = \"c\"\nstop = true\n");
        let fresh = config::parse(&taken, "/etc/forebay.toml").unwrap();
        let (carried, said) = carry(&three, fresh);
        assert_eq!(names(&carried), ["of the file", "b", "c"]);
        assert!(said.unwrap().starts_with("what every program has added is gone: rule"));
        // with its class goes the rule of the other
        let (config, said) = apply(&config, "one", &PolicyChange::Leave("left")).unwrap();
        assert_eq!(said, "one: left: 3 rules and classes are gone\n");
        assert_eq!(names(&config), ["of the file"]);
    }

    #[test]
    fn rules_of_the_file_without_names_are_called_by_their_place_in_it() {
        let file =
            "root = \"/site\"\n[[rule]]\nstop = true\n[[rule]]\npath = \"/b\"\nstop = true\n";
        let config = config::parse(file, "/etc/forebay.toml").unwrap();
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
        let config = config::parse("root = \"/site\"\n", "/etc/forebay.toml").unwrap();
        let rules: Vec<Value> = (0..=MOST_RULES)
            .map(|number| json!({ "name": number.to_string(), "action": "reset" }))
            .collect();
        let line = json!({ "do": "put", "rules": rules }).to_string();
        let error = apply(&config, "one", &put(&line)).unwrap_err();
        assert!(error.starts_with("a program has at most 100 rules"), "{error}");
    }
}
