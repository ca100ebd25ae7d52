//! What a person decides about applications behind.

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

/// Which upstream is asked next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    /// One after the other.
    RoundRobin,
    /// The one with the fewest requests under way.
    #[default]
    Least,
    /// Of two that are drawn, the one with fewer.
    TwoChoices,
    /// The same for the same key, unless it has far more than its share.
    Hash,
}

/// What decides where requests go that are balanced by hash.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum BalanceKey {
    /// The client.
    #[default]
    Client,
    /// The target.
    Url,
    /// A cookie; the client, if it has none.
    Cookie(Box<str>),
}

/// Idle connections to one upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAliveSettings {
    /// So many at most; 0 keeps none.
    pub connections: u32,
    /// For so long.
    pub idle: Duration,
}

/// Requests that wait while all upstreams have as much under way as they may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueSettings {
    /// So many at most; with 0 none does.
    pub requests: u32,
    /// For so long.
    pub time: Duration,
    /// What becomes of those that find none that takes connections.
    pub down: WhenDown,
}

/// What becomes of requests for upstreams that take no connections, and have answered before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenDown {
    /// They fail at once.
    #[default]
    Fail,
    /// They wait for one, as others wait for a place.
    Wait,
}

/// How long an upstream may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpstreamTimeouts {
    /// Until there is a connection.
    pub connect: Duration,
    /// From the last byte of the request to the last byte of the answer's head.
    pub head: Duration,
    /// For the body of a request whose place others want, and a second more for each 500 bytes of it.
    pub body: Duration,
    /// Between two bytes of a body, in either direction.
    pub silence: Duration,
}

/// Places of each upstream that a class, and those before it in the order, have for themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassReserve {
    /// What the class is called.
    pub class: Box<str>,
    /// Which place it has in the order, where that is known.
    pub rank: Option<u8>,
    /// So many.
    pub places: u32,
}

/// When and how upstreams are asked whether they are well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheckSettings {
    /// For this path.
    pub path: Box<str>,
    /// So often.
    pub interval: Duration,
    /// It is well if it answers with one of these, bounds included.
    pub statuses: Vec<(u16, u16)>,
}

/// What is said of a client's address before anything else (PROXY protocol).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyProtocol {
    /// In a line.
    V1,
    /// In bytes.
    V2,
}

/// How upstreams are spoken with through TLS.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UpstreamTlsSettings {
    /// Files of certificates that are trusted, of authorities or of the upstreams themselves; those of the system if
    /// there are none.
    pub authorities: Vec<PathBuf>,
    /// For which name their certificate must be, and which they are told; that of their address without it.
    pub name: Option<Box<str>>,
    /// The files of the certificate that is shown to them, and of its key.
    pub shows: Option<(PathBuf, PathBuf)>,
    /// TLS 1.3 only; 1.2 else, too.
    pub is_1_3: bool,
    /// Whether their certificate is looked at.
    pub verifies: bool,
}

/// Several upstreams that do the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupSettings {
    /// Where they are; at least one. The last [`backups`](GroupSettings::backups) are asked only while none of the
    /// others is well.
    pub to: Vec<UpstreamAddress>,
    /// How many of them are backups.
    pub backups: usize,
    /// What each gets beside the others, in their order; 1 where there is none.
    pub weights: Vec<u16>,
    /// Which is asked.
    pub balance: Balance,
    /// By what, if that is by hash.
    pub key: BalanceKey,
    /// Requests under way to each, at most.
    pub in_flight: Option<u32>,
    /// Where it is learnt how many these should be: at least so many, and no more than `in_flight`.
    pub in_flight_from: Option<u32>,
    /// Which of these are for no lower classes.
    pub reserve: Vec<ClassReserve>,
    /// Those that wait while all have as many.
    pub queue: QueueSettings,
    /// Idle connections to each.
    pub keep_alive: KeepAliveSettings,
    /// How long each may take.
    pub timeouts: UpstreamTimeouts,
    /// How often one request is sent again, at most.
    pub retries: u32,
    /// How many requests of all may be sent again, in thousandths.
    pub retry_permille: u32,
    /// So many failures in a row put one out; 0 never does.
    pub max_fails: u32,
    /// For so long, at first, and then twice as long each time.
    pub fail_time: Duration,
    /// In so long one that is back gets its whole share.
    pub slow_start: Duration,
    /// Whether they are asked before there are requests for them.
    pub check: Option<HealthCheckSettings>,
    /// Whether a client that has shut down writing has left.
    pub abort_on_close: bool,
    /// How they are spoken with through TLS; `None` if they are not.
    pub tls: Option<Box<UpstreamTlsSettings>>,
    /// Whether HTTP/2 is spoken with them.
    pub http2: bool,
    /// So many connections of it to each, which requests share; `None` if each request has one for itself.
    pub http2_connections: Option<u32>,
}

