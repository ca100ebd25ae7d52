//! The addresses of one upstream: those that its name has now, and which of them take no connections.
//!
//! A name may have addresses at which nothing listens: `localhost` is `::1` and `127.0.0.1`, and most
//! programs listen at only one of them. An address that takes no connection is avoided for a while if
//! there are others.

use crate::settings::upstream_address::UpstreamAddress;
use crate::upstreams::connection::UpstreamConnection;
use crate::upstreams::launching::LaunchQueue;
use forebay_sys::client::{self, ConnectOptions};
use forebay_sys::launch::MessageSocket;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard};

/// How long an address is avoided after it took no connection.
const SHUN_MS: u64 = 10_000;

/// The addresses of an upstream.
#[derive(Debug)]
pub(crate) struct UpstreamAddresses {
    address: UpstreamAddress,
    /// The addresses of a name, as they were last found.
    found: RwLock<Vec<FoundAddress>>,
    /// The next address to use, in turn.
    next: AtomicUsize,
    /// The name and port of the server of a service that has this place, if there is one.
    server: Mutex<Option<(Box<str>, u16)>>,
    /// The queue for the launcher, once there is one.
    launcher: OnceLock<Arc<LaunchQueue>>,
}

/// An address of a name.
#[derive(Debug)]
struct FoundAddress {
    address: SocketAddr,
    shunned_until_ms: AtomicU64,
}

impl FoundAddress {
    /// Whether the address takes connections, as far as is known, and is not in `refused`.
    fn is_other(&self, refused: &[SocketAddr], now_ms: u64) -> bool {
        now_ms >= self.shunned_until_ms.load(Ordering::Relaxed) && !refused.contains(&self.address)
    }
}

impl UpstreamAddresses {
    /// The addresses of an upstream. Those of a name are unknown before they are [looked
    /// up](UpstreamAddresses::look_up).
    pub(crate) fn new(address: UpstreamAddress) -> UpstreamAddresses {
        let (found, next) = (RwLock::default(), AtomicUsize::new(0));
        let (server, launcher) = (Mutex::new(None), OnceLock::new());
        UpstreamAddresses { address, found, next, server, launcher }
    }

    fn server(&self) -> MutexGuard<'_, Option<(Box<str>, u16)>> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the place to this server of a service, or to none. Its addresses must be [looked
    /// up](Self::look_up) then. If there is none, requests that are about to connect go to the
    /// previous server.
    pub(crate) fn lead_to(&self, server: Option<(Box<str>, u16)>) {
        if server.is_some() {
            self.found.write().unwrap_or_else(PoisonError::into_inner).clear();
        }
        *self.server() = server;
    }

    /// The server that has the place, if the upstream belongs to a service.
    pub(crate) fn leads_to(&self) -> Option<String> {
        self.server().as_ref().map(|(host, port)| format!("{host}:{port}"))
    }

    /// Has programs launched by this launcher from now on.
    pub(crate) fn launch_by(&self, launcher: &Arc<MessageSocket>) {
        if let UpstreamAddress::Launched(_) = self.address {
            self.launcher.get_or_init(|| LaunchQueue::new(launcher));
        }
    }

    /// The upstream's configured address.
    pub(crate) fn named(&self) -> &UpstreamAddress {
        &self.address
    }

    fn found(&self) -> RwLockReadGuard<'_, Vec<FoundAddress>> {
        self.found.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks a name up. A name that is not found keeps its addresses. May wait for a name service.
    pub(crate) fn look_up(&self) {
        let named = match &self.address {
            UpstreamAddress::Name { host, port } => Some((host.clone(), *port)),
            UpstreamAddress::Service(_) => self.server().clone(),
            UpstreamAddress::Socket(_)
            | UpstreamAddress::Unix(_)
            | UpstreamAddress::Launched(_) => None,
        };
        let found = named.as_ref().map(|(host, port)| (&**host, *port).to_socket_addrs());
        let Some(Ok(now)) = found else { return };
        // the place may belong to another server meanwhile
        if matches!(self.address, UpstreamAddress::Name { .. }) || *self.server() == named {
            self.take_over(now.collect());
        }
    }

    fn take_over(&self, now: Vec<SocketAddr>) {
        if now.is_empty() {
            return;
        }
        let mut found = self.found.write().unwrap_or_else(PoisonError::into_inner);
        found.retain(|known| now.contains(&known.address));
        for address in now {
            if !found.iter().any(|known| known.address == address) {
                found.push(FoundAddress { address, shunned_until_ms: AtomicU64::new(0) });
            }
        }
    }

    /// Begins to connect to the next address that takes connections and is not in `refused`; or to
    /// the next of all, if there is no such.
    ///
    /// # Errors
    /// No address is known, or no connection can be begun.
    pub(crate) fn connect(
        &self,
        refused: &[SocketAddr],
        now_ms: u64,
    ) -> io::Result<UpstreamConnection> {
        match &self.address {
            UpstreamAddress::Socket(address) => {
                client::connect(*address, ConnectOptions::default()).map(UpstreamConnection::from)
            }
            UpstreamAddress::Unix(at) => client::connect_unix(at).map(UpstreamConnection::from),
            UpstreamAddress::Name { .. } | UpstreamAddress::Service(_) => {
                self.connect_by_name(refused, now_ms)
            }
            UpstreamAddress::Launched(launched) => {
                // each program has a connection of its own, which is there at once
                let launcher = self.launcher.get().ok_or(io::ErrorKind::ConnectionRefused)?;
                launcher.connect(launched.route).map(UpstreamConnection::from)
            }
        }
    }

