//! Rules into tables for the kernel.
//!
//! Only rules that ask for addresses count for a SYN. A client's address is looked up by its longest
//! prefix among all networks that rules name; there stands a list of the ways in which a rule can still
//! match, in the order of the rules, those of all surrounding networks among them. So one look-up and a
//! short list decide, however many rules there are. What a list's beginning decides for certain is cut
//! off behind it.

use crate::types::{
    DO_ALLOW, DO_DROP, DO_RESET, DO_USER, Entry, LONGEST, List, MARK_OVERLOAD, MARK_STOP,
    SAYS_ACTION, SAYS_LIMIT, Says,
};
use crate::{Family, GateError};
use forebay_policy::Policy;
use forebay_policy::endpoint::{Addresses, Endpoint};
use forebay_policy::rule::{Limit, Rule, When};
use forebay_policy::syn::{self, NeedsMore, Refusing};

/// Entries of all lists together: 48 bytes each.
const MOST_ENTRIES: usize = 1 << 20;

/// A network of clients, and the part of the entries for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Leaf {
    /// In IPv6's form.
    pub(crate) first: u128,
    /// Of 128 bits.
    pub(crate) len: u8,
    pub(crate) list: List,
}

/// Tables that are ready to be put in force.
#[derive(Clone, Debug, Default)]
pub struct Tables {
    pub(crate) clients4: Vec<Leaf>,
    pub(crate) clients6: Vec<Leaf>,
    pub(crate) entries: Vec<Entry>,
    pub(crate) rules: Vec<Says>,
    /// Whether a rule has clients ignored.
    pub(crate) ignores: bool,
    /// By the number of the rule: the slot of the bucket that the kernel charges.
    pub(crate) slots: Box<[Option<u32>]>,
}

impl Tables {
    /// Whether the kernel charges any rule.
    pub fn charge(&self) -> bool {
        self.slots.iter().any(Option::is_some)
    }

    /// The slot of the bucket that the kernel charges for this rule, if it does.
    pub fn slot(&self, rule: u32) -> Option<u32> {
        self.slots.get(rule as usize).copied().flatten()
    }
}

/// A way in which a rule matches.
#[derive(Clone, Copy, Debug)]
struct Way {
    first: u128,
    len: u8,
    entry: Entry,
}

/// Makes tables of a policy. `slot` gives rules a place for bucket and counts, by name.
///
/// # Errors
/// [`GateError::TooMany`].
pub(crate) fn lower(
    policy: &Policy,
    mut slot: impl FnMut(&str) -> Option<u32>,
) -> Result<Tables, GateError> {
    let rules: Vec<Says> = policy.rules().iter().map(|rule| says(rule, &mut slot)).collect();
    let limited = |(says, rule): (&Says, &Rule)| {
        let is_charged = says.says & SAYS_LIMIT != 0 && says.over != DO_USER;
        (is_charged && rule.is_for_connections()).then_some(says.slot)
    };
    let slots = rules.iter().zip(policy.rules()).map(limited).collect();
    let mut tables = Tables { rules, slots, ..Tables::default() };
    tables.ignores = policy.rules().iter().any(|rule| {
        let limits = [&rule.connections, &rule.requests].into_iter().flatten();
        limits.into_iter().any(|limit| limit.ignore_ms.is_some())
    });
    tables.clients4 = tables.lists(policy, Family::V4)?;
    tables.clients6 = tables.lists(policy, Family::V6)?;
    Ok(tables)
}

fn says(rule: &Rule, slot: &mut impl FnMut(&str) -> Option<u32>) -> Says {
    let mut says = Says { slot: u32::MAX, ..Says::default() };
    if !rule.is_for_connections() {
        return says;
    }
    if rule.stop {
        says.marks |= MARK_STOP;
    }
    if rule.when == When::Overload {
        says.marks |= MARK_OVERLOAD;
    }
    let mut needs_slot = false;
    if rule.action.is_some() {
        says.says |= SAYS_ACTION;
        says.action = match syn::acts(rule) {
            Ok(None) => DO_ALLOW,
            Ok(Some(refusing)) => {
                needs_slot = true;
                doing(refusing)
            }
            Err(NeedsMore) => DO_USER,
        };
    }
    if let Some(limit) = &rule.connections {
        says.says |= SAYS_LIMIT;
        says.over = DO_USER;
        if let Ok((terms, refusing)) = syn::limits(limit) {
            needs_slot = true;
            says.over = doing(refusing);
            (says.interval_ns, says.tolerance_ns) = (terms.interval_ns, terms.tolerance_ns);
            says.ignore_ns = ignore_ns(limit);
        }
    }
    if needs_slot {
        match slot(&rule.name) {
            Some(slot) => says.slot = slot,
            // without a word it cannot be charged; an action is only not counted
            None if says.says & SAYS_LIMIT != 0 => says.over = DO_USER,
            None => {}
        }
    }
    says
}

