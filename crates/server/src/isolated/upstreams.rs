//! `forebay upstream` with stages: the processes of respond ask the applications, so each of them
//! gets the command.

use super::asking::AskingProcess;
use super::drained::{self, DrainedUpstreams};
use super::generation::Generation;
use super::supervisor::{Supervisor, SupervisorEvent};
use crate::command::CommandAnswer;
use crossbeam_channel::Sender as Reply;
use forebay_config::Role;
use std::io;
use std::sync::mpsc::Sender;
use std::thread;

/// The beginning of the answer of a process that has no such upstream.
const UNKNOWN: &str = "no upstream is called";

/// The answer of a process that asks no applications.
const NONE: &str = "no applications\n";

/// A command that goes to all processes that ask applications.
struct UpstreamQuestion {
    asked: Vec<AskingProcess>,
    known: DrainedUpstreams,
    /// The generation that is asked.
    generation: u64,
    tell: Sender<SupervisorEvent>,
}

/// What a process has answered, or why it gives no answer.
struct ProcessAnswer {
    role: Role,
    number: u64,
    answer: Result<CommandAnswer, String>,
}

impl Supervisor {
    /// Has each process that asks applications answer a command.
    pub(super) fn ask_upstreams(&self, question: &str, reply: Reply<CommandAnswer>) {
        let serving = self.serving.as_ref();
        let asked = serving.map(AskingProcess::all).unwrap_or_default();
        let why = match (serving, asked.is_empty()) {
            (None, _) => Some("the stages are ending"),
            (_, true) => Some("no process here asks applications"),
            _ => None,
        };
        if let Some(why) = why {
            // the client may have gone away
            return drop(reply.send(CommandAnswer::failed(why)));
        }
        let (known, tell) = (self.drained.clone(), self.tell.clone());
        let generation = serving.map_or(self.served_by, |serving| serving.number);
        let command = UpstreamQuestion { asked, known, generation, tell };
        let (question, failed) = (question.to_owned(), reply.clone());
        let ask = move || {
            let answers = command.answers(&question);
            let name = question.contains(' ').then(|| name_of(&answers)).flatten();
            let silent = command.silent(&answers);
            let _ = reply.send(together(answers));
            if let Some(name) = name {
                command.known.repeat(silent, name);
            }
        };
        if drained::begin(ask).is_err() {
            let _ = failed.send(CommandAnswer::failed("there are no threads left to ask respond"));
        }
    }

    /// Sends an upstream that stages have drained or resumed to those that have replaced them since.
    pub(super) fn repeat_upstream(&self, generation: u64, name: String) {
        if let Some(serving) = self.serving.as_ref().filter(|it| it.number != generation) {
            self.drained.repeat(AskingProcess::all(serving), name);
        }
    }

    /// Sends the drains to processes that were started since the last call.
    pub(super) fn tell_drained(&mut self) {
        let Some(serving) = &mut self.serving else { return };
        let started = serving.take_restarted();
        if started.is_empty() {
            return;
        }
        let is_new = |one: &AskingProcess| started.contains(&(one.role, one.number));
        let all = AskingProcess::all(serving).into_iter();
        self.drained.tell(all.filter(is_new).collect());
    }

    /// Sends the drains to all processes of stages that begin to serve.
    pub(super) fn tell_all_drained(&self, generation: &Generation) {
        self.drained.tell(AskingProcess::all(generation));
    }
}

impl UpstreamQuestion {
    /// The answers of all processes. A name with `#` is the place of a server, where another process
    /// may have another server: the first process that knows it says which server is meant.
    fn answers(&self, question: &str) -> Vec<ProcessAnswer> {
        let place = question.split_once(' ').filter(|(_, name)| name.contains('#'));
        let Some((what, _)) = place else {
            return self.ask_all(self.asked.iter().collect(), question);
        };
        let mut without = Vec::new();
        for (index, process) in self.asked.iter().enumerate() {
            let first = self.ask_one(process, question);
            let answers = vec![first];
            let Some(name) = name_of(&answers) else {
                without.extend(answers);
                continue;
            };
            let others = self.asked.iter().enumerate().filter(|(other, _)| *other != index);
            let others = others.map(|(_, other)| other).collect();
            let others = self.ask_all(others, &format!("{what} {name}"));
            return answers.into_iter().chain(others).collect();
        }
        without
    }

    /// Asks these processes at the same time: one that hangs delays no other.
    fn ask_all(&self, processes: Vec<&AskingProcess>, question: &str) -> Vec<ProcessAnswer> {
        thread::scope(|scope| {
            let mut asked = Vec::new();
            for process in processes {
                let ask = move || self.ask_one(process, question);
                let thread = thread::Builder::new().name("upstreams".to_owned());
                asked.push((process, thread.spawn_scoped(scope, ask)));
            }
            let mut answers = Vec::new();
            for (process, thread) in asked {
                let heard = thread.and_then(|thread| {
                    thread.join().map_err(|_| io::Error::other("the thread that asked has failed"))
                });
                answers.push(heard.unwrap_or_else(|error| ProcessAnswer {
                    role: process.role,
                    number: process.number,
                    answer: Err(error.to_string()),
                }));
            }
            answers
        })
    }

