//! The successor's end: it asks for the place of a running server, takes what that hands it, says when it serves,
//! and hears how many connections the other still has.

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

/// How long the other process may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a process may be there after its descriptors were closed.
const GONE: Duration = Duration::from_secs(2);

/// The longest line of it, with very many clients, and the longest reason.
const MOST_LINE_BYTES: u64 = 16 << 20;
const MOST_WHY_BYTES: u64 = 64 << 10;

/// How long it may take to answer once clients are served here: whoever answers later leaves both accepting.
const LONGEST: Duration = Duration::from_secs(60);

/// The server whose place this process takes.
#[derive(Debug)]
pub struct Predecessor {
    stream: UnixStream,
    /// The number of its process.
    pub process: u32,
}

/// What a predecessor gives.
#[derive(Debug)]
pub struct Inheritance {
    /// What it says.
    pub handed: Handed,
    sockets: Vec<OwnedFd>,
    /// The servers before it that have connections yet, oldest first.
    before: Vec<EarlierServer>,
    gate: Option<(HandedKernel, Vec<OwnedFd>)>,
    counts: Option<(HandedCounts, OwnedFd)>,
    control: Option<OwnedFd>,
    /// Who has started this process.
    pub command: StartingCommand,
    /// Where it may write the access log.
    pub standard_output: OwnedFd,
    /// Where it tells the operator what happens.
    pub standard_error: OwnedFd,
}

impl Inheritance {
    /// Its listening sockets, once. Standard output leads from now on to where its own does, and standard error of
    /// processes that are started.
    ///
    /// # Errors
    /// What the kernel says of one.
    pub fn take_effect(&mut self) -> io::Result<Listeners> {
        stderr::lead_output_to(&self.standard_output)?;
        stderr::lead_children_to(&self.standard_error)?;
        let sockets = std::mem::take(&mut self.sockets);
        Listeners::handed(self.handed.sockets.clone(), sockets)
    }
}

impl Inheritance {
    /// The servers before it that have connections yet, oldest first, once.
    pub fn before(&mut self) -> Vec<EarlierServer> {
        std::mem::take(&mut self.before)
    }

    /// Tells the operator who serves now in whose place; the other has so many connections, if it has said how many.
    /// From then on standard error leads to where that of the other does.
    pub fn announce(&self, open: Option<&OpenConnections>) {
        let Handed { process, version, .. } = &self.handed;
        let has =
            open.map(|open| format!(", which has {} connections", open.count)).unwrap_or_default();
        let own = std::process::id();
        // for whoever has asked for it
        say(format_args!(
            "upgrade: process {own} serves in place of process {process} (version {version}){has}"
        ));
        let _ = stderr::lead_to(&self.standard_error);
    }

    /// Tells the operator what stages cannot go on with, though the other server had it.
    pub fn announce_lost(&self) {
        let count = self.handed.drained.len();
        if count > 0 {
            say(format_args!(
                "upgrade: upstreams that were taken out: {count} are asked again, because stages take no commands \
                 about upstreams"
            ));
        }
    }

    /// Whether a server with this gate can take the place.
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

    /// Its gate, once.
    pub fn gate(&mut self) -> Option<(HandedKernel, Vec<OwnedFd>)> {
        self.gate.take()
    }

    /// Its table in the firewall.
    pub fn table(&self) -> Option<&str> {
        self.handed.firewall.as_deref()
    }

    /// What it counts together with others, once.
    pub fn counts(&mut self) -> Option<(HandedCounts, OwnedFd)> {
        self.counts.take()
    }

    /// Its control socket, once.
    pub fn control(&mut self) -> Option<(PathBuf, OwnedFd)> {
        Some((self.handed.control.clone(), self.control.take()?))
    }
}

