//! Handshakes without state, and connections that are made on the socket of their class.

use crate::answers::Learning;
use crate::attached::listening;
use crate::error::GateError;
use crate::kernel::{self, AnswerRoom, CONTROL_ANSWERS, CONTROL_COMPLETES, CONTROL_OFFERS, Kernel};
use crate::maps::{per_cpu, read_u64};
use crate::stack::Stack;
use crate::types::{COOKIE_LIFE, Plain, RawKey, RawSockets, SOCKETS, STEERED, UNJUDGED};
use crate::{Charge, Gate, lock};
use libbpf_rs::{MapCore, MapFlags};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;
use std::time::Instant;

/// The listening sockets of the classes of one listener.
#[derive(Debug)]
pub struct ClassSockets<'s> {
    /// The address that the listener is bound to.
    pub address: SocketAddr,
    /// Whether the listener speaks TLS. Then the class comes from the ClientHello, otherwise from the
    /// request.
    pub speaks_tls: bool,
    /// The sockets of each rank, the highest first, one for each loop. They have the same family as the
    /// listener, and no client can reach them directly. Without any, handshakes are completed, and
    /// connections are made on the public listener.
    pub sockets: Vec<Vec<BorrowedFd<'s>>>,
}

/// Address, whether TLS is spoken there, and the numbers of sockets.
type Placed = (SocketAddr, bool, Vec<Vec<u64>>);

/// The state of a gate that steers.
#[derive(Debug)]
pub(crate) struct Steering {
    stack: Stack,
    /// Whether rules give first requests different classes, or judge them.
    wants_classes: bool,
    /// The sockets in the map, by their numbers, which the kernel never reuses.
    placed: Vec<Placed>,
    /// Whether listeners have changed since sockets were placed.
    is_stale: bool,
    /// The half of the map in force, and the number of its sockets.
    half: u32,
    used: u32,
    /// The options that the stack has switched on; `None` if it accepts no SYN cookies.
    offers: Option<u32>,
    answering: Answering,
    /// Whether there are other servers on this machine for which handshakes are completed.
    protects: bool,
}

impl Steering {
    fn new(stack: Stack) -> Steering {
        Steering {
            offers: stack.offers(),
            stack,
            wants_classes: false,
            placed: Vec::new(),
            is_stale: false,
            half: 0,
            used: 0,
            answering: Answering::default(),
            protects: false,
        }
    }
}

/// Whether SYNs are answered, and whether clients may still have SYN-ACKs from here.
#[derive(Debug, Default)]
struct Answering {
    answers: bool,
    /// The last time at which SYNs were known to be answered; `None` when all cookies have expired.
    last: Option<Instant>,
}

impl Answering {
    /// Sets whether SYNs are answered from now on; returns whether handshakes must still be completed.
    fn set(&mut self, answers: bool, now: Instant) -> bool {
        // where answering ends now, SYNs were answered until now
        if answers || self.answers {
            self.last = Some(now);
        } else if self.last.is_some_and(|last| now.duration_since(last) > COOKIE_LIFE) {
            self.last = None;
        }
        self.answers = answers;
        self.last.is_some()
    }
}

impl Gate {
    /// Loads a gate that also answers SYNs itself, where a listener has [class sockets](Gate::place).
    ///
    /// # Errors
    /// [`GateError::CannotSteer`], those of [`Gate::load`], or what the kernel says.
    pub fn load_steering(charge: Charge) -> Result<Gate, GateError> {
        Gate::steering(charge, &[], false, None)
    }

    /// Loads such a gate with the maps that are `kept` from an earlier one; with `has_key` they include the
    /// key of cookies, and clients may have cookies. With `room` the gate answers requests from the cache.
    pub(crate) fn steering(
        charge: Charge,
        kept: &[(String, OwnedFd)],
        has_key: bool,
        room: Option<&AnswerRoom>,
    ) -> Result<Gate, GateError> {
        if !kernel::makes_connections() {
            let why = "the kernel makes no connections of cookies that are not its own (Linux 6.9)";
            return Err(GateError::CannotSteer(why));
        }
        let mut steering = Steering::new(Stack::open()?);
        if steering.offers.is_none() {
            return Err(GateError::CannotSteer("net.ipv4.tcp_syncookies is 0"));
        }
        // connections that had answers from the earlier gate go on, even if this one gives none
        let goes_on = kept.iter().any(|(name, _)| name == kernel::SERVED);
        let maps = room.or(goes_on.then_some(&AnswerRoom::LEAST));
        let mut gate = Gate::with(Kernel::load(true, maps, kept)?, charge)?;
        gate.control(kernel::CONTROL_SERVES, u32::from(maps.is_some()));
        if has_key {
            // clients may still have SYN-ACKs of the previous gate
            steering.answering.last = Some(Instant::now());
        } else {
            let (keys, secret) = (&gate.kernel.keys, secret()?);
            let at = 0_u32.to_ne_bytes();
            keys.update(&at, secret.bytes(), MapFlags::ANY).map_err(kernel::plain)?;
        }
        gate.steering = Some(Mutex::new(steering));
        if let Some(room) = room {
            // a random start: connections may still have numbers that another process has used
            let number = secret()?.low as u32;
            gate.learning = Some(Mutex::new(Learning::new(room, number)));
            gate.begin_answers().map_err(|error| GateError::Kernel(io::Error::other(error)))?;
        }
        Ok(gate)
    }

