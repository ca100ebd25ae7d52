//! The other way to attach, for kernels without links at TC (before Linux 6.6): filters at clsact, which do
//! not go with the process.
//!
//! Two things see to it that nothing is left of a process that was killed. What the filter runs only calls
//! the program that judges, by a map that the kernel empties when no process holds it any more: so nothing is
//! judged from that moment on, whoever else was killed. And a guard, a process of its own, then takes the
//! filters away ([`guard`]). If it was killed, too, the next gate does.
//!
//! A gate has a number, which stands in the handle of its filters and in the name of a socket. The guard and
//! the gate hold that socket; its other end, which only the gate holds, tells the guard when to begin.

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

/// Before filters of others, who mostly number theirs from 49152 downwards if they do not say a number.
const PRIORITY: u32 = 5;

/// Of filters that are ours, with the number of the gate.
const HANDLE: u32 = 0xf0b0_0000;

/// So many gates of this kind fit into a network namespace.
const NUMBERS: u32 = 16;

/// The index that a loopback has.
pub(crate) const LOOPBACK: u32 = 1;

/// Before the number, in the name of the socket.
const NAME: &str = "forebay-gate-";

/// How long a guard may take to end.
const PATIENCE_MS: u32 = 5000;

/// The filters of one gate, and who takes them away.
#[derive(Debug)]
pub(crate) struct Filters {
    number: u32,
    guard: FilterGuard,
    /// The guard begins when this is closed.
    line: Option<UnixStream>,
    /// Nobody else takes the number while somebody holds this.
    named: UnixStream,
}

/// The process that takes filters away.
#[derive(Debug)]
enum FilterGuard {
    /// Was started here.
    Own(Child),
    /// Was started by a process before, and has this number.
    Handed(u32),
}

/// Filters that go to another process, with who takes them away.
#[derive(Debug)]
pub struct HandedFilters {
    /// Of the gate, in the handles of its filters.
    pub number: u32,
    /// The process that guards.
    pub guard: u32,
    /// What the guard waits for the end of.
    pub line: OwnedFd,
    /// What has the name of the number.
    pub named: OwnedFd,
}

/// A program on an interface. It goes when this is dropped.
#[derive(Debug)]
pub(crate) struct Filter {
    interface: u32,
    number: u32,
}

impl Filters {
    /// Takes a number, has `guard` watch from now on, and removes what nobody watched.
    ///
    /// # Errors
    /// That all numbers are taken, or what the system says.
    pub(crate) fn begin(guard: &mut Command) -> io::Result<Filters> {
        let mut first = None;
        for number in 0..NUMBERS {
            if let Some(ends) = take(number)? {
                remove_everywhere(number);
                // others are free again, for servers that start now
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

    /// Those of a process before.
    pub(crate) fn handed(HandedFilters { number, guard, line, named }: HandedFilters) -> Filters {
        Filters {
            number,
            guard: FilterGuard::Handed(guard),
            line: Some(line.into()),
            named: named.into(),
        }
    }

    /// For the process that takes the place of this one.
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

    /// Another process has them, and the guard watches that.
    pub(crate) fn leave(&mut self) {
        self.line = None;
        self.guard = FilterGuard::Handed(self.guard.number());
    }

    /// Takes the filters of this gate's number from all interfaces but these.
    pub(crate) fn remove_but(&self, held: &[u32]) {
        let others = interfaces::all().into_iter().filter(|one| !held.contains(one));
        for interface in others.filter(|one| program_of(*one, self.number).is_some()) {
            remove(interface, self.number);
        }
    }

    /// Puts a program into the place of the one on an interface.
    ///
    /// # Errors
    /// What the kernel says.
    pub(crate) fn replace(&self, program: BorrowedFd<'_>, interface: u32) -> io::Result<()> {
        attach(program, interface, self.number)
    }

    /// Attaches a program to an interface.
    ///
    /// # Errors
    /// What the kernel says.
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

    /// The process that guards.
    #[cfg(test)]
    pub(crate) fn guard(&self) -> u32 {
        self.guard.number()
    }
}

/// The guard has nothing to do any more but to end.
impl Drop for Filters {
    fn drop(&mut self) {
        // of a guard that another process has started nothing more is to be done
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
        // it is stopped, or the machine is
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

    /// Whether it has ended, and how, if that can be told.
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
    /// Stays in its place, which another process keeps.
    pub(crate) fn leave(self) {
        std::mem::forget(self);
    }

    /// Whether it is in its place: others may remove filters.
    pub(crate) fn is_there(&self) -> bool {
        program_of(self.interface, self.number).is_some()
    }
}

impl Drop for Filter {
    fn drop(&mut self) {
        remove(self.interface, self.number);
    }
}

/// What a guard does: waits until the gate that has started it is gone, in whatever way, and takes its
/// filters away. Standard input is as the gate has given it.
///
/// # Errors
/// That it was not started by a gate.
pub fn guard() -> io::Result<()> {
    let mut line = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let number = number_of(&line)?;
    // interfaces without filters of ours are not worth a word
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

/// Two ends of a line, of which the second has the name of the number; `None` if somebody has that.
fn take(number: u32) -> io::Result<Option<(UnixStream, UnixStream)>> {
    let (line, named) = UnixStream::pair()?;
    // SAFETY: all bytes zero are an address.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let name = format!("{NAME}{number}");
    // behind a zero: the network namespace has it, and no directory
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
        // somebody's, or ours of before
        Err(error) if error.raw_os_error() == Some(libc::EEXIST) => {}
        made => made?,
    }
    let mut options = options(number);
    options.prog_fd = program.as_raw_fd();
    // nobody else has our handle
    options.flags = sys::BPF_TC_F_REPLACE;
    // SAFETY: both are as large as they say, and the program is open.
    done(unsafe { sys::bpf_tc_attach(&raw const hook, &raw mut options) })
}

/// Attaches a program to the loopback of a network namespace that is gone afterwards. Without the right to have
/// one nothing is tried.
///
/// # Errors
/// What the kernel says, which may lack the modules.
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

/// Takes the filter with this number from an interface, if it is there. The qdisc stays: others may have come
/// to use it.
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