    fn connect_by_name(
        &self,
        refused: &[SocketAddr],
        now_ms: u64,
    ) -> io::Result<UpstreamConnection> {
        let found = self.found();
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        let in_turn = || (0..found.len()).map(|step| &found[(turn + step) % found.len()]);
        let well = in_turn().filter(|one| one.is_other(refused, now_ms));
        let mut failed = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for one in well.chain(in_turn().take(1)) {
            match client::connect(one.address, ConnectOptions::default()) {
                Ok(socket) => return Ok(UpstreamConnection::of_name(socket, one.address)),
                Err(error) if client::is_lack(&error) => return Err(error),
                // there is no route to the address, and the kernel says so at once
                Err(error) => {
                    one.shunned_until_ms.store(now_ms + SHUN_MS, Ordering::Relaxed);
                    failed = error;
                }
            }
        }
        Err(failed)
    }

    /// Notes that a connection has failed, and adds its address to `refused`. Returns whether there
    /// is another address, not in `refused`, that takes connections as far as is known. `refused` is
    /// needed where connecting takes long: the first address is no longer avoided when the last has
    /// failed.
    pub(crate) fn refused(
        &self,
        connection: &UpstreamConnection,
        refused: &mut Vec<SocketAddr>,
        now_ms: u64,
    ) -> bool {
        let Some(address) = connection.address() else { return false };
        let is_first = !refused.contains(&address);
        if is_first {
            refused.push(address);
        }
        let found = self.found();
        if let Some(one) = found.iter().find(|one| one.address == address) {
            one.shunned_until_ms.store(now_ms + SHUN_MS, Ordering::Relaxed);
        }
        is_first && found.iter().any(|one| one.is_other(refused, now_ms))
    }

    /// Whether this address is one that the upstream has now.
    pub(crate) fn have(&self, address: Option<SocketAddr>) -> bool {
        let is_known = |address| self.found().iter().any(|one| one.address == address);
        address.is_none_or(is_known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// Addresses with one port: something listens at the first, and nothing at the others.
    fn name(others: &[u8]) -> (TcpListener, SocketAddr, UpstreamAddresses) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let good = listener.local_addr().unwrap();
        let named = UpstreamAddress::Name { host: "app.example".into(), port: good.port() };
        let addresses = UpstreamAddresses::new(named);
        let of = |last: u8| SocketAddr::from(([127, 9, 9, last], good.port()));
        addresses.take_over(others.iter().map(|last| of(*last)).chain([good]).collect());
        (listener, good, addresses)
    }

    #[test]
    fn an_address_that_takes_no_connection_is_left_alone() {
        let (_listener, good, addresses) = name(&[1, 2]);
        let mut bad = Vec::new();
        for _ in 0..3 {
            let connection = addresses.connect(&[], 1).unwrap();
            if connection.address() != Some(good) {
                assert!(addresses.refused(&connection, &mut Vec::new(), 1), "there is another");
                bad.push(connection);
            }
        }
        assert_eq!(bad.len(), 2);
        for _ in 0..5 {
            assert_eq!(addresses.connect(&[], SHUN_MS).unwrap().address(), Some(good));
        }
        // after a while they are asked again; and all are asked if none takes connections
        let later: Vec<_> = (0..3).map(|_| addresses.connect(&[], SHUN_MS + 1).unwrap()).collect();
        assert_eq!(later.iter().filter(|one| one.address() == Some(good)).count(), 1);
        let all = later.iter().map(|one| addresses.refused(one, &mut Vec::new(), SHUN_MS + 1));
        assert_eq!(all.filter(|has_another| *has_another).count(), 2);
        let any: Vec<_> =
            (0..3).map(|_| addresses.connect(&[], SHUN_MS + 2).unwrap().address()).collect();
        assert_eq!(any.iter().filter(|one| **one == Some(good)).count(), 1);
    }

    #[test]
    fn each_address_is_tried_once_for_a_request() {
        let (_listener, _, addresses) = name(&[1, 2]);
        let mut refused = Vec::new();
        // connecting takes as long as an address is avoided
        let has_other: Vec<_> = (1..=4)
            .map(|turn| {
                let connection = addresses.connect(&refused, turn * SHUN_MS).unwrap();
                addresses.refused(&connection, &mut refused, turn * SHUN_MS)
            })
            .collect();
        assert_eq!(has_other, [true, true, false, false]);
        assert_eq!(refused.len(), 3);
        // another request may use all addresses again
        let connection = addresses.connect(&[], 5 * SHUN_MS).unwrap();
        assert!(addresses.refused(&connection, &mut Vec::new(), 5 * SHUN_MS));
    }

    #[test]
    fn a_connection_to_where_it_was_is_no_use() {
        let (_listener, good, addresses) = name(&[]);
        let connection = addresses.connect(&[], 1).unwrap();
        assert!(addresses.have(connection.address()));
        addresses.take_over(Vec::new());
        assert!(addresses.have(connection.address()), "a name that is not found keeps what it had");
        let other = SocketAddr::from(([127, 9, 9, 9], good.port()));
        addresses.take_over(vec![other, good]);
        assert!(addresses.have(connection.address()));
        addresses.take_over(vec![other]);
        assert!(!addresses.have(connection.address()));
        // an upstream without a name never moves
        let fixed = UpstreamAddresses::new(UpstreamAddress::Socket(good));
        assert!(fixed.have(fixed.connect(&[], 1).unwrap().address()));
    }
}
