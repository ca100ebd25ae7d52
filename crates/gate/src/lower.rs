//! Turns rules into tables for the kernel.
//!
//! Only rules that ask for addresses count for a SYN. A client's address is looked up by its longest
//! prefix among all networks that rules name. There is a list of the ways in which a rule can still
//! match, in the order of the rules, including those of all surrounding networks. So one lookup and a
//! short list decide, however many rules there are. A list ends where its entries have decided everything
//! for certain.

use crate::Family;
use crate::error::GateError;
use crate::types::{
    DEGREE_SHIFT, DO_ALLOW, DO_USER, LONGEST, MARK_DEGREE, MARK_STOP, RawEntry, RawList,
    SAYS_ACTION, SAYS_LIMIT, Says,
};
use forebay_http::cidr::{self, mask};
use forebay_policy::JudgePhase;
use forebay_policy::Policy;
use forebay_policy::bucket::BucketTerms;
use forebay_policy::endpoint::{Addresses, Endpoint};
use forebay_policy::first;
use forebay_policy::rule::{Limit, Rule};
use places::Refuses;
pub(crate) use places::{GateScope, PlacesOfRules};
use url::UrlTables;

mod places;
pub(crate) mod url;

/// The most entries of all lists together, 48 bytes each.
const MOST_ENTRIES: usize = 1 << 20;

/// A network of clients, and the range of the entries for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Leaf {
    /// The first address, in IPv6's form.
    pub(crate) first: u128,
    /// The length of the prefix, of 128 bits.
    pub(crate) len: u8,
    pub(crate) list: RawList,
}

/// The lists of rules, by the networks of clients.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lists {
    pub(crate) clients4: Vec<Leaf>,
    pub(crate) clients6: Vec<Leaf>,
    pub(crate) entries: Vec<RawEntry>,
}

/// Tables that are ready to be put in force.
#[derive(Clone, Debug, Default)]
pub struct Tables {
    /// The lists for SYNs.
    pub(crate) syn: Lists,
    pub(crate) rules: Vec<Says>,
    /// The tables for first requests.
    pub(crate) url: UrlTables,
    /// Whether a rule has clients ignored.
    pub(crate) ignores: bool,
    /// The slot of the bucket that the kernel charges for connections, by the number of the rule.
    pub(crate) slots: Box<[Option<u32>]>,
    /// The slot of the bucket that the kernel charges for requests, by the number of the rule.
    pub(crate) request_slots: Box<[Option<u32>]>,
    /// Whether first requests are judged.
    pub(crate) judges: bool,
    /// The slot of each class, by rank.
    pub(crate) class_slots: Box<[Option<u32>]>,
}

impl Tables {
    /// Whether the kernel charges any rule.
    pub fn charge(&self) -> bool {
        self.slots.iter().any(Option::is_some)
    }

    /// The slot of this rule's bucket for connections, if the kernel charges it.
    pub fn slot(&self, rule: u32) -> Option<u32> {
        self.slots.get(rule as usize).copied().flatten()
    }

    /// Whether the kernel charges first requests to any rule.
    pub fn charge_requests(&self) -> bool {
        self.request_slots.iter().any(Option::is_some)
    }

    /// The rule whose bucket for requests has this slot.
    pub fn rule_of_requests(&self, slot: u32) -> Option<u32> {
        let at = self.request_slots.iter().position(|one| *one == Some(slot))?;
        u32::try_from(at).ok()
    }
}

/// One way in which a rule matches clients of a network.
#[derive(Clone, Copy, Debug)]
struct MatchPrefix {
    first: u128,
    len: u8,
    entry: RawEntry,
}

