//! A request that is handed over: it waits for its turn as for any application. Then a receiver gets
//! the client's socket and the bytes of the request, and reports what becomes of it.
//!
//! ```text
//!  unbegun ──► waiting ──► ready ──► lent ──► over
//!                            ▲        │
//!                            └────────┘ another receiver, if that is safe
//! ```
//!
//! `attempts` decides which receiver that is; `lent` reads what the receiver reports about the
//! request.
//!
//! A link to a receiver carries one request at a time, so at most one waits there unread. The link is
//! kept for the next request, as connections to applications are.

mod attempts;
mod lent;

use super::link::{LentClient, ReceiverLink};
use crate::application::Application;
use crate::exchange::{ExchangeTimes, Failed};
use crate::group::{MemberIndex, Unavailable};
use crate::places::queue::RequestOwner;
use crate::receivers::frame::{AnswerReport, Offer};
use crate::receivers::loan::{Loan, LoanLoss};
use crate::settings::GroupSettings;
use crate::upstreams::QueueWait;
use forebay_conn::handler::relay::{LentRequest, RelayNext, RelayRead};
use forebay_conn::{Await, Relay, SocketId, WakeSlot, Wants};
use forebay_http::head::Method;
use forebay_sys::clock;
use forebay_sys::socket::SocketNumber;
use std::mem;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

/// A request that is handed over. `T` is what the handler must remember.
pub struct HandOverExchange<T> {
    /// What the handler must remember.
    pub tag: T,
    application: Arc<Application>,
    request: HandedRequest,
    phase: HandOverPhase,
    loan: Loan,
    /// The offer to receivers; empty until the head of the request is here.
    message: Vec<u8>,
    /// How much was sent to the client before the first receiver had its socket; `None` before that.
    sent_before: Option<Option<u64>>,
    /// All receivers that were asked, the last one last.
    tried: Vec<MemberIndex>,
    retries: u32,
    has_expired: bool,
    has_told: bool,
    now_ms: u64,
    /// When the current wait began.
    since_ms: u64,
    waited_ns: u64,
    times: ExchangeTimes,
}

/// A request that is handed over, as far as the server knows it before the socket leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandedRequest {
    /// The method.
    pub method: Method,
    /// The [hash](crate::group::balance::hash) of what the request is balanced by.
    pub key: u64,
    /// The request's rank and client, for the queue.
    pub owner: RequestOwner,
    /// The unique number of the request.
    pub id: u128,
    /// The client's address, as receivers get it.
    pub client: SocketAddr,
    /// The address that the client has connected to.
    pub server: SocketAddr,
    /// Whether the receiver keeps the connection.
    pub keeps: bool,
    /// Whether a receiver that has read the offer has taken the request, and need not confirm it.
    pub taken_by_reading: bool,
}

/// How a hand-over has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandOverEnd {
    /// The request is answered, and the connection is at the next one.
    Back(AnswerReport),
    /// The request is answered, and the connection is at its end. The flag says whether the client
    /// has sent more, which no process has received.
    Ended(AnswerReport, bool),
    /// A receiver has the connection for good.
    Gone,
    /// No receiver has answered, and nothing was written to the client.
    Failed(Failed),
    /// A receiver that had taken the request has died, or sent something that is no report. Nothing
    /// was written to the client.
    Lost(LoanLoss),
    /// The client has no socket that could leave: the request came in a stream of HTTP/2, or through
    /// TLS.
    NoSocket,
    /// Some receiver has written to the client, and it is not known what.
    Broken(&'static str),
}

enum HandOverPhase {
    Unbegun,
    Waiting(QueueWait),
    /// There is a link, and the client's socket must leave next.
    Ready(ReceiverLink),
    Lent(ReceiverLink, LentClient),
    /// The exchange is over; the link may be used again.
    Over(HandOverEnd, Option<ReceiverLink>),
}

impl<T> HandOverExchange<T> {
    /// An exchange that has asked nothing yet.
    pub fn new(
        application: &Arc<Application>,
        request: HandedRequest,
        tag: T,
        now_ms: u64,
    ) -> HandOverExchange<T> {
        HandOverExchange {
            tag,
            application: Arc::clone(application),
            request,
            phase: HandOverPhase::Unbegun,
            loan: Loan::new(request.keeps, request.taken_by_reading),
            message: Vec::new(),
            sent_before: None,
            tried: Vec::new(),
            retries: 0,
            has_expired: false,
            has_told: false,
            now_ms,
            since_ms: now_ms,
            waited_ns: 0,
            times: ExchangeTimes::begun(clock::monotonic_ns()),
        }
    }

