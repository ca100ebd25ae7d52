//! The state of one exchange: what is known of it, and what it waits for. The other files of this
//! directory each change one aspect of it.

use super::answer::{AnswerUnderWay, BROKEN_OFF};
use super::link_state::Linked;
use super::outcome::{ExchangeTimes, Failed, FailedAttempt, UpstreamHandshakes};
use super::phase::ExchangePhase;
use super::upload::Upload;
use crate::application::Application;
use crate::group::{MemberIndex, Unavailable};
use crate::places::queue::RequestOwner;
use crate::settings;
use crate::upstreams::connection::UpstreamConnection;
use crate::upstreams::offered::{OfferedPair, PassedRequest};
use crate::upstreams::sign_in::Binding;
use forebay_conn::Await;
use forebay_http::head::Method;
use forebay_http::response::{Response, ResponseContext};
use forebay_http::trace_context::TraceContext;
use forebay_sys::clock;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// How often a late body is checked, in milliseconds: whether other requests want its place.
const LOOK_MS: u64 = 1000;

/// One request and its answer. `T` is what the handler must remember.
pub struct Exchange<T> {
    /// What the handler must remember.
    pub tag: T,
    pub(super) application: Arc<Application>,
    pub(super) asked: Asked,
    /// The state of a request to the next stage.
    pub(super) linked: Option<Box<Linked>>,
    /// How the exchange is bound to its client's connection.
    pub(super) binding: Binding,
    pub(super) tries: Tries,
    pub(super) phase: ExchangePhase,
    pub(super) upload: Upload,
    pub(super) answer: AnswerUnderWay,
    /// When the stage before gets an acknowledgement of the request.
    pub(super) acknowledge_ms: Option<u64>,
    pub(super) has_expired: bool,
    pub(super) now_ms: u64,
    pub(super) moved_ms: u64,
    pub(super) times: ExchangeTimes,
}

/// The request, whichever upstream gets it.
pub(super) struct Asked {
    pub(super) method: Method,
    /// The hash of what the request is balanced by.
    pub(super) key: u64,
    pub(super) owner: RequestOwner,
    pub(super) is_http2: bool,
    /// Until when the client waits.
    pub(super) until_ms: u64,
    /// What the reader of the answer needs to know of the request.
    pub(super) context: ResponseContext,
    /// The names of the fields that were given instead of the client's.
    pub(super) given: Box<[Box<str>]>,
    /// The announcement for a receiver, if the request is passed on to one.
    pub(super) passed: Option<PassedRequest>,
    /// The parent span of the attempts, if the request is traced.
    pub(super) trace: Option<TraceContext>,
}

/// The upstreams that were asked so far.
#[derive(Default)]
pub(super) struct Tries {
    /// All upstreams that were asked, the last one last.
    pub(super) tried: Vec<MemberIndex>,
    /// The failed attempts of a traced request.
    pub(super) failed: Vec<FailedAttempt>,
    /// The addresses at which there was no connection for this request.
    pub(super) refused: Vec<SocketAddr>,
    /// The number of retries.
    pub(super) retries: u32,
    /// How often a shared connection has given the request back, not counted as a retry.
    pub(super) returned: u32,
    /// The TLS handshakes for the request.
    pub(super) handshakes: UpstreamHandshakes,
    /// How long the request has waited for places, in nanoseconds.
    pub(super) waited_ns: u64,
    /// Until when the request waits if no upstream takes connections; 0 if it has not waited for
    /// that.
    pub(super) away_until_ms: u64,
}

impl<T> Exchange<T> {
    /// The number of bytes of the answer's body that have come and were not read.
    pub fn received_bytes(&self) -> usize {
        self.answer.unused().len()
    }

    /// The application that is asked.
    pub fn application(&self) -> &Arc<Application> {
        &self.application
    }

    /// The upstream that was asked last.
    pub fn upstream(&self) -> MemberIndex {
        self.tries.tried.last().copied().unwrap_or_default()
    }

    /// The number of attempts, including those that were never sent.
    pub fn attempts(&self) -> u32 {
        u32::try_from(self.tries.tried.len()).unwrap_or(u32::MAX)
    }

