//! A waiting request in a small form: what is kept of an exchange while its request waits for its
//! turn. A client can make many requests wait at the cost of a few bytes each, so this is as little
//! as possible: the connection keeps the request itself, and what an application is asked can be
//! written again. At its turn, or when the time is over, the exchange is made anew and goes on.

use super::outcome::{ExchangeTimes, Failed, Lateness};
use super::phase::ExchangePhase;
use super::state::Exchange;
use crate::application::Application;
use crate::group::Unavailable;
use crate::group::retry::AttemptFailure;
use crate::places::queue::{Asking, RequestOwner};
use crate::settings::WhenDown;
use crate::upstreams::connection::UpstreamConnection;
use crate::upstreams::{QueueWait, SlotOrWait, UpstreamSlot};
use forebay_conn::{SocketId, WakeSlot, Wants};
use forebay_sys::clock;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

/// A request that waits for its turn, and its place in the queue.
pub struct WaitingTurn<T> {
    /// What the handler must remember.
    pub tag: T,
    application: Arc<Application>,
    stage: TurnStage,
    /// When the wait began, in nanoseconds.
    begun_ns: u64,
    /// Until when the request may wait.
    until_ms: u64,
    /// Until when the client waits.
    client_until_ms: u64,
    is_late: bool,
}

/// How far a wait has come.
enum TurnStage {
    /// The wait has not begun; the fields are what the queue will be asked for.
    Unbegun(RequestOwner, u64),
    Queued(QueueWait),
    /// The turn came at once.
    Begun(Option<Box<UpstreamSlot>>),
    /// The request was refused a place in the queue.
    Refused(Unavailable),
}

/// The outcome of the wait.
pub struct TurnOutcome {
    given: Given,
    begun_ns: u64,
    waited_ns: u64,
    client_until_ms: u64,
}

/// A place, perhaps with a connection; or why there is none.
pub(super) type Given = Result<(UpstreamSlot, Option<UpstreamConnection>), Unavailable>;

impl<T: Clone> Exchange<T> {
    /// Takes out what must be kept of an exchange that has just begun, if it waits for its turn and
    /// can be made anew from its request.
    pub fn set_aside(&mut self) -> Option<WaitingTurn<T>> {
        let ExchangePhase::Waiting(_) = self.phase else { return None };
        if !self.is_bare() {
            return None;
        }
        let until_ms = self.own_deadline_ms();
        let ExchangePhase::Waiting(wait) =
            std::mem::replace(&mut self.phase, ExchangePhase::Unbegun)
        else {
            return None;
        };
        Some(self.waiting(TurnStage::Queued(wait), until_ms))
    }

    /// As [`set_aside`](Exchange::set_aside), for an exchange that has not begun and will have to
    /// wait, since others do. The request enters the queue when the wait
    /// [begins](WaitingTurn::begin), so that exchanges that come together are not in memory together.
    /// Returns `None` where the exchange could wait for something else.
    pub fn set_aside_early(&mut self) -> Option<WaitingTurn<T>> {
        let is_early = matches!(self.phase, ExchangePhase::Unbegun)
            && self.application.settings().group().queue.down == WhenDown::Fail
            && self.application.upstreams().is_waited_for()
            && self.is_bare();
        is_early.then(|| {
            let stage = TurnStage::Unbegun(self.asked.owner, self.asked.key);
            self.waiting(stage, self.asked.until_ms)
        })
    }

    /// Whether the exchange has no state that could not be made anew from its request.
    fn is_bare(&self) -> bool {
        self.linked.is_none()
            && self.tries.tried.is_empty()
            && self.binding.owner().is_none()
            && self.acknowledge_ms.is_none()
    }

    fn waiting(&self, stage: TurnStage, until_ms: u64) -> WaitingTurn<T> {
        WaitingTurn {
            tag: self.tag.clone(),
            application: Arc::clone(&self.application),
            stage,
            begun_ns: self.times.begun_ns,
            until_ms,
            client_until_ms: self.asked.until_ms,
            is_late: false,
        }
    }
}

impl<T> Exchange<T> {
    /// Goes on after such a wait, in an exchange that was made anew.
    pub fn go_on(&mut self, turn: TurnOutcome, now_ms: u64) {
        (self.now_ms, self.moved_ms) = (now_ms, now_ms);
        self.tries.waited_ns = turn.waited_ns;
        self.times = ExchangeTimes::begun(turn.begun_ns);
        if let Err(failure) = self.take_turn(turn.given) {
            self.try_again(failure, Lateness::InTime);
        }
    }

