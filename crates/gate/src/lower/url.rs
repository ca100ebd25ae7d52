//! Turns rules about first requests into tables, as far as [`forebay_policy::first`] can decide them: those
//! that give classes, and those that refuse.
//!
//! A rule that asks for a path, and for no network of clients, is found by the path: by the longest prefix of
//! it that some rule names, or by the whole path. There is the list of all rules that fit it, in their order,
//! as for networks. The other rules are found by the client. The program merges both lists.

use super::{
    GateScope, Leaf, Lists, PlacesOfRules, Refuses, everything, ignore_ns, mask, networks, ways,
};
use crate::Family;
use crate::error::GateError;
use crate::types::{
    ASKED, ASKED_MORE, DEGREE_SHIFT, DO_ALLOW, DO_USER, MARK_BY_REQUEST, MARK_DEGREE, MARK_MORE,
    MARK_STOP, MARK_WAITS, PATH_KEY_BYTES, RawAsked, RawEntry, RawList, RawPattern, SAYS_ACTION,
    SAYS_BUSY, SAYS_CLASS, SAYS_LIMIT, UNJUDGED, UrlRule,
};
use forebay_policy::bucket::BucketTerms;
use forebay_policy::endpoint::{Addresses, Endpoint};
use forebay_policy::first::{self, Alternatives, SegmentConditions};
use forebay_policy::rule::{Over, Rule};
use forebay_policy::{JudgePhase, Policy};
use std::collections::BTreeMap;

/// The most patterns of all rules together, 168 bytes each.
const MOST_PATTERNS: usize = 1 << 16;

/// The tables for first requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct UrlTables {
    pub(crate) lists: Lists,
    pub(crate) paths: Vec<PathLeaf>,
    /// The lists for ClientHellos of TLS.
    pub(crate) hello_clients4: Vec<Leaf>,
    pub(crate) hello_clients6: Vec<Leaf>,
    /// All rules twice, for requests and for hellos, each time followed by a default rule that fits
    /// everything.
    pub(crate) rules: Vec<UrlRule>,
    pub(crate) patterns: Vec<RawPattern>,
    /// The number of classes; 0 if first requests are not looked at.
    pub(crate) ranks: usize,
    /// The rank of a request that no rule gives a class.
    pub(crate) default_rank: u32,
    /// Whether a rule asks for a cookie.
    pub(crate) reads_cookies: bool,
}

/// A prefix of paths, or a whole path, and the range of the entries for it.
#[derive(Clone, Debug)]
pub(crate) struct PathLeaf {
    /// The prefix; a whole path has a zero behind it.
    pub(crate) beginning: Vec<u8>,
    pub(crate) list: RawList,
}

