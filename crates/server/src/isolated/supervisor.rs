//! The process that starts the stages, keeps the listening sockets, and replaces one generation of
//! stages by the next.
//!
//! The supervisor is one loop over events: signals, commands, processes that serve or have ended,
//! and time. It waits for nothing else, so that ended processes are started again while a reload
//! waits for its new stages. The exceptions are control groups, within bounds: 5 s for those that
//! another process has locked, half a second for busy ones.

use super::cgroups::Cgroups;
use super::changes::{self, Changes};
use super::drained::DrainedUpstreams;
use super::ending::OutOfMemory;
use super::generation::{Generation, SupervisorShared};
use super::kept_gate::GateKeeper;
use super::machines::{self, KeyLook};
use super::place::Place;
use super::relayed::{self, RelayedAnswer, Sessions};
use super::status::{self, StagesStatus};
use crate::command::{CommandAnswer, CommandKind, CommandRequest};
use crate::config_file;
use crate::control_socket::{self, ControlSocket};
use crate::firewall::{self, FirewallKeeper};
use crate::lints::Depth;
use crate::listen::Listeners;
use crate::notify::Notifier;
use crate::start_error::{Ready, RunError, SAME_SIGNAL, resources};
use crate::upgrade::earlier::EarlierServers;
use crate::upgrade::expected::ExpectedUpgrade;
use crate::upgrade::handed::OpenConnections;
use crate::upgrade::predecessor::{Inheritance, Predecessor};
use crate::upgrade::starting::StartingCommand;
use crate::upgrade::successor::SuccessorEvent;
use crossbeam_channel::{Sender as Reply, bounded};
use forebay_config::{Config, FirewallSettings, GateMode, ListenEndpoint, Role};
use forebay_policy::Policy;
use forebay_sys::stderr::say;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

/// The largest number of replaced generations that wait for idle clients.
const MOST_LEAVING: usize = 4;

/// How often the supervisor looks whether the sockets of the stages still exist.
const LOOK: Duration = Duration::from_secs(5);

/// The wait before the next look after stages were started anew, even in vain.
const LONG_LOOK: Duration = Duration::from_secs(60);

/// How often receive is asked for the keys of tickets; it makes new ones every few hours.
const COPY: Duration = Duration::from_secs(3600);

/// An event of the supervisor's loop.
pub(super) enum SupervisorEvent {
    Signal(i32),
    /// A process of this generation serves.
    Ready(u64),
    /// A command came at the control socket.
    Asked(CommandRequest),
    /// Receive has answered a command.
    Relayed(RelayedAnswer),
    /// The changes of commands so far, as the receive of this generation reports them.
    Changed(u64, String),
    /// A process of this generation has drained or resumed the upstream with this name.
    UpstreamSet(u64, String),
    /// An event of the process that takes the place of this one.
    Successor(SuccessorEvent),
    /// A replaced server has this many open connections, or has ended.
    EarlierHas(u32, Option<OpenConnections>),
}

/// The supervisor's state: the generations that serve, rise or end, and what they share.
pub(super) struct Supervisor {
    pub(super) common: Arc<SupervisorShared>,
    pub(super) listeners: Listeners,
    pub(super) control: Option<ControlSocket>,
    cgroups: Cgroups,
    pub(super) notifier: Notifier,
    memory: OutOfMemory,
    /// The sender for this loop's events.
    pub(super) tell: Sender<SupervisorEvent>,
    pub(super) serving: Option<Generation>,
    pub(super) rising: Option<Rising>,
    /// The number of generations started so far.
    generations: u64,
    /// Reload commands that came while stages rise: one more reload serves them all.
    again: Option<Vec<Reply<CommandAnswer>>>,
    /// Replaced generations, which end when their requests are done.
    pub(super) leaving: Vec<Generation>,
    /// When the server was asked to end.
    pub(super) ends_since: Option<Instant>,
    /// The state of the supervisor's place.
    pub(super) place: Place,
    pub(super) expected: ExpectedUpgrade,
    /// Whether receive still accepts although another server has the clients.
    pub(super) accepts: Arc<AtomicBool>,
    /// The servers that this one has replaced, oldest first.
    pub(super) earlier: EarlierServers,
    /// Until when the end waits for those servers.
    waits_for_earlier_until: Option<Instant>,
    /// When the sockets are closed that no stage listens at any more.
    pub(super) closes_at: Option<Instant>,
    /// Until when clients are still accepted, unless another signal comes.
    waits_until: Option<Instant>,
    /// The time of the next look at the sockets of the stages.
    next_look: Instant,
    /// The state of the looks at key files.
    pub(super) key_look: KeyLook,
    /// When receive is next asked for the keys of tickets.
    next_copy: Instant,
    /// The changes of commands in the serving stages.
    pub(super) changes: Changes,
    /// The number of the generation that serves.
    pub(super) served_by: u64,
    /// The number of commands under way that change something: one at most.
    pub(super) changing: usize,
    /// The number of the generation in which a command last changed something.
    pub(super) changed_in: u64,
    /// Commands that wait for the one under way, or for stages that rise.
    pub(super) held: Vec<(String, Reply<CommandAnswer>)>,
    /// The connections of programs that stay.
    pub(super) sessions: Sessions,
    /// Upstreams that commands have drained.
    pub(super) drained: DrainedUpstreams,
}

