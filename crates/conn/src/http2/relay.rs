//! A request that another server answers, on a stream: its body goes there as it comes, and windows are
//! given back as it is taken; the answer comes back as far as the client's windows are open.
//!
//! An extended CONNECT (RFC 8441) makes a tunnel of its stream. An orderly end of one direction is
//! END_STREAM on the stream and FIN at the other server; an end by an error is RST_STREAM on the stream
//! and RST at the other server.

use super::answer::{AnswerSpan, RequestUnderWay, write};
use super::send::RelayWritten;
use super::{Http2, Kept, KeptFor, Leaving, Live, LiveState, TOO_LARGE};
use crate::context::Context;
use crate::handler::relay::{Relay, RelayNext, RelayRead, Relayed};
use crate::handler::{Answered, HandlerRoles, HandlerTypes, Settled};
use crate::head_block::encode_head;
use crate::reply::{Reply, has_body};
use crate::request::Grant;
use crate::step::Await;
use forebay_http::head::Method;
use forebay_http2::hpack::encode;
use forebay_http2::{DecodedFields, ErrorCode, MessagePart};
use forebay_metrics::{Activity, Counter, Stopwatch};

/// The body of a request that is passed on.
#[derive(Default)]
pub(super) struct Http2Upload {
    /// Bytes that have come and were not taken.
    pub(super) bytes: Vec<u8>,
    /// Whether all of the body has come.
    has_ended: bool,
    /// The trailers: names and values.
    trailers: Vec<(Box<str>, Box<[u8]>)>,
    /// How many bytes may still come.
    left: u64,
    /// Whether some of the body has come.
    has_begun: bool,
    /// Whether these are bytes for a tunnel, which must exist before they are passed on.
    is_for_tunnel: bool,
}

/// What is done with trailers.
pub(super) enum Trailing {
    /// The trailers end the body of a request that is passed on.
    PassedOn,
    /// The trailers are not needed.
    Dropped,
    /// A tunnel may not have trailers (RFC 9113 §8.5).
    Misplaced,
}

impl Http2Upload {
    /// A body of at most `most` bytes.
    pub(super) fn new(most: u64) -> Http2Upload {
        Http2Upload { left: most, ..Http2Upload::default() }
    }

    /// The bytes that a client sends into a tunnel. `ends` if there are none.
    pub(super) fn of_tunnel(ends: bool) -> Http2Upload {
        Http2Upload { has_ended: ends, is_for_tunnel: true, ..Http2Upload::new(u64::MAX) }
    }

    /// Limits the body to `most` bytes. Returns whether it is within that limit so far.
    pub(super) fn bound(&mut self, most: u64) -> bool {
        let left = most.checked_sub(self.bytes.len() as u64);
        self.left = left.unwrap_or_default();
        left.is_some()
    }

    /// Ends the body with these trailers.
    fn end(&mut self, fields: &DecodedFields) {
        let text = |name| std::str::from_utf8(name).unwrap_or_default();
        self.trailers =
            fields.iter().map(|(name, value)| (text(name).into(), value.into())).collect();
        (self.has_ended, self.has_begun) = (true, true);
    }

    /// Adds received bytes. Returns whether the body is still within its limit.
    pub(super) fn receive(&mut self, bytes: &[u8], ends: bool) -> bool {
        self.bytes.extend_from_slice(bytes);
        (self.has_ended, self.has_begun) = (ends, true);
        let left = self.left.checked_sub(bytes.len() as u64);
        self.left = left.unwrap_or_default();
        left.is_some()
    }
}

/// What the client has got so far.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Told {
    /// Nothing but interim answers.
    Nothing,
    /// The head of the answer, and some of its body.
    Head,
    /// The head that makes its stream a tunnel; `server_ended` if the end of the other server's direction
    /// was passed on.
    Switch { server_ended: bool },
}

