//! Complete header blocks: which message they belong to, and whether it may be served.

use super::end::FrameError;
use super::{Connection, Drain, EndpointRole, Http2Event};
use crate::budget::{Abuse, COPY_BYTES, EARNED, MOST_HEAD_COPIES, MOST_INFORMATIONAL, cost};
use crate::closed::StreamEnd;
use crate::error::{ErrorCode, Fault};
use crate::fields::{DecodedFields, FieldLimits, MessageKind};
use crate::priority::Priority;
use crate::stream::{Incoming, Outgoing, Stream};

type HeadOutcome<'i> = Result<Option<Http2Event<'i>>, FrameError>;

/// A complete header block.
#[derive(Clone, Copy, Debug)]
pub(super) struct WholeBlock<'b> {
    /// The stream of the block.
    pub(super) stream: u32,
    /// Whether the message ends with the block.
    pub(super) ends: bool,
    /// The stream on which its own depends, as stated in the frame (RFC 9113 §6.2); otherwise 0.
    pub(super) depends_on: u32,
    /// The fields, encoded.
    pub(super) bytes: &'b [u8],
}

impl Connection {
    /// Processes a header block. It is decoded in any case, because later blocks depend on it.
    pub(super) fn block<'i>(
        &mut self,
        block: &WholeBlock<'_>,
        fields: &mut DecodedFields,
    ) -> HeadOutcome<'i> {
        let event = self.message(block, fields)?;
        let WholeBlock { stream, depends_on, .. } = *block;
        if depends_on == stream {
            return Err(FrameError::Stream(stream, Fault::protocol("a stream depends on itself")));
        }
        Ok(event)
    }

    fn message<'i>(
        &mut self,
        block: &WholeBlock<'_>,
        fields: &mut DecodedFields,
    ) -> HeadOutcome<'i> {
        let WholeBlock { stream, bytes, .. } = *block;
        match self.streams.get(stream).map(|open| open.incoming) {
            Some(Incoming::Head) => self.response(block, fields),
            Some(Incoming::Body) => self.trailers(block, fields),
            Some(Incoming::Ended) => {
                self.decode(MessageKind::Trailers, bytes, fields)?;
                let reason = "HEADERS after the end of the message";
                Err(FrameError::Stream(stream, Fault::new(ErrorCode::STREAM_CLOSED, reason)))
            }
            None if self.role == EndpointRole::Server && stream > self.highest => {
                self.request(block, fields)
            }
            None => self.late(block, fields),
        }
    }

    fn decode(
        &mut self,
        message: MessageKind,
        bytes: &[u8],
        fields: &mut DecodedFields,
    ) -> Result<(), Fault> {
        fields.reset(message, self.limits.fields);
        self.decoder
            .decode(bytes, fields)
            .map_err(|damage| Fault::new(ErrorCode::COMPRESSION_ERROR, damage.reason()))?;
        if fields.is_over() {
            self.budgets.charge(Abuse::Overhead, cost::LARGE_HEAD, self.now_ms)?;
        }
        self.charge_copies()
    }

    /// Charges what a block copied from the table beyond what any head may have.
    fn charge_copies(&mut self) -> Result<(), Fault> {
        match self.decoder.copied_bytes().saturating_sub(MOST_HEAD_COPIES) / COPY_BYTES {
            0 => Ok(()),
            copies => {
                let cost = u32::try_from(copies).unwrap_or(u32::MAX);
                self.budgets.charge(Abuse::Overhead, cost, self.now_ms)
            }
        }
    }

    /// Handles a block for a stream that is over, or was never open.
    fn late<'i>(&mut self, block: &WholeBlock<'_>, fields: &mut DecodedFields) -> HeadOutcome<'i> {
        let WholeBlock { stream, bytes, .. } = *block;
        if self.is_idle(stream) {
            return Err(Fault::protocol("HEADERS on an idle stream").into());
        }
        fields.reset(MessageKind::Trailers, FieldLimits { bytes: 0, fields: 0 });
        self.decoder
            .decode(bytes, fields)
            .map_err(|damage| Fault::new(ErrorCode::COMPRESSION_ERROR, damage.reason()))?;
        self.budgets.charge(Abuse::Overhead, cost::EMPTY, self.now_ms)?;
        self.charge_copies()?;
        let fault = Fault::new(ErrorCode::STREAM_CLOSED, "HEADERS on a stream that is over");
        match self.closed.end_of(stream) {
            _ if self.is_ignored(stream) => Ok(None),
            Some(StreamEnd::Reset) => Ok(None),
            Some(StreamEnd::PeerReset) => Err(FrameError::Stream(stream, fault)),
            Some(StreamEnd::Ended) => Err(fault.into()),
            None => {
                Err(Fault::protocol("a stream is lower than one that was opened before").into())
            }
        }
    }

    fn request<'i>(
        &mut self,
        block: &WholeBlock<'_>,
        fields: &mut DecodedFields,
    ) -> HeadOutcome<'i> {
        let WholeBlock { stream, ends, bytes, .. } = *block;
        self.highest = stream;
        self.decode(MessageKind::Request, bytes, fields)?;
        if self.is_ignored(stream) {
            // the block was decoded all the same
            self.budgets.charge(Abuse::Overhead, cost::EMPTY, self.now_ms)?;
            return Ok(None);
        }
        if let Drain::Announced(opened) = &mut self.drain {
            *opened += 1;
            if *opened > self.limits.streams {
                self.drain_now();
            }
        }
        let wrong = |fault| Err(FrameError::Stream(stream, fault));
        if self.streams.len() >= self.limits.streams as usize {
            let reason = "more streams than may be open at once";
            return wrong(Fault::new(ErrorCode::REFUSED_STREAM, reason));
        }
        if let Some(fault) = fields.fault() {
            return wrong(Fault::protocol(fault));
        }
        if fields.protocol().is_some() && !self.limits.extended_connect {
            return wrong(Fault::protocol("an extended CONNECT was not allowed"));
        }
        if ends && fields.content_length().is_some_and(|length| length > 0) {
            return wrong(Fault::length());
        }
        let priority = self.first_priority(stream, fields);
        let incoming = if ends { Incoming::Ended } else { Incoming::Body };
        let open = self.new_stream(incoming, Outgoing::Head, priority);
        let promised = fields.content_length();
        self.streams.insert(stream, Stream { promised, ..open });
        self.budgets.earn(EARNED);
        Ok(Some(match fields.is_over() {
            true => Http2Event::TooLarge { stream, ends },
            false => Http2Event::Request { stream, ends },
        }))
    }

    /// The priority of a new stream. A PRIORITY_UPDATE that came before the stream overrides its head (RFC
    /// 9218 §7). Without any priority, responses share the connection: the client may be a proxy that knows
    /// nothing of urgency (§10).
    fn first_priority(&mut self, stream: u32, fields: &DecodedFields) -> Priority {
        let mut early = None;
        if !self.early.is_empty() {
            early = self.early.iter().find(|(id, _)| *id == stream).map(|(_, priority)| *priority);
            // streams with lower numbers will never be opened
            self.early.retain(|(id, _)| *id > stream);
        }
        let said = || match fields.priority() {
            [] => Priority { is_incremental: true, ..Priority::default() },
            value => Priority::read(value),
        };
        early.unwrap_or_else(said)
    }

    fn trailers<'i>(
        &mut self,
        block: &WholeBlock<'_>,
        fields: &mut DecodedFields,
    ) -> HeadOutcome<'i> {
        let WholeBlock { stream, ends, bytes, .. } = *block;
        self.decode(MessageKind::Trailers, bytes, fields)?;
        let promised = self.streams.get(stream).and_then(|open| open.promised);
        let fault = match fields.fault() {
            _ if !ends => Fault::protocol("trailers do not end the message"),
            Some(fault) => Fault::protocol(fault),
            None if promised.is_some_and(|left| left > 0) => Fault::length(),
            None if fields.is_over() => Fault::calm("trailers are too large"),
            None => {
                self.end_incoming(stream);
                return Ok(Some(Http2Event::Trailers { stream }));
            }
        };
        Err(FrameError::Stream(stream, fault))
    }

    fn response<'i>(
        &mut self,
        block: &WholeBlock<'_>,
        fields: &mut DecodedFields,
    ) -> HeadOutcome<'i> {
        let WholeBlock { stream, ends, bytes, .. } = *block;
        self.decode(MessageKind::Response, bytes, fields)?;
        let Some(open) = self.streams.get_mut(stream) else { return Ok(None) };
        let wrong = |fault| Err(FrameError::Stream(stream, fault));
        if let Some(fault) = fields.fault() {
            return wrong(Fault::protocol(fault));
        }
        if fields.is_over() {
            return wrong(Fault::calm("a head is too large"));
        }
        let status = fields.status();
        if let 100..=199 = status {
            open.informational += 1;
            if ends || status == 101 {
                return wrong(Fault::protocol("a response ends before the last one"));
            }
            if open.informational > MOST_INFORMATIONAL {
                return wrong(Fault::calm("too many responses before the last one"));
            }
            return Ok(Some(Http2Event::Informational { stream }));
        }
        // such a response has no body, whatever its length says (RFC 9110 §6.4.1)
        let is_empty = open.is_head || matches!(status, 204 | 304);
        open.promised = if is_empty { Some(0) } else { fields.content_length() };
        if ends && open.promised.is_some_and(|length| length > 0) {
            return wrong(Fault::length());
        }
        open.incoming = Incoming::Body;
        self.budgets.earn(EARNED);
        if ends {
            self.end_incoming(stream);
        }
        Ok(Some(Http2Event::Response { stream, ends }))
    }
}
