//! The control socket, over which `forebay reload` and similar commands speak to a running server.
//! This module is the server's end; `ask` is the client's, `unanswered` says why a command has no
//! answer, and `socket_path` knows the paths of sockets.
//!
//! Each connection carries one request. The client sends one line, a command and its arguments, and
//! shuts down writing. The server answers with a line that holds the exit code of the command, then
//! text for people until the end. The socket is a Unix socket of mode 0600: a process that may open
//! it may control the server. Each command has one deadline for its whole request.
//!
//! A connection whose first byte is `{` belongs to a program that stays (`session`): it speaks
//! lines of JSON, and the rules that it adds are removed when it leaves.

mod ask;
mod deadline_stream;
pub(crate) mod request;
mod session;
mod socket_path;
mod unanswered;

pub use ask::ask;
pub(crate) use ask::ask_within;
pub use socket_path::{beside, find};
pub use unanswered::{UnansweredCommand, WhyUnanswered};

use crate::command::{CommandAnswer, CommandKind, CommandRequest};
use crossbeam_channel::{RecvTimeoutError, bounded};
use deadline_stream::{DeadlineStream, is_late};
use forebay_config::{Config, ControlSocketChoice};
use forebay_sys::inherited::{self, InheritedAddress};
use forebay_sys::poll::{self, PollInterest};
use forebay_sys::process;
use forebay_sys::unix::{self, SocketFile};
use forebay_sys::unix_address::UnixAddress;
use forebay_sys::wait_budget::WaitBudget;
use session::Owners;
use socket_path::{link, path, remove_dead, unlink};
use std::fmt::{self, Display};
use std::fs;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Opens the control socket of the server that runs `file` with this configuration, if it has one.
/// While another process has the socket's directory locked, the call waits within the budget of the
/// start.
///
/// # Errors
/// When the socket cannot be used.
pub(crate) fn open(
    config: &Config,
    file: Option<&Path>,
    wait: &mut WaitBudget,
) -> Result<Option<ControlSocket>, ControlSocketError> {
    let Some(file) = file else { return Ok(None) };
    let Some(path) = path(&config.control.socket, file) else { return Ok(None) };
    let is_auto = config.control.socket == ControlSocketChoice::Auto;
    if is_auto {
        remove_dead(&path, wait);
    }
    let opened = ControlSocket::open(&path, wait);
    let mut socket = opened.map_err(|error| ControlSocketError { path, is_auto, error })?;
    socket.link = is_auto.then(|| link(&socket.path, file)).flatten();
    Ok(Some(socket))
}

/// Takes over the socket of the server whose place this process takes, if the path stays the same;
/// otherwise as [`open`]. The socket belongs to this process once it has [taken its
/// place](ControlSocket::take_place).
///
/// # Errors
/// As [`open`].
pub(crate) fn open_handed(
    config: &Config,
    file: Option<&Path>,
    handed: Option<(PathBuf, OwnedFd)>,
    wait: &mut WaitBudget,
) -> Result<Option<ControlSocket>, ControlSocketError> {
    let Some(file) = file else { return Ok(None) };
    let Some(path) = path(&config.control.socket, file) else { return Ok(None) };
    let is_auto = config.control.socket == ControlSocketChoice::Auto;
    // the socket that was handed over is checked, not trusted: it must listen at the path that it
    // claims
    let listens_there = |at: &PathBuf, socket: &OwnedFd| {
        let bound = InheritedAddress::Unix(UnixAddress::Path(at.clone()));
        *at == path && inherited::bound(socket).is_ok_and(|found| found == bound)
    };
    let handed = handed.filter(|(at, socket)| listens_there(at, socket));
    let opened = match handed {
        Some((path, socket)) => {
            let file = SocketFile::lent(&path);
            ControlSocket::new(path, UnixListener::from(socket), file)
        }
        None => ControlSocket::open(&path, wait),
    };
    let mut socket = opened.map_err(|error| ControlSocketError { path, is_auto, error })?;
    socket.named = is_auto.then(|| file.to_owned());
    Ok(Some(socket))
}

/// The reason why the control socket cannot be used.
#[derive(Debug)]
pub struct ControlSocketError {
    /// The path where the socket should be.
    pub path: PathBuf,
    /// Whether the path was derived from that of the configuration file
    /// (`control.socket = "auto"`).
    pub is_auto: bool,
    /// The kernel's error.
    pub error: io::Error,
}

