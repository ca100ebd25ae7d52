//! Requests to applications, authorities and the next stage: a client's request in the protocol of each.

use super::Applications;
use super::answers::TOO_LARGE;
use super::proxy_header::{preface, source_of};
use super::takes_tunnels;
use crate::applications::websocket;
use crate::client::{TrustedProxies, believed_elements, client_of, is_secure};
use crate::log;
use crate::log::request_id;
use forebay_config::Role;
use forebay_conn::{HeadValues, Peer, Rank, Request};
use forebay_http::challenge::{scheme_of_credentials, signs_in_connection};
use forebay_http::client::ClientKey;
use forebay_http::field::FieldName;
use forebay_http::framing::Framing;
use forebay_http::grpc;
use forebay_http::head::{Head, Method, Name, RequestTarget, Tunnel, Version};
use forebay_http::path;
use forebay_http::response;
use forebay_http::trace_context::{RequestTrace, ToldTrace, TraceContext};
use forebay_site::Destination;
use forebay_upstream::application::Application;
use forebay_upstream::balance::hash;
use forebay_upstream::client_url::ClientUrl;
use forebay_upstream::exchange::{ApplicationRequest, ScriptLog};
use forebay_upstream::fastcgi::{self, Params};
use forebay_upstream::is_forwarding;
use forebay_upstream::queue::RequestOwner;
use forebay_upstream::request::{self, From, WrittenHead};
use forebay_upstream::sent_fields;
use forebay_upstream::settings::{self, BalanceKey, ConnectionAuth};
use forebay_upstream::sign_in::SignIn;
use forebay_upstream::stage::{self, Origin};
use forebay_upstream::target::{JudgedPath, TargetRefusal};
use forebay_upstream::upstreams::offered::PassedRequest;
use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// The parts of a client's request that no application gets.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hidden<'h> {
    /// The cookie with this name.
    pub cookie: Option<&'h str>,
    /// Fields that only a deciding server may set, in any spelling.
    pub fields: &'h [FieldName],
    /// The field in which proxies name their client; in it, the application gets the client's address.
    pub client: Option<&'h FieldName>,
}

impl Hidden<'_> {
    /// Drops the hidden fields that were not given, and sets the field that names the client, if there is
    /// one.
    fn drop_from(self, given: &mut Cow<'_, [request::FieldOverride]>, client: IpAddr) {
        // a forwarding field is written on its own
        let told = self.client.filter(|name| !is_forwarding(name.as_str()));
        if let Some(name) = told.filter(|name| !given.iter().any(|(known, _)| name.is(known))) {
            let client = client.to_canonical();
            let value = (!client.is_unspecified()).then(|| client.to_string().into_bytes().into());
            given.to_mut().push((name.as_str().into(), value));
        }
        for name in self.fields {
            if !given.iter().any(|(known, _)| name.is(known)) {
                given.to_mut().push((name.as_str().into(), None));
            }
        }
    }
}

