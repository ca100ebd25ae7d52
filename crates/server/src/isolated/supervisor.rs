//! The process that starts the stages, keeps the listening sockets, and starts again what has ended.

use super::cgroups::{Cgroups, Generation};
use super::ending::{Ending, OutOfMemory};
use super::links::Links;
use super::stage::{Place, Role};
use super::status::{self, Instance, Is};
use crate::config::{self, Config, Depth, ListenEndpoint};
use crate::control_socket::{self, CommandAnswer, CommandRequest};
use crate::listen::Listeners;
use crate::notify::Notifier;
use crate::privileges::{self, PrivilegeError};
use crate::run::{Ready, RunError, say};
use forebay_sys::broker::{self, Broker};
use forebay_sys::passing::{self, PassedSockets};
use forebay_sys::unix;
use forebay_upstream::settings::UpstreamAddress;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

/// Connections of the stage before that wait for an instance.
const BACKLOG: i32 = 4096;

/// One that has ended is started again after so long; twice as long each time.
const FIRST_REST: Duration = Duration::from_millis(50);
const LONGEST_REST: Duration = Duration::from_secs(5);

/// One that has lived for so long is started again as if it were the first time.
const LIVES: Duration = Duration::from_secs(10);

/// How long one that leaves is left to itself, beyond the time for a drain.
const MARGIN: Duration = Duration::from_secs(5);

/// How long processes may take until they serve.
const READY: Duration = Duration::from_secs(60);

/// A thread that connects needs hardly any stack.
const CONNECT_STACK_BYTES: usize = 64 * 1024;

/// How often one that is waited for is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// A place for a process.
struct Slot {
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

/// What the supervisor is told.
enum Event {
    Signal(i32),
    /// By a command at the control socket.
    Asked(CommandRequest),
}

/// The processes of before a reload: one stage after the other is told to end.
struct Leaving {
    children: Vec<(Role, u64, Child)>,
    /// Until here they were told.
    role: Role,
    /// They are left to themselves for so long.
    until: Instant,
    links: Links,
    /// It goes when they have ended.
    _limits: Generation,
}

impl Leaving {
    /// Whether any is left. The next stage ends when the one before has.
    fn goes_on(&mut self, now: Instant, memory: &mut OutOfMemory) -> bool {
        self.children.retain_mut(|(role, instance, child)| {
            let ended = child.try_wait();
            if let Ok(Some(status)) = ended {
                let was_by_itself = Ending(status).was_by_itself(memory);
                self.links.tell_end(*role, *instance, was_by_itself);
            }
            let is_there = matches!(ended, Ok(None));
            if is_there && now >= self.until {
                let _ = child.kill();
            }
            is_there
        });
        while !self.children.iter().any(|(role, ..)| *role == self.role)
            && let Some(next) = self.role.next()
        {
            self.role = next;
            self.signal(SIGTERM);
        }
        !self.children.is_empty()
    }

