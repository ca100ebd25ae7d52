//! The upkeep of applications beside requests: upstreams are checked, and names are looked up again.
//! Both wait for others, so each has a thread of its own.

use crate::application::Application;
use crate::group::MemberIndex;
use crate::settings::{HealthCheckSettings, ProxyProtocol};
use crate::upstreams::connection::UpstreamConnection;
use crate::upstreams::stream::ConnectError;
use forebay_sys::client;
use forebay_sys::poll::{self, PollInterest};
use forebay_sys::socket::{Received, Sent};
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// How often names are looked up again.
const LOOK_UP_EVERY: Duration = Duration::from_secs(10);
/// How often pools are asked how many workers they have.
const ASK_POOLS_EVERY: Duration = Duration::from_secs(2);
/// How much of the answer to a check is read: up to its status.
const STATUS_BYTES: usize = 12;
/// The largest number of upstreams that are checked at a time.
const MOST_AT_A_TIME: usize = 64;

/// The upkeep of names.
#[derive(Debug, Default)]
pub struct NameUpkeep {
    looked_up: Option<Instant>,
}

impl NameUpkeep {
    /// Looks up the names of these applications that are due. Waits for the name service.
    pub fn run(&mut self, applications: &[Arc<Application>]) {
        applications.iter().for_each(|one| one.upstreams().look_up_services());
        let is_due = |last: Instant| last.elapsed() >= LOOK_UP_EVERY;
        if self.looked_up.is_none_or(is_due) {
            // at the first call, names were just looked up when the upstreams were made
            if self.looked_up.is_some() {
                applications.iter().for_each(|one| one.upstreams().look_up());
            }
            self.looked_up = Some(Instant::now());
        }
    }
}

/// The upkeep of upstreams: health checks and worker counts.
#[derive(Debug, Default)]
pub struct Upkeep {
    /// When pools were last asked for their workers.
    asked_pools: Option<Instant>,
}

impl Upkeep {
    /// Checks the upstreams of these applications that are due, and asks pools how many workers they
    /// have. `now_ms` is the time on the clock of requests. Waits at most for the slowest of them.
    pub fn run(&mut self, applications: &[Arc<Application>], now_ms: u64) {
        let due: Vec<(&Application, MemberIndex)> =
            applications.iter().flat_map(|one| one.due(now_ms)).take(MOST_AT_A_TIME).collect();
        let begun = Instant::now();
        let are_pools_due = self.asked_pools.is_none_or(|last| last.elapsed() >= ASK_POOLS_EVERY);
        if are_pools_due {
            self.asked_pools = Some(begun);
        }
        let with_status = applications.iter().filter(|_| are_pools_due);
        let pools = with_status.filter_map(|one| Some((one, one.status_path()?)));
        let pools: Vec<_> = pools
            .flat_map(|(one, path)| {
                one.upstreams().seen().into_iter().map(move |seen| (one, path, seen))
            })
            .take(MOST_AT_A_TIME)
            .collect();
        thread::scope(|scope| {
            for (application, path, seen) in pools {
                let ask = move || application.ask_workers(seen.member, path, now_ms);
                // without a thread the last known number stays
                _ = thread::Builder::new().name("status".to_owned()).spawn_scoped(scope, ask);
            }
            for (application, member) in due {
                let ask = move || {
                    let is_good = application.is_well(member, now_ms);
                    let took_ms = begun.elapsed().as_millis() as u64;
                    application.upstreams().checked(member, is_good, now_ms + took_ms);
                };
                if thread::Builder::new().name("check".to_owned()).spawn_scoped(scope, ask).is_err()
                {
                    // without threads, an upstream must not be taken for failed
                    application.upstreams().checked(member, true, now_ms);
                }
            }
        });
    }
}

impl Application {
    /// The upstreams whose check is due now.
    fn due(&self, now_ms: u64) -> impl Iterator<Item = (&Application, MemberIndex)> {
        std::iter::from_fn(move || Some((self, self.upstreams().begin_check(now_ms)?)))
    }

    /// The host of a check: the name that requests have, or the upstream's address.
    fn checked_host(&self, member: MemberIndex) -> &str {
        let named = self.settings().proxy().and_then(|proxy| proxy.request.host.named());
        named.unwrap_or_else(|| self.authority(member))
    }

