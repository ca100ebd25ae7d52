//! `forebay policy set`: settings of classes and rules, changed while the server runs.
//!
//! An assignment goes through the same tables as a setting in a file, so values are written,
//! checked and refused in the same way. The result is put in force like a reload, with the changed
//! configuration in the place of the file.

mod added;
mod assignment;
mod error;

pub use added::{add_rule, remove_rule, without_added};
pub use error::SetError;

use crate::machine::own_addresses;
use assignment::{check, one};
use forebay_config::spared::SparedBan;
use forebay_config::{Config, PolicyOverride};
use std::fmt::Write;

/// The value that removes a setting, or a limit with all its settings.
const NONE: &str = "none";
const NOT_SET: &str = "not set";

/// Applies assignments, `NAME.KEY=VALUE` or `agent=VALUE`, to `config`. The result has a line for
/// each, with the value before. A list is one text, or is written as in a file. With `is_kept` the
/// assignments survive reloads.
///
/// # Errors
/// The first wrong assignment, or the error in all of them together.
pub fn apply(
    config: &Config,
    assignments: &[String],
    is_kept: bool,
) -> Result<(Config, String), SetError> {
    let mut changed = config.clone();
    let mut said = String::new();
    for assignment in assignments {
        let form = || SetError::Form { found: assignment.clone() };
        let (target, value) = assignment.split_once('=').ok_or_else(form)?;
        let (target, value) = (target.trim(), value.trim());
        let (before, now) = one(&mut changed, target, value)?;
        let known =
            changed.assigned.iter().position(|known| target_of(&known.assignment) == target);
        let known = known.map(|at| changed.assigned.remove(at));
        let file_value = known.map_or_else(|| before.clone(), |known| known.file_value);
        let assignment = assignment.clone();
        changed.assigned.push(PolicyOverride { assignment, is_kept, file_value });
        let before = before.unwrap_or_else(|| NOT_SET.to_owned());
        let is = if now == NOT_SET { " is" } else { " =" };
        // writing into a string does not fail
        let _ = writeln!(said, "{target}{is} {now}, was {before}");
    }
    if assignments.is_empty() {
        return Err(SetError::Form { found: String::new() });
    }
    check(&changed)?;
    if let Some((name, ban)) = SparedBan::added(config, &changed, own_addresses) {
        return Err(SetError::Spared { name, ban });
    }
    Ok((changed, said))
}

/// Applies the changes of `policy set --keep` to a configuration from a file, except where the file
/// has changed the setting since. The result has a line for each change.
pub fn keep(overrides: &[PolicyOverride], file: Config) -> (Config, String) {
    let (mut kept, mut said) = (file.clone(), String::new());
    for known in overrides.iter().filter(|known| known.is_kept) {
        let Some((target, value)) = known.assignment.split_once('=') else { continue };
        let (target, value) = (target.trim(), value.trim());
        let show = |value: &Option<String>| value.clone().unwrap_or_else(|| NOT_SET.to_owned());
        // tried on a copy of the file alone, whose value may have changed since;
        // writing into a string does not fail
        let _ = match one(&mut file.clone(), target, value) {
            Err(_) => {
                writeln!(
                    said,
                    "{target} is gone from the file; policy set --keep had made it {value}"
                )
            }
            Ok((before, now)) if before != known.file_value => {
                let before = show(&before);
                match before == now {
                    true => {
                        writeln!(said, "{target} is {now} in the file, too, and not kept any more")
                    }
                    false => writeln!(
                        said,
                        "{target} is {before} now, which the file has changed; policy set --keep had made it {now}"
                    ),
                }
            }
            Ok((before, now)) => match one(&mut kept, target, value) {
                Ok(_) => {
                    kept.assigned.push(known.clone());
                    let before = show(&before);
                    writeln!(
                        said,
                        "{target} stays {now}, as policy set --keep has it; the file says {before}"
                    )
                }
                Err(error) => writeln!(said, "{target}: {error}"),
            },
        };
    }
    match check(&kept) {
        Ok(()) => (kept, said),
        Err(error) => {
            let said = format!(
                "what policy set --keep has changed does not go with the file any more: {error}\n"
            );
            (file, said)
        }
    }
}

