//! An exchange: one request to an application and its answer, over a new or a kept connection.
//!
//! ```text
//!  unbegun ──► connecting ──► asking ──► answered ──► its connection is kept, or closed
//!    │  ▲        │  ▲           │
//!    ▼  │        ▼  └───────────┤
//!  waiting    another attempt, if that is safe; else failed, and the client is told
//! ```
//!
//! The body of a request for a FastCGI script is collected first (spooling), up to a bound: a script
//! needs to know its length, and must not wait for a slow client. What does not fit in memory is on
//! disk, if that is allowed. A request for the next stage rests while no instance takes it.
//!
//! | the attempt that failed was of | what decides about the next | which begins with |
//! |---|---|---|
//! | of an application | `begin_another` in `exchange/attempts.rs`, by [`retry`](crate::group::retry) | `begin_with`, or `wait_for` a place |
//! | of the next stage | the [link](crate::link), which `tell_link` in `exchange/linked.rs` asks | `send_again` |
//!
//! While all upstreams have as many requests under way as they may, the request waits in a queue with
//! those of all other loops and threads. Nothing of its body is received meanwhile.
//!
//! While no upstream takes connections, as in a restart, the request may wait for one that does
//! (`queue.down`).
//!
//! A request whose body comes too slowly gives its place up while another request lacks one.
//!
//! Sent bytes are kept as long as they fit, so that the request can be sent again.
//!
//! | file | what it holds |
//! |---|---|
//! | `exchange.rs` | how an exchange begins and ends, and how its client drives it: above all others |
//! | `exchange/attempts.rs` | which upstream the request is sent to, and which one next |
//! | `exchange/turn.rs` | what is kept of a waiting exchange, which is made anew at its turn |
//! | `exchange/sending.rs` | the sending of the request |
//! | `exchange/spooling.rs` | bodies that are collected first, and sent from the disk |
//! | `exchange/head.rs`, `exchange/body.rs` | the answer |
//! | `exchange/passed_on.rs` | TCP connections, which have no answer: bytes are passed on as they are |
//! | `exchange/linked.rs`, `exchange/scripted.rs` | exchanges with the next stage, and over FastCGI |
//! | `exchange/state.rs` | the state of an exchange, beneath all others |
//! | `exchange/phase.rs` | the phases of an exchange, and the attempt that is under way |
//! | `exchange/upload.rs`, `exchange/collected.rs`, `exchange/pace.rs` | the bytes to the upstream |
//! | `exchange/spare.rs` | a spare receive buffer, from one exchange to the next |
//! | `exchange/traced.rs` | the spans of its attempts for a trace |
//! | `exchange/answer.rs`, `exchange/script.rs` | the bytes from the upstream |
//! | `exchange/outcome.rs`, `exchange/link_state.rs` | how an exchange ends; its state for the next stage |

