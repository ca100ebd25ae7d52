//! Checks of connections that are passed on as they are: routes that no connection can take, and addresses
//! without a route.

use crate::problems::path::Path as At;
use crate::problems::problem::{Finding, Remarks, Wrong};
use crate::reading::draft::{ConfigDraft, numbered};
use crate::sections::upstreams::backups_fit;
use crate::table::ConfigReader;
use crate::{ListenEndpoint, TcpConfig};
use forebay_engine::Engine;
use forebay_upstream::settings::WhenDown;
use std::fmt;

/// A fault of `[[tcp]]` or of addresses with `tcp://`, or a remark about them.
#[derive(Debug)]
enum PassFinding {
    /// No address can bring the route a connection: HTTP is spoken at every address that could.
    Unreachable,
    /// No address has the port of the route.
    NoPort {
        /// The port of the route.
        port: u16,
    },
    /// No route takes the connections of an address.
    Unrouted,
    /// The address is one of the admin listener, which speaks HTTP.
    Admin,
    /// A site has the name, too.
    NameOfSite {
        /// The name that both have.
        name: String,
    },
    /// Each connection of the route keeps a thread.
    KeepsThread {
        /// The engine.
        engine: &'static str,
    },
}

impl Finding for PassFinding {}

impl fmt::Display for PassFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PassFinding::Unreachable => f.write_str(
                "no connection can take this route: without names it is for addresses that begin with \"tcp://\" in \
                 listen, with names for those and for addresses that begin with \"https://\"",
            ),
            PassFinding::NoPort { port } => write!(f, "no address in listen has the port {port}"),
            PassFinding::Unrouted => f.write_str(
                "no [[tcp]] is for connections to this address, so all of them would be closed; give one this port, or \
                 neither port nor names",
            ),
            PassFinding::Admin => {
                f.write_str("the admin listener answers requests, and passes nothing on: leave \"tcp://\" out")
            }
            PassFinding::NameOfSite { name } => write!(
                f,
                "a site has the host {name:?}, too: clients that ask for it through TLS get the servers of this route, \
                 and the site only clients without TLS"
            ),
            PassFinding::KeepsThread { engine } => write!(
                f,
                "with engine = {engine:?} each connection that is passed on keeps a thread (tunnel_threads), and more \
                 are reset"
            ),
        }
    }
}

impl ConfigDraft {
    /// The addresses of all listeners, each with its place in the configuration.
    fn endpoints(&self) -> Vec<(At, ListenEndpoint, Engine)> {
        let listeners = self.all_listeners().into_iter();
        let each = listeners.flat_map(|(at, listener)| {
            let engine = listener.engine;
            let listen = listener.listen.into_iter().enumerate();
            listen.map(move |(index, end)| (at.child("listen").item(index), end, engine))
        });
        each.collect()
    }

    /// Whether all addresses pass connections on, and none answers requests.
    pub(crate) fn passes_all_on(&self) -> bool {
        self.endpoints().iter().all(|(_, end, _)| end.raw)
    }

    /// Checks that each route can be taken and leads somewhere, and that each address that passes
    /// connections on has a route.
    pub(crate) fn check_passed_on(
        &self,
        text: Option<&ConfigReader<'_>>,
        wrong: &mut Vec<(At, Wrong)>,
    ) {
        let ends = self.endpoints();
        for (at, tcp) in numbered("tcp", &self.tcp) {
            check_servers(&at, tcp, wrong);
            let at_port: Vec<_> = ends.iter().filter(|(_, end, _)| is_for(tcp, end)).collect();
            let takes = |end: &ListenEndpoint| end.raw || (end.tls && !tcp.names.0.is_empty());
            let (place, finding) = match tcp.route().port {
                Some(port) if at_port.is_empty() => {
                    (at.child("port"), PassFinding::NoPort { port })
                }
                _ if at_port.iter().any(|(_, end, _)| takes(end)) => continue,
                _ => (at.clone(), PassFinding::Unreachable),
            };
            wrong.push((place, Wrong::said(finding)));
        }
        for (at, end, _) in ends.iter().filter(|(_, end, _)| end.raw) {
            if !self.tcp.iter().any(|tcp| is_for(tcp, end)) {
                wrong.push((at.clone(), Wrong::said(PassFinding::Unrouted)));
            }
        }
        for (at, _) in self.admin_endpoints(text).into_iter().filter(|(_, end)| end.raw) {
            wrong.push((at, Wrong::said(PassFinding::Admin)));
        }
    }

    /// Remarks on names that sites have, too, and on threads that connections keep.
    pub(crate) fn remark_passed_on(&self, remarks: &mut Remarks) {
        let ends = self.endpoints();
        for (at, tcp) in numbered("tcp", &self.tcp) {
            let mut at_port = ends.iter().filter(|(_, end, _)| is_for(tcp, end));
            let meets_sites = at_port.clone().any(|(_, end, _)| end.tls);
            let sites = self.all_sites();
            let hosts = sites.iter().flat_map(|(_, site)| &site.hosts);
            let of_site = tcp.names.0.iter().find(|name| {
                let has_it = |host: &forebay_site::rules::Host| {
                    host.name() == name.name() && host.is_wildcard() == name.is_wildcard()
                };
                meets_sites && hosts.clone().any(has_it)
            });
            if let Some(name) = of_site {
                let name = name.as_str().to_owned();
                let said = Wrong::said(PassFinding::NameOfSite { name });
                remarks.push((at.child("names"), said));
            }
            if let Some((_, _, engine)) = at_port.find(|(_, _, engine)| engine.has_thread_each()) {
                let engine = engine.name();
                remarks.push((at, Wrong::said(PassFinding::KeepsThread { engine })));
            }
        }
    }
}

/// Whether connections to an address may take a route, as far as the port shows. The kernel may choose a
/// port.
fn is_for(tcp: &TcpConfig, end: &ListenEndpoint) -> bool {
    let port = end.listen.port().unwrap_or(0);
    tcp.route().port.is_none_or(|own| own == port || (port == 0 && end.listen.port().is_some()))
}

/// Checks the servers of a route, and settings that mean nothing beside them.
fn check_servers(at: &At, tcp: &TcpConfig, wrong: &mut Vec<(At, Wrong)>) {
    if tcp.to.0.is_empty() {
        // an empty list is reported where it is read
        return;
    }
    if let Err((key, found)) = backups_fit(&tcp.to.0, &tcp.backup.0) {
        wrong.push((at.child(key), found));
    }
    if let Err(found) = tcp.weights.clone().put_in_order(&tcp.to.0) {
        wrong.push((at.child("weights"), found));
    }
    let never_waits = tcp.in_flight.0.is_none() && tcp.queue.down == WhenDown::Fail;
    for (key, is_set) in [
        ("queue.requests", tcp.queue.requests.0.is_some()),
        ("queue.time", tcp.queue.time.0.is_some()),
    ] {
        if is_set && never_waits {
            let needs = "in_flight or queue.down = \"wait\"";
            wrong.push((at.child(key), Wrong::Idle { needs }));
        }
    }
}
