//! Listening sockets: one for each loop and address, so that loops share nothing when they accept.
//! [`Listeners`] keeps them open for as long as their address is wanted, because closing one loses
//! the connections in its accept queue; engines get duplicates.
//!
//! A Unix socket, and a socket from a service manager, is shared by all loops.
//!
//! Where the kernel tells classes apart, an address has further sockets for each class
//! (`of_class`). In an upgrade all of them go to the successor (`handing`). `passed` assigns the
//! sockets of a service manager to listeners.

mod address;
pub mod handing;
mod of_class;
mod passed;

pub use address::{ListenAddress, ListenError};

use address::has_no_ipv6;
use forebay_config::{Listen, ListenEndpoint};
use forebay_conn::{Listening, Rank};
use forebay_handler::{RAW, TLS};
use forebay_sys::inherited::{self, Inherited, InheritedAddress};
use forebay_sys::socket::{self, ListenOptions, OpenSteps};
use forebay_sys::unix::{self, SocketFile};
use forebay_sys::unix_address::UnixAddress;
use forebay_sys::wait_budget::WaitBudget;
use of_class::SocketsOfClasses;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The length of the accept queue of each socket.
const BACKLOG: i32 = 4096;

/// A URL with the scheme of its endpoint.
fn with_scheme(url: String, endpoint: &ListenEndpoint) -> String {
    let scheme = match (endpoint.tls, endpoint.raw) {
        (true, _) => "https://",
        (false, true) => "tcp://",
        (false, false) => return url,
    };
    url.replacen("http://", scheme, 1)
}

/// A socket to accept from, with what the engine must know of it.
pub type AcceptSocket = forebay_engine::accept::Listener;

/// The use of a socket. Where the kernel chooses the port, each use has a port of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum SocketsFor {
    /// Clients.
    #[default]
    Clients,
    /// The admin listener.
    Admin,
}

/// The sockets of one address.
#[derive(Debug)]
struct AddressSockets {
    /// The address in the configuration.
    wanted: ListenAddress,
    /// The use of the sockets.
    purpose: SocketsFor,
    /// The address that the sockets are bound to; a port 0 is resolved.
    address: ListenAddress,
    /// The origin of the sockets.
    origin: SocketOrigin,
    /// One socket for each loop, also of earlier and larger numbers of loops, or one for all.
    sockets: Vec<OwnedFd>,
    /// How many of the sockets engines accept from, as [settled](Listeners::settle).
    in_force: usize,
    /// The sockets of classes.
    of_classes: SocketsOfClasses,
    /// How many of the sockets, counted from the last, do not listen yet.
    silent: usize,
    /// The time since which nothing new enters the queues, if the address is not wanted any more.
    left: Option<Instant>,
}

#[derive(Debug)]
enum SocketOrigin {
    /// Bound by this server, as often as there are loops.
    Bound,
    /// Bound by this server to this file.
    File(SocketFile),
    /// Opened by the service manager, which keeps it open.
    Inherited {
        /// The name that the service manager gives the socket.
        name: String,
        /// Whether a socket at `[::]` takes IPv4 connections as well.
        with_ipv4: bool,
    },
}

/// All listening sockets of the process.
#[derive(Debug, Default)]
pub struct Listeners {
    open: Vec<AddressSockets>,
    /// Sockets from outside that no listener has named yet.
    inherited: Vec<Inherited>,
    /// The user and group of the sockets, if the process switches to another user, or has not
    /// opened them itself.
    owner: Option<(u32, u32)>,
    /// How long opening the sockets has taken so far.
    times: Arc<OpenTimes>,
    /// The use for which sockets are taken at the moment.
    purpose: SocketsFor,
    /// Whether newly opened sockets listen only after
    /// [`begin_listening`](Listeners::begin_listening).
    is_silent: bool,
    /// The remaining time to wait for directories of Unix sockets that other processes have locked.
    lock_wait: WaitBudget,
}

/// How long opening listening sockets has taken so far, for metrics.
#[derive(Debug, Default)]
pub struct OpenTimes(Mutex<OpenSteps>);

impl OpenTimes {
    /// The times of all sockets of the process together.
    pub fn get(&self) -> OpenSteps {
        *self.lock()
    }

