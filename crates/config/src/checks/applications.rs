//! Combinations of the server and applications behind it that cannot work, as far as the text shows:
//! `forebay check` warns of them.

use crate::problems::path::Path as At;
use crate::problems::problem::{Finding, Remarks, Wrong};
use crate::reading::draft::{ConfigDraft, numbered};
use crate::table::ConfigReader;
use crate::{Listen, SiteConfig};
use forebay_engine::Engine;
use forebay_upstream::settings::{ConnectionAuth, GroupSettings, UpstreamAddress};
use std::fmt;
use std::net::IpAddr;
use std::path::Path;

/// A remark about applications.
#[derive(Debug)]
enum ApplicationRemark {
    /// A setting that means nothing beside another one.
    Useless {
        /// The other setting.
        beside: &'static str,
    },
    /// No client can sign in on a connection to the upstream, because no such connection is kept.
    NoSignIn {
        /// The setting that leaves no connection open.
        beside: &'static str,
    },
    /// HTTP/2 is configured for connections that serve one request each.
    BeginsAnew {
        /// The setting that leaves no connection open.
        beside: &'static str,
    },
    /// A variable that belongs to each request, set for all.
    OfEachRequest {
        /// The name of the variable.
        name: String,
    },
    /// The paths that an application may have sent include its own route, so clients are refused all of it.
    HidesRoute,
    /// An application that is this server itself.
    Itself {
        /// The address at which this server listens.
        found: String,
    },
    /// Each connection to an application that becomes a tunnel keeps a thread.
    TunnelKeepsThread {
        /// The engine that keeps a thread for each connection.
        engine: &'static str,
    },
    /// Each request that waits for an application keeps a thread.
    QueueKeepsThreads {
        /// The engine that keeps a thread for each connection.
        engine: &'static str,
        /// The number of requests that may wait.
        requests: u64,
    },
    /// The certificates of upstreams are not verified.
    Unverified,
    /// Another route has the same upstream with other settings.
    CountsAlone {
        /// The address of the upstream.
        upstream: String,
    },
}

impl Finding for ApplicationRemark {}

impl fmt::Display for ApplicationRemark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ApplicationRemark::Useless { beside } => write!(f, "means nothing beside {beside}"),
            ApplicationRemark::NoSignIn { beside } => write!(
                f,
                "beside {beside} each request has a connection of its own: a sign-in that takes several, such as \
                 NTLM, never comes to its end"
            ),
            ApplicationRemark::BeginsAnew { beside } => write!(
                f,
                "beside {beside} each request has a connection of its own: HTTP/2 begins anew with each, and costs more \
                 than HTTP/1.1"
            ),
            ApplicationRemark::OfEachRequest { name } => write!(
                f,
                "sets {name}, which says of each request what it is: scripts misread all others"
            ),
            ApplicationRemark::HidesRoute => f.write_str(
                "has the path of its own route in it: clients get 404 for all that the application has",
            ),
            ApplicationRemark::Itself { found } => {
                write!(f, "this server listens at {found}, and would ask itself for ever")
            }
            ApplicationRemark::TunnelKeepsThread { engine } => write!(
                f,
                "with engine = \"{engine}\" each WebSocket keeps a thread for itself, and those beyond \
                 tunnel_threads get 503; the engine event keeps \
                 none, and upgrade = false refuses them"
            ),
            ApplicationRemark::QueueKeepsThreads { engine, requests } => write!(
                f,
                "with engine = \"{engine}\" each request that waits keeps a thread: {requests} may wait, but \
                 those beyond upstream_threads get 503; the engine event keeps none"
            ),
            ApplicationRemark::Unverified => f.write_str(
                "the certificates of these applications are not looked at: whoever is on the way can read and \
                 change everything; tls.ca with their own certificate would tell them from others",
            ),
            ApplicationRemark::CountsAlone { upstream } => write!(
                f,
                "other routes to {upstream} say something else of it (to, balance, in_flight, queue, \
                 retry_budget, max_fails, fail_time, slow_start, check, tls, http2 or http2_connections), so what is under way is counted \
                 for each of them alone; say the same of it everywhere"
            ),
        }
    }
}

