//! Sets of nftables that rules name by `client_set`: their contents, and the thread that notices
//! changes.
//!
//! In: the sets that the configuration in force names. Out: their networks, from which the policy
//! is compiled. A set that cannot be read keeps its old contents, and the reason is logged once.

use super::helper::{HelperMessage, HelperReply};
use super::helper_process::Helper;
use forebay_config::{AddressSets, Config, FirewallSet, RuleConfig};
use forebay_http::cidr::CidrBlock;
use forebay_policy::endpoint::Endpoint;
use forebay_sys::stderr::say;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// The shortest rest between two readings, as a multiple of the time that the last one took.
const RESTS: u32 = 20;

/// Reads sets for the server, which has given up the right to.
#[derive(Debug)]
pub struct SetReader {
    helper: Mutex<Helper>,
    watched: Mutex<WatchedSets>,
}

/// The sets that the thread watches.
#[derive(Debug, Default)]
struct WatchedSets {
    names: Vec<FirewallSet>,
    interval: Duration,
    in_force: AddressSets,
    /// The last logged reason for each set that cannot be read.
    troubles: BTreeMap<FirewallSet, String>,
    thread: Option<Thread>,
}

/// The message where sets cannot be read at all.
pub const LATE: &str = "client_set: sets of the firewall are read by a process that is begun at the start, if a rule names \
                        one then: restart the server, or have another take its place (forebay upgrade)";

/// The sets that rules name, each once.
pub fn named(rules: &[RuleConfig]) -> Vec<FirewallSet> {
    let all = rules.iter().flat_map(|rule| &rule.conditions.client_set.0);
    all.cloned().collect::<BTreeSet<_>>().into_iter().collect()
}

/// Fills `config.sets` with the contents of the sets that its rules name, and of no others. Sets
/// that it already knows are not read again.
///
/// # Errors
/// When a set must be read and there is no reader.
pub fn fill(config: &mut Config, reader: Option<&SetReader>) -> Result<(), &'static str> {
    let known = std::mem::take(&mut config.sets);
    let (old, new): (Vec<_>, Vec<_>) =
        named(&config.rules).into_iter().partition(|set| known.get(set).is_some());
    let held = match (&*new, reader) {
        ([], _) => Vec::new(),
        (new, Some(reader)) => reader.read(new),
        (_, None) => return Err(LATE),
    };
    let old = old.into_iter().filter_map(|set| known.get(&set).cloned().map(|held| (set, held)));
    let all = old.chain(new.into_iter().zip(held));
    all.for_each(|(set, held)| config.sets.insert(set, held));
    Ok(())
}

impl SetReader {
    /// Opens a reader for this configuration, if its rules name sets. Must be called before rights
    /// are given up, and before there are threads.
    ///
    /// # Errors
    /// Why sets cannot be read on this machine.
    pub fn open(config: &Config) -> Result<Option<Arc<SetReader>>, String> {
        if named(&config.rules).is_empty() {
            return Ok(None);
        }
        let helper = Helper::open().map_err(|why| format!("client_set: {why}"))?;
        Ok(Some(Arc::new(SetReader { helper: Mutex::new(helper), watched: Mutex::default() })))
    }

    /// Reads the contents of each set. A set that cannot be read keeps those in force, and is empty
    /// if it was never read.
    fn read(&self, names: &[FirewallSet]) -> Vec<Arc<[Endpoint]>> {
        let parts = |set: &FirewallSet| [set.family.clone(), set.table.clone(), set.name.clone()];
        let message = HelperMessage::Sets(names.iter().map(parts).collect());
        let answers = match lock(&self.helper).ask(&message) {
            Ok(HelperReply::Sets(answers)) if answers.len() == names.len() => answers,
            Ok(_) => vec![Err("its helper has answered something else".to_owned()); names.len()],
            Err(why) => vec![Err(why); names.len()],
        };
        let mut watched = lock(&self.watched);
        let each = names.iter().zip(answers);
        each.map(|(set, answer)| watched.take(set, answer.map(|found| endpoints(&found)))).collect()
    }