    fn lock(&self) -> MutexGuard<'_, OpenSteps> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long a connection may take from the start of its handshake until it is in the queue.
pub const ARRIVAL: Duration = Duration::from_millis(1500);

impl Listeners {
    /// Takes the sockets of a service manager, if there are any. This must be the first call.
    ///
    /// # Errors
    /// [`ListenError::Inherited`].
    pub fn inherit() -> Result<Listeners, ListenError> {
        let inherited = inherited::take().map_err(|error| ListenError::Inherited { error })?;
        Ok(Listeners { inherited, ..Listeners::default() })
    }

    /// Takes these sockets, which the program has bound and which listen.
    ///
    /// # Errors
    /// [`ListenError::Inherited`] if one does not listen.
    pub fn given(sockets: Vec<OwnedFd>) -> Result<Listeners, ListenError> {
        let given = sockets.into_iter().map(inherited::given).collect::<io::Result<_>>();
        let inherited = given.map_err(|error| ListenError::Inherited { error })?;
        Ok(Listeners { inherited, ..Listeners::default() })
    }

    /// The remaining time to wait for locked directories of sockets, all together. Other such waits
    /// at the start use it, too; a reload begins with a new budget.
    pub fn lock_wait(&mut self) -> &mut WaitBudget {
        &mut self.lock_wait
    }

    /// How long opening the sockets has taken so far.
    pub fn times(&self) -> Arc<OpenTimes> {
        Arc::clone(&self.times)
    }

    /// Sockets for `wanted`, distributed to `loops` loops; each loop has at least one of each
    /// address. Open sockets stay open and are not bound again.
    ///
    /// # Errors
    /// The first address that cannot be opened; [`undo`](Listeners::undo) closes what
    /// was opened for the others.
    pub fn take(
        &mut self,
        wanted: &[Listen],
        loops: usize,
    ) -> Result<Vec<Vec<AcceptSocket>>, ListenError> {
        let plain =
            |listen: &Listen| ListenEndpoint { listen: listen.clone(), tls: false, raw: false };
        let wanted: Vec<_> = wanted.iter().map(plain).collect();
        self.take_endpoints(&wanted, loops)
    }

    /// As [`take`](Listeners::take), for addresses with or without TLS.
    ///
    /// # Errors
    /// As [`take`](Listeners::take).
    pub fn take_endpoints(
        &mut self,
        wanted: &[ListenEndpoint],
        loops: usize,
    ) -> Result<Vec<Vec<AcceptSocket>>, ListenError> {
        self.take_ranked(wanted, loops, 0)
    }

    /// As [`take_endpoints`](Listeners::take_endpoints) for one loop, that of the admin listener.
    ///
    /// # Errors
    /// As [`take`](Listeners::take).
    pub fn take_admin(
        &mut self,
        wanted: &[ListenEndpoint],
    ) -> Result<Vec<Vec<AcceptSocket>>, ListenError> {
        self.purpose = SocketsFor::Admin;
        let taken = self.take_endpoints(wanted, 1);
        self.purpose = SocketsFor::Clients;
        taken
    }

    /// As [`take_endpoints`](Listeners::take_endpoints). Where a request can be read from the first
    /// segment, each loop also has sockets of `ranks` classes.
    ///
    /// # Errors
    /// As [`take`](Listeners::take).
    pub fn take_ranked(
        &mut self,
        wanted: &[ListenEndpoint],
        loops: usize,
        ranks: usize,
    ) -> Result<Vec<Vec<AcceptSocket>>, ListenError> {
        let mut by_loop: Vec<Vec<AcceptSocket>> = (0..loops).map(|_| Vec::new()).collect();
        for endpoint in wanted {
            let ListenEndpoint { listen, tls, raw } = endpoint;
            let mut given: Vec<Vec<AcceptSocket>> = (0..loops).map(|_| Vec::new()).collect();
            match ListenAddress::try_from(listen) {
                // the IPv6 address, to which these connections come, is in the list as well
                Ok(_) if self.comes_to_both(endpoint, wanted) => {}
                Ok(address) => self.share_out(address, &mut given)?,
                Err(port) => self.share_out_all(port, &mut given)?,
            }
            if !matches!(listen, Listen::Unix(_)) {
                for socket in given.iter().flatten() {
                    // a reload may have changed this setting of an open socket
                    let told = socket::report_at_once(&socket.socket, *raw);
                    let address = ListenAddress::Tcp(socket.local);
                    told.map_err(|error| ListenError::Bind { address, error })?;
                }
            }
            let listening = match (tls, raw) {
                (true, _) => TLS,
                (false, true) => RAW,
                (false, false) => Listening::default(),
            };
            // a class is known only from a request, which passed-on bytes need not contain
            self.share_out_of_classes(endpoint, if *raw { 0 } else { ranks }, &mut given)?;
            for (of_loop, sockets) in by_loop.iter_mut().zip(given) {
                of_loop
                    .extend(sockets.into_iter().map(|socket| AcceptSocket { listening, ..socket }));
            }
        }
        Ok(by_loop)
    }

