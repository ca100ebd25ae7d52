//! Connections to upstreams that wait for their next request.
//!
//! A loop has a pool of its own, since the kernel reports its sockets to that loop; threads that serve one
//! connection each share one. A request that takes a connection looks first whether it has ended
//! meanwhile; and all are looked at once in a while, so that none is kept that its upstream has closed. Each takes a
//! descriptor: all pools together have a bound.

use crate::application::Application;
use crate::connection::UpstreamConnection;
use crate::group::MemberIndex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How often all are looked at, in milliseconds.
const LOOK_MS: u64 = 1_000;

/// Idle connections, by application and upstream.
#[derive(Debug, Default)]
pub struct ConnectionPool {
    idle: HashMap<(u64, MemberIndex), Vec<IdleUpstream>>,
    bound: Arc<IdleBound>,
    looked_ms: u64,
}

#[derive(Debug)]
struct IdleUpstream {
    connection: UpstreamConnection,
    until_ms: u64,
    _place: IdlePlace,
}

/// How many connections pools may keep together.
#[derive(Debug)]
pub struct IdleBound {
    most: AtomicUsize,
    kept: AtomicUsize,
}

/// One that is kept. It is given back when it is dropped.
#[derive(Debug)]
struct IdlePlace(Arc<IdleBound>);

impl IdleBound {
    /// At most so many.
    pub fn new(most: usize) -> IdleBound {
        IdleBound { most: AtomicUsize::new(most), kept: AtomicUsize::new(0) }
    }

    /// At most so many from now on. Those above it stay until they are used, or their time is over.
    pub fn set(&self, most: usize) {
        self.most.store(most, Ordering::Relaxed);
    }

    fn take(self: &Arc<Self>) -> Option<IdlePlace> {
        let most = self.most.load(Ordering::Relaxed);
        let more = |kept: usize| (kept < most).then_some(kept + 1);
        let kept = self.kept.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        kept.ok().map(|_| IdlePlace(Arc::clone(self)))
    }
}

/// As many as their settings say.
impl Default for IdleBound {
    fn default() -> IdleBound {
        IdleBound::new(usize::MAX)
    }
}

impl Drop for IdlePlace {
    fn drop(&mut self) {
        self.0.kept.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ConnectionPool {
    /// One of those that have this bound together.
    pub fn new(bound: &Arc<IdleBound>) -> ConnectionPool {
        ConnectionPool { bound: Arc::clone(bound), ..ConnectionPool::default() }
    }

    /// The connection to this upstream that was used last, if there is one that has not ended and
    /// leads to where its name does now.
    pub(crate) fn take(
        &mut self,
        application: &Application,
        member: MemberIndex,
        now_ms: u64,
    ) -> Option<UpstreamConnection> {
        let upstreams = application.upstreams();
        let idle = self.idle.get_mut(&(upstreams.number(), member))?;
        while let Some(mut last) = idle.pop() {
            let is_current = || upstreams.is_current(member, &last.connection);
            // what is sent to a Unix socket whose other end is gone fails, and has not run
            let is_fit = |connection: &mut UpstreamConnection| {
                (application.is_own() && connection.http2().is_none()) || connection.is_fit(now_ms)
            };
            if last.until_ms > now_ms && is_current() && is_fit(&mut last.connection) {
                return Some(last.connection);
            }
        }
        None
    }

    /// Keeps a connection on which a request is over. The one that has waited for longest makes room; where all pools
    /// have as many as they may, this one is closed.
    pub(crate) fn keep(
        &mut self,
        application: &Application,
        member: MemberIndex,
        connection: UpstreamConnection,
        now_ms: u64,
    ) {
        let settings = application.settings().group().keep_alive;
        let most = settings.connections as usize;
        if most == 0 {
            return;
        }
        let idle = self.idle.entry((application.upstreams().number(), member)).or_default();
        if idle.len() >= most {
            idle.remove(0);
        }
        let Some(place) = self.bound.take() else { return };
        let idle_ms = u64::try_from(settings.idle.as_millis()).unwrap_or(u64::MAX);
        let until_ms = now_ms.saturating_add(idle_ms);
        idle.push(IdleUpstream { connection, until_ms, _place: place });
    }

    /// Closes those that have ended or waited for long enough, if it is time to look.
    pub fn look(&mut self, now_ms: u64) {
        if now_ms < self.looked_ms + LOOK_MS {
            return;
        }
        self.looked_ms = now_ms;
        self.idle.retain(|_, idle| {
            idle.retain_mut(|one| one.until_ms > now_ms && one.connection.is_fit(now_ms));
            !idle.is_empty()
        });
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.idle.values().map(Vec::len).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.idle.values().all(Vec::is_empty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::tests::settings as group_of;
    use crate::settings::{
        ApplicationSettings, Balance, BodySettings, Errors, FastCgiSettings, GroupSettings,
        KeepAliveSettings,
    };
    use crate::upstreams::Upstreams;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    /// One that keeps three connections.
    fn application() -> Arc<Application> {
        let keep_alive = KeepAliveSettings { connections: 3, idle: Duration::from_secs(1) };
        let group = GroupSettings { keep_alive, ..group_of(1, Balance::Least, None) };
        let upstreams = Upstreams::new(&group, true, 0);
        let settings = FastCgiSettings {
            group,
            request: Default::default(),
            bodies: BodySettings { most_bytes: 0, spool_bytes: 0 },
            limits: Default::default(),
            errors: Errors::Theirs,
            buffer_bytes: 0,
        };
        Application::new(ApplicationSettings::FastCgi(settings), upstreams)
    }

    #[test]
    fn pools_have_a_bound_together() {
        let (bound, application) = (Arc::new(IdleBound::new(4)), application());
        let mut pools = [ConnectionPool::new(&bound), ConnectionPool::new(&bound)];
        let mut ends = Vec::new();
        for pool in &mut pools {
            for _ in 0..5 {
                let (ours, theirs) = UnixStream::pair().unwrap();
                ends.push(theirs);
                let connection = UpstreamConnection::from(OwnedFd::from(ours));
                pool.keep(&application, 0, connection, 0);
            }
        }
        let kept = |pools: &[ConnectionPool; 2]| pools.each_ref().map(ConnectionPool::len);
        assert_eq!(kept(&pools), [3, 1]);
        let used = pools[0].take(&application, 0, 1).unwrap();
        pools[1].keep(&application, 0, used, 1);
        assert_eq!(kept(&pools), [2, 2]);
        bound.set(1);
        let used = pools[1].take(&application, 0, 1).unwrap();
        pools[1].keep(&application, 0, used, 1);
        assert_eq!(kept(&pools), [2, 1], "there are more than may be");
        pools[0].look(2_000);
        pools[1].look(2_000);
        assert_eq!((kept(&pools), bound.kept.load(Ordering::Relaxed)), ([0, 0], 0));
    }
}
