//! A request that another server answers: its body goes there as it comes, and the answer comes back.
//!
//! If the answer ends before the request does, the rest of the request is not needed: the connection ends
//! with the answer, unless all of the request is there. An answer that breaks off resets the connection.

use super::{Http1, KeptFor, Owned, RequestState, last};
use crate::context::Context;
use crate::handler::relay::{
    ClientPlace, ClientReturn, LentRequest, Relay, RelayNext, RelayRead, Relayed,
};
use crate::handler::{Answered, HandlerRoles, HandlerTypes, Settled, TunnelOver};
use crate::input::Input;
use crate::reply::{Reply, has_body};
use crate::request::KeptRequest;
use crate::step::{Closing, RequestEvent, Step};
use forebay_http::body::{BodyDecoder, BodyError, Encoder, Trailers};
use forebay_http::framing::Framing;
use forebay_http::head::{self, Head, Method, Version};
use forebay_http::owned::OwnedHead;
use forebay_metrics::{Activity, Counter, Stopwatch};
use std::os::fd::BorrowedFd;

/// The limit of bytes waiting for the client: above it, nothing is taken from the other server.
const OUT_BYTES: usize = 64 * 1024;

/// An exchange with another server, and what its client has got so far.
pub(super) struct Http1Relaying<H: HandlerTypes> {
    relay: H::Relay,
    /// The decoder that finds the end of the request's body; `None` once the end was found.
    upload: Option<Box<BodyDecoder>>,
    /// Whether some of the body has come: then its client does not wait for `100 Continue`.
    has_begun: bool,
    told: Told,
    line: Option<H::Line>,
    /// Bytes of the answer's body that were written to the client.
    body_bytes: u64,
}

/// What the client has got so far.
enum Told {
    /// Nothing but interim answers.
    Nothing,
    /// The head of the answer, and some of its body.
    Head { encoder: Encoder, keep_alive: bool },
    /// The head that makes the connection a tunnel; nothing where its bytes are passed on as they are.
    Switch(Tunneling),
}

/// Which ends of a tunnel have ended.
#[derive(Clone, Copy, Debug, Default)]
struct Tunneling {
    /// Whether the end of the client's direction was passed on.
    client_ended: bool,
    /// Whether the end of the other server's direction was passed on.
    server_ended: bool,
    /// The end that came first.
    first: Option<TunnelOver>,
    /// Whether the client has not asked for the tunnel: its bytes are passed on as they are.
    is_passed_on: bool,
}

/// The result of one look at an exchange.
enum Far {
    /// The exchange waits for an event.
    Waits,
    /// The handler must answer.
    Answers,
    /// The client has got everything.
    Over,
    /// The client cannot be given the rest.
    Breaks,
    /// The body of the request cannot be read.
    Unread(BodyError),
    /// The end of the other server's direction must be passed on.
    Ends,
}

/// The decoder that finds the end of a body that is passed on, of at most `most` bytes.
pub(super) fn passing(
    framing: Framing,
    most: u64,
    limits: &head::HeadLimits,
) -> Result<Box<BodyDecoder>, BodyError> {
    BodyDecoder::new(framing, most, Trailers::Keep, limits).map(Box::new)
}

impl<H: HandlerTypes> Http1Relaying<H> {
    /// The state of an exchange for a request with this body, none of which was taken.
    pub(super) fn new(relay: H::Relay, mut upload: Option<Box<BodyDecoder>>) -> Http1Relaying<H> {
        upload.take_if(|decoder| decoder.is_done());
        let told = Told::Nothing;
        Http1Relaying { relay, upload, has_begun: false, told, line: None, body_bytes: 0 }
    }

    pub(super) fn relay(&self) -> &H::Relay {
        &self.relay
    }

    /// Whether the exchange tells the sender of the request that it is here.
    pub(super) fn acknowledge(&mut self) -> bool {
        self.relay.acknowledge()
    }

