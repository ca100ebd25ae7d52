//! Runs a server with a configuration, and returns when the server has stopped.
//!
//! Signals and commands reach one thread, the main thread, which handles one event after another.
//!
//! | module | what it holds |
//! |---|---|
//! | `start` | starts a server with a configuration |
//! | `commands` | answers commands |
//! | `takeover` | a reload: requested, prepared, put in force |
//! | `bans` | clients that an operator keeps out for a time |
//! | `housekeeping` | tasks beside requests: watchdog messages, gate, firewall, certificates |
//! | `upgrade` | another process takes the place of this one, or this one of another |
//! | [`guest`] | a server inside another program |
//! | `drain` | the end of a server: replaced, drained, stopped |

mod bans;
mod commands;
mod drain;
pub mod guest;
mod housekeeping;
mod start;
mod takeover;
mod upgrade;

use crate::acme_thread::AcmeThread;
use crate::admin::RunningAdmin;
use crate::ban_files::{ChangedBans, WatchedBanFiles};
use crate::command::{CommandAnswer, CommandRequest};
use crate::control_socket::ControlSocket;
use crate::engines::{self, Common, ThreadEnd, WorkerGroup};
use crate::firewall::sets::SetReader;
use crate::isolated::kept_gate::GateLine;
use crate::kernel_answers::AnswersThread;
use crate::launcher::Launchers;
use crate::listen::Listeners;
use crate::notify::Notifier;
use crate::plan::Plan;
use crate::reload::{NextConfiguration, ReloadError};
use crate::sandbox::Sandbox;
use crate::start_error::{Ready, RunError, resources};
use crate::status::Status;
use crate::traces::Exporter;
use crate::upgrade::UPGRADED;
use crate::upgrade::earlier::EarlierServers;
use crate::upgrade::expected::ExpectedUpgrade;
use crate::upgrade::handed::OpenConnections;
use crate::upgrade::predecessor::Predecessor;
use crate::upgrade::program::RunningProgram;
use crate::upgrade::shared::SharedLimits;
use crate::upgrade::starting::StartingCommand;
use crate::upgrade::successor::SuccessorEvent;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, unbounded};
use forebay_config::{AddressSets, Config};
use forebay_engine::control::{Ended, LoopOrder};
use forebay_policy::bans::BanList;
use forebay_sys::process;
use forebay_sys::stderr::say;
use signal_hook::consts::{SIGHUP, SIGTERM, SIGUSR1, SIGUSR2};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use takeover::{Reload, Wanted};

/// An event that the main thread waits for.
enum Event {
    Signal(i32),
    /// A thread of the group with this number has ended.
    Ended(u64, ThreadEnd),
    Asked(CommandRequest),
    Prepared(Result<Box<NextConfiguration>, ReloadError>),
    /// Files of certificates have changed.
    CertificatesChanged,
    /// Sets of the firewall that rules name have other elements than the ones in force.
    SetsChanged(AddressSets),
    /// Files with bans have changed.
    BansChanged(ChangedBans),
    /// An event from the process that takes, or has taken, the place of this one.
    Successor(SuccessorEvent),
    /// The program that the server is a part of ends it, within this time.
    EndWithin(Duration),
    /// The program that the server is a part of gives it another configuration.
    Given(Box<Config>, Sender<CommandAnswer>),
    /// A replaced server has reported its open connections; `None` if it has ended.
    EarlierHas(u32, Option<OpenConnections>),
}

/// A task for a later time.
enum Later {
    /// Retire these groups, which leave the listeners. Some of their sockets get no new connections any more.
    Retire(Vec<u64>),
    /// Close the sockets that were left, as no engine accepts from them any more.
    Close,
    /// Report to the service manager's watchdog that the loops turn.
    Watchdog,
    /// Warn the operator of certificates that expire soon.
    Certificates,
    /// Look for interfaces and addresses that have come or gone.
    Gate,
    /// End bans whose time is over.
    Bans,
    /// Look for what another server has given back of the shared counts.
    Shared,
    /// Go on with the drain: idle clients have had the time for one more request.
    Drain,
    /// Leave the clients to the successor: the connections that were on their way
    /// to this server have arrived.
    LeaveClients,
    /// Begin the drain after the wait before it.
    Begin,
    /// Send the goodbye to clients of WebSockets: the time for the drain is nearly over.
    Farewell,
    /// Stop: the time for the drain is over.
    Stop,
    /// Wait for replaced servers no longer: they have had the time to end.
    LeaveEarlier,
}

