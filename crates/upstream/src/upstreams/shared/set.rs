//! The connections to one upstream, and the requests that share them: which request has which
//! connection, which requests wait for a stream, and what becomes of them when a connection ends.
//! There are sockets here, but no lock, thread or clock.

use super::SharedConnectionCounts;
use super::connection::{Requests, SharedConnection};
use super::request::{RequestPlace, SharedRequest};
use crate::upstreams::http2::AnswerEnd;
use crate::upstreams::stream::{ConnectError, UpstreamStream};
use forebay_sys::epoll::Bell;
use forebay_sys::socket::{Received, Sent};
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

/// How many connections a request tries, one after the other, that take no requests.
const MOST_SEATS: u32 = 8;

/// The limits of shared connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SharedConnectionLimits {
    /// The largest number of connections to an upstream.
    pub(crate) connections: usize,
    /// How long a connection without requests is kept.
    pub(crate) idle_ms: u64,
    /// How long it may take to establish a connection.
    pub(crate) connect_ms: u64,
}

/// How a new connection for a request is made.
pub(super) trait Connects {
    /// Begins a connection with this number.
    ///
    /// # Errors
    /// No connection can be begun.
    fn connect(&mut self, number: u64) -> io::Result<(UpstreamStream, Option<SocketAddr>)>;

    /// Whether a connection leads to an address that the upstream has now, with the TLS files of now.
    fn is_current(&self, address: Option<SocketAddr>, clients: Option<u64>) -> bool;
}

/// Connections to one upstream, and their requests.
#[derive(Debug)]
pub(super) struct SharedSet {
    limits: SharedConnectionLimits,
    connections: Vec<SharedConnection>,
    pub(super) requests: Requests,
    /// The requests that wait for a stream, in the order in which they came.
    line: VecDeque<u64>,
    /// The number of requests for which a stream is kept free.
    called: usize,
    last_request: u64,
    /// The number of GOAWAYs on connections that are closed.
    goaways: u64,
    /// The connections that were closed since the last look.
    pub(super) closed: Vec<u64>,
}

impl SharedSet {
    pub(super) fn new() -> SharedSet {
        let limits = SharedConnectionLimits { connections: 1, idle_ms: 0, connect_ms: u64::MAX };
        SharedSet {
            limits,
            connections: Vec::new(),
            requests: Requests::new(),
            line: VecDeque::new(),
            called: 0,
            last_request: 0,
            goaways: 0,
            closed: Vec::new(),
        }
    }

    /// The counts for metrics.
    pub(super) fn counts(&self) -> SharedConnectionCounts {
        let open = self.connections.iter().filter(|one| one.is_open());
        let of_open = self.connections.iter().map(|one| u64::from(one.goaways)).sum::<u64>();
        SharedConnectionCounts {
            connections: open.count() as u64,
            streams: self.requests.len() as u64,
            goaways: self.goaways + of_open,
        }
    }

    /// Adds a request. Its bell is rung when there is news for it.
    pub(super) fn enter(&mut self, bell: Arc<Bell>, limits: SharedConnectionLimits) -> u64 {
        self.limits = limits;
        self.last_request += 1;
        self.requests.insert(self.last_request, SharedRequest::new(bell));
        self.last_request
    }

    fn index(&self, connection: u64) -> Option<usize> {
        self.connections.iter().position(|one| one.number == connection)
    }

    fn connection(&mut self, number: u64) -> Option<&mut SharedConnection> {
        self.connections.iter_mut().find(|one| one.number == number)
    }

    /// The request and its connection, if the request has a stream there.
    pub(super) fn open(
        &mut self,
        id: u64,
    ) -> Option<(&mut SharedRequest, &mut SharedConnection, u32)> {
        let request = self.requests.get_mut(&id)?;
        let RequestPlace::On { connection, stream } = request.place else { return None };
        let connection = self.connections.iter_mut().find(|one| one.number == connection)?;
        Some((request, connection, stream))
    }

