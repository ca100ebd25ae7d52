//! What the supervisor does with commands that receive answers, and with what they change.

use super::changes::Changes;
use super::place::Place;
use super::relayed::{self, RelayedAnswer};
use super::supervisor::{Supervisor, SupervisorEvent};
use crate::command::CommandAnswer;
use crossbeam_channel::Sender as Reply;
use forebay_sys::stderr::say;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;

impl Supervisor {
    /// Has receive answer a command. One that changes something waits for the one before it, so that what is known of
    /// changes is never older than it was; and for stages that rise: it is for them.
    pub(super) fn relay(&mut self, command: String, reply: Reply<CommandAnswer>) {
        let changes = relayed::changes(&command);
        let why = match (self.place, &self.serving) {
            (Place::Handing, _) if changes => {
                "another process is about to take the place of this one: wait for forebay upgrade"
            }
            (_, None) => "the stages are ending",
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
        // a command that went away needs no answer
        let _ = reply.send(CommandAnswer::failed(why));
    }

    /// What was changed outlives receive before the command hears that it holds.
    pub(super) fn hear_answer(&mut self, relayed: RelayedAnswer) {
        let RelayedAnswer { answer, change, generation, reply } = relayed;
        if let Some(changed) = change {
            self.changing = self.changing.saturating_sub(1);
            self.changed_in = generation;
            changed.iter().for_each(|text| self.take_changes(generation, text));
        }
        // a command that went away needs no answer
        let _ = reply.send(answer);
    }

    pub(super) fn take_changes(&mut self, generation: u64, text: &str) {
        let Some(serving) = self.serving.as_ref().filter(|_| generation == self.served_by) else {
            return;
        };
        let taken = Changes::read(text).and_then(|changes| {
            changes.leave_in(serving.directory())?;
            self.changes = changes;
            match &self.rising {
                Some(rising) => self.changes.after_reload().leave_in(rising.generation.directory()),
                None => Ok(()),
            }
        });
        if let Err(error) = taken {
            say(format_args!("what commands have changed is lost if receive ends: {error}"));
        }
    }

    /// The keys of tickets outlive receive, too.
    pub(super) fn ask_for_changes(&self, generation: u64, directory: &Path) {
        let (socket, tell) = (relayed::socket(directory), self.tell.clone());
        let ask = move || {
            let changed = relayed::changed_by_now(&socket);
            changed.map(|text| tell.send(SupervisorEvent::Changed(generation, text)))
        };
        // without a thread they are known after the next change
        let _ = thread::Builder::new().name("relay".to_owned()).spawn(ask);
    }

    /// A program that stays speaks with receive. Without it the connection ends.
    pub(super) fn relay_session(&self, program: UnixStream, received: Vec<u8>) {
        let Some(serving) = &self.serving else { return };
        let socket = relayed::socket(serving.directory());
        if let Err(error) = self.sessions.relay(program, received, (self.served_by, &socket)) {
            say(format_args!("a program that wants to change rules has to connect again: {error}"));
        }
    }
}
