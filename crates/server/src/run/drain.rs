//! How a server ends: replaced by other processes, drained at the first signal, stopped at the second; and
//! what it says then.

use super::{Later, Server};
use crate::admin::RunningAdmin;
use crate::kernel_answers::AnswersThread;
use crate::start_error::SAME_SIGNAL;
use crate::upgrade::earlier::EarlierServers;
use forebay_config::Role;
use forebay_engine::control::{Ended, LoopOrder};
use forebay_sys::stderr::say;
use signal_hook::consts::{SIGINT, SIGQUIT, SIGTERM};
use std::time::{Duration, Instant};

/// How long before the end of a drain clients of WebSockets are told, or half of it where it is shorter.
const FAREWELL: Duration = Duration::from_secs(5);

/// How long the last lines of the access log may take to be written.
const LOG_CLOSE: Duration = Duration::from_secs(2);

impl Server {
    /// The other process judges from now on, and its agent moves the words in the kernel.
    pub(super) fn let_gate_go(&self) {
        if let Some(enforced) = &self.common.live.get().policy.gate {
            self.common.agent_loop.retire(&self.common.live);
            enforced.gate().let_go();
        }
    }

    /// The kernel gives no answers any more, and what it has given is logged.
    pub(super) fn end_answers(&mut self) {
        self.common.live.get().answers.iter().for_each(|learner| learner.close());
        self.answers.take().into_iter().for_each(AnswersThread::end);
    }

    /// Other processes have the clients that come from now on. Those that are here get one more answer on each
    /// connection; what is left at the end of this time is drained within it, and for half of it at most.
    pub(super) fn be_replaced(&mut self, time: Duration) {
        if self.is_replaced || self.draining.is_some() {
            return;
        }
        self.plan.drain = self.plan.drain.min(time / 2);
        let patience = time.saturating_sub(self.plan.drain);
        // the storage is another's from now on
        self.acme = None;
        self.let_gate_go();
        self.end_answers();
        self.leave_clients(patience);
        say(format_args!(
            "replaced: connections open: {}, each gets one more answer if it asks within {patience:?}",
            self.common.admission.open(),
        ));
    }

    /// The next answer on each connection is its last, and after so long what is left is drained.
    pub(super) fn leave_clients(&mut self, patience: Duration) {
        self.is_replaced = true;
        for (_, is_retiring, group) in &mut self.groups {
            *is_retiring = true;
            group.answer_once_more();
        }
        self.leave_listeners();
        self.later.push((Instant::now() + patience, Later::Drain));
    }

    /// SIGUSR1: log files were moved, those of the process before, too.
    pub(super) fn reopen_logs(&self) {
        self.common.live.get().logs.reopen();
        self.earlier.reopen_logs();
    }

    /// A stage leaves its listeners, and those who look at it, to the processes that replace it.
    pub(super) fn leave_listeners(&mut self) {
        self.status.drains();
        self.admin.take().into_iter().for_each(RunningAdmin::leave);
        self.listeners().end(&[]);
    }

    /// Drains at the first signal, after a wait if there is to be one, and stops at the next.
    pub(super) fn end(&mut self, signal: i32) {
        match self.draining {
            None => {
                self.draining = Some((name(signal), Instant::now()));
                self.was_told_to_drain = true;
                match self.waits_before_drain(signal) {
                    true => self.begin_to_wait(signal),
                    false => self.begin_to_drain(signal),
                }
            }
            Some((_, began)) if began.elapsed() < SAME_SIGNAL => {}
            Some(_) if self.waiting.is_some() => self.end_wait(),
            Some(_) if !self.was_told_to_drain => self.was_told_to_drain = true,
            Some(_) => {
                say(format_args!("{} again: stopping now", name(signal)));
                self.stop();
            }
        }
    }

    /// The program of which the server is a part ends it: within this time what is open comes to its end. With none
    /// it is cut at once.
    pub(super) fn end_by_program(&mut self, within: Duration) {
        if self.draining.is_none() {
            self.draining = Some(("the program", Instant::now()));
            self.was_told_to_drain = true;
            self.plan.drain = within;
            self.begin_to_drain(SIGTERM);
        }
        match within.is_zero() {
            true => self.stop(),
            // the first that comes is the one that counts
            false => self.later.push((Instant::now() + within, Later::Stop)),
        }
    }

    /// Whether clients are accepted for a while yet: who types Ctrl-C is no load balancer, and who has been replaced
    /// accepts none.
    fn waits_before_drain(&self, signal: i32) -> bool {
        let has_clients = !self.is_replaced && !self.stands_behind();
        has_clients && signal != SIGINT && !self.config.timeouts.drain_wait.is_zero()
    }