pub(super) fn lower(
    policy: &Policy,
    scope: GateScope,
    places: &mut PlacesOfRules<'_>,
) -> Result<UrlTables, GateError> {
    let judges = scope.judges();
    let mut tables = UrlTables::default();
    let is_classed = policy.classes().len() > 1;
    let has_any = |rule: &Rule| is_classed && rule.class.is_some() || judges && may_refuse(rule);
    if scope != GateScope::Answers && !policy.rules().iter().any(has_any) {
        return Ok(tables);
    }
    tables.ranks = policy.classes().len();
    tables.default_rank = policy.default_rank().into();
    let (rank, says) = (policy.default_rank().into(), SAYS_CLASS);
    let default = UrlRule { rank, says, ..UrlRule::default() };
    for (rule, rank) in policy.rules().iter().zip(policy.ranks()) {
        let refusing = if judges { refusing(rule, places) } else { UrlRule::default() };
        let rule = tables.rule(rule, refusing, *rank, policy.default_rank())?;
        tables.rules.push(rule);
    }
    let last = tables.rules.len() as u32;
    tables.rules.push(default);
    for number in 0..policy.rules().len() {
        let rule = of_hello(tables.rules[number], &policy.rules()[number]);
        tables.rules.push(rule);
    }
    let last_of_hellos = tables.rules.len() as u32;
    tables.rules.push(default);
    let counting: Box<[bool]> =
        tables.rules.iter().map(|rule| rule.says != 0 || is_stop(rule)).collect();
    let counts = |number: usize| counting.get(number).copied().unwrap_or_default();
    let by_client = |number, rule: &Rule| counts(number) && paths_of(rule).is_none();
    [tables.lists.clients4, tables.lists.clients6] =
        tables.lists.add_with_last(policy, by_client, (0, last), |_| {})?;
    tables.add_hellos(policy, (last + 1, last_of_hellos))?;
    let by_path = |number, rule: &Rule| counts(number) && paths_of(rule).is_some();
    let ways = [Family::V4, Family::V6].map(|family| ways(policy, family, &by_path)).concat();
    let mut found: BTreeMap<Vec<u8>, Vec<RawEntry>> = BTreeMap::new();
    for way in ways {
        let rule = policy.rules().get(way.entry.rule as usize);
        for (text, is_prefix) in rule.and_then(paths_of).unwrap_or_default() {
            let mut key = text.into_vec();
            // no path contains a zero, so a whole path with one behind it is not the prefix of another
            key.extend((!is_prefix).then_some(0));
            found.entry(key).or_default().push(way.entry);
        }
    }
    tables.paths = tables.lists.of_paths(&found)?;
    Ok(tables)
}

fn is_stop(rule: &UrlRule) -> bool {
    rule.marks & u32::from(MARK_STOP) != 0
}

/// Whether a rule may refuse a connection, or a request.
fn may_refuse(rule: &Rule) -> bool {
    first::acts(rule).is_some()
        || rule.connections.is_some()
        || rule.requests.is_some()
        || rule.in_flight.is_some()
}

/// The part of a rule that refuses first requests.
fn refusing(rule: &Rule, places: &mut PlacesOfRules<'_>) -> UrlRule {
    let mut says = UrlRule { slot: u32::MAX, ..UrlRule::default() };
    let mut refuses = |answer: Option<_>| {
        let nothing = Refuses { does: DO_ALLOW, page: 0 };
        let refuses = answer.map_or(nothing, |answer| places.refuses(answer, true));
        (refuses.does, refuses.page)
    };
    (says.action, says.action_page) = refuses(first::acts(rule).map(Ok));
    (says.over, says.over_page) = refuses(first::requests(rule));
    (says.busy, says.busy_page) = refuses(first::in_flight(rule));
    let of = |is_said: bool, setting| if is_said { setting } else { 0 };
    says.says = of(rule.action.is_some(), SAYS_ACTION)
        | of(rule.requests.is_some(), SAYS_LIMIT)
        | of(rule.in_flight.is_some(), SAYS_BUSY);
    if let Some(limit) = &rule.requests {
        let terms = BucketTerms::of(limit);
        (says.interval_ns, says.tolerance_ns) = (terms.interval_ns, terms.tolerance_ns);
        says.ignore_ns = ignore_ns(limit);
    }
    let does = [says.action, says.over, says.busy];
    if does.iter().any(|does| ![DO_ALLOW, DO_USER].contains(does)) {
        match places.slot(&rule.name) {
            Some(slot) => says.slot = slot,
            // without a slot there are no words: limits are left to user space. An action needs none, and
            // only its counts are missing
            None => [says.over, says.busy] = [says.over, says.busy].map(without_word),
        }
    }
    says
}

fn without_word(does: u8) -> u8 {
    if does == DO_ALLOW { DO_ALLOW } else { DO_USER }
}

/// The slot of the rule's bucket for requests, if the kernel charges it.
pub(super) fn charged_slot(rule: &UrlRule) -> Option<u32> {
    let is_charged = rule.says & SAYS_LIMIT != 0 && ![DO_ALLOW, DO_USER].contains(&rule.over);
    is_charged.then_some(rule.slot)
}

