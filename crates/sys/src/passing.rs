//! Listening sockets for a process that is started: it finds them as it finds those of a service manager
//! ([`inherited`](crate::inherited)), and ends when this process does.

use crate::broker::CONNECTOR;
use crate::inherited::FIRST;
use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Pid, Signal, set_parent_process_death_signal};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};

/// Says which processes sockets are passed to: the children of this one. Its own number, as `LISTEN_PID`
/// has it, is not known before it is started.
pub(crate) const SUPERVISOR: &str = "FOREBAY_SUPERVISOR";

/// Sockets that are passed on.
#[derive(Debug)]
pub struct PassedSockets {
    /// Duplicates, whose numbers are none of those that they are to have.
    raised: Vec<OwnedFd>,
    /// The last of them is no listening socket.
    has_connector: bool,
}

impl PassedSockets {
    /// These sockets.
    ///
    /// # Errors
    /// Lack of descriptors.
    pub fn new(sockets: &[OwnedFd]) -> io::Result<PassedSockets> {
        // there are fewer than there may be descriptors; the last may be for a connector
        let least = FIRST + sockets.len() as i32 + 1;
        let raised = sockets.iter().map(|socket| fcntl_dupfd_cloexec(socket, least));
        Ok(PassedSockets { raised: raised.collect::<Result<_, _>>()?, has_connector: false })
    }

    /// And this end of a [pair](crate::broker::pair), by which connections are asked for.
    ///
    /// # Errors
    /// Lack of descriptors.
    pub fn with_connector(mut self, asks: &OwnedFd) -> io::Result<PassedSockets> {
        let least = FIRST + self.raised.len() as i32 + 1;
        self.raised.push(fcntl_dupfd_cloexec(asks, least)?);
        self.has_connector = true;
        Ok(self)
    }

    /// Starts a program that has them. It is told to end (SIGTERM) when the calling thread does. It says at
    /// the datagram socket `notify` that it is ready, as it would to a service manager (sd_notify(3)).
    ///
    /// # Errors
    /// What the kernel says.
    pub fn spawn(self, command: &mut Command, notify: &Path) -> io::Result<Child> {
        let PassedSockets { raised, has_connector } = self;
        let listening = raised.len() - usize::from(has_connector);
        for manager in ["LISTEN_PID", "LISTEN_FDNAMES", "WATCHDOG_PID", "WATCHDOG_USEC"] {
            command.env_remove(manager);
        }
        command.env("NOTIFY_SOCKET", notify);
        command.env("LISTEN_FDS", listening.to_string());
        command.env_remove(CONNECTOR);
        if has_connector {
            command.env(CONNECTOR, (FIRST as usize + listening).to_string());
        }
        command.env(SUPERVISOR, std::process::id().to_string());
        let prepare = move || {
            set_parent_process_death_signal(Some(Signal::TERM))?;
            for (socket, number) in raised.iter().zip(FIRST..) {
                // SAFETY: `socket` is open, because `raised` owns it. The descriptor that has the other
                // number belongs to the new process only, which uses none of its own before it becomes
                // the program.
                if unsafe { libc::dup2(socket.as_raw_fd(), number) } < 0 {
                    return Err(io::Error::last_os_error());
                }
            }
            // what this process was started with by mistake is not for the other; older kernels than
            // Linux 5.11 do not know it
            let first = FIRST as libc::c_uint + raised.len() as libc::c_uint;
            let flag = libc::CLOSE_RANGE_CLOEXEC;
            // SAFETY: it changes a flag of descriptors in the new process only, which become invalid when it
            // becomes the program, as all are meant to that are not passed.
            unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, flag) };
            Ok(())
        };
        // SAFETY: between fork and exec it makes system calls only; it neither allocates nor locks.
        unsafe { command.pre_exec(prepare) };
        command.spawn()
    }
}

/// Sends a signal to a child. One that has ended and was not waited for yet takes it, too.
pub fn signal(child: &Child, signal: i32) {
    let (Ok(number), Some(signal)) = (i32::try_from(child.id()), Signal::from_named_raw(signal))
    else {
        return;
    };
    if let Some(pid) = Pid::from_raw(number) {
        // it may just have ended
        let _ = rustix::process::kill_process(pid, signal);
    }
}