    /// Has connections made on these sockets, by the class of their first request, for listeners that the
    /// gate is [attached](Gate::attach) for. A connection whose class is unknown or has no socket is made on
    /// the public listener. Does nothing if the sockets have not changed.
    ///
    /// # Errors
    /// Errors of the kernel; then no class has a socket.
    pub fn place(&self, listeners: &[ClassSockets<'_>]) -> Result<(), GateError> {
        let Some(steering) = &self.steering else { return Ok(()) };
        let mut steering = lock(steering);
        let wanted = listeners.iter().map(numbers).collect::<io::Result<Vec<_>>>()?;
        if wanted == steering.placed && !steering.is_stale {
            return Ok(());
        }
        // listeners point to the new half before the old one is emptied: the program always finds sockets
        let before = std::mem::take(&mut steering.placed);
        let (half, used) = (1 - steering.half, steering.used);
        steering.used = 0;
        let placed = self.place_in(half, &mut steering.used, listeners);
        let are_placed = |address| placed.is_ok() && wanted.iter().any(|(one, ..)| *one == address);
        let addresses = before.iter().chain(&wanted).map(|(address, ..)| *address);
        for address in addresses.filter(|address| !are_placed(*address)) {
            // fails for a listener that is gone, which has no entry
            let _ = self.set_sockets(address, RawSockets::default());
        }
        for at in 0..used {
            // fails for a socket that was closed, which the kernel has removed
            let _ = self.kernel.sockets.delete(&(first_of(steering.half) + at).to_ne_bytes());
        }
        steering.half = half;
        steering.is_stale = placed.is_err();
        if placed.is_ok() {
            steering.placed = wanted;
        }
        self.switch(&mut steering);
        placed
    }

    /// Writes the sockets into a half of the map, and counts them in `used`.
    fn place_in(
        &self,
        half: u32,
        used: &mut u32,
        listeners: &[ClassSockets<'_>],
    ) -> Result<(), GateError> {
        for ClassSockets { address, speaks_tls, sockets } in listeners {
            let loops = sockets.iter().map(Vec::len).min().unwrap_or(0);
            let first = first_of(half) + *used;
            for socket in sockets.iter().flat_map(|of_rank| &of_rank[..loops]) {
                if *used == SOCKETS / 2 {
                    return Err(GateError::TooManySockets);
                }
                let (at, value) = (first_of(half) + *used, socket.as_raw_fd() as u64);
                let map = &self.kernel.sockets;
                map.update(&at.to_ne_bytes(), &value.to_ne_bytes(), MapFlags::ANY)
                    .map_err(kernel::plain)?;
                *used += 1;
            }
            let (loops, ranks) = (loops as u16, sockets.len() as u16);
            let (speaks_tls, marks) = (u32::from(*speaks_tls), STEERED);
            // a ClientHello of TLS is not a request, so there are no answers for it
            let answers = if speaks_tls == 0 { self.number_of_listener(*address) } else { 0 };
            let known = RawSockets {
                first,
                loops,
                ranks,
                speaks_tls,
                marks,
                answers,
                ..RawSockets::default()
            };
            self.set_sockets(*address, known)?;
        }
        Ok(())
    }

    fn set_sockets(&self, address: SocketAddr, sockets: RawSockets) -> Result<(), GateError> {
        let (map, key) = (&self.kernel.listeners, listening(address));
        Ok(map.update(key.bytes(), sockets.bytes(), MapFlags::EXIST).map_err(kernel::plain)?)
    }

    /// Has the sockets placed anew at the next call of [`place`](Gate::place), because listeners have
    /// changed.
    pub(crate) fn forget_sockets(&self) {
        if let Some(steering) = &self.steering {
            lock(steering).is_stale = true;
        }
    }

    /// Sets whether there are other servers on this machine for which handshakes are completed. Takes effect
    /// at the next [`keep_up_steering`](Gate::keep_up_steering).
    pub(crate) fn protects(&self, protects: bool) {
        if let Some(steering) = &self.steering {
            lock(steering).protects = protects;
        }
    }

    pub(crate) fn wants_classes(&self, wants_classes: bool) {
        if let Some(steering) = &self.steering {
            let mut steering = lock(steering);
            steering.wants_classes = wants_classes;
            self.switch(&mut steering);
        }
    }

    /// Brings the gate up to date with the switches of the stack, the expiry of cookies, and the date of
    /// error pages.
    pub(crate) fn keep_up_steering(&self) {
        if let Some(steering) = &self.steering {
            let mut steering = lock(steering);
            steering.offers = steering.stack.offers();
            self.switch(&mut steering);
        }
        // if writing fails, the pages are sent with the earlier date
        let _ = self.write_pages();
    }

    /// Switches the answering of SYNs on or off. Handshakes that have begun are completed until their cookies
    /// expire.
    fn switch(&self, steering: &mut Steering) {
        let has_any = !steering.placed.is_empty() || steering.protects;
        let answers = steering.wants_classes && has_any && steering.offers.is_some();
        let completes = steering.answering.set(answers, Instant::now());
        self.control(CONTROL_OFFERS, steering.offers.unwrap_or(0));
        self.control(CONTROL_COMPLETES, u32::from(completes));
        self.control(CONTROL_ANSWERS, u32::from(answers));
    }

    /// Whether SYNs are answered here now.
    pub fn answers(&self) -> bool {
        self.steering.as_ref().is_some_and(|steering| lock(steering).answering.answers)
    }

    /// Whether this gate can answer SYNs.
    pub fn steers(&self) -> bool {
        self.steering.is_some()
    }

    /// The numbers of first requests by rank, and of those without a known rank. Requests that the kernel has
    /// answered from the cache are not counted.
    pub fn judged(&self, ranks: usize) -> (Vec<u64>, u64) {
        let of = |rank: u32| -> u64 {
            per_cpu(&self.kernel.judged, rank).iter().filter_map(|bytes| read_u64(bytes)).sum()
        };
        ((0..ranks as u32).map(of).collect(), of(UNJUDGED))
    }
}

fn first_of(half: u32) -> u32 {
    half * (SOCKETS / 2)
}

fn secret() -> io::Result<RawKey> {
    let mut secret = RawKey::default();
    let bytes = size_of::<RawKey>();
    // SAFETY: every pattern of bytes is a value, and there are so many.
    let got = unsafe { libc::getrandom((&raw mut secret).cast(), bytes, 0) };
    match usize::try_from(got) {
        Ok(got) if got == bytes => Ok(secret),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The listener with the numbers of all sockets of its classes.
fn numbers(one: &ClassSockets<'_>) -> io::Result<Placed> {
    let mut all = Vec::with_capacity(one.sockets.len());
    for of_rank in &one.sockets {
        all.push(of_rank.iter().map(number).collect::<io::Result<Vec<u64>>>()?);
    }
    Ok((one.address, one.speaks_tls, all))
}

/// The cookie of a socket (`SO_COOKIE`), a number that no other socket gets.
fn number(socket: &BorrowedFd<'_>) -> io::Result<u64> {
    let mut number = 0_u64;
    let mut bytes = size_of::<u64>() as libc::socklen_t;
    // SAFETY: the descriptor is open, and so many bytes are writable.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_COOKIE,
            (&raw mut number).cast(),
            &raw mut bytes,
        )
    };
    if result == 0 { Ok(number) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn handshakes_are_completed_for_as_long_as_cookies_hold() {
        let begin = Instant::now();
        let at = |s| begin + Duration::from_secs(s);
        let mut answering = Answering::default();
        assert!(!answering.set(false, at(0)));
        assert!(answering.set(true, at(10)));
        // no call for an hour; but the last SYN was answered a moment ago
        assert!(answering.set(false, at(3610)));
        assert!(answering.set(false, at(3610 + 137)));
        assert!(!answering.set(false, at(3610 + 138)));
        assert!(!answering.set(false, at(3610 + 139)));
        assert!(answering.set(true, at(9000)));
    }
}