/// The stages that will serve next.
pub(super) struct Rising {
    number: u64,
    pub(super) generation: Generation,
    /// The remarks on the configuration file.
    warnings: Vec<String>,
    /// The commands that wait for the outcome.
    replies: Vec<Reply<CommandAnswer>>,
}

/// Starts the stages, and returns when they have ended. `before` is the control socket of a server
/// whose place they take; `ready` is called when they serve.
///
/// # Errors
/// Why the stages cannot be started.
pub fn run(
    config: Config,
    file: Option<PathBuf>,
    before: Option<(&Path, StartingCommand)>,
    ready: Ready,
) -> Result<(), RunError> {
    let Some(file) = file else { return Err(RunError::NoFile) };
    let signals = [SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGCHLD];
    let signals = Signals::new(signals).map_err(resources("descriptors for signals"))?;
    let before = before.map(|(socket, command)| Predecessor::ask(socket, command));
    let before = before.transpose().map_err(RunError::TakeOver)?;
    let (before, mut inheritance) = before.unzip();
    if let Some(inheritance) = &inheritance {
        inheritance.check_gate(config.gate).map_err(RunError::TakeOver)?;
    }
    let mut listeners = match &mut inheritance {
        Some(handed) => {
            handed.take_effect().map_err(resources("the sockets of the server before"))?
        }
        None => Listeners::inherit().map_err(RunError::Listen)?,
    };
    let endpoints = endpoints(&config);
    let mut take = |endpoints: &[ListenEndpoint]| -> Result<Vec<OwnedFd>, RunError> {
        let taken = listeners.take_endpoints(endpoints, 1).map_err(RunError::Listen)?;
        Ok(taken.into_iter().flatten().map(|socket| socket.socket).collect())
    };
    let sockets = take(&of_clients(&config))?;
    let [receive, process, respond] =
        Role::ALL.map(|role| take(&machines::asked_at(&config, role)));
    let asked = [receive?, process?, respond?];
    let gate = inheritance.as_mut().and_then(Inheritance::gate);
    let gate = Arc::new(GateKeeper::new(gate.filter(|_| config.gate != GateMode::Off)));
    // receive sets the rules of the table
    let (table, rules) = (inheritance.as_ref().and_then(Inheritance::table), Policy::default());
    let keeps_table = table == Some(config.firewall.table());
    let keeper = firewall::open(&config.firewall, &[], &rules, keeps_table);
    let mut keeper = keeper.map_err(RunError::Firewall)?;
    let firewall = keeper.as_ref().map(FirewallKeeper::firewall);
    // a table that the predecessor still has is taken over in `succeed`, once these stages serve
    if let Some(keeper) = keeper.take_if(|_| !keeps_table) {
        keeper.start().map_err(resources("a thread for the firewall"))?;
    }
    let program = std::env::current_exe().map_err(resources("the path of the program"))?;
    let (tell, events) = mpsc::channel();
    listen(signals, tell.clone()).map_err(resources("a thread for signals"))?;
    let lock_wait = listeners.lock_wait();
    let control = match &mut inheritance {
        Some(handed) => {
            control_socket::open_handed(&config, Some(&file), handed.control(), lock_wait)
        }
        None => control_socket::open(&config, Some(&file), lock_wait),
    };
    let control = control.map_err(RunError::ControlSocket)?;
    // this process keeps root's rights, so no other process chooses the socket it notifies
    let notifier = Notifier::from_environment();
    // the stages accept as soon as they are there
    listeners.begin_listening().map_err(resources("sockets that listen"))?;
    let mut supervisor = Supervisor {
        common: Arc::new(SupervisorShared { file, program, sockets, gate, firewall, asked }),
        listeners,
        control,
        cgroups: Cgroups::default(),
        notifier,
        memory: OutOfMemory::new(),
        tell: tell.clone(),
        serving: None,
        rising: None,
        generations: 0,
        again: None,
        leaving: Vec::new(),
        ends_since: None,
        expected: ExpectedUpgrade::default(),
        accepts: Arc::default(),
        place: if before.is_some() { Place::Wanted } else { Place::Own },
        earlier: EarlierServers::default(),
        waits_for_earlier_until: None,
        closes_at: None,
        waits_until: None,
        next_look: Instant::now() + LOOK,
        key_look: KeyLook::default(),
        next_copy: Instant::now() + COPY,
        changes: inheritance.as_ref().map(|it| Changes::of(&it.handed)).unwrap_or_default(),
        served_by: 0,
        changing: 0,
        changed_in: 0,
        held: Vec::new(),
        sessions: Sessions::default(),
        drained: DrainedUpstreams::default(),
    };
    supervisor.rising = Some(supervisor.rise(config, Vec::new())?);
    // until the stages serve, a failure ends the start; commands wait at the socket meanwhile
    supervisor.go_on_until(&events, |it| it.serving.is_some() || it.is_over())?;
    if !supervisor.is_over() {
        if let Some((before, inheritance)) = before.zip(inheritance) {
            let taken = supervisor.succeed(before, inheritance, &endpoints, keeper);
            taken.map_err(resources("the place of the server before"))?;
        }
        if let Some(socket) = &mut supervisor.control {
            let asked = move |asked| drop(tell.send(SupervisorEvent::Asked(asked)));
            socket.serve_commands(asked).map_err(resources("a thread for commands"))?;
        }
        ready(None);
        supervisor.go_on_until(&events, Supervisor::is_over)?;
    }
    // in an upgrade, `be_succeeded` has already left or removed the table
    if let Some(firewall) = supervisor.common.firewall.as_ref().filter(|_| supervisor.has_place()) {
        firewall.end();
    }
    // removes the files of Unix sockets
    supervisor.listeners.end(&[]);
    Ok(())
}

