//! A connection and what an engine must know of it to go on.
//!
//! No work is done for a client that has left. That is certain when the connection fails or is over
//! in both directions; a client that has only shut down writing may still wait for its answer (RFC
//! 9112 §9.6). The kernel reports it to loops, and they close the connection: so its requests leave
//! the ready queue, and their jobs leave the queue of the helper threads. Where a thread or a list
//! has the connection, the thread looks when the connection's turn has come (ADR 0029).

use crate::connection::send_window::{self, TakenWindow};
use crate::connection::stream::SocketStream;
use crate::connection::waits::{RequestWait, Waits};
use crate::helpers::SharedJob;
use crate::order::ranks::{RankedClient, Ranks};
use crate::room::admission::ConnectionPlace;
use crate::room::slow_readers::SlowReader;
use forebay_conn::{
    Await, Awaited, ConnectionLimits, Handler, HandlerTypes, Job, Out, Peer, Preface, Protocol,
    Rank, RequestEvent, RequestId,
};
use forebay_http::client::ClientKey;
use forebay_sys::poll::{self, PollInterest};
use forebay_sys::socket::SocketNumber;
use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};

/// The result of a job of this handler.
pub(crate) type DoneOf<H> = <<H as HandlerTypes>::Job as Job>::Done;

/// An event of a request of this handler.
pub(crate) type EventOf<H> = RequestEvent<DoneOf<H>>;

/// A connection and what must be known of its socket to go on.
pub struct Served<H: Handler> {
    /// The connection's place in the count, given back at its end; `None` if it was refused. It is
    /// dropped before the socket: until then another thread may cut the socket by its number.
    pub place: Option<ConnectionPlace>,
    /// The socket, non-blocking, and its transport.
    pub stream: SocketStream<H>,
    /// The addresses of both ends.
    pub peer: Peer,
    /// The rank that the connection's addresses gave it, when they have been judged.
    pub(crate) accepted: Rank,
    /// The state machine of the protocol that is spoken.
    pub conn: H::Protocol,
    /// What comes before the protocol, while it is not complete.
    pub(crate) opening: Option<Box<Beginning>>,
    /// The output that the client has not taken yet.
    pub pending: Option<Box<Out<H::Body>>>,
    /// The socket may have something to receive.
    pub readable: bool,
    /// The client has shut down writing, so a short receive is not the last.
    pub ended: bool,
    /// What the connection's requests wait for.
    pub(crate) waits: Waits<H::Job>,
    /// The requests that wait for a job since deadlines were last set; each has its own time.
    pub(crate) new_jobs: Vec<RequestId>,
    /// Events of requests that were kept because an answer had to go out first.
    pub(crate) inbox: VecDeque<EventOf<H>>,
    /// The protocol holds as much as it may for a client that takes nothing, and does not go on by
    /// what was there already.
    pub(crate) has_enough: bool,
    /// The bytes that the last turn has left over, if the next one follows at once.
    pub(crate) turn_left: Option<u64>,
    /// The client did not take the answer under way at once, or a job was waited for: more may have
    /// arrived meanwhile.
    pub(crate) lags: bool,
    /// What the client takes while the engine waits for it.
    pub(crate) window: TakenWindow,
    /// Bytes that were sent on the socket.
    pub(crate) sent_bytes: u64,
    /// The socket was lent: another process may still have it open, whatever it has reported.
    pub(crate) was_lent: bool,
}

/// The state before the protocol: a PROXY header and a handshake.
#[derive(Debug, Default)]
pub(crate) struct Beginning {
    /// The PROXY header, in which a proxy first states its client.
    pub(crate) preface: Option<Preface>,
    /// The state of the handshake.
    pub(crate) handshake: HandshakeState,
}

/// The state of a connection's handshake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum HandshakeState {
    /// Nothing of it has arrived.
    #[default]
    New,
    /// The beginning of it has arrived, and waits for its turn.
    Waits,
    /// The handshake is under way.
    Begun,
    /// The handshake has failed, which is counted.
    Failed,
}