/// An exchange with another server, and what its client has got so far.
pub(super) struct Http2Relaying<H: HandlerTypes> {
    /// The request that is answered.
    pub(super) kept: Kept<H>,
    pub(super) relay: H::Relay,
    /// The request's body; `None` when all of it was taken.
    pub(super) upload: Option<Box<Http2Upload>>,
    told: Told,
    /// Whether the client has something to take.
    pub(super) is_held: bool,
    /// The answer, once it has begun. `None` saves memory meanwhile: many requests may wait for an answer
    /// for long.
    begun: Option<Box<BegunAnswer<H>>>,
}

/// The state of an answer that is passed on.
struct BegunAnswer<H: HandlerTypes> {
    line: Option<H::Line>,
    /// Bytes of the body that were written.
    body_bytes: u64,
    /// How many of them were reported by [`taken`](crate::Protocol::taken).
    told_bytes: u64,
    /// How many bytes are left, if that is known.
    left: Option<u64>,
}

impl<H: HandlerTypes> Http2Relaying<H> {
    /// How many bytes of the answer are still to come, if that is known.
    pub(super) fn left(&self) -> u64 {
        self.begun.as_ref().and_then(|begun| begun.left).unwrap_or(0)
    }

    /// Bytes of the answer written since the last call.
    pub(super) fn newly_written(&mut self) -> u64 {
        self.begun.as_mut().map_or(0, |begun| {
            begun.body_bytes - std::mem::replace(&mut begun.told_bytes, begun.body_bytes)
        })
    }

    /// Whether the exchange ends when the client has shut down writing.
    fn aborts_on_close(&self) -> bool {
        !matches!(self.told, Told::Switch { .. }) && self.relay.aborts_on_close()
    }

    pub(super) fn new(
        kept: Kept<H>,
        relay: H::Relay,
        upload: Option<Box<Http2Upload>>,
    ) -> Http2Relaying<H> {
        Http2Relaying { kept, relay, upload, told: Told::Nothing, is_held: false, begun: None }
    }

    /// Whether received bytes of the client may be passed on.
    fn passes_on(&self) -> bool {
        let is_for_tunnel = self.upload.as_ref().is_some_and(|upload| upload.is_for_tunnel);
        !is_for_tunnel || matches!(self.told, Told::Switch { .. })
    }

    /// Passes on as much of the request's body as the exchange takes. Returns how many bytes.
    fn pass_on(&mut self) -> usize {
        let passes_on = self.passes_on();
        let Http2Relaying { relay, upload, .. } = self;
        let Some(body) = upload.as_mut().filter(|_| passes_on) else { return 0 };
        let count = relay.capacity().min(body.bytes.len());
        if count > 0 {
            relay.give(&body.bytes[..count]);
            body.bytes.drain(..count);
        }
        if body.has_ended && body.bytes.is_empty() && relay.takes_body() {
            let trailers = body.trailers.iter();
            relay.finish(&mut trailers.map(|(name, value)| (&**name, &**value)));
            *upload = None;
        }
        count
    }

    /// Whether the exchange waits for more of the request's body, and would take it.
    fn wants_body(&self) -> bool {
        let is_open = self.upload.as_ref().is_some_and(|upload| !upload.has_ended);
        is_open && self.passes_on() && self.relay.capacity() > 0
    }

    /// Whether the exchange waits only for its client.
    pub(super) fn waits_for_client(&self) -> bool {
        self.is_held || (self.told != Told::Head && self.wants_body())
    }

    /// Whether only the client's direction of a tunnel has ended.
    fn has_client_ended(&self) -> bool {
        self.told == Told::Switch { server_ended: false } && self.upload.is_none()
    }

    /// Whether both directions of a tunnel have ended, or the one that has not leads nowhere.
    fn is_over(&self) -> bool {
        // an exchange that waits for code of this process has no descriptor until it is asked for one
        let has_unsent = || self.relay.socket().is_some_and(|(_, _, wants)| wants.write);
        self.told == Told::Switch { server_ended: true }
            && !has_unsent()
            && (self.upload.is_none() || self.relay.capacity() == 0)
    }

