//! Applications behind this server: the settings of a route, and the upstreams that it shares with
//! others.
//!
//! | module | what it holds |
//! |---|---|
//! | [`pool`] | connections that wait for their next request |
//! | [`upkeep`] | checks of upstreams, and names that are looked up again |
//! | `workers` | pools of workers that report how many there are |

pub mod pool;
pub mod upkeep;
mod workers;

use crate::group::MemberIndex;
use crate::group::balance::hash;
use crate::link::ends::Ends;
use crate::link::{self, Link, LinkCounts};
use crate::settings;
use crate::settings::upstream_address::UpstreamAddress;
use crate::upstreams::Upstreams;
use crate::upstreams::connection::UpstreamConnection;
use crate::upstreams::http2::Http2Peer;
use crate::upstreams::shared::{SharedConnectionLimits, SharedStream};
use forebay_sys::broker::Connector;
use forebay_sys::client;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The application of one route.
#[derive(Debug)]
pub struct Application {
    settings: settings::ApplicationSettings,
    upstreams: Arc<Upstreams>,
    /// The link that decides about requests, if the application is the next stage of this server.
    link: Option<Mutex<Link>>,
    /// The file in which the supervisor reports how processes of the stage end.
    ends: Option<Mutex<Ends>>,
    /// The process that makes connections, if this one may not.
    connector: Option<Mutex<Connector>>,
    /// The settings of the link.
    link_settings: Option<link::LinkSettings>,
    /// Whether the application is asked over HTTP/2.
    is_http2: bool,
    /// The same receivers, for requests that are passed on to them over socket pairs.
    relayed: Option<Arc<Application>>,
    /// Whether this application is the `relayed` one of another.
    is_relayed: bool,
}

impl Application {
    /// The application with these upstreams, which are those of the settings.
    pub fn new(
        settings: settings::ApplicationSettings,
        upstreams: Arc<Upstreams>,
    ) -> Arc<Application> {
        let relay = match &settings {
            settings::ApplicationSettings::HandOver(hand_over) => hand_over.relay.as_deref(),
            settings::ApplicationSettings::Proxy(_)
            | settings::ApplicationSettings::FastCgi(_)
            | settings::ApplicationSettings::Inside(_)
            | settings::ApplicationSettings::Tcp(_) => None,
        };
        let relayed = relay.map(|proxy| {
            let settings = settings::ApplicationSettings::Proxy(proxy.clone());
            let own = Application::with(settings, Arc::clone(&upstreams));
            Arc::new(Application { is_relayed: true, ..own })
        });
        Arc::new(Application { relayed, ..Application::with(settings, upstreams) })
    }

    fn with(settings: settings::ApplicationSettings, upstreams: Arc<Upstreams>) -> Application {
        let is_http2 = settings.group().http2;
        Application {
            settings,
            upstreams,
            link: None,
            ends: None,
            connector: None,
            link_settings: None,
            is_http2,
            relayed: None,
            is_relayed: false,
        }
    }

    /// The next stage of this server. Its instances are the upstreams, and a [link] decides what
    /// becomes of requests to them. No request waits for a place. `is_http2` says how the instances
    /// are asked. `connector` makes connections to them, if this process may not.
    pub fn of_stage(
        settings: settings::ApplicationSettings,
        link: link::LinkSettings,
        is_http2: bool,
        ends: Option<Ends>,
        connector: Option<Connector>,
        now_ms: u64,
    ) -> Arc<Application> {
        let group = settings.group();
        let upstreams = Upstreams::new(group, settings.proxy().is_none(), now_ms);
        let keys = group.to.iter().map(|address| hash(address.to_string().as_bytes())).collect();
        let link_settings = link::LinkSettings { is_watched: ends.is_some(), ..link };
        let link = Mutex::new(Link::new(link_settings, keys, upstreams.number(), now_ms));
        Arc::new(Application {
            settings,
            upstreams,
            link: Some(link),
            ends: ends.map(Mutex::new),
            connector: connector.map(Mutex::new),
            link_settings: Some(link_settings),
            is_http2,
            relayed: None,
            is_relayed: false,
        })
    }

    /// Begins to connect to an upstream, or has another process do so. Addresses in `refused` are
    /// used only if there are no others. The connection speaks HTTP/2 if `is_http2`.
    pub(crate) fn connect(
        &self,
        member: MemberIndex,
        refused: &[SocketAddr],
        is_http2: bool,
        now_ms: u64,
    ) -> io::Result<UpstreamConnection> {
        let connection = match &self.connector {
            None => self.upstreams.connect(member, refused, is_http2, now_ms)?,
            Some(connector) => {
                let number = u32::try_from(member).map_err(|_| io::ErrorKind::AddrNotAvailable)?;
                let mut connector = connector.lock().unwrap_or_else(PoisonError::into_inner);
                let connection = connector.connect(number).map(UpstreamConnection::from)?;
                self.upstreams.seal(member, is_http2, connection)?
            }
        };
        if self.is_stage() && !self.is_own(member) {
            // nothing else tells when an instance's machine is gone while a request that must not run
            // twice waits for it
            let _ = client::ask_other_end(connection.as_fd());
        }
        Ok(if is_http2 { connection.with_http2(self.http2_peer()) } else { connection })
    }