/// Takes the oldest event that was kept.
#[cold]
pub(crate) fn next_event<H: Handler>(inbox: &mut VecDeque<EventOf<H>>) -> Option<EventOf<H>> {
    let event = inbox.pop_front();
    if inbox.is_empty() {
        *inbox = VecDeque::new();
    }
    event
}

impl<H: Handler> Served<H> {
    /// A connection that was just accepted. Its request is likely to be there already.
    pub fn new(socket: OwnedFd, transport: H::Transport, peer: Peer) -> Served<H> {
        let stream = SocketStream::new(socket, transport);
        let opening = (!stream.is_plain() || stream.is_silent()).then(Box::default);
        Served {
            stream,
            peer,
            accepted: Rank::FIRST,
            conn: H::Protocol::default(),
            opening,
            pending: None,
            readable: true,
            ended: false,
            place: None,
            waits: Waits::default(),
            new_jobs: Vec::new(),
            inbox: VecDeque::new(),
            has_enough: false,
            turn_left: None,
            lags: false,
            window: TakenWindow::default(),
            sent_bytes: 0,
            was_lent: false,
        }
    }

    /// Requires that a proxy states the client before anything else.
    pub(crate) fn expect_proxy(&mut self) {
        self.opening.get_or_insert_default().preface = Some(Preface::default());
    }

    /// Notes that something of the handshake has arrived.
    pub(crate) fn handshake_comes(&mut self) {
        if let Some(opening) = &mut self.opening
            && opening.handshake == HandshakeState::New
        {
            opening.handshake = HandshakeState::Waits;
        }
    }

    /// Begins the protocol: the transport is open, and what is spoken is known.
    pub(crate) fn begin_protocol(&mut self, handler: &mut H, limits: &ConnectionLimits) {
        let rank = self.conn.rank();
        self.conn = self.stream.speak(handler, limits);
        // a stage's connection may be encrypted, but that says nothing of how its clients connect
        self.peer.secured = if self.peer.is_stage { None } else { self.stream.secured() };
        self.peer.passed = self.stream.passed();
        self.conn.set_rank(rank);
    }

    /// Begins to measure how much the client takes.
    pub fn begin_window(&mut self, now_ms: u64) {
        self.window.begin(self.stream.as_fd(), now_ms);
    }

    /// Returns the bytes of this answer, or of all answers, that the client has taken since the
    /// last look. What only went into the kernel's send buffer, which may be megabytes, does not
    /// count; what the client took from there does. If the client has taken all that there was,
    /// this server is late and not the client: then the number is the largest one. Where something
    /// other than the socket keeps an answer waiting, the protocol knows the number.
    pub fn taken_since_look(&mut self, id: RequestId, now_ms: u64) -> u64 {
        let is_full = self.pending.is_some() && id == RequestId::SENDING;
        if self.conn.goes_on() && !is_full {
            return self.conn.taken(id);
        }
        self.window.look(self.stream.as_fd(), now_ms)
    }

    /// Notes that the client takes its answers too slowly: the connection is among the first to be
    /// cut when there is no room.
    pub(crate) fn reads_slowly(&mut self, taken: u64, since_ms: u64) {
        let rank = self.conn.rank_and_client(RequestId::SENDING).0;
        let socket = SocketNumber::of(self.stream.as_fd());
        if let Some(place) = &mut self.place {
            place.reads_slowly(SlowReader::new(rank, taken, since_ms, socket));
        }
    }

    /// Notes that the connection has done something other than wait for a slow client.
    #[inline]
    pub(crate) fn keeps_up(&mut self) {
        if let Some(place) = &mut self.place {
            place.keeps_up();
        }
    }

