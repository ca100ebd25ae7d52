//! The requests of a program that stays, each a line of JSON, and the lines that answer them.

use serde_json::{Map, Value, json};
use std::fmt::Write;
use std::time::Duration;

/// The longest lease; below it, the lease of a program that states none.
const MOST_LEASE: Duration = Duration::from_secs(3600);
/// The lease where none is stated; see [`MOST_LEASE`].
const LEASE: Duration = Duration::from_secs(10);
/// The shortest interval between statistics.
const LEAST_EVERY: Duration = Duration::from_millis(100);

/// A request with the number that the program has given it.
#[derive(Debug, PartialEq)]
pub(crate) struct AgentRequest {
    /// The request's number, which the answer repeats.
    pub(crate) id: Value,
    /// What is asked for.
    pub(crate) wish: Wish,
}

/// What is asked for.
#[derive(Debug, PartialEq)]
pub(crate) enum Wish {
    /// The program wants to be known under this name, with a lease.
    Hello {
        /// The program's name.
        owner: String,
        /// How long the program's rules hold without a further request of it.
        lease: Duration,
    },
    /// See [`PolicyChange::Put`](crate::policy_command::agents::PolicyChange::Put).
    Put(String),
    /// See [`PolicyChange::Remove`](crate::policy_command::agents::PolicyChange::Remove).
    Remove {
        /// Names of rules.
        rules: Vec<String>,
        /// Names of classes.
        classes: Vec<String>,
    },
    /// The lease begins anew, as with every request.
    Renew,
    /// The program wants statistics this often; never if that is 0.
    Stats(Duration),
}

impl AgentRequest {
    /// Reads a line.
    ///
    /// # Errors
    /// The request's number, and what is wrong with the line.
    pub(crate) fn parse(line: &str) -> Result<AgentRequest, (Value, String)> {
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

/// A value as the configuration file writes it.
fn toml(value: &Value) -> Result<String, String> {
    Ok(match value {
        Value::Null => return Err("null is no value of a setting".to_owned()),
        // a JSON string is a TOML string, too
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

/// The line that answers a request.
pub(super) fn answer(id: &Value, result: Result<Value, String>) -> String {
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
}