    /// Takes the turn, or the failure to get one.
    pub(super) fn take_turn(&mut self, given: Given) -> Result<(), AttemptFailure> {
        match given {
            Ok((slot, connection)) => {
                // a connection that begins with one client's address is for that client alone
                let (is_shared, now_ms) = (self.upload.preface == 0, self.now_ms);
                let connection = connection.filter(|_| is_shared);
                let connection = connection.and_then(|mut one| one.is_fit(now_ms).then_some(one));
                self.begin_with(slot, connection)
            }
            Err(unavailable) => {
                self.give_up(Failed::Unasked(unavailable));
                Ok(())
            }
        }
    }
}

impl<T> WaitingTurn<T> {
    /// Enters the queue, unless the request has.
    pub fn begin(&mut self, now_ms: u64) {
        let TurnStage::Unbegun(owner, key) = self.stage else { return };
        let time_ms = self.application.settings().group().queue.time.as_millis();
        let time_ms = u64::try_from(time_ms).unwrap_or(u64::MAX);
        self.until_ms = self.client_until_ms.min(now_ms.saturating_add(time_ms));
        self.stage = match self.application.upstreams().ask(Asking::new(owner, key)) {
            Ok(SlotOrWait::Waits(wait)) => TurnStage::Queued(wait),
            Ok(SlotOrWait::Begun(slot)) => TurnStage::Begun(Some(Box::new(slot))),
            Err(unavailable) => TurnStage::Refused(unavailable),
        };
    }

    /// The application for which the request waits.
    pub fn application(&self) -> &Arc<Application> {
        &self.application
    }

    /// Why the request was not allowed to wait, if so. Then it is refused, and no exchange is made
    /// again.
    pub fn refused(&self) -> Option<Unavailable> {
        match self.stage {
            TurnStage::Refused(unavailable) => Some(unavailable),
            _ => None,
        }
    }

    fn queued(&self) -> Option<&QueueWait> {
        match &self.stage {
            TurnStage::Queued(wait) => Some(wait),
            _ => None,
        }
    }

    /// Where a loop leaves the waker that is called when the request's turn has come.
    pub fn wake_slot(&self) -> Option<&WakeSlot> {
        self.queued().map(QueueWait::wake_slot)
    }

    /// The descriptor that becomes readable then, where the slot has no waker.
    pub fn socket(&self) -> Option<(SocketId, BorrowedFd<'_>, Wants)> {
        self.queued()?.socket()
    }

    /// Whether the wait is over.
    pub fn is_over(&self) -> bool {
        let is_told = match &self.stage {
            TurnStage::Unbegun(..) => false,
            TurnStage::Queued(wait) => wait.is_told(),
            TurnStage::Begun(_) | TurnStage::Refused(_) => true,
        };
        self.is_late || is_told
    }

    /// Until when the wait may last.
    pub fn deadline_ms(&self) -> u64 {
        if self.queued().is_some_and(QueueWait::is_deaf) { 0 } else { self.until_ms }
    }

    /// Notes that the time is over.
    pub fn expire(&mut self) {
        self.is_late = true;
    }

    /// When the wait began, in nanoseconds of the monotonic clock.
    pub fn begun_ns(&self) -> u64 {
        self.begun_ns
    }

    /// The outcome of the wait. A turn that came too late goes to the next request.
    pub fn take(&mut self, now_ms: u64) -> TurnOutcome {
        let is_of_client = now_ms >= self.client_until_ms;
        let late = if is_of_client { Unavailable::Deadline } else { Unavailable::Late };
        let told = match &mut self.stage {
            _ if self.is_late => None,
            TurnStage::Queued(wait) => wait.take(),
            TurnStage::Begun(slot) => slot.take().map(|slot| Ok((*slot, None))),
            TurnStage::Refused(unavailable) => Some(Err(*unavailable)),
            TurnStage::Unbegun(..) => None,
        };
        TurnOutcome {
            given: told.unwrap_or(Err(late)),
            begun_ns: self.begun_ns,
            waited_ns: clock::monotonic_ns().saturating_sub(self.begun_ns),
            client_until_ms: self.client_until_ms,
        }
    }
}

impl TurnOutcome {
    /// How long the client still waits, if it has said so.
    pub fn time_left(&self, now_ms: u64) -> Option<Duration> {
        let left_ms = self.client_until_ms.saturating_sub(now_ms);
        (self.client_until_ms != u64::MAX).then(|| Duration::from_millis(left_ms))
    }
}