/// All addresses at which this server listens.
pub(super) fn endpoints(config: &Config) -> Vec<ListenEndpoint> {
    let asked = Role::ALL.into_iter().flat_map(|role| machines::asked_at(config, role));
    of_clients(config).into_iter().chain(asked).collect()
}

/// The addresses for clients and for the admin listener. Receive is given all these sockets: the
/// next generation starts while this one still runs.
fn of_clients(config: &Config) -> Vec<ListenEndpoint> {
    let public = config.listeners.iter().flat_map(|listener| listener.listen.clone());
    public.chain(config.admin.listen.0.iter().cloned()).collect()
}

fn listen(mut signals: Signals, tell: Sender<SupervisorEvent>) -> io::Result<()> {
    let listen = move || {
        for signal in signals.forever() {
            if tell.send(SupervisorEvent::Signal(signal)).is_err() {
                break;
            }
        }
    };
    thread::Builder::new().name("signals".to_owned()).spawn(listen).map(drop)
}

impl Supervisor {
    /// Handles events until `is_so` holds.
    ///
    /// # Errors
    /// The first stages cannot be started.
    fn go_on_until(
        &mut self,
        events: &Receiver<SupervisorEvent>,
        is_so: impl Fn(&Supervisor) -> bool,
    ) -> Result<(), RunError> {
        while !is_so(self) {
            let mut came = events.recv_timeout(self.patience()).ok();
            while let Some(event) = came {
                self.hear(event)?;
                came = events.try_recv().ok();
            }
            self.go_on()?;
            if self.notifier.interval().is_some() {
                self.notifier.alive();
            }
        }
        Ok(())
    }

    /// How long the loop may wait for an event before something is due.
    fn patience(&self) -> Duration {
        let now = Instant::now();
        let rising = self.rising.as_ref().map(|rising| &rising.generation);
        let all = self.serving.iter().chain(rising).chain(&self.leaving);
        let next = all.filter_map(Generation::due).min();
        let next = next.map(|due| due.saturating_duration_since(now));
        let look = self.next_look.saturating_duration_since(now);
        let due = self.leaves_at().into_iter().chain(self.closes_at);
        let due = due.chain(self.waits_for_earlier_until);
        let due = due.map(|due| due.saturating_duration_since(now));
        let next = next.into_iter().chain(self.notifier.interval()).chain([look]).chain(due).min();
        next.unwrap_or(LOOK).max(Duration::from_millis(1))
    }

