//! Threads that requests for applications may keep, where each connection keeps one: tunnels and slow
//! applications leave some threads to other connections.
//!
//! A connection keeps one thread however many of its requests are under way.

use forebay_upstream::group::Unavailable;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// The limits and counts that all threads of a listener share.
#[derive(Debug)]
pub struct UpstreamThreads {
    all: Arc<Places>,
    tunnels: Arc<Places>,
}

/// A number of places, and how many are taken.
#[derive(Debug)]
struct Places {
    most: usize,
    taken: AtomicUsize,
}

/// A place that is given back when it is dropped.
#[derive(Debug)]
struct TakenPlace(Arc<Places>);

/// The permits of one thread.
#[derive(Debug)]
pub struct ThreadShare {
    shared: Arc<UpstreamThreads>,
    all: Weak<TakenPlace>,
    tunnels: Weak<TakenPlace>,
}

/// A permit: the request may keep its thread until this is dropped.
#[derive(Debug)]
pub struct HeldThread {
    _all: Arc<TakenPlace>,
    _tunnel: Option<Arc<TakenPlace>>,
}

impl UpstreamThreads {
    /// At most `all` threads may be kept, and `tunnels` of them for tunnels.
    pub fn new(all: usize, tunnels: usize) -> UpstreamThreads {
        let places = |most| Arc::new(Places { most, taken: AtomicUsize::new(0) });
        UpstreamThreads { all: places(all), tunnels: places(tunnels) }
    }
}

impl Places {
    fn take(self: &Arc<Self>) -> Option<TakenPlace> {
        let more = |taken: usize| (taken < self.most).then_some(taken + 1);
        let taken = self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.ok().map(|_| TakenPlace(Arc::clone(self)))
    }
}

impl Drop for TakenPlace {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ThreadShare {
    /// The permits of a thread that serves one connection at a time.
    pub fn new(shared: Arc<UpstreamThreads>) -> ThreadShare {
        ThreadShare { shared, all: Weak::new(), tunnels: Weak::new() }
    }

    /// Takes a permit for a request of the thread's connection to an application, and perhaps one for a
    /// tunnel.
    ///
    /// # Errors
    /// The limit of kept threads is reached.
    pub fn take(&mut self, is_tunnel: bool) -> Result<HeldThread, Unavailable> {
        let ThreadShare { shared, all, tunnels } = self;
        let tunnel = is_tunnel.then(|| again(tunnels, &shared.tunnels)).transpose()?;
        Ok(HeldThread { _all: again(all, &shared.all)?, _tunnel: tunnel })
    }
}

/// The permit that the connection has, or a new one.
fn again(
    held: &mut Weak<TakenPlace>,
    places: &Arc<Places>,
) -> Result<Arc<TakenPlace>, Unavailable> {
    if let Some(held) = held.upgrade() {
        return Ok(held);
    }
    let permit = Arc::new(places.take().ok_or(Unavailable::Threads)?);
    *held = Arc::downgrade(&permit);
    Ok(permit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_keeps_one_thread_for_all_its_requests() {
        let shared = Arc::new(UpstreamThreads::new(2, 1));
        let mut threads: Vec<_> = (0..3).map(|_| ThreadShare::new(Arc::clone(&shared))).collect();
        let first = threads[0].take(false).unwrap();
        let again: Vec<_> = (0..10).map(|_| threads[0].take(false).unwrap()).collect();
        let tunnel = threads[1].take(true).unwrap();
        assert_eq!(threads[2].take(false).unwrap_err(), Unavailable::Threads);
        drop(first);
        assert!(threads[2].take(false).is_err(), "others of its connection are under way");
        drop(again);
        assert!(threads[2].take(true).is_err(), "there is a tunnel");
        let held = threads[2].take(false).unwrap();
        drop((tunnel, held));
        assert_eq!(shared.all.taken.load(Ordering::Relaxed), 0);
        let _held = threads[2].take(true).unwrap();
        assert!(threads[2].take(true).is_ok(), "streams of a connection may all be tunnels");
        assert!(threads[0].take(true).is_err());
    }
}