    /// Load balancers are told that this server goes; until they have seen it nothing else changes.
    fn begin_to_wait(&mut self, signal: i32) {
        let wait = self.config.timeouts.drain_wait;
        self.waiting = Some(signal);
        self.status.drains();
        self.notifier.stopping("draining soon");
        self.later.push((Instant::now() + wait, Later::Begin));
        say(format_args!(
            "{}: /readyz answers 503, clients are accepted for {wait:?} yet; again to drain now",
            name(signal)
        ));
    }

    /// The wait is over, if there is one: the drain begins.
    pub(super) fn end_wait(&mut self) {
        if let Some(signal) = self.waiting.take() {
            self.draining = Some((name(signal), Instant::now()));
            self.begin_to_drain(signal);
        }
    }

    fn begin_to_drain(&mut self, signal: i32) {
        self.earlier.end();
        // an authority would find no server here
        self.acme = None;
        self.status.drains();
        self.end_answers();
        self.give_all(LoopOrder::Drain);
        // groups that drain hold duplicates and take what is queued; a command that asks how far
        // they are finds the admin listener, unless that of the next generation answers there
        if self.config.place.is_some() {
            self.leave_listeners();
        } else {
            let admin = self.plan.admin.iter().flat_map(|admin| &admin.listen);
            let admin: Vec<_> = admin.map(|endpoint| endpoint.listen.clone()).collect();
            self.listeners().end(&admin);
        }
        self.notifier.stopping("draining");
        let is_bounded = signal != SIGQUIT;
        if is_bounded {
            let (now, drain) = (Instant::now(), self.plan.drain);
            self.later.push((now + drain.saturating_sub(FAREWELL.min(drain / 2)), Later::Farewell));
            self.later.push((now + drain, Later::Stop));
        }
        self.say_draining(name(signal), is_bounded);
    }

    /// Tells clients of WebSockets that the server goes away.
    pub(super) fn end_web_sockets(&self) {
        let snapshot = self.common.live.get();
        let ended = snapshot.applications.upstreams().map(|upstreams| upstreams.end_web_sockets());
        let ended: usize = ended.sum();
        if ended > 0 {
            say(format_args!(
                "draining: WebSockets open: {ended}, their clients are told to leave"
            ));
        }
    }

    /// Cuts what is left, also at servers that were replaced.
    pub(super) fn stop(&mut self) {
        self.give_all(LoopOrder::Stop);
        self.earlier.stop();
        self.later.push((Instant::now() + EarlierServers::STOP, Later::LeaveEarlier));
    }

    /// Whether servers that were replaced have not ended yet. A service manager cuts what is left of a service once its
    /// main process has ended.
    pub(super) fn waits_for_earlier(&self) -> bool {
        self.was_told_to_drain && !self.is_replaced && !self.earlier.is_empty()
    }

    /// Whether another process has the clients, and tells the operator of them.
    pub(super) fn stands_behind(&self) -> bool {
        self.config.place.as_ref().is_some_and(|place| place.role != Role::Receive)
    }

    fn say_draining(&self, signal: &str, bounded: bool) {
        if self.stands_behind() || self.config.is_guest {
            return;
        }
        let open = self.common.admission.open();
        let bound =
            if bounded { format!("at most {:?}", self.plan.drain) } else { "no limit".into() };
        say(format_args!(
            "{signal}: draining, connections open: {open}, {bound}; again to stop now"
        ));
    }

    /// Ends what serves no clients, and says how it went.
    pub(super) fn finish(mut self, reason: &str, ended: Ended) {
        self.admin.take().into_iter().for_each(RunningAdmin::stop);
        self.end_answers();
        self.listeners().end(&[]);
        if let Some(firewall) = &self.common.firewall {
            firewall.end();
        }
        self.launchers.end();
        self.exporter.end();
        let began = Instant::now();
        if !self.common.live.get().logs.close(LOG_CLOSE) {
            say(format_args!("the access log took no lines for {:?}", began.elapsed()));
        }
        if self.stands_behind() || self.config.is_guest {
            return;
        }
        let Ended { drained, aborted_receiving, aborted_in_job, aborted_sending } = ended;
        say(format_args!(
            "stopped ({reason}): connections: {drained} drained, {} aborted \
             ({aborted_receiving} receiving, {aborted_in_job} in a job, {aborted_sending} sending)",
            ended.aborted()
        ));
    }
}

fn name(signal: i32) -> &'static str {
    match signal {
        SIGTERM => "SIGTERM",
        SIGINT => "SIGINT",
        SIGQUIT => "SIGQUIT",
        _ => "signal",
    }
}