    fn hear(&mut self, event: SupervisorEvent) -> Result<(), RunError> {
        match event {
            SupervisorEvent::Signal(signal @ (SIGTERM | SIGINT | SIGQUIT)) => self.end(signal),
            SupervisorEvent::Signal(SIGHUP) => self.reload(Vec::new()),
            SupervisorEvent::Signal(SIGUSR1) => {
                let rising = self.rising.as_ref().map(|rising| &rising.generation);
                let all = self.serving.iter().chain(rising).chain(&self.leaving);
                all.for_each(Generation::reopen_logs);
                self.earlier.reopen_logs();
            }
            // a process has ended
            SupervisorEvent::Signal(_) => {}
            SupervisorEvent::Ready(number) => {
                let rising = self.rising.as_mut().filter(|rising| rising.number == number);
                if let Some(rising) = rising
                    && let Err(why) = rising.generation.ready()
                {
                    self.fail(why)?;
                }
            }
            SupervisorEvent::Asked(CommandRequest { asked, reply }) => match asked {
                CommandKind::Command(command) => self.answer(&command, reply),
                // receive serves programs that stay, so their changes do not come here
                CommandKind::Change(..) => {}
                CommandKind::Session(program, received) => self.relay_session(program, received),
                CommandKind::TakeOver(stream) => self.hand_to(stream, &reply),
            },
            SupervisorEvent::Relayed(relayed) => self.hear_answer(relayed),
            // a command of this generation has reported newer changes since
            SupervisorEvent::Changed(generation, _) if generation == self.changed_in => {}
            // `take_changes` has logged a failure
            SupervisorEvent::Changed(generation, text) => {
                let _ = self.take_changes(generation, &text);
            }
            SupervisorEvent::UpstreamSet(number, name) => self.repeat_upstream(number, name),
            SupervisorEvent::Successor(event) => self.hear_successor(event),
            SupervisorEvent::EarlierHas(process, open) => self.earlier.heard(process, open),
        }
        Ok(())
    }

    fn go_on(&mut self) -> Result<(), RunError> {
        let memory = &mut self.memory;
        for generation in self.serving.iter_mut().chain(&mut self.leaving) {
            generation.go_on(memory)?;
        }
        self.leaving.retain(|generation| !generation.is_over());
        if let Some(rising) = &mut self.rising
            && let Err(why) = rising.generation.go_on(memory)
        {
            self.fail(why)?;
        }
        self.tell_drained();
        if let Some(risen) = self.rising.take_if(|rising| rising.generation.serves()) {
            self.replace_by(risen);
        }
        if self.rising.is_none()
            && self.changing == 0
            && let Some(replies) = self.again.take()
        {
            self.reload(replies);
        }
        if self.rising.is_none() && self.changing == 0 {
            let held = std::mem::take(&mut self.held);
            held.into_iter().for_each(|(command, reply)| self.relay(command, reply));
        }
        let now = Instant::now();
        if now >= self.next_look {
            self.look_after_sockets();
            self.look_after_keys();
        }
        if now >= self.next_copy {
            self.next_copy = now + COPY;
            // sent as a command that changes something, so that the answer is never older than the
            // known changes
            self.relay(changes::ASKED_BY.to_owned(), bounded(1).0);
        }
        if self.closes_at.take_if(|at| now >= *at).is_some() {
            self.listeners.close();
        }
        if self.leaves_at().is_some_and(|at| now >= at) {
            self.leave_clients();
        }
        Ok(())
    }

    /// Replaces stages whose sockets are gone: they answer no process that has no connection yet.
    /// They do not get new sockets, since the stages that ask know the directory by its name, and
    /// Landlock knows the directory itself.
    fn look_after_sockets(&mut self) {
        self.next_look = Instant::now() + LOOK;
        let is_quiet =
            self.rising.is_none() && self.ends_since.is_none() && self.place == Place::Own;
        let Some(serving) = self.serving.as_ref().filter(|it| is_quiet && !it.is_reachable())
        else {
            return;
        };
        say(format_args!(
            "{} with the sockets of the stages was removed, or a socket in it, so the stages are started anew. Who \
             cleans up temporary files is to leave forebay-* alone (tmpfiles.d(5): x), or TMPDIR names another directory",
            serving.directory().display()
        ));
        self.next_look = Instant::now() + LONG_LOOK;
        self.reload(Vec::new());
    }

