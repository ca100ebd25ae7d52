//! The admin listener's handler: the server's counters and state, read-only.
//!
//! | path | answer |
//! |---|---|
//! | `/` | the list of these paths |
//! | `/metrics` | Prometheus text 0.0.4 |
//! | `/status` | JSON |
//! | `/healthz` | 200 while the process answers |
//! | `/readyz` | 200 while clients are accepted, 503 from the beginning of a drain on |
//! | `/page` | a page for browsers, where `admin.page` allows it, with its files and data below it |
//!
//! The handler changes nothing. It answers only clients whose addresses are allowed, and only
//! requests whose Host is an address, localhost, or a name in the certificate that the client was
//! shown: a page on the internet can make a browser send requests to an address of this machine or
//! of its network, but the Host field then names the page's own host (DNS rebinding). Browsers
//! cannot reach a Unix socket; there any name is accepted.
//!
//! Where there are tokens, every request must carry one, except for `/healthz` and `/readyz`:
//! health checks often cannot send a token, and these paths reveal nothing but up or down. The
//! files of the page reveal nothing about the server. A browser that has sent a token to
//! `/page/sign-in` gets a cookie, which is valid below `/page` alone.

use crate::engines::{self, Apart, ReadyThread};
use crate::page::answers::{self, PageAnswers};
use crate::plan::AdminPlan;
use crate::status::Status;
use forebay_conn::handler::body::NoLine;
use forebay_conn::{
    Admission, Admitted, Bodies, Handler, HandlerTypes, Hooks, Http1, Journal, Listening, NoBody,
    NoRelay, Peer, Process, ProcessOutcome, Rank, Refusal, Reply, Request, Verdict,
};
use forebay_engine::accept::Listener;
use forebay_engine::control::{EngineControl, LoopOrder};
use forebay_handler::TLS;
use forebay_handler::certificates::{OfAdmin, Tokens};
use forebay_handler::job::{ServerJob, ServerJobDone};
use forebay_handler::live::LiveSnapshot;
use forebay_http::head::{Head, Method, Name};
use forebay_http::status;
use forebay_metrics::{Snapshot, render};
use forebay_site::host_of;
use forebay_sys::clock;
use forebay_tls::{Channel, names};
use std::borrow::Cow;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::thread::JoinHandle;

/// The admin listener, ready to run.
pub struct AdminListener {
    control: Arc<EngineControl>,
    task: ReadyThread,
}

/// The running admin listener.
#[derive(Debug)]
pub struct RunningAdmin {
    control: Arc<EngineControl>,
    thread: JoinHandle<()>,
}

impl AdminListener {
    /// Reports `status` to clients of these sockets, which share one address. The listener applies
    /// its `own` rules until newer ones are in force.
    ///
    /// # Errors
    /// Lack of descriptors.
    pub fn new(
        listeners: Vec<Listener>,
        plan: &AdminPlan,
        own: Arc<OfAdmin>,
        live: Arc<LiveSnapshot>,
        status: Arc<Status>,
    ) -> io::Result<AdminListener> {
        let control = Arc::new(EngineControl::new(1)?);
        let draining = Arc::clone(&status);
        let readiness = Arc::new(move || draining.accepts());
        let page = plan.page.map(|addresses| PageAnswers {
            memory: Arc::clone(status.page()),
            live: Arc::clone(&live),
            addresses,
            with_token: plan.with_token,
        });
        let source = Arc::new(move || status.snapshot());
        let handler = AdminService {
            source,
            readiness,
            page,
            with_token: plan.with_token,
            in_force: Arc::new(move || {
                let current = &live.get().certificates.admin;
                Arc::clone(if current.number < own.number { &own } else { current })
            }),
        };
        let apart = Apart {
            connections: plan.connections,
            lingering: plan.lingering,
            // RSA signatures of handshakes
            computing: usize::from(plan.speaks_tls()),
        };
        let task =
            engines::prepare_apart("admin", listeners, handler, Arc::clone(&control), apart)?;
        Ok(AdminListener { control, task })
    }

    /// Starts the listener's thread.
    ///
    /// # Errors
    /// Lack of threads.
    pub fn start(self) -> io::Result<RunningAdmin> {
        Ok(RunningAdmin { control: self.control, thread: self.task.spawn(|_| {})? })
    }
}

