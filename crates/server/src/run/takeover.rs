//! A reload, or a change of the policy: requested, prepared while the server serves, and put in
//! force as a whole.

use super::{Event, Later, Server};
use crate::admin::{AdminListener, RunningAdmin};
use crate::command::{CommandAnswer, PolicyChange};
use crate::engines::Prepared;
use crate::gate;
use crate::kernel_answers;
use crate::listen::ARRIVAL;
use crate::reload::{self, ChangeTo, Current, NextConfiguration, ReloadError, RuleChange};
use crate::spool;
use crossbeam_channel::Sender;
use forebay_config::{AddressSets, Config};
use forebay_engine::control::LoopOrder;
use forebay_handler::client::TrustedProxies;
use forebay_handler::live::ServingSnapshot;
use forebay_handler::policy::{Enforced, InForce};
use forebay_handler::traces::Tracing;
use forebay_sys::stderr::say;
use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// The largest number of groups that retire at the same time. Beyond it the oldest is drained: its
/// clients must connect again.
const MOST_RETIRING: usize = 16;

/// A change to put in force.
#[derive(Clone)]
pub(super) enum Wanted {
    /// The configuration in the file.
    File,
    /// A configuration from the program that the server is a part of.
    Given(Box<Config>),
    /// The current configuration with these assignments, and whether they survive reloads.
    Set(Vec<String>, bool),
    /// The current configuration with a changed rule from the command line.
    Rule(RuleChange),
    /// The current configuration with changed rules of the program with this name.
    Agent(String, PolicyChange),
    /// The current configuration with the certificates and tokens whose files have changed.
    Certificates,
    /// The current configuration with the present elements of sets of the firewall.
    Sets(AddressSets),
}

impl Wanted {
    /// The name of the change in messages.
    fn name(&self) -> &'static str {
        match self {
            Wanted::File | Wanted::Given(_) => "reload",
            Wanted::Set(..) => "policy set",
            Wanted::Rule(_) => "policy rule",
            Wanted::Agent(..) => "policy of a program",
            Wanted::Certificates => "changed files",
            Wanted::Sets(_) => "sets of the firewall",
        }
    }
}

/// A change that is requested or being prepared, and the commands that wait for it.
struct PendingChange {
    wanted: Wanted,
    waiting: Vec<Sender<CommandAnswer>>,
}

/// The change that is being prepared, and those queued behind it.
#[derive(Default)]
pub(super) struct Reload {
    under_way: Option<PendingChange>,
    next: VecDeque<PendingChange>,
}

impl Reload {
    /// Whether a change is being prepared.
    pub(super) fn is_under_way(&self) -> bool {
        self.under_way.is_some()
    }
}

impl Server {
    /// Begins to prepare a change, or queues it behind the one under way.
    pub(super) fn ask_for(&mut self, wanted: Wanted, reply: Option<Sender<CommandAnswer>>) {
        let waiting = reply.into_iter().collect();
        if self.reload.under_way.is_none() {
            return self.begin_to_prepare(PendingChange { wanted, waiting });
        }
        match self.reload.next.back_mut() {
            // one later reload serves all of these commands
            Some(PendingChange { wanted: Wanted::File, waiting: others })
                if matches!(wanted, Wanted::File) =>
            {
                others.extend(waiting);
            }
            // one look at the certificates is enough, and no command waits for it
            Some(PendingChange { wanted: Wanted::Certificates, .. })
                if matches!(wanted, Wanted::Certificates) => {}
            Some(PendingChange { wanted: Wanted::Sets(older), .. })
                if matches!(wanted, Wanted::Sets(_)) =>
            {
                if let Wanted::Sets(newer) = wanted {
                    *older = newer;
                }
            }
            _ => self.reload.next.push_back(PendingChange { wanted, waiting }),
        }
    }

    fn begin_to_prepare(&mut self, task: PendingChange) {
        let refused = match (self.named_file(), &task.wanted) {
            _ if self.draining.is_some() || self.is_replaced => ReloadError::Stopping,
            _ if self.is_handing => ReloadError::Handing,
            (None, Wanted::File | Wanted::Set(..) | Wanted::Rule(_)) => ReloadError::NoFile,
            (file, wanted) => {
                let (file, current) =
                    (file.map(Path::to_owned).unwrap_or_default(), self.current());
                let (to_main, wanted) = (self.to_main.clone(), wanted.clone());
                let prepare = move || {
                    let next = match wanted {
                        Wanted::File => reload::prepare(&file, &current),
                        Wanted::Given(config) => reload::prepare_given(*config, &current),
                        Wanted::Set(assignments, kept) => {
                            reload::change(&assignments, kept, &file, &current)
                        }
                        Wanted::Rule(change) => reload::change_rule(&change, &file, &current),
                        Wanted::Agent(owner, change) => {
                            reload::change_of(&owner, &change, &file, &current)
                        }
                        Wanted::Certificates => reload::renew(&current),
                        Wanted::Sets(sets) => reload::with_sets(sets, &file, &current),
                    };
                    let _ = to_main.send(Event::Prepared(next.map(Box::new)));
                };
                let thread = std::thread::Builder::new().name("reload".to_owned());
                match thread.spawn(prepare) {
                    Ok(_) => {
                        // sets may change every few seconds, which the service manager need not know
                        if !matches!(task.wanted, Wanted::Sets(_)) {
                            self.notifier.reloading();
                        }
                        self.reload.under_way = Some(task);
                        return;
                    }
                    Err(error) => ReloadError::Resources(error),
                }
            }
        };
        self.reload.under_way = Some(task);
        self.finish_reload(Err(refused));
    }

