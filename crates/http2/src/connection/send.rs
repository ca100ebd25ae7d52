//! Output on streams: heads, bodies piece by piece, trailers; and the order in which streams send.

use super::{Connection, Drain, EndpointRole};
use crate::budget::{Abuse, CRUMB_BYTES, EARNED, EARNED_BY_LITTLE, USEFUL_BYTES};
use crate::flow::{ReceiveWindow, SendWindow};
use crate::frame::{self, FrameHeader, HEADER_BYTES, flag, kind};
use crate::hpack::encode::NO_TABLE;
use crate::order::SendKey;
use crate::priority::Priority;
use crate::stream::{Incoming, Outgoing, Stream};
use std::ops::Range;

/// The number of streams that a client opens before it has the server's settings: the least number that
/// servers should allow (RFC 9113 §6.5.2).
const FIRST_STREAMS: u32 = 100;

/// The part of a message that a list of fields is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessagePart {
    /// The head of an informational response (1xx).
    Informational,
    /// The head; a body follows.
    Head,
    /// A head without a body, or trailers: the message ends.
    Last,
}

/// The stream that may send next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendTurn {
    /// The stream.
    pub stream: u32,
    /// The most bytes of its body that it may send, at least 1: limited by both windows, the peer's largest
    /// frame, and [`chunk_bytes`](super::Http2Limits::chunk_bytes).
    pub most: u32,
}

