//! Starts a server with a configuration, in this order: descriptors, sockets, privileges, content,
//! logs, the seal of a process that has one, groups of workers, admin listener.

mod opening;

use self::opening::{OpenedFirewall, OpenedGate, TakenSockets};
use super::takeover::Reload;
use super::{Event, Server};
use crate::admin::AdminListener;
use crate::ban_files;
use crate::confinement::KernelLimits;
use crate::control_socket::ControlSocket;
use crate::counters::Register;
use crate::doctor;
use crate::engines::Common;
use crate::firewall::FirewallKeeper;
use crate::firewall::relayed::FirewallRelay;
use crate::firewall::sets::{self, SetReader};
use crate::gate;
use crate::isolated;
use crate::isolated::tried::StageAttempts;
use crate::kernel_answers::{self, AnswersThread};
use crate::launcher::{self, Launchers, StartedLauncher};
use crate::listen::Listeners;
use crate::notify::Notifier;
use crate::page::PageMemory;
use crate::page::stages::PageStages;
use crate::plan::{MachineResources, Plan};
use crate::privileges;
use crate::reload;
use crate::sandbox::{self, Sandbox, SandboxNeeds};
use crate::seal;
use crate::spool;
use crate::start_error::{RunError, resources};
use crate::status::Status;
use crate::traces::Exporter;
use crate::upgrade::UPGRADED;
use crate::upgrade::earlier::EarlierServers;
use crate::upgrade::expected::ExpectedUpgrade;
use crate::upgrade::predecessor::{Inheritance, Predecessor};
use crate::upgrade::program::RunningProgram;
use crate::upgrade::shared::SharedLimits;
use crate::upkeep;
use crossbeam_channel::{Receiver, Sender};
use forebay_config::choice::Keyword;
use forebay_config::{Config, Confine, Role, SiteConfig};
use forebay_engine::admission::ConnectionAdmission;
use forebay_engine::helpers::Helpers;
use forebay_engine::ranks::Ranks;
use forebay_engine::worker;
use forebay_handler::applications::Applications;
use forebay_handler::client::TrustedProxies;
use forebay_handler::live::{LiveSnapshot, ServingSnapshot};
use forebay_handler::policy::InForce;
use forebay_handler::sightings::Sightings;
use forebay_handler::traces::Tracing;
use forebay_handler::upstream_sockets::UpstreamSockets;
use forebay_policy::bans::BanList;
use forebay_site::Content;
use forebay_sys::passing;
use forebay_sys::process;
use forebay_sys::stderr::say;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

