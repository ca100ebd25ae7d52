//! Clients that the machine's firewall is to drop, on their way to the thread that has it changed.
//!
//! In: clients that a limit has had ignored, from every loop. Out: the same, in a queue of bounded length.
//! No loop waits: a client that finds the queue full is counted, and comes again.

use crossbeam_channel::{Receiver, Sender, bounded};
use std::net::IpAddr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::thread::Thread;

/// So many clients wait at most to be looked at.
const QUEUE: usize = 16_384;

/// A client to be dropped.
#[derive(Debug)]
pub struct DroppedClient {
    /// Its address.
    pub address: IpAddr,
    /// Until when, on the clock that [`monotonic_ns`](forebay_sys::clock::monotonic_ns) reads.
    pub until_ns: u64,
}

/// What loops leave clients in.
#[derive(Debug)]
pub struct DroppedClients {
    clients: Sender<DroppedClient>,
    /// The thread looks at the queue without being woken.
    is_awake: AtomicBool,
    thread: OnceLock<Thread>,
    /// Clients that found the queue full.
    lost: AtomicU64,
}

impl DroppedClients {
    /// An empty queue, and its other end.
    pub fn new() -> (DroppedClients, Receiver<DroppedClient>) {
        let (clients, gathered) = bounded(QUEUE);
        let queue = DroppedClients {
            clients,
            is_awake: AtomicBool::new(false),
            thread: OnceLock::new(),
            lost: AtomicU64::new(0),
        };
        (queue, gathered)
    }

    /// Has a client dropped until then, if there is room. It takes no lock, and does not wait.
    #[inline]
    pub fn drop_client(&self, address: IpAddr, until_ns: u64) {
        if self.clients.try_send(DroppedClient { address, until_ns }).is_err() {
            self.lost.fetch_add(1, Relaxed);
        }
        // after what was sent: either this sees that the thread is about to sleep, or that sees the client
        if !self.is_awake.load(SeqCst) {
            self.wake();
        }
    }

    /// From now on this thread looks at the queue, and is woken.
    pub fn wake_from_now_on(&self, thread: Thread) {
        let _ = self.thread.set(thread);
        self.wake();
    }

    /// Wakes the thread that looks, if it sleeps.
    #[cold]
    pub fn wake(&self) {
        if !self.is_awake.swap(true, SeqCst)
            && let Some(thread) = self.thread.get()
        {
            thread.unpark();
        }
    }

    /// Whether the thread looks without being woken. Before it sleeps it says that it does not, and then looks
    /// once more.
    pub fn set_awake(&self, is_awake: bool) {
        self.is_awake.store(is_awake, SeqCst);
    }

    /// Clients that found the queue full.
    pub fn lost(&self) -> u64 {
        self.lost.load(Relaxed)
    }
}
