//! Listening sockets: one per loop and address, so that loops share nothing when they accept. They
//! are kept in a book for as long as their address is wanted, because closing one loses the
//! connections that wait in its queue; who accepts gets duplicates.

use crate::config::Listen;
use forebay_sys::socket::{self, ListenOptions};
use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Connections the kernel keeps for a loop until they are accepted.
const BACKLOG: i32 = 4096;

/// The sockets of one address: at least as many as there are loops.
#[derive(Debug)]
struct Listener {
    /// What was asked for.
    wanted: Listen,
    /// What it is bound to; a port 0 is resolved.
    address: SocketAddr,
    /// One for each loop, and those of loops there were before.
    sockets: Vec<OwnedFd>,
    /// Since when nothing new comes into their queues, if the address is not wanted any more.
    left: Option<Instant>,
}

/// A socket to accept with, and what the engine must know of it.
pub type Socket = forebay_engine::accept::Listener;

/// All listening sockets of the process.
#[derive(Debug, Default)]
pub struct Listeners {
    open: Vec<Listener>,
}

/// How long a connection may take into the queue after its handshake has begun.
pub const ARRIVAL: Duration = Duration::from_millis(1500);

impl Listeners {
    /// Sockets for `wanted`, dealt out to `loops` loops; each loop has at least one of each
    /// address. What is open already stays open and is not bound again.
    ///
    /// # Errors
    /// The first address that cannot be had; [`undo`](Listeners::undo) closes what was opened for
    /// the others.
    pub fn take(
        &mut self,
        wanted: &[Listen],
        loops: usize,
    ) -> Result<Vec<Vec<Socket>>, ListenError> {
        let mut hands: Vec<Vec<Socket>> = (0..loops).map(|_| Vec::new()).collect();
        for listen in wanted {
            if !self.open.iter().any(|listener| listener.wanted == *listen) {
                self.open.extend(bind(listen, loops)?);
            }
            for listener in self.open.iter_mut().filter(|listener| listener.wanted == *listen) {
                let in_the_way = |error| ListenError { address: listen.clone(), error };
                listener.deal(&mut hands).map_err(in_the_way)?;
            }
        }
        Ok(hands)
    }

    /// Closes what was taken beyond `wanted`, from which nobody has begun to accept.
    pub fn undo(&mut self, wanted: &[Listen]) {
        self.open.retain(|open| wanted.contains(&open.wanted) || open.left.is_some());
    }

    /// The addresses sockets are bound to for `wanted`.
    pub fn addresses(&self, wanted: &[Listen]) -> Vec<SocketAddr> {
        let bound = self.open.iter().filter(|listener| wanted.contains(&listener.wanted));
        bound.map(|listener| listener.address).collect()
    }

    /// Lets nothing new into the queues of what is not in `wanted`; whether there is any such. After
    /// [`ARRIVAL`] nothing is on its way any more: then those who accept take what is queued and
    /// go, and [`close`](Listeners::close) follows. Until then it can be taken again.
    pub fn leave(&mut self, wanted: &[Listen]) -> bool {
        let mut any = false;
        for listener in &mut self.open {
            if wanted.contains(&listener.wanted) || listener.left.is_some() {
                continue;
            }
            listener.left = Some(Instant::now());
            any = true;
            // without memory for the filter, what comes in the last moment is lost
            listener.sockets.iter().for_each(|socket| drop(socket::ignore_new(socket)));
        }
        any
    }

    /// Closes what was left so long ago that nobody accepts from it any more.
    pub fn close(&mut self) {
        let is_over = |left: Instant| left.elapsed() >= 2 * ARRIVAL;
        self.open.retain(|listener| !listener.left.is_some_and(is_over));
    }
}

impl Listener {
    /// Gives each hand at least one socket; together they have all.
    fn deal(&mut self, hands: &mut [Vec<Socket>]) -> io::Result<()> {
        if self.left.take().is_some() {
            self.sockets.iter().try_for_each(socket::welcome_new)?;
        }
        while self.sockets.len() < hands.len() {
            self.sockets.push(listen(self.address, true)?);
        }
        for (turn, socket) in self.sockets.iter().enumerate() {
            let copy = socket.try_clone()?;
            hands[turn % hands.len()].push(Socket::new(copy, self.address));
        }
        Ok(())
    }
}

/// An address that cannot be listened on.
#[derive(Debug)]
pub struct ListenError {
    /// The address.
    pub address: Listen,
    /// What the kernel said.
    pub error: io::Error,
}

impl fmt::Display for ListenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ListenError { address, error } = self;
        write!(f, "cannot listen on {address}: {error}")?;
        match error.kind() {
            ErrorKind::AddrInUse => write!(f, "; stop what uses it, or choose another port"),
            ErrorKind::PermissionDenied => {
                write!(f, "; ports below 1024 need root or CAP_NET_BIND_SERVICE")
            }
            ErrorKind::AddrNotAvailable => write!(f, "; this machine does not have that address"),
            _ => Ok(()),
        }
    }
}

