//! Two ways to the state: it belongs to the main thread, to which others send closures, or it is behind a lock.

use crate::panel::LampPanel;
use forebay::MainHandle;
use std::cell::RefCell;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};

/// A way to the state.
pub trait PanelAccess: Clone + Send + Sync + 'static {
    /// Calls `f` with the state from a handler, and waits for its result.
    ///
    /// # Errors
    /// The main thread makes no more calls, or the request is given up.
    fn with<T: Send + 'static>(
        &self,
        f: impl FnOnce(&mut LampPanel) -> T + Send + 'static,
    ) -> Result<T, Box<dyn Error>>;

    /// Calls `f` with the state on the main thread.
    fn here<T>(&self, f: impl FnOnce(&mut LampPanel) -> T) -> T;
}

thread_local! {
    /// The state of the main thread. Another thread would find a panel of its own that no window shows.
    static PANEL: RefCell<LampPanel> = RefCell::default();
}

/// The main thread has the state: no lock, and closures may touch the window, too.
#[derive(Clone)]
pub struct OnMainThread(MainHandle);

impl OnMainThread {
    /// Access by this handle of the main thread.
    pub fn new(handle: MainHandle) -> OnMainThread {
        OnMainThread(handle)
    }
}

impl PanelAccess for OnMainThread {
    fn with<T: Send + 'static>(
        &self,
        f: impl FnOnce(&mut LampPanel) -> T + Send + 'static,
    ) -> Result<T, Box<dyn Error>> {
        Ok(self.0.call(|| PANEL.with_borrow_mut(f))?)
    }

    fn here<T>(&self, f: impl FnOnce(&mut LampPanel) -> T) -> T {
        PANEL.with_borrow_mut(f)
    }
}

/// The state is behind a lock, which is never held for long.
#[derive(Clone, Default)]
pub struct UnderLock(Arc<Mutex<LampPanel>>);

impl PanelAccess for UnderLock {
    fn with<T: Send + 'static>(
        &self,
        f: impl FnOnce(&mut LampPanel) -> T + Send + 'static,
    ) -> Result<T, Box<dyn Error>> {
        Ok(self.here(f))
    }

    fn here<T>(&self, f: impl FnOnce(&mut LampPanel) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
