//! `forebay upstream` with stages: the processes of respond ask the applications, so each of them
//! gets the command.

use super::drained;
use super::generation::Generation;
use super::relayed;
use super::supervisor::Supervisor;
use crate::command::CommandAnswer;
use crate::control_socket;
use crossbeam_channel::Sender;
use forebay_config::Role;
use std::path::PathBuf;

/// The beginning of the answer of a process that has no such upstream.
const UNKNOWN: &str = "no upstream is called";

/// The answer of a process that asks no applications.
const NONE: &str = "no applications\n";

impl Supervisor {
    /// Has each process that asks applications answer a command.
    pub(super) fn ask_upstreams(&self, question: &str, reply: Sender<CommandAnswer>) {
        let serving = self.serving.as_ref();
        let asked = serving.map(asked).unwrap_or_default();
        let why = match (serving, asked.is_empty()) {
            (None, _) => Some("the stages are ending"),
            (_, true) => Some("no process here asks applications"),
            _ => None,
        };
        if let Some(why) = why {
            // the client may have gone away
            return drop(reply.send(CommandAnswer::failed(why)));
        }
        let (question, known, failed) = (question.to_owned(), self.drained.clone(), reply.clone());
        let ask = move || {
            let command = format!("upstream {question}");
            let answers = asked.into_iter().map(|(name, socket)| {
                (name, control_socket::ask(&socket, &command).unwrap_or_else(CommandAnswer::failed))
            });
            let answers: Vec<_> = answers.collect();
            if let Some((_, answer)) = answers.iter().find(|(_, answer)| answer.code == 0) {
                known.note(&question, &answer.text);
            }
            let _ = reply.send(together(answers));
        };
        if drained::begin(ask).is_err() {
            let _ = failed.send(CommandAnswer::failed("there are no threads left to ask respond"));
        }
    }

    /// Sends the drains to processes of respond that were started since the last call.
    pub(super) fn tell_drained(&mut self) {
        let sockets = self.serving.iter_mut().flat_map(|serving| {
            let directory = serving.directory().to_owned();
            let started = serving.take_restarted().into_iter();
            let started = started.filter(|(role, _)| *role != Role::Process);
            started.map(move |(role, number)| relayed::socket_of(&directory, role, number))
        });
        self.drained.tell(sockets.collect());
    }

    /// Sends the drains to all processes of stages that begin to serve.
    pub(super) fn tell_all_drained(&self, generation: &Generation) {
        self.drained.tell(asked(generation).into_iter().map(|(_, socket)| socket).collect());
    }
}

/// The processes that ask servers other than stages, by name, with their control sockets: respond,
/// and receive where it passes connections on.
fn asked(serving: &Generation) -> Vec<(String, PathBuf)> {
    let config = &serving.config;
    let passes = (!config.tcp.is_empty()).then_some(Role::Receive);
    let asked = passes.into_iter().chain([Role::Respond]).flat_map(|role| {
        let own = 1..=config.isolated.instances(role);
        own.map(move |number| (role, number))
    });
    let at = |(role, number)| {
        (format!("{role} {number}"), relayed::socket_of(serving.directory(), role, number))
    };
    asked.map(at).collect()
}

/// Combines the answers: an equal one is shown once, and different ones each. The result fails if
/// one does, unless another process knows the upstream in question.
fn together(mut answers: Vec<(String, CommandAnswer)>) -> CommandAnswer {
    if answers.iter().any(|(_, answer)| answer.code == 0) {
        answers.retain(|(_, answer)| !answer.text.starts_with(UNKNOWN));
    }
    // processes that ask no applications get no line beside others
    if answers.iter().any(|(_, answer)| answer.text != NONE) {
        answers.retain(|(_, answer)| answer.text != NONE);
    }
    let code = answers.iter().map(|(_, answer)| answer.code).max().unwrap_or(0);
    let mut texts = answers.iter().map(|(_, answer)| &answer.text);
    let first = texts.next().cloned().unwrap_or_default();
    let text = match texts.all(|text| *text == first) {
        true => first,
        false => answers.iter().map(|(name, answer)| format!("{name}:\n{}", answer.text)).collect(),
    };
    CommandAnswer { code, text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_all_say_is_said_once() {
        let answer = |code, text: &str| CommandAnswer { code, text: text.to_owned() };
        let of = |second| {
            let both =
                [("respond 1".to_owned(), answer(0, "a\n")), ("respond 2".to_owned(), second)];
            let CommandAnswer { code, text } = together(both.into());
            (code, text)
        };
        assert_eq!(of(answer(0, "a\n")), (0, "a\n".to_owned()));
        assert_eq!(of(answer(1, "b\n")), (1, "respond 1:\na\nrespond 2:\nb\n".to_owned()));
        assert_eq!(of(answer(1, "no upstream is called \"c\"\n")), (0, "a\n".to_owned()));
        assert_eq!(of(answer(0, NONE)), (0, "a\n".to_owned()));
    }
}
