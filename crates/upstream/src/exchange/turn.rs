//! What is kept of an exchange while its request waits for its turn. A client may have many requests wait for a few
//! bytes each, so that is as little as possible: the request itself is kept by its connection, and what an application
//! is asked can be written again. With its turn, or without one in time, the exchange is made anew and goes on.

use super::outcome::{ExchangeTimes, Failed, Lateness};
use super::phase::ExchangePhase;
use super::state::Exchange;
use crate::application::Application;
use crate::group::Unavailable;
use crate::group::retry::AttemptFailure;
use crate::upstreams::connection::UpstreamConnection;
use crate::upstreams::{QueueWait, UpstreamSlot};
use forebay_conn::{SocketId, Wants};
use forebay_sys::clock;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

/// A request that waits for its turn, and its place in the queue.
pub struct WaitingTurn<T> {
    /// What its handler must remember.
    pub tag: T,
    application: Arc<Application>,
    wait: QueueWait,
    /// Since when, in nanoseconds.
    begun_ns: u64,
    /// Until then it waits.
    until_ms: u64,
    /// Until then its client does.
    client_until_ms: u64,
    is_late: bool,
}

/// What has become of the wait.
pub struct TurnOutcome {
    given: Given,
    begun_ns: u64,
    waited_ns: u64,
    client_until_ms: u64,
}

/// A place, perhaps with a connection; or why there is none.
pub(super) type Given = Result<(UpstreamSlot, Option<UpstreamConnection>), Unavailable>;

impl<T: Clone> Exchange<T> {
    /// What is to be kept of an exchange that has just begun, if it waits for its turn and can be made anew from its
    /// request.
    pub fn set_aside(&mut self) -> Option<WaitingTurn<T>> {
        let is_bare = self.linked.is_none()
            && self.tries.tried.is_empty()
            && self.binding.owner().is_none()
            && self.acknowledge_ms.is_none();
        let ExchangePhase::Waiting(_) = self.phase else { return None };
        if !is_bare {
            return None;
        }
        let until_ms = self.own_deadline_ms();
        let ExchangePhase::Waiting(wait) =
            std::mem::replace(&mut self.phase, ExchangePhase::Unbegun)
        else {
            return None;
        };
        Some(WaitingTurn {
            tag: self.tag.clone(),
            application: Arc::clone(&self.application),
            wait,
            begun_ns: self.times.begun_ns,
            until_ms,
            client_until_ms: self.asked.until_ms,
            is_late: false,
        })
    }
}

impl<T> Exchange<T> {
    /// It was made anew after such a wait, and goes on with what that has come to.
    pub fn go_on(&mut self, turn: TurnOutcome, now_ms: u64) {
        (self.now_ms, self.moved_ms) = (now_ms, now_ms);
        self.tries.waited_ns = turn.waited_ns;
        self.times = ExchangeTimes::begun(turn.begun_ns);
        if let Err(failure) = self.take_turn(turn.given) {
            self.try_again(failure, Lateness::InTime);
        }
    }

    /// Its turn has come, or it gets none.
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
    /// The application that it waits for.
    pub fn application(&self) -> &Arc<Application> {
        &self.application
    }

    /// What becomes readable with its turn.
    pub fn socket(&self) -> (SocketId, BorrowedFd<'_>, Wants) {
        let (id, bell) = self.wait.bell();
        (id, bell, Wants { read: true, write: false })
    }

    /// Whether the wait is over.
    pub fn is_over(&self) -> bool {
        self.is_late || self.wait.is_told()
    }

    /// Until when it may last.
    pub fn deadline_ms(&self) -> u64 {
        self.until_ms
    }

    /// That time is over.
    pub fn expire(&mut self) {
        self.is_late = true;
    }

    /// When it began, in nanoseconds of a clock that never goes back.
    pub fn begun_ns(&self) -> u64 {
        self.begun_ns
    }

    /// What has become of it. A turn that comes late is the next one's.
    pub fn take(&mut self, now_ms: u64) -> TurnOutcome {
        let is_of_client = now_ms >= self.client_until_ms;
        let late = if is_of_client { Unavailable::Deadline } else { Unavailable::Late };
        let told = if self.is_late { None } else { self.wait.take() };
        TurnOutcome {
            given: told.unwrap_or(Err(late)),
            begun_ns: self.begun_ns,
            waited_ns: clock::monotonic_ns().saturating_sub(self.begun_ns),
            client_until_ms: self.client_until_ms,
        }
    }
}

impl TurnOutcome {
    /// How long the client waits from now on, if it says so.
    pub fn time_left(&self, now_ms: u64) -> Option<Duration> {
        let left_ms = self.client_until_ms.saturating_sub(now_ms);
        (self.client_until_ms != u64::MAX).then(|| Duration::from_millis(left_ms))
    }
}
