//! The part of a policy that the kernel enforces, if this program was built with the gate.
//!
//! In: the compiled policy, the level of overload. Out: which rules the kernel enforces, whether a
//! connection was charged there, what the kernel has counted. The server does the rest as without the
//! kernel: the policy is the same.
//!
//! Built without the feature `gate`, no value of [`KernelGate`] exists, and nothing here is reached.

use forebay_metrics::{GateClass, GateFigures};
use forebay_policy::facts::ConnectionFacts;
use forebay_policy::rule::Degree;
use forebay_policy::{GivenWord, Policy};
use forebay_sys::stderr::say;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

#[cfg(feature = "gate")]
mod kernel;
#[cfg(not(feature = "gate"))]
#[path = "enforced/without.rs"]
mod kernel;

pub use kernel::{GivenAnswers, KernelGate, KernelTables, guard, is_built, makes_connections};

/// The sockets of a listener's classes.
#[derive(Debug)]
pub struct OfClasses<'l> {
    /// The address that their connections come to.
    pub address: SocketAddr,
    /// Whether TLS is spoken at that address.
    pub speaks_tls: bool,
    /// The sockets of each class, by rank.
    pub sockets: Vec<Vec<BorrowedFd<'l>>>,
}

/// Another server, whose connections the kernel judges as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProtectedServer {
    /// The machine to which packets for the server are passed on; `None` if the server is on this one.
    pub forwarded_to: Option<IpAddr>,
    /// The server's port.
    pub port: u16,
    /// How many connections may wait in the server's queue before classes below the first get none.
    pub queue: u32,
    /// Whether the server sends the first bytes; then only its SYNs are judged.
    pub speaks_first: bool,
}

/// The text that a gate hands to the gate of another process. Descriptors follow: of the maps, of the
/// links, and two if the gate is attached by filters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandedKernel {
    /// The number of the layout of the maps' content.
    pub layout: u32,
    /// Whether the gate answers SYNs.
    pub steers: bool,
    /// The place of each rule, by the rule's name.
    pub slots: Vec<(String, u32)>,
    /// The names of the maps.
    pub maps: Vec<String>,
    /// The links, by interface.
    pub links: Vec<u32>,
    /// The number of the gate, and the process that removes its filters.
    pub filters: Option<(u32, u32)>,
}

impl HandedKernel {
    /// The number of descriptors that follow.
    pub fn descriptors(&self) -> usize {
        self.maps.len() + self.links.len() + 2 * usize::from(self.filters.is_some())
    }
}

/// The part of a policy that the kernel enforces.
#[derive(Debug)]
pub struct Enforced {
    gate: Arc<KernelGate>,
    tables: KernelTables,
    /// The number of classes, and their names.
    ranks: usize,
    classes: Box<[Box<str>]>,
}

impl Enforced {
    /// Compiles the part of the policy that the gate can enforce; nothing is in force yet.
    pub fn new(gate: Arc<KernelGate>, policy: &Policy) -> Enforced {
        let tables = gate.lower(policy).unwrap_or_else(|why| {
            say(format_args!("gate: {why}; they are all enforced by the server alone"));
            KernelTables::default()
        });
        let classes = policy.classes().iter().map(|class| class.name.as_str().into());
        Enforced { gate, tables, ranks: policy.classes().len(), classes: classes.collect() }
    }

    /// The gate itself.
    pub fn gate(&self) -> Arc<KernelGate> {
        Arc::clone(&self.gate)
    }

    /// The counter that the kernel charges, or reads, for the rule with this name.
    pub fn word(&self, rule: &str, of: GivenWord) -> Option<&'static AtomicU64> {
        self.gate.word(rule, of)
    }

    /// Whether the kernel charges any rule.
    pub fn charges(&self) -> bool {
        self.tables.charge() || self.charges_requests()
    }

    /// Whether the kernel charges first requests to any rule.
    pub fn charges_requests(&self) -> bool {
        self.tables.charge_requests()
    }

    /// The rule to which the kernel has charged the first request of this connection, if it has. Each
    /// charge is returned once.
    pub fn take_charged_request(&self, ends: &ConnectionFacts) -> Option<u32> {
        let slot = self.gate.take_charged_request(ends.client, ends.local)?;
        self.tables.rule_of_requests(slot)
    }

    /// Whether the kernel charges this rule.
    pub fn charges_rule(&self, rule: u32) -> bool {
        self.tables.slot(rule).is_some()
    }

    /// Has the kernel judge by this policy.
    pub fn enforce(&self) {
        if let Err(why) = self.gate.enforce(&self.tables) {
            say(format_args!("gate: {why}; the rules before stay in force in the kernel"));
        }
    }

    /// Sets the degree of overload, from which rules with that degree or a lower one count.
    pub fn set_degree(&self, degree: Degree) {
        self.gate.set_degree(degree);
    }

    /// Whether the kernel has charged this newly accepted connection to this rule.
    pub fn take_charged(&self, ends: &ConnectionFacts, rule: u32) -> bool {
        let slot = self.tables.slot(rule);
        slot.is_some_and(|slot| self.gate.take_charged(ends.client, ends.local, slot))
    }

    /// Drops SYNs of a client until then.
    pub fn ignore(&self, client: IpAddr, until_ns: u64) {
        self.gate.ignore(client, until_ns);
    }

    /// For how many connections the kernel has found the class of their first request, by rank.
    pub fn first_requests(&self) -> Vec<u64> {
        self.gate.first_requests(self.ranks)
    }

    /// How many first requests the kernel has found within what the agent admits of their class, and how
    /// many beyond, by rank.
    pub fn paced(&self) -> impl Iterator<Item = (u64, u64)> {
        self.classes.iter().map(|class| self.gate.paced(class))
    }

    /// How many first requests the kernel has refused because of a rule.
    pub fn refused_by(&self, rule: &str) -> u64 {
        self.gate.refused_by(rule)
    }

    /// The counts of the gate.
    pub fn figures(&self) -> GateFigures {
        let classes = self.classes.iter().zip(self.paced());
        let classes = classes.map(|(class, (admitted, dropped))| GateClass {
            name: class.to_string(),
            admitted,
            dropped,
        });
        GateFigures { classes: classes.collect(), ..self.gate.figures(self.ranks) }
    }
}
