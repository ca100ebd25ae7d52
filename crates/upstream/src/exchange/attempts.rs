//! Attempts: which upstream a request is sent to, over which connection, and which upstream is next
//! where another attempt is safe.

use super::outcome::{self, ExchangeTimes, Failed, Lateness, UNSHAKEN};
use super::phase::{Attempt, ExchangePhase};
use super::state::Exchange;
use super::upload::UP_BYTES;
use crate::group::MemberIndex;
use crate::group::health::HealthSign;
use crate::group::retry::{self, AttemptFailure};
use crate::messages::request::HostSent;
use crate::places::queue::{Asking, MemberChoice};
use crate::settings::WhenDown;
use crate::upstreams::connection::UpstreamConnection;
use crate::upstreams::down::{OutageLook, OutageWait};
use crate::upstreams::drains::DrainingExchange;
use crate::upstreams::offered::OfferedPair;
use crate::upstreams::{self, QueueWait, UpstreamSlot};
use forebay_conn::handler::relay::{RelayNext, RelayRead};
use forebay_sys::clock;
use forebay_tls::TlsFault;
use std::io;

/// How often a request that a shared connection has given back is sent again beside all other bounds.
const MOST_RETURNED: u32 = 3;

impl<T> Exchange<T> {
    /// Sends the request at its turn, over this connection or a new one.
    pub(super) fn begin_with(
        &mut self,
        slot: UpstreamSlot,
        connection: Option<UpstreamConnection>,
    ) -> Result<(), AttemptFailure> {
        let member = slot.member();
        let (own, now_ms) = (self.binding.take(), self.now_ms);
        let upstreams = self.application.upstreams();
        let own = own
            .filter(|(of, connection)| *of == member && upstreams.is_current(member, connection));
        // the client's own connection may have become too old while the request waited
        let own = own.map(|(_, own)| own).and_then(|mut own| own.is_fit(now_ms).then_some(own));
        self.binding.uses(own.is_some());
        if self.binding.is_private() {
            return self.begin_at(member, Some(slot), own);
        }
        let is_fit = |connection: &UpstreamConnection| {
            let may_end = retry::may_repeat(
                self.asked.method,
                AttemptFailure::Closed,
                retry::RequestBodyState::Kept,
            );
            // where applications are asked over HTTP/2, a kept connection may be one of HTTP/1.1 for
            // a WebSocket
            connection.is_http2() == self.asked.is_http2
                && upstreams.is_current(member, connection)
                && (may_end || !upstreams.is_hasty(member, self.now_ms))
        };
        self.begin_at(member, Some(slot), connection.filter(is_fit))
    }

    /// Sends the request to this upstream.
    pub(super) fn begin_at(
        &mut self,
        member: MemberIndex,
        slot: Option<UpstreamSlot>,
        connection: Option<UpstreamConnection>,
    ) -> Result<(), AttemptFailure> {
        self.tries.tried.push(member);
        self.name_attempt();
        self.moved_ms = self.now_ms;
        self.upload.pace.begin(self.now_ms);
        self.times = ExchangeTimes { begun_ns: clock::monotonic_ns(), ..ExchangeTimes::default() };
        self.name_host(member);
        let attempt = Attempt::new(slot);
        let Some(connection) = connection else { return self.open(member, attempt) };
        let offered = self.offering(connection);
        let failed = offered.is_err();
        self.phase =
            ExchangePhase::Asking(Attempt { connection: offered.ok(), is_reused: true, ..attempt });
        if failed {
            return Err(AttemptFailure::Resources);
        }
        self.times.connected_ns = self.times.begun_ns;
        Ok(())
    }

    /// The connection that carries the request. For a receiver, `connection` is only the link to it,
    /// over which the request is offered.
    fn offering(&self, connection: UpstreamConnection) -> io::Result<UpstreamConnection> {
        match self.asked.passed {
            Some(request) => connection.offering(request),
            None => Ok(connection),
        }
    }

    /// Waits in the queue.
    pub(super) fn wait_for(&mut self, wait: QueueWait) {
        // a waiting request takes as little memory as possible: heads are written into a buffer that
        // fits most
        self.upload.to.shrink_to_fit();
        (self.phase, self.moved_ms) = (ExchangePhase::Waiting(wait), self.now_ms);
        self.times = ExchangeTimes { begun_ns: clock::monotonic_ns(), ..ExchangeTimes::default() };
    }

    /// Looks whether the request's turn has come.
    pub(super) fn look_at_turn(&mut self) -> Result<Option<RelayNext>, AttemptFailure> {
        let ExchangePhase::Waiting(wait) = &mut self.phase else { return Ok(None) };
        let Some(told) = wait.take() else { return Ok(Some(RelayNext::Wait)) };
        self.end_wait();
        self.take_turn(told)?;
        Ok(None)
    }

