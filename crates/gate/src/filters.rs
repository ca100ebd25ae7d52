//! The other way to attach, for kernels without links at TC (before Linux 6.6): filters at clsact, which
//! outlive the process.
//!
//! Two mechanisms make sure that nothing is left of a process that was killed. The program in the filter only
//! tail-calls the one that judges, through a map that the kernel empties when no process holds it any more:
//! from that moment on nothing is judged, even if the guard was killed, too. And a guard, a process of its
//! own, then removes the filters ([`guard`]). If the guard was killed, the next gate removes them.
//!
//! A gate has a number, which is in the handle of its filters and in the name of a socket. The guard and
//! the gate hold that socket. Only the gate holds the other end; when it closes, the guard begins to remove.

use crate::error::GateError;
use crate::interfaces;
use libbpf_rs::libbpf_sys as sys;
use std::fs;
use std::io::{self, Read};
use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The priority of our filters, before those of others: the kernel numbers filters from 49152 downwards where
/// none is given.
const PRIORITY: u32 = 5;

/// The handle of our filters; the number of the gate is added.
const HANDLE: u32 = 0xf0b0_0000;

/// The most gates with filters in one network namespace.
const NUMBERS: u32 = 16;

/// The index of the loopback interface.
pub(crate) const LOOPBACK: u32 = 1;

/// The name of the socket, before the number.
const NAME: &str = "forebay-gate-";

/// The time within which a guard has to end.
const PATIENCE_MS: u32 = 5000;

/// The filters of one gate, and the guard that removes them.
#[derive(Debug)]
pub(crate) struct Filters {
    number: u32,
    guard: FilterGuard,
    /// The gate's end of the socket pair: the guard begins when it is closed.
    line: Option<UnixStream>,
    /// The guard's end, whose name has the number: no other gate gets the number while it is open.
    named: UnixStream,
}

/// The process that removes filters.
#[derive(Debug)]
enum FilterGuard {
    /// A child of this process.
    Own(Child),
    /// A process with this id, which an earlier process has started.
    Handed(u32),
}

/// Filters that go to another process, with their guard.
#[derive(Debug)]
pub struct HandedFilters {
    /// The number of the gate, in the handles of its filters.
    pub number: u32,
    /// The process id of the guard.
    pub guard: u32,
    /// The end of the socket pair whose closing the guard waits for.
    pub line: OwnedFd,
    /// The end whose name has the number.
    pub named: OwnedFd,
}

/// A program on an interface, which is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Filter {
    interface: u32,
    number: u32,
}

impl Filters {
    /// Takes a number, starts `guard`, and removes the filters of gates whose guard is gone.
    ///
    /// # Errors
    /// All numbers are taken, or an error of the system.
    pub(crate) fn begin(guard: &mut Command) -> io::Result<Filters> {
        let mut first = None;
        for number in 0..NUMBERS {
            if let Some(ends) = take(number)? {
                remove_everywhere(number);
                // only the first number is kept: the others are free again, for servers that start now
                first.get_or_insert((number, ends));
            }
        }
        let Some((number, (line, named))) = first else {
            return Err(io::Error::other(format!("{NUMBERS} servers of this network have one")));
        };
        let input = OwnedFd::from(named.try_clone()?);
        let guard = guard.stdin(Stdio::from(input)).stdout(Stdio::null()).spawn()?;
        Ok(Filters { number, guard: FilterGuard::Own(guard), line: Some(line), named })
    }

    /// Takes over the filters of an earlier process.
    pub(crate) fn handed(HandedFilters { number, guard, line, named }: HandedFilters) -> Filters {
        Filters {
            number,
            guard: FilterGuard::Handed(guard),
            line: Some(line.into()),
            named: named.into(),
        }
    }

    /// Duplicates the descriptors for the process that takes the place of this one.
    ///
    /// # Errors
    /// Lack of descriptors.
    pub(crate) fn hand(&self) -> io::Result<HandedFilters> {
        let line = self.line.as_ref().ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(HandedFilters {
            number: self.number,
            guard: self.guard.number(),
            line: line.try_clone()?.into(),
            named: self.named.try_clone()?.into(),
        })
    }

