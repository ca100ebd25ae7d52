//! A generation: all processes that have one configuration, from their start to their end.
//!
//! ```text
//!   start           all serve           end               none is left
//!  ──────► rising ────────────► serving ──────► ending ────────────────► over
//! ```
//!
//! A rising generation starts the stages that answer before those that ask. A serving one starts
//! ended processes again. An ending one ends the stages that ask before those that answer, so that
//! requests under way are completed.

use super::cgroups::{Cgroups, Groups};
use super::changes::Changes;
use super::ending::{Ending, OutOfMemory};
use super::kept_gate::GateKeeper;
use super::links::{Hearing, Links};
use super::machines;
use super::stage::addresses;
use super::status::{InstanceStatus, Is};
use crate::firewall::{Firewall, relayed};
use crate::privileges;
use crate::start_error::{RunError, resources};
use crate::upgrade::UPGRADED;
use forebay_config::{Config, GateMode, Role, StageProcess};
use forebay_handler::certificates::Stamps;
use forebay_sys::broker::{self, Broker};
use forebay_sys::line;
use forebay_sys::passing::{self, PassedSockets, Program};
use forebay_sys::stderr::say;
use forebay_sys::unix;
use forebay_sys::unix_address::UnixAddress;
use forebay_upstream::settings::UpstreamAddress;
use signal_hook::consts::{SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// The listen backlog for connections of the stage before.
const BACKLOG: i32 = 4096;

/// The wait before an ended process is started again; it doubles each time up to the limit below.
const FIRST_REST: Duration = Duration::from_millis(50);
const LONGEST_REST: Duration = Duration::from_secs(5);

/// The lifetime after which the wait begins anew with the shortest.
const LIVES: Duration = Duration::from_secs(10);

/// The longest time for the processes of a stage to serve.
const READY: Duration = Duration::from_secs(60);

/// The time beyond that of a drain after which processes are killed.
const MARGIN: Duration = Duration::from_secs(5);

/// The time after which processes are killed that must end at once.
const AT_ONCE: Duration = Duration::from_secs(3);

/// The stack of a thread that only connects.
const CONNECT_STACK_BYTES: usize = 64 * 1024;

/// The state that all generations share.
pub(super) struct SupervisorShared {
    /// The configuration file.
    pub(super) file: PathBuf,
    /// The path of the program; an upgrade replaces the file.
    pub(super) program: PathBuf,
    /// The listening sockets, for `receive`.
    pub(super) sockets: Vec<OwnedFd>,
    /// The gate of receive.
    pub(super) gate: Arc<GateKeeper>,
    /// The table in the machine's firewall, if there is one.
    pub(super) firewall: Option<Arc<Firewall>>,
    /// The sockets at which other machines ask stages, by the stages' numbers.
    pub(super) asked: [Vec<OwnedFd>; 3],
}

/// The processes that have one configuration.
pub(super) struct Generation {
    pub(super) number: u64,
    common: Arc<SupervisorShared>,
    pub(super) config: Config,
    /// The program, which stays the same when its file is replaced.
    program: Program,
    links: Links,
    groups: Groups,
    /// The stamps of the key files before this generation was started.
    pub(super) keys: Stamps,
    /// The user and group IDs that stages other than *process* take. The supervisor keeps its own.
    user: Option<(u32, u32)>,
    slots: Vec<ProcessSlot>,
    /// Processes that were started again since the last
    /// [`take_restarted`](Generation::take_restarted).
    restarted: Vec<(Role, u64)>,
    phase: GenerationPhase,
}

/// A slot for the process of one instance.
struct ProcessSlot {
    role: Role,
    instance: u64,
    child: Option<Child>,
    started: Instant,
    rest: Duration,
    /// When the process is started again.
    due: Option<Instant>,
    /// How often the process was started again.
    restarts: u64,
}

/// The phase in the life of a generation.
enum GenerationPhase {
    Rising {
        /// The stage whose processes do not all serve yet.
        role: Role,
        /// The number of its processes that have not reported that they serve.
        missing: usize,
        since: Instant,
        _hearing: Hearing,
    },
    Serving,
    Ending {
        /// The stage that was asked to end; those before it have ended.
        role: Role,
        /// The signal for the stages that follow.
        signal: i32,
        /// Whether clients of *receive* may ask once more.
        is_replaced: bool,
        /// When the remaining processes are killed.
        until: Option<Instant>,
    },
}

impl Generation {
    /// Starts the processes of the last stage; the others follow when these report that they serve.
    /// `tell` is called for each that does, and the caller then calls [`ready`](Generation::ready).
    ///
    /// # Errors
    /// Why the first stage cannot be started.
    pub(super) fn start(
        number: u64,
        common: &Arc<SupervisorShared>,
        config: Config,
        changes: &Changes,
        cgroups: &mut Cgroups,
        tell: impl Fn() + Send + 'static,
    ) -> Result<Generation, RunError> {
        let user = privileges::another(&config).map_err(RunError::Privileges)?;
        let user = user.map(|user| (user.user, user.group));
        let program = Program::open(&common.program).map_err(resources("the program"))?;
        let links = Links::make(user.is_some()).map_err(resources("a directory for sockets"))?;
        links.keep(&common.file).map_err(resources("a copy of the configuration"))?;
        let left = changes.leave_in(links.path());
        left.map_err(resources("what commands have changed"))?;
        let hearing = links.hear(tell).map_err(resources("a socket for stages that are ready"))?;
        let groups = cgroups.groups(
            &links.name(),
            &config.isolated,
            config.sites.iter().any(|site| !site.cgi.is_empty()),
        );
        let keys = machines::stamps(&config);
        let (role, since) = (Role::Respond, Instant::now());
        let mut generation = Generation {
            number,
            common: Arc::clone(common),
            program,
            links,
            groups,
            keys,
            user,
            slots: slots(&config),
            restarted: Vec::new(),
            config,
            phase: GenerationPhase::Rising { role, missing: 0, since, _hearing: hearing },
        };
        generation.rise(Some(role))?;
        Ok(generation)
    }

    /// Counts one more process that serves, and starts the next stage after the last one.
    ///
    /// # Errors
    /// Why the next stage cannot be started.
    pub(super) fn ready(&mut self) -> Result<(), RunError> {
        let GenerationPhase::Rising { role, missing, .. } = &mut self.phase else { return Ok(()) };
        *missing = missing.saturating_sub(1);
        let next = role.before();
        if *missing > 0 { Ok(()) } else { self.rise(next) }
    }

    /// Starts the processes of this stage or, where other software takes its part, of the stage
    /// before.
    fn rise(&mut self, mut from: Option<Role>) -> Result<(), RunError> {
        while let Some(next) = from {
            let slots = 0..self.slots.len();
            let slots: Vec<_> = slots.filter(|&at| self.slots[at].role == next).collect();
            slots.iter().try_for_each(|&at| self.start_one(at)).map_err(resources("a process"))?;
            if let (GenerationPhase::Rising { role, missing, since, .. }, 1..) =
                (&mut self.phase, slots.len())
            {
                (*role, *missing, *since) = (next, slots.len(), Instant::now());
                return Ok(());
            }
            from = next.before();
        }
        self.phase = GenerationPhase::Serving;
        Ok(())
    }

    /// Starts the process of a slot.
    fn start_one(&mut self, at: usize) -> io::Result<()> {
        let ProcessSlot { role, instance, .. } = self.slots[at];
        let place = self.place(role, instance);
        let mut own = None;
        if role != Role::Receive {
            let path = place.socket(role, instance);
            // an ended instance has no listener, so a caller can be certain that nothing ran
            let _ = fs::remove_file(&path);
            let (socket, file) = unix::listen_for(&path, BACKLOG, self.user)?;
            // the socket's file is removed with the directory
            file.leave();
            own = Some(socket);
        }
        let asked = &self.common.asked[usize::from(role.number())];
        let passed = match &own {
            Some(own) => std::iter::once(own).chain(asked).map(AsFd::as_fd).collect(),
            None => self.common.sockets.iter().map(AsFd::as_fd).collect::<Vec<_>>(),
        };
        let mut passing = PassedSockets::new(&passed)?;
        if role == Role::Process {
            let (asks, broker) = broker::pair()?;
            passing = passing.with_connector(&asks)?;
            let mut to = addresses(&place, &self.config, Role::Respond);
            // the collectors' numbers follow those of the instances: see `connect_beside` of the
            // application
            to.extend(self.config.traces.to.iter().map(|collector| collector.address.clone()));
            connect_for(broker, to)?;
        }
        if role == Role::Receive && self.config.gate != GateMode::Off {
            passing = passing.with_line(line::GATE, &self.common.gate.line(self.number)?)?;
        }
        if let Some(firewall) = self.common.firewall.as_ref().filter(|_| role == Role::Receive) {
            let (gate, number) = (Arc::clone(&self.common.gate), self.number);
            let end = relayed::line(firewall, move || gate.is_judged_by(number))?;
            passing = passing.with_line(line::FIREWALL, &end)?;
        }
        let arguments = |command: &mut Command| {
            command.args(["stage", role.name(), "--config"]).arg(&self.common.file);
            command.arg("--links").arg(self.links.path());
            command.args(["--instance", &instance.to_string()]);
        };
        let child = passing.spawn(&self.program, arguments, &self.links.notify())?;
        self.groups.enter(role, child.id());
        let slot = &mut self.slots[at];
        (slot.child, slot.started, slot.due) = (Some(child), Instant::now(), None);
        Ok(())
    }

    fn place(&self, role: Role, instance: u64) -> StageProcess {
        let (file, links) = (self.common.file.clone(), self.links.path().to_owned());
        StageProcess { role, instance, file, links }
    }

    /// Whether the sockets of its processes still exist, so that they can be asked.
    pub(super) fn is_reachable(&self) -> bool {
        let asked =
            self.slots.iter().filter(|slot| slot.child.is_some() && slot.role != Role::Receive);
        let place = |slot: &ProcessSlot| {
            let (role, instance) = (slot.role, slot.instance);
            self.place(role, instance).socket(role, instance)
        };
        self.links.are_there(asked.map(place))
    }

    /// The directory with the sockets of its processes.
    pub(super) fn directory(&self) -> &Path {
        self.links.path()
    }

    /// Whether all its stages serve.
    pub(super) fn serves(&self) -> bool {
        matches!(self.phase, GenerationPhase::Serving)
    }

    /// Whether none of its processes is left.
    pub(super) fn is_over(&self) -> bool {
        self.slots.iter().all(|slot| slot.child.is_none())
    }

    /// The next time at which [`go_on`](Generation::go_on) has something to do, unless an event
    /// comes first.
    pub(super) fn due(&self) -> Option<Instant> {
        let dues = self.slots.iter().filter_map(|slot| slot.due);
        match &self.phase {
            GenerationPhase::Rising { since, .. } => Some(*since + READY),
            GenerationPhase::Serving => dues.min(),
            GenerationPhase::Ending { until, .. } => dues.chain(*until).min(),
        }
    }

    /// Reaps processes that have ended, and does what is due.
    ///
    /// # Errors
    /// When a rising generation fails: one of its processes has ended, or does not serve in time.
    pub(super) fn go_on(&mut self, memory: &mut OutOfMemory) -> Result<(), RunError> {
        let now = Instant::now();
        let failed = self.reap(now, memory);
        match self.phase {
            GenerationPhase::Rising { role, since, .. } => match failed {
                Some((role, why)) => Err(RunError::Stage { role, why: why.to_string() }),
                None if now >= since + READY => {
                    let why = format!("does not serve after {} s", READY.as_secs());
                    Err(RunError::Stage { role, why })
                }
                None => Ok(()),
            },
            GenerationPhase::Serving => {
                self.restart(now);
                Ok(())
            }
            GenerationPhase::Ending { .. } => {
                self.end_next(now);
                self.restart(now);
                Ok(())
            }
        }
    }

    /// Reaps processes that have ended, and returns the last of them.
    fn reap(&mut self, now: Instant, memory: &mut OutOfMemory) -> Option<(Role, Ending)> {
        let mut last = None;
        // stages behind the ending one are started again: those that still ask must get answers
        let starts_again = |role: Role| match self.phase {
            GenerationPhase::Rising { .. } => false,
            GenerationPhase::Serving => true,
            GenerationPhase::Ending { role: ending, .. } => role.number() > ending.number(),
        };
        for slot in &mut self.slots {
            let Some(child) = &mut slot.child else { continue };
            let Ok(Some(status)) = child.try_wait() else { continue };
            let (number, lived) = (child.id(), slot.started.elapsed());
            slot.child = None;
            let (role, instance, ending) = (slot.role, slot.instance, Ending(status));
            self.links.tell_end(role, instance, ending.was_by_itself(memory));
            last = Some((role, ending));
            if !starts_again(role) {
                continue;
            }
            if lived >= LIVES {
                slot.rest = FIRST_REST;
            }
            say(format_args!(
                "stage {role} {instance} (process {number}) {ending}; it is started again"
            ));
            slot.due = Some(now + slot.rest);
            slot.rest = (slot.rest * 2).min(LONGEST_REST);
        }
        last
    }

    /// Starts the ended processes again whose wait is over.
    fn restart(&mut self, now: Instant) {
        for at in 0..self.slots.len() {
            if self.slots[at].due.is_none_or(|due| due > now) {
                continue;
            }
            match self.start_one(at) {
                Ok(()) => {
                    let slot = &mut self.slots[at];
                    slot.restarts += 1;
                    self.restarted.push((slot.role, slot.instance));
                }
                Err(error) => {
                    let ProcessSlot { role, instance, .. } = self.slots[at];
                    say(format_args!("stage {role} {instance} cannot be started: {error}"));
                    self.slots[at].due = Some(now + LONGEST_REST);
                }
            }
        }
    }

    /// The processes that were started again since the last call.
    pub(super) fn take_restarted(&mut self) -> Vec<(Role, u64)> {
        std::mem::take(&mut self.restarted)
    }

    /// Begins the end with the stage that clients see. SIGQUIT gives clients as much time as they
    /// need.
    pub(super) fn end(&mut self, signal: i32) {
        let time = self.wait(signal).unwrap_or_default() + self.config.timeouts.drain;
        self.begin_to_end(signal, signal, time, false);
    }

    /// Begins the end where another generation has the new clients.
    pub(super) fn be_replaced(&mut self) {
        self.begin_to_end(SIGUSR2, SIGTERM, self.config.timeouts.drain, true);
    }

    /// Begins the end where a generation of another supervisor has the new clients: there is more
    /// time.
    pub(super) fn be_replaced_by_upgrade(&mut self) {
        self.begin_to_end(UPGRADED, SIGTERM, self.config.timeouts.upgrade, true);
    }

    fn begin_to_end(&mut self, first: i32, signal: i32, time: Duration, is_replaced: bool) {
        let until = Instant::now() + time + MARGIN;
        let until = (signal != SIGQUIT).then_some(until);
        // without a receive, the first stage here is the one that other machines ask
        let asked = |role: &Role| self.slots.iter().any(|slot| slot.role == *role);
        let role = Role::ALL.into_iter().find(asked).unwrap_or(Role::Receive);
        self.phase = GenerationPhase::Ending { role, signal, is_replaced, until };
        self.signal(role, first);
        self.end_next(Instant::now());
    }

    /// The longest time that the end may take after the signal.
    pub(super) fn drains_for(&self) -> Duration {
        self.config.timeouts.drain + MARGIN
    }

    /// How long receive accepts clients after this signal.
    pub(super) fn wait(&self, signal: i32) -> Option<Duration> {
        let wait = self.config.timeouts.drain_wait;
        (signal != SIGINT && !wait.is_zero()).then_some(wait)
    }

    /// Ends the wait before the drain, and signals as [`end`](Generation::end) does.
    pub(super) fn end_wait(&mut self, signal: i32) {
        if let GenerationPhase::Ending { role: Role::Receive, until, .. } = &mut self.phase {
            *until = until.map(|_| Instant::now() + self.config.timeouts.drain + MARGIN);
            self.signal(Role::Receive, signal);
        }
    }

    /// Stops waiting for idle clients.
    pub(super) fn drain(&mut self) {
        if let GenerationPhase::Ending { is_replaced, .. } = &mut self.phase
            && std::mem::take(is_replaced)
        {
            self.signal(Role::Receive, SIGTERM);
        }
    }

    /// Ends all stages at once.
    pub(super) fn end_at_once(&mut self, signal: i32) {
        let soon = Instant::now() + AT_ONCE;
        if let GenerationPhase::Ending { role, until, .. } = &mut self.phase {
            // as the last stage is ending, no process is started again
            *role = Role::Respond;
            *until = Some(until.map_or(soon, |until| until.min(soon)));
        }
        Role::ALL.into_iter().for_each(|role| self.signal(role, signal));
    }

    /// Ends the next stage once the one before has ended, and so on to the last.
    fn end_next(&mut self, now: Instant) {
        let GenerationPhase::Ending { mut role, signal, is_replaced, until } = self.phase else {
            return;
        };
        while !self.slots.iter().any(|slot| slot.role == role && slot.child.is_some())
            && let Some(next) = role.next()
        {
            role = next;
            self.signal(next, signal);
        }
        let is_late = until.is_some_and(|until| until <= now);
        if is_late {
            role = Role::Respond;
        }
        let over = self.slots.iter_mut().filter(|slot| slot.role.number() <= role.number());
        over.for_each(|slot| slot.due = None);
        let until = until.filter(|_| !is_late);
        self.phase = GenerationPhase::Ending { role, signal, is_replaced, until };
        if is_late {
            for ProcessSlot { role, instance, child, .. } in &mut self.slots {
                let Some(child) = child else { continue };
                say(format_args!(
                    "stage {role} {instance} (process {}) has not ended in time: it is killed",
                    child.id()
                ));
                let _ = child.kill();
            }
        }
    }

    /// Whether a receive of this generation still runs, which may have clients.
    pub(super) fn has_clients(&self) -> bool {
        self.slots.iter().any(|slot| slot.role == Role::Receive && slot.child.is_some())
    }

    /// Has receive open its log files again.
    pub(super) fn reopen_logs(&self) {
        self.signal(Role::Receive, SIGUSR1);
    }

    fn signal(&self, role: Role, signal: i32) {
        let children = self.slots.iter().filter(|slot| slot.role == role);
        children.filter_map(|slot| slot.child.as_ref()).for_each(|child| {
            passing::signal(child, signal);
        });
    }

    /// The status of its processes.
    pub(super) fn instances(&self) -> impl Iterator<Item = InstanceStatus> {
        let now = Instant::now();
        self.slots.iter().map(move |slot| {
            let ProcessSlot { role, instance, restarts, .. } = *slot;
            let is = match (&self.phase, &slot.child, slot.due) {
                (GenerationPhase::Rising { .. }, Some(child), _) => Is::Starting(child.id()),
                (GenerationPhase::Serving, Some(child), _) => {
                    Is::Running { process: child.id(), since: slot.started }
                }
                (GenerationPhase::Ending { .. }, Some(child), _) => Is::Leaving(child.id()),
                (_, None, Some(due)) => Is::Due(due.saturating_duration_since(now)),
                (_, None, None) => Is::Ended,
            };
            let is_asked = self.serves() && role != Role::Receive;
            let place = self.place(role, instance);
            let address = is_asked
                .then(|| UpstreamAddress::Unix(UnixAddress::Path(place.socket(role, instance))));
            let name = instance.to_string();
            InstanceStatus { role, name, is, address, restarts, is_elsewhere: false }
        })
    }
}

impl Drop for Generation {
    /// Kills the remaining processes without a log line.
    fn drop(&mut self) {
        for mut child in self.slots.iter_mut().filter_map(|slot| slot.child.take()) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The slots of all processes, those that answer before those that ask.
fn slots(config: &Config) -> Vec<ProcessSlot> {
    let of = |role: Role| {
        (1..=config.isolated.instances(role)).map(move |instance| ProcessSlot {
            role,
            instance,
            child: None,
            started: Instant::now(),
            rest: FIRST_REST,
            due: None,
            restarts: 0,
        })
    };
    Role::ALL.into_iter().rev().flat_map(of).collect()
}

/// Starts a thread that makes the connections of a process to the next stage, until the process
/// ends.
fn connect_for(broker: Broker, to: Vec<UpstreamAddress>) -> io::Result<()> {
    let connect = move |number: u32| match to.get(number as usize) {
        Some(address) => address.connect(),
        None => Err(io::ErrorKind::AddrNotAvailable.into()),
    };
    let answer = move || while broker.answer(&connect) {};
    let thread = thread::Builder::new().name("connect".to_owned()).stack_size(CONNECT_STACK_BYTES);
    thread.spawn(answer).map(drop)
}
