//! The head of a request to an upstream, in HTTP/1.1.
//!
//! The head is written anew from the head that was judged, never copied: the target in the form that
//! rules were applied to, one host, one length, and about the client only what is known here or comes
//! from a trusted proxy.

use crate::messages::client_url::{self, ClientUrl};
use crate::messages::cookies;
use crate::messages::destination::{AddressView, DestinationTold};
use crate::messages::names::{FieldKind, Forwarding, is_same, kind};
use crate::messages::target::{self, Ambiguous, Base, JudgedPath, TargetRefusal};
use crate::messages::text;
use forebay_conn::{GivenField, HeadValues};
use forebay_http::field::{FieldName, FieldValue};
use forebay_http::forwarded::{Element, ForwardedFamily, members_from_last, push_value};
use forebay_http::framing::Framing;
use forebay_http::head::{Head, Method, Name, Tunnel, Version};
use forebay_http::response::ResponseContext;
use forebay_http::trace_context::{self, ToldTrace};
use std::io::Write;
use std::net::IpAddr;
use std::ops::Range;

/// The name of this server in `Via`, in requests and answers.
const PSEUDONYM: &str = "forebay";

/// The field with the id by which several logs know a request.
const REQUEST_ID: &str = "X-Request-Id";

/// The length of the longest request id that is taken over.
const MOST_ID_BYTES: usize = 128;

/// The characters that an id may have besides letters and digits. They can be logged as they are.
const IN_IDS: &[u8] = b"-_.:/+=@";

/// The host that an upstream gets in the request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum HostSent {
    /// The host that the client has asked for.
    #[default]
    Client,
    /// The upstream's own address.
    Upstream,
    /// This name.
    Named(Box<str>),
}

impl HostSent {
    /// The name, if it is neither the client's host nor the upstream's address.
    pub fn named(&self) -> Option<&str> {
        match self {
            HostSent::Named(name) => Some(name),
            HostSent::Client | HostSent::Upstream => None,
        }
    }
}

/// Settings of requests to an upstream, as an operator decides them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestSettings {
    /// The host that the upstream gets.
    pub host: HostSent,
    /// The beginning of the client's paths, which the upstream does not see.
    pub strip: Base,
    /// The beginning of the upstream's paths.
    pub prefix: Base,
    /// How ambiguous paths are treated.
    pub ambiguous: Ambiguous,
    /// The addresses that the upstream gets in `Destination` and `If`.
    pub destination: DestinationTold,
    /// Whether other protocols may be asked for (WebSocket).
    pub upgrade: bool,
    /// Whether a tunnel is over when the client has ended its direction.
    pub ends_with_client: bool,
    /// Whether each connection is for one request.
    pub close: bool,
    /// The fields to set, each instead of the client's or this proxy's own.
    pub set: Vec<(FieldName, SetValue)>,
    /// The fields to leave out.
    pub remove: Vec<FieldName>,
}

impl RequestSettings {
    pub(crate) fn changes(&self, name: &str) -> bool {
        self.set.iter().any(|(set, _)| is_same(set.as_str(), name))
            || self.remove.iter().any(|field| is_same(field.as_str(), name))
    }
}

/// The value of a field, or of a variable of a script, that is set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetValue<V = FieldValue> {
    /// A value that is the same for every request.
    Fixed(V),
    /// The one of the request's [values](UpstreamRequest::values) that has this number.
    OfRequest(usize),
}

impl<V: AsRef<str>> SetValue<V> {
    /// The value for a request; `None` if it would be empty.
    pub(crate) fn of<'v>(&'v self, request: &UpstreamRequest<'v>) -> Option<&'v [u8]> {
        match self {
            SetValue::Fixed(value) => Some(value.as_ref().as_bytes()),
            SetValue::OfRequest(number) => {
                request.values.get(*number).filter(|value| !value.is_empty())
            }
        }
    }
}