impl Display for ControlSocketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ControlSocketError { path, is_auto, error } = self;
        write!(f, "cannot listen for commands at {}: {error}", path.display())?;
        f.write_str(match error.kind() {
            io::ErrorKind::AddrInUse => taken(*is_auto),
            io::ErrorKind::AlreadyExists => "; there is a file with this name",
            _ => "",
        })
    }
}

impl std::error::Error for ControlSocketError {}

/// The part of the message that says which server has a control socket that is taken, and what
/// helps.
fn taken(is_auto: bool) -> &'static str {
    if is_auto {
        "; a server that runs this configuration file listens there: stop it, or have it take over \
         what the file says (forebay reload)"
    } else {
        "; another server listens there: stop it, or give this one a control.socket of its own"
    }
}

/// The request of a process that wants to take the server's place; the process keeps the connection
/// afterwards.
pub(crate) const TAKE_OVER: &str = "take over\n";
/// The longest request, in bytes.
const MOST_REQUEST_BYTES: usize = 1024 * 1024;
/// The longest time for a request to arrive, and for the client to take the answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest wait for the server to carry out a command: a reload may have slow disks to read.
const LONGEST_WORK: Duration = Duration::from_secs(60);
/// The largest number of requests at the same time; the clients of others must try again.
const MOST_AT_ONCE: usize = 16;
/// The longest single wait of the accepting thread.
const LONGEST_WAIT_MS: u64 = 60_000;
/// The listen backlog.
const MOST_WAITING: i32 = 128;
/// The longest time for the request of a client that is turned away: the next clients wait
/// meanwhile.
const PATIENCE_WHEN_BUSY: Duration = Duration::from_millis(250);

/// How long the server waits for clients.
#[derive(Clone, Copy, Debug)]
struct ClientPatience {
    /// The wait for a command: [`PATIENCE`].
    command: Duration,
    /// The wait for a client that is turned away: [`PATIENCE_WHEN_BUSY`].
    when_busy: Duration,
}

/// The open control socket. Its file is removed when this is dropped.
#[derive(Debug)]
pub struct ControlSocket {
    path: PathBuf,
    /// The link to the socket, where the configuration file was named by another path.
    link: Option<PathBuf>,
    /// The configuration file for whose other name a link is made once this process has taken its
    /// place.
    named: Option<PathBuf>,
    file: SocketFile,
    listener: Option<UnixListener>,
    /// Closing this end stops the accepting thread.
    accepts: Option<UnixStream>,
    patience: ClientPatience,
}