impl Server {
    pub(super) fn start(
        config: Config,
        file: Option<PathBuf>,
        before: Option<(Predecessor, Inheritance)>,
        signals: Option<Signals>,
        given: Vec<OwnedFd>,
        to_main: Sender<Event>,
        events: Receiver<Event>,
    ) -> Result<Server, RunError> {
        let left = isolated::changes::left(&config);
        let handed = before.as_ref().map(|(_, inheritance)| &inheritance.handed).or(left.as_ref());
        let config = match handed {
            Some(handed) => opening::with_overrides(config, handed, before.is_some()),
            None => config,
        };
        let started_by = process::user();
        let attempts = StageAttempts::wanted(&config);
        // before any other process is started, which would inherit them
        let (before, mut inheritance) = before.unzip();
        let mut listeners = opening::listeners(&config, inheritance.as_mut(), given)?;
        let mut config = config;
        // before the server gives up a privilege that the helper process of the sets keeps
        let sets = SetReader::open(&config).map_err(RunError::Firewall)?;
        sets::fill(&mut config, sets.as_deref())
            .map_err(|why| RunError::Firewall(why.to_owned()))?;
        let machine = MachineResources::of(&config).map_err(resources("descriptors"))?;
        let register = Arc::<Register>::default();
        let plan = Plan::new(&config, &machine);
        let mut plan = plan.map_err(RunError::Policy)?;
        plan.ranks.slots = register.ledgers(&plan.policy);
        let lock_wait = listeners.lock_wait();
        let control_socket =
            opening::control_socket(&config, file.as_deref(), inheritance.as_mut(), lock_wait)?;
        let OpenedGate { gate, line: gate_line, follows } =
            opening::gate(&config, inheritance.as_mut())?;
        let TakenSockets { of_groups, of_admin } =
            opening::sockets(&plan, &mut listeners, gate.as_deref())?;
        let mut left = left;
        let of_server = inheritance.as_mut().map(|handed| &mut handed.handed);
        let certificates = opening::certificates(&config, of_server.or(left.as_mut()))?;
        let mut bans = BanList::default();
        bans.set_files(ban_files::read(&config.ban_files).map_err(RunError::Bans)?);
        // before the privileges are given up: names may not be looked up afterwards
        let now_ms = worker::read_clocks().monotonic_ms;
        let applications = Applications::new(&plan.applications, &plan.ranks.shares, None, now_ms)
            .passing(&plan.pass_routes)
            .with_next(isolated::next(&config, now_ms))
            .with_spool(spool::open(&config, machine.descriptors).map_err(RunError::Spool)?);
        applications.take_effect(None, &certificates);
        // nothing is shared where no other process can take the server's place; a sealed stage
        // could not make it either
        let is_alone = config.place.is_some() || config.is_guest;
        let shared = match is_alone {
            true => None,
            false => SharedLimits::open(inheritance.as_mut().and_then(Inheritance::counts)),
        };
        let counts = shared.as_ref().map(|shared| Arc::clone(&shared.counts));
        counts.iter().for_each(|counts| applications.share(counts));
        listeners.settle();
        let gate = gate::attach(gate, config.gate, &plan, &listeners, follows);
        let gate = gate.map_err(RunError::Gate)?;
        let judged = gate::listeners(&plan, &listeners);
        let OpenedFirewall { mut keeper, keeps_table, relay } =
            opening::firewall(&config, &plan, &judged, inheritance.as_ref())?;
        let firewall = keeper.as_ref().map(FirewallKeeper::firewall);
        let firewall = firewall.or(relay.as_ref().map(FirewallRelay::firewall));
        // before the sandbox: the launcher's commands are not confined as the server is
        let launchers = launcher::start(&config, file.as_deref()).map_err(RunError::Launcher)?;
        let for_requests = launchers.iter().find_map(StartedLauncher::for_requests);
        let applications = applications.with_launcher(for_requests);
        // before the sandbox, which may put the service manager's socket out of reach
        let notifier = match config.is_guest {
            true => Notifier::handed(None),
            false => Notifier::from_environment(),
        };
        // before the sandbox, which puts the files for this out of reach
        let page = page_memory(&config);
        let sandbox = confine(&config, file.as_deref(), &mut listeners, control_socket.as_ref())?;
        if let (Some(spool), Some(path)) = (applications.spool(), &config.spool_dir) {
            spool::try_out(spool, path).map_err(RunError::Spool)?;
        }
        // after root's privileges are gone: another process has given the path of
        // the service manager's socket
        let notifier = match &inheritance {
            Some(handed) => Notifier::handed(handed.handed.notify.clone()),
            None => notifier,
        };
        // after the privileges are gone: each thread has its own, inherited at its creation
        if let Some(signals) = signals {
            let listens = listen_for_signals(signals, to_main.clone());
            listens.map_err(resources("a thread for signals"))?;
        }
        let launchers = Launchers::listen(launchers);
        let launchers =
            launchers.map_err(resources("a thread for a process that runs programs"))?;
        let content = Content::open(plan.site.clone(), |notice| say(format_args!("{notice}")))
            .map_err(RunError::Content)?;
        let logs = reload::open_logs(&config, None).map_err(RunError::Log)?;
        let ranks = Ranks::new(&plan.ranks);
        let sockets = UpstreamSockets::new(plan.sockets);
        let sightings = Arc::<Sightings>::default();
        sightings.switch(config.admin.page);
        let role = config.place.as_ref().map(|place| place.role);
        let traces = Tracing::new(&config.traces, role, &Arc::default());
        let bans_table = bans.table();
        let plain = gate::plain_listeners(&plan, &listeners);
        let answers = kernel_answers::learner(
            gate.as_ref(),
            &config,
            &content,
            &plain,
            bans_table.is_some(),
            None,
        );
        let answering = gate.clone().filter(|gate| gate.answers_requests());
        let common = Common {
            live: Arc::new(LiveSnapshot::new(Arc::new(ServingSnapshot {
                content,
                logs,
                trusted: TrustedProxies::shared(&config),
                certificates,
                applications: Arc::new(applications),
                policy: Arc::new(InForce::with_kernel(
                    plan.policy_settings(),
                    None,
                    gate,
                    firewall.as_ref().map(|firewall| firewall.dropped()),
                    counts,
                )),
                bans: bans_table,
                refusals: Arc::default(),
                sightings,
                answers,
                traces,
            }))),
            admission: ConnectionAdmission::new(plan.connections, plan.connections_per_client),
            helpers: Helpers::new(
                register.helpers(plan.helpers.most(&ranks)),
                plan.helpers,
                &ranks,
                config.sample.try_into().unwrap_or(u32::MAX),
            )
            .map_err(resources("a thread for helpers"))?,
            ranks,
            register,
            pipeline_gauges_pool: Arc::default(),
            idle: Arc::new(Mutex::new(sockets.pool())),
            sockets,
            agent_loop: Arc::default(),
            firewall,
        };
        let status = Status::new(&common, &plan, &config, listeners.times(), page);
        let admin = of_admin.map(|(set, admin)| {
            let own = Arc::clone(&common.live.get().certificates.admin);
            AdminListener::new(set, &admin, own, Arc::clone(&common.live), Arc::clone(&status))
        });
        let admin = admin.transpose().map_err(resources("the admin listener's descriptors"))?;
        let prepared = plan.groups.iter().zip(of_groups).map(|(group, listener_sets)| {
            common.prepare(group.clone(), listener_sets).map_err(resources("a loop's descriptors"))
        });
        let prepared = prepared.collect::<Result<Vec<_>, _>>()?;
        let start_line = start_line(&plan, &config, &listeners);
        let lack = plan.lack(&config, machine.descriptors);
        let mut server = Server {
            config,
            file,
            plan,
            common,
            listeners: Arc::new(Mutex::new(listeners)),
            groups: Vec::new(),
            numbered: 0,
            status,
            admin: None,
            is_replaced: false,
            program: RunningProgram::here(),
            started_by,
            is_handing: false,
            expected: ExpectedUpgrade::default(),
            earlier: EarlierServers::default(),
            shared,
            was_told_to_drain: false,
            control_socket,
            sandbox,
            notifier,
            reload: Reload::default(),
            bans,
            ban_files: Arc::default(),
            sets,
            watches_certificates: false,
            acme: None,
            launchers,
            keeps_up_applications: false,
            exporter: Exporter::default(),
            answers: None,
            gate_line,
            gate_trouble: None,
            later: Vec::new(),
            waiting: None,
            draining: None,
            to_main,
            events,
        };
        server.common.live.get().policy.tell_gate();
        // a table that is kept is the predecessor's until `succeed`, which starts the keeper then
        if let Some(keeper) = keeper.take_if(|_| !keeps_table) {
            keeper.start().map_err(resources("a thread for the firewall"))?;
        }
        if let Some(relay) = relay {
            relay.start().map_err(resources("a thread for the firewall"))?;
        }
        let is_sealed = seal::seal(&server.config).map_err(RunError::Seal)?;
        attempts.iter().for_each(StageAttempts::say);
        if let Some(inheritance) = &inheritance {
            // asked before anything is accepted: if the command was ended meanwhile, nothing may change
            let agrees = inheritance.command.agrees();
            agrees.map_err(resources("the command that has started it"))?;
            let prepared = server.prepare_to_succeed(inheritance);
            prepared.map_err(resources("sockets that listen"))?;
        }
        left.iter().for_each(|left| server.restore_bans(&left.bans));
        let is_successor = inheritance.is_some();
        if let Some(gate) = &answering {
            let thread = AnswersThread::start(gate, &server.common);
            server.answers =
                Some(thread.map_err(resources("a thread for what the kernel answers"))?);
        }
        // clients are served from here on
        for prepared in prepared {
            server.begin(prepared).map_err(resources("a thread"))?;
        }
        if let Some(admin) = admin {
            server.admin = Some(admin.start().map_err(resources("a thread"))?);
        }
        server.judge_first(follows).map_err(RunError::Gate)?;
        if let Some((before, inheritance)) = before.zip(inheritance) {
            let taken = server.succeed(before, inheritance, keeper);
            taken.map_err(resources("the place of the server before"))?;
        }
        server.hear_commands(is_successor)?;
        server.ask_agent(is_successor)?;
        server.tell_that_it_serves(&start_line, is_successor, is_sealed);
        server.watch_later();
        server.watch_gate();
        server.say_warnings(lack);
        server.watch(is_successor)?;
        Ok(server)
    }

