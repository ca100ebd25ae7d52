//! The server's part in an upgrade, as predecessor and as successor; see
//! [`upgrade`](crate::upgrade).

use super::takeover::Wanted;
use super::{Event, Later, Server};
use crate::agent;
use crate::command::CommandAnswer;
use crate::control_socket::ControlSocket;
use crate::firewall::FirewallKeeper;
use crate::listen::ARRIVAL;
use crate::listen::handing::HandedAddress;
use crate::plan::GroupPlan;
use crate::reload;
use crate::upgrade::earlier::EarlierServers;
use crate::upgrade::handed::{
    Handed, HandedBan, HandedBucket, HandedOverride, LastWords, NewServer, OpenConnections,
};
use crate::upgrade::predecessor::{Inheritance, Predecessor};
use crate::upgrade::shared::SharedLimits;
use crate::upgrade::successor::{self, SuccessorEvent, SuccessorSays};
use crate::upstream_command;
use crossbeam_channel::Sender;
use forebay_engine::control::LoopOrder;
use forebay_engine::worker;
use forebay_sys::clock;
use forebay_sys::stderr::say;
use forebay_upstream::health::UpstreamCondition;
use signal_hook::consts::SIGTERM;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The interval at which this process looks for what another server has given back, while there is one.
const LOOK: Duration = Duration::from_millis(10);

impl Server {
    /// Hands over to a process that wants the place of this one, if it may have it.
    pub(super) fn hand_to(&mut self, stream: UnixStream, reply: &Sender<CommandAnswer>) {
        let answer = match self.keeps_place() {
            Some(why) => CommandAnswer::failed(why),
            None => match self.begin_to_hand(stream) {
                Ok(()) => {
                    self.is_handing = true;
                    self.share_limits();
                    CommandAnswer { code: 0, text: String::new() }
                }
                Err(error) => CommandAnswer::failed(error),
            },
        };
        // the other process may have ended
        let _ = reply.send(answer);
    }

    /// Answers a question about an upgrade that the service manager carries out.
    pub(super) fn answer_upgrade(&mut self, question: &str) -> CommandAnswer {
        let (has_manager, keeps_place) = (self.notifier.hand().is_some(), self.keeps_place());
        self.expected.answer(question, has_manager, keeps_place)
    }

