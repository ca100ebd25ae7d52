//! One stream (RFC 9113 §5.1). Idle ones are not kept and closed ones only [remembered](crate::closed).

use crate::flow::{ReceiveWindow, SendWindow};
use crate::order::SendKey;
use crate::priority::Priority;

/// A stream that is open, or half of it.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) send_window: SendWindow,
    pub(crate) receive_window: ReceiveWindow,
    /// What its messages may still have.
    pub(crate) incoming: Incoming,
    pub(crate) outgoing: Outgoing,
    /// Bytes of body that its head has promised and that have not come.
    pub(crate) promised: Option<u64>,
    /// The class it is served in; the smallest goes first.
    pub(crate) rank: u8,
    pub(crate) priority: Priority,
    /// The last turn it took, if it shares.
    pub(crate) turn: u64,
    /// There is something to send.
    pub(crate) is_offered: bool,
    /// What comes is the response to HEAD.
    pub(crate) is_head: bool,
    /// Responses before the last one that have come.
    pub(crate) informational: u8,
}

/// What the peer may still send on a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Incoming {
    /// The head; only where the peer responds.
    Head,
    /// The body, and trailers.
    Body,
    /// Nothing.
    Ended,
}

/// What we may still send on a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outgoing {
    /// The head.
    Head,
    /// The body, and trailers.
    Body,
    /// Nothing.
    Ended,
}

impl Stream {
    /// When its turn comes.
    #[inline]
    pub(crate) fn key(&self, id: u32) -> SendKey {
        SendKey::new(self.rank, self.priority, id, self.turn)
    }

    /// Whether it waits for its turn to send.
    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        self.is_offered && self.outgoing == Outgoing::Body && self.send_window.open() > 0
    }
}