    /// Asks one process. A drain is known as soon as one process has carried it out, since other
    /// stages may serve before all have answered.
    fn ask_one(&self, process: &AskingProcess, question: &str) -> ProcessAnswer {
        let answer = process.ask(question);
        if let Ok(answer) = &answer
            && answer.code == 0
            && let Some(name) = self.known.note(question, &answer.text)
        {
            // the send fails only when the loop has ended
            let _ = self.tell.send(SupervisorEvent::UpstreamSet(self.generation, name));
        }
        let answer = answer.map_err(|why| why.to_string());
        ProcessAnswer { role: process.role, number: process.number, answer }
    }

    /// The processes that have given no answer.
    fn silent(&self, answers: &[ProcessAnswer]) -> Vec<AskingProcess> {
        let is_silent = |process: &&AskingProcess| {
            answers.iter().any(|one| {
                one.role == process.role && one.number == process.number && one.answer.is_err()
            })
        };
        self.asked.iter().filter(is_silent).cloned().collect()
    }
}

/// The name of the upstream that a process has drained or resumed.
fn name_of(answers: &[ProcessAnswer]) -> Option<String> {
    let mut heard = answers.iter().filter_map(|one| one.answer.as_ref().ok());
    let done = heard.find(|answer| answer.code == 0)?;
    drained::name_in(&done.text).map(str::to_owned)
}

/// Combines the answers: an equal one of a stage is shown once, and different ones each. The result
/// fails if one does, unless another process knows the upstream in question, and if a process gives
/// no answer.
fn together(answers: Vec<ProcessAnswer>) -> CommandAnswer {
    let mut silent = String::new();
    let mut heard = Vec::new();
    for ProcessAnswer { role, number, answer } in answers {
        match answer {
            Ok(answer) => heard.push((role, number, answer)),
            Err(why) => silent += &format!("{role} {number} gives no answer: {why}\n"),
        }
    }
    if heard.iter().any(|(_, _, answer)| answer.code == 0) {
        heard.retain(|(_, _, answer)| !answer.text.starts_with(UNKNOWN));
    }
    // processes that ask no applications get no line beside others
    if heard.iter().any(|(_, _, answer)| answer.text != NONE) {
        heard.retain(|(_, _, answer)| answer.text != NONE);
    }
    let code = heard.iter().map(|(_, _, answer)| answer.code).max().unwrap_or(0);
    let code = code.max(u8::from(!silent.is_empty()));
    CommandAnswer { code, text: said(&heard) + &silent }
}

/// The texts of answers, under the names of the stages or processes if there are several.
fn said(heard: &[(Role, u64, CommandAnswer)]) -> String {
    let mut texts: Vec<(String, &str)> = Vec::new();
    for role in Role::ALL {
        let own: Vec<_> = heard.iter().filter(|(of, _, _)| *of == role).collect();
        let Some(&(_, _, first)) = own.first() else { continue };
        if own.iter().all(|(_, _, answer)| answer.text == first.text) {
            texts.push((role.to_string(), first.text.as_str()));
            continue;
        }
        for (role, number, answer) in own {
            texts.push((format!("{role} {number}"), answer.text.as_str()));
        }
    }
    match &texts[..] {
        [(_, alone)] => (*alone).to_owned(),
        _ => texts.iter().map(|(name, text)| format!("{name}:\n{text}")).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_all_say_is_said_once() {
        let answer = |code, text: &str| CommandAnswer { code, text: text.to_owned() };
        let all = |answers: Vec<(Role, u64, Result<CommandAnswer, String>)>| {
            let answers = answers.into_iter();
            let answers =
                answers.map(|(role, number, answer)| ProcessAnswer { role, number, answer });
            let CommandAnswer { code, text } = together(answers.collect());
            (code, text)
        };
        let first = || (Role::Respond, 1, Ok(answer(0, "a\n")));
        let of = |second| all(vec![first(), (Role::Respond, 2, Ok(second))]);
        assert_eq!(of(answer(0, "a\n")), (0, "a\n".to_owned()));
        assert_eq!(of(answer(1, "b\n")), (1, "respond 1:\na\nrespond 2:\nb\n".to_owned()));
        assert_eq!(of(answer(1, "no upstream is called \"c\"\n")), (0, "a\n".to_owned()));
        assert_eq!(of(answer(0, NONE)), (0, "a\n".to_owned()));
        let hangs = all(vec![first(), (Role::Respond, 2, Err("late".to_owned()))]);
        assert_eq!(hangs, (1, "a\nrespond 2 gives no answer: late\n".to_owned()));
        let passed = (Role::Receive, 1, Ok(answer(0, "b\n")));
        let apart = all(vec![passed, first(), (Role::Respond, 2, Ok(answer(0, "a\n")))]);
        assert_eq!(apart, (0, "receive:\nb\nrespond:\na\n".to_owned()));
    }
}
