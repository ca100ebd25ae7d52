//! Settings of applications behind this server, as an operator decides them.

pub(crate) mod upstream_address;

use crate::inside::{HandlerLimits, InsideCode};
use crate::messages::target::Ambiguous;
use crate::messages::{fastcgi, request};
use forebay_http::field::FieldName;
use forebay_http::response::ResponseHeadLimits;
use std::path::PathBuf;
use std::time::Duration;

pub use crate::settings::upstream_address::{
    AddressError, HttpUpstream, LaunchedUpstream, ServicePlace, UpstreamAddress,
};

/// The way of balancing: which upstream gets the next request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    /// The upstreams in turn.
    RoundRobin,
    /// The one with the fewest requests under way.
    #[default]
    Least,
    /// The one with fewer requests under way, of two that are drawn.
    TwoChoices,
    /// The same upstream for the same key, unless that has far more than its share.
    Hash,
}

/// The key by which requests are balanced with [`Balance::Hash`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum BalanceKey {
    /// The client's address.
    #[default]
    Client,
    /// The target of the request.
    Url,
    /// The value of this cookie; the client's address for a request without it.
    Cookie(Box<str>),
}

/// Idle connections to one upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAliveSettings {
    /// The largest number of idle connections; 0 keeps none.
    pub connections: u32,
    /// How long an idle connection is kept.
    pub idle: Duration,
}

/// The queue of requests that wait while all upstreams have as many under way as they may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueSettings {
    /// The largest number of waiting requests; with 0 none waits.
    pub requests: u32,
    /// The longest wait.
    pub time: Duration,
    /// What happens to requests while no upstream takes connections.
    pub down: WhenDown,
}

/// What happens to requests for upstreams that take no connections, and have answered before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenDown {
    /// The requests fail at once.
    #[default]
    Fail,
    /// The requests wait for an upstream, as others wait for a place.
    Wait,
}

/// How long an upstream may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpstreamTimeouts {
    /// The time until there is a connection.
    pub connect: Duration,
    /// The time from the last byte of the request to the last byte of the answer's head.
    pub head: Duration,
    /// The time for a request's body while others want the place; a second more is added for each 500
    /// bytes.
    pub body: Duration,
    /// The time between two bytes of a body, in either direction.
    pub silence: Duration,
}

/// Places of each upstream that are reserved for a class and those of a higher rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassReserve {
    /// The name of the class.
    pub class: Box<str>,
    /// The rank of the class, where it is known.
    pub rank: Option<u8>,
    /// The number of places.
    pub places: u32,
}

/// Health checks: when and how upstreams are asked whether they are well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheckSettings {
    /// The path that is requested.
    pub path: Box<str>,
    /// The interval between two checks.
    pub interval: Duration,
    /// The statuses of an upstream that is well, as ranges with both bounds included.
    pub statuses: Vec<(u16, u16)>,
}

/// The version of the PROXY protocol, which announces the client's address before anything else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyProtocol {
    /// The version with a line of text.
    V1,
    /// The binary version.
    V2,
}

/// TLS to upstreams.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UpstreamTlsSettings {
    /// The files of trusted certificates, of authorities or of the upstreams themselves. The
    /// certificates of the system are trusted if there are none.
    pub authorities: Vec<PathBuf>,
    /// The name that the upstreams' certificates must be for, and that is sent as SNI; the name of
    /// their address without it.
    pub name: Option<Box<str>>,
    /// The files of the client certificate and of its key.
    pub shows: Option<(PathBuf, PathBuf)>,
    /// Whether only TLS 1.3 is spoken; TLS 1.2 is, too, otherwise.
    pub is_1_3: bool,
    /// Whether the upstreams' certificates are verified.
    pub verifies: bool,
}

