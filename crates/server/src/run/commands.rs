//! What commands are answered: those that change something wait for that, the others hear at once.

use super::Server;
use super::takeover::Wanted;
use crate::command::{CommandAnswer, CommandKind, CommandRequest};
use crate::policy_command::{self, CommandContext, ConnectionBounds};
use crate::upstream_command;
use forebay_engine::worker;
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
        };
        match command.as_str() {
            "reload" => self.ask_for(Wanted::File, Some(reply)),
            "status" => {
                let text = "one process serves; only the engine isolated has stages\n".to_owned();
                let _ = reply.send(CommandAnswer { code: 0, text });
            }
            other if other.starts_with("policy set\n") => {
                let assignments = other.lines().skip(1).map(str::to_owned).collect();
                self.ask_for(Wanted::Set(assignments), Some(reply));
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
                            let answer = upstream_command::answer(question, applications, now_ms);
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
}
