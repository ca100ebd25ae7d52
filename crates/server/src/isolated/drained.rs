//! Upstreams that commands have drained. The supervisor knows them, and announces them to processes
//! of respond that start later.

use super::asking::AskingProcess;
use forebay_sys::stderr::say;
use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How often a command is sent to a process that has not carried it out, and for how long: the
/// longest time that a process may take until it serves.
const AGAIN: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(60);

/// The wait after a refusal: until a server of a service is known, the name service is asked.
const AGAIN_REFUSED: Duration = Duration::from_secs(5);

/// The upstreams that were drained by commands, under the names that lists show.
#[derive(Clone, Default)]
pub(super) struct DrainedUpstreams(Arc<Mutex<BTreeSet<String>>>);

impl DrainedUpstreams {
    fn lock(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has(&self, name: &str) -> bool {
        self.lock().contains(name)
    }

    /// Records a command that has succeeded, and returns the name of the upstream if this is news.
    /// The name is that of the answer: the command may write the same upstream differently.
    pub(super) fn note(&self, question: &str, answer: &str) -> Option<String> {
        let (what, _) = question.split_once(' ')?;
        let name = name_in(answer)?;
        let is_news = match what {
            "drain" => self.lock().insert(name.to_owned()),
            "resume" => self.lock().remove(name),
            _ => false,
        };
        is_news.then(|| name.to_owned())
    }

    /// Sends the drains to processes that were just started.
    pub(super) fn tell(&self, processes: Vec<AskingProcess>) {
        let names = self.lock().clone();
        if !names.is_empty() {
            self.settle_all(processes, &names);
        }
    }

    /// Sends the state of one upstream to processes that have not got the command.
    pub(super) fn repeat(&self, processes: Vec<AskingProcess>, name: String) {
        self.settle_all(processes, &BTreeSet::from([name]));
    }

    /// Settles upstreams in each process on a thread of its own, so that one that hangs delays no
    /// other.
    fn settle_all(&self, processes: Vec<AskingProcess>, names: &BTreeSet<String>) {
        for process in processes {
            let (known, names) = (self.clone(), names.clone());
            let settle = move || {
                for name in names.iter().filter(|name| process.may_know(name)) {
                    known.settle(&process, name);
                }
            };
            if let Err(error) = begin(settle) {
                say(format_args!("drained upstreams are asked by new processes: {error}"));
            }
        }
    }

    /// Drains or resumes an upstream in a process, as commands have it at that moment. A refusal is
    /// no end: the process may not have looked at the name service yet.
    fn settle(&self, process: &AskingProcess, name: &str) {
        let begun = Instant::now();
        while begun.elapsed() < LONGEST {
            let is_drained = self.has(name);
            let what = if is_drained { "drain" } else { "resume" };
            match process.ask(&format!("{what} {name}")) {
                Ok(answer) if answer.code == 0 => {
                    // another command may have come meanwhile
                    if self.has(name) == is_drained {
                        return;
                    }
                }
                _ if process.is_gone() => return,
                // the process logs each refusal
                Ok(_) => thread::sleep(AGAIN_REFUSED),
                Err(_) => thread::sleep(AGAIN),
            }
        }
        let not = if self.has(name) { "drained" } else { "resumed" };
        say(format_args!("{name} is not {not} in {process}"));
    }
}

/// The name of the upstream with which the answer to `drain` or `resume` begins.
pub(super) fn name_in(answer: &str) -> Option<&str> {
    answer.split_once(" is ").map(|(name, _)| name)
}

/// Runs `work` on a thread of its own.
///
/// # Errors
/// Lack of threads.
pub(super) fn begin(work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name("upstreams".to_owned()).spawn(work).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_resumed_is_not_told_again() {
        let known = DrainedUpstreams::default();
        known.note("drain http://10.0.0.1", "10.0.0.1:80 is drained: it gets no more requests\n");
        known.note("drain 10.0.0.2:80", "10.0.0.2:80 is drained: it gets no more requests\n");
        known.note("resume 10.0.0.1:80", "10.0.0.1:80 is asked again\n");
        assert_eq!(known.note("list", "what is there is listed"), None);
        assert_eq!(known.note("drain 10.0.0.2", "10.0.0.2:80 is drained: again\n"), None);
        assert_eq!(known.lock().iter().collect::<Vec<_>>(), ["10.0.0.2:80"]);
    }
}