/// Turns a policy into tables for what is in `scope`.
///
/// # Errors
/// [`GateError::TooMany`].
pub(crate) fn lower(
    policy: &Policy,
    scope: GateScope,
    mut places: PlacesOfRules<'_>,
) -> Result<Tables, GateError> {
    let judges = scope.judges();
    let rules = policy.rules().iter().map(|rule| says(rule, judges, &mut places));
    let rules: Vec<Says> = rules.collect();
    let limited = |(says, rule): (&Says, &Rule)| {
        (is_charged(says) && rule.is_for_connections()).then_some(says.slot)
    };
    let slots = rules.iter().zip(policy.rules()).map(limited).collect();
    let mut tables = Tables { rules, slots, ..Tables::default() };
    tables.ignores = policy.rules().iter().any(|rule| {
        let limits = [&rule.connections, &rule.requests].into_iter().flatten();
        limits.into_iter().any(|limit| limit.ignore_ms.is_some())
    });
    let counts = |number: usize, rule: &Rule| {
        let says = &tables.rules[number];
        rule.is_for_connections() && (says.says != 0 || says.marks & MARK_STOP != 0)
    };
    let is_any_counted = || policy.rules().iter().enumerate().any(|(n, rule)| counts(n, rule));
    let has_spared = policy.spared().blocks().next().is_some();
    let spares = has_spared && (judges || tables.ignores || is_any_counted());
    // spared clients are left to the server whatever rules say, by one more rule that is tried before all
    // others
    let spared = if spares { Some(tables.rules.len() as u32) } else { None };
    let rules = &tables.rules;
    let decided = |rule: u32| rules.get(rule as usize).copied().unwrap_or(LEFT);
    tables.syn = Lists::new(policy, counts, spared, |entries| cut(decided, entries))?;
    if spares {
        tables.rules.push(LEFT);
    }
    if scope != GateScope::Connections {
        tables.url = url::lower(policy, scope, &mut places)?;
    }
    if judges {
        let rules = tables.url.rules.iter().take(policy.rules().len());
        tables.request_slots = rules.map(url::charged_slot).collect();
        tables.judges = tables.url.ranks > 0;
    }
    Ok(tables)
}

/// The rule that leaves a SYN to the server.
const LEFT: Says = Says {
    interval_ns: 0,
    tolerance_ns: 0,
    ignore_ns: 0,
    slot: u32::MAX,
    says: SAYS_ACTION | SAYS_LIMIT,
    marks: 0,
    action: DO_USER,
    over: DO_USER,
    action_page: 0,
    over_page: 0,
    unused: 0,
};

/// The part of a rule about connections. Where first requests are judged, the kernel sends the errors with
/// which the rule refuses connections.
fn says(rule: &Rule, judges: bool, places: &mut PlacesOfRules<'_>) -> Says {
    let mut says = Says { slot: u32::MAX, ..Says::default() };
    if !rule.is_for_connections() {
        return says;
    }
    if rule.stop {
        says.marks |= MARK_STOP;
    }
    says.marks |= rule.when.from(JudgePhase::Connection).number() << DEGREE_SHIFT & MARK_DEGREE;
    let mut needs_slot = false;
    if rule.action.is_some() {
        says.says |= SAYS_ACTION;
        if let Some(answer) = first::acts(rule) {
            let refuses = places.refuses(Ok(answer), judges);
            (says.action, says.action_page) = (refuses.does, refuses.page);
            needs_slot = refuses != Refuses::LEFT;
        }
    }
    if let Some(limit) = &rule.connections {
        says.says |= SAYS_LIMIT;
        says.over = DO_ALLOW;
        if let Some(answer) = first::connections(rule) {
            let refuses = places.refuses(answer, judges);
            (says.over, says.over_page) = (refuses.does, refuses.page);
            needs_slot |= refuses != Refuses::LEFT;
            let terms = BucketTerms::of(limit);
            (says.interval_ns, says.tolerance_ns) = (terms.interval_ns, terms.tolerance_ns);
            says.ignore_ns = ignore_ns(limit);
        }
    }
    if needs_slot {
        match places.slot(&rule.name) {
            Some(slot) => says.slot = slot,
            // without a slot a limit cannot be charged, and is left to user space; an action only has no
            // counts
            None if is_charged(&says) => says.over = DO_USER,
            None => {}
        }
    }
    says
}

/// Whether the kernel charges the rule's bucket. An unlimited rate has none.
fn is_charged(says: &Says) -> bool {
    says.says & SAYS_LIMIT != 0 && says.over != DO_USER && says.over != DO_ALLOW
}

fn ignore_ns(limit: &Limit) -> u64 {
    u64::from(limit.ignore_ms.unwrap_or(0)) * 1_000_000
}

fn is_of(is_v4: bool, family: Family) -> bool {
    is_v4 == (family == Family::V4)
}