    /// Whether an upstream answers as it should, in time.
    fn is_well(&self, member: MemberIndex, now_ms: u64) -> bool {
        let group = self.settings().group();
        let Some(check) = &group.check else { return true };
        let proxy = self.settings().proxy();
        let preface = self.settings().proxy_protocol().map_or(&b""[..], preface);
        let mut refused = Vec::new();
        let (connection, told) = loop {
            let end = Instant::now() + group.timeouts.connect;
            let mut connection = match self.connect(member, &refused, self.is_http2(), now_ms) {
                Ok(connection) => connection,
                // without descriptors, an upstream must not be taken for failed
                Err(error) => return client::is_lack(&error),
            };
            // if the protocol is not HTTP, an upstream is well if it accepts connections
            let asks = proxy.map(|_| told(check, self.checked_host(member)));
            let told = match connection.begin_in_clear(preface) {
                true => asks.unwrap_or_default(),
                false => [preface, &asks.unwrap_or_default()].concat(),
            };
            match begin(&mut connection, &told, end) {
                Ok(sent) => break (connection, told[sent..].to_vec()),
                Err(_) if self.upstreams().refused(member, &connection, &mut refused, now_ms) => {}
                Err(ConnectError::Tls(fault)) => {
                    self.upstreams().check_failed(member, fault.words());
                    return false;
                }
                Err(ConnectError::Socket(_)) => return false,
            }
        };
        if proxy.is_none() {
            return true;
        }
        let end = Instant::now() + check.interval.min(group.timeouts.head);
        let status = answer(connection, &told, end);
        status.is_ok_and(|status| {
            check.statuses.iter().any(|(least, most)| (*least..=*most).contains(&status))
        })
    }
}

/// The PROXY header of a connection without a client behind it.
fn preface(way: ProxyProtocol) -> &'static [u8] {
    match way {
        ProxyProtocol::V1 => b"PROXY UNKNOWN\r\n",
        // LOCAL
        ProxyProtocol::V2 => b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0",
    }
}

/// The request of a check.
fn told(check: &HealthCheckSettings, host: &str) -> Vec<u8> {
    let path = &check.path;
    let head = format!(
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: forebay (check)\r\nConnection: close\r\n\r\n"
    );
    head.into_bytes()
}

/// Waits for the connection, and sends the first bytes. Returns how many were sent.
fn begin(
    connection: &mut UpstreamConnection,
    told: &[u8],
    end: Instant,
) -> Result<usize, ConnectError> {
    // the kernel reports a failed connection only after that
    wait(connection, PollInterest::Write, end)?;
    client::connect_result(connection.as_fd())?;
    loop {
        match connection.begin(told, true)? {
            Sent::Bytes(count) => return Ok(count),
            Sent::Blocked => {}
            Sent::Broken => return Err(io::Error::from(io::ErrorKind::BrokenPipe).into()),
        }
        let interest = match connection.wants_to_connect().read {
            true => PollInterest::Read,
            false => PollInterest::Write,
        };
        wait(connection, interest, end)?;
    }
}

/// Reads the status of the answer.
fn answer(mut connection: UpstreamConnection, told: &[u8], end: Instant) -> io::Result<u16> {
    let mut rest = told;
    while !rest.is_empty() || connection.has_unsent() {
        match connection.send(rest, true) {
            Sent::Bytes(count) => rest = &rest[count..],
            Sent::Blocked => wait(&connection, PollInterest::Write, end)?,
            Sent::Broken => return Err(io::ErrorKind::BrokenPipe.into()),
        }
    }
    let mut head = Vec::with_capacity(STATUS_BYTES);
    while head.len() < STATUS_BYTES {
        let lacks = STATUS_BYTES - head.len();
        match connection.receive_more(&mut head, lacks, 0) {
            Received::Bytes(_) => {}
            Received::Blocked => wait(&connection, PollInterest::Read, end)?,
            Received::Ended | Received::Broken => {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
    let status =
        head.strip_prefix(b"HTTP/1.").and_then(|rest| std::str::from_utf8(rest.get(2..)?).ok());
    status.and_then(|digits| digits.parse().ok()).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Waits until the socket is ready.
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
            let asked = told(&check, application(host).checked_host(0));
            let start = format!("GET /up HTTP/1.1\r\nHost: {expected}\r\n");
            assert!(asked.starts_with(start.as_bytes()), "{expected}");
        }
    }
}
