//! Retries: which requests may be sent again, and how many in all.
//!
//! A request is sent again if it certainly did not run, or may run twice. In every other case the
//! client gets the error: the server cannot know whether an order was placed.

use forebay_http::head::Method;
use forebay_tls::TlsFault;

/// The number of free retries.
const FREE: u64 = 10;

/// The cost of one retry. Each request earns the ratio in thousandths, and each millisecond earns one
/// while fewer than the free retries are left.
const COST: u64 = 1000;

/// The largest number of saved retries, so that a long calm does not pay for a storm.
const MOST: u64 = 100;

/// How an attempt has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptFailure {
    /// There was no connection: refused, unreachable, or none in time.
    Connect,
    /// There was no connection: the TLS handshake failed.
    Tls(TlsFault),
    /// There was no connection, because this server had no descriptor or no memory for one.
    Resources,
    /// The connection had ended before a byte of the request was written.
    Unwritten,
    /// The connection ended before a byte of the answer came. Some of the request was written.
    Closed,
    /// The answer could not be understood, or it ended within its head.
    Malformed,
    /// The upstream has said that it has no room for the request, which did not run.
    Overloaded,
    /// The upstream is about to end, and has said that it has not begun with the request.
    Returned,
    /// The request had no answer in time, while others had theirs: another upstream would take as
    /// long.
    Silent,
    /// The request had no answer in time, and no other had one meanwhile: the upstream hangs.
    Frozen,
}

/// Whether a request's body can be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestBodyState {
    /// The request has no body, or all of it is still here.
    Kept,
    /// Some of the body was passed on and is gone.
    Gone,
}

/// Whether the request may be sent again, as far as it alone is concerned. The caller makes sure that
/// nothing of an answer was passed on to the client.
pub fn may_repeat(method: Method, failure: AttemptFailure, body: RequestBodyState) -> bool {
    // RFC 9110 §9.2.1; TRACE is left out, because a client that has asked for a trace has had it
    let is_safe = matches!(method, Method::Get | Method::Head | Method::Options);
    let is_possible = match failure {
        AttemptFailure::Connect
        | AttemptFailure::Tls(_)
        | AttemptFailure::Unwritten
        | AttemptFailure::Overloaded
        | AttemptFailure::Returned => true,
        AttemptFailure::Closed | AttemptFailure::Malformed | AttemptFailure::Frozen => is_safe,
        // another attempt would lack the same, whichever upstream it went to
        AttemptFailure::Resources | AttemptFailure::Silent => false,
    };
    is_possible && body == RequestBodyState::Kept
}

/// The retry budget of a group: a ratio of the requests that are sent, and a few that are free. So an
/// upstream that is down is asked hardly more than usual.
#[derive(Clone, Debug)]
pub struct Budget {
    permille: u64,
    /// The saved retries, in parts of one ([`COST`]).
    saved: u64,
    refilled_ms: u64,
}

impl Budget {
    /// A budget of `permille` retries for a thousand requests.
    pub fn new(permille: u32, now_ms: u64) -> Budget {
        Budget { permille: u64::from(permille), saved: FREE * COST, refilled_ms: now_ms }
    }

    /// Changes the ratio to `permille` retries for a thousand requests.
    pub fn set(&mut self, permille: u32) {
        self.permille = u64::from(permille);
    }

    /// Earns a part of a retry: a request is sent for the first time.
    pub fn deposit(&mut self) {
        self.saved = (self.saved + self.permille).min(MOST * COST);
    }

    /// Whether a request may be sent again; then it counts.
    pub fn withdraw(&mut self, now_ms: u64) -> bool {
        let passed_ms = now_ms.saturating_sub(self.refilled_ms);
        self.refilled_ms = self.refilled_ms.max(now_ms);
        if self.saved < FREE * COST {
            self.saved = self.saved.saturating_add(passed_ms).min(FREE * COST);
        }
        let left = self.saved.checked_sub(COST);
        self.saved = left.unwrap_or(self.saved);
        left.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nothing_unsafe_runs_twice() {
        use AttemptFailure::*;
        for method in [Method::Get, Method::Head, Method::Options] {
            for (failure, expected) in [
                (Connect, true),
                (Resources, false),
                (Unwritten, true),
                (Closed, true),
                (Malformed, true),
                (Overloaded, true),
                (Returned, true),
                (Silent, false),
                (Frozen, true),
            ] {
                assert_eq!(
                    may_repeat(method, failure, RequestBodyState::Kept),
                    expected,
                    "{failure:?}"
                );
                assert!(!may_repeat(method, failure, RequestBodyState::Gone));
            }
        }
        for method in [
            Method::Post,
            Method::Put,
            Method::Delete,
            Method::Patch,
            Method::Trace,
            Method::Connect,
            Method::Unknown,
        ] {
            for (failure, expected) in [
                (Connect, true),
                (Resources, false),
                (Unwritten, true),
                (Closed, false),
                (Malformed, false),
                (Overloaded, true),
                (Returned, true),
                (Silent, false),
                (Frozen, false),
            ] {
                assert_eq!(
                    may_repeat(method, failure, RequestBodyState::Kept),
                    expected,
                    "{failure:?}"
                );
                assert!(!may_repeat(method, failure, RequestBodyState::Gone));
            }
        }
    }

    #[test]
    fn a_few_are_free_and_come_back() {
        let mut budget = Budget::new(0, 0);
        assert_eq!((0..100).filter(|_| budget.withdraw(0)).count(), 10);
        assert_eq!((0..100).filter(|_| budget.withdraw(3500)).count(), 3);
        assert_eq!((0..100).filter(|_| budget.withdraw(4000)).count(), 1);
        assert_eq!((0..100).filter(|_| budget.withdraw(1_000_000)).count(), 10);
    }

    proptest! {
        /// For all sequences: no more retries than the ratio allows, apart from the free ones.
        #[test]
        fn no_more_than_the_ratio(
            steps in prop::collection::vec((any::<bool>(), 0u64..50), 1..2000), permille in 0u32..=1000,
        ) {
            let mut budget = Budget::new(permille, 0);
            let (mut now_ms, mut sent, mut again) = (0, 0u64, 0u64);
            for (is_new, pass_ms) in steps {
                now_ms += pass_ms;
                if is_new {
                    budget.deposit();
                    sent += 1;
                } else {
                    again += u64::from(budget.withdraw(now_ms));
                }
            }
            let bound = FREE * COST + sent * u64::from(permille) + now_ms;
            prop_assert!(again * COST <= bound, "{} of {}", again, sent);
        }
    }
}