impl ConfigDraft {
    /// Remarks on applications that are this server itself, and on tunnels and queues that keep threads.
    pub(crate) fn remark_applications(&self, text: &ConfigReader<'_>, remarks: &mut Remarks) {
        for (place, address) in passed_to(text, self) {
            if self.listens_at(address) {
                let found = address.to_string();
                remarks.push((place, Wrong::said(ApplicationRemark::Itself { found })));
            }
        }
        for (at, site) in self.every_site() {
            for (place, address) in addresses(text, &at, site) {
                if self.listens_at(address) {
                    remarks.push((
                        place,
                        Wrong::said(ApplicationRemark::Itself { found: address.to_string() }),
                    ));
                }
            }
            for (list, index, tls) in site.upstream_tls() {
                if !tls.verifies {
                    let at = at.child(list).item(index).child("tls.verify");
                    remarks.push((at, Wrong::said(ApplicationRemark::Unverified)));
                }
            }
            self.remark_tunnels(&at, site, remarks);
            remark_useless(text, &at, site, remarks);
            remark_unkept(text, &at, site, remarks);
        }
        self.remark_queues(remarks);
    }

    /// Whether this server listens at an address.
    pub fn listens_at(&self, address: &UpstreamAddress) -> bool {
        let is_local = |ip: IpAddr| ip.is_loopback() || ip.is_unspecified();
        let is_it = |listen: &Listen| match (listen, address) {
            (Listen::Unix(path), UpstreamAddress::Unix(other)) => path == other,
            (Listen::At(own), UpstreamAddress::Socket(other)) => {
                let is_any = own.ip().is_unspecified() && is_local(other.ip());
                own.port() == other.port() && (own.ip() == other.ip() || is_any)
            }
            (Listen::All(port), UpstreamAddress::Socket(other)) => {
                *port == other.port() && is_local(other.ip())
            }
            (listen, UpstreamAddress::Name { host, port }) => {
                let is_ours = match listen {
                    Listen::At(own) => is_local(own.ip()),
                    Listen::All(_) => true,
                    Listen::Unix(_) => false,
                };
                is_ours && listen.port() == Some(*port) && &**host == "localhost"
            }
            _ => false,
        };
        let listeners = self.all_listeners();
        let mut endpoints = listeners.iter().flat_map(|(_, listener)| &listener.listen);
        endpoints.any(|endpoint| is_it(&endpoint.listen))
    }

    /// Remarks on tunnels where each connection keeps a thread.
    fn remark_tunnels(&self, at: &At, site: &SiteConfig, remarks: &mut Remarks) {
        let listeners = self.all_listeners();
        let engines = listeners.iter().map(|(_, listener)| listener.engine);
        let mut engines = engines.filter(|engine| matches!(engine, Engine::Threads | Engine::Pool));
        let Some(engine) = engines.next() else { return };
        for (index, proxy) in site.proxies.iter().enumerate() {
            if proxy.upgrades() {
                let at = at.child("proxy").item(index).child("upgrade");
                remarks.push((
                    at,
                    Wrong::said(ApplicationRemark::TunnelKeepsThread { engine: engine.name() }),
                ));
            }
        }
    }

