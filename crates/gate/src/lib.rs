//! Rules in the kernel: a SYN that a rule refuses costs neither a socket nor a wake-up.
//!
//! A program at the TC ingress of every interface that holds our addresses (`bpf/`) looks at SYNs for
//! our listeners, before the stack does. It finds the rules that decide about their four-tuple as
//! [`forebay_policy`] does, and charges the same bucket: one word, in memory that both map. It drops a
//! SYN, answers it with a reset, or leaves it to the stack, and it leaves it whenever more is needed
//! than a SYN tells ([`forebay_policy::syn`]). It stands before everything else in a request's journey.
//!
//! A gate that [steers](Gate::load_steering) answers SYNs itself, keeps nothing for them, and has the kernel
//! make a connection when its first data comes, on a listening socket of the class that the request has
//! ([`forebay_policy::first`]).
//!
//! | module | what it holds |
//! |---|---|
//! | `bpf/` | the program, in C, one file for each concern |
//! | `types` | the structs of `bpf/types.h` |
//! | `lower` | rules into tables |
//! | `kernel` | loading, links, maps |
//! | `attached` | on which interfaces it is, for which listeners |
//! | `filters` | how it is attached where there are no links, and who takes it away |
//! | `interfaces` | which interfaces there are |
//! | `stack` | what the stack has switched on |
//! | `steer` | handshakes without state, and sockets of classes |
//!
//! It deliberately keeps nothing for a client but what its next SYN is judged by, answers no request, and says nothing to anybody: what
//! it counts is asked for. Nothing of it outlives the process: links are not pinned, and filters, in the place
//! of links before Linux 6.6, are taken away by [another process](guard).
//!
//! ```no_run
//! use forebay_gate::{Charge, Gate};
//! use forebay_policy::{Policy, State};
//! # fn main() -> Result<(), forebay_gate::GateError> {
//! let gate = Gate::load(Charge::AtHandshake)?;
//! let policy = std::sync::Arc::new(Policy::default());
//! let tables = gate.lower(&policy)?;
//! // user space charges the same words
//! let state = State::with_words(policy, None, 0, &mut |rule| gate.word(rule));
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

mod attached;
mod filters;
mod interfaces;
mod kernel;
mod lower;
mod stack;
mod steer;
mod types;

#[cfg(test)]
mod tests;

pub use filters::guard;
pub use kernel::makes_connections;
pub use lower::Tables;
pub use steer::ClassSockets;
pub use types::Count;

use crate::types::{
    CHARGED, Control, PATH_KEY_BYTES, Plain, RawEntry, RawPattern, RawPending, RawTally, SLOTS,
    Says, Tuple, UrlRule,
};
use attached::Attached;
use filters::Filters;
use forebay_policy::Policy;
use forebay_policy::rule::Degree;
use kernel::Kernel;
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
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
    /// All its addresses, and how many bits they share.
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
    /// When its SYN comes, as voigt has it: whoever invents addresses empties buckets.
    AtSyn,
    /// When its client has answered the SYN-ACK, so that the address is its own; the SYN only looks
    /// whether there is anything left.
    #[default]
    AtHandshake,
}

/// Why there is no gate.
#[derive(Debug)]
pub enum GateError {
    /// The program could not be loaded.
    Load {
        /// What the kernel answered.
        error: String,
        /// All that was said meanwhile, for those who look for the reason.
        said: String,
    },
    /// It could not be attached.
    Attach {
        /// To which interface.
        interface: String,
        /// By a filter, not by a link.
        by_filter: bool,
        /// What the kernel said.
        error: io::Error,
    },
    /// There is nobody who takes filters away when this process is killed.
    Guard(io::Error),
    /// A map could not be written, or interfaces not be listed.
    Kernel(io::Error),
    /// The rules about addresses are too many.
    TooMany,
    /// Class sockets are too many.
    TooManySockets,
    /// Connections cannot be made of cookies: why.
    CannotSteer(&'static str),
}

impl fmt::Display for GateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GateError::Load { error, said } => {
                write!(f, "the kernel takes no program: {error}")?;
                // libbpf's last line says what it was about
                match said.lines().rev().find(|line| line.contains("libbpf: ")) {
                    Some(line) => write!(f, " ({})", line.trim()),
                    None => Ok(()),
                }
            }
            GateError::Attach { interface, by_filter, error } => {
                let way =
                    if *by_filter { "filter at clsact (sch_ingress, cls_bpf)" } else { "link" };
                write!(f, "cannot attach to {interface} by a {way}: {error}")
            }
            GateError::Guard(error) => {
                write!(f, "the process that takes its filters away: {error}")
            }
            GateError::Kernel(error) => write!(f, "the kernel refuses: {error}"),
            GateError::TooMany => f.write_str(
                "there are too many rules about addresses: of those that can match one client, \
                 4096 fit, and 1048576 in all",
            ),
            GateError::TooManySockets => {
                f.write_str("there are too many sockets of classes: 32768 fit")
            }
            GateError::CannotSteer(why) => write!(f, "no handshakes without state: {why}"),
        }
    }
}

