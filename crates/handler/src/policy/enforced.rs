//! What the kernel does of a policy, as far as this program was built with the gate.
//!
//! In: the compiled policy, the level of overload. Out: which rules the kernel enforces, whether a connection
//! was charged there, what it has counted. What the kernel does not do, the server does as without it: the
//! policy is the same.
//!
//! Built without the feature `gate`, there is no value of [`KernelGate`], and nothing of this is
//! reached.

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

/// The sockets of classes of one listener.
#[derive(Debug)]
pub struct OfClasses<'l> {
    /// The address that their connections come to.
    pub address: SocketAddr,
    /// Whether TLS is spoken there.
    pub speaks_tls: bool,
    /// By rank.
    pub sockets: Vec<Vec<BorrowedFd<'l>>>,
}

/// A server besides this one whose connections the kernel judges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProtectedServer {
    /// The machine that packets for it are passed on to; `None` if it is this one.
    pub forwarded_to: Option<IpAddr>,
    /// Its port.
    pub port: u16,
    /// So many connections may wait in its queue before one of a class below the first is made.
    pub queue: u32,
    /// The server is the first to say something, so that its SYNs alone are judged.
    pub speaks_first: bool,
}

/// What a gate hands to that of another process, as a text. Descriptors follow: of the maps, of the links, and two if
/// it is attached by filters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandedKernel {
    /// What the content of the maps means.
    pub layout: u32,
    /// Whether it answers SYNs.
    pub steers: bool,
    /// Which rule has which place, by name.
    pub slots: Vec<(String, u32)>,
    /// By name.
    pub maps: Vec<String>,
    /// By interface.
    pub links: Vec<u32>,
    /// The number of the gate, and the process that takes its filters away.
    pub filters: Option<(u32, u32)>,
}

impl HandedKernel {
    /// How many descriptors belong to it.
    pub fn descriptors(&self) -> usize {
        self.maps.len() + self.links.len() + 2 * usize::from(self.filters.is_some())
    }
}

/// What the kernel does of a policy.
#[derive(Debug)]
pub struct Enforced {
    gate: Arc<KernelGate>,
    tables: KernelTables,
    /// How many classes there are, and what they are called.
    ranks: usize,
    classes: Box<[Box<str>]>,
}

impl Enforced {
    /// What it can do of it; nothing is in force yet.
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

    /// The word that the kernel charges, or reads, for the rule with this name.
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

    /// The rule that the kernel has charged the first request of this connection to, if it has. It is asked once.
    pub fn take_charged_request(&self, ends: &ConnectionFacts) -> Option<u32> {
        let slot = self.gate.take_charged_request(ends.client, ends.local)?;
        self.tables.rule_of_requests(slot)
    }

    /// Whether the kernel charges this rule.
    pub fn charges_rule(&self, rule: u32) -> bool {
        self.tables.slot(rule).is_some()
    }

    /// Has the kernel judge by the policy.
    pub fn enforce(&self) {
        if let Err(why) = self.gate.enforce(&self.tables) {
            say(format_args!("gate: {why}; the rules before stay in force in the kernel"));
        }
    }

    /// From which degree of overload on rules count.
    pub fn set_degree(&self, degree: Degree) {
        self.gate.set_degree(degree);
    }

    /// Whether this connection, which was just accepted, has been charged to this rule in the kernel.
    pub fn take_charged(&self, ends: &ConnectionFacts, rule: u32) -> bool {
        let slot = self.tables.slot(rule);
        slot.is_some_and(|slot| self.gate.take_charged(ends.client, ends.local, slot))
    }

    /// Drops SYNs of a client until then.
    pub fn ignore(&self, client: IpAddr, until_ns: u64) {
        self.gate.ignore(client, until_ns);
    }

    /// By rank, for how many connections the kernel has found that it is that of their first request.
    pub fn first_requests(&self) -> Vec<u64> {
        self.gate.first_requests(self.ranks)
    }

    /// By rank, how many first requests were within what the agent admits of their class, and how many were not, in
    /// the kernel.
    pub fn paced(&self) -> impl Iterator<Item = (u64, u64)> {
        self.classes.iter().map(|class| self.gate.paced(class))
    }

    /// How many first requests a rule has refused in the kernel.
    pub fn refused_by(&self, rule: &str) -> u64 {
        self.gate.refused_by(rule)
    }

    /// What was counted.
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
