//! The launcher of CGI programs: a process of its own, which starts one process for each request.
//!
//! To the server a program is an application that speaks FastCGI on a connection of its own: the
//! server makes a pair of sockets, gives the launcher one end and the number of a route
//! (`launching.rs` of the upstreams), and asks on the other end as it asks php-fpm. The launcher
//! forks: its child, the attendant, has the connection, looks for the program, starts it, passes
//! bytes on in both directions, and ends with it.
//!
//! ```text
//!  server ── number, socket ──► launcher ── fork ──► attendant ── fork, exec ──► program
//!    └──────────────────── FastCGI ─────────────────────┘  └───── three pipes ─────┘
//! ```
//!
//! A message of the server cannot hold a path or a command: the launcher knows from the file which
//! directory, user and limits belong to a number. The variables that a request may set are a list
//! ([`environment`]).
//!
//! | module | what it holds |
//! |---|---|
//! | [`process`] | the launcher |
//! | `route` | a route, ready for its programs to be run |
//! | `attendant` | one request |
//! | `groups` | the control groups of programs |
//! | `pump` | passes bytes between the server and a program that runs, and enforces its limits |
//! | `script` | the program that a path means |
//! | [`environment`] | the environment variables of a program |
//! | [`records`] | FastCGI from the side of an application |

mod attendant;
pub mod environment;
mod groups;
pub mod process;
mod pump;
pub mod records;
mod route;
mod script;

use forebay_config::{CgiRoute, Config, Role};

/// The CGI routes of a configuration whose programs are started by this process.
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