    /// The reason why no other process can take the place of this one, if there is one.
    fn keeps_place(&self) -> Option<&'static str> {
        if self.draining.is_some() || self.is_replaced {
            Some("it is stopping")
        } else if self.is_handing {
            Some("another process is about to take its place")
        } else if self.reload.is_under_way() {
            Some("a reload is under way")
        } else if self.config.place.is_some() {
            Some("it is a stage; the server that has started it replaces it")
        } else {
            None
        }
    }

    fn begin_to_hand(&self, stream: UnixStream) -> io::Result<()> {
        let (sockets, mut descriptors) = self.listeners().hand()?;
        // the request came through this socket, so there is one
        let control = self.control_socket.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let (control, descriptor) = control.hand()?;
        let before = self.earlier.hand(&mut descriptors)?;
        let snapshot = self.common.live.get();
        let gate = snapshot.policy.gate.as_ref().map(|enforced| enforced.gate().hand());
        let gate = gate.transpose()?.map(|(text, of_gate)| {
            descriptors.extend(of_gate);
            text
        });
        let counts = self.shared.as_ref().map(SharedLimits::hand).transpose()?;
        let counts = counts.map(|(text, memory)| {
            descriptors.push(memory);
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
            drained: self.drained_upstreams(),
            learnt: self.learnt_places(),
            tickets: snapshot.certificates.tickets(),
            gate,
            firewall: self.common.firewall.as_ref().map(|firewall| firewall.table()),
            bans: HandedBan::of(&self.bans),
            overrides: HandedOverride::of(&self.config),
            counts,
            control,
            started_by: Some(self.started_by),
            notify: self.notifier.hand(),
        };
        let (admission, to_main) = (Arc::clone(&self.common.admission), self.to_main.clone());
        let open = move || OpenConnections::of(&admission);
        let tell = move |event| to_main.send(Event::Successor(event)).is_ok();
        let loops: Vec<_> = self.groups.iter().map(|(_, _, group)| group.control()).collect();
        let is_leaving = move || loops.iter().any(|control| control.is_leaving());
        successor::start(stream, handed, descriptors, open, is_leaving, tell)
    }

    /// Handles an event at the connection to the successor.
    pub(super) fn hear(&mut self, event: SuccessorEvent) {
        match event {
            SuccessorEvent::Says(said, words) => self.do_as(said, &words),
            SuccessorEvent::Failed(error) => self.keep_place(&error),
            SuccessorEvent::Ended => self.forget_newer(),
        }
    }

    /// Frees what servers that have replaced this one, or were about to, held of the
    /// shared counts: they have ended.
    fn forget_newer(&mut self) {
        self.shared.iter().for_each(|shared| shared.counts.newer_ended());
        self.share_limits();
    }

    /// Keeps the place of this server: the successor has ended before it served.
    fn keep_place(&mut self, error: &io::Error) {
        self.is_handing = false;
        self.forget_newer();
        if let Some(enforced) = &self.common.live.get().policy.gate
            && let Err(why) = enforced.gate().retake()
        {
            say(format_args!("gate: {why}"));
        }
        if self.draining.is_none() {
            // changes of certificates and sets were not taken during the hand-over
            self.ask_for(Wanted::Certificates, None);
            say(format_args!(
                "upgrade: the other process has not come to serve ({error}): nothing has changed"
            ));
        }
    }

    /// Does what a successor's message asks.
    fn do_as(&mut self, said: SuccessorSays, words: &Sender<LastWords>) {
        match said {
            SuccessorSays::Serves(_) if self.draining.is_some() => {
                let keeps_place = Some("it was told to stop".to_owned());
                let _ = words.send(LastWords { keeps_place, ..LastWords::default() });
            }
            SuccessorSays::Serves(new) => {
                let dropped = match &self.common.firewall {
                    Some(firewall) if new.takes_firewall => firewall.clients(),
                    _ => Vec::new(),
                };
                let open = OpenConnections::of(&self.common.admission);
                let drained = self.drained_upstreams();
                let (open, bans) = (Some(open), HandedBan::of(&self.bans));
                let charged = HandedBucket::of(&self.common.live.get().policy.state);
                let keeps_place = None;
                let last = LastWords { keeps_place, open, drained, dropped, bans, charged };
                let _ = words.send(last);
            }
            SuccessorSays::WasTold(new) => self.be_succeeded(&new),
            SuccessorSays::ReopenLogs => self.reopen_logs(),
            SuccessorSays::End if self.draining.is_some() => {}
            SuccessorSays::Stop => {
                say(format_args!("upgrade: the server that runs has been stopped: stopping now"));
                self.give_all(LoopOrder::Stop);
            }
            SuccessorSays::End => {
                say(format_args!("upgrade: others were started since: draining"));
                self.end(SIGTERM);
            }
        }
    }

    /// Leaves the new clients, and the messages to the service manager, to the successor.
    fn be_succeeded(&mut self, new: &NewServer) {
        let NewServer { process, left, takes_gate, takes_firewall, takes_control } = new;
        let known = self.numbered;
        let keeps_left = self.serve_left(left);
        // first, before the new server reports to the service manager itself
        self.notifier.main_is(*process);
        let most = self.config.timeouts.upgrade;
        self.notifier.close();
        self.acme = None;
        if let Some(socket) = &mut self.control_socket {
            socket.leave(*takes_control);
        }
        self.listeners().hand_over(left);
        // the successor receives their reports from now on
        self.earlier.leave();
        self.is_replaced = true;
        self.status.drains();
        // the upgrade's time ends with a drain, for connections that do not end by themselves
        self.plan.drain = self.plan.drain.min(most / 2);
        if let Some(firewall) = self.common.firewall.take() {
            if *takes_firewall { firewall.leave() } else { firewall.end() }
        }
        // before the successor gets the message that this server has left
        self.common.agent_loop.retire(&self.common.live);
        self.leave_gate(*takes_gate);
        self.leave_addresses(left, keeps_left, known);
        say(format_args!(
            "upgrade: process {process} serves from now on; connections open: {}, each gets one more answer, \
             and ends within {most:?}",
            self.common.admission.open(),
        ));
    }

    /// Starts workers for addresses that the successor does not have, which accept the connections
    /// that are on their way there. The other workers can then leave at once.
    fn serve_left(&mut self, left: &[HandedAddress]) -> io::Result<()> {
        for group in self.plan.groups.clone() {
            let sockets = self.listeners().take_left(&group.listen, left);
            let sockets = sockets.map_err(|error| io::Error::other(error.to_string()))?;
            if !sockets.is_empty() {
                let group = GroupPlan { listener_sets: 1, ..group };
                let prepared = self.common.prepare(group, vec![sockets])?;
                self.begin(prepared)?;
            }
        }
        Ok(())
    }

    /// Stops accepting. Where there are addresses that are `left`, groups with numbers above
    /// `known` accept there for a while.
    fn leave_addresses(&mut self, left: &[HandedAddress], keeps_left: io::Result<()>, known: u64) {
        // The queues of classes are left at once, too: the gate of the successor is attached, so no
        // connection enters them any more, and those in them are accepted before they are closed.
        match keeps_left {
            Ok(()) if left.is_empty() => self.leave_clients_to_successor(),
            Ok(()) => {
                self.leave_to_successor(known);
                self.later.push((Instant::now() + ARRIVAL, Later::LeaveClients));
            }
            Err(error) => {
                say(format_args!(
                    "upgrade: no workers for addresses that the other process leaves ({error}): this one answers some \
                     connections at others, too, for {ARRIVAL:?}"
                ));
                self.later.push((Instant::now() + ARRIVAL, Later::LeaveClients));
            }
        }
    }

    /// Leaves a stage's clients to the successor of its server, except at addresses that are
    /// `left`. `reply` is sent once no loop accepts at the other addresses.
    pub(super) fn leave_for_upgrade(
        &mut self,
        left: Vec<HandedAddress>,
        reply: Sender<CommandAnswer>,
    ) {
        let loops: Vec<_> = self.groups.iter().map(|(_, _, group)| group.control()).collect();
        if !self.is_replaced && self.draining.is_none() {
            let known = self.numbered;
            let keeps_left = self.serve_left(&left);
            self.is_replaced = true;
            // the successor writes to the certificate storage from now on
            self.acme = None;
            self.let_gate_go();
            self.plan.drain = self.plan.drain.min(self.config.timeouts.upgrade / 2);
            self.leave_addresses(&left, keeps_left, known);
        }
        let answer = move || {
            successor::wait_until_left(|| loops.iter().any(|control| control.is_leaving()));
            // the server that asks may have ended
            let _ = reply.send(CommandAnswer { code: 0, text: String::new() });
        };
        // without a thread there is no answer, and the server that asks goes on without one
        let _ = std::thread::Builder::new().name("leave".to_owned()).spawn(answer);
    }

    /// Has groups up to this number accept no more.
    fn leave_to_successor(&mut self, last: u64) {
        for (_, is_retiring, group) in self.groups.iter_mut().filter(|group| group.0 <= last) {
            *is_retiring = true;
            group.answer_once_more();
        }
        self.leave_listeners();
    }

    /// Stops judging, since the other process does so, or none.
    fn leave_gate(&self, is_taken: bool) {
        let snapshot = self.common.live.get();
        let Some(enforced) = &snapshot.policy.gate else { return };
        let gate = enforced.gate();
        if is_taken { gate.let_go() } else { gate.detach() }
    }

    /// Leaves the clients: open connections may go on for `timeouts.upgrade`, and nothing more is accepted.
    pub(super) fn leave_clients_to_successor(&mut self) {
        self.leave_clients(self.config.timeouts.upgrade.saturating_sub(self.plan.drain));
    }

    fn drained_upstreams(&self) -> Vec<String> {
        let snapshot = self.common.live.get();
        let seen = snapshot.applications.upstreams().flat_map(|upstreams| upstreams.seen());
        let drained = seen.filter(|seen| matches!(seen.condition, UpstreamCondition::Draining));
        drained.map(|seen| seen.name().to_owned()).collect()
    }

    fn learnt_places(&self) -> Vec<(String, u32)> {
        let snapshot = self.common.live.get();
        let seen = snapshot.applications.upstreams().flat_map(|upstreams| upstreams.seen());
        let learnt = seen.filter_map(|seen| Some((seen.name().to_owned(), seen.learnt?.useful)));
        learnt
            .filter(|(_, useful)| useful.answers > 0)
            .map(|(name, useful)| (name, useful.held))
            .collect()
    }

    /// Prepares what must hold before clients are served in place of another server.
    ///
    /// # Errors
    /// When sockets cannot listen.
    pub(super) fn prepare_to_succeed(&mut self, inheritance: &Inheritance) -> io::Result<()> {
        self.tell_upstreams("drain", &inheritance.handed.drained);
        for (name, held) in &inheritance.handed.learnt {
            let snapshot = self.common.live.get();
            snapshot.applications.upstreams().for_each(|one| one.begin_with(name, *held));
        }
        self.restore_bans(&inheritance.handed.bans);
        self.listeners().begin_listening()
    }

    /// Takes the place of a running server: this one serves, and `keeper` has the predecessor's
    /// table of the firewall. Once the predecessor has left, problems are only logged, since no
    /// other server is there.
    ///
    /// # Errors
    /// When the predecessor keeps its place.
    pub(super) fn succeed(
        &mut self,
        mut predecessor: Predecessor,
        mut inheritance: Inheritance,
        keeper: Option<FirewallKeeper>,
    ) -> io::Result<()> {
        let wanted = reload::wanted(&self.plan);
        let left = self.listeners().unnamed(&wanted);
        let has_left = !left.is_empty();
        let snapshot = self.common.live.get();
        let takes_gate = snapshot.policy.gate.is_some();
        predecessor.check()?;
        if let Some(gate) = &snapshot.policy.gate {
            // the predecessor judges again if this process ends before it has announced itself
            self.attach_gate();
            // with nothing to judge, the gate is attached nowhere, and that is no error
            if let Some(why) = self.gate_trouble.as_ref().filter(|_| !gate.gate().is_attached()) {
                return Err(io::Error::other(format!("gate: {why}")));
            }
        }
        let (process, takes_firewall) = (std::process::id(), keeper.is_some());
        let takes_control = self.control_socket.as_ref().is_some_and(ControlSocket::is_lent);
        let new = NewServer { process, left, takes_gate, takes_firewall, takes_control };
        let LastWords { keeps_place: _, open, drained, dropped, bans, charged } =
            predecessor.replace(&new)?;
        predecessor.wait_until_left();
        if let Some(gate) = &snapshot.policy.gate {
            gate.gate().settle();
            // the agent of the predecessor has changed words in the kernel until it left
            agent::lift(&snapshot.policy);
        }
        let most_ns = snapshot.policy.state.most_ignored_ns();
        if let Some(Err(error)) = keeper.map(|keeper| keeper.start_after(dropped, most_ns)) {
            say(format_args!("firewall: no thread for it, so that its table expires: {error}"));
        }
        self.listeners().own(&wanted);
        if has_left {
            self.listeners().leave(&wanted);
            self.later.push((Instant::now() + 2 * ARRIVAL, Later::Close));
        }
        if let Some(socket) = &mut self.control_socket {
            socket.take_place();
        }
        // the log files may have been moved since they were opened
        self.common.live.get().logs.reopen();
        inheritance.announce(open.as_ref());
        let resumed = inheritance.handed.drained.iter().filter(|label| !drained.contains(label));
        self.tell_upstreams("resume", resumed);
        self.tell_upstreams("drain", &drained);
        self.restore_bans(&bans);
        HandedBucket::charge(&charged, &snapshot.policy.state);
        let to_main = self.to_main.clone();
        let tell = move |process, open| drop(to_main.send(Event::EarlierHas(process, open)));
        self.earlier = EarlierServers::new(inheritance.before(), predecessor.retire(open), tell);
        self.limit_connections();
        self.share_limits();
        Ok(())
    }

    /// Takes what another server has given back of the shared counts, and schedules the next look
    /// while there is one.
    pub(super) fn share_limits(&mut self) {
        let Some(shared) = &self.shared else { return };
        shared.counts.beat(clock::coarse_ms());
        // also after the last other server has ended, whose part is free now
        let snapshot = self.common.live.get();
        snapshot.applications.upstreams().for_each(|upstreams| upstreams.turn());
        snapshot.policy.turn();
        if !self.is_handing && !shared.counts.has_others() {
            return;
        }
        self.later.retain(|(_, later)| !matches!(later, Later::Shared));
        self.later.push((Instant::now() + LOOK, Later::Shared));
    }

    /// Drains or resumes upstreams, as an operator has done at the predecessor.
    fn tell_upstreams<'l>(&self, what: &str, labels: impl IntoIterator<Item = &'l String>) {
        let now_ms = worker::read_clocks().monotonic_ms;
        for label in labels {
            // a label without an upstream has no effect
            let applications = &self.common.live.get().applications;
            let config = &self.config;
            upstream_command::answer(&format!("{what} {label}"), config, applications, now_ms);
        }
    }

    /// Handles a replaced server's report of its open connections; `None` if it has ended.
    pub(super) fn hear_of_earlier(&mut self, process: u32, open: Option<OpenConnections>) {
        if open.is_none() {
            self.shared.iter().for_each(|shared| shared.counts.ended(process));
            self.share_limits();
        }
        self.earlier.heard(process, open);
        self.limit_connections();
    }

    /// Limits connections so that this server and the replaced ones have no more together than configured.
    pub(super) fn limit_connections(&self) {
        let earlier = self.earlier.open(self.plan.connections);
        let most = self.plan.connections.saturating_sub(earlier).max(1);
        self.common.admission.limit(most, self.plan.connections_per_client);
        self.common.admission.set_elsewhere(self.earlier.clients());
    }
}