fn ignore_ns(limit: &Limit) -> u64 {
    u64::from(limit.ignore_ms.unwrap_or(0)) * 1_000_000
}

fn doing(refusing: Refusing) -> u8 {
    match refusing {
        Refusing::Drop => DO_DROP,
        Refusing::Reset => DO_RESET,
    }
}

fn mask(len: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0)
}

/// The network of an endpoint, as far as a family has any of it.
fn network(endpoint: Option<&Endpoint>, family: Family) -> Option<(u128, u8)> {
    match endpoint.map_or(Addresses::Any, Endpoint::addresses) {
        Addresses::Any => Some(family.all()),
        Addresses::Unix => None,
        Addresses::Network { first, len, is_v4 } => {
            (is_v4 == (family == Family::V4)).then_some((first.to_bits(), len))
        }
    }
}

/// The alternatives of a condition: without any, everything.
fn alternatives(endpoints: &[Endpoint]) -> Vec<Option<&Endpoint>> {
    match endpoints {
        [] => vec![None],
        some => some.iter().map(Some).collect(),
    }
}

impl Tables {
    /// Adds the lists of a family to the entries.
    fn lists(&mut self, policy: &Policy, family: Family) -> Result<Vec<Leaf>, GateError> {
        let mut ways = self.ways(policy, family);
        // a network stands before those inside it
        ways.sort_by_key(|way| (way.first, way.len, way.entry.rule));
        let all = family.all();
        let mut leaves = Vec::new();
        // the networks around the next one, each with all its ways, those around it among them
        let mut around: Vec<((u128, u8), Vec<Entry>)> = vec![(all, Vec::new())];
        let mut groups =
            ways.chunk_by(|one, other| (one.first, one.len) == (other.first, other.len));
        let mut next = groups.next();
        if next.is_none_or(|group| (group[0].first, group[0].len) != all) {
            leaves.push(self.leaf(all, &[])?);
        }
        while let Some(group) = next {
            let (first, len) = (group[0].first, group[0].len);
            while around
                .last()
                .is_some_and(|((outer, outer_len), _)| first & mask(*outer_len) != *outer)
            {
                around.pop();
            }
            let outer = around.last().map(|(_, entries)| &entries[..]).unwrap_or_default();
            let own = group.iter().map(|way| way.entry);
            let mut entries: Vec<Entry> = outer.iter().copied().chain(own).collect();
            entries.sort_by_key(|entry| entry.rule);
            entries.dedup();
            self.cut(&mut entries);
            leaves.push(self.leaf((first, len), &entries)?);
            around.push(((first, len), entries));
            next = groups.next();
        }
        Ok(leaves)
    }

    fn leaf(&mut self, (first, len): (u128, u8), entries: &[Entry]) -> Result<Leaf, GateError> {
        if entries.len() > LONGEST || self.entries.len() + entries.len() > MOST_ENTRIES {
            return Err(GateError::TooMany);
        }
        let list = List { first: self.entries.len() as u32, count: entries.len() as u32 };
        self.entries.extend(entries);
        Ok(Leaf { first, len, list })
    }

    /// Takes off what can change nothing for any client of the network.
    fn cut(&self, entries: &mut Vec<Entry>) {
        let mut decided = 0;
        let mut ended = false;
        entries.retain(|entry| {
            let rule = &self.rules[entry.rule as usize];
            if ended || (rule.says & !decided == 0 && rule.marks & MARK_STOP == 0) {
                return false;
            }
            let is_certain = entry.mask_hi == 0
                && entry.mask_lo == 0
                && (entry.client_first, entry.client_last) == (0, u16::MAX)
                && (entry.local_first, entry.local_last) == (0, u16::MAX)
                && rule.marks & MARK_OVERLOAD == 0;
            if is_certain {
                decided |= rule.says;
                ended = rule.marks & MARK_STOP != 0 || decided == SAYS_ACTION | SAYS_LIMIT;
            }
            true
        });
    }