    /// Starts the tasks and threads beside the workers, once clients are served.
    fn watch(&mut self, is_successor: bool) -> Result<(), RunError> {
        self.look_at_bans_later();
        self.watch_ban_files();
        self.watch_sets();
        if let Some(sets) = &self.sets {
            let tell = self.to_main.clone();
            let watches = sets.watch(move |sets| drop(tell.send(Event::SetsChanged(sets))));
            or_said(is_successor, watches.map_err(resources("a thread for sets")))?;
        }
        self.watch_certificates();
        self.keep_acme(false);
        self.keep_up_applications();
        self.watch_for_page();
        self.keep_traces();
        let keeps = upkeep::keep_up_link(&self.common.live.get().applications);
        or_said(is_successor, keeps.map_err(resources("a thread for the link to the next stage")))
    }

    /// Answers commands of operators from here on.
    fn hear_commands(&mut self, is_successor: bool) -> Result<(), RunError> {
        let tell = self.to_main.clone();
        let Some(socket) = &mut self.control_socket else { return Ok(()) };
        let serves = socket.serve(move |asked| drop(tell.send(Event::Asked(asked))));
        or_said(is_successor, serves.map_err(resources("a thread for commands")))
    }

    /// Starts the agent loop, if the policy has an agent, and shows it the accept queues of the kernel.
    fn ask_agent(&self, is_successor: bool) -> Result<(), RunError> {
        // a weak reference, so that the closure does not keep sockets open
        let listeners = Arc::downgrade(&self.listeners);
        self.common.agent_loop.watch_queues(Arc::new(move || {
            // unknown while a reload holds the lock
            Some(listeners.upgrade()?.try_lock().ok()?.queued())
        }));
        let keeps = self.common.keep_agent_loop().map_err(resources("a thread"));
        or_said(is_successor, keeps)
    }