impl GroupSettings {
    /// The classes are in this order.
    pub fn order_classes(&mut self, rank: impl Fn(&str) -> Option<u8>) {
        self.reserve.iter_mut().for_each(|one| one.rank = rank(&one.class));
    }

    /// Places of each upstream that requests of a rank may not have.
    pub fn kept_from(&self, rank: u8) -> u32 {
        let higher = self.reserve.iter().filter(|one| one.rank.is_some_and(|of| of < rank));
        higher.fold(0, |kept, one| kept.saturating_add(one.places))
    }

    /// Whether both have the same upstreams, and know the same of them: what is decided about these is,
    /// and not what is decided about a request. Then they share them.
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

/// What becomes of the bodies of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodySettings {
    /// They may have so many bytes.
    pub most_bytes: u64,
    /// One with so many is collected before an application is asked that speaks FastCGI.
    pub spool_bytes: u64,
}

/// What becomes of schemes that sign in a connection (NTLM, Negotiate) and not a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConnectionAuth {
    /// The connection on which a client signs in is that client's connection's alone.
    #[default]
    Bind,
    /// The upstream looks at each request: connections are shared whatever is said on them.
    Request,
    /// No client is offered such a scheme.
    Refuse,
}

/// What answers where an upstream has answered with an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Errors {
    /// The upstream.
    #[default]
    Theirs,
    /// The site, with its page for the status.
    Ours,
}

/// A route to upstreams that speak HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxySettings {
    /// The upstreams that answer.
    pub group: GroupSettings,
    /// What they are told.
    pub request: request::RequestSettings,
    /// The bodies of requests.
    pub bodies: BodySettings,
    /// Whether addresses and cookies in answers are rewritten to lead back here.
    pub rewrites: bool,
    /// How large the heads of answers may be.
    pub limits: ResponseHeadLimits,
    /// Which error pages clients see.
    pub errors: Errors,
    /// What becomes of schemes that sign in a connection.
    pub connection_auth: ConnectionAuth,
    /// What is said of the client first.
    pub proxy_protocol: Option<ProxyProtocol>,
    /// So much of an answer is received before its client takes it, in bytes.
    pub buffer_bytes: u64,
    /// It answers no requests, but says which may pass.
    pub authority: Option<ForwardAuthSettings>,
}

/// What is asked of a server that says which requests may pass, and what becomes of its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardAuthSettings {
    /// The path, decoded, and the query that it is asked for.
    pub path: Box<[u8]>,
    /// The query.
    pub query: Option<Box<[u8]>>,
    /// Fields of its answer that the request has from then on, instead of the client's.
    pub copy: Vec<FieldName>,
    /// Where people go whom it does not know. Without it they get its answer.
    pub sign_in: Option<Box<[SignInPart]>>,
}

/// A part of the address where people sign in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SignInPart {
    /// These characters.
    Text(Box<str>),
    /// `http` or `https`, as the client came.
    Scheme,
    /// The host that the client has asked for.
    Host,
    /// The path.
    Path,
    /// The query with its question mark, or nothing.
    Query,
}

/// A route to upstreams that speak FastCGI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FastCgiSettings {
    /// The upstreams that answer.
    pub group: GroupSettings,
    /// What they are told.
    pub request: fastcgi::ScriptSettings,
    /// The bodies of requests.
    pub bodies: BodySettings,
    /// How large the heads of answers may be.
    pub limits: ResponseHeadLimits,
    /// Which error pages clients see.
    pub errors: Errors,
    /// So much of an answer is received before its client takes it, in bytes.
    pub buffer_bytes: u64,
    /// The path at which php-fpm says how many workers it has.
    pub status: Option<Box<str>>,
}