    /// All ways in which rules match addresses of a family.
    fn ways(&self, policy: &Policy, family: Family) -> Vec<Way> {
        let mut ways = Vec::new();
        let (all, all_len) = family.all();
        for (number, (rule, says)) in (0..).zip(policy.rules().iter().zip(&self.rules)) {
            if !rule.is_for_connections() || (says.says == 0 && says.marks & MARK_STOP == 0) {
                continue;
            }
            for client in alternatives(&rule.conditions.client) {
                let Some((first, len)) = network(client, family) else { continue };
                for local in alternatives(&rule.conditions.local) {
                    let Some((ours, ours_len)) = network(local, family) else { continue };
                    // what holds for the whole family needs no look at the address
                    let bits = if (ours, ours_len) == (all, all_len) { 0 } else { mask(ours_len) };
                    let ours = ours & bits;
                    let ports = |of: Option<&Endpoint>| of.and_then(Endpoint::ports);
                    let (client_first, client_last) = ports(client).unwrap_or((0, u16::MAX));
                    let (local_first, local_last) = ports(local).unwrap_or((0, u16::MAX));
                    let entry = Entry {
                        local_hi: (ours >> 64) as u64,
                        local_lo: ours as u64,
                        mask_hi: (bits >> 64) as u64,
                        mask_lo: bits as u64,
                        client_first,
                        client_last,
                        local_first,
                        local_last,
                        rule: number,
                        unused: 0,
                    };
                    ways.push(Way { first, len, entry });
                }
            }
        }
        ways
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_policy::rate::Rate;
    use forebay_policy::rule::{Action, Conditions, Over};

    fn rule(name: &str, clients: &[&str]) -> Rule {
        let client = clients.iter().map(|text| Endpoint::parse(text).unwrap()).collect();
        let conditions = Conditions { client, ..Conditions::default() };
        Rule { name: name.to_owned(), conditions, ..Rule::default() }
    }

    fn limited(rule: Rule) -> Rule {
        let limit = Limit { over: Over::Drop, ..Limit::new(Rate::per_second(10), 1) };
        Rule { connections: Some(limit), ..rule }
    }

    fn tables(rules: Vec<Rule>) -> Tables {
        let mut slots = 0..;
        lower(&Policy::new(&[], rules).unwrap(), |_| slots.next()).unwrap()
    }

    /// The numbers of the rules in the list of each network.
    fn lists(tables: &Tables, leaves: &[Leaf]) -> Vec<(u8, Vec<u32>)> {
        let list = |leaf: &Leaf| {
            let List { first, count } = leaf.list;
            let part = &tables.entries[first as usize..(first + count) as usize];
            (leaf.len, part.iter().map(|entry| entry.rule).collect())
        };
        leaves.iter().map(list).collect()
    }

    #[test]
    fn inner_networks_know_the_rules_of_outer_ones() {
        let tables = tables(vec![
            limited(rule("host", &["10.1.1.1"])),
            Rule { action: Some(Action::Drop), ..rule("foes", &["10.0.0.0/8", "fd00::/8"]) },
            limited(rule("all", &[])),
            limited(rule("never", &["10.1.0.0/16"])),
        ]);
        let expected = [(96, vec![2]), (104, vec![1, 2]), (112, vec![1, 2]), (128, vec![0, 1])];
        assert_eq!(lists(&tables, &tables.clients4), expected);
        assert_eq!(lists(&tables, &tables.clients6), [(0, vec![2]), (8, vec![1, 2])]);
    }

    #[test]
    fn what_stands_behind_stop_is_cut_off() {
        let tables = tables(vec![
            Rule { stop: true, action: Some(Action::Allow), ..rule("ours", &["10.0.0.0/8"]) },
            limited(rule("all", &["*:1024-65535", "unix"])),
            limited(rule("rest", &[])),
        ]);
        assert_eq!(lists(&tables, &tables.clients4), [(96, vec![1, 2]), (104, vec![0])]);
        assert_eq!(tables.slot(2), Some(1));
        assert_eq!(tables.slot(0), None);
    }

    #[test]
    fn ten_thousand_addresses_are_short_lists() {
        let addresses: Vec<String> =
            (0..10_000).map(|n| format!("10.0.{}.{}", n / 256, n % 256)).collect();
        let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
        let tables = tables(vec![
            Rule { action: Some(Action::Drop), ..rule("listed", &addresses) },
            limited(rule("all", &[])),
        ]);
        assert_eq!(tables.clients4.len(), 10_001);
        assert!(tables.clients4.iter().all(|leaf| leaf.list.count <= 2));
    }

    #[test]
    fn too_many_are_said_to_be_too_many() {
        let rules = (0..=LONGEST).map(|n| Rule {
            conditions: Conditions {
                local: vec![Endpoint::parse(&format!("*:{}", n + 1)).unwrap()],
                ..Conditions::default()
            },
            ..limited(rule(&n.to_string(), &[]))
        });
        let policy = Policy::new(&[], rules.collect()).unwrap();
        assert!(matches!(lower(&policy, |_| Some(0)), Err(GateError::TooMany)));
    }
}