    /// Lends the client's socket, with the head and the part of the body that has come. Bytes behind the
    /// request stay here, unless the connection does not come back. `is_last` says whether the connection
    /// is closed after the request, `ends` whether the client has asked for that. Returns whether the
    /// connection ends after the loan; a body whose end cannot be found also makes it end.
    pub(super) fn lend(
        &mut self,
        socket: BorrowedFd<'_>,
        sent_bytes: Option<u64>,
        (is_last, ends): (bool, bool),
        head: &OwnedHead,
        input: &mut Input,
    ) -> bool {
        let decoder = self.upload.as_deref_mut();
        let (read, is_done) = decoder
            .map_or((Ok(0), true), |decoder| (decoder.skip(input.bytes()), decoder.is_done()));
        let is_last = is_last || read.is_err();
        // bytes that cannot be decoded are left for the other process to refuse
        let used = read.unwrap_or(input.len());
        let framing = head.framing();
        let body_left = match framing {
            _ if is_done => Some(0),
            Framing::Sized(length) => Some(length.saturating_sub(used as u64)),
            _ => None,
        };
        let used = if self.relay.keeps_client() { input.len() } else { used };
        let body = &input.bytes()[..used];
        let head = head.received();
        let is_all = ends && framing == Framing::None && used == input.len();
        let request = LentRequest { head, body, body_left, is_last, is_all, sent_bytes };
        self.relay.lend(socket, request);
        // another receiver gets the same
        self.upload = None;
        input.consume(used);
        is_last
    }

    /// Whether the exchange would take more bytes from the client.
    pub(super) fn wants_input(&self) -> bool {
        let is_open = match self.told {
            Told::Switch(tunnel) => !tunnel.client_ended,
            Told::Nothing | Told::Head { .. } => self.upload.is_some(),
        };
        is_open && self.relay.capacity() > 0
    }

    /// How many bytes of the answer are still to come, if that is known.
    pub(super) fn left(&self) -> u64 {
        let is_begun = matches!(self.told, Told::Head { .. });
        let length = self.relay.length().filter(|_| is_begun);
        length.map_or(0, |length| length.saturating_sub(self.body_bytes))
    }

    /// Whether the exchange ends when the client has shut down writing.
    pub(super) fn aborts_on_close(&self) -> bool {
        !matches!(self.told, Told::Switch(_)) && self.relay.aborts_on_close()
    }

    /// Passes on the part of the request's body that has come, as far as the exchange has room for it.
    fn upload(&mut self, input: &mut Input) -> Result<(), BodyError> {
        while let Some(decoder) = &mut self.upload
            && !input.is_empty()
        {
            self.has_begun = true;
            let count = self.relay.capacity().min(input.len());
            if count == 0 {
                break;
            }
            let decoded = decoder.next(&input.bytes()[..count])?;
            if !decoded.data.is_empty() {
                self.relay.give(decoded.data);
            }
            let used = decoded.used;
            input.consume(used);
            if decoder.is_done() {
                self.relay.finish(&mut decoder.trailers());
                self.upload = None;
            }
        }
        Ok(())
    }

    /// Whether the input has all of the rest of the request's body; if so, the rest is dropped there.
    fn drop_upload(&mut self, input: &mut Input) -> bool {
        let Some(decoder) = &mut self.upload else { return true };
        // bytes that cannot be decoded count as missing
        let skipped = decoder.skip(input.bytes()).unwrap_or_default();
        input.consume(skipped);
        decoder.is_done()
    }

    /// Writes an interim answer for a client that understands it and waits for it.
    fn interim<S>(&self, status: u16, head: &Head<'_>, cx: &mut Context<'_, impl HandlerRoles, S>) {
        let is_wanted = match status {
            100 => head.expects_continue && !self.has_begun,
            _ => head.version != Version::Http10,
        };
        if is_wanted {
            cx.out.bytes.extend_from_slice(self.relay.interim());
            cx.out.bytes.extend_from_slice(b"\r\n");
            cx.metrics.add(Counter::Status1xx, 1);
        }
    }

    /// Drives the exchange until there is an answer, as far as possible.
    fn ask<S>(
        &mut self,
        cx: &mut Context<'_, impl HandlerRoles, S>,
        input: &mut Input,
        head: &OwnedHead,
        is_blocked: bool,
    ) -> Far {
        loop {
            if let Err(error) = self.upload(input) {
                return Far::Unread(error);
            }
            let before = self.relay.capacity();
            match self.relay.advance(cx.now_ms) {
                RelayNext::Answer if is_blocked => return Far::Waits,
                RelayNext::Answer => return Far::Answers,
                RelayNext::Interim(status) => self.interim(status, &head.view(), cx),
                // some of the body was taken, and there is more
                RelayNext::Wait
                    if self.upload.is_some()
                        && !input.is_empty()
                        && self.relay.capacity() > before => {}
                RelayNext::Wait => return Far::Waits,
            }
        }
    }