impl RunningAdmin {
    /// Drains the listener, which has a successor: the requests of accepted connections are
    /// answered, then its thread ends.
    pub fn leave(self) {
        self.control.give(LoopOrder::Drain);
    }

    /// Stops the listener at once and waits for its thread.
    pub fn stop(self) {
        self.control.give(LoopOrder::Stop);
        // the thread has reported a panic itself
        let _ = self.thread.join();
    }
}

/// Takes a snapshot; called for each request of a document, so it must be cheap and not block.
pub type SnapshotSource = Arc<dyn Fn() -> Snapshot + Send + Sync>;

/// Whether clients are accepted.
pub type ReadinessCheck = Arc<dyn Fn() -> bool + Send + Sync>;

/// The rules in force: certificates, tokens, and the allowed clients.
pub type AdminRules = Arc<dyn Fn() -> Arc<OfAdmin> + Send + Sync>;

/// The handler: gives the clients that the rules in force allow the data of `source` and
/// `readiness`.
pub struct AdminService {
    source: SnapshotSource,
    readiness: ReadinessCheck,
    page: Option<PageAnswers>,
    /// Whether this listener asks for tokens whatever the rules in force say. A listener that is
    /// being replaced, perhaps by one at a safer place, goes on asking for them.
    with_token: bool,
    in_force: AdminRules,
}

/// One of the functions of [`render`].
type Render = fn(&Snapshot) -> String;

const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";

const JSON: &str = "application/json";

/// The cookie of a signed-in browser, and how long it is valid.
const COOKIE: &str = "forebay_page";
const SIGNED_IN_S: u64 = 12 * 3600;
/// The largest number of cookies of that name and form that are checked; a browser has one.
const MOST_COOKIES: usize = 2;

const INDEX: &str = "This is forebay's admin listener. It can be read, not written.\n\n\
    /metrics  counters for Prometheus\n/status   the same as JSON, with time per activity\n\
    /healthz  200 while the process answers\n/readyz   200 while it accepts clients, 503 while it drains\n\
    /page     the same for browsers, where admin.page says so\n";

impl AdminService {
    /// Whether a client's address is allowed now. A connection may be older than the rules.
    fn is_allowed(&self, client: IpAddr) -> bool {
        (self.in_force)().allow.iter().any(|network| network.contains(client))
    }

    /// Whether the request carries a valid token or cookie, or needs none.
    fn is_authorised(&self, head: &Head<'_>) -> bool {
        let rules = (self.in_force)();
        !(self.with_token || rules.with_token)
            || matches!(head.path, b"/healthz" | b"/readyz")
            || (self.page.is_some() && answers::file(head.path).is_some())
            || rules.tokens.as_ref().is_some_and(|tokens| {
                let is_signed_in =
                    || head.path.starts_with(b"/page/") && self.has_cookie(head, tokens);
                tokens.admit(head) || is_signed_in()
            })
    }

    /// Whether the request carries the cookie of a browser that is signed in.
    fn has_cookie(&self, head: &Head<'_>, tokens: &Tokens) -> bool {
        self.page.as_ref().is_some_and(|page| {
            let over_s = page.memory.signed_out_s().max(clock::unix_coarse_ms() / 1000);
            own_cookies(head).any(|cookie| tokens.admit_cookie(cookie, over_s))
        })
    }

    /// The `Set-Cookie` line for a browser that signs in with a token, or that signs out.
    fn session(&self, request: &Request<'_>) -> Option<String> {
        let memory = &self.page.as_ref()?.memory;
        let head = request.head;
        let now_s = clock::unix_coarse_ms() / 1000;
        let secure = if request.peer.secured.is_some() { "; Secure" } else { "" };
        let with = |value: &str, age_s: u64| {
            format!(
                "Set-Cookie: {COOKIE}={value}; Path=/page; Max-Age={age_s}; HttpOnly; SameSite=Strict{secure}\r\n"
            )
        };
        match head.path {
            b"/page/sign-in" => {
                let until_s = memory.session_until_s(now_s, SIGNED_IN_S);
                let rules = (self.in_force)();
                let cookie = rules.tokens.as_ref()?.cookie(head, until_s)?;
                Some(with(&cookie, SIGNED_IN_S))
            }
            b"/page/sign-out" => {
                memory.sign_out(now_s, SIGNED_IN_S);
                Some(with("", 0))
            }
            _ => None,
        }
    }

