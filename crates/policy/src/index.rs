//! The index of rules: each rule is filed where a request that it matches will look for it.
//!
//! A rule is filed in one of four ways, with each of its alternatives in a place of its own:
//!
//! - by site and by what its paths begin with,
//! - by the client's network,
//! - by the network of the address that was reached,
//! - in a list of rules that are tried one by one.
//!
//! Where several ways are possible, the one is taken in which the rule shares its place with the fewest
//! others. The condition that leads to a place is not tried again there.

use crate::condition::{ConditionKind, ConditionSet};
use crate::endpoint::{Endpoint, is_unix};
use crate::facts::RequestFacts;
use crate::glob::{BytePairs, Glob};
use crate::networks::{NetworkPrefix, Networks};
use crate::pattern::{PathPattern, SitePattern, is_name, original};
use crate::rule::{Degree, JudgePhase, Rule};
use crate::search::{FirstRules, IndexedRule, Marks, Slots};
use crate::trie::Trie;
use foldhash::quality::RandomState;
use forebay_http::cidr::bits_of;
use std::collections::HashMap;
use std::hash::Hash;

type Entries = Box<[IndexedRule]>;
type Paths = Trie<Entries>;

/// Rules by site name. A fast hash is enough: clients choose what is looked up, not what is in the table.
type Sites = HashMap<Box<[u8]>, Paths, RandomState>;

/// The index of the rules that apply in one phase.
#[derive(Clone, Debug, Default)]
pub(crate) struct Index {
    any_site: Paths,
    sites: Sites,
    /// Sites with a star, by what follows the star and its dot.
    wildcards: Sites,
    client: Networks<Entries>,
    local: Networks<Entries>,
    free: Entries,
    /// For each free rule, the pairs of bytes that a matching path must have; empty where no rule needs any.
    pairs: Box<[BytePairs]>,
    wanted: Slots,
    is_empty: bool,
}

/// A place where a rule can be filed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum FilingKey {
    /// A host (`None` for all), whether it has a star, and the beginning of the path.
    Path(Option<Box<[u8]>>, bool, Box<[u8]>),
    Client(NetworkPrefix),
    Local(NetworkPrefix),
    Free,
}

/// A rule filed in one place, with the conditions that must still be tried there.
#[derive(Clone, Debug)]
struct Filing {
    filing_key: FilingKey,
    asked: ConditionSet,
    is_exact: bool,
}

impl Index {
    /// Files all rules that apply in this phase.
    pub(crate) fn new(rules: &[Rule], phase: JudgePhase) -> Index {
        let counts = |(_, rule): &&(u32, &Rule)| {
            let is_of_phase = phase == JudgePhase::Request || rule.is_for_connections();
            is_of_phase && (rule.stop || !Slots::of(rule, phase).is_empty())
        };
        let all: Vec<(u32, &Rule)> = (0..).zip(rules).collect();
        let rules = || all.iter().filter(counts);
        let mut sizes: HashMap<FilingKey, usize> = HashMap::new();
        for filing in rules().flat_map(|(_, rule)| ways(rule)).flatten() {
            *sizes.entry(filing.filing_key).or_default() += 1;
        }
        let mut by_filing_key: HashMap<FilingKey, Vec<IndexedRule>> = HashMap::new();
        let mut wanted = Slots::default();
        for (number, rule) in rules() {
            let size = |way: &Vec<Filing>| way.iter().map(|one| sizes[&one.filing_key]).max();
            let best = ways(rule).into_iter().min_by_key(size).unwrap_or_else(|| vec![free(rule)]);
            wanted = wanted.with(Slots::of(rule, phase));
            for Filing { filing_key, asked, is_exact } in best {
                let marks = Marks::new(rule.stop, rule.when.from(phase), is_exact);
                let slots = Slots::of(rule, phase);
                let entry = IndexedRule { rule: *number, asked, slots, marks };
                by_filing_key.entry(filing_key).or_default().push(entry);
            }
        }
        let is_empty = by_filing_key.is_empty();
        let index = Index::arrange(by_filing_key);
        let pairs: Box<[BytePairs]> =
            index.free.iter().map(|entry| pairs(all[entry.rule as usize].1)).collect();
        let pairs = if pairs.iter().all(|one| one.is_empty()) { Box::default() } else { pairs };
        Index { wanted, is_empty, pairs, ..index }
    }

