//! `forebay policy show`: the classes and rules in force, with their counts.

use super::text_table::TextTable;
use super::{CommandContext, ConnectionBounds};
use crate::firewall::Firewall;
use forebay_config::{AutoCount, Config, Switch};
use forebay_handler::policy::InForce;
use forebay_handler::policy::at_once::PlaceCounts;
use forebay_metrics::{FirewallFigures, RefusalReason, RefusedAt, Totals, Unanswered};
use forebay_policy::condition::Conditions;
use forebay_policy::rule::{Rule, When};
use forebay_policy::{ClientsReport, Glob, MostRefused, State};
use forebay_sys::clock;
use std::fmt::{self, Display, Write};

/// The number of clients shown for a rule: those that it has refused most.
const TOP_CLIENTS: usize = 5;

/// A choice of rules; there may be ten thousand.
#[derive(Clone, Debug)]
pub enum Which {
    /// Rules that limit something or have decided something so far.
    InUse,
    /// Rules whose names match this pattern, in which a star stands for any characters.
    Named(String),
    /// All rules.
    All,
}

/// The choice as it is sent to a server, after `policy show`.
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
    /// Reads the arguments of `policy show `.
    pub fn parse(text: &str) -> Option<Which> {
        match text.split_once(' ') {
            None if text.is_empty() => Some(Which::InUse),
            None if text == "all" => Some(Which::All),
            Some(("named", name)) => Some(Which::Named(name.to_owned())),
            _ => None,
        }
    }
}

/// The policy in force, in lines for people.
pub fn show(known: &CommandContext<'_>, which: &Which) -> String {
    let CommandContext { config, in_force, totals, bounds, firewall, .. } = known;
    let mut text = String::new();
    // writing into a string does not fail
    let _ = write(in_force, config, totals, &mut text);
    let _ = write_limits(bounds, config, &mut text);
    let _ = write_rules(in_force, which, &mut text);
    let _ = write_clients(&in_force.state, &mut text);
    let _ = write_firewall(*firewall, &mut text);
    text
}

fn write(in_force: &InForce, config: &Config, totals: &Totals, f: &mut String) -> fmt::Result {
    let agent = if config.agent == Switch::On { "on" } else { "off" };
    writeln!(f, "agent {agent}, load {}\n", in_force.level_in_words())?;
    let mut table = TextTable::new(&[
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
            &of_class.refused_at(RefusedAt::Request),
            &of_class.in_flight(),
        ]);
    }
    write!(f, "{table}")?;
    let default = policy.classes().get(usize::from(policy.default_rank()));
    writeln!(f, "what no rule classifies is {}", default.map_or("", |class| &class.name))?;
    let mut table = TextTable::new(&["refused", "at", "because of", "how many"]);
    for ((class, _), slot) in by_rank() {
        let refused = &totals.class(*slot).refused;
        for (place, of_place) in RefusedAt::ALL.iter().zip(refused) {
            for (reason, count) in
                RefusalReason::ALL.iter().zip(of_place).filter(|(_, count)| **count > 0)
            {
                table.row(&[&class.name, &place.as_str(), &reason.as_str(), count]);
            }
        }
    }
    if !table.is_empty() {
        write!(f, "\n{table}")?;
    }
    let mut table = TextTable::new(&["not answered by applications", "status", "how many"]);
    for ((class, _), slot) in by_rank() {
        let unanswered = Unanswered::ALL.iter().zip(totals.class(*slot).unanswered);
        for (what, count) in unanswered.filter(|(_, count)| *count > 0) {
            table.row(&[&class.name, &what.as_str(), &count]);
        }
    }
    if table.is_empty() { Ok(()) } else { write!(f, "\n{table}") }
}

/// The values of `[limits]`, with the computed number for `auto`.
fn write_limits(bounds: &ConnectionBounds, config: &Config, f: &mut String) -> fmt::Result {
    let limits = &config.limits;
    let auto = |count: AutoCount| if count == AutoCount::Auto { ", by auto" } else { "" };
    let or_none = |count: u64| if count == 0 { "no limit".to_owned() } else { count.to_string() };
    let ConnectionBounds { open, connections, connections_per_client } = bounds;
    writeln!(f, "\nconnections {open}, at most {connections}{}", auto(limits.connections))?;
    let of_each = auto(limits.connections_per_client);
    writeln!(f, "of one client at most {connections_per_client}{of_each}")?;
    let (requests, streams) = (limits.requests_per_connection, limits.streams);
    writeln!(f, "requests per connection: {}, at once {}", or_none(requests), streams.max(1))
}