    /// Gives a request without a connection one. A new connection is begun if there are fewer than
    /// allowed and none is idle. Returns the address of the connection.
    ///
    /// # Errors
    /// There is no connection and none can be begun; or the application takes no requests on any.
    pub(super) fn seat(
        &mut self,
        id: u64,
        connects: &mut impl Connects,
        now_ms: u64,
    ) -> io::Result<Option<SocketAddr>> {
        let seats = self.requests.get_mut(&id).map_or(0, |request| {
            request.seats += 1;
            request.seats
        });
        if seats > MOST_SEATS {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        self.retire(connects);
        let open = || self.connections.iter().filter(|one| one.is_open());
        let most = self.limits.connections.max(1);
        let best = open().min_by_key(|one| (one.is_doubted(), one.load)).map(|one| one.number);
        let rests = |one: &&SharedConnection| one.load == 0 && !one.is_doubted();
        let (count, one_rests) = (open().count(), open().any(|one| rests(&one)));
        let number = match best {
            Some(best) if one_rests || count >= most => best,
            _ => match self.begin_connection(connects, now_ms) {
                Ok(number) => number,
                // there are other connections: the new one was only an improvement
                Err(error) => best.ok_or(error)?,
            },
        };
        let waits = self.is_in_line(id);
        let Some(connection) = self.connection(number) else { return Ok(None) };
        let (address, is_up) = (connection.address, connection.is_up);
        // a request in line for a stream keeps its place, unless the connection is a new one that is
        // not established yet
        if !(waits && is_up) {
            self.leave_place(id, now_ms);
            self.place(id, RequestPlace::At(number));
            self.connection(number).into_iter().for_each(SharedConnection::enters);
        }
        Ok(address)
    }

    /// Retires connections that no longer lead to the right address: they take no further requests.
    fn retire(&mut self, connects: &impl Connects) {
        for one in &mut self.connections {
            one.is_leaving |= !connects.is_current(one.address, one.clients());
        }
    }

    fn begin_connection(&mut self, connects: &mut impl Connects, now_ms: u64) -> io::Result<u64> {
        let number = super::next_connection();
        let (stream, address) = connects.connect(number)?;
        self.connections.push(SharedConnection::new(number, stream, address, now_ms));
        Ok(number)
    }

    fn place(&mut self, id: u64, place: RequestPlace) {
        if let Some(request) = self.requests.get_mut(&id) {
            request.place = place;
        }
    }

    fn is_in_line(&self, id: u64) -> bool {
        self.requests.get(&id).is_some_and(|request| request.place == RequestPlace::InLine)
    }

    /// Whether a request must get a connection before it goes on.
    pub(super) fn needs_seat(&self, id: u64) -> bool {
        let Some(request) = self.requests.get(&id) else { return false };
        let open = self.connections.iter().filter(|one| one.is_open());
        match request.place {
            _ if request.failure.is_some() => false,
            RequestPlace::Nowhere => true,
            RequestPlace::At(number) => !open.clone().any(|one| one.number == number),
            RequestPlace::InLine => open.count() < self.limits.connections,
            RequestPlace::On { .. } => false,
        }
    }

    /// Sends the first bytes of a request, if its connection is established and has a stream for it.
    ///
    /// # Errors
    /// Why there is no connection, and will be none.
    pub(super) fn begin(
        &mut self,
        id: u64,
        bytes: &[u8],
        ends: bool,
        now_ms: u64,
    ) -> Result<Sent, ConnectError> {
        let Some(request) = self.requests.get_mut(&id) else { return Ok(Sent::Broken) };
        request.hush();
        if let Some(failure) = request.failure.take() {
            return Err(failure);
        }
        if let RequestPlace::At(number) = request.place
            && let Some(index) = self.index(number)
            && !self.comes_about(index, Some(id), now_ms)
        {
            let failure = self.requests.get_mut(&id).and_then(|request| request.failure.take());
            return failure.map_or(Ok(Sent::Blocked), Err);
        }
        let Some(index) = self.next_stream(id) else {
            self.line_up(id, now_ms);
            return Ok(Sent::Blocked);
        };
        self.leave_place(id, now_ms);
        let connection = &mut self.connections[index];
        connection.enters();
        let Some(request) = self.requests.get_mut(&id) else { return Ok(Sent::Broken) };
        let taken = connection.open(id, request, bytes, ends, now_ms);
        if taken.is_none() {
            connection.leaves(now_ms);
        }
        Ok(taken.map_or(Sent::Broken, Sent::Bytes))
    }

    /// Looks whether a connection is established, and notifies its requests, except the one that
    /// asks. If the connection has failed, its requests get the reason, and it is removed.
    fn comes_about(&mut self, index: usize, asks: Option<u64>, now_ms: u64) -> bool {
        let connection = &mut self.connections[index];
        if connection.is_up {
            return true;
        }
        let number = connection.number;
        match connection.come_about() {
            Ok(false) => false,
            Ok(true) => {
                for (id, request) in &mut self.requests {
                    if request.place == RequestPlace::At(number) && Some(*id) != asks {
                        request.ring();
                    }
                }
                true
            }
            Err(failure) => {
                self.remove(index, Some(&failure), now_ms);
                false
            }
        }
    }

    /// The connection on which a request may open a stream now: the one with the fewest requests.
    fn next_stream(&self, id: u64) -> Option<usize> {
        let is_called = self.requests.get(&id).is_some_and(|request| request.is_called);
        let free: usize = self.connections.iter().map(SharedConnection::free_streams).sum();
        // requests that came before go first
        let is_free = is_called || (self.line.is_empty() && free > self.called);
        let with_some = self.connections.iter().enumerate();
        let with_some = with_some.filter(|(_, one)| is_free && one.free_streams() > 0);
        with_some.min_by_key(|(_, one)| (one.is_doubted(), one.load)).map(|(index, _)| index)
    }

    /// Puts a request in line for a stream: at the end, or at the front if it was its turn.
    fn line_up(&mut self, id: u64, now_ms: u64) {
        let was_called = self.requests.get(&id).is_some_and(|request| request.is_called);
        if self.is_in_line(id) && !was_called {
            return;
        }
        self.leave_place(id, now_ms);
        match was_called {
            true => self.line.push_front(id),
            false => self.line.push_back(id),
        }
        self.place(id, RequestPlace::InLine);
    }

    fn leave_line(&mut self, id: u64) {
        if let Some(request) = self.requests.get_mut(&id)
            && std::mem::take(&mut request.is_called)
        {
            self.called = self.called.saturating_sub(1);
        } else if self.is_in_line(id) {
            self.line.retain(|waits| *waits != id);
        }
    }

    /// Takes a request off its place and its stream.
    fn leave_place(&mut self, id: u64, now_ms: u64) {
        self.leave_line(id);
        let Some(request) = self.requests.get_mut(&id) else { return };
        let place = std::mem::replace(&mut request.place, RequestPlace::Nowhere);
        if let RequestPlace::At(number) = place
            && let Some(connection) = self.connection(number)
        {
            connection.leaves(now_ms);
        }
    }

    /// Whether a request waits for a stream.
    pub(super) fn waits_for_stream(&self, id: u64) -> bool {
        self.is_in_line(id)
    }

    /// Calls the first requests in line, as many as there are free streams.
    fn call(&mut self) {
        if self.line.is_empty() {
            return;
        }
        let free: usize = self.connections.iter().map(SharedConnection::free_streams).sum();
        while self.called < free
            && let Some(id) = self.line.pop_front()
        {
            let Some(request) = self.requests.get_mut(&id) else { continue };
            request.is_called = true;
            request.ring();
            self.called += 1;
        }
    }

    /// Appends at most `most` bytes of an answer.
    pub(super) fn receive(&mut self, id: u64, into: &mut Vec<u8>, most: usize) -> Received {
        let Some(request) = self.requests.get_mut(&id) else { return Received::Broken };
        request.hush();
        if request.has_more() {
            let taken = request.take(into, most);
            if let Some((_, connection, stream)) = self.open(id)
                && taken.body > 0
            {
                connection.consumed(stream, taken.body);
            }
            return Received::Bytes(taken.all);
        }
        match request.end {
            Some(AnswerEnd::Whole) => Received::Ended,
            Some(AnswerEnd::Refused | AnswerEnd::Broken) => Received::Broken,
            None => Received::Blocked,
        }
    }

    /// Ends a request. `is_done` says that its exchange has all it wants.
    pub(super) fn leave(&mut self, id: u64, is_done: bool, now_ms: u64) {
        if let Some((request, connection, stream)) = self.open(id) {
            let is_done = is_done && request.has_ended && !request.has_more();
            let opened_ms = request.opened_ms;
            connection.give_up(stream, is_done, opened_ms, now_ms);
        } else {
            self.leave_place(id, now_ms);
        }
        self.requests.remove(&id);
        self.close_done(now_ms);
        self.call();
    }

    /// Goes on with a connection that is ready, or has failed. Returns whether it has more to do at
    /// once.
    pub(super) fn turn(&mut self, number: u64, now_ms: u64) -> bool {
        let Some(index) = self.index(number) else { return false };
        if !self.connections[index].is_up && !self.comes_about(index, None, now_ms) {
            return false;
        }
        let connection = &mut self.connections[index];
        let was_open = connection.is_open();
        let more = match connection.turn(&mut self.requests, now_ms) {
            Ok(more) => more,
            Err(fault) => {
                let number = connection.number;
                for request in self.requests.values_mut() {
                    if matches!(request.place, RequestPlace::On { connection, .. } if connection == number)
                    {
                        request.fault = fault;
                    }
                }
                self.remove(index, None, now_ms);
                false
            }
        };
        if was_open && self.connection(number).is_none_or(|one| !one.is_open()) {
            self.unseat(number, now_ms);
        }
        self.close_done(now_ms);
        self.call();
        more
    }

    /// Takes requests off a connection that takes no more: those that wait for it, and those in line,
    /// look for another.
    fn unseat(&mut self, number: u64, now_ms: u64) {
        let place = RequestPlace::At(number);
        let its = self.requests.iter().filter(|(_, request)| request.place == place);
        for id in its.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.leave_place(id, now_ms);
        }
        let waits = |request: &&mut SharedRequest| {
            matches!(request.place, RequestPlace::Nowhere | RequestPlace::InLine)
        };
        self.requests.values_mut().filter(waits).for_each(SharedRequest::ring);
    }

