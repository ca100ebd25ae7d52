//! How code of this process, other than the connection's own, wakes a request that waits for it.
//!
//! An exchange with code of this process has no socket. The engine leaves the request's waker in the
//! exchange's slot; the code that has something for the request wakes it through the slot, from any
//! thread.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

/// The slot where an engine leaves a request's waker. A call that comes before the waker is kept for it.
#[derive(Debug, Default)]
pub struct WakeSlot(Mutex<SlotState>);

#[derive(Debug, Default)]
enum SlotState {
    #[default]
    Empty,
    /// The request was called before there was a waker.
    Called,
    Waker(Waker),
}

impl WakeSlot {
    fn lock(&self) -> MutexGuard<'_, SlotState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a waker is there.
    pub fn is_set(&self) -> bool {
        matches!(*self.lock(), SlotState::Waker(_))
    }

    /// Sets the waker of the request; wakes it at once if the request was called already.
    pub fn set(&self, waker: Waker) {
        let before = std::mem::replace(&mut *self.lock(), SlotState::Waker(waker.clone()));
        if let SlotState::Called = before {
            waker.wake();
        }
    }

    /// Wakes the request. The request then looks at everything there is for it: one call is enough until
    /// it has.
    pub fn wake(&self) {
        let mut state = self.lock();
        let SlotState::Waker(waker) = &*state else {
            *state = SlotState::Called;
            return;
        };
        let waker = waker.clone();
        // the lock is dropped first, because an engine's waker may take other locks
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
