//! Commands and CGI programs that the configuration file names, run by processes beside the server:
//! the launchers. The server itself can run nothing once it has started. Launchers start before the
//! server gives up its privileges, and end with it: one launcher runs commands, one after another,
//! the other runs the programs of requests, many at once.
//!
//! In: the configuration; the number of the command to run, and values for its variables. Out: the
//! result. A launcher reads the commands from the file by itself: a message of the server can hold
//! neither a path nor a command, so a server that an attacker has taken over can run nothing that
//! the file does not name.
//!
//! | module | what it holds |
//! |---|---|
//! | [`cgi`] | programs for requests: the launcher that is a process for each |
//! | [`commands`] | which commands a configuration has, and which values each is given |
//! | [`messages`] | what the two processes say to each other |
//! | [`process`] | the launcher of commands |
//! | `runs` | one command that runs |

pub mod cgi;
pub mod commands;
pub mod messages;
pub mod process;
mod runs;

use crate::cgroups::CgroupBase;
use crossbeam_channel::{RecvTimeoutError, Sender, bounded};
use forebay_config::{Config, Role};
use forebay_sys::launch::{self, MessageSocket};
use forebay_sys::stderr::say;
use messages::{LaunchReply, LaunchRequest};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::Path;
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// How long the launcher may take to read the file: disks may be slow, and there may be thousands of sites.
const READING: Duration = Duration::from_secs(45);

/// How long the server waits for a command. The launcher ends a command after an hour at most.
const RUNNING: Duration = Duration::from_secs(2 * 3600);

/// How long the server waits for the end of a launcher.
const ENDING: Duration = Duration::from_secs(10);

/// A kind of launcher, by what it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LauncherKind {
    /// Commands of the server: one at a time, each to its end.
    Commands,
    /// Programs for requests.
    Programs,
}

impl LauncherKind {
    /// Both kinds.
    pub const ALL: [LauncherKind; 2] = [LauncherKind::Commands, LauncherKind::Programs];

    /// A fingerprint of what this kind of launcher has to run of a configuration, the same for the
    /// same commands or programs; `None` if there is nothing to run.
    fn wanted(self, config: &Config) -> Option<String> {
        match self {
            LauncherKind::Commands => {
                let commands = commands::of(config);
                // only these processes have certificates
                let role = config.place.as_ref().map(|place| place.role);
                let is_own = !commands.is_empty() && matches!(role, None | Some(Role::Receive));
                is_own.then(|| fingerprint(&commands))
            }
            LauncherKind::Programs => {
                let routes = cgi::of(config);
                (!routes.is_empty()).then(|| fingerprint(&routes))
            }
        }
    }

    /// The fingerprint of a configuration with nothing to run.
    fn nothing(self) -> String {
        match self {
            LauncherKind::Commands => fingerprint(&Vec::<commands::LaunchCommand>::new()),
            LauncherKind::Programs => fingerprint(&Vec::<forebay_config::CgiRoute>::new()),
        }
    }

    /// The setting that asks for this kind of launcher.
    fn key(self) -> &'static str {
        match self {
            LauncherKind::Commands => "acme.dns_hook",
            LauncherKind::Programs => "cgi",
        }
    }
}

impl fmt::Display for LauncherKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LauncherKind::Commands => "the process that runs commands",
            LauncherKind::Programs => "the process that runs CGI programs",
        })
    }
}