    /// Status, type and text of a document.
    fn document(&self, head: &Head<'_>) -> Option<(u16, &'static str, Cow<'static, str>)> {
        let (status, kind, text) = match head.path {
            b"/" => (200, TEXT, INDEX.into()),
            b"/metrics" => (200, METRICS, self.rendered(render::prometheus)),
            b"/status" => (200, JSON, self.rendered(render::json)),
            b"/healthz" => (200, TEXT, "alive\n".into()),
            b"/readyz" if (self.readiness)() => (200, TEXT, "ready\n".into()),
            b"/readyz" => (503, TEXT, "draining\n".into()),
            path => {
                let page = self.page.as_ref()?;
                let figures = || match path {
                    b"/page/status" => Some((JSON, self.rendered(render::json))),
                    _ => page.document(path, head.query.unwrap_or_default()),
                };
                let (kind, text) = answers::file(path).or_else(figures)?;
                (200, kind, text)
            }
        };
        Some((status, kind, text))
    }

    fn rendered(&self, render: Render) -> Cow<'static, str> {
        render(&(self.source)()).into()
    }
}

/// Whether `authority`, a host and perhaps a port, is an address or localhost. The name of a page's
/// own host never has that form.
fn is_literal(authority: &[u8]) -> bool {
    let Ok(authority) = std::str::from_utf8(authority) else { return false };
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next(),
        None => authority.split(':').next(),
    };
    let host = host.unwrap_or("");
    host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok()
}

/// The cookies that may be ours, at most the first [`MOST_COOKIES`]: each is compared with every
/// token.
fn own_cookies<'h>(head: &'h Head<'_>) -> impl Iterator<Item = &'h str> {
    let cookies = head.values(Name::Cookie).flat_map(|value| value.split(|byte| *byte == b';'));
    let values = cookies.filter_map(|cookie| {
        let cookie = str::from_utf8(cookie.trim_ascii()).ok()?;
        cookie.strip_prefix(COOKIE)?.strip_prefix('=')
    });
    values.filter(|value| has_form(value)).take(MOST_COOKIES)
}

/// Whether this looks like what [`Tokens::cookie`] gives: a time, and 256 bits as base64url.
fn has_form(cookie: &str) -> bool {
    cookie
        .split_once('.')
        .is_some_and(|(until_s, mac)| until_s.parse::<u64>().is_ok() && mac.len() == 43)
}

/// Whether the client has asked for a host that only this listener can be.
fn is_own(peer: &Peer, authority: &[u8]) -> bool {
    let is_certified = |hosts: &[String]| {
        let host = String::from_utf8_lossy(host_of(authority)).to_ascii_lowercase();
        names::covers(hosts, &host)
    };
    is_literal(authority)
        || peer.local == Peer::UNIX
        || peer.secured.as_ref().is_some_and(|secured| is_certified(&secured.hosts))
}

/// Writes a whole answer. `fields` are further lines of the head, each with its CR LF.
fn answer(reply: &mut Reply<'_, NoBody>, head_only: bool, status: u16, fields: &str, body: &str) {
    let mut head = Vec::with_capacity(256);
    // writing into a Vec does not fail
    let _ = write!(
        head,
        "HTTP/1.1 {status} {}\r\n{fields}Content-Length: {}\r\nCache-Control: no-store\r\n\
         X-Content-Type-Options: nosniff\r\n",
        status::reason(status),
        body.len()
    );
    reply.head(status, &head);
    if !head_only {
        reply.copy(body.as_bytes());
    }
}

/// Every answer is short enough to be copied. Jobs are for handshakes alone.
impl HandlerTypes for AdminService {
    type Body = NoBody;
    type Job = ServerJob;
    type Relay = NoRelay;
    type Line = NoLine;
    type Ticket = ();
    type Record = ();
}

impl Handler for AdminService {
    type Protocol = Http1<AdminService>;
    type Transport = Channel;

    fn transport(&mut self, listening: Listening, local: SocketAddr) -> Channel {
        match listening {
            TLS => Channel::sealed(&(self.in_force)().identities, local.ip()),
            _ => Channel::Plain,
        }
    }
}

