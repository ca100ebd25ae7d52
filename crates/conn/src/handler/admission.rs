//! The role that decides which clients are served: verdicts at accept and after each head, order, and
//! the end of each request it was asked about.

use super::HandlerTypes;
use crate::peer::Peer;
use crate::rank::Rank;
use crate::request::Request;
use std::net::IpAddr;

/// Decides about connections and requests.
pub trait Admission: HandlerTypes {
    /// Whether this peer is a proxy, whose statements about its clients are trusted. Asked right after
    /// accept.
    fn trusts(&mut self, _peer: &Peer) -> bool {
        false
    }

    /// Whether the address that clients reached must be known where a listener is bound to all
    /// addresses of the machine.
    fn asks_local(&self) -> bool {
        false
    }

    /// Whether a new connection is admitted. Asked once: right after accept or, for a proxy's connection,
    /// when the proxy has stated its client.
    fn admit(&mut self, _peer: &Peer) -> Verdict<()> {
        Verdict::Admit(Admitted::at_once(Rank::FIRST, ()))
    }

    /// Reports that a connection is refused because as many are open as this setting allows; the name of
    /// the setting is for people.
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

    /// Whether an admitted request may enter the ready queue. Asked once for each request, when all of it
    /// is received and its time has come. Until then the request waits for its client or for that time;
    /// from then on it waits only for the server.
    ///
    /// # Errors
    /// The answer for the client.
    fn enqueue(&mut self, _ticket: &mut Self::Ticket) -> Result<(), Refusal> {
        Ok(())
    }

    /// Counts `count` more requests that a client has given up over HTTP/2. Returns `false` if the client
    /// has given up too many over all of its connections; then the connection of these requests ends.
    fn charge_given_up(&mut self, _peer: &Peer, _count: usize) -> bool {
        true
    }

    /// Whether a client takes turns because it has given up too much: an engine's turn looks at one
    /// request, and begins one exchange, of each of its HTTP/2 connections.
    fn takes_turns(&self, _peer: &Peer) -> bool {
        false
    }

    /// How long an admitted request over HTTP/2 waits because its client takes turns, in milliseconds.
    fn turn_ms(&self, _peer: &Peer) -> u32 {
        0
    }

    /// Ends a request: its answer has been sent, or never will be. When several answers leave together,
    /// only the last waits until it is sent. Called once for each request that was judged, admitted or
    /// not. A request that has [expired](Settled::Expired) is settled right before its client gets the
    /// error, and its log line is begun after that. A ticket whose connection is dropped may be dropped
    /// without this call.
    fn settle(&mut self, _ticket: &mut Self::Ticket, _end: Settled) {}
}

/// The decision about a connection or a request, made before anything is done for it.
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
    /// The rank, which orders it relative to others.
    pub rank: Rank,
    /// The client whose turn it takes; `None` stands for the connection's own client.
    pub client: Option<IpAddr>,
    /// How many milliseconds must pass before the request is answered. 0 for connections.
    pub wait_ms: u32,
    /// Whether the request is the last of its connection.
    pub is_last: bool,
    /// What the request owns until its end.
    pub ticket: T,
}

impl<T> Admitted<T> {
    /// Admission without a wait.
    pub fn at_once(rank: Rank, ticket: T) -> Admitted<T> {
        Admitted { rank, client: None, wait_ms: 0, is_last: false, ticket }
    }
}

/// The answer to a client that is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The status of the answer.
    pub status: u16,
    /// Seconds after which the client may try again (`Retry-After`); 0 leaves the field out.
    pub retry_after_s: u32,
}

impl Refusal {
    /// A refusal with this status and without `Retry-After`.
    pub fn status(status: u16) -> Refusal {
        Refusal { status, retry_after_s: 0 }
    }
}

/// How a request has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// The kernel has taken the whole answer, or the answer follows other bytes that wait to be sent.
    Answered,
    /// The connection ended before the answer.
    Cut,
    /// The request was not answered in time, or too many waited; its client gets an error instead.
    Expired,
}