    /// Decides whether to wait while no upstream takes connections. Returns whether the request
    /// waits.
    fn waits_for_return(&mut self) -> bool {
        let queue = self.application.settings().group().queue;
        if queue.down == WhenDown::Fail {
            return false;
        }
        let until_ms = self.away_until_ms();
        let upstreams = self.application.upstreams();
        let wait = upstreams.wait_for_return(queue.requests, until_ms, self.now_ms);
        if wait.is_none() && self.now_ms >= until_ms {
            self.give_up_late();
            return true;
        }
        self.be_away(wait)
    }

    /// Joins the requests that wait while no upstream takes connections. Returns whether the request
    /// waits.
    pub(super) fn joins_wait(&mut self) -> bool {
        let queue = self.application.settings().group().queue;
        if queue.down == WhenDown::Fail || self.linked.is_some() {
            return false;
        }
        let until_ms = self.away_until_ms();
        let upstreams = self.application.upstreams();
        let wait = upstreams.joins_wait(queue.requests, until_ms, self.now_ms);
        self.be_away(wait)
    }

    /// The end of the wait for an upstream that takes connections. The time counts once, however
    /// often the request tries.
    fn away_until_ms(&mut self) -> u64 {
        let queue = self.application.settings().group().queue;
        if self.tries.away_until_ms == 0 {
            let time_ms = u64::try_from(queue.time.as_millis()).unwrap_or(u64::MAX);
            self.tries.away_until_ms = self.now_ms.saturating_add(time_ms);
        }
        self.tries.away_until_ms.min(self.asked.until_ms)
    }

    fn be_away(&mut self, wait: Option<OutageWait>) -> bool {
        let Some(wait) = wait else { return false };
        self.upload.to.shrink_to_fit();
        self.phase = ExchangePhase::Away(wait);
        self.times = ExchangeTimes { begun_ns: clock::monotonic_ns(), ..ExchangeTimes::default() };
        true
    }

    /// Looks whether an upstream may be tried, while the request waits for one that takes
    /// connections. Returns whether the request goes on.
    pub(super) fn look_for_return(&mut self, now_ms: u64) -> bool {
        let ExchangePhase::Away(wait) = &mut self.phase else { return false };
        self.now_ms = now_ms;
        match wait.look(now_ms) {
            OutageLook::Waits => {}
            OutageLook::Late => {
                self.end_wait();
                self.give_up_late();
            }
            OutageLook::Tries => {
                self.end_wait();
                // every address of the name may take connections by now
                self.tries.refused.clear();
                self.upload.rewind();
                let (owner, key) = (self.asked.owner, self.asked.key);
                // the upstream that has just failed is asked only if there is no other
                let tried = self.tries.tried.last().copied().into_iter().collect();
                let choice = MemberChoice { tried, ..MemberChoice::default() };
                let asking = Asking::new(owner, key).of(choice);
                match self.application.upstreams().ask(asking) {
                    Ok(upstreams::SlotOrWait::Begun(slot)) => {
                        if let Err(failure) = self.begin_with(slot, None) {
                            self.try_again(failure, Lateness::InTime);
                        }
                    }
                    Ok(upstreams::SlotOrWait::Waits(wait)) => self.wait_for(wait),
                    Err(unavailable) => self.give_up(Failed::Unasked(unavailable)),
                }
            }
        }
        true
    }

    /// Ends the wait and counts its time.
    pub(super) fn end_wait(&mut self) {
        if let ExchangePhase::Waiting(_) | ExchangePhase::Away(_) = self.phase {
            self.phase = ExchangePhase::Unbegun;
            self.tries.waited_ns += clock::monotonic_ns().saturating_sub(self.times.begun_ns);
        }
    }

    /// Writes the host of this upstream into the head, where the settings want that.
    fn name_host(&mut self, member: MemberIndex) {
        const NAME: &[u8] = b"\r\nHost: ";
        let proxy = self.application.settings().proxy();
        if proxy.is_none_or(|proxy| proxy.request.host != HostSent::Upstream) {
            return;
        }
        // the field follows the request line
        let line_end =
            |from: usize| self.upload.to[from..].windows(2).position(|end| end == b"\r\n");
        let Some(start) = line_end(self.upload.preface).map(|at| self.upload.preface + at) else {
            return;
        };
        if !self.upload.to[start..].starts_with(NAME) {
            return;
        }
        let start = start + NAME.len();
        let Some(len) = line_end(start) else { return };
        let authority = self.application.authority(member).as_bytes().to_vec();
        self.upload.to.splice(start..start + len, authority);
    }

