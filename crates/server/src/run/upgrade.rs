//! How another process takes the place of this one, and this one the place of another; see
//! [`upgrade`](crate::upgrade).

use super::{Event, Later, Server};
use crate::command::CommandAnswer;
use crate::upgrade::handed::{Handed, LastWords};
use crate::upgrade::predecessor::{EarlierServer, Inheritance, Predecessor};
use crate::upgrade::successor::{self, SuccessorSays};
use crate::upstream_command;
use crossbeam_channel::{Sender, bounded};
use forebay_engine::worker;
use forebay_sys::stderr::say;
use forebay_upstream::health::UpstreamCondition;
use signal_hook::consts::SIGTERM;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Instant;

/// Servers that were replaced and have connections yet, at most: the oldest beyond that ends what it has.
const MOST_EARLIER: usize = 2;

impl Server {
    /// Hands what there is to a process that wants the place of this one, if it may have it.
    pub(super) fn hand_to(&mut self, stream: UnixStream, reply: &Sender<CommandAnswer>) {
        let answer = match self.keeps_place() {
            Some(why) => CommandAnswer::failed(why),
            None => match self.begin_to_hand(stream) {
                Ok(()) => {
                    self.is_handing = true;
                    CommandAnswer { code: 0, text: String::new() }
                }
                Err(error) => CommandAnswer::failed(error),
            },
        };
        // the other process may have gone
        let _ = reply.send(answer);
    }

    /// Why no other process can have the place of this one.
    fn keeps_place(&self) -> Option<&'static str> {
        if self.draining.is_some() || self.is_replaced {
            Some("it is stopping")
        } else if self.is_handing {
            Some("another process is about to take its place")
        } else if self.config.place.is_some() {
            Some("it is a stage; the server that has started it replaces it")
        } else if self.common.live.get().policy.gate.is_some() {
            Some("the gate is in force, which cannot be handed over yet: restart it")
        } else if self.common.firewall.is_some() {
            Some("it keeps a table of the firewall, which cannot be handed over yet: restart it")
        } else {
            None
        }
    }

    fn begin_to_hand(&self, stream: UnixStream) -> io::Result<()> {
        let (sockets, mut descriptors) = self.listeners().hand()?;
        // it came by this socket
        let control = self.control_socket.as_ref().ok_or(io::ErrorKind::NotFound)?;
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
        };
        let (admission, to_main) = (Arc::clone(&self.common.admission), self.to_main.clone());
        let tell = move |said| {
            let (words, told) = bounded(1);
            to_main.send(Event::Successor(said, words)).ok()?;
            told.recv().ok()
        };
        let to_main = self.to_main.clone();
        let serve = move || {
            if let Err(error) = successor::serve(stream, &handed, &descriptors, &admission, tell) {
                let _ = to_main.send(Event::NoSuccessor(error));
            }
        };
        std::thread::Builder::new().name("successor".to_owned()).spawn(serve).map(drop)
    }

    /// The process that was to take the place of this one has ended before it served.
    pub(super) fn keep_place(&mut self, error: &io::Error) {
        self.is_handing = false;
        self.notifier.main_is(std::process::id());
        say(format_args!(
            "upgrade: the other process has ended before it served ({error}): nothing has changed"
        ));
    }

    /// Does what a successor says.
    pub(super) fn hear(&mut self, said: SuccessorSays, words: &Sender<LastWords>) {
        match said {
            SuccessorSays::Serves(process) => {
                // before it speaks to the service manager
                self.notifier.main_is(process);
                let (open, drained) = (self.common.admission.open(), self.drained_upstreams());
                let _ = words.send(LastWords { open, drained });
            }
            // an operator may have ended this one meanwhile
            SuccessorSays::HasHeard(_) if self.draining.is_some() => {}
            SuccessorSays::HasHeard(process) => self.be_succeeded(process),
            SuccessorSays::ReopenLogs => self.reopen_logs(),
            SuccessorSays::End if self.draining.is_some() => {}
            SuccessorSays::End => {
                say(format_args!("upgrade: others were started since: draining"));
                self.end(SIGTERM);
            }
        }
    }

    /// Another process has the clients that come from now on, and what is said to the service manager.
    fn be_succeeded(&mut self, process: u32) {
        let most = self.config.timeouts.upgrade;
        self.notifier.close();
        self.acme = None;
        if let Some(socket) = &mut self.control_socket {
            socket.leave();
        }
        self.listeners().hand_over();
        // the other process hears of them
        self.earlier.clear();
        // the last of it is a drain, which ends in order what has no end of its own
        self.plan.drain = self.plan.drain.min(most / 2);
        self.leave_clients(most - self.plan.drain);
        say(format_args!(
            "upgrade: process {process} serves from now on; connections open: {}, each gets one more answer, \
             and ends within {most:?}",
            self.common.admission.open(),
        ));
    }

    fn drained_upstreams(&self) -> Vec<String> {
        let snapshot = self.common.live.get();
        let seen = snapshot.applications.upstreams().flat_map(|upstreams| upstreams.seen());
        let drained = seen.filter(|seen| matches!(seen.condition, UpstreamCondition::Draining));
        drained.map(|seen| seen.label).collect()
    }

    /// Takes the place of a server that runs: this one serves.
    ///
    /// # Errors
    /// When the other has gone.
    pub(super) fn succeed(
        &mut self,
        mut predecessor: Predecessor,
        mut inheritance: Inheritance,
    ) -> io::Result<()> {
        self.listeners().leave_unnamed();
        self.later.push((Instant::now() + 2 * crate::listen::ARRIVAL, Later::Close));
        let LastWords { open, drained } = predecessor.replace()?;
        self.listeners().own();
        if let Some(socket) = &mut self.control_socket {
            socket.take_place();
        }
        let Handed { process, version, .. } = &inheritance.handed;
        let line = format!(
            "upgrade: process {} serves in place of process {process} (version {version}), which has {open} \
             connections",
            std::process::id()
        );
        // for whoever has asked for it
        say(format_args!("{line}"));
        forebay_sys::stderr::lead_to(&inheritance.standard_error)?;
        let now_ms = worker::read_clocks().monotonic_ms;
        for label in drained {
            let question = format!("drain {label}");
            let applications = &self.common.live.get().applications;
            if upstream_command::answer(&question, applications, now_ms).code == 0 {
                say(format_args!("upgrade: upstream {label} stays drained"));
            }
        }
        self.earlier = inheritance.before();
        self.earlier.push(predecessor.retire(open));
        let most = self.earlier.len().saturating_sub(MOST_EARLIER);
        self.earlier.iter().take(most).for_each(EarlierServer::end);
        self.limit_connections();
        for earlier in &self.earlier {
            let (process, to_main) = (earlier.process, self.to_main.clone());
            earlier.listen(move |open| drop(to_main.send(Event::EarlierHas(process, open))))?;
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
        self.limit_connections();
    }

    /// This server and those before have no more connections together than there may be.
    pub(super) fn limit_connections(&self) {
        let earlier: usize = self.earlier.iter().map(|earlier| earlier.open).sum();
        let most = self.plan.connections.saturating_sub(earlier).max(1);
        self.common.admission.limit(most, self.plan.connections_per_client);
    }
}
