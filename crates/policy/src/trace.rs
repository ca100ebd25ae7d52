//! What has come of each rule so far: for how many connections and requests it has decided something,
//! how many it has refused, and whose. What is used of its limits, its buckets know.

use crate::meter::Line;
use crate::policy::Policy;
use forebay_http::client::ClientKey;
use std::net::IpAddr;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, OnceLock};

/// In so many places a rule's matches are counted, so that loops do not fight over one.
const LANES: usize = 8;

/// Clients whose refusals a rule remembers: those of whom there are more than one in so many are among
/// them (Space-Saving, Metwally et al. 2005).
const MOST_CLIENTS: usize = 16;

/// So many refusals of a rule are all attributed to their clients; then one in [`SAMPLE`].
const ALL_OF: u64 = 1024;

const SAMPLE: u64 = 16;

/// What has come of the rules of a policy, by their numbers.
#[derive(Debug)]
pub(crate) struct Traces {
    of_rules: Box<[Arc<Trace>]>,
}

/// What has come of one rule.
#[derive(Debug, Default)]
struct Trace {
    refused: AtomicU64,
    /// Made when it matches first: most of ten thousand never do.
    matched: OnceLock<Box<[Line<AtomicU64>; LANES]>>,
    /// Who is refused most, and about how often. Nobody waits for it.
    clients: Mutex<Vec<(ClientKey, u64)>>,
}

impl Traces {
    /// None so far, but for what `before` knows of rules with the same names.
    pub(crate) fn new(policy: &Policy, before: Option<(&Policy, &Traces)>) -> Traces {
        let known = |name: &str| {
            let (policy, traces) = before?;
            Some(Arc::clone(&traces.of_rules[policy.rule(name)? as usize]))
        };
        let of_rules = policy.rules().iter().map(|rule| known(&rule.name).unwrap_or_default());
        Traces { of_rules: of_rules.collect() }
    }

    /// This rule has decided something.
    #[inline]
    pub(crate) fn matches(&self, rule: u32, lane: usize) {
        if let Some(trace) = self.of_rules.get(rule as usize) {
            let matched = trace.matched.get_or_init(Box::default);
            matched[lane % LANES].0.fetch_add(1, Relaxed);
        }
    }

    /// This rule has refused this client.
    #[inline]
    pub(crate) fn refuse(&self, rule: u32, client: IpAddr) {
        if let Some(trace) = self.of_rules.get(rule as usize) {
            let before = trace.refused.fetch_add(1, Relaxed);
            if before < ALL_OF || before % SAMPLE == 0 {
                let stands_for = if before < ALL_OF { 1 } else { SAMPLE };
                trace.attribute(ClientKey::of(client), stands_for);
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

    /// Who was refused most, the first first.
    pub(crate) fn clients(&self, rule: u32) -> Vec<(ClientKey, u64)> {
        let clients = self.of_rules.get(rule as usize).and_then(|trace| trace.clients.lock().ok());
        let mut clients = clients.map_or_else(Vec::new, |clients| clients.clone());
        clients.sort_unstable_by_key(|(client, count)| (u64::MAX - count, *client));
        clients
    }
}

impl Trace {
    /// Counts refusals for a client, unless another thread does so for one at this moment.
    fn attribute(&self, client: ClientKey, stands_for: u64) {
        let Ok(mut clients) = self.clients.try_lock() else { return };
        if let Some((_, count)) = clients.iter_mut().find(|(known, _)| *known == client) {
            *count += stands_for;
        } else if clients.len() < MOST_CLIENTS {
            clients.push((client, stands_for));
        } else if let Some(least) = clients.iter_mut().min_by_key(|(_, count)| *count) {
            // it may have come as often as the one that it replaces
            *least = (client, least.1 + stands_for);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn who_is_refused_most_is_known() {
        let rule = crate::rule::Rule { stop: true, ..Default::default() };
        let rule = crate::rule::Rule { name: "r".to_owned(), ..rule };
        let policy = Policy::new(&[], vec![rule]).unwrap();
        let traces = Traces::new(&policy, None);
        let client = |number: u32| IpAddr::V4(Ipv4Addr::from_bits(number));
        for round in 0..10_000_u32 {
            // every other one is one of two, the rest are all different
            let number = if round % 2 == 0 { 1 + round % 4 / 2 } else { 1000 + round };
            traces.refuse(0, client(number));
        }
        assert_eq!(traces.refused(0), 10_000);
        let top = traces.clients(0);
        assert_eq!(top.len(), MOST_CLIENTS);
        let known = [top[0].0, top[1].0];
        assert!(known.contains(&ClientKey::of(client(1))), "{top:?}");
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
