//! `forebay policy show`: the classes and rules in force, and what has become of them.

use crate::config::{Config, Switch};
use crate::policy::InForce;
use forebay_metrics::{Place, Reason, Totals};
use forebay_policy::rule::{Conditions, Rule, When};
use forebay_policy::{ClientsReport, Glob, State};
use forebay_sys::clock;
use std::fmt::{self, Display, Write};

/// Which rules are shown. There may be ten thousand.
#[derive(Clone, Debug)]
pub enum Which {
    /// Those that limit something, and those that have decided something so far.
    InUse,
    /// Those whose names fit, each star standing for any run of characters.
    Named(String),
    /// Every one.
    All,
}

/// As a server is asked for it, after `policy show`.
impl Display for Which {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Which::InUse => Ok(()),
            Which::Named(name) => write!(f, " named {name}"),
            Which::All => f.write_str(" all"),
        }
    }
}

impl Which {
    /// Reads what follows `policy show `.
    pub fn parse(text: &str) -> Option<Which> {
        match text.split_once(' ') {
            None if text.is_empty() => Some(Which::InUse),
            None if text == "all" => Some(Which::All),
            Some(("named", name)) => Some(Which::Named(name.to_owned())),
            _ => None,
        }
    }
}

/// What is in force, in lines for people.
pub fn show(in_force: &InForce, config: &Config, totals: &Totals, which: &Which) -> String {
    let mut text = String::new();
    // writing into a string does not fail
    let _ = write(in_force, config, totals, &mut text);
    let _ = write_rules(&in_force.state, which, &mut text);
    let _ = write_clients(&in_force.state, &mut text);
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
    if table.is_empty() { Ok(()) } else { write!(f, "\n{table}") }
}

fn write_rules(state: &State, which: &Which, f: &mut String) -> fmt::Result {
    let rules = state.policy().rules();
    let glob = match which {
        Which::Named(name) => Glob::new(name.as_bytes()),
        Which::InUse | Which::All => Glob::new(b"*"),
    };
    let is_shown = |number: u32, rule: &Rule| match which {
        Which::InUse => limits(rule) || state.has_decided(number),
        Which::Named(_) | Which::All => glob.matches(rule.name.as_bytes()),
    };
    let now_ns = clock::monotonic_ns();
    let mut hidden = 0;
    for (number, rule) in (0..).zip(rules) {
        if is_shown(number, rule) {
            write!(f, "\n{}", Shown::new(rule, number, state, now_ns))?;
        } else {
            hidden += 1;
        }
    }
    match which {
        Which::InUse if hidden > 0 => {
            writeln!(f, "\nrules that limit nothing and have decided nothing: {hidden} (--all)")
        }
        Which::Named(name) if hidden == rules.len() => {
            writeln!(f, "\nno rule is called {name:?}, of {hidden}")
        }
        _ => Ok(()),
    }
}

fn limits(rule: &Rule) -> bool {
    rule.connections.is_some() || rule.requests.is_some() || rule.in_flight.is_some()
}

fn write_clients(state: &State, f: &mut String) -> fmt::Result {
    let clients = state.clients();
    if clients != ClientsReport::default() {
        let ClientsReport { in_flight, evicted, uncounted } = clients;
        writeln!(f, "\nlimits of clients: {in_flight} requests under way, {evicted} forgotten")?;
        writeln!(f, "for want of room, {uncounted} not counted")?;
    }
    Ok(())
}

/// A rule in the words of a configuration, how much of its limits is used, and what has come of it.
struct Shown<'r> {
    rule: &'r Rule,
    connections: String,
    requests: String,
    in_flight: String,
    so_far: String,
}

impl<'r> Shown<'r> {
    fn new(rule: &'r Rule, number: u32, state: &State, now_ns: u64) -> Shown<'r> {
        let left = |left: Option<u32>| left.map(|left| format!("; {left} left now"));
        let in_flight = state.in_flight(number).map(|count| format!("; {count} now"));
        Shown {
            rule,
            connections: left(state.connections_left(number, now_ns)).unwrap_or_default(),
            requests: left(state.requests_left(number, now_ns)).unwrap_or_default(),
            in_flight: in_flight.unwrap_or_default(),
            so_far: match state.refused(number) {
                0 if limits(rule) || state.has_decided(number) => String::new(),
                0 => "has decided nothing".to_owned(),
                refused => format!("{refused} refused"),
            },
        }
    }
}

impl Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Rule { name, when, stop, conditions, class, connections, requests, in_flight, action } =
            self.rule;
        writeln!(f, "rule {name:?}")?;
        let Conditions {
            client,
            local,
            site,
            method,
            path,
            file_type,
            certificate,
            header,
            cookie,
        } = conditions;
        alternatives(f, "client", client)?;
        alternatives(f, "local", local)?;
        alternatives(f, "site", site)?;
        alternatives(f, "method", method)?;
        alternatives(f, "path", path)?;
        alternatives(f, "file_type", file_type)?;
        alternatives(f, "certificate", certificate)?;
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
        for ((key, said), used) in settings.iter().zip(used) {
            said.map_or(Ok(()), |said| line(f, key, &format_args!("{said}{used}")))?;
        }
        // a rule that only stops is in nobody's way, and nobody counts it
        let decides = settings.iter().any(|(_, said)| said.is_some());
        if decides && !self.so_far.is_empty() { line(f, "so far", &self.so_far) } else { Ok(()) }
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
            let mut line = String::new();
            if let Some((first, width)) = cells.next() {
                write!(line, "{first:<width$}")?;
            }
            cells.try_for_each(|(cell, width)| write!(line, "  {cell:>width$}"))?;
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}
