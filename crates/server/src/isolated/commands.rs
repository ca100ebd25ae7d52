//! How the supervisor handles commands that receive answers, and the changes they make.

use super::changes::{self, Changes};
use super::generation::Generation;
use super::kept_gate::JUDGE;
use super::place::Place;
use super::relayed::{self, RelayedAnswer};
use super::status::{InstanceStatus, Is};
use super::supervisor::{Supervisor, SupervisorEvent};
use crate::command::CommandAnswer;
use crate::control_socket;
use crate::upgrade::handed::HandedBan;
use crossbeam_channel::{Sender as Reply, bounded};
use forebay_config::{GateMode, Role, StageKind};
use forebay_sys::stderr::say;
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// How often, and how many times, receive is asked to judge in the kernel: together the longest
/// time that a stage may take until it serves.
const JUDGE_AGAIN: Duration = Duration::from_millis(200);
const JUDGE_TRIES: usize = 300;

impl Supervisor {
    /// Has receive answer a command. A command that changes something waits for the one before it,
    /// so that the known changes are never older than those in force. While new stages rise it
    /// waits, too, and then goes to them.
    pub(super) fn relay(&mut self, command: String, reply: Reply<CommandAnswer>) {
        let changes = relayed::changes(&command);
        let why = match (self.place, &self.serving) {
            (Place::Handing, _) if changes => {
                "another process is about to take the place of this one: wait for forebay upgrade"
            }
            (_, None) => "the stages are ending",
            (_, Some(serving)) if serving.config.isolated.is_behind => {
                "no clients come to this machine: ask the server that accepts them"
            }
            (_, Some(_)) if changes && (self.rising.is_some() || self.changing > 0) => {
                return self.held.push((command, reply));
            }
            (_, Some(serving)) => {
                let (generation, socket) = (self.served_by, relayed::socket(serving.directory()));
                let (tell, to) = (self.tell.clone(), reply.clone());
                let heard = move |answer, changed| {
                    let change = changes.then_some(changed);
                    let relayed = RelayedAnswer { answer, change, generation, reply: to };
                    drop(tell.send(SupervisorEvent::Relayed(relayed)));
                };
                match relayed::ask(socket, command, heard) {
                    Ok(()) => return self.changing += usize::from(changes),
                    Err(_) => "there are no threads left to ask receive",
                }
            }
        };
        // the client may have gone away
        let _ = reply.send(CommandAnswer::failed(why));
    }

    /// Handles receive's answer. A change is stored, so that it outlives receive, before the
    /// command gets its answer.
    pub(super) fn hear_answer(&mut self, relayed: RelayedAnswer) {
        let RelayedAnswer { mut answer, change, generation, reply } = relayed;
        if let Some(changed) = change {
            self.changing = self.changing.saturating_sub(1);
            self.changed_in = generation;
            let taken = changed.map_or(Ok(()), |text| self.take_changes(generation, &text));
            if let Err(error) = taken {
                let why = format!("the change holds, and is lost if receive ends: {error}");
                answer = CommandAnswer::failed(why);
            }
        }
        // the client may have gone away
        let _ = reply.send(answer);
    }

    /// Keeps the changes that receive has reported, and writes them for the next receive.
    ///
    /// # Errors
    /// When the next receive would not get the changes, which is logged to standard error, too.
    pub(super) fn take_changes(&mut self, generation: u64, text: &str) -> io::Result<()> {
        let Some(serving) = self.serving.as_ref().filter(|_| generation == self.served_by) else {
            return Ok(());
        };
        let taken = Changes::read(text).and_then(|changes| {
            changes.leave_in(serving.directory())?;
            self.changes = changes;
            match &self.rising {
                Some(rising) => self.changes.after_reload().leave_in(rising.generation.directory()),
                None => Ok(()),
            }
        });
        taken.inspect_err(|error| {
            say(format_args!("what commands have changed is lost if receive ends: {error}"));
        })
    }

    /// Asks a new receive for its changes, because the keys of tickets must outlive it, too.
    pub(super) fn ask_for_changes(&self, generation: u64, directory: &Path) {
        let (socket, tell) = (relayed::socket(directory), self.tell.clone());
        let ask = move || {
            let changed = relayed::changed_by_now(&socket);
            changed.map(|text| tell.send(SupervisorEvent::Changed(generation, text)))
        };
        // without a thread the keys are fetched at the next change
        let _ = thread::Builder::new().name("relay".to_owned()).spawn(ask);
    }

