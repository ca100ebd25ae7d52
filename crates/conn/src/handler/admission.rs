//! The role that decides which clients are served: verdicts at accept and after each head, order, and
//! the end of each request it was asked about.

use super::HandlerTypes;
use crate::peer::Peer;
use crate::rank::Rank;
use crate::request::Request;
use std::net::IpAddr;

/// Decides about connections and requests.
pub trait Admission: HandlerTypes {
    /// Whether this peer is a proxy whose word about its clients counts. Asked right after accept.
    fn trusts(&mut self, _peer: &Peer) -> bool {
        false
    }

    /// Whether the address that clients reached must be known where a listener is bound to all
    /// addresses of the machine.
    fn asks_local(&self) -> bool {
        false
    }

    /// Whether a new connection is admitted. Asked once: right after accept or, where a proxy states
    /// its client, when it has done so.
    fn admit(&mut self, _peer: &Peer) -> Verdict<()> {
        Verdict::Admit(Admitted::at_once(Rank::FIRST, ()))
    }

    /// A connection is refused because there are as many as this setting allows: it is named for people.
    fn connection_refused(&mut self, _setting: &'static str, _peer: &Peer) {}

    /// Whether a request is admitted. Asked once after every head, before its body is waited for and
    /// before anything else is done for it. `record` is that of its connection.
    fn verdict(
        &mut self,
        _request: &Request<'_>,
        _standing: &mut Self::Record,
    ) -> Verdict<Self::Ticket> {
        Verdict::Admit(Admitted::at_once(Rank::FIRST, Self::Ticket::default()))
    }

    /// Whether an admitted request may enter the ready queue. Asked once for each, when it is whole
    /// and it may be answered (not before): until then it waits for its client or for that time, from
    /// then on for nothing but the server.
    ///
    /// # Errors
    /// What its client is told.
    fn enqueue(&mut self, _ticket: &mut Self::Ticket) -> Result<(), Refusal> {
        Ok(())
    }

    /// A client has given up so many requests over HTTP/2. Whether it may go on: if these are too many over all of its
    /// connections, the one on which it has done so ends.
    fn charge_given_up(&mut self, _peer: &Peer, _count: usize) -> bool {
        true
    }

    /// Whether a client that has given up too much takes turns: each of its connections of HTTP/2 has one request
    /// looked at in a turn of the engine, and begins one exchange in each.
    fn takes_turns(&self, _peer: &Peer) -> bool {
        false
    }

    /// How long a request over HTTP/2 that is admitted waits because its client takes turns, in milliseconds.
    fn turn_ms(&self, _peer: &Peer) -> u32 {
        0
    }

    /// A request is over: its answer has been sent, or never will be. Of answers that leave together
    /// only the last waits for that. Called once for each request that was judged, admitted or not. One
    /// that has [expired](Settled::Expired) is settled right before its client is told so, and its log
    /// line is begun after that. A ticket whose connection is dropped may be dropped without this.
    fn settle(&mut self, _ticket: &mut Self::Ticket, _end: Settled) {}
}

/// What is decided about a connection or a request before anything is done for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict<T> {
    /// Serve it.
    Admit(Admitted<T>),
    /// Answer with this and keep the connection if possible. The ticket knows why.
    Refuse(Refusal, T),
    /// Reset the connection without an answer.
    Reset,
}

/// How an admitted connection or request is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admitted<T> {
    /// In this order relative to others.
    pub rank: Rank,
    /// The client whose turn it takes; `None` if that is the connection's.
    pub client: Option<IpAddr>,
    /// Not before so many milliseconds have passed. Connections never wait.
    pub wait_ms: u32,
    /// It is the last of its connection.
    pub is_last: bool,
    /// What the request owns until its end.
    pub ticket: T,
}

impl<T> Admitted<T> {
    /// Without waiting.
    pub fn at_once(rank: Rank, ticket: T) -> Admitted<T> {
        Admitted { rank, client: None, wait_ms: 0, is_last: false, ticket }
    }
}

/// What a client that is not served is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The status of the answer.
    pub status: u16,
    /// Seconds after which it may go better (`Retry-After`); 0 says nothing about it.
    pub retry_after_s: u32,
}

impl Refusal {
    /// A status and nothing about later.
    pub fn status(status: u16) -> Refusal {
        Refusal { status, retry_after_s: 0 }
    }
}

/// How a request has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// Its answer was given to the kernel whole, or follows other bytes that wait to be.
    Answered,
    /// Its connection ended before.
    Cut,
    /// It was not answered in time, or too many waited: its client is told so instead.
    Expired,
}