/// The state of a running server, which its main thread holds.
struct Server {
    config: Config,
    /// The file of the configuration, if it can be read again.
    file: Option<PathBuf>,
    plan: Plan,
    common: Common,
    listeners: Arc<Mutex<Listeners>>,
    /// Each group with its number, oldest first, and whether it retires.
    groups: Vec<(u64, bool, WorkerGroup)>,
    /// The number of groups that were started so far.
    numbered: u64,
    status: Arc<Status>,
    admin: Option<RunningAdmin>,
    control_socket: Option<ControlSocket>,
    sandbox: Sandbox,
    notifier: Notifier,
    reload: Reload,
    /// The clients and networks that are banned.
    bans: BanList,
    /// The files with bans.
    ban_files: Arc<WatchedBanFiles>,
    /// The thread that reads sets of the firewall, if rules named some at the start.
    sets: Option<Arc<SetReader>>,
    /// Whether a thread looks for certificates that change.
    watches_certificates: bool,
    /// The thread that gets certificates by ACME, if there ever was one to get.
    acme: Option<AcmeThread>,
    /// The launchers of the file's commands and programs, if there were some at the start.
    launchers: Launchers,
    /// Whether a thread checks applications.
    keeps_up_applications: bool,
    /// The thread that sends spans to a collector.
    exporter: Exporter,
    /// The thread that counts and logs the answers that the kernel has given.
    answers: Option<AnswersThread>,
    /// The connection to the supervisor, which keeps the gate.
    gate_line: Option<GateLine>,
    /// The last reported reason why the gate is not attached everywhere.
    gate_trouble: Option<String>,
    later: Vec<(Instant, Later)>,
    /// Whether other processes get the clients that come from now on.
    is_replaced: bool,
    /// The program that this process runs.
    program: RunningProgram,
    /// The user of this process before it gave up its privileges.
    started_by: u32,
    /// Whether another process is about to take the place of this one.
    is_handing: bool,
    /// An upgrade that an operator has announced, and that the service manager carries out.
    expected: ExpectedUpgrade,
    /// The replaced servers that still have connections, oldest first.
    earlier: EarlierServers,
    /// The limits that this server counts together with those, and with its successor.
    shared: Option<SharedLimits>,
    /// Whether a signal began the drain. Replaced stages drain after a time without one.
    was_told_to_drain: bool,
    /// The signal that began the wait before the drain, in which clients are still accepted.
    waiting: Option<i32>,
    /// The cause of the drain, or of the wait before it, and its time.
    draining: Option<(&'static str, Instant)>,
    to_main: Sender<Event>,
    events: Receiver<Event>,
}

/// Serves `config` until a signal ends the server. `file` is where it was read from, if reloads are
/// to read it again. `before` is the control socket of the server whose place this one takes, and
/// the command that has started it for that. `ready` is called when clients are served.
///
/// # Errors
/// The obstacle at the start, or the way a loop failed.
pub fn run(
    config: Config,
    file: Option<PathBuf>,
    before: Option<(&Path, StartingCommand)>,
    ready: Ready,
) -> Result<(), RunError> {
    process::return_large_blocks();
    // signals must be caught before there is anything that they could interrupt
    let (to_main, events) = unbounded();
    let signals = start::catch_signals(config.place.is_some())
        .map_err(resources("descriptors for signals"))?;
    let before = before
        .map(|(socket, command)| Predecessor::ask(socket, command))
        .transpose()
        .map_err(RunError::TakeOver)?;
    if let Some((_, inheritance)) = &before {
        inheritance.check_gate(config.gate).map_err(RunError::TakeOver)?;
    }
    let server = Server::start(config, file, before, Some(signals), Vec::new(), to_main, events)?;
    ready(server.first_address());
    server.serve()
}

impl Server {
    /// The first URL at which a browser on this machine finds the server.
    fn first_address(&self) -> Option<String> {
        self.listeners().local_url(&self.plan.groups.first()?.listen)
    }

    /// Starts a group of workers. Returns its number.
    fn begin(&mut self, prepared: engines::Prepared) -> io::Result<u64> {
        self.numbered += 1;
        let (number, to_main) = (self.numbered, self.to_main.clone());
        let tell = move |outcome| drop(to_main.send(Event::Ended(number, outcome)));
        let group = prepared.start(tell)?;
        self.groups.push((number, false, group));
        Ok(number)
    }

    /// Handles events until all groups have ended.
    fn serve(mut self) -> Result<(), RunError> {
        let mut ended = Ended::default();
        let mut failure = None;
        while !self.groups.is_empty() || self.waits_for_earlier() {
            match self.next_event() {
                Some(Event::Signal(SIGUSR1)) => self.reopen_logs(),
                Some(Event::Signal(SIGUSR2)) => self.be_replaced(self.config.timeouts.drain),
                Some(Event::Signal(UPGRADED)) => self.be_replaced(self.config.timeouts.upgrade),
                // stages are replaced by the supervisor instead
                Some(Event::Signal(SIGHUP)) if self.config.place.is_some() => {}
                Some(Event::Signal(SIGHUP)) => self.ask_for(Wanted::File, None),
                Some(Event::Signal(signal)) => self.end(signal),
                Some(Event::EndWithin(time)) => self.end_by_program(time),
                Some(Event::Given(config, reply)) => {
                    self.ask_for(Wanted::Given(config), Some(reply));
                }
                Some(Event::Asked(asked)) => self.answer(asked),
                Some(Event::Prepared(next)) => self.finish_reload(next),
                Some(Event::Successor(event)) => self.hear(event),
                Some(Event::EarlierHas(process, open)) => self.hear_of_earlier(process, open),
                Some(Event::BansChanged(changed)) => self.take_bans_of_files(changed),
                Some(Event::SetsChanged(sets)) => self.take_sets(sets),
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

    /// The next event, or `None` when a task was due and has been done.
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
                Later::Bans => self.end_bans(),
                Later::Shared => self.share_limits(),
                Later::Drain if self.draining.is_none() => {
                    self.end(SIGTERM);
                    self.was_told_to_drain = false;
                }
                Later::Drain => {}
                Later::LeaveClients => self.leave_clients_to_successor(),
                Later::Farewell => self.end_web_sockets(),
                Later::Stop => {
                    let open = self.common.admission.open();
                    // the program has chosen the time itself
                    if !self.config.is_guest {
                        say(format_args!(
                            "{:?} of draining are over, connections still open: {open}: stopping now",
                            self.plan.drain
                        ));
                    }
                    self.stop();
                }
                Later::Begin => self.end_wait(),
                Later::LeaveEarlier => self.earlier.leave(),
            }
        }
        None
    }

    fn give_all(&self, order: LoopOrder) {
        self.groups.iter().for_each(|(_, _, group)| group.give(order));
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
}
