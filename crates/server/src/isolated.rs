//! `[stages]`, or `engine = "isolated"`: requests are answered in three stages, each in processes
//! of its own.
//!
//! | stage | what it does |
//! |---|---|
//! | receive | accepts, speaks TLS, parses, judges by rules; keeps a copy of the request until it is answered |
//! | process | decides: which site it is, who has access, where else the request goes |
//! | respond | reads the bytes, compresses, does the work |
//!
//! The paper has three stages and does not say which logic is in which: this cut is ours. Each
//! process runs the whole program and has one part of the path: receive with the engines of its
//! listeners, the others with loops of `event`. A stage asks the next over HTTP/2 and a Unix
//! socket, and a [link](forebay_upstream::link) decides what happens to a request whose instance
//! does not answer.
//!
//! | module | what it holds |
//! |---|---|
//! | `asking` | the processes that ask servers other than stages |
//! | `changes` | the changes of commands, kept so that they outlive the process that holds them |
//! | `cgroups` | limits of stages, by control groups |
//! | `configuration` | an identifier of the configuration by which a stage answers |
//! | `commands` | how the supervisor handles commands that the first stage answers |
//! | `drained` | upstreams that commands have drained |
//! | `ending` | how a process has ended |
//! | `generation` | all processes of one configuration: starting, restarting and ending them |
//! | `kept_gate` | the gate of receive, kept by the supervisor |
//! | `key_watch` | changed keys of stages, and the addresses where other machines ask |
//! | `links` | the directory with the sockets of the stages |
//! | `machines` | stages on several machines: their addresses and their keys |
//! | `place` | whether a supervisor serves, or another process in its place |
//! | `relayed` | commands that the first stage answers |
//! | `stage` | the configuration of one stage, and the next stage that it asks |
//! | `status` | what `forebay status` shows of the stages |
//! | `supervisor` | the process that has the listening sockets, and replaces one generation by the next |
//! | [`tried`] | what code could do in a compromised stage |
//! | `upstreams` | `forebay upstream`, which respond answers |
//! | `upgrade` | how another process takes the supervisor's place, or it that of another |

mod asking;
mod cgroups;
pub mod changes;
mod commands;
mod configuration;
mod drained;
mod ending;
mod generation;
pub mod kept_gate;
mod key_watch;
mod links;
mod machines;
mod place;
mod relayed;
mod stage;
mod status;
mod supervisor;
pub mod tried;
mod upgrade;
mod upstreams;

pub(crate) use links::ends;
pub use links::{copy, hold};
pub use stage::{at, next};
pub use supervisor::run;

use forebay_config::Config;

/// Whether this configuration has stages and this process must start them.
pub fn is_wanted(config: &Config) -> bool {
    config.place.is_none() && config.has_stages()
}
