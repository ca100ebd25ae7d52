//! What is done for an application beside requests: upstreams are asked whether they are well, and names
//! are looked up again. It waits for others, so a thread of its own does it.

use crate::application::Application;
use crate::group::MemberIndex;
use crate::settings::{self, HealthCheckSettings, ProxyProtocol};
use forebay_sys::client;
use forebay_sys::poll::{self, PollInterest};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// How often names are looked up again.
const LOOK_UP_EVERY: Duration = Duration::from_secs(10);
/// An answer to a check is read as far as its status.
const STATUS_BYTES: usize = 12;
/// So many upstreams are asked at a time.
const MOST_AT_A_TIME: usize = 64;

/// When what was done last.
#[derive(Debug, Default)]
pub struct Upkeep {
    looked_up: Option<Instant>,
}

impl Upkeep {
    /// Does for these applications what is due. It is `now_ms` on the clock of requests. Waits at most for
    /// the slowest of the upstreams that are asked, and for the name service.
    pub fn run(&mut self, applications: &[Arc<Application>], now_ms: u64) {
        let is_due = |last: Instant| last.elapsed() >= LOOK_UP_EVERY;
        if self.looked_up.is_none_or(is_due) {
            // they were looked up when they were made
            if self.looked_up.is_some() {
                applications.iter().for_each(|one| one.upstreams().look_up());
            }
            self.looked_up = Some(Instant::now());
        }
        let due: Vec<(&Application, MemberIndex)> =
            applications.iter().flat_map(|one| one.due(now_ms)).take(MOST_AT_A_TIME).collect();
        let begun = Instant::now();
        thread::scope(|scope| {
            for (application, member) in due {
                let ask = move || {
                    let is_good = application.is_well(member, now_ms);
                    let took_ms = begun.elapsed().as_millis() as u64;
                    application.upstreams().checked(member, is_good, now_ms + took_ms);
                };
                if thread::Builder::new().name("check".to_owned()).spawn_scoped(scope, ask).is_err()
                {
                    // without threads nothing can be told of any upstream
                    application.upstreams().checked(member, true, now_ms);
                }
            }
        });
    }
}

impl Application {
    /// Those that are to be asked now.
    fn due(&self, now_ms: u64) -> impl Iterator<Item = (&Application, MemberIndex)> {
        std::iter::from_fn(move || Some((self, self.upstreams().begin_check(now_ms)?)))
    }

    /// The host that a check of an upstream asks for: the name that requests tell it, or its address.
    fn checked_host(&self, member: MemberIndex) -> &str {
        let named = self.settings().proxy().and_then(|proxy| proxy.request.host.named());
        named.unwrap_or_else(|| self.authority(member))
    }

    /// Whether an upstream answers as it should, in time.
    fn is_well(&self, member: MemberIndex, now_ms: u64) -> bool {
        let group = self.settings().group();
        let Some(check) = &group.check else { return true };
        let mut refused = Vec::new();
        let socket = loop {
            let end = Instant::now() + group.timeouts.connect;
            let socket = match self.upstreams().connect(member, &refused, now_ms) {
                Ok(socket) => socket,
                // without descriptors nothing can be told of any upstream
                Err(error) => return client::is_lack(&error),
            };
            let connected = wait(&socket, PollInterest::Write, end)
                .and_then(|()| client::connect_result(socket.as_fd()));
            match connected {
                Ok(()) => break socket,
                Err(_) if self.upstreams().refused(member, &socket, &mut refused, now_ms) => {}
                Err(_) => return false,
            }
        };
        let settings::ApplicationSettings::Proxy(proxy) = self.settings() else {
            // one that takes connections runs
            return true;
        };
        let end = Instant::now() + check.interval.min(group.timeouts.head);
        let told = told(proxy.proxy_protocol, check, self.checked_host(member));
        let status = answer(OwnedFd::from(socket), &told, end);
        status.is_ok_and(|status| {
            check.statuses.iter().any(|(least, most)| (*least..=*most).contains(&status))
        })
    }
}

/// What an upstream is asked.
fn told(way: Option<ProxyProtocol>, check: &HealthCheckSettings, host: &str) -> Vec<u8> {
    let mut told = Vec::new();
    match way {
        None => {}
        Some(ProxyProtocol::V1) => told.extend_from_slice(b"PROXY UNKNOWN\r\n"),
        // LOCAL: of a connection without a client behind it
        Some(ProxyProtocol::V2) => {
            told.extend_from_slice(b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0");
        }
    }
    let path = &check.path;
    let head = format!(
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: forebay (check)\r\nConnection: close\r\n\r\n"
    );
    told.extend_from_slice(head.as_bytes());
    told
}

/// The status of the answer.
fn answer(socket: OwnedFd, told: &[u8], end: Instant) -> io::Result<u16> {
    let mut socket = TcpStream::from(socket);
    let mut rest = told;
    while !rest.is_empty() {
        match socket.write(rest) {
            Ok(count) => rest = &rest[count..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                wait(&socket, PollInterest::Write, end)?;
            }
            Err(error) => return Err(error),
        }
    }
    let (mut head, mut filled) = ([0; STATUS_BYTES], 0);
    while filled < head.len() {
        match socket.read(&mut head[filled..]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                wait(&socket, PollInterest::Read, end)?;
            }
            Err(error) => return Err(error),
        }
    }
    let status =
        head.strip_prefix(b"HTTP/1.").and_then(|rest| std::str::from_utf8(&rest[2..]).ok());
    status.and_then(|digits| digits.parse().ok()).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Waits until something can be done with a socket.
fn wait(socket: &impl AsFd, interest: PollInterest, end: Instant) -> io::Result<()> {
    let left = end.saturating_duration_since(Instant::now());
    let [readiness] =
        poll::wait([(socket.as_fd(), interest)], left.as_millis().try_into().unwrap_or(u64::MAX))?;
    let is_over = Instant::now() >= end && readiness == poll::Readiness::default();
    if is_over { Err(io::ErrorKind::TimedOut.into()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::tests::settings as group_of;
    use crate::messages::request::{HostSent, RequestSettings};
    use crate::settings::{ApplicationSettings, Balance, BodySettings, Errors, ProxySettings};
    use crate::upstreams::Upstreams;
    use forebay_http::response::ResponseHeadLimits;

    fn application(host: HostSent) -> Arc<Application> {
        let proxy = ProxySettings {
            group: group_of(1, Balance::Least, None),
            request: RequestSettings { host, ..RequestSettings::default() },
            bodies: BodySettings { most_bytes: 0, spool_bytes: 0 },
            rewrites: true,
            limits: ResponseHeadLimits::default(),
            errors: Errors::Theirs,
            connection_auth: Default::default(),
            proxy_protocol: None,
            buffer_bytes: 0,
            authority: None,
        };
        let upstreams = Upstreams::new(&proxy.group, false, 0);
        Application::new(ApplicationSettings::Proxy(proxy), upstreams)
    }

    #[test]
    fn checks_ask_for_the_host_that_requests_name() {
        let check = HealthCheckSettings {
            path: "/up".into(),
            interval: Duration::from_secs(5),
            statuses: Vec::new(),
        };
        for (host, expected) in [
            (HostSent::Client, "10.0.0.1:80"),
            (HostSent::Upstream, "10.0.0.1:80"),
            (HostSent::Named("app.internal".into()), "app.internal"),
        ] {
            let asked = told(None, &check, application(host).checked_host(0));
            let start = format!("GET /up HTTP/1.1\r\nHost: {expected}\r\n");
            assert!(asked.starts_with(start.as_bytes()), "{expected}");
        }
    }
}
