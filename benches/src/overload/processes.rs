//! voigt's figures 7 and 8 as he had them: 50 threads, all of which may answer at once, so that classes part
//! when more clients come than there are threads. Classes are given by address: who gets the next free
//! thread is decided at accept.

use super::bench::Bench;
use super::server::Server;
use super::{row, voigt};
use crate::Error;

/// The part's name.
pub const PART: &str = "processes";
/// Clients of each of the three classes. The high one alone leaves no thread from 50 on.
const CLIENTS: [u32; 6] = [5, 15, 30, 40, 50, 60];
/// Shares of the classes below the first, percent: the paper's, and some.
pub(super) const SHARES: [[u32; 2]; 2] = [[0, 0], [20, 5]];
/// Whose threads work, and whose jobs wait for helpers.
const SERVERS: [&str; 2] = ["pool-policy", "event-policy"];

/// One round: both servers, or those with a policy that are asked for.
///
/// # Errors
/// When a server does not come up or the load cannot be made.
pub fn measure(bench: &mut Bench<'_>, round: u32) -> Result<(), Error> {
    let chosen: Vec<_> = bench.settings.with_policy().collect();
    let servers: Vec<_> = match chosen.iter().any(|server| server.name() == SERVERS[0]) {
        true => chosen,
        false => SERVERS.iter().filter_map(|name| Server::find(name)).collect(),
    };
    let fewer = if bench.settings.quick { &CLIENTS[2..3] } else { &CLIENTS };
    for &clients in fewer {
        for shares in SHARES {
            let scene = voigt::figures_7_and_8(clients, shares);
            for server in &servers {
                voigt::one(bench, (PART, round), *server, &scene)?;
            }
        }
    }
    Ok(())
}

/// The table.
pub fn report(bench: &Bench<'_>) -> String {
    let rows = bench.rows_of(PART);
    if rows.is_empty() {
        return String::new();
    }
    "\n## voigt's figures 7 and 8 with 50 threads\n\nThree classes by address, a connection for each \
     request of 2.6 ms. `pool` has 50 threads, all of which may answer at once. Figure 7 is good/s, \
     figure 8 p50.\n"
        .to_owned()
        + &row::table(&rows, "")
}
