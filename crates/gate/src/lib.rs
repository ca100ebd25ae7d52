//! Rules in the kernel: a SYN that a rule refuses costs neither a socket nor a wake-up.
//!
//! A program at the TC ingress of every interface that holds our addresses (`bpf/`) looks at SYNs for our
//! listeners before the stack does. It finds the rules that decide about their four-tuple as
//! [`forebay_policy`] does, and charges the same bucket: one word, in memory that both map. It drops a SYN,
//! answers it with a reset, or leaves it to the stack; it leaves each one to the stack whose verdict needs
//! more than a SYN contains ([`forebay_policy::syn`]). In a request's journey it comes before everything
//! else.
//!
//! A gate that [steers](Gate::load_steering) answers SYNs itself, keeps no state for them, and has the kernel
//! make a connection when its first data comes, on a listening socket of the request's class
//! ([`forebay_policy::first`]). With [`judging_requests`](Gate::judging_requests), a first request that a
//! rule refuses makes no connection: the program drops it, or answers with a reset or with an error page and
//! a FIN.
//!
//! | module | what it holds |
//! |---|---|
//! | `bpf/` | the program, in C, one file for each concern |
//! | `types` | the structs of `bpf/types.h` |
//! | `lower` | rules into tables |
//! | `pages` | error pages that the program sends |
//! | `counts` | the counters |
//! | `first` | first requests that are judged: their charges and counters |
//! | `answers` | answers from the cache: those that the kernel has learnt, records of those that it gave |
//! | `kernel` | loading, links, lookups |
//! | `maps` | lowered tables as maps |
//! | `error` | the errors of a gate |
//! | `attached` | the interfaces that it is attached to, and the listeners |
//! | `filters` | attaching where there are no links, and the guard that removes filters |
//! | `handing` | the transfer of a gate to another process |
//! | `others` | other servers that are protected |
//! | `interfaces` | the interfaces of the machine |
//! | `stack` | the TCP options that the stack has switched on |
//! | `steer` | handshakes without state, and sockets of classes |
//!
//! Deliberately, the gate keeps nothing for a client except what its next SYN is judged by and what brings a
//! refused connection to its end, and it logs nothing: its counters are read. Nothing of it outlives the
//! process: links are not pinned, and filters, which replace links before Linux 6.6, are removed by [another
//! process](guard).
//!
//! ```no_run
//! use forebay_gate::{Charge, Gate};
//! use forebay_policy::{Policy, State};
//! # fn main() -> Result<(), forebay_gate::GateError> {
//! let gate = Gate::load(Charge::AtHandshake)?;
//! let policy = std::sync::Arc::new(Policy::default());
//! let tables = gate.lower(&policy)?;
//! // user space charges the same words
//! let state = State::with_words(policy, None, 0, &mut |rule, of| gate.word(rule, of), None);
//! gate.enforce(&tables)?;
//! gate.attach(&["192.0.2.1:80".parse().unwrap()])?;
//! # Ok(()) }
//! ```
#![deny(unsafe_op_in_unsafe_fn)]
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::panic, reason = "a failed step fails the test")
)]

// what tests share with the fuzz target names the crate
#[cfg(test)]
extern crate self as forebay_gate;

mod answers;
mod attached;
mod counts;
mod error;
mod filters;
mod first;
mod handing;
mod interfaces;
mod kernel;
mod lower;
mod maps;
mod others;
mod pages;
mod stack;
mod steer;
mod types;

#[cfg(test)]
mod tests;

pub use answers::{
    AnswerCount, AnswerName, AnswerRecord, AnswerRecords, KernelAnswer, KernelVariant, LearnError,
    MOST_ANSWER_BYTES, MOST_HEAD_BYTES, MOST_LINES, MOST_NAME_BYTES, SentVariant,
};
pub use counts::{Count, FirstCount};
pub use error::GateError;
pub use filters::{HandedFilters, guard};
pub use handing::{HandedGate, LAYOUT};
pub use kernel::{AnswerRoom, makes_connections};
pub use lower::Tables;
pub use others::OtherServer;
pub use steer::ClassSockets;

use crate::types::{
    CHARGED, Control, NO_SLOT, Plain, RANKS, RawEntry, RawPattern, RawPending, RawTally, RawWord,
    SLOTS, Says, Tuple, UrlRule, mapped,
};
use answers::Learning;
use attached::Attached;
use filters::Filters;
use forebay_policy::rule::Degree;
use forebay_policy::{GivenWord, Policy};
use kernel::Kernel;
use libbpf_rs::{MapCore, MapFlags};
use lower::{GateScope, PlacesOfRules};
use maps::{array, leaves, paths, per_cpu, read_u64};
use std::collections::HashMap;
use std::mem::offset_of;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::process::Command;
use std::sync::atomic::Ordering::Release;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{fmt, io};

