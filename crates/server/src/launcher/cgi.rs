//! Programs that are run for requests (CGI): a launcher of their own, which starts one process for each request.
//!
//! To the server a program is an application that speaks FastCGI behind a connection of its own: it makes a pair of
//! sockets, gives the launcher one end and the number of a route (`launching.rs` of the upstreams), and asks on
//! the other one as it asks php-fpm. The launcher doubles itself: the attendant, which has the connection, looks for
//! the program, starts it, passes on what both say, and ends with it.
//!
//! ```text
//!  server ── number, socket ──► launcher ── fork ──► attendant ── fork, exec ──► program
//!    └──────────────────── FastCGI ─────────────────────┘  └───── three pipes ─────┘
//! ```
//!
//! What the server says has no place for a path or a command: which directory, which user and which limits belong to a
//! number, the launcher has from the file. The variables that a request may set are a list ([`environment`]).
//!
//! | module | what it holds |
//! |---|---|
//! | [`process`] | the launcher |
//! | `route` | a route, ready for its programs to be run |
//! | `attendant` | one request |
//! | `groups` | the control groups of programs |
//! | `pump` | what is said between the server and a program that runs, and within which limits |
//! | `script` | which program is meant by a path |
//! | [`environment`] | what of a request a program is told |
//! | [`records`] | FastCGI, as an application hears and speaks it |

mod attendant;
pub mod environment;
mod groups;
pub mod process;
mod pump;
pub mod records;
mod route;
mod script;

use forebay_config::{CgiRoute, Config, Role};

/// The routes of a configuration whose programs this process has run.
pub fn of(config: &Config) -> Vec<CgiRoute> {
    let asks = config.place.as_ref().is_none_or(|place| place.role == Role::Respond);
    let sites = config.sites.iter().filter(|_| asks);
    let mut routes: Vec<CgiRoute> = Vec::new();
    for route in sites.flat_map(|site| &site.cgi).map(|one| one.launched()) {
        if !routes.contains(&route) {
            routes.push(route);
        }
    }
    routes
}
