//! The effect of each rule so far: for how many connections and requests it has decided something, how many
//! it has refused, and which clients'. What is used of its limits is kept in the buckets.

use crate::meter::CacheLine;
use crate::policy::Policy;
use forebay_http::client::ClientKey;
use std::net::IpAddr;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, OnceLock};

/// The number of counters over which a rule's matches are spread, so that loops do not contend for one cache
/// line.
const LANES: usize = 8;

/// The number of clients whose refusals a rule remembers. Every client with more than one in so many of the
/// refusals is among them (Space-Saving, Metwally et al. 2005).
const MOST_CLIENTS: usize = 16;

/// The number of refusals of a rule that are all attributed to their clients; after those, one in [`SAMPLE`]
/// is.
const ALL_OF: u64 = 1024;

const SAMPLE: u64 = 16;

/// The effects of the rules of a policy, by number.
#[derive(Debug)]
pub(crate) struct Traces {
    of_rules: Box<[Arc<RuleTrace>]>,
}

/// The effect of one rule.
#[derive(Debug, Default)]
struct RuleTrace {
    refused: AtomicU64,
    /// The counters of matches, allocated at the first one: most of ten thousand rules never match.
    matched: OnceLock<Box<[CacheLine<AtomicU64>; LANES]>>,
    /// The clients that are refused most, and about how often. No thread waits for the lock.
    clients: Mutex<Vec<RefusalCount>>,
    /// The number of refusals that were not attributed, because another thread held the lock.
    missed: AtomicU64,
}

/// How often a client was refused, as far as that is known.
#[derive(Clone, Copy, Debug)]
struct RefusalCount {
    client: ClientKey,
    count: u64,
    /// The part of the count that may belong to another client, whose place this one has taken.
    inherited: u64,
}

/// The bounds of how often a rule has refused a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MostRefused {
    /// The client.
    pub client: ClientKey,
    /// The lower bound.
    pub least: u64,
    /// The upper bound: equal to the lower one where all refusals were attributed. Where only a sample was,
    /// both bounds are three standard deviations away from the estimate.
    pub most: u64,
}

impl Traces {
    /// Empty effects, except for what `before` knows of rules with the same names.
    pub(crate) fn new(policy: &Policy, before: Option<(&Policy, &Traces)>) -> Traces {
        let known = |name: &str| {
            let (policy, traces) = before?;
            Some(Arc::clone(&traces.of_rules[policy.rule(name)? as usize]))
        };
        let of_rules = policy.rules().iter().map(|rule| known(&rule.name).unwrap_or_default());
        Traces { of_rules: of_rules.collect() }
    }

    /// Counts a connection or request about which the rule has decided something.
    #[inline]
    pub(crate) fn matches(&self, rule: u32, lane: usize) {
        if let Some(trace) = self.of_rules.get(rule as usize) {
            let matched = trace.matched.get_or_init(Box::default);
            matched[lane % LANES].0.fetch_add(1, Relaxed);
        }
    }

    /// Counts a refusal of this client by the rule.
    #[inline]
    pub(crate) fn refuse(&self, rule: u32, client: IpAddr) {
        if let Some(trace) = self.of_rules.get(rule as usize) {
            let before = trace.refused.fetch_add(1, Relaxed);
            if before < ALL_OF {
                trace.attribute(ClientKey::of(client), 1);
            } else if is_in_sample(before) {
                trace.attribute(ClientKey::of(client), SAMPLE);
            }
        }
    }

    pub(crate) fn matched(&self, rule: u32) -> u64 {
        let matched = self.of_rules.get(rule as usize).and_then(|trace| trace.matched.get());
        matched.map_or(0, |lanes| lanes.iter().map(|lane| lane.0.load(Relaxed)).sum())
    }

    pub(crate) fn refused(&self, rule: u32) -> u64 {
        self.of_rules.get(rule as usize).map_or(0, |trace| trace.refused.load(Relaxed))
    }

