//! Lingering: the end of a connection whose client may still send. If it were closed at once, the
//! kernel would answer what comes with a reset, which takes the last answer from the client (RFC
//! 9112 §9.6). So writing is shut down, and what comes is read and dropped until the client ends,
//! has been silent for 5 s, or 30 s are over: the times of nginx (`lingering_timeout`,
//! `lingering_time`). Many clients send all of a body before they read, so there is no bound on
//! bytes.
//!
//! Nothing is left of such a connection but its socket. One thread of each engine has them all, so
//! no such connection keeps a loop, or a thread that another connection waits for. The thread
//! begins with the first of them. When as many linger as may, the one that has lingered longest is
//! closed.

use forebay_sys::clock;
use forebay_sys::epoll::{Epoll, Events};
use forebay_sys::lend;
use forebay_sys::socket::{self, Received};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// The time in milliseconds after which a client that is silent, and takes nothing of what it was
/// sent, is known to have no more to send.
const SILENCE_MS: u64 = 5_000;
/// The longest time that a connection lingers, in milliseconds.
const MOST_MS: u64 = 30_000;
/// The interval at which the thread looks at the clock, in milliseconds.
const LOOK_MS: u64 = 500;
/// The time without lingering connections after which the thread ends, in milliseconds.
const REST_MS: u64 = 10_000;
/// The bytes of one connection that are read and dropped before it is the turn of the others.
const TURN_BYTES: usize = 256 * 1024;
/// The connections that are looked at in a turn.
const EVENTS: usize = 64;

/// The connections of an engine that linger.
#[derive(Debug)]
pub(crate) struct Lingering(Arc<LingerThread>);

#[derive(Debug)]
struct LingerThread {
    epoll: Epoll,
    state: Mutex<LingeringState>,
    none_left: Condvar,
}

#[derive(Debug, Default)]
struct LingeringState {
    /// The lingering connections, in the order in which they began.
    sockets: BTreeMap<u64, Linger>,
    begun: u64,
    has_thread: bool,
    is_stopped: bool,
}

/// A connection that lingers.
#[derive(Debug)]
struct Linger {
    /// The socket; the thread may be reading from it when it is closed for another.
    socket: Arc<OwnedFd>,
    /// The time when it ends if its client is silent, in milliseconds of the monotonic clock.
    until_ms: u64,
    /// The time when it ends in any case.
    most_ms: u64,
    /// The bytes that the client had still to take at the last look.
    unacknowledged: u64,
}

impl Lingering {
    /// The state in which no connection lingers.
    ///
    /// # Errors
    /// Lack of descriptors.
    pub(crate) fn new() -> io::Result<Lingering> {
        let (epoll, state) = (Epoll::new()?, Mutex::default());
        Ok(Lingering(Arc::new(LingerThread { epoll, state, none_left: Condvar::new() })))
    }

    /// Has this connection linger, as one of at most `most`. Writing has been shut down.
    pub(crate) fn add(&self, socket: OwnedFd, most: usize) {
        let now_ms = clock::coarse_ms();
        let linger = Linger {
            until_ms: now_ms + SILENCE_MS,
            most_ms: now_ms + MOST_MS,
            unacknowledged: unacknowledged(&socket),
            socket: Arc::new(socket),
        };
        let socket = Arc::clone(&linger.socket);
        let mut state = self.0.state();
        if most == 0 || state.is_stopped || !(state.has_thread || self.0.begin_thread()) {
            return;
        }
        state.has_thread = true;
        let token = state.begun;
        state.begun += 1;
        // dropping closes the socket, which is done without the lock
        let longest = (state.sockets.len() >= most).then(|| state.sockets.pop_first());
        state.sockets.insert(token, linger);
        // under the lock, as the connection may be closed for another one as soon as that is free
        let is_known = self.0.epoll.add_reader(&*socket, token).is_ok();
        drop(state);
        if let Some((_, longest)) = longest.flatten() {
            self.0.end(longest);
        }
        if !is_known {
            self.0.remove(token);
        }
    }

    /// Closes all that linger; none will any more.
    pub(crate) fn stop(&self) {
        let mut state = self.0.state();
        state.is_stopped = true;
        let all = std::mem::take(&mut state.sockets);
        self.0.none_left.notify_all();
        drop(state);
        all.into_values().for_each(|linger| self.0.end(linger));
    }

    /// Waits until no connection lingers.
    pub(crate) fn wait(&self) {
        let lingers = |state: &mut LingeringState| !state.sockets.is_empty();
        drop(self.0.none_left.wait_while(self.0.state(), lingers));
    }
}

impl LingerThread {
    fn state(&self) -> MutexGuard<'_, LingeringState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins the thread. Returns whether there is one now.
    fn begin_thread(self: &Arc<Self>) -> bool {
        let shared = Arc::clone(self);
        let thread = std::thread::Builder::new().name("linger".to_owned());
        thread.spawn(move || shared.run()).is_ok()
    }

    /// Runs the thread.
    fn run(&self) {
        let mut events = Events::with_capacity(EVENTS);
        let mut buffer = vec![0; TURN_BYTES];
        let (mut looks_ms, mut ends_ms) = (0, clock::coarse_ms() + REST_MS);
        loop {
            // epoll_wait does not fail here
            if self.epoll.wait(&mut events, LOOK_MS).is_err() {
                return self.leave();
            }
            let now_ms = clock::coarse_ms();
            for ready in events.iter() {
                self.drop_input(ready.token, &mut buffer, now_ms);
            }
            if now_ms < looks_ms {
                continue;
            }
            looks_ms = now_ms + LOOK_MS;
            if self.close_late(now_ms) {
                ends_ms = now_ms + REST_MS;
            }
            if now_ms >= ends_ms && self.rests() {
                return;
            }
        }
    }