/// A group of upstreams for the same application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupSettings {
    /// The addresses; at least one. The last [`backups`](GroupSettings::backups) are asked only while
    /// none of the others is well.
    pub to: Vec<UpstreamAddress>,
    /// The number of backups.
    pub backups: usize,
    /// The weight of each, in the order of the addresses; 1 where there is none.
    pub weights: Vec<u16>,
    /// How the upstream for a request is chosen.
    pub balance: Balance,
    /// The key, if that is by hash.
    pub key: BalanceKey,
    /// The largest number of requests under way to each.
    pub in_flight: Option<u32>,
    /// The lower bound of that number where it is learnt; `in_flight` is the upper one. `None` if it
    /// is not learnt.
    pub in_flight_from: Option<u32>,
    /// The places of these that are reserved for classes.
    pub reserve: Vec<ClassReserve>,
    /// The queue of requests that wait while all upstreams are full.
    pub queue: QueueSettings,
    /// The idle connections to each.
    pub keep_alive: KeepAliveSettings,
    /// How long each upstream may take.
    pub timeouts: UpstreamTimeouts,
    /// The largest number of retries of one request.
    pub retries: u32,
    /// The retries allowed over all requests, in thousandths.
    pub retry_permille: u32,
    /// How many failures in a row put an upstream out; 0 never does.
    pub max_fails: u32,
    /// The first time out, which doubles with each failed trial.
    pub fail_time: Duration,
    /// The time in which an upstream that is back reaches its whole share.
    pub slow_start: Duration,
    /// The health checks, if there are any.
    pub check: Option<HealthCheckSettings>,
    /// Whether a client that has shut down writing counts as gone.
    pub abort_on_close: bool,
    /// TLS to the upstreams; `None` without.
    pub tls: Option<Box<UpstreamTlsSettings>>,
    /// Whether the upstreams are asked over HTTP/2.
    pub http2: bool,
    /// The number of HTTP/2 connections to each that requests share; `None` if each request has its
    /// own.
    pub http2_connections: Option<u32>,
}

impl GroupSettings {
    /// Fills in the ranks of the reserved classes.
    pub fn order_classes(&mut self, rank: impl Fn(&str) -> Option<u8>) {
        self.reserve.iter_mut().for_each(|one| one.rank = rank(&one.class));
    }

    /// The number of places of each upstream that requests of a rank may not take.
    pub fn kept_from(&self, rank: u8) -> u32 {
        let higher = self.reserve.iter().filter(|one| one.rank.is_some_and(|of| of < rank));
        higher.fold(0, |kept, one| kept.saturating_add(one.places))
    }

    /// Whether both groups have the same upstreams, and agree in all settings about upstreams; those
    /// about single requests may differ. Such groups share what is known of the upstreams.
    pub fn shares_with(&self, other: &GroupSettings) -> bool {
        let shared = |group: &GroupSettings| GroupSettings {
            key: BalanceKey::default(),
            keep_alive: other.keep_alive,
            timeouts: other.timeouts,
            retries: other.retries,
            abort_on_close: other.abort_on_close,
            ..group.clone()
        };
        shared(self) == shared(other)
    }
}

/// Limits on the bodies of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodySettings {
    /// The largest body, in bytes.
    pub most_bytes: u64,
    /// The largest body, in bytes, that is collected in memory before a FastCGI application is asked.
    pub spool_bytes: u64,
}

/// How authentication schemes that sign in a connection and not a request are treated (NTLM,
/// Negotiate).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConnectionAuth {
    /// A connection on which a client signs in is used for that client's connection alone.
    #[default]
    Bind,
    /// The upstream authenticates each request, so connections are shared whatever is sent on them.
    Request,
    /// The offer of such a scheme is not passed to clients.
    Refuse,
}

/// Which error page a client gets when an upstream answers with an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Errors {
    /// The page of the upstream.
    #[default]
    Theirs,
    /// The page of the site for the status.
    Ours,
}

/// A route to upstreams that speak HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxySettings {
    /// The upstreams that answer.
    pub group: GroupSettings,
    /// How requests are written for them.
    pub request: request::RequestSettings,
    /// The bodies of requests.
    pub bodies: BodySettings,
    /// Whether addresses and cookies in answers are rewritten to lead to this server.
    pub rewrites: bool,
    /// How large the heads of answers may be.
    pub limits: ResponseHeadLimits,
    /// Which error pages clients see.
    pub errors: Errors,
    /// How authentication schemes that sign in a connection are treated.
    pub connection_auth: ConnectionAuth,
    /// The PROXY protocol header that connections begin with, if any.
    pub proxy_protocol: Option<ProxyProtocol>,
    /// How much of an answer is received before its client takes it, in bytes.
    pub buffer_bytes: u64,
    /// The settings of a server that answers no requests itself, but decides which may pass.
    pub authority: Option<ForwardAuthSettings>,
}

