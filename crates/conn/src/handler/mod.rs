//! What an engine is given: a handler that knows the answers, in its five roles.
//!
//! | role | asked | module |
//! |---|---|---|
//! | [`Admission`] | which clients are served, in which order, and what the others are told | [`admission`] |
//! | [`Process`] | what the answer is | [`process`] |
//! | [`Bodies`] | the next bytes of an answer that is not in [`Out`](crate::Out) | [`body`] |
//! | [`Journal`] | what is timed and logged | [`journal`] |
//! | [`Relay`] | an exchange with another server, which gives the answer | [`relay`] |
//! | [`Hooks`] | what else happens on a loop, and which connections it makes | [`hooks`] |
//!
//! Most methods have a default: a handler that only answers implements [`Process`] and names its types.

pub mod admission;
pub mod body;
pub mod hooks;
pub mod journal;
pub mod process;
pub mod relay;

pub use admission::{Admission, Admitted, Rank, Refusal, Settled, Verdict};
pub use body::{Bodies, NoBody, Piece};
pub use hooks::{HandedOver, Hooks, TurnTime};
pub use journal::{Answered, GivenUp, Journal, Stages};
pub use process::{BodyDecision, Job, JobKind, NoJob, Process, ProcessOutcome};
pub use relay::{NoRelay, Relay, Relayed};

use crate::protocol::Protocol;
use crate::step::ConnectionLimits;
use crate::transport::Transport;

/// The types that the roles of a handler have in common.
pub trait HandlerTypes: Sized {
    /// The part of an answer that is not copied into [`Out`](crate::Out): a large cached body, a
    /// file. The engine asks for it [`piece`](Bodies::piece) by piece.
    type Body: Send;
    /// Work that may block or takes CPU time.
    type Job: Job;
    /// An exchange with another server, which answers; [`NoRelay`] if there is none.
    type Relay: Relay;
    /// A log line that waits for its number of bytes.
    type Line: Send;
    /// What a request owns from its verdict until it is over; see
    /// [`Admission::settle`].
    type Ticket: Send + Default;
    /// What is known of a connection from one of its requests to the next. Most have nothing to remember.
    type Record: Send + Default;
}

/// The process stage and all that belongs to it: decides which requests are admitted and what is answered.
///
/// A loop owns its handler; methods must neither block nor take noticeable CPU time. What would is
/// returned as a [`Job`] and comes back as its result.
pub trait Handler: Admission + Process + Bodies + Journal + Hooks {
    /// What is spoken on its connections.
    type Protocol: Protocol<Self> + Default + Send;
    /// What lies between the bytes of its sockets and those of the protocol.
    type Transport: Transport<Self::Job>;

    /// The transport of a connection that came through a listener with this
    /// [kind](Listening), before anything was received.
    fn transport(&mut self, _listening: Listening) -> Self::Transport {
        Self::Transport::default()
    }

    /// What is spoken on a connection whose transport is open, with these bounds.
    fn protocol(
        &mut self,
        _transport: &Self::Transport,
        _limits: &ConnectionLimits,
    ) -> Self::Protocol {
        Self::Protocol::default()
    }
}

/// What kind of connections come through a listener: a number that means something to the handler, and
/// nothing to an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Listening(pub u32);
