//! Accepting: which connections are let in, and what happens when none can be. The same for every engine.

use crate::connection::served::Served;
use crate::connection::worker::Worker;
use crate::room::admission::{ConnectionAdmission, ConnectionPlace, Full};
use crate::watch::TurnStopwatch;
use forebay_conn::{Closing, Handler, Listening, Peer, Protocol, Rank, Verdict};
use forebay_metrics::{Activity, Counter, Stopwatch};
use forebay_sys::socket::{self, Accepted};
use forebay_sys::{poll, process};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

/// The connections that are accepted in a row before the open ones have their turn.
pub const BATCH: usize = 64;
/// The largest number of batches that are accepted from a listener when a drain begins; its queue
/// is shorter.
pub const DRAIN_BATCHES: usize = 128;
/// The slow readers that are cut at a time for want of descriptors, as several clients are waiting
/// then.
const CUT_BATCH: usize = 8;
/// The time for which a listener rests when there is no descriptor for its connections.
pub const PAUSE_MS: u64 = 100;

/// A listening socket, and what is known of connections that come through it.
#[derive(Debug)]
pub struct Listener {
    /// The socket.
    pub socket: OwnedFd,
    /// The address it is bound to; [`Peer::UNIX`] for a Unix socket.
    pub local: SocketAddr,
    /// Whether only trusted proxies may connect, each of which first states its client by the PROXY
    /// protocol.
    pub proxy_protocol: bool,
    /// Whether other loops accept from the same socket; the kernel should then wake one loop per
    /// connection.
    pub shared: bool,
    /// Whether only other stages of this server connect to it.
    pub is_for_stages: bool,
    /// What the handler knows of the connections that come through it.
    pub listening: Listening,
    /// The rank of all connections that the kernel queues here, if they have one rank.
    pub rank: Option<Rank>,
}

impl Listener {
    /// A listener that clients connect to directly, and that no other loop accepts from.
    pub fn new(socket: OwnedFd, local: SocketAddr) -> Listener {
        Listener {
            socket,
            local,
            proxy_protocol: false,
            shared: false,
            is_for_stages: false,
            listening: Listening::default(),
            rank: None,
        }
    }
}

/// Listening sockets, and a descriptor held back so that a client can be answered when there are no
/// more.
pub struct ListenerSet {
    listeners: Vec<Listener>,
    reserve: Mutex<Option<OwnedFd>>,
    admission: Arc<ConnectionAdmission>,
}

/// What a connection may do for which there is no place, or no thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WhenFull {
    /// The connection is refused.
    None,
    /// The connection takes the place of an idle one.
    Idle,
    /// The connection waits for a thread.
    Ahead,
}

/// The outcome of looking at a listening socket.
pub enum AcceptOutcome<H: Handler> {
    /// A connection to serve.
    Served(Served<H>),
    /// A connection that was refused; the engine closes it in this way.
    Refused(Served<H>, Closing),
    /// A connection that is gone already.
    Gone,
    /// No connection waits to be accepted.
    Nobody,
    /// There is no descriptor to accept with; the listener rests for [`PAUSE_MS`].
    Exhausted,
}

impl ListenerSet {
    /// A set of these sockets, with a descriptor in reserve.
    ///
    /// # Errors
    /// Lack of descriptors.
    pub fn new(
        listeners: Vec<Listener>,
        admission: Arc<ConnectionAdmission>,
    ) -> io::Result<ListenerSet> {
        let reserve = Mutex::new(Some(process::reserve_descriptor()?));
        Ok(ListenerSet { listeners, reserve, admission })
    }

    /// The share of the places for connections that is taken, from 0 to 1.
    pub fn load(&self) -> f64 {
        self.admission.load()
    }

