//! The successor's end of the connection: it asks a running server for its place, takes what that
//! hands over, announces when it serves, and hears which connections the predecessor still has.

use super::handed::{self, Handed, HandedCounts, LastWords, NewServer, OpenConnections};
use super::service::{self, ServiceUnit};
use super::starting::StartingCommand;
use super::successor;
use crate::control_socket::TAKE_OVER;
use crate::listen::Listeners;
use forebay_config::GateMode;
use forebay_handler::policy::enforced::HandedKernel;
use forebay_sys::descriptors;
use forebay_sys::stderr::{self, say};
use forebay_sys::{privileges, process, unix};
use std::fmt;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the predecessor may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a process may exist after its descriptors were closed.
const GONE: Duration = Duration::from_secs(2);

/// The longest line of a predecessor, with very many clients, and the longest reason for a refusal.
const MOST_LINE_BYTES: u64 = 16 << 20;
const MOST_WHY_BYTES: u64 = 64 << 10;

/// How long the predecessor may take to answer once this process serves clients. If it answers
/// later, both processes accept.
const LONGEST: Duration = Duration::from_secs(60);

/// The server whose place this process takes.
#[derive(Debug)]
pub struct Predecessor {
    stream: UnixStream,
    /// The process number.
    pub process: u32,
}

/// What a predecessor hands over.
#[derive(Debug)]
pub struct Inheritance {
    /// The text.
    pub handed: Handed,
    sockets: Vec<OwnedFd>,
    /// The replaced servers that still have connections, oldest first.
    before: Vec<EarlierServer>,
    gate: Option<(HandedKernel, Vec<OwnedFd>)>,
    counts: Option<(HandedCounts, OwnedFd)>,
    control: Option<OwnedFd>,
    /// The command that has started this process.
    pub command: StartingCommand,
    /// The predecessor's standard output, to which the access log may go.
    pub standard_output: OwnedFd,
    /// The predecessor's standard error, for messages to the operator.
    pub standard_error: OwnedFd,
}

impl Inheritance {
    /// Takes the listening sockets, which works once. Standard output of this process becomes the
    /// predecessor's, and standard error of processes that are started later, too.
    ///
    /// # Errors
    /// The kernel's error for one of the sockets.
    pub fn take_effect(&mut self) -> io::Result<Listeners> {
        stderr::lead_output_to(&self.standard_output)?;
        stderr::lead_children_to(&self.standard_error)?;
        let sockets = std::mem::take(&mut self.sockets);
        Listeners::handed(self.handed.sockets.clone(), sockets)
    }
}

impl Inheritance {
    /// Takes the replaced servers that still have connections, oldest first, which works once.
    pub fn before(&mut self) -> Vec<EarlierServer> {
        std::mem::take(&mut self.before)
    }

    /// Logs which process serves in the place of which, and how many connections the predecessor
    /// has, if that is known. From then on standard error is the predecessor's.
    pub fn announce(&self, open: Option<&OpenConnections>) {
        let Handed { process, version, .. } = &self.handed;
        let has =
            open.map(|open| format!(", which has {} connections", open.count)).unwrap_or_default();
        let own = std::process::id();
        // still to this process's own standard error, where the command that has
        // asked for the upgrade reads it
        say(format_args!(
            "upgrade: process {own} serves in place of process {process} (version {version}){has}"
        ));
        let _ = stderr::lead_to(&self.standard_error);
    }

    /// Logs what of the predecessor's state stages cannot go on with.
    pub fn announce_lost(&self) {
        let count = self.handed.drained.len();
        if count > 0 {
            say(format_args!(
                "upgrade: upstreams that were taken out: {count} are asked again, because stages take no commands \
                 about upstreams"
            ));
        }
    }

