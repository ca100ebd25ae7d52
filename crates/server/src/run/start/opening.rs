//! Opens what needs privileges: sockets, the gate, keys, the firewall. What a predecessor has
//! handed over, or a replaced process has left, is taken first.

use crate::control_socket::{self, ControlSocket};
use crate::firewall::relayed::{self, FirewallRelay};
use crate::firewall::{self, FirewallKeeper};
use crate::gate;
use crate::isolated;
use crate::isolated::kept_gate::GateLine;
use crate::listen::{AcceptSocket, Listeners};
use crate::plan::{AdminPlan, Plan};
use crate::policy_command::set;
use crate::reload;
use crate::start_error::{RunError, resources};
use crate::upgrade::handed::{Handed, HandedOverride};
use crate::upgrade::predecessor::Inheritance;
use forebay_config::Config;
use forebay_handler::certificates::Certificates;
use forebay_handler::policy::enforced::KernelGate;
use forebay_sys::line;
use forebay_sys::stderr::say;
use forebay_sys::wait_budget::WaitBudget;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The sockets of a plan.
pub(super) struct TakenSockets {
    /// For each group of workers, the sockets of each loop.
    pub(super) of_groups: Vec<Vec<Vec<AcceptSocket>>>,
    /// The sockets of the admin listener with its plan, if there is one.
    pub(super) of_admin: Option<(Vec<AcceptSocket>, AdminPlan)>,
}

/// The gate, opened, and its former users.
pub(super) struct OpenedGate {
    pub(super) gate: Option<Arc<KernelGate>>,
    /// The connection to the supervisor, which keeps the programs in the kernel.
    pub(super) line: Option<GateLine>,
    /// Whether another process has judged before this one, or judges beside it.
    pub(super) follows: bool,
}

/// The connections to the firewall.
pub(super) struct OpenedFirewall {
    /// The helper process of this server, which keeps a privilege that the server gives up.
    pub(super) keeper: Option<FirewallKeeper>,
    /// Whether the table stays as the predecessor has left it.
    pub(super) keeps_table: bool,
    /// The connection to the supervisor's firewall.
    pub(super) relay: Option<FirewallRelay>,
}

/// The configuration with the changes that `forebay policy set` has made at the process before.
pub(super) fn with_overrides(config: Config, handed: &Handed, is_upgrade: bool) -> Config {
    if handed.overrides.is_empty() {
        return config;
    }
    let overrides: Vec<_> = handed.overrides.iter().map(HandedOverride::kept).collect();
    let (mut config, said) = set::keep(&overrides, config);
    let why = if is_upgrade { "upgrade: " } else { "policy set: " };
    said.lines().for_each(|line| say(format_args!("{why}{line}")));
    isolated::changes::settle_overrides(&mut config, &handed.overrides);
    config
}

/// The sockets that exist already: from the predecessor, from the program that this server is a
/// part of, or from a service manager.
pub(super) fn listeners(
    config: &Config,
    inheritance: Option<&mut Inheritance>,
    given: Vec<OwnedFd>,
) -> Result<Listeners, RunError> {
    match inheritance {
        Some(handed) => handed.take_effect().map_err(resources("the sockets of the server before")),
        None if config.is_guest => Listeners::given(given).map_err(RunError::Listen),
        None => Listeners::inherit().map_err(RunError::Listen),
    }
}

/// Opens the control socket. Any process that can connect to it can send commands.
pub(super) fn control_socket(
    config: &Config,
    file: Option<&Path>,
    inheritance: Option<&mut Inheritance>,
    lock_wait: &mut WaitBudget,
) -> Result<Option<ControlSocket>, RunError> {
    let mut none = WaitBudget::new(Duration::ZERO);
    // all stages hold the directory's lock together, and no other process makes this socket
    let lock_wait = if config.place.is_some() { &mut none } else { lock_wait };
    let opened = match inheritance {
        Some(handed) => control_socket::open_handed(config, file, handed.control(), lock_wait),
        None => {
            let of_stage = config.place.as_ref().map(|place| place.file.as_path());
            control_socket::open(config, file.or(of_stage), lock_wait)
        }
    };
    opened.map_err(RunError::ControlSocket)
}

/// Loads the programs into the kernel, which needs root, or takes those of the process before.
pub(super) fn gate(
    config: &Config,
    inheritance: Option<&mut Inheritance>,
) -> Result<OpenedGate, RunError> {
    let line = GateLine::open().map_err(resources("the gate of the process before"))?;
    let (line, left) = line.unzip();
    let is_successor = inheritance.is_some();
    let handed = inheritance.and_then(Inheritance::gate).or(left.flatten());
    let is_other_gate = line.as_ref().is_some_and(|line| !line.judges());
    let follows = handed.is_some() || is_successor || is_other_gate;
    let gate = gate::open(config, handed);
    Ok(OpenedGate { gate: gate.map_err(RunError::Gate)?, line, follows })
}

/// Opens the sockets for clients that do not exist yet.
pub(super) fn sockets(
    plan: &Plan,
    listeners: &mut Listeners,
    gate: Option<&KernelGate>,
) -> Result<TakenSockets, RunError> {
    let of_groups = plan.groups.iter().map(|group| {
        let classes = gate::classes(gate, plan, group);
        listeners.take_ranked(&group.listen, group.listener_sets, classes)
    });
    let of_groups = of_groups.collect::<Result<Vec<_>, _>>().map_err(RunError::Listen)?;
    let of_admin = match &plan.admin {
        Some(admin) => {
            let by_loop = listeners.take_admin(&admin.listen);
            by_loop.map_err(RunError::Listen)?.pop().map(|set| (set, admin.clone()))
        }
        None => None,
    };
    listeners.check_inherited(&reload::wanted(plan)).map_err(RunError::Listen)?;
    Ok(TakenSockets { of_groups, of_admin })
}

/// Reads certificates and their keys, which often only root may. The keys for session tickets come
/// from the process before, so that clients can resume their sessions.
pub(super) fn certificates(
    config: &Config,
    before: Option<&mut Handed>,
) -> Result<Arc<Certificates>, RunError> {
    let tickets = before.map(|handed| std::mem::take(&mut handed.tickets)).unwrap_or_default();
    let certificates = Certificates::open(config, &Certificates::default(), tickets);
    certificates.map(Arc::new).map_err(RunError::Certificate)
}

/// Opens the connection to the machine's firewall, for clients of these addresses.
pub(super) fn firewall(
    config: &Config,
    plan: &Plan,
    judged: &[SocketAddr],
    inheritance: Option<&Inheritance>,
) -> Result<OpenedFirewall, RunError> {
    let table = inheritance.and_then(|handed| handed.handed.firewall.as_deref());
    let keeps_table = table == Some(config.firewall.table());
    let relay = relayed::open(&config.firewall).map_err(resources("the firewall's line"))?;
    // for stages, the supervisor has the helper
    let keeper = match line::has_supervisor() {
        true => Ok(None),
        false => firewall::open(&config.firewall, judged, &plan.policy, keeps_table),
    };
    Ok(OpenedFirewall { keeper: keeper.map_err(RunError::Firewall)?, keeps_table, relay })
}
