//! What an engine serves: a handler, what is spoken on its connections, and what lies beneath that.

use crate::handler::HandlerRoles;
use crate::limits::ConnectionLimits;
use crate::protocol::Protocol;
use crate::transport::Transport;
use std::net::SocketAddr;

/// What an engine is given: the roles, and what is spoken on its connections.
///
/// A loop owns its handler; methods must neither block nor take noticeable CPU time. What would is
/// returned as a [`Job`](crate::Job) and comes back as its result.
pub trait Handler: HandlerRoles {
    /// What is spoken on its connections.
    type Protocol: Protocol<Self> + Default + Send;
    /// What lies between the bytes of its sockets and those of the protocol.
    type Transport: Transport<Self::Job>;

    /// The transport of a connection that came through a listener with this
    /// [kind](Listening) to this address, before anything was received.
    fn transport(&mut self, _listening: Listening, _local: SocketAddr) -> Self::Transport {
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
