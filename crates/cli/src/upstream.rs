//! `forebay upstream`: lists the upstreams of a running server, takes one out and back in.

use crate::exit::CommandFailure;
use crate::running_server::{ServerArgs, print};
use clap::Subcommand;

/// What is done with upstreams.
#[derive(Debug, Subcommand)]
pub(crate) enum UpstreamCommand {
    /// Print each upstream, whether it is asked, how many requests are under way to it, and how many
    /// wait
    List(ServerArgs),
    /// Send no more requests to an upstream; those under way come to their end. It stays so through
    /// reloads, until it is resumed or the server starts again
    Drain {
        #[command(flatten)]
        server: ServerArgs,
        /// The upstream, as list prints it or as it stands in the file
        #[arg(value_name = "UPSTREAM")]
        name: String,
    },
    /// Send requests to an upstream again that was drained
    Resume {
        #[command(flatten)]
        server: ServerArgs,
        /// The upstream, as list prints it or as it stands in the file
        #[arg(value_name = "UPSTREAM")]
        name: String,
    },
}

/// Does it.
///
/// # Errors
/// When no server answers, or it says no.
pub(crate) fn run(command: UpstreamCommand) -> Result<(), CommandFailure> {
    let one_line = |name: &str| name.replace('\n', " ");
    print(match command {
        UpstreamCommand::List(server) => server.ask("upstream list")?,
        UpstreamCommand::Drain { server, name } => {
            server.ask(&format!("upstream drain {}", one_line(&name)))?
        }
        UpstreamCommand::Resume { server, name } => {
            server.ask(&format!("upstream resume {}", one_line(&name)))?
        }
    })
}
