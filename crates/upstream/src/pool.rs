//! Connections to upstreams that wait for their next request.
//!
//! A loop has a pool of its own, since the kernel reports its sockets to that loop; threads that serve one
//! connection each share one. A request that takes a connection looks first whether it has ended
//! meanwhile; and all are looked at once in a while, so that none is kept that its upstream has closed.

use crate::application::Application;
use crate::connection::UpstreamConnection;
use crate::group::MemberIndex;
use std::collections::HashMap;

/// How often all are looked at, in milliseconds.
const LOOK_MS: u64 = 1_000;

/// Idle connections, by application and upstream.
#[derive(Debug, Default)]
pub struct ConnectionPool {
    idle: HashMap<(u64, MemberIndex), Vec<IdleUpstream>>,
    looked_ms: u64,
}

#[derive(Debug)]
struct IdleUpstream {
    connection: UpstreamConnection,
    until_ms: u64,
}

impl ConnectionPool {
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

    /// Keeps a connection on which a request is over. The one that has waited for longest makes room.
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
        let idle_ms = u64::try_from(settings.idle.as_millis()).unwrap_or(u64::MAX);
        idle.push(IdleUpstream { connection, until_ms: now_ms.saturating_add(idle_ms) });
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
