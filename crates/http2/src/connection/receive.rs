//! Input from the peer: the preface, and then frame after frame.

use super::end::FrameError;
use super::head::WholeBlock;
use super::{Connection, Drain, EndpointRole, Expect, HeaderBlock, Http2Event, ReceiveProgress};
use crate::budget::{
    Abuse, EARNED, EARNED_BY_LITTLE, MOST_CONTINUATIONS, MOST_CONTROL_BYTES, USEFUL_BYTES, cost,
};
use crate::closed::StreamEnd;
use crate::error::{ErrorCode, Fault};
use crate::fields::DecodedFields;
use crate::frame::{self, FrameHeader, HEADER_BYTES, PAYLOAD_BYTES, PREFACE, flag, kind, number31};
use crate::priority::Priority;
use crate::stream::{Incoming, Outgoing};

/// The number of bytes used, and the event.
type ReceivedEvent<'i> = (usize, Result<Option<Http2Event<'i>>, FrameError>);

/// The result when more input is needed.
const MORE: ReceivedEvent<'static> = (0, Ok(None));

impl Connection {
    /// Processes `input`, which begins where the last call ended, up to the first event. A head goes into
    /// `fields`. `now_ms` is the time of any clock that does not go back.
    ///
    /// Call this again with the rest of the input until there is no event. The rest that is left then must be
    /// passed again with more input after it: there must be room for up to 9 bytes and [`PAYLOAD_BYTES`].
    /// Bodies are passed on as they come.
    pub fn receive<'i>(
        &mut self,
        input: &'i [u8],
        fields: &mut DecodedFields,
        now_ms: u64,
    ) -> ReceiveProgress<'i> {
        self.now_ms = self.now_ms.max(now_ms);
        let mut used = 0;
        loop {
            if let Some(fault) = self.fault {
                let is_told = std::mem::replace(&mut self.is_fault_told, true);
                let event = (!is_told).then_some(Http2Event::Failed(fault));
                return ReceiveProgress { used: input.len(), event };
            }
            if let Some(event) = self.next_refused() {
                return ReceiveProgress { used, event: Some(event) };
            }
            let (count, result) = self.step(&input[used..], fields);
            used += count;
            let event = match result {
                Ok(None) if count == 0 => return ReceiveProgress { used, event: None },
                Ok(event) => event,
                Err(FrameError::Stream(stream, fault)) => Some(self.reset_for(stream, fault)),
                Err(FrameError::Connection(fault)) => {
                    self.fail(fault);
                    None
                }
            };
            if self.control.len() > MOST_CONTROL_BYTES {
                self.fail(Fault::calm("answers to its frames are not taken"));
            }
            if event.is_some() {
                return ReceiveProgress { used, event };
            }
        }
    }

    /// The next stream of ours that the peer has refused by GOAWAY.
    fn next_refused(&mut self) -> Option<Http2Event<'static>> {
        let above = self.refused_above.filter(|_| !self.streams.is_empty())?;
        let stream = self.streams.iter().map(|(id, _)| id).filter(|&id| id > above).min()?;
        self.forget(stream, StreamEnd::PeerReset);
        Some(Http2Event::Reset { stream, code: ErrorCode::REFUSED_STREAM, fault: None })
    }

    fn step<'i>(&mut self, input: &'i [u8], fields: &mut DecodedFields) -> ReceivedEvent<'i> {
        match self.expect {
            Expect::Frame => self.frame(input, fields),
            Expect::Data { stream, bytes, padding, ends } => {
                self.piece(input, stream, bytes, padding, ends)
            }
            Expect::Skip(left) => {
                let count = left.min(input.len());
                self.skip(left - count);
                // using no bytes is progress, too, if none was left to skip
                if left == 0 { self.frame(input, fields) } else { (count, Ok(None)) }
            }
            Expect::Settings => match FrameHeader::read(input) {
                None => MORE,
                Some(header) if header.kind == kind::SETTINGS && !header.has(flag::ACK) => {
                    self.frame(input, fields)
                }
                Some(_) => (0, Err(Fault::protocol("the first frame is not SETTINGS").into())),
            },
            Expect::Preface => match input.get(..PREFACE.len()) {
                Some(preface) if preface == PREFACE => {
                    self.expect = Expect::Settings;
                    (PREFACE.len(), Ok(None))
                }
                None if PREFACE.starts_with(input) => MORE,
                _ => (0, Err(Fault::protocol("the connection preface is wrong").into())),
            },
            Expect::Nothing => (input.len(), Ok(None)),
        }
    }

    fn skip(&mut self, bytes: usize) {
        self.expect = if bytes == 0 { Expect::Frame } else { Expect::Skip(bytes) };
    }

    fn frame<'i>(&mut self, input: &'i [u8], fields: &mut DecodedFields) -> ReceivedEvent<'i> {
        let Some(header) = FrameHeader::read(input) else { return MORE };
        if header.len > PAYLOAD_BYTES {
            return (0, Err(Fault::size("a frame is larger than allowed").into()));
        }
        let is_expected = |block: &HeaderBlock| {
            header.kind == kind::CONTINUATION && header.stream == block.stream
        };
        if !self.block.as_ref().is_none_or(|block| is_expected(block)) {
            return (0, Err(Fault::protocol("a header block is interrupted").into()));
        }
        match header.kind {
            kind::DATA => return self.data_begins(header, &input[HEADER_BYTES..]),
            kind::HEADERS..=kind::CONTINUATION | kind::PRIORITY_UPDATE => {}
            _ => {
                self.skip(header.len);
                let charged = self.budgets.charge(Abuse::Overhead, cost::FRAME, self.now_ms);
                return (HEADER_BYTES, charged.map(|()| None).map_err(FrameError::from));
            }
        }
        let end = HEADER_BYTES + header.len;
        let Some(payload) = input.get(HEADER_BYTES..end) else { return MORE };
        let result = match header.kind {
            kind::HEADERS => self.headers(header, payload, fields),
            kind::CONTINUATION => self.continuation(header, payload, fields),
            kind::PRIORITY => self.priority(header, payload),
            kind::RST_STREAM => self.rst_stream(header, payload),
            kind::SETTINGS => self.settings(header, payload),
            kind::PING => self.ping_frame(header, payload),
            kind::GOAWAY => self.goaway(header, payload),
            kind::WINDOW_UPDATE => self.window_update(header, payload),
            kind::PRIORITY_UPDATE => self.priority_update(header, payload),
            _ => Err(Fault::protocol("the peer may not push").into()),
        };
        (end, result)
    }

    /// Whether a stream was never opened.
    pub(super) fn is_idle(&self, stream: u32) -> bool {
        stream.is_multiple_of(2) || stream > self.highest
    }

    /// Whether a stream is ignored because of our shutdown.
    pub(super) fn is_ignored(&self, stream: u32) -> bool {
        matches!(self.drain, Drain::Last(last) if stream > last)
            && self.role == EndpointRole::Server
    }

    fn overhead(&mut self, cost: u32) -> Result<(), Fault> {
        self.budgets.charge(Abuse::Overhead, cost, self.now_ms)
    }

    /// DATA (RFC 9113 §6.1). `rest` follows the frame's header.
    fn data_begins<'i>(&mut self, header: FrameHeader, rest: &'i [u8]) -> ReceivedEvent<'i> {
        let FrameHeader { len, stream, .. } = header;
        let (padding, prefix) = match (header.has(flag::PADDED), rest.first()) {
            (false, _) => (0, 0),
            (true, None) if len > 0 => return MORE,
            (true, Some(&padding)) if usize::from(padding) < len => (usize::from(padding), 1),
            (true, _) => {
                return (0, Err(Fault::protocol("a frame has more padding than payload").into()));
            }
        };
        let bytes = len - prefix - padding;
        let used = HEADER_BYTES + prefix;
        if let Err(fault) = self.receive_window.receive(len as u32) {
            return (0, Err(fault.into()));
        }
        match self.data_allowed(header, bytes) {
            Ok(true) => {}
            refused => {
                self.release(len as u32);
                self.skip(bytes + padding);
                return (used, refused.map(|_| None));
            }
        }
        let ends = header.has(flag::END_STREAM);
        self.consumed(stream, len - bytes);
        self.expect = Expect::Data { stream, bytes, padding, ends };
        if bytes > 0 {
            return (used, Ok(None));
        }
        self.skip(padding);
        if !ends {
            return (used, self.overhead(cost::EMPTY).map(|()| None).map_err(FrameError::from));
        }
        self.end_incoming(stream);
        (used, Ok(Some(Http2Event::Data { stream, bytes: &[], ends })))
    }

    /// Whether the data of this frame is passed on, rather than dropped because its stream is over.
    fn data_allowed(&mut self, header: FrameHeader, bytes: usize) -> Result<bool, FrameError> {
        let stream = header.stream;
        let Some(open) = self.streams.get_mut(stream) else {
            if self.is_idle(stream) {
                return Err(Fault::protocol("DATA on an idle stream").into());
            }
            let fault = Fault::new(ErrorCode::STREAM_CLOSED, "DATA on a stream that is over");
            return match self.closed.end_of(stream) {
                _ if self.is_ignored(stream) => Ok(false),
                Some(StreamEnd::Reset) => {
                    self.overhead(cost::FRAME).map(|()| false).map_err(FrameError::from)
                }
                Some(StreamEnd::PeerReset) => Err(FrameError::Stream(stream, fault)),
                Some(StreamEnd::Ended) | None => Err(fault.into()),
            };
        };
        let wrong = |fault| Err(FrameError::Stream(stream, fault));
        match open.incoming {
            Incoming::Body => {}
            Incoming::Head => return wrong(Fault::protocol("DATA before a head")),
            Incoming::Ended => {
                let reason = "DATA after the end of the message";
                return wrong(Fault::new(ErrorCode::STREAM_CLOSED, reason));
            }
        }
        if let Some(promised) = open.promised {
            let left = promised.checked_sub(bytes as u64);
            open.promised = left;
            let is_short = header.has(flag::END_STREAM) && left != Some(0);
            if left.is_none() || is_short {
                return wrong(Fault::length());
            }
        }
        open.receive_window
            .receive(header.len as u32)
            .map_err(|fault| FrameError::Stream(stream, fault))?;
        match bytes {
            0 => {}
            _ if bytes < USEFUL_BYTES as usize => self.budgets.earn(EARNED_BY_LITTLE),
            _ => self.budgets.earn(EARNED),
        }
        Ok(true)
    }

    /// Passes on a part of a frame's data.
    fn piece<'i>(
        &mut self,
        input: &'i [u8],
        stream: u32,
        bytes: usize,
        padding: usize,
        ends: bool,
    ) -> ReceivedEvent<'i> {
        if self.streams.place(stream).is_none() {
            // the stream was reset in the middle of the frame
            self.skip(bytes + padding);
            return self.step_on(input);
        }
        let count = bytes.min(input.len());
        if count == 0 {
            return MORE;
        }
        let ends = if count < bytes {
            self.expect = Expect::Data { stream, bytes: bytes - count, padding, ends };
            false
        } else {
            self.skip(padding);
            ends
        };
        if ends {
            self.end_incoming(stream);
        }
        (count, Ok(Some(Http2Event::Data { stream, bytes: &input[..count], ends })))
    }

    fn step_on<'i>(&mut self, input: &'i [u8]) -> ReceivedEvent<'i> {
        let Expect::Skip(left) = self.expect else { return MORE };
        let count = left.min(input.len());
        self.skip(left - count);
        (count, Ok(None))
    }

    /// HEADERS (§6.2).
    fn headers<'i>(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        fields: &mut DecodedFields,
    ) -> Result<Option<Http2Event<'i>>, FrameError> {
        let FrameHeader { stream, .. } = header;
        if stream == 0 || (self.role == EndpointRole::Server && stream.is_multiple_of(2)) {
            return Err(Fault::protocol("HEADERS on a stream that a client cannot open").into());
        }
        let Some(mut fragment) = frame::unpadded(payload, header.has(flag::PADDED)) else {
            return Err(Fault::protocol("a frame has more padding than payload").into());
        };
        let mut depends_on = 0;
        if header.has(flag::PRIORITY) {
            let Some((priority, rest)) = fragment.split_at_checked(5) else {
                return Err(Fault::size("HEADERS is too short for its priority").into());
            };
            (depends_on, fragment) = (number31(priority), rest);
        }
        let ends = header.has(flag::END_STREAM);
        if header.has(flag::END_HEADERS) {
            return self.block(&WholeBlock { stream, ends, depends_on, bytes: fragment }, fields);
        }
        let bytes = fragment.to_vec();
        self.block =
            Some(Box::new(HeaderBlock { stream, ends, depends_on, continuations: 0, bytes }));
        Ok(None)
    }

    /// CONTINUATION (§6.10), which follows its HEADERS.
    fn continuation<'i>(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        fields: &mut DecodedFields,
    ) -> Result<Option<Http2Event<'i>>, FrameError> {
        let most_bytes = self.limits.block_bytes();
        let Some(block) = &mut self.block else {
            return Err(Fault::protocol("CONTINUATION without HEADERS").into());
        };
        block.continuations += 1;
        if block.continuations > MOST_CONTINUATIONS
            || block.bytes.len() + payload.len() > most_bytes
        {
            return Err(Fault::calm("a header block does not end").into());
        }
        block.bytes.extend_from_slice(payload);
        if header.has(flag::END_HEADERS) {
            let Some(block) = self.block.take() else { return Ok(None) };
            let HeaderBlock { stream, ends, depends_on, bytes, .. } = *block;
            return self.block(&WholeBlock { stream, ends, depends_on, bytes: &bytes }, fields);
        }
        if payload.is_empty() {
            self.overhead(cost::EMPTY)?;
        }
        Ok(None)
    }

    /// PRIORITY (§6.3), which is obsolete, but checked.
    fn priority<'i>(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
    ) -> Result<Option<Http2Event<'i>>, FrameError> {
        let fault = match (header.stream, payload.len()) {
            (0, _) => return Err(Fault::protocol("PRIORITY without a stream").into()),
            (_, 5) if number31(payload) == header.stream => {
                Fault::protocol("a stream depends on itself")
            }
            (_, 5) => return Ok(self.overhead(cost::FRAME).map(|()| None)?),
            _ => Fault::size("PRIORITY is not 5 bytes long"),
        };
        // a stream that is not open cannot be reset
        match self.is_open(header.stream) {
            true => Err(FrameError::Stream(header.stream, fault)),
            false => Err(fault.into()),
        }
    }

    /// RST_STREAM (§6.4).
    fn rst_stream<'i>(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
    ) -> Result<Option<Http2Event<'i>>, FrameError> {
        let Ok(code) = <[u8; 4]>::try_from(payload) else {
            return Err(Fault::size("RST_STREAM is not 4 bytes long").into());
        };
        let stream = header.stream;
        if self.is_idle(stream) {
            return Err(Fault::protocol("RST_STREAM on an idle stream").into());
        }
        let Some(open) = self.streams.get(stream) else {
            return Ok(self.overhead(cost::FRAME).map(|()| None)?);
        };
        let is_given_up = match self.role {
            EndpointRole::Server => open.outgoing != Outgoing::Ended,
            // a server that resets a stream has wasted only its own work
            EndpointRole::Client => false,
        };
        self.forget(stream, StreamEnd::PeerReset);
        if is_given_up {
            self.budgets.charge(Abuse::Resets, 1, self.now_ms)?;
        }
        let code = ErrorCode(frame::number(code));
        Ok(Some(Http2Event::Reset { stream, code, fault: None }))
    }

    /// SETTINGS (§6.5).
    fn settings<'i>(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
    ) -> Result<Option<Http2Event<'i>>, FrameError> {
        if header.stream != 0 {
            return Err(Fault::protocol("SETTINGS on a stream").into());
        }
        if header.has(flag::ACK) {
            return match payload {
                [] => Ok(self.overhead(cost::FRAME).map(|()| None)?),
                _ => Err(Fault::size("an acknowledgement of SETTINGS has a payload").into()),
            };
        }
        self.overhead(cost::SETTINGS)?;
        let before = i64::from(self.peer.initial_window_bytes);
        self.peer.apply(payload, self.role == EndpointRole::Server)?;
        self.change_windows(i64::from(self.peer.initial_window_bytes) - before)?;
        if let Expect::Settings = self.expect {
            self.expect = Expect::Frame;
        }
        frame::write(&mut self.control, kind::SETTINGS, flag::ACK, 0, &[]);
        Ok(None)
    }

    /// Changes the windows of all streams by the change of the initial window (§6.9.2).
    fn change_windows(&mut self, by: i64) -> Result<(), Fault> {
        if by == 0 {
            return Ok(());
        }
        for (place, id, open) in self.streams.iter_mut() {
            open.send_window.change(by)?;
            if open.is_ready() {
                self.ready.set(place, open.key(id));
            } else {
                self.ready.remove(place);
            }
        }
        Ok(())
    }

    /// PING (§6.7).
    fn ping_frame<'i>(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
    ) -> Result<Option<Http2Event<'i>>, FrameError> {
        if header.stream != 0 {
            return Err(Fault::protocol("PING on a stream").into());
        }
        let Ok(payload) = <[u8; 8]>::try_from(payload) else {
            return Err(Fault::size("PING is not 8 bytes long").into());
        };
        self.overhead(cost::FRAME)?;
        Ok(self.pinged(header.has(flag::ACK), payload))
    }

    /// GOAWAY (§6.8).
    fn goaway<'i>(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
    ) -> Result<Option<Http2Event<'i>>, FrameError> {
        if header.stream != 0 {
            return Err(Fault::protocol("GOAWAY on a stream").into());
        }
        let Some((last, rest)) = payload.split_at_checked(4).filter(|(_, rest)| rest.len() >= 4)
        else {
            return Err(Fault::size("GOAWAY is shorter than 8 bytes").into());
        };
        self.overhead(cost::EMPTY)?;
        let (last, code) = (number31(last), rest.first_chunk().map_or(0, |c| frame::number(*c)));
        if self.role == EndpointRole::Client {
            // the number may only fall (§6.8)
            self.refused_above = Some(self.refused_above.map_or(last, |before| before.min(last)));
        }
        Ok(Some(Http2Event::GoAway { last, code: ErrorCode(code) }))
    }

    /// WINDOW_UPDATE (§6.9).
    fn window_update<'i>(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
    ) -> Result<Option<Http2Event<'i>>, FrameError> {
        if payload.len() != 4 {
            return Err(Fault::size("WINDOW_UPDATE is not 4 bytes long").into());
        }
        self.overhead(cost::FRAME)?;
        let (stream, increment) = (header.stream, number31(payload));
        let nothing = Fault::protocol("WINDOW_UPDATE by nothing");
        if stream == 0 {
            if increment == 0 {
                return Err(nothing.into());
            }
            self.send_window.change(i64::from(increment))?;
            return Ok(None);
        }
        if self.is_idle(stream) {
            return Err(Fault::protocol("WINDOW_UPDATE on an idle stream").into());
        }
        let Some(open) = self.streams.get_mut(stream) else { return Ok(None) };
        if increment == 0 {
            return Err(FrameError::Stream(stream, nothing));
        }
        let was_shut = open.send_window.open() == 0;
        open.send_window
            .change(i64::from(increment))
            .map_err(|fault| FrameError::Stream(stream, fault))?;
        if was_shut {
            self.line_up(stream);
        }
        Ok(None)
    }

    /// PRIORITY_UPDATE (RFC 9218 §7.1).
    fn priority_update<'i>(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
    ) -> Result<Option<Http2Event<'i>>, FrameError> {
        if self.role == EndpointRole::Client || header.stream != 0 {
            return Err(Fault::protocol("PRIORITY_UPDATE where it may not be").into());
        }
        let Some((stream, value)) = payload.split_at_checked(4) else {
            return Err(Fault::size("PRIORITY_UPDATE is shorter than 4 bytes").into());
        };
        self.overhead(cost::PRIORITY_UPDATE)?;
        let (stream, priority) = (number31(stream), Priority::read(value));
        if stream.is_multiple_of(2) {
            return Err(Fault::protocol("PRIORITY_UPDATE of no stream of a client's").into());
        }
        if stream <= self.highest {
            self.set_priority(stream, priority);
            return Ok(None);
        }
        if let Some(known) = self.early.iter_mut().find(|(id, _)| *id == stream) {
            known.1 = priority;
            return Ok(None);
        }
        // together with the open streams, at most as many as may be open at once
        if self.early.len() + self.streams.len() >= self.limits.streams as usize {
            return Err(Fault::protocol("PRIORITY_UPDATE of more streams than may be open").into());
        }
        self.early.push((stream, priority));
        Ok(None)
    }
}
