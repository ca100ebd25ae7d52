//! The supervisor's work for stages on several machines: it logs where they are asked, and restarts
//! them with new keys.

use super::machines;
use super::place::Place;
use super::supervisor::{Supervisor, endpoints};
use forebay_sys::stderr::say;
use std::time::{Duration, Instant};

/// The wait before keys are tried again with which no stages could be started: another cause may
/// have been in the way.
const AGAIN: Duration = Duration::from_secs(600);

impl Supervisor {
    /// Logs where other machines ask the stages: without clients there is no receive that reports
    /// that it serves.
    pub(super) fn say_where_asked(&self) {
        let behind = self.serving.as_ref().filter(|serving| serving.config.isolated.is_behind);
        if let Some(serving) = behind {
            let at: Vec<_> = self.listeners.urls(&endpoints(&serving.config)).collect();
            say(format_args!("the stages answer other machines at {}", at.join(", ")));
        }
    }

    /// Starts the stages anew when their keys have changed and then stayed the same from one look
    /// to the next: files are written one after another. Keys that other machines would not trust
    /// change nothing, and keys with which no stage can serve are tried again from time to time.
    pub(super) fn look_after_keys(&mut self) {
        let is_quiet =
            self.rising.is_none() && self.ends_since.is_none() && self.place == Place::Own;
        let Some(serving) = self.serving.as_ref().filter(|_| is_quiet) else { return };
        let now = machines::stamps(&serving.config);
        let is_due = self.key_look.tried_at.is_none_or(|at| at.elapsed() >= AGAIN);
        let is_new = now != serving.keys && (now != self.key_look.tried || is_due);
        if is_new && now == self.key_look.last {
            let checked = machines::check_new(&serving.config, &serving.keys);
            self.key_look.tried.clone_from(&now);
            self.key_look.tried_at = Some(Instant::now());
            match checked {
                Ok(()) => {
                    say(format_args!(
                        "the keys of stages have changed, so the stages are started anew"
                    ));
                    self.reload(Vec::new());
                }
                Err(why) => say(format_args!(
                    "the keys of stages have changed, and the stages stay as they are: {why}"
                )),
            }
        }
        self.key_look.last = now;
    }
}
