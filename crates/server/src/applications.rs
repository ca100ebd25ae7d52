//! The applications behind the sites, by the numbers that the content knows their routes by; and what is
//! asked of them.
//!
//! A reload keeps each application whose settings have not changed, with all that is known of it.

use crate::client::{TrustedProxies, client_of};
use crate::live::Live;
use crate::log;
use forebay_conn::{Peer, Request};
use forebay_engine::worker;
use forebay_http::framing::Framing;
use forebay_http::head::{Head, Method, Name};
use forebay_http::response;
use forebay_site::Destination;
use forebay_upstream::application::Application;
use forebay_upstream::balance::hash;
use forebay_upstream::exchange::{Ask, Log};
use forebay_upstream::fastcgi::{self, Params};
use forebay_upstream::group::Unavailable;
use forebay_upstream::pool::Pool;
use forebay_upstream::request::{self, From, Written};
use forebay_upstream::retry::Failure;
use forebay_upstream::settings::{self, Key, ProxyProtocol};
use forebay_upstream::target::Refused;
use forebay_upstream::upkeep::Upkeep;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{io, thread};

/// How exactly the times of checks are kept.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// All applications of a configuration.
#[derive(Debug, Default)]
pub struct Applications {
    /// By site, then by route.
    sites: Vec<Vec<Arc<Application>>>,
}

impl Applications {
    /// Those that these settings name, by site and route; of `before` those are kept that stay as they
    /// are. May wait for a name service.
    pub fn new(
        sites: &[Vec<settings::Application>],
        before: Option<&Applications>,
        now_ms: u64,
    ) -> Applications {
        let known: Vec<_> =
            before.iter().flat_map(|before| before.sites.iter().flatten()).collect();
        let application = |settings: &settings::Application| {
            let same = known.iter().find(|known| known.settings() == settings);
            same.map_or_else(
                || Application::new(settings.clone(), now_ms),
                |&same| Arc::clone(same),
            )
        };
        let of_site =
            |routes: &Vec<settings::Application>| routes.iter().map(application).collect();
        Applications { sites: sites.iter().map(of_site).collect() }
    }

    /// Those for which there is something to be done beside requests, each once.
    fn in_need(&self) -> Vec<Arc<Application>> {
        let mut found: Vec<Arc<Application>> = Vec::new();
        for one in self.sites.iter().flatten().filter(|one| one.needs_upkeep()) {
            if !found.iter().any(|known| Arc::ptr_eq(known, one)) {
                found.push(Arc::clone(one));
            }
        }
        found
    }

    /// Whether there is something to be done for some of them beside requests.
    pub fn need_upkeep(&self) -> bool {
        self.sites.iter().flatten().any(|one| one.needs_upkeep())
    }

    /// The one that a request is for.
    pub fn get(&self, destination: &Destination) -> Option<&Arc<Application>> {
        self.sites.get(destination.site as usize)?.get(destination.route as usize)
    }
}

/// Starts a thread that does for the applications in force what is to be done beside requests.
///
/// # Errors
/// Lack of threads.
pub fn keep_up(live: Arc<Live>) -> io::Result<()> {
    let run = move || {
        let mut upkeep = Upkeep::default();
        loop {
            let applications = live.get().applications.in_need();
            upkeep.run(&applications, worker::read_clocks().monotonic_ms);
            thread::sleep(LOOK_EVERY);
        }
    };
    thread::Builder::new().name("applications".to_owned()).spawn(run)?;
    Ok(())
}

/// Connections that wait for their next request: a loop's own, or those that threads share.
#[derive(Debug)]
pub enum Pools {
    /// Of this loop.
    Own(Pool),
    /// Of all threads.
    Shared(Arc<Mutex<Pool>>),
}

impl Pools {
    /// Does something with them.
    pub fn with<R>(&mut self, act: impl FnOnce(&mut Pool) -> R) -> R {
        match self {
            Pools::Own(pool) => act(pool),
            Pools::Shared(pool) => act(&mut lock(pool)),
        }
    }

    /// Once in a while those are closed that have ended. Threads do not wait for one another for that.
    #[inline]
    pub fn look(&mut self, now_ms: u64) {
        match self {
            Pools::Own(pool) => pool.look(now_ms),
            Pools::Shared(pool) => {
                if let Ok(mut pool) = pool.try_lock() {
                    pool.look(now_ms);
                }
            }
        }
    }
}