    /// Passes on the part of the answer's body that has come.
    fn download<S>(&mut self, cx: &mut Context<'_, impl HandlerRoles, S>) -> Far {
        let Told::Head { encoder, .. } = &mut self.told else { return Far::Waits };
        loop {
            let most = OUT_BYTES.saturating_sub(cx.out.bytes.len());
            if most == 0 {
                return Far::Waits;
            }
            let read = |out: &mut Vec<u8>, most| self.relay.read(out, most, cx.now_ms);
            match encoder.write_with(&mut cx.out.bytes, most, read).unwrap_or(RelayRead::End) {
                RelayRead::Bytes(count) => self.body_bytes += count as u64,
                RelayRead::Nothing => return Far::Waits,
                RelayRead::Broken => return Far::Breaks,
                RelayRead::End => {
                    let is_whole = encoder.finish(self.relay.trailers(), &mut cx.out.bytes).is_ok();
                    return if is_whole { Far::Over } else { Far::Breaks };
                }
            }
        }
    }

    /// Passes bytes on in both directions of a tunnel.
    fn tunnel<S>(
        &mut self,
        cx: &mut Context<'_, impl HandlerRoles, S>,
        input: &mut Input,
        input_ended: bool,
        is_blocked: bool,
    ) -> Far {
        let Told::Switch(tunnel) = &mut self.told else { return Far::Waits };
        loop {
            let count = self.relay.capacity().min(input.len());
            self.relay.give(&input.bytes()[..count]);
            input.consume(count);
            if input_ended && input.is_empty() && !std::mem::replace(&mut tunnel.client_ended, true)
            {
                tunnel.first.get_or_insert(TunnelOver::Client);
                self.relay.finish(&mut std::iter::empty());
            }
            self.relay.advance(cx.now_ms);
            if count == 0 || input.is_empty() {
                break;
            }
        }
        while !is_blocked && cx.out.bytes.len() < OUT_BYTES {
            let most = OUT_BYTES - cx.out.bytes.len();
            match self.relay.read(&mut cx.out.bytes, most, cx.now_ms) {
                RelayRead::Bytes(count) => self.body_bytes += count as u64,
                RelayRead::Nothing => break,
                RelayRead::Broken => return Far::Breaks,
                RelayRead::End if tunnel.server_ended || !cx.out.is_empty() => break,
                RelayRead::End => {
                    tunnel.server_ended = true;
                    tunnel.first.get_or_insert(TunnelOver::Server);
                    return Far::Ends;
                }
            }
        }
        let has_unsent = self.relay.socket().is_some_and(|(_, _, wants)| wants.write);
        if tunnel.client_ended && tunnel.server_ended && !has_unsent {
            Far::Over
        } else {
            Far::Waits
        }
    }
}

impl<H: HandlerRoles> Http1<H> {
    /// The exchange of the request under way, if another server answers it.
    #[inline]
    pub(super) fn relaying(&self) -> Option<&Http1Relaying<H>> {
        match &self.state {
            RequestState::Kept(kept) => match &kept.stage {
                KeptFor::Relay(relaying) => Some(relaying),
                _ => None,
            },
            _ => None,
        }
    }

    /// Drives the exchange as far as both sides allow.
    #[cold]
    pub(super) fn relay<S: Stopwatch>(
        &mut self,
        cx: &mut Context<'_, H, S>,
        input: &mut Input,
    ) -> Option<Step<H::Job>> {
        let input_ended = self.input_ended;
        let RequestState::Kept(kept) = &mut self.state else { return None };
        let id = kept.id;
        let KeptFor::Relay(relaying) = &mut kept.stage else { return None };
        // an earlier rest for the client would have been sent by now if the client took anything
        let was_held = std::mem::take(&mut self.is_held);
        let is_blocked = was_held && !cx.out.is_empty();
        if was_held && !is_blocked {
            relaying.relay.resume(cx.now_ms);
        }
        if let Some(RequestEvent::Socket(of)) = cx.event.take()
            && of == id
        {
            relaying.relay.ready();
        }
        let far = match relaying.told {
            Told::Switch(_) => relaying.tunnel(cx, input, input_ended, is_blocked),
            _ => match relaying.ask(cx, input, &kept.head, is_blocked) {
                Far::Waits if !is_blocked => relaying.download(cx),
                far => far,
            },
        };
        if let Far::Waits = far
            && !cx.out.is_empty()
        {
            self.is_held = true;
            if !is_blocked {
                return Some(Step::Send);
            }
        }
        match far {
            // earlier answers are sent before the socket leaves
            Far::Waits if relaying.relay.wants_client() && !cx.out.is_empty() => {
                return Some(Step::Send);
            }
            Far::Waits if relaying.relay.wants_client() => return Some(Step::Lend),
            Far::Waits if !relaying.wants_input() => return Some(Step::Wait),
            Far::Waits if !input_ended => return Some(Step::Receive),
            // the client has broken off in the middle of its request
            Far::Waits => {
                let is_answered = matches!(relaying.told, Told::Head { .. });
                let closing = if is_answered { Closing::Reset } else { Closing::Now };
                return Some(Step::Close(closing));
            }
            Far::Ends => return Some(Step::End),
            Far::Answers => self.answer_relayed(cx, input),
            Far::Over => self.finish_relay(cx, input),
            Far::Breaks => self.break_relay(cx),
            Far::Unread(error) => self.refuse_upload(cx, error),
        }
        None
    }

