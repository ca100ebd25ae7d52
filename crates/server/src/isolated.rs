//! `[stages]`, or `engine = "isolated"`: the way to an answer in three stages, each in processes of its own.
//!
//! | stage | what it does |
//! |---|---|
//! | receive | accepts, speaks TLS, parses, judges by rules; keeps a copy of the request until it is answered |
//! | process | decides: whose site it is, who may, where else to |
//! | respond | reads the bytes, compresses, does the work |
//!
//! The paper has three stages and does not say which logic is in which: this cut is ours. Each process is
//! the whole program and one part of the path: receive with the engines of its listeners, the others with loops of `event`. What one stage asks the next goes
//! over HTTP/2 and a Unix socket, and a [link](forebay_upstream::link) decides what becomes of a request
//! whose instance does not answer.
//!
//! | module | what it holds |
//! |---|---|
//! | `changes` | what commands have changed, so that it outlives the process that holds it |
//! | `cgroups` | limits of stages, by control groups |
//! | `configuration` | by which configuration a stage answers, in a few bytes |
//! | `commands` | what the supervisor does with commands that the first stage answers |
//! | `drained` | upstreams that commands have drained |
//! | `ending` | how a process has ended |
//! | `generation` | all processes of one configuration: they are started, started again, and ended |
//! | `kept_gate` | the gate of receive, kept by the supervisor |
//! | `key_watch` | keys of stages that have changed, and where other machines ask |
//! | `links` | the directory with the sockets of the stages |
//! | `machines` | stages on several machines: where they are asked, and their keys |
//! | `place` | whether a supervisor has its place, or another process |
//! | `relayed` | commands that the first stage answers |
//! | `stage` | what a stage makes of the configuration, and whom it asks |
//! | `status` | what `forebay status` says of them |
//! | `supervisor` | the process that has the listening sockets, and replaces one generation by the next |
//! | [`tried`] | what code could do that has taken a stage over |
//! | `upstreams` | `forebay upstream`, which respond answers |
//! | `upgrade` | another process in the place of the supervisor, and this one in that of another |

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

/// Whether this configuration is for several processes, and this one is to start them.
pub fn is_wanted(config: &Config) -> bool {
    config.place.is_none() && config.has_stages()
}
