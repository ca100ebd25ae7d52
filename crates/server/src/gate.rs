//! Rules in the kernel, as far as this program was built with it and this machine can.
//!
//! In: the setting, the plan, the listening sockets. Out: the gate, attached where they listen. What it does
//! of a policy once it is there is [`enforced`](forebay_handler::policy::enforced)'s.

use crate::listen::{ListenAddress, Listeners};
use crate::plan::{GroupPlan, Plan};
use forebay_config::answers;
use forebay_config::{Config, GateMode, ListenEndpoint};
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

/// The gate that the configuration wants; it is attached to nothing, and no rule is in force yet. With
/// `auto` none if the machine cannot, which is said.
///
/// `auto` answers no SYNs: that is only done where it is asked for, since firewalls, TCP Fast Open and MPTCP
/// get to see less of connections then (ADR 0052).
///
/// It takes the place of the gate that the process `before` has handed, if there is one.
///
/// # Errors
/// With `address` and `full`, why the machine cannot.
pub fn open(
    config: &Config,
    before: Option<(HandedKernel, Vec<OwnedFd>)>,
) -> Result<Option<Arc<KernelGate>>, String> {
    let mode = config.gate;
    if mode == GateMode::Off {
        return Ok(None);
    }
    // where it could give none, nothing is loaded for it
    let answers = config.gate_answers && answers::of_process(config).is_empty();
    let (steers, charge) = (mode == GateMode::Full, config.gate_charge);
    let gate = KernelGate::open(charge, steers, config.gate_rules, answers, before);
    let gate = gate.map_err(|error| because(mode, error));
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

/// Attaches it for the first time: as [`attach_again`], but with `auto` there is none if that fails. Where it
/// `follows` another, which judges on, it is only made ready.
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

/// Has SYNs for the listeners of a plan judged, and connections queued in the sockets of their classes,
/// if it steers.
///
/// # Errors
/// Where that cannot be, and why.
pub fn attach_again(enforced: &Enforced, plan: &Plan, open: &Listeners) -> Result<(), String> {
    attach_for(&enforced.gate(), plan, open)
}

fn attach_for(gate: &KernelGate, plan: &Plan, open: &Listeners) -> Result<(), String> {
    gate.protect(&plan.protects)?;
    let attached = gate.attach(&listeners(plan, open));
    // an interface that cannot be had keeps no class of the others without its sockets
    let placed = gate.place(placed(gate, plan, open));
    attached.and(placed)
}

/// The sockets of classes. Where first requests are judged and there is one class, connections are made on the common
/// sockets, which are told by having none.
fn placed<'l>(gate: &KernelGate, plan: &Plan, open: &'l Listeners) -> Vec<OfClasses<'l>> {
    let direct = listeners(plan, open);
    let is_one = gate.judges_requests() && plan.ranks.shares.len() == 1;
    let mut placed = open.of_classes();
    placed.retain(|one| !one.sockets.is_empty() || is_one && direct.contains(&one.address));
    placed
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
    listeners_of(plan, open, |_| true)
}

/// Those of them at which HTTP is spoken without TLS.
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
