//! Commands that receive answers. The supervisor passes them on to receive's control socket, which
//! is in the directory of the stages and open only to the user who started the server.
//!
//! A program that stays has a connection of its own to receive ([`Sessions`]). The connection ends
//! with the process that holds the program's rules, so that the program states its rules anew to
//! the next one.

use super::changes;
use crate::command::CommandAnswer;
use crate::control_socket;
use crossbeam_channel::Sender;
use forebay_config::Role;
use forebay_sys::unix;
use std::io;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

/// The name of receive's control socket in the directory of the stages.
const SOCKET: &str = "control.sock";

/// The largest number of programs that stay at the same time; receive has a lower limit of its own,
/// and answers so.
const MOST_SESSIONS: usize = 16;

/// The answer of receive to a command.
pub(super) struct RelayedAnswer {
    pub(super) answer: CommandAnswer,
    /// `Some` for a command that changes something; inside, the changes so far if it succeeded.
    pub(super) change: Option<Option<String>>,
    /// The generation that was asked.
    pub(super) generation: u64,
    pub(super) reply: Sender<CommandAnswer>,
}

/// The control socket of receive.
pub(super) fn socket(links: &Path) -> PathBuf {
    links.join(SOCKET)
}

/// The control socket of a process of any stage.
pub(super) fn socket_of(links: &Path, role: Role, instance: u64) -> PathBuf {
    match role {
        Role::Receive => socket(links),
        Role::Process | Role::Respond => links.join(format!("{role}-{instance}.{SOCKET}")),
    }
}

/// Whether receive answers this command.
pub(super) fn is_for_receive(command: &str) -> bool {
    ["policy ", "policy\n", "why ", "gate "].iter().any(|begin| command.starts_with(begin))
}

/// Whether this command changes something if it succeeds.
pub(super) fn changes(command: &str) -> bool {
    ["policy set", "policy rule", "policy ban\n", "policy unban", changes::ASKED_BY]
        .iter()
        .any(|begin| command.starts_with(begin))
}

/// Asks receive on a thread of its own. `tell` gets its answer and, if this command changes
/// something, the changes so far.
///
/// # Errors
/// Lack of threads.
pub(super) fn ask(
    socket: PathBuf,
    command: String,
    tell: impl FnOnce(CommandAnswer, Option<String>) + Send + 'static,
) -> io::Result<()> {
    let ask = move || {
        let answer = control_socket::ask(&socket, &command).unwrap_or_else(CommandAnswer::failed);
        let changed = answer.code == 0 && changes(&command);
        let changed = changed.then(|| changed_by_now(&socket));
        let answer = match &changed {
            Some(None) => CommandAnswer::failed(
                "receive has ended before it was known what has changed: ask again",
            ),
            _ => answer,
        };
        tell(answer, changed.flatten());
    };
    thread::Builder::new().name("relay".to_owned()).spawn(ask).map(drop)
}

/// Asks receive for the changes so far.
pub(super) fn changed_by_now(socket: &Path) -> Option<String> {
    let answer = control_socket::ask(socket, changes::ASKED_BY).ok()?;
    (answer.code == 0).then_some(answer.text)
}

/// Connections of programs that stay, each with its generation of stages.
#[derive(Clone, Default)]
pub(super) struct Sessions(Arc<Mutex<SessionList>>);

#[derive(Default)]
struct SessionList {
    numbered: u64,
    /// Number, generation, and the program's end.
    open: Vec<(u64, u64, UnixStream)>,
}

impl Sessions {
    /// Passes data between a program and the receive of this generation, until one of them ends.
    /// `received` has come from the program already.
    ///
    /// # Errors
    /// When receive does not listen, or threads or descriptors are lacking.
    pub(super) fn relay(
        &self,
        program: UnixStream,
        received: Vec<u8>,
        (generation, socket): (u64, &Path),
    ) -> io::Result<()> {
        let receive = UnixStream::from(unix::connect(socket)?);
        receive.set_nonblocking(false)?;
        program.set_read_timeout(None)?;
        let ends = [program.try_clone()?, receive.try_clone()?];
        let mut list = self.lock();
        if list.open.len() >= MOST_SESSIONS {
            return Err(io::Error::other("as many programs are there as may be"));
        }
        list.numbered += 1;
        let number = list.numbered;
        list.open.push((number, generation, program.try_clone()?));
        drop(list);
        let [mut from_program, mut to_receive] = ends;
        let up = move || {
            let all = io::Write::write_all(&mut to_receive, &received);
            let _ = all.and_then(|()| io::copy(&mut from_program, &mut to_receive));
            // receive then removes the program's rules, and closes its end
            let _ = to_receive.shutdown(Shutdown::Write);
        };
        let sessions = self.clone();
        let down = move || {
            let (mut receive, mut program) = (receive, program);
            let _ = io::copy(&mut receive, &mut program);
            let _ = program.shutdown(Shutdown::Both);
            sessions.lock().open.retain(|(known, ..)| *known != number);
        };
        let thread = || thread::Builder::new().name("relay".to_owned());
        let begun = thread().spawn(down).and_then(|_| thread().spawn(up));
        begun.map(drop).inspect_err(|_| self.end(|session, _| session == number))
    }

    /// Ends the connections to earlier generations, whose programs then connect again.
    pub(super) fn leave_before(&self, generation: u64) {
        self.end(|_, known| known < generation);
    }

    /// Ends the connections that `which` selects by number and generation.
    fn end(&self, which: impl Fn(u64, u64) -> bool) {
        let list = self.lock();
        let ended = list.open.iter().filter(|(number, generation, _)| which(*number, *generation));
        ended.for_each(|(.., program)| drop(program.shutdown(Shutdown::Both)));
    }

    fn lock(&self) -> MutexGuard<'_, SessionList> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