    /// To the stage that is ending.
    fn signal(&self, signal: i32) {
        let children = self.children.iter().filter(|(role, ..)| *role == self.role);
        children.for_each(|(_, _, child)| passing::signal(child, signal));
    }
}

/// The processes.
struct Supervisor {
    file: PathBuf,
    /// The program, which an upgrade may have replaced.
    program: PathBuf,
    links: Links,
    /// The limits of those that run.
    limits: Generation,
    cgroups: Cgroups,
    config: Config,
    /// Whom stages become, but for *process*: by numbers of user and group. This process stays what it is.
    user: Option<(u32, u32)>,
    /// The listening sockets, for `receive`.
    sockets: Vec<OwnedFd>,
    slots: Vec<Slot>,
    /// Those that were replaced, and end when what they have is done.
    leaving: Vec<Leaving>,
    /// The stage that is ending, and by which signal.
    stopping: Option<(Role, i32)>,
    notifier: Notifier,
    memory: OutOfMemory,
}

fn resources(what: &'static str) -> impl FnOnce(io::Error) -> RunError {
    move |error| RunError::Resources { what, error }
}

/// Starts the stages, and returns when they have ended. `ready` is called when they serve.
///
/// # Errors
/// What is in the way at the start.
pub fn run(config: Config, file: Option<PathBuf>, ready: Ready) -> Result<(), RunError> {
    let Some(file) = file else { return Err(RunError::NoFile) };
    let signals = [SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGUSR1, SIGCHLD];
    let signals = Signals::new(signals).map_err(resources("descriptors for signals"))?;
    let mut listeners = Listeners::inherit().map_err(RunError::Listen)?;
    let endpoints = endpoints(&config);
    let hands = listeners.take_endpoints(&endpoints, 1).map_err(RunError::Listen)?;
    let user = user(&config).map_err(RunError::Privileges)?;
    let links = Links::make(user.is_some()).map_err(resources("a directory for sockets"))?;
    links.keep(&file).map_err(resources("a copy of the configuration"))?;
    let sockets = hands.into_iter().flatten().map(|socket| socket.socket).collect();
    let program = std::env::current_exe().map_err(resources("the path of the program"))?;
    let mut supervisor = Supervisor {
        file,
        program,
        links,
        limits: Generation::default(),
        cgroups: Cgroups::default(),
        slots: slots(&config),
        config,
        user,
        sockets,
        leaving: Vec::new(),
        stopping: None,
        notifier: Notifier::from_environment(),
        memory: OutOfMemory::new(),
    };
    let (tell, events) = mpsc::channel();
    listen(signals, tell.clone()).map_err(resources("a thread for signals"))?;
    let mut control = control_socket::open(&supervisor.config, Some(&supervisor.file))?;
    let result = supervisor.start_all().and_then(|()| {
        if let Some(socket) = &mut control {
            let asked = move |asked| drop(tell.send(Event::Asked(asked)));
            socket.serve(asked).map_err(resources("a thread for commands"))?;
        }
        supervisor.notifier.ready("the stages serve");
        ready(None);
        supervisor.serve(&events)
    });
    supervisor.end_all();
    // the files of Unix sockets go
    listeners.end(&[]);
    result
}

/// Where clients and those who look come to. Receive is given all of it: the next generation comes while this one
/// is there.
fn endpoints(config: &Config) -> Vec<ListenEndpoint> {
    let public = config.listeners.iter().flat_map(|listener| listener.listen.clone());
    public.chain(config.admin.listen.0.iter().cloned()).collect()
}

/// Whom stages become, if they are to be another than this process.
fn user(config: &Config) -> Result<Option<(u32, u32)>, PrivilegeError> {
    Ok(privileges::another(config)?.map(|user| (user.user, user.group)))
}

/// Those that answer are there before those that ask.
fn slots(config: &Config) -> Vec<Slot> {
    let of = |role: Role| {
        (1..=role.instances(config)).map(move |instance| Slot {
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

fn listen(mut signals: Signals, tell: Sender<Event>) -> io::Result<()> {
    let listen = move || {
        for signal in signals.forever() {
            if tell.send(Event::Signal(signal)).is_err() {
                break;
            }
        }
    };
    thread::Builder::new().name("signals".to_owned()).spawn(listen).map(drop)
}

impl Supervisor {
    /// Starts all of them, those that answer before those that ask, and returns when they serve.
    fn start_all(&mut self) -> Result<(), RunError> {
        self.limits = self.cgroups.generation(&self.links.name(), &self.config.isolated);
        let heard = self.links.hear().and_then(|heard| {
            heard.set_read_timeout(Some(LOOK))?;
            Ok(heard)
        });
        let heard = heard.map_err(resources("a socket for stages that are ready"))?;
        for role in Role::ALL.into_iter().rev() {
            let slots: Vec<_> =
                (0..self.slots.len()).filter(|&at| self.slots[at].role == role).collect();
            slots.iter().try_for_each(|&at| self.start(at)).map_err(resources("a process"))?;
            self.wait_for(role, slots.len(), &heard)?;
        }
        // who is started again tells nobody
        let _ = fs::remove_file(self.links.notify());
        Ok(())
    }

    /// Waits until so many processes of a stage have said that they serve.
    fn wait_for(
        &mut self,
        role: Role,
        mut count: usize,
        heard: &UnixDatagram,
    ) -> Result<(), RunError> {
        let (begin, mut text) = (Instant::now(), [0; 512]);
        while count > 0 {
            if let Ok(length) = heard.recv(&mut text) {
                count -= usize::from(text[..length].starts_with(b"READY=1\n"));
                continue;
            }
            let mut children = self.slots.iter_mut().filter(|slot| slot.role == role);
            let ended = children.find_map(|slot| slot.child.as_mut()?.try_wait().ok().flatten());
            if let Some(status) = ended {
                return Err(RunError::Stage { role, why: Ending(status).to_string() });
            }
            if begin.elapsed() >= READY {
                let why = format!("does not serve after {} s", READY.as_secs());
                return Err(RunError::Stage { role, why });
            }
        }
        Ok(())
    }

    /// Starts the process of a slot.
    fn start(&mut self, at: usize) -> io::Result<()> {
        let Slot { role, instance, .. } = self.slots[at];
        let place = Place { role, instance, links: self.links.path().to_owned() };
        let mut command = Command::new(&self.program);
        command.args(["stage", role.name(), "--config"]).arg(&self.file);
        command.arg("--links").arg(self.links.path()).args(["--instance", &instance.to_string()]);
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
        let passed: &[OwnedFd] = own.as_ref().map_or(&self.sockets, std::slice::from_ref);
        let mut passing = PassedSockets::new(passed)?;
        if role == Role::Process {
            let (asks, broker) = broker::pair()?;
            passing = passing.with_connector(&asks)?;
            connect_for(broker, place.addresses(&self.config, Role::Respond))?;
        }
        let child = passing.spawn(&mut command, &self.links.notify())?;
        self.limits.enter(role, child.id());
        let slot = &mut self.slots[at];
        (slot.child, slot.started, slot.due) = (Some(child), Instant::now(), None);
        Ok(())
    }

    fn serve(&mut self, events: &Receiver<Event>) -> Result<(), RunError> {
        loop {
            match events.recv_timeout(self.patience()) {
                Ok(Event::Signal(signal @ (SIGTERM | SIGINT | SIGQUIT))) => self.stop(signal),
                Ok(Event::Signal(SIGHUP)) => drop(self.reload()),
                Ok(Event::Signal(SIGUSR1)) => self.signal(Role::Receive, SIGUSR1),
                Ok(Event::Signal(_)) | Err(RecvTimeoutError::Timeout) => {}
                Ok(Event::Asked(CommandRequest { command, reply, .. })) => {
                    self.asked(&command, reply);
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            self.reap();
            self.restart();
            if self.notifier.interval().is_some() {
                self.notifier.alive();
            }
            if self.is_over() {
                return Ok(());
            }
        }
    }

    /// How long nothing has to be done.
    fn patience(&self) -> Duration {
        let now = Instant::now();
        let dues = self.slots.iter().filter_map(|slot| slot.due);
        let dues = dues.chain(self.leaving.iter().map(|leaving| leaving.until));
        let next = dues.min().map(|due| due.saturating_duration_since(now));
        let next = next.into_iter().chain(self.notifier.interval()).min();
        next.unwrap_or(Duration::from_secs(60)).max(Duration::from_millis(1))
    }

    /// Takes note of those that have ended.
    fn reap(&mut self) {
        let now = Instant::now();
        self.leaving.retain_mut(|leaving| leaving.goes_on(now, &mut self.memory));
        let is_stopping = self.stopping.is_some();
        for slot in &mut self.slots {
            let Some(child) = &mut slot.child else { continue };
            let Ok(Some(status)) = child.try_wait() else { continue };
            let (number, lived) = (child.id(), slot.started.elapsed());
            slot.child = None;
            let (role, instance, ending) = (slot.role, slot.instance, Ending(status));
            self.links.tell_end(role, instance, ending.was_by_itself(&mut self.memory));
            if is_stopping {
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
    }

    /// Starts those again whose time has come.
    fn restart(&mut self) {
        let now = Instant::now();
        for at in 0..self.slots.len() {
            let is_due = self.slots[at].due.is_some_and(|due| due <= now);
            if self.stopping.is_none()
                && is_due
                && let Err(error) = self.start(at)
            {
                let Slot { role, instance, .. } = self.slots[at];
                say(format_args!("stage {role} {instance} cannot be started: {error}"));
                self.slots[at].due = Some(now + LONGEST_REST);
            } else if is_due && self.stopping.is_none() {
                self.slots[at].restarts += 1;
            }
        }
        self.stop_next();
    }

    fn signal(&self, role: Role, signal: i32) {
        let children = self.slots.iter().filter(|slot| slot.role == role);
        children.filter_map(|slot| slot.child.as_ref()).for_each(|child| {
            passing::signal(child, signal);
        });
    }

    /// Begins to end: first what clients see. A second time, or at once: everything.
    fn stop(&mut self, signal: i32) {
        match self.stopping {
            None => {
                self.stopping = Some((Role::Receive, signal));
                self.slots.iter_mut().for_each(|slot| slot.due = None);
                self.signal(Role::Receive, signal);
            }
            Some(_) => {
                Role::ALL.into_iter().for_each(|role| self.signal(role, signal));
                self.leaving.iter().for_each(|leaving| leaving.signal(signal));
            }
        }
    }

    /// The next stage ends when the one before has.
    fn stop_next(&mut self) {
        while let Some((role, signal)) = self.stopping
            && !self.slots.iter().any(|slot| slot.role == role && slot.child.is_some())
        {
            let Some(next) = role.next() else { return };
            self.stopping = Some((next, signal));
            self.signal(next, signal);
        }
    }

    fn is_over(&self) -> bool {
        self.stopping.is_some()
            && self.leaving.is_empty()
            && self.slots.iter().all(|slot| slot.child.is_none())
    }

    /// Starts all stages anew with the configuration as it is now, beside those there are. These end when the
    /// new ones serve, and finish what they have; they stay if the new ones cannot serve.
    fn reload(&mut self) -> CommandAnswer {
        if self.stopping.is_some() {
            return CommandAnswer { code: 1, text: "the stages are ending\n".to_owned() };
        }
        self.notifier.reloading();
        let (code, text) = match self.replace_all() {
            Ok(warnings) => {
                (0, [vec!["the stages are replaced".to_owned()], warnings].concat().join("\n"))
            }
            Err(why) => (1, format!("the stages stay as they are: {why}")),
        };
        text.lines().for_each(|line| say(format_args!("{line}")));
        self.notifier.ready(text.lines().next().unwrap_or_default());
        CommandAnswer { code, text: format!("{text}\n") }
    }

    /// Does what a command wants. Who waits for an answer waits for no other command.
    fn asked(&mut self, command: &str, reply: crossbeam_channel::Sender<CommandAnswer>) {
        let answer = match command {
            "reload" => self.reload(),
            "status" => return status::tell(self.instances(), reply),
            other if other.starts_with("policy") || other.starts_with("upstream") => {
                let text = "the engine isolated has no policy and no upstreams that can be changed \
                            while it runs: write it into the file, and reload\n";
                CommandAnswer { code: 1, text: text.to_owned() }
            }
            other => CommandAnswer::unknown(other),
        };
        // a command that went away needs no answer
        let _ = reply.send(answer);
    }

    /// All processes there are, and other software in their place.
    fn instances(&self) -> Vec<Instance> {
        let now = Instant::now();
        let place = |role, instance| Place { role, instance, links: self.links.path().to_owned() };
        let own = self.slots.iter().map(|slot| {
            let Slot { role, instance, .. } = *slot;
            let socket = UpstreamAddress::Unix(place(role, instance).socket(role, instance));
            let is = match (&slot.child, slot.due) {
                (Some(child), _) => Is::Running { process: child.id(), since: slot.started },
                (None, Some(due)) => Is::Due(due.saturating_duration_since(now)),
                (None, None) => Is::Ended,
            };
            let address = (role != Role::Receive).then_some(socket);
            Instance { role, name: instance.to_string(), is, address, restarts: slot.restarts }
        });
        let others = Role::ALL.into_iter().flat_map(|role| {
            role.others(&self.config).iter().map(move |other| Instance {
                role,
                name: other.0.to_string(),
                is: Is::Other,
                address: Some(other.0.clone()),
                restarts: 0,
            })
        });
        let leaving = self.leaving.iter().flat_map(|leaving| &leaving.children);
        let leaving = leaving.map(|(role, instance, child)| Instance {
            role: *role,
            name: instance.to_string(),
            is: Is::Leaving(child.id()),
            address: None,
            restarts: 0,
        });
        let mut all: Vec<_> = own.chain(others).chain(leaving).collect();
        all.sort_by_key(|one| one.role.number());
        all
    }

    /// Returns what the file says and hardly means.
    fn replace_all(&mut self) -> Result<Vec<String>, String> {
        let read = config::load_and_warn(&self.file, Depth::Files);
        let (config, warnings) = read.map_err(|problems| {
            problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
        })?;
        if !super::is_wanted(&config) {
            return Err("another engine needs a restart".to_owned());
        }
        if endpoints(&config) != endpoints(&self.config) {
            return Err("other addresses need a restart".to_owned());
        }
        let user = user(&config).map_err(|error| error.to_string())?;
        let links = Links::make(user.is_some()).map_err(|error| error.to_string())?;
        links.keep(&self.file).map_err(|error| error.to_string())?;
        let links = std::mem::replace(&mut self.links, links);
        let old = std::mem::replace(&mut self.slots, slots(&config));
        let config = std::mem::replace(&mut self.config, config);
        let user = std::mem::replace(&mut self.user, user);
        let limits = std::mem::take(&mut self.limits);
        if let Err(why) = self.start_all() {
            end(std::mem::replace(&mut self.slots, old).into_iter().filter_map(|slot| slot.child));
            (self.links, self.config, self.limits) = (links, config, limits);
            self.user = user;
            return Err(why.to_string());
        }
        let until = Instant::now() + self.config.timeouts.drain + MARGIN;
        let children = old.into_iter();
        let children = children.filter_map(|slot| Some((slot.role, slot.instance, slot.child?)));
        let (children, role) = (children.collect(), Role::Receive);
        let leaving = Leaving { children, role, until, links, _limits: limits };
        leaving.signal(SIGTERM);
        self.leaving.push(leaving);
        Ok(warnings)
    }

    /// Ends what is left.
    fn end_all(&mut self) {
        let mut leaving = std::mem::take(&mut self.leaving);
        let left = leaving.iter_mut().flat_map(|leaving| leaving.children.drain(..));
        let slots = self.slots.iter_mut().filter_map(|slot| slot.child.take());
        end(slots.chain(left.map(|(_, _, child)| child)));
    }
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

/// Ends processes without a word, and waits until they have.
fn end(children: impl Iterator<Item = Child>) {
    for mut child in children {
        let _ = child.kill();
        let _ = child.wait();
    }
}
