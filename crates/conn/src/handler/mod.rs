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
mod handler_types;
pub mod hooks;
mod job;
pub mod journal;
pub mod process;
pub mod relay;
mod roles;

pub use admission::{Admission, Admitted, Refusal, Settled, Verdict};
pub use body::{Bodies, NoBody, Piece};
pub use handler_types::HandlerTypes;
pub use hooks::{HandedOver, Hooks, TurnTime};
pub use job::{Job, JobKind, NoJob};
pub use journal::{Answered, GivenUp, Journal};
pub use process::{BodyDecision, Process, ProcessOutcome};
pub use relay::{NoRelay, Relay, Relayed};
pub use roles::HandlerRoles;

use crate::limits::ConnectionLimits;
use crate::protocol::Protocol;
use crate::transport::Transport;
use std::net::IpAddr;

/// What an engine is given: the roles, and what is spoken on its connections.
///
/// A loop owns its handler; methods must neither block nor take noticeable CPU time. What would is
/// returned as a [`Job`] and comes back as its result.
pub trait Handler: HandlerRoles {
    /// What is spoken on its connections.
    type Protocol: Protocol<Self> + Default + Send;
    /// What lies between the bytes of its sockets and those of the protocol.
    type Transport: Transport<Self::Job>;

    /// The transport of a connection that came through a listener with this
    /// [kind](Listening) to this address, before anything was received.
    fn transport(&mut self, _listening: Listening, _local: IpAddr) -> Self::Transport {
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
