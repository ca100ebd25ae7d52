//! A configuration in, a running server out; it returns when the server has stopped.
//!
//! Order at start: descriptors, sockets, the control socket, giving up privileges, and only then
//! threads: signals, content, logs, groups of workers, admin listener. At the end the same backwards. Signals and commands arrive here, and only here: this
//! thread decides, one event after another.

use crate::admin::{AdminListener, RunningAdmin};
use crate::client::TrustedProxies;
use crate::config::choice::Word;
use crate::config::{Config, Listen};
use crate::control_socket::{self, Answer, Asked, ControlSocket};
use crate::engines::{self, Common, Group, Outcome, Register};
use crate::listen::{ARRIVAL, Address, ListenError, Listeners};
use crate::live::{Arrangement, Live};
use crate::log::LogError;
use crate::notify::{self, Notifier};
use crate::plan::Plan;
use crate::privileges::{self, PrivilegeError};
use crate::reload::{self, Change, Current, Next, ReloadError};
use crate::sandbox::{self, Needs, Sandbox, SandboxError};
use crate::status::Status;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, unbounded};
use forebay_engine::admission::Admission;
use forebay_engine::control::{Ended, Order};
use forebay_engine::helpers::Helpers;
use forebay_site::{Content, OpenError};
use forebay_sys::{clock, process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{fmt, io};

/// How long the last lines of the access log may take to be written.
const LOG_CLOSE: Duration = Duration::from_secs(2);

/// A signal this soon after the one that began the drain is the same one: `timeout` and some shells
/// send it to the process and to its group.
const SAME_SIGNAL: Duration = Duration::from_millis(250);

/// Groups that retire at the same time. Beyond that the oldest is drained: its clients are told to
/// connect anew.
const MOST_RETIRING: usize = 16;

/// Why a server could not start, or did not end well.
#[derive(Debug)]
pub enum RunError {
    /// An address cannot be listened on.
    Listen(ListenError),
    /// The content cannot be served.
    Content(OpenError),
    /// The access log cannot be written.
    Log(LogError),
    /// The process cannot become the user it is to be.
    Privileges(PrivilegeError),
    /// The process cannot be confined although it must be.
    Sandbox(SandboxError),
    /// The control socket cannot be used.
    ControlSocket {
        /// Where it should be.
        path: PathBuf,
        /// What the kernel said.
        error: io::Error,
    },
    /// The machine has no room for what a server needs: descriptors, threads, memory.
    Resources {
        /// What was wanted.
        what: &'static str,
        /// What the kernel said.
        error: io::Error,
    },
    /// A loop has ended although nobody told it to.
    LoopEnded {
        /// Why.
        reason: String,
    },
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunError::Listen(error) => error.fmt(f),
            RunError::Content(error) => error.fmt(f),
            RunError::Log(error) => error.fmt(f),
            RunError::Privileges(error) => error.fmt(f),
            RunError::Sandbox(error) => error.fmt(f),
            RunError::ControlSocket { path, error } => {
                write!(f, "cannot listen for commands at {}: {error}", path.display())?;
                match error.kind() {
                    io::ErrorKind::AddrInUse => write!(f, "; another server has this socket"),
                    io::ErrorKind::AlreadyExists => write!(f, "; there is a file with this name"),
                    _ => Ok(()),
                }
            }
            RunError::Resources { what, error } => write!(f, "cannot get {what}: {error}"),
            RunError::LoopEnded { reason } => {
                write!(f, "a loop has ended by itself ({reason}); the server stopped with it")
            }
        }
    }
}

impl std::error::Error for RunError {}

fn resources(what: &'static str) -> impl FnOnce(io::Error) -> RunError {
    move |error| RunError::Resources { what, error }
}

/// What the main thread waits for.
enum Event {
    Signal(i32),
    /// A thread of the group with this number has ended.
    Ended(u64, Outcome),
    Asked(Asked),
    Prepared(Result<Box<Next>, ReloadError>),
}

