//! What an engine serves: a handler, the protocol of its connections, and the transport beneath it.

use crate::handler::HandlerRoles;
use crate::limits::ConnectionLimits;
use crate::protocol::Protocol;
use crate::transport::Transport;
use std::net::SocketAddr;

/// The handler that an engine is given: all roles, and what is spoken.
///
/// A loop owns its handler, whose methods must neither block nor take noticeable CPU time. Work that
/// would is returned as a [`Job`](crate::Job), and its result comes back.
pub trait Handler: HandlerRoles {
    /// The protocol of its connections.
    type Protocol: Protocol<Self> + Default + Send;
    /// The layer between the bytes of its sockets and those of the protocol.
    type Transport: Transport<Self::Job>;

    /// The transport of a connection that came through a listener with this
    /// [kind](Listening) to this address, before anything was received.
    fn transport(&mut self, _listening: Listening, _local: SocketAddr) -> Self::Transport {
        Self::Transport::default()
    }

    /// The protocol of a connection whose transport is open, with these limits.
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