    /// The TLS handshakes for the request.
    pub fn handshakes(&self) -> &UpstreamHandshakes {
        &self.tries.handshakes
    }

    /// The status of the answer, if there is one.
    pub fn status(&self) -> Option<u16> {
        self.answer.head.map(|head| head.status)
    }

    /// Whether a tunnel ends when the client has ended its direction.
    pub(super) fn ends_with_client(&self) -> bool {
        let proxy = self.application.settings().proxy();
        proxy.is_some_and(|proxy| proxy.request.ends_with_client)
    }

    /// Whether the connection has become a tunnel.
    pub(super) fn is_tunnel(&self) -> bool {
        self.asked.context.upgrade && self.status() == Some(101)
    }

    /// The number of bytes from the upstream that were passed on through a tunnel.
    pub fn taken_bytes(&self) -> u64 {
        self.answer.taken_bytes
    }

    /// The number of bytes of the request's body, or of a tunnel, that have come from the client.
    pub fn passed_bytes(&self) -> u64 {
        self.upload.passed_bytes
    }

    /// How long the exchange took.
    pub fn times(&self) -> ExchangeTimes {
        self.times
    }

    /// How long the request has waited for its turn.
    pub fn waited(&self) -> Duration {
        Duration::from_nanos(self.tries.waited_ns)
    }

    /// Why there is no answer.
    pub fn failure(&self) -> Option<Failed> {
        match self.phase {
            ExchangePhase::Failed(failed, _) => Some(failed),
            _ => None,
        }
    }