    /// Leaves the filters to another process, which the guard watches from now on.
    pub(crate) fn leave(&mut self) {
        self.line = None;
        self.guard = FilterGuard::Handed(self.guard.number());
    }

    /// Removes the filters of this gate's number from all interfaces except these.
    pub(crate) fn remove_but(&self, held: &[u32]) {
        let others = interfaces::all().into_iter().filter(|one| !held.contains(one));
        for interface in others.filter(|one| program_of(*one, self.number).is_some()) {
            remove(interface, self.number);
        }
    }

    /// Replaces the program on an interface.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub(crate) fn replace(&self, program: BorrowedFd<'_>, interface: u32) -> io::Result<()> {
        attach(program, interface, self.number)
    }

    /// Attaches a program to an interface.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub(crate) fn attach(&self, program: BorrowedFd<'_>, interface: u32) -> io::Result<Filter> {
        attach(program, interface, self.number)?;
        Ok(Filter { interface, number: self.number })
    }

    /// Whether the guard still watches.
    ///
    /// # Errors
    /// [`GateError::Guard`] if it does not.
    pub(crate) fn check(&mut self) -> Result<(), GateError> {
        match self.guard.has_ended() {
            Ok(None) => Ok(()),
            Ok(Some(how)) => Err(GateError::Guard(io::Error::other(format!(
                "it has ended{how}; if this server is killed, filters that let everything pass \
                 stay until the next one starts"
            )))),
            Err(error) => Err(GateError::Guard(error)),
        }
    }

    /// The process id of the guard.
    #[cfg(test)]
    pub(crate) fn guard(&self) -> u32 {
        self.guard.number()
    }
}