    /// The URLs of the open sockets of these endpoints, for a browser or curl.
    pub fn urls<'l>(
        &'l self,
        wanted: &'l [ListenEndpoint],
    ) -> impl Iterator<Item = String> + use<'l> {
        let bound = self.bound(wanted, SocketsFor::Clients);
        bound.map(|(address, endpoint)| with_scheme(address.url(), endpoint))
    }

    /// The URLs of the admin listener's open sockets.
    pub fn admin_urls<'l>(
        &'l self,
        wanted: &'l [ListenEndpoint],
    ) -> impl Iterator<Item = String> + use<'l> {
        let bound = self.bound(wanted, SocketsFor::Admin);
        bound.map(|(address, endpoint)| with_scheme(address.url(), endpoint))
    }

    /// A URL for a browser on this machine.
    pub fn local_url(&self, wanted: &[ListenEndpoint]) -> Option<String> {
        let bound = self.bound(wanted, SocketsFor::Clients);
        let mut bound = bound.filter(|(_, endpoint)| !endpoint.raw);
        bound.find_map(|(address, endpoint)| Some(with_scheme(address.local_url()?, endpoint)))
    }

    fn bound<'l>(
        &'l self,
        wanted: &'l [ListenEndpoint],
        purpose: SocketsFor,
    ) -> impl Iterator<Item = (ListenAddress, &'l ListenEndpoint)> + use<'l> {
        wanted.iter().flat_map(move |endpoint| {
            let addresses = self.addresses_for(std::slice::from_ref(&endpoint.listen), purpose);
            addresses.into_iter().map(move |address| (address, endpoint))
        })
    }

    /// Takes sockets at this port for all addresses, of IPv4 and IPv6.
    fn share_out_all(
        &mut self,
        port: u16,
        by_loop: &mut [Vec<AcceptSocket>],
    ) -> Result<(), ListenError> {
        let [v4, v6] = all_addresses(port);
        if self.passed_for_both(port).is_some() {
            return self.share_out(v6, by_loop);
        }
        self.share_out(v4.clone(), by_loop)?;
        // if the kernel has chosen the port, both families use the same one
        let port = self.find(&v4).and_then(|at| self.open[at].address.port()).unwrap_or(port);
        match self.share_out(all_addresses(port)[1].clone(), by_loop) {
            Err(ListenError::Bind { error, .. }) if has_no_ipv6(&error) => Ok(()),
            given => given,
        }
    }

    /// The error for an address that cannot be opened, with the likely cause.
    fn in_the_way(&self, address: ListenAddress, error: io::Error) -> ListenError {
        let is_taken = error.kind() == ErrorKind::AddrInUse;
        let port = match &address {
            ListenAddress::Tcp(address) if is_taken && address.is_ipv4() => Some(address.port()),
            _ => None,
        };
        match port.and_then(|port| self.passed_for_both(port)) {
            Some(name) => ListenError::OfBoth { name: name.to_owned(), address },
            None => ListenError::Bind { address, error },
        }
    }

    fn share_out(
        &mut self,
        wanted: ListenAddress,
        by_loop: &mut [Vec<AcceptSocket>],
    ) -> Result<(), ListenError> {
        let at = match self.find(&wanted) {
            Some(at) => at,
            None => {
                let opened = match self.take_inherited(&wanted) {
                    Some(passed) => passed,
                    None => match self.bind(&wanted) {
                        Ok(bound) => bound,
                        Err(error) => return Err(self.in_the_way(wanted, error)),
                    },
                };
                self.open.push(opened);
                self.open.len() - 1
            }
        };
        let owner = self.owner;
        let (times, is_silent) = (Arc::clone(&self.times), self.is_silent);
        let given = self.open[at].share_out(by_loop, owner, is_silent, &times);
        given.map_err(|error| self.in_the_way(wanted, error))
    }

    /// The open sockets for an address.
    fn find(&self, wanted: &ListenAddress) -> Option<usize> {
        self.open.iter().position(|open| {
            let is_gone = open.left.is_some() && matches!(open.origin, SocketOrigin::File(_));
            let is_same = open.wanted == *wanted && open.is_for(self.purpose);
            !is_gone && (is_same || open.address == *wanted)
        })
    }

    fn bind(&mut self, wanted: &ListenAddress) -> io::Result<AddressSockets> {
        let (address, origin, sockets) = match wanted {
            ListenAddress::Unix(name @ UnixAddress::Abstract(_)) => {
                let socket = unix::listen_abstract(name, BACKLOG)?;
                (wanted.clone(), SocketOrigin::Bound, vec![socket])
            }
            ListenAddress::Unix(UnixAddress::Path(path)) => {
                let (socket, file) = unix::listen(path, BACKLOG, &mut self.lock_wait)?;
                (wanted.clone(), SocketOrigin::File(file), vec![socket])
            }
            ListenAddress::Tcp(address) => {
                (ListenAddress::Tcp(self.probe(*address)?), SocketOrigin::Bound, Vec::new())
            }
        };
        let of_classes = SocketsOfClasses::default();
        let wanted = wanted.clone();
        let bound = AddressSockets {
            wanted,
            purpose: self.purpose,
            address,
            origin,
            sockets,
            in_force: 0,
            of_classes,
            silent: 0,
            left: None,
        };
        self.owner.map_or(Ok(()), |owner| bound.give(owner))?;
        Ok(bound)
    }

    /// Binds the address without sharing it, and returns it with the port resolved. A second server
    /// on the same address thus gets an error; with shared sockets it would take half of the
    /// connections unnoticed. The probe does not listen: a client that connected to it would be
    /// lost when it is closed.
    fn probe(&self, address: SocketAddr) -> io::Result<SocketAddr> {
        match socket::bind(address, false) {
            Ok(probe) => socket::local_address(&probe),
            // this process is in its own way: `[::]:80` beside `[::1]:80`
            Err(error) if error.kind() == ErrorKind::AddrInUse && self.has(address.port()) => {
                Ok(address)
            }
            Err(error) => Err(error),
        }
    }

    fn has(&self, port: u16) -> bool {
        self.open.iter().any(|open| open.address.port() == Some(port))
    }

    /// Records that engines accept from all sockets that were taken. The result is whether engines
    /// will leave sockets of classes that are not wanted any more; connections on their way to
    /// these need the same time as at an address that is [left](Listeners::leave).
    pub fn settle(&mut self) -> bool {
        let mut any = false;
        for open in &mut self.open {
            open.in_force = open.sockets.len();
            any |= open.of_classes.settle();
        }
        any
    }

    /// Closes the sockets of addresses that are not in `wanted`, and those taken since the last
    /// [`settle`](Listeners::settle): the kernel would queue connections there that no engine accepts.
    pub fn undo(&mut self, wanted: &[Listen]) {
        self.open.retain(|open| open.is_wanted(wanted) || open.left.is_some());
        for open in &mut self.open {
            open.sockets.truncate(open.in_force);
            open.of_classes.undo();
        }
    }

    /// The addresses to which sockets for clients are bound, for `wanted`.
    pub fn addresses(&self, wanted: &[Listen]) -> Vec<ListenAddress> {
        self.addresses_for(wanted, SocketsFor::Clients)
    }

    fn addresses_for(&self, wanted: &[Listen], purpose: SocketsFor) -> Vec<ListenAddress> {
        let open = self.open.iter().filter(|open| open.left.is_none() && open.is_for(purpose));
        let bound = open.filter(|open| open.is_wanted(wanted));
        bound.map(|open| open.address.clone()).collect()
    }

    /// Makes this user and group the owner of all sockets, and of those that later calls of
    /// [`take`](Listeners::take) open. It must be called before the process switches to that user:
    /// the kernel lets only sockets of one user share an address, and more loops need more sockets.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn give(&mut self, user: u32, group: u32) -> io::Result<()> {
        self.owner = Some((user, group));
        self.open.iter().try_for_each(|open| open.give((user, group)))
    }

    /// Stops new connections to addresses that are not in `wanted`; the result is whether there are
    /// any. After [`ARRIVAL`] no connection is on its way any more: the engines accept what is queued
    /// and leave, and [`close`](Listeners::close) follows. Until then the addresses can be taken again.
    pub fn leave(&mut self, wanted: &[Listen]) -> bool {
        let mut any = false;
        for open in &mut self.open {
            if open.left.is_some() || open.is_wanted(wanted) {
                continue;
            }
            open.left = Some(Instant::now());
            open.ignore_new();
            any = true;
        }
        any
    }

    /// Closes the sockets that were left so long ago that no engine accepts from them any more.
    pub fn close(&mut self) {
        let is_over = |left: Instant| left.elapsed() >= 2 * ARRIVAL;
        self.open.retain(|open| !open.left.is_some_and(is_over));
    }

    /// Closes everything but `kept`, for good. Engines that still accept hold duplicates, accept
    /// what is queued and close them. The files of Unix sockets are removed.
    pub fn end(&mut self, kept: &[Listen]) {
        self.open.retain(|open| open.left.is_none() && open.is_wanted(kept));
    }
}