    /// The clients refused most, the most refused first.
    pub(crate) fn clients(&self, rule: u32) -> Vec<MostRefused> {
        let Some(trace) = self.of_rules.get(rule as usize) else { return Vec::new() };
        let clients = trace.clients.lock();
        let mut clients = clients.map_or_else(|_| Vec::new(), |clients| clients.clone());
        clients.sort_unstable_by_key(|counted| (u64::MAX - counted.count, counted.client));
        let is_sampled = trace.refused.load(Relaxed) > ALL_OF;
        let missed = trace.missed.load(Relaxed);
        let bounds = |RefusalCount { client, count, inherited }: RefusalCount| {
            // the standard deviation of an estimate in which each counted refusal stands for SAMPLE
            let deviation = if is_sampled { ((SAMPLE * count) as f64).sqrt() } else { 0.0 };
            let spread = (3.0 * deviation).ceil() as u64;
            let least = count.saturating_sub(inherited).saturating_sub(spread).max(1);
            MostRefused { client, least, most: count.saturating_add(spread).saturating_add(missed) }
        };
        clients.into_iter().map(bounds).collect()
    }
}

impl RuleTrace {
    /// Counts refusals for a client, unless another thread has the lock at that moment.
    fn attribute(&self, client: ClientKey, stands_for: u64) {
        let Ok(mut clients) = self.clients.try_lock() else {
            self.missed.fetch_add(stands_for, Relaxed);
            return;
        };
        if let Some(known) = clients.iter_mut().find(|known| known.client == client) {
            known.count += stands_for;
        } else if clients.len() < MOST_CLIENTS {
            clients.push(RefusalCount { client, count: stands_for, inherited: 0 });
        } else if let Some(least) = clients.iter_mut().min_by_key(|known| known.count) {
            // the client may have been refused before, at most as often as the one it replaces
            let inherited = least.count;
            *least = RefusalCount { client, count: inherited + stands_for, inherited };
        }
    }
}

/// Whether the refusal with this number is in the sample. The sample is spread evenly, but not in step with
/// clients that come in turns.
fn is_in_sample(number: u64) -> bool {
    const GOLDEN_RATIO: u64 = 0x9e37_79b9_7f4a_7c15;
    number.wrapping_mul(GOLDEN_RATIO) < u64::MAX / SAMPLE
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;
    use std::net::Ipv4Addr;

    #[test]
    fn who_is_refused_most_is_known() {
        let rule = crate::rule::Rule { stop: true, ..Default::default() };
        let rule = crate::rule::Rule { name: "r".to_owned(), ..rule };
        let policy = Policy::new(&[], vec![rule]).unwrap();
        let traces = Traces::new(&policy, None);
        let client = |number: u32| IpAddr::V4(Ipv4Addr::from_bits(number));
        let mut exact = HashMap::new();
        for round in 0..10_000_u32 {
            // every other refusal is of one of two clients in turn, the rest are of different ones
            let number = if round % 2 == 0 { 1 + round % 4 / 2 } else { 1000 + round };
            traces.refuse(0, client(number));
            *exact.entry(ClientKey::of(client(number))).or_insert(0) += 1;
            if round < 10 {
                let exact =
                    |top: &MostRefused| top.least == top.most && top.most == exact[&top.client];
                assert!(traces.clients(0).iter().all(exact), "{:?}", traces.clients(0));
            }
        }
        assert_eq!(traces.refused(0), 10_000);
        let top = traces.clients(0);
        assert_eq!(top.len(), MOST_CLIENTS);
        let known = [top[0].client, top[1].client];
        assert!([1, 2].iter().all(|number| known.contains(&ClientKey::of(client(*number)))));
        for one in &top {
            assert!((one.least..=one.most).contains(&exact[&one.client]), "{one:?}");
        }
        assert!(top[0].least > 1_500 && top[0].most < 4_000, "{:?}", top[0]);
    }

    #[test]
    fn matches_of_all_lanes_are_added_up() {
        let rule = crate::rule::Rule { name: "r".to_owned(), stop: true, ..Default::default() };
        let policy = Policy::new(&[], vec![rule]).unwrap();
        let traces = Traces::new(&policy, None);
        (0..100).for_each(|lane| traces.matches(0, lane));
        let after = Traces::new(&policy, Some((&policy, &traces)));
        traces.matches(0, 7);
        assert_eq!(after.matched(0), 101);
    }
}
