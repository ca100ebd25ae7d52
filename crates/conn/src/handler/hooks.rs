//! The role that lives on a loop: its turns and rests, and connections that leave for another process.

use super::HandlerTypes;
use crate::peer::Peer;
use crate::socket::SocketId;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// What a loop reports to its handler besides requests.
pub trait Hooks: HandlerTypes {
    /// Hands over a request that another process answers, with its socket and all bytes read so far. From
    /// then on its ticket is settled by that process, or by the handler.
    ///
    /// # Errors
    /// The connection itself, if it cannot be handed over, as by default: its ticket is settled, and the
    /// connection closed.
    #[allow(clippy::result_large_err, reason = "once for a connection")]
    fn hand_over(
        &mut self,
        handed: HandedOver<Self::Ticket>,
    ) -> Result<(), HandedOver<Self::Ticket>> {
        Err(handed)
    }

    /// Called at the beginning of each turn of the loop, and at least twice a second while there is one,
    /// with the current time: the handler flushes its logs and sweeps its caches.
    fn turn(&mut self, _now: TurnTime) {}

    /// How long a loop that has nothing more to do should rest before it looks for news, so that it finds
    /// several at once; `None` for no rest. Asked once per turn.
    fn pause(&mut self) -> Option<Duration> {
        None
    }

    /// Reports that a socket which the loop has watched for a request is readable or has ended, while no
    /// request waits for it. Loops that are woken for each of their sockets report this before they look
    /// at later events.
    fn stirred(&mut self, _socket: SocketId) {}

    /// Called when there may be no turn for a while: the handler writes out what it has held back.
    fn rest(&mut self) {}
}

/// A connection on its way to another process.
pub struct HandedOver<T> {
    /// The connection.
    pub socket: OwnedFd,
    /// The head of the request and all that was received after it, as it came.
    pub received: Vec<u8>,
    /// Both ends of the connection.
    pub peer: Peer,
    /// The ticket of the request. The process that takes the connection settles it.
    pub ticket: T,
    /// The connection's place among the limited number of connections; dropped when the connection has
    /// ended.
    pub place: Box<dyn Send>,
}

/// The time, read once per turn of a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TurnTime {
    /// Milliseconds of a clock that never goes back.
    pub monotonic_ms: u64,
    /// Milliseconds since 1970.
    pub unix_ms: u64,
}
