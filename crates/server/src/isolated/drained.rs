//! Upstreams that commands have drained. The supervisor knows them, and announces them to processes
//! of respond that start later.

use crate::control_socket;
use forebay_sys::stderr::say;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// How often, and how many times, a drain is sent to a process that was just started: together the
/// longest time that it may take until it serves.
const AGAIN: Duration = Duration::from_millis(100);
const TRIES: usize = 600;

/// The upstreams that were drained by commands, under the names that lists show.
#[derive(Clone, Default)]
pub(super) struct DrainedUpstreams(Arc<Mutex<BTreeSet<String>>>);

impl DrainedUpstreams {
    fn lock(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a command that has succeeded. The name is taken from its answer, which begins with
    /// the name that lists show: the command may write the same upstream differently.
    pub(super) fn note(&self, question: &str, answer: &str) {
        let Some((name, _)) = answer.split_once(" is ") else { return };
        match question.split_once(' ') {
            Some(("drain", _)) => _ = self.lock().insert(name.to_owned()),
            Some(("resume", _)) => _ = self.lock().remove(name),
            _ => {}
        }
    }

    /// Sends the drains to processes that were just started, on a thread of its own.
    pub(super) fn tell(&self, sockets: Vec<PathBuf>) {
        if sockets.is_empty() || self.lock().is_empty() {
            return;
        }
        let known = self.clone();
        let tell = move || sockets.iter().for_each(|socket| known.tell_one(socket));
        if let Err(error) = begin(tell) {
            say(format_args!("drained upstreams are asked by new processes: {error}"));
        }
    }

    fn tell_one(&self, socket: &Path) {
        // the lock is not held during the waits for processes
        let names = self.lock().clone();
        for name in names {
            // a refusal is an answer, too: a reload may have removed the upstream
            let heard = (0..TRIES).any(|_| {
                let is_wanted = self.lock().contains(&name);
                let heard = !is_wanted
                    || control_socket::ask(socket, &format!("upstream drain {name}")).is_ok();
                if !heard {
                    thread::sleep(AGAIN);
                }
                heard
            });
            if !heard {
                say(format_args!("{name} is not drained in a process of respond that was started"));
            }
        }
    }
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
        known.note("list", "what is there is listed");
        assert_eq!(known.lock().iter().collect::<Vec<_>>(), ["10.0.0.2:80"]);
    }
}