/// A hash of `things`, as text. Equal things have the same hash in all processes of one program.
fn fingerprint(things: &impl Hash) -> String {
    let mut hasher = DefaultHasher::new();
    things.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

/// The launchers of a server.
#[derive(Clone, Debug, Default)]
pub struct Launchers(Vec<Arc<Launcher>>);

/// A launcher, from the server's side.
#[derive(Debug)]
pub struct Launcher {
    kind: LauncherKind,
    socket: Arc<MessageSocket>,
    waiting: Mutex<PendingReplies>,
    /// The server ends, and the launcher is expected to.
    is_over: AtomicBool,
    /// Limits that cannot be enforced on this machine for what the launcher runs, in lines.
    remarks: String,
    /// Held while the server is in a control group beside those of programs.
    _room: Option<CgroupBase>,
}

/// The callers that wait for an answer, by the number of their question; `None` once no answer can come.
#[derive(Debug)]
struct PendingReplies {
    asked: u32,
    replies: Option<HashMap<u32, Sender<LaunchReply>>>,
    /// Channels that get a message when the launcher has ended.
    ends: Vec<Sender<()>>,
}

/// A launcher that has started; no thread reads its messages yet, and only its starter talks to it.
#[derive(Debug)]
pub struct StartedLauncher {
    launcher: Launcher,
    child: Child,
}

/// Why there is no launcher, or why it cannot do what was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LauncherError(pub String);

impl fmt::Display for LauncherError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for LauncherError {}

/// Starts the launchers that `config` has something for. `file` is the file that it was read from.
/// The caller must still have its privileges, and only one thread.
///
/// # Errors
/// Why something cannot be run.
pub fn start(config: &Config, file: Option<&Path>) -> Result<Vec<StartedLauncher>, LauncherError> {
    // a stage knows the file only by its place
    let place = config.place.as_ref();
    let Some(file) = place.map(|place| place.file.as_path()).or(file) else {
        return Ok(Vec::new());
    };
    let wanted = LauncherKind::ALL.map(|kind| (kind, kind.wanted(config)));
    let wanted = wanted.into_iter().filter_map(|(kind, wanted)| Some((kind, wanted?)));
    // the supervisor makes room for the programs of stages; a guest leaves the process where it is
    let makes_room = place.is_none() && !config.is_guest && !cgi::of(config).is_empty();
    let mut room = makes_room.then(CgroupBase::find);
    // first, because a process that is forked earlier would stay in the old group
    room.iter_mut().for_each(CgroupBase::make_room);
    let started = wanted.map(|(kind, wanted)| {
        let links = place.map(|place| place.links.as_path());
        let mut started = StartedLauncher::new(
            kind,
            file,
            links,
            room.take_if(|_| kind == LauncherKind::Programs),
        )
        .map_err(|error| LauncherError(format!("{kind} cannot be started: {error}")))?;
        started.take_over(&wanted)?;
        Ok(started)
    });
    started.collect()
}

impl Launchers {
    /// Starts a thread for each launcher, which reads its messages.
    ///
    /// # Errors
    /// Lack of threads.
    pub fn listen(started: Vec<StartedLauncher>) -> io::Result<Launchers> {
        Ok(Launchers(started.into_iter().map(StartedLauncher::listen).collect::<io::Result<_>>()?))
    }

    /// The launcher of this kind, if there was something to run at the start.
    pub fn of(&self, kind: LauncherKind) -> Option<&Arc<Launcher>> {
        self.0.iter().find(|launcher| launcher.kind == kind)
    }

    /// Has each launcher read the file again whose part of `next` differs from the configuration in
    /// force, `before`; returns these launchers. They use what they have read once it is committed.
    ///
    /// # Errors
    /// The reason why a launcher cannot use it; nothing has changed then.
    pub fn prepare(&self, next: &Config, before: &Config) -> Result<Launchers, LauncherError> {
        let mut prepared = Vec::new();
        for kind in LauncherKind::ALL {
            let wanted = kind.wanted(next);
            if wanted == kind.wanted(before) {
                continue;
            }
            match (self.of(kind), &wanted) {
                (Some(launcher), wanted) => {
                    launcher.prepare(wanted.as_deref().unwrap_or(&kind.nothing()))?;
                    prepared.push(Arc::clone(launcher));
                }
                (None, Some(_)) => {
                    return Err(LauncherError(format!(
                        "{}: {kind} starts with a server whose file has something for it, and this one's had \
                         nothing: forebay upgrade starts such a server in place of this one",
                        kind.key()
                    )));
                }
                (None, None) => {}
            }
        }
        Ok(Launchers(prepared))
    }

    /// Puts what was prepared in force.
    ///
    /// # Errors
    /// When a launcher has ended.
    pub fn commit(&self) -> Result<(), LauncherError> {
        self.0.iter().try_for_each(|launcher| launcher.commit())
    }

    /// Ends the launchers, and what they run.
    pub fn end(&self) {
        self.0.iter().for_each(|launcher| launcher.end());
    }

    /// What an operator should know, in lines: the launchers that have ended although the server
    /// has not, and the limits that cannot be enforced on what the others run.
    pub fn remarks(&self) -> String {
        let remarks = self.0.iter().map(|launcher| match launcher.has_ended() {
            true => format!("{}\n", launcher.gone()),
            false => launcher.remarks.clone(),
        });
        remarks.collect()
    }
}

impl StartedLauncher {
    fn new(
        kind: LauncherKind,
        file: &Path,
        links: Option<&Path>,
        room: Option<CgroupBase>,
    ) -> io::Result<StartedLauncher> {
        let (socket, its) = MessageSocket::pair()?;
        let mut words = match kind {
            LauncherKind::Commands => vec!["launcher".as_ref()],
            LauncherKind::Programs => vec!["cgi-launcher".as_ref()],
        };
        words.extend(links.into_iter().flat_map(|links| ["--links".as_ref(), links.as_os_str()]));
        words.extend([OsStr::new("--config"), file.as_os_str()]);
        let child = launch::start_beside(&words, its)?;
        let waiting = PendingReplies { asked: 0, replies: Some(HashMap::new()), ends: Vec::new() };
        let (waiting, is_over) = (Mutex::new(waiting), AtomicBool::new(false));
        let (socket, remarks) = (Arc::new(socket), String::new());
        let launcher = Launcher { kind, socket, waiting, is_over, remarks, _room: room };
        Ok(StartedLauncher { launcher, child })
    }

    /// The socket that takes requests for programs, if this launcher runs programs.
    pub fn for_requests(&self) -> Option<Arc<MessageSocket>> {
        let is_it = self.launcher.kind == LauncherKind::Programs;
        is_it.then(|| Arc::clone(&self.launcher.socket))
    }

    /// Has the launcher read what it runs, and checks that its fingerprint is `wanted`.
    fn take_over(&mut self, wanted: &str) -> Result<(), LauncherError> {
        for request in [LaunchRequest::Prepare, LaunchRequest::Commit] {
            let gone = |_| self.launcher.gone();
            self.launcher.socket.send(&request.encode(0)).map_err(gone)?;
            let reply = self.launcher.socket.receive().map_err(gone)?;
            let reply = reply.as_deref().and_then(LaunchReply::decode);
            let (_, reply) = reply.ok_or_else(|| self.launcher.gone())?;
            match request {
                LaunchRequest::Prepare => check(reply, wanted)?,
                _ => self.launcher.remarks = reply.said,
            }
        }
        self.launcher.remarks.lines().for_each(|remark| say(format_args!("{remark}")));
        Ok(())
    }

    /// Starts a thread that reads the launcher's messages.
    ///
    /// # Errors
    /// Lack of threads.
    pub fn listen(self) -> io::Result<Arc<Launcher>> {
        let StartedLauncher { launcher, mut child } = self;
        let launcher = Arc::new(launcher);
        let heard = Arc::clone(&launcher);
        let listen = move || {
            while let Ok(Some(message)) = heard.socket.receive() {
                let Some((asked, reply)) = LaunchReply::decode(&message) else { continue };
                let waits = heard.waiting().replies.as_mut().and_then(|all| all.remove(&asked));
                // the caller may have given up waiting
                waits.into_iter().for_each(|waits| drop(waits.send(reply.clone())));
            }
            if !heard.is_over.load(Ordering::Acquire) {
                say(format_args!("{}", heard.gone()));
            }
            // dropping the senders wakes every caller that still waits
            heard.waiting().replies = None;
            heard.socket.shut_down();
            let _ = child.wait();
            for end in heard.waiting().ends.drain(..) {
                // the caller may have given up waiting
                let _ = end.send(());
            }
        };
        thread::Builder::new().name("launcher".to_owned()).spawn(listen)?;
        Ok(launcher)
    }
}

impl Launcher {
    /// Has the launcher read the file again, and checks that its fingerprint is `wanted`.
    fn prepare(&self, wanted: &str) -> Result<(), LauncherError> {
        check(self.ask(&LaunchRequest::Prepare, READING)?, wanted)
    }

    /// Whether the launcher has ended.
    fn has_ended(&self) -> bool {
        self.waiting().replies.is_none()
    }

    /// Puts what was prepared in force.
    fn commit(&self) -> Result<(), LauncherError> {
        self.ask(&LaunchRequest::Commit, READING).map(drop)
    }

    /// Has the launcher run the command with this number, with a value for each of its variables,
    /// and waits for the end.
    ///
    /// # Errors
    /// Why it could not be run, or the launcher has ended.
    pub fn run(&self, command: u16, values: Vec<String>) -> Result<LaunchReply, LauncherError> {
        self.ask(&LaunchRequest::Run { command, values }, RUNNING)
    }

    fn ask(
        &self,
        request: &LaunchRequest,
        patience: Duration,
    ) -> Result<LaunchReply, LauncherError> {
        let (tell, told) = bounded(1);
        let asked = {
            let mut waiting = self.waiting();
            let asked = waiting.asked.wrapping_add(1);
            waiting.asked = asked;
            waiting.replies.as_mut().map(|replies| replies.insert(asked, tell)).map(|_| asked)
        };
        let asked = asked.ok_or_else(|| self.lost())?;
        if self.socket.send(&request.encode(asked)).is_err() {
            return Err(self.lost());
        }
        told.recv_timeout(patience).map_err(|error| match error {
            RecvTimeoutError::Disconnected => self.lost(),
            RecvTimeoutError::Timeout => {
                LauncherError(format!("{} has not answered within {patience:?}", self.kind))
            }
        })
    }

    /// Ends the launcher, and what it runs.
    fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        let (tell, told) = bounded(1);
        {
            let mut waiting = self.waiting();
            if waiting.replies.is_none() {
                return;
            }
            waiting.ends.push(tell);
        }
        self.socket.shut_down();
        if told.recv_timeout(ENDING) == Err(RecvTimeoutError::Timeout) {
            say(format_args!("{} has not ended within {ENDING:?}", self.kind));
        }
    }

    /// The error for an answer that cannot come. Where the server itself is about to end, the
    /// waiting thread never returns and ends with it: what it has begun has not failed, and the
    /// next server goes on with it.
    fn lost(&self) -> LauncherError {
        while self.is_over.load(Ordering::Acquire) {
            thread::park();
        }
        self.gone()
    }

    fn gone(&self) -> LauncherError {
        LauncherError(format!(
            "{} has ended; forebay upgrade, or a restart, begins another",
            self.kind
        ))
    }

    fn waiting(&self) -> MutexGuard<'_, PendingReplies> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Checks that the launcher has read the same configuration as the server.
fn check(reply: LaunchReply, wanted: &str) -> Result<(), LauncherError> {
    match reply.failure {
        Some(why) => Err(LauncherError(why)),
        None if reply.said == wanted => Ok(()),
        None => Err(LauncherError("the file has changed meanwhile: try again".to_owned())),
    }
}