    /// The listening sockets.
    pub fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.listeners.iter().map(|listener| listener.socket.as_fd())
    }

    /// The listener with this number.
    pub fn listener(&self, index: usize) -> Option<&Listener> {
        self.listeners.get(index)
    }

    /// Whether one more connection may be accepted that has to wait for a thread.
    pub fn has_room(&self) -> bool {
        self.admission.has_room()
    }

    /// Closes all listening sockets.
    pub fn close(&mut self) {
        self.listeners.clear();
    }

    /// Accepts the next connection of listener `index` and decides about it.
    pub fn next<H: Handler>(&self, index: usize, worker: &mut Worker<H>) -> AcceptOutcome<H> {
        match self.accept(index, worker, WhenFull::None) {
            Ok(arrival) => arrival,
            Err(served) => self.take_place(*served, worker),
        }
    }

    /// Does the same as [`next`](ListenerSet::next), for a connection that may have to wait for a
    /// thread; its client is not [charged](charge) for it yet.
    pub(crate) fn next_ahead<H: Handler>(
        &self,
        index: usize,
        worker: &mut Worker<H>,
    ) -> AcceptOutcome<H> {
        match self.accept(index, worker, WhenFull::Ahead) {
            Ok(arrival) => arrival,
            Err(served) => self.take_place(*served, worker),
        }
    }

    /// Does the same as [`next`](ListenerSet::next), for an engine that can close an idle
    /// connection for a new one.
    ///
    /// # Errors
    /// All places are taken: returns the connection, which is admitted and goes to
    /// [`take_place`](ListenerSet::take_place).
    pub(crate) fn next_or_full<H: Handler>(
        &self,
        index: usize,
        worker: &mut Worker<H>,
    ) -> Result<AcceptOutcome<H>, Box<Served<H>>> {
        self.accept(index, worker, WhenFull::Idle)
    }

    /// Gives an admitted connection a place, if there is one now.
    pub(crate) fn take_place<H: Handler>(
        &self,
        mut served: Served<H>,
        worker: &mut Worker<H>,
    ) -> AcceptOutcome<H> {
        let is_proxy = worker.handler.trusts(&served.peer);
        match self.enter_or_cut(&served, is_proxy, served.conn.rank(), worker) {
            Ok(place) => {
                served.place = Some(place);
                AcceptOutcome::Served(served)
            }
            Err(full) => {
                let closing = say_full(&mut served, full, worker);
                AcceptOutcome::Refused(served, closing)
            }
        }
    }

    fn accept<H: Handler>(
        &self,
        index: usize,
        worker: &mut Worker<H>,
        when_full: WhenFull,
    ) -> Result<AcceptOutcome<H>, Box<Served<H>>> {
        let sampled = worker.is_sampled();
        let Some(listener) = self.listeners.get(index) else { return Ok(AcceptOutcome::Nobody) };
        let mut watch = TurnStopwatch::new(&worker.metrics, sampled);
        let mut accepted = socket::accept(listener.socket.as_fd());
        watch.lap(Activity::Accept);
        if matches!(accepted, Ok(Accepted::Exhausted)) {
            worker.count(Counter::AcceptErrors);
            // the descriptors come back a moment later, and the clients wait in the kernel's queue
            // meanwhile
            if (0..CUT_BATCH).filter(|_| self.make_room(worker)).count() > 0 {
                return Ok(AcceptOutcome::Exhausted);
            }
            accepted = Ok(self.accept_with_reserve(listener, worker));
        }
        Ok(match accepted {
            Ok(Accepted::Connection(socket, remote)) => {
                worker.count(Counter::Accepted);
                let local = reached(&socket, listener, worker);
                let transport = worker.handler.transport(listener.listening, local);
                let peer = match listener.is_for_stages {
                    true => Peer::stage(),
                    false => Peer { queued: listener.rank, ..Peer::new(remote, local) },
                };
                let served = Served::new(socket, transport, peer);
                return self.decide(served, listener, worker, when_full);
            }
            Ok(Accepted::None) => AcceptOutcome::Nobody,
            Ok(Accepted::Failed) => {
                worker.count(Counter::AcceptErrors);
                AcceptOutcome::Gone
            }
            Ok(Accepted::Exhausted) => AcceptOutcome::Exhausted,
            Err(_) => {
                worker.count(Counter::AcceptErrors);
                AcceptOutcome::Exhausted
            }
        })
    }

    /// Returns a place: a free one, or one that a connection of a lower class of the same client
    /// gives up.
    fn enter<H: Handler>(
        &self,
        served: &Served<H>,
        is_proxy: bool,
        rank: Rank,
        worker: &Worker<H>,
    ) -> Result<ConnectionPlace, Full> {
        if is_proxy {
            return self.admission.enter_as_proxy();
        }
        let (place, has_cut) = self.admission.enter_above(served.peer.client(), rank)?;
        if has_cut {
            worker.count(Counter::MadeRoom);
        }
        Ok(place)
    }

    /// Does the same as `enter`. If all places are taken, it returns the place of the slowest
    /// reader, if that is not above this rank, or of a connection below this rank.
    fn enter_or_cut<H: Handler>(
        &self,
        served: &Served<H>,
        is_proxy: bool,
        rank: Rank,
        worker: &Worker<H>,
    ) -> Result<ConnectionPlace, Full> {
        match self.enter(served, is_proxy, rank, worker) {
            Err(Full::Total)
                if self.admission.cut_slowest(rank) || self.admission.cut_lower(rank) =>
            {
                worker.count(Counter::MadeRoom);
                self.enter(served, is_proxy, rank, worker)
            }
            entered => entered,
        }
    }

    /// Cuts the slowest reader, whatever its rank, for clients that nothing is known of yet.
    /// Returns whether there was one.
    pub(crate) fn make_room<H: Handler>(&self, worker: &Worker<H>) -> bool {
        let has_cut = self.admission.cut_slowest(Rank::FIRST);
        if has_cut {
            worker.count(Counter::MadeRoom);
        }
        has_cut
    }

    /// Whether clients wait to be accepted.
    pub(crate) fn has_waiting(&self) -> bool {
        let sockets: Vec<_> = self.sockets().collect();
        poll::wait_readable(&sockets, 0).is_ok_and(|ready| ready.contains(&true))
    }

    fn decide<H: Handler>(
        &self,
        mut served: Served<H>,
        listener: &Listener,
        worker: &mut Worker<H>,
        when_full: WhenFull,
    ) -> Result<AcceptOutcome<H>, Box<Served<H>>> {
        let proxy_protocol = listener.proxy_protocol;
        let is_proxy = worker.handler.trusts(&served.peer);
        if proxy_protocol && !is_proxy {
            worker.count(Counter::RefusedProxy);
            return Ok(AcceptOutcome::Refused(served, Closing::Reset));
        }
        let (mut is_crowded, mut is_own_limit) = (false, false);
        let is_uncharged = is_proxy || when_full == WhenFull::Ahead;
        let entered = match proxy_protocol {
            // the proxy has not stated the client yet
            true => self.enter_or_cut(&served, is_uncharged, Rank::LAST, worker),
            // the class of the connection is judged first; another one leaves for it only then
            false => self.enter(&served, is_uncharged, Rank::LAST, worker),
        };
        match entered {
            Ok(place) => served.place = Some(place),
            // a connection of an unknown client has no rank yet, and a client at its own limit
            // makes no other client's connection leave
            Err(full)
                if !proxy_protocol && self.may_make_room(full, &served, is_proxy, when_full) =>
            {
                is_crowded = true;
                is_own_limit = full == Full::Client;
            }
            Err(full) => {
                let closing = say_full(&mut served, full, worker);
                return Ok(AcceptOutcome::Refused(served, closing));
            }
        }
        if proxy_protocol {
            served.expect_proxy();
            return Ok(AcceptOutcome::Served(served));
        }
        match judge(&mut served, worker) {
            // at its own limit, a client can only take the place of one of its own idle connections
            None if is_own_limit => Ok(self.take_place(served, worker)),
            None if is_crowded => Err(Box::new(served)),
            None => Ok(AcceptOutcome::Served(served)),
            Some(closing) => {
                served.place = None;
                Ok(AcceptOutcome::Refused(served, closing))
            }
        }
    }

    /// Whether another connection may have to leave for one that has met this limit.
    fn may_make_room<H: Handler>(
        &self,
        full: Full,
        served: &Served<H>,
        is_proxy: bool,
        when_full: WhenFull,
    ) -> bool {
        let (admission, client) = (&self.admission, served.peer.client());
        match full {
            Full::Client => admission.has_yielding_of(client),
            Full::Total => {
                (when_full == WhenFull::Idle
                    || admission.has_slow_readers()
                    || admission.has_yielding())
                    && (is_proxy
                        || admission.has_room_for(client)
                        || admission.has_yielding_of(client))
            }
        }
    }

    /// Answers each waiting client with the reserved descriptor, as no other is left. The listener
    /// should rest afterwards, or the kernel reports the same connection again and again. If there
    /// are descriptors again meanwhile, the next connection is returned.
    fn accept_with_reserve<H: Handler>(
        &self,
        listener: &Listener,
        worker: &mut Worker<H>,
    ) -> Accepted {
        let mut reserve = self.reserve.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..BATCH {
            drop(reserve.take());
            let accepted = socket::accept(listener.socket.as_fd());
            *reserve = process::reserve_descriptor().ok();
            match accepted {
                Ok(Accepted::Connection(socket, remote)) if reserve.is_none() => {
                    worker.count(Counter::Accepted);
                    worker.count(Counter::RefusedDescriptors);
                    worker.count(Counter::Closed);
                    let transport = worker.handler.transport(listener.listening, listener.local);
                    let peer = match listener.is_for_stages {
                        true => Peer::stage(),
                        false => Peer::new(remote, listener.local),
                    };
                    let mut served = Served::new(socket, transport, peer);
                    worker.refuse(&mut served, 503, "the server has no free descriptor");
                    // what has arrived is read, as unread input makes the close an RST that
                    // destroys the answer
                    worker.drop_input(served.stream.as_fd());
                    drop(served);
                    *reserve = process::reserve_descriptor().ok();
                }
                Ok(Accepted::Failed) => {}
                Ok(connection @ Accepted::Connection(..)) => return connection,
                Ok(Accepted::None | Accepted::Exhausted) | Err(_) => break,
            }
        }
        Accepted::Exhausted
    }

    /// Reserves a descriptor again if none is reserved.
    pub fn take_reserve(&self) {
        let mut reserve = self.reserve.lock().unwrap_or_else(PoisonError::into_inner);
        if reserve.is_none() {
            *reserve = process::reserve_descriptor().ok();
        }
    }
}