/// A route to receivers: processes that get requests with their sockets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandOverSettings {
    /// The receivers. The time for a connection is that until one has taken a request, the time for a head that until
    /// the request is done.
    pub group: GroupSettings,
    /// Whether they keep the connections.
    pub keeps: bool,
    /// Whether one that has read an offer has taken the request, and need not say so.
    pub taken_by_reading: bool,
    /// How requests are passed on whose client's socket is of no use to them, if they are.
    pub relay: Option<Box<ProxySettings>>,
}

/// A route to a handler: code of the program that the server is a part of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InsideSettings {
    /// No upstreams.
    pub group: GroupSettings,
    /// The handler.
    pub code: InsideCode,
    /// Its bounds.
    pub limits: HandlerLimits,
}

/// A route to servers that are given the bytes of connections as they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpSettings {
    /// The servers. The time of silence is that of both directions.
    pub group: GroupSettings,
    /// What is said of the client first.
    pub proxy_protocol: Option<ProxyProtocol>,
    /// Of a connection of which one direction has ended the other may be silent for so long.
    pub half_close: Duration,
    /// A connection may last for so long.
    pub lifetime: Option<Duration>,
}

/// A route to an application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApplicationSettings {
    /// One that speaks HTTP.
    Proxy(ProxySettings),
    /// One that speaks FastCGI.
    FastCgi(FastCgiSettings),
    /// One that is given sockets.
    HandOver(HandOverSettings),
    /// Code of this process.
    Inside(InsideSettings),
    /// Servers that are given bytes as they are.
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

    /// What becomes of the bodies of requests.
    pub fn bodies(&self) -> BodySettings {
        match self {
            ApplicationSettings::Proxy(proxy) => proxy.bodies,
            ApplicationSettings::FastCgi(fastcgi) => fastcgi.bodies,
            // they stay in the socket
            ApplicationSettings::HandOver(_) | ApplicationSettings::Tcp(_) => {
                BodySettings { most_bytes: u64::MAX, spool_bytes: 0 }
            }
            ApplicationSettings::Inside(inside) => {
                BodySettings { most_bytes: inside.limits.most_bytes, spool_bytes: 0 }
            }
        }
    }

    /// Whether paths with several readings are passed as they were sent.
    pub fn passes(&self) -> bool {
        let ambiguous = match self {
            ApplicationSettings::Proxy(proxy) => proxy.request.ambiguous,
            ApplicationSettings::FastCgi(fastcgi) => fastcgi.request.ambiguous,
            // they see what was sent
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

    /// So much of an answer is received before its client takes it, in bytes.
    pub fn buffer_bytes(&self) -> u64 {
        match self {
            ApplicationSettings::Proxy(proxy) => proxy.buffer_bytes,
            ApplicationSettings::FastCgi(fastcgi) => fastcgi.buffer_bytes,
            ApplicationSettings::HandOver(_)
            | ApplicationSettings::Inside(_)
            | ApplicationSettings::Tcp(_) => 0,
        }
    }

    /// What one that speaks HTTP has alone.
    pub fn proxy(&self) -> Option<&ProxySettings> {
        match self {
            ApplicationSettings::Proxy(proxy) => Some(proxy),
            ApplicationSettings::FastCgi(_)
            | ApplicationSettings::HandOver(_)
            | ApplicationSettings::Inside(_)
            | ApplicationSettings::Tcp(_) => None,
        }
    }

    /// What applications that speak FastCGI have alone.
    pub fn fastcgi(&self) -> Option<&FastCgiSettings> {
        match self {
            ApplicationSettings::FastCgi(fastcgi) => Some(fastcgi),
            ApplicationSettings::Proxy(_)
            | ApplicationSettings::HandOver(_)
            | ApplicationSettings::Inside(_)
            | ApplicationSettings::Tcp(_) => None,
        }
    }

    /// What servers that are given bytes as they are have alone.
    pub fn tcp(&self) -> Option<&TcpSettings> {
        match self {
            ApplicationSettings::Tcp(tcp) => Some(tcp),
            ApplicationSettings::Proxy(_)
            | ApplicationSettings::FastCgi(_)
            | ApplicationSettings::HandOver(_)
            | ApplicationSettings::Inside(_) => None,
        }
    }

    /// What connections begin with that are for one client.
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