    /// Has the handler answer with the result of the exchange.
    fn answer_relayed<S: Stopwatch>(&mut self, cx: &mut Context<'_, H, S>, input: &mut Input) {
        let RequestState::Kept(mut kept) = std::mem::take(&mut self.state) else { return };
        let KeptFor::Relay(mut relaying) = std::mem::replace(&mut kept.stage, KeptFor::Whole)
        else {
            return;
        };
        let stages = kept.stages;
        // a client that has not sent all of its request cannot be promised that the connection is kept
        let is_whole = relaying.is_there(input);
        let (relayed, status, bytes, keep_alive) =
            kept.with(cx.peer, cx.path, |request, grant, _| {
                let keeps_alive = is_whole && self.keeps_alive(request.head, cx);
                let mut reply = Reply::new(cx.out, cx.date, keeps_alive);
                reply.answers(request.head);
                reply.timeout_s = cx.announce.of(self.rank);
                let (ticket, relay) = (&mut grant.ticket, &mut relaying.relay);
                let relayed = cx.handler.relayed(request, ticket, relay, &mut reply);
                let (status, bytes) = (reply.status, reply.body_bytes);
                let keep_alive = reply.keep_alive;
                if let Relayed::Job(..)
                | Relayed::Again(_)
                | Relayed::GoesOn
                | Relayed::NeedsHttp1 = relayed
                {
                    // nothing is answered yet, so that no log line begins
                    return (relayed, status, bytes, keep_alive);
                }
                let status = match relayed {
                    Relayed::Elsewhere(back) => back.status,
                    _ => status,
                };
                let (peer, ticket) = (cx.peer, Some(&*ticket));
                let answered = Answered { peer, request: Some(request), ticket, status, stages };
                relaying.line = cx.handler.relayed_line(&answered, relay);
                let head = request.head;
                relaying.told = match &relayed {
                    Relayed::Switched => {
                        let is_passed_on = self.passes;
                        Told::Switch(Tunneling { is_passed_on, ..Tunneling::default() })
                    }
                    Relayed::Own
                    | Relayed::Elsewhere(_)
                    | Relayed::Broken
                    | Relayed::Job(..)
                    | Relayed::Again(_)
                    | Relayed::GoesOn
                    | Relayed::NeedsHttp1 => Told::Nothing,
                    Relayed::Body => {
                        let encoder = match relay.length() {
                            _ if head.method == Method::Head || !has_body(status) => {
                                Encoder::sized(0)
                            }
                            Some(length) => Encoder::sized(length),
                            None if head.version == Version::Http10 => Encoder::until_close(),
                            None => Encoder::chunked(),
                        };
                        Told::Head { encoder, keep_alive }
                    }
                };
                (relayed, status, bytes, keep_alive)
            });
        cx.watch.lap(Activity::Process);
        let relayed = match relayed {
            Relayed::Job(job, passed) => {
                (kept.body, kept.passed) = (relaying.upload, Some(passed));
                kept.stage = KeptFor::Job(Some(job));
                self.state = RequestState::Kept(kept);
                return;
            }
            Relayed::Again(passed) => {
                (kept.body, kept.passed) = (relaying.upload, Some(passed));
                kept.stage = KeptFor::Ready;
                self.state = RequestState::Kept(kept);
                return self.answer_kept(cx, input, None);
            }
            Relayed::GoesOn => {
                kept.stage = KeptFor::Relay(relaying);
                self.state = RequestState::Kept(kept);
                return;
            }
            Relayed::Elsewhere(back) => {
                kept.stage = KeptFor::Relay(relaying);
                return self.answered_elsewhere(cx, &mut kept, back, input);
            }
            // the client speaks HTTP/1.1 already
            Relayed::NeedsHttp1 | Relayed::Broken => {
                kept.stage = KeptFor::Relay(relaying);
                self.state = RequestState::Kept(kept);
                return self.break_relay(cx);
            }
            relayed => relayed,
        };
        cx.budget = cx.budget.saturating_sub(1);
        if !self.passes {
            cx.metrics.add(Counter::of_status(status), 1);
        }
        self.announced_s = if keep_alive { cx.announce.of(self.rank) } else { 0 };
        if let Relayed::Own = relayed {
            self.served += 1;
            self.sending.line = relaying.line.take();
            self.sending.ticket = Some(std::mem::take(&mut kept.grant.ticket));
            self.sending.body_sent_bytes = if cx.out.body.is_some() { 0 } else { bytes };
            let is_whole = relaying.drop_upload(input);
            let is_unread = !is_whole || !input.is_empty();
            self.state = if keep_alive { RequestState::default() } else { last(is_unread) };
            return;
        }
        if let Relayed::Switched = relayed {
            relaying.upload = None;
            if std::mem::take(&mut self.passes) {
                // the client has asked for nothing, and gets nothing
                cx.out.clear();
            }
        }
        kept.stage = KeptFor::Relay(relaying);
        self.state = RequestState::Kept(kept);
    }

