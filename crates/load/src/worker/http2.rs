//! Connections of HTTP/2: requests as streams, and the frames received.

pub(super) mod session;

use super::LoadWorker;
use super::group::LoopKind;
use super::request::Pending;
use super::spoken::speaks_other;
use crate::failure::RequestFailure;
use crate::response::FinishedResponse;
use forebay_http2::frame::kind;
use forebay_http2::{ErrorCode, Http2Event};

/// The size of the output, in bytes, above which bodies of requests wait for the socket.
const MOST_OUTPUT_BYTES: usize = 256 * 1024;

impl LoadWorker<'_> {
    /// Processes received frames. Returns false when the connection is closed.
    #[inline]
    pub(super) fn take_frames(&mut self, slot: usize, input: &[u8]) -> bool {
        let Some(http2) = &mut self.clients[slot].http2 else { return false };
        if !http2.machine.is_introduced() && http2.rest.is_empty() {
            let is_settings = input.get(3).is_none_or(|kind| *kind == kind::SETTINGS);
            if let Some(why) = speaks_other(input).filter(|_| !is_settings) {
                self.fail_for(slot, RequestFailure::Malformed, why);
                return false;
            }
        }
        if http2.rest.is_empty() {
            let Some(used) = self.frames(slot, input) else { return false };
            if let Some(http2) = &mut self.clients[slot].http2 {
                http2.rest.extend_from_slice(&input[used..]);
            }
            return true;
        }
        let mut all = std::mem::take(&mut http2.rest);
        all.extend_from_slice(input);
        let Some(used) = self.frames(slot, &all) else { return false };
        all.drain(..used);
        if let Some(http2) = &mut self.clients[slot].http2 {
            http2.rest = all;
        }
        true
    }

    /// Processes whole frames; returns how many bytes they were. `None` when the connection is
    /// closed.
    fn frames(&mut self, slot: usize, input: &[u8]) -> Option<usize> {
        let now_ms = self.now_ns / 1_000_000;
        let mut used = 0;
        loop {
            let client = &mut self.clients[slot];
            let machine = &mut client.http2.as_mut()?.machine;
            let received = machine.receive(&input[used..], &mut self.fields, now_ms);
            used += received.used;
            let is_open = match received.event {
                None => return Some(used),
                Some(Http2Event::Response { stream, ends }) => {
                    let status = self.fields.status();
                    if let Some(request) =
                        client.pending.iter_mut().find(|one| one.stream == stream)
                    {
                        request.status = status;
                    }
                    !ends || self.stream_is_complete(slot, stream)
                }
                Some(Http2Event::Data { stream, bytes, ends }) => {
                    machine.consumed(stream, bytes.len());
                    if let Some(request) =
                        client.pending.iter_mut().find(|one| one.stream == stream)
                    {
                        request.body_bytes += bytes.len() as u64;
                        if let Some(crc32) = &mut request.crc32 {
                            crc32.update(bytes);
                        }
                    }
                    !ends || self.stream_is_complete(slot, stream)
                }
                Some(Http2Event::Trailers { stream }) => self.stream_is_complete(slot, stream),
                Some(Http2Event::Reset { stream, code, fault }) => {
                    self.stream_is_reset(slot, stream, code, fault)
                }
                Some(Http2Event::GoAway { last, code }) => self.goes_away(slot, last, code),
                Some(Http2Event::Failed(fault)) => {
                    self.fail_for(slot, RequestFailure::Protocol, fault.reason);
                    false
                }
                // a client receives no requests
                Some(
                    Http2Event::Informational { .. }
                    | Http2Event::Pong(_)
                    | Http2Event::Request { .. }
                    | Http2Event::TooLarge { .. },
                ) => true,
            };
            if !is_open {
                return None;
            }
        }
    }

    fn stream_is_complete(&mut self, slot: usize, stream: u32) -> bool {
        let client = &mut self.clients[slot];
        if let Some(http2) = &mut client.http2 {
            // the response is complete, so the rest of the request's body is not needed
            http2.machine.reset(stream, ErrorCode::CANCEL);
        }
        let Some(place) = client.pending.iter().position(|one| one.stream == stream) else {
            return true;
        };
        let Some(mut request) = client.pending.remove(place) else { return true };
        let answer = FinishedResponse {
            status: request.status,
            keep: true,
            body_bytes: request.body_bytes,
            crc32: request.crc32.take().map(crc32fast::Hasher::finalize),
        };
        self.answered(slot, &request, &answer)
    }

    fn stream_is_reset(
        &mut self,
        slot: usize,
        stream: u32,
        code: ErrorCode,
        fault: Option<&'static str>,
    ) -> bool {
        let client = &mut self.clients[slot];
        let last = client.http2.as_ref().and_then(|http2| http2.goodbye).map(|(last, _)| last);
        let (failure, why) = match fault {
            Some(fault) => (RequestFailure::Protocol, fault),
            None if last.is_some_and(|last| stream > last) => {
                (RequestFailure::GoAway, "not processed")
            }
            None if code == ErrorCode::REFUSED_STREAM => (RequestFailure::StreamRefused, ""),
            None => (RequestFailure::StreamReset, code.name()),
        };
        let Some(place) = client.pending.iter().position(|one| one.stream == stream) else {
            return true;
        };
        if let Some(request) = client.pending.remove(place) {
            if !why.is_empty() {
                self.groups[client.group].tally.explain(failure, why, 1);
            }
            self.lose(slot, &request, failure);
        }
        self.request_is_over(slot)
    }

    /// Handles GOAWAY: the server accepts no further streams, and those it still processes are
    /// awaited.
    fn goes_away(&mut self, slot: usize, last: u32, code: ErrorCode) -> bool {
        let client = &mut self.clients[slot];
        let Some(http2) = &mut client.http2 else { return false };
        let is_first = http2.goodbye.is_none();
        http2.goodbye = Some((last, code));
        self.groups[client.group].tally.counts.goaways += u64::from(is_first);
        client.left = 0;
        if client.pending.is_empty() {
            self.end_connection(slot, false);
            return false;
        }
        true
    }

    /// Whether an ended connection had a GOAWAY with an error; its requests then fail for that
    /// reason.
    pub(super) fn was_broken_off(&mut self, slot: usize) -> bool {
        let goodbye = self.clients[slot].http2.as_ref().and_then(|http2| http2.goodbye);
        let reason = goodbye.filter(|(_, code)| *code != ErrorCode::NO_ERROR);
        if let Some((_, code)) = reason {
            self.fail_for(slot, RequestFailure::GoAway, code.name());
        }
        reason.is_some()
    }

    /// Handles the end of the connection by the server.
    pub(super) fn cut_streams(&mut self, slot: usize) {
        if self.was_broken_off(slot) {
            return;
        }
        let failed = !self.clients[slot].pending.is_empty();
        while let Some(request) = self.clients[slot].pending.pop_front() {
            let failure =
                if request.status == 0 { RequestFailure::Closed } else { RequestFailure::Short };
            self.lose(slot, &request, failure);
        }
        self.end_connection(slot, failed);
    }

    /// Gives up requests that have timed out; the connection continues.
    pub(super) fn cancel_late(&mut self, slot: usize) {
        let timeout_ns = self.groups[self.clients[slot].group].timeout_ns;
        loop {
            let client = &mut self.clients[slot];
            let is_late = |one: &Pending| one.started_ns + timeout_ns <= self.now_ns;
            if !client.pending.front().is_some_and(is_late) {
                break;
            }
            let Some(request) = client.pending.pop_front() else { break };
            if let Some(http2) = &mut client.http2 {
                http2.machine.reset(request.stream, ErrorCode::CANCEL);
            }
            self.lose(slot, &request, RequestFailure::Timeout);
        }
        if self.request_is_over(slot) {
            self.go_on(slot);
            self.send_rest(slot);
        }
    }

    /// Appends as much of the requests' bodies as the windows and the socket allow.
    pub(super) fn append_bodies(&mut self, slot: usize) {
        let client = &mut self.clients[slot];
        let (Some(http2), Some(body)) = (&mut client.http2, &self.groups[client.group].plan.body)
        else {
            return;
        };
        while client.unsent.is_empty()
            && self.output.len() < MOST_OUTPUT_BYTES
            && let Some(turn) = http2.machine.next()
        {
            let request = client.pending.iter_mut().find(|one| one.stream == turn.stream);
            let Some(request) = request else {
                http2.machine.reset(turn.stream, ErrorCode::CANCEL);
                continue;
            };
            let rest = &body[request.sent_bytes..];
            let piece = &rest[..rest.len().min(turn.most as usize)];
            let ends = piece.len() == rest.len();
            let header = http2.machine.data(turn.stream, piece.len() as u32, ends);
            let Some(header) = header else { return };
            self.output.extend_from_slice(&header);
            self.output.extend_from_slice(piece);
            request.sent_bytes += piece.len();
        }
    }

    /// Sets a deadline for the first request of a connection on which the server allows no stream
    /// yet.
    pub(super) fn await_stream(&mut self, slot: usize) {
        let client = &mut self.clients[slot];
        let group = &self.groups[client.group];
        let may_open = client.http2.as_ref().is_none_or(|http2| http2.machine.can_open());
        let waits = group.kind != LoopKind::Pool && client.pending.is_empty() && client.left > 0;
        if waits && !may_open && client.deadline_ns == u64::MAX {
            let since_ns = *client.opened_ns.get_or_insert(self.now_ns);
            client.deadline_ns = since_ns + group.timeout_ns;
        }
    }
}