    /// Remarks on queues that may keep all threads, and on upstreams that are counted for each of several
    /// routes.
    fn remark_queues(&self, remarks: &mut Remarks) {
        let mut known: Vec<(At, bool, GroupSettings, bool)> = Vec::new();
        for (at, site) in self.every_site() {
            let place = |list: &str, index: usize| at.child(list).item(index).child("in_flight");
            let proxies = site.proxies.iter().enumerate();
            let proxies =
                proxies.map(|(index, one)| (place("proxy", index), false, one.settings().group));
            let scripts = site.fastcgi.iter().enumerate();
            let scripts = scripts.map(|(index, one)| {
                (place("fastcgi", index), true, one.settings(one.root(None)).group)
            });
            let hand_overs = site.hand_overs.iter().enumerate();
            let hand_overs = hand_overs
                .map(|(index, one)| (place("hand_over", index), true, one.settings().group));
            let programs = site.cgi.iter().enumerate();
            let programs = programs
                .map(|(index, one)| (place("cgi", index), true, one.settings(Path::new("")).group));
            // a request that waits to be handed over keeps no thread; a relayed one does
            let relays = site.hand_overs.iter().map(|one| one.relays());
            let hand_overs = hand_overs.zip(relays);
            let others = proxies.chain(scripts).chain(programs).map(|one| (one, true));
            let all = others.chain(hand_overs);
            known.extend(all.map(|((at, kind, group), keeps)| (at, kind, group, keeps)));
        }
        let threads = self.all_listeners().into_iter().map(|(_, listener)| listener.engine);
        let engine =
            threads.into_iter().find(|engine| matches!(engine, Engine::Threads | Engine::Pool));
        for (number, (at, is_fastcgi, group, keeps_threads)) in known.iter().enumerate() {
            if group.in_flight.is_none() {
                continue;
            }
            if let Some(engine) = engine.filter(|_| group.queue.requests > 0 && *keeps_threads) {
                let (engine, requests) = (engine.name(), group.queue.requests.into());
                remarks.push((
                    at.clone(),
                    Wrong::said(ApplicationRemark::QueueKeepsThreads { engine, requests }),
                ));
            }
            let others = known[..number].iter().filter(|(_, other, ..)| other == is_fastcgi);
            let others = others.filter(|(_, _, other, _)| !other.shares_with(group));
            let is_shared = |to: &&UpstreamAddress| {
                others.clone().any(|(_, _, other, _)| other.to.contains(to))
            };
            if let Some(upstream) = group.to.iter().find(is_shared) {
                let upstream = upstream.to_string();
                remarks
                    .push((at.clone(), Wrong::said(ApplicationRemark::CountsAlone { upstream })));
            }
        }
    }
}

/// Variables by which a script reads its request.
const OF_EACH_REQUEST: [&str; 5] =
    ["CONTENT_LENGTH", "CONTENT_TYPE", "REQUEST_METHOD", "QUERY_STRING", "SERVER_PROTOCOL"];

/// Remarks on settings without effect, and on those that mean more than was probably intended.
fn remark_useless(text: &ConfigReader<'_>, at: &At, site: &SiteConfig, remarks: &mut Remarks) {
    let place = |list: &str, index: usize| at.child(list).item(index);
    let proxies = site.proxies.iter().enumerate().map(|(index, one)| {
        let route = one.route();
        (place("proxy", index), one.settings().group, route, one.tells_client_first())
    });
    let scripts = site.fastcgi.iter().enumerate().map(|(index, one)| {
        (place("fastcgi", index), one.settings(one.root(None)).group, one.route(), false)
    });
    for (index, one) in site.fastcgi.iter().enumerate() {
        let set = one.settings(one.root(None)).request.set;
        let own = set.iter().find(|(name, _)| OF_EACH_REQUEST.contains(&&**name));
        let wrong = own.map(|(name, _)| {
            Wrong::said(ApplicationRemark::OfEachRequest { name: name.to_string() })
        });
        remarks.extend(wrong.map(|wrong| (place("fastcgi", index).child("set"), wrong)));
        let keys = ["extension", "index", "try", "scripts"];
        let keys = keys.map(|key| place("fastcgi", index).child(key));
        let said = keys.into_iter().filter(|at| !one.runs_files() && text.says(at));
        remarks.extend(said.map(|at| (at, Wrong::Idle { needs: "check_local = true" })));
    }
    for (index, one) in site.cgi.iter().enumerate() {
        let set = one.launched().set;
        let own = set.into_iter().find(|(name, _)| OF_EACH_REQUEST.contains(&&**name));
        let wrong = own.map(|(name, _)| {
            Wrong::said(ApplicationRemark::OfEachRequest { name: name.into_string() })
        });
        remarks.extend(wrong.map(|wrong| (place("cgi", index).child("set"), wrong)));
    }
    for (at, group, route, tells_client_first) in proxies.chain(scripts) {
        let mut useless = |key: &str, is_so: bool, beside: &'static str| {
            let at = at.child(key);
            if is_so && text.says(&at) {
                remarks.push((at, Wrong::said(ApplicationRemark::Useless { beside })));
            }
        };
        useless("retry_budget", group.retries == 0, "retries = 0");
        useless("keep_alive.connections", tells_client_first, "proxy_protocol");
        useless("http2_connections", !group.http2, "http2 = false");
        useless("http2_connections", tells_client_first && group.http2, "proxy_protocol");
        if route.sends.iter().any(|sent| sent.covers(&route.path)) {
            remarks.push((at.child("accel_redirect"), Wrong::said(ApplicationRemark::HidesRoute)));
        }
    }
}