use crate::application::Application;
use crate::application::pool::ConnectionPool;
use crate::group::Unavailable;
use crate::group::retry::AttemptFailure;
use crate::messages::fastcgi;
use crate::messages::request::WrittenHead;
use crate::messages::response::ResponseReader;
use crate::places::queue::{Asking, RequestOwner};
use crate::settings;
use crate::spool::{Spool, SpoolFile};
use crate::upstreams;
use crate::upstreams::connection::UpstreamConnection;
use crate::upstreams::offered::PassedRequest;
use crate::upstreams::sign_in::{Binding, SignIn};
use forebay_conn::handler::relay::{RelayNext, RelayRead};
use forebay_conn::{Await, Relay, SocketId, WakeSlot, Wants};
use forebay_http::framing::Framing;
use forebay_http::head::Method;
use forebay_http::trace_context::TraceContext;
use forebay_sys::{clock, socket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

mod answer;
mod attempts;
mod body;
mod collected;
mod head;
mod link_state;
mod linked;
mod outcome;
mod pace;
mod passed_on;
mod phase;
mod script;
mod scripted;
mod sending;
mod spare;
mod spooling;
mod state;
mod traced;
mod turn;
mod upload;

use answer::{AnswerUnderWay, Coming};
use collected::CollectedBody;
use link_state::Linked;
pub use link_state::{ATTEMPT, Copy};
pub(crate) use outcome::unreached;
pub use outcome::{ExchangeTimes, Failed, FailedAttempt, Lateness, UpstreamHandshakes};
use pace::UploadPace;
use phase::ExchangePhase;
use script::ScriptAnswer;
pub use script::ScriptLog;
pub use state::Exchange;
use state::{Asked, Tries};
pub use turn::{TurnOutcome, WaitingTurn};
use upload::{TunnelEnd, UP_BYTES, Upload, UploadEncoding};

/// A request to an application.
pub struct ApplicationRequest {
    /// Whether an upstream may be asked at all, or why not.
    pub may_ask: Result<(), Unavailable>,
    /// The method.
    pub method: Method,
    /// The [hash](crate::group::balance::hash) of what the request is balanced by.
    pub key: u64,
    /// The request's rank and client, for the queue.
    pub owner: RequestOwner,
    /// Where a connection that a client has signed in on may be kept.
    pub sign_in: SignIn,
    /// Whether the request shows credentials of such a sign-in.
    pub shows_sign_in: bool,
    /// The bytes with which a new connection begins (a PROXY header).
    pub preface: Vec<u8>,
    /// How long the client waits, if it says so.
    pub time: Option<Duration>,
    /// The head of the request, or its beginning for an application that speaks FastCGI.
    pub head: Vec<u8>,
    /// The results of writing the head.
    pub written: WrittenHead,
    /// What the link needs to know of a request to the [next stage](Application::of_stage).
    pub copy: Option<Copy>,
    /// Where the messages of a FastCGI script for the log go.
    pub log: Option<ScriptLog>,
    /// The spool for the request's body on disk.
    pub spool: Option<Arc<Spool>>,
    /// The announcement for a receiver, if the request is passed on to one.
    pub passed: Option<PassedRequest>,
    /// The parent span of the attempts, if the request is traced.
    pub trace: Option<TraceContext>,
}

impl ApplicationRequest {
    /// A request without a preface, to no other stage, without a log, and with no sign-in of its
    /// connection.
    pub fn new(
        method: Method,
        key: u64,
        owner: RequestOwner,
        head: Vec<u8>,
        written: WrittenHead,
    ) -> ApplicationRequest {
        ApplicationRequest {
            may_ask: Ok(()),
            method,
            key,
            owner,
            sign_in: SignIn::OfRequest,
            shows_sign_in: false,
            preface: Vec::new(),
            time: None,
            head,
            written,
            copy: None,
            log: None,
            spool: None,
            passed: None,
            trace: None,
        }
    }
}

impl<T> Exchange<T> {
    /// An exchange that has asked nothing yet. If no upstream may be asked, it has
    /// [failed](Exchange::failure).
    ///
    /// # Errors
    /// The next stage has no instance.
    pub fn new(
        application: &Arc<Application>,
        ask: ApplicationRequest,
        tag: T,
        now_ms: u64,
    ) -> Result<Box<Exchange<T>>, Unavailable> {
        let ApplicationRequest { may_ask, method, key, owner, preface, head, .. } = ask;
        let ApplicationRequest {
            sign_in,
            shows_sign_in,
            time,
            written,
            copy,
            log,
            spool,
            passed,
            trace,
            ..
        } = ask;
        let until_ms = time.map_or(u64::MAX, |time| {
            now_ms.saturating_add(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
        });
        // a stream of HTTP/2 cannot become a connection of another protocol
        let needs_http1 = copy.map_or(written.asked.upgrade, |copy| copy.needs_http1);
        let is_http2 = application.is_http2() && !needs_http1;
        let linked = match (application.link(), copy) {
            (Some(mut link), Some(copy)) => {
                // a client that waits for `100 Continue` must not be kept waiting for an acknowledgement, too
                let is_withheld = is_http2 && !written.expects_continue;
                let repeats = link_state::repeats(method, copy.repeats_idempotent);
                let may_hurry = copy.may_hurry && link_state::repeats(method, false);
                let flight = link.begin(repeats, is_withheld, may_hurry, key, now_ms);
                let flight = flight.ok_or(Unavailable::Down)?;
                let head_bytes = preface.len() + head.len();
                Some(Box::new(Linked::new(flight, copy, method, head_bytes)))
            }
            _ => None,
        };
        let bodies = application.settings().bodies();
        let spools = match (application.settings(), written.framing) {
            (settings::ApplicationSettings::Proxy(_), _)
            | (settings::ApplicationSettings::HandOver(_), _)
            | (
                settings::ApplicationSettings::Inside(_) | settings::ApplicationSettings::Tcp(_),
                _,
            )
            | (_, Framing::None) => false,
            (_, Framing::Sized(length)) => (1..=bodies.spool_bytes).contains(&length),
            (_, Framing::Chunked) => true,
        };
        let is_chunked = written.framing == Framing::Chunked;
        // a body whose length is known never exceeds what may be in memory
        let spool = spool.filter(|_| spools && is_chunked);
        let (body_left, has_no_spool) = match spools && spool.is_none() {
            true => {
                let bound = bodies.most_bytes.min(bodies.spool_bytes);
                (bound, is_chunked && bound < bodies.most_bytes)
            }
            false => (bodies.most_bytes, false),
        };
        let phase = match spools {
            true => ExchangePhase::Spooling(CollectedBody::new(bodies.spool_bytes, spool)),
            false => ExchangePhase::Unbegun,
        };
        let limits = application.settings().limits();
        let script = match application.settings() {
            settings::ApplicationSettings::Proxy(_)
            // receivers, handlers and TCP connections have exchanges of their own, or no answer to
            // parse
            | settings::ApplicationSettings::HandOver(_)
            | settings::ApplicationSettings::Inside(_) | settings::ApplicationSettings::Tcp(_) => None,
            settings::ApplicationSettings::FastCgi(_) => {
                Some(Box::new(ScriptAnswer::new(written.asked, limits, log)))
            }
        };
        let upload = UploadEncoding::new(written.framing, script.is_some(), is_http2);
        let preface_bytes = preface.len();
        let mut to = head;
        to.splice(..0, preface);
        if script.is_some() && upload.is_none() {
            fastcgi::end_of_stdin(&mut to);
        }
        let mut exchange = Box::new(Exchange {
            tag,
            application: Arc::clone(application),
            asked: Asked {
                method,
                key,
                owner,
                is_http2,
                until_ms,
                context: written.asked,
                given: written.given,
                passed,
                trace,
            },
            linked,
            binding: Binding::new(sign_in, shows_sign_in),
            tries: Tries::default(),
            phase,
            upload: Upload {
                to,
                sent: 0,
                kept: UP_BYTES,
                preface: preface_bytes,
                is_gone: false,
                tunnel: TunnelEnd::Open,
                encoding: upload,
                trailers: None,
                body_left,
                is_chunked,
                has_no_spool,
                on_disk: None,
                is_refused: false,
                expects_continue: script.is_some() && written.expects_continue,
                pace: UploadPace::new(script.is_none() && written.expects_continue),
                has_moved: false,
                passed_bytes: 0,
            },
            answer: AnswerUnderWay::new(ResponseReader::new(written.asked, limits), script),
            acknowledge_ms: None,
            has_expired: false,
            now_ms,
            moved_ms: now_ms,
            times: ExchangeTimes { begun_ns: clock::monotonic_ns(), ..ExchangeTimes::default() },
        });
        exchange.upload.pace.begin(now_ms);
        if let (None, Err(unavailable)) = (&exchange.linked, may_ask) {
            exchange.give_up(Failed::Unasked(unavailable));
        }
        Ok(exchange)
    }

    /// Begins to ask an upstream, over a connection of the pool if there is one. Does nothing if the
    /// exchange has begun. The connection that belongs to the client's connection stays in the pool
    /// until now, so that a request that is given up before does not take it away.
    pub fn begin(&mut self, pool: &mut ConnectionPool, now_ms: u64) {
        let ExchangePhase::Unbegun = self.phase else { return };
        (self.now_ms, self.moved_ms) = (now_ms, now_ms);
        let application = Arc::clone(&self.application);
        if let Some(owner) = self.binding.owner() {
            let own = pool.take_own(&application, owner, now_ms);
            self.binding.have(own);
        }
        let shares = !self.binding.is_private()
            && self.upload.preface == 0
            && self.asked.is_http2 == application.is_http2();
        let mut kept = |member| match shares {
            true => pool.take(&application, member, now_ms),
            false => None,
        };
        if self.joins_wait() {
            return;
        }
        if let Some(member) = self.linked.as_ref().map(|linked| linked.instance()) {
            let begun = self.begin_at(member, None, kept(member));
            return self.or_fail(begun);
        }
        let wanted = self.binding.member();
        let asking = Asking::new(self.asked.owner, self.asked.key).wanting(wanted);
        match application.upstreams().ask(asking) {
            Ok(upstreams::SlotOrWait::Begun(slot)) => {
                let connection = kept(slot.member());
                let begun = self.begin_with(slot, connection);
                self.or_fail(begun);
            }
            Ok(upstreams::SlotOrWait::Waits(wait)) => self.wait_for(wait),
            Err(unavailable) => self.give_up(Failed::Unasked(unavailable)),
        }
        if self.failure().is_some() {
            self.keep_own(pool);
        }
    }

    /// Ends the failed attempt, and begins another, if that is safe.
    fn fail(&mut self, failure: AttemptFailure, late: Lateness) {
        match self.linked {
            Some(_) => self.fail_link(failure),
            None => self.try_again(failure, late),
        }
    }

    /// Handles the end of the time for a receiver to take the request. The receiver may have
    /// confirmed it already, with this server late to read that.
    fn is_taken_late(&mut self) {
        let now_ms = self.now_ms;
        let attempt = self.phase.attempt_mut();
        let taken = attempt.and_then(|attempt| {
            let pair = attempt.connection.as_mut()?.offered_mut()?;
            let is_so = pair.is_taken_late();
            attempt.whole_ms = is_so.then_some(now_ms).or(attempt.whole_ms);
            Some((is_so, pair.is_taken()))
        });
        match taken {
            Some((true, _)) => self.moved_ms = now_ms,
            Some((false, true)) => self.fail(AttemptFailure::Silent, Lateness::Late),
            Some((false, false)) | None => self.fail(AttemptFailure::Frozen, Lateness::Late),
        }
    }

    /// Fails the attempt if it could not begin.
    fn or_fail(&mut self, begun: Result<(), AttemptFailure>) {
        if let Err(failure) = begun {
            self.fail(failure, Lateness::InTime);
        }
    }

    /// Ends the request at the upstream when all of the answer has come: its place is free, even if
    /// the client has not got everything yet.
    pub fn leave(&mut self) {
        if self.linked.is_none()
            && (self.answer.coming.is_over() || self.phase.has_ended())
            && self.asked.passed.is_none()
            && let Some(attempt) = self.phase.attempt_mut()
        {
            attempt.slot = None;
        }
    }

    /// Finishes the exchange, and passes the connection on to waiting requests or the pool, if
    /// another request may be sent on it.
    pub fn give_back(&mut self, pool: &mut ConnectionPool) {
        self.end_script();
        if self.asked.passed.is_some() {
            return self.give_link_back(pool);
        }
        let is_clean = self.answer.head.is_some_and(|head| head.keep_alive)
            && self.answer.coming.is_over()
            && self.upload.is_whole()
            && self.answer.unused().is_empty()
            && !(self.phase.is_cut() || self.phase.has_ended());
        let keeps = self.application.settings().group().keep_alive.connections > 0
            && self.asked.is_http2 == self.application.is_http2();
        if !(is_clean && keeps && self.upload.preface == 0) {
            return;
        }
        let member = self.upstream();
        let Some(attempt) = self.phase.attempt_mut() else { return };
        let Some(mut connection) = attempt.connection.take() else { return };
        if !connection.ends_clean() {
            return;
        }
        if self.binding.is_private() {
            attempt.slot = None;
            if let Some(owner) = self.binding.owner() {
                pool.keep_own(&self.application, owner, member, connection, self.now_ms);
            }
            return;
        }
        let left = match attempt.slot.take() {
            Some(slot) => slot.pass_on(connection),
            // no request waits for a place at the next stage
            None => Some(connection),
        };
        if let Some(connection) = left {
            pool.keep(&self.application, member, connection, self.now_ms);
        }
    }

    /// Finishes an exchange with a receiver. The request keeps its place until the receiver has said
    /// that it is done; then the link is for the next request.
    fn give_link_back(&mut self, pool: &mut ConnectionPool) {
        let member = self.upstream();
        let keeps = self.application.settings().group().keep_alive.connections > 0;
        let Some(attempt) = self.phase.attempt_mut() else { return };
        let is_done = attempt.connection.as_mut().is_some_and(UpstreamConnection::ends_clean);
        if !is_done {
            return self.drain_offered();
        }
        if let (true, Some(connection), Some(slot)) =
            (keeps, attempt.connection.take(), attempt.slot.take())
            && let Some(left) = slot.pass_on(connection.without_offer())
        {
            pool.keep(&self.application, member, left, self.now_ms);
        }
    }

    /// Gives the client's own connection back to the pool if it was not used: the client is still
    /// signed in.
    fn keep_own(&mut self, pool: &mut ConnectionPool) {
        if let Some((member, connection)) = self.binding.take()
            && let Some(owner) = self.binding.owner()
        {
            pool.keep_own(&self.application, owner, member, connection, self.now_ms);
        }
    }

    fn read_body(&mut self, out: &mut Vec<u8>, most: usize) -> RelayRead {
        match &mut self.answer.coming {
            Coming::Nothing => RelayRead::End,
            Coming::Chunked(_) => self.read_chunks(out, most),
            Coming::OfScript => self.read_script(out, most),
            Coming::WebSocket(_) => self.read_frames(out, most),
            Coming::All => match self.take(out, most) {
                RelayRead::Broken => self.broken(),
                RelayRead::End if self.asked.is_http2 => {
                    self.answer.coming = Coming::Nothing;
                    RelayRead::End
                }
                given => given,
            },
            Coming::Sized(left) => {
                let left = *left;
                if left == 0 {
                    return RelayRead::End;
                }
                let most = usize::try_from(left).unwrap_or(usize::MAX).min(most);
                match self.take(out, most) {
                    RelayRead::Bytes(count) => {
                        self.answer.coming = match left - count as u64 {
                            0 => Coming::Nothing,
                            left => Coming::Sized(left),
                        };
                        RelayRead::Bytes(count)
                    }
                    RelayRead::Nothing => RelayRead::Nothing,
                    RelayRead::End | RelayRead::Broken => self.broken(),
                }
            }
        }
    }
}

impl<T> Drop for Exchange<T> {
    fn drop(&mut self) {
        self.leave_link();
        self.drain();
        spare::leave(&mut self.answer.received);
    }
}

impl<T: Send> Relay for Exchange<T> {
    fn socket(&self) -> Option<(SocketId, BorrowedFd<'_>, Wants)> {
        if let Some((id, bell)) = self.busy_file().and_then(SpoolFile::bell) {
            return Some((id, bell, Wants { read: true, write: false }));
        }
        if let ExchangePhase::Waiting(wait) = &self.phase {
            return wait.socket();
        }
        let attempt = self.phase.attempt()?;
        let connection = attempt.connection.as_ref()?;
        if self.phase.is_connecting() {
            let wants = match attempt.can_write {
                true => Wants::default(),
                false => connection.wants_to_connect(),
            };
            return Some((connection.id, connection.as_fd(), wants));
        }
        // while a message waits for the link, the request itself does not wait for the socket pair
        let has_unsent = match connection.offered() {
            Some(pair) => !self.upload.is_sent() && !pair.has_unsent(),
            None => !self.upload.is_sent() || connection.has_unsent(),
        };
        let has_unsent = has_unsent && !attempt.is_cut;
        // before the receiver has taken the request nothing is read from the pair; if it were polled,
        // what is there would be reported without end
        let is_open = connection.offered().is_none_or(|pair| pair.is_open() && pair.is_taken());
        let wants = Wants {
            read: !attempt.has_ended && !attempt.can_read && is_open,
            write: has_unsent && !attempt.can_write,
        };
        Some((connection.id, connection.as_fd(), wants))
    }

    fn wake_slot(&self) -> Option<&WakeSlot> {
        match &self.phase {
            ExchangePhase::Waiting(wait) => Some(wait.wake_slot()),
            _ => None,
        }
    }

    fn other_socket(&self) -> Option<(SocketId, BorrowedFd<'_>, Wants)> {
        let attempt = self.phase.attempt()?;
        let (id, link, wants) = attempt.connection.as_ref()?.offered()?.link();
        let wants = Wants {
            read: wants.read && !attempt.can_read,
            write: wants.write && !attempt.can_write,
        };
        Some((id, link, wants))
    }

    fn ready(&mut self) {
        let can_read = !self.phase.is_connecting();
        if let Some(attempt) = self.phase.attempt_mut() {
            (attempt.can_write, attempt.can_read) = (true, can_read);
        }
    }

    fn capacity(&self) -> usize {
        let takes = !matches!(
            self.phase,
            ExchangePhase::Unbegun
                | ExchangePhase::Waiting(_)
                | ExchangePhase::Away(_)
                | ExchangePhase::Resting
                | ExchangePhase::Failed(..)
        ) && !self.upload.is_refused;
        let is_open = takes && !self.phase.is_cut() && self.upload.tunnel == TunnelEnd::Open;
        match &self.phase {
            _ if !is_open => 0,
            ExchangePhase::Spooling(body) => body.capacity(),
            _ => UP_BYTES.saturating_sub(self.upload.unsent_bytes()),
        }
    }

    fn takes_body(&self) -> bool {
        true
    }

    fn give(&mut self, bytes: &[u8]) {
        self.pass_on(bytes);
    }

    fn finish<'t>(&mut self, trailers: &mut dyn Iterator<Item = (&'t str, &'t [u8])>) {
        if let ExchangePhase::Spooling(_) = self.phase {
            let begun = self.end_collecting();
            return self.or_fail(begun);
        }
        let passed: Vec<_> = trailers.filter(|(name, _)| self.may_trail(name)).collect();
        let trailers = &mut passed.into_iter();
        match self.upload.encoding.take() {
            Some(UploadEncoding::Http(mut encoder)) => {
                _ = encoder.finish(trailers, &mut self.upload.to)
            }
            Some(UploadEncoding::Stdin) => fastcgi::end_of_stdin(&mut self.upload.to),
            Some(UploadEncoding::Plain) => self.note_trailers(trailers),
            // the end of a tunnel
            None if self.asked.context.upgrade => self.upload.tunnel = TunnelEnd::Ended,
            None => {}
        }
    }

    fn advance(&mut self, now_ms: u64) -> RelayNext {
        self.now_ms = now_ms;
        if std::mem::take(&mut self.upload.has_moved) {
            self.moved_ms = now_ms;
            self.upload.pace.taken(now_ms);
            if self.phase.attempt().is_some_and(|attempt| !attempt.can_write) {
                self.upload.pace.blocked();
            }
        }
        if std::mem::take(&mut self.has_expired) {
            match self.phase {
                ExchangePhase::Unbegun | ExchangePhase::Waiting(_) | ExchangePhase::Away(_) => {
                    self.end_wait();
                    self.give_up_late();
                }
                ExchangePhase::Connecting(_) if self.waits_for_stream() => {
                    self.phase.leave_attempt();
                    self.give_up_late();
                }
                ExchangePhase::Spooling(_) => self.has_no_spool_in_time(),
                ExchangePhase::Connecting(_) => self.fail(AttemptFailure::Connect, Lateness::Late),
                ExchangePhase::Asking(_) if self.is_untaken() => self.is_taken_late(),
                _ => self.fail(AttemptFailure::Silent, Lateness::Late),
            }
        }
        self.hear_receiver();
        // a phase may lead to the next one at once: this goes on until something must be waited for
        loop {
            let next = match self.phase {
                ExchangePhase::Spooling(_) => match self.asks_for_body() {
                    true => Ok(Some(RelayNext::Interim(100))),
                    false => self.look_at_spool(),
                },
                ExchangePhase::Unbegun | ExchangePhase::Away(_) | ExchangePhase::Resting => {
                    Ok(Some(RelayNext::Wait))
                }
                ExchangePhase::Waiting(_) => self.look_at_turn(),
                ExchangePhase::Connecting(_) => self.look_at_connection(),
                ExchangePhase::Asking(_) => {
                    self.send();
                    match self.asks_for_body() {
                        true => Ok(Some(RelayNext::Interim(100))),
                        false => match self.hear() {
                            // what has arrived has opened the window
                            Ok(Some(RelayNext::Wait)) if self.may_go_on() => Ok(None),
                            heard => heard,
                        },
                    }
                }
                ExchangePhase::Answered(_) => {
                    // the upstream may have answered before it has taken all of the request
                    self.send();
                    self.look_ahead();
                    Ok(Some(if self.answer.has_told { RelayNext::Wait } else { RelayNext::Answer }))
                }
                ExchangePhase::Failed(..) => {
                    Ok(Some(if self.answer.has_told { RelayNext::Wait } else { RelayNext::Answer }))
                }
            };
            match next {
                // only where the exchange would wait: an answer that is here acknowledges as well
                Ok(Some(RelayNext::Wait)) if self.acknowledges_now() => {
                    return RelayNext::Interim(102);
                }
                Ok(Some(next)) => return next,
                Ok(None) => {}
                Err(failure) => self.fail(failure, Lateness::InTime),
            }
        }
    }

    fn held_back(&mut self) {
        self.upload.pace.blocked();
    }

    fn cut(&mut self) {
        if let Some(connection) = self.phase.connection() {
            socket::reset_on_close(connection.as_fd());
        }
    }

    fn acknowledge(&mut self) -> bool {
        self.acknowledge_later()
    }

    fn interim(&self) -> &[u8] {
        &self.answer.interim
    }

    fn length(&self) -> Option<u64> {
        let head = self.answer.head?;
        head.content_length.or_else(|| self.is_without_body(head.status).then_some(0))
    }

    fn resume(&mut self, now_ms: u64) {
        self.moved_ms = now_ms;
    }

    fn read(&mut self, out: &mut Vec<u8>, most: usize, now_ms: u64) -> RelayRead {
        self.now_ms = now_ms;
        if self.upload.is_refused {
            return RelayRead::Broken;
        }
        // the upstream has got all that the client has sent
        if self.upload.tunnel == TunnelEnd::Shut && self.ends_with_client() {
            return RelayRead::End;
        }
        match &self.linked {
            None => self.read_body(out, most),
            Some(linked) if linked.is_broken() => RelayRead::Broken,
            Some(linked) if linked.is_continuing() => RelayRead::Nothing,
            Some(_) => {
                let given = self.read_body(out, most);
                self.link_read(given)
            }
        }
    }

    fn trailers(&self) -> Vec<(&str, &[u8])> {
        match &self.answer.coming {
            Coming::Chunked(decoder) => decoder.trailers().collect(),
            _ => {
                let trailers =
                    self.phase.connection().map_or(&[][..], UpstreamConnection::trailers);
                trailers.iter().map(|(name, value)| (&**name, &**value)).collect()
            }
        }
    }

    fn aborts_on_close(&self) -> bool {
        self.application.settings().group().abort_on_close
    }

    fn awaits(&self) -> Await {
        match (&self.linked, &self.phase) {
            (None, _) => self.waits(),
            (Some(_), ExchangePhase::Resting) => Await::Rest,
            (Some(_), _) => Await::Link,
        }
    }

    fn deadline_ms(&self) -> u64 {
        let acknowledge_ms = self.acknowledge_ms.unwrap_or(u64::MAX);
        let upload_ms = self.upload_deadline_ms(clock::coarse_ms());
        let own_ms = self.own_deadline_ms().min(upload_ms);
        own_ms.min(self.link_deadline_ms()).min(acknowledge_ms)
    }

    fn ends_ms(&self) -> u64 {
        self.lasts_until_ms().unwrap_or(u64::MAX)
    }

    fn looks(&mut self, now_ms: u64) -> bool {
        self.look_for_return(now_ms) || self.look_at_link(now_ms)
    }

    fn expire(&mut self) {
        self.has_expired = true;
    }
}
