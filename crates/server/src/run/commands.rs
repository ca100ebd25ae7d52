//! Answers to commands: a command that changes something waits for the change, others are answered at once.

use super::Server;
use super::takeover::Wanted;
use crate::command::{CommandAnswer, CommandKind, CommandRequest};
use crate::isolated::{changes, kept_gate};
use crate::kernel_answers;
use crate::policy_command::{self, CommandContext, ConnectionBounds};
use crate::reload::RuleChange;
use crate::upgrade::handed::{Handed, HandedBan, HandedOverride};
use crate::upstream_command;
use crate::why;
use forebay_config::PolicyOverride;
use forebay_engine::worker;
use forebay_metrics::Counter;
use forebay_sys::clock;
use forebay_sys::stderr::say;

impl Server {
    pub(super) fn answer(&mut self, asked: CommandRequest) {
        let CommandRequest { asked, reply } = asked;
        let command = match asked {
            CommandKind::Command(command) => command,
            CommandKind::Change(owner, change) => {
                return self.ask_for(Wanted::Agent(owner, change), Some(reply));
            }
            CommandKind::TakeOver(stream) => return self.hand_to(stream, &reply),
            // the control socket serves sessions itself
            CommandKind::Session(..) => return,
        };
        if let Some(answer) = self.answer_bans(&command) {
            // the command's process may have ended
            let _ = reply.send(answer);
            return;
        }
        match command.as_str() {
            // the arms of stages come first: a stage refuses a reload, and it alone obeys the
            // supervisor's commands
            "reload" if self.config.place.is_some() => {
                let why = "a stage is replaced by the server that has started it";
                let _ = reply.send(CommandAnswer::failed(why));
            }
            changes::ASKED_BY if self.config.place.is_some() => {
                let _ = reply.send(self.changes());
            }
            other if self.config.place.is_some() && other.starts_with(changes::BANS) => {
                let bans = serde_json::from_str::<Vec<HandedBan>>(&other[changes::BANS.len()..]);
                let answer = match bans {
                    Ok(bans) => {
                        self.restore_bans(&bans);
                        CommandAnswer { code: 0, text: String::new() }
                    }
                    Err(error) => CommandAnswer::failed(error),
                };
                let _ = reply.send(answer);
            }
            other if self.config.place.is_some() && other.starts_with(changes::LEAVE) => {
                match serde_json::from_str(&other[changes::LEAVE.len()..]) {
                    Ok(left) => self.leave_for_upgrade(left, reply),
                    Err(error) => _ = reply.send(CommandAnswer::failed(error)),
                }
            }
            kept_gate::JUDGE if self.config.place.is_some() => {
                let _ = reply.send(self.judge());
            }
            "reload" => self.ask_for(Wanted::File, Some(reply)),
            "status" => {
                let _ = reply.send(CommandAnswer { code: 0, text: self.status_text() });
            }
            other
                if other.starts_with("policy set\n") || other.starts_with("policy set keep\n") =>
            {
                let assignments = other.lines().skip(1).map(str::to_owned).collect();
                let is_kept = other.starts_with("policy set keep");
                self.ask_for(Wanted::Set(assignments, is_kept), Some(reply));
            }
            other if other.starts_with("policy rule add\n") => {
                let mut lines = other.lines().skip(1).map(str::to_owned);
                let name = lines.next().unwrap_or_default();
                self.ask_for(Wanted::Rule(RuleChange::Add(name, lines.collect())), Some(reply));
            }
            other if other.starts_with("policy rule remove\n") => {
                let name = other.lines().nth(1).unwrap_or_default().to_owned();
                self.ask_for(Wanted::Rule(RuleChange::Remove(name)), Some(reply));
            }
            "gate answers" => {
                let snapshot = self.common.live.get();
                let has_bans = snapshot.bans.is_some();
                let report =
                    kernel_answers::report(snapshot.answers.as_ref(), &self.config, has_bans);
                let _ = reply.send(report);
            }
            other if other.starts_with("why ") => {
                let refusals = &self.common.live.get().refusals;
                let now_ms = clock::unix_coarse_ms();
                let _ = reply.send(why::answer(&other["why ".len()..], refusals, now_ms));
            }
            other => {
                let answer = match other.strip_prefix("policy ") {
                    Some(question) => {
                        let in_force = &self.common.live.get().policy;
                        let totals = &self.common.register.totals();
                        let agent_loop = &self.common.agent_loop;
                        let (connections, connections_per_client) = self.common.admission.limits();
                        let open = self.common.admission.open();
                        let bounds = ConnectionBounds { open, connections, connections_per_client };
                        let config = &self.config;
                        let firewall = self.common.firewall.as_deref();
                        let known = CommandContext {
                            config,
                            in_force,
                            totals,
                            agent_loop,
                            firewall,
                            bounds,
                        };
                        policy_command::answer(question, &known)
                    }
                    None if other.starts_with("upgrade ") => {
                        self.answer_upgrade(&other["upgrade ".len()..])
                    }
                    None => match other.strip_prefix("upstream ") {
                        Some(question) => {
                            let applications = &self.common.live.get().applications;
                            let now_ms = worker::read_clocks().monotonic_ms;
                            let config = &self.config;
                            let answer =
                                upstream_command::answer(question, config, applications, now_ms);
                            // changes are logged, a list is not
                            if !question.starts_with("list") {
                                let said = answer.text.lines();
                                said.for_each(|line| say(format_args!("upstream: {line}")));
                            }
                            answer
                        }
                        None => CommandAnswer::unknown(other),
                    },
                };
                let _ = reply.send(answer);
            }
        }
    }

    /// The changes that operators have made, for the supervisor.
    fn changes(&self) -> CommandAnswer {
        let handed = Handed {
            bans: HandedBan::of(&self.bans),
            overrides: HandedOverride::all(&self.config),
            tickets: self.common.live.get().certificates.tickets(),
            ..Handed::default()
        };
        match serde_json::to_string(&handed) {
            Ok(text) => CommandAnswer { code: 0, text },
            Err(error) => CommandAnswer::failed(error),
        }
    }

    /// The state of the server, and what differs from the file.
    fn status_text(&self) -> String {
        let now_s = clock::unix_coarse_ms() / 1000;
        let [by_command, by_file] = self.bans.count(now_s);
        let totals = self.common.register.totals();
        let (connections, requests) =
            (totals.get(Counter::BannedConnections), totals.get(Counter::BannedRequests));
        let mut overrides = String::new();
        for PolicyOverride { assignment, is_kept, .. } in &self.config.assigned {
            let until = if *is_kept { "kept through reloads" } else { "until the next reload" };
            overrides += &format!("policy set: {assignment} ({until})\n");
        }
        format!(
            "one process serves; there are no stages\n\
             bans: {by_command} by command, {by_file} by files; refused so far: {connections} connections, \
             {requests} requests\n{overrides}{}",
            self.launchers.remarks()
        )
    }
}
