//! The steps before the protocol: a proxy states its client, then the transport is opened.
//!
//! In: a connection that is not open yet, and perhaps its finished job. Out: a [`Fate`], or none when
//! the protocol may begin, with what was received of it in the input.

use super::Fate;
use crate::connection::accept;
use crate::connection::served::{DoneOf, EventOf, HandshakeState, Served};
use crate::connection::worker::Worker;
use crate::watch::TurnStopwatch;
use forebay_conn::transport::{TransportFailure, Unproven};
use forebay_conn::{Closing, Handler, Opening, Protocol, Rank, RequestEvent, RequestId};
use forebay_metrics::{Activity, Counter, Stopwatch};
use forebay_sys::socket::{self, Received, Sent};
use std::net::SocketAddr;
use std::os::fd::AsFd;

/// The next step before the protocol.
enum OpeningStep<J> {
    /// The connection is looked at again, with what was received.
    Again,
    /// More must be received.
    Receive,
    /// The protocol begins.
    Begin,
    /// The turn ends.
    End(Fate<J>),
}

impl<H: Handler> Worker<H> {
    /// Opens the transport as far as it can be. `None` when the protocol may begin.
    #[cold]
    pub(super) fn open(
        &mut self,
        served: &mut Served<H>,
        event: Option<EventOf<H>>,
        sampled: bool,
    ) -> Option<Fate<H::Job>> {
        let mut done: Option<DoneOf<H>> = match event {
            Some(RequestEvent::Done(RequestId::OPENING, done)) => Some(done),
            Some(RequestEvent::Failed(RequestId::OPENING)) => {
                return Some(Fate::Closes(Closing::Reset));
            }
            _ => None,
        };
        loop {
            if served.stream.has_unsent() {
                match served.stream.flush().0 {
                    Sent::Bytes(_) => {}
                    Sent::Blocked => return Some(Fate::Waits),
                    Sent::Broken => return Some(Fate::Closes(Closing::Reset)),
                }
            }
            let is_raw = served.opening.as_ref()?.preface.is_some();
            let next = match is_raw {
                true => self.take_preface(served),
                false => self.shake(served, done.take(), sampled),
            };
            match next {
                OpeningStep::Again => {}
                OpeningStep::Begin => return None,
                OpeningStep::End(fate) => return Some(fate),
                OpeningStep::Receive => {
                    if let Some(fate) = self.receive_opening(served, is_raw) {
                        return Some(fate);
                    }
                }
            }
        }
    }

    /// Reads what a proxy says of its client.
    fn take_preface(&mut self, served: &mut Served<H>) -> OpeningStep<H::Job> {
        let Some(opening) = &mut served.opening else { return OpeningStep::Begin };
        let Some(header) = &mut opening.preface else { return OpeningStep::Again };
        let closing = match header.receive(&mut self.input) {
            Ok(None) => return OpeningStep::Receive,
            Ok(Some(stated)) => {
                opening.preface = None;
                match self.state(served, stated) {
                    None => return OpeningStep::Again,
                    Some(closing) => closing,
                }
            }
            Err(_) => {
                self.count(Counter::RefusedProxyHeader);
                Closing::Reset
            }
        };
        self.input.clear();
        OpeningStep::End(Fate::Closes(closing))
    }

    /// Takes a step of the transport's handshake.
    fn shake(
        &mut self,
        served: &mut Served<H>,
        done: Option<DoneOf<H>>,
        sampled: bool,
    ) -> OpeningStep<H::Job> {
        if !served.stream.is_plain() {
            if !self.input.is_empty() {
                let goes_on = served.stream.take_raw(self.input.bytes());
                self.input.clear();
                served.handshake_comes();
                if !goes_on {
                    return OpeningStep::End(self.fail(served));
                }
            }
            if served.stream.is_undecided() {
                return OpeningStep::Receive;
            }
        }
        // the hello may have decided that the bytes are passed on, and such a transport is plain
        if !served.stream.is_plain() {
            if !self.may_shake(served) {
                return OpeningStep::End(Fate::Shakes);
            }
            let mut watch = TurnStopwatch::new(&self.metrics, sampled);
            let opening = served.stream.open(done);
            watch.lap(Activity::Handshake);
            match opening {
                Opening::Open => {}
                Opening::Receive if served.stream.has_unsent() => return OpeningStep::Again,
                Opening::Receive => return OpeningStep::Receive,
                Opening::Job(job) => {
                    // the client takes after the job what it does not take now
                    let _ = served.stream.flush();
                    return OpeningStep::End(Fate::Job(RequestId::OPENING, job));
                }
                Opening::Failed => return OpeningStep::End(self.fail(served)),
            }
        }
        served.opening = None;
        // to a connection that is passed on belongs the hello that has decided it
        let received = served.stream.take_received();
        if !received.is_empty() {
            self.input.fill(&received);
        }
        served.begin_protocol(&mut self.handler, &self.settings.limits);
        if let Some(secured) = &served.peer.secured {
            self.count(match secured.resumed {
                false => Counter::HandshakesFull,
                true => Counter::HandshakesResumed,
            });
        }
        OpeningStep::Begin
    }