/// A family of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    V4,
    V6,
}

impl Family {
    /// The network of all addresses of this family, in IPv6's form, with the length of its prefix.
    pub(crate) fn all(self) -> (u128, u8) {
        match self {
            Family::V4 => (Ipv4Addr::UNSPECIFIED.to_ipv6_mapped().to_bits(), 96),
            Family::V6 => (0, 0),
        }
    }
}

/// When a connection is charged to its rule's bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Charge {
    /// At the SYN, as in voigt: a client that forges addresses can empty buckets.
    AtSyn,
    /// When the client has answered the SYN-ACK and so proven its address; at the SYN the bucket is only
    /// looked at.
    #[default]
    AtHandshake,
}

/// The counts of SYNs, handshakes and first requests that a rule decided about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// SYNs within the rule's limit on connections, and first requests within that on requests.
    pub admitted: u64,
    /// All that were refused silently.
    pub dropped: u64,
    /// All that were refused with a reset.
    pub reset: u64,
    /// First requests that were refused with an error page.
    pub answered: u64,
    /// First requests among the refused, in whatever way; the others are SYNs, handshakes and connections.
    pub requests: u64,
}

/// The programs in the kernel, with the maps that they share with this process.
pub struct Gate {
    kernel: Kernel,
    slots: Mutex<RuleSlots>,
    attached: Mutex<Attached>,
    /// Links of the previous gate, by interface, until they have this program.
    handed: Mutex<HashMap<u32, OwnedFd>>,
    /// The filters, where the gate is not attached by links.
    filters: Option<Mutex<Filters>>,
    /// The set of tables in force.
    table: Mutex<u32>,
    steering: Option<Mutex<steer::Steering>>,
    /// The error pages, where first requests are judged.
    pages: Option<Mutex<pages::KernelPages>>,
    /// The answers that the kernel has learnt, where requests are answered from the cache.
    learning: Option<Mutex<Learning>>,
}

/// The slots of rules, by name. A slot is never given to another rule: user space may still charge its
/// word.
#[derive(Default)]
struct RuleSlots {
    by_name: HashMap<Box<str>, u32>,
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").field("interfaces", &self.interfaces()).finish_non_exhaustive()
    }
}

impl Gate {
    /// Loads the program. It is attached to nothing, and no rule is in force.
    ///
    /// # Errors
    /// [`GateError::Load`]: no rights, or a kernel that is too old.
    pub fn load(charge: Charge) -> Result<Gate, GateError> {
        Gate::with(Kernel::load(false, None, &[])?, charge)
    }

    fn with(kernel: Kernel, charge: Charge) -> Result<Gate, GateError> {
        let gate = Gate {
            kernel,
            slots: Mutex::default(),
            attached: Mutex::default(),
            handed: Mutex::default(),
            filters: None,
            table: Mutex::new(0),
            steering: None,
            pages: None,
            learning: None,
        };
        gate.control(kernel::CONTROL_CHARGE, u32::from(charge == Charge::AtHandshake));
        gate.enforce(&Tables::default())?;
        Ok(gate)
    }

    /// Whether the kernel has links at TC, which vanish with the process (Linux 6.6). Without them, the gate
    /// has to be attached [by filters](Gate::by_filters).
    pub fn has_links(&self) -> bool {
        self.kernel.has_links()
    }

    /// Has this gate attached by filters at clsact. Starts `guard`, with a standard input of its own; the
    /// process has to call [`guard`], and ends after the gate does.
    ///
    /// # Errors
    /// [`GateError::Guard`].
    pub fn by_filters(mut self, guard: &mut Command) -> Result<Gate, GateError> {
        let filters = Filters::begin(guard).map_err(GateError::Guard)?;
        self.filters = Some(Mutex::new(filters));
        Ok(self)
    }

    /// Tries whether the gate could be attached by filters, and leaves nothing behind. For `forebay doctor`.
    ///
    /// # Errors
    /// [`GateError::Attach`].
    pub fn try_filters(&self) -> Result<(), GateError> {
        filters::try_attach(self.kernel.caller()).map_err(|error| {
            let interface = "a loopback".to_owned();
            GateError::Attach { interface, by_filter: true, error }
        })
    }

    /// Whether the gate is attached by filters.
    pub fn has_filters(&self) -> bool {
        self.filters.is_some()
    }