/// The client of a request, and how the request came here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct From {
    /// The client of the connection: the peer, or the address that a trusted proxy has stated in a
    /// PROXY header. `0.0.0.0` stands for a Unix socket.
    pub nearest: IpAddr,
    /// The client, as trusted proxies report it.
    pub client: IpAddr,
    /// Whether fields about the client come from a proxy that is trusted.
    pub is_trusted: bool,
    /// Whether that proxy is a stage of this server, which sends some of these fields for every
    /// client.
    pub is_of_stage: bool,
    /// Whether the client came through TLS, as trusted proxies report it: the scheme of the request.
    pub is_secure: bool,
    /// Whether the connection has TLS.
    pub nearest_is_secure: bool,
    /// The port that the request came to; 0 for a Unix socket. It is used where the client has named
    /// no host: see `client_url::port`.
    pub port: u16,
    /// The family of fields about the client that counts, from a trusted proxy. Other fields are
    /// dropped.
    pub family: ForwardedFamily,
    /// The number of elements of `Forwarded`, from the last, that trusted proxies have written.
    pub elements: usize,
    /// Whether applications get `Forwarded`.
    pub tells_forwarded: bool,
    /// Whether trusted proxies name the client in a field of its own, so that no list of addresses
    /// counts.
    pub names_client: bool,
}

impl From {
    /// What a trusted proxy says about the client's URL.
    pub(crate) fn client_url<'h>(&self, head: &Head<'h>) -> ClientUrl<'h> {
        match self.is_trusted {
            true => ClientUrl::of(head, self.family, self.elements),
            false => ClientUrl::default(),
        }
    }

    /// Whether a field about the client that a trusted proxy has sent counts.
    pub(crate) fn believes(&self, field: Forwarding) -> bool {
        self.is_trusted
            && match field {
                Forwarding::Forwarded => self.family == ForwardedFamily::Forwarded,
                Forwarding::RequestId | Forwarding::Url => true,
                _ => self.family == ForwardedFamily::XForwarded,
            }
    }

    /// The elements of `Forwarded` that trusted proxies have written, in order.
    fn elements<'h>(&self, head: &Head<'h>) -> Vec<Element<'h>> {
        let members = members_from_last(head).take(self.elements).filter_map(Element::parse);
        let mut elements: Vec<_> = members.collect();
        elements.reverse();
        elements
    }

    /// Appends the value of `Forwarded` for applications: what trusted proxies have written, then an
    /// element for this connection and its peer (RFC 7239 §4). Behind a stage that element describes
    /// the client.
    pub(crate) fn push_forwarded(&self, head: &Head<'_>, out: &mut Vec<u8>) {
        for element in self.elements(head) {
            element.write(out);
            out.extend_from_slice(b", ");
        }
        let is_told_by_stage = self.family == ForwardedFamily::XForwarded;
        let (ip, is_secure) = match is_told_by_stage {
            true => (self.client, self.is_secure),
            false => (self.nearest, self.nearest_is_secure),
        };
        match ip.to_canonical() {
            ip if ip.is_unspecified() => out.extend_from_slice(b"for=unknown"),
            IpAddr::V4(ip) => push(out, format_args!("for={ip}")),
            IpAddr::V6(ip) => push(out, format_args!("for=\"[{ip}]\"")),
        }
        let host = self.client_url(head).host.filter(|_| is_told_by_stage);
        let host = host.as_deref().unwrap_or(head.authority);
        if !host.is_empty() {
            out.extend_from_slice(b";host=");
            push_value(host, out);
        }
        push(out, format_args!(";proto={}", scheme(is_secure)));
    }
}

/// The scheme for a connection with or without TLS.
pub(crate) fn scheme(is_secure: bool) -> &'static str {
    if is_secure { "https" } else { "http" }
}

