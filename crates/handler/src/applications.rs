//! The applications behind the sites, by the numbers that the content has for their routes; and the
//! requests to them.
//!
//! A reload keeps each application whose settings have not changed, with all that is known of it.

mod answers;
mod ask;
mod next_stage;
mod pools;
mod proxy_header;
pub(crate) mod websocket;

use crate::certificates::Certificates;
pub use answers::{
    before, failed, refused, said_of, said_of_handler, said_of_receiver, said_of_turn, summary,
};
pub use ask::{
    Asker, ExchangeTag, ExchangeTrace, Hidden, NO_TUNNEL, Standpoint, Unasked, ask, ask_authority,
    ask_passed, ask_stage,
};
use forebay_config::Role;
use forebay_conn::{PassRoutes, PassedConnection};
use forebay_control::shared::SharedCounts;
use forebay_http::field::FieldName;
use forebay_site::Destination;
use forebay_sys::launch::MessageSocket;
use forebay_sys::stderr::say;
use forebay_upstream::application::Application;
use forebay_upstream::health::UpstreamCondition;
use forebay_upstream::settings;
use forebay_upstream::spool::Spool;
use forebay_upstream::stage::CONFIGURATION;
use forebay_upstream::upstreams::{self, SharedConnectionCounts, Upstreams};
pub use next_stage::NextStage;
pub use pools::Pools;
use std::collections::HashMap;
use std::sync::Arc;

/// All applications of a configuration.
#[derive(Debug, Default)]
pub struct Applications {
    /// The applications, by site, then by route.
    sites: Vec<Vec<Arc<Application>>>,
    /// The fields that deciding servers add to requests, by site: clients' fields of these names are
    /// dropped.
    given: Vec<Vec<FieldName>>,
    /// The upstreams of all applications, each once, with their settings.
    upstreams: Vec<(Arc<Upstreams>, settings::GroupSettings)>,
    /// Whether some application gets the address that its clients have reached.
    tell_local: bool,
    /// Whether some application takes other protocols (tunnels).
    take_tunnels: bool,
    /// The routes of connections that are passed on as they are; their servers are those of the last
    /// site.
    pass_routes: Arc<PassRoutes>,
    /// The share of each class, by rank, in the queues for upstreams.
    shares: Arc<[f64]>,
    /// The stage that this process is, and the next one, if it is a stage.
    next: Option<NextStage>,
    /// The place on disk for bodies that must be collected.
    spool: Option<Arc<Spool>>,
    /// The socket of the process that runs programs for requests.
    launcher: Option<Arc<MessageSocket>>,
}

impl Applications {
    /// The applications that these settings name, by site and route, with the shares of the classes.
    /// Upstreams of `before` that stay at their addresses are kept. The call may wait for a name service.
    pub fn new(
        sites: &[Vec<settings::ApplicationSettings>],
        shares: &Arc<[f64]>,
        before: Option<&Applications>,
        now_ms: u64,
    ) -> Applications {
        let next = before.and_then(|before| before.next.clone());
        let mut all = Applications { shares: Arc::clone(shares), next, ..Applications::default() };
        let mut application = |settings: &settings::ApplicationSettings| {
            let upstreams = all.upstreams_of(settings, before, now_ms);
            Application::new(settings.clone(), upstreams)
        };
        let told = |one: &settings::ApplicationSettings| match one {
            settings::ApplicationSettings::Proxy(_) | settings::ApplicationSettings::Tcp(_) => {
                one.proxy_protocol().is_some()
            }
            settings::ApplicationSettings::FastCgi(_)
            | settings::ApplicationSettings::HandOver(_)
            | settings::ApplicationSettings::Inside(_) => true,
        };
        let tell_local = sites.iter().flatten().any(told);
        let given = sites.iter().map(|routes| given_by(routes)).collect();
        let take_tunnels = sites.iter().flatten().any(takes_tunnels);
        let sites = sites.iter().map(|routes| routes.iter().map(&mut application).collect());
        let sites = sites.collect();
        Applications { sites, given, tell_local, take_tunnels, ..all }
    }

    /// Adds the routes of connections that are passed on as they are. Their servers stand behind those of
    /// the sites.
    #[must_use]
    pub fn passing(self, routes: &Arc<PassRoutes>) -> Applications {
        Applications { pass_routes: Arc::clone(routes), ..self }
    }

    /// Adds the next stage, for a process that is a stage.
    #[must_use]
    pub fn with_next(self, next: Option<NextStage>) -> Applications {
        Applications { next, ..self }
    }

    /// Adds a place on disk for bodies that must be collected.
    #[must_use]
    pub fn with_spool(self, spool: Option<Arc<Spool>>) -> Applications {
        Applications { spool, ..self }
    }

    /// Adds the socket of the process that runs programs for requests.
    #[must_use]
    pub fn with_launcher(self, launcher: Option<Arc<MessageSocket>>) -> Applications {
        if let Some(launcher) = &launcher {
            self.upstreams().for_each(|upstreams| upstreams.launch_by(launcher));
        }
        Applications { launcher, ..self }
    }