/// The same rule for a ClientHello, which shows only the host of a request.
fn of_hello(rule: UrlRule, of: &Rule) -> UrlRule {
    let SegmentConditions { methods, paths, cookies, .. } = SegmentConditions::of(of);
    let asks = methods.is_some() || paths.is_some() || cookies.is_some();
    let more = if asks { MARK_MORE } else { 0 };
    let nothing = RawAsked::default();
    let says = rule.says & SAYS_CLASS;
    let (method, path, cookie) = (nothing, nothing, nothing);
    UrlRule { method, path, cookie, marks: rule.marks | more, says, ..rule }
}

/// The paths by which a rule is found, each with whether it is a prefix; `None` if the rule is found by the
/// client.
fn paths_of(rule: &Rule) -> Option<Vec<(Box<[u8]>, bool)>> {
    let is_all = |endpoint: &Endpoint| matches!(endpoint.addresses(), Addresses::Any);
    let conditions = &rule.conditions;
    // a list by path is for clients of both families, so an address of one family must not fit those of the
    // other
    let is_of_both = |endpoint: &Endpoint| {
        let (v4, v4_len) = Family::V4.all();
        let has_v4 = |&(first, len): &(u128, u8)| len < v4_len && v4 & mask(len) == first;
        let is_all_of_v4 = networks(Some(endpoint), Family::V4) == [(v4, v4_len)];
        is_all(endpoint)
            || !is_all_of_v4 && !networks(Some(endpoint), Family::V6).iter().any(has_v4)
    };
    if !conditions.client.iter().all(is_all) || !conditions.local.iter().all(is_of_both) {
        return None;
    }
    let Alternatives { texts, needs_more } = SegmentConditions::of(rule).paths?;
    (!needs_more).then_some(texts)
}

impl Lists {
    /// Adds the lists of these prefixes of paths, each with the entries of all shorter prefixes of it.
    fn of_paths(
        &mut self,
        found: &BTreeMap<Vec<u8>, Vec<RawEntry>>,
    ) -> Result<Vec<PathLeaf>, GateError> {
        let mut leaves = Vec::with_capacity(found.len());
        // in this order a prefix comes before the paths that begin with it: `around` is the stack of open
        // prefixes
        let mut around: Vec<(&[u8], Vec<RawEntry>)> = Vec::new();
        for (key, own) in found {
            while around.last().is_some_and(|(outer, _)| !key.starts_with(outer)) {
                around.pop();
            }
            let outer = around.last().map(|(_, entries)| &entries[..]).unwrap_or_default();
            let mut entries = [outer, own].concat();
            entries.sort_by_key(|entry| entry.rule);
            entries.dedup();
            debug_assert!(key.len() + 4 <= PATH_KEY_BYTES, "longer paths are not asked for");
            leaves.push(PathLeaf { beginning: key.clone(), list: self.list(&entries)? });
            around.push((key, entries));
        }
        Ok(leaves)
    }
}

impl UrlTables {
    /// Adds the lists for hellos, of the rules that give a class or stop, which are numbered from `first` on.
    fn add_hellos(&mut self, policy: &Policy, (first, last): (u32, u32)) -> Result<(), GateError> {
        let counts = |_, rule: &Rule| rule.class.is_some() || rule.stop;
        // a rule that fits every hello perhaps leaves the class unknown, so the list can end with it
        let ends = |entry: &RawEntry| {
            let rule = &self.rules[entry.rule as usize];
            *entry == everything(entry.rule)
                && rule.host == RawAsked::default()
                && rule.marks & (MARK_MORE | u32::from(MARK_DEGREE)) == MARK_MORE
        };
        let cut = |entries: &mut Vec<RawEntry>| {
            let end = entries.iter().position(ends);
            entries.truncate(end.map_or(entries.len(), |end| end + 1));
        };
        let before = self.lists.entries.len();
        let found = match self.lists.add_with_last(policy, counts, (first, last), cut) {
            // too many entries: one rule leaves the class of every hello unknown
            Err(GateError::TooMany) => {
                self.lists.entries.truncate(before);
                let (rank, marks, says) = (UNJUDGED, MARK_MORE, SAYS_CLASS);
                let none = UrlRule { rank, marks, says, ..UrlRule::default() };
                self.rules.push(none);
                let number = self.rules.len() as u32 - 1;
                self.lists.add_with_last(policy, |_, _| false, (0, number), |_| {})
            }
            found => found,
        };
        [self.hello_clients4, self.hello_clients6] = found?;
        Ok(())
    }