impl ControlSocket {
    /// Listens at `path`; requests wait until [`serve`](ControlSocket::serve). A missing directory
    /// is created.
    ///
    /// # Errors
    /// When the path cannot be used, or another server listens there.
    pub fn open(path: &Path, wait: &mut WaitBudget) -> io::Result<Self> {
        if let Some(directory) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            fs::create_dir_all(directory)?;
            // in /tmp another user may have made the directory first, and could put a socket of
            // their own there
            let owner = fs::metadata(directory)?.uid();
            if owner != 0 && owner != process::user() {
                return Err(io::ErrorKind::PermissionDenied.into());
            }
        }
        let (socket, file) = unix::listen_private(path, MOST_WAITING, wait)?;
        ControlSocket::new(path.to_owned(), UnixListener::from(socket), file)
    }

    fn new(path: PathBuf, listener: UnixListener, file: SocketFile) -> io::Result<Self> {
        // nonblocking, because another process may accept the connection that poll has reported
        listener.set_nonblocking(true)?;
        let patience = ClientPatience { command: PATIENCE, when_busy: PATIENCE_WHEN_BUSY };
        let listener = Some(listener);
        Ok(ControlSocket { path, link: None, named: None, file, listener, accepts: None, patience })
    }

    /// The path of the socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the socket still belongs to another process.
    pub fn is_lent(&self) -> bool {
        self.file.is_lent()
    }

    /// Duplicates the socket for the process that takes the place of this one.
    ///
    /// # Errors
    /// Lack of descriptors.
    pub fn hand(&self) -> io::Result<(PathBuf, OwnedFd)> {
        let listener = self.listener.as_ref().ok_or(io::ErrorKind::NotFound)?;
        Ok((self.path.clone(), listener.try_clone()?.into()))
    }

    /// Makes this process the owner of the socket.
    pub fn take_place(&mut self) {
        self.file.own();
        // a client without an answer names the process that listens; listening again makes it this
        // one
        if let Some(listener) = &self.listener {
            let _ = unix::listen_again(listener.as_fd(), MOST_WAITING);
        }
        self.link = self.named.take().and_then(|file| link(&self.path, &file));
    }

    /// Stops accepting: commands reach another process from now on, and those under way are
    /// answered. The file stays if it `is_taken`.
    pub fn leave(&mut self, is_taken: bool) {
        self.link = None;
        match is_taken {
            true => self.file.lend(),
            false => self.file.remove(),
        }
        (self.listener, self.accepts) = (None, None);
    }

    /// Accepts requests on a thread of its own, and gives each to `tell`.
    ///
    /// # Errors
    /// Lack of threads.
    pub fn serve(
        &mut self,
        tell: impl Fn(CommandRequest) + Clone + Send + 'static,
    ) -> io::Result<()> {
        self.begin(Some(Owners::default()), tell)
    }

    /// Accepts requests as [`serve`](ControlSocket::serve) does, where another process serves
    /// programs that stay: `tell` is given their connections.
    ///
    /// # Errors
    /// As [`serve`](ControlSocket::serve).
    pub fn serve_commands(
        &mut self,
        tell: impl Fn(CommandRequest) + Clone + Send + 'static,
    ) -> io::Result<()> {
        self.begin(None, tell)
    }

    fn begin(
        &mut self,
        owners: Option<Owners>,
        tell: impl Fn(CommandRequest) + Clone + Send + 'static,
    ) -> io::Result<()> {
        let (accepts, goes_on) = UnixStream::pair()?;
        let listener = self.listener.as_ref().ok_or(io::ErrorKind::NotFound)?.try_clone()?;
        let patience = self.patience;
        let thread = std::thread::Builder::new().name("control".to_owned());
        thread.spawn(move || listen(&listener, &goes_on, patience, owners.as_ref(), &tell))?;
        self.accepts = Some(accepts);
        Ok(())
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        // before the socket's file is removed: while it exists, the link is not that of another
        // server with the same path
        if let Some(link) = &self.link {
            unlink(link, &self.path);
        }
        self.file.remove();
    }
}

/// Accepts until the other end of `goes_on` is closed.
fn listen(
    listener: &UnixListener,
    goes_on: &UnixStream,
    patience: ClientPatience,
    owners: Option<&Owners>,
    tell: &(impl Fn(CommandRequest) + Clone + Send + 'static),
) {
    let busy = Arc::new(AtomicUsize::new(0));
    let waited = [(listener.as_fd(), PollInterest::Read), (goes_on.as_fd(), PollInterest::Read)];
    loop {
        match poll::wait(waited, LONGEST_WAIT_MS) {
            Ok([_, end]) if end.ready => return,
            _ => {}
        }
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(_) => {
                // no descriptor is free: a connection that closes will free one
                std::thread::sleep(Duration::from_millis(100));
                continue;
            }
        };
        busy.fetch_add(1, Ordering::Relaxed);
        let session_slot = SessionSlot(Arc::clone(&busy));
        if busy.load(Ordering::Relaxed) > MOST_AT_ONCE {
            turn_away(stream, patience.when_busy);
            continue;
        }
        let (tell, owners) = (tell.clone(), owners.map(Arc::clone));
        let serve = move || {
            // the client may have gone away
            let _ = serve(stream, patience.command, session_slot, owners.as_ref(), &tell);
        };
        let _ = std::thread::Builder::new().name("control".to_owned()).spawn(serve);
    }
}

/// The slot of a command that is being answered. Dropping it frees the slot, also if no thread
/// could be started.
struct SessionSlot(Arc<AtomicUsize>);

impl Drop for SessionSlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Answers a client that the server has too many commands. The request is read first: closed with
/// unread bytes, the socket would be reset, and the answer lost.
fn turn_away(stream: UnixStream, patience: Duration) {
    let mut line = DeadlineStream::new(stream, patience);
    if matches!(receive(&mut line), Ok(_) | Err(Unheard::Successor)) {
        line.extend(patience);
        // the client may have gone away
        let _ = line.answer(&CommandAnswer::failed("the server has too many commands to answer"));
    }
}