    /// Checks that a server with a gate in this mode can take the place.
    ///
    /// # Errors
    /// [`TakeOverError::StillAnswers`].
    pub fn check_gate(&self, mode: GateMode) -> Result<(), TakeOverError> {
        let did_answer = self.handed.gate.as_ref().is_some_and(|gate| gate.steers);
        match did_answer && mode != GateMode::Full {
            true => Err(TakeOverError::StillAnswers),
            false => Ok(()),
        }
    }

    /// Takes the predecessor's gate, which works once.
    pub fn gate(&mut self) -> Option<(HandedKernel, Vec<OwnedFd>)> {
        self.gate.take()
    }

    /// The name of the predecessor's table in the firewall.
    pub fn table(&self) -> Option<&str> {
        self.handed.firewall.as_deref()
    }

    /// Takes the counts that the predecessor shares with other processes, which works once.
    pub fn counts(&mut self) -> Option<(HandedCounts, OwnedFd)> {
        self.counts.take()
    }

    /// Takes the predecessor's control socket, which works once.
    pub fn control(&mut self) -> Option<(PathBuf, OwnedFd)> {
        Some((self.handed.control.clone(), self.control.take()?))
    }
}

/// The reason why nothing was handed over.
#[derive(Debug)]
pub enum TakeOverError {
    /// The predecessor does not want to be replaced.
    Refused {
        /// The reason, in the predecessor's own words.
        why: String,
    },
    /// The predecessor belongs to a service of systemd, and this process does not.
    OutsideService {
        /// The name of the service, if it is known.
        service: Option<String>,
    },
    /// The predecessor was started by another user, with whose privileges its successor must begin.
    OtherUser {
        /// The name of that user, or the number.
        user: String,
        /// The name of this process's user, or the number.
        own: String,
    },
    /// The predecessor's gate answers SYNs, and this server has no gate that can continue that.
    StillAnswers,
    /// No server is there, or it does not answer.
    Unreachable {
        /// The path of the control socket.
        socket: PathBuf,
        /// The error of the kernel.
        error: io::Error,
    },
}

impl fmt::Display for TakeOverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TakeOverError::Refused { why } => {
                write!(f, "the running server keeps its place: {}", why.trim_end())
            }
            TakeOverError::OutsideService { service } => write!(
                f,
                "the running server is {}, and a process beside it would be none of that service: restart it \
                 (systemctl restart)",
                service.as_deref().unwrap_or("watched by a service manager")
            ),
            TakeOverError::OtherUser { user, own } => write!(
                f,
                "the running server was started by the user {user}, and the one in its place would be {own}'s, with \
                 other rights and another control socket: run the command as {user} (sudo -u {user}), or stop the \
                 server and start it as {own}"
            ),
            TakeOverError::StillAnswers => f.write_str(
                "the running server answers SYNs in the kernel (gate, rung full), and handshakes that have begun would \
                 be lost: restart it to leave that rung",
            ),
            TakeOverError::Unreachable { socket, error } => {
                write!(f, "the server at {} hands nothing over: {error}", socket.display())
            }
        }
    }
}

impl std::error::Error for TakeOverError {}

/// The name of a user, or the number if the machine does not know the user.
fn named(user: u32) -> String {
    let known = privileges::name_and_home(user).ok().flatten();
    known.map_or_else(|| user.to_string(), |(name, _)| name)
}

impl Predecessor {
    /// Asks the server at this control socket to hand over.
    ///
    /// # Errors
    /// [`TakeOverError`]; the server goes on as before.
    pub fn ask(
        socket: &Path,
        command: StartingCommand,
    ) -> Result<(Predecessor, Inheritance), TakeOverError> {
        Predecessor::asked(socket, command).map_err(|error| TakeOverError::Unreachable {
            socket: socket.to_owned(),
            error: match error.kind() {
                io::ErrorKind::WouldBlock => io::Error::new(
                    io::ErrorKind::TimedOut,
                    format!("it has not answered within {} s", PATIENCE.as_secs()),
                ),
                _ => error,
            },
        })?
    }

