//! One exchange: what is known of it, and what it waits for. The files beside this one change it, each in one
//! respect.

use super::link_state::Linked;
use super::outcome::{ExchangeTimes, Failed};
use super::pace::UploadPace;
use super::script::{ScriptAnswer, UploadEncoding};
use crate::application::Application;
use crate::group::MemberIndex;
use crate::messages::response::ResponseReader;
use crate::places::queue::RequestOwner;
use crate::settings;
use crate::upstreams::connection::UpstreamConnection;
use crate::upstreams::sign_in::Binding;
use crate::upstreams::{QueueWait, UpstreamSlot};
use forebay_conn::Await;
use forebay_http::body::BodyDecoder;
use forebay_http::head::Method;
use forebay_http::response::{KeptResponse, Response, ResponseContext};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// No more than this waits to be sent; as much is kept of what was sent.
pub(super) const UP_BYTES: usize = 64 * 1024;

/// An answer has ended before it was whole, in a word.
pub(super) const BROKEN_OFF: &str = "broken_off";

/// A body that is late is looked at so often: whether others want the place of its request.
const LOOK_MS: u64 = 1000;

/// So much of an answer is received at a time, where it cannot go to the client at once.
pub(super) const RECEIVE_BYTES: usize = 16 * 1024;

/// One request and its answer. `T` is what its handler must remember.
pub struct Exchange<T> {
    /// What its handler must remember.
    pub tag: T,
    pub(super) application: Arc<Application>,
    pub(super) linked: Option<Box<Linked>>,
    /// How it is bound to its client's connection.
    pub(super) binding: Binding,
    /// It is asked over HTTP/2.
    pub(super) is_http2: bool,
    pub(super) method: Method,
    pub(super) key: u64,
    pub(super) owner: RequestOwner,
    /// Its place among what the upstream that is asked has under way.
    pub(super) slot: Option<UpstreamSlot>,
    /// Its place among those that wait.
    pub(super) wait: Option<QueueWait>,
    /// All that were asked, the last one last.
    pub(super) tried: Vec<MemberIndex>,
    /// Addresses of names at which there was no connection for it.
    pub(super) refused: Vec<SocketAddr>,
    /// It has waited so long for places.
    pub(super) waited_ns: u64,
    /// How often it was sent again.
    pub(super) retries: u32,
    pub(super) connection: Option<UpstreamConnection>,
    pub(super) is_reused: bool,
    pub(super) phase: ExchangePhase,
    pub(super) can_read: bool,
    pub(super) can_write: bool,
    /// What was sent and what is to be; from `sent` on it was not.
    pub(super) to: Vec<u8>,
    pub(super) sent: usize,
    /// As much of what was sent is kept.
    pub(super) kept: usize,
    /// Bytes at its start that only a new connection begins with.
    pub(super) preface: usize,
    /// Some of what was sent is not kept.
    pub(super) is_gone: bool,
    /// Nothing more can be sent.
    pub(super) is_cut: bool,
    /// Our direction is to be ended when all is sent, or has been.
    pub(super) shuts: Option<bool>,
    /// The framing of the request's body, while more of it may come.
    pub(super) upload: Option<UploadEncoding>,
    /// What follows the body of a request over HTTP/2, as lines.
    pub(super) request_trailers: Option<Vec<u8>>,
    /// The names of fields that others decide about.
    pub(super) given: Box<[Box<str>]>,
    /// Bytes that the request's body may still have.
    pub(super) body_left: u64,
    /// What has come of a body that is collected before anything is asked.
    pub(super) spool: Vec<u8>,
    /// Its length is told at its end.
    pub(super) is_chunked: bool,
    /// More of the body has come than there may be.
    pub(super) is_too_large: bool,
    /// The client waits to be asked for the body.
    pub(super) expects_continue: bool,
    /// How fast the body comes.
    pub(super) pace: UploadPace,
    /// Some of it was sent since the time was known last.
    pub(super) has_moved: bool,
    pub(super) asked: ResponseContext,
    pub(super) reader: ResponseReader,
    /// The answer of an application that speaks FastCGI.
    pub(super) script: Option<Box<ScriptAnswer>>,
    pub(super) received: Vec<u8>,
    /// Of it, what is not used yet.
    pub(super) at: usize,
    pub(super) interim: Vec<u8>,
    /// When the stage before is to be told that the request is here.
    pub(super) acknowledge_ms: Option<u64>,
    pub(super) has_told: bool,
    /// The head of the answer, in `received`.
    pub(super) head: Option<AnswerHead>,
    /// Its fields, until the handler has looked at them.
    pub(super) fields: Option<KeptResponse>,
    pub(super) coming: Coming,
    pub(super) failure: Option<Failed>,
    /// Why there was no connection the last time, for the operator.
    pub(super) unreached: &'static str,
    pub(super) has_expired: bool,
    /// The application has broken its answer off.
    pub(super) is_broken_off: bool,
    pub(super) has_ended: bool,
    pub(super) now_ms: u64,
    pub(super) moved_ms: u64,
    /// Since when all of the request has been sent.
    pub(super) whole_ms: Option<u64>,
    pub(super) times: ExchangeTimes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExchangePhase {
    /// Nothing is asked, and nothing waits.
    Unbegun,
    Spooling,
    Waiting,
    /// No instance of the next stage takes it: the link says when it is tried again.
    Resting,
    Connecting,
    Asking,
    Answered,
    Failed,
}

/// What is known of the head of an answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct AnswerHead {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) status: u16,
    pub(super) content_length: Option<u64>,
    pub(super) keep_alive: bool,
}

