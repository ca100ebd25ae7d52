//! Tasks of the main thread beside requests: watchdog messages, the gate and the firewall,
//! certificates, the thread for applications.

use super::takeover::Wanted;
use super::{Event, Later, Server};
use crate::acme_thread;
use crate::agent;
use crate::certificate_watch;
use crate::command::CommandAnswer;
use crate::gate;
use crate::isolated::kept_gate::GateLine;
use crate::launcher::LauncherKind;
use crate::notify;
use crate::upkeep;
use forebay_config::{AddressSets, Role};
use forebay_handler::policy::InForce;
use forebay_handler::policy::enforced::Enforced;
use forebay_sys::clock;
use forebay_sys::stderr::say;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The interval of warnings about certificates that expire soon, and the largest
/// number of warnings at a time.
const DAY: Duration = Duration::from_secs(24 * 3600);
const MOST_WARNINGS: usize = 20;

/// How often the gate looks for new interfaces and addresses.
const INTERFACES: Duration = Duration::from_secs(5);

impl Server {
    /// Schedules the next message to the service manager's watchdog.
    pub(super) fn watch_later(&mut self) {
        if let Some(interval) = self.notifier.interval() {
            self.later.push((Instant::now() + interval, Later::Watchdog));
        }
    }

    /// Sends the watchdog message if every loop has turned lately.
    pub(super) fn show_life(&mut self) {
        let Some(interval) = self.notifier.interval() else { return };
        let patience = notify::patience(interval).as_millis() as u64;
        let since_ms = clock::coarse_ms().saturating_sub(patience);
        if self.groups.iter().all(|(_, _, group)| group.turns_since(since_ms)) {
            self.notifier.alive();
        } else {
            say(format_args!("a loop has not turned for {patience} ms: no sign of life is given"));
        }
        self.watch_later();
    }

    /// Attaches the gate to new interfaces, now and every few seconds.
    pub(super) fn watch_gate(&mut self) {
        if self.common.live.get().policy.gate.is_some() {
            self.attach_gate();
            self.later.push((Instant::now() + INTERFACES, Later::Gate));
        }
    }

    /// Attaches the gate for the current listeners. Trouble is logged once.
    pub(super) fn attach_gate(&mut self) {
        let is_others = self.gate_line.as_ref().is_some_and(|line| !line.judges());
        if self.is_replaced || is_others {
            return;
        }
        let snapshot = self.common.live.get();
        let gate = snapshot.policy.gate.as_ref();
        let attached = gate.map(|gate| gate::attach_again(gate, &self.plan, &self.listeners()));
        let trouble = attached.and_then(Result::err);
        let gate = gate.map(Enforced::gate);
        let kept = self.gate_line.as_mut().map_or(Ok(()), |line| line.keep(gate.as_deref()));
        let lost = kept.err().map(|error| format!("a crash would end it: {error}"));
        let trouble = trouble.or(lost);
        let is_new = trouble != self.gate_trouble;
        if let Some(trouble) = trouble.as_ref().filter(|_| is_new) {
            say(format_args!("gate: {trouble}"));
        }
        self.gate_trouble = trouble;
    }

    /// Prepares the receive stage to judge: it gives its rules to the firewall, and judges in the
    /// kernel before it reports that it serves. `follows` says whether it does so in the place of
    /// an earlier receive stage.
    ///
    /// # Errors
    /// The obstacle.
    pub(super) fn judge_first(&mut self, follows: bool) -> Result<(), String> {
        if self.config.place.is_some() {
            self.tell_firewall();
        }
        let Some(true) = self.gate_line.as_ref().map(GateLine::judges) else { return Ok(()) };
        self.attach_gate();
        let snapshot = self.common.live.get();
        let Some(gate) = &snapshot.policy.gate else { return Ok(()) };
        match &self.gate_trouble {
            // with nothing to judge, the gate is attached nowhere, and that is no error
            Some(why) if follows && !gate.gate().is_attached() => return Err(why.clone()),
            _ => {}
        }
        gate.gate().settle();
        // the agent of the process before has changed words in the kernel until it ended
        agent::lift(&snapshot.policy);
        Ok(())
    }

    /// Judges in the kernel from now on, at the supervisor's request.
    pub(super) fn judge(&mut self) -> CommandAnswer {
        self.gate_line.iter_mut().for_each(GateLine::judge);
        if let Some(enforced) = &self.common.live.get().policy.gate
            && let Err(why) = enforced.gate().retake()
        {
            return CommandAnswer::failed(why);
        }
        match self.judge_first(true) {
            Ok(()) => CommandAnswer { code: 0, text: String::new() },
            Err(why) => CommandAnswer::failed(why),
        }
    }