/// Closes the line and waits for the guard to end.
impl Drop for Filters {
    fn drop(&mut self) {
        // a guard that another process has started is not a child to wait for
        let was_ours = self.line.take().is_some();
        let FilterGuard::Own(guard) = &mut self.guard else { return };
        if !was_ours {
            return;
        }
        for _ in 0..PATIENCE_MS {
            if !matches!(guard.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        // the guard is stopped (SIGSTOP), or the machine was
        let _ = guard.kill();
        let _ = guard.wait();
    }
}

impl FilterGuard {
    fn number(&self) -> u32 {
        match self {
            FilterGuard::Own(child) => child.id(),
            FilterGuard::Handed(number) => *number,
        }
    }

    /// Whether the guard has ended, with its exit status where that is known.
    fn has_ended(&mut self) -> io::Result<Option<String>> {
        match self {
            FilterGuard::Own(child) => Ok(child.try_wait()?.map(|status| format!(" ({status})"))),
            FilterGuard::Handed(number) => {
                let status = fs::read_to_string(format!("/proc/{number}/status"));
                let is_there = status.is_ok_and(|status| !status.contains("State:\tZ"));
                Ok((!is_there).then(String::new))
            }
        }
    }
}

impl Filter {
    /// Leaves the filter on its interface, for another process.
    pub(crate) fn leave(self) {
        std::mem::forget(self);
    }

    /// Whether the filter is still there: any program with the rights can remove filters.
    pub(crate) fn is_there(&self) -> bool {
        program_of(self.interface, self.number).is_some()
    }
}

impl Drop for Filter {
    fn drop(&mut self) {
        remove(self.interface, self.number);
    }
}

/// The work of a guard process: waits until the gate that started it is gone, in whatever way, and removes
/// its filters. Standard input is the socket that the gate has passed.
///
/// # Errors
/// This process was not started by a gate.
pub fn guard() -> io::Result<()> {
    let mut line = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let number = number_of(&line)?;
    // libbpf would report each interface that has no filter of ours
    libbpf_rs::set_print(None);
    loop {
        match line.read(&mut [0; 64]) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
    }
    remove_everywhere(number);
    Ok(())
}

fn number_of(line: &UnixStream) -> io::Result<u32> {
    let address = line.local_addr().ok();
    let name = address.as_ref().and_then(SocketAddr::as_abstract_name);
    let name = name.and_then(|name| std::str::from_utf8(name).ok());
    let number = name.and_then(|name| name.strip_prefix(NAME)?.parse().ok());
    number.ok_or_else(|| io::Error::other("only a server starts this"))
}

/// A socket pair, of which the second end is bound to the name of the number; `None` if that name is taken.
fn take(number: u32) -> io::Result<Option<(UnixStream, UnixStream)>> {
    let (line, named) = UnixStream::pair()?;
    // SAFETY: all bytes zero are an address.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let name = format!("{NAME}{number}");
    // an abstract address (it begins with a zero byte) belongs to the network namespace, as filters do
    for (to, from) in address.sun_path[1..].iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    let bytes = offset_of!(libc::sockaddr_un, sun_path) + 1 + name.len();
    // SAFETY: the descriptor is open, and so many bytes of the address are there.
    let result = unsafe {
        libc::bind(named.as_raw_fd(), (&raw const address).cast(), bytes as libc::socklen_t)
    };
    match (result, io::Error::last_os_error()) {
        (0, _) => Ok(Some((line, named))),
        (_, error) if error.kind() == io::ErrorKind::AddrInUse => Ok(None),
        (_, error) => Err(error),
    }
}

fn hook(interface: u32) -> sys::bpf_tc_hook {
    sys::bpf_tc_hook {
        sz: size_of::<sys::bpf_tc_hook>() as sys::size_t,
        ifindex: interface.cast_signed(),
        attach_point: sys::BPF_TC_INGRESS,
        ..sys::bpf_tc_hook::default()
    }
}

fn options(number: u32) -> sys::bpf_tc_opts {
    sys::bpf_tc_opts {
        sz: size_of::<sys::bpf_tc_opts>() as sys::size_t,
        handle: HANDLE | number,
        priority: PRIORITY,
        ..sys::bpf_tc_opts::default()
    }
}

fn done(result: i32) -> io::Result<()> {
    if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(()) }
}

fn attach(program: BorrowedFd<'_>, interface: u32, number: u32) -> io::Result<()> {
    let mut hook = hook(interface);
    // SAFETY: the hook is as large as it says.
    match done(unsafe { sys::bpf_tc_hook_create(&raw mut hook) }) {
        // another program has made the qdisc, or an earlier gate
        Err(error) if error.raw_os_error() == Some(libc::EEXIST) => {}
        made => made?,
    }
    let mut options = options(number);
    options.prog_fd = program.as_raw_fd();
    // a filter with our handle is ours, so it may be replaced
    options.flags = sys::BPF_TC_F_REPLACE;
    // SAFETY: both are as large as they say, and the program is open.
    done(unsafe { sys::bpf_tc_attach(&raw const hook, &raw mut options) })
}

/// Attaches a program to the loopback of a new network namespace, which is gone afterwards. Does nothing
/// without the right to create one.
///
/// # Errors
/// Errors of the kernel, which may lack the modules.
pub(crate) fn try_attach(program: BorrowedFd<'_>) -> io::Result<()> {
    let tried = std::thread::scope(|scope| {
        let apart = scope.spawn(|| {
            // SAFETY: only this thread gets another network.
            match unsafe { libc::unshare(libc::CLONE_NEWNET) } {
                0 => attach(program, LOOPBACK, 0),
                _ => Ok(()),
            }
        });
        apart.join()
    });
    tried.unwrap_or_else(|_| Err(io::Error::other("the attempt has failed")))
}

/// The program of the filter with this number on an interface.
pub(crate) fn program_of(interface: u32, number: u32) -> Option<u32> {
    let (hook, mut options) = (hook(interface), options(number));
    // SAFETY: both are as large as they say.
    let found = done(unsafe { sys::bpf_tc_query(&raw const hook, &raw mut options) });
    found.is_ok().then_some(options.prog_id)
}

/// Removes the filter with this number from an interface, if it is there. The qdisc stays: other programs may
/// use it by now.
fn remove(interface: u32, number: u32) {
    let (hook, options) = (hook(interface), options(number));
    // SAFETY: both are as large as they say.
    unsafe { sys::bpf_tc_detach(&raw const hook, &raw const options) };
}

fn remove_everywhere(number: u32) {
    for interface in interfaces::all() {
        if program_of(interface, number).is_some() {
            remove(interface, number);
        }
    }
}
