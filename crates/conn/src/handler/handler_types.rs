//! The types that the roles of a handler have in common.

use super::{Job, Relay};

/// The types that the roles of a handler have in common.
pub trait HandlerTypes: Sized {
    /// The part of an answer that is not copied into [`Out`](crate::Out): a large cached body, a
    /// file. The engine asks for it [`piece`](super::Bodies::piece) by piece.
    type Body: Send;
    /// Work that may block or takes CPU time.
    type Job: Job;
    /// An exchange with another server, which gives the answer; [`NoRelay`](super::NoRelay) for a handler
    /// without exchanges.
    type Relay: Relay;
    /// A log line that is complete but for the number of bytes sent.
    type Line: Send;
    /// What a request owns from its verdict until it is over; see
    /// [`Admission::settle`](super::Admission::settle).
    type Ticket: Send + Default;
    /// What the handler remembers of a connection from one request to the next; nothing, for most
    /// connections.
    type Record: Send + Default;
}