    fn asked(
        socket: &Path,
        command: StartingCommand,
    ) -> io::Result<Result<(Predecessor, Inheritance), TakeOverError>> {
        let mut stream = UnixStream::from(unix::connect(socket)?);
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.write_all(TAKE_OVER.as_bytes())?;
        let mut code = [0; 2];
        stream.read_exact(&mut code)?;
        if code != *b"0\n" {
            let mut why = String::new();
            (&stream).take(MOST_WHY_BYTES).read_to_string(&mut why)?;
            return Ok(Err(TakeOverError::Refused { why }));
        }
        let handed: Handed = handed::receive(&stream)?;
        let beside = ServiceUnit::beside(handed.process);
        // systemd would take the service for ended, and kill what is left in it, if this process
        // were outside of it
        let is_strange = handed.notify.is_some() && !service::is_with(handed.process);
        if beside.is_some() || is_strange {
            let service = beside.map(|unit| unit.name);
            return Ok(Err(TakeOverError::OutsideService { service }));
        }
        let own = process::user();
        if let Some(user) = handed.started_by.filter(|user| *user != own) {
            let [user, own] = [user, own].map(named);
            return Ok(Err(TakeOverError::OtherUser { user, own }));
        }
        let of_gate = handed.gate.as_ref().map_or(0, HandedKernel::descriptors);
        let of_counts = usize::from(handed.counts.is_some());
        let count = handed.sockets.len() + handed.before.len() + of_gate + of_counts + 3;
        let mut sockets = descriptors::take(&stream, count)?;
        // descriptors are in the order described at `Handed::sockets`; here they are taken from the end
        let standard_error = sockets.pop().ok_or(io::ErrorKind::UnexpectedEof)?;
        let standard_output = sockets.pop().ok_or(io::ErrorKind::UnexpectedEof)?;
        let control = sockets.pop();
        let counts = handed.counts.clone().and_then(|counts| Some((counts, sockets.pop()?)));
        let gate = sockets.split_off(sockets.len().saturating_sub(of_gate));
        let gate = handed.gate.clone().map(|text| (text, gate));
        let lines = sockets.split_off(handed.sockets.len().min(sockets.len()));
        let before = handed.before.iter().zip(lines).map(|((process, open), line)| {
            EarlierServer::new(*process, open.clone(), UnixStream::from(line))
        });
        let before = before.collect();
        let predecessor = Predecessor { stream, process: handed.process };
        Ok(Ok((
            predecessor,
            Inheritance {
                handed,
                sockets,
                before,
                gate,
                counts,
                control,
                command,
                standard_output,
                standard_error,
            },
        )))
    }

    /// Announces that this process serves clients. From now on the predecessor accepts none; where
    /// there are addresses that are `left`, it first accepts the connections that are already on their
    /// way to these. The result is the predecessor's last state, or nothing if it has ended meanwhile.
    ///
    /// # Errors
    /// When the predecessor keeps its place after all, or exists and does not answer.
    pub fn replace(&mut self, new: &NewServer) -> io::Result<LastWords> {
        let line = format!("serves {}\n", serde_json::to_string(new)?);
        self.stream.set_read_timeout(Some(LONGEST))?;
        let said = self.stream.write_all(line.as_bytes());
        let words = said.and_then(|()| handed::receive::<LastWords>(&self.stream));
        match words {
            Ok(LastWords { keeps_place: Some(why), .. }) => Err(io::Error::other(why)),
            Ok(words) => Ok(words),
            // a process that ends closes its descriptors a moment before it is gone
            Err(error) if self.outlives(GONE) => Err(error),
            Err(_) => Ok(LastWords::default()),
        }
    }

    /// Waits until the predecessor says that it accepts no more, or has ended, or a time is over.
    pub fn wait_until_left(&self) {
        let _ = self.stream.set_read_timeout(Some(PATIENCE));
        let _ = (&self.stream).read_exact(&mut [0; successor::LEFT.len()]);
    }