/// The request to the next stage, which asks these applications, for this client. A stage that
/// `knows_no_rules` only gets what was judged.
///
/// # Errors
/// The path is read in more than one way.
pub fn ask_stage(
    request: &Request<'_>,
    client: IpAddr,
    asked: &ExchangeTag,
    standpoint: Standpoint<'_>,
    applications: &Applications,
    (class, overload): (&str, u8),
    knows_no_rules: bool,
) -> Result<ApplicationRequest, TargetRefusal> {
    let Request { head, peer, .. } = *request;
    let is_believed = standpoint.trusted.are_believed(peer);
    let made = request_id::text(asked.id);
    let given = request::valid_id(head).filter(|_| is_believed);
    let trusted = standpoint.trusted;
    let url = match is_believed {
        true => ClientUrl::of(head, trusted.counts(), believed_elements(peer, head, trusted)),
        false => ClientUrl::default(),
    };
    let sent = match is_believed && !applications.is_empty() {
        true if standpoint.is_behind() => Cow::Borrowed(sent_fields::before(head)),
        true => Cow::Owned(sent_fields::names(head, trusted.counts())),
        false => Cow::Borrowed(&[][..]),
    };
    let origin = Origin {
        client,
        is_secure: is_secure(peer, head, trusted),
        url: &url,
        local: (!applications.is_empty()).then(|| standpoint.local_of(peer, head)),
        port: match applications.tell_local() {
            true => standpoint.source_of(peer, head, client).port(),
            false => 0,
        },
        sent: &sent,
        class,
        overload,
        tunnel: standpoint.tunnel_of(head),
        may_change: applications.take_tunnels,
        id: given.unwrap_or(&made),
        named: trusted.told_field(),
        trace: asked.trace.as_deref().map(ExchangeTrace::told),
    };
    let mut text = Vec::with_capacity(1024);
    // a request for the server as a whole (`OPTIONS *`) has no path
    let judged = request.path().ok().filter(|_| knows_no_rules && head.path.starts_with(b"/"));
    let (written, copy) = stage::write(head, judged.as_deref(), &origin, &mut text)?;
    let (method, key, owner) = (head.method, hash(head.target), RequestOwner::default());
    let ask = ApplicationRequest::new(method, key, owner, text, written);
    let trace = asked.trace.as_deref().and_then(ExchangeTrace::recorded);
    Ok(ApplicationRequest { copy: Some(copy), trace, ..ask })
}

/// What an exchange remembers for its answer.
#[derive(Clone)]
pub struct ExchangeTag {
    /// The site and route of the request.
    pub destination: Destination,
    /// The content that the numbers of the destination and of the rule belong to.
    pub content: u64,
    /// The number of the request in logs.
    pub id: u128,
    /// The user, for the log, if the user has proved who they are.
    pub user: Option<Box<[u8]>>,
    /// The rule of the site that asks, if an [authority](settings::ForwardAuthSettings) is asked.
    pub rule: Option<u16>,
    /// The exchange's place in a trace, if this server records or passes on one.
    pub trace: Option<Box<ExchangeTrace>>,
}

/// The first number for spans of deciding servers, below the span of the request; spans of attempts have
/// numbers from 1 on.
const DECISIONS: u32 = 1 << 16;

/// The place of an exchange in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExchangeTrace {
    /// The request's place.
    pub place: RequestTrace,
    /// The span from which the spans of attempts are numbered: that of the request, or another for each
    /// deciding server.
    pub asking: TraceContext,
    /// When processing of the request began, in nanoseconds.
    pub processed_ns: u64,
}

impl ExchangeTrace {
    /// The place of an exchange with an application or the next stage, or with a deciding server, if
    /// `decision` says how many have let the request through before it.
    pub fn new(place: RequestTrace, decision: Option<usize>, processed_ns: u64) -> ExchangeTrace {
        let context = place.context;
        let asking = decision.map_or(context, |before| {
            let number = DECISIONS.saturating_add(u32::try_from(before).unwrap_or(u32::MAX));
            context.next(context.child_id(number), context.is_sampled())
        });
        ExchangeTrace { place, asking, processed_ns }
    }

    /// The span that attempts are numbered from, if the request is recorded.
    pub fn recorded(&self) -> Option<TraceContext> {
        Some(self.asking).filter(|asking| asking.is_sampled())
    }

    /// The trace context that other servers get.
    pub fn told(&self) -> ToldTrace {
        let context = match self.recorded() {
            Some(asking) => asking.next(asking.child_id(1), true),
            None => self.place.context,
        };
        ToldTrace { context, keeps_state: self.place.parent_id.is_some() }
    }
}

/// The text for a client that asks for a tunnel where there is none.
pub const NO_TUNNEL: &str = "There is no such tunnel here";

/// Why an application is not asked.
pub enum Unasked {
    /// The request would not be the one that was judged.
    Refused(TargetRefusal),
    /// The body of the request is larger than allowed.
    TooLarge,
    /// The application has no script for this request, although content and applications are replaced
    /// together.
    NoScript,
    /// The request is for a tunnel, and the application does not take tunnels.
    NoTunnel,
}