    /// The code with which the stream is reset when nothing more can be passed on. In a tunnel it stands
    /// for an RST (RFC 8441 §5).
    fn broken(&self) -> ErrorCode {
        match self.told {
            Told::Switch { .. } => ErrorCode::CANCEL,
            Told::Nothing | Told::Head => ErrorCode::INTERNAL_ERROR,
        }
    }

    /// What the exchange waits for, unless that is its client's windows.
    pub(super) fn awaits(&self) -> Option<Await> {
        (!self.is_held).then(|| self.relay.awaits())
    }

    /// Ends the exchange before its answer is complete. Returns whether the answer was begun.
    pub(super) fn give_up(&mut self, handler: &mut H) -> bool
    where
        H: HandlerRoles,
    {
        if let Some(begun) = &mut self.begun
            && let Some(mut line) = begun.line.take()
        {
            handler.cut_off(&mut line, &self.relay);
            handler.log(line, begun.body_bytes);
        }
        self.told != Told::Nothing
    }

    fn leaving(self) -> (Leaving<H>, H::Relay, bool) {
        let Http2Relaying { mut kept, relay, upload, begun, .. } = self;
        let (line, body_bytes) = begun.map_or((None, 0), |begun| (begun.line, begun.body_bytes));
        let ticket = Some(std::mem::take(&mut kept.grant.ticket));
        (Leaving { line, ticket, body_bytes }, relay, upload.is_none())
    }
}

impl<H: HandlerRoles> Http2<H> {
    /// Gives a kept request its exchange, which begins only when all received bytes are used: the client
    /// may have cancelled the request already, and an application that was asked cannot be stopped.
    pub(super) fn begin_relay(&mut self, stream: u32, relay: H::Relay) {
        let Some(Live { is_open, phase, upload }) = self.live.remove(stream) else { return };
        let LiveState::Asked(kept) = phase else { return };
        let relaying = Http2Relaying::new(kept, relay, upload);
        self.insert_relaying(stream, is_open, Box::new(relaying));
        self.begin_later(stream);
    }

    /// Puts off the next step of an exchange until all received bytes are used.
    pub(super) fn begin_later(&mut self, stream: u32) {
        self.beginning.push_back(stream);
        self.has_looked = false;
    }

    /// Begins the exchanges that were put off; only the first if their client takes turns.
    pub(super) fn begin_exchanges<S: Stopwatch>(&mut self, cx: &mut Context<'_, H, S>) {
        (self.has_looked, self.looks) = (false, 0);
        while let Some(stream) = self.beginning.pop_front() {
            let Some(relaying) = self.relaying(stream) else { continue };
            cx.handler.begin_exchange(&mut relaying.relay);
            self.pump(cx, stream);
            if cx.handler.takes_turns(cx.peer) {
                break;
            }
        }
        self.hold_back();
    }

    fn insert_relaying(&mut self, stream: u32, is_open: bool, relaying: Box<Http2Relaying<H>>) {
        self.relays += 1;
        let phase = LiveState::Relaying(relaying);
        self.live.insert(stream, Live { is_open, phase, upload: None });
    }

    fn take_relaying(&mut self, stream: u32) -> Option<(bool, Box<Http2Relaying<H>>)> {
        let live = self.live.remove(stream)?;
        match live.phase {
            LiveState::Relaying(relaying) => {
                self.relays -= 1;
                Some((live.is_open, relaying))
            }
            phase => {
                self.live.insert(stream, Live { phase, ..live });
                None
            }
        }
    }

    pub(super) fn relaying(&mut self, stream: u32) -> Option<&mut Http2Relaying<H>> {
        match &mut self.live.get_mut(stream)?.phase {
            LiveState::Relaying(relaying) => Some(relaying),
            _ => None,
        }
    }

    /// Continues an exchange whose socket is ready.
    pub(super) fn socket_ready<S: Stopwatch>(&mut self, cx: &mut Context<'_, H, S>, stream: u32) {
        let Some(relaying) = self.relaying(stream) else { return };
        relaying.relay.ready();
        let is_told = relaying.told != Told::Nothing;
        self.pump(cx, stream);
        if is_told {
            self.offer(cx, stream);
        }
    }