impl std::error::Error for GateError {}

impl From<io::Error> for GateError {
    fn from(error: io::Error) -> GateError {
        GateError::Kernel(error)
    }
}

/// What became of SYNs and handshakes that a rule decided about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// SYNs within its limit.
    pub admitted: u64,
    /// Refused by silence.
    pub dropped: u64,
    /// Refused by a reset.
    pub reset: u64,
}

/// The programs in the kernel, and what they share with this process.
pub struct Gate {
    kernel: Kernel,
    slots: Mutex<RuleSlots>,
    attached: Mutex<Attached>,
    /// Where it is not attached by links.
    filters: Option<Mutex<Filters>>,
    /// The set of tables in force.
    table: Mutex<u32>,
    steering: Option<Mutex<steer::Steering>>,
}

/// Which rule has which place, by name. A place is never given to another rule: user space may still
/// charge its word.
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
        Gate::with(Kernel::load(false)?, charge)
    }

    fn with(kernel: Kernel, charge: Charge) -> Result<Gate, GateError> {
        let gate = Gate {
            kernel,
            slots: Mutex::default(),
            attached: Mutex::default(),
            filters: None,
            table: Mutex::new(0),
            steering: None,
        };
        gate.control(kernel::CONTROL_CHARGE, u32::from(charge == Charge::AtHandshake));
        gate.enforce(&Tables::default())?;
        Ok(gate)
    }

    /// Whether the kernel has links at TC, which go with the process (Linux 6.6). Where it has not, the gate
    /// is to be attached [by filters](Gate::by_filters).
    pub fn has_links(&self) -> bool {
        self.kernel.has_links()
    }

    /// The same gate, which is attached by filters at clsact. `guard` is started now, with a standard input of
    /// its own, and is to call [`guard`]; it ends after the gate does.
    ///
    /// # Errors
    /// [`GateError::Guard`].
    pub fn by_filters(mut self, guard: &mut Command) -> Result<Gate, GateError> {
        let filters = Filters::begin(guard).map_err(GateError::Guard)?;
        self.filters = Some(Mutex::new(filters));
        Ok(self)
    }

    /// Whether it could be attached by filters; nothing of it stays. For `forebay doctor`.
    ///
    /// # Errors
    /// [`GateError::Attach`].
    pub fn try_filters(&self) -> Result<(), GateError> {
        filters::try_attach(self.kernel.caller()).map_err(|error| {
            let interface = "a loopback".to_owned();
            GateError::Attach { interface, by_filter: true, error }
        })
    }

    /// Whether filters are what it is attached by.
    pub fn has_filters(&self) -> bool {
        self.filters.is_some()
    }

    /// What the kernel can do of a policy. Rules keep their places by name.
    ///
    /// # Errors
    /// [`GateError::TooMany`].
    pub fn lower(&self, policy: &Policy) -> Result<Tables, GateError> {
        lower::lower(policy, self.steering.is_some(), |name| self.slot(name))
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

    /// The word of the bucket that the kernel charges for the rule with this name, if it was
    /// [lowered](Gate::lower).
    pub fn word(&self, rule: &str) -> Option<&'static AtomicU64> {
        let slot = *lock(&self.slots).by_name.get(rule)?;
        self.kernel.words.word(slot as usize * WORD_BYTES)
    }

    /// Puts tables in force, from one packet to the next.
    ///
    /// # Errors
    /// What the kernel says; then the tables before stay in force.
    pub fn enforce(&self, tables: &Tables) -> Result<(), GateError> {
        let mut table = lock(&self.table);
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
        self.control(kernel::CONTROL_IGNORES, u32::from(tables.ignores));
        self.control(kernel::CONTROL_TABLE, next);
        *table = next;
        self.wants_classes(tables.url.ranks > 0);
        Ok(())
    }

    /// From which degree of overload on rules count. It costs one store.
    pub fn set_degree(&self, degree: Degree) {
        self.control(kernel::CONTROL_DEGREE, u32::from(degree.number()));
    }

    fn control(&self, at: usize, value: u32) {
        if let Some(word) = self.kernel.control.word::<AtomicU32>(at) {
            word.store(value, Release);
        }
    }

    /// Whether this connection, which was just accepted, has been charged to the rule that has this
    /// slot. It is asked once: then it is forgotten. One system call.
    pub fn take_charged(&self, client: SocketAddr, local: SocketAddr, slot: u32) -> bool {
        let key = Tuple {
            client: mapped(client.ip()),
            local: mapped(local.ip()),
            client_port: client.port().to_be(),
            local_port: local.port().to_be(),
        };
        let known: Option<RawPending> = kernel::take(&self.kernel.pending, &key);
        known.is_some_and(|pending| pending.state == CHARGED && pending.slot == slot)
    }

    /// Drops SYNs of a client, an IPv4 address or an IPv6 /64, until then (`CLOCK_MONOTONIC`). The
    /// client must have proven its address.
    pub fn ignore(&self, client: IpAddr, until_ns: u64) {
        let mut key = mapped(client);
        if client.to_canonical().is_ipv6() {
            key[8..].fill(0);
        }
        // a full map makes room by itself
        let _ = self.kernel.ignored.update(&key, &until_ns.to_ne_bytes(), MapFlags::ANY);
    }

    /// What was counted since the gate was loaded, in the order of [`Count::ALL`].
    pub fn counts(&self) -> [u64; Count::ALL.len()] {
        let mut counts = [0; Count::ALL.len()];
        for (at, count) in counts.iter_mut().enumerate() {
            let numbers = per_cpu(&self.kernel.counts, at as u32);
            *count = numbers.iter().filter_map(|bytes| read_u64(bytes)).sum();
        }
        counts
    }

    /// What became of SYNs that rules decided about, for all rules that have had a place, by name.
    pub fn tallies(&self) -> Vec<(Box<str>, Tally)> {
        let slots: Vec<(Box<str>, u32)> = {
            let slots = lock(&self.slots);
            slots.by_name.iter().map(|(name, slot)| (name.clone(), *slot)).collect()
        };
        let mut tallies: Vec<_> =
            slots.into_iter().map(|(name, slot)| (name, self.tally_of(slot))).collect();
        tallies.sort_by(|(one, _), (other, _)| one.cmp(other));
        tallies
    }

    /// That of one rule.
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
        })
    }

    /// Runs the program on a packet that begins with its Ethernet head, as if it came to the loopback
    /// of this network namespace: the verdict, and the packet as it is then. For tests.
    ///
    /// # Errors
    /// What the kernel says, of packets that are too short above all.
    pub fn run_on(&self, packet: &[u8]) -> io::Result<(u32, Vec<u8>)> {
        self.kernel.run_on(packet, 1).map(|(verdict, packet, _)| (verdict, packet))
    }

    /// Runs it so many times, and says how many nanoseconds one run took on average.
    ///
    /// # Errors
    /// As [`run_on`](Gate::run_on).
    pub fn time_on(&self, packet: &[u8], times: u32) -> io::Result<u32> {
        self.kernel.run_on(packet, times).map(|(.., ns)| ns)
    }
}