    /// Watches the sets of this configuration, which is in force from now on.
    pub fn go_by(&self, config: &Config) {
        let mut watched = lock(&self.watched);
        watched.names = named(&config.rules);
        watched.interval = config.firewall.sets_interval;
        watched.in_force = config.sets.clone();
        watched.thread.iter().for_each(Thread::unpark);
    }

    /// Starts a thread that watches the sets and calls `tell` as long as their contents differ from
    /// those in force.
    ///
    /// # Errors
    /// Lack of threads.
    pub fn watch(
        self: &Arc<SetReader>,
        tell: impl Fn(AddressSets) + Send + 'static,
    ) -> io::Result<()> {
        let reader = Arc::clone(self);
        let thread = thread::Builder::new().name("firewall sets".to_owned());
        let thread = thread.spawn(move || reader.look(tell))?;
        lock(&self.watched).thread = Some(thread.thread().clone());
        Ok(())
    }

    fn look(&self, tell: impl Fn(AddressSets)) {
        let mut rest = Duration::ZERO;
        loop {
            let names = self.wait(rest);
            let began = Instant::now();
            let held = self.read(&names);
            rest = began.elapsed() * RESTS;
            let mut sets = AddressSets::default();
            names.into_iter().zip(held).for_each(|(set, held)| sets.insert(set, held));
            if sets != lock(&self.watched).in_force {
                tell(sets);
            }
        }
    }
}

impl SetReader {
    /// Waits until sets must be read again, for `rest` at least, and returns which.
    fn wait(&self, rest: Duration) -> Vec<FirewallSet> {
        let began = Instant::now();
        loop {
            let (names, interval) = {
                let watched = lock(&self.watched);
                (watched.names.clone(), watched.interval)
            };
            // a reload unparks this thread
            match rest.max(interval).checked_sub(began.elapsed()) {
                _ if names.is_empty() => thread::park(),
                Some(left) if !left.is_zero() => thread::park_timeout(left),
                _ => return names,
            }
        }
    }
}

impl WatchedSets {
    /// The contents of a set from now on, after an attempt to read it.
    fn take(
        &mut self,
        set: &FirewallSet,
        found: Result<Arc<[Endpoint]>, String>,
    ) -> Arc<[Endpoint]> {
        let before = self.in_force.get(set);
        match found {
            Ok(found) => {
                if self.troubles.remove(set).is_some() {
                    say(format_args!("firewall: set {set}: is read again"));
                }
                // unchanged contents keep their allocation, which makes later comparisons cheap
                before.filter(|before| **before == found).cloned().unwrap_or(found)
            }
            Err(why) => {
                let kept = before.cloned().unwrap_or_default();
                if self.troubles.get(set) != Some(&why) {
                    let networks = kept.len();
                    say(format_args!(
                        "firewall: set {set}: {why}; {networks} networks that were read before stay in force"
                    ));
                    self.troubles.insert(set.clone(), why);
                }
                kept
            }
        }
    }
}

fn endpoints(found: &[(IpAddr, u8)]) -> Arc<[Endpoint]> {
    let blocks = found.iter().filter_map(|(first, len)| CidrBlock::new(*first, *len).ok());
    blocks.map(Endpoint::of_block).collect()
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(texts: &[&str]) -> Arc<[Endpoint]> {
        texts.iter().map(|text| Endpoint::parse(text).unwrap()).collect()
    }

    #[test]
    fn a_set_that_cannot_be_read_stays_as_it_was() {
        let set = FirewallSet { family: "ip".into(), table: "t".into(), name: "s".into() };
        let mut watched = WatchedSets::default();
        let away = || Err("nft says: no such set".to_owned());
        assert!(watched.take(&set, away()).is_empty());
        let held = watched.take(&set, Ok(holds(&["192.0.2.7"])));
        assert_eq!(held.len(), 1);
        assert!(watched.troubles.is_empty());
        watched.in_force.insert(set.clone(), Arc::clone(&held));
        assert!(Arc::ptr_eq(&watched.take(&set, away()), &held));
        assert!(Arc::ptr_eq(&watched.take(&set, Ok(holds(&["192.0.2.7/32"]))), &held));
        assert!(watched.take(&set, Ok(holds(&[]))).is_empty());
    }
}
