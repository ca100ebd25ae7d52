//! The successor's end: it asks for the place of a running server, takes what that hands it, says when it serves,
//! and hears how many connections the other still has.

use super::handed::{self, Handed, LastWords, NewServer};
use super::service::{self, ServiceUnit};
use super::starting::StartingCommand;
use crate::control_socket::TAKE_OVER;
use crate::listen::Listeners;
use crate::listen::handing::HandedAddress;
use forebay_sys::{descriptors, stderr};
use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How long the other process may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

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
    control: Option<OwnedFd>,
    /// Who has started this process.
    pub command: StartingCommand,
    /// Where it may write the access log.
    pub standard_output: OwnedFd,
    /// Where it tells the operator what happens.
    pub standard_error: OwnedFd,
}

impl Inheritance {
    /// Its listening sockets, once. Standard output leads from now on to where its own does.
    ///
    /// # Errors
    /// What the kernel says of one.
    pub fn take_effect(&mut self) -> io::Result<Listeners> {
        stderr::lead_output_to(&self.standard_output)?;
        let sockets = std::mem::take(&mut self.sockets);
        Listeners::handed(self.handed.sockets.clone(), sockets)
    }
}

impl Inheritance {
    /// The servers before it that have connections yet, oldest first, once.
    pub fn before(&mut self) -> Vec<EarlierServer> {
        std::mem::take(&mut self.before)
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
    /// This one is to have stages.
    Isolated,
    /// The server belongs to a service of systemd, and this process does not.
    OutsideService {
        /// What systemd calls the service, if that is known.
        service: Option<String>,
    },
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
            TakeOverError::Isolated => f.write_str(
                "a server with engine = \"isolated\" cannot take the place of another yet: restart it",
            ),
            TakeOverError::OutsideService { service } => write!(
                f,
                "the running server is {}, and a process beside it would be none of that service: restart it \
                 (systemctl restart)",
                service.as_deref().unwrap_or("watched by a service manager")
            ),
            TakeOverError::Unreachable { socket, error } => {
                write!(f, "the server at {} hands nothing over: {error}", socket.display())
            }
        }
    }
}

impl std::error::Error for TakeOverError {}

impl Predecessor {
    /// Asks the server at this control socket for what it has.
    ///
    /// # Errors
    /// [`TakeOverError`]; the server goes on as before.
    pub fn ask(
        socket: &Path,
        command: StartingCommand,
    ) -> Result<(Predecessor, Inheritance), TakeOverError> {
        Predecessor::asked(socket, command)
            .map_err(|error| TakeOverError::Unreachable { socket: socket.to_owned(), error })?
    }

    fn asked(
        socket: &Path,
        command: StartingCommand,
    ) -> io::Result<Result<(Predecessor, Inheritance), TakeOverError>> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.write_all(TAKE_OVER.as_bytes())?;
        let mut code = [0; 2];
        stream.read_exact(&mut code)?;
        if code != *b"0\n" {
            let mut why = String::new();
            stream.read_to_string(&mut why)?;
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
        let mut sockets =
            descriptors::take(&stream, handed.sockets.len() + handed.before.len() + 3)?;
        let standard_error = sockets.pop().ok_or(io::ErrorKind::UnexpectedEof)?;
        let standard_output = sockets.pop().ok_or(io::ErrorKind::UnexpectedEof)?;
        let control = sockets.pop();
        let lines = sockets.split_off(handed.sockets.len().min(sockets.len()));
        let before = handed.before.iter().zip(lines).map(|((process, open), line)| {
            EarlierServer::new(*process, *open, UnixStream::from(line))
        });
        let before = before.collect();
        let predecessor = Predecessor { stream, process: handed.process };
        Ok(Ok((
            predecessor,
            Inheritance {
                handed,
                sockets,
                before,
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
    pub fn replace(&mut self, left: Vec<HandedAddress>) -> io::Result<LastWords> {
        let new = NewServer { process: std::process::id(), left };
        let line = format!("serves {}\n", serde_json::to_string(&new)?);
        self.stream.set_read_timeout(Some(LONGEST))?;
        let said = self.stream.write_all(line.as_bytes());
        let words = said.and_then(|()| handed::receive::<LastWords>(&self.stream));
        match words {
            Ok(LastWords { keeps_place: Some(why), .. }) => Err(io::Error::other(why)),
            Ok(words) => Ok(words),
            Err(error) if self.is_there() => Err(error),
            Err(_) => Ok(LastWords::default()),
        }
    }

    fn is_there(&self) -> bool {
        Path::new("/proc").join(self.process.to_string()).exists()
    }

    /// It serves what it has, from now on, and has so many connections.
    pub fn retire(self, open: usize) -> EarlierServer {
        EarlierServer::new(self.process, open, self.stream)
    }
}

/// A server that was replaced, and serves what it has to the end.
#[derive(Debug)]
pub struct EarlierServer {
    /// The number of its process.
    pub process: u32,
    /// Connections that it has, as it has said last.
    pub open: usize,
    stream: UnixStream,
    /// The thread that listens ends with this: another process may read what comes.
    listens: Arc<()>,
}

impl EarlierServer {
    fn new(process: u32, open: usize, stream: UnixStream) -> EarlierServer {
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

    /// Tells `tell`, on a thread of its own, how many connections it has, each time it says so, and at last `None`: it
    /// has ended. No more is told once this is dropped.
    ///
    /// # Errors
    /// Lack of threads or descriptors.
    pub fn listen(&self, tell: impl Fn(Option<usize>) + Send + 'static) -> io::Result<()> {
        let stream = self.stream.try_clone()?;
        // it speaks each second, and is silent while it is stopped
        stream.set_read_timeout(None)?;
        let listens = Arc::downgrade(&self.listens);
        let listen = move || {
            for line in BufReader::new(stream).lines().map_while(Result::ok) {
                if listens.strong_count() == 0 {
                    return;
                }
                if let Ok(open) = line.parse() {
                    tell(Some(open));
                }
            }
            if listens.strong_count() > 0 {
                tell(None);
            }
        };
        std::thread::Builder::new().name("predecessor".to_owned()).spawn(listen).map(drop)
    }
}

/// What a predecessor is told while it serves what it has.
#[derive(Debug)]
pub struct PredecessorLine(UnixStream);

impl PredecessorLine {
    /// Its log files were moved.
    pub fn reopen_logs(&self) {
        self.say("reopen");
    }

    /// This process is replaced, too.
    pub fn is_second(&self) {
        self.say("another");
    }

    /// What it has comes to its end now.
    pub fn end(&self) {
        self.say("end");
    }

    fn say(&self, what: &str) {
        // it may have ended
        let _ = writeln!(&self.0, "{what}");
    }
}
