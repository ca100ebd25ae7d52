//! Another process in the place of the supervisor, and a supervisor in the place of another process; see
//! [`upgrade`](crate::upgrade).
//!
//! The new supervisor has stages of its own. Those of the one before finish what they have, as after a reload, and it
//! ends with the last of them. Either may be a server without stages.

use super::generation::Generation;
use super::place::Place;
use super::supervisor::{Supervisor, SupervisorEvent};
use crate::command::CommandAnswer;
use crate::control_socket::ControlSocket;
use crate::listen::ARRIVAL;
use crate::upgrade::handed::{Handed, LastWords, NewServer};
use crate::upgrade::predecessor::{EarlierServer, Inheritance, Predecessor};
use crate::upgrade::successor::{self, SuccessorSays};
use crossbeam_channel::{Sender as Reply, bounded};
use forebay_config::ListenEndpoint;
use forebay_sys::privileges;
use forebay_sys::stderr::say;
use signal_hook::consts::SIGTERM;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Instant;

/// Servers that were replaced and have clients yet, at most: the oldest beyond that ends what it has.
const MOST_EARLIER: usize = 2;

impl Supervisor {
    /// Hands what there is to a process that wants the place of this one, if it may have it.
    pub(super) fn hand_to(&mut self, stream: UnixStream, reply: &Reply<CommandAnswer>) {
        let answer = match self.keeps_place() {
            Some(why) => CommandAnswer::failed(why),
            None => match self.begin_to_hand(stream) {
                Ok(()) => {
                    self.place = Place::Handing;
                    CommandAnswer { code: 0, text: String::new() }
                }
                Err(error) => CommandAnswer::failed(error),
            },
        };
        // the other process may have gone
        let _ = reply.send(answer);
    }

    /// What is asked around an upgrade that the service manager is to carry out.
    pub(super) fn answer_upgrade(&mut self, question: &str) -> CommandAnswer {
        let (has_manager, keeps_place) = (self.notifier.hand().is_some(), self.keeps_place());
        self.expected.answer(question, has_manager, keeps_place)
    }

