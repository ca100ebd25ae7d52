//! All processes that have one configuration, from their start to their end.
//!
//! ```text
//!   start           all serve           end               none is left
//!  ──────► rising ────────────► serving ──────► ending ────────────────► over
//! ```
//!
//! Rising, those that answer are there before those that ask. Serving, what ends is started again. Ending, those
//! that ask go before those that answer: what is under way comes to its end.

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

/// Connections of the stage before that wait for an instance.
const BACKLOG: i32 = 4096;

/// A process that has ended is started again after so long; twice as long each time.
const FIRST_REST: Duration = Duration::from_millis(50);
const LONGEST_REST: Duration = Duration::from_secs(5);

/// One that has lived for so long is started again as if it were the first time.
const LIVES: Duration = Duration::from_secs(10);

/// How long the processes of a stage may take until they serve.
const READY: Duration = Duration::from_secs(60);

/// How long processes have to end beyond the time for a drain, before they are killed.
const MARGIN: Duration = Duration::from_secs(5);

/// And when they are to end at once.
const AT_ONCE: Duration = Duration::from_secs(3);

/// A thread that connects needs hardly any stack.
const CONNECT_STACK_BYTES: usize = 64 * 1024;

/// What is the same for all generations.
pub(super) struct SupervisorShared {
    /// The configuration file.
    pub(super) file: PathBuf,
    /// The program; an upgrade replaces the file.
    pub(super) program: PathBuf,
    /// The listening sockets, for `receive`.
    pub(super) sockets: Vec<OwnedFd>,
    /// What receive has in the kernel.
    pub(super) gate: Arc<GateKeeper>,
    /// The table of the machine's firewall, if it has one.
    pub(super) firewall: Option<Arc<Firewall>>,
    /// Those at which other machines ask stages, by the stages' numbers.
    pub(super) asked: [Vec<OwnedFd>; 3],
}

/// All processes that have one configuration.
pub(super) struct Generation {
    pub(super) number: u64,
    common: Arc<SupervisorShared>,
    pub(super) config: Config,
    /// The program, whatever becomes of its file.
    program: Program,
    links: Links,
    groups: Groups,
    /// What the files of keys were before it was started.
    pub(super) keys: Stamps,
    /// Whom stages become, but for *process*: by numbers of user and group. The supervisor stays what it is.
    user: Option<(u32, u32)>,
    slots: Vec<ProcessSlot>,
    /// Processes that were started again since these were asked for.
    restarted: Vec<(Role, u64)>,
    phase: GenerationPhase,
}

/// A place for a process.
struct ProcessSlot {
    role: Role,
    instance: u64,
    child: Option<Child>,
    started: Instant,
    rest: Duration,
    /// When it is started again.
    due: Option<Instant>,
    /// How often it was.
    restarts: u64,
}

/// How far a generation is.
enum GenerationPhase {
    Rising {
        /// The stage whose processes are waited for.
        role: Role,
        /// So many of them have not said that they serve.
        missing: usize,
        since: Instant,
        _hearing: Hearing,
    },
    Serving,
    Ending {
        /// The stage that was told to end; those before it have ended.
        role: Role,
        /// How those that follow are told.
        signal: i32,
        /// Clients of *receive* may ask once more.
        is_replaced: bool,
        /// What is left then is killed.
        until: Option<Instant>,
    },
}

impl Generation {
    /// Starts the processes of the last stage; the others follow as these say that they serve. `tell` is called
    /// for each that does, and [`ready`](Generation::ready) is to be called then.
    ///
    /// # Errors
    /// What is in the way.
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

    /// One more of its processes serves.
    ///
    /// # Errors
    /// What is in the way of the next.
    pub(super) fn ready(&mut self) -> Result<(), RunError> {
        let GenerationPhase::Rising { role, missing, .. } = &mut self.phase else { return Ok(()) };
        *missing = missing.saturating_sub(1);
        let next = role.before();
        if *missing > 0 { Ok(()) } else { self.rise(next) }
    }

    /// Starts the processes of this stage; where other software does its part, those of the stage before.
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
            // where an instance has ended nobody listens: that nothing ran is certain then
            let _ = fs::remove_file(&path);
            let (socket, file) = unix::listen_for(&path, BACKLOG, self.user)?;
            // its file goes with the directory
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
            // behind these: see `connect_beside` of the application
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

    /// Whether its processes can still be asked: their sockets are there.
    pub(super) fn is_reachable(&self) -> bool {
        let asked =
            self.slots.iter().filter(|slot| slot.child.is_some() && slot.role != Role::Receive);
        let place = |slot: &ProcessSlot| {
            let (role, instance) = (slot.role, slot.instance);
            self.place(role, instance).socket(role, instance)
        };
        self.links.are_there(asked.map(place))
    }

    /// The directory with their sockets.
    pub(super) fn directory(&self) -> &Path {
        self.links.path()
    }

    /// Whether all of it serves.
    pub(super) fn serves(&self) -> bool {
        matches!(self.phase, GenerationPhase::Serving)
    }

    /// Whether none of its processes is left.
    pub(super) fn is_over(&self) -> bool {
        self.slots.iter().all(|slot| slot.child.is_none())
    }

