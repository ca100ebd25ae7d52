//! Rules in the kernel, as far as this program was built with it and this machine can.
//!
//! In: the compiled policy, the addresses that are listened on, the level of overload. Out: which rules
//! the kernel enforces, whether a connection was charged there, what it has counted. What the kernel
//! does not do, the server does as without it: the policy is the same.
//!
//! Built without the feature `gate`, there is no value of [`KernelGate`], and nothing of this is
//! reached.

use crate::listen::{ListenAddress, Listeners};
use crate::plan::{GroupPlan, Plan};
use forebay_config::{GateCharge, GateMode};
use forebay_metrics::GateFigures;
use forebay_policy::Policy;
use forebay_policy::facts::ConnectionFacts;
use forebay_policy::rule::Degree;
use forebay_sys::privileges;
use forebay_sys::stderr::say;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

#[cfg(feature = "gate")]
mod kernel;
#[cfg(not(feature = "gate"))]
#[path = "gate/without.rs"]
mod kernel;
pub(crate) mod needs;

pub use kernel::{KernelGate, KernelTables, guard, is_built, makes_connections};

/// The gate that the configuration wants; it is attached to nothing, and no rule is in force yet. With
/// `auto` none if the machine cannot, which is said.
///
/// `auto` answers no SYNs: that is only done where it is asked for, since firewalls, TCP Fast Open and MPTCP
/// get to see less of connections then (ADR 0052).
///
/// # Errors
/// With `address` and `full`, why the machine cannot.
pub fn open(mode: GateMode, charge: GateCharge) -> Result<Option<Arc<KernelGate>>, String> {
    if mode == GateMode::Off {
        return Ok(None);
    }
    let gate =
        KernelGate::open(charge, mode == GateMode::Full).map_err(|error| because(mode, error));
    match gate {
        Err(why) if mode == GateMode::Auto => Ok(without(why)),
        gate => gate.map(|gate| Some(Arc::new(gate))),
    }
}

/// What the kernel says, behind what is missing for it, if that can be told.
fn because(mode: GateMode, error: String) -> String {
    let lacks = privileges::lacks_for_gate();
    match (needs::lack(mode).filter(|_| is_built()), &lacks[..]) {
        (Some(lack), _) => format!("{lack} ({error})"),
        (None, []) => error,
        (None, lacks) => format!("no {} ({error})", lacks.join(", ")),
    }
}

/// Attaches it for the first time: as [`Enforced::attach`], but with `auto` there is none if that fails.
///
/// # Errors
/// With `address` and `full`, where that cannot be, and why.
pub fn attach(
    gate: Option<Arc<KernelGate>>,
    mode: GateMode,
    plan: &Plan,
    open: &Listeners,
) -> Result<Option<Arc<KernelGate>>, String> {
    let Some(gate) = gate else { return Ok(None) };
    match attach_for(&gate, plan, open) {
        Err(why) if mode == GateMode::Auto => Ok(without(why)),
        attached => attached.map(|()| {
            say(format_args!("gate: rung {}: {}{}", gate.rung(), gate.does(), next(&gate)));
            Some(gate)
        }),
    }
}

/// What is missing for the rung above, in words.
fn next(gate: &KernelGate) -> String {
    let lack = if gate.steers() { None } else { needs::lack(GateMode::Full) };
    lack.map_or_else(String::new, |lack| format!("; missing for rung full: {lack}"))
}

fn without(why: String) -> Option<Arc<KernelGate>> {
    say(format_args!(
        "gate: rung off: {why}; rules about addresses are enforced by the server alone"
    ));
    None
}

fn attach_for(gate: &KernelGate, plan: &Plan, open: &Listeners) -> Result<(), String> {
    let attached = gate.attach(&listeners(plan, open));
    // an interface that cannot be had keeps no class of the others without its sockets
    let placed = gate.place(open.of_classes());
    attached.and(placed)
}

/// How many classes listening sockets are opened for, for a group: none where the kernel is not to tell
/// requests apart, or a proxy stands before them.
pub fn classes(gate: Option<&KernelGate>, plan: &Plan, group: &GroupPlan) -> usize {
    let ranks = plan.ranks.shares.len();
    let are_told = gate.is_some_and(KernelGate::steers) && !group.proxy_protocol && ranks > 1;
    if are_told { ranks } else { 0 }
}

/// The addresses of `plan` at which SYNs can be judged: not those where connections begin with what a
/// proxy states about its client.
pub fn listeners(plan: &Plan, open: &Listeners) -> Vec<SocketAddr> {
    let direct = plan.groups.iter().filter(|group| !group.proxy_protocol);
    let addresses = direct.flat_map(|group| {
        let wanted: Vec<_> = group.listen.iter().map(|one| one.listen.clone()).collect();
        open.addresses(&wanted)
    });
    let tcp = addresses.filter_map(|address| match address {
        ListenAddress::Tcp(address) => Some(address),
        ListenAddress::Unix(_) => None,
    });
    tcp.collect()
}

/// What the kernel does of a policy.
#[derive(Debug)]
pub struct Enforced {
    gate: Arc<KernelGate>,
    tables: KernelTables,
    /// How many classes there are.
    ranks: usize,
}

impl Enforced {
    /// What it can do of it; nothing is in force yet.
    pub fn new(gate: Arc<KernelGate>, policy: &Policy) -> Enforced {
        let tables = gate.lower(policy).unwrap_or_else(|why| {
            say(format_args!("gate: {why}; they are all enforced by the server alone"));
            KernelTables::default()
        });
        Enforced { gate, tables, ranks: policy.classes().len() }
    }

    /// The gate itself.
    pub fn gate(&self) -> Arc<KernelGate> {
        Arc::clone(&self.gate)
    }

    /// The word that the kernel charges for the rule with this name.
    pub fn word(&self, rule: &str) -> Option<&'static AtomicU64> {
        self.gate.word(rule)
    }

    /// Whether the kernel charges any rule.
    pub fn charges(&self) -> bool {
        self.tables.charge()
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

    /// Has SYNs for the listeners of a plan judged, and connections queued in the sockets of their classes,
    /// if it steers.
    ///
    /// # Errors
    /// Where that cannot be, and why.
    pub fn attach(&self, plan: &Plan, open: &Listeners) -> Result<(), String> {
        attach_for(&self.gate, plan, open)
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

    /// What was counted.
    pub fn figures(&self) -> GateFigures {
        self.gate.figures(self.ranks)
    }
}
