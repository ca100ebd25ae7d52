//! The state of one stream (RFC 9113 §5.1). Idle streams are not kept, and closed ones are only
//! [remembered](crate::closed).

use crate::flow::{ReceiveWindow, SendWindow};
use crate::order::SendKey;
use crate::priority::Priority;

/// A stream that is open, or half open.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) send_window: SendWindow,
    pub(crate) receive_window: ReceiveWindow,
    /// What the peer may still send.
    pub(crate) incoming: Incoming,
    pub(crate) outgoing: Outgoing,
    /// The number of bytes that its `content-length` has promised and that have not come yet.
    pub(crate) promised: Option<u64>,
    /// The class of the stream; the smallest goes first.
    pub(crate) rank: u8,
    pub(crate) priority: Priority,
    /// The last turn that the stream took, if it takes turns.
    pub(crate) turn: u64,
    /// Whether its body has been offered for sending.
    pub(crate) is_offered: bool,
    /// Whether the expected response is one to HEAD.
    pub(crate) is_head: bool,
    /// The number of informational responses received.
    pub(crate) informational: u8,
}

/// What the peer may still send on a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Incoming {
    /// The head; only where the peer responds.
    Head,
    /// The body, or trailers.
    Body,
    /// Nothing.
    Ended,
}

/// What we may still send on a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outgoing {
    /// The head.
    Head,
    /// The body, or trailers.
    Body,
    /// Nothing.
    Ended,
}

impl Stream {
    /// The key for the order of sending.
    #[inline]
    pub(crate) fn key(&self, id: u32) -> SendKey {
        SendKey::new(self.rank, self.priority, id, self.turn)
    }

    /// Whether the stream has something to send and may send it.
    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        self.is_offered && self.outgoing == Outgoing::Body && self.send_window.open() > 0
    }
}
