//! `forebay policy history`: the agent's decisions of the last minute, each with its consequences.

use crate::policy_command::text_table::TextTable;
use forebay_control::agent::history::{ClassRecord, Record, RuleRecord};
use forebay_handler::policy::InForce;
use forebay_policy::Policy;
use std::fmt::Display;

const COLUMNS: [&str; 15] = [
    "ago s",
    "lasted ms",
    "level",
    "load %",
    "class",
    "most jobs",
    "most conns/s",
    "most reqs/s",
    "offered",
    "refused",
    "done",
    "longest wait ms",
    "unfinished",
    "conns",
    "refused conns",
];

/// Records as lines for people, the oldest first; `now_ns` is the end of the last record. A time in
/// which no request needed a worker is one line.
pub fn history(in_force: &InForce, records: &[Record], now_ns: u64) -> String {
    if records.is_empty() {
        return "the agent is off, and no rule counts in overload only\n".to_owned();
    }
    let mut table = TextTable::new(&COLUMNS);
    // the begin and the length of a quiet time
    let mut silence: Option<(u64, u64)> = None;
    for record in records {
        if record.classes.iter().all(is_quiet) && record.rules.iter().all(is_untouched) {
            silence.get_or_insert((record.at_ns, 0)).1 += record.lasted_ns;
            continue;
        }
        quiet(&mut table, silence.take(), now_ns);
        let names = in_force.policy.classes().iter().map(|class| class.name.as_str());
        let names = names.chain(std::iter::repeat("-"));
        for (name, class) in names.zip(&record.classes).filter(|(_, class)| !is_quiet(class)) {
            add(&mut table, record, name, class, now_ns);
        }
        for (name, rule) in names_of(&in_force.policy).zip(&record.rules) {
            if !is_untouched(rule) {
                add_rule(&mut table, record, name, rule, now_ns);
            }
        }
    }
    quiet(&mut table, silence, now_ns);
    table.to_string()
}

fn is_quiet(class: &ClassRecord) -> bool {
    let ClassRecord { offered, finished, unfinished, connections_refused, .. } = *class;
    offered == 0 && finished == 0 && unfinished == 0 && connections_refused == 0
}

/// The rules whose rates the agent may change, in the order in which it gets them.
fn names_of(policy: &Policy) -> impl Iterator<Item = &str> {
    policy.rules().iter().filter(|rule| rule.bounds.is_some()).map(|rule| rule.name.as_str())
}

fn is_untouched(rule: &RuleRecord) -> bool {
    rule.matched == 0
}

fn quiet(table: &mut TextTable, silence: Option<(u64, u64)>, now_ns: u64) {
    let Some((at_ns, lasted_ns)) = silence.filter(|(_, lasted_ns)| *lasted_ns > 0) else { return };
    let mut row = [&"" as &dyn Display; COLUMNS.len()];
    let (ago, lasted_ms) = (ago_s(at_ns, now_ns), lasted_ns / 1_000_000);
    (row[0], row[1], row[2]) = (&ago, &lasted_ms, &"nothing to do");
    table.row(&row);
}

/// The time since `at_ns`, in seconds.
fn ago_s(at_ns: u64, now_ns: u64) -> String {
    format!("{:.1}", now_ns.saturating_sub(at_ns) as f64 / 1e9)
}

fn add(table: &mut TextTable, record: &Record, name: &str, class: &ClassRecord, now_ns: u64) {
    let or_dash = |number: Option<String>| number.unwrap_or_else(|| "-".to_owned());
    table.row(&[
        &ago_s(record.at_ns, now_ns),
        &(record.lasted_ns / 1_000_000),
        &level(record),
        &format_args!("{:.0}", record.load * 100.0),
        &name,
        &or_dash(class.most.map(|most| most.to_string())),
        &or_dash(class.connections_per_s.map(|rate| format!("{rate:.0}"))),
        &"-",
        &class.offered,
        &class.refused,
        &class.finished,
        &format_args!("{:.1}", class.delay_ns as f64 / 1e6),
        &class.unfinished,
        &class.connections,
        &class.connections_refused,
    ]);
}

fn level(record: &Record) -> String {
    let name = record.level.name();
    match record.level.is_overload() {
        true => format!("{name} ({})", record.cause.name()),
        false => name.to_owned(),
    }
}

fn add_rule(table: &mut TextTable, record: &Record, name: &str, rule: &RuleRecord, now_ns: u64) {
    let name = format!("rule {name:?}");
    let (ago, lasted_ms) = (ago_s(record.at_ns, now_ns), record.lasted_ns / 1_000_000);
    let (level, load) = (level(record), format!("{:.0}", record.load * 100.0));
    let (rate, done) = (format!("{:.1}", rule.per_s), rule.matched.saturating_sub(rule.refused));
    let mut row = [&"-" as &dyn Display; COLUMNS.len()];
    let said: [&dyn Display; 5] = [&ago, &lasted_ms, &level, &load, &name];
    row[..5].copy_from_slice(&said);
    (row[7], row[8], row[9], row[10]) = (&rate, &rule.matched, &rule.refused, &done);
    table.row(&row);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{MachineResources, Plan};
    use forebay_config::Config;
    use forebay_control::level::{Cause, Level};

    #[test]
    fn decisions_stand_beside_what_followed() {
        let machine =
            MachineResources { cores: 2, memory_bytes: 1 << 30, descriptors: 1024, threads: 1000 };
        let plan = Plan::new(&Config::default(), &machine).unwrap();
        let in_force = InForce::new(plan.policy_settings(), None);
        let none = Record { at_ns: 7_800_000_000, lasted_ns: 100_000_000, ..Record::default() };
        let busy = ClassRecord {
            most: Some(4),
            offered: 30,
            refused: 20,
            finished: 9,
            delay_ns: 21_500_000,
            unfinished: 4,
            ..ClassRecord::default()
        };
        let some = Record {
            at_ns: 8_000_000_000,
            level: Level::ClassOrder,
            cause: Cause::Load,
            load: 3.04,
            classes: vec![busy],
            ..none.clone()
        };
        let last = Record { at_ns: 8_100_000_000, ..none.clone() };
        let text = history(&in_force, &[none.clone(), none, some, last], 10_000_000_000);
        assert!(text.lines().all(|line| line == line.trim_end()), "{text}");
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split("  ").collect()).collect();
        let cells = |row: &[&str]| {
            let cells = row.iter().map(|cell| cell.trim().to_owned());
            cells.filter(|cell| !cell.is_empty()).collect::<Vec<_>>()
        };
        assert_eq!(cells(&rows[0]), COLUMNS);
        assert_eq!(cells(&rows[1]), ["2.2", "200", "nothing to do"]);
        let expected = [
            "2.0",
            "100",
            "class_order (load)",
            "304",
            "default",
            "4",
            "-",
            "-",
            "30",
            "20",
            "9",
            "21.5",
        ];
        assert_eq!(cells(&rows[2])[..12], expected);
        assert_eq!(cells(&rows[3]), ["1.9", "100", "nothing to do"]);
        assert_eq!(
            history(&in_force, &[], 0),
            "the agent is off, and no rule counts in overload only\n"
        );
    }
}