impl Admission for AdminService {
    fn admit(&mut self, peer: &Peer) -> Verdict<()> {
        match self.is_allowed(peer.remote.ip()) {
            true => Verdict::Admit(Admitted::at_once(Rank::FIRST, ())),
            false => Verdict::Refuse(Refusal::status(403), ()),
        }
    }
}
impl Bodies for AdminService {}
impl Journal for AdminService {}
impl Hooks for AdminService {}

impl Process for AdminService {
    fn process(
        &mut self,
        request: &Request<'_>,
        (): &mut (),
        _: Option<ServerJobDone>,
        reply: &mut Reply<'_, NoBody>,
    ) -> ProcessOutcome<ServerJob> {
        let head = request.head;
        let head_only = head.method == Method::Head;
        let plain = format!("Content-Type: {TEXT}\r\n");
        if !self.is_allowed(request.peer.remote.ip()) {
            reply.keep_alive = false;
            answer(reply, head_only, 403, &plain, "admin.allow does not name this client.\n");
        } else if !is_own(request.peer, head.authority) {
            let body =
                "Ask for this by an address, as localhost, or by a name of the certificate.\n";
            answer(reply, head_only, 421, &plain, body);
        } else if head.is_https && request.peer.secured.is_none() {
            let body = "Ask for an address with https through TLS.\n";
            answer(reply, head_only, 421, &plain, body);
        } else if !self.is_authorised(head) {
            let fields = format!("{plain}WWW-Authenticate: Bearer\r\n");
            let body = "Bring a token of admin.token_file: Authorization: Bearer TOKEN\n";
            answer(reply, head_only, 401, &fields, body);
        } else if head.method == Method::Post
            && let Some(cookie) = self.session(request)
        {
            answer(reply, head_only, 200, &format!("{plain}{cookie}"), "");
        } else if !matches!(head.method, Method::Get | Method::Head) {
            let fields = format!("{plain}Allow: GET, HEAD\r\n");
            answer(reply, false, 405, &fields, "This listener can only be read.\n");
        } else if let Some((status, kind, text)) = self.document(head) {
            let policy = if head.path.starts_with(b"/page") { answers::POLICY } else { "" };
            answer(reply, head_only, status, &format!("Content-Type: {kind}\r\n{policy}"), &text);
        } else {
            let body = "There are /, /metrics, /status, /healthz and /readyz.\n";
            answer(reply, head_only, 404, &plain, body);
        }
        ProcessOutcome::Replied
    }

