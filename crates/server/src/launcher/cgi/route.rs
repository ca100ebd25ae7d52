//! A CGI route whose programs can be run: their user is known, and is not root.

use super::super::runs::account;
use forebay_config::{Account, CgiRoute, Config};
use forebay_sys::cgi::ProgramLimits;
use forebay_sys::privileges::{self, SystemUser};

/// The number of processes and threads that a user may have beyond the limits of its routes: those
/// of a request that has just ended.
const MORE_PROCESSES: u64 = 64;

/// How many processes and threads `user` may have: the sum over all routes that name this user. The
/// kernel counts them per user, so that one route's limit must not bound another's programs.
fn most_of(user: u32, config: &Config) -> Result<u64, String> {
    let mut most = MORE_PROCESSES;
    for route in super::of(config) {
        let Some(name) = &route.user else { continue };
        if account("cgi.user", name, None)?.user == user {
            let own = route.limits.processes.saturating_mul(route.in_flight);
            most = most.saturating_add(own);
        }
    }
    Ok(most)
}

/// A route whose programs can be run.
#[derive(Clone, Debug)]
pub(super) struct ReadyRoute {
    pub(super) route: CgiRoute,
    /// The user who runs the programs, if it is not the user of this process.
    pub(super) user: Option<SystemUser>,
    /// How many processes and threads that user may have, if the route names it and it is not the server's.
    of_user: Option<u64>,
}

impl ReadyRoute {
    /// The route, if this process may run its programs.
    ///
    /// # Errors
    /// The reason why it may not.
    pub(super) fn new(route: CgiRoute, config: &Config) -> Result<ReadyRoute, String> {
        let own = privileges::current();
        let programs = route.programs.path().display();
        let of_server = match &config.user {
            Some(name) => Some(account("user", name, config.group.as_ref())?),
            None => None,
        };
        let of_route = match &route.user {
            Some(name) => Some(account("cgi.user", name, None)?),
            None => None,
        };
        let servers = of_server.as_ref().map_or(own.0, |user| user.user);
        let own_user = of_route.as_ref().map(|user| user.user).filter(|user| *user != servers);
        let of_user = own_user.map(|user| most_of(user, config)).transpose()?;
        let user = of_route.or(of_server);
        let user = user.filter(|user| (user.user, user.group) != own);
        if user.as_ref().map_or(own.0, |user| user.user) == 0 {
            return Err(format!(
                "cgi: no program of {programs} is run as root: name another user in cgi.user"
            ));
        }
        if user.is_some() && !privileges::may_become_another() {
            let name = route.user.as_ref().or(config.user.as_ref()).map_or("", Account::as_str);
            return Err(format!(
                "cgi: only root can become {name}, who runs the programs of {programs}; start the server as root, or \
                 leave it out"
            ));
        }
        Ok(ReadyRoute { route, user, of_user })
    }

    /// The limits of each process of the route.
    pub(super) fn limits(&self) -> ProgramLimits {
        // the server's user also has the server's threads, and whatever else it runs
        ProgramLimits { memory_bytes: self.route.limits.memory.0, of_user: self.of_user }
    }

    /// The largest number of attendants: one for each request at once, and as many again for
    /// requests that have just ended.
    pub(super) fn most_attendants(&self) -> usize {
        usize::try_from(self.route.in_flight)
            .unwrap_or(usize::MAX)
            .saturating_mul(2)
            .saturating_add(8)
    }
}
