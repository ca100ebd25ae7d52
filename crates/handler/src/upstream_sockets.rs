//! Descriptors of requests for applications and between stages. Limits say how many such requests there
//! may be at once, in all and of one client, and how many connections are kept between two requests.
//! Clients, files and the server itself need descriptors, too, and have theirs however busy applications
//! are.
//!
//! An exchange counts from its beginning to its end, whatever it has at a time: a connection, an eventfd
//! while it waits for its turn, or the file of a body that is collected first. An exchange that becomes a
//! tunnel counts until that ends.

use forebay_engine::admission::{ConnectionAdmission, ConnectionPlace};
use forebay_http::client::ClientKey;
use forebay_policy::given_up::GivenUpSums;
use forebay_upstream::group::Unavailable;
use forebay_upstream::pool::{ConnectionPool, IdleBound};
use std::sync::Arc;

/// The limits and counts that all loops and threads share.
#[derive(Clone, Debug)]
pub struct UpstreamSockets {
    exchanges: Arc<ConnectionAdmission>,
    idle: Arc<IdleBound>,
    given_up: Arc<GivenUpSums>,
}

/// The limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketLimits {
    /// Exchanges at once, in all.
    pub exchanges: usize,
    /// Exchanges at once for one client.
    pub exchanges_per_client: usize,
    /// Connections that wait for their next request.
    pub idle: usize,
}

impl UpstreamSockets {
    /// The counts under these limits, with nothing under way.
    pub fn new(limits: SocketLimits) -> UpstreamSockets {
        let SocketLimits { exchanges, exchanges_per_client, idle } = limits;
        UpstreamSockets {
            exchanges: ConnectionAdmission::new(exchanges, exchanges_per_client),
            idle: Arc::new(IdleBound::new(idle)),
            given_up: Arc::default(),
        }
    }

    /// Sets new limits. Exchanges above them stay; idle connections are given up within moments.
    pub fn set(&self, limits: SocketLimits) {
        self.exchanges.limit(limits.exchanges, limits.exchanges_per_client);
        self.idle.set(limits.idle);
    }

    /// Counts one more exchange, for this client; `None` is a proxy that stands for many. It counts until
    /// the returned place is dropped.
    ///
    /// # Errors
    /// The limit of exchanges is reached.
    pub fn enter(&self, client: Option<ClientKey>) -> Result<ConnectionPlace, Unavailable> {
        let place = match client {
            Some(client) => self.exchanges.enter(client),
            None => self.exchanges.enter_as_proxy(),
        };
        place.map_err(|_| Unavailable::Descriptors)
    }

    /// The requests that clients have given up, whatever they were for.
    #[inline]
    pub fn given_up(&self) -> &GivenUpSums {
        &self.given_up
    }

    /// A pool for connections that wait for their next request.
    pub fn pool(&self) -> ConnectionPool {
        ConnectionPool::new(&self.idle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_client_has_all_exchanges() {
        let limits = |exchanges, exchanges_per_client| SocketLimits {
            exchanges,
            exchanges_per_client,
            idle: 0,
        };
        let sockets = UpstreamSockets::new(limits(4, 2));
        let client = |last: u8| Some(ClientKey::of([10, 0, 0, last].into()));
        let one: Vec<_> = (0..2).map(|_| sockets.enter(client(1)).unwrap()).collect();
        assert_eq!(sockets.enter(client(1)).unwrap_err(), Unavailable::Descriptors);
        let other = sockets.enter(client(2)).unwrap();
        let proxy = sockets.enter(None).unwrap();
        assert!(sockets.enter(client(3)).is_err() && sockets.enter(None).is_err());
        drop(one);
        assert!(sockets.enter(client(1)).is_ok());
        // a reload lowers the limits
        sockets.set(limits(2, 1));
        assert!(sockets.enter(client(3)).is_err(), "two are under way");
        drop(other);
        let third = sockets.enter(client(3)).unwrap();
        assert!(sockets.enter(client(2)).is_err());
        drop((proxy, third));
        assert_eq!(sockets.exchanges.open(), 0);
    }
}