/// What is still to come of an answer.
pub(super) enum Coming {
    Nothing,
    Sized(u64),
    Chunked(Box<BodyDecoder>),
    /// Whatever comes.
    All,
    /// What is left of what a script says.
    OfScript,
}

impl Coming {
    pub(super) fn is_over(&self) -> bool {
        match self {
            Coming::Nothing => true,
            Coming::Chunked(decoder) => decoder.is_done(),
            Coming::Sized(_) | Coming::All | Coming::OfScript => false,
        }
    }
}

impl<T> Exchange<T> {
    /// What has come of the answer's body and was not read.
    pub fn received_bytes(&self) -> usize {
        self.received.len() - self.at
    }

    /// The application that is asked.
    pub fn application(&self) -> &Arc<Application> {
        &self.application
    }

    /// The upstream that was asked last.
    pub fn upstream(&self) -> MemberIndex {
        self.tried.last().copied().unwrap_or_default()
    }

    /// How often the request was sent, or was to be.
    pub fn attempts(&self) -> u32 {
        u32::try_from(self.tried.len()).unwrap_or(u32::MAX)
    }

    /// The status of the answer, if there is one.
    pub fn status(&self) -> Option<u16> {
        self.head.map(|head| head.status)
    }

    /// Whether its connection has become a tunnel.
    pub(super) fn is_tunnel(&self) -> bool {
        self.asked.upgrade && self.status() == Some(101)
    }

    /// How long it took.
    pub fn times(&self) -> ExchangeTimes {
        self.times
    }

    /// How long it has waited for its turn to be asked.
    pub fn waited(&self) -> Duration {
        Duration::from_nanos(self.waited_ns)
    }

    /// Why there is no answer.
    pub fn failure(&self) -> Option<Failed> {
        self.failure
    }

    /// Why its answer is not whole, in a word, if the application is to blame.
    pub fn cut_off(&self) -> Option<&'static str> {
        match (self.is_broken_off, self.has_expired) {
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
        let seen = self.head?;
        let bytes = match &self.script {
            Some(script) => script.head(),
            None => self.received.get(seen.start..seen.end)?,
        };
        Some(look(&self.fields.as_ref()?.view(bytes)))
    }

    /// The handler has looked at the answer, or that there is none.
    pub fn tell(&mut self) {
        self.has_told = true;
    }

    /// There will be no answer.
    pub(super) fn give_up(&mut self, failed: Failed) {
        (self.phase, self.failure) = (ExchangePhase::Failed, Some(failed));
        self.acknowledge_ms = None;
    }

    /// What was received and not used.
    pub(super) fn unused(&self) -> &[u8] {
        &self.received[self.at..]
    }

    pub(super) fn is_whole(&self) -> bool {
        self.upload.is_none() && self.sent == self.to.len()
    }

    /// What it waits for.
    pub(super) fn waits(&self) -> Await {
        match self.phase {
            ExchangePhase::Unbegun | ExchangePhase::Waiting => Await::Slot,
            ExchangePhase::Connecting => Await::Connect,
            ExchangePhase::Asking if self.is_whole() => Await::Answer,
            _ => Await::Flow,
        }
    }

    /// Until when that may last.
    pub(super) fn own_deadline_ms(&self) -> u64 {
        let settings::GroupSettings { timeouts, queue, .. } = self.application.settings().group();
        let time = match self.waits() {
            Await::Slot => queue.time,
            Await::Connect => timeouts.connect,
            Await::Answer => timeouts.head,
            _ => timeouts.silence,
        };
        let since_ms = match self.waits() {
            // neither interim answers nor a head that comes byte by byte prolong it
            Await::Answer => self.whole_ms.unwrap_or(self.moved_ms),
            _ => self.moved_ms,
        };
        since_ms.saturating_add(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
    }

    /// Until when the body of the request may come as slowly as it does, before it is answered: afterwards its client
    /// may wait for the answer. One that is late gives way where another request lacks a place; while none does, it
    /// is looked at again and again.
    pub(super) fn upload_deadline_ms(&self, now_ms: u64) -> u64 {
        let group = self.application.settings().group();
        let has_place = self.slot.is_some() && group.in_flight.is_some();
        if self.phase != ExchangePhase::Asking || self.upload.is_none() || !has_place {
            return u64::MAX;
        }
        let until_ms = self.pace.until_ms(group.timeouts.body);
        if now_ms < until_ms {
            return until_ms;
        }
        // all that has come is sent, and more would be
        let is_late = self.pace.is_up_to_client() && self.sent == self.to.len() && !self.is_cut;
        match is_late && self.application.upstreams().is_short(self.owner.rank) {
            true => until_ms,
            false => now_ms.saturating_add(LOOK_MS),
        }
    }

    /// The head of an answer is there.
    pub(super) fn is_well(&mut self) {
        self.phase = ExchangePhase::Answered;
        self.acknowledge_ms = None;
        if let Some(slot) = &mut self.slot {
            slot.answered();
        }
    }
}
