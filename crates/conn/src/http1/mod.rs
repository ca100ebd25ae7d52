//! HTTP/1 on one connection: requests one after another, each through the four stages.
//!
//! A request that can be answered at once borrows the received bytes and leaves nothing behind. One that
//! must wait is kept as a [`KeptRequest`], with all it owns; what it waits for is its `KeptFor`.

mod answer;
mod passed_on;
mod receive;
mod refuse;
mod relay;
mod written;

use crate::context::Context;
use crate::handler::{GivenUp, HandlerRoles, HandlerTypes, Piece, Relay, Settled};
use crate::input::Input;
use crate::limits::ConnectionLimits;
use crate::peer::Peer;
use crate::protocol::{Awaited, Protocol};
use crate::rank::Rank;
use crate::request::{KeptRequest, Request, RequestId};
use crate::socket::{SocketId, Wants};
use crate::step::{Await, Closing, Step};
use crate::wake::WakeSlot;
use forebay_http::body::BodyDecoder;
use forebay_http::path::NormalPath;
use forebay_metrics::Stopwatch;
use receive::{is_head, whole};
use relay::Http1Relaying;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;

/// Once this many bytes of answers are waiting in [`Out`](crate::Out), they are sent before the next request
/// of a pipeline is looked at.
const BATCH_BYTES: usize = 48 * 1024;

/// The largest number of attempts to answer a request whose file changes each time before its answer is
/// begun.
const MOST_ATTEMPTS: u8 = 3;

/// One connection as a state machine.
///
/// An idle connection owns no heap memory.
pub struct Http1<H: HandlerRoles> {
    state: RequestState<H>,
    /// Bytes received and not yet used, while another connection has the loop's buffer.
    held: Vec<u8>,
    sending: Sending<H>,
    /// The rank of the last request, and its client if a proxy's connection brings those of many.
    rank: Rank,
    client: Option<IpAddr>,
    record: H::Record,
    /// Whether the policy closes the connection after the current request.
    is_last: bool,
    served: u32,
    /// The time for which the connection is kept, as the last answer has announced it, in seconds.
    announced_s: u32,
    input_ended: bool,
    /// Whether the client had something left to take when the exchange under way was last looked at.
    is_held: bool,
    /// Whether another process is likely to answer the request under way: nothing here comes before it.
    hands_over: bool,
    /// Whether the connection goes on when another process gives the client's socket back.
    comes_back: bool,
    /// Whether the bytes are to be passed on as they are, and are not yet: this server sends the client
    /// nothing.
    passes: bool,
    /// Whether another process has ended the connection and left no unread bytes in its socket.
    is_drained: bool,
}

enum RequestState<H: HandlerRoles> {
    /// A head is being received, or nothing has come yet.
    Head(Partial),
    /// A request waits.
    Kept(Kept<H>),
    /// The last answer is written.
    Last(Closing),
    /// The connection is another process's.
    Gone,
    /// The bytes are to be passed on as they are; this made-up request stands for the connection.
    PassesOn(Box<[u8]>),
}

/// A request that is kept.
type Kept<H> = Box<KeptRequest<<H as HandlerTypes>::Ticket, KeptFor<H>>>;

/// The beginning of a head.
#[derive(Clone, Copy, Default)]
struct Partial {
    /// How many bytes are known not to contain the end of the head.
    searched: usize,
    /// When the first byte was seen; 0 if none was, or if no times are recorded.
    begun_ns: u64,
}

/// What a request that is kept waits for.
enum KeptFor<H: HandlerTypes> {
    /// For this job, after which it is known what answers. The job must be started; without it here, it
    /// is running. Until then nothing of the body is received.
    Deciding(Option<H::Job>),
    /// For its body, which is discarded.
    Body(BodyDecoder),
    /// Until the request may be answered, in this many milliseconds.
    Early(u32),
    /// For nothing but the server from here on: the request must be enqueued.
    Whole,
    /// For its turn.
    Ready,
    /// For this job, which must be started; without it here, it is running.
    Job(Option<H::Job>),
    /// To be handed over.
    HandOver,
    /// For another server, which answers it.
    Relay(Box<Http1Relaying<H>>),
}

/// The rest of the last answer written, until it is sent.
struct Sending<H: HandlerRoles> {
    line: Option<H::Line>,
    ticket: Option<H::Ticket>,
    body_sent_bytes: u64,
    /// The request of the answer, if its file may turn out to have changed before anything of the answer
    /// was sent.
    request: Option<Kept<H>>,
}

/// How an attempt to answer one request ended.
enum AnswerOutcome<H: HandlerTypes> {
    /// The answer is written; the connection is kept.
    Next,
    /// The answer is written; the connection ends with it.
    Last,
    Job(H::Job),
    HandOver,
    Relay(H::Relay),
}

