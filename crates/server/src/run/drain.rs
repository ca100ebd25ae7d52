//! The end of a server: replaced by other processes, drained at the first signal, stopped at the
//! second; and its last messages.

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

/// How long before the end of a drain clients of WebSockets get a goodbye; at most half of the drain.
const FAREWELL: Duration = Duration::from_secs(5);

/// How long the last lines of the access log may take to be written.
const LOG_CLOSE: Duration = Duration::from_secs(2);

impl Server {
    /// Leaves the gate to the other process: it judges from now on, and its agent
    /// changes the words in the kernel.
    pub(super) fn let_gate_go(&self) {
        if let Some(enforced) = &self.common.live.get().policy.gate {
            self.common.agent_loop.retire(&self.common.live);
            enforced.gate().let_go();
        }
    }

    /// Stops the collection of the kernel's answers, and logs those collected so far.
    pub(super) fn end_answers(&mut self) {
        self.common.live.get().answers.iter().for_each(|learner| learner.close());
        self.answers.take().into_iter().for_each(AnswersThread::end);
    }

    /// Leaves new clients to other processes. Each open connection gets one more answer; what is
    /// left near the end of `time` is drained, within half of it at most.
    pub(super) fn be_replaced(&mut self, time: Duration) {
        if self.is_replaced || self.draining.is_some() {
            return;
        }
        self.plan.drain = self.plan.drain.min(time / 2);
        let patience = time.saturating_sub(self.plan.drain);
        // the other processes write to the certificate storage from now on
        self.acme = None;
        self.let_gate_go();
        self.end_answers();
        self.leave_clients(patience);
        say(format_args!(
            "replaced: connections open: {}, each gets one more answer if it asks within {patience:?}",
            self.common.admission.open(),
        ));
    }

    /// Makes the next answer on each connection its last. After `patience` the rest is drained.
    pub(super) fn leave_clients(&mut self, patience: Duration) {
        self.is_replaced = true;
        for (_, is_retiring, group) in &mut self.groups {
            *is_retiring = true;
            group.answer_once_more();
        }
        self.leave_listeners();
        self.later.push((Instant::now() + patience, Later::Drain));
    }

    /// Opens the log files again, here and at replaced servers, after SIGUSR1: they were moved.
    pub(super) fn reopen_logs(&self) {
        self.common.live.get().logs.reopen();
        self.earlier.reopen_logs();
    }

    /// Leaves the listeners of a stage, and its admin listener, to the processes that replace it.
    pub(super) fn leave_listeners(&mut self) {
        self.status.drains();
        self.admin.take().into_iter().for_each(RunningAdmin::leave);
        self.listeners().end(&[]);
    }

    /// Drains at the first signal, after the configured wait if there is one, and stops at the next.
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

    /// Ends the server for the program that it is a part of: open connections may finish within
    /// this time. If it is zero, they are cut at once.
    pub(super) fn end_by_program(&mut self, within: Duration) {
        if self.draining.is_none() {
            self.draining = Some(("the program", Instant::now()));
            self.was_told_to_drain = true;
            self.plan.drain = within;
            self.begin_to_drain(SIGTERM);
        }
        match within.is_zero() {
            true => self.stop(),
            // whichever of these events comes first ends the drain
            false => self.later.push((Instant::now() + within, Later::Stop)),
        }
    }

    /// Whether clients are still accepted for a while before the drain. After Ctrl-C there is no
    /// load balancer to wait for, and a replaced server accepts none.
    fn waits_before_drain(&self, signal: i32) -> bool {
        let has_clients = !self.is_replaced && !self.stands_behind();
        has_clients && signal != SIGINT && !self.config.timeouts.drain_wait.is_zero()
    }

    /// Shows load balancers that this server goes away; until they have seen it nothing else changes.
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

    /// Ends the wait before the drain, if there is one, and begins the drain.
    pub(super) fn end_wait(&mut self) {
        if let Some(signal) = self.waiting.take() {
            self.draining = Some((name(signal), Instant::now()));
            self.begin_to_drain(signal);
        }
    }

    fn begin_to_drain(&mut self, signal: i32) {
        self.earlier.end();
        // an ACME authority would find no server here any more
        self.acme = None;
        self.status.drains();
        self.end_answers();
        self.give_all(LoopOrder::Drain);
        // draining groups hold duplicates of the sockets, and accept what is queued; the admin
        // listener stays, for a command that asks for the progress, except where the next
        // generation has it
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

    /// Sends clients of WebSockets the goodbye of a server that goes away.
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

    /// Cuts the open connections, also at replaced servers.
    pub(super) fn stop(&mut self) {
        self.give_all(LoopOrder::Stop);
        self.earlier.stop();
        self.later.push((Instant::now() + EarlierServers::STOP, Later::LeaveEarlier));
    }

    /// Whether to wait for replaced servers: a service manager kills the rest of a service once its
    /// main process has ended.
    pub(super) fn waits_for_earlier(&self) -> bool {
        self.was_told_to_drain && !self.is_replaced && !self.earlier.is_empty()
    }

    /// Whether another process has the clients, and reports about them to the operator.
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

    /// Ends what serves no clients, and logs how the server has ended.
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