fn lock(pool: &Mutex<Pool>) -> MutexGuard<'_, Pool> {
    pool.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What an exchange must remember for its answer.
pub struct Asked {
    /// Whose it is.
    pub destination: Destination,
    /// Under what number it is known in logs.
    pub id: u128,
}

/// Why an application is not asked.
pub enum Unasked {
    /// Its request would not be the one that was judged.
    Refused(Refused),
    /// A script is told before it runs how long the body is, and nobody has said that.
    NoLength,
    /// Content and applications are replaced together: this one has no script to run.
    NoScript,
}

impl Unasked {
    /// What the client is told, and under which status.
    pub fn told(&self) -> (u16, &'static str) {
        match self {
            Unasked::Refused(refused) => (refused.status(), refused.reason()),
            Unasked::NoLength => (411, "The application must be told how long the body is"),
            Unasked::NoScript => (502, "There is no such application"),
        }
    }
}

/// What is asked of an application.
///
/// # Errors
/// Why it is not asked.
pub fn ask(
    application: &Application,
    request: &Request<'_>,
    asked: &Asked,
    trusted: &TrustedProxies,
) -> Result<Ask, Unasked> {
    let Request { head, peer, .. } = *request;
    let from = from(peer, head, trusted);
    let Ok(judged) = request.path() else {
        return Err(Unasked::Refused(Refused::Ambiguous("The path cannot be read")));
    };
    let rewritten = asked.destination.rewritten.as_deref();
    let Asked { destination, id } = asked;
    let asked = request::Request { head, judged: &judged, rewritten, from, id: *id };
    let key = key(&application.settings().group().key, head, from.client);
    let mut text = Vec::with_capacity(1024);
    match application.settings() {
        settings::Application::Proxy(settings) => {
            // where each is told its own name, it is put in when it is known who is asked
            let authority = application.authority(0);
            let written = request::write(&asked, authority, &settings.request, &mut text)
                .map_err(Unasked::Refused)?;
            let preface = settings.proxy_protocol.map(|way| preface(way, peer)).unwrap_or_default();
            Ok(Ask { method: head.method, key, preface, head: text, written, log: None })
        }
        settings::Application::FastCgi(settings) => {
            let Some(script) = &destination.script else { return Err(Unasked::NoScript) };
            let body_bytes = match head.framing {
                Framing::None => 0,
                Framing::Sized(length) => length,
                Framing::Chunked => return Err(Unasked::NoLength),
            };
            let params = Params {
                request: asked,
                script: fastcgi::Script {
                    name: &script.name,
                    path_info: &script.path_info,
                    file: script.file.as_deref(),
                },
                body_bytes,
                local: peer.local,
                remote_port: peer.address().port(),
                user: None,
            };
            fastcgi::write(&params, &settings.request, &mut text).map_err(Unasked::Refused)?;
            let written = Written {
                framing: head.framing,
                expects_continue: head.expects_continue && body_bytes > 0,
                asked: response::Asked { is_head: head.method == Method::Head, upgrade: false },
                id: 0..0,
            };
            let log = log_of(&script.name, *id);
            let preface = Vec::new();
            Ok(Ask { method: head.method, key, preface, head: text, written, log: Some(log) })
        }
    }
}

/// What a script says goes to the log, with its request.
fn log_of(script: &[u8], request: u128) -> Log {
    let script: Box<[u8]> = script.into();
    Box::new(move |said| log::scripts::log(&script, request, said))
}

/// Who asks, and how the request came here.
fn from(peer: &Peer, head: &Head<'_>, trusted: &TrustedProxies) -> From {
    let nearest = peer.address().ip().to_canonical();
    From {
        nearest,
        client: client_of(peer, head, trusted),
        // a proxy that has stated no client passes bytes on: what they say is the client's own
        is_trusted: peer.stated != Some(peer.remote) && trusted.contain(nearest),
        is_secure: peer.secured.is_some(),
        port: peer.local.port(),
    }
}

