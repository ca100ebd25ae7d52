//! The bodies of answers: a frame at a time, the most urgent first, as far as the client's windows are
//! open.

use super::{BATCH_BYTES, Http2, Leaving, LiveState};
use crate::context::Context;
use crate::handler::body::BodyRead;
use crate::handler::{HandlerRoles, Piece};
use crate::head_block::encode_lines;
use crate::rank::Rank;
use forebay_http2::frame::HEADER_BYTES;
use forebay_http2::{ErrorCode, MessagePart};
use forebay_metrics::Counter;
use std::net::IpAddr;

/// What was written of an answer.
pub(super) enum RelayWritten {
    /// This many bytes of its body, and perhaps its end.
    Data { count: usize, ends: bool },
    /// The trailers, as text.
    Trailers,
    /// Nothing: there is nothing to write for this stream now.
    Nothing,
}

/// An answer whose head is written, and what is left of its body.
pub(super) struct Sending<H: HandlerRoles> {
    /// A short body, or the beginning of a long one; `copied_at` is how much of it was written.
    pub(super) copied: Box<[u8]>,
    pub(super) copied_at: usize,
    /// The part of the body behind that.
    pub(super) body: Option<H::Body>,
    /// Bytes of both.
    pub(super) left: u64,
    /// Bytes of the body that were written.
    pub(super) body_bytes: u64,
    /// How many of them were reported by [`taken`](crate::Protocol::taken).
    pub(super) told_bytes: u64,
    /// The job that brings the next bytes into memory, if it is to be started.
    pub(super) job: Option<H::Job>,
    /// Whether such a job is to be started, or is running.
    pub(super) is_warming: bool,
    pub(super) line: Option<H::Line>,
    pub(super) ticket: Option<H::Ticket>,
    pub(super) rank: Rank,
    pub(super) client: Option<IpAddr>,
}

/// The result of an attempt to write some of a body.
enum BodyWritten {
    /// This many bytes were written.
    Bytes(usize),
    Cold,
    /// The file is another one now, or shorter.
    Changed,
    /// The body cannot be finished.
    Broken,
}

impl<H: HandlerRoles> Sending<H> {
    /// What remains of the answer when nothing more is written.
    pub(super) fn end(self) -> Leaving<H> {
        Leaving { line: self.line, ticket: self.ticket, body_bytes: self.body_bytes }
    }

    /// Appends at most `most` of the next bytes.
    fn write(&mut self, handler: &H, out: &mut Vec<u8>, most: usize) -> BodyWritten {
        let copied = &self.copied[self.copied_at..];
        if !copied.is_empty() {
            let count = most.min(copied.len());
            out.extend_from_slice(&copied[..count]);
            self.copied_at += count;
            return BodyWritten::Bytes(count);
        }
        let Some(body) = &mut self.body else { return BodyWritten::Broken };
        if let Some(Piece::Memory(bytes)) = handler.piece(body) {
            let count = most.min(bytes.len());
            out.extend_from_slice(&bytes[..count]);
            handler.advance(body, count as u64);
            return BodyWritten::Bytes(count);
        }
        let start = out.len();
        out.resize(start + most, 0);
        let read = handler.read(body, &mut out[start..]);
        out.truncate(start + if let BodyRead::Bytes(count) = read { count } else { 0 });
        match read {
            BodyRead::Bytes(count) => BodyWritten::Bytes(count),
            BodyRead::Cold => BodyWritten::Cold,
            BodyRead::Changed | BodyRead::End => BodyWritten::Changed,
        }
    }
}