    /// Why no other process can have the place of this one.
    fn keeps_place(&self) -> Option<&'static str> {
        match self.place {
            _ if self.ends_since.is_some() => Some("it is stopping"),
            Place::Left(_) => Some("it is stopping"),
            Place::Handing => Some("another process is about to take its place"),
            _ if self.rising.is_some() => Some("a reload is under way"),
            Place::Wanted | Place::Own => None,
        }
    }

    fn begin_to_hand(&self, stream: UnixStream) -> io::Result<()> {
        let (sockets, mut descriptors) = self.listeners.hand()?;
        // it came by this socket
        let control = self.control.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let (control, descriptor) = control.hand()?;
        for earlier in &self.earlier {
            descriptors.push(earlier.hand()?);
        }
        descriptors.push(descriptor);
        descriptors.push(io::stdout().as_fd().try_clone_to_owned()?);
        descriptors.push(io::stderr().as_fd().try_clone_to_owned()?);
        let handed = Handed {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            process: std::process::id(),
            sockets,
            before: self.earlier.iter().map(|earlier| (earlier.process, earlier.open)).collect(),
            control,
            notify: self.notifier.hand(),
            ..Handed::default()
        };
        let to_loop = self.tell.clone();
        let tell = move |said| {
            let (words, told) = bounded(1);
            to_loop.send(SupervisorEvent::Successor(said, words)).ok()?;
            told.recv().ok()
        };
        let to_loop = self.tell.clone();
        let serve = move || {
            // its stages count their connections
            if let Err(error) = successor::serve(stream, &handed, descriptors, || 0, tell) {
                let _ = to_loop.send(SupervisorEvent::NoSuccessor(error));
            }
        };
        std::thread::Builder::new().name("successor".to_owned()).spawn(serve).map(drop)
    }

    /// The process that was to take the place of this one has ended before it served.
    pub(super) fn keep_place(&mut self, error: &io::Error) {
        self.place = Place::Own;
        if self.ends_since.is_none() {
            say(format_args!(
                "upgrade: the other process has not come to serve ({error}): nothing has changed"
            ));
        }
    }

    /// Does what a successor says.
    pub(super) fn hear_successor(&mut self, said: SuccessorSays, words: &Reply<LastWords>) {
        match said {
            SuccessorSays::Serves(_) if self.ends_since.is_some() => {
                let keeps_place = Some("it was told to stop".to_owned());
                let _ = words.send(LastWords { keeps_place, ..LastWords::default() });
            }
            SuccessorSays::Serves(_) => {
                let _ = words.send(LastWords::default());
            }
            SuccessorSays::WasTold(new) => self.be_succeeded(&new),
            SuccessorSays::ReopenLogs => self.leaving.iter().for_each(Generation::reopen_logs),
            SuccessorSays::Stop => {
                say(format_args!("upgrade: the server that runs has been stopped: stopping now"));
                self.leaving.iter_mut().for_each(|it| it.end_at_once(SIGTERM));
            }
            SuccessorSays::End if self.ends_since.is_some() => {}
            SuccessorSays::End => {
                say(format_args!("upgrade: others were started since: draining"));
                self.end(SIGTERM);
            }
        }
    }

    /// Another process has the clients that come from now on, and what is said to the service manager.
    fn be_succeeded(&mut self, NewServer { process, left, takes_control, .. }: &NewServer) {
        // before it speaks to the service manager
        self.notifier.main_is(*process);
        self.notifier.close();
        if let Some(socket) = &mut self.control {
            socket.leave(*takes_control);
        }
        self.listeners.hand_over(left);
        // the other process hears of them
        self.earlier.clear();
        let now = Instant::now();
        self.place = Place::Left(if left.is_empty() { now } else { now + ARRIVAL });
        say(format_args!(
            "upgrade: process {process} serves from now on; the stages finish what they have"
        ));
    }

    /// When the stages leave what comes to the successor's.
    pub(super) fn leaves_at(&self) -> Option<Instant> {
        match self.place {
            Place::Left(at) if self.serving.is_some() => Some(at),
            _ => None,
        }
    }

    /// The stages finish what they have, and this process ends with them.
    pub(super) fn leave_clients(&mut self) {
        if let Some(mut generation) = self.serving.take() {
            generation.be_replaced();
            self.leaving.push(generation);
        }
    }

    /// Takes the place of a server that runs: the stages serve. From then on nothing is an error: there is no other.
    ///
    /// # Errors
    /// When the other keeps its place.
    pub(super) fn succeed(
        &mut self,
        mut predecessor: Predecessor,
        mut inheritance: Inheritance,
        endpoints: &[ListenEndpoint],
    ) -> io::Result<()> {
        let agrees = inheritance.command.agrees();
        agrees.map_err(|error| {
            io::Error::other(format!("the command that has started it: {error}"))
        })?;
        let wanted: Vec<_> = endpoints.iter().map(|endpoint| endpoint.listen.clone()).collect();
        let left = self.listeners.unnamed(&wanted);
        let has_left = !left.is_empty();
        let process = std::process::id();
        let takes_control = self.control.as_ref().is_some_and(ControlSocket::is_lent);
        let new = NewServer { process, left, takes_control, ..NewServer::default() };
        let LastWords { open, .. } = predecessor.replace(&new)?;
        predecessor.wait_until_left();
        self.place = Place::Own;
        self.listeners.own(&wanted);
        // a stage that was taken over may add none to them
        let (user, group) = privileges::current();
        let _ = self.listeners.give(user, group);
        if has_left {
            self.listeners.leave(&wanted);
            self.closes_at = Some(Instant::now() + 2 * ARRIVAL);
        }
        if let Some(socket) = &mut self.control {
            socket.take_place();
        }
        inheritance.announce(open);
        self.notifier.ready("the stages serve");
        if self.notifier.interval().is_some() {
            // nobody knows when the server before has said so last
            self.notifier.alive();
        }
        self.earlier = inheritance.before();
        self.earlier.push(predecessor.retire(open));
        let most = self.earlier.len().saturating_sub(MOST_EARLIER);
        self.earlier.iter().take(most).for_each(EarlierServer::end);
        for earlier in &self.earlier {
            let (process, to_loop) = (earlier.process, self.tell.clone());
            let tell = move |open| drop(to_loop.send(SupervisorEvent::EarlierHas(process, open)));
            if let Err(error) = earlier.listen(tell) {
                say(format_args!(
                    "upgrade: whether process {process} has ended is not heard: {error}"
                ));
            }
        }
        Ok(())
    }

    /// A server that was replaced has said how many connections it has; `None` if it has ended.
    pub(super) fn hear_of_earlier(&mut self, process: u32, open: Option<usize>) {
        match open {
            Some(open) => {
                let known = self.earlier.iter_mut().find(|earlier| earlier.process == process);
                known.into_iter().for_each(|earlier| earlier.open = open);
            }
            None => {
                self.earlier.retain(|earlier| earlier.process != process);
                say(format_args!("upgrade: process {process}, which was replaced, has ended"));
            }
        }
    }
}