    /// Begins to connect to an upstream.
    pub(super) fn open(
        &mut self,
        member: MemberIndex,
        mut attempt: Attempt,
    ) -> Result<(), AttemptFailure> {
        let (refused, is_http2) = (&self.tries.refused, self.asked.is_http2);
        // a connection that begins with one client's address, or is bound to one client, is for that
        // client alone
        let shares = is_http2 && self.upload.preface == 0 && !self.binding.is_private();
        let application = &self.application;
        let shared = match shares {
            true => application.share(member, refused, self.now_ms).transpose(),
            false => None,
        };
        let connect = || {
            let connection = application.connect(member, refused, is_http2, self.now_ms)?;
            self.offering(connection)
        };
        let opened = match shared.unwrap_or_else(connect) {
            Ok(mut connection) => {
                // the PROXY header goes before TLS
                let preface = &self.upload.to[..self.upload.preface];
                if connection.begin_in_clear(preface) {
                    self.upload.sent = preface.len();
                }
                attempt.connection = Some(connection);
                Ok(())
            }
            Err(error) => Err(attempt.not_connected(&error.into())),
        };
        self.phase = ExchangePhase::Connecting(attempt);
        opened
    }

    /// Begins another attempt after one that has failed, if that is safe.
    pub(super) fn try_again(&mut self, failure: AttemptFailure, late: Lateness) {
        let mut failed = Some((failure, late));
        while let Some((failure, late)) = failed {
            failed = self.begin_another(failure, late).map(|failure| (failure, Lateness::InTime));
        }
    }

    /// Handles a client that has left. An application that was sent some of the request, and has not
    /// answered, may go on working: its place becomes free when it has finished, or its time is over.
    /// An application that is already writing notices that the connection is closed.
    pub(super) fn drain(&mut self) {
        if self.asked.passed.is_some() {
            return self.drain_offered();
        }
        if self.asked.is_http2
            && !self.application.is_stage()
            && let Some(Attempt { connection: Some(connection), .. }) = self.phase.attempt_mut()
        {
            // a stream is cancelled explicitly, so the upstream need not find out by writing
            return connection.cancel();
        }
        let is_bounded = self.application.settings().group().in_flight.is_some();
        if is_bounded && self.phase.is_answered() && !self.is_tunnel() {
            // what has come, and the client did not take, may be the rest of the answer
            let mut dropped = Vec::new();
            while dropped.len() < UP_BYTES
                && matches!(self.read_body(&mut dropped, UP_BYTES), RelayRead::Bytes(_))
            {
            }
        }
        let left_bytes = match self.phase {
            ExchangePhase::Asking(_) => UP_BYTES,
            ExchangePhase::Answered(_) if !self.answer.coming.is_over() && !self.is_tunnel() => 0,
            _ => return,
        };
        let until_ms = self.own_deadline_ms();
        if is_bounded
            && self.upload.is_written()
            && clock::coarse_ms() < until_ms
            && let Some(attempt) = self.phase.take_attempt()
            && !attempt.has_ended
            && !attempt.is_cut
            && let (Some(connection), Some(slot)) = (attempt.connection, attempt.slot)
        {
            DrainingExchange::new(connection, slot, left_bytes, until_ms).begin();
        }
    }

    /// Handles a client that has left while a receiver has its request. The request keeps its place
    /// until the receiver says that it is done, or has died. The receiver sees the end of the socket
    /// pair.
    pub(super) fn drain_offered(&mut self) {
        let until_ms = self.own_deadline_ms();
        let is_bounded = self.application.settings().group().in_flight.is_some();
        let is_out = |connection: &UpstreamConnection| {
            connection.offered().is_some_and(|pair| pair.is_untaken() || pair.is_taken())
        };
        if is_bounded
            && clock::coarse_ms() < until_ms
            && !matches!(self.phase, ExchangePhase::Failed(..))
            && let Some(attempt) = self.phase.take_attempt()
            && let (Some(connection), Some(slot)) = (attempt.connection, attempt.slot)
            && is_out(&connection)
        {
            // whatever the receiver says on the link, the request is done then
            DrainingExchange::new(connection.without_offer(), slot, 0, until_ms).begin();
        }
    }

    /// Whether an upstream that has not answered in time has answered no other request either since
    /// it was asked.
    fn is_frozen(&self, failure: AttemptFailure) -> bool {
        let ExchangePhase::Asking(Attempt { slot: Some(slot), .. }) = &self.phase else {
            return false;
        };
        let is_silent = failure == AttemptFailure::Silent;
        let last_ns = self.application.upstreams().last_answer_ns(slot.member());
        is_silent && last_ns < self.times.begun_ns
    }

