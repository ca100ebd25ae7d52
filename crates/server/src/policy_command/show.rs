//! `forebay policy show`: the classes and rules in force, and what has become of them.

use crate::config::{Config, Switch};
use crate::policy::InForce;
use forebay_metrics::{Place, Reason, Totals};
use forebay_policy::ClientsReport;
use forebay_policy::rule::{Conditions, Rule, When};
use forebay_sys::clock;
use std::fmt::{self, Display, Write};

/// What is in force, in lines for people.
pub fn show(in_force: &InForce, config: &Config, totals: &Totals) -> String {
    let mut text = String::new();
    // writing into a string does not fail
    let _ = write(in_force, config, totals, &mut text);
    text
}

fn write(in_force: &InForce, config: &Config, totals: &Totals, f: &mut String) -> fmt::Result {
    let agent = if config.agent == Switch::On { "on" } else { "off" };
    writeln!(f, "agent {agent}, load {}\n", in_force.level_in_words())?;
    let mut table = Table::new(&[
        "class",
        "priority",
        "share",
        "delay",
        "unfinished",
        "most",
        "offered",
        "answered",
        "cut",
        "refused",
        "in flight",
    ]);
    let policy = &in_force.policy;
    let by_rank = || policy.classes().iter().zip(&in_force.windows).zip(in_force.slots.iter());
    for ((class, window), slot) in by_rank() {
        let of_class = totals.class(*slot);
        table.row(&[
            &class.name,
            &class.priority,
            &format_args!("{}%", (class.share * 10_000.0).round() / 100.0),
            &format_args!("{} ms", class.delay_ms),
            &window.counts().unfinished,
            &window.most().map_or("-".to_owned(), |most| most.to_string()),
            &of_class.offered,
            &of_class.answered,
            &of_class.cut,
            &of_class.refused_at(Place::Request),
            &of_class.in_flight(),
        ]);
    }
    write!(f, "{table}")?;
    let default = policy.classes().get(usize::from(policy.default_rank()));
    writeln!(f, "what no rule classifies is {}", default.map_or("", |class| &class.name))?;
    let mut table = Table::new(&["refused", "at", "because of", "how many"]);
    for ((class, _), slot) in by_rank() {
        let refused = &totals.class(*slot).refused;
        for (place, of_place) in Place::ALL.iter().zip(refused) {
            for (reason, count) in Reason::ALL.iter().zip(of_place).filter(|(_, count)| **count > 0)
            {
                table.row(&[&class.name, &place.as_str(), &reason.as_str(), count]);
            }
        }
    }
    if !table.is_empty() {
        write!(f, "\n{table}")?;
    }
    let now_ns = clock::monotonic_ns();
    for (number, rule) in (0..).zip(policy.rules()) {
        let state = &in_force.state;
        let left = |left: Option<u32>| left.map(|left| format!("; {left} left now"));
        let shown = Shown {
            rule,
            connections: left(state.connections_left(number, now_ns)).unwrap_or_default(),
            requests: left(state.requests_left(number, now_ns)).unwrap_or_default(),
            in_flight: match state.in_flight(number) {
                Some(count) => format!("; {count} now"),
                None => String::new(),
            },
        };
        write!(f, "\n{shown}")?;
    }
    let clients = in_force.state.clients();
    if clients != ClientsReport::default() {
        let ClientsReport { in_flight, evicted, uncounted } = clients;
        writeln!(f, "\nlimits of clients: {in_flight} requests under way, {evicted} forgotten")?;
        writeln!(f, "for want of room, {uncounted} not counted")?;
    }
    Ok(())
}

/// A rule in the words of a configuration, and how much of its limits is used.
struct Shown<'r> {
    rule: &'r Rule,
    connections: String,
    requests: String,
    in_flight: String,
}

impl Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Rule { name, when, stop, conditions, class, connections, requests, in_flight, action } =
            self.rule;
        writeln!(f, "rule {name:?}")?;
        let Conditions { client, local, site, method, path, file_type, header, cookie } =
            conditions;
        alternatives(f, "client", client)?;
        alternatives(f, "local", local)?;
        alternatives(f, "site", site)?;
        alternatives(f, "method", method)?;
        alternatives(f, "path", path)?;
        alternatives(f, "file_type", file_type)?;
        alternatives(f, "header", header)?;
        alternatives(f, "cookie", cookie)?;
        if *when == When::Overload {
            line(f, "when", &when.as_str())?;
        }
        if *stop {
            line(f, "stop", stop)?;
        }
        let settings: [(_, Option<&dyn Display>); 5] = [
            ("class", class.as_ref().map(|class| class as _)),
            ("action", action.as_ref().map(|action| action as _)),
            ("connections", connections.as_ref().map(|limit| limit as _)),
            ("requests", requests.as_ref().map(|limit| limit as _)),
            ("in_flight", in_flight.as_ref().map(|limit| limit as _)),
        ];
        let used = ["", "", &self.connections, &self.requests, &self.in_flight];
        for ((key, said), used) in settings.into_iter().zip(used) {
            said.map_or(Ok(()), |said| line(f, key, &format_args!("{said}{used}")))?;
        }
        Ok(())
    }
}

fn alternatives<T: Display>(f: &mut fmt::Formatter<'_>, key: &str, items: &[T]) -> fmt::Result {
    let texts: Vec<String> = items.iter().map(T::to_string).collect();
    if texts.is_empty() { Ok(()) } else { line(f, key, &texts.join(" or ")) }
}

fn line(f: &mut fmt::Formatter<'_>, key: &str, said: &dyn Display) -> fmt::Result {
    writeln!(f, "  {key:<11} {said}")
}

/// Columns as wide as what is in them; the first is flush left, numbers are flush right.
pub(super) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(super) fn new(names: &[&str]) -> Table {
        Table { rows: vec![names.iter().map(ToString::to_string).collect()] }
    }

    pub(super) fn row(&mut self, cells: &[&dyn Display]) {
        self.rows.push(cells.iter().map(ToString::to_string).collect());
    }

    fn is_empty(&self) -> bool {
        self.rows.len() < 2
    }
}

impl Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |column: usize| self.rows.iter().map(|row| row[column].chars().count()).max();
        let widths: Vec<usize> = (0..self.rows[0].len()).flat_map(width).collect();
        for row in &self.rows {
            let mut cells = row.iter().zip(&widths);
            if let Some((first, width)) = cells.next() {
                write!(f, "{first:<width$}")?;
            }
            cells.try_for_each(|(cell, width)| write!(f, "  {cell:>width$}"))?;
            writeln!(f)?;
        }
        Ok(())
    }
}