    /// Receives more of a PROXY header, or of the handshake. Returns a [`Fate`] if there is no more
    /// now.
    fn receive_opening(&mut self, served: &mut Served<H>, is_raw: bool) -> Option<Fate<H::Job>> {
        if !served.readable {
            return Some(Fate::Waits);
        }
        let received = match is_raw {
            true => socket::receive(served.stream.as_fd(), self.input.spare()),
            false => served.stream.receive_opening(&mut self.wire),
        };
        match received {
            Received::Bytes(count) => {
                self.metrics.add(Counter::ReceivedBytes, count as u64);
                match is_raw {
                    true => self.input.received(count),
                    false => served.handshake_comes(),
                }
            }
            Received::Blocked => served.readable = false,
            Received::Ended => return Some(Fate::Closes(Closing::Now)),
            Received::Broken => return Some(self.fail(served)),
        }
        None
    }

    /// Whether the handshake may go on now. One that begins uses up part of the handshakes that a
    /// turn of the loop may begin.
    fn may_shake(&mut self, served: &mut Served<H>) -> bool {
        let rank = served.conn.rank();
        let Some(opening) = &mut served.opening else { return true };
        if opening.handshake != HandshakeState::Waits {
            return true;
        }
        let left = &mut self.handshakes[usize::from(rank != Rank::FIRST)];
        if *left == 0 {
            return false;
        }
        *left -= 1;
        opening.handshake = HandshakeState::Begun;
        self.count(Counter::HandshakesBegun);
        true
    }

    /// Counts why the transport cannot be opened. Returns how the connection ends.
    fn fail(&mut self, served: &mut Served<H>) -> Fate<H::Job> {
        // without a reason it was the connection that failed, which is counted when that is closed
        if let (Some(opening), Some(failure)) = (&mut served.opening, served.stream.failure()) {
            if opening.handshake != HandshakeState::Begun {
                self.count(Counter::HandshakesBegun);
            }
            opening.handshake = HandshakeState::Failed;
            self.count(match failure {
                TransportFailure::Protocol => Counter::HandshakesNotTls,
                TransportFailure::Name => Counter::HandshakesUnknownName,
                TransportFailure::Client => Counter::HandshakesRefused,
                TransportFailure::Unproven(Unproven::Missing) => Counter::HandshakesClientMissing,
                TransportFailure::Unproven(Unproven::Untrusted) => {
                    Counter::HandshakesClientUntrusted
                }
                TransportFailure::Unproven(Unproven::Expired) => Counter::HandshakesClientExpired,
                TransportFailure::Unproven(Unproven::Revoked) => Counter::HandshakesClientRevoked,
                TransportFailure::Unproven(Unproven::Unlisted) => Counter::HandshakesClientUnlisted,
                TransportFailure::Unproven(Unproven::Wrong) => Counter::HandshakesClientWrong,
                TransportFailure::Proof => Counter::HandshakesProof,
                TransportFailure::Rules => Counter::HandshakesFailed,
            });
        }
        Fate::Closes(served.stream.end_broken())
    }

    /// Sets the client that a proxy has stated, if it has stated one. Returns how the connection is
    /// closed if that client is not let in.
    fn state(&mut self, served: &mut Served<H>, address: Option<SocketAddr>) -> Option<Closing> {
        served.peer.stated = address;
        let closing = accept::admit_stated(served, self);
        // a proxy that states no client speaks for itself
        served.peer.stated.get_or_insert(served.peer.remote);
        closing
    }
}
