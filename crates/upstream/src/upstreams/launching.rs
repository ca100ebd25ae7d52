//! Connections to programs that the launcher starts. A connection is there at once: it is one end of
//! a socket pair, and the launcher gets the other. What the launcher's socket has no room for, after
//! some hundreds, waits here. So `in_flight` and the queue of the route limit the number of requests,
//! and no buffer of the kernel does.

use forebay_sys::launch::MessageSocket;
use forebay_sys::lend;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

/// The programs' ends of connections that are on their way to the launcher.
#[derive(Debug)]
pub(crate) struct LaunchQueue {
    launcher: Arc<MessageSocket>,
    state: Mutex<LaunchesWaiting>,
}

#[derive(Debug, Default)]
struct LaunchesWaiting {
    /// The numbers of routes, and the programs' ends, in order.
    ends: VecDeque<(u64, OwnedFd)>,
    /// Whether a thread passes them on, as the launcher takes them.
    has_thread: bool,
}

impl LaunchQueue {
    /// A queue for this launcher.
    pub(crate) fn new(launcher: &Arc<MessageSocket>) -> Arc<LaunchQueue> {
        Arc::new(LaunchQueue { launcher: Arc::clone(launcher), state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, LaunchesWaiting> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a connection to a program of this route, and returns our end.
    ///
    /// # Errors
    /// There are no more descriptors or threads; or the launcher has ended, and no other process
    /// answers.
    pub(crate) fn connect(self: &Arc<Self>, route: u64) -> io::Result<OwnedFd> {
        let (own, its) = lend::pair()?;
        let mut state = self.state();
        if !state.has_thread {
            match self.launcher.pass(&route.to_le_bytes(), its.as_fd()) {
                Ok(()) => return Ok(own),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let all = Arc::clone(self);
                    let thread = thread::Builder::new().name("launches".to_owned());
                    thread.spawn(move || all.run())?;
                    state.has_thread = true;
                }
                Err(error) => return Err(refused(error)),
            }
        }
        state.ends.push_back((route, its));
        Ok(own)
    }

    /// The thread's loop, until nothing waits.
    fn run(&self) {
        loop {
            let mut state = self.state();
            let Some((route, its)) = state.ends.pop_front() else {
                state.has_thread = false;
                return;
            };
            drop(state);
            // if the launcher has ended, the program's end is closed here, which the request notices
            let _ = self.launcher.pass_in_time(&route.to_le_bytes(), its.as_fd());
        }
    }
}

/// The error for a launcher that has ended: it looks like an application that does not listen.
fn refused(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => {
            io::ErrorKind::ConnectionRefused.into()
        }
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_launcher_that_is_late_gets_all_in_their_order() {
        const ALL: u64 = 1000;
        let (here, launcher) = MessageSocket::pair().unwrap();
        let queue = LaunchQueue::new(&Arc::new(here));
        let mut own: Vec<_> = (0..ALL).map(|route| queue.connect(route).unwrap()).collect();
        for route in 0..ALL {
            let (message, its) = launcher.receive_passed(64).unwrap().unwrap();
            assert_eq!(message, route.to_le_bytes());
            UnixStream::from(its.unwrap()).write_all(&[7]).unwrap();
        }
        let mut last = UnixStream::from(own.pop().unwrap());
        let mut byte = [0];
        last.set_nonblocking(false).unwrap();
        last.read_exact(&mut byte).unwrap();
        assert_eq!(byte, [7]);
    }

    #[test]
    fn requests_see_that_a_launcher_has_ended() {
        let (here, launcher) = MessageSocket::pair().unwrap();
        let queue = LaunchQueue::new(&Arc::new(here));
        let own: Vec<_> = (0..1000).map(|route| queue.connect(route).unwrap()).collect();
        drop(launcher);
        for one in own {
            let mut one = UnixStream::from(one);
            one.set_nonblocking(false).unwrap();
            // no process has the other end
            assert_eq!(one.read(&mut [0; 1]).unwrap_or(0), 0);
        }
        let error = queue.connect(1).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }
}
