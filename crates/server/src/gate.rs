//! The gate: rules enforced in the kernel, as far as this program was built with it and the machine
//! supports it.
//!
//! In: the setting, the plan, the listening sockets. Out: the gate, attached at the addresses of
//! those sockets. What it enforces of a policy after that is the part of
//! [`enforced`](forebay_handler::policy::enforced).

use crate::listen::{ListenAddress, Listeners};
use crate::plan::{GroupPlan, Plan};
use forebay_config::{Config, GateMode, GateRules, ListenEndpoint};
use forebay_handler::policy::enforced::{Enforced, HandedKernel, KernelGate, OfClasses};
use forebay_sys::privileges;
use forebay_sys::stderr::say;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

pub(crate) mod needs;
pub(crate) mod redirected;
pub mod told;

pub use forebay_handler::policy::enforced::{guard, is_built, makes_connections};

/// Opens the gate that the configuration wants; it is attached to nothing, and no rule is in force
/// yet. With `auto`, returns `None` and logs why if the machine cannot have a gate.
///
/// `auto` answers no SYNs: the kernel does that only where the configuration asks for it, since
/// firewalls, TCP Fast Open and MPTCP then see less of connections (ADR 0052).
///
/// If the process `before` has handed over a gate, this one takes its place.
///
/// # Errors
/// With `address` and `full`, why the machine cannot have a gate.
pub fn open(
    config: &Config,
    before: Option<(HandedKernel, Vec<OwnedFd>)>,
) -> Result<Option<Arc<KernelGate>>, String> {
    let mode = config.gate;
    if mode == GateMode::Off {
        return Ok(None);
    }
    let (steers, charge) = (mode == GateMode::Full, config.gate_charge);
    // other obstacles may go with a reload, which loads no program
    let judges = steers && config.gate_rules == GateRules::FirstRequest;
    let answers = config.gate_answers && judges && config.place.is_none() && !config.has_stages();
    let gate = KernelGate::open(charge, steers, config.gate_rules, answers, before);
    let gate = gate.map_err(|error| because(mode, error));
    match gate {
        Err(why) if mode == GateMode::Auto => Ok(without(why)),
        gate => gate.map(|gate| Some(Arc::new(gate))),
    }
}

/// The message for a kernel error: what is missing, if that is known, and then the error.
fn because(mode: GateMode, error: String) -> String {
    let lacks = privileges::lacks_for_gate();
    match (needs::lack(mode).filter(|_| is_built()), &lacks[..]) {
        (Some(lack), _) => format!("{lack} ({error})"),
        (None, []) => error,
        (None, lacks) => format!("no {} ({error})", lacks.join(", ")),
    }
}

/// Attaches the gate for the first time, as [`attach_again`], but with `auto` a failure leaves the
/// server without one. If the gate `follows` another, which still judges, it is only made ready.
///
/// # Errors
/// With `address` and `full`, where that cannot be, and why.
pub fn attach(
    gate: Option<Arc<KernelGate>>,
    mode: GateMode,
    plan: &Plan,
    open: &Listeners,
    follows: bool,
) -> Result<Option<Arc<KernelGate>>, String> {
    let Some(gate) = gate else { return Ok(None) };
    let attached = match follows {
        true => gate
            .protect(&plan.protects)
            .and_then(|()| gate.prepare(&listeners(plan, open)))
            .and_then(|()| gate.place(placed(&gate, plan, open))),
        false => attach_for(&gate, plan, open),
    };
    match attached {
        Err(why) if mode == GateMode::Auto => Ok(without(why)),
        attached => attached.map(|()| {
            say(format_args!("gate: rung {}: {}{}", gate.rung(), gate.does(), next(&gate)));
            if gate.steers() {
                redirected::warn(&plan.protects);
            }
            Some(gate)
        }),
    }
}

/// The part of the message that says what is missing for the next rung.
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

/// Has SYNs for the listeners of a plan judged and, if the gate steers, connections queued in the
/// sockets of their classes.
///
/// # Errors
/// Where that cannot be, and why.
pub fn attach_again(enforced: &Enforced, plan: &Plan, open: &Listeners) -> Result<(), String> {
    attach_for(&enforced.gate(), plan, open)
}

fn attach_for(gate: &KernelGate, plan: &Plan, open: &Listeners) -> Result<(), String> {
    gate.protect(&plan.protects)?;
    let attached = gate.attach(&listeners(plan, open));
    // sockets are placed even if one interface could not be attached: the others need those of
    // their classes
    let placed = gate.place(placed(gate, plan, open));
    attached.and(placed)
}

/// The sockets of classes. Where first requests are judged and there is only one class, connections
/// are made on the common sockets; an entry without sockets says so.
fn placed<'l>(gate: &KernelGate, plan: &Plan, open: &'l Listeners) -> Vec<OfClasses<'l>> {
    let direct = listeners(plan, open);
    let is_one = gate.judges_requests() && plan.ranks.shares.len() == 1;
    let mut placed = open.of_classes();
    placed.retain(|one| !one.sockets.is_empty() || is_one && direct.contains(&one.address));
    placed
}

/// The number of classes for which a group opens listening sockets of their own: none where the
/// kernel does not distinguish requests, or where a proxy stands before the listeners.
pub fn classes(gate: Option<&KernelGate>, plan: &Plan, group: &GroupPlan) -> usize {
    let ranks = plan.ranks.shares.len();
    let are_told = gate.is_some_and(KernelGate::steers) && !group.proxy_protocol && ranks > 1;
    if are_told { ranks } else { 0 }
}

/// The addresses of `plan` at which SYNs can be judged: not those where connections begin with a
/// PROXY header.
pub fn listeners(plan: &Plan, open: &Listeners) -> Vec<SocketAddr> {
    listeners_of(plan, open, |_| true)
}

/// The addresses of [`listeners`] at which HTTP is spoken without TLS.
pub(crate) fn plain_listeners(plan: &Plan, open: &Listeners) -> Vec<SocketAddr> {
    listeners_of(plan, open, |endpoint| !endpoint.tls && !endpoint.raw)
}

fn listeners_of(
    plan: &Plan,
    open: &Listeners,
    is_one: impl Fn(&ListenEndpoint) -> bool,
) -> Vec<SocketAddr> {
    let direct = plan.groups.iter().filter(|group| !group.proxy_protocol);
    let addresses = direct.flat_map(|group| {
        let wanted = group.listen.iter().filter(|one| is_one(one));
        let wanted: Vec<_> = wanted.map(|one| one.listen.clone()).collect();
        open.addresses(&wanted)
    });
    let tcp = addresses.filter_map(|address| match address {
        ListenAddress::Tcp(address) => Some(address),
        ListenAddress::Unix(_) => None,
    });
    tcp.collect()
}