    /// The configuration file as named in messages; for a stage, the file of its server.
    fn named_file(&self) -> Option<&Path> {
        let of_stage = self.config.place.as_ref().map(|place| place.file.as_path());
        self.file.as_deref().or(of_stage)
    }

    fn current(&self) -> Current {
        let snapshot = self.common.live.get();
        let groups = self.groups.iter().filter(|(_, is_retiring, _)| !is_retiring);
        Current {
            config: self.config.clone(),
            plan: self.plan.clone(),
            content: Arc::clone(&snapshot.content),
            certificates: Arc::clone(&snapshot.certificates),
            logs: Arc::clone(&snapshot.logs),
            common: self.common.clone(),
            groups: groups.map(|(number, _, group)| (*number, group.plan.clone())).collect(),
            listeners: Arc::clone(&self.listeners),
            sandbox: self.sandbox.clone(),
            launchers: self.launchers.clone(),
            status: Arc::clone(&self.status),
            sets: self.sets.clone(),
        }
    }

    /// Puts a prepared change in force, answers the commands that wait for it, and begins with the next.
    pub(super) fn finish_reload(&mut self, next: Result<Box<NextConfiguration>, ReloadError>) {
        let Some(PendingChange { wanted, waiting }) = self.reload.under_way.take() else { return };
        let is_reload = matches!(wanted, Wanted::File);
        let mut warnings = Vec::new();
        let result = match next {
            // a drain may have begun while the change was prepared
            Ok(_) if self.draining.is_some() || self.is_replaced => Err(ReloadError::Stopping),
            Ok(mut next) => {
                warnings = std::mem::take(&mut next.warnings);
                let said = next.said.clone();
                self.put_in_force(*next, is_reload).map(|()| said)
            }
            Err(error) => Err(error),
        };
        let generation = self.common.live.generation();
        let with_warnings = |first: String| {
            let program = self.program.replaced().filter(|_| is_reload);
            let lines = [first].into_iter().chain(warnings).chain(self.uncovered()).chain(program);
            CommandAnswer { code: 0, text: lines.map(|line| line + "\n").collect() }
        };
        let answer = match result {
            Ok(said) if is_reload => {
                with_warnings(format!("{said}reloaded: generation {generation}"))
            }
            Ok(said) if matches!(wanted, Wanted::Certificates) => with_warnings(said),
            // the program that gave the change reports it by itself
            Ok(said)
                if matches!(wanted, Wanted::Agent(..) | Wanted::Given(_) | Wanted::Sets(_)) =>
            {
                CommandAnswer { code: 0, text: said }
            }
            Err(ReloadError::Renewal(said)) => CommandAnswer { code: 1, text: said },
            Ok(said) => {
                let file = self.named_file().unwrap_or(Path::new("the file")).display();
                let kept = match wanted {
                    Wanted::Set(_, true) => {
                        format!("kept through reloads, until {file} says something else there")
                    }
                    Wanted::Rule(_) => "gone with the next reload".to_owned(),
                    _ => format!(
                        "lost at the next reload, unless {file} says it too; --keep keeps it"
                    ),
                };
                CommandAnswer { code: 0, text: format!("{said}in force, and {kept}\n") }
            }
            Err(error) => {
                if is_reload {
                    self.status.reload_failed();
                }
                CommandAnswer {
                    code: error.code(),
                    text: format!("{error}\nnothing has changed: generation {generation}\n"),
                }
            }
        };
        let what = wanted.name();
        answer.text.lines().for_each(|line| say(format_args!("{what}: {line}")));
        if self.draining.is_none() && !matches!(wanted, Wanted::Sets(_)) {
            self.notifier.ready(&answer.text.trim_end().replace('\n', "; "));
        }
        for reply in waiting {
            // the command's process may have ended
            let _ = reply.send(answer.clone());
        }
        if let Some(task) = self.reload.next.pop_front() {
            self.begin_to_prepare(task);
        }
    }

