//! How code of this process that is no connection's wakes a request which waits for it.
//!
//! An exchange with code of this process has no socket. The engine leaves what wakes its request in the exchange's
//! slot; who has something for the request calls it, on whichever thread.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

/// Where an engine leaves what wakes a request. A call that comes before is kept for it.
#[derive(Debug, Default)]
pub struct WakeSlot(Mutex<SlotState>);

#[derive(Debug, Default)]
enum SlotState {
    #[default]
    Empty,
    /// The request was called, and nothing was there that wakes it.
    Called,
    Waker(Waker),
}

impl WakeSlot {
    fn lock(&self) -> MutexGuard<'_, SlotState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is something that wakes the request.
    pub fn is_set(&self) -> bool {
        matches!(*self.lock(), SlotState::Waker(_))
    }

    /// This wakes the request from now on; at once, if it was called already.
    pub fn set(&self, waker: Waker) {
        let before = std::mem::replace(&mut *self.lock(), SlotState::Waker(waker.clone()));
        if let SlotState::Called = before {
            waker.wake();
        }
    }

    /// Wakes the request. It looks at all there is for it: one call is enough until it has.
    pub fn wake(&self) {
        let mut state = self.lock();
        let SlotState::Waker(waker) = &*state else {
            *state = SlotState::Called;
            return;
        };
        let waker = waker.clone();
        // an engine may take other locks
        drop(state);
        waker.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::Wake;

    #[derive(Default)]
    struct Count(AtomicU32);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_call_that_comes_first_is_kept() {
        let (slot, count) = (WakeSlot::default(), Arc::<Count>::default());
        slot.wake();
        slot.wake();
        assert!(!slot.is_set());
        slot.set(Waker::from(Arc::clone(&count)));
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        slot.wake();
        slot.set(Waker::from(Arc::clone(&count)));
        assert_eq!((count.0.load(Ordering::Relaxed), slot.is_set()), (2, true));
    }
}