fn write_rules(in_force: &InForce, which: &Which, f: &mut String) -> fmt::Result {
    let state = &in_force.state;
    let rules = state.policy().rules();
    let glob = match which {
        Which::Named(name) => Glob::new(name.as_bytes()),
        Which::InUse | Which::All => Glob::new(b"*"),
    };
    let is_shown = |number: u32, rule: &Rule| match which {
        Which::InUse => limits(rule) || state.matched(number) > 0,
        Which::Named(_) | Which::All => glob.matches(rule.name.as_bytes()),
    };
    let now_ns = clock::monotonic_ns();
    let mut hidden = 0;
    for (number, rule) in (0..).zip(rules) {
        if is_shown(number, rule) {
            write!(f, "\n{}", ShownRule::new(rule, number, in_force, now_ns))?;
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

/// The clients that the machine's firewall drops.
fn write_firewall(firewall: Option<&Firewall>, f: &mut String) -> fmt::Result {
    let Some(firewall) = firewall else { return Ok(()) };
    let FirewallFigures {
        table,
        is_in_force,
        clients,
        most,
        listed,
        told: _,
        left_full,
        left_busy,
        dropped_clients,
        dropped_listed,
    } = firewall.figures();
    let state = if is_in_force { "in force" } else { "not in force: the server alone refuses" };
    writeln!(
        f,
        "\nfirewall: table inet {table} {state}; {clients} clients of at most {most}, {listed}"
    )?;
    writeln!(
        f,
        "ranges of addresses; SYNs dropped: {dropped_clients} of clients, {dropped_listed} of ranges;"
    )?;
    writeln!(f, "clients left to the server: {left_full} for want of room, {left_busy} in a rush")
}

/// A rule in the words of a configuration, with the use of its limits, and its counts.
struct ShownRule<'r> {
    rule: &'r Rule,
    connections: String,
    requests: String,
    in_flight: String,
    so_far: String,
    most_refused: String,
}

impl<'r> ShownRule<'r> {
    fn new(rule: &'r Rule, number: u32, in_force: &InForce, now_ns: u64) -> ShownRule<'r> {
        let state = &in_force.state;
        let at_once = in_force.at_once.get(number as usize).and_then(Option::as_ref);
        let left = |left: Option<u32>| left.map(|left| format!("; {left} left now"));
        let in_flight = match (at_once.map(|at_once| at_once.counts()), state.in_flight(number)) {
            (Some(PlaceCounts { taken, waiting }), _) => format!("; {taken} now, {waiting} wait"),
            (None, Some(count)) => format!("; {count} now"),
            (None, None) => String::new(),
        };
        ShownRule {
            rule,
            connections: left(state.connections_left(number, now_ns)).unwrap_or_default(),
            requests: match (state.rate(number), left(state.requests_left(number, now_ns))) {
                (Some(rate), Some(left)) => format!("; {rate:.1}/s now{left}"),
                (_, left) => left.unwrap_or_default(),
            },
            in_flight,
            so_far: match (state.matched(number), state.refused(number)) {
                (0, 0) => "has decided nothing".to_owned(),
                (matched, 0) => format!("{matched} matched"),
                (matched, refused) => format!("{matched} matched, {refused} refused"),
            },
            most_refused: most_refused(state, number),
        }
    }
}

impl Display for ShownRule<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // taken apart without `..`, so that a new field of a rule cannot be forgotten here
        let Rule {
            name,
            when,
            stop,
            conditions,
            class,
            connections,
            requests,
            bounds,
            in_flight,
            requests_per_connection,
            action,
            metric: _,
        } = self.rule;
        writeln!(f, "rule {name:?}")?;
        let Conditions {
            client,
            local,
            site,
            method,
            path,
            query,
            file_type,
            certificate,
            identity,
            header,
            cookie,
            ignore_case,
        } = conditions;
        alternatives(f, "client", client)?;
        alternatives(f, "local", local)?;
        alternatives(f, "site", site)?;
        alternatives(f, "method", method)?;
        alternatives(f, "path", path)?;
        alternatives(f, "query", query)?;
        alternatives(f, "file_type", file_type)?;
        alternatives(f, "certificate", certificate)?;
        alternatives(f, "identity", identity)?;
        alternatives(f, "header", header)?;
        alternatives(f, "cookie", cookie)?;
        if *ignore_case {
            line(f, "ignore_case", ignore_case)?;
        }
        if *when != When::Always {
            line(f, "when", &when.as_str())?;
        }
        if *stop {
            line(f, "stop", stop)?;
        }
        let settings: [(_, Option<&dyn Display>); 6] = [
            ("class", class.as_ref().map(|class| class as _)),
            ("action", action.as_ref().map(|action| action as _)),
            ("connections", connections.as_ref().map(|limit| limit as _)),
            ("requests", requests.as_ref().map(|limit| limit as _)),
            ("in_flight", in_flight.as_ref().map(|limit| limit as _)),
            ("requests_per_connection", requests_per_connection.as_ref().map(|most| most as _)),
        ];
        let used = ["", "", &self.connections, &self.requests, &self.in_flight, ""];
        for ((key, said), used) in settings.iter().zip(used) {
            said.map_or(Ok(()), |said| line(f, key, &format_args!("{said}{used}")))?;
            if let Some(bounds) = bounds.filter(|_| *key == "requests") {
                line(f, "moved", &bounds)?;
            }
        }
        // a rule that only stops the search decides nothing about clients, and is not counted
        let decides = settings.iter().any(|(_, said)| said.is_some());
        if decides {
            line(f, "so far", &self.so_far)?;
        }
        match &*self.most_refused {
            "" => Ok(()),
            clients => line(f, "refused", &clients),
        }
    }
}

/// The clients that were refused most, and how often: a number, or its bounds.
fn most_refused(state: &State, rule: u32) -> String {
    let clients = state.most_refused(rule).into_iter().take(TOP_CLIENTS);
    let said = |MostRefused { client, least, most }: MostRefused| match least == most {
        true => format!("{client} ({least} times)"),
        false => format!("{client} (between {least} and {most} times)"),
    };
    let clients: Vec<_> = clients.map(said).collect();
    if clients.is_empty() { String::new() } else { format!("most often: {}", clients.join(", ")) }
}

fn alternatives<T: Display>(f: &mut fmt::Formatter<'_>, key: &str, items: &[T]) -> fmt::Result {
    let texts: Vec<String> = items.iter().map(T::to_string).collect();
    if texts.is_empty() { Ok(()) } else { line(f, key, &texts.join(" or ")) }
}

fn line(f: &mut fmt::Formatter<'_>, key: &str, said: &dyn Display) -> fmt::Result {
    writeln!(f, "  {key:<11} {said}")
}