    /// Publishes, after a turn, the connection's class and whether it is idle.
    #[inline]
    pub(crate) fn stand(&mut self) {
        // a newcomer's rank comes from its addresses alone, so a connection gives way to none whose
        // addresses rank as its own do
        let rank = Rank(self.conn.rank().0.min(self.accepted.0));
        if self.place.as_ref().is_none_or(|place| !place.stands(rank)) {
            return;
        }
        let (is_idle, client) = (self.is_idle(), self.peer.client());
        let socket = || SocketNumber::of(self.stream.as_fd());
        if let Some(place) = &mut self.place {
            place.stand(rank, is_idle, client, socket);
        }
    }

    /// Leaves the lists of connections that may be cut, because the socket goes to another process.
    pub(crate) fn leave_lists(&mut self) {
        if let Some(place) = &mut self.place {
            place.keeps_up();
            place.leave_yielding();
        }
    }

    /// Whether the client is among the slow readers.
    pub(crate) fn is_slow(&self) -> bool {
        self.place.as_ref().is_some_and(ConnectionPlace::is_slow)
    }

    /// Drops what was not sent, because the connection is about to end.
    pub(crate) fn drop_unsent(&mut self) {
        let pending = self.pending.take().map_or(0, |out| out.unsent_bytes());
        let unsent = pending + self.stream.unsent_bytes();
        if unsent > 0 {
            self.conn.not_sent(unsent);
        }
    }

    /// The bytes of answers that are left to be sent, as far as their number is known. What a
    /// transport has encrypted already, some records at most, is not counted.
    pub(crate) fn left(&self, handler: &H) -> u64 {
        let of_body = |body: &H::Body| handler.left(body);
        let pending = self.pending.as_ref().map_or(0, |out| out.left(of_body));
        pending.saturating_add(self.conn.left())
    }

    /// The bytes per second that the client has taken since the window began, as its kernel
    /// acknowledges them. This is a system call.
    pub(crate) fn taken_per_s(&self, now_ms: u64) -> u64 {
        self.window.taken_per_s(self.stream.as_fd(), now_ms)
    }

    /// The bytes that were sent and that the client's kernel has not acknowledged.
    pub(crate) fn unacknowledged(&self) -> u64 {
        send_window::unacknowledged(self.stream.as_fd())
    }

    /// What the connection waits for.
    #[inline]
    pub fn awaits(&self) -> Awaited {
        let mut awaited = self.conn.awaits();
        if self.pending.is_some() {
            match self.waits.has_job(RequestId::SENDING) {
                true => awaited = Awaited { what: Await::Job, id: RequestId::SENDING },
                false => awaited = Awaited { what: Await::Send, id: RequestId::SENDING },
            }
        } else if self.opening.is_some() {
            let is_in_job = self.waits.has_job(RequestId::OPENING);
            let what = if is_in_job { Await::Job } else { Await::Head };
            awaited = Awaited { what, id: RequestId::OPENING };
        }
        awaited
    }

    /// Whether there is more to be done while a request, or the client, is waited for.
    #[inline]
    pub(crate) fn goes_on(&self) -> bool {
        self.conn.goes_on() && self.opening.is_none() && !self.waits.has_job(RequestId::SENDING)
    }

    /// Keeps an event until the protocol can look at it, in the order of arrival. The event that a
    /// socket is ready is kept once.
    pub(crate) fn keep_event(&mut self, event: EventOf<H>) {
        if let RequestEvent::Socket(id) = event
            && self
                .inbox
                .iter()
                .any(|kept| matches!(kept, RequestEvent::Socket(other) if *other == id))
        {
            return;
        }
        self.inbox.push_back(event);
    }

    /// Whether the connection goes on when something is received.
    #[inline]
    pub(crate) fn wants_input(&self) -> bool {
        match &self.opening {
            None => self.conn.wants_input(),
            Some(_) => !self.waits.has_job(RequestId::OPENING),
        }
    }

    /// Notes that something has arrived, or that the client has ended.
    #[inline]
    pub(crate) fn has_come(&mut self, readable: bool, ended: bool) {
        self.readable |= readable;
        self.ended |= ended;
        self.has_enough &= !readable;
    }