    /// Turns the part of a policy that the kernel can apply into tables. Rules keep their slots by name.
    ///
    /// # Errors
    /// [`GateError::TooMany`].
    pub fn lower(&self, policy: &Policy) -> Result<Tables, GateError> {
        let scope = match (&self.steering, &self.pages) {
            (None, _) => GateScope::Connections,
            (Some(_), None) => GateScope::Classes,
            (Some(_), Some(_)) if self.answers_requests() => GateScope::Answers,
            (Some(_), Some(_)) => GateScope::FirstRequests,
        };
        let mut slot = |name: &str| self.slot(name);
        let mut page = |status, retry_after_s| self.page(status, retry_after_s);
        let mut tables = lower::lower(policy, scope, PlacesOfRules::new(&mut slot, &mut page))?;
        if self.steers() {
            let classes = policy.classes().iter();
            tables.class_slots = classes.map(|class| self.slot(&of_class(&class.name))).collect();
        }
        Ok(tables)
    }

    fn slot(&self, name: &str) -> Option<u32> {
        let by_name = &mut lock(&self.slots).by_name;
        if let Some(slot) = by_name.get(name) {
            return Some(*slot);
        }
        let slot = u32::try_from(by_name.len()).ok().filter(|slot| (*slot as usize) < SLOTS)?;
        by_name.insert(name.into(), slot);
        Some(slot)
    }

