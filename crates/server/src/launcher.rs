//! Programs that the file names and the server has run, although it may run nothing itself since its start: a process
//! beside it, the launcher, runs them. It is started before the server gives its rights up, and ends with it.
//!
//! In: the configuration; which of its commands is to be run, by number, and values. Out: what came of it. The launcher
//! reads the commands from the file by itself, so that a server that was taken over can have nothing run that the
//! file does not name: what it says can hold neither a path nor a command.
//!
//! | module | what it holds |
//! |---|---|
//! | [`commands`] | which commands a configuration has, and which values each is given |
//! | [`messages`] | what the two processes say to each other |
//! | [`process`] | the launcher |
//! | `runs` | one command that runs |

pub mod commands;
pub mod messages;
pub mod process;
mod runs;

use commands::{LaunchCommand, fingerprint};
use crossbeam_channel::{RecvTimeoutError, Sender, bounded};
use forebay_config::Config;
use forebay_sys::launch::{self, MessageSocket};
use forebay_sys::stderr::say;
use messages::{LaunchReply, LaunchRequest};
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::path::Path;
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// How long the launcher may take to read the file: disks may be slow, and there may be thousands of sites.
const READING: Duration = Duration::from_secs(45);

/// How long a command is waited for, which the launcher ends after an hour at most.
const RUNNING: Duration = Duration::from_secs(2 * 3600);

/// How long the end of the launcher is waited for.
const ENDING: Duration = Duration::from_secs(10);

/// The launcher, as the server knows it.
#[derive(Debug)]
pub struct Launcher {
    socket: MessageSocket,
    waiting: Mutex<PendingReplies>,
    /// The server ends, and the launcher is meant to.
    is_over: AtomicBool,
}

/// Who waits for the answers to which questions; `None` when there will be none.
#[derive(Debug)]
struct PendingReplies {
    asked: u32,
    replies: Option<HashMap<u32, Sender<LaunchReply>>>,
    /// Told when the launcher has ended.
    ends: Vec<Sender<()>>,
}

/// A launcher that was started, and is heard only by who has started it.
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

/// Starts the launcher, if `config` has commands. `file` is where it was read from. To be called before rights are given
/// up, and before there are threads.
///
/// # Errors
/// Why the commands cannot be run.
pub fn start(
    config: &Config,
    file: Option<&Path>,
) -> Result<Option<StartedLauncher>, LauncherError> {
    let commands = commands::of(config);
    let Some(file) = file.filter(|_| !commands.is_empty() && config.place.is_none()) else {
        return Ok(None);
    };
    let started = StartedLauncher::new(file);
    let mut started = started.map_err(|error| {
        LauncherError(format!("the process that runs commands cannot be started: {error}"))
    })?;
    started.take_commands(&commands)?;
    Ok(Some(started))
}

impl StartedLauncher {
    fn new(file: &Path) -> io::Result<StartedLauncher> {
        let (socket, its) = MessageSocket::pair()?;
        let child = launch::start_beside(&["launcher", "--config"], file, its)?;
        let waiting = PendingReplies { asked: 0, replies: Some(HashMap::new()), ends: Vec::new() };
        let waiting = Mutex::new(waiting);
        let launcher = Launcher { socket, waiting, is_over: AtomicBool::new(false) };
        Ok(StartedLauncher { launcher, child })
    }

    /// It reads the commands, which are to be these.
    fn take_commands(&mut self, commands: &[LaunchCommand]) -> Result<(), LauncherError> {
        for request in [LaunchRequest::Prepare, LaunchRequest::Commit] {
            let gone = |_| self.launcher.gone();
            self.launcher.socket.send(&request.encode(0)).map_err(gone)?;
            let reply = self.launcher.socket.receive().map_err(gone)?;
            let reply = reply.as_deref().and_then(LaunchReply::decode);
            let (_, reply) = reply.ok_or_else(|| self.launcher.gone())?;
            if request == LaunchRequest::Prepare {
                check(reply, commands)?;
            }
        }
        Ok(())
    }

    /// Has it heard from now on, by a thread.
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
                // who has asked may have waited long enough
                waits.into_iter().for_each(|waits| drop(waits.send(reply.clone())));
            }
            if !heard.is_over.load(Ordering::Acquire) {
                say(format_args!("{}", heard.gone()));
            }
            // who waits is told by the end of the channel
            heard.waiting().replies = None;
            heard.socket.shut_down();
            let _ = child.wait();
            for end in heard.waiting().ends.drain(..) {
                // it may have waited long enough
                let _ = end.send(());
            }
        };
        thread::Builder::new().name("launcher".to_owned()).spawn(listen)?;
        Ok(launcher)
    }
}

impl Launcher {
    /// Has the launcher read the file again, in which these commands stand now. They hold once they are
    /// [committed](Launcher::commit).
    ///
    /// # Errors
    /// Why it cannot take them: nothing has changed then.
    pub fn prepare(&self, commands: &[LaunchCommand]) -> Result<(), LauncherError> {
        check(self.ask(&LaunchRequest::Prepare, READING)?, commands)
    }

    /// What was prepared holds from now on.
    ///
    /// # Errors
    /// When the launcher has ended.
    pub fn commit(&self) -> Result<(), LauncherError> {
        self.ask(&LaunchRequest::Commit, READING).map(drop)
    }

    /// Has the command with this number run, with a value for each of its variables, and waits for that.
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
            RecvTimeoutError::Timeout => LauncherError(format!(
                "the process that runs commands has not answered within {patience:?}"
            )),
        })
    }

    /// Ends it, and what it runs.
    pub fn end(&self) {
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
            say(format_args!("the process that runs commands has not ended within {ENDING:?}"));
        }
    }

    /// That there will be no answer. Where the server itself is about to end, the thread that waits for one ends with
    /// it: what it has begun has not failed, and the next server goes on with it.
    fn lost(&self) -> LauncherError {
        while self.is_over.load(Ordering::Acquire) {
            thread::park();
        }
        self.gone()
    }

    fn gone(&self) -> LauncherError {
        LauncherError(
            "the process that runs commands has ended; forebay upgrade, or a restart, begins another"
                .to_owned(),
        )
    }

    fn waiting(&self) -> MutexGuard<'_, PendingReplies> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the launcher has read is what the server has.
fn check(reply: LaunchReply, commands: &[LaunchCommand]) -> Result<(), LauncherError> {
    match reply.failure {
        Some(why) => Err(LauncherError(why)),
        None if reply.said == fingerprint(commands) => Ok(()),
        None => Err(LauncherError("the file has changed meanwhile: try again".to_owned())),
    }
}
