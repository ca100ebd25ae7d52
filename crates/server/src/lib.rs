//! Assembly: from a configuration to a running server.
//!
//! The command line builds a [`Config`]; [`serve`] makes of it a site, a
//! log, an admin listener and the loops of an engine, and keeps them until a signal ends them. In a
//! request's journey this crate is the [`handler`]: what an engine asks whether a request is served, by what, and what is
//! logged of it.
//!
//! | module | what it holds |
//! |---|---|
//! | [`config_file`] | a file into a configuration, or what is wrong with it and what it names |
//! | [`lints`] | checks of a configuration that ask the machine |
//! | [`machine`] | which machine this is |
//! | [`plan`] | what a configuration comes to on this machine |
//! | [`policy_settings`] | what of that is to be in force of classes and rules |
//! | [`listen`] | listening sockets, one per loop and address |
//! | [`engines`] | groups of workers: an engine on its listeners |
//! | [`counters`] | the counters of all threads, kept beyond them |
//! | [`doctor`] | what this machine can, and what gets in its way |
//! | [`firewall`] | ignored clients and listed addresses in a table of nftables |
//! | [`gate`] | rules in the kernel: whether this machine can, what is in force there |
//! | [`live`] | what handlers serve from, replaced as a whole by a reload |
//! | [`client`] | which client a request comes from, and by which scheme: trusted proxies and what they say |
//! | [`agent`] | the thread that adapts what the classes are let in |
//! | `limits_told` | which limit of connections is reached, for the operator |
//! | [`handler`], [`job`] | the handler that an engine is given: admission, content or application, the log line; its work for helper threads |
//! | [`policy`] | classes, rules and the agent's limits, as they are in force |
//! | [`identity`] | identities that clients prove by a cookie |
//! | [`certificates`] | which certificate answers for which name |
//! | [`applications`] | the applications behind the sites, and what is asked of them |
//! | `detour`, `passing`, `websocket` | what a request waits for elsewhere; an exchange and the body on its way to the client; WebSockets by HTTP/2 |
//! | `upstream_sockets`, `upstream_threads` | descriptors and threads that requests for applications may keep |
//! | [`privileges`], [`sandbox`], [`seal`](mod@seal) | what is given up at the start: root, the rest of the file system, and all else by a process of *process* |
//! | [`isolated`] | stages in processes of their own: the supervisor, what a stage makes of a configuration |
//! | [`start_error`] | that a server is ready, why it could not start or did not end well |
//! | [`notify`] | what the service manager is told |
//! | [`run`] | plan → running groups; signals, commands, drain |
//! | `upkeep` | the threads that check applications |
//! | [`reload`] | a changed file into everything that takes the place of what runs |
//! | [`command`] | a command and its answer |
//! | [`control_socket`] | how `forebay reload` speaks to a running server |
//! | [`policy_command`] | what `forebay policy` asks |
//! | [`upstream_command`] | what `forebay upstream` asks |
//! | [`log`] | the access log, off the hot path |
//! | [`status`] | what the running server can tell about itself |
//! | [`acme`], [`acme_thread`] | certificates by ACME: what is wanted and shown meanwhile; the thread that gets them |
//! | [`certificate_watch`] | files of certificates, keys and tokens that have changed |
//! | [`admin`] | the read-only listener: Prometheus metrics, status |
//!
//! It deliberately decides nothing about a request, and knows no setting by its text: what may be set is
//! `config`'s, what a URL means is `site`'s, how a connection goes on is `conn`'s, and which thread waits for
//! what is the engine's.
//!
//! ```
//! use forebay_server::plan::{MachineResources, Plan};
//!
//! let config = forebay_config::parse("root = \"/srv/www\"\n", "forebay.toml").unwrap();
//! let machine = MachineResources { cores: 2, memory_bytes: 1 << 30, descriptors: 1024 };
//! let plan = Plan::new(&config, &machine).unwrap();
//! assert_eq!(plan.groups[0].workers, 2);
//! ```
#![forbid(unsafe_code)]

pub mod acme;
pub mod acme_thread;
pub mod admin;
pub mod agent;
pub mod applications;
pub mod certificate_watch;
pub mod certificates;
pub mod client;
pub mod command;
pub mod config_file;
pub mod control_socket;
pub mod counters;
mod detour;
pub mod doctor;
pub mod engines;
pub mod firewall;
pub mod gate;
pub mod handler;
pub mod identity;
pub mod isolated;
pub mod job;
mod limits_told;
pub mod lints;
pub mod listen;
pub mod live;
pub mod log;
pub mod machine;
pub mod notify;
mod passing;
pub mod plan;
pub mod policy;
pub mod policy_command;
pub mod policy_settings;
pub mod privileges;
pub mod reload;
pub mod run;
pub mod sandbox;
pub mod seal;
pub mod start_error;
pub mod status;
mod upkeep;
pub mod upstream_command;
mod upstream_sockets;
mod upstream_threads;
mod websocket;

use forebay_config::Config;
use start_error::{Ready, RunError};
use std::path::PathBuf;

/// Serves what `config` says until a signal ends it: in this process, or in those of stages. `file` is where it
/// came from, if it is to be read again at a reload; `ready` is called when clients are served.
///
/// # Errors
/// What is in the way at the start, or how a loop failed.
pub fn serve(config: Config, file: Option<PathBuf>, ready: Ready) -> Result<(), RunError> {
    match isolated::is_wanted(&config) {
        true => isolated::run(config, file, ready),
        false => run::run(config, file, ready),
    }
}