    /// Turns a rule into one of the kernel; `refusing` is the part that refuses requests.
    fn rule(
        &mut self,
        rule: &Rule,
        refusing: UrlRule,
        rank: u8,
        default: u8,
    ) -> Result<UrlRule, GateError> {
        let says_class = rule.class.is_some() || rule.stop;
        if !says_class && refusing.says == 0 {
            return Ok(UrlRule { rank: UNJUDGED, ..UrlRule::default() });
        }
        let SegmentConditions { methods, paths, hosts, cookies, needs_more } =
            SegmentConditions::of(rule);
        self.reads_cookies |= cookies.is_some();
        let mark = |is: bool, mark| if is { mark } else { 0 };
        // a rule with `stop` and no class leaves the default class, unless an earlier rule has given one
        let (rank, by_request) = match rule.class {
            Some(_) => (rank.into(), !rule.is_for_connections()),
            None if rule.stop => (default.into(), false),
            None => (UNJUDGED, false),
        };
        let degree = u32::from(rule.when.from(JudgePhase::Request).number());
        Ok(UrlRule {
            method: self.asked(methods)?,
            // a rule that is found by its path need not compare it again
            path: if paths_of(rule).is_some() { RawAsked::default() } else { self.asked(paths)? },
            host: self.asked(hosts)?,
            cookie: self.asked(cookies)?,
            rank,
            says: refusing.says | if says_class { SAYS_CLASS } else { 0 },
            marks: mark(rule.stop, u32::from(MARK_STOP))
                | mark(needs_more, MARK_MORE)
                | mark(by_request, MARK_BY_REQUEST)
                | mark(waits(rule), MARK_WAITS)
                | degree << DEGREE_SHIFT & u32::from(MARK_DEGREE),
            ..refusing
        })
    }

    fn asked(&mut self, alternatives: Option<Alternatives>) -> Result<RawAsked, GateError> {
        let Some(Alternatives { texts, needs_more }) = alternatives else {
            return Ok(RawAsked::default());
        };
        let first = self.patterns.len() as u32;
        self.patterns.extend(texts.iter().map(|(text, is_prefix)| pattern(text, *is_prefix)));
        let count = u16::try_from(texts.len()).map_err(|_| GateError::TooMany)?;
        if self.patterns.len() > MOST_PATTERNS {
            return Err(GateError::TooMany);
        }
        Ok(RawAsked { first, count, marks: ASKED | if needs_more { ASKED_MORE } else { 0 } })
    }
}

/// Whether a first segment that finds the queue of the rule's class full is dropped, to be retransmitted:
/// where requests over the rule's limit are dropped, or wait.
fn waits(rule: &Rule) -> bool {
    let limit = rule.requests.as_ref().or(rule.connections.as_ref());
    limit.is_some_and(|limit| matches!(limit.over, Over::Drop | Over::Queue { .. }))
}