impl AddressSockets {
    /// Whether the sockets can be meant by an address in the settings for this use.
    fn is_for(&self, purpose: SocketsFor) -> bool {
        self.purpose == purpose || self.wanted.port() != Some(0)
    }

    fn is_wanted(&self, wanted: &[Listen]) -> bool {
        wanted.iter().any(|listen| match ListenAddress::try_from(listen) {
            Ok(address) => address == self.wanted || address == self.address,
            // with port 0, the IPv6 socket was taken with the port that IPv4 got
            Err(0) => matches!(&self.wanted, ListenAddress::Tcp(at) if at.ip().is_unspecified()),
            Err(port) => all_addresses(port).contains(&self.address),
        })
    }

    /// Gives each loop at least one socket; together they have all of them.
    fn share_out(
        &mut self,
        by_loop: &mut [Vec<AcceptSocket>],
        owner: Option<(u32, u32)>,
        is_silent: bool,
        times: &OpenTimes,
    ) -> io::Result<()> {
        if self.left.take().is_some() {
            self.sockets.iter().try_for_each(socket::welcome_new)?;
        }
        if let (SocketOrigin::Bound, ListenAddress::Tcp(address)) = (&self.origin, &self.address) {
            while self.sockets.len() < by_loop.len() {
                let options = ListenOptions { backlog: BACKLOG, reuse_port: true, owner };
                let open = if is_silent { socket::prepare } else { socket::listen_timed };
                self.sockets.push(open(*address, options, &mut times.lock())?);
                self.silent += usize::from(is_silent);
            }
        }
        let shared = self.sockets.len() < by_loop.len();
        for turn in 0..by_loop.len().max(self.sockets.len()) {
            let socket = self.sockets[turn % self.sockets.len()].try_clone()?;
            let local = self.address.local();
            by_loop[turn % by_loop.len()]
                .push(AcceptSocket { shared, ..AcceptSocket::new(socket, local) });
        }
        Ok(())
    }