    /// Ends a request that another process has answered on the client's own socket.
    fn answered_elsewhere<S>(
        &mut self,
        cx: &mut Context<'_, H, S>,
        kept: &mut KeptRequest<H::Ticket, KeptFor<H>>,
        back: ClientReturn,
        input: &Input,
    ) {
        let KeptFor::Relay(mut relaying) = std::mem::replace(&mut kept.stage, KeptFor::Whole)
        else {
            return;
        };
        cx.budget = cx.budget.saturating_sub(1);
        if back.status > 0 {
            cx.metrics.add(Counter::of_status(back.status), 1);
        }
        self.served += 1;
        self.announced_s = 0;
        self.sending.line = relaying.line.take();
        self.sending.ticket = Some(std::mem::take(&mut kept.grant.ticket));
        self.sending.body_sent_bytes = back.body_bytes;
        self.end(cx.handler, Settled::Answered);
        self.is_drained = back.place == ClientPlace::Ended { is_unread: false } && input.is_empty();
        self.state = match back.place {
            ClientPlace::Back if self.comes_back && !cx.draining => RequestState::default(),
            ClientPlace::Ended { is_unread } => last(is_unread || !input.is_empty()),
            // more bytes may have come meanwhile
            ClientPlace::Back => last(true),
            ClientPlace::Gone => RequestState::Gone,
        };
        cx.handler.release(relaying.relay);
    }

    /// Ends the request when all of the answer is written.
    fn finish_relay<S>(&mut self, cx: &mut Context<'_, H, S>, input: &mut Input) {
        let RequestState::Kept(mut kept) = std::mem::take(&mut self.state) else { return };
        let KeptFor::Relay(mut relaying) = std::mem::replace(&mut kept.stage, KeptFor::Whole)
        else {
            return;
        };
        self.served += 1;
        relaying.say_over(cx.handler, None);
        self.sending.line = relaying.line.take();
        self.sending.ticket = Some(std::mem::take(&mut kept.grant.ticket));
        self.sending.body_sent_bytes = relaying.body_bytes;
        if cx.out.is_empty() {
            self.end(cx.handler, Settled::Answered);
        }
        let is_given = relaying.upload.is_none();
        let is_whole = relaying.drop_upload(input);
        let keep_alive = matches!(relaying.told, Told::Head { keep_alive: true, .. }) && is_whole;
        self.state = match keep_alive {
            true => RequestState::default(),
            false => last(!is_whole || !input.is_empty()),
        };
        if is_given && matches!(relaying.told, Told::Head { .. }) {
            cx.handler.release(relaying.relay);
        }
    }

