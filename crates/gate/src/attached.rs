//! The interfaces that the program is attached to, and the listeners that it judges SYNs for.

use crate::error::GateError;
use crate::filters::Filter;
use crate::interfaces::{self, InterfaceAddress};
use crate::kernel;
use crate::others::Others;
use crate::types::{Plain, RawListener, RawSockets, mapped};
use crate::{Gate, lock};
use libbpf_rs::{MapCore, MapFlags};
use std::collections::{HashMap, HashSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};

/// The interfaces that the program is attached to, and the addresses that it knows.
#[derive(Default)]
pub(crate) struct Attached {
    listeners: HashSet<SocketAddr>,
    /// The other servers that are protected.
    pub(crate) others: Others,
    /// The ports of listeners and of other servers.
    ports: HashSet<u16>,
    locals: HashSet<IpAddr>,
    /// The link or filter on each interface, by index.
    links: HashMap<u32, Attachment>,
}

/// The link or filter that keeps the program on an interface.
enum Attachment {
    Link(OwnedFd),
    Filter(Filter),
}

impl Attachment {
    /// Whether the program is still attached: nothing else removes a link, but a filter may be removed.
    fn is_there(&self) -> bool {
        match self {
            Attachment::Link(_) => true,
            Attachment::Filter(filter) => filter.is_there(),
        }
    }
}

impl Gate {
    /// Judges SYNs for these listeners, bound addresses with their ports, and no others, on every
    /// interface that may receive any. The server calls this again from time to time, since interfaces
    /// and addresses come and go.
    ///
    /// # Errors
    /// The first error. The other interfaces are attached to nevertheless.
    pub fn attach(&self, listeners: &[SocketAddr]) -> Result<(), GateError> {
        let held = self.find(listeners)?;
        let mut attached = lock(&self.attached);
        let wanted: HashMap<u32, &str> = held
            .iter()
            .filter(|held| {
                // packets for other servers may come by any interface
                !attached.others.is_empty()
                    || listeners.iter().any(|listener| may_get(held, listener.ip()))
            })
            .map(|held| (held.index, held.name.as_str()))
            .collect();
        attached.links.retain(|index, hold| wanted.contains_key(index) && hold.is_there());
        let mut first = self.filters.as_ref().map_or(Ok(()), |filters| lock(filters).check());
        for (index, name) in wanted {
            if attached.links.contains_key(&index) {
                continue;
            }
            match self.hold(index) {
                Ok(hold) => drop(attached.links.insert(index, hold)),
                // the interface has gone meanwhile
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {}
                Err(error) => {
                    let interface = name.to_owned();
                    let by_filter = self.has_filters();
                    first = first.and(Err(GateError::Attach { interface, by_filter, error }));
                }
            }
        }
        first
    }

    /// Does all that [`attach`](Gate::attach) does except attaching to interfaces: the previous gate goes on
    /// judging.
    ///
    /// # Errors
    /// The first error.
    pub fn prepare(&self, listeners: &[SocketAddr]) -> Result<(), GateError> {
        self.find(listeners).map(drop)
    }

    /// Gives the program the listeners and this machine's addresses; returns the interfaces with their
    /// addresses.
    fn find(&self, listeners: &[SocketAddr]) -> Result<Vec<InterfaceAddress>, GateError> {
        let mut attached = lock(&self.attached);
        self.set_listeners(&mut attached, listeners.iter().copied().collect())?;
        self.keep_up_steering();
        let held = interfaces::held()?;
        self.set_locals(&mut attached, held.iter().map(|held| held.address).collect())?;
        Ok(held)
    }

    fn hold(&self, interface: u32) -> io::Result<Attachment> {
        if let Some(link) = lock(&self.handed).remove(&interface) {
            self.kernel.replace(link.as_fd())?;
            return Ok(Attachment::Link(link));
        }
        match &self.filters {
            None => self.kernel.attach(interface).map(Attachment::Link),
            Some(filters) => {
                let filter = lock(filters).attach(self.kernel.caller(), interface);
                filter.map(Attachment::Filter)
            }
        }
    }

    /// Detaches the program from all interfaces.
    pub fn detach(&self) {
        lock(&self.attached).links.clear();
    }

