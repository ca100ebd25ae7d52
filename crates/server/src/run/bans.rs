//! Bans: how commands and files change them, and how they end.

use super::{Event, Later, Server};
use crate::ban_files::ChangedBans;
use crate::command::CommandAnswer;
use crate::gate;
use crate::kernel_answers;
use crate::policy_command::bans;
use crate::upgrade::handed::HandedBan;
use forebay_handler::live::ServingSnapshot;
use forebay_handler::policy::Enforced;
use forebay_sys::clock;
use forebay_sys::stderr::say;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The longest time until bans are checked again. They end by the wall clock, which may be set meanwhile.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

impl Server {
    /// Answers `policy ban`, `policy unban` or `policy bans` with their arguments;
    /// `None` for another command.
    pub(super) fn answer_bans(&mut self, command: &str) -> Option<CommandAnswer> {
        let now_s = clock::unix_coarse_ms() / 1000;
        let snapshot = self.common.live.get();
        let answer = match command.split_once('\n') {
            Some(("policy ban", asked)) => {
                bans::ban(&mut self.bans, asked, snapshot.policy.policy.spared(), now_s)
            }
            Some(("policy unban", asked)) => bans::unban(&mut self.bans, asked, now_s),
            None if matches!(command, "policy bans" | "policy bans all") => {
                let text = bans::show(&self.bans, command.ends_with(" all"), now_s);
                return Some(CommandAnswer { code: 0, text });
            }
            _ => return None,
        };
        if answer.code == 0 {
            answer.text.lines().for_each(|line| say(format_args!("policy: {line}")));
            self.put_bans_in_force();
        }
        Some(answer)
    }

    /// Puts the bans in force, for each connection and request from now on.
    pub(super) fn put_bans_in_force(&mut self) {
        let current = self.common.live.get();
        let bans = self.bans.table();
        let plain = gate::plain_listeners(&self.plan, &self.listeners());
        let answers = kernel_answers::learner(
            current.policy.gate.as_ref().map(Enforced::gate).as_ref(),
            &self.config,
            &current.content,
            &plain,
            bans.is_some(),
            current.answers.as_ref(),
        );
        let next = ServingSnapshot {
            content: Arc::clone(&current.content),
            logs: Arc::clone(&current.logs),
            trusted: Arc::clone(&current.trusted),
            certificates: Arc::clone(&current.certificates),
            applications: Arc::clone(&current.applications),
            policy: Arc::clone(&current.policy),
            bans,
            refusals: Arc::clone(&current.refusals),
            sightings: Arc::clone(&current.sightings),
            answers,
            traces: Arc::clone(&current.traces),
        };
        self.common.live.replace(Arc::new(next));
        self.look_at_bans_later();
    }

    /// Replaces the bans by command with those of the predecessor.
    pub(super) fn restore_bans(&mut self, handed: &[HandedBan]) {
        let (had, now_s) = (!self.bans.records().is_empty(), clock::unix_coarse_ms() / 1000);
        self.bans.restore(handed.iter().filter_map(HandedBan::record), now_s);
        if had || !handed.is_empty() {
            self.put_bans_in_force();
        }
    }

    /// Forgets bans that have ended.
    pub(super) fn end_bans(&mut self) {
        match self.bans.expire(clock::unix_coarse_ms() / 1000) {
            0 => self.look_at_bans_later(),
            ended => {
                say(format_args!("policy: {ended} bans have ended"));
                self.put_bans_in_force();
            }
        }
    }

    /// Starts a thread that watches the files with bans, if there are any.
    pub(super) fn watch_ban_files(&self) {
        let to_main = self.to_main.clone();
        let tell = move |changed| to_main.send(Event::BansChanged(changed)).is_ok();
        if let Err(error) = self.ban_files.watch(&self.config.ban_files, tell) {
            say(format_args!(
                "no thread for policy.ban_files, which are taken over by reloads only: {error}"
            ));
        }
    }

    /// Takes bans from files that have changed, or were read for the first time since they are watched.
    pub(super) fn take_bans_of_files(&mut self, changed: ChangedBans) {
        if changed.paths != self.config.ban_files {
            return;
        }
        match changed.said {
            Ok(said) if self.bans.says_of_files(&said) => {}
            Ok(said) => {
                say(format_args!(
                    "policy: the files of policy.ban_files ban {} networks",
                    said.len()
                ));
                self.bans.set_files(said);
                self.put_bans_in_force();
            }
            Err(error) => say(format_args!("policy: {error}; the bans in force are kept")),
        }
    }

    /// Schedules a look at the bans for the time when the next one ends.
    pub(super) fn look_at_bans_later(&mut self) {
        self.later.retain(|(_, later)| !matches!(later, Later::Bans));
        let now_s = clock::unix_coarse_ms() / 1000;
        if let Some(due_s) = self.bans.next_expiry_s(now_s) {
            let wait = Duration::from_secs(due_s.saturating_sub(now_s)).min(LONGEST_WAIT);
            // the coarse clock may be behind
            self.later.push((Instant::now() + wait + Duration::from_millis(20), Later::Bans));
        }
    }
}