    /// Checks that the predecessor still waits for this process.
    ///
    /// # Errors
    /// When the predecessor has given up, or ended.
    pub fn check(&self) -> io::Result<()> {
        self.stream.set_nonblocking(true)?;
        let read = (&self.stream).read(&mut [0]);
        self.stream.set_nonblocking(false)?;
        match read {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            // the predecessor sends nothing before it is asked, so bytes or an end mean that it has given up
            _ if self.outlives(GONE) => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    /// Whether the predecessor still exists after this time.
    fn outlives(&self, time: Duration) -> bool {
        let until = Instant::now() + time;
        while self.is_there() {
            if Instant::now() >= until {
                return true;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        false
    }

    /// Whether the process exists and has not ended: a zombie, for which no parent has waited yet, has ended.
    fn is_there(&self) -> bool {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process));
        let has_ended = |line: &str| line.starts_with("State:\tZ") || line.starts_with("State:\tX");
        status.is_ok_and(|status| !status.lines().any(has_ended))
    }

    /// Turns the predecessor into a replaced server that serves its connections to their end:
    /// these, if it has reported them.
    pub fn retire(self, open: Option<OpenConnections>) -> EarlierServer {
        EarlierServer::new(self.process, open.unwrap_or_default(), self.stream)
    }
}

/// A replaced server, which serves its connections to their end.
#[derive(Debug)]
pub struct EarlierServer {
    /// The process number.
    pub process: u32,
    /// The open connections, as last reported.
    pub open: OpenConnections,
    stream: UnixStream,
    /// Keeps the thread that listens alive: when this is dropped, another process may read the reports.
    listens: Arc<()>,
}

impl EarlierServer {
    fn new(process: u32, open: OpenConnections, stream: UnixStream) -> EarlierServer {
        EarlierServer { process, open, stream, listens: Arc::default() }
    }

    /// Announces that the log files were moved.
    pub fn reopen_logs(&self) {
        self.say("reopen");
    }

    /// Has the server bring its connections to their end now.
    pub fn end(&self) {
        self.say("end");
    }

    /// Has the server cut its connections.
    pub fn stop(&self) {
        self.say("stop");
    }

    fn say(&self, what: &str) {
        // the server may have ended
        let _ = (&self.stream).write_all(format!("{what}\n").as_bytes());
    }

    /// A duplicate of the connection, for the process that takes the place of this one.
    ///
    /// # Errors
    /// Lack of descriptors.
    pub fn hand(&self) -> io::Result<OwnedFd> {
        Ok(self.stream.try_clone()?.into())
    }

    /// Starts a thread that calls `tell` with the open connections at each report, and with `None`
    /// when the server has ended. The thread stops calling it once this is dropped.
    ///
    /// # Errors
    /// Lack of threads or descriptors.
    pub fn listen(
        &self,
        tell: impl Fn(Option<OpenConnections>) + Send + 'static,
    ) -> io::Result<()> {
        let stream = self.stream.try_clone()?;
        // the server reports each second, but not while it is stopped by a signal
        stream.set_read_timeout(None)?;
        let listens = Arc::downgrade(&self.listens);
        let listen = move || {
            let mut lines = BufReader::new(stream);
            let mut line = String::new();
            // a longer line comes in pieces, which cannot be parsed and are ignored
            while matches!(lines.by_ref().take(MOST_LINE_BYTES).read_line(&mut line), Ok(1..)) {
                if listens.strong_count() == 0 {
                    return;
                }
                if let Ok(open) = serde_json::from_str(&line) {
                    tell(Some(open));
                }
                line.clear();
            }
            if listens.strong_count() > 0 {
                tell(None);
            }
        };
        std::thread::Builder::new().name("predecessor".to_owned()).spawn(listen).map(drop)
    }
}
