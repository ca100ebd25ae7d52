//! Other servers that are protected: some on this machine, some on other machines that this one forwards
//! packets to.
//!
//! The rules about addresses judge the SYNs for both. For a server on this machine a gate that
//! [steers](Gate::load_steering) also completes handshakes, judges first requests, and has each connection
//! made on that server's own listening socket when it is the turn of its class. Rules that
//! only user space can apply have no effect for other servers.

use crate::error::GateError;
use crate::kernel;
use crate::types::{
    COOKIE_LIFE, FORWARDED, LEAVING, OF_OTHERS, OTHERS, PROTECTED, Plain, RawListener, RawSockets,
    STEERED, mapped,
};
use crate::{Gate, lock};
use libbpf_rs::{MapCore, MapFlags};
use std::net::IpAddr;
use std::time::Instant;

/// Another server, which is protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OtherServer {
    /// The machine that packets for the server are forwarded to; `None` if it is this one.
    pub forwarded_to: Option<IpAddr>,
    /// The server's port.
    pub port: u16,
    /// The number of waiting connections in the server's accept queue from which on only the first class gets
    /// further ones; at least 1.
    pub queue: u32,
    /// Whether the server speaks first on a connection. Then only SYNs are judged: a handshake that waits for
    /// the client's first data would never be completed.
    pub speaks_first: bool,
}

/// The other servers whose connections the kernel judges.
#[derive(Clone, Debug, Default)]
pub(crate) struct Others {
    /// The protected servers; the index is the server's place in `turns`.
    protected: Vec<OtherServer>,
    /// Servers that are not protected any more, since that time: clients may still have a SYN-ACK of the
    /// gate, and have sent no data yet.
    leaving: Vec<(OtherServer, Instant)>,
}

impl Others {
    /// Whether there are no other servers.
    pub(crate) fn is_empty(&self) -> bool {
        self.protected.is_empty() && self.leaving.is_empty()
    }

    /// The ports of all other servers.
    pub(crate) fn ports(&self) -> impl Iterator<Item = u16> {
        let leaving = self.leaving.iter().map(|(other, _)| other);
        self.protected.iter().chain(leaving).map(|other| other.port)
    }
}

impl OtherServer {
    fn key(&self) -> RawListener {
        let (address, family) = match self.forwarded_to {
            None => ([0; 16], OF_OTHERS),
            Some(machine) => (mapped(machine), FORWARDED),
        };
        RawListener { address, port: self.port, family }
    }
}

impl Gate {
    /// Protects these servers, and no others, from the next call of [`attach`](Gate::attach) on.
    ///
    /// # Errors
    /// Errors of the kernel, or [`GateError::TooMany`].
    pub fn protect(&self, others: &[OtherServer]) -> Result<(), GateError> {
        if others.len() > OTHERS {
            return Err(GateError::TooMany);
        }
        let mut attached = lock(&self.attached);
        let (map, now) = (&self.kernel.listeners, Instant::now());
        let is_there = |known: &OtherServer| others.iter().any(|other| other.key() == known.key());
        // a copy, so that an error on the way loses no server
        let before = attached.others.clone();
        let gone = before.protected.into_iter().filter(|known| !is_there(known));
        let gone = gone.map(|other| (other, now));
        let mut leaving: Vec<_> = before.leaving.into_iter().chain(gone).collect();
        leaving.retain(|(other, since)| {
            let is_there = is_there(other);
            let has_left = !self.is_steered(other) || now.duration_since(*since) > COOKIE_LIFE;
            if has_left && !is_there {
                let _ = map.delete(other.key().bytes());
            }
            !has_left && !is_there
        });
        for (other, _) in &leaving {
            let known = RawSockets { marks: PROTECTED | LEAVING, ..RawSockets::default() };
            map.update(other.key().bytes(), known.bytes(), MapFlags::ANY).map_err(kernel::plain)?;
        }
        for (place, other) in (0..).zip(others) {
            let marks = if self.is_steered(other) { PROTECTED | STEERED } else { PROTECTED };
            let queue = other.queue.max(1);
            let known = RawSockets { marks, queue, place, ..RawSockets::default() };
            map.update(other.key().bytes(), known.bytes(), MapFlags::ANY).map_err(kernel::plain)?;
        }
        let forwards = others.iter().any(|other| other.forwarded_to.is_some());
        self.control(kernel::CONTROL_FORWARDS, u32::from(forwards));
        let protects = others.iter().any(|other| self.is_steered(other));
        self.control(kernel::CONTROL_WATCHES, u32::from(protects));
        self.protects(protects);
        attached.others = Others { protected: others.to_vec(), leaving };
        Ok(())
    }

    /// Whether handshakes with this server are completed here.
    fn is_steered(&self, other: &OtherServer) -> bool {
        self.steers() && other.forwarded_to.is_none() && !other.speaks_first
    }
}
