//! Outages: upstreams that take no connections for a while, as in a restart. Requests wait for them,
//! and only one at a time tries whether they are back.
//!
//! An outage concerns all upstreams of a group together: while one takes connections, requests go
//! there.

use super::Upstreams;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// How long requests wait for upstreams, from the first request that found none of them. An upstream
/// that is away for longer is not restarting.
const AWAY_MS: u64 = 60_000;

/// How often one request tries, and all others look whether it has succeeded.
const TRY_MS: u64 = 100;

/// The state of an outage.
#[derive(Debug, Default)]
pub(super) struct Outage {
    /// When the outage began, in milliseconds; 0 if an upstream took a connection since.
    since_ms: AtomicU64,
    /// When the next request may try.
    next_ms: AtomicU64,
    /// The number of waiting requests.
    waiting: AtomicU32,
}

/// A request that waits until an upstream takes connections again. Dropping this ends the wait.
#[derive(Debug)]
pub(crate) struct OutageWait {
    upstreams: Arc<Upstreams>,
    /// Until when the request waits at most.
    until_ms: u64,
    /// When the request looks again.
    next_ms: u64,
}

/// The result of a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutageLook {
    /// The request may try, or an upstream is back.
    Tries,
    /// The request waits on.
    Waits,
    /// The request has waited for as long as it may.
    Late,
}

impl OutageWait {
    /// When the request must look.
    pub(crate) fn next_ms(&self) -> u64 {
        self.next_ms.min(self.until_ms)
    }

    /// Looks whether the request may try.
    pub(crate) fn look(&mut self, now_ms: u64) -> OutageLook {
        let outage = &self.upstreams.outage;
        if !outage.is_on() || outage.may_try(now_ms) {
            return OutageLook::Tries;
        }
        if now_ms >= self.until_ms {
            return OutageLook::Late;
        }
        self.next_ms = now_ms.saturating_add(TRY_MS);
        OutageLook::Waits
    }
}

impl Drop for OutageWait {
    fn drop(&mut self) {
        self.upstreams.outage.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Outage {
    fn is_on(&self) -> bool {
        self.since_ms.load(Ordering::Relaxed) > 0
    }

    /// Whether this request may be the one that tries now.
    fn may_try(&self, now_ms: u64) -> bool {
        let next_ms = self.next_ms.load(Ordering::Relaxed);
        let then_ms = now_ms.saturating_add(TRY_MS);
        let (is, order) = (now_ms >= next_ms, Ordering::Relaxed);
        is && self.next_ms.compare_exchange(next_ms, then_ms, order, order).is_ok()
    }

    /// Notes that an upstream takes connections.
    #[inline]
    pub(super) fn end(&self) {
        if self.is_on() {
            self.since_ms.store(0, Ordering::Relaxed);
        }
    }

    /// The number of waiting requests.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed) as usize
    }
}

impl Upstreams {
    /// Lets a request wait that has found no upstream that takes connections, if they have answered
    /// before and are not away for long. At most `most` requests wait. One that has waited before
    /// still has the same deadline, `until_ms`.
    pub(crate) fn wait_for_return(
        self: &Arc<Self>,
        most: u32,
        until_ms: u64,
        now_ms: u64,
    ) -> Option<OutageWait> {
        let has_answered = |one: &super::Upstream| one.answered_ns.load(Ordering::Relaxed) > 0;
        if !self.each.iter().any(has_answered) {
            return None;
        }
        let (outage, order) = (&self.outage, Ordering::Relaxed);
        let begun = outage.since_ms.compare_exchange(0, now_ms.max(1), order, order);
        let since_ms = begun.unwrap_or_else(|since_ms| since_ms);
        let is_short = since_ms == 0 || now_ms.saturating_sub(since_ms) < AWAY_MS;
        if !is_short || now_ms >= until_ms {
            return None;
        }
        let wait = self.enter(most, until_ms, now_ms)?;
        outage.next_ms.fetch_max(now_ms.saturating_add(TRY_MS), order);
        Some(wait)
    }