    /// Announces that some of an answer may be there. While its windows are closed, the answer is read
    /// ahead so that the other server need not wait for them.
    fn offer<S>(&mut self, cx: &Context<'_, H, S>, stream: u32) {
        self.machine.offer(stream);
        if (self.machine.is_blocked(stream) || self.machine.is_closed())
            && let Some(relaying) = self.relaying(stream)
        {
            relaying.relay.run_ahead(cx.now_ms);
        }
    }

    /// Takes more bytes of a request's body that is passed on.
    pub(super) fn receive_upload(&mut self, stream: u32, bytes: &[u8], ends: bool) -> Option<bool> {
        let live = self.live.get_mut(stream)?;
        live.is_open &= !ends;
        live.upload().map(|upload| upload.receive(bytes, ends))
    }

    /// Notes for each exchange that its client can send nothing of its request while bytes of other
    /// requests are not used.
    pub(super) fn hold_back(&mut self) {
        if !self.machine.is_shut() {
            return;
        }
        for (_, _, live) in self.live.iter_mut() {
            if let LiveState::Relaying(relaying) = &mut live.phase {
                relaying.relay.held_back();
            }
        }
    }

    /// Takes the trailers of a request.
    pub(super) fn receive_trailers(&mut self, stream: u32, fields: &DecodedFields) -> Trailing {
        let Some(live) = self.live.get_mut(stream) else { return Trailing::Dropped };
        match live.upload() {
            Some(upload) if upload.is_for_tunnel => return Trailing::Misplaced,
            Some(upload) => upload.end(fields),
            None => return Trailing::Dropped,
        }
        live.is_open = false;
        Trailing::PassedOn
    }

    /// Passes a reset stream on: if it is a tunnel, the other server gets an RST.
    pub(super) fn cut_tunnel(&mut self, stream: u32) {
        if let Some(relaying) = self.relaying(stream)
            && let Told::Switch { .. } = relaying.told
        {
            relaying.relay.cut();
        }
    }

    /// Drives the exchange as far as possible: passes on received bytes of the request, and looks for the
    /// head of the answer.
    pub(super) fn pump<S: Stopwatch>(&mut self, cx: &mut Context<'_, H, S>, stream: u32) {
        loop {
            let Some(Live { phase: LiveState::Relaying(relaying), .. }) = self.live.get_mut(stream)
            else {
                return;
            };
            let passes_on = relaying.passes_on();
            let has_begun = relaying.upload.as_ref().is_none_or(|body| body.has_begun);
            let count = relaying.pass_on();
            if count > 0 {
                // the client may send as many bytes again
                self.machine.consumed(stream, count);
            }
            let Http2Relaying { relay, upload, kept, .. } = &mut **relaying;
            match relay.advance(cx.now_ms) {
                RelayNext::Wait => {
                    let has_more = upload.as_ref().is_some_and(|body| !body.bytes.is_empty());
                    if has_more && passes_on && relay.capacity() > 0 {
                        continue;
                    }
                    if self.machine.is_shut() {
                        relay.held_back();
                    }
                    if relaying.is_over() {
                        self.end_relay(cx.handler, stream);
                    } else if relaying.has_client_ended() {
                        // the other server may have no more bytes for the answer, either
                        self.machine.offer(stream);
                    }
                    return;
                }
                RelayNext::Answer => return self.answer_relayed(cx, stream),
                RelayNext::Interim(status) => {
                    let is_wanted =
                        status != 100 || (kept.head.view().expects_continue && !has_begun);
                    if is_wanted {
                        let out = &mut cx.out.bytes;
                        let text = relay.interim();
                        self.machine.head(out, stream, MessagePart::Informational, |block| {
                            match text {
                                b"" => encode::status(block, status),
                                text => encode_head(block, status, text),
                            }
                        });
                        cx.metrics.add(Counter::Status1xx, 1);
                    }
                }
            }
        }
    }

