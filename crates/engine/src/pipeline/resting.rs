//! The places where threads of the pipeline rest that no phase needs now.
//!
//! The controller's threads rest in one place for all phases when there are too many of them, so
//! that a phase that needs one takes it from there, whatever it did before. Where there are
//! classes, threads of process have a lower priority on the cores (`helpers.niceness`), which a
//! thread cannot raise again: they rest in a place of their own, and change to no other phase.

use crate::order::ranks::Ranks;
use forebay_control::allocation::Phase;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Whether a thread may change between these phases.
pub(super) fn may_change(from: Phase, to: Phase, ranks: &Ranks) -> bool {
    gives_way(from, ranks) == gives_way(to, ranks)
}

/// Whether the controller's threads of this phase have a lower priority than others, for ever.
fn gives_way(phase: Phase, ranks: &Ranks) -> bool {
    phase == Phase::Process && ranks.niceness_of(ranks.count() - 1) > 0
}

/// The places where threads rest that no phase needs now: one for those of lower priority, and one
/// for all others.
#[derive(Default)]
pub(super) struct Resting([RestingPlace; 2]);

#[derive(Default)]
pub(super) struct RestingPlace {
    state: Mutex<PlaceState>,
    called: Condvar,
}

#[derive(Default)]
struct PlaceState {
    asleep: usize,
    /// The phases that called threads go to; at most as many as threads sleep.
    calls: VecDeque<Phase>,
    closed: bool,
}

impl Resting {
    /// The place where threads of this phase rest.
    pub(super) fn of(&self, phase: Phase, ranks: &Ranks) -> &RestingPlace {
        &self.0[usize::from(gives_way(phase, ranks))]
    }

    /// Ends all threads that rest.
    pub(super) fn close(&self) {
        for place in &self.0 {
            place.lock().closed = true;
            place.called.notify_all();
        }
    }
}

impl RestingPlace {
    fn lock(&self) -> MutexGuard<'_, PlaceState> {
        // no panic can leave the state half changed
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Rests until this thread is called. Returns the phase that it goes to, or `None` at the end.
    pub(super) fn rest(&self) -> Option<Phase> {
        let mut state = self.lock();
        state.asleep += 1;
        let waits = |state: &mut PlaceState| !state.closed && state.calls.is_empty();
        let woken = self.called.wait_while(state, waits);
        state = woken.unwrap_or_else(PoisonError::into_inner);
        state.asleep -= 1;
        if state.closed { None } else { state.calls.pop_front() }
    }

    /// Has a thread that rests go to `phase`, which expects it. Returns whether there is one.
    pub(super) fn call(&self, phase: Phase) -> bool {
        let mut state = self.lock();
        let has_one = state.calls.len() < state.asleep;
        if has_one {
            state.calls.push_back(phase);
            self.called.notify_one();
        }
        has_one
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::ranks::OrderSettings;
    use std::sync::Arc;
    use std::sync::mpsc::channel;

    #[test]
    fn a_thread_that_rests_goes_where_it_is_called() {
        let place = Arc::new(RestingPlace::default());
        assert!(!place.call(Phase::Send), "nobody rests");
        let (tell, told) = channel();
        let rest = |_| {
            let (place, tell) = (Arc::clone(&place), tell.clone());
            std::thread::spawn(move || tell.send(place.rest()).unwrap())
        };
        let threads: Vec<_> = (0..3).map(rest).collect();
        while place.lock().asleep < 3 {
            std::thread::yield_now();
        }
        assert!(place.call(Phase::Send) && place.call(Phase::Process));
        let mut called = [told.recv().unwrap(), told.recv().unwrap()];
        called.sort();
        assert_eq!(called, [Some(Phase::Process), Some(Phase::Send)]);
        assert_eq!(place.lock().asleep, 1);
        place.lock().closed = true;
        place.called.notify_all();
        assert_eq!(told.recv().unwrap(), None);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }

    #[test]
    fn threads_that_give_way_stay_in_process() {
        let of = |shares: &[f64], niceness| {
            Ranks::new(&OrderSettings {
                shares: shares.into(),
                niceness,
                ..OrderSettings::default()
            })
        };
        let (one, nice, equal) = (of(&[0.0], 10), of(&[0.0, 0.0], 10), of(&[0.0, 0.0], 0));
        for (from, to) in [(Phase::Process, Phase::Send), (Phase::Receive, Phase::Process)] {
            assert!(may_change(from, to, &one) && may_change(from, to, &equal));
            assert!(!may_change(from, to, &nice));
        }
        assert!(may_change(Phase::Accept, Phase::Send, &nice));
        let resting = Resting::default();
        let is_one = |from, to, ranks| std::ptr::eq(resting.of(from, ranks), resting.of(to, ranks));
        assert!(is_one(Phase::Process, Phase::Send, &one));
        assert!(!is_one(Phase::Process, Phase::Send, &nice));
    }
}