    /// Has the risen stages serve in the place of those before, which finish their requests and
    /// end.
    fn replace_by(&mut self, risen: Rising) {
        self.served_by = risen.number;
        self.changes = self.changes.after_reload();
        self.sessions.leave_before(risen.number);
        self.have_judged_by(&risen.generation);
        self.tell_all_drained(&risen.generation);
        self.ask_for_changes(risen.number, risen.generation.directory());
        match self.serving.replace(risen.generation) {
            // readiness is reported when the predecessor has left
            None if self.place == Place::Wanted => {}
            None => {
                self.say_where_asked();
                self.notifier.ready("the stages serve");
            }
            Some(mut before) => {
                before.be_replaced();
                self.leaving.push(before);
                let most = self.leaving.len().saturating_sub(MOST_LEAVING);
                self.leaving[..most].iter_mut().for_each(Generation::drain);
                let text = [vec!["the stages are replaced".to_owned()], risen.warnings].concat();
                self.conclude(0, &text.join("\n"), risen.replies);
            }
        }
    }

    /// Gives up the rising stages; those that serve stay.
    fn fail(&mut self, why: RunError) -> Result<(), RunError> {
        let Some(Rising { mut generation, replies, .. }) = self.rising.take() else {
            return Ok(());
        };
        if self.serving.is_none() {
            return Err(why);
        }
        self.common.gate.judged_by(self.served_by);
        self.serving.iter().for_each(|serving| self.have_judged_by(serving));
        generation.end(SIGTERM);
        if !generation.has_clients() {
            generation.end_at_once(SIGTERM);
        }
        self.leaving.push(generation);
        self.stay(&why.to_string(), replies);
        Ok(())
    }

    fn stay(&mut self, why: &str, replies: Vec<Reply<CommandAnswer>>) {
        self.conclude(1, &format!("the stages stay as they are: {why}"), replies);
    }

    /// Reports the outcome of a reload.
    fn conclude(&mut self, code: u8, text: &str, replies: Vec<Reply<CommandAnswer>>) {
        text.lines().for_each(|line| say(format_args!("{line}")));
        self.notifier.ready(text.lines().next().unwrap_or_default());
        for reply in replies {
            // the client may have gone away
            let _ = reply.send(CommandAnswer { code, text: format!("{text}\n") });
        }
    }

    /// Starts all stages anew with the current configuration, beside the running ones. A reload
    /// asked for meanwhile begins when this one has finished.
    pub(super) fn reload(&mut self, replies: Vec<Reply<CommandAnswer>>) {
        if self.ends_since.is_some() {
            let answer = || CommandAnswer { code: 1, text: "the stages are ending\n".to_owned() };
            return replies.iter().for_each(|reply| drop(reply.send(answer())));
        }
        match self.place {
            Place::Handing => {
                return self
                    .stay("another process is about to take the place of this one", replies);
            }
            Place::Left(_) => return self.stay("another process has taken the place", replies),
            Place::Wanted | Place::Own => {}
        }
        if self.rising.is_some() || self.changing > 0 {
            return self.again.get_or_insert_default().extend(replies);
        }
        self.notifier.reloading();
        let read = self.read();
        match read.and_then(|(config, warnings)| {
            self.rise(config, warnings).map_err(|error| error.to_string())
        }) {
            Ok(rising) => self.rising = Some(Rising { replies, ..rising }),
            Err(why) => self.stay(&why, replies),
        }
    }

