//! How much work a class may have that is not finished.
//!
//! What can be answered at once does not count: it waits for no worker. The first job of a request
//! [enters](Window::enter) its class's window; the [`Pass`] goes with the job, and the work is finished
//! when that is dropped: when there is nothing more to do for the request, or when nobody will do it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// The unfinished work of one class.
#[derive(Debug)]
pub struct Window {
    most: AtomicU32,
    unfinished: AtomicU32,
    offered: AtomicU64,
    refused: AtomicU64,
    finished: AtomicU64,
    retry_after_s: AtomicU32,
}

impl Default for Window {
    /// Without a limit.
    fn default() -> Window {
        Window {
            most: AtomicU32::new(u32::MAX),
            unfinished: AtomicU32::default(),
            offered: AtomicU64::default(),
            refused: AtomicU64::default(),
            finished: AtomicU64::default(),
            retry_after_s: AtomicU32::default(),
        }
    }
}

/// What was counted since the server started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests that needed a worker.
    pub offered: u64,
    /// Those of them that were refused.
    pub refused: u64,
    /// Requests whose work ended.
    pub finished: u64,
    /// Admitted and not finished now.
    pub unfinished: u32,
}

/// A place in a window, given back when it is dropped.
#[derive(Debug)]
pub struct Pass(Arc<Window>);

impl Drop for Pass {
    fn drop(&mut self) {
        self.0.finished.fetch_add(1, Relaxed);
        self.0.unfinished.fetch_sub(1, Relaxed);
    }
}

impl Window {
    /// A request needs a worker for the first time.
    ///
    /// # Errors
    /// The seconds after which it may try again, if the window is full.
    pub fn enter(self: &Arc<Window>) -> Result<Pass, u32> {
        self.offered.fetch_add(1, Relaxed);
        if self.unfinished.fetch_add(1, Relaxed) >= self.most.load(Relaxed) {
            self.unfinished.fetch_sub(1, Relaxed);
            self.refused.fetch_add(1, Relaxed);
            return Err(self.retry_after_s.load(Relaxed));
        }
        Ok(Pass(Arc::clone(self)))
    }

    /// How many may be unfinished; `None` for no limit. Whoever is refused is told `retry_after_s`.
    pub fn limit(&self, most: Option<u32>, retry_after_s: u32) {
        self.most.store(most.unwrap_or(u32::MAX), Relaxed);
        self.retry_after_s.store(retry_after_s, Relaxed);
    }

    /// The limit in force.
    pub fn most(&self) -> Option<u32> {
        Some(self.most.load(Relaxed)).filter(|most| *most < u32::MAX)
    }

    /// What was counted.
    pub fn counts(&self) -> Counts {
        Counts {
            // the end before the beginning
            finished: self.finished.load(Relaxed),
            refused: self.refused.load(Relaxed),
            offered: self.offered.load(Relaxed),
            unfinished: self.unfinished.load(Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_comes_back_when_its_pass_is_dropped() {
        let window = Arc::<Window>::default();
        window.limit(Some(2), 7);
        let one = window.enter().unwrap();
        let two = window.enter().unwrap();
        assert_eq!(window.enter().unwrap_err(), 7);
        drop(one);
        let three = window.enter().unwrap();
        assert_eq!(window.enter().unwrap_err(), 7);
        drop((two, three));
        let counts = Counts { offered: 5, refused: 2, finished: 3, unfinished: 0 };
        assert_eq!(window.counts(), counts);
    }

    #[test]
    fn there_is_no_limit_unless_one_is_set() {
        let window = Arc::<Window>::default();
        let passes: Vec<_> = (0..1000).map(|_| window.enter().unwrap()).collect();
        assert_eq!((window.most(), window.counts().unfinished), (None, 1000));
        drop(passes);
        assert_eq!(window.counts().unfinished, 0);
    }
}