/// A line for each setting that `policy set` has changed in `current` and that has another value in
/// `next`, a configuration from a file.
pub fn taken_back(current: &Config, next: &Config) -> String {
    let mut said = String::new();
    for PolicyOverride { assignment, .. } in current.assigned.iter().filter(|one| !one.is_kept) {
        let Some((target, value)) = assignment.split_once('=') else { continue };
        let (target, value) = (target.trim(), value.trim());
        // writing into a string does not fail
        let _ = match one(&mut next.clone(), target, value) {
            Ok((before, now)) => {
                let is = before.unwrap_or_else(|| NOT_SET.to_owned());
                match is == now {
                    true => continue,
                    false => writeln!(
                        said,
                        "{target} is {is} again, as the file says; policy set had made it {now}"
                    ),
                }
            }
            Err(_) => writeln!(said, "{target} is gone; policy set had made it {value}"),
        };
    }
    said
}
fn target_of(assignment: &str) -> &str {
    assignment.split_once('=').map_or(assignment, |(target, _)| target.trim())
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_config::parse;
    use forebay_policy::rule as policy;

    const POLICY: &str = r#"
root = "/site"
[[class]]
name = "gold"
priority = 0
[[class]]
name = "bulk"
priority = 1
share = "90%"
[[rule]]
name = "gold"
client = ["10.0.0.0/8"]
class = "gold"
[[rule]]
name = "costly search"
path = "/search*"
requests = { rate = "60/s", burst = 10 }
[[rule]]
name = "costly"
path = "/a"
stop = true
[[rule]]
path = "/b"
stop = true
"#;

    fn set(assignments: &[&str]) -> Result<(Config, String), String> {
        let config = parse(POLICY, "/etc/forebay.toml").unwrap();
        let assignments: Vec<String> = assignments.iter().map(|&text| text.to_owned()).collect();
        apply(&config, &assignments, false).map_err(|error| error.to_string())
    }

    #[test]
    fn what_the_file_takes_back_is_said() {
        let file = parse(POLICY, "/etc/forebay.toml").unwrap();
        let (config, _) = set(&["gold.delay=20ms", "bulk.share=90%"]).unwrap();
        let (config, _) = apply(&config, &["gold.delay=30ms".to_owned()], false).unwrap();
        let said = taken_back(&config, &file);
        // one line, for the setting that differs from the file
        assert!(said.starts_with("gold.delay is ") && said.contains("30ms"), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert_eq!(taken_back(&file, &file), "");
    }

    #[test]
    fn what_is_kept_holds_while_the_file_says_the_same() {
        let file = |text: &str| parse(text, "/etc/forebay.toml").unwrap();
        let keep_all = |config: &Config, text: &str| keep(&config.assigned, file(text));
        let apply = |config: &Config, assignment: &str, is_kept| {
            apply(config, &[assignment.to_owned()], is_kept).unwrap().0
        };
        let config = apply(&file(POLICY), "costly search.requests.rate=20/s", true);
        let config = apply(&config, "gold.delay=10ms", false);
        let (next, said) = keep_all(&config, POLICY);
        let stays = "costly search.requests.rate stays \"20/s\", as policy set --keep has it; the file says \"60/s\"\n";
        assert_eq!(said, stays);
        assert_eq!(next.assigned.len(), 1);
        let search = |config: &Config| config.policy().unwrap().rules()[1].requests.unwrap().rate;
        assert_eq!(search(&next), search(&config));
        assert!(taken_back(&config, &next).starts_with("gold.delay is "));
        // set once more, and reloaded once more
        let again = apply(&next, "costly search.requests.rate=30/s", true);
        assert_eq!(again.assigned[0].file_value.as_deref(), Some("\"60/s\""));
        let (again, _) = keep_all(&again, POLICY);
        assert_eq!(again.assigned.len(), 1);
        // the file wins once its value has changed
        let changed = POLICY.replace("60/s", "50/s");
        let (next, said) = keep_all(&again, &changed);
        assert_eq!(
            said,
            "costly search.requests.rate is \"50/s\" now, which the file has changed; \
             policy set --keep had made it \"30/s\"\n"
        );
        assert_eq!(next, file(&changed));
        let (next, said) = keep_all(&again, &POLICY.replace("60/s", "30/s"));
        assert!(said.contains("in the file, too, and not kept"), "{said}");
        assert_eq!(next.assigned, []);
        let (next, said) = keep_all(&again, &POLICY.replace("costly search", "search"));
        assert!(said.contains("is gone from the file"), "{said}");
        assert_eq!(next.assigned, []);
        // without --keep, the next reload restores the value of the file
        let config = apply(&again, "costly search.requests.rate=40/s", false);
        assert_eq!(keep_all(&config, POLICY), (file(POLICY), String::new()));
    }

    #[test]
    fn a_rule_is_added_before_all_others_and_goes() {
        let file = parse(POLICY, "/etc/forebay.toml").unwrap();
        let add = |name: &str, assignments: &[&str]| {
            let assignments: Vec<String> =
                assignments.iter().map(|&text| text.to_owned()).collect();
            add_rule(&file, name, &assignments).map_err(|error| error.to_string())
        };
        let (config, said) =
            add("night", &["path=/search*", "requests.rate=5/s", "class = bulk"]).unwrap();
        assert_eq!(said, "the rule \"night\" stands before all others\n");
        let policy = config.policy().unwrap();
        assert_eq!(policy.rules()[0].name, "night");
        // a rule without a name is numbered by its position in the file
        assert!(policy.rules().iter().any(|rule| rule.name == "rule 4"));
        let (changed, _) = apply(&config, &["night.requests.burst=9".to_owned()], false).unwrap();
        assert_eq!(changed.rules[0].requests.burst.0, Some(9));
        assert_eq!(remove_rule(&config, "night").unwrap().0, file);
        let (left, said) = without_added(&config);
        assert_eq!(left, file);
        assert_eq!(said, "the rule \"night\" of policy rule add is gone, as with every reload\n");
        let of_file = remove_rule(&config, "costly search").unwrap_err().to_string();
        assert!(of_file.contains("those of the file are taken out there"), "{of_file}");
        for (name, assignments, expected) in [
            ("costly", &["path=/x", "action=reset"][..], "costly"),
            ("night", &["paht=/x"], "did you mean \"path\"?"),
            ("night", &["path"], "is no assignment"),
            ("night", &["path=/x"], "night"),
            ("night", &["class=golf"], "golf"),
        ] {
            let error = add(name, assignments).unwrap_err();
            assert!(error.contains(expected), "{name} {assignments:?}: {error}");
        }
    }

    #[test]
    fn what_is_set_is_said() {
        let (config, said) = set(&[
            "gold.delay=20ms",
            "gold.client = [\"10.1.0.0/16\", \"::1\"]",
            "costly search.requests.rate=5/s",
            "costly search.requests.over=queue",
            "costly search.in_flight.most=3",
            "rule 4.client=[2001:db8::]/32",
            "agent=on",
        ])
        .unwrap();
        let expected = "\
gold.delay = \"20ms\", was \"50ms\"
gold.client = [\"10.1.0.0/16\", \"::1\"], was \"10.0.0.0/8\"
costly search.requests.rate = \"5/s\", was \"60/s\"
costly search.requests.over = \"queue\", was not set
costly search.in_flight.most = 3, was not set
rule 4.client = \"[2001:db8::]/32\", was not set
agent = \"on\", was \"off\"
";
        assert_eq!(said, expected);
        let policy = config.policy().unwrap();
        assert_eq!(policy.classes()[0].delay_ms, 20);
        assert_eq!(policy.rules()[0].conditions.client.len(), 2);
        assert_eq!(policy.rules()[1].in_flight.map(|limit| limit.most), Some(3));
    }

    #[test]
    fn what_is_set_can_be_removed() {
        let (config, said) =
            set(&["gold.client=none", "costly search.requests=none", "costly search.stop=true"])
                .unwrap();
        let expected = "\
gold.client is not set, was \"10.0.0.0/8\"
costly search.requests is not set, was rate = \"60/s\", burst = 10
costly search.stop = true, was false
";
        assert_eq!(said, expected);
        assert_eq!(config.policy().unwrap().rules()[1].requests, None);
    }

    #[test]
    fn one_assignment_builds_upon_another() {
        let (config, said) = set(&[
            "costly.action=allow",
            " costly.requests.rate = 1/h ",
            "costly.requests.over=queue",
            "costly.requests.deadline=250ms",
            "costly search.requests.over=queue",
            "gold.connections.rate=5/s",
            "gold.share=10%",
            "bulk.share=12.5%",
        ])
        .unwrap();
        assert!(said.contains("costly.requests.rate = \"1/h\", was not set\n"), "{said}");
        let policy = config.policy().unwrap();
        assert_eq!([policy.classes()[0].share, policy.classes()[1].share], [0.1, 0.125]);
        let [gold, search, costly, ..] = policy.rules() else { panic!("{:?}", policy.rules()) };
        let over = |rule: &policy::Rule| rule.requests.unwrap().over;
        assert_eq!(over(costly), policy::Over::Queue { deadline_ms: 250, most: 100 });
        assert_eq!(over(search), policy::Over::Queue { deadline_ms: 1000, most: 100 });
        // settings that a new limit does not state have the same defaults as in a file
        let connections = gold.connections.unwrap();
        assert_eq!((connections.burst, connections.over), (1, policy::Over::Reset));
    }

    #[test]
    fn names_may_have_dots_and_begin_with_another() {
        let named = POLICY.replace("\"costly search\"", "\"costly.eu\"");
        let config = parse(&named, "/etc/forebay.toml").unwrap();
        let set = |assignment: &str| apply(&config, &[assignment.to_owned()], false);
        let (changed, _) = set("costly.eu.requests.burst=7").unwrap();
        assert_eq!(changed.policy().unwrap().rules()[1].requests.unwrap().burst, 7);
        let (changed, _) = set("costly.in_flight.most=7").unwrap();
        assert_eq!(changed.policy().unwrap().rules()[2].in_flight.unwrap().most, 7);
        let wrong = set("costly.eu.requests.brust=7").unwrap_err().to_string();
        let expected = "the rule \"costly.eu\" has no setting \"requests.brust\", did you mean \"requests.burst\"?";
        assert_eq!(wrong, expected);
    }

    #[test]
    fn no_text_panics() {
        for target in ["", ".", "gold", "gold.", "gold..", ".share", "costly", "costly.", "agent."]
        {
            for value in ["", "none", "%", ".%", "[", "[\"\"]", "1", "-1", "ä", "="] {
                let _ = set(&[&format!("{target}={value}")]);
            }
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (assignments, expected) in [
            (
                &["gold"][..],
                "\"gold\" is no assignment: NAME.KEY=VALUE is expected, such as gold.delay=20ms",
            ),
            (&[], "\"\" is no assignment: NAME.KEY=VALUE is expected, such as gold.delay=20ms"),
            (
                &["golt.delay=1s"],
                "\"golt.delay\" begins with the name of no class or rule, did you mean \"gold\"?",
            ),
            (
                &["gold.dealy=1s"],
                "the class \"gold\" has no setting \"dealy\", did you mean \"delay\"?",
            ),
            (
                &["costly.rate=1/s"],
                "the rule \"costly\" has no setting \"rate\", did you mean \"connections.rate\"?",
            ),
            (
                &["gold.delay=none"],
                "gold.delay: expected a duration such as \"10s\" (units: ms, s, m, h, d), found \"none\"",
            ),
            (
                &["costly.requests=5/s"],
                "costly.requests has settings of its own: set costly.requests.rate=5/s, or \
                 costly.requests=none",
            ),
            (
                &["costly.in_flight=8"],
                "costly.in_flight has settings of its own: set costly.in_flight.most=8, or \
                 costly.in_flight=none",
            ),
            (
                &["costly.in_flight=eight"],
                "costly.in_flight has settings of its own: set costly.in_flight.most=20, or \
                 costly.in_flight=none",
            ),
            (
                &["costly search.requests=none"],
                "the rule \"costly search\" would say nothing: to keep it, set \
                 \"costly search.action=allow\" too",
            ),
            (&["gold.name=silver"], "the class \"gold\" has no setting \"name\""),
            (
                &["gold.delay=1"],
                "gold.delay: expected a duration such as \"10s\" (units: ms, s, m, h, d), found \
                 \"1\", did you mean \"1s\"?",
            ),
            (&["gold.delay=2h"], "gold.delay: 2h is out of range, from 1ms to 1m is allowed"),
            (
                &["gold.share=20%"],
                "class \"bulk\": share: the shares up to this one are 110%, more than 100%",
            ),
            (
                &["bulk.priority=0"],
                "class \"bulk\": priority: the priority 0 is taken by the class \"gold\"",
            ),
            (&["gold.client=[]"], "gold.client: the list is empty, at least one item is needed"),
            (
                &["gold.class=silver"],
                "rule \"gold\": class: there is no class \"silver\", only \"gold\", \"bulk\"",
            ),
            (
                &["costly.requests.burst=5"],
                "rule \"costly\": requests.rate: missing, set it, for example rate = \"60/s\"",
            ),
            (
                &["costly search.connections.rate=5/s"],
                "rule \"costly search\": connections: cannot stand beside path: connections are counted before a \
                 request is read, by client and local only",
            ),
            (
                &["costly search.requests.most=5"],
                "rule \"costly search\": requests.most: means nothing without over = \"queue\"",
            ),
            (
                &["costly search.requests.burst=0"],
                "costly search.requests.burst: 0 is out of range, from 1 to 1000000 is allowed",
            ),
            (
                &["costly search.in_flight.most=3", "costly search.in_flight.queue=5"],
                "rule \"costly search\": in_flight.queue: means nothing without over = \"queue\"",
            ),
            (
                &["rule 4.requests.burst=5"],
                "rule \"rule 4\": requests.rate: missing, set it, for example rate = \"60/s\"",
            ),
            (&["agent=yes"], "agent: expected \"on\" or \"off\", found \"yes\""),
        ] {
            assert_eq!(set(assignments).unwrap_err(), expected, "{assignments:?}");
        }
    }
}