    /// Removes a connection. Incomplete answers are broken off; requests that wait for the connection
    /// get this failure.
    fn remove(&mut self, index: usize, failure: Option<&ConnectError>, now_ms: u64) {
        let gone = self.connections.swap_remove(index);
        self.closed.push(gone.number);
        self.goaways += u64::from(gone.goaways);
        let reset = ConnectError::Socket(io::ErrorKind::ConnectionReset.into());
        for request in self.requests.values_mut() {
            match request.place {
                RequestPlace::On { connection, .. } if connection == gone.number => {
                    request.ends(AnswerEnd::Broken);
                }
                RequestPlace::At(number) if number == gone.number => {
                    request.fails(failure.unwrap_or(&reset));
                }
                _ => {}
            }
        }
        self.unseat(gone.number, now_ms);
    }

    /// Closes connections that have nothing more to do.
    fn close_done(&mut self, now_ms: u64) {
        let SharedConnectionLimits { connections: most, idle_ms, .. } = self.limits;
        let open = self.connections.iter().filter(|one| one.is_open()).count();
        let mut spare = open.saturating_sub(most);
        let (closed, goaways) = (&mut self.closed, &mut self.goaways);
        self.connections.retain_mut(|one| {
            let idle_ms = if spare > 0 { 0 } else { idle_ms };
            let is_done = one.is_done(idle_ms, now_ms);
            if is_done {
                spare = spare.saturating_sub(usize::from(one.is_open()));
                one.close();
                closed.push(one.number);
                *goaways += u64::from(one.goaways);
            }
            !is_done
        });
    }

    /// Handles deadlines.
    pub(super) fn look(&mut self, now_ms: u64) {
        let connect_ms = self.limits.connect_ms;
        let mut index = 0;
        while index < self.connections.len() {
            let one = &mut self.connections[index];
            if !one.is_late(connect_ms, now_ms) {
                index += 1;
                continue;
            }
            let late = ConnectError::Socket(io::ErrorKind::TimedOut.into());
            self.remove(index, Some(&late), now_ms);
        }
        self.close_done(now_ms);
        self.call();
    }
}

#[cfg(test)]
#[path = "set_tests.rs"]
mod tests;