    /// Resets the connection, so that the client sees that the rest of its answer is missing.
    fn break_relay<S>(&mut self, cx: &mut Context<'_, H, S>) {
        cx.metrics.add(Counter::BrokenUpstream, 1);
        if let RequestState::Kept(mut kept) = std::mem::take(&mut self.state)
            && let KeptFor::Relay(relaying) = &mut kept.stage
        {
            relaying.say_over(cx.handler, Some(TunnelOver::Broken));
            relaying.end_line(cx.handler);
            cx.handler.settle(&mut kept.grant.ticket, Settled::Cut);
        }
        self.state = RequestState::Last(Closing::Reset);
    }

    /// Refuses a request whose body cannot be read.
    fn refuse_upload<S: Stopwatch>(&mut self, cx: &mut Context<'_, H, S>, error: BodyError) {
        if self.relaying().is_some_and(Http1Relaying::is_answered) {
            return self.break_relay(cx);
        }
        let RequestState::Kept(mut kept) = std::mem::take(&mut self.state) else { return };
        self.refuse_kept(cx, &mut kept, Owned::Ticket, error.status(), error.reason());
    }

    /// Ends the exchange's wait, because its time is over.
    pub(super) fn expire_relay<S: Stopwatch>(
        &mut self,
        cx: &mut Context<'_, H, S>,
        input: &mut Input,
    ) -> Option<Closing> {
        let RequestState::Kept(kept) = &mut self.state else { return Some(Closing::Now) };
        let KeptFor::Relay(relaying) = &mut kept.stage else { return Some(Closing::Now) };
        if relaying.relay.looks(cx.now_ms) {
            return None;
        }
        let is_of_client = std::mem::take(&mut self.is_held);
        match relaying.told {
            Told::Switch(tunnel) => {
                match tunnel.is_passed_on {
                    true => relaying.relay.expire(),
                    false => relaying.relay.expire_tunnel(),
                }
                return Some(Closing::Now);
            }
            Told::Head { .. } => {
                if !is_of_client && !relaying.wants_input() {
                    relaying.relay.expire();
                }
                return Some(Closing::Reset);
            }
            Told::Nothing
                if relaying.wants_input() && !relaying.relay.awaits().is_before_asking() =>
            {
                let RequestState::Kept(mut kept) = std::mem::take(&mut self.state) else {
                    return None;
                };
                let reason = "the request body took too long to arrive";
                self.refuse_kept(cx, &mut kept, Owned::Ticket, 408, reason);
                return Some(Closing::Linger);
            }
            Told::Nothing => {}
        }
        relaying.relay.expire();
        match relaying.relay.advance(cx.now_ms) {
            RelayNext::Answer => self.answer_relayed(cx, input),
            // the exchange goes on elsewhere
            RelayNext::Wait | RelayNext::Interim(_) => {}
        }
        None
    }
}

impl<H: HandlerTypes> Http1Relaying<H> {
    /// Notes that the last `count` passed-on bytes of the answer were not sent.
    pub(super) fn not_sent(&mut self, count: u64) {
        self.body_bytes = self.body_bytes.saturating_sub(count);
    }

    pub(super) fn is_answered(&self) -> bool {
        !matches!(self.told, Told::Nothing)
    }

    /// Ends the exchange together with its connection. Returns whether the client had got part of an
    /// answer.
    pub(super) fn abandon(&mut self, handler: &mut H) -> bool
    where
        H: HandlerRoles,
    {
        if let Told::Switch(Tunneling { client_ended: false, .. }) = self.told {
            self.relay.cut();
        }
        self.say_over(handler, Some(TunnelOver::Cut));
        self.end_line(handler);
        self.is_answered()
    }

    /// Notes in the log line how a tunnel has ended: as `over` says, or else by the end that came first.
    fn say_over(&mut self, handler: &mut H, over: Option<TunnelOver>)
    where
        H: HandlerRoles,
    {
        if let (Told::Switch(tunnel), Some(line)) = (&self.told, &mut self.line)
            && let Some(over) = over.or(tunnel.first)
        {
            handler.tunnel_over(line, &self.relay, over);
        }
    }

    /// Ends the log line of an answer that is not complete.
    fn end_line(&mut self, handler: &mut H)
    where
        H: HandlerRoles,
    {
        if let Some(mut line) = self.line.take() {
            handler.cut_off(&mut line, &self.relay);
            handler.log(line, self.body_bytes);
        }
    }

    /// Whether the input has all of the rest of the request's body.
    fn is_there(&self, input: &Input) -> bool {
        let Some(mut rest) = self.upload.clone() else { return true };
        rest.skip(input.bytes()).is_ok() && rest.is_done()
    }
}