/// The networks of an endpoint in this family; without an endpoint, all addresses.
fn networks(endpoint: Option<&Endpoint>, family: Family) -> Vec<(u128, u8)> {
    let is_ours = |is_v4| is_of(is_v4, family);
    match endpoint.map_or(Addresses::Any, Endpoint::addresses) {
        Addresses::Any => vec![family.all()],
        Addresses::Network { first, len, is_v4 } if is_ours(is_v4) => vec![(first.to_bits(), len)],
        Addresses::Range { first, last, is_v4 } if is_ours(is_v4) => {
            cidr::prefixes_between(first.to_bits(), last.to_bits())
        }
        Addresses::Nowhere
        | Addresses::Unix
        | Addresses::Network { .. }
        | Addresses::Range { .. } => Vec::new(),
    }
}

/// The alternatives of a condition; `None`, which stands for every address, if it has none.
fn alternatives(endpoints: &[Endpoint]) -> Vec<Option<&Endpoint>> {
    match endpoints {
        [] => vec![None],
        some => some.iter().map(Some).collect(),
    }
}

/// An entry with which a rule matches everything.
fn everything(rule: u32) -> RawEntry {
    let (client_last, local_last) = (u16::MAX, u16::MAX);
    RawEntry { client_last, local_last, rule, ..RawEntry::default() }
}

impl Lists {
    /// Makes the lists of the rules of `policy` that count. The rule with the number `spared` comes first, in
    /// the lists of the clients that the policy spares. `cut` removes entries that a list does not need.
    pub(crate) fn new(
        policy: &Policy,
        counts: impl Fn(usize, &Rule) -> bool,
        spared: Option<u32>,
        cut: impl Fn(&mut Vec<RawEntry>),
    ) -> Result<Lists, GateError> {
        let mut lists = Lists::default();
        let ways = |family| {
            let mut ways = ways(policy, family, &counts);
            let blocks = policy.spared().blocks().filter(|one| is_of(one.is_ipv4(), family));
            ways.extend(spared.into_iter().zip([blocks]).flat_map(|(rule, blocks)| {
                blocks.map(move |block| MatchPrefix {
                    first: block.bits(),
                    len: block.whole_len(),
                    entry: everything(rule),
                })
            }));
            ways
        };
        // the rule that spares has the last number, but is tried first
        let cut = |entries: &mut Vec<RawEntry>| {
            entries.sort_by_key(|entry| (Some(entry.rule) != spared, entry.rule));
            cut(entries);
        };
        lists.clients4 = lists.of_family(ways(Family::V4), Family::V4, &cut)?;
        lists.clients6 = lists.of_family(ways(Family::V6), Family::V6, &cut)?;
        Ok(lists)
    }

    /// Adds the lists of rules that are numbered from `first` on, for IPv4 and for IPv6 clients. Each list
    /// ends with the rule `last`, which matches everything. `cut` removes entries that a list does not need.
    pub(crate) fn add_with_last(
        &mut self,
        policy: &Policy,
        counts: impl Fn(usize, &Rule) -> bool,
        (first, last): (u32, u32),
        cut: impl Fn(&mut Vec<RawEntry>),
    ) -> Result<[Vec<Leaf>; 2], GateError> {
        let mut of = |family: Family| {
            let mut ways = ways(policy, family, &counts);
            ways.iter_mut().for_each(|way| way.entry.rule += first);
            let (first, len) = family.all();
            ways.push(MatchPrefix { first, len, entry: everything(last) });
            self.of_family(ways, family, &cut)
        };
        Ok([of(Family::V4)?, of(Family::V6)?])
    }

    /// Adds the lists of a family to the entries.
    fn of_family(
        &mut self,
        mut ways: Vec<MatchPrefix>,
        family: Family,
        cut: &impl Fn(&mut Vec<RawEntry>),
    ) -> Result<Vec<Leaf>, GateError> {
        // in this order a network comes before those inside it
        ways.sort_by_key(|way| (way.first, way.len, way.entry.rule));
        let all = family.all();
        let mut leaves = Vec::new();
        // the stack of networks that contain the next one, each with its own entries and those of the
        // networks around it
        let mut around: Vec<((u128, u8), Vec<RawEntry>)> = vec![(all, Vec::new())];
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
            let mut entries: Vec<RawEntry> = outer.iter().copied().chain(own).collect();
            entries.sort_by_key(|entry| entry.rule);
            entries.dedup();
            cut(&mut entries);
            leaves.push(self.leaf((first, len), &entries)?);
            around.push(((first, len), entries));
            next = groups.next();
        }
        Ok(leaves)
    }

    fn leaf(&mut self, (first, len): (u128, u8), entries: &[RawEntry]) -> Result<Leaf, GateError> {
        Ok(Leaf { first, len, list: self.list(entries)? })
    }

    /// Adds one list to the entries.
    fn list(&mut self, entries: &[RawEntry]) -> Result<RawList, GateError> {
        if entries.len() > LONGEST || self.entries.len() + entries.len() > MOST_ENTRIES {
            return Err(GateError::TooMany);
        }
        let list = RawList { first: self.entries.len() as u32, count: entries.len() as u32 };
        self.entries.extend(entries);
        Ok(list)
    }
}