    /// The socket of the process that runs programs for requests.
    pub fn launcher(&self) -> Option<&Arc<MessageSocket>> {
        self.launcher.as_ref()
    }

    /// The place on disk for bodies that must be collected.
    pub fn spool(&self) -> Option<&Arc<Spool>> {
        self.spool.as_ref()
    }

    /// The stage that this process is; `None` if it is the whole server.
    #[inline]
    pub fn role(&self) -> Option<Role> {
        self.next.as_ref().map(|next| next.role)
    }

    /// The next stage, which this process asks.
    pub fn next_stage(&self) -> Option<&Arc<Application>> {
        self.next.as_ref()?.stage.as_ref()
    }

    /// The answer to the stage before, when it asks whether this one lives.
    pub fn pong(&self) -> String {
        let said = self.next.as_ref().map_or("", |next| &*next.configuration);
        format!("HTTP/1.1 204 No Content\r\n{CONFIGURATION}: {said}\r\n")
    }

    /// Whether the next stage is other software, which knows none of our rules.
    pub fn is_next_other(&self) -> bool {
        self.next.as_ref().is_some_and(|next| next.is_other)
    }

    /// Whether an idempotent request to the next stage may be sent again.
    pub fn repeats_idempotent(&self, site: Option<u32>) -> bool {
        self.next.as_ref().is_some_and(|next| next.repeats_idempotent(site))
    }

    /// The upstreams of a route: those of another route if its settings for them are the same.
    fn upstreams_of(
        &mut self,
        settings: &settings::ApplicationSettings,
        before: Option<&Applications>,
        now_ms: u64,
    ) -> Arc<Upstreams> {
        let (group, is_fastcgi) = (settings.group(), settings.proxy().is_none());
        let is_there = |upstreams: &Arc<Upstreams>| {
            self.upstreams.iter().any(|(one, _)| Arc::ptr_eq(one, upstreams))
        };
        let mut own = self.upstreams.iter();
        let are = |one: &Upstreams, of: &settings::GroupSettings| {
            one.are(&group.to, is_fastcgi) && of.tls == group.tls
        };
        let same = own.find(|(one, of)| are(one, of) && of.shares_with(group));
        if let Some((same, _)) = same {
            return Arc::clone(same);
        }
        let known = || before.iter().flat_map(|before| &before.upstreams);
        let mut known = known()
            .filter(|(one, of)| are(one, of) && of.shares_with(group))
            .chain(known().filter(|(one, of)| are(one, of)))
            .map(|(one, _)| one);
        let kept = known.find(|&one| !is_there(one)).map(Arc::clone);
        let upstreams = kept.unwrap_or_else(|| Upstreams::new(group, is_fastcgi, now_ms));
        self.upstreams.push((Arc::clone(&upstreams), group.clone()));
        upstreams
    }

    /// Puts the settings in force, in place of those of `before`. TLS to upstreams uses these
    /// certificates.
    pub fn take_effect(&self, before: Option<&Applications>, certificates: &Certificates) {
        if let Some(stage) = self.next_stage() {
            speak_by(stage.upstreams(), stage.settings().group(), certificates, "the stage");
        }
        for (upstreams, settings) in &self.upstreams {
            upstreams.set(settings, &self.shares);
            speak_by(upstreams, settings, certificates, "the application");
            let Some(before) = before else { continue };
            if before.upstreams().any(|known| Arc::ptr_eq(known, upstreams)) {
                continue;
            }
            // an upstream that an operator has taken out stays out, whatever is beside it now
            for one in upstreams.seen() {
                let is_out = |seen: upstreams::UpstreamReport| {
                    let is_same = match &one.server {
                        None => seen.label == one.label,
                        // another server may be in that place
                        server => seen.server == *server,
                    };
                    is_same && seen.condition == UpstreamCondition::Draining
                };
                let mut others = before.upstreams().filter(|other| other.speak_as(upstreams));
                if others.any(|other| other.seen().into_iter().any(is_out)) {
                    upstreams.drain(one.member, true);
                }
            }
        }
    }

    /// Counts places and queues together with other processes from now on.
    pub fn share(&self, counts: &SharedCounts) {
        let mut seen = HashMap::new();
        self.upstreams().for_each(|upstreams| upstreams.share(counts, &mut seen));
    }

    /// The upstreams of all applications, each once.
    pub fn upstreams(&self) -> impl Iterator<Item = &Arc<Upstreams>> {
        self.upstreams.iter().map(|(upstreams, _)| upstreams)
    }

