//! A configuration in, a running server out; it returns when the server has stopped.
//!
//! Signals and commands arrive here, and only here: this thread decides, one event after another.
//!
//! | module | what it holds |
//! |---|---|
//! | `start` | from a configuration to a server that runs |
//! | `takeover` | a reload: asked for, prepared, put in force |
//! | `error` | why a server could not start, or did not end well |

mod error;
mod start;
mod takeover;

pub use error::RunError;

use crate::acme;
use crate::admin::RunningAdmin;
use crate::certificates;
use crate::config::Config;
use crate::control_socket::{CommandAnswer, CommandRequest, ControlSocket};
use crate::engines::{self, Common, ThreadEnd, WorkerGroup};
use crate::gate;
use crate::isolated::Role;
use crate::listen::Listeners;
use crate::notify::{self, Notifier};
use crate::plan::Plan;
use crate::policy::InForce;
use crate::policy_command::{self, CommandContext, ConnectionBounds};
use crate::reload::{NextConfiguration, ReloadError};
use crate::sandbox::Sandbox;
use crate::status::Status;
use crate::stderr::say;
use crate::upkeep;
use crate::upstream_command;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, unbounded};
pub(crate) use error::resources;
use forebay_engine::control::{Ended, LoopOrder};
use forebay_engine::worker;
use forebay_sys::{clock, process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use takeover::{Reload, Wanted};

/// How long the last lines of the access log may take to be written.
const LOG_CLOSE: Duration = Duration::from_secs(2);

/// A signal this soon after the one that began the drain is the same one: `timeout` and some shells
/// send it to the process and to its group.
pub(crate) const SAME_SIGNAL: Duration = Duration::from_millis(250);

/// How often the operator hears of certificates that expire soon, and of how many at a time.
const DAY: Duration = Duration::from_secs(24 * 3600);
const MOST_WARNINGS: usize = 20;

/// How often is looked for new interfaces and addresses, which the gate is to be attached to.
const INTERFACES: Duration = Duration::from_secs(5);

/// What the main thread waits for.
enum Event {
    Signal(i32),
    /// A thread of the group with this number has ended.
    Ended(u64, ThreadEnd),
    Asked(CommandRequest),
    Prepared(Result<Box<NextConfiguration>, ReloadError>),
    /// Files of certificates have changed.
    CertificatesChanged,
}

/// What is to be done a little later.
enum Later {
    /// These groups leave the listeners, some of which get no new connections any more.
    Retire(Vec<u64>),
    /// No engine accepts any more from those that were left.
    Close,
    /// The service manager wants to hear that the loops turn.
    Watchdog,
    /// The operator should hear which certificates expire soon.
    Certificates,
    /// Interfaces and addresses may have come or gone.
    Gate,
    /// Clients that are idle have had the time to ask once more.
    Drain,
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
    groups: Vec<(u64, bool, WorkerGroup)>,
    /// Groups there have been.
    numbered: u64,
    status: Arc<Status>,
    admin: Option<RunningAdmin>,
    _control_socket: Option<ControlSocket>,
    sandbox: Sandbox,
    notifier: Notifier,
    reload: Reload,
    /// A thread looks for certificates that change.
    watches_certificates: bool,
    /// The thread that gets certificates by ACME, if there was ever one to get.
    acme: Option<acme::AcmeThread>,
    /// A thread checks applications.
    keeps_up_applications: bool,
    /// What was said last of why the gate is not attached everywhere.
    gate_trouble: Option<String>,
    later: Vec<(Instant, Later)>,
    /// Other processes have the clients that come from now on.
    is_replaced: bool,
    /// A signal began the drain, and not the time after which stages that were replaced drain by themselves.
    was_told_to_drain: bool,
    /// The signal that began the drain, and when.
    draining: Option<(&'static str, Instant)>,
    to_main: Sender<Event>,
    events: Receiver<Event>,
}

/// Called once clients are served: with an address at which a browser of this machine finds the first
/// listener, if it has one.
pub type Ready = Box<dyn FnOnce(Option<String>)>;

/// Serves what `config` says until a signal ends it. `file` is where it came from, if it is to be
/// read again at a reload; `ready` is called when clients are served.
///
/// # Errors
/// What is in the way at the start, or how a loop failed.
pub fn run(config: Config, file: Option<PathBuf>, ready: Ready) -> Result<(), RunError> {
    process::return_large_blocks();
    // signals wait for a thread that listens before there is anything they could interrupt
    let (to_main, events) = unbounded();
    let signals = start::catch_signals(config.place.is_some())
        .map_err(resources("descriptors for signals"))?;
    let server = Server::start(config, file, signals, to_main, events)?;
    ready(server.first_address());
    server.serve()
}

impl Server {
    /// Where a browser of this machine finds it.
    fn first_address(&self) -> Option<String> {
        self.listeners().local_url(&self.plan.groups.first()?.listen)
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

    /// Attaches the gate to interfaces that have come, now and every few seconds.
    fn watch_gate(&mut self) {
        if self.common.live.get().policy.gate.is_some() {
            self.attach_gate();
            self.later.push((Instant::now() + INTERFACES, Later::Gate));
        }
    }

    /// Has the gate judge SYNs for the listeners there are. Trouble is told once.
    fn attach_gate(&mut self) {
        let snapshot = self.common.live.get();
        let Some(gate) = &snapshot.policy.gate else { return };
        let trouble = gate.attach(&self.plan, &self.listeners()).err();
        if let Some(trouble) =
            trouble.as_ref().filter(|new| Some(*new) != self.gate_trouble.as_ref())
        {
            say(format_args!("gate: {trouble}"));
        }
        self.gate_trouble = trouble;
    }

    /// Has the firewall drop by the rules in force, for the listeners there are.
    fn tell_firewall(&self) {
        let snapshot = self.common.live.get();
        let InForce { firewall: Some(firewall), policy, state, .. } = &*snapshot.policy else {
            return;
        };
        let judged = gate::listeners(&self.plan, &self.listeners());
        firewall.enforce(&self.config.firewall, &judged, policy, state.most_ignored_ns());
    }

    /// Says which certificates expire soon, now and every day.
    fn warn_of_certificates(&mut self) {
        let now_s = (clock::unix_coarse_ms() / 1000) as i64;
        let expiries = self.common.live.get().certificates.expiries();
        let warnings = expiries.iter().filter_map(|expiry| expiry.warning(now_s));
        let lists = self.common.live.get().certificates.expired_lists(now_s);
        let warnings = warnings.chain(lists);
        warnings.take(MOST_WARNINGS).for_each(|warning| say(format_args!("{warning}")));
        self.later.push((Instant::now() + DAY, Later::Certificates));
    }

    /// Which hosts have no certificate, or one that is not for them, where TLS is spoken.
    fn uncovered(&self) -> Vec<String> {
        let mut endpoints = self.plan.groups.iter().flat_map(|group| &group.listen);
        if !endpoints.any(|endpoint| endpoint.tls) {
            return Vec::new();
        }
        let mut uncovered = self.common.live.get().certificates.uncovered(&self.config);
        uncovered.truncate(MOST_WARNINGS);
        uncovered
    }

    /// Starts the thread that looks for certificates that change, if there are any.
    fn watch_certificates(&mut self) {
        if self.watches_certificates || self.common.live.get().certificates.is_empty() {
            return;
        }
        let (live, to_main) = (Arc::clone(&self.common.live), self.to_main.clone());
        let tell = move || to_main.send(Event::CertificatesChanged).is_ok();
        match certificates::watch::start(live, tell) {
            Ok(()) => self.watches_certificates = true,
            Err(error) => say(format_args!(
                "no thread for certificates, which are taken over by reloads only: {error}"
            )),
        }
    }

    /// Has certificates got by ACME, if some are wanted; `at_once`: what has failed is tried again.
    fn keep_acme(&mut self, at_once: bool) {
        if let Some(acme) = &self.acme {
            return acme.look(at_once);
        }
        if self.common.live.get().certificates.acme().is_none() {
            return;
        }
        let (live, to_main) = (Arc::clone(&self.common.live), self.to_main.clone());
        let tell = move || drop(to_main.send(Event::CertificatesChanged));
        match acme::start(live, self.common.register.worker(), tell) {
            Ok(running) => self.acme = Some(running),
            Err(error) => say(format_args!("no thread for certificates by ACME: {error}")),
        }
    }

    /// Starts the thread that looks after applications, if one needs it.
    fn keep_up_applications(&mut self) {
        let applications = &self.common.live.get().applications;
        // those of other stages are asked by respond
        let asks = matches!(applications.role(), None | Some(Role::Respond));
        if self.keeps_up_applications || applications.is_empty() || !asks {
            return;
        }
        match upkeep::keep_up(Arc::clone(&self.common.live)) {
            Ok(()) => self.keeps_up_applications = true,
            Err(error) => {
                say(format_args!("no thread for applications: upstreams are not checked: {error}"))
            }
        }
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
                Some(Event::Signal(SIGUSR1)) => self.common.live.get().logs.reopen(),
                Some(Event::Signal(SIGUSR2)) => self.be_replaced(),
                // the supervisor replaces stages
                Some(Event::Signal(SIGHUP)) if self.config.place.is_some() => {}
                Some(Event::Signal(SIGHUP)) => self.ask_for(Wanted::File, None),
                Some(Event::Signal(signal)) => self.end(signal),
                Some(Event::Asked(asked)) => self.answer(asked),
                Some(Event::Prepared(next)) => self.finish_reload(next),
                Some(Event::CertificatesChanged) => self.ask_for(Wanted::Certificates, None),
                Some(Event::Ended(number, outcome)) => {
                    match outcome {
                        Ok(of_loop) => ended = ended + of_loop,
                        Err(reason) => {
                            failure = Some(reason);
                            self.give_all(LoopOrder::Stop);
                        }
                    }
                    self.thread_ended(number);
                }
                None => {}
            }
        }
        let reason = match self.draining {
            _ if self.is_replaced => "replaced",
            Some((signal, _)) => signal,
            None => "failure",
        };
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
                Later::Certificates => self.warn_of_certificates(),
                Later::Gate => self.watch_gate(),
                Later::Drain if self.draining.is_none() => {
                    self.end(SIGTERM);
                    self.was_told_to_drain = false;
                }
                Later::Drain => {}
                Later::Stop => {
                    let open = self.common.admission.open();
                    say(format_args!(
                        "{:?} of draining are over, connections still open: {open}: stopping now",
                        self.plan.drain
                    ));
                    self.give_all(LoopOrder::Stop);
                }
            }
        }
        None
    }

    /// Other processes have the clients that come from now on. Those that are here get one more answer on each
    /// connection; whoever has not asked by half of the time for a drain is not waited for.
    fn be_replaced(&mut self) {
        if self.is_replaced || self.draining.is_some() {
            return;
        }
        self.is_replaced = true;
        for (_, is_retiring, group) in &mut self.groups {
            *is_retiring = true;
            group.answer_once_more();
        }
        self.leave_listeners();
        self.plan.drain /= 2;
        self.later.push((Instant::now() + self.plan.drain, Later::Drain));
        say(format_args!(
            "replaced: connections open: {}, each gets one more answer if it asks within {:?}",
            self.common.admission.open(),
            self.plan.drain
        ));
    }

    /// A stage leaves its listeners, and those who look at it, to the processes that replace it.
    fn leave_listeners(&mut self) {
        self.status.drains();
        self.admin.take().into_iter().for_each(RunningAdmin::leave);
        self.listeners().end(&[]);
    }

    /// Drains at the first signal, stops at the second.
    fn end(&mut self, signal: i32) {
        match self.draining {
            None => {
                self.draining = Some((name(signal), Instant::now()));
                self.was_told_to_drain = true;
                // an authority would find no server here
                self.acme = None;
                self.status.drains();
                self.give_all(LoopOrder::Drain);
                // groups that drain hold duplicates and take what is queued; a command that asks how far
                // they are finds the admin listener, unless that of the next generation answers there
                if self.config.place.is_some() {
                    self.leave_listeners();
                } else {
                    let admin = self.plan.admin.iter().flat_map(|admin| &admin.listen);
                    let admin: Vec<_> = admin.map(|endpoint| endpoint.listen.clone()).collect();
                    self.listeners().end(&admin);
                }
                self.notifier.stopping("draining");
                let is_bounded = signal != SIGQUIT;
                if is_bounded {
                    self.later.push((Instant::now() + self.plan.drain, Later::Stop));
                }
                self.say_draining(name(signal), is_bounded);
            }
            Some((_, began)) if began.elapsed() < SAME_SIGNAL => {}
            Some(_) if !self.was_told_to_drain => self.was_told_to_drain = true,
            Some(_) => {
                say(format_args!("{} again: stopping now", name(signal)));
                self.give_all(LoopOrder::Stop);
            }
        }
    }

    fn give_all(&self, order: LoopOrder) {
        self.groups.iter().for_each(|(_, _, group)| group.give(order));
    }

    fn answer(&mut self, asked: CommandRequest) {
        let CommandRequest { command, change, reply } = asked;
        if let Some((owner, change)) = change {
            return self.ask_for(Wanted::Agent(owner, change), Some(reply));
        }
        match command.as_str() {
            "reload" => self.ask_for(Wanted::File, Some(reply)),
            "status" => {
                let text = "one process serves; only the engine isolated has stages\n".to_owned();
                let _ = reply.send(CommandAnswer { code: 0, text });
            }
            other if other.starts_with("policy set\n") => {
                let assignments = other.lines().skip(1).map(str::to_owned).collect();
                self.ask_for(Wanted::Set(assignments), Some(reply));
            }
            other => {
                let answer = match other.strip_prefix("policy ") {
                    Some(question) => {
                        let in_force = &self.common.live.get().policy;
                        let totals = &self.common.register.totals();
                        let agent_loop = &self.common.agent_loop;
                        let (connections, connections_per_client) = self.common.admission.limits();
                        let open = self.common.admission.open();
                        let bounds = ConnectionBounds { open, connections, connections_per_client };
                        let config = &self.config;
                        let known = CommandContext { config, in_force, totals, agent_loop, bounds };
                        policy_command::answer(question, &known)
                    }
                    None => match other.strip_prefix("upstream ") {
                        Some(question) => {
                            let applications = &self.common.live.get().applications;
                            let now_ms = worker::read_clocks().monotonic_ms;
                            let answer = upstream_command::answer(question, applications, now_ms);
                            if !question.starts_with("list") {
                                let said = answer.text.lines();
                                said.for_each(|line| say(format_args!("upstream: {line}")));
                            }
                            answer
                        }
                        None => CommandAnswer::unknown(other),
                    },
                };
                let _ = reply.send(answer);
            }
        }
    }

    fn listeners(&self) -> MutexGuard<'_, Listeners> {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Whether another process has the clients, and tells the operator of them.
    fn stands_behind(&self) -> bool {
        self.config.place.as_ref().is_some_and(|place| place.role != Role::Receive)
    }

    fn say_draining(&self, signal: &str, bounded: bool) {
        if self.stands_behind() {
            return;
        }
        let open = self.common.admission.open();
        let bound =
            if bounded { format!("at most {:?}", self.plan.drain) } else { "no limit".into() };
        say(format_args!(
            "{signal}: draining, connections open: {open}, {bound}; again to stop now"
        ));
    }

    /// Ends what serves no clients, and says how it went.
    fn finish(mut self, reason: &str, ended: Ended) {
        self.admin.take().into_iter().for_each(RunningAdmin::stop);
        self.listeners().end(&[]);
        if let Some(firewall) = &self.common.live.get().policy.firewall {
            firewall.end();
        }
        let began = Instant::now();
        if !self.common.live.get().logs.close(LOG_CLOSE) {
            say(format_args!("the access log took no lines for {:?}", began.elapsed()));
        }
        if self.stands_behind() {
            return;
        }
        let Ended { drained, aborted_receiving, aborted_in_job, aborted_sending } = ended;
        say(format_args!(
            "stopped ({reason}): connections: {drained} drained, {} aborted \
             ({aborted_receiving} receiving, {aborted_in_job} in a job, {aborted_sending} sending)",
            ended.aborted()
        ));
    }
}

fn name(signal: i32) -> &'static str {
    match signal {
        SIGTERM => "SIGTERM",
        SIGINT => "SIGINT",
        SIGQUIT => "SIGQUIT",
        _ => "signal",
    }
}