/// What is to be done a little later.
enum Later {
    /// These groups leave the listeners, some of which get no new connections any more.
    Retire(Vec<u64>),
    /// Nobody accepts any more from those that were left.
    Close,
    /// The service manager wants to hear that the loops turn.
    Watchdog,
    /// The time for a drain is over.
    Stop,
}

/// The parts of a running server that its main thread holds.
struct Server {
    config: Config,
    /// Where it came from, if it can be read again.
    file: Option<PathBuf>,
    plan: Plan,
    common: Common,
    listeners: Arc<Mutex<Listeners>>,
    /// With their numbers, oldest first, and whether they retire.
    groups: Vec<(u64, bool, Group)>,
    /// Groups there have been.
    numbered: u64,
    status: Arc<Status>,
    admin: Option<RunningAdmin>,
    _control_socket: Option<ControlSocket>,
    sandbox: Sandbox,
    notifier: Notifier,
    reload: Reload,
    later: Vec<(Instant, Later)>,
    /// The signal that began the drain, and when.
    draining: Option<(&'static str, Instant)>,
    to_main: Sender<Event>,
    events: Receiver<Event>,
}

/// A reload that is being prepared, and who waits for one.
#[derive(Default)]
struct Reload {
    is_under_way: bool,
    /// Wait for the one under way.
    waiting: Vec<Sender<Answer>>,
    /// Came later: they want what the file says now.
    again: Option<Vec<Sender<Answer>>>,
}

/// Serves what `config` says until a signal ends it. `file` is where it came from, if it is to be
/// read again at a reload.
///
/// # Errors
/// What is in the way at the start, or how a loop failed.
pub fn run(config: Config, file: Option<PathBuf>) -> Result<(), RunError> {
    process::return_large_blocks();
    // signals wait for somebody to listen before there is anything they could interrupt
    let (to_main, events) = unbounded();
    let signals = catch_signals().map_err(resources("descriptors for signals"))?;
    Server::start(config, file, signals, to_main, events)?.serve()
}

impl Server {
    fn start(
        config: Config,
        file: Option<PathBuf>,
        signals: Signals,
        to_main: Sender<Event>,
        events: Receiver<Event>,
    ) -> Result<Server, RunError> {
        let descriptors = process::raise_descriptor_limit().map_err(resources("descriptors"))?;
        let plan = Plan::new(&config, process::usable_cores(), descriptors);
        // who can connect can also send commands
        let mut control_socket = open_control_socket(&config, file.as_deref())?;
        let mut listeners = Listeners::inherit().map_err(RunError::Listen)?;
        let hands = plan.groups.iter().map(|group| listeners.take(&group.listen, group.entrances));
        let hands = hands.collect::<Result<Vec<_>, _>>().map_err(RunError::Listen)?;
        let admin_hand = match config.admin.listen.0 {
            Some(at) => listeners.take(&[Listen::At(at)], 1).map_err(RunError::Listen)?.pop(),
            None => None,
        };
        listeners.check_inherited(&reload::wanted(&plan, &config)).map_err(RunError::Listen)?;
        let sandbox = confine(&config, file.as_deref(), &mut listeners, control_socket.as_ref())?;
        // threads from here on: they have what is left of the privileges
        listen_for_signals(signals, to_main.clone()).map_err(resources("a thread for signals"))?;
        let content = Content::open(plan.site.clone(), |notice| say(format_args!("{notice}")))
            .map_err(RunError::Content)?;
        let register = Arc::<Register>::default();
        let logs = reload::open_logs(&config, None).map_err(RunError::Log)?;
        let common = Common {
            live: Arc::new(Live::new(Arrangement {
                content,
                logs,
                trusted: TrustedProxies::shared(&config.trusted_proxies),
            })),
            admission: Admission::new(plan.connections, plan.connections_per_client),
            helpers: Helpers::new(
                register.helpers(plan.helpers),
                config.sample.try_into().unwrap_or(u32::MAX),
            ),
            register,
            boards: Arc::default(),
        };
        let status = Status::new(&common, &plan);
        let admin = admin_hand.map(|hand| AdminListener::new(hand, Arc::clone(&status)));
        let admin = admin.transpose().map_err(resources("the admin listener's descriptors"))?;
        let prepared = plan.groups.iter().zip(hands).map(|(group, hands)| {
            common.prepare(group.clone(), hands).map_err(resources("a loop's descriptors"))
        });
        let prepared = prepared.collect::<Result<Vec<_>, _>>()?;
        if let Some(socket) = &mut control_socket {
            let tell = to_main.clone();
            socket
                .serve(move |asked| drop(tell.send(Event::Asked(asked))))
                .map_err(resources("a thread for commands"))?;
        }
        let start_line = start_line(&plan, &config, &listeners);
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
            _control_socket: control_socket,
            sandbox,
            notifier: Notifier::from_environment(),
            reload: Reload::default(),
            later: Vec::new(),
            draining: None,
            to_main,
            events,
        };
        // clients are served from here on
        for prepared in prepared {
            server.begin(prepared).map_err(resources("a thread"))?;
        }
        if let Some(admin) = admin {
            server.admin = Some(admin.start().map_err(resources("a thread"))?);
        }
        let _ = writeln!(io::stderr(), "{start_line}");
        server.notifier.ready(&start_line);
        server.watch_later();
        Ok(server)
    }