/// Removes the entries that cannot change the decision for any client of the network.
fn cut(says: impl Fn(u32) -> Says, entries: &mut Vec<RawEntry>) {
    let mut decided = 0;
    let mut ended = false;
    entries.retain(|entry| {
        let rule = says(entry.rule);
        if ended || (rule.says & !decided == 0 && rule.marks & MARK_STOP == 0) {
            return false;
        }
        let is_certain = entry.mask_hi == 0
            && entry.mask_lo == 0
            && (entry.client_first, entry.client_last) == (0, u16::MAX)
            && (entry.local_first, entry.local_last) == (0, u16::MAX)
            && rule.marks & MARK_DEGREE == 0;
        if is_certain {
            decided |= rule.says;
            ended = rule.marks & MARK_STOP != 0 || decided == SAYS_ACTION | SAYS_LIMIT;
        }
        true
    });
}

/// All ways in which rules match addresses of a family.
fn ways(
    policy: &Policy,
    family: Family,
    counts: &impl Fn(usize, &Rule) -> bool,
) -> Vec<MatchPrefix> {
    let mut ways = Vec::new();
    let (all, all_len) = family.all();
    for (number, rule) in policy.rules().iter().enumerate() {
        if !counts(number, rule) {
            continue;
        }
        for client in alternatives(&rule.conditions.client) {
            let clients = networks(client, family);
            for local in alternatives(&rule.conditions.local) {
                for (ours, ours_len) in networks(local, family) {
                    // for the whole family no bit of the address has to be compared
                    let bits = if (ours, ours_len) == (all, all_len) { 0 } else { mask(ours_len) };
                    let ours = ours & bits;
                    let ports = |of: Option<&Endpoint>| of.and_then(Endpoint::ports);
                    let (client_first, client_last) = ports(client).unwrap_or((0, u16::MAX));
                    let (local_first, local_last) = ports(local).unwrap_or((0, u16::MAX));
                    let entry = RawEntry {
                        local_hi: (ours >> 64) as u64,
                        local_lo: ours as u64,
                        mask_hi: (bits >> 64) as u64,
                        mask_lo: bits as u64,
                        client_first,
                        client_last,
                        local_first,
                        local_last,
                        rule: number as u32,
                        unused: 0,
                    };
                    ways.extend(clients.iter().map(|&(first, len)| MatchPrefix {
                        first,
                        len,
                        entry,
                    }));
                }
            }
        }
    }
    ways
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_http::cidr::CidrBlock;
    use forebay_policy::condition::Conditions;
    use forebay_policy::rate::Rate;
    use forebay_policy::rule::{Action, Degree, Over, When};
    use forebay_policy::spared::{SparedAs, SparedClients};

    fn rule(name: &str, clients: &[&str]) -> Rule {
        let client = clients.iter().map(|text| Endpoint::parse(text).unwrap()).collect();
        let conditions = Conditions { client, ..Conditions::default() };
        Rule { name: name.to_owned(), conditions, ..Rule::default() }
    }

    fn limited(rule: Rule) -> Rule {
        let limit = Limit { over: Over::Drop, ..Limit::new(Rate::per_second(10), 1) };
        Rule { connections: Some(limit), ..rule }
    }

    fn by_slot(
        policy: &Policy,
        mut slot: impl FnMut(&str) -> Option<u32>,
    ) -> Result<Tables, GateError> {
        let mut page = |_, _| None;
        lower(policy, GateScope::Connections, PlacesOfRules::new(&mut slot, &mut page))
    }

    fn tables(rules: Vec<Rule>) -> Tables {
        let mut slots = 0..;
        by_slot(&Policy::new(&[], rules).unwrap(), |_| slots.next()).unwrap()
    }

    /// The numbers of the rules in the list of each network.
    fn lists(tables: &Tables, leaves: &[Leaf]) -> Vec<(u8, Vec<u32>)> {
        let list = |leaf: &Leaf| {
            let RawList { first, count } = leaf.list;
            let part = &tables.syn.entries[first as usize..(first + count) as usize];
            (leaf.len, part.iter().map(|entry| entry.rule).collect())
        };
        leaves.iter().map(list).collect()
    }

    #[test]
    fn who_is_spared_is_left_to_the_server_before_every_rule() {
        let mut spared = SparedClients::default();
        for block in ["10.1.1.1", "2001:db8::7"] {
            spared.add(CidrBlock::parse(block).unwrap(), SparedAs::TrustedProxy);
        }
        let rules = vec![
            limited(rule("host", &["10.1.1.1"])),
            limited(rule("net", &["10.1.0.0/16"])),
            limited(rule("all", &[])),
        ];
        let mut slots = 0..;
        let policy = Policy::new(&[], rules).unwrap().sparing(spared.clone());
        let tables = by_slot(&policy, |_| slots.next()).unwrap();
        assert_eq!(
            lists(&tables, &tables.syn.clients4),
            [(96, vec![2]), (112, vec![1]), (128, vec![3])]
        );
        assert_eq!(lists(&tables, &tables.syn.clients6), [(0, vec![2]), (128, vec![3])]);
        assert_eq!(tables.rules[3], LEFT);
        // the fourth entry is not a rule of the policy: no bucket is charged for it
        assert_eq!((tables.slots.len(), tables.slot(3)), (3, None));
        // where the kernel refuses no client, no list of spared clients is needed
        let few = Rule { requests_per_connection: Some(5), ..rule("few", &[]) };
        let policy = Policy::new(&[], vec![few]).unwrap().sparing(spared);
        let tables = by_slot(&policy, |_| None).unwrap();
        assert_eq!((tables.rules.len(), tables.syn.clients4.len()), (1, 1));
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
        assert_eq!(lists(&tables, &tables.syn.clients4), expected);
        assert_eq!(lists(&tables, &tables.syn.clients6), [(0, vec![2]), (8, vec![1, 2])]);
    }

    #[test]
    fn ranges_are_networks() {
        let tables = tables(vec![limited(rule("few", &["10.0.0.5-10.0.0.6", "::1-::2"]))]);
        assert_eq!(
            lists(&tables, &tables.syn.clients4),
            [(96, vec![]), (128, vec![0]), (128, vec![0])]
        );
        assert_eq!(
            lists(&tables, &tables.syn.clients6),
            [(0, vec![]), (128, vec![0]), (128, vec![0])]
        );
    }

    #[test]
    fn rules_count_from_their_degree_on() {
        let of = |when| {
            let rule = Rule { when, ..limited(rule("one", &[])) };
            tables(vec![rule]).rules[0].marks >> DEGREE_SHIFT
        };
        assert_eq!(of(When::Always), 0);
        assert_eq!(of(When::Overload), 3);
        assert_eq!(of(When::From(Degree::HEADER_CONTROL)), 1);
        assert_eq!(of(When::From(Degree::CLASS_ORDER)), 2);
    }

    #[test]
    fn an_unlimited_rate_is_not_charged() {
        let limit = Limit { over: Over::Drop, ..Limit::new(Rate::UNLIMITED, 1) };
        let free = Rule { connections: Some(limit), ..rule("free", &["10.0.0.0/8"]) };
        let tables = tables(vec![free, limited(rule("all", &[]))]);
        assert_eq!((tables.slot(0), tables.slot(1)), (None, Some(0)));
        assert_eq!(tables.rules[0].over, DO_ALLOW);
        assert_eq!(lists(&tables, &tables.syn.clients4), [(96, vec![1]), (104, vec![0])]);
    }

    #[test]
    fn what_stands_behind_stop_is_cut_off() {
        let tables = tables(vec![
            Rule { stop: true, action: Some(Action::Allow), ..rule("ours", &["10.0.0.0/8"]) },
            limited(rule("all", &["*:1024-65535", "unix"])),
            limited(rule("rest", &[])),
        ]);
        assert_eq!(lists(&tables, &tables.syn.clients4), [(96, vec![1, 2]), (104, vec![0])]);
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
        assert_eq!(tables.syn.clients4.len(), 10_001);
        assert!(tables.syn.clients4.iter().all(|leaf| leaf.list.count <= 2));
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
        assert!(matches!(by_slot(&policy, |_| Some(0)), Err(GateError::TooMany)));
    }
}