/// Of one bucket in the map of words.
const WORD_BYTES: usize = 64;
const NO_PREALLOC: u32 = 1;
const INNER_MAP: u32 = 1 << 12;

const _: () = assert!(size_of::<Control>() == 28);

fn leaves(leaves: &[lower::Leaf], family: Family) -> io::Result<MapHandle> {
    let (_, shared) = family.all();
    let address_bytes = usize::from(128 - shared) / 8;
    let kind = MapType::LpmTrie;
    let (key_bytes, value_bytes) = (4 + address_bytes, size_of::<types::RawList>());
    // LPM tries are always allocated as they grow
    let trie = kernel::table(kind, key_bytes, value_bytes, leaves.len(), NO_PREALLOC)?;
    for leaf in leaves {
        let mut key = u32::from(leaf.len - shared).to_ne_bytes().to_vec();
        key.extend(&leaf.first.to_be_bytes()[16 - address_bytes..]);
        trie.update(&key, leaf.list.bytes(), MapFlags::ANY).map_err(kernel::plain)?;
    }
    Ok(trie)
}

fn paths(leaves: &[lower::url::PathLeaf]) -> io::Result<MapHandle> {
    let (kind, value_bytes) = (MapType::LpmTrie, size_of::<types::RawList>());
    let trie = kernel::table(kind, PATH_KEY_BYTES, value_bytes, leaves.len(), NO_PREALLOC)?;
    for leaf in leaves {
        let mut key = (leaf.beginning.len() as u32 * 8).to_ne_bytes().to_vec();
        key.extend(&leaf.beginning);
        key.resize(PATH_KEY_BYTES, 0);
        trie.update(&key, leaf.list.bytes(), MapFlags::ANY).map_err(kernel::plain)?;
    }
    Ok(trie)
}

fn array<T: Plain>(values: &[T]) -> io::Result<MapHandle> {
    let array = kernel::table(MapType::Array, 4, size_of::<T>(), values.len(), INNER_MAP)?;
    for (at, value) in (0_u32..).zip(values) {
        array.update(&at.to_ne_bytes(), value.bytes(), MapFlags::ANY).map_err(kernel::plain)?;
    }
    Ok(array)
}

fn per_cpu(map: &MapHandle, at: u32) -> Vec<Vec<u8>> {
    map.lookup_percpu(&at.to_ne_bytes(), MapFlags::ANY).ok().flatten().unwrap_or_default()
}

fn read_u64(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(..8)?.try_into().ok()?))
}

/// In IPv6's form.
fn mapped(address: IpAddr) -> [u8; 16] {
    match address.to_canonical() {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