    /// Begins another attempt, if that is safe. Returns the failure if that attempt has failed
    /// already.
    fn begin_another(&mut self, failure: AttemptFailure, late: Lateness) -> Option<AttemptFailure> {
        let now_ms = self.now_ms;
        let failure = if self.is_frozen(failure) { AttemptFailure::Frozen } else { failure };
        let mut attempt = self.phase.take_attempt().unwrap_or_else(|| Attempt::new(None));
        let pair = attempt.connection.as_ref().and_then(UpstreamConnection::offered);
        let has_no_room = pair.is_some_and(OfferedPair::has_no_room);
        let failure = if has_no_room { AttemptFailure::Resources } else { failure };
        self.note_failed(late.word(failure));
        // a receiver has confirmed that it has the request: no other receiver gets it
        let was_taken = pair.is_some_and(OfferedPair::is_taken);
        // an upstream may close a connection that was idle for a while
        let was_stale = attempt.is_reused
            && !was_taken
            && matches!(failure, AttemptFailure::Unwritten | AttemptFailure::Closed);
        let member = self.upstream();
        let is_unconnected = matches!(failure, AttemptFailure::Connect | AttemptFailure::Tls(_));
        let failed = attempt.connection.as_ref().filter(|_| is_unconnected);
        let has_address = failed.is_some_and(|connection| {
            let upstreams = self.application.upstreams();
            upstreams.refused(member, connection, &mut self.tries.refused, now_ms)
        });
        // the upstream accepts connections, but says nothing in the handshake
        let shakes = failed.is_some_and(UpstreamConnection::shakes);
        // a shared connection ends for all its requests at once, or has no stream left: that shows
        // nothing of the upstream, and none of the requests has run
        let was_returned = failure == AttemptFailure::Returned
            && attempt.connection.as_ref().is_some_and(UpstreamConnection::is_shared);
        if let Some(slot) = &mut attempt.slot {
            if was_stale && failure == AttemptFailure::Closed {
                self.application.upstreams().was_hasty(slot.member(), now_ms);
            }
            match (failure, late) {
                _ if was_stale || has_address || was_returned => slot.told = HealthSign::Nothing,
                (AttemptFailure::Connect, Lateness::Late) if shakes => slot.fail(UNSHAKEN),
                // this server lacked something, not the upstream
                (AttemptFailure::Resources, _) => slot.told = HealthSign::Nothing,
                (AttemptFailure::Connect | AttemptFailure::Tls(_), Lateness::InTime) => {
                    slot.fail(attempt.unreached);
                }
                _ => slot.fail(late.word(failure)),
            }
        }
        if let AttemptFailure::Tls(fault) = failure {
            self.tries.handshakes.failed.push(fault);
        }
        let is_away = late == Lateness::InTime && outcome::is_away(failure, attempt.unreached);
        // the place must be free before another is asked for
        drop(attempt);
        let body = match self.upload.is_gone {
            true => retry::RequestBodyState::Gone,
            false => retry::RequestBodyState::Kept,
        };
        let is_unheard = self.answer.interim.is_empty() || self.answer.script.is_some();
        // another connection does not know this client's sign-in, and the credentials must not be
        // sent twice
        let is_bound = self.binding.is_used() && !was_stale;
        let is_safe = is_unheard
            && !is_bound
            && !was_taken
            && retry::may_repeat(self.asked.method, failure, body);
        let upstreams = self.application.upstreams();
        let has_more = self.tries.retries < self.application.settings().group().retries;
        // the upstream did not begin with the request, so the retry costs nothing
        let is_returned = was_returned && self.tries.returned < MOST_RETURNED;
        let is_free =
            has_address || is_returned || (was_stale && failure == AttemptFailure::Unwritten);
        self.tries.returned += u32::from(is_returned);
        let may = is_free || (has_more && upstreams.may_retry(now_ms));
        let (owner, tried) = (self.asked.owner, self.tries.tried.clone());
        let next = match is_safe && may {
            true => {
                // the upstream would show the same certificate again
                let is_certain = |fault| fault != TlsFault::Ended && !has_address;
                let only_others = match failure {
                    AttemptFailure::Frozen => true,
                    AttemptFailure::Tls(fault) => is_certain(fault),
                    _ => false,
                };
                let choice = MemberChoice { tried, only_others, wanted: None };
                upstreams.ask(Asking::new(owner, self.asked.key).of(choice)).ok()
            }
            false => None,
        };
        let Some(next) = next else {
            if !(is_safe && is_away && self.waits_for_return()) {
                self.give_up(Failed::Asked(failure, late));
            }
            return None;
        };
        self.tries.retries += u32::from(!is_free);
        self.upload.rewind();
        self.answer.again(self.asked.context, self.application.settings().limits());
        match next {
            upstreams::SlotOrWait::Begun(slot) => self.begin_with(slot, None).err(),
            upstreams::SlotOrWait::Waits(wait) => {
                self.wait_for(wait);
                None
            }
        }
    }
}