impl Connection {
    /// Appends what is [pending](Connection::flush), and then a head or trailers. `write` appends the encoded
    /// fields: encoded by [`encode`](crate::hpack::encode) just then, or earlier. Returns `false` and writes
    /// nothing if the stream is over or has had this part.
    #[inline]
    pub fn head(
        &mut self,
        out: &mut Vec<u8>,
        stream: u32,
        part: MessagePart,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> bool {
        if !self.may_have(stream, part) {
            return false;
        }
        self.flush(out);
        let start = out.len();
        out.extend_from_slice(&[0; HEADER_BYTES]);
        write(out);
        let end = out.len();
        self.head_at(out, stream, part, start..end).is_some()
    }

    /// The same for fields that are already in `out`. `place` begins with [room](HEADER_BYTES) for the header
    /// of their frame. What follows the fields stays after them. Returns the end of the frames; `None` if the
    /// stream is over or has had this part. What was pending before the fields were written must have been
    /// flushed.
    #[inline]
    pub fn head_at(
        &mut self,
        out: &mut Vec<u8>,
        stream: u32,
        part: MessagePart,
        place: Range<usize>,
    ) -> Option<usize> {
        if !self.may_have(stream, part) {
            return None;
        }
        let end = self.frame_fields(out, stream, part == MessagePart::Last, place)?;
        match part {
            MessagePart::Informational => {}
            MessagePart::Head => self.streams.get_mut(stream)?.outgoing = Outgoing::Body,
            MessagePart::Last => self.end_outgoing(stream),
        }
        Some(end)
    }

    /// Whether this part may come next on a stream.
    #[inline]
    fn may_have(&self, stream: u32, part: MessagePart) -> bool {
        match self.streams.get(stream).map(|open| open.outgoing) {
            Some(Outgoing::Head) => true,
            Some(Outgoing::Body) => part == MessagePart::Last,
            _ => false,
        }
    }

    /// Opens a stream and appends the head of its request, after what is pending. `ends` if it has no body;
    /// `is_head` if its method is HEAD. `None` if the peer allows no further stream now, or ever.
    pub fn open(
        &mut self,
        out: &mut Vec<u8>,
        ends: bool,
        is_head: bool,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Option<u32> {
        if !self.can_open() {
            return None;
        }
        let stream = if self.highest == 0 { 1 } else { self.highest + 2 };
        self.highest = stream;
        let outgoing = if ends { Outgoing::Ended } else { Outgoing::Body };
        let open = self.new_stream(Incoming::Head, outgoing, Priority::default());
        self.streams.insert(stream, Stream { is_head, ..open });
        self.flush(out);
        let start = out.len();
        out.extend_from_slice(&[0; HEADER_BYTES]);
        write(out);
        let end = out.len();
        self.frame_fields(out, stream, ends, start..end)?;
        Some(stream)
    }

    /// Whether there is a number left for a further stream.
    pub fn has_numbers(&self) -> bool {
        self.highest < 0x7fff_fffd
    }

    /// Whether the peer allows a further stream now.
    pub fn can_open(&self) -> bool {
        let allowed = match self.is_introduced() {
            true => self.peer.max_concurrent_streams,
            false => FIRST_STREAMS,
        };
        let most = allowed.min(self.limits.streams) as usize;
        self.role == EndpointRole::Client
            && self.streams.len() < most
            && self.has_numbers()
            && self.refused_above.is_none()
            && self.drain == Drain::No
            && self.fault.is_none()
    }

    pub(super) fn new_stream(
        &self,
        incoming: Incoming,
        outgoing: Outgoing,
        priority: Priority,
    ) -> Stream {
        Stream {
            send_window: SendWindow::new(self.peer.initial_window_bytes),
            receive_window: ReceiveWindow::new(self.limits.stream_window_bytes),
            incoming,
            outgoing,
            promised: None,
            rank: 0,
            priority,
            turn: 0,
            is_offered: false,
            is_head: false,
            informational: 0,
        }
    }

    /// Makes HEADERS of fields in `out`, and CONTINUATION if they are larger than the peer's largest frame.
    /// Returns their end; `None` if `place` is not within `out`.
    fn frame_fields(
        &mut self,
        out: &mut Vec<u8>,
        stream: u32,
        ends: bool,
        place: Range<usize>,
    ) -> Option<usize> {
        let Range { start, mut end } = place;
        if end > out.len() || end < start + HEADER_BYTES {
            return None;
        }
        if !self.is_table_closed && self.peer.smallest_table_bytes < 4096 {
            // a smaller table must be acknowledged before the next field (RFC 7541 §4.2)
            self.is_table_closed = true;
            out.insert(start + HEADER_BYTES, NO_TABLE);
            end += 1;
        }
        let len = end - start - HEADER_BYTES;
        let most = self.peer.max_frame_bytes as usize;
        let ends = if ends { flag::END_STREAM } else { 0 };
        let whole = if len <= most { flag::END_HEADERS } else { 0 };
        let header =
            FrameHeader { len: len.min(most), kind: kind::HEADERS, flags: ends | whole, stream };
        out[start..start + HEADER_BYTES].copy_from_slice(&header.bytes());
        if len > most {
            let rest = out.split_off(start + HEADER_BYTES + most);
            let (rest, behind) = rest.split_at(len - most);
            let mut rest = rest.chunks(most).peekable();
            while let Some(piece) = rest.next() {
                let flags = if rest.peek().is_none() { flag::END_HEADERS } else { 0 };
                frame::write(out, kind::CONTINUATION, flags, stream, piece);
            }
            end = out.len();
            out.extend_from_slice(behind);
        }
        Some(end)
    }

    /// Announces that a part of a stream's body can be sent: the stream takes turns until it is
    /// [paused](Connection::pause) or its body ends.
    #[inline]
    pub fn offer(&mut self, stream: u32) {
        if let Some(open) = self.streams.get_mut(stream)
            && !open.is_offered
        {
            self.turns += 1;
            (open.is_offered, open.turn) = (true, self.turns);
            self.line_up(stream);
        }
    }

    /// Announces that nothing of a stream's body can be sent until it is [offered](Connection::offer) again.
    #[inline]
    pub fn pause(&mut self, stream: u32) {
        if let Some(open) = self.streams.get_mut(stream) {
            open.is_offered = false;
            self.line_up(stream);
        }
    }

    /// Sets the class of a stream: smaller ones go first, whatever the client's priorities are.
    #[inline]
    pub fn set_rank(&mut self, stream: u32, rank: u8) {
        if let Some(open) = self.streams.get_mut(stream)
            && open.rank != rank
        {
            open.rank = rank;
            self.line_up(stream);
        }
    }

    /// Sets the priority of a stream within its class (RFC 9218 §8: the response may set another).
    pub fn set_priority(&mut self, stream: u32, priority: Priority) {
        if let Some(open) = self.streams.get_mut(stream) {
            open.priority = priority;
            self.line_up(stream);
        }
    }

    /// Updates the place of a stream among the ready ones.
    #[inline]
    pub(super) fn line_up(&mut self, stream: u32) {
        let Some(place) = self.streams.place(stream) else { return };
        let Some((_, open)) = self.streams.at(place) else { return };
        if open.is_ready() {
            self.ready.set(place, open.key(stream));
        } else {
            self.ready.remove(place);
        }
    }

    /// The stream that may send next; `None` if no stream has data to send and the windows for it.
    #[inline]
    pub fn next(&self) -> Option<SendTurn> {
        let (_, place) = self.ready.first()?;
        let (stream, open) = self.streams.at(place)?;
        let most = self.most(open);
        (most > 0).then_some(SendTurn { stream, most })
    }

    /// How many bytes of a stream's body may be sent at once, before the stream is
    /// [offered](Connection::offer): 0 if another one goes first.
    #[inline]
    pub fn send_capacity(&self, stream: u32) -> u32 {
        let Some(open) = self.streams.get(stream) else { return 0 };
        let is_first = |first: SendKey| open.key(stream).is_before(first);
        match self.ready.first() {
            Some((first, _)) if !is_first(first) => 0,
            _ if open.outgoing != Outgoing::Body => 0,
            _ => self.most(open),
        }
    }

    #[inline]
    fn most(&self, open: &Stream) -> u32 {
        let windows = open.send_window.open().min(self.send_window.open());
        windows.min(self.limits.chunk_bytes).min(self.peer.max_frame_bytes)
    }

    /// The header of a DATA frame with the next `len` bytes of a stream's body, which the caller sends
    /// directly after it. `len` is at most what [`next`](Connection::next) or
    /// [`send_capacity`](Connection::send_capacity) returned, and may be 0 only if the body `ends`. `None` if
    /// the stream is over or may not send that.
    #[inline]
    pub fn data(&mut self, stream: u32, len: u32, ends: bool) -> Option<[u8; HEADER_BYTES]> {
        let most = self.most(self.streams.get(stream)?);
        let open = self.streams.get_mut(stream)?;
        if open.outgoing != Outgoing::Body || len > most || (len == 0 && !ends) {
            return None;
        }
        open.send_window.spend(len);
        self.send_window.spend(len);
        let is_cut = open.send_window.open() == 0 || self.send_window.open() == 0;
        if len >= USEFUL_BYTES || ends {
            self.budgets.earn(EARNED);
        } else if !is_cut || len >= CRUMB_BYTES {
            self.budgets.earn(EARNED_BY_LITTLE);
        } else {
            let charged = self.budgets.charge(Abuse::Crumbs, 1, self.now_ms);
            if let Err(fault) = charged {
                self.fail(fault);
                return None;
            }
        }
        if ends {
            self.end_outgoing(stream);
        } else if open.is_offered {
            self.turns += 1;
            open.turn = self.turns;
            self.line_up(stream);
        }
        let flags = if ends { flag::END_STREAM } else { 0 };
        Some(FrameHeader { len: len as usize, kind: kind::DATA, flags, stream }.bytes())
    }

    /// Whether the body of a stream is offered, but waits for the peer to open the stream's window.
    pub fn is_blocked(&self, stream: u32) -> bool {
        let blocked = |open: &Stream| open.is_offered && open.send_window.open() == 0;
        self.streams.get(stream).is_some_and(blocked)
    }

    /// Whether the peer must open the connection's window before any body can continue.
    pub fn is_closed(&self) -> bool {
        self.send_window.open() == 0
    }
}
