//! Clients to be dropped by the machine's firewall, on their way to the thread that has it changed.
//!
//! In: clients that are ignored because of a limit, from every loop. Out: the same, in a queue of bounded
//! length. No loop waits: a client that finds the queue full is counted, and reported again when it comes
//! again.

use crossbeam_channel::{Receiver, Sender, bounded};
use std::net::IpAddr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::thread::Thread;

/// The length of the queue.
const QUEUE: usize = 16_384;

/// A client to be dropped by the firewall.
#[derive(Debug)]
pub struct DroppedClient {
    /// The client's address.
    pub address: IpAddr,
    /// The end of the time for which the client is dropped, on the clock that
    /// [`monotonic_ns`](forebay_sys::clock::monotonic_ns) reads.
    pub until_ns: u64,
}

/// The loops' end of the queue.
#[derive(Debug)]
pub struct DroppedClients {
    clients: Sender<DroppedClient>,
    /// Whether the thread looks at the queue without being woken.
    is_awake: AtomicBool,
    thread: OnceLock<Thread>,
    /// The number of clients that found the queue full.
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

    /// Has a client dropped until then, if there is room. The call takes no lock, and does not wait.
    #[inline]
    pub fn drop_client(&self, address: IpAddr, until_ns: u64) {
        if self.clients.try_send(DroppedClient { address, until_ns }).is_err() {
            self.lost.fetch_add(1, Relaxed);
        }
        // loaded after sending: either this load sees that the thread is about to sleep, or the thread
        // sees the client
        if !self.is_awake.load(SeqCst) {
            self.wake();
        }
    }

    /// Names the thread that looks at the queue from now on, and wakes it.
    pub fn wake_from_now_on(&self, thread: Thread) {
        let _ = self.thread.set(thread);
        self.wake();
    }

    /// Wakes the thread if it sleeps.
    #[cold]
    pub fn wake(&self) {
        if !self.is_awake.swap(true, SeqCst)
            && let Some(thread) = self.thread.get()
        {
            thread.unpark();
        }
    }

    /// Sets whether the thread looks without being woken. Before the thread sleeps, it clears this, and
    /// then looks once more.
    pub fn set_awake(&self, is_awake: bool) {
        self.is_awake.store(is_awake, SeqCst);
    }

    /// The number of clients that found the queue full.
    pub fn lost(&self) -> u64 {
        self.lost.load(Relaxed)
    }
}
