//! Assembly: from a configuration to a running server.
//!
//! The command line builds a [`Config`]; [`serve`] makes of it listeners, an admin listener and the loops of an
//! engine, each with a handler, and keeps them until a signal ends them. In a request's journey this crate is the
//! start: it opens the sockets, and gives each loop what it serves from.
//!
//! | module | what it holds |
//! |---|---|
//! | `config_source` | the files, variables and secrets that a configuration names outside of its text |
//! | [`config_file`] | a file into a configuration, or what is wrong with it and what it names |
//! | [`lints`] | checks of a configuration that ask the machine |
//! | [`machine`] | which machine this is |
//! | [`plan`] | what a configuration comes to on this machine |
//! | [`listen`] | listening sockets, one per loop and address |
//! | [`engines`] | groups of workers: an engine on its listeners |
//! | [`counters`] | the counters of all threads, kept beyond them |
//! | [`doctor`] | what this machine can, and what gets in its way |
//! | [`firewall`] | ignored clients and listed addresses in a table of nftables |
//! | [`gate`] | rules in the kernel: whether this machine can, what is in force there |
//! | [`agent`] | the thread that adapts what the classes are let in |
//! | [`privileges`], [`sandbox`], [`seal`](mod@seal) | what is given up at the start: root, the rest of the file system, and all else by a process of *process* |
//! | `traces` | the thread that sends spans of requests to a collector |
//! | `cgroups` | control groups of the server, beneath which stages and programs have theirs |
//! | `kernel_answers` | answers that the kernel gives in this server's place |
//! | `confinement` | what keeps stages from the rest of this machine |
//! | [`isolated`] | stages in processes of their own: the supervisor, what a stage makes of a configuration |
//! | [`start_error`] | that a server is ready, why it could not start or did not end well |
//! | [`notify`] | what the service manager is told |
//! | [`run`] | plan → running groups; signals, commands, drain |
//! | `upkeep` | the threads that check applications |
//! | [`upgrade`] | another process takes the place of this one |
//! | [`reload`] | a changed file into everything that takes the place of what runs |
//! | [`command`] | a command and its answer |
//! | [`control_socket`] | how `forebay reload` speaks to a running server |
//! | [`policy_command`] | what `forebay policy` asks |
//! | [`why`] | what `forebay why` asks |
//! | [`upstream_command`] | what `forebay upstream` asks |
//! | `upstream_rows` | the upstreams of applications, for metrics and status |
//! | [`status`] | what the running server can tell about itself |
//! | [`launcher`] | the process that runs commands which the file names |
//! | [`acme_thread`] | the thread that gets certificates by ACME |
//! | [`certificate_watch`] | files of certificates, keys and tokens that have changed |
//! | [`ban_files`] | files that say who is banned, and the thread that notices when they change |
//! | [`spool`] | where bodies of requests are on disk |
//! | [`admin`] | the read-only listener: Prometheus metrics, status |
//! | `page` | what that shows browsers: now and in the last hour |
//!
//! It deliberately decides nothing about a request (`handler` does), and knows no setting by its text: what may be set is
//! `config`'s, what a URL means is `site`'s, how a connection goes on is `conn`'s, and which thread waits for
//! what is the engine's.
//!
//! ```
//! use forebay_server::plan::{MachineResources, Plan};
//!
//! let config = forebay_config::parse("root = \"/srv/www\"\n", "forebay.toml").unwrap();
//! let machine =
//!     MachineResources { cores: 2, memory_bytes: 1 << 30, descriptors: 1024, threads: 1000 };
//! let plan = Plan::new(&config, &machine).unwrap();
//! assert_eq!(plan.groups[0].workers, 2);
//! ```
#![forbid(unsafe_code)]

pub mod acme_thread;
pub mod admin;
pub mod agent;
pub mod ban_files;
pub mod certificate_watch;
mod cgroups;
pub mod command;
pub mod config_file;
mod config_source;
mod confinement;
pub mod control_socket;
pub mod counters;
pub mod doctor;
pub mod engines;
pub mod firewall;
pub mod gate;
pub mod isolated;
mod kernel_answers;
pub mod launcher;
pub mod lints;
pub mod listen;
pub mod machine;
pub mod notify;
mod page;
pub mod plan;
pub mod policy_command;
pub mod privileges;
pub mod reload;
pub mod run;
pub mod sandbox;
pub mod seal;
pub mod spool;
pub mod start_error;
pub mod status;
mod traces;
pub mod upgrade;
mod upkeep;
pub mod upstream_command;
mod upstream_rows;
pub mod why;

use forebay_config::Config;
use signal_hook::consts::SIGXFSZ;
use start_error::{Ready, RunError, resources};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use upgrade::starting::StartingCommand;

/// Serves what `config` says until a signal ends it: in this process, or in those of stages. `file` is where it
/// came from, if it is to be read again at a reload; `ready` is called when clients are served.
///
/// # Errors
/// What is in the way at the start, or how a loop failed.
pub fn serve(config: Config, file: Option<PathBuf>, ready: Ready) -> Result<(), RunError> {
    start(config, file, None, ready)
}

/// As [`serve`], in place of the server whose control socket is at `before`: that serves what it has to the end.
///
/// # Errors
/// As [`serve`]; the other server goes on as before.
pub fn serve_in_place(
    config: Config,
    file: PathBuf,
    before: &Path,
    command: StartingCommand,
    ready: Ready,
) -> Result<(), RunError> {
    start(config, Some(file), Some((before, command)), ready)
}

fn start(
    config: Config,
    file: Option<PathBuf>,
    before: Option<(&Path, StartingCommand)>,
    ready: Ready,
) -> Result<(), RunError> {
    // a file that may not grow (RLIMIT_FSIZE) is an error of what is written, not the end of the process
    signal_hook::flag::register(SIGXFSZ, Arc::default())
        .map_err(resources("descriptors for signals"))?;
    match isolated::is_wanted(&config) {
        true => isolated::run(config, file, before, ready),
        false => run::run(config, file, before, ready),
    }
}