    /// Has the handler answer with the result of the exchange.
    fn answer_relayed<S: Stopwatch>(&mut self, cx: &mut Context<'_, H, S>, stream: u32) {
        let Some((is_open, mut relaying)) = self.take_relaying(stream) else { return };
        self.machine.flush(&mut cx.out.bytes);
        let (stages, start) = (relaying.kept.stages, cx.out.bytes.len());
        let Http2Relaying { kept, relay, .. } = &mut *relaying;
        let mut line = None;
        let (peer, path) = (cx.peer, cx.path);
        let (relayed, page, is_head) = kept.with(peer, path, |request, grant, _| {
            let mut reply = Reply::new(cx.out, cx.date, true);
            reply.is_http2 = true;
            reply.answers(request.head);
            let relayed = cx.handler.relayed(request, &mut grant.ticket, relay, &mut reply);
            let page = AnswerSpan::of(start, &reply);
            if let Relayed::Own = relayed {
                let ticket = std::mem::take(&mut grant.ticket);
                let asked = RequestUnderWay::new(
                    stream,
                    is_open,
                    request,
                    stages,
                    Grant { ticket, ..*grant },
                );
                self.respond_own(cx, asked, page, relay);
            } else if let Relayed::Body | Relayed::Switched = relayed {
                let answered = Answered {
                    peer,
                    request: Some(request),
                    ticket: Some(&grant.ticket),
                    status: page.status,
                    stages,
                };
                line = cx.handler.relayed_line(&answered, relay);
            }
            (relayed, page, request.head.method == Method::Head)
        });
        cx.watch.lap(Activity::Process);
        let is_tunnel = matches!(relayed, Relayed::Switched);
        match relayed {
            Relayed::Own => return self.drop_upload(stream, relaying.upload.take()),
            Relayed::Job(job, passed) => {
                let Http2Relaying { mut kept, upload, .. } = *relaying;
                (kept.passed, kept.stage) = (Some(passed), KeptFor::Job(Some(Box::new(job))));
                self.live.insert(stream, Live { is_open, phase: LiveState::Asked(kept), upload });
                return self.asking.push_back(stream);
            }
            Relayed::Again(passed) => {
                let Http2Relaying { mut kept, upload, .. } = *relaying;
                (kept.passed, kept.stage) = (Some(passed), KeptFor::Ready);
                self.live.insert(stream, Live { is_open, phase: LiveState::Asked(kept), upload });
                return self.answer_kept(cx, stream, None);
            }
            Relayed::GoesOn => {
                self.insert_relaying(stream, is_open, relaying);
                return self.pump(cx, stream);
            }
            // a stream has no socket of its own that could be lent
            Relayed::Elsewhere(_) | Relayed::Broken => {
                self.insert_relaying(stream, is_open, relaying);
                return self.reset(cx.handler, cx.peer, stream, ErrorCode::INTERNAL_ERROR);
            }
            Relayed::NeedsHttp1 => {
                self.insert_relaying(stream, is_open, relaying);
                return self.reset(cx.handler, cx.peer, stream, ErrorCode::HTTP_1_1_REQUIRED);
            }
            Relayed::Switched | Relayed::Body => {}
        }
        self.served += 1;
        cx.budget = cx.budget.saturating_sub(1);
        cx.metrics.add(Counter::of_status(page.status), 1);
        let length = relaying.relay.length().filter(|_| !is_tunnel);
        let is_short = is_head || !has_body(page.status) || length == Some(0);
        let part = if is_short { MessagePart::Last } else { MessagePart::Head };
        let out = &mut cx.out.bytes;
        let end = self.machine.head_at(out, stream, part, start..page.head_end);
        out.truncate(end.unwrap_or(start));
        relaying.told = if is_tunnel { Told::Switch { server_ended: false } } else { Told::Head };
        relaying.begun =
            Some(Box::new(BegunAnswer { line, body_bytes: 0, told_bytes: 0, left: length }));
        if is_short {
            return self.finish_relay(cx.handler, stream, is_open, *relaying);
        }
        self.insert_relaying(stream, is_open, relaying);
        self.offer(cx, stream);
        if is_tunnel {
            // passes on bytes that came before the tunnel existed
            self.pump(cx, stream);
        }
    }