    /// When [`go_on`](Generation::go_on) has something to do, if nothing happens.
    pub(super) fn due(&self) -> Option<Instant> {
        let dues = self.slots.iter().filter_map(|slot| slot.due);
        match &self.phase {
            GenerationPhase::Rising { since, .. } => Some(*since + READY),
            GenerationPhase::Serving => dues.min(),
            GenerationPhase::Ending { until, .. } => dues.chain(*until).min(),
        }
    }

    /// Takes note of processes that have ended, and does what is due.
    ///
    /// # Errors
    /// A generation that rises cannot: one of its processes has ended, or does not serve.
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

    /// Takes note of processes that have ended, and returns the last of them.
    fn reap(&mut self, now: Instant, memory: &mut OutOfMemory) -> Option<(Role, Ending)> {
        let mut last = None;
        // who still asks finds somebody who answers
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

    /// Starts those again whose time has come.
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

    /// Begins to end: first what clients see. SIGQUIT gives them all the time that they take.
    pub(super) fn end(&mut self, signal: i32) {
        let time = self.wait(signal).unwrap_or_default() + self.config.timeouts.drain;
        self.begin_to_end(signal, signal, time, false);
    }

    /// Begins to end, where another generation has the clients that come from now on.
    pub(super) fn be_replaced(&mut self) {
        self.begin_to_end(SIGUSR2, SIGTERM, self.config.timeouts.drain, true);
    }

    /// The same where that is one of another supervisor: there is more time.
    pub(super) fn be_replaced_by_upgrade(&mut self) {
        self.begin_to_end(UPGRADED, SIGTERM, self.config.timeouts.upgrade, true);
    }

    fn begin_to_end(&mut self, first: i32, signal: i32, time: Duration, is_replaced: bool) {
        let until = Instant::now() + time + MARGIN;
        let until = (signal != SIGQUIT).then_some(until);
        // where no clients come, the stages of other machines do
        let asked = |role: &Role| self.slots.iter().any(|slot| slot.role == *role);
        let role = Role::ALL.into_iter().find(asked).unwrap_or(Role::Receive);
        self.phase = GenerationPhase::Ending { role, signal, is_replaced, until };
        self.signal(role, first);
        self.end_next(Instant::now());
    }

    /// How long it may take to end, once it is told to.
    pub(super) fn drains_for(&self) -> Duration {
        self.config.timeouts.drain + MARGIN
    }

    /// How long receive accepts clients after this signal.
    pub(super) fn wait(&self, signal: i32) -> Option<Duration> {
        let wait = self.config.timeouts.drain_wait;
        (signal != SIGINT && !wait.is_zero()).then_some(wait)
    }

    /// The wait before its drain is over: [`end`](Generation::end) again.
    pub(super) fn end_wait(&mut self, signal: i32) {
        if let GenerationPhase::Ending { role: Role::Receive, until, .. } = &mut self.phase {
            *until = until.map(|_| Instant::now() + self.config.timeouts.drain + MARGIN);
            self.signal(Role::Receive, signal);
        }
    }

    /// Clients that are idle are not waited for any more.
    pub(super) fn drain(&mut self) {
        if let GenerationPhase::Ending { is_replaced, .. } = &mut self.phase
            && std::mem::take(is_replaced)
        {
            self.signal(Role::Receive, SIGTERM);
        }
    }

    /// All of it ends at once.
    pub(super) fn end_at_once(&mut self, signal: i32) {
        let soon = Instant::now() + AT_ONCE;
        if let GenerationPhase::Ending { role, until, .. } = &mut self.phase {
            // nothing is started again
            *role = Role::Respond;
            *until = Some(until.map_or(soon, |until| until.min(soon)));
        }
        Role::ALL.into_iter().for_each(|role| self.signal(role, signal));
    }

    /// The next stage ends when the one before has; in the end all do.
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

    /// Whether clients can have come to it.
    pub(super) fn has_clients(&self) -> bool {
        self.slots.iter().any(|slot| slot.role == Role::Receive && slot.child.is_some())
    }

    /// Its log files are opened again.
    pub(super) fn reopen_logs(&self) {
        self.signal(Role::Receive, SIGUSR1);
    }

    fn signal(&self, role: Role, signal: i32) {
        let children = self.slots.iter().filter(|slot| slot.role == role);
        children.filter_map(|slot| slot.child.as_ref()).for_each(|child| {
            passing::signal(child, signal);
        });
    }

    /// Its processes.
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
    /// Ends what is left without a word.
    fn drop(&mut self) {
        for mut child in self.slots.iter_mut().filter_map(|slot| slot.child.take()) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Those that answer are there before those that ask.
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

/// Makes the connections of a process to the next stage, until it ends.
fn connect_for(broker: Broker, to: Vec<UpstreamAddress>) -> io::Result<()> {
    let connect = move |number: u32| match to.get(number as usize) {
        Some(address) => address.connect(),
        None => Err(io::ErrorKind::AddrNotAvailable.into()),
    };
    let answer = move || while broker.answer(&connect) {};
    let thread = thread::Builder::new().name("connect".to_owned()).stack_size(CONNECT_STACK_BYTES);
    thread.spawn(answer).map(drop)
}