    /// Whether the client has shut down writing, and what is under way ends by that.
    #[inline]
    pub(crate) fn is_aborted(&self) -> bool {
        self.ended && self.conn.aborts_on_close()
    }

    /// Whether the connection receives although the client must take something first.
    #[inline]
    pub(crate) fn reads_meanwhile(&self) -> bool {
        self.goes_on() && self.wants_input()
    }

    /// Whether the client must take something before its transport can be opened.
    #[inline]
    pub(crate) fn has_to_open(&self) -> bool {
        self.opening.is_some() && self.stream.has_unsent()
    }

    /// Whether the connection can go on with what its socket can do, as the engine knows it.
    #[inline]
    pub(crate) fn can_go_on(&self, writable: bool) -> bool {
        if self.is_aborted() {
            return true;
        }
        match self.pending {
            Some(_) if self.waits.has_job(RequestId::SENDING) => false,
            Some(_) => writable || (self.readable && !self.has_enough && self.reads_meanwhile()),
            None => (self.readable && self.wants_input()) || (writable && self.has_to_open()),
        }
    }

    /// Whether both directions have ended, and all that arrived was received: the socket reports
    /// nothing more.
    pub(crate) fn is_over(&self) -> bool {
        self.ended && self.stream.has_ended() && !self.wants_input()
    }

    /// Whether nothing is under way, and the connection waits for the next request.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.pending.is_none() && self.awaits().what == Await::Idle
    }

    /// Whether the connection gets a turn when a drain begins: it is idle and ends, or its protocol
    /// announces the drain.
    pub(crate) fn hears_of_drain(&self) -> bool {
        self.is_idle() || self.goes_on()
    }

    /// The rank and the client that the work for this request counts for.
    #[inline]
    pub fn ranked_client(&self, ranks: &Ranks, id: RequestId) -> RankedClient {
        let (rank, client) = self.conn.rank_and_client(id);
        let client = client.unwrap_or_else(|| self.peer.address().ip());
        RankedClient { rank: ranks.clamp(rank), client: ClientKey::of(client).as_u64() }
    }

    /// The rank and the client of the connection while it has no request.
    #[inline]
    pub fn ranked_client_at_rest(&self, ranks: &Ranks) -> RankedClient {
        self.ranked_client(ranks, self.conn.awaits().id)
    }

    /// Whether no part of a request is there, so that the connection only has to be watched.
    #[inline]
    pub fn is_at_rest(&self) -> bool {
        self.pending.is_none() && self.conn.is_at_rest()
    }

    /// Has this request wait for this job from now on. Returns the share of the thread that does
    /// it.
    pub fn wait_for(&mut self, id: RequestId, job: H::Job) -> SharedJob<H::Job> {
        let shared_job = SharedJob::new(job);
        self.new_jobs.push(id);
        self.waits.add(id, RequestWait::Job(shared_job.clone()));
        shared_job
    }

    /// Ends this request's wait for its job, which is done. Returns whether it was still waiting.
    pub fn job_done(&mut self, id: RequestId) -> bool {
        let waited = self.waits.has_job(id);
        if waited {
            self.waits.remove(id);
        }
        waited
    }

    /// Ends all waits of requests; a job that has not begun never will. Returns whether a request
    /// was waiting for a job that had not begun, or for its turn.
    pub fn take_back(&mut self) -> bool {
        let is_sending = self.pending.is_some();
        let take = |waiting| matches!(waiting, RequestWait::Job(shared_job) if shared_job.take().is_some());
        let has_taken = self.waits.take_all().fold(false, |taken, waiting| take(waiting) | taken);
        (has_taken && !is_sending) || self.conn.is_queued()
    }

    /// Whether the client has left. This is a system call, for engines that the kernel does not
    /// notify.
    pub fn is_gone(&self) -> bool {
        let state = poll::wait([(self.stream.as_fd(), PollInterest::End)], 0);
        state.is_ok_and(|[socket]| socket.broken)
    }
}