    /// Reports to the operator and the service manager that clients are served.
    fn tell_that_it_serves(&mut self, start_line: &str, is_successor: bool, is_sealed: bool) {
        // only the first stage writes the line, for all of them
        let is_first = self.config.place.as_ref().is_none_or(|place| place.role == Role::Receive);
        if is_first && !self.config.is_guest {
            let _ = writeln!(io::stderr(), "{start_line}");
        }
        self.notifier.ready(start_line);
        if is_successor && self.notifier.interval().is_some() {
            // this restarts the watchdog's time, as the predecessor's last message may be old
            self.notifier.alive();
        }
        if is_sealed {
            // the seal forbids sockets that can send to any address
            self.notifier.close();
        }
    }

    /// Warns the operator of settings that are hardly intended, and of what is in force beside the file.
    fn say_warnings(&mut self, lack: impl IntoIterator<Item = String>) {
        self.warn_of_certificates();
        let warnings = self.uncovered().into_iter().chain(lack);
        warnings.for_each(|warning| say(format_args!("{warning}")));
        self.status.overridden(&self.config.assigned);
    }
}

/// Logs an error instead of returning it where this server has taken the place of another, which
/// does not accept any more.
fn or_said(is_successor: bool, result: Result<(), RunError>) -> Result<(), RunError> {
    match result {
        Err(error) if is_successor => {
            say(format_args!("{error}"));
            Ok(())
        }
        result => result,
    }
}