impl Unasked {
    /// The status and text for the client.
    pub fn told(&self) -> (u16, &'static str) {
        match self {
            Unasked::Refused(refused) => (refused.status(), refused.reason()),
            Unasked::TooLarge => (413, TOO_LARGE),
            Unasked::NoScript => (502, "There is no such application"),
            Unasked::NoTunnel => (501, NO_TUNNEL),
        }
    }
}

/// The request to an application. `values` are the values of fields that differ between requests, where
/// such fields replace the client's.
///
/// # Errors
/// The reason why the application is not asked.
pub fn ask(
    application: &Application,
    request: &Request<'_>,
    asked: &ExchangeTag,
    asker: Asker,
    hidden: Hidden<'_>,
    values: impl FnOnce(&[request::FieldOverride]) -> Option<HeadValues>,
) -> Result<ApplicationRequest, Unasked> {
    let Request { head, peer, .. } = *request;
    let Asker { local, from, tunnel, key, owner, .. } = asker;
    let readings = request.readings().filter(|_| application.settings().passes());
    let normal = request.path();
    let judged = match (&readings, &normal) {
        (Some(readings), _) => JudgedPath::Readings(readings),
        (None, Ok(normal)) => JudgedPath::Normal(normal),
        (None, Err(_)) => {
            return Err(Unasked::Refused(TargetRefusal::Ambiguous("The path cannot be read")));
        }
    };
    // a receiver reads the path that the client sent, whether it gets the request or the connection
    let rewritten = asked.destination.rewritten.as_deref();
    let rewritten = rewritten.filter(|_| !application.is_relayed());
    let most_bytes = application.settings().bodies().most_bytes;
    if matches!(head.framing, Framing::Sized(length) if length > most_bytes) {
        return Err(Unasked::TooLarge);
    }
    let ExchangeTag { destination, id, trace, .. } = asked;
    let (trace, recorded) = (
        trace.as_deref().map(ExchangeTrace::told),
        trace.as_deref().and_then(ExchangeTrace::recorded),
    );
    let mut given = Cow::Borrowed(request.passed.map_or(&[][..], |passed| &passed.given[..]));
    match tunnel {
        None => {}
        Some(Tunnel::WebSocket) if takes_tunnels(application.settings()) => {
            let key = websocket::key(*id).into_bytes().into_boxed_slice();
            given.to_mut().push((websocket::KEY.into(), Some(key)));
        }
        Some(_) => return Err(Unasked::NoTunnel),
    }
    hidden.drop_from(&mut given, from.client);
    let (given, hidden) = (&*given, hidden.cookie);
    let values = &values(given).unwrap_or_default();
    let id = *id;
    let asked = request::UpstreamRequest {
        head,
        judged,
        rewritten,
        from,
        id,
        hidden,
        given,
        trace,
        values,
    };
    let mut text = Vec::with_capacity(1024);
    match application.settings() {
        settings::ApplicationSettings::Proxy(settings) => {
            // where each upstream gets its own name, that is put in when the upstream is chosen
            let authority = application.authority(0);
            let written = request::write(&asked, authority, &settings.request, &mut text)
                .map_err(Unasked::Refused)?;
            let client = asker.source;
            let preface = settings.proxy_protocol.map(|way| preface(way, client, local));
            let preface = preface.unwrap_or_default();
            let passed = application.is_relayed().then(|| PassedRequest {
                id,
                client: asker.client_address(peer),
                server: local,
                head_bytes: text.len(),
                framing: written.framing,
            });
            let ask = ApplicationRequest::new(head.method, key, owner, text, written);
            let time = grpc::timeout(head);
            let ask = ApplicationRequest { preface, passed, time, trace: recorded, ..ask };
            Ok(with_sign_in(ask, settings, request, asker))
        }
        settings::ApplicationSettings::FastCgi(settings) => {
            let path = match (rewritten, &readings, &normal) {
                (Some(rewritten), ..) => rewritten,
                (None, Some(readings), _) => readings.main(),
                (None, None, normal) => normal.as_deref().unwrap_or_default(),
            };
            let script = match (&settings.request.program, &destination.script) {
                (Some(own), _) => fastcgi::ScriptPath::of_program(own, path),
                (None, Some(script)) => fastcgi::ScriptPath {
                    name: &script.name,
                    path_info: &script.path_info,
                    file: script.file.as_deref(),
                },
                (None, None) => return Err(Unasked::NoScript),
            };
            let body_bytes = match head.framing {
                Framing::None => Some(0),
                Framing::Sized(length) => Some(length),
                Framing::Chunked => None,
            };
            let params = Params {
                request: asked,
                script,
                body_bytes,
                local,
                remote_port: asker.source.port(),
                user: None,
            };
            fastcgi::write(&params, &settings.request, &mut text).map_err(Unasked::Refused)?;
            let written = WrittenHead {
                framing: head.framing,
                expects_continue: head.expects_continue && body_bytes != Some(0),
                asked: response::ResponseContext {
                    is_head: head.method == Method::Head,
                    upgrade: false,
                },
                id: 0..0,
                given: Box::default(),
            };
            // a route to programs has many of them: the path decides which one answers
            let is_launched = matches!(
                application.settings().group().to.first(),
                Some(settings::UpstreamAddress::Launched(_))
            );
            let has_name = !script.name.is_empty() && !is_launched;
            let said_by = if has_name { script.name } else { path };
            let log = Some(log_of(said_by, id));
            let ask = ApplicationRequest::new(head.method, key, owner, text, written);
            Ok(ApplicationRequest { log, trace: recorded, ..ask })
        }
        // the receiver gets the request itself
        settings::ApplicationSettings::HandOver(_)
        | settings::ApplicationSettings::Inside(_)
        | settings::ApplicationSettings::Tcp(_) => Err(Unasked::NoScript),
    }
}