/// What a request is balanced by.
fn key(key: &Key, head: &Head<'_>, client: IpAddr) -> u64 {
    let of_client = || match client {
        IpAddr::V4(ip) => hash(&ip.octets()),
        IpAddr::V6(ip) => hash(&ip.octets()),
    };
    match key {
        Key::Client => of_client(),
        Key::Url => hash(head.target),
        Key::Cookie(name) => {
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

/// The PROXY header that a connection for this client begins with.
fn preface(way: ProxyProtocol, peer: &Peer) -> Vec<u8> {
    const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
    let (from, to) = (peer.address(), peer.local);
    let (source, target) = (from.ip().to_canonical(), to.ip().to_canonical());
    let addresses = match (source, target) {
        _ if source.is_unspecified() => None,
        (IpAddr::V4(source), IpAddr::V4(target)) => {
            Some(("TCP4", 0x11, [source.octets(), target.octets()].concat()))
        }
        (source, target) => {
            let six = |ip: IpAddr| match ip {
                IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                IpAddr::V6(ip) => ip,
            };
            Some(("TCP6", 0x21, [six(source).octets(), six(target).octets()].concat()))
        }
    };
    match (way, addresses) {
        (ProxyProtocol::V1, None) => b"PROXY UNKNOWN\r\n".to_vec(),
        (ProxyProtocol::V1, Some((family, _, octets))) => {
            let text = |octets: &[u8]| match <[u8; 4]>::try_from(octets) {
                Ok(four) => IpAddr::from(four).to_string(),
                Err(_) => <[u8; 16]>::try_from(octets)
                    .map_or_else(|_| String::new(), |six| IpAddr::from(six).to_string()),
            };
            let (source, target) = octets.split_at(octets.len() / 2);
            let (source, target) = (text(source), text(target));
            format!("PROXY {family} {source} {target} {} {}\r\n", from.port(), to.port()).into()
        }
        (ProxyProtocol::V2, None) => [SIGNATURE, b"\x20\0\0\0"].concat(),
        (ProxyProtocol::V2, Some((_, family, octets))) => {
            let len = (octets.len() as u16 + 4).to_be_bytes();
            let ports = [from.port().to_be_bytes(), to.port().to_be_bytes()].concat();
            [SIGNATURE, &[0x21, family], &len, &octets, &ports].concat()
        }
    }
}

/// What a client is told of an application that has not answered, and under which status.
pub fn failed(failure: Failure, is_late: bool) -> (u16, &'static str) {
    match (failure, is_late) {
        (Failure::Connect, true) => (504, "The application could not be reached in time"),
        (_, true) | (Failure::Silent, _) => (504, "The application did not answer in time"),
        (Failure::Connect, false) => (502, "The application cannot be reached"),
        (Failure::Unwritten | Failure::Closed, _) => {
            (502, "The application has closed the connection without an answer")
        }
        (Failure::Overloaded, _) => (503, "The application has no room for more requests"),
        (Failure::Malformed, _) => (502, "The answer of the application cannot be understood"),
    }
}

/// What a client is told of an application of which nothing can be asked.
pub fn full(unavailable: Unavailable) -> &'static str {
    match unavailable {
        Unavailable::Full => "The application has as much to do as it may",
        Unavailable::Down => "The application is out of service",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_conn::proxy::{Parsed, parse};

    #[test]
    fn connections_begin_with_whom_they_are_for() {
        let peer =
            |remote: &str, local: &str| Peer::new(remote.parse().unwrap(), local.parse().unwrap());
        let four = peer("192.0.2.7:4711", "10.0.0.1:80");
        let six = peer("[2001:db8::1]:4711", "[::1]:443");
        let v1 = |peer| String::from_utf8(preface(ProxyProtocol::V1, peer)).unwrap();
        assert_eq!(v1(&four), "PROXY TCP4 192.0.2.7 10.0.0.1 4711 80\r\n");
        assert_eq!(v1(&six), "PROXY TCP6 2001:db8::1 ::1 4711 443\r\n");
        let unix = Peer::new(Peer::UNIX, Peer::UNIX);
        assert_eq!(v1(&unix), "PROXY UNKNOWN\r\n");
        for (peer, stated) in [(&four, true), (&six, true), (&unix, false)] {
            let bytes = preface(ProxyProtocol::V2, peer);
            let client = stated.then_some(peer.remote);
            let len = bytes.len();
            assert_eq!(parse(&bytes), Ok(Parsed::Complete { client, len }));
        }
    }
}