    /// Appends at most `most` of the next bytes of an answer, or its trailers.
    pub(super) fn write_relayed<S>(
        &mut self,
        cx: &mut Context<'_, H, S>,
        stream: u32,
        most: usize,
    ) -> RelayWritten {
        let Some(relaying) = self.relaying(stream) else { return RelayWritten::Nothing };
        if std::mem::take(&mut relaying.is_held) {
            relaying.relay.resume(cx.now_ms);
        }
        let left = relaying.begun.as_ref().and_then(|begun| begun.left);
        let most = left.map_or(most, |left| most.min(left.try_into().unwrap_or(most)));
        let read = relaying.relay.read(&mut cx.out.bytes, most, cx.now_ms);
        // reading an answer over HTTP/2 may also have opened the request's window, and no event reports
        // that
        let mut passed_bytes = 0;
        while relaying.told == Told::Head {
            let count = relaying.pass_on();
            if count == 0 {
                break;
            }
            passed_bytes += count;
            relaying.relay.advance(cx.now_ms);
        }
        if passed_bytes > 0 {
            self.machine.consumed(stream, passed_bytes);
        }
        let Some(relaying) = self.relaying(stream) else { return RelayWritten::Nothing };
        match read {
            RelayRead::Bytes(count) => {
                let bytes = count as u64;
                let left = left.map(|left| left.saturating_sub(bytes));
                relaying.is_held = true;
                if let Some(begun) = &mut relaying.begun {
                    (begun.body_bytes, begun.left) = (begun.body_bytes + bytes, left);
                }
                RelayWritten::Data { count, ends: left == Some(0) }
            }
            RelayRead::End if left.is_none_or(|left| left == 0) => {
                let trailers = relaying.relay.trailers();
                if trailers.is_empty() {
                    return RelayWritten::Data { count: 0, ends: true };
                }
                for (name, value) in trailers {
                    for part in [name.as_bytes(), b": ", value, b"\r\n"] {
                        cx.out.bytes.extend_from_slice(part);
                    }
                }
                RelayWritten::Trailers
            }
            RelayRead::End | RelayRead::Broken => {
                cx.metrics.add(Counter::BrokenUpstream, 1);
                let code = relaying.broken();
                self.reset(cx.handler, cx.peer, stream, code);
                RelayWritten::Nothing
            }
            RelayRead::Nothing => {
                self.machine.pause(stream);
                RelayWritten::Nothing
            }
        }
    }

    /// Ends an answer when all bytes of the other server are written. A tunnel stays until its client
    /// ends as well.
    pub(super) fn end_answer(&mut self, handler: &mut H, stream: u32) {
        let Some(relaying) = self.relaying(stream) else { return };
        if let Told::Switch { server_ended } = &mut relaying.told {
            (*server_ended, relaying.is_held) = (true, false);
            if !relaying.is_over() {
                return;
            }
        }
        self.end_relay(handler, stream);
    }

    /// An exchange is over.
    pub(super) fn end_relay(&mut self, handler: &mut H, stream: u32) {
        if let Some((is_open, relaying)) = self.take_relaying(stream) {
            self.finish_relay(handler, stream, is_open, *relaying);
        }
    }

    fn finish_relay(
        &mut self,
        handler: &mut H,
        stream: u32,
        is_open: bool,
        mut relaying: Http2Relaying<H>,
    ) {
        let upload = relaying.upload.take();
        let is_tunnel = matches!(relaying.told, Told::Switch { .. });
        let (leaving, relay, _) = relaying.leaving();
        if upload.is_none() && !is_open && !is_tunnel {
            handler.release(relay);
        }
        self.drop_upload(stream, upload);
        self.leave(stream, is_open, leaving);
    }

    /// Drops the received part of a body that no exchange needs any more, which makes room for others.
    pub(super) fn drop_upload(&mut self, stream: u32, upload: Option<Box<Http2Upload>>) {
        if let Some(upload) = upload.filter(|upload| !upload.bytes.is_empty()) {
            self.machine.consumed(stream, upload.bytes.len());
        }
    }

