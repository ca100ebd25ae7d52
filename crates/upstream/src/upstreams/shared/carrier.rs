//! The carrier: the thread that reads connections that requests share, and sends what their sockets
//! did not take at once. It starts with the first connection.

use super::SharedConnections;
use forebay_sys::clock;
use forebay_sys::epoll::{Bell, Edges, Epoll, Events};
use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;

/// How often deadlines are checked, in milliseconds.
const LOOK_MS: u64 = 500;

/// How often deadlines are checked while there is no connection, in milliseconds.
const IDLE_MS: u64 = 3_600_000;

/// The token of the bell, which is no connection's number.
const BELL: u64 = 0;

/// How many turns a connection with more to do gets before others have theirs.
const TURNS: usize = 4;

/// All connections, by number.
type Carried = HashMap<u64, Arc<SharedConnections>>;

/// What the thread shares with others.
struct Carrier {
    epoll: Epoll,
    bell: Bell,
    carried: Mutex<Carried>,
}

static CARRIER: OnceLock<Option<Arc<Carrier>>> = OnceLock::new();

/// Whether there is a carrier. The thread starts now, if it has not yet.
pub(super) fn is_there() -> bool {
    CARRIER.get_or_init(Carrier::start).is_some()
}

/// Has the carrier read this connection, which belongs to `connections`.
///
/// # Errors
/// There is no thread, or the socket cannot be watched.
pub(super) fn watch(
    socket: impl AsFd,
    number: u64,
    connections: &Arc<SharedConnections>,
) -> io::Result<()> {
    let carrier = CARRIER.get_or_init(Carrier::start).as_ref();
    let carrier = carrier.ok_or(io::ErrorKind::OutOfMemory)?;
    let mut carried = carrier.carried();
    // an event that is there already is reported, and then waits for the caller's lock
    carrier.epoll.add_edges(socket, number, Edges { read: true, write: true })?;
    let is_first = carried.is_empty();
    carried.insert(number, Arc::clone(connections));
    drop(carried);
    if is_first {
        carrier.bell.ring();
    }
    Ok(())
}

/// Forgets these connections, which are closed.
pub(super) fn forget(numbers: &[u64]) {
    if let (false, Some(Some(carrier))) = (numbers.is_empty(), CARRIER.get()) {
        let mut carried = carrier.carried();
        numbers.iter().for_each(|number| _ = carried.remove(number));
    }
}

impl Carrier {
    /// Starts the thread; `None` if that fails.
    fn start() -> Option<Arc<Carrier>> {
        let (epoll, bell) = (Epoll::new().ok()?, Bell::new().ok()?);
        epoll.add_reader(&bell, BELL).ok()?;
        let carrier = Arc::new(Carrier { epoll, bell, carried: Mutex::default() });
        let own = Arc::clone(&carrier);
        thread::Builder::new().name("http2-carrier".to_owned()).spawn(move || own.run()).ok()?;
        Some(carrier)
    }

    fn carried(&self) -> MutexGuard<'_, Carried> {
        self.carried.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut events = Events::with_capacity(64);
        let (mut again, mut looked_ms) = (Vec::new(), 0);
        loop {
            let timeout_ms = match (again.is_empty(), self.carried().is_empty()) {
                (false, _) => 0,
                (true, true) => IDLE_MS,
                (true, false) => LOOK_MS,
            };
            if self.epoll.wait(&mut events, timeout_ms).is_err() {
                return;
            }
            let now_ms = clock::coarse_ms();
            let mut ready = std::mem::take(&mut again);
            for event in events.iter() {
                match event.token {
                    BELL => self.bell.silence(),
                    number if ready.contains(&number) => {}
                    number => ready.push(number),
                }
            }
            again.extend(ready.into_iter().filter(|number| self.turn(*number, now_ms)));
            if now_ms >= looked_ms + LOOK_MS {
                looked_ms = now_ms;
                self.look(now_ms);
            }
        }
    }

    /// Goes on with a connection. Returns whether it has more to do at once.
    fn turn(&self, number: u64, now_ms: u64) -> bool {
        let connections = self.carried().get(&number).map(Arc::clone);
        let Some(connections) = connections else { return false };
        // the lock is released between two turns, so that others may have it
        (0..TURNS).all(|_| connections.with(|set| set.turn(number, now_ms)))
    }

    /// Handles the deadlines of all connections.
    fn look(&self, now_ms: u64) {
        let mut all: Vec<_> = self.carried().values().map(Arc::clone).collect();
        all.sort_by_key(|one| Arc::as_ptr(one).addr());
        all.dedup_by_key(|one| Arc::as_ptr(one).addr());
        all.iter().for_each(|connections| connections.with(|set| set.look(now_ms)));
    }
}