/// Remarks on connections that end with each request, though they should belong to the clients who sign in
/// on them, or be used again over HTTP/2. Where the text sets nothing, the server does its best, and
/// nothing is remarked.
fn remark_unkept(text: &ConfigReader<'_>, at: &At, site: &SiteConfig, remarks: &mut Remarks) {
    for (index, proxy) in site.proxies.iter().enumerate() {
        let at = at.child("proxy").item(index);
        let beside = match proxy.settings().group.keep_alive.connections {
            _ if proxy.tells_client_first() => "proxy_protocol",
            0 => "keep_alive.connections = 0",
            _ => continue,
        };
        let group = proxy.settings().group;
        let is_shared = group.http2_connections.is_some() && !proxy.tells_client_first();
        if group.http2 && !is_shared {
            remarks
                .push((at.child("http2"), Wrong::said(ApplicationRemark::BeginsAnew { beside })));
        }
        let at = at.child("connection_auth");
        if proxy.connection_auth() == ConnectionAuth::Bind && text.says(&at) {
            remarks.push((at, Wrong::said(ApplicationRemark::NoSignIn { beside })));
        }
    }
}

/// The addresses of a site's applications, each with its place in the configuration.
pub fn addresses<'s>(
    text: &ConfigReader<'_>,
    at: &At,
    site: &'s SiteConfig,
) -> Vec<(At, &'s UpstreamAddress)> {
    let place = |list: &str, index: usize, key: &str, number: usize| {
        let whole = at.child(list).item(index).child(key);
        // a single address may stand without a list
        Some(whole.item(number)).filter(|item| text.says(item)).unwrap_or(whole)
    };
    let mut found = Vec::new();
    for (index, proxy) in site.proxies.iter().enumerate() {
        for (key, to) in proxy.to() {
            let to = to.iter().enumerate();
            found
                .extend(to.map(|(number, to)| (place("proxy", index, key, number), &to.0.address)));
        }
    }
    for (index, authority) in site.authorities.iter().enumerate() {
        let to = authority.to().iter().enumerate();
        found.extend(
            to.map(|(number, to)| (place("forward_auth", index, "to", number), &to.0.address)),
        );
    }
    for (index, fastcgi) in site.fastcgi.iter().enumerate() {
        for (key, to) in fastcgi.to() {
            let to = to.iter().enumerate();
            found.extend(to.map(|(number, to)| (place("fastcgi", index, key, number), &to.0)));
        }
    }
    for (index, hand_over) in site.hand_overs.iter().enumerate() {
        let to = hand_over.to().iter().enumerate();
        found.extend(to.map(|(number, to)| (place("hand_over", index, "to", number), &to.0)));
    }
    found
}

/// The addresses that connections are passed on to, each with its place in the configuration.
pub fn passed_to<'d>(
    text: &ConfigReader<'_>,
    draft: &'d ConfigDraft,
) -> Vec<(At, &'d UpstreamAddress)> {
    let mut found = Vec::new();
    for (at, tcp) in numbered("tcp", &draft.tcp) {
        for (key, to) in tcp.to() {
            let whole = at.child(key);
            found.extend(to.iter().enumerate().map(|(number, to)| {
                let item = Some(whole.item(number)).filter(|item| text.says(item));
                (item.unwrap_or_else(|| whole.clone()), &to.0)
            }));
        }
    }
    found
}