    fn put_in_force(
        &mut self,
        next: NextConfiguration,
        is_reload: bool,
    ) -> Result<(), ReloadError> {
        let NextConfiguration {
            config,
            plan,
            content,
            certificates,
            applications,
            logs,
            common,
            kept,
            begun,
            admin,
            bans,
            launchers,
            said: _,
            warnings: _,
        } = next;
        // threads are started first: nothing after them can fail, so a reload that fails has changed nothing
        let known = self.numbered;
        let admin = match self.start_new(begun, admin) {
            Ok(admin) => admin,
            Err(error) => {
                let begun: Vec<_> = (known + 1..=self.numbered).collect();
                self.retire(&begun);
                // without threads, clients would wait in the queues of the new sockets for ever
                let wanted = reload::wanted(&self.plan);
                self.listeners().undo(&wanted);
                return Err(ReloadError::Resources(error));
            }
        };
        if let Err(error) = launchers.commit() {
            say(format_args!("{error}"));
        }
        if let ChangeTo::To(admin) = admin {
            std::mem::replace(&mut self.admin, admin).into_iter().for_each(RunningAdmin::leave);
        }
        let has_lost = self.listeners().settle();
        self.common = common;
        self.common.ranks.set(&plan.ranks);
        let trusted = TrustedProxies::shared(&config);
        let current = self.common.live.get();
        let policy = InForce::new(plan.policy_settings(), Some(&*current.policy));
        let policy = Arc::new(policy);
        if let Some(said) = bans {
            self.bans.set_files(said);
        }
        let bans = self.bans.table();
        let refusals = Arc::clone(&current.refusals);
        let sightings = Arc::clone(&current.sightings);
        sightings.switch(config.admin.page);
        let plain = gate::plain_listeners(&plan, &self.listeners());
        let answers = kernel_answers::learner(
            current.policy.gate.as_ref().map(Enforced::gate).as_ref(),
            &config,
            &content,
            &plain,
            bans.is_some(),
            current.answers.as_ref(),
        );
        let before = &current.traces;
        let traces = Tracing::new(&config.traces, before.role, &before.queue);
        let next = ServingSnapshot {
            content,
            logs,
            trusted,
            certificates,
            applications,
            policy,
            bans,
            refusals,
            sightings,
            answers,
            traces,
        };
        spool::bound(next.applications.spool(), &config);
        next.applications.take_effect(Some(&*current.applications), &next.certificates);
        self.shared.iter().for_each(|shared| next.applications.share(&shared.counts));
        let before = self.common.live.replace(Arc::new(next));
        self.common.live.get().policy.tell_gate();
        if let Err(error) = self.common.keep_agent_loop() {
            say(format_args!("no thread for the agent, which rests: {error}"));
        }
        if !Arc::ptr_eq(&before.content, &self.common.live.get().content) {
            before.content.retire();
        }
        self.common.sockets.set(plan.sockets);
        for (number, plan) in &kept {
            let group = self.groups.iter_mut().find(|(known, ..)| known == number);
            group.into_iter().for_each(|(_, _, group)| group.set(plan.settings.clone()));
        }
        let stays = |number: u64| number > known || kept.iter().any(|(kept, _)| *kept == number);
        let leaving: Vec<u64> = self
            .groups
            .iter()
            .filter(|(number, is_retiring, _)| !is_retiring && !stays(*number))
            .map(|(number, ..)| *number)
            .collect();
        (self.plan, self.config) = (plan, config);
        self.limit_connections();
        // before the old groups leave, so that connections on their way reach sockets that are accepted from
        self.attach_gate();
        self.leave(leaving, has_lost);
        self.tell_firewall();
        self.status.changed(&self.common, &self.plan, &self.config, is_reload);
        self.status.overridden(&self.config.assigned);
        self.look_at_bans_later();
        self.watch_ban_files();
        self.watch_sets();
        self.watch_certificates();
        self.keep_acme(is_reload);
        self.keep_up_applications();
        self.watch_for_page();
        self.keep_traces();
        Ok(())
    }

    /// Starts the threads of the new groups and the admin listener.
    fn start_new(
        &mut self,
        begun: Vec<Prepared>,
        admin: ChangeTo<Option<AdminListener>>,
    ) -> io::Result<ChangeTo<Option<RunningAdmin>>> {
        for prepared in begun {
            self.begin(prepared)?;
        }
        Ok(match admin {
            ChangeTo::None => ChangeTo::None,
            ChangeTo::To(admin) => ChangeTo::To(admin.map(AdminListener::start).transpose()?),
        })
    }

    /// Has replaced groups leave. If an address, or the sockets of a class, are not wanted any
    /// more, the groups first accept the connections that are already on their way there.
    fn leave(&mut self, groups: Vec<u64>, has_lost: bool) {
        let wanted = reload::wanted(&self.plan);
        if !(self.listeners().leave(&wanted) | has_lost) {
            return self.retire(&groups);
        }
        // no later reload may keep these groups
        for (number, is_retiring, _) in &mut self.groups {
            *is_retiring |= groups.contains(number);
        }
        let at = Instant::now() + ARRIVAL;
        self.later.push((at, Later::Retire(groups)));
        self.later.push((at + ARRIVAL, Later::Close));
    }

    pub(super) fn retire(&mut self, numbers: &[u64]) {
        for (number, is_retiring, group) in &mut self.groups {
            if numbers.contains(number) {
                *is_retiring = true;
                group.give(LoopOrder::Retire);
            }
        }
        let retiring = self.groups.iter().filter(|(_, is_retiring, _)| *is_retiring);
        let most = retiring.clone().count().saturating_sub(MOST_RETIRING);
        retiring.take(most).for_each(|(_, _, group)| group.give(LoopOrder::Drain));
    }
}