/// The address that a client has connected to, as exactly as the handler wants to know it.
#[inline]
fn reached<H: Handler>(socket: &OwnedFd, listener: &Listener, worker: &Worker<H>) -> SocketAddr {
    if !listener.local.ip().is_unspecified()
        || listener.local == Peer::UNIX
        || !worker.handler.asks_local()
    {
        return listener.local;
    }
    socket::local_address(socket).unwrap_or(listener.local)
}

/// Charges a connection to its client, which the proxy has stated now. Returns how the connection
/// ends if that client may have no more.
pub(crate) fn admit_stated<H: Handler>(
    served: &mut Served<H>,
    worker: &mut Worker<H>,
) -> Option<Closing> {
    // a proxy that states no client speaks for itself, and no client is charged
    let client = served.peer.stated.is_some().then(|| served.peer.client());
    let charge = |served: &mut Served<H>, rank| match (&mut served.place, client) {
        (Some(place), Some(client)) => place.charge_above(client, rank),
        _ => Ok(false),
    };
    let closing = match charge(served, Rank::LAST) {
        Ok(_) => judge(served, worker),
        // the connection's class decides whether another one gives way to it
        Err(_) if has_yielding(served) => judge(served, worker).or_else(|| {
            let charged = charge(served, served.conn.rank());
            settle_charge(charged, served, worker)
        }),
        Err(full) => Some(say_full(served, full, worker)),
    };
    if closing.is_some() {
        served.place = None;
    }
    closing
}

