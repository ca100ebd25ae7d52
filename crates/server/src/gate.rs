//! Rules in the kernel, as far as this program was built with it and this machine can.
//!
//! In: the compiled policy, the addresses that are listened on, the level of overload. Out: which rules
//! the kernel enforces, whether a connection was charged there, what it has counted. What the kernel
//! does not do, the server does as without it: the policy is the same.
//!
//! Built without the feature `gate`, there is no value of [`KernelGate`], and nothing of this is
//! reached.

use crate::config::{GateCharge, GateMode};
use crate::listen::{Address, Listeners};
use crate::plan::Plan;
use crate::run::say;
use forebay_metrics::GateFigures;
use forebay_policy::Policy;
use forebay_policy::facts::ConnectionFacts;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

#[cfg(feature = "gate")]
mod kernel;
#[cfg(not(feature = "gate"))]
#[path = "gate/without.rs"]
mod kernel;

pub use kernel::{KernelGate, Tables, is_built};

/// The gate that the configuration wants, attached where `listeners` may be reached; no rule is in force
/// yet. With `auto` none if the machine cannot, which is said.
///
/// # Errors
/// With `address`, why the machine cannot.
pub fn open(
    mode: GateMode,
    charge: GateCharge,
    listeners: &[SocketAddr],
) -> Result<Option<Arc<KernelGate>>, String> {
    let opened = match mode {
        GateMode::Off => return Ok(None),
        GateMode::Auto | GateMode::Address => KernelGate::open(charge).and_then(|gate| {
            gate.attach(listeners)?;
            Ok(gate)
        }),
    };
    match (opened, mode) {
        (Ok(gate), _) => Ok(Some(Arc::new(gate))),
        (Err(why), GateMode::Address) => Err(why),
        (Err(why), _) => {
            say(format_args!(
                "gate: {why}; rules about addresses are enforced by the server alone"
            ));
            Ok(None)
        }
    }
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
        Address::Tcp(address) => Some(address),
        Address::Unix(_) => None,
    });
    tcp.collect()
}

/// What the kernel does of a policy.
#[derive(Debug)]
pub struct Enforced {
    gate: Arc<KernelGate>,
    tables: Tables,
}

impl Enforced {
    /// What it can do of it; nothing is in force yet.
    pub fn new(gate: Arc<KernelGate>, policy: &Policy) -> Enforced {
        let tables = gate.lower(policy).unwrap_or_else(|why| {
            say(format_args!("gate: {why}; they are all enforced by the server alone"));
            Tables::default()
        });
        Enforced { gate, tables }
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

    /// Whether rules for overload count.
    pub fn set_overload(&self, is_overload: bool) {
        self.gate.set_overload(is_overload);
    }

    /// Has SYNs for these listeners judged.
    ///
    /// # Errors
    /// Where that cannot be, and why.
    pub fn attach(&self, listeners: &[SocketAddr]) -> Result<(), String> {
        self.gate.attach(listeners)
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

    /// What was counted.
    pub fn figures(&self) -> GateFigures {
        self.gate.figures()
    }
}