    fn refuse(&mut self, status: u16, reason: &'static str, reply: &mut Reply<'_, NoBody>) {
        let fields = format!("Content-Type: {TEXT}\r\n");
        answer(reply, false, status, &fields, &format!("{reason}\n"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_conn::{Out, Secured};
    use forebay_http::head::{HeadLimits, Lines, ParsedHead};
    use forebay_http::path::NormalPath;
    use forebay_metrics::{Gauge, Info};
    use forebay_site::rules::Network;
    use std::net::SocketAddr;

    fn ask(request: &str) -> String {
        ask_at("127.0.0.1:9090".parse().unwrap(), true, request)
    }

    fn ask_at(address: SocketAddr, accepts: bool, request: &str) -> String {
        let peer = Peer::new("127.0.0.1:4711".parse().unwrap(), address);
        ask_by(&peer, &mut admin(accepts, EVERYBODY), request)
    }

    const EVERYBODY: &[&str] = &["all", "unix"];

    fn networks(texts: &[&str]) -> Vec<Network> {
        texts.iter().map(|text| Network::parse(text).unwrap()).collect()
    }

    fn admin(accepts: bool, allowed: &[&str]) -> AdminService {
        admin_by(accepts, OfAdmin { allow: networks(allowed), ..OfAdmin::default() })
    }

    fn admin_by(accepts: bool, rules: OfAdmin) -> AdminService {
        let rules = Arc::new(rules);
        let source: SnapshotSource = Arc::new(|| Snapshot {
            gauges: vec![(Gauge::Connections, 3)],
            info: Info { version: "0.1.0".to_owned(), ..Info::default() },
            ..Snapshot::default()
        });
        AdminService {
            source,
            readiness: Arc::new(move || accepts),
            page: None,
            with_token: false,
            in_force: Arc::new(move || Arc::clone(&rules)),
        }
    }

    fn ask_by(peer: &Peer, admin: &mut AdminService, request: &str) -> String {
        let mut lines = Lines::new();
        let limits = HeadLimits { empty_host: true, ..HeadLimits::default() };
        let parsed = Head::parse(request.as_bytes(), &mut lines, &limits).unwrap();
        let ParsedHead::Complete(head) = parsed else { panic!("the head is incomplete") };
        let mut out = Out::default();
        let date = forebay_http::date::format(0);
        let mut reply = Reply::new(&mut out, &date, true);
        let path = NormalPath::default();
        let request = Request::new(&head, peer, &path);
        let outcome = admin.process(&request, &mut (), None, &mut reply);
        assert!(matches!(outcome, ProcessOutcome::Replied));
        String::from_utf8(out.bytes.clone()).unwrap()
    }

    fn get(path: &str, host: &str) -> String {
        ask(&format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"))
    }

    #[test]
    fn the_documents_have_their_types_and_lengths() {
        for (path, kind, part) in [
            ("/", "text/plain; charset=utf-8", "/metrics"),
            ("/metrics", "text/plain; version=0.0.4; charset=utf-8", "\nforebay_connections 3\n"),
            ("/status?x=1", "application/json", "\"connections\":3"),
        ] {
            let answer = get(path, "localhost:9090");
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
            assert!(head.contains(&format!("Content-Type: {kind}\r\n")), "{head}");
            assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{head}");
            assert!(body.contains(part), "{body}");
        }
        let json = get("/status", "localhost");
        let body = json.split_once("\r\n\r\n").unwrap().1;
        let object: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(object["version"], "0.1.0");
        assert_eq!(object["responses"]["2xx"], 0);
    }

    #[test]
    fn it_is_alive_while_it_drains_and_not_ready() {
        let address = "127.0.0.1:9090".parse().unwrap();
        for (accepts, path, expected) in [
            (true, "/healthz", ("HTTP/1.1 200 OK", "alive\n")),
            (true, "/readyz", ("HTTP/1.1 200 OK", "ready\n")),
            (false, "/healthz", ("HTTP/1.1 200 OK", "alive\n")),
            (false, "/readyz", ("HTTP/1.1 503 Service Unavailable", "draining\n")),
        ] {
            let answer = ask_at(
                address,
                accepts,
                &format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"),
            );
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            assert_eq!((head.lines().next().unwrap(), body), expected, "{path}");
        }
    }

    #[test]
    fn only_addresses_and_localhost_are_answered() {
        for host in [
            "localhost",
            "LOCALHOST:1",
            "127.0.0.1",
            "127.8.8.8:9090",
            "[::1]:9090",
            "192.0.2.1:9090",
            "[2001:db8::2]",
        ] {
            assert!(get("/metrics", host).starts_with("HTTP/1.1 200 "), "{host}");
        }
        for host in [
            "example.org",
            "localhost.example.org",
            "127.0.0.1.nip.io",
            "2130706433",
            "0x7f.1",
            "127.1",
            "",
        ] {
            assert!(get("/metrics", host).starts_with("HTTP/1.1 421 "), "{host}");
            // a client of a Unix socket uses no host name
            let request = format!("GET /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n");
            assert!(ask_at(Peer::UNIX, true, &request).starts_with("HTTP/1.1 200 "), "{host}");
        }
        let absolute = "GET http://example.org/metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
        assert!(ask(absolute).starts_with("HTTP/1.1 421 "));
        let own =
            |scheme: &str| format!("GET {scheme}://localhost/metrics HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(ask(&own("http")).starts_with("HTTP/1.1 200 "));
        assert!(ask(&own("https")).starts_with("HTTP/1.1 421 "), "without TLS");
    }

    /// A page on the internet cannot have a certificate of the server's.
    #[test]
    fn names_of_the_certificate_are_answered() {
        let mut peer =
            Peer::new("10.0.0.7:4711".parse().unwrap(), "10.0.0.1:9443".parse().unwrap());
        peer.secured = Some(Box::new(Secured {
            name: Some("whatever.example".into()),
            version: "1.3",
            cipher: "any",
            alpn: None,
            resumed: false,
            hosts: Arc::new(["web1.example".to_owned(), "*.web1.example".to_owned()]),
            policy: None,
            client: None,
        }));
        let status = |host: &str| {
            let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
            ask_by(&peer, &mut admin(true, EVERYBODY), &request)[9..12].to_owned()
        };
        for host in ["web1.example:9443", "WEB1.example.", "a.web1.example", "10.0.0.1:9443"] {
            assert_eq!(status(host), "200", "{host}");
        }
        for host in ["whatever.example", "web1.example.org", "a.b.web1.example", ""] {
            assert_eq!(status(host), "421", "{host}");
        }
        let absolute = "GET https://web1.example/ HTTP/1.1\r\nHost: web1.example\r\n\r\n";
        let answer = ask_by(&peer, &mut admin(true, EVERYBODY), absolute);
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }

    #[test]
    fn without_a_token_only_probes_are_answered() {
        let peer = Peer::new("127.0.0.1:4711".parse().unwrap(), "127.0.0.1:9090".parse().unwrap());
        // while no tokens are in force, no client is let in
        let allow = networks(EVERYBODY);
        let mut admin = admin_by(true, OfAdmin { allow, with_token: true, ..OfAdmin::default() });
        let mut ask = |method: &str, path: &str, host: &str| {
            let request = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
            ask_by(&peer, &mut admin, &request)
        };
        for path in ["/", "/metrics", "/status", "/nothing", "/healthz/", "/%68ealthz"] {
            for method in ["GET", "POST"] {
                let answer = ask(method, path, "localhost");
                assert!(answer.starts_with("HTTP/1.1 401 "), "{path}: {answer}");
                assert!(answer.contains("\r\nWWW-Authenticate: Bearer\r\n"), "{path}: {answer}");
            }
        }
        for path in ["/healthz", "/readyz", "/readyz?a"] {
            assert!(ask("GET", path, "localhost").starts_with("HTTP/1.1 200 "), "{path}");
            assert!(ask("POST", path, "localhost").starts_with("HTTP/1.1 405 "), "{path}");
            assert!(ask("GET", path, "a.example").starts_with("HTTP/1.1 421 "), "{path}");
        }
    }

    #[test]
    fn a_head_has_few_cookies_checked() {
        let of = |until_s: &str| format!("forebay_page={until_s}.{}", "A".repeat(43));
        let cookies =
            ["forebay_page=1.x".to_owned(), of("x"), of("1"), "a=1".to_owned(), of("2"), of("3")];
        let request = format!(
            "GET /page/status HTTP/1.1\r\nHost: a\r\nCookie: {}\r\n\r\n",
            cookies.join("; ")
        );
        let mut lines = Lines::new();
        let parsed = Head::parse(request.as_bytes(), &mut lines, &HeadLimits::default()).unwrap();
        let ParsedHead::Complete(head) = parsed else { panic!("the head is incomplete") };
        let found: Vec<_> = own_cookies(&head).map(|cookie| &cookie[..2]).collect();
        assert_eq!(found, ["1.", "2."]);
    }

    #[test]
    fn only_clients_that_are_allowed_are_admitted() {
        let mut admin = admin(true, &["10.0.0.0/8", "::1", "unix"]);
        let mut verdict = |ip: &str| {
            let local = "10.0.0.1:9090".parse().unwrap();
            admin.admit(&Peer::new(SocketAddr::new(ip.parse().unwrap(), 4711), local))
        };
        for ip in ["10.1.2.3", "::ffff:10.1.2.3", "::1", "0.0.0.0"] {
            assert!(matches!(verdict(ip), Verdict::Admit(_)), "{ip}");
        }
        for ip in ["127.0.0.1", "192.0.2.1", "::2"] {
            let refusal = Refusal::status(403);
            assert!(matches!(verdict(ip), Verdict::Refuse(with, ()) if with == refusal), "{ip}");
        }
    }

    #[test]
    fn it_can_only_be_read() {
        for method in ["POST", "PUT", "DELETE", "OPTIONS", "PURGE"] {
            let answer = ask(&format!("{method} /status HTTP/1.1\r\nHost: localhost\r\n\r\n"));
            assert!(answer.starts_with("HTTP/1.1 405 "), "{answer}");
            assert!(answer.contains("\r\nAllow: GET, HEAD\r\n"), "{answer}");
        }
        assert!(get("/config", "localhost").starts_with("HTTP/1.1 404 "));
    }

    #[test]
    fn head_is_get_without_the_body() {
        let head = ask("HEAD /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let get = get("/metrics", "localhost");
        assert_eq!(head, get[..get.find("\r\n\r\n").unwrap() + 4]);
    }
}
