//! Places of handlers that need no thread, as they are counted, and what a detached request holds.

use forebay_sys::stderr::say;
use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A place among the limited number of fibers and detached handlers.
#[derive(Debug)]
pub(super) struct HandlerPlace(Arc<AtomicUsize>);

impl HandlerPlace {
    pub(super) fn take(count: &Arc<AtomicUsize>, most: usize) -> Option<HandlerPlace> {
        let place = HandlerPlace(Arc::clone(count));
        // dropping it gives the place back
        (count.fetch_add(1, Ordering::Relaxed) < most).then_some(place)
    }
}

impl Drop for HandlerPlace {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What a detached request holds of limited resources, until its response is dropped.
#[derive(Debug)]
pub(super) struct DetachedRun {
    name: Arc<str>,
    _place: HandlerPlace,
}

impl DetachedRun {
    pub(super) fn new(name: Arc<str>, place: HandlerPlace) -> DetachedRun {
        DetachedRun { name, _place: place }
    }

    pub(super) fn say_failed(&self, why: &dyn Display) {
        say(format_args!("the handler {} has failed: {why}", self.name));
    }

    pub(super) fn say_panicked(&self) {
        say(format_args!("the handler {} has panicked", self.name));
    }
}