impl std::error::Error for ListenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

/// Opens `wanted`, `loops` sockets for each of its addresses.
fn bind(wanted: &Listen, loops: usize) -> Result<Vec<Listener>, ListenError> {
    let port = match wanted {
        Listen::At(address) => return Ok(vec![bind_one(wanted, *address, loops)?]),
        Listen::All(port) => *port,
        Listen::Unix(_) => {
            let error = ErrorKind::Unsupported.into();
            return Err(ListenError { address: wanted.clone(), error });
        }
    };
    let v4 = bind_one(wanted, (Ipv4Addr::UNSPECIFIED, port).into(), loops)?;
    match bind_one(wanted, (Ipv6Addr::UNSPECIFIED, v4.address.port()).into(), loops) {
        Ok(v6) => Ok(vec![v4, v6]),
        Err(refused) if has_no_ipv6(&refused.error) => Ok(vec![v4]),
        Err(refused) => Err(refused),
    }
}

/// The kernel was built or booted without IPv6, or has no address of it.
fn has_no_ipv6(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::AddrNotAvailable | ErrorKind::Unsupported)
        || error.raw_os_error() == Some(97) // EAFNOSUPPORT
}

fn bind_one(wanted: &Listen, address: SocketAddr, loops: usize) -> Result<Listener, ListenError> {
    let in_the_way = |error| ListenError { address: Listen::At(address), error };
    // First without sharing, so that a second server on the same address is told so. Sockets that
    // share the address would let it take half of the connections unnoticed.
    let probe = listen(address, false).map_err(in_the_way)?;
    let address = socket::local_address(&probe).map_err(in_the_way)?;
    drop(probe);
    let sockets = (0..loops).map(|_| listen(address, true)).collect::<io::Result<_>>();
    let sockets = sockets.map_err(in_the_way)?;
    Ok(Listener { wanted: wanted.clone(), address, sockets, left: None })
}

fn listen(address: SocketAddr, reuse_port: bool) -> io::Result<OwnedFd> {
    socket::listen(address, ListenOptions { backlog: BACKLOG, reuse_port })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;
    use std::os::fd::AsFd;
    use std::thread::sleep;

    const ANY: Listen = Listen::At(SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0));

    #[test]
    fn a_second_server_on_the_same_address_is_refused() {
        for loops in [1, 2] {
            let mut listeners = Listeners::default();
            assert_eq!(listeners.take(&[ANY], loops).unwrap().len(), loops);
            let address = listeners.addresses(&[ANY])[0];
            let refused = Listeners::default().take(&[Listen::At(address)], loops).unwrap_err();
            assert_eq!(refused.error.kind(), ErrorKind::AddrInUse);
            assert!(refused.to_string().contains("stop what uses it"));
        }
    }

    #[test]
    fn sockets_stay_and_are_dealt_out_anew() {
        let mut listeners = Listeners::default();
        let sizes = |hands: Vec<Vec<Socket>>| hands.iter().map(Vec::len).collect::<Vec<_>>();
        for (loops, expected) in
            [(2, vec![1, 1]), (3, vec![1, 1, 1]), (2, vec![2, 1]), (1, vec![3])]
        {
            assert_eq!(sizes(listeners.take(&[ANY], loops).unwrap()), expected);
        }
        assert_eq!(listeners.addresses(&[ANY]).len(), 1);
    }

    #[test]
    fn what_is_left_takes_nothing_new_but_loses_nothing() {
        let mut listeners = Listeners::default();
        let hands = listeners.take(&[ANY], 1).unwrap();
        let address = listeners.addresses(&[ANY])[0];
        let early: Vec<_> = (0..20).map(|_| TcpStream::connect(address).unwrap()).collect();
        assert!(listeners.leave(&[]));
        assert!(!listeners.leave(&[]));
        let brief = Duration::from_millis(300);
        TcpStream::connect_timeout(&address, brief).expect_err("a new connection was taken");
        // silent clients are reported too, when the kernel asks them again
        sleep(ARRIVAL);
        let accepted = || socket::accept(hands[0][0].socket.as_fd()).unwrap();
        let arrived = std::iter::from_fn(|| match accepted() {
            socket::Accepted::Connection(socket, _) => Some(socket),
            _ => None,
        });
        assert_eq!(arrived.count(), early.len());
        listeners.close();
        assert_eq!(listeners.addresses(&[ANY]), [address], "too early");
        listeners.take(&[ANY], 1).unwrap();
        drop(TcpStream::connect(address).expect("it was taken again"));
    }
}
