//! How another process takes the place of the supervisor, and the supervisor that of another
//! process; see [`upgrade`](crate::upgrade).
//!
//! The new supervisor has stages of its own. The stages of the predecessor finish their requests,
//! as after a reload, and the predecessor ends with the last of them. Either may be a server
//! without stages.

use super::changes;
use super::generation::Generation;
use super::place::Place;
use super::supervisor::{Supervisor, SupervisorEvent};
use crate::command::CommandAnswer;
use crate::control_socket::ControlSocket;
use crate::firewall::FirewallKeeper;
use crate::listen::ARRIVAL;
use crate::listen::handing::HandedAddress;
use crate::upgrade::earlier::EarlierServers;
use crate::upgrade::handed::{Handed, LastWords, NewServer, OpenConnections};
use crate::upgrade::predecessor::{Inheritance, Predecessor};
use crate::upgrade::successor::{self, SuccessorEvent, SuccessorSays};
use crossbeam_channel::{Sender as Reply, bounded};
use forebay_config::ListenEndpoint;
use forebay_sys::privileges;
use forebay_sys::stderr::say;
use signal_hook::consts::SIGTERM;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Instant;

impl Supervisor {
    /// Begins to hand everything over to a process that wants the place of this one, if it may have
    /// it.
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

    /// Answers questions about an upgrade that the service manager carries out.
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
            _ if self.changing > 0 => Some("a command that changes something is under way"),
            Place::Wanted | Place::Own => None,
        }
    }

    fn begin_to_hand(&self, stream: UnixStream) -> io::Result<()> {
        let (sockets, mut descriptors) = self.listeners.hand()?;
        // the other process has connected to this socket
        let control = self.control.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let (control, descriptor) = control.hand()?;
        let before = self.earlier.hand(&mut descriptors)?;
        let gate = self.common.gate.hand()?.map(|(text, of_gate)| {
            descriptors.extend(of_gate);
            text
        });
        descriptors.push(descriptor);
        descriptors.push(io::stdout().as_fd().try_clone_to_owned()?);
        descriptors.push(io::stderr().as_fd().try_clone_to_owned()?);
        let handed = Handed {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            process: std::process::id(),
            sockets,
            before,
            gate,
            firewall: self.common.firewall.as_ref().map(|firewall| firewall.table()),
            control,
            // the stages run as another user, but this process keeps its own
            started_by: Some(privileges::current().0),
            notify: self.notifier.hand(),
            ..self.changes.handed()
        };
        let to_loop = self.tell.clone();
        let tell = move |event| to_loop.send(SupervisorEvent::Successor(event)).is_ok();
        self.accepts.store(true, Ordering::Release);
        let accepts = Arc::clone(&self.accepts);
        let is_leaving = move || accepts.load(Ordering::Acquire);
        // the stages count connections, not this process
        successor::start(stream, handed, descriptors, OpenConnections::default, is_leaving, tell)
    }

    /// Handles a message of the successor, or its end.
    pub(super) fn hear_successor(&mut self, event: SuccessorEvent) {
        match event {
            SuccessorEvent::Says(said, words) => self.do_as(said, &words),
            SuccessorEvent::Failed(error) => self.keep_place(&error),
            SuccessorEvent::Ended => {}
        }
    }

    /// Keeps the place, because the process that wanted it has ended before it served.
    fn keep_place(&mut self, error: &io::Error) {
        self.place = Place::Own;
        self.serving.iter().for_each(|serving| self.have_judged_by(serving));
        if self.ends_since.is_none() {
            say(format_args!(
                "upgrade: the other process has not come to serve ({error}): nothing has changed"
            ));
        }
    }

    /// Carries out a message of the successor.
    fn do_as(&mut self, said: SuccessorSays, words: &Reply<LastWords>) {
        match said {
            SuccessorSays::Serves(_) if self.ends_since.is_some() => {
                let keeps_place = Some("it was told to stop".to_owned());
                let _ = words.send(LastWords { keeps_place, ..LastWords::default() });
            }
            SuccessorSays::Serves(new) => {
                let firewall = self.common.firewall.as_ref().filter(|_| new.takes_firewall);
                let dropped = firewall.map(|firewall| firewall.clients()).unwrap_or_default();
                let bans = self.changes.handed().bans;
                let _ = words.send(LastWords { bans, dropped, ..LastWords::default() });
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

    /// Leaves new clients and the messages to the service manager to the successor.
    fn be_succeeded(&mut self, new: &NewServer) {
        let NewServer { process, left, takes_control, takes_firewall, .. } = new;
        // sent before the successor speaks to the service manager
        self.notifier.main_is(*process);
        self.notifier.close();
        if let Some(socket) = &mut self.control {
            socket.leave(*takes_control);
        }
        self.tell_receive_to_leave(left);
        self.listeners.hand_over(left);
        if let Some(firewall) = &self.common.firewall {
            if *takes_firewall { firewall.leave() } else { firewall.end() }
        }
        // the old receive drops it, too, at the leave command
        self.common.gate.let_go();
        // the successor now gets the reports of the earlier servers
        self.earlier.leave();
        let now = Instant::now();
        self.place = Place::Left(if left.is_empty() { now } else { now + ARRIVAL });
        say(format_args!(
            "upgrade: process {process} serves from now on; the stages finish what they have"
        ));
    }

    /// Has receive stop accepting, except connections under way to addresses that are `left`.
    fn tell_receive_to_leave(&mut self, left: &[HandedAddress]) {
        let (reply, answers) = bounded(1);
        let left = serde_json::to_string(left).unwrap_or_default();
        self.relay(format!("{}{left}", changes::LEAVE), reply);
        let accepts = Arc::clone(&self.accepts);
        let hear = move || {
            // a receive that does not answer has ended, or gets a signal
            let _ = answers.recv();
            accepts.store(false, Ordering::Release);
        };
        if thread::Builder::new().name("relay".to_owned()).spawn(hear).is_err() {
            self.accepts.store(false, Ordering::Release);
        }
    }

    /// When the stages leave all new connections to those of the successor.
    pub(super) fn leaves_at(&self) -> Option<Instant> {
        match self.place {
            Place::Left(at) if self.serving.is_some() => Some(at),
            _ => None,
        }
    }

    /// Has the stages finish their requests; this process ends with them.
    pub(super) fn leave_clients(&mut self) {
        if let Some(mut generation) = self.serving.take() {
            generation.be_replaced_by_upgrade();
            self.leaving.push(generation);
        }
    }

    /// Takes the place of a running server: the stages serve, and `keeper` takes over its firewall
    /// table. After that nothing is an error, because no other server is left.
    ///
    /// # Errors
    /// When the other server keeps its place.
    pub(super) fn succeed(
        &mut self,
        mut predecessor: Predecessor,
        mut inheritance: Inheritance,
        endpoints: &[ListenEndpoint],
        keeper: Option<FirewallKeeper>,
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
        let (takes_gate, takes_firewall) = (self.common.gate.is_own(), keeper.is_some());
        let new = NewServer { process, left, takes_gate, takes_control, takes_firewall };
        let LastWords { open, bans, dropped, .. } = predecessor.replace(&new)?;
        predecessor.wait_until_left();
        if let Some(Err(error)) = keeper.map(|keeper| keeper.start_after(dropped, u64::MAX)) {
            say(format_args!("firewall: no thread for it, so that its table expires: {error}"));
        }
        self.place = Place::Own;
        self.serving.iter().for_each(|serving| self.have_judged_by(serving));
        self.listeners.own(&wanted);
        // the kernel lets only sockets of one user share an address: a compromised stage, which
        // runs as another, can add none
        let (user, group) = privileges::current();
        let _ = self.listeners.give(user, group);
        if has_left {
            self.listeners.leave(&wanted);
            self.closes_at = Some(Instant::now() + 2 * ARRIVAL);
        }
        if let Some(socket) = &mut self.control {
            socket.take_place();
        }
        self.restore_bans(&bans);
        inheritance.announce_lost();
        inheritance.announce(open.as_ref());
        self.notifier.ready("the stages serve");
        if self.notifier.interval().is_some() {
            // the time of the predecessor's last keep-alive message is unknown
            self.notifier.alive();
        }
        let to_loop = self.tell.clone();
        let tell =
            move |process, open| drop(to_loop.send(SupervisorEvent::EarlierHas(process, open)));
        self.earlier = EarlierServers::new(inheritance.before(), predecessor.retire(open), tell);
        Ok(())
    }
}
