//! The assembly: turns a configuration into a running server.
//!
//! The command line builds a [`Config`]. [`serve`] opens its listeners, starts an admin listener and
//! the loops of an engine, each with a handler, and keeps them until a signal ends them. In a request's
//! journey this crate is the start: it opens the sockets, and gives each loop the data it serves from.
//!
//! | module | what it holds |
//! |---|---|
//! | `config_source` | the files, variables and secrets that a configuration names outside of its text |
//! | [`config_file`] | reads a file into a configuration, or reports its errors and what it names |
//! | [`lints`] | checks of a configuration that ask the machine |
//! | [`machine`] | the identity of this machine |
//! | [`plan`] | a configuration resolved for this machine |
//! | [`listen`] | listening sockets, one per loop and address |
//! | [`engines`] | groups of workers: an engine on its listeners |
//! | [`counters`] | the counters of all threads, kept beyond them |
//! | [`doctor`] | the features of this machine, and obstacles for the server |
//! | [`firewall`] | ignored clients and listed addresses in a table of nftables |
//! | [`gate`] | rules in the kernel: the machine's support for them, and those in force |
//! | [`agent`] | the thread that adapts the limits of the classes |
//! | [`privileges`], [`sandbox`], [`seal`](mod@seal) | given up at the start: root, files, all else |
//! | `traces` | the thread that sends spans of requests to a collector |
//! | `cgroups` | control groups of the server, which contain those of stages and programs |
//! | `kernel_answers` | answers by the kernel in this server's place |
//! | `confinement` | the confinement of stages from the rest of this machine |
//! | [`isolated`] | stages in processes: the supervisor, and the configuration of a stage |
//! | [`start_error`] | the report that a server is ready, and the errors of its start and end |
//! | [`notify`] | messages to the service manager |
//! | [`run`] | plan → running groups; signals, commands, drain |
//! | `upkeep` | the threads that check applications |
//! | [`upgrade`] | another process takes the place of this one |
//! | [`reload`] | turns a changed file into everything that replaces what runs |
//! | [`command`] | a command and its answer |
//! | [`control_socket`] | the socket through which `forebay reload` talks to a running server |
//! | [`policy_command`] | answers to `forebay policy` |
//! | [`why`] | answers to `forebay why` |
//! | [`upstream_command`] | answers to `forebay upstream` |
//! | `upstream_rows` | the upstreams of applications, for metrics and status |
//! | [`status`] | what the running server reports about itself |
//! | [`launcher`] | the processes that run commands and programs of the file |
//! | [`acme_thread`] | the thread that gets certificates by ACME |
//! | [`certificate_watch`] | the thread that watches files of certificates, keys and tokens |
//! | [`ban_files`] | files with bans, and the thread that notices when they change |
//! | [`spool`] | the directory for bodies of requests |
//! | [`admin`] | the read-only listener: Prometheus metrics, status |
//! | `page` | the page of that listener for browsers: now and in the last hour |
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

/// Serves `config` until a signal ends the server: in this process, or in those of stages. `file` is
/// where it was read from, if reloads are to read it again; `ready` is called when clients are served.
///
/// # Errors
/// The obstacle at the start, or the way a loop failed.
pub fn serve(config: Config, file: Option<PathBuf>, ready: Ready) -> Result<(), RunError> {
    start(config, file, None, ready)
}

/// As [`serve`], in place of the server whose control socket is at `before`. That server serves its
/// connections to their end.
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
    // a file at its size limit (RLIMIT_FSIZE) is then an error of the write, and not the end of the process
    signal_hook::flag::register(SIGXFSZ, Arc::default())
        .map_err(resources("descriptors for signals"))?;
    match isolated::is_wanted(&config) {
        true => isolated::run(config, file, before, ready),
        false => run::run(config, file, before, ready),
    }
}
