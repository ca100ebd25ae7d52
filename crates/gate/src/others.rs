//! Servers that are protected besides our own: others on this machine, and those of other machines that this one passes
//! packets on to.
//!
//! Of both, SYNs are judged by the rules about addresses. For a server on this machine a gate that
//! [steers](Gate::load_steering) also completes handshakes, judges first requests, and has each connection made on that
//! server's own listening socket when it is the turn of its class. What the program leaves to user space, nobody judges.

use crate::error::GateError;
use crate::kernel;
use crate::types::{
    FORWARDED, OF_OTHERS, OTHERS, PROTECTED, Plain, RawListener, RawSockets, STEERED, mapped,
};
use crate::{Gate, lock};
use libbpf_rs::{MapCore, MapFlags};
use std::net::IpAddr;

/// A server that is none of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OtherServer {
    /// The machine that packets for it are passed on to; `None` if it is this one.
    pub forwarded_to: Option<IpAddr>,
    /// Its port.
    pub port: u16,
    /// So many connections may wait in its queue before one of a class below the first is made; at least 1.
    pub queue: u32,
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
    /// Protects these servers, and no others, from the next time on that it is [attached](Gate::attach).
    ///
    /// # Errors
    /// What the kernel says, or [`GateError::TooMany`].
    pub fn protect(&self, others: &[OtherServer]) -> Result<(), GateError> {
        if others.len() > OTHERS {
            return Err(GateError::TooMany);
        }
        let mut attached = lock(&self.attached);
        let map = &self.kernel.listeners;
        for gone in attached.others.iter().filter(|known| !others.contains(known)) {
            let _ = map.delete(gone.key().bytes());
        }
        for (place, other) in (0..).zip(others) {
            let marks = if self.steers() { PROTECTED | STEERED } else { PROTECTED };
            let queue = other.queue.max(1);
            let known = RawSockets { marks, queue, place, ..RawSockets::default() };
            map.update(other.key().bytes(), known.bytes(), MapFlags::ANY).map_err(kernel::plain)?;
        }
        let forwards = others.iter().any(|other| other.forwarded_to.is_some());
        self.control(kernel::CONTROL_FORWARDS, u32::from(forwards));
        self.protects(others.iter().any(|other| other.forwarded_to.is_none()));
        attached.others = others.to_vec();
        Ok(())
    }
}