/// Forward authentication: what is asked of the server that decides which requests may pass, and how
/// its answer is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardAuthSettings {
    /// The decoded path of the subrequest.
    pub path: Box<[u8]>,
    /// The query of the subrequest.
    pub query: Option<Box<[u8]>>,
    /// The fields of the server's answer that replace the client's in the request.
    pub copy: Vec<FieldName>,
    /// The address to which a client that is not signed in is redirected. Without it the client gets
    /// the server's answer.
    pub sign_in: Option<Box<[SignInPart]>>,
}

/// A part of the sign-in address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SignInPart {
    /// Fixed text.
    Text(Box<str>),
    /// The scheme of the client's request, `http` or `https`.
    Scheme,
    /// The host that the client has asked for.
    Host,
    /// The path of the client's request.
    Path,
    /// The client's query with its question mark, or nothing.
    Query,
}

/// A route to upstreams that speak FastCGI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FastCgiSettings {
    /// The upstreams that answer.
    pub group: GroupSettings,
    /// How requests are written for them.
    pub request: fastcgi::ScriptSettings,
    /// The bodies of requests.
    pub bodies: BodySettings,
    /// How large the heads of answers may be.
    pub limits: ResponseHeadLimits,
    /// Which error pages clients see.
    pub errors: Errors,
    /// How much of an answer is received before its client takes it, in bytes.
    pub buffer_bytes: u64,
    /// The path of php-fpm's status page, which has the number of workers.
    pub status: Option<Box<str>>,
}

/// A route to receivers: processes that get requests with their sockets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandOverSettings {
    /// The receivers. Here the `connect` time lasts until a receiver has taken a request, and the
    /// `head` time until the request is done.
    pub group: GroupSettings,
    /// Whether receivers keep the connections.
    pub keeps: bool,
    /// Whether a receiver that has read an offer has taken the request, and need not confirm it.
    pub taken_by_reading: bool,
    /// How requests are passed on when the client's socket is of no use to a receiver; `None` if they
    /// are not.
    pub relay: Option<Box<ProxySettings>>,
}

/// A route to a handler: code of the program that the server is a part of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InsideSettings {
    /// A group without upstreams.
    pub group: GroupSettings,
    /// The code of the handler.
    pub code: InsideCode,
    /// The handler's limits.
    pub limits: HandlerLimits,
}

/// A route to servers that are given the bytes of connections as they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpSettings {
    /// The servers. The `silence` time counts both directions together.
    pub group: GroupSettings,
    /// The PROXY protocol header that connections begin with, if any.
    pub proxy_protocol: Option<ProxyProtocol>,
    /// How long one direction may be silent after the other has ended.
    pub half_close: Duration,
    /// The longest lifetime of a connection.
    pub lifetime: Option<Duration>,
}

/// A route to an application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApplicationSettings {
    /// An application that speaks HTTP.
    Proxy(ProxySettings),
    /// An application that speaks FastCGI.
    FastCgi(FastCgiSettings),
    /// Receivers, which are given sockets.
    HandOver(HandOverSettings),
    /// Code of this process.
    Inside(InsideSettings),
    /// Servers that are given the bytes of connections as they are.
    Tcp(TcpSettings),
}

impl ApplicationSettings {
    /// The upstreams that answer.
    pub fn group(&self) -> &GroupSettings {
        match self {
            ApplicationSettings::Proxy(proxy) => &proxy.group,
            ApplicationSettings::FastCgi(fastcgi) => &fastcgi.group,
            ApplicationSettings::HandOver(hand_over) => &hand_over.group,
            ApplicationSettings::Inside(inside) => &inside.group,
            ApplicationSettings::Tcp(tcp) => &tcp.group,
        }
    }

    /// The upstreams that answer.
    pub fn group_mut(&mut self) -> &mut GroupSettings {
        match self {
            ApplicationSettings::Proxy(proxy) => &mut proxy.group,
            ApplicationSettings::FastCgi(fastcgi) => &mut fastcgi.group,
            ApplicationSettings::HandOver(hand_over) => &mut hand_over.group,
            ApplicationSettings::Inside(inside) => &mut inside.group,
            ApplicationSettings::Tcp(tcp) => &mut tcp.group,
        }
    }