    /// An exchange that failed because no receiver may be asked.
    #[must_use]
    pub fn refused(self, unavailable: Unavailable) -> HandOverExchange<T> {
        let end = HandOverEnd::Failed(Failed::Unasked(unavailable));
        HandOverExchange { phase: HandOverPhase::Over(end, None), ..self }
    }

    /// An exchange that failed because its client has no socket that could leave.
    #[must_use]
    pub fn without_socket(self) -> HandOverExchange<T> {
        HandOverExchange { phase: HandOverPhase::Over(HandOverEnd::NoSocket, None), ..self }
    }

    /// Why the hand-over has failed, in a word for logs.
    pub fn error(&self) -> Option<&'static str> {
        match self.end()? {
            HandOverEnd::Back(_) | HandOverEnd::Ended(..) | HandOverEnd::Gone => None,
            HandOverEnd::Failed(failed) => Some(failed.word()),
            HandOverEnd::Lost(loss) => Some(loss.word()),
            HandOverEnd::Broken(word) => Some(word),
            HandOverEnd::NoSocket => Some("no_socket"),
        }
    }

    /// The status that a receiver has reported.
    pub fn status(&self) -> Option<u16> {
        match self.end()? {
            HandOverEnd::Back(report) | HandOverEnd::Ended(report, _) => {
                (report.status > 0).then_some(report.status)
            }
            _ => None,
        }
    }

    /// The application that is asked.
    pub fn application(&self) -> &Arc<Application> {
        &self.application
    }

    /// The receiver that was asked last.
    pub fn upstream(&self) -> MemberIndex {
        self.tried.last().copied().unwrap_or_default()
    }

    /// How many receivers were asked.
    pub fn attempts(&self) -> u32 {
        u32::try_from(self.tried.len()).unwrap_or(u32::MAX)
    }

    /// How long the exchange took.
    pub fn times(&self) -> ExchangeTimes {
        self.times
    }

    /// How long the request has waited for its turn.
    pub fn waited(&self) -> Duration {
        Duration::from_nanos(self.waited_ns)
    }

    /// How the hand-over has ended, if it has.
    pub fn end(&self) -> Option<HandOverEnd> {
        match self.phase {
            HandOverPhase::Over(end, _) => Some(end),
            _ => None,
        }
    }

    /// Notes that the handler has looked at the end.
    pub fn tell(&mut self) {
        self.has_told = true;
    }

    fn settings(&self) -> &GroupSettings {
        self.application.settings().group()
    }

    fn fail(&mut self, failed: Failed) {
        self.end_with(HandOverEnd::Failed(failed), None);
    }

    fn end_with(&mut self, end: HandOverEnd, link: Option<ReceiverLink>) {
        self.phase = HandOverPhase::Over(end, link);
    }
}

impl<T: Send> Relay for HandOverExchange<T> {
    fn socket(&self) -> Option<(SocketId, BorrowedFd<'_>, Wants)> {
        match &self.phase {
            HandOverPhase::Waiting(wait) => wait.socket(),
            HandOverPhase::Ready(link) => {
                let wants = Wants { read: false, write: !link.can_write };
                Some((link.connection.id, link.connection.as_fd(), wants))
            }
            HandOverPhase::Lent(link, _) => {
                let has_rest = link.sent < self.message.len();
                let wants = Wants { read: !link.can_read, write: has_rest && !link.can_write };
                Some((link.connection.id, link.connection.as_fd(), wants))
            }
            HandOverPhase::Unbegun | HandOverPhase::Over(..) => None,
        }
    }

    fn wake_slot(&self) -> Option<&WakeSlot> {
        match &self.phase {
            HandOverPhase::Waiting(wait) => Some(wait.wake_slot()),
            _ => None,
        }
    }

    fn ready(&mut self) {
        if let HandOverPhase::Ready(link) | HandOverPhase::Lent(link, _) = &mut self.phase {
            (link.can_read, link.can_write) = (true, true);
        }
    }