    /// The routes that use these upstreams, as numbers of site and route.
    pub fn routes_to(&self, upstreams: &Arc<Upstreams>) -> impl Iterator<Item = (usize, usize)> {
        let routes = self.sites.iter().enumerate();
        let routes = routes.flat_map(|(site, routes)| {
            routes.iter().enumerate().map(move |(route, one)| (site, route, one))
        });
        let own = routes.filter(|(.., one)| Arc::ptr_eq(one.upstreams(), upstreams));
        own.map(|(site, route, _)| (site, route))
    }

    /// The number of requests that are under way.
    pub fn in_flight(&self) -> u64 {
        self.upstreams().flat_map(|one| one.seen()).map(|seen| u64::from(seen.in_flight)).sum()
    }

    /// The number of requests that wait for their turn.
    pub fn waiting(&self) -> u64 {
        self.upstreams().map(|one| one.waiting() as u64).sum()
    }

    /// The number of requests that may be under way at once at upstreams with a limit.
    pub fn places(&self) -> u64 {
        let each = self.upstreams().flat_map(|one| one.seen());
        each.filter_map(|seen| seen.most).map(u64::from).sum()
    }

    /// The numbers of connections that requests share.
    pub fn shared_connections(&self) -> SharedConnectionCounts {
        let none = SharedConnectionCounts::default();
        self.upstreams().fold(none, |all, one| all.and(one.shared_connections()))
    }

    /// The applications, one for each of their upstreams.
    pub fn each(&self) -> Vec<Arc<Application>> {
        let mut found: Vec<Arc<Application>> = Vec::new();
        for one in self.sites.iter().flatten() {
            if !found.iter().any(|known| Arc::ptr_eq(known.upstreams(), one.upstreams())) {
                found.push(Arc::clone(one));
            }
        }
        found
    }

    /// Whether some application gets the address that its clients have reached: as SERVER_ADDR, or by the
    /// PROXY protocol.
    #[inline]
    pub fn tell_local(&self) -> bool {
        self.tell_local
    }

    /// Whether there are no applications.
    pub fn is_empty(&self) -> bool {
        self.upstreams.is_empty()
    }

    /// The routes of connections that are passed on as they are.
    #[inline]
    pub fn pass_routes(&self) -> &Arc<PassRoutes> {
        &self.pass_routes
    }

    /// The servers that get a connection which has reached this port.
    pub fn passed_to(
        &self,
        port: u16,
        passed: &PassedConnection,
    ) -> Option<(Destination, &Arc<Application>)> {
        let route = u32::try_from(self.pass_routes.find(port, passed)?).ok()?;
        let site = u32::try_from(self.sites.len().checked_sub(1)?).ok()?;
        let destination = Destination { site, route, ..Destination::default() };
        let application = self.get(&destination)?;
        Some((destination, application))
    }

    /// The application that a request is for.
    pub fn get(&self, destination: &Destination) -> Option<&Arc<Application>> {
        self.sites.get(destination.site as usize)?.get(destination.route as usize)
    }

    /// The fields that deciding servers add to requests of this site.
    pub fn given(&self, site: u32) -> &[FieldName] {
        self.given.get(site as usize).map_or(&[], Vec::as_slice)
    }
}

/// Sets the certificates that TLS to these upstreams uses from now on, where it is used.
fn speak_by(
    upstreams: &Upstreams,
    settings: &settings::GroupSettings,
    certificates: &Certificates,
    what: &str,
) {
    if let Some(files) = settings.tls.as_ref().and_then(|tls| certificates.of_upstreams(tls))
        && let Err(error) = upstreams.speak_by(files)
    {
        // requests to them are answered with 502: nothing goes there in clear instead
        say(format_args!("{what} at {}: {error}", upstreams.label(0)));
    }
}

/// The fields in which oauth2-proxy and similar servers state the user, and get the page that clients
/// return to. Clients must not set them, even where some of them are not copied.
const ALWAYS_GIVEN: [&str; 6] = [
    "X-Auth-Request-User",
    "X-Auth-Request-Email",
    "X-Auth-Request-Groups",
    "X-Auth-Request-Preferred-Username",
    "X-Auth-Request-Access-Token",
    "X-Auth-Request-Redirect",
];

/// The fields that the deciding servers of a site with these routes add to requests.
fn given_by(routes: &[settings::ApplicationSettings]) -> Vec<FieldName> {
    let mut authorities =
        routes.iter().filter_map(|one| one.proxy()?.authority.as_ref()).peekable();
    let always = authorities.peek().map_or(&[][..], |_| &ALWAYS_GIVEN);
    let always: Vec<_> = always.iter().filter_map(|name| FieldName::parse(name).ok()).collect();
    let mut given: Vec<_> = authorities.flat_map(|one| &one.copy).cloned().collect();
    given.extend(always);
    given
}

/// Whether an application may be asked for another protocol.
fn takes_tunnels(application: &settings::ApplicationSettings) -> bool {
    match application {
        settings::ApplicationSettings::Inside(inside) => inside.limits.upgrades,
        other => other.proxy().is_some_and(|proxy| proxy.request.upgrade),
    }
}
