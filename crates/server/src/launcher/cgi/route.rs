//! A route, ready for its programs to be run: who runs them is known, and is not root.

use super::super::runs::account;
use forebay_config::{Account, CgiRoute, Config};
use forebay_sys::cgi::ProgramLimits;
use forebay_sys::privileges::{self, SystemUser};

/// So many more processes and threads a user of its own may have: those of a request that has just ended.
const MORE_PROCESSES: u64 = 64;

/// A route whose programs can be run.
#[derive(Clone, Debug)]
pub(super) struct ReadyRoute {
    pub(super) route: CgiRoute,
    /// Who runs them, if that is another user than this process is.
    pub(super) user: Option<SystemUser>,
    /// That user was named for the route, and is not the server's.
    has_own_user: bool,
}

impl ReadyRoute {
    /// The route, if this process may run its programs.
    ///
    /// # Errors
    /// Why not.
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
        let has_own_user = of_route.as_ref().is_some_and(|user| user.user != servers);
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
        Ok(ReadyRoute { route, user, has_own_user })
    }

    /// What each of its processes may have.
    pub(super) fn limits(&self) -> ProgramLimits {
        let limits = &self.route.limits;
        let all = limits.processes.saturating_mul(self.route.in_flight);
        ProgramLimits {
            memory_bytes: limits.memory.0,
            // the server's has its threads, and whatever else it runs
            of_user: self.has_own_user.then(|| all.saturating_add(MORE_PROCESSES)),
        }
    }

    /// So many requests at once, and some that have just ended.
    pub(super) fn most_attendants(&self) -> usize {
        usize::try_from(self.route.in_flight)
            .unwrap_or(usize::MAX)
            .saturating_mul(2)
            .saturating_add(8)
    }
}