    /// Notes when the service manager is to hear next that the loops turn.
    fn watch_later(&mut self) {
        if let Some(interval) = self.notifier.interval() {
            self.later.push((Instant::now() + interval, Later::Watchdog));
        }
    }

    /// Tells the service manager that the server is alive, if every loop has turned lately.
    fn show_life(&mut self) {
        let Some(interval) = self.notifier.interval() else { return };
        let patience = notify::patience(interval).as_millis() as u64;
        let since_ms = clock::coarse_ms().saturating_sub(patience);
        if self.groups.iter().all(|(_, _, group)| group.turns_since(since_ms)) {
            self.notifier.alive();
        } else {
            say(format_args!("a loop has not turned for {patience} ms: no sign of life is given"));
        }
        self.watch_later();
    }

    /// Starts a group. Returns its number.
    fn begin(&mut self, prepared: engines::Prepared) -> io::Result<u64> {
        self.numbered += 1;
        let (number, to_main) = (self.numbered, self.to_main.clone());
        let tell = move |outcome| drop(to_main.send(Event::Ended(number, outcome)));
        let group = prepared.start(tell)?;
        self.groups.push((number, false, group));
        Ok(number)
    }

    /// Waits for signals, for commands and for the groups to end.
    fn serve(mut self) -> Result<(), RunError> {
        let mut ended = Ended::default();
        let mut failure = None;
        while !self.groups.is_empty() {
            match self.next_event() {
                Some(Event::Signal(SIGUSR1)) => self.common.live.current().logs.reopen(),
                Some(Event::Signal(SIGHUP)) => self.ask_for_reload(None),
                Some(Event::Signal(signal)) => self.end(signal),
                Some(Event::Asked(asked)) => self.answer(asked),
                Some(Event::Prepared(next)) => self.finish_reload(next),
                Some(Event::Ended(number, outcome)) => {
                    match outcome {
                        Ok(of_loop) => ended = ended + of_loop,
                        Err(reason) => {
                            failure = Some(reason);
                            self.give_all(Order::Stop);
                        }
                    }
                    self.thread_ended(number);
                }
                None => {}
            }
        }
        let reason = self.draining.map_or("failure", |(signal, _)| signal);
        self.finish(reason, ended);
        match failure {
            Some(reason) => Err(RunError::LoopEnded { reason }),
            None => Ok(()),
        }
    }