    /// Has the connecting process begin a connection to the target whose number follows the last
    /// upstream's. Returns `None` if this process connects by itself.
    pub fn connect_beside(&self) -> Option<io::Result<OwnedFd>> {
        let connector = self.connector.as_ref()?;
        let number = u32::try_from(self.settings.group().to.len()).unwrap_or(u32::MAX);
        Some(connector.lock().unwrap_or_else(PoisonError::into_inner).connect(number))
    }

    /// A stream of a shared connection to an upstream. If a connection is begun for it, addresses in
    /// `refused` are used only if there are no others. Returns `None` if each request has connections
    /// for itself.
    pub(crate) fn share(
        &self,
        member: MemberIndex,
        refused: &[SocketAddr],
        now_ms: u64,
    ) -> io::Result<Option<UpstreamConnection>> {
        let group = self.settings.group();
        let Some(connections) = group.http2_connections.filter(|_| !self.is_stage()) else {
            return Ok(None);
        };
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let keeps = group.keep_alive.connections > 0;
        let limits = SharedConnectionLimits {
            connections: connections as usize,
            idle_ms: if keeps { ms(group.keep_alive.idle) } else { 0 },
            connect_ms: ms(group.timeouts.connect),
        };
        let stream = SharedStream::new(&self.upstreams, member, refused, limits, now_ms)?;
        Ok(stream.map(UpstreamConnection::from))
    }

    /// The kind of peer for HTTP/2.
    fn http2_peer(&self) -> Http2Peer {
        if self.is_stage() { Http2Peer::Stage } else { Http2Peer::Application }
    }

    /// Whether the application is asked over HTTP/2.
    pub(crate) fn is_http2(&self) -> bool {
        self.is_http2
    }

    /// Reports processes that have ended since the last call to the link.
    pub(crate) fn look_at_ends(&self, link: &mut Link) {
        let Some(ends) = &self.ends else { return };
        let mut ends = ends.lock().unwrap_or_else(PoisonError::into_inner);
        ends.look(|end| link.ended(end.instance, end.was_by_itself, end.at_ms));
    }

    /// The link, if the application is a stage of this server.
    pub(crate) fn link(&self) -> Option<MutexGuard<'_, Link>> {
        self.link.as_ref().map(|link| link.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The counts of the link; all zero if there is none.
    pub fn link_counts(&self) -> LinkCounts {
        self.link().map(|link| link.counts()).unwrap_or_default()
    }

    /// Whether an instance is a process of this server at a Unix socket. Such a process closes no
    /// connection while it lives, and sends nothing unasked. The address of another machine may stand
    /// for several processes.
    pub(crate) fn is_own(&self, member: MemberIndex) -> bool {
        let is_here =
            || matches!(self.settings.group().to.get(member), Some(UpstreamAddress::Unix(_)));
        self.link_settings.is_some_and(|link| link.acknowledges) && is_here()
    }

    /// Whether clients' sockets are handed over to the application.
    pub(crate) fn is_handed_sockets(&self) -> bool {
        matches!(self.settings, settings::ApplicationSettings::HandOver(_))
    }

    /// The same receivers, for requests of clients whose sockets are of no use to them, if such
    /// requests are passed on.
    pub fn relayed(&self) -> Option<&Arc<Application>> {
        self.relayed.as_ref()
    }

    /// Whether each request is offered to the application with one end of a socket pair.
    pub fn is_relayed(&self) -> bool {
        self.is_relayed
    }

    /// How long an acknowledgement to the stage before may be held back, in milliseconds.
    pub(crate) fn held_back_ms(&self) -> Option<u64> {
        let after = self.link_settings?.held_back()?;
        u64::try_from(after.as_millis()).ok()
    }

    /// Whether the application is the next stage of this server.
    pub fn is_stage(&self) -> bool {
        self.link.is_some()
    }

    /// The settings of the application.
    pub fn settings(&self) -> &settings::ApplicationSettings {
        &self.settings
    }

    /// The upstreams that answer.
    pub fn upstreams(&self) -> &Arc<Upstreams> {
        &self.upstreams
    }

    /// The name of an upstream in logs.
    pub fn label(&self, member: MemberIndex) -> &str {
        self.upstreams.label(member)
    }

    /// The host and port of an upstream, as a request names them.
    pub fn authority(&self, member: MemberIndex) -> &str {
        self.upstreams.authority(member)
    }
}
