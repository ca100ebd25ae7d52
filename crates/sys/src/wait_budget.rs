//! A limit on waits by retries: for what other processes have locked, or what is busy for a moment.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

/// The pause between two tries.
const PAUSE: Duration = Duration::from_millis(10);

/// The limit on waits for locks, unless another one is given. A server holds a lock for
/// microseconds. Any user who may read a directory may lock it, and must not keep a server from
/// starting.
const LOCKS: Duration = Duration::from_secs(5);

/// The time that all waits from here on may take together: what one wait uses up is gone for the
/// next. The default is for what other processes have locked, 5 s.
#[derive(Debug, PartialEq, Eq)]
pub struct WaitBudget {
    left: Duration,
}

impl WaitBudget {
    /// A budget of this length. With none, everything is tried once.
    pub const fn new(left: Duration) -> WaitBudget {
        WaitBudget { left }
    }

    /// Tries, at least once, until there is a result; `None` if there is none for as long as is
    /// left. The pause between two tries is 10 ms.
    pub fn until<T>(&mut self, attempt: impl FnMut() -> Option<T>) -> Option<T> {
        let began = Instant::now();
        self.until_by(attempt, || began.elapsed(), || thread::sleep(PAUSE))
    }

    /// Tries to lock something until it is locked, like [`until`](WaitBudget::until); returns
    /// whether it is in the end.
    ///
    /// # Errors
    /// The error of the first try that has one.
    pub fn until_locked(
        &mut self,
        mut try_lock: impl FnMut() -> io::Result<bool>,
    ) -> io::Result<bool> {
        let tried = self.until(|| match try_lock() {
            Ok(false) => None,
            tried => Some(tried),
        });
        tried.unwrap_or(Ok(false))
    }

    /// Tries by a clock that is given: `elapsed` is the time since the first try.
    fn until_by<T>(
        &mut self,
        mut attempt: impl FnMut() -> Option<T>,
        elapsed: impl Fn() -> Duration,
        pause: impl Fn(),
    ) -> Option<T> {
        loop {
            let found = attempt();
            let waited = elapsed();
            if found.is_some() || waited >= self.left {
                self.left = self.left.saturating_sub(waited);
                return found;
            }
            pause();
        }
    }
}

impl Default for WaitBudget {
    fn default() -> WaitBudget {
        WaitBudget::new(LOCKS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Makes tries of which number `good` finds something. Returns how many there were, and whether
    /// the last has found it. Only pauses take time.
    fn tries(budget: &mut WaitBudget, good: usize) -> (usize, bool) {
        let (time, tried) = (Cell::new(Duration::ZERO), Cell::new(0));
        let attempt = || {
            tried.set(tried.get() + 1);
            (tried.get() == good).then_some(())
        };
        let found = budget.until_by(attempt, || time.get(), || time.set(time.get() + PAUSE));
        (tried.get(), found.is_some())
    }

    #[test]
    fn what_is_waited_for_one_thing_is_gone_for_the_next() {
        let mut budget = WaitBudget::new(5 * PAUSE);
        assert_eq!(tries(&mut budget, 1), (1, true));
        assert_eq!(budget, WaitBudget::new(5 * PAUSE));
        assert_eq!(tries(&mut budget, 3), (3, true));
        assert_eq!(budget, WaitBudget::new(3 * PAUSE));
        assert_eq!(tries(&mut budget, 9), (4, false));
        assert_eq!(budget, WaitBudget::new(Duration::ZERO));
        // with nothing left, each is still tried once
        assert_eq!(tries(&mut budget, 9), (1, false));
        assert_eq!(tries(&mut budget, 1), (1, true));
    }

    #[test]
    fn a_lock_is_tried_until_it_is_had_or_cannot_be() {
        let mut budget = WaitBudget::new(Duration::from_secs(60));
        let mut tried = 0;
        let is_had = budget.until_locked(|| {
            tried += 1;
            Ok(tried == 3)
        });
        assert!(is_had.unwrap());
        let refused = budget.until_locked(|| Err(io::ErrorKind::Unsupported.into())).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::Unsupported);
        assert!(!WaitBudget::new(Duration::ZERO).until_locked(|| Ok(false)).unwrap());
    }
}