/// The ticket of a request that is answered.
enum Owned<T> {
    /// The ticket must be settled when the answer is sent.
    Ticket(T),
    /// The ticket was settled before.
    Settled(T),
}

/// Input that cannot be served.
enum Unserved<'r, T> {
    /// Bytes that are no request, or only a part of one; `is_head` if they begin as a HEAD request does.
    Bytes { is_head: bool },
    /// A request.
    Request(&'r Request<'r>, Owned<T>),
}

impl<H: HandlerRoles> Default for RequestState<H> {
    fn default() -> Self {
        RequestState::Head(Partial::default())
    }
}

impl<H: HandlerRoles> Default for Http1<H> {
    fn default() -> Self {
        Http1 {
            state: RequestState::default(),
            held: Vec::new(),
            sending: Sending { line: None, ticket: None, body_sent_bytes: 0, request: None },
            rank: Rank::FIRST,
            client: None,
            record: H::Record::default(),
            is_last: false,
            served: 0,
            announced_s: 0,
            input_ended: false,
            is_held: false,
            hands_over: false,
            comes_back: false,
            passes: false,
            is_drained: false,
        }
    }
}

impl<H: HandlerRoles> Http1<H> {
    /// Whether no request has been taken from the input.
    #[inline]
    pub(crate) fn is_new(&self) -> bool {
        self.served == 0 && matches!(self.state, RequestState::Head(_))
    }

    /// Ends the wait that [`awaits`](Protocol::awaits) has stated, because its time is over.
    fn expire_awaited<S: Stopwatch>(
        &mut self,
        cx: &mut Context<'_, H, S>,
        input: &mut Input,
    ) -> Option<Closing> {
        if self.relaying().is_some() {
            return self.expire_relay(cx, input);
        }
        match (self.awaits().what, std::mem::take(&mut self.state)) {
            (Await::Head, RequestState::Head(partial))
                if !self.held.is_empty() || !input.is_empty() =>
            {
                let (is_head, stages) = (is_head(input.bytes()), whole(cx, partial.begun_ns));
                let reason = "the request took too long to arrive";
                self.refuse(cx, Unserved::Bytes { is_head }, stages, 408, reason);
            }
            (Await::Body, RequestState::Kept(mut kept)) => {
                let reason = "the request body took too long to arrive";
                self.refuse_kept(cx, &mut kept, Owned::Ticket, 408, reason);
            }
            (Await::Job | Await::Admission, RequestState::Kept(mut kept)) => {
                cx.handler.settle(&mut kept.grant.ticket, Settled::Expired);
                let reason = "the request could not be processed in time";
                self.refuse_kept(cx, &mut kept, Owned::Settled, 503, reason);
            }
            (Await::Send, _) => return Some(Closing::Reset),
            _ => return Some(Closing::Now),
        }
        Some(Closing::Linger)
    }
}

impl<H: HandlerRoles> Protocol<H> for Http1<H> {
    fn advance<S: Stopwatch>(
        &mut self,
        cx: &mut Context<'_, H, S>,
        input: &mut Input,
    ) -> Step<H::Job> {
        loop {
            if (cx.out.body.is_some() || cx.out.bytes.len() >= BATCH_BYTES) && !self.is_held {
                return Step::Send;
            }
            let blocked = match &self.state {
                RequestState::Head(_) => self.receive(cx, input),
                RequestState::Kept(_) => self.go_on(cx, input),
                RequestState::Last(_) if !cx.out.is_empty() => Some(Step::Send),
                RequestState::Last(closing) => Some(Step::Close(*closing)),
                RequestState::Gone => Some(Step::HandOver),
                RequestState::PassesOn(_) => self.ask_to_pass_on(cx),
            };
            if self.passes {
                self.say_nothing(cx);
            }
            match blocked {
                None => continue,
                Some(Step::Receive | Step::Yield | Step::Wait | Step::NotBefore(..))
                    if !cx.out.is_empty() && !self.is_held =>
                {
                    return Step::Send;
                }
                Some(Step::Receive) if self.input_ended => return Step::Close(Closing::Now),
                Some(step) => return step,
            }
        }
    }

    #[inline]
    fn resume(&mut self, input: &mut Input) {
        input.resume(&mut self.held);
    }

    #[inline]
    fn suspend(&mut self, input: &mut Input) {
        input.hold(&mut self.held);
    }

    fn end_input(&mut self) {
        self.input_ended = true;
    }