    /// The next event, or `None` when something that was put off has been done.
    fn next_event(&mut self) -> Option<Event> {
        let due = self.later.iter().map(|(due, _)| *due).min();
        let Some(due) = due else { return self.events.recv().ok() };
        match self.events.recv_deadline(due) {
            Ok(event) => return Some(event),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return None,
        }
        let now = Instant::now();
        let (due, later) = std::mem::take(&mut self.later).into_iter().partition(|l| l.0 <= now);
        self.later = later;
        for (_, later) in due {
            match later {
                Later::Retire(numbers) => self.retire(&numbers),
                Later::Close => self.listeners().close(),
                Later::Watchdog => self.show_life(),
                Later::Stop => {
                    let open = self.common.admission.open();
                    say(format_args!(
                        "{:?} of draining are over, connections still open: {open}: stopping now",
                        self.plan.drain
                    ));
                    self.give_all(Order::Stop);
                }
            }
        }
        None
    }

    /// Drains at the first signal, stops at the second.
    fn end(&mut self, signal: i32) {
        match self.draining {
            None => {
                self.draining = Some((name(signal), Instant::now()));
                self.give_all(Order::Drain);
                // those who drain hold duplicates and take what is queued
                self.listeners().end();
                self.notifier.stopping("draining");
                let is_bounded = signal != SIGQUIT;
                if is_bounded {
                    self.later.push((Instant::now() + self.plan.drain, Later::Stop));
                }
                self.say_draining(name(signal), is_bounded);
            }
            Some((_, began)) if began.elapsed() < SAME_SIGNAL => {}
            Some(_) => {
                say(format_args!("{} again: stopping now", name(signal)));
                self.give_all(Order::Stop);
            }
        }
    }

    fn give_all(&self, order: Order) {
        self.groups.iter().for_each(|(_, _, group)| group.give(order));
    }

    fn answer(&mut self, asked: Asked) {
        let Asked { command, reply } = asked;
        match command.as_str() {
            "reload" => self.ask_for_reload(Some(reply)),
            other => {
                let text = format!("no command is called {other:?}\n");
                let _ = reply.send(Answer { code: 2, text });
            }
        }
    }

    /// Begins a reload, or notes that one more is wanted.
    fn ask_for_reload(&mut self, reply: Option<Sender<Answer>>) {
        if self.reload.is_under_way {
            self.reload.again.get_or_insert_default().extend(reply);
            return;
        }
        self.reload.waiting.extend(reply);
        let refused = match &self.file {
            _ if self.draining.is_some() => ReloadError::Stopping,
            None => ReloadError::NoFile,
            Some(file) => {
                let (file, current) = (file.clone(), self.current());
                let to_main = self.to_main.clone();
                let prepare = move || {
                    let next = reload::prepare(&file, &current).map(Box::new);
                    let _ = to_main.send(Event::Prepared(next));
                };
                let thread = std::thread::Builder::new().name("reload".to_owned());
                match thread.spawn(prepare) {
                    Ok(_) => {
                        self.reload.is_under_way = true;
                        self.notifier.reloading();
                        return;
                    }
                    Err(error) => ReloadError::Resources(error),
                }
            }
        };
        self.finish_reload(Err(refused));
    }

    fn current(&self) -> Current {
        let arrangement = self.common.live.current();
        let groups = self.groups.iter().filter(|(_, is_retiring, _)| !is_retiring);
        Current {
            config: self.config.clone(),
            plan: self.plan.clone(),
            content: Arc::clone(&arrangement.content),
            logs: Arc::clone(&arrangement.logs),
            common: self.common.clone(),
            groups: groups.map(|(number, _, group)| (*number, group.plan.clone())).collect(),
            listeners: Arc::clone(&self.listeners),
            sandbox: self.sandbox.clone(),
            status: Arc::clone(&self.status),
        }
    }