    fn arrange(by_filing_key: HashMap<FilingKey, Vec<IndexedRule>>) -> Index {
        let mut any_site = Vec::new();
        let mut sites: HashMap<(bool, Box<[u8]>), Vec<_>> = HashMap::new();
        let (mut client, mut local) = (Vec::new(), Vec::new());
        let mut free = Entries::default();
        for (filing_key, entries) in by_filing_key {
            let entries = entries.into();
            match filing_key {
                FilingKey::Path(None, _, prefix) => any_site.push((prefix, entries)),
                FilingKey::Path(Some(host), is_wildcard, prefix) => {
                    sites.entry((is_wildcard, host)).or_default().push((prefix, entries));
                }
                FilingKey::Client(network) => client.push((network, entries)),
                FilingKey::Local(network) => local.push((network, entries)),
                FilingKey::Free => free = entries,
            }
        }
        let mut index = Index {
            any_site: Trie::new(any_site),
            client: Networks::new(client),
            local: Networks::new(local),
            free,
            ..Index::default()
        };
        for ((is_wildcard, host), pairs) in sites {
            let sites = if is_wildcard { &mut index.wildcards } else { &mut index.sites };
            sites.insert(host, Trie::new(pairs));
        }
        index
    }

    /// Whether no rule applies in this phase.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.is_empty
    }

    /// Finds the rules that decide about `facts`. `rules` are those from which the index was made.
    #[inline]
    pub(crate) fn search<'f, F>(
        &self,
        rules: &[Rule],
        facts: &RequestFacts<'f, F>,
        degree: Degree,
    ) -> FirstRules
    where
        F: Iterator<Item = (&'f str, &'f [u8])> + Clone,
    {
        let mut looking = Looking { rules, facts, degree, found: FirstRules::new(self.wanted) };
        if let Some(paths) = self.sites.get(facts.host) {
            looking.among_paths(paths);
        }
        // a longer host cannot match, and might have thousands of dots to try
        if !self.wildcards.is_empty() && is_name(facts.host) {
            let dots = facts.host.iter().enumerate().filter(|(_, byte)| **byte == b'.');
            for parent in dots.map(|(dot, _)| &facts.host[dot + 1..]) {
                if let Some(paths) = self.wildcards.get(parent) {
                    looking.among_paths(paths);
                }
            }
        }
        looking.among_paths(&self.any_site);
        looking.among_networks(&self.client, facts.ends.client);
        looking.among_networks(&self.local, facts.ends.local);
        looking.among_free(&self.free, &self.pairs);
        looking.found
    }
}

/// A search under way.
struct Looking<'l, 'f, F> {
    rules: &'l [Rule],
    facts: &'l RequestFacts<'f, F>,
    degree: Degree,
    found: FirstRules,
}

impl<'f, F> Looking<'_, 'f, F>
where
    F: Iterator<Item = (&'f str, &'f [u8])> + Clone,
{
    #[inline]
    fn among_paths(&mut self, paths: &Paths) {
        paths.beginnings(self.facts.path, |entries, bytes| self.among(entries, bytes));
    }

    #[inline]
    fn among_networks(&mut self, networks: &Networks<Entries>, address: std::net::SocketAddr) {
        if networks.is_empty() || is_unix(address) {
            return;
        }
        let (bits, _) = bits_of(address.ip());
        networks.holding(bits, |entries| self.among(entries, usize::MAX));
    }

    #[inline]
    fn among_free(&mut self, entries: &[IndexedRule], pairs: &[BytePairs]) {
        if pairs.is_empty() {
            return self.among(entries, usize::MAX);
        }
        let path = BytePairs::of(self.facts.path);
        for (entry, needed) in entries.iter().zip(pairs) {
            if path.has(*needed) {
                self.among(std::slice::from_ref(entry), usize::MAX);
            }
        }
    }

    /// Tries rules that the first `prefix_bytes` of the path have led to. The rules are in the order they
    /// were written.
    #[inline]
    fn among(&mut self, entries: &[IndexedRule], prefix_bytes: usize) {
        for entry in entries {
            if entry.rule >= self.found.horizon() {
                break;
            }
            let counts = entry.marks.counts_at(self.degree);
            let fits = !entry.marks.is_exact()
                || self.facts.path.len() == prefix_bytes
                || self.is_form_of(prefix_bytes);
            if counts && fits && self.found.cares(entry) && self.holds(entry) {
                self.found.take(entry);
            }
        }
    }

    /// Whether the path is that of a compressed form, and the path of the file itself has this length: a rule
    /// for the file applies to its compressed forms, too.
    fn is_form_of(&self, prefix_bytes: usize) -> bool {
        original(self.facts.path).is_some_and(|file| file.len() == prefix_bytes)
    }

    #[inline]
    fn holds(&self, entry: &IndexedRule) -> bool {
        entry.asked.is_empty() || {
            let conditions = &self.rules[entry.rule as usize].conditions;
            entry.asked.failed(conditions, self.facts).is_none()
        }
    }
}