    /// Puts this gate's program back on every interface, after another process was to take over and did not.
    ///
    /// # Errors
    /// The kernel's error for one interface; on the others the program is back.
    pub fn retake(&self) -> io::Result<()> {
        let attached = lock(&self.attached);
        let retaken = attached.links.iter().map(|(interface, hold)| match (hold, &self.filters) {
            (Attachment::Link(link), _) => self.kernel.replace(link.as_fd()),
            (Attachment::Filter(_), Some(filters)) => {
                lock(filters).replace(self.kernel.caller(), *interface)
            }
            (Attachment::Filter(_), None) => Ok(()),
        });
        retaken.fold(Ok(()), Result::and)
    }

    /// Leaves judging to another process: links and filters stay on their interfaces.
    pub fn let_go(&self) {
        for (_, hold) in lock(&self.attached).links.drain() {
            if let Attachment::Filter(filter) = hold {
                filter.leave();
            }
        }
        if let Some(filters) = &self.filters {
            lock(filters).leave();
        }
    }

    /// The links that keep the program on its interfaces, by the interface's index.
    pub(crate) fn links(&self) -> io::Result<Vec<(u32, OwnedFd)>> {
        let attached = lock(&self.attached);
        let links = attached.links.iter().filter_map(|(interface, hold)| match hold {
            Attachment::Link(link) => Some((interface, link)),
            Attachment::Filter(_) => None,
        });
        links.map(|(interface, link)| Ok((*interface, link.try_clone()?))).collect()
    }

    fn set_listeners(
        &self,
        attached: &mut Attached,
        listeners: HashSet<SocketAddr>,
    ) -> Result<(), GateError> {
        let (map, none) = (&self.kernel.listeners, RawSockets::default());
        for gone in attached.listeners.difference(&listeners) {
            let _ = map.delete(listening(*gone).bytes());
        }
        for new in listeners.difference(&attached.listeners) {
            map.update(listening(*new).bytes(), none.bytes(), MapFlags::ANY)
                .map_err(kernel::plain)?;
        }
        if attached.listeners != listeners {
            self.forget_sockets();
        }
        attached.listeners = listeners;
        let own = attached.listeners.iter().map(SocketAddr::port);
        let ports = own.chain(attached.others.ports()).collect();
        self.set_ports(&mut attached.ports, ports)
    }

    /// Has the program look at segments for these ports only.
    fn set_ports(&self, known: &mut HashSet<u16>, ports: HashSet<u16>) -> Result<(), GateError> {
        for word in known.union(&ports).map(|port| port / 64).collect::<HashSet<u16>>() {
            let in_word = ports.iter().filter(|port| **port / 64 == word);
            let bits = in_word.fold(0_u64, |bits, port| bits | 1 << (port % 64));
            let key = u32::from(word).to_ne_bytes();
            let map = &self.kernel.ports;
            map.update(&key, &bits.to_ne_bytes(), MapFlags::ANY).map_err(kernel::plain)?;
        }
        *known = ports;
        Ok(())
    }

    fn set_locals(
        &self,
        attached: &mut Attached,
        locals: HashSet<IpAddr>,
    ) -> Result<(), GateError> {
        let map = &self.kernel.locals;
        for gone in attached.locals.difference(&locals) {
            let _ = map.delete(&mapped(*gone));
        }
        for new in locals.difference(&attached.locals) {
            let one = 1_u32.to_ne_bytes();
            map.update(&mapped(*new), &one, MapFlags::ANY).map_err(kernel::plain)?;
        }
        attached.locals = locals;
        Ok(())
    }

    /// The interfaces that the program is attached to, by index.
    pub fn interfaces(&self) -> Vec<u32> {
        lock(&self.attached).links.keys().copied().collect()
    }
}

/// Whether packets for `wanted` may come by this interface. Those for an address of this machine may come by
/// any but the loopback, whatever interface holds it.
fn may_get(held: &InterfaceAddress, wanted: IpAddr) -> bool {
    wanted.is_unspecified() || wanted.is_loopback() == held.address.is_loopback()
}

pub(crate) fn listening(address: SocketAddr) -> RawListener {
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 } as u16;
    let bytes = match address.ip() {
        ip if ip.is_unspecified() => [0; 16],
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    };
    RawListener { address: bytes, port: address.port(), family }
}