/// A request to pass on.
#[derive(Clone, Copy, Debug)]
pub struct UpstreamRequest<'r> {
    /// The head that the client sent.
    pub head: &'r Head<'r>,
    /// The path that rules have judged.
    pub judged: JudgedPath<'r>,
    /// The path that a rule has put in its place, decoded and without `.` and `..`.
    pub rewritten: Option<&'r [u8]>,
    /// The client, and how the request came.
    pub from: From,
    /// The number of the request in logs, unless a trusted proxy has given it an id. It must be
    /// unique and hard to guess.
    pub id: u128,
    /// The name of a cookie that is hidden from the application.
    pub hidden: Option<&'r str>,
    /// The fields that replace the client's. A field without a value is removed.
    pub given: &'r [FieldOverride],
    /// The position of the request in a trace; `None` if the client's own fields for that are passed
    /// on.
    pub trace: Option<ToldTrace>,
    /// The values of fields that are [set](RequestSettings::set) and differ from request to request,
    /// by their numbers.
    pub values: &'r HeadValues,
}

/// A field that replaces the client's of the same name; without a value, that is removed.
pub type FieldOverride = GivenField;

/// The results of writing a head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenHead {
    /// The framing of the body that must follow.
    pub framing: Framing,
    /// Whether the body must wait for `100 Continue`.
    pub expects_continue: bool,
    /// What the reader of the answer needs to know of the request.
    pub asked: ResponseContext,
    /// The position of the request id in the output; empty if there is none.
    pub id: Range<usize>,
    /// The names of the fields that were [given](UpstreamRequest::given). The client's trailers may
    /// not set them either.
    pub given: Box<[Box<str>]>,
}

/// Appends the head of `request` to `out`. `authority` is the host and port of the upstream, as a
/// request names it.
///
/// # Errors
/// Why the request is not passed on; `out` then holds nothing of it.
pub fn write(
    request: &UpstreamRequest<'_>,
    authority: &str,
    settings: &RequestSettings,
    out: &mut Vec<u8>,
) -> Result<WrittenHead, TargetRefusal> {
    let begin = out.len();
    let written = RequestWriter { request, authority, settings, out }.head();
    if written.is_err() {
        out.truncate(begin);
    }
    written
}

struct RequestWriter<'w> {
    request: &'w UpstreamRequest<'w>,
    authority: &'w str,
    settings: &'w RequestSettings,
    out: &'w mut Vec<u8>,
}