    fn give(&self, (user, group): (u32, u32)) -> io::Result<()> {
        match &self.origin {
            SocketOrigin::Bound => self
                .sockets
                .iter()
                .try_for_each(|socket| socket::give_listener(socket, user, group)),
            SocketOrigin::File(file) => file.give(user, group),
            SocketOrigin::Inherited { .. } => Ok(()),
        }
    }

    fn ignore_new(&mut self) {
        match &mut self.origin {
            // if there is no memory for the filter, the last connections are lost
            SocketOrigin::Bound => {
                self.sockets.iter().for_each(|socket| drop(socket::ignore_new(socket)));
            }
            // without its file, no client finds the socket any more
            SocketOrigin::File(file) => file.remove(),
            SocketOrigin::Inherited { .. } => {}
        }
    }
}

/// The wildcard addresses of IPv4 and IPv6 with this port.
fn all_addresses(port: u16) -> [ListenAddress; 2] {
    [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)]
        .map(|ip| ListenAddress::from((ip, port)))
}

fn address_of(bound: &InheritedAddress) -> Option<ListenAddress> {
    match bound {
        InheritedAddress::Internet { address, .. } => Some(ListenAddress::Tcp(*address)),
        InheritedAddress::Unix(address) => Some(ListenAddress::Unix(address.clone())),
        InheritedAddress::Otherwise => None,
    }
}

#[cfg(test)]
mod tests;
