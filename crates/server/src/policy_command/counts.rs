//! The counts of each class, which `forebay policy watch` asks for repeatedly, and the
//! rates since the last time.

use forebay_handler::policy::InForce;
use forebay_metrics::{RefusedAt, Totals};
use forebay_sys::clock;
use serde_json::{Map, Value, json};
use std::fmt;

/// The counts of all classes at one time, by rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountsReport {
    /// The time of the counts, in nanoseconds of a monotonic clock.
    pub at_ns: u64,
    /// The level of overload, in words.
    pub load: String,
    /// The classes, by rank.
    pub classes: Vec<OfClass>,
}

/// The counts of one class since the server started, and its present state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OfClass {
    /// The name of the class.
    pub name: String,
    /// The number of requests.
    pub offered: u64,
    /// The number of refused requests.
    pub refused: u64,
    /// The number of refused connections.
    pub refused_connections: u64,
    /// How often work waited for a worker.
    pub waits: u64,
    /// The nanoseconds of all these waits together.
    pub delay_ns: u64,
    /// The number of requests that are being processed or wait for it.
    pub unfinished: u64,
    /// The limit of `unfinished`; 0 for no limit.
    pub most: u64,
}

impl CountsReport {
    /// The counts of this moment.
    pub fn now(in_force: &InForce, totals: &Totals) -> CountsReport {
        let InForce { policy, windows, slots, .. } = in_force;
        let classes = policy.classes().iter().zip(windows).zip(slots.iter());
        let classes = classes.map(|((class, window), slot)| {
            let of_class = totals.class(*slot);
            OfClass {
                name: class.name.clone(),
                offered: of_class.offered,
                refused: of_class.refused_at(RefusedAt::Request),
                refused_connections: of_class.refused_at(RefusedAt::Accept),
                waits: of_class.waits(),
                delay_ns: of_class.delay_ns,
                unfinished: window.counts().unfinished.into(),
                most: window.most().unwrap_or(0).into(),
            }
        });
        let (at_ns, classes) = (clock::monotonic_ns(), classes.collect());
        CountsReport { at_ns, load: in_force.level_in_words(), classes }
    }

    /// Reads a report from the text in which it is shown.
    pub fn parse(text: &str) -> Option<CountsReport> {
        let mut lines = text.lines();
        let (at_ns, load) = lines.next()?.split_once(' ')?;
        let classes: Option<Vec<OfClass>> = lines.map(OfClass::parse).collect();
        Some(CountsReport { at_ns: at_ns.parse().ok()?, load: load.to_owned(), classes: classes? })
    }

    /// The rates since `before`, for each class. A class that is not in `before` has counted from 0.
    pub fn since(&self, before: &CountsReport) -> Vec<ClassRates> {
        let seconds = self.at_ns.saturating_sub(before.at_ns).max(1) as f64 / 1e9;
        let line = |now: &OfClass| {
            let old = before.classes.iter().find(|old| old.name == now.name);
            let old = old.cloned().unwrap_or_default();
            let per_s = |now: u64, old: u64| now.saturating_sub(old) as f64 / seconds;
            let waits = now.waits.saturating_sub(old.waits);
            let delay_ns = now.delay_ns.saturating_sub(old.delay_ns);
            let (offered, refused) =
                (per_s(now.offered, old.offered), per_s(now.refused, old.refused));
            ClassRates {
                class: now.name.clone(),
                offered,
                admitted: (offered - refused).max(0.0),
                refused,
                refused_connections: per_s(now.refused_connections, old.refused_connections),
                delay_ms: delay_ns as f64 / 1e6 / waits.max(1) as f64,
                unfinished: now.unfinished,
                most: now.most,
                load: self.load.clone(),
            }
        };
        self.classes.iter().map(line).collect()
    }
}

/// The counts as one line of JSON, for programs; with the counts of at most a thousand rules in use.
pub fn stats(in_force: &InForce, totals: &Totals) -> String {
    let CountsReport { at_ns, load, classes } = CountsReport::now(in_force, totals);
    let class = |class: &OfClass| {
        let OfClass { name, offered, refused, refused_connections, waits, delay_ns, .. } = class;
        let members = json!({
            "offered": offered,
            "refused": refused,
            "refused_connections": refused_connections,
            "waits": waits,
            "delay_ns": delay_ns,
            "unfinished": class.unfinished,
            "most": (class.most > 0).then_some(class.most),
        });
        (name.clone(), members)
    };
    let classes: Map<String, Value> = classes.iter().map(class).collect();
    let state = &in_force.state;
    let rules = (0..).zip(in_force.policy.rules());
    let rules = rules.filter(|(number, _)| state.matched(*number) > 0).take(MOST_RULES);
    let rules: Map<String, Value> = rules
        .map(|(number, rule)| {
            let (matched, refused) = (state.matched(number), state.refused(number));
            (rule.name.clone(), json!({ "matched": matched, "refused": refused }))
        })
        .collect();
    let level = in_force.level().0 as u8;
    let stats =
        json!({ "at_ns": at_ns, "level": level, "load": load, "classes": classes, "rules": rules });
    json!({ "event": "stats", "stats": stats }).to_string()
}