    /// Why the answer is not whole, in a word, if the application is to blame.
    pub fn cut_off(&self) -> Option<&'static str> {
        match (self.answer.is_broken_off, self.has_expired) {
            (true, _) => Some(BROKEN_OFF),
            (false, true) => Some("timeout"),
            (false, false) => None,
        }
    }

    /// Whether schemes that sign in a connection are removed from the answer, which offers one.
    pub fn withholds_sign_in(&self) -> bool {
        self.binding.withholds()
    }

    /// Whether the answer offers a sign-in that its client can use only over HTTP/1.1.
    pub fn needs_http1(&self) -> bool {
        self.binding.needs_http1()
    }

    /// Whether the connection is for no other client.
    pub fn is_private(&self) -> bool {
        self.binding.is_private()
    }

    /// The head of the answer, if there is one.
    pub fn with_answer<R>(&self, look: impl FnOnce(&Response<'_>) -> R) -> Option<R> {
        let seen = self.answer.head?;
        let bytes = match &self.answer.script {
            Some(script) => script.head(),
            None => self.answer.received.get(seen.start..seen.end)?,
        };
        Some(look(&self.answer.fields.as_ref()?.view(bytes)))
    }

    /// Notes that the handler has looked at the answer, or at the failure.
    pub fn tell(&mut self) {
        self.answer.has_told = true;
    }

    /// Ends the exchange without an answer.
    pub(super) fn give_up(&mut self, failed: Failed) {
        self.phase = ExchangePhase::Failed(failed, self.phase.take_attempt());
        self.acknowledge_ms = None;
    }

    /// Ends the exchange because no place was free in time: in the time of the queue, or of the
    /// client.
    pub(super) fn give_up_late(&mut self) {
        let is_over = self.now_ms >= self.asked.until_ms;
        let late = if is_over { Unavailable::Deadline } else { Unavailable::Late };
        self.give_up(Failed::Unasked(late));
    }

    /// Whether the request waits for a stream of a shared connection, as for a place.
    pub(super) fn waits_for_stream(&self) -> bool {
        self.phase.connection().is_some_and(UpstreamConnection::waits_for_stream)
    }

    /// Whether a receiver was offered the request, and has not confirmed it.
    pub(super) fn is_untaken(&self) -> bool {
        let pair = self.phase.connection().and_then(UpstreamConnection::offered);
        pair.is_some_and(OfferedPair::is_untaken)
    }

    /// Reads what a receiver says. The time to answer begins when it has confirmed the request.
    pub(super) fn hear_receiver(&mut self) {
        if self.asked.passed.is_none() || !self.is_untaken() {
            return;
        }
        let attempt = self.phase.attempt_mut().filter(|attempt| attempt.can_read);
        let Some(attempt) = attempt else { return };
        let pair = attempt.connection.as_mut().and_then(UpstreamConnection::offered_mut);
        let is_taken = pair.is_some_and(|pair| {
            pair.hear();
            pair.is_taken()
        });
        if is_taken {
            self.moved_ms = self.now_ms;
            attempt.whole_ms = attempt.whole_ms.map(|_| self.now_ms);
        }
    }

    /// What the exchange waits for.
    pub(super) fn waits(&self) -> Await {
        match self.phase {
            ExchangePhase::Unbegun | ExchangePhase::Waiting(_) | ExchangePhase::Away(_) => {
                Await::Slot
            }
            ExchangePhase::Connecting(_) if self.waits_for_stream() => Await::Slot,
            ExchangePhase::Connecting(_) => Await::Connect,
            ExchangePhase::Asking(_) if self.is_untaken() => Await::Connect,
            ExchangePhase::Asking(_) if self.upload.is_whole() => Await::Answer,
            _ if self.is_half_passed() => Await::Ending,
            _ => Await::Flow,
        }
    }

    /// Until when the current wait may last.
    pub(super) fn own_deadline_ms(&self) -> u64 {
        let settings::GroupSettings { timeouts, queue, .. } = self.application.settings().group();
        match &self.phase {
            ExchangePhase::Away(wait) => return wait.next_ms(),
            ExchangePhase::Waiting(wait) if wait.is_deaf() => return 0,
            _ => {}
        }
        let time = match self.waits() {
            Await::Slot => queue.time,
            Await::Connect => timeouts.connect,
            Await::Answer => timeouts.head,
            _ => timeouts.silence,
        };
        let since_ms = match (self.waits(), self.phase.attempt()) {
            // neither interim answers nor a head that comes byte by byte prolong the wait
            (Await::Answer, Some(attempt)) => attempt.whole_ms.unwrap_or(self.moved_ms),
            _ => self.moved_ms,
        };
        let until_ms = since_ms.saturating_add(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        let until_ms = self.passed_until_ms(until_ms);
        match self.phase {
            ExchangePhase::Spooling(_) => until_ms.min(self.upload.pace.until_ms(time)),
            // once an application is asked, it gets the client's deadline itself
            _ if self.waits() == Await::Slot => until_ms.min(self.asked.until_ms),
            _ => until_ms,
        }
    }

    /// The deadline for a request's body that comes slowly, before it is answered; afterwards the
    /// client may wait for the answer. A late body gives its place up where another request lacks
    /// one. While none does, it is checked again and again.
    pub(super) fn upload_deadline_ms(&self, now_ms: u64) -> u64 {
        let group = self.application.settings().group();
        let ExchangePhase::Asking(attempt) = &self.phase else { return u64::MAX };
        let has_place = attempt.slot.is_some() && group.in_flight.is_some();
        if self.upload.encoding.is_none() || !has_place {
            return u64::MAX;
        }
        let until_ms = self.upload.pace.until_ms(group.timeouts.body);
        if now_ms < until_ms {
            return until_ms;
        }
        // late only if the client is to blame: all that has come is sent, and the upstream would take
        // more
        let is_late =
            self.upload.pace.is_up_to_client() && self.upload.is_sent() && !attempt.is_cut;
        match is_late && self.application.upstreams().is_short(self.asked.owner.rank) {
            true => until_ms,
            false => now_ms.saturating_add(LOOK_MS),
        }
    }

    /// Notes that the head of an answer is there.
    pub(super) fn is_well(&mut self) {
        self.times.answered_ns = clock::monotonic_ns();
        self.phase.answered();
        self.acknowledge_ms = None;
        let status = self.status().unwrap_or(0);
        if let Some(slot) = self.phase.slot_mut() {
            slot.answered(status >= 500, self.times.answered_ns);
            slot.count_answer(status, self.times.head_ns());
        }
    }
}