/// The first bytes that a server of a passed-on connection gets, before any of the client's: the PROXY
/// header, if the server gets one.
pub fn ask_passed(
    application: &Application,
    request: &Request<'_>,
    asker: Asker,
) -> ApplicationRequest {
    let Asker { local, key, owner, .. } = asker;
    let client = asker.source;
    let way = application.settings().proxy_protocol();
    let preface = way.map(|way| preface(way, client, local)).unwrap_or_default();
    let written = WrittenHead {
        framing: Framing::None,
        expects_continue: false,
        asked: response::ResponseContext { is_head: false, upgrade: true },
        id: 0..0,
        given: Box::default(),
    };
    let ask = ApplicationRequest::new(request.head.method, key, owner, Vec::new(), written);
    ApplicationRequest { preface, ..ask }
}

/// The fields in which a client states conditions and ranges for the content. A deciding server gets none
/// of them: it is asked for something else, and could answer with a part of that or with 304.
const OF_CONTENT: [&str; 6] =
    ["If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since", "If-Range", "Range"];

/// The request to a server that decides whether a request may pass. `judged` is the path that it must
/// judge, where that is not the request's own.
///
/// # Errors
/// The reason why the server is not asked.
pub fn ask_authority(
    application: &Application,
    request: &Request<'_>,
    judged: Option<&[u8]>,
    tag: &ExchangeTag,
    asker: Asker,
    hidden: Hidden<'_>,
) -> Result<ApplicationRequest, Unasked> {
    let head = request.head;
    let proxy = application.settings().proxy();
    let Some((proxy, authority)) = proxy.and_then(|proxy| Some((proxy, proxy.authority.as_ref()?)))
    else {
        return Err(Unasked::NoScript);
    };
    let Asker { from, key, owner, .. } = asker;
    let field =
        |name: &str, value: &[u8]| -> request::FieldOverride { (name.into(), Some(value.into())) };
    let (method, uri) = (head.method_text.as_bytes(), judged_target(request, judged));
    let url = client_url(head, from, &uri);
    let mut given = vec![
        field("X-Forwarded-Method", method),
        field("X-Forwarded-Uri", &uri),
        field("X-Original-Method", method),
        field("X-Original-URI", &uri),
        field("X-Original-URL", &url),
    ];
    given.extend(OF_CONTENT.map(|name| (name.into(), None)));
    let mut given = Cow::Owned(given);
    hidden.drop_from(&mut given, from.client);
    let hidden = hidden.cookie;
    let target = RequestTarget { path: &authority.path, query: authority.query.as_deref() };
    let head = head.redirected(Method::Get, target);
    let (judged, rewritten) = (JudgedPath::Normal(&authority.path), Some(&*authority.path));
    let asked = request::UpstreamRequest {
        head: &head,
        judged,
        rewritten,
        from,
        id: tag.id,
        hidden,
        given: &given,
        trace: tag.trace.as_deref().map(ExchangeTrace::told),
        values: &HeadValues::default(),
    };
    let mut text = Vec::with_capacity(1024);
    let written = request::write(&asked, application.authority(0), &proxy.request, &mut text)
        .map_err(Unasked::Refused)?;
    let ask = ApplicationRequest::new(Method::Get, key, owner, text, written);
    let trace = tag.trace.as_deref().and_then(ExchangeTrace::recorded);
    Ok(with_sign_in(ApplicationRequest { trace, ..ask }, proxy, request, asker))
}

