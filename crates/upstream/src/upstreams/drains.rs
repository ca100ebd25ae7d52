//! Requests whose client has left and that an application still works on. Each keeps its place until
//! the application has finished.
//!
//! An application need not notice that a connection is closed: php-fpm checks when it writes, a
//! thread that computes never does. If the place were free at once, the application would have more
//! under way than `in_flight` allows. So only one direction of the connection is shut down. An
//! application that looks for that reads an end, stops and closes; another one answers, and closes
//! then.
//!
//! One thread, which starts with the first such request, waits for all of them, so they burden no
//! loop and no thread for requests. Each has a place, so there are never more than places, and each
//! has the time that its request would have had.

use crate::upstreams::UpstreamSlot;
use crate::upstreams::connection::UpstreamConnection;
use forebay_sys::clock;
use forebay_sys::epoll::{Bell, Edges, Epoll, Events};
use forebay_sys::socket::{self, Received};
use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;

/// How often deadlines are checked, in milliseconds.
const LOOK_MS: u64 = 500;

/// How often deadlines are checked while there is no such request, in milliseconds.
const IDLE_MS: u64 = 3_600_000;

/// The token of the bell, which is no connection's.
const BELL: u64 = 0;

/// How much is received at a time.
const RECEIVE_BYTES: usize = 16 * 1024;

/// A request that an application still works on.
#[derive(Debug)]
pub(crate) struct DrainingExchange {
    connection: UpstreamConnection,
    /// The place, which is given back when this is dropped.
    _slot: UpstreamSlot,
    /// How much more may come. After that the connection is closed, which the application notices
    /// when it writes on.
    left_bytes: usize,
    until_ms: u64,
}

/// All drained requests.
struct Drains {
    epoll: Epoll,
    bell: Bell,
    each: Mutex<DrainTable>,
}

#[derive(Default)]
struct DrainTable {
    by_token: HashMap<u64, DrainingExchange>,
    last_token: u64,
}

impl DrainingExchange {
    /// Shuts down our direction of a connection. At most `left_bytes` more are received, and until
    /// `until_ms`.
    pub(crate) fn new(
        mut connection: UpstreamConnection,
        slot: UpstreamSlot,
        left_bytes: usize,
        until_ms: u64,
    ) -> DrainingExchange {
        // an upstream that reads nothing does not notice the end, and has its full time
        let _ = connection.end_writing();
        DrainingExchange { connection, _slot: slot, left_bytes, until_ms }
    }

    /// Keeps the place until the application has finished.
    pub(crate) fn begin(mut self) {
        static ALL: OnceLock<Option<Arc<Drains>>> = OnceLock::new();
        if self.is_over() {
            return;
        }
        // without a thread the place is given back at once
        if let Some(all) = ALL.get_or_init(Drains::start) {
            all.add(self);
        }
    }

    /// Receives what there is. Returns whether the application is done, or will be when it writes.
    fn is_over(&mut self) -> bool {
        let mut dropped = [0; RECEIVE_BYTES];
        loop {
            match socket::receive(self.connection.as_fd(), &mut dropped) {
                Received::Blocked => return false,
                Received::Ended | Received::Broken => return true,
                Received::Bytes(count) => match self.left_bytes.checked_sub(count) {
                    Some(left) => self.left_bytes = left,
                    None => return true,
                },
            }
        }
    }
}

impl Drains {
    /// Starts the thread; `None` if that fails.
    fn start() -> Option<Arc<Drains>> {
        let (epoll, bell) = (Epoll::new().ok()?, Bell::new().ok()?);
        epoll.add_reader(&bell, BELL).ok()?;
        let all = Arc::new(Drains { epoll, bell, each: Mutex::default() });
        let shared = Arc::clone(&all);
        thread::Builder::new().name("drains".to_owned()).spawn(move || shared.run()).ok()?;
        Some(all)
    }

    fn each(&self) -> MutexGuard<'_, DrainTable> {
        self.each.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, drain: DrainingExchange) {
        let mut each = self.each();
        each.last_token += 1;
        let token = each.last_token;
        // an event that is there already is reported, and then waits for the lock
        let edges = Edges { read: true, write: false };
        if self.epoll.add_edges(drain.connection.as_fd(), token, edges).is_err() {
            return;
        }
        let is_first = each.by_token.is_empty();
        each.by_token.insert(token, drain);
        drop(each);
        if is_first {
            self.bell.ring();
        }
    }

    fn run(&self) {
        let mut events = Events::with_capacity(64);
        let mut is_idle = true;
        loop {
            let timeout_ms = if is_idle { IDLE_MS } else { LOOK_MS };
            if self.epoll.wait(&mut events, timeout_ms).is_err() {
                return;
            }
            let (now_ms, mut over) = (clock::coarse_ms(), Vec::new());
            let mut each = self.each();
            for ready in events.iter() {
                if ready.token == BELL {
                    self.bell.silence();
                } else if each.by_token.get_mut(&ready.token).is_some_and(DrainingExchange::is_over)
                {
                    over.extend(each.by_token.remove(&ready.token));
                }
            }
            over.extend(each.by_token.extract_if(|_, it| it.until_ms <= now_ms).map(|(_, it)| it));
            is_idle = each.by_token.is_empty();
            drop(each);
            // dropping them gives places back, which must not happen under the lock
            drop(over);
        }
    }
}