fn pattern(text: &[u8], is_prefix: bool) -> RawPattern {
    let mut pattern = RawPattern {
        length: text.len() as u32,
        is_prefix: u32::from(is_prefix),
        ..RawPattern::default()
    };
    for (word, bytes) in pattern.words.iter_mut().zip(text.chunks(8)) {
        let mut whole = [0; 8];
        whole[..bytes.len()].copy_from_slice(bytes);
        *word = u64::from_ne_bytes(whole);
    }
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_policy::class::Class;
    use forebay_policy::condition::Conditions;
    use forebay_policy::pattern::{PathPattern, SitePattern};

    fn rule(name: &str, paths: &[&str], clients: &[&str]) -> Rule {
        Rule {
            name: name.to_owned(),
            class: Some("gold".to_owned()),
            conditions: Conditions {
                path: paths.iter().map(|text| PathPattern::parse(text).unwrap()).collect(),
                client: clients.iter().map(|text| Endpoint::parse(text).unwrap()).collect(),
                ..Conditions::default()
            },
            ..Rule::default()
        }
    }

    fn tables(rules: Vec<Rule>) -> UrlTables {
        let classes = [Class::new("gold", 0), Class::new("bulk", 1)];
        let (mut slot, mut page) = (|_: &str| None, |_, _| None);
        let mut places = PlacesOfRules::new(&mut slot, &mut page);
        lower(&Policy::new(&classes, rules).unwrap(), GateScope::Classes, &mut places).unwrap()
    }

    fn numbers(tables: &UrlTables, list: RawList) -> Vec<u32> {
        let all = &tables.lists.entries[list.first as usize..][..list.count as usize];
        all.iter().map(|entry| entry.rule).collect()
    }

    #[test]
    fn a_longer_beginning_knows_the_rules_of_shorter_ones() {
        let tables = tables(vec![
            rule("whole", &["/shop/buy"], &[]),
            rule("shop", &["/shop/*"], &[]),
            rule("of a client", &["/shop/*"], &["10.0.0.0/8"]),
            rule("by its end", &["*.php"], &[]),
            rule("either", &["/", "/shop/b*"], &["*:1024-65535"]),
        ]);
        let found: Vec<_> = tables
            .paths
            .iter()
            .map(|leaf| (&leaf.beginning[..], numbers(&tables, leaf.list)))
            .collect();
        let expected: [(&[u8], Vec<u32>); 4] = [
            (b"/\0", vec![4]),
            (b"/shop/", vec![1]),
            (b"/shop/b", vec![1, 4]),
            (b"/shop/buy\0", vec![0, 1, 4]),
        ];
        assert_eq!(found, expected);
        let of_clients = |leaf: &crate::lower::Leaf| (leaf.len, numbers(&tables, leaf.list));
        let of_clients: Vec<_> = tables.lists.clients4.iter().map(of_clients).collect();
        assert_eq!(of_clients, [(96, vec![3, 5]), (104, vec![2, 3, 5])]);
    }

    #[test]
    fn hellos_have_rules_of_their_own() {
        let of_site = |name: &str, site: &str, paths: &[&str]| {
            let mut rule = rule(name, paths, &[]);
            rule.conditions.site = vec![SitePattern::parse(site).unwrap()];
            rule
        };
        let some = tables(vec![
            of_site("shop", "shop.example", &[]),
            of_site("buy", "www.example", &["/buy/*"]),
            rule("late", &["/late"], &[]),
            of_site("never", "never.example", &[]),
        ]);
        let [all] = &some.hello_clients4[..] else { panic!("{:?}", some.hello_clients4) };
        // the five rules for requests come first
        assert_eq!(numbers(&some, all.list), [5, 6, 7]);
        let more = MARK_MORE;
        let marks = some.rules[5..8].iter().map(|rule| rule.marks & more);
        assert_eq!(marks.collect::<Vec<_>>(), [0, more, more]);
        // with too many rules no class is determined
        let sites = (0..5000).map(|n| {
            let (site, path) = (format!("{n}.example"), format!("/{n}"));
            of_site(&n.to_string(), &site, &[&path])
        });
        let many = tables(sites.collect());
        let list = many.hello_clients4[0].list;
        assert_eq!(numbers(&many, list), [many.rules.len() as u32 - 1]);
    }

    #[test]
    fn ten_thousand_paths_are_short_lists() {
        let rules = (0..10_000).map(|n| rule(&n.to_string(), &[&format!("/p{n}/*")], &[]));
        let tables = tables(rules.collect());
        assert_eq!(tables.paths.len(), 10_000);
        assert!(tables.paths.iter().all(|leaf| leaf.list.count == 1));
        assert!(tables.patterns.is_empty());
    }
}