    #[inline]
    fn wants_input(&self) -> bool {
        match &self.state {
            RequestState::Head(_) => true,
            RequestState::Kept(kept) => match &kept.stage {
                KeptFor::Body(_) => true,
                KeptFor::Relay(relaying) => !self.input_ended && relaying.wants_input(),
                _ => false,
            },
            RequestState::Last(_) | RequestState::Gone | RequestState::PassesOn(_) => false,
        }
    }

    #[inline]
    fn goes_on(&self) -> bool {
        self.relaying().is_some()
    }

    #[inline]
    fn body_sent(&mut self, count: u64) {
        self.sending.body_sent_bytes += count;
    }

    fn not_sent(&mut self, count: u64) {
        // heads and the lines between chunks may be among them: for the body, no more is reported than
        // was sent
        if let RequestState::Kept(kept) = &mut self.state
            && let KeptFor::Relay(relaying) = &mut kept.stage
            && relaying.is_answered()
        {
            return relaying.not_sent(count);
        }
        let bytes = &mut self.sending.body_sent_bytes;
        *bytes = bytes.saturating_sub(count);
    }

    #[inline]
    fn sent(&mut self, handler: &mut H) {
        self.end(handler, Settled::Answered);
        self.sending.request = None;
    }

    #[cold]
    fn withdraw<S: Stopwatch>(&mut self, cx: &mut Context<'_, H, S>) -> bool {
        if cx.out.earlier().is_none() || self.sending.ticket.is_none() {
            return false;
        }
        let Some(mut kept) = self.sending.request.take() else { return false };
        cx.out.withdraw();
        self.sending.line = None;
        kept.grant.ticket = self.sending.ticket.take().unwrap_or_default();
        kept.withdrawn += 1;
        self.served -= 1;
        let is_given_up = kept.withdrawn >= MOST_ATTEMPTS;
        if is_given_up {
            self.refuse_kept(cx, &mut kept, Owned::Ticket, 503, "the file changes again and again");
        } else {
            self.state = RequestState::Kept(kept);
        }
        true
    }

    fn abandon(&mut self, handler: &mut H, peer: &Peer) {
        self.end(handler, Settled::Cut);
        if let RequestState::Kept(mut kept) = std::mem::take(&mut self.state) {
            if let KeptFor::Relay(relaying) = &mut kept.stage
                && relaying.abandon(handler)
            {
                return handler.settle(&mut kept.grant.ticket, Settled::Cut);
            }
            let stages = kept.stages;
            kept.with(peer, &NormalPath::default(), |request, grant, stage| {
                let relay = match stage {
                    KeptFor::Relay(relaying) => Some(relaying.relay()),
                    _ => None,
                };
                handler.given_up(&GivenUp { peer, request, ticket: &grant.ticket, stages }, relay);
            });
            handler.settle(&mut kept.grant.ticket, Settled::Cut);
        }
    }

    fn expire<S: Stopwatch>(
        &mut self,
        cx: &mut Context<'_, H, S>,
        input: &mut Input,
        _: Awaited,
    ) -> Option<Closing> {
        let passes = self.passes;
        let closing = self.expire_awaited(cx, input);
        if !(passes && self.passes) {
            return closing;
        }
        self.say_nothing(cx);
        let goes_on = matches!(self.state, RequestState::Kept(_));
        if goes_on { closing } else { Some(Closing::Reset) }
    }

    #[inline]
    fn awaits(&self) -> Awaited {
        let what = match &self.state {
            RequestState::Head(partial)
                if self.held.is_empty() && partial.searched == 0 && self.served > 0 =>
            {
                Await::Idle
            }
            RequestState::Head(_) => Await::Head,
            RequestState::Kept(kept) => match kept.stage {
                KeptFor::Body(_) => Await::Body,
                KeptFor::Early(_) => Await::Admission,
                KeptFor::Relay(ref relaying) => relaying.relay().awaits(),
                _ => Await::Job,
            },
            RequestState::PassesOn(_) => Await::Job,
            RequestState::Last(_) | RequestState::Gone => Await::Send,
        };
        Awaited { what, id: RequestId(self.served) }
    }

    fn left(&self) -> u64 {
        self.relaying().map_or(0, Http1Relaying::left)
    }

    fn aborts_on_close(&self) -> bool {
        self.relaying().is_some_and(Http1Relaying::aborts_on_close)
    }

    fn deadline_ms(&self, _: Awaited) -> u64 {
        self.relaying().map_or(u64::MAX, |relaying| relaying.relay().deadline_ms())
    }

    fn ends_ms(&self) -> u64 {
        self.relaying().map_or(u64::MAX, |relaying| relaying.relay().ends_ms())
    }

