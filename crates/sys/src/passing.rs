//! Listening sockets for a process that is started: it finds them as it finds those of a service
//! manager ([`inherited`](crate::inherited)), and ends when this process does.

use crate::broker::CONNECTOR;
use crate::inherited::{FIRST, SUPERVISOR};
use crate::line;
use crate::stderr;
use rustix::fs::{self, Mode, OFlags};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Pid, Signal, set_parent_process_death_signal};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, parent_id};
use std::path::Path;
use std::process::{Child, Command};

/// The first of the arguments of a program.
const NAME: &str = "forebay";

/// The variables for descriptors that are no listening sockets.
const NAMES: [&str; 3] = [CONNECTOR, line::GATE, line::FIREWALL];
const MOST_NAMED: usize = NAMES.len();

/// A program that can be started whatever has become of its file since.
#[derive(Debug)]
pub struct Program(OwnedFd);

impl Program {
    /// The program in this file.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn open(path: &Path) -> io::Result<Program> {
        Ok(Program(fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?))
    }
}

/// Sockets that are passed on.
#[derive(Debug)]
pub struct PassedSockets {
    /// Duplicates, whose numbers are none of those that the new process will have.
    raised: Vec<OwnedFd>,
    /// The variables in which the process finds the numbers of the last ones, which are no
    /// listening sockets.
    named: Vec<&'static str>,
}

impl PassedSockets {
    /// The sockets that a process will have.
    ///
    /// # Errors
    /// Lack of descriptors.
    pub fn new(sockets: &[impl AsFd]) -> io::Result<PassedSockets> {
        // the new numbers are below this one; the last of them are for descriptors that have a name
        let least = FIRST + (sockets.len() + MOST_NAMED) as i32;
        let raised = sockets.iter().map(|socket| fcntl_dupfd_cloexec(socket, least));
        Ok(PassedSockets { raised: raised.collect::<Result<_, _>>()?, named: Vec::new() })
    }

    /// Adds this end of a [pair](crate::broker::pair), by which the process asks for connections.
    ///
    /// # Errors
    /// Lack of descriptors.
    pub fn with_connector(self, asks: &OwnedFd) -> io::Result<PassedSockets> {
        self.with_named(CONNECTOR, asks)
    }

    /// Adds this end of a [line](crate::line::pair) to the process that starts it, by one of the
    /// names there.
    ///
    /// # Errors
    /// Lack of descriptors.
    pub fn with_line(self, name: &'static str, end: &OwnedFd) -> io::Result<PassedSockets> {
        self.with_named(name, end)
    }

    fn with_named(mut self, name: &'static str, socket: &OwnedFd) -> io::Result<PassedSockets> {
        let listening = self.raised.len() - self.named.len();
        let least = FIRST + (listening + MOST_NAMED) as i32;
        self.raised.push(fcntl_dupfd_cloexec(socket, least)?);
        self.named.push(name);
        Ok(self)
    }

    /// Starts a program that has the sockets, with the additional `arguments`. It gets SIGTERM when
    /// the calling thread ends, but no signals of a terminal or of this process's group. It reports
    /// that it is ready at the datagram socket `notify`, as it would to a service manager
    /// (sd_notify(3)).
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn spawn(
        self,
        program: &Program,
        arguments: impl FnOnce(&mut Command),
        notify: &Path,
    ) -> io::Result<Child> {
        let PassedSockets { raised, named } = self;
        let listening = raised.len() - named.len();
        // the new process has the program under this number until it becomes the program
        let raised_program = fcntl_dupfd_cloexec(&program.0, FIRST + raised.len() as i32)?;
        let mut command = Command::new(format!("/proc/self/fd/{}", raised_program.as_raw_fd()));
        command.arg0(NAME).process_group(0).stderr(stderr::of_children());
        arguments(&mut command);
        for manager in ["LISTEN_PID", "LISTEN_FDNAMES", "WATCHDOG_PID", "WATCHDOG_USEC"] {
            command.env_remove(manager);
        }
        command.env("NOTIFY_SOCKET", notify);
        command.env("LISTEN_FDS", listening.to_string());
        for name in NAMES {
            command.env_remove(name);
        }
        for (name, number) in named.iter().zip(FIRST as usize + listening..) {
            command.env(name, number.to_string());
        }
        command.env(SUPERVISOR, std::process::id().to_string());
        let own = std::process::id();
        let prepare = move || {
            set_parent_process_death_signal(Some(Signal::TERM))?;
            if parent_id() != own {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            // these signals wait until the program has handlers; without any they would end it
            change_mask(libc::SIG_BLOCK)?;
            for (socket, number) in raised.iter().zip(FIRST..) {
                // SAFETY: `socket` is open, because `raised` owns it. The descriptor that has the other
                // number belongs to the new process only, which uses none of its own before it becomes
                // the program.
                if unsafe { libc::dup2(socket.as_raw_fd(), number) } < 0 {
                    return Err(io::Error::last_os_error());
                }
            }
            // what this process was started with by mistake is not for the other; kernels before
            // Linux 5.11 do not have the call
            let first = FIRST as libc::c_uint + raised.len() as libc::c_uint;
            let flag = libc::CLOSE_RANGE_CLOEXEC;
            // SAFETY: it changes a flag of descriptors in the new process only, which become
            // invalid when it becomes the program, as all are meant to that are not passed.
            unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, flag) };
            Ok(())
        };
        // SAFETY: between fork and exec it makes system calls only; it neither allocates nor locks.
        unsafe { command.pre_exec(prepare) };
        command.spawn()
    }
}

/// Signals that wait while a started process begins.
const WAITING: [libc::c_int; 3] = [libc::SIGHUP, libc::SIGUSR1, libc::SIGUSR2];

/// Lets signals arrive that came while this process began. Must be called when it has handlers,
/// before there are threads.
///
/// # Errors
/// None that the kernel is known to return.
pub fn take_signals() -> io::Result<()> {
    change_mask(libc::SIG_UNBLOCK)
}

fn change_mask(how: libc::c_int) -> io::Result<()> {
    // SAFETY: a set of signals is made of numbers, and all of it is written before it is read; no
    // memory of others is touched. It neither allocates nor locks.
    let result = unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for signal in WAITING {
            libc::sigaddset(&mut set, signal);
        }
        libc::pthread_sigmask(how, &set, std::ptr::null_mut())
    };
    if result == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(result)) }
}

/// Has the kernel end a process that was started with sockets when the process that started it
/// ends. Must be called again after a change of user, which clears the setting.
///
/// # Errors
/// The process that started this one has ended already.
pub fn end_with_supervisor() -> io::Result<()> {
    let supervisor = std::env::var(SUPERVISOR).ok().and_then(|number| number.parse().ok());
    let Some(supervisor): Option<u32> = supervisor else { return Ok(()) };
    set_parent_process_death_signal(Some(Signal::TERM))?;
    if parent_id() == supervisor { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
}

/// Sends a signal to a child. A child that has ended and was not waited for takes it, too.
pub fn signal(child: &Child, signal: i32) {
    let (Ok(number), Some(signal)) = (i32::try_from(child.id()), Signal::from_named_raw(signal))
    else {
        return;
    };
    if let Some(pid) = Pid::from_raw(number) {
        // the child may just have ended
        let _ = rustix::process::kill_process(pid, signal);
    }
}