impl RequestWriter<'_> {
    fn head(&mut self) -> Result<WrittenHead, TargetRefusal> {
        let head = self.request.head;
        if matches!(head.method, Method::Connect | Method::Trace) {
            return Err(TargetRefusal::Method);
        }
        let is_stripped = self.request_line()?;
        self.host();
        let upgrade = self.upgrade();
        let said = self.client_fields()?;
        let id = self.forwarding(said, is_stripped);
        self.trace();
        for (name, value) in &self.settings.set {
            if let Some(value) = value.of(self.request) {
                line(self.out, name.as_str(), value);
            }
        }
        for (name, value) in self.request.given {
            if let Some(value) = value.as_deref().filter(|_| !self.settings.changes(name)) {
                line(self.out, name, value);
            }
        }
        let expects_continue = head.expects_continue && head.framing != Framing::None;
        if expects_continue {
            line(self.out, "Expect", b"100-continue");
        }
        self.framing();
        self.connection(&upgrade);
        self.out.extend_from_slice(b"\r\n");
        let asked =
            ResponseContext { is_head: head.method == Method::Head, upgrade: !upgrade.is_empty() };
        let given = self.request.given.iter().map(|(name, _)| name.clone()).collect();
        Ok(WrittenHead { framing: head.framing, expects_continue, asked, id, given })
    }

    /// Writes the request line. Returns whether `strip` was removed from the path.
    fn request_line(&mut self) -> Result<bool, TargetRefusal> {
        let UpstreamRequest { head, judged, rewritten, .. } = self.request;
        self.out.extend_from_slice(head.method_text.as_bytes());
        self.out.push(b' ');
        let begin = self.out.len();
        match rewritten {
            Some(made) => target::push_made(made, self.out)?,
            None => target::push(head.path, *judged, self.settings.ambiguous, self.out)?,
        }
        let RequestSettings { strip, prefix, .. } = self.settings;
        let is_beneath = target::rebase(begin, *judged, (strip, prefix), self.out)?;
        let is_stripped = is_beneath && !strip.is_empty();
        if let Some(query) = head.query {
            self.out.push(b'?');
            self.out.extend_from_slice(query);
        }
        self.out.extend_from_slice(b" HTTP/1.1\r\n");
        Ok(is_stripped)
    }

    fn host(&mut self) {
        let RequestWriter { request, authority, settings, .. } = *self;
        line(self.out, "Host", told_host(request, authority, settings));
    }

    /// Writes a field with addresses of resources, rewritten for the application. Returns whether the
    /// field is such a one.
    fn addresses(&mut self, name: &str, value: &[u8]) -> Result<bool, TargetRefusal> {
        let DestinationTold::Upstream { is_tls } = self.settings.destination else {
            return Ok(false);
        };
        let is_destination = name.eq_ignore_ascii_case("Destination");
        if !is_destination && !name.eq_ignore_ascii_case("If") {
            return Ok(false);
        }
        let UpstreamRequest { head, from, .. } = self.request;
        let RequestSettings { strip, prefix, ambiguous, .. } = self.settings;
        let outer = from.client_url(head).host.unwrap_or_default();
        let view = AddressView {
            client: [head.authority, &outer],
            is_tls,
            host: told_host(self.request, self.authority, self.settings),
            strip,
            prefix,
            ambiguous: *ambiguous,
        };
        let moved = match is_destination {
            true => view.destination(value)?.unwrap_or_else(|| value.to_vec()),
            false => view.conditions(value),
        };
        line(self.out, name, &moved);
        Ok(true)
    }

    /// The protocols that the application is asked for, ready for the field; empty if there is none.
    fn upgrade(&self) -> Vec<u8> {
        match self.settings.upgrade {
            true => protocols(self.request.head, self.request.head.tunnel),
            false => Vec::new(),
        }
    }

    /// Writes the client's fields that may be passed on. Returns whether a trusted proxy has sent
    /// `X-Forwarded-For`.
    fn client_fields(&mut self) -> Result<bool, TargetRefusal> {
        let UpstreamRequest { head, from, given, trace, .. } = self.request;
        let is_chunked = head.framing == Framing::Chunked;
        let names_fields = options(head).any(|option| {
            let plain: [&[u8]; 4] = [b"keep-alive", b"close", b"upgrade", b"te"];
            !plain.iter().any(|other| other.eq_ignore_ascii_case(option))
        });
        let mut said = false;
        let mut has_cookie = false;
        for (name, value) in head.fields() {
            let kind = kind(name);
            if self.settings.changes(name) || given.iter().any(|(other, _)| is_same(other, name)) {
                continue;
            }
            match kind {
                FieldKind::Own => {}
                FieldKind::Forwarding(field) if !from.believes(field) => {}
                FieldKind::Forwarding(field) => match field {
                    // joined with the address that is known here, later
                    Forwarding::For => said = true,
                    // written later, once each, with what is known here
                    Forwarding::Proto | Forwarding::RealIp | Forwarding::RequestId => {}
                    Forwarding::Host | Forwarding::Port | Forwarding::Prefix => {}
                    Forwarding::Forwarded => {}
                    Forwarding::Other | Forwarding::Url => line(self.out, name, value),
                },
                FieldKind::MaxForwards => self.max_forwards(value)?,
                FieldKind::Trailer if !is_chunked => {}
                FieldKind::Trace if trace.is_some() => {}
                // fields that `Connection` names are for this connection only; fields that this
                // server writes cannot be removed so
                _ if names_fields && is_named(head, name) => {}
                FieldKind::Cookie if has_cookie => {}
                FieldKind::Cookie => {
                    has_cookie = true;
                    self.cookies();
                }
                FieldKind::Plain if self.addresses(name, value)? => {}
                FieldKind::Plain | FieldKind::Trailer | FieldKind::Trace => {
                    line(self.out, name, value);
                }
            }
        }
        Ok(said)
    }

    /// Joins all cookies. HTTP/2 sends cookies one by one, and an application may look at only one of
    /// several fields (RFC 9113 §8.2.3).
    fn cookies(&mut self) {
        let UpstreamRequest { head, hidden, .. } = self.request;
        if let Some(cookies) = cookies::join(head.values(Name::Cookie), *hidden) {
            line(self.out, "Cookie", &cookies);
        }
    }

    /// Writes `Max-Forwards`, which is defined only for OPTIONS and TRACE (RFC 9110 §7.6.2).
    fn max_forwards(&mut self, value: &[u8]) -> Result<(), TargetRefusal> {
        if self.request.head.method != Method::Options {
            return Ok(());
        }
        let left = std::str::from_utf8(value).ok().and_then(|text| text.parse::<u32>().ok());
        match left {
            Some(0) => Err(TargetRefusal::LastHop),
            Some(left) => {
                line(self.out, "Max-Forwards", (left - 1).to_string().as_bytes());
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Writes the beginning of the client's URL: scheme, host, port and the path that `strip` has
    /// removed. They must fit together, or the application would send clients to addresses that do
    /// not exist.
    fn client_url(&mut self, is_stripped: bool) {
        let UpstreamRequest { head, from, .. } = self.request;
        let settings = self.settings;
        let theirs = from.client_url(head);
        let proto = scheme(from.is_secure);
        if !settings.changes("X-Forwarded-Proto") {
            line(self.out, "X-Forwarded-Proto", proto.as_bytes());
        }
        let set = |name: &str| {
            let set = settings.set.iter().find(|(set, _)| is_same(set.as_str(), name));
            set.map(|(_, value)| value.of(self.request).unwrap_or_default())
        };
        let is_secure = set("X-Forwarded-Proto")
            .map_or(from.is_secure, |proto| proto.eq_ignore_ascii_case(b"https"));
        let host = match set("X-Forwarded-Host") {
            Some(value) => value,
            None => theirs.host.as_deref().unwrap_or(head.authority),
        };
        if !host.is_empty() && !settings.changes("X-Forwarded-Host") {
            line(self.out, "X-Forwarded-Host", host);
        }
        if !settings.changes("X-Forwarded-Port") {
            match (theirs.port, client_url::port(host, is_secure)) {
                (Some(port), _) => line(self.out, "X-Forwarded-Port", port),
                (None, Some(port)) => line(self.out, "X-Forwarded-Port", port),
                // the application takes the host that it gets for its own
                (None, None) => {}
            }
        }
        if !settings.changes("X-Forwarded-Prefix") {
            let prefix = theirs.whole_prefix((&settings.strip, &settings.prefix), is_stripped);
            if !prefix.is_empty() {
                line(self.out, "X-Forwarded-Prefix", &prefix);
            }
        }
    }

    /// Writes the client's address, and the way of the request. Returns the position of the request
    /// id.
    fn forwarding(&mut self, said: bool, is_stripped: bool) -> Range<usize> {
        let UpstreamRequest { head, from, .. } = self.request;
        let settings = self.settings;
        let nearest = from.nearest.to_canonical();
        let is_known = !nearest.is_unspecified();
        let said = said && !from.names_client;
        let named = from.client.to_canonical();
        let named = (from.names_client && named != nearest).then_some(named);
        let clients = from.elements(head);
        let clients: Vec<_> = clients.iter().filter_map(Element::client).collect();
        if !settings.changes("X-Forwarded-For")
            && (said || is_known || named.is_some() || !clients.is_empty())
        {
            self.list("X-Forwarded-For", said);
            for client in clients.into_iter().chain(named) {
                self.more();
                text::address(client, self.out);
            }
            if is_known {
                self.more();
                text::address(nearest, self.out);
            }
            self.out.extend_from_slice(b"\r\n");
        }
        self.client_url(is_stripped);
        let client = from.client.to_canonical();
        if !client.is_unspecified() && !settings.changes("X-Real-IP") {
            line_of(self.out, "X-Real-IP", |out| text::address(client, out));
        }
        if from.tells_forwarded && !settings.changes("Forwarded") {
            line_of(self.out, "Forwarded", |out| from.push_forwarded(head, out));
        }
        if !settings.changes("Via") {
            let by: &[u8] = match head.version {
                Version::Http10 => b"1.0 ",
                Version::Http11 => b"1.1 ",
                Version::Http2 => b"2 ",
            };
            line_of(self.out, "Via", |out| {
                out.extend_from_slice(by);
                out.extend_from_slice(PSEUDONYM.as_bytes());
            });
        }
        self.request_id()
    }

    /// Begins a list, with the items of trusted proxies.
    fn list(&mut self, name: &str, with_theirs: bool) {
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b": ");
        let fields = self.request.head.fields().filter(|_| with_theirs);
        let values = fields.filter(|(other, _)| other.eq_ignore_ascii_case(name));
        for (_, value) in values.filter(|(_, value)| !value.is_empty()) {
            self.more();
            self.out.extend_from_slice(value);
        }
    }

    /// Begins one more item of a list.
    fn more(&mut self) {
        if !self.out.ends_with(b": ") {
            self.out.extend_from_slice(b", ");
        }
    }

    /// Writes the id that a trusted proxy has given, or a new one.
    fn request_id(&mut self) -> Range<usize> {
        if self.settings.changes(REQUEST_ID) {
            return 0..0;
        }
        let UpstreamRequest { head, from, id, .. } = self.request;
        self.out.extend_from_slice(REQUEST_ID.as_bytes());
        self.out.extend_from_slice(b": ");
        let start = self.out.len();
        match valid_id(head).filter(|_| from.is_trusted) {
            Some(theirs) => self.out.extend_from_slice(theirs),
            None => text::hexadecimal(*id, self.out),
        }
        let end = self.out.len();
        self.out.extend_from_slice(b"\r\n");
        start..end
    }

    /// Writes the position of the request in a trace, if this server takes part in it.
    fn trace(&mut self) {
        let UpstreamRequest { head, trace, .. } = self.request;
        let Some(told) = trace else { return };
        if !self.settings.changes(trace_context::TRACEPARENT) {
            line(self.out, trace_context::TRACEPARENT, &told.context.text());
        }
        if told.keeps_state && !self.settings.changes(trace_context::TRACESTATE) {
            let begin = self.out.len();
            line_of(self.out, trace_context::TRACESTATE, |out| {
                trace_context::push_state(head, out)
            });
            if self.out.ends_with(b": \r\n") {
                self.out.truncate(begin);
            }
        }
    }

    fn framing(&mut self) {
        let head = self.request.head;
        let wants_body = matches!(head.method, Method::Post | Method::Put | Method::Patch);
        match head.framing {
            Framing::Sized(length) => {
                line_of(self.out, "Content-Length", |out| text::number(length, out));
            }
            Framing::Chunked => self.out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
            // RFC 9110 §8.6: a length of zero is sent for methods that expect a body
            Framing::None if wants_body || head.has(Name::ContentLength) => {
                self.out.extend_from_slice(b"Content-Length: 0\r\n");
            }
            Framing::None => {}
        }
    }

    fn connection(&mut self, upgrade: &[u8]) {
        let takes_trailers = takes_trailers(self.request.head);
        if takes_trailers {
            line(self.out, "TE", b"trailers");
        }
        if !upgrade.is_empty() {
            line(self.out, "Upgrade", upgrade);
        }
        let options = [
            (takes_trailers, "TE"),
            (!upgrade.is_empty(), "Upgrade"),
            (self.settings.close && upgrade.is_empty(), "close"),
        ];
        if options.iter().all(|(is_on, _)| !is_on) {
            return;
        }
        self.out.extend_from_slice(b"Connection: ");
        for (_, name) in options.iter().filter(|(is_on, _)| *is_on) {
            self.more();
            self.out.extend_from_slice(name.as_bytes());
        }
        self.out.extend_from_slice(b"\r\n");
    }
}

/// The host that the application gets.
fn told_host<'w>(
    request: &'w UpstreamRequest<'_>,
    authority: &'w str,
    settings: &'w RequestSettings,
) -> &'w [u8] {
    let client = request.head.authority;
    match &settings.host {
        HostSent::Named(name) => name.as_bytes(),
        // HTTP/1.0 allows requests without a host
        HostSent::Client if !client.is_empty() => client,
        HostSent::Client | HostSent::Upstream => authority.as_bytes(),
    }
}