/// Charges the client for a connection that was accepted [ahead](ListenerSet::next_ahead) and gets
/// its thread now. Returns how the connection ends if that client may have no more.
pub(crate) fn charge<H: Handler>(
    served: &mut Served<H>,
    worker: &mut Worker<H>,
) -> Option<Closing> {
    if worker.handler.trusts(&served.peer) {
        return None;
    }
    let (client, rank) = (served.peer.client(), served.conn.rank());
    let charged = served.place.as_mut()?.charge_above(client, rank);
    let closing = settle_charge(charged, served, worker)?;
    served.place = None;
    Some(closing)
}

/// Whether the client of a connection that has a place has another connection of a lower class.
fn has_yielding<H: Handler>(served: &Served<H>) -> bool {
    let client = served.peer.client();
    served.place.as_ref().is_some_and(|place| place.has_yielding_of(client))
}

/// Decides about a connection after its client was charged for it.
fn settle_charge<H: Handler>(
    charged: Result<bool, Full>,
    served: &mut Served<H>,
    worker: &mut Worker<H>,
) -> Option<Closing> {
    match charged {
        Ok(has_cut) => {
            if has_cut {
                worker.count(Counter::MadeRoom);
            }
            None
        }
        Err(full) => Some(say_full(served, full, worker)),
    }
}

/// Asks the handler about a connection, and refuses it if that is the verdict.
fn judge<H: Handler>(served: &mut Served<H>, worker: &mut Worker<H>) -> Option<Closing> {
    let closing = match worker.handler.admit(&served.peer) {
        Verdict::Admit(admitted) => {
            served.conn.set_rank(admitted.rank);
            served.accepted = admitted.rank;
            return None;
        }
        Verdict::Refuse(refusal, ()) => {
            worker.turn_away(served, refusal);
            closing_of(served)
        }
        Verdict::Reset => Closing::Reset,
    };
    worker.count(Counter::RefusedVerdict);
    Some(closing)
}

/// Refuses a connection because a limit is reached.
fn say_full<H: Handler>(served: &mut Served<H>, full: Full, worker: &mut Worker<H>) -> Closing {
    worker.count(match full {
        Full::Total => Counter::RefusedTotal,
        Full::Client => Counter::RefusedClient,
    });
    worker.handler.connection_refused(full.key(), &served.peer);
    worker.refuse(served, 503, full.reason());
    closing_of(served)
}

/// How a refused connection ends. One that must not be answered is reset, because an orderly end
/// would look like that of a server that it has reached.
fn closing_of<H: Handler>(served: &Served<H>) -> Closing {
    if served.stream.is_silent() { Closing::Reset } else { Closing::Linger }
}