/// Why nothing was handed.
#[derive(Debug)]
pub enum TakeOverError {
    /// The server does not want to.
    Refused {
        /// Why, in its own words.
        why: String,
    },
    /// The server belongs to a service of systemd, and this process does not.
    OutsideService {
        /// What systemd calls the service, if that is known.
        service: Option<String>,
    },
    /// Another user has started it, with whose rights the one in its place is to begin.
    OtherUser {
        /// What that user is called, or the number.
        user: String,
        /// The same of this process.
        own: String,
    },
    /// Its gate answers SYNs, and this server has none that goes on with that.
    StillAnswers,
    /// It is not there, or does not answer.
    Unreachable {
        /// Where it was asked.
        socket: PathBuf,
        /// What the kernel said.
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

/// What a user is called; the number of one that the machine does not know.
fn named(user: u32) -> String {
    let known = privileges::name_and_home(user).ok().flatten();
    known.map_or_else(|| user.to_string(), |(name, _)| name)
}

impl Predecessor {
    /// Asks the server at this control socket for what it has.
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
        // a service manager that does not find this process in the service would end all of that
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

    /// Says that clients are served here: from now on it accepts none, or, if there are addresses that are `left`, none
    /// once what is on its way there has arrived. What it knew last is the answer; of one that has ended
    /// meanwhile there is none.
    ///
    /// # Errors
    /// When it keeps its place after all, or is there and does not answer.
    pub fn replace(&mut self, new: &NewServer) -> io::Result<LastWords> {
        let line = format!("serves {}\n", serde_json::to_string(new)?);
        self.stream.set_read_timeout(Some(LONGEST))?;
        let said = self.stream.write_all(line.as_bytes());
        let words = said.and_then(|()| handed::receive::<LastWords>(&self.stream));
        match words {
            Ok(LastWords { keeps_place: Some(why), .. }) => Err(io::Error::other(why)),
            Ok(words) => Ok(words),
            // its descriptors are closed a moment before it is gone
            Err(error) if self.outlives(GONE) => Err(error),
            Err(_) => Ok(LastWords::default()),
        }
    }

    /// Waits until it accepts no more, which it says, or has ended. Whoever says nothing is not waited for.
    pub fn wait_until_left(&self) {
        let _ = self.stream.set_read_timeout(Some(PATIENCE));
        let _ = (&self.stream).read_exact(&mut [0; successor::LEFT.len()]);
    }

    /// Whether it waits for this one yet.
    ///
    /// # Errors
    /// When it has given up, or ended.
    pub fn check(&self) -> io::Result<()> {
        self.stream.set_nonblocking(true)?;
        let read = (&self.stream).read(&mut [0]);
        self.stream.set_nonblocking(false)?;
        match read {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            // it says nothing before it is told
            _ if self.outlives(GONE) => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    /// Whether it is there for as long yet.
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

    /// One that nobody has waited for has ended all the same.
    fn is_there(&self) -> bool {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process));
        let has_ended = |line: &str| line.starts_with("State:\tZ") || line.starts_with("State:\tX");
        status.is_ok_and(|status| !status.lines().any(has_ended))
    }

    /// It serves what it has, from now on, and has these connections, if it has said which.
    pub fn retire(self, open: Option<OpenConnections>) -> EarlierServer {
        EarlierServer::new(self.process, open.unwrap_or_default(), self.stream)
    }
}

/// A server that was replaced, and serves what it has to the end.
#[derive(Debug)]
pub struct EarlierServer {
    /// The number of its process.
    pub process: u32,
    /// Connections that it has, as it has said last.
    pub open: OpenConnections,
    stream: UnixStream,
    /// The thread that listens ends with this: another process may read what comes.
    listens: Arc<()>,
}

impl EarlierServer {
    fn new(process: u32, open: OpenConnections, stream: UnixStream) -> EarlierServer {
        EarlierServer { process, open, stream, listens: Arc::default() }
    }

    /// Its log files were moved.
    pub fn reopen_logs(&self) {
        self.say("reopen");
    }

    /// What it has comes to its end now.
    pub fn end(&self) {
        self.say("end");
    }

    /// What it has is cut.
    pub fn stop(&self) {
        self.say("stop");
    }

    fn say(&self, what: &str) {
        // it may have ended
        let _ = (&self.stream).write_all(format!("{what}\n").as_bytes());
    }

    /// Its end of the connection, for the process that takes the place of this one.
    ///
    /// # Errors
    /// Lack of descriptors.
    pub fn hand(&self) -> io::Result<OwnedFd> {
        Ok(self.stream.try_clone()?.into())
    }

    /// Tells `tell`, on a thread of its own, which connections it has, each time it says so, and at last `None`: it
    /// has ended. No more is told once this is dropped.
    ///
    /// # Errors
    /// Lack of threads or descriptors.
    pub fn listen(
        &self,
        tell: impl Fn(Option<OpenConnections>) + Send + 'static,
    ) -> io::Result<()> {
        let stream = self.stream.try_clone()?;
        // it speaks each second, and is silent while it is stopped
        stream.set_read_timeout(None)?;
        let listens = Arc::downgrade(&self.listens);
        let listen = move || {
            let mut lines = BufReader::new(stream);
            let mut line = String::new();
            // who says more in one line says nothing
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
