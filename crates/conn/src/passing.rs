//! Connections whose bytes are passed on as they are. The port that a client has reached, and the name in
//! the TLS hello with which it begins, say to which servers.

/// A connection whose bytes are passed on as they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassedConnection {
    /// The name in the connection's hello, in small letters.
    pub name: Option<Box<str>>,
    /// Whether the connection has come to an address at which nothing else is spoken.
    pub is_raw: bool,
}

/// The routes of connections that are passed on, by their numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PassRoutes(Vec<PassRoute>);

/// A route: connections that are passed on to the same servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PassRoute {
    /// The port that the connections have reached; any port if `None`.
    pub port: Option<u16>,
    /// The names that the connections ask for; if there are none, the connections may begin with any
    /// bytes.
    pub names: Vec<PassName>,
}

/// A name, or all names that end with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassName {
    /// The name in small letters, without `*.`.
    pub name: Box<str>,
    /// Whether this stands for all names below the name, at any depth, and not for the name itself.
    pub is_wildcard: bool,
}

impl PassName {
    /// How well this fits a name: longer names fit better, and the name itself fits best.
    fn fits(&self, name: &str) -> Option<usize> {
        match self.is_wildcard {
            true => {
                let front = name.strip_suffix(&*self.name)?;
                front.ends_with('.').then_some(self.name.len())
            }
            false => (*self.name == *name).then_some(usize::MAX),
        }
    }
}

impl PassRoute {
    fn is_at(&self, port: u16) -> bool {
        self.port.is_none_or(|own| own == port)
    }
}

impl PassRoutes {
    /// The routes, in the order of their numbers.
    pub fn new(routes: Vec<PassRoute>) -> PassRoutes {
        PassRoutes(routes)
    }

    /// Whether there are no routes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether connections to this port are told apart by name.
    pub fn ask_names(&self, port: u16) -> bool {
        self.0.iter().any(|route| route.is_at(port) && !route.names.is_empty())
    }

    /// The route of a connection that has reached this port. A route with the connection's name comes
    /// before one without names. Routes without names are for connections to addresses at which [nothing
    /// else](PassedConnection::is_raw) is spoken; one for the port comes before one for all ports.
    pub fn find(&self, port: u16, passed: &PassedConnection) -> Option<usize> {
        let at_port = || self.0.iter().enumerate().filter(|(_, route)| route.is_at(port));
        let named = passed.name.as_deref().and_then(|name| {
            let fits =
                |route: &PassRoute| route.names.iter().filter_map(|one| one.fits(name)).max();
            // of equal routes, the first wins
            at_port()
                .rev()
                .filter_map(|(at, route)| Some((fits(route)?, at)))
                .max_by_key(|(fits, _)| *fits)
        });
        let rest = || {
            let nameless = at_port().filter(|(_, route)| route.names.is_empty() && passed.is_raw);
            nameless.min_by_key(|(_, route)| route.port.is_none()).map(|(at, _)| at)
        };
        named.map(|(_, at)| at).or_else(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(port: Option<u16>, names: &[&str]) -> PassRoute {
        let name = |text: &&str| match text.strip_prefix("*.") {
            Some(name) => PassName { name: name.into(), is_wildcard: true },
            None => PassName { name: (*text).into(), is_wildcard: false },
        };
        PassRoute { port, names: names.iter().map(name).collect() }
    }

    #[test]
    fn names_come_first_and_the_rest_by_port() {
        let routes = PassRoutes::new(vec![
            route(None, &[]),
            route(None, &["*.example"]),
            route(Some(443), &["*.db.example", "mail.example"]),
            route(Some(5432), &[]),
            route(None, &["mail.example"]),
        ]);
        let find = |port, name: &str, is_raw| {
            let name = (!name.is_empty()).then(|| name.into());
            routes.find(port, &PassedConnection { name, is_raw })
        };
        for (port, name, is_raw, expected) in [
            (443, "mail.example", false, Some(2)),
            (8443, "mail.example", false, Some(4)),
            (443, "a.db.example", false, Some(2)),
            (8443, "a.db.example", false, Some(1)),
            (443, "db.example", false, Some(1)),
            (443, "example", false, None),
            (443, "", false, None),
            (443, "example", true, Some(0)),
            (5432, "", true, Some(3)),
            (5432, "www.example", true, Some(1)),
            (5432, "xexample", true, Some(3)),
        ] {
            assert_eq!(find(port, name, is_raw), expected, "{port} {name} {is_raw}");
        }
        assert!(routes.ask_names(1) && !PassRoutes::default().ask_names(1));
    }
}