impl<H: HandlerRoles> Http2<H> {
    /// Writes as much of the bodies as may be sent now.
    pub(super) fn fill<S>(&mut self, cx: &mut Context<'_, H, S>) {
        while cx.out.bytes.len() < BATCH_BYTES {
            let Some(turn) = self.machine.next() else { return };
            let stream = turn.stream;
            let Some(live) = self.live.get_mut(stream) else {
                self.machine.pause(stream);
                continue;
            };
            if let LiveState::Relaying(_) = live.phase {
                self.fill_relayed(cx, stream, turn.most as usize);
                continue;
            }
            let LiveState::Answered(sending) = &mut live.phase else {
                self.machine.pause(stream);
                continue;
            };
            let start = cx.out.bytes.len();
            let most = sending.left.min(turn.most.into()) as usize;
            // room for the frame's header, whose length field is known only when the body was read
            cx.out.bytes.extend_from_slice(&[0; HEADER_BYTES]);
            let written = sending.write(&*cx.handler, &mut cx.out.bytes, most);
            let BodyWritten::Bytes(count) = written else {
                cx.out.bytes.truncate(start);
                if let BodyWritten::Changed = written {
                    cx.metrics.add(Counter::Changed, 1);
                }
                self.interrupt(cx, stream, matches!(written, BodyWritten::Cold));
                continue;
            };
            sending.left -= count as u64;
            sending.body_bytes += count as u64;
            self.body_bytes += count as u64;
            let ends = sending.left == 0;
            match self.machine.data(stream, count as u32, ends) {
                Some(header) => {
                    cx.out.bytes[start..start + HEADER_BYTES].copy_from_slice(&header);
                }
                None => {
                    cx.out.bytes.truncate(start);
                    self.reset(cx.handler, cx.peer, stream, ErrorCode::INTERNAL_ERROR);
                    continue;
                }
            }
            if ends {
                self.finish(stream);
            }
        }
    }

    /// Writes the next frame of an answer that another server gives.
    fn fill_relayed<S>(&mut self, cx: &mut Context<'_, H, S>, stream: u32, most: usize) {
        let start = cx.out.bytes.len();
        cx.out.bytes.extend_from_slice(&[0; HEADER_BYTES]);
        let (count, ends) = match self.write_relayed(cx, stream, most) {
            RelayWritten::Data { count, ends } => (count, ends),
            RelayWritten::Trailers => return self.trail(cx, stream, start),
            RelayWritten::Nothing => return cx.out.bytes.truncate(start),
        };
        match self.machine.data(stream, count as u32, ends) {
            Some(header) => {
                cx.out.bytes[start..start + HEADER_BYTES].copy_from_slice(&header);
                if ends {
                    self.end_answer(cx.handler, stream);
                }
            }
            None => {
                cx.out.bytes.truncate(start);
                self.reset(cx.handler, cx.peer, stream, ErrorCode::INTERNAL_ERROR);
            }
        }
    }

    /// Ends an answer that another server gives with trailers, which stand as text behind the room for a
    /// frame's header at `start`.
    fn trail<S>(&mut self, cx: &mut Context<'_, H, S>, stream: u32, start: usize) {
        let out = &mut cx.out.bytes;
        let text = out.split_off(start + HEADER_BYTES);
        out.truncate(start);
        self.machine.head(out, stream, MessagePart::Last, |block| encode_lines(block, &text));
        self.end_relay(cx.handler, stream);
    }

    /// Pauses a body whose next bytes must first be read from the disk, or resets its stream if they
    /// never will come.
    #[cold]
    fn interrupt<S>(&mut self, cx: &mut Context<'_, H, S>, stream: u32, is_cold: bool) {
        let Some(live) = self.live.get_mut(stream) else { return };
        let LiveState::Answered(sending) = &mut live.phase else { return };
        let body = sending.body.as_ref().filter(|_| is_cold);
        sending.job = body.and_then(|body| cx.handler.warm(body));
        if sending.job.is_none() {
            return self.reset(cx.handler, cx.peer, stream, ErrorCode::INTERNAL_ERROR);
        }
        sending.is_warming = true;
        self.machine.pause(stream);
        self.asking.push_back(stream);
    }

    /// Ends an answer whose last byte is written.
    fn finish(&mut self, stream: u32) {
        let Some(live) = self.live.remove(stream) else { return };
        if let LiveState::Answered(sending) = live.phase {
            self.leave(stream, live.is_open, sending.end());
        }
    }

    /// Notes that all of an answer is written.
    pub(super) fn leave(&mut self, stream: u32, is_open: bool, leaving: Leaving<H>) {
        if is_open {
            // the rest of the request's body is not wanted
            self.machine.decline(stream);
        }
        self.leaving.push(leaving);
    }
}