/// Whether a client wants the trailers of an answer (RFC 9110 §10.1.4).
pub(crate) fn takes_trailers(head: &Head<'_>) -> bool {
    head.fields().any(|(name, value)| {
        name.eq_ignore_ascii_case("te")
            && value
                .split(|&b| b == b',')
                .any(|one| one.trim_ascii().eq_ignore_ascii_case(b"trailers"))
    })
}

/// The protocols that a client asks for and may have, ready for the field `Upgrade`; empty if there
/// is none. HTTP/2 without TLS is left out: it would let requests pass that no rule has judged.
pub(crate) fn protocols(head: &Head<'_>, tunnel: Option<Tunnel>) -> Vec<u8> {
    match tunnel {
        Some(Tunnel::WebSocket) => return Tunnel::WebSocket.token().as_bytes().to_vec(),
        Some(Tunnel::Unknown) => return Vec::new(),
        None => {}
    }
    let is_asked = head.version == Version::Http11
        && head.framing == Framing::None
        && head.has(Name::Upgrade)
        && options(head).any(|option| option.eq_ignore_ascii_case(b"upgrade"));
    if !is_asked {
        return Vec::new();
    }
    let values = head.values(Name::Upgrade).flat_map(|value| value.split(|&b| b == b','));
    let may_be = |protocol: &&[u8]| {
        let name = protocol.split(|&b| b == b'/').next().unwrap_or_default().trim_ascii();
        let never: [&[u8]; 4] = [b"", b"h2c", b"http", b"tls"];
        !never.iter().any(|other| other.eq_ignore_ascii_case(name))
    };
    let protocols: Vec<_> = values.map(<[u8]>::trim_ascii).filter(may_be).collect();
    protocols.join(b", ".as_slice())
}

