//! Attempts: which receiver a request is offered to, over which link, and which receiver is next where
//! another attempt is safe.

use super::{HandOverEnd, HandOverExchange, HandOverPhase};
use crate::application::pool::ConnectionPool;
use crate::exchange::{ExchangeTimes, Failed, Lateness, unreached};
use crate::group::health::HealthSign;
use crate::group::retry::{AttemptFailure, RequestBodyState, may_repeat};
use crate::hand_over::link::ReceiverLink;
use crate::places::queue::{Asking, MemberChoice};
use crate::upstreams::connection::UpstreamConnection;
use crate::upstreams::{SlotOrWait, UpstreamSlot};
use forebay_sys::clock;

impl<T> HandOverExchange<T> {
    /// Begins to ask a receiver, over a link of the pool if there is one. Does nothing if the
    /// exchange has begun.
    pub fn begin(&mut self, pool: &mut ConnectionPool, now_ms: u64) {
        let HandOverPhase::Unbegun = self.phase else { return };
        (self.now_ms, self.since_ms) = (now_ms, now_ms);
        let asking = Asking::new(self.request.owner, self.request.key);
        match self.application.upstreams().ask(asking) {
            Ok(SlotOrWait::Begun(slot)) => {
                let kept = pool.take(&self.application, slot.member(), now_ms);
                self.link_to(slot, kept);
            }
            Ok(SlotOrWait::Waits(wait)) => self.phase = HandOverPhase::Waiting(wait),
            Err(unavailable) => self.fail(Failed::Unasked(unavailable)),
        }
    }

    /// Asks a receiver, over this link or a new one.
    fn link_to(&mut self, slot: UpstreamSlot, kept: Option<UpstreamConnection>) {
        let member = slot.member();
        self.tried.push(member);
        self.since_ms = self.now_ms;
        self.times = ExchangeTimes::begun(clock::monotonic_ns());
        self.loan.again();
        let (is_reused, opened) = match kept {
            Some(kept) => (true, Ok(kept)),
            None => (false, self.application.connect(member, &[], false, self.now_ms)),
        };
        match opened {
            Ok(connection) => {
                self.times.connected(clock::monotonic_ns());
                if !is_reused {
                    slot.count_connection(self.times.connect_ns());
                }
                self.application.upstreams().is_reached();
                let link = ReceiverLink::new(slot, connection, is_reused);
                self.phase = HandOverPhase::Ready(link);
            }
            Err(error) => {
                let (why, failure) = match unreached(&error) {
                    Some(why) => (why, AttemptFailure::Connect),
                    None => ("", AttemptFailure::Resources),
                };
                self.not_taken(slot, failure, Lateness::InTime, why, false);
            }
        }
    }

    /// Handles a receiver that has not taken the request: another gets it, if that is safe.
    pub(super) fn not_taken(
        &mut self,
        mut slot: UpstreamSlot,
        failure: AttemptFailure,
        late: Lateness,
        why: &'static str,
        was_reused: bool,
    ) {
        // a receiver may close a link that was idle for a while
        let was_stale = was_reused && failure == AttemptFailure::Unwritten;
        match failure {
            AttemptFailure::Resources => slot.told = HealthSign::Nothing,
            _ if was_stale => slot.told = HealthSign::Nothing,
            _ if why.is_empty() => slot.fail(late.word(failure)),
            _ => slot.fail(why),
        }
        // the place must be free before another is asked for
        drop(slot);
        let upstreams = self.application.upstreams();
        let is_safe = may_repeat(self.request.method, failure, RequestBodyState::Kept);
        let has_more = self.retries < self.settings().retries;
        let may = was_stale || (has_more && upstreams.may_retry(self.now_ms));
        let next = (is_safe && may).then(|| {
            let only_others = failure == AttemptFailure::Frozen;
            let (owner, key) = (self.request.owner, self.request.key);
            let tried = if was_stale { Vec::new() } else { self.tried.clone() };
            let choice = MemberChoice { tried, only_others, wanted: None };
            upstreams.ask(Asking::new(owner, key).of(choice)).ok()
        });
        self.retries += u32::from(!was_stale);
        match next.flatten() {
            // over a new link, because other idle ones may have been closed, too
            Some(SlotOrWait::Begun(slot)) => self.link_to(slot, None),
            Some(SlotOrWait::Waits(wait)) => {
                self.since_ms = self.now_ms;
                self.times = ExchangeTimes::begun(clock::monotonic_ns());
                self.phase = HandOverPhase::Waiting(wait);
            }
            None => self.fail(Failed::Asked(failure, late)),
        }
    }
    /// Looks whether the request's turn has come.
    pub(super) fn look_at_turn(&mut self) -> bool {
        let HandOverPhase::Waiting(wait) = &mut self.phase else { return false };
        let Some(told) = wait.take() else { return false };
        self.end_wait();
        match told {
            Ok((slot, connection)) => {
                let now_ms = self.now_ms;
                let kept = connection.and_then(|mut one| one.is_fit(now_ms).then_some(one));
                self.link_to(slot, kept);
            }
            Err(unavailable) => self.fail(Failed::Unasked(unavailable)),
        }
        true
    }

    pub(super) fn end_wait(&mut self) {
        self.phase = HandOverPhase::Unbegun;
        self.waited_ns += clock::monotonic_ns().saturating_sub(self.times.begun_ns());
    }

    /// Finishes the exchange, and passes the link on to waiting requests or the pool.
    pub fn give_back(&mut self, pool: &mut ConnectionPool) {
        let HandOverPhase::Over(end, link) = &mut self.phase else { return };
        let is_clean =
            matches!(end, HandOverEnd::Back(_) | HandOverEnd::Ended(..) | HandOverEnd::Gone);
        let Some(link) = link.take().filter(|link| is_clean && link.is_clean()) else {
            return;
        };
        if self.application.settings().group().keep_alive.connections == 0 {
            return;
        }
        let member = link.slot.member();
        if let Some(connection) = link.slot.pass_on(link.connection) {
            pool.keep(&self.application, member, connection, self.now_ms);
        }
    }
}