    /// How large the heads of answers may be.
    pub fn limits(&self) -> ResponseHeadLimits {
        match self {
            ApplicationSettings::Proxy(proxy) => proxy.limits,
            ApplicationSettings::FastCgi(fastcgi) => fastcgi.limits,
            ApplicationSettings::HandOver(_)
            | ApplicationSettings::Inside(_)
            | ApplicationSettings::Tcp(_) => ResponseHeadLimits::default(),
        }
    }

    /// The limits on the bodies of requests.
    pub fn bodies(&self) -> BodySettings {
        match self {
            ApplicationSettings::Proxy(proxy) => proxy.bodies,
            ApplicationSettings::FastCgi(fastcgi) => fastcgi.bodies,
            // the body stays in the client's socket, so there is nothing to limit
            ApplicationSettings::HandOver(_) | ApplicationSettings::Tcp(_) => {
                BodySettings { most_bytes: u64::MAX, spool_bytes: 0 }
            }
            ApplicationSettings::Inside(inside) => {
                BodySettings { most_bytes: inside.limits.most_bytes, spool_bytes: 0 }
            }
        }
    }

    /// Whether paths that can be read in several ways are passed on as they were sent.
    pub fn passes(&self) -> bool {
        let ambiguous = match self {
            ApplicationSettings::Proxy(proxy) => proxy.request.ambiguous,
            ApplicationSettings::FastCgi(fastcgi) => fastcgi.request.ambiguous,
            // these get the path as it was sent in any case
            ApplicationSettings::HandOver(_)
            | ApplicationSettings::Inside(_)
            | ApplicationSettings::Tcp(_) => Ambiguous::Refuse,
        };
        ambiguous == Ambiguous::Pass
    }

    /// Which error pages clients see.
    pub fn errors(&self) -> Errors {
        match self {
            ApplicationSettings::Proxy(proxy) => proxy.errors,
            ApplicationSettings::FastCgi(fastcgi) => fastcgi.errors,
            ApplicationSettings::HandOver(_)
            | ApplicationSettings::Inside(_)
            | ApplicationSettings::Tcp(_) => Errors::Theirs,
        }
    }

    /// How much of an answer is received before its client takes it, in bytes.
    pub fn buffer_bytes(&self) -> u64 {
        match self {
            ApplicationSettings::Proxy(proxy) => proxy.buffer_bytes,
            ApplicationSettings::FastCgi(fastcgi) => fastcgi.buffer_bytes,
            ApplicationSettings::HandOver(_)
            | ApplicationSettings::Inside(_)
            | ApplicationSettings::Tcp(_) => 0,
        }
    }

    /// The settings that only an application that speaks HTTP has.
    pub fn proxy(&self) -> Option<&ProxySettings> {
        match self {
            ApplicationSettings::Proxy(proxy) => Some(proxy),
            ApplicationSettings::FastCgi(_)
            | ApplicationSettings::HandOver(_)
            | ApplicationSettings::Inside(_)
            | ApplicationSettings::Tcp(_) => None,
        }
    }

    /// The settings that only an application that speaks FastCGI has.
    pub fn fastcgi(&self) -> Option<&FastCgiSettings> {
        match self {
            ApplicationSettings::FastCgi(fastcgi) => Some(fastcgi),
            ApplicationSettings::Proxy(_)
            | ApplicationSettings::HandOver(_)
            | ApplicationSettings::Inside(_)
            | ApplicationSettings::Tcp(_) => None,
        }
    }

    /// The settings that only servers that are given bytes as they are have.
    pub fn tcp(&self) -> Option<&TcpSettings> {
        match self {
            ApplicationSettings::Tcp(tcp) => Some(tcp),
            ApplicationSettings::Proxy(_)
            | ApplicationSettings::FastCgi(_)
            | ApplicationSettings::HandOver(_)
            | ApplicationSettings::Inside(_) => None,
        }
    }

    /// The PROXY protocol header that connections begin with; such a connection is for one client.
    pub fn proxy_protocol(&self) -> Option<ProxyProtocol> {
        match self {
            ApplicationSettings::Proxy(proxy) => proxy.proxy_protocol,
            ApplicationSettings::Tcp(tcp) => tcp.proxy_protocol,
            ApplicationSettings::FastCgi(_)
            | ApplicationSettings::HandOver(_)
            | ApplicationSettings::Inside(_) => None,
        }
    }
}