    /// Refuses a request whose body is larger than allowed.
    pub(super) fn refuse_upload<S: Stopwatch>(&mut self, cx: &mut Context<'_, H, S>, stream: u32) {
        let is_told = self.relaying(stream).is_some_and(|it| it.told != Told::Nothing);
        if is_told {
            return self.reset(cx.handler, cx.peer, stream, ErrorCode::INTERNAL_ERROR);
        }
        if self.relaying(stream).is_none() {
            return self.refuse_kept(cx, stream, 413, TOO_LARGE);
        }
        self.refuse_relaying(cx, stream, 413, TOO_LARGE);
    }

    /// Refuses a request whose body cannot be passed on, and whose answer has not begun.
    fn refuse_relaying<S: Stopwatch>(
        &mut self,
        cx: &mut Context<'_, H, S>,
        stream: u32,
        status: u16,
        reason: &'static str,
    ) {
        let Some((is_open, mut relaying)) = self.take_relaying(stream) else { return };
        self.drop_upload(stream, relaying.upload.take());
        let Http2Relaying { kept, relay, .. } = &mut *relaying;
        let stages = kept.stages;
        kept.with(cx.peer, cx.path, |request, grant, _| {
            let page =
                write(cx, Some(request), |handler, reply| handler.refuse(status, reason, reply));
            let ticket = std::mem::take(&mut grant.ticket);
            let asked =
                RequestUnderWay::new(stream, is_open, request, stages, Grant { ticket, ..*grant });
            self.respond_own(cx, asked, page, relay);
        });
    }

    /// Ends an exchange's wait, because its time is over.
    pub(super) fn expire_relay<S: Stopwatch>(&mut self, cx: &mut Context<'_, H, S>, stream: u32) {
        let Some(relaying) = self.relaying(stream) else { return };
        if relaying.relay.looks(cx.now_ms) {
            return self.pump(cx, stream);
        }
        if relaying.told != Told::Nothing {
            match relaying.told {
                Told::Switch { .. } => relaying.relay.expire_tunnel(),
                // the client may be the one that is late, with the body
                Told::Head if relaying.wants_body() => {}
                _ => relaying.relay.expire(),
            }
            let code = relaying.broken();
            return self.reset(cx.handler, cx.peer, stream, code);
        }
        if relaying.wants_body() && !relaying.relay.awaits().is_before_asking() {
            let reason = "the request body took too long to arrive";
            return self.refuse_relaying(cx, stream, 408, reason);
        }
        relaying.relay.expire();
        self.pump(cx, stream);
    }

    /// Ends exchanges when the client has shut down writing: those that end for that, and those whose
    /// request is not complete.
    #[cold]
    pub(super) fn abort_relays<S>(&mut self, cx: &mut Context<'_, H, S>) {
        let aborts = |live: &Live<H>| match &live.phase {
            // a request whose rest will never come is also ended
            LiveState::Relaying(relaying) => {
                let is_open = relaying.upload.as_ref().is_some_and(|upload| !upload.has_ended);
                is_open || relaying.aborts_on_close()
            }
            _ => false,
        };
        let streams: Vec<u32> =
            self.live.iter().filter(|(_, live)| aborts(live)).map(|(stream, _)| stream).collect();
        if !streams.is_empty() {
            // the result does not matter: the connection is over already
            cx.handler.charge_given_up(cx.peer, streams.len());
        }
        for stream in streams {
            self.reset(cx.handler, cx.peer, stream, ErrorCode::CANCEL);
        }
    }

    /// Ends an exchange together with its connection or stream.
    pub(super) fn abandon_relay(handler: &mut H, relaying: &mut Http2Relaying<H>) -> bool {
        let is_told = relaying.give_up(handler);
        if is_told {
            handler.settle(&mut relaying.kept.grant.ticket, Settled::Cut);
        }
        is_told
    }
}
