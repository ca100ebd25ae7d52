//! Requests that were admitted for a later time, each with the time from which it may be answered.
//!
//! A deadline may be met late, and the [wheel](crate::loops::timer_wheel) does so. A request that
//! waits for its turn should not wait for the next slot of a wheel besides, so these times are kept
//! exactly.

use crate::order::ranks::RequestKey;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Requests that may not be answered yet, the next one first.
#[derive(Debug, Default)]
pub(crate) struct Early(BinaryHeap<Reverse<(u64, RequestKey)>>);

impl Early {
    /// Keeps this request until `at_ms`, from when it may be answered.
    pub(crate) fn wait_until(&mut self, at_ms: u64, key: RequestKey) {
        self.0.push(Reverse((at_ms, key)));
    }

    /// Takes out a request whose time has come. It may be gone by now.
    #[inline]
    pub(crate) fn next(&mut self, now_ms: u64) -> Option<RequestKey> {
        let Reverse((at_ms, key)) = *self.0.peek()?;
        if at_ms > now_ms {
            return None;
        }
        self.0.pop();
        Some(key)
    }

    /// The milliseconds until the next request is due, at most `most_ms`.
    #[inline]
    pub(crate) fn sleep_ms(&self, now_ms: u64, most_ms: u64) -> u64 {
        let next = self.0.peek();
        next.map_or(most_ms, |Reverse((at_ms, _))| at_ms.saturating_sub(now_ms).min(most_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_comes_at_its_moment() {
        let mut early = Early::default();
        assert_eq!((early.next(u64::MAX), early.sleep_ms(0, 500)), (None, 500));
        for (at_ms, token) in [(30, 3), (10, 1), (20, 2), (1_000, 4)] {
            early.wait_until(at_ms, RequestKey { connection: token, ..RequestKey::default() });
        }
        let mut next = |now_ms| {
            let key = early.next(now_ms).map(|key| key.connection);
            (key, early.sleep_ms(now_ms, 500))
        };
        assert_eq!(next(9), (None, 1));
        assert_eq!([next(20).0, next(20).0, next(20).0], [Some(1), Some(2), None]);
        assert_eq!((early.sleep_ms(20, 500), early.sleep_ms(40, 500)), (10, 0));
        assert_eq!(
            (early.next(31).map(|key| key.connection), early.sleep_ms(31, 500)),
            (Some(3), 500)
        );
    }
}