    /// Lets a new request wait at once, if others wait.
    pub(crate) fn joins_wait(
        self: &Arc<Self>,
        most: u32,
        until_ms: u64,
        now_ms: u64,
    ) -> Option<OutageWait> {
        let since_ms = self.outage.since_ms.load(Ordering::Relaxed);
        let is_short = since_ms > 0 && now_ms.saturating_sub(since_ms) < AWAY_MS;
        if !is_short || self.outage.waiting() == 0 {
            return None;
        }
        self.enter(most, until_ms, now_ms)
    }

    fn enter(self: &Arc<Self>, most: u32, until_ms: u64, now_ms: u64) -> Option<OutageWait> {
        let order = Ordering::Relaxed;
        let more = |now: u32| now.checked_add(1).filter(|then| *then <= most);
        self.outage.waiting.fetch_update(order, order, more).ok()?;
        let next_ms = now_ms.saturating_add(TRY_MS);
        Some(OutageWait { upstreams: Arc::clone(self), until_ms, next_ms })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::tests::settings;
    use crate::places::queue::Asking;
    use crate::settings::Balance;
    use crate::upstreams::SlotOrWait;

    fn answered() -> Arc<Upstreams> {
        let upstreams = Upstreams::new(&settings(2, Balance::Least, None), false, 0);
        let Ok(SlotOrWait::Begun(mut slot)) = upstreams.ask(Asking::default()) else {
            panic!("there is room")
        };
        slot.answered(false, 1);
        upstreams
    }

    #[test]
    fn one_tries_and_all_go_on_when_one_is_back() {
        let upstreams = answered();
        let wait = |until_ms, now_ms| upstreams.wait_for_return(2, until_ms, now_ms);
        assert!(upstreams.joins_wait(2, 9000, 1000).is_none(), "all is well");
        let mut one = wait(9000, 1000).unwrap();
        let mut other = upstreams.joins_wait(2, 1500, 1010).unwrap();
        assert_eq!((upstreams.waiting(), one.next_ms(), other.next_ms()), (2, 1100, 1110));
        assert!(wait(9000, 1010).is_none(), "as many wait as may");
        assert_eq!(one.look(1050), OutageLook::Waits);
        assert_eq!(one.look(1100), OutageLook::Tries);
        assert_eq!((other.look(1110), other.next_ms()), (OutageLook::Waits, 1210));
        assert_eq!(other.look(1210), OutageLook::Tries);
        assert_eq!((one.look(1215), other.look(1220)), (OutageLook::Waits, OutageLook::Waits));
        upstreams.outage.end();
        assert_eq!((one.look(1216), other.look(1221)), (OutageLook::Tries, OutageLook::Tries));
        drop((one, other));
        assert_eq!(upstreams.waiting(), 0);
    }

    #[test]
    fn what_was_never_there_or_is_away_for_long_is_not_waited_for() {
        let new = Upstreams::new(&settings(1, Balance::Least, None), false, 0);
        assert!(new.wait_for_return(10, 9000, 1000).is_none());
        let upstreams = answered();
        let mut first = upstreams.wait_for_return(10, 11_000, 1000).unwrap();
        assert_eq!(first.look(1100), OutageLook::Tries);
        drop(first);
        let mut late = upstreams.wait_for_return(10, 2000, 1990).unwrap();
        assert_eq!((late.next_ms(), late.look(2000)), (2000, OutageLook::Late));
        drop(late);
        assert!(upstreams.wait_for_return(10, 99_000, 61_000).is_none());
        assert!(upstreams.joins_wait(10, 99_000, 61_000).is_none());
        // an upstream was back meanwhile
        upstreams.outage.end();
        assert!(upstreams.wait_for_return(10, 99_000, 61_000).is_some());
    }
}
