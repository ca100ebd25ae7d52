//! The role that times requests and logs them.

use super::HandlerTypes;
use crate::peer::Peer;
use crate::request::{ArrivalTimes, Request};

/// Begins and ends log lines. The defaults write nothing and read no clock.
pub trait Journal: HandlerTypes {
    /// Nanoseconds of a clock that never goes back, if the handler wants to know how long the stages
    /// of a request take; else 0. Asked once or twice for each request: when it is there, right before
    /// [`verdict`](super::Admission::verdict).
    fn tick(&mut self) -> u64 {
        0
    }

    /// Begins a log line for a request that is being answered; `None` if nothing is logged.
    fn line(&mut self, _answered: &Answered<'_, Self::Ticket>) -> Option<Self::Line> {
        None
    }

    /// The same for a request that is answered by an exchange with another server, or because there was
    /// none.
    fn relayed_line(
        &mut self,
        answered: &Answered<'_, Self::Ticket>,
        _relay: &Self::Relay,
    ) -> Option<Self::Line> {
        self.line(answered)
    }

    /// A request that was admitted ends without an answer: its connection does. Called before its ticket
    /// is settled, with the exchange that was to answer it, if there is one.
    fn given_up(&mut self, _asked: &GivenUp<'_, Self::Ticket>, _relay: Option<&Self::Relay>) {}

    /// An answer of another server ends before it is whole. The line says so if that server is to blame.
    fn cut_off(&mut self, _line: &mut Self::Line, _relay: &Self::Relay) {}

    /// A tunnel is over, and how it has come to its end.
    fn tunnel_over(&mut self, _line: &mut Self::Line, _relay: &Self::Relay, _over: TunnelOver) {}

    /// Ends a log line: the answer was sent, with `body_bytes` of its body, or never will be. Of
    /// answers that leave together only the last waits for that.
    fn log(&mut self, _line: Self::Line, _body_bytes: u64) {}
}

/// How a tunnel has come to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TunnelOver {
    /// Both have ended their direction, and the client was first.
    Client,
    /// The same, and the other server was first.
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
    /// What it owns; `None` if it was not judged.
    pub ticket: Option<&'a T>,
    /// The status it is answered with.
    pub status: u16,
    /// When it came.
    pub stages: ArrivalTimes,
}

/// A request that ends without an answer.
#[derive(Debug)]
pub struct GivenUp<'a, T> {
    /// Both ends of its connection.
    pub peer: &'a Peer,
    /// What was asked.
    pub request: &'a Request<'a>,
    /// What it owns.
    pub ticket: &'a T,
    /// When it came.
    pub stages: ArrivalTimes,
}
