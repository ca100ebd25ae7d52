//! The control socket: how `forebay reload` and its like speak to a running server.
//!
//! One request per connection. The client sends one line, a command and its arguments, and shuts
//! down writing. The server answers with a line that holds the exit code of the command, then text
//! for people until the end. The socket is a Unix socket of mode 0600: who may open it may control
//! the server.

use crate::config;
use crossbeam_channel::{Sender, bounded};
use foldhash::fast::FixedState;
use forebay_sys::process;
use std::fs::{self, Permissions};
use std::hash::BuildHasher;
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Where the control socket of the server that runs `file` is, if it has one. `auto` is in
/// `/run/forebay` for root, else `$XDG_RUNTIME_DIR/forebay`, else a directory of the user's own in
/// the directory for temporary files. The name comes from the file's path, so that several servers
/// have several sockets.
pub fn path(setting: &config::ControlSocket, file: &Path) -> Option<PathBuf> {
    match setting {
        config::ControlSocket::Off => return None,
        config::ControlSocket::At(path) => return Some(path.clone()),
        config::ControlSocket::Auto => {}
    }
    let absolute = fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    let hash = FixedState::default().hash_one(absolute.as_os_str());
    let user = process::user();
    let directory = match std::env::var_os("XDG_RUNTIME_DIR") {
        _ if user == 0 => PathBuf::from("/run/forebay"),
        Some(directory) => PathBuf::from(directory).join("forebay"),
        None => std::env::temp_dir().join(format!("forebay-{user}")),
    };
    Some(directory.join(format!("{hash:016x}.sock")))
}

/// Longest request, in bytes.
const MOST_REQUEST_BYTES: u64 = 1024 * 1024;
/// Longest time for a request to arrive and for an answer to be taken.
const PATIENCE: Duration = Duration::from_secs(5);
/// Requests at the same time; more are told to come back.
const MOST_AT_ONCE: usize = 16;

/// What was asked, and where the answer goes.
#[derive(Debug)]
pub struct Asked {
    /// The command.
    pub command: String,
    /// Takes one answer.
    pub reply: Sender<Answer>,
}

/// What a command came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The exit code for who asked.
    pub code: u8,
    /// What happened, in lines.
    pub text: String,
}

impl Answer {
    /// What was asked for is not known.
    pub fn unknown(command: &str) -> Answer {
        Answer { code: 2, text: format!("no command is called {command:?}\n") }
    }
}

/// The open socket. Its file goes when this is dropped.
#[derive(Debug)]
pub struct ControlSocket {
    path: PathBuf,
    /// Device and inode of its file.
    identity: (u64, u64),
    listener: Option<UnixListener>,
}

impl ControlSocket {
    /// Listens at `path`; what is asked waits until [`serve`](ControlSocket::serve). The directory is
    /// made if it is missing.
    ///
    /// # Errors
    /// When the path cannot be used, or another server listens there.
    pub fn open(path: &Path) -> io::Result<Self> {
        if let Some(directory) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            fs::create_dir_all(directory)?;
            // in /tmp somebody may have made it before us, and could put a socket of his own there
            let owner = fs::metadata(directory)?.uid();
            if owner != 0 && owner != process::user() {
                return Err(io::ErrorKind::PermissionDenied.into());
            }
        }
        remove_stale(path)?;
        let listener = UnixListener::bind(path)?;
        fs::set_permissions(path, Permissions::from_mode(0o600))?;
        let made = fs::symlink_metadata(path)?;
        let identity = (made.dev(), made.ino());
        Ok(ControlSocket { path: path.to_owned(), identity, listener: Some(listener) })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Gives what is asked to `tell`, on a thread of its own.
    ///
    /// # Errors
    /// Lack of threads.
    pub fn serve(&mut self, tell: impl Fn(Asked) + Clone + Send + 'static) -> io::Result<()> {
        if let Some(listener) = self.listener.take() {
            let thread = std::thread::Builder::new().name("control".to_owned());
            thread.spawn(move || listen(&listener, &tell))?;
        }
        Ok(())
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        // after a drop of privileges the directory may not be ours any more; a later server
        // removes what nobody listens at
        let is_ours = |found: fs::Metadata| (found.dev(), found.ino()) == self.identity;
        if fs::symlink_metadata(&self.path).is_ok_and(is_ours) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// A socket file that nobody listens at is left over from a server that was killed.
fn remove_stale(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => match UnixStream::connect(path) {
            Ok(_) => Err(io::ErrorKind::AddrInUse.into()),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
            // a socket of another kind is somebody's
            Err(_) => Err(io::ErrorKind::AlreadyExists.into()),
        },
        Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
        Err(_) => Ok(()),
    }
}

fn listen(listener: &UnixListener, tell: &(impl Fn(Asked) + Clone + Send + 'static)) {
    let busy = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming() {
        let Ok(stream) = stream else {
            // no descriptor: somebody will close one
            std::thread::sleep(Duration::from_millis(100));
            continue;
        };
        busy.fetch_add(1, Ordering::Relaxed);
        let seat = Seat(Arc::clone(&busy));
        if busy.load(Ordering::Relaxed) > MOST_AT_ONCE {
            let _ = (&stream).write_all(b"1\nthe server has too many commands to answer\n");
            continue;
        }
        let tell = tell.clone();
        let serve = move || {
            let _seat = seat;
            // who went away needs no answer
            let _ = serve(stream, &tell);
        };
        let _ = std::thread::Builder::new().name("control".to_owned()).spawn(serve);
    }
}

/// A command that is being answered. Dropped, also if no thread can be had for it, it counts no more.
struct Seat(Arc<AtomicUsize>);

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn serve(mut stream: UnixStream, tell: &impl Fn(Asked)) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut request = Vec::new();
    (&stream).take(MOST_REQUEST_BYTES).read_to_end(&mut request)?;
    let command = String::from_utf8_lossy(&request).trim_end().to_owned();
    let (reply, answers) = bounded(1);
    tell(Asked { command, reply });
    let stopping = || Answer { code: 1, text: "the server has stopped\n".to_owned() };
    let Answer { code, text } = answers.recv().unwrap_or_else(|_| stopping());
    write!(stream, "{code}\n{text}")
}

/// Asks the server that listens at `path`, and waits for its answer.
///
/// # Errors
/// When nobody listens there, or the answer is none.
pub fn ask(path: &Path, command: &str) -> io::Result<Answer> {
    let mut stream = UnixStream::connect(path)?;
    writeln!(stream, "{command}")?;
    stream.shutdown(std::net::Shutdown::Write)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (code, text) = answer.split_once('\n').ok_or(io::ErrorKind::UnexpectedEof)?;
    let code = code.parse().map_err(|_| io::ErrorKind::InvalidData)?;
    Ok(Answer { code, text: text.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_answered_and_a_stale_socket_replaced() {
        let directory =
            std::env::temp_dir().join(format!("forebay-control-{}", std::process::id()));
        let path = directory.join("control.sock");
        let echo = |asked: Asked| {
            let text = format!("you said {}\n", asked.command);
            asked.reply.send(Answer { code: 7, text }).unwrap();
        };
        let mut socket = ControlSocket::open(&path).unwrap();
        socket.serve(echo).unwrap();
        let answer = ask(&path, "reload now").unwrap();
        assert_eq!(answer, Answer { code: 7, text: "you said reload now\n".to_owned() });
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let taken = ControlSocket::open(&path).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
        drop(socket);
        assert!(!path.exists());
        drop(UnixListener::bind(&path).unwrap());
        drop(ControlSocket::open(&path).unwrap());
        fs::remove_dir_all(directory).unwrap();
    }
}