/// The pairs of bytes that every path matching the rule has.
fn pairs(rule: &Rule) -> BytePairs {
    let of = |path: &PathPattern| path.glob().map_or_else(BytePairs::default, Glob::pairs);
    let all = rule.conditions.path.iter().map(of);
    all.reduce(BytePairs::both).unwrap_or_default()
}

fn free(rule: &Rule) -> Filing {
    Filing {
        filing_key: FilingKey::Free,
        asked: ConditionSet::of(&rule.conditions),
        is_exact: false,
    }
}

/// The number of client networks above which a rule is always filed by them: in another place each would be
/// compared one by one.
const MOST_TRIED: usize = 32;

/// The ways in which a rule can be filed; of those that are equally crowded, the first is best.
fn ways(rule: &Rule) -> Vec<Vec<Filing>> {
    let client =
        by_network(rule, ConditionKind::Client, &rule.conditions.client, FilingKey::Client);
    if rule.conditions.client.len() > MOST_TRIED && client.is_some() {
        return client.into_iter().collect();
    }
    let ways = [
        by_path(rule),
        client,
        by_network(rule, ConditionKind::Local, &rule.conditions.local, FilingKey::Local),
    ];
    ways.into_iter().flatten().collect()
}

fn by_path(rule: &Rule) -> Option<Vec<Filing>> {
    let sites: Vec<_> = match &*rule.conditions.site {
        [] => vec![(None, false)],
        sites => {
            sites.iter().map(SitePattern::key).map(|(key, is)| (Some(key.into()), is)).collect()
        }
    };
    let asked = ConditionSet::of(&rule.conditions).without(ConditionKind::Site);
    let paths: Vec<(Box<[u8]>, ConditionSet, bool)> = match &*rule.conditions.path {
        [] => vec![(Box::default(), asked, false)],
        paths => {
            let globs = paths.iter().map(PathPattern::glob);
            let proven = asked.without(ConditionKind::Path);
            let filed = globs.map(|glob| {
                let Some(glob) = glob else { return (Box::default(), asked, false) };
                let is_proven = glob.is_prefix() || glob.is_exact();
                let asked = if is_proven { proven } else { asked };
                (glob.prefix().into(), asked, glob.is_exact())
            });
            filed.collect()
        }
    };
    // a beginning that every path has distinguishes nothing
    let tells = |(prefix, ..): &(Box<[u8]>, _, _)| !matches!(**prefix, [] | [b'/']);
    if rule.conditions.site.is_empty() && !paths.iter().all(|path| tells(path) || path.2) {
        return None;
    }
    let mut filings = Vec::new();
    for (site, is_wildcard) in sites {
        for (prefix, asked, is_exact) in paths.clone() {
            let filing_key = FilingKey::Path(site.clone(), is_wildcard, prefix);
            filings.push(Filing { filing_key, asked, is_exact });
        }
    }
    Some(filings)
}

fn by_network(
    rule: &Rule,
    condition: ConditionKind,
    endpoints: &[Endpoint],
    filing_key: impl Fn(NetworkPrefix) -> FilingKey,
) -> Option<Vec<Filing>> {
    let asked = ConditionSet::of(&rule.conditions);
    let proven = asked.without(condition);
    let file = |endpoint: &Endpoint| {
        let block = endpoint.block()?;
        let is_proven = block.is_pure() && !endpoint.asks_more();
        let prefix = NetworkPrefix { bits: block.bits(), len: block.whole_len() };
        Some(Filing {
            filing_key: filing_key(prefix),
            asked: if is_proven { proven } else { asked },
            is_exact: false,
        })
    };
    let filings: Option<Vec<Filing>> = endpoints.iter().map(file).collect();
    filings.filter(|filings| !filings.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::condition::Conditions;

    #[test]
    fn a_rule_with_many_networks_is_filed_by_them_alone() {
        let client = |count: usize| {
            let texts = (0..count).map(|number| format!("10.0.{number}.0/24"));
            texts.map(|text| Endpoint::parse(&text).unwrap()).collect::<Vec<_>>()
        };
        for (count, expected) in [(MOST_TRIED, 2), (MOST_TRIED + 1, 1)] {
            let path = vec![PathPattern::parse("/a").unwrap()];
            let conditions = Conditions { client: client(count), path, ..Conditions::default() };
            let left = ConditionSet::of(&conditions).without(ConditionKind::Client);
            let ways = ways(&Rule { conditions, ..Rule::default() });
            assert_eq!(ways.len(), expected);
            let by_client = ways.last().unwrap();
            assert_eq!(by_client.len(), count);
            assert!(by_client.iter().all(|filing| filing.asked == left));
        }
    }
}
