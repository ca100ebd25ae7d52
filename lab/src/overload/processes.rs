//! voigt's figures 7 and 8 with his 50 processes as 50 threads, all of which may answer at once, so
//! that classes differ when more clients come than there are threads. Classes are given by address:
//! the order in which clients get free threads is decided at accept.

use super::bench::Bench;
use super::server::Server;
use super::voigt;
use crate::Error;

/// The part's name.
pub const PART: &str = "processes";
/// Clients of each of the three classes. The high one alone leaves no thread from 50 on.
const CLIENTS: [u32; 6] = [5, 15, 30, 40, 50, 60];
/// Shares of the classes below the first, percent: the paper's, and some.
pub(super) const SHARES: [[u32; 2]; 2] = [[0, 0], [20, 5]];
/// One server whose threads work, and one whose jobs wait for helpers.
const SERVERS: [&str; 2] = ["pool-policy", "event-policy"];

/// The numbers of clients.
pub fn points(quick: bool) -> Vec<String> {
    let fewer = if quick { &CLIENTS[2..3] } else { &CLIENTS };
    fewer.iter().map(u32::to_string).collect()
}

/// Measures one server with a policy; both, with the first of those that are asked for, if `pool`
/// is not.
///
/// # Errors
/// When a server does not come up or the load cannot be made.
pub fn measure(
    bench: &mut Bench<'_>,
    (round, at): (u32, &str),
    server: Server,
) -> Result<(), Error> {
    let is_chosen = bench.settings.with_policy().any(|server| server.name() == SERVERS[0]);
    let servers: Vec<_> = match is_chosen {
        true => Some(server).filter(|server| server.has_policy()).into_iter().collect(),
        false if bench.settings.servers.first() == Some(&server) => {
            SERVERS.iter().filter_map(|name| Server::find(name)).collect()
        }
        false => Vec::new(),
    };
    let clients = at.parse().unwrap_or(CLIENTS[0]);
    for shares in SHARES {
        let scene = voigt::figures_7_and_8(clients, shares);
        for server in &servers {
            voigt::one(bench, (PART, round), *server, &scene)?;
        }
    }
    Ok(())
}