    /// The body stays in the client's socket.
    fn capacity(&self) -> usize {
        0
    }

    fn takes_body(&self) -> bool {
        true
    }

    fn give(&mut self, _: &[u8]) {}

    fn finish<'t>(&mut self, _: &mut dyn Iterator<Item = (&'t str, &'t [u8])>) {}

    fn cut(&mut self) {}

    fn keeps_client(&self) -> bool {
        self.request.keeps
    }

    fn wants_client(&self) -> bool {
        matches!(&self.phase, HandOverPhase::Ready(link) if link.can_write)
    }

    fn has_client(&self) -> bool {
        matches!(self.phase, HandOverPhase::Lent(..))
    }

    fn lend(&mut self, client: BorrowedFd<'_>, request: LentRequest<'_>) {
        let phase = mem::replace(&mut self.phase, HandOverPhase::Unbegun);
        let HandOverPhase::Ready(mut link) = phase else {
            self.phase = phase;
            return;
        };
        if self.message.is_empty() {
            let HandedRequest { id, client, server, keeps, taken_by_reading, .. } = self.request;
            let LentRequest { head, body, body_left, is_last, .. } = request;
            let offer = Offer {
                id,
                client,
                server,
                keeps,
                is_last,
                taken_by_reading,
                head,
                body,
                body_left,
            };
            self.message = offer.message();
        }
        let socket = SocketNumber::of(client);
        // the count is unknown for sockets other than TCP; it is taken once, since this server sends
        // nothing between two receivers
        let sent_bytes = *self.sent_before.get_or_insert(request.sent_bytes);
        let lent = LentClient { socket, sent_bytes, is_all: request.is_all };
        self.since_ms = self.now_ms;
        match link.send(&self.message, Some(client)) {
            None => self.phase = HandOverPhase::Ready(link),
            Some(happened) => {
                self.phase = HandOverPhase::Lent(link, lent);
                self.heard(happened);
            }
        }
    }

    fn advance(&mut self, now_ms: u64) -> RelayNext {
        self.now_ms = now_ms;
        // this server may be late itself: a place that has become free counts
        let has_turn = self.look_at_turn();
        if mem::take(&mut self.has_expired) && !has_turn {
            self.is_late();
        }
        self.go_on();
        match self.phase {
            HandOverPhase::Over(..) if !self.has_told => RelayNext::Answer,
            _ => RelayNext::Wait,
        }
    }

    fn length(&self) -> Option<u64> {
        Some(0)
    }

    fn resume(&mut self, _: u64) {}

    fn read(&mut self, _: &mut Vec<u8>, _: usize, _: u64) -> RelayRead {
        RelayRead::End
    }

    /// A receiver that has the client's socket notices a closed connection itself.
    fn aborts_on_close(&self) -> bool {
        !self.has_client() && self.settings().abort_on_close
    }

    fn awaits(&self) -> Await {
        match self.phase {
            HandOverPhase::Unbegun | HandOverPhase::Waiting(_) => Await::Slot,
            HandOverPhase::Ready(_) => Await::Connect,
            _ if !self.loan.is_taken() => Await::Connect,
            _ => Await::Answer,
        }
    }

    fn deadline_ms(&self) -> u64 {
        if matches!(&self.phase, HandOverPhase::Waiting(wait) if wait.is_deaf()) {
            return 0;
        }
        let GroupSettings { timeouts, queue, .. } = self.settings();
        let time = match self.awaits() {
            Await::Slot => queue.time,
            Await::Connect => timeouts.connect,
            _ => timeouts.head,
        };
        self.since_ms.saturating_add(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
    }

    /// Looks at what has come meanwhile, because this server may be late itself, and goes on with it.
    /// Returns whether anything had come.
    fn looks(&mut self, now_ms: u64) -> bool {
        self.now_ms = now_ms;
        if let HandOverPhase::Waiting(_) = self.phase {
            return self.look_at_turn();
        }
        let was_taken = self.loan.is_taken();
        let HandOverPhase::Lent(link, _) = &mut self.phase else { return false };
        link.can_read = true;
        self.go_on();
        !matches!(self.phase, HandOverPhase::Lent(..)) || self.loan.is_taken() != was_taken
    }

    fn expire(&mut self) {
        self.has_expired = true;
    }
}