    /// Restores the last bans of the predecessor, where it kept its own until it was replaced.
    pub(super) fn restore_bans(&mut self, bans: &[HandedBan]) {
        if !self.changes.set_bans(bans) {
            return;
        }
        let left = self.serving.as_ref().map_or(Ok(()), |it| self.changes.leave_in(it.directory()));
        let lost = |why: &str| {
            let why = why.trim_end();
            say(format_args!("upgrade: bans of the last moments are not in force: {why}"));
        };
        match left.and_then(|()| Ok(serde_json::to_string(bans)?)) {
            Ok(text) => {
                let (reply, answers) = bounded(1);
                self.relay(format!("{}{text}", changes::BANS), reply);
                let hear = move || {
                    if let Ok(CommandAnswer { code: 1.., text }) = answers.recv() {
                        lost(&text);
                    }
                };
                // without a thread a failure is not reported
                let _ = thread::Builder::new().name("relay".to_owned()).spawn(hear);
            }
            Err(error) => lost(&error.to_string()),
        }
    }

    /// Connects a program that stays to receive. Without a receive the connection is closed with an
    /// error line.
    pub(super) fn relay_session(&self, program: UnixStream, received: Vec<u8>) {
        let end = program.try_clone();
        let relayed = match &self.serving {
            Some(serving) => {
                let socket = relayed::socket(serving.directory());
                self.sessions.relay(program, received, (self.served_by, &socket))
            }
            None => Err(io::Error::other("the stages are ending")),
        };
        if let Err(error) = relayed {
            say(format_args!("a program that wants to change rules has to connect again: {error}"));
            let line = serde_json::json!({ "ok": false, "error": error.to_string() });
            // the program may have gone
            let _ = end.and_then(|mut program| program.write_all(format!("{line}\n").as_bytes()));
        }
    }

    /// Has the receive of these stages judge in the kernel from now on, and set the firewall's
    /// rules, also where those of another generation were in force since.
    pub(super) fn have_judged_by(&self, generation: &Generation) {
        if generation.config.gate == GateMode::Off && self.common.firewall.is_none() {
            return;
        }
        let (gate, number) = (Arc::clone(&self.common.gate), generation.number);
        let socket = relayed::socket(generation.directory());
        let ask = move || {
            // a receive that is being restarted gets the command once it serves
            let mut last = String::new();
            for _ in 0..JUDGE_TRIES {
                let answer =
                    control_socket::ask(&socket, JUDGE).unwrap_or_else(CommandAnswer::failed);
                if answer.code == 0 || !gate.is_judged_by(number) {
                    return;
                }
                last = answer.text;
                thread::sleep(JUDGE_AGAIN);
            }
            say(format_args!("gate: receive does not judge: {}", last.trim_end()));
        };
        if let Err(error) = thread::Builder::new().name("judge".to_owned()).spawn(ask) {
            say(format_args!("gate: receive is not asked to judge: {error}"));
        }
    }

    /// The status of all processes, and of other software in their place.
    pub(super) fn instances(&self) -> Vec<InstanceStatus> {
        let others = |serving: &Generation| {
            let of = |role: Role| {
                serving.config.isolated.asked(role).map(move |other| InstanceStatus {
                    role,
                    name: other.to.to_string(),
                    is: Is::Other,
                    address: Some(other.to.clone()),
                    restarts: 0,
                    is_elsewhere: other.kind != StageKind::Foreign,
                })
            };
            Role::ALL.into_iter().flat_map(of).collect::<Vec<_>>()
        };
        let others = self.serving.iter().flat_map(others);
        let own = self.serving.iter().flat_map(Generation::instances);
        let rising = self.rising.iter().flat_map(|rising| rising.generation.instances());
        let rising = rising.filter(|one| matches!(one.is, Is::Starting(_)));
        let leaving = self.leaving.iter().flat_map(Generation::instances);
        let leaving = leaving.filter(|one| matches!(one.is, Is::Leaving(_)));
        let mut all: Vec<_> = own.chain(others).chain(rising).chain(leaving).collect();
        all.sort_by_key(|one| one.role.number());
        all
    }
}