    fn sockets<'s>(&'s self, tell: &mut dyn FnMut(RequestId, SocketId, BorrowedFd<'s>, Wants)) {
        if let RequestState::Kept(kept) = &self.state
            && let KeptFor::Relay(relaying) = &kept.stage
        {
            let relay = relaying.relay();
            for (socket_id, socket, wants) in relay.socket().into_iter().chain(relay.other_socket())
            {
                tell(kept.id, socket_id, socket, wants);
            }
        }
    }

    fn wake_slots<'s>(&'s self, tell: &mut dyn FnMut(RequestId, &'s WakeSlot)) {
        if let RequestState::Kept(kept) = &self.state
            && let KeptFor::Relay(relaying) = &kept.stage
            && let Some(slot) = relaying.relay().wake_slot()
        {
            tell(kept.id, slot);
        }
    }

    #[inline]
    fn has_sockets(&self) -> bool {
        self.relaying().is_some()
    }

    #[inline]
    fn rank_and_client(&self, _: RequestId) -> (Rank, Option<IpAddr>) {
        (self.rank, self.client)
    }

    #[inline]
    fn rank(&self) -> Rank {
        self.rank
    }

    fn set_rank(&mut self, rank: Rank) {
        self.rank = rank;
    }

    fn is_queued(&self) -> bool {
        let RequestState::Kept(kept) = &self.state else { return false };
        matches!(
            kept.stage,
            KeptFor::Early(_)
                | KeptFor::Whole
                | KeptFor::Ready
                | KeptFor::Deciding(Some(_))
                | KeptFor::Job(Some(_))
        )
    }

    #[inline]
    fn is_at_rest(&self) -> bool {
        matches!(self.state, RequestState::Head(Partial { searched: 0, .. }))
            && self.held.is_empty()
    }

    #[inline]
    fn announced_s(&self) -> u32 {
        self.announced_s
    }

    #[inline]
    fn is_lent(&self) -> bool {
        self.relaying().is_some_and(|relaying| relaying.relay().has_client())
    }

    fn is_drained(&self) -> bool {
        self.is_drained
    }

    #[inline]
    fn stays_in_receive(&self) -> bool {
        self.hands_over
    }

    fn lend(
        &mut self,
        socket: BorrowedFd<'_>,
        sent_bytes: Option<u64>,
        may_stay: bool,
        limits: &ConnectionLimits,
        input: &mut Input,
    ) {
        let ends = !kept_alive_by(&self.state);
        let stays = !ends && may_stay && !self.input_ended;
        let is_last = !stays || self.is_last || self.served + 1 >= limits.requests;
        if let RequestState::Kept(kept) = &mut self.state
            && let KeptFor::Relay(relaying) = &mut kept.stage
        {
            // another receiver gets what the first one got
            self.comes_back |=
                !relaying.lend(socket, sent_bytes, (is_last, ends), &kept.head, input);
        }
        // this server's own next answer is the last: it is not known how much of the request the receiver
        // has read
        self.is_last = true;
    }

    fn take_handed(&mut self, input: &mut Input) -> (Vec<u8>, H::Ticket) {
        let (mut received, ticket) = match std::mem::take(&mut self.state) {
            RequestState::Kept(kept) => (kept.head.received().to_vec(), kept.grant.ticket),
            // no request was kept, so there is no ticket
            RequestState::Head(_)
            | RequestState::Last(_)
            | RequestState::Gone
            | RequestState::PassesOn(_) => (Vec::new(), H::Ticket::default()),
        };
        received.extend_from_slice(input.bytes());
        input.clear();
        (received, ticket)
    }
}

/// Whether the client of the request that is kept wants the connection to stay.
fn kept_alive_by<H: HandlerRoles>(state: &RequestState<H>) -> bool {
    matches!(state, RequestState::Kept(kept) if kept.head.view().keep_alive)
}

/// Whether the last answer is a file, which may turn out to have changed before the answer is begun.
fn may_be_outdated<H: HandlerRoles, S>(cx: &Context<'_, H, S>) -> bool {
    let body = cx.out.body.as_ref();
    body.is_some_and(|body| matches!(cx.handler.piece(body), Some(Piece::File { .. })))
}

/// The state after a last answer.
fn last<H: HandlerRoles>(is_unread: bool) -> RequestState<H> {
    RequestState::Last(if is_unread { Closing::Linger } else { Closing::Now })
}

/// The part of the input that was not read when a request is refused.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BehindRefused {
    /// Nothing: the request is complete, and no other has come.
    Nothing,
    /// The request is complete, and more has come behind it.
    More,
    /// A part of the request itself.
    Rest,
}

impl BehindRefused {
    fn of(is_whole: bool, has_more: bool) -> BehindRefused {
        match (is_whole, has_more) {
            (true, false) => BehindRefused::Nothing,
            (true, true) => BehindRefused::More,
            (false, _) => BehindRefused::Rest,
        }
    }
}