    /// Reads and drops some of what has arrived.
    fn drop_input(&self, token: u64, buffer: &mut [u8], now_ms: u64) {
        let socket = self.state().sockets.get(&token).map(|linger| Arc::clone(&linger.socket));
        let Some(socket) = socket else { return };
        match socket::receive(socket.as_fd(), buffer) {
            Received::Bytes(_) => {
                if let Some(linger) = self.state().sockets.get_mut(&token) {
                    linger.until_ms = linger.most_ms.min(now_ms + SILENCE_MS);
                }
            }
            Received::Blocked => {}
            Received::Ended | Received::Broken => self.remove(token),
        }
    }

    /// Closes the connections whose time is over. Returns whether there are others.
    fn close_late(&self, now_ms: u64) -> bool {
        let mut state = self.state();
        let mut late = Vec::new();
        for (token, linger) in &mut state.sockets {
            if linger.until_ms <= now_ms && !linger.goes_on(now_ms) {
                late.push(*token);
            }
        }
        let late: Vec<_> = late.iter().filter_map(|token| state.sockets.remove(token)).collect();
        self.tell(&state);
        let is_left = !state.sockets.is_empty();
        drop(state);
        late.into_iter().for_each(|linger| self.end(linger));
        is_left
    }

    /// Closes a connection.
    fn remove(&self, token: u64) {
        let mut state = self.state();
        let closed = state.sockets.remove(&token);
        self.tell(&state);
        drop(state);
        if let Some(closed) = closed {
            self.end(closed);
        }
    }

    /// Ends a connection that is in no list any more. Another process may have its socket open:
    /// then a close alone would neither end the connection nor have the kernel's epoll forget it.
    fn end(&self, linger: Linger) {
        let _ = self.epoll.remove(&*linger.socket);
        lend::shut_down(linger.socket.as_fd());
    }

    fn tell(&self, state: &LingeringState) {
        if state.sockets.is_empty() {
            self.none_left.notify_all();
        }
    }

    /// Whether the thread ends, because no connection lingers.
    fn rests(&self) -> bool {
        let mut state = self.state();
        state.has_thread = !state.sockets.is_empty();
        !state.has_thread
    }

    /// Gives up everything, because the thread cannot go on.
    fn leave(&self) {
        let mut state = self.state();
        state.has_thread = false;
        let all = std::mem::take(&mut state.sockets);
        self.tell(&state);
        drop(state);
        all.into_values().for_each(|linger| self.end(linger));
    }
}

impl Linger {
    /// Decides about a connection whose client has been silent. Returns whether the client has
    /// taken some of what it was sent meanwhile: with HTTP/2 it goes on sending as it reads.
    fn goes_on(&mut self, now_ms: u64) -> bool {
        let unacknowledged = unacknowledged(&self.socket);
        let has_taken = unacknowledged < self.unacknowledged;
        self.unacknowledged = unacknowledged;
        self.until_ms = self.most_ms.min(now_ms + SILENCE_MS);
        has_taken && now_ms < self.most_ms
    }
}

fn unacknowledged(socket: &OwnedFd) -> u64 {
    socket::unacknowledged(socket.as_fd()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{Shutdown, TcpListener, TcpStream};

    fn pair() -> (TcpStream, OwnedFd) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        server.write_all(b"no").unwrap();
        server.shutdown(Shutdown::Write).unwrap();
        server.set_nonblocking(true).unwrap();
        (client, server.into())
    }

    #[test]
    fn a_client_that_sends_much_before_it_reads_gets_its_answer() {
        let lingering = Lingering::new().unwrap();
        let (mut client, server) = pair();
        lingering.add(server, 1);
        for _ in 0..100 {
            client.write_all(&[0; 256 * 1024]).unwrap();
        }
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, "no");
        drop(client);
        lingering.wait();
    }

    #[test]
    fn one_that_another_process_has_open_is_forgotten() {
        let lingering = Lingering::new().unwrap();
        let (mut client, server) = pair();
        let copy = server.try_clone().unwrap();
        lingering.add(server, 1);
        client.write_all(b"more").unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        lingering.wait();
        // the end of the other side can still be received there, and would make the thread spin
        let mut events = Events::with_capacity(1);
        let is_forgotten = (0..300).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            lingering.0.epoll.wait(&mut events, 0).unwrap();
            events.is_empty()
        });
        assert!(is_forgotten);
        drop(copy);
    }

    #[test]
    fn the_one_that_has_lingered_for_longest_makes_room() {
        let lingering = Lingering::new().unwrap();
        let mut clients = Vec::new();
        for _ in 0..3 {
            let (client, server) = pair();
            lingering.add(server, 2);
            clients.push(client);
        }
        assert_eq!(lingering.0.state().sockets.keys().copied().collect::<Vec<_>>(), [1, 2]);
        // the kernel reports when the connection is closed
        let is_closed = |mut client: TcpStream| {
            (0..3000).any(|_| {
                std::thread::sleep(std::time::Duration::from_millis(10));
                client.write_all(b"more").is_err()
            })
        };
        assert!(is_closed(clients.remove(0)));
        lingering.stop();
        lingering.wait();
        assert!(clients.into_iter().all(is_closed));
        let (client, server) = pair();
        lingering.add(server, 2);
        assert!(is_closed(client), "nothing lingers after an order to stop");
    }
}