/// Adds the place where a sign-in that counts for a connection may be kept.
fn with_sign_in(
    ask: ApplicationRequest,
    settings: &settings::ProxySettings,
    request: &Request<'_>,
    asker: Asker,
) -> ApplicationRequest {
    let Request { head, peer, .. } = *request;
    let sign_in = match settings.connection_auth {
        ConnectionAuth::Request => SignIn::OfRequest,
        ConnectionAuth::Refuse => SignIn::Withheld,
        ConnectionAuth::Bind if asker.is_of_many => SignIn::Withheld,
        ConnectionAuth::Bind if head.version == Version::Http2 => SignIn::NeedsHttp1,
        ConnectionAuth::Bind => SignIn::OfConnection(Arc::clone(peer.life.token())),
    };
    let mut schemes = head.values(Name::Authorization).map(scheme_of_credentials);
    let shows_sign_in = schemes.any(signs_in_connection);
    ApplicationRequest { sign_in, shows_sign_in, ..ask }
}

/// The full URL of the request, as its client has it.
fn client_url(head: &Head<'_>, from: From, uri: &[u8]) -> Vec<u8> {
    let theirs = match from.is_trusted {
        true => ClientUrl::of(head, from.family, from.elements),
        false => ClientUrl::default(),
    };
    let scheme: &[u8] = if from.is_secure { b"https://" } else { b"http://" };
    [scheme, theirs.host.as_deref().unwrap_or(head.authority), uri].concat()
}

/// The target of a request, in the form in which rules judge it and files are found: another form of it,
/// with `//` for instance, could be judged as something else.
fn judged_target(request: &Request<'_>, judged: Option<&[u8]>) -> Vec<u8> {
    let (head, normal) = (request.head, request.path());
    let Some(path) = judged.or(normal.as_deref().ok()) else { return head.target.to_vec() };
    let mut target = Vec::with_capacity(head.target.len());
    path::encode(path, &mut target);
    if let Some(query) = head.query {
        target.push(b'?');
        target.extend_from_slice(query);
    }
    target
}

/// The log for the messages of a script, with their request.
fn log_of(script: &[u8], request: u128) -> ScriptLog {
    let script: Box<[u8]> = script.into();
    Box::new(move |said| log::scripts::log(&script, request, said))
}

/// The client that asks an application, and what decides which upstream is asked and when. Forwarding
/// fields are read once, for this and for the place of the exchange.
#[derive(Clone, Copy)]
pub struct Asker {
    local: SocketAddr,
    /// The client and its port; 0 if the port is not known, as for a client behind a proxy.
    source: SocketAddr,
    from: From,
    tunnel: Option<Tunnel>,
    key: u64,
    owner: RequestOwner,
    /// Whether its connection carries requests of many clients.
    is_of_many: bool,
}