    /// Puts what was prepared in force, tells everybody who waits, and begins again if somebody
    /// asked meanwhile.
    fn finish_reload(&mut self, next: Result<Box<Next>, ReloadError>) {
        self.reload.is_under_way = false;
        let result = match next {
            Ok(_) if self.draining.is_some() => Err(ReloadError::Stopping),
            Ok(next) => self.put_in_force(*next),
            Err(error) => Err(error),
        };
        let generation = self.common.live.generation();
        let answer = match result {
            Ok(()) => Answer { code: 0, text: format!("reloaded: generation {generation}\n") },
            Err(error) => {
                self.status.reload_failed();
                Answer {
                    code: error.code(),
                    text: format!("{error}\nnothing has changed: generation {generation}\n"),
                }
            }
        };
        answer.text.lines().for_each(|line| say(format_args!("reload: {line}")));
        if self.draining.is_none() {
            self.notifier.ready(&answer.text.trim_end().replace('\n', "; "));
        }
        for reply in self.reload.waiting.drain(..) {
            // who asked may be gone
            let _ = reply.send(answer.clone());
        }
        if let Some(waiting) = self.reload.again.take() {
            self.reload.waiting = waiting;
            self.ask_for_reload(None);
        }
    }

    fn put_in_force(&mut self, next: Next) -> Result<(), ReloadError> {
        let Next { config, plan, content, logs, common, kept, begun, admin } = next;
        let known = self.numbered;
        for prepared in begun {
            if let Err(error) = self.begin(prepared) {
                let begun: Vec<_> = (known + 1..=self.numbered).collect();
                self.retire(&begun);
                return Err(ReloadError::Resources(error));
            }
        }
        if let Change::To(admin) = admin {
            let running = admin.map(AdminListener::start).transpose();
            let running = running.map_err(ReloadError::Resources)?;
            std::mem::replace(&mut self.admin, running).into_iter().for_each(RunningAdmin::stop);
        }
        self.common = common;
        let trusted = TrustedProxies::shared(&config.trusted_proxies);
        let before = self.common.live.replace(Arrangement { content, logs, trusted });
        if !Arc::ptr_eq(&before.content, &self.common.live.current().content) {
            before.content.retire();
        }
        self.common.admission.limit(plan.connections, plan.connections_per_client);
        for (number, plan) in &kept {
            let group = self.groups.iter_mut().find(|(known, ..)| known == number);
            group.into_iter().for_each(|(_, _, group)| group.set(plan.settings.clone()));
        }
        let stays = |number: u64| number > known || kept.iter().any(|(kept, _)| *kept == number);
        let leaving: Vec<u64> = self
            .groups
            .iter()
            .filter(|(number, is_retiring, _)| !is_retiring && !stays(*number))
            .map(|(number, ..)| *number)
            .collect();
        self.leave(leaving, &plan, &config);
        (self.plan, self.config) = (plan, config);
        self.status.reloaded(&self.common, &self.plan);
        Ok(())
    }

    /// Groups that have been replaced leave. Where an address is not wanted any more, they accept
    /// until what was on its way has arrived.
    fn leave(&mut self, groups: Vec<u64>, plan: &Plan, config: &Config) {
        if !self.listeners().leave(&reload::wanted(plan, config)) {
            return self.retire(&groups);
        }
        // from now on no reload goes on with them
        for (number, is_retiring, _) in &mut self.groups {
            *is_retiring |= groups.contains(number);
        }
        let at = Instant::now() + ARRIVAL;
        self.later.push((at, Later::Retire(groups)));
        self.later.push((at + ARRIVAL, Later::Close));
    }

