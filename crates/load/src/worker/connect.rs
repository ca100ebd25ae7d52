//! Connections of clients: how they begin, are established, fail and are closed.

use super::client::ClientPhase;
use super::group::LoopKind;
use super::http2::session::Http2Session;
use super::{LoadClient, LoadWorker};
use crate::failure::RequestFailure;
use crate::plan::StatedVersion;
use forebay_sys::client::{self, ConnectOptions};
use forebay_sys::epoll::ReadyDescriptor;
use forebay_sys::socket;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// The receive buffer of a client with a narrow link, in bytes: small, so that the server notices.
const NARROW_BUFFER_BYTES: usize = 16 * 1024;

/// A time that a handshake without loss never takes, in ns; a repeated SYN comes after a second
/// (RFC 6298).
const SUSPICIOUS_NS: u64 = 100_000_000;

/// The largest number of connections that a pool begins at once. Further arrivals wait for the
/// first free connection, new or old; otherwise a burst would fill the backlog with connections
/// that are not needed.
const MOST_CONNECTING: u32 = 64;

impl LoadWorker<'_> {
    /// Begins a connection for a client.
    pub(super) fn connect(&mut self, slot: usize) {
        let group = &mut self.groups[self.clients[slot].group];
        group.tally.counts.opened += 1;
        group.connecting += 1;
        let (left, version) = group.draw_connection();
        let deadline_ns = self.now_ns + group.connect_timeout_ns;
        let client = &mut self.clients[slot];
        (client.left, client.version) = (left, version);
        client.phase = ClientPhase::Connecting;
        client.opened_ns = Some(self.now_ns);
        client.deadline_ns = deadline_ns;
        match self.open_socket(slot) {
            Ok(socket) => self.clients[slot].socket = Some(socket),
            Err(error) => self.connect_failed(slot, failure_of(&error)),
        }
    }

    fn open_socket(&mut self, slot: usize) -> io::Result<OwnedFd> {
        let client = &self.clients[slot];
        let group = &mut self.groups[client.group];
        let narrow = group.plan.receive.map(|_| NARROW_BUFFER_BYTES);
        let receive_buffer_bytes = group.plan.receive_buffer_bytes.or(narrow);
        let mut tries = group.port_tries();
        let turn = group.turn(client.number);
        loop {
            let source = group.source(turn);
            let options = ConnectOptions { source, receive_buffer_bytes };
            match client::connect(group.plan.target.address, options) {
                Ok(socket) => {
                    let token = u64::from(client.generation) << 32 | slot as u64;
                    self.epoll.add_connection(&socket, token)?;
                    return Ok(socket);
                }
                Err(error) if tries > 1 && is_port_taken(&error) => tries -= 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Handles an event on a connection that is being established.
    pub(super) fn handshake(&mut self, slot: usize, event: ReadyDescriptor) {
        let client = &self.clients[slot];
        let Some(socket) = &client.socket else { return };
        if client.established_ns.is_some() {
            if event.writable && !client.unsent.is_empty() {
                self.flush(slot);
            }
            if event.readable || event.broken {
                self.receive(slot, event.ended || event.broken);
            }
            return;
        }
        if event.broken {
            let result = client::connect_result(socket.as_fd());
            let failure = result.err().map_or(RequestFailure::Reset, |error| failure_of(&error));
            return self.connect_failed(slot, failure);
        }
        if !event.writable {
            return;
        }
        let took_ns = self.now_ns - client.opened_ns.unwrap_or(self.now_ns);
        self.note_retries(slot, took_ns);
        let client = &mut self.clients[slot];
        let group = &mut self.groups[client.group];
        group.tally.counts.connected += 1;
        group.tally.connect.record(took_ns);
        let generation = client.generation;
        match client.tls.as_ref().map(forebay_tls::TlsClient::connect) {
            None => self.opened(slot),
            Some(Ok(session)) => {
                client.session = Some(Box::new(session));
                client.established_ns = Some(self.now_ns);
                self.send_rest(slot);
            }
            Some(Err(refusal)) => return self.handshake_failed(slot, &refusal.to_string()),
        }
        if event.readable && self.clients[slot].generation == generation {
            self.receive(slot, event.ended);
        }
    }

    /// Handles the end of the TLS handshake. Returns false when the connection is closed.
    pub(super) fn secured(&mut self, slot: usize) -> bool {
        let client = &mut self.clients[slot];
        let group = &mut self.groups[client.group];
        let agreed = client.session.as_ref().and_then(|session| session.agreed());
        let (Some(agreed), Some(since_ns)) = (agreed, client.established_ns.take()) else {
            return true;
        };
        if group.plan.version == StatedVersion::Http2 && agreed.alpn != Some("h2") {
            self.handshake_failed(slot, "the server does not speak HTTP/2");
            return false;
        }
        group.tally.shake(agreed, self.now_ns - since_ns);
        let generation = client.generation;
        self.opened(slot);
        self.clients[slot].generation == generation
    }

    /// Handles a connection that is ready for requests.
    fn opened(&mut self, slot: usize) {
        let client = &mut self.clients[slot];
        let group = &mut self.groups[client.group];
        group.connecting -= 1;
        client.deadline_ns = u64::MAX;
        client.phase = ClientPhase::Busy;
        if client.version == StatedVersion::Http2 {
            client.http2 = Some(Box::new(Http2Session::new(group.plan.streams)));
        }
        let generation = client.generation;
        self.go_on(slot);
        if self.clients[slot].generation == generation {
            self.send_rest(slot);
        }
    }

    /// Handles a TLS handshake that failed.
    pub(super) fn handshake_failed(&mut self, slot: usize, why: &str) {
        self.send_rest(slot);
        if self.clients[slot].phase != ClientPhase::Connecting {
            // the send found the connection broken, and the failure was recorded there
            return;
        }
        self.connect_failed_for(slot, RequestFailure::Handshake, Some(why));
    }

    /// Gets the number of repeated SYNs from the kernel, if the handshake took so long that there
    /// may be some.
    fn note_retries(&mut self, slot: usize, took_ns: u64) {
        if took_ns < SUSPICIOUS_NS {
            return;
        }
        let client = &self.clients[slot];
        let Some(socket) = &client.socket else { return };
        let retries = u64::from(client::retransmitted(socket.as_fd()));
        let counts = &mut self.groups[client.group].tally.counts;
        counts.syn_retries += retries;
        counts.syn_retried += u64::from(retries > 0);
    }

    /// Fails the request for which a connection could not be established.
    pub(super) fn connect_failed(&mut self, slot: usize, failure: RequestFailure) {
        let is_late = failure == RequestFailure::ConnectTimeout;
        let is_shaking = is_late && self.clients[slot].established_ns.is_some();
        self.connect_failed_for(slot, failure, is_shaking.then_some("within the handshake of TLS"));
    }

    fn connect_failed_for(&mut self, slot: usize, failure: RequestFailure, why: Option<&str>) {
        let opened_ns = self.clients[slot].opened_ns.unwrap_or(self.now_ns);
        self.note_retries(slot, self.now_ns - opened_ns);
        self.groups[self.clients[slot].group].connecting -= 1;
        self.lose_first(slot, failure, why);
    }

    /// Fails the first request of a connection on which the server allows no stream.
    pub(super) fn never_asked(&mut self, slot: usize) {
        self.lose_first(slot, RequestFailure::Timeout, Some("the server takes no stream"));
    }

    /// Fails the request for which a connection was made, before it was sent.
    fn lose_first(&mut self, slot: usize, failure: RequestFailure, why: Option<&str>) {
        let client = &mut self.clients[slot];
        let opened_ns = client.opened_ns.unwrap_or(self.now_ns);
        let group = &mut self.groups[client.group];
        let arrival = match group.kind {
            // other connections have made the requests that this one would have made
            LoopKind::Closed | LoopKind::Session if group.has_made_all() => None,
            LoopKind::Closed => {
                group.tally.counts.offered += 1;
                Some(opened_ns)
            }
            LoopKind::Session => client.arrival.take().map(|(at_ns, _)| at_ns),
            // there may be none left, if other connections have become free for all that waited
            LoopKind::Pool => group.waiting.pop_front().map(|arrival| arrival.at_ns),
        };
        if let Some(at_ns) = arrival {
            if group.kind != LoopKind::Pool {
                group.note_request(self.now_ns, self.now_ns);
            }
            group.tally.fail(failure);
            if let Some(why) = why {
                group.tally.explain(failure, why, 1);
            }
            client.totals.failures += 1;
            if matches!(
                failure,
                RequestFailure::ConnectTimeout
                    | RequestFailure::Timeout
                    | RequestFailure::Unfinished
            ) {
                // the request would have taken longer than this
                group.tally.actual.record(self.now_ns - opened_ns);
                if group.kind != LoopKind::Closed {
                    group.tally.intended.record(self.now_ns - at_ns);
                }
            }
        }
        self.end_connection(slot, true);
    }

    /// Closes a client's connection, with GOAWAY and close_notify if the protocols have them.
    pub(super) fn close(&mut self, slot: usize) {
        let client = &mut self.clients[slot];
        let has_words = client.session.is_some() || client.http2.is_some();
        if has_words && client.phase != ClientPhase::Connecting && client.unsent.is_empty() {
            self.say_goodbye(slot);
        }
        self.clients[slot].close();
    }

    /// Sends GOAWAY and close_notify. What the socket does not take at once is dropped.
    fn say_goodbye(&mut self, slot: usize) {
        let client = &mut self.clients[slot];
        let Some(socket) = &client.socket else { return };
        self.output.clear();
        if let Some(http2) = &mut client.http2 {
            http2.machine.drain_now();
            http2.machine.flush(&mut self.output);
        }
        if let Some(session) = &mut client.session {
            self.sealed.clear();
            session.write(&self.output, &mut self.sealed);
            session.end(&mut self.sealed);
            std::mem::swap(&mut self.output, &mut self.sealed);
        }
        let _ = socket::send(socket.as_fd(), &self.output, false);
    }

    /// Closes a client's connection and decides what the client does next.
    pub(super) fn end_connection(&mut self, slot: usize, failed: bool) {
        let think = match self.clients[slot] {
            LoadClient { phase: ClientPhase::Thinking, timer_ns, .. } => Some(timer_ns),
            _ => None,
        };
        let failed = failed || self.clients[slot].has_failed;
        self.close(slot);
        let client = &self.clients[slot];
        let group = &mut self.groups[client.group];
        if group.spreads() {
            return group.idle.push_back((slot as u32, client.generation));
        }
        if group.kind != LoopKind::Closed {
            return group.free.push(slot as u32);
        }
        if self.now_ns >= group.until_ns {
            return;
        }
        match think {
            // the timer is still in the heap; it will find a client without a connection
            Some(at_ns) => {
                self.clients[slot].phase = ClientPhase::Thinking;
                self.clients[slot].timer_ns = at_ns;
            }
            None if failed => {
                let pause_ns = group.draw_ns(&group.plan.pause);
                self.wake_at(slot, ClientPhase::Waiting, self.now_ns + pause_ns);
            }
            // a connection that fails at once comes back here as failed, so this cannot recur
            None => self.connect(slot),
        }
    }

    /// Gives waiting arrivals to idle connections, and opens new ones for the others.
    pub(super) fn serve_waiting(&mut self, place: usize) {
        let mut passed = 0;
        loop {
            let group = &mut self.groups[place];
            if group.waiting.is_empty() {
                return;
            }
            let wanted = group.waiting.len().div_ceil(group.plan.at_once());
            let enough = (MOST_CONNECTING as usize).min(wanted);
            let connects = group.kind != LoopKind::Pool || (group.connecting as usize) < enough;
            let wants_new = connects && group.lacks_sources(self.shared.plan.threads);
            let idle = if wants_new { None } else { group.pop_idle() };
            let slot = match idle {
                Some((slot, generation)) => {
                    let at_once = group.plan.at_once();
                    let client = &mut self.clients[slot as usize];
                    if client.generation != generation {
                        continue;
                    }
                    client.is_listed = false;
                    match client.phase {
                        ClientPhase::Idle | ClientPhase::Busy if client.has_room(at_once) => {
                            self.send_requests(slot as usize);
                            continue;
                        }
                        ClientPhase::Free if connects => slot as usize,
                        // later idle entries may still have a connection
                        ClientPhase::Free if passed < group.idle.len() => {
                            passed += 1;
                            group.idle.push_back((slot, generation));
                            continue;
                        }
                        ClientPhase::Free => return group.idle.push_back((slot, generation)),
                        _ => continue,
                    }
                }
                None if !connects => return,
                None => match group.free.pop() {
                    Some(slot) => slot as usize,
                    None if group.clients < group.clients_limit => self.new_client(place),
                    None => return,
                },
            };
            if self.groups[place].kind == LoopKind::Session {
                let arrival = self.groups[place].waiting.pop_front();
                self.clients[slot].arrival = arrival.map(|arrival| (arrival.at_ns, arrival.line));
            }
            self.connect(slot);
        }
    }
}

fn is_port_taken(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::AddrInUse | io::ErrorKind::AddrNotAvailable)
}

fn failure_of(error: &io::Error) -> RequestFailure {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => RequestFailure::Refused,
        io::ErrorKind::ConnectionReset => RequestFailure::Reset,
        io::ErrorKind::TimedOut => RequestFailure::ConnectTimeout,
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
            RequestFailure::Unreachable
        }
        // the other errors come from this machine: no port, no descriptor, no memory, no permission
        _ => RequestFailure::Exhausted,
    }
}