fn serve(
    stream: UnixStream,
    patience: Duration,
    session_slot: SessionSlot,
    owners: Option<&Owners>,
    tell: &impl Fn(CommandRequest),
) -> io::Result<()> {
    let mut line = DeadlineStream::new(stream, patience);
    let asked = match receive(&mut line) {
        Ok(command) => CommandKind::Command(command),
        Err(Unheard::Successor) => CommandKind::TakeOver(line.stream.try_clone()?),
        Err(Unheard::Session(received)) => {
            // a session counts against its own limit, not among commands
            drop(session_slot);
            let Some(owners) = owners else {
                let (asked, reply) = (CommandKind::Session(line.stream, received), bounded(1).0);
                tell(CommandRequest { asked, reply });
                return Ok(());
            };
            return session::serve(line.stream, received, owners, tell);
        }
        Err(Unheard::Gone) => return Ok(()),
        Err(unheard) => {
            line.extend(patience);
            return line.answer(&CommandAnswer::failed(unheard));
        }
    };
    let (reply, answers) = bounded(1);
    let is_successor = matches!(asked, CommandKind::TakeOver(_));
    tell(CommandRequest { asked, reply });
    let answer = answers.recv_timeout(LONGEST_WORK).unwrap_or_else(|error| match error {
        RecvTimeoutError::Disconnected => CommandAnswer::failed("the server has stopped"),
        RecvTimeoutError::Timeout => CommandAnswer::failed(format_args!(
            "the server has not come to an end of this within {} s, and goes on with it",
            LONGEST_WORK.as_secs()
        )),
    });
    if is_successor && answer.code == 0 {
        // the receiver of this command has a duplicate of the connection, and goes on with it
        return Ok(());
    }
    line.extend(patience);
    line.answer(&answer)
}

/// Why no complete request was received.
#[derive(Debug)]
enum Unheard {
    /// The request was not complete in time.
    Late,
    /// The request is longer than any command.
    Long,
    /// The client has closed the connection.
    Gone,
    /// The first bytes from a program that stays, in the place of a command.
    Session(Vec<u8>),
    /// The request of a process that wants to take the place of this one.
    Successor,
}

impl Display for Unheard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unheard::Late => {
                write!(f, "the command did not come to its end within {} s", PATIENCE.as_secs())
            }
            Unheard::Long => write!(f, "a command has at most {MOST_REQUEST_BYTES} bytes"),
            Unheard::Gone => f.write_str("the client went away"),
            Unheard::Session(_) | Unheard::Successor => {
                f.write_str("the server has too many commands to answer")
            }
        }
    }
}