    fn listeners(&self) -> MutexGuard<'_, Listeners> {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn retire(&mut self, numbers: &[u64]) {
        for (number, is_retiring, group) in &mut self.groups {
            if numbers.contains(number) {
                *is_retiring = true;
                group.give(Order::Retire);
            }
        }
        let retiring = self.groups.iter().filter(|(_, is_retiring, _)| *is_retiring);
        let most = retiring.clone().count().saturating_sub(MOST_RETIRING);
        retiring.take(most).for_each(|(_, _, group)| group.give(Order::Drain));
    }

    fn thread_ended(&mut self, number: u64) {
        let at = self
            .groups
            .iter_mut()
            .position(|(known, _, group)| *known == number && group.thread_ended());
        if let Some(at) = at {
            self.groups.remove(at).2.join();
        }
    }

    fn say_draining(&self, signal: &str, bounded: bool) {
        let open = self.common.admission.open();
        let bound =
            if bounded { format!("at most {:?}", self.plan.drain) } else { "no limit".into() };
        say(format_args!(
            "{signal}: draining, connections open: {open}, {bound}; again to stop now"
        ));
    }

    /// Ends what serves no clients, and says how it went.
    fn finish(self, reason: &str, ended: Ended) {
        self.admin.into_iter().for_each(RunningAdmin::stop);
        let began = Instant::now();
        if !self.common.live.current().logs.close(LOG_CLOSE) {
            say(format_args!("the access log took no lines for {:?}", began.elapsed()));
        }
        let Ended { drained, aborted_receiving, aborted_in_job, aborted_sending } = ended;
        say(format_args!(
            "stopped ({reason}): connections: {drained} drained, {} aborted \
             ({aborted_receiving} receiving, {aborted_in_job} in a job, {aborted_sending} sending)",
            ended.aborted()
        ));
    }
}

fn open_control_socket(
    config: &Config,
    file: Option<&Path>,
) -> Result<Option<ControlSocket>, RunError> {
    let path = file.and_then(|file| control_socket::path(&config.control.socket, file));
    let open = |path: PathBuf| {
        ControlSocket::open(&path).map_err(|error| RunError::ControlSocket { path, error })
    };
    path.map(open).transpose()
}

/// Gives up what the server does not need: root, and most of the file system. What only root can do
/// has been done.
fn confine(
    config: &Config,
    file: Option<&Path>,
    listeners: &mut Listeners,
    control_socket: Option<&ControlSocket>,
) -> Result<Sandbox, RunError> {
    let control = control_socket.map(ControlSocket::path);
    privileges::drop_to_user(config, listeners, control.as_slice())
        .map_err(RunError::Privileges)?;
    let needs = Needs::of(config, file, control);
    sandbox::confine(needs, config.sandbox.landlock).map_err(RunError::Sandbox)
}

/// From here on signals wait until somebody listens.
fn catch_signals() -> io::Result<Signals> {
    Signals::new([SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGUSR1])
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

fn name(signal: i32) -> &'static str {
    match signal {
        SIGTERM => "SIGTERM",
        SIGINT => "SIGINT",
        SIGQUIT => "SIGQUIT",
        _ => "signal",
    }
}

/// The first line: what is served, where, how.
fn start_line(plan: &Plan, config: &Config, listeners: &Listeners) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let roots = config.sites.iter().filter_map(|site| site.root.as_ref());
    let roots = roots.map(|root| root.display().to_string()).collect::<Vec<_>>().join(", ");
    let groups = plan.groups.iter().map(|group| {
        let addresses = listeners.addresses(&group.listen);
        let addresses: Vec<_> = addresses.iter().map(Address::url).collect();
        let (engine, workers) = (group.engine.word(), group.workers);
        format!("{} (engine {engine}, workers {workers})", addresses.join(" "))
    });
    let groups = groups.collect::<Vec<_>>().join(" and ");
    let admin = config.admin.listen.0.map(|admin| listeners.addresses(&[Listen::At(admin)]));
    let admin = admin.and_then(|bound| bound.first().map(|at| format!(", admin on {at}")));
    let admin = admin.unwrap_or_default();
    format!("forebay {version}: serving {roots} on {groups}{admin}")
}

/// Tells the operator; standard error may be closed, which is no reason to stop.
pub(crate) fn say(what: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "forebay: {what}");
}