/// The valid request id of a head, if it has one. The caller knows whether its sender is trusted.
pub fn valid_id<'h>(head: &Head<'h>) -> Option<&'h [u8]> {
    let mut ids = head.fields().filter(|(name, _)| name.eq_ignore_ascii_case(REQUEST_ID));
    let (_, id) = ids.next()?;
    let is_sane = |byte: &u8| byte.is_ascii_alphanumeric() || IN_IDS.contains(byte);
    let is_good = (1..=MOST_ID_BYTES).contains(&id.len()) && id.iter().all(is_sane);
    (is_good && ids.next().is_none()).then_some(id)
}

/// The options of `Connection`.
fn options<'h>(head: &Head<'h>) -> impl Iterator<Item = &'h [u8]> + use<'h> {
    let values = head.values(Name::Connection).flat_map(|value| value.split(|&b| b == b','));
    values.map(<[u8]>::trim_ascii).filter(|option| !option.is_empty())
}

/// Whether `Connection` names a field (RFC 9110 §7.6.1).
fn is_named(head: &Head<'_>, name: &str) -> bool {
    options(head).any(|option| option.eq_ignore_ascii_case(name.as_bytes()))
}

/// Appends one field line.
fn line(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Appends one field line, whose value `write` writes.
fn line_of(out: &mut Vec<u8>, name: &str, write: impl FnOnce(&mut Vec<u8>)) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    write(out);
    out.extend_from_slice(b"\r\n");
}

fn push(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    // writing into a vector does not fail
    let _ = out.write_fmt(text);
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