/// The largest number of rules in statistics.
const MOST_RULES: usize = 1000;

impl fmt::Display for CountsReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} {}", self.at_ns, self.load)?;
        self.classes.iter().try_for_each(|class| {
            write!(f, "{}", class.name)?;
            class.numbers().iter().try_for_each(|number| write!(f, " {number}"))?;
            writeln!(f)
        })
    }
}

impl OfClass {
    fn numbers(&self) -> [u64; 7] {
        let OfClass { offered, refused, refused_connections, waits, delay_ns, .. } = *self;
        [offered, refused, refused_connections, waits, delay_ns, self.unfinished, self.most]
    }

    fn parse(line: &str) -> Option<OfClass> {
        let (name, numbers) = line.split_once(' ')?;
        let numbers: Vec<u64> = numbers.split(' ').flat_map(str::parse).collect();
        let [offered, refused, refused_connections, waits, delay_ns, unfinished, most] =
            <[u64; 7]>::try_from(numbers).ok()?;
        let name = name.to_owned();
        Some(OfClass {
            name,
            offered,
            refused,
            refused_connections,
            waits,
            delay_ns,
            unfinished,
            most,
        })
    }
}

/// The rates of a class over some time, per second.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassRates {
    /// The name of the class.
    pub class: String,
    /// Requests per second.
    pub offered: f64,
    /// Admitted requests per second.
    pub admitted: f64,
    /// Refused requests per second.
    pub refused: f64,
    /// Refused connections per second.
    pub refused_connections: f64,
    /// The average time that work waited for a worker, in milliseconds.
    pub delay_ms: f64,
    /// The number of requests that are being processed or wait for it, at the end.
    pub unfinished: u64,
    /// The limit of `unfinished`; 0 for no limit.
    pub most: u64,
    /// The level of overload at the end.
    pub load: String,
}

impl ClassRates {
    /// The names of the columns, as wide as those of a line.
    pub const HEADER: &'static str = "class            offered/s  admitted/s  refused/s  conns refused/s  delay ms  unfinished   most  load";
}

impl fmt::Display for ClassRates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let most = if self.most == 0 { "-".to_owned() } else { self.most.to_string() };
        write!(
            f,
            "{:<16} {:>9.0}  {:>10.0}  {:>9.0}  {:>15.0}  {:>8.2}  {:>10}  {most:>5}  {}",
            self.class,
            self.offered,
            self.admitted,
            self.refused,
            self.refused_connections,
            self.delay_ms,
            self.unfinished,
            self.load
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(at_ns: u64, offered: u64, refused: u64, waits: u64, delay_ns: u64) -> CountsReport {
        let gold = OfClass { name: "gold".to_owned(), offered, refused, ..OfClass::default() };
        let gold = OfClass { waits, delay_ns, unfinished: 3, most: 12, ..gold };
        CountsReport { at_ns, load: "overload".to_owned(), classes: vec![gold] }
    }

    #[test]
    fn what_is_shown_is_read_back() {
        let counts = counts(7, 100, 20, 3, 1_000_000);
        assert_eq!(CountsReport::parse(&counts.to_string()), Some(counts));
        for text in ["", "7", "x normal", "7 normal\ngold 1 2\n", "7 normal\ngold 1 2 3 4 5 6 x\n"]
        {
            assert_eq!(CountsReport::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_line_is_what_happened_per_second() {
        let (old, now) =
            (counts(0, 100, 20, 0, 0), counts(2_000_000_000, 500, 120, 100, 450_000_000));
        let lines = now.since(&old);
        let shown = lines[0].to_string();
        let expected = "gold                   200         150         50                0      4.50           3     12  overload";
        assert_eq!(shown, expected);
        assert_eq!(ClassRates::HEADER.find("load"), expected.find("overload"));
        // a new class
        let none = CountsReport { classes: Vec::new(), ..old };
        assert_eq!(now.since(&none)[0].offered, 250.0);
    }
}
