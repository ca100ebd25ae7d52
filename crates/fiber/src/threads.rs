//! Several scheduler threads.

use crate::scheduler::join::{Fiber, Packet};
use crate::scheduler::remote::{Remote, SchedulerMessage};
use crate::scheduler::{Options, Scheduler};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;

/// Threads with a scheduler each. A fiber stays on the thread it was given to.
///
/// Dropping this waits until all fibers have ended.
pub struct Schedulers {
    remotes: Vec<Arc<Remote>>,
    threads: Vec<JoinHandle<()>>,
    next: AtomicUsize,
}

impl Schedulers {
    /// Starts `count` threads, at least one.
    ///
    /// # Errors
    /// Lack of threads or descriptors.
    pub fn start(count: usize, options: Options) -> io::Result<Schedulers> {
        let mut all =
            Schedulers { remotes: Vec::new(), threads: Vec::new(), next: AtomicUsize::new(0) };
        for number in 0..count.max(1) {
            let (tell, told) = mpsc::channel();
            let run = move || {
                let scheduler = Scheduler::new(options);
                // the descriptors must exist before any caller relies on the scheduler
                let ready = scheduler.descriptor().map(|_| scheduler.remote());
                let goes_on = ready.is_ok();
                let _ = tell.send(ready);
                if goes_on {
                    let _ = scheduler.run_until_closed();
                }
            };
            let thread = std::thread::Builder::new().name(format!("fibers-{number}")).spawn(run)?;
            all.threads.push(thread);
            all.remotes.push(told.recv().map_err(|_| io::ErrorKind::Other)??);
        }
        Ok(all)
    }

    /// The number of threads.
    pub fn count(&self) -> usize {
        self.threads.len()
    }

    /// Makes a fiber on the next thread in turn.
    pub fn spawn<T: Send + 'static>(&self, f: impl FnOnce() -> T + Send + 'static) -> Fiber<T> {
        self.spawn_on(self.next.fetch_add(1, Ordering::Relaxed), f)
    }

    /// Makes a fiber on the thread `index`, modulo their number. If there is no memory for it, its
    /// result is [`JoinError::Dropped`](crate::JoinError::Dropped).
    pub fn spawn_on<T: Send + 'static>(
        &self,
        index: usize,
        f: impl FnOnce() -> T + Send + 'static,
    ) -> Fiber<T> {
        let remote = &self.remotes[index % self.remotes.len()];
        let packet = Packet::new();
        let fiber = Fiber::new(Arc::clone(&packet), Arc::clone(remote));
        remote.post(SchedulerMessage::Call(Box::new(move |core| {
            // without memory the promise is dropped, which reports that
            if let Ok(entry) = core.create_joined(&packet, f) {
                core.make_ready(entry);
            }
        })));
        fiber
    }
}

impl Drop for Schedulers {
    fn drop(&mut self) {
        for remote in &self.remotes {
            remote.post(SchedulerMessage::Call(Box::new(|core| core.closing.set(true))));
        }
        for thread in self.threads.drain(..) {
            // the panic of a fiber ends with the fiber
            let _ = thread.join();
        }
    }
}
