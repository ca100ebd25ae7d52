//! One exchange: what is known of it, and what it waits for. The files beside this one change it, each in one
//! respect.

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

/// A body that is late is looked at so often: whether others want the place of its request.
const LOOK_MS: u64 = 1000;

/// One request and its answer. `T` is what its handler must remember.
pub struct Exchange<T> {
    /// What its handler must remember.
    pub tag: T,
    pub(super) application: Arc<Application>,
    pub(super) asked: Asked,
    /// What is known of it where the upstream is the next stage.
    pub(super) linked: Option<Box<Linked>>,
    /// How it is bound to its client's connection.
    pub(super) binding: Binding,
    pub(super) tries: Tries,
    pub(super) phase: ExchangePhase,
    pub(super) upload: Upload,
    pub(super) answer: AnswerUnderWay,
    /// When the stage before is to be told that the request is here.
    pub(super) acknowledge_ms: Option<u64>,
    pub(super) has_expired: bool,
    pub(super) now_ms: u64,
    pub(super) moved_ms: u64,
    pub(super) times: ExchangeTimes,
}

/// What is asked, of whichever upstream.
pub(super) struct Asked {
    pub(super) method: Method,
    /// The hash of what the request is balanced by.
    pub(super) key: u64,
    pub(super) owner: RequestOwner,
    pub(super) is_http2: bool,
    /// Until then its client waits.
    pub(super) until_ms: u64,
    /// What an answer is read by.
    pub(super) context: ResponseContext,
    /// The names of fields that others decide about.
    pub(super) given: Box<[Box<str>]>,
    /// What a receiver is told of it, if it is passed on to one.
    pub(super) passed: Option<PassedRequest>,
    /// The span above those of its attempts, if the request is recorded.
    pub(super) trace: Option<TraceContext>,
}

/// Which upstreams were asked before.
#[derive(Default)]
pub(super) struct Tries {
    /// All that were asked, the last one last.
    pub(super) tried: Vec<MemberIndex>,
    /// Those that have failed, of a request that is recorded.
    pub(super) failed: Vec<FailedAttempt>,
    /// Addresses of names at which there was no connection for it.
    pub(super) refused: Vec<SocketAddr>,
    /// How often it was sent again.
    pub(super) retries: u32,
    /// How often a connection that others have, too, has given it back, beside that.
    pub(super) returned: u32,
    /// Handshakes of TLS there were.
    pub(super) handshakes: UpstreamHandshakes,
    /// It has waited so long for places.
    pub(super) waited_ns: u64,
    /// Until when it waits, if no upstream takes connections; 0 if it has not yet.
    pub(super) away_until_ms: u64,
}

impl<T> Exchange<T> {
    /// What has come of the answer's body and was not read.
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

    /// How often the request was sent, or was to be.
    pub fn attempts(&self) -> u32 {
        u32::try_from(self.tries.tried.len()).unwrap_or(u32::MAX)
    }

    /// The handshakes of TLS for it.
    pub fn handshakes(&self) -> &UpstreamHandshakes {
        &self.tries.handshakes
    }

    /// The status of the answer, if there is one.
    pub fn status(&self) -> Option<u16> {
        self.answer.head.map(|head| head.status)
    }

    /// Whether its tunnel is over when the client has ended its direction.
    pub(super) fn ends_with_client(&self) -> bool {
        let proxy = self.application.settings().proxy();
        proxy.is_some_and(|proxy| proxy.request.ends_with_client)
    }

    /// Whether its connection has become a tunnel.
    pub(super) fn is_tunnel(&self) -> bool {
        self.asked.context.upgrade && self.status() == Some(101)
    }

    /// Bytes of a tunnel that have come from the upstream and were passed on.
    pub fn taken_bytes(&self) -> u64 {
        self.answer.taken_bytes
    }

    /// Bytes of the request's body, or of a tunnel, that have come from the client.
    pub fn passed_bytes(&self) -> u64 {
        self.upload.passed_bytes
    }

    /// How long it took.
    pub fn times(&self) -> ExchangeTimes {
        self.times
    }

    /// How long it has waited for its turn to be asked.
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

    /// Why its answer is not whole, in a word, if the application is to blame.
    pub fn cut_off(&self) -> Option<&'static str> {
        match (self.answer.is_broken_off, self.has_expired) {
            (true, _) => Some(BROKEN_OFF),
            (false, true) => Some("timeout"),
            (false, false) => None,
        }
    }

    /// Whether its client is told of no scheme that signs in a connection, though the answer offers one.
    pub fn withholds_sign_in(&self) -> bool {
        self.binding.withholds()
    }

    /// Whether the answer offers a sign-in for which its client must come over HTTP/1.1.
    pub fn needs_http1(&self) -> bool {
        self.binding.needs_http1()
    }

    /// Whether its connection is for no other client.
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

    /// The handler has looked at the answer, or that there is none.
    pub fn tell(&mut self) {
        self.answer.has_told = true;
    }

    /// There will be no answer.
    pub(super) fn give_up(&mut self, failed: Failed) {
        self.phase = ExchangePhase::Failed(failed, self.phase.take_attempt());
        self.acknowledge_ms = None;
    }

    /// There is no place in time: that of the queue, or that which the client gives.
    pub(super) fn give_up_late(&mut self) {
        let is_over = self.now_ms >= self.asked.until_ms;
        let late = if is_over { Unavailable::Deadline } else { Unavailable::Late };
        self.give_up(Failed::Unasked(late));
    }

    /// Whether it waits for a stream of connections that are shared: that is like a place.
    pub(super) fn waits_for_stream(&self) -> bool {
        self.phase.connection().is_some_and(UpstreamConnection::waits_for_stream)
    }

    /// Whether a receiver was offered the request, and has not said that it takes it.
    pub(super) fn is_untaken(&self) -> bool {
        let pair = self.phase.connection().and_then(UpstreamConnection::offered);
        pair.is_some_and(OfferedPair::is_untaken)
    }

    /// Hears a receiver: the time to answer begins when it has said that it takes the request.
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

    /// What it waits for.
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

    /// Until when that may last.
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
            // neither interim answers nor a head that comes byte by byte prolong it
            (Await::Answer, Some(attempt)) => attempt.whole_ms.unwrap_or(self.moved_ms),
            _ => self.moved_ms,
        };
        let until_ms = since_ms.saturating_add(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        let until_ms = self.passed_until_ms(until_ms);
        match self.phase {
            ExchangePhase::Spooling(_) => until_ms.min(self.upload.pace.until_ms(time)),
            // an application that is asked hears of it itself
            _ if self.waits() == Await::Slot => until_ms.min(self.asked.until_ms),
            _ => until_ms,
        }
    }

    /// Until when the body of the request may come as slowly as it does, before it is answered: afterwards its client
    /// may wait for the answer. One that is late gives way where another request lacks a place; while none does, it
    /// is looked at again and again.
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
        // all that has come is sent, and more would be
        let is_late =
            self.upload.pace.is_up_to_client() && self.upload.is_sent() && !attempt.is_cut;
        match is_late && self.application.upstreams().is_short(self.asked.owner.rank) {
            true => until_ms,
            false => now_ms.saturating_add(LOOK_MS),
        }
    }

    /// The head of an answer is there.
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