    /// Reads the current configuration, and the remarks on it.
    fn read(&self) -> Result<(Config, Vec<String>), String> {
        let read = config_file::load_and_warn(&self.common.file, Depth::Files);
        let (config, warnings) = read.map_err(|problems| {
            problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
        })?;
        if !super::is_wanted(&config) {
            return Err("a server without stages needs a restart or an upgrade".to_owned());
        }
        // sockets cannot be moved: each stays with the stage it was passed to
        let at = |config: &Config| {
            (of_clients(config), Role::ALL.map(|role| machines::asked_at(config, role)))
        };
        let is_same = |serving: &Generation| at(&serving.config) == at(&config);
        if !self.serving.as_ref().is_none_or(is_same) {
            return Err("other addresses need a restart".to_owned());
        }
        let serving = self.serving.as_ref().map(|serving| &serving.config);
        let gate = |config: &Config| {
            (config.gate, config.gate_charge, config.gate_rules, config.gate_answers)
        };
        if serving.is_some_and(|serving| gate(serving) != gate(&config)) {
            return Err("another gate needs a restart".to_owned());
        }
        let firewall = |config: &Config| {
            let sets_interval = Duration::ZERO;
            FirewallSettings { sets_interval, ..config.firewall.clone() }
        };
        if serving.is_some_and(|serving| firewall(serving) != firewall(&config)) {
            return Err("another firewall needs a restart".to_owned());
        }
        Ok((config, warnings))
    }

    /// Starts the stages of a configuration.
    fn rise(&mut self, config: Config, warnings: Vec<String>) -> Result<Rising, RunError> {
        self.generations += 1;
        let (number, tell) = (self.generations, self.tell.clone());
        // the send fails only when the loop has ended
        let tell = move || drop(tell.send(SupervisorEvent::Ready(number)));
        let changes = self.changes.after_reload();
        self.common.gate.judged_by(number);
        let cgroups = &mut self.cgroups;
        let generation = Generation::start(number, &self.common, config, &changes, cgroups, tell);
        let generation = generation.inspect_err(|_| self.common.gate.judged_by(self.served_by))?;
        Ok(Rising { number, generation, warnings, replies: Vec::new() })
    }

    /// Begins the end of the server. Called a second time, ends it at once.
    pub(super) fn end(&mut self, signal: i32) {
        match self.ends_since {
            None => {
                self.ends_since = Some(Instant::now());
                self.notifier.stopping("the stages end");
                self.common.gate.let_go();
                self.earlier.end();
                let drain = self.serving.as_ref().map_or(Duration::ZERO, Generation::drains_for);
                self.waits_for_earlier_until = Some(Instant::now() + drain);
                let wait = self.serving.as_ref().and_then(|serving| serving.wait(signal));
                self.waits_until = wait.map(|wait| Instant::now() + wait);
                self.leaving.iter_mut().for_each(Generation::drain);
                let rising = self.rising.take().map(|rising| rising.generation);
                for mut generation in self.serving.take().into_iter().chain(rising) {
                    generation.end(signal);
                    self.leaving.push(generation);
                }
            }
            Some(since) if since.elapsed() < SAME_SIGNAL => {}
            Some(_) if self.waits_until.take().is_some_and(|until| Instant::now() < until) => {
                self.leaving.iter_mut().for_each(|it| it.end_wait(signal));
            }
            Some(_) => {
                self.leaving.iter_mut().for_each(|it| it.end_at_once(signal));
                self.earlier.stop();
                self.waits_for_earlier_until = Some(Instant::now() + EarlierServers::STOP);
            }
        }
    }

    fn has_place(&self) -> bool {
        !matches!(self.place, Place::Left(_))
    }

    fn is_over(&self) -> bool {
        let ends = self.ends_since.is_some() || matches!(self.place, Place::Left(_));
        // a service manager kills what is left of a service once its main process has ended
        let waits_for_earlier = !self.earlier.is_empty()
            && self.waits_for_earlier_until.is_some_and(|until| Instant::now() < until);
        ends && self.serving.is_none() && self.leaving.is_empty() && !waits_for_earlier
    }

    /// Carries out a command.
    fn answer(&mut self, command: &str, reply: Reply<CommandAnswer>) {
        let answer = match command {
            other if other.starts_with("upgrade ") => {
                self.answer_upgrade(&other["upgrade ".len()..])
            }
            "reload" => return self.reload(vec![reply]),
            "status" => {
                let receive = self.serving.as_ref().map(|it| relayed::socket(it.directory()));
                let config = self.serving.as_ref().map(|it| it.config.clone());
                let all = StagesStatus { instances: self.instances(), config, receive };
                return status::tell(all, reply);
            }
            other if relayed::is_for_receive(other) => {
                return self.relay(other.to_owned(), reply);
            }
            other => match other.strip_prefix("upstream ") {
                Some(question) => return self.ask_upstreams(question, reply),
                None => CommandAnswer::unknown(other),
            },
        };
        // the client may have gone away
        let _ = reply.send(answer);
    }
}