    /// The word of a rule or class with this name that the kernel charges or reads, if it was
    /// [lowered](Gate::lower).
    pub fn word(&self, rule: &str, of: GivenWord) -> Option<&'static AtomicU64> {
        let at = match of {
            GivenWord::Connections => offset_of!(RawWord, arrival),
            GivenWord::Requests => offset_of!(RawWord, requests),
            GivenWord::FullUntil => offset_of!(RawWord, full_until),
            GivenWord::Interval | GivenWord::ClassInterval => offset_of!(RawWord, interval_ns),
            GivenWord::ClassConnections => offset_of!(RawWord, arrival),
        };
        let by_name = &lock(&self.slots).by_name;
        let slot = *match of {
            GivenWord::Connections => by_name.get(rule),
            GivenWord::Requests | GivenWord::FullUntil | GivenWord::Interval => {
                by_name.get(rule).filter(|_| self.judges_requests())
            }
            GivenWord::ClassConnections | GivenWord::ClassInterval => {
                by_name.get(of_class(rule).as_str()).filter(|_| self.steers())
            }
        }?;
        self.kernel.words.word(slot as usize * size_of::<RawWord>() + at)
    }

    /// Puts tables in force, from one packet to the next.
    ///
    /// # Errors
    /// Errors of the kernel; then the earlier tables stay in force.
    pub fn enforce(&self, tables: &Tables) -> Result<(), GateError> {
        let mut table = lock(&self.table);
        // all that the new rules refer to is written first: the store to `CONTROL_TABLE` puts them in force
        let next = 1 - *table;
        let outer = &self.kernel.tables;
        let (syn, url) = (&tables.syn, &tables.url.lists);
        for (outer, inner) in [
            (&outer.clients4, leaves(&syn.clients4, Family::V4)?),
            (&outer.clients6, leaves(&syn.clients6, Family::V6)?),
            (&outer.entries, array::<RawEntry>(&syn.entries)?),
            (&outer.rules, array::<Says>(&tables.rules)?),
            (&outer.url_clients4, leaves(&url.clients4, Family::V4)?),
            (&outer.url_clients6, leaves(&url.clients6, Family::V6)?),
            (&outer.url_paths, paths(&tables.url.paths)?),
            (&outer.hello_clients4, leaves(&tables.url.hello_clients4, Family::V4)?),
            (&outer.hello_clients6, leaves(&tables.url.hello_clients6, Family::V6)?),
            (&outer.url_entries, array::<RawEntry>(&url.entries)?),
            (&outer.url_rules, array::<UrlRule>(&tables.url.rules)?),
            (&outer.patterns, array::<RawPattern>(&tables.url.patterns)?),
        ] {
            kernel::place(outer, next, &inner)?;
        }
        self.place_classes(next, &tables.class_slots)?;
        self.write_pages()?;
        self.control(kernel::CONTROL_READS_COOKIES, u32::from(tables.url.reads_cookies));
        self.control(kernel::CONTROL_DEFAULT_RANK, tables.url.default_rank);
        self.control(kernel::CONTROL_IGNORES, u32::from(tables.ignores));
        self.control(kernel::CONTROL_TABLE, next);
        self.control(kernel::CONTROL_JUDGES, u32::from(tables.judges));
        *table = next;
        self.wants_classes(tables.url.ranks > 0);
        Ok(())
    }

    /// Writes the slot of each class into the kernel's table, by rank.
    fn place_classes(&self, table: u32, slots: &[Option<u32>]) -> Result<(), GateError> {
        for rank in 0..RANKS {
            let slot = slots.get(rank as usize).copied().flatten().unwrap_or(NO_SLOT);
            let at = (table * RANKS + rank).to_ne_bytes();
            let ranks = &self.kernel.ranks;
            ranks.update(&at, &slot.to_ne_bytes(), MapFlags::ANY).map_err(kernel::plain)?;
        }
        Ok(())
    }

    /// Sets the degree of overload: rules that hold from a higher one on do not count. One store.
    pub fn set_degree(&self, degree: Degree) {
        self.control(kernel::CONTROL_DEGREE, u32::from(degree.number()));
    }

    fn control(&self, at: usize, value: u32) {
        if let Some(word) = self.kernel.control.word::<AtomicU32>(at) {
            word.store(value, Release);
        }
    }

    /// Whether this connection, which was just accepted, has been charged to the rule with this slot; a
    /// second call returns false. One system call.
    pub fn take_charged(&self, client: SocketAddr, local: SocketAddr, slot: u32) -> bool {
        let known: Option<RawPending> =
            kernel::take(&self.kernel.pending, &Tuple::between(client, local));
        known.is_some_and(|pending| pending.state == CHARGED && pending.slot == slot)
    }

    /// Drops the SYNs of a client, an IPv4 address or an IPv6 /64, until `until_ns` (`CLOCK_MONOTONIC`).
    /// The client must have proven its address.
    pub fn ignore(&self, client: IpAddr, until_ns: u64) {
        let mut key = mapped(client);
        if client.to_canonical().is_ipv6() {
            key[8..].fill(0);
        }
        // a full LRU map makes room by itself
        let _ = self.kernel.ignored.update(&key, &until_ns.to_ne_bytes(), MapFlags::ANY);
    }

    /// The counters since the gate was loaded, in the order of [`Count::ALL`].
    pub fn counts(&self) -> [u64; Count::ALL.len()] {
        let mut counts = [0; Count::ALL.len()];
        for (at, count) in counts.iter_mut().enumerate() {
            let numbers = per_cpu(&self.kernel.counts, at as u32);
            *count = numbers.iter().filter_map(|bytes| read_u64(bytes)).sum();
        }
        counts
    }

    /// The tallies of all rules that have had a slot, sorted by name.
    pub fn tallies(&self) -> Vec<(Box<str>, Tally)> {
        let slots: Vec<(Box<str>, u32)> = {
            let slots = lock(&self.slots);
            let rules = slots.by_name.iter().filter(|(name, _)| !name.starts_with(OF_CLASS));
            rules.map(|(name, slot)| (name.clone(), *slot)).collect()
        };
        let mut tallies: Vec<_> =
            slots.into_iter().map(|(name, slot)| (name, self.tally_of(slot))).collect();
        tallies.sort_by(|(one, _), (other, _)| one.cmp(other));
        tallies
    }

    /// The numbers of a class's first requests within what the agent admits, and beyond it.
    pub fn paced(&self, class: &str) -> (u64, u64) {
        let Tally { admitted, dropped, .. } = self.tally(&of_class(class));
        (admitted, dropped)
    }

    /// The tally of one rule.
    pub fn tally(&self, rule: &str) -> Tally {
        let slot = lock(&self.slots).by_name.get(rule).copied();
        slot.map(|slot| self.tally_of(slot)).unwrap_or_default()
    }

    fn tally_of(&self, slot: u32) -> Tally {
        let of_cpus = per_cpu(&self.kernel.tallies, slot);
        let of_cpus = of_cpus.iter().filter_map(|bytes| RawTally::of(bytes));
        of_cpus.fold(Tally::default(), |sum, one| Tally {
            admitted: sum.admitted + one.admitted,
            dropped: sum.dropped + one.dropped,
            reset: sum.reset + one.reset,
            answered: sum.answered + one.answered,
            requests: sum.requests + one.requests,
        })
    }

    /// Runs the program on a packet that begins with its Ethernet header, as if it came to the loopback of
    /// this network namespace; returns the verdict and the packet as the program left it. For tests.
    ///
    /// # Errors
    /// Errors of the kernel, mostly of packets that are too short.
    pub fn run_on(&self, packet: &[u8]) -> io::Result<(u32, Vec<u8>)> {
        self.kernel.run_on(packet, 1).map(|(verdict, packet, _)| (verdict, packet))
    }

    /// Runs the program `times` times on a packet; returns the nanoseconds of one run on average.
    ///
    /// # Errors
    /// As [`run_on`](Gate::run_on).
    pub fn time_on(&self, packet: &[u8], times: u32) -> io::Result<u32> {
        self.kernel.run_on(packet, times).map(|(.., ns)| ns)
    }
}

const _: () = assert!(size_of::<RawWord>() == 64);
const _: () = assert!(size_of::<Control>() == 64);

/// The first character of a class's key among the names of rules, none of which begins with it.
const OF_CLASS: char = '\0';

/// The key by which the slot of a class is found.
fn of_class(class: &str) -> String {
    format!("{OF_CLASS}{class}")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