/// The initial data for the page of the admin listener; empty if there is no page.
fn page_memory(config: &Config) -> PageMemory {
    let is_first = config.place.as_ref().is_none_or(|place| place.role == Role::Receive);
    if !config.admin.page || !is_first {
        return PageMemory::default();
    }
    // a guest does not examine the process, which belongs to another program
    let doctor = if config.is_guest { String::new() } else { doctor::report(Some(config)) };
    PageMemory::new(PageStages::of(config), doctor)
}

/// Gives up what the server does not need: root, and most of the file system. All that only root
/// can do has been done.
fn confine(
    config: &Config,
    file: Option<&Path>,
    listeners: &mut Listeners,
    control_socket: Option<&ControlSocket>,
) -> Result<Sandbox, RunError> {
    // a stage does not change the directory of the socket
    let control = control_socket.map(ControlSocket::path).filter(|_| config.place.is_none());
    if config.is_guest {
        // the process and its rights belong to another program
        let needs = SandboxNeeds::of(config, file, control);
        return sandbox::confine(needs, Confine::Off).map_err(RunError::Sandbox);
    }
    let given_up = match seal::is_sealed(config) {
        true => seal::give_up(config),
        false => {
            // only the owner of a control socket changes its owner: neither for a lent
            // one, nor for the supervisor's
            let is_stage = config.place.is_some();
            let own = control_socket.filter(|socket| !socket.is_lent() && !is_stage);
            let own = own.map(ControlSocket::path);
            privileges::drop_to_user(config, listeners, own.as_slice())
        }
    };
    given_up.map_err(RunError::Privileges)?;
    let needs = SandboxNeeds::of(config, file, control);
    let kernel = KernelLimits::of_this_kernel();
    let sandbox = sandbox::confine(needs, config.sandbox.landlock).map_err(RunError::Sandbox)?;
    // a process that is sealed opens nothing at all
    if config.sandbox.landlock != Confine::Off && !seal::is_sealed(config) {
        let lack = kernel.files.or_else(|| kernel.of_older_landlock());
        lack.into_iter().for_each(|lack| seal::miss(config, lack));
    }
    Ok(sandbox)
}

/// Catches signals from here on; they wait until a thread listens. A stage catches two more, by
/// which it learns that others replace it.
pub(super) fn catch_signals(is_stage: bool) -> io::Result<Signals> {
    let more = if is_stage { &[SIGUSR2, UPGRADED][..] } else { &[] };
    let signals = Signals::new([SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGUSR1].iter().chain(more))?;
    passing::take_signals()?;
    Ok(signals)
}

fn listen_for_signals(mut signals: Signals, to_main: Sender<Event>) -> io::Result<()> {
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for signal in signals.forever() {
            if to_main.send(Event::Signal(signal)).is_err() {
                break;
            }
        }
    })?;
    Ok(())
}

/// The largest number of sites that the first line names; of the others it gives the number.
const MOST_NAMED: usize = 20;

/// The first line of the log: what is served, where, and how.
fn start_line(plan: &Plan, config: &Config, listeners: &Listeners) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let what = match &config.sites[..] {
        [SiteConfig { root: Some(root), .. }] => root.display().to_string(),
        sites => {
            let names = sites.iter().take(MOST_NAMED).map(|site| site.name().to_string());
            let names = names.collect::<Vec<_>>().join(", ");
            match sites.len().saturating_sub(MOST_NAMED) {
                0 => names,
                more => format!("{names} and {more} more"),
            }
        }
    };
    let groups = plan.groups.iter().map(|group| {
        let addresses: Vec<_> = listeners.urls(&group.listen).collect();
        let (engine, workers) = (group.engine.word(), group.workers);
        format!("{} (engine {engine}, workers {workers})", addresses.join(" "))
    });
    let groups = groups.collect::<Vec<_>>().join(" and ");
    let admin = plan.admin.as_ref().map(|admin| {
        let bound = listeners.admin_urls(&admin.listen);
        let bound: Vec<_> = bound.map(|url| url.replacen("http://", "", 1)).collect();
        format!(", admin on {}", bound.join(" "))
    });
    let admin = admin.unwrap_or_default();
    format!("forebay {version}: serving {what} on {groups}{admin}")
}