/// Reads a request to its end.
fn receive(line: &mut DeadlineStream) -> Result<String, Unheard> {
    let mut request = Vec::new();
    let mut piece = [0; 4096];
    loop {
        match line.read(&mut piece) {
            Ok(0) => break,
            // the rest is read too, so that the client receives the answer
            Ok(count) if request.len() <= MOST_REQUEST_BYTES => {
                request.extend_from_slice(&piece[..count]);
                if request.starts_with(b"{") {
                    return Err(Unheard::Session(request));
                }
                if request == TAKE_OVER.as_bytes() {
                    return Err(Unheard::Successor);
                }
            }
            Ok(_) => {}
            Err(error) if is_late(&error) => return Err(Unheard::Late),
            Err(_) => return Err(Unheard::Gone),
        }
    }
    match request.len() {
        0..=MOST_REQUEST_BYTES => Ok(String::from_utf8_lossy(&request).trim_end().to_owned()),
        _ => Err(Unheard::Long),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::Shutdown;
    use std::os::unix::fs::PermissionsExt;

    /// A patience long enough for a test's client that gets no core for a while.
    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_question_is_answered_and_a_stale_socket_replaced() {
        let directory =
            std::env::temp_dir().join(format!("forebay-control-{}", std::process::id()));
        let path = directory.join("control.sock");
        let echo = |asked: CommandRequest| {
            let text = format!("you said {:?}\n", asked.asked);
            asked.reply.send(CommandAnswer { code: 7, text }).unwrap();
        };
        let open = || ControlSocket::open(&path, &mut WaitBudget::default());
        let mut socket = open().unwrap();
        socket.serve(echo).unwrap();
        let answer = ask(&path, "reload now").unwrap();
        assert_eq!(
            answer,
            CommandAnswer { code: 7, text: "you said Command(\"reload now\")\n".to_owned() }
        );
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let taken = open().unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
        drop(socket);
        assert!(!path.exists());
        drop(UnixListener::bind(&path).unwrap());
        drop(open().unwrap());
        fs::remove_dir_all(directory).unwrap();
    }

    /// A socket that the configuration names may be that of a server with another file.
    #[test]
    fn whose_socket_is_taken_is_told_which_by_whom_and_what_helps() {
        let process = std::process::id();
        let directory = std::env::temp_dir().join(format!("forebay-control-taken-{process}"));
        let path = directory.join("control.sock");
        let mut config = Config::default();
        config.control.socket = ControlSocketChoice::At(path.clone());
        let start = |file: &str| open(&config, Some(Path::new(file)), &mut WaitBudget::default());
        let _first = start("/etc/a.toml").unwrap();
        let told = start("/etc/b.toml").unwrap_err().to_string();
        let is_taken = format!("cannot listen for commands at {}: address in use", path.display());
        let helps = "stop it, or give this one a control.socket of its own";
        assert_eq!(told, format!("{is_taken}; another server listens there: {helps}"));
        let error = io::ErrorKind::AddrInUse.into();
        let told = ControlSocketError { path, is_auto: true, error }.to_string();
        let whose = format!("{is_taken}; a server that runs this configuration file listens there");
        let helps = "stop it, or have it take over what the file says (forebay reload)";
        assert_eq!(told, format!("{whose}: {helps}"));
        fs::remove_dir_all(directory).unwrap();
    }

    /// A command that comes while the most commands are being answered gets an answer that says so.
    #[test]
    fn who_is_too_many_is_told_so() {
        let process = std::process::id();
        let directory = std::env::temp_dir().join(format!("forebay-control-busy-{process}"));
        fs::create_dir_all(&directory).unwrap();
        let path = directory.join("control.sock");
        let (asked, questions) = crossbeam_channel::unbounded::<CommandRequest>();
        let mut socket = ControlSocket::open(&path, &mut WaitBudget::default()).unwrap();
        socket.patience = ClientPatience { command: LONG, when_busy: LONG };
        socket.serve(move |question| asked.send(question).unwrap()).unwrap();
        let ask_aside = || {
            let path = path.clone();
            std::thread::spawn(move || ask(&path, "reload"))
        };
        let first: Vec<_> = (0..MOST_AT_ONCE).map(|_| ask_aside()).collect();
        let held: Vec<_> = (0..MOST_AT_ONCE).map(|_| questions.recv().unwrap()).collect();
        for _ in 0..20 {
            let answer = ask(&path, &"x".repeat(10_000)).unwrap();
            assert_eq!(answer, CommandAnswer::failed("the server has too many commands to answer"));
        }
        let done = CommandAnswer { code: 0, text: "done\n".to_owned() };
        held.iter().for_each(|asked| asked.reply.send(done.clone()).unwrap());
        for thread in first {
            assert_eq!(thread.join().unwrap().unwrap(), done);
        }
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_request_that_is_too_long_is_no_shorter_one() {
        let (client, server) = UnixStream::pair().unwrap();
        let session_slot = SessionSlot(Arc::new(AtomicUsize::new(1)));
        let tell = |asked| panic!("{asked:?}");
        let told = std::thread::spawn(move || {
            serve(server, LONG, session_slot, Some(&Owners::default()), &tell)
        });
        let mut line = DeadlineStream::new(client, LONG);
        line.write_all(&vec![b'x'; MOST_REQUEST_BYTES + 1]).unwrap();
        line.stream.shutdown(Shutdown::Write).unwrap();
        let mut answer = String::new();
        line.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, "1\na command has at most 1048576 bytes\n");
        told.join().unwrap().unwrap();
    }

    /// Bytes that arrive do not move the deadline.
    #[test]
    fn a_request_has_one_deadline() {
        let (client, server) = UnixStream::pair().unwrap();
        let is_over = Arc::new(AtomicUsize::new(0));
        let over = Arc::clone(&is_over);
        let dribble = std::thread::spawn(move || {
            while over.load(Ordering::Relaxed) == 0 && (&client).write_all(b"x").is_ok() {
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let mut line = DeadlineStream::new(server, Duration::from_millis(100));
        assert!(matches!(receive(&mut line), Err(Unheard::Late)));
        is_over.store(1, Ordering::Relaxed);
        drop(line);
        dribble.join().unwrap();
    }
}