impl Asker {
    /// The client of this request, for this application.
    pub fn of(
        request: &Request<'_>,
        application: &Application,
        rank: Rank,
        standpoint: Standpoint<'_>,
    ) -> Asker {
        let Request { head, peer, .. } = *request;
        let local = standpoint.local_of(peer, head);
        let client = client_of(peer, head, standpoint.trusted);
        let from = From {
            nearest: peer.address().ip().to_canonical(),
            client,
            is_trusted: standpoint.trusted.are_believed(peer),
            is_of_stage: standpoint.is_behind(),
            is_secure: is_secure(peer, head, standpoint.trusted),
            nearest_is_secure: peer.secured.is_some(),
            port: local.port(),
            family: standpoint.trusted.counts(),
            elements: believed_elements(peer, head, standpoint.trusted),
            tells_forwarded: standpoint.trusted.tell_forwarded(),
            names_client: standpoint.trusted.name_one(),
        };
        let key = key(&application.settings().group().key, head, client);
        let owner = RequestOwner { rank: rank.0, client: ClientKey::of(client).as_u64() };
        let tunnel = standpoint.tunnel_of(head);
        let is_of_many = standpoint.is_behind() || from.is_trusted;
        let source = standpoint.source_of(peer, head, client);
        Asker { local, source, from, tunnel, key, owner, is_of_many }
    }

    /// The key by which the request is balanced, and its place among those that wait.
    pub fn place(&self) -> (u64, RequestOwner) {
        (self.key, self.owner)
    }

    /// The client, as trusted proxies state it.
    pub fn client(&self) -> IpAddr {
        self.from.client
    }

    /// The client's address as a receiver gets it: where a field names the client, the port is not known.
    pub fn client_address(&self, peer: &Peer) -> SocketAddr {
        let is_nearest = self.from.client == self.from.nearest;
        let port = if is_nearest { peer.address().port() } else { 0 };
        SocketAddr::new(self.from.client, port)
    }
}

/// The party from which a process takes a request's addresses: its peer, or the stage before.
#[derive(Clone, Copy)]
pub struct Standpoint<'s> {
    /// Proxies that are trusted.
    pub trusted: &'s TrustedProxies,
    /// The stage that this process is; `None` if it is the whole server.
    pub role: Option<Role>,
}

impl Standpoint<'_> {
    /// The address that the client has reached: in a process behind another stage, as that stage says.
    fn local_of(self, peer: &Peer, head: &Head<'_>) -> SocketAddr {
        let told = if self.is_behind() { stage::local(head) } else { None };
        told.unwrap_or(peer.local)
    }

    /// The client and its port: in a process behind another stage, as that stage says.
    fn source_of(self, peer: &Peer, head: &Head<'_>, client: IpAddr) -> SocketAddr {
        match self.is_behind() {
            true => SocketAddr::new(client, stage::port(head)),
            false => source_of(peer, client),
        }
    }

    /// The tunnel that the client's stream of HTTP/2 becomes: in a process behind another stage, as that
    /// stage says.
    pub fn tunnel_of(self, head: &Head<'_>) -> Option<Tunnel> {
        let told = if self.is_behind() { stage::tunnel(head) } else { None };
        told.or(head.tunnel)
    }

    fn is_behind(self) -> bool {
        matches!(self.role, Some(Role::Process | Role::Respond))
    }
}

/// The key by which a request is balanced.
fn key(key: &BalanceKey, head: &Head<'_>, client: IpAddr) -> u64 {
    let of_client = || match client {
        IpAddr::V4(ip) => hash(&ip.octets()),
        IpAddr::V6(ip) => hash(&ip.octets()),
    };
    match key {
        BalanceKey::Client => of_client(),
        BalanceKey::Url => hash(head.target),
        BalanceKey::Cookie(name) => {
            let cookies =
                head.values(Name::Cookie).flat_map(|value| value.split(|&byte| byte == b';'));
            let mut found = cookies.filter_map(|cookie| {
                let cookie = cookie.trim_ascii().strip_prefix(name.as_bytes())?;
                cookie.strip_prefix(b"=")
            });
            found.next().map_or_else(of_client, hash)
        }
    }
}
