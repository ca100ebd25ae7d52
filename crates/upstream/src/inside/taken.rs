//! Places of handlers that need no thread, as they are counted, and what a request that was given away keeps.

use forebay_sys::stderr::say;
use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// One of as many fibers and detached handlers as there may be.
#[derive(Debug)]
pub(super) struct HandlerPlace(Arc<AtomicUsize>);

impl HandlerPlace {
    pub(super) fn take(count: &Arc<AtomicUsize>, most: usize) -> Option<HandlerPlace> {
        let place = HandlerPlace(Arc::clone(count));
        // given back by dropping it
        (count.fetch_add(1, Ordering::Relaxed) < most).then_some(place)
    }
}

impl Drop for HandlerPlace {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What a request that was given away keeps of what there is little of, until its response is dropped.
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