    /// Gives the firewall the rules in force, for the current listeners.
    pub(super) fn tell_firewall(&self) {
        let Some(firewall) = &self.common.firewall else { return };
        let snapshot = self.common.live.get();
        let InForce { policy, state, .. } = &*snapshot.policy;
        let judged = gate::listeners(&self.plan, &self.listeners());
        firewall.enforce(&self.config.firewall, &judged, policy, state.most_ignored_ns());
    }

    /// Has the thread that reads sets of the firewall use the configuration in force.
    pub(super) fn watch_sets(&self) {
        self.sets.iter().for_each(|sets| sets.go_by(&self.config));
    }

    /// Puts changed sets of the firewall in force. If they cannot be taken now, the
    /// reader reports them again.
    pub(super) fn take_sets(&mut self, sets: AddressSets) {
        let is_leaving = self.draining.is_some() || self.is_replaced || self.is_handing;
        if !is_leaving {
            self.ask_for(Wanted::Sets(sets), None);
        }
    }

    /// Warns of certificates that expire soon, now and every day.
    pub(super) fn warn_of_certificates(&mut self) {
        let now_s = (clock::unix_coarse_ms() / 1000) as i64;
        let expiries = self.common.live.get().certificates.expiries();
        let warnings = expiries.iter().filter_map(|expiry| expiry.warning(now_s));
        let lists = self.common.live.get().certificates.expired_lists(now_s);
        let warnings = warnings.chain(lists);
        warnings.take(MOST_WARNINGS).for_each(|warning| say(format_args!("{warning}")));
        self.later.push((Instant::now() + DAY, Later::Certificates));
    }

    /// Warnings about hosts that are reached through TLS and have no certificate, or one for other hosts.
    pub(super) fn uncovered(&self) -> Vec<String> {
        let mut endpoints = self.plan.groups.iter().flat_map(|group| &group.listen);
        // the clients of a stage's listener know it by the stage's own name
        if self.stands_behind() || !endpoints.any(|endpoint| endpoint.tls) {
            return Vec::new();
        }
        let mut uncovered = self.common.live.get().certificates.uncovered(&self.config);
        uncovered.truncate(MOST_WARNINGS);
        uncovered
    }

    /// Starts the thread that looks for changed certificates, if there are certificates.
    pub(super) fn watch_certificates(&mut self) {
        if self.watches_certificates || self.common.live.get().certificates.is_empty() {
            return;
        }
        let to_main = self.to_main.clone();
        let tell = move || to_main.send(Event::CertificatesChanged).is_ok();
        let is_stage = self.config.place.is_some();
        match certificate_watch::start(&self.common.live, is_stage, tell) {
            Ok(()) => self.watches_certificates = true,
            Err(error) => say(format_args!(
                "no thread for certificates, which are taken over by reloads only: {error}"
            )),
        }
    }

    /// Has certificates obtained by ACME, if some are wanted. With `at_once`,
    /// failed ones are tried again now.
    pub(super) fn keep_acme(&mut self, at_once: bool) {
        if let Some(acme) = &self.acme {
            return acme.look(at_once);
        }
        if self.common.live.get().certificates.acme().is_none() {
            return;
        }
        let (live, to_main) = (Arc::clone(&self.common.live), self.to_main.clone());
        let tell = move || drop(to_main.send(Event::CertificatesChanged));
        let launcher = self.launchers.of(LauncherKind::Commands).cloned();
        match acme_thread::start(live, self.common.register.worker(), launcher, tell) {
            Ok(running) => self.acme = Some(running),
            Err(error) => say(format_args!("no thread for certificates by ACME: {error}")),
        }
    }

    /// Starts the thread that records data for the page of the admin listener, if there is a page.
    pub(super) fn watch_for_page(&self) {
        if self.config.admin.page
            && let Err(error) = self.status.watch_for_page()
        {
            say(format_args!(
                "no thread for the page of the admin listener, which shows less: {error}"
            ));
        }
    }

    /// Starts the thread that sends spans to a collector, if there is one.
    pub(super) fn keep_traces(&self) {
        if let Err(error) = self.exporter.keep_up(&self.common.live) {
            say(format_args!("no thread for traces, whose spans are dropped: {error}"));
        }
    }

    /// Starts the thread for applications, if one of them needs it.
    pub(super) fn keep_up_applications(&mut self) {
        let applications = &self.common.live.get().applications;
        // the applications of other stages are checked by respond
        let asks = matches!(applications.role(), None | Some(Role::Respond));
        if self.keeps_up_applications || applications.is_empty() || !asks {
            return;
        }
        match upkeep::keep_up(Arc::downgrade(&self.common.live)) {
            Ok(()) => self.keeps_up_applications = true,
            Err(error) => {
                say(format_args!("no thread for applications: upstreams are not checked: {error}"))
            }
        }
    }
}
