//! The role that times requests and logs them.

use super::HandlerTypes;
use crate::peer::Peer;
use crate::request::{ArrivalTimes, Request};

/// Begins and ends log lines. The defaults write nothing and read no clock.
pub trait Journal: HandlerTypes {
    /// Nanoseconds of a clock that never goes back, if the handler wants to know how long the stages of a
    /// request take; else 0. Asked once or twice for each request; the last time is right before
    /// [`verdict`](super::Admission::verdict), when the request is there.
    fn tick(&mut self) -> u64 {
        0
    }

    /// Begins a log line for a request that is being answered; `None` if nothing is logged.
    fn line(&mut self, _answered: &Answered<'_, Self::Ticket>) -> Option<Self::Line> {
        None
    }

    /// Begins a log line for a request that is answered by an exchange with another server, or because no
    /// exchange was possible.
    fn relayed_line(
        &mut self,
        answered: &Answered<'_, Self::Ticket>,
        _relay: &Self::Relay,
    ) -> Option<Self::Line> {
        self.line(answered)
    }

    /// Reports that an admitted request ends without an answer, because its connection ends. Called
    /// before its ticket is settled, with the exchange that was to answer it, if there is one.
    fn given_up(&mut self, _asked: &GivenUp<'_, Self::Ticket>, _relay: Option<&Self::Relay>) {}

    /// Reports that the answer of another server ends before it is whole. The line says so if that server
    /// is to blame.
    fn cut_off(&mut self, _line: &mut Self::Line, _relay: &Self::Relay) {}

    /// Reports that a tunnel is over, and how it ended.
    fn tunnel_over(&mut self, _line: &mut Self::Line, _relay: &Self::Relay, _over: TunnelOver) {}

    /// Ends a log line: the answer was sent, with `body_bytes` of its body, or never will be. When
    /// several answers leave together, only the last waits until it is sent.
    fn log(&mut self, _line: Self::Line, _body_bytes: u64) {}
}

/// How a tunnel has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TunnelOver {
    /// Both ends have ended their direction in order, the client first.
    Client,
    /// Both ends have ended their direction in order, the other server first.
    Server,
    /// The other server has broken it off.
    Broken,
    /// The client has broken it off, or this server has.
    Cut,
}

/// A request whose answer is written.
#[derive(Debug)]
pub struct Answered<'a, T> {
    /// Both ends of its connection.
    pub peer: &'a Peer,
    /// `None` if no head could be read.
    pub request: Option<&'a Request<'a>>,
    /// The ticket of the request; `None` if it was not judged.
    pub ticket: Option<&'a T>,
    /// The status of the answer.
    pub status: u16,
    /// When the request came.
    pub stages: ArrivalTimes,
}

/// A request that ends without an answer.
#[derive(Debug)]
pub struct GivenUp<'a, T> {
    /// Both ends of its connection.
    pub peer: &'a Peer,
    /// The request.
    pub request: &'a Request<'a>,
    /// The ticket of the request.
    pub ticket: &'a T,
    /// When the request came.
    pub stages: ArrivalTimes,
}
